"""What people name becomes files: one table through its log, or a listing; looked up once, and kept.

delta:..., iceberg:..., ducklake:...     the adapter of that kind of table opens it
a folder with a Delta log, alone         as if delta:FOLDER was named
all else                                 storage.paths
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from parquet_bloom.errors import FileError, Message, ParquetBloomError, RequestError, TableFormatError, parameter
from parquet_bloom.extras import to_install
from parquet_bloom.options import PathLike
from parquet_bloom.source.names import Named, TableName, named_table
from parquet_bloom.source.roots import ORDINARY, TableAccess
from parquet_bloom.source.snapshot import Snapshot, Table, TableFile
from parquet_bloom.storage.paths import FileSet, locate
from parquet_bloom.storage.shown import counted, line, without_secret
from parquet_bloom.storage.store import GLOB
from parquet_bloom.storage.table_folders import RAW_FILES, Tables

_LIBRARIES = {"delta": ("deltalake",), "iceberg": ("pyiceberg",), "ducklake": ("duckdb",)}


@dataclass(frozen=True, slots=True)
class Sources:
    """What was named.

    file_set  its data files: TableFiles, if it is a table
    table     None: they are files, or a snapshot that was read before
    snapshot  of the table, at the version that was asked for
    """

    file_set: FileSet
    table: Table | None = None
    snapshot: Snapshot | None = None


def open_table(name: TableName, access: TableAccess = ORDINARY, filesystem: Any = None) -> Table:
    """Open a table by its name.

    access      what the user says of it beside that
    filesystem  of Delta's files; None: the one that the name says
    Raises RequestError for a library that is not installed, StorageError, TableFormatError.
    """
    if filesystem is not None and name.kind != "delta":
        raise RequestError(f"a file system is given for files and delta:, {name.kind}: has its catalog's")
    if access.properties and name.kind == "delta":
        raise RequestError(parameter("catalog_properties") + " are for iceberg: and ducklake:, delta: has no catalog")
    try:
        adapter = importlib.import_module(f"parquet_bloom.tables.{name.kind}.table")
        opened = getattr(adapter, f"open_{name.kind}")
        more = (filesystem,) if name.kind == "delta" else ()
        return cast(Table, opened(name.where, name.version, *more, access))
    except ImportError as error:
        if (error.name or "").split(".")[0] not in _LIBRARIES[name.kind]:
            raise
        [library] = _LIBRARIES[name.kind]
        raise RequestError(f"{name.kind}: needs {library}; {to_install(name.kind)}") from error


def find(
    sources: Any,
    filesystem: Any = None,
    tables: Tables | None = None,
    access: TableAccess = ORDINARY,
    stored_only: bool = False,
) -> Sources:
    """Find the files of a call, as storage.paths.locate does, or those of the one table that is named.

    sources     may also be a Snapshot, or a part of one, that was read before: nothing is opened; or a Pinned, which
                then has `filesystem` and `access` itself
    tables      as locate has them; None: a folder is read as it is, even if it is a table's
    access      what the user says of a table beside its name
    stored_only  as source.snapshot.Table.snapshot has it
    Raises as locate; RequestError for a table among several sources, and as open_table.
    """
    if isinstance(sources, Snapshot):
        return Sources(_files(sources), None, sources)
    if isinstance(sources, Pinned):
        if filesystem is not None or access.properties or access.allow_roots:
            both = parameter("catalog_properties") + " and " + parameter("allow_roots")
            raise RequestError(f"a Source has its file system, {both} itself; give them to Source(...)")
        if tables is None and not sources.raw_files:
            raise RequestError("a Source has " + RAW_FILES + " itself; give it to Source(...)")
        return sources.found(stored_only, tables)
    name = named_table(sources)
    if name is None:
        refused: TableFormatError | None = None
        try:
            found = locate(sources, filesystem, tables)
        except TableFormatError as error:
            refused = error
        found_table = _delta_folder(sources, tables)
        if found_table is not None:
            [folder] = sources if isinstance(sources, list | tuple) else [sources]
            return _delta_or_advice(os.fspath(folder), found_table, filesystem, access)
        if refused is not None:
            raise refused
        access.refuse_files()
        return Sources(found)
    if tables is None:
        raise RequestError(RAW_FILES + " reads what lies in a folder; name that, or leave it away")
    return _through_log(open_table(name, access, filesystem), stored_only)


def _delta_folder(sources: Any, tables: Tables | None) -> str | None:
    """The Delta table that was named alone, by its folder, as people are told it."""
    many = sources if isinstance(sources, list | tuple) else [sources]
    if tables is None or len(many) != 1 or not isinstance(many[0], str | os.PathLike):
        return None
    text = os.fspath(many[0])
    path = text.partition("?")[0] if "://" in text else text
    if set(path) & GLOB and not os.path.lexists(path):
        return None
    return next((t.named for t in tables.found.values() if t.relation == "is" and t.kind == "Delta"), None)


def _delta_or_advice(folder: str, named: str, filesystem: Any, access: TableAccess) -> Sources:
    """The files of a Delta table's folder through its log; errors say how the folder is read without it."""
    try:
        return _through_log(open_table(TableName("delta", folder, None), access, filesystem))
    except ParquetBloomError as error:
        reason = error.reason if isinstance(error, FileError) else error.message
        advice = "; every file in it, dead ones too, is read as it is with " + RAW_FILES
        raise TableFormatError(named, Message("is a Delta table, but ", reason) + advice) from error


