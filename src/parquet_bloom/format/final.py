"""`final`: the filter of parquet-format today, a bare BloomFilterHeader and the bitset; and the rules of its bits.

1024 bytes:  15 80 10 | 1c 1c 00 00 | 1c 1c 00 00 | 1c 1c 00 00 | 00 | 1024 bytes
             numBytes   BLOCK         XXHASH        UNCOMPRESSED  stop

Source: parquet-format BloomFilter.md and parquet.thrift; vector bloom_filter.xxhash.bin.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import mmh3
import xxhash

from parquet_bloom._thrift.parquet import ttypes
from parquet_bloom.format import compact
from parquet_bloom.kernels.hashes import HashName
from parquet_bloom.kernels.split_block import IndexRule

# --- how values are hashed ------------------------------------------------------------------------
#
# What a filter's header tells: its size, and the rules its bits may follow.


@dataclass(frozen=True, slots=True)
class Rule:
    """How a value becomes a hash, and a hash a block."""

    hash: HashName
    seed: int
    index: IndexRule

    def hash_value(self, plain: bytes) -> int:
        """Hash the PLAIN bytes of one value to 64 bits, unsigned."""
        if self.hash == "xxh64":
            return int(xxhash.xxh64_intdigest(plain, seed=self.seed))
        return int(mmh3.hash64(plain, seed=self.seed, x64arch=True, signed=False)[0])

    def __str__(self) -> str:
        return f"{self.hash} seed {self.seed} {self.index}"


class Candidate(NamedTuple):
    """One reading of an ambiguous header: the rule, and where the bitset starts after the offset."""

    rule: Rule
    bits_at: int


class Header(NamedTuple):
    """A recognised header; num_bytes is the bitset's, candidates come likeliest first."""

    spec: str
    num_bytes: int
    candidates: tuple[Candidate, ...]
    crc: int | None = None  # of the bitset, zlib.crc32, signed; only a page header has one

    @property
    def size(self) -> int:
        """Bytes of the header under its likeliest reading."""
        return self.candidates[0].bits_at

    @property
    def total(self) -> int:
        """Bytes of header and bitset under the likeliest reading."""
        return self.size + self.num_bytes


# --- headers --------------------------------------------------------------------------------------

RULE = Rule("xxh64", 0, "multiply-shift")


@lru_cache(maxsize=256)
def header(num_bytes: int) -> bytes:
    """Write the header of a bitset of num_bytes."""
    return compact.encode(
        ttypes.BloomFilterHeader(
            numBytes=num_bytes,
            algorithm=ttypes.BloomFilterAlgorithm(BLOCK=ttypes.SplitBlockAlgorithm()),
            hash=ttypes.BloomFilterHash(XXHASH=ttypes.XxHash()),
            compression=ttypes.BloomFilterCompression(UNCOMPRESSED=ttypes.Uncompressed()),
        )
    )


def num_bytes_for(total: int) -> int | None:
    """The one power of two of bitset bytes for which header and bitset take `total` bytes.

    It lets a reader ask for the header and one block at once, knowing only bloom_filter_length;
    the header must then be, byte for byte, `header(num_bytes)`. None if there is no such size.
    """
    if not 32 <= total < 1 << 31:  # numBytes is an i32
        return None
    num_bytes = 1 << (total.bit_length() - 1)
    return num_bytes if len(header(num_bytes)) + num_bytes == total else None
