"""Footer bytes <-> row groups and column chunks.

    file:  PAR1 | pages, filters, page indexes ... | FileMetaData | u32 length, little-endian | PAR1

Field names are those of parquet.thrift. What an edit may change is in format.edits.
Source: parquet-format README.md, "File format" and "Metadata".
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, wraps
from itertools import accumulate
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from parquet_bloom._thrift.parquet.ttypes import ColumnChunk, ColumnMetaData, FileMetaData, KeyValue, RowGroup
from parquet_bloom.errors import EncryptedFooterError, FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import (
    LIST,
    STOP,
    STRUCT,
    FileMetaDataId,
    draft_structs,
    field_header,
    first_field,
    foreign_filter_fields,
    list_header,
    list_of_structs,
    skip,
)
from parquet_bloom.format.schema import Leaf, leaves_of

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
TAIL_BYTES = 8  # length and magic
_LARGE = 1 << 20  # bytes of a footer

ChunkKey = tuple[int, int]  # (row group, column): names a column chunk of a file


class IndexKind(StrEnum):
    """The two kinds of page index, as parquet.thrift names them in a ColumnChunk."""

    OFFSET = "offset_index"
    COLUMN = "column_index"


# --- values that are derived from a footer or an outline once, and kept with it ---------------------
#
#     @derived
#     def statistics_of(outline: Outline, leaf: Leaf) -> ColumnStatistics: ...
#
# The first call for a leaf works its statistics out, later ones look them up; they go when the outline goes. An
# error is not kept. Threads that share an outline may work a value out twice, and each sees a whole one.


class Keeper(Protocol):
    """A footer or an outline; only `derived` touches its memory."""

    @property
    def memory(self) -> dict[Any, Any]:
        """(function, its arguments) -> what it found."""


_K = TypeVar("_K", bound=Keeper)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def derived(work_out: Callable[Concatenate[_K, _P], _T]) -> Callable[Concatenate[_K, _P], _T]:
    """Make a function of a footer or an outline remember what it found; its other arguments are hashable."""

    @wraps(work_out)
    def kept(keeper: _K, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        key = (work_out, arguments, *named.items())
        memory = keeper.memory
        if key not in memory:
            memory[key] = work_out(keeper, *arguments, **named)
        found: _T = memory[key]
        return found

    return kept


# --- footers ---------------------------------------------------------------------------------------


def footer_length(tail: bytes, file_size: int) -> int:
    """Read the last bytes of a file: how many bytes of footer lie before them.

    tail       at least the last 8 bytes of the file (fewer only if the file is shorter)
    file_size  bytes
    Raises FooterError (no Parquet, or a length that does not fit), EncryptedFooterError.
    """
    if file_size < 4 + TAIL_BYTES:
        raise FooterError(f"{file_size} bytes are too short for a Parquet file" if file_size else "the file is empty")
    magic = tail[-4:]
    if magic == ENCRYPTED_MAGIC:
        raise EncryptedFooterError("the footer is encrypted")
    if magic != MAGIC:
        raise FooterError(f"the file ends with {magic!r}, not {MAGIC!r}: no Parquet file, or its end is cut off")
    length = int.from_bytes(tail[-8:-4], "little")
    if length > file_size - TAIL_BYTES - 4:
        raise FooterError(f"the footer claims {length} bytes, but the file has {file_size}")
    return length


class ColumnChunks(NamedTuple):
    """One column's chunks, for building filters; every list has one element a row group.

    num_values, null_counts  as the footer has them; None: not known
    sizes                    total_compressed_size, bytes
    extents                  where their pages start and stop, see chunk_extent
    codecs                   CompressionCodec
    """

    num_values: list[int]
    null_counts: list[int | None]
    sizes: list[int]
    extents: list[tuple[int, int]]
    codecs: list[int]


@dataclass(frozen=True)
class Footer:
    """A decoded footer.

    data      its bytes as they lie in the file, without length and magic
    start     where they lie, bytes from the start of the file
    metadata  FileMetaData
    leaves    the columns; leaf i describes chunk i of every row group
    memory    of `derived`: what others derive from this footer and keep with it
    """

    data: bytes
    start: int
    metadata: FileMetaData
    leaves: tuple[Leaf, ...]
    memory: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def chunk(self, row_group: int, column: int) -> ColumnChunk:
        """A chunk's entry in the footer."""
        chunk: ColumnChunk = self.metadata.row_groups[row_group].columns[column]
        return chunk

    def meta(self, row_group: int, column: int) -> ColumnMetaData:
        """A chunk's metadata."""
        meta: ColumnMetaData = self.chunk(row_group, column).meta_data
        return meta

    def chunks(self) -> Iterator[tuple[int, int, ColumnChunk]]:
        """(row group, column, entry) of each chunk, row group by row group."""
        return iter(self._chunks)

    @cached_property
    def _chunks(self) -> list[tuple[int, int, ColumnChunk]]:
        return [
            (i, j, chunk) for i, group in enumerate(self.metadata.row_groups) for j, chunk in enumerate(group.columns)
        ]

    @property
    def n_row_groups(self) -> int:
        """How many row groups the file has."""
        return len(self.metadata.row_groups)

    @cached_property
    def exact(self) -> bool:
        """Whether the bindings write the same bytes again: there is nothing they do not understand."""
        try:
            return compact.encode(self.metadata) == self.data
        except (OverflowError, TypeError, ValueError):  # what only the lenient reader takes
            return False

    @cached_property
    def draft_filters(self) -> dict[tuple[int, int], bytes]:
        """(row group, column) -> the struct in field 7 of Statistics, which the bindings drop.

        Today that field is a boolean; the draft of 2015 (format.draft_2015) had its filter there.
        """
        return {} if self.exact else draft_structs(self.data)

    @property
    def created_by(self) -> str | None:
        """The program that wrote the file."""
        name: str | None = self.metadata.created_by
        return name

    @property
    def head(self) -> FileMetaData:
        """The metadata before the row groups, which a WalkedFooter does not decode for it; the rest may be missing."""
        return self.metadata

    @cached_property
    def rows(self) -> list[int]:
        """The rows of each row group."""
        return [group.num_rows for group in self.metadata.row_groups]

    @cached_property
    def foreign_filter_fields(self) -> set[tuple[int, int]]:
        """The (row group, column) whose ColumnMetaData 14 or 15 holds something else than a filter's range.

        Some program gave the id another meaning: a filter there would overwrite what it wrote.
        """
        return set() if self.exact else foreign_filter_fields(self.data)

    @derived
    def column_chunks(self, column: int) -> ColumnChunks:
        """The chunks of one column."""
        metas = [self.meta(i, column) for i in range(self.n_row_groups)]
        return ColumnChunks(
            [meta.num_values for meta in metas],
            [meta.statistics.null_count if meta.statistics is not None else None for meta in metas],
            [meta.total_compressed_size for meta in metas],
            [chunk_extent(meta) for meta in metas],
            [meta.codec for meta in metas],
        )

    def bounds_stated(self, column: int) -> list[int]:
        """The bounds that the chunks of one column state: 1 a lower one, 2 an upper one, 3 both."""
        of_chunks = [self.meta(i, column).statistics for i in range(self.n_row_groups)]
        pairs = [((one.min_value, one.min), (one.max_value, one.max)) if one else () for one in of_chunks]
        return [sum(bit for bit, pair in zip((1, 2), both, strict=False) if pair != (None, None)) for both in pairs]

    @property
    def key_values(self) -> list[KeyValue] | None:
        """The file's key-values; None where the footer has no list of them."""
        pairs: list[KeyValue] | None = self.metadata.key_value_metadata
        return pairs

    @cached_property
    def filter_ranges(self) -> dict[tuple[int, int], tuple[int, int | None]]:
        """Every filter the footer points at: (row group, column) -> bloom_filter_offset and bloom_filter_length."""
        return {
            (i, j): (chunk.meta_data.bloom_filter_offset, chunk.meta_data.bloom_filter_length)
            for i, j, chunk in self.chunks()
            if (chunk.meta_data.bloom_filter_offset or 0) > 0
        }

    @derived
    def index_ranges(self, kind: IndexKind) -> dict[ChunkKey, tuple[int, int]]:
        """The page indexes of a kind that the footer points at: (row group, column) -> offset and bytes."""
        found = ((i, j, getattr(c, f"{kind}_offset"), getattr(c, f"{kind}_length")) for i, j, c in self.chunks())
        return {(i, j): (at, length) for i, j, at, length in found if (at or 0) > 0 and (length or 0) > 0}

    @cached_property
    def filter_fields(self) -> set[tuple[int, int]]:
        """The (row group, column) that have the fields of a filter's range, be it one or not."""
        metas = ((i, j, chunk.meta_data) for i, j, chunk in self.chunks())
        return {(i, j) for i, j, m in metas if m.bloom_filter_offset is not None or m.bloom_filter_length is not None}

    def chunk_key_values(self) -> Iterator[tuple[int, int, list[KeyValue]]]:
        """Row group, column and key-values of the chunks that have any of their own."""
        for i, j, chunk in self.chunks():
            if chunk.meta_data.key_value_metadata:
                yield i, j, chunk.meta_data.key_value_metadata

    @cached_property
    def _pages(self) -> tuple[list[int], list[int]]:
        """Starts of all chunks, sorted, and how far the pages of this one and those before it reach."""
        extents = sorted(chunk_extent(chunk.meta_data) for _, _, chunk in self.chunks())
        return [start for start, _ in extents], list(accumulate((stop for _, stop in extents), max))

    def overlaps_pages(self, start: int, stop: int) -> bool:
        """Whether any chunk's pages share a byte with [start, stop)."""
        starts, reach = self._pages
        before = bisect_left(starts, stop)
        return before > 0 and reach[before - 1] > start

    def pages_reach(self, offset: int) -> int:
        """How far the pages of the chunks go that start at or before an offset: behind it, if it lies among them."""
        starts, reach = self._pages
        before = bisect_right(starts, offset)
        return reach[before - 1] if before else 0

    @cached_property
    def structure_starts(self) -> list[int]:
        """The start of every known structure: chunks, filters, page indexes, the footer. Sorted."""
        starts = {self.start}
        for _, _, chunk in self.chunks():
            meta = chunk.meta_data
            starts.add(chunk_extent(meta)[0])
            starts.update(at for at in (chunk.offset_index_offset, chunk.column_index_offset) if at)
            if (meta.bloom_filter_offset or 0) > 0:
                starts.add(meta.bloom_filter_offset)
        return sorted(starts)

    def room_at(self, offset: int) -> int:
        """Bytes from offset to the next known structure: a filter there has no more."""
        starts = self.structure_starts
        at = bisect_right(starts, offset)
        return (starts[at] if at < len(starts) else self.start) - offset


