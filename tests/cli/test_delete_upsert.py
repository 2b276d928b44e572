"""`delete` and `upsert` as a user types them: files of keys and rows, reports, and one line for what goes wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from support.commands import in_this_process, without_hints

import parquet_bloom

ROWS: dict[str, Any] = {
    "code": ["007", "7", "08", "", "x"],
    "n": [1, 2, 3, 4, None],
    "at": pa.array([1, 2, 3, 4, 5], pa.timestamp("us", "UTC")),
}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a Delta table of two files; it is the current one."""
    monkeypatch.chdir(tmp_path)
    rows = pa.table(ROWS)
    for part in (rows[:3], rows[3:]):
        write_deltalake("t", part, mode="append")
    return tmp_path


def typed(*words: str, status: int = 0) -> str:
    done = in_this_process(*words)
    assert done.returncode == status, done.stderr
    return done.stdout


def refused(*words: str) -> str:
    done = in_this_process(*words)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = without_hints(done.stderr)
    return line


def codes() -> list[str]:
    return sorted(DeltaTable("t").to_pyarrow_table()["code"].to_pylist())


KEY_FILES = {
    "keys.txt": lambda path: path.write_text("007\n999\n"),
    "keys.csv": lambda path: path.write_text("n,code\n1,007\n1,999\n"),
    "keys.parquet": lambda path: pq.write_table(pa.table({"code": ["007", "999"], "n": [1, 1]}), path),
    "one.parquet": lambda path: pq.write_table(pa.table({"another name": ["007", "999"]}), path),
    "keys.arrow": lambda path: pyarrow.feather.write_feather(pa.table({"code": ["007", "999"]}), path),
}


def test_keys_of_files_are_texts_as_the_column_has_them(here: Path) -> None:
    """Digits are no number where the column has texts: 007 is not 7."""
    for name, write in KEY_FILES.items():
        write(here / name)
        words = ("delete", "delta:t", "-c", "code", "--keys", name)
        dry = typed(*words, "--dry-run", "--all")
        assert dry.startswith("delta:t: 1 row deleted\n  would rewrite 1 of 2 files; nothing was written\nfile"), name
        assert codes() == ["", "007", "08", "7", "x"], name
    out = typed(*words)
    assert out.startswith("delta:t: 1 row deleted\n  rewrote 1 of 2 files, wrote ")
    assert out.endswith("committed version 2\n")
    assert codes() == ["", "08", "7", "x"]
    assert typed(*words) == "delta:t: no row has a key\n"


def test_an_upsert_of_a_csv(here: Path) -> None:
    """Nothing in a cell is NULL, quotes around nothing are an empty text."""
    (here / "rows.csv").write_text('at,code,n\n2026-01-01T00:00:00Z,"",44\n,08,\n2026-01-01T00:00:00Z,new,9\n')
    (here / "gone.csv").write_text("code\nx\n")
    words = ("upsert", "delta:t", "-c", "code", "--rows", "rows.csv", "--deletes", "gone.csv")
    found = json.loads(typed(*words, "--json"))
    assert (found["document"], found["deleted"], found["replaced"], found["appended"]) == ("upsert", 1, 2, 1)
    assert found["commit"] == "2"
    rows = {row["code"]: row["n"] for row in DeltaTable("t").to_pyarrow_table().to_pylist()}
    assert rows == {"": 44, "007": 1, "08": None, "7": 2, "new": 9}


def test_keys_of_two_columns_and_an_index(here: Path) -> None:
    typed("index", "build", "delta:t", "-c", "code", "-o", "index")
    (here / "keys.csv").write_text("code,n\n007,1\n7,1\n")
    out = typed("delete", "delta:t", "-c", "code", "-c", "n", "--keys", "keys.csv", "--index", "index")
    assert out.startswith("delta:t: 1 row deleted\n")
    assert codes() == ["", "08", "7", "x"]
    found = parquet_bloom.locate("delta:t", "code", ["7", "007"], "index", strict_index=True)
    assert found["key"].to_pylist() == ["7"]


