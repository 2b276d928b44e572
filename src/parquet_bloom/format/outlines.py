"""Outlines through the compiled walk (kernels.compact_walk), of one footer or of many at once; and many as one.

    footers   [file 0][file 1]...   one pass finds the schema and the row groups of each
    schemas   files with equal bytes of a schema share its leaves and one outline, which one pass fills
    the rest  key-values, writer, column orders: decoded at once for one footer, and for many when somebody asks

Whatever a pass does not expect is left to the bindings (format.outline.outline_of).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate

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
)
from parquet_bloom.format.footer import MAGIC
from parquet_bloom.format.outline import NONE, REPAIRED, SPANS, Outline, Rests, Slot, extents
from parquet_bloom.format.schema import Leaf, leaves_of
from parquet_bloom.options import limits

_NEEDED = (Slot.NUM_VALUES, Slot.COMPRESSED_SIZE, Slot.DATA_PAGE, Slot.TYPE)
_ROW_GROUP, _CHUNK, _META, _STATISTICS = range(4)  # kinds of struct in the walk's table
_Footer = tuple[bytes | memoryview, int]  # its bytes, and where it starts in its file
_Walked = tuple[Outline, list[int]]
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
    if not found:
        return None
    [[outline, _]] = found
    try:
        if outline.metadata.encryption_algorithm is not None:
            return None
    except FooterError:
        return None
    outline.rests = None
    return outline


_BEHIND = (FileMetaDataId.key_value_metadata, FileMetaDataId.created_by, FileMetaDataId.column_orders)
_IDS = FileMetaDataId.column_orders + 1
_MOST_COMPARED = 1 << 16  # bytes that are compared at once


def walk_outlines(footers: Sequence[_Footer]) -> list[_Walked]:
    """Read several footers by the compiled walk: each is its bytes, and where it starts in its file.

    Returns an outline of the files of each schema, and which of the footers are theirs, without footers that have
    anything that the walk does not expect.
    """
    if not footers:
        return []
    view, found = _walk_all(footers)
    return [both for outline, numbers in found if (both := _with_rests(outline, numbers, view))[1]]


def _walk_all(footers: Sequence[_Footer]) -> tuple[NDArray[np.uint8], list[_Walked]]:
    """The bytes of all footers, and as `walk_outlines`, without the fields behind the row groups."""
    from parquet_bloom.kernels import compact_walk

    # Top-level fields go by in their order: those up to the row groups, of all footers; then the row groups, of all
    # footers of one schema. The fields behind them are for `_with_rests`.
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
    return view, [both for both in found if both[1]]


def _walk(
    data: bytes,
    view: NDArray[np.uint8],
    footers: Sequence[_Footer],
    numbers: list[int],
    lists: list[int],
    starts: list[int],
    schema: list[SchemaElement],
    leaves: tuple[Leaf, ...],
) -> _Walked:
    """The row groups of footers of one schema, and which of the footers are sound.

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
    stops = np.array([begins, sizes]).sum(axis=0)
    places = np.array([np.zeros(len(numbers), np.int64), firsts, stops, counts])  # spans count from the first footer
    compact_walk.walk_each(view, places, _actions(), rows, slots, ends)
    sound = ends >= 0
    wrong = rows[0] == NONE
    for slot in _NEEDED:
        wrong |= (slots[slot] == NONE).any(axis=1)
    if wrong.any():
        sound[np.repeat(np.arange(len(numbers)), counts)[wrong]] = False
    # Key-values and writers: `_with_rests`.
    rests = Rests(schema, np.array([ends, stops]), [(0, 0)] * len(numbers), [None] * len(numbers))
    footers_at = np.array([footers[i][1] for i in numbers], np.int64)
    outline = Outline(data, footers_at, leaves, None, rows[0], slots, rests=rests, counts=places[3])
    which = np.flatnonzero(sound)
    return outline.some(which), [numbers[i] for i in which.tolist()]


def _head_of_list(data: bytes, at: int) -> tuple[int, int, int]:
    """As compact_tree.list_header has it; what is none has an element of no type."""
    if at < len(data) and data[at] < 0xF0:
        return data[at] >> 4, data[at] & 15, at + 1
    try:
        return list_header(data, at)
    except FooterError:
        return 1, 0, at


