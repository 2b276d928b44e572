"""A table in the place of files: what each function and command does with it, over real Delta tables."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import re
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from support import delta_tables as made
from support.commands import error_lines

import parquet_bloom
from parquet_bloom import lance
from parquet_bloom.cli import run
from parquet_bloom.errors import (
    FileChangedError,
    RequestError,
    StorageError,
    TableFormatError,
    TableWarning,
    UnknownColumnError,
)

ROWS = 100


def rows(first: int, part: str) -> pa.Table:
    ids = range(first, first + ROWS)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"user-{i}" for i in ids], "part": [part] * ROWS})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Three live files of 100 rows in two partitions, and a dead one."""
    root = tmp_path / "events"
    write_deltalake(root, rows(0, "north"), partition_by=["part"])
    write_deltalake(root, rows(100, "south"), mode="append")
    write_deltalake(root, rows(200, "south"), mode="append")
    write_deltalake(root, rows(900, "dead"), mode="append")
    DeltaTable(root).delete("part = 'dead'")
    return root


@pytest.fixture
def vectors(table: Path) -> Path:
    """The same with rows 5 and 7 of the first file deleted by a vector."""
    [old] = [
        action["add"]
        for line in (table / "_delta_log/00000000000000000000.json").read_text().splitlines()
        if "add" in (action := json.loads(line))
    ]
    remove = {"path": old["path"], "dataChange": True, "deletionTimestamp": 1}
    told = [{"remove": remove}, {"add": old | {"deletionVector": made.inline([5, 7])}}]
    made.commit(table, 5, made.protocol(["deletionVectors"], ["deletionVectors"]), *told)
    return table


@pytest.fixture
def renamed(tmp_path: Path) -> Path:
    """Columns with physical names; `id` is col-1, and a column that was dropped was called id."""
    root = tmp_path / "mapped"
    fields = [made.mapped("id", "long", "col-1", 1), made.mapped("user name", "string", "col-2", 2)]
    more = {"delta__columnMapping__mode": "name", "delta__columnMapping__maxColumnId": "2"}
    stored = pa.table({"col-1": pa.array(range(10), pa.int64()), "id": ["dropped"] * 10, "col-2": ["a", "b"] * 5})
    start = [made.protocol(2, 5), made.metadata(fields, **more)]
    made.commit(root, 0, *start, made.file_of(root, "x.parquet", stored))
    return root


# --- search -----------------------------------------------------------------------------------------


def test_check_says_what_the_log_excludes(table: Path) -> None:
    verdicts = parquet_bloom.check(f"delta:{table}", "part = 'south' AND id = 150")
    assert (verdicts.table, verdicts.version) == (str(table), "4")
    assert sorted((one.decided_by, one.rows) for one in verdicts.excluded) == [("bounds", ROWS), ("partition", ROWS)]
    assert all("the table's log excludes it" in one.reason for one in verdicts.excluded)
    assert len(verdicts) == 1, "one file was opened"
    told = verdicts.to_dict()["totals"]
    assert told["files_excluded"] == 2
    assert told["files_excluded_by"] == {"partition": 1, "bounds": 1}
    assert told["files_excluded_bytes"] == sum(one.size or 0 for one in verdicts.excluded) > 0
    assert "2 files not opened" in repr(verdicts)


def test_a_file_that_the_log_excludes_is_not_opened(table: Path) -> None:
    north = next(path for path in table.glob("part=north/*"))
    north.unlink()
    assert parquet_bloom.count(table, "part = 'south'") == 2 * ROWS
    assert parquet_bloom.read_table(table, "part = 'south' AND id = 150").num_rows == 1
    assert parquet_bloom.count(table) == 3 * ROWS, "the log counts"
    with pytest.raises(StorageError, match=north.name):
        parquet_bloom.count(table, from_log=False)
    verdicts = parquet_bloom.check(table, "id >= 0")
    assert [one.path for one in verdicts.failed] == [str(north)]


