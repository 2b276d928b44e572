"""The deleted rows of one data file, read from files of deletes: by position, by a vector, by equal values.

Executors of Spark read them as the library does, so nothing here loads pyiceberg, but for deletes in Avro.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import orc

from parquet_bloom.errors import DamagedFileError, ParquetBloomError, TableFormatError, first_line
from parquet_bloom.storage.open_file import arrow_input
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.tables import deletion_vector

# --- delete files ---------------------------------------------------------------------------------
#
# Files that hold deletes: position deletes in Parquet, ORC or Avro, and deletion vectors in Puffin files.
#
# Executors of Spark read them too, without pyiceberg: only Avro needs it.
# Source: Iceberg table spec, "Position Delete Files"; Puffin spec, blob type deletion-vector-v1.

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
            with arrow_input(self.location) as file:
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
        except ParquetBloomError:
            raise
        except Exception as error:  # Arrow's, and of Avro those of its decoder and codecs
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


def _parquet(location: Location) -> pa.Table:
    with arrow_input(location) as file:
        return pq.ParquetFile(file, read_dictionary=_COLUMNS[:1]).read(columns=_COLUMNS).select(_COLUMNS)


def _orc(location: Location) -> pa.Table:
    with arrow_input(location) as file:
        return orc.ORCFile(file).read(columns=_COLUMNS).select(_COLUMNS)


def _avro(location: Location) -> pa.Table:
    from pyiceberg.typedef import Record

    from parquet_bloom.tables.iceberg.entries import AvroBytes, BoundedFile
    from parquet_bloom.tables.iceberg.files import check_whole

    check_whole(location)
    with arrow_input(location) as file:
        source = AvroBytes(str(location), file.read())
    with BoundedFile[Record](source, avro_schema()) as reader:
        source.check(reader)
        rows = [(record[0], record[1]) for record in reader]
    return pa.table({"file_path": [path for path, _ in rows], "pos": pa.array([at for _, at in rows], pa.int64())})


def avro_schema() -> Any:
    """The schema of position deletes, as pyiceberg has it."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import LongType, NestedField, StringType

    fields = zip((PATH, POSITION), _COLUMNS, (StringType(), LongType()), strict=True)
    return Schema(*(NestedField(number, name, kind, required=True) for number, name, kind in fields))


_READERS: dict[str, Callable[[Location], pa.Table]] = {"PARQUET": _parquet, "ORC": _orc, "AVRO": _avro}


# --- equality -------------------------------------------------------------------------------------
#
# Equality deletes: rows of a data file whose values in some columns equal those of a row of a delete file.
#
# NULL equals NULL. A column that a data file lacks has its partition's value there, else its default, else NULL; one
# that the table has dropped still counts. Applied are those over top-level columns of types whose equality is plain;
# floats, nested columns, and files that do not tell which column is which are refused.
#
# Source: Iceberg table spec, "Equality Delete Files".

_ID = b"PARQUET:field_id"
_LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}  # of these an array holds 2 GB
_ADVICE = "compact the table with its deletes first"


@dataclass(frozen=True, slots=True)
class EqualityColumn:
    """A column that rows are compared by.

    type    of its values here; None where their equality is not plain
    absent  the value in data files that lack it
    """

    name: str
    type: pa.DataType | None
    absent: pa.Scalar | None = None


@dataclass(frozen=True, slots=True)
class EqualityFile:
    """Equality deletes of one file. ids: of the columns that it is of."""

    location: Location
    format: str
    ids: tuple[int, ...]


def equal_positions(
    data: Location, files: Sequence[EqualityFile], columns: Mapping[int, EqualityColumn]
) -> NDArray[np.int64]:
    """The rows of a data file that its equality deletes delete, sorted: int64[n].

    Raises TableFormatError where that is not sure, StorageError, DamagedFileError.
    """
    found: NDArray[np.int64] = np.empty(0, np.int64)
    for ids in sorted({file.ids for file in files}):
        for number in ids:
            if number not in columns or columns[number].type is None:
                name = columns[number].name if number in columns else f"field {number}"
                raise TableFormatError(data, f"has equality deletes by {name}, which cannot be applied; {_ADVICE}")
        chosen = {number: columns[number] for number in ids}
        stored = _read(data, chosen, may_lack=True)
        deleted = pa.concat_tables([_deleted(file, chosen) for file in files if file.ids == ids])
        found = np.union1d(found, np.flatnonzero(_members(stored, deleted)))
    return found


def _deleted(file: EqualityFile, columns: Mapping[int, EqualityColumn]) -> pa.Table:
    if file.format != "PARQUET":
        raise TableFormatError(file.location, f"has equality deletes in {file.format}, which are not read; {_ADVICE}")
    return _read(file.location, columns, may_lack=False)


