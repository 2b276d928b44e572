"""DNF lists and pyarrow expressions: the table that pyarrow.parquet.read_table gives, row for row."""

from __future__ import annotations

import datetime as dt
import urllib.parse
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.repeats import by_turns, first_then_more
from support.samples import same_rows

import parquet_bloom
from engines import floats, made, ordered

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


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.with_filters(tmp_path_factory.mktemp("ordered"), ordered.row_groups())


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
    [("dotted.name", "=", 7)], [("wide", "=", 0)], [("unsigned", ">", pa.scalar(2**63, pa.uint64()))],
    [("nothing", "=", 5)],
    [("small", "<", 3)], [("small", ">", 98.5)], [("i", "=", 1.5)], [("i", "=", 2**40)],
    field("i") == 50, pc.scalar(50) == field("i"), field("i") != 50, ~(field("i") > -280), field("i").isin([50, None]),
    ~field("i").isin([50]), field("i").is_null(), field("i").is_valid(),
    (field("i") == 50) | (field("s") == "name-090"),
    (field("i") > 0) & (field("i") < 30), ~((field("i") < 600) | field("ok")), field("person", "id") == -33,
    field("person", "id") > 58, field("person", "deep", "score") == 2.5, field("person", "mail").isin(["007@x"]),
    field("person", "id").is_null(), field("ok"), ~field("ok"), field("i") + 1 == 51,
    pc.starts_with(field("s"), "name-00"),
    field("x") == 0.0, field("x") == -0.0, field("x").isin([0.0, 1.0]), field("x").is_null(nan_is_null=True),
    (field("i") == 50) & pc.starts_with(field("s"), "name"), field("i").cast("int64") == 50, pc.scalar(True),
    pc.scalar(False), field("price") < Decimal("1.00"), field("ts") == DAY,
    field("tags").is_null(), field("person").is_valid(),
    (field("i") == field("small")), field("f") > 5.5, field("f") == pa.scalar(0.1, pa.float32()), field("f") == 0.1,
]  # fmt: skip


@pytest.mark.parametrize("first", first_then_more(range(3), 1))
def test_one_file(path: Path, first: int) -> None:
    for filters in FILTERS[first::3]:
        assert_same(path, filters)
        assert_same(path, filters, ["s", "person", "day"])


def test_columns(path: Path) -> None:
    """In the order asked for, the filter's column among them or not."""
    asked = [["i"], ["s", "i"], ["tags", "words"], ["person"], ["dotted.name", 'say "hi"'], ["id", "select"], []]
    for columns in asked:
        for filters in ([("i", "<", -270)], field("person", "id") > 58, [("i", "=", 51)], None):
            assert_same(path, filters, columns)


# --- nothing found ----------------------------------------------------------------------------------


NOTHING = ["i = 51", "i > 10000", "i = 4000000000", "i = 51 OR list_contains(tags, -5)", "FALSE"]


def test_nothing_found_has_the_schema_of_all(path: Path) -> None:
    for text, columns in by_turns(NOTHING, [None, ["s"], ["person", "id"], []]):
        whole = pq.read_table(path, columns=columns)
        empty = parquet_bloom.read_table(path, text, columns=columns)
        assert len(empty) == 0, text
        assert empty.schema.equals(whole.schema, check_metadata=True), text
        assert list(parquet_bloom.read_batches(path, text, columns)) == [], text
        assert parquet_bloom.count(path, text) == 0, text
        assert parquet_bloom.dataset(path, text).schema.names == pq.read_schema(path).names, text


def test_all_types_of_the_fixtures(tmp_path: Path) -> None:
    """Lists, maps and dictionaries come back as pyarrow has them, whatever the filter's column."""
    tables = made.row_groups()
    path = made.with_filters(tmp_path, tables)
    for table in tables:
        key = table["random_int64"][5].as_py()
        assert assert_same(path, [("random_int64", "=", key)]) == 1
    assert_same(path, field("struct_members", "number") > 2**62, ["struct_members", "list_of_structs"])


# --- several files ----------------------------------------------------------------------------------

