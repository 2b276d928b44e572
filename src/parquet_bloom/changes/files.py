"""Rows deleted from files by their keys, for who must erase them: files that have none stay as they are, to the byte.

    keys -> locate: files, row groups, rows -> of these row groups the key columns, decoded again
         -> rows that have a whole key      -> a new version of the file without them (edit.without_rows)

All files are held to the version that `locate` searched: one that changes meanwhile is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from parquet_bloom.changes.keys import (
    Located,
    RowKeys,
    RowsRequest,
    arrays_of,
    as_stored,
    as_type,
    is_text,
    located_rows,
    plain_name,
)
from parquet_bloom.changes.values import KeyChanges, RewrittenFile
from parquet_bloom.edit.changeable import ChangeableFiles
from parquet_bloom.edit.reports import FileReport
from parquet_bloom.edit.rewrite import check_summaries
from parquet_bloom.edit.row_groups import Kept
from parquet_bloom.edit.table_commit import FileOutcome
from parquet_bloom.edit.without_rows import check_flat, write_without_rows
from parquet_bloom.errors import FileChangedError, RequestError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.schema import Leaf, find_leaf
from parquet_bloom.keys.locate import KeyCasts, key_leaf, rows_of_keys
from parquet_bloom.options import PathLike, several
from parquet_bloom.output.recovery import open_for_change
from parquet_bloom.output.target import Target, Writing
from parquet_bloom.rows.scan import Scan
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.source.source import CallSource
from parquet_bloom.storage.display import quantity, without_secret
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import Meter, ProgressCallback, WorkerSets, processors

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
                rows, found = rows_of_keys(reader, group, keys.stored, keys.numbers)
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
    about: CallSource, request: RowsRequest, output: PathLike | None, how: Writing, progress: ProgressCallback | None
) -> KeyChanges:
    """Delete rows from files, in place or into `output`. Raises as `delete_keys`."""
    if how.append:
        raise RequestError("rows cannot be deleted by an append; leave it out")
    to = ChangeableFiles(about, output, how)
    found = to.snapshot()
    pins: dict[str, object] = {}
    snapshot = replace(found, files=[replace(file, pins=pins) for file in found.files])
    asked = RowKeys(request.columns, _keys_of(request, snapshot))
    located = located_rows(CallSource(snapshot), asked, request.index, range(len(request.columns)))
    for file in snapshot.files:  # before the first one is changed
        if str(file) in located.rows:
            to.tables.check_target(file, to.outputs.targets[file], force=False)
            with OpenFile(file) as opened:
                check_flat(opened, how.force)
    if how.in_place and not how.force:
        check_summaries(file for file in snapshot.files if str(file) in located.rows)
    meter = Meter(progress, snapshot.files)
    with WorkerSets(request.threads or processors()) as sets:
        leaves = _first_leaves(snapshot.files, request.columns)
        changed = to.change(snapshot, lambda _: DeleteFromFile(asked, located, leaves, how, to.tables, sets), meter)
    named = ", ".join(map(os.fspath, several(about.paths)))
    report = KeyChanges(named, [*request.columns], len(snapshot.files), dry_run=how.dry_run)
    report.rewritten = [one.found for one in changed.files if one.found is not None]
    report.deleted = sum(one.deleted for one in report.rewritten)
    report.bytes_written = sum(one.bytes_after for one in report.rewritten)
    absent = [f"{quantity(n, 'files')} without a column {name}: all rows stay" for name, n in located.absent.items()]
    report.notes = [*to.notes, *absent, *changed.notes, *(note for one in changed.files for note in one.notes)]
    if request.index is not None and how.in_place and report.bytes_written:
        reason = "does not know the new files, and has hashes of the deleted keys, until update_index or rebuild_index"
        report.notes.append(f"{without_secret(str(request.index))} {reason}")
    report.failed = changed.failed
    return report


def _keys_of(request: RowsRequest, snapshot: Snapshot) -> dict[str, pa.Array]:
    """The keys by column: texts, as of a CSV, and floats, as of pandas, in the type of the first file's column.

    Raises RequestError.
    """
    arrays = dict(zip(request.columns, arrays_of(request.columns, request.deletes), strict=True))
    if others := [name for name, array in arrays.items() if is_text(array.type) or pa.types.is_floating(array.type)]:
        source: Any = CallSource(snapshot)
        schema = Scan(source).first_schema
        for name in others:
            if plain_name(name) not in schema.names:
                continue
            kind = schema.field(plain_name(name)).type
            kind = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not is_text(kind):
                arrays[name] = as_stored(as_type(name, arrays[name], kind))
    return arrays


def _first_leaves(files: Sequence[DataFile], names: Sequence[str]) -> list[Leaf]:
    """The columns as the first file has them. Raises UnknownColumnError, RefusedTypeError."""
    with OpenFile(files[0]) as source:
        return [key_leaf(source.outline().leaves, name) for name in names]
