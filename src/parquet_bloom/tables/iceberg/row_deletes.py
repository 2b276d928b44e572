"""The deleted rows of one data file, read from files of deletes: by position, by a vector, by equal values.

Executors of Spark read them as the library does, so nothing here loads pyiceberg, but for deletes in Avro.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs, orc
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergLog
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import DoubleType, FloatType, NestedField, UUIDType

from parquet_bloom.errors import DamagedFileError, TableFormatError, first_line
from parquet_bloom.source.snapshot import Field, TableFile
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.tables import deletion_vector
from parquet_bloom.tables.iceberg.entries import Entries, Entry, PartitionKey
from parquet_bloom.tables.iceberg.files import Files
from parquet_bloom.tables.iceberg.schema import arrow_type

# --- files of deletes -----------------------------------------------------------------------------
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


# --- deletes by equal values ----------------------------------------------------------------------
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
        stored = _read(data, chosen, True)
        deleted = pa.concat_tables([_deleted(file, chosen) for file in files if file.ids == ids])
        found = np.union1d(found, np.flatnonzero(_members(stored, deleted)))
    return found


def _deleted(file: EqualityFile, columns: Mapping[int, EqualityColumn]) -> pa.Table:
    if file.format != "PARQUET":
        raise TableFormatError(file.location, f"has equality deletes in {file.format}, which are not read; {_ADVICE}")
    return _read(file.location, columns, False)


def _read(place: Location, columns: Mapping[int, EqualityColumn], may_lack: bool) -> pa.Table:
    """Some columns of a file, found by field id, in the types that they are compared in. Named by their numbers."""
    try:
        with filesystem_of(place).open_input_file(place.path) as stream:
            # Imported files may have times of 96 bits; as nanoseconds these end in 2262.
            file = pq.ParquetFile(stream, arrow_extensions_enabled=False, coerce_int96_timestamp_unit="us")
            ids = [int((field.metadata or {}).get(_ID, -1)) for field in file.schema_arrow]
            there = {number: file.schema_arrow[ids.index(number)].name for number in columns if number in ids}
            if len(set(file.schema_arrow.names)) < len(ids):
                raise TableFormatError(
                    place, f"has two columns of one name, so equality deletes are not sure; {_ADVICE}"
                )
            if len(there) < len(columns) and (not may_lack or -1 in ids):
                raise TableFormatError(place, f"does not tell which column is which (field ids); {_ADVICE}")
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


# --- the deleted rows of one data file ------------------------------------------------------------
#
# The deleted rows of one data file: positions of its deletion vector, of delete files, and those that values delete.
#
# Executors of Spark read them as the library does, so nothing here needs pyiceberg.
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


# --- which files of deletes apply -----------------------------------------------------------------
#
# Which rows of a data file a table has deleted: by position, by a deletion vector, or by the values of some columns.
#
#    position deletes   (path, position) pairs; of the file's partition, or of this file alone; not older than the file
#    deletion vector    of one file, whose position deletes it replaces
#    equality deletes   newer than the file; of its partition; of all files, if their spec has no fields but void ones
#
# Source: Iceberg table spec, "Scan Planning", "Row-level Deletes".


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
