"""The loops that numba compiles: arrays in, arrays out, no objects and no allocation.

Imported only when a whole column is hashed or probed; a single value goes through xxhash and
mmh3 instead (format.final), so that reading commands never pay for the compiler.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, types, uint64
from numba.extending import register_jitable

from parquet_bloom.kernels.compiler import kernel
from parquet_bloom.kernels.intrinsics import (
    LANES,
    block_of,
    contains_at,
    fetch,
    hash_lanes,
    insert_at,
    load8,
    load32,
    load64,
    masked_block_of,
    rotl,
)

# Arrow's buffers are read-only; a writable array converts to these, never the other way round.
_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_U32 = types.Array(types.uint32, 1, "C", readonly=True)
_U64 = types.Array(types.uint64, 1, "C", readonly=True)

# The processor's own prefetching does not keep up with loops that do so little per value: asking for
# values this far ahead makes hashing from memory twice as fast (benchmarks/kernels.py).
_AHEAD = 2048


@njit(inline="always")
def _fetch_lanes(values, start, per_line):  # type: ignore[no-untyped-def]
    for i in range(start + _AHEAD, start + _AHEAD + LANES, per_line):
        fetch(values, uint64(i))


# --- XXH64 (source: the xxHash specification, "XXH64 algorithm description") ----------------------

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)


@register_jitable(inline="always")
def _xxh_finish(h):  # type: ignore[no-untyped-def]
    h = (h ^ (h >> uint64(33))) * P2
    h = (h ^ (h >> uint64(29))) * P3
    return h ^ (h >> uint64(32))


@register_jitable(inline="always")
def _xxh_round(lane, word):  # type: ignore[no-untyped-def]
    return rotl(lane + word * P2, 31) * P1


@njit(inline="always")
def _xxh_merge(h, lane):  # type: ignore[no-untyped-def]
    return (h ^ _xxh_round(uint64(0), lane)) * P1 + P4


@njit(inline="always")
def _xxh64(data, start, stop, seed):  # type: ignore[no-untyped-def]
    at = start
    if stop - start >= uint64(32):
        v1 = seed + P1 + P2
        v2 = seed + P2
        v3 = seed
        v4 = seed - P1
        while at + uint64(32) <= stop:
            v1 = _xxh_round(v1, load64(data, at))
            v2 = _xxh_round(v2, load64(data, at + uint64(8)))
            v3 = _xxh_round(v3, load64(data, at + uint64(16)))
            v4 = _xxh_round(v4, load64(data, at + uint64(24)))
            at += uint64(32)
        h = rotl(v1, 1) + rotl(v2, 7) + rotl(v3, 12) + rotl(v4, 18)
        h = _xxh_merge(_xxh_merge(_xxh_merge(_xxh_merge(h, v1), v2), v3), v4)
    else:
        h = seed + P5
    h += stop - start
    while at + uint64(8) <= stop:
        h = rotl(h ^ _xxh_round(uint64(0), load64(data, at)), 27) * P1 + P4
        at += uint64(8)
    if at + uint64(4) <= stop:
        h = rotl(h ^ (load32(data, at) * P1), 23) * P2 + P3
        at += uint64(4)
    while at < stop:
        h = rotl(h ^ (load8(data, at) * P5), 11) * P1
        at += uint64(1)
    return _xxh_finish(h)


@register_jitable(inline="always")
def _xxh64_4(value, seed):  # type: ignore[no-untyped-def]
    h = (seed + P5 + uint64(4)) ^ (value * P1)
    return _xxh_finish(rotl(h, 23) * P2 + P3)


@register_jitable(inline="always")
def _xxh64_8(value, seed):  # type: ignore[no-untyped-def]
    h = (seed + P5 + uint64(8)) ^ _xxh_round(uint64(0), value)
    return _xxh_finish(rotl(h, 27) * P1 + P4)


_xxh64_4_lanes, _xxh64_8_lanes = hash_lanes(_xxh64_4, 32), hash_lanes(_xxh64_8, 64)


@kernel(types.void(_U32, types.uint64, types.uint64[::1]))
def xxh64_u32(values, seed, out):  # type: ignore[no-untyped-def]
    """XXH64 of each value; values uint32[n], out uint64[n]."""
    whole = values.shape[0] - values.shape[0] % LANES
    for start in range(0, whole, LANES):
        _fetch_lanes(values, start, 16)
        _xxh64_4_lanes(values, uint64(start), seed, out)
    for i in range(whole, values.shape[0]):
        out[i] = _xxh64_4(uint64(values[i]), seed)


@kernel(types.void(_U64, types.uint64, types.uint64[::1]))
def xxh64_u64(values, seed, out):  # type: ignore[no-untyped-def]
    """XXH64 of each value; values uint64[n], out uint64[n]."""
    whole = values.shape[0] - values.shape[0] % LANES
    for start in range(0, whole, LANES):
        _fetch_lanes(values, start, 8)
        _xxh64_8_lanes(values, uint64(start), seed, out)
    for i in range(whole, values.shape[0]):
        out[i] = _xxh64_8(uint64(values[i]), seed)


@kernel(types.void(_BYTES, types.uint64, types.uint64, types.uint64[::1]))
def xxh64_fixed(data, width, seed, out):  # type: ignore[no-untyped-def]
    """XXH64 of each value; data uint8[n * width], out uint64[n]."""
    for i in range(out.shape[0]):
        start = uint64(i) * width
        out[i] = _xxh64(data, start, start + width, seed)


@kernel(types.void(_BYTES, _U64, types.uint64, types.uint64[::1]))
def xxh64_variable(data, offsets, seed, out):  # type: ignore[no-untyped-def]
    """XXH64 of each value; value i is data[offsets[i]:offsets[i + 1]], out uint64[n]."""
    for i in range(out.shape[0]):
        out[i] = _xxh64(data, offsets[i], offsets[i + 1], seed)


# --- Murmur3 x64-128, its first 64 bits (source: MurmurHash3.cpp, Austin Appleby) -----------------

C1 = np.uint64(0x87C37B91114253D5)
C2 = np.uint64(0x4CF5AD432745937F)


@register_jitable(inline="always")
def fmix64(k):  # type: ignore[no-untyped-def]
    """Murmur3's last step."""
    k = (k ^ (k >> uint64(33))) * uint64(0xFF51AFD7ED558CCD)
    k = (k ^ (k >> uint64(33))) * uint64(0xC4CEB9FE1A85EC53)
    return k ^ (k >> uint64(33))


