"""The data source gives the rows that spark.read.parquet gives, and reads only row groups that can hold them."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark.sql", reason="pyspark is not installed (extra `spark`)")

from engines import made
from engines.reading import assert_equal

import parquet_bloom
from parquet_bloom import add_filters
from parquet_bloom.errors import DamagedFileError, ParquetBloomError, RequestError, StorageError, UnknownColumnError
from parquet_bloom.format.literals import Instant
from parquet_bloom.predicates.tree import And, Compare, IsIn, IsNull, Not, Predicate
from parquet_bloom.spark import ParquetBloomSource, register
from parquet_bloom.spark.source.source import Reader
from parquet_bloom.spark.source.types import arrow_schema

pytestmark = pytest.mark.spark
NAN = float("nan")
FORMAT, PUSHDOWN = "parquet_bloom", "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module", autouse=True)
def session(spark: Any) -> Iterator[Any]:
    spark.dataSource.register(ParquetBloomSource)
    spark.conf.set(PUSHDOWN, "true")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield spark
    spark.conf.unset(PUSHDOWN)
    spark.conf.unset("spark.sql.ansi.enabled")


def load(session: Any, path: object, **options: str) -> Any:
    return session.read.format(FORMAT).options(**options).load(str(path))


def reading(path: object, predicate: Predicate | None = None, **options: str) -> pa.Table:
    """The rows of a read as executors make them, without a session."""
    reader = reader_of(path, predicate, **options)
    batches = [batch for unit in reader.partitions() for batch in reader.read(unit)]
    return pa.Table.from_batches(batches, reader._scan.query.schema)


def reader_of(path: object, predicate: Predicate | None = None, **options: str) -> Reader:
    """As a read with the option `where` makes it; a tree says what its text cannot: FLOAT('nan'), a Decimal."""
    source = ParquetBloomSource({"path": str(path), **options})
    request = source._request()
    return Reader(request if predicate is None else replace(request, predicate=predicate), source.schema())


def literal(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        plain = value.replace(tzinfo=None)
        return Instant((plain - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1) * 1000, bool(value.tzinfo))
    return value


def compare(name: str, op: str, value: Any) -> Predicate:
    """With Spark's `<=>` too, which is never NULL; `a.b` is a field."""
    path = tuple(name.split("."))
    if op == "<=>":
        return And((Not(IsNull(path)), Compare(path, "=", literal(value))))
    return Compare(path, op, literal(value))


def within(name: str, *values: Any) -> Predicate:
    return IsIn(tuple(name.split(".")), tuple(map(literal, values)))


def null(name: str) -> Predicate:
    return IsNull(tuple(name.split(".")))


# --- the same rows as Spark -------------------------------------------------------------------------

ROWS, GROUPS = 60, 8
UTC = dt.UTC
DRAWN = {
    "i8": (pa.int8(), lambda k: k, "{}Y"),
    "i16": (pa.int16(), lambda k: k * 290, "{}S"),
    "i32": (pa.int32(), lambda k: k * 19_000_000, "{}"),
    "i64": (pa.int64(), lambda k: k * 8 * 10**16, "{}L"),
    "f": (pa.float32(), lambda k: [NAN, -0.0, 0.0, float("inf")][k % 4] if k % 5 == 0 else k / 4, "FLOAT('{}')"),
    "d": (pa.float64(), lambda k: [NAN, -0.0, 0.0, -float("inf")][k % 4] if k % 5 == 0 else k / 8, "DOUBLE('{}')"),
    "dec9": (pa.decimal128(9, 2), lambda k: Decimal(k) / 4, "CAST('{}' AS DECIMAL(9, 2))"),
    "dec38": (pa.decimal128(38, 10), lambda k: Decimal(k) * 10**20, "CAST('{}' AS DECIMAL(38, 10))"),
    "s": (pa.string(), lambda k: f"k{k:03}é" if k % 3 else f"k{k:03}", "'{}'"),
    "b": (pa.binary(), lambda k: bytes([k % 256, 255]), "X'{}'"),
    "day": (pa.date32(), lambda k: dt.date(1970, 1, 1) + dt.timedelta(k * 10), "DATE '{}'"),
    "ts": (pa.timestamp("us", "UTC"), lambda k: dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(hours=k),
           "TIMESTAMP '{}'"),
    "ntz": (pa.timestamp("ms"), lambda k: dt.datetime(1970, 1, 1) + dt.timedelta(hours=k), "TIMESTAMP_NTZ '{}'"),
    "yes": (pa.bool_(), lambda k: k % 2 == 0, "{}"),
}  # fmt: skip


