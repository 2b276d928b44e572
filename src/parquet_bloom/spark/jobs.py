"""Looking at data sets of any size: inspect, verify, check and prune as jobs whose results are rows.

    names -> listing (by tasks) -> tasks of about the same bytes -> rows     a bad file is a row with its error

The listing is made at once and stays in Spark's cache; files are opened when the DataFrame that
comes back is asked for rows, and again each time it is. Nothing but its rows crosses the driver.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from parquet_bloom.arguments import column_names, refuse_unknown
from parquet_bloom.errors import RequestError, TableWarning
from parquet_bloom.filters.inspect import inspect
from parquet_bloom.filters.verify import verify
from parquet_bloom.limits import RANGE_VALUES
from parquet_bloom.options import PathLike, ReadOptions, TableOptions
from parquet_bloom.predicates.bind import Schema, bind
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.options import Nan, Options
from parquet_bloom.search.search import Search, as_predicate
from parquet_bloom.source.source import CallSource, resolved_files
from parquet_bloom.spark import table_jobs
from parquet_bloom.spark.dataset import Dataset, by_name, data_file, dataset, packed, unresolved_in, unresolved_of
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.frames import mapped
from parquet_bloom.spark.listing import FILE
from parquet_bloom.spark.named_tables import live_files, spark_source
from parquet_bloom.spark.result_rows import (
    CHECKED,
    INSPECTED,
    PRUNED,
    TOGETHER,
    VERIFIED,
    Row,
    RowsOf,
    batches_of,
    each_or_error,
    filters_of,
    kept,
    searched,
    some_of,
    verdicts,
)
from parquet_bloom.spark.storages import Storages, paths_of
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.table_folders import Tables, read_guard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Work = Callable[[Sequence[DataFile]], Iterable[Row]]
RowsOfSource = Callable[[Any], Iterable[Row]]  # of [file], or of a table's Snapshot with one file


@explained
def inspect_filters(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    **options: Unpack[TableOptions],
) -> DataFrame:
    """Describe every filter: a row each, as parquet_bloom.inspect has them; the columns of INSPECTED.

    paths             a file, folder or glob, or a list, as Spark names them (s3a://bucket/folder); or one table,
                      delta:, iceberg: or ducklake:, of which the driver reads the log: its live files, under its names
    columns, exclude  one name or pattern, or a list; None: all columns
    error             of a file that could not be read, the one thing its row says beside its path
    options           see TableOptions: of a table catalog_properties, allow_roots

    A TableWarning says that files lie in an Iceberg, Delta or Hudi table, so that dead ones may be among them.
    Raises UnknownColumnError for a name that no file has; where only some have it the others' rows say so.
    """
    refuse_unknown("inspect_filters", options, TableOptions)
    paths, columns, exclude = paths_of(paths), column_names(columns, "columns"), column_names(exclude, "exclude")
    rows_of = functools.partial(_inspected, columns=columns, exclude=exclude)
    names = [*(columns or ()), *(exclude or ())]
    source = spark_source(paths, options)
    if source.table_name is not None:
        return _look_at_table(spark, source, names, INSPECTED, rows_of)
    data = _looked_at(spark, paths, names)
    return _rows(data, INSPECTED, functools.partial(_each_alone, rows_of=rows_of))


@explained
def verify_filters(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    sample: int | None = None,
    **options: Unpack[TableOptions],
) -> DataFrame:
    """Hold every filter against the stored values: a row each, as parquet_bloom.verify; the columns of VERIFIED.

    sample  look at so many row groups a file only
    The rest, and errors, as inspect_filters; RequestError for a sample of nothing.
    """
    refuse_unknown("verify_filters", options, TableOptions)
    if sample is not None and sample < 1:
        raise RequestError(f"sample {sample} is not a positive number of row groups")
    paths, columns, exclude = paths_of(paths), column_names(columns, "columns"), column_names(exclude, "exclude")
    rows_of = functools.partial(_verified, columns=columns, exclude=exclude, sample=sample)
    names = [*(columns or ()), *(exclude or ())]
    source = spark_source(paths, options)
    if source.table_name is not None:
        return _look_at_table(spark, source, names, VERIFIED, rows_of, packed)
    data = _looked_at(spark, paths, names)
    return _rows(data, VERIFIED, functools.partial(_each_alone, rows_of=rows_of), packed(data.listed, spark))


@explained
def check(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    predicate: Any,
    *,
    nan: Nan = "largest",
    use_filters: bool = True,
    range_values: int = RANGE_VALUES,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Say for every row group whether a row can match: a row each, as parquet_bloom.check; the columns of CHECKED.

    predicate  SQL text, DNF lists or a pyarrow Expression; of folders' keys too, with the types that Spark infers
    nan        "largest" and equal to itself, as in Spark; "ieee": no comparison with it is TRUE
    options    see ReadOptions: raw_files; of a table catalog_properties, allow_roots
    paths      as inspect_filters has them. The driver asks a table's log first: a file that it excludes is not opened,
               and has one row without row_group and outcome

    Raises TextError with the spot marked, UnknownColumnError for a name that no file has; TableFormatError for
    a table's folder, or a file in it, without raw_files. A column that only some files have is NULL in the others.
    """
    refuse_unknown("check", options, ReadOptions)
    tree, paths = as_predicate(predicate), paths_of(paths)
    how, source = Options(nan, use_filters, range_values=range_values), spark_source(paths, options)
    if source.table_name is not None:
        return table_jobs.search(spark, live_files(source), tree, how, CHECKED, verdicts)
    how = replace(how, ignore_case=True)
    data = dataset(spark, paths, read_guard(source.raw_files))
    return _rows(data, CHECKED, _searching(data, tree, how, verdicts), together=TOGETHER)


@explained
def prune(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    predicate: Any,
    *,
    nan: Nan = "largest",
    use_filters: bool = True,
    range_values: int = RANGE_VALUES,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Find the files with row groups in which a row can match: a row each, with the columns of PRUNED.

    row_groups   their numbers; rows and size (compressed bytes) are of these together
    has_deletes  whether they are of a table that has deleted rows of this file, which are among these all the same
    Files that could not be read are rows with their error: whatever is in them may match.
    The rest, and errors, as check.
    """
    refuse_unknown("prune", options, ReadOptions)
    tree, paths = as_predicate(predicate), paths_of(paths)
    how, source = Options(nan, use_filters, range_values=range_values), spark_source(paths, options)
    if source.table_name is not None:
        return table_jobs.search(spark, live_files(source), tree, how, PRUNED, kept)
    return pruned(dataset(spark, paths, read_guard(source.raw_files)), tree, replace(how, ignore_case=True))


def pruned(data: Dataset, predicate: Predicate, options: Options) -> Any:
    """As prune, of files that have been listed."""
    return _rows(data, PRUNED, _searching(data, predicate, replace(options, skip_files=True), kept), together=TOGETHER)


# --- what a task does -----------------------------------------------------------------------------


def _rows(data: Dataset, schema: pa.Schema, work: Work, files: Any = None, together: int = 1) -> Any:
    frame = by_name(data.listed, data.spark) if files is None else files
    run = functools.partial(_task, where=data.where, schema=schema, work=work, together=together)
    return mapped(frame, run, schema)


def _task(
    batches: Iterator[pa.RecordBatch], where: Storages, schema: pa.Schema, work: Work, together: int
) -> Iterator[pa.RecordBatch]:
    """The rows of the files of a task, batch by batch."""
    listed = (row for batch in batches for row in batch.to_pylist())
    return batches_of((row for some in some_of(listed, together) for row in _of_files(some, where, work)), schema)


def _of_files(listed: Sequence[Row], where: Storages, work: Work) -> Iterator[Row]:
    files = []
    for row in listed:
        if row["kind"] == FILE:
            files.append(data_file(where, row["path"], row["root"]))
        else:
            yield {"path": row["path"], "error": row["error"]}
    yield from each_or_error(files, work)


def _looked_at(spark: Any, paths: Sequence[str], names: Sequence[str]) -> Dataset:
    """The files of those who look at filters of columns with these names, in tables too, with a warning."""
    seen = Tables()
    data = dataset(spark, paths, seen)
    for note in seen.notes():
        warnings.warn(note, TableWarning, stacklevel=3)
    if names:
        data.schema_for(unresolved_of(names))
    return data


def _look_at_table(
    spark: Any,
    source: CallSource,
    names: Sequence[str],
    schema: pa.Schema,
    rows_of: RowsOfSource,
    packing: table_jobs.Packing = by_name,
) -> DataFrame:
    snapshot = live_files(source, stored_only=True)
    if names:
        table_jobs.hold_columns(snapshot, names)
    return table_jobs.look(spark, snapshot, schema, functools.partial(table_jobs.each_alone, rows_of=rows_of), packing)


def _each_alone(files: Sequence[DataFile], rows_of: RowsOfSource) -> Iterator[Row]:
    for file in files:
        yield from rows_of([file])


def _inspected(source: Any, columns: Sequence[str] | None, exclude: Sequence[str] | None) -> Iterator[Row]:
    return filters_of(inspect(source, columns=columns, exclude=exclude), INSPECTED)


def _verified(
    source: Any, columns: Sequence[str] | None, exclude: Sequence[str] | None, sample: int | None
) -> Iterator[Row]:
    return filters_of(verify(source, columns=columns, exclude=exclude, sample=sample), VERIFIED)


def _searching(data: Dataset, predicate: Predicate, options: Options, rows_of: RowsOf) -> Work:
    schema = data.schema_for(unresolved_in(predicate))
    if schema.leaves:
        bind(predicate, Schema(schema.leaves, schema.keys))  # mistakes are told here, once
    return functools.partial(
        _searched, predicate=predicate, options=replace(options, dataset_schema=schema), rows_of=rows_of
    )


def _searched(files: Sequence[DataFile], predicate: Predicate, options: Options, rows_of: RowsOf) -> Iterator[Row]:
    return searched(Search(resolved_files(files), predicate, options), rows_of)
