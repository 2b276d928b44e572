"""An outline: the part of the footers of one file, or of several, that verdicts on row groups need, as arrays.

    slots  int64[slot, row group, column]: offsets, lengths and counts of each column chunk, NONE where
           the footer has none; the bytes of statistics are spans (offset, length) of `data`

Files of one schema, one writer and one set of column orders have one outline, so that one pass over arrays decides
about all of them:

    file 0   row groups 0 to 9     its byte x has the address x
    file 1   row groups 10 to 12   its byte x has the address FAR + x
    file 2   ...                   2 FAR + x

Offsets in slots are those in each file. What filters.locate finds between neighbours it finds by addresses, so between
those of one file: files whose offsets leave their FAR bytes are not in an outline of several (outlines.joinable).

A footer of a hundred row groups is thousands of Python objects through the generated bindings. The compiled walk fills
these arrays at a fraction of a microsecond a chunk (format.outlines); where it meets anything unexpected, the bindings
do the same, and say what is wrong. Tests hold both against each other over every file there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData, FileMetaData, KeyValue, SchemaElement
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import (
    DRAFT_FILTER,
    LIST,
    FileMetaDataId,
    draft_structs,
    first_field,
    list_of_structs,
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
REPAIRED = b'"statistics_crc32":'  # in the key-values of a file whose statistics were repaired, see format.repairs


FILE_BITS = 42
FAR = 1 << FILE_BITS  # bytes; no file of 4 TiB is in an outline of several
Writer = tuple[bytes | None, bytes | None]


class Rests(NamedTuple):
    """The fields behind the row groups of each file, which nobody has decoded yet.

    schema   of all files
    spans    int64[2, files]: where they begin and end in the outline's data
    pairs    of each file, where the key-values do; the same twice where there are none
    writers  of each file the bytes of created_by and of column_orders, each None without; None: the metadata are not as
             most are, or speak of repaired statistics. Files of one schema and one writer can all be decoded, or none
    """

    schema: list[SchemaElement]
    spans: NDArray[np.int64]
    pairs: Sequence[tuple[int, int]]
    writers: Sequence[Writer | None]

    def some(self, files: NDArray[np.int64] | slice) -> Rests:
        """Those of some files."""
        numbers = range(files.start, files.stop) if isinstance(files, slice) else files.tolist()
        pairs, writers = [self.pairs[i] for i in numbers], [self.writers[i] for i in numbers]
        return Rests(self.schema, self.spans[:, files], pairs, writers)


@dataclass
class Outline:
    """An outline of one file, or of several; see the module.

    data      the bytes that spans point into: footers, or, through the bindings, only the values that were kept
    starts    int64[files]: of each footer, bytes from the start of its file
    leaves    the columns
    decoded   FileMetaData of which only the schema and what stands behind the row groups is kept: key-values,
              writer, orders. None: `rests` has it
    rows      int64[row groups]
    slots     int64[Slot.COUNT, row groups, columns]
    memory    of `derived`: what others derive from this outline and keep with it
    counts    int64[files]: the row groups of each; None: of one file
    parts     the outline of each file, where these were there before; () where they are made of this one
    """

    data: bytes
    starts: Sequence[int] | NDArray[np.int64]
    leaves: tuple[Leaf, ...]
    decoded: FileMetaData | None
    rows: NDArray[np.int64]
    slots: NDArray[np.int64]
    memory: dict[Any, Any] = field(default_factory=dict)
    rests: Rests | None = None
    counts: NDArray[np.int64] | None = None
    parts: Sequence[Outline] = ()

    @cached_property
    def metadata(self) -> FileMetaData:
        """As `decoded`, of the first file. Raises FooterError."""
        if self.decoded is None:
            assert self.rests is not None
            begin, end = self.rests.spans[:, 0].tolist()
            self.decoded = _decode_rest(self.data[begin:end])
            self.decoded.schema = self.rests.schema
        return self.decoded

    @property
    def start(self) -> int:
        """Of the first file's footer, bytes from the start of its file."""
        return int(self.starts[0])

    @property
    def n_row_groups(self) -> int:
        """How many row groups the files have."""
        return len(self.rows)

    @property
    def created_by(self) -> str | None:
        """The program that wrote the files."""
        name: str | None = self.metadata.created_by
        return name

    @property
    def key_values(self) -> list[KeyValue] | None:
        """The first file's key-values; None where its footer has no list of them."""
        pairs: list[KeyValue] | None = self.metadata.key_value_metadata
        return pairs

    @property
    def schema_elements(self) -> list[SchemaElement]:
        """The schema as it lies in the footer."""
        elements: list[SchemaElement] = self.metadata.schema if self.rests is None else self.rests.schema
        return elements

    def renamed(self, leaves: tuple[Leaf, ...]) -> Outline:
        """The same with other names of its leaves, and nothing derived yet."""
        return replace(self, leaves=leaves, memory={}, parts=[one.renamed(leaves) for one in self.parts])

    # --- of several files ---------------------------------------------------------------------------

    @property
    def n_files(self) -> int:
        """How many files it is of."""
        return len(self.starts)

    @cached_property
    def firsts(self) -> NDArray[np.int64]:
        """The first row group of each file, and the number of all: int64[files + 1]."""
        counts = [len(self.rows)] if self.counts is None else self.counts
        return np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def file_of(self) -> NDArray[np.int64]:
        """The file of each row group: int64[row groups]."""
        return np.repeat(np.arange(self.n_files), np.diff(self.firsts))

    @property
    def base(self) -> NDArray[np.int64]:
        """The address of the first byte of each row group's file: int64[row groups]."""
        return self.file_of << FILE_BITS

    def file(self, number: int) -> Outline:
        """The outline of one file."""
        if self.parts or self.n_files == 1:
            return self.parts[number] if self.parts else self
        return self._taken(slice(number, number + 1), slice(*self.firsts[number : number + 2].tolist()))

    def some(self, files: NDArray[np.int64]) -> Outline:
        """The outline of some files, ascending."""
        if len(files) == self.n_files:
            return self
        chosen = np.zeros(self.n_files, bool)
        chosen[files] = True
        return self._taken(files, chosen[self.file_of])

    def _taken(self, files: NDArray[np.int64] | slice, groups: NDArray[np.bool_] | slice) -> Outline:
        assert self.rests is not None
        rests, counts = self.rests.some(files), None if self.counts is None else self.counts[files]
        rows, slots = self.rows[groups], self.slots[:, groups]
        return Outline(self.data, self.starts[files], self.leaves, None, rows, slots, rests=rests, counts=counts)  # type: ignore[index]

    def in_files_with_any(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_] | bool:
        """Find the row groups of files in which some flag is True: one answer for all of them, or bool[row groups]."""
        if self.n_files == 1:
            return bool(flags.any())
        found = np.bincount(self.file_of[flags], minlength=self.n_files) > 0
        return True if found.all() else found[self.file_of]


