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


@lru_cache(64)
def _leaves_of(fields: tuple[Field, ...]) -> tuple[Leaf, ...]:
    import pyarrow.parquet as pq  # a tenth of a second, which only tables are to cost

    sink = io.BytesIO()
    pq.ParquetWriter(sink, schema_of(fields)).close()
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return decode_footer(data[-8 - length : -8], len(data) - 8 - length).leaves
