"""Rows of a file as rows of its table: columns by their ids or physical names, promoted types, constants, defaults.

file, old schema                 table
col-7f: int32          ->        id: int64                     found by its field id, cast
place: {x, y}          ->        place: {longitude, y, z}      renamed, z added
                       ->        day: date                     a partition value
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import SchemaElement
from parquet_bloom.formats.numbers import decimal_casts
from parquet_bloom.tables.columns import Match, is_list, matches
from parquet_bloom.tables.snapshot import Field, Snapshot, TableFile


class Projection:
    """How rows of one file become rows of its table.

    Raises TableFormatError where it cannot be told which column of the file is meant.
    """

    def __init__(self, snapshot: Snapshot, file: TableFile, schema: Sequence[SchemaElement]) -> None:
        found = matches(snapshot.fields, snapshot.by_id, schema, file, snapshot.logged)
        self._logged = snapshot.logged
        self._constants = file.constants
        self._matches = {field.name: match for field, match in zip(snapshot.fields, found, strict=True)}
        self._fields = {field.name: field for field in snapshot.fields}

    def stored(self, names: Sequence[str]) -> list[str]:
        """The file's own names of the columns that these of the table are made of, each once."""
        return list(dict.fromkeys(m.name for m in map(self._matches.__getitem__, names) if m.at is not None))

    def batch(self, batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        """The columns of the table with these names, of rows of the file.

        batch  with the columns that `stored` names, in that order
        Raises pyarrow's errors for a value that has no place in the table's type.
        """
        at = {name: i for i, name in enumerate(self.stored(names))}
        columns = []
        for name in names:
            match = self._matches[name]
            if match.at is None:
                columns.append(self._absent(self._fields[name], batch.num_rows))
            else:
                columns.append(_values(match, batch.column(at[match.name])))
        schema = pa.schema([pa.field(name, self._fields[name].type, self._fields[name].nullable) for name in names])
        if not columns:
            return batch.select([])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def same_names(self) -> bool:
        """Whether each column of the table has its name in the file, and no other column has."""
        return all(match.same_names for match in self._matches.values())

    def absent(self) -> Mapping[str, pa.Scalar]:
        """Top-level columns that are not read from the file, with their value; NULL only where the file may have it."""
        lacking = [field for name, field in self._fields.items() if self._matches[name].at is None]
        values = {field.name: self._constants.get(field.name, field.default) for field in lacking}
        told = {name: value for name, value in values.items() if value is not None}
        return {name: value for name, value in told.items() if value.is_valid or name in self._logged}

    def lacks_nested_default(self) -> str | None:
        """The name of a field of a struct that the file lacks, and whose value in its rows is a default; None: none."""
        found = (_defaulted(match, match.field.name) for match in self._matches.values())
        return next((name for name in found if name is not None), None)

    def _absent(self, field: Field, n: int) -> pa.Array:
        return repeated(self._constants.get(field.name, field.default), field.type, n)


def _defaulted(match: Match, name: str) -> str | None:
    if match.at is None:
        return None
    for child in match.children:
        below = f"{name}.{child.field.name}"
        default = child.field.default
        if child.at is None and default is not None and default.is_valid:
            return below
        if (found := _defaulted(child, below)) is not None:
            return found
    return None


def repeated(value: pa.Scalar | None, kind: pa.DataType, n: int) -> pa.Array:
    """One value in n rows; None: NULL."""
    if value is None or not value.is_valid:
        return pa.nulls(n, kind)
    if isinstance(kind, pa.BaseExtensionType):
        inner = value.value if isinstance(value, pa.ExtensionScalar) else value
        return pa.ExtensionArray.from_storage(kind, repeated(inner, kind.storage_type, n))
    return pa.repeat(value if value.type == kind else value.cast(kind), n)


def _values(match: Match, array: pa.Array) -> pa.Array:
    """The values of a field, of those that the file has of it."""
    kind = match.field.type
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _struct(match, array)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        return _map(match, array)
    if is_list(kind) and is_list(array.type):
        return _list(match, array)
    return _cast(array, kind)


def _struct(match: Match, array: pa.StructArray) -> pa.Array:
    columns = []
    for child in match.children:
        if child.at is None:
            columns.append(repeated(child.field.default, child.field.type, len(array)))
        else:
            columns.append(_values(child, array.field(child.at)))
    kind = match.field.type
    if not columns:
        return _cast(array, kind)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null())


def _list(match: Match, array: pa.Array) -> pa.Array:
    kind = match.field.type
    large = pa.types.is_large_list(array.type)
    if not large and not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.field(0)))
    offsets, first, last = _offsets(array)
    values = _values(match.children[0], array.values.slice(first, last - first))
    made = (pa.LargeListArray if large else pa.ListArray).from_arrays(offsets, values, mask=array.is_null())
    return made if made.type == kind else made.cast(kind)


def _map(match: Match, array: pa.MapArray) -> pa.Array:
    offsets, first, last = _offsets(array)
    keys, items = (
        _values(child, inner.slice(first, last - first))
        for child, inner in zip(match.children, (array.keys, array.items), strict=True)
    )
    made = pa.MapArray.from_arrays(offsets, keys, items, mask=array.is_null())
    return made if made.type == match.field.type else made.cast(match.field.type)


def _offsets(array: pa.Array) -> tuple[pa.Array, int, int]:
    """Where each list starts and ends, counted from the first of these lists; and where in `values` these lie."""
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
    return pa.array(np.subtract(offsets, first, dtype=offsets.dtype)), first, last


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if isinstance(array.type, pa.BaseExtensionType):
        return _cast(array.storage, kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cast(array, kind.storage_type))
    if pa.types.is_decimal(array.type) and pa.types.is_floating(kind):
        for step in decimal_casts(kind):
            array = array.cast(step)
        return array
    if pa.types.is_integer(array.type) and pa.types.is_floating(kind):
        return array.cast(kind, safe=False)  # to the nearest; a safe cast refuses what no float is
    return array.cast(kind)
