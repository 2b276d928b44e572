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
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from parquet_bloom.audit.inspect import inspect
from parquet_bloom.audit.verify import verify
from parquet_bloom.errors import ParquetBloomError, RequestError, TableWarning
from parquet_bloom.limits import RANGE_VALUES
from parquet_bloom.predicates.bind import bind
from parquet_bloom.predicates.names import Schema
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.options import Nan, Options
from parquet_bloom.search.search import FileResult, Search, as_predicate
from parquet_bloom.search.verdicts import sizes_of, verdicts_of
from parquet_bloom.spark.dataset import Dataset, data_file, dataset, unresolved_in, unresolved_of
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.frames import mapped
from parquet_bloom.spark.listing import FILE
from parquet_bloom.spark.packing import by_name, packed
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.table_folders import Tables, refusing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")
Row = dict[str, Any]
Work = Callable[[Sequence[DataFile]], Iterable[Row]]

_TEXT, _LONG, _DOUBLE, _TEXTS = pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string())
INSPECTED = pa.schema(
    [("path", _TEXT), ("row_group", pa.int32()), ("column", _TEXT), ("spec", _TEXT), ("rule", _TEXT),
     ("offset", _LONG), ("length", _LONG), ("place", _TEXT), ("num_bytes", _LONG), ("fpp", _DOUBLE),
     ("estimated_ndv", _DOUBLE), ("problems", _TEXTS), ("notes", _TEXTS), ("error", _TEXT)]
)  # fmt: skip
VERIFIED = pa.schema(
    [("path", _TEXT), ("row_group", pa.int32()), ("column", _TEXT), ("status", _TEXT), ("spec", _TEXT),
     ("values", _LONG), ("missed", _LONG), ("measured_fpp", _DOUBLE), ("reason", _TEXT), ("error", _TEXT)]
)  # fmt: skip
CHECKED = pa.schema(
    [("path", _TEXT), ("row_group", pa.int32()), ("outcome", _TEXTS), ("skipped", pa.bool_()),
     ("decided_by", _TEXT), ("bytes_read", _LONG), ("reason", _TEXT), ("rows", _LONG), ("size", _LONG),
     ("error", _TEXT)]
)  # fmt: skip
PRUNED = pa.schema(
    [("path", _TEXT), ("row_groups", pa.list_(pa.int32())), ("rows", _LONG), ("size", _LONG), ("error", _TEXT)]
)
_TOGETHER = 256  # files that are looked at side by side on a remote store
_ROWS = 4096


@explained
def inspect_filters(
    spark: Any, paths: Sequence[str], columns: Sequence[str] | None = None, exclude: Sequence[str] | None = None
) -> DataFrame:
    """Describe every filter: a row each, as parquet_bloom.inspect has them; the columns of INSPECTED.

    paths             files, folders and globs, as Spark names them (s3a://bucket/folder)
    columns, exclude  names or patterns; None: all columns
    error             of a file that could not be read, the one thing its row says beside its path

    A TableWarning says that files lie in an Iceberg, Delta or Hudi table, so that dead ones may be among them.
    Raises UnknownColumnError for a name that no file has; where only some have it the others' rows say so.
    """
    data = _looked_at(spark, paths)
    _hold(data, columns, exclude)
    return _rows(data, INSPECTED, functools.partial(_inspected, columns=columns, exclude=exclude))


@explained
def verify_filters(
    spark: Any, paths: Sequence[str], columns: Sequence[str] | None = None, exclude: Sequence[str] | None = None,
    sample: int | None = None,
) -> DataFrame:  # fmt: skip
    """Hold every filter against the stored values: a row each, as parquet_bloom.verify; the columns of VERIFIED.

    sample  look at so many row groups a file only
    The rest, and errors, as inspect_filters; RequestError for a sample of nothing.
    """
    if sample is not None and sample < 1:
        raise RequestError(f"sample {sample} is not a positive number of row groups")
    data = _looked_at(spark, paths)
    _hold(data, columns, exclude)
    work = functools.partial(_verified, columns=columns, exclude=exclude, sample=sample)
    return _rows(data, VERIFIED, work, packed(data.listed, spark))


@explained
def check(
    spark: Any, paths: Sequence[str], predicate: Any, *, nan: Nan = "largest", use_filters: bool = True,
    range_values: int = RANGE_VALUES, raw_files: bool = False,
) -> DataFrame:  # fmt: skip
    """Say for every row group whether a row can match: a row each, as parquet_bloom.check; the columns of CHECKED.

    predicate  SQL text, DNF lists or a pyarrow Expression; of folders' keys too, with the types that Spark infers
    nan        "largest" and equal to itself, as in Spark; "ieee": no comparison with it is TRUE
    raw_files  also files of an Iceberg, Delta or Hudi table, whatever its log says of them

    Raises TextError with the spot marked, UnknownColumnError for a name that no file has; TableFormatError for
    a table's folder, or a file in it, without raw_files. A column that only some files have is NULL in the others.
    """
    tree = as_predicate(predicate)
    options = Options(nan, use_filters, range_values=range_values, ignore_case=True)
    data = dataset(spark, paths, refusing(raw_files))
    return _rows(data, CHECKED, _searching(data, tree, options, _verdicts), together=_TOGETHER)


