"""How many modules of the package one warm call walks through: those in which it runs a function.

    python tests/walks.py            a line a call, with its modules
    python tests/walks.py --calls    Python calls and system calls of each instead, for a comparison of two versions

The call is made twice, and counted the second time, so that neither imports nor caches count. Files are those of the
tests: one of 20,000 rows, local. Reading `check` begins with the modules that this names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

ROOT = Path(parquet_bloom.__file__).resolve().parent


def write_files(folder: Path) -> None:
    """`plain.parquet`, and `filters.parquet`, which is the same with filters on all columns that can have them."""
    random = np.random.default_rng(1)
    n = 20_000
    table = pa.table({"id": random.integers(0, 1 << 60, n), "name": [f"{x:x}" for x in random.integers(0, 1 << 60, n)]})
    pq.write_table(table, folder / "plain.parquet", row_group_size=5000)
    parquet_bloom.add_filters(folder / "plain.parquet", folder / "filters.parquet", columns=["*"], sync=False)


def calls_over(folder: Path) -> dict[str, Callable[[], Any]]:
    """The calls that are counted, by their names."""
    plain, filters, new = folder / "plain.parquet", folder / "filters.parquet", folder / "new.parquet"
    return {
        "check": lambda: parquet_bloom.check(filters, "id = 5"),
        "prune": lambda: parquet_bloom.prune(filters, column="id", values=[5, 6, 7]),
        "read_table": lambda: parquet_bloom.read_table(filters, "id = 5"),
        "inspect": lambda: parquet_bloom.inspect(filters),
        "verify": lambda: parquet_bloom.verify(filters),
        "add_filters": lambda: parquet_bloom.add_filters(plain, new, columns=["id"], overwrite=True, sync=False),
        "remove_filters": lambda: parquet_bloom.remove_filters(filters, new, overwrite=True, sync=False),
    }


def walked(call: Callable[[], Any]) -> tuple[list[str], int]:
    """(the modules, by their paths in the package; how many Python functions were called), in all threads."""
    files: set[str] = set()
    count = 0

    def seen(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        if event == "call":
            count += 1
            files.add(frame.f_code.co_filename)

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    inside = (Path(name) for name in files if name.startswith(f"{ROOT}{os.sep}"))
    own = (path for path in inside if "_thrift" not in path.parts)
    return sorted(str(path.relative_to(ROOT)) for path in own), count


def system_calls(name: str, folder: Path) -> int:
    """How many system calls one more call makes in a process that has made some: by strace, 20 calls less 10."""
    counts = []
    for times in (10, 20):
        log = folder / "strace.txt"
        repeat = [sys.executable, __file__, "--repeat", name, str(folder), str(times)]
        subprocess.run(["strace", "-f", "-qq", "-o", str(log), *repeat], check=True)
        counts.append(sum(" = " in line or "<unfinished" in line for line in log.read_text().splitlines()))
    return (counts[1] - counts[0]) // 10


def main(words: list[str]) -> None:
    if words[:1] == ["--repeat"]:
        call = calls_over(Path(words[2]))[words[1]]
        for _ in range(int(words[3])):
            call()
        return
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder))
        for name, call in calls_over(Path(folder)).items():
            call()
            modules, count = walked(call)
            if words == ["--calls"]:
                print(f"{name:15} {count:7,} Python calls {system_calls(name, Path(folder)):6,} system calls")
            else:
                print(f"{name:15} {len(modules):3} modules: {' '.join(modules)}")


if __name__ == "__main__":
    main(sys.argv[1:])
