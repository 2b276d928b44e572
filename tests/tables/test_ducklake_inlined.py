"""Rows that a DuckLake catalog holds itself: every reader of ours gives them as DuckLake does."""

from __future__ import annotations

import pickle
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyarrow import fs
from support.ducklake_tables import Lake, live_rows, sorted_rows, unsound

import parquet_bloom as pb
from parquet_bloom.errors import RequestError, StorageError, TableFormatError
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.tables.ducklake.inlined import OneFile
from parquet_bloom.tables.ducklake.table import open_ducklake
from parquet_bloom.zones.build import build_index

VALUES = {  # of each type, as SQL has them
    "BOOLEAN": "true",
    "TINYINT": "-128",
    "SMALLINT": "-32768",
    "INTEGER": "2147483647",
    "BIGINT": "-9223372036854775808",
    "HUGEINT": "170141183460469231731687303715884105727",
    "UTINYINT": "255",
    "USMALLINT": "65535",
    "UINTEGER": "4294967295",
    "UBIGINT": "18446744073709551615",
    "FLOAT": "0.1",
    "DOUBLE": "1e-310",
    "DECIMAL(4,1)": "-99.5",
    "DECIMAL(38,2)": "-123456789012345678901234567890123456.78",
    "VARCHAR": "'a''b\"\\x00, {NULL}'",
    "BLOB": "'\\x00\\xFFab'::BLOB",
    "DATE": "DATE '0001-01-01'",
    "TIME": "TIME '12:34:56.789'",
    "TIMESTAMP": "TIMESTAMP '1969-12-31 23:59:59.123456'",
    "TIMESTAMP_S": "TIMESTAMP_S '2020-01-01 00:00:01'",
    "TIMESTAMP_MS": "TIMESTAMP_MS '2020-01-01 00:00:00.123'",
    "TIMESTAMP_NS": "TIMESTAMP_NS '2020-01-01 00:00:00.123456789'",
    "TIMESTAMPTZ": "TIMESTAMPTZ '2020-01-01 00:00:00+02'",
    "INTERVAL": "INTERVAL '3 days 1 second'",
    "JSON": """'{"a": 1}'""",
    "UUID": "'550e8400-e29b-41d4-a716-446655440000'",
    "STRUCT(a INT, b VARCHAR)": "{'a': 1, 'b': 'x, \"y''}'}",
    "INT[]": "[1, NULL, 3]",
    "VARCHAR[]": "['', 'NULL', NULL, 'a, b]']",
    "MAP(VARCHAR, INT)": "MAP {'k=1': 1, 'l, m': NULL}",
    "STRUCT(x TIMESTAMP, y INT[])[]": "[{'x': TIMESTAMP '2020-01-01', 'y': [7]}, NULL]",
}


def read(lake: Lake, stored_only: bool = False) -> Snapshot:
    lake.release()
    return open_ducklake(lake.name(), None).snapshot(stored_only)


def named(lake: Lake) -> str:
    lake.release()
    return f"ducklake:{lake.name()}"


@pytest.fixture
def streamed(small: Lake) -> Lake:
    """A file of 3,000 rows, and rows that came one by one: two live ones, under two schemas."""
    small.sql(
        "CREATE TABLE t AS SELECT i::BIGINT AS id, md5(i::VARCHAR) AS s FROM range(3000) r(i)",
        "INSERT INTO t VALUES (5000, 'first'), (5001, 'gone')",
        "ALTER TABLE t RENAME s TO text",
        "INSERT INTO t VALUES (5002, 'second')",
        "DELETE FROM t WHERE id IN (5001, 17)",
    )
    return small


