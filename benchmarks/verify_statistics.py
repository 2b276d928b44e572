"""`verify --statistics` beside decoding the same columns by pyarrow: processor time, of each column and of all.

    python benchmarks/verify_statistics.py [--rows 1000000] [--runs 7]

A file of columns of every kind, with a tenth of NULLs in some, as pyarrow writes it: column chunks of 250,000 rows,
page indexes. In turn, in one process and one thread; pyarrow reads each column as it would be used.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom import verify


def columns(rows: int) -> pa.Table:
    """Columns of every kind."""
    random = np.random.default_rng(0)
    nulls = random.random(rows) < 0.1
    numbers = random.integers(-(2**62), 2**62, rows)
    small = random.integers(0, 1000, rows)
    words = pa.array([f"city {i}" for i in range(1000)])
    cents = pa.array(numbers).cast(pa.decimal128(19, 0))
    wide = pa.array([Decimal(int(one)) * 10**9 for one in numbers[:10_000]], pa.decimal128(38, 0))
    return pa.table(
        {
            "int32": pa.array(small.astype(np.int32)),
            "int64": pa.array(numbers),
            "int64_null": pa.array(numbers, mask=nulls),
            "uint64": pa.array(numbers.view(np.uint64)),
            "double": pa.array(random.normal(size=rows)),
            "double_null": pa.array(random.normal(size=rows), mask=nulls),
            "text": pa.array([f"user-{one:019d}" for one in numbers.tolist()]),
            "text_null": pa.array([f"user-{one:019d}" for one in numbers.tolist()], mask=nulls),
            "city": words.take(pa.array(small, mask=nulls)),
            "decimal_19": cents,
            "decimal_38_dictionary": wide.take(pa.array(random.integers(0, len(wide), rows), mask=nulls)),
            "time": pa.array(numbers >> 12, pa.timestamp("us")),
            "time_null": pa.array(numbers >> 12, pa.timestamp("us"), mask=nulls),
            "flag": pa.array(small > 500, mask=nulls),
        }
    )


def processor(work: Callable[[], object]) -> float:
    """Seconds of the processor."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    table = columns(options.rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "columns.parquet"
        pq.write_table(table, path, row_group_size=options.rows // 4, write_page_index=True)
        file = functools.partial(pq.ParquetFile, path)
        work: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            name: (
                functools.partial(verify, path, columns=name, statistics=True),
                lambda name=name: file().read(columns=[name], use_threads=False),
            )
            for name in table.column_names
        }
        work["all, in one call"] = (
            functools.partial(verify, path, statistics=True),
            lambda: file().read(use_threads=False),
        )
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in work}
        for turn in range(options.runs + 1):
            for name, (ours, theirs) in work.items():
                found = processor(ours), processor(theirs)
                times[name] += [found] if turn else []  # the first one loads modules
    print("column                   verify, ms   pyarrow, ms   ratio")
    for name, pairs in times.items():
        ours, theirs = zip(*pairs, strict=True)
        ratio = median(one / other for one, other in pairs)
        print(f"{name:<24} {1000 * median(ours):10.1f} {1000 * median(theirs):13.1f} {ratio:7.2f}")
    *single, whole = times.values()
    alone = [sum(pair[1] for pair in turn) for turn in zip(*single, strict=True)]
    ratio = median(ours / theirs for (ours, _), theirs in zip(whole, alone, strict=True))
    print(f"all, to the sum of pyarrow's columns {1000 * median(alone):12.1f} {ratio:7.2f}")


if __name__ == "__main__":
    main()
