"""operand: the bytes a stored value that equals the literal was hashed by, or no evidence.

The worst answer is a wrong "never equal" or a probe for other bytes: rows are lost. So for every
kind of column: a stored value v, literals equal to v, and v's PLAIN bytes (tests/support/naive.py) among
the probes.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
import uuid
from decimal import Context, Decimal

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from support.naive import plain

from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.format.schema import BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf
from parquet_bloom.format.values import operand, twins

EXACT = Context(prec=200, Emin=-(10**6), Emax=10**6)
PHYSICAL = {INT32: "INT32", INT64: "INT64", FLOAT: "FLOAT", DOUBLE: "DOUBLE"}


def column(physical: int, logical: str | None = None, **fields) -> Leaf:
    return Leaf(0, ("c",), physical, logical=logical, **fields)


def may_be(literal, leaf: Leaf, stored: bytes) -> bool:
    """Whether a row that stores these bytes is kept when asked for the literal."""
    probes = operand(literal, leaf).probes
    return probes is None or stored in probes


def only(literal, leaf: Leaf) -> bytes:
    """The one spelling of a literal for which there is one."""
    [probe] = operand(literal, leaf).probes
    return probe


NEVER, UNKNOWN = (), None

# --- integers and decimals --------------------------------------------------------------------------

INTEGERS = [(INT32, None, 0, True), (INT64, None, 0, True)]
INTEGERS += [(INT32, "INTEGER", bits, signed) for bits in (8, 16, 32) for signed in (True, False)]
INTEGERS += [(INT64, "INTEGER", 64, True), (INT64, "INTEGER", 64, False)]


@pytest.mark.parametrize(("physical", "logical", "bits", "signed"), INTEGERS)
def test_integers_within_and_outside_their_range(physical, logical, bits, signed):
    leaf = column(physical, logical, bits=bits, signed=signed)
    width = 4 if physical == INT32 else 8
    bits = bits or 8 * width
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    for value in (low, high, 0, 1, high // 2, low // 3):
        stored = (value % (1 << 8 * width)).to_bytes(width, "little")  # sign- or zero-extended
        assert only(value, leaf) == stored
        assert only(Decimal(value), leaf) == stored
        assert only(Decimal(f"{value}.000"), leaf) == stored
        if abs(value) < 2**53:
            assert only(float(value), leaf) == stored
            assert only(np.float64(value), leaf) == stored
    for value in (low - 1, high + 1, 2**64, -(2**64), 10**30):
        assert operand(value, leaf).probes == NEVER
        assert operand(Decimal(value), leaf).probes == NEVER
    for value in (0.5, Decimal("0.5"), Decimal("-1e-30"), 1e-300, Decimal("1E-999999")):
        assert operand(value, leaf).probes == NEVER, "no integer is a fraction"
    for value in (float(2**53), -1e300, math.inf, math.nan, Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")):
        assert operand(value, leaf).probes is UNKNOWN, "several integers may be this one double"
    for value in ("5", b"5", True, np.True_, dt.date(2020, 1, 1), Instant(0, True), TimeOfDay(0), uuid.UUID(int=5)):
        assert operand(value, leaf).probes is UNKNOWN
    assert operand(None, leaf).probes == NEVER, "NULL equals nothing"


DECIMALS = [(INT32, 0, scale) for scale in (0, 2, 9)] + [(INT64, 0, scale) for scale in (0, 4, 18)]
DECIMALS += [
    (FLBA, n, scale) for n, scale in ((1, 0), (4, 2), (9, 20), (16, 10), (16, 38), (32, 0), (32, 61), (32, 76))
]


@settings(max_examples=170, deadline=None)
@given(st.sampled_from(DECIMALS), st.data())
@example((FLBA, 32, 70), None)
def test_decimals_in_every_spelling(kind, data):
    physical, length, scale = kind
    leaf = column(physical, "DECIMAL", type_length=length, scale=scale, precision=9)
    bits = 8 * (length or (4 if physical == INT32 else 8))
    limit = (1 << bits - 1) - 1
    unscaled = (
        55 * 10**69
        if data is None
        else data.draw(st.integers(-limit - 1, limit) | st.integers(-min(limit, 1000), min(limit, 1000)))
    )
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
    for literal in (Decimal("327.68"), Decimal("-327.69"), 328, 10**50, Decimal("1E+70"), Decimal("1E+999999")):
        assert operand(literal, leaf).probes == NEVER
    for literal in (Decimal("0.001"), Decimal("1.005"), Decimal("1E-999999")):
        assert operand(literal, leaf).probes == NEVER, "no value has a third decimal"
    assert only(Decimal("327.67"), leaf) == b"\x7f\xff"
    assert only(Decimal("-0.01"), leaf) == b"\xff\xff"
    assert only(Decimal("-0.00"), leaf) == only(0, leaf) == b"\0\0"
    for literal in (1.0, 0.1, "1.00", b"\0\0", Decimal("NaN")):
        assert operand(literal, leaf).probes is UNKNOWN
    many_spellings = column(BYTE_ARRAY, "DECIMAL", scale=2)
    assert operand(Decimal("1.00"), many_spellings).probes is UNKNOWN


# --- floats -----------------------------------------------------------------------------------------

FLOATS = {
    "FLOAT16": (column(FLBA, "FLOAT16", type_length=2), np.float16, "<e"),
    "FLOAT": (column(FLOAT), np.float32, "<f"),
    "DOUBLE": (column(DOUBLE), np.float64, "<d"),
}
BY_FLOAT = pytest.mark.parametrize("kind", FLOATS)


@BY_FLOAT
@settings(max_examples=100, deadline=None)
@given(st.data())
def test_stored_floats_are_found_by_every_equal_literal(kind, data):
    leaf, numpy, code = FLOATS[kind]
    value = data.draw(st.floats(width=numpy().itemsize * 8, allow_nan=False))
    stored = struct.pack(code, value)
    literals = [value, numpy(value), Decimal(value), np.float64(value)]
    literals += [int(value)] if math.isfinite(value) and value == int(value) else []
    for literal in literals:
        probes = operand(literal, leaf).probes
        assert stored in probes, literal
        assert len(probes) == (2 if value == 0 else 1), "an exact literal has one spelling, zero two"
    if math.isfinite(value):
        shortest = np.format_float_positional(numpy(value), unique=True)
        for literal in (Decimal(shortest), float(shortest)):  # as people write it: 0.1 for FLOAT's 0.1
            assert may_be(literal, leaf, stored), shortest


@BY_FLOAT
@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False) | st.decimals(allow_nan=False) | st.integers())
def test_whatever_an_engine_rounds_a_literal_to_is_asked(kind, literal):
    leaf, numpy, _ = FLOATS[kind]
    assume(abs(literal) < 10**300 or isinstance(literal, float))
    with np.errstate(over="ignore"):
        rounded = [numpy(float(literal))]
        if kind == "FLOAT16":
            rounded.append(numpy(np.float32(literal)))
    for value in rounded:
        assert may_be(literal, leaf, value.tobytes()), value


@BY_FLOAT
def test_zeros_and_nan(kind):
    leaf, numpy, code = FLOATS[kind]
    both = {struct.pack(code, 0.0), struct.pack(code, -0.0)}
    for zero in (0, 0.0, -0.0, Decimal(0), Decimal("-0.00"), numpy(-0.0), np.int8(0)):
        assert set(operand(zero, leaf).probes) == both, "they are equal and hash differently"
    for tiny in (5e-324, -5e-324, Decimal("1e-400"), 1e-60):
        assert kind == "DOUBLE" or both <= set(operand(tiny, leaf).probes), "rounding gives a zero"
    for nan in (math.nan, -math.nan, Decimal("NaN"), Decimal("sNaN"), numpy("nan")):
        assert operand(nan, leaf).probes is UNKNOWN
    for other in ("0", b"\0\0", True, dt.date(1970, 1, 1), Instant(0, False)):
        assert operand(other, leaf).probes is UNKNOWN
    largest = float(np.finfo(numpy).max)
    assert only(largest, leaf) == struct.pack(code, largest)
    assert only(math.inf, leaf) == struct.pack(code, math.inf)
    assert may_be(Decimal(largest) - 1, leaf, struct.pack(code, largest)), "its upper neighbour is infinity"
    assert may_be(1 - Decimal(largest), leaf, struct.pack(code, -largest))
    for literal in (10**400, Decimal("1e500"), 10 * largest):
        assert may_be(literal, leaf, struct.pack(code, math.inf)), "engines round it to infinity"
        assert may_be(-literal, leaf, struct.pack(code, -math.inf))


@BY_FLOAT
def test_a_number_beyond_all_floats_is_not_infinity(kind):
    leaf, numpy, _ = FLOATS[kind]
    for literal in (10**400, Decimal("1E+400"), Decimal(float(np.finfo(numpy).max)) * 4):
        for number in (literal, -literal):
            assert not operand(number, leaf).known, "inf > 1E+400, so a bound of infinity must not exclude"
    assert operand(Decimal("Infinity"), leaf).lower == math.inf == operand(math.inf, leaf).lower


@BY_FLOAT
def test_twins_go_in_beside_zeros_and_nans(kind):
    _, numpy, code = FLOATS[kind]
    canonical = {2: "007e", 4: "0000c07f", 8: "000000000000f87f"}[numpy().itemsize]
    zeros = {struct.pack(code, 0.0), struct.pack(code, -0.0)}
    assert twins(np.array([1, 2, np.inf], numpy)) == []
    assert twins(np.array([], numpy)) == []
    for zero in (0.0, -0.0):
        assert set(twins(np.array([1, zero], numpy))) == zeros
    assert {t.hex() for t in twins(np.array([-np.nan, 1], numpy))} == {canonical}
    assert {t.hex() for t in twins(np.array([np.nan, -0.0], numpy))} == {canonical, *(z.hex() for z in zeros)}


# --- texts, bytes, uuids ----------------------------------------------------------------------------


@pytest.mark.parametrize("logical", [None, "STRING", "ENUM", "JSON", "BSON"])
def test_texts_and_bytes(logical):
    leaf, five = column(BYTE_ARRAY, logical), column(FLBA, logical, type_length=5)
    for text in ("", "häß", "\0", "a" * 1000, "\U0001f600", " x "):
        assert only(text, leaf) == only(text.encode(), leaf) == only(bytearray(text.encode()), leaf) == text.encode()
    assert only(np.str_("abc"), leaf) == only(np.bytes_(b"abc"), leaf) == b"abc"
    assert only("abcde", five) == b"abcde"
    assert operand("abcd", five).probes == NEVER
    assert operand(b"abcdef", five).probes == NEVER
    for literal in ("\ud800", 5, 5.0, Decimal(5), dt.date(2020, 1, 1), uuid.UUID(int=0), False):
        assert operand(literal, leaf).probes is UNKNOWN


def test_uuids():
    leaf = column(FLBA, "UUID", type_length=16)
    value = uuid.UUID("80d4ccaf-357e-4611-90b4-037fa2ca769a")
    for literal in (value, str(value), str(value).upper(), value.hex, f"{{{value}}}", value.urn, value.bytes):
        assert only(literal, leaf) == value.bytes
    for literal in (value.bytes[:15], "", "80d4ccaf", "not a uuid", value.int, 1.5):
        assert operand(literal, leaf).probes is UNKNOWN


# --- times ------------------------------------------------------------------------------------------

UNITS = {"ms": 1_000_000, "us": 1_000, "ns": 1}
UTC = dt.UTC
BY_UNIT = pytest.mark.parametrize("unit", UNITS)


@BY_UNIT
@pytest.mark.parametrize("utc", [True, False])
@settings(max_examples=50, deadline=None)
@given(value=st.integers(-(2**63), 2**63 - 1) | st.integers(-(2**50), 2**50))
def test_stored_timestamps_are_found(unit, utc, value):
    leaf = column(INT64, "TIMESTAMP", unit_ns=UNITS[unit], utc=utc)
    nanoseconds = value * UNITS[unit]
    assert only(Instant(nanoseconds, utc), leaf) == plain(value, "INT64")
    assert operand(Instant(nanoseconds, not utc), leaf).probes is UNKNOWN, "another zone may be another instant"
    finer = operand(Instant(nanoseconds + 1, utc), leaf)
    assert finer.probes != (plain(value, "INT64"),)
    assert unit == "ns" or finer.probes == NEVER


@settings(max_examples=50, deadline=None)
@given(st.datetimes(), st.integers(-14 * 60, 14 * 60))
def test_datetimes(moment, minutes):
    naive, zone = column(INT64, "TIMESTAMP", unit_ns=1000, utc=False), dt.timezone(dt.timedelta(minutes=minutes))
    aware = column(INT64, "TIMESTAMP", unit_ns=1000, utc=True)
    microseconds = (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
    assert only(moment, naive) == plain(microseconds, "INT64")
    assert operand(moment, aware).probes is UNKNOWN
    assert only(moment.replace(tzinfo=zone), aware) == plain(microseconds - minutes * 60_000_000, "INT64")
    assert operand(moment.replace(tzinfo=zone), naive).probes is UNKNOWN
    old = column(INT64, "TIMESTAMP", unit_ns=1000, utc=None)
    assert may_be(moment, old, plain(microseconds, "INT64"))
    assert only(moment.date(), naive) == plain((moment.date() - dt.date(1970, 1, 1)).days * 86_400_000_000, "INT64")


@pytest.mark.parametrize("nanoseconds", [0, 1, 999, 1001, 1_577_836_800_000_000_001])
@pytest.mark.parametrize("utc", [True, False])
def test_pandas_timestamps_keep_their_nanoseconds(nanoseconds, utc):
    # pyarrow's own scalars of timestamp[ns] are such datetimes.
    pandas = pytest.importorskip("pandas")
    literal = pandas.Timestamp(nanoseconds, unit="ns", tz="UTC" if utc else None)
    leaf = column(INT64, "TIMESTAMP", unit_ns=1, utc=utc)
    assert may_be(literal, leaf, plain(nanoseconds, "INT64"))


def test_pandas_not_a_time_is_no_value():
    pandas = pytest.importorskip("pandas")
    for leaf in (column(INT64, "TIMESTAMP", unit_ns=1, utc=True), column(INT32, "DATE"), column(INT64)):
        assert operand(pandas.NaT, leaf).probes in (NEVER, UNKNOWN)


def test_dates():
    leaf = column(INT32, "DATE")
    for day in (dt.date(1970, 1, 1), dt.date.min, dt.date.max, dt.date(1969, 12, 31), dt.date(2024, 2, 29)):
        stored = plain((day - dt.date(1970, 1, 1)).days, "INT32")
        for literal in (day, day.isoformat(), dt.datetime.combine(day, dt.time())):
            assert only(literal, leaf) == stored
        for literal in (f" {day.isoformat()} ", f"{day.isoformat()} 00:00", f"{day.isoformat()}T00:00:00.0"):
            assert only(literal, leaf) == stored, "a text means what it means behind TIMESTAMP"
        assert operand(dt.datetime.combine(day, dt.time(0, 0, 1)), leaf).probes == NEVER
    texts = ("", "5", "2024-02-30", "20240229", "2024-W09-4", "2024-02-29 00:00Z", "2024-02-29 12:00")
    for literal in (*texts, 5, 0.0, dt.datetime(2024, 1, 1, tzinfo=UTC), TimeOfDay(0), b"2024-01-01"):
        assert operand(literal, leaf).probes is UNKNOWN
    assert operand(Instant(86_400 * 10**9 * 2**31, False), leaf).probes == NEVER


@BY_UNIT
@pytest.mark.parametrize("utc", [True, False, None])
def test_times_of_day(unit, utc):
    physical = INT32 if unit == "ms" else INT64
    leaf = column(physical, "TIME", unit_ns=UNITS[unit], utc=utc)
    for value in (0, 1, 86_399_999, 43_200_000):
        assert only(TimeOfDay(value * UNITS[unit]), leaf) == plain(value, PHYSICAL[physical])
    milliseconds = ((13 * 60 + 5) * 60 + 7) * 1000 + 250
    assert only(dt.time(13, 5, 7, 250_000), leaf) == plain(milliseconds * 10**6 // UNITS[unit], PHYSICAL[physical])
    assert operand(dt.time(13, 5, tzinfo=UTC), leaf).probes is UNKNOWN
    assert unit == "ns" or operand(TimeOfDay(1), leaf).probes == NEVER
    for literal in ("13:05:07.25", " 13:05:07.250000000"):
        assert only(literal, leaf) == plain(milliseconds * 10**6 // UNITS[unit], PHYSICAL[physical])
    for literal in (0, "24:00", "1970-01-01 00:00", "12:00Z", Instant(0, False), dt.date(1970, 1, 1)):
        assert operand(literal, leaf).probes is UNKNOWN
