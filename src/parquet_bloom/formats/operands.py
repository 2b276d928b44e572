"""A literal as one column sees it: its place in the column's order, and from that what to ask a filter for.

    literal            place                        probes
    id < 1.5           1 < literal < 2              none: no integer is 1.5
    id = 5             5                            its 4 or 8 bytes
    price = 0.1        on FLOAT between two floats  these and the one between them, as engines round differently
    name >= 'b'        the bytes themselves         the bytes

Nothing is guessed: where engines may disagree about what the literal means there, it has no place, and
the rows are read. Sources: parquet-format LogicalTypes.md; SQL's rule that comparing numbers of two
types compares the numbers, though an engine that rounds first finds a 1 for 1.0000000000000001.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from parquet_bloom.formats.bounds import domain_of, limits
from parquet_bloom.formats.kinds import is_misfit, is_uuid, mismatch
from parquet_bloom.formats.literals import DAY_NS, Literal, as_literal, shown, spelled
from parquet_bloom.formats.metadata.schema import BOOLEAN, FLBA, Leaf
from parquet_bloom.formats.numbers import around, is_beyond, is_nan, nearest, quotient, scaled
from parquet_bloom.formats.times import TimeMisfitError, moment_for, time_of_day_for
from parquet_bloom.formats.values import float_probes, not_asked, plain


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
    lower: Any = None
    upper: Any = None
    never: bool = False
    probes: tuple[bytes, ...] | None = None
    reason: str = ""
    misfit: bool = False


class NoPlaceError(Exception):
    """Nobody can tell where a literal lies in a column's order; the reason in words."""


def operand(value: Literal, leaf: Leaf) -> Operand:
    """Find what a literal means for a column; never raises."""
    value = as_literal(value)
    if value is None:
        return Operand(False, never=True, probes=(), reason="nothing equals NULL")
    try:
        low, high = place(value, leaf)
    except NoPlaceError as error:
        return Operand(False, reason=str(error), misfit=is_misfit(value, leaf))
    reason = _never(value, low, high, leaf)
    if reason:
        return Operand(True, low, high, never=True, probes=(), reason=reason)
    reason = not_asked(leaf)
    if reason:
        return Operand(True, low, high, reason=reason)
    if leaf.float_bits:
        return Operand(True, low, high, probes=float_probes(low, high, leaf.float_bits))
    probe = low if isinstance(low, bytes) else plain(low, leaf)
    return Operand(True, low, high, probes=None if probe is None else (probe,))


def _never(value: Literal, low: Any, high: Any, leaf: Leaf) -> str:
    """Why no value of a column's type equals a literal; empty if one may."""
    if isinstance(low, bytes):
        if leaf.physical == FLBA and len(low) != leaf.type_length:
            return f"{len(low)} bytes never equal a value of {leaf.type_length} bytes"
    elif isinstance(low, int):
        if low != high:
            return f"{shown(value)} lies between two values of {leaf.type_name}"
        range_of = limits(leaf)
        if range_of is not None and not range_of[0] <= low <= range_of[1]:
            return f"{shown(value)} is outside the range of {leaf.type_name}"
    return ""


def place(value: Literal, leaf: Leaf) -> tuple[Any, Any]:
    """The values of a column's order at or below, and at or above, a literal that is not NULL.

    Raises NoPlaceError where it has no place that all engines agree on.
    """
    domain = domain_of(leaf)
    if domain is None:
        raise NoPlaceError(f"{leaf.type_name} has no order and no equality that this version knows")
    if isinstance(value, bool) or leaf.physical == BOOLEAN:
        if isinstance(value, bool) and leaf.physical == BOOLEAN:
            return int(value), int(value)
        raise NoPlaceError(mismatch(value, leaf))
    if domain == "float":
        return _float_place(value, leaf)
    if domain == "bytes":
        return _bytes_place(value, leaf)
    if leaf.logical == "DATE":
        return _date_place(value, leaf)
    if leaf.logical == "TIMESTAMP":
        return _timestamp_place(value, leaf)
    if leaf.logical == "TIME":
        return _time_place(value, leaf)
    return _number_place(value, leaf)


