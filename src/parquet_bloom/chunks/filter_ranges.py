"""Where the filters of one column lie, for all row groups at once.

Most filters are `final`, of a power-of-two size, with a length in the footer that agrees with everything
around. These have a range; the others are for chunks.locate, which decides what may be believed, one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.formats import final
from parquet_bloom.formats.footer_filters import filters_of_column
from parquet_bloom.formats.metadata.derived import derived
from parquet_bloom.formats.metadata.outline import NONE, Outline, Slot, extents
from parquet_bloom.kernels.split_block import MAX_BYTES

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ColumnFilterRanges:
    """The filters of one column; every array has one element a row group.

    exists     bool: the footer points at one, or holds one itself
    fits       bool: length, room and pages allow the filter of `final` that the length promises
    offset     int64, bytes from the start of the file
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


def fitting_ranges(outline: Outline, keys: Iterable[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """Offset and num_bytes, see ColumnFilterRanges, of the filters that fit; by chunk, those without one left out."""
    groups_of: dict[int, list[int]] = {}
    for group, column in keys:
        groups_of.setdefault(column, []).append(group)
    fitting: dict[tuple[int, int], tuple[int, int]] = {}
    for column, groups in groups_of.items():
        ranges = filter_ranges_of(outline, column)
        here = np.array(groups, np.int64)
        here = here[ranges.fits[here]]
        pairs = zip(ranges.offset[here].tolist(), ranges.num_bytes[here].tolist(), strict=True)
        fitting.update(zip(((group, column) for group in here.tolist()), pairs, strict=True))
    return fitting


@lru_cache(1)
def sizes() -> tuple[Integers, Integers]:
    """Every power of two of bitset bytes, and what it takes with its header."""
    num_bytes = [1 << i for i in range(5, MAX_BYTES.bit_length())]
    return np.array([n + len(final.header(n)) for n in num_bytes]), np.array(num_bytes)


@lru_cache(64)
def header_of(num_bytes: int) -> bytes:
    """The final header of a bitset of so many bytes."""
    return final.header(num_bytes)


@derived
def _structures(outline: Outline) -> tuple[Integers, ...]:
    """Say where the structures of a file lie.

    Pages of all chunks, the sorted starts of all structures, offsets that several chunks share; the sorted starts of
    all chunks, and how far the pages of each and of those before it reach.
    """
    slots = outline.slots
    start, stop = extents(outline)
    filters = slots[Slot.FILTER_OFFSET]
    indexes = [s[s > 0] for s in (slots[Slot.OFFSET_INDEX], slots[Slot.COLUMN_INDEX], filters)]
    starts = np.sort(np.concatenate([[outline.start], start.reshape(-1), *indexes]))
    used = np.sort(filters[filters > 0])
    shared = used[1:][used[1:] == used[:-1]]
    order = np.argsort(start, axis=None, kind="stable")
    reach = np.maximum.accumulate(stop.reshape(-1)[order])
    return start, stop, starts, shared, start.reshape(-1)[order], reach


def _filter_ranges(outline: Outline, column: int) -> ColumnFilterRanges:
    offset = outline.slots[Slot.FILTER_OFFSET, :, column]
    length = outline.slots[Slot.FILTER_LENGTH, :, column]
    exists = is_pointed_at(offset)
    pointed_at = exists.copy()
    exists[list(filters_of_column(outline, column))] = True
    totals, num_bytes = sizes()
    at = np.minimum(np.searchsorted(totals, length), len(totals) - 1)
    fits = pointed_at & (offset >= 4) & (offset < outline.start) & (totals[at] == length)
    if fits.any():
        start, stop, starts, shared, chunks, reach = _structures(outline)
        after = np.searchsorted(starts, offset, side="right")
        following = np.where(after < len(starts), starts[np.minimum(after, len(starts) - 1)], outline.start)
        fits &= length <= following - offset
        fits &= ~((offset < stop[:, column]) & (start[:, column] < offset + length))
        before = np.searchsorted(chunks, offset, side="right")
        fits &= (before == 0) | (reach[np.maximum(before, 1) - 1] <= offset)
        if len(shared):
            fits &= ~np.isin(offset, shared)
    return ColumnFilterRanges(exists, fits, offset, num_bytes[at])


def is_pointed_at(offset: Integers) -> Flags:
    """Where the footer points at a filter; at a negative offset there is none, which is told as damage."""
    there: Flags = (offset != 0) & (offset != NONE)
    return there
