"""add_filters of a table on Spark: executors make the new versions of its files, the driver commits them.

    snapshot -> (file, where its new version goes) -> executors: edit.add_to_source.AddToTableFile, file by file
             -> sizes, and rows of the report      -> driver: edit.table_commit.change_table

A task that runs twice makes the same file twice, or finds its tail there. Files are not split: a table's are of some
hundred megabytes.
"""

from __future__ import annotations

import dataclasses
import functools
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from parquet_bloom.edit.add_to_source import AddToTableFile, request_for_source
from parquet_bloom.edit.plan import Request
from parquet_bloom.edit.reports import FileReport, TableCommit
from parquet_bloom.edit.table_columns import TableColumns
from parquet_bloom.edit.table_commit import (
    Committing,
    FileOutcome,
    SourceChange,
    change_table,
    commit_mode_of,
    target_of,
)
from parquet_bloom.errors import ParquetBloomError, StorageError
from parquet_bloom.output.target import remove_unnamed
from parquet_bloom.source.history import History
from parquet_bloom.source.snapshot import Change, CommitModes, Snapshot, Table, TableFile
from parquet_bloom.spark.frames import frame_of, mapped, width
from parquet_bloom.spark.tasks import DONE, UNCHANGED, Row, failed_row, report_row
from parquet_bloom.storage.progress import Meter
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.workers import Workers

_MADE = pa.schema([("place", pa.int64()), ("result", pa.binary())])
_Planned = tuple[TableFile, Location, bool]  # a file, where its new version goes, whether it is only looked at


@dataclasses.dataclass(slots=True)
class RowReport(FileReport):
    """One file's row of the report."""

    row: Row


def add_on_table(
    spark: Any, table: Table, request: Request, how: Committing, progress: Any = None
) -> tuple[list[Row], list[TableCommit]]:
    """Add filters to the files of a table, and commit: rows of the report, and the commits.

    Raises as parquet_bloom.add_filters does for a table; an error after some commits leaves these.
    """
    snapshot = table.snapshot(stored_only=True)
    request, _ = request_for_source(snapshot, request)
    left = [file.path for file in snapshot.files]
    if progress is not None:
        progress.expect(len(left), sum(file.size for file in snapshot.files))
    rows: list[Row] = []
    commits: list[TableCommit] = []
    while left:
        now, left = set(left[: how.files]), left[how.files :] if how.files else []
        part = dataclasses.replace(snapshot, files=[file for file in snapshot.files if file.path in now])
        changed = _part(spark, table, part, request, how, progress)
        rows += [_row(report) for report in changed.files]
        rows += [failed_row(one.path, one.error) for one in changed.failed]
        commits += changed.commits
        if left:
            snapshot = table.snapshot(stored_only=True)
    return rows, commits


def _row(report: RowReport) -> Row:
    return {**report.row, "status": DONE if report.way else UNCHANGED}


def _part(
    spark: Any, table: Table, snapshot: Snapshot, request: Request, how: Committing, progress: Any
) -> SourceChange[RowReport]:
    """Files of one commit."""
    planned = _planned(table, snapshot, how)
    made = _made(spark, snapshot, list(planned.values()), request, how, progress)

    def work_on(one: Snapshot) -> Callable[[TableFile, Location, bool], FileOutcome[RowReport]]:
        return functools.partial(_given, made, _Local(one, request, how.append))

    once = dataclasses.replace(how, files=None, newcomers=False)
    return change_table(_Decided(table, planned), snapshot, work_on, once, Meter(None))


def _planned(table: Table, snapshot: Snapshot, how: Committing) -> dict[str, _Planned]:
    ways = table.commit_modes(snapshot)
    planned = {}
    for file in snapshot.files:
        way, _ = commit_mode_of(ways[file.path], how.way)
        planned[file.path] = (file, target_of(table, file, way), way is None)
    return planned


