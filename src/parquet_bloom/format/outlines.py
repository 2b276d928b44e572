"""Outlines through the compiled walk (kernels.compact_walk), of one footer or of many at once; and many as one.

    footers   [file 0][file 1]...   one pass finds the schema and the row groups of each
    schemas   files with equal bytes of a schema share its leaves and one pair of arrays, which one pass fills
    the rest  key-values, writer, column orders: decoded at once for one footer, and for many when somebody asks
    joined    files of one schema and writer as one outline, so that one pass over arrays decides about all of them

Whatever a pass does not expect is left to the bindings (format.outline.outline_of).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import FileMetaData, SchemaElement
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import (
    BINARY,
    DRAFT_FILTER_FIELD,
    I32,
    I64,
    LIST,
    STOP,
    STRUCT,
    ColumnChunkId,
    ColumnMetaDataId,
    FileMetaDataId,
    RowGroupId,
    StatisticsId,
    first_field,
    list_header,
    list_of_structs,
)
from parquet_bloom.format.footer import MAGIC, derived
from parquet_bloom.format.outline import NONE, SPANS, Outline, Slot, extents_in
from parquet_bloom.format.repairs import MARK, proven_columns
from parquet_bloom.format.schema import Leaf, leaves_of
from parquet_bloom.options import limits

_NEEDED = (Slot.NUM_VALUES, Slot.COMPRESSED_SIZE, Slot.DATA_PAGE, Slot.TYPE)
_ROW_GROUP, _CHUNK, _META, _STATISTICS = range(4)  # kinds of struct in the walk's table
_MOST_ID = (1 << 15) - 1  # a field id is an i16 in the compact protocol


@lru_cache(1)
def _actions() -> NDArray[np.int64]:
    """The walk's table, from the field ids and types of parquet.thrift."""
    from parquet_bloom.kernels import compact_walk as w

    table = np.zeros((4, w.FIELDS, 3), np.int64)
    table[_ROW_GROUP, RowGroupId.columns] = w.OUTER, _CHUNK, LIST
    table[_ROW_GROUP, RowGroupId.num_rows] = w.STORE, 0, I64
    # Pages in another file, or encrypted ones: the walk ends, and the bindings' reader raises the error.
    for id in (ColumnChunkId.file_path, ColumnChunkId.crypto_metadata, ColumnChunkId.encrypted_column_metadata):
        table[_CHUNK, id] = w.STOP_ALL, 0, 0
    table[_CHUNK, ColumnChunkId.meta_data] = w.ENTER, _META, STRUCT
    table[_CHUNK, ColumnChunkId.offset_index_offset] = w.STORE, Slot.OFFSET_INDEX, I64
    table[_CHUNK, ColumnChunkId.column_index_offset] = w.STORE, Slot.COLUMN_INDEX, I64
    table[_CHUNK, ColumnChunkId.offset_index_length] = w.STORE, Slot.OFFSET_INDEX_LENGTH, I32
    table[_CHUNK, ColumnChunkId.column_index_length] = w.STORE, Slot.COLUMN_INDEX_LENGTH, I32
    for id, slot, wire in (
        (ColumnMetaDataId.type, Slot.TYPE, I32),
        (ColumnMetaDataId.codec, Slot.CODEC, I32),
        (ColumnMetaDataId.num_values, Slot.NUM_VALUES, I64),
        (ColumnMetaDataId.total_compressed_size, Slot.COMPRESSED_SIZE, I64),
        (ColumnMetaDataId.data_page_offset, Slot.DATA_PAGE, I64),
        (ColumnMetaDataId.dictionary_page_offset, Slot.DICTIONARY_PAGE, I64),
        (ColumnMetaDataId.bloom_filter_offset, Slot.FILTER_OFFSET, I64),
        (ColumnMetaDataId.bloom_filter_length, Slot.FILTER_LENGTH, I32),
    ):
        table[_META, id] = w.STORE, slot, wire
    table[_META, ColumnMetaDataId.key_value_metadata] = w.SPAN_IF, Slot.KEY_VALUES, LIST
    table[_META, ColumnMetaDataId.statistics] = w.ENTER, _STATISTICS, STRUCT
    table[_STATISTICS, DRAFT_FILTER_FIELD] = w.SPAN_IF, Slot.DRAFT_FILTER, STRUCT
    table[_STATISTICS, StatisticsId.null_count] = w.STORE, Slot.NULL_COUNT, I64
    table[_STATISTICS, StatisticsId.nan_count] = w.STORE, Slot.NAN_COUNT, I64
    for id, slot in (
        (StatisticsId.max, Slot.OLD_MAX),
        (StatisticsId.min, Slot.OLD_MIN),
        (StatisticsId.max_value, Slot.MAX_VALUE),
        (StatisticsId.min_value, Slot.MIN_VALUE),
    ):
        table[_STATISTICS, id] = w.SPAN, slot, BINARY
    return table


