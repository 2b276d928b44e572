"""What a person may write as a literal, and what it may turn out to mean for a column."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from dataclasses import dataclass
from decimal import Decimal

from parquet_bloom.formats.metadata.schema import BOOLEAN, BYTE_ARRAY, FLBA, INT32, INT64, Leaf


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


def never(reason: str) -> Encoded:
    return Encoded((), reason)


def unknown(reason: str) -> Encoded:
    return Encoded(None, reason)


def mismatch(value: Literal, leaf: Leaf) -> Encoded:
    hint = what_to_write(value, leaf)
    return unknown(f"{shown(value)} is not a literal for {leaf.type_name}" + (f"; {hint}" if hint else ""))


def what_to_write(value: Literal, leaf: Leaf) -> str:
    """How a literal for a column is written, in the place of one of another kind."""
    if leaf.logical in _SPELLED:
        return f"write {_SPELLED[leaf.logical]}"
    if leaf.physical == BOOLEAN:
        return "write TRUE or FALSE"
    if leaf.logical == "DECIMAL" or leaf.physical in (INT32, INT64) or leaf.float_bits:
        return "write a number, without quotes"
    if leaf.physical not in (BYTE_ARRAY, FLBA):
        return ""
    text = value.isoformat() if isinstance(value, dt.date) else shown(value)
    known = isinstance(value, int | float | Decimal | dt.date | uuid.UUID) and not isinstance(value, bool)
    return "write a text in single quotes" + (f": '{text}'" if known and len(text) <= 40 else "")


_SPELLED = {
    "TIMESTAMP": "TIMESTAMP '2026-01-31 12:00:00+00:00'",
    "TIME": "TIME '12:00:00'",
    "DATE": "DATE '2026-01-31'",
    "UUID": "UUID '00112233-4455-6677-8899-aabbccddeeff'",
}


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
    days, rest = divmod(nanoseconds, 86_400 * 10**9)
    day = dt.date(1970, 1, 1).toordinal() + days
    if not 1 <= day <= dt.date.max.toordinal():
        return f"{nanoseconds} ns since 1970"
    return f"{dt.date.fromordinal(day).isoformat()} {_clock(rest)}"


def _clock(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    fraction = f".{rest:09}".rstrip("0") if rest else ""
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction}"
