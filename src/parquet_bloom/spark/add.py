"""Filters for data sets that outgrow one machine: add_filters as a Spark job.

    list_few     -> few files, packed on the driver -> tasks.add ----------------------------> report, one job
    list_by_size -> small files, packed many to a task -> tasks.add ----------------------------> report
                 -> large files -> tasks.cut -> units -> tasks.build_units -> filters as rows
                                                         shuffled to their file, tasks.assemble -> report

Only rows of the report, counts and sums cross the driver. A file is either old or new and whole at
any time; a task that runs twice finds its work done, so retries, speculation and a second run of the
job do only what is missing.
"""

from __future__ import annotations

import functools
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from parquet_bloom.arguments import part, refuse_unknown
from parquet_bloom.edit.changeable import check_placement, checked_commits
from parquet_bloom.edit.plan import Request
from parquet_bloom.errors import RequestError, StorageError
from parquet_bloom.options import Form, PathLike, RequestOptions, SparkAddOptions, WriteOptions
from parquet_bloom.output.folder import remove_stale
from parquet_bloom.output.target import Writing
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.source import CallSource, open_table
from parquet_bloom.spark import tasks
from parquet_bloom.spark.dataset import dealt, packed
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.frames import computed, ddl, frame_of, mapped, mark, parallelism, small_batches, width
from parquet_bloom.spark.listing import FILE, FewFiles, Listing, find_tables, in_one_process, list_by_size, list_few
from parquet_bloom.spark.storages import Storages, path_text, paths_of, storages
from parquet_bloom.spark.table_add import add_on_table
from parquet_bloom.storage.table_folders import Tables, write_guard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from parquet_bloom.format.forms.form import Rate


# --- pipeline -------------------------------------------------------------------------------------

REPORT = pa.schema(
    [
        ("path", pa.string()),
        ("output", pa.string()),
        ("status", pa.string()),
        ("row_groups", pa.int32()),
        ("filters", pa.int64()),
        ("bytes_before", pa.int64()),
        ("bytes_after", pa.int64()),
        ("filter_bytes", pa.int64()),
        ("seconds", pa.float64()),
        ("error", pa.string()),
    ]
)
_UNITS = pa.schema(
    [
        ("path", pa.string()),
        ("root", pa.string()),
        ("size", pa.int64()),
        ("place", pa.int64()),
        ("stop", pa.int64()),
        ("crc", pa.int64()),
        ("chosen", pa.list_(pa.int32())),
    ]
)
_FILTERS = pa.schema(
    [
        ("path", pa.string()),
        ("root", pa.string()),
        ("size", pa.int64()),
        ("place", pa.int64()),
        ("crc", pa.int64()),
        ("version_token", pa.string()),
        ("chunk_crc", pa.int64()),
        ("chosen", pa.list_(pa.int32())),
        ("row_group", pa.int32()),
        ("column", pa.int32()),
        ("data", pa.binary()),
        ("built", pa.string()),
        ("error", pa.string()),
    ]
)
TASK_BYTES = 512 << 20  # of small files, in one task, unless told otherwise
SPLIT_BYTES = 256 << 20  # files from this size on are split, unless told otherwise
_BATCH_BYTES = 16 << 20  # of rows that carry filters
_ATTEMPTS = 3
_CHANGED = "A shuffle map stage with indeterminate output was failed and retried"  # Spark's words
_MOST_TASKS = 50_000  # in one stage; the driver keeps some kilobytes for each


