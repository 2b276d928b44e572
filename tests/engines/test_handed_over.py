"""Which predicates each engine hands to the data set that it scans, and which of these choose row groups.

    engine, 55 predicates over parquet_bloom.dataset(folder)  ->  rows, and how many row groups were left

PREDICATES says of each which engines skip by it. Where an engine of the releases in RECORDED, or newer, does otherwise,
a test names the predicates: one that skips no more is a loss, one that skips now is a line to change here and in
docs/recipes.md. Older releases are asked too, for their rows. `python -m pytest -s` prints what each hands over.
"""

from __future__ import annotations

import datetime as dt
import logging
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom.rows.unchanged import SearchedDataset

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
RECORDED = {"duckdb": (2, 0), "datafusion": (55, 0), "polars": (2, 1), "pyarrow": (26, 0)}
SHOWN = {"duckdb": "DuckDB", "datafusion": "DataFusion", "polars": "Polars", "pyarrow": "pyarrow"}
ROWS, ROW_GROUP = 500, 50
KEYS = [n * 7919 % 10007 for n in range(ROWS)]  # spread, so that min and max of no row group exclude one
LISTED = 10_007  # of this and larger numbers the files have none


def text(key: int) -> str:
    return f"k{key:05d}"


def day(key: int) -> dt.date:
    return dt.date(2000, 1, 1) + dt.timedelta(key)


def moment(key: int, zone: dt.tzinfo | None = None) -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=zone) + dt.timedelta(minutes=key)


def stored_table() -> pa.Table:
    def column(value: Callable[[int], Any], kind: pa.DataType) -> pa.Array:
        return pa.array([None if n % 50 == 49 else value(KEYS[n]) for n in range(ROWS)], kind)

    return pa.table(
        {
            "n": pa.array(range(ROWS), pa.int64()),
            "i": column(int, pa.int64()),
            "j": column(int, pa.int32()),
            "s": column(text, pa.string()),
            "x": column(lambda key: key + 0.5, pa.float64()),
            "d": column(lambda key: Decimal(key) / 100, pa.decimal128(9, 2)),
            "day": column(day, pa.date32()),
            "ts": column(moment, pa.timestamp("us")),
            "tz": column(lambda key: moment(key, dt.UTC), pa.timestamp("us", "UTC")),
            "ok": column(lambda key: key % 2 == 0, pa.bool_()),
            "r": column(lambda key: {"id": key, "k": text(key)}, pa.struct([("id", pa.int64()), ("k", pa.string())])),
            "y": column(lambda key: text(key).encode(), pa.binary()),
        }
    )


