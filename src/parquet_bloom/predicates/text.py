"""SQL text -> predicate: `column = literal`, with the spot marked where it stops making sense.

    id = 5     user.id = -7     "dotted.name" = 'it''s'     price = 12.50     x = 1e-3
    d = DATE '2026-01-31'       at = TIMESTAMP '2026-01-31 12:00:00.5+00:00'  t = TIME '12:00'
    u = UUID '123e4567-...'     b = x'00ff'                 n = 0xff          f = TRUE

Source: ISO/IEC 9075-2, <literal>; the spellings DuckDB and Spark share.
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from decimal import Decimal

from parquet_bloom.errors import TextError
from parquet_bloom.formats.literals import Instant, Literal, TimeOfDay
from parquet_bloom.predicates.tree import Compare

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[^\W\d][\w$\-/:@]*|\d+[^\W\d][\w$]*")
_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?)(?![\w.])")
_HEX = re.compile(r"[xX]'([^']*)'")
_TYPED = re.compile(r"(DATE|TIMESTAMPTZ|TIMESTAMP_NTZ|TIMESTAMP_LTZ|TIMESTAMP|TIME|UUID|DECIMAL|BLOB)\s*(?=')", re.I)
_WORD = re.compile(r"\w+")
_STAMP = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})(?:[ T](?P<time>\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?))?"
    r"\s*(?P<zone>Z|UTC|[+-]\d{2}(?::?\d{2})?)?",
    re.I,
)
_TIME = re.compile(r"(\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?")
_INNER_TYPES = {"TIMESTAMPTZ", "TIMESTAMP_LTZ"}


def parse_equality(text: str) -> Compare:
    """Read `column = literal`. Raises TextError with a mark under the spot."""
    at = _skip(text, 0)
    path, at = _path(text, at)
    at = _skip(text, at)
    if text[at : at + 2] == "==":
        at += 2
    elif text[at : at + 1] == "=":
        at += 1
    else:
        raise TextError(text, at, "expected = after the column; one `COLUMN = LITERAL` is understood here")
    at = start = _skip(text, at)
    value, at = _literal(text, at)
    end = at
    at = _skip(text, at)
    if at < len(text):
        raise TextError(text, at, "expected the end; one `COLUMN = LITERAL` is understood here")
    return Compare(path, "=", value, text[start:end])


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()


def _path(text: str, at: int) -> tuple[tuple[str, ...], int]:
    parts: list[str] = []
    while True:
        if text[at : at + 1] in ('"', "`"):
            part, at = _quoted(text, at, text[at])
        else:
            found = _NAME.match(text, at)
            if found is None:
                raise TextError(text, at, "expected a column's name")
            part, at = found.group(), found.end()
        parts.append(part)
        if text[at : at + 1] != ".":
            return tuple(parts), at
        at += 1


def _quoted(text: str, at: int, quote: str) -> tuple[str, int]:
    start, out = at, ""
    at += 1
    while (end := text.find(quote, at)) >= 0:
        out += text[at:end]
        if text[end + 1 : end + 2] != quote:
            return out, end + 1
        out, at = out + quote, end + 2
    raise TextError(text, start, f"the closing {quote} is missing")


def _literal(text: str, at: int) -> tuple[Literal, int]:
    if at >= len(text):
        raise TextError(text, at, "expected a literal after =")
    found = _HEX.match(text, at)
    if found:
        try:
            return bytes.fromhex(found.group(1)), found.end()
        except ValueError:
            raise TextError(text, at + 2, "expected hex digits, two for each byte") from None
    if text[at] == "'":
        return _quoted(text, at, "'")
    found = _TYPED.match(text, at)
    if found:
        inner, end = _quoted(text, found.end(), "'")
        return _typed(found.group(1).upper(), inner, text, found.end()), end
    found = _NUMBER.match(text, at)
    if found:
        return _number(found.group()), found.end()
    return _word(text, at)


def _word(text: str, at: int) -> tuple[Literal, int]:
    found = _WORD.match(text, at)
    if found and found.group().upper() in ("TRUE", "FALSE", "NULL"):
        return {"TRUE": True, "FALSE": False, "NULL": None}[found.group().upper()], found.end()
    if text[at] == '"':
        inner, _ = _quoted(text, at, '"')
        raise TextError(text, at, f"expected a literal; a text is written in single quotes: {_as_text(inner)}")
    rest = text[at:].strip()
    raise TextError(text, at, f"expected a literal; a text is written in quotes: {_as_text(rest)}")


def _as_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _number(text: str) -> int | float | Decimal:
    digits = text.lstrip("+-")
    if digits[:2].lower() == "0x":
        number = int(digits, 16)
        return -number if text[0] == "-" else number
    if "e" in digits.lower():
        return float(text)
    return Decimal(text) if "." in digits else int(Decimal(text))


def _typed(kind: str, inner: str, text: str, at: int) -> Literal:
    try:
        if kind == "DATE":
            return dt.date.fromisoformat(inner.strip())
        if kind == "UUID":
            return uuid.UUID(inner.strip())
        if kind == "DECIMAL":
            return Decimal(inner.strip())
        if kind == "BLOB":
            return inner.encode()
        if kind == "TIME":
            return TimeOfDay(_nanoseconds_of_day(inner.strip()))
        return _instant(inner.strip(), kind)
    except (ValueError, ArithmeticError):
        raise TextError(text, at, f"{_as_text(inner)} is no {kind}") from None


def _nanoseconds_of_day(text: str) -> int:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    hours, minutes, seconds = (int(found.group(i) or 0) for i in (1, 2, 3))
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(text)
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int((found.group(4) or "").ljust(9, "0"))


def _instant(text: str, kind: str) -> Instant:
    found = _STAMP.fullmatch(text)
    if found is None:
        raise ValueError(text)
    days = dt.date.fromisoformat(found["day"]).toordinal() - dt.date(1970, 1, 1).toordinal()
    nanoseconds = days * 86_400 * 10**9 + (_nanoseconds_of_day(found["time"]) if found["time"] else 0)
    zone = found["zone"]
    if zone is None:
        if kind in _INNER_TYPES:
            raise ValueError(text)  # without its zone it would depend on the session
        return Instant(nanoseconds, utc=False)
    if zone.upper() not in ("Z", "UTC"):
        hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
        shift = (hours * 60 + minutes) * 60 * 10**9
        nanoseconds += shift if zone[0] == "-" else -shift
    return Instant(nanoseconds, utc=True)
