"""Filters in DuckLake tables: DuckDB gives the rows it gave, at every snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ducklake_tables import NOTHING_INLINED, Lake, sorted_rows
from support.meanwhile import a_filter_built, meanwhile

import parquet_bloom as pb
from parquet_bloom.cli import run
from parquet_bloom.tables.ducklake.table import open_ducklake

ROWS = "SELECT (i * 7919) % 1000003 AS id, md5(i::VARCHAR) AS s FROM range({}, {}) r(i)"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path, True)
    made.sql(
        NOTHING_INLINED,
        f"CREATE TABLE t AS {ROWS.format(0, 400)}",
        f"INSERT INTO t {ROWS.format(400, 800)}",
        "DELETE FROM t WHERE id % 10 = 0",
    )
    yield made
    made.release()


def rows(lake: Lake, version: int | None = None) -> list[str]:
    at = "" if version is None else f" AT (VERSION => {version})"
    return sorted_rows(lake.answer(f"SELECT * FROM t{at}"))


def filtered(lake: Lake) -> list[set[str]]:
    lake.release()
    paths = [file.path for file in open_ducklake(lake.name(), None).snapshot().files]
    if not paths:
        return []
    return [{one.column for one in file.filters} for file in pb.inspect(paths, raw_files=True).files]


def ours(lake: Lake) -> list[str]:
    lake.release()
    return sorted_rows(pb.read_table(f"ducklake:{lake.name()}").to_pylist())


def test_old_files_go_with_ducklakes_own_clean_up(lake: Lake) -> None:
    before = rows(lake)
    lake.release()
    pb.add_filters(f"ducklake:{lake.name()}", columns=["id"])
    lake.sql("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    assert rows(lake) == before
    lake.release()
    left = {str(path) for path in lake.data.rglob("*.parquet") if "delete" not in path.name}
    assert left == {file.path for file in open_ducklake(lake.name(), None).snapshot().files}


def test_the_command_names_no_snapshot_that_it_did_not_make(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.release()
    assert run(["add", f"ducklake:{lake.name()}", "--column", "id"]) == 0
    said = " ".join(capsys.readouterr().out.split())  # long paths are folded
    assert re.search(r" committed to ducklake:\S*main\.t: 2 files$", said)


def test_a_truncate_meanwhile_leaves_no_row(lake: Lake) -> None:
    """Other commits meanwhile: test_table_contract.py."""

    def truncate() -> None:
        lake.sql("TRUNCATE t")
        lake.release()

    lake.release()
    progress = meanwhile(truncate, a_filter_built)
    report = pb.add_filters(f"ducklake:{lake.name()}", columns=["id"], progress=progress)
    assert report.failed == []
    assert rows(lake) == ours(lake) == []
