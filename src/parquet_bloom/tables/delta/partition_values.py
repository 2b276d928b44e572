"""Partition values of a Delta log: texts that become values of the column's type.

Source: the Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

import pyarrow as pa

from parquet_bloom.errors import TableFormatError
from parquet_bloom.tables.delta.actions import Add
from parquet_bloom.tables.delta.schema import Schema

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_ESCAPED = re.compile(r"(?:\\u00[0-9A-Fa-f]{2})+")
_EPOCH = dt.datetime(1970, 1, 1)


def constants_of(table: object, schema: Schema, add: Add) -> dict[str, pa.Scalar]:
    """The value of each partition column in a file, of the field's type. '' is NULL, as null is.

    Raises TableFormatError where the log has none, or one that is no value of the type: rows must not get another.
    """
    found = {}
    for field in schema.partition_columns:
        name, key = field.name, field.physical or field.name
        if key not in add.values:
            raise TableFormatError(table, f"its log has no value of the partition column {name} for {add.path}")
        text = add.values[key]
        try:
            found[name] = pa.scalar(None, field.type) if not text else _value(text, field.type)
        except (ValueError, ArithmeticError, pa.ArrowException) as error:
            reason = f"its log has {text!r} in the partition column {name}, which is no value of {field.type}"
            raise TableFormatError(table, reason) from error
    return found


@lru_cache(maxsize=1024)  # many files have the same
def _value(text: str, kind: pa.DataType) -> pa.Scalar:
    for fits, read in _READ:
        if fits(kind):
            return pa.scalar(read(text), kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(_microseconds(text, kind.tz is not None), kind)
    raise ValueError(f"no partition column has type {kind}")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _date(text: str) -> dt.date:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return dt.date(int(found[1]), int(found[2]), int(found[3]))


def _binary(text: str) -> bytes:
    r"""All bytes as \u00ff, which is the protocol's form and deltalake's; or plain ASCII, as Spark has it.

    What is neither may be Spark's, which takes bytes for UTF-8, or of somebody who escapes some bytes.
    """
    if _ESCAPED.fullmatch(text) is not None:
        return bytes.fromhex(text.replace("\\u00", ""))
    if not text.isascii() or "\\" in text:
        raise ValueError("writers do not agree on these bytes")
    return text.encode()


def _integer(text: str) -> int:
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII) is None:
        raise ValueError(text)
    return int(text)


def _float(text: str) -> float:
    if "_" in text or text != text.strip():
        raise ValueError(text)
    return float(text)  # NaN, Infinity and -Infinity too


_READ: list[tuple[Callable[[pa.DataType], bool], Callable[[str], object]]] = [
    (pa.types.is_string, str),
    (pa.types.is_integer, _integer),
    (pa.types.is_floating, _float),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_date, _date),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_binary, _binary),
]


def _microseconds(text: str, zoned: bool) -> int:
    """Since 1970; of a text without a zone, and for a type without one, as it stands: in UTC."""
    if day := _DATE.fullmatch(text):  # of a column that was DATE
        return (dt.datetime(int(day[1]), int(day[2]), int(day[3])) - _EPOCH) // dt.timedelta(microseconds=1)
    value, offset = parse_timestamp(text)
    return value - (offset or 0 if zoned else 0)


def parse_timestamp(text: str) -> tuple[int, int | None]:
    """(microseconds since 1970 as the clock shows them, offset of its zone in microseconds; None: it names none).

    Digits after the sixth are cut off. Raises ValueError.
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError(text)
    seconds = dt.datetime(*(int(found[i]) for i in range(1, 7))) - _EPOCH  # type: ignore[arg-type]
    value = seconds // dt.timedelta(microseconds=1) + int((found[7] or "").ljust(6, "0")[:6])
    zone = found[8]
    if zone is None or zone == "Z":
        return value, None if zone is None else 0
    sign = -1 if zone[0] == "-" else 1
    return value, sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60) * 10**6
