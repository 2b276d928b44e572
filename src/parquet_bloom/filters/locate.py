"""Finds a column chunk's filter, reads its header, and checks that both agree.

Unknown is no error: a hash or a form we do not know gives no evidence. Damage is one: header,
length, file range and the gap to the next known structure must agree, because bits read under a
wrong size or at a wrong place answer "absent" for values that are there.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FilterFormatError
from parquet_bloom.format import final
from parquet_bloom.format.filters import HEADER_BYTES, BloomFilter, Header, believe, decode_filter, recognise
from parquet_bloom.format.final import Candidate, Rule
from parquet_bloom.format.footer import MAGIC, ChunkKey, Footer, chunk_extent, derived
from parquet_bloom.format.footer_filters import filters_of_column
from parquet_bloom.format.outline import FILE_BITS, NONE, Outline, Slot, extents
from parquet_bloom.format.provenance import read_entries, rules_of
from parquet_bloom.format.statistics import Counts, counts_in
from parquet_bloom.kernels import split_block
from parquet_bloom.kernels.split_block import MAX_BYTES
from parquet_bloom.storage.open_file import OpenFile

# --- where filters may lie ------------------------------------------------------------------------
#
# Where the filters of one column lie, for all row groups at once.
#
# Most filters are `final`, of a power-of-two size, with a length in the footer that agrees with everything
# around. These have a range; RangesByChunk and `contradiction`, below, decide about each of the
# others alone.

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class ColumnFilterRanges(NamedTuple):
    """The filters of one column; every array has one element a row group.

    exists     bool: the footer points at one, or holds one itself
    fits       bool: length, room and pages allow the filter of `final` that the length promises
    offset     int64, address: of one file, bytes from its start
    num_bytes  int64, of the bitset, where it fits
    """

    exists: Flags
    fits: Flags
    offset: Integers
    num_bytes: Integers


@derived
def filter_ranges_of(outline: Outline, column: int) -> ColumnFilterRanges:
    """The ranges of a column's filters."""
    return _filter_ranges(outline, column)


@lru_cache(1)
def sizes() -> tuple[Integers, Integers]:
    """Every power of two of bitset bytes, and what it takes with its header."""
    num_bytes = [1 << i for i in range(5, MAX_BYTES.bit_length())]
    return np.array([n + len(final.header(n)) for n in num_bytes]), np.array(num_bytes)


@lru_cache(64)
def header_of(num_bytes: int) -> bytes:
    """The final header of a bitset of so many bytes."""
    return final.header(num_bytes)


class _Structures(NamedTuple):
    """The structures of the files of an outline, by their addresses.

    page_start, page_stop  int64[row groups, columns]: the extent of each chunk's pages
    starts                 int64[..], sorted: where chunks, page indexes, filters and the footers start
    shared                 int64[..]: filter offsets that several chunks have
    chunk_starts           int64[chunks], sorted
    chunk_reach            int64[chunks]: how far the pages of this chunk and of those before it, by start, reach
    """

    page_start: Integers
    page_stop: Integers
    starts: Integers
    shared: Integers
    chunk_starts: Integers
    chunk_reach: Integers


@derived
def _structures(outline: Outline) -> _Structures:
    """The structures of a file."""
    slots = outline.slots
    base = outline.base[:, None]
    start, stop = (ends + base for ends in extents(outline))
    footers = outline.starts + (np.arange(outline.n_files) << FILE_BITS)
    filters, *others = (
        np.where(slots[slot] > 0, slots[slot] + base, 0)
        for slot in (Slot.FILTER_OFFSET, Slot.OFFSET_INDEX, Slot.COLUMN_INDEX)
    )
    starts = np.sort(np.concatenate([footers, start.reshape(-1), *(s[s > 0] for s in (filters, *others))]))
    used = np.sort(filters[filters > 0])
    shared = used[1:][used[1:] == used[:-1]]
    order = np.argsort(start, axis=None, kind="stable")
    reach = np.maximum.accumulate(stop.reshape(-1)[order])
    return _Structures(start, stop, starts, shared, start.reshape(-1)[order], reach)