# --- numbers --------------------------------------------------------------------------------------


def _number_place(value: Literal, leaf: Leaf) -> tuple[int, int]:
    scale = leaf.scale if leaf.logical == "DECIMAL" else 0
    if not 0 <= scale <= 76:
        raise NoPlaceError(f"a scale of {scale} is none of the format's")
    # Engines compare floats in doubles here; beyond 2^53 several integers are one double.
    if isinstance(value, float) and (leaf.logical == "DECIMAL" or not abs(value) < 2**53):
        raise NoPlaceError(f"{value!r} is not exact enough for {leaf.type_name}")
    if not isinstance(value, int | float | Decimal):
        raise NoPlaceError(mismatch(value, leaf))
    if isinstance(value, Decimal) and not value.is_finite():
        raise NoPlaceError(f"{value} is no number")
    return scaled(value, scale)


def _float_place(value: Literal, leaf: Leaf) -> tuple[float, float]:
    if not isinstance(value, int | float | Decimal):
        raise NoPlaceError(mismatch(value, leaf))
    if is_nan(value):
        raise NoPlaceError("engines do not agree on what equals NaN")
    closest = nearest(value, leaf.float_bits)
    if is_beyond(value, closest):
        raise NoPlaceError(f"{shown(value)} is outside the range of {leaf.type_name}")
    return around(value, closest)


# --- texts and bytes ------------------------------------------------------------------------------


def _bytes_place(value: Literal, leaf: Leaf) -> tuple[bytes, bytes]:
    if leaf.logical == "UUID":
        if isinstance(value, str):
            try:
                value = uuid.UUID(value)
            except ValueError:
                raise NoPlaceError(f"{shown(value)} is no uuid") from None
        value = value.bytes if isinstance(value, uuid.UUID) else value
        if isinstance(value, bytes | bytearray) and len(value) != 16:  # an error in some engines, cast in others
            raise NoPlaceError(mismatch(value, leaf))
    if isinstance(value, str):
        if leaf.physical == FLBA and leaf.type_length == 16 and is_uuid(value):
            reason = "may be meant as a uuid, and 16 bytes without a logical type may hold uuids"
            raise NoPlaceError(f"{shown(value)} {reason}")
        try:
            value = value.encode()
        except UnicodeEncodeError:
            raise NoPlaceError("the literal is not Unicode text") from None
    if not isinstance(value, bytes | bytearray):
        raise NoPlaceError(mismatch(value, leaf))
    return bytes(value), bytes(value)


# --- days and times -------------------------------------------------------------------------------


def _date_place(value: Literal, leaf: Leaf) -> tuple[int, int]:
    return _units(_moment(value, leaf), DAY_NS, value, leaf)


def _timestamp_place(value: Literal, leaf: Leaf) -> tuple[int, int]:
    return _units(_moment(value, leaf), leaf.unit_ns, value, leaf)


def _time_place(value: Literal, leaf: Leaf) -> tuple[int, int]:
    try:
        return _units(time_of_day_for(value), leaf.unit_ns, value, leaf)
    except TimeMisfitError:
        raise NoPlaceError(mismatch(value, leaf)) from None


def _moment(value: Literal, leaf: Leaf) -> int:
    try:
        return moment_for(value, leaf.logical or "", leaf.utc).nanoseconds
    except TimeMisfitError:
        raise NoPlaceError(mismatch(value, leaf)) from None


def _units(nanoseconds: int, unit: int, value: Literal, leaf: Leaf) -> tuple[int, int]:
    if not unit:
        raise NoPlaceError(f"the unit of {leaf.type_name} is unknown")
    if isinstance(value, str) and nanoseconds % unit:  # DuckDB, DataFusion and Polars cast texts to the column's type
        kind = "TIME" if leaf.logical == "TIME" else "TIMESTAMP"
        reason = f"{shown(value)} is finer than the column, so some engines round it first"
        raise NoPlaceError(f"{reason}; write {kind} {spelled(value.strip())}")
    return quotient(nanoseconds, unit)
