"""The rows of one data file that a DuckLake table has deleted at one snapshot, by position in the file.

    ducklake_delete_file        a Parquet file: file_path, pos, and perhaps the snapshot that deleted the row;
                                or a deletion vector (format "puffin", though no Puffin file is around it)
    ducklake_inlined_delete_N   rows of the catalog itself: file_id, row_id (a position), begin_snapshot
    partial_max of a data file  it was merged of files of several snapshots: rows of a later one than the wanted are
                                none of it yet; the file's own column tells

Delete files belong to their data file by its id, not by its path. Source: the DuckLake 1.0 specification,
"ducklake_delete_file"; measured with DuckDB 1.5.5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, TableFormatError, first_line
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.stores import store_of
from parquet_bloom.tables import deletion_vector

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
        """How many, where the catalog alone tells; a Parquet file of deletes may hold those of later snapshots too."""
        if self.partial or self.files:
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
        with pq.ParquetFile(at.path if at.is_local else at.filesystem.open_input_file(at.path)) as file:
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
