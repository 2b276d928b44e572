"""Columns of several leaves, read by files of one leaf each, as pages of different leaves begin at different rows.

    place.x   struct<x>  {1}, NULL, {2}       the same rows, so the same structs and lists are NULL or empty in both
    place.y   struct<y>  {a}, NULL, {b}
    place     struct<x, y>  {1, a}, NULL, {2, b}

Structs and lists are put together so. Maps are not: pyarrow makes a list of a map's keys alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import ConvertedType, SchemaElement
from parquet_bloom.format.arrow_types import fields_of, with_fields
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.schema import Leaf
from parquet_bloom.rows.layouts import leaf_types, own_leaves, stored_schema

_MAPS = (ConvertedType.MAP, ConvertedType.MAP_KEY_VALUE)
_T = pa.types


@derived
def leaves_by_column(outline: Outline) -> dict[str, tuple[Leaf, ...]]:
    """The top-level columns that can be read by pages, by their names in the file, with their leaves."""
    found: dict[str, list[Leaf]] = {}
    for leaf in own_leaves(outline):
        found.setdefault(leaf.path[0], []).append(leaf)
    return {
        name: tuple(leaves)
        for name, leaves in found.items()
        if len(leaves) == 1 or (_have_own_names(outline, leaves) and not any(_in_map(outline, leaf) for leaf in leaves))
    }


def _have_own_names(outline: Outline, leaves: Sequence[Leaf]) -> bool:
    """Whether no two groups or leaves of a column have one path."""
    places = {at for leaf in leaves for at in _path(outline, leaf)}
    return len(places) == len({leaf.path[:n] for leaf in leaves for n in range(1, len(leaf.path) + 1)})


def _in_map(outline: Outline, leaf: Leaf) -> bool:
    return any(
        element.converted_type in _MAPS or (element.logicalType is not None and element.logicalType.MAP is not None)
        for element in elements_of(outline, leaf)
    )


def elements_of(outline: Outline, leaf: Leaf) -> list[SchemaElement]:
    """The schema elements from a top-level column down to a leaf."""
    return [outline.metadata.schema[at] for at in _path(outline, leaf)]


def _path(outline: Outline, leaf: Leaf) -> list[int]:
    stops = _stops(outline)
    return [at for at in range(1, leaf.element + 1) if stops[at] > leaf.element]


@derived
def _stops(outline: Outline) -> list[int]:
    """The end of the elements below each schema element."""
    elements = outline.metadata.schema
    stops = [0] * len(elements)
    for at in range(len(elements) - 1, -1, -1):
        stop = at + 1
        for _ in range(elements[at].num_children or 0):
            stop = stops[stop]
        stops[at] = stop
    return stops


@derived
def _tops(outline: Outline) -> list[int]:
    """The first schema element of each top-level column."""
    tops, stops = [1], _stops(outline)
    while (after := stops[tops[-1]]) < len(stops):
        tops.append(after)
    return tops


@derived
def arrow_field(outline: Outline, leaf: Leaf) -> pa.Field | None:
    """The field of the Arrow schema that the writer put into the file, cut to one leaf; None without one.

    pyarrow takes a column's type in it by the column's place, and nothing where it has another number of columns.
    """
    stored, tops = stored_schema(outline), _tops(outline)
    if stored is None or len(stored) != len(tops):
        return None
    field = stored.field(tops.index(_path(outline, leaf)[0]))
    leaves = leaves_by_column(outline)[leaf.path[0]]
    return field if len(leaves) == 1 else field.with_type(_cut(field.type, leaves.index(leaf)))


def _cut(kind: pa.DataType, nth: int) -> pa.DataType:
    """A type with the nth of its leaves alone."""
    for field in fields_of(kind):
        n = len(list(leaf_types(field.type)))
        if nth < n:
            return with_fields(kind, [field.with_type(_cut(field.type, nth))])
        nth -= n
    return kind


def put_together(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    """A column by its leaves, in order, of the same rows. Raises pyarrow's errors where they are not alike."""
    if len(columns) == 1:
        return columns[0]
    return pa.chunked_array([reduce(_beside, [column.combine_chunks() for column in columns])])


def _beside(one: pa.Array, other: pa.Array) -> pa.Array:
    kind = one.type
    if _T.is_struct(kind) and _T.is_struct(other.type):
        fields, parts = fields_of(kind), [one.field(i) for i in range(kind.num_fields)]
        [more], part = fields_of(other.type), other.field(0)
        if more.name == fields[-1].name:  # a field within both
            parts[-1] = _beside(parts[-1], part)
            fields[-1] = fields[-1].with_type(parts[-1].type)
        else:
            fields, parts = [*fields, more], [*parts, part]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=one.is_null())
    if kind.id != other.type.id or not (_T.is_list(kind) or _T.is_large_list(kind)):
        raise pa.ArrowInvalid(f"{kind} and {other.type} are not put together")
    offsets, others = (array.offsets.to_numpy() for array in (one, other))
    values = _beside(*(a.values.slice(at[0], at[-1] - at[0]) for a, at in ((one, offsets), (other, others))))
    target = with_fields(kind, [kind.value_field.with_type(values.type)])
    starts = pa.array(offsets - offsets[0])
    return type(one).from_arrays(starts, values, type=target, mask=one.is_null())