def _decode_rest(rest: bytes) -> FileMetaData:
    """Decode the fields behind the row groups. Raises FooterError."""
    # As a footer without fields 1 to 3 and with an empty list of row groups: the first header of `rest` counts its
    # delta from that field.
    no_row_groups = first_field(FileMetaDataId.row_groups, LIST) + list_of_structs(0)
    return compact.decode(FileMetaData, no_row_groups + rest)[0]


def bounds_stated(slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bounds that chunks state: 1 a lower one, 2 an upper one, 3 both. slots: int64[Slot.COUNT, ...]."""
    there = slots != NONE
    low, high = there[Slot.MIN_VALUE] | there[Slot.OLD_MIN], there[Slot.MAX_VALUE] | there[Slot.OLD_MAX]
    found: NDArray[np.int64] = low + 2 * high.astype(np.int64)
    return found


# --- through the bindings -------------------------------------------------------------------------


_OTHERS = (Slot.TYPE, Slot.CODEC, Slot.OFFSET_INDEX_LENGTH, Slot.COLUMN_INDEX_LENGTH)


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
        others = (meta.type, meta.codec, chunk.offset_index_length, chunk.column_index_length)
        for slot, value in [*enumerate(values), *zip(_OTHERS, others, strict=True)]:
            if value is not None:
                slots[slot, i, j] = value
    if DRAFT_FILTER.search(footer.data):
        for (i, j), data in draft_structs(footer.data).items():
            keep(Slot.DRAFT_FILTER, i, j, data)
    rows = np.array([group.num_rows for group in groups], np.int64)
    metadata = footer.metadata
    rest = FileMetaData(
        schema=metadata.schema,
        row_groups=[],
        key_value_metadata=metadata.key_value_metadata,
        created_by=metadata.created_by,
        column_orders=metadata.column_orders,
    )
    return Outline(bytes(blob), (footer.start,), footer.leaves, rest, rows, slots)


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
