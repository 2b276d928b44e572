"""A file under its source: which columns it has by the names that people use, and its rows with these columns.

file, old schema                 table
col-7f: int32          ->        id: int64                     found by its field id, cast
place: {x, y}          ->        place: {longitude, y, z}      renamed, z added
                       ->        day: date                     a partition value

Files without a log keep their own names. Those of a table get the names of its schema of today; a column that a file
lacks is a constant of the log, a default, or NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, cast

import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import SchemaElement
from parquet_bloom.format.arrow_types import are_alike, map_nested
from parquet_bloom.format.footer import Footer
from parquet_bloom.format.literals import decimal_casts
from parquet_bloom.format.schema import Leaf, select_leaves
from parquet_bloom.source.columns import Match, leaves_of, matches
from parquet_bloom.source.snapshot import Field, LeafPath, Snapshot, TableFile
from parquet_bloom.storage.paths import DataFile

Columns = Sequence[str] | None  # names and patterns
Leaves = tuple[Leaf, ...]
_GONE = " (no column of the table)"
_LOGGED = " (the table has its log's values)"


# --- names of columns -----------------------------------------------------------------------------


class Names(Protocol):
    """The names of columns in the files of a source.

    leaves  of the table's schema, which names and patterns are looked up in; () where each file has its own
    """

    leaves: tuple[Leaf, ...]

    def named_leaves(self, leaves: Leaves, schema: Sequence[SchemaElement], file: DataFile) -> Leaves:
        """The leaves of a file under the source's names; the path is () where the source has no such leaf.

        schema  the file's, flattened
        Raises TableFormatError where it cannot be told which column of the file is meant.
        """

    def display_leaves(self, footer: Footer, file: DataFile) -> tuple[Leaf, ...]:
        """The same for people: leaves that the source lacks keep the file's name. Raises as `named_leaves`."""

    def select(
        self, leaves: Sequence[Leaf], columns: Sequence[str] | None, exclude: Sequence[str] | None
    ) -> list[Leaf]:
        """The leaves among a file's that names and patterns mean: of a table by its schema, whatever the file has.

        leaves  as `display_leaves` gives them
        columns, exclude  as format.schema.select_leaves has them
        Raises UnknownColumnError.
        """


class OwnNames:
    """Files without a log: the columns of each have the names that the file gives them."""

    leaves: tuple[Leaf, ...] = ()

    def named_leaves(self, leaves: Leaves, schema: Sequence[SchemaElement], file: DataFile) -> Leaves:
        """As Names has it."""
        return leaves

    def display_leaves(self, footer: Footer, file: DataFile) -> tuple[Leaf, ...]:
        """As Names has it."""
        return footer.leaves

    def select(
        self, leaves: Sequence[Leaf], columns: Sequence[str] | None, exclude: Sequence[str] | None
    ) -> list[Leaf]:
        """As Names has it."""
        return select_leaves(leaves, columns, exclude)


class FileNames(NamedTuple):
    """The columns of a table in one file.

    here   the table's leaves that the file has -> the file's
    shown  the file's name of such a leaf -> the table's
    all    the file's names of all its leaves
    """

    here: Mapping[LeafPath, Leaf]
    shown: Mapping[str, str]
    all: Sequence[str]