def test_what_is_refused(here: Path) -> None:
    (here / "keys.csv").write_text("code,n\n007,x\n")
    (here / "null.csv").write_text('code,n\n,1\n"",1\n')
    (here / "keys.txt").write_text("007\n")
    (here / "text.parquet").write_text("no Parquet")
    (here / "utf16.csv").write_text("code\n007\n", encoding="utf-16")
    (here / "long.txt").write_text("9" * 1_000_000)
    pq.write_table(pa.table(ROWS), "plain.parquet")
    for words, said in (
        ("delete t -c code --keys keys.csv", "t is a Delta table; name the table, delta:"),
        ("upsert t -c code --rows keys.csv", "name delta:PATH or iceberg:CATALOG/namespace.table"),
        ("delete delta:t -c code --keys keys.csv --in-place", "a table's change is its commit"),
        ("delete plain.parquet -c code --keys keys.csv", "--output"),
        ("delete delta:t@0 -c code --keys keys.csv", "leave out @0; only the latest version can be changed"),
        ("delete delta:t -c n --keys keys.csv", "string does not fit it; give values of its type (Failed to parse"),
        ("delete delta:t -c code --keys missing.csv", "missing.csv: No such file"),
        ("delete delta:t -c code --keys missing.parquet", "missing.parquet: No such file or directory"),
        ("delete delta:t -c code --keys utf16.csv", "utf16.csv: 'utf-8' codec can't decode byte 0xff"),
        ("delete delta:t -c at --keys long.txt", "9999..."),
        ("delete delta:t -c code -c n --keys keys.txt", "keys of several columns are in a .parquet, .arrow or .csv"),
        ("delete delta:t -c at --keys keys.csv", "keys.csv: has no column at; there are: code, n"),
        ("delete delta:t -c code --keys null.csv", "code: a key is NULL"),
        ("delete delta:t -c code --keys text.parquet", "text.parquet: "),
        ("upsert delta:t -c code --rows keys.csv", "the rows have the columns code, n; "),
        ("upsert delta:t -c code --rows keys.txt", "keys.txt: rows are in a .parquet, .arrow or .csv"),
        ("upsert ducklake:lake.db/main.t -c code --rows keys.csv", "MERGE INTO main.t t USING rows k"),
        ("delete ducklake:lake.db/main.t -c code -c n --keys keys.csv", "k.code = t.code AND k.n = t.n"),
    ):
        message = refused(*words.split())
        assert said in message, words
        assert len(message) < 2000, words
        assert "unexpected" not in message, words
        assert DeltaTable("t").version() == 1, words
    assert codes() == ["", "007", "08", "7", "x"]


def test_the_sql_for_ducklake_does_it() -> None:
    duckdb = pytest.importorskip("duckdb")
    base = duckdb.connect()
    base.execute("CREATE SCHEMA s")
    base.execute("CREATE TABLE s.t AS SELECT * FROM (VALUES (1, 'a'), (2, 'b'), (3, 'c')) AS v(id, v)")
    base.execute("CREATE TABLE keys AS SELECT 2 AS id")
    base.execute("CREATE TABLE rows AS SELECT * FROM (VALUES (3, 'z'), (4, 'n')) AS v(id, v)")
    with pytest.raises(parquet_bloom.RequestError) as of_delete:
        parquet_bloom.delete_keys("ducklake:lake.db/s.t", "id", [2])
    with pytest.raises(parquet_bloom.RequestError) as of_upsert:
        parquet_bloom.upsert("ducklake:lake.db/s.t", pa.table({"id": [3], "v": ["z"]}), "id")
    for refusal in (of_delete, of_upsert):
        base.execute(str(refusal.value).split("DuckLake table: ")[1])
    assert sorted(base.execute("FROM s.t").fetchall()) == [(1, "a"), (3, "z"), (4, "n")]


