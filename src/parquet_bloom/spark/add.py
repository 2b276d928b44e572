"""Filters for data sets that outgrow one machine: add_filters as a Spark job.

    list_few     -> few files, packed on the driver -> tasks.add ----------------------------> report, one job
    list_by_size -> small files, packed many to a task -> tasks.add ----------------------------> report
                 -> large files -> tasks.cut -> units -> tasks.build_units -> filters as rows
                                                         shuffled to their file, tasks.assemble -> report
    a table      -> (file, where its new version goes) -> edit.add_to_source.AddToTableFile -> driver: edit.table_commit

Only rows of the report, counts and sums cross the driver. A file is either old or new and whole at
any time; a task that runs twice finds its work done, so retries, speculation and a second run of the
job do only what is missing.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
import posixpath
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Unpack, cast

import pyarrow as pa

from parquet_bloom.edit.add_to_source import AddToTableFile, request_for_source
from parquet_bloom.edit.changeable import check_placement, checked_commits
from parquet_bloom.edit.plan import Request, TableColumns
from parquet_bloom.edit.reports import FileReport, TableCommit
from parquet_bloom.edit.table_commit import (
    Committing,
    FileOutcome,
    FileWork,
    SourceChange,
    change_table,
    commit_mode_of,
    target_of,
)
from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError
from parquet_bloom.options import Form, PathLike, RequestOptions, SparkAddOptions, WriteOptions, part, refuse_unknown
from parquet_bloom.output.folder import remove_stale
from parquet_bloom.output.target import Writing, remove_unnamed
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Snapshot, Table, TableFile
from parquet_bloom.source.source import CallSource, open_table
from parquet_bloom.spark import tasks
from parquet_bloom.spark.failures import explained
from parquet_bloom.spark.frames import Row, computed, frame_of, mapped_rows, mark, parallelism, small_batches, width
from parquet_bloom.spark.listing import (
    FILE,
    Listing,
    dealt,
    find_tables,
    in_one_process,
    list_by_size,
    list_few,
    packed,
    refuse_unlisted,
)
from parquet_bloom.spark.storages import Storages, path_text, paths_of, storages
from parquet_bloom.spark.work import FilesWork, ListedFiles, hold_columns
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.table_folders import Tables, write_guard
from parquet_bloom.storage.workers import Meter, WorkerSets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from parquet_bloom.format.forms import Rate


# --- the call -------------------------------------------------------------------------------------
#
# The request, checked before any job; then files, or a table.

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
        ("chunk_xxh3", pa.string()),
        ("chosen", pa.list_(pa.int32())),
        ("row_group", pa.int32()),
        ("column", pa.int32()),
        ("data", pa.binary()),
        ("built", pa.string()),
        ("error", pa.string()),
    ]
)
TASK_BYTES = 512 << 20  # of small files, in one task, by default
SPLIT_BYTES = 256 << 20  # files from this size on are split, by default
NEVER_SPLIT = 1 << 62  # bytes


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
    progress     of spark.sessions, if somebody watches
    options      see SparkAddOptions: placement, ndv, max_bytes, threads, replace, page_index, page_bounds; in_place,
                 overwrite, force, sync; task_bytes, split_bytes; raw_files; of tables commit, files_per_commit,
                 catalog_properties, allow_roots: executors build, and the driver commits
    returns      DataFrame(path, output, status, row_groups, filters, bytes_before, bytes_after,
                 filter_bytes, offset_indexes, column_indexes, index_bytes, index_notes, seconds, error),
                 cached, a row a file, with the meanings of parquet_bloom.AddedFile; status is "done",
                 "unchanged" (an earlier run, or another program, did it all) or "failed"

    Raises RequestError and its kinds before any work, TypeError for an option that there is not, TableFormatError for
    a folder of an Iceberg, Delta or Hudi table without force, or with output without raw_files; with force in place a
    TableWarning. UnknownColumnError for a column that no file has, StorageError where no name gives a file. What is
    wrong with a file is in its row. StorageError where executors died in every one of three
    runs, so that some files have no row.
    """
    refuse_unknown("add_filters", options, SparkAddOptions)
    names = paths_of(paths)
    written = Writing.of(part(WriteOptions, options))
    wanted: RequestOptions = {"threads": 1, **part(RequestOptions, options)}
    access = TableAccess.from_options(options, written.force)
    source = CallSource(names, None, options.get("raw_files", False), access)
    commits = checked_commits("add", source, output, options, written)
    if commits is None:
        wanted["in_place"] = output is None
    else:
        check_placement(options.get("placement"), commits)
    request = Request.checked(columns=columns, exclude=exclude, form=form, fpp=fpp, cached=False, **wanted)
    if commits is not None and source.table_name is not None:
        access = dataclasses.replace(access, changes=not commits.dry_run)
        rows, _ = add_to_table(spark, open_table(source.table_name, access), request, commits, progress)
        return as_report(spark, rows, tasks.ADDED, progress)
    # A column index needs the values that filters are built of, so one task has both.
    split_bytes = NEVER_SPLIT if request.page_index else options.get("split_bytes", SPLIT_BYTES)
    sizes = options.get("task_bytes", TASK_BYTES), split_bytes
    return change_files(spark, source, output, written, functools.partial(tasks.Job, request=request), sizes, progress)


