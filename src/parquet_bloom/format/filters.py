"""A split block Bloom filter as a value, read from its bytes, of whatever form it is.

    at bloom_filter_offset:  | header | bitset: n_blocks x 32 bytes |

A form decides the header's bytes, and the rule by which a value becomes a hash and a hash becomes a block
(format.forms has those that are written). A header that does not say its rule leaves several candidates; a value is
absent only if all of them say so.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import FilterFormatError, UnknownFilterError
from parquet_bloom.format import final, parquet_41
from parquet_bloom.format.final import Candidate, Header, Rule
from parquet_bloom.kernels import split_block
from parquet_bloom.kernels.hashes import hash_array

HEADER_BYTES = 64  # no known header is longer
_FINAL_UNIONS = final.header(32)[2:]  # what follows numBytes, to the end


def recognise(data: bytes, total: int | None = None) -> Header:
    """Read the header at the start of data, of whatever form it is.

    data   the first bytes at bloom_filter_offset, HEADER_BYTES of them where the file has so many
    total  bytes of header and bitset if something other than the header tells them

    Raises UnknownFilterError for a kind we do not know (no evidence), FilterFormatError for bytes
    that are damaged or no filter.
    """
    if not data:
        raise FilterFormatError("there are no bytes at the filter's offset")
    if data[0] == 0x15:  # compact Thrift: field 1, i32
        # numBytes takes one to five bytes after the first, so the unions begin at byte 2 to 6.
        end = data.find(_FINAL_UNIONS, 2, 6 + len(_FINAL_UNIONS))
        if end > 0:
            return _of_thrift(bytes(data[: end + len(_FINAL_UNIONS)]))
    if data[0] == 0x15 or data[:2] == b"\x05\x02":  # compact Thrift: field 1, i32; the long form names the id
        return parquet_41.read_thrift(data)
    return parquet_41.read_raw(data, total)


@lru_cache(maxsize=256)
def _of_thrift(header: bytes) -> Header:
    """Most headers are those of `final`, of some power of two of bytes: each is read once."""
    return parquet_41.read_thrift(header)


def believe(header: Header, rule: Rule | None) -> Header:
    """Keep only the candidates that follow a rule in the file's own metadata, if there are any."""
    if rule is None or (len(header.candidates) == 1 and header.candidates[0].rule == rule):
        return header
    kept = tuple(c for c in header.candidates if c.rule == rule)
    return Header(header.spec, header.num_bytes, kept, header.crc) if kept else header


@dataclass(frozen=True, slots=True)
class BloomFilter:
    """A whole filter in memory: blocks, uint32[n_blocks, 8], under each rule it may follow."""

    header: Header
    readings: tuple[tuple[Rule, split_block.Blocks], ...]

    @property
    def spec(self) -> str:
        """The name of its form."""
        return self.header.spec

    @property
    def blocks(self) -> split_block.Blocks:
        """The bitset under the likeliest rule, which is the first."""
        return self.readings[0][1]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules that its bits may follow, the likeliest first."""
        return tuple(rule for rule, _ in self.readings)

    @property
    def num_bytes(self) -> int:
        """Bytes of the bitset."""
        return self.blocks.nbytes

    @property
    def hash_functions(self) -> int:
        """0: no hash function ranges over the whole bitset, since a value sets bits in one block only."""
        return 0

    @property
    def bits_set(self) -> int:
        """How many of the bits are set."""
        return split_block.bits_set(self.blocks)

    @property
    def fpp(self) -> float:
        """Exact false positive rate for random absent values."""
        return split_block.exact_rate(self.blocks)

    @property
    def estimated_ndv(self) -> float:
        """Distinct values, from the share of bits set."""
        return split_block.estimated_ndv(self.blocks)

    @property
    def rotten(self) -> str | None:
        """The difference between the header's checksum and the bitset's; None where they agree or there is none."""
        if self.header.crc is None:
            return None
        stored_crc, computed_crc = self.header.crc & 0xFFFFFFFF, zlib.crc32(self.blocks.tobytes())
        return None if stored_crc == computed_crc else f"crc is {stored_crc:08x}, the bitset's is {computed_crc:08x}"

    def might_contain(self, plain: bytes) -> bool:
        """Probe one value by its PLAIN bytes: True is "perhaps", False is "certainly not"."""
        return any(_probe(rule, blocks, plain) for rule, blocks in self.readings)

    def might_contain_array(self, values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
        """Probe each value of an Arrow array that is not null, of the column's physical type."""
        answers = [
            split_block.contains_hashes(blocks, hash_array(values, rule.hash, rule.seed), rule.index)
            for rule, blocks in self.readings
        ]
        admitted: NDArray[np.bool_] = np.logical_or.reduce(answers)
        return admitted

    def might_contain_hashed(self, values: pa.Array, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The same of values whose XXH64 with seed 0 is known, as uint64[n] without nulls."""
        if [(rule.hash, rule.seed) for rule, _ in self.readings] == [("xxh64", 0)]:
            ((rule, blocks),) = self.readings
            return split_block.contains_hashes(blocks, hashes, rule.index)
        return self.might_contain_array(values)


def _probe(rule: Rule, blocks: split_block.Blocks, plain: bytes) -> bool:
    h = rule.hash_value(plain)
    return split_block.block_contains(blocks[split_block.block_index(h, len(blocks), rule.index)].tobytes(), h)


def decode_filter(data: bytes, total: int | None = None, rule: Rule | None = None) -> BloomFilter:
    """Decode header and bitset from their bytes.

    Raises as `recognise`, and FilterFormatError where the bitset is cut off.
    """
    return filter_in(data, believe(recognise(data[:HEADER_BYTES], total), rule))


def filter_in(data: bytes, header: Header) -> BloomFilter:
    """Take the bitset behind a header, which is at the start of data. Raises FilterFormatError where it is cut off."""
    readings = []
    # Only the likeliest reading must fit. Another one that would end past the data is left out.
    for candidate in header.candidates:
        end = candidate.bits_at + header.num_bytes
        if end <= len(data):
            readings.append((candidate.rule, split_block.from_bytes(data[candidate.bits_at : end])))
    if header.total > len(data):
        raise FilterFormatError(f"the filter takes {header.total} bytes, but only {len(data)} are there")
    return BloomFilter(header, tuple(readings))


__all__ = [
    "HEADER_BYTES",
    "BloomFilter",
    "Candidate",
    "FilterFormatError",
    "Header",
    "Rule",
    "UnknownFilterError",
    "believe",
    "decode_filter",
    "filter_in",
    "recognise",
]
