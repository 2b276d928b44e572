"""Hash every value of an Arrow array, as the filter writers did: XXH64 or Murmur3 x64-128.

A value's bytes are its PLAIN bytes without a length prefix; for a fixed-width array they are the
slot in the values buffer, for a variable-width one the bytes between two offsets:

    int64   | 8 bytes | 8 bytes | ...          string  offsets 0 3 3 7 -> |abc||defg|

Nulls have no value and give no hash. Whether numba or numpy hashes is decided in kernels.loops. Sources: xxHash
specification; MurmurHash3.cpp. Proven with xxhash, mmh3, tests/naive.py and fixtures/vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from parquet_bloom.kernels import plain_hashes
from parquet_bloom.kernels.loops import compiled

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
    """Where each value of a binary or string array begins, and the last one ends: int32 or int64[n + 1], n > 0."""
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
    if compiled(lambda: plain_hashes.variable_ns(name, offsets)):
        _kernel(name, "variable")(data, offsets, np.uint64(seed), out)
    else:
        plain_hashes.hash_variable(name, data, offsets, seed, out)
    return out


def _kernel(name: ArrayHashName, shape: str) -> Any:
    if name in ("xxh64", "murmur3"):
        from parquet_bloom.kernels import native

        return getattr(native, f"{name}_{shape}")
    from parquet_bloom.kernels import native_k_probe

    return getattr(native_k_probe, f"{name.replace('-', '_')}_{shape}")


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
    if not compiled(plain_hashes.fixed_ns(len(array), width)):
        plain_hashes.hash_fixed(name, data, width, seed, out)
    # The fast loops need values at their natural alignment, which foreign buffers may not have.
    elif name in ("xxh64", "murmur3") and width in (4, 8) and data.ctypes.data % width == 0:
        numbers = data.view(np.uint64 if width == 8 else np.uint32)
        _kernel(name, f"u{8 * width}")(numbers, np.uint64(seed), out)
    else:
        _kernel(name, "fixed")(data, np.uint64(width), np.uint64(seed), out)
    return out