def test_values_of_every_type(lake: Lake) -> None:
    columns = ", ".join(f"c{i} {kind}" for i, kind in enumerate(VALUES))
    lake.sql(f"CREATE TABLE t (id INT, {columns})", f"INSERT INTO t VALUES (1, {', '.join(VALUES.values())})")
    lake.sql("INSERT INTO t (id) VALUES (2)")
    for name in (f"c{list(VALUES).index(kind)}" for kind in ("FLOAT", "DOUBLE")):
        lake.sql(f"INSERT INTO t (id, {name}) VALUES (3, 'nan'), (4, '-inf'), (5, '-0.0'), (6, 1.0 / 3)")
    expected = lake.answer("SELECT * FROM t")
    snapshot = read(lake)
    assert sorted_rows(live_rows(snapshot)) == sorted_rows(expected)
    assert {file.stored for file in snapshot.files} == {False}
    assert unsound(snapshot) == []
    lake.sql("CALL ducklake_flush_inlined_data('lake')")
    flushed = read(lake)
    assert {file.stored for file in flushed.files} == {True}
    assert sorted_rows(live_rows(flushed)) == sorted_rows(expected), "the same as in a file"


def test_odd_names_are_found_by_their_ids(lake: Lake) -> None:
    lake.sql(
        """CREATE TABLE t ("a ""b'" INT, "SELECT" STRUCT("x y" INT, "q-2" INT[]))""",
        "INSERT INTO t VALUES (1, {'x y': 2, 'q-2': [3]})",
        """ALTER TABLE t RENAME "SELECT" TO "{"  """,
        "INSERT INTO t VALUES (4, NULL)",
        """ALTER TABLE t ADD COLUMN "SELECT" INT DEFAULT 9""",
        """ALTER TABLE t DROP COLUMN "a ""b'" """,
    )
    expected = lake.answer("SELECT * FROM t")
    assert sorted_rows(live_rows(read(lake))) == sorted_rows(expected)
    assert len(expected) == 2


def test_every_reader_has_them(streamed: Lake) -> None:
    where = "id = 5002 OR text = 'first' OR id IN (5001, 17, 18)"
    expected = sorted_rows(streamed.answer(f"SELECT * FROM t WHERE {where}"))
    total = len(streamed.answer("SELECT id FROM t"))
    table = named(streamed)
    assert sorted_rows(pb.read_table(table, where).to_pylist()) == expected
    assert sorted_rows([row for batch in pb.read_batches(table, where) for row in batch.to_pylist()]) == expected
    assert pb.count(table, where) == len(expected) == 3
    assert pb.count(table) == total == 3000 - 1 + 2
    frame = pb.scan_polars(table).filter(pl.col("id").is_in([5002, 5000, 5001, 17, 18]))
    assert sorted_rows(frame.collect().to_dicts()) == expected
    assert pb.read_table(table, "id = 5001").num_rows == 0, "it was deleted in the catalog"


def test_check_and_prune_name_them(streamed: Lake) -> None:
    table = named(streamed)
    matching = [verdict.path for verdict in pb.check(table, "id = 5002") if not verdict.skipped]
    assert matching == [f"{table} inlined in ducklake_inlined_data_1_2"]
    [(path, groups, *_)] = pb.prune(table, "id = 5000")
    assert list(groups) == [0]
    assert not Path(path).exists(), "who opens it as a file is told, and loses nothing in silence"


def test_a_data_set_has_them(small: Lake) -> None:
    small.sql(
        "CREATE TABLE t AS SELECT i::BIGINT AS id FROM range(100) r(i)", "INSERT INTO t VALUES (500)",
        "INSERT INTO t SELECT i FROM range(200, 300) r(i)",
    )  # fmt: skip
    data = pb.dataset(named(small), "id IN (5, 500, 250)")
    assert set(data.to_table().column("id").to_pylist()) == {*range(100), 500, *range(200, 300)}
    assert pb.dataset(named(small), "id = 500").to_table().column("id").to_pylist() == [500]


def test_only_stored_files_are_changed_and_shown(streamed: Lake) -> None:
    before = sorted_rows(streamed.answer("SELECT * FROM t"))
    table = named(streamed)
    report = pb.add_filters(table, columns=["id"])
    assert [(commit.files, report.failed) for commit in report.commits] == [(1, [])]
    assert len(pb.inspect(table).files) == len(pb.verify(table).files) == 1
    assert [column.column for column in pb.advise(table).columns] == ["text", "id"]
    assert sorted_rows(pb.read_table(table).to_pylist()) == before == sorted_rows(streamed.answer("SELECT * FROM t"))
    streamed.release()
    assert [commit.files for commit in pb.remove_filters(table).commits] == [1]
    assert sorted_rows(streamed.answer("SELECT * FROM t")) == before


