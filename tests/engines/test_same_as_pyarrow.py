"""DNF lists and pyarrow expressions: the table that pyarrow.parquet.read_table gives, row for row."""

from __future__ import annotations

import datetime as dt
import urllib.parse
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from engines import floats, made, ordered
from parquet_bloom import add_filters
from samples import same_rows

field = pc.field


def assert_same(path: Any, filters: Any, columns: list[str] | None = None, theirs: Any = None) -> int:
    """Our table and pyarrow's, and our batches; returns the number of rows."""
    theirs = pq.read_table(path if theirs is None else theirs, filters=filters, columns=columns)
    ours = parquet_bloom.read_table(path, filters=filters, columns=columns)
    assert same_rows(ours, theirs), f"{filters}: {len(ours)} rows, pyarrow has {len(theirs)}"
    batches = list(parquet_bloom.read_batches(path, filters, columns, batch_rows=7))
    assert all(0 < len(batch) <= 7 for batch in batches)
    assert same_rows(pa.Table.from_batches(batches, ours.schema), theirs)
    assert parquet_bloom.count(path, filters) == len(theirs)
    return len(theirs)


def written(folder: Path, tables: Any) -> Path:
    source = made.write(folder / "source.parquet", tables)
    add_filters(source, folder / "ours.parquet", columns=made.leaves(source), sync=False)
    return folder / "ours.parquet"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("ordered"), ordered.row_groups())


DAY = dt.datetime(2026, 1, 5)
FILTERS: list[Any] = [
    [("i", "=", 50)], [("i", "==", 51)], [("i", "!=", 50)], [("i", "<", -250), ("i", ">", -280)], [("i", ">=", 690)],
    [[("i", "=", 50)], [("s", "=", "name-036")]], [[("i", "<", -290)], [("i", ">", 680), ("small", "<=", 99)]],
    [("i", "in", [0, 10, 11])], [("i", "not in", [0, 10])], [("i", "in", {50})], [("s", "in", ("name-001", "x"))],
    [("s", "<", "name-003")], [("colour", "=", "red"), ("s", ">", "name-09")], [("day", ">", dt.date(2026, 4, 8))],
    [("day", "=", dt.date(2026, 2, 1))], [("ts", ">=", dt.datetime(2026, 1, 25))], [("ok", "=", True)],
    [("utc", "=", dt.datetime(2026, 1, 5, tzinfo=dt.UTC))], [("clock", "<", dt.time(1))], [("ok", "!=", True)],
    [("price", "=", Decimal("1.25"))], [("x", "<", -9.5)], [("x", ">", 14)], [("b", "=", b"\x07\0")],
    [("b", "in", [b"\0\0", b"\x63\0"])], [("fixed", "=", pa.scalar(b"\x07\0\0", pa.binary(3)))],
    [("dotted.name", "=", 7)], [("wide", "=", 0)], [("unsigned", ">", 2**63)], [("nothing", "=", 5)],
    [("small", "<", 3)], [("small", ">", 98.5)], [("i", "=", 1.5)], [("i", "=", 2**40)],
    field("i") == 50, 50 == field("i"), field("i") != 50, ~(field("i") > -280), field("i").isin([50, None]),
    ~field("i").isin([50]), field("i").is_null(), field("i").is_valid(), (field("i") == 50) | (field("s") == "name-090"),
    (field("i") > 0) & (field("i") < 30), ~((field("i") < 600) | field("ok")), field("person", "id") == -33,
    field("person", "id") > 58, field("person", "deep", "score") == 2.5, field("person", "mail").isin(["007@x"]),
    field("person", "id").is_null(), field("ok"), ~field("ok"), field("i") + 1 == 51, pc.starts_with(field("s"), "name-00"),
    field("x") == 0.0, field("x") == -0.0, field("x").isin([0.0, 1.0]), field("x").is_null(nan_is_null=True),
    (field("i") == 50) & pc.starts_with(field("s"), "name"), field("i").cast("int64") == 50, pc.scalar(True),
    pc.scalar(False), field("price") < 1, field("ts") == DAY, field("tags").is_null(), field("person").is_valid(),
    (field("i") == field("small")), field("f") > 5.5, field("f") == pa.scalar(0.1, pa.float32()), field("f") == 0.1,
]  # fmt: skip


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_one_file(path: Path, filters: Any) -> None:
    if "fixed" in str(filters) or "nothing" in str(filters) or not isinstance(filters, list):
        columns = None
    else:
        columns = ["s", "person", "day"]
    assert_same(path, filters)
    assert_same(path, filters, columns)


@pytest.mark.parametrize(
    "columns", [["i"], ["s", "i"], ["tags", "words"], ["person"], ["dotted.name", 'say "hi"'], ["id", "select"], []]
)
def test_columns(path: Path, columns: list[str]) -> None:
    """In the order asked for, the filter's column among them or not."""
    for filters in ([("i", "<", -270)], field("person", "id") > 58, [("i", "=", 51)], None):
        assert_same(path, filters, columns)