def tables(rng: Random) -> list[pa.Table]:
    """Row groups whose values lie close together, and some whose values lie anywhere."""
    groups = []
    for group in range(GROUPS):
        columns = {"row": pa.array(range(group * ROWS, (group + 1) * ROWS), pa.int32())}
        for name, (kind, value, _) in DRAWN.items():
            near = rng.random() < 0.7
            numbers = [
                rng.randrange(-100, 100) if not near else 24 * group - 100 + rng.randrange(24) for _ in range(ROWS)
            ]
            share = rng.choice([0, 0.1, 1]) if group else 0.1
            columns[name] = pa.array([None if rng.random() < share else value(k) for k in numbers], kind)
        inner = [columns["i32"], columns["s"]]
        columns["st"] = pa.StructArray.from_arrays(inner, ["n", "t"], mask=pa.array([r % 9 == 4 for r in range(ROWS)]))
        groups.append(pa.table(columns))
    return groups


def spelled(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        value = value.hex()
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=None).isoformat(" ")
    return DRAWN[name][2].format(str(value).lower() if isinstance(value, bool) else value)


def questions(rng: Random, count: int) -> Iterator[tuple[Predicate, str]]:
    """Predicates, each with Spark's SQL."""
    for _ in range(count):
        name = shown = rng.choice(list(DRAWN))
        draw = DRAWN[name][1]
        if name in ("i32", "s") and rng.random() < 0.3:
            shown = {"i32": "st.n", "s": "st.t"}[name]
        kind = rng.random()
        if name == "s" and kind < 0.4:
            prefix = str(draw(rng.randrange(-100, 100)))[: rng.randrange(1, 6)]
            encoded = prefix.encode()
            after = encoded[:-1] + bytes([encoded[-1] + 1])
            found = And((compare(shown, ">=", prefix), compare(shown, "<", after)))
            text = f"startswith({shown}, '{prefix}')"
        elif kind < 0.1:
            found, text = null(shown), f"{shown} IS NULL"
        elif kind < 0.2:
            found, text = Not(null(shown)), f"{shown} IS NOT NULL"
        elif kind < 0.4:
            values = [draw(rng.randrange(-110, 110)) for _ in range(rng.randrange(1, 5))]
            found = within(shown, *values)
            text = f"{shown} IN ({', '.join(spelled(name, value) for value in values)})"
        else:
            op = rng.choice(["=", "<", "<=", ">", ">=", "<=>"])
            value = draw(rng.randrange(-110, 110))
            found, text = compare(shown, op, value), f"{shown} {op} {spelled(name, value)}"
        if rng.random() < 0.25:
            found, text = Not(found), f"NOT ({text})"
        yield found, text


def theirs(session: Any, path: Path, texts: Sequence[str]) -> list[list[int]]:
    """The rows of each text, by Spark's own reader with its skipping off, in one query."""
    session.conf.set("spark.sql.parquet.filterPushdown", "false")
    columns = [f"coalesce({text}, false) AS t{at}" for at, text in enumerate(texts)]
    table = session.read.parquet(str(path)).selectExpr("`row`", *columns).toArrow()
    session.conf.unset("spark.sql.parquet.filterPushdown")
    return [sorted(table["row"].filter(table[f"t{at}"]).to_pylist()) for at in range(len(texts))]


def numbers(table: pa.Table) -> list[int]:
    return sorted(table["row"].to_pylist())


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    source = made.write(folder / "source.parquet", tables(Random(5)))
    add_filters(source, folder / "ours.parquet", sync=False, columns=["*"])
    return folder / "ours.parquet"


