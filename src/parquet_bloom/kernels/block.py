"""One block of a split block Bloom filter: where a hash belongs, and which bits it sets; loops over blocks, by numpy.

    hash, 64 bits:   | upper half: which block | lower half, `key`: which bits |

    block, 32 bytes:
      word   |    0    |    1    |    2    |    3    |    4    |    5    |    6    |    7    |  uint32, little-endian
      bit       one of    one of    one of    one of    one of    one of    one of    one of
                  32        32        32        32        32        32        32        32
      in word i it is   (key * SALT[i] mod 2^32) >> 27

A hash is in the block if all eight of its bits are set: eight bits of 256, and one cache line to read.
Which of z blocks it belongs to is the one thing the filters' forms differ in (IndexRule):

    multiply-shift   (upper * z) >> 32     any z                the final form, zone indexes
    mask             upper & (z - 1)       z a power of two     the forms of 2018

Compiled code has the same in kernels.intrinsics, as instructions on vectors.
Source: parquet-format BloomFilter.md, "filter_check" and its eight salt constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FilterShapeError

IndexRule = Literal["multiply-shift", "mask"]

BLOCK_BYTES = 32
# The eight odd constants of BloomFilter.md, one for each word of a block.
SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_SALTS = np.array(SALT, np.uint32)


def bit_of(key: Any, salt: Any) -> Any:
    """The bit of a word's 32 that a hash sets; of ints, and of arrays of uint32, whose product wraps by itself."""
    return (key * salt & 0xFFFFFFFF) >> 27  # the upper 5 of 32 bits: 0 to 31


def _block(h: Any, z: Any, rule: IndexRule) -> Any:
    """The block of z that a hash belongs to; of ints, and of arrays of uint64."""
    return h >> 32 & (z - 1) if rule == "mask" else (h >> 32) * z >> 32


