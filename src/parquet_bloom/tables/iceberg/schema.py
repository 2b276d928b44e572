"""An Iceberg schema as fields, and the leaf that each field id is.

Types are those that pyarrow reads from Parquet. A file's column is found by field id; where a file has no ids, by the
names in the table property schema.name-mapping.default.

Source: Iceberg table spec, "Schemas and Data Types", "Column Projection", "Name Mapping Serialization".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)

from parquet_bloom.errors import TableFormatError
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.tables.fields import leaves_of
from parquet_bloom.tables.snapshot import Field

_PRIMITIVES: dict[Any, pa.DataType] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    TimestampNanoType: pa.timestamp("ns"),
    TimestamptzNanoType: pa.timestamp("ns", "UTC"),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    GeometryType: pa.binary(),  # WKB; what the log says of it are corners of a box, which nobody asks here
    GeographyType: pa.binary(),
    UUIDType: pa.uuid(),
    UnknownType: pa.null(),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A primitive field of a schema: its id, leaf and type, and the top-level field that it is, or is in."""

    field_id: int
    leaf: Leaf
    type: IcebergType
    top: str


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The type of a primitive field's rows. Raises KeyError for one that this version does not know."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return pa.binary(len(kind))
    return _PRIMITIVES[type(kind)]


def fields_of(schema: Schema, mapping: NameMapping | None, table: str) -> tuple[Field, ...]:
    """The fields of a schema. Raises TableFormatError for a type that this version does not know."""
    try:
        return tuple(_field(field, list(mapping) if mapping else []) for field in schema.fields)
    except KeyError as error:
        raise TableFormatError(table, f"has a column of type {error.args[0].__name__}, which cannot be read") from error


def columns_of(schema: Schema, fields: Sequence[Field]) -> Mapping[int, Column]:
    """The primitive fields of a schema by their ids."""
    leaves = iter(leaves_of(fields))
    found = {}
    for top in fields:
        for field in _primitive(top):
            assert field.field_id is not None, "every field of an Iceberg schema has one"
            found[field.field_id] = Column(field.field_id, next(leaves), schema.find_type(field.field_id), top.name)
    return found


def _primitive(field: Field) -> Iterator[Field]:
    if not field.children:
        yield field
    for child in field.children:
        yield from _primitive(child)


def _field(field: NestedField, mapped: list[MappedField]) -> Field:
    entry = next((entry for entry in mapped if entry.field_id == field.field_id), None)
    names = [] if entry is None else entry.names  # an entry without nested ones counts as false
    children = _children(field.field_type, [] if entry is None else list(entry.fields))
    kind = _nested(field.field_type, children) if children else arrow_type(field.field_type)
    default = None if field.initial_default is None or children else pa.scalar(field.initial_default, kind)
    return Field(
        field.name, kind, field.optional, field.field_id, names[0] if names else "", children, default, tuple(names[1:])
    )


def _children(kind: IcebergType, mapped: list[MappedField]) -> tuple[Field, ...]:
    if isinstance(kind, StructType):
        return tuple(_field(child, mapped) for child in kind.fields)
    if isinstance(kind, ListType):
        return (_field(kind.element_field, mapped),)
    if isinstance(kind, MapType):
        return (_field(kind.key_field, mapped), _field(kind.value_field, mapped))
    return ()


def _nested(kind: IcebergType, children: tuple[Field, ...]) -> pa.DataType:
    inner = [pa.field(child.name, child.type, child.nullable) for child in children]
    if isinstance(kind, StructType):
        return pa.struct(inner)
    if isinstance(kind, ListType):
        return pa.list_(inner[0])
    return pa.map_(inner[0], inner[1])
