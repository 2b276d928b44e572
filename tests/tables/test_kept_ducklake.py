"""Snapshots of DuckLake tables that a process keeps: equal to a fresh read, whatever changed in the catalog."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.ducklake_tables import Lake, fill, live_rows
from test_kept_snapshots import noted, settle

import parquet_bloom
from parquet_bloom.errors import RequestError
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.tables.ducklake import table as module
from parquet_bloom.tables.ducklake.databases import proof_of_database
from parquet_bloom.tables.ducklake.table import open_ducklake


@pytest.fixture(params=["duckdb", "sqlite"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path, request.param == "sqlite")
    yield made
    made.release()


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Who reads a snapshot of a catalog."""
    return noted(monkeypatch, module.Reader, "snapshot")


def settled(lake: Lake) -> Lake:
    """Close the catalog, and wait until a change can be told from the next one."""
    lake.release()
    settle()
    return lake


def read(lake: Lake, version: str | None = None) -> Snapshot:
    return open_ducklake(lake.name(), version).snapshot()


def ids(lake: Lake, version: str | None = None) -> list[int]:
    return sorted(row["id"] for row in live_rows(read(lake, version)))


def test_a_catalog_that_did_not_change_is_read_once(lake: Lake, plans: list[Any]) -> None:
    """Rows that it holds itself, added files and deletes among the others."""
    fill(lake)
    settled(lake)
    for _ in range(3):
        assert len(ids(lake)) == 101
    assert parquet_bloom.count(f"ducklake:{lake.name()}", "id = 1000") == 1
    assert len(plans) == 1
    for _ in range(2):
        assert parquet_bloom.inspect(f"ducklake:{lake.name()}").files, "without the rows in memory"
    assert len(plans) == 2


def files(lake: Lake, first: int) -> None:
    lake.sql("CREATE TABLE t (id BIGINT)", "CALL lake.set_option('data_inlining_row_limit', 0)")
    for n in range(3):
        lake.sql(f"INSERT INTO t VALUES ({first + n})")


def test_what_changes_without_a_snapshot_is_seen(lake: Lake) -> None:
    """A commit of ours, which gives rows other files; files that are merged; snapshots that expire."""
    files(lake, 0)
    settled(lake)
    before = read(lake)
    parquet_bloom.add_filters(f"ducklake:{lake.name()}", columns=["id"])
    now = read(lake)
    assert now.version == before.version
    assert {file.path for file in now.files}.isdisjoint(file.path for file in before.files)
    assert ids(lake) == [0, 1, 2]
    settled(lake)
    assert ids(lake) == [0, 1, 2]
    first = lake.snapshots()[-2]
    settled(lake)
    assert ids(lake, str(first)) == [0, 1]
    lake.sql("CALL ducklake_merge_adjacent_files('lake')")
    lake.release()
    assert ids(lake) == [0, 1, 2]
    lake.sql(f"CALL ducklake_expire_snapshots('lake', versions => [{first}])")
    lake.release()
    with pytest.raises(RequestError, match="no snapshot"):
        read(lake, str(first))


WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = wal")
connection.execute("PRAGMA wal_autocheckpoint = 0")
for line in sys.stdin:
    connection.execute(line)
    print("done", flush=True)
"""


@pytest.mark.parametrize("by_link", [False, True], ids=["by its name", "by a link"])
def test_a_commit_that_is_in_sqlites_log_alone_is_seen(tmp_path: Path, by_link: bool) -> None:
    """SQLite keeps its log beside the file that a link leads to; while it has something in it nothing is a proof."""
    lake = Lake(tmp_path, True)
    files(lake, 0)
    settled(lake)
    catalog = tmp_path / "link.sqlite" if by_link else lake.catalog
    if by_link:
        catalog.symlink_to(lake.catalog)
    assert proof_of_database(str(catalog), True) is not None
    gone = "data_file_id = (SELECT min(data_file_id) FROM ducklake_data_file WHERE end_snapshot IS NULL)"
    main = None
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, lake.catalog], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for left in (2, 1):
            writer.stdin.write(f"UPDATE ducklake_data_file SET end_snapshot = begin_snapshot WHERE {gone}\n")
            writer.stdin.flush()
            assert writer.stdout.readline() == "done\n"
            assert main in (None, lake.catalog.stat().st_mtime_ns), "it is in the log"
            for _ in range(2):
                assert len(open_ducklake(f"{catalog}/main.t", None).snapshot().files) == left
                time.sleep(0.12)
                assert proof_of_database(str(catalog), True) is None
            main = lake.catalog.stat().st_mtime_ns
        writer.stdin.close()
    lake.release()


def test_a_working_folder_that_is_gone_is_no_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path, True)
    files(lake, 0)
    settled(lake)
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert len(open_ducklake(f"{lake.catalog}/main.t", None).snapshot().files) == 3


def test_while_this_process_has_the_catalog_open_nothing_is_taken_as_known(tmp_path: Path, plans: list[Any]) -> None:
    lake = Lake(tmp_path, False)
    files(lake, 0)
    settled(lake)
    assert ids(lake) == ids(lake) == [0, 1, 2]
    assert len(plans) == 1
    with duckdb.connect(str(lake.catalog)) as mine:
        mine.execute("BEGIN")
        mine.execute("UPDATE ducklake_data_file SET end_snapshot = begin_snapshot WHERE data_file_id = 0")
        mine.execute("COMMIT")
        time.sleep(0.12)
        for _ in range(2):
            assert len(ids(lake)) == 2
    assert len(plans) == 3
