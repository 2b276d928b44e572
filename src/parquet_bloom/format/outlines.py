"""Outlines through the compiled walk (kernels.compact_walk), of one footer or of many at once; and many as one.

    footers   [file 0][file 1]...   one pass finds the schema and the row groups of each
    schemas   files with equal bytes of a schema share its leaves and one pair of arrays, which one pass fills
    the rest  key-values, writer, column orders: decoded at once for one footer, and for many when somebody asks
    joined    files of one schema and writer as one outline, so that one pass over arrays decides about all of them

Whatever a pass does not expect is left to the bindings (format.outline.outline_of).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
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
from parquet_bloom.format.footer import MAGIC
from parquet_bloom.format.outline import NONE, Outline, Slot, extents_in
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
    for id, slot, wire in (
        (ColumnMetaDataId.type, Slot.TYPE, I32),
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
    [found] = walk_outlines([(data, start)])
    if found is None:
        return None
    try:
        metadata = found.metadata
    except FooterError:
        return None
    if metadata.encryption_algorithm is not None:
        return None
    return Outline(data, start, found.leaves, metadata, found.rows, found.slots)


class LateOutline(Outline):
    """An outline whose metadata are decoded when somebody asks for them. That may raise FooterError.

    writer  the bytes of created_by and of column_orders, each None without; None: the metadata are not as most are.
            Outlines of one schema and one writer can all decode them, or none can
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


_BEHIND = (FileMetaDataId.key_value_metadata, FileMetaDataId.created_by, FileMetaDataId.column_orders)
_IDS = FileMetaDataId.column_orders + 1


def walk_outlines(footers: Sequence[tuple[bytes, int]]) -> list[LateOutline | None]:
    """Read several footers by the compiled walk: each is its bytes, and where it starts in its file.

    Returns for each footer its outline, or None where it has anything that the walk does not expect.
    """
    from parquet_bloom.kernels import compact_walk

    if not footers:
        return []
    # Top-level fields go by in their order. 1. The fields up to the row groups, of all footers. 2. The row groups, of
    # all footers of one schema. 3. The fields behind them, of all.
    stops = list(accumulate(len(data) for data, _ in footers))
    starts = [0, *stops[:-1]]
    view = np.frombuffer(footers[0][0] if len(footers) == 1 else b"".join([data for data, _ in footers]), np.uint8)
    # fields[i, id] is (wire type, start, end) of field `id` in footer i. fields[i, 0] is (-1 if the struct is not
    # sound, the largest id, 1 if the key-values are no list of pairs).
    fields = np.empty((len(footers), _IDS, 3), np.int64)
    row_groups = FileMetaDataId.row_groups
    compact_walk.fields_of(view, np.array([starts, stops]), 0, row_groups, 0, fields)
    by_schema: dict[bytes, list[tuple[int, int]]] = {}  # (number of the footer, where its row groups start)
    heads = fields[:, [0, FileMetaDataId.schema, row_groups]].reshape(-1, 9).tolist()
    for i, (odd, _, _, kind, at, end, groups_kind, groups_at, _) in enumerate(heads):
        if odd == 0 and kind == LIST == groups_kind:
            by_schema.setdefault(footers[i][0][at - starts[i] : end - starts[i]], []).append((i, groups_at))
    found: list[LateOutline | None] = [None] * len(footers)
    for schema_bytes, those in by_schema.items():
        places = [(starts[i], groups_at, stops[i]) for i, groups_at in those]
        with suppress(FooterError):
            outlines = _walk(view, [footers[i] for i, _ in those], places, *_schema(schema_bytes))
            for (i, _), outline in zip(those, outlines, strict=True):
                found[i] = outline
    kept = [(i, one) for i, one in enumerate(found) if one is not None]
    if not kept:
        return found
    behind = np.array([[starts[i] + one.rest for i, one in kept], [stops[i] for i, _ in kept]])
    fields = fields[: len(kept)]  # the same array again, a row for each outline that is left
    compact_walk.fields_of(view, behind, row_groups, 0, FileMetaDataId.key_value_metadata, fields)
    allowed = limits()
    # A footer of at most so many bytes has no text or list over the limits.
    most = min(allowed.max_list_elements, allowed.max_string_bytes)
    for (i, outline), one in zip(kept, fields[:, [0, *_BEHIND]].reshape(-1, 12).tolist(), strict=True):
        odd, last, other, pairs, pairs_at, pairs_end, writer, writer_at, writer_end, orders, orders_at, orders_end = one
        if odd:
            found[i] = None
            continue
        data, start = footers[i][0], starts[i]
        kinds = pairs in (0, LIST) and writer in (0, BINARY) and orders in (0, LIST)
        if kinds and last < _IDS and not other and len(data) <= most:
            outline.pairs = data[pairs_at - start : pairs_end - start] if pairs else b""
            outline.writer = (
                data[writer_at - start : writer_end - start] if writer else None,
                data[orders_at - start : orders_end - start] if orders else None,
            )
    return found


