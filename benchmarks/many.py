"""Verdicts on many local files: `check` against DuckDB in one run, and what a file costs.

    python benchmarks/many.py [--folder /tmp/parquet-bloom-bench/many] [--runs 9] [--cold]

1,000 files of 1 and of 10 row groups, 3 columns, filters on one random int64 column; and 100 files of 100 row groups,
of that column alone. The value lies inside the bounds of every row group, and in none. DuckDB counts the rows, `check`
the row groups that are skipped, once also with an object for each verdict. Warm cache; all ways take turns, ratios are
medians. --cold: instead whole processes, `check` over the first 1, 20, 200 and 1,000 files.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

ABSENT = 12_345_678_901_234_567
SETS = {"1000x1": (1000, 1, 500, 2), "1000x10": (1000, 10, 100, 2), "100x100": (100, 100, 1000, 0)}


def make(folder: Path, files: int, groups: int, rows: int, others: int) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(5)
    for i in range(files):
        columns = {"id": rng.integers(-(2**63), 2**63 - 1, groups * rows)}
        columns |= {f"c{j}": rng.integers(0, 1000, groups * rows) for j in range(others)}
        path = folder / f"{i:04}.parquet"
        plain = path.with_suffix(".plain")
        pq.write_table(pa.table(columns), plain, row_group_size=rows, use_dictionary=False, compression="none")
        parquet_bloom.add_filters(plain, path, columns=["id"], sync=False)
        plain.unlink()


def in_duckdb(folder: Path) -> int:
    with duckdb.connect() as connection:
        found = connection.sql(f"SELECT count(*) FROM '{folder}/*.parquet' WHERE id = {ABSENT}").fetchall()
        return int(found[0][0])


def take_turns(ways: dict[str, Callable[[], object]], runs: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each run of each way, by the clock and of processor time; a round before does not count."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for run in range(runs + 1):
        order = [*ways][run % len(ways) :] + [*ways][: run % len(ways)]
        for name in order:
            clock, processor = time.perf_counter(), time.process_time()
            ways[name]()
            if run:
                times[name].append((time.perf_counter() - clock, time.process_time() - processor))
    return times


def warm(folder: Path, runs: int) -> None:
    for name, layout in SETS.items():
        here = folder / name
        if not here.exists():
            make(here, *layout)
        cache = parquet_bloom.FooterCache()
        ways: dict[str, Callable[[], object]] = {
            "DuckDB": lambda here=here: in_duckdb(here),
            "check": lambda here=here: parquet_bloom.check(here, f"id = {ABSENT}").skipped,
            "check, each verdict": lambda here=here: [*parquet_bloom.check(here, f"id = {ABSENT}")],
            "check, cached footers": lambda here=here, cache=cache: (
                parquet_bloom.check(here, f"id = {ABSENT}", cache=cache).skipped
            ),
            "prune": lambda here=here: parquet_bloom.prune(here, f"id = {ABSENT}"),
        }
        verdicts = parquet_bloom.check(here, f"id = {ABSENT}")
        times = take_turns(ways, runs)
        files, groups = layout[0], len(verdicts)
        print(f"{name}: {groups} row groups, {verdicts.skipped} skipped")
        for way, found in times.items():
            ratios = [
                statistics.median(theirs[i] / ours[i] for theirs, ours in zip(times["DuckDB"], found, strict=True))
                for i in (0, 1)
            ]
            least = [1e6 * min(one[i] for one in found) for i in (0, 1)]
            print(
                f"  {way:22} us a file: clock {least[0] / files:7.1f}, processor {least[1] / files:7.1f}; a row group "
                f"{least[1] / groups:6.2f};  DuckDB / it: clock {ratios[0]:5.2f}, processor {ratios[1]:5.2f}"
            )
        profile = cProfile.Profile()
        profile.runcall(ways["check"])
        print(f"  {pstats.Stats(profile).total_calls / files:.0f} Python calls a file")  # type: ignore[attr-defined]


def cold(folder: Path, runs: int) -> None:
    code = "import sys, parquet_bloom; parquet_bloom.check(sys.argv[2:], 'id = ' + sys.argv[1])"
    files = sorted(map(str, (folder / "1000x10").glob("*.parquet")))
    for count in (1, 20, 200, 1000):
        seconds = []
        for _ in range(runs):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code, str(ABSENT), *files[:count]], check=True)
            seconds.append(time.perf_counter() - start)
        print(f"whole process, {count} files: {min(seconds):.3f} s at least, {statistics.median(seconds):.3f} s median")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench/many"))
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    (cold if options.cold else warm)(options.folder, options.runs)


if __name__ == "__main__":
    main()
