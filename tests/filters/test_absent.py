"""The false positive rate that verify measures: over values that are not stored, in memory that does not grow."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from support.naive import xxh64

import parquet_bloom
from parquet_bloom.filters.verify import LEAST, MOST, AbsentValues
from parquet_bloom.format.filters import BloomFilter, Candidate, Header
from parquet_bloom.format.final import RULE
from parquet_bloom.format.schema import BYTE_ARRAY, FLBA, INT64, Leaf
from parquet_bloom.kernels import split_block


def filter_of(hashes: list[int], num_bytes: int = 64) -> BloomFilter:
    blocks = split_block.empty(num_bytes)
    split_block.insert_hashes(blocks, np.array(hashes, np.uint64))
    return BloomFilter(Header("final", num_bytes, (Candidate(RULE, 16),)), ((RULE, blocks),))


def drop(absent: AbsentValues, bloom: BloomFilter, hashes: list[int]) -> None:
    stored = np.array(hashes, np.uint64)
    absent.drop(stored, split_block.contains_hashes(bloom.blocks, stored))


def test_stored_values_of_short_types_are_dropped() -> None:
    """Of one byte there are 256 values, so every one is drawn, and many times."""
    hashes = [xxh64(bytes([i])) for i in range(256)]
    stored = hashes[:64]
    for bloom in (filter_of([], 1 << 15), filter_of(stored, 1 << 15)):
        absent = AbsentValues(Leaf(0, ("x",), FLBA, 1), bloom)
        assert absent.count == MOST
        drop(absent, bloom, stored)
        assert 0.73 * MOST < absent.count < 0.77 * MOST, "a quarter of all single bytes is stored"
        assert absent.fpp == 0, "what the filter admits is stored"
        drop(absent, bloom, hashes)
        assert (absent.count, absent.fpp) == (0, None)


def test_a_full_filter_admits_all() -> None:
    bloom = BloomFilter(Header("final", 64, ()), ((RULE, np.full((2, 8), 2**32 - 1, np.uint32)),))
    absent = AbsentValues(Leaf(0, ("x",), FLBA, 2), bloom)
    drop(absent, bloom, [xxh64(i.to_bytes(2, "little")) for i in range(65536)])
    assert absent.count == 0
    assert AbsentValues(Leaf(0, ("x",), INT64), bloom).fpp == 1


def test_a_value_for_each_bit() -> None:
    for num_bytes, count in ((64, LEAST), (1024, 8192), (1 << 20, MOST)):
        assert AbsentValues(Leaf(0, ("x",), BYTE_ARRAY), filter_of([], num_bytes)).count == count


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    peaks = []
    for n in (500_000, 1_600_000):
        path = tmp_path / f"{n}.parquet"
        pq.write_table(pa.table({"x": np.arange(n, dtype=np.int32)}), path, row_group_size=n, use_dictionary=False)
        parquet_bloom.add_filters(path, in_place=True, columns=["x"], sync=False, max_bytes=1 << 20)
        parquet_bloom.verify(path)  # kernels are loaded
        tracemalloc.start()
        (verdict,) = parquet_bloom.verify(path).files[0].filters
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (verdict.status, verdict.values) == ("right", n)
    assert peaks[1] < 1.2 * peaks[0], "nothing is kept of the stored values"
