"""An outline: the part of a footer that verdicts on row groups need, as arrays.

    slots  int64[slot, row group, column]: offsets, lengths and counts of each column chunk, NONE where
           the footer has none; the bytes of statistics are spans (offset, length) of `data`

A footer of a hundred row groups is thousands of Python objects through the generated bindings. The
compiled walk (kernels.compact_walk) fills these arrays at a fraction of a microsecond a chunk; where
it meets anything unexpected, the bindings do the same, and say what is wrong. Tests hold both against each
other over every file there is. storage.open_file chooses between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData, FileMetaData, KeyValue, SchemaElement
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import (
    DRAFT_FILTER,
    draft_structs,
)
from parquet_bloom.format.footer import MAGIC, Footer
from parquet_bloom.format.schema import Leaf

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
    CODEC = 23
    OFFSET_INDEX_LENGTH = 24
    COLUMN_INDEX_LENGTH = 25
    COUNT = 26


BOUNDS = (Slot.OLD_MAX, Slot.OLD_MIN, Slot.MAX_VALUE, Slot.MIN_VALUE)
SPANS = (*BOUNDS, Slot.KEY_VALUES, Slot.DRAFT_FILTER)


@dataclass
class Outline:
    """An outline of one file.

    data      the bytes that spans point into: the footer, or, through the bindings, only the values that were kept
    start     of the footer, bytes from the start of the file
    leaves    the columns
    metadata  FileMetaData of which only the schema and what stands behind the row groups is kept: key-values,
              writer, orders
    rows      int64[row groups]
    slots     int64[Slot.COUNT, row groups, columns]
    memory    of `derived`: what others derive from this outline and keep with it
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

    @property
    def created_by(self) -> str | None:
        """The program that wrote the file."""
        name: str | None = self.metadata.created_by
        return name

    @property
    def key_values(self) -> list[KeyValue] | None:
        """The file's key-values; None where the footer has no list of them."""
        pairs: list[KeyValue] | None = self.metadata.key_value_metadata
        return pairs

    @property
    def schema_elements(self) -> list[SchemaElement]:
        """The schema as it lies in the footer."""
        elements: list[SchemaElement] = self.metadata.schema
        return elements

    def renamed(self, leaves: tuple[Leaf, ...]) -> Outline:
        """The same with other names of its leaves, and nothing derived yet."""
        return replace(self, leaves=leaves, memory={})

    # An outline may be that of several files, format.outlines.JoinedOutline. What may differ between them:

    @property
    def representative(self) -> Outline:
        """The outline of one file that has what all have in common: writer, column orders, proof of statistics."""
        return self

    @property
    def footers(self) -> Sequence[int] | NDArray[np.int64]:
        """The start of the footer of each file."""
        return (self.start,)

    @property
    def footer_of(self) -> NDArray[np.int64] | int:
        """The start of the footer of each row group's file: a number, or int64[row groups]."""
        return self.start

    def in_files_with_any(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_] | bool:
        """Find the row groups of files in which some flag is True: one answer for all of them, or bool[row groups]."""
        return bool(flags.any())


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
        # In the order of Slot, from NUM_VALUES to COLUMN_INDEX; then NULL_COUNT and NAN_COUNT.
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
            for at, bound in zip(BOUNDS, bounds, strict=True):
                if bound is not None:
                    keep(at, i, j, bound)
        if meta.key_value_metadata:
            # The list's bytes, as the walk takes them: without the header of its field, and the end of the struct.
            alone = ColumnMetaData(key_value_metadata=meta.key_value_metadata)
            keep(Slot.KEY_VALUES, i, j, compact.encode(alone)[1:-1])
        for slot, value in enumerate(values):
            if value is not None:
                slots[slot, i, j] = value
        slots[Slot.TYPE, i, j] = meta.type
        slots[Slot.CODEC, i, j] = NONE if meta.codec is None else meta.codec
        for slot, length in (
            (Slot.OFFSET_INDEX_LENGTH, chunk.offset_index_length),
            (Slot.COLUMN_INDEX_LENGTH, chunk.column_index_length),
        ):
            slots[slot, i, j] = NONE if length is None else length
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


# --- where pages lie --------------------------------------------------------------------------------


def extents(outline: Outline) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Start and stop of every chunk's pages, as footer.chunk_extent has them: int64[row groups, columns]."""
    return extents_in(outline.slots)


def extents_in(slots: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same of slots."""
    data, dictionary = slots[Slot.DATA_PAGE], slots[Slot.DICTIONARY_PAGE]
    start = np.where((dictionary >= len(MAGIC)) & (dictionary < data), dictionary, data)
    size = slots[Slot.COMPRESSED_SIZE]
    stop = start + size
    # A damaged size may end past 64 bits, where numpy goes round to the other end.
    stop = np.where((size >= 0) == (stop >= start), stop, np.where(size >= 0, _LAST, -_LAST))
    empty = (data < len(MAGIC)) & (slots[Slot.NUM_VALUES] == 0)
    return np.where(empty, data, start), np.where(empty, data, stop)
