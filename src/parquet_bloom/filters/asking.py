"""Asking the filters of one column, for all row groups at once.

Where filters.locate has a range for a filter, header and block are read together, and the block counts if the
header is, byte for byte, the one that the length promised. All others go one by one through filters.stored. Both
decide alike (tests/filters/test_filter_ranges.py).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain

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
from parquet_bloom.format.outline import Outline
from parquet_bloom.format.outlines import FAR, FILE_BITS, JoinedOutline
from parquet_bloom.format.statistics import counts_of, empty_filter_problem
from parquet_bloom.kernels.block import BLOCK_BYTES, block_of, masks
from parquet_bloom.kernels.threads import in_parts
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.tails import FarTails, Tails
from parquet_bloom.storage.workers import processors

_WHOLE_BYTES = 64  # a filter that is hardly larger than the blocks that are wanted is read as one
_WHOLE_LOCAL_BYTES = 2048  # and so is one of a local file that is copied sooner than a second call returns
_LEAST_A_THREAD = 4096  # filters: some milliseconds
_MOST_THREADS = 4
_FIRST_PROBES = 2048  # of a long list that are asked for before the rest


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
AnyTails = Tails | FarTails


def ask(source: OpenFile, column: int, row_groups: Integers, probes: Probes) -> Answers:
    """Query the filters of a column, each for its probes: PLAIN bytes of values.

    row_groups  int64[n], their numbers
    probes      a tuple for all of them, or a list of one tuple each

    Reads a header and one block for each probe; a small filter as a whole.
    """
    # `denied` is FALSE until a filter has said no to every probe: whatever goes wrong on the way leaves a row group to
    # be read. The fast ways deny only under a header that is the promised one to the byte, since under another header
    # the block would be one of another size, or of no filter. All others come back as `slow`.
    ranges = filter_ranges_of(source.outline(), column)
    n = len(row_groups)
    answers = Answers(np.zeros(n, bool), np.zeros(n, np.int64), {}, {}, np.zeros(n, bool))
    fits = ranges.fits[row_groups]
    slow = np.flatnonzero(~fits).tolist()
    fast = np.flatnonzero(fits)
    if len(fast):
        slow += _ask_together(source, ranges, row_groups, probes, fast, answers)
    _recheck_blank_filters(source, ranges, column, row_groups, answers)
    filters, leaf = StoredFilters(source), source.outline().leaves[column]
    for i in slow:
        own = probes if isinstance(probes, tuple) else probes[i]
        _ask_alone(source, filters.queried(int(row_groups[i]), leaf), own, i, answers)
    return answers


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


def _ask_together(
    source: OpenFile,
    ranges: ColumnFilterRanges,
    row_groups: Integers,
    probes: Probes,
    fast: NDArray[np.intp],
    answers: Answers,
) -> list[int]:
    """Query filters that fit; returns those (by position) whose header is not the expected one."""
    groups = row_groups[fast]
    offset, size = ranges.offset[groups], ranges.num_bytes[groups]
    if source.fd is not None and "numba" in sys.modules:
        other = _ask_by_kernel(source, offset, size, probes, fast, answers)
    elif source.fd is not None:
        other = _ask_in_turns(source, offset, size, probes, fast, answers)
    else:
        other = _ask_by_ranges(source, offset, size, probes, fast, answers)
    return [int(i) for i in fast[other]]


def _ask_in_turns(
    source: OpenFile | AnyTails,
    offset: Integers,
    size: Integers,
    probes: Probes,
    fast: NDArray[np.intp],
    answers: Answers,
) -> Flags:
    """The first probes of all filters, and more only where these are denied: of very many, some are admitted."""
    if isinstance(probes, tuple) or max(map(len, probes)) <= _FIRST_PROBES:
        return _ask_by_ranges(source, offset, size, probes, fast, answers)
    # A turn writes over what the turn before said of a filter. That is right, for only filters that have denied all
    # probes so far take another turn: one that admits a probe, or has another header, is done.
    other = np.zeros(len(fast), bool)
    active, first, step = np.arange(len(fast)), 0, _FIRST_PROBES
    while len(active):
        turn = [one[first : first + step] for one in probes]
        other[active] |= _ask_by_ranges(source, offset[active], size[active], turn, fast[active], answers)
        first, step = first + step, 8 * step
        more = np.array([len(probes[i]) > first for i in fast[active].tolist()], bool)
        active = active[more & answers.denied[fast[active]] & ~other[active]]
    return other


def _ask_by_kernel(
    source: OpenFile, offset: Integers, size: Integers, probes: Probes, fast: NDArray[np.intp], answers: Answers
) -> Flags:
    from parquet_bloom.filters import ask_kernel

    assert source.fd is not None
    n = len(fast)
    where = np.array([np.full(n, source.fd), offset, np.full(n, -1)])
    replies, requests, read = _reply(_NO_BYTES, where, size, probes, fast, answers, _WHOLE_LOCAL_BYTES)
    count_read(source, replies, int(requests.sum()), int(read.sum()))
    other: Flags = replies == ask_kernel.OTHER_HEADER
    return other


_NO_BYTES = np.empty(0, np.uint8)


def _reply(
    memory: NDArray[np.uint8],
    where: Integers,
    size: Integers,
    probes: Probes,
    fast: NDArray[np.intp],
    answers: Answers,
    most_whole: int,
) -> tuple[NDArray[np.uint8], Integers, Integers]:
    """The compiled loop's replies, requests and bytes read, of each filter; memory and where as it has them."""
    from parquet_bloom.filters import ask_kernel

    n = len(fast)
    kinds, heads, head_bytes = headers_of(size)
    first, last, hashes = _hashed(probes, fast)
    whole = _are_whole(size, last - first, most_whole)
    replies, requests, read = np.empty(n, np.uint8), np.empty(n, np.int64), np.empty(n, np.int64)

    def part(a: int, b: int) -> None:
        own = size[a:b], whole[a:b], kinds[a:b], heads, head_bytes, first[a:b], last[a:b], hashes
        ask_kernel.ask(memory, np.ascontiguousarray(where[:, a:b]), *own, replies[a:b], requests[a:b], read[a:b])

    threads = n // _LEAST_A_THREAD
    in_parts(part, n, threads if threads < 2 else min(threads, processors(), _MOST_THREADS))
    answers.bytes_read[fast] += read
    answers.denied[fast] = (replies == ask_kernel.DENIED) | (replies == ask_kernel.BLANK)
    answers.blank[fast] = replies == ask_kernel.BLANK
    return replies, requests, read


