"""How fast the kernels are, on one core: against mmh3 and xxhash in a loop, copying, decoding, and by processor's name.

    python benchmarks/kernels.py [--values 4000000]
    python benchmarks/kernels.py --cpu rocketlake,sapphirerapids,skylake,haswell,generic
    python benchmarks/kernels.py --c     against the same loops in C (benchmarks/kernels.c), by this machine's cc

`insert from int64` hashes and inserts batches of 65,536 values as `add` does. Its limit is reading
the values once from memory, for which copying them stands in. Of text it is told what decoding, hashing and inserting
take of the three, PLAIN pages without compression: the least decoding there is.

With --cpu each name takes turns in processes of its own, in which LLVM takes the processor for that one
(NUMBA_CPU_NAME; what it can do stays, but for `generic`, which is SSE2); ratios are to the first name.
All rates are the best of several runs by processor time. Prints ratios and millions a second.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import parquet_bloom.kernels.native  # noqa: F401  (numba is loaded: its loops run)
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.kernels.split_block import contains_hashes, empty, insert_hashes
from parquet_bloom.storage.open_file import OpenFile

BATCH = 1 << 16
ROUNDS = 3  # of processes for each name


def rate(work: Callable[[], object], values: int, runs: int = 15) -> float:
    """Millions of values a second of processor time, the best run."""
    work()
    times = []
    for _ in range(runs):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return values / min(times) / 1e6


def texts(n: int) -> dict[str, pa.Array]:
    """Text of the lengths that ids and words have."""
    rng = np.random.default_rng(4)
    hexes = [rng.bytes(16).hex() for _ in range(n)]
    return {
        "user-0123456789abcdef, 21 bytes": pa.array([f"user-{h[:16]}" for h in hexes]),
        "trace ids, 32 bytes": pa.array(hexes),
        "UUIDs, 36 bytes": pa.array([f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}" for h in hexes]),
        "words, 1 to 30 bytes": pa.array([h[: 1 + i % 30] for h, i in zip(hexes, rng.integers(0, 30, n), strict=True)]),
        "addresses, 20 to 118 bytes": pa.array(
            ["https://example.org/" + rng.bytes(int(k)).hex() for k in rng.integers(0, 50, n)]
        ),
    }


def rates(n: int) -> dict[str, float]:
    """What depends on compiled code, in millions of values a second."""
    rng = np.random.default_rng(3)
    scratch = np.empty(BATCH, np.uint64)

    def batches(values: pa.Array) -> list[pa.Array]:
        return [values[i : i + BATCH] for i in range(0, len(values), BATCH)]

    numbers = batches(pa.array(rng.integers(-(2**63), 2**63 - 1, n)))
    several = {
        "int64": numbers,
        "int32": batches(pa.array(rng.integers(-(2**31), 2**31 - 1, n, dtype=np.int32))),
        "double": batches(pa.array(rng.random(n))),
    }
    found = {}
    for kind, parts in several.items():
        for name in ("xxh64", "murmur3"):
            found[f"{name} of {kind}"] = rate(lambda: [hash_array(b, name, 0, scratch) for b in parts], n)  # noqa: B023
    ids = batches(pa.array([f"user-{i:016x}" for i in rng.integers(0, 2**62, n // 10)]))
    found["xxh64 of 21-byte strings"] = rate(lambda: [hash_array(b, "xxh64", 0, scratch) for b in ids], n // 10)
    hashes = hash_array(pa.chunked_array(numbers))
    for kib in (256, 2048, 16384):
        blocks = empty(kib << 10)
        found[f"insert, {kib} KiB"] = rate(lambda: insert_hashes(blocks, hashes), n)  # noqa: B023
        found[f"insert from int64, {kib} KiB"] = rate(
            lambda: [insert_hashes(blocks, hash_array(b, "xxh64", 0, scratch)) for b in numbers],  # noqa: B023
            n,
        )
        found[f"probe, {kib} KiB"] = rate(lambda: contains_hashes(blocks, hashes), n)  # noqa: B023
    return found


def of_text(folder: Path, n: int) -> None:
    """What text costs, a value, from the file to the filter."""
    path = folder / "text.parquet"
    scratch, blocks = np.empty(BATCH, np.uint64), empty(2 << 20)
    for name, values in texts(n).items():
        pq.write_table(pa.table({"c": values}), path, compression="none", use_dictionary=False)
        with OpenFile(path) as source:
            reader = ColumnReader(source, source.footer().leaves[0])

            def every(work: Callable[[pa.Array], object], reader: ColumnReader = reader) -> float:
                return 1e3 / rate(lambda: [work(batch) for batch in reader.batches(0)], n, 7)

            decoding = every(lambda batch: None)
            hashing = every(lambda batch: hash_array(batch, "xxh64", 0, scratch))
            both = every(lambda batch: insert_hashes(blocks, hash_array(batch, "xxh64", 0, scratch)))
        parts = f"decode {decoding:5.1f} ns, hash {hashing - decoding:5.1f}, insert {both - hashing:5.1f}"
        print(f"{name:32} {parts}; hash / decode {(hashing - decoding) / decoding:4.2f}")


def by_name(names: list[str], n: int) -> None:
    """The same under several names of the processor, in turns."""
    best: dict[str, dict[str, float]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(ROUNDS):
            for name in names:
                environment = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CACHE_DIR": cache}
                command = [sys.executable, __file__, "--values", str(n), "--json"]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                for what, speed in json.loads(done.stdout).items():
                    best[name][what] = max(speed, best[name].get(what, 0))
    print(f"{'':30}{''.join(f'{name:>22}' for name in names)}")
    for what, first in best[names[0]].items():
        print(
            f"{what:30}" + "".join(f"{best[name][what]:10.0f} M/s  {best[name][what] / first:4.2f} x" for name in names)
        )


def against_c(n: int) -> None:
    """The same two loops by numba and in C, for any x86-64, for AVX2 and for this machine; the bits are equal."""
    values = pa.array(np.random.default_rng(3).integers(-(2**63), 2**63 - 1, n))
    hashes, blocks = hash_array(values), empty(128 << 10)
    insert_hashes(blocks, hashes)
    hashed = rate(lambda: hash_array(values), n)
    inserted = rate(lambda: insert_hashes(blocks, hashes), n)
    print(f"{'numba':32} hash {hashed:6.0f} M/s            insert {inserted:6.0f} M/s")
    for flags in ("-O3", "-O3 -march=x86-64-v3", "-O3 -march=native"):
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(__file__).with_suffix(".c"), Path(folder) / "kernels.so"
            subprocess.run(["cc", *flags.split(), "-shared", "-fPIC", source, "-o", library], check=True)
            loops = ctypes.CDLL(str(library))
        numbers, found = values.to_numpy().view(np.uint64), np.empty(n, np.uint64)
        words = np.zeros_like(blocks)
        size, at = ctypes.c_size_t(n), [ctypes.c_void_p(one.ctypes.data) for one in (numbers, found, words, hashes)]

        hash_c = rate(partial(loops.hash, at[0], at[1], size), n)
        insert_c = rate(partial(loops.insert, at[2], ctypes.c_uint64(len(blocks)), at[3], size), n)
        assert np.array_equal(found, hashes)
        assert np.array_equal(words, blocks)
        print(
            f"cc {flags:29} hash {hash_c:6.0f} M/s, numba {hashed / hash_c:4.2f} x; "
            f"insert {insert_c:6.0f} M/s, numba {inserted / insert_c:4.2f} x"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=4_000_000)
    parser.add_argument("--cpu", help="names of processors, with commas")
    parser.add_argument("--json", action="store_true", help="only what --cpu compares")
    parser.add_argument("--c", action="store_true", help="against the same loops in C")
    options = parser.parse_args()
    n = options.values
    if options.c:
        against_c(n)
        return
    if options.cpu:
        by_name(options.cpu.split(","), min(n, 1 << 20))
        return
    found = rates(n)
    if options.json:
        print(json.dumps(found))
        return
    plain = [v.tobytes() for v in np.random.default_rng(3).integers(0, 2**63, 100_000)]
    peers = {
        "xxh64": rate(lambda: [xxhash.xxh64_intdigest(p) for p in plain], len(plain)),
        "murmur3": rate(lambda: [mmh3.hash64(p, x64arch=True) for p in plain], len(plain)),
    }
    source, target = np.zeros(n, np.int64), np.empty(n, np.int64)
    copying = rate(lambda: np.copyto(target, source), n)
    for name, speed in peers.items():
        print(f"{name + ' by its library, in a loop':34} {speed:8.1f} M/s")
    print(f"{'copying int64':34} {copying:8.1f} M/s")
    for what, speed in found.items():
        against = (
            f"{speed / peers[what.split()[0]]:6.1f} x the loop"
            if " of " in what
            else f"{speed / copying:6.2f} of copying"
        )
        print(f"{what:34} {speed:8.1f} M/s {against}")
    with tempfile.TemporaryDirectory() as folder:
        of_text(Path(folder), max(n // 8, BATCH))


if __name__ == "__main__":
    main()
