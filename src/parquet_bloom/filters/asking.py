"""Asking the filters of one column, for all row groups at once.

Where filters.locate has a range for a filter, header and block are read together, and the block counts if the
header is, byte for byte, the one that the length promised. All others go one by one through filters.stored. Both
decide alike (tests/filters/test_filter_ranges.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError, UnknownFilterError
from parquet_bloom.filters.locate import (
    ColumnFilterRanges,
    Flags,
    Integers,
    any_bit,
    filter_ranges_of,
    header_of,
    sizes,
)
from parquet_bloom.filters.stored import StoredFilter, StoredFilters
from parquet_bloom.format import final
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import FAR, FILE_BITS, NONE, Outline
from parquet_bloom.format.statistics import counts_of, empty_filter_problem
from parquet_bloom.kernels.block import BLOCK_BYTES, block_of, masks
from parquet_bloom.kernels.split_block import contains_hashes, from_bytes
from parquet_bloom.process import in_parts
from parquet_bloom.storage.open_file import OpenFile, Range
from parquet_bloom.storage.tails import FarTails, Tails
from parquet_bloom.storage.workers import processors

_WHOLE_BYTES = 64  # a filter that is hardly larger than the blocks that are wanted is read as one
_WHOLE_LOCAL_BYTES = 2048  # and so is one of a local file that is copied sooner than a second call returns
_LEAST_A_THREAD = 4096  # filters: some milliseconds
_MOST_THREADS = 4
_FIRST_PROBES = 2048  # of a long list that are asked for before the rest
_MOST_BYTES = 1 << 26  # of whole filters in memory at a time
_FEW_PROBES = 1 << 22  # in memory, for which the loop over blocks is as good as that over whole filters


@dataclass(slots=True)
class Answers:
    """The filters' answers; one element for each queried row group.

    denied      bool: none of the probes is there
    bytes_read  int64
    damaged     row group -> what is wrong with its filter
    unknown     row group -> why its filter is not used
    blank       bool: denied, and no bit is set in the blocks that were read
    """

    denied: Flags
    bytes_read: Integers
    damaged: dict[int, str]
    unknown: dict[int, str]
    blank: Flags


Probes = tuple[bytes, ...] | Sequence[tuple[bytes, ...]]


class Files(NamedTuple):
    """The files of an outline, as far as filters are read of them, by the addresses that the outline has.

    is_local    a read is a system call, and no request
    reads_more  than is in memory
    has_places  the compiled loops can read them
    memory      their bytes that are in memory, uint8[n]
    places      addresses -> where filters are, as ask_kernel has it: int64[3, n]
    read_ranges  ranges -> bytes. Raises DamagedFileError where a file is shorter by now, OSError
    counts      (whether one is shorter by now, requests, bytes) of what a loop read
    """

    is_local: bool
    reads_more: bool
    has_places: bool
    memory: Callable[[], NDArray[np.uint8]]
    places: Callable[[Integers], Integers]
    read_ranges: Callable[[Sequence[Range]], list[bytes]]
    counts: Callable[[bool, int, int], None]


def alone(source: OpenFile) -> Files:
    """One open file; what is wrong with it is raised."""

    def count(is_cut: bool, requests: int, bytes_read: int) -> None:
        source.count(requests, bytes_read)
        if is_cut:
            raise DamagedFileError(source.path, f"is shorter by now, it had {source.size} bytes when it was opened")

    def places(address: Integers) -> Integers:
        return np.array([np.full(len(address), source.fd), address, np.full(len(address), -1)])

    is_local = source.fd is not None
    return Files(is_local, True, is_local, lambda: np.empty(0, np.uint8), places, source.read_ranges, count)


def several(tails: Tails | FarTails, numbers: Integers) -> Files:
    """Files that are open together.

    numbers  int64[files]: which of the open files each file of the outline is
    """

    def places(address: Integers) -> Integers:
        file, offset = numbers[address >> FILE_BITS], address & FAR - 1
        kept_at, base = tails.kept_from()[:, file]
        return np.array([tails.descriptors()[file], offset, np.where(offset >= kept_at, base + offset - kept_at, -1)])

    def read_ranges(ranges: Sequence[Range]) -> list[bytes]:
        return [tails.read(int(numbers[at >> FILE_BITS]), at & FAR - 1, length) for at, length in ranges]

    more = tails.reads_more
    return Files(more, more, True, lambda: tails.buffer, places, read_ranges, lambda *read: None)


def ask(source: OpenFile, column: int, row_groups: Integers, probes: Probes) -> Answers:
    """Query the filters of a column of one file, each for its probes: PLAIN bytes of values.

    row_groups  int64[n], their numbers
    probes      a tuple for all of them, or a list of one tuple each

    Reads a header and one block for each probe; a small filter as a whole.
    """
    outline = source.outline()
    answers, other = ask_blocks(alone(source), outline, column, row_groups, probes)
    _recheck_blank_filters(source, filter_ranges_of(outline, column), column, row_groups, answers)
    filters, leaf = StoredFilters(source), outline.leaves[column]
    for i in np.flatnonzero(other).tolist():
        own = probes if isinstance(probes, tuple) else probes[i]
        _ask_alone(source, filters.queried(int(row_groups[i]), leaf), own, i, answers)
    return answers


def ask_blocks(
    files: Files, outline: Outline, column: int, row_groups: Integers, probes: Probes
) -> tuple[Answers, Flags]:
    """Query the filters of a column in the files of an outline, as `ask` does.

    returns  also which row groups have filters about which nothing is said here, since they are not as most are: not
             where they fit, with another header, or where nothing more is read
    Raises DamagedFileError where a file is shorter by now, OSError.
    """
    # `denied` is FALSE until a filter has said no to every probe: whatever goes wrong on the way leaves a row group to
    # be read. A filter denies only under a header that is the promised one to the byte, since under another header the
    # block would be one of another size, or of no filter.
    ranges = filter_ranges_of(outline, column)
    n = len(row_groups)
    answers = Answers(np.zeros(n, bool), np.zeros(n, np.int64), {}, {}, np.zeros(n, bool))
    other = ~ranges.fits[row_groups]
    fast = np.flatnonzero(~other)
    if len(fast) and not files.reads_more:
        inside = files.places(ranges.offset[row_groups[fast]])[2] >= 0
        other[fast[~inside]] = True
        fast = fast[inside]
    if len(fast):
        address, size = ranges.offset[row_groups[fast]], ranges.num_bytes[row_groups[fast]]
        by = _ask_in_turns if files.is_local else _ask_by_ranges
        if files.has_places and "numba" in sys.modules:
            by = _ask_by_loop
        other[fast] = by(files, address, size, probes, fast, answers)
    return answers, other


def _recheck_blank_filters(
    source: OpenFile, ranges: ColumnFilterRanges, column: int, row_groups: Integers, answers: Answers
) -> None:
    """Take back denials of filters without any bit. Only filters that denied by a blank block are read."""
    # A filter without any bit denies every value. That is right if its chunk holds nothing but NULL, and otherwise a
    # filter that its writer never filled. Blank blocks alone do not show it, since a sparse filter has some.
    if not answers.blank.any():
        return
    outline = source.outline()
    known = _filters_with_bits(outline, column)
    for i in np.flatnonzero(answers.blank).tolist():
        group, before = int(row_groups[i]), source.bytes_read
        if group not in known:
            num_bytes = int(ranges.num_bytes[group])
            known[group] = any_bit(source, int(ranges.offset[group]) + len(header_of(num_bytes)), num_bytes)
        answers.bytes_read[i] += source.bytes_read - before
        found = None if known[group] else empty_filter_problem(counts_of(outline, group, column))
        if found is not None:
            reason, wrong = found
            answers.denied[i] = False
            (answers.damaged if wrong else answers.unknown)[group] = reason


@derived
def _filters_with_bits(outline: Outline, column: int) -> dict[int, bool]:
    """Row group -> whether its filter has any bit, of the filters read so far."""
    return {}


def _ask_alone(
    source: OpenFile, stored: StoredFilter | None, probes: tuple[bytes, ...], i: int, answers: Answers
) -> None:
    if stored is None:
        return
    before = source.bytes_read
    try:
        answers.denied[i] = not any(stored.might_contain(plain) for plain in probes)
    except UnknownFilterError as error:
        answers.unknown[stored.row_group] = str(error)
    except (FilterFormatError, DamagedFileError) as error:
        answers.damaged[stored.row_group] = str(error)
    answers.bytes_read[i] += source.bytes_read - before


def _ask_in_turns(
    files: Files,
    offset: Integers,
    size: Integers,
    probes: Probes,
    fast: NDArray[np.intp],
    answers: Answers,
) -> Flags:
    """The first probes of all filters, and more only where these are denied: of very many, some are admitted."""
    if isinstance(probes, tuple) or max(map(len, probes)) <= _FIRST_PROBES:
        return _ask_by_ranges(files, offset, size, probes, fast, answers)
    # A turn writes over what the turn before said of a filter. That is right, for only filters that have denied all
    # probes so far take another turn: one that admits a probe, or has another header, is done.
    other = np.zeros(len(fast), bool)
    active, first, step = np.arange(len(fast)), 0, _FIRST_PROBES
    while len(active):
        turn = [one[first : first + step] for one in probes]
        other[active] |= _ask_by_ranges(files, offset[active], size[active], turn, fast[active], answers)
        first, step = first + step, 8 * step
        more = np.array([len(probes[i]) > first for i in fast[active].tolist()], bool)
        active = active[more & answers.denied[fast[active]] & ~other[active]]
    return other


def _ask_by_loop(
    files: Files, offset: Integers, size: Integers, probes: Probes, fast: NDArray[np.intp], answers: Answers
) -> Flags:
    from parquet_bloom.filters import ask_kernel

    n = len(fast)
    kinds, heads, head_bytes = headers_of(size)
    first, last, hashes = _hashed(probes, fast)
    memory, where, whole = files.memory(), files.places(offset), _are_whole(size, last - first, _most_whole(files))
    replies, requests, read = np.empty(n, np.uint8), np.empty(n, np.int64), np.empty(n, np.int64)

    def part(a: int, b: int) -> None:
        own = size[a:b], whole[a:b], kinds[a:b], heads, head_bytes, first[a:b], last[a:b], hashes
        ask_kernel.ask(memory, np.ascontiguousarray(where[:, a:b]), *own, replies[a:b], requests[a:b], read[a:b])

    threads = n // _LEAST_A_THREAD
    in_parts(part, n, threads if threads < 2 else min(threads, processors(), _MOST_THREADS))
    is_cut = replies == ask_kernel.CUT_OFF
    files.counts(bool(is_cut.any()), int(requests.sum()), int(read.sum()))
    if not files.reads_more:  # counted as of each file alone, which is asked by ranges
        read = _bytes_by_ranges(size, last - first, _most_whole(files))[1]
    answers.bytes_read[fast] += read
    answers.denied[fast] = (replies == ask_kernel.DENIED) | (replies == ask_kernel.BLANK)
    answers.blank[fast] = replies == ask_kernel.BLANK
    other: Flags = is_cut | (replies == ask_kernel.OTHER_HEADER)
    return other


def headers_of(size: Integers) -> tuple[Integers, NDArray[np.uint8], Integers]:
    """The index of each size's header, all headers, one a row, and their lengths."""
    return np.searchsorted(sizes()[1], size), *_all_headers()


