"""Rows that match, read by Spark itself from the files in which a row can match.

    prune, by filters of any form -> the files that are left -> Spark's Parquet reader, with the predicate

Spark skips row groups of these by min, max, dictionaries and the filters that it knows, and reads
the rest with its vectorised reader. Rows of a table are read by executors (living_rows).
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from parquet_bloom.arguments import column_names, refuse_unknown
from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.format.schema import split_path
from parquet_bloom.limits import RANGE_VALUES
from parquet_bloom.options import PathLike, ReadOptions
from parquet_bloom.predicates.tree import (
    Predicate,
)
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import as_predicate
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.spark.dataset import Dataset, dataset, literal_path
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.frames import frame_of, mapped, try_workers
from parquet_bloom.spark.jobs import pruned
from parquet_bloom.spark.listing import FAILED, not_listed
from parquet_bloom.spark.named_tables import live_files, spark_source
from parquet_bloom.spark.storages import paths_of
from parquet_bloom.storage.table_folders import read_guard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from parquet_bloom.spark.source.table_rows import TableReader


# --- table reading --------------------------------------------------------------------------------
#
# Living rows of a table that match, as a DataFrame: the log is asked at once, executors read when rows are asked for.
#
# log -> files, each with its deletes -> units -> executors: data_source.table_rows -> Spark filters them once more


def living_rows(
    spark: Any, snapshot: Snapshot, predicate: Predicate, columns: Sequence[str] | None, options: Options
) -> DataFrame:
    """The rows that match, of a snapshot that was read. Arguments and errors as looks.reading.read has them."""
    from parquet_bloom.spark.source.table_rows import RowsAsked, plan_table, schema_in_spark
    from parquet_bloom.spark.source.table_source import columns_of
    from parquet_bloom.spark.source.types import spark_schema

    paths = None if columns is None else [split_path(name) for name in columns]
    names = None if paths is None else list(dict.fromkeys([*(p[0] for p in paths), *columns_of(predicate)]))
    rows = schema_in_spark(snapshot, names)
    schema = spark_schema(rows)
    from parquet_bloom.spark.columns import as_column, resolve

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


# --- reading --------------------------------------------------------------------------------------

_BATCH = 5000  # files of one scan of Spark's


@explained
def read(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    predicate: Any,
    columns: str | Sequence[str] | None = None,
    *,
    use_filters: bool = True,
    range_values: int = RANGE_VALUES,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """A DataFrame of the rows that match, as spark.read.parquet(..).where(..) would give them.

    paths      a file, folder or glob, or a list; a folder that is named is the base of the partitions in it. Or one
               table, delta:, iceberg: or ducklake:, of which executors read the living rows, as read_table does
    predicate  SQL text, DNF lists or a pyarrow Expression; NaN is the largest value and equals itself
    columns    one name or a list, `user.id` for a field; None: all
    options    see ReadOptions: raw_files; of a table catalog_properties, allow_roots

    Files are listed and pruned at once; rows are read when the DataFrame is asked for them. The names
    of the files that are left pass the driver, so that list grows with their count. A file that
    pruning could not read is left to Spark, which reads it or says what is wrong. Columns are those
    of the first file by name, as Spark has it without mergeSchema. Of a table the log is read and asked at once.

    Raises TextError with the spot marked, UnknownColumnError, RequestError for a part that rows cannot be
    filtered by, StorageError for a name or a folder that could not be listed, TableFormatError for files of
    a table without raw_files.
    """
    refuse_unknown("read", options, ReadOptions)
    tree = as_predicate(predicate)
    paths, columns = paths_of(paths), column_names(columns, "columns")
    source = spark_source(paths, options)
    if source.table_name is not None:
        return living_rows(
            spark, live_files(source), tree, columns, Options("largest", use_filters, range_values=range_values)
        )
    data = dataset(spark, paths, read_guard(source.raw_files))
    failed = data.files.filter(data.files.kind == FAILED).first()
    if failed is not None:
        raise not_listed(failed)
    schema = _schema(data, paths)

    from parquet_bloom.spark.columns import as_column, evident, resolve

    condition = as_column(tree, schema)
    named = None if columns is None else [split_path(name) for name in columns]
    chosen = None if named is None else [resolve(path, schema)[0].alias(path[-1]) for path in named]
    how = Options("largest", use_filters, range_values=range_values, ignore_case=True)
    frames = list(_frames(data, schema, evident(tree, schema), how))
    frame = reduce(lambda a, b: a.unionAll(b), frames) if frames else frame_of(spark, [], schema)
    frame = frame.where(condition)
    return frame if chosen is None else frame.select(*chosen)


def _schema(data: Dataset, paths: Sequence[str]) -> Any:
    """Of the first file as Spark has it, and the folders' keys, which hide columns of their name."""
    from pyspark.sql.types import StructType

    first = data.first
    if first is None:
        raise StorageError(", ".join(paths), "no Parquet file in it whose footer can be read")
    stored = data.spark.read.parquet(literal_path(first[0])).schema
    keys = {field.name: field for field in data.partition_fields}
    inside = [keys.pop(field.name, field) for field in stored.fields]
    return StructType([*inside, *keys.values()])


def _frames(data: Dataset, schema: Any, predicate: Predicate, options: Options) -> Iterator[Any]:
    """Scans of the files that are left: a root each, as all files of a scan have one base path."""
    kept = pruned(data, predicate, options).select("path").join(data.sound.select("path", "root"), "path")
    by_root: dict[str, list[str]] = {}
    for row in kept.collect():
        path = row["path"]
        if posixpath.basename(path).startswith(("_", ".")):
            raise RequestError(f"{path}: Spark passes over names that start with {posixpath.basename(path)[0]}")
        by_root.setdefault(row["root"], []).append(path)
    for root, paths in sorted(by_root.items()):
        paths.sort()
        for at in range(0, len(paths), _BATCH):
            reader = data.spark.read.schema(schema)
            if root:
                reader = reader.option("basePath", root)
            yield reader.parquet(*map(literal_path, paths[at : at + _BATCH]))
