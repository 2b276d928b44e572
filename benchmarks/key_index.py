"""A key index against `check` without one, and DuckDB, in one run: python benchmarks/key_index.py [FILES] [FOLDER]

With --many MILLIONS it locates 100,000 keys among so many million, in 100 row groups a million. With --merge MILLIONS
it merges two segments that have so many entries together. With --simulated ROW_GROUPS it writes an index of so many, 10
a file and 10 keys in each, of which two files are there, and prints what a lookup takes and the memory of its process.

Makes FILES local files of 10 row groups and 1,000 rows each (kept in FOLDER for the next run), random INT64 ids without
filters and with them, builds an index, and asks for one key at a time. Prints medians and ratios; sizes are exact.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom
from parquet_bloom.filters.content import Content
from parquet_bloom.format.statistics import ColumnStatistics
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.keys.entries import Packing, sorted_once, write_part
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.keys.listing import ListedFile, write_listing
from parquet_bloom.keys.manifest import SegmentColumn, bits_of, from_json, partition_bits_of, place_bits_of, to_json
from parquet_bloom.keys.update import _merge as merged_segment

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


def merge(base: Path, millions: int) -> None:
    """Merge two segments of one million entries a file each; the data are made anew."""
    shutil.rmtree(base, ignore_errors=True)
    (base / "data").mkdir(parents=True)
    rng = np.random.default_rng(4)
    paths = [base / "data" / f"{number:03}.parquet" for number in range(millions)]
    for path in paths:
        table = pa.table({"id": rng.integers(0, 1 << 62, 1_000_000)})
        pq.write_table(table, path, row_group_size=10_000, use_dictionary=False, compression="none")
    halves = [[str(path) for path in paths[: millions // 2]], [str(path) for path in paths[millions // 2 :]]]
    for name, half in zip(("index", "other"), halves, strict=True):
        parquet_bloom.build_index(half, "id", base / name, root=base / "data")
    first, second = (from_json((base / name / "manifest.json").read_bytes(), base) for name in ("index", "other"))
    shutil.copytree(base / "other", base / "index", dirs_exist_ok=True)
    whole = replace(first, segments=(*first.segments, *second.segments))
    (base / "index/manifest.json").write_bytes(to_json(whole))
    index, out = KeyIndex(base / "index"), base / "merged"
    took = []
    for _ in range(3):
        begun = time.process_time()
        merged = merged_segment(index, index.manifest.segments, str(out))
        took.append(time.process_time() - begun)
    entries = merged.columns[0].entries
    rate = entries / min(took) / 1e6
    print(f"{entries:,} entries of two segments merged, {rate:.1f} million a second of processor time")
    shutil.rmtree(base)


# --- an index without its data --------------------------------------------------------------------


def simulate(base: Path, row_groups: int) -> int:
    """Write an index of files that are not there, but for the first and the one of a key, which is returned."""
    keys_of_group, groups_of_file = 10, 10
    files = row_groups // groups_of_file
    shutil.rmtree(base, ignore_errors=True)
    (base / "data").mkdir(parents=True)
    (base / "template").mkdir()
    ids = np.random.default_rng(5).integers(0, 1 << 62, row_groups * keys_of_group)
    own = keys_of_group * groups_of_file
    for number in (0, files // 2):
        table = pa.table({"id": ids[number * own : (number + 1) * own]})
        for folder in ("data", "template"):
            path = base / folder / f"{number:06}.parquet"
            pq.write_table(table, path, row_group_size=keys_of_group, use_dictionary=False)
    parquet_bloom.build_index(base / "template", "id", base / "index")
    manifest = from_json((base / "index/manifest.json").read_bytes(), base)
    [segment] = manifest.segments
    leaf = segment.schemas[0].leaves[0]
    lower, upper = (f(ids.reshape(row_groups, keys_of_group), axis=1) for f in (np.min, np.max))
    flags = np.ones(groups_of_file, bool)
    listed = []
    for number in range(files):
        part = slice(number * groups_of_file, (number + 1) * groups_of_file)
        known = ColumnStatistics(~flags, flags, flags, lower[part], upper[part], flags, flags)
        rows = np.full(groups_of_file, keys_of_group)
        token = {
            "device": 1,
            "inode": number + 7,
            "size": 1000,
            "mtime_ns": 10**18 + number,
            "ctime_ns": 10**18 + number,
        }
        content = Content(rows.tolist(), [number] * groups_of_file, token)
        listed.append(ListedFile(f"{number:06}.parquet", 0, rows, {0: rows}, {0: known}, {0: content}))
    listing = write_listing(str(base / "index" / segment.listing_name), listed, {0: leaf})
    bits = bits_of(len(ids), row_groups, 0.05)
    packing = Packing(bits, place_bits_of(row_groups), partition_bits_of(len(ids), bits))
    hashes = hash_array(pa.array(ids))
    places = np.arange(len(ids), dtype=np.uint64) // np.uint64(keys_of_group)
    packed = (hashes >> np.uint64(64 - bits) << np.uint64(packing.place_bits)) | places
    packed.sort()
    cuts = packing.cuts(packed)
    parts = tuple(
        write_part(str(base / "index" / segment.part_name(0, at)), packed[start:stop], packing)
        for at, (start, stop) in enumerate(pairwise(cuts))
    )
    column = SegmentColumn(0, bits, packing.partition_bits, parts)
    new = replace(segment, files=files, places=row_groups, rows=len(ids), listing=listing, columns=(column,))
    whole = replace(manifest, root=str(base / "data"), segments=(new,))
    (base / "index/manifest.json").write_bytes(to_json(whole))
    return int(ids[files // 2 * own + 57])


def rss() -> float:
    """MB of this process's memory."""
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def look_up(base: Path, key: int) -> None:
    """Look a key up in an index, warm; in a process of its own."""
    for number in (0, 1):  # what a process that asks has loaded
        pq.ParquetFile(next((base / "data").iterdir())).read()
        parquet_bloom.check(base / "template", f"id = {key + number}", index=base / "small")
        parquet_bloom.read_table(base / "template", f"id = {key + number}", index=base / "small")
        parquet_bloom.locate(base / "template", "id", [key], base / "small")
    before = rss()
    source, index = base / "data", base / "index"
    calls: dict[str, Callable[[], Any]] = {
        "check": lambda: parquet_bloom.check(source, f"id = {key}", index=index, listing=False),
        "read_table": lambda: parquet_bloom.read_table(source, f"id = {key}", index=index, listing=False),
        "locate": lambda: parquet_bloom.locate(source, "id", [key], index, listing=False),
    }
    begun = time.process_time()
    calls["check"]()
    print(f"the first question {1000 * (time.process_time() - begun):.0f} ms of processor time")
    for name, call in calls.items():
        took = processor(call)
        print(f"{name:11} {took:7.1f} ms, warm; {rss() - before:.0f} MB above a process that asked a small index")


def processor(work: Callable[[], object], turns: int = TURNS) -> float:
    """Milliseconds of processor time of a call, warm: the median of some."""
    work()
    took = []
    for _ in range(turns):
        begun = time.process_time()
        work()
        took.append(time.process_time() - begun)
    return 1000 * statistics.median(took)


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
    if sys.argv[1:2] == ["--merge"]:
        merge(Path("/tmp/parquet-bloom-key-index-merge"), int(sys.argv[2]) if len(sys.argv) > 2 else 20)
        return
    if sys.argv[1:2] == ["--simulated"]:
        row_groups = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
        base = Path(f"/tmp/parquet-bloom-key-index-simulated-{row_groups}")
        key = simulate(base, row_groups)
        parquet_bloom.build_index(base / "template", "id", base / "small")
        subprocess.run([sys.executable, __file__, "--asked", str(base), str(key)], check=True)
        shutil.rmtree(base)
        return
    if sys.argv[1:2] == ["--asked"]:
        look_up(Path(sys.argv[2]), int(sys.argv[3]))
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