class _Decided:
    """A table that gives each file the place that executors were told."""

    def __init__(self, table: Table, planned: Mapping[str, _Planned]) -> None:
        self._table = table
        self._places = {path: target for path, (_, target, _) in planned.items() if target.path != path}

    @property
    def name(self) -> str:
        """As source.snapshot.Table has it; the others too."""
        return self._table.name

    def snapshot(self, stored_only: bool = False) -> Snapshot:
        return self._table.snapshot(stored_only)

    def history(self, snapshot: Snapshot) -> History:
        return self._table.history(snapshot)

    def commit_modes(self, snapshot: Snapshot) -> Mapping[str, CommitModes]:
        return self._table.commit_modes(snapshot)

    def new_location(self, file: TableFile) -> Location:
        return self._places.pop(file.path, None) or self._table.new_location(file)

    def commit(self, snapshot: Snapshot, changes: Sequence[Change], properties: Mapping[str, str]) -> str:
        return self._table.commit(snapshot, changes, properties)


# --- on executors ---------------------------------------------------------------------------------


def _made(
    spark: Any, snapshot: Snapshot, planned: Sequence[_Planned], request: Request, how: Committing, progress: Any
) -> dict[str, FileOutcome[RowReport] | ParquetBloomError]:
    """What executors made: where a new version goes -> what became of it."""
    if not planned:
        return {}
    bare = [(dataclasses.replace(file, bounds={}, deletes=None, entry=None), *rest) for file, *rest in planned]
    frame = frame_of(
        spark, [(place, bytearray(pickle.dumps(one))) for place, one in enumerate(bare)], "place bigint, result binary"
    ).repartition(min(len(bare), 4 * width(spark)), "place")
    local = _Local(dataclasses.replace(snapshot, files=[]), request, how.append)
    try:
        rows = mapped(frame, functools.partial(_task, local=local, progress=progress), _MADE).collect()
    except BaseException:
        for file, target, _ in planned:
            if target.path != file.path:
                _remove(target)
        raise
    return {planned[row["place"]][1].path: pickle.loads(row["result"]) for row in rows}


def _remove(target: Location) -> None:
    try:
        remove_unnamed(target)
    except StorageError:
        return  # it stays, as after a kill


def _task(batches: Iterator[pa.RecordBatch], local: _Local, progress: Any) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            file, target, look_only = pickle.loads(row["result"])
            result: FileOutcome[RowReport] | ParquetBloomError
            try:
                result = local(file, target, look_only)
            except ParquetBloomError as error:
                result = error
            if progress is not None:
                progress.add(file.size)
            made = [{"place": row["place"], "result": pickle.dumps(result)}]
            yield pa.RecordBatch.from_pylist(made, schema=_MADE)


@dataclasses.dataclass(frozen=True)
class _Local:
    """The work of one file, wherever it is done."""

    snapshot: Snapshot
    request: Request
    append: bool

    def __call__(self, file: TableFile, target: Location, look_only: bool) -> FileOutcome[RowReport]:
        """As commits.FileWork has it. What an earlier attempt of this task made is made again."""
        started = time.perf_counter()
        request = self.request.written(overwrite=True)
        with Workers(request.threads or 1) as workers:
            worked = AddToTableFile(TableColumns(self.snapshot), request, workers, self.append)(file, target, look_only)
        status = DONE if worked.size else UNCHANGED
        row = report_row(str(file), str(target), status, worked.report, time.perf_counter() - started)
        return FileOutcome(
            RowReport(row=row),
            worked.size,
            worked.footer_size,
            worked.columns,
            worked.complete,
            worked.choice,
            worked.options,
        )


def _given(
    made: dict[str, FileOutcome[RowReport] | ParquetBloomError],
    local: _Local,
    file: TableFile,
    target: Location,
    look_only: bool,
) -> FileOutcome[RowReport]:
    """What an executor made, or where another commit asks for another version of a file, that."""
    result = made.pop(target.path, None)
    if isinstance(result, ParquetBloomError):
        raise result
    return result if result is not None else local(file, target, look_only)