def test_filters_answer_where_the_log_cannot(table: Path) -> None:
    live = [path.removeprefix("file://") for path in DeltaTable(table).file_uris()]
    with pytest.warns(UserWarning, match="lies in the Delta table"):
        parquet_bloom.add_filters(live, in_place=True, force=True, columns=["name"], sync=False)
    verdicts = parquet_bloom.check(table, "name = 'user-1500'")
    by = [v.decided_by for v in verdicts] + [one.decided_by for one in verdicts.excluded]
    assert sorted(by) == ["bounds", "filter", "filter"], "within the bounds of two files"


def test_names_and_literals_are_those_of_the_table(table: Path) -> None:
    for wrong, said in (("nam = 'x'", "no column nam; near names: name"), ("id = 'x'", "'x' is no literal for it")):
        with pytest.raises(RequestError, match=said) as error:
            parquet_bloom.check(f"delta:{table}", wrong)
        assert str(error.value).startswith(f"{table}: ")
    with pytest.raises(UnknownColumnError, match="no column nope"):
        parquet_bloom.read_table(table, columns=["nope"])


def test_a_version_has_the_rows_of_its_time(table: Path) -> None:
    assert [parquet_bloom.count(f"delta:{table}@{version}") for version in range(5)] == [100, 200, 300, 400, 300]
    assert parquet_bloom.count(table, "id >= 900") == 0
    assert parquet_bloom.count(f"delta:{table}@3", "id >= 900") == ROWS
    assert parquet_bloom.count(table, raw_files=True) == 4 * ROWS


def test_an_empty_table(tmp_path: Path) -> None:
    made.commit(tmp_path / "t", 0, made.protocol(), made.metadata([made.field("id", "long")]))
    assert parquet_bloom.read_table(tmp_path / "t", "id = 5").schema.names == ["id"]
    assert parquet_bloom.count(tmp_path / "t") == 0
    assert list(parquet_bloom.check(tmp_path / "t", "id = 5")) == []
    assert parquet_bloom.dataset(tmp_path / "t").to_table().num_rows == 0
    assert parquet_bloom.prune(tmp_path / "t", column="id", values=[5]) == []
    with pytest.raises(UnknownColumnError):
        parquet_bloom.count(tmp_path / "t", "nope = 5")


# --- deleted rows -----------------------------------------------------------------------------------


def test_deleted_rows_are_never_shown(vectors: Path) -> None:
    assert parquet_bloom.count(vectors) == 3 * ROWS - 2, "a footer counts rows that are gone"
    assert parquet_bloom.count(vectors, "part = 'north'") == ROWS - 2
    assert parquet_bloom.count(vectors, "id IN (5, 6, 7, 8)") == 2
    assert parquet_bloom.read_table(vectors, "id IN (5, 6, 7, 8)")["id"].to_pylist() == [6, 8]
    batches = list(parquet_bloom.read_batches(vectors, "part = 'north'", ["id"], batch_rows=3))
    assert [i for batch in batches for i in batch["id"].to_pylist()] == [i for i in range(ROWS) if i not in (5, 7)]
    assert max(map(len, batches)) <= 3


def test_prune_marks_files_with_deleted_rows(vectors: Path) -> None:
    pruned = parquet_bloom.prune(vectors, "id < 150")
    assert [path.split("part=")[1][:5] for path in pruned.with_deletes] == ["north"]
    assert set(pruned.with_deletes) < {path for path, _ in pruned}
    assert pruned.to_dict()["with_deletes"] == pruned.with_deletes
    assert parquet_bloom.prune(vectors, "id >= 150").with_deletes == []
    assert parquet_bloom.prune(vectors, column="id", values=[6]).with_deletes == pruned.with_deletes


def test_prune_by_keys_knows_partition_values(table: Path) -> None:
    for values, there in ((["north"], 1), (["south", "x"], 2), (["x"], 0), (["north", "south"], 3)):
        assert len(parquet_bloom.prune(table, column="part", values=values)) == there
    assert len(parquet_bloom.prune(table, column="id", values=[5, 105])) == 2


