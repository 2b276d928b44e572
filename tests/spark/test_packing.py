"""packing: tasks of bounded bytes and files, every file in one of them."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from parquet_bloom.errors import RequestError
from parquet_bloom.spark import packing
from parquet_bloom.spark.packing import numbered, packed

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]


def tasks_of(frame: Any) -> list[list[tuple[str, int]]]:
    """What each partition holds, as (path, size)."""
    from pyspark.sql import functions as sf

    tasks: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for row in frame.withColumn("at", sf.spark_partition_id()).collect():
        tasks[row["at"]].append((row["path"], row["size"]))
    return list(tasks.values())


@pytest.fixture(autouse=True)
def partitions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LISTED_FILES", 1)  # or these few files would be one


def listing(spark: Any, sizes: list[int], partitions: int) -> Any:
    rows = [(f"f{i}", size) for i, size in enumerate(sizes)]
    return spark.createDataFrame(rows, "path string, size bigint").repartition(partitions).persist()


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_every_file_is_in_one_task_and_tasks_are_bounded(spark: Any, adaptive: str) -> None:
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        sizes = [1 + (i * i) % 97 for i in range(500)] + [5000, 0, 0]
        tasks = tasks_of(packed(listing(spark, sizes, 7), spark, 300, 20))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert sorted(f for task in tasks for f in task) == sorted((f"f{i}", s) for i, s in enumerate(sizes))
    for task in tasks:
        assert len(task) <= 20
        assert sum(s for _, s in task) <= 300 or len([s for _, s in task if s]) == 1, "one file alone may be larger"
    assert len(tasks) < 2 * (sum(sizes) - 5000) / 300 + 10, "and they are filled"


def test_small_work_is_spread_over_the_processors(spark: Any) -> None:
    tasks = tasks_of(packed(listing(spark, [10] * 40, 1), spark, 1 << 40, 1 << 20))
    assert len(tasks) == 4, "four for each processor"
    assert {len(task) for task in tasks} == {10}


def test_one_large_partition_is_many_tasks_and_many_small_ones_are_few(spark: Any) -> None:
    assert len(tasks_of(packed(listing(spark, [10] * 400, 1), spark, 100, 1000))) == 40
    assert len(tasks_of(packed(listing(spark, [10] * 80, 50), spark, 200, 1000))) <= 14, "last bins are put together"


def test_nothing_is_no_task(spark: Any) -> None:
    frame = spark.createDataFrame([], "path string, size bigint, error string")
    again = packed(frame, spark)
    assert again.columns == frame.columns
    assert again.collect() == []
    with pytest.raises(RequestError, match="at least one"):
        packed(frame, spark, task_files=0)


def test_tasks_are_numbered_without_gaps() -> None:
    placed, n = numbered([(0, 2, 50, 1), (3, 0, 40, 1), (4, 1, 20, 1), (9, 0, 99, 1)], 100, 10)
    assert placed == [(0, 2, 0, 3), (3, 0, 2, 3), (4, 1, 2, 4), (9, 0, 3, 5)]
    assert n == 6
