"""Tasks, executors and drivers that die: every file is old or new and whole at any time, and none is left out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clusters import activated, script, standalone
from support import samples
from support.spark_needed import need_spark

import parquet_bloom

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
FILES = 12
HERE = Path(__file__).resolve().parent
CLUSTER = "local-cluster[2,1,1024]"  # two executors, processes of their own


@pytest.fixture(scope="module", autouse=True)
def java() -> None:
    need_spark()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(FILES):
        ids = np.random.default_rng(i).integers(-(2**63), 2**63 - 1, 10_000 if i % 2 else 30_000)
        pq.write_table(pa.table({"id": ids}), folder / f"{i:02}.parquet", row_group_size=5000, use_dictionary=False)
    return folder


@pytest.fixture
def versions(data: Path, tmp_path: Path) -> dict[str, tuple[bytes, bytes]]:
    """The old and the new bytes of every file."""
    parquet_bloom.add_filters(data, tmp_path / "expected", columns=["id"], sync=False)
    return {p.name: (p.read_bytes(), (tmp_path / "expected" / p.name).read_bytes()) for p in data.iterdir()}


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    folder = tmp_path / "faults"
    folder.mkdir()
    return folder


def environment(faults: Path) -> dict[str, str]:
    own = os.pathsep.join([str(HERE.parents[1] / "src"), str(HERE)])
    return {**activated(), "PYTHONPATH": own, "PARQUET_BLOOM_FAULTS": str(faults)}


def settings(faults: Path) -> list[str]:
    """Spark's properties; the executors' environment is theirs alone, the driver does not die by it."""
    executors = {"SPARK_EXECUTOR_FAULTS": "1", "PARQUET_BLOOM_FAULTS": str(faults)}
    return [
        "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", "spark.executor.memory=512m",
        "spark.sql.shuffle.partitions=4", "spark.task.maxFailures=4",
        *(f"spark.{who}.extraJavaOptions=-XX:TieredStopAtLevel=1" for who in ("driver", "executor")),
        *(f"spark.executorEnv.{name}={value}" for name, value in executors.items()),
    ]  # fmt: skip


def job_command(faults: Path, data: Path, *more: str) -> list[str]:
    path = f"spark.executorEnv.PYTHONPATH={environment(faults)['PYTHONPATH']}"
    return [sys.executable, str(HERE / "run_job.py"), CLUSTER, str(data), *settings(faults), path, *more]


def job(faults: Path, data: Path, *more: str) -> dict[str, int]:
    command = job_command(faults, data, *more)
    done = subprocess.run(command, env=environment(faults), capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    statuses: dict[str, int] = json.loads(done.stdout.splitlines()[-1])["statuses"]
    return statuses


def new_in(data: Path, versions: dict[str, tuple[bytes, bytes]]) -> int:
    """How many files are new. Fails where one is neither old nor new."""
    found = {name: (data / name).read_bytes() for name in versions}
    assert all(found[name] in versions[name] for name in versions)
    return sum(found[name] == new for name, (_, new) in versions.items())


def settled(data: Path, versions: dict[str, tuple[bytes, bytes]]) -> None:
    assert new_in(data, versions) == FILES
    assert set(os.listdir(data)) == set(versions), "no temporary file is left"


def test_tasks_and_an_executor_die(data: Path, versions: dict[str, tuple[bytes, bytes]], faults: Path) -> None:
    """One process dies before its rename, one after it, and one executor with its file half way; twins run beside.

    Half of the files are split.
    """
    for name in ("before", "after", "executor"):
        (faults / name).touch()
    speculation = ("spark.speculation=true", "spark.speculation.multiplier=1.01", "spark.speculation.quantile=0.1",
                   "spark.speculation.interval=20ms", "spark.speculation.minTaskRuntime=10ms")  # fmt: skip
    statuses = job(faults, data, "split_bytes=150000", *speculation)
    assert {f"{name}-happened" for name in ("before", "after", "executor")} <= set(os.listdir(faults))
    assert set(statuses) <= {"done", "unchanged"}
    assert sum(statuses.values()) == FILES
    settled(data, versions)


def test_the_driver_is_killed_and_the_job_run_again(
    data: Path, versions: dict[str, tuple[bytes, bytes]], faults: Path
) -> None:
    (faults / "slow").write_text("0.7")
    with subprocess.Popen(
        job_command(faults, data),
        env=environment(faults),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as driver:
        deadline = time.monotonic() + 240
        while len(list(faults.glob("committed-*"))) < 3:
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(driver.pid, signal.SIGKILL)  # python and its JVM; the executors lose their driver
    new = new_in(data, versions)
    assert 0 < new < FILES, "killed in the middle"
    (faults / "slow").unlink()
    _wait_for_orphans(faults)
    new = new_in(data, versions)
    statuses = job(faults, data)
    assert statuses == {"unchanged": new, "done": FILES - new} or (new == FILES and statuses == {"unchanged": FILES})
    settled(data, versions)


def _wait_for_orphans(faults: Path) -> None:
    """Workers notice the loss of their executor, and that its driver is gone, and end."""
    own = f"PARQUET_BLOOM_FAULTS={faults}".encode()
    deadline = time.monotonic() + 120
    while any(own in _environment_of(process) for process in Path("/proc").glob("[0-9]*")):
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _environment_of(process: Path) -> list[bytes]:
    try:
        return (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return []


@pytest.mark.slow
def test_spark_submit_to_a_cluster_with_the_package_as_a_zip(
    data: Path, versions: dict[str, tuple[bytes, bytes]], faults: Path, tmp_path: Path
) -> None:
    """Two workers that know nothing of the package but what --py-files brings; one executor dies on the way."""
    archive = tmp_path / "parquet_bloom.zip"
    assert samples.command("spark", "package", archive).returncode == 0
    (faults / "executor").touch()
    env = environment(faults)
    del env["PYTHONPATH"]
    with standalone(tmp_path, env) as url:
        conf = [part for setting in settings(faults) for part in ("--conf", setting)]
        job = [str(HERE / "run_job.py"), "submitted", str(data)]
        command = [
            script("spark-submit"),
            "--master",
            url,
            *conf,
            "--py-files",
            f"{archive},{HERE / 'faults.py'}",
            *job,
        ]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert "parquet_bloom.zip" in told["executor"]
    assert sum(told["statuses"].values()) == FILES
    assert set(told["statuses"]) <= {"done", "unchanged"}
    assert "executor-happened" in os.listdir(faults)
    settled(data, versions)