def test_verify_and_inspect_look_at_stored_rows(vectors: Path) -> None:
    live = [str(path) for path in vectors.glob("part=*/*.parquet") if "dead" not in str(path)]
    with pytest.warns(UserWarning, match="lies in the Delta table"):
        parquet_bloom.add_filters(live, in_place=True, force=True, columns=["id"], sync=False)
    for name in (f"delta:{vectors}", vectors):
        verified = parquet_bloom.verify(name)
        assert [f.values for file in verified.files for f in file.filters] == [ROWS] * 3, (
            "deleted values are in filters"
        )
        assert {f.status for file in verified.files for f in file.filters} == {"right"}
        inspected = parquet_bloom.inspect(name)
        assert len(inspected.files) == 3
        assert (inspected.notes, verified.notes) == ([], [])
    assert len(parquet_bloom.inspect(vectors, raw_files=True).files) == 4


def test_a_data_set_cannot_tell_deleted_rows_or_other_names(vectors: Path, renamed: Path) -> None:
    with pytest.raises(RequestError, match=r"has row-level deletes, .*read_batches"):
        parquet_bloom.dataset(vectors)
    assert parquet_bloom.dataset(vectors, "id >= 100").to_table().num_rows == 2 * ROWS, "other files have none"
    with pytest.raises(RequestError, match=r"has columns under other names, .*read_batches"):
        parquet_bloom.dataset(renamed)


def test_a_data_set_has_the_partition_values(table: Path) -> None:
    events = parquet_bloom.dataset(table, "id < 150")
    assert events.schema == parquet_bloom.read_table(table).schema
    counted = duckdb.sql("SELECT part, count(*) FROM events WHERE id < 150 GROUP BY part ORDER BY part").fetchall()
    assert counted == [("north", 100), ("south", 50)]
    assert events.to_table(filter=pa.compute.field("part") == "south").num_rows == ROWS


