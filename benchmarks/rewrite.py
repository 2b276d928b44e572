"""What a filter on one column of a file that exists costs: by `add`, and by programs that write the file again.

    python benchmarks/rewrite.py [--rows 1000000] [--folder /tmp/parquet-bloom-bench] [--runs 7]

The file of benchmarks/add.py: 10 columns, 10 row groups, zstd, one int64 column of random keys, which gets filters of
at most 1 % in a new file. All take turns in one process. Prints medians of the clock and of processor time, by how
much the file grew, and which columns have filters then; ratios to `add` are what counts.

    parquet-bloom   add_filters
    pyarrow         read_table, write_table with bloom_filter_options
    DataFusion      COPY TO with bloom_filter_enabled::key
    DuckDB          COPY TO; it makes filters of dictionaries, so its limit of a dictionary's size is raised
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import datafusion
import duckdb
import pyarrow.parquet as pq
from add import make

import parquet_bloom


def ways(source: Path, target: Path, group: int) -> dict[str, Callable[[], object]]:
    def by_pyarrow() -> None:
        options = {"key": {"ndv": group, "fpp": 0.01}}
        rows = pq.read_table(source)
        pq.write_table(rows, target, compression="zstd", row_group_size=group, bloom_filter_options=options)

    def by_datafusion() -> None:
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        context.register_parquet("data", str(source))
        options = (
            f"'compression' 'zstd(1)', 'max_row_group_size' '{group}', 'bloom_filter_enabled::key' 'true', "
            f"'bloom_filter_fpp::key' '0.01', 'bloom_filter_ndv::key' '{group}'"
        )
        context.sql(f"COPY (SELECT * FROM data) TO '{target}' STORED AS PARQUET OPTIONS ({options})").collect()

    def by_duckdb() -> None:
        options = f"COMPRESSION zstd, ROW_GROUP_SIZE {group}, DICTIONARY_SIZE_LIMIT {group}"
        duckdb.sql(f"COPY (SELECT * FROM '{source}') TO '{target}' (FORMAT parquet, {options})")

    return {
        "parquet-bloom": lambda: parquet_bloom.add_filters(source, target, columns=["key"]),
        "pyarrow": by_pyarrow,
        "DataFusion": by_datafusion,
        "DuckDB": by_duckdb,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench"))
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    source, target = options.folder / f"source-{options.rows}.parquet", options.folder / "rewritten.parquet"
    if not source.exists():
        make(source, options.rows)
    had = source.stat().st_size
    times: dict[str, list[tuple[float, float]]] = {}
    left: dict[str, str] = {}
    for run in range(options.runs + 1):
        for name, way in ways(source, target, options.rows // 10).items():
            target.unlink(missing_ok=True)
            clock, processor = time.perf_counter(), time.process_time()
            way()
            taken = time.perf_counter() - clock, time.process_time() - processor
            if run:  # the first round compiles and warms the cache
                times.setdefault(name, []).append(taken)
                continue
            [file] = parquet_bloom.inspect(target).files
            columns = sorted({one.column for one in file.filters})
            found = [one for one in file.filters if one.column == "key"]
            sizes = sorted({one.num_bytes for one in found})
            left[name] = (
                f"{target.stat().st_size - had:+,} bytes; filters on {', '.join(columns) or 'no column'}; "
                f"key: {len(found)} of {sizes} bytes, fpp at most {max((one.fpp or 0 for one in found), default=0):.4f}"
            )
    target.unlink(missing_ok=True)
    print(f"{source}: {had:,} bytes, {options.rows:,} rows; medians of {options.runs} runs in turn")
    ours = [statistics.median(column) for column in zip(*times["parquet-bloom"], strict=True)]
    for name, taken in times.items():
        clock, processor = (statistics.median(column) for column in zip(*taken, strict=True))
        ratios = f"{clock / ours[0]:5.1f} {processor / ours[1]:5.1f}"
        print(f"{name:<14} {clock:7.3f} s, {processor:7.3f} s of processors; divided by ours {ratios}; {left[name]}")


if __name__ == "__main__":
    main()
