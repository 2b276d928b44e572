"""Literals: what people may write, what it means for days and times, and the numbers that one lies between.

    TIMESTAMP '2026-01-31 12:00:00.5+02:00'   an Instant in UTC, in nanoseconds
    TIMESTAMP '2026-01-31 12:00:00.5'         an Instant that is a wall clock's reading

What a literal means for one column is format.values' to say.
Source of the texts: ISO/IEC 9075-2, <literal>; the spellings that DuckDB and Spark share.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

import numpy as np
import pyarrow as pa

DAY_NS = 86_400 * 10**9
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
LAST_DAY = dt.date.max.toordinal() - _EPOCH_DAY
FIRST_DAY = dt.date.min.toordinal() - _EPOCH_DAY


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time (utc) or a wall-clock reading (not utc); nanoseconds since 1970-01-01 00:00."""

    nanoseconds: int
    utc: bool


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """Nanoseconds since midnight; utc where the text has a zone."""

    nanoseconds: int
    utc: bool = False


Literal = bool | int | float | Decimal | str | bytes | dt.date | Instant | TimeOfDay | uuid.UUID | None


def as_literal(value: Any) -> Literal:
    """Take Python's and numpy's own kinds of time and number as ours; NaT is NULL."""
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


# --- days and times -------------------------------------------------------------------------------

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.A)
_CLOCK = re.compile(r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?", re.A)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T]([\d:.]+))?\s*(Z|UTC|[+-]\d\d(?::?\d\d)?)?", re.I | re.A)


def day_number(day: dt.date) -> int:
    """Days since 1970-01-01."""
    return day.toordinal() - _EPOCH_DAY


def date_of_day(number: int) -> dt.date:
    """The date so many days after 1970-01-01. Raises ValueError outside of the years 1 to 9999."""
    if not FIRST_DAY <= number <= LAST_DAY:
        raise ValueError(f"day {number} is not of the years 1 to 9999")
    return dt.date.fromordinal(_EPOCH_DAY + number)


def read_date(text: str) -> dt.date:
    """Read YYYY-MM-DD, and no other form of ISO 8601, as DuckDB and Arrow do. Raises ValueError: what to write."""
    if _DATE.fullmatch(text) is None:
        raise ValueError("write 2026-01-31")
    return dt.date.fromisoformat(text)


def read_clock(text: str) -> int:
    """Read HH:MM, HH:MM:SS or HH:MM:SS.fraction as nanoseconds since midnight. Raises ValueError."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise ValueError("write 12:00:00")
    hours, minutes, seconds = (int(found[i] or 0) for i in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError("no such time of day")
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int((found[4] or "").ljust(9, "0"))


def read_instant(text: str) -> Instant:
    """Read a date, perhaps with a time of day, perhaps with a zone; in UTC where there is one. Raises ValueError."""
    found = _STAMP.fullmatch(text)
    if found is None:
        raise ValueError("write 2026-01-31, or 2026-01-31 12:00:00")
    day, clock, zone = found.groups()
    nanoseconds = day_number(read_date(day)) * DAY_NS + (read_clock(clock) if clock else 0)
    if zone is None:
        return Instant(nanoseconds, utc=False)
    if zone.upper() not in ("Z", "UTC"):
        minutes = int(zone[1:3]) * 60 + (int(zone[-2:]) if len(zone) > 3 else 0)
        nanoseconds -= (-1 if zone[0] == "-" else 1) * minutes * 60 * 10**9
    if not FIRST_DAY <= nanoseconds // DAY_NS <= LAST_DAY:
        raise ValueError("in UTC it is not of the years 1 to 9999")
    return Instant(nanoseconds, utc=True)


def without_zone(text: str) -> Instant:
    """Read a text of read_instant as a clock's reading, without its zone. Raises ValueError."""
    found = _STAMP.fullmatch(text)
    return read_instant(text if found is None or found[3] is None else text[: found.start(3)].rstrip())


# --- literals as text -----------------------------------------------------------------------------


def literal_text(value: object) -> str:
    """A literal for a message; Python refuses to print integers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value) if isinstance(value, int | float | str | bytes) else str(value)
    return text if len(text) <= 200 else text[:200] + "..."


def spelled(value: Literal) -> str:
    """A literal as SQL text that reads back as the same literal."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if isinstance(value, uuid.UUID):
        return f"UUID '{value}'"
    if isinstance(value, Instant):
        return f"TIMESTAMP '{_stamp(value.nanoseconds)}{'+00:00' if value.utc else ''}'"
    if isinstance(value, TimeOfDay):
        return f"TIME '{_clock(value.nanoseconds)}{'+00:00' if value.utc else ''}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"DOUBLE '{value!r}'"
        return repr(value) if "e" in repr(value) else f"{value!r}e0"
    if isinstance(value, Decimal):
        few = value.is_finite() and abs(value.adjusted()) < 60
        text = f"{value:f}" if few else str(value)  # engines round DECIMAL '1E-8' to a scale of their own
        return text if few and "." in text else f"DECIMAL '{value}'"
    return hex(value) if value.bit_length() > 1000 else str(value)