def _with_rests(outline: Outline, numbers: list[int], view: NDArray[np.uint8]) -> _Walked:
    """The same with key-values and writers, by a pass over the fields behind the row groups; without unsound ones."""
    from parquet_bloom.kernels import compact_walk

    rests = outline.rests
    assert rests is not None
    fields = np.empty((len(numbers), _IDS, 3), np.int64)
    places = np.ascontiguousarray(rests.spans)
    compact_walk.fields_of(view, places, FileMetaDataId.row_groups, 0, FileMetaDataId.key_value_metadata, fields)
    sound = fields[:, 0, 0] == 0
    if not sound.all():
        which = np.flatnonzero(sound)
        outline, numbers, fields = outline.some(which), [numbers[i] for i in which.tolist()], fields[sound]
        rests = rests.some(which)
    data, spans = outline.data, rests.spans
    pairs, writer, orders = (fields[:, id] for id in _BEHIND)
    allowed = limits()
    # A footer of at most so many bytes has no text or list over the limits.
    plain = spans[1] - spans[0] <= min(allowed.max_list_elements, allowed.max_string_bytes)
    plain &= (fields[:, 0, 1] < _IDS) & (fields[:, 0, 2] == 0)
    for field, kind in ((pairs, LIST), (writer, BINARY), (orders, LIST)):
        plain &= (field[:, 0] == 0) | (field[:, 0] == kind)
    key_values = pairs[:, 1:].tolist()
    if REPAIRED in data:  # what is proven of one file is not of others
        plain &= [data.find(REPAIRED, begin, end) < 0 for begin, end in key_values]
    both = zip(_texts(data, view, writer), _texts(data, view, orders), strict=True)
    writers = [one if is_plain else None for one, is_plain in zip(both, plain.tolist(), strict=True)]
    outline.rests = rests._replace(pairs=key_values, writers=writers)
    return outline, numbers


def _texts(data: bytes, view: NDArray[np.uint8], field: NDArray[np.int64]) -> list[bytes | None]:
    """The bytes of a field of several structs, None without; equal ones are one object where all are."""
    kind, begin, end = field.T
    size = end - begin
    if len(size) and (kind != 0).all() and (size == size[0]).all() and int(size.sum()) <= _MOST_COMPARED:
        texts = view[begin[:, None] + np.arange(size[0])]
        if (texts == texts[0]).all():
            return [texts[0].tobytes()] * len(size)
    return [data[at:stop] if there else None for there, at, stop in field.tolist()]


@lru_cache(64)
def _schema(schema: bytes) -> tuple[list[SchemaElement], tuple[Leaf, ...]]:
    """A schema and its leaves, by the bytes of its list. All outlines of such a schema share them."""
    metadata, _ = compact.decode(FileMetaData, first_field(FileMetaDataId.schema, LIST) + schema + STOP)
    return metadata.schema or [], leaves_of(metadata.schema or [])


# --- outlines of several files ----------------------------------------------------------------------


def join(outlines: Sequence[Outline]) -> Outline:
    """One outline of all their files, which have one schema, one writer and one set of column orders."""
    parts = [one.file(i) for one in outlines for i in range(one.n_files)]
    distinct = {id(part.data): part.data for part in parts}  # files whose footers were read together share them
    ends = dict(zip(distinct, accumulate(map(len, distinct.values()), initial=0), strict=False))
    counts = np.array([len(part.rows) for part in parts], np.int64)
    slots = np.concatenate([part.slots for part in parts], axis=1)
    places = np.repeat([ends[id(part.data)] for part in parts], counts)[:, None]
    for slot in SPANS:
        slots[slot] += np.where(slots[slot] != NONE, places, 0)
    return Outline(
        b"".join(distinct.values()),
        np.array([part.start for part in parts], np.int64),
        parts[0].leaves,
        parts[0].metadata,
        np.concatenate([part.rows for part in parts]),
        slots,
        counts=counts,
        parts=parts,
    )


def joined(outlines: Sequence[Outline]) -> tuple[Outline | None, list[int]]:
    """The same without the files that cannot be in an outline of several; and the numbers of the others."""
    whole = outlines[0] if len(outlines) == 1 else join(outlines)
    numbers = joinable(whole)
    if 0 < len(numbers) < whole.n_files and whole.parts:
        whole = join([whole.parts[i] for i in numbers.tolist()])
    elif len(numbers):
        whole = whole.some(numbers)
    return whole if len(numbers) else None, numbers.tolist()


def joinable(outline: Outline) -> NDArray[np.int64]:
    """The files, by their numbers, without an offset outside of their body."""
    slots, end = outline.slots, np.asarray(outline.starts)[outline.file_of][:, None]
    start, stop = extents(outline)
    # A chunk without values may have no pages.
    has_pages = (start >= len(MAGIC)) | ((slots[Slot.NUM_VALUES] == 0) & (start == stop) & (start >= 0))
    sound = has_pages & (stop >= start) & (stop <= end)
    dictionary = slots[Slot.DICTIONARY_PAGE]
    sound &= (dictionary == NONE) | ((dictionary >= 0) & (dictionary <= end))
    for slot in (Slot.FILTER_OFFSET, Slot.OFFSET_INDEX, Slot.COLUMN_INDEX):
        offset = slots[slot]
        sound &= (offset == NONE) | (offset == 0) | ((offset >= len(MAGIC)) & (offset <= end))
    odd = np.bincount(outline.file_of[~sound.all(axis=1)], minlength=outline.n_files)
    return np.flatnonzero(odd == 0)
