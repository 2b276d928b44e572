"""How fast `add` is: against pyarrow reading and writing the file, and against the limit.

    python benchmarks/add.py [--rows 10000000] [--folder /tmp/parquet-bloom-bench] [--runs 5]

One file: ROWS rows, 10 columns, 10 row groups, zstd, one int64 key column of random values. All of
these do the same job, the key column with filters in a new file, fsync included unless it says
otherwise, and take turns in one run, so that the machine's mood hits them alike:

    add              parquet_bloom.add_filters
    add, no sync     the same with sync=False
    pyarrow          read_table and write_table with bloom_filter_options (its file's fsync left out)
    limit            copying the file by copy_file_range and fsync, beside decoding the column

and as whole processes, kernels cached: `parquet-bloom add` against a script that does what pyarrow
does above, with the peak memory of each. Prints ratios first; quote those.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

# Each child tells its own peak: what the system reports of a child begins with its parent's size.
PEAK = """
import sys
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1], file=sys.stderr)
"""
PEER = """
import pyarrow.parquet as pq, sys
source, target, group = sys.argv[1], sys.argv[2], int(sys.argv[3])
pq.write_table(pq.read_table(source), target, compression="zstd", row_group_size=group,
               bloom_filter_options={"key": {"ndv": group, "fpp": 0.01}})
"""
OURS = """
import sys
from parquet_bloom.cli import run
assert run(["add", sys.argv[1], "-c", "key", "-o", sys.argv[2]]) == 0
"""


def make(path: Path, rows: int) -> None:
    rng = np.random.default_rng(1)
    group = rows // 10
    writer = None
    for _ in range(10):
        columns: dict[str, object] = {"key": rng.integers(-(2**63), 2**63 - 1, group)}
        columns |= {f"number{i}": rng.integers(0, 1_000_000, group) for i in range(3)}
        columns |= {f"measure{i}": np.round(rng.normal(size=group), 4) for i in range(3)}
        columns["user"] = np.char.add("user", rng.integers(0, 100_000, group).astype("U6"))
        columns["kind"] = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, group)]
        columns["at"] = np.sort(rng.integers(int(1.70e15), int(1.71e15), group))
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd", use_dictionary=["user", "kind"])
        writer.write_table(table)
    assert writer is not None
    writer.close()


def limit(source: Path, target: Path, groups: int) -> None:
    """What cannot be avoided: the bytes have to be copied and synced, the column has to be decoded."""

    def copy() -> None:
        size, at = source.stat().st_size, 0
        a, b = os.open(source, os.O_RDONLY), os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        while at < size:
            at += os.copy_file_range(a, b, min(64 << 20, size - at), at, at)
        os.fsync(b)
        os.close(a)
        os.close(b)

    copier = threading.Thread(target=copy)
    copier.start()
    file = pq.ParquetFile(source)
    for i in range(groups):
        file.read_row_group(i, columns=["key"], use_threads=False)
    copier.join()


def in_process(source: Path, folder: Path, rows: int, runs: int) -> dict[str, list[float]]:
    from parquet_bloom import add_filters

    target = folder / "out.parquet"

    def add(sync: bool) -> Callable[[], object]:
        return lambda: add_filters(source, target, columns=["key"], sync=sync)

    def pyarrow_way() -> None:
        options = {"key": {"ndv": rows // 10, "fpp": 0.01}}
        pq.write_table(
            pq.read_table(source), target, compression="zstd", row_group_size=rows // 10, bloom_filter_options=options
        )

    ways: dict[str, Callable[[], object]] = {
        "add": add(True),
        "add, no sync": add(False),
        "limit": lambda: limit(source, target, 10),
        "pyarrow": pyarrow_way,
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs + 1):
        # Each way comes after each other one: what a predecessor left in the caches is nobody's luck.
        order = [*ways][run % len(ways) :] + [*ways][: run % len(ways)]
        if run % 2:
            order.reverse()
        for name in order:
            way = ways[name]
            target.unlink(missing_ok=True)
            os.sync()
            start = time.perf_counter()
            way()
            if run:  # the first round compiles and warms the cache
                times[name].append(time.perf_counter() - start)
    target.unlink(missing_ok=True)
    return times


def whole_processes(source: Path, folder: Path, rows: int, runs: int) -> dict[str, tuple[list[float], int]]:
    """Seconds of each run, and the largest peak in KiB."""
    target = folder / "out.parquet"
    scripts = {"parquet-bloom add": OURS, "pyarrow script": PEER}
    results: dict[str, tuple[list[float], int]] = {name: ([], 0) for name in scripts}
    for run in range(runs + 1):
        for name, script in scripts.items():
            target.unlink(missing_ok=True)
            os.sync()
            command = [sys.executable, "-c", script + PEAK, str(source), str(target), str(rows // 10)]
            start = time.perf_counter()
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True)
            seconds = time.perf_counter() - start
            times, peak = results[name]
            results[name] = ([*times, seconds] if run else times, max(peak, int(done.stderr.split()[-1])))
    target.unlink(missing_ok=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench"))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    source = options.folder / f"source-{options.rows}.parquet"
    if not source.exists():
        make(source, options.rows)
    whole = whole_processes(source, options.folder, options.rows, options.runs)
    times = in_process(source, options.folder, options.rows, options.runs)
    median = {name: statistics.median(values) for name, values in times.items()}
    whole_median = {name: statistics.median(values) for name, (values, _) in whole.items()}
    ours, theirs = whole["parquet-bloom add"][1], whole["pyarrow script"][1]
    size = f"{source.stat().st_size:,} bytes, {options.rows:,} rows"
    print(f"{source}: {size}; medians of {options.runs} runs, {os.cpu_count()} processors")
    print(f"in process       pyarrow / add           {median['pyarrow'] / median['add']:6.2f}")
    print(f"in process       pyarrow / add, no sync  {median['pyarrow'] / median['add, no sync']:6.2f}")
    print(f"in process       add / limit             {median['add'] / median['limit']:6.2f}")
    whole_ratio = whole_median["pyarrow script"] / whole_median["parquet-bloom add"]
    print(f"whole process    pyarrow / add           {whole_ratio:6.2f}")
    print(f"peak memory      add / pyarrow           {ours / theirs:6.3f}   ({ours // 1024} MiB, {theirs // 1024} MiB)")
    seconds = {name: [round(v, 3) for v in values] for name, values in times.items()}
    seconds |= {name: [round(v, 3) for v in values] for name, (values, _) in whole.items()}
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