FILTERED = ["i", "j", "s", "x", "d", "day", "ts", "tz", "r.id", "r.k", "y"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of five row groups, with filters."""
    where = tmp_path_factory.mktemp("handed")
    table = stored_table()
    for at in range(2):
        pq.write_table(table.slice(at * 250, 250), where / f"{at}.parquet", row_group_size=ROW_GROUP)
    parquet_bloom.add_filters(where, in_place=True, columns=FILTERED, sync=False)
    return where


# --- what is asked ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One predicate in the languages of the engines; None: it is not asked there.

    skips  the engines that skip row groups by it: their first letters, A is pyarrow's, F DataFusion's
    """

    name: str
    group: str
    skips: str
    sql: str
    polars: Callable[[Any], Any] | None = None
    arrow: pc.Expression | None = None
    datafusion: str | None = None


K, OTHER = KEYS[123], KEYS[321]
f = pc.field
SOME = [K, OTHER, LISTED, LISTED + 7, LISTED + 11]
HUNDREDS = [K, *range(LISTED, LISTED + 999)]
PLAIN = "`=` of a plain column"
SIGNS = {"=": operator.eq, "<>": operator.ne, ">": operator.gt}


def spelled(value: Any, datafusion: bool = False) -> str:
    """A literal as DuckDB has it, and DataFusion, where it has its own."""
    if isinstance(value, bytes):
        return f"x'{value.hex()}'" if datafusion else f"'{value.decode()}'::BLOB"
    if isinstance(value, dt.datetime):
        zone, word = "+00" * bool(value.tzinfo), "TIMESTAMPTZ" if value.tzinfo and not datafusion else "TIMESTAMP"
        return f"{word} '{value.replace(tzinfo=None)}{zone}'"
    return f"DATE '{value}'" if isinstance(value, dt.date) else f"'{value}'" if isinstance(value, str) else str(value)


def compared(
    column: str, value: Any, skips: str = "DFPA", group: str = PLAIN, sign: str = "=", name: str = ""
) -> Asked:
    """A column, or a field of a struct, against a literal, in all languages."""
    outer, _, inner = column.partition(".")
    name = name or (f"{column} = v" if sign == "=" else f"{column} {sign}")
    return Asked(
        name, group, skips, f"{column} {sign} {spelled(value)}",
        lambda p: SIGNS[sign](p.col(outer).struct.field(inner) if inner else p.col(outer), value),
        SIGNS[sign](f(*column.split(".")), value),
        f"{outer}['{inner}'] {sign} {value}" if inner else f"{column} {sign} {spelled(value, datafusion=True)}",
    )  # fmt: skip


def within(
    name: str, values: list[Any], skips: str = "DFPA", group: str = "`IN` of 1 to 5 values", kind: Any = None
) -> Asked:
    """A column, the first word of the name, in a list; kind: of Arrow's literals, where it is not that of the values"""
    column = name.split()[0]
    outer, _, inner = column.partition(".")
    listed = f"IN ({', '.join(map(spelled, values))})"
    return Asked(
        name, group, skips, f"{column} {listed}",
        lambda p: (p.col(outer).struct.field(inner) if inner else p.col(outer)).is_in(values),
        f(*column.split(".")).isin(pa.array(values, kind)), f"{outer}['{inner}'] {listed}" if inner else None,
    )  # fmt: skip


FIELD, MANY, RANGES = "`=`, `IN` of a field of a struct", "`IN` of 1,000 values", "`BETWEEN`, `<`, `>` of integers"
JOINED, NEGATED, NULLS = "`AND`, `OR` of these", "`NOT`, `<>`, `NOT IN`", "`IS NULL`, `IS NOT NULL`"
CALLS, BEGINS = "`CAST(i)`, `i + 1`, `lower(s)`, `coalesce(i, 0)`", "`LIKE 'abc%'`, `starts_with`"
PREDICATES = [
    compared("i", K), compared("i", LISTED, name="i = absent"), compared("j", K), compared("s", text(K)),
    Asked("v = i", PLAIN, "DFPA", f"{K} = i", lambda p: p.lit(K) == p.col("i"), pc.scalar(K) == f("i")),
    compared("x", K + 0.5), compared("d", Decimal(K) / 100, "DFA", "`=` of a decimal"), compared("day", day(K)),
    compared("ts", moment(K)), compared("tz", moment(K, dt.UTC)),
    compared("y", text(K).encode(), "DFA", "`=` of binary"),
    compared("r.id", K, "DA", FIELD), within("r.k IN", [text(K), "no"], "DA", FIELD),
    within("i IN 1", [K]), within("i IN 2", [K, OTHER]), within("i IN 5", SOME), within("s IN 5", [*map(text, SOME)]),
    within("i IN 1,000", HUNDREDS, "DFA", MANY), within("s IN 1,000", [*map(text, HUNDREDS)], "DFA", MANY),
    within("x IN", [K + 0.5, 0.25]), within("day IN", [day(K), dt.date(1990, 1, 1)]),
    within("d IN", [Decimal(K) / 100, Decimal("-1.00")], "DFA", "`IN` of decimals", pa.decimal128(9, 2)),
    within("ts IN", [moment(K), dt.datetime(1990, 1, 1)], kind=pa.timestamp("us")),
    Asked("i IN with NULL", "`IN (5, NULL)`", "FPA", f"i IN ({K}, NULL)", lambda p: p.col("i").is_in([K, None]),
          f("i").isin([K])),
    Asked("i BETWEEN", RANGES, "DFPA", f"i BETWEEN {K} AND {K + 2}", lambda p: p.col("i").is_between(K, K + 2),
          (f("i") >= K) & (f("i") <= K + 2)),
    Asked("i > AND i <", RANGES, "DFPA", f"i > {K - 1} AND i < {K + 1}",
          lambda p: (p.col("i") > K - 1) & (p.col("i") < K + 1), (f("i") > K - 1) & (f("i") < K + 1)),
    compared("i", 9990, "DFPA", RANGES, ">"),
    Asked("day BETWEEN", "`BETWEEN` of days", "DFPA", f"day BETWEEN DATE '{day(K)}' AND DATE '{day(K + 1)}'",
          lambda p: p.col("day").is_between(day(K), day(K + 1)), (f("day") >= day(K)) & (f("day") <= day(K + 1))),
    compared("x", 9990, "", "`>` of doubles", ">"), compared("d", Decimal("99.90"), "DFA", "`>` of decimals", ">"),
    Asked("OR", JOINED, "DFPA", f"i = {K} OR s = '{text(OTHER)}'",
          lambda p: (p.col("i") == K) | (p.col("s") == text(OTHER)), (f("i") == K) | (f("s") == text(OTHER))),
    Asked("AND", JOINED, "DFPA", f"i = {K} AND s = '{text(OTHER)}'",
          lambda p: (p.col("i") == K) & (p.col("s") == text(OTHER)), (f("i") == K) & (f("s") == text(OTHER))),
    Asked("AND of an unknown part", JOINED, "DFPA", f"i = {K} AND s LIKE '%3'",
          lambda p: (p.col("i") == K) & p.col("s").str.ends_with("3"), (f("i") == K) & pc.ends_with(f("s"), "3")),
    compared("i", K, "", NEGATED, "<>"),
    Asked("NOT i =", NEGATED, "", f"NOT (i = {K})", lambda p: ~(p.col("i") == K), ~(f("i") == K)),
    Asked("NOT (i <>)", "`NOT (i <> 5)`", "DFPA", f"NOT (i <> {K})", lambda p: ~(p.col("i") != K), ~(f("i") != K)),
    Asked("i NOT IN", NEGATED, "", f"i NOT IN ({K}, {OTHER})", lambda p: ~p.col("i").is_in([K, OTHER]),
          ~f("i").isin([K, OTHER]) & f("i").is_valid()),
    Asked("IS NULL", NULLS, "", "i IS NULL", lambda p: p.col("i").is_null(), f("i").is_null()),
    Asked("IS NOT NULL", NULLS, "", "i IS NOT NULL", lambda p: p.col("i").is_not_null(), f("i").is_valid()),
    Asked("struct IS NULL", NULLS, "", "r IS NULL", lambda p: p.col("r").is_null(), f("r").is_null()),
    Asked("IS NOT DISTINCT", "`IS NOT DISTINCT FROM`", "", f"i IS NOT DISTINCT FROM {K}",
          lambda p: p.col("i").eq_missing(K)),
    Asked("IS TRUE", "`(i = 5) IS TRUE`", "D", f"(i = {K}) IS TRUE"),
    Asked("i = text", "`i = '5'`", "DF", f"i = '{K}'"),
    compared("i", float(K), "A", "`i = 5.0`", name="i = 5.0"),
    Asked("CAST to int", CALLS, "F", f"CAST(i AS INTEGER) = {K}", lambda p: p.col("i").cast(p.Int32) == K,
          f("i").cast(pa.int32()) == K),
    Asked("CAST to text", CALLS, "F", f"CAST(i AS VARCHAR) = '{K}'", lambda p: p.col("i").cast(p.String) == str(K),
          f("i").cast(pa.string()) == str(K)),
    Asked("CAST to date", "`CAST(ts AS DATE) = ...`", "D", "CAST(ts AS DATE) = DATE '2026-01-08'",
          lambda p: p.col("ts").dt.date() == dt.date(2026, 1, 8),
          f("ts").cast(pa.date32(), safe=False) == dt.date(2026, 1, 8)),
    Asked("i + 1", CALLS, "D", f"i + 1 = {K + 1}", lambda p: p.col("i") + 1 == K + 1, f("i") + 1 == K + 1),
    Asked("lower", CALLS, "", f"lower(s) = '{text(K)}'", lambda p: p.col("s").str.to_lowercase() == text(K),
          pc.utf8_lower(f("s")) == text(K)),
    Asked("coalesce", CALLS, "", f"coalesce(i, 0) = {K}", lambda p: p.coalesce(p.col("i"), 0) == K,
          pc.coalesce(f("i"), pc.scalar(0)) == K),
    Asked("LIKE 'k%'", BEGINS, "A", "s LIKE 'k0999%'", lambda p: p.col("s").str.starts_with("k0999"),
          pc.match_like(f("s"), "k0999%")),
    Asked("LIKE '%5'", "`LIKE '%5'`", "", f"s LIKE '%{K % 100}'", lambda p: p.col("s").str.ends_with(str(K % 100)),
          pc.match_like(f("s"), f"%{K % 100}")),
    Asked("starts_with", BEGINS, "A", "starts_with(s, 'k0999')", lambda p: p.col("s").str.contains("^k0999"),
          pc.starts_with(f("s"), "k0999")),
    Asked("s >= AND s <", "`<`, `>` of texts", "DFPA", "s >= 'k09990' AND s < 'k0:'",
          lambda p: (p.col("s") >= "k09990") & (p.col("s") < "k0:"), (f("s") >= "k09990") & (f("s") < "k0:")),
    Asked("ok", "a boolean column", "", "ok", lambda p: p.col("ok"), f("ok")),
    Asked("i = j", "`i = j`", "", "i = j", lambda p: p.col("i") == p.col("j"), f("i") == f("j")),
    Asked("CASE", "`CASE`", "", f"CASE WHEN i = {K} THEN TRUE ELSE FALSE END",
          lambda p: p.when(p.col("i") == K).then(True).otherwise(False)),
    Asked("if_else", "`CASE`", "FA", f"CASE WHEN i IS NULL THEN FALSE ELSE i = {K} END", None,
          pc.if_else(f("i").is_null(), pc.scalar(False), f("i") == K)),
    Asked("subquery", "a subquery", "", f"i IN (SELECT {K})"),
]  # fmt: skip


# --- who is asked -----------------------------------------------------------------------------------


class Skipping(logging.Handler):
    """The fewest row groups that one of a data set's filters left, of how many; None: no filter told anything.

    read  those of the fragments that the data set gave, to an engine that reads by fragments
    """

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.all = 0
        self.read: int | None = None

    @property
    def skips(self) -> bool:
        if self.read is not None:
            return self.read < 10
        return self.left is not None and self.left < 10

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.search(r"(\d+) of (\d+) row groups can match$", record.getMessage()):
            left, self.all = map(int, found.groups())
            self.left = left if self.left is None else min(self.left, left)


@contextmanager
def skipping() -> Iterator[Skipping]:
    handler, logger = Skipping(), logging.getLogger("parquet_bloom")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    get_fragments = SearchedDataset.get_fragments

    def counted(*arguments: Any, **options: Any) -> Iterator[Any]:
        found = list(get_fragments(*arguments, **options))
        handler.read = sum(len(one.row_groups) for one in found)
        return iter(found)

    try:
        with mock.patch.object(SearchedDataset, "get_fragments", counted):
            yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def in_duckdb(stored: ds.Dataset, asked: Asked) -> list[int] | None:
    connection = pytest.importorskip("duckdb").connect()
    try:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", stored)
        return sorted(n for (n,) in connection.execute(f"SELECT n FROM t WHERE {asked.sql}").fetchall())
    finally:
        connection.close()


def in_datafusion(stored: ds.Dataset, asked: Asked) -> list[int] | None:
    context = pytest.importorskip("datafusion").SessionContext()
    context.register_dataset("t", stored)
    batches = context.sql(f"SELECT n FROM t WHERE {asked.datafusion or asked.sql} ORDER BY n LIMIT 1000").collect()
    return [n for batch in batches for n in pa.record_batch(batch).column(0).to_pylist()]


def in_polars(stored: ds.Dataset, asked: Asked) -> list[int] | None:
    polars = pytest.importorskip("polars")
    if asked.polars is None:
        return None
    frame = polars.scan_pyarrow_dataset(stored)
    return sorted(frame.filter(asked.polars(polars)).select("n").collect()["n"].to_list())


def in_pyarrow(stored: ds.Dataset, asked: Asked) -> list[int] | None:
    if asked.arrow is None:
        return None
    return sorted(stored.to_table(columns=["n"], filter=asked.arrow)["n"].to_pylist())


ENGINES = {"duckdb": in_duckdb, "datafusion": in_datafusion, "polars": in_polars, "pyarrow": in_pyarrow}
LETTERS = {"duckdb": "D", "datafusion": "F", "polars": "P", "pyarrow": "A"}  # of Asked.skips


def version_of(engine: str) -> tuple[int, int]:
    numbers = re.findall(r"\d+", pytest.importorskip(engine).__version__)
    return int(numbers[0]), int(numbers[1])


@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_hands_over(engine: str, folder: Path) -> None:
    """The rows of pyarrow's own data set in the same engine, from fewer row groups where PREDICATES says so."""
    ask, stored, plain = ENGINES[engine], parquet_bloom.dataset(folder), ds.dataset(folder)
    found: dict[str, bool] = {}
    lines = []
    for asked in PREDICATES:
        with skipping() as seen:
            rows = ask(stored, asked)
        if rows is None:
            continue
        assert rows == ask(plain, asked), asked.name
        found[asked.name] = seen.skips
        told = "nothing of use" if seen.left is None else f"{seen.left:2} of {seen.all} row groups left"
        lines.append(f"{asked.name:22} {told}")
    print(
        f"\n{engine} {'.'.join(map(str, version_of(engine)))}: {sum(found.values())} of {len(found)} skip",
        *lines,
        sep="\n",
    )
    if version_of(engine) >= RECORDED[engine]:
        expected = {asked.name: LETTERS[engine] in asked.skips for asked in PREDICATES if asked.name in found}
        skips, not_any_more = [n for n in found if found[n] > expected[n]], [n for n in found if found[n] < expected[n]]
        assert (skips, not_any_more) == ([], []), "of PREDICATES, these skip now, and these do not any more"


def table_of_the_page() -> list[str]:
    """PREDICATES by groups, as docs/recipes.md has them."""
    lines = [f"| predicate | {' | '.join(SHOWN.values())} |", "| --- |" + " --- |" * len(SHOWN)]
    for group in dict.fromkeys(asked.group for asked in PREDICATES):
        cells = []
        for engine, letter in LETTERS.items():
            unasked = {"polars": lambda one: one.polars is None, "pyarrow": lambda one: one.arrow is None}.get(engine)
            among = [one for one in PREDICATES if one.group == group and not (unasked and unasked(one))]
            skips = [letter in one.skips for one in among]
            cells.append("-" if not skips else "yes" if all(skips) else "some" if any(skips) else "no")
        lines.append(f"| {group} | {' | '.join(cells)} |")
    return lines


def test_the_page_has_what_is_handed_over() -> None:
    section = PAGE.read_text().split("## What engines hand over\n")[1].split("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("|")] == table_of_the_page()


def _joined_in_duckdb(module: Any, stored: ds.Dataset) -> list[int]:
    connection = module.connect()
    connection.register("t", stored)
    connection.execute(f"CREATE TABLE w AS SELECT {K}::BIGINT AS i")
    found = connection.execute("SELECT n FROM t JOIN w USING (i)").fetchall()
    connection.close()
    return [n for (n,) in found]


def _joined_in_datafusion(module: Any, stored: ds.Dataset) -> list[int]:
    context = module.SessionContext()
    context.register_dataset("t", stored)
    context.from_pydict({"i": [K]}, "w")
    batches = context.sql("SELECT t.n FROM t JOIN w ON t.i = w.i").collect()
    return [n for batch in batches for n in pa.record_batch(batch).column(0).to_pylist()]


JOINS: dict[str, Callable[[Any, ds.Dataset], list[int]]] = {
    "duckdb": _joined_in_duckdb,
    "datafusion": _joined_in_datafusion,
    "polars": lambda module, stored: sorted(
        module.scan_pyarrow_dataset(stored).join(module.LazyFrame({"i": [K]}), on="i").collect()["n"].to_list()
    ),
}


@pytest.mark.parametrize("engine", JOINS)
def test_joins_hand_nothing_over(engine: str, folder: Path) -> None:
    """As the page says; where one of them does, the page is to change."""
    with skipping() as seen:
        assert JOINS[engine](pytest.importorskip(engine), parquet_bloom.dataset(folder)) == [123]
    if version_of(engine) >= RECORDED[engine]:
        assert seen.left is None, "a join hands its keys over"
    kept = parquet_bloom.prune(folder, column="i", values=[K])
    assert sum(len(groups) for _, groups in kept) == 1, "prune(values=) first"


def test_fragments_of_a_filter(folder: Path) -> None:
    """Dask, Ray Data and others that go by fragments: get_fragments(filter) gives the row groups that can match."""
    stored = parquet_bloom.dataset(folder)
    [one] = stored.get_fragments(filter=f("i") == K)
    assert len(one.row_groups) == 1
    assert one.to_table(schema=stored.schema, filter=f("i") == K)["n"].to_pylist() == [123]
    [none] = stored.get_fragments(filter=f("i") == LISTED)
    assert none.row_groups == []
    assert none.to_table().num_rows == 0
    assert sum(len(each.row_groups) for each in stored.get_fragments()) == 10
    assert sum(len(each.row_groups) for each in stored.get_fragments(filter=pc.utf8_lower(f("s")) == "x")) == 10
    with pytest.raises(ValueError, match="filtered"):
        stored.filter(f("i") == K).get_fragments()
    frame = pytest.importorskip("dask.dataframe")
    parts = list(stored.get_fragments(filter=f("i").isin([K, OTHER])))
    lazy = frame.from_map(lambda part: part.to_table(columns=["n", "i"]).to_pandas(), parts)
    assert lazy[lazy.i.isin([K, OTHER])].compute()["n"].tolist() == [123, 321]


def test_rows_are_those_of_a_table_in_memory(folder: Path) -> None:
    """pyarrow over files with filters, against pyarrow over the same rows in memory."""
    stored, memory = parquet_bloom.dataset(folder), ds.dataset(stored_table())
    assert len({asked.name for asked in PREDICATES}) == len(PREDICATES) >= 50
    for asked in PREDICATES:
        assert in_pyarrow(stored, asked) == in_pyarrow(memory, asked), asked.name
