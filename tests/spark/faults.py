"""Executors that die at the worst moments, on purpose and each only once.

A job whose executors install, in their own process, a commit that kills something. What happens
is decided by marker files, so that only the first one dies:

    before     the process that writes, all bytes written and checked, right before the rename
    after      the same, right after the rename and before anything is told to Spark
    executor   the executor's JVM, with the file half way
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parquet_bloom.output import atomic_file
from parquet_bloom.spark.tasks import Job

_original = atomic_file.AtomicFile.commit


@dataclass(frozen=True)
class FaultyJob(Job):
    """As Job; markers lie in the folder that the environment names, where every process finds it."""

    def run(self, *arguments: Any, **options: Any) -> Any:
        folder = os.environ.get("PARQUET_BLOOM_FAULTS")
        if folder and "SPARK_EXECUTOR_FAULTS" in os.environ:
            atomic_file.AtomicFile.commit = _faulty  # type: ignore[method-assign]
        return super().run(*arguments, **options)


def _faulty(self: atomic_file.AtomicFile, *arguments: Any) -> None:
    folder = Path(os.environ["PARQUET_BLOOM_FAULTS"])
    if _first(folder, "before"):
        os.kill(os.getpid(), signal.SIGKILL)
    if _first(folder, "executor"):
        os.kill(_jvm(), signal.SIGKILL)
        time.sleep(30)  # the worker dies with its JVM; if it does not, it goes on
    if _wanted(folder, "slow"):
        time.sleep(float((folder / "slow").read_text()))
    _original(self, *arguments)
    (folder / f"committed-{os.getpid()}-{time.monotonic_ns()}").touch()
    if _first(folder, "after"):
        os.kill(os.getpid(), signal.SIGKILL)


def _wanted(folder: Path, name: str) -> bool:
    return (folder / name).exists()


def _first(folder: Path, name: str) -> bool:
    """Whether the fault is asked for and this process is the first to come."""
    try:
        os.rename(folder / name, folder / f"{name}-happened")
    except OSError:
        return False
    return True


def _jvm() -> int:
    """The process above the worker and its daemon."""
    return _parent(os.getppid())


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])
