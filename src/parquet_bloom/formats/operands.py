"""A literal as one column sees it: where it lies in the column's order, and what to ask a filter.

    id < 1.5         1 < literal < 2      the largest integer below and the smallest above it
    price = 0.1      on FLOAT: between the floats beside 0.1, as engines round it in different ways
    name >= 'b'      the bytes themselves

Sources: as formats.values; SQL's rule that comparing numbers of two types compares the numbers.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np

from parquet_bloom.formats.bounds import domain_of
from parquet_bloom.formats.kinds import is_misfit, is_uuid
from parquet_bloom.formats.literals import Instant, Literal, TimeOfDay, mismatch, shown
from parquet_bloom.formats.metadata.schema import BOOLEAN, BYTE_ARRAY, FLBA, Leaf
from parquet_bloom.formats.numbers import FLOATS
from parquet_bloom.formats.values import DAY_NS, EPOCH_DAY, encode_literal, own

# Beyond any value of any column (64 bytes of DECIMAL): a literal further out is as good as this one.
_MOST_DIGITS = 170


@dataclass(frozen=True, slots=True)
class Operand:
    """What a literal means for one column.

    low, high  the literal lies between these two values of the column's order (see bounds.domain_of);
               equal if it is a value; where `known` is False, nothing is said
    never      no value of the column's type equals it
    probes     PLAIN bytes to ask a filter for: nothing stored equals the literal if it admits none;
               None if a filter cannot tell
    reason     why it is not known, or never, or has no probes
    misfit     it is not known because the literal can never be compared with the column (kinds.is_misfit)
    """

    known: bool
    low: Any = None
    high: Any = None
    never: bool = False
    probes: tuple[bytes, ...] | None = None
    reason: str = ""
    misfit: bool = False


def operand(value: Literal, leaf: Leaf) -> Operand:
    """Find what a literal that is not NULL means for a column."""
    value = own(value)
    place = _place(value, leaf)
    if isinstance(place, str):
        return Operand(False, reason=place, misfit=is_misfit(value, leaf))
    encoded = encode_literal(value, leaf)
    low, high = place
    integer = domain_of(leaf) == "integer"
    never = encoded.probes == () or (integer and low != high)
    return Operand(True, low, high, never, encoded.probes, encoded.reason)


def plain(number: int, leaf: Leaf) -> bytes | None:
    """The PLAIN bytes of a value of an integer column; None where it has no one spelling."""
    if leaf.physical == BYTE_ARRAY or leaf.physical == BOOLEAN:
        return None
    try:
        if leaf.physical == FLBA:
            return number.to_bytes(leaf.type_length, "big", signed=True)
        return (number & (1 << 8 * leaf.width) - 1).to_bytes(leaf.width, "little")
    except OverflowError:
        return None


def _place(value: Literal, leaf: Leaf) -> tuple[Any, Any] | str:
    domain = domain_of(leaf)
    if domain is None:
        return f"{leaf.type_name} has no order and no equality that this version knows"
    if isinstance(value, bool) or leaf.physical == BOOLEAN:
        if isinstance(value, bool) and leaf.physical == BOOLEAN:
            return int(value), int(value)
        return mismatch(value, leaf).reason
    if domain == "float":
        return _float_place(value, leaf)
    if domain == "bytes":
        return _bytes_place(value, leaf)
    if leaf.logical == "DATE":
        return _date_place(value, leaf)
    if leaf.logical == "TIMESTAMP":
        return _timestamp_place(value, leaf)
    if leaf.logical == "TIME":
        if not isinstance(value, TimeOfDay) or value.utc or not leaf.unit_ns:
            return encode_literal(value, leaf).reason or mismatch(value, leaf).reason
        return _quotient(value.nanoseconds, leaf.unit_ns)
    return _number_place(value, leaf)


def _quotient(number: int, unit: int) -> tuple[int, int]:
    """The integers at or below, and at or above, number / unit."""
    return number // unit, -(-number // unit)


def _number_place(value: Literal, leaf: Leaf) -> tuple[int, int] | str:
    scale = leaf.scale if leaf.logical == "DECIMAL" else 0
    if not 0 <= scale <= 76:
        return f"a scale of {scale} is none of the format's"
    if isinstance(value, float):
        # Engines compare in doubles here; beyond 2^53 several integers are one double.
        if leaf.logical == "DECIMAL" or not math.isfinite(value) or abs(value) >= 2**53:
            return f"{value!r} is not exact enough for {leaf.type_name}"
        value = Decimal(value)
    if isinstance(value, int):
        return value * 10**scale, value * 10**scale
    if not isinstance(value, Decimal):
        return mismatch(value, leaf).reason
    if not value.is_finite():
        return f"{value} is no number"
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    exponent += scale
    number = int("".join(map(str, digits[: 2 * _MOST_DIGITS])))
    exponent += len(digits) - len(digits[: 2 * _MOST_DIGITS])
    if not any(digits):
        return 0, 0
    if len(digits[: 2 * _MOST_DIGITS]) + exponent > _MOST_DIGITS:
        far = 10**_MOST_DIGITS
        return (-far, -far) if sign else (far, far)
    if exponent >= 0 and len(digits) <= 2 * _MOST_DIGITS:
        number *= 10**exponent
        return (-number, -number) if sign else (number, number)
    cut = len(digits) > 2 * _MOST_DIGITS and any(digits[2 * _MOST_DIGITS :])
    whole, rest = (number * 10**exponent, 0) if exponent >= 0 else _split(number, -exponent)
    above = whole + 1 if rest or cut else whole
    return (-above, -whole) if sign else (whole, above)


def _split(number: int, places: int) -> tuple[int, int]:
    return divmod(number, 10**places) if places <= 4 * _MOST_DIGITS else (0, 1)


def _float_place(value: Literal, leaf: Leaf) -> tuple[float, float] | str:
    if not isinstance(value, int | float | Decimal):
        return mismatch(value, leaf).reason
    kind = FLOATS[leaf.float_bits]
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return f"{shown(value)} is outside the range of a double"
    if math.isnan(number):
        return "engines do not agree on what equals NaN"
    with np.errstate(over="ignore"):
        nearest = kind(number)
        if math.isinf(float(nearest)):
            return _infinite(number, float(nearest), leaf)
        if Decimal(float(nearest)) == Decimal(value):
            return float(nearest), float(nearest)
        return float(np.nextafter(nearest, kind(-np.inf))), float(np.nextafter(nearest, kind(np.inf)))


def _infinite(number: float, nearest: float, leaf: Leaf) -> tuple[float, float] | str:
    return (nearest, nearest) if number == nearest else f"{number!r} is outside the range of {leaf.type_name}"


def _bytes_place(value: Literal, leaf: Leaf) -> tuple[bytes, bytes] | str:
    if leaf.logical == "UUID":
        if isinstance(value, str):
            try:
                value = uuid.UUID(value)
            except ValueError:
                return f"{value!r} is no uuid"
        value = value.bytes if isinstance(value, uuid.UUID) else value
        if not isinstance(value, bytes) or len(value) != 16:
            return mismatch(value, leaf).reason
    if isinstance(value, str):
        if leaf.physical == FLBA and leaf.type_length == 16 and is_uuid(value):
            return f"{value!r} may be meant as a uuid, and 16 bytes without a logical type may hold uuids"
        try:
            value = value.encode()
        except UnicodeEncodeError:
            return "the literal is not Unicode text"
    if not isinstance(value, bytes | bytearray):
        return mismatch(value, leaf).reason
    return bytes(value), bytes(value)


def _date_place(value: Literal, leaf: Leaf) -> tuple[int, int] | str:
    if isinstance(value, str):
        try:
            value = dt.date.fromisoformat(value)
        except ValueError:
            return f"{value!r} is no date (YYYY-MM-DD)"
    if isinstance(value, Instant):
        return _quotient(value.nanoseconds, DAY_NS) if not value.utc else encode_literal(value, leaf).reason
    if not isinstance(value, dt.date):
        return mismatch(value, leaf).reason
    days = value.toordinal() - EPOCH_DAY
    return days, days


def _timestamp_place(value: Literal, leaf: Leaf) -> tuple[int, int] | str:
    if type(value) is dt.date:
        value = Instant((value.toordinal() - EPOCH_DAY) * DAY_NS, utc=False)
    reason = encode_literal(value, leaf).reason
    if not isinstance(value, Instant) or not leaf.unit_ns or (leaf.utc is None and not value.utc):
        return reason or mismatch(value, leaf).reason
    if leaf.utc is not None and leaf.utc != value.utc:
        return reason
    return _quotient(value.nanoseconds, leaf.unit_ns)