def _read(place: Location, columns: Mapping[int, EqualityColumn], *, may_lack: bool) -> pa.Table:
    """Some columns of a file, found by field id, in the types that they are compared in. Named by their numbers."""
    try:
        with arrow_input(place) as stream:
            # Imported files may have times of 96 bits; as nanoseconds these end in 2262.
            file = pq.ParquetFile(stream, arrow_extensions_enabled=False, coerce_int96_timestamp_unit="us")
            ids = [int((field.metadata or {}).get(_ID, -1)) for field in file.schema_arrow]
            there = {number: file.schema_arrow[ids.index(number)].name for number in columns if number in ids}
            if len(set(file.schema_arrow.names)) < len(ids):
                raise TableFormatError(
                    place, f"has two columns of one name, so equality deletes are not sure; {_ADVICE}"
                )
            # A data file may lack a column: its rows have `absent` there. If any column has no id, it may be that one,
            # so this is not sure.
            if len(there) < len(columns) and (not may_lack or -1 in ids):
                raise TableFormatError(place, f"does not say which column is which (field ids); {_ADVICE}")
            rows = file.metadata.num_rows
            table = file.read(columns=list(there.values()))
    except OSError as error:
        raise storage_error(place, error) from error
    except pa.ArrowException as error:
        raise DamagedFileError(place, f"cannot be read: {first_line(error)}") from error
    found = {}
    for number, column in columns.items():
        if number in there:
            found[str(number)] = _cast(place, table.column(there[number]), column)
        else:
            absent = pa.scalar(None, column.type) if column.absent is None else column.absent
            found[str(number)] = pa.chunked_array([pa.repeat(absent, rows)])
    return pa.table(found)


def _cast(place: Location, values: pa.ChunkedArray, column: EqualityColumn) -> pa.ChunkedArray:
    if isinstance(values.type, pa.ExtensionType):
        values = pa.chunked_array([chunk.storage for chunk in values.chunks], values.type.storage_type)
    try:
        return values.cast(column.type)
    except pa.ArrowException as error:
        reason = f"has {column.name} as {values.type}, so equality deletes by it cannot be applied; {_ADVICE}"
        raise TableFormatError(place, reason) from error


def _members(stored: pa.Table, deleted: pa.Table) -> NDArray[np.bool_]:
    """Whether each row of one table is one of another: bool[n]."""
    if not len(stored) or not len(deleted):
        return np.zeros(len(stored), bool)
    keys = np.zeros(len(stored) + len(deleted), np.int64)
    for name in stored.column_names:
        kind = stored.schema.field(name).type
        both = pa.chunked_array([*stored.column(name).chunks, *deleted.column(name).chunks], kind)
        both = both.cast(_LARGE.get(kind, kind))
        coded = both.dictionary_encode(null_encoding="encode")  # all chunks by one dictionary
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in coded.chunks]).astype(np.int64)
        _, keys = np.unique(keys * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    found: NDArray[np.bool_] = np.isin(keys[: len(stored)], keys[len(stored) :])
    return found


# --- row deletes ----------------------------------------------------------------------------------
#
# The deleted rows of one data file: positions of its deletion vector, of delete files, and those that values delete.
#
# Source: Iceberg table spec, "Row-level Deletes".


@dataclass(frozen=True, slots=True)
class RowDeletes:
    """The deleted rows of one data file; see source.snapshot.Deletes.

    path       of the data file, as the log has it
    location   where it lies
    vectors    its deletion vector; more than one only in a table that is wrong
    files      position deletes that may name it
    equality   files with equality deletes for it
    columns    by which these compare
    """

    path: str
    location: Location
    vectors: tuple[VectorBlob, ...] = ()
    files: tuple[PositionFile, ...] = ()
    equality: tuple[EqualityFile, ...] = ()
    columns: Mapping[int, EqualityColumn] = field(default_factory=dict)

    @property
    def rows(self) -> int | None:
        """How many; None: not known before they are read."""
        return self.vectors[0].rows if len(self.vectors) == 1 and not self.equality else None

    def positions(self) -> NDArray[np.int64]:
        """Their positions in the file, from 0, sorted, each once: int64[n].

        Raises TableFormatError for equality deletes that cannot be applied for sure, StorageError, FileError.
        """
        if self.vectors:
            found = [vector.positions() for vector in self.vectors]
        else:
            found = [file.positions(self.path) for file in self.files]
        if self.equality:
            found.append(equal_positions(self.location, self.equality, self.columns))
        return reduce(np.union1d, found, np.empty(0, np.int64))
