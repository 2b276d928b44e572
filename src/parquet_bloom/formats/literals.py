"""What a person may write as a literal: its kinds, its texts, and the units in which times are counted.

    TIMESTAMP '2026-01-31 12:00:00.5+02:00'   an Instant in UTC, in nanoseconds
    TIMESTAMP '2026-01-31 12:00:00.5'         an Instant that is a wall clock's reading

What a literal means for one column is formats.operands' to say.
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
    """Nanoseconds since midnight; utc where a zone was given."""

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
    """What read_instant takes, as the clock's reading that stands there, whatever its zone. Raises ValueError."""
    found = _STAMP.fullmatch(text)
    return read_instant(text if found is None or found[3] is None else text[: found.start(3)].rstrip())


# --- literals as text -----------------------------------------------------------------------------


def shown(value: object) -> str:
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
