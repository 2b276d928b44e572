"""A Delta table: its log as a snapshot, and commits to it."""

from __future__ import annotations

import datetime as dt
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from parquet_bloom.errors import ConflictError, RequestError, TableFormatError
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import Stores, store_of
from parquet_bloom.tables.delta.actions import Add
from parquet_bloom.tables.delta.commit import check_log, commit, deltalake, named, opened
from parquet_bloom.tables.delta.deletion_vectors import VectorDeletes
from parquet_bloom.tables.delta.features import check_readable, maps_columns
from parquet_bloom.tables.delta.history import read_history
from parquet_bloom.tables.delta.log_files import LogFiles, TableFolder
from parquet_bloom.tables.delta.partition_values import constants_of
from parquet_bloom.tables.delta.replay import State, replay
from parquet_bloom.tables.delta.schema import Schema, read_schema
from parquet_bloom.tables.delta.spelling import respelled
from parquet_bloom.tables.delta.statistics import Bounds, rows_of
from parquet_bloom.tables.delta.ways import check_writable, ways_of
from parquet_bloom.tables.history import History
from parquet_bloom.tables.new_names import new_name
from parquet_bloom.tables.roots import ORDINARY, Roots, TableAccess
from parquet_bloom.tables.snapshot import Change, Snapshot, TableFile, Ways


def open_delta(where: str, version: str | None, filesystem: Any = None, access: TableAccess = ORDINARY) -> DeltaTable:
    """A Delta table by its folder.

    where       path or URI
    version     a number, or an ISO time (without a zone: UTC): the latest version at or before it; None: the latest
    filesystem  of pyarrow or fsspec; None: the one that `where` says
    access      what the user says of it beside its name
    Raises RequestError, StorageError.
    """
    stores = Stores(filesystem)
    store, path = stores.locate(where)
    at = store.location(path.rstrip("/") or path)
    roots = Roots(at, access, stores)
    roots.add(store, at.path)
    return DeltaTable(TableFolder(at, store, roots), _version(version))


def _version(text: str | None) -> int | dt.datetime | None:
    if text is None:
        return None
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        raise RequestError(f"@{text} is no version of a Delta table: give a number or an ISO time") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=dt.UTC)


class DeltaTable:
    """A Delta table that was named; tables.snapshot.Table."""

    def __init__(self, folder: TableFolder, version: int | dt.datetime | None) -> None:
        self._folder = folder
        self._version = version
        self._read: State | None = None  # the version that was read last: a version never changes
        self._respelled: dict[str, bool] = {}  # paths of the log, and whether deltalake would write them otherwise
        self._opened: tuple[int, str] | None = None  # the version that deltalake opened last, and of which table

    @property
    def name(self) -> str:
        """As it was named, without a secret."""
        return str(self._folder.at)

    def snapshot(self, stored_only: bool = False) -> Snapshot:
        """Read the log. Raises StorageError, TableFormatError."""
        log = LogFiles(self._folder)
        state = self._state(log, self._number(log))
        schema = read_schema(self.name, state.metadata, maps_columns(state.protocol))
        files = [self._file(schema, add) for add in state.adds]
        self._folder.roots.check(files)
        return Snapshot(
            self.name, str(state.version), schema.fields, schema.by_id, files, {}, self._folder.at.filesystem,
            frozenset(field.name for field in schema.partition_columns), state.identity,
        )  # fmt: skip

    def history(self, snapshot: Snapshot) -> History:
        """When the files came, by all commits that the log still has. Raises StorageError, TableFormatError."""
        return read_history(self._folder, snapshot)

    def ways(self, snapshot: Snapshot) -> Mapping[str, Ways]:
        """For each file's path, how it may get a new version.

        Raises TableFormatError where the whole table refuses, RequestError where deltalake is not installed, or cannot
        be given the storage, StorageError where its log may not be written to.
        """
        library = deltalake()
        named(self._folder)
        check_log(self._folder)
        version = int(snapshot.version)
        check_writable(self.name, self._state(LogFiles(self._folder), version))
        if self._opened != (version, snapshot.identity):  # what deltalake refuses is told before any work
            opened(self._folder, version, snapshot.identity)
            self._opened = version, snapshot.identity
        unknown = [file.entry.path for file in snapshot.files if file.entry.path not in self._respelled]
        changed = respelled(library, unknown)
        self._respelled |= {path: path in changed for path in unknown}
        return {
            file.path: ways_of(self._folder, file.entry, file, self._respelled[file.entry.path])
            for file in snapshot.files
        }

    def new_location(self, file: TableFile) -> Location:
        """A path beside a file, with a new UUID behind its name."""
        folder, name = posixpath.split(file.relative)
        return self._folder.below(posixpath.join(folder, new_name(name)))

    def commit(self, snapshot: Snapshot, changes: Sequence[Change], properties: Mapping[str, str]) -> str:
        """Put new versions of files into the table, in one commit that changes no row; returns the new version.

        Raises ConflictError, StorageError and UnknownCommitError, which alone means that files must stay, and
        RequestError, TableFormatError as `ways`.
        """
        try:
            ways = self.ways(snapshot)
            for change in changes:
                if reason := ways[change.file.path].refusal:
                    raise TableFormatError(change.file, reason)
            return str(commit(self._folder, int(snapshot.version), snapshot.identity, changes, properties))
        except ConflictError:  # a table that was made anew has versions of the same numbers
            self._read = self._opened = None
            raise

    def _number(self, log: LogFiles) -> int:
        if self._version is None:
            return log.latest
        if isinstance(self._version, int):
            return self._version
        return log.at_time(self._version, lambda: self._state(log, log.latest).properties)

    def _state(self, log: LogFiles, version: int) -> State:
        if self._read is None or self._read.version != version:
            state = replay(self._folder, log.of(version))
            check_readable(self.name, state.protocol)
            self._read = state
        return self._read

    def _file(self, schema: Schema, add: Add) -> TableFile:
        at = self._folder.place(add.path)
        if not store_of(at).same(self._folder.store):
            raise TableFormatError(self.name, f"its file {at} lies on another file system, which is not supported")
        rows = rows_of(add)
        return TableFile(
            at.path,
            self._folder.at.filesystem,
            at.shown,
            relative=self._folder.relative(at) or posixpath.basename(at.path),
            rows=rows,
            size=add.size,
            constants=constants_of(self.name, schema, add),
            bounds=Bounds(schema, add),
            deletes=None if add.vector is None else VectorDeletes(self._folder, add.vector, at, rows),
            entry=add,
        )
