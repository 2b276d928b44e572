"""UINT64 with values of 2^63 and more: every form of predicate finds what is stored, as plain Python does."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.repeats import first_then_more

import parquet_bloom

VALUES = [0, 1, 5, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1]
OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unsigned")
    inner = pa.array([{"h": v} for v in [*VALUES, None]], pa.struct([("h", pa.uint64())]))
    table = pa.table({"h": pa.array([*VALUES, None], pa.uint64()), "s": inner})
    pq.write_table(table, folder / "plain.parquet", row_group_size=3)
    parquet_bloom.add_filters(folder / "plain.parquet", folder / "u.parquet", columns=["h", "s.h"])
    return folder / "u.parquet"


def found(path: Path, predicate: Any) -> list[int]:
    rows = parquet_bloom.read_table(path, predicate)["h"].to_pylist()
    assert parquet_bloom.count(path, predicate) == len(rows)
    assert sum(not verdict.skipped for verdict in parquet_bloom.check(path, predicate)) >= bool(rows)
    batches = parquet_bloom.read_batches(path, predicate)
    assert [value for batch in batches for value in batch.column(0).to_pylist()] == rows
    return rows


ASKED = [1 << 63, (1 << 63) - 1, (1 << 64) - 1, 2, 0, 1, 5, (1 << 63) + 1, (1 << 63) + 5]


@pytest.mark.parametrize("value", first_then_more(ASKED, 4))
def test_a_comparison_in_each_form(value: int, file: Path) -> None:
    for op, compare in OPERATORS.items():
        expected = [one for one in VALUES if compare(one, value)]
        scalar = pa.scalar(value, pa.uint64())
        for predicate in (f"h {op} {value}", [("h", op, value)], [[("h", op, value)]], compare(pc.field("h"), scalar)):
            assert found(file, predicate) == expected, predicate
        if value < 1 << 63:
            assert found(file, compare(pc.field("h"), value)) == expected
            assert found(file, compare(pc.field("s", "h"), value)) == expected
        assert found(file, f"s.h {op} {value}") == expected


def test_lists_and_values(file: Path) -> None:
    for values in ([1, 1 << 63], [5], [(1 << 64) - 1, 7], [1, 5]):
        expected = [one for one in VALUES if one in values]
        assert found(file, [("h", "in", values)]) == expected
        others = [one for one in found(file, [("h", "not in", values)]) if one is not None]  # pyarrow's isin: no NULL
        assert others == [one for one in VALUES if one not in values]
        assert found(file, f"h IN ({', '.join(map(str, values))})") == expected
        assert found(file, pc.field("h").isin(pa.array(values, pa.uint64()))) == expected
        assert parquet_bloom.locate(file, "h", values).num_rows >= len(expected)
        kept = parquet_bloom.prune(file, column="h", values=values)
        assert bool(list(kept)) == bool(expected)
        assert parquet_bloom.scan_polars(file).filter(pl.col("h").is_in(values)).collect()["h"].to_list() == expected


def test_an_integer_that_no_uint64_holds_is_no_literal(file: Path) -> None:
    with pytest.raises(parquet_bloom.RequestError, match="is no literal"):
        parquet_bloom.check(file, [("h", "=", 1 << 64)])