def _filter_ranges(outline: Outline, column: int) -> ColumnFilterRanges:
    base, offset = outline.base, outline.slots[Slot.FILTER_OFFSET, :, column]
    offset = np.where(offset >= len(MAGIC), offset + base, offset)
    length = outline.slots[Slot.FILTER_LENGTH, :, column]
    exists = is_pointed_at(offset)
    pointed_at = exists.copy()
    exists[list(filters_of_column(outline, column))] = True
    # The length must be that of header and bitset for a power of two. A missing length, NONE, is none of them.
    totals, num_bytes = sizes()
    at = np.minimum(np.searchsorted(totals, length), len(totals) - 1)
    footer = np.asarray(outline.starts)[outline.file_of] + base
    fits = pointed_at & (offset >= len(MAGIC)) & (offset < footer) & (totals[at] == length)
    # Everything around must agree as well; `contradiction` says the same of one filter, in words.
    if fits.any():
        file = _structures(outline)
        # It ends before the next structure begins.
        after = np.searchsorted(file.starts, offset, side="right")
        last = len(file.starts) - 1
        following = np.where(after <= last, file.starts[np.minimum(after, last)], footer)
        fits &= length <= following - offset
        # It shares no byte with its own chunk's pages, and does not begin among the pages of any chunk.
        fits &= ~((offset < file.page_stop[:, column]) & (file.page_start[:, column] < offset + length))
        before = np.searchsorted(file.chunk_starts, offset, side="right")
        fits &= (before == 0) | (file.chunk_reach[np.maximum(before, 1) - 1] <= offset)
        # And it is one chunk's alone.
        shared = file.shared
        if len(shared):
            fits &= ~np.isin(offset, shared)
    return ColumnFilterRanges(exists, fits, offset, num_bytes[at])


def is_pointed_at(offset: Integers) -> Flags:
    """The chunks at whose filter the footer points; a negative offset is damage."""
    there: Flags = (offset != 0) & (offset != NONE)
    return there


# --- headers and bitsets --------------------------------------------------------------------------

_FIRST_LOOK, _FURTHER = 4096, 16  # bytes of a bitset, and how many times as many next


class FilterRange(NamedTuple):
    """The range of a filter, by the footer.

    offset  bytes from the start of the file
    length  bloom_filter_length, header and bitset; None where the footer has none
    room    bytes to the next known structure
    pages   where the chunk's own pages lie, start and end
    rule    what the file's own metadata says of the hash, if it is believed
    sharers how many column chunks point at this offset; a filter speaks of one
    reach   how far the pages of all chunks go that start at or before this offset
    counts  num_values and null_count of the chunk
    """

    offset: int
    length: int | None
    room: int
    pages: tuple[int, int]
    rule: Rule | None = None
    sharers: int = 1
    reach: int = 0
    counts: Counts = (0, None)

    def fits(self, num_bytes: int) -> bool:
        """Whether length, room and pages allow a filter of `final` with num_bytes of bitset there."""
        header = Header("final", num_bytes, (Candidate(final.RULE, (self.length or 0) - num_bytes),))
        return self.offset >= len(MAGIC) and self.length is not None and contradiction(header, self) is None

    @property
    def total(self) -> int:
        """Bytes of header and bitset, by another source than the header."""
        return self.length if self.length is not None else self.room


class RangesByChunk:
    """The ranges of all filters in the body of one file."""

    def __init__(self, footer: Footer) -> None:
        self._footer = footer
        self._rules = rules_of(read_entries(footer))
        self._used = Counter(chunk.meta_data.bloom_filter_offset for _, _, chunk in footer.chunks())

    def __getitem__(self, key: ChunkKey) -> FilterRange | None:
        """The range of a chunk's filter; None where the footer points at none."""
        meta = self._footer.meta(*key)
        offset = meta.bloom_filter_offset
        if offset in (None, 0, NONE):
            return None
        room = max(0, self._footer.room_at(offset)) if offset < self._footer.start else 0
        return FilterRange(
            offset,
            meta.bloom_filter_length,
            room,
            chunk_extent(meta),
            self._rules.get(key),
            self._used[offset],
            self._footer.pages_reach(offset),
            counts_in(self._footer, key[0], self._footer.leaves[key[1]]),
        )


