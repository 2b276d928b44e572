"""Decimals as floats: the nearest one, against exact fractions and DuckDB."""

from __future__ import annotations

import random
from decimal import Decimal
from fractions import Fraction
from itertools import product

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from parquet_bloom.format.literals import decimal_casts

HALVES = [2**24 + 1, 2**53 + 1, 2**54 + 2, 2**63 + 2**10]  # integers half-way between two floats, or doubles


def unscaled(precision: int, seed: int) -> list[int]:
    rng = random.Random(seed)
    found = [rng.randrange(10 ** rng.randint(1, precision)) for _ in range(500)]
    for half in HALVES:
        for zeros in range(precision - len(str(half))):
            found += [half * 10**zeros + step for step in (-1, 0, 1)]
    return [0, 10**precision - 1, *found, *(-one for one in found)]


def floats(values: pa.Array, kind: pa.DataType) -> pa.Array:
    for step in decimal_casts(kind):
        values = values.cast(step)
    return values


def is_nearest(value: Fraction, found: np.floating) -> bool:
    """By the definition of rounding to nearest, ties to the even one."""
    away = abs(Fraction(float(found)) - value)
    for other in (np.nextafter(found, type(found)(-np.inf)), np.nextafter(found, type(found)(np.inf))):
        beside = abs(Fraction(float(other)) - value)
        if beside < away or (beside == away and found.view(f"u{found.itemsize}") & 1):
            return False
    return True


TYPES = [(4, 2), (9, 2), (9, 9), (18, 4), (18, 18), (38, 10), (38, 38)]


def decimals(precision: int, scale: int) -> pa.Array:
    values = [Decimal(f"{one}E-{scale}") for one in unscaled(precision, precision + scale)]
    return pa.array([*values, None], (pa.decimal128 if precision <= 38 else pa.decimal256)(precision, scale))


def test_a_decimal_becomes_the_float_nearest_to_it() -> None:
    for (precision, scale), kind in product([*TYPES, (38, 0), (60, 50)], (pa.float32(), pa.float64())):
        values = decimals(precision, scale)
        found = floats(values, kind)
        assert found.null_count == 1
        pairs = zip(values[:-1].to_pylist(), found[:-1].to_numpy(), strict=True)
        assert [str(value) for value, near in pairs if not is_nearest(Fraction(value), near)] == []


@pytest.mark.skipif(int(duckdb.__version__.split(".")[0]) < 2, reason="DuckDB 1 rounds twice beyond 2^53")
def test_the_floats_are_those_of_duckdb() -> None:
    for precision, scale in TYPES:  # without a scale DuckDB 2.0 adds two halves, each of them rounded
        values = decimals(precision, scale)
        with duckdb.connect() as connection:
            connection.register("t", pa.table({"i": range(len(values)), "x": values}))
            rows = connection.execute("SELECT x::FLOAT, x::DOUBLE FROM t ORDER BY i").fetchall()
        for kind, theirs in zip((pa.float32(), pa.float64()), zip(*rows, strict=True), strict=True):
            assert floats(values, kind).to_pylist() == list(theirs), (precision, scale)
