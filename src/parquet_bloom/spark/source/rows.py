"""Rows of files and of tables for Spark: chosen by filters, read, turned into the schema's types, filtered.

    a file     folder's name -> footer -> bounds and filters -> row groups that are left -> batches
    a table    driver: log -> files, each with its deletes -> units -> executors: footer, filters, row groups
                                                     -> rows under the table's names, deleted ones gone -> batches
    both       batches -> the schema's types -> the rows of the query

What a file is asked and what rows are filtered by are one predicate, seen from both sides: from the file's values
(for_file) and from Spark's. Of a table row groups are chosen by search.search, rows are read by rows.source_rows, as
without Spark.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from parquet_bloom.errors import DamagedFileError, RequestError, StorageError, first_line
from parquet_bloom.filters.asking import ask
from parquet_bloom.format.arrow_types import is_list
from parquet_bloom.format.literals import Instant
from parquet_bloom.format.schema import FLBA, INT32, INT64, INT96, Leaf, unknown_column
from parquet_bloom.predicates.bind import Schema, bind
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import (
    And,
    Compare,
    Contains,
    IsIn,
    IsNull,
    Not,
    Or,
    Predicate,
    Unknown,
)
from parquet_bloom.predicates.tree import leaves_of as parts_of
from parquet_bloom.rows.fetched import FilePart
from parquet_bloom.rows.table_rows import TableRows
from parquet_bloom.rows.unchanged import ChangeGuard
from parquet_bloom.search.evidence import Question, decide, literal_outcome
from parquet_bloom.search.log import FileResult, NoLog, log_of, open_groups
from parquet_bloom.search.options import Options
from parquet_bloom.search.question import Asking, Evidence, Index, closed_groups, key_index
from parquet_bloom.search.search import Search, warn_of_damage
from parquet_bloom.source.columns import leaves_of, schema_of
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.source import ResolvedSource, resolved_files
from parquet_bloom.spark.source.own_rows import OwnRows, matching
from parquet_bloom.spark.source.types import (
    PYARROW_ERRORS,
    InferredSchema,
    TypeMisfitError,
    check_fit,
    convert,
    damaged,
    has_several,
    open_parquet,
    own_name,
    scalar,
    types_of,
)
from parquet_bloom.spark.source.units import ListedPart, Part, packed_parts, part_of
from parquet_bloom.spark.work import SentFile, by_log, receive, send, send_table, sent_file
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile

# --- the query ------------------------------------------------------------------------------------
#
# Which rows a read gives, and with which columns.

LARGEST = Options("largest")
_TOGETHER = 256  # files about which an index is asked at a time
_LISTED = 1 << 12  # files whose versions are listed at a time
BATCH_ROWS = 10_000  # as Spark's own spark.sql.execution.arrow.maxRecordsPerBatch


@dataclass(frozen=True, slots=True)
class Query:
    """The rows that a read gives.

    schema     of the rows, in Arrow, exactly as Spark wants batches
    beside     columns that only the predicate speaks of, as Spark would have them
    predicate  that rows must give TRUE for, by Spark's values
    options    of the search
    index      a key index, which is asked before files are opened
    others     names of other columns of the source: no column of these is one of them in another case
    """

    schema: pa.Schema
    beside: pa.Schema
    predicate: Predicate
    options: Options = LARGEST
    index: str | None = None
    others: tuple[str, ...] = ()

    @property
    def wide(self) -> pa.Schema:
        """All columns that are read."""
        return pa.schema([*self.schema, *self.beside])

    def check(self) -> None:
        """Raise RequestError where rows cannot be filtered by the predicate."""
        row_filter(self.predicate, self.wide, nan="largest")

    def selected(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows that match, of batches of all columns."""
        keep = row_filter(self.predicate, self.wide, nan="largest")
        for batch in batches:
            kept = keep.filter_batch(batch)
            if kept.num_rows:
                yield pa.RecordBatch.from_arrays(kept.columns[: len(self.schema)], schema=self.schema)


def columns_of(predicate: Predicate) -> list[str]:
    """The top-level columns of a predicate, each once. Raises RequestError for a part that is not understood."""
    names: list[str] = []
    for part in parts_of(predicate):
        if isinstance(part, Unknown):
            reason = f"{part.reason}; leave the part out here, and put it in .where()"
            raise RequestError(f"rows cannot be filtered by {part.text}: {reason}")
        names.append(part.path[0])
    return list(dict.fromkeys(names))


