"""What advise promises, against filters counted by brute force over all row groups; and its processor time.

    python benchmarks/advise.py [--seeds 3] [--rows 300000] [--kinds zipf]

For each kind of column (tests/support/column_kinds.py) and seed: whether the true shares lie in the intervals of
present and of absent values, how wide these are, whether the bytes that filters take lie in theirs (at the rate that
is advised, and by --fpp auto), and whether `advise` and `add` choose the column that gains. Then the processor time
of advise on ten files of so many rows and ten columns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.column_kinds import KINDS, made, truth_of, write


def filters_take(folder: Path, fpp: object) -> int:
    """Bytes of filters on the column in copies of all files, headers included."""
    with tempfile.TemporaryDirectory() as out:
        report = parquet_bloom.add_filters(folder, Path(out) / "o", columns=["c"], fpp=fpp, sync=False)
    return sum(one.num_bytes + 16 for file in report.files for one in file.filters)


def kinds(names: list[str], seeds: int) -> None:
    found: dict[str, list[tuple[bool, ...]]] = {}
    widths: list[float] = []
    inside_all: list[bool] = []
    for name in names:
        for seed in range(seeds):
            files = made(name, seed)
            truth = truth_of(files)
            with tempfile.TemporaryDirectory() as place:
                folder = write(files, Path(place) / "d")
                started = time.process_time()
                [column] = [one for one in parquet_bloom.advise(folder).columns if one.column == "c"]
                seconds = time.process_time() - started
                added = parquet_bloom.add_filters(folder, in_place=True, dry_run=True)
                chooses = ["c" in file.columns for file in added.files]
                if column.present is None or column.absent is None or column.filter_bytes is None:
                    print(f"{name:40} {seed}: {column.reason}")
                    continue
                present, absent = column.present.row_groups, column.absent.row_groups
                bytes_ = [filters_take(folder, fpp) for fpp in (column.fpp, "auto")]
            inside = [p.low <= t <= p.high for p, t in ((present, truth.present), (absent, truth.absent))]
            sizes = [column.filter_bytes.low <= one <= column.filter_bytes.high for one in bytes_]
            gains = truth.benefit >= 0.1
            known = len(files) > 1 or len(files[0]) > 1  # of one row group nothing can be measured
            right = column.advised == gains or not known or not column.reason.startswith(("min", "few", "it holds"))
            same = len(files) > 1 or chooses == [column.advised]
            widths += [one.high - one.low for one in (present, absent)]
            inside_all.append(all(inside))
            found.setdefault(name, []).append((*inside, *sizes, right, same))
            wrong = [
                word
                for word, good in zip(
                    ("PRESENT", "ABSENT", "BYTES", "AUTO", "JUDGED", "ADD"), (*inside, *sizes, right, same), strict=True
                )
                if not good
            ]
            print(
                f"{name:40} {seed}: present {truth.present:.3f} [{present.low:.3f} {present.high:.3f}]  "
                f"absent {truth.absent:.3f} [{absent.low:.3f} {absent.high:.3f}]  "
                f"bytes {bytes_} [{column.filter_bytes.low:.0f} {column.filter_bytes.high:.0f}]  "
                f"advised {column.advised} add {sum(chooses)}/{len(chooses)}  {seconds:.2f} s  {' '.join(wrong)}",
                flush=True,
            )
    table = np.array([one for many in found.values() for one in many])
    print(f"{len(table)} data sets of {len(found)} kinds")
    for at, word in enumerate(("present", "absent", "bytes at the rate", "bytes of auto", "judged right", "as add")):
        print(f"  {word}: {table[:, at].mean():.1%}")
    print(f"  both shares inside: {np.mean(inside_all):.1%}; intervals at most 10 points wide: ", end="")
    print(f"{np.mean(np.array(widths) <= 0.1):.1%}, the median is {np.median(widths):.3f}")


def ten_files(rows: int) -> None:
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as place:
        for at in range(10):
            user = rng.integers(0, 2_000_000, rows) * 7919
            numbers = at * rows + np.arange(rows)
            columns = {
                "trace": [f"{one:016x}" for one in rng.integers(0, 2**62, rows).tolist()],
                "user": user,
                "zipf": np.minimum(rng.zipf(1.3, rows), 10**7) * 2654435761 % 2**31,
                "at": pa.array(numbers * 1000 + rng.integers(0, 60_000_000, rows), pa.timestamp("us")),
                "status": rng.integers(0, 5, rows),
                "country": [f"c{one}" for one in rng.integers(0, 200, rows).tolist()],
                "uuid": pa.array([rng.bytes(16) for _ in range(rows)], pa.binary(16)),
                "amount": rng.normal(20, 5, rows),
                "mail": [f"user{one}@example{one % 97}.org" for one in user.tolist()],
                "session": [f"s{one:09d}x{one * 2654435761 % 2**31:08x}" for one in (numbers // 7).tolist()],
            }
            pq.write_table(pa.table(columns), Path(place) / f"{at}.parquet", compression="zstd")
        for _ in range(3):
            started = time.process_time()
            parquet_bloom.advise(place)
            seconds = time.process_time() - started
            print(f"advise, 10 files of {rows:,} rows and 10 columns: {seconds:.2f} s of processor time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--kinds", default="", help="only those with this in their name")
    given = parser.parse_args()
    kinds([name for name in KINDS if given.kinds in name], given.seeds)
    if given.rows:
        ten_files(given.rows)


if __name__ == "__main__":
    main()
