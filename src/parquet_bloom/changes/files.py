"""Rows deleted from files by their keys, for who must erase them: files that have none stay as they are, to the byte.

    keys -> locate: files, row groups, rows -> of these row groups the key columns, decoded again
         -> rows that have a whole key      -> a new version of the file without them (edit.without_rows)

All files are held to the version that `locate` searched: one that changes meanwhile is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np

from parquet_bloom.changes.keys import Located, RowKeys, located_rows
from parquet_bloom.changes.values import KeyChanges, RewrittenFile
from parquet_bloom.edit.changeable import ChangeableFiles
from parquet_bloom.edit.reports import FileReport
from parquet_bloom.edit.row_groups import Kept
from parquet_bloom.edit.table_commit import FileOutcome
from parquet_bloom.edit.without_rows import check_flat, write_without_rows
from parquet_bloom.errors import FileChangedError, RequestError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.schema import Leaf, find_leaf
from parquet_bloom.keys.locate import KeyCasts, rows_of_keys
from parquet_bloom.options import FilesystemOption, PathLike, WriteOptions, column_names, part, refuse_unknown, several
from parquet_bloom.output.recovery import open_for_change
from parquet_bloom.output.target import Target, Writing
from parquet_bloom.source.source import CallSource
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import WorkerSets, processors


class DeleteFilesOptions(WriteOptions, FilesystemOption, total=False):
    """Keywords of `delete_from_files`, beside those that it names; each has a default.

    raw_files  as ReadOptions has it
    """

    raw_files: bool


# --- one file -------------------------------------------------------------------------------------


@dataclass(slots=True, repr=False)
class ErasedFile(FileReport):
    """The report on one file. found: rows that it had, of which `deleted` have a key; None of one that has no such row.

    notes  what the new row groups could not keep
    """

    found: RewrittenFile | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeleteFromFile:
    """The work on each of several files, as edit.table_commit.FileWork has it."""

    keys: RowKeys
    located: Located
    first: Sequence[Leaf]
    how: Writing
    tables: Tables
    sets: WorkerSets

    def __call__(self, file: DataFile, target: Location, look_only: bool) -> FileOutcome[ErasedFile]:
        """Delete rows from one file: its rename is its commit. Raises as delete_from_files does for one file."""
        groups, report = self.located.rows.get(str(file), {}), ErasedFile()
        if not groups and (look_only or (self.how.in_place and not file.is_local)):  # beside others may lie leftovers
            return FileOutcome(report)
        with open_for_change(file, self.how.in_place and not look_only) as source:
            to, kept = Target(target, self.how), self._kept(source, groups)
            if kept or not self.how.in_place:
                to.check(source.location, self.tables)
            if kept:
                deleted = sum(int((~stays).sum()) for stays in kept.values())
                report.found = RewrittenFile(str(file), sum(source.footer().rows), deleted, source.size)
            if report.found is not None and not look_only:
                with self.sets.taken() as workers:
                    report.found.bytes_after, notes = write_without_rows(source, kept, to, workers)
                report.notes = [f"{file}: {note}" for note in notes]
            elif not self.how.in_place and not look_only:
                to.copy(source)
        return FileOutcome(report)

    def _kept(self, source: OpenFile, groups: Mapping[int, int]) -> dict[int, Kept]:
        """Of each row group that loses rows, which ones stay. Raises FileChangedError where `locate` found others."""
        if not groups:
            return {}
        footer = source.footer()
        leaves = [find_leaf(footer.leaves, name) for name in self.keys.columns]
        casts = zip(leaves, self.keys.distinct, self.first, strict=True)
        stored = [KeyCasts(values, first).to(leaf) for leaf, values, first in casts]
        readers = [ColumnReader(source, leaf) for leaf in leaves]
        kept: dict[int, Kept] = {}
        for group, expected in sorted(groups.items()):
            of_columns = []
            for reader, keys in zip(readers, stored, strict=True):
                numbers = np.full(footer.rows[group], -1, np.int64)
                rows, found = rows_of_keys(reader, group, keys)
                numbers[rows] = found
                of_columns.append(numbers)
            if (count := int((of_columns[self.located.column] >= 0).sum())) != expected:
                reason = f"row group {group} has {count} rows with the keys, {expected} were located"
                raise FileChangedError(source.path, f"{reason}; nothing was changed")
            stays = self.keys.matches(of_columns) < 0
            if not stays.all():
                kept[group] = stays
        return kept


# --- all files of a source ------------------------------------------------------------------------


def delete_from_files(
    source: PathLike | Sequence[PathLike],
    columns: str | Sequence[str],
    keys: Any,
    *,
    output: PathLike | None = None,
    index: PathLike | None = None,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[DeleteFilesOptions],
) -> KeyChanges:
    """Delete the rows that have one of some keys from Parquet files.

    source    files, a folder, a glob, local or on another storage
    columns   one name, or several of which a key has a value each
    keys      of one column an array or a list; of several a table or a mapping with these columns; no NULL, no float,
              none twice. NULL in a file equals no key
    output    a new file, or a folder for several; or else in_place=True
    index     folder of a key index; files that it does not know are searched as without it. It is not updated
    threads   that read new filters back
    progress  is called with a Progress for every file
    options   in_place, overwrite, force, sync, read_back, dry_run; filesystem, raw_files

    Row groups without such rows are copied to the byte; the others are written again as they were, and get filters
    where they had them. A file without such rows stays as it is; with output it is copied. Files with nested columns
    and encrypted files are refused before any file is changed, if they have such rows.

    Raises RequestError for a wrong request; UnknownColumnError; as `locate`. For one file, FileError and its kinds;
    for several these come in the report's `failed`.
    """
    refuse_unknown("delete_from_files", options, DeleteFilesOptions)
    names = column_names(columns, "columns") or ()
    asked = RowKeys(names, keys)
    how = Writing.of(part(WriteOptions, options))
    if how.append:
        raise RequestError("rows cannot be deleted by an append; leave it out")
    about = CallSource(source, options.get("filesystem"), options.get("raw_files", False))
    if about.table_name is not None:
        raise RequestError(f"{about.table_name.unversioned}: delete_from_files is for files")
    to = ChangeableFiles(about, output, how)
    found = to.snapshot()
    pins: dict[str, object] = {}
    snapshot = replace(found, files=[replace(file, pins=pins) for file in found.files])
    located = located_rows(CallSource(snapshot), asked, index, range(len(names)))
    for file in snapshot.files:  # before the first one is changed
        if str(file) in located.rows:
            to.tables.check_target(file, to.outputs.targets[file], force=False)
            with OpenFile(file) as opened:
                check_flat(opened, how.force)
    meter = Meter(progress, snapshot.files)
    with WorkerSets(threads or processors()) as sets:
        work = DeleteFromFile(asked, located, _first_leaves(snapshot.files, names), how, to.tables, sets)
        changed = to.change(snapshot, lambda _: work, meter)
    report = KeyChanges(", ".join(map(os.fspath, several(source))), [*names], len(snapshot.files), dry_run=how.dry_run)
    report.rewritten = [one.found for one in changed.files if one.found is not None]
    report.deleted = sum(one.deleted for one in report.rewritten)
    report.bytes_written = sum(one.bytes_after for one in report.rewritten)
    report.notes = [*to.notes, *changed.notes, *(note for one in changed.files for note in one.notes)]
    if index is not None and how.in_place and report.bytes_written:
        reason = "does not know the new files, and has hashes of the deleted keys, until update_index or rebuild_index"
        report.notes.append(f"{without_secret(str(index))} {reason}")
    report.failed = changed.failed
    return report


def _first_leaves(files: Sequence[DataFile], names: Sequence[str]) -> list[Leaf]:
    """The columns as the first file has them. Raises UnknownColumnError."""
    with OpenFile(files[0]) as source:
        return [find_leaf(source.outline().leaves, name) for name in names]
