"""`final`: the filter of parquet-format today, a bare BloomFilterHeader and the bitset.

1024 bytes:  15 80 10 | 1c 1c 00 00 | 1c 1c 00 00 | 1c 1c 00 00 | 00 | 1024 bytes
             numBytes   BLOCK         XXHASH        UNCOMPRESSED  stop

Source: parquet-format BloomFilter.md and parquet.thrift; vector bloom_filter.xxhash.bin.
"""

from __future__ import annotations

from functools import lru_cache

from parquet_bloom._thrift.parquet import ttypes
from parquet_bloom.formats.rules import Rule
from parquet_bloom.formats.thrift import compact

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