KEYS = {
    "ints": ("year", [2024, 2025, 2026]),
    "texts": ("city", ["Kyiv", "São Paulo", "a b", "50%", "x=y"]),
    "with_null": ("city", ["Kyiv", None, "Oslo"]),
    "signed": ("n", [-1, 0, 1]),
    "mixed": ("code", ["1", "x", "007"]),
    "long": ("n", [5, 2**31]),
}


def hive(folder: Path, key: str, values: list[Any]) -> Path:
    for at, value in enumerate(values):
        name = "__HIVE_DEFAULT_PARTITION__" if value is None else urllib.parse.quote(str(value), safe="")
        where = folder / f"{key}={name}"
        where.mkdir(parents=True)
        pq.write_table(pa.table({"row": range(10 * at, 10 * at + 10), "v": [at] * 10}), where / "part.parquet")
    return folder


@pytest.mark.parametrize("case", KEYS)
def test_hive_folders(case: str, tmp_path: Path) -> None:
    key, values = KEYS[case]
    folder = hive(tmp_path / "data", key, values)
    given = [v for v in values if v is not None]
    filters: list[Any] = [[("row", "<", 15)], field(key).is_null(), field(key).is_valid(), [("v", "=", 1)]]
    if case != "long":  # pyarrow itself has no type for them
        filters += [[(key, "=", given[0])], [(key, "!=", given[0])], [(key, "in", given[1:])], [(key, ">", given[0])]]
        filters += [[(key, "=", given[1]), ("row", ">", 12)], [[(key, "=", given[0])], [("row", "=", 25)]]]
    for turn, wanted in enumerate(filters, list(KEYS).index(case)):  # the columns by turns, of each case others first
        assert_same(folder, wanted, *[(), (["row", key],), (["v"],)][turn % 3])


def test_two_levels_of_folders(tmp_path: Path) -> None:
    for year in (2025, 2026):
        hive(tmp_path / f"year={year}", "city", ["Kyiv", "a%2Fb", None])
    filters: list[Any] = [[("year", "=", 2026)], [("year", "=", 2026), ("city", "=", "Kyiv")], [("city", "=", "a%2Fb")],
                          [("year", ">", 2025), ("row", "=", 3)], field("city").is_null()]  # fmt: skip
    for wanted in filters:
        assert_same(tmp_path, wanted)
        assert_same(tmp_path, wanted, ["row"])


def test_files_that_lack_columns(tmp_path: Path) -> None:
    """A column that only the first has is NULL in the others."""
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": [1.5, None, 2.5]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": [2, 3, 4]}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"c": [2.5, 0.5], "a": [5, 1]}), tmp_path / "3.parquet")
    filters: list[Any] = [[("a", "=", 2)], [("b", "=", "y")], [("b", "!=", "y")], field("b").is_null(), [("c", ">", 2)],
                          field("c").is_null(), [[("b", "=", "x")], [("a", ">", 3)]], ~(field("b") == "x")]  # fmt: skip
    for wanted in filters:
        assert_same(tmp_path, wanted)
        assert_same(tmp_path, wanted, ["a"])
        assert_same(tmp_path, wanted, ["c", "b"])
    files = [str(tmp_path / f"{i}.parquet") for i in (3, 1)]
    assert_same(files, [("a", "<", 3)])


def test_rows_with_nan_are_not_lost(tmp_path: Path) -> None:
    """~(x < 5) over NaN: pyarrow's scanner goes by min and max and loses it; its filter over the table does not."""
    path = floats.write(tmp_path)
    whole = pq.read_table(path)
    for wanted in ([("x", "!=", 5.0)], ~(field("x") < 5), ~field("f").isin([0.0, 5.0]), field("x") == 5.0,
                   field("x").is_nan(), field("x").is_null(nan_is_null=True), [("x", "in", [5.0, 20.0])]):  # fmt: skip
        expression = pq.filters_to_expression(wanted) if isinstance(wanted, list) else wanted
        ours = parquet_bloom.read_table(path, wanted)
        assert same_rows(ours, whole.filter(expression)), wanted
