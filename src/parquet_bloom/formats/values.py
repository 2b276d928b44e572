"""The bytes a writer hashed for a value, by physical and logical type.

A filter is asked with the PLAIN bytes of the *physical* value, without a length prefix:

    INT32, INT64   4, 8 bytes LE; int8/16 sign-extended, uint8/16 zero-extended first
    FLOAT, DOUBLE  4, 8 bytes LE, raw; FLOAT16 2 bytes
    BYTE_ARRAY     the bytes;  FIXED_LEN_BYTE_ARRAY  type_length bytes, DECIMAL big-endian

`encode_literal` turns what a person wrote into those bytes. It never guesses: where engines may
disagree about what equals the literal, the answer is "no evidence", and the rows are read.
Source: parquet-format Encodings.md (PLAIN) and LogicalTypes.md; formats.md section 2.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.formats.schema import BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time (utc) or a wall-clock reading (not utc); nanoseconds since 1970-01-01 00:00."""

    nanoseconds: int
    utc: bool


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """Nanoseconds since midnight; utc where a zone was given."""

    nanoseconds: int
    utc: bool = False


Literal = bool | int | float | Decimal | str | bytes | dt.date | Instant | TimeOfDay | uuid.UUID | None


@dataclass(frozen=True, slots=True)
class Encoded:
    """What a literal means for one column.

    probes  PLAIN bytes to ask for: no row equals the literal if the filter admits none of them.
            Empty: no value of this type can equal it, whatever is stored.
    reason  why; and where probes is None, why the filter cannot tell anything (no evidence)
    """

    probes: tuple[bytes, ...] | None
    reason: str = ""


def encode_literal(value: Literal, leaf: Leaf) -> Encoded:
    """Find the bytes under which a value equal to the literal may have been inserted."""
    value = _own(value)
    if value is None:
        return _never("nothing equals NULL")
    if leaf.refusal is not None:
        return _unknown(f"filters on {leaf.type_name} are not used: {leaf.refusal}")
    if isinstance(value, bool):
        return _unknown(f"a boolean says nothing about {leaf.type_name}")
    if leaf.logical in ("?", "UNKNOWN", "VARIANT", "GEOMETRY", "GEOGRAPHY", "FILE", "MAP", "LIST"):
        return _unknown(f"equality on {leaf.type_name} is not equality of bytes")
    if leaf.logical in _HOLDS and leaf.physical not in _HOLDS[leaf.logical]:
        return _unknown(f"{leaf.type_name} is no type of the format")
    for kinds, encode in _ENCODERS:
        if leaf.logical in kinds:
            return encode(value, leaf)
    return _PHYSICAL[leaf.physical](value, leaf)


