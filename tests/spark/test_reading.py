"""read: the rows of Spark's own reader under WHERE, and those of brute force; never one lost, never one too many."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from support import kleene

import parquet_bloom
from parquet_bloom import spark as bloom
from parquet_bloom.errors import RequestError, StorageError, TableFormatError, TextError, UnknownColumnError
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.format.literals import Instant
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate

pytest.importorskip("pyspark", reason="pyspark is not installed (extra `spark`)")
from parquet_bloom.spark.source import source

pytestmark = pytest.mark.spark

NAN, INF = math.nan, math.inf
DAY = dt.date(2026, 1, 31)
NOON = dt.datetime(2026, 1, 31, 12, 0, 0, 123456)
TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "i8": (pa.int8(), [-128, -1, 0, 5, 127]),
    "i32": (pa.int32(), [-(2**31), 0, 5, 7, 2**31 - 1]),
    "i64": (pa.int64(), [-(2**63), 5, 2**53 + 1, 2**63 - 1]),
    "dec": (pa.decimal128(9, 2), [Decimal("-1.00"), Decimal("0.10"), Decimal("1.23"), Decimal("9999999.99")]),
    "f32": (pa.float32(), [0.0, -0.0, 0.5, 0.1, NAN, INF, -INF, -7.0]),
    "f64": (pa.float64(), [0.0, -0.0, 0.5, 0.1, NAN, INF, -INF, 5.0, 2.0**53]),
    "s": (pa.string(), ["", "a", "b'\"\\", "ä", "\U0001f600", "x`y"]),
    "b": (pa.binary(), [b"", b"\x00\xff", b"a"]),
    "d": (pa.date32(), [DAY, dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "at": (pa.timestamp("us", "UTC"), [NOON, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    "wall": (pa.timestamp("us"), [NOON, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    "flag": (pa.bool_(), [True, False]),
}


def table_of(rows: int = 90, seed: int = 5) -> pa.Table:
    rng = random.Random(seed)
    columns = {
        name: pa.array([rng.choice([*values, None]) for _ in range(rows)], kind)
        for name, (kind, values) in TYPES.items()
    }
    lists = [rng.choice([None, [], [5], [1, None, 5], [None], [2, 3]]) for _ in range(rows)]
    structs = [rng.choice([None, {"id": None, "a.b": "q"}, {"id": 5, "a.b": None}]) for _ in range(rows)]
    return pa.table(
        {
            "row": pa.array(range(rows), pa.int64()),
            **columns,
            "l": pa.array(lists, pa.list_(pa.int64())),
            "st": pa.array(structs, pa.struct([("id", pa.int64()), ("a.b", pa.string())])),
            "odd `name": pa.array([i % 3 for i in range(rows)], pa.int32()),
        }
    )


def instant(value: dt.datetime, utc: bool, more: int = 0) -> Instant:
    since = value - dt.datetime(1970, 1, 1)
    return Instant((since // dt.timedelta(microseconds=1)) * 1000 + more, utc)


LITERALS: dict[str, list[Any]] = {
    "i8": [5, 300, -129, 1.5, Decimal("4.9")],
    "i32": [5, 2**40, -(2**31), Decimal("5.0"), 6.5],
    "i64": [2**53 + 1, 2**63, -(2**63), Decimal("9007199254740992.5"), 5],
    "dec": [Decimal("0.1"), Decimal("1.234"), 1, 10**12, Decimal("1.230")],
    "f32": [0.5, 0, -0.0, Decimal("0.1"), NAN, INF, 10**400],
    "f64": [0.5, 0, -0.0, Decimal("0.1"), NAN, -INF, 5, -(10**400)],
    "s": ["a", "b'\"\\", "ä", "\U0001f600", b"a", b"\xff"],
    "b": [b"a", b"\x00\xff", "a", b""],
    "d": [DAY, "2026-01-31", dt.date(1, 1, 1), instant(NOON, False)],
    "at": [instant(NOON, True), instant(NOON, True, 500), "2026-01-31 13:00:00.123456+01:00"],
    "wall": [instant(NOON, False), instant(NOON, False, 1), DAY],
    "flag": [True, False],
    "odd `name": [1],
}


def predicates() -> list[Predicate]:
    found: list[Predicate] = []
    for name, literals in LITERALS.items():
        for at, value in enumerate(literals):
            leaves = [Compare((name,), op, value) for op in ("=", "<", "<=", ">", ">=")]
            found += [*leaves, Not(leaves[at % 5])]
        found += [IsIn((name,), tuple(literals)), Not(IsIn((name,), (literals[0], None))), IsNull((name,))]
        found += [Not(IsIn((name,), tuple(literals))), Compare((name,), "=", None), IsIn((name,), ())]
    found += [
        Contains(("l",), 5), Not(Contains(("l",), 5)), Contains(("l",), None), Contains(("l",), 2**70),
        Compare(("st", "id"), "=", 5), Not(Compare(("st", "id"), "=", 5)), Compare(("st", "a.b"), "=", "q"),
        IsNull(("st",)), IsNull(("st", "id")), And(()), Or(()),
        Or((Compare(("i32",), "=", 5), And((Compare(("f64",), ">", 1.0), Not(IsNull(("s",))))))),
        Not(And((Compare(("i32",), "=", 5), Compare(("i64",), ">", 0)))),
    ]  # fmt: skip
    return found


def in_spark(kind: pa.DataType, value: Any, op: str, literal: Any) -> kleene.Answers:
    """A comparison where NaN is the largest value; a number in FLOAT's place is the nearest one of FLOAT."""
    if value is None or literal is None:
        return frozenset((None,))
    if isinstance(literal, str) and pa.types.is_date(kind):
        literal = dt.date.fromisoformat(literal)
    elif isinstance(literal, str) and pa.types.is_timestamp(kind):
        literal = instant(dt.datetime.fromisoformat(literal).astimezone(dt.UTC).replace(tzinfo=None), True)
    if not pa.types.is_floating(kind):
        return frozenset((kleene.compare(kind, value, op, literal),))
    if pa.types.is_float32(kind) and not isinstance(literal, float) and abs(literal) < 10**38:
        literal = float(np.float32(literal))
    return frozenset((kleene.OPERATORS[op](place(value), place(literal)),))


