"""One block of a split block Bloom filter: where a hash belongs, and which bits it sets there.

    hash, 64 bits:   | upper half: which block | lower half, `key`: which bits |

    block, 32 bytes:
      word   |    0    |    1    |    2    |    3    |    4    |    5    |    6    |    7    |  uint32, little-endian
      bit       one of    one of    one of    one of    one of    one of    one of    one of
                  32        32        32        32        32        32        32        32
      in word i it is   (key * SALT[i] mod 2^32) >> 27

A hash is in the block if all eight of its bits are set: eight bits of 256, and one cache line to read.
Which of z blocks it belongs to is the one thing the filters' forms differ in (IndexRule):

    multiply-shift   (upper * z) >> 32     any z                the final form, zone indexes
    mask             upper & (z - 1)       z a power of two     the forms of 2018

Compiled code has the same in kernels.intrinsics, as instructions on vectors.
Source: parquet-format BloomFilter.md, "filter_check" and its eight salt constants.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.errors import FilterShapeError

IndexRule = Literal["multiply-shift", "mask"]

BLOCK_BYTES = 32
SALT = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
_SALTS = np.array(SALT, np.uint32)


def bit_of(key: Any, salt: Any) -> Any:
    """The bit of a word's 32 that a hash sets; of ints, and of arrays of uint32, whose product wraps by itself."""
    return (key * salt & 0xFFFFFFFF) >> 27


def _block(h: Any, z: Any, rule: IndexRule) -> Any:
    """The block of z that a hash belongs to; of ints, and of arrays of uint64."""
    return h >> 32 & (z - 1) if rule == "mask" else (h >> 32) * z >> 32


def masks(hashes: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """The bits that each hash sets in its block: uint64[n] -> uint32[n, 8], one bit in each word."""
    keys = hashes.astype(np.uint32)  # the lower halves
    bits: NDArray[np.uint32] = np.uint32(1) << bit_of(keys[:, None], _SALTS)
    return bits


def block_of(
    hashes: NDArray[np.uint64], n_blocks: int | NDArray[np.int64], rule: IndexRule = "multiply-shift"
) -> NDArray[np.int64]:
    """The block that each hash belongs to, 0 <= block < n_blocks: uint64[n] -> int64[n].

    n_blocks  1 to 2^32, of one filter or one for each hash; for mask indexing powers of two
    """
    found: NDArray[np.int64] = _block(hashes, np.asarray(n_blocks).astype(np.uint64), rule).astype(np.int64)
    return found


def block_index(h: int, n_blocks: int, rule: IndexRule) -> int:
    """The block that one hash belongs to, 0 <= index < n_blocks.

    Raises FilterShapeError for mask indexing of what is no power of two.
    """
    if rule == "mask" and n_blocks & (n_blocks - 1):
        raise FilterShapeError(f"{n_blocks} blocks are not a power of two, which mask indexing needs")
    return int(_block(h, n_blocks, rule))


def block_contains(block: bytes, h: int) -> bool:
    """Probe one block (32 bytes as they lie in the file): True is "perhaps", False is "certainly not"."""
    if len(block) != BLOCK_BYTES:
        raise FilterShapeError(f"a block has {BLOCK_BYTES} bytes, not {len(block)}")
    key = h & 0xFFFFFFFF
    for i, salt in enumerate(SALT):
        word = int.from_bytes(block[4 * i : 4 * i + 4], "little")
        if not word >> bit_of(key, salt) & 1:
            return False
    return True
