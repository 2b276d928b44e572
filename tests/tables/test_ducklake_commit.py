"""New files in a DuckLake table: every snapshot reads its rows from them, and DuckLake goes on working with it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import replace
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.duckdb_process import packages
from support.ducklake_tables import NOTHING_INLINED, REQUIRED, DuckLakeError, Lake, live_rows, sorted_rows
from support.object_store import serving
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import (
    ConflictError,
    ParquetBloomError,
    RequestError,
    StorageError,
    TableFormatError,
    UnknownCommitError,
)
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Change, Snapshot
from parquet_bloom.tables.ducklake.catalog import Queries
from parquet_bloom.tables.ducklake.table import DuckLakeTable, open_ducklake

WITH_DELETES = (
    "CREATE TABLE t (id BIGINT, s VARCHAR)",
    "INSERT INTO t SELECT i, md5(i::VARCHAR) FROM range(1000) r(i)",
    "INSERT INTO t SELECT i, md5(i::VARCHAR) FROM range(1000, 1500) r(i)",
    "DELETE FROM t WHERE id < 100",
    "DELETE FROM t WHERE id = 500",  # inlined in the catalog, where it may be
    "UPDATE t SET s = 'new' WHERE id BETWEEN 1000 AND 1100",
)

# Has a transaction open in a catalog until it is told to go on. Argument: the catalog.
BUSY = """
import sqlite3, sys, time
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
print("begun", flush=True)
sys.stdin.readline()
time.sleep(0.5)
other.execute("UPDATE ducklake_table_stats SET record_count = record_count")
other.execute("COMMIT")
"""
# Ours beside an open transaction of DuckLake's in one process. Arguments: the catalog, its data, a statement.
TOGETHER = """
import glob, importlib, os, sys
import duckdb
import parquet_bloom

catalog, data, statement = sys.argv[1:]
lake = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 1})
for name in ("ducklake", "sqlite_scanner"):
    module = importlib.import_module("duckdb_extension_" + name)
    [path] = glob.glob(os.path.join(os.path.dirname(module.__file__), "extensions", "*", "*.duckdb_extension"))
    lake.execute(f"LOAD '{path}'")
lake.execute(f"ATTACH 'ducklake:sqlite:{catalog}' AS lake (DATA_PATH '{data}/')")
lake.execute("USE lake")
lake.execute("BEGIN")
lake.execute(statement).fetchall()
for call in (parquet_bloom.count, lambda table: parquet_bloom.add_filters(table, columns=["id"])):
    try:
        print(call(f"ducklake:{catalog}/main.t"))
    except parquet_bloom.ConflictError as error:
        print(error)
