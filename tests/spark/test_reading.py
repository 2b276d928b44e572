"""read: the rows of Spark's own reader under WHERE, and those of brute force; never one lost, never one too many."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import kleene

import parquet_bloom
from parquet_bloom import spark as bloom
from parquet_bloom.errors import RequestError, StorageError, TextError, UnknownColumnError
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.format.literals import Instant
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate, Unknown
from parquet_bloom.search.search import as_predicate

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
    """A comparison in doubles, where NaN is the largest value."""
    if value is None or literal is None:
        return frozenset((None,))
    if isinstance(literal, str) and pa.types.is_date(kind):
        literal = dt.date.fromisoformat(literal)
    elif isinstance(literal, str) and pa.types.is_timestamp(kind):
        literal = instant(dt.datetime.fromisoformat(literal).astimezone(dt.UTC).replace(tzinfo=None), True)
    if not pa.types.is_floating(kind):
        return frozenset((kleene.compare(kind, value, op, literal),))

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


def test_each_row_gives_what_it_means(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as sf

    from parquet_bloom.spark.columns import as_column

    table = table_of()
    pq.write_table(table, tmp_path / "x.parquet")
    frame = spark.read.parquet(str(tmp_path / "x.parquet"))
    wanted = predicates()
    rows = [{name: kleene.stored(table[name][i]) for name in table.column_names} for i in range(len(table))]
    types = {(field.name,): field.type for field in table.schema}
    types |= {("st", "id"): pa.int64(), ("st", "a.b"): pa.string()}
    for start in range(0, len(wanted), 60):
        some = wanted[start : start + 60]
        columns = [as_column(tree, frame.schema).alias(f"t{i}") for i, tree in enumerate(some)]
        answers = frame.select(sf.col("row"), *columns).orderBy("row").collect()
        for i, tree in enumerate(some):
            meant = [next(iter(kleene.answers(tree, row, types, in_spark))) for row in rows]
            assert [row[f"t{i}"] for row in answers] == meant, str(tree)


@pytest.mark.parametrize(
    ("stored", "where", "count"),
    [
        ([1.0, NAN], "x > 5e0", 1),
        ([1.0, NAN], "NOT x < 5e0", 1),
        ([5.0, NAN], "x <> 5e0", 1),
        ([5.0, NAN], "x NOT IN (5e0, 6e0)", 1),
        ([-0.0, -0.0], "x = 0e0", 2),
        ([-0.0, -0.0], "x >= 0e0", 2),
        ([0.0, 0.0], "x <= -0e0", 2),
        ([-0.0, 3.0], "x IN (0e0, 4e0)", 1),
    ],
)
def test_spark_has_nothing_to_lose_rows_by(
    spark: Any, tmp_path: Path, stored: list[float], where: str, count: int
) -> None:
    """Its min and max leave NaN out, its dictionaries and filters tell the zeros apart."""
    from parquet_bloom.spark.columns import as_column

    table = pa.table({"x": pa.array(stored * 50, pa.float64()), "y": pa.array(stored * 50, pa.float32())})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=100, use_dictionary=True)
    frame = spark.read.parquet(str(tmp_path / "x.parquet"))
    assert frame.where(as_column(as_predicate(where), frame.schema)).count() == 50 * count
    other = where.replace("x", "y")
    assert frame.where(as_column(as_predicate(other), frame.schema)).count() == 50 * count


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


def test_what_cannot_be_read_is_sparks_to_say(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.parquet").write_text("no Parquet at all")
    found = bloom.read(spark, [str(tmp_path)], "id = 1")
    with pytest.raises(Exception, match=r"(?s)FAILED_READ_FILE.*b\.parquet"):
        found.collect()
    with pytest.raises(StorageError, match="none: no such file"):
        bloom.read(spark, [str(tmp_path), str(tmp_path / "none")], "id = 1")
    with pytest.raises(UnknownColumnError, match="no column idd; near names: id"):
        bloom.read(spark, [str(tmp_path / "a.parquet")], "idd = 1")


def test_what_rows_cannot_be_filtered_by_is_an_error(spark: Any) -> None:
    from pyspark.sql import types as st

    from parquet_bloom.spark.columns import as_column

    schema = st.StructType(
        [
            st.StructField("id", st.LongType()),
            st.StructField("l", st.ArrayType(st.LongType())),
            st.StructField("m", st.MapType(st.StringType(), st.LongType())),
            st.StructField("s", st.StructType([st.StructField("a", st.LongType())])),
        ]
    )
    for where, reason in {
        "id = 5 AND lower(id) = 'x'": r"rows cannot be filtered by lower\(id\) = 'x'.*in \.where\(\)",
        "l = 5": r"use list_contains\(l, ..\)",
        "m = 5": "whose values are not compared",
        "s = 5": "is a struct; name one of its fields: s.a",
        "id = '5'": "write it without quotes",
        "list_contains(id, 5)": "not a list",
    }.items():
        with pytest.raises(RequestError, match=reason):
            as_column(as_predicate(where), schema)
    with pytest.raises(UnknownColumnError, match="no column s.b; near names: s.a"):
        as_column(as_predicate("s.b = 5"), schema)
    nothing: Any = None
    with pytest.raises(TextError):
        bloom.read(nothing, ["x"], "id = ")
    with pytest.raises(RequestError, match="columns takes a name or a list of names, not 5"):
        bloom.read(nothing, ["x"], "id = 5", 5)  # type: ignore[arg-type]


def test_values_that_spark_changes_are_no_evidence(spark: Any) -> None:
    from pyspark.sql import types as st

    from parquet_bloom.spark.columns import prunable

    schema = st.StructType(
        [
            st.StructField("plain", st.StringType()),
            st.StructField("folded", st.StringType("UTF8_LCASE")),
            st.StructField("padded", st.StringType(), metadata={"__CHAR_VARCHAR_TYPE_STRING": "char(4)"}),
            st.StructField("d", st.DateType()),
            st.StructField("l", st.ArrayType(st.StringType("UTF8_LCASE"))),
        ]
    )
    for where, kept in {
        "plain = 'a'": True,
        "folded = 'a'": False,
        "padded = 'a'": False,
        "d = DATE '1582-10-04'": False,
        "d IN ('1582-10-04')": False,
        "d > DATE '1970-01-01'": True,
        "list_contains(l, 'a')": False,
    }.items():
        tree = as_predicate(f"NOT ({where}) OR plain IS NULL")
        assert isinstance(tree, Or)
        found = prunable(tree, schema)
        assert (found == tree) == kept, where
        assert kept or isinstance(found.parts[0].part, Unknown)