def _walk(
    view: NDArray[np.uint8],
    footers: Sequence[tuple[bytes, int]],
    places: Sequence[tuple[int, int, int]],
    schema: list[SchemaElement],
    leaves: tuple[Leaf, ...],
) -> list[LateOutline | None]:
    """The row groups of footers of one schema; places: of each its start, its list of row groups, its end in view."""
    from parquet_bloom.kernels import compact_walk

    lists = []
    for (data, _), (start, at, stop) in zip(footers, places, strict=True):
        try:
            n, kind, first = list_header(data, at - start)
        except FooterError:
            n, kind, first = 1, 0, 0
        # A column chunk takes a byte at least: more chunks than bytes are no footer, and need no memory.
        fits = not (n and (kind != STRUCT or not leaves)) and n * len(leaves) <= len(data)
        lists.append((start, start + first if fits else stop, stop, n if fits else 0))
    counts = [n for _, _, _, n in lists]
    total = sum(counts)
    rows, slots = np.full((1, total), NONE, np.int64), np.full((Slot.COUNT, total, len(leaves)), NONE, np.int64)
    ends = np.empty(len(lists), np.int64)
    compact_walk.walk_each(view, np.array(lists).T.copy(), _actions(), rows, slots, ends)
    wrong = rows[0] == NONE
    for slot in _NEEDED:
        wrong |= (slots[slot] == NONE).any(axis=1)
    found: list[LateOutline | None] = []
    first, is_wrong = 0, bool(wrong.any())
    for (data, start), end, place, n in zip(footers, ends.tolist(), places, counts, strict=True):
        part = slice(first, first + n)
        first += n
        if end < 0 or end >= place[2] or (is_wrong and wrong[part].any()):
            found.append(None)
        else:
            found.append(LateOutline(data, start, leaves, rows[0, part], slots[:, part], schema, end - place[0]))
    return found


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
_SPANS = (Slot.OLD_MAX, Slot.OLD_MIN, Slot.MAX_VALUE, Slot.MIN_VALUE, Slot.KEY_VALUES, Slot.DRAFT_FILTER)


@dataclass
class JoinedOutline(Outline):
    """An outline of several files, see the module.

    firsts   int64[files + 1]: the first row group of each file, and the number of all
    file_of  int64[row groups]
    starts   int64[files]: where each footer starts, in the joined file
    """

    firsts: NDArray[np.int64] = None  # type: ignore[assignment]
    file_of: NDArray[np.int64] = None  # type: ignore[assignment]
    starts: NDArray[np.int64] = None  # type: ignore[assignment]

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


def join(outlines: Sequence[Outline]) -> tuple[JoinedOutline | None, list[int]]:
    """Join outlines of one schema, writer and column orders; and the numbers of those that are joinable."""
    counts = np.array([len(one.rows) for one in outlines], np.int64)
    file_of = np.repeat(np.arange(len(outlines)), counts)
    slots = np.concatenate([one.slots for one in outlines], axis=1)
    starts = np.array([one.start for one in outlines], np.int64)
    joinable = is_joinable(slots, starts[file_of])
    if not joinable.all():
        odd = set(file_of[~joinable].tolist())
        numbers = [i for i in range(len(outlines)) if i not in odd]
        joined, kept = join([outlines[i] for i in numbers]) if numbers else (None, [])
        return joined, [numbers[i] for i in kept]
    sizes = np.array([len(one.data) for one in outlines], np.int64)
    shift(slots, file_of, (np.cumsum(sizes) - sizes)[file_of])
    first = outlines[0]
    joined = JoinedOutline(
        b"".join([one.data for one in outlines]),
        len(outlines) << FILE_BITS,
        first.leaves,
        first.metadata,
        np.concatenate([one.rows for one in outlines]),
        slots,
        firsts=np.concatenate([[0], np.cumsum(counts)]),
        file_of=file_of,
        starts=starts + (np.arange(len(outlines)) << FILE_BITS),
    )
    return joined, list(range(len(outlines)))


def shift(slots: NDArray[np.int64], file_of: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """Move offsets to those of the joined file, and spans by the places of their files' bytes, in place."""
    far = (file_of << FILE_BITS)[:, None]
    for slot in _OFFSETS:  # 0 and NONE stay what they are, as nothing is there
        slots[slot] += np.where(slots[slot] >= len(MAGIC), far, 0)
    for slot in _SPANS:
        slots[slot] += np.where(slots[slot] != NONE, places[:, None], 0)
