"""Rows of a job, kept: a Parquet file that is written on the driver as rows come in."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.spark.storages import storages
from parquet_bloom.storage.remote import storage_error
from parquet_bloom.storage.writing.new_file import new_output

_BATCH = 10_000
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
    try:
        if store.is_local:
            with new_output(path, overwrite=False) as out:
                _write(frame, out)
        else:
            with store.filesystem.open_output_stream(path) as out:
                _write(frame, out)
    except OSError as error:
        raise storage_error(name, error) from error


def _write(frame: Any, out: Any) -> None:
    schema = _arrow_schema(frame)
    with pq.ParquetWriter(out, schema) as writer:
        pending = []
        for row in frame.coalesce(_MOST_PARTS).toLocalIterator(prefetchPartitions=True):
            pending.append(row.asDict(recursive=True))
            if len(pending) == _BATCH:
                writer.write_table(pa.Table.from_pylist(pending, schema=schema))
                pending = []
        writer.write_table(pa.Table.from_pylist(pending, schema=schema))


def _arrow_schema(frame: Any) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(frame.schema)
    except Exception as error:
        raise RequestError(f"these rows cannot be written as Parquet: {error}") from error
