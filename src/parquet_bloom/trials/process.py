"""One engine in a process of its own: what crashes or hangs there is one answer less here, and the next is asked.

    to it      one line of JSON: a task and its arguments
    from it    one line of JSON: {"answer": ...}, or {"error": what the engine said}

The process is started by the first task, and anew after one that ended it. Nothing that comes from it is run.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from parquet_bloom.facts.advice import Engine

_CODE = """import json, sys
sys.path[:] = json.loads(sys.argv[1])
from parquet_bloom.trials.child import serve
serve(sys.argv[2])"""


class EngineError(Exception):
    """What an engine said, or how its process ended, in one line; `lost` where it was the process."""

    def __init__(self, text: str, lost: bool = False) -> None:
        self.lost = lost
        super().__init__(text)


class EngineProcess:
    """A process for one engine; use it in a with statement, which ends the process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def ask(self, task: str, **arguments: Any) -> Any:
        """What a task of trials.child gives. Raises EngineError; the process is another one after one that is lost."""
        process = self._running()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"task": task, **arguments}).encode() + b"\n")
            process.stdin.flush()
            answer: Mapping[str, Any] = json.loads(self._line(process))
        except TimeoutError:
            self._end()
            raise EngineError(f"no answer within {self._engine.seconds} s", lost=True) from None
        except (OSError, EOFError, ValueError):
            raise EngineError(f"its process ended: {self._end()}", lost=True) from None
        except BaseException:  # a signal: what the process says next would be taken for another's answer
            self._end()
            raise
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["answer"]

    def _line(self, process: subprocess.Popen[bytes]) -> bytes:
        """The next line that the process writes. Raises TimeoutError, EOFError."""
        assert process.stdout is not None
        until = time.monotonic() + self._engine.seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TimeoutError
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    raise EOFError
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            self._rest = b""
            paths = [os.path.abspath(path) for path in sys.path]
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, json.dumps(paths), self._engine.adapter],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        return self._process

    def _end(self) -> str:
        """End the process, and those that it started, such as a JVM; says how it ended by itself."""
        process, self._process = self._process, None
        if process is None:
            return ""
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        try:
            status = process.wait(5)
        except subprocess.TimeoutExpired:
            status = 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return (signal.strsignal(-status) or f"signal {-status}") if status < 0 else f"exit status {status}"
