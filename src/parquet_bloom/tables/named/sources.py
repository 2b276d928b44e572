"""What people name -> a file set: one table through its log, or files.

delta:..., iceberg:..., ducklake:...     the adapter of that kind of table opens it
a folder with a Delta log, alone         as if delta:FOLDER was named
all else                                 storage.paths
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any, cast

from parquet_bloom.errors import FileError, Message, ParquetBloomError, RequestError, TableFormatError, parameter
from parquet_bloom.extras import to_install
from parquet_bloom.storage.paths import FileSet, locate
from parquet_bloom.storage.store import GLOB
from parquet_bloom.storage.table_folders import RAW_FILES, Tables
from parquet_bloom.tables.named.names import TableName, named_table
from parquet_bloom.tables.roots import ORDINARY, TableAccess
from parquet_bloom.tables.snapshot import Snapshot, Table

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
    sources: Any, filesystem: Any = None, tables: Tables | None = None, access: TableAccess = ORDINARY,
    stored_only: bool = False,
) -> Sources:  # fmt: skip
    """Find the files of a call, as storage.paths.locate does, or those of the one table that is named.

    sources     may also be a Snapshot, or a part of one, that was read before: nothing is opened
    tables      as locate has them; None: a folder is read as it is, even if it is a table's
    access      what the user says of a table beside its name
    stored_only  as tables.snapshot.Table.snapshot has it
    Raises as locate; RequestError for a table among several sources, and as open_table.
    """
    if isinstance(sources, Snapshot):
        return Sources(_files(sources), None, sources)
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