def change_files(
    spark: Any,
    source: CallSource,
    output: PathLike | None,
    written: Writing,
    job_of: Callable[..., tasks.Job],
    sizes: tuple[int, int],
    progress: Any,
) -> DataFrame:
    """Change the files of a source, by a job that gets their storages and output; the report, of job.schema.

    sizes  of one task's files together, and from which a file is split
    Raises as add_filters.
    """
    names = source.paths
    new = None if output is None else path_text(output, "output")
    where = storages(spark, names, new)
    names = [where.absolute(path) for path in names]
    job = job_of(where, output=None if new is None else where.absolute(new))
    tables = write_guard(new is not None, source.raw_files, written.force)
    _check_places(names, job.output, written, where, tables or Tables())
    if tables is not None:
        find_tables(spark, names, where, tables)
    run = _FilesRun(spark, names, job, *sizes, progress)
    found = run.listed()
    if tables is not None:
        tables.join(found[0].tables)
        if new is None:
            tables.change(written.force)  # here, as its warning names the line of who called
    return run.report(found)


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


def as_report(spark: Any, rows: list[Row], schema: pa.Schema, progress: Any) -> DataFrame:
    """Rows that the driver has, as the DataFrame that people get; a command that watches needs no job for them."""
    if progress is not None:
        progress.report = rows
    frame: DataFrame = frame_of(spark, [tuple(row.get(field) for field in schema.names) for row in rows], schema)
    return frame


# --- files ----------------------------------------------------------------------------------------
#
# The plan of the jobs over files that executors open, and of their listing.

_ATTEMPTS = 3
_CHANGED = "A shuffle map stage with indeterminate output was failed and retried"  # Spark's words
_MOST_TASKS = 50_000  # in one stage; the driver keeps some kilobytes for each


