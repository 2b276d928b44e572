"""An outline: the part of a footer that verdicts on row groups need, as arrays.

    slots  int64[slot, row group, column]: offsets, lengths and counts of each column chunk, NONE where
           the footer has none; the bytes of statistics are spans (offset, length) of `data`

A footer of a hundred row groups is thousands of Python objects through the generated bindings. The
compiled walk (kernels.compact_walk) fills these arrays at a fraction of a microsecond a chunk; where
it meets anything unexpected, the bindings do the same, and say what is wrong. Tests hold both against each
other over every file there is. storage.open_file chooses between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData, FileMetaData, SchemaElement
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import DRAFT_FILTER, LIST, STRUCT, draft_structs, field_header, list_header
from parquet_bloom.format.footer import MAGIC, Footer
from parquet_bloom.format.schema import Leaf, leaves_of

NONE = np.iinfo(np.int64).min
_LAST = np.iinfo(np.int64).max


class Slot(IntEnum):
    """The slots of a column chunk; a span takes two, its offset and its length."""

    NUM_VALUES = 0
    COMPRESSED_SIZE = 1
    DATA_PAGE = 2
    DICTIONARY_PAGE = 3
    FILTER_OFFSET = 4
    FILTER_LENGTH = 5
    OFFSET_INDEX = 6
    COLUMN_INDEX = 7
    NULL_COUNT = 8
    NAN_COUNT = 9
    OLD_MAX = 10
    OLD_MIN = 12
    MAX_VALUE = 14
    MIN_VALUE = 16
    TYPE = 18
    KEY_VALUES = 19
    DRAFT_FILTER = 21  # Statistics 7 where it is a struct
    COUNT = 23


_BOUNDS = (Slot.OLD_MAX, Slot.OLD_MIN, Slot.MAX_VALUE, Slot.MIN_VALUE)
_NEEDED = (Slot.NUM_VALUES, Slot.COMPRESSED_SIZE, Slot.DATA_PAGE, Slot.TYPE)


@dataclass
class Outline:
    """An outline of one file.

    data      the bytes that spans speak of
    start     of the footer, bytes from the start of the file
    leaves    the columns
    metadata  FileMetaData of which only the schema and what stands behind the row groups is kept: key-values,
              writer, orders
    rows      int64[row groups]
    slots     int64[Slot.COUNT, row groups, columns]
    memory    of format.derived: what others derive from this outline and keep with it
    """

    data: bytes
    start: int
    leaves: tuple[Leaf, ...]
    metadata: FileMetaData
    rows: NDArray[np.int64]
    slots: NDArray[np.int64]
    memory: dict[Any, Any] = field(default_factory=dict)

    @property
    def n_row_groups(self) -> int:
        """How many row groups the file has."""
        return len(self.rows)


# --- through the bindings -------------------------------------------------------------------------


def outline_of(footer: Footer) -> Outline:
    """The outline of a footer that the bindings decoded."""
    groups = footer.metadata.row_groups
    slots = np.full((Slot.COUNT, len(groups), len(footer.leaves)), NONE, np.int64)
    blob = bytearray()

    def keep(slot: int, i: int, j: int, data: bytes) -> None:
        slots[slot, i, j], slots[slot + 1, i, j] = len(blob), len(data)
        blob.extend(data)

    for i, j, chunk in footer.chunks():
        if chunk.file_path:
            raise FooterError(f"its column chunks lie in other files, such as {chunk.file_path}; name those instead")
        meta, statistics = chunk.meta_data, chunk.meta_data.statistics
        values = [
            meta.num_values,
            meta.total_compressed_size,
            meta.data_page_offset,
            meta.dictionary_page_offset,
            meta.bloom_filter_offset,
            meta.bloom_filter_length,
            chunk.offset_index_offset,
            chunk.column_index_offset,
        ]
        if statistics is not None:
            values += [statistics.null_count, statistics.nan_count]
            bounds = (statistics.max, statistics.min, statistics.max_value, statistics.min_value)
            for at, bound in zip(_BOUNDS, bounds, strict=True):
                if bound is not None:
                    keep(at, i, j, bound)
        if meta.key_value_metadata:
            keep(
                Slot.KEY_VALUES, i, j, compact.encode(ColumnMetaData(key_value_metadata=meta.key_value_metadata))[1:-1]
            )
        for slot, value in enumerate(values):
            if value is not None:
                slots[slot, i, j] = value
        slots[Slot.TYPE, i, j] = meta.type
    if DRAFT_FILTER.search(footer.data):
        for (i, j), data in draft_structs(footer.data).items():
            keep(Slot.DRAFT_FILTER, i, j, data)
    rows = np.array([group.num_rows or 0 for group in groups], np.int64)
    metadata = footer.metadata
    rest = FileMetaData(
        schema=metadata.schema,
        row_groups=[],
        key_value_metadata=metadata.key_value_metadata,
        created_by=metadata.created_by,
        column_orders=metadata.column_orders,
    )
    return Outline(bytes(blob), footer.start, footer.leaves, rest, rows, slots)


# --- through the compiled walk --------------------------------------------------------------------

_ROW_GROUP, _CHUNK, _META, _STATISTICS = range(4)


@lru_cache(1)
def _actions() -> NDArray[np.int64]:
    """The walk's table, from the field ids and types of parquet.thrift."""
    from parquet_bloom.kernels import compact_walk as w

    i32, i64, binary = 5, 6, 8
    table = np.zeros((4, w.FIELDS, 3), np.int64)
    table[_ROW_GROUP, 1] = w.OUTER, _CHUNK, LIST
    table[_ROW_GROUP, 3] = w.STORE, 0, i64
    table[_CHUNK, 1] = w.STOP_ALL, 0, 0  # file_path
    table[_CHUNK, 3] = w.ENTER, _META, STRUCT
    table[_CHUNK, 4] = w.STORE, Slot.OFFSET_INDEX, i64
    table[_CHUNK, 6] = w.STORE, Slot.COLUMN_INDEX, i64
    table[_CHUNK, 8] = table[_CHUNK, 9] = w.STOP_ALL, 0, 0  # encrypted
    for id, slot, wire in (
        (1, Slot.TYPE, i32),
        (5, Slot.NUM_VALUES, i64),
        (7, Slot.COMPRESSED_SIZE, i64),
        (9, Slot.DATA_PAGE, i64),
        (11, Slot.DICTIONARY_PAGE, i64),
        (14, Slot.FILTER_OFFSET, i64),
        (15, Slot.FILTER_LENGTH, i32),
    ):
        table[_META, id] = w.STORE, slot, wire
    table[_META, 8] = w.SPAN_IF, Slot.KEY_VALUES, LIST
    table[_META, 12] = w.ENTER, _STATISTICS, STRUCT
    table[_STATISTICS, 7] = w.SPAN_IF, Slot.DRAFT_FILTER, STRUCT
    table[_STATISTICS, 3] = w.STORE, Slot.NULL_COUNT, i64
    table[_STATISTICS, 9] = w.STORE, Slot.NAN_COUNT, i64
    for id, slot in ((1, Slot.OLD_MAX), (2, Slot.OLD_MIN), (5, Slot.MAX_VALUE), (6, Slot.MIN_VALUE)):
        table[_STATISTICS, id] = w.SPAN, slot, binary
    return table


