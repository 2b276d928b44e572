"""Looking at data sets of any size: inspect, verify, check and prune as jobs whose results are rows.

    names -> work -> tasks of about the same bytes -> some files together, or one by one where that fails -> rows

The work (spark.work) is found at once: a listing stays in Spark's cache, a table's log is read. Files are opened when
the DataFrame that comes back is asked for rows, and again each time it is. A bad file is a row with its error. Of
files nothing but rows crosses the driver. Executors call parquet_bloom's own functions over a Snapshot of some files.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError, RequestError, TableWarning
from parquet_bloom.filters.inspect import InspectReport, inspect
from parquet_bloom.filters.verify import VerifyReport, verify
from parquet_bloom.options import RANGE_VALUES, PathLike, ReadOptions, TableOptions, column_names, refuse_unknown
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.check import ExcludedFile, excluded_file, sizes_of, verdicts_of
from parquet_bloom.search.log import FileResult, log_of, open_groups
from parquet_bloom.search.options import Nan, Options
from parquet_bloom.search.question import key_index
from parquet_bloom.search.search import Search, as_predicate
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.frames import Row, frame_of, mapped_rows
from parquet_bloom.spark.listing import Listing, by_name, packed
from parquet_bloom.spark.storages import index_path, paths_of
from parquet_bloom.spark.work import ListedFiles, SentFile, SentFiles, SentSearch, Work, source_on_spark, work_of
from parquet_bloom.storage.table_folders import Tables, read_guard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")
FilesToRows = Callable[[Snapshot, Sequence[SentFile]], Iterable[Row]]  # of some files of a snapshot
ResultToRows = Callable[[FileResult], Iterable[Row]]
TOGETHER = 256  # files that are searched side by side on a remote store

# --- rows -----------------------------------------------------------------------------------------
#
# The columns of the rows; those of inspect and verify are the fields of their filters.

_TEXT, _LONG, _DOUBLE, _TEXTS = pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string())
INSPECTED = pa.schema(
    [
        ("path", _TEXT),
        ("row_group", pa.int32()),
        ("column", _TEXT),
        ("spec", _TEXT),
        ("rule", _TEXT),
        ("offset", _LONG),
        ("length", _LONG),
        ("place", _TEXT),
        ("num_bytes", _LONG),
        ("fpp", _DOUBLE),
        ("estimated_ndv", _DOUBLE),
        ("problems", _TEXTS),
        ("notes", _TEXTS),
        ("error", _TEXT),
    ]
)
VERIFIED = pa.schema(
    [
        ("path", _TEXT),
        ("row_group", pa.int32()),
        ("column", _TEXT),
        ("status", _TEXT),
        ("spec", _TEXT),
        ("values", _LONG),
        ("missed", _LONG),
        ("measured_fpp", _DOUBLE),
        ("reason", _TEXT),
        ("error", _TEXT),
    ]
)
CHECKED = pa.schema(
    [
        ("path", _TEXT),
        ("row_group", pa.int32()),
        ("outcome", _TEXTS),
        ("skipped", pa.bool_()),
        ("decided_by", _TEXT),
        ("bytes_read", _LONG),
        ("reason", _TEXT),
        ("rows", _LONG),
        ("size", _LONG),
        ("row_groups", pa.int32()),
        ("error", _TEXT),
    ]
)
PRUNED = pa.schema(
    [
        ("path", _TEXT),
        ("row_groups", pa.list_(pa.int32())),
        ("rows", _LONG),
        ("size", _LONG),
        ("has_deletes", pa.bool_()),
        ("error", _TEXT),
    ]
)


# --- filters --------------------------------------------------------------------------------------
#
# inspect and verify: work of every file.


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
    options           see TableOptions: of a table catalog_properties, allow_roots
    returns           DataFrame; the row of a file that could not be read has its path and `error` alone

    A TableWarning says that files lie in an Iceberg, Delta or Hudi table, so that dead ones may be among them.
    Raises UnknownColumnError for a name that no file has; where only some have it the others' rows say so. StorageError
    where no path gives a file; of several paths, one that gives none is a row.
    """
    refuse_unknown("inspect_filters", options, TableOptions)
    return _filters(spark, paths, options, INSPECTED, inspect, columns, exclude)


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
    function = functools.partial(verify, sample=sample)
    return _filters(spark, paths, options, VERIFIED, function, columns, exclude, packed)


