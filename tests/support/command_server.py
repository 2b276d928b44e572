"""Imports `parquet-bloom` once and forks a process for each command; commands.py starts and asks it.

A request on the socket is a length, three streams and JSON; the answer is a line with the process's number, and one
with its exit status. Neither numba nor a pool of threads may be there before a fork: loops run compiled where numba is.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import parquet_bloom
from parquet_bloom import cli


def imported() -> None:
    """All commands, and the modules that most of them load when they run."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        import_module(f"parquet_bloom.cli.{path.stem}")
    for name in parquet_bloom.__all__:
        if name != "scan_polars":  # imports polars
            with suppress(ImportError):  # a package that is not here: a command that needs it says so
                getattr(parquet_bloom, name)
    import pyarrow.dataset
    import pyarrow.fs
    import pyarrow.parquet  # noqa: F401


def serve(asked: socket.socket) -> None:
    while True:
        head, streams, _, _ = socket.recv_fds(asked, 4, 3)
        if not head:
            return None
        (length,) = struct.unpack("I", head)
        request = json.loads(asked.recv(length, socket.MSG_WAITALL))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python 3.12's, of threads that BLAS has
            child = os.fork()
        if not child:
            asked.close()
            become(request, streams)
            return cli.main()
        for stream in streams:
            os.close(stream)
        asked.sendall(f"{child}\n".encode())
        asked.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n".encode())


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Streams, folder, rights of new files, environment and words of the command."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    sys.argv[1:] = request["words"]
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    imported()
    assert "numba" not in sys.modules
    with socket.socket(fileno=int(sys.argv[1])) as commands:
        serve(commands)
