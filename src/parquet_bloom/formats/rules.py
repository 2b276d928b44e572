"""What a filter's header tells: its size, and the rules its bits may follow."""

from __future__ import annotations

from dataclasses import dataclass

import mmh3
import xxhash

from parquet_bloom.kernels.hashes import HashName
from parquet_bloom.kernels.split_block import IndexRule


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


@dataclass(frozen=True, slots=True)
class Candidate:
    """One reading of an ambiguous header: the rule, and where the bitset starts after the offset."""

    rule: Rule
    bits_at: int


@dataclass(frozen=True, slots=True)
class Header:
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