def chunk_extent(meta: ColumnMetaData) -> tuple[int, int]:
    """The extent of a chunk's pages: start and end, bytes from the start of the file.

    dictionary_page_offset may be 0 or garbage when there is no dictionary page: it counts only
    between the magic and the first data page. pyarrow gives the chunks of a row group without rows
    the offset 0: they have no pages.
    """
    start = meta.data_page_offset
    if start < len(MAGIC) and meta.num_values == 0:
        return start, start
    dictionary = meta.dictionary_page_offset
    if dictionary is not None and len(MAGIC) <= dictionary < start:
        start = dictionary
    return start, start + meta.total_compressed_size


def decode_footer(data: bytes, start: int) -> Footer:
    """Decode footer bytes and check that row groups, chunks and schema agree.

    Raises FooterError, and EncryptedFooterError for a plaintext footer with encrypted columns
    (which must not reach pyarrow: it ends the process on some of them).
    """
    metadata = (_by_row_groups(data) if len(data) > _LARGE else None) or _at_once(data)
    if metadata.schema is None or metadata.row_groups is None:
        raise FooterError(f"{len(data)} bytes of footer hold no schema or no row groups")
    if metadata.encryption_algorithm is not None:
        raise EncryptedFooterError("the file is encrypted and its footer is signed")
    leaves = leaves_of(metadata.schema)
    for i, group in enumerate(metadata.row_groups):
        _check_columns(i, group, len(leaves))
        for j, chunk in enumerate(group.columns):
            _check_chunk(chunk, f"row group {i}, column {leaves[j].name}")
    return Footer(data, start, metadata, leaves)


