"""Kept files with one tail and with two, in every engine: the same rows, and row groups excluded by their filters."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.samples import FIXTURES

from engines.asking import DataFusion, duckdb, polars_count, skipped_by_check
from engines.reading import READERS, assert_equal
from parquet_bloom import inspect, remove_filters, verify

TAILS = FIXTURES / "tails"
BASE = FIXTURES / "placement_lab" / "base.parquet"


@pytest.mark.parametrize("name", ["once", "twice"])
class TestVectors:
    def test_is_what_it_was_when_it_was_made(self, name: str) -> None:
        data, old = (TAILS / f"{name}.parquet").read_bytes(), BASE.read_bytes()
        assert data.startswith(old)
        info = inspect(TAILS / f"{name}.parquet").files[0]
        assert info.older_footers == {"once": 1, "twice": 2}[name]
        assert info.problems == 0
        assert {f.place for f in info.filters} == {"tail"}
        assert {f.column for f in info.filters} == {"s"} | ({"id"} if name == "twice" else set())
        assert not verify(TAILS / f"{name}.parquet").files[0].wrong

    def test_remove_gives_the_file_back(self, name: str, tmp_path: Path) -> None:
        remove_filters(TAILS / f"{name}.parquet", tmp_path / "out", sync=False)
        assert (tmp_path / "out").read_bytes() == BASE.read_bytes()
        if name == "twice":
            remove_filters(TAILS / "twice.parquet", tmp_path / "once", sync=False, last=True)
            assert (tmp_path / "once").read_bytes() == (TAILS / "once.parquet").read_bytes()

    def test_every_engine_reads_it(self, name: str) -> None:
        for read in READERS.values():
            assert_equal(read(TAILS / f"{name}.parquet"), read(BASE))

    def test_filters_exclude_row_groups(self, name: str) -> None:
        path = TAILS / f"{name}.parquet"
        stored = pq.ParquetFile(BASE).read_row_group(2, ["s"])["s"]
        checked = {value: skipped_by_check(path, "s", f"'{value}'") for value in stored.to_pylist()[:20]}
        assert not any(skipped[2] for skipped in checked.values()), "the row group that holds the value"
        value, skipped = next(pair for pair in checked.items() if sum(pair[1]) == 3)
        scalar = pa.scalar(value, stored.type)
        with duckdb() as asked:
            assert asked.excludes(path, "s", f"'{value}'") == skipped, "as our check says"
            assert asked.count(path, f"s = '{value}'") == 1
        rows, by_statistics, by_filters = DataFusion().ask(path, "s", scalar)
        assert (rows, by_statistics + by_filters) == (1, 3)
        assert by_filters, "values are shuffled, so that statistics tell little"
        assert polars_count(path, "s", [scalar]) == 1
        assert ds.dataset(path).to_table(filter=ds.field("s") == scalar).num_rows == 1