class TestSameRows:
    def test_predicates(self, session: Any, file: Path) -> None:
        asked = list(questions(Random(6), 300))
        rows = theirs(session, file, [text for _, text in asked])
        for (predicate, text), wanted in zip(asked, rows, strict=True):
            assert numbers(reading(file, predicate)) == wanted, text
        assert 0 < sum(map(len, rows)) < 300 * ROWS * GROUPS * 0.8

    def test_several_at_once(self, session: Any, file: Path) -> None:
        rng = Random(7)
        asked = [list(questions(rng, rng.randrange(2, 4))) for _ in range(60)]
        rows = theirs(session, file, [" AND ".join(f"({text})" for _, text in several) for several in asked])
        for several, wanted in zip(asked, rows, strict=True):
            assert numbers(reading(file, And(tuple(predicate for predicate, _ in several)))) == wanted, several

    def test_where_with_or(self, session: Any, file: Path) -> None:
        """The texts are our dialect's; FLOAT('nan') and the like are not in it."""
        texts = [
            "i32 = 0 OR s = 'k001é'", "NOT (d > 5 OR f < 0)", "d > 1000 OR d IS NULL", "i64 > 0 AND (yes OR i8 < 0)",
            "NOT (d < 5)", "f >= 3 OR st.n IS NULL", "day < DATE '1970-01-11' OR dec9 = 2.25", "NOT (f IN (1, 2, 0))",
        ]  # fmt: skip
        for text, wanted in zip(texts, theirs(session, file, texts), strict=True):
            assert numbers(reading(file, where=text)) == wanted, text

    def test_real_queries(self, session: Any, file: Path) -> None:
        """Spark's own WHERE over the rows that the source gives."""
        texts = [
            "i32 = 19000000", "s LIKE 'k00%' AND i8 > 3", "d > 2.5D", "d = DOUBLE('nan')", "f <=> FLOAT('-0.0')",
            "ts >= TIMESTAMP '1970-01-02 03:00:00' AND day IS NOT NULL", "ntz = TIMESTAMP_NTZ '1969-12-31 20:00:00'",
            "dec38 < CAST('-400000000000000000000' AS DECIMAL(38, 10))", "b IN (X'05ff', X'06ff', NULL)", "NOT yes",
            "i64 <> 0L AND s LIKE '%é'", "i8 + 1 = 5", "i32 = 0 OR s = 'k001é'", "st.t = 'k050é'", "st IS NULL",
            f"i16 IN ({', '.join(str(290 * k) for k in range(1, 13))})",
        ]  # fmt: skip
        answers = theirs(session, file, texts)
        for text, wanted in zip(texts, answers, strict=True):
            assert numbers(load(session, file).where(text).toArrow()) == wanted, text
        assert sum(map(bool, answers)) >= 12, "most texts fit some rows"

    def test_every_value(self, session: Any, file: Path) -> None:
        ours, wanted = load(session, file), session.read.parquet(str(file))
        assert ours.schema == wanted.schema
        assert_equal(ours.toArrow().sort_by("row"), wanted.toArrow().sort_by("row"))


def test_each_query_has_its_own_filters(session: Any, file: Path) -> None:
    """Spark 4.3 plans a read once for all that one load() gave: a source that took its filters would lose rows."""
    frame = load(session, file)
    assert frame.where("`row` = 7").count() == 1
    assert frame.where("`row` = 7 OR `row` = 9").count() == 2, "9 is there, though the query before did not want it"
    assert frame.count() == ROWS * GROUPS
    assert numbers(frame.where("`row` = 1").union(frame.where("`row` = 2")).toArrow()) == [1, 2]


def test_views(session: Any, file: Path) -> None:
    session.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW v USING {FORMAT} OPTIONS (path '{file}', where 'i32 > 0 OR d > 3', "
        "columns 'row,i32,d')"
    )
    inside = session.sql("SELECT count(*), count_if(i32 > 0 OR d > 3) FROM v").collect()[0]
    assert inside[0] == inside[1] > 0
    assert session.sql("SELECT * FROM v").columns == ["row", "i32", "d"]


# --- what is read -----------------------------------------------------------------------------------


def spoil(path: Path, groups: Sequence[int]) -> None:
    """Make the pages of row groups unreadable, and of no other."""
    metadata = pq.read_metadata(path)
    with path.open("r+b") as file:
        for group in groups:
            for at in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(at)
                start = min(chunk.data_page_offset, chunk.dictionary_page_offset or chunk.data_page_offset)
                file.seek(start)
                file.write(b"\xff" * chunk.total_compressed_size)


@pytest.fixture
def keys(tmp_path: Path) -> tuple[Path, list[list[int]]]:
    """Five row groups of random keys, without statistics: only filters tell them apart."""
    keys = np.random.default_rng(3).integers(0, 1 << 60, (5, 200))
    groups = [pa.table({"key": row, "row": np.arange(200) + 200 * at}) for at, row in enumerate(keys)]
    source = made.write(tmp_path / "source.parquet", groups, made.Layout(), write_statistics=False)
    (tmp_path / "data").mkdir()
    add_filters(source, tmp_path / "data" / "ours.parquet", columns=["key"], fpp=0.0001, sync=False)
    return tmp_path / "data" / "ours.parquet", keys.tolist()


