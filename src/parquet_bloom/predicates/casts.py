"""Literals cast to the type of an Arrow column, exactly: which comparison there means the same?

    int8    x < 300          TRUE for every value       x = 1.5     FALSE for every value
    int64   x < 1.5          x <= 1                     decimal(5,2)  x > 1.234    x > 1.23

Integers, decimals, dates, times and timestamps are all whole numbers of some unit, so one rule
serves them. The exceptions are floats, where INTEGER and DECIMAL literals are rounded to the
column's type and a DOUBLE literal is compared in doubles, as DuckDB has it: a decimal is the double nearest to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

import pyarrow as pa

from parquet_bloom.errors import RequestError
from parquet_bloom.format.arrow_types import is_bytes, is_text
from parquet_bloom.format.literals import (
    DAY_NS,
    Instant,
    Literal,
    TimeMisfitError,
    TimeOfDay,
    as_literal,
    date_of_day,
    decimal_casts,
    is_beyond,
    is_nan,
    moment_for,
    nearest,
    quotient,
    scaled,
    spelled,
    time_of_day_for,
)
from parquet_bloom.format.schema import UNIT_NS

# --- Arrow's scalars as literals ------------------------------------------------------------------
#
# Arrow scalars as literals, each with its exact value.

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

# --- literals in a column's type ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Always:
    """The same answer for every value, NULL where the column is; None: NULL everywhere."""

    answer: bool | None


@dataclass(frozen=True, slots=True)
class Against:
    """`column op scalar`, once the column has been cast to each of these types in turn."""

    op: str
    scalar: pa.Scalar
    casts: tuple[pa.DataType, ...] = ()


Plan = Always | Against


class LiteralMisfitError(Exception):
    """The literal is none for the type; the message is a hint or empty."""


def plan(column: str, kind: pa.DataType, op: str, value: Literal) -> Plan:
    """Find what `column op literal` means in a column's own type.

    Raises RequestError naming column, type and literal if the type can hold no such value.
    """
    try:
        return _plan(kind, op, as_literal(value))
    except LiteralMisfitError as error:
        hint = f"; {error}" if str(error) else ""
        raise RequestError(f"column {column} is {kind}: {spelled(value)[:200]} is no literal for it{hint}") from None


def _plan(kind: pa.DataType, op: str, value: Literal) -> Plan:
    types = pa.types
    if value is None or types.is_null(kind):
        return Always(None)
    if types.is_dictionary(kind):
        return _through(kind.value_type, op, value)
    if isinstance(kind, pa.UuidType):
        return _through(kind.storage_type, op, value)
    if isinstance(kind, pa.BaseExtensionType):
        return _through(kind.storage_type, op, value)
    if types.is_boolean(kind):
        if not isinstance(value, bool):
            raise LiteralMisfitError("write TRUE or FALSE")
        return Against(op, pa.scalar(value))
    for test, cast in _KINDS:
        if test(kind):
            if isinstance(value, bool):
                raise LiteralMisfitError
            return cast(kind, op, value)
    raise LiteralMisfitError("columns of this type are not compared")


def _through(kind: pa.DataType, op: str, value: Literal) -> Plan:
    found = _plan(kind, op, value)
    return replace(found, casts=(kind, *found.casts)) if isinstance(found, Against) else found


# --- whole numbers of a unit ----------------------------------------------------------------------


def _whole(op: str, place: tuple[int, int], low: int, high: int, scalar: Callable[[int], pa.Scalar]) -> Plan:
    """Compare with what lies at `place`, in a column that holds the integers from low to high."""
    # A literal that is no integer of the unit lies between two neighbours, `number` and `next_above`: nothing equals
    # it, what is below it is at most `number`, and what is above it is more than `number`.
    number, next_above = place
    if number != next_above:
        if op == "=":
            return Always(False)
        op = "<=" if op in ("<", "<=") else ">"
    if op == "=":
        return Against(op, scalar(number)) if low <= number <= high else Always(False)
    # Past the ends of the type, and for some operators at them, the answer is the same for every value. Past them the
    # literal is no scalar of the type either.
    above, below = number > high, number < low
    if op in ("<", "<="):
        if above or (op == "<=" and number == high):
            return Always(True)
        if below or (op == "<" and number == low):
            return Always(False)
    else:
        if below or (op == ">=" and number == low):
            return Always(True)
        if above or (op == ">" and number == high):
            return Always(False)
    return Against(op, scalar(number))


def _number(value: Literal) -> int | float | Decimal:
    if not isinstance(value, int | float | Decimal):
        raise LiteralMisfitError("write it without quotes" if isinstance(value, str) else "write a number")
    return value


def _integer(kind: pa.DataType, op: str, value: Literal) -> Plan:
    number = _number(value)
    if is_nan(number):
        return Always(False)
    signed = pa.types.is_signed_integer(kind)
    low, high = (
        (-(1 << kind.bit_width - 1), (1 << kind.bit_width - 1) - 1) if signed else (0, (1 << kind.bit_width) - 1)
    )
    return _whole(op, scaled(number, 0), low, high, lambda whole: pa.scalar(whole, kind))


def _decimal(kind: pa.DataType, op: str, value: Literal) -> Plan:
    if kind.scale < 0:
        raise LiteralMisfitError("decimals of a negative scale are not compared")
    number = _number(value)
    if is_nan(number):
        return Always(False)
    if isinstance(number, float):
        return Against(op, pa.scalar(number), decimal_casts(pa.float64()))

    def scalar(whole: int) -> pa.Scalar:
        digits = tuple(map(int, str(abs(whole))))
        return pa.scalar(Decimal((int(whole < 0), digits, -kind.scale)), kind)

    top = 10**kind.precision - 1
    return _whole(op, scaled(number, kind.scale), -top, top, scalar)


# --- floats ---------------------------------------------------------------------------------------


def _floating(kind: pa.DataType, op: str, value: Literal) -> Plan:
    number = _number(value)
    if is_nan(number):
        return Always(False)  # IEEE: no comparison with NaN is true
    casts = () if pa.types.is_float64(kind) else (pa.float64(),)
    if isinstance(number, float):
        return Against(op, pa.scalar(number), casts)
    closest = nearest(number, kind.bit_width)
    rounded = pa.scalar(float(closest))
    if not is_beyond(number, closest):
        return Against(op, rounded, casts)
    # A finite literal beyond all finite values: below or above all but the infinity of its sign.
    if op == "=":
        return Always(False)
    low, high = ("<", ">=") if number > 0 else ("<=", ">")
    return Against(low if op in ("<", "<=") else high, rounded, casts)


# --- times ----------------------------------------------------------------------------------------


def _date(kind: pa.DataType, op: str, value: Literal) -> Plan:
    unit = DAY_NS if kind.bit_width == 32 else UNIT_NS["ms"]
    return _stored(kind, op, quotient(_moment(value, "DATE", None), unit))


def _timestamp(kind: pa.DataType, op: str, value: Literal) -> Plan:
    return _stored(kind, op, quotient(_moment(value, "TIMESTAMP", kind.tz is not None), UNIT_NS[kind.unit]))


def _time(kind: pa.DataType, op: str, value: Literal) -> Plan:
    try:
        return _stored(kind, op, quotient(time_of_day_for(value), UNIT_NS[kind.unit]))
    except TimeMisfitError as error:
        raise LiteralMisfitError(str(error)) from None


def _stored(kind: pa.DataType, op: str, place: tuple[int, int]) -> Plan:
    top = 1 << kind.bit_width - 1
    return _whole(op, place, -top, top - 1, lambda number: pa.scalar(number, storage(kind)).cast(kind))


def storage(kind: pa.DataType) -> pa.DataType:
    """The integer type in which dates and times are stored."""
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _moment(value: Literal, logical: str, utc: bool | None) -> int:
    try:
        return moment_for(value, logical, utc).nanoseconds
    except TimeMisfitError as error:
        raise LiteralMisfitError(str(error)) from None


# --- texts and bytes ------------------------------------------------------------------------------


def _text(kind: pa.DataType, op: str, value: Literal) -> Plan:
    """Bytes, in order of their unsigned values; a text is its UTF-8."""
    fixed = pa.types.is_fixed_size_binary(kind)
    if fixed and kind.byte_width == 16:
        value = _uuid(value)
    if isinstance(value, str):
        try:
            value = value.encode()
        except UnicodeEncodeError:
            raise LiteralMisfitError("it is not Unicode text") from None
    if not isinstance(value, bytes):
        raise LiteralMisfitError("write a text in quotes, or x'00ff'")
    if fixed:
        if op == "=" and len(value) != kind.byte_width:
            return Always(False)
        return Against(op, pa.scalar(value, pa.binary()), (pa.binary(),))
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    stored = pa.large_binary() if wide else pa.binary()
    return Against(op, pa.scalar(value, stored), () if kind == stored else (stored,))


def _uuid(value: Literal) -> Literal:
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, str) and len(value) != 16:
        try:
            return uuid.UUID(value).bytes
        except ValueError:
            raise LiteralMisfitError("it is no uuid") from None
    return value


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, str, Literal], Plan]], ...] = (
    (_T.is_integer, _integer),
    (_T.is_decimal, _decimal),
    (_T.is_floating, _floating),
    (_T.is_date, _date),
    (_T.is_timestamp, _timestamp),
    (_T.is_time, _time),
    (is_text, _text),
    (is_bytes, _text),
)
