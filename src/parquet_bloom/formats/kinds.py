"""When one literal means the same for two columns: one column of a data set, in files of several writers.

    decimal(18, 2)   FIXED_LEN_BYTE_ARRAY(8) by pyarrow, INT64 by DuckDB     the same numbers
    text             STRING by a LogicalType, or by an old ConvertedType     the same bytes
    time             microseconds by pyarrow, nanoseconds by Polars          each compared exactly
    float16          FLOAT by fastparquet                                    no: a cast rounds

Physical types, widths of integers and units may differ, because a literal is cast for each file by
itself, and pyarrow's cast to the first file's type is exact or an error. What rounds on the way
(floats of two widths, a timestamp that becomes a date) is another kind.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from parquet_bloom.formats import times
from parquet_bloom.formats.bounds import domain_of
from parquet_bloom.formats.literals import Instant, Literal, shown
from parquet_bloom.formats.metadata.schema import BOOLEAN, BYTE_ARRAY, FLBA, INT32, INT64, UNIT_NS, Leaf

_UNITS = {nanoseconds: unit for unit, nanoseconds in UNIT_NS.items()}


def same_kind(one: Leaf, other: Leaf) -> bool:
    """Whether two columns hold values of one kind.

    A literal that is known for both (operands.operand) then means the same in both. That second
    condition keeps apart timestamps in UTC and without a zone, and uuids from bytes that may hold uuids.
    """
    return one.repeated == other.repeated and _kind(one) == _kind(other)


def same_type(one: Leaf, other: Leaf) -> bool:
    """Whether all literals mean the same for two columns, known or not."""
    return type_of(one) == type_of(other)


def type_of(leaf: Leaf) -> tuple[object, ...]:
    """All that says what a column's bytes mean."""
    return (
        leaf.physical, leaf.type_length, leaf.logical, leaf.bits, leaf.signed, leaf.scale, leaf.unit_ns, leaf.utc,
        leaf.repeated,
    )  # fmt: skip


def _kind(leaf: Leaf) -> tuple[object, ...]:
    domain = domain_of(leaf)
    if domain is None:
        return leaf.physical, leaf.type_length, leaf.logical
    if domain == "float":
        return domain, leaf.float_bits
    if domain == "bytes":
        return domain, leaf.type_length if leaf.physical == FLBA else None
    if leaf.logical == "DECIMAL":
        return leaf.logical, leaf.scale
    if leaf.logical in ("DATE", "TIME", "TIMESTAMP"):
        return (leaf.logical,)
    return ("BOOLEAN" if leaf.physical == BOOLEAN else domain,)


def described(leaf: Leaf) -> str:
    """A column's type with all that can make two of them differ: INT64 TIMESTAMP(us, UTC)."""
    details = ""
    if leaf.logical == "DECIMAL":
        details = f"({leaf.precision}, {leaf.scale})"
    elif leaf.logical == "INTEGER":
        details = f"({leaf.bits}, {'signed' if leaf.signed else 'unsigned'})"
    elif leaf.logical == "TIME":
        details = f"({_UNITS.get(leaf.unit_ns, '?')})"
    elif leaf.logical == "TIMESTAMP":
        zone = {True: "UTC", False: "no zone", None: "zone not said"}[leaf.utc]
        details = f"({_UNITS.get(leaf.unit_ns, '?')}, {zone})"
    return ("list of " if leaf.repeated else "") + leaf.type_name + details


def key_for(key: Leaf, values: Sequence[object]) -> Leaf:
    """A partition's key as literals see it.

    A BYTE_ARRAY DATE is a folder's name that is a date (chunks.hive): a text for texts,
    so that day >= '2026-01' holds for 2026-01-02, and a date for all others.
    """
    if key.logical != "DATE" or key.physical != BYTE_ARRAY:
        return key
    if all(value is None or isinstance(value, str) for value in values):
        return replace(key, logical="STRING")
    return replace(key, physical=INT32)


# --- literals of another kind -----------------------------------------------------------------------


def is_misfit(value: Literal, leaf: Leaf) -> bool:
    """Whether a literal can never be compared with a column's type: a mistake of whoever wrote it.

    Not a misfit is what no value can equal (1.5 for INT64), nor what engines read in ways of their own.
    """
    domain = domain_of(leaf)
    if value is None or domain is None:
        return False
    if isinstance(value, bool) or leaf.physical == BOOLEAN:
        return not (isinstance(value, bool) and leaf.physical == BOOLEAN)
    if leaf.logical in ("DATE", "TIME", "TIMESTAMP"):
        return bool(times.misfit(value, leaf.logical, leaf.utc))
    if domain != "bytes":
        return not isinstance(value, int | float | Decimal)
    if leaf.physical == FLBA and leaf.type_length == 16:
        if leaf.logical == "UUID" and isinstance(value, str):
            return len(value) != 16 and not is_uuid(value)
        return not isinstance(value, str | bytes | bytearray | uuid.UUID)
    return not isinstance(value, str | bytes | bytearray)


def is_uuid(text: str) -> bool:
    """Say whether a text is a UUID, in any spelling that Python takes."""
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def mismatch(value: Literal, leaf: Leaf) -> str:
    """What to say of a literal that is none for a column, and what to write instead."""
    hint = what_to_write(value, leaf)
    return f"{shown(value)} is not a literal for {leaf.type_name}" + (f"; {hint}" if hint else "")


def what_to_write(value: Literal, leaf: Leaf) -> str:
    """How a literal for a column is written, in the place of one of another kind."""
    if leaf.logical in ("DATE", "TIME", "TIMESTAMP"):
        return times.misfit(value, leaf.logical, leaf.utc)
    if leaf.logical == "UUID":
        return "write UUID '00112233-4455-6677-8899-aabbccddeeff'"
    if leaf.physical == BOOLEAN:
        return "write TRUE or FALSE"
    if leaf.logical == "DECIMAL" or leaf.physical in (INT32, INT64) or leaf.float_bits:
        return "write a number, without quotes"
    if leaf.physical not in (BYTE_ARRAY, FLBA):
        return ""
    text = value.isoformat() if isinstance(value, dt.date) else shown(value)
    known = isinstance(value, int | float | Decimal | dt.date | uuid.UUID) and not isinstance(value, bool)
    return "write a text in single quotes" + (f": '{text}'" if known and len(text) <= 40 else "")


def is_day_of_an_instant(value: Literal, leaf: Leaf) -> bool:
    """Whether a day meets a column in UTC, or an instant one of days: pyarrow and Polars take midnight in UTC."""
    if leaf.logical == "DATE":
        return isinstance(value, Instant) and value.utc
    return leaf.logical == "TIMESTAMP" and leaf.utc is not False and isinstance(value, dt.date)
