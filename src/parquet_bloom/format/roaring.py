"""Portable Roaring bitmaps: sets of row offsets. 32 bits: as Lance keeps the nulls of a fragment.

    u32 12346, u32 containers                  | u16 key, u16 cardinality - 1 | ... | u32 offset | ... | containers
    u16 12347, u16 containers - 1, run flags   | the same                     | ... (offsets from 4 containers on)

A container holds the low 16 bits of all members that share the high 16 (the key): sorted u16 where
it has at most 4,096 members, else 65,536 bits; runs of (u16 start, u16 length - 1) where it is
flagged. All little-endian. We write no runs, as Lance does.

64 bits, as tables keep deleted rows: u64 bitmaps, then for each its high 32 bits (u32, ascending) and a bitmap.

Source: RoaringFormatSpec, "Standard 32-bit Roaring Bitmap" and "Extension for 64-bit implementations".
"""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FilterFormatError

_NO_RUNS, _RUNS = 12346, 12347
_MOST_IN_ARRAY = 4096
_OFFSETS_FROM = 4  # with runs, fewer containers have no list of offsets
_SPAN = 1 << 16

Ranges = NDArray[np.int64]  # int64[n, 2], [start, stop), sorted, neither empty nor touching


class Writer:
    """Collects a set in ascending order; memory is that of the encoded bitmap."""

    def __init__(self) -> None:
        self._heads: list[tuple[int, int]] = []
        self._containers: list[bytes] = []
        self._key = 0
        self._low: list[NDArray[np.uint16]] = []

    def add(self, members: NDArray[np.integer]) -> None:
        """Add members, sorted and larger than all before; each within 32 bits."""
        if not len(members):
            return
        if int(members[-1]) >= 1 << 32:
            raise FilterFormatError(f"row {int(members[-1])} is beyond the 32 bits of a Roaring bitmap")
        keys = (members >> 16).astype(np.int64)
        cuts = [0, *(np.flatnonzero(np.diff(keys)) + 1).tolist(), len(members)]
        for first, last in pairwise(cuts):
            if int(keys[first]) != self._key:
                self._close()
                self._key = int(keys[first])
            self._low.append((members[first:last] & (_SPAN - 1)).astype("<u2"))

    def _close(self) -> None:
        if not self._low:
            return
        low = np.concatenate(self._low)
        self._low = []
        self._heads.append((self._key, len(low) - 1))
        if len(low) <= _MOST_IN_ARRAY:
            self._containers.append(low.tobytes())
            return
        bits = np.zeros(_SPAN, np.uint8)
        bits[low] = 1
        self._containers.append(np.packbits(bits, bitorder="little").tobytes())

    def finish(self) -> bytes:
        """The bitmap; b"" where nothing was added."""
        self._close()
        if not self._heads:
            return b""
        n = len(self._heads)
        at = 8 + 8 * n
        parts = [struct.pack("<II", _NO_RUNS, n), *(struct.pack("<HH", *head) for head in self._heads)]
        for container in self._containers:
            parts.append(struct.pack("<I", at))
            at += len(container)
        return b"".join([*parts, *self._containers])


def decode(data: bytes) -> Ranges:
    """Read a bitmap as ranges, so that a few bytes of runs never become millions of numbers.

    Raises FilterFormatError where lengths or order contradict each other.
    """
    try:
        found, at = _decode(data, 0)
        _check_end(data, at)
        return found
    except (struct.error, ValueError, IndexError) as error:
        raise FilterFormatError(f"{len(data)} bytes are no Roaring bitmap: {error}") from error


def decode_64(data: bytes) -> Ranges:
    """Read a bitmap of 64 bits as ranges below 2^63.

    Raises FilterFormatError as `decode`.
    """
    try:
        (n,) = struct.unpack_from("<Q", data)
        at, last, found = 8, -1, [np.empty((0, 2), np.int64)]
        for _ in range(n):  # a number that is too large meets the end of the data
            (high,) = struct.unpack_from("<I", data, at)
            if not last < high < 1 << 31:
                raise ValueError(f"its bitmap {high} is not in order, or beyond 63 bits")
            ranges, at = _decode(data, at + 4)
            found.append(ranges + (high << 32))
            last = high
        _check_end(data, at)
        return _joined(np.concatenate(found))
    except (struct.error, ValueError, IndexError) as error:
        raise FilterFormatError(f"{len(data)} bytes are no Roaring bitmap of 64 bits: {error}") from error


