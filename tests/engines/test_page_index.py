"""Readers that jump to single pages find them where the page index says, after it was moved.

A sorted column in many pages; a range that lies in a few of them. DataFusion reads those pages
only, by the offset index; the others read by row group, by batch, from a memory map.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.repeats import by_turns

from engines import made
from engines.asking import duckdb
from parquet_bloom import add_filters

ROWS, ROW_GROUPS = 1000, 3
LOW, HIGH = 1234, 1300


def table(group: int) -> pa.Table:
    numbers = np.arange(group * ROWS, (group + 1) * ROWS)
    texts, lists = [f"{n:05d}" for n in numbers], [[n, -n] for n in numbers.tolist()]
    return pa.table({"number": numbers, "text": texts, "list": lists, "other": numbers[::-1].copy()})


PLACES = [*made.PLACEMENTS, "one-column"]
WHOLE = pa.concat_tables(map(table, range(ROW_GROUPS)))
WANTED = WHOLE.slice(LOW, HIGH - LOW)


@pytest.mark.parametrize(("codec", "place"), by_turns(made.CODECS, PLACES))
def test_every_reader_finds_the_pages(codec: str, place: str, tmp_path: Path) -> None:
    source = made.write(
        tmp_path / "source.parquet", [*map(table, range(ROW_GROUPS))], made.Layout(codec, page_index=True)
    )
    ours = tmp_path / "ours.parquet"
    if place == "one-column":  # the others move, and by different distances
        add_filters(source, ours, columns=["text"], placement="chunk-start", sync=False)
    else:
        add_filters(source, ours, columns=made.leaves(source), placement=place, sync=False)
    rows, pruned = in_datafusion(ours)
    assert rows.select(["number", "other"]).equals(WANTED.select(["number", "other"]))
    assert (rows, pruned) == in_datafusion(source)
    assert "1.00 K total → 96 matched" in pruned, "six pages of 16 rows hold the range"

    with duckdb() as asked:
        found = asked.connection.sql(f"SELECT * FROM '{ours}' WHERE number >= {LOW} AND number < {HIGH}")
        assert found.to_arrow_table().to_pylist() == WANTED.to_pylist()
    polars = pytest.importorskip("polars")
    frame = polars.scan_parquet(ours).filter(polars.col("number").is_between(LOW, HIGH, closed="left")).collect()
    assert frame.to_arrow().to_pylist() == WANTED.to_pylist()
    inside = (ds.field("number") >= LOW) & (ds.field("number") < HIGH)
    assert ds.dataset(ours).to_table(filter=inside).equals(WANTED)
    # The ways in which pyarrow asks for bytes: mapped, ahead and joined, or in small pieces.
    for options in ({"memory_map": True}, {"pre_buffer": True}, {"buffer_size": 512}):
        with pq.ParquetFile(ours, page_checksum_verification=True, **options) as file:
            for group in range(ROW_GROUPS):
                assert file.read_row_group(group).equals(table(group)), options
                assert file.read_row_group(group, columns=["other"]).equals(table(group).select(["other"])), options
            assert pa.Table.from_batches(file.iter_batches(batch_size=70)).equals(WHOLE), options


def in_datafusion(path: Path) -> tuple[pa.Table, list[str]]:
    """The rows of the range, and what the plan says of pages."""
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    number = datafusion.col("number")
    inside = (number >= datafusion.lit(LOW)) & (number < datafusion.lit(HIGH))
    plan = context.read_parquet(str(path)).filter(inside).execution_plan()
    batches = [batch.to_pyarrow() for batch in context.execute(plan, 0)]
    metrics = [metric for _, each in plan.collect_metrics() for metric in each.metrics()]
    pruned = [str(metric) for metric in metrics if metric.name == "page_index_rows_pruned"]
    return pa.Table.from_batches(batches), pruned
