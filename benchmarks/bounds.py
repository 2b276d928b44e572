"""Work that must not grow out of bounds: verify of many rows and many columns, add on many row groups.

    python benchmarks/bounds.py [--rows 50000000] [--columns 10000] [--row-groups 100000]

verify against decoding the same column, and its peak memory for a quarter of the rows and for all; seconds for the
others, which are compared between versions: run it with PYTHONPATH set to either's src, in turns, as

    PYTHONPATH=OLD/src python benchmarks/bounds.py --rows 0 --columns 3

Decoding goes by modules of our own, which older versions have not: with --rows 0 it is left out.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

PART = 5_000_000  # rows of a row group


def many_rows(path: Path, rows: int) -> Path:
    rng = np.random.default_rng(rows)
    with pq.ParquetWriter(path, pa.schema([("id", pa.int64())]), use_dictionary=False, compression="zstd") as writer:
        for start in range(0, rows, PART):
            n = min(PART, rows - start)
            writer.write_table(pa.table({"id": rng.integers(0, 2**62, n)}), row_group_size=n)
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    return path


def many_columns(path: Path, columns: int) -> Path:
    rng = np.random.default_rng(1)
    pq.write_table(pa.table({f"c{i}": rng.integers(0, 2**62, 3) for i in range(columns)}), path, use_dictionary=False)
    parquet_bloom.add_filters(path, in_place=True, columns=["*"], sync=False)
    return path


def many_row_groups(path: Path, groups: int) -> Path:
    table = pa.table({"id": np.random.default_rng(2).integers(0, 2**62, groups)})
    pq.write_table(table, path, row_group_size=1, use_dictionary=False)
    return path


def decode(path: Path) -> None:
    from parquet_bloom.filters.decode import ColumnReader
    from parquet_bloom.storage.open_file import OpenFile

    with OpenFile(path) as source:
        reader = ColumnReader(source, source.footer().leaves[0])
        for group in range(source.footer().n_row_groups):
            for _ in reader.batches(group):
                pass


def best(work, runs: int) -> tuple[float, float]:
    """Seconds by the clock and of the processor, the best of some runs."""
    clocks, processors = [], []
    for _ in range(runs):
        clock, processor = time.perf_counter(), time.process_time()
        work()
        clocks.append(time.perf_counter() - clock)
        processors.append(time.process_time() - processor)
    return min(clocks), min(processors)


def peak(path: Path) -> int:
    """Megabytes that verify takes at most, in a process of its own."""
    code = "import sys, resource, parquet_bloom; parquet_bloom.verify(sys.argv[1])"
    code += "; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)"
    return int(subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, check=True).stdout)


def compare_rows(folder: Path, n_rows: int, runs: int) -> None:
    """verify against decoding."""
    rows = many_rows(folder / "rows.parquet", n_rows)
    parquet_bloom.verify(rows, sample=1)  # kernels are loaded
    decoding, verifying = (
        best(lambda: decode(rows), runs),
        best(lambda: parquet_bloom.verify(rows), runs),
    )
    print(f"verify of {n_rows:,} rows: {verifying[0]:.2f} s, of the processor {verifying[1]:.2f}")
    print(f"  / decoding them: {verifying[0] / decoding[0]:.2f}, of the processor {verifying[1] / decoding[1]:.2f}")
    some = many_rows(folder / "some.parquet", max(1, n_rows // 4))
    print(f"  peak memory, a quarter of them and all: {peak(some)} and {peak(rows)} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000_000)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--row-groups", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.rows:
            compare_rows(folder, asked.rows, asked.runs)
        columns = many_columns(folder / "columns.parquet", asked.columns)
        clock, processor = best(lambda: parquet_bloom.verify(columns), 1)
        print(f"verify of {asked.columns:,} columns: {clock:.1f} s, of the processor {processor:.1f}")
        groups = many_row_groups(folder / "groups.parquet", asked.row_groups)
        out = folder / "out.parquet"
        clock, processor = best(lambda: parquet_bloom.add_filters(groups, out, columns=["id"], sync=False), 1)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"add on {asked.row_groups:,} row groups: {clock:.1f} s, of the processor {processor:.1f}; {memory} MiB")


if __name__ == "__main__":
    main()
