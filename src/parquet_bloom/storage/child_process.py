"""A process beside this one that answers questions: what crashes or hangs there is an error here, and no end.

    to it      one line of JSON: the question
    from it    one line of JSON: the answer, whose "length" says how many bytes follow

Nothing that comes from it is run: no pickles.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

Answer = tuple[Mapping[str, Any], bytes]  # for JSON, and the bytes that follow
# sys is in the interpreter. Anything else that is imported before the path is set may be a file of the working folder.
_CODE = """import sys
sys.path[:] = sys.argv[2:]
from parquet_bloom.storage.child_process import serve
serve(sys.argv[1])"""
_PATIENCE = 5  # seconds for a process to end by itself, once nobody asks it any more


class ChildProcess:
    """Started by the first question, and anew by one after it ended. Questions of several threads wait for each other.

    module  has `answering`, which is called there and gives a function: question -> Answer
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._rest = b""

    def ask(self, question: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
        """The answer. Raises EOFError that says how the process ended."""
        with self._lock:
            process = self._running()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
                while b"\n" not in self._rest:
                    self._rest += self._read(process)
                line, _, start = self._rest.partition(b"\n")
                header: dict[str, Any] = json.loads(line)
                data = bytearray(start)
                while len(data) < header["length"]:
                    data += self._read(process)
                self._rest = b""
                return header, bytes(data)
            except (EOFError, OSError, ValueError):
                raise EOFError(self.close()) from None
            except BaseException:  # a signal: what the process says next would be taken for another's answer
                self.close()
                raise

    def close(self) -> str:
        """End the process, which nobody may be asking; says how it ended. May be called twice."""
        process, self._process = self._process, None
        if process is None:
            return ""
        ours = self._owner == os.getpid()  # else it is the parent's, before it forked us
        if not ours:
            process.returncode = 0
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE)
        if ours:
            process.kill()
        status = process.wait()
        return (signal.strsignal(-status) or f"signal {-status}") if status < 0 else f"exit status {status}"

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and (self._owner != os.getpid() or self._process.poll() is not None):
            self.close()
        if self._process is None:
            self._rest = b""
            paths = [os.path.abspath(path) for path in sys.path]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, self._module, *paths],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._owner = os.getpid()
        return self._process

    @staticmethod
    def _read(process: subprocess.Popen[bytes]) -> bytes:
        """Read a line of the process. Raises EOFError."""
        assert process.stdout is not None
        data = os.read(process.stdout.fileno(), 1 << 20)
        if not data:
            raise EOFError
        return data


def serve(module: str) -> None:
    """In the process: answer until the other end closes, or dies."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print is no answer
    answer: Callable[[dict[str, Any]], Answer] = importlib.import_module(module).answering()
    for line in sys.stdin.buffer:
        header, data = answer(json.loads(line))
        answers.write(json.dumps({**header, "length": len(data)}).encode() + b"\n" + data)
        answers.flush()
