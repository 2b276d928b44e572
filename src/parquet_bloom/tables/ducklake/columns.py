"""The columns of a DuckLake table at one snapshot: rows of ducklake_column become fields, and ids lead to leaves.

    column_id  parent  name     type        leaf, as pyarrow has it
    1                  id       int64       id
    2                  st       struct
    3          2       a        int32       st.a
    4                  tags     list
    5          4       element  varchar     tags.list.element

A column keeps its id for good; each change of it ends a row and begins another, so a column has a history of types.
Source: the DuckLake 1.0 specification, "ducklake_column" and "ducklake_name_mapping".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from parquet_bloom.errors import TableFormatError
from parquet_bloom.tables.ducklake.catalog import NUMBER, TEXT, Queries
from parquet_bloom.tables.ducklake.types import INTEGERS, arrow_type, is_exact, scalar_of
from parquet_bloom.tables.snapshot import Field, LeafPath

_ABSENT = "\0"  # no file has a column of this name
_GROUPS: dict[str, LeafPath] = {"struct": (), "list": ("list",), "map": ("key_value",)}  # between column and children
_AS_JSON = INTEGERS | {"boolean", "varchar", "json"}  # which are the same text as JSON

_COLUMN = {
    "column_order": NUMBER, "column_id": NUMBER, "column_name": TEXT, "column_type": TEXT,
    "initial_default": TEXT.or_null, "parent_column": NUMBER.or_null, "begin_snapshot": NUMBER,
    "end_snapshot": NUMBER.or_null,
}  # fmt: skip
_DEEPEST = 100  # parts of a path


@dataclass(frozen=True, slots=True)
class Column:
    """A row of ducklake_column; `types` are all that the column ever had."""

    id: int
    name: str
    type: str
    default: str | None
    parent: int | None
    types: frozenset[str]

    @property
    def comparable(self) -> bool:
        """Whether a text that was written for an older type of the column means the same value today."""
        return len(self.types) == 1 or self.exact

    @property
    def exact(self) -> bool:
        """Whether values are, and always were, numbers that the catalog's text has in full."""
        return all(map(is_exact, self.types))


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table at one snapshot.

    fields  with field ids
    leaves  column id -> path of its leaf; nested columns have none
    by_id   column id -> column
    """

    fields: tuple[Field, ...]
    leaves: Mapping[int, LeafPath]
    by_id: Mapping[int, Column]


def columns_of(queries: Queries, table: str, table_id: int, snapshot: int) -> Columns:
    """Read the columns that a table has at a snapshot.

    table  named in errors
    Raises TableFormatError for a type, or a default, that is not understood.
    """
    found = queries.rows("ducklake_column", _COLUMN, "table_id = ?", [table_id])
    rows = [row[1:] for row in sorted(found, key=lambda row: row[:2])]
    types: defaultdict[int, set[str]] = defaultdict(set)
    for id_, _, kind, *_ in rows:
        types[id_].add(kind)
    live = [
        Column(id_, name, kind, default, parent, frozenset(types[id_]))
        for id_, name, kind, default, parent, begin, end in rows
        if begin <= snapshot and (end is None or end > snapshot)
    ]
    by_id = {column.id: column for column in live}
    if len(by_id) < len(live):
        raise TableFormatError(table, "two columns have one id at the same snapshot")
    children: defaultdict[int | None, list[Column]] = defaultdict(list)
    for column in live:
        children[column.parent].append(column)
    leaves: dict[int, LeafPath] = {}
    fields = tuple(_field(table, column, (), children, leaves) for column in children[None])
    return Columns(fields, leaves, by_id)


def _field(
    table: str,
    column: Column,
    above: LeafPath,
    children: Mapping[int | None, list[Column]],
    leaves: dict[int, LeafPath],
) -> Field:
    path = (*above, column.name)
    if len(path) > _DEEPEST:
        raise TableFormatError(table, f"column {path[0]} is nested deeper than {_DEEPEST} groups")
    if column.type in _GROUPS:
        inner = children.get(column.id, [])
        wanted = {"struct": len(inner), "list": 1, "map": 2}[column.type]
        if not inner or len(inner) != wanted:
            raise TableFormatError(table, f"column {'.'.join(path)}: a {column.type} of {len(inner)} columns")
        below = (*path, *_GROUPS[column.type])
        fields = tuple(_field(table, child, below, children, leaves) for child in inner)
        return Field(column.name, _nested(column.type, fields), True, column.id, "", fields)
    kind = arrow_type(column.type)
    if kind is None:
        raise TableFormatError(table, f"column {'.'.join(path)} is of type {column.type}, which is not read")
    if column.type == "json" and (others := sorted(column.types - _AS_JSON)):
        reason = f"was {others[0]} before it was JSON, and DuckLake's texts of it are not known"
        raise TableFormatError(table, f"column {'.'.join(path)} {reason}")
    leaves[column.id] = path
    default = None
    if column.default is not None:
        default = scalar_of(column.default, column.type, kind)
        if default is None:
            raise TableFormatError(table, f"column {'.'.join(path)}: its default {column.default!r} is not understood")
    # nulls_allowed is false for nested columns that were altered, whatever they hold; so nobody relies on it.
    return Field(column.name, kind, True, column.id, "", (), default)


def _nested(kind: str, fields: Sequence[Field]) -> pa.DataType:
    inner = [pa.field(field.name, field.type) for field in fields]
    if kind == "struct":
        return pa.struct(inner)
    return pa.list_(inner[0]) if kind == "list" else pa.map_(inner[0].type, inner[1].type)


def named_as(columns: Columns, names: Mapping[int, str]) -> tuple[Field, ...]:
    """The fields as a file has them that was added with a map of names.

    names  column id -> its name in the file, below its parent; what is not in it the file does not have
    """

    def renamed(fields: Iterable[Field]) -> tuple[Field, ...]:
        return tuple(
            replace(
                field,
                physical=names.get(-1 if field.field_id is None else field.field_id, _ABSENT),
                children=renamed(field.children),
            )
            for field in fields
        )

    return renamed(columns.fields)
