"""Folders' keys that the files have as columns too, as Polars and DuckDB write them: the folder's value counts."""

from __future__ import annotations

import datetime as dt
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import FilterWarning, RequestError

Row = dict[str, Any]
READERS: dict[str, Callable[[Path, str], list[Row]]] = {
    "read_table": lambda path, where: parquet_bloom.read_table(path, where).to_pylist(),
    "read_batches": lambda path, where: [
        row for batch in parquet_bloom.read_batches(path, where) for row in batch.to_pylist()
    ],
    "dataset": lambda path, where: parquet_bloom.dataset(path, where).to_table(filter=expression(where)).to_pylist(),
    "scan_polars": lambda path, where: parquet_bloom.scan_polars(path).filter(pl.sql_expr(where)).collect().to_dicts(),
}


def expression(where: str) -> Any:
    """`day = 7 AND id < 3` and its like, for pyarrow."""
    day, comparison = where.split(" AND ")
    return (ds.field("day") == int(day.split()[-1])) & (ds.field("id") < int(comparison.split()[-1]))


def sorted_rows(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("writer", ["polars", "duckdb"])
def test_folders_of_their_writers_are_read_as_they_read_them(tmp_path: Path, writer: str) -> None:
    rows = pl.DataFrame({"id": range(12), "day": [n // 4 for n in range(12)], "v": [n % 3 for n in range(12)]})
    if writer == "polars":
        rows.write_parquet(tmp_path / "t", partition_by=["day"])
    else:
        target = f"'{tmp_path / 't'}' (FORMAT parquet, PARTITION_BY (day), WRITE_PARTITION_COLUMNS)"
        duckdb.sql(f"COPY rows TO {target}")
    parquet_bloom.add_filters(tmp_path / "t", columns=["id", "day"], in_place=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the same values: nothing to note
        assert parquet_bloom.read_table(tmp_path / "t").schema.names == ["id", "day", "v"], "the key stays in its place"
        assert parquet_bloom.scan_polars(tmp_path / "t").collect().equals(pl.scan_parquet(tmp_path / "t").collect())
        for reader in READERS.values():
            for day in range(4):
                where = f"day = {day} AND id < 6"
                found = duckdb.sql(
                    f"SELECT * FROM read_parquet('{tmp_path}/t/**/*.parquet', hive_partitioning = true) WHERE {where}"
                )
                assert sorted_rows(reader(tmp_path / "t", where)) == sorted_rows(found.to_arrow_table().to_pylist())


def test_where_they_differ_the_folder_is_right_and_a_warning_names_the_file(tmp_path: Path) -> None:
    pl.DataFrame({"id": range(4), "day": [1, 1, 2, 2]}).write_parquet(tmp_path / "t", partition_by=["day"])
    (tmp_path / "t/day=1").rename(tmp_path / "t/day=7")
    parquet_bloom.add_filters(tmp_path / "t", columns=["id", "day"], in_place=True)
    for reader in READERS.values():
        with pytest.warns(FilterWarning, match=r"day=7.*column day has other values than its folder, day=7"):
            assert reader(tmp_path / "t", "day = 7 AND id < 9") == [{"id": 0, "day": 7}, {"id": 1, "day": 7}]
        assert reader(tmp_path / "t", "day = 1 AND id < 9") == []
    assert parquet_bloom.count(tmp_path / "t", "day = 7") == 2
    assert parquet_bloom.count(tmp_path / "t", "day = 1") == 0
    assert [Path(path).parent.name for path, _ in parquet_bloom.prune(tmp_path / "t", "day = 7")] == ["day=7"]
    assert [Path(path).parent.name for path, _ in parquet_bloom.prune(tmp_path / "t", column="day", values=[7])] == [
        "day=7"
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parquet_bloom.read_table(tmp_path / "t", columns=["id"]).num_rows == 4  # the key is not read


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pl.DataFrame({"id": range(4), "day": [1, 1, 2, 2]}).write_parquet(tmp_path / "t", partition_by=["day"])
    assert run(["read", str(tmp_path / "t"), "day = 2 AND id < 3", "--format", "ndjson"]) == 0
    assert capsys.readouterr().out == '{"id": 2, "day": 2}\n'


TYPES: list[tuple[str, pa.DataType, Any, bool]] = [
    ("01", pa.string(), "01", False), ("01", pa.string(), "1", True), ("1", pa.int8(), 1, False),
    ("1", pa.float64(), 1.0, False), ("x", pa.string(), "x", False),
    ("x", pa.dictionary(pa.int32(), pa.string()), "y", True), ("2026-01-02", pa.date32(), dt.date(2026, 1, 2), False),
    ("2026-01-02", pa.date32(), dt.date(2026, 1, 3), True),
    ("true", pa.bool_(), False, False),  # a text and a BOOLEAN are not compared
    ("__HIVE_DEFAULT_PARTITION__", pa.int64(), None, False), ("__HIVE_DEFAULT_PARTITION__", pa.int64(), 5, True),
    ("1", pa.struct({"x": pa.int64()}), {"x": 1}, False), ("1", pa.list_(pa.int64()), [1], False),
]  # fmt: skip


def test_types_of_the_column_in_the_files(tmp_path: Path) -> None:
    for number, (folder, kind, value, differs) in enumerate(TYPES):
        plain, both = (tmp_path / f"{number}{name}" for name in ("plain", "both"))
        for root in (plain, both):
            (root / f"key={folder}").mkdir(parents=True)
        ids = pa.array([1, 2], pa.int64())
        pq.write_table(pa.table({"id": ids}), plain / f"key={folder}" / "a.parquet")
        key = pa.array([value, value], kind)
        pq.write_table(pa.table({"id": ids, "key": key}), both / f"key={folder}" / "a.parquet")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            found = parquet_bloom.read_table(both, "id = 2")
            assert parquet_bloom.read_table(both, "key IS NULL").num_rows == 2 * folder.startswith("__HIVE")
        assert found.equals(parquet_bloom.read_table(plain, "id = 2")), (folder, kind)
        assert any(one.category is FilterWarning for one in seen) == differs, (folder, kind)


def test_a_far_int96_that_a_key_hides_is_no_error(tmp_path: Path) -> None:
    folder = tmp_path / "t" / "at=1"
    folder.mkdir(parents=True)
    times = pa.array([dt.datetime(9999, 12, 31)], pa.timestamp("us"))
    pq.write_table(pa.table({"id": [1], "at": times}), folder / "a.parquet", use_deprecated_int96_timestamps=True)
    assert parquet_bloom.read_table(tmp_path / "t").to_pylist() == [{"id": 1, "at": 1}]


def test_two_columns_of_the_keys_name(tmp_path: Path) -> None:
    folder = tmp_path / "t" / "day=1"
    folder.mkdir(parents=True)
    columns = [pa.array([1]), pa.array([2]), pa.array([3])]
    pq.write_table(pa.Table.from_arrays(columns, names=["id", "day", "day"]), folder / "a.parquet")
    with pytest.raises(RequestError, match="2 columns named day"):
        parquet_bloom.read_table(tmp_path / "t")
    assert parquet_bloom.read_table(tmp_path / "t", columns=["id"]).to_pylist() == [{"id": 1}]


@pytest.mark.parametrize("examples", first_then_more([15, 40], 1))
@pytest.mark.filterwarnings("ignore::parquet_bloom.errors.FilterWarning")
def test_rows_are_those_of_brute_force(tmp_path_factory: pytest.TempPathFactory, examples: int) -> None:
    """Files say anything about the key; folders say what counts."""

    @settings(max_examples=examples, deadline=None)
    @given(seed=st.integers(0, 2**32 - 1))
    def hold(seed: int) -> None:
        rows_are_those_of_brute_force(tmp_path_factory.mktemp("t"), random.Random(seed))

    hold()


def rows_are_those_of_brute_force(root: Path, chance: random.Random) -> None:
    rows: list[Row] = []
    for number in range(chance.randint(1, 4)):
        day = chance.randint(1, 4)
        own = [{"id": len(rows) + n, "day": chance.choice([day, 1, 2, 3, None])} for n in range(chance.randint(1, 6))]
        path = root / f"day={day}" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        kind = chance.choice([pa.int8(), pa.int64(), pa.float32()])
        columns = {"day": pa.array([row["day"] for row in own], kind), "id": pa.array([row["id"] for row in own])}
        pq.write_table(pa.table(columns), path, row_group_size=chance.randint(1, 3))
        rows += [{**row, "day": day} for row in own]
    parquet_bloom.add_filters(root, columns=["id", "day"], in_place=True, sync=False)
    day, low = chance.randint(0, 5), chance.randint(0, len(rows))
    expected = [row for row in rows if row["day"] == day and row["id"] < low]
    where = f"day = {day} AND id < {low}"
    for name, reader in READERS.items():
        assert sorted_rows(reader(root, where)) == expected, (name, where)
    assert parquet_bloom.count(root, where) == len(expected)
    assert parquet_bloom.count(root, f"NOT ({where})") == len(rows) - len(expected)
