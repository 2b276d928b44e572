"""A DuckLake table read from its catalog: rows, values and deletes are those that DuckLake itself gives."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
from contextlib import suppress
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
    small.sql(
        NOTHING_INLINED,
        'CREATE SCHEMA "odd.one"',
        'CREATE TABLE "odd.one"."t/x ""y" AS SELECT 1 AS a',
        "CREATE TABLE T AS SELECT 2 AS a",
    )
    assert live_rows(read(small, None, '"odd.one"."t/x ""y"')) == [{"a": 1}]
    assert live_rows(read(small, None, "MAIN.t")) == [{"a": 2}], "as SQL finds it"
    with pytest.raises(TableFormatError, match=r"no such table at snapshot 1; there are: "):
        read(small, 1, "main.T")
    with pytest.raises(RequestError, match="is no table; write ducklake:CATALOG/schema.table"):
        read(small, None, "alone")
    with pytest.raises(RequestError, match="has no property colour; there are: data_path"):
        open_ducklake(small.name(), None, TableAccess({"colour": "red"}))


def test_inlined_rows_are_there_before_and_after_a_flush(lake):
    lake.sql("CREATE TABLE t (id INT)", "INSERT INTO t SELECT * FROM range(50)", "INSERT INTO t VALUES (98), (99)")
    lake.sql("DELETE FROM t WHERE id = 98")
    assert len(agree(lake)) == 4
    lake.sql("CALL ducklake_flush_inlined_data('lake')")
    assert len(agree(lake)) >= 5, "files then have the rows of older snapshots too"


def test_inlined_deletes_are_applied(lake):
    lake.sql(
        "CREATE TABLE t (id INT)", "INSERT INTO t SELECT * FROM range(50)", "INSERT INTO t SELECT * FROM range(50)"
    )
    lake.sql("DELETE FROM t WHERE id = 7", "DELETE FROM t WHERE id BETWEEN 10 AND 40", "DELETE FROM t WHERE id = 3")
    latest = read(lake)
    inlined = [file.deletes.inlined for file in latest.files]
    assert [sorted(rows) for rows in inlined] == [[3, 7], [3, 7]], "they are positions in each file"
    assert len(agree(lake)) == 6


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
    ids = [
        pa.field("s", pa.string(), metadata={"PARQUET:field_id": "1"}),
        pa.field("id", pa.int32(), metadata={"PARQUET:field_id": "2"}),
    ]
    added(small, "foreign.parquet", pa.table([["a", "b"], pa.array([1, 2], pa.int32())], schema=pa.schema(ids)))
    added(
        small,
        "plain.parquet",
        pa.table({"id": pa.array([3], pa.int32()), "s": ["c"], "later": [9]}),
        ", ignore_extra_columns => true",
    )
    small.sql(
        "ALTER TABLE t RENAME s TO title",
        "ALTER TABLE t ADD COLUMN later BIGINT DEFAULT 5",
        "ALTER TABLE t ADD COLUMN s VARCHAR",
    )
    added(small, "fewer.parquet", pa.table({"s": ["d"], "id": pa.array([4], pa.int32())}), ", allow_missing => true")
    assert len(agree(small)) >= 8
    small.sql("DELETE FROM t WHERE id = 1")
    assert len(agree(small)) >= 9


@pytest.mark.parametrize(
    ("folders", "wanted"),
    [
        ("k=7/s=a%2Fb", (7, "a/b")),
        ("k=8/s=__HIVE_DEFAULT_PARTITION__", (8, None)),
        ("k=NULL/s=Null", (None, None)),
        ("k=/s=", (None, "")),
        ("k=9/s=%4EULL", (9, "NULL")),
        ("k=5/s=first/k=6/s=second", (5, "first")),
        ("k=1/s=x=y/s=z", (1, "z")),
    ],
)
def test_values_of_hive_folders_are_those_of_the_rows(small, folders, wanted):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (x INT, k INT, s VARCHAR)")
    added(small, f"{folders}/f.parquet", pa.table({"x": pa.array([1, 2], pa.int32())}), ", hive_partitioning => true")
    assert len(agree(small)) >= 2
    for column, value in zip(("k", "s"), wanted, strict=True):
        where = f"{column} IS NULL" if value is None else f"{column} = {value!r}"
        assert [(row["k"], row["s"]) for row in rows_here(small, where)] == 2 * [wanted]


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
    nulls = ", ".join(["NULL"] * len(EVERY_TYPE))
    small.sql(
        NOTHING_INLINED,
        f"CREATE TABLE t ({columns})",
        f"INSERT INTO t SELECT {rows[0]} UNION ALL SELECT {rows[1]} UNION ALL SELECT {nulls}",
    )
    snapshot = read(small)
    assert unsound(snapshot) == []
    [file] = snapshot.files
    bounded = {path[0] for path, bounds in file.bounds.items() if bounds.lower is not None and bounds.upper is not None}
    assert bounded == set(EVERY_TYPE) - {"h", "s", "zero", "bl"}, "these have a text that says it surely"
    assert {bounds.null_count for bounds in file.bounds.values()} == {1}
    assert not file.bounds["f",].nan_free
    assert file.bounds["d",].nan_free


def test_a_float_that_became_a_double_has_no_bounds(small):
    small.sql(
        NOTHING_INLINED, "CREATE TABLE t (f FLOAT, i INT)", "INSERT INTO t SELECT 0.1, 5", "INSERT INTO t SELECT 0.1, 5"
    )
    small.sql("ALTER TABLE t ALTER f SET DATA TYPE DOUBLE", "ALTER TABLE t ALTER i SET DATA TYPE BIGINT")
    assert len(agree(small)) == 5
    for file in read(small).files:
        assert file.bounds["f",].upper is None, "0.1 of the text is less than the stored 0.10000000149"
        assert file.bounds["i",].upper == 5


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_decimals_that_became_floats_are_the_nearest(small, kind):
    small.sql(
        NOTHING_INLINED,
        "CREATE TABLE t (id INT, x DECIMAL(18,4), l DECIMAL(9,2)[])",
        "INSERT INTO t SELECT i, (i * 7919 % 1000000 - 500000) / 10000, [i / 100, NULL] FROM range(2000) r(i)",
        f"ALTER TABLE t ALTER x SET DATA TYPE {kind}",
    )
    assert rows_here(small) == small.answer("SELECT * FROM t")
    for text in ("-46.0405e0", "DOUBLE '-49.2081'"):
        found = rows_here(small, f"x = {text}")
        assert found == small.answer(f"SELECT * FROM t WHERE x = {text}")
        assert len(found) == (kind == "DOUBLE"), "a FLOAT is compared in doubles"


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


@pytest.mark.parametrize(
    ("kind", "default", "widened"),
    [
        ("HUGEINT", "-170141183460469231731687303715884105727", None),
        ("UHUGEINT", "340282366920938463463374607431768211455", None),
        ("HUGEINT", "9007199254740993", "DOUBLE"),
        ("BIGINT", "9223372036854775807", "HUGEINT"),
        ("UBIGINT", "7", "UHUGEINT"),
        ("INTEGER", "16777217", "FLOAT"),
        ("DECIMAL(18,4)", "3.9595", "DOUBLE"),
    ],
)
def test_defaults_that_are_stored_as_floats(small, kind, default, widened):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (id INT)", "INSERT INTO t VALUES (1)")
    small.sql(f"ALTER TABLE t ADD COLUMN v {kind} DEFAULT {default}", "INSERT INTO t VALUES (2, 5), (3, NULL)")
    if widened is not None:
        small.sql(f"ALTER TABLE t ALTER v SET DATA TYPE {widened}")
    theirs = small.answer("SELECT * FROM t")
    assert rows_here(small) == theirs
    assert rows_here(small, f"v = {default}") == [row for row in theirs if row["id"] == 1]
    assert rows_here(small, "v > 4") == [row for row in theirs if row["v"] is not None and row["v"] > 4]


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


@pytest.mark.parametrize(
    "value",
    ["0.1::FLOAT", "5::DOUBLE", "5::DECIMAL(9,2)", "5::HUGEINT", "DATE '2020-01-02'", "INTERVAL 1 DAY", "uuid()"],
)
def test_other_columns_that_became_json_are_refused(small, value):
    small.sql(NOTHING_INLINED, f"CREATE TABLE t AS SELECT {value} AS v")
    small.sql("ALTER TABLE t ALTER v SET DATA TYPE JSON")
    assert re.search(r"main\.t: column v was \S+ before it was JSON", refusal(small))


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP"])
def test_defaults_that_depend_on_the_session_are_refused(small, kind):
    small.sql(
        "CREATE TABLE t (id INT)",
        f"ALTER TABLE t ADD COLUMN v {kind} DEFAULT '2020-01-02'",
        "ALTER TABLE t ALTER v SET DATA TYPE TIMESTAMPTZ",
    )
    assert "column v: its default '2020-01-02" in refusal(small)


def test_bounds_of_a_hugeint_say_nothing(small):
    """DuckDB 1.5.5 stores -2^53 for -2^53 - 2, whose text would be an upper bound below it."""
    small.sql(NOTHING_INLINED, "CREATE TABLE t (v HUGEINT)", "INSERT INTO t VALUES (-9007199254740994)")
    assert rows_here(small, "v > -9007199254740994") == rows_here(small)
    [file] = read(small).files
    assert ("v",) not in file.bounds or file.bounds["v",].upper is None


def test_days_that_python_does_not_know_bound_nothing(small):
    small.sql(NOTHING_INLINED, "CREATE TABLE t (day DATE, at_ TIMESTAMP)")
    small.sql(
        "INSERT INTO t SELECT '0044-03-15 (BC)', '2020-01-02'::TIMESTAMP",
        "INSERT INTO t SELECT '2020-01-01', 'infinity'",
    )
    bounds = [(file.bounds["day",], file.bounds["at_",]) for file in read(small).files]
    assert [(day.lower, day.upper is None) for day, _ in bounds] == [(None, True), (18262, False)]
    assert [(at.lower is None, at.upper is None) for _, at in bounds] == [(False, False), (True, True)]


def test_counts_of_columns_that_are_not_counted_say_nothing(small):
    small.sql(
        NOTHING_INLINED,
        "CREATE TABLE t (i INTERVAL, z TIMETZ, n INT)",
        "INSERT INTO t SELECT NULL, NULL, NULL FROM range(3)",
    )
    [file] = read(small).files
    assert (file.bounds["i",].null_count, file.bounds["i",].has_values) == (None, True)
    assert (file.bounds["n",].null_count, file.bounds["n",].has_values) == (3, False)


def partitioned(lake: Lake, transforms: str, rows: str) -> Snapshot:
    lake.sql(
        NOTHING_INLINED,
        "CREATE TABLE t (id BIGINT, region VARCHAR, made TIMESTAMP, day DATE, price DECIMAL(6,2), f DOUBLE)",
    )
    lake.sql(f"ALTER TABLE t SET PARTITIONED BY ({transforms})", f"INSERT INTO t {rows}")
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
    small.release()
    with sqlite3.connect(small.catalog) as catalog:
        catalog.execute("DELETE FROM ducklake_file_column_stats")
    catalog.close()
    snapshot = read(small)
    assert unsound(snapshot) == []
    hour, month = 3600 * 10**6, 31
    for file in snapshot.files:
        made, day = file.bounds["made",], file.bounds["day",]
        assert made.upper - made.lower == hour - 1, "one hour of one day, to the microsecond"
        assert day.upper - day.lower == month - 1, "December and January have 31 days"


def test_the_year_of_a_zoned_time_bounds_nothing(small):
    partitioned(small, "year(made)", "SELECT i, NULL, '2020-01-01'::TIMESTAMP, NULL, 1, 1 FROM range(3) r(i)")
    small.release()
    with sqlite3.connect(small.catalog) as catalog:
        catalog.execute("DELETE FROM ducklake_file_column_stats")
        catalog.execute("UPDATE ducklake_column SET column_type = 'timestamptz' WHERE column_name = 'made'")
    catalog.close()
    [file] = read(small).files
    assert file.bounds == {}, "it was that of the session that wrote the file"


def test_buckets_keep_the_file_of_a_value_and_few_others(small):
    rows = "SELECT i * 1234567 - 50, 'v' || i, NULL, '2020-01-01'::DATE + i::INT, 1, 1 FROM range(60) r(i)"
    snapshot = partitioned(small, "bucket(16, id), bucket(5, region), bucket(7, day)", rows)
    leaves = {leaf.path: leaf for leaf in leaves_of(snapshot.fields)}
    for path, value in ((("id",), 1234567 * 3 - 50), (("region",), "v3"), (("day",), "2020-01-04")):
        asked = operand(value, leaves[path])
        kept = [
            file
            for file in snapshot.files
            if all(b.admits(leaves[path], asked) for b in file.buckets if b.path == path)
        ]
        column = path[0]
        held = [
            file
            for file in snapshot.files
            if any(str(row[column]) == str(value) for row in stored_rows(snapshot, file))
        ]
        assert len(held) == 1
        assert held[0] in kept
        assert len(kept) < len(snapshot.files) / 2, "the others are skipped"


# --- what is refused ----------------------------------------------------------------------------


def refusal(lake: Lake, kind: type[ParquetBloomError] = TableFormatError) -> str:
    with pytest.raises(kind) as caught:
        read(lake)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_encrypted_tables_are_refused(tmp_path):
    lake = Lake(tmp_path, True, "ENCRYPTED")
    lake.sql("SET force_mbedtls_unsafe = 'true'", NOTHING_INLINED, "CREATE TABLE t AS SELECT 1 AS a")
    assert "is encrypted by DuckLake" in refusal(lake)
    lake.release()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("UPDATE ducklake_metadata SET value = '0.3' WHERE key = 'version'", "attach it with AUTOMATIC_MIGRATION"),
        ("UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'", "version 1.1; version 1.0 is understood"),
        ("UPDATE ducklake_data_file SET file_format = 'vortex'", "is of the format vortex; only Parquet files are"),
        ("UPDATE ducklake_column SET column_type = 'variant'", "column a is of type variant, which is not read"),
        ("UPDATE ducklake_column SET initial_default = 'soon', column_type = 'date'", "default 'soon' is not"),
        ("UPDATE ducklake_data_file SET path = 's3://b/x.parquet', path_is_relative = 0", "is on another storage"),
        ("DELETE FROM ducklake_metadata WHERE key = 'data_path'", "has no data_path"),
        ("DELETE FROM ducklake_snapshot", "has no snapshot"),
        ("DROP TABLE ducklake_metadata", "holds no DuckLake catalog"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(small, change, reason):
    small.sql(NOTHING_INLINED, "CREATE TABLE t AS SELECT 1 AS a")
    small.release()
    with sqlite3.connect(small.catalog) as catalog:
        catalog.execute(change)
    catalog.close()
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
    small.release()
    with sqlite3.connect(small.catalog) as catalog:
        catalog.execute("UPDATE ducklake_inlined_delete_1 SET row_id = 50")
    catalog.close()
    [file] = read(small).files
    with pytest.raises(TableFormatError, match="a deleted row is outside of the 50 rows"):
        file.deletes.positions()


def test_files_that_were_moved_are_found_by_data_path(small, tmp_path):
    small.sql(NOTHING_INLINED, "CREATE TABLE t AS SELECT 1 AS a")
    small.release()
    shutil.move(small.data, tmp_path / "moved")
    snapshot = open_ducklake(small.name(), None, TableAccess({"data_path": f"{tmp_path}/moved"})).snapshot()
    assert live_rows(snapshot) == [{"a": 1}]
