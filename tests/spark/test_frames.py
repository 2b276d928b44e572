"""How the jobs use a session: its settings are put back, and what is kept costs no second job."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquet_bloom.spark.add import add_filters
from parquet_bloom.spark.frames import _setting, computed, kept, small_batches

pytestmark = pytest.mark.spark
BATCH, ADAPTIVE = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.adaptive.enabled"


def test_the_last_of_several_puts_a_setting_back(spark: Any) -> None:
    old = spark.conf.get(BATCH)
    first, second = small_batches(spark), small_batches(spark)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert spark.conf.get(BATCH) == "16", "the second is not done"
    second.__exit__(None, None, None)
    assert spark.conf.get(BATCH) == old
    assert old != "16"


def test_a_setting_comes_back_after_an_error(spark: Any) -> None:
    old = spark.conf.get(BATCH)
    try:
        with small_batches(spark):
            raise RuntimeError
    except RuntimeError:
        pass
    assert spark.conf.get(BATCH) == old


def test_a_setting_that_is_not_ours_to_change_stays(spark: Any) -> None:
    fixed = "spark.sql.warehouse.dir"
    old = spark.conf.get(fixed)
    with _setting(spark, fixed, "/elsewhere"):
        assert spark.conf.get(fixed) == old
    assert spark.conf.get(fixed) == old


def jobs_of(spark: Any, work: Any) -> tuple[int, Any]:
    context = spark.sparkContext
    group = uuid.uuid4().hex
    context.setJobGroup(group, "")
    try:
        done = work()
        context._jsc.sc().listenerBus().waitUntilEmpty()
        return len(context.statusTracker().getJobIdsForGroup(group)), done
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_what_is_kept_is_made_and_read_by_one_job_each(spark: Any) -> None:
    adaptive = spark.conf.get(ADAPTIVE)
    assert adaptive == "true"
    rows = spark.range(20).repartition(3, "id")
    n, (frame, count, most) = jobs_of(spark, lambda: computed(rows, "count(1)", "max(id)"))
    assert (n, count, most) == (1, 20, 19)
    n, found = jobs_of(spark, lambda: frame.collect())
    assert (n, len(found)) == (1, 20)
    assert spark.conf.get(ADAPTIVE) == adaptive
    other = kept(rows.selectExpr("id + 1 more"))
    assert sorted(row[0] for row in other.filter("more > 18").collect()) == [19, 20]
    frame.unpersist()
    other.unpersist()


@pytest.mark.parametrize(("folders", "jobs"), [(3, 1), (101, 4)])
def test_the_driver_lists_few_folders_and_jobs_many(spark: Any, tmp_path: Any, folders: int, jobs: int) -> None:
    """One job adds; of many folders two list names and files before, and one finds a file that has the columns."""
    for i in range(folders):
        (tmp_path / "d" / str(i)).mkdir(parents=True)
        pq.write_table(pa.table({"id": range(9)}), tmp_path / "d" / str(i) / "a.parquet", use_dictionary=False)
    n, report = jobs_of(
        spark, lambda: add_filters(spark, [str(tmp_path / "d")], in_place=True, sync=False, columns=["*"])
    )
    assert n == jobs
    assert [row.status for row in report.collect()] == ["done"] * folders
    report.unpersist()