@register_jitable(inline="always")
def mix1(k):  # type: ignore[no-untyped-def]
    """Murmur3's mixing of the first lane."""
    return rotl(k * C1, 31) * C2


@njit(inline="always")
def _mix2(k):  # type: ignore[no-untyped-def]
    return rotl(k * C2, 33) * C1


@register_jitable(inline="always")
def _murmur3_finish(h1, h2, length):  # type: ignore[no-untyped-def]
    h1 = (h1 ^ length) + (h2 ^ length)
    return fmix64(h1) + fmix64((h2 ^ length) + h1)


@njit(inline="always")
def murmur3_state(data, start, stop, seed):  # type: ignore[no-untyped-def]
    """Both halves before their length is mixed in; k_probe's kernels finish them otherwise."""
    h1 = seed
    h2 = seed
    at = start
    while at + uint64(16) <= stop:
        h1 = rotl(h1 ^ mix1(load64(data, at)), 27) + h2
        h1 = h1 * uint64(5) + uint64(0x52DCE729)
        h2 = rotl(h2 ^ _mix2(load64(data, at + uint64(8))), 31) + h1
        h2 = h2 * uint64(5) + uint64(0x38495AB5)
        at += uint64(16)
    k1 = uint64(0)
    k2 = uint64(0)
    shift = uint64(0)
    while at < stop:
        if shift < uint64(64):
            k1 |= load8(data, at) << shift
        else:
            k2 |= load8(data, at) << (shift - uint64(64))
        shift += uint64(8)
        at += uint64(1)
    return h1 ^ mix1(k1), h2 ^ _mix2(k2)


@njit(inline="always")
def _murmur3(data, start, stop, seed):  # type: ignore[no-untyped-def]
    h1, h2 = murmur3_state(data, start, stop, seed)
    return _murmur3_finish(h1, h2, stop - start)


@register_jitable(inline="always")
def _murmur3_4(value, seed):  # type: ignore[no-untyped-def]
    return _murmur3_finish(seed ^ mix1(value), seed, uint64(4))


