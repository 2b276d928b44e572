"""packing: tasks of bounded bytes and files, every file in one of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from parquet_bloom.errors import RequestError
from parquet_bloom.spark import listing as listing_module
from parquet_bloom.spark.listing import Listing, by_name, numbered, packed

pytestmark = pytest.mark.spark


def tasks_of(frame: Any) -> list[list[tuple[str, int]]]:
    """What each partition holds, as (path, size)."""
    from pyspark.sql import functions as sf

    tasks: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for row in frame.withColumn("at", sf.spark_partition_id()).collect():
        tasks[row["at"]].append((row["path"], row["size"]))
    return list(tasks.values())


@pytest.fixture
def bins(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a listing were too long for one task to deal out, and its partitions worth keeping."""
    monkeypatch.setattr(listing_module, "_AT_ONCE", 0)
    monkeypatch.setattr(listing_module, "_LISTED_FILES", 1)


def listing(spark: Any, sizes: list[int], partitions: int) -> Listing:
    rows = [(f"f{i}", size) for i, size in enumerate(sizes)]
    frame = spark.createDataFrame(rows, "path string, size bigint").repartition(partitions).persist()
    return Listing(frame, len(sizes), sum(sizes))


@pytest.fixture(params=["true", "false"])
def adaptive(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    """With AQE, which may change partitions, and without."""
    spark.conf.set("spark.sql.adaptive.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.adaptive.enabled")


def test_files_are_dealt_by_their_sizes(spark: Any, adaptive: None) -> None:
    sizes = [1 + (i * i) % 97 for i in range(500)] + [900, 0, 0]
    tasks = tasks_of(packed(listing(spark, sizes, 7), spark, 1200, 100))
    assert sorted(f for task in tasks for f in task) == sorted((f"f{i}", s) for i, s in enumerate(sizes))
    assert len(tasks) == -(-sum(sizes) // 1200)
    bytes_of, files_of = [sum(size for _, size in task) for task in tasks], [len(task) for task in tasks]
    assert max(files_of) - min(files_of) <= 1
    assert max(bytes_of) - min(bytes_of) <= 900
    assert sorted(bytes_of)[-2] - min(bytes_of) <= 97, "the large file is one task's alone to bear"


def test_every_file_is_in_one_task_and_tasks_are_bounded(spark: Any, adaptive: None, bins: None) -> None:
    sizes = [1 + (i * i) % 97 for i in range(500)] + [5000, 0, 0]
    tasks = tasks_of(packed(listing(spark, sizes, 7), spark, 300, 20))
    assert sorted(f for task in tasks for f in task) == sorted((f"f{i}", s) for i, s in enumerate(sizes))
    for task in tasks:
        assert len(task) <= 20
        assert sum(s for _, s in task) <= 300 or len([s for _, s in task if s]) == 1, "one file alone may be larger"
    assert len(tasks) < 2 * (sum(sizes) - 5000) / 300 + 10, "and they are filled"


def test_small_work_is_spread_over_the_processors(spark: Any, bins: None) -> None:
    tasks = tasks_of(packed(listing(spark, [10] * 40, 1), spark, 1 << 40, 1 << 20))
    assert len(tasks) == 4, "four for each processor"
    assert {len(task) for task in tasks} == {10}


def test_one_large_partition_is_many_tasks_and_many_small_ones_are_few(spark: Any, bins: None) -> None:
    assert len(tasks_of(packed(listing(spark, [10] * 400, 1), spark, 100, 1000))) == 40
    assert len(tasks_of(packed(listing(spark, [10] * 80, 50), spark, 200, 1000))) <= 14, "last bins are put together"


def test_by_name_a_file_s_task_does_not_depend_on_the_others(spark: Any) -> None:
    """Nor on sizes: that is what makes a listing that is lost, and made again, harmless."""
    sizes = list(range(3000))
    before, after = listing(spark, sizes, 3), listing(spark, [7 * size % 1000 for size in sizes], 11)
    tasks, again = (tasks_of(by_name(files, spark, 500)) for files in (before, after))
    names, names_again = ({frozenset(name for name, _ in task) for task in some} for some in (tasks, again))
    assert names == names_again
    assert sum(map(len, names)) == 3000
    assert len(names) == 6
    assert max(map(len, names)) < 600


def test_as_many_tasks_as_the_work_is_worth() -> None:
    def tasks(files: int, size: int) -> int:
        return listing_module._task_count(Listing(None, files, size), 8, 128 << 20, 1000)

    assert tasks(1, 1 << 30) == 1, "a file is in one"
    assert tasks(3, 1 << 10) == 3
    assert tasks(20, 20 << 20) == 8, "one for each processor"
    assert tasks(200, 1280 << 20) == 16, "and whole rounds of them"
    assert tasks(1000, 1 << 30) == 32, "but four will do"
    assert tasks(1000, 10 << 30) == 80, "unless a task has its fill of bytes"
    assert tasks(100_000, 1 << 20) == 104, "or of files"


def test_nothing_is_no_task(spark: Any) -> None:
    frame = spark.createDataFrame([], "path string, size bigint, error string")
    again = packed(Listing(frame, 0, 0), spark)
    assert again.columns == frame.columns
    assert again.collect() == []
    with pytest.raises(RequestError, match="at least one"):
        packed(Listing(frame, 0, 0), spark, task_files=0)


def test_tasks_are_numbered_without_gaps() -> None:
    placed, n = numbered([(0, 2, 50, 1), (3, 0, 40, 1), (4, 1, 20, 1), (9, 0, 99, 1)], 100, 10)
    assert placed == [(0, 2, 0, 3), (3, 0, 2, 3), (4, 1, 2, 4), (9, 0, 3, 5)]
    assert n == 6
