"""One Arrow type a column of a data set, where its files keep texts and bytes in several of Arrow's layouts.

    first file  string_view    the data set has string: no kernel of pyarrow compares or filters views
    next file   large_string   cast while it is read
    next file   string_view    read as a dictionary of strings, then cast

The layout of a file's columns is in the schema that Arrow's writers keep among its key-values. pyarrow reads a file as
that says, and holds its min and max, in that type, against a filter before anything is cast: with views it cannot
(`Function 'equal' has no kernel matching input types (string, string_view)`). A column that is read as a dictionary has
min and max of its plain type.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from parquet_bloom.formats.metadata.outline import Outline
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, FLBA, INT96, Leaf, leaves_of
from parquet_bloom.predicates.arrow_literals import is_list
from parquet_bloom.search.fragments import file_format

_SCHEMA_KEY = "ARROW:schema"  # base64 of an IPC message: the schema that an Arrow writer was given
_T = pa.types


def filterable(kind: pa.DataType, dictionaries: bool = True) -> pa.DataType:
    """A type with string in the place of string_view, binary of binary_view, list of list_view, at any depth.

    dictionaries  False: with the values' type in the place of a dictionary's too
    """
    if _T.is_string_view(kind):
        return pa.string()
    if _T.is_binary_view(kind):
        return pa.binary()
    if _T.is_dictionary(kind):
        values = filterable(kind.value_type)
        return pa.dictionary(kind.index_type, values, kind.ordered) if dictionaries else values
    if _T.is_struct(kind):
        return pa.struct([field.with_type(filterable(field.type, dictionaries)) for field in kind])
    if _T.is_map(kind):
        both = (field.with_type(filterable(field.type, dictionaries)) for field in (kind.key_field, kind.item_field))
        return pa.map_(*both, kind.keys_sorted)
    if not is_list(kind):
        return kind
    inner = kind.value_field.with_type(filterable(kind.value_type, dictionaries))
    if _T.is_fixed_size_list(kind):
        return pa.list_(inner, kind.list_size)
    large = _T.is_large_list(kind) or _T.is_large_list_view(kind)
    return pa.large_list(inner) if large else pa.list_(inner)


def dataset_schema(schema: pa.Schema, outlines: Iterable[Outline]) -> pa.Schema:
    """The schema of a data set whose first file has this one: each type is one that pyarrow can filter and cast to.

    outlines  of the data set's files. A dictionary is given up for its values where a file has values of a fixed
              length in that column, as pyarrow makes no dictionary of these
    """
    dictionaries = _with_dictionaries(schema)
    fixed: set[str] = set()
    if dictionaries:
        fixed = {leaf.path[0] for one in outlines for leaf in one.leaves if leaf.physical == FLBA}
    fields = []
    for field in schema:
        kind = filterable(field.type, field.name not in dictionaries & fixed)
        fields.append(field if kind == field.type else field.with_type(kind))
    return pa.schema(fields, schema.metadata)


def _with_dictionaries(schema: pa.Schema) -> set[str]:
    """The columns with a dictionary at some depth."""
    return {field.name for field in schema if any(map(_T.is_dictionary, _leaves(field.type)))}


def format_for(outline: Outline, schema: pa.Schema, *, of_table: bool, filtered: bool) -> ds.ParquetFileFormat:
    """How pyarrow reads a file into rows of this schema.

    of_table  times of 96 bits come in the table's unit, as nanoseconds end in 2262
    filtered  whether pyarrow's scanner gets filters; its min and max are then of plain types
    """
    read: dict[str, Any] = {}
    if of_table and any(leaf.physical == INT96 for leaf in outline.leaves):
        units = {field.type.unit for field in schema if _T.is_timestamp(field.type)}
        read["coerce_int96_timestamp_unit"] = units.pop() if len(units) == 1 else "us"
    if views := viewed_leaves(outline):
        # pyarrow makes no dictionaries from views, and has no use for min and max of lists.
        names = _with_dictionaries(schema)
        needed = [leaf for leaf in views if leaf.path[0] in names or (filtered and not leaf.repeated)]
        if needed:
            read["dictionary_columns"] = [".".join(leaf.path) for leaf in needed]
    return file_format(**read)


def viewed_leaves(outline: Outline) -> tuple[Leaf, ...]:
    """The columns of a file, under its own names, that pyarrow reads as views by itself."""
    pairs = outline.metadata.key_value_metadata or ()
    text = next((pair.value for pair in pairs if pair.key == _SCHEMA_KEY), None)
    at, n_leaves = _views(text) if text else ((), 0)
    if not at:
        return ()
    own = leaves_of(outline.metadata.schema)  # of a table's file the outline has the table's names
    if len(own) != n_leaves:  # which of them are views, pyarrow alone knows
        return tuple(leaf for leaf in own if leaf.physical == BYTE_ARRAY)
    return tuple(own[i] for i in at)


@lru_cache(64)
def _views(text: str) -> tuple[tuple[int, ...], int]:
    """Which leaves of an Arrow schema, counted in its order, are views, and how many leaves there are."""
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
    except (pa.ArrowException, OSError, binascii.Error, ValueError):
        return (), 0  # pyarrow says so when it reads the file
    leaves = [leaf for field in schema for leaf in _leaves(field.type)]
    return tuple(i for i, one in enumerate(leaves) if _T.is_string_view(one) or _T.is_binary_view(one)), len(leaves)


def _leaves(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types of the columns that Parquet makes of an Arrow type, in order."""
    if isinstance(kind, pa.BaseExtensionType):
        inner = kind.storage_type
        for leaf in _leaves(inner):  # an extension of views stays what it is
            yield kind if leaf == inner else leaf
    elif _T.is_map(kind):
        yield from _leaves(kind.key_type)
        yield from _leaves(kind.item_type)
    elif _T.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type)
    elif is_list(kind):
        yield from _leaves(kind.value_type)
    else:
        yield kind
