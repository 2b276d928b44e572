"""Hash every value of an Arrow array, as the filter writers did: XXH64 or Murmur3 x64-128.

A value's bytes are its PLAIN bytes without a length prefix; for a fixed-width array they are the
slot in the values buffer, for a variable-width one the bytes between two offsets:

    int64   | 8 bytes | 8 bytes | ...          string  offsets 0 3 3 7 -> |abc||defg|

Nulls have no value and give no hash. Whether numba or numpy hashes is decided in kernels.loops. Sources: xxHash
specification; MurmurHash3.cpp. Proven with xxhash, mmh3, tests/support/naive.py and fixtures/vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.types as pt
import xxhash
from numpy.typing import NDArray

from parquet_bloom.kernels.loops import compiled, loop

# --- hashes by numpy ------------------------------------------------------------------------------
#
# The hashes of kernels.native once more, by numpy: for columns too short to load numba for.
#
# Values of one width are hashed together, a step of the algorithm at a time over some thousands of them; texts are
# sorted by their lengths first. Where few texts have the same length, xxhash and mmh3 hash them one by one.
#
#    rows of one width:    word(0)  word(8)  ...       each uint64[n], the 8 bytes there of every value
#                          | 8 bytes | 8 bytes | rest |
#
# Sources: as in kernels.native. Arithmetic on arrays of uint64 is modulo 2^64, as the algorithms want it.

U64 = NDArray[np.uint64]
Bytes = NDArray[np.uint8]
Words = NDArray[Any]  # uint64[n]; numpy's stubs take such an array and an int for a signed one

_AT_ONCE = 8192  # values: what one step leaves behind is still in the processor's cache for the next
_MASK = (1 << 64) - 1

_VALUE_NS, _STEP_NS = 10.0, 10_000.0  # 8 bytes of a value; 8 bytes of a group, however few its values are


class _Rows(NamedTuple):
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

# PRIME64_1 to PRIME64_5 of the xxHash specification.
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
    # The specification's steps: 1. four lanes, or for short values none; 2. stripes of 32 bytes, 8 for each lane;
    # 3. the lanes become one; 4. the length; 5. what remains, by 8, 4 and 1 bytes; 6. the avalanche.
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

# c1 and c2 of MurmurHash3_x64_128; the numbers that are added after a block, and those of fmix64, are its too.
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_N1, _N2 = 0x52DCE729, 0x38495AB5


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
        h1 = (_rotl(h1 ^ _mix1(rows.number(at, 8)), 27) + h2) * 5 + _N1
        h2 = (_rotl(h2 ^ _mix2(rows.number(at + 8, 8)), 31) + h1) * 5 + _N2
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
        h = _rotl(h ^ _mix1(rows.number(at, 8)), 27) * 5 + _N1
    if width % 8:
        h = h ^ _mix1(rows.rest(width - width % 8, width % 8))
    return _fmix(h ^ width)


# --- Wang -------------------------------------------------------------------------------------------


def _number(rows: _Rows, floats: bool) -> NDArray[np.int64]:
    """4 or 8 bytes as Java has them in a long: sign-extended, NaN canonical."""
    # Bits above those of infinity are a NaN, and all of them become the one of Float.floatToIntBits and
    # Double.doubleToLongBits.
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
    # Texts of one length are rows of one width. So they are sorted by length, and each group is hashed at once, or one
    # by one through a library where the group is too small for that.
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    if (lengths == lengths[0]).all() and not _library_is_quicker(name, len(out), int(lengths[0])):
        hash_fixed(name, data[starts[0] : int(offsets[-1])], int(lengths[0]), seed, out)
        return
    short = lengths.max() < 1 << 16  # numpy sorts those by their digits
    order = np.argsort(lengths.astype(np.uint16) if short else lengths, kind="stable")
    ends = np.flatnonzero(np.diff(lengths[order])) + 1
    for group in np.split(order, ends):
        width = int(lengths[group[0]])
        if _library_is_quicker(name, len(group), width):
            for i in group.tolist():
                out[i] = _LIBRARIES[name](data[starts[i] : starts[i] + width].tobytes(), seed)
            continue
        for start in range(0, len(group), _AT_ONCE):
            some = group[start : start + _AT_ONCE]
            out[some] = _HASHES[name](_Rows(data, width, len(some), starts=starts[some]), seed)


def _library_is_quicker(name: str, n: int, width: int) -> bool:
    """Than numpy, for so many texts of one length."""
    # A text takes a library 0.7 us. numpy takes 10 us for each 8 bytes of a group, and 8 ns for those of a text.
    return name in _LIBRARIES and (width > 600 or n < 2 * width + 16)


# --- hashes of an Arrow array ---------------------------------------------------------------------

HashName = Literal["xxh64", "murmur3"]
ArrayHashName = Literal["xxh64", "murmur3", "murmur3-h2", "hive64", "wang"]


def hash_array(
    array: pa.Array | pa.ChunkedArray,
    name: ArrayHashName = "xxh64",
    seed: int = 0,
    scratch: NDArray[np.uint64] | None = None,
) -> NDArray[np.uint64]:
    """Hash each value that is not null.

    array    any Arrow array of fixed-width values (whole bytes), binary or string in every form
             (large, view), or a dictionary of these, whose entries are hashed once each
    name     "xxh64", or "murmur3": the first 64 bits (h1) of murmur3_x64_128; those of kernels.k_probe:
             "murmur3-h2", the other 64; "hive64"; "wang", of values of 4 or 8 bytes
    seed     unsigned, 64 bits for xxh64 and 32 for murmur3; of wang 1 for floats, whose NaN are one then
    scratch  uint64[>= n] that the result may lie in; fresh memory for every batch costs more than
             hashing it
    returns  uint64[n], one for each value that is not null (nor a dictionary's null entry), in order

    Raises TypeError for booleans (bits, not bytes) and nested arrays, and for wang of other widths.
    """
    if isinstance(array, pa.ChunkedArray):
        parts = [hash_array(chunk, name, seed) for chunk in array.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pt.is_dictionary(array.type):
        return _hash_dictionary(array, name, seed)
    if pt.is_null(array.type):
        return np.empty(0, np.uint64)
    if pt.is_string_view(array.type) or pt.is_binary_view(array.type):
        array = array.cast(pa.large_binary())
    if array.null_count:
        array = array.drop_null()
    if _is_variable(array.type):
        return _hash_variable(array, name, seed, _room(len(array), scratch))
    return _hash_fixed(array, name, seed, _room(len(array), scratch))


def _room(n: int, scratch: NDArray[np.uint64] | None) -> NDArray[np.uint64]:
    return scratch[:n] if scratch is not None and len(scratch) >= n else np.empty(n, np.uint64)


def _is_variable(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_string(kind) or pt.is_large_binary(kind) or pt.is_large_string(kind))


def _hash_dictionary(array: pa.DictionaryArray, name: ArrayHashName, seed: int) -> NDArray[np.uint64]:
    # An entry may itself be null, which `hash_array` would leave out and so shift the others.
    entries = array.dictionary
    indices = array.indices.drop_null()
    if entries.null_count:
        import pyarrow.compute as pc  # half as long to load as pyarrow itself; most columns never need it

        valid = entries.is_valid()
        indices = indices.filter(valid.take(indices))
        position = pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1)
        indices = position.take(indices)
    hashed: NDArray[np.uint64] = hash_array(entries, name, seed)[indices.to_numpy(zero_copy_only=False)]
    return hashed


def offsets_of(array: pa.Array) -> NDArray[Any]:
    """The start of each value of a binary or string array, and the end of the last: int32 or int64[n + 1], n > 0."""
    large = pt.is_large_binary(array.type) or pt.is_large_string(array.type)
    stored = np.frombuffer(array.buffers()[1], np.int64 if large else np.int32)
    return stored[array.offset : array.offset + len(array) + 1]


def _hash_variable(array: pa.Array, name: ArrayHashName, seed: int, out: NDArray[np.uint64]) -> NDArray[np.uint64]:
    if not len(array):
        return out
    offsets = offsets_of(array).astype(np.uint64)
    data_buffer = array.buffers()[2]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.empty(0, np.uint8)
    if offsets[-1] > len(data) or np.any(offsets[1:] < offsets[:-1]):
        raise ValueError("offsets of an Arrow array reach outside its values")
    if name == "wang":
        _check_widths(np.unique(np.diff(offsets)).tolist())
    if compiled(_variable_ns(name, offsets)):
        loop(_name(name, "variable"))(data, offsets, np.uint64(seed), out)
    else:
        hash_variable(name, data, offsets, seed, out)
    return out


def _variable_ns(name: ArrayHashName, offsets: U64) -> float:
    """The time of hash_variable, some nanoseconds; a text through a library takes as long as its bytes by numpy."""
    values = _VALUE_NS * (len(offsets) - 1 + float(offsets[-1] - offsets[0]) / 8)
    return values if name in _LIBRARIES else values + _STEP_NS * float(np.unique(np.diff(offsets)).sum()) / 8


def _name(name: ArrayHashName, shape: str) -> str:
    """The name of a loop in kernels.native."""
    return f"{name.replace('-', '_')}_{shape}"


def _check_widths(widths: Sequence[int]) -> None:
    if not set(widths) <= {4, 8}:  # the kernel would read past them
        raise TypeError(f"numbers of {', '.join(map(str, widths))} bytes cannot be hashed, only of 4 or 8")


def _hash_fixed(array: pa.Array, name: ArrayHashName, seed: int, out: NDArray[np.uint64]) -> NDArray[np.uint64]:
    kind = array.type
    try:
        bits = kind.bit_width
    except ValueError:
        raise TypeError(f"cannot hash an Arrow array of type {kind}") from None
    if bits % 8 or pt.is_nested(kind):
        raise TypeError(f"cannot hash an Arrow array of type {kind}")
    width = bits // 8
    if not len(array):
        return out
    buffer = array.buffers()[1]
    data = np.frombuffer(buffer, np.uint8) if buffer else np.empty(0, np.uint8)
    data = data[array.offset * width : (array.offset + len(array)) * width]
    if len(data) != len(array) * width:
        raise ValueError("values of an Arrow array reach outside its buffer")
    if name == "wang":
        _check_widths([width])
    # The fast loops need values at their natural alignment, which foreign buffers may not have.
    by_number = name in ("xxh64", "murmur3") and width in (4, 8) and data.ctypes.data % width == 0
    if not compiled(_VALUE_NS * len(array) * max(1, width / 8)):
        hash_fixed(name, data, width, seed, out)
    elif by_number:
        numbers = data.view(np.uint64 if width == 8 else np.uint32)
        loop(_name(name, f"u{8 * width}"))(numbers, np.uint64(seed), out)
    else:
        loop(_name(name, "fixed"))(data, np.uint64(width), np.uint64(seed), out)
    return out
