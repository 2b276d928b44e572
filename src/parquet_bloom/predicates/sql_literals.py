"""The insides of SQL literals: digits, and the text in DATE '...' and its like -> values.

    12.50 is a Decimal, exactly as written; 1e-3 a float; 12 and 0xff integers of any size.
    TIMESTAMP '2026-01-31 12:00:00.5+02:00' is an Instant in UTC; without a zone it is a wall clock's
    reading. TIMESTAMPTZ without a zone would depend on the session, and is an error.

Source: ISO/IEC 9075-2, <literal>; the spellings DuckDB and Spark share.
"""

from __future__ import annotations

import re
import uuid
from decimal import Decimal

from parquet_bloom.formats.literals import Instant, Literal, TimeOfDay, read_clock, read_date, read_instant, spelled

_TIME_UTC = re.compile(r"\s*(Z|UTC|[+-]00(:?00)?)", re.I)
_TIME_ZONED = re.compile(r"[\d:.]+\s*[+-]\d{2}(:?\d{2})?", re.A)
_INTEGER = re.compile(r"[+-]?\d+", re.A)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.I | re.A)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.I)

MOST_DIGITS = 10_000  # of one number; the longest double has 1,074

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64, "INT128": 128}
_STAMPS = {"TIMESTAMP", "DATETIME", "TIMESTAMPNTZ", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMP_NS"}
_SESSION = {"TIMESTAMPTZ", "TIMESTAMPLTZ"}  # a text without a zone is read in the session's
_TEXTS = {"TEXT", "VARCHAR"}
_BYTES = {"VARBINARY", "BINARY"}


class NotUnderstoodError(Exception):
    """A part of a predicate that may be sound SQL, but is not understood; the reason in words."""


def number(text: str) -> int | float | Decimal:
    """Digits with an optional point and exponent, no sign. Raises NotUnderstoodError beyond the range of a double."""
    if "e" not in text.lower():
        return Decimal(text) if "." in text else int(Decimal(text))  # int() alone refuses 4,301 digits
    value = float(text)
    if value == float("inf"):
        raise NotUnderstoodError(f"{text} is outside the range of a double")
    return value


def typed(kind: str, scale: tuple[int, ...], inner: str) -> Literal:
    """The text `inner` as a literal of a type, DATE '...' or CAST('...' AS DATE).

    kind   the type as sqlglot calls it: TIMESTAMPNTZ, VARBINARY, INT for INTEGER
    scale  the numbers in parentheses behind it, (10, 2)

    Raises ValueError where the text is none of the type's; NotUnderstoodError where engines disagree about it.
    """
    if kind in _TEXTS and not scale:
        return inner
    if kind in _BYTES and not scale:
        if "\\" in inner:
            raise NotUnderstoodError("engines read a backslash in a BLOB's text in different ways; write x'00ff'")
        return inner.encode()
    text = inner.strip()
    if len(text) > MOST_DIGITS:
        raise ValueError(f"more than {MOST_DIGITS:,} characters")
    if kind == "DECIMAL":
        return _decimal(text, scale)
    if scale:
        raise NotUnderstoodError(f"{kind} with {scale[0]} digits")
    if kind == "DATE":
        return read_date(text)
    if kind == "UUID":
        return uuid.UUID(text)
    if kind in _STAMPS:
        return _instant(text, kind)
    if kind in ("TIME", "TIMETZ", "TIME_NS"):
        return _time(text, kind)
    if kind == "BOOLEAN":
        return {"true": True, "false": False}[text.lower()]
    if kind in _BITS:
        if not _INTEGER.fullmatch(text):
            raise ValueError(text)
        return converted(kind, int(Decimal(text)))
    if kind in ("DOUBLE", "FLOAT"):
        return _float(text, kind)
    raise NotUnderstoodError(f"a literal of type {kind}")


def converted(kind: str, value: Literal) -> Literal:
    """CAST of a number, where it leaves the value alone. Raises NotUnderstoodError where it may not."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if kind in _BITS and -(1 << _BITS[kind] - 1) <= value < 1 << _BITS[kind] - 1:
            return value
        if kind == "DOUBLE" and abs(value) <= 2**53:
            return float(value)
    if kind == "DOUBLE" and isinstance(value, float):
        return value
    if kind == "DOUBLE" and isinstance(value, Decimal):
        return number(f"{value}e0")
    raise NotUnderstoodError(f"a cast to {kind} that may change the value")


def _decimal(text: str, scale: tuple[int, ...]) -> Decimal:
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(text)
    if scale:
        precision, places = scale[0], (scale[1] if len(scale) > 1 else 0)
        if -exponent > places or value.adjusted() >= precision - places:
            raise NotUnderstoodError(f"{text} does not fit DECIMAL{scale} as it stands")
    return value


def _float(text: str, kind: str) -> float:
    if not _NUMBER.fullmatch(text) and not _NOT_FINITE.fullmatch(text):
        raise ValueError(text)
    value = float(text)
    if not _NOT_FINITE.fullmatch(text) and (kind == "FLOAT" or abs(value) == float("inf")):
        raise NotUnderstoodError(f"{text} is rounded to {kind}")
    return value


def _time(text: str, kind: str) -> TimeOfDay:
    zone = _TIME_UTC.search(text)
    if zone is None and _TIME_ZONED.fullmatch(text):
        raise NotUnderstoodError("engines disagree about a TIME in a zone that is not UTC")
    if zone is None:
        if kind == "TIMETZ":
            raise ValueError(text)
        return TimeOfDay(read_clock(text))
    if zone.end() != len(text):
        raise ValueError(text)
    return TimeOfDay(read_clock(text[: zone.start()]), utc=True)


def _instant(text: str, kind: str) -> Instant:
    found = read_instant(text)
    if not found.utc and kind in _SESSION:
        reading = spelled(found).removeprefix("TIMESTAMP ")
        wanted = f"write TIMESTAMP {reading}, and {reading[:-1]}+00:00' for a column in UTC"
        raise ValueError(f"without a zone it would depend on the session; {wanted}")
    return found
