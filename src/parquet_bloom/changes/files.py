"""Rows deleted from files by their keys, for who must erase them: files that have none stay as they are, to the byte.

    keys -> locate: files, row groups, rows -> of these row groups the key columns, decoded again
         -> rows that have a whole key      -> a new version of the file without them (edit.without_rows)

All files are held to the version that `locate` searched: one that changes meanwhile is an error.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.edit.changeable import ChangeableFiles
from parquet_bloom.edit.reports import FileReport
from parquet_bloom.edit.row_groups import Kept
from parquet_bloom.edit.table_commit import FileOutcome
from parquet_bloom.edit.without_rows import check_flat, write_without_rows
from parquet_bloom.errors import FileChangedError, RequestError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.schema import Leaf, find_leaf
from parquet_bloom.keys.locate import KeyCasts, keys_as_array, locate, rows_of_keys
from parquet_bloom.options import FilesystemOption, PathLike, WriteOptions, column_names, part, refuse_unknown
from parquet_bloom.output.recovery import open_for_change
from parquet_bloom.output.target import Target, Writing
from parquet_bloom.source.results import Result
from parquet_bloom.source.source import CallSource
from parquet_bloom.storage.display import line_of, quantity
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile, FailedFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import WorkerSets, processors

Integers = NDArray[np.int64]


class DeleteFilesOptions(WriteOptions, FilesystemOption, total=False):
    """Keywords of `delete_from_files`, beside those that it names; each has a default.

    raw_files  as ReadOptions has it
    """

    raw_files: bool


# --- reports --------------------------------------------------------------------------------------


@dataclass(slots=True, repr=False)
class FileWithoutRows(FileReport):
    """The report on one file. Of one that was not opened, as no row of it is meant, the numbers are 0.

    deleted   rows that have a key
    rows      that remain
    row_groups  the file had
    rewritten   of these, how many were written again; `gone` lost all of their rows
    notes     what the new row groups could not keep
    """

    source: str
    output: str
    bytes_before: int = 0
    bytes_after: int = 0
    deleted: int = 0
    rows: int = 0
    row_groups: int = 0
    rewritten: int = 0
    gone: int = 0
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    dry_run: bool = False


@dataclass(slots=True, repr=False)
class FilesWithoutRows(Result):
    """The report of `delete_from_files`: one a file, and the files among several that failed.

    notes  of tables whose files were changed, as was forced
    """

    files: list[FileWithoutRows]
    failed: list[FailedFile]
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        dry = ["dry run"] if any(file.dry_run for file in self.files) else []
        return line_of(self, f"{quantity(sum(file.deleted for file in self.files), 'rows')} deleted", *dry)


# --- keys -----------------------------------------------------------------------------------------


class RowKeys:
    """Keys of one column or of several, each a combination of values."""

    def __init__(self, columns: Sequence[str], keys: Any) -> None:
        """keys: of one column an array or a list; of several a table or a mapping with these columns.

        Raises RequestError for keys with NULL, floats, and a key that is there twice.
        """
        parts = [keys] if len(columns) == 1 and not isinstance(keys, pa.Table | Mapping) else None
        if parts is None and (not isinstance(keys, pa.Table | Mapping) or {*columns} - {*_names(keys)}):
            raise RequestError(f"keys of {', '.join(columns)}: give a table or a mapping that has these columns")
        arrays = [keys_as_array(one) for one in parts or [keys[name] for name in columns]]
        if len({len(array) for array in arrays}) != 1:
            raise RequestError("the columns of the keys are not of one length")
        for name, array in zip(columns, arrays, strict=True):
            if array.null_count:
                raise RequestError(f"{name}: a key is NULL, which equals nothing")
            if pa.types.is_floating(array.type):
                raise RequestError(f"{name}: floats are no keys")
        self.columns = tuple(columns)
        self.distinct = [array.unique() for array in arrays]  # of each column its values
        numbers = [pc.index_in(a, d).to_numpy().astype(np.int64) for a, d in zip(arrays, self.distinct, strict=True)]
        # A whole key is the number of a value of the first column; then the number of this and the next one's, paired,
        # among the pairs that there are.
        self._pairs: list[Integers] = []
        self._found = numbers[0]
        for number, values in zip(numbers[1:], self.distinct[1:], strict=True):
            paired = self._found * len(values) + number
            self._pairs.append(np.unique(paired))
            self._found = np.searchsorted(self._pairs[-1], paired)
        if len(np.unique(self._found)) < len(self._found):
            raise RequestError("a key is there twice")

    def matches(self, of_columns: Sequence[Integers]) -> NDArray[np.bool_]:
        """Say which rows have a whole key: bool[rows].

        of_columns  for each column the number of each row's value among `distinct`; -1: it is none of these
        """
        found = of_columns[0]
        has = found >= 0
        for number, values, pairs in zip(of_columns[1:], self.distinct[1:], self._pairs, strict=True):
            paired = found * len(values) + number
            at = np.minimum(np.searchsorted(pairs, paired), len(pairs) - 1)
            has &= (number >= 0) & (pairs[at] == paired)
            found = at
        return has


def _names(keys: pa.Table | Mapping[str, Any]) -> Sequence[str]:
    return keys.column_names if isinstance(keys, pa.Table) else list(keys)


@dataclass(frozen=True, slots=True)
class Located:
    """The rows that `locate` found by one column.

    column  its number among those of the keys
    rows    file -> row group -> how many of its rows have a value of that column
    """

    column: int
    rows: Mapping[str, Mapping[int, int]]


def located_rows(source: Any, keys: RowKeys, index: PathLike | None) -> Located:
    """Locate the keys by the column that leaves least to read. source: as `locate` has it. Raises as `locate`."""
    of_columns = list(zip(keys.columns, keys.distinct, strict=True))
    column = 0
    if len(of_columns) > 1:
        left = [pc.sum(locate(source, name, values, index)["rows"]).as_py() or 0 for name, values in of_columns]
        column = left.index(min(left))
    name, values = of_columns[column]
    found = locate(source, name, values, index, verify=True)
    rows: dict[str, dict[int, int]] = {}
    columns = (found["file"].to_pylist(), found["row_group"].to_pylist(), pc.list_value_length(found["row_numbers"]))
    for file, group, count in zip(columns[0], columns[1], columns[2].to_pylist(), strict=True):
        groups = rows.setdefault(file, {})
        groups[group] = groups.get(group, 0) + count
    return Located(column, rows)


# --- one file -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteFromFile:
    """The work on each of several files, as edit.table_commit.FileWork has it."""

    keys: RowKeys
    located: Located
    first: Sequence[Leaf]
    how: Writing
    tables: Tables
    sets: WorkerSets

    def __call__(self, file: DataFile, target: Location, look_only: bool) -> FileOutcome[FileWithoutRows]:
        """Delete rows from one file: its rename is its commit. Raises as delete_from_files does for one file."""
        started, groups = time.perf_counter(), self.located.rows.get(str(file), {})
        if not groups and (look_only or (self.how.in_place and not file.is_local)):  # beside others may lie leftovers
            return FileOutcome(FileWithoutRows(str(file), str(target), dry_run=look_only, remote=not file.is_local))
        with open_for_change(file, self.how.in_place and not look_only) as source:
            footer, to = source.footer(), Target(target, self.how)
            report = FileWithoutRows(str(file), str(target), source.size, source.size, rows=sum(footer.rows))
            report.row_groups, report.dry_run = footer.n_row_groups, look_only
            report.remote = source.is_remote or not to.is_local
            kept = self._kept(source, groups)
            if kept or not self.how.in_place:
                to.check(source.location, self.tables)
            if kept:
                report.deleted = sum(int((~stays).sum()) for stays in kept.values())
                report.rows -= report.deleted
                report.gone = sum(not stays.any() for stays in kept.values())
                report.rewritten = len(kept) - report.gone
            if kept and not look_only:
                with self.sets.taken() as workers:
                    made = write_without_rows(source, kept, to, workers)
                report.bytes_after, report.notes = made.size, made.notes
                report.add_transfer(made.transfer, source)
            elif not self.how.in_place and not look_only:
                report.add_transfer(to.copy(source), source)
        report.seconds = time.perf_counter() - started
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
            gone = self.keys.matches(of_columns)
            if gone.any():
                kept[group] = ~gone
        return kept


# --- all files of a source ------------------------------------------------------------------------


def delete_from_files(
    source: PathLike | Sequence[PathLike],
    columns: str | Sequence[str],
    keys: Any,
    output: PathLike | None = None,
    *,
    index: PathLike | None = None,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[DeleteFilesOptions],
) -> FilesWithoutRows:
    """Delete the rows that have one of some keys from Parquet files.

    source    files, a folder, a glob, local or on another storage
    columns   one name, or several of which a key has a value each
    keys      of one column an array or a list; of several a table or a mapping with these columns; no NULL, no float,
              none twice. NULL in a file equals no key
    output    a new file, or a folder for several; or else in_place=True
    index     folder of a key index; files that it does not know are searched as without it
    threads   that build filters
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
    located = located_rows(CallSource(snapshot), asked, index)
    for file in snapshot.files:  # before the first one is changed
        if str(file) in located.rows:
            to.tables.check_target(file, to.outputs.targets[file], force=False)
            with OpenFile(file) as opened:
                check_flat(opened, how.force)
    meter = Meter(progress, snapshot.files)
    with WorkerSets(threads or processors()) as sets:
        work = DeleteFromFile(asked, located, _first_leaves(snapshot.files, names), how, to.tables, sets)
        changed = to.change(snapshot, lambda _: work, meter)
    return FilesWithoutRows(changed.files, changed.failed, [*to.notes, *changed.notes])


def _first_leaves(files: Sequence[DataFile], names: Sequence[str]) -> list[Leaf]:
    """The columns as the first file has them. Raises UnknownColumnError."""
    with OpenFile(files[0]) as source:
        return [find_leaf(source.outline().leaves, name) for name in names]
