"""Sparks that run in processes of their own, by the scripts of the pyspark that is installed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.loopback import free_port

Start = Callable[..., None]


def activated() -> dict[str, str]:
    """The environment of who has activated the one that runs the tests: its `python3` is the first on PATH."""
    folder = Path(sys.executable).parent
    return {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}


def without_package(folder: Path, name: str, packages: bool) -> Path:
    """A Python that lacks parquet-bloom, and all other packages or none: the path of its program."""
    made = folder / name
    venv.create(made, with_pip=False, symlinks=True)
    if packages:  # .pth files of that folder, such as an editable installation's, are not read
        [own] = made.glob("lib/python*/site-packages")
        (own / "others.pth").write_text(sysconfig.get_path("purelib"))
    return made / "bin" / "python3"


def script(name: str) -> str:
    import pyspark

    return str(Path(pyspark.__file__).parent / "bin" / name)


@contextmanager
def standalone(folder: Path, env: Mapping[str, str]) -> Iterator[str]:
    """A master and two workers on loopback; gives the master's URL."""
    with _processes(env) as start:
        log = folder / "master.log"
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        start(log, script("spark-class"), *master)
        url = _wait_for(log, "Starting Spark master at ").split()[0]
        for i in range(2):
            worker = folder / f"worker{i}.log"
            start(
                worker, script("spark-class"), "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1",
                "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{i}"), url,
            )  # fmt: skip
            _wait_for(worker, "Successfully registered with master ")
        yield url


@contextmanager
def connect_server(folder: Path, env: Mapping[str, str]) -> Iterator[str]:
    """A server for Spark Connect on loopback; gives its URL."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }  # fmt: skip
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    with _processes(env) as start:
        log = folder / "connect.log"
        main = "org.apache.spark.sql.connect.service.SparkConnectServer"
        start(log, script("spark-submit"), "--master", "local[2]", *conf, "--class", main, "spark-internal")
        _wait_for(log, "Spark Connect server started at")
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _processes(env: Mapping[str, str]) -> Iterator[Start]:
    running: list[subprocess.Popen[Any]] = []

    def start(log: Path, *command: str) -> None:
        with open(log, "w") as out:
            running.append(subprocess.Popen(command, env=dict(env), stdout=out, stderr=out, start_new_session=True))

    try:
        yield start
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(log: Path, text: str) -> str:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        told = log.read_text()
        if text in told:
            return told.partition(text)[2]
        time.sleep(0.1)
    raise AssertionError(f"{log}: {log.read_text()[-2000:]}")
