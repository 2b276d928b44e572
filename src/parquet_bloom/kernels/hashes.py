"""Hash every value of an Arrow array, as the filter writers did: XXH64 or Murmur3 x64-128.

A value's bytes are its PLAIN bytes without a length prefix; for a fixed-width array they are the
slot in the values buffer, for a variable-width one the bytes between two offsets:

    int64   | 8 bytes | 8 bytes | ...          string  offsets 0 3 3 7 -> |abc||defg|

Nulls have no value and give no hash.
Sources: xxHash specification; MurmurHash3.cpp. Proven with xxhash, mmh3, tests/support/naive.py and fixtures/vectors.

Whole columns are hashed and queried by loops that numba compiles (kernels.native), or without numba: xxhash and mmh3
hash value by value, and numpy inserts and looks up (kernels.block). Both give the same bits. The compiled loops are 5
to 100 times faster. But loading numba and a few kernels takes some 0.4 s, and compiling them for the first time
seconds. So a process begins without, and changes over once that has cost it half as long: some 0.9 million numbers
that are hashed and inserted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.types as pt
import xxhash
from numpy.typing import NDArray

if TYPE_CHECKING:
    from parquet_bloom.kernels.compiler import Kernel


ALLOWED_NS = 200_000_000  # that a process may lose without numba


class _Spent:
    """The cost of work without numba in this process, by estimates, nanoseconds; threads may lose some."""

    ns = 0.0


def compiled(ns: float) -> bool:
    """Whether compiled loops are to run now, where without them it would take so many nanoseconds."""
    _Spent.ns += ns
    return _Spent.ns > ALLOWED_NS


def loop(name: str) -> Kernel:
    """A compiled loop, by its name in kernels.native."""
    from parquet_bloom.kernels import native

    found: Kernel = getattr(native, name)
    return found


# --- one by one -----------------------------------------------------------------------------------
#
# The hashes of kernels.native once more, value by value, for columns too short to load numba for: by xxhash and mmh3,
# and for what these do not have in Python's own numbers.

U64 = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

_MASK = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F  # of MurmurHash3_x64_128
_LIBRARY_NS, _PYTHON_NS = 200.0, 300.0  # of a value; of Python also of each 8 bytes


def _hive64(data: memoryview, seed: int) -> int:
    """Hive's 64 bits of Murmur3, as kernels.native has them."""
    h = seed
    for at in range(0, len(data), 8):
        word = data[at : at + 8]
        k = int.from_bytes(word, "little") * _C1 & _MASK
        h ^= (k << 31 & _MASK | k >> 33) * _C2 & _MASK
        if len(word) == 8:
            h = ((h << 27 & _MASK | h >> 37) * 5 + 0x52DCE729) & _MASK
    h ^= len(data)
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33


def _wang(data: memoryview, floats: int) -> int:
    """Thomas Wang's hash of 4 or 8 bytes as Java has them in a long: sign-extended, NaN canonical."""
    k = int.from_bytes(data, "little", signed=True)
    # Bits above those of infinity are a NaN, and all of them become the one of Java's floatToIntBits, doubleToLongBits.
    if floats and len(data) == 4 and k & 0x7FFFFFFF > 0x7F800000:
        k = 0x7FC00000
    elif floats and len(data) == 8 and k & _MASK >> 1 > 0x7FF0000000000000:
        k = 0x7FF8000000000000
    k = _as_long(~k + (k << 21))
    k ^= k >> 24
    k = _as_long(k + (k << 3) + (k << 8))
    k ^= k >> 14
    k = _as_long(k + (k << 2) + (k << 4))
    k ^= k >> 28
    return k + (k << 31) & _MASK


def _as_long(k: int) -> int:
    """A number modulo 2^64, signed as Java's long: shifts to the right are arithmetic."""
    k &= _MASK
    return k - (k >> 63 << 64)


_ONE_BY_ONE: dict[str, Callable[[memoryview, int], int]] = {
    "xxh64": xxhash.xxh64_intdigest,
    "murmur3": lambda data, seed: mmh3.hash64(bytes(data), seed, signed=False)[0],
    "murmur3-h2": lambda data, seed: mmh3.hash64(bytes(data), seed, signed=False)[1],
    "hive64": _hive64,
    "wang": _wang,
}


def hash_variable(name: str, data: Bytes, offsets: U64, seed: int, out: U64) -> None:
    """Hash values of any width; value i is data[offsets[i]:offsets[i + 1]], out uint64[n]."""
    hash_one, view = _ONE_BY_ONE[name], data.data
    out[:] = [hash_one(view[start:stop], seed) for start, stop in pairwise(offsets.tolist())]


def _one_by_one_ns(name: ArrayHashName, n: int, n_bytes: int) -> float:
    """The time of hash_variable, some nanoseconds."""
    if name in ("hive64", "wang"):
        return _PYTHON_NS * (n + n_bytes / 8)
    return _LIBRARY_NS * n + 0.1 * n_bytes


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
    if compiled(_one_by_one_ns(name, len(out), int(offsets[-1] - offsets[0]))):
        loop(_name(name, "variable"))(data, offsets, np.uint64(seed), out)
    else:
        hash_variable(name, data, offsets, seed, out)
    return out


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
    if not compiled(_one_by_one_ns(name, len(array), len(data))):
        hash_variable(name, data, np.arange(0, len(data) + 1, width, dtype=np.uint64), seed, out)
    elif by_number:
        numbers = data.view(np.uint64 if width == 8 else np.uint32)
        loop(_name(name, f"u{8 * width}"))(numbers, np.uint64(seed), out)
    else:
        loop(_name(name, "fixed"))(data, np.uint64(width), np.uint64(seed), out)
    return out
