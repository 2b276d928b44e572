"""Rows of large row groups: keys and a range of time in files as pyarrow writes them by default.

    python benchmarks/rows.py [--rows 4194304] [--group 1048576] [--folder DIR] [--keys 100] [--runs 7]

12 columns in row groups of 1,048,576 rows, zstd, with and without a page index; filters on `id`. Rows are read whole
(SELECT *). One key is the median over random keys, each of which all engines look up in turn; 20 keys, the range, and
a predicate that most rows match are medians of runs in turn. Warm cache; the ratios of one run count.
`--cpu` prints processor time, all threads together, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

Way = Callable[[str], int]  # a predicate as SQL text -> how many rows were found


def make(folder: Path, rows: int, group: int) -> tuple[Path, Path]:
    """The file without and with a page index."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / f"{rows}-{group}-{name}.parquet" for name in ("plain", "index"))
    if not paths[1].exists():
        rng = np.random.default_rng(1)
        columns = {
            "id": rng.integers(0, 2**62, rows),
            "ts": np.arange(rows),
            "user": rng.integers(0, 10**6, rows),
            "msg": pa.array([f"request {i % 977} of {i % 13} took {i % 1009} ms" for i in range(rows)]),
        }
        table = pa.table(columns | {f"f{i}": rng.normal(size=rows) for i in range(8)})
        for path, index in zip(paths, (False, True), strict=True):
            made = path.with_suffix(".made")
            pq.write_table(table, made, compression="zstd", row_group_size=group, write_page_index=index)
            parquet_bloom.add_filters(made, path, columns=["id"])
            made.unlink()
    return paths[0], paths[1]


def ways_of(path: Path) -> dict[str, Way]:
    """Each engine with its best settings."""
    connection = duckdb.connect()
    config = datafusion.SessionConfig().set("datafusion.execution.parquet.pushdown_filters", "true")
    context = datafusion.SessionContext(config)
    context.register_parquet("t", str(path))
    return {
        "read_table": lambda where: parquet_bloom.read_table(path, where).num_rows,
        "scan_polars": lambda where: parquet_bloom.scan_polars(path).filter(polars.sql_expr(where)).collect().height,
        "count": lambda where: parquet_bloom.count(path, where),
        "DuckDB": lambda where: len(connection.sql(f"SELECT * FROM '{path}' WHERE {where}").to_arrow_table()),
        "DataFusion": lambda where: sum(b.num_rows for b in context.sql(f"SELECT * FROM t WHERE {where}").collect()),
        "Polars": lambda where: polars.scan_parquet(path).filter(polars.sql_expr(where)).collect().height,
    }


def measured(ways: dict[str, Way], predicates: list[str], clock: Callable[[], float]) -> dict[str, float]:
    """The median time of each way, ms; all ways take a predicate before the next one comes."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for run, where in enumerate([predicates[0], *predicates]):
        found = {}
        for name in [*ways][run % len(ways) :] + [*ways][: run % len(ways)]:
            start = clock()
            found[name] = ways[name](where)
            if run:  # the first round warms up
                times[name].append(1000 * (clock() - start))
        assert len(set(found.values())) == 1, (where, found)
    return {name: statistics.median(some) for name, some in times.items()}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4_194_304)
    parser.add_argument("--group", type=int, default=1_048_576)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench/rows"))
    parser.add_argument("--keys", type=int, default=100)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cpu", action="store_true")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    for path in make(options.folder, options.rows, options.group):
        ids = pq.read_table(path, columns=["id"])["id"].to_numpy()
        rng = np.random.default_rng(2)
        keys = [f"id = {key}" for key in rng.choice(ids, options.keys)]
        many = [f"id IN ({', '.join(map(str, rng.choice(ids, 20, replace=False)))})" for _ in range(options.runs)]
        starts = rng.integers(0, options.rows - 101, options.runs).tolist()
        questions = {
            "1 key": keys,
            "20 keys": many,
            "101 rows of a range": [f"ts BETWEEN {start} AND {start + 100}" for start in starts],
            "most rows": ['"user" < 900000'] * max(1, options.runs // 2),
        }
        for name, predicates in questions.items():
            found = measured(ways_of(path), predicates, clock)
            ours = found["read_table"]
            figures = ", ".join(f"{way} {ms:,.1f} ms ({ms / ours:.2f})" for way, ms in found.items())
            print(f"{path.name}, {name}: {figures}", flush=True)


if __name__ == "__main__":
    main()