def walk_outline(data: bytes, start: int) -> Outline | None:
    """Read footer bytes by the compiled walk; None where it meets anything it does not expect."""
    _, found = _walk_all([(data, start)])
    if not found or not len(found[0]):
        return None
    [outlines] = found
    try:
        metadata = outlines[0].metadata
    except FooterError:
        return None
    if metadata.encryption_algorithm is not None:
        return None
    return Outline(data, start, outlines.leaves, metadata, outlines.rows, outlines.slots)


class LateOutline(Outline):
    """An outline whose metadata are decoded when somebody asks for them. That may raise FooterError.

    writer  the bytes of created_by and of column_orders, each None without; None: the metadata are not as most are,
            or speak of repaired statistics. Outlines of one schema and one writer can all decode them, or none can
    pairs   those of the key-values
    rest    where the fields behind the row groups begin in data
    """

    def __init__(
        self,
        data: bytes,
        start: int,
        leaves: tuple[Leaf, ...],
        rows: NDArray[np.int64],
        slots: NDArray[np.int64],
        schema: list[SchemaElement],
        rest: int,
    ) -> None:
        self.data, self.start, self.leaves, self.rows, self.slots = data, start, leaves, rows, slots
        self.memory = {}
        self.schema, self.rest = schema, rest
        self.writer: tuple[bytes | None, bytes | None] | None = None
        self.pairs = b""

    def __getattr__(self, name: str) -> Any:
        if name != "metadata":
            raise AttributeError(name)
        self.metadata = found = _rest(self.data[self.rest :])
        found.schema = self.schema
        return found

    @property
    def schema_elements(self) -> list[SchemaElement]:
        """As Outline has it."""
        return self.schema

    def renamed(self, leaves: tuple[Leaf, ...]) -> Outline:
        """As Outline has it."""
        other = LateOutline(self.data, self.start, leaves, self.rows, self.slots, self.schema, self.rest)
        other.writer, other.pairs = self.writer, self.pairs
        return other


def writer_of(outline: Outline) -> Hashable:
    """Writer, column orders and proof of statistics: equal for footers that have equal ones and were read alike.

    Raises FooterError.
    """
    known = outline.writer if isinstance(outline, LateOutline) else None
    return _decoded_writer(outline) if known is None else known


@derived
def _decoded_writer(outline: Outline) -> Hashable:
    orders = repr(outline.metadata.column_orders)  # the bindings' objects have no hash
    return outline.created_by, orders, proven_columns(outline)


