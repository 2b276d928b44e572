"""What `add --placement tail` costs on file systems that share blocks: in seconds and in bytes.

    sudo python benchmarks/tail.py [--rows 10000000] [--kind xfs] [--text] [--cached] [--folder FOLDER] [--runs 7]

The file of add.py, or with --text one of as many trace ids of 32 digits, on a new file system of that kind (xfs,
btrfs) in an image on a loop device, for which it takes root and mkfs. The device hands every write to the disk at
once, as a disk would take it; with --cached the image's pages gather in memory, and fsync has to wait for all of
them. These take turns, fsync included:

    tail         add_filters(placement="tail", in_place=True): a clone, the filters, a footer, a rename
    append       the same with append=True: behind the file itself, with a journal
    footer       add_filters(in_place=True), which copies what it cannot share
    limit        decoding the column, hashing and inserting, by the same threads; nothing is written
    write        a clone of the file, as many bytes as the tail has, fsync, a rename; nothing is built. Also what each
                 of these takes, in milliseconds

Ratios are medians over rounds, to the limit, of seconds and of processor time, and of the least of each. Bytes are
those that each wrote to the device, by the kernel's counters, its file system's own among them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from add import make


def make_text(path: Path, rows: int) -> None:
    """Ten row groups of random trace ids, as a tracing system writes them."""
    rng = np.random.default_rng(1)
    with pq.ParquetWriter(path, pa.schema({"key": pa.string()}), compression="zstd", use_dictionary=False) as writer:
        for _ in range(10):
            digits = rng.bytes(rows // 10 * 16).hex()
            writer.write_table(pa.table({"key": [digits[i : i + 32] for i in range(0, len(digits), 32)]}))


@contextmanager
def mounted(kind: str, folder: Path, size: int, cached: bool) -> Iterator[Path]:
    image, at = folder / f"{kind}.img", folder / f"on-{kind}"
    at.mkdir(exist_ok=True)
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    subprocess.run([f"mkfs.{kind}", "-q", image], check=True, capture_output=True)
    set_up = ["losetup", f"--direct-io={'off' if cached else 'on'}", "--find", "--show", image]
    device = subprocess.run(set_up, capture_output=True, text=True, check=True).stdout.strip()
    try:
        subprocess.run(["mount", device, at], check=True)
        try:
            yield at
        finally:
            subprocess.run(["umount", at], check=True)
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)
        image.unlink()


def written(at: Path) -> int:
    """Bytes written to the device of a mounted file system since it is there."""
    os.sync()
    found = subprocess.run(["findmnt", "-no", "SOURCE", at], capture_output=True, text=True, check=True)
    device = os.stat(found.stdout.strip()).st_rdev
    counters = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    return 512 * int(counters[6])


def limit(path: Path) -> None:
    """What cannot be avoided: the filters are built, by as many threads, and forgotten."""
    from parquet_bloom.edit.plan import Request, Run, plan_file
    from parquet_bloom.edit.writer import build_run, runs_of
    from parquet_bloom.filters.decode import ColumnReader
    from parquet_bloom.storage.open_file import OpenFile
    from parquet_bloom.storage.table_folders import Tables
    from parquet_bloom.storage.workers import Workers, processors

    request = Request.checked(columns=["key"])
    with OpenFile(path) as source, Workers(processors()) as workers:
        footer, plan = source.footer(), plan_file(source, Run(request, workers, Tables()))
        readers = {column: ColumnReader(source, footer.leaves[column]) for column in plan.columns}
        runs = runs_of(footer, sorted(plan.sizings))
        for _ in workers.in_order(lambda run: build_run(readers, footer, plan, request, run), runs):
            pass


PARTS = ("clone", "bytes", "fsync", "rename")


def write(path: Path, data: bytes) -> list[float]:
    """What the file system takes for a tail: seconds of each of PARTS. The rename lets go of the old file's pages."""
    from parquet_bloom.storage.operating_system import clone

    longer, times = path.with_name("longer"), [time.perf_counter()]
    with path.open("rb") as old, longer.open("wb", buffering=0) as new:
        assert clone(old.fileno(), new.fileno())
        times.append(time.perf_counter())
        new.seek(0, os.SEEK_END)
        new.write(data)
        times.append(time.perf_counter())
        os.fsync(new.fileno())
        times.append(time.perf_counter())
    longer.replace(path)
    times.append(time.perf_counter())
    return [stop - start for start, stop in pairwise(times)]


def measure(
    path: Path, runs: int
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, int], int, list[list[float]]]:
    """Seconds and bytes of each way, the bytes of filters and footer, and the seconds of PARTS of each `write`."""
    from parquet_bloom import add_filters, remove_filters

    def add(**options: object) -> Callable[[], object]:
        return lambda: add_filters(path, columns=["key"], in_place=True, **options)

    ways: dict[str, Callable[[], object]] = {
        "tail": add(placement="tail"),
        "append": add(placement="tail", append=True),
        "footer": add(),
        "limit": lambda: limit(path),
        "write": lambda: parts.append(write(path, data)),
    }
    data = b""
    parts: list[list[float]] = []
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    cost: dict[str, int] = {}
    for run in range(runs + 1):
        for name in random.Random(run).sample([*ways], len(ways)):  # in turns, one would always follow the same other
            path.read_bytes()  # warm, whatever came before
            before, size = written(path.parent), path.stat().st_size
            start, start_cpu = time.perf_counter(), time.process_time()
            ways[name]()
            seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
            if run:  # the first round compiles
                times[name].append((seconds, cpu))
            cost[name] = max(cost.get(name, 0), written(path.parent) - before)
            if name == "tail":
                data = path.read_bytes()[size:]
            if name != "limit":
                remove_filters(path, in_place=True)
    return times, cost, len(data), parts[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--kind", choices=["xfs", "btrfs"], default="xfs")
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--cached", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench"))
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    source = options.folder / f"{'text' if options.text else 'source'}-{options.rows}.parquet"
    if not source.exists():
        (make_text if options.text else make)(source, options.rows)
    size = source.stat().st_size
    with mounted(options.kind, options.folder, 4 * size + (512 << 20), options.cached) as at:
        path = at / source.name
        shutil.copyfile(source, path)
        times, cost, tail, parts = measure(path, options.runs)
    print(f"{options.kind}: {size:,} bytes, filters and footer {tail:,} bytes; {options.runs} runs")
    for name in ("tail", "append", "footer", "write"):
        pairs = list(zip(times[name], times["limit"], strict=True))
        wall, cpu = (statistics.median(ours[i] / best[i] for ours, best in pairs) for i in range(2))
        least, least_cpu = (min(v[i] for v in times[name]) / min(v[i] for v in times["limit"]) for i in range(2))
        over = f"{cost[name]:,} bytes written, {cost[name] - tail:,} more than the tail"
        ratios = f"{wall:5.2f} of the limit, {cpu:5.2f} of its processor time; least {least:5.2f}, {least_cpu:5.2f}"
        print(f"{name:8} {ratios}; {over}")
    each = (statistics.median(one) * 1000 for one in zip(*parts, strict=True))
    print("write, ms:", ", ".join(f"{name} {ms:.1f}" for name, ms in zip(PARTS, each, strict=True)))
    print(json.dumps({name: [round(v, 3) for v, _ in values] for name, values in times.items()}))


if __name__ == "__main__":
    main()
