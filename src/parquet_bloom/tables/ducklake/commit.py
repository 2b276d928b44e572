"""Puts new versions of files into a DuckLake table: one SQL transaction.

    ducklake_data_file                     path, file_size_bytes and footer_size of the same row become the new file's
    ducklake_files_scheduled_for_deletion  the old path: ducklake_cleanup_old_files deletes it, when its time has come

No snapshot is added, as no snapshot changes: the row serves each that the file is in, and each reads the same rows from
the new file. Row ids, statistics, partition values, names and deletes hang on data_file_id, which stays.

Source: the DuckLake 1.0 specification, "ducklake_data_file"; what the extension of DuckDB 1.5.5 does with such tables.
"""

from __future__ import annotations

import datetime as dt
import posixpath
from collections.abc import Sequence

from parquet_bloom.errors import ConflictError, RequestError, StorageError
from parquet_bloom.storage.stores import store_of
from parquet_bloom.tables.ducklake.catalog import Queries
from parquet_bloom.tables.ducklake.paths import Folders
from parquet_bloom.tables.ducklake.reading import Entry
from parquet_bloom.tables.snapshot import Change


def replace_files(queries: Queries, folders: Folders, changes: Sequence[Change]) -> None:
    """Change the rows of the catalog, within a transaction that writes.

    Raises ConflictError where a row is no longer as the snapshot has it; the caller then rolls back.
    """
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")
    time = "?" if queries.is_sqlite else "CAST(? AS TIMESTAMPTZ)"
    for change in changes:
        entry: Entry = change.file.entry
        _unchanged(queries, change, entry)
        path = posixpath.join(posixpath.dirname(entry.path), posixpath.basename(change.location.path))
        queries.run(
            "UPDATE ducklake_data_file SET path = ?, file_size_bytes = ?, footer_size = ? WHERE data_file_id = ?",
            [path, change.size, change.footer_size, entry.id],
        )
        old, relative = folders.below_data(folders.full(entry.path, entry.relative))
        queries.run(
            f"INSERT INTO ducklake_files_scheduled_for_deletion VALUES (?, ?, ?, {time})",
            [entry.id, old, relative, now],
        )


def has_new_files(queries: Queries, changes: Sequence[Change]) -> bool:
    """Whether the catalog names the new files; one transaction changed all of them, or none."""
    entry: Entry = changes[0].file.entry
    rows = queries.run("SELECT path FROM ducklake_data_file WHERE data_file_id = ?", [entry.id])
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
    rows = queries.run(
        "SELECT path, end_snapshot FROM ducklake_data_file WHERE data_file_id = ? AND table_id = ?",
        [entry.id, entry.table_id],
    )
    if not rows or rows[0][1] is not None:
        raise ConflictError(change.file, "another commit took it out of the table")
    if rows[0][0] != entry.path:
        raise ConflictError(change.file, f"another commit put {posixpath.basename(rows[0][0])} in its place")
    deletes = queries.run(
        "SELECT delete_file_id, path FROM ducklake_delete_file WHERE data_file_id = ? AND end_snapshot IS NULL",
        [entry.id],
    )
    inlined = f"ducklake_inlined_delete_{entry.table_id}"
    here = queries.run(f"SELECT row_id FROM {inlined} WHERE file_id = ?", [entry.id]) if queries.has(inlined) else []
    if frozenset(deletes) != entry.deletes or frozenset(row for (row,) in here) != entry.inlined:
        raise ConflictError(change.file, "another commit deleted rows of it")
