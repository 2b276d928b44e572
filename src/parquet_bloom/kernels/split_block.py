"""The split block Bloom filter: insert, probe, fold, size, and its exact false positive rate.

A filter is z blocks of 32 bytes; a hash belongs to one of them and sets a bit in each of its eight words
(kernels.block has the picture). With n distinct values a block holds Poisson(n / z) of them, and after i
insertions a bit of a word is still clear with probability (31/32)^i. So the rate to expect is

    fpp = sum over i of Poisson(i; n / z) * (1 - (31/32)^i)^8        (expected_rate)

Blocks fill unevenly, so that is more than a classic filter of this size gives: 1 % takes 10.5 bits a value,
not 9.6; 10 %, 0.1 % and 0.01 % take 6.0, 16.9 and 26.3. Sizes are powers of two, because these fold: OR of
two neighbouring blocks is what inserting into half as many gives. `size_for` takes the smallest that keeps
the rate, here in bytes and (bits a value):

          ndv             fpp 0.1            fpp 0.01           fpp 0.001          fpp 0.0001
        1,000         1,024 (8.2)        2,048 (16.4)        4,096 (32.8)        4,096 (32.8)
       10,000         8,192 (6.6)       16,384 (13.1)       32,768 (26.2)       65,536 (52.4)
      100,000      131,072 (10.5)      262,144 (21.0)      262,144 (21.0)      524,288 (41.9)
    1,000,000     1,048,576 (8.4)    2,097,152 (16.8)    4,194,304 (33.6)    4,194,304 (33.6)
   10,000,000     8,388,608 (6.7)   16,777,216 (13.4)   33,554,432 (26.8)   33,554,432 (26.8)

The rate of a filter that is there is no estimate: the mean over blocks of the product over their words of
bits set / 32 (exact_rate).

Sources: parquet-format BloomFilter.md; Apple, "Split block Bloom filters", arXiv:2101.01719, sections 2-3.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FilterShapeError
from parquet_bloom.kernels import block
from parquet_bloom.kernels.block import BLOCK_BYTES as BLOCK_BYTES
from parquet_bloom.kernels.block import IndexRule as IndexRule
from parquet_bloom.kernels.block import block_contains as block_contains
from parquet_bloom.kernels.block import block_index as block_index
from parquet_bloom.kernels.hashes import compiled, loop

Blocks = NDArray[np.uint32]

_PRODUCT_BITS = 40  # 32^8 = 2^40: the product of a block's eight counts of bits, each up to 32
MIN_BYTES = 64  # Impala misreads filters of one block
MAX_BYTES = 1 << 27  # Arrow C++ and parquet-java refuse larger ones


def empty(num_bytes: int) -> Blocks:
    """Make a filter that holds nothing: uint32[num_bytes / 32, 8], all zero."""
    if num_bytes <= 0 or num_bytes % BLOCK_BYTES:
        raise FilterShapeError(f"a filter of {num_bytes} bytes is not a positive multiple of {BLOCK_BYTES}")
    return np.zeros((num_bytes // BLOCK_BYTES, 8), np.uint32)


def from_bytes(data: bytes | memoryview) -> Blocks:
    """View a bitset as it lies in the file as uint32[n_blocks, 8], little-endian, read-only."""
    if not len(data) or len(data) % BLOCK_BYTES:
        raise FilterShapeError(f"a bitset of {len(data)} bytes is not a positive multiple of {BLOCK_BYTES}")
    return np.frombuffer(data, "<u4").reshape(-1, 8)


def _words(blocks: Blocks, rule: IndexRule) -> NDArray[np.uint32]:
    """Flatten blocks for the kernels, after the checks without which they would touch foreign memory."""
    if blocks.ndim != 2 or blocks.shape[1] != 8 or not 1 <= blocks.shape[0] <= 1 << 32:
        raise FilterShapeError(f"blocks of shape {blocks.shape} are not uint32[n_blocks >= 1, 8]")
    if blocks.dtype != np.uint32 or not blocks.flags.c_contiguous:
        raise FilterShapeError(f"blocks of {blocks.dtype} are not contiguous uint32[n_blocks, 8]")
    if rule == "mask" and blocks.shape[0] & (blocks.shape[0] - 1):
        raise FilterShapeError(f"{blocks.shape[0]} blocks are not a power of two, which mask indexing needs")
    return blocks.reshape(-1)


def insert_hashes(blocks: Blocks, hashes: NDArray[np.uint64], rule: IndexRule = "multiply-shift") -> None:
    """Insert hashes, uint64[n], into blocks, uint32[n_blocks, 8], in place."""
    words = _words(blocks, rule)
    if not words.flags.writeable:
        raise FilterShapeError("these blocks are a view of bytes that cannot be written; copy them first")
    name = "insert_mask" if rule == "mask" else "insert_multiply_shift"
    if not compiled(block.INSERT_NS * len(hashes)):
        block.insert(words, hashes, rule)
        return
    loop(name)(words, np.ascontiguousarray(hashes, np.uint64))


def build_each(
    num_bytes: int, counts: NDArray[np.int64], hashes: NDArray[np.uint64], rule: IndexRule
) -> NDArray[np.uint32]:
    """Build many small filters at once, as inserting into each of them would.

    num_bytes  of each, a power of two
    counts     int64[n]: how many of the hashes go into each
    hashes     uint64[sum of counts], in that order
    returns    uint32[n, n_blocks, 8]
    """
    if num_bytes < BLOCK_BYTES or num_bytes & (num_bytes - 1):
        raise FilterShapeError(f"a filter of {num_bytes} bytes is not a power of two, {BLOCK_BYTES} at least")
    if (counts < 0).any() or counts.sum() != len(hashes):
        raise FilterShapeError(f"{len(hashes)} hashes are not those of filters of {counts.sum()}")
    blocks = np.zeros((len(counts), num_bytes // BLOCK_BYTES, 8), np.uint32)
    if not len(counts):
        return blocks
    if not compiled(block.INSERT_NS * len(hashes)):
        block.insert_each(blocks.reshape(-1), counts, hashes, rule)
        return blocks
    run = loop("insert_each")
    run(blocks.reshape(-1), np.ascontiguousarray(counts), np.ascontiguousarray(hashes), rule == "mask")
    return blocks


def contains_hashes(
    blocks: Blocks, hashes: NDArray[np.uint64], rule: IndexRule = "multiply-shift"
) -> NDArray[np.bool_]:
    """Say which hashes may have been inserted: True is "perhaps", False is "certainly not".

    blocks   uint32[n_blocks, 8], words as they lie in the file, little-endian
    hashes   uint64[n], of each value's PLAIN bytes
    returns  bool[n]

    Raises FilterShapeError unless n_blocks >= 1 and there are 8 words: bytes read at a wrong
    offset must stop here, because any answer drawn from them could hide rows.
    Source: parquet-format BloomFilter.md, "filter_check"; proven by tests/kernels/test_split_block.py.
    """
    words = _words(blocks, rule)
    out = np.empty(len(hashes), np.bool_)
    name = "contains_mask" if rule == "mask" else "contains_multiply_shift"
    if not compiled(block.CONTAINS_NS * len(hashes)):
        block.contains(words, hashes, rule, out)
        return out
    loop(name)(words, np.ascontiguousarray(hashes, np.uint64), out)
    return out


def fold(blocks: Blocks, rule: IndexRule = "multiply-shift") -> Blocks:
    """Halve a filter of an even number of blocks; the result is what building at that size gives.

    Multiply-shift of a power of two takes the upper bits, so neighbours 2j and 2j+1 become one;
    mask takes the lower bits, so j and j + z/2 do.
    """
    _words(blocks, rule)
    half = blocks.shape[0] // 2
    if blocks.shape[0] != 2 * half:
        raise FilterShapeError(f"{blocks.shape[0]} blocks cannot be folded in two")
    if rule == "mask":
        return blocks[:half] | blocks[half:]
    return blocks[0::2] | blocks[1::2]


def rates_of_each(blocks: NDArray[np.uint32]) -> NDArray[np.float64]:
    """exact_rate of each of many filters, uint32[n, n_blocks, 8], of up to 4,096 blocks."""
    products = np.multiply.reduce(np.bitwise_count(blocks), axis=2, dtype=np.uint64)
    rates: NDArray[np.float64] = products.sum(axis=1) / float(blocks.shape[1] << _PRODUCT_BITS)
    return rates


_RATE_SLICE = 1 << 16  # blocks: their products, of _PRODUCT_BITS each, add up within 64 bits
_FEW = 256  # blocks, below which it is numpy's calls that take the time


def exact_rate(blocks: Blocks) -> float:
    """The probability that a random hash which was never inserted is admitted, 0.0 to 1.0.

    Exact for this very bitset: all sums are integers (a block's product is at most 2^40).
    """
    _words(blocks, "multiply-shift")
    if blocks.shape[0] <= _FEW:
        return float(rates_of_each(blocks[None])[0])
    total = 0
    for start in range(0, blocks.shape[0], _RATE_SLICE):
        counts = np.ascontiguousarray(np.bitwise_count(blocks[start : start + _RATE_SLICE]).T)
        product = counts[0].astype(np.uint64)
        for word in counts[1:]:
            product *= word
        total += int(product.sum())
    return total / (int(blocks.shape[0]) << _PRODUCT_BITS)


def bits_set(blocks: Blocks) -> int:
    """Count the bits that are set, of 256 * n_blocks."""
    return sum(
        int(np.bitwise_count(blocks[start : start + _RATE_SLICE]).sum(dtype=np.int64))
        for start in range(0, blocks.shape[0], _RATE_SLICE)
    )


def estimated_ndv(blocks: Blocks) -> float:
    """Estimate how many distinct hashes were inserted, from the share of bits that are set.

    One insertion leaves a given bit of its block clear with probability 31/32, and hits a block
    with probability 1/z, so the expected share of clear bits after n is (1 - 1/(32 z))^n.
    Infinite when every bit is set.
    """
    return ndv_of_bits(bits_set(blocks), blocks.shape[0])


@lru_cache(1024)
def ndv_of_bits(n_bits: int, n_blocks: int) -> float:
    """The same from how many bits are set in how many blocks."""
    clear = 1 - n_bits / (256 * n_blocks)
    if clear <= 0:
        return math.inf
    return math.log(clear) / math.log1p(-1 / (32 * n_blocks))


def expected_rate(ndv: float, num_bytes: int) -> float:
    """The false positive rate to expect of num_bytes holding ndv distinct values.

    Blocks fill unevenly: sum over i of Poisson(i; ndv / z) * (1 - (31/32)^i)^8. The usual formula
    for classic filters under-sizes (9.68 bits a value for 1 %, truly 10.5).
    """
    load = ndv * BLOCK_BYTES / num_bytes
    if load <= 0:
        return 0.0
    if load > 600:
        return 1.0  # every word is full: (1 - (31/32)^600)^8 > 0.9999999
    # `term` is Poisson(i), from that of i - 1. Twelve standard deviations and 40 more leave nothing out that counts.
    rate = 0.0
    term = math.exp(-load)
    for i in range(1, int(load + 12 * math.sqrt(load)) + 40):
        term *= load / i
        rate += term * (1 - (31 / 32) ** i) ** 8
    return min(rate, 1.0)


@lru_cache(maxsize=1 << 12)
def least_size(ndv: int, in_vain: int, max_bytes: int = MAX_BYTES) -> int:
    """The power of two of bytes, 64 to max_bytes, at which a filter and what is read for its errors are least.

    in_vain  bytes that are read where the filter admits an absent value, such as those of a row group
    A reader that asks for one absent value reads the filter, or keeps it, and at its rate `in_vain` bytes more.
    """
    best = size = MIN_BYTES
    least = MIN_BYTES + expected_rate(ndv, MIN_BYTES) * in_vain
    while size * 2 <= min(max_bytes, in_vain + MIN_BYTES):  # larger ones take more than they could spare
        size *= 2
        cost = size + expected_rate(ndv, size) * in_vain
        if cost < least:
            best, least = size, cost
    return best


@lru_cache(maxsize=1 << 12)
def size_for(ndv: int, fpp: float, max_bytes: int = MAX_BYTES) -> int:
    """The smallest power of two of bytes, 64 to max_bytes, expected to keep ndv values within fpp."""
    size = MIN_BYTES
    while size * 2 <= max_bytes and expected_rate(ndv, size) > fpp:
        size *= 2
    return size