# --- pushed ---------------------------------------------------------------------------------------
#
# A predicate over Spark's columns -> what one file is asked.
#
#    day = '2026-01-31' AND id = 5    a folder day=2026-01-31    id = 5
#    ts = 00:00:00.000001             ts in nanoseconds          ts >= 00:00:00.000001 AND ts < 00:00:00.000002
#
# Row filters look at values as Spark has them, after a file's column became the schema's; a file is
# asked about values as it stores them. `for_file` says the same of both, or leaves the part out.

TRUE, FALSE = And(()), Or(())
LeafPart = Compare | IsIn | IsNull | Contains

Answer = bool | None | Predicate
"""What is known of a part: TRUE, FALSE or NULL in every row, or else a part to ask."""


def settle(predicate: Predicate, ask: Callable[[LeafPart], Answer], positive: bool = True) -> Predicate:
    """A tree that may be TRUE in some row if the predicate may, and perhaps otherwise.

    Parts that are known fall out; TRUE is And(()), FALSE is Or(()). NULL counts as the outcome that
    does not make the whole TRUE: FALSE, and below a NOT (not positive) TRUE.
    """
    if isinstance(predicate, And | Or):
        kind, ends = (And, FALSE) if isinstance(predicate, And) else (Or, TRUE)
        parts = []
        for part in predicate.parts:
            settled = settle(part, ask, positive)
            if settled == ends:
                return ends
            if settled != kind(()):
                parts.append(settled)
        return parts[0] if len(parts) == 1 else kind(tuple(parts))
    if isinstance(predicate, Not):
        settled = settle(predicate.part, ask, not positive)
        return FALSE if settled == TRUE else TRUE if settled == FALSE else Not(settled)
    if isinstance(predicate, Unknown):
        return predicate
    answer = ask(predicate)
    if answer is None:
        return FALSE if positive else TRUE
    if isinstance(answer, bool):
        return TRUE if answer else FALSE
    return answer


def for_leaves(part: LeafPart, leaves: Sequence[Leaf], wide: pa.Schema, others: Sequence[str]) -> Answer:
    """A part as a question to a file or table with these leaves; a column that it lacks is NULL in all its rows.

    wide    Spark's columns
    others  names of all columns of the source, as `own_name` has them
    """
    names = list(dict.fromkeys(leaf.path[0] for leaf in leaves))
    name = own_name(part.path[0], names, others)
    if name is None and not has_several(part.path[0], names, others):
        return True if isinstance(part, IsNull) else None
    path = (name or part.path[0], *part.path[1:])
    under = [leaf for leaf in leaves if leaf.path[: len(path)] == path]
    if len(under) != 1:
        return Unknown(str(part), "no single column has this name here")
    target = _target(part, wide)
    if target is None:
        return Unknown(str(part), "the schema has no such field")
    return for_file(replace(part, path=path), under[0], target)


def _target(part: LeafPart, wide: pa.Schema) -> pa.DataType | None:
    """Spark's type of what a part compares; None where the path leads through lists."""
    kind = wide.field(part.path[0]).type
    for step in part.path[1:]:
        inside = kind.get_field_index(step) if kind is not None and pa.types.is_struct(kind) else -1
        kind = kind.field(inside).type if inside >= 0 else None
    return kind.value_type if isinstance(part, Contains) and kind is not None and is_list(kind) else kind


def for_file(part: LeafPart, leaf: Leaf, target: pa.DataType) -> Predicate:
    """A part about Spark's column as one about the file's; Unknown where the two could disagree.

    target  Spark's type of the column
    """
    if isinstance(part, IsNull):
        return part  # no conversion makes a NULL, or unmakes one
    if not _same_literals(leaf, target):
        return Unknown(str(part), f"{leaf.name} is {leaf.type_name} in the file, and another type in the schema")
    if leaf.logical != "TIMESTAMP" or leaf.unit_ns >= 1000:
        return part
    if isinstance(part, Contains):
        return Unknown(str(part), f"{leaf.name} has nanoseconds")
    if isinstance(part, IsIn):
        return Or(tuple(_in_nanoseconds(Compare(part.path, "=", value)) for value in part.values))
    return _in_nanoseconds(part)


def _in_nanoseconds(part: Compare) -> Predicate:
    """A comparison of microseconds as one of the nanoseconds that are cut off to them."""
    value = part.value
    if value is None:
        return part
    if not isinstance(value, Instant) or value.nanoseconds % 1000:
        return Unknown(str(part), "nanoseconds are cut off to microseconds")
    after = replace(value, nanoseconds=value.nanoseconds + 1000)
    if part.op == "=":
        return And((Compare(part.path, ">=", value), Compare(part.path, "<", after)))
    if part.op in ("<=", ">"):
        return Compare(part.path, "<" if part.op == "<=" else ">=", after)
    return part


