"""Files that hold deletes: position deletes in Parquet, ORC or Avro, and deletion vectors in Puffin files.

Executors of Spark read them too, without pyiceberg: only Avro needs it.
Source: Iceberg table spec, "Position Delete Files"; Puffin spec, blob type deletion-vector-v1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs, orc

from parquet_bloom.errors import DamagedFileError, TableFormatError, first_line
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.tables import deletion_vector

PATH, POSITION = 2147483546, 2147483545  # reserved field ids
_COLUMNS = ["file_path", "pos"]


@dataclass(frozen=True, slots=True)
class VectorBlob:
    """A deletion vector: bytes of a Puffin file. rows: how many positions it holds."""

    location: Location
    offset: int
    length: int
    rows: int

    def positions(self) -> NDArray[np.int64]:
        """The deleted positions, sorted: int64[n]. Raises StorageError, DamagedFileError."""
        try:
            with filesystem_of(self.location).open_input_file(self.location.path) as file:
                data = file.read_at(self.length, self.offset)
        except OSError as error:
            raise storage_error(self.location, error) from error
        return deletion_vector.positions_in(self.location, data, self.rows)


@dataclass(frozen=True, slots=True)
class PositionFile:
    """Position deletes of one file, of one data file or of many; read once."""

    location: Location
    format: str
    _read: dict[str, NDArray[np.int64]] = field(default_factory=dict, compare=False, repr=False)
    _done: list[bool] = field(default_factory=list, compare=False, repr=False)

    def positions(self, path: str) -> NDArray[np.int64]:
        """The deleted positions of a data file, sorted, each once: int64[n]. Raises StorageError, FileError."""
        if not self._done:
            self._read.update(self._by_path())
            self._done.append(True)
        return self._read.get(path, np.empty(0, np.int64))

    def _by_path(self) -> dict[str, NDArray[np.int64]]:
        reader = _READERS.get(self.format)
        if reader is None:
            raise TableFormatError(self.location, f"position deletes in {self.format} are not known")
        try:
            rows = reader(self.location)
            if rows.column(0).null_count or rows.column(1).null_count:
                raise DamagedFileError(self.location, "its position deletes have NULLs")
            return _by_code(*_encoded(rows.column(0)), rows.column(1).to_numpy())
        except OSError as error:
            raise storage_error(self.location, error) from error
        except (pa.ArrowException, ValueError, KeyError) as error:
            raise DamagedFileError(
                self.location, f"its position deletes cannot be read: {first_line(error)}"
            ) from error


def _encoded(paths: pa.ChunkedArray) -> tuple[list[str], NDArray[np.int32]]:
    """The paths that there are, each once, and of each row which it has. Those of all rows may be more than 2 GB."""
    if not len(paths):
        return [], np.empty(0, np.int32)
    coded = paths if pa.types.is_dictionary(paths.type) else paths.dictionary_encode()
    chunks = coded.unify_dictionaries().chunks
    if pa.types.is_primitive(kind := coded.type.value_type):
        raise ValueError(f"file_path is {kind}")
    return chunks[0].dictionary.cast(pa.string()).to_pylist(), np.concatenate([c.indices.to_numpy() for c in chunks])


def _by_code(paths: list[str], codes: NDArray[np.int32], positions: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(paths) + 1))
    return {path: np.unique(positions[order[cuts[i] : cuts[i + 1]]]).astype(np.int64) for i, path in enumerate(paths)}


def filesystem_of(location: Location) -> Any:
    """The file system of a location as pyarrow's object, the local one too."""
    return location.filesystem or fs.LocalFileSystem()


def _parquet(location: Location) -> pa.Table:
    with filesystem_of(location).open_input_file(location.path) as file:
        return pq.ParquetFile(file, read_dictionary=_COLUMNS[:1]).read(columns=_COLUMNS).select(_COLUMNS)


def _orc(location: Location) -> pa.Table:
    with filesystem_of(location).open_input_file(location.path) as file:
        return orc.ORCFile(file).read(columns=_COLUMNS).select(_COLUMNS)


def _avro(location: Location) -> pa.Table:
    from pyiceberg.avro.file import AvroFile
    from pyiceberg.io.pyarrow import PyArrowFile
    from pyiceberg.typedef import Record

    source = PyArrowFile(location.path, location.path, filesystem_of(location))
    with AvroFile[Record](source, avro_schema()) as reader:
        rows = [(record[0], record[1]) for record in reader]
    return pa.table({"file_path": [path for path, _ in rows], "pos": pa.array([at for _, at in rows], pa.int64())})


def avro_schema() -> Any:
    """The schema of position deletes, as pyiceberg has it."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    fields = zip((PATH, POSITION), _COLUMNS, (StringType(), LongType()), strict=True)
    return Schema(*(NestedField(number, name, kind, required=True) for number, name, kind in fields))


_READERS: dict[str, Callable[[Location], pa.Table]] = {"PARQUET": _parquet, "ORC": _orc, "AVRO": _avro}
