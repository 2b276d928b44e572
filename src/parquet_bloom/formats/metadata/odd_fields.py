"""Fields of a footer that the generated bindings drop, as their type is not that of today's format."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from parquet_bloom.errors import FooterError
from parquet_bloom.formats.thrift.compact_tree import I32, I64, STRUCT, Node, Template, parse

FILTER_FIELDS = {14: I64, 15: I32}  # of ColumnMetaData, as Thrift types
# How a filter of 2015 ends: three i32, of which numBits takes more than one byte. The bindings drop it, and
# to look for it in every footer's tree would take longer than reading the footer.
DRAFT_FILTER = re.compile(rb"\x15[\x80-\xff]{1,4}[\0-\x7f]\x15[\x80-\xff]{0,4}[\0-\x7f]\x15[\x80-\xff]{0,4}[\0-\x7f]\0")


def draft_structs(data: bytes) -> dict[tuple[int, int], bytes]:
    """The structs in field 7 of every chunk's Statistics, by (row group, column), as they lie in a footer."""
    found = {}
    try:
        for key, meta in _chunk_metas(data, {12: {}}):
            statistics = meta.get(12)
            if isinstance(statistics, Node) and statistics.wire(7) == STRUCT:
                found[key] = statistics.get(7)
    except FooterError:  # only the lenient reader takes it
        return {}
    return found


def foreign_filter_fields(data: bytes) -> set[tuple[int, int]]:
    """The (row group, column) whose ColumnMetaData 14 or 15 has another type than a filter's offset or length."""
    return {
        key
        for key, meta in _chunk_metas(data, {})
        if any(f.wire != FILTER_FIELDS.get(f.id, f.wire) for f in meta.fields)
    }


def _chunk_metas(data: bytes, template: Template) -> Iterator[tuple[tuple[int, int], Node]]:
    """The ColumnMetaData of every chunk that has one, opened as the template says."""
    for i, group in enumerate(_opened(parse(data, {4: {1: {3: template}}})[0].get(4))):
        for j, chunk in enumerate(_opened(group.get(1))):
            meta = chunk.get(3)
            if isinstance(meta, Node):
                yield (i, j), meta


def _opened(value: Any) -> list[Node]:
    return value if isinstance(value, list) else []
