"""Reads a DuckLake table at one snapshot: its columns, and its data files with values, bounds and deletes.

A row of the catalog is live at snapshot s if begin_snapshot <= s and s < end_snapshot, or it has no end.
Source: the DuckLake 1.0 specification, "Queries".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from parquet_bloom.errors import TableFormatError
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.tables.ducklake.catalog import ANY, COUNT, FLAG, LIVE, NUMBER, TEXT, Queries
from parquet_bloom.tables.ducklake.catalog import Columns as Wanted
from parquet_bloom.tables.ducklake.columns import columns_of, named_as
from parquet_bloom.tables.ducklake.deletes import DeleteFile, FileDeletes
from parquet_bloom.tables.ducklake.evidence import (
    ColumnStatistics,
    PartitionValue,
    bounds_of,
    buckets_of,
    constants_of,
    ranges_of,
)
from parquet_bloom.tables.ducklake.inlined import inlined_files
from parquet_bloom.tables.ducklake.paths import Folders, folder_values
from parquet_bloom.tables.ducklake.types import scalar_of
from parquet_bloom.tables.fields import leaves_of
from parquet_bloom.tables.snapshot import Field, LeafPath, Snapshot, TableFile


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table that the catalog has at one snapshot; `name` is what people know it by."""

    id: int
    name: str
    snapshot: int
    folders: Folders


@dataclass(frozen=True, slots=True)
class Entry:
    """What a commit must find unchanged: the rows of the catalog that speak of one file.

    path     as the catalog has it
    deletes  id and path of its delete files
    inlined  positions that the catalog itself deletes
    """

    id: int
    table_id: int
    path: str
    relative: bool
    deletes: frozenset[tuple[int, str]]
    inlined: frozenset[int]


class _FileRow(NamedTuple):
    id: int
    path: str
    relative: int
    format: str
    rows: int
    size: int
    partition_id: int | None
    mapping_id: int | None
    partial_max: int | None
    encryption_key: str | None


class _DeleteRow(NamedTuple):
    file_id: int
    id: int
    path: str
    relative: int
    format: str
    rows: int
    encryption_key: str | None


class _NameRow(NamedTuple):
    mapping_id: int
    name: str
    column_id: int
    is_partition: int | None


_FILE = {
    "data_file_id": NUMBER, "path": TEXT, "path_is_relative": FLAG, "file_format": TEXT, "record_count": COUNT,
    "file_size_bytes": COUNT, "partition_id": NUMBER.or_null, "mapping_id": NUMBER.or_null,
    "partial_max": NUMBER.or_null, "encryption_key": TEXT.or_null,
}  # fmt: skip
_DELETE = {
    "data_file_id": NUMBER, "delete_file_id": NUMBER, "path": TEXT, "path_is_relative": FLAG, "format": TEXT,
    "delete_count": COUNT, "encryption_key": TEXT.or_null,
}  # fmt: skip
_NAME = {"mapping_id": NUMBER, "source_name": TEXT, "target_field_id": NUMBER, "is_partition": FLAG.or_null}
_STATISTICS = {
    "data_file_id": NUMBER, "column_id": NUMBER, "value_count": COUNT.or_null, "null_count": COUNT.or_null,
    "min_value": TEXT.or_null, "max_value": TEXT.or_null, "contains_nan": ANY,
}  # fmt: skip
_TERM = {"partition_id": NUMBER, "partition_key_index": NUMBER, "column_id": NUMBER, "transform": TEXT}
_VALUE = {"data_file_id": NUMBER, "partition_key_index": NUMBER, "partition_value": TEXT.or_null}


