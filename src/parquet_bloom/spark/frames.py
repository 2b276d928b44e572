"""What several jobs do with DataFrames: schemas, how many tasks, how many rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

_SQL = {
    pa.string(): "string", pa.int32(): "int", pa.int64(): "bigint", pa.float64(): "double", pa.bool_(): "boolean",
    pa.binary(): "binary", pa.list_(pa.string()): "array<string>", pa.list_(pa.int32()): "array<int>",
}  # fmt: skip


def ddl(schema: pa.Schema) -> str:
    """The rows that a task gives, as Spark's mapInArrow wants to know them."""
    return ", ".join(f"`{field.name}` {_SQL[field.type]}" for field in schema)


def width(spark: Any) -> int:
    """Tasks that are enough to keep every processor at work, though one of them be slow."""
    try:
        return 4 * int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context
        return 64


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