def test_a_key_index_is_of_stored_files_and_the_rows_of_the_catalog_are_read(streamed: Lake, tmp_path: Path) -> None:
    table = named(streamed)
    pb.build_index(table, ["id"], tmp_path / "index")
    ids = [row["id"] for row in streamed.answer("SELECT * FROM t")]
    streamed.release()
    for value in (min(ids), max(ids), -5):
        found = pb.read_table(table, f"id = {value}", index=tmp_path / "index")
        assert found["id"].to_pylist() == [one for one in ids if one == value]
    located = pb.locate(table, "id", sorted(set(ids)), tmp_path / "index", verify=True)
    assert sum(map(len, located["row_numbers"].to_pylist())) == len(ids)


def test_a_zone_index_is_refused_and_a_page_counts_them(streamed: Lake, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="its catalog holds rows itself, and an index is of stored files"):
        build_index(named(streamed), ["id"], tmp_path / "index")
    page = tmp_path / "page.html"
    pb.write_report(named(streamed), str(page), where="id >= 2999", count_rows=True)
    assert "3 rows" in page.read_text(encoding="utf-8")


def test_a_catalog_in_sqlite_needs_duckdb_for_them(streamed: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = open_ducklake(streamed.release().name(), None)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    said = r"1 row is inlined in the catalog, and reading them needs duckdb \(pip install 'duckdb>=1\.5'\)"
    with pytest.raises(TableFormatError, match=said):
        table.snapshot()
    assert len(table.snapshot(stored_only=True).files) == 1


NOT_UNDERSTOOD = {
    "UPDATE ducklake_inlined_data_1_2 SET id = 'x'": "DuckDB does not write them",
    "UPDATE ducklake_column SET column_type = 'geometry' WHERE column_name = 'id'": "a column of type geometry, id",
    "ALTER TABLE ducklake_inlined_data_1_2 RENAME id TO other": "under other names than their table's columns had",
}


def test_what_is_not_understood_is_refused(streamed: Lake) -> None:
    good = streamed.release().catalog.read_bytes()
    for change, message in NOT_UNDERSTOOD.items():
        streamed.catalog.write_bytes(good)
        with closing(sqlite3.connect(streamed.catalog)) as catalog, catalog:
            catalog.execute(change)
        said = rf"row is inlined in the catalog, .*{message}.*ducklake_flush_inlined_d"
        with pytest.raises(TableFormatError, match=said):
            read(streamed)


def test_the_file_in_memory_is_one_of_pyarrows() -> None:
    held: Any = pickle.loads(pickle.dumps(fs.PyFileSystem(OneFile("rows", b"0123456789"))))
    assert held.equals(fs.PyFileSystem(OneFile("rows", b"0123456789")))
    assert not held.equals(fs.PyFileSystem(OneFile("rows", b"012345678x")))
    assert held.get_file_info("rows").size == 10
    assert held.get_file_info("other").type == fs.FileType.NotFound
    with held.open_input_file("rows") as file:
        assert file.read_at(3, 4) == b"456"
    with held.open_input_stream("rows") as stream:
        assert stream.read() == b"0123456789"
    with pytest.raises(FileNotFoundError):
        held.open_input_file("other")
    with pytest.raises(OSError, match="is not written to"):
        held.open_output_stream("rows")
    with pytest.raises(FileNotFoundError):
        held.get_file_info(fs.FileSelector("folder"))
    assert held.get_file_info(fs.FileSelector("folder", allow_not_found=True)) == []
    assert isinstance(held, pa.fs.FileSystem)
    with pytest.raises(StorageError, match="no such file"):
        pb.inspect("other", filesystem=held)