@dataclass(slots=True)
class Outlines:
    """Outlines of several footers of one schema, as arrays; each by itself if somebody asks for it.

    data     the bytes of footers, one behind the other
    numbers  of each outline, which of the footers that were walked is its own
    starts   int64[n]: where each footer starts in its file
    places   int64[n]: where its bytes begin in data
    sizes    int64[n]: of its bytes
    rests    int64[n]: where the fields behind the row groups begin, from its first byte
    counts   int64[n]: row groups of each
    rows, slots  of all row groups, one behind the other, as Outline has them
    writers  of each, as LateOutline has it
    pairs    int64[2, n]: where the key-values begin and end in data; the same twice where there are none
    """

    data: bytes
    leaves: tuple[Leaf, ...]
    schema: list[SchemaElement]
    numbers: list[int]
    starts: NDArray[np.int64]
    places: NDArray[np.int64]
    sizes: NDArray[np.int64]
    rests: NDArray[np.int64]
    counts: NDArray[np.int64]
    rows: NDArray[np.int64]
    slots: NDArray[np.int64]
    writers: Sequence[tuple[bytes | None, bytes | None] | None] = ()
    pairs: NDArray[np.int64] = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> LateOutline:
        """One of them."""
        place, first = int(self.places[i]), int(self.counts[:i].sum())
        part = slice(first, first + int(self.counts[i]))
        found = LateOutline(
            self.data[place : place + int(self.sizes[i])],
            int(self.starts[i]),
            self.leaves,
            self.rows[part],
            self.slots[:, part],
            self.schema,
            int(self.rests[i]),
        )
        if len(self.writers):
            found.writer, found.pairs = self.writers[i], self.pairs_of(i)
        return found

    def pairs_of(self, i: int) -> bytes:
        """The bytes of one's key-values."""
        begin, end = self.pairs[:, i].tolist()
        return self.data[begin:end]

    def some(self, which: NDArray[np.int64]) -> Outlines:
        """Those at some places, ascending."""
        if len(which) == len(self):
            return self
        chosen = np.zeros(len(self), bool)
        chosen[which] = True
        groups = np.repeat(chosen, self.counts)
        return replace(
            self,
            numbers=[self.numbers[i] for i in which.tolist()],
            starts=self.starts[which],
            places=self.places[which],
            sizes=self.sizes[which],
            rests=self.rests[which],
            counts=self.counts[which],
            rows=self.rows[groups],
            slots=self.slots[:, groups],
            writers=[self.writers[i] for i in which.tolist()] if len(self.writers) else (),
            pairs=self.pairs[:, which] if len(self.writers) else self.pairs,
        )


_BEHIND = (FileMetaDataId.key_value_metadata, FileMetaDataId.created_by, FileMetaDataId.column_orders)
_IDS = FileMetaDataId.column_orders + 1
_MOST_COMPARED = 1 << 16  # bytes that are compared at once


def walk_outlines(footers: Sequence[tuple[bytes | memoryview, int]]) -> list[Outlines]:
    """Read several footers by the compiled walk: each is its bytes, and where it starts in its file.

    Returns the outlines of those of each schema, without footers that have anything that the walk does not expect.
    """
    from parquet_bloom.kernels import compact_walk

    if not footers:
        return []
    view, walked = _walk_all(footers)
    found = []
    for outlines in walked:
        behind = np.array([outlines.places + outlines.rests, outlines.places + outlines.sizes])
        fields = np.empty((len(outlines), _IDS, 3), np.int64)
        pairs = FileMetaDataId.key_value_metadata
        compact_walk.fields_of(view, behind, FileMetaDataId.row_groups, 0, pairs, fields)
        if len(whole := _with_rest(outlines, view, fields)):
            found.append(whole)
    return found


