"""DuckLake tables: a catalog in a DuckDB or SQLite file, and Parquet files.

CATALOG/schema.table        lake/metadata.ducklake/main.orders      sqlite:lake.sqlite/main."odd.name"
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from parquet_bloom.errors import ParquetBloomError, RequestError, StorageError, TableFormatError, UnknownCommitError
from parquet_bloom.formats.literals import read_instant
from parquet_bloom.formats.metadata.schema import split_path
from parquet_bloom.storage.remote import Location
from parquet_bloom.tables.ducklake.catalog import FLAG, LIVE, NUMBER, TEXT, Catalog, Queries, catalog_of
from parquet_bloom.tables.ducklake.commit import check_new_files, has_new_files, replace_files
from parquet_bloom.tables.ducklake.paths import Folders
from parquet_bloom.tables.ducklake.reading import Reader, TableRow
from parquet_bloom.tables.history import History
from parquet_bloom.tables.new_names import new_place
from parquet_bloom.tables.roots import ORDINARY, TableAccess
from parquet_bloom.tables.snapshot import Change, Snapshot, TableFile, Ways

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
    return DuckLakeTable(
        f"ducklake:{name}", catalog_of(found[1]), (schema, table), version, properties.get("data_path"), access
    )


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
        with self.catalog.reading() as queries:
            return Reader(queries, self._row(queries, self._snapshot_id(queries))).snapshot(stored_only)

    def history(self, snapshot: Snapshot) -> History:
        """Nothing: a commit of ours leaves no sign in the catalog, and merged files have the snapshot of the oldest."""
        return History()

    def ways(self, snapshot: Snapshot) -> Mapping[str, Ways]:
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
            found[file.path] = Ways(None, why, why) if why else Ways("new-path", grown)
        return found

    def new_location(self, file: TableFile) -> Location:
        """A name beside the file's, with a part that no other has."""
        return new_place(file)

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
                replace_files(queries, self._row(queries, int(snapshot.version)).folders, changes)
        except UnknownCommitError as error:
            with suppress(ParquetBloomError):
                if self._landed(changes):
                    return str(latest)
                reason = f"nothing was committed: {error.reason}"
            if reason:
                raise StorageError(self.catalog.path, reason) from error
            raise
        return str(latest)

    def _landed(self, changes: Sequence[Change]) -> bool:
        with self.catalog.reading() as queries:
            return has_new_files(queries, changes)

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
