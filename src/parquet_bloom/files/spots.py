"""Where the filters of one column lie, for all row groups at once, and asking them.

Most filters are `final`, of a power-of-two size, with a length in the footer that agrees with
everything around: header and block are then read together, and the block counts if the header is,
byte for byte, the one that the length promised. All others go one by one through files.locate,
which decides what may be believed. Both decide alike (tests/test_spots.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError, UnknownFilterError
from parquet_bloom.files.locate import Places, probe
from parquet_bloom.files.storage import Source, storage_error
from parquet_bloom.formats import final
from parquet_bloom.formats.footer import MAGIC
from parquet_bloom.formats.outline import Outline, Slot
from parquet_bloom.kernels.split_block import BLOCK_BYTES, SALT

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
_WHOLE_BYTES = 64  # a filter that is hardly larger than the blocks that are wanted is read as one


@dataclass(frozen=True, slots=True)
class Spots:
    """The filters of one column; every array has one element a row group.

    exists     bool: the footer points at one
    fits       bool: length, room and pages allow the filter of `final` that the length promises
    offset     int64, bytes from the start of the file
    num_bytes  int64, of the bitset, where it fits
    """

    exists: Flags
    fits: Flags
    offset: Integers
    num_bytes: Integers


def spots_of(outline: Outline, column: int) -> Spots:
    """The spots of a column's filters; kept with the outline."""
    key = ("spots", column)
    if key not in outline.memory:
        outline.memory[key] = _spots(outline, column)
    spots: Spots = outline.memory[key]
    return spots


@lru_cache(1)
def _sizes() -> tuple[Integers, Integers]:
    """Every power of two of bitset bytes, and what it takes with its header."""
    num_bytes = [1 << i for i in range(5, 31)]
    return np.array([n + len(final.header(n)) for n in num_bytes]), np.array(num_bytes)


@lru_cache(64)
def _header(num_bytes: int) -> bytes:
    return final.header(num_bytes)


def _extents(outline: Outline) -> tuple[Integers, Integers]:
    """Where the pages of every chunk start and stop, as footer.chunk_extent has it."""
    slots = outline.slots
    data, dictionary = slots[Slot.DATA_PAGE], slots[Slot.DICTIONARY_PAGE]
    start = np.where((dictionary >= 4) & (dictionary < data), dictionary, data)
    stop = start + slots[Slot.COMPRESSED_SIZE]
    empty = (data < len(MAGIC)) & (slots[Slot.NUM_VALUES] == 0)
    return np.where(empty, data, start), np.where(empty, data, stop)


def _structures(outline: Outline) -> tuple[Integers, Integers, Integers, dict[int, int]]:
    """Pages of all chunks, the sorted starts of all structures, and how many chunks share an offset."""
    if "structures" not in outline.memory:
        slots = outline.slots
        start, stop = _extents(outline)
        filters = slots[Slot.FILTER_OFFSET]
        indexes = [s[s > 0] for s in (slots[Slot.OFFSET_INDEX], slots[Slot.COLUMN_INDEX], filters)]
        starts = np.unique(np.concatenate([[outline.start], start.reshape(-1), *indexes]))
        at, times = np.unique(filters[filters > 0], return_counts=True)
        shared = {int(a): int(t) for a, t in zip(at[times > 1], times[times > 1], strict=True)}
        outline.memory["structures"] = start, stop, starts, shared
    found: tuple[Integers, Integers, Integers, dict[int, int]] = outline.memory["structures"]
    return found


def _spots(outline: Outline, column: int) -> Spots:
    offset = outline.slots[Slot.FILTER_OFFSET, :, column]
    length = outline.slots[Slot.FILTER_LENGTH, :, column]
    exists = offset > 0
    totals, num_bytes = _sizes()
    at = np.minimum(np.searchsorted(totals, length), len(totals) - 1)
    fits = exists & (offset >= 4) & (offset < outline.start) & (totals[at] == length)
    if fits.any():
        start, stop, starts, shared = _structures(outline)
        after = np.searchsorted(starts, offset, side="right")
        following = np.where(after < len(starts), starts[np.minimum(after, len(starts) - 1)], outline.start)
        fits &= length <= following - offset
        fits &= ~((offset < stop[:, column]) & (start[:, column] < offset + length))
        if shared:
            fits &= ~np.isin(offset, list(shared))
    return Spots(exists, fits, offset, num_bytes[at])


@dataclass(slots=True)
class Answers:
    """What the filters said; one element for each row group that was asked.

    denied      bool: none of the probes is there
    bytes_read  int64
    damaged     row group -> what is wrong with its filter
    unknown     row group -> why its filter is not used
    """

    denied: Flags
    bytes_read: Integers
    damaged: dict[int, str]
    unknown: dict[int, str]


