"""Which way a row group is read: by pages where that spares any, at once where it does not.

Row groups are as large here as the rule of cost asks of them; it is not changed, as it is in the tests beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom.rows import matching
from parquet_bloom.rows.source_rows import FileRows

GROUPS, GROUP = 4, 51_200
RULE = matching.Reading._page_rows, matching._LEAST  # conftest.py puts others in their place


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(3)
    rows = GROUPS * GROUP
    numbers = {name: rng.integers(0, 2**62, rows) for name in "abcd"}
    return pa.table({"id": rng.permutation(rows), "share": np.arange(rows) % 1000, **numbers})


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Of each scan how many row groups and columns it has."""
    found: list[tuple[int, int]] = []
    batches = FileRows.batches

    def counted(self: FileRows, parts: Sequence[Any], names: Sequence[str] | None, n: int | None) -> Iterator[Any]:
        found.append((sum(len(groups) for _, groups in parts), len(self.schema.names if names is None else names)))
        return batches(self, parts, names, n)

    monkeypatch.setattr(FileRows, "batches", counted)
    monkeypatch.setattr(matching.Reading, "_page_rows", RULE[0])
    monkeypatch.setattr(matching, "_LEAST", RULE[1])
    return found


def written(table: pa.Table, path: Path, by: str) -> Path:
    if by == "duckdb":  # a page has a whole row group
        duckdb.sql(f"COPY (SELECT * FROM \"table\") TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE {GROUP})")
    else:  # pages of 20,000 rows
        pq.write_table(table, path, row_group_size=GROUP, compression="zstd")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    return path


@pytest.mark.parametrize(("by", "expected"), [("pyarrow", [(1, 1)]), ("duckdb", [(1, 6)])])
def test_a_row_is_read_by_pages_if_there_are_several(
    table: pa.Table, tmp_path: Path, scans: list[tuple[int, int]], by: str, expected: list[tuple[int, int]]
) -> None:
    path = written(table, tmp_path / "made.parquet", by)
    found = parquet_bloom.read_table(path, "id = 777")
    assert found.equals(table.filter(pa.compute.equal(table["id"], 777)).combine_chunks())
    assert scans == expected, "the key's column of one row group, and pages; or that row group at once"


@pytest.mark.parametrize(("by", "expected"), [("pyarrow", [(1, 1), (GROUPS, 6)]), ("duckdb", [(GROUPS, 6)])])
@pytest.mark.parametrize(("predicate", "share"), [("share < 900", 900), ("share < 2", 2)])
def test_rows_of_most_pages_are_read_at_once(
    table: pa.Table,
    tmp_path: Path,
    scans: list[tuple[int, int]],
    by: str,
    expected: list[tuple[int, int]],
    predicate: str,
    share: int,
) -> None:
    path = written(table, tmp_path / "made.parquet", by)
    found = parquet_bloom.read_table(path, predicate)
    assert found.equals(table.filter(pa.compute.less(table["share"], share)).combine_chunks())
    assert scans == expected, "one row group shows it, or DuckDB's own filter, and all are read in one scan"
