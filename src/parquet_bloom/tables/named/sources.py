"""What people name -> a file set: one table through its log, or files.

delta:..., iceberg:..., ducklake:...     the adapter of that kind of table opens it
a folder with a Delta log, alone         as if delta:FOLDER was named
all else                                 storage.paths
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from parquet_bloom.errors import Message, RequestError, TableFormatError, parameter
from parquet_bloom.storage.paths import FileSet, locate
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.tables.named.names import TableName, named_table
from parquet_bloom.tables.snapshot import Snapshot, Table

_LIBRARIES = {"delta": ("deltalake",), "iceberg": ("pyiceberg",), "ducklake": ("duckdb",)}


@dataclass(frozen=True, slots=True)
class Sources:
    """What was named.

    file_set  its data files: TableFiles, if it is a table
    table     None: they are files
    snapshot  of the table, at the version that was asked for
    """

    file_set: FileSet
    table: Table | None = None
    snapshot: Snapshot | None = None


def open_table(name: TableName, properties: Mapping[str, str] | None = None, filesystem: Any = None) -> Table:
    """Open a table by its name.

    properties  of its catalog, as pyiceberg's configuration has them
    filesystem  of Delta's files; None: the one that the name says
    Raises RequestError for a library that is not installed, StorageError, TableFormatError.
    """
    if filesystem is not None and name.kind != "delta":
        raise RequestError(parameter("filesystem") + f" is for files and delta:, {name.kind}: has its catalog's")
    if properties and name.kind == "delta":
        raise RequestError(parameter("catalog_properties") + " are for iceberg: and ducklake:, delta: has no catalog")
    try:
        adapter = importlib.import_module(f"parquet_bloom.tables.{name.kind}.table")
        opened = getattr(adapter, f"open_{name.kind}")
        more = filesystem if name.kind == "delta" else dict(properties or {})
        return cast(Table, opened(name.where, name.version, more))
    except ImportError as error:
        if (error.name or "").split(".")[0] not in _LIBRARIES[name.kind]:
            raise
        [library] = _LIBRARIES[name.kind]
        raise RequestError(f"{name.kind}: needs {library}; pip install 'parquet-bloom[{name.kind}]'") from error


def find(
    sources: Any, filesystem: Any = None, tables: Tables | None = None, properties: Mapping[str, str] | None = None
) -> Sources:
    """Find the files of a call, as storage.paths.locate does, or those of the one table that is named.

    tables      as locate has them; None: a folder is read as it is, even if it is a table's
    properties  of a table's catalog
    Raises as locate; RequestError for a table among several sources, and as open_table.
    """
    name = named_table(sources)
    if name is None:
        refused: TableFormatError | None = None
        try:
            found = locate(sources, filesystem, tables)
        except TableFormatError as error:
            refused = error
        folder = _delta_folder(sources, tables)
        if folder is None:
            if refused is not None:
                raise refused
            if properties:
                raise RequestError(parameter("catalog_properties") + " are for iceberg: and ducklake:, not for files")
            return Sources(found)
        name = TableName("delta", folder, None)
        try:
            return _through_log(open_table(name, None, filesystem))
        except RequestError as error:
            raise RequestError(f"{folder}: is a Delta table: " + _or_raw(error.message)) from error
    if tables is None:
        raise RequestError(parameter("raw_files", True) + " reads what lies in a folder; name that, or leave it away")
    return _through_log(open_table(name, properties, filesystem))


def _or_raw(reason: str) -> str:
    return Message(reason) + ", or read every file as it is with " + parameter("raw_files", True)


def _delta_folder(sources: Any, tables: Tables | None) -> str | None:
    """The folder that was named alone, if it is a Delta table."""
    many = sources if isinstance(sources, list | tuple) else [sources]
    if tables is None or len(many) != 1 or not isinstance(many[0], str | os.PathLike):
        return None
    is_delta = any(table.relation == "is" and table.kind == "Delta" for table in tables.found.values())
    return os.fspath(many[0]) if is_delta else None


def _through_log(table: Table) -> Sources:
    snapshot = table.snapshot()
    return Sources(FileSet(snapshot.filesystem, list(snapshot.files), False, []), table, snapshot)