lake.execute("COMMIT")
print(len(parquet_bloom.add_filters(f"ducklake:{catalog}/main.t", columns=["id"]).commits), "commits")
"""


CLEAN_UP = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"
TAKE_ORPHANS = "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true)"
REWRITE = "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)"
MERGE = "CALL ducklake_merge_adjacent_files('lake')"


def opened(lake: Lake) -> tuple[DuckLakeTable, Snapshot]:
    lake.release()
    table = open_ducklake(lake.name(), None, TableAccess(None, lake.allow_roots, bool(lake.allow_roots)))
    return table, table.snapshot()


def begun(lake: Lake, *statements: str) -> tuple[DuckLakeTable, Snapshot, list[Change]]:
    """A table that these statements make, as we have it, and new versions of its files."""
    lake.sql(NOTHING_INLINED, *(statements or WITH_DELETES))
    table, snapshot = opened(lake)
    return table, snapshot, with_filters(table, snapshot)


def with_filters(table: DuckLakeTable, snapshot: Snapshot) -> list[Change]:
    """New versions of all files, with filters, where a killed run would leave them."""
    changes = []
    for file in snapshot.files:
        where = table.new_location(file)
        parquet_bloom.add_filters(file.path, where.path, raw_files=True)
        data = Path(where.path).read_bytes()
        changes.append(Change(file, where, len(data), int.from_bytes(data[-8:-4], "little")))
    return changes


def rows_of_all_snapshots(lake: Lake) -> dict[int, list[str]]:
    rows = {}
    for version in lake.snapshots():
        with suppress(DuckLakeError):  # there is no such table yet, or any more
            rows[version] = sorted_rows(lake.answer(f"SELECT * FROM t AT (VERSION => {version})"))
    return rows


def changed(lake: Lake) -> list[Change]:
    """Add filters to the whole table; its rows, in all snapshots, stay what they were."""
    before = rows_of_all_snapshots(lake)
    table, snapshot = opened(lake)
    assert {ways.default for ways in table.commit_modes(snapshot).values()} == {"new-path"}
    changes = with_filters(table, snapshot)
    assert changes
    assert before
    assert table.commit(snapshot, changes, {}) == snapshot.version, "no snapshot is added"
    assert rows_of_all_snapshots(lake) == before
    after = opened(lake)[1]
    assert [file.path for file in after.files] == [change.location.path for change in changes]
    assert [(file.size, file.bounds, file.constants) for file in after.files] == [
        (change.size, change.file.bounds, change.file.constants) for change in changes
    ]
    assert sorted_rows(live_rows(after)) == before[max(before)]
    return changes


def marked(lake: Lake) -> list[bool]:
    """Of each file of the table, whether it is one of ours."""
    return ["-bloom-" in file.path for file in opened(lake)[1].files]


def test_rows_and_deletes_stay_in_every_snapshot(lake):
    lake.sql(NOTHING_INLINED, *WITH_DELETES)
    changes = changed(lake)
    assert lake.sql("SELECT count(*) FROM t WHERE id = 50 OR id = 500") == [[0]], "deleted rows stay deleted"
    assert lake.sql("SELECT id FROM t WHERE s = md5('700')") == [[700]]
    assert all(Path(change.file.path).exists() for change in changes), "open readers go on with the old file"


def test_what_comes_after_a_commit_is_as_it_would_be_without(lake):
    lake.sql(*WITH_DELETES, "CALL ducklake_flush_inlined_data('lake')")
    changed(lake)
    lake.sql(
        "DELETE FROM t WHERE id % 7 = 0",
        "UPDATE t SET s = 'x' WHERE id = 601",
        "INSERT INTO t SELECT 5000, 'y' FROM range(20)",
    )
    expected = sorted(i for i in range(100, 1500) if i != 500 and i % 7)
    assert [row[0] for row in lake.sql("SELECT id FROM t WHERE id < 5000 ORDER BY id")] == expected
    feed = lake.sql("SELECT change_type, count(*) FROM ducklake_table_changes('lake', 'main', 't', 2, 3) GROUP BY 1")
    assert feed == [["insert", 1500]], "the change feed has each row once"
    lake.sql("CALL ducklake_flush_inlined_data('lake')")
    changed(lake)


def test_cleaning_up_deletes_the_old_files_and_no_other(lake):
    lake.sql(NOTHING_INLINED, *WITH_DELETES)
    before = rows_of_all_snapshots(lake)
    changes = changed(lake)
    cleaned = {row[0] for row in lake.sql(CLEAN_UP)}
    assert {change.file.path for change in changes} <= cleaned
    assert not any(Path(change.file.path).exists() for change in changes)
    assert lake.sql(TAKE_ORPHANS) == [], "no file is a stranger"
    assert rows_of_all_snapshots(lake) == before
    changed(lake)
    lake.sql(CLEAN_UP)
    assert rows_of_all_snapshots(lake) == before


def test_files_are_merged_rewritten_and_expired_after_a_commit(lake):
    inserts = [f"INSERT INTO t SELECT * FROM range({k * 9}, {k * 9 + 9})" for k in range(4)]
    lake.sql(NOTHING_INLINED, "CREATE TABLE t (id INT)", *inserts)
    changed(lake)
    assert lake.sql(MERGE)
    assert lake.sql("SELECT count(*), count(DISTINCT id) FROM t") == [[36, 36]]
    changed(lake)  # of a file that serves several snapshots
    lake.sql("DELETE FROM t WHERE id % 3 = 0", REWRITE)
    changed(lake)
    lake.sql("CALL ducklake_expire_snapshots('lake', older_than => now())", CLEAN_UP)
    assert lake.sql("SELECT count(*), count(DISTINCT id) FROM t") == [[24, 24]]
    folder = lake.data / "main" / "t"
    assert {str(path) for path in folder.rglob("*.parquet")} >= {file.path for file in opened(lake)[1].files}
    assert lake.sql(TAKE_ORPHANS) == []


def test_partitioned_files_stay_in_their_folders(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (id INT, k VARCHAR)", "ALTER TABLE t SET PARTITIONED BY (k)")
    small.sql("INSERT INTO t SELECT i, 'a/b=' || i % 3 FROM range(30) r(i)")
    for change in changed(small):
        folder = Path(change.location.path).parent
        assert folder == Path(change.file.path).parent
        assert folder.name.startswith("k=a%2Fb%3D")
    assert small.sql("SELECT count(*) FROM t WHERE k = 'a/b=1'") == [[10]]


def test_added_files_get_filters_too(small, tmp_path):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (id BIGINT, k INT)")
    outside = tmp_path / "outside" / "k=7"
    outside.mkdir(parents=True)
    small.allow_roots = (str(tmp_path / "outside"),)
    small.sql(f"COPY (SELECT * FROM range(9) r(id)) TO '{outside}/x.parquet'")
    small.sql(f"CALL ducklake_add_data_files('lake', 't', '{outside}/x.parquet', hive_partitioning => true)")
    [change] = changed(small)
    assert Path(change.location.path).parent == outside
    small.sql(CLEAN_UP)
    assert [path.name for path in outside.iterdir()] == [Path(change.location.path).name]


def test_a_catalog_that_may_not_be_written_to_says_so_before_any_work(small, monkeypatch):
    small.sql(NOTHING_INLINED, "CREATE TABLE t AS SELECT * FROM range(9)")
    table, snapshot = opened(small)
    monkeypatch.setattr("os.access", lambda path, mode: path != str(small.catalog))  # root may write to any
    with pytest.raises(StorageError, match="may not be written to; ask for the right to change the catalog"):
        table.commit_modes(snapshot)


def test_files_in_a_store_are_read_and_replaced(small):
    small.sql("CREATE TABLE t (id INT, k VARCHAR)", "ALTER TABLE t SET PARTITIONED BY (k)")
    small.sql("INSERT INTO t SELECT i, 'a b/ü%' || i % 2 FROM range(40) r(i)", "DELETE FROM t WHERE id < 20")
    small.sql("DELETE FROM t WHERE id = 25")
    expected = sorted_rows(small.answer("FROM t"))
    small.release()
    with serving() as store:
        store.client.create_bucket(Bucket="lake")
        for path in small.data.rglob("*.parquet"):
            store.put(f"lake/files/{path.relative_to(small.data)}", path.read_bytes())
        table = open_ducklake(small.name(), None, TableAccess({"data_path": store.uri("lake/files")}))
        snapshot = table.snapshot()
        assert sorted_rows(live_rows(snapshot)) == expected
        changes = []
        for file in snapshot.files:
            where = table.new_location(file)
            store.put(where.path, store.get(file.path))
            changes.append(Change(file, where, file.size, int.from_bytes(store.get(file.path)[-8:-4], "little")))
        missing = changes[0]._replace(location=replace(changes[0].location, path=changes[0].location.path + "x"))
        with pytest.raises(StorageError, match="is not there"):
            table.commit(snapshot, [missing], {})
        table.commit(snapshot, changes, {})
        again = table.snapshot()
        assert [str(file) for file in again.files] == [str(change.location) for change in changes]
        assert all(str(file).startswith("s3://lake/files/main/t/k=") for file in again.files), "no secret in it"
        assert sorted_rows(live_rows(again)) == expected


# --- conflicts ----------------------------------------------------------------------------------

OTHERS = {
    "delete": ("DELETE FROM t WHERE id = 150", "deleted rows of it"),
    "many deletes": ("DELETE FROM t WHERE id < 400", "deleted rows of it"),
    "all deleted": ("DELETE FROM t", "took it out of the table|deleted rows of it"),
    "update": ("UPDATE t SET s = 'other' WHERE id < 300", "deleted rows of it"),
    "rewrite": (REWRITE, "took it out of the table"),
    "dropped": ("DROP TABLE t", "took it out of the table"),
}


@pytest.mark.parametrize(
    ("other", "inlining"),
    [("delete", 10), *((other, 0) for other in OTHERS)]
    + [pytest.param(other, 10, marks=pytest.mark.more) for other in OTHERS if other != "delete"],
)
def test_a_commit_that_is_too_late_changes_nothing(small, other, inlining):
    statement, reason = OTHERS[other]
    small.sql(f"CALL lake.set_option('data_inlining_row_limit', {inlining})", *WITH_DELETES)
    table, snapshot = opened(small)
    changes = with_filters(table, snapshot)
    small.sql(statement)
    before = rows_of_all_snapshots(small)
    small.release()
    content = small.catalog.read_bytes()
    with pytest.raises(ConflictError, match=reason):
        table.commit(snapshot, changes, {})
    assert small.catalog.read_bytes() == content, "all of one commit, or nothing"
    assert rows_of_all_snapshots(small) == before


def test_inserts_and_new_columns_are_no_conflict(lake):
    table, snapshot, changes = begun(lake)
    lake.sql(
        "INSERT INTO t SELECT 9000, 'late' FROM range(50)",
        "ALTER TABLE t ADD COLUMN more INT",
        "ALTER TABLE t RENAME TO u",
    )
    latest = lake.snapshots()[-1]
    before = lake.sql("SELECT count(*), sum(id) FROM u")
    lake.release()
    assert table.commit(snapshot, changes, {}) == str(latest)
    assert lake.sql("SELECT count(*), sum(id) FROM u") == before
    lake.sql("ALTER TABLE u RENAME TO t")
    assert marked(lake) == [True, True, True, False]


def test_of_two_commits_the_second_is_refused(lake):
    lake.sql(NOTHING_INLINED, *WITH_DELETES)
    before = rows_of_all_snapshots(lake)
    (one, first), (two, second) = opened(lake), opened(lake)
    late = with_filters(two, second)
    one.commit(first, with_filters(one, first), {})
    with pytest.raises(ConflictError, match=r"another commit put .*-bloom-[0-9a-f]{32}\.parquet in its place"):
        two.commit(second, late, {})
    assert rows_of_all_snapshots(lake) == before


IN_A_TRANSACTION = [
    "DELETE FROM t WHERE id < 400",
    REWRITE,
    "UPDATE t SET s = 'z' WHERE id < 300",
    "INSERT INTO t SELECT i, 'late' FROM range(9000, 9100) r(i)",
    MERGE,
]


@pytest.mark.parametrize("case", first_then_more(product(IN_A_TRANSACTION, ("delete", "wal")), 4), ids=str)
def test_of_ducklakes_open_transaction_and_ours_one_lands(small, monkeypatch, case):
    statement, journal = case
    small.sql(NOTHING_INLINED, *WITH_DELETES, "INSERT INTO t SELECT 7000, ''", "INSERT INTO t SELECT 7001, ''")
    with sqlite3.connect(small.release().catalog) as catalog:
        catalog.execute(f"PRAGMA journal_mode = {journal}")
    catalog.close()
    table, snapshot = opened(small)
    changes = with_filters(table, snapshot)
    before = sorted_rows(small.answer("FROM t"))
    monkeypatch.setattr("parquet_bloom.tables.ducklake.databases._WAIT", 0.2)
    small.sql("BEGIN", statement)
    theirs = sorted_rows(small.answer("FROM t"))
    if journal == "wal":
        table.commit(snapshot, changes, {})
        with pytest.raises(DuckLakeError, match="Failed to commit"):
            small.sql("COMMIT")
        expected = before
    else:
        with pytest.raises(StorageError, match="nothing was committed: database is locked"):
            table.commit(snapshot, changes, {})
        small.sql("COMMIT")
        expected = theirs
    assert sorted_rows(small.answer("FROM t")) == expected
    assert sorted_rows(live_rows(opened(small)[1])) == expected
    assert any(marked(small)) == (journal == "wal")


def test_an_open_transaction_of_another_program_is_waited_for_or_refused(small, monkeypatch):
    table, snapshot, changes = begun(small)
    monkeypatch.setattr("parquet_bloom.tables.ducklake.databases._WAIT", 0.2)
    other = subprocess.Popen(
        [sys.executable, "-c", BUSY, small.catalog], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "begun\n"
    with pytest.raises(StorageError, match="database is locked"):
        table.commit(snapshot, changes, {})
    monkeypatch.undo()
    other.stdin.write("go on\n")
    other.stdin.flush()
    table.commit(snapshot, changes, {})
    other.communicate()
    assert other.returncode == 0
    assert all(marked(small))


@pytest.mark.parametrize("statement", ["DELETE FROM t WHERE id BETWEEN 200 AND 204", MERGE])
def test_a_catalog_in_sqlite_that_a_transaction_of_this_process_has_open_is_refused(small, statement):
    """Both commits landed there, and a clean-up then deleted live files."""
    small.sql(NOTHING_INLINED, *WITH_DELETES, "INSERT INTO t SELECT i, '' FROM range(7000, 7100) r(i)")
    before = sorted_rows(small.answer("FROM t"))
    small.release()
    extensions = packages("ducklake", "sqlite_scanner", required=REQUIRED)
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER, small.catalog, small.data, statement],
        env={**os.environ, "PYTHONPATH": f"{extensions}:{Path(__file__).parents[2] / 'src'}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    refused = "is open in this process, probably by a DuckDB transaction; end that first"
    assert done.stdout.count(refused) == 2, done.stdout
    assert done.stdout.endswith("1 commits\n")
    assert (sorted_rows(small.answer("FROM t")) == before) == ("DELETE" not in statement)
    small.sql(CLEAN_UP)
    assert small.sql("SELECT count(*) FROM t")[0][0] == len(before) - 5 * ("DELETE" in statement)


def test_a_file_that_was_added_twice_is_not_scheduled_while_a_row_names_it(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (id BIGINT)", "CREATE TABLE u (id BIGINT)")
    path = small.folder / "both.parquet"
    pq.write_table(pa.table({"id": range(1000)}), path)
    for table in "ttu":
        small.sql(f"CALL ducklake_add_data_files('lake', '{table}', '{path}')")
    for table in "tut":  # a run looks at a path once, so the table that has it twice takes two
        small.release()
        assert path.exists(), "a row names it"
        name = f"ducklake:{small.name(f'main.{table}')}"
        done = parquet_bloom.add_filters(name, columns=["id"], allow_roots=small.folder, force=True)
        assert len(done.commits) == 1
        small.sql(CLEAN_UP)
        assert small.sql("SELECT count(*) FROM t")[0][0] == 2000
        assert small.sql("SELECT count(*) FROM u")[0][0] == 1000
    assert not path.exists(), "no row names it any more"


def test_a_catalog_that_another_process_has_open_says_so(tmp_path):
    lake = Lake(tmp_path, False)
    lake.sql("CREATE TABLE t (id INT)")
    with pytest.raises(StorageError, match="Could not set lock on file"):
        open_ducklake(lake.name(), None).snapshot()
    lake.release()
    assert open_ducklake(lake.name(), None).snapshot().files == []


# --- killed, or refused by the database ---------------------------------------------------------


def test_a_run_that_was_killed_before_its_commit_leaves_the_table_as_it_was(lake):
    _, _, changes = begun(lake)
    assert len(live_rows(opened(lake)[1])) == 1399
    assert {row[0] for row in lake.sql(TAKE_ORPHANS)} == {change.location.path for change in changes}
    changed(lake)


FIXTURE = Path(__file__).parents[2] / "fixtures/ducklake"
# A writer that is killed before it commits what it wrote to the catalog's file. Argument: the catalog.
KILLED = """
import os, signal, sqlite3, sys
writer = sqlite3.connect(sys.argv[1], isolation_level=None)
writer.execute("PRAGMA cache_size = 2")
writer.execute("BEGIN IMMEDIATE")
writer.execute("DELETE FROM ducklake_data_file")
writer.execute("CREATE TABLE other (x)")
writer.executemany("INSERT INTO other VALUES (?)", [("y" * 3000,)] * 400)
os.kill(os.getpid(), signal.SIGKILL)
"""


def half_written(folder: Path, journal: str = "delete") -> Path:
    """A copy of the fixture's catalog, whose files lie in `folder`, with a transaction that nobody undid."""
    shutil.copytree(FIXTURE, folder, dirs_exist_ok=True)
    catalog = folder / "meta.sqlite"
    with closing(sqlite3.connect(catalog, isolation_level=None)) as lake:
        lake.execute(f"PRAGMA journal_mode = {journal}")
        lake.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", [f"{folder}/data/"])
    done = subprocess.run([sys.executable, "-c", KILLED, catalog], check=False)
    assert done.returncode == -signal.SIGKILL
    return catalog


