"""Released programs that wrote wrong statistics: every value that they stored is found, and no row more."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import FIXTURES

import parquet_bloom

FOLDER = FIXTURES / "statistics"
RELEASES = sorted(path.stem for path in FOLDER.glob("*.parquet"))

_spec = importlib.util.spec_from_file_location("old_statistics", FIXTURES / "writers" / "old_statistics.py")
assert _spec is not None
assert _spec.loader is not None
made = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(made)


def rows_of(release: str) -> list[dict[str, Any]]:
    """The rows as the script has them, not as anybody reads them."""
    if release.startswith("duckdb"):
        return [{"row": row, "key": made.key(row)} for row in range(made.DUCKDB_ROWS)]
    there = pq.read_schema(FOLDER / f"{release}.parquet").names
    names = [name for name in ("reading", "label", "number", "amount") if name in there]
    return [{"row": row, **{name: getattr(made, name)(row) for name in names}} for row in range(made.ROWS)]


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else f"{value!r}e0" if isinstance(value, float) else str(value)


Question = tuple[str, Callable[[dict[str, Any]], bool]]


def questions(rows: list[dict[str, Any]]) -> list[Question]:
    found: list[Question] = []
    for name in (one for one in rows[0] if one not in ("row", "key")):
        found.append((f"{name} IS NULL", lambda row, name=name: row[name] is None))
        found.append((f"{name} IS NOT NULL", lambda row, name=name: row[name] is not None))
        values = sorted({row[name] for row in rows if row[name] is not None and row[name] == row[name]})
        for value in [*values[:: max(1, len(values) // 4)], values[-1]]:
            text = _literal(value)
            for op, holds in (("=", "__eq__"), ("<", "__lt__"), (">", "__gt__"), ("<>", "__ne__")):

                def test(row: dict[str, Any], name: str = name, holds: str = holds, value: Any = value) -> bool:
                    mine = row[name]
                    if mine is None or (isinstance(mine, float) and math.isnan(mine)):
                        return mine is not None and holds == "__ne__"
                    return bool(getattr(mine, holds)(value))

                found.append((f"{name} {op} {text}", test))
    return found  # fmt: skip


@pytest.mark.parametrize("release", [one for one in RELEASES if one.startswith("polars")])
def test_what_polars_wrote_is_found(release: str, tmp_path: Path) -> None:
    path = FOLDER / f"{release}.parquet"
    if release in ("polars-0.20.31", "polars-1.44.2"):  # filters are asked as ever
        parquet_bloom.add_filters(path, tmp_path / "a.parquet", columns=["label", "number", "reading"])
        path = tmp_path / "a.parquet"
    rows = rows_of(release)
    for predicate, holds in questions(rows):
        expected = [row["row"] for row in rows if holds(row)]
        assert parquet_bloom.read_table(path, predicate)["row"].to_pylist() == expected, predicate
        assert parquet_bloom.count(path, predicate) == len(expected), predicate
        assert any(not one.skipped for one in parquet_bloom.check(path, predicate)) >= bool(expected), predicate


@pytest.mark.parametrize("release", [one for one in RELEASES if one.startswith("duckdb")])
def test_what_duckdb_wrote_is_found(release: str, tmp_path: Path) -> None:
    """And `add` gives a filter to a chunk that is said to hold nothing but NULL."""
    path, rows = FOLDER / f"{release}.parquet", rows_of(release)
    parquet_bloom.add_filters(path, tmp_path / "a.parquet", columns="key")
    [file] = parquet_bloom.verify(tmp_path / "a.parquet").files
    assert (1, "key", "right") in {(one.row_group, one.column, one.status) for one in file.filters}
    for where in (path, tmp_path / "a.parquet"):
        for row in (2048, 3000, 4095):
            key = pa.scalar(made.key(row).encode(), pa.binary())
            assert parquet_bloom.read_table(where, [("key", "=", key)])["row"].to_pylist() == [row]
            assert parquet_bloom.prune(where, column="key", values=[made.key(row).encode()])
        nulls = [row["row"] for row in rows if row["key"] is None]
        assert parquet_bloom.read_table(where, "key IS NULL")["row"].to_pylist() == nulls
        assert parquet_bloom.count(where, "key IS NOT NULL") == len(rows) - len(nulls)


def test_the_files_are_as_wrong_as_they_were() -> None:
    """Else the tests above prove nothing: what the footers say is not what is stored."""
    chunks = {}
    for release in RELEASES:
        meta = pq.read_metadata(FOLDER / f"{release}.parquet")
        group = meta.row_group(meta.num_row_groups - 1)
        chunks[release] = {group.column(i).path_in_schema: group.column(i).statistics for i in range(group.num_columns)}
    for release in ("polars-1.28.1", "polars-1.38.1", "polars-1.44.2", "polars-2.0.0"):
        assert chunks[release]["reading"].max < 1000.5
    for release in ("polars-0.20.31", "polars-1.28.1", "polars-1.38.1", "polars-1.44.2"):
        assert chunks[release]["amount"].min >= 0
    for release in ("polars-1.38.1", "polars-1.44.2"):
        assert chunks[release]["label"].null_count > made.ROWS
    assert chunks["polars-0.16.16"]["label"].null_count == 0
    assert chunks["polars-0.20.31"]["number"].min > chunks["polars-0.20.31"]["number"].max
    for release in ("duckdb-0.8.1", "duckdb-0.10.0"):
        assert chunks[release]["key"].null_count == made.DUCKDB_ROWS // 2
    for release in ("duckdb-1.0.0", "duckdb-2.0.1"):
        assert chunks[release]["key"].null_count == 0
    assert chunks["polars-2.1.0"]["reading"].max == 1000.5
