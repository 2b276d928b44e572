"""What a filter is to those who read one, once its bytes are in memory.

Two implementations: `formats.filters.BloomFilter` (split blocks, from the file's body) and
`formats.draft_2015.KProbeFilter` (the draft of 2015, from the footer).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class Filter(Protocol):
    """A whole filter, under every rule that it may follow: absent is only what all of these say is absent."""

    @property
    def spec(self) -> str:
        """The name of its form."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the bitset."""

    @property
    def hash_functions(self) -> int:
        """Positions that a value takes in the whole bitset; 0 where the form has blocks."""

    @property
    def bits_set(self) -> int:
        """How many of the bits are set, of 8 * num_bytes."""

    @property
    def fpp(self) -> float:
        """False positive rate for random absent values, by the bits."""

    @property
    def estimated_ndv(self) -> float:
        """Distinct values, from the share of bits set."""

    def might_contain(self, plain: bytes) -> bool:
        """Probe one value by its PLAIN bytes: True is "perhaps", False is "certainly not"."""

    def might_contain_array(self, values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
        """Probe each value of an Arrow array that is not null: PLAIN values, or binary of their bytes."""

    def might_contain_hashed(self, values: pa.Array, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The same of values whose XXH64 with seed 0 is known, as uint64[n] without nulls; most forms want no other."""