@pytest.mark.parametrize("change", [parquet_bloom.add_filters, parquet_bloom.remove_filters])
def test_a_change_undoes_the_commit_of_a_writer_that_was_killed(tmp_path, change):
    expected = parquet_bloom.count(f"ducklake:{half_written(tmp_path / 'wal', 'wal')}/main.t")
    catalog = half_written(tmp_path)
    table, journal, before = f"ducklake:{catalog}/main.t", Path(f"{catalog}-journal"), catalog.read_bytes()
    for read in (
        lambda: parquet_bloom.count(table),
        lambda: parquet_bloom.inspect(table),
        lambda: parquet_bloom.Source(table).check("id = 1"),
        lambda: parquet_bloom.add_filters(table, columns=["id"], dry_run=True),
    ):
        with pytest.raises(StorageError, match="ended in the middle of a commit; to undo it, open") as caught:
            read()
        assert caught.value.path == str(catalog)
    assert journal.stat().st_size
    assert catalog.read_bytes() == before, "readers undo nothing"
    how = {"columns": ["id"]} if change is parquet_bloom.add_filters else {"all_writers": True}
    assert len(change(table, **how).commits) == 1
    assert not journal.exists()
    assert parquet_bloom.count(table) == expected == 79


def test_a_journal_that_names_another_file_deletes_nothing(tmp_path):
    """As of a transaction of several databases: undoing it deletes the file that the journal names."""
    catalog, precious = half_written(tmp_path), tmp_path / "precious"
    journal, name = Path(f"{catalog}-journal"), os.fsencode(precious)
    page = catalog.read_bytes()[16:18]
    pending = (1 << 30) // int.from_bytes(page) + 1
    end = len(name).to_bytes(4) + sum(name).to_bytes(4) + bytes.fromhex("d9d505f920a163d7")
    journal.write_bytes(journal.read_bytes() + pending.to_bytes(4) + name + end)

    def by_sqlite() -> None:
        with closing(sqlite3.connect(catalog, isolation_level=None)) as lake:
            lake.execute("BEGIN IMMEDIATE")

    precious.write_text("precious")
    kept = {path: path.read_bytes() for path in (catalog, journal)}
    for change in (parquet_bloom.add_filters, parquet_bloom.remove_filters):
        how = {"columns": ["id"]} if change is parquet_bloom.add_filters else {}
        with pytest.raises(TableFormatError, match="names another file, which SQLite would delete") as caught:
            change(f"ducklake:{catalog}/main.t", **how)
        assert caught.value.path == str(journal)
        assert precious.exists()
    assert {path: path.read_bytes() for path in kept} == kept
    by_sqlite()
    assert not precious.exists(), "the journal is one that SQLite believes"
    parquet_bloom.add_filters(f"ducklake:{catalog}/main.t", columns=["id"])


