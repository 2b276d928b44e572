"""A literal's place and its probes, for random literals of every kind and columns of every type.

One column, one value a row group: so the bounds of a row group are the value's PLAIN bytes as pyarrow
wrote them, and "is this row group skipped" is "is this value lost". Truth is exact arithmetic (truth.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from random_columns import FLAT, Column, Kind, _array, exact
from random_trees import ODD, Trees
from truth import _COMPARE, FALSE, TRUE, NoLiteralError, exact_literal

from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import ColumnStatistics, statistics_of
from parquet_bloom.format.values import operand
from parquet_bloom.predicates.bind import Schema, bind, terms_of
from parquet_bloom.predicates.outcomes import combine, term_masks
from parquet_bloom.predicates.tree import Compare
from parquet_bloom.storage.open_file import OpenFile

VALUES, LITERALS = 40, 80
# Beyond every type, between all values, and of the widths at which something ends.
FAR = (
    2**31, 2**32 - 1, 2**40, -(2**63), 2**63, 2**64, 10**38, -(10**60), 10**400, -(10**1200),
    Decimal("1E+400"), Decimal("-1E+400"), Decimal("1E+999999"), Decimal("1E-999999"), Decimal("-1E-400"),
    Decimal("Infinity"), Decimal("NaN"), Decimal("sNaN"), Decimal("0.5"), Decimal("-0.00"), 1e300, -1e300, 65520.0,
    3.4028235677973366e38, 5e-324, math.inf, -math.inf, math.nan, -0.0, "", b"", "\ud800", "2026-01-31", "20260131",
)  # fmt: skip


@dataclass
class Stored:
    """A column as pyarrow wrote it: value i is all that row group i holds; plain[i] is its bounds' bytes."""

    column: Column
    leaf: Leaf
    values: list[Any]
    plain: list[set[bytes]]
    facts: ColumnStatistics


def stored(kind: Kind, rng: Random, path: Path, **options: Any) -> Stored:
    column = Column("c", kind, "flat", False, kind.rule(rng), 0.0)
    raw = [*kind.specials, *(column.rule(rng.randint(-20, 20)) for _ in range(VALUES))]
    table = pa.table({"c": _array(raw, kind.type)})
    pq.write_table(table, path, row_group_size=1, use_dictionary=False, store_schema=False, **options)
    with OpenFile(str(path)) as source:
        leaf = source.outline().leaves[0]
        chunks = [group.columns[0].meta_data.statistics for group in source.footer().metadata.row_groups]
        plain = [{b for b in (s.min_value, s.max_value) if b is not None} for s in chunks]
        facts = statistics_of(source.outline(), leaf)
    return Stored(column, leaf, exact(table["c"]), plain, facts)


def literals(at: Stored, rng: Random) -> list[Any]:
    file = SimpleNamespace(columns=[at.column], groups=[{"c": [value]} for value in at.values])
    trees = Trees(rng, file)  # type: ignore[arg-type]
    return [*FAR, *ODD, *(trees.literal(at.column) for _ in range(LITERALS))]


def meanings(literal: Any, column: Column) -> list[Any]:
    """What engines may compare with: the literal, or, where no float is that, one of the floats beside it."""
    if literal == "\ud800":
        raise NoLiteralError
    exactly = exact_literal(literal, column)
    if isinstance(literal, Decimal) and literal.is_nan():
        raise NoLiteralError
    if column.kind.family != "float":
        return [exactly]
    kind = column.kind.type.to_pandas_dtype()
    with np.errstate(over="ignore"):
        try:
            nearest = kind(float(literal))
        except OverflowError:
            nearest = kind(math.copysign(math.inf, 1 if literal > 0 else -1))
        if Decimal(float(nearest)) == Decimal(literal):
            return [exactly]
        beside = [nearest, np.nextafter(nearest, kind(-math.inf)), np.nextafter(nearest, kind(math.inf))]
    return [exactly, *map(float, beside)]


VARIANTS = [(kind, {}) for kind in FLAT]
VARIANTS += [(kind, {"store_decimal_as_integer": True}) for kind in FLAT if kind.name in ("decimal9", "decimal18")]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.more) for seed in (1, 2))])
def test_place_and_probes_are_those_of_the_value_that_pyarrow_wrote(tmp_path: Path, seed: int) -> None:
    for number, (kind, options) in enumerate(VARIANTS):
        rng = Random(f"{kind.name} {seed}")
        at = stored(kind, rng, tmp_path / f"{number}.parquet", **options)
        equal = 0
        for literal in literals(at, rng):
            found = operand(literal, at.leaf)
            assert found.known or found.reason
            if found.known and not found.never and found.lower == found.upper:
                assert at.leaf.refusal or len(found.probes or ()) == 1 + (found.lower == 0.0 and kind.family == "float")
            try:
                meant = meanings(literal, at.column)
            except NoLiteralError:
                assert not found.probes, f"{literal!r} is no literal here, and must not be asked for"
                continue
            if not found.known:
                continue
            for i, value in enumerate(at.values):
                if value != value:
                    continue
                place = at.facts.lower[i]
                where = f"{literal!r} against {value!r} of {kind.name}"
                if any(value == one for one in meant):
                    assert not found.never, where
                    assert found.lower <= place <= found.upper, where
                    assert found.probes is None or at.plain[i] <= set(found.probes), where
                if value == meant[0]:
                    equal += 1
                    assert found.lower == found.upper == place, f"{where}: equal to a value is at its place"
                    zeros = value == 0 and kind.family == "float"
                    assert zeros or found.probes in (None, tuple(at.plain[i])), f"{where}: the bytes that pyarrow wrote"
                elif value < meant[0]:
                    assert place <= found.lower or place < found.upper, where
                else:
                    assert place >= found.upper or place > found.lower, where
        assert equal > 20, f"{kind.name}: literals that hit"


def test_no_literal_loses_a_row(tmp_path: Path) -> None:
    """Neither one that is a value, nor one between two values, beyond them all, or of another kind."""
    for number, (kind, options) in enumerate(VARIANTS):
        rng = Random(kind.name)
        at = stored(kind, rng, tmp_path / f"{number}.parquet", **options)
        schema = Schema((at.leaf,), strict=False)
        decided = 0
        for literal in literals(at, rng):
            if literal is None:
                continue
            try:
                meant = meanings(literal, at.column)
            except NoLiteralError:
                meant = []
            for op in _COMPARE:
                bound = bind(Compare(("c",), op, literal), schema)
                masks = combine(bound, [term_masks(term, at.facts) for term in terms_of(bound)], len(at.facts))
                for value, mask in zip(at.values, masks.tolist(), strict=True):
                    for one in meant:
                        outcome = TRUE if value == value and _COMPARE[op](value, one) else FALSE
                        assert mask & outcome, f"{value!r} {op} {literal!r} in {kind.name}"
                    decided += mask in (TRUE, FALSE)
                open_ = set(masks.tolist()) == {7}
                assert meant or kind.family == "float" or open_, f"{literal!r} is none for {kind.name}"
        assert decided > 2000, f"{kind.name}: bounds tell"
