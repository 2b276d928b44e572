"""Finds the deleted rows of a data file: by position, by a deletion vector, or by the values of some columns.

    position deletes   (path, position) pairs; of the file's partition, or of this file alone; not older than the file
    deletion vector    of one file, whose position deletes it replaces
    equality deletes   newer than the file; of its partition; of all files, if their spec has no fields but void ones

Source: Iceberg table spec, "Scan Planning", "Row-level Deletes".
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergLog
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType, NestedField, UUIDType

from parquet_bloom.errors import TableFormatError
from parquet_bloom.source.snapshot import Field, TableFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.tables.iceberg.entries import Entries, Entry, PartitionKey
from parquet_bloom.tables.iceberg.files import Files
from parquet_bloom.tables.iceberg.row_deletes import (
    PATH,
    EqualityColumn,
    EqualityFile,
    PositionFile,
    RowDeletes,
    VectorBlob,
)
from parquet_bloom.tables.iceberg.schema import arrow_type

# --- deletes --------------------------------------------------------------------------------------


class DeleteIndex:
    """The deletes of a snapshot, found by data file."""

    def __init__(self, entries: Entries, log: IcebergLog, fields: Sequence[Field], files: Files) -> None:
        self._files = files
        self._ids = {field.name: field.field_id or 0 for field in fields}
        self._columns: Mapping[int, EqualityColumn] = {}
        if entries.equality_deletes:
            self._columns = equality_columns([*log.schemas().values(), log.schema()])
        self._by_path: dict[str, list[tuple[Entry, PositionFile]]] = defaultdict(list)
        self._by_partition: dict[PartitionKey, list[tuple[Entry, PositionFile]]] = defaultdict(list)
        self._vectors: dict[str, list[tuple[Entry, VectorBlob]]] = defaultdict(list)
        self._equality: dict[PartitionKey | None, list[Entry]] = defaultdict(list)
        for entry in entries.position_deletes:
            self._add(entry)
        for entry in entries.equality_deletes:
            parts = log.specs()[entry.partition[0]].fields
            # As Java's library has it; true of a spec without fields too.
            everywhere = all(isinstance(part.transform, VoidTransform) for part in parts)
            self._equality[None if everywhere else entry.partition].append(entry)

    def _add(self, entry: Entry) -> None:
        where = self._files.checked(entry.path)
        if entry.is_vector:
            if entry.referenced is None or entry.offset is None or entry.length is None:
                raise TableFormatError(where, "is named as a deletion vector without its place or its data file")
            vector = VectorBlob(where, entry.offset, entry.length, entry.file.record_count)
            self._vectors[entry.referenced].append((entry, vector))
            return
        file = PositionFile(where, entry.file.file_format.value)
        path = only_path(entry)
        if path is None:
            self._by_partition[entry.partition].append((entry, file))
        else:
            self._by_path[path].append((entry, file))

    def of(self, data: Entry, file: TableFile) -> RowDeletes | None:
        """The deletes of a data file; None where it has none."""
        vectors = tuple(v for entry, v in self._vectors.get(data.path, ()) if entry.sequence >= data.sequence)
        named = self._by_path.get(data.path, [])
        near = [(e, f) for e, f in self._by_partition.get(data.partition, ()) if may_name(e, data.path)]
        files = tuple(file for entry, file in [*named, *near] if entry.sequence >= data.sequence)
        equality = [*self._equality.get(None, ()), *self._equality.get(data.partition, ())]
        equals = [entry for entry in equality if entry.sequence > data.sequence]
        if not (vectors or files or equals):
            return None
        columns = self._columns_of(file) if equals else {}
        here = Location(file.path, file.filesystem, file.shown)
        return RowDeletes(data.path, here, vectors, files, tuple(map(self._equality_file, equals)), columns)

    def _equality_file(self, entry: Entry) -> EqualityFile:
        ids = tuple(sorted(entry.file.equality_ids or ()))
        where = self._files.checked(entry.path)
        if not ids:
            raise TableFormatError(where, "is named as a file of equality deletes without its columns")
        return EqualityFile(where, entry.file.file_format.value, ids)

    def _columns_of(self, file: TableFile) -> Mapping[int, EqualityColumn]:
        """The columns that equality deletes compare by, with the values that this file has where it lacks one."""
        found = dict(self._columns)
        for name, value in file.constants.items():
            column = found[self._ids[name]]
            plain = value.value if isinstance(value, pa.ExtensionScalar) else value
            found[self._ids[name]] = replace(column, absent=plain.cast(column.type) if column.type else None)
        return found


def equality_columns(schemas: Sequence[Schema]) -> dict[int, EqualityColumn]:
    """The top-level columns that a table has or had, by field id. schemas: of the table, the current one last."""
    return {field.field_id: _column(field) for schema in schemas for field in schema.fields}


def _column(field: NestedField) -> EqualityColumn:
    kind = field.field_type
    if not kind.is_primitive or isinstance(kind, FloatType | DoubleType):
        return EqualityColumn(field.name, None)
    to = pa.binary(16) if isinstance(kind, UUIDType) else arrow_type(kind)
    default = field.initial_default
    if isinstance(default, uuid.UUID):
        default = default.bytes
    return EqualityColumn(field.name, to, None if default is None else pa.scalar(default, to))


def first_named(deletes: Sequence[Entry], files: Sequence[Entry]) -> Entry | None:
    """The first of some data files that position deletes or deletion vectors may name by its path; None: none is."""
    latest: dict[str, int] = {}
    shared: dict[PartitionKey, list[Entry]] = defaultdict(list)
    for entry in deletes:
        path = only_path(entry)
        if path is None:
            shared[entry.partition].append(entry)
        else:
            latest[path] = max(latest.get(path, 0), entry.sequence)
    for data in files:
        near = [e for e in shared.get(data.partition, ()) if may_name(e, data.path)]
        if any(at >= data.sequence for at in [*(e.sequence for e in near), latest.get(data.path, -1)]):
            return data
    return None


def only_path(entry: Entry) -> str | None:
    """The data file that all position deletes of a file are of; None where they may be of several."""
    if entry.referenced is not None:
        return entry.referenced
    lower, upper = (entry.file.lower_bounds or {}).get(PATH), (entry.file.upper_bounds or {}).get(PATH)
    if lower is None or lower != upper or not lower.endswith(b".parquet"):  # cut ones may be alike by chance
        return None
    return lower.decode(errors="replace")


def may_name(entry: Entry, path: str) -> bool:
    """Whether the bounds of a file's paths admit a path. A cut upper bound stands for all that begin with it."""
    lower, upper = (entry.file.lower_bounds or {}).get(PATH), (entry.file.upper_bounds or {}).get(PATH)
    data = path.encode()
    return (lower is None or lower <= data) and (upper is None or data <= upper or data.startswith(upper))
