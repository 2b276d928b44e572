"""Files or a table that get new versions. `add` and `remove` see the same of both.

    names, output, options -> ChangeableFiles   work on a file ends with a rename, which is its commit
                           -> ChangeableTable   edit.table_commit: new versions wait for a commit to the log

Files are the simplest table: their snapshot is a listing, and there is no log that a commit would have to tell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeVar

from parquet_bloom.edit.reports import FileReport
from parquet_bloom.edit.table_commit import FAR_FILES, THROUGH_LOG, Committing, FileWork, SourceChange, change_table
from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.filters.tails import files_at_once
from parquet_bloom.options import CommitOptions, PathLike, Placement, ReadOptions, RemoveOptions
from parquet_bloom.output.s3 import one_client
from parquet_bloom.output.target import Writing
from parquet_bloom.source.names import TableAccess, TableName
from parquet_bloom.source.results import map_files
from parquet_bloom.source.snapshot import Snapshot, Table, TableFile
from parquet_bloom.source.source import CallSource, open_table, resolved_files
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.paths import Outputs, targets
from parquet_bloom.storage.table_folders import Tables, write_guard
from parquet_bloom.storage.workers import Meter

R = TypeVar("R", bound=FileReport)
_HALF_URI = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")


class ChangeableFiles:
    """Files that get new versions, and the place of each one's.

    tables  that files must not be changed in
    notes   on tables whose files change all the same
    """

    def __init__(self, source: CallSource, output: PathLike | None, how: Writing) -> None:
        """Raises as paths.targets and Tables.change.

        TableFormatError where files of a table would be copied elsewhere, dead ones too, without raw_files or force.
        """
        if output is not None and source.filesystem is None and _HALF_URI.match(os.fspath(output)):
            name = os.fspath(output)
            raise RequestError(
                f"{name}: a URI has two slashes after its scheme; a folder of that name here is ./{name}"
            )
        seen = write_guard(output is not None, source.raw_files, how.force)
        self.outputs: Outputs = targets(source.paths, output, how.in_place, how.overwrite, source.filesystem, seen)
        self.tables = Tables() if seen is None else seen
        self.notes = seen.change(how.force) if seen is not None and how.in_place else []
        self._dry_run = how.dry_run

    def snapshot(self) -> Snapshot:
        """The stored files, as they are now. Raises StorageError, TableFormatError."""
        return resolved_files(list(self.outputs.targets)).snapshot

    def change(self, snapshot: Snapshot, work_on: Callable[[Snapshot], FileWork[R]], meter: Meter) -> SourceChange[R]:
        """Work on every file of a snapshot, so that its new versions count.

        work_on  gives the work for the files of one snapshot: this one, or of a table a later one
        meter    is told of every file
        Raises as source.results.map_files, for one file alone; of a table as edit.table_commit.change_table.
        """
        work = work_on(snapshot)

        def one(file: TableFile) -> R:
            return work(file, self.outputs.targets[file], self._dry_run).report

        far = not any(target.is_local for target in self.outputs.targets.values())
        ahead = files_at_once(snapshot.files, None if self._dry_run else FAR_FILES) if far else 0
        with one_client() if far else nullcontext():
            results = map_files(snapshot.files, one, self.outputs.single, self.outputs.failed, meter, ahead, True)
        return SourceChange(list(results), results.failed)


class ChangeableTable:
    """A table, and how new versions of its files are committed."""

    def __init__(self, table: Table, how: Committing) -> None:
        self.table, self.how = table, how
        self.tables: Tables = THROUGH_LOG
        self.notes: list[str] = []

    def snapshot(self) -> Snapshot:
        """As ChangeableFiles has it."""
        return self.table.snapshot(stored_only=True)

    def change(self, snapshot: Snapshot, work_on: Callable[[Snapshot], FileWork[R]], meter: Meter) -> SourceChange[R]:
        """As ChangeableFiles has it."""
        with one_client():
            return change_table(self.table, snapshot, work_on, self.how, meter)


Changeable = ChangeableFiles | ChangeableTable


def changeable(source: CallSource, output: PathLike | None, how: Writing, commits: Committing | None) -> Changeable:
    """The files or the table that a call changes.

    commits  as checked_commits gives it
    Raises as ChangeableFiles, and as open_table.
    """
    if commits is None or source.table_name is None:
        return ChangeableFiles(source, output, how)
    access = replace(source.access, changes=not commits.dry_run)
    return ChangeableTable(open_table(source.table_name, access, source.filesystem), commits)


# --- requests -------------------------------------------------------------------------------------
#
# What may be asked of a table that gets new versions of its files, and what of files alone.


def checked_commits(
    operation: str, source: CallSource, output: PathLike | None, options: CommitOptions, how: Writing
) -> Committing | None:
    """How a table's new versions are committed; None where files are named.

    Raises RequestError for what is said of files and means nothing for a table, or the other way round; also for a
    version of the past, as only the latest one can be changed.
    """
    name = source.table_name
    if name is None:
        _refuse_commits(options, source.access)
        return None
    commits = Committing.checked(operation, options, how)
    _refuse_outputs(name, output, options, how)
    if name.version is not None:
        raise RequestError(f"{_table_text(name)}: leave out @{name.version}; only the latest version can be changed")
    return commits


def _refuse_outputs(name: TableName, output: PathLike | None, options: ReadOptions, how: Writing) -> None:
    """Raise RequestError for what is said of files, where a table is named."""
    given = [
        (output is not None, parameter("output")),
        (how.in_place, parameter("in_place", True)),
        (how.overwrite, parameter("overwrite", True)),
        (options.get("raw_files"), parameter("raw_files", True)),
    ]
    for is_given, option in given:
        if is_given:
            raise RequestError(f"{_table_text(name)}: " + option + " is for files; a table's change is its commit")


def _refuse_commits(options: CommitOptions, access: TableAccess) -> None:
    """Raise RequestError for what is said of tables, where files are named."""
    given = [
        (options.get("commit"), parameter("commit")),
        (options.get("files_per_commit"), parameter("files_per_commit")),
        (access.properties, parameter("catalog_properties")),
        (access.allow_roots or None, parameter("allow_roots")),
    ]
    for value, option in given:
        if value is not None:
            raise RequestError(option + " is for tables, as delta:PATH or iceberg:CATALOG/namespace.table")


def check_append(how: Committing) -> None:
    """Raise RequestError where a table could get copies, behind which nothing is written."""
    if how.append and how.way != "same-path":
        raise RequestError(parameter("append", True) + " is, of a table, for " + parameter("commit", "same-path"))


def check_placement(placement: Placement | None, how: Committing) -> None:
    """Raise RequestError where filters are wanted at a place that a file which keeps its path has not."""
    if how.way == "same-path" and placement not in (None, "tail"):
        where, way = parameter("placement", placement), parameter("commit", "same-path")
        reason = ", which puts filters behind the file; leave it out, or see " + parameter("commit", "new-path")
        raise RequestError(where + " is not for " + way + reason)


def refuse_tails(name: TableName, options: RemoveOptions) -> None:
    """Raise RequestError for what cuts files."""
    for is_given, option in (
        (options.get("last"), parameter("last", True)),
        (options.get("append"), parameter("append", True)),
    ):
        if is_given:
            raise RequestError(f"{_table_text(name)}: " + option + " is for files; no file of a table is cut")


def refuse_undo(name: TableName) -> None:
    """Raise RequestError for a repair that is to be taken off a table: the old statistics are those of its log."""
    reason = "is for files; restore the table's version before the repair, which has the old files and statistics"
    raise RequestError(f"{_table_text(name)}: " + parameter("undo", True) + f" {reason}")


def _table_text(name: TableName) -> str:
    return without_secret(name.unversioned)