def _through_log(table: Table, stored_only: bool = False) -> Sources:
    snapshot = table.snapshot(stored_only)
    return Sources(_files(snapshot), table, snapshot)


def _files(snapshot: Snapshot) -> FileSet:
    return FileSet(snapshot.filesystem, list(snapshot.files), False, [])


# --- pinned ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Looked:
    """What one look found: it stays as it is until `refresh`.

    version  of the table; None: they are files
    pins     path -> version token of each file that was opened since
    found    with and without the rows that a table's log holds itself, and the tables that files lie in
    """

    version: str | None
    pins: dict[str, object]
    found: dict[bool, tuple[Sources, Tables | None]]


class Pinned(Named):
    """What one works on, looked up once: a listing of files, or one version of a table, kept until `refresh`.

    paths        a file, a folder, a glob, a URI, or a list of them; or one table by its name
    filesystem, raw_files, catalog_properties, allow_roots  as the functions have them

    Nothing is looked up before the first question. A file that was replaced or written to after a question opened it
    is a FileChangedError for the next one, as far as its storage tells versions apart: a chmod, a new hard link and
    filters that a commit put behind it on the same path count too. Threads may share it; it needs no lock, so a process
    that is forked meanwhile goes on. A copy that was pickled looks again: for files, since tokens of one machine mean
    nothing on another; for the same version of a Delta or DuckLake table; for the latest snapshot of an Iceberg table
    that was named without one.
    """

    def __init__(
        self,
        paths: PathLike | Sequence[PathLike],
        *,
        filesystem: Any = None,
        raw_files: bool = False,
        catalog_properties: Mapping[str, str] | None = None,
        allow_roots: PathLike | Sequence[PathLike] = (),
    ) -> None:
        """Raises RequestError for names that cannot be meant, such as two tables."""
        self.paths: Any = list(paths) if isinstance(paths, list | tuple) else paths
        self.filesystem, self.raw_files = filesystem, raw_files
        self.catalog_properties, self.allow_roots = catalog_properties, allow_roots
        self._access = TableAccess.of(catalog_properties, allow_roots)
        self._name = named_table(self.paths)
        self._kept_version: str | None = None  # of a copy that was pickled

    @property
    def version(self) -> str | None:
        """The version of the table that answers are of; None before the first one, and of files."""
        looked = self._looked()
        return looked.version if looked is not None else self._kept_version

    def refresh(self) -> None:
        """Look again at the next question: files that came, went or changed, the table's latest version."""
        self.__dict__.pop("_look", None)
        self._kept_version = None

    def found(self, stored_only: bool = False, tables: Tables | None = None) -> Sources:
        """Find the files, or give those that were found before.

        stored_only  as source.snapshot.Table.snapshot has it
        tables       gets those that the files have to do with, and may refuse them
        Raises as `find`.
        """
        looked = self._looked()
        if looked is None:
            pins: dict[str, object] = {}
            first = self._find(stored_only, self._kept_version, pins)
            snapshot = first[0].snapshot
            new = _Looked(None if snapshot is None else snapshot.version, pins, {stored_only: first})
            looked = cast(_Looked, self.__dict__.setdefault("_look", new))  # of two threads one is first
        if stored_only not in looked.found:
            one, seen = looked.found[not stored_only]
            # Only DuckLake's log holds rows itself. Elsewhere a version that is named may have an older schema.
            same = self._name is None or self._name.kind != "ducklake"
            again = (one, seen) if same else self._find(stored_only, looked.version, looked.pins)
            looked.found.setdefault(stored_only, again)
        found, seen = looked.found[stored_only]
        if tables is not None and seen is not None and found.snapshot is None:
            tables.join(seen.found.values())
        return found

    def _looked(self) -> _Looked | None:
        return self.__dict__.get("_look")

    def _find(self, stored_only: bool, version: str | None, pins: dict[str, object]) -> tuple[Sources, Tables | None]:
        names = self.paths
        if version and self._name is None:  # a Delta table's folder
            names = f"delta:{os.fspath(names[0] if isinstance(names, list) else names)}@{version}"
        elif version and self._name is not None and self._name.version is None:
            names = f"{self._name.unversioned}@{version}"
        seen = None if self.raw_files else Tables()
        found = find(names, self.filesystem, seen, self._access, stored_only)
        files = [replace(file, pins=pins) for file in found.file_set.files]
        snapshot = found.snapshot
        if snapshot is not None:
            snapshot = replace(snapshot, files=cast("list[TableFile]", files))
        return Sources(replace(found.file_set, files=files), found.table, snapshot), seen

    def __repr__(self) -> str:
        many = self.paths if isinstance(self.paths, list) else [self.paths]
        named = ", ".join(without_secret(os.fspath(one)) for one in many[:2])
        parts = [named + (f" and {len(many) - 2:,} more" if len(many) > 2 else "")]
        if self.version:
            parts.append(f"version {self.version}")
        if (looked := self._looked()) is not None:
            found, _ = next(iter(looked.found.values()))
            parts.append(counted(len(found.file_set.files), "files"))
        return line(type(self).__name__, parts)

    def __getstate__(self) -> dict[str, Any]:
        iceberg = self._name is not None and self._name.kind == "iceberg"  # whose schema may be newer than its snapshot
        kept = None if iceberg else self.version
        return {**{key: value for key, value in self.__dict__.items() if key != "_look"}, "_kept_version": kept}
