"""operand: the bytes a stored value that equals the literal was hashed by, or no evidence.

The worst answer is a wrong "never equal" or a probe for other bytes: rows are lost. Random values of every type
against the bytes that pyarrow wrote are in property/test_literals.py; here is what each kind of literal means, what
is none, and columns that make no sense: an answer, never an exception.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
import tracemalloc
import uuid
from decimal import Context, Decimal
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.naive import plain

from parquet_bloom._thrift.parquet import ttypes
from parquet_bloom._thrift.parquet.ttypes import LogicalType, SchemaElement
from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.format.schema import BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf, leaves_of
from parquet_bloom.format.values import Operand, operand, twins

EXACT = Context(prec=200, Emin=-(10**6), Emax=10**6)
PHYSICAL = {INT32: "INT32", INT64: "INT64", FLOAT: "FLOAT", DOUBLE: "DOUBLE"}
NEVER, UNKNOWN = (), None
UTC = dt.UTC


def column(physical: int, logical: str | None = None, **fields) -> Leaf:
    return Leaf(0, ("c",), physical, logical=logical, **fields)


def probes(literal: Any, leaf: Leaf) -> tuple[bytes, ...] | None:
    return operand(literal, leaf).probes


def may_be(literal: Any, leaf: Leaf, stored: bytes) -> bool:
    """Whether a row that stores these bytes is kept when asked for the literal."""
    found = probes(literal, leaf)
    return found is None or stored in found


def only(literal: Any, leaf: Leaf) -> bytes:
    """The one spelling of a literal for which there is one."""
    [probe] = probes(literal, leaf)
    return probe


def all_are(expected: tuple[()] | None, leaf: Leaf, *literals: Any) -> None:
    assert [one for one in literals if probes(one, leaf) != expected] == []


# --- integers and decimals --------------------------------------------------------------------------

INTEGERS = [(INT32, None, 0, True), (INT64, None, 0, True), (INT64, "INTEGER", 64, False)]
INTEGERS += [(INT32, "INTEGER", bits, signed) for bits, signed in ((8, True), (16, False), (32, False))]


def test_integers_within_and_outside_their_range():
    for physical, logical, bits, signed in INTEGERS:
        leaf = column(physical, logical, bits=bits, signed=signed)
        width = 4 if physical == INT32 else 8
        bits = bits or 8 * width
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        for value in (low, high, 0, 1, high // 2, low // 3):
            stored = (value % (1 << 8 * width)).to_bytes(width, "little")  # sign- or zero-extended
            floats = (float(value), np.float64(value)) if abs(value) < 2**53 else ()
            for literal in (value, Decimal(value), Decimal(f"{value}.000"), *floats):
                assert only(literal, leaf) == stored
        outside = (low - 1, high + 1, 2**64, -(2**64), 10**30)
        all_are(NEVER, leaf, *outside, *map(Decimal, outside), None)  # NULL equals nothing
        all_are(NEVER, leaf, 0.5, Decimal("0.5"), Decimal("-1e-30"), 1e-300, Decimal("1E-999999"))
        several = (float(2**53), -1e300, math.inf, math.nan)  # integers may be this one double
        all_are(UNKNOWN, leaf, *several, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity"))
        others = (dt.date(2020, 1, 1), Instant(0, True), TimeOfDay(0), uuid.UUID(int=5))
        all_are(UNKNOWN, leaf, "5", b"5", True, np.True_, *others)


DECIMALS = [(INT32, 0, scale) for scale in (0, 2, 9)] + [(INT64, 0, scale) for scale in (0, 4, 18)]
DECIMALS += [(FLBA, n, scale) for n, scale in ((1, 0), (4, 2), (9, 20), (16, 38), (32, 0), (32, 76))]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(DECIMALS), st.data())
@example((FLBA, 32, 70), None)
def test_decimals_in_every_spelling(kind, data):
    physical, length, scale = kind
    leaf = column(physical, "DECIMAL", type_length=length, scale=scale, precision=9)
    bits = 8 * (length or (4 if physical == INT32 else 8))
    limit = (1 << bits - 1) - 1
    unscaled = 55 * 10**69 if data is None else data.draw(st.integers(-limit - 1, limit))
    stored = unscaled.to_bytes(length, "big", signed=True) if length else plain(unscaled, PHYSICAL[physical])
    value = Decimal(unscaled).scaleb(-scale, EXACT)
    for literal in (value, value.normalize(EXACT), Decimal(f"{value:f}"), Decimal(f"{value:f}00" if scale else value)):
        assert literal == value
        assert only(literal, leaf) == stored, literal
    if unscaled % 10**scale == 0:
        assert only(unscaled // 10**scale, leaf) == stored
    assert may_be(float(value), leaf, stored)


def test_decimals_outside_and_finer():
    leaf = column(FLBA, "DECIMAL", type_length=2, scale=2)
    all_are(NEVER, leaf, Decimal("327.68"), Decimal("-327.69"), 328, 10**50, Decimal("1E+70"), Decimal("1E+999999"))
    all_are(NEVER, leaf, Decimal("0.001"), Decimal("1.005"), Decimal("1E-999999"))  # no value has a third decimal
    assert only(Decimal("327.67"), leaf) == b"\x7f\xff"
    assert only(Decimal("-0.01"), leaf) == b"\xff\xff"
    assert only(Decimal("-0.00"), leaf) == only(0, leaf) == b"\0\0"
    all_are(UNKNOWN, leaf, 1.0, 0.1, "1.00", b"\0\0", Decimal("NaN"))
    all_are(UNKNOWN, column(BYTE_ARRAY, "DECIMAL", scale=2), Decimal("1.00"))  # has many spellings


# --- floats -----------------------------------------------------------------------------------------

FLOATS = {
    "FLOAT16": (column(FLBA, "FLOAT16", type_length=2), np.float16, "<e"),
    "FLOAT": (column(FLOAT), np.float32, "<f"),
    "DOUBLE": (column(DOUBLE), np.float64, "<d"),
}
BY_FLOAT = pytest.mark.parametrize("kind", FLOATS)


@BY_FLOAT
def test_zeros_nan_and_what_is_rounded_to_infinity(kind):
    leaf, numpy, code = FLOATS[kind]
    both = {struct.pack(code, 0.0), struct.pack(code, -0.0)}
    for zero in (0, 0.0, -0.0, Decimal(0), Decimal("-0.00"), numpy(-0.0), np.int8(0)):
        assert set(probes(zero, leaf)) == both, "they are equal and hash differently"
    for tiny in (5e-324, -5e-324, Decimal("1e-400"), 1e-60):
        assert kind == "DOUBLE" or both <= set(probes(tiny, leaf)), "rounding gives a zero"
    all_are(UNKNOWN, leaf, math.nan, -math.nan, Decimal("NaN"), Decimal("sNaN"), numpy("nan"))
    all_are(UNKNOWN, leaf, "0", b"\0\0", True, dt.date(1970, 1, 1), Instant(0, False))
    largest = float(np.finfo(numpy).max)
    assert only(largest, leaf) == struct.pack(code, largest)
    assert only(math.inf, leaf) == struct.pack(code, math.inf)
    assert may_be(Decimal(largest) - 1, leaf, struct.pack(code, largest)), "its upper neighbour is infinity"
    assert may_be(1 - Decimal(largest), leaf, struct.pack(code, -largest))
    for literal in (10**400, Decimal("1E+400"), 10 * largest):
        assert may_be(literal, leaf, struct.pack(code, math.inf)), "engines round it to infinity"
        assert may_be(-literal, leaf, struct.pack(code, -math.inf))
    for literal in (10**400, Decimal("1E+400"), Decimal(largest) * 4):
        for number in (literal, -literal):
            assert not operand(number, leaf).known, "inf > 1E+400, so a bound of infinity must not exclude"
    assert operand(Decimal("Infinity"), leaf).lower == math.inf == operand(math.inf, leaf).lower


@BY_FLOAT
def test_twins_go_in_beside_zeros_and_nans(kind):
    _, numpy, code = FLOATS[kind]
    canonical = {2: "007e", 4: "0000c07f", 8: "000000000000f87f"}[numpy().itemsize]
    zeros = {struct.pack(code, 0.0).hex(), struct.pack(code, -0.0).hex()}
    for values, wanted in (
        ([1, 2, np.inf], set()),
        ([], set()),
        ([1, 0.0], zeros),
        ([1, -0.0], zeros),
        ([-np.nan, 1], {canonical}),
        ([np.nan, -0.0], {canonical, *zeros}),
    ):
        assert {twin.hex() for twin in twins(np.array(values, numpy))} == wanted, values


# --- texts, bytes, uuids ----------------------------------------------------------------------------


def test_texts_and_bytes():
    for logical in (None, "STRING", "ENUM", "JSON", "BSON"):
        leaf, five = column(BYTE_ARRAY, logical), column(FLBA, logical, type_length=5)
        for text in ("", "häß", "\0", "a" * 1000, "\U0001f600", " x "):
            assert only(text, leaf) == only(text.encode(), leaf) == only(bytearray(text.encode()), leaf)
            assert only(text, leaf) == text.encode()
        assert only(np.str_("abc"), leaf) == only(np.bytes_(b"abc"), leaf) == b"abc"
        assert only("abcde", five) == b"abcde"
        all_are(NEVER, five, "abcd", b"abcdef")
        all_are(UNKNOWN, leaf, "\ud800", 5, 5.0, Decimal(5), dt.date(2020, 1, 1), uuid.UUID(int=0), False)


def test_uuids():
    leaf = column(FLBA, "UUID", type_length=16)
    value = uuid.UUID("80d4ccaf-357e-4611-90b4-037fa2ca769a")
    for literal in (value, str(value), str(value).upper(), value.hex, f"{{{value}}}", value.urn, value.bytes):
        assert only(literal, leaf) == value.bytes
    all_are(UNKNOWN, leaf, value.bytes[:15], "", "80d4ccaf", "not a uuid", value.int, 1.5)


# --- times ------------------------------------------------------------------------------------------

UNITS = {"ms": 1_000_000, "us": 1_000, "ns": 1}


@settings(max_examples=50, deadline=None)
@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_datetimes(moment, minutes):
    naive, aware, old = (column(INT64, "TIMESTAMP", unit_ns=1000, utc=utc) for utc in (False, True, None))
    there = moment.replace(tzinfo=dt.timezone(dt.timedelta(minutes=minutes)))
    microseconds = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert only(moment, naive) == plain(microseconds, "INT64")
    assert only(there, aware) == plain(microseconds - minutes * 60_000_000, "INT64")
    assert probes(moment, aware) is probes(there, naive) is UNKNOWN
    assert may_be(moment, old, plain(microseconds, "INT64"))
    assert only(moment.date(), naive) == plain((moment.date() - dt.date(1970, 1, 1)).days * 86_400_000_000, "INT64")


def test_pandas_timestamps_keep_their_nanoseconds_and_not_a_time_is_no_value():
    # pyarrow's own scalars of timestamp[ns] are such datetimes.
    pandas = pytest.importorskip("pandas")
    for nanoseconds, utc in product((0, 1, 999, 1001, 1_577_836_800_000_000_001), (True, False)):
        literal = pandas.Timestamp(nanoseconds, unit="ns", tz="UTC" if utc else None)
        leaf = column(INT64, "TIMESTAMP", unit_ns=1, utc=utc)
        assert may_be(literal, leaf, plain(nanoseconds, "INT64"))
    for leaf in (column(INT64, "TIMESTAMP", unit_ns=1, utc=True), column(INT32, "DATE"), column(INT64)):
        assert probes(pandas.NaT, leaf) in (NEVER, UNKNOWN)


def test_dates():
    leaf = column(INT32, "DATE")
    for day in (dt.date(1970, 1, 1), dt.date.min, dt.date.max, dt.date(1969, 12, 31), dt.date(2024, 2, 29)):
        stored, midnight, text = (day - dt.date(1970, 1, 1)).days, dt.datetime.combine(day, dt.time()), day.isoformat()
        # A text means what it means behind TIMESTAMP.
        for literal in (day, text, midnight, f" {text} ", f"{text} 00:00", f"{text}T00:00:00.0"):
            assert only(literal, leaf) == plain(stored, "INT32")
        all_are(NEVER, leaf, dt.datetime.combine(day, dt.time(0, 0, 1)))
    texts = ("", "5", "2024-02-30", "20240229", "2024-W09-4", "2024-02-29 00:00Z", "2024-02-29 12:00")
    all_are(UNKNOWN, leaf, *texts, 5, 0.0, dt.datetime(2024, 1, 1, tzinfo=UTC), TimeOfDay(0), b"2024-01-01")
    all_are(NEVER, leaf, Instant(86_400 * 10**9 * 2**31, False))


def test_times_of_day():
    milliseconds = ((13 * 60 + 5) * 60 + 7) * 1000 + 250
    for unit, utc in product(UNITS, (True, False, None)):
        physical = INT32 if unit == "ms" else INT64
        leaf = column(physical, "TIME", unit_ns=UNITS[unit], utc=utc)
        for value in (0, 1, 86_399_999, 43_200_000):
            assert only(TimeOfDay(value * UNITS[unit]), leaf) == plain(value, PHYSICAL[physical])
        stored = plain(milliseconds * 10**6 // UNITS[unit], PHYSICAL[physical])
        for literal in (dt.time(13, 5, 7, 250_000), "13:05:07.25", " 13:05:07.250000000"):
            assert only(literal, leaf) == stored
        assert unit == "ns" or probes(TimeOfDay(1), leaf) == NEVER
        others = (dt.time(13, 5, tzinfo=UTC), Instant(0, False), dt.date(1970, 1, 1))
        all_are(UNKNOWN, leaf, 0, "24:00", "1970-01-01 00:00", "12:00Z", *others)


# --- columns and literals that make no sense ----------------------------------------------------------

LOGICAL = [spec[2] for spec in LogicalType.thrift_spec if spec] + [None, "?", "INTERVAL", "later"]
SHAPES = [(0, 0, True, 0, 0, None), (16, -8, False, -1, 1, True), (2, 7, True, 300, 1000, False)]
SHAPES += [(-3, 128, False, 2**31 - 1, 10**6, True), (1, 64, True, 76, 7, None), (12, 32, False, -(2**31), 1, False)]
LITERALS = [None, True, 0, -1, 5, 300, 2**40, -(2**63), 2**64, 10**60]
LITERALS += [0.0, -0.0, 0.1, 1e308, 5e-324, math.inf, math.nan]
LITERALS += [Decimal(text) for text in ("0", "-1.50", "1E+999999", "1E-999999", "1e70", "NaN", "sNaN", "-Infinity")]
LITERALS += ["", "5", "2024-01-01", "\ud800", "a" * 32, b"", b"\0", bytes(12), bytearray(16), uuid.UUID(int=7)]
LITERALS += [
    dt.date.min,
    dt.date.max,
    dt.datetime.min,
    dt.datetime.max.replace(tzinfo=UTC),
    dt.time(1),
    dt.timedelta(1),
]
LITERALS += [Instant(-(10**30), True), Instant(7, False), TimeOfDay(-1), TimeOfDay(10**20, True), [1], {}, 1j, object()]
LITERALS += [np.float16(1), np.longdouble(1), np.bool_(0), np.uint64(2**64 - 1)]
LITERALS += [np.datetime64("NaT", "s"), np.timedelta64(1, "s")]


def test_no_literal_and_no_column_raises():
    for physical, logical, (length, bits, signed, scale, unit, utc) in product(range(-1, 10), LOGICAL, SHAPES):
        fields = {"bits": bits, "signed": signed, "scale": scale, "unit_ns": unit, "utc": utc, "type_length": length}
        leaf = column(physical, logical, **fields)
        for literal in LITERALS:
            found = operand(literal, leaf)
            assert found.probes or found.reason
            for probe in found.probes or ():
                assert leaf.width in (0, len(probe)), "a probe is as wide as every value of the column"
            if leaf.refusal or leaf.logical in ("?", "UNKNOWN", "VARIANT", "GEOMETRY"):
                assert literal is None or found.probes is UNKNOWN


INCOMPLETE = [{"DECIMAL": ttypes.DecimalType(precision=9)}, {"DECIMAL": ttypes.DecimalType()}]
INCOMPLETE += [{"INTEGER": ttypes.IntType(bitWidth=bits, isSigned=True)} for bits in (None, -8)]
INCOMPLETE += [{"INTEGER": ttypes.IntType(bitWidth=32)}, {"TIMESTAMP": ttypes.TimestampType()}]
INCOMPLETE += [{"TIME": ttypes.TimeType(isAdjustedToUTC=True)}]


def test_a_type_that_lacks_what_the_format_requires_is_no_reason_to_lose_rows():
    for union, physical in product(INCOMPLETE, (INT32, INT64)):
        element = SchemaElement(name="c", type=physical, logicalType=LogicalType(**union))
        [leaf] = leaves_of([SchemaElement(name="s", num_children=1), element])
        for literal in (-1, 5, Decimal(-1), Instant(-1, False), TimeOfDay(5)):
            assert probes(literal, leaf) != NEVER, f"nobody knows which values this column can hold: {union}"


def test_a_huge_type_length_takes_no_memory():
    leaf = column(FLBA, "DECIMAL", type_length=1 << 26)
    tracemalloc.start()
    for literal in (1, 10**40, Decimal("1.5")):
        operand(literal, leaf)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000, f"{peak} bytes for a literal, because of a number in the schema"


def test_literals_of_thousands_of_digits():
    half = column(FLBA, "DECIMAL", type_length=16, scale=1)
    for digits in (4299, 4301, 5000):
        number = 10 ** (digits - 1)
        for leaf in (column(INT64), column(DOUBLE), column(BYTE_ARRAY), column(FLBA, "DECIMAL", type_length=16)):
            for literal in (number, -number, Decimal((0, (1,) * digits, 0)), Decimal((0, (1,) * digits, -digits))):
                assert isinstance(operand(literal, leaf), Operand)
        all_are(NEVER, column(INT64), number)
        assert only(Decimal("5." + "0" * digits), half) == (50).to_bytes(16, "big")
