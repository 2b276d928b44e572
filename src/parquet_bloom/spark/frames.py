"""What several jobs do with DataFrames: schemas, how many tasks, how many rows at a time."""

from __future__ import annotations

import functools
import gc
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_SQL = {
    pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean",
    pa.binary(): "binary", pa.list_(pa.string()): "array<string>", pa.list_(pa.int32()): "array<int>",
}  # fmt: skip


def ddl(schema: pa.Schema) -> str:
    """The rows that a task gives, as Spark's mapInArrow wants to know them."""
    return ", ".join(f"`{field.name}` {_SQL[field.type]}" for field in schema)


def mapped(frame: Any, run: Batches, schema: Any) -> Any:
    """A generator over record batches as a step of a job; schema: Arrow's, Spark's, or its text.

    Two calls never give the same step: Spark takes plans with equal functions for one, and would
    answer the second from the rows that it keeps of the first, though files have changed since.
    """
    step = functools.partial(_in_worker, run=run, call=uuid.uuid4().hex)
    return frame.mapInArrow(step, ddl(schema) if isinstance(schema, pa.Schema) else schema)


_modules = 0  # that were imported when this process last set its objects aside


def _in_worker(batches: Iterator[pa.RecordBatch], run: Batches, call: str) -> Iterator[pa.RecordBatch]:
    """After each task a worker of PySpark collects garbage while the next task waits for it.

    It need not look through what modules hold: that took 45 of the 100 ms that a task took to begin.
    """
    global _modules
    yield from run(batches)
    if len(sys.modules) > _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)


def parallelism(spark: Any) -> int:
    """Processors that work for a session, as far as it knows."""
    try:
        return max(1, int(spark.sparkContext.defaultParallelism))
    except Exception:  # Spark Connect has no context
        return 16


def width(spark: Any) -> int:
    """Tasks that are enough to keep every processor at work, though one of them be slow."""
    return 4 * parallelism(spark)


@contextmanager
def small_batches(spark: Any) -> Iterator[None]:
    """Rows that carry filters are megabytes, up to 128 MiB each: few of them are handed to Python at a time."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    old = spark.conf.get(name)
    spark.conf.set(name, "16")
    try:
        yield
    finally:
        spark.conf.set(name, old)


# Of rows with a `path`: the same for the same paths in any order, and all but surely another for others.
MARK = "bit_xor(xxhash64(path))"


def computed(frame: Any, *sums: str) -> tuple[Any, ...]:
    """A DataFrame whose tasks have run, once, and sums over its rows, which stay in Spark's cache."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    frame = frame.persist()
    seen = Observation()
    names = [f"sum{i}" for i in range(len(sums))]
    looked_at = frame.observe(seen, *map(sf.expr, map("{} {}".format, sums, names))) if sums else frame
    looked_at.write.format("noop").mode("overwrite").save()  # count() would be two jobs
    return frame, *([seen.get[name] for name in names] if sums else [])