@explained
def add_filters(
    spark: Any,
    paths: PathLike | Sequence[PathLike],
    *,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    form: Form | None = None,
    fpp: Rate | Mapping[str, Rate] | None = None,
    output: PathLike | None = None,
    progress: Any = None,
    **options: Unpack[SparkAddOptions],
) -> DataFrame:
    """Add Bloom filters to the Parquet files of folders, or of a table, on Spark. Runs at once; returns the report.

    spark        a SparkSession
    paths        a file, folder or glob, or a list, named as Spark names them (file:, hdfs:, s3a:, abfss:, gs:); or one
                 table, named as parquet_bloom.add_filters names it: its files are not split
    columns, exclude, form, fpp  as parquet_bloom.add_filters has them
    output       a folder for the new versions, which keeps the tree; or else in_place=True
    progress     of spark.progress, if somebody watches
    options      see SparkAddOptions: placement, ndv, max_bytes, threads, replace; in_place, overwrite, force, sync;
                 task_bytes, split_bytes; raw_files; of tables commit, files_per_commit, catalog_properties,
                 allow_roots: executors build, and the driver commits
    returns      DataFrame(path, output, status, row_groups, filters, bytes_before, bytes_after,
                 filter_bytes, seconds, error), cached, a row a file; status is "done", "unchanged" (an
                 earlier run, or another program, did it all) or "failed"

    Raises RequestError and its kinds before any work, TypeError for an option that there is not, TableFormatError for
    a folder of an Iceberg, Delta or Hudi table without force, or with output without raw_files; with force in place a
    TableWarning. What is wrong with a file is in its row. StorageError where executors died in every one of three
    runs, so that some files have no row.
    """
    refuse_unknown("add_filters", options, SparkAddOptions)
    sources = paths_of(paths)
    written = Writing.of(part(WriteOptions, options))
    asked: RequestOptions = {"threads": 1, **part(RequestOptions, options)}
    access = TableAccess.asked(options, written.force)
    about = CallSource(sources, None, options.get("raw_files", False), access)
    how = checked_commits("add", about, output, options, written)
    if how is not None and about.table_name is not None:
        check_placement(options.get("placement"), how)
        request = Request.checked(columns=columns, exclude=exclude, form=form, fpp=fpp, cached=False, **asked)
        rows, _ = add_on_table(spark, open_table(about.table_name, access), request, how, progress)
        return _as_report(spark, rows, progress)
    asked["in_place"] = output is None
    request = Request.checked(columns=columns, exclude=exclude, form=form, fpp=fpp, cached=False, **asked)
    task_bytes, split_bytes = options.get("task_bytes", TASK_BYTES), options.get("split_bytes", SPLIT_BYTES)
    new = None if output is None else path_text(output, "output")
    where = storages(spark, sources, new)
    sources = [where.absolute(path) for path in sources]
    new = None if new is None else where.absolute(new)
    job = tasks.Job(where, request, new)
    tables = write_guard(new is not None, options.get("raw_files", False), written.force)
    _check_places(sources, new, written, where, tables or Tables())
    if tables is not None:
        find_tables(spark, sources, where, tables)
    few = list_few(spark, sources, where, split_bytes, tidy=written.in_place)
    if few is not None:
        if tables is not None:
            tables.join(few.tables)
            if written.in_place:
                tables.change(written.force)
        return _as_report(spark, _add_few(spark, few, job, task_bytes, progress), progress)
    for _ in range(_ATTEMPTS):
        small, large = list_by_size(spark, sources, where, split_bytes, tidy=written.in_place)
        if tables is not None:
            tables.join(small.tables)
            if written.in_place:
                tables.change(written.force)
            tables = None  # once is enough
        if new is not None and len(sources) > 1:
            _check_equal_targets(small.rows.unionAll(large.rows).filter(f"kind = '{FILE}'"))
        if progress is not None:
            progress.expect(small.files + large.files, small.size + large.size)
        try:
            report, files, named = _add_to(spark, small, large, job, task_bytes, progress)
        except Exception as error:
            if _CHANGED not in str(error):
                raise
            continue  # as below, but that Spark noticed it by itself
        if (files, named) == (small.files + large.files, small.mark ^ large.mark):
            break
        # With an executor Spark lost what it had of the listing. It listed again, found files that had
        # grown by then, and dealt them out otherwise: some were done twice, others by none.
        report.unpersist()
    else:
        raise StorageError(
            ", ".join(sources), f"executors were lost in each of {_ATTEMPTS} runs; run the job once more"
        )
    if _may_leave_litter(spark, where, [new] if new is not None else sources):
        _sweep(report, job)
    return report


def _add_few(spark: Any, few: FewFiles, job: tasks.Job, task_bytes: int, progress: Any) -> list[tasks.Row]:
    """All of it as one job without a shuffle: the files travel with the code, the rows of the report to the driver."""
    if job.output is not None:
        _hold_targets([_below(row["path"], row["root"]) for row in few.rows if row["kind"] == FILE])
    if progress is not None:
        progress.expect(len(few.rows), few.size)
    shares = dealt(few, parallelism(spark), task_bytes)

    def work(rows: Iterator[tasks.Row]) -> Iterator[tasks.Row]:
        return tasks.add((file for row in rows for file in shares[row["id"]]), job)

    frame = _rows(spark.range(0, len(shares), 1, len(shares)), work, REPORT, progress)
    return [row.asDict() for row in frame.collect()]


def _as_report(spark: Any, rows: list[tasks.Row], progress: Any) -> Any:
    """Rows that the driver has, as the DataFrame that people get; whoever watches needs no job for them."""
    if progress is not None:
        progress.report = rows
    return frame_of(spark, [tuple(row[field] for field in REPORT.names) for row in rows], ddl(REPORT))


