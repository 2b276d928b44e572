"""Asking many filters of open files, for a header and a block each or whole, without going through Python.

The bytes come by pread(2), straight from the kernel's page cache; a read is some 0.3 microseconds
then, less than a Python call around it.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, types, uint64

from parquet_bloom.kernels.compiler import kernel
from parquet_bloom.kernels.intrinsics import block_of, contains_at, contains_at_byte

DENIED, ADMITTED, OTHER_HEADER, CUT_OFF, BLANK = 0, 1, 2, 3, 4

_I64 = types.Array(types.int64, 1, "C", readonly=True)
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)
_WHERE = types.Array(types.int64, 2, "C", readonly=True)
_HEADS = types.Array(types.uint8, 2, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_HASHES = types.Array(types.uint64, 1, "C", readonly=True)
_COUNT = types.Array(types.int64, 1, "C")
# Of the C library that this process has loaded; off_t has 64 bits on every system with 64-bit pointers.
_pread = types.ExternalFunction("pread", types.intp(types.intc, types.voidptr, types.uintp, types.int64))


@njit(inline="always")
def _read(fd, offset, length, out):  # type: ignore[no-untyped-def]
    """Read `length` bytes at `offset` of a file into `out`. True: all."""
    return _pread(types.intc(fd), out.ctypes, types.uintp(length), offset) == length


@njit(inline="never")
def _begins_with(data, at, head, length):  # type: ignore[no-untyped-def]
    """Whether the `length` bytes of a header stand at `at`."""
    same = True
    for j in range(length):
        same &= data[at + j] == head[j]
    return same


@njit(inline="always")
def _query(data, at, h):  # type: ignore[no-untyped-def]
    """Whether the block of 32 bytes at `at` has a bit, and whether it admits a hash."""
    filled = False
    for j in range(32):
        filled |= data[at + j] != 0
    return filled, contains_at_byte(data, uint64(at), h)


@njit(inline="never")
def _take(fd, offset, length, memory, place, out):  # type: ignore[no-untyped-def]
    """Read `length` bytes at `offset` of a file into `out`; from memory where `place` is not negative. True: all."""
    if place < 0:
        return _read(fd, offset, length, out)
    if length > len(memory) - place:
        return False
    for j in range(length):
        out[j] = memory[place + j]
    return True


@kernel(types.void(_BYTES, _WHERE, _I64, _FLAGS, _I64, _HEADS, _I64, _I64, _I64, _HASHES, _OUT, _COUNT, _COUNT))
def ask(memory, where, sizes, whole, kinds, heads, head_bytes, first, last, hashes, answers, requests, bytes_read):  # type: ignore[no-untyped-def]
    """Query n filters, each for the probes first[i] to last[i]; any of them makes it ADMITTED.

    memory       uint8[..], bytes of these files that were read before
    where        int64[3, n]: of each filter the descriptor of its file, the offset of its header in the file, and that
                 in memory; -1: it is not there
    sizes        int64[n], bytes of the bitsets
    whole        bool[n]: read the filter by one call, and not a header and a block for each probe
    kinds        int64[n]: row of heads, uint8[k, most], the header expected; head_bytes int64[k], its length
    hashes       uint64[p], of the probes
    answers      uint8[n]: DENIED, ADMITTED, OTHER_HEADER (not the one expected), CUT_OFF (the file is shorter),
                 BLANK (denied, and no bit is set in the blocks that were asked)
    requests, bytes_read  int64[n], counted; what is in memory as if it had been read
    """
    # An answer is DENIED only if the header is the expected one to the byte, and every probe was looked up in the bytes
    # of its own block. Whatever else happens has a code of its own, and is no evidence to the caller. A short read is
    # never judged, for what lies behind it in the buffer may be another filter's.
    most = int64(64)  # no header is longer, a block has 32
    for i in range(len(sizes)):
        if whole[i] and where[2, i] < 0:
            most = max(most, head_bytes[kinds[i]] + sizes[i])
    data = np.empty(most, np.uint8)
    for i in range(len(sizes)):
        fd, offset, place = where[0, i], where[1, i], where[2, i]
        head, size, known = head_bytes[kinds[i]], sizes[i], heads[kinds[i]]
        in_memory = place >= 0
        wanted = head + size if whole[i] else head
        requests[i] = 1
        bytes_read[i] = wanted
        if (wanted > len(memory) - place) if in_memory else not _read(fd, offset, wanted, data):
            answers[i] = CUT_OFF
            continue
        if not (_begins_with(memory, place, known, head) if in_memory else _begins_with(data, int64(0), known, head)):
            answers[i] = OTHER_HEADER
            continue
        answers[i] = DENIED
        filled = first[i] == last[i]  # without a probe no block was seen, so nothing is said of bits
        for probe in range(first[i], last[i]):
            h = hashes[probe]
            at = head + (int64(block_of(h, uint64(size >> 5))) << 5)
            if not whole[i]:
                requests[i] += 1
                bytes_read[i] += 32
                if (at + 32 > len(memory) - place) if in_memory else not _read(fd, offset + at, int64(32), data):
                    answers[i] = CUT_OFF
                    break
            if in_memory:
                bits, admits = _query(memory, place + at, h)
            else:
                bits, admits = _query(data, at if whole[i] else int64(0), h)
            filled |= bits
            if admits:
                answers[i] = ADMITTED
                break
        if answers[i] == DENIED and not filled:
            answers[i] = BLANK


@kernel(types.void(_BYTES, _WHERE, _I64, _I64, _HEADS, _I64, _I64, _I64, _HASHES, types.boolean, _OUT, _COUNT))
def ask_whole(memory, where, sizes, kinds, heads, head_bytes, first, last, hashes, count, answers, hits):  # type: ignore[no-untyped-def]
    """Query n whole filters, each for the hashes first[i] to last[i]; as `ask`, and of these:

    count    go on after the first that is admitted
    hits     int64[n]: how many were admitted; without count 0 or 1
    BLANK is a filter without any bit
    """
    header = np.empty(64, np.uint8)
    most = int64(0)
    for size in sizes:
        most = max(most, size)
    # Sizes are multiples of 32 bytes. `words` keeps those of a larger filter before, behind the ones of this: all looks
    # below stay under sizes[i].
    words = np.empty(most >> 2, np.uint32)
    bitset = words.view(np.uint8)
    for i in range(len(sizes)):
        fd, offset, place = where[0, i], where[1, i], where[2, i]
        head = head_bytes[kinds[i]]
        hits[i] = 0
        answers[i] = DENIED
        if not _take(fd, offset, head, memory, place, header):
            answers[i] = CUT_OFF
            continue
        behind = place + head if place >= 0 else int64(-1)
        if not _take(fd, offset + head, sizes[i], memory, behind, bitset):
            answers[i] = CUT_OFF
            continue
        if not _begins_with(header, int64(0), heads[kinds[i]], head):
            answers[i] = OTHER_HEADER
            continue
        n_blocks = uint64(sizes[i] >> 5)
        for j in range(first[i], last[i]):
            h = hashes[j]
            if contains_at(words, block_of(h, n_blocks) << uint64(3), h):
                hits[i] += 1
                answers[i] = ADMITTED
                if not count:
                    break
        if hits[i] == 0 and first[i] < last[i]:
            filled = False
            for j in range(sizes[i] >> 2):
                filled |= words[j] != 0
            if not filled:
                answers[i] = BLANK
