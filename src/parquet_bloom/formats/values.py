"""The bytes a writer hashed for a value of a column, by physical and logical type.

A filter is asked with the PLAIN bytes of the *physical* value, without a length prefix:

    INT32, INT64   4, 8 bytes LE; int8/16 sign-extended, uint8/16 zero-extended first
    FLOAT, DOUBLE  4, 8 bytes LE, raw; FLOAT16 2 bytes
    BYTE_ARRAY     the bytes;  FIXED_LEN_BYTE_ARRAY  type_length bytes, DECIMAL big-endian

A value is what bounds.domain_of says: an int, a float, or bytes.
Source: parquet-format Encodings.md (PLAIN) and LogicalTypes.md; docs/formats.md section 2.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.formats.bounds import MOST_BYTES
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, FLBA, Leaf
from parquet_bloom.formats.numbers import FLOATS


def not_asked(leaf: Leaf) -> str:
    """Why no filter of a column is asked for values, whoever wrote it; empty if one can be."""
    if leaf.refusal is not None:
        return f"filters on {leaf.type_name} are not used: {leaf.refusal}"
    if leaf.logical == "DECIMAL" and leaf.physical == BYTE_ARRAY:
        return "a DECIMAL in a BYTE_ARRAY has many spellings of one value"
    if leaf.logical == "DECIMAL" and leaf.width > MOST_BYTES:
        return f"a DECIMAL of {leaf.width} bytes is none of any engine's"
    return ""


def plain(number: int, leaf: Leaf) -> bytes | None:
    """The PLAIN bytes of a value within the limits of an integer column; None where it has no one spelling."""
    if not_asked(leaf):
        return None
    try:
        if leaf.physical == FLBA:
            return number.to_bytes(leaf.type_length, "big", signed=True)
        return (number & (1 << 8 * leaf.width) - 1).to_bytes(leaf.width, "little")
    except OverflowError:
        return None


def float_probes(low: float, high: float, bits: int) -> tuple[bytes, ...]:
    """The PLAIN bytes of the floats from one to the other, at most three (numbers.around).

    The zeros are equal and hash differently, so where one is wanted both are asked for.
    """
    kind = FLOATS[bits]
    with np.errstate(over="ignore"):
        between = [np.nextafter(kind(low), kind(np.inf))] if low != high else []
    probes: list[bytes] = []
    for value in (*between, kind(low), kind(high)):
        probes += [value.tobytes()] if value != 0 else [kind(0.0).tobytes(), kind(-0.0).tobytes()]
    return tuple(dict.fromkeys(probes))


def stored_floats(values: pa.Array, leaf: Leaf) -> NDArray[np.floating]:
    """The values of a float column that are not null: float16, float32 or float64."""
    return floats_in(values.drop_null() if values.null_count else values)


def floats_in(values: pa.Array) -> NDArray[np.floating]:
    """The slots of an array of floats, or of FLOAT16 as fixed_size_binary: float16, float32 or float64, a view."""
    return numbers_in(values, np.dtype(FLOATS[values.type.bit_width]))


def numbers_in(values: pa.Array, kind: np.dtype[Any]) -> NDArray[Any]:
    """The slots of an array of fixed width as numbers of a kind, a view.

    An array's own to_numpy() may load pandas, where that is installed.
    """
    if not len(values):
        return np.empty(0, kind)
    return np.frombuffer(values.buffers()[1], kind)[values.offset : values.offset + len(values)]


def twins(values: NDArray[np.floating]) -> list[bytes]:
    """The values to insert beside those stored: both zeros if either is there, NaN's canonical bits.

    values   float16, float32 or float64, any length
    returns  PLAIN bytes

    The zeros are equal and hash differently, and a NaN has many payloads: without their twins in
    the filter, `x = 0.0` over a stored -0.0 loses rows in engines that ask only for what they
    were given.
    """
    extra: list[bytes] = []
    if bool(np.any(values == 0)):
        extra += [values.dtype.type(0.0).tobytes(), values.dtype.type(-0.0).tobytes()]
    if bool(np.any(np.isnan(values))):
        canonical = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}[values.dtype.itemsize]
        extra.append(struct.pack("<Q", canonical)[: values.dtype.itemsize])
    return extra


def arrow_of(numbers: NDArray[Any]) -> pa.Array:
    """An Arrow array over numpy's memory; numbers of 1, 2, 4 or 8 bytes.

    pyarrow.array() would ask first whether it was given something of pandas', and load pandas for it.
    """
    values = np.ascontiguousarray(numbers)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])