def ask(source: Source, column: int, row_groups: Sequence[int], probes: Sequence[tuple[bytes, ...]]) -> Answers:
    """Ask the filters of a column, each for its probes: PLAIN bytes of values.

    Reads a header and one block for each probe (the whole filter where that is no more).
    """
    spots = spots_of(source.outline(), column)
    n = len(row_groups)
    answers = Answers(np.zeros(n, bool), np.zeros(n, np.int64), {}, {})
    fits = spots.fits[np.asarray(row_groups, np.int64)]
    slow = np.flatnonzero(~fits).tolist()
    fast = np.flatnonzero(fits)
    if len(fast):
        slow += _ask_together(source, spots, row_groups, probes, fast, answers)
    if slow:
        places = Places(source.footer())
        for i in slow:
            _ask_alone(source, places, (row_groups[i], column), probes[i], i, answers)
    return answers


def _ask_alone(
    source: Source, places: Places, key: tuple[int, int], probes: tuple[bytes, ...], i: int, answers: Answers
) -> None:
    place = places[key]
    if place is None:
        return
    before = source.bytes_read
    try:
        answers.denied[i] = not any(probe(source, place, plain) for plain in probes)
    except UnknownFilterError as error:
        answers.unknown[key[0]] = str(error)
    except (FilterFormatError, DamagedFileError) as error:
        answers.damaged[key[0]] = str(error)
    answers.bytes_read[i] += source.bytes_read - before


class _Hashed:
    """Hashes of probes and the bits they want, each worked out once."""

    def __init__(self) -> None:
        self.hashes: dict[bytes, int] = {}
        self.words: dict[bytes, NDArray[np.uint32]] = {}

    def upper(self, plain: bytes) -> int:
        h = self.hashes.get(plain)
        if h is None:
            h = self.hashes[plain] = final.RULE.hash_value(plain)
            low = h & 0xFFFFFFFF
            self.words[plain] = np.array([1 << ((low * salt & 0xFFFFFFFF) >> 27) for salt in SALT], np.uint32)
        return h >> 32


def _ask_together(
    source: Source, spots: Spots, row_groups: Sequence[int], probes: Sequence[tuple[bytes, ...]],
    fast: NDArray[np.intp], answers: Answers,
) -> list[int]:  # fmt: skip
    """Ask filters that fit; returns those (by position) whose header is not the one promised."""
    hashed = _Hashed()
    ranges: list[tuple[int, int]] = []  # of the file: header and blocks, or all of a small filter
    plans: list[tuple[int, int, list[int] | None]] = []  # position, ranges, places of blocks in the one range
    offsets, sizes = spots.offset.tolist(), spots.num_bytes.tolist()
    for i in fast.tolist():
        offset, size = offsets[row_groups[i]], sizes[row_groups[i]]
        head, blocks = len(_header(size)), size // BLOCK_BYTES
        places = [head + BLOCK_BYTES * (hashed.upper(plain) * blocks >> 32) for plain in probes[i]]
        if size <= _WHOLE_BYTES + BLOCK_BYTES * len(places):
            ranges.append((offset, head + size))
            plans.append((i, 1, places))
        else:
            ranges.append((offset, head))
            ranges += [(offset + place, BLOCK_BYTES) for place in places]
            plans.append((i, 1 + len(places), None))
    data = _read(source, ranges)
    blocks_read: list[bytes] = []
    words: list[NDArray[np.uint32]] = []
    asked: list[int] = []
    other: list[int] = []
    at = 0
    for i, n, within in plans:
        first, rest, at = data[at], data[at + 1 : at + n], at + n
        answers.bytes_read[i] += len(first) + BLOCK_BYTES * len(rest)
        expected = _header(sizes[row_groups[i]])
        if not first.startswith(expected):
            other.append(i)
            continue
        asked.append(i)
        blocks_read += rest if within is None else [first[p : p + BLOCK_BYTES] for p in within]
        words += [hashed.words[plain] for plain in probes[i]]
    if asked:
        found = np.frombuffer(b"".join(blocks_read), "<u4").reshape(-1, 8)
        masks = np.array(words, np.uint32).reshape(-1, 8)
        hit = ((found & masks) == masks).all(1)
        owner = np.repeat(np.arange(len(asked)), [len(probes[i]) for i in asked])
        answers.denied[asked] = np.bincount(owner[hit], minlength=len(asked)) == 0
    return other


def _read(source: Source, ranges: list[tuple[int, int]]) -> list[bytes]:
    if source.fd is None or any(o + n > source.size for o, n in ranges):
        return source.read_ranges(ranges)
    fd, pread = source.fd, os.pread
    try:
        data = [pread(fd, n, o) for o, n in ranges]
    except OSError as error:
        raise storage_error(source.path, error) from error
    for (o, n), part in zip(ranges, data, strict=True):
        if len(part) != n:
            raise DamagedFileError(source.path, f"ends before byte {o + n}, it had {source.size} when it was opened")
    source.requests += len(ranges)
    source.bytes_read += sum(n for _, n in ranges)
    return data
