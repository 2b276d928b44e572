"""The loops of the k-probe filters of 2015 that numba compiles; arrays in, arrays out.

Imported only when a whole column is hashed or probed; a single value goes through k_probe alone.
Sources: Thomas Wang, "Integer hash function" (64 bit); Hive's one-lane Murmur3; MurmurHash3.cpp.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, types, uint64

from parquet_bloom.kernels.compiler import kernel
from parquet_bloom.kernels.intrinsics import load8, load32, load64, rotl
from parquet_bloom.kernels.native import fmix64, mix1, murmur3_state

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_U64 = types.Array(types.uint64, 1, "C", readonly=True)
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


# --- the bitset: longs is uint64[num_bits / 64] ---------------------------------------------------


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
