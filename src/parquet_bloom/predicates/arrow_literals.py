"""Arrow scalars as literals, each with its exact value."""

from __future__ import annotations

import uuid
from decimal import Decimal

import pyarrow as pa

from parquet_bloom.formats.literals import DAY_NS, Instant, Literal, TimeOfDay, date_of_day
from parquet_bloom.formats.metadata.schema import UNIT_NS

_DAY_MS = DAY_NS // UNIT_NS["ms"]


class OutOfReachError(Exception):
    """A scalar that no literal spells, and why."""


def literal_of(scalar: pa.Scalar) -> Literal:
    """The literal with a scalar's value. Raises OutOfReachError for a type or value that none spells."""
    kind = scalar.type
    types = pa.types
    if types.is_dictionary(kind):
        return literal_of(scalar.value) if scalar.is_valid else None
    if not scalar.is_valid:
        return None
    if isinstance(kind, pa.UuidType):
        return uuid.UUID(bytes=scalar.value.as_py())
    if isinstance(kind, pa.JsonType):
        return literal_of(scalar.value)
    if types.is_date(kind):
        days, rest = divmod(scalar.value, _DAY_MS) if types.is_date64(kind) else (scalar.value, 0)
        try:
            if not rest:
                return date_of_day(days)
        except ValueError:
            pass
        raise OutOfReachError("it is no whole day of the years 1 to 9999")
    if types.is_timestamp(kind):
        return Instant(scalar.value * UNIT_NS[kind.unit], kind.tz is not None)
    if types.is_time(kind):
        return TimeOfDay(scalar.value * UNIT_NS[kind.unit])
    try:
        if types.is_floating(kind):
            return float(scalar.as_py())
        tests = (types.is_boolean, types.is_integer, types.is_decimal, is_text, is_bytes)
        if any(test(kind) for test in tests):
            value = scalar.as_py()
            assert isinstance(value, bool | int | Decimal | str | bytes)
            return value
    except UnicodeDecodeError as error:
        raise OutOfReachError("a text that is not UTF-8") from error
    raise OutOfReachError(f"no literal is a {kind}")


_T = pa.types
_LISTS = (_T.is_list, _T.is_large_list, _T.is_fixed_size_list, _T.is_list_view, _T.is_large_list_view)
_TEXTS = (_T.is_string, _T.is_large_string, _T.is_string_view)
_BYTES = (_T.is_binary, _T.is_large_binary, _T.is_binary_view, _T.is_fixed_size_binary)


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists, in any of Arrow's layouts."""
    return any(test(kind) for test in _LISTS)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts, in any of Arrow's layouts."""
    return any(test(kind) for test in _TEXTS)


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes, of any or of one length, in any of Arrow's layouts."""
    return any(test(kind) for test in _BYTES)
