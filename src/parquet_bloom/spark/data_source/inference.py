"""The schema of files as Spark gets it: of one footer, or of all; and the partition columns.

file    id int64, day string          folders   day=2026-01-31/
schema  id bigint, day date           a folder's column hides the file's, in its place
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.errors import DamagedFileError, RequestError, UnknownColumnError, first_line
from parquet_bloom.formats.metadata.schema import INT96
from parquet_bloom.spark.data_source.arrow_types import TypeMisfitError, held_schema, wider
from parquet_bloom.spark.data_source.hive import infer_types
from parquet_bloom.spark.data_source.units import first_file, look, no_files
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import side_by_side
from parquet_bloom.storage.source import Source

PYARROW_ERRORS = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """schema: as files have it, not yet as Spark gets it; keys: the partition columns; path: of the first file."""

    schema: pa.Schema
    keys: dict[str, pa.DataType]
    path: str

    def of(self, columns: Sequence[str] | None) -> pa.Schema:
        """Spark's schema of the columns named (None: all), in their order.

        Raises UnknownColumnError, and RequestError for a column of a type that Spark cannot hold.
        """
        fields = {field.name: field for field in self.schema} if columns is not None else {}
        fields |= {key: pa.field(key, kind) for key, kind in self.keys.items()}
        if columns is not None:
            for name in columns:
                if name not in fields:
                    raise UnknownColumnError(f"{self.path}: no column {name}; there are: {', '.join(fields)}")
                if name not in self.keys and self.schema.names.count(name) > 1:
                    raise RequestError(f"{self.path}: two columns are named {name}")
            return held_schema(pa.schema([fields[name] for name in columns]), self.path)
        inside = [fields.get(field.name, field) for field in self.schema]
        behind = [field for name, field in fields.items() if name not in self.schema.names]
        return held_schema(pa.schema([*inside, *behind]), self.path)


def infer_schema(
    names: Sequence[str],
    where: Storages,
    columns: Sequence[str] | None = None,
    merge: bool = False,
    raw_files: bool = False,
) -> InferredSchema:
    """Look at one file, or with `merge` at all, and at the folders that the driver lists anyway.

    columns  the only ones whose types matter; None: all
    Raises StorageError where there is no file; RequestError for types that cannot be merged;
    TableFormatError for a folder that is a table's, without raw_files.
    """
    limits = (sys.maxsize, sys.maxsize) if merge else ()
    seen = look(names, where, *limits, raw_files=raw_files)
    first = first_file(seen, where, raw_files)
    if first is None:
        raise no_files(names)
    files = [where.data_file(file.path, file.root) for file in seen.files] or [where.data_file(first.path, first.root)]
    keys = infer_types(file.partitions for file in files)
    if not merge:
        return InferredSchema(_schema_of(files[0]), keys, str(files[0]))
    schemas = side_by_side(_schema_of, files)
    named: dict[str, pa.DataType] = {}
    for file, schema in zip(files, schemas, strict=True):
        wanted = [field for field in schema if columns is None or field.name in columns]
        for field in held_schema(pa.schema(wanted), file):
            try:
                named[field.name] = wider(named[field.name], field.type) if field.name in named else field.type
            except TypeMisfitError as error:
                raise RequestError(f"{file}: column {field.name} has types that cannot be merged: {error}") from None
    return InferredSchema(pa.schema(list(named.items())), keys, str(files[0]))


def _schema_of(found: DataFile) -> pa.Schema:
    with Source(found) as source:
        source.outline()  # refuses what pyarrow must not see
        return types_of(source, open_parquet(source))


def open_parquet(source: Source) -> Any:
    """pyarrow's reader of an open file. Raises DamagedFileError."""
    try:
        return pq.ParquetFile(source.arrow_file(), coerce_int96_timestamp_unit="us", pre_buffer=source.is_remote)
    except PYARROW_ERRORS as error:
        raise damaged(source.path, error) from error


def damaged(path: object, error: Exception) -> DamagedFileError:
    """Make one line of ours of pyarrow's error over a file."""
    return DamagedFileError(path, f"cannot be read: {first_line(error)}")


def types_of(source: Source, file: Any) -> pa.Schema:
    """The file's schema in Arrow; INT96 is in UTC, which pyarrow does not say."""
    columns = [leaf.path[0] for leaf in source.outline().leaves if leaf.physical == INT96]
    schema = file.schema_arrow
    for at, field in enumerate(schema):
        if field.name in columns:
            schema = schema.set(at, field.with_type(_in_utc(field.type)))
    return schema


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is None:
        return pa.timestamp("us", "UTC")
    if pa.types.is_list(kind):
        return pa.list_(_in_utc(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_utc(field.type)) for field in kind])
    return kind