def _same_literals(leaf: Leaf, target: pa.DataType) -> bool:
    """Whether a literal means the same for the file's column and for Spark's."""
    types, logical = pa.types, leaf.logical
    if leaf.physical == INT96 or leaf.float_bits == 16:
        return False
    if types.is_floating(target):
        return leaf.float_bits == int(target.bit_width)
    if types.is_decimal(target) and logical == "DECIMAL":
        return leaf.scale == int(target.scale)
    if types.is_integer(target) or (types.is_decimal(target) and target.scale == 0):
        return logical in (None, "INTEGER") and leaf.physical in (INT32, INT64)
    if types.is_timestamp(target):
        return logical == "TIMESTAMP" and leaf.utc == (target.tz is not None)
    if types.is_date(target):
        return logical == "DATE"
    if types.is_boolean(target):
        return logical is None
    if types.is_string(target) or types.is_binary(target):
        known = logical in (None, "STRING", "ENUM", "JSON", "BSON")
        return known and (leaf.physical != FLBA or types.is_binary(target))
    return False


# --- values ---------------------------------------------------------------------------------------
#
# A column of a file, or of a table, in the type that the schema says.


def _check_type(named: object, name: str, kind: pa.DataType, wanted: pa.DataType) -> None:
    """Raise RequestError that names file or table, and column, where its type does not become the schema's."""
    try:
        check_fit(kind, wanted)
    except TypeMisfitError as error:
        raise RequestError(f"{named}: column {name}: {error}, which the schema has") from None


