"""The bytes a writer hashed for a value, by physical and logical type.

A filter is asked with the PLAIN bytes of the *physical* value, without a length prefix:

    INT32, INT64   4, 8 bytes LE; int8/16 sign-extended, uint8/16 zero-extended first
    FLOAT, DOUBLE  4, 8 bytes LE, raw; FLOAT16 2 bytes
    BYTE_ARRAY     the bytes;  FIXED_LEN_BYTE_ARRAY  type_length bytes, DECIMAL big-endian

`encode_literal` turns what a person wrote into those bytes. It never guesses: where engines may
disagree about what equals the literal, the answer is "no evidence", and the rows are read.
Source: parquet-format Encodings.md (PLAIN) and LogicalTypes.md; docs/formats.md section 2.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.formats.literals import Encoded, Instant, Literal, TimeOfDay, mismatch, never, unknown
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf
from parquet_bloom.formats.numbers import decimal, floating, integer, stored_integer


def encode_literal(value: Literal, leaf: Leaf) -> Encoded:
    """Find the bytes under which a value equal to the literal may have been inserted.

    Equal is exactly equal, as in SQL: 1.0000000000000001 equals no integer, though an engine that
    rounds literals to the column's type first finds a 1. DATE, TIME and uuid texts are cast.
    """
    value = own(value)
    if value is None:
        return never("nothing equals NULL")
    if leaf.refusal is not None:
        return unknown(f"filters on {leaf.type_name} are not used: {leaf.refusal}")
    if isinstance(value, bool):
        return unknown(f"a boolean says nothing about {leaf.type_name}")
    if leaf.logical in ("?", "UNKNOWN", "VARIANT", "GEOMETRY", "GEOGRAPHY", "FILE", "MAP", "LIST"):
        return unknown(f"equality on {leaf.type_name} is not equality of bytes")
    if leaf.logical in _HOLDS and leaf.physical not in _HOLDS[leaf.logical]:
        return unknown(f"{leaf.type_name} is no type of the format")
    for kinds, encode in _ENCODERS:
        if leaf.logical in kinds:
            return encode(value, leaf)
    return _PHYSICAL[leaf.physical](value, leaf)


def own(value: Any) -> Literal:
    """Take Python's and numpy's own kinds of time and number as ours."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    if isinstance(value, dt.datetime):
        if value != value:  # pandas' NaT, which is a datetime
            return None
        rest = getattr(value, "nanosecond", 0)  # pandas' Timestamp is a datetime that holds more
        plain = dt.datetime(*value.timetuple()[:6], value.microsecond)
        whole = plain - dt.datetime(1970, 1, 1) - (value.utcoffset() or dt.timedelta())
        return Instant(whole // dt.timedelta(microseconds=1) * 1000 + rest, value.tzinfo is not None)
    if isinstance(value, dt.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return TimeOfDay((seconds * 1_000_000 + value.microsecond) * 1000, value.tzinfo is not None)
    return cast("Literal", value)


# --- texts and bytes ------------------------------------------------------------------------------


def _bytes(value: Literal, leaf: Leaf) -> Encoded:
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:
            return unknown("the literal is not Unicode text")
    if not isinstance(value, bytes | bytearray):
        return mismatch(value, leaf)
    if leaf.physical == FLBA and len(value) != leaf.type_length:
        return never(f"{len(value)} bytes never equal a value of {leaf.type_length} bytes")
    return Encoded((bytes(value),))


def _uuid(value: Literal, leaf: Leaf) -> Encoded:
    if isinstance(value, str):
        try:
            value = uuid.UUID(value)
        except ValueError:
            return unknown(f"{value!r} is no uuid")
    if isinstance(value, uuid.UUID):
        value = value.bytes
    return _bytes(value, leaf) if isinstance(value, bytes) else mismatch(value, leaf)


# --- times ----------------------------------------------------------------------------------------

EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
DAY_NS = 86_400_000_000_000


def _date(value: Literal, leaf: Leaf) -> Encoded:
    if isinstance(value, str):
        try:
            value = dt.date.fromisoformat(value)
        except ValueError:
            return unknown(f"{value!r} is no date (YYYY-MM-DD)")
    if isinstance(value, Instant):
        if value.utc:
            return unknown("which day an instant falls on depends on the session's time zone")
        days, rest = divmod(value.nanoseconds, DAY_NS)
        return never(f"{leaf.type_name} holds no time of day") if rest else stored_integer(days, leaf)
    if not isinstance(value, dt.date):
        return mismatch(value, leaf)
    return stored_integer(value.toordinal() - EPOCH_DAY, leaf)


def _units(nanoseconds: int, leaf: Leaf) -> Encoded:
    if not leaf.unit_ns:
        return unknown(f"the unit of {leaf.type_name} is unknown")
    number, rest = divmod(nanoseconds, leaf.unit_ns)
    return never(f"{leaf.type_name} holds no such fraction of a second") if rest else stored_integer(number, leaf)


def _timestamp(value: Literal, leaf: Leaf) -> Encoded:
    if isinstance(value, dt.date):
        value = Instant((value.toordinal() - EPOCH_DAY) * DAY_NS, utc=False)
    if not isinstance(value, Instant):
        return mismatch(value, leaf)
    if leaf.utc is None and not value.utc:
        return unknown("whether the column is in UTC is not said; write the literal with +00:00")
    if leaf.utc is not None and leaf.utc != value.utc:
        hint = "write the literal with its zone, as +00:00" if leaf.utc else "write the literal without a zone"
        return unknown(f"comparing the two depends on the session's time zone; {hint}")
    return _units(value.nanoseconds, leaf)


def _time(value: Literal, leaf: Leaf) -> Encoded:
    if not isinstance(value, TimeOfDay):
        return mismatch(value, leaf)
    if value.utc:
        return unknown("a time of day with a zone may be another time of day in the session's")
    return _units(value.nanoseconds, leaf)


_HOLDS = {
    "INTEGER": (INT32, INT64),
    "DECIMAL": (INT32, INT64, FLBA, BYTE_ARRAY),
    "DATE": (INT32,),
    "TIME": (INT32, INT64),
    "TIMESTAMP": (INT64,),
    "UUID": (FLBA,),
    "FLOAT16": (FLBA,),
    "STRING": (BYTE_ARRAY, FLBA),
    "ENUM": (BYTE_ARRAY, FLBA),
    "JSON": (BYTE_ARRAY, FLBA),
    "BSON": (BYTE_ARRAY, FLBA),
}
_Encoder = Callable[[Literal, Leaf], Encoded]
_ENCODERS: tuple[tuple[tuple[str, ...], _Encoder], ...] = (
    (("DECIMAL",), decimal),
    (("DATE",), _date),
    (("TIMESTAMP",), _timestamp),
    (("TIME",), _time),
    (("UUID",), _uuid),
    (("FLOAT16",), floating),
    (("STRING", "ENUM", "JSON", "BSON"), _bytes),
)
_PHYSICAL: dict[int, _Encoder] = {
    INT32: integer,
    INT64: integer,
    FLOAT: floating,
    DOUBLE: floating,
    BYTE_ARRAY: _bytes,
    FLBA: _bytes,
}


# --- values that have twins -----------------------------------------------------------------------


def twins(values: NDArray[np.floating]) -> list[bytes]:
    """The values to insert beside those stored: both zeros if either is there, NaN's canonical bits.

    values   float16, float32 or float64, any length
    returns  PLAIN bytes

    The zeros are equal and hash differently, and a NaN has many payloads: without their twins in
    the filter, `x = 0.0` over a stored -0.0 loses rows in engines that ask only for what they
    were given.
    """
    extra: list[bytes] = []
    if bool(np.any(values == 0)):
        extra += [values.dtype.type(0.0).tobytes(), values.dtype.type(-0.0).tobytes()]
    if bool(np.any(np.isnan(values))):
        canonical = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[values.dtype.itemsize]
        extra.append(struct.pack("<Q", canonical)[: values.dtype.itemsize])
    return extra