def place(number: Any) -> tuple[int, Any]:
    """Where a number stands among doubles; beyond the largest of them, but before infinity, exactly."""
    if number != number:
        return 1, 0
    if isinstance(number, float) and math.isinf(number):
        return 0, number
    try:
        return 0, Fraction(float(number))
    except OverflowError:
        return 0, Fraction(number)


def test_each_row_gives_what_it_means() -> None:
    """As executors filter rows, which need no session for that."""
    table = table_of()
    [batch] = table.to_batches()
    rows = [{name: kleene.stored(table[name][i]) for name in table.column_names} for i in range(len(table))]
    types = {(field.name,): field.type for field in table.schema}
    types |= {("st", "id"): pa.int64(), ("st", "a.b"): pa.string()}
    for tree in predicates():
        meant = [next(iter(kleene.answers(tree, row, types, in_spark))) for row in rows]
        assert row_filter(tree, batch.schema, nan="largest").mask(batch).to_pylist() == meant, str(tree)


# --- whole data sets ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every form in Hive folders: `code` is a number everywhere, `part` a text for its last value's sake."""
    root = tmp_path_factory.mktemp("reading") / "data"
    table = table_of(240)
    specs = list(FORMATS)
    for i in range(12):
        folder = root / f"code={i % 2 + 1:02}" / f"part={['007', '8', 'x [y]'][i % 3]}"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table.slice(20 * i, 20), folder / f"{i:02}.parquet", row_group_size=10)
        parquet_bloom.add_filters(
            folder / f"{i:02}.parquet", in_place=True, columns=["i64", "s", "st.id"], spec=specs[i % len(specs)],
            sync=False,
        )  # fmt: skip
    return root


def rows_of(frame: Any) -> list[str]:
    return sorted(repr(row.asDict()) for row in frame.collect())


@pytest.mark.parametrize(
    ("where", "sparks"),
    [
        ("row IN (5, 77, 239) AND code = 2", "row IN (5, 77, 239) AND code = 2"),
        ("part = '007' AND s = 'a'", "part = '007' AND s = 'a'"),
        (
            "st.id = 5 AND i64 <> 5 AND NOT list_contains(l, 5)",
            "i64 <> 5 AND st.id = 5 AND NOT exists(l, e -> coalesce(e = 5, false))",
        ),
    ],
)
def test_rows_and_columns_are_those_of_sparks_reader(spark: Any, data: Path, where: str, sparks: str) -> None:
    plain = spark.read.parquet(str(data))
    found = bloom.read(spark, [str(data)], where)
    assert found.schema == plain.schema, "part is a text, though of the files that are left it may be a number"
    assert rows_of(found) == rows_of(plain.where(sparks))


