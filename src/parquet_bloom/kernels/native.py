"""The loops that numba compiles: arrays in, arrays out, no objects and no allocation.

Imported only when a whole column is hashed or probed; a single value goes through xxhash and
mmh3 instead (format.final), so that reading commands never pay for the compiler.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types, uint64
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
