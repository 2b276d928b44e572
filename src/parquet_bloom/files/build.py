"""One filter from one column chunk: decode, hash, insert, fold to the size the data needs.

The first allocation is for as many distinct values as the chunk has values (or --ndv says); it is
folded while the exact rate stays within the target, so the size comes from the data and no count
of distinct values is needed. Too small an allocation is built again, twice as large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.files.decode import BATCH_ROWS, ColumnReader
from parquet_bloom.formats import final
from parquet_bloom.formats.filters import Format
from parquet_bloom.formats.footer import Footer
from parquet_bloom.formats.rules import Rule
from parquet_bloom.formats.schema import Leaf
from parquet_bloom.formats.values import twins
from parquet_bloom.kernels import split_block
from parquet_bloom.kernels.hashes import hash_array

USELESS_RATE = 0.5  # a filter that admits more than half of all absent values is not written


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large a filter may be: target rate, first guess of distinct values, limit in bytes."""

    fpp: float = 0.01
    ndv: int | None = None
    max_bytes: int = split_block.MAX_BYTES


@dataclass(frozen=True, slots=True)
class Built:
    """A filter, or the reason why there is none.

    data    header and bitset, as they go into the file; None without a filter
    rate    its exact false positive rate
    reached whether the rate is within the target; not so where max_bytes was in the way
    """

    data: bytes | None
    reason: str = ""
    rate: float = 0.0
    num_bytes: int = 0
    estimated_ndv: float = 0.0
    reached: bool = True


def stored_hashes(
    values: pa.Array, leaf: Leaf, rule: Rule, scratch: NDArray[np.uint64] | None = None
) -> Iterable[NDArray[np.uint64]]:
    """Hash the values of a batch that are not null, then the twins of its zeros and NaNs.

    scratch  uint64[n] that each result may lie in until the next is asked for
    """
    yield hash_array(values, rule.hash, rule.seed, scratch)
    if leaf.float_bits:
        values = values.drop_null()
        if leaf.float_bits == 16:
            floats = np.frombuffer(values.buffers()[1], np.float16)[values.offset : values.offset + len(values)]
        else:
            floats = values.to_numpy(zero_copy_only=False)
        plain = twins(floats)
        if leaf.float_bits == 16 and rule == final.RULE:
            # DuckDB 2.0 asks a FLOAT16 filter for the four bytes of a FLOAT and so loses rows that
            # other writers' filters deny; with both spellings in, it finds them.
            wide = floats.astype(np.float32)
            yield hash_array(pa.array(wide), rule.hash, rule.seed)
            plain += twins(wide)
        if plain:
            yield np.array([rule.hash_value(p) for p in plain], np.uint64)


def fill(
    batches: Callable[[], Iterable[pa.Array]], leaf: Leaf, rule: Rule, sizing: Sizing, n_values: int
) -> tuple[split_block.Blocks | None, float]:
    """Build the smallest power of two of bytes whose exact rate is within the target.

    batches   gives the column's values from the start each time it is called
    n_values  at least as many as there are values that are not null
    returns   blocks, uint32[n_blocks, 8], and their rate; no blocks where there is no value
    """
    scratch = np.empty(BATCH_ROWS, np.uint64)
    num_bytes = split_block.size_for(sizing.ndv or n_values, sizing.fpp, sizing.max_bytes)
    while True:
        blocks = split_block.empty(num_bytes)
        found = 0
        for values in batches():
            for hashes in stored_hashes(values, leaf, rule, scratch):
                split_block.insert_hashes(blocks, hashes, rule.index)
                found += len(hashes)
        if not found:
            return None, 0.0
        rate = split_block.exact_rate(blocks)
        if rate <= sizing.fpp or 2 * num_bytes > sizing.max_bytes:
            break
        num_bytes *= 2
    while blocks.nbytes > split_block.MIN_BYTES:
        folded = split_block.fold(blocks, rule.index)
        folded_rate = split_block.exact_rate(folded)
        if folded_rate > sizing.fpp:
            break
        blocks, rate = folded, folded_rate
    return blocks, rate


def build(reader: ColumnReader, footer: Footer, row_group: int, form: Format, sizing: Sizing) -> Built:
    """Build the filter of one column chunk. Raises DamagedFileError where the chunk does not decode."""
    leaf = reader.leaf
    meta = footer.meta(row_group, leaf.index)

    spellings = 2 if leaf.float_bits == 16 else 1
    blocks, rate = fill(lambda: reader.batches(row_group), leaf, form.rule, sizing, max(1, meta.num_values) * spellings)
    if blocks is None:
        return Built(None, "no value is stored")
    if rate > USELESS_RATE:
        shown = f"{blocks.nbytes} bytes reach a false positive rate of {rate:.0%} only"
        return Built(None, f"{shown}: give --max-bytes more", rate)
    estimate = split_block.estimated_ndv(blocks)
    data = b"".join((form.header(blocks.nbytes), blocks.data.cast("B")))
    return Built(data, "", rate, blocks.nbytes, estimate, rate <= sizing.fpp)