@dataclass(frozen=True)
class _FilesRun:
    """One call that adds filters to files.

    names  files, folders and globs
    """

    spark: Any
    names: Sequence[str]
    job: tasks.Job
    task_bytes: int
    split_bytes: int
    progress: Any

    def listed(self) -> tuple[Listing, ...]:
        """The files: few, by the driver; or by tasks, small and large ones."""
        few = list_few(self.spark, self.names, self.job.storages, self.split_bytes, tidy=self.job.output is None)
        return self._by_size() if few is None else (few,)

    def _by_size(self) -> tuple[Listing, ...]:
        return list_by_size(self.spark, self.names, self.job.storages, self.split_bytes, tidy=self.job.output is None)

    def report(self, found: tuple[Listing, ...]) -> DataFrame:
        """Do it all. Raises as add_filters."""
        self._check(found)
        if len(found) == 1:
            return as_report(self.spark, self._add_few(found[0]), self.job.schema, self.progress)
        for attempt in range(_ATTEMPTS):
            small, large = self._by_size() if attempt else found
            if self.job.output is not None and len(self.names) > 1:
                _check_equal_targets(small.rows.unionAll(large.rows).filter(f"kind = '{FILE}'"))
            expected = small.files + large.files
            self._expect(expected, small.size + large.size)
            try:
                report, files, paths = self._add_listed(small, large)
            except Exception as error:
                if _CHANGED not in str(error):
                    raise
                continue  # as below, but that Spark noticed it by itself
            if (files, paths) == (expected, small.mark ^ large.mark):
                _sweep(report, self)
                return report
            # With an executor Spark lost what it had of the listing. It listed again, found files that had
            # grown by then, and dealt them out otherwise: some were done twice, others by none.
            report.unpersist()
        lost = f"executors were lost in each of {_ATTEMPTS} runs; run the job once more"
        raise StorageError(", ".join(self.names), lost)

    def _check(self, found: tuple[Listing, ...]) -> None:
        """Raise StorageError where no name gives a file, UnknownColumnError for a column that no file has."""
        refuse_unlisted(found, self.names)
        columns = self.job.named
        if len(found) == 1 and columns:
            rows = (row for row in found[0].rows if row["kind"] == FILE)
            hold_columns(rows, ListedFiles(self.job.storages), columns)
        elif columns:
            small, large = found
            all_of = dataclasses.replace(small, rows=small.rows.unionAll(large.rows), files=small.files + large.files)
            FilesWork(self.spark, all_of, self.job.storages).hold_columns(columns)

    def _expect(self, files: int, size: int) -> None:
        if self.progress is not None:
            self.progress.expect(files, size)

    def _reported(self, frame: Any, work: Callable[[Iterator[Row]], Iterator[Row]]) -> Any:
        """The rows of the report that a task gives."""
        return mapped_rows(frame, functools.partial(tasks.counted, work=work, progress=self.progress), self.job.schema)

    def _add_few(self, few: Listing) -> list[Row]:
        """All of it as one job without a shuffle: the files travel with the code, the report's rows to the driver."""
        job = self.job
        if job.output is not None:
            _refuse_equal(Counter(job.data_file(row).relative for row in few.rows if row["kind"] == FILE))
        self._expect(few.files, few.size)
        shares = dealt(few, parallelism(self.spark), self.task_bytes)

        def work(rows: Iterator[Row]) -> Iterator[Row]:
            return tasks.add((file for row in rows for file in shares[row["id"]]), job)

        frame = self._reported(self.spark.range(0, len(shares), 1, len(shares)), work)
        return [row.asDict(recursive=True) for row in frame.collect()]

    def _add_listed(self, small: Listing, large: Listing) -> tuple[DataFrame, int, int]:
        """Run it all: the report, and how many rows it has and their mark."""
        task_bytes = max(self.task_bytes, small.size // _MOST_TASKS)
        shares = packed(small, self.spark, task_bytes=task_bytes)
        report = self._reported(shares, functools.partial(tasks.add, job=self.job))
        with small_batches(self.spark):
            if large.files:
                report = report.unionByName(self._add_large(large))
            report, files, paths = computed(report, "count(1)", mark())
        return report, files, paths

    def _add_large(self, large: Listing) -> Any:
        """Split, built by many tasks, and put together by one task a file."""
        rows = large.rows.repartition(min(large.files, _MOST_TASKS))
        units, n_units = computed(
            mapped_rows(rows, functools.partial(tasks.cut, job=self.job), _UNITS), f"count_if(place != {tasks.HEADER})"
        )
        headers = units.filter(units.place == tasks.HEADER).selectExpr(
            "path",
            "root",
            "size",
            "place",
            "crc",
            "cast(null as string) version_token",
            "cast(null as string) chunk_xxh3",
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
            rows = rows.unionByName(mapped_rows(work, functools.partial(tasks.build_units, job=self.job), _FILTERS))
        # Some for each processor: two large files in one task would wait for each other.
        parts = min(4 * large.files, max(large.files, 4 * width(self.spark)), _MOST_TASKS)
        rows = rows.repartition(parts, "path").sortWithinPartitions("path", "place")
        return self._reported(rows, functools.partial(tasks.assemble, job=self.job))


def _check_equal_targets(files: Any) -> None:
    relative = "CASE WHEN root = '' THEN substring_index(path, '/', -1) ELSE substr(path, length(root) + 2) END"
    several = files.selectExpr(f"{relative} name").groupBy("name").count().filter("count > 1").head(1)
    _refuse_equal(Counter({row["name"]: row["count"] for row in several}))


def _refuse_equal(targets: Counter[str]) -> None:
    for name, count in targets.most_common(1):
        if count > 1:
            raise RequestError(f"several files would go to {name} in output; use one run for each folder")


def _sweep(report: Any, run: _FilesRun) -> None:
    """Remove temporary files of executors that died, from local folders in which something was written."""
    where = run.job.storages
    places = run.names if run.job.output is None else [run.job.output]
    if in_one_process(run.spark) or all(where.split(path)[0] != "file" for path in places):
        return
    folders = (
        report.filter("status != 'unchanged'")
        .selectExpr("substr(output, 1, length(output) - length(substring_index(output, '/', -1)) - 1) folder")
        .distinct()
    )

    def tidied(rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            store, path = where.open(row["folder"] or "/")
            if store.is_local:
                remove_stale(path)
            yield row

    mapped_rows(folders, tidied, pa.schema([("folder", pa.string())])).count()


# --- a table --------------------------------------------------------------------------------------
#
# Executors make the new versions of a table's files, the driver commits them.
#
# A task that runs twice makes the same file twice, or finds its tail there. Files are not split: a table's are of
# some hundred megabytes.

_MADE = pa.schema([("place", pa.int64()), ("data", pa.binary())])
_Planned = tuple[TableFile, Location, bool, Any]  # a file, its new version's place, whether to write, FileTask.sent


@dataclass(slots=True)
class RowReport(FileReport):
    """One file's row of the report."""

    row: Row


_Result = FileOutcome[RowReport] | ParquetBloomError


def add_to_table(
    spark: Any, table: Table, request: Request, how: Committing, progress: Any = None
) -> tuple[list[Row], list[TableCommit]]:
    """Add filters to the files of a table, and commit: rows of the report, and the commits.

    Raises as parquet_bloom.add_filters does for a table; an error after some commits leaves these.
    """
    snapshot = table.snapshot(stored_only=True)
    request, _ = request_for_source(snapshot, request)
    return change_table_on_spark(spark, table, snapshot, lambda one: AddTask(one, request, how.append), how, progress)


def with_row(outcome: FileOutcome[Any], row: Row) -> FileOutcome[RowReport]:
    """An outcome with the row of its report: all that the driver needs of that."""
    return dataclasses.replace(outcome, report=RowReport(row=row))


class FileTask(Protocol):
    """The work of one file, wherever it is done."""

    def sent(self, file: TableFile) -> Any:
        """The part of a file's entry in the log that an executor needs: the driver has the log."""

    def __call__(self, file: TableFile, target: Location, look_only: bool, sent: Any, /) -> FileOutcome[RowReport]:
        """As FileWork has it. What an earlier attempt of this task made is made again."""


def change_table_on_spark(
    spark: Any,
    table: Table,
    snapshot: Snapshot,
    task_of: Callable[[Snapshot], FileTask],
    how: Committing,
    progress: Any = None,
) -> tuple[list[Row], list[TableCommit]]:
    """Change the files of a table's snapshot, and commit: rows of the report, and the commits.

    task_of  gives the work on files of a snapshot, this one or a later one
    Raises as add_to_table.
    """
    paths = [file.path for file in snapshot.files]
    if progress is not None:
        progress.expect(len(paths), sum(file.size for file in snapshot.files))
    rows: list[Row] = []
    commits: list[TableCommit] = []
    step = how.files or max(1, len(paths))
    for at in range(0, len(paths), step):
        snapshot = table.snapshot(stored_only=True) if at else snapshot
        now = set(paths[at : at + step])
        some = dataclasses.replace(snapshot, files=[file for file in snapshot.files if file.path in now])
        changed = _change(spark, table, some, task_of, how, progress)
        rows += [one.row for one in changed.files]
        rows += [tasks.failed_row(one.path, one.error) for one in changed.failed]
        commits += changed.commits
    return rows, commits


def _change(
    spark: Any,
    table: Table,
    snapshot: Snapshot,
    task_of: Callable[[Snapshot], FileTask],
    how: Committing,
    progress: Any,
) -> SourceChange[RowReport]:
    """Files of one commit."""
    ways = table.commit_modes(snapshot)
    planned: list[_Planned] = []
    task = task_of(snapshot)
    for file in snapshot.files:
        way, _ = commit_mode_of(ways[file.path], how.way)
        planned.append((file, target_of(table, file, way), how.dry_run or way is None, task.sent(file)))
    made = _made(spark, planned, task_of(dataclasses.replace(snapshot, files=[])), progress)

    def work_on(one: Snapshot) -> FileWork[RowReport]:
        here = task_of(one)

        def work(file: TableFile, target: Location, look_only: bool, /) -> FileOutcome[RowReport]:
            # Another commit may ask for another version of a file than the executor made.
            result = made.pop(target.path, None)
            if isinstance(result, ParquetBloomError):
                raise result
            return result if result is not None else here(file, target, look_only, here.sent(file))

        return work

    once = dataclasses.replace(how, files=None, newcomers=False)
    return change_table(cast(Table, _PlannedTable(table, planned)), snapshot, work_on, once, Meter(None))


class _PlannedTable:
    """A table whose files get their new versions where executors wrote them."""

    def __init__(self, table: Table, planned: Iterable[_Planned]) -> None:
        self._table = table
        self._places = {file.path: target for file, target, *_ in planned if target.path != file.path}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def new_location(self, file: TableFile) -> Location:
        return self._places.pop(file.path, None) or self._table.new_location(file)


def _made(spark: Any, planned: Sequence[_Planned], task: FileTask, progress: Any) -> dict[str, _Result]:
    """The executors' results, by the path of the new version."""
    if not planned:
        return {}
    plain = [(dataclasses.replace(file, bounds={}, deletes=None, entry=None), *rest) for file, *rest in planned]
    frame = frame_of(spark, [(place, bytearray(pickle.dumps(one))) for place, one in enumerate(plain)], _MADE)
    frame = frame.repartition(min(len(plain), 4 * width(spark)), "place")
    try:
        rows = mapped_rows(frame, functools.partial(_make, task=task, progress=progress), _MADE).collect()
    except BaseException:
        for file, target, *_ in planned:
            if target.path != file.path:
                with suppress(StorageError):  # it stays, as after a kill
                    remove_unnamed(target)
        raise
    return {planned[row["place"]][1].path: pickle.loads(row["data"]) for row in rows}


def _make(rows: Iterator[Row], task: FileTask, progress: Any) -> Iterator[Row]:
    """On executors: make new versions of files."""
    for row in rows:
        file, *rest = pickle.loads(row["data"])
        result: _Result
        try:
            result = task(file, *rest)
        except ParquetBloomError as error:
            result = error
        if progress is not None:
            progress.add(file.size)
        yield {"place": row["place"], "data": pickle.dumps(result)}


@dataclass(frozen=True)
class AddTask:
    """Adds filters to one file."""

    snapshot: Snapshot
    request: Request
    append: bool

    def sent(self, file: TableFile) -> None:
        """As FileTask has it: nothing."""

    def __call__(self, file: TableFile, target: Location, look_only: bool, _: None, /) -> FileOutcome[RowReport]:
        """As FileTask has it."""
        started = time.perf_counter()
        request = self.request.written(overwrite=True)
        with WorkerSets(request.threads or 1) as sets:
            add = AddToTableFile(TableColumns(self.snapshot), request, sets, self.append)
            outcome = add(file, target, look_only)
        status = tasks.DONE if outcome.size else tasks.UNCHANGED
        row = tasks.report_row(str(file), str(target), status, outcome.report, time.perf_counter() - started)
        return with_row(outcome, row)
