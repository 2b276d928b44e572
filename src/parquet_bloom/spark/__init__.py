"""Filters for data sets of any size, on Spark: each function takes a SparkSession, and most give a DataFrame.

    from parquet_bloom import spark as bloom

    bloom.add_filters(spark, ["s3a://bucket/events"], columns=["trace_id"], in_place=True).show()

The executors call the same functions as the command line does; failures are rows, not exceptions. What a job
raises as a whole is in parquet_bloom.errors, such as SparkJobError.
Needs the extra `spark` (pyspark 4.1 or later, Java 17 or later).
"""

# How it is built, and why
#
#     storages   Spark's names with the session's Hadoop settings
#     listing    folders, listed by executors; files, packed into tasks
#     work       what a job works on: listed files, or a table's snapshot
#     add, repairing, jobs  the plan of a job  tasks   what an executor does: rows in, rows out, no Spark
#     keys, zones  indexes, built by jobs     locating   keys, by an index and by filters
#
# Files and tables are one kind of work (`work`).
#     A row stands for each file. On executors the rows become files of one `Snapshot` again: of the listing, or of the
#     table. So one task serves inspect, verify, check and prune, and calls the functions of one machine.
#
# Jobs are few, because each costs Spark a tenth of a second or more.
#     Up to 100,000 files are dealt out by size within the job that follows. Longer listings are packed into bins,
#     partition by partition. Sums come with the listing, and one job makes the report. Adaptive planning is off for
#     what stays in Spark's cache (`frames.kept`): it makes two jobs of each job that reads the cache.
#
# Each step of a job is unlike every earlier one (`frames`).
#     Spark answers a plan that equals an earlier plan from the earlier plan's cached rows.
#
# Workers skip a garbage collection of all modules after each task (`frames`; Workarounds in docs/architecture.md).
#
# Filters of other bytes are never put in.
#     The rows of a large file's filters carry the version token of the file that they were built from. If no token is
#     proof, they carry a hash of the chunk. `edit.add.add_file` accepts such filters; all other code is that of one
#     machine.
#
# A table (`work.TableWork`) is not listed.
#     The driver reads the log and evaluates the predicate over it. It ships each remaining file without its bounds and
#     deletes, with the log's outcome.
#
# A key index is planned on the driver, built by tasks and asked by tasks (`keys`, `work.SentSearch`).
#     The driver knows every file of an index that it builds, and no entry of it. Spark brings the entries of a part
#     together as rows of up to 1 MiB, sorted by numpy: a row an entry would cost Spark more than decoding it does.
#     A search ships no list of closed row groups: each worker opens the index, as one machine does, and recognises the
#     files that it is about to open. Of a table the driver asks as well, so that excluded files reach no task.
#
# Commits need no coordinator.
#     Each file's commit is atomic and detects that it is too late. A `ConflictError` (the source changed, the target
#     appeared) means that a twin was faster; the second check then finds nothing to do.

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parquet_bloom.options import SparkAddOptions, SparkRepairOptions

if TYPE_CHECKING:
    from parquet_bloom.spark.add import add_filters
    from parquet_bloom.spark.jobs import check, inspect_filters, prune, verify_filters
    from parquet_bloom.spark.keys import build_index, build_zone_index
    from parquet_bloom.spark.locating import locate
    from parquet_bloom.spark.repairing import repair
    from parquet_bloom.spark.source.source import ParquetBloomSource, read, register

_HOMES = {
    "add_filters": "add",
    "build_index": "keys",
    "build_zone_index": "keys",
    "check": "jobs",
    "inspect_filters": "jobs",
    "locate": "locating",
    "prune": "jobs",
    "read": "source.source",
    "repair": "repairing",
    "verify_filters": "jobs",
    "ParquetBloomSource": "source.source",
    "register": "source.source",
}


__all__ = [
    "ParquetBloomSource",
    "SparkAddOptions",
    "SparkRepairOptions",
    "add_filters",
    "build_index",
    "build_zone_index",
    "check",
    "inspect_filters",
    "locate",
    "prune",
    "read",
    "register",
    "repair",
    "verify_filters",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"parquet_bloom.spark.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
