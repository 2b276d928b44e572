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


def test_a_tail_is_what_it_was_when_it_was_made_and_goes(tmp_path: Path) -> None:
    for name, footers in (("once", 1), ("twice", 2)):
        path = TAILS / f"{name}.parquet"
        assert path.read_bytes().startswith(BASE.read_bytes())
        info = inspect(path).files[0]
        assert (info.older_footers, info.problems) == (footers, 0)
        assert {f.place for f in info.filters} == {"tail"}
        assert {f.column for f in info.filters} == {"s"} | ({"id"} if name == "twice" else set())
        assert not verify(path).files[0].wrong
        remove_filters(path, tmp_path / "out", sync=False, overwrite=True)
        assert (tmp_path / "out").read_bytes() == BASE.read_bytes()
    remove_filters(TAILS / "twice.parquet", tmp_path / "once", sync=False, last=True)
    assert (tmp_path / "once").read_bytes() == (TAILS / "once.parquet").read_bytes()


@pytest.mark.parametrize("name", ["once", "twice"])
def test_every_engine_reads_it_and_filters_exclude_row_groups(name: str) -> None:
    path = TAILS / f"{name}.parquet"
    for read in READERS.values():
        assert_equal(read(path), read(BASE))
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