class TestSkipping:
    def test_skipped_row_groups_are_not_read(self, session: Any, keys: tuple[Path, list[list[int]]]) -> None:
        """A query that needs a spoiled row group fails and names the file."""
        path, values = keys
        key, other = values[1][7], values[3][8]
        kept = dict(parquet_bloom.prune(path, f"key = {key} OR key = {other}"))[str(path)]
        assert kept == [1, 3]
        spoil(path, [0, 2, 4])
        assert numbers(load(session, path.parent, where=f"key IN ({key}, {other})").toArrow()) == [207, 608]
        assert numbers(load(session, path, where=f"key = {key} OR key = {other}").toArrow()) == [207, 608]
        with pytest.raises(Exception, match=r"ours\.parquet: cannot be read"):
            load(session, path).where(f"key = {key}").toArrow()

    def test_parts_of_a_file(self, keys: tuple[Path, list[list[int]]], monkeypatch: pytest.MonkeyPatch) -> None:
        """A large file is several tasks, and each row group is in one of them."""
        from parquet_bloom.spark.source import units

        path, values = keys
        monkeypatch.setattr(units, "_LEAST", 3000)
        monkeypatch.setattr(units, "_OPENING", 1)
        reader = reader_of(path)
        plan = reader.partitions()
        assert len(plan) > 5, "more parts than row groups: some are empty"
        rows = [[n for batch in reader.read(unit) for n in batch["row"].to_pylist()] for unit in plan]
        assert sorted(n for part in rows for n in part) == list(range(1000))
        assert max(map(len, rows)) == 200
        assert numbers(reading(path, compare("key", "=", values[4][0]))) == [800]