def _walk_all(footers: Sequence[tuple[bytes | memoryview, int]]) -> tuple[NDArray[np.uint8], list[Outlines]]:
    """The bytes of all footers, and the outlines of those of each schema, without what stands behind the row groups."""
    from parquet_bloom.kernels import compact_walk

    # Top-level fields go by in their order: those up to the row groups, of all footers; then the row groups, of all
    # footers of one schema. The fields behind them are for `walk_outlines`.
    stops = list(accumulate(len(data) for data, _ in footers))
    starts = [0, *stops[:-1]]
    data = bytes(footers[0][0]) if len(footers) == 1 else b"".join([data for data, _ in footers])
    view = np.frombuffer(data, np.uint8)
    # fields[i, id] is (wire type, start, end) of field `id` in footer i. fields[i, 0] is (-1 if the struct is not
    # sound, the largest id, 1 if the key-values are no list of pairs).
    fields = np.empty((len(footers), _IDS, 3), np.int64)
    row_groups = FileMetaDataId.row_groups
    compact_walk.fields_of(view, np.array([starts, stops]), 0, row_groups, 0, fields)
    by_schema: dict[bytes, tuple[list[int], list[int]]] = {}  # (numbers of footers, where their row groups start)
    heads = fields[:, [0, FileMetaDataId.schema, row_groups]].reshape(-1, 9).tolist()
    for i, (odd, _, _, kind, at, end, groups_kind, groups_at, _) in enumerate(heads):
        if odd == 0 and kind == LIST == groups_kind:
            numbers, places = by_schema.setdefault(data[at:end], ([], []))
            numbers.append(i)
            places.append(groups_at)
    found = []
    for schema_bytes, (numbers, lists) in by_schema.items():
        with suppress(FooterError):
            found.append(_walk(data, view, footers, numbers, lists, starts, *_schema(schema_bytes)))
    return view, found


def _walk(
    data: bytes,
    view: NDArray[np.uint8],
    footers: Sequence[tuple[bytes | memoryview, int]],
    numbers: list[int],
    lists: list[int],
    starts: list[int],
    schema: list[SchemaElement],
    leaves: tuple[Leaf, ...],
) -> Outlines:
    """The row groups of footers of one schema.

    numbers, lists  of the footers, and where the list of row groups of each starts in data
    starts          of all footers in data
    """
    from parquet_bloom.kernels import compact_walk

    begins = [starts[i] for i in numbers]
    sizes = [len(footers[i][0]) for i in numbers]
    counts, firsts = [], []
    for begin, at, size in zip(begins, lists, sizes, strict=True):
        n, kind, first = _head_of_list(data, at)
        # A column chunk takes a byte at least: more chunks than bytes are no footer, and need no memory.
        fits = not (n and (kind != STRUCT or not leaves)) and n * len(leaves) <= size
        counts.append(n if fits else 0)
        firsts.append(first if fits else begin + size)
    total = sum(counts)
    rows, slots = np.full((1, total), NONE, np.int64), np.full((Slot.COUNT, total, len(leaves)), NONE, np.int64)
    ends = np.empty(len(numbers), np.int64)
    places = np.array([begins, firsts, sizes, counts])
    places[2] += places[0]
    compact_walk.walk_each(view, places, _actions(), rows, slots, ends)
    sound = ends >= 0
    wrong = rows[0] == NONE
    for slot in _NEEDED:
        wrong |= (slots[slot] == NONE).any(axis=1)
    if wrong.any():
        sound[np.repeat(np.arange(len(numbers)), counts)[wrong]] = False
    outlines = Outlines(
        data,
        leaves,
        schema,
        numbers,
        np.array([footers[i][1] for i in numbers], np.int64),
        places[0],
        places[2] - places[0],
        ends - places[0],
        places[3],
        rows[0],
        slots,
    )
    return outlines.some(np.flatnonzero(sound))


def _head_of_list(data: bytes, at: int) -> tuple[int, int, int]:
    """As compact_tree.list_header has it; what is none has an element of no type."""
    if at < len(data) and data[at] < 0xF0:
        return data[at] >> 4, data[at] & 15, at + 1
    try:
        return list_header(data, at)
    except FooterError:
        return 1, 0, at


