"""Living rows of a table that match, as a DataFrame: the log is asked at once, executors read when rows are asked for.

log -> files, each with its deletes -> units -> executors: data_source.table_rows -> Spark filters them once more
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from parquet_bloom.formats.metadata.schema import split_path
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.options import Options
from parquet_bloom.spark.frames import frame_of, mapped, try_workers
from parquet_bloom.tables.snapshot import Snapshot

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import DataFrame

    from parquet_bloom.spark.data_source.table_rows import TableReader


def living_rows(
    spark: Any, snapshot: Snapshot, predicate: Predicate, columns: Sequence[str] | None, options: Options
) -> DataFrame:
    """The rows that match, of a snapshot that was read. Arguments and errors as looks.reading.read has them."""
    from parquet_bloom.spark.columns import as_column, resolve
    from parquet_bloom.spark.data_source.arrow_types import spark_schema
    from parquet_bloom.spark.data_source.table_rows import RowsAsked, plan_table, schema_in_spark
    from parquet_bloom.spark.data_source.table_source import columns_of

    paths = None if columns is None else [split_path(name) for name in columns]
    names = None if paths is None else list(dict.fromkeys([*(p[0] for p in paths), *columns_of(predicate)]))
    rows = schema_in_spark(snapshot, names)
    schema = spark_schema(rows)
    condition = as_column(predicate, schema)
    chosen = None if paths is None else [resolve(path, schema)[0].alias(path[-1]) for path in paths]
    plan = plan_table(snapshot, RowsAsked(rows, pa.schema([]), predicate, options))
    if plan.units:
        try_workers(spark)
        listed = [(at, bytearray(unit)) for at, unit in enumerate(plan.units)]
        units = frame_of(spark, listed, "place int, unit binary").repartitionById(len(listed), "place")
        frame: DataFrame = mapped(units, functools.partial(_task, reader=plan.reader), schema)
    else:
        frame = frame_of(spark, [], schema)
    frame = frame.where(condition)
    return frame if chosen is None else frame.select(*chosen)


def _task(batches: Iterator[pa.RecordBatch], reader: TableReader) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for unit in batch.column("unit").to_pylist():
            yield from reader.rows(unit)