@register_jitable(inline="always")
def _murmur3_8(value, seed):  # type: ignore[no-untyped-def]
    return _murmur3_finish(seed ^ mix1(value), seed, uint64(8))


_murmur3_4_lanes, _murmur3_8_lanes = hash_lanes(_murmur3_4, 32), hash_lanes(_murmur3_8, 64)


@kernel(types.void(_U32, types.uint64, types.uint64[::1]))
def murmur3_u32(values, seed, out):  # type: ignore[no-untyped-def]
    """The first half of murmur3_x64_128 of each value; values uint32[n], out uint64[n]."""
    whole = values.shape[0] - values.shape[0] % LANES
    for start in range(0, whole, LANES):
        _fetch_lanes(values, start, 16)
        _murmur3_4_lanes(values, uint64(start), seed, out)
    for i in range(whole, values.shape[0]):
        out[i] = _murmur3_4(uint64(values[i]), seed)


@kernel(types.void(_U64, types.uint64, types.uint64[::1]))
def murmur3_u64(values, seed, out):  # type: ignore[no-untyped-def]
    """The first half of murmur3_x64_128 of each value; values uint64[n], out uint64[n]."""
    whole = values.shape[0] - values.shape[0] % LANES
    for start in range(0, whole, LANES):
        _fetch_lanes(values, start, 8)
        _murmur3_8_lanes(values, uint64(start), seed, out)
    for i in range(whole, values.shape[0]):
        out[i] = _murmur3_8(uint64(values[i]), seed)


@kernel(types.void(_BYTES, types.uint64, types.uint64, types.uint64[::1]))
def murmur3_fixed(data, width, seed, out):  # type: ignore[no-untyped-def]
    """The first half of murmur3_x64_128 of each value; data uint8[n * width], out uint64[n]."""
    for i in range(out.shape[0]):
        start = uint64(i) * width
        out[i] = _murmur3(data, start, start + width, seed)


@kernel(types.void(_BYTES, _U64, types.uint64, types.uint64[::1]))
def murmur3_variable(data, offsets, seed, out):  # type: ignore[no-untyped-def]
    """The first half of murmur3_x64_128 of each value; value i is data[offsets[i]:offsets[i + 1]], out uint64[n]."""
    for i in range(out.shape[0]):
        out[i] = _murmur3(data, offsets[i], offsets[i + 1], seed)


# --- the filter: words is uint32[8 * n_blocks] ----------------------------------------------------


@kernel(types.void(types.uint32[::1], _U64))
def insert_multiply_shift(words, hashes):  # type: ignore[no-untyped-def]
    """Insert hashes; words uint32[8 * blocks], any number of blocks."""
    n_blocks = uint64(words.shape[0] >> 3)
    for j in range(hashes.shape[0]):
        h = hashes[j]
        insert_at(words, block_of(h, n_blocks) << uint64(3), h)


@kernel(types.void(types.uint32[::1], _U64))
def insert_mask(words, hashes):  # type: ignore[no-untyped-def]
    """Insert hashes; words uint32[8 * blocks], the blocks a power of two."""
    n_blocks = uint64(words.shape[0] >> 3)
    for j in range(hashes.shape[0]):
        h = hashes[j]
        insert_at(words, masked_block_of(h, n_blocks) << uint64(3), h)