def ask_joined(
    tails: AnyTails, numbers: Integers, outline: JoinedOutline, column: int, row_groups: Integers, probes: Probes
) -> tuple[Answers, Flags]:
    """Query the filters of a column in several files at once, as `ask` does in one.

    numbers  int64[files]: which of the open files each of the joined ones is
    returns  also which row groups have filters about which nothing is said here, since they are not as most are: not
             where they fit, with another header, without any bit, cut off, or where nothing more is read
    Raises OSError.
    """
    ranges = filter_ranges_of(outline, column)
    n = len(row_groups)
    answers = Answers(np.zeros(n, bool), np.zeros(n, np.int64), {}, {}, np.zeros(n, bool))
    other = ~ranges.fits[row_groups]
    fast = np.flatnonzero(~other)
    where = places_of(tails, numbers, ranges.offset[row_groups[fast]])
    if not tails.reads_more:
        inside = where[2] >= 0
        other[fast[~inside]] = True
        fast, where = fast[inside], np.ascontiguousarray(where[:, inside])
    size = ranges.num_bytes[row_groups[fast]]
    if len(fast) and "numba" in sys.modules:
        from parquet_bloom.filters import ask_kernel

        most_whole = _most_whole(tails)
        replies, _, _ = _reply(tails.buffer, where, size, probes, fast, answers, most_whole)
        other[fast] = (replies == ask_kernel.OTHER_HEADER) | (replies == ask_kernel.CUT_OFF)
        if not tails.reads_more:  # counted as of each file alone, which is asked by ranges
            answers.bytes_read[fast] = _bytes_by_ranges(size, _counts(probes, fast), most_whole)[1]
    elif len(fast):
        try:
            address = (numbers[ranges.offset[row_groups[fast]] >> FILE_BITS] << FILE_BITS) + where[1]
            by = _ask_in_turns if tails.reads_more else _ask_by_ranges
            other[fast] = by(tails, address, size, probes, fast, answers)
        except DamagedFileError:  # one is shorter by now
            other[:] = True
    return answers, other | answers.blank


def places_of(tails: AnyTails, numbers: Integers, address: Integers) -> Integers:
    """The places of filters of joined files, by their addresses there, as ask_kernel has them: int64[3, n].

    numbers  as ask_joined has them
    """
    file, offset = numbers[address >> FILE_BITS], address & FAR - 1
    kept_at, base = tails.kept_from()[:, file]
    return np.array([tails.descriptors()[file], offset, np.where(offset >= kept_at, base + offset - kept_at, -1)])


def count_read(source: OpenFile, replies: NDArray[np.uint8], requests: int, bytes_read: int) -> None:
    """Count what a compiled loop read. Raises DamagedFileError where it came to the end of the file."""
    from parquet_bloom.filters import ask_kernel

    source.count(requests, bytes_read)
    if (replies == ask_kernel.CUT_OFF).any():
        raise DamagedFileError(source.path, f"is shorter by now, it had {source.size} bytes when it was opened")


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
    source: OpenFile | AnyTails,
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
    whole, bytes_read = _bytes_by_ranges(size, counts, _most_whole(source))
    apart = np.flatnonzero(~whole[owner])  # blocks that are read on their own
    first_read = np.where(whole, header_bytes + size, header_bytes)
    lengths = np.concatenate([first_read, np.full(len(apart), BLOCK_BYTES)])
    data = _gather(source, np.concatenate([offset, (offset[owner] + block_at)[apart]]), lengths)
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


def _most_whole(source: OpenFile | AnyTails) -> int:
    """The size up to which filters of a file are read whole, however few the probes."""
    is_local = source.fd is not None if isinstance(source, OpenFile) else source.reads_more
    return _WHOLE_LOCAL_BYTES if is_local else _WHOLE_BYTES


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


def _gather(source: OpenFile | AnyTails, offsets: Integers, lengths: Integers) -> NDArray[np.uint8]:
    """Read ranges, one behind the other: uint8[sum of lengths]."""
    ranges = list(zip(offsets.tolist(), lengths.tolist(), strict=True))
    return np.frombuffer(b"".join(source.read_ranges(ranges)), np.uint8)
