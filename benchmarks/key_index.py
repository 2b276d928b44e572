"""A key index against `check` without one, and DuckDB, in one run: python benchmarks/key_index.py [FILES] [FOLDER]

With --many MILLIONS it locates 100,000 keys among so many million, in 100 row groups a million.

Makes FILES local files of 10 row groups and 1,000 rows each (kept in FOLDER for the next run), random INT64 ids without
filters and with them, builds an index, and asks for one key at a time. Prints medians and ratios; sizes are exact.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.keys.entries import Packing, sorted_once, write_part
from parquet_bloom.keys.manifest import place_bits_of

TURNS = 7
KEYS = 1000  # that are located, half of them absent


def data(folder: Path, files: int) -> None:
    """Files with ids of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1)
    for i in range(files):
        path = folder / f"{i:06d}.parquet"
        ids = rng.integers(0, 1 << 62, 1000)
        if not path.exists():
            pq.write_table(pa.table({"id": ids}), path, row_group_size=100, use_dictionary=False)


def clock(work: Callable[[], object], turns: int = TURNS) -> float:
    """Milliseconds of a call, warm: the median of some."""
    work()
    took = []
    for _ in range(turns):
        begun = time.perf_counter()
        work()
        took.append(time.perf_counter() - begun)
    return 1000 * statistics.median(took)


def many(base: Path, millions: int) -> None:
    """Locate many keys in a large index, beside reading its two columns."""
    source, index = base / "data", base / "index"
    source.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    shutil.rmtree(index, ignore_errors=True)
    for i in range(millions):
        path = source / f"{i:04d}.parquet"
        ids = rng.integers(0, 1 << 62, 1_000_000)
        if not path.exists():
            pq.write_table(pa.table({"id": ids}), path, row_group_size=10_000, use_dictionary=False, compression="none")
    begun = time.perf_counter()
    report = parquet_bloom.build_index(source, "id", index)
    took = time.perf_counter() - begun
    [column] = report.columns
    print(
        f"{column.entries:,} entries, {report.row_groups:,} row groups: {column.bytes / column.entries:.2f} bytes each"
    )
    print(f"built in {took:.0f} s, {column.entries / took / 1e6:.1f} million a second")
    some = pq.read_table(source / "0000.parquet")["id"].to_numpy()
    keys = np.concatenate([rng.choice(some, 50_000, replace=False), rng.integers(0, 1 << 62, 50_000)])
    parts = sorted((index / "columns" / "0").iterdir())
    read = clock(lambda: [pq.read_table(path, use_threads=False) for path in parts], 3)
    located = clock(lambda: parquet_bloom.locate(source, "id", keys, index), 3)
    places = parquet_bloom.locate(source, "id", keys, index).num_rows
    print(
        f"{len(keys):,} keys in {located:.0f} ms: {places:,} places; both columns are read in {read:.0f} ms: "
        f"{located / read:.2f}"
    )


def everywhere(base: Path, row_groups: int) -> float:
    """Bits an entry of an index of ten values, each of which is in all row groups."""
    column = pa.array([f"value {n}" for n in range(10)])
    packing = Packing(24, place_bits_of(row_groups), 0)
    packed = [packing.pack(hash_array(column), place) for place in range(row_groups)]
    return 8 * write_part(str(base / "everywhere.parquet"), sorted_once(packed), packing).size / (10 * row_groups)


def main() -> None:
    """Build, ask, locate."""
    if sys.argv[1:2] == ["--many"]:
        millions = int(sys.argv[2]) if len(sys.argv) > 2 else 100
        many(Path(f"/tmp/parquet-bloom-key-index-{millions}-million"), millions)
        return
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    base = Path(sys.argv[2] if len(sys.argv) > 2 else f"/tmp/parquet-bloom-key-index-{files}")
    source, index = base / "data", base / "index"
    data(source, files)

    begun = time.process_time()
    report = parquet_bloom.build_index(source, "id", index, overwrite=True, threads=1)
    built = time.process_time() - begun
    begun = time.process_time()
    for path in sorted(source.iterdir()):
        hash_array(pq.ParquetFile(path).read(["id"], use_threads=False)["id"])
    decoded = time.process_time() - begun
    [column] = report.columns
    print(f"{files:,} files, {report.row_groups:,} row groups, {report.rows:,} rows")
    print(f"build {built:.2f} s of processor time, {built / decoded:.1f} x decoding and hashing with pyarrow")
    size = column.bytes / column.entries
    print(f"{size:.2f} bytes a key, {column.bits} bits, {column.false_places:.4f} false places")
    print(f"{everywhere(base, report.row_groups):.2f} bits an entry of ten values that are in all row groups")

    rng = np.random.default_rng(2)
    some = pq.read_table(source / f"{files // 2:06d}.parquet")["id"].to_pylist()
    key = some[500]
    listing = clock(lambda: sorted(os.scandir(source), key=lambda entry: entry.name))
    asked = clock(lambda: parquet_bloom.check(source, f"id = {key}", index=index))
    plain = clock(lambda: parquet_bloom.check(source, f"id = {key}"))
    engine = clock(lambda: duckdb.sql(f"SELECT count(*) FROM '{source}/*.parquet' WHERE id = {key}").fetchall())
    took = f"{asked:.1f} ms (listing {listing:.1f}), without {plain:.1f}, DuckDB {engine:.1f}"
    print(f"one key: check with the index {took}")
    print(f"         check / with index {plain / asked:.1f}, DuckDB / with index {engine / asked:.1f}")

    unlisted = clock(lambda: parquet_bloom.check(source, f"id = {key}", index=index, listing=False))
    print(f"without a listing: {unlisted:.1f} ms; {plain / unlisted:.1f}, DuckDB {engine / unlisted:.1f}")
    source_value = parquet_bloom.Source(source, index=str(index))
    pinned = clock(lambda: source_value.check(f"id = {key}"))
    print(f"of a Source, which lists once: {pinned:.1f} ms; {plain / pinned:.1f}, DuckDB {engine / pinned:.1f}")

    keys = np.concatenate([rng.choice(some, KEYS // 2), rng.integers(0, 1 << 62, KEYS // 2)])
    located = clock(lambda: parquet_bloom.locate(source, "id", keys, index))
    found = parquet_bloom.locate(source, "id", keys, index)
    right = parquet_bloom.locate(source, "id", keys, index, verify=True).num_rows
    false = found.num_rows - right
    print(f"{KEYS:,} keys located in {located:.1f} ms: {found.num_rows:,} places, {false} of them false")


if __name__ == "__main__":
    main()