def _at_once(data: bytes) -> FileMetaData:
    try:
        return compact.decode(FileMetaData, data)[0]
    except FooterError:
        return compact.decode_leniently(FileMetaData, data)


def _by_row_groups(data: bytes) -> FileMetaData | None:
    """Decode a large footer one row group at a time; None where it is not as most are.

    An element of a list takes a byte in the footer and a hundred in memory. So the chunks of a row group are counted
    before the next one is decoded, and a wrong number is a FooterError.
    """
    at = id = 0
    columns = None
    # Fields of FileMetaData are skipped up to row_groups. The schema comes before it and is decoded alone, as a
    # footer of this one field, for the number of columns.
    while (header := field_header(data, at, id)) is not None:
        id, wire, value = header
        if id == FileMetaDataId.row_groups:
            count, kind, first = list_header(data, value)
            if columns is None or wire != LIST or kind != STRUCT:
                return None
            return _with_row_groups(data, value, first, count, columns)
        at = skip(data, value, wire)
        if id == FileMetaDataId.schema and wire == LIST:
            schema_alone = first_field(id, LIST) + data[value:at] + STOP
            columns = len(leaves_of(compact.decode(FileMetaData, schema_alone)[0].schema or []))
    return None


def _with_row_groups(data: bytes, start: int, first: int, count: int, columns: int) -> FileMetaData | None:
    """`_by_row_groups` for `count` row groups, whose list starts at `start` and its first element at `first`."""
    groups: list[RowGroup] = []
    end = first
    try:
        with compact.uncollected():
            for group, after in compact.decode_each(RowGroup, data, first, count):
                _check_columns(len(groups), group, columns)
                groups.append(group)
                end = after
        # All other fields, with an empty list in the place of the row groups.
        rest, _ = compact.decode(FileMetaData, data[:start] + list_of_structs(0) + data[end:])
    except FooterError as error:
        # `decode` and `decode_each` chain the reader's error; `_check_columns` has none to chain.
        if isinstance(error.__cause__, Exception):
            return None  # fields of a wrong type, which the other reader passes over
        raise
    if rest.row_groups:  # the field is there twice
        return None
    rest.row_groups = groups
    return rest


def _check_columns(i: int, group: RowGroup, columns: int) -> None:
    found = 0 if group.columns is None else len(group.columns)
    if group.columns is None or found != columns:
        raise FooterError(f"row group {i} has {found} column chunks, the schema has {columns} columns")
    if group.num_rows is None:  # no row would be read, in silence
        raise FooterError(f"row group {i} does not say how many rows it has")


def _check_chunk(chunk: ColumnChunk, where: str) -> None:
    if chunk.crypto_metadata is not None or chunk.encrypted_column_metadata is not None:
        raise EncryptedFooterError(f"{where} is encrypted")
    meta = chunk.meta_data
    if meta is None:
        raise FooterError(f"{where} has no metadata")
    needed = (meta.type, meta.num_values, meta.total_compressed_size, meta.data_page_offset)
    if any(value is None for value in needed):
        raise FooterError(f"{where} lacks its type, num_values, size or page offset")