def _with_rest(outlines: Outlines, view: NDArray[np.uint8], fields: NDArray[np.int64]) -> Outlines:
    """The same with what stands behind the row groups, by the fields that a pass found there; without unsound ones."""
    sound = fields[:, 0, 0] == 0
    if not sound.all():
        outlines, fields = outlines.some(np.flatnonzero(sound)), fields[sound]
    pairs, writer, orders = (fields[:, id] for id in _BEHIND)
    allowed = limits()
    # A footer of at most so many bytes has no text or list over the limits.
    plain = outlines.sizes <= min(allowed.max_list_elements, allowed.max_string_bytes)
    plain &= (fields[:, 0, 1] < _IDS) & (fields[:, 0, 2] == 0)
    for field, kind in ((pairs, LIST), (writer, BINARY), (orders, LIST)):
        plain &= (field[:, 0] == 0) | (field[:, 0] == kind)
    if MARK in outlines.data:  # what is proven of one file is not of others
        ends = pairs[:, 1:].tolist()
        plain &= [outlines.data.find(MARK, begin, end) < 0 for begin, end in ends]
    both = zip(_texts(outlines.data, view, writer), _texts(outlines.data, view, orders), strict=True)
    outlines.writers = [one if is_plain else None for one, is_plain in zip(both, plain.tolist(), strict=True)]
    outlines.pairs = pairs[:, 1:].T
    return outlines


def _texts(data: bytes, view: NDArray[np.uint8], field: NDArray[np.int64]) -> list[bytes | None]:
    """The bytes of a field of several structs, None without; equal ones are one object where all are."""
    kind, begin, end = field.T
    size = end - begin
    if len(size) and (kind != 0).all() and (size == size[0]).all() and int(size.sum()) <= _MOST_COMPARED:
        texts = view[begin[:, None] + np.arange(size[0])]
        if (texts == texts[0]).all():
            return [texts[0].tobytes()] * len(size)
    return [data[at:stop] if there else None for there, at, stop in field.tolist()]


def _rest(rest: bytes) -> FileMetaData:
    """Decode the fields behind the row groups. Raises FooterError."""
    # As a footer without fields 1 to 3 and with an empty list of row groups: the first header of `rest` counts its
    # delta from that field.
    no_row_groups = first_field(FileMetaDataId.row_groups, LIST) + list_of_structs(0)
    return compact.decode(FileMetaData, no_row_groups + rest)[0]


@lru_cache(64)
def _schema(schema: bytes) -> tuple[list[SchemaElement], tuple[Leaf, ...]]:
    """A schema and its leaves, by the bytes of its list. All outlines of such a schema share them."""
    metadata, _ = compact.decode(FileMetaData, first_field(FileMetaDataId.schema, LIST) + schema + STOP)
    return metadata.schema or [], leaves_of(metadata.schema or [])


# --- the outlines of several files as one: one pass over arrays decides about all of them ----------
#
#     file 0   row groups 0 to 9     its byte x is byte x of the joined file
#     file 1   row groups 10 to 12   its byte x is byte FAR + x
#     file 2   ...                   2 FAR + x
#
# A joined file has one schema, one writer and one set of column orders. Its offsets never leave the FAR bytes of
# their own file: files whose offsets would are not joined (`is_joinable`), and neither are those of FAR bytes or
# more. So what filters.locate finds between neighbours, it finds between those of one file.

FILE_BITS = 42
FAR = 1 << FILE_BITS  # bytes; no file of 4 TiB is joined
_OFFSETS = (Slot.DATA_PAGE, Slot.DICTIONARY_PAGE, Slot.FILTER_OFFSET, Slot.OFFSET_INDEX, Slot.COLUMN_INDEX)


