"""A DuckLake table: read from its catalog, committed in one transaction.

CATALOG/schema.table        lake/metadata.ducklake/main.orders      sqlite:lake.sqlite/main."odd.name"
"""

from __future__ import annotations

import datetime as dt
import os
import posixpath
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from parquet_bloom.errors import (
    ConflictError,
    ParquetBloomError,
    RequestError,
    StorageError,
    TableFormatError,
    UnknownCommitError,
)
from parquet_bloom.format.literals import read_instant
from parquet_bloom.format.schema import split_path
from parquet_bloom.source.adapters import BYTES_A_FILE, KeptStates
from parquet_bloom.source.history import History
from parquet_bloom.source.names import ORDINARY, TableAccess
from parquet_bloom.source.snapshot import (
    Change,
    CommitModes,
    FileBounds,
    LeafPath,
    Snapshot,
    TableFile,
    beside,
    location_beside,
)
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import LOCAL, store_of
from parquet_bloom.tables.ducklake.catalog import FLAG, LIVE, NUMBER, TEXT, Catalog, Folders, Queries, catalog_of
from parquet_bloom.tables.ducklake.reading import Entry, FileDeletes, Reader, TableRow
from parquet_bloom.tables.ducklake.true_statistics import CatalogStatistics

# --- commit ---------------------------------------------------------------------------------------
#
# Puts new versions of files into a DuckLake table: one SQL transaction.
#
#    ducklake_data_file                     path, file_size_bytes and footer_size of the same row become the new file's
#    ducklake_files_scheduled_for_deletion  the old path, which ducklake_cleanup_old_files deletes in its time; not
#                                           where another row names that file too
#
#    ducklake_file_column_stats             of columns that a repair writes right: their true statistics
#
# No snapshot is added, as no snapshot changes: the row serves each that the file is in, and each reads the same rows
# from the new file. Row ids, statistics, partition values, names and deletes hang on data_file_id, which stays.
#
# Source: the DuckLake 1.0 specification, "ducklake_data_file"; what the extension of DuckDB 1.5.5 does with such
# tables.

_FILES, _SCHEDULED = "ducklake_data_file", "ducklake_files_scheduled_for_deletion"


def replace_files(queries: Queries, row: TableRow, changes: Sequence[Change]) -> None:
    """Change the rows of the catalog, within a transaction that writes.

    Raises ConflictError where a row is no longer as the snapshot has it; the caller then rolls back.
    """
    # For each change the row of its file gets the new path and sizes. The old file is scheduled for deletion rather
    # than deleted, since a reader of an older state of the catalog may have it open.
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00")
    time = "?" if queries.is_sqlite else "CAST(? AS TIMESTAMPTZ)"
    named, folders = _NamedFiles(queries), row.folders
    statistics = CatalogStatistics(queries, row) if any(change.truth for change in changes) else None
    for change in changes:
        entry: Entry = change.file.entry
        _unchanged(queries, change, entry)
        if statistics is not None:
            statistics.write(change)
        if change.same_path:
            continue
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


class _NamedFiles:
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
        """Whether a row may name the file of this full path. The folder of a relative one is not resolved."""
        return any(one in (None, path) for one in self._rows[posixpath.basename(path)].values())


def has_changes(queries: Queries, row: TableRow, changes: Sequence[Change]) -> bool:
    """Whether the catalog has the new files and statistics; one transaction changed all of them, or none."""
    change = changes[0]
    if change.same_path:
        return CatalogStatistics(queries, row).has(change)
    entry: Entry = change.file.entry
    rows = queries.rows(_FILES, {"path": TEXT}, "data_file_id = ?", [entry.id])
    return bool(rows) and posixpath.basename(rows[0][0]) == posixpath.basename(change.location.path)


def check_new_files(changes: Sequence[Change]) -> None:
    """Check each new file once more: a clean-up of orphaned files may have run before the commit.

    Raises StorageError, RequestError for a change that a DuckLake table cannot have.
    """
    for change in changes:
        if change.same_path and not (change.truth and change.size == change.file.size):
            raise RequestError(f"{change.file}: a file of a DuckLake table does not change in place")
        if posixpath.dirname(change.location.path) != posixpath.dirname(change.file.path):
            raise RequestError(f"{change.location}: a new version lies in the folder of the old one, {change.file}")
        size = store_of(change.location).size(change.location.path)
        if size != change.size:
            there = "is not there" if size is None else f"has {size} bytes"
            raise StorageError(change.location, f"{there}, where a file of {change.size} bytes was written")