def _add_to(
    spark: Any, small: Listing, large: Listing, job: tasks.Job, task_bytes: int, progress: Any
) -> tuple[Any, int, int]:
    """Run it all: the report, and how many rows it has and their mark."""
    task_bytes = max(task_bytes, small.size // _MOST_TASKS)
    work = functools.partial(tasks.add, job=job)
    report = _rows(packed(small, spark, task_bytes=task_bytes), work, REPORT, progress)
    with small_batches(spark):
        if large.files:
            report = report.unionByName(_large(spark, large, job, progress))
        report, files, paths = computed(report, "count(1)", mark())
    return report, files, paths


def _large(spark: Any, large: Listing, job: tasks.Job, progress: Any) -> Any:
    """Split, built by many tasks, and put together by one task a file."""
    rows = large.rows.repartition(min(large.files, _MOST_TASKS))
    units, n_units = computed(
        _rows(rows, functools.partial(tasks.cut, job=job), _UNITS), f"count_if(place != {tasks.HEADER})"
    )
    headers = units.filter(units.place == tasks.HEADER).selectExpr(
        "path",
        "root",
        "size",
        "place",
        "crc",
        "cast(null as string) version_token",
        "cast(null as bigint) chunk_crc",
        "chosen",
        "-1 row_group",
        "-1 column",
        "cast(null as binary) data",
        "cast(null as string) built",
        "cast(null as string) error",
    )
    rows = headers
    if n_units:
        work = units.filter(units.place != tasks.HEADER).repartition(min(n_units, _MOST_TASKS))
        rows = rows.unionByName(_rows(work, functools.partial(tasks.build_units, job=job), _FILTERS))
    # Some for each processor: two large files in one task would wait for each other.
    parts = min(4 * large.files, max(large.files, 4 * width(spark)), _MOST_TASKS)
    rows = rows.repartition(parts, "path").sortWithinPartitions("path", "place")
    return _rows(rows, functools.partial(tasks.assemble, job=job), REPORT, progress)


# --- before any work ------------------------------------------------------------------------------


def _check_places(paths: Sequence[str], output: str | None, how: Writing, where: Storages, tables: Tables) -> None:
    if how.in_place and output is not None:
        raise RequestError("output and in_place exclude each other; give one")
    if not how.in_place and output is None:
        raise RequestError("give output, a folder for the new files, or in_place to replace the sources")
    if output is not None:
        for path in paths:
            same = where.split(output)[:2] == where.split(path)[:2]
            inner, outer = (posixpath.normpath(where.split(one)[2]) + "/" for one in (output, path))
            if same and inner.startswith(outer):
                raise RequestError(f"output {output} lies in {path}, so a second run would take it for a source")
    for path in paths if output is None else [output]:
        scheme = where.split(path)[0]
        if how.in_place and not how.force and scheme in ("hdfs", "viewfs"):
            reason = "HDFS cannot replace a file in one step; give output, or force for two renames a file"
            raise RequestError(f"{path}: {reason}")
        tables.check_target(where.data_file(path), where.data_file(f"{path.rstrip('/')}/x"), how.force)


def _check_equal_targets(wanted: Any) -> None:
    relative = "CASE WHEN root = '' THEN substring_index(path, '/', -1) ELSE substr(path, length(root) + 2) END"
    several = wanted.selectExpr(f"{relative} name").groupBy("name").count().filter("count > 1").head(1)
    if several:
        raise _equal(several[0]["name"])


def _hold_targets(names: Sequence[str]) -> None:
    """The same of names that the driver has."""
    name, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise _equal(name)


def _below(path: str, root: str) -> str:
    """A file's place in an output."""
    return path[len(root) :].lstrip("/") if root else posixpath.basename(path)


def _equal(name: str) -> RequestError:
    return RequestError(f"several files would go to {name} in output; use one run for each folder")


# --- how ------------------------------------------------------------------------------------------


def _rows(
    frame: Any, work: Callable[[Iterator[tasks.Row]], Iterator[tasks.Row]], schema: pa.Schema, progress: Any = None
) -> Any:
    """A generator over rows as a step of a Spark job."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pending: list[tasks.Row] = []
        size = 0
        for row in work(row for batch in batches for row in batch.to_pylist()):
            if progress is not None:
                progress.add(row.get("bytes_before") or 0)
            pending.append(row)
            size += 100 + len(row.get("data") or b"")
            if size >= _BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(pending, schema=schema)
                pending, size = [], 0
        yield pa.RecordBatch.from_pylist(pending, schema=schema)

    return mapped(frame, run, schema)


def _may_leave_litter(spark: Any, where: Storages, paths: Sequence[str]) -> bool:
    """Whether files are written on local disks, and by executors that may have died."""
    return not in_one_process(spark) and any(where.split(path)[0] == "file" for path in paths)


def _sweep(report: Any, job: tasks.Job) -> None:
    """Look once more for temporary files of executors that died, in folders where something was written."""
    folders = (
        report.filter("status != 'unchanged'")
        .selectExpr("substr(output, 1, length(output) - length(substring_index(output, '/', -1)) - 1) folder")
        .distinct()
    )
    where = job.storages

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for folder in batch.column(0).to_pylist():
                store, path = where.open(folder or "/")
                if store.is_local:
                    remove_stale(path)
            yield batch

    mapped(folders, run, "folder string").count()