@dataclass
class JoinedOutline(Outline):
    """An outline of several files, see the module.

    firsts   int64[files + 1]: the first row group of each file, and the number of all
    file_of  int64[row groups]
    starts   int64[files]: where each footer starts, in the joined file
    first    the outline of the first file
    """

    firsts: NDArray[np.int64] = None  # type: ignore[assignment]
    file_of: NDArray[np.int64] = None  # type: ignore[assignment]
    starts: NDArray[np.int64] = None  # type: ignore[assignment]
    first: Outline = None  # type: ignore[assignment]

    @property
    def representative(self) -> Outline:
        """As Outline has it."""
        return self.first

    @property
    def footers(self) -> NDArray[np.int64]:
        """As Outline has it."""
        return self.starts

    @property
    def footer_of(self) -> NDArray[np.int64]:
        """As Outline has it."""
        return self.starts[self.file_of]

    def in_files_with_any(self, flags: NDArray[np.bool_]) -> NDArray[np.bool_] | bool:
        """As Outline has it."""
        found = np.bincount(self.file_of[flags], minlength=len(self.starts)) > 0
        return True if found.all() else found[self.file_of]


def is_joinable(slots: NDArray[np.int64], end: NDArray[np.int64] | int) -> NDArray[np.bool_]:
    """Find the row groups without an offset outside of their file's body: bool[row groups].

    end  where the footers of their files start: a number, or int64[row groups]
    """
    end = end[:, None] if isinstance(end, np.ndarray) else end
    start, stop = extents_in(slots)
    # A chunk without values may have no pages.
    has_pages = (start >= len(MAGIC)) | ((slots[Slot.NUM_VALUES] == 0) & (start == stop) & (start >= 0))
    sound = has_pages & (stop >= start) & (stop <= end)
    dictionary = slots[Slot.DICTIONARY_PAGE]
    sound &= (dictionary == NONE) | ((dictionary >= 0) & (dictionary <= end))
    for slot in (Slot.FILTER_OFFSET, Slot.OFFSET_INDEX, Slot.COLUMN_INDEX):
        offset = slots[slot]
        sound &= (offset == NONE) | (offset == 0) | ((offset >= len(MAGIC)) & (offset <= end))
    found: NDArray[np.bool_] = sound.all(axis=1)
    return found


def join(outlines: Sequence[Outline] | Outlines) -> tuple[JoinedOutline | None, list[int]]:
    """Join outlines of one schema, writer and column orders; and the numbers of those that are joinable."""
    if isinstance(outlines, Outlines):
        counts, starts, places = outlines.counts, outlines.starts, outlines.places
        data, rows, slots = outlines.data, outlines.rows, outlines.slots.copy()
    else:
        counts = np.array([len(one.rows) for one in outlines], np.int64)
        starts = np.array([one.start for one in outlines], np.int64)
        sizes = np.array([len(one.data) for one in outlines], np.int64)
        data, places = b"".join([one.data for one in outlines]), np.cumsum(sizes) - sizes
        rows = np.concatenate([one.rows for one in outlines])
        slots = np.concatenate([one.slots for one in outlines], axis=1)
    file_of = np.repeat(np.arange(len(outlines)), counts)
    joinable = is_joinable(slots, starts[file_of])
    if not joinable.all():
        which = np.setdiff1d(np.arange(len(outlines)), file_of[~joinable])
        some = outlines.some(which) if isinstance(outlines, Outlines) else [outlines[i] for i in which.tolist()]
        joined, kept = join(some) if len(which) else (None, [])
        return joined, which[kept].tolist()
    shift(slots, file_of, places[file_of])
    first = outlines[0]
    joined = JoinedOutline(
        data,
        len(outlines) << FILE_BITS,
        first.leaves,
        first.metadata,
        rows,
        slots,
        firsts=np.concatenate([[0], np.cumsum(counts)]),
        file_of=file_of,
        starts=starts + (np.arange(len(outlines)) << FILE_BITS),
        first=first,
    )
    return joined, list(range(len(outlines)))


def shift(slots: NDArray[np.int64], file_of: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """Move offsets to those of the joined file, and spans by the places of their files' bytes, in place."""
    far = (file_of << FILE_BITS)[:, None]
    for slot in _OFFSETS:  # 0 and NONE stay what they are, as nothing is there
        slots[slot] += np.where(slots[slot] >= len(MAGIC), far, 0)
    for slot in SPANS:
        slots[slot] += np.where(slots[slot] != NONE, places[:, None], 0)
