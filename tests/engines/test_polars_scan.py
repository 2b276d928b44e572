"""scan_polars gives what Polars' own scan_parquet gives, whatever the predicate, and opens fewer row groups for it."""

from __future__ import annotations

import datetime as dt
import logging
import math
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repeats import first_then_more, more_then_slow

import parquet_bloom
from parquet_bloom.errors import FileChangedError, RequestError, UnknownColumnError
from parquet_bloom.predicates.tree import And, Compare, IsIn, IsNull, Not, Or, Unknown, leaves_of

pl = pytest.importorskip("polars")

from parquet_bloom.predicates.polars_expressions import from_polars  # noqa: E402

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
SCHEMA = {"id": pl.Int64, "text": pl.String, "kind": pl.Categorical, "s": pl.Struct({"f": pl.Int64})}


def rows(rng: Random, n: int) -> pa.Table:
    """Every type that a filter has, few distinct values, NULLs and NaN among them."""

    def some(make: Callable[[int], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if rng.random() < 0.1 else make(rng.randrange(40)) for _ in range(n)], kind)

    texts = some(lambda k: f"t{k * k}", pa.string())
    return pa.table(
        {
            "id": some(lambda k: k * 7919 - 40_000, pa.int64()),
            "small": some(lambda k: k - 20, pa.int16()),
            "unsigned": some(lambda k: k + 2**32 - 41, pa.uint32()),
            "real": some(lambda k: [math.nan, math.inf, -0.0, 0.0, k / 3][min(k, 4)], pa.float64()),
            "short": some(lambda k: math.nan if k == 3 else k / 3, pa.float32()),
            "text": texts,
            "kind": some(lambda k: f"k{k % 7}", pa.string()).dictionary_encode(),
            "raw": some(lambda k: bytes([k, 255]), pa.binary()),
            "day": some(lambda k: dt.date(2026, 1, 1) + dt.timedelta(k), pa.date32()),
            "at": some(lambda k: START + dt.timedelta(seconds=k, microseconds=k), pa.timestamp("us", "UTC")),
            "local": some(lambda k: START.replace(tzinfo=None) + dt.timedelta(days=k), pa.timestamp("ns")),
            "price": some(lambda k: Decimal(k) / 4, pa.decimal128(12, 2)),
            "flag": some(lambda k: k % 2 == 0, pa.bool_()),
            "s": pa.StructArray.from_arrays([some(lambda k: k, pa.int64()), texts], ["f", "g"]),
            "row": pa.array(range(n), pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten row groups, sorted by nothing, with filters on every column that can have one."""
    plain = tmp_path_factory.mktemp("polars") / "plain.parquet"
    pq.write_table(rows(Random(4), 1500), plain, row_group_size=150)
    parquet_bloom.add_filters(plain, plain.with_name("f.parquet"), columns=["*"], exclude=["row", "flag"])
    return plain.with_name("f.parquet")


def compared(rng: Random, frame: Any, name: str) -> Any:
    """A comparison of a column with values that it holds, or nearly does."""
    column = pl.col("s").struct.field("f") if name == "s" else pl.col(name)
    values = frame.select(column).to_series().drop_nulls()
    value = values[rng.randrange(len(values))]
    if name in ("id", "small") and rng.random() < 0.3:
        value += 1  # perhaps no row's
    one = pl.lit(value, dtype=values.dtype)
    upper = pl.lit(values[3], dtype=values.dtype)
    closed = rng.choice(["both", "left", "right", "none"])
    picks = pl.concat([values.sample(3, seed=rng.randrange(999)), values.clear().extend_constant(None, 1)])
    ways = [
        lambda: column == one, lambda: one == column, lambda: column != one, lambda: column < one,
        lambda: one <= column, lambda: column >= one, lambda: column.is_null(), lambda: column.is_not_null(),
        lambda: column.is_in(picks.implode()), lambda: column.is_in(picks.implode(), nulls_equal=True),
        lambda: column.is_between(one, upper, closed=closed), lambda: column.eq_missing(one),
        lambda: column.is_in([]),
    ]  # fmt: skip
    return rng.choice(ways[:2] + ways[8:9] + ways if name not in ("kind",) else ways[:3] + ways[6:10])()


def random_predicate(rng: Random, frame: Any, depth: int = 0) -> Any:
    names = [name for name in frame.columns if name not in ("row", "flag")]
    if depth < 3 and rng.random() < 0.5:
        parts = [random_predicate(rng, frame, depth + 1) for _ in range(rng.randrange(1, 4))]
        joined = reduce(rng.choice([lambda a, b: a & b, lambda a, b: a | b]), parts)
        return ~joined if rng.random() < 0.25 else joined
    return compared(rng, frame, rng.choice(names))


def check_equal(path: Path, seed: int, n: int) -> int:
    """Hold random predicates against Polars; returns of how many something was understood."""
    rng = Random(seed)
    frame = pl.read_parquet(path)
    understood = 0
    for _ in range(n):
        predicate = random_predicate(rng, frame)
        ours = parquet_bloom.scan_polars(path).filter(predicate).collect()
        assert ours.equals(pl.scan_parquet(path).filter(predicate).collect()), f"not Polars' rows: {predicate}"
        understood += any(not isinstance(part, Unknown) for part in leaves_of(from_polars(predicate, frame.schema)))
    return understood


@pytest.mark.parametrize("seed", first_then_more(range(6), 2))
def test_random_predicates_give_the_rows_of_scan_parquet(path: Path, seed: int) -> None:
    assert check_equal(path, seed, 12) > 8, "predicates that say nothing prove nothing"


@pytest.mark.parametrize("seed", more_then_slow(range(100, 130), 3))
def test_more_random_predicates(path: Path, seed: int) -> None:
    assert check_equal(path, seed, 40) > 30


QUERIES: dict[str, Callable[[Any], Any]] = {
    "all": lambda f: f,
    "columns": lambda f: f.filter(pl.col("text") == "t25").select("row", "id"),
    "columns that the predicate lacks": lambda f: f.filter(pl.col("small") == 3).select("price"),
    "limit": lambda f: f.filter(pl.col("id") > 0).head(7),
    "limit 0": lambda f: f.head(0),
    "count": lambda f: f.filter(pl.col("id") == 7919 * 3 - 40_000).select(pl.len()),
    "count of all": lambda f: f.select(pl.len()),
    "nothing": lambda f: f.filter(pl.col("text") == "absent"),
    "count of nothing": lambda f: f.filter(pl.col("text") == "absent").select(pl.len()),
    "group": lambda f: f.group_by("kind").agg(pl.col("id").sum()).sort("kind"),
    "two filters": lambda f: f.filter(pl.col("flag")).filter(pl.col("text").is_in(["t25", "t36"])),
    "a cast": lambda f: f.filter(pl.col("id").cast(pl.Float64) == -40_000.0),
    "a function": lambda f: f.filter(pl.col("text").str.ends_with("5"), pl.col("small") < 0),
    "a join": lambda f: f.join(f.filter(pl.col("small") == 1), on="text").select("row", "row_right"),
    "tail": lambda f: f.tail(5),
}


def test_what_polars_pushes_down_changes_no_answer(path: Path) -> None:
    for name, query in QUERIES.items():
        ours, theirs = (query(frame).collect() for frame in (parquet_bloom.scan_polars(path), pl.scan_parquet(path)))
        if name == "a join":
            ours, theirs = ours.sort(ours.columns), theirs.sort(theirs.columns)
        assert ours.equals(theirs), name
        assert ours.schema == theirs.schema, f"{name}: the types are those that Polars' own reader gives"


@pytest.mark.smoke
def test_row_groups_that_filters_deny_are_not_read(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "parquet_bloom")
    one = parquet_bloom.read_table(path, columns=["row", "id"]).to_pylist()[700]
    caplog.clear()
    assert parquet_bloom.scan_polars(path).filter(pl.col("id") == one["id"] + 1).collect().is_empty()
    [line] = [r.getMessage() for r in caplog.records if "row groups" in r.getMessage()]
    assert "0 of 10 row groups" in line, "an id that no row has lies between the bounds of all: only filters know"


def test_folders_names_are_columns_as_polars_has_them(tmp_path: Path) -> None:
    for year in (2025, 2026):
        for city in ("Kyiv", "Oslo"):
            folder = tmp_path / f"year={year}" / f"city={city}" / "day=2026-01-02"
            folder.mkdir(parents=True)
            pq.write_table(pa.table({"id": [year, 2, 3]}), folder / "x.parquet")
    ours = parquet_bloom.scan_polars(tmp_path)
    theirs = pl.scan_parquet(tmp_path, hive_partitioning=True)
    assert ours.collect_schema() == theirs.collect_schema()
    for predicate in (
        (pl.col("year") == 2025) & (pl.col("id") == 2),
        pl.col("city") == "Oslo",
        (pl.col("day") == dt.date(2026, 1, 2)) & (pl.col("id") == 2026),
    ):
        assert ours.filter(predicate).collect().equals(theirs.filter(predicate).collect()), str(predicate)


def test_uuids_and_json_inside_lists_and_structs_are_as_polars_has_them(tmp_path: Path) -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef", None, b"f" * 16], pa.binary(16)))
    texts = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(["1", None, "{}"]))
    both = pa.StructArray.from_arrays([ids, texts], names=["u", "j"])
    columns = {"u": ids, "j": texts, "both": both, "row": range(3)}
    for name, inner in (("u", ids), ("j", texts), ("both", both)):
        columns[f"list_{name}"] = lists = pa.ListArray.from_arrays([0, 1, 1, 3], inner)
        columns[f"lists_{name}"] = pa.ListArray.from_arrays([0, 1, 1, 3], lists)
        columns[f"map_{name}"] = pa.MapArray.from_arrays([0, 1, 1, 3], pa.array(["a", "b", "c"]), inner)
    path = tmp_path / "odd.parquet"
    pq.write_table(pa.table(columns), path, row_group_size=2)
    ours, theirs = parquet_bloom.scan_polars(path), pl.scan_parquet(path)
    assert ours.collect_schema() == theirs.collect_schema()
    for predicate in (True, pl.col("row") > 1, pl.col("row") > 9, pl.col("both").is_null()):
        assert ours.filter(predicate).collect().equals(theirs.filter(predicate).collect())


def test_a_frame_is_collected_over_the_files_that_are_there_then(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    frame = parquet_bloom.scan_polars(tmp_path).filter(pl.col("id") == 3)
    assert frame.collect().is_empty()
    pq.write_table(pa.table({"id": [3]}), tmp_path / "b.parquet")
    assert frame.collect()["id"].to_list() == [3], "it was found when the frame was collected"


def test_errors(path: Path, tmp_path: Path) -> None:
    with pytest.raises(parquet_bloom.StorageError, match="no such file"):
        parquet_bloom.scan_polars(tmp_path / "absent.parquet")
    with pytest.raises(RequestError, match="nan is 'largest' for Polars"):
        parquet_bloom.scan_polars(path, nan="ieee")
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        parquet_bloom.scan_polars(path).filter(pl.col("absent") == 1).collect()
    assert issubclass(FileChangedError, parquet_bloom.StorageError)
    assert issubclass(UnknownColumnError, RequestError)


UNDERSTOOD = {
    "equal": (pl.col("id") == 5, Compare(("id",), "=", 5)),
    "mirrored": (pl.lit(5) < pl.col("id"), Compare(("id",), ">", 5)),
    "not equal": (pl.col("id") != 5, Not(Compare(("id",), "=", 5))),
    "in": (pl.col("id").is_in([1, 2, None]), IsIn(("id",), (1, 2))),
    "null": (pl.col("text").is_null(), IsNull(("text",))),
    "not null": (pl.col("text").is_not_null(), Not(IsNull(("text",)))),
    "field": (pl.col("s").struct.field("f") == 3, Compare(("s", "f"), "=", 3)),
    "between": (
        pl.col("id").is_between(1, 5, closed="left"),
        And((Compare(("id",), ">=", 1), Compare(("id",), "<", 5))),
    ),
    "and": (
        (pl.col("id") == 1) & (pl.col("id") == 2) & (pl.col("id") == 3),
        And(tuple(Compare(("id",), "=", n) for n in (1, 2, 3))),
    ),
    "or": ((pl.col("id") == 1) | ~(pl.col("text") == "a"),
           Or((Compare(("id",), "=", 1), Not(Compare(("text",), "=", "a"))))),
    "category": (pl.col("kind") == "x", Compare(("kind",), "=", "x")),
}  # fmt: skip
NOT_UNDERSTOOD = {
    "order of categories": pl.col("kind") < "x",
    "cast": pl.col("id").cast(pl.Int32) == 3,
    "sum": pl.col("id") + 1 == 3,
    "NULL equals NULL": pl.col("id").eq_missing(3),
    "NULL is in a list": pl.col("id").is_in([1, None], nulls_equal=True),
    "two columns": pl.col("id") == pl.col("text"),
    "a column": pl.col("flag"),
    "part of a text": pl.col("text").str.contains("x"),
    "any of several": pl.any_horizontal(pl.col("id") == 1, pl.col("id") == 2),
    "another name": pl.col("absent") == 1,
    "length of time": pl.col("id") == dt.timedelta(seconds=1),
}


def test_which_expressions_are_understood() -> None:
    for name, (expression, meaning) in UNDERSTOOD.items():
        assert from_polars(expression, SCHEMA) == meaning, name
    for name, expression in NOT_UNDERSTOOD.items():
        assert isinstance(from_polars(expression, SCHEMA), Unknown), f"{name}: row groups are then read, all of them"
    deep = reduce(lambda inner, _: ~inner, range(200), pl.col("id") == 1)
    assert "levels deep" in repr(from_polars(deep, SCHEMA)), "it says nothing, and does not end the process"
