"""A DuckLake table read from its catalog: rows, values and deletes are those that DuckLake itself gives."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.ducklake_tables import NOTHING_INLINED, DuckLakeError, Lake, live_rows, sorted_rows, stored_rows, unsound

from parquet_bloom import read_table
from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError, TableFormatError
from parquet_bloom.format.values import operand
from parquet_bloom.source.columns import leaves_of
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.storage.remote import Location
from parquet_bloom.tables.ducklake.reading import DeleteFile
from parquet_bloom.tables.ducklake.table import open_ducklake

FIXTURE = Path(__file__).parents[2] / "fixtures" / "ducklake"


def read(lake: Lake, version: int | str | None = None, table: str = "main.t") -> Snapshot:
    lake.release()
    access = TableAccess(None, lake.allow_roots)
    return open_ducklake(lake.name(table), None if version is None else str(version), access).snapshot()


def by_hand(lake: Lake, *statements: str) -> None:
    """Change a catalog in SQLite as DuckLake would not."""
    with closing(sqlite3.connect(lake.release().catalog)) as catalog, catalog:
        for statement in statements:
            catalog.execute(statement)


def agree(lake: Lake, table: str = "t") -> list[int]:
    """Every snapshot in which the table is gives the rows of DuckLake; returns their numbers."""
    answers = {}
    for version in lake.snapshots():
        with suppress(DuckLakeError):  # there is no such table yet
            answers[version] = lake.answer(f"SELECT * FROM {table} AT (VERSION => {version})")
    for version, expected in answers.items():
        snapshot = read(lake, version, f"main.{table}")
        assert snapshot.version == str(version)
        assert sorted_rows(live_rows(snapshot)) == sorted_rows(expected), f"snapshot {version}"
        assert unsound(snapshot) == [], "no row may be skipped for what the catalog says"
    return list(answers)


def rows_here(lake: Lake, predicate: str | None = None, table: str = "main.t") -> list[dict[str, Any]]:
    """What our reader gives."""
    lake.release()
    return read_table(f"ducklake:{lake.name(table)}", predicate, allow_roots=lake.allow_roots).to_pylist()


def test_every_snapshot_has_the_rows_of_its_time(lake):
    lake.sql(
        NOTHING_INLINED,
        "CREATE TABLE t (id BIGINT, name VARCHAR, st STRUCT(a INT, b VARCHAR), tags VARCHAR[], m MAP(VARCHAR, INT))",
        "INSERT INTO t SELECT i, 'n' || i, {'a': i, 'b': NULL}, [NULL, 'x'], MAP {'k': i} FROM range(100) r(i)",
        "INSERT INTO t SELECT i, NULL, NULL, NULL, NULL FROM range(100, 150) r(i)",
        "DELETE FROM t WHERE id % 3 = 0",
        "DELETE FROM t WHERE id % 5 = 0",
        "UPDATE t SET name = 'changed' WHERE id = 7",
        "ALTER TABLE t RENAME name TO title",
        "ALTER TABLE t ADD COLUMN name INT DEFAULT 42",
        "INSERT INTO t SELECT 1000, 'late', NULL, [], MAP {}, 5",
        "ALTER TABLE t DROP COLUMN tags",
        "ALTER TABLE t ADD COLUMN st.c BIGINT DEFAULT 7",
        "ALTER TABLE t RENAME st.a TO aa",
        "ALTER TABLE t ALTER name SET DATA TYPE BIGINT",
    )
    assert len(agree(lake)) == 13


def test_a_version_is_a_snapshot_or_a_time(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (id INT)", "INSERT INTO t SELECT * FROM range(5)")
    small.sql("INSERT INTO t SELECT * FROM range(7)")
    times = dict(small.sql("SELECT snapshot_id, snapshot_time::VARCHAR FROM ducklake_snapshots('lake')"))
    last = max(times)
    assert len(live_rows(read(small, last - 1))) == 5
    assert len(live_rows(read(small, times[last - 1]))) == 5, "what was committed at that very moment is there"
    assert len(live_rows(read(small, "9999-01-01"))) == 12
    assert len(live_rows(read(small))) == 12
    for version in ("99", "1999-01-01T00:00:00Z"):
        with pytest.raises(RequestError, match=rf"no snapshot {version}; 0 to {last} are there"):
            read(small, version)
    with pytest.raises(RequestError, match="yesterday is no snapshot and no time"):
        read(small, "yesterday")


def test_names_are_those_of_sql(small):
    odd = '"odd.one"."t/x ""y"'
    small.sql(
        NOTHING_INLINED,
        'CREATE SCHEMA "odd.one"',
        f"CREATE TABLE {odd} AS SELECT 1 AS a",
        "CREATE TABLE T AS SELECT 2 AS a",
    )
    assert live_rows(read(small, None, odd)) == [{"a": 1}]
    assert live_rows(read(small, None, "MAIN.t")) == [{"a": 2}], "as SQL finds it"
    with pytest.raises(TableFormatError, match=r"no such table at snapshot 1; there are: "):
        read(small, 1, "main.T")
    with pytest.raises(RequestError, match="is no table; write ducklake:CATALOG/schema.table"):
        read(small, None, "alone")
    with pytest.raises(RequestError, match="has no property colour; there are: data_path"):
        open_ducklake(small.name(), None, TableAccess({"colour": "red"}))


def test_inlined_rows_and_deletes_are_there_before_and_after_a_flush(lake):
    lake.sql("CREATE TABLE t (id INT)", *["INSERT INTO t SELECT * FROM range(50)"] * 2)
    lake.sql("DELETE FROM t WHERE id = 7", "DELETE FROM t WHERE id BETWEEN 10 AND 40", "DELETE FROM t WHERE id = 3")
    inlined = [file.deletes.inlined for file in read(lake).files]
    assert [sorted(rows) for rows in inlined] == [[3, 7], [3, 7]], "they are positions in each file"
    lake.sql("INSERT INTO t VALUES (98), (99)", "DELETE FROM t WHERE id = 98")
    assert len(agree(lake)) == 8
    lake.sql("CALL ducklake_flush_inlined_data('lake')")
    assert len(agree(lake)) >= 9, "files then have the rows of older snapshots too"


def test_merged_files_show_each_snapshot_its_rows(lake):
    lake.sql(NOTHING_INLINED, "CREATE TABLE t (id INT)")
    for k in range(4):
        lake.sql(f"INSERT INTO t SELECT * FROM range({k * 10}, {k * 10 + 10})")
    lake.sql("CALL ducklake_merge_adjacent_files('lake')")
    assert len(read(lake).files) == 1
    assert len(live_rows(read(lake, 2))) == 10, "the other rows of the file came later"
    assert len(agree(lake)) >= 6
    lake.sql("DELETE FROM t WHERE id % 2 = 0", "INSERT INTO t SELECT * FROM range(5)")
    lake.sql(
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)", "CALL ducklake_merge_adjacent_files('lake')"
    )
    assert len(agree(lake)) >= 8


def test_deletion_vectors_are_applied(small):
    small.sql(NOTHING_INLINED, "CALL lake.set_option('write_deletion_vectors', true)", "CREATE TABLE t (id INT)")
    small.sql("INSERT INTO t SELECT * FROM range(9000)", "DELETE FROM t WHERE id % 3 = 0 OR id > 8000")
    [file] = read(small).files
    assert [one.format for one in file.deletes.files] == ["puffin"]
    assert len(agree(small)) >= 2


def test_the_fixture_is_read_without_ducklake():
    expected = json.loads((FIXTURE / "expected.json").read_text())
    seen = set()
    for version, (count, digest) in expected.items():
        access = TableAccess({"data_path": str(FIXTURE / "data")})
        table = open_ducklake(f"{FIXTURE}/meta.sqlite/main.t", version, access)
        snapshot = table.snapshot()
        rows = sorted_rows(live_rows(snapshot))
        assert len(rows) == count
        assert hashlib.sha256("\n".join(rows).encode()).hexdigest() == digest
        assert unsound(snapshot) == []
        for file in snapshot.files:
            seen |= {"buckets"} if file.buckets else set()
            seen |= {"names"} if file.fields else set()
            if file.deletes is not None:
                gone = file.deletes
                seen |= {name for name in ("files", "inlined", "partial") if getattr(gone, name)}
    assert seen == {"buckets", "names", "files", "inlined", "partial"}, "the fixture has all of these"


# --- files that were added ----------------------------------------------------------------------


def added(lake: Lake, name: str, table: pa.Table, options: str = "") -> None:
    path = lake.folder / name
    lake.allow_roots = (str(lake.folder),)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    lake.sql(f"CALL ducklake_add_data_files('lake', 't', '{path}'{options})")


def test_added_files_are_read_by_the_names_they_came_with(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (id INT, s VARCHAR)", "INSERT INTO t SELECT i, 'own' FROM range(9) r(i)")
    int32 = pa.int32()
    ids = [
        (name, kind, {"PARQUET:field_id": str(i)})
        for i, (name, kind) in enumerate((("s", pa.string()), ("id", int32)), 1)
    ]
    schema = pa.schema([pa.field(name, kind, metadata=told) for name, kind, told in ids])
    added(small, "foreign.parquet", pa.table([["a", "b"], pa.array([1, 2], int32)], schema=schema))
    plain = pa.table({"id": pa.array([3], int32), "s": ["c"], "later": [9]})
    added(small, "plain.parquet", plain, ", ignore_extra_columns => true")
    small.sql(
        "ALTER TABLE t RENAME s TO title",
        "ALTER TABLE t ADD COLUMN later BIGINT DEFAULT 5",
        "ALTER TABLE t ADD COLUMN s VARCHAR",
    )
    added(small, "fewer.parquet", pa.table({"s": ["d"], "id": pa.array([4], int32)}), ", allow_missing => true")
    assert len(agree(small)) >= 8
    small.sql("DELETE FROM t WHERE id = 1")
    assert len(agree(small)) >= 9


HIVE = {
    "k=7/s=a%2Fb": (7, "a/b"),
    "k=8/s=__HIVE_DEFAULT_PARTITION__": (8, None),
    "k=NULL/s=Null": (None, None),
    "k=/s=": (None, ""),
    "k=9/s=%4EULL": (9, "NULL"),
    "k=5/s=first/k=6/s=second": (5, "first"),
    "k=1/s=x=y/s=z": (1, "z"),
}


def test_values_of_hive_folders_are_those_of_the_rows(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (x INT, k INT, s VARCHAR)")
    for i, folders in enumerate(HIVE):
        rows = pa.table({"x": pa.array([i, i], pa.int32())})
        added(small, f"{folders}/f.parquet", rows, ", hive_partitioning => true")
    read_all = {row["x"]: (row["k"], row["s"]) for row in rows_here(small)}
    assert read_all == dict(enumerate(HIVE.values()))
    assert sorted_rows(live_rows(read(small))) == sorted_rows(small.answer("FROM t"))
    assert unsound(read(small)) == []
    for i, wanted in enumerate(HIVE.values()):
        for column, value in zip(("k", "s"), wanted, strict=True):
            where = f"{column} IS NULL" if value is None else f"{column} = {value!r}"
            found = rows_here(small, f"x = {i} AND {where}")
            assert [(row["k"], row["s"]) for row in found] == 2 * [wanted], where


# --- evidence -----------------------------------------------------------------------------------

EVERY_TYPE = {
    "b": ("BOOLEAN", ["true", "false"]),
    "i8": ("TINYINT", ["-128", "127"]),
    "i64": ("BIGINT", ["-9223372036854775808", "9"]),
    "u8": ("UTINYINT", ["255", "1"]),
    "u64": ("UBIGINT", ["18446744073709551615", "1"]),
    "h": ("HUGEINT", ["'170141183460469231731687303715884105727'", "0"]),
    "f": ("FLOAT", ["0.1", "'nan'"]),
    "f2": ("FLOAT", ["16777217", "1e-45"]),
    "d": ("DOUBLE", ["1e300", "'-inf'"]),
    "d2": ("DOUBLE", ["0.1", "-0.0"]),
    "d4": ("DECIMAL(4,2)", ["-12.30", "12.30"]),
    "d18": ("DECIMAL(18,3)", ["1.5", "-1.25"]),
    "d38": ("DECIMAL(38,10)", ["123.4567890123", "-99999999999999999999999999"]),
    "day": ("DATE", ["'2020-01-31'", "'1969-12-31'"]),
    "t": ("TIME", ["'12:34:56.123456'", "'00:00:00'"]),
    "ts": ("TIMESTAMP", ["'2020-01-02 03:04:05.123456'", "'1969-12-31 23:59:59'"]),
    "tss": ("TIMESTAMP_S", ["'2020-01-02 03:04:05'", "'1969-12-31 23:59:59'"]),
    "tsm": ("TIMESTAMP_MS", ["'2020-01-02 03:04:05.123'", "'1969-12-31 23:59:59.001'"]),
    "tz": ("TIMESTAMPTZ", ["'2020-01-02 03:04:05.123456+05'", "'1500-01-02 03:04:05+00'"]),
    "s": ("VARCHAR", ["'a''b'", "repeat('ü', 2000)"]),
    "zero": ("VARCHAR", ["'a' || chr(0) || 'c'", "'b'"]),
    "high": ("VARCHAR", ["'\U0010ffff'", "''"]),
    "bl": ("BLOB", ["'\\xFF\\x00a'::BLOB", "''::BLOB"]),
    "u": ("UUID", ["'9ef6576d-b747-4a5f-a928-a41aba4f9617'", "'00000000-b747-4a5f-a928-a41aba4f9617'"]),
    "js": ("JSON", ["'{\"a\":1}'", "'[]'"]),
}


def test_bounds_of_every_type_are_sound_and_there(small):
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in EVERY_TYPE.items())
    rows = [", ".join(f"({texts[i]})::{kind}" for kind, texts in EVERY_TYPE.values()) for i in (0, 1)]
    rows.append(", ".join(["NULL"] * len(EVERY_TYPE)))
    small.sql(NOTHING_INLINED, f"CREATE TABLE t ({columns})", "INSERT INTO t SELECT " + " UNION ALL SELECT ".join(rows))
    snapshot = read(small)
    assert unsound(snapshot) == []
    [file] = snapshot.files
    bounded = {path[0] for path, bounds in file.bounds.items() if bounds.lower is not None and bounds.upper is not None}
    assert bounded == set(EVERY_TYPE) - {"h", "s", "zero", "bl"}, "these have a text that says it surely"
    assert {bounds.null_count for bounds in file.bounds.values()} == {1}
    assert not file.bounds["f",].nan_free
    assert file.bounds["d",].nan_free


def test_a_float_that_became_a_double_has_no_bounds(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (f FLOAT, i INT)", *["INSERT INTO t SELECT 0.1, 5"] * 2)
    small.sql("ALTER TABLE t ALTER f SET DATA TYPE DOUBLE", "ALTER TABLE t ALTER i SET DATA TYPE BIGINT")
    assert len(agree(small)) == 5
    for file in read(small).files:
        assert file.bounds["f",].upper is None, "0.1 of the text is less than the stored 0.10000000149"
        assert file.bounds["i",].upper == 5


def test_decimals_that_became_floats_are_the_nearest(small):
    value = "(i * 7919 % 1000000 - 500000) / 10000"
    small.sql(
        NOTHING_INLINED,
        "CREATE TABLE t (id INT, x DECIMAL(18,4), y DECIMAL(18,4), l DECIMAL(9,2)[])",
        f"INSERT INTO t SELECT i, {value}, {value}, [i / 100, NULL] FROM range(2000) r(i)",
        "ALTER TABLE t ALTER x SET DATA TYPE FLOAT",
        "ALTER TABLE t ALTER y SET DATA TYPE DOUBLE",
    )
    assert rows_here(small) == small.answer("SELECT * FROM t")
    for column, text in [(column, text) for column in "xy" for text in ("-46.0405e0", "DOUBLE '-49.2081'")]:
        found = rows_here(small, f"{column} = {text}")
        assert found == small.answer(f"SELECT * FROM t WHERE {column} = {text}")
        assert len(found) == (column == "y"), "a FLOAT is compared in doubles"


@pytest.mark.parametrize(
    ("old", "new"), [("INTEGER", "FLOAT"), ("BIGINT", "FLOAT"), ("BIGINT", "DOUBLE"), ("UBIGINT", "UHUGEINT")]
)
def test_integers_that_became_floats_are_rounded(small, old, new):
    bits = {"INTEGER": 31, "BIGINT": 63, "UBIGINT": 64}[old]
    edges = [(1 << bit) + step for bit in (24, 25, 53, 54) if bit < bits for step in (-1, 0, 1, 2, 3)]
    values = [5, (1 << bits) - 1, *edges] + ([] if old[0] == "U" else [-(1 << bits), *(-edge for edge in edges)])
    small.sql(
        NOTHING_INLINED,
        f"CREATE TABLE t (x {old}, st STRUCT(a {old}), l {old}[])",
        "INSERT INTO t SELECT x, {'a': x}, [x, NULL] FROM (VALUES " + ", ".join(f"({v})" for v in values) + ") v(x)",
        f"ALTER TABLE t ALTER x SET DATA TYPE {new}",
        f"ALTER TABLE t ALTER st SET DATA TYPE STRUCT(a {new})",
        f"ALTER TABLE t ALTER l SET DATA TYPE {new}[]",
    )
    theirs = small.answer("SELECT * FROM t")
    assert rows_here(small) == theirs
    for value in {row["x"] for row in theirs}:
        found = rows_here(small, f"x = {Decimal(value):f}.0")
        assert found == [row for row in theirs if row["x"] == value], "bounds and filters of the file are of integers"


DEFAULTS = [
    ("HUGEINT", "-170141183460469231731687303715884105727", None),
    ("UHUGEINT", "340282366920938463463374607431768211455", None),
    ("HUGEINT", "9007199254740993", "DOUBLE"),
    ("BIGINT", "9223372036854775807", "HUGEINT"),
    ("UBIGINT", "7", "UHUGEINT"),
    ("INTEGER", "16777217", "FLOAT"),
    ("DECIMAL(18,4)", "3.9595", "DOUBLE"),
]


def test_defaults_that_are_stored_as_floats(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)")
    small.sql(*(f"ALTER TABLE t ADD COLUMN v{i} {kind} DEFAULT {text}" for i, (kind, text, _) in enumerate(DEFAULTS)))
    small.sql(*(f"INSERT INTO t VALUES ({id_}{f', {value}' * len(DEFAULTS)})" for id_, value in ((2, 5), (3, "NULL"))))
    small.sql(*(f"ALTER TABLE t ALTER v{i} SET DATA TYPE {wide}" for i, (*_, wide) in enumerate(DEFAULTS) if wide))
    theirs = small.answer("SELECT * FROM t")
    assert rows_here(small) == theirs
    for i, (kind, default, _) in enumerate(DEFAULTS):
        name = f"v{i}"
        assert rows_here(small, f"{name} = {default}") == [row for row in theirs if row["id"] == 1], kind
        more = [row for row in theirs if row[name] is not None and row[name] > 4]
        assert rows_here(small, f"{name} > 4") == more, kind


def test_what_became_json_is_read_where_its_text_is_sure(small):
    small.sql(
        NOTHING_INLINED,
        "CREATE TABLE t (i BIGINT, b BOOLEAN, v VARCHAR, s STRUCT(u UBIGINT))",
        """INSERT INTO t VALUES (-5, true, '{"a":  [1.50]}', {'u': 18446744073709551615})""",
        """INSERT INTO t VALUES (NULL, false, '"x"', NULL)""",
        *(f"ALTER TABLE t ALTER {name} SET DATA TYPE JSON" for name in "ibv"),
        "ALTER TABLE t ALTER s SET DATA TYPE STRUCT(u JSON)",
    )
    theirs = small.answer("SELECT * FROM t")
    assert rows_here(small) == theirs
    for predicate in ("i = '-5'", "b = 'true'", "v <> '\"x\"'", "s.u > '0'"):
        assert rows_here(small, predicate) == theirs[:1]


NO_JSON = ("0.1::FLOAT", "5::DOUBLE", "5::DECIMAL(9,2)", "5::HUGEINT", "DATE '2020-01-02'", "INTERVAL 1 DAY", "uuid()")


def test_columns_that_became_what_no_text_is_sure_of_are_refused(small):
    for i, value in enumerate(NO_JSON):
        table = f"json{i}"
        small.sql(f"CREATE TABLE {table} AS SELECT {value} AS v", f"ALTER TABLE {table} ALTER v SET DATA TYPE JSON")
        said = refusal(small, TableFormatError, f"main.{table}")
        assert re.search(rf"main\.{table}: column v was \S+ before it was JSON", said), value
    for kind in ("DATE", "TIMESTAMP"):
        small.sql(
            f"CREATE TABLE t{kind} (id INT)",
            f"ALTER TABLE t{kind} ADD COLUMN v {kind} DEFAULT '2020-01-02'",
            f"ALTER TABLE t{kind} ALTER v SET DATA TYPE TIMESTAMPTZ",
        )
        said = refusal(small, TableFormatError, f"main.t{kind}")
        assert "column v: its default '2020-01-02" in said, "it depends on the session"


def test_bounds_of_a_hugeint_say_nothing(small):
    """DuckDB 1.5.5 stores -2^53 for -2^53 - 2, whose text would be an upper bound below it."""
    small.sql(NOTHING_INLINED, "CREATE TABLE t (v HUGEINT)", "INSERT INTO t VALUES (-9007199254740994)")
    assert rows_here(small, "v > -9007199254740994") == rows_here(small)
    [file] = read(small).files
    assert ("v",) not in file.bounds or file.bounds["v",].upper is None


def test_days_that_python_does_not_know_bound_nothing(small):
    small.sql(
        NOTHING_INLINED,
        "CREATE TABLE t (day DATE, at_ TIMESTAMP)",
        "INSERT INTO t SELECT '0044-03-15 (BC)', '2020-01-02'::TIMESTAMP",
        "INSERT INTO t SELECT '2020-01-01', 'infinity'",
        "CREATE TABLE u (i INTERVAL, z TIMETZ, n INT)",
        "INSERT INTO u SELECT NULL, NULL, NULL FROM range(3)",
    )
    bounds = [(file.bounds["day",], file.bounds["at_",]) for file in read(small).files]
    assert [(day.lower, day.upper is None) for day, _ in bounds] == [(None, True), (18262, False)]
    assert [(at.lower is None, at.upper is None) for _, at in bounds] == [(False, False), (True, True)]
    [file] = read(small, None, "main.u").files
    assert (file.bounds["i",].null_count, file.bounds["i",].has_values) == (None, True), "nobody counts them"
    assert (file.bounds["n",].null_count, file.bounds["n",].has_values) == (3, False)


COLUMNS = "id BIGINT, region VARCHAR, made TIMESTAMP, day DATE, price DECIMAL(6,2), f DOUBLE"


def partitioned(lake: Lake, transforms: str, rows: str) -> Snapshot:
    lake.sql(NOTHING_INLINED, f"CREATE TABLE t ({COLUMNS})", f"ALTER TABLE t SET PARTITIONED BY ({transforms})")
    lake.sql(f"INSERT INTO t {rows}")
    assert len(agree(lake)) >= 3
    return read(lake)


def test_identity_gives_constants(small):
    region = "CASE i % 4 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE 'a/b=' || i % 4 END"
    rows = f"SELECT i, {region}, NULL, '2020-01-01'::DATE, i % 2 + 0.5, i % 2 FROM range(40) r(i)"
    snapshot = partitioned(small, "region, price, day, f", rows)
    assert {file.constants["region"].as_py() for file in snapshot.files} == {None, "", "a/b=2", "a/b=3"}
    assert {str(file.constants["price"].as_py()) for file in snapshot.files} == {"0.50", "1.50"}
    assert all(file.constants.keys() == {"region", "price", "day"} for file in snapshot.files), (
        "a double has many texts"
    )


def test_parts_of_a_time_give_bounds_where_the_file_has_none(small):
    made, day = "'2019-12-30 22:00:00'::TIMESTAMP + INTERVAL (i * 31) MINUTE", "'2019-12-30'::DATE + i::INT"
    rows = f"SELECT i, NULL, {made}, {day}, 1, 1 FROM range(9) r(i)"
    partitioned(small, "year(made), month(made), day(made), hour(made), year(day), month(day)", rows)
    by_hand(small, "DELETE FROM ducklake_file_column_stats")
    snapshot = read(small)
    assert unsound(snapshot) == []
    hour, month = 3600 * 10**6, 31
    for file in snapshot.files:
        made, day = file.bounds["made",], file.bounds["day",]
        assert made.upper - made.lower == hour - 1, "one hour of one day, to the microsecond"
        assert day.upper - day.lower == month - 1, "December and January have 31 days"
    by_hand(small, "UPDATE ducklake_column SET column_type = 'timestamptz' WHERE column_name = 'made'")
    for file in read(small).files:
        assert file.bounds.keys() == {("day",)}, "the year of a zoned time was that of the session that wrote the file"


def test_buckets_keep_the_file_of_a_value_and_few_others(small):
    rows = "SELECT i * 1234567 - 50, 'v' || i, NULL, '2020-01-01'::DATE + i::INT, 1, 1 FROM range(60) r(i)"
    snapshot = partitioned(small, "bucket(16, id), bucket(5, region), bucket(7, day)", rows)
    leaves = {leaf.path: leaf for leaf in leaves_of(snapshot.fields)}
    values = {file: [tuple(map(str, row.values())) for row in stored_rows(snapshot, file)] for file in snapshot.files}
    for path, value, column in ((("id",), 1234567 * 3 - 50, 0), (("region",), "v3", 1), (("day",), "2020-01-04", 3)):
        asked, leaf = operand(value, leaves[path]), leaves[path]
        kept = [file for file in values if all(b.admits(leaf, asked) for b in file.buckets if b.path == path)]
        [held] = [file for file, found in values.items() if str(value) in {row[column] for row in found}]
        assert held in kept
        assert len(kept) < len(snapshot.files) / 2, "the others are skipped"


# --- what is refused ----------------------------------------------------------------------------


def refusal(lake: Lake, kind: type[ParquetBloomError] = TableFormatError, table: str = "main.t") -> str:
    with pytest.raises(kind) as caught:
        read(lake, None, table)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_encrypted_tables_are_refused(tmp_path):
    lake = Lake(tmp_path, True, "ENCRYPTED")
    lake.sql("SET force_mbedtls_unsafe = 'true'", NOTHING_INLINED, "CREATE TABLE t AS SELECT 1 AS a")
    assert "is encrypted by DuckLake" in refusal(lake)
    lake.release()


NOT_UNDERSTOOD = {
    "UPDATE ducklake_metadata SET value = '0.3' WHERE key = 'version'": "attach it with AUTOMATIC_MIGRATION",
    "UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'": "version 1.1; version 1.0 is understood",
    "UPDATE ducklake_data_file SET file_format = 'vortex'": "is of the format vortex; only Parquet files are",
    "UPDATE ducklake_column SET column_type = 'variant'": "column a is of type variant, which is not read",
    "UPDATE ducklake_column SET initial_default = 'soon', column_type = 'date'": "default 'soon' is not",
    "UPDATE ducklake_data_file SET path = 's3://b/x.parquet', path_is_relative = 0": "is on another storage",
    "DELETE FROM ducklake_metadata WHERE key = 'data_path'": "has no data_path",
    "DELETE FROM ducklake_snapshot": "has no snapshot",
    "DROP TABLE ducklake_metadata": "holds no DuckLake catalog",
}


def test_what_is_not_understood_is_refused(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t AS SELECT 1 AS a")
    good = small.release().catalog.read_bytes()
    for change, reason in NOT_UNDERSTOOD.items():
        small.catalog.write_bytes(good)
        by_hand(small, change)
        assert reason in refusal(small)


def test_what_is_no_catalog_is_refused(tmp_path):
    with pytest.raises(StorageError, match="no such catalog file"):
        open_ducklake(f"{tmp_path}/none.ducklake/main.t", None)
    (tmp_path / "text").write_text("neither of the two kinds")
    with pytest.raises(TableFormatError, match="is no DuckDB or SQLite file"):
        open_ducklake(f"{tmp_path}/text/main.t", None)
    with pytest.raises(RequestError, match=r"ducklake:postgres:\.\.\. is a catalog on a server"):
        open_ducklake("postgres:dbname=x password=geheim/main.t", None)


def test_a_delete_file_of_several_snapshots_deletes_what_each_had_deleted(tmp_path: Path) -> None:
    path = tmp_path / "deletes.parquet"
    columns = {"file_path": ["x"] * 3, "pos": [1, 3, 5], "_ducklake_internal_snapshot_id": [2, 4, 9]}
    pq.write_table(pa.table(columns), path)
    file = DeleteFile(Location(str(path)), "parquet", 3)
    assert [file.positions(snapshot).tolist() for snapshot in (1, 2, 4, 8, 9)] == [[], [1], [1, 3], [1, 3], [1, 3, 5]]


def test_a_delete_of_a_row_that_is_not_there_is_an_error(small):
    small.sql("CREATE TABLE t AS SELECT * FROM range(50) r(i)", "DELETE FROM t WHERE i = 3")
    by_hand(small, "UPDATE ducklake_inlined_delete_1 SET row_id = 50")
    [file] = read(small).files
    with pytest.raises(TableFormatError, match="a deleted row is outside of the 50 rows"):
        file.deletes.positions()
