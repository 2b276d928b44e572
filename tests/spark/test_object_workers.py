"""Tasks in PySpark's workers, which a daemon forks, read objects through obstore as their driver does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.object_store import reading_by
from support.recording_store import RecordingStore, recording
from support.samples import write_keys

import parquet_bloom

pytestmark = pytest.mark.spark
FILES = 6


def uri(store: RecordingStore, number: int) -> str:
    options = f"scheme=http&region=us-east-1&endpoint_override={store.endpoint}"
    return f"s3://k:s@data/in/{number}.parquet?{options}"


def count(name: str) -> int:
    return parquet_bloom.count(name)


def test_workers_read_objects(spark: Any, tmp_path: Any) -> None:
    data = write_keys(tmp_path / "keys.parquet").read_bytes()
    with recording() as store, reading_by("obstore"):
        store.objects.update({f"data/in/{number}.parquet": data for number in range(FILES)})
        names = [uri(store, number) for number in range(FILES)]
        assert count(names[0]) == 1200, "the driver has used obstore"
        for _ in range(2):  # the second time in workers that were used before
            store.asked.clear()
            rows = spark.sparkContext.parallelize(names, FILES).map(lambda name: parquet_bloom.count(name)).collect()
            assert rows == [1200] * FILES
            assert Counter(store.methods()) == {"GET": FILES}
