"""A table that is searched: its schema names the columns, its log is asked first, its files are read under its names.

predicate, bound to the table's schema --> log: files in which a row can match
                                            |
the same, bound to a file's columns    <----+--> footer, filters: row groups in which a row can match
under the table's names
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from parquet_bloom._thrift.parquet.ttypes import SchemaElement
from parquet_bloom.formats.bounds import ColumnStatistics, all_null_statistics, statistics_of, unknown_statistics
from parquet_bloom.formats.literals import shown
from parquet_bloom.formats.metadata.outline import Outline
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.predicates.bind import Bound, bind
from parquet_bloom.predicates.names import FirstFile, Schema
from parquet_bloom.predicates.outcomes import ANY, TRUE
from parquet_bloom.predicates.tree import Predicate
from parquet_bloom.search.evidence import literal_outcome
from parquet_bloom.search.table_log import contradicts, log_outcomes, statistics_of_constant
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.tables.columns import named_leaves
from parquet_bloom.tables.fields import leaves_of
from parquet_bloom.tables.snapshot import Field, Snapshot, TableFile

_SCHEMAS = 64  # of files, whose leaves under the table's names are kept


@dataclass(frozen=True, slots=True)
class Excluded:
    """Why a file was not opened.

    decided_by  "literal", "partition" or "bounds", as for row groups; of a folder's name "partition"
    reason      in words
    """

    decided_by: str
    reason: str


BY_FOLDER = Excluded("partition", "the folder's name excludes it")
_REASONS = {
    "literal": "no value of the column's type can match",
    "partition": "the table's log excludes it by its partition values",
    "bounds": "the table's log excludes it by its bounds and null counts",
}


class InTable:
    """A snapshot of a table, and what its log says to a predicate."""

    def __init__(self, snapshot: Snapshot, outcomes: Sequence[int] | None = None) -> None:
        """outcomes  what the log of each file said to the predicate, where it was asked before; no file is excluded."""
        self.snapshot = snapshot
        self.asked = outcomes is not None
        self.leaves = leaves_of(snapshot.fields)
        self.first = FirstFile(self.leaves, snapshot.table, is_table=True)
        self._fields = {field.name: field for field in snapshot.fields}
        known = zip(snapshot.files, outcomes, strict=True) if outcomes is not None else ()
        self._outcomes = {id(file): outcome for file, outcome in known}  # by id: a path may be there twice
        self._excluded: dict[int, Excluded] = {}
        self._named: list[tuple[Sequence[SchemaElement], tuple[Field, ...], tuple[Leaf, ...]]] = []

    def ask_log(self, predicate: Predicate, nan: str) -> Bound:
        """Ask the log about all files. Raises RequestError for a name or literal that does not fit the schema."""
        bound = bind(predicate, Schema(self.leaves))
        files = self.snapshot.files
        if not literal_outcome(bound, nan) & TRUE:
            self._excluded = {id(file): Excluded("literal", _REASONS["literal"]) for file in files}
            return bound
        outcomes, stages = log_outcomes(bound, files, nan)
        for file, outcome, stage in zip(files, outcomes.tolist(), stages, strict=True):
            self._outcomes[id(file)] = outcome
            if stage is not None:
                self._excluded[id(file)] = Excluded(stage, _REASONS[stage])
        return bound

    def excluded(self, file: DataFile) -> Excluded | None:
        """Why no row of a file can match; None where one may."""
        return self._excluded.get(id(file))

    def outcome(self, file: DataFile) -> int:
        """What the predicate may give over a file's rows, by the log."""
        return self._outcomes.get(id(file), ANY)

    def contradiction(self, outline: Outline, file: DataFile) -> str | None:
        """What the log says of all rows of a file, and the file's own statistics deny, in words.

        outline  under the table's names
        """
        if not isinstance(file, TableFile):
            return None
        constants = {  # a value that may be another column's denies nothing
            name: value
            for name, value in file.constants.items()
            if name not in self.snapshot.logged and not (value.is_valid and name in file.doubtful)
        }
        for leaf in outline.leaves if constants else ():
            value = constants.get(leaf.path[0]) if len(leaf.path) == 1 else None
            if value is not None and contradicts(value, statistics_of(outline, leaf), leaf, outline.rows):
                said = shown(value.as_py()) if value.is_valid else "NULL"
                return (
                    f"{file}: the table's log says that {leaf.path[0]} is {said} in all rows, and its footer denies it"
                )
        return None

    def outline(self, outline: Outline, file: DataFile) -> Outline:
        """A file's outline with the table's names of its leaves; those that the table does not have are nameless.

        Raises TableFormatError where it cannot be told which column of the file is meant.
        """
        schema = outline.metadata.schema
        own = file.fields if isinstance(file, TableFile) else ()
        for known, fields, leaves in self._named:
            if fields == own and (known is schema or known == schema):
                return replace(outline, leaves=leaves, memory={})
        leaves = tuple(named_leaves(outline.leaves, self.snapshot, schema, file))
        self._named = [(schema, own, leaves), *self._named[: _SCHEMAS - 1]]
        return replace(outline, leaves=leaves, memory={})

    def absent(self, leaf: Leaf, n: int, file: DataFile) -> ColumnStatistics:
        """The statistics of n row groups for a leaf that the file lacks: a constant, a default, or NULL."""
        field = self._fields[leaf.path[0]]
        if len(leaf.path) == 1:
            assert isinstance(file, TableFile)
            scalar = file.constants.get(field.name, field.default)
            if scalar is not None:
                return statistics_of_constant(scalar, self._original(leaf), n)
            return all_null_statistics(n)
        return unknown_statistics(n) if _has_default(field) else all_null_statistics(n)

    def _original(self, leaf: Leaf) -> Leaf:
        return next(one for one in self.leaves if one.path == leaf.path)


def _has_default(field: Field) -> bool:
    return field.default is not None or any(map(_has_default, field.children))
