"""DataFrames of jobs: steps, the number of tasks, rows at a time, a report as a file.

frame -> mapped_rows(work) -> frame     executors: rows, as dicts -> a generator of ours -> rows
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import islice
from typing import Any
from weakref import WeakSet

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.output.atomic_file import new_output
from parquet_bloom.spark.sessions import context_of, is_own, own_python
from parquet_bloom.spark.storages import storages
from parquet_bloom.storage.remote import arrow_of, storage_error

Row = dict[str, Any]
Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
RowsToRows = Callable[[Iterator[Row]], Iterable[Row]]

# --- steps of a job -------------------------------------------------------------------------------
#
# What executors do between two DataFrames: a generator over record batches, or over their rows.

_BATCH_ROWS, _BATCH_BYTES = 4096, 16 << 20  # that a step gives at a time; bytes of the column `data`
_SQL = {
    pa.string(): "string",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
}


def _in_spark(schema: Any) -> Any:
    """A schema as Spark takes it: Arrow's becomes text, others stay."""
    if not isinstance(schema, pa.Schema):
        return schema
    return ", ".join(f"`{field.name}` {_sql(field.type)}" for field in schema)


def _sql(kind: pa.DataType) -> str:
    if pt.is_list(kind):
        return f"array<{_sql(kind.value_type)}>"
    if pt.is_struct(kind):
        return f"struct<{', '.join(f'`{field.name}`: {_sql(field.type)}' for field in kind)}>"
    return _SQL[kind]


def mapped(frame: Any, run: Batches, schema: Any) -> Any:
    """A generator over record batches as a step of a job; schema: Arrow's, Spark's, or its text.

    Two calls never give the same step: Spark takes plans with equal functions for one, and would
    answer the second from the rows that it keeps of the first, though files have changed since.
    """
    step = functools.partial(_in_worker, run=run, call=uuid.uuid4().hex)
    with own_python(frame.sparkSession):
        return frame.mapInArrow(step, _in_spark(schema))


def mapped_rows(frame: Any, work: RowsToRows, schema: pa.Schema) -> Any:
    """A generator over rows as a step of a job; of what it gives the columns of the schema are kept."""
    return mapped(frame, functools.partial(by_rows, work=work, schema=schema), schema)


