"""Runs one engine in a process of its own: a crash or hang costs one answer."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from parquet_bloom.facts.known import Engine
from parquet_bloom.storage.child_process import ChildProcess


class EngineError(Exception):
    """An engine's error, or the end of its process, in one line; `lost` where it was the process."""

    def __init__(self, text: str, lost: bool = False) -> None:
        self.lost = lost
        super().__init__(text)


class EngineProcess:
    """A process for one engine; use it in a with statement, which ends the process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._child = ChildProcess("parquet_bloom.trials.child", engine.adapter, alone=True)

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._child.close()

    def ask(self, task: str, **arguments: Any) -> Any:
        """The answer of a task of trials.child. Raises EngineError; a lost process is started anew."""
        try:
            answer, _ = self._child.ask({"task": task, **arguments}, self._engine.seconds)
        except TimeoutError:
            raise EngineError(f"no answer within {self._engine.seconds} s", lost=True) from None
        except EOFError as error:
            raise EngineError(f"its process ended: {error}", lost=True) from None
        if "error" in answer:
            raise EngineError(answer["error"])
        return answer["answer"]