def read_header(source: OpenFile, filter_range: FilterRange) -> Header:
    """Read and recognise a filter's header. Raises FilterFormatError, UnknownFilterError."""
    if filter_range.offset < len(MAGIC) or filter_range.room <= 0:
        raise FilterFormatError(f"bloom_filter_offset {filter_range.offset} lies outside the file's body")
    if filter_range.offset < filter_range.reach:
        raise FilterFormatError(_among_pages(f"bloom_filter_offset {filter_range.offset} lies", filter_range))
    data = source.read_up_to(filter_range.offset, HEADER_BYTES)
    return believe(recognise(data, filter_range.total), filter_range.rule)


def _among_pages(what: str, filter_range: FilterRange) -> str:
    start, stop = filter_range.pages
    if start <= filter_range.offset < stop:
        return f"{what} among the chunk's pages from {start} to {stop}"
    return f"{what} among another chunk's pages, which end at {filter_range.reach}"


def contradiction(header: Header, filter_range: FilterRange) -> str | None:
    """The contradiction between header, length and range, with both numbers; None if they agree."""
    # Several candidates may fit a header, with bitsets that begin at different bytes, so there may be several totals.
    # The smallest is what the filter takes at least.
    totals = sorted({c.bits_at + header.num_bytes for c in header.candidates})
    shown = " or ".join(map(str, totals))
    if filter_range.length is not None and filter_range.length not in totals:
        return f"bloom_filter_length is {filter_range.length}, header and bitset take {shown} bytes"
    if filter_range.sharers > 1:
        return f"{filter_range.sharers} column chunks point at offset {filter_range.offset}, a filter speaks of one"
    start, stop = filter_range.pages
    if filter_range.offset < filter_range.reach:
        return _among_pages(f"header and bitset take {shown} bytes at {filter_range.offset},", filter_range)
    if filter_range.offset < stop and start < filter_range.offset + totals[0]:
        where = f"bytes at {filter_range.offset}, among the chunk's pages from {start} to {stop}"
        return f"header and bitset take {shown} {where}"
    if totals[0] > filter_range.room:
        return f"header and bitset take {shown} bytes, but the next structure begins after {filter_range.room}"
    if filter_range.length is None and filter_range.room not in totals:
        next_one = f"the next structure begins after {filter_range.room}"
        return f"no bloom_filter_length; header and bitset take {shown} bytes, {next_one}"
    if header.num_bytes > split_block.MAX_BYTES:
        return f"numBytes is {header.num_bytes}, over the {split_block.MAX_BYTES} that readers take"
    return None


def read_filter(source: OpenFile, filter_range: FilterRange) -> BloomFilter:
    """Read a whole filter whose header, length, range and checksum agree. Raises FilterFormatError where not."""
    return whole_filter(source, filter_range, agreeing_header(source, filter_range))


def agreeing_header(source: OpenFile, filter_range: FilterRange) -> Header:
    """Read a filter's header, if length and range agree with it. Raises FilterFormatError, UnknownFilterError."""
    header = read_header(source, filter_range)
    problem = contradiction(header, filter_range)
    if problem is not None:
        raise FilterFormatError(problem)
    return header


def whole_filter(source: OpenFile, filter_range: FilterRange, header: Header) -> BloomFilter:
    """Read the rest of a filter whose header agrees. Raises FilterFormatError where its checksum does not."""
    end = max(c.bits_at for c in header.candidates) + header.num_bytes
    bloom = decode_filter(source.read_up_to(filter_range.offset, end), filter_range.total, filter_range.rule)
    problem = bloom.rotten
    if problem is not None:
        raise FilterFormatError(problem)
    return bloom


def any_bit(source: OpenFile, offset: int, length: int) -> bool:
    """Whether a bitset has a bit that is set; reads until there is one, which is nearly always soon."""
    step = _FIRST_LOOK
    while length > 0:
        data = source.read_up_to(offset, min(step, length))
        if data.count(0) < len(data):
            return True
        offset, length, step = offset + step, length - step, _FURTHER * step
    return False
