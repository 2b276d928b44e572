"""Deletion vectors: the deleted rows of one file as a Roaring bitmap of 64 bits; the same in Delta and Iceberg.

    u32 length (big-endian)  of magic and bitmap      only in files
    u32 1681511377 (little-endian)                    the magic
    the bitmap                                        see format.roaring
    u32 CRC-32 (big-endian)  of magic and bitmap      only in files

Source: the Delta protocol, "Deletion Vector Format"; the Puffin specification, blob type deletion-vector-v1.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError, parameter
from parquet_bloom.format.roaring import decode_64
from parquet_bloom.options import limits
from parquet_bloom.storage.remote import Location

_MAGIC = 1681511377
AROUND = 8  # bytes of length and CRC-32 around a vector in a file


def positions_in(file: Location, data: bytes, n: int) -> NDArray[np.int64]:
    """The positions that a vector of a file holds, sorted: int64[n]. data: with length and CRC-32.

    Raises DamagedFileError that names the file.
    """
    try:
        return positions(framed(data), n)
    except FilterFormatError as error:
        raise DamagedFileError(file, str(error)) from error


def framed(data: bytes) -> bytes:
    """The magic and bitmap of a vector as a file has it, with length and CRC-32. Raises FilterFormatError."""
    inside = data[4:-4]
    if len(data) < AROUND or int.from_bytes(data[:4], "big") != len(inside):
        raise FilterFormatError(f"a deletion vector of {len(data)} bytes has another length in front")
    if int.from_bytes(data[-4:], "big") != zlib.crc32(inside):
        raise FilterFormatError("the CRC-32 of a deletion vector is not the one behind it")
    return inside


def positions(data: bytes, n: int) -> NDArray[np.int64]:
    """The positions that magic and bitmap hold, sorted: int64[n]. Raises FilterFormatError, also for another number."""
    if len(data) < 4 or struct.unpack_from("<I", data)[0] != _MAGIC:
        raise FilterFormatError("a deletion vector does not begin with its magic")
    ranges = decode_64(data[4:])
    lengths = ranges[:, 1] - ranges[:, 0]
    if (held := int(lengths.sum())) != n:
        raise FilterFormatError(f"a deletion vector holds {held} rows, where {n} were told")
    if n * 8 > (most := limits().max_memory):  # a few bytes of runs can say any number of rows
        raise FilterFormatError(
            f"a deletion vector of {n:,} rows takes more than {most:,} bytes; raise " + parameter("max_memory")
        )
    shifts = ranges[:, 0] - (np.cumsum(lengths) - lengths)
    found: NDArray[np.int64] = np.repeat(shifts, lengths) + np.arange(n)
    return found