def _own(value: Any) -> Literal:
    """Take Python's and numpy's own kinds of time and number as ours."""
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        value = value.item()
    if isinstance(value, dt.datetime):
        whole = (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) - (value.utcoffset() or dt.timedelta())
        return Instant(whole // dt.timedelta(microseconds=1) * 1000, value.tzinfo is not None)
    if isinstance(value, dt.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return TimeOfDay((seconds * 1_000_000 + value.microsecond) * 1000, value.tzinfo is not None)
    return cast("Literal", value)


def _never(reason: str) -> Encoded:
    return Encoded((), reason)


def _unknown(reason: str) -> Encoded:
    return Encoded(None, reason)


def _mismatch(value: Literal, leaf: Leaf) -> Encoded:
    shown = repr(value) if isinstance(value, int | float | str | bytes) else str(value)
    hint = _SPELLED.get(leaf.logical or "")
    return _unknown(f"{shown} is not a literal for {leaf.type_name}" + (f"; write {hint}" if hint else ""))


_SPELLED = {
    "TIMESTAMP": "TIMESTAMP '2026-01-31 12:00:00+00:00'",
    "TIME": "TIME '12:00:00'",
    "DATE": "DATE '2026-01-31'",
}


# --- numbers --------------------------------------------------------------------------------------


def _exact_integer(value: Literal, leaf: Leaf, scale: int = 0) -> int | Encoded:
    """The integer that is `value * 10^scale`, or what to answer where there is none."""
    if isinstance(value, float):
        # Engines compare in doubles here; beyond 2^53 several integers are one double.
        if scale or not math.isfinite(value) or abs(value) >= 2**53:
            return _unknown(f"{value!r} is not exact enough for {leaf.type_name}")
        value = Decimal(value)
    if isinstance(value, int):
        return int(value * 10**scale)
    if not isinstance(value, Decimal):
        return _mismatch(value, leaf)
    if not value.is_finite():
        return _unknown(f"{value} is no number")
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    exponent += scale
    number = int("".join(map(str, digits)))
    if not number:
        return 0
    if exponent > 60:  # beyond any physical type, and no reason to build a number of a gigabyte
        return _never(f"{value} is outside the range of {leaf.type_name}")
    if exponent < 0:
        if -exponent > len(digits) or number % 10**-exponent:
            return _never(f"{leaf.type_name} holds no such fraction")
        number //= 10**-exponent
    else:
        number *= 10**exponent
    return int(-number if sign else number)


def _fits(number: int, bits: int, signed: bool, leaf: Leaf) -> Encoded | None:
    low, high = (-(1 << bits - 1), 1 << bits - 1) if signed else (0, 1 << bits)
    return None if low <= number < high else _never(f"{number} is outside the range of {leaf.type_name}")


def _stored_integer(number: int, leaf: Leaf, signed: bool = True, bits: int = 0) -> Encoded:
    width = leaf.width
    outside = _fits(number, bits or 8 * width, signed, leaf)
    if outside is not None:
        return outside
    return Encoded(((number & (1 << 8 * width) - 1).to_bytes(width, "little"),))


def _integer(value: Literal, leaf: Leaf) -> Encoded:
    number = _exact_integer(value, leaf)
    if isinstance(number, Encoded):
        return number
    return _stored_integer(number, leaf, leaf.signed, leaf.bits)


def _decimal(value: Literal, leaf: Leaf) -> Encoded:
    if leaf.physical == BYTE_ARRAY:
        return _unknown("a DECIMAL in a BYTE_ARRAY has many spellings of one value")
    if not 0 <= leaf.scale <= 76:
        return _unknown(f"a scale of {leaf.scale} is none of the format's")
    number = _exact_integer(value, leaf, leaf.scale)
    if isinstance(number, Encoded):
        return number
    if leaf.physical != FLBA:
        return _stored_integer(number, leaf)
    outside = _fits(number, 8 * leaf.type_length, True, leaf)
    return outside or Encoded((number.to_bytes(leaf.type_length, "big", signed=True),))


_FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}


def _float(value: Literal, leaf: Leaf) -> Encoded:
    if not isinstance(value, int | float | Decimal) or not leaf.float_bits:
        return _mismatch(value, leaf)
    kind = _FLOATS[leaf.float_bits]
    try:
        as_double = float(value)
    except (OverflowError, ValueError):
        return _unknown(f"{value} is outside the range of a double")
    if math.isnan(as_double):
        return _unknown("engines do not agree on what equals NaN")
    with np.errstate(over="ignore"):
        nearest = kind(as_double)
    if nearest == 0 and as_double == 0:
        zeros = (kind(0.0), kind(-0.0))
        return Encoded(tuple(z.tobytes() for z in zeros))
    if math.isinf(float(nearest)) and not math.isinf(as_double):
        return _unknown(f"{value} is outside the range of {leaf.type_name}")
    if Decimal(float(nearest)) == (Decimal(value) if not isinstance(value, float) else Decimal(as_double)):
        return Encoded((nearest.tobytes(),))
    # Not exact: engines round it in different ways, some not at all. One of the three it is.
    near = (nearest, np.nextafter(nearest, kind(-np.inf)), np.nextafter(nearest, kind(np.inf)))
    probes = [n.tobytes() for n in near]
    if any(n == 0 for n in near):
        probes += [kind(0.0).tobytes(), kind(-0.0).tobytes()]
    return Encoded(tuple(dict.fromkeys(probes)), f"{value} is not exact in {leaf.type_name}")


# --- texts and bytes ------------------------------------------------------------------------------


def _bytes(value: Literal, leaf: Leaf) -> Encoded:
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:
            return _unknown("the literal is not Unicode text")
    if not isinstance(value, bytes | bytearray):
        return _mismatch(value, leaf)
    if leaf.physical == FLBA and len(value) != leaf.type_length:
        return _never(f"{len(value)} bytes never equal a value of {leaf.type_length} bytes")
    return Encoded((bytes(value),))


def _uuid(value: Literal, leaf: Leaf) -> Encoded:
    if isinstance(value, str):
        try:
            value = uuid.UUID(value)
        except ValueError:
            return _unknown(f"{value!r} is no uuid")
    if isinstance(value, uuid.UUID):
        value = value.bytes
    return _bytes(value, leaf) if isinstance(value, bytes) else _mismatch(value, leaf)


# --- times ----------------------------------------------------------------------------------------

_EPOCH = dt.date(1970, 1, 1).toordinal()
_DAY_NS = 86_400_000_000_000


def _date(value: Literal, leaf: Leaf) -> Encoded:
    if isinstance(value, str):
        try:
            value = dt.date.fromisoformat(value)
        except ValueError:
            return _unknown(f"{value!r} is no date (YYYY-MM-DD)")
    if isinstance(value, Instant):
        if value.utc:
            return _unknown("which day an instant falls on depends on the session's time zone")
        days, rest = divmod(value.nanoseconds, _DAY_NS)
        return _never(f"{leaf.type_name} holds no time of day") if rest else _stored_integer(days, leaf)
    if not isinstance(value, dt.date):
        return _mismatch(value, leaf)
    return _stored_integer(value.toordinal() - _EPOCH, leaf)


def _units(nanoseconds: int, leaf: Leaf) -> Encoded:
    if not leaf.unit_ns:
        return _unknown(f"the unit of {leaf.type_name} is unknown")
    number, rest = divmod(nanoseconds, leaf.unit_ns)
    return _never(f"{leaf.type_name} holds no such fraction of a second") if rest else _stored_integer(number, leaf)


def _timestamp(value: Literal, leaf: Leaf) -> Encoded:
    if isinstance(value, dt.date):
        value = Instant((value.toordinal() - _EPOCH) * _DAY_NS, utc=False)
    if not isinstance(value, Instant):
        return _mismatch(value, leaf)
    if leaf.utc is None and not value.utc:
        return _unknown("whether the column is in UTC is not said; write the literal with +00:00")
    if leaf.utc is not None and leaf.utc != value.utc:
        hint = "write the literal with its zone, as +00:00" if leaf.utc else "write the literal without a zone"
        return _unknown(f"comparing the two depends on the session's time zone; {hint}")
    return _units(value.nanoseconds, leaf)


def _time(value: Literal, leaf: Leaf) -> Encoded:
    if not isinstance(value, TimeOfDay):
        return _mismatch(value, leaf)
    if value.utc:
        return _unknown("a time of day with a zone may be another time of day in the session's")
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
    (("DECIMAL",), _decimal),
    (("DATE",), _date),
    (("TIMESTAMP",), _timestamp),
    (("TIME",), _time),
    (("UUID",), _uuid),
    (("FLOAT16",), _float),
    (("STRING", "ENUM", "JSON", "BSON"), _bytes),
)
_PHYSICAL: dict[int, _Encoder] = {
    INT32: _integer,
    INT64: _integer,
    FLOAT: _float,
    DOUBLE: _float,
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
