"""A table that is looked at: the driver reads its log and asks it, executors look at the files that are left.

    name -> snapshot, predicate -> log -> excluded: rows of the driver's own
                                       -> file, outcome -> packing -> executors: the same Search, inspect and verify
                                                                      under the table's names

What executors get of a file is plain (spark.named_tables). They need no library of the table's format, and read
neither its log nor the deletes.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from parquet_bloom.errors import ParquetBloomError, UnknownColumnError
from parquet_bloom.format.schema import Leaf
from parquet_bloom.predicates.outcomes import ANY
from parquet_bloom.search.check import excluded_file
from parquet_bloom.search.log import TableLog
from parquet_bloom.search.options import DatasetSchema, Options
from parquet_bloom.search.search import FileResult, Search
from parquet_bloom.source.columns import leaves_of
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.source.view import names_of
from parquet_bloom.spark.dataset import by_name, unresolved_of
from parquet_bloom.spark.frames import ddl, frame_of, mapped, try_workers
from parquet_bloom.spark.listing import Listing
from parquet_bloom.spark.named_tables import Asked, bare, received, sent, sent_table
from parquet_bloom.spark.result_rows import (
    TOGETHER,
    Row,
    RowsOf,
    batches_of,
    each_or_error,
    excluded,
    searched,
    some_of,
)
from parquet_bloom.storage.open_file import OpenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_TRIED = 16  # files, in the order of the log, until one has a footer
_LISTED = "path string, size bigint, file binary"


Work = Callable[[Snapshot, Sequence[Asked]], Iterable[Row]]
Packing = Callable[[Listing, Any], Any]


def hold_columns(snapshot: Snapshot, names: Sequence[str]) -> None:
    """Raise UnknownColumnError for a name that neither the table has nor, by itself, its first sound file."""
    unresolved = unresolved_of(names)
    missing = unresolved(DatasetSchema(leaves_of(snapshot.fields), ()))
    shown = _first_shown(snapshot) if missing else None
    if shown is not None:
        missing = {name: error for name, error in missing.items() if name in unresolved(DatasetSchema(shown, ()))}
    for error in missing.values():
        raise UnknownColumnError(f"{snapshot.table}: " + error.message) from error


def _first_shown(snapshot: Snapshot) -> tuple[Leaf, ...] | None:
    """The leaves of the first file that has a footer, as people name them; None if none of the first has."""
    for file in snapshot.files[:_TRIED]:
        try:
            with OpenFile(file) as source:
                return names_of(snapshot).display_leaves(source.footer(), file)
        except ParquetBloomError:
            continue
    return None


def look(spark: Any, snapshot: Snapshot, schema: pa.Schema, work: Work, packing: Packing = by_name) -> DataFrame:
    """Rows of all files of a table."""
    return _rows(spark, snapshot, [(file, ANY) for file in snapshot.files], schema, work, packing)


def search(
    spark: Any, snapshot: Snapshot, predicate: Any, options: Options, schema: pa.Schema, rows_of: RowsOf
) -> DataFrame:
    """Rows of the files that the log leaves; and, where the schema has these columns, a row for each other file.

    Raises as search.search.Search does, for what is wrong with the predicate by the table's schema.
    """
    asked = ask(snapshot, predicate, options, rows_of)
    found = _rows(spark, asked.snapshot, asked.left, schema, asked.work, by_name)
    if not asked.told or "skipped" not in schema.names:
        return found
    rows = [tuple(row.get(name) for name in schema.names) for row in asked.told]
    return found.unionAll(frame_of(spark, rows, ddl(schema)))


@dataclass(frozen=True, slots=True)
class AskedLog:
    """What the log of a table said to a predicate.

    left  files in which a row can match, each with what the predicate may give over its rows
    told  rows of the other files
    work  of executors on the files that are left
    """

    snapshot: Snapshot
    left: list[tuple[TableFile, int]]
    told: list[Row]
    work: Work


def ask(snapshot: Snapshot, predicate: Any, options: Options, rows_of: RowsOf) -> AskedLog:
    """Ask the log of a table. Raises as `search`."""
    asked = Search(ResolvedSource(snapshot), predicate, options)
    asked.ask_log()
    left, told = [], []
    for file in snapshot.files:
        why = asked.log.exclusion(file)
        if why is None:
            left.append((file, asked.log.outcome(file)))
        elif (one := excluded_file(FileResult(file, excluded=why))) is not None:
            told.append(excluded(one))
    work = functools.partial(_searched, predicate=asked.predicate, options=options, rows_of=rows_of)
    return AskedLog(snapshot, left, told, work)


def _rows(
    spark: Any,
    snapshot: Snapshot,
    files: Sequence[tuple[TableFile, int]],
    schema: pa.Schema,
    work: Work,
    packing: Packing,
) -> DataFrame:
    table = sent_table(snapshot)
    rows = [(str(file), file.size, bytearray(sent(bare(file, outcome), snapshot))) for file, outcome in files]
    try_workers(spark)
    listed = Listing(frame_of(spark, rows, _LISTED), len(rows), sum(file.size for file, _ in files))
    run = functools.partial(_task, table=table, schema=schema, work=work)
    frame: DataFrame = mapped(packing(listed, spark), run, schema)
    return frame


# --- on executors ---------------------------------------------------------------------------------


def _task(batches: Iterator[pa.RecordBatch], table: bytes, schema: pa.Schema, work: Work) -> Iterator[pa.RecordBatch]:
    """The rows of the files of a task, batch by batch."""
    snapshot: Snapshot = pickle.loads(table)
    listed = (row for batch in batches for row in batch.column("file").to_pylist())
    files = (received(data, snapshot) for data in listed)
    rows = (row for some in some_of(files, TOGETHER) for row in each_or_error(some, functools.partial(work, snapshot)))
    return batches_of(rows, schema)


def each_alone(snapshot: Snapshot, files: Sequence[Asked], rows_of: Callable[[Any], Iterable[Row]]) -> Iterator[Row]:
    """The rows that a function of sources gives for each file of a table."""
    for one in files:
        yield from rows_of(replace(snapshot, files=[one.file]))


def _searched(
    snapshot: Snapshot, files: Sequence[Asked], predicate: Any, options: Options, rows_of: RowsOf
) -> Iterator[Row]:
    part = replace(snapshot, files=[one.file for one in files])
    with_deletes = {str(one) for one in files if one.has_deletes}
    log = TableLog(part, [one.outcome for one in files])
    for row in searched(Search(ResolvedSource(part), predicate, options, log), rows_of):
        yield row | {"has_deletes": row["path"] in with_deletes}
