"""How fast a zone index is built: against pylance's create_scalar_index, over the same 10,000,000 int64.

    python benchmarks/index.py [--rows 10000000] [--runs 5]

One Lance data set on the local disk; both read it, build, and write an index file, in turn, in one
process. pylance does not wait for the disk, so neither do we in the lines without "fsync". Prints
medians, the best of all runs (what a busy machine disturbs least), processor time, each as a ratio,
and whether the two indexes are equal.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
from pathlib import Path

import lance
import lance.file
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lance.indices import IndexConfig

from parquet_bloom.lance import build_index


def filters(path: str | Path) -> pa.Table:
    table = lance.file.LanceFileReader(str(path)).read_all().to_table()
    return table.replace_schema_metadata(None).combine_chunks()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        values = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, given.rows)
        table = pa.table({"id": values})
        dataset = lance.write_dataset(table, f"{folder}/d.lance")
        pq.write_table(table, f"{folder}/d.parquet", use_dictionary=False)
        names = ("pylance", "parquet-bloom", "parquet-bloom, fsync", "parquet-bloom, Parquet")
        walls: dict[str, list[float]] = {name: [] for name in names}
        cpus: dict[str, list[float]] = {name: [] for name in names}

        def build_theirs() -> None:
            config = IndexConfig("bloomfilter", {"number_of_items": 8192, "probability": 0.00057})
            dataset.create_scalar_index("id", config, name="id_idx", replace=True)

        fresh = (f"{folder}/{i}" for i in itertools.count())  # pylance too writes a new file each time

        def build_ours(sync: bool = False) -> None:
            built.append(build_index(f"{folder}/d.lance", ["id"], next(fresh), sync=sync).indexes[0].path)

        def build_parquet() -> None:
            build_index(f"{folder}/d.parquet", ["id"], next(fresh), sync=False)

        built: list[str] = []
        builds = (build_theirs, build_ours, lambda: build_ours(True), build_parquet)
        for run in range(given.runs + 1):  # the first compiles and fills caches
            turn = [*zip(names, builds, strict=True)]
            for name, build in turn[run % len(turn) :] + turn[: run % len(turn)]:
                wall, cpu = time.perf_counter(), time.process_time()
                build()
                if run:
                    walls[name].append(time.perf_counter() - wall)
                    cpus[name].append(time.process_time() - cpu)
        newest = max(Path(folder).glob("d.lance/_indices/*/bloomfilter.lance"), key=lambda p: p.stat().st_mtime)
        for name in names:
            wall, best = statistics.median(walls[name]), min(walls[name])
            ratio, of_best = statistics.median(walls["pylance"]) / wall, min(walls["pylance"]) / best
            of_cpu = statistics.median(cpus["pylance"]) / statistics.median(cpus[name])
            print(
                f"{name:<24} median {wall:6.3f} s  {ratio:5.2f} x pylance;  best {best:6.3f} s  {of_best:5.2f} x;"
                f"  processor {of_cpu:5.2f} x"
            )
        print(f"equal: {filters(built[-1]) == filters(newest)}")


if __name__ == "__main__":
    main()
