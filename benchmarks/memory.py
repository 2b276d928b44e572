"""How much memory the commands take, by threads and by the size of row groups.

    python benchmarks/memory.py [--folder /tmp/parquet-bloom-bench] [--megabytes 400]

Files of one random int64 column and one of 100-byte strings, zstd, in row groups of 10 and of 100 MB (uncompressed).
Every command is a process of its own and tells its own peak (VmHWM); what Python, pyarrow and numba take without any
work is the first line. Prints MiB above that, and what one more thread costs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PEAK = """
import sys
from parquet_bloom.cli import run
import parquet_bloom.kernels.native, pyarrow.parquet, pyarrow.dataset
assert run(sys.argv[1:]) in (0, 1)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
"""
ROW = 108  # bytes


def peak(*arguments: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    return int(done.stderr.split()[-1]) / 1024


def make(path: Path, megabytes: int, group_megabytes: int) -> None:
    random = np.random.default_rng(group_megabytes)
    rows = group_megabytes * 10**6 // ROW
    schema = pa.schema({"key": pa.int64(), "text": pa.string()})
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for _ in range(megabytes // group_megabytes):
            keys = random.integers(0, 2**62, rows)
            text = [f"{key:0100x}" for key in keys.tolist()]
            writer.write_table(pa.table({"key": keys, "text": text}, schema=schema), row_group_size=rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench"))
    parser.add_argument("--megabytes", type=int, default=400)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    nothing = peak("--version")
    print(f"nothing to do: {nothing:,.0f} MiB; the others are above that")
    target = str(given.folder / "memory-out.parquet")
    for group in (10, 100):
        path = given.folder / f"memory-{group}.parquet"
        make(path, given.megabytes, group)
        for column in ("key", "text"):
            found = {
                threads: peak("add", str(path), "-c", column, "-o", target, "--overwrite", "--threads", str(threads))
                for threads in (1, 2, 4, 8)
            }
            told = ", ".join(f"{value - nothing:,.0f}" for value in found.values())
            each = (found[8] - found[1]) / 7
            print(f"add, {column}, row groups of {group} MB, 1, 2, 4, 8 threads: {told} MiB; {each:,.0f} a thread more")
        print(f"verify, text, row groups of {group} MB: {peak('verify', target) - nothing:,.0f} MiB")
        print(f"inspect: {peak('inspect', target) - nothing:,.0f} MiB")
        print(f"check: {peak('check', target, 'key = 5') - nothing:,.0f} MiB")
        print(f"read, nothing skipped: {peak('read', target, '--where', 'key > 0', '--limit', '1') - nothing:,.0f} MiB")
    for path in given.folder.glob("memory-*.parquet"):
        path.unlink()


if __name__ == "__main__":
    main()
