"""Verdicts and rows of 100 files x 100 row groups against DuckDB, DataFusion, Polars and pyarrow, in process.

    python benchmarks/check.py [--files 100] [--groups 100] [--rows 10000] [--folder DIR] [--runs 5]

Each row group holds random int64 keys; one absent value lies inside the bounds of every row group,
so that only the filters can say so. Warm cache; all ways take turns in one run; ratios are medians.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq

import parquet_bloom


def make(folder: Path, files: int, groups: int, rows: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    for i in range(files):
        path = folder / f"{i:03}.parquet"
        keys = rng.integers(-(2**63), 2**63 - 1, groups * rows)
        plain = path.with_suffix(".plain")
        pq.write_table(pa.table({"id": keys}), plain, row_group_size=rows, use_dictionary=False, compression="none")
        parquet_bloom.add_filters(plain, path, columns=["id"], sync=False)
        plain.unlink()


def take_turns(ways: dict[str, Callable[[], object]], runs: int) -> dict[str, list[float]]:
    """Seconds of each run of each way; the first round warms up and does not count."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run in range(runs + 1):
        order = [*ways][run % len(ways) :] + [*ways][: run % len(ways)]
        for name in order:
            start = time.perf_counter()
            ways[name]()
            if run:
                times[name].append(time.perf_counter() - start)
    return times


def counters(folder: Path, value: int) -> dict[str, Callable[[], int]]:
    """`SELECT count(*) WHERE id = value` from cold objects, by each engine."""
    pattern = str(folder / "*.parquet")

    def in_duckdb() -> int:
        with duckdb.connect() as connection:
            return int(connection.sql(f"SELECT count(*) FROM '{pattern}' WHERE id = {value}").fetchall()[0][0])

    def in_datafusion() -> int:
        options = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
        context = datafusion.SessionContext(options)
        context.register_parquet("t", str(folder))
        return int(context.sql(f"SELECT count(*) FROM t WHERE id = {value}").to_pydict().popitem()[1][0])

    def in_polars() -> int:
        return int(polars.scan_parquet(pattern).filter(polars.col("id") == value).select(polars.len()).collect().item())

    def in_pyarrow() -> int:
        return int(pyarrow.dataset.dataset(folder).count_rows(filter=pyarrow.dataset.field("id") == value))

    return {"DuckDB": in_duckdb, "DataFusion": in_datafusion, "Polars": in_polars, "pyarrow": in_pyarrow}


def readers(folder: Path, value: int) -> dict[str, Callable[[], pa.Table]]:
    """The rows themselves, as an Arrow table."""
    pattern = str(folder / "*.parquet")

    def in_duckdb() -> pa.Table:
        with duckdb.connect() as connection:
            return connection.sql(f"SELECT * FROM '{pattern}' WHERE id = {value}").to_arrow_table()

    def in_datafusion() -> pa.Table:
        options = datafusion.SessionConfig({"datafusion.execution.parquet.pushdown_filters": "true"})
        context = datafusion.SessionContext(options)
        context.register_parquet("t", str(folder))
        return context.sql(f"SELECT * FROM t WHERE id = {value}").to_arrow_table()

    def in_polars() -> pa.Table:
        return polars.scan_parquet(pattern).filter(polars.col("id") == value).collect().to_arrow()

    return {"DuckDB": in_duckdb, "DataFusion": in_datafusion, "Polars": in_polars}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench/check"))
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    folder = options.folder
    if not folder.exists():
        make(folder, options.files, options.groups, options.rows)
    files = sorted(map(str, folder.glob("*.parquet")))
    absent = 1_234_567_890_123_456_789
    present = pq.ParquetFile(files[len(files) // 2]).read_row_group(options.groups // 2)["id"][17].as_py()
    cache = parquet_bloom.FooterCache()
    where = f"id = {absent}"

    ways: dict[str, Callable[[], object]] = {
        "check": lambda: parquet_bloom.check(files, where),
        "check, cached footers": lambda: parquet_bloom.check(files, where, cache=cache),
        **counters(folder, absent),
    }
    verdicts = parquet_bloom.check(files, where)
    assert not any(count() for count in counters(folder, absent).values())
    total = sum(f.num_bytes for file in parquet_bloom.inspect(files).files for f in file.filters)
    read = sum(v.bytes_read for v in verdicts)
    times = take_turns(ways, options.runs)
    median = {name: statistics.median(values) for name, values in times.items()}
    size = sum(map(os.path.getsize, files))
    print(f"{len(files)} files, {len(verdicts)} row groups, {size:,} bytes; {os.cpu_count()} processors")
    print(f"{verdicts.skipped} row groups skipped for {read:,} bytes, 1/{total / read:.0f} of the filters")
    for ours in ("check", "check, cached footers"):
        print(f"{ours}: {1e6 * median[ours] / len(verdicts):.2f} microseconds a row group")
        for name in counters(folder, absent):
            print(f"    {name} count(*) / {ours}  {median[name] / median[ours]:6.2f}")
    print(json.dumps({name: [round(v, 4) for v in values] for name, values in times.items()}))

    if hasattr(parquet_bloom, "read_table"):
        where = f"id = {present}"
        reading: dict[str, Callable[[], object]] = {
            "read_table": lambda: parquet_bloom.read_table(files, filters=where),
            **readers(folder, present),
        }
        assert all(len(way()) == 1 for way in reading.values())  # type: ignore[arg-type]
        times = take_turns(reading, options.runs)
        median = {name: statistics.median(values) for name, values in times.items()}
        for name in readers(folder, present):
            print(f"a present value: {name} / read_table  {median[name] / median['read_table']:6.2f}")
        print(json.dumps({name: [round(v, 4) for v in values] for name, values in times.items()}))


if __name__ == "__main__":
    main()
