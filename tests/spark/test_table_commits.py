"""A table's files get filters from executors, and the driver's commits name them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.plain_table import PlainTable

from parquet_bloom import inspect
from parquet_bloom.edit.plan import Request
from parquet_bloom.edit.table_commit import Committing
from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.spark.add import add_filters, add_to_table

pytestmark = pytest.mark.spark
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def made(folder: Path, files: int = 5) -> PlainTable:
    table = PlainTable(folder, SCHEMA)
    random = np.random.default_rng(0)
    for _ in range(files):
        table.append(pa.table([random.integers(0, 2**60, 2000), np.arange(2000)], schema=SCHEMA), 500)
    return table


def filters(table: PlainTable) -> list[int]:
    return [len(inspect(str(table.folder / name)).files[0].filters) for name in table.entries()]


def add(spark, table, **how):
    request = Request.checked(columns=["id"], threads=1, cached=False)
    return add_to_table(spark, table, request, Committing("add", **how))


@pytest.mark.parametrize("way", ["new-path", "same-path"])
def test_one_commit_by_the_driver(spark, tmp_path, way):
    table = made(tmp_path / "table")
    rows, named = table.rows(), set(table.entries())
    report, commits = add(spark, table, way=way)
    assert [(c.files, c.same_path) for c in commits] == [(5, 5 if way == "same-path" else 0)]
    assert {row["status"] for row in report} == {"done"}
    assert sum(row["filters"] for row in report) == 20
    assert filters(table) == [4] * 5
    assert table.rows().sort_by("id") == rows.sort_by("id")
    again, commits = add(spark, table, way=way)
    assert commits == []
    assert {row["status"] for row in again} == {"unchanged"}
    assert table.files() == named | set(table.entries()), "nothing else was left"


def test_a_delete_meanwhile_is_not_undone(spark, tmp_path):
    table = made(tmp_path / "table", 3)
    gone = next(iter(table.entries()))

    def drop(t: PlainTable) -> None:
        t.before_commit = lambda _: None
        t.drop(gone)

    table.before_commit = drop
    _, commits = add(spark, table)
    assert [commit.files for commit in commits] == [2]
    assert table.rows().num_rows == 4000, "rows of a file that was deleted do not come back"
    assert filters(table) == [4, 4]


def test_a_commit_that_fails_leaves_nothing(spark, tmp_path):
    table = made(tmp_path / "table", 3)
    files, rows = table.files(), table.rows()

    def fail(_: PlainTable) -> None:
        raise StorageError("log", "no space left on device")

    table.before_commit = fail
    with pytest.raises(StorageError, match="no space left"):
        add(spark, table)
    assert table.files() == files
    assert table.rows() == rows


def test_what_is_wrong_with_a_file_is_in_its_row(spark, tmp_path):
    table = made(tmp_path / "table", 3)
    first = next(iter(table.entries()))
    (table.folder / first).write_bytes(bytes(table.entries()[first]))
    report, commits = add(spark, table)
    assert sorted(row["status"] for row in report) == ["done", "done", "failed"]
    assert [commit.files for commit in commits] == [2]


def test_a_delta_table(spark, tmp_path):
    random = np.random.default_rng(0)
    root = str(tmp_path / "events")
    for part in range(3):
        rows = {"id": random.integers(0, 2**60, 1000), "part": [f"p {part % 2}"] * 1000}
        write_deltalake(root, pa.table(rows), mode="append", partition_by=["part"])
    before = DeltaTable(root).to_pyarrow_table().sort_by("id")
    report = add_filters(spark, [f"delta:{root}"], columns=["id"], files_per_commit=2).collect()
    assert [(row.status, row.filters) for row in report] == [("done", 1)] * 3
    assert DeltaTable(root).version() == 4
    assert DeltaTable(root).to_pyarrow_table().sort_by("id") == before
    assert {len(file.filters) for file in inspect(f"delta:{root}").files} == {1}
    again = add_filters(spark, [f"delta:{root}"], columns=["id"]).collect()
    assert {row.status for row in again} == {"unchanged"}


def test_a_tables_change_is_its_commit(spark, tmp_path):
    with pytest.raises(RequestError, match="in_place=True is for files"):
        add_filters(spark, [f"delta:{tmp_path}"], in_place=True)
    with pytest.raises(RequestError, match="is for tables"):
        add_filters(spark, [str(tmp_path)], in_place=True, commit="new-path")