@lru_cache(1)
def _all_headers() -> tuple[NDArray[np.uint8], Integers]:
    headers = [header_of(n) for n in sizes()[1].tolist()]
    most = max(map(len, headers))
    padded = np.array([list(h.ljust(most, b"\0")) for h in headers], np.uint8)
    return padded, np.array([len(h) for h in headers], np.int64)


def _ask_by_ranges(
    files: Files,
    offset: Integers,
    size: Integers,
    probes: Probes,
    fast: NDArray[np.intp],
    answers: Answers,
) -> Flags:
    """One buffer takes all that is read: the headers, or all of a small filter, and then the blocks."""
    # Ranges 0 .. n-1 are those of the filters, one each; behind them comes one block for each probe of a filter that is
    # not read whole, in the order of `apart`. Arrays as long as `owner` have an element a pair of filter and probe,
    # filters in order: owner[k] is the filter, hashes[k] the probe, places[k] where in `data` the block for it lies.

    # 1. The pairs, and the offset of each pair's block within its filter.
    header_bytes = _head_bytes(size)
    first, last, hashes = _hashed(probes, fast)
    counts = last - first
    owner = np.repeat(np.arange(len(fast)), counts)
    probe = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts) + first[owner]
    hashes, wanted_bits = hashes[probe], masks(hashes)[probe]
    block_at = header_bytes[owner] + BLOCK_BYTES * block_of(hashes, size[owner] // BLOCK_BYTES)

    # 2. One read of everything.
    whole, bytes_read = _bytes_by_ranges(size, counts, _most_whole(files))
    apart = np.flatnonzero(~whole[owner])  # blocks that are read on their own
    first_read = np.where(whole, header_bytes + size, header_bytes)
    lengths = np.concatenate([first_read, np.full(len(apart), BLOCK_BYTES)])
    data = _gather(files, np.concatenate([offset, (offset[owner] + block_at)[apart]]), lengths)
    starts = np.cumsum(lengths) - lengths
    answers.bytes_read[fast] += bytes_read

    # 3. Headers: filters of one size have the same one.
    promised = np.zeros(len(fast), bool)
    for n in np.unique(size).tolist():
        expected = np.frombuffer(header_of(n), np.uint8)
        rows = np.flatnonzero(size == n)
        promised[rows] = (data[starts[rows][:, None] + np.arange(len(expected))] == expected).all(1)

    # 4. Blocks: a probe is admitted if all eight of its bits are set, a filter denies if it admits no probe.
    places = starts[owner] + block_at
    places[apart] = starts[len(fast) :]
    blocks = data[places[:, None] + np.arange(BLOCK_BYTES)].view("<u4")
    hit = ((blocks & wanted_bits) == wanted_bits).all(1)
    admitted = np.bincount(owner[hit], minlength=len(fast)) > 0
    answers.denied[fast] = promised & ~admitted
    # No bit in all the blocks that were looked at, and there were some: maybe the filter has none at all.
    filled = np.bincount(owner[blocks.any(1)], minlength=len(fast)) > 0
    answers.blank[fast] = answers.denied[fast] & ~filled & (counts > 0)
    return ~promised


def _most_whole(files: Files) -> int:
    """The size up to which filters are read whole, however few the probes."""
    return _WHOLE_LOCAL_BYTES if files.is_local else _WHOLE_BYTES


def _are_whole(size: Integers, counts: Integers, most_whole: int) -> Flags:
    """Whether each filter is read whole for so many probes."""
    whole: Flags = size <= np.maximum(_WHOLE_BYTES + BLOCK_BYTES * counts, most_whole)
    return whole


def _bytes_by_ranges(size: Integers, counts: Integers, most_whole: int) -> tuple[Flags, Integers]:
    """Whether each filter is read whole for so many probes, and the bytes that it costs, in ranges."""
    whole = _are_whole(size, counts, most_whole)
    return whole, _head_bytes(size) + np.where(whole, size, BLOCK_BYTES * counts)


def _head_bytes(size: Integers) -> Integers:
    totals, num_bytes = sizes()
    at = np.searchsorted(num_bytes, size)
    return totals[at] - num_bytes[at]


def _counts(probes: Probes, fast: NDArray[np.intp]) -> Integers:
    """How many probes each filter is queried for."""
    if isinstance(probes, tuple):
        return np.full(len(fast), len(probes))
    return np.array([len(probes[i]) for i in fast.tolist()], np.int64)


def _hashed(probes: Probes, fast: NDArray[np.intp]) -> tuple[Integers, Integers, NDArray[np.uint64]]:
    """The first probe of each filter and the end of its probes, int64[n]; the hashes of all probes, uint64[p].

    Filters may share probes: those of one tuple do.
    """
    if isinstance(probes, tuple):
        n = len(fast)
        return np.zeros(n, np.int64), np.full(n, len(probes)), _hash_all(probes)
    lists = [probes[i] for i in fast.tolist()]
    distinct = {id(one): one for one in lists}
    ends = dict(zip(distinct, accumulate(map(len, distinct.values())), strict=True))
    last = np.array([ends[id(one)] for one in lists], np.int64)
    return last - _counts(probes, fast), last, _hash_all(tuple(chain.from_iterable(distinct.values())))


@lru_cache(16)
def _hash_all(probes: tuple[bytes, ...]) -> NDArray[np.uint64]:
    return np.array([final.RULE.hash_value(plain) for plain in probes], np.uint64)


def _gather(files: Files, offsets: Integers, lengths: Integers) -> NDArray[np.uint8]:
    """Read ranges, one behind the other: uint8[sum of lengths]."""
    ranges = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
    return np.frombuffer(b"".join(files.read_ranges(ranges)), np.uint8)


# --- whole filters, for many hashes ---------------------------------------------------------------


def ask_whole(
    files: Files,
    ranges: ColumnFilterRanges,
    row_groups: NDArray[np.intp],
    first: Integers,
    last: Integers,
    hashes: NDArray[np.uint64],
    count: bool,
) -> Integers:
    """Query whole filters that fit, each for many hashes: how many it admits.

    row_groups   intp[n], their numbers
    first, last  int64[n]: filter i is queried for hashes[first[i] : last[i]]
    hashes       uint64, of all keys
    count        without it 1 stands for one or more
    returns      int64[n]; NONE where that is not known: another header than the one promised, no bit at all, a file
                 that is shorter by now, or where nothing more is read
    Raises DamagedFileError where one file is shorter by now, OSError.
    """
    hits = np.full(len(row_groups), NONE)
    address, size = ranges.offset[row_groups], ranges.num_bytes[row_groups]
    inside = np.flatnonzero(files.places(address)[2] >= 0) if not files.reads_more else np.arange(len(hits))
    if len(inside):
        # The loops are loaded for local files, and taken where they are loaded anyway.
        by_loop = files.is_local or (files.has_places and "numba" in sys.modules)
        by = _ask_whole_by_loop if by_loop else _ask_whole_by_ranges
        hits[inside] = by(files, address[inside], size[inside], first[inside], last[inside], hashes, count)
    return hits


def _ask_whole_by_loop(
    files: Files,
    address: Integers,
    size: Integers,
    first: Integers,
    last: Integers,
    hashes: NDArray[np.uint64],
    count: bool,
) -> Integers:
    from parquet_bloom.filters import ask_kernel

    n = len(size)
    memory, where = files.memory(), files.places(address)
    kinds, heads, head_bytes = headers_of(size)
    probes = kinds, heads, head_bytes, first, last, hashes
    answers, hits = np.empty(n, np.uint8), np.empty(n, np.int64)
    if not count and int((last - first).sum()) <= _FEW_PROBES and (where[2] >= 0).all():
        # The loop that `check` compiles, and not one more: the first call in an installation waits a second for each.
        counted = np.empty(n, np.int64), np.empty(n, np.int64)
        ask_kernel.ask(memory, where, size, np.zeros(n, bool), *probes, answers, *counted)
        hits[:] = answers == ask_kernel.ADMITTED
    else:
        answers[:] = ask_kernel.BLANK
    if (answers == ask_kernel.BLANK).any():  # by some blocks; only the other loop says whether a filter has a bit
        ask_kernel.ask_whole(memory, where, size, *probes, count, answers, hits)
    hits[(answers != ask_kernel.DENIED) & (answers != ask_kernel.ADMITTED)] = NONE
    files.counts(bool((answers == ask_kernel.CUT_OFF).any()), 2 * n, int((head_bytes[kinds] + size).sum()))
    return hits


def _ask_whole_by_ranges(
    files: Files,
    address: Integers,
    size: Integers,
    first: Integers,
    last: Integers,
    hashes: NDArray[np.uint64],
    count: bool,
) -> Integers:
    # In parts of some _MOST_BYTES of filters, since each is read whole.
    hits = np.full(len(size), NONE)
    parts = np.flatnonzero(np.diff((np.cumsum(size) - 1) // _MOST_BYTES)) + 1
    for some in np.split(np.arange(len(hits)), parts):
        headers = [header_of(n) for n in size[some].tolist()]
        lengths = [len(header) + n for header, n in zip(headers, size[some].tolist(), strict=True)]
        found = files.read_ranges(list(zip(address[some].tolist(), lengths, strict=True)))
        for i, header, data in zip(some.tolist(), headers, found, strict=True):
            # The promised header, and a bitset that has some bit.
            if data.startswith(header) and data.count(0, len(header)) < len(data) - len(header):
                admitted = contains_hashes(from_bytes(data[len(header) :]), hashes[first[i] : last[i]])
                hits[i] = np.count_nonzero(admitted) if count else admitted.any()
    return hits
