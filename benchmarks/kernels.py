"""How fast the kernels are, on one core: against mmh3 and xxhash in a loop, and against copying.

    python benchmarks/kernels.py [--values 4000000]

`insert from int64` hashes and inserts batches of 65,536 values as `add` does. Its limit is reading
the values once from memory, for which copying them stands in. Prints ratios and millions a second.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import mmh3
import numpy as np
import pyarrow as pa
import xxhash

import parquet_bloom.kernels.native  # noqa: F401  (numba is loaded: its loops run)
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.kernels.split_block import contains_hashes, empty, insert_hashes

BATCH = 1 << 16


def rate(work: Callable[[], object], values: int, runs: int = 7) -> float:
    """Median millions of values a second."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return values / statistics.median(times) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=4_000_000)
    n = parser.parse_args().values
    rng = np.random.default_rng(3)
    numbers = pa.array(rng.integers(-(2**63), 2**63 - 1, n))
    batches = [numbers[i : i + BATCH] for i in range(0, n, BATCH)]
    hashes = hash_array(numbers)
    texts = pa.array([f"user-{i:016x}" for i in rng.integers(0, 2**62, n // 10)])
    plain = [int(v).to_bytes(8, "little", signed=True) for v in numbers[:100_000].to_pylist()]
    target, scratch = np.empty(n, np.int64), np.empty(BATCH, np.uint64)
    source = numbers.to_numpy()

    loop = rate(lambda: [xxhash.xxh64_intdigest(p) for p in plain], len(plain))
    loop3 = rate(lambda: [mmh3.hash64(p, x64arch=True) for p in plain], len(plain))
    print(f"xxhash in a loop                {loop:8.1f} M/s")
    print(f"mmh3 in a loop                  {loop3:8.1f} M/s")
    for name, peer in (("xxh64", loop), ("murmur3", loop3)):
        speed = rate(lambda name=name: [hash_array(b, name, 0, scratch) for b in batches], n)  # type: ignore[misc]
        print(f"{name + ' of int64':<30}  {speed:8.1f} M/s   {speed / peer:6.1f} x the loop")
    speed = rate(lambda: hash_array(texts), len(texts))
    print(f"xxh64 of 21-byte strings        {speed:8.1f} M/s   {speed / loop:6.1f} x the loop")
    copying = rate(lambda: np.copyto(target, source), n)
    for kib in (256, 1024, 2048, 16384):
        blocks = empty(kib << 10)
        inserting = rate(lambda b=blocks: [insert_hashes(b, hash_array(a, "xxh64", 0, scratch)) for a in batches], n)  # type: ignore[misc]
        probing = rate(lambda b=blocks: contains_hashes(b, hashes), n)  # type: ignore[misc]
        share = inserting / copying
        print(
            f"{kib:6} KiB  insert from int64   {inserting:8.1f} M/s   {share:6.2f} of copying; probe {probing:8.1f} M/s"
        )


if __name__ == "__main__":
    main()