def _stamp(nanoseconds: int) -> str:
    days, rest = divmod(nanoseconds, DAY_NS)
    if not FIRST_DAY <= days <= LAST_DAY:
        return f"{nanoseconds} ns since 1970"
    return f"{date_of_day(days).isoformat()} {_clock(rest)}"


def _clock(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"


# --- times ----------------------------------------------------------------------------------------
#
# What a literal means in a column of days, times of day or timestamps: one grammar, for verdicts and for rows.
#
#    column                   literals
#    DATE                     '2026-11-01'         '2026-11-01 12:30', which lies between two days
#    TIMESTAMP without zone   '2026-11-01'         '2026-11-01 12:30'    '2026-11-01T12:30:15.5'
#    TIMESTAMP in UTC         '2026-11-01+00:00'   '2026-11-01 12:30Z'   '2026-11-01T14:30:15.5+02:00'
#    TIME                     '12:30'              '12:30:15.5'
#
# A text means here what it means behind DATE, TIMESTAMP or TIME. A literal has a zone if and only if the column has
# one: which instant a clock's reading is, and which day an instant falls on, would depend on the time zone of a
# session, and engines do not agree on that. A literal that is none for its column is an error whose message ends with
# one that is.

_DAY = "DATE '2026-01-31'"
_CLOCK_EXAMPLE = "TIMESTAMP '2026-01-31 12:00:00'"
_INSTANT_EXAMPLE = "TIMESTAMP '2026-01-31 12:00:00+00:00'"
_TIME = "TIME '12:00:00'"


class TimeMisfitError(Exception):
    """A literal is none for a column of days or times. The message says why, and what to write."""

    def __init__(self, reason: str, proposed: str) -> None:
        super().__init__(f"{reason}; write {proposed}" if reason else f"write {proposed}")
        self.proposed = proposed


def example(logical: str, utc: bool | None) -> str:
    """A literal that a column of this kind takes: DATE, TIME or TIMESTAMP; utc: as Leaf has it."""
    if logical == "TIMESTAMP":
        return _CLOCK_EXAMPLE if utc is False else _INSTANT_EXAMPLE
    return _DAY if logical == "DATE" else _TIME


def moment_for(value: Literal, logical: str, utc: bool | None) -> Instant:
    """The point in time or the clock's reading that a literal is in a column of days or of timestamps.

    logical  DATE or TIMESTAMP
    utc      of a TIMESTAMP, as Leaf has it; where an old file does not say it (None), the format says UTC, and so do
             pyarrow and Spark
    Raises TimeMisfitError.
    """
    wanted = logical == "TIMESTAMP" and utc is not False
    if isinstance(value, str):
        try:
            found = read_instant(value.strip())
        except ValueError as error:
            proposed = _corrected(value.strip(), logical, utc) or example(logical, utc)
            raise TimeMisfitError(_reason(error), proposed) from None
    elif isinstance(value, Instant):
        found = value
    elif isinstance(value, dt.date):
        found = Instant(day_number(value) * DAY_NS, utc=False)
    else:
        raise TimeMisfitError("", example(logical, utc))
    if found.utc == wanted:
        return found
    if wanted:
        reason = "the column is in UTC" if utc else "a column of an old file is in UTC"
        raise TimeMisfitError(reason, _proposed(Instant(found.nanoseconds, utc=True), logical))
    reading = without_zone(value.strip()) if isinstance(value, str) else Instant(found.nanoseconds, utc=False)
    reason = "which day an instant falls on depends on a zone"
    if logical == "TIMESTAMP":
        reason = "the column has no zone, and no file says which it means; if that of the literal, leave it out"
    raise TimeMisfitError(reason, _proposed(reading, logical))


def time_of_day_for(value: Literal) -> int:
    """The nanoseconds since midnight that a literal is in a column of times of day. Raises TimeMisfitError."""
    if isinstance(value, str):
        try:
            return read_clock(value.strip())
        except ValueError as error:
            raise TimeMisfitError(_reason(error), _TIME) from None
    if not isinstance(value, TimeOfDay):
        raise TimeMisfitError("", _TIME)
    if value.utc:
        raise TimeMisfitError("the column has no zone", spelled(TimeOfDay(value.nanoseconds)))
    return value.nanoseconds


def misfit(value: Literal, logical: str, utc: bool | None) -> str:
    """Why a literal is none for a column of this kind, and what to write; empty: it is one."""
    try:
        if logical == "TIME":
            time_of_day_for(value)
        else:
            moment_for(value, logical, utc)
    except TimeMisfitError as error:
        return str(error)
    return ""


_LOOSE_DAY = r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})"
_LOOSE = re.compile(rf"\s*{_LOOSE_DAY}(?:[Tt\s]+(\d{{1,2}})(:\d\d(?::\d\d(?:\.\d+)?)?)(.*))?\s*", re.DOTALL)


