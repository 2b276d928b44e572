"""What Guava's BloomFilter.writeTo writes, for filters of the family guava.

    | strategy | k | count of longs, int32 BE | longs, int64 BE |        a byte each for the first two

Source: Guava's BloomFilter.java; fixtures/vectors/guava_vectors.json.
"""

from __future__ import annotations

import struct

import numpy as np

from parquet_bloom._thrift.parquet_statistics import ttypes
from parquet_bloom.errors import FilterFormatError, RequestError
from parquet_bloom.formats.draft_2015 import KProbeFilter, strategy_of
from parquet_bloom.kernels.k_probe import Kind, KProbeRule


def encode_guava(bloom: KProbeFilter) -> bytes:
    """What BloomFilter.writeTo writes: strategy and k, a byte each, count of longs (int32 BE), longs BE."""
    rule = bloom.rules[0]
    if len(bloom.rules) != 1 or rule.family != "guava":
        held = ", ".join(dict.fromkeys(r.family for r in bloom.rules))
        raise RequestError(f"a filter of hash family {held} means nothing to Guava")
    strategy = ttypes.BloomFilterStrategy._NAMES_TO_VALUES[rule.strategy]
    if bloom.k > 255:
        raise RequestError(f"Guava knows no filter of {bloom.k} hash functions")
    return struct.pack(">BBi", strategy, bloom.k, len(bloom.longs)) + bloom.longs.astype(">u8").tobytes()


def decode_guava(data: bytes, kind: Kind = "bytes") -> KProbeFilter:
    """Read what Guava's BloomFilter.writeTo wrote, by a funnel that gives the hasher the PLAIN bytes alone.

    longFunnel is that of INT64, integerFunnel of INT32, byteArrayFunnel and stringFunnel(UTF_8) of
    BYTE_ARRAY. Raises FilterFormatError.
    """
    if len(data) < 6:
        raise FilterFormatError(f"{len(data)} bytes are too short for a filter of Guava's")
    ordinal, k, count = struct.unpack_from(">BBi", data)
    strategy = strategy_of(ordinal)
    if count < 1 or len(data) != 6 + 8 * count or not k:
        raise FilterFormatError(f"{k} hash functions and {count} longs are announced, {len(data) - 6} bytes follow")
    longs = np.frombuffer(data, ">u8", offset=6).astype(np.uint64)
    return KProbeFilter(longs, k, (KProbeRule("guava", strategy, kind),))