def test_a_pipe_in_the_place_of_a_catalogs_file_is_not_waited_for(tmp_path, capsys):
    catalog = half_written(tmp_path)
    for name in ("meta.sqlite-journal", "meta.sqlite"):
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        assert run(["inspect", f"ducklake:{catalog}/main.t"]) == 2
        assert f"{tmp_path / name}: is no " in capsys.readouterr().err


def test_what_was_cleaned_away_before_the_commit_is_not_committed(small):
    table, snapshot, changes = begun(small)
    small.sql(TAKE_ORPHANS)
    small.release()
    with pytest.raises(StorageError, match="is not there, where a file of"):
        table.commit(snapshot, changes, {})
    assert len(live_rows(opened(small)[1])) == 1399


def test_a_database_that_fails_commits_nothing(lake, monkeypatch):
    table, snapshot, changes = begun(lake)
    before = rows_of_all_snapshots(lake)
    lake.release()
    run = Queries.run
    for statement in ("UPDATE", "INSERT", "COMMIT"):

        def failing(self, sql, values=(), statement=statement):
            if sql.startswith(statement):
                raise StorageError(lake.catalog, "disk I/O error")
            return run(self, sql, values)

        with monkeypatch.context() as patch, pytest.raises(StorageError, match="disk I/O error"):
            patch.setattr(Queries, "run", failing)
            table.commit(snapshot, changes, {})
    assert rows_of_all_snapshots(lake) == before


