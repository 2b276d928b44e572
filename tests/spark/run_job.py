"""A driver of its own, to be killed: python run_job.py MASTER FOLDER [K=V ...]; prints how many files are what."""

from __future__ import annotations

import json
import sys
import warnings
from unittest import mock

warnings.simplefilter("ignore")


def main() -> None:
    from faults import FaultyJob

    import parquet_bloom
    from parquet_bloom.spark import add as pipeline
    from parquet_bloom.spark import tasks
    from parquet_bloom.spark.sessions import session

    master, folder, *settings = sys.argv[1:]
    conf = dict(setting.split("=", 1) for setting in settings)
    split = int(conf.pop("split_bytes", 1 << 30))
    with session(None if master == "submitted" else master, conf) as spark, mock.patch.object(tasks, "Job", FaultyJob):
        report = pipeline.add_filters(spark, [folder], columns=["id"], in_place=True, split_bytes=split)
        found = {row["status"]: row["count"] for row in report.groupBy("status").count().collect()}
        where = spark.range(1).mapInArrow(_home, "home string").first().home
    print(json.dumps({"statuses": found, "driver": parquet_bloom.__file__, "executor": where}))


def _home(batches):  # type: ignore[no-untyped-def]
    import pyarrow as pa

    import parquet_bloom

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"home": [parquet_bloom.__file__]})


if __name__ == "__main__":
    main()