class Reader:
    """One table at one snapshot, read in one transaction."""

    def __init__(self, queries: Queries, table: TableRow) -> None:
        self._queries = queries
        self._table = table
        self._columns = columns_of(queries, table.name, table.id, table.snapshot)
        self._leaves: Mapping[LeafPath, Leaf] = {leaf.path: leaf for leaf in leaves_of(self._columns.fields)}
        self._statistics: defaultdict[int, list[ColumnStatistics]] = defaultdict(list)
        self._values: defaultdict[int, list[PartitionValue]] = defaultdict(list)
        self._names: defaultdict[int, list[_NameRow]] = defaultdict(list)
        self._deletes: defaultdict[int, list[_DeleteRow]] = defaultdict(list)
        self._inlined: defaultdict[int, list[int]] = defaultdict(list)

    def snapshot(self, stored_only: bool) -> Snapshot:
        """Read all of it, as tables.snapshot.Table has it. Raises TableFormatError for what is not understood."""
        rows = [_FileRow(*row) for row in sorted(self._live("ducklake_data_file", _FILE), key=lambda row: row[0])]
        self._read_statistics()
        self._read_partitions(rows)
        self._read_names()
        self._read_deletes()
        table, files = self._table, [self._file(row) for row in rows]
        table.folders.roots.check(files)
        if not stored_only:
            files += inlined_files(self._queries, table.name, table.id, table.snapshot)
        filesystem = table.folders.store.filesystem
        return Snapshot(table.name, str(table.snapshot), self._columns.fields, True, files, {}, filesystem)

    # --- one file -----------------------------------------------------------------------------

    def _file(self, row: _FileRow) -> TableFile:
        at = self._table.folders.file(row.path, bool(row.relative))
        self._readable(at, row.format, row.encryption_key)
        values = self._values[row.id]
        constants = constants_of(values, self._columns)
        fields: tuple[Field, ...] = ()
        bounds = ranges_of(values, self._columns, self._leaves)
        if row.mapping_id is None:
            bounds |= bounds_of(self._statistics[row.id], self._columns, self._leaves, row.rows)
        else:  # another program wrote it, and its footer is judged by who knows how far to trust that program
            fields = self._named(row.mapping_id)
            constants |= self._folder_values(at, row.mapping_id)
        # A partition NULL of a file with other values, by the catalog's own counts: only the file tells.
        some_values = {path for path, said in bounds.items() if said.null_count not in (None, row.rows)}
        buckets = [
            one for one in buckets_of(values, self._columns) if one.bucket is not None or one.path not in some_values
        ]
        doubtful = {name for name, value in constants.items() if not value.is_valid and (name,) in some_values}
        return TableFile(
            at.path, at.filesystem, at.shown, [], at.relative, (), row.rows, row.size, constants,
            {path: said for path, said in bounds.items() if path[0] not in doubtful}, tuple(buckets),
            self._deleted(at, row), fields, self._entry(row), True, doubtful,
        )  # fmt: skip

    def _readable(self, at: DataFile, kind: str, key: str | None) -> None:
        if key is not None:
            raise TableFormatError(at, "is encrypted by DuckLake, with a key of its catalog; such tables are not read")
        if kind.lower() not in ("parquet", "puffin"):
            raise TableFormatError(at, f"is of the format {kind}; only Parquet files are read")

    def _deleted(self, at: DataFile, row: _FileRow) -> FileDeletes | None:
        snapshot = self._table.snapshot
        files = []
        for one in self._deletes[row.id]:
            lies = self._table.folders.file(one.path, bool(one.relative))
            self._readable(lies, one.format, one.encryption_key)
            files.append(DeleteFile(lies, one.format.lower(), one.rows))
        self._table.folders.roots.check(one.location for one in files)
        inlined = tuple(self._inlined[row.id])
        partial = row.partial_max is not None and row.partial_max > snapshot
        return (
            FileDeletes(at, row.rows, tuple(files), inlined, snapshot, partial) if partial or files or inlined else None
        )

    def _entry(self, row: _FileRow) -> Entry:
        deletes = frozenset((one.id, one.path) for one in self._deletes[row.id])
        return Entry(row.id, self._table.id, row.path, bool(row.relative), deletes, frozenset(self._inlined[row.id]))

    def _named(self, mapping: int) -> tuple[Field, ...]:
        names = {one.column_id: one.name for one in self._names[mapping] if not one.is_partition}
        return named_as(self._columns, names)

    def _folder_values(self, at: DataFile, mapping: int) -> dict[str, pa.Scalar]:
        """The values of columns that an added file does not have, but the folders that it lies in."""
        folders = folder_values(at.path)
        found = {}
        for one in self._names[mapping]:
            field = next((field for field in self._columns.fields if field.field_id == one.column_id), None)
            if not one.is_partition or field is None:
                continue
            kind = self._columns.by_id[one.column_id].type
            text = folders.get(one.name)
            if not text and not pa.types.is_string(field.type):
                text = None  # only a text can be empty
            value = scalar_of(text, kind, field.type) if one.name in folders else None
            if value is None:
                raise TableFormatError(at, f"its value of {field.name} is not understood from its folders")
            found[field.name] = value
        return found

    # --- rows of the catalog ------------------------------------------------------------------

    def _live(self, table: str, columns: Wanted) -> list[tuple[Any, ...]]:
        at = [self._table.id, self._table.snapshot, self._table.snapshot]
        return self._queries.rows(table, columns, f"table_id = ? AND {LIVE}", at)

    def _of_table(self, table: str, columns: Wanted) -> list[tuple[Any, ...]]:
        return self._queries.rows(table, columns, "table_id = ?", [self._table.id])

    def _read_statistics(self) -> None:
        for file_id, *of in self._of_table("ducklake_file_column_stats", _STATISTICS):
            self._statistics[file_id].append(ColumnStatistics(*of))

    def _read_partitions(self, files: Sequence[_FileRow]) -> None:
        """The values of each file, by the partitioning that it was written with."""
        terms = {(row[0], row[1]): row[2:] for row in self._of_table("ducklake_partition_column", _TERM)}
        partitions = {file.id: file.partition_id for file in files}
        for file_id, index, value in self._of_table("ducklake_file_partition_value", _VALUE):
            term = terms.get((partitions.get(file_id), index))
            if term is not None:
                self._values[file_id].append(PartitionValue(term[0], term[1].lower(), value))

    def _read_names(self) -> None:
        maps = f"SELECT mapping_id FROM {self._queries.table('ducklake_column_mapping')} WHERE table_id = ?"
        for row in self._queries.rows("ducklake_name_mapping", _NAME, f"mapping_id IN ({maps})", [self._table.id]):
            self._names[row[0]].append(_NameRow(*row))

    def _read_deletes(self) -> None:
        for row in self._live("ducklake_delete_file", _DELETE):
            self._deletes[row[0]].append(_DeleteRow(*row))
        inlined = f"ducklake_inlined_delete_{self._table.id}"
        if self._queries.has(inlined):
            columns = {"file_id": NUMBER, "row_id": NUMBER}
            for file_id, row_id in self._queries.rows(inlined, columns, "begin_snapshot <= ?", [self._table.snapshot]):
                self._inlined[file_id].append(row_id)
