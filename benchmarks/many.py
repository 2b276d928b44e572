"""Verdicts on many local files: `check` against DuckDB in one run, and what a file costs.

    python benchmarks/many.py [--folder /tmp/parquet-bloom-bench/many] [--runs 9] [--cold | --delta 20000]

1,000 files of 1 and of 10 row groups, 3 columns, filters on one random int64 column; and 100 files of 100 row groups,
of that column alone. The value lies inside the bounds of every row group, and in none. DuckDB counts the rows, `check`
the row groups that are skipped, once also with an object for each verdict. Warm cache; all ways take turns, ratios are
medians. --cold: instead whole processes, `check` over the first 1, 20, 200 and 1,000 files.

--delta: instead a Delta table of so many files, 1,000 a commit, with a checkpoint of deltalake's in the middle. `check`
of a value outside of all bounds opens none of them, the other one opens all. The time of the same files as a folder,
without the log, is taken from it. All names are hard links to one file of one row group, so the log says the same of
each.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import random
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
    """Seconds of each run of each way, by the clock and of processor time; a round before does not count.

    In another order each round, as whoever follows DuckDB finds the processor's caches full of its data.
    """
    rng = random.Random(3)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for run in range(runs + 1):
        for name in rng.sample([*ways], len(ways)):
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


def make_delta(folder: Path, files: int) -> None:
    from deltalake import DeltaTable

    folder.mkdir(parents=True)
    ids = np.sort(np.random.default_rng(5).integers(0, 2**62, 500))
    pq.write_table(pa.table({"id": ids, "v": ids % 1000}), folder / "plain", compression="none")
    parquet_bloom.add_filters(folder / "plain", folder / "0.parquet", columns=["id"], sync=False)
    (folder / "plain").unlink()
    size = (folder / "0.parquet").stat().st_size
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "v")]
    schema = json.dumps({"type": "struct", "fields": fields})
    head: list[dict[str, object]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "m", "format": {"provider": "parquet", "options": {}}, "schemaString": schema,
                      "partitionColumns": [], "configuration": {}, "createdTime": 0}},
    ]  # fmt: skip
    bounds = {
        "numRecords": 500,
        "minValues": {"id": int(ids[0]), "v": 0},
        "maxValues": {"id": int(ids[-1]), "v": 999},
        "nullCount": {"id": 0, "v": 0},
    }
    (folder / "_delta_log").mkdir()
    for version in range((files + 999) // 1000):
        actions = head if version == 0 else []
        for number in range(1000 * version, min(files, 1000 * version + 1000)):
            name = f"{number}.parquet"
            if number:
                (folder / name).hardlink_to(folder / "0.parquet")
            add = {"path": name, "partitionValues": {}, "size": size, "modificationTime": number, "dataChange": True}
            actions.append({"add": {**add, "stats": json.dumps(bounds)}})
        log = folder / f"_delta_log/{version:020}.json"
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
        if version == files // 2000:
            DeltaTable(folder).create_checkpoint()


def delta(folder: Path, files: int, runs: int) -> None:
    from deltalake import DeltaTable

    here = folder / f"delta{files}"
    if not here.exists():
        make_delta(here, files)
    table, outside, inside = f"delta:{here}", "id < 0", f"id = {ABSENT}"
    code = "import sys, time, parquet_bloom; t = time.process_time(); parquet_bloom.{}; print(time.process_time() - t)"
    for call in ("count(sys.argv[1])", "check(sys.argv[1], 'id < 0')"):
        one = [sys.executable, "-c", code.format(call), table]
        took = [float(subprocess.check_output(one)) for _ in range(min(runs, 3))]
        print(f"  the first of a process, {call:30} {min(took):6.2f} s of processor time")
    assert parquet_bloom.count(table) == 500 * files
    ways: dict[str, Callable[[], object]] = {
        "count": lambda: parquet_bloom.count(table),
        "check, no file opened": lambda: parquet_bloom.check(table, outside),
        "check, all opened": lambda: parquet_bloom.check(table, inside),
        "check, files alone": lambda: parquet_bloom.check(here, inside, raw_files=True),
        "deltalake, names of files": lambda: DeltaTable(here).file_uris(),
    }
    times = take_turns(ways, runs)
    for way, found in times.items():
        print(f"  {way:30} clock {min(one[0] for one in found):6.2f} s, processor {min(one[1] for one in found):6.2f}")
    beside = statistics.median(
        log[1] - alone[1] for log, alone in zip(times["check, all opened"], times["check, files alone"], strict=True)
    )
    print(f"  a second check beside the files' own: {beside:.2f} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench/many"))
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--delta", type=int, metavar="FILES")
    options = parser.parse_args()
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    if options.delta:
        delta(options.folder, options.delta, options.runs)
    else:
        (cold if options.cold else warm)(options.folder, options.runs)


if __name__ == "__main__":
    main()
