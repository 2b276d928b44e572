"""Equality deletes: rows of a data file whose values in some columns equal those of a row of a delete file.

NULL equals NULL. A column that a data file lacks has its partition's value there, else its default, else NULL; one that
the table has dropped still counts. Applied are those over top-level columns of types whose equality is plain; floats,
nested columns, and files that do not tell which column is which are refused.

Source: Iceberg table spec, "Equality Delete Files".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, TableFormatError, first_line
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.tables.iceberg.delete_files import filesystem_of

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
