"""Counts of rows without a predicate come from a table's log where that is exact; else from the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support import delta_tables as made
from support.ducklake_tables import Lake
from support.iceberg_tables import (
    Warehouse,
    add_deletes,
    as_version_3,
    deletion_vectors,
    entries,
    equality_deletes,
    position_deletes,
    rows_of,
)

import parquet_bloom
from parquet_bloom.errors import DamagedFileError, StorageError
from parquet_bloom.storage import open_file


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The data files that are opened."""
    paths: list[str] = []
    was = open_file.OpenFile.__init__

    def note(self: Any, path: Any, *more: Any, **named: Any) -> None:
        name = str(path)
        if "/_delta_log/" not in name and name.endswith(".parquet") and not name.endswith("-deletes.parquet"):
            paths.append(Path(str(path)).name)
        was(self, path, *more, **named)

    monkeypatch.setattr(open_file.OpenFile, "__init__", note)
    return paths


def table_of(root: Path, *stats: Any, **more: Any) -> Path:
    """A file of 10 rows, x0.parquet and so on, for each of these statistics."""
    rows = pa.table({"id": range(10)})
    adds = [made.file_of(root, f"x{i}.parquet", rows) for i in range(len(stats))]
    for action, said in zip(adds, stats, strict=True):
        action["add"] |= {"stats": said} | more
    features = (["deletionVectors"], ["deletionVectors"]) if more else ()
    made.commit(root, 0, made.protocol(*features), made.metadata([made.field("id", "long")]), *adds)
    return root


def both_ways(source: Any, **options: Any) -> int:
    """The count by the log, if the files say the same."""
    count = parquet_bloom.count(source, **options)
    assert count == parquet_bloom.count(source, from_log=False, **options)
    return count


# --- Delta ------------------------------------------------------------------------------------------


def test_a_delta_log_counts_without_a_file(tmp_path: Path, opened: list[str]) -> None:
    for first in range(0, 300, 100):
        write_deltalake(tmp_path, pa.table({"id": range(first, first + 100)}), mode="append")
    DeltaTable(tmp_path).delete("id < 50")
    assert parquet_bloom.count(tmp_path) == DeltaTable(tmp_path).count() == 250
    assert parquet_bloom.Source(tmp_path).count() == 250
    assert parquet_bloom.count(f"delta:{tmp_path}@1") == 200
    assert opened == []
    DeltaTable(tmp_path).create_checkpoint()
    assert both_ways(tmp_path) == 250
    assert len(opened) == 3, "with from_log=False alone"


def test_a_file_that_is_gone_is_noticed_by_who_opens_it(tmp_path: Path) -> None:
    table_of(tmp_path, '{"numRecords":10}')
    (tmp_path / "x0.parquet").unlink()
    assert parquet_bloom.count(tmp_path) == 10
    with pytest.raises(StorageError, match="x0.parquet"):
        parquet_bloom.count(tmp_path, from_log=False)


NO_COUNTS = [
    None, "", "{}", "[]", "null", "10", "{", '{"numRecords":null}', '{"numRecords":-1}', '{"numRecords":10.0}',
    '{"numRecords":"10"}', '{"numRecords":true}', '{"numRecords":[10]}', '{"numRecords":1e999}',
    '{"numRecords":99999999999999999999}', '{"numRecords":9223372036854775808}', '{"num":1}',
    '{"numRecords":' + "9" * 5000 + "}", '{"numRecords":7,"numRecords":-1}', {"numRecords": 3},
]  # fmt: skip


def test_statistics_that_are_no_count_are_no_count(tmp_path: Path, opened: list[str]) -> None:
    for stats in NO_COUNTS:
        table_of(tmp_path, stats, '{"numRecords":10}')
        opened.clear()
        assert both_ways(tmp_path) == 20, stats
        assert opened[0] == "x0.parquet", "the log counts the other file"
        assert opened.count("x1.parquet") == 1
    assert parquet_bloom.count(table_of(tmp_path, '{"numRecords":3,"numRecords":10}')) == 10, "the last one counts"


def test_a_count_that_lies_is_the_logs_word(tmp_path: Path) -> None:
    table_of(tmp_path, '{"numRecords":9223372036854775807}', '{"numRecords":1}')
    assert parquet_bloom.count(tmp_path) == 1 << 63, "no number wraps"
    assert parquet_bloom.count(tmp_path, from_log=False) == 20
    assert parquet_bloom.count(tmp_path, "id >= 0") == 20, "a predicate is held against the files"


def test_deletion_vectors_have_an_exact_count(tmp_path: Path) -> None:
    for stats in ('{"numRecords":10}', None):
        assert both_ways(table_of(tmp_path, stats, deletionVector=made.inline([1, 5, 9]))) == 7
    table_of(tmp_path, '{"numRecords":10}', deletionVector=made.inline(range(11)))
    with pytest.raises(DamagedFileError, match="deletes row 10 of 10"):
        parquet_bloom.count(tmp_path)


# --- Iceberg ----------------------------------------------------------------------------------------


def test_an_iceberg_table_counts_by_its_entries(warehouse: Warehouse, opened: list[str]) -> None:
    table = warehouse.filled(rows_of(*range(10)), rows_of(10, 11))
    name, options = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}
    assert parquet_bloom.count(name, **options) == 12
    assert opened == []
    first = min(entries(table), key=lambda entry: -entry.data_file.record_count).data_file
    for rows in ([0, 3], [3, 4]):
        add_deletes(table, position_deletes(table, {first.file_path: rows}, first))
    opened.clear()
    assert both_ways(name, **options) == 9, "two files of deletes name one row"
    assert len(opened) == 3, "one for its deletes, and both with from_log=False"
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [2, 77]}), first))
    assert both_ways(name, **options) == 8, "they have no count"


def test_icebergs_deletion_vectors_have_a_count(warehouse: Warehouse, opened: list[str]) -> None:
    table = warehouse.filled(rows_of(*range(10)))
    [file] = (entry.data_file for entry in entries(table))
    add_deletes(table, *deletion_vectors(table, {file.file_path: [1, 2, 8]}, {file.file_path: file}))
    as_version_3(warehouse, "ns.v3")
    name, options = "iceberg:cat/ns.v3", {"catalog_properties": warehouse.properties}
    assert parquet_bloom.count(name, **options) == 7
    assert opened == []
    assert both_ways(name, **options) == 7


# --- DuckLake ---------------------------------------------------------------------------------------


def test_a_ducklake_catalog_counts_where_it_can(lake: Lake) -> None:
    lake.sql("CREATE TABLE t AS SELECT i AS id FROM range(100) r(i)", "INSERT INTO t VALUES (100)")
    lake.sql("DELETE FROM t WHERE id = 7")
    for version in lake.snapshots()[1:]:
        [row] = lake.answer(f"SELECT count(*) n FROM t AT (VERSION => {version})")
        lake.release()
        assert both_ways(f"ducklake:{lake.name()}@{version}", allow_roots=lake.allow_roots) == row["n"]
    lake.sql("DELETE FROM t WHERE id BETWEEN 10 AND 60")
    [row] = lake.answer("SELECT count(*) n FROM t")
    lake.release()
    assert both_ways(f"ducklake:{lake.name()}", allow_roots=lake.allow_roots) == row["n"] == 49
