"""How long short commands take as whole processes, against Python importing pyarrow.parquet.

    python benchmarks/start.py [--folder /tmp/parquet-bloom-bench] [--runs 11] [--only check] [--loops]

A file of 100,000 rows in four row groups, 4 MB. All commands take turns; prints the median of the ratios of each
round, by processor time (user and system) and by the clock, and what of it is Python, numpy and pyarrow themselves.
Run it where Python may keep compiled modules (no PYTHONDONTWRITEBYTECODE), as an installation does.

--only TEXT: of the commands those alone whose names begin so, and pyarrow.parquet, in pairs.

--loops: instead, files of 0.1 to 8 million int64 values, `add` without numba and by its loops: from where on loading
it pays, see parquet_bloom.kernels.hashes.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

OURS = [sys.executable, "-m", "parquet_bloom"]
PEER = [sys.executable, "-c", "import pyarrow.parquet"]
PARTS = {
    "python": [sys.executable, "-c", ""],
    "python, numpy": [sys.executable, "-c", "import numpy"],
    "python, pyarrow (with numpy)": [sys.executable, "-c", "import pyarrow"],
    "python, pyarrow.dataset": [sys.executable, "-c", "import pyarrow.dataset"],
    "python, numba": [sys.executable, "-c", "import numba"],
}
FORCED = """
import sys
from parquet_bloom.kernels import hashes
hashes.ALLOWED_NS = float(sys.argv[1])
from parquet_bloom.cli import run
sys.exit(run(sys.argv[2:]))
"""


def timed(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Seconds of processor time, and by the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    clock = time.perf_counter() - start
    assert done.returncode in (0, 1), command
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, clock


def rounds(commands: dict[str, Sequence[str]], folder: Path, runs: int) -> dict[str, list[tuple[float, float]]]:
    """All commands in turn, `runs` times after one round that does not count."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for turn in range(runs + 1):
        for name, command in commands.items():
            found = timed(command, folder)
            if turn:
                times[name].append(found)
    return times


def print_ratios(times: dict[str, list[tuple[float, float]]], peer: str) -> None:
    print(f"{'':34} {'processor':>9} {'ratio':>6} {'clock':>8} {'ratio':>6}")
    for name, found in times.items():
        line = f"{name:34}"
        for i in (0, 1):
            ratio = statistics.median(one[i] / other[i] for one, other in zip(found, times[peer], strict=True))
            line += f" {statistics.median(one[i] for one in found):8.3f}s {ratio:6.2f}"
        print(line)


def short_commands(folder: Path, runs: int, only: str) -> None:
    random = np.random.default_rng(1)
    n = 100_000
    table = pa.table(
        {
            "user_id": random.integers(0, 1 << 40, n),
            "session_id": [f"{x:032x}" for x in random.integers(0, 1 << 60, n)],
            "order_id": random.integers(0, 1 << 30, n).astype(np.int32),
            "price": random.random(n),
        }
    )
    pq.write_table(table, folder / "small.parquet", row_group_size=n // 4)
    parquet_bloom.add_filters(folder / "small.parquet", folder / "bloom.parquet", columns=["*_id"], overwrite=True)
    new = ["--output", "new.parquet", "--overwrite"]
    commands = {
        "python, pyarrow.parquet": PEER,
        "--version": [*OURS, "--version"],
        "--help": [*OURS, "--help"],
        "inspect": [*OURS, "inspect", "bloom.parquet"],
        "check, plain predicate": [*OURS, "check", "bloom.parquet", "user_id = 1"],
        "check, one for the parser": [*OURS, "check", "bloom.parquet", "(user_id = 1)"],
        "add, columns named": [*OURS, "add", "small.parquet", "--column", "*_id", *new],
        "add, columns chosen": [*OURS, "add", "small.parquet", *new],
        "remove": [*OURS, "remove", "bloom.parquet", *new],
        "verify": [*OURS, "verify", "bloom.parquet"],
        "read": [*OURS, "read", "bloom.parquet", "--where", "user_id = 1"],
        **PARTS,
    }
    peer = "python, pyarrow.parquet"
    chosen = {name: words for name, words in commands.items() if name == peer or name.startswith(only)}
    print_ratios(rounds(chosen, folder, runs), peer)


def both_loops(folder: Path, runs: int) -> None:
    for millions in (0.1, 0.5, 1, 2, 4, 8):
        n = int(millions * 1e6)
        table = pa.table({"id": np.random.default_rng(2).integers(-(1 << 62), 1 << 62, n)})
        pq.write_table(table, folder / "values.parquet", row_group_size=n // 8, use_dictionary=False)
        words = ["add", "values.parquet", "--column", "id", "--output", "new.parquet", "--overwrite"]
        commands = {
            "by numba": [sys.executable, "-c", FORCED, "-1", *words],
            "without it": [sys.executable, "-c", FORCED, "1e18", *words],
        }
        print(f"{millions} million values")
        print_ratios(rounds(commands, folder, runs), "by numba")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench"))
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--only", default="")
    parser.add_argument("--loops", action="store_true")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.loops:
        both_loops(given.folder, given.runs)
    else:
        short_commands(given.folder, given.runs, given.only)


if __name__ == "__main__":
    main()
