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

    def counted(self: FileRows, parts: Sequence[Any], names: Sequence[str] | None, *how: Any) -> Iterator[Any]:
        found.append((sum(len(groups) for _, groups in parts), len(self.schema.names if names is None else names)))
        return batches(self, parts, names, *how)

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


@pytest.mark.parametrize(
    ("by", "of_a_row", "of_most"),
    [("pyarrow", [(1, 1)], [(1, 1), (GROUPS, 6)]), ("duckdb", [(1, 6)], [(GROUPS, 6)])],
)
def test_rows_are_read_by_pages_if_that_spares_any(
    table: pa.Table, tmp_path: Path, scans: list[tuple[int, int]], by: str, of_a_row: list[Any], of_most: list[Any]
) -> None:
    """The key's column of one row group, and pages, if there are several; rows of most pages are read at once.

    One row group shows that, or DuckDB's own filter, and all are read in one scan.
    """
    path = written(table, tmp_path / "made.parquet", by)
    for where, truth, expected in (
        ("id = 777", pa.compute.equal(table["id"], 777), of_a_row),
        ("share < 900", pa.compute.less(table["share"], 900), of_most),
        ("share < 2", pa.compute.less(table["share"], 2), of_most),
    ):
        scans.clear()
        assert parquet_bloom.read_table(path, where).equals(table.filter(truth).combine_chunks()), where
        assert scans == expected, where
