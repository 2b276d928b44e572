"""Values of a column: their bytes as writers hash them, and the place of a literal among them.

A filter is asked with the PLAIN bytes of the *physical* value, without a length prefix:

    INT32, INT64   4, 8 bytes LE; int8/16 sign-extended, uint8/16 zero-extended first
    FLOAT, DOUBLE  4, 8 bytes LE, raw; FLOAT16 2 bytes
    BYTE_ARRAY     the bytes;  FIXED_LEN_BYTE_ARRAY  type_length bytes, DECIMAL big-endian

A value is what statistics.domain_of says: an int, a float, or bytes.
Source: parquet-format Encodings.md (PLAIN) and LogicalTypes.md; docs/formats.md section 2.
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.format import literals
from parquet_bloom.format.literals import (
    DAY_NS,
    FLOATS,
    Instant,
    Literal,
    TimeMisfitError,
    around,
    as_literal,
    is_beyond,
    is_nan,
    literal_text,
    moment_for,
    nearest,
    quotient,
    scaled,
    spelled,
    time_of_day_for,
)
from parquet_bloom.format.schema import BOOLEAN, BYTE_ARRAY, FLBA, INT32, INT64, UNIT_NS, Leaf
from parquet_bloom.format.statistics import MOST_BYTES, domain_of, limits


def never_queried(leaf: Leaf) -> str:
    """Why no filter of a column is queried for values, by any writer; "" if one can be."""
    if leaf.refusal is not None:
        return f"filters on {leaf.type_name} are not used: {leaf.refusal}"
    if leaf.logical == "DECIMAL" and leaf.physical == BYTE_ARRAY:
        return "a DECIMAL in a BYTE_ARRAY has many spellings of one value"
    if leaf.logical == "DECIMAL" and leaf.width > MOST_BYTES:
        return f"a DECIMAL of {leaf.width} bytes is none of any engine's"
    return ""


def plain(number: int, leaf: Leaf) -> bytes | None:
    """The PLAIN bytes of a value within the limits of an integer column; None where it has no one spelling."""
    if never_queried(leaf):
        return None
    try:
        if leaf.physical == FLBA:
            return number.to_bytes(leaf.type_length, "big", signed=True)
        return (number & (1 << 8 * leaf.width) - 1).to_bytes(leaf.width, "little")
    except OverflowError:
        return None


def float_probes(low: float, high: float, bits: int) -> tuple[bytes, ...]:
    """The PLAIN bytes of the floats from one to the other, at most three (format.literals.around).

    The zeros are equal and hash differently, so where one is wanted both are asked for.
    """
    kind = FLOATS[bits]
    with np.errstate(over="ignore"):
        between = [np.nextafter(kind(low), kind(np.inf))] if low != high else []
    probes: list[bytes] = []
    for value in (*between, kind(low), kind(high)):
        probes += [value.tobytes()] if value != 0 else [kind(0.0).tobytes(), kind(-0.0).tobytes()]
    return tuple(dict.fromkeys(probes))


def stored_floats(values: pa.Array, leaf: Leaf) -> NDArray[np.floating]:
    """The values of a float column that are not null: float16, float32 or float64."""
    return floats_in(values.drop_null() if values.null_count else values)


def floats_in(values: pa.Array) -> NDArray[np.floating]:
    """The slots of an array of floats, or of FLOAT16 as fixed_size_binary: float16, float32 or float64, a view."""
    return numbers_in(values, np.dtype(FLOATS[values.type.bit_width]))


def numbers_in(values: pa.Array, kind: np.dtype[Any]) -> NDArray[Any]:
    """The slots of an array of fixed width as numbers of a kind, a view.

    An array's own to_numpy() may load pandas, where that is installed.
    """
    if not len(values):
        return np.empty(0, kind)
    return np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]


def twins(values: NDArray[np.floating]) -> list[bytes]:
    """The values to insert beside those stored: both zeros if either is there, NaN's canonical bits.

    values   float16, float32 or float64, any length
    returns  PLAIN bytes

    The zeros are equal and hash differently, and a NaN has many payloads: without their twins in
    the filter, `x = 0.0` over a stored -0.0 loses rows in engines that ask only for what they
    were given.
    """
    extra: list[bytes] = []
    if bool(np.any(values == 0)):
        extra += [values.dtype.type(0.0).tobytes(), values.dtype.type(-0.0).tobytes()]
    if bool(np.any(np.isnan(values))):
        canonical = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[values.dtype.itemsize]
        extra.append(struct.pack("<Q", canonical)[: values.dtype.itemsize])
    return extra


def arrow_of(numbers: NDArray[Any]) -> pa.Array:
    """An Arrow array over numpy's memory; numbers of 1, 2, 4 or 8 bytes.

    pyarrow.array() would ask first whether it was given something of pandas', and load pandas for it.
    """
    values = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


# --- types that compare ---------------------------------------------------------------------------
#
# When one literal means the same for two columns: one column of a data set, in files of several writers.
#
#    decimal(18, 2)   FIXED_LEN_BYTE_ARRAY(8) by pyarrow, INT64 by DuckDB     the same numbers
#    text             STRING by a LogicalType, or by an old ConvertedType     the same bytes
#    time             microseconds by pyarrow, nanoseconds by Polars          each compared exactly
#    float16          FLOAT by fastparquet                                    no: a cast rounds
#
# Physical types, widths of integers and units may differ, because a literal is cast for each file by
# itself, and pyarrow's cast to the first file's type is exact or an error. What rounds on the way
# (floats of two widths, a timestamp that becomes a date) is another kind.

_UNITS = {nanoseconds: unit for unit, nanoseconds in UNIT_NS.items()}


def same_kind(one: Leaf, other: Leaf) -> bool:
    """Whether two columns hold values of one kind.

    A literal that is known for both (`operand`) then means the same in both. That second
    condition keeps apart timestamps in UTC and without a zone, and uuids from bytes that may hold uuids.
    """
    return one.repeated == other.repeated and _kind(one) == _kind(other)


def same_type(one: Leaf, other: Leaf) -> bool:
    """Whether all literals mean the same for two columns, known or not."""
    return type_of(one) == type_of(other)


def type_of(leaf: Leaf) -> tuple[object, ...]:
    """All that says what a column's bytes mean."""
    return (
        leaf.physical,
        leaf.type_length,
        leaf.logical,
        leaf.bits,
        leaf.signed,
        leaf.scale,
        leaf.unit_ns,
        leaf.utc,
        leaf.repeated,
    )


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

    A BYTE_ARRAY DATE is a folder's name that is a date (search.evidence): a text for texts,
    so that day >= '2026-01' holds for 2026-01-02, and a date for all others.
    """
    if key.logical != "DATE" or key.physical != BYTE_ARRAY:
        return key
    if all(value is None or isinstance(value, str) for value in values):
        return replace(key, logical="STRING")
    return replace(key, physical=INT32)


# --- literals of another kind -----------------------------------------------------------------------


def is_misfit(value: Literal, leaf: Leaf) -> bool:
    """Whether a literal can never be compared with a column's type: a mistake in the predicate.

    Not a misfit is what no value can equal (1.5 for INT64), nor what engines read in ways of their own.
    """
    domain = domain_of(leaf)
    if value is None or domain is None:
        return False
    if isinstance(value, bool) or leaf.physical == BOOLEAN:
        return not (isinstance(value, bool) and leaf.physical == BOOLEAN)
    if leaf.logical in ("DATE", "TIME", "TIMESTAMP"):
        return bool(literals.misfit(value, leaf.logical, leaf.utc))
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
    """The message on a literal that does not fit a column, with one that does."""
    hint = what_to_write(value, leaf)
    return f"{literal_text(value)} is not a literal for {leaf.type_name}" + (f"; {hint}" if hint else "")


def what_to_write(value: Literal, leaf: Leaf) -> str:
    """How a literal for a column is written, in the place of one of another kind."""
    if leaf.logical in ("DATE", "TIME", "TIMESTAMP"):
        return literals.misfit(value, leaf.logical, leaf.utc)
    if leaf.logical == "UUID":
        return "write UUID '00112233-4455-6677-8899-aabbccddeeff'"
    if leaf.physical == BOOLEAN:
        return "write TRUE or FALSE"
    if leaf.logical == "DECIMAL" or leaf.physical in (INT32, INT64) or leaf.float_bits:
        return "write a number, without quotes"
    if leaf.physical not in (BYTE_ARRAY, FLBA):
        return ""
    text = value.isoformat() if isinstance(value, dt.date) else literal_text(value)
    known = isinstance(value, int | float | Decimal | dt.date | uuid.UUID) and not isinstance(value, bool)
    return "write a text in single quotes" + (f": '{text}'" if known and len(text) <= 40 else "")


def is_day_of_an_instant(value: Literal, leaf: Leaf) -> bool:
    """Whether a day meets a column in UTC, or an instant one of days: pyarrow and Polars take midnight in UTC."""
    if leaf.logical == "DATE":
        return isinstance(value, Instant) and value.utc
    return leaf.logical == "TIMESTAMP" and leaf.utc is not False and isinstance(value, dt.date)


# --- operands -------------------------------------------------------------------------------------
#
# A literal as one column sees it: its place in the column's order, and from that what to ask a filter for.
#
#    literal            place                        probes
#    id < 1.5           1 < literal < 2              none: no integer is 1.5
#    id = 5             5                            its 4 or 8 bytes
#    price = 0.1        on FLOAT between two floats  these and the one between them, as engines round differently
#    name >= 'b'        the bytes themselves         the bytes
#
# Nothing is guessed: where engines may disagree about what the literal means there, it has no place, and
# the rows are read. Sources: parquet-format LogicalTypes.md; SQL's rule that comparing numbers of two
# types compares the numbers, though an engine that rounds first finds a 1 for 1.0000000000000001.


class Operand(NamedTuple):
    """A literal in the order of one column.

    lower, upper  the literal lies between these two values of the column's order (see statistics.domain_of);
               equal if it is a value; where `known` is False, nothing is said
    never      no value of the column's type equals it
    probes     PLAIN bytes to ask a filter for: nothing stored equals the literal if it admits none;
               None if a filter cannot tell
    reason     why it is not known, or never, or has no probes
    misfit     it is not known because the literal can never be compared with the column (`is_misfit`)
    """

    known: bool
    lower: Any = None
    upper: Any = None
    never: bool = False
    probes: tuple[bytes, ...] | None = None
    reason: str = ""
    misfit: bool = False


class NoPlaceError(Exception):
    """The position of a literal in a column's order is unknown; the reason in words."""


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
    reason = never_queried(leaf)
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
            return f"{literal_text(value)} lies between two values of {leaf.type_name}"
        range_of = limits(leaf)
        if range_of is not None and not range_of[0] <= low <= range_of[1]:
            return f"{literal_text(value)} is outside the range of {leaf.type_name}"
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
        raise NoPlaceError(f"{literal_text(value)} is outside the range of {leaf.type_name}")
    return around(value, closest)


# --- texts and bytes ------------------------------------------------------------------------------


def _bytes_place(value: Literal, leaf: Leaf) -> tuple[bytes, bytes]:
    if leaf.logical == "UUID":
        if isinstance(value, str):
            try:
                value = uuid.UUID(value)
            except ValueError:
                raise NoPlaceError(f"{literal_text(value)} is no uuid") from None
        value = value.bytes if isinstance(value, uuid.UUID) else value
        if isinstance(value, bytes | bytearray) and len(value) != 16:  # an error in some engines, cast in others
            raise NoPlaceError(mismatch(value, leaf))
    if isinstance(value, str):
        if leaf.physical == FLBA and leaf.type_length == 16 and is_uuid(value):
            reason = "may be meant as a uuid, and 16 bytes without a logical type may hold uuids"
            raise NoPlaceError(f"{literal_text(value)} {reason}")
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
        reason = f"{literal_text(value)} is finer than the column, so some engines round it first"
        raise NoPlaceError(f"{reason}; write {kind} {spelled(value.strip())}")
    return quotient(nanoseconds, unit)