class TableNames:
    """The files of a table: columns have the names that its schema has today."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.leaves = leaves_of(snapshot.fields)
        self._matched: list[_Matched] = []

    def named_leaves(self, leaves: Leaves, schema: Sequence[SchemaElement], file: DataFile) -> Leaves:
        """As Names has it."""
        return self.view(file, schema).named_leaves(leaves)

    def display_leaves(self, footer: Footer, file: DataFile) -> tuple[Leaf, ...]:
        """As Names has it.

        One that the table lacks, or has in its log, is marked where it has the name of another: each name means one.
        """
        named = self.named_leaves(footer.leaves, footer.metadata.schema, file)
        taken = {one.path for one in named}
        shown = []
        for one, own in zip(named, footer.leaves, strict=True):
            if not one.path and own.path[0] in self.snapshot.logged:
                one = replace(own, path=(own.path[0] + _LOGGED, *own.path[1:]))
            elif not one.path:
                one = own if own.path not in taken else replace(own, path=(*own.path[:-1], own.path[-1] + _GONE))
            shown.append(one)
        return tuple(shown)

    def select(
        self, leaves: Sequence[Leaf], columns: Sequence[str] | None, exclude: Sequence[str] | None
    ) -> list[Leaf]:
        """As Names has it."""
        chosen = {leaf.name for leaf in select_leaves(self.leaves, columns, exclude)}
        return [leaf for leaf in leaves if leaf.path and leaf.name in chosen]

    def of(self, file: DataFile, footer: Footer) -> FileNames:
        """The columns of one file. Raises as `named_leaves`."""
        places = self.view(file, footer.head.schema).places
        here = {path: footer.leaves[place] for path, place in places.items()}
        shown = {here[leaf.path].name: leaf.name for leaf in self.leaves if leaf.path in here}
        return FileNames(here, shown, [leaf.name for leaf in footer.leaves])

    def view(self, file: DataFile, schema: Sequence[SchemaElement]) -> FileView:
        """One file as the table has it. Raises as `named_leaves`."""
        own = cast(TableFile, file)
        for one in self._matched:
            if one.own == own.fields and (one.schema is schema or one.schema == schema):
                return FileView(self.snapshot, own, schema, one)
        new = _Matched.of(self.snapshot, own, schema)
        self._matched = [new, *self._matched[: _SCHEMAS - 1]]
        return FileView(self.snapshot, own, schema, new)


def names_of(snapshot: Snapshot) -> Names:
    """The names of columns in the files of a snapshot."""
    return TableNames(snapshot) if snapshot.has_log else OwnNames()


# --- one file of a table --------------------------------------------------------------------------


_SCHEMAS = 8  # of files, that a table's names keep


class _Matched(NamedTuple):
    """The places of a table's fields in files of one schema.

    own      TableFile.fields of these files
    matches  by the name of the table's field
    fields   of the table, by name
    places   the leaves of the table that the files have -> their place among the files' leaves
    """

    schema: Sequence[SchemaElement]
    own: tuple[Field, ...]
    matches: Mapping[str, Match]
    fields: Mapping[str, Field]
    places: Mapping[LeafPath, int]

    @classmethod
    def of(cls, snapshot: Snapshot, file: TableFile, schema: Sequence[SchemaElement]) -> _Matched:
        """Match the fields. Raises TableFormatError if the columns of the file are ambiguous."""
        found = matches(snapshot.fields, snapshot.by_id, schema, file, snapshot.logged)
        fields = {field.name: field for field in snapshot.fields}
        by_name = dict(zip(fields, found, strict=True))
        at = [place for match in by_name.values() for place in match.leaves()]
        leaves = leaves_of(list(fields.values()))
        places = {leaf.path: place for leaf, place in zip(leaves, at, strict=True) if place is not None}
        return cls(schema, file.fields, by_name, fields, places)


class FileView:
    """A file as its table has it: its leaves under the table's names, its rows with the table's columns.

    schema  the file's, flattened
    known   of other files with this schema
    Raises TableFormatError where it cannot be told which column of the file is meant.
    """

    def __init__(
        self, snapshot: Snapshot, file: TableFile, schema: Sequence[SchemaElement], known: _Matched | None = None
    ) -> None:
        matched = _Matched.of(snapshot, file, schema) if known is None else known
        self._logged = snapshot.logged
        self._constants = file.constants
        self._matches, self._fields = matched.matches, matched.fields
        self.places = matched.places

    # --- names ------------------------------------------------------------------------------------

    def named_leaves(self, leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
        """The file's leaves under the table's names; the path is () where the table has no such leaf."""
        paths = {place: path for path, place in self.places.items()}
        return tuple(replace(leaf, path=paths.get(leaf.index, ())) for leaf in leaves)

    # --- rows -------------------------------------------------------------------------------------

    def stored_names(self, names: Sequence[str]) -> list[str]:
        """The file's own names of the columns that these of the table are made of, each once."""
        return list(dict.fromkeys(m.name for m in map(self._matches.__getitem__, names) if m.at is not None))

    def batch(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """The columns of the table with these names, of rows of the file.

        batch  with the columns that `stored_names` gives, in that order
        Raises pyarrow's errors for a value that has no place in the table's type.
        """
        at = {name: i for i, name in enumerate(self.stored_names(names))}
        columns = []
        for name in names:
            match = self._matches[name]
            if match.at is None:
                columns.append(self._absent(self._fields[name], batch.num_rows))
            else:
                columns.append(_values(match, batch.column(at[match.name])))
        schema = pa.schema([pa.field(name, self._fields[name].type, self._fields[name].nullable) for name in names])
        if not columns:
            return batch.select([])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def same_names(self) -> bool:
        """Whether each column of the table has its name in the file, and no other column has."""
        return all(match.same_names for match in self._matches.values())

    def absent(self) -> Mapping[str, pa.Scalar]:
        """Top-level columns that are not read from the file, with their value; NULL only where the file may have it."""
        lacking = [field for name, field in self._fields.items() if self._matches[name].at is None]
        values = {field.name: self._constants.get(field.name, field.default) for field in lacking}
        told = {name: value for name, value in values.items() if value is not None}
        return {name: value for name, value in told.items() if value.is_valid or name in self._logged}

    def lacks_nested_default(self) -> str | None:
        """The name of a field of a struct that the file lacks, and whose value in its rows is a default; None: none."""
        found = (_defaulted(match, match.field.name) for match in self._matches.values())
        return next((name for name in found if name is not None), None)

    def _absent(self, field: Field, n: int) -> pa.Array:
        return repeated(self._constants.get(field.name, field.default), field.type, n)


def _defaulted(match: Match, name: str) -> str | None:
    if match.at is None:
        return None
    for child in match.children:
        below = f"{name}.{child.field.name}"
        default = child.field.default
        if child.at is None and default is not None and default.is_valid:
            return below
        if (found := _defaulted(child, below)) is not None:
            return found
    return None


def repeated(value: pa.Scalar | None, kind: pa.DataType, n: int) -> pa.Array:
    """One value in n rows; None: NULL."""
    if value is None or not value.is_valid:
        return pa.nulls(n, kind)
    if isinstance(kind, pa.BaseExtensionType):
        inner = value.value if isinstance(value, pa.ExtensionScalar) else value
        return pa.ExtensionArray.from_storage(kind, repeated(inner, kind.storage_type, n))
    return pa.repeat(value if value.type == kind else value.cast(kind), n)


def _values(match: Match, array: pa.Array) -> pa.Array:
    """The values of a field, of those that the file has of it."""
    kind = match.field.type
    if not are_alike(kind, array.type):
        return _cast(array, kind)

    def inside(stored: Sequence[pa.Array]) -> list[pa.Array]:
        return [
            repeated(child.field.default, child.field.type, len(array)) if at is None else _values(child, stored[at])
            for at, child in ((child.at, child) for child in match.children)
        ]

    return map_nested(array, kind, inside)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return _cast(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cast(array, kind.storage_type))
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        for step in decimal_casts(kind):
            array = array.cast(step)
        return array
    if pa.types.is_integer(array.type) and pa.types.is_floating(kind):
        return array.cast(kind, safe=False)  # to the nearest; a safe cast refuses what no float is
    return array.cast(kind)
