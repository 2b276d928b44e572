"""What each engine says of one value: which row groups it skips, and how many rows it finds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from parquet_bloom import FooterCache, check

_FOOTERS = FooterCache()  # a file is asked hundreds of times, and its footer read once


def skipped_by_check(path: Path, column: str, sql: str) -> list[bool]:
    """Our verdict a row group; `column` as SQL writes it."""
    verdicts = check(path, f"{column} = {sql}", cache=_FOOTERS)
    if any("is a list" in reason for _, reason in verdicts.unused):
        verdicts = check(path, f"list_contains({column}, {sql})", cache=_FOOTERS)
    return [verdict.skipped for verdict in verdicts]


class DuckDB:
    """One connection, which sees a file under its name only: no state is kept between questions."""

    def __init__(self) -> None:
        self.connection = pytest.importorskip("duckdb").connect()

    def excludes(self, path: Path, column: str, literal: str) -> list[bool]:
        """DuckDB's own probe of the filters a row group; `column` is its bare name."""
        probe = f"parquet_bloom_probe('{path}', '{column}', {literal})"
        query = f"SELECT bloom_filter_excludes FROM {probe} ORDER BY row_group_id"
        return [excluded for (excluded,) in self.connection.execute(query).fetchall()]

    def count(self, path: Path, where: str) -> int:
        """How many rows a real query finds, filters in use."""
        row = self.connection.execute(f"SELECT count(*) FROM '{path}' WHERE {where}").fetchone()
        assert row is not None
        return int(row[0])

    def scanned(self, path: Path, where: str) -> tuple[int, int]:
        """Row groups that a query read, and all of them."""
        plan = self.connection.execute(f"EXPLAIN ANALYZE SELECT count(*) FROM '{path}' WHERE {where}").fetchall()
        found = re.search(r"Row Groups Scanned:\s*(\d+) / (\d+)", plan[0][1])
        assert found is not None, plan[0][1]
        return int(found[1]), int(found[2])


@contextmanager
def duckdb() -> Iterator[DuckDB]:
    asked = DuckDB()
    try:
        yield asked
    finally:
        asked.connection.close()


class DataFusion:
    """A session without parallelism, so that the metrics speak of one plan."""

    def __init__(self) -> None:
        self._module = pytest.importorskip("datafusion")
        self._context = self._module.SessionContext(self._module.SessionConfig().with_target_partitions(1))

    def frame(self, path: Path, column: str, value: pa.Scalar) -> Any:
        wanted = self._module.col(f'"{column}"') == self._module.lit(value)
        return self._context.read_parquet(str(path)).filter(wanted)

    def count(self, path: Path, column: str, value: pa.Scalar) -> int:
        return self.ask(path, column, value)[0]

    def ask(self, path: Path, column: str, value: pa.Scalar) -> tuple[int, int, int]:
        """Rows found, and row groups pruned by statistics and by Bloom filters."""
        plan = self.frame(path, column, value).execution_plan()
        rows = sum(batch.to_pyarrow().num_rows for batch in self._context.execute(plan, 0))
        metrics = [metric for _, metrics in plan.collect_metrics() for metric in metrics.metrics()]
        by_statistics, by_filters = (
            _pruned(metrics, f"row_groups_pruned_{what}") for what in ("statistics", "bloom_filter")
        )
        return rows, by_statistics, by_filters


def _pruned(metrics: list[Any], name: str) -> int:
    """Metrics come once for each of file and partition: `3 total → 1 matched`, `.. -> 1 fully matched`."""
    found = [re.match(r"(\d+) total → (\d+) matched", str(m)) for m in metrics if m.name == name]
    assert found, f"DataFusion has no metric {name}"
    assert all(found), f"DataFusion writes {name} in another way: {[str(m) for m in metrics if m.name == name]}"
    return sum(int(f[1]) - int(f[2]) for f in found if f)


def polars_count(path: Path, column: str, scalars: Sequence[pa.Scalar]) -> int:
    """How many rows a lazy scan finds that equal the scalar, or one of several."""
    polars = pytest.importorskip("polars")
    wanted = polars.from_arrow(pa.array(scalars, scalars[0].type))
    named = polars.col(column)
    where = named == polars.lit(wanted[0], dtype=wanted.dtype) if len(scalars) == 1 else named.is_in(wanted.implode())
    return int(polars.scan_parquet(path).filter(where).select(polars.len()).collect().item())