class TestPlanning:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for at in range(40):
            place = tmp_path / f"p={at % 4}" / ("deep" if at % 2 else "")
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({"row": [at]}), place / f"{at}.parquet")
        for hidden in ("_SUCCESS", ".x.parquet", "p=1/_metadata", "p=1/notes.txt"):
            (tmp_path / hidden).write_bytes(b"no Parquet")
        return tmp_path

    def test_each_file_once(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from parquet_bloom.spark.source import units

        shares = {}
        for limits in ((10_000, 500), (5, 500), (10_000, 2), (1, 1)):
            monkeypatch.setattr(units.list_some, "__defaults__", limits)
            reader = reader_of(folder)
            plan = reader.partitions()
            rows = [n for unit in plan for batch in reader.read(unit) for n in batch["row"].to_pylist()]
            assert sorted(rows) == list(range(40)), limits
            shares[limits] = sum(isinstance(one, units.Share) for unit in plan for one in unit.value)
        assert shares[10_000, 500] == 0
        assert shares[5, 500] >= 4
        assert shares[1, 1] >= 64

    def test_partitions_without_listing(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from parquet_bloom.spark import listing
        from parquet_bloom.spark.source import source

        schema = ParquetBloomSource({"path": str(folder)}).schema()
        reader = ParquetBloomSource({"path": str(folder), "partitions": "7"}).reader(schema)
        with monkeypatch.context() as patch:
            patch.setattr(listing, "_entries", None)
            patch.setattr(source, "infer_schema", None)
            plan = reader.partitions()
        assert len(plan) == 7
        rows = [[n for batch in reader.read(unit) for n in batch["row"].to_pylist()] for unit in plan]
        assert sorted(n for part in rows for n in part) == list(range(40))
        assert max(map(len, rows)) < 20, "files are spread by their names"

    def test_a_crowded_folder_is_not_listed_through(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from parquet_bloom.spark.source import units

        for at in range(30):
            pq.write_table(pa.table({"row": [at]}), tmp_path / f"{at}.parquet")
        monkeypatch.setattr(units.list_some, "__defaults__", (20, 500))
        seen = units.list_some([str(tmp_path)], ParquetBloomSource({"path": "/"})._request().where)
        assert (seen.files, seen.unseen) == ([], [(str(tmp_path), None)])
        assert numbers(reading(tmp_path)) == list(range(30))

    def test_several_names_and_globs(self, folder: Path) -> None:
        import json

        names = [str(folder / "p=0"), str(folder / "p=1" / "deep" / "1*.parquet")]
        source = ParquetBloomSource({"paths": json.dumps(names)})
        reader = source.reader(source.schema())
        rows = [n for unit in reader.partitions() for batch in reader.read(unit) for n in batch["row"].to_pylist()]
        assert sorted(rows) == sorted([*range(0, 40, 4), 1, 13, 17])


# --- folders' names ---------------------------------------------------------------------------------

FOLDERS = {
    "int": ["1", "-2", "007", "2147483647", None],
    "bigint": ["1", "2147483648", None],
    "decimal": ["1", "12345678901234567890"],
    "double": ["1", "1.5", "NaN", ".5", "-Infinity", "2.5d", None],
    "decimal_of_exponents": ["1", "-2e3", "5."],
    "decimal_and_double": ["1.5", "12345678901234567890"],
    "long_and_double": ["2147483648", "1.5"],
    "date": ["2026-01-31", "1969-12-31", None],
    "date_and_int": ["2026-01-31", "5"],
    "no_date": ["2026-02-31"],
    "string": ["a b", "x/y", "1a", "2026-1-1", None],
    "nulls": [None],
    "boolean": ["true"],
}


class TestFolders:
    @pytest.mark.parametrize("case", FOLDERS)
    def test_types_and_values_as_spark_has_them(self, session: Any, case: str, tmp_path: Path) -> None:
        from urllib.parse import quote

        for at, value in enumerate(FOLDERS[case]):
            name = "__HIVE_DEFAULT_PARTITION__" if value is None else quote(value, safe=" ")
            place = tmp_path / f"p={name}"
            place.mkdir()
            pq.write_table(pa.table({"row": pa.array([at], pa.int32())}), place / "x.parquet")
        ours, wanted = load(session, tmp_path), session.read.parquet(str(tmp_path))
        assert ours.schema == wanted.schema
        assert str(sorted(map(tuple, ours.collect()))) == str(sorted(map(tuple, wanted.collect())))

    def test_files_are_left_out_by_their_folders(self, session: Any, tmp_path: Path) -> None:
        """The other folders' files are not even Parquet; dates too, which search.evidence takes for texts."""
        for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
            (tmp_path / f"day={day}").mkdir()
            (tmp_path / f"day={day}" / "x.parquet").write_bytes(b"no Parquet at all")
        pq.write_table(pa.table({"row": [1, 2]}), tmp_path / "day=2026-01-02" / "x.parquet")
        frame = session.read.schema("row long, day date").format(FORMAT)
        frame = frame.option("where", "day = DATE '2026-01-02' AND `row` = 2").load(str(tmp_path))
        assert numbers(frame.toArrow()) == [2]
        frame = session.read.schema("row long").format(FORMAT).option("where", "day = DATE '2026-01-02' OR `row` = 9")
        with pytest.raises(Exception, match="not a Parquet file|no Parquet|too short|is not Parquet|PAR1"):
            frame.load(str(tmp_path)).toArrow()

    def test_a_folder_hides_the_file_s_column(self, session: Any, tmp_path: Path) -> None:
        (tmp_path / "b=5").mkdir()
        pq.write_table(pa.table({"a": [1], "b": ["no"], "c": [2]}), tmp_path / "b=5" / "x.parquet")
        ours, wanted = load(session, tmp_path), session.read.parquet(str(tmp_path))
        assert ours.schema == wanted.schema
        assert ours.collect() == wanted.collect()
        assert reading(tmp_path, compare("b", "=", 5)).num_rows == 1

    def test_different_keys(self, tmp_path: Path) -> None:
        for name in ("a=1", "b=1"):
            (tmp_path / name).mkdir()
            pq.write_table(pa.table({"row": [1]}), tmp_path / name / "x.parquet")
        with pytest.raises(RequestError, match="folders name different partition columns"):
            reading(tmp_path)

    def test_a_value_of_another_type(self, tmp_path: Path) -> None:
        from pyspark.sql.types import IntegerType, StructType

        (tmp_path / "p=x").mkdir()
        pq.write_table(pa.table({"row": [1]}), tmp_path / "p=x" / "x.parquet")
        reader = ParquetBloomSource({"path": str(tmp_path)}).reader(StructType().add("p", IntegerType()))
        with pytest.raises(StorageError, match="p=x, which is no int32; give a schema"):
            next(iter(reader.read(reader.partitions()[0])))


# --- types ------------------------------------------------------------------------------------------

NOT_IN_SPARK = ("uuid", "time_ms", "time_us", "time_ns")


class TestTypes:
    def test_every_type_as_spark_reads_it(self, session: Any, tmp_path: Path) -> None:
        table = pa.concat_tables(made.row_groups()).drop_columns([*NOT_IN_SPARK, "float16", "null_type"])
        floored = [f.name for f in table.schema if pa.types.is_timestamp(f.type) and f.type.unit == "ns"]
        path = made.write(tmp_path / "x.parquet", [table.drop_columns(floored)])
        ours, wanted = load(session, path), session.read.parquet(str(path))
        assert ours.schema == wanted.schema
        assert_equal(ours.toArrow(), wanted.toArrow())
        assert len(ours.columns) >= 40

    @pytest.mark.parametrize("name", NOT_IN_SPARK)
    def test_what_spark_cannot_hold(self, session: Any, name: str, tmp_path: Path) -> None:
        table = pa.concat_tables(made.row_groups()).select([name, "random_int64"])
        path = made.write(tmp_path / "x.parquet", [table])
        with pytest.raises(RequestError, match=f"column {name} is .* leave it out"):
            reading(path)
        with pytest.raises(Exception, match=f"column {name} is "):
            load(session, path)
        assert load(session, path, columns="random_int64").count() == table.num_rows

    def test_what_only_we_give(self, session: Any, tmp_path: Path) -> None:
        """FLOAT16 as float, and nanoseconds cut off to microseconds, downwards also before 1970."""
        stamps = pa.array([-1, -1000, 1999, None], pa.timestamp("ns"))
        table = pa.table({
            "h": pa.array([np.float16(1.5), np.float16(0.1), None, np.float16("nan")], pa.float16()),
            "ns": stamps, "utc": stamps.cast(pa.timestamp("ns", "Asia/Tokyo")), "row": pa.array(range(4), pa.int32()),
            "in_list": pa.array([[-1], None, [], [1999]], pa.list_(pa.timestamp("ns"))), "void": pa.nulls(4),
        })  # fmt: skip
        path = made.write(tmp_path / "source.parquet", [table])
        add_filters(path, tmp_path / "ours.parquet", columns=["h", "ns", "utc"], sync=False)
        path = tmp_path / "ours.parquet"
        frame = load(session, path)
        assert dict(frame.dtypes) == {
            "h": "float", "ns": "timestamp_ntz", "utc": "timestamp", "row": "int", "in_list": "array<timestamp_ntz>",
            "void": "void",
        }  # fmt: skip
        got = frame.toArrow()
        assert got["ns"].cast(pa.int64()).to_pylist() == [-1, -1, 1, None]
        assert got["utc"].cast(pa.int64()).to_pylist() == [-1, -1, 1, None]
        assert got["in_list"].combine_chunks().values.cast(pa.int64()).to_pylist() == [-1, 1]
        assert got["h"].to_pylist()[:3] == [1.5, float(np.float16(0.1)), None]
        before, after = dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1, 0, 0, 0, 1)
        for column, zone in (("ns", None), ("utc", UTC)):
            one, two = before.replace(tzinfo=zone), after.replace(tzinfo=zone)
            for predicate, wanted in (
                (compare(column, "=", one), [0, 1]), (within(column, one, two), [0, 1, 2]),
                (compare(column, ">", one), [2]), (compare(column, "<=", one), [0, 1]),
                (Not(compare(column, "=", one)), [2]), (compare(column, ">=", two), [2]),
                (compare(column, "<", two), [0, 1]), (compare(column, "<=>", two), [2]),
            ):  # fmt: skip
                assert numbers(reading(path, predicate)) == wanted, predicate
        assert numbers(reading(path, compare("h", "=", float(np.float16(0.1))))) == [1]
        assert numbers(reading(path, compare("h", ">", 1.0))) == [0, 3], "NaN is the largest value"

    def test_int96(self, session: Any, tmp_path: Path) -> None:
        stamps = [dt.datetime(1800, 5, 6, 7), dt.datetime(9999, 1, 1), None, dt.datetime(2026, 1, 31, 12)]
        table = pa.table({"ts": pa.array(stamps, pa.timestamp("us")), "row": pa.array(range(4), pa.int32())})
        pq.write_table(table, tmp_path / "x.parquet", use_deprecated_int96_timestamps=True)
        ours = load(session, tmp_path)
        assert dict(ours.dtypes)["ts"] == "timestamp"
        assert ours.toArrow()["ts"].cast(pa.timestamp("us")).to_pylist() == stamps
        assert numbers(reading(tmp_path, compare("ts", "=", stamps[1].replace(tzinfo=UTC)))) == [1]

    def test_batches_have_spark_s_own_schema(self, file: Path) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = ParquetBloomSource({"path": str(file)}).schema()
        assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))