def _filters(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    options: TableOptions,
    schema: pa.Schema,
    function: Callable[..., InspectReport | VerifyReport],
    columns: str | Sequence[str] | None,
    exclude: str | Sequence[str] | None,
    packing: Callable[[Listing, Any], Any] = by_name,
) -> DataFrame:
    """A row a filter, of all files; of files in tables too, with a warning."""
    names = paths_of(paths)
    chosen = {"columns": column_names(columns, "columns"), "exclude": column_names(exclude, "exclude")}
    tables = Tables()
    work = work_of(spark, source_on_spark(names, options), tables, stored_only=True)
    for note in tables.notes():
        warnings.warn(note, TableWarning, stacklevel=3)
    work.hold_columns([name for names in chosen.values() for name in names or ()])
    return _rows(
        work,
        functools.partial(filter_rows, function=functools.partial(function, **chosen), schema=schema),
        schema,
        packing,
    )


# --- verdicts -------------------------------------------------------------------------------------
#
# check and prune: a predicate, which the driver asks a table's log first.


@explained
def check(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    predicate: Any,
    *,
    nan: Nan = "largest",
    use_filters: bool = True,
    range_values: int = RANGE_VALUES,
    index: PathLike | None = None,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Say for every row group whether a row can match: a row each, as parquet_bloom.check; the columns of CHECKED.

    predicate  SQL text, DNF lists or a pyarrow Expression; of folders' keys too, with the types that Spark infers
    nan        "largest" and equal to itself, as in Spark; "ieee": no comparison with it is TRUE
    index      folder of a key index, which driver and executors reach: a file in which it denies the predicate is not
               opened, and has one row without row_group and outcome
    options    see ReadOptions: raw_files; of a table catalog_properties, allow_roots
    paths      as inspect_filters has them. The driver asks a table's log first: a file that it excludes is not opened,
               and has one row without row_group and outcome

    Raises TextError with the spot marked, UnknownColumnError for a name that no file has; TableFormatError for
    a table's folder, or a file in it, without raw_files; StaleIndexError for an index of none of the files. A column
    that only some files have is NULL in the others.
    """
    refuse_unknown("check", options, ReadOptions)
    tree, names = as_predicate(predicate), paths_of(paths)
    how, asked = Options(nan, use_filters, range_values=range_values), index_path(spark, index)
    return _search(searchable(spark, names, options), tree, how, asked, CHECKED, verdict_rows)


@explained
def prune(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    predicate: Any,
    *,
    nan: Nan = "largest",
    use_filters: bool = True,
    range_values: int = RANGE_VALUES,
    index: PathLike | None = None,
    **options: Unpack[ReadOptions],
) -> DataFrame:
    """Find the files with row groups in which a row can match: a row each, with the columns of PRUNED.

    returns  DataFrame; `row_groups` are numbers, `rows` and `size` (compressed bytes) are of these row groups together;
             `has_deletes`: the table has deleted rows of this file, which are among these all the same

    Files that could not be read are rows with their error: whatever is in them may match.
    The rest, and errors, as check.
    """
    refuse_unknown("prune", options, ReadOptions)
    tree, names = as_predicate(predicate), paths_of(paths)
    how, asked = Options(nan, use_filters, range_values=range_values), index_path(spark, index)
    return _search(searchable(spark, names, options), tree, replace(how, skip_files=True), asked, PRUNED, kept_rows)


def searchable(spark: Any, paths: Sequence[str], options: ReadOptions) -> Work:
    """The work of a search. A table that is not named is an error, without raw_files."""
    source = source_on_spark(paths, options)
    return work_of(spark, source, read_guard(source.raw_files))


def _search(
    work: Work,
    predicate: Predicate,
    options: Options,
    index: str | None,
    schema: pa.Schema,
    rows_of: ResultToRows,
) -> DataFrame:
    """Rows of the files that the driver leaves; and, where the schema has these columns, a row for each other file."""
    plan = work.plan_search(predicate, options, index)
    search = functools.partial(search_rows, asked=plan.asked, rows_of=rows_of)
    found = _rows(plan.work, search, schema, together=TOGETHER)
    if not plan.excluded or "skipped" not in schema.names:
        return found
    rows = [tuple(excluded_row(file).get(name) for name in schema.names) for file in plan.excluded]
    return found.unionAll(frame_of(work.spark, rows, schema))


# --- on executors ---------------------------------------------------------------------------------
#
# Rows of the work -> files of one Snapshot -> the functions of one machine -> rows of the result.


def _rows(
    work: Work,
    rows_of: FilesToRows,
    schema: pa.Schema,
    packing: Callable[[Listing, Any], Any] = by_name,
    together: int = 1,
) -> DataFrame:
    """The rows that a function of some files gives, so many of them at a time."""
    run = functools.partial(rows_of_task, opener=work.opener, rows_of=rows_of, together=together)
    frame: DataFrame = mapped_rows(packing(work.listed, work.spark), run, schema)
    return frame


def rows_of_task(
    listed: Iterator[Row], opener: ListedFiles | SentFiles, rows_of: FilesToRows, together: int
) -> Iterator[Row]:
    """The rows of the files of one task; a file that fails has a row with its error."""
    snapshot = opener.snapshot()
    work = functools.partial(rows_of, snapshot)
    while some := list(islice(listed, together)):
        files = []
        for row in some:
            if row.get("error") is None:
                files.append(opener.file(row, snapshot))
            else:
                yield {"path": row["path"], "error": row["error"]}
        yield from _each_or_error(files, work)


def _each_or_error(files: Sequence[T], work: Callable[[Sequence[T]], Iterable[Row]]) -> Iterator[Row]:
    if len(files) > 1:
        try:
            yield from list(work(files))
            return
        except ImportError:
            raise
        except Exception:  # of which file, the next lines say
            pass
    for file in files:
        try:
            yield from list(work([file]))
        except ParquetBloomError as error:
            yield failed_row(file, error)
        except ImportError:  # what executors lack is not the file's doing
            raise
        except Exception as error:  # one file must not end the job of a million others
            yield failed_row(file, f"{type(error).__name__}: {error}")


def failed_row(file: object, error: object) -> Row:
    """The row of a file that could not be read."""
    return {"path": str(file), "error": " ".join(str(error).split())}


def filter_rows(
    snapshot: Snapshot,
    files: Sequence[SentFile],
    function: Callable[[Any], InspectReport | VerifyReport],
    schema: pa.Schema,
) -> Iterator[Row]:
    """A row a filter, with what the schema names of it.

    function  inspect, or verify, of any source
    """
    names = [name for name in schema.names if name not in ("path", "error")]
    report = function(replace(snapshot, files=[one.file for one in files]))
    for file in report.files:
        for one in file.filters:
            yield {"path": file.path} | {name: getattr(one, name) for name in names}
    yield from (failed_row(one.path, one.error) for one in report.failed)


def search_rows(
    snapshot: Snapshot, files: Sequence[SentFile], asked: SentSearch, rows_of: ResultToRows
) -> Iterator[Row]:
    """The rows of the files of a search; of one that cannot be read its error."""
    part = replace(snapshot, files=[one.file for one in files])
    log = log_of(part, [one.outcome for one in files])
    index = None if asked.index is None else key_index(asked.index, of_part=True)
    with_deletes = {str(one) for one in files if one.has_deletes}
    for one in Search(ResolvedSource(part), asked.predicate, asked.options, log, index):
        for row in [failed_row(*one)] if isinstance(one, tuple) else rows_of(one):
            yield row | {"has_deletes": row["path"] in with_deletes}


def verdict_rows(result: FileResult) -> Iterator[Row]:
    """A row a row group, or one for a file that was not opened."""
    if (excluded := excluded_file(result)) is not None:
        yield excluded_row(excluded)
        return
    for verdict in verdicts_of(result):
        row = verdict._asdict()
        row["outcome"] = verdict.outcome.names
        yield row


def excluded_row(file: ExcludedFile) -> Row:
    """The row of a file that the log of its table excludes, or an index: of no row group."""
    return {
        "path": file.path,
        "skipped": True,
        "decided_by": file.decided_by,
        "reason": file.reason,
        "rows": file.rows,
        "size": file.size,
        "row_groups": file.row_groups,
    }


def kept_rows(result: FileResult) -> Iterator[Row]:
    """A row for a file with row groups in which a row can match."""
    outline, groups = result.outline, open_groups(result)
    if outline is None or not groups:
        return
    yield {
        "path": str(result.file),
        "row_groups": groups,
        "rows": int(outline.rows[groups].sum()),
        "size": int(sizes_of(outline)[groups].sum()),
    }