def after_the_commit(lake: Lake, monkeypatch, also: str = "") -> ParquetBloomError | str:
    """A commit whose answer is an error, though it landed; `also` fails too."""
    table, snapshot = opened(lake)
    changes = with_filters(table, snapshot)
    run = Queries.run
    seen = []

    def failing(self, sql, values=()):
        rows = run(self, sql, values)
        seen.append(sql)
        if sql == "COMMIT" or (also and "COMMIT" in seen and sql.startswith(also)):
            raise StorageError(lake.catalog, "connection lost")
        return rows

    with monkeypatch.context() as patch:
        patch.setattr(Queries, "run", failing)
        try:
            return table.commit(snapshot, changes, {})
        except ParquetBloomError as error:
            return error


def test_a_commit_that_landed_is_told_from_one_that_did_not(small, monkeypatch):
    small.sql(NOTHING_INLINED, *WITH_DELETES)
    before = rows_of_all_snapshots(small)
    assert after_the_commit(small, monkeypatch) == str(max(before))
    assert all(marked(small))
    unknown = after_the_commit(small, monkeypatch, "SELECT")
    assert isinstance(unknown, UnknownCommitError), "the new files must stay, as the table has them"
    assert rows_of_all_snapshots(small) == before


def test_changes_that_would_not_be_found_again_are_refused(small, tmp_path):
    table, snapshot, [change] = begun(small, "CREATE TABLE t AS SELECT * FROM range(9)")
    with pytest.raises(RequestError, match="does not change in place"):
        table.commit(snapshot, [change._replace(location=snapshot.files[0])], {})
    elsewhere = replace(change.location, path=str(tmp_path / "x.parquet"))
    with pytest.raises(RequestError, match="lies in the folder of the old one"):
        table.commit(snapshot, [change._replace(location=elsewhere)], {})
    with pytest.raises(StorageError, match="bytes, where a file of 1 bytes was written"):
        table.commit(snapshot, [change._replace(size=1)], {})
