"""The protocol of a form of filter: how it is built, its placements, and its description in a file.

Two implementations: `split_block` (today's format and the drafts of 2018) and `k_probe` (the draft of 2015).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.format.footer import ChunkKey, Footer
from parquet_bloom.format.schema import Leaf
from parquet_bloom.kernels import split_block
from parquet_bloom.options import Placement
from parquet_bloom.records import dataclass

Rate = float | Literal["auto"]  # a false positive rate, or whatever lets a reader read least
Batches = Callable[[], Iterable[pa.Array]]  # a column chunk's stored values, from the start each time it is called
BATCH_ROWS = 1 << 16  # of a batch: values, hashes and a filter of ordinary size then share the processor's cache
USELESS_FPP = 0.5  # a filter that admits more than half of all absent values is not written


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large a filter may be.

    fpp        target rate
    ndv        first guess of distinct values
    max_bytes  limit of the bitset
    in_vain    bytes that an error makes a reader read. With it there is no target: the filter has the size at which
               its own bytes and those that its errors cost are least together
    """

    fpp: float = 0.01
    ndv: int | None = None
    max_bytes: int = split_block.MAX_BYTES
    in_vain: int | None = None

    def size_for(self, ndv: int) -> int:
        """Bytes of a split block filter of so many distinct values, a power of two."""
        if self.in_vain is None:
            return split_block.size_for(ndv, self.fpp, self.max_bytes)
        return split_block.least_size(ndv, self.in_vain, self.max_bytes)

    def is_reached(self, num_bytes: int, rate: float, ndv: float) -> bool:
        """Whether a filter of this size and rate, of some ndv distinct values, is large enough."""
        return rate <= self.fpp if self.in_vain is None else num_bytes >= self.size_for(max(1, round(0.9 * ndv)))

    def may_fold(self, num_bytes: int, rate: float, folded_rate: float) -> bool:
        """Whether half of such a filter, which has another rate, does as well."""
        if self.in_vain is None:
            return folded_rate <= self.fpp
        return num_bytes // 2 + folded_rate * self.in_vain <= num_bytes + rate * self.in_vain


@dataclass(frozen=True, slots=True)
class BuiltFilter:
    """A filter, or the reason why there is none.

    data    header and bitset, as they go into the file; None without a filter
    texts   of `statistics`: the key-values of the column chunk, and data is empty
    fpp     its exact false positive rate
    reached whether the fpp is within the target; not so where max_bytes was in the way
    """

    data: bytes | None
    reason: str = ""
    fpp: float = 0.0
    num_bytes: int = 0
    estimated_ndv: float = 0.0
    reached: bool = True
    texts: tuple[tuple[str, str], ...] = ()


class Format(Protocol):
    """One form of filter."""

    @property
    def name(self) -> str:
        """As options.FormName has it."""

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The places in the body for its filters, the default first; none where they lie in the footer."""

    @property
    def writes_length(self) -> bool:
        """Whether the footer has bloom_filter_length; the drafts of 2018 know no such field."""

    @property
    def breaks(self) -> str:
        """Engines that fail on a file with such filters, measured; "" for none."""

    @property
    def fpp(self) -> float:
        """The default false positive rate."""

    @property
    def max_bytes(self) -> int:
        """The most a bitset may take."""

    @property
    def described(self) -> Mapping[str, Any]:
        """How values become bits, as a file's provenance has it."""

    def refusal(self, leaf: Leaf) -> str | None:
        """Why it has no filter for such a column; None where it has."""

    def chunk_refusal(self, footer: Footer, key: ChunkKey) -> str | None:
        """Why this chunk's part of the footer takes no filter of it; None where it does."""

    def most_bytes(self, n_values: int, sizing: Sizing) -> int:
        """The bytes that a filter of so many values takes at most, in the file, with its header."""

    def build(self, batches: Batches, leaf: Leaf, n_values: int, sizing: Sizing) -> BuiltFilter:
        """Build a filter from the values of one column chunk, of which there are n_values at most."""

    def is_smallest(self, leaf: Leaf, n_values: int, sizing: Sizing) -> bool:
        """Whether `build_smallest` can build the filter of so few values."""

    def build_smallest(self, arrays: Sequence[tuple[int, pa.Array]], sizing: Sizing) -> dict[int, BuiltFilter]:
        """Build the filters of several chunks of a few values each together, as `build` would.

        arrays   chunk, some of its values; all of a chunk's follow each other
        returns  chunk -> filter; those that need another size, or have no value, are not among them
        """


# --- a filter that answers ------------------------------------------------------------------------
#
# What a filter is to those who read one, once its bytes are in memory.
#
# Two implementations: `format.filters.BloomFilter` (split blocks, from the file's body) and
# `format.draft_2015.KProbeFilter` (the draft of 2015, from the footer).


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
