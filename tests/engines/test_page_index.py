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


@pytest.fixture(scope="module", params=by_turns(made.CODECS, PLACES), ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file of each codec, and it with filters, at places that take turns."""
    (codec, place), folder = request.param, tmp_path_factory.mktemp("pages")
    layout = made.Layout(codec, page_index=True)
    source = made.write(folder / "source.parquet", [*map(table, range(ROW_GROUPS))], layout)
    if place == "one-column":  # the others move, and by different distances
        add_filters(source, folder / "ours.parquet", columns=["text"], placement="chunk-start", sync=False)
    else:
        add_filters(source, folder / "ours.parquet", columns=made.leaves(source), placement=place, sync=False)
    return source, folder / "ours.parquet"


@pytest.fixture
def ours(pair: tuple[Path, Path]) -> Path:
    return pair[1]


def wanted() -> pa.Table:
    return pa.concat_tables(map(table, range(ROW_GROUPS))).slice(LOW, HIGH - LOW)


def test_datafusion_reads_few_pages(pair: tuple[Path, Path]) -> None:
    (source, ours), found = pair, {}
    for path in pair:
        datafusion = pytest.importorskip("datafusion")
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        number = datafusion.col("number")
        inside = (number >= datafusion.lit(LOW)) & (number < datafusion.lit(HIGH))
        plan = context.read_parquet(str(path)).filter(inside).execution_plan()
        batches = [batch.to_pyarrow() for batch in context.execute(plan, 0)]
        metrics = [metric for _, each in plan.collect_metrics() for metric in each.metrics()]
        pruned = [str(metric) for metric in metrics if metric.name == "page_index_rows_pruned"]
        found[path] = pa.Table.from_batches(batches), pruned
    assert found[ours][0].select(["number", "other"]).equals(wanted().select(["number", "other"]))
    assert found[ours][0].equals(found[source][0])
    assert found[ours][1] == found[source][1]
    assert "1.00 K total → 96 matched" in found[ours][1], "six pages of 16 rows hold the range"


def test_duckdb(ours: Path) -> None:
    with duckdb() as asked:
        inside = f"FROM '{ours}' WHERE number >= {LOW} AND number < {HIGH}"
        found = asked.connection.sql(f"SELECT * {inside}").to_arrow_table()
    assert found.to_pylist() == wanted().to_pylist()


def test_polars(ours: Path) -> None:
    polars = pytest.importorskip("polars")
    frame = polars.scan_parquet(ours).filter(polars.col("number").is_between(LOW, HIGH, closed="left")).collect()
    assert frame.to_arrow().to_pylist() == wanted().to_pylist()


class TestPyarrow:
    def test_dataset(self, ours: Path) -> None:
        inside = (ds.field("number") >= LOW) & (ds.field("number") < HIGH)
        assert ds.dataset(ours).to_table(filter=inside).equals(wanted())

    def test_row_groups_and_batches(self, ours: Path) -> None:
        """The ways in which pyarrow asks for bytes: mapped, ahead and joined, or in small pieces."""
        for options in ({"memory_map": True}, {"pre_buffer": True}, {"buffer_size": 512}):
            with pq.ParquetFile(ours, page_checksum_verification=True, **options) as file:
                for group in range(ROW_GROUPS):
                    assert file.read_row_group(group).equals(table(group)), options
                    assert file.read_row_group(group, columns=["other"]).equals(table(group).select(["other"])), options
                batches = pa.Table.from_batches(file.iter_batches(batch_size=70))
            assert batches.equals(pa.concat_tables(map(table, range(ROW_GROUPS)))), options