def _unchanged(queries: Queries, change: Change, entry: Entry) -> None:
    # Three kinds of commit matter: one that ended the file (end_snapshot), one that gave its row another file, and one
    # that deleted rows, by a delete file or inlined in the catalog.
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


# --- table ----------------------------------------------------------------------------------------

_PART = r'(?:"(?:[^"]|"")+"|[^./"]+)'
_NAME = re.compile(rf"(.+)/({_PART}\.{_PART})", re.S)
_PROPERTIES = ("data_path",)
_LIES = {"path": TEXT.or_null, "path_is_relative": FLAG.or_null}
_SCHEMA = {"schema_id": NUMBER, "schema_name": TEXT, **_LIES}
_TABLE = {"schema_id": NUMBER, "table_name": TEXT, "table_id": NUMBER, **_LIES}


def open_ducklake(name: str, version: str | None, access: TableAccess = ORDINARY) -> DuckLakeTable:
    """Open a table of a DuckLake catalog.

    name        CATALOG/schema.table; CATALOG is the path of a DuckDB or SQLite file
    version     a snapshot's id, or an ISO time (UTC unless it has a zone); None: the latest snapshot at each reading
    access      what the user says of it beside that; of properties there is data_path: where the files lie, in place
                of what the catalog says (DuckDB's OVERRIDE_DATA_PATH)
    Raises RequestError for a name that is none, and a catalog on a server; StorageError, TableFormatError.
    """
    found = _NAME.fullmatch(name)
    if found is None:
        raise RequestError(f"ducklake:{name} is no table; write ducklake:CATALOG/schema.table")
    properties = access.properties or {}
    unknown = sorted(set(properties) - set(_PROPERTIES))
    if unknown:
        raise RequestError(f"ducklake: has no property {unknown[0]}; there are: {', '.join(_PROPERTIES)}")
    schema, table = split_path(found[2])
    catalog = catalog_of(found[1], undo=access.changes)
    return DuckLakeTable(f"ducklake:{name}", catalog, (schema, table), version, properties.get("data_path"), access)


@dataclass(frozen=True, slots=True)
class _KeptSnapshot:
    """A snapshot that was read; folders: of the call that read it."""

    snapshot: Snapshot
    folders: Folders

    def holds(self, table: DuckLakeTable) -> bool:
        """Whether another call may have it. Raises TableFormatError for a file that lies elsewhere by now, by links."""
        folders = self.folders.again(table.name, table.access)
        if not folders.store.same(self.folders.store):
            return False
        files = [file for file in self.snapshot.files if file.stored]
        deletes = [file.deletes for file in files if isinstance(file.deletes, FileDeletes)]
        folders.roots.check([*files, *(one.location for all_of_one in deletes for one in all_of_one.files)])
        return True


_SNAPSHOTS: KeptStates[_KeptSnapshot] = KeptStates()


