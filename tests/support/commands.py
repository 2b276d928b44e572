"""`parquet-bloom` in processes of their own, on pipes and on terminals, each forked from one that has imported it.

A process has its own streams, environment, folder and end; what it does not do again is half a second of imports.
Variables that Python or a library reads while it starts (PYTHONUTF8, NUMBA_CACHE_DIR) get a process from the start.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import json
import os
import pty
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from parquet_bloom import cli

READ_AT_THE_START = ("PYTHON", "NUMBA", "LC_", "LANG", "ARROW", "LD_")
LIMIT_S = 240
_SERVER = Path(__file__).with_name("command_server.py")


def command(*arguments: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `parquet-bloom` with warnings as errors, without the width that pytest gives its workers."""
    words, variables = [str(word) for word in arguments], _variables(environment)
    if any(name.startswith(READ_AT_THE_START) for name in environment):
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "parquet_bloom", *words],
            capture_output=True, text=True, cwd=cwd, env=variables, timeout=LIMIT_S, check=False,
        )  # fmt: skip
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as none:
        with _server().started(words, variables, cwd, (none.fileno(), out.fileno(), err.fileno())) as running:
            status = running.wait()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, _text(out.read()), _text(err.read()))


def in_this_process(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """As `command`, where the process is no matter: nothing is forked."""
    words = [str(word) for word in arguments]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        patch.chdir(cwd or Path.cwd())
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        status = cli.run(words)
    texts = [_text(stream.buffer.getvalue()) for stream in (out, err)]  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, status, *texts)


def on_terminal(folder: Path, *words: str, width: int = 80, **environment: str) -> str:
    """All that a terminal of so many columns gets, of both streams."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    seen = b""
    with _server().started(list(words), _variables({"TERM": "xterm", **environment}), folder, (theirs,) * 3) as running:
        os.close(theirs)
        with contextlib.suppress(OSError):  # where the other side is closed
            while chunk := os.read(ours, 1 << 16):
                seen += chunk
        os.close(ours)
        running.wait()
    return seen.decode("utf-8", "surrogateescape")


def _variables(environment: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "COLUMNS"} | environment


def _text(data: bytes) -> str:
    return data.decode().replace("\r\n", "\n")


class _Running:
    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers.makefile("r")
        self._pid = int(self._answers.readline())
        self._status: int | None = None

    def wait(self) -> int:
        """The exit status, negative for a signal."""
        if self._status is None:
            timer = threading.Timer(LIMIT_S, os.kill, (self._pid, signal.SIGKILL))
            timer.start()
            self._status = int(self._answers.readline())
            timer.cancel()
        return self._status


class _Server:
    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", str(_SERVER), str(theirs.fileno())], pass_fds=[theirs.fileno()]
        )
        theirs.close()
        atexit.register(self.end)

    @contextlib.contextmanager
    def started(
        self, words: list[str], environment: dict[str, str], cwd: Path | None, streams: tuple[int, ...]
    ) -> Iterator[_Running]:
        os.umask(umask := os.umask(0))
        request = {"words": words, "environment": environment, "cwd": str(cwd or Path.cwd()), "umask": umask}
        asked = json.dumps(request).encode()
        socket.send_fds(self._ours, [struct.pack("I", len(asked))], list(streams))
        self._ours.sendall(asked)
        running = _Running(self._ours)
        try:
            yield running
        finally:
            running.wait()  # one command at a time

    def end(self) -> None:
        self._ours.close()
        self._process.wait(60)


@cache
def _server() -> _Server:
    return _Server()


# --- standard error ---------------------------------------------------------------------------------


def without_hints(errors: str) -> list[str]:
    """The lines of errors; a hint below one is no error."""
    assert not errors or errors.endswith("\n")
    return [line for line in errors.splitlines() if not line.startswith("  hint: ")]


def error_lines(errors: str) -> int:
    """How many lines of errors there are."""
    return len(without_hints(errors))