class TestSeveralSchemas:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        first = {"id": pa.array([1, 2], pa.int32()), "f": pa.array([0.1, 1.1], pa.float32()), "row": [0, 1],
                 "st": pa.array([{"a": 1}, {"a": 2}])}  # fmt: skip
        second = {"id": pa.array([2, 1 << 40]), "f": pa.array([0.1, 1.1]), "row": [2, 3], "new": ["x", None],
                  "st": pa.array([{"a": 1, "b": "y"}, None])}  # fmt: skip
        for at, columns in enumerate((first, second)):
            made.write(tmp_path / "source.parquet", [pa.table(columns)])
            (tmp_path / "data").mkdir(exist_ok=True)
            add_filters(tmp_path / "source.parquet", tmp_path / "data" / f"{at}.parquet", sync=False, columns=["*"])
        return tmp_path / "data"

    def test_merged(self, folder: Path) -> None:
        merged = {"mergeSchema": "true"}
        schema = ParquetBloomSource({"path": str(folder), **merged}).schema()
        wanted = "struct<id:bigint,f:double,row:bigint,st:struct<a:bigint,b:string>,new:string>"
        assert schema.simpleString() == wanted
        for predicate, rows in (
            (compare("id", "=", 2), [1, 2]), (compare("id", "=", 1 << 40), [3]), (null("new"), [0, 1, 3]),
            (compare("new", "=", "x"), [2]), (Not(compare("new", "=", "x")), []), (null("st.b"), [0, 1, 3]),
            (compare("st.b", "=", "y"), [2]), (compare("f", "=", 0.1), [2]),
            (compare("f", "=", float(np.float32(0.1))), [0]),
        ):  # fmt: skip
            assert numbers(reading(folder, predicate, **merged)) == rows, predicate
        assert numbers(reading(folder, where="f > 1.1", **merged)) == [1], "1.1 of a float is more than 1.1 as a double"
        assert numbers(reading(folder, where="new = 'x' OR id = 1", **merged)) == [0, 2]

    def test_a_column_that_does_not_fit(self, folder: Path) -> None:
        with pytest.raises(RequestError, match=r"1\.parquet: column id: int64 does not become int32"):
            reading(folder)

    def test_names_in_another_case(self, session: Any, folder: Path) -> None:
        frame = session.read.schema("ID long, Row long").format(FORMAT).option("where", "ID = 2").load(str(folder))
        assert frame.toArrow()["Row"].to_pylist() == [1, 2]

    def test_where_over_columns_that_are_not_read(self, folder: Path) -> None:
        both = {"mergeSchema": "true", "columns": "row"}
        got = reading(folder, where="id = 2 OR new = 'x'", **both)
        assert got.schema.names == ["row"]
        assert numbers(got) == [1, 2]

    def test_types_that_cannot_be_merged(self, folder: Path) -> None:
        pq.write_table(pa.table({"id": ["a text"]}), folder / "2.parquet")
        with pytest.raises(
            RequestError, match=r"2\.parquet: column id has types that cannot be merged: int64 and string"
        ):
            reading(folder, mergeSchema="true")


