"""One key looked up before and after: the figures of the README. One file of events, each engine in turn.

    python benchmarks/lookup.py [--rows 5000000] [--folder DIR] [--runs 7]

The file is what pyarrow writes with its defaults: row groups of 1,048,576 rows, dictionaries where they fit.
Filters go on the columns that `add` chooses by itself. Warm cache; rows are read whole (SELECT *);
ratios are medians of the same engine before and after. Sizes are told for a million values.
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
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from check import take_turns

import parquet_bloom

Way = Callable[[], pa.Table]


def make(path: Path, rows: int) -> None:
    """Events in the order of their time: random trace ids, users of whom some are frequent, a text."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    step = 1_048_576
    schema = None
    writer = None
    for start in range(0, rows, step):
        n = min(step, rows - start)
        table = pa.table(
            {
                "trace_id": [f"{a:016x}{b:016x}" for a, b in rng.integers(0, 2**63, (n, 2)).tolist()],
                "user_id": rng.zipf(1.3, n) % 2_000_003 * 7919,
                "at": pa.array(start * 1000 + np.sort(rng.integers(0, n * 1000, n)), pa.timestamp("us")),
                "status": rng.integers(0, 5, n).astype(np.int32),
                "duration_ms": rng.gamma(2, 40, n),
                "message": [
                    f"request {a} took {b} ms on host {c}" for a, b, c in rng.integers(0, 9999, (n, 3)).tolist()
                ],
            }
        )
        schema = schema or table.schema
        writer = writer or pq.ParquetWriter(path, schema, compression="zstd")
        writer.write_table(table)
    assert writer is not None
    writer.close()


def lookups(path: Path, value: str) -> dict[str, Way]:
    """The rows of one key, by each engine as its users ask it, and by our readers."""

    def in_duckdb() -> pa.Table:
        with duckdb.connect() as connection:
            return connection.sql(f"SELECT * FROM '{path}' WHERE trace_id = '{value}'").to_arrow_table()

    def in_datafusion() -> pa.Table:
        context = datafusion.SessionContext()
        context.register_parquet("t", str(path))
        return context.sql(f"SELECT * FROM t WHERE trace_id = '{value}'").to_arrow_table()

    def in_polars() -> pa.Table:
        return polars.scan_parquet(path).filter(polars.col("trace_id") == value).collect().to_arrow()

    def in_pyarrow() -> pa.Table:
        return pq.read_table(path, filters=[("trace_id", "=", value)])

    def ours() -> pa.Table:
        return parquet_bloom.read_table(path, f"trace_id = '{value}'")

    def polars_ours() -> pa.Table:
        return parquet_bloom.scan_polars(path).filter(polars.col("trace_id") == value).collect().to_arrow()

    def duckdb_ours() -> pa.Table:
        with duckdb.connect() as connection:
            connection.register("stored", parquet_bloom.dataset(path))
            return connection.sql(f"SELECT * FROM stored WHERE trace_id = '{value}'").to_arrow_table()

    def pyarrow_ours() -> pa.Table:
        return parquet_bloom.dataset(path).to_table(filter=ds.field("trace_id") == value)

    return {"DuckDB": in_duckdb, "DataFusion": in_datafusion, "Polars": in_polars, "pyarrow": in_pyarrow,
            "parquet_bloom.read_table": ours, "parquet_bloom.scan_polars": polars_ours,
            "DuckDB over parquet_bloom.dataset": duckdb_ours,
            "pyarrow over parquet_bloom.dataset": pyarrow_ours}  # fmt: skip


def scans(path: Path) -> dict[str, Way]:
    """All rows, of which no filter denies any: what the way through this package costs."""
    every = polars.col("status") >= 0
    return {
        "Polars": lambda: polars.scan_parquet(path).filter(every).collect().to_arrow(),
        "parquet_bloom.scan_polars": lambda: parquet_bloom.scan_polars(path).filter(every).collect().to_arrow(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench/lookup"))
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    before, after = (options.folder / f"{options.rows}-{name}.parquet" for name in ("before", "after"))
    if not before.exists():
        make(before, options.rows)
    start = time.perf_counter()
    report = parquet_bloom.add_filters(before, after, overwrite=True).files[0]
    seconds = time.perf_counter() - start
    print(
        f"{options.rows:,} rows, {report.row_groups} row groups, {report.bytes_before:,} bytes; "
        f"{os.cpu_count()} processors"
    )
    grown = 100 * (report.bytes_after / report.bytes_before - 1)
    print(f"filters on {', '.join(report.columns)}: file {grown:+.1f} %, {seconds:.2f} s")
    for column in report.columns:
        filters = [f for f in report.filters if f.column == column]
        distinct = sum(f.estimated_ndv for f in filters)
        taken = sum(f.length for f in filters)
        print(f"    {column}: {1e6 * taken / options.rows:,.0f} bytes a million rows, "
              f"{1e6 * taken / distinct:,.0f} a million distinct values")  # fmt: skip
    value = pq.ParquetFile(before).read_row_group(report.row_groups // 2, ["trace_id"])["trace_id"][17].as_py()
    both = [lookups(path, value) for path in (before, after)]
    ways: dict[str, Way] = {f"{name}, {when}": ways[name] for ways, when in zip(both, ("before", "after"), strict=True)
                            for name in ways}  # fmt: skip
    assert all(way().num_rows == 1 for way in ways.values())
    times = take_turns(dict(ways), options.runs)
    median = {name: statistics.median(values) for name, values in times.items()}
    for name in both[0]:
        old, new = median[f"{name}, before"], median[f"{name}, after"]
        print(f"{name}: {1000 * old:,.0f} ms before, {1000 * new:,.0f} ms after, {old / new:.1f} times")
    pairs = [("pyarrow", "parquet_bloom.read_table"), ("Polars", "parquet_bloom.read_table"),
             ("Polars", "parquet_bloom.scan_polars"), ("DuckDB", "DuckDB over parquet_bloom.dataset"),
             ("pyarrow", "pyarrow over parquet_bloom.dataset")]  # fmt: skip
    for name, ours in pairs:
        print(f"{name} / {ours}, both after: {median[f'{name}, after'] / median[f'{ours}, after']:.1f}")
    whole = {name: statistics.median(values) for name, values in take_turns(scans(after), options.runs).items()}
    print(f"all rows: parquet_bloom.scan_polars / Polars {whole['parquet_bloom.scan_polars'] / whole['Polars']:.1f}")
    print(json.dumps({name: [round(v, 4) for v in values] for name, values in times.items()}))


if __name__ == "__main__":
    main()
