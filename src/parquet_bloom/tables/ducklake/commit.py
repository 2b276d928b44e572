"""Puts new versions of files into a DuckLake table: one SQL transaction.

    ducklake_data_file                     path, file_size_bytes and footer_size of the same row become the new file's
    ducklake_files_scheduled_for_deletion  the old path, which ducklake_cleanup_old_files deletes in its time; not
                                           where another row names that file too

No snapshot is added, as no snapshot changes: the row serves each that the file is in, and each reads the same rows from
the new file. Row ids, statistics, partition values, names and deletes hang on data_file_id, which stays.

Source: the DuckLake 1.0 specification, "ducklake_data_file"; what the extension of DuckDB 1.5.5 does with such tables.
"""

from __future__ import annotations

import datetime as dt
import posixpath
from collections import defaultdict
from collections.abc import Sequence

from parquet_bloom.errors import ConflictError, RequestError, StorageError
from parquet_bloom.storage.stores import store_of
from parquet_bloom.tables.ducklake.catalog import FLAG, NUMBER, TEXT, Queries
from parquet_bloom.tables.ducklake.paths import Folders
from parquet_bloom.tables.ducklake.reading import Entry
from parquet_bloom.tables.new_names import beside
from parquet_bloom.tables.snapshot import Change

_FILES, _SCHEDULED = "ducklake_data_file", "ducklake_files_scheduled_for_deletion"


def replace_files(queries: Queries, folders: Folders, changes: Sequence[Change]) -> None:
    """Change the rows of the catalog, within a transaction that writes.

    Raises ConflictError where a row is no longer as the snapshot has it; the caller then rolls back.
    """
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")
    time = "?" if queries.is_sqlite else "CAST(? AS TIMESTAMPTZ)"
    named = _Named(queries)
    for change in changes:
        entry: Entry = change.file.entry
        _unchanged(queries, change, entry)
        path = beside(entry.path, change.location.path)
        queries.run(
            f"UPDATE {queries.table(_FILES)} SET path = ?, file_size_bytes = ?, footer_size = ? WHERE data_file_id = ?",
            [path, change.size, change.footer_size, entry.id],
        )
        full = folders.full(entry.path, entry.relative)
        named.forget(entry)
        if named.has(full):
            continue  # another row, of this table or of another, has the same file: it was added twice
        old, relative = folders.below_data(full)
        queries.run(
            f"INSERT INTO {queries.table(_SCHEDULED)} (data_file_id, path, path_is_relative, schedule_start) "
            f"VALUES (?, ?, ?, {time})",
            [entry.id, old, relative, now],
        )


class _Named:
    """The files that rows of all tables and snapshots name, as far as these rows do not change."""

    def __init__(self, queries: Queries) -> None:
        self._rows: defaultdict[str, dict[int, str | None]] = defaultdict(dict)
        columns = {"data_file_id": NUMBER, "path": TEXT, "path_is_relative": FLAG}
        for id_, path, relative in queries.rows(_FILES, columns):
            self._rows[posixpath.basename(path)][id_] = None if relative else path

    def forget(self, entry: Entry) -> None:
        """Of one row, whose path changes."""
        self._rows[posixpath.basename(entry.path)].pop(entry.id, None)

    def has(self, path: str) -> bool:
        """Whether a row may name the file of this full path. A relative one is below a folder that is not looked up."""
        return any(one in (None, path) for one in self._rows[posixpath.basename(path)].values())


def has_new_files(queries: Queries, changes: Sequence[Change]) -> bool:
    """Whether the catalog names the new files; one transaction changed all of them, or none."""
    entry: Entry = changes[0].file.entry
    rows = queries.rows(_FILES, {"path": TEXT}, "data_file_id = ?", [entry.id])
    return bool(rows) and posixpath.basename(rows[0][0]) == posixpath.basename(changes[0].location.path)


def check_new_files(changes: Sequence[Change]) -> None:
    """Look at each new file once more: what deletes orphaned files may have been there before the commit.

    Raises StorageError, RequestError for a change that a DuckLake table cannot have.
    """
    for change in changes:
        if change.same_path:
            raise RequestError(f"{change.file}: a file of a DuckLake table does not change in place")
        if posixpath.dirname(change.location.path) != posixpath.dirname(change.file.path):
            raise RequestError(f"{change.location}: a new version lies in the folder of the old one, {change.file}")
        size = store_of(change.location).size(change.location.path)
        if size != change.size:
            there = "is not there" if size is None else f"has {size} bytes"
            raise StorageError(change.location, f"{there}, where a file of {change.size} bytes was written")


def _unchanged(queries: Queries, change: Change, entry: Entry) -> None:
    columns = {"path": TEXT, "end_snapshot": NUMBER.or_null}
    rows = queries.rows(_FILES, columns, "data_file_id = ? AND table_id = ?", [entry.id, entry.table_id])
    if not rows or rows[0][1] is not None:
        raise ConflictError(change.file, "another commit took it out of the table")
    if rows[0][0] != entry.path:
        raise ConflictError(change.file, f"another commit put {posixpath.basename(rows[0][0])} in its place")
    of_deletes = {"delete_file_id": NUMBER, "path": TEXT}
    deletes = queries.rows("ducklake_delete_file", of_deletes, "data_file_id = ? AND end_snapshot IS NULL", [entry.id])
    inlined = f"ducklake_inlined_delete_{entry.table_id}"
    here = queries.rows(inlined, {"row_id": NUMBER}, "file_id = ?", [entry.id]) if queries.has(inlined) else []
    if frozenset(deletes) != entry.deletes or frozenset(row for (row,) in here) != entry.inlined:
        raise ConflictError(change.file, "another commit deleted rows of it")
