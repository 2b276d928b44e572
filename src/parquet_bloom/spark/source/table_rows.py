"""The living rows of a table's files for Spark: the driver asks the log, executors read what it leaves.

    Snapshot, predicate -> log -> TableFile, its deletes -> units -> executors: footer, filters, row groups
                                                                     -> rows under the table's names, deleted ones gone
                                                                     -> the schema's types, filtered

Row groups are chosen by search.search, rows are read by search.source_rows, as without Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from parquet_bloom.errors import UnknownColumnError
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.log import TableLog
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import FileResult, Search, open_groups
from parquet_bloom.search.source_rows import TableRows
from parquet_bloom.search.unchanged import ChangeGuard
from parquet_bloom.source.columns import leaves_of, schema_of
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.spark.named_tables import Asked, bare, received, sent, sent_table
from parquet_bloom.spark.source.file_rows import BATCH_ROWS, check_nulls, check_type, converted, for_leaves, settle
from parquet_bloom.spark.source.types import InferredSchema
from parquet_bloom.spark.source.units import packed_parts, part_of

_ASKED = Options("largest")


@dataclass(frozen=True, slots=True)
class TablePart:
    """One of `parts` equal parts of the row groups of a file; size in bytes, of the file."""

    file: TableFile
    outcome: int
    size: int
    part: int = 0
    parts: int = 1

    @property
    def whole(self) -> bool:
        """Whether one task reads all of it: deletes are not read, or found by their values, twice."""
        return self.file.deletes is not None


def schema_in_spark(snapshot: Snapshot, columns: Sequence[str] | None) -> pa.Schema:
    """The columns of a table (None: all) as Spark gets them.

    Raises UnknownColumnError, and RequestError for a column of a type that Spark cannot hold.
    """
    return InferredSchema(schema_of(snapshot.fields), {}, snapshot.table).of(columns)


@dataclass(frozen=True, slots=True)
class RowsAsked:
    """What is asked of a table.

    schema     of the rows, in Arrow, exactly as Spark wants batches
    beside     columns that only the predicate speaks of, as Spark would have them
    predicate  that rows must give TRUE for, by Spark's values
    options    of the search
    """

    schema: pa.Schema
    beside: pa.Schema
    predicate: Predicate
    options: Options = _ASKED

    @property
    def wide(self) -> pa.Schema:
        """All columns that are read."""
        return pa.schema([*self.schema, *self.beside])

    def check(self, snapshot: Snapshot) -> None:
        """Raise RequestError for a column that the table lacks, or has as another type; or for the predicate."""
        types = schema_of(snapshot.fields)
        for field in self.wide:
            if field.name not in types.names:
                raise UnknownColumnError(
                    f"{snapshot.table}: no column {field.name}; there are: {', '.join(types.names)}"
                )
            check_type(snapshot.table, field.name, types.field(field.name).type, field.type)
        row_filter(self.predicate, self.wide, nan="largest")


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A read that was planned.

    reader  what all tasks share
    units   one a task, as TableReader.rows takes them
    """

    reader: TableReader
    units: list[bytes]


def plan_table(snapshot: Snapshot, asked: RowsAsked, partitions: int | None = None) -> TablePlan:
    """Ask the log, on the driver, and share out the files that it leaves.

    partitions  tasks; None: as many as the bytes are worth
    Raises as RowsAsked.check and search.search.Search; RequestError for a file system that cannot be sent.
    """
    asked.check(snapshot)
    leaves = leaves_of(snapshot.fields)
    predicate = settle(asked.predicate, lambda part: for_leaves(part, leaves, asked.wide))
    search = Search(ResolvedSource(snapshot), predicate, asked.options)
    search.ask_log()
    left = [file for file in snapshot.files if search.log.exclusion(file) is None]
    parts = [TablePart(file, search.log.outcome(file), file.size) for file in left]
    if partitions is None:
        shared: list[list[TablePart]] = packed_parts(parts)
    else:
        shared = [parts[at::partitions] for at in range(partitions)]
    reader = TableReader(sent_table(snapshot), asked, predicate)
    return TablePlan(reader, [_sent(unit, snapshot) for unit in shared])


def _sent(unit: Sequence[TablePart], snapshot: Snapshot) -> bytes:
    return sent([(bare(one.file, one.outcome, True), one.part, one.parts) for one in unit], snapshot)


# --- on executors ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableReader:
    """Reads units into the schema.

    table      the snapshot, as sent_table sends it
    predicate  as the table's own values are asked
    """

    table: bytes
    asked: RowsAsked
    predicate: Predicate

    def rows(self, unit: bytes) -> Iterator[pa.RecordBatch]:
        """The living rows that match, of one unit. Raises FileError and its kinds: no row is missing in silence."""
        snapshot: Snapshot = pickle.loads(self.table)
        keep = row_filter(self.asked.predicate, self.asked.wide, nan="largest")
        files: list[tuple[Asked, int, int]] = received(unit, snapshot)
        for file, part, parts in files:
            for batch in self._of_file(snapshot, file, part, parts):
                kept = keep.filter_batch(batch)
                if kept.num_rows:
                    schema = self.asked.schema
                    yield pa.RecordBatch.from_arrays(kept.columns[: len(schema)], schema=schema)

    def _of_file(self, snapshot: Snapshot, file: Asked, part: int, parts: int) -> Iterator[pa.RecordBatch]:
        """All living rows of the row groups in which one can match."""
        found = self._searched(snapshot, file)
        assert found.outline is not None
        mine = set(part_of(found.outline.n_row_groups, part, parts))
        groups = [group for group in open_groups(found) if group in mine]
        if not groups:
            return
        rows = TableRows(snapshot)
        with ChangeGuard([found]):
            for batch in rows.batches([(found, groups)], self.asked.wide.names, BATCH_ROWS):
                yield self._as_spark(file, batch)

    def _searched(self, snapshot: Snapshot, file: Asked) -> FileResult:
        """A file and its row groups. Raises what is wrong with it."""
        alone = replace(snapshot, files=[file.file])
        log = TableLog(alone, [file.outcome])
        [found] = Search(ResolvedSource(alone), self.predicate, self.asked.options, log)
        if isinstance(found, tuple):
            raise found[1]
        return found

    def _as_spark(self, file: Asked, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for column, field in zip(batch.columns, self.asked.wide, strict=True):
            arrays.append(converted(file, field.name, column, field.type))
            check_nulls(file, arrays[-1], field)
        return pa.RecordBatch.from_arrays(arrays, schema=self.asked.wide)
