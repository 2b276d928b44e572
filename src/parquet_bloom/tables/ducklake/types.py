"""DuckLake's types, and values as the catalog writes them: as text, the way that DuckDB casts them to VARCHAR.

    decimal(9,2)   12.30                          json         {"a":1}
    date           2020-01-31, 0044-03-15 (BC)    uuid         9ef6576d-b747-4a5f-a928-a41aba4f9617
    timestamptz    2020-01-31 12:00:00.5+00       blob         FF00615C62 (not read: writers differ)
    boolean        0, 1, true, false              float64      1e+300, inf, nan

A text that is not surely understood gives nothing. Source: the DuckLake 1.0 specification, "Data Types"; the rest as
DuckDB 1.5.5 writes it.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa

from parquet_bloom.formats.literals import Instant, Literal, TimeOfDay, day_number, read_clock, read_date, read_instant

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
    "boolean": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INTEGER", "int64": "BIGINT",
    "int128": "HUGEINT", "uint8": "UTINYINT", "uint16": "USMALLINT", "uint32": "UINTEGER", "uint64": "UBIGINT",
    "uint128": "UHUGEINT", "float32": "FLOAT", "float64": "DOUBLE", "time": "TIME", "time_ns": "TIME_NS",
    "timetz": "TIMETZ", "date": "DATE", "timestamp": "TIMESTAMP", "timestamp_s": "TIMESTAMP_S",
    "timestamp_ms": "TIMESTAMP_MS", "timestamp_ns": "TIMESTAMP_NS", "timestamptz": "TIMESTAMPTZ",
    "interval": "INTERVAL", "varchar": "VARCHAR", "blob": "BLOB", "json": "JSON", "uuid": "UUID",
}  # fmt: skip
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