def walk_outline(data: bytes, start: int) -> Outline | None:
    """Read footer bytes by the compiled walk; None where it meets anything it does not expect."""
    from parquet_bloom.kernels import compact_walk

    view = np.frombuffer(data, np.uint8)
    at = last = 0
    leaves: tuple[Leaf, ...] | None = None
    schema: list[SchemaElement] | None = None
    rows = slots = None
    rest = b""
    try:
        while (header := field_header(data, at, last)) is not None:
            id, wire, value = header
            if not last < id < 1 << 15:
                return None
            if id == 4 and leaves is not None:
                n, kind, first = list_header(data, value)
                if wire != LIST or (n and (kind != STRUCT or not leaves)) or n * len(leaves) > len(data):
                    return None
                rows = np.full((1, n), NONE, np.int64)
                slots = np.full((Slot.COUNT, n, len(leaves)), NONE, np.int64)
                at = compact_walk.walk(view, first, n, _actions(), rows, slots)
            else:
                at = compact_walk.end_of(view, value, wire)
            if at < 0:
                return None
            if id == 2:
                schema, leaves = _schema(data[value:at]) if wire == LIST else (None, None)
            elif id == 4:
                rest = data[at:]
            last = id
        if leaves is None or rows is None or slots is None:
            return None
        # The fields behind row_groups, as a footer that has nothing else: fields 1 to 4 are passed over.
        metadata, _ = compact.decode(FileMetaData, b"\x49\x0c" + rest)
    except FooterError:
        return None
    if metadata.encryption_algorithm is not None or (rows == NONE).any():
        return None
    if any((slots[slot] == NONE).any() for slot in _NEEDED):
        return None
    metadata.schema = schema
    return Outline(data, start, leaves, metadata, rows[0], slots)


def extents(outline: Outline) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and stop of every chunk's pages, as footer.chunk_extent has them: int64[row groups, columns]."""
    slots = outline.slots
    data, dictionary = slots[Slot.DATA_PAGE], slots[Slot.DICTIONARY_PAGE]
    start = np.where((dictionary >= 4) & (dictionary < data), dictionary, data)
    size = slots[Slot.COMPRESSED_SIZE]
    stop = start + size
    # A damaged size may end past 64 bits, where numpy goes round to the other end.
    stop = np.where((size >= 0) == (stop >= start), stop, np.where(size >= 0, _LAST, -_LAST))
    empty = (data < len(MAGIC)) & (slots[Slot.NUM_VALUES] == 0)
    return np.where(empty, data, start), np.where(empty, data, stop)


@lru_cache(64)
def _schema(schema: bytes) -> tuple[list[SchemaElement], tuple[Leaf, ...]]:
    """A schema and its leaves, by the bytes of its list. All outlines of such a schema share them."""
    metadata, _ = compact.decode(FileMetaData, b"\x29" + schema + b"\0")
    return metadata.schema or [], leaves_of(metadata.schema or [])
