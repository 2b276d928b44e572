"""Reads a DuckLake table at one snapshot: its columns, and its data files with values, bounds and deletes.

A row of the catalog is live at snapshot s if begin_snapshot <= s and s < end_snapshot, or it has no end.
Source: the DuckLake 1.0 specification, "Queries".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, TableFormatError, first_line
from parquet_bloom.format.schema import Leaf
from parquet_bloom.source.columns import leaves_of
from parquet_bloom.source.snapshot import Field, LeafPath, Snapshot, TableFile
from parquet_bloom.storage.open_file import arrow_input
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.stores import store_of
from parquet_bloom.tables import deletion_vector
from parquet_bloom.tables.ducklake.catalog import ANY, COUNT, FLAG, LIVE, NUMBER, TEXT, Folders, Queries, folder_values
from parquet_bloom.tables.ducklake.catalog import Columns as Wanted
from parquet_bloom.tables.ducklake.columns import columns_of, named_as, scalar_of
from parquet_bloom.tables.ducklake.evidence import (
    ColumnStatistics,
    PartitionValue,
    bounds_of,
    buckets_of,
    constants_of,
    ranges_of,
)
from parquet_bloom.tables.ducklake.inlined import inlined_files

# --- deleted rows ---------------------------------------------------------------------------------
#
# The rows of one data file that a DuckLake table has deleted at one snapshot, by position in the file.
#
#    ducklake_delete_file        a Parquet file: file_path, pos, and perhaps the snapshot that deleted the row;
#                                or a deletion vector (format "puffin", though no Puffin file is around it)
#    ducklake_inlined_delete_N   rows of the catalog itself: file_id, row_id (a position), begin_snapshot
#    partial_max of a data file  it was merged of files of several snapshots: rows of a later one than the wanted are
#                                none of it yet; the file's own column tells
#
# Delete files belong to their data file by its id, not by its path. Source: the DuckLake 1.0 specification,
# "ducklake_delete_file"; measured with DuckDB 1.5.5.

_SNAPSHOT = "_ducklake_internal_snapshot_id"


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A file that deletes rows of a data file.

    count  of rows, of all snapshots that it knows of
    """

    location: Location
    format: str
    count: int

    def positions(self, snapshot: int) -> NDArray[np.int64]:
        """The positions that were deleted by a snapshot: int64[n]."""
        if self.format == "puffin":
            return self._vector()
        table = _columns(self.location, ("pos", _SNAPSHOT))
        if "pos" not in table.column_names:
            raise TableFormatError(self.location, "a delete file without the column pos")
        positions = table["pos"]
        if _SNAPSHOT in table.column_names:
            positions = positions.filter(pc.less_equal(table[_SNAPSHOT], snapshot))
        return _numbers(self.location, positions)

    def _vector(self) -> NDArray[np.int64]:
        try:
            opened = store_of(self.location).open(self.location, False)
            try:
                data = opened.read(0, opened.size)
            finally:
                opened.close()
        except Exception as error:
            raise storage_error(self.location, error) from error
        return deletion_vector.positions_in(self.location, data, self.count)


@dataclass(frozen=True, slots=True)
class FileDeletes:
    """The deleted rows of one data file.

    data      the file
    stored    rows in it
    files     that delete rows of it
    inlined   positions that the catalog itself has
    snapshot  that is read
    partial   whether the file has rows of later snapshots
    """

    data: Location
    stored: int
    files: tuple[DeleteFile, ...]
    inlined: tuple[int, ...]
    snapshot: int
    partial: bool

    @property
    def rows(self) -> int | None:
        """How many, if the catalog has the number; a Parquet file of deletes may hold those of later snapshots too."""
        if self.partial or self.files or not all(0 <= row < self.stored for row in self.inlined):
            return None
        return len(set(self.inlined))

    def positions(self) -> NDArray[np.int64]:
        """Their positions in the file, sorted, each once: int64[n]. Raises StorageError, FileError."""
        found = [np.array(self.inlined, np.int64), *(file.positions(self.snapshot) for file in self.files)]
        if self.partial:
            found.append(self._later())
        rows = np.unique(np.concatenate(found))
        if len(rows) and not 0 <= rows[0] <= rows[-1] < self.stored:
            raise TableFormatError(self.data, f"a deleted row is outside of the {self.stored} rows that it stores")
        return rows

    def _later(self) -> NDArray[np.int64]:
        """The positions of rows that came with a later snapshot than the wanted one."""
        table = _columns(self.data, (_SNAPSHOT,))
        if _SNAPSHOT not in table.column_names:
            raise TableFormatError(
                self.data, f"has rows of several snapshots, and no column {_SNAPSHOT} that tells them"
            )
        return np.flatnonzero(_numbers(self.data, table[_SNAPSHOT]) > self.snapshot).astype(np.int64)


def _columns(at: Location, names: tuple[str, ...]) -> pa.Table:
    """The columns of these names that a file has."""
    try:
        with pq.ParquetFile(arrow_input(at)) as file:
            return file.read(columns=[name for name in names if name in file.schema_arrow.names])
    except OSError as error:
        raise storage_error(at, error) from error
    except pa.ArrowException as error:
        raise DamagedFileError(at, first_line(error)) from error


def _numbers(at: Location, column: pa.ChunkedArray) -> NDArray[np.int64]:
    if column.null_count or not pa.types.is_integer(column.type):
        raise TableFormatError(at, "a position or snapshot in it is no number")
    numbers: NDArray[np.int64] = column.to_numpy().astype(np.int64)
    return numbers


# --- a table at one snapshot ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table that the catalog has at one snapshot; `name` is what people know it by."""

    id: int
    name: str
    snapshot: int
    folders: Folders


@dataclass(frozen=True, slots=True)
class Entry:
    """The rows of the catalog on one file: a commit must find them unchanged.

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
    "data_file_id": NUMBER,
    "path": TEXT,
    "path_is_relative": FLAG,
    "file_format": TEXT,
    "record_count": COUNT,
    "file_size_bytes": COUNT,
    "partition_id": NUMBER.or_null,
    "mapping_id": NUMBER.or_null,
    "partial_max": NUMBER.or_null,
    "encryption_key": TEXT.or_null,
}
_DELETE = {
    "data_file_id": NUMBER,
    "delete_file_id": NUMBER,
    "path": TEXT,
    "path_is_relative": FLAG,
    "format": TEXT,
    "delete_count": COUNT,
    "encryption_key": TEXT.or_null,
}
_NAME = {"mapping_id": NUMBER, "source_name": TEXT, "target_field_id": NUMBER, "is_partition": FLAG.or_null}
_STATISTICS = {
    "data_file_id": NUMBER,
    "column_id": NUMBER,
    "value_count": COUNT.or_null,
    "null_count": COUNT.or_null,
    "min_value": TEXT.or_null,
    "max_value": TEXT.or_null,
    "contains_nan": ANY,
}
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
        """Read all of it, as source.snapshot.Table has it. Raises TableFormatError for what is not understood."""
        rows = [_FileRow(*row) for row in sorted(self._live("ducklake_data_file", _FILE), key=lambda row: row[0])]
        for row, after in pairwise(rows):  # a catalog of few bytes can name one file a million times
            if row.id == after.id:
                raise TableFormatError(self._table.name, f"its catalog names data file {row.id} twice")
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
            at.path,
            at.filesystem,
            at.shown,
            [],
            at.relative,
            (),
            row.rows,
            row.size,
            constants,
            {path: said for path, said in bounds.items() if path[0] not in doubtful},
            tuple(buckets),
            self._deleted(at, row),
            fields,
            self._entry(row),
            True,
            doubtful,
        )

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
