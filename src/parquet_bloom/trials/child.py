"""In the process of one engine (`trials.ask`): a task is a question, and has an answer or an error."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import first_line
from parquet_bloom.storage.child_process import Answer
from parquet_bloom.trials import samples
from parquet_bloom.trials.adapters.adapter import Adapter, CannotAskError
from parquet_bloom.trials.samples import COLUMNS

_SHOWN = 200  # characters of what an engine says


def answering(adapter: str) -> Callable[[Mapping[str, Any]], Answer]:
    """Answer a question by the module and class in trials.adapters; {"error": the engine's text} if that fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who asks us ends us
    module, _, name = adapter.partition(":")
    engine: Adapter | None = None

    def answer(question: Mapping[str, Any]) -> Answer:
        nonlocal engine
        try:
            if engine is None:
                engine = getattr(import_module(f"parquet_bloom.trials.adapters.{module}"), name)()
            return {"answer": _answer(engine, question)}, b""
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # of any kind: Rust's panics are no Exception
            return {"error": _error_text(error)}, b""

    return answer


def _error_text(error: BaseException) -> str:
    """The error in one short line."""
    text = str(error) if isinstance(error, CannotAskError) else f"{type(error).__name__}: {first_line(error)}"
    return text[:_SHOWN]


def _answer(engine: Adapter, question: Mapping[str, Any]) -> Any:
    if question["task"] == "count":
        values, _ = samples.question_values(question["kind"], question["question"])
        return engine.count(question["path"], COLUMNS[question["stored"]], question["question"], values)
    if question["task"] == "find":
        return _run_query(engine, question["path"], question["where"])
    told = engine.tell(question["path"], question["where"])
    return {"read": told.read, "of": told.of, "note": told.note}


def _run_query(engine: Adapter, path: str, where: str) -> dict[str, Any]:
    """Run a query: how long it took, what it read, and a digest of its rows."""
    before = bytes_read()
    start = time.perf_counter()
    rows = engine.find(path, where)
    seconds = time.perf_counter() - start
    after = bytes_read()
    read = None if before is None or after is None else after - before
    return {"seconds": seconds, "bytes": read, "rows": rows.num_rows, "digest": digest_of(rows)}


def bytes_read() -> int | None:
    """Bytes that this process has read by calls of the operating system; None where it does not count them."""
    with contextlib.suppress(OSError), open("/proc/self/io") as file:
        return int(file.readline().split()[1])
    return None


def digest_of(rows: pa.Table) -> str:
    """A number for the rows of a table, whatever their order and in however many batches: equal rows, equal number."""
    total = 0
    for batch in rows.to_batches(max_chunksize=1 << 14):
        for row in zip(*map(_values, batch.columns), strict=True):
            total += int.from_bytes(hashlib.sha256(repr(row).encode()).digest()[:16])
    return f"{total % 2**128:032x}"


def _values(column: pa.Array) -> list[Any]:
    """As Python has them; times as numbers, as Python's have no nanoseconds."""
    if pa.types.is_temporal(column.type) and not pa.types.is_interval(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    values: list[Any] = column.to_pylist()
    return values