def test_columns_and_several_roots(spark: Any, data: Path, tmp_path: Path) -> None:
    pq.write_table(table_of(20), tmp_path / "more [1].parquet")
    found = bloom.read(spark, [str(data), str(tmp_path / "more*")], "row < 4", ["row", "code", "st.id"])
    assert found.columns == ["row", "code", "id"]
    rows = [(row["row"], row["code"]) for row in found.collect()]
    assert sorted(row for row, code in rows if code is None) == [0, 1, 2, 3], "a root without this key"
    assert len(rows) == 8


def test_options_of_the_search_reach_the_executors(spark: Any, data: Path) -> None:
    for options in ({"use_filters": False}, {"range_values": 0}):
        found = bloom.read(spark, [str(data)], "i64 BETWEEN 4 AND 6 AND row < 40", ["row"], **options)
        plain = spark.read.parquet(str(data)).where("i64 BETWEEN 4 AND 6 AND row < 40").select("row")
        assert rows_of(found) == rows_of(plain)


def test_names_are_listed_once_and_tasks_do_not_get_the_list(
    spark: Any, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[Any] = []
    of_units = source.list_some

    def list_some(*arguments: Any, **options: Any) -> Any:
        listed.append(of_units(*arguments, **options))
        return listed[-1]

    monkeypatch.setattr(source, "list_some", list_some)
    assert bloom.read(spark, [str(data)], "row < 4", "row").count() == 4
    assert len(listed) == 1
    request = source.request_of({"path": str(data)}, {}, "file:///")
    assert isinstance(request, source.FileRequest)
    assert request.listing.files
    assert "listing" not in vars(pickle.loads(pickle.dumps(request)))


def test_no_file_is_passed_over(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text("no Parquet at all")
    found = bloom.read(spark, [str(tmp_path)], "id = 1")
    with pytest.raises(Exception, match=r"b\.parquet: the file ends with b' all', not b'PAR1'"):
        found.collect()
    with pytest.raises(StorageError, match="none: no such file"):
        bloom.read(spark, [str(tmp_path), str(tmp_path / "none")], "id = 1")
    with pytest.raises(UnknownColumnError, match="a.parquet: no column idd; near names: id"):
        bloom.read(spark, [str(tmp_path / "a.parquet")], "idd = 1")


def test_fields_in_another_case_are_the_same_at_any_depth(spark: Any, tmp_path: Path) -> None:
    """As columns are; a file lost the rows of its fields, and its values were NULL."""
    files = {"a": [{"x": 1, "in": [{"y": 1}]}], "b": [{"IN": [{"Y": 2}], "X": 1}]}
    for name, values in files.items():
        pq.write_table(pa.table({"id": [len(name)], "st": values}), tmp_path / f"{name}.parquet")
    for where in ("st.x = 1", "id = 1"):
        own = spark.read.parquet(str(tmp_path)).where(where)
        for found in (bloom.read(spark, tmp_path, where), loaded(spark, tmp_path, where)):
            assert sorted(map(str, found.collect())) == sorted(map(str, own.collect())), where
            assert found.count() == 2
    merged = spark.read.format("parquet_bloom").option("mergeSchema", "true").load(str(tmp_path))
    assert [len(field.dataType.fields) for field in merged.schema if field.name == "st"] == [2]
    (tmp_path / "more").mkdir()
    both = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["aB", "Ab"])
    pq.write_table(pa.table({"id": [3], "st": both, "cD": [1], "Cd": [2]}), tmp_path / "more" / "both.parquet")
    for schema, said in {
        "st struct<ab: bigint>": "column st: a struct with the fields aB, Ab has several for ab",
        "cd bigint": "two columns are named cd",
    }.items():
        with pytest.raises(Exception, match=rf"both\.parquet: {said}"):
            loaded(spark, tmp_path / "more", "id > 0", schema="id bigint, " + schema).collect()
    with pytest.raises(Exception, match="two columns are named cd"):  # and is not taken for a column of NULLs
        loaded(spark, tmp_path / "more", "cd = 1", schema="id bigint, cd bigint").collect()
    merged = spark.read.format("parquet_bloom").option("mergeSchema", "true").load(str(tmp_path / "more"))
    assert merged.schema["st"].dataType.simpleString() == "struct<aB:bigint,Ab:bigint>"
    assert merged.columns == ["id", "st", "cD", "Cd"], "a file's own columns stay apart"


def loaded(spark: Any, path: Path, where: str, schema: str | None = None) -> Any:
    bloom.register(spark)
    reader = spark.read.format("parquet_bloom").option("where", where)
    return (reader if schema is None else reader.schema(schema)).load(str(path))


def test_no_column_is_needed(spark: Any, tmp_path: Path) -> None:
    """Of predicates without one, and of reads whose rows are only counted: a batch without columns has no rows."""
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "a.parquet")
    for where, n in {
        "NOT FALSE": 3,
        "TRUE AND NOT FALSE": 3,
        "TRUE": 3,
        "FALSE": 0,
        "id > 1": 2,
    }.items():
        assert bloom.read(spark, tmp_path, where).count() == n, where
        assert loaded(spark, tmp_path, where).count() == n, where
        none = bloom.read(spark, tmp_path, where, [])
        assert (none.columns, none.count()) == ([], n), where


