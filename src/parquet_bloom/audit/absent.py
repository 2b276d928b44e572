"""Random values that a column chunk does not hold, and how many of them its filter admits.

They are drawn before the chunk is decoded, and those that turn up in it are dropped as they pass. So nothing
is kept of the chunk's own values, however many there are. A drawn value that is stored is one that the filter
admits, or the filter is wrong: only stored values that it denies, and those that look like one of the few
drawn values it admits, have to be looked up. Of eight random bytes or more it is not even these: that one of
100,000 is among a thousand million stored values has a chance below 1 in 100,000.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.formats.forms.filter import Filter
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, Leaf
from parquet_bloom.kernels import split_block
from parquet_bloom.kernels.hashes import hash_array

LEAST, MOST = 1 << 12, 100_000
_BYTES_LONG = 16  # of a random BYTE_ARRAY
_SIEVE_RATE = 0.0005
_CERTAIN = 8  # bytes, of values that are too many to be drawn and stored by chance


class AbsentValues:
    """Values of one column's physical type, of which those that are stored are dropped."""

    def __init__(self, leaf: Leaf, bloom: Filter) -> None:
        """Draw values: one for each bit of the filter, but 4,096 at least and 100,000 at most.

        The rate of a small filter is known well enough from few, and a file may have ten thousand of these.
        """
        width = None if leaf.physical == BYTE_ARRAY else leaf.width
        drawn, self._hashes, self._order = _draw(width, min(MOST, max(LEAST, 8 * bloom.num_bytes)))
        self._admitted = bloom.might_contain_array(drawn)[self._order]
        self._stored = np.zeros(len(drawn), bool)
        self._certain = width is None or width >= _CERTAIN
        few = self._hashes[self._admitted]
        self._sieve = split_block.empty(split_block.size_for(len(few), _SIEVE_RATE))
        split_block.insert_hashes(self._sieve, few)

    def drop(self, stored: NDArray[np.uint64], admitted: NDArray[np.bool_]) -> None:
        """Drop what is stored.

        stored    uint64[n], XXH64 with seed 0 of some of the stored values
        admitted  bool[n], which of these the filter admits
        """
        if self._certain:
            return
        near = split_block.contains_hashes(self._sieve, stored)
        np.logical_or(near, ~admitted, out=near)
        found = stored[near]
        if len(found):
            first, last = (np.searchsorted(self._hashes, found, side) for side in ("left", "right"))
            known = first < last
            for start, stop in set(zip(first[known].tolist(), last[known].tolist(), strict=True)):
                self._stored[start:stop] = True  # a type of few values gives some of them many times

    @property
    def count(self) -> int:
        """How many values are left. None of them is stored, if `drop` was called with all that is."""
        return int(len(self._stored) - np.count_nonzero(self._stored))

    @property
    def fpp(self) -> float | None:
        """The share of these that the filter admits; None where none is left."""
        return float(np.count_nonzero(self._admitted & ~self._stored) / self.count) if self.count else None


@lru_cache(maxsize=4)
def _draw(width: int | None, count: int) -> tuple[pa.Array, NDArray[np.uint64], NDArray[np.intp]]:
    """Random values of some bytes (None: BYTE_ARRAY), the XXH64 of all, sorted, and the order that sorts them."""
    data = np.random.default_rng(count).bytes((width or _BYTES_LONG) * count)
    if width is None:
        offsets = np.arange(0, len(data) + 1, _BYTES_LONG, dtype=np.int32)
        values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)])
    else:
        values = pa.Array.from_buffers(pa.binary(width), count, [None, pa.py_buffer(data)])
    hashes = hash_array(values)
    order = np.argsort(hashes)
    return values, hashes[order], order