@dataclass(frozen=True, slots=True)
class DuckLakeTable:
    """A table of a DuckLake catalog, at one version or at the latest."""

    name: str
    catalog: Catalog
    path: tuple[str, str]
    version: str | None
    data_path: str | None
    access: TableAccess

    def snapshot(self, stored_only: bool = False) -> Snapshot:
        """Read the catalog in one transaction. Raises StorageError, TableFormatError."""
        access = self.access.allow_roots, self.access.force
        try:
            folder, proof = os.getcwd(), self.catalog.proof()
        except OSError:  # the working folder is gone
            folder, proof = "", None
        key = self.name, folder, self.version, self.data_path, stored_only, *access
        if proof is not None and (kept := _SNAPSHOTS.find(key, LOCAL, proof)) is not None and kept.holds(self):
            return kept.snapshot
        with self.catalog.reading() as queries:
            row = self._row(queries, self._snapshot_id(queries))
            snapshot = Reader(queries, row).snapshot(stored_only)
        if proof is not None:
            inlined = sum(file.size for file in snapshot.files if not file.stored)  # bytes in memory
            weight = len(snapshot.files) + inlined // BYTES_A_FILE
            _SNAPSHOTS.keep(key, LOCAL, proof, weight, _KeptSnapshot(snapshot, row.folders))
        return snapshot

    def history(self, snapshot: Snapshot) -> History:
        """Nothing: a commit of ours leaves no sign in the catalog, and merged files have the snapshot of the oldest."""
        return History()

    def stated(self, snapshot: Snapshot) -> Callable[[TableFile], Mapping[LeafPath, FileBounds]]:
        """All that the catalog states of a file's columns, believed or not."""
        with self.catalog.reading() as queries:
            return CatalogStatistics(queries, self._row(queries, int(snapshot.version))).stated()

    def commit_modes(self, snapshot: Snapshot) -> Mapping[str, CommitModes]:
        """A new file always: deletes name their file by its id, and positions stay.

        Raises StorageError where the catalog may not be written to.
        """
        if not os.access(self.catalog.path, os.W_OK):
            raise StorageError(self.catalog.path, "may not be written to; ask for the right to change the catalog")
        with self.catalog.reading() as queries:
            roots = self._row(queries, int(snapshot.version)).folders.roots
        grown = "DuckLake checks the footer's size in its catalog, so a file that grows cannot be read till the commit"
        found = {}
        for file in snapshot.files:
            why = roots.no_change(file) if file.stored else ""
            found[file.path] = CommitModes(None, why, why) if why else CommitModes("new-path", grown)
        return found

    def new_location(self, file: TableFile) -> Location:
        """A name beside the file's, with a part that no other has."""
        return location_beside(file)

    def commit(self, snapshot: Snapshot, changes: Sequence[Change], properties: Mapping[str, str]) -> str:
        """Put new files in the place of old ones, in one transaction of the catalog; returns the latest snapshot's id.

        No snapshot is added, so `properties` have no place in the catalog.
        Raises ConflictError where another commit removed one of the files or deleted rows of one; StorageError where
        nothing was committed; UnknownCommitError where that could not be found out.
        """
        check_new_files(changes)
        reason = ""
        try:
            with self.catalog.writing() as queries:
                latest = max(queries.snapshots(), default=(int(snapshot.version), 0))[0]
                replace_files(queries, self._row(queries, int(snapshot.version)), changes)
        except UnknownCommitError as error:
            # Only what the catalog has now says whether it landed. If it does not answer, the first error stands.
            with suppress(ParquetBloomError):
                if self._landed(snapshot, changes):
                    return str(latest)
                reason = f"nothing was committed: {error.reason}"
            if reason:
                raise StorageError(self.catalog.path, reason) from error
            raise
        return str(latest)

    def _landed(self, snapshot: Snapshot, changes: Sequence[Change]) -> bool:
        with self.catalog.reading() as queries:
            return has_changes(queries, self._row(queries, int(snapshot.version)), changes)

    def _snapshot_id(self, queries: Queries) -> int:
        snapshots = queries.snapshots()
        if not snapshots:
            raise TableFormatError(self.catalog.path, "has no snapshot")
        if self.version is None:
            return snapshots[-1][0]
        if self.version.isdecimal():
            fit = [id_ for id_, _ in snapshots if str(id_) == (self.version.lstrip("0") or "0")]
        else:
            try:
                at = read_instant(self.version).nanoseconds
            except ValueError as error:
                raise RequestError(f"{self.name}: {self.version} is no snapshot and no time: {error}") from None
            fit = [id_ for id_, time in snapshots if time * 1000 <= at]
        if not fit:
            there = f"{snapshots[0][0]} to {snapshots[-1][0]} are there"
            raise RequestError(f"{self.name}: no snapshot {self.version}; {there}")
        return fit[-1]

    def _row(self, queries: Queries, snapshot: int) -> TableRow:
        live = [snapshot, snapshot]
        schemas = {id_: of for id_, *of in queries.rows("ducklake_schema", _SCHEMA, LIVE, live)}
        rows = [
            (schemas[schema_id][0], name, id_, *schemas[schema_id][1:], *lies)
            for schema_id, name, id_, *lies in queries.rows("ducklake_table", _TABLE, LIVE, live)
            if schema_id in schemas
        ]
        found = [row for row in rows if row[:2] == self.path]
        found = found or [row for row in rows if _folded(row[:2]) == _folded(self.path)]  # as SQL has names
        if len(found) != 1:
            there = sorted(f"{schema}.{table}" for schema, table, *_ in rows)
            raise TableFormatError(
                self.name, f"no such table at snapshot {snapshot}; there are: {', '.join(there[:8])}"
            )
        _, _, id_, *paths = found[0]
        data = self.data_path or queries.option("data_path")
        if data is None:
            raise TableFormatError(self.catalog.path, "has no data_path")
        steps = (paths[0], bool(paths[1])), (paths[2], bool(paths[3]))
        folders = Folders.of(self.name, data, self.data_path is not None, steps, self.access)
        return TableRow(id_, self.name, snapshot, folders)


def _folded(path: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.casefold() for part in path)
