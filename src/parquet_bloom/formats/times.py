"""What a literal means in a column of days, times of day or timestamps: one grammar, for verdicts and for rows.

    column                   literals
    DATE                     '2026-11-01'         '2026-11-01 12:30', which lies between two days
    TIMESTAMP without zone   '2026-11-01'         '2026-11-01 12:30'    '2026-11-01T12:30:15.5'
    TIMESTAMP in UTC         '2026-11-01+00:00'   '2026-11-01 12:30Z'   '2026-11-01T14:30:15.5+02:00'
    TIME                     '12:30'              '12:30:15.5'

A text means here what it means behind DATE, TIMESTAMP or TIME. A literal has a zone if and only if the column has one:
which instant a clock's reading is, and which day an instant falls on, would depend on the time zone of a session, and
engines do not agree on that. A literal that is none for its column is an error whose message ends with one that is.
Source of the texts: formats.literals.
"""

from __future__ import annotations

import datetime as dt
import re

from parquet_bloom.formats.literals import (
    DAY_NS,
    FIRST_DAY,
    LAST_DAY,
    Instant,
    Literal,
    TimeOfDay,
    date_of_day,
    day_number,
    read_clock,
    read_instant,
    spelled,
    without_zone,
)

_DAY = "DATE '2026-01-31'"
_CLOCK = "TIMESTAMP '2026-01-31 12:00:00'"
_INSTANT = "TIMESTAMP '2026-01-31 12:00:00+00:00'"
_TIME = "TIME '12:00:00'"


class TimeMisfitError(Exception):
    """A literal is none for a column of days or times. The message says why, and what to write."""

    def __init__(self, reason: str, proposed: str) -> None:
        super().__init__(f"{reason}; write {proposed}" if reason else f"write {proposed}")
        self.proposed = proposed


def example(logical: str, utc: bool | None) -> str:
    """A literal that a column of this kind takes: DATE, TIME or TIMESTAMP; utc: as Leaf has it."""
    if logical == "TIMESTAMP":
        return _CLOCK if utc is False else _INSTANT
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
    """What a text means whose year comes first, as its column takes it; empty where that is not certain."""
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
    """What is wrong with a text that has the right form; a form of its own needs no reason beside an example."""
    return "" if str(error).startswith("write ") else str(error)