def test_keys_of_another_kind_no_zone_or_more_than_a_day_are_refused(here: Path) -> None:
    for keys in ([7], [1.5], [b"007", b"7", True]):
        with pytest.raises(parquet_bloom.RequestError):
            parquet_bloom.delete_keys("delta:t", "code", keys)
        assert codes() == ["", "007", "08", "7", "x"], keys
    naive = pa.array([1], pa.timestamp("us"))
    with pytest.raises(parquet_bloom.RequestError, match="does not fit it"):
        parquet_bloom.delete_keys("delta:t", "at", naive)
    assert parquet_bloom.delete_keys("delta:t", "at", naive.cast(pa.timestamp("us", "Europe/Berlin"))).deleted == 1
    write_deltalake("days", pa.table({"day": pa.array([0], pa.date32())}))
    with pytest.raises(parquet_bloom.RequestError, match="does not fit it"):
        parquet_bloom.delete_keys("delta:days", "day", pa.array([3_600_000_000], pa.timestamp("us")))


def test_a_source_does_it_too(here: Path) -> None:
    parquet_bloom.build_index("delta:t", "code", "index")
    events = parquet_bloom.Source("delta:t", index="index")
    assert events.count() == 5
    assert events.delete_keys("code", ["x"], dry_run=True).deleted == 1
    assert events.delete_keys("code", ["x"]).commit == "2"
    row = pa.table({**ROWS})[:1]
    assert events.upsert(row, "code", deletes=["7"]).deleted == 1
    assert events.count() == 3, "it looks again"
    assert events.locate("code", ["007", "x"], strict_index=True)["key"].to_pylist() == ["007"]
    with pytest.raises(parquet_bloom.RequestError, match="its own delete_keys"):
        parquet_bloom.delete_keys(events, "code", ["x"])  # type: ignore[arg-type]
    html = events.delete_keys("code", ["nothing"])._repr_html_()
    assert "no row has a key" in html


def test_rows_leave_files_without_a_log(here: Path) -> None:
    """In place or into other files; keys are texts of the column's type, of one column or two."""
    (here / "files").mkdir()
    for number, rows in enumerate((pa.table(ROWS)[:3], pa.table(ROWS)[3:])):
        pq.write_table(rows, f"files/{number}.parquet")
    (here / "keys.txt").write_text("007\n999\n")
    (here / "pairs.csv").write_text("n,code\n1,7\n2,7\n4,x\n")
    before = {path: path.read_bytes() for path in sorted((here / "files").iterdir())}
    words = ("delete", "files", "-c", "code", "--keys", "keys.txt")
    dry = typed(*words, "--in-place", "--dry-run")
    assert dry == "files: 1 row deleted\n  would rewrite 1 of 2 files; nothing was written\n"
    assert typed(*words, "--output", "out").startswith("files: 1 row deleted\n  rewrote 1 of 2 files, wrote ")
    assert {path: path.read_bytes() for path in sorted((here / "files").iterdir())} == before
    assert pq.read_table("out")["code"].to_pylist() == ["7", "08", "", "x"]
    pairs = "delete files/0.parquet files/1.parquet -c n -c code --keys pairs.csv --in-place --json"
    told = json.loads(typed(*pairs.split()))
    assert (told["deleted"], told["files"], [one["path"] for one in told["rewritten"]]) == (1, 2, ["files/0.parquet"])
    assert pq.read_table("files")["code"].to_pylist() == ["007", "08", "", "x"]
    assert (here / "files/1.parquet").read_bytes() == before[here / "files/1.parquet"]
    assert parquet_bloom.Source("files").delete_keys("code", ["x"], in_place=True).deleted == 1
    assert pq.read_table("files")["code"].to_pylist() == ["007", "08", ""]


def test_a_file_that_fails_is_named_and_the_others_lose_their_rows(here: Path) -> None:
    for name in ("a", "b"):
        pq.write_table(pa.table(ROWS), f"{name}.parquet")
    (here / "keys.txt").write_text("x\n")
    os.link("b.parquet", "c.parquet")
    done = in_this_process("delete", "a.parquet", "b.parquet", "-c", "code", "--keys", "keys.txt", "--in-place")
    assert done.returncode == 2
    assert "b.parquet: " in done.stderr
    assert done.stderr.splitlines()[-1].endswith("1 of 2 files failed")
    assert [pq.read_metadata(f"{name}.parquet").num_rows for name in ("a", "b")] == [4, 5]