def test_a_folders_column_hides_a_files_in_any_case(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "ID=7").mkdir()
    pq.write_table(pa.table({"id": [1, 2], "s": ["a", "b"]}), tmp_path / "ID=7" / "a.parquet")
    own = spark.read.parquet(str(tmp_path))
    found = bloom.read(spark, tmp_path, "ID = 7")
    assert found.columns == own.columns
    assert found.collect() == own.collect()
    (tmp_path / "k=1").mkdir()
    (tmp_path / "ID=7").rename(tmp_path / "k=1" / "K=2")
    types = source.request_of({"path": str(tmp_path)}, {}, "file:///").types(None)
    assert sorted(types.of(None).names) == ["K", "id", "k", "s"], "two keys of folders stay two"


@pytest.mark.parametrize(
    ("schema", "where"),
    [("Y bigint, a bigint", "Y = 1"), ("Y bigint, a bigint", "Y = 10"), ("a bigint, Y string", "Y IS NULL")],
)
def test_a_folders_column_is_found_in_any_case_of_a_callers_schema(
    spark: Any, tmp_path: Path, schema: str, where: str
) -> None:
    """It was NULL, or the file's own column in its place."""
    for folder, columns in {"y=1": {"y": [10, 20], "a": [1, 2]}, "y=2": {"a": [3]}}.items():
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table(columns), tmp_path / folder / "a.parquet")
    own = spark.read.schema(schema).parquet(str(tmp_path))  # which has folders' columns last
    for asked in ("TRUE", where):
        found = loaded(spark, tmp_path, asked, schema).select(*own.columns)
        assert sorted(map(str, found.collect())) == sorted(map(str, own.where(asked).collect())), asked


def test_columns_and_fields_that_differ_in_case_alone_are_two_where_one_file_has_both(
    spark: Any, tmp_path: Path
) -> None:
    """A file with one of them filled both; its rows were lost for IS NULL."""
    both = pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], ["x", "X"])
    pq.write_table(pa.table({"a": [1, 2], "A": [3, 4], "st": both}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [5, 6], "st": [{"x": 5}, {"x": 6}]}), tmp_path / "b.parquet")
    bloom.register(spark)
    merged = spark.read.format("parquet_bloom").option("mergeSchema", "true").load(str(tmp_path))
    assert sorted(map(tuple, merged.collect())) == [
        (1, 3, (1, 3)),
        (2, 4, (2, 4)),
        (5, None, (5, None)),
        (6, None, (6, None)),
    ]
    for columns in (None, ["A"], ["A", "st"]):
        found = bloom.read(spark, tmp_path, "A IS NULL OR A = 4", columns)
        assert sorted(map(str, (row["A"] for row in found.collect()))) == ["4", "None", "None"], columns
        options = {} if columns is None else {"columns": ",".join(columns)}
        chosen = spark.read.format("parquet_bloom").options(**options).option("where", "A IS NULL").load(str(tmp_path))
        assert [row["A"] for row in chosen.collect()] == [None, None], columns
    assert bloom.read(spark, tmp_path, "st.X IS NULL").count() == 2


def test_patterns_are_hadoops(spark: Any, tmp_path: Path) -> None:
    """[^a] is not a; it was ^ or a, so that other files were read, and changed by jobs."""
    for n, name in enumerate(("a1", "b1", "b2", "_b3", "^c")):
        pq.write_table(pa.table({"id": [n]}), tmp_path / f"{name}.parquet")
    patterns = ("[^a]*.parquet", "[!a]*.parquet", "{a1,b2}.parquet", "{a,b}*", "b[1-2].*", "{a1,{b1,b2}}.*", "?[^1]*")
    for pattern in patterns:
        named = f"{tmp_path}/{pattern}"
        wanted = sorted(map(tuple, spark.read.parquet(named).collect()))
        assert wanted, pattern
        assert sorted(map(tuple, bloom.read(spark, named, "TRUE").collect())) == wanted, pattern
        checked = bloom.check(spark, named, "id >= 0").select("path").collect()
        assert len(checked) == len(wanted), pattern
    with pytest.raises(StorageError, match=r"\{x,y\}.parquet: no file fits this pattern"):
        bloom.read(spark, f"{tmp_path}/{{x,y}}.parquet", "TRUE")