# --- errors -----------------------------------------------------------------------------------------


class TestErrors:
    def test_nothing_there(self, session: Any, tmp_path: Path) -> None:
        with pytest.raises(StorageError, match="no such file or folder"):
            reading(tmp_path / "none")
        with pytest.raises(StorageError, match="no Parquet file in it"):
            reading(tmp_path)
        empty = session.read.schema("id long").format(FORMAT).load(str(tmp_path))
        assert empty.count() == 0, "with a schema, an empty folder is an empty table"

    def test_a_damaged_file(self, session: Any, file: Path, tmp_path: Path) -> None:
        data = file.read_bytes()
        (tmp_path / "good.parquet").write_bytes(data)
        (tmp_path / "half.parquet").write_bytes(data[: len(data) // 2])
        with pytest.raises(ParquetBloomError, match=r"half\.parquet: "):
            reading(tmp_path)
        with pytest.raises(Exception, match=r"half\.parquet: "):
            load(session, tmp_path).toArrow()

    def test_a_file_that_changes_meanwhile(self, file: Path, tmp_path: Path) -> None:
        path = tmp_path / "x.parquet"
        path.write_bytes(file.read_bytes())
        reader = reader_of(path)
        rows = reader.read(reader.partitions()[0])
        next(rows)
        os.utime(path, ns=(1, 1))
        with pytest.raises(StorageError, match="was changed by another program"):
            list(rows)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"wehre": "i32 = 1"}, "unknown option wehre"),
            ({"pushdown": "true"}, "unknown option pushdown; there are: where, columns"),
            ({"columns": "row,row"}, "give each name once"),
            ({"columns": "row,nope"}, "no column nope"),
            ({"where": "nope = 1"}, "no column nope"),
            ({"where": "i32 ="}, "="),
            ({"where": "length(s) = 1"}, "length"),
            ({"where": "s = 5"}, "no literal for it"),
            ({"partitions": "0"}, "a number of tasks"),
            ({"mergeSchema": "perhaps"}, "true or false"),
        ],
    )
    def test_options(self, file: Path, options: dict[str, str], message: str) -> None:
        with pytest.raises(RequestError, match=message):
            reading(file, **options)

    @pytest.mark.parametrize(("path", "where"), [("", "nope = 1"), ("", "i32 = = 1"), ("-nowhere", "i32 = 1")])
    def test_spark_prints_no_frames(self, spark: Any, file: Path, path: str, where: str) -> None:
        from pyspark.errors import AnalysisException

        with pytest.raises(AnalysisException) as found:
            spark.read.format("parquet_bloom").option("where", where).load(f"{file}{path}")
        assert str(found.value).count('File "') == 1
        assert "parquet_bloom.errors." in str(found.value)

    def test_columns_and_a_schema(self, file: Path) -> None:
        source = ParquetBloomSource({"path": str(file), "columns": "row"})
        with pytest.raises(RequestError, match="leave the option columns out"):
            source.reader(ParquetBloomSource({"path": str(file)}).schema())

    def test_where_over_no_column_though_a_schema_was_given(self, file: Path) -> None:
        schema = ParquetBloomSource({"path": str(file), "columns": "row"}).schema()
        with pytest.raises(UnknownColumnError, match="no column nope"):
            ParquetBloomSource({"path": str(file), "where": "nope = 1"}).reader(schema)

    def test_nulls_where_the_schema_has_none(self, file: Path) -> None:
        from pyspark.sql.types import IntegerType, StructType

        reader = ParquetBloomSource({"path": str(file)}).reader(StructType().add("i32", IntegerType(), nullable=False))
        with pytest.raises(DamagedFileError, match="column i32 holds NULLs"):
            list(reader.read(reader.partitions()[0]))