@kernel(types.void(types.uint32[::1], types.int64[::1], _U64, types.boolean))
def insert_each(words, counts, hashes, mask):  # type: ignore[no-untyped-def]
    """Insert counts[i] hashes into the i-th of filters of one size, a power of two of blocks, in one array."""
    n_words = uint64(words.shape[0] // counts.shape[0])
    n_blocks = n_words >> uint64(3)
    start, j = uint64(0), 0
    for i in range(counts.shape[0]):
        for _ in range(counts[i]):
            h = hashes[j]
            j += 1
            block = masked_block_of(h, n_blocks) if mask else block_of(h, n_blocks)
            insert_at(words, start + (block << uint64(3)), h)
        start += n_words


@kernel(types.void(_U32, _U64, types.boolean[::1]))
def contains_multiply_shift(words, hashes, out):  # type: ignore[no-untyped-def]
    """Query hashes; words uint32[8 * blocks], any number of blocks, out bool[n]."""
    n_blocks = uint64(words.shape[0] >> 3)
    for j in range(hashes.shape[0]):
        h = hashes[j]
        out[j] = contains_at(words, block_of(h, n_blocks) << uint64(3), h)


@kernel(types.void(_U32, _U64, types.boolean[::1]))
def contains_mask(words, hashes, out):  # type: ignore[no-untyped-def]
    """Query hashes; words uint32[8 * blocks], the blocks a power of two, out bool[n]."""
    n_blocks = uint64(words.shape[0] >> 3)
    for j in range(hashes.shape[0]):
        h = hashes[j]
        out[j] = contains_at(words, masked_block_of(h, n_blocks) << uint64(3), h)


# --- k-probe filters of 2015: hashes ---------------------------------------------------------------
#
# A single value goes through kernels.k_probe alone.
# Sources: Thomas Wang, "Integer hash function" (64 bit); Hive's one-lane Murmur3; MurmurHash3.cpp.

_OUT = types.uint64[::1]


# --- hashes ---------------------------------------------------------------------------------------


@njit(inline="always")
def _wang(key):  # type: ignore[no-untyped-def]
    k = int64(key)  # the shifts to the right are arithmetic: Java's >>
    k = ~k + (k << int64(21))
    k ^= k >> int64(24)
    k = k + (k << int64(3)) + (k << int64(8))
    k ^= k >> int64(14)
    k = k + (k << int64(2)) + (k << int64(4))
    k ^= k >> int64(28)
    return uint64(k + (k << int64(31)))


@njit(inline="always")
def _number(data, start, width, floats):  # type: ignore[no-untyped-def]
    """4 or 8 little-endian bytes as Java has them in a long: ints sign-extended, NaN canonical."""
    if width == uint64(4):
        bits = uint64(load32(data, start))
        if floats and (bits & uint64(0x7FFFFFFF)) > uint64(0x7F800000):
            bits = uint64(0x7FC00000)
        return (bits ^ uint64(0x80000000)) - uint64(0x80000000)
    bits = load64(data, start)
    if floats and (bits & uint64(0x7FFFFFFFFFFFFFFF)) > uint64(0x7FF0000000000000):
        bits = uint64(0x7FF8000000000000)
    return bits


@kernel(types.void(_BYTES, types.uint64, types.uint64, _OUT))
def wang_fixed(data, width, floats, out):  # type: ignore[no-untyped-def]
    """width is 4 or 8 bytes; floats is 1 where the numbers are IEEE 754."""
    for i in range(out.shape[0]):
        out[i] = _wang(_number(data, uint64(i) * width, width, floats != uint64(0)))


@kernel(types.void(_BYTES, _U64, types.uint64, _OUT))
def wang_variable(data, offsets, floats, out):  # type: ignore[no-untyped-def]
    """Every value has 4 or 8 bytes."""
    for i in range(out.shape[0]):
        width = offsets[i + 1] - offsets[i]
        out[i] = _wang(_number(data, offsets[i], width, floats != uint64(0)))


@njit(inline="always")
def _hive64(data, start, stop, seed):  # type: ignore[no-untyped-def]
    h = seed
    at = start
    while at + uint64(8) <= stop:
        h = rotl(h ^ mix1(load64(data, at)), 27) * uint64(5) + uint64(0x52DCE729)
        at += uint64(8)
    k = uint64(0)
    shift = uint64(0)
    while at < stop:
        k |= load8(data, at) << shift
        shift += uint64(8)
        at += uint64(1)
    return fmix64(h ^ mix1(k) ^ (stop - start))


@kernel(types.void(_BYTES, types.uint64, types.uint64, _OUT))
def hive64_fixed(data, width, seed, out):  # type: ignore[no-untyped-def]
    """Hive's murmur64 of each value; data uint8[n * width], out uint64[n]."""
    for i in range(out.shape[0]):
        start = uint64(i) * width
        out[i] = _hive64(data, start, start + width, seed)


@kernel(types.void(_BYTES, _U64, types.uint64, _OUT))
def hive64_variable(data, offsets, seed, out):  # type: ignore[no-untyped-def]
    """Hive's murmur64 of each value; value i is data[offsets[i]:offsets[i + 1]], out uint64[n]."""
    for i in range(out.shape[0]):
        out[i] = _hive64(data, offsets[i], offsets[i + 1], seed)


@njit(inline="always")
def _second_half(data, start, stop, seed):  # type: ignore[no-untyped-def]
    h1, h2 = murmur3_state(data, start, stop, seed)
    h1 ^= stop - start
    h2 ^= stop - start
    h1 += h2
    h2 += h1
    return fmix64(h1) + uint64(2) * fmix64(h2)


@kernel(types.void(_BYTES, types.uint64, types.uint64, _OUT))
def murmur3_h2_fixed(data, width, seed, out):  # type: ignore[no-untyped-def]
    """The second half of murmur3_x64_128 of each value; data uint8[n * width], out uint64[n]."""
    for i in range(out.shape[0]):
        start = uint64(i) * width
        out[i] = _second_half(data, start, start + width, seed)


@kernel(types.void(_BYTES, _U64, types.uint64, _OUT))
def murmur3_h2_variable(data, offsets, seed, out):  # type: ignore[no-untyped-def]
    """The second half of murmur3_x64_128 of each value; value i is data[offsets[i]:offsets[i + 1]]."""
    for i in range(out.shape[0]):
        out[i] = _second_half(data, offsets[i], offsets[i + 1], seed)


# --- k-probe filters of 2015: the bitset, longs is uint64[num_bits / 64] ----------------------------


@njit(inline="always")
def _position32(h, i, m):  # type: ignore[no-untyped-def]
    c = ((h & uint64(0xFFFFFFFF)) + i * (h >> uint64(32))) & uint64(0xFFFFFFFF)
    if c & uint64(0x80000000):
        c ^= uint64(0xFFFFFFFF)  # as an int it is negative: all its bits turn
    return c % m


@kernel(types.void(_OUT, _U64, types.uint64, types.uint64))
def insert_32(longs, hashes, first, k):  # type: ignore[no-untyped-def]
    """Set the k positions of each hash, by the 32-bit strategy; longs uint64[m / 64]."""
    m = uint64(longs.shape[0]) * uint64(64)
    for j in range(hashes.shape[0]):
        for i in range(first, first + k):
            at = _position32(hashes[j], i, m)
            longs[at >> uint64(6)] |= uint64(1) << (at & uint64(63))


@kernel(types.void(_U64, _U64, types.uint64, types.uint64, types.boolean[::1]))
def contains_32(longs, hashes, first, k, out):  # type: ignore[no-untyped-def]
    """Say whether the k positions of each hash are set, by the 32-bit strategy; out bool[n]."""
    m = uint64(longs.shape[0]) * uint64(64)
    for j in range(hashes.shape[0]):
        found = True
        for i in range(first, first + k):
            at = _position32(hashes[j], i, m)
            if not longs[at >> uint64(6)] >> (at & uint64(63)) & uint64(1):
                found = False
                break
        out[j] = found


_POSITIVE = np.uint64(0x7FFFFFFFFFFFFFFF)


@kernel(types.void(_OUT, _U64, _U64, types.uint64))
def insert_64(longs, first_halves, second_halves, k):  # type: ignore[no-untyped-def]
    """Set the k positions of each hash, by the 64-bit strategy; longs uint64[m / 64]."""
    m = uint64(longs.shape[0]) * uint64(64)
    for j in range(first_halves.shape[0]):
        c = first_halves[j]
        for _ in range(k):
            at = (c & _POSITIVE) % m
            longs[at >> uint64(6)] |= uint64(1) << (at & uint64(63))
            c += second_halves[j]


@kernel(types.void(_U64, _U64, _U64, types.uint64, types.boolean[::1]))
def contains_64(longs, first_halves, second_halves, k, out):  # type: ignore[no-untyped-def]
    """Say whether the k positions of each hash are set, by the 64-bit strategy; out bool[n]."""
    m = uint64(longs.shape[0]) * uint64(64)
    for j in range(first_halves.shape[0]):
        found = True
        c = first_halves[j]
        for _ in range(k):
            at = (c & _POSITIVE) % m
            if not longs[at >> uint64(6)] >> (at & uint64(63)) & uint64(1):
                found = False
                break
            c += second_halves[j]
        out[j] = found
