"""Loopback: a free port for a server, and a listener to which names of strangers lead: who connects believed them."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    """A port of loopback that nobody has at this moment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running_server(command: Sequence[str], port: int, folder: Path | None = None) -> Iterator[str]:
    """HOST:PORT of a server in a process of its own, once something listens there."""
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


class Listener:
    """Counts connections, and answers none.

    authority  host:port
    heard      the first bytes of each connection
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.authority = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.heard: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(1)
                try:
                    self.heard.append(connection.recv(65536))
                except OSError:
                    self.heard.append(b"")

    def close(self) -> None:
        self._socket.close()


@contextmanager
def listening() -> Iterator[Listener]:
    """A listener that must not hear anything by the end."""
    listener = Listener()
    try:
        yield listener
    finally:
        listener.close()
    assert listener.heard == [], "a word of a log chose who is asked"


def hostile_names(at: str) -> list[str]:
    """Absolute names of files that choose a host, host:port, an option, a user, or another storage."""
    options = f"endpoint_override={at}&scheme=http&region=us-east-1&allow_bucket_creation=true"
    return [
        f"s3://bucket/x.parquet?{options}",
        f"s3://bucket?{options}",
        f"s3a://bucket/x.parquet?{options}",
        f"s3://user:secret@bucket/x.parquet?{options}",
        f"gs://anonymous@bucket/x.parquet?endpoint_override={at}&scheme=http&retry_limit_seconds=1",
        f"abfs://container@{at}/x.parquet",
        f"abfs://account:key@{at}/container/x.parquet",
        f"hdfs://{at}/x.parquet",
        f"viewfs://{at}/x.parquet",
        f"http://{at}/x.parquet",
        f"https://{at}/x.parquet",
        f"webhdfs://{at}/x.parquet",
        f"ftp://{at}/x.parquet",
        f"smb://{at}/share/x.parquet",
        "github://user:repo@branch/x.parquet",
        f"simplecache::http://{at}/x.parquet",
        "memory://x.parquet",
        "reference://x.parquet",
        f"file://{at}/x.parquet",
    ]
