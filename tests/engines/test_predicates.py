"""One predicate, asked of us and of DuckDB: the same rows, and no row group skipped that holds one.

Three files, each with statistics and filters: the fixtures' columns (random over their types), the
edges of every type, and a table in the order of its rows, where bounds decide. NaN is left out: see
test_datasets.py. Texts are the same for both but for a few spellings, see `for_duckdb`.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from support.repeats import first_then_more

import parquet_bloom
from engines import made, ordered
from engines.asking import DuckDB, duckdb
from engines.spelling import spelled
from parquet_bloom.predicates.text import parse
from parquet_bloom.predicates.tree import Unknown, leaves_of

_BLOB = re.compile(r"\bx'([0-9a-f]*)'")
_HEX = re.compile(r"\b0x[0-9a-f]+\b")
_TIME = re.compile(r"\b(TIME|TIMESTAMP) '([^'Z]*?)([+-]\d\d:\d\d|Z)?'")


def for_duckdb(text: str) -> str:
    """x'00ff' is a text to DuckDB, 0xff no number; TIMESTAMP drops the zone and what is below a microsecond."""
    return _TIME.sub(_time, _HEX.sub(lambda found: str(int(found[0], 16)), _BLOB.sub(r"unhex('\1')", text)))


def _time(found: re.Match[str]) -> str:
    kind, clock, zone = found.groups(default="")
    nanoseconds = "_NS" if re.search(r"\.\d{7,9}$", clock) else ""
    return f"{kind}{'TZ' if zone else ''}{nanoseconds} '{clock}{zone}'"


def named_in(text: str) -> set[str]:
    return {leaf.path[0] for leaf in leaves_of(parse(text)) if not isinstance(leaf, Unknown)}


@dataclass(frozen=True)
class Both:
    """A file, and one connection to ask DuckDB of it."""

    path: Path
    source: parquet_bloom.Source
    starts: tuple[int, ...]
    asked: DuckDB
    floats: frozenset[str]

    def rows(self, text: str) -> list[int]:
        query = f'SELECT "row" FROM "{self.path.parent.name}" WHERE {for_duckdb(text)} ORDER BY 1'
        return [row for (row,) in self.asked.connection.execute(query).fetchall()]

    def agree(self, text: str) -> None:
        wanted = self.rows(text)
        ours = self.source.read_table(filters=text, columns=["row"])["row"].to_pylist()
        assert sorted(ours) == wanted, f"{text}: rows differ from DuckDB's"
        assert ours == wanted, f"{text}: not in the order of the file"
        if len(text) % 2:  # half of them
            assert self.source.count(text) == len(wanted), text
        holding = {sum(row >= start for start in self.starts) - 1 for row in wanted}
        for nan in ("ieee", "largest") if self.floats & named_in(text) else ("ieee",):
            kept = {v.row_group for v in self.source.check(text, nan=nan) if not v.skipped}
            assert holding <= kept, f"{text}: a row group with rows was skipped, nan={nan!r}"


def written(tables: Sequence[pa.Table], folder: Path, asked: DuckDB) -> Both:
    """Number the rows, write each table as a row group, and add filters."""
    ours = made.with_filters(folder, made.numbered(tables))
    starts = (0, *itertools.accumulate(len(table) for table in tables[:-1]))
    # DuckDB reads the file once: what its filters leave out of a scan is for test_verdicts.
    asked.connection.execute(f"CREATE TABLE \"{folder.name}\" AS FROM '{ours}'")
    floats = frozenset(field.name for field in tables[0].schema if pa.types.is_floating(field.type))
    return Both(ours, parquet_bloom.Source(ours), starts, asked, floats)


@pytest.fixture(scope="module")
def connection() -> Iterator[DuckDB]:
    with duckdb() as asked:
        asked.connection.execute("SET TimeZone = 'UTC'")
        yield asked


# --- the columns of the fixtures, and the edges of every type ---------------------------------------

FIXTURES = made.row_groups()
EDGES = made.boundaries()
NO_ORDER = ("null_type", "duration_us", "some_nan")
"""DuckDB knows no null type; a duration is a BIGINT to it; NaN."""


def without_nan(table: pa.Table) -> pa.Table:
    """NaN as NULL."""
    for at, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            values = [v if v == v else None for v in table[field.name].to_pylist()]
            table = table.set_column(at, field.name, pa.array(values, field.type))
    return table


def compared(name: str, tables: Sequence[pa.Table]) -> list[str]:
    """Predicates over the values of one column."""
    values = [v.sql for table in tables for v in spelled(table[name])[:3]]
    column = f'"{name}"'
    if not values:
        return [f"{column} IS NULL", f"{column} = 5", f"{column} > 5 OR {column} IS NULL", f"NOT ({column} = 5)"]
    first, last = values[0], values[-1]
    return [
        f"{column} = {first}", f"{column} <> {last}", f"{column} < {last}", f"{column} >= {first}",
        f"{last} < {column}", f"{column} BETWEEN {first} AND {last}", f"{column} NOT BETWEEN {last} AND {first}",
        f"{column} IN ({', '.join(values)})", f"{column} NOT IN ({first}, {last})", f"{column} NOT IN ({first}, NULL)",
        f"{column} IN ({last}, NULL) OR {column} IS NULL", f"{column} IS DISTINCT FROM {first}",
        f"NOT ({column} IS NOT DISTINCT FROM {last} OR {column} <= {first})",
    ]  # fmt: skip


ORDERED = [name for name in made.flat(FIXTURES[0]) if name not in (*NO_ORDER, "boolean")]
a_third = pytest.mark.parametrize("first", first_then_more(range(3), 1))


@a_third
def test_every_type(connection: DuckDB, tmp_path: Path, first: int) -> None:
    tables = [table.drop_columns(list(NO_ORDER)) for table in FIXTURES]
    fixtures = written(tables, tmp_path, connection)
    for at, name in list(enumerate(ORDERED))[first::3]:
        for text in compared(name, FIXTURES)[at % 2 :: 2]:  # of every second column the others
            fixtures.agree(text)


@a_third
def test_edges(connection: DuckDB, tmp_path: Path, first: int) -> None:
    edges = written([without_nan(table) for table in EDGES], tmp_path, connection)
    for at, name in list(enumerate(EDGES[0].column_names))[first::3]:
        for text in compared(name, EDGES)[at % 2 :: 2]:
            edges.agree(text)


@pytest.fixture(scope="module")
def by_row(connection: DuckDB, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return written(ordered.row_groups(), tmp_path_factory.mktemp("ordered"), connection)


@a_third
def test_by_hand(by_row: Both, first: int) -> None:
    for text in ordered.texts()[first::3]:
        by_row.agree(text)


def test_bounds_and_filters_both_decide(by_row: Both) -> None:
    """Else the texts above would compare nothing but pyarrow's filtering."""
    decided = Counter(v.decided_by for text in ordered.texts() for v in parquet_bloom.check(by_row.path, text))
    assert decided["bounds"] > 400
    assert decided["filter"] > 10
    assert decided["literal"] > 50
    assert decided[None] > 400
