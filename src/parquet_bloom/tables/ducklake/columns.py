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

import datetime as dt
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import TableFormatError
from parquet_bloom.format.literals import Instant, Literal, TimeOfDay, day_number, read_clock, read_date, read_instant
from parquet_bloom.source.snapshot import Field, LeafPath
from parquet_bloom.tables.ducklake.catalog import NUMBER, TEXT, Queries

# --- DuckLake's types as Arrow's ------------------------------------------------------------------
#
# DuckLake's types, and values as the catalog writes them: as text, the way that DuckDB casts them to VARCHAR.
#
#    decimal(9,2)   12.30                          json         {"a":1}
#    date           2020-01-31, 0044-03-15 (BC)    uuid         9ef6576d-b747-4a5f-a928-a41aba4f9617
#    timestamptz    2020-01-31 12:00:00.5+00       blob         FF00615C62 (not read: writers differ)
#    boolean        0, 1, true, false              float64      1e+300, inf, nan
#
# A text that is not surely understood gives nothing. Source: the DuckLake 1.0 specification, "Data Types"; the rest
# as DuckDB 1.5.5 writes it.

SIGNED = frozenset(("int8", "int16", "int32", "int64"))
INTEGERS = SIGNED | {"uint8", "uint16", "uint32", "uint64"}
_HUGE = frozenset(("int128", "uint128"))  # no literals: DuckDB rounds twice as it stores them, past the text of a bound
_STAMPS = frozenset(("timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"))
_PLAIN: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint8": pa.uint8(),
    "uint16": pa.uint16(),
    "uint32": pa.uint32(),
    "uint64": pa.uint64(),
    "int128": pa.float64(),  # what DuckDB stores of it
    "uint128": pa.float64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "time": pa.time64("us"),
    "time_ns": pa.time64("ns"),
    "timetz": pa.time64("us"),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp_s": pa.timestamp("us"),  # Parquet has no seconds
    "timestamp_ms": pa.timestamp("ms"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "interval": pa.binary(12),
    "varchar": pa.string(),
    "blob": pa.binary(),
    "json": pa.json_(pa.string()),
    "uuid": pa.uuid(),
    "geometry": pa.binary(),
}
_SQL = {
    "boolean": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INTEGER",
    "int64": "BIGINT",
    "int128": "HUGEINT",
    "uint8": "UTINYINT",
    "uint16": "USMALLINT",
    "uint32": "UINTEGER",
    "uint64": "UBIGINT",
    "uint128": "UHUGEINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "time": "TIME",
    "time_ns": "TIME_NS",
    "timetz": "TIMETZ",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP_S",
    "timestamp_ms": "TIMESTAMP_MS",
    "timestamp_ns": "TIMESTAMP_NS",
    "timestamptz": "TIMESTAMPTZ",
    "interval": "INTERVAL",
    "varchar": "VARCHAR",
    "blob": "BLOB",
    "json": "JSON",
    "uuid": "UUID",
}
_DECIMAL = re.compile(r"decimal\((\d{1,2}), ?(\d{1,2})\)", re.A)
_INTEGER_TEXT = re.compile(r"-?\d{1,20}", re.A)
_HUGE_TEXT = re.compile(r"-?\d{1,39}", re.A)
_NUMBER_TEXT = re.compile(r"-?\d{1,40}(\.\d{1,40})?", re.A)
_BOOLEANS = {"0": False, "1": True, "false": False, "true": True}
_UNITS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


def arrow_type(name: str) -> pa.DataType | None:
    """The type of rows; None for one that is not read, such as VARIANT, and for nested ones."""
    decimal = _DECIMAL.fullmatch(name)
    if decimal is None:
        return _PLAIN.get(name)
    precision, scale = int(decimal[1]), int(decimal[2])
    return pa.decimal128(precision, scale) if 1 <= precision <= 38 and scale <= precision else None


def sql_type(name: str) -> str | None:
    """As DuckDB's SQL calls it; None for one that it does not know by itself, such as GEOMETRY, and for nested ones."""
    return name if _DECIMAL.fullmatch(name) is not None else _SQL.get(name)


def is_exact(name: str) -> bool:
    """Whether values are numbers that the catalog's text has in full."""
    return name in INTEGERS or _DECIMAL.fullmatch(name) is not None


def whole(text: str) -> int | None:
    """A number of at most 20 digits; None for any other text."""
    return int(text) if _INTEGER_TEXT.fullmatch(text) else None


def literal_of(text: str, name: str) -> Literal:
    """A value of the catalog; None where it is not surely understood."""
    try:
        return _literal(text, name)
    except (ValueError, ArithmeticError):
        return None


def _literal(text: str, name: str) -> Literal:
    if name in INTEGERS:
        return whole(text)
    if _DECIMAL.fullmatch(name) is not None:
        return Decimal(text) if _NUMBER_TEXT.fullmatch(text) else None
    if name in ("float32", "float64"):
        number = float(text)
        return number if number == number else None
    if name in ("varchar", "json"):
        return text
    if name == "date":
        return read_date(text)
    if name in ("time", "time_ns"):
        return TimeOfDay(read_clock(text))
    if name in _STAMPS or name == "timestamptz":
        instant = read_instant(text)
        return instant if instant.utc == (name == "timestamptz") else None
    if name == "uuid":
        return uuid.UUID(text)
    return _BOOLEANS.get(text) if name == "boolean" else None


def scalar_of(text: str | None, name: str, kind: pa.DataType) -> pa.Scalar | None:
    """A value of the catalog as one of a column; None where it is not surely understood. NULL has no text."""
    if text is None:
        return pa.scalar(None, kind)
    value: Any = literal_of(text, name)
    if name in _HUGE and _HUGE_TEXT.fullmatch(text):
        value = float(int(text))
    if value is None:
        return None
    try:
        if isinstance(value, Instant | TimeOfDay):
            count, rest = divmod(value.nanoseconds, _UNITS[kind.unit])
            return None if rest else pa.scalar(count, pa.int64()).cast(kind)
        if isinstance(value, dt.date):
            return pa.scalar(day_number(value), pa.int32()).cast(kind)
        if isinstance(value, uuid.UUID):
            value = value.bytes
        return pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError, ValueError):
        return None


# --- columns and leaves ---------------------------------------------------------------------------

_ABSENT = "\0"  # no file has a column of this name
_GROUPS: dict[str, LeafPath] = {"struct": (), "list": ("list",), "map": ("key_value",)}  # between column and children
_AS_JSON = INTEGERS | {"boolean", "varchar", "json"}  # which are the same text as JSON

_COLUMN = {
    "column_order": NUMBER,
    "column_id": NUMBER,
    "column_name": TEXT,
    "column_type": TEXT,
    "initial_default": TEXT.or_null,
    "parent_column": NUMBER.or_null,
    "begin_snapshot": NUMBER,
    "end_snapshot": NUMBER.or_null,
}
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
