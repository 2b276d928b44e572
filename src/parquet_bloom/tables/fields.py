"""A table's fields as the Arrow schema of its rows, and as leaves that predicates can be bound to."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa

from parquet_bloom.formats.metadata.footer import decode_footer
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.tables.snapshot import Field


def schema_of(fields: Sequence[Field]) -> pa.Schema:
    """The schema of the rows that are read from a table."""
    return pa.schema([pa.field(field.name, field.type, field.nullable) for field in fields])


def leaves_of(fields: Sequence[Field]) -> tuple[Leaf, ...]:
    """The leaves of a table's schema, as a file would have them that pyarrow writes now; index from 0."""
    return _leaves_of(tuple(fields))


def has_leaves(kind: pa.DataType) -> bool:
    """Whether a file can have a column of a type: none of a struct without fields, nor of what is made of such."""
    if pa.types.is_struct(kind):
        return any(has_leaves(kind.field(i).type) for i in range(kind.num_fields))
    if pa.types.is_map(kind):
        return has_leaves(kind.key_type) and has_leaves(kind.item_type)
    return has_leaves(kind.value_type) if pa.types.is_list(kind) else True


def _stored(kind: pa.DataType) -> pa.DataType:
    """A type without the parts that no file can have."""
    if pa.types.is_struct(kind):
        inner = [kind.field(i) for i in range(kind.num_fields)]
        return pa.struct([one.with_type(_stored(one.type)) for one in inner if has_leaves(one.type)])
    if pa.types.is_map(kind):
        key, item = (one.with_type(_stored(one.type)) for one in (kind.key_field, kind.item_field))
        return pa.map_(key, item, kind.keys_sorted)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_stored(kind.value_type)))
    return kind


@lru_cache(64)
def _leaves_of(fields: tuple[Field, ...]) -> tuple[Leaf, ...]:
    import pyarrow.parquet as pq  # a tenth of a second, which only tables are to cost

    stored = [pa.field(one.name, _stored(one.type), one.nullable) for one in schema_of(fields) if has_leaves(one.type)]
    sink = io.BytesIO()
    pq.ParquetWriter(sink, pa.schema(stored)).close()
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return decode_footer(data[-8 - length : -8], len(data) - 8 - length).leaves
