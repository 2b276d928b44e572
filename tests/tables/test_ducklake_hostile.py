"""DuckLake catalogs that want to be programs: nothing that is defined in one runs, and every value may be a lie."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from support.ducklake_tables import Lake, fill, sorted_rows
from support.repeats import first_then_more
from support.samples import FIXTURES

import parquet_bloom as pb
from parquet_bloom.cli import run
from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError, TableFormatError
from parquet_bloom.tables.ducklake import databases
from parquet_bloom.tables.ducklake.catalog import Catalog
from parquet_bloom.tables.ducklake.databases import DuckDatabase, SQLiteDatabase
from parquet_bloom.tables.ducklake.table import open_ducklake

SECRET = "a secret of the caller"
READ = [
    "ducklake_metadata", "ducklake_snapshot", "ducklake_schema", "ducklake_table", "ducklake_column",
    "ducklake_data_file", "ducklake_file_column_stats", "ducklake_partition_column", "ducklake_file_partition_value",
    "ducklake_column_mapping", "ducklake_name_mapping", "ducklake_delete_file", "ducklake_inlined_delete_1",
    "ducklake_inlined_data_tables", "ducklake_inlined_data_1_2",
]  # fmt: skip
ENDLESS = "(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT max(n) FROM c)"


class Made:
    """A catalog with a row in each table that is read, to be copied and changed."""

    def __init__(self, folder: Path, sqlite: bool) -> None:
        self.lake = Lake(folder, sqlite)
        fill(self.lake)
        self.rows = sorted_rows(self.lake.answer("FROM t"))
        self.lake.release()

    def copy(self, folder: Path) -> Path:
        return Path(shutil.copy(self.lake.catalog, folder))

    def changed(self, folder: Path, *statements: str) -> str:
        """A copy, in which these statements ran; as our functions name its table."""
        path = self.copy(folder)
        if self.lake.catalog.suffix == ".sqlite":
            with closing(sqlite3.connect(path)) as connection, connection:
                for statement in statements:
                    connection.execute(statement)
        else:
            with duckdb.connect(str(path)) as connection:
                for statement in statements:
                    connection.execute(statement)
        return f"ducklake:{path}/main.t"


@pytest.fixture(scope="module")
def in_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("lake"), False)


@pytest.fixture(scope="module")
def in_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("lake"), True)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    return path


def refused(table: str, reason: str) -> None:
    with pytest.raises(TableFormatError, match=reason) as caught:
        pb.read_table(table)
    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


def rows_of(table: str) -> list[str]:
    return sorted_rows(pb.read_table(table).to_pylist())


# --- views --------------------------------------------------------------------------------------


def test_a_view_in_duckdb_reads_no_file(in_duckdb: Made, tmp_path: Path, secret: Path) -> None:
    for table in READ:
        view = f"SELECT * FROM other WHERE error((SELECT content FROM read_text('{secret}'))) IS NULL"
        name = in_duckdb.changed(tmp_path, f"ALTER TABLE {table} RENAME TO other", f"CREATE VIEW {table} AS {view}")
        refused(name, f"{table} is a view; DuckLake makes plain tables")


def test_a_view_in_sqlite_does_not_run(in_sqlite: Made, tmp_path: Path) -> None:
    for table in READ:
        view = f"CREATE VIEW {table} AS SELECT * FROM other WHERE {ENDLESS} > 0"
        name = in_sqlite.changed(tmp_path, f"ALTER TABLE {table} RENAME TO other", view)
        refused(name, f"{table} is a view; DuckLake makes plain tables")


def test_a_view_that_is_written_down_as_a_table_does_not_run(in_sqlite: Made, tmp_path: Path) -> None:
    name = in_sqlite.changed(
        tmp_path,
        "ALTER TABLE ducklake_snapshot RENAME TO other",
        f"CREATE VIEW ducklake_snapshot AS SELECT * FROM other WHERE {ENDLESS} > 0",
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET type = 'table' WHERE name = 'ducklake_snapshot'",
    )
    with pytest.raises((TableFormatError, StorageError)):
        pb.read_table(name)


def test_a_statement_of_ours_runs_no_view_of_sqlite(in_sqlite: Made, tmp_path: Path) -> None:
    in_sqlite.changed(tmp_path, "CREATE VIEW v AS SELECT snapshot_id FROM ducklake_snapshot")
    database = SQLiteDatabase(str(tmp_path / "meta.sqlite"), False)
    try:
        with pytest.raises(TableFormatError, match="would run v, which DuckLake does not make"):
            database.run("SELECT * FROM v")
        for sql in (f"SELECT {ENDLESS}", "SELECT random()", "PRAGMA writable_schema", "ATTACH ':memory:' AS x"):
            with pytest.raises(TableFormatError, match="would run what a catalog defines"):
                database.run(sql)
        for sql in ("DELETE FROM ducklake_snapshot", "UPDATE ducklake_snapshot SET schema_version = 0"):
            with pytest.raises(TableFormatError):
                database.run(sql)
    finally:
        database.close()


DELETES = "ducklake_delete_file"
NOT_PLAIN = {  # what a table of SQLite is -> statements that make it so
    "is a virtual table": [
        f"DROP TABLE ducklake_snapshot; CREATE VIRTUAL TABLE ducklake_snapshot USING {module}"
        for module in ("fts5(snapshot_id, snapshot_time)", "rtree(snapshot_id, a, b)")
    ],
    f"{DELETES} is a table with a computed column, path": [
        f"DROP TABLE {DELETES}; CREATE TABLE {DELETES} (a, path AS (hex(zeroblob(a))) {kind})"
        for kind in ("VIRTUAL", "STORED")
    ],
    "ducklake_data_file is a table with an index over an expression, odd": [
        f"CREATE INDEX odd ON ducklake_data_file {index}" for index in ("(hex(path))", "(path) WHERE path > 'x'")
    ],
}


def test_a_table_of_sqlite_that_computes_is_not_read(in_sqlite: Made, tmp_path: Path) -> None:
    for reason, ways in NOT_PLAIN.items():
        for statements in ways:
            refused(in_sqlite.changed(tmp_path, *statements.split("; ")), reason)


# --- columns, constraints and indexes -----------------------------------------------------------


def test_a_table_of_duckdb_that_computes_is_not_read(in_duckdb: Made, tmp_path: Path) -> None:
    name = in_duckdb.changed(
        tmp_path,
        "ALTER TABLE ducklake_snapshot RENAME TO other",
        "CREATE TABLE ducklake_snapshot (id BIGINT, snapshot_time TIMESTAMPTZ, "
        "snapshot_id BIGINT GENERATED ALWAYS AS (id + 0))",
        "INSERT INTO ducklake_snapshot (id, snapshot_time) SELECT snapshot_id, snapshot_time FROM other",
    )
    refused(name, "ducklake_snapshot is a table with a computed column")
    columns = "file_id BIGINT, row_id BIGINT, begin_snapshot BIGINT, CHECK (row_id < 10)"
    table = "ducklake_inlined_delete_1"
    name = in_duckdb.changed(tmp_path, f"DROP TABLE {table}", f"CREATE TABLE {table} ({columns})")
    refused(name, "ducklake_inlined_delete_1 is a table with a CHECK")


def test_indexes_and_defaults_as_people_and_migrations_make_them_are_fine(
    in_sqlite: Made, in_duckdb: Made, tmp_path: Path
) -> None:
    name = in_sqlite.changed(
        tmp_path,
        "CREATE INDEX quick ON ducklake_data_file (table_id, path)",
        "ALTER TABLE ducklake_data_file ADD COLUMN note VARCHAR DEFAULT ''",
    )
    assert rows_of(name) == in_sqlite.rows
    name = in_duckdb.changed(tmp_path, "ALTER TABLE ducklake_data_file ADD COLUMN note VARCHAR DEFAULT ''")
    assert rows_of(name) == in_duckdb.rows


# --- functions ----------------------------------------------------------------------------------

MACROS = [
    "CREATE MACRO epoch_us(x) AS 0",
    "CREATE MACRO current_database() AS 'nowhere'",
    "CREATE MACRO count_star() AS 0",
    "CREATE MACRO max(x) AS 0",
    "CREATE MACRO duckdb_tables() AS TABLE SELECT 0 AS check_constraint_count, '' AS sql",
    "CREATE MACRO duckdb_columns() AS TABLE SELECT 0 AS column_index, 'x' AS column_name, NULL AS column_default",
    "CREATE MACRO duckdb_views() AS TABLE SELECT 'ducklake_snapshot' AS view_name",
    "CREATE TYPE json AS ENUM ('x')",
]


def test_macros_of_a_catalog_do_not_stand_in_for_functions(in_duckdb: Made, tmp_path: Path) -> None:
    name = in_duckdb.changed(tmp_path, *MACROS)
    times = in_duckdb.lake.sql("SELECT snapshot_time FROM ducklake_snapshots('lake') ORDER BY snapshot_id")
    in_duckdb.lake.release()
    for open_here in (False, True):
        with duckdb.connect(str(tmp_path / "meta.ducklake")) if open_here else nullcontext():
            assert rows_of(name) == in_duckdb.rows
            assert rows_of(f"{name}@{times[-1][0]}") == in_duckdb.rows, "times are of the catalog, not of a macro"


def test_where_this_process_has_the_catalog_open_views_are_refused_too(
    in_duckdb: Made, tmp_path: Path, secret: Path
) -> None:
    name = in_duckdb.changed(
        tmp_path,
        "ALTER TABLE ducklake_snapshot RENAME TO other",
        f"CREATE VIEW ducklake_snapshot AS SELECT error(content) AS snapshot_id FROM read_text('{secret}')",
    )
    with duckdb.connect(str(tmp_path / "meta.ducklake")) as user:
        refused(name, "ducklake_snapshot is a view")
        assert user.execute("SELECT 1").fetchall() == [(1,)], "its connection goes on"


# --- what a statement may do --------------------------------------------------------------------


def test_duckdb_opens_nothing_but_the_catalog(in_duckdb: Made, tmp_path: Path, secret: Path) -> None:
    path = in_duckdb.copy(tmp_path)
    ours = [1, 2, 3]  # noqa: F841  (a variable that DuckDB's statements could read)
    database = DuckDatabase(str(path), True)
    try:
        for sql in (
            f"SELECT * FROM read_text('{secret}')",
            f"SELECT * FROM '{secret}'",
            f"COPY (SELECT 1) TO '{tmp_path / 'written.parquet'}'",
            f"ATTACH '{tmp_path / 'other.db'}' AS other",
            f"ATTACH '{in_duckdb.lake.catalog}' AS other (READ_ONLY)",
            f"EXPORT DATABASE '{tmp_path / 'exported'}'",
            "SET enable_external_access = true",
            "SET allowed_directories = ['/']",
            "INSTALL httpfs",
            "LOAD httpfs",
            "FROM ours",
            "SELECT * FROM read_parquet('s3://bucket/key')",
        ):
            with pytest.raises(StorageError):
                database.run(sql)
    finally:
        database.close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["meta.ducklake", "secret"]


def test_steps_time_and_rows_are_bounded(
    in_duckdb: Made, in_sqlite: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "_STEPS", 100_000)
    monkeypatch.setattr(databases, "_SECONDS", 0.3)
    in_sqlite.changed(tmp_path, "CREATE TABLE k (x)", *["INSERT INTO k VALUES (1)"] * 300)
    monkeypatch.setattr(databases, "_STEPS_PER_BYTE", 0)
    cross = "SELECT 1 FROM k a, k b, k c WHERE a.x < b.x"
    slow = SQLiteDatabase(str(tmp_path / "meta.sqlite"), False)
    with closing(slow), pytest.raises(TableFormatError, match="a query took more than 100,000 steps"):
        slow.run(cross)
    monkeypatch.setattr(databases, "_SECONDS_PER_BYTE", 0)
    path = str(in_duckdb.copy(tmp_path))
    other = DuckDatabase(path, False)
    with closing(other):
        with pytest.raises(TableFormatError, match="a query took more than 0 seconds"):
            other.run("SELECT a.range FROM range(10000000) a, range(10000000) b WHERE a.range + b.range < 0")
        assert other.run("SELECT 1") == [(1,)]
    monkeypatch.setattr(databases, "_SECONDS", 60.0)
    other = DuckDatabase(path, False)
    with closing(other), pytest.raises(TableFormatError, match="a query gave more than [0-9,]+ rows"):
        other.run("SELECT * FROM range(1000000000)")


# --- commits ------------------------------------------------------------------------------------


TRIGGERS = [
    "UPDATE ON ducklake_data_file BEGIN DELETE FROM ducklake_snapshot; END",
    f"UPDATE ON ducklake_data_file BEGIN SELECT {ENDLESS}; END",
    "INSERT ON ducklake_files_scheduled_for_deletion BEGIN SELECT hex(zeroblob(9)); END",
]


def test_triggers_do_not_run_in_our_commits(in_sqlite: Made, tmp_path: Path) -> None:
    shutil.copytree(in_sqlite.lake.data, tmp_path / "data")
    path, where = tmp_path / "meta.sqlite", {"data_path": f"{tmp_path}/data/"}
    for trigger in TRIGGERS:
        name = in_sqlite.changed(tmp_path, f"CREATE TRIGGER sly AFTER {trigger}")
        before, catalog = path.read_bytes(), Catalog(str(path), True)
        with pytest.raises(TableFormatError, match="would run sly, which DuckLake does not make"):  # noqa: SIM117
            with catalog.writing() as q:
                q.run(f"UPDATE {q.table('ducklake_data_file')} SET footer_size = 1")
                q.run(f"INSERT INTO {q.table('ducklake_files_scheduled_for_deletion')} VALUES (1, 'x', 1, 'now')")
        assert path.read_bytes() == before
        rows = pb.count(name, catalog_properties=where, allow_roots=in_sqlite.lake.data)
        assert rows == len(in_sqlite.rows), "reading runs no trigger"


def test_a_commit_leaves_no_log_behind_and_others_in_this_process_wait(in_duckdb: Made, tmp_path: Path) -> None:
    path = in_duckdb.copy(tmp_path)
    catalog, failures = Catalog(str(path), False), []

    def work(write: bool) -> None:
        try:
            for _ in range(5):
                if write:
                    with catalog.writing() as queries:
                        stats = queries.table("ducklake_table_stats")
                        queries.run(f"UPDATE {stats} SET record_count = record_count + 1")
                else:
                    with catalog.reading() as queries:
                        assert queries.snapshots()
        except ParquetBloomError as error:
            failures.append(error)

    with duckdb.connect(str(path), read_only=True) as connection:
        [(before,)] = connection.execute("SELECT record_count FROM ducklake_table_stats").fetchall()
    threads = [threading.Thread(target=work, args=[write]) for write in (True, False, True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert [one.name for one in tmp_path.iterdir()] == ["meta.ducklake"]
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT record_count FROM ducklake_table_stats").fetchall() == [(before + 10,)]


def test_a_catalog_that_this_process_reads_or_writes_is_read_beside_that(in_duckdb: Made, tmp_path: Path) -> None:
    path = in_duckdb.copy(tmp_path)
    name = f"ducklake:{path}/main.t"
    for read_only in (False, True):
        with duckdb.connect(str(path), read_only=read_only) as user:
            assert rows_of(name) == in_duckdb.rows
            assert user.execute("SELECT 1").fetchall() == [(1,)]
    with duckdb.connect() as user:
        user.execute(f"ATTACH '{path}' AS mine")
        with pytest.raises(StorageError, match="already attached by database"):
            rows_of(name)


# --- values -------------------------------------------------------------------------------------

LIES: list[Any] = [None, "x", "", -1, 1 << 62, 1.5, b"\xff", "9" * 5000, "{" * 5000]
LIES += ["decimal(99,1)", "bucket(0)", "1" * 20]


def every_column(path: Path) -> Iterator[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        for table in READ:
            for row in connection.execute(f"PRAGMA table_info({table})").fetchall():
                yield table, row[1]


@pytest.mark.parametrize("turn", first_then_more(range(3), 1))
def test_no_value_of_a_catalog_leads_to_a_foreign_error(in_sqlite: Made, tmp_path: Path, turn: int) -> None:
    path = in_sqlite.copy(tmp_path)
    good = path.read_bytes()
    for number, (table, column) in enumerate(every_column(path)):
        for lie in LIES[(number + turn) % 3 :: 3]:
            path.write_bytes(good)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA ignore_check_constraints = ON")
                try:
                    with connection:
                        connection.execute(f'UPDATE {table} SET "{column}" = ?', [lie])
                except sqlite3.IntegrityError:
                    continue
            try:
                with suppress(ParquetBloomError):
                    pb.count(f"ducklake:{path}/main.t", "id = 7 OR k = 'a1'")
                with suppress(ParquetBloomError):
                    pb.read_table(f"ducklake:{path}/main.t", "id > 400")
            except Exception as error:
                raise AssertionError((table, column, lie)) from error


CONTRADICTIONS = {
    "ducklake_data_file.file_format is NULL, not a text": ["UPDATE ducklake_data_file SET file_format = NULL"],
    "ducklake_data_file.record_count is -1, not a count": ["UPDATE ducklake_data_file SET record_count = -1"],
    "two columns have one id": ["UPDATE ducklake_column SET column_id = 1, parent_column = 1"],
    "column c0 is nested deeper than 100 groups": [
        f"INSERT INTO ducklake_column VALUES ({100 + i}, 0, NULL, 1, {i}, 'c{i}', 'struct', NULL, NULL, 1, "
        f"{99 + i if i else 'NULL'}, NULL, NULL)"
        for i in range(1000)
    ],
}


def test_what_ducklake_does_not_write_is_named(in_sqlite: Made, tmp_path: Path) -> None:
    for reason, statements in CONTRADICTIONS.items():
        refused(in_sqlite.changed(tmp_path, *statements), reason)
    with pytest.raises(RequestError, match="no snapshot"):
        open_ducklake(in_sqlite.lake.name(), "9" * 5000).snapshot()


@pytest.mark.filterwarnings("ignore::parquet_bloom.errors.FilterWarning")
def test_a_null_partition_that_the_catalogs_counts_deny_is_no_evidence(in_sqlite: Made, tmp_path: Path) -> None:
    for index in (0, 1):  # partitioned by k, and by bucket(3, id)
        change = "UPDATE ducklake_file_partition_value SET partition_value = NULL WHERE partition_key_index = "
        name = in_sqlite.changed(tmp_path, f"{change}{index}")
        shown = pb.read_table(name).to_pylist()
        assert sorted_rows(shown) == in_sqlite.rows
        for where, fits in {
            "k = 'a1'": lambda row: row["k"] == "a1",
            "k IS NULL": lambda row: row["k"] is None,
            "id IN (17, 500)": lambda row: row["id"] in (17, 500),
            "id = 17 AND k <> 'a0'": lambda row: row["id"] == 17 and row["k"] != "a0",
        }.items():
            found = pb.read_table(name, where).to_pylist()
            assert sorted_rows(found) == sorted_rows([row for row in shown if fits(row)]), where


def test_a_catalog_of_holes_is_no_larger_than_a_count_of_rows(tmp_path: Path) -> None:
    """A file of a TiB takes no block of the disk; its size bounds what is read of it."""
    for end in ("", "-wal"):
        folder = Path(shutil.copytree(FIXTURES / "ducklake", tmp_path / f"lake{end}"))
        with open(folder / f"meta.sqlite{end}", "ab") as file:
            file.truncate(1 << 40)
        with suppress(ParquetBloomError):
            pb.check(f"ducklake:{folder}/meta.sqlite/main.t", "id = 1")


def test_duckdb_draws_no_bar_between_what_a_program_prints(
    in_duckdb: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As it does after two seconds of one query, on a terminal or not."""
    connect = duckdb.connect

    class Impatient:
        """A connection that draws at once; what its first statement draws is dropped."""

        def __init__(self, *words: Any, **more: Any) -> None:
            self._real, self._first = connect(*words, **more), True
            self._real.execute("SET progress_bar_time = 0")

        def execute(self, *words: Any) -> Any:
            done = self._real.execute(*words)
            if self._first:
                self._first = False
                capfd.readouterr()
            return done

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    monkeypatch.setattr(duckdb, "connect", Impatient)
    assert run(["check", f"ducklake:{in_duckdb.copy(tmp_path)}/main.t", "id = 5", "--json"]) in (0, 1)
    said = capfd.readouterr().out
    assert json.loads(said)["table"].endswith("main.t"), said[:200]
