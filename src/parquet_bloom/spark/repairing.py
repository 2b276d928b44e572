"""Right statistics for data sets that outgrow one machine: repair as a Spark job.

files    listed and packed as those of add_filters -> tasks.RepairJob, one task a file -> report
a table  (file, what the log states of it) -> edit.repair.RepairTableFile -> driver: edit.table_commit

The driver alone reads a table's log, so it sends what that states of each file.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from parquet_bloom.edit.changeable import checked_commits, refuse_undo
from parquet_bloom.edit.repair import RepairRequest, RepairTableFile
from parquet_bloom.edit.table_commit import FileOutcome
from parquet_bloom.filters.logged_statistics import LoggedStatistics
from parquet_bloom.options import PathLike, SparkRepairOptions, WriteOptions, part, refuse_unknown
from parquet_bloom.output.target import Writing
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import FileBounds, LeafPath, Snapshot, TableFile
from parquet_bloom.source.source import CallSource, open_table
from parquet_bloom.source.view import TableNames
from parquet_bloom.spark import tasks
from parquet_bloom.spark.add import (
    NEVER_SPLIT,
    TASK_BYTES,
    RowReport,
    as_report,
    change_files,
    change_table_on_spark,
    with_row,
)
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.storages import paths_of
from parquet_bloom.storage.remote import Location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@explained
def repair(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    *,
    output: PathLike | None = None,
    undo: bool = False,
    progress: Any = None,
    **options: Unpack[SparkRepairOptions],
) -> DataFrame:
    """Write wrong statistics right, of files or of a table, on Spark. Runs at once; returns the report.

    paths, output, progress  as spark.add_filters has them; of a table executors compare, and the driver commits
    undo       take repairs off, as parquet_bloom.repair does; of files
    options    see SparkRepairOptions: in_place, overwrite, force, sync, dry_run; task_bytes; raw_files; of tables
               commit, files_per_commit, catalog_properties, allow_roots
    returns    DataFrame(path, output, status, chunks, wrong, mended, mended_log, bytes_before, bytes_after, notes,
               unchecked, seconds, error), cached, a row a file, with the meanings of parquet_bloom.RepairedFile; wrong
               is a list of (row_group, column, statistic, stated, found). status is "done", "unchanged" (nothing was
               wrong, or an earlier run did it all) or "failed"; of a dry run it says what would be

    Raises as spark.add_filters; RequestError for undo of a table.
    """
    refuse_unknown("repair", options, SparkRepairOptions)
    written = Writing.of(part(WriteOptions, options))
    access = TableAccess.from_options(options, written.force)
    source = CallSource(paths_of(paths), None, options.get("raw_files", False), access)
    commits = checked_commits("repair", source, output, options, written)
    if commits is not None and source.table_name is not None:
        if undo:
            refuse_undo(source.table_name)
        table = open_table(source.table_name, dataclasses.replace(access, changes=not commits.dry_run))
        # What an earlier attempt of a task made is made again.
        request = RepairRequest(how=dataclasses.replace(written, overwrite=True))

        def task_of(one: Snapshot) -> _RepairTask:
            return _RepairTask(dataclasses.replace(one, files=[]), request, table.stated(one) if one.files else None)

        rows, _ = change_table_on_spark(spark, table, table.snapshot(stored_only=True), task_of, commits, progress)
        return as_report(spark, rows, tasks.REPAIRED, progress)
    request = RepairRequest(undo=undo, how=dataclasses.replace(written, cached=False))
    job_of = functools.partial(tasks.RepairJob, request=request)
    sizes = options.get("task_bytes", TASK_BYTES), NEVER_SPLIT  # one task compares a file's statistics
    return change_files(spark, source, output, written, job_of, sizes, progress)


@dataclass(frozen=True)
class _RepairTask:
    """Repairs one file of a table, as spark.add.FileTask has it; the driver alone has `stated`, of the whole log."""

    snapshot: Snapshot
    request: RepairRequest
    stated: Callable[[TableFile], Mapping[LeafPath, FileBounds]] | None

    def sent(self, file: TableFile) -> Mapping[LeafPath, FileBounds]:
        """The statistics that the log states of a file."""
        return {} if self.stated is None else dict(self.stated(file))

    def __call__(
        self, file: TableFile, target: Location, look_only: bool, sent: Mapping[LeafPath, FileBounds], /
    ) -> FileOutcome[RowReport]:
        """As FileTask has it."""
        started = time.perf_counter()
        log = LoggedStatistics(self.snapshot, lambda _: sent)
        outcome = RepairTableFile(TableNames(self.snapshot), log, self.request)(file, target, look_only)
        status = tasks.DONE if outcome.size else tasks.UNCHANGED
        report, seconds = outcome.report, time.perf_counter() - started
        return with_row(outcome, tasks.repaired_row(str(file), report.output, status, report, seconds))
