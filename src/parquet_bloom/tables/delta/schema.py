"""A Delta table's schema (JSON) as Fields, with column mapping and widened types.

Source: the Delta protocol, "Schema Serialization Format", "Column Mapping" and "Type Widening".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import TableFormatError
from parquet_bloom.tables.snapshot import Field, LeafPath

_PLAIN = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_PHYSICAL, _ID, _CHANGES = "delta.columnMapping.physicalName", "delta.columnMapping.id", "delta.typeChanges"


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf that statistics may speak of: of structs alone, not of lists and maps.

    path      in the table
    physical  the same in files and statistics
    was_float whether files may hold it as FLOAT, though it is DOUBLE by now
    """

    path: LeafPath
    physical: LeafPath
    type: pa.DataType
    was_float: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a table, its leaves that statistics speak of, its partition columns, and how columns are found."""

    fields: tuple[Field, ...]
    columns: Mapping[LeafPath, Column]
    partition_columns: tuple[Field, ...]
    by_id: bool


def read_schema(table: object, metadata: Mapping[str, Any], mapping: bool = True) -> Schema:
    """The schema of a metaData action.

    mapping  whether the protocol has column mapping; without it the property that asks for one says nothing
    Raises TableFormatError for one that is not understood.
    """
    mode = metadata["configuration"].get("delta.columnMapping.mode", "none") if mapping else "none"
    if mode not in ("none", "name", "id"):
        raise TableFormatError(table, f"its columns are mapped by {mode}, which this version does not know")
    reader = _Reader(mode != "none")
    try:
        fields = reader.struct(json.loads(metadata["schemaString"]), (), ())
        by_name = {field.name: field for field in fields}
        partitions = tuple(by_name[str(name)] for name in metadata.get("partitionColumns") or ())
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise TableFormatError(table, f"its schema is not understood: {error}") from error
    return Schema(fields, {column.path: column for column in reader.columns}, partitions, mode == "id")


class _Reader:
    """Reads one schema; `columns` grows along the way."""

    def __init__(self, mapped: bool) -> None:
        self._mapped = mapped
        self.columns: list[Column] = []

    def struct(self, value: Mapping[str, Any], path: LeafPath | None, physical: LeafPath) -> tuple[Field, ...]:
        """The fields of a struct; path None: below a list or map."""
        return tuple(self._field(field, path, physical) for field in value["fields"])

    def _field(self, value: Mapping[str, Any], path: LeafPath | None, physical: LeafPath) -> Field:
        metadata = value.get("metadata") or {}
        name = str(value["name"])
        own = str(metadata[_PHYSICAL]) if self._mapped else name
        below = None if path is None else (*path, name)
        found = self._typed(value["type"], below, (*physical, own))
        changed = [change.get("fromType") for change in metadata.get(_CHANGES) or ()]
        if below is not None and not found.children:
            self.columns.append(Column(below, (*physical, own), found.type, "float" in changed))
        identity = int(metadata[_ID]) if self._mapped and _ID in metadata else None
        nullable = bool(value.get("nullable", True))
        return Field(name, found.type, nullable, identity, own if self._mapped else "", found.children)

    def _typed(self, value: Any, path: LeafPath | None, physical: LeafPath) -> Field:
        """A nameless field with type and children."""
        if isinstance(value, str):
            return Field("", _plain(value))
        kind = value["type"]
        if kind == "struct":
            children = self.struct(value, path, physical)
            return Field("", pa.struct([_arrow(child) for child in children]), children=children)
        if kind == "array":
            element = self._element("element", value["elementType"], bool(value.get("containsNull", True)))
            return Field("", pa.list_(_arrow(element)), children=(element,))
        if kind == "map":
            key = self._element("key", value["keyType"], False)
            item = self._element("value", value["valueType"], bool(value.get("valueContainsNull", True)))
            return Field("", pa.map_(_arrow(key), _arrow(item)), children=(key, item))
        raise ValueError(f"type {kind}")

    def _element(self, name: str, value: Any, nullable: bool) -> Field:
        found = self._typed(value, None, ())
        return Field(name, found.type, nullable, children=found.children)


def _plain(text: str) -> pa.DataType:
    if text in _PLAIN:
        return _PLAIN[text]
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None:
        raise ValueError(f"type {text}")
    precision, scale = int(decimal[1]), int(decimal[2])
    if not 0 <= scale <= precision:
        raise ValueError(f"{text}: a scale lies between 0 and the precision")
    return pa.decimal128(precision, scale)


def _arrow(field: Field) -> pa.Field:
    return pa.field(field.name, field.type, field.nullable)