def test_a_name_that_is_given_twice_is_read_once(spark: Any, tmp_path: Path) -> None:
    """As without Spark; Spark's own reader does so where folders have keys."""
    (tmp_path / "k=1").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "k=1" / "a.parquet")
    names = [str(tmp_path), f"{tmp_path}/"]
    assert bloom.read(spark, names, "id > 0").count() == 2
    assert spark.read.parquet(*names).count() == 2
    bloom.register(spark)
    in_shares = spark.read.format("parquet_bloom").option("paths", json.dumps(names)).option("partitions", 2).load()
    assert in_shares.count() == 2


def test_a_file_that_tasks_share_and_that_is_replaced_between_them_is_an_error(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from parquet_bloom.spark.source import units

    monkeypatch.setattr(units, "_LEAST", 300)
    monkeypatch.setattr(units, "_OPENING", 0)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(1000)}), path, row_group_size=100)
    request = source.request_of({"path": str(path)}, {}, "file:///")
    schema = source.arrow_schema(source.spark_schema(request.types(None).of(None)))
    scan = request.plan(source.Query(schema, pa.schema([]), request.predicate, request.options, None))
    first, *rest = scan.partitions()
    assert sum(batch.num_rows for batch in scan.rows(first.value)) < 1000
    pq.write_table(pa.table({"id": range(500)}), path)
    for unit in rest:
        with pytest.raises(StorageError, match=r"a\.parquet: was changed by another program while it was read"):
            list(scan.rows(unit.value))


def test_what_rows_cannot_be_filtered_by_is_an_error(spark: Any, tmp_path: Path) -> None:
    columns = {"id": pa.int64(), "l": pa.list_(pa.int64()), "m": pa.map_(pa.string(), pa.int64())}
    schema = pa.schema({**columns, "s": pa.struct({"a": pa.int64()})})
    pq.write_table(schema.empty_table(), tmp_path / "a.parquet")
    for where, reason in {
        "id = 5 AND lower(id) = 'x'": r"rows cannot be filtered by lower\(id\) = 'x'.*in \.where\(\)",
        "l = 5": r"use list_contains\(l, ..\)",
        "m = 5": "whose values are not compared",
        "s = 5": "is a struct; name one of its fields: s.a",
        "id = '5'": "write it without quotes",
        "list_contains(id, 5)": "not a list",
        "s.b = 5": "no column s.b; near names: s.a",
    }.items():
        with pytest.raises(RequestError, match=reason):
            bloom.read(spark, tmp_path, where)
    with pytest.raises(UnknownColumnError, match="no column s.b; near names: s.a"):
        bloom.read(spark, tmp_path, "id = 5", ["id", "s.b"])
    nothing: Any = None
    with pytest.raises(TextError):
        bloom.read(nothing, ["x"], "id = ")
    with pytest.raises(RequestError, match="columns takes a name or a list of names, not 5"):
        bloom.read(nothing, ["x"], "id = 5", 5)  # type: ignore[arg-type]


def test_errors_advise_what_the_caller_has(spark: Any, tmp_path: Path) -> None:
    """A parameter of `read`, an option of the data source."""
    pq.write_table(pa.table({"id": [1], "at": pa.array([1], pa.time32("s"))}), tmp_path / "a.parquet")
    with pytest.raises(RequestError, match="leave it out: columns takes the names of the others"):
        bloom.read(spark, tmp_path, "id = 1")
    assert bloom.read(spark, tmp_path, "id = 1", "id").collect() == [(1,)]
    bloom.register(spark)
    reader = spark.read.format("parquet_bloom")
    with pytest.raises(Exception, match=r"leave it out: \.option\(.columns., \.\.\.\) takes the names of the others"):
        reader.load(str(tmp_path))
    write_deltalake(str(tmp_path / "t"), pa.table({"id": [1]}))
    with pytest.raises(TableFormatError, match="raw_files=True"):
        bloom.read(spark, tmp_path / "t", "id = 1")
    with pytest.raises(Exception, match=r"\.option\(.rawFiles., .true.\)"):
        reader.load(str(tmp_path / "t"))
