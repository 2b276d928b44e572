"""Filters for data sets of any size, on Spark: each function takes a SparkSession and gives a DataFrame.

    from parquet_bloom import spark as bloom

    bloom.add_filters(spark, ["s3a://bucket/events"], columns=["trace_id"], in_place=True).show()

The executors call the same functions as the command line does; failures are rows, not exceptions.
Needs the extra `spark` (pyspark 4.1 or later, Java 17 or later).
"""

from __future__ import annotations

from typing import Any

_HOMES = {
    "add_filters": "pipeline",
    "build_zone_index": "zones",
    "check": "jobs",
    "inspect_filters": "jobs",
    "prune": "jobs",
    "read": "reading",
    "verify_filters": "jobs",
    "ParquetBloomSource": "data_source.source",
    "register": "data_source.source",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"parquet_bloom.spark.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
