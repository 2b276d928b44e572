"""Filters for data sets of any size, on Spark: each function takes a SparkSession and gives a DataFrame.

    from parquet_bloom import spark as bloom

    bloom.add_filters(spark, ["s3a://bucket/events"], columns=["trace_id"], in_place=True).show()

The executors call the same functions as the command line does; failures are rows, not exceptions. What a job
raises as a whole is in parquet_bloom.errors, such as SparkJobError.
Needs the extra `spark` (pyspark 4.1 or later, Java 17 or later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parquet_bloom.options import SparkAddOptions

if TYPE_CHECKING:
    from parquet_bloom.spark.add import add_filters
    from parquet_bloom.spark.jobs import check, inspect_filters, prune, verify_filters
    from parquet_bloom.spark.source.reading import read
    from parquet_bloom.spark.source.source import ParquetBloomSource, register
    from parquet_bloom.spark.zones import build_zone_index

_HOMES = {
    "add_filters": "add",
    "build_zone_index": "zones",
    "check": "jobs",
    "inspect_filters": "jobs",
    "prune": "jobs",
    "read": "source.reading",
    "verify_filters": "jobs",
    "ParquetBloomSource": "source.source",
    "register": "source.source",
}


__all__ = [
    "ParquetBloomSource",
    "SparkAddOptions",
    "add_filters",
    "build_zone_index",
    "check",
    "inspect_filters",
    "prune",
    "read",
    "register",
    "verify_filters",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"parquet_bloom.spark.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