@explained
def prune(
    spark: Any, paths: Sequence[str], predicate: Any, *, nan: Nan = "largest", use_filters: bool = True,
    range_values: int = RANGE_VALUES, raw_files: bool = False,
) -> DataFrame:  # fmt: skip
    """Find the files with row groups in which a row can match: a row each, with the columns of PRUNED.

    row_groups  their numbers; rows and size (compressed bytes) are of these together
    Files that could not be read are rows with their error: whatever is in them may match.
    The rest, and errors, as check.
    """
    tree = as_predicate(predicate)
    options = Options(nan, use_filters, range_values=range_values, ignore_case=True)
    return pruned(dataset(spark, paths, refusing(raw_files)), tree, options)


def pruned(data: Dataset, predicate: Predicate, options: Options) -> Any:
    """As prune, of files that have been listed."""
    return _rows(
        data, PRUNED, _searching(data, predicate, replace(options, skip_files=True), _kept), together=_TOGETHER
    )


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
    rows = (row for some in _some(listed, together) for row in _of_files(some, where, work))
    for batch in _some(rows, _ROWS):
        yield pa.RecordBatch.from_pylist(batch, schema)


def _some(items: Iterator[T], count: int) -> Iterator[list[T]]:
    while some := list(islice(items, count)):
        yield some


def _of_files(listed: Sequence[Row], where: Storages, work: Work) -> Iterator[Row]:
    files = []
    for row in listed:
        if row["kind"] == FILE:
            files.append(data_file(where, row["path"], row["root"]))
        else:
            yield {"path": row["path"], "error": row["error"]}
    if not files:
        return
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
            yield _failed(file, error)
        except ImportError:  # what executors lack is not the file's doing
            raise
        except Exception as error:  # one file must not end the job of a million others
            yield _failed(file, f"{type(error).__name__}: {error}")


def _failed(file: DataFile, error: object) -> Row:
    return {"path": str(file), "error": " ".join(str(error).split())}


def _looked_at(spark: Any, paths: Sequence[str]) -> Dataset:
    """The files of those who look at filters, in tables too, with a warning."""
    tables = Tables()
    data = dataset(spark, paths, tables)
    for note in tables.notes():
        warnings.warn(note, TableWarning, stacklevel=3)
    return data


def _hold(data: Dataset, columns: Sequence[str] | None, exclude: Sequence[str] | None) -> None:
    if isinstance(columns, str) or isinstance(exclude, str):
        raise RequestError("columns and exclude take lists of names")
    names = [*(columns or ()), *(exclude or ())]
    if names:
        data.schema_for(unresolved_of(names))


def _inspected(
    files: Sequence[DataFile], columns: Sequence[str] | None, exclude: Sequence[str] | None
) -> Iterator[Row]:
    names = [name for name in INSPECTED.names if name not in ("path", "error")]
    for file in files:
        report = inspect([file], columns=columns, exclude=exclude)
        for one in report.files:
            for info in one.filters:
                yield {"path": str(file)} | {name: getattr(info, name) for name in names}


def _verified(
    files: Sequence[DataFile], columns: Sequence[str] | None, exclude: Sequence[str] | None, sample: int | None
) -> Iterator[Row]:
    names = [name for name in VERIFIED.names if name not in ("path", "error")]
    for file in files:
        report = verify([file], columns=columns, exclude=exclude, sample=sample)
        for one in report.files:
            for verdict in one.filters:
                yield {"path": str(file)} | {name: getattr(verdict, name) for name in names}


def _searching(
    data: Dataset, predicate: Predicate, options: Options, rows_of: Callable[[FileResult], Iterable[Row]]
) -> Work:
    schema = data.schema_for(unresolved_in(predicate))
    if schema.leaves:
        bind(predicate, Schema(schema.leaves, schema.keys))  # mistakes are told here, once
    return functools.partial(
        _searched, predicate=predicate, options=replace(options, dataset_schema=schema), rows_of=rows_of
    )


def _searched(
    files: Sequence[DataFile], predicate: Predicate, options: Options, rows_of: Callable[[FileResult], Iterable[Row]]
) -> Iterator[Row]:
    for one in Search(files, predicate, None, options):
        if isinstance(one, tuple):
            yield _failed(*one)
        else:
            yield from rows_of(one)


def _verdicts(searched: FileResult) -> Iterator[Row]:
    for verdict in verdicts_of(searched):
        row = verdict._asdict()
        row["outcome"] = verdict.outcome.names
        yield row


def _kept(searched: FileResult) -> Iterator[Row]:
    decision, outline = searched.decision, searched.outline
    if decision is None or outline is None or not decision.open.any():
        return
    groups = decision.open.nonzero()[0].tolist()
    yield {
        "path": str(searched.file),
        "row_groups": groups,
        "rows": int(outline.rows[decision.open].sum()),
        "size": int(sizes_of(outline)[decision.open].sum()),
    }