def _converted(path: object, name: str, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the schema's type. Raises DamagedFileError that names file and column."""
    try:
        return convert(array, kind)
    except pa.ArrowException as error:
        raise DamagedFileError(path, f"column {name} does not become {kind}: {first_line(error)}") from error


def _check_nulls(path: object, array: pa.Array, field: pa.Field) -> None:
    """Raise DamagedFileError for a NULL where the schema says that there is none."""
    if not field.nullable and array.null_count:
        raise DamagedFileError(path, f"column {field.name} holds NULLs, and the schema says it does not")


# --- rows of files --------------------------------------------------------------------------------
#
# A file is opened once. Its columns are found by their names in any case, and folders' columns hide them.


class FileReader:
    """Reads files into the columns of one query."""

    def __init__(self, query: Query) -> None:
        self._wide = query.wide
        self._names = (*self._wide.names, *query.others)  # of all columns of the source that are known
        self._predicate = query.predicate
        self._index, self._options = query.index, query.options

    def batches_of(self, files: Iterable[ListedPart]) -> Iterator[pa.RecordBatch]:
        """The same of several files, of those that an index leaves. Raises as `batches`, search.question.key_index."""
        rest = iter(files)
        while many := list(islice(rest, _LISTED)):
            index = None
            if self._index is not None and self._predicate != TRUE:
                index = key_index(self._index, of_part=True)
                index.expect(resolved_files([file for file, *_ in many]), self._options)
            for start in range(0, len(many), _TOGETHER):
                some = many[start : start + _TOGETHER]
                evidence = {} if index is None else self._evidence(index, [file for file, *_ in some])
                for file, part, parts, size in some:
                    own = evidence.get(id(file))
                    if own is None or own.exclusion(file) is None:
                        yield from self.batches(file, part, parts, own, size)

    def _evidence(self, index: Index, files: Sequence[DataFile]) -> dict[int, Evidence]:
        """The evidence of an index: id(file) -> its part that knows the file."""
        by_folder: dict[Any, list[DataFile]] = {}
        for file in files:
            by_folder.setdefault(file.partitions, []).append(file)
        evidence: dict[int, Evidence] = {}
        for members in by_folder.values():
            predicate = self._in_folder(self._constants(members[0]))
            if predicate not in (TRUE, FALSE):

                def of_file(leaves: Sequence[Leaf], predicate: Predicate = predicate) -> Predicate:
                    """By the file's values: one column may have several types."""
                    return settle(predicate, lambda part: for_leaves(part, leaves, self._wide, self._names))

                found = resolved_files(members)
                own = index.evidence(Asking(predicate, found, NoLog(), self._options, predicate_of=of_file))
                evidence |= {id(file): own for file in members}
        return evidence

    def batches(
        self,
        data_file: DataFile,
        part: int = 0,
        parts: int = 1,
        evidence: Evidence | None = None,
        size: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """All columns, of row groups in which a row can match, in one part of the file's.

        evidence  of an index
        size      when the tasks were planned; None: this one reads all of the file
        Raises FileError, also for another size; RequestError for a column that does not become the schema's.
        """
        constants = self._constants(data_file)
        predicate = self._in_folder(constants)
        if predicate == FALSE:
            return
        with OpenFile(data_file) as source:
            if size not in (None, source.size):
                raise _changed(source)
            n = source.outline().n_row_groups
            closed = None
            if evidence is not None and predicate != TRUE:
                closed = closed_groups(evidence, data_file, source.version_token, n)
            found = self._searched(source, data_file, predicate, closed)
            mine = set(part_of(n, part, parts))
            if groups := [group for group in open_groups(found) if group in mine]:
                yield from self._batches(source, (found, groups), constants)
                _check_same(source, data_file)

    def _constants(self, data_file: DataFile) -> dict[str, pa.Scalar]:
        """The folder's columns that the schema or the predicate names, in any case; the innermost of a name wins."""
        texts = dict(data_file.partitions)
        found: dict[str, pa.Scalar] = {}
        for field in self._wide if texts else ():
            if has_several(field.name, list(texts), self._names):
                raise RequestError(f"{data_file}: folders name several columns {field.name}")
            if (key := own_name(field.name, list(texts), self._names)) is not None:
                found[field.name] = scalar(data_file, key, texts[key], field.type)
        return found

    def _in_folder(self, constants: dict[str, pa.Scalar]) -> Predicate:
        return settle(self._predicate, lambda leaf: self._by_folder(leaf, constants))

    def _by_folder(self, leaf: LeafPart, constants: dict[str, pa.Scalar]) -> Answer:
        if leaf.path[0] not in constants:
            return leaf
        value = constants[leaf.path[0]]
        batch = pa.RecordBatch.from_arrays([pa.array([value.as_py()], value.type)], [leaf.path[0]])
        answer: bool | None = row_filter(leaf, batch.schema, nan="largest").mask(batch)[0].as_py()
        return answer

    def _searched(
        self, source: OpenFile, data_file: DataFile, predicate: Predicate, closed: NDArray[np.bool_] | None
    ) -> FileResult:
        """The row groups in which TRUE is possible.

        closed  those of which an index says that it is not
        """
        outline = source.outline()
        of_file = settle(predicate, lambda leaf: for_leaves(leaf, outline.leaves, self._wide, self._names))
        bound = bind(of_file, Schema(outline.leaves, strict=False))
        question = Question(bound, self._options, literal=literal_outcome(bound, self._options.nan), closed=closed)
        decision = decide(partial(ask, source), outline, question)
        if decision.damaged:
            warn_of_damage(source.path, decision.damaged)
        return FileResult(data_file, source.size, outline, decision, bound, version_token=source.version_token)

    def _batches(self, source: OpenFile, part: FilePart, constants: dict[str, pa.Scalar]) -> Iterator[pa.RecordBatch]:
        file = open_parquet(source)
        types = types_of(source, file)
        names = {n: None if n in constants else own_name(n, types.names, self._names) for n in self._wide.names}
        self._check(source, types, names, constants)
        wanted = list(dict.fromkeys(own for own in names.values() if own is not None))

        def as_spark(batch: pa.RecordBatch, field: pa.Field) -> Any:
            return _column(source, batch, names[field.name], field, constants)

        stored = OwnRows(source, part[0], file)
        try:
            for batch in matching(stored, part, wanted, self._predicate, self._wide, names, as_spark, BATCH_ROWS):
                arrays = [as_spark(batch, field) for field in self._wide]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._wide)
        except PYARROW_ERRORS as error:
            raise damaged(source.path, error) from error

    def _check(
        self, source: OpenFile, types: pa.Schema, names: dict[str, str | None], constants: dict[str, pa.Scalar]
    ) -> None:
        """Whether the file's columns become the schema's, before any row is read."""
        for field in self._wide:
            if field.name not in constants and has_several(field.name, types.names, self._names):
                raise RequestError(f"{source.path}: two columns are named {field.name}")
            if (own := names[field.name]) is not None:
                _check_type(source.path, own, types.field(own).type, field.type)


def _column(
    source: OpenFile, batch: pa.RecordBatch, own: str | None, field: pa.Field, constants: dict[str, pa.Scalar]
) -> Any:
    """One column of a batch in the schema's type. Raises DamagedFileError for values with no place there."""
    if field.name in constants:
        array = pa.repeat(constants[field.name], batch.num_rows)
    elif own is None:
        array = pa.nulls(batch.num_rows, field.type)
    else:
        array = _converted(source.path, own, batch.column(batch.schema.names.index(own)), field.type)
    _check_nulls(source.path, array, field)
    return array


def _check_same(source: OpenFile, data_file: DataFile) -> None:
    """Raises StorageError if another program changed the file while it was read."""
    with OpenFile(data_file) as now:
        if now.version_token != source.version_token or now.size != source.size:
            raise _changed(source)


def _changed(source: OpenFile) -> StorageError:
    return StorageError(source.path, "was changed by another program while it was read; read it again")


# --- rows of a table ------------------------------------------------------------------------------
#
# The driver asks the log; executors read the living rows of what it leaves.


def table_types(snapshot: Snapshot) -> InferredSchema:
    """The columns of a table, as Spark gets them."""
    return InferredSchema(schema_of(snapshot.fields), {}, snapshot.table)


def plan_table(snapshot: Snapshot, query: Query, partitions: int | None = None) -> TableScan:
    """Evaluate a query over the log, on the driver, and share out the files that can match.

    partitions  tasks; None: as many as the bytes are worth
    Raises UnknownColumnError, RequestError for a column that the table lacks, or has as another type; as Query.check
    and spark.work.by_log; RequestError for a file system that cannot be sent.
    """
    types, leaves = schema_of(snapshot.fields), leaves_of(snapshot.fields)
    for field in query.wide:
        if field.name not in types.names:
            raise unknown_column(field.name, types.names, where=f"{snapshot.table}: ")
        _check_type(snapshot.table, field.name, types.field(field.name).type, field.type)
    query.check()
    predicate = settle(query.predicate, lambda part: for_leaves(part, leaves, query.wide, query.wide.names))
    left, _ = by_log(snapshot, predicate, query.options, query.index)
    files = [(sent_file(file, outcome, True), file.size, file.deletes is not None) for file, outcome in left]
    if partitions is None:  # deletes are not read, or found by their values, twice
        units = packed_parts(files)
    else:
        units = [[(file, 0, 1) for file, *_ in files[at::partitions]] for at in range(partitions)]
    return TableScan(send_table(snapshot), query, predicate, [send(unit, snapshot) for unit in units])


@dataclass(frozen=True)
class TableScan:
    """A read of a table that was planned.

    table      the snapshot, as send_table sends it
    predicate  by the table's own values
    units      what one task reads each, as `rows` takes it; only the driver has them
    """

    table: bytes
    query: Query
    predicate: Predicate
    units: Sequence[bytes]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "units": ()}

    def partitions(self) -> Sequence[InputPartition]:
        """A partition a task, on the driver."""
        return [InputPartition(unit) for unit in self.units or [b""]]

    def rows(self, unit: bytes) -> Iterator[pa.RecordBatch]:
        """The living rows that match, of one unit. Raises FileError and its kinds: no row is missing in silence."""
        if not unit:
            return
        snapshot: Snapshot = pickle.loads(self.table)
        files: list[Part[SentFile]] = receive(unit, snapshot)
        yield from self.query.selected(batch for one in files for batch in self._of_file(snapshot, *one))

    def _of_file(self, snapshot: Snapshot, file: SentFile, part: int, parts: int) -> Iterator[pa.RecordBatch]:
        """All living rows of the row groups in which one can match."""
        found = self._searched(snapshot, file)
        if found.outline is None:  # an index excludes it
            return
        mine = set(part_of(found.outline.n_row_groups, part, parts))
        groups = [group for group in open_groups(found) if group in mine]
        if not groups:
            return
        wide = self.query.wide

        def as_spark(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
            array = _converted(file, field.name, batch.column(field.name), field.type)
            _check_nulls(file, array, field)
            return array

        own = {name: name for name in wide.names}
        rows = TableRows(snapshot)
        with ChangeGuard([found]):
            for batch in matching(
                rows, (found, groups), wide.names, self.query.predicate, wide, own, as_spark, BATCH_ROWS
            ):
                yield pa.RecordBatch.from_arrays([as_spark(batch, field) for field in wide], schema=wide)

    def _searched(self, snapshot: Snapshot, file: SentFile) -> FileResult:
        """A file and its row groups. Raises what is wrong with it."""
        alone = replace(snapshot, files=[file.file])
        log = log_of(alone, [file.outcome])
        index = None if self.query.index is None else key_index(self.query.index, of_part=True)
        [found] = Search(ResolvedSource(alone), self.predicate, self.query.options, log, index)
        if isinstance(found, tuple):
            raise found[1]
        return found
