"""Google's storage, by an emulator of its API on loopback, and objects in it as other programs leave them."""

from __future__ import annotations

import datetime as dt
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from pyarrow import fs
from support.loopback import free_port

NAMES = ["year=2025/month=1/a.parquet", "year=2026/month=1/b.parquet", "year=2026/month=2/c.parquet", "top.parquet"]


@contextmanager
def serving() -> Iterator[str]:
    """HOST:PORT of a process of its own: pyarrow waits for some answers of this storage with the GIL held."""
    port = free_port()
    options = ["--host=127.0.0.1", f"--port={port}", "--in-memory", "--default-bucket=data"]
    server = subprocess.Popen(
        [sys.executable, "-m", "gcp_storage_emulator", "start", *options],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not _answers(port):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def filled(endpoint: str, data: bytes) -> Iterator[fs.GcsFileSystem]:
    """NAMES below data/d, and hidden ones; no object stands for a folder."""
    limit = dt.timedelta(seconds=10)
    gcs = fs.GcsFileSystem(
        anonymous=True, scheme="http", endpoint_override=endpoint, project_id="p", retry_time_limit=limit
    )
    for name in [*NAMES, "year=2026/_temporary/half.parquet", "_delta/x.parquet"]:
        with gcs.open_output_stream(f"data/d/{name}") as out:
            out.write(data)
    assert [info.path for info in gcs.get_file_info(fs.FileSelector("data/d"))] == ["data/d/top.parquet"], (
        "GcsFileSystem shows implicit folders by now: apache/arrow#35993 is closed"
    )
    yield gcs
    for info in gcs.get_file_info(fs.FileSelector("data", recursive=True)):
        if info.is_file:
            gcs.delete_file(info.path)


def settings(endpoint: str) -> dict[str, str]:
    """Hadoop's, for Spark."""
    return {"fs.gs.storage.root.url": f"http://{endpoint}/", "fs.gs.auth.type": "UNAUTHENTICATED"}