# --- storages ---------------------------------------------------------------------------------------


def test_settings(session: Any, file: Path) -> None:
    """From options, in any case; from the session, where `register` took them over."""
    options = {"path": "s3a://bucket/x", "FS.s3a.access.key": "A", "fs.s3a.secret.key": "B"}
    where = ParquetBloomSource(options)._request().where
    assert where.settings == {"fs.s3a.access.key": "A", "fs.s3a.secret.key": "B"}
    assert "B" not in repr(where)
    hadoop = session._jsc.hadoopConfiguration()
    hadoop.set("fs.s3a.access.key", "from the session")
    try:
        register(session)
        assert load(session, f"file://{file}", columns="row").count() == ROWS * GROUPS
        from parquet_bloom.spark.storages import every_storage

        assert every_storage(session).settings["fs.s3a.access.key"] == "from the session"
    finally:
        hadoop.unset("fs.s3a.access.key")
        session.dataSource.register(ParquetBloomSource)


def test_s3_by_options(session: Any, keys: tuple[Path, list[list[int]]]) -> None:
    """The key is an option; planners and executors are processes of their own, and find nothing else."""
    pytest.importorskip("moto", reason="moto's server is not installed")
    from support.object_store import KEY, REGION, SECRET, serving

    path, values = keys
    key = values[2][5]
    with serving() as store:
        store.client.create_bucket(Bucket="bucket")
        for name in ("data/p=1/x.parquet", "data/p=2/y.parquet", "data/_SUCCESS"):
            store.put(f"bucket/{name}", path.read_bytes())
        options = {
            "fs.s3a.access.key": KEY, "fs.s3a.secret.key": SECRET, "fs.s3a.endpoint.region": REGION,
            "fs.s3a.endpoint": store.endpoint, "fs.s3a.path.style.access": "true",
        }  # fmt: skip
        frame = load(session, "s3a://bucket/data", **options, where=f"key = {key}")
        assert frame.columns == ["key", "row", "p"]
        assert sorted(map(tuple, frame.collect())) == [(key, 405, 1), (key, 405, 2)]
        store.wire.clear()
        assert numbers(reading("s3a://bucket/data", where=f"key = {key} AND p = 2", **options)) == [405]
        read = [request.path for request in store.wire.requests if request.kind == "GET"]
        assert "/bucket/data/p=2/y.parquet" in read
        assert len([name for name in read if "p=1" in name]) == 1, "only its footer, for the schema"


def test_google_s_storage_level_by_level() -> None:
    """Its folders are names that no object marks; none is left out, however a read is planned."""
    from support.google_store import NAMES, levels

    from parquet_bloom.spark.source import units
    from parquet_bloom.spark.storages import Storages

    with levels(b"not opened here") as (_, settings):
        where = Storages(settings)
        expected = sorted(f"gs://data/d/{name}" for name in NAMES)
        assert sorted(piece.path for piece in units.list_some(["gs://data/d"], where).files) == expected
        first = units.first_file(units.list_some(["gs://data/d/year=2026"], where, folders=0), where)
        assert first is not None
        assert first.path == "gs://data/d/year=2026/month=1/b.parquet"
        shares = units.shares(["gs://data/d"], 3)
        assert sorted(str(file) for unit in shares for file, *_ in units.files_of(unit.value, where)) == expected