def masks(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The bits that each hash sets in its block: uint64[n] -> uint32[n, 8], one bit in each word."""
    keys = hashes.astype(np.uint32)  # the lower halves
    bits: NDArray[np.uint32] = np.uint32(1) << bit_of(keys[:, None], _SALTS)
    return bits


def block_of(
    hashes: NDArray[np.uint64], n_blocks: int | NDArray[np.int64], rule: IndexRule = "multiply-shift"
) -> NDArray[np.int64]:
    """The block that each hash belongs to, 0 <= block < n_blocks: uint64[n] -> int64[n].

    n_blocks  1 to 2^32, of one filter or one for each hash; for mask indexing powers of two
    """
    found: NDArray[np.int64] = _block(hashes, np.asarray(n_blocks).astype(np.uint64), rule).astype(np.int64)
    return found


def block_index(h: int, n_blocks: int, rule: IndexRule) -> int:
    """The block that one hash belongs to, 0 <= index < n_blocks.

    Raises FilterShapeError for mask indexing of what is no power of two.
    """
    if rule == "mask" and n_blocks & (n_blocks - 1):
        raise FilterShapeError(f"{n_blocks} blocks are not a power of two, which mask indexing needs")
    return int(_block(h, n_blocks, rule))


def block_contains(block: bytes, h: int) -> bool:
    """Probe one block (32 bytes as they lie in the file): True is "perhaps", False is "certainly not"."""
    if len(block) != BLOCK_BYTES:
        raise FilterShapeError(f"a block has {BLOCK_BYTES} bytes, not {len(block)}")
    key = h & 0xFFFFFFFF
    for i, salt in enumerate(SALT):
        word = int.from_bytes(block[4 * i : 4 * i + 4], "little")
        if not word >> bit_of(key, salt) & 1:
            return False
    return True


# --- loops over filters by numpy, with the results of kernels.native's (see kernels.hashes) ---------
#
# Many hashes may set bits of one word, which an assignment `words[at] |= bits` would lose. Where a filter is small
# beside what goes into it, the bits are set in an array of a byte each, and packed; otherwise numpy's slower
# `bitwise_or.at` sets them one by one.

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]
Places = NDArray[np.int64]

INSERT_NS, CONTAINS_NS = 60.0, 18.0  # a value
PROBE_NS = 8.0  # a position of a k-probe filter
_AT_ONCE = 8192  # hashes: what one step leaves behind is still in the processor's cache for the next
_SPARSE = 8  # bits of a filter for each that is set, from which on packing all of them costs more


def _parts(hashes: U64) -> Iterator[slice]:
    return (slice(start, start + _AT_ONCE) for start in range(0, len(hashes), _AT_ONCE))


def _set_bits(words: NDArray[Any], count: int, places: Iterator[NDArray[Any]]) -> None:
    """Set bits of a bitset, by their places, 0 <= place < bits of words; count: how many places there are at most."""
    size = 8 * words.itemsize
    if size * len(words) <= _SPARSE * count:
        bits = np.zeros(size * len(words), np.bool_)
        for place in places:
            bits[place] = True
        words |= np.packbits(bits, bitorder="little").view(words.dtype.newbyteorder("<"))
        return
    one, shift = words.dtype.type(1), size.bit_length() - 1
    for place in places:
        np.bitwise_or.at(words, place >> shift, one << (place & size - 1).astype(words.dtype))


# --- split blocks: words is uint32[8 * blocks] ------------------------------------------------------


def _places(blocks: Places, hashes: U64) -> Iterator[Places]:
    """The bits that hashes set, word by word of their blocks."""
    keys = hashes.astype(np.uint32)  # the lower halves
    for i, salt in enumerate(SALT):
        yield 256 * blocks + 32 * i + bit_of(keys, np.uint32(salt))


def insert(words: U32, hashes: U64, rule: IndexRule) -> None:
    """Insert hashes into one filter, in place."""
    n_blocks = len(words) // 8
    places = (p for part in _parts(hashes) for p in _places(block_of(hashes[part], n_blocks, rule), hashes[part]))
    _set_bits(words, 8 * len(hashes), places)


def insert_each(words: U32, counts: NDArray[np.int64], hashes: U64, rule: IndexRule) -> None:
    """Insert counts[i] hashes into the i-th of filters of one size, a power of two of blocks, in one array."""
    n_blocks = len(words) // 8 // len(counts)
    first = np.repeat(np.arange(len(counts)) * n_blocks, counts)
    places = (
        p
        for part in _parts(hashes)
        for p in _places(first[part] + block_of(hashes[part], n_blocks, rule), hashes[part])
    )
    _set_bits(words, 8 * len(hashes), places)


def contains(words: U32, hashes: U64, rule: IndexRule, out: NDArray[np.bool_]) -> None:
    """Query hashes; out bool[n]."""
    n_blocks = len(words) // 8
    for part in _parts(hashes):
        at = 8 * block_of(hashes[part], n_blocks, rule)
        keys = hashes[part].astype(np.uint32)
        found = np.ones(len(keys), np.uint32)
        for i, salt in enumerate(SALT):
            found &= words[at + i] >> bit_of(keys, np.uint32(salt))
        out[part] = found


# --- k probes: longs is uint64[m / 64] --------------------------------------------------------------


def _positions_32(hashes: U64, first: int, k: int, m: int) -> Iterator[U32]:
    for part in _parts(hashes):
        low, high = hashes[part].astype(np.uint32), (hashes[part] >> 32).astype(np.uint32)
        for i in range(first, first + k):
            c = low + np.uint32(i) * high
            c ^= (c.view(np.int32) >> 31).view(np.uint32)  # as an int it is negative: all its bits turn
            yield c % np.uint32(m)


def _positions_64(halves: tuple[U64, U64], k: int, m: int) -> Iterator[NDArray[Any]]:
    for part in _parts(halves[0]):
        c = halves[0][part].copy()
        for _ in range(k):
            yield (c & 0x7FFFFFFFFFFFFFFF) % m
            c += halves[1][part]


def insert_32(longs: U64, hashes: U64, first: int, k: int) -> None:
    """Set the k positions of each hash, by the 32-bit strategy."""
    _set_bits(longs, k * len(hashes), _positions_32(hashes, first, k, 64 * len(longs)))


def insert_64(longs: U64, halves: tuple[U64, U64], k: int) -> None:
    """Set the k positions of each hash, by the 64-bit strategy."""
    _set_bits(longs, k * len(halves[0]), _positions_64(halves, k, 64 * len(longs)))


def contains_32(longs: U64, hashes: U64, first: int, k: int, out: NDArray[np.bool_]) -> None:
    """Say whether the k positions of each hash are set, by the 32-bit strategy."""
    _all_set(longs, k, len(hashes), _positions_32(hashes, first, k, 64 * len(longs)), out)


def contains_64(longs: U64, halves: tuple[U64, U64], k: int, out: NDArray[np.bool_]) -> None:
    """Say whether the k positions of each hash are set, by the 64-bit strategy."""
    _all_set(longs, k, len(halves[0]), _positions_64(halves, k, 64 * len(longs)), out)


def _all_set(longs: U64, k: int, n: int, positions: Iterator[NDArray[Any]], out: NDArray[np.bool_]) -> None:
    for start in range(0, n, _AT_ONCE):
        part = out[start : start + _AT_ONCE]
        part[:] = True
        for _ in range(k):
            at = next(positions)
            part &= (longs[at >> 6] >> (at & 63).astype(np.uint64) & 1).astype(np.bool_)