def test_a_data_set_has_times_of_96_bits_after_2262(tmp_path: Path) -> None:
    times = [dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2024, 3000, 9999)]
    start = [made.protocol(), made.metadata([made.field("id", "long"), made.field("ts", "timestamp")])]
    rows = pa.table({"id": [1, 2, 3], "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    add = made.file_of(tmp_path, "x.parquet", rows)
    pq.write_table(rows, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True, row_group_size=1)
    add["add"]["size"] = (tmp_path / "x.parquet").stat().st_size
    made.commit(tmp_path, 0, *start, add)
    events = parquet_bloom.dataset(tmp_path)
    assert events.to_table() == rows == parquet_bloom.read_table(tmp_path)
    assert events.to_table(filter=pa.compute.field("ts") == times[1])["id"].to_pylist() == [2]
    assert events.to_table(filter=pa.compute.field("id") == 3)["ts"].to_pylist() == [times[2]], "row groups were chosen"
    assert pickle.loads(pickle.dumps(events)).to_table() == rows


def test_polars_reads_living_rows(vectors: Path) -> None:
    frame = parquet_bloom.scan_polars(f"delta:{vectors}")
    assert frame.select(pl.len()).collect().item() == 3 * ROWS - 2
    assert frame.filter(pl.col("id").is_in([5, 6])).collect()["id"].to_list() == [6]
    assert frame.filter(pl.col("part") == "south").select("name").collect().height == 2 * ROWS


# --- names ------------------------------------------------------------------------------------------


def test_columns_under_other_names(renamed: Path) -> None:
    name = f"delta:{renamed}"
    assert parquet_bloom.read_table(name, "id = 5").to_pylist() == [{"id": 5, "user name": "b"}]
    assert parquet_bloom.count(name, "\"user name\" = 'a'") == 5
    with pytest.raises(UnknownColumnError):
        parquet_bloom.count(name, '"col-1" = 5')
    with pytest.warns(UserWarning, match="lies in the Delta table"):
        parquet_bloom.add_filters(renamed / "x.parquet", in_place=True, force=True, columns=["col-1", "id"], sync=False)
    report = parquet_bloom.inspect(name, columns=["id"])
    assert {f.column for f in report.files[0].filters} == {"id"}, "as the table calls it"
    own = parquet_bloom.inspect(renamed / "x.parquet", columns=["col-1"])
    assert report.files[0].filters[0].offset == own.files[0].filters[0].offset
    verified = parquet_bloom.verify(name, columns=["id"]).files[0].filters
    assert {(f.column, f.status) for f in verified} == {("id", "right")}
    assert parquet_bloom.check(name, "id = 77")[0].decided_by in ("bounds", "filter"), "by col-1"
    assert parquet_bloom.count(name, "id = 7") == 1


def test_a_struct_without_fields(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    empty = {"type": "struct", "fields": []}
    inside = {"type": "struct", "fields": [made.field("a", "long"), made.field("b", empty)]}
    fields = [made.field("s", empty), made.field("id", "long"), made.field("t", inside)]
    stored = pa.table({"id": [1, 2], "t": [{"a": 5}, None]})
    add = made.file_of(tmp_path, "x.parquet", stored)
    made.commit(tmp_path, 0, made.protocol(), made.metadata(fields), add)
    name = f"delta:{tmp_path}"
    rows = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert rows[0] == {"s": None, "id": 1, "t": {"a": 5, "b": None}}
    assert parquet_bloom.read_table(name).to_pylist() == rows
    assert parquet_bloom.dataset(name).to_table().to_pylist() == rows
    assert parquet_bloom.scan_polars(name).collect().to_dicts() == rows
    assert parquet_bloom.read_table(name, "t.a = 5 AND id < 9", ["s", "id"]).to_pylist() == [{"s": None, "id": 1}]
    assert parquet_bloom.scan_polars(name).select("s", "id").collect().height == 2
    with pytest.raises(UnknownColumnError, match=r"no column s; there are: id, t\.a"):
        parquet_bloom.count(name, "s IS NULL")
    assert parquet_bloom.add_filters(name, columns=["t.a"]).files[0].columns == ["t.a"]
    assert parquet_bloom.check(name, "t.a = 7")[0].skipped
    assert run(["read", name, "--format", "parquet", "-o", str(tmp_path / "out.parquet")]) == 2
    assert "cannot be written as Parquet: Cannot write struct type 's' with no child" in capfd.readouterr().err


def test_decimals_that_cannot_be(tmp_path: Path) -> None:
    for kind in ("decimal(5,-2)", "decimal(2,5)", "decimal(39,2)", "decimal(0,0)"):
        start = [made.protocol(), made.metadata([made.field("x", kind)])]
        root = tmp_path / kind
        made.commit(root, 0, *start, made.file_of(root, "x.parquet", pa.table({"x": [1, 2]})))
        with pytest.raises(TableFormatError, match="its schema is not understood: .*precision"):
            parquet_bloom.count(root)


def test_a_file_whose_column_cannot_be_told_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "t"
    start = [made.protocol(), made.metadata([made.field("s", {"type": "struct", "fields": [made.field("x", "long")]})])]
    made.commit(root, 0, *start, made.file_of(root, "x.parquet", pa.table({"s": [1, 2]})))
    with pytest.raises(TableFormatError, match=r"x.parquet: column s is a struct in the table and none in the file"):
        parquet_bloom.count(root, "s.x = 5")


# --- changes meanwhile ------------------------------------------------------------------------------


def test_a_file_that_changed_meanwhile(table: Path) -> None:
    scan = parquet_bloom.Scan(table, "id >= 0")
    assert len(scan.verdicts) == 3
    path = Path(scan.kept[0][0])
    stored = pq.ParquetFile(path).read()
    path.unlink()
    pq.write_table(stored.slice(0, 50), path)
    with pytest.raises(FileChangedError, match="was changed by another program"):
        scan.to_table()


@pytest.mark.parametrize("append", [False, True])
def test_a_file_that_gets_a_tail_meanwhile_is_read_on(table: Path, append: bool) -> None:
    expected = parquet_bloom.read_table(table)
    scan, data = parquet_bloom.Scan(table, "id >= 0"), parquet_bloom.dataset(table, "id >= 0")
    batches = parquet_bloom.read_batches(table, batch_rows=7)
    first = next(batches)
    assert len(scan.verdicts) == 3
    done = parquet_bloom.add_filters(f"delta:{table}", columns=["id"], commit="same-path", append=append)
    assert done.commits[0].same_path == 3
    assert pa.Table.from_batches([first, *batches]).sort_by("id") == expected.sort_by("id")
    assert scan.to_table().sort_by("id") == expected.sort_by("id")
    assert data.to_table().num_rows == expected.num_rows


def test_another_file_with_a_tail_is_no_longer_the_one(table: Path) -> None:
    scan = parquet_bloom.Scan(table, "id >= 0")
    path = Path(next(path for path, _ in scan.kept))
    stored = pq.ParquetFile(path).read()
    path.unlink()
    pq.write_table(stored.take(list(range(stored.num_rows))[::-1]), path, row_group_size=10)
    with pytest.warns(TableWarning):
        parquet_bloom.add_filters(path, in_place=True, columns=["id"], placement="tail", force=True, raw_files=True)
    with pytest.raises(FileChangedError, match="was changed by another program"):
        scan.to_table()


# --- zone indexes -----------------------------------------------------------------------------------


def test_a_zone_index_of_a_table(vectors: Path, renamed: Path, tmp_path: Path) -> None:
    out = tmp_path / "index"
    report = lance.build_index(f"delta:{vectors}", ["id"], out, items=16)
    assert report.fragments == 3, "of live files alone"
    for predicate, there in (("id IN (5, 6, 250)", 2), ("id = 77", 1), ("id = 905", 0)):
        assert parquet_bloom.count(vectors, predicate, index=out) == there
        assert parquet_bloom.read_table(vectors, predicate, index=out).num_rows == there
    with pytest.raises(RequestError, match="has columns under other names than its table"):
        lance.build_index(f"delta:{renamed}", ["id"], tmp_path / "other")
    assert not (tmp_path / "other").exists()


# --- commands ---------------------------------------------------------------------------------------


def test_the_commands(vectors: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name = f"delta:{vectors}"
    assert run(["check", name, "id = 150", "--explain"]) == 0
    out = capfd.readouterr().out
    assert "2 files not opened (bounds 2)" in " ".join(out.split())
    assert re.search(r"^ +- +2 files +not opened +bounds ", out, re.MULTILINE), "summed by reason"
    assert "--in-place" not in out, "a table is changed by a commit, not in place"
    assert run(["check", name, "part = 'west'"]) == 1, "no row group of any file can match"
    assert "3 files not opened (partition 3)" in " ".join(capfd.readouterr().out.split())
    assert run(["check", name, "id = 5", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert [len(told["excluded"]), told["version"]] == [2, "5"]
    assert run(["read", name, "--where", "id IN (5, 6)", "--format", "csv", "--explain"]) == 0
    read = capfd.readouterr()
    assert read.out.splitlines()[1:] == ['6,"user-6","north"']
    assert "2 files not opened (bounds 2)" in read.err
    assert run(["inspect", name]) == 0
    assert run(["verify", name]) == 0


def test_errors_are_one_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        (["check", "delta:nowhere", "id = 5"], "nowhere"),
        (["read", "delta:a", "delta:b"], "a table is read alone"),
        (["read", "iceberg:nowhere"], "iceberg:"),
        (["read", "delta:a", "--catalog-property", "type=sql"], "--catalog-property are for iceberg:"),
        (["read", "delta:a", "--catalog-property", "type"], "expected NAME=VALUE"),
        (["inspect", "delta:a", "--raw-files"], "--raw-files reads what lies in a folder"),
        (["verify", "ducklake:nowhere.ducklake/main.t"], "nowhere.ducklake"),
    ):
        assert run(arguments) == 2, arguments
        error = capfd.readouterr().err
        assert said in error
        assert error_lines(error) == 1, error
    assert list(tmp_path.iterdir()) == [], "nothing is left"
