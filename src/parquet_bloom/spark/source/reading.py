"""Rows that match, read by Spark itself from the files in which a row can match.

    files   prune, by filters of any form -> the files that are left -> Spark's Parquet reader
    table   log -> files, each with its deletes -> units -> executors (source.rows)
    both    -> Spark filters rows by the predicate

Spark skips row groups of files by min, max, dictionaries and the filters that it knows, and reads the rest with its
vectorised reader. Of a table the log is asked at once, and executors read when rows are asked for.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.format.schema import split_path
from parquet_bloom.options import RANGE_VALUES, PathLike, ReadOptions, column_names, refuse_unknown
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import as_predicate
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.frames import frame_of, mapped, try_workers
from parquet_bloom.spark.jobs import pruned, searchable
from parquet_bloom.spark.listing import FAILED, not_listed
from parquet_bloom.spark.storages import index_path, paths_of
from parquet_bloom.spark.work import FilesWork, TableWork, Work, literal_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from parquet_bloom.spark.source.rows import TableScan

_BATCH = 5000  # files of one scan of Spark's
Scan = tuple[Any, Callable[[], Any]]  # Spark's schema, and what makes a DataFrame of rows that perhaps match


@explained
def read(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    predicate: Any,
    columns: str | Sequence[str] | None = None,
    *,
    use_filters: bool = True,
    range_values: int = RANGE_VALUES,
    index: PathLike | None = None,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """A DataFrame of the rows that match, as spark.read.parquet(..).where(..) would give them.

    paths      a file, folder or glob, or a list; a folder that is named is the base of the partitions in it. Or one
               table, delta:, iceberg: or ducklake:, of which executors read the living rows, as read_table does
    predicate  SQL text, DNF lists or a pyarrow Expression; NaN is the largest value and equals itself
    columns    one name or a list, `user.id` for a field; None: all
    index      folder of a key index, which driver and executors reach: files in which it denies the predicate are not
               read
    options    see ReadOptions: raw_files; of a table catalog_properties, allow_roots

    Files are listed and pruned at once; rows are read when the DataFrame is asked for them. The names
    of the files that are left pass the driver, so that list grows with their count. A file that
    pruning could not read is left to Spark, which reads it or says what is wrong. Columns are those
    of the first file by name, as Spark has it without mergeSchema. Of a table the log is read and asked at once.

    Raises TextError with the spot marked, UnknownColumnError, RequestError for a part that rows cannot be
    filtered by, StorageError for a name or a folder that could not be listed, TableFormatError for files of
    a table without raw_files, StaleIndexError for an index of none of the files.
    """
    refuse_unknown("read", options, ReadOptions)
    tree = as_predicate(predicate)
    names, wanted = paths_of(paths), column_names(columns, "columns")
    how = Options("largest", use_filters, range_values=range_values)
    asked = index_path(spark, index)
    return matching_rows(searchable(spark, names, options), names, tree, wanted, how, asked)


def matching_rows(
    work: Work,
    names: Sequence[str],
    predicate: Predicate,
    columns: Sequence[str] | None,
    options: Options,
    index: str | None = None,
) -> DataFrame:
    """The rows that match, of files or a table that was found. Arguments and errors as `read` has them.

    names  as the call has them, for messages
    """
    from parquet_bloom.spark.columns import as_column, resolve

    paths = None if columns is None else [split_path(name) for name in columns]
    if isinstance(work, TableWork):
        tops = None if paths is None else [path[0] for path in paths]
        schema, scan = _scan_of_table(work, predicate, tops, options, index)
    else:
        schema, scan = _scan_of_files(work, names, predicate, options, index)
    condition = as_column(predicate, schema)
    chosen = None if paths is None else [resolve(path, schema)[0].alias(path[-1]) for path in paths]
    frame: DataFrame = scan().where(condition)
    return frame if chosen is None else frame.select(*chosen)


# --- a table --------------------------------------------------------------------------------------
#
# Rows that executors read by themselves.


def _scan_of_table(
    work: TableWork, predicate: Predicate, columns: Sequence[str] | None, options: Options, index: str | None
) -> Scan:
    """Executors read the living rows.

    columns  at the top level, beside those of the predicate; None: all
    """
    from parquet_bloom.spark.source.rows import Query, columns_of, plan_table, table_types
    from parquet_bloom.spark.source.types import spark_schema

    names = None if columns is None else list(dict.fromkeys([*columns, *columns_of(predicate)]))
    rows = table_types(work.snapshot).of(names)
    schema = spark_schema(rows)

    def scan() -> Any:
        plan = plan_table(work.snapshot, Query(rows, pa.schema([]), predicate, options, index))
        if not plan.units:
            return frame_of(work.spark, [], schema)
        try_workers(work.spark)
        listed = [(at, bytearray(unit)) for at, unit in enumerate(plan.units)]
        units = frame_of(work.spark, listed, "place int, unit binary").repartitionById(len(listed), "place")
        return mapped(units, functools.partial(_rows_of_units, scan=plan), schema)

    return schema, scan


def _rows_of_units(batches: Iterator[pa.RecordBatch], scan: TableScan) -> Iterator[pa.RecordBatch]:
    """On executors: the rows of the units of a task."""
    for batch in batches:
        for unit in batch.column("unit").to_pylist():
            yield from scan.rows(unit)


# --- files ----------------------------------------------------------------------------------------
#
# Rows that Spark reads, of files that are left.


def _scan_of_files(
    work: FilesWork, names: Sequence[str], predicate: Predicate, options: Options, index: str | None
) -> Scan:
    """Spark reads the files that pruning leaves."""
    from parquet_bloom.spark.columns import prunable

    failed = work.files.filter(work.files.kind == FAILED).first()
    if failed is not None:
        raise not_listed(failed)
    schema = _schema(work, names)

    def scan() -> Any:
        frames = list(_frames(work, schema, prunable(predicate, schema), options, index))
        return reduce(lambda a, b: a.unionAll(b), frames) if frames else frame_of(work.spark, [], schema)

    return schema, scan


def _schema(work: FilesWork, names: Sequence[str]) -> Any:
    """Of the first file as Spark has it, and the folders' keys, which hide columns of their name."""
    from pyspark.sql.types import StructType

    first = work.first
    if first is None:
        raise StorageError(", ".join(names), "no Parquet file in it whose footer can be read")
    stored = work.spark.read.parquet(literal_path(first[0])).schema
    keys = {field.name: field for field in work.partition_fields}
    inside = [keys.pop(field.name, field) for field in stored.fields]
    return StructType([*inside, *keys.values()])


def _frames(work: FilesWork, schema: Any, predicate: Predicate, options: Options, index: str | None) -> Iterator[Any]:
    """Scans of the files that can match: a root each, as all files of a scan have one base path."""
    kept = pruned(work, predicate, options, index).select("path").join(work.sound.select("path", "root"), "path")
    by_root: dict[str, list[str]] = {}
    for row in kept.collect():
        path = row["path"]
        if posixpath.basename(path).startswith(("_", ".")):
            raise RequestError(f"{path}: Spark passes over names that start with {posixpath.basename(path)[0]}")
        by_root.setdefault(row["root"], []).append(path)
    for root, paths in sorted(by_root.items()):
        paths.sort()
        for at in range(0, len(paths), _BATCH):
            reader = work.spark.read.schema(schema)
            if root:
                reader = reader.option("basePath", root)
            yield reader.parquet(*map(literal_path, paths[at : at + _BATCH]))
