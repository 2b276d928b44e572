"""operand for columns and literals that make no sense: an answer, never an exception, no lost rows."""

from __future__ import annotations

import datetime as dt
import math
import tracemalloc
import uuid
from decimal import Decimal
from itertools import product

import numpy as np
import pytest

from parquet_bloom._thrift.parquet import ttypes
from parquet_bloom._thrift.parquet.ttypes import LogicalType, SchemaElement
from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.format.schema import BYTE_ARRAY, DOUBLE, FLBA, INT32, INT64, Leaf, leaves_of
from parquet_bloom.format.values import Operand, operand

NEVER, UNKNOWN = (), None


def column(physical: int, logical: str | None = None, **fields) -> Leaf:
    return Leaf(0, ("c",), physical, logical=logical, **fields)


LOGICAL = [spec[2] for spec in LogicalType.thrift_spec if spec] + [None, "?", "INTERVAL", "later"]
SHAPES = [(0, 0, True, 0, 0, None), (16, -8, False, -1, 1, True), (2, 7, True, 300, 1000, False)]
SHAPES += [(-3, 128, False, 2**31 - 1, 10**6, True), (1, 64, True, 76, 7, None), (12, 32, False, -(2**31), 1, False)]
LITERALS = [
    None,
    True,
    0,
    -1,
    5,
    300,
    2**40,
    -(2**63),
    2**64,
    10**60,
    0.0,
    -0.0,
    0.1,
    1e308,
    5e-324,
    math.inf,
    math.nan,
]
LITERALS += [Decimal(text) for text in ("0", "-1.50", "1E+999999", "1E-999999", "1e70", "NaN", "sNaN", "-Infinity")]
LITERALS += ["", "5", "2024-01-01", "\ud800", "a" * 32, b"", b"\0", bytes(12), bytearray(16), uuid.UUID(int=7)]
LITERALS += [
    dt.date.min,
    dt.date.max,
    dt.datetime.min,
    dt.datetime.max.replace(tzinfo=dt.UTC),
    dt.time(1),
    dt.timedelta(1),
]
LITERALS += [Instant(-(10**30), True), Instant(7, False), TimeOfDay(-1), TimeOfDay(10**20, True), [1], {}, 1j, object()]
LITERALS += [
    np.float16(1),
    np.longdouble(1),
    np.bool_(0),
    np.uint64(2**64 - 1),
    np.datetime64("NaT", "s"),
    np.timedelta64(1, "s"),
]


@pytest.mark.parametrize("physical", range(-1, 10))
def test_no_literal_and_no_column_raises(physical):
    for logical, (length, bits, signed, scale, unit, utc) in product(LOGICAL, SHAPES):
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


@pytest.mark.parametrize("union", INCOMPLETE, ids=str)
def test_a_type_that_lacks_what_the_format_requires_is_no_reason_to_lose_rows(union):
    for physical in (INT32, INT64):
        element = SchemaElement(name="c", type=physical, logicalType=LogicalType(**union))
        [leaf] = leaves_of([SchemaElement(name="s", num_children=1), element])
        for literal in (-1, 5, Decimal(-1), Instant(-1, False), TimeOfDay(5)):
            probes = operand(literal, leaf).probes
            assert probes is UNKNOWN or probes, "nobody knows which values this column can hold"


def test_a_huge_type_length_takes_no_memory():
    leaf = column(FLBA, "DECIMAL", type_length=1 << 26)
    tracemalloc.start()
    for literal in (1, 10**40, Decimal("1.5")):
        operand(literal, leaf)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000, f"{peak} bytes for a literal, because of a number in the schema"


@pytest.mark.parametrize("digits", [4299, 4301, 5000])
def test_literals_of_thousands_of_digits(digits):
    number = 10 ** (digits - 1)
    for leaf in (column(INT64), column(DOUBLE), column(BYTE_ARRAY), column(FLBA, "DECIMAL", type_length=16)):
        for literal in (number, -number, Decimal((0, (1,) * digits, 0)), Decimal((0, (1,) * digits, -digits))):
            assert isinstance(operand(literal, leaf), Operand)
    assert operand(number, column(INT64)).probes == NEVER
    half = column(FLBA, "DECIMAL", type_length=16, scale=1)
    assert operand(Decimal("5." + "0" * digits), half).probes == ((50).to_bytes(16, "big"),)