def _corrected(text: str, logical: str, utc: bool | None) -> str:
    """Correct a text whose year comes first to the column's format; "" where that is not certain."""
    found = _LOOSE.fullmatch(text)
    if found is None:
        return ""
    year, month, day, hour, rest, zone = found.groups()
    clock = f" {hour:0>2}{rest}{zone}" if hour else ""
    corrected = f"{year}-{month:0>2}-{day:0>2}{clock}"
    if corrected == text:
        return ""
    try:
        moment = moment_for(corrected, logical, utc)
    except TimeMisfitError as error:
        return error.proposed
    return _proposed(moment, logical)


def _proposed(moment: Instant, logical: str) -> str:
    """A literal of the same day or reading, if texts can spell it."""
    day = moment.nanoseconds // DAY_NS
    if not FIRST_DAY <= day <= LAST_DAY:
        return example(logical, moment.utc)
    return spelled(date_of_day(day) if logical == "DATE" else moment)


def _reason(error: ValueError) -> str:
    """The fault of a text that has the right form; one of another form needs an example alone."""
    return "" if str(error).startswith("write ") else str(error)


# --- numbers --------------------------------------------------------------------------------------
#
# Numbers as literals: the whole numbers, or the floats, that one lies between.
#
#    scaled(Decimal("12.345"), 2)            1234, 1235                twelve and a bit, in hundredths
#    scaled(12, 2)                           1200, 1200                equal where it is one of them
#    around(Decimal("0.1"), float32(0.1))    0.09999999, 0.10000001    the floats beside, as none is a tenth
#
# Nothing is rounded here: what lies between two values stays between them.

FLOATS: dict[int, Any] = {16: np.float16, 32: np.float32, 64: np.float64}
_FAR = 1000  # digits; 64 bytes of DECIMAL have 155. A number further out is as good as 10^1000


def is_nan(value: int | float | Decimal) -> bool:
    """Whether a number is none; a Decimal that signals raises if it is compared."""
    return value.is_nan() if isinstance(value, Decimal) else value != value


def quotient(number: int, unit: int) -> tuple[int, int]:
    """The integers at or below, and at or above, number / unit."""
    return number // unit, -(-number // unit)


def scaled(value: int | float | Decimal, scale: int) -> tuple[int, int]:
    """The integers at or below, and at or above, value * 10^scale.

    An integer is taken as it is; of the others what lies beyond 10^1000, infinity too, is 10^1000.
    NaN is no number: callers have looked.
    """
    if isinstance(value, int):
        return value * 10**scale, value * 10**scale
    exact = Decimal(value)
    if not exact:
        return 0, 0
    sign, digits, _ = exact.as_tuple()
    before_point = exact.adjusted() + 1 + scale if exact.is_finite() else _FAR + 1  # how many of the digits
    if before_point > _FAR:
        low = high = 10**_FAR
    elif before_point <= 0:
        low, high = 0, 1
    else:
        low = int("".join(map(str, digits[:before_point])).ljust(before_point, "0"))
        high = low + any(digits[before_point:])
    return (-high, -low) if sign else (low, high)


def nearest(value: int | float | Decimal, bits: int) -> Any:
    """The float of 16, 32 or 64 bits nearest to a number, rounded through a double; infinity beyond the largest."""
    try:
        double = float(value)
    except OverflowError:  # of an int; a Decimal becomes infinity
        double = math.inf if value > 0 else -math.inf
    with np.errstate(over="ignore"):
        return FLOATS[bits](double)


def decimal_casts(kind: pa.DataType) -> tuple[pa.DataType, ...]:
    """The casts that one after the other give the float nearest to each decimal, as DuckDB 2, Polars and Spark have it.

    kind  pa.float32() or pa.float64()
    """
    # pyarrow's own cast multiplies by the float nearest to 10^-scale: one in seven of two digits comes out a bit off.
    # Its texts have all digits, and its parser rounds once, to either width.
    return pa.large_string(), kind


def is_beyond(value: int | float | Decimal, closest: Any) -> bool:
    """Whether a finite number is so large that the float nearest to it is infinity."""
    return bool(np.isinf(closest)) and value not in (math.inf, -math.inf)


def around(value: int | float | Decimal, closest: Any) -> tuple[float, float]:
    """The float that is exactly the number, twice, or the floats below and above the one nearest to it.

    Engines round a number that no float is in different ways, some not at all; whatever they compare
    with is one of the three. The number is neither NaN nor beyond: callers have looked.
    """
    if Decimal(float(closest)) == Decimal(value):
        return float(closest), float(closest)
    kind = type(closest)
    with np.errstate(over="ignore"):
        return float(np.nextafter(closest, kind(-np.inf))), float(np.nextafter(closest, kind(np.inf)))
