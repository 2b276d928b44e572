"""The hashes of kernels.native and native_k_probe once more, by numpy: for columns too short to load numba for.

Values of one width are hashed together, a step of the algorithm at a time over some thousands of them; texts are
sorted by their lengths first. Where few texts have the same length, xxhash and mmh3 hash them one by one.

    rows of one width:    word(0)  word(8)  ...       each uint64[n], the 8 bytes there of every value
                          | 8 bytes | 8 bytes | rest |

Sources: as in kernels.native. Arithmetic on arrays of uint64 is modulo 2^64, as the algorithms want it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mmh3
import numpy as np
import xxhash
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Words = NDArray[Any]  # uint64[n]; numpy's stubs take such an array and an int for a signed one

_AT_ONCE = 8192  # values: what one step leaves behind is still in the processor's cache for the next
_MASK = (1 << 64) - 1

FIXED_NS, WORD_NS = 10.0, 8.0  # a value; and of wider ones 8 bytes
_STEP_NS, _ALONE_NS = 10_000.0, 700.0  # 8 bytes of a group, however few its values are; a text through a library


@dataclass(frozen=True, slots=True)
class _Rows:
    """Values of one width.

    data    uint8[..]
    starts  int64[n], where they begin; or None: n of them follow each other from `first`
    """

    data: Bytes
    width: int
    n: int
    first: int = 0
    starts: NDArray[np.int64] | None = None

    def number(self, at: int, size: int) -> U64:
        """The `size` bytes (1, 4 or 8, little-endian) that begin at byte `at` of each value: uint64[n]."""
        kind = np.dtype(f"<u{size}")
        if self.starts is None:
            found = np.ndarray((self.n,), kind, self.data, self.first + at, (self.width,))
        else:
            found = np.ndarray((len(self.data) - size + 1,), kind, self.data, 0, (1,))[self.starts + at]
        return found.astype(np.uint64)

    def rest(self, at: int, size: int) -> Words:
        """The `size` bytes, 1 to 8, from byte `at` of each value, little-endian."""
        if size in (1, 4, 8):
            return self.number(at, size)
        if self.width >= 8:  # the last 8 bytes end where these do
            return self.number(at + size - 8, 8) >> 8 * (8 - size)
        parts = [self.number(at + i, 1) << 8 * i for i in range(size)]
        rest: Words = np.bitwise_or.reduce(parts)
        return rest


# --- XXH64 ------------------------------------------------------------------------------------------

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def _rotl(x: Words, r: int) -> Words:
    return x << r | x >> 64 - r


def _xor_shift(h: Words, r: int) -> Words:
    mixed: Words = h ^ h >> r
    return mixed


def _round(word: Words) -> Words:
    return _rotl(word * _P2, 31) * _P1


def _xxh64(rows: _Rows, seed: int) -> Words:
    width, at = rows.width, 0
    if width >= 32:
        lanes = [np.full(rows.n, seed + start & _MASK, np.uint64) for start in (_P1 + _P2, _P2, 0, -_P1)]
        while at + 32 <= width:
            for i in range(4):
                lanes[i] = _rotl(lanes[i] + rows.number(at + 8 * i, 8) * _P2, 31) * _P1
            at += 32
        h = _rotl(lanes[0], 1) + _rotl(lanes[1], 7) + _rotl(lanes[2], 12) + _rotl(lanes[3], 18)
        for lane in lanes:
            h = (h ^ _round(lane)) * _P1 + _P4
        h += width
    else:
        h = np.full(rows.n, seed + _P5 + width & _MASK, np.uint64)
    while at + 8 <= width:
        h = _rotl(h ^ _round(rows.number(at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= width:
        h = _rotl(h ^ rows.number(at, 4) * _P1, 23) * _P2 + _P3
        at += 4
    for i in range(at, width):
        h = _rotl(h ^ rows.number(i, 1) * _P5, 11) * _P1
    h = _xor_shift(h, 33) * _P2
    h = _xor_shift(h, 29) * _P3
    return _xor_shift(h, 32)


# --- Murmur3 ----------------------------------------------------------------------------------------

_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _fmix(k: Words) -> Words:
    k = _xor_shift(k, 33) * 0xFF51AFD7ED558CCD
    k = _xor_shift(k, 33) * 0xC4CEB9FE1A85EC53
    return _xor_shift(k, 33)


def _mix1(k: Words) -> Words:
    return _rotl(k * _C1, 31) * _C2


def _mix2(k: Words) -> Words:
    return _rotl(k * _C2, 33) * _C1


def _murmur3_halves(rows: _Rows, seed: int) -> tuple[Words, Words]:
    """Before the last step, which makes each half of fmix of both."""
    width, at = rows.width, 0
    h1: Words = np.full(rows.n, seed, np.uint64)
    h2: Words = h1.copy()
    while at + 16 <= width:
        h1 = (_rotl(h1 ^ _mix1(rows.number(at, 8)), 27) + h2) * 5 + 0x52DCE729
        h2 = (_rotl(h2 ^ _mix2(rows.number(at + 8, 8)), 31) + h1) * 5 + 0x38495AB5
        at += 16
    if at < width:
        h1 = h1 ^ _mix1(rows.rest(at, min(8, width - at)))
    if at + 8 < width:
        h2 = h2 ^ _mix2(rows.rest(at + 8, width - at - 8))
    h2 = h2 ^ width
    h1 = (h1 ^ width) + h2
    return _fmix(h1), _fmix(h2 + h1)


def _murmur3(rows: _Rows, seed: int) -> Words:
    first, second = _murmur3_halves(rows, seed)
    hashed: Words = first + second
    return hashed


def _murmur3_h2(rows: _Rows, seed: int) -> Words:
    first, second = _murmur3_halves(rows, seed)
    hashed: Words = first + 2 * second
    return hashed


def _hive64(rows: _Rows, seed: int) -> Words:
    width = rows.width
    h = np.full(rows.n, seed, np.uint64)
    for at in range(0, width - 7, 8):
        h = _rotl(h ^ _mix1(rows.number(at, 8)), 27) * 5 + 0x52DCE729
    if width % 8:
        h = h ^ _mix1(rows.rest(width - width % 8, width % 8))
    return _fmix(h ^ width)


# --- Wang -------------------------------------------------------------------------------------------


def _number(rows: _Rows, floats: bool) -> NDArray[np.int64]:
    """4 or 8 bytes as Java has them in a long: sign-extended, NaN canonical."""
    if rows.width == 4:
        short = rows.number(0, 4).astype(np.uint32)
        if floats:
            short[short & 0x7FFFFFFF > 0x7F800000] = 0x7FC00000
        return short.view(np.int32).astype(np.int64)
    bits = rows.number(0, 8)
    if floats:
        bits[bits & 0x7FFFFFFFFFFFFFFF > 0x7FF0000000000000] = 0x7FF8000000000000
    return bits.view(np.int64)


def _wang(rows: _Rows, floats: int) -> Words:
    k = _number(rows, bool(floats))  # signed: the shifts to the right are arithmetic
    k = ~k + (k << 21)
    k ^= k >> 24
    k = k + (k << 3) + (k << 8)
    k ^= k >> 14
    k = k + (k << 2) + (k << 4)
    k ^= k >> 28
    hashed: Words = (k + (k << 31)).view(np.uint64)
    return hashed


# --- arrays -----------------------------------------------------------------------------------------

_HASHES: dict[str, Callable[[_Rows, int], Words]] = {
    "xxh64": _xxh64,
    "murmur3": _murmur3,
    "murmur3-h2": _murmur3_h2,
    "hive64": _hive64,
    "wang": _wang,
}
_LIBRARIES: dict[str, Callable[[bytes, int], int]] = {
    "xxh64": lambda data, seed: xxhash.xxh64_intdigest(data, seed=seed),
    "murmur3": lambda data, seed: mmh3.hash64(data, seed=seed, x64arch=True, signed=False)[0],
    "murmur3-h2": lambda data, seed: mmh3.hash64(data, seed=seed, x64arch=True, signed=False)[1],
}


def hash_fixed(name: str, data: Bytes, width: int, seed: int, out: U64) -> None:
    """Hash values of one width; data uint8[n * width], out uint64[n]; names and seeds as in kernels.hashes."""
    for start in range(0, len(out), _AT_ONCE):
        part = out[start : start + _AT_ONCE]
        part[:] = _HASHES[name](_Rows(data, width, len(part), start * width), seed)


def hash_variable(name: str, data: Bytes, offsets: U64, seed: int, out: U64) -> None:
    """Hash values of any width; value i is data[offsets[i]:offsets[i + 1]], out uint64[n]."""
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    if (lengths == lengths[0]).all():
        hash_fixed(name, data[starts[0] : int(offsets[-1])], int(lengths[0]), seed, out)
        return
    short = lengths.max() < 1 << 16  # numpy sorts those by their digits
    order = np.argsort(lengths.astype(np.uint16) if short else lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order])) + 1
    for group in np.split(order, ends):
        width = int(lengths[group[0]])
        if name in _LIBRARIES and _alone_ns(len(group)) < _together_ns(len(group), width):
            for i in group.tolist():
                out[i] = _LIBRARIES[name](data[starts[i] : starts[i] + width].tobytes(), seed)
            continue
        for start in range(0, len(group), _AT_ONCE):
            some = group[start : start + _AT_ONCE]
            out[some] = _HASHES[name](_Rows(data, width, len(some), starts=starts[some]), seed)


def fixed_ns(n: int, width: int) -> float:
    """What hash_fixed takes, some nanoseconds."""
    return n * max(FIXED_NS, WORD_NS * width / 8)


def variable_ns(name: str, offsets: U64) -> float:
    """What hash_variable takes, some nanoseconds."""
    lengths, counts = np.unique(np.diff(offsets), return_counts=True)
    took = _together_ns(counts, lengths)
    return float((np.minimum(took, _alone_ns(counts)) if name in _LIBRARIES else took).sum())


def _together_ns(n: int | NDArray[np.int64], width: int | U64) -> NDArray[np.float64]:
    words = np.asarray(width, np.float64) / 8 + 1
    return words * (_STEP_NS + WORD_NS * np.asarray(n))


def _alone_ns(n: int | NDArray[np.int64]) -> NDArray[np.float64]:
    return 2_000 + _ALONE_NS * np.asarray(n, np.float64)  # some 2,000 for the group