def _check_end(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError(f"its containers end at {at}")


def _decode(data: bytes, start: int) -> tuple[Ranges, int]:
    """The bitmap that begins at a place, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, start)
    at, flags = start + 4, b""
    if cookie == _NO_RUNS:
        (n,) = struct.unpack_from("<I", data, at)
        at += 4
    elif cookie & 0xFFFF == _RUNS:
        n = (cookie >> 16) + 1
        flags = data[at : at + (n + 7) // 8]
        at += len(flags)
    else:
        raise ValueError(f"it begins with {cookie}")
    if n > _SPAN or at + 4 * n > len(data):
        raise ValueError(f"it has no room for {n} containers")
    heads = np.frombuffer(data, "<u2", 2 * n, at).reshape(n, 2).astype(np.int64)
    if np.any(np.diff(heads[:, 0]) <= 0):
        raise ValueError("its containers are not in order")
    at += 4 * n
    if cookie == _NO_RUNS or n >= _OFFSETS_FROM:
        at += 4 * n
    found = []
    for i, (key, less) in enumerate(heads.tolist()):
        is_run = bool(flags) and bool(flags[i >> 3] >> (i & 7) & 1)
        ranges, at = _container(data, at, less + 1, is_run)
        found.append(ranges + key * _SPAN)
    return (_joined(np.concatenate(found)) if found else np.empty((0, 2), np.int64)), at


def _container(data: bytes, at: int, cardinality: int, is_run: bool) -> tuple[Ranges, int]:
    if is_run:
        (n,) = struct.unpack_from("<H", data, at)
        runs = np.frombuffer(data, "<u2", 2 * n, at + 2).reshape(n, 2).astype(np.int64)
        ranges = np.stack([runs[:, 0], runs[:, 0] + runs[:, 1] + 1], axis=1)
        if np.any(ranges[:, 1] > _SPAN) or np.any(ranges[1:, 0] < ranges[:-1, 1]):
            raise ValueError("its runs are not in order")
        return ranges, at + 2 + 4 * n
    if cardinality <= _MOST_IN_ARRAY:
        low = np.frombuffer(data, "<u2", cardinality, at).astype(np.int64)
        if np.any(np.diff(low) <= 0):
            raise ValueError("its members are not in order")
        return np.stack([low, low + 1], axis=1), at + 2 * cardinality
    bits = np.unpackbits(np.frombuffer(data, np.uint8, _SPAN // 8, at), bitorder="little")
    if int(bits.sum()) != cardinality:
        raise ValueError(f"a container of {cardinality} members has {int(bits.sum())} bits")
    edges = np.flatnonzero(np.diff(np.concatenate(([0], bits, [0])).astype(np.int8)))
    return edges.reshape(-1, 2).astype(np.int64), at + _SPAN // 8


def _joined(ranges: Ranges) -> Ranges:
    """Ranges that touch become one."""
    if not len(ranges):
        return ranges
    apart = ranges[1:, 0] > ranges[:-1, 1]
    starts = ranges[np.concatenate(([True], apart)), 0]
    stops = ranges[np.concatenate((apart, [True])), 1]
    return np.stack([starts, stops], axis=1)


def count_within(ranges: Ranges, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the members in each [start, stop): int64[n]."""
    before = np.concatenate(([0], np.cumsum(ranges[:, 1] - ranges[:, 0])))

    def below(at: NDArray[np.int64]) -> NDArray[np.int64]:
        i = np.searchsorted(ranges[:, 0], at, "right")
        last = np.maximum(i - 1, 0)
        part: NDArray[np.int64] = before[i]
        if len(ranges):
            part = part - np.where(i > 0, np.maximum(ranges[last, 1] - at, 0), 0)
        return part

    return below(stops) - below(starts)


def contains(ranges: Ranges, members: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say of each number whether it is a member: bool[n], exact."""
    if not len(ranges):
        return np.zeros(len(members), bool)
    i = np.searchsorted(ranges[:, 0], members, "right") - 1
    found: NDArray[np.bool_] = (i >= 0) & (members < ranges[np.maximum(i, 0), 1])
    return found
