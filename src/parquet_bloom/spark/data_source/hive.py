"""Folders' names as columns, with the types that Spark infers for them.

    n=7 -> int      n=3000000000 -> bigint      x=1.5 -> double      day=2026-01-31 -> date      all else -> string

Several values of one key share a type: int and bigint are bigint, int and double are double, whole
numbers that are longer are decimals, and others that differ are strings; NULLs alone are void. Not as
in Spark, timestamps stay strings: their meaning depends on the session's zone, which a data source is
not told.
Source: Spark's PartitioningUtils (inferPartitionColumnValue, findWiderTypeForPartitionColumn).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from decimal import Decimal

import pyarrow as pa

from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.formats.literals import read_date
from parquet_bloom.storage.paths import Partitions

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[dDfF]?")
_INT, _LONG, _FLOAT, _DATE, _TEXT = pa.int32(), pa.int64(), pa.float64(), pa.date32(), pa.string()


def infer(text: str) -> pa.DataType:
    """The type of one value."""
    if _WHOLE.fullmatch(text):
        number = int(text)
        for kind in (_INT, _LONG):
            if -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1:
                return kind
    if _DOUBLE.fullmatch(text):
        return _whole_decimal(text) or _FLOAT
    return _DATE if _is_date(text) else _TEXT


def _is_date(text: str) -> bool:
    try:
        read_date(text)
    except ValueError:
        return False
    return True


def _whole_decimal(text: str) -> pa.DataType | None:
    """Numbers without digits behind the point, 5. and 2e3 too, are decimals to Spark."""
    try:
        number = Decimal(text)
    except ArithmeticError:  # 5d
        return None
    exponent = number.as_tuple().exponent
    digits = number.adjusted() + 1
    whole = isinstance(exponent, int) and exponent >= 0 and 0 < digits <= 38
    return pa.decimal128(digits, 0) if whole else None


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    kinds = {one, other}
    if kinds == {_INT, _LONG}:
        return _LONG
    if kinds == {_INT, _FLOAT}:
        return _FLOAT
    digits = [_digits(kind) for kind in (one, other)]
    return pa.decimal128(max(digits), 0) if all(digits) else _TEXT


def _digits(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return int(kind.precision)
    return 10 if kind == _INT else 20 if kind == _LONG else 0


def infer_types(files: Iterable[Partitions]) -> dict[str, pa.DataType]:
    """Partition columns in the order of their folders, and what Spark makes of their values.

    Raises RequestError where files lie under different keys.
    """
    found: dict[str, pa.DataType | None] = {}
    keys: tuple[str, ...] | None = None
    for pairs in files:
        here = tuple(key for key, _ in pairs)
        if keys is not None and here != keys:
            both = [", ".join(names) or "none" for names in (keys, here)]
            raise RequestError(f"folders name different partition columns: {both[0]} here, {both[1]} there")
        keys = here
        for key, text in pairs:
            last = found.get(key)
            kind = None if text is None else infer(text)
            found[key] = kind if last is None else last if kind is None else _common(last, kind)
    return {key: pa.null() if kind is None else kind for key, kind in found.items()}


def scalar(path: object, key: str, text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value of a folder's name in its column's type.

    Raises StorageError that names the file where the text is no value of the type.
    """
    try:
        return pa.scalar(None if text is None else _value(text, kind), kind)
    except (ValueError, ArithmeticError, pa.ArrowException):
        reason = f"the folder says {key}={text}, which is no {kind}; give a schema in which {key} is a string"
        raise StorageError(path, reason) from None


def _value(text: str, kind: pa.DataType) -> object:
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        return text.encode("utf-8", "surrogateescape")
    if pa.types.is_boolean(kind) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if pa.types.is_integer(kind) and _WHOLE.fullmatch(text):
        return int(text)
    if pa.types.is_decimal(kind) and _DOUBLE.fullmatch(text):
        return Decimal(text)
    if pa.types.is_floating(kind) and (found := _DOUBLE.fullmatch(text)):
        return float(found[1])
    if pa.types.is_date(kind):
        return read_date(text)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return dt.datetime.fromisoformat(text)
    raise ValueError(text)
