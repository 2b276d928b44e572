"""A log as evidence: it answers a predicate before a file is opened, and for columns that a file lacks.

predicate, bound to the table's schema --> log: files in which a row can match
                                            |
the same, bound to a file's columns    <----+--> footer, filters: row groups in which a row can match
under the table's names

Files without a log have a NoLog, which excludes nothing: a search sees the same of both.
A FileResult says which row groups of a file can match, and what was read to find that out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import SchemaElement
from parquet_bloom.format.literals import literal_text
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import (
    ColumnStatistics,
    Domain,
    all_null_statistics,
    domain_of,
    one_value_statistics,
    statistics_of,
    unknown_statistics,
)
from parquet_bloom.format.values import operand
from parquet_bloom.predicates.bind import Bound, FirstFile, Members, Schema, Term, bind
from parquet_bloom.predicates.casts import OutOfReachError, literal_of
from parquet_bloom.predicates.outcomes import ANY, TRUE, Masks, as_cell
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.evidence import ColumnEvidence, Decision, literal_outcome, outcomes_of
from parquet_bloom.source.snapshot import Field, FileBounds, LeafPath, Snapshot, TableFile
from parquet_bloom.source.view import TableNames
from parquet_bloom.storage.paths import DataFile

# --- bounds and constants -------------------------------------------------------------------------
#
# Evidence before a file is opened, for all files at once:
#
#    partition values -> bounds and null counts -> buckets
#
# The same statistics and tables as for row groups (predicates.outcomes): here a row of the arrays is a file.

_ABSENT: dict[Domain, Any] = {"integer": 0, "float": 0.0, "bytes": b""}  # what stands in arrays where nothing is known
_NOTHING = FileBounds()
_LONG_DIGITS = 18  # of a DECIMAL that INT64 holds


def log_outcomes(
    bound: Bound, files: Sequence[TableFile], nan: str, memory: dict[Any, Any] | None = None
) -> tuple[Masks, list[str | None]]:
    """The outcomes of a predicate over each file's rows by the log alone, and the evidence that made TRUE impossible.

    bound   to the leaves of the table's schema
    memory  of these files' snapshot: statistics of a leaf are read once
    """
    # All evidence decides which files are closed. Constants and buckets alone then say what closed each: if these do
    # not, it was bounds, or both together.
    known = _Statistics(files, {} if memory is None else memory)
    found = _outcomes(bound, files, nan, known.or_bounds)
    stages: list[str | None] = [None] * len(files)
    closed = np.flatnonzero((found & TRUE) == 0)
    if len(closed):
        some = [files[i] for i in closed.tolist()]
        by_partition = _outcomes(bound, some, nan, lambda leaf: known.of_constants(leaf).taken(closed))
        for i, outcome in zip(closed.tolist(), by_partition.tolist(), strict=True):
            stages[i] = "bounds" if outcome & TRUE else "partition"
    return found, stages


def statistics_of_constant(scalar: pa.Scalar, leaf: Leaf, n: int) -> ColumnStatistics:
    """The statistics of n row groups in which every row holds this value."""
    said = _of_scalar(scalar, leaf)
    if not said.has_values:
        return all_null_statistics(n)
    return unknown_statistics(n) if said.lower is None else one_value_statistics(n, said.lower)


def contradicts(scalar: pa.Scalar, own: ColumnStatistics, leaf: Leaf, rows: NDArray[np.int64]) -> bool:
    """Whether a file's own statistics deny that every row of it holds this value.

    own   of the file's leaf, in each row group
    rows  of the row groups, int64[n]
    """
    said, there = _of_scalar(scalar, leaf), rows > 0
    if not said.has_values:
        return bool((there & ~own.some_null).any())
    denied_by = ~own.some_value
    if said.lower is not None:
        value = as_cell(said.lower)
        denied_by = denied_by | (own.has_lower & (own.lower > value)) | (own.has_upper & (own.upper < value))
    return bool((there & denied_by).any())


def _outcomes(
    bound: Bound, files: Sequence[TableFile], nan: str, statistics: Callable[[Leaf], ColumnStatistics]
) -> Masks:
    evidence = ColumnEvidence(len(files), statistics, partial(_denied_by_buckets, files))
    return outcomes_of(bound, [evidence], nan)


_LEAVES = 32  # whose statistics a snapshot keeps


class _Statistics:
    """Statistics of leaves in all files of a snapshot, each read once.

    memory  of the snapshot: (kind, leaf's path) -> ColumnStatistics
    """

    def __init__(self, files: Sequence[TableFile], memory: dict[Any, Any]) -> None:
        self._files, self._memory = files, memory
        self._constants = _Constants()

    def or_bounds(self, leaf: Leaf) -> ColumnStatistics:
        """By partition values, or else by bounds."""
        return self._of("bounds", leaf, self._constants.or_bounds)

    def of_constants(self, leaf: Leaf) -> ColumnStatistics:
        """By partition values alone."""
        return self._of("constants", leaf, self._constants.of)

    def _of(self, kind: str, leaf: Leaf, said: Callable[[TableFile, Leaf], FileBounds]) -> ColumnStatistics:
        key = kind, leaf.path
        found: ColumnStatistics | None = self._memory.get(key)
        if found is None:
            found = _statistics(leaf, [said(file, leaf) for file in self._files])
            if len(self._memory) >= _LEAVES:
                self._memory.clear()
            self._memory[key] = found
        return found


class _Constants:
    """Values that all rows of a file hold, as bounds. A scalar that files share, as they mostly do, is read once."""

    def __init__(self) -> None:
        self._read: dict[tuple[LeafPath, int], tuple[pa.Scalar, FileBounds]] = {}

    def of(self, file: TableFile, leaf: Leaf) -> FileBounds:
        scalar = file.constants.get(leaf.path[0]) if len(leaf.path) == 1 else None
        if scalar is None or leaf.path[0] in file.doubtful:
            return _NOTHING
        known = self._read.get((leaf.path, id(scalar)))
        if known is None:
            known = scalar, _of_scalar(scalar, leaf)  # kept with it: no other object can get its id
            self._read[leaf.path, id(scalar)] = known
        return known[1]

    def or_bounds(self, file: TableFile, leaf: Leaf) -> FileBounds:
        constant = self.of(file, leaf)
        if constant is not _NOTHING:
            return constant
        found = file.bounds.get(leaf.path, _NOTHING)
        return found if not _may_be_taken_over(leaf) or (found.nan_free and leaf.float_bits) else _without_bounds(found)


def _may_be_taken_over(leaf: Leaf) -> bool:
    """Whether bounds in a log may be wrong ones of a file that was added as it is, and whose writer the log hides.

    Of FLOAT with a NaN, and of DECIMAL in bytes (format.statistics). The file's own footer names its writer.
    """
    return bool(leaf.float_bits) or (leaf.logical == "DECIMAL" and (leaf.precision or 0) > _LONG_DIGITS)


def _without_bounds(found: FileBounds) -> FileBounds:
    return replace(found, lower=None, upper=None) if found is not _NOTHING else found


def _of_scalar(scalar: pa.Scalar, leaf: Leaf) -> FileBounds:
    """A value that all rows hold, as bounds; no bounds if its position in the column's order is unknown."""
    if not scalar.is_valid:
        return FileBounds(has_values=False, nan_free=True)
    try:
        found = operand(literal_of(scalar), leaf)
    except OutOfReachError:
        return FileBounds(null_count=0)
    if not found.known or found.lower != found.upper:
        return FileBounds(null_count=0)
    return FileBounds(found.lower, found.upper, null_count=0, nan_free=True)


def _statistics(leaf: Leaf, said: Sequence[FileBounds]) -> ColumnStatistics:
    """Statistics of a leaf in n files."""
    domain = domain_of(leaf)
    some_null = np.array([one.null_count != 0 for one in said], bool)
    some_value = np.array([one.has_values for one in said], bool)
    nan_free = np.array([one.nan_free for one in said], bool) if leaf.float_bits else np.ones(len(said), bool)
    lower, has_lower = _bounds([one.lower for one in said], domain)
    upper, has_upper = _bounds([one.upper for one in said], domain)
    return ColumnStatistics(some_null, some_value, nan_free, lower, upper, has_lower, has_upper)


def _bounds(values: Sequence[Any], domain: Domain | None) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """One bound of every file, and where it is known; a NaN bounds nothing."""
    if domain is None:
        return np.zeros(len(values), np.int64), np.zeros(len(values), bool)
    has = np.array([value is not None and value == value for value in values], bool)
    plain = [value if known else _ABSENT[domain] for value, known in zip(values, has.tolist(), strict=True)]
    if domain == "float":
        return np.array(plain, np.float64), has
    if domain == "integer" and all(-(1 << 63) <= value < 1 << 63 for value in plain):
        return np.array(plain, np.int64), has
    found = np.empty(len(plain), object)
    found[:] = plain
    return found, has


def _denied_by_buckets(files: Sequence[TableFile], term: Term, mask: Masks) -> NDArray[np.bool_] | None:
    """The files of which a bucket, or the like, says that no row equals one of the literals; None: none has one."""
    if not isinstance(term, Members) or not any(file.buckets for file in files):
        return None
    asked = [one for one in term.operands if not one.never]
    found = [
        bool(mask[i] & TRUE)
        and any(
            bucket.path == term.leaf.path and not any(bucket.admits(term.leaf, one) for one in asked)
            for bucket in file.buckets
        )
        for i, file in enumerate(files)
    ]
    return np.array(found, bool)


# --- logs -----------------------------------------------------------------------------------------

_SCHEMAS = 64  # of files, whose leaves under the table's names are kept


class Exclusion(NamedTuple):
    """Why a file was not opened.

    decided_by  "literal", "partition" or "bounds", as for row groups; of a folder's name "partition", of a key index
                "index"
    reason      in words
    row_groups  of the file, as an index has them; None: not known
    """

    decided_by: str
    reason: str
    row_groups: int | None = None


BY_FOLDER = Exclusion("partition", "the folder's name excludes it")


@lru_cache(1 << 10)
def by_index(row_groups: int) -> Exclusion:
    """That a key index excludes a file of so many row groups."""
    return Exclusion("index", "the index denies the value in all of its row groups", row_groups)


_REASONS = {
    "literal": "no value of the column's type can match",
    "partition": "the table's log excludes it by its partition values",
    "bounds": "the table's log excludes it by its bounds and null counts",
}
_EXCLUDED = {stage: Exclusion(stage, reason) for stage, reason in _REASONS.items()}


class Log(Protocol):
    """The evidence in a log on the files of one snapshot.

    has_log    False: there is none, and nothing is known
    leaves     of the table's schema; () where each file has its own
    first      what names of columns are held against; None: the first file that is opened
    """

    has_log: bool
    leaves: tuple[Leaf, ...]
    first: FirstFile | None

    def ask(self, predicate: Predicate, nan: str) -> None:
        """Apply a predicate to all files. Raises RequestError for a name or literal that does not fit the schema."""

    def exclusion(self, file: DataFile) -> Exclusion | None:
        """Why no row of a file can match; None where one may."""

    def outcome(self, file: DataFile) -> int:
        """The outcomes of the predicate over a file's rows."""

    def outline(self, outline: Outline, file: DataFile) -> Outline:
        """A file's outline with the source's names of its leaves; those that the source does not have are nameless.

        Raises TableFormatError where it cannot be told which column of the file is meant.
        """

    def absent(self, leaf: Leaf, n: int, file: DataFile) -> ColumnStatistics:
        """The statistics of n row groups for a leaf that the file lacks: a constant, a default, or NULL."""

    def contradiction(self, outline: Outline, file: DataFile) -> str | None:
        """The contradiction between a constant of the log and the file's own statistics, in words.

        outline  under the table's names
        """

    def columns(self, leaves: Sequence[Leaf]) -> list[str]:
        """The top-level columns of the source, which has these leaves."""


class NoLog:
    """Files without a log: nothing is known of one before it is opened, and a column that it lacks is NULL."""

    has_log = False
    leaves: tuple[Leaf, ...] = ()
    first: FirstFile | None = None

    def ask(self, predicate: Predicate, nan: str) -> None:
        """There is no log to apply it to."""

    def exclusion(self, file: DataFile) -> Exclusion | None:
        """No file is excluded."""
        return None

    def outcome(self, file: DataFile) -> int:
        """Anything."""
        return ANY

    def outline(self, outline: Outline, file: DataFile) -> Outline:
        """The file's own names."""
        return outline

    def absent(self, leaf: Leaf, n: int, file: DataFile) -> ColumnStatistics:
        """NULL in all rows."""
        return all_null_statistics(n)

    def contradiction(self, outline: Outline, file: DataFile) -> str | None:
        """None: nothing was said."""
        return None

    def columns(self, leaves: Sequence[Leaf]) -> list[str]:
        """Those of these leaves."""
        return list(dict.fromkeys(leaf.path[0] for leaf in leaves))


class TableLog:
    """The log of a table.

    outcomes  what the log of each file said to the predicate, where it was asked before; no file is excluded
    """

    has_log = True

    def __init__(self, snapshot: Snapshot, outcomes: Sequence[int] | None = None) -> None:
        self.snapshot = snapshot
        self._names = TableNames(snapshot)
        self.leaves = self._names.leaves
        self.first: FirstFile | None = FirstFile(self.leaves, snapshot.table, is_table=True)
        self._fields = {field.name: field for field in snapshot.fields}
        self._asked = outcomes is not None
        known = zip(snapshot.files, outcomes, strict=True) if outcomes is not None else ()
        self._outcomes = {id(file): outcome for file, outcome in known}  # by id: a path may be there twice
        self._excluded: dict[int, Exclusion] = {}
        self._named: list[tuple[Sequence[SchemaElement], tuple[Field, ...], tuple[Leaf, ...]]] = []

    def ask(self, predicate: Predicate, nan: str) -> None:
        """As Log has it. Once: what it said to the predicate stays."""
        if self._asked:
            return
        bound = bind(predicate, Schema(self.leaves))
        self._asked = True
        files = self.snapshot.files
        if not literal_outcome(bound, nan) & TRUE:
            self._excluded = dict.fromkeys(map(id, files), _EXCLUDED["literal"])
            return
        outcomes, stages = log_outcomes(bound, files, nan, self.snapshot.memory)
        for file, outcome, stage in zip(files, outcomes.tolist(), stages, strict=True):
            self._outcomes[id(file)] = outcome
            if stage is not None:
                self._excluded[id(file)] = _EXCLUDED[stage]

    def exclusion(self, file: DataFile) -> Exclusion | None:
        """As Log has it."""
        return self._excluded.get(id(file))

    def outcome(self, file: DataFile) -> int:
        """As Log has it."""
        return self._outcomes.get(id(file), ANY)

    def outline(self, outline: Outline, file: DataFile) -> Outline:
        """As Log has it."""
        # Most files of a table have one of few schemas: leaves are named once for each. The memory of the outline is by
        # its own leaves, so a renamed outline begins with none.
        schema, own = outline.schema_elements, cast(TableFile, file).fields
        for known, of, leaves in self._named:
            if of == own and (known is schema or known == schema):
                return outline.renamed(leaves)
        leaves = self._names.named_leaves(outline.leaves, schema, file)
        self._named = [(schema, own, leaves), *self._named[: _SCHEMAS - 1]]
        return outline.renamed(leaves)

    def absent(self, leaf: Leaf, n: int, file: DataFile) -> ColumnStatistics:
        """As Log has it."""
        # A constant or a default is known for a whole column alone. Of a leaf within one that has a default nothing is
        # known; without a default it is NULL.
        field = self._fields[leaf.path[0]]
        if len(leaf.path) > 1:
            return unknown_statistics(n) if _has_default(field) else all_null_statistics(n)
        scalar = cast(TableFile, file).constants.get(field.name, field.default)
        if scalar is None:
            return all_null_statistics(n)
        return statistics_of_constant(scalar, next(one for one in self.leaves if one.path == leaf.path), n)

    def contradiction(self, outline: Outline, file: DataFile) -> str | None:
        """As Log has it."""
        said = cast(TableFile, file)
        constants = {  # a value that may be another column's denies nothing
            name: value
            for name, value in said.constants.items()
            if name not in self.snapshot.logged and not (value.is_valid and name in said.doubtful)
        }
        for leaf in outline.leaves if constants else ():
            value = constants.get(leaf.path[0]) if len(leaf.path) == 1 else None
            if value is not None and contradicts(value, statistics_of(outline, leaf), leaf, outline.rows):
                shown_value = literal_text(value.as_py()) if value.is_valid else "NULL"
                says = f"the table's log says that {leaf.path[0]} is {shown_value} in all rows"
                return f"{file}: {says}, and its footer denies it"
        return None

    def columns(self, leaves: Sequence[Leaf]) -> list[str]:
        """Those of the schema: a struct without fields has no leaf."""
        return list(self._fields)


def log_of(snapshot: Snapshot, outcomes: Sequence[int] | None = None) -> Log:
    """The log of a snapshot, before any predicate, or with the outcomes of one for its files."""
    return TableLog(snapshot, outcomes) if snapshot.has_log else NoLog()


def logged_rows(file: DataFile) -> int | None:
    """How many rows of a file live, by its log alone; None where that is not exact: unknown rows, or unread deletes."""
    rows = file.rows
    deleted = 0 if file.deletes is None else file.deletes.rows
    return None if rows is None or deleted is None or not 0 <= deleted <= rows else rows - deleted


def _has_default(field: Field) -> bool:
    return field.default is not None or any(map(_has_default, field.children))


# --- the result of a search in one file -----------------------------------------------------------


@dataclass(slots=True)
class FileResult:
    """One file and what is known of its row groups; or, without a decision, why it was not opened.

    visited         what Search.visit gave
    of_one_version  what is read of it later is of that same version: all of the file came with one answer of its
                    storage and is still there, or each request names the version
    """

    file: DataFile
    size: int = 0
    outline: Outline | None = None
    decision: Decision | None = None
    bound: Bound | None = None
    requests: int = 0
    bytes_read: int = 0
    version_token: object = None
    excluded: Exclusion | None = None
    visited: Any = None
    of_one_version: bool = False


@dataclass(frozen=True, slots=True)
class UnopenedFiles:
    """Files one behind the other that a key index excludes, or one file that anything excludes.

    row_groups  of the files, as the index has them: int64[files]; None: not known
    why         of the one file; None: the index
    """

    files: Sequence[DataFile]
    row_groups: NDArray[np.int64] | None = None
    why: Exclusion | None = None

    @classmethod
    def of(cls, file: FileResult) -> UnopenedFiles:
        """A file that was not opened."""
        assert file.excluded is not None
        known = file.excluded.row_groups
        return cls([file.file], None if known is None else np.array([known]), file.excluded)

    def __len__(self) -> int:
        return len(self.files)

    def results(self) -> Iterator[FileResult]:
        """The result of each file."""
        if self.why is not None:
            return (FileResult(file, excluded=self.why) for file in self.files)
        assert self.row_groups is not None
        counts = self.row_groups.tolist()
        return (FileResult(file, excluded=by_index(n)) for file, n in zip(self.files, counts, strict=True))


def open_groups(file: FileResult) -> list[int]:
    """The row groups of a file in which a row can match."""
    return [] if file.decision is None else file.decision.open_groups


def sure_groups(file: FileResult) -> list[int]:
    """The row groups of a file in which every row matches."""
    return [] if file.decision is None else [int(i) for i in (file.decision.outcomes == TRUE).nonzero()[0]]


def undecided_groups(file: FileResult) -> list[int]:
    """The row groups of a file in which some rows can match and others not."""
    sure = set(sure_groups(file))
    return [group for group in open_groups(file) if group not in sure]
