"""`x = 0.0` finds a stored -0.0, and `x = -0.0` a stored 0.0, in every engine that uses our filters.

The two zeros are equal and hash differently. Engines ask a filter for the one they were given, so
with the filters of other writers rows get lost; in ours both are there as soon as one is stored.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from engines import made
from engines.asking import DataFusion, duckdb, skipped_by_check
from parquet_bloom import add_filters

TYPES = {"DOUBLE": pa.float64(), "FLOAT": pa.float32()}
ZEROS = {"0.0": 0.0, "-0.0": -0.0}
ROWS = 2  # with a zero, in row group 1 of 3

# What lies around the zero: bounds that hold it inside, bounds that are it, and no bounds at all.
BOUNDS = {
    "inside": ([-1.5, 2.5], {}),
    "only_zeros": ([], {}),
    "no_statistics": ([-1.5, 2.5], {"write_statistics": False}),
}


def without_zero(kind: pa.DataType) -> pa.Table:
    """A row group whose bounds hold zero inside, and which only a filter can exclude."""
    return pa.table({"x": pa.array([-7.25, 8.25, 1.0], kind)})


@pytest.mark.parametrize("stored", ZEROS)
@pytest.mark.parametrize(("kind", "bounds", "place"), [
    ("DOUBLE", "inside", "footer"), ("FLOAT", "only_zeros", "chunk-start"), ("DOUBLE", "only_zeros", "footer"),
    ("FLOAT", "inside", "footer"), ("DOUBLE", "no_statistics", "chunk-start"),
])  # fmt: skip
def test_engines_find_the_rows(kind: str, stored: str, bounds: str, place: str, tmp_path: Path) -> None:
    """Three row groups, the second with zeros of one sign; asked for both."""
    ours, (around, options) = tmp_path / "ours.parquet", BOUNDS[bounds]
    zeros = pa.table({"x": pa.array(around + [ZEROS[stored]] * ROWS, TYPES[kind])})
    tables = [without_zero(TYPES[kind]), zeros, without_zero(TYPES[kind])]
    source = made.write(tmp_path / "source.parquet", tables, **options)
    add_filters(source, ours, placement=place, sync=False, columns=["*"])
    for asked, zero in ZEROS.items():
        assert skipped_by_check(ours, "x", asked) == [True, False, True], asked
        in_duckdb(ours, asked, kind)
        rows, by_statistics, by_filters = DataFusion().ask(ours, "x", pa.scalar(zero, TYPES[kind]))
        assert rows == ROWS
        assert by_statistics + by_filters == 2, "the other row groups are excluded, so the filters were in use"
        polars = pytest.importorskip("polars")
        for wanted in (polars.col("x") == zero, polars.col("x").is_in([zero, 123.5])):
            assert polars.scan_parquet(ours).filter(wanted).collect().height == ROWS
        assert polars.read_parquet(ours).filter(polars.col("x") == zero).height == ROWS
        assert pq.read_table(ours, filters=[("x", "=", zero)]).num_rows == ROWS
        assert ds.dataset(ours).to_table(filter=ds.field("x") == zero).num_rows == ROWS


def in_duckdb(ours: Path, asked: str, kind: str) -> None:
    with duckdb() as engine:
        assert engine.excludes(ours, "x", f"'{asked}'::{kind}") == [True, False, True]
        for literal in (f"'{asked}'::{kind}", asked):
            assert engine.count(ours, f"x = {literal}") == ROWS
            assert engine.count(ours, f"x IN ({literal}, 123.5)") == ROWS


def test_replaced_filters_of_other_writers_lose_no_row(tmp_path: Path) -> None:
    """Theirs hold one zero only; replaced by ours, they hold both."""
    columns = ["only_negative_zero", "only_negative_zero_float"]
    for name in ("pyarrow/types_filters", "datafusion/types", "spark/no_dictionary"):
        ours = tmp_path / f"{name.partition('/')[0]}.parquet"
        add_filters(made.fixture(name), ours, columns=columns, replace=True, sync=False)
        for column in columns:
            stored = pq.read_table(ours, columns=[column])[column]
            for zero in ZEROS.values():
                assert DataFusion().ask(ours, column, pa.scalar(zero, stored.type))[0] == len(stored), (name, column)
            with duckdb() as engine:
                for zero in ZEROS:
                    assert engine.count(ours, f"{column} = {zero}") == len(stored), (name, column)