def by_rows(batches: Iterator[pa.RecordBatch], work: RowsToRows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of some batches, as `work` turns them into others."""
    pending: list[Row] = []
    size = 0
    for row in work(row for batch in batches for row in batch.to_pylist()):
        pending.append(row)
        size += len(row.get("data") or b"")
        if size >= _BATCH_BYTES or len(pending) == _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(pending, schema=schema)
            pending, size = [], 0
    yield pa.RecordBatch.from_pylist(pending, schema=schema)


_tried: WeakSet[Any] = WeakSet()  # sessions whose workers ran a task of ours


def try_workers(spark: Any) -> None:
    """Run one task, before a DataFrame is returned that runs its tasks later: what workers lack is an error here.

    Once a session, and never where workers have the Python of this process. Raises what Spark raises.
    """
    if spark not in _tried and not is_own(spark):
        mapped_rows(spark.range(1), _nothing, pa.schema([("nothing", pa.int32())])).collect()
        _tried.add(spark)


def _nothing(rows: Iterator[Row]) -> Iterator[Row]:
    return filter(lambda _: False, rows)


def frame_of(spark: Any, rows: Sequence[Sequence[Any]], schema: Any) -> Any:
    """Rows that the driver has, as a DataFrame. Classic Spark runs Python workers for that too."""
    with own_python(spark):
        return spark.createDataFrame(rows, _in_spark(schema))


_modules = 0  # that were imported when this process last set its objects aside


def _in_worker(batches: Iterator[pa.RecordBatch], run: Batches, call: str) -> Iterator[pa.RecordBatch]:
    """Run one task, then freeze the objects of imported modules.

    PySpark's worker calls gc.collect() after each task while the next one waits. Scanning what modules hold took 45 of
    the 100 ms that a task needed to begin (PySpark's daemon.py; docs/architecture.md, "Workarounds", says when this
    can go).
    """
    global _modules
    yield from run(batches)
    if len(sys.modules) > _modules:
        gc.collect()
        gc.freeze()
        _modules = len(sys.modules)


# --- how much at a time ---------------------------------------------------------------------------
#
# How many tasks, how many rows of a batch, and what stays in the cache.


def parallelism(spark: Any) -> int:
    """Processors that work for a session, as far as it knows."""
    context = context_of(spark)
    return 16 if context is None else max(1, int(context.defaultParallelism))


def width(spark: Any) -> int:
    """Tasks that are enough to keep every processor at work, though one of them be slow."""
    return 4 * parallelism(spark)


_settings = threading.Lock()
_changed: dict[tuple[int, str], tuple[str, int]] = {}  # (session, setting) -> what it was, how many changed it


@contextmanager
def _setting(spark: Any, name: str, value: str) -> Iterator[None]:
    """Another value of a session's setting for a while; the last of several threads puts the old one back.

    A session that lets nobody change it goes on as it is.
    """
    from pyspark.errors import PySparkException

    key = (id(spark), name)
    with _settings:
        old, users = _changed.get(key, (None, 0))
        try:
            old = spark.conf.get(name) if old is None else old
            spark.conf.set(name, value)
        except PySparkException as error:
            if "CONFIG" not in (error.getCondition() or ""):  # CANNOT_MODIFY_..., CONFIG_NOT_AVAILABLE
                raise
            old = None
        else:
            _changed[key] = (old, users + 1)
    if old is None:
        yield
        return
    try:
        yield
    finally:
        with _settings:
            old, users = _changed.pop(key)
            if users > 1:
                _changed[key] = (old, users - 1)
            else:
                spark.conf.set(name, old)


def small_batches(spark: Any) -> AbstractContextManager[None]:
    """Rows that carry filters are megabytes, up to 128 MiB each: few of them are handed to Python at a time."""
    return _setting(spark, "spark.sql.execution.arrow.maxRecordsPerBatch", "16")


def kept(frame: Any) -> Any:
    """Keep the rows in Spark's cache once a job has made them.

    What is kept is not planned adaptively: that would make two jobs of every one over it.
    """
    with _setting(frame.sparkSession, "spark.sql.adaptive.enabled", "false"):
        return frame.persist()


def mark(where: str = "true") -> str:
    """SQL for a checksum over the paths of rows with a `path`, which does not depend on their order."""
    return f"coalesce(bit_xor(if({where}, xxhash64(path), 0L)), 0L)"


def computed(frame: Any, *sums: str) -> tuple[Any, ...]:
    """A DataFrame whose tasks have run, once, and sums over its rows, which stay in Spark's cache.

    sums  aggregate expressions, without FILTER and DISTINCT
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    frame = kept(frame)
    seen = Observation()
    names = [f"sum{i}" for i in range(len(sums))]
    looked_at = frame.observe(seen, *map(sf.expr, map("{} {}".format, sums, names))) if sums else frame
    looked_at.write.format("noop").mode("overwrite").save()  # count() would be two jobs
    return frame, *([seen.get[name] for name in names] if sums else [])


# --- a report as a file ---------------------------------------------------------------------------
#
# The rows of a cached DataFrame as one Parquet file.

_REPORT_ROWS = 10_000  # that are written at a time
_MOST_PARTS = 64  # each is one small Spark job


def refuse_existing(spark: Any, name: str) -> None:
    """Raise StorageError for a local file that is there: before the work, not after it."""
    store, path = storages(spark, [name]).open(name)
    if store.is_local and store.exists(path):
        raise StorageError(name, "exists; give another name for the report")


def write_report(spark: Any, frame: Any, name: str) -> None:
    """Write a cached frame as one Parquet file, local or on a storage as Spark names it; in bounded memory.

    Raises StorageError; a local file that exists is an error too.
    """
    store, path = storages(spark, [name]).open(name)
    schema = _arrow_schema(frame)
    try:
        with (
            new_output(path, overwrite=False)
            if store.is_local
            else arrow_of(store.filesystem).open_output_stream(path) as out,
            pq.ParquetWriter(out, schema) as writer,
        ):
            rows = iter(frame.coalesce(_MOST_PARTS).toLocalIterator(prefetchPartitions=True))
            some = [row.asDict(recursive=True) for row in islice(rows, _REPORT_ROWS)]
            writer.write_table(pa.Table.from_pylist(some, schema=schema))
            while len(some) == _REPORT_ROWS:
                some = [row.asDict(recursive=True) for row in islice(rows, _REPORT_ROWS)]
                writer.write_table(pa.Table.from_pylist(some, schema=schema))
    except OSError as error:
        raise storage_error(name, error) from error


def _arrow_schema(frame: Any) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(frame.schema)
    except Exception as error:
        raise RequestError(f"these rows cannot be written as Parquet: {error}") from error
