"""An Iceberg schema as fields, and the leaf that each field id is.

Types are those that pyarrow reads from Parquet. A file's column is found by field id; where a file has no ids, by the
names in the table property schema.name-mapping.default. What that leaves out such a file lacks. The log knows columns
by the ids that they had when a file came; where a name went from one column to another since, that may be another one.

Source: Iceberg table spec, "Schemas and Data Types", "Column Projection", "Name Mapping Serialization".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from parquet_bloom.format.schema import Leaf
from parquet_bloom.source.columns import leaves_of
from parquet_bloom.source.snapshot import Field

_ABSENT = "\0"  # no file has a column of this name
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
    """A primitive field of a schema: its id, leaf and type, and the top-level field that it is, or is in.

    doubtful  in files without ids it may be another column, or NULL, than the one that the log counted: a mapping of
              names leaves it out, or one of its names was another's
    """

    field_id: int
    leaf: Leaf
    type: IcebergType
    top: str
    doubtful: bool = False


def arrow_type(kind: IcebergType) -> pa.DataType:
    """The type of a primitive field's rows. Raises KeyError for one that this version does not know."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return pa.binary(len(kind))
    return _PRIMITIVES[type(kind)]


class NameHistory:
    """The fields of each column name, now and in older schemas of a table, and its mapping of names (None: no mapping).

    moved  ids of fields of which a name is, or was, another field's of the same group, or which the mapping does not
           have any more; all, where the table has a mapping and not all its schemas, as clean-ups take old ones
    """

    def __init__(self, schemas: Collection[Schema], mapping: NameMapping | None) -> None:
        self.mapping = None if mapping is None else list(mapping)
        mapped = set(_names_in_mapping(self.mapping or [], None))
        told = {name for schema in schemas for name in _names_in_schema(schema.as_struct(), None)}
        owners: defaultdict[tuple[int | None, str], set[int]] = defaultdict(set)
        for group, name, number in told | mapped:
            owners[group, name].add(number)
        self.moved = {number for numbers in owners.values() if len(numbers) > 1 for number in numbers}
        known = {number for _, _, number in mapped}
        self.moved |= {number for group, name, number in told - mapped if number in known}
        numbers = {schema.schema_id for schema in schemas}
        if mapping is not None and numbers != set(range(len(numbers))):
            self.moved |= {number for _, _, number in told}


Name = tuple[int | None, str, int]  # the group's field id, None for the root; the name; the field's id


def _names_in_schema(kind: IcebergType, group: int | None) -> Iterator[Name]:
    for field in _below(kind):
        yield group, field.name, field.field_id
        yield from _names_in_schema(field.field_type, field.field_id)


def _names_in_mapping(entries: Iterable[MappedField], group: int | None) -> Iterator[Name]:
    for entry in entries:
        if entry.field_id is not None:
            yield from ((group, name, entry.field_id) for name in _names(entry))
            yield from _names_in_mapping(entry.fields, entry.field_id)


def fields_of(schema: Schema, named: NameHistory, table: str) -> tuple[Field, ...]:
    """The fields of a schema. Raises TableFormatError for a type that this version does not know."""
    reused = named.moved if named.mapping is None else set()
    try:
        return tuple(_field(field, named.mapping, reused) for field in schema.fields)
    except KeyError as error:
        raise TableFormatError(table, f"has a column of type {error.args[0].__name__}, which cannot be read") from error


def columns_of(schema: Schema, fields: Sequence[Field], named: NameHistory) -> Mapping[int, Column]:
    """The primitive fields of a schema by their ids."""
    moved = set() if named.mapping is None else named.moved
    leaves = iter(leaves_of(fields))
    found = {}
    for top in fields:
        for field, doubtful in _primitive(top, moved):
            assert field.field_id is not None, "every field of an Iceberg schema has one"
            kind = schema.find_type(field.field_id)
            found[field.field_id] = Column(field.field_id, next(leaves), kind, top.name, doubtful)
    return found


def _primitive(field: Field, moved: Collection[int], doubtful: bool = False) -> Iterator[tuple[Field, bool]]:
    doubtful = doubtful or field.physical == _ABSENT or field.field_id in moved
    if not field.children:
        yield field, doubtful
    for child in field.children:
        yield from _primitive(child, moved, doubtful)


def _field(field: NestedField, mapped: list[MappedField] | None, reused: Collection[int]) -> Field:
    entry = next((entry for entry in mapped or () if entry.field_id == field.field_id), None)
    names = _names(entry) or ([""] if mapped is None else [_ABSENT])
    below = [] if entry is None else list(entry.fields)  # an entry without nested ones counts as false
    children = _children(field.field_type, None if mapped is None else below, reused)
    kind = _nested(field.field_type, children) if children else arrow_type(field.field_type)
    default = None if field.initial_default is None or children else pa.scalar(field.initial_default, kind)
    return Field(
        field.name,
        kind,
        field.optional,
        field.field_id,
        names[0],
        children,
        default,
        tuple(names[1:]),
        field.field_id in reused,
    )


def _names(entry: MappedField | None) -> list[str]:
    """The names of an entry; where it lacks the optional key "names", pyiceberg 0.12 has a class there."""
    return entry.names if entry is not None and isinstance(entry.names, list) else []


def _below(kind: IcebergType) -> Sequence[NestedField]:
    """The fields right below one of a type: of a struct, a list's element, key and value of a map."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return [kind.element_field]
    return [kind.key_field, kind.value_field] if isinstance(kind, MapType) else []


def _children(kind: IcebergType, mapped: list[MappedField] | None, reused: Collection[int]) -> tuple[Field, ...]:
    return tuple(_field(child, mapped, reused) for child in _below(kind))


def _nested(kind: IcebergType, children: tuple[Field, ...]) -> pa.DataType:
    inner = [pa.field(child.name, child.type, child.nullable) for child in children]
    if isinstance(kind, StructType):
        return pa.struct(inner)
    if isinstance(kind, ListType):
        return pa.list_(inner[0])
    return pa.map_(inner[0], inner[1])
