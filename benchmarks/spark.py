"""Filters for a data set on Spark: against Spark reading and writing it, many small files, memory of the driver.

    python benchmarks/spark.py [--folder /tmp/parquet-bloom-bench/spark] [--runs 5]
        [--only start|limit|rewrite|small|driver]

`start` is of whole processes; the others share one session, local[2]. Five questions, ratios first:

    start    `parquet-bloom spark add` of 3 small files, of 617 MB and of 3.7 GB, and `parquet-bloom add` of the same,
             over an empty Spark job: a session, one row through a Python worker, the end. Seconds of the clock, and
             of processors with those of Java and the workers (Linux). With --check the first is at most twice
             the empty job, by both, the least of all runs

    limit    what bounds the next one: its files copied by two processes, with fsync, without Spark; new files
             that stay in memory / those that leave it, as they do on Spark. Each after a pause of 4 s
    rewrite  10 files, 617 MB, 10 columns, filters on one: Spark reads and writes them with
             parquet.bloom.filter.enabled#key and expected.ndv#key / add_filters into another folder
    small    1,000 files of 1 MB, filters on one column: milliseconds a file, the session being there
    driver   what the driver's process and its JVM hold after a job over N listed files, for 1,000 and
             for 100,000; the files are listed but not there, so each is a row with an error
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import functools
import gc
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from parquet_bloom.output.atomic_file import AtomicFile
from parquet_bloom.spark import add as pipeline
from parquet_bloom.spark.frames import mark
from parquet_bloom.spark.listing import Listing
from parquet_bloom.spark.sessions import session

LARGE = 10, 1_055_000  # files, and rows of each
WARM_UP = 2  # rounds that do not count: Java compiles what runs often


def columns(rng: np.random.Generator, rows: int) -> pa.Table:
    made: dict[str, object] = {"key": rng.integers(-(2**63), 2**63 - 1, rows)}
    made |= {f"number{i}": rng.integers(0, 1_000_000, rows) for i in range(3)}
    made |= {f"measure{i}": rng.normal(size=rows) for i in range(3)}
    made["user"] = np.char.add("user", rng.integers(0, 100_000, rows).astype("U6"))
    made["kind"] = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, rows)]
    made["at"] = np.sort(rng.integers(int(1.70e15), int(1.71e15), rows))
    return pa.table(made)


def make(folder: Path, files: int, rows: int) -> int:
    """Write files of random keys; the bytes they have together."""
    if not folder.exists():
        folder.mkdir(parents=True)
        for i in range(files):
            table = columns(np.random.default_rng(i), rows)
            pq.write_table(table, folder / f"{i:04}.parquet", compression="zstd", row_group_size=max(rows // 4, 1))
    return sum(path.stat().st_size for path in folder.iterdir())


def timed(work: Callable[[Path], Any], target: Path) -> float:
    """Seconds from call to return, into a folder that is not there yet."""
    shutil.rmtree(target, ignore_errors=True)
    start = time.perf_counter()
    report = work(target)
    seconds = time.perf_counter() - start
    if report is not None:
        rows.extend(report.collect())
        report.unpersist()
    return seconds


def add(spark: Any, source: Path, sync: bool, target: Path) -> Any:
    return pipeline.add_filters(spark, [str(source)], columns=["key"], output=str(target), sync=sync)


rows: list[Any] = []  # of the reports, for a look after the clock has stopped


def rewrite(spark: Any, source: Path, ndv: int, target: Path) -> None:
    writer = spark.read.parquet(str(source)).write.option("compression", "zstd")
    for name, value in (("enabled", "true"), ("expected.ndv", str(ndv))):
        writer = writer.option(f"parquet.bloom.filter.{name}#key", value)
    writer.parquet(str(target))


# --- whole processes ----------------------------------------------------------------------------------

EMPTY = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
spark.range(1).mapInArrow(lambda batches: batches, "id bigint").count()
spark.stop()
"""
AT_MOST = 2.0  # times an empty job, that one of few files may cost
LINKS = 6  # names of each large file, in the largest folder
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, prctl(2): Java outlives the Python that started it, and is counted here


def whole(command: list[str]) -> tuple[float, float]:
    """Seconds of a process from start to end, and processor seconds of it and all that it started.

    These are looked up as they run: Java and the workers are nobody's children that are waited for.
    """
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    used: dict[int, float] = {}
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    while process.poll() is None:
        used |= below(os.getpid())
        time.sleep(0.1)
    seconds = time.perf_counter() - begun
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    with contextlib.suppress(ChildProcessError):
        while True:
            used |= below(os.getpid())
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.1)
    return seconds, sum(used.values())


def below(root: int) -> dict[int, float]:
    """The processes that descend from one -> processor seconds of each."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            used[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found, new = set(), {root}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return {pid: used[pid] for pid in found}


def whole_processes(folder: Path, runs: int, check: bool) -> None:
    sizes = {"few": make(folder / "few", 3, 15_000), "large": make(folder / "large", *LARGE)}
    largest = folder / "largest"
    largest.mkdir(exist_ok=True)
    for file in (folder / "large").iterdir():
        for i in range(LINKS):
            with contextlib.suppress(FileExistsError):
                os.link(file, largest / f"{i}-{file.name}")
    sizes["largest"] = LINKS * sizes["large"]
    commands = {"empty": [sys.executable, "-c", EMPTY]}
    for name in sizes:
        rest = [str(folder / name), "--column", "key", "--output", str(folder / "out")]
        commands[f"spark add, {name}"] = [*_COMMAND, "spark", "add", *rest, "--master", "local[2]"]
        commands[f"add, {name}"] = [*_COMMAND, "add", *rest]
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for run in range(runs):
        for name, command in commands.items():
            if name.endswith("largest") and run >= _LARGEST_RUNS:
                continue
            shutil.rmtree(folder / "out", ignore_errors=True)
            times[name].append(whole(command))
            print(name, *times[name][-1], file=sys.stderr, flush=True)
    best = {name: tuple(min(values) for values in zip(*taken, strict=True)) for name, taken in times.items()}
    for name, (seconds, processors) in best.items():
        ratios = [one / empty for one, empty in zip((seconds, processors), best["empty"], strict=True)]
        told = f"{ratios[0]:5.2f} of an empty job by the clock, {ratios[1]:5.2f} by processors"
        size = sizes.get(name.rpartition(" ")[2], 0)
        print(f"{name:20} {size:13,} bytes: {told}  ({seconds:.1f} s, {processors:.1f} s)")
    print(json.dumps(times))
    if check and max(a / b for a, b in zip(best["spark add, few"], best["empty"], strict=True)) > AT_MOST:
        raise SystemExit(f"a job of few files costs more than {AT_MOST} times an empty one")


_COMMAND = [sys.executable, "-m", "parquet_bloom"]
_LARGEST_RUNS = 1  # is enough to see what it tends to


def against_spark(spark: Any, folder: Path, runs: int) -> None:
    ndv = LARGE[1]
    size = make(folder / "large", *LARGE)
    work = {
        "Spark": functools.partial(rewrite, spark, folder / "large", ndv),
        "add_filters": functools.partial(add, spark, folder / "large", True),
        "add_filters, sync=False": functools.partial(add, spark, folder / "large", False),
    }
    times: dict[str, list[float]] = {name: [] for name in work}
    first: dict[str, float] = {}
    for run in range(-WARM_UP, runs):
        for name, job in work.items():
            target = folder / ("rewritten" if name == "Spark" else "out")
            # A virtual machine gives free memory back to its host, and new files wait for it to come again:
            # each run that counts follows one of its own kind.
            before = timed(job, target)
            first.setdefault(name, before)
            seconds = timed(job, target)
            if run >= 0:
                times[name].append(seconds)
    assert {row["status"] for row in rows} == {"done"}, rows
    for name in list(work)[1:]:
        ratios = [a / b for a, b in zip(times["Spark"], times[name], strict=True)]
        print(f"{size:,} bytes in 10 files: Spark reads and writes / {name}  {statistics.median(ratios):.2f}")
    print(json.dumps(times))
    print("the very first calls of the session, in this order:", json.dumps(first))
    each = sorted(row["seconds"] for row in rows)
    told = f"{each[0]:.2f}, {statistics.median(each):.2f}, {each[-1]:.2f}"
    print(f"seconds of a file, by the reports: least, median and most {told}, those that load the kernels included")


def copied(source: Path, target: Path, cached: bool) -> None:
    with source.open("rb") as old, AtomicFile(str(target), None, overwrite=False, sync=True, cached=cached) as new:
        new.at = source.stat().st_size
        new.copy_to(0, old.fileno(), 0, new.at)
        new.commit()


def limit(folder: Path, runs: int) -> None:
    size = make(folder / "large", *LARGE)
    files = sorted((folder / "large").iterdir())
    times: dict[bool, list[float]] = {True: [], False: []}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for run in range(-1, runs):
            for cached, taken in times.items():
                time.sleep(4)  # memory that is free by now may go back to a virtual machine's host

                def copies(target: Path, cached: bool = cached) -> None:
                    target.mkdir()
                    pool.starmap(copied, [(file, target / file.name, cached) for file in files], chunksize=1)

                seconds = timed(copies, folder / "out")
                if run >= 0:
                    taken.append(seconds)
    ratio = statistics.median(a / b for a, b in zip(times[True], times[False], strict=True))
    print(f"{size:,} bytes in 10 files copied by 2 processes, with fsync: new files stay / leave memory  {ratio:.2f}")
    print(json.dumps({"stay": times[True], "leave": times[False]}))


def small_files(spark: Any, folder: Path, runs: int) -> None:
    size = make(folder / "small", 1000, 15_500)
    job = functools.partial(add, spark, folder / "small", True)
    times = [timed(job, folder / "out") for _ in range(runs + 1)][1:]
    assert {row["status"] for row in rows} == {"done"}, rows
    print(f"{size:,} bytes in 1,000 files: {1000 * statistics.median(times) / 1000:.1f} ms a file")
    print(json.dumps({"add_filters": times}))


def driver(spark: Any, most: int) -> None:
    """Listing is simulated: the executors make up names."""
    jvm = spark.sparkContext._jvm

    def held() -> tuple[int, int]:
        gc.collect()
        for _ in range(3):
            jvm.System.gc()
            time.sleep(0.3)
        runtime = jvm.java.lang.Runtime.getRuntime()
        resident = next(line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)
        return int(resident.split()[1]) << 10, runtime.totalMemory() - runtime.freeMemory()

    for n in (1000, 1000, most, most):

        def simulated(spark: Any, *_: Any, n: int = n, **__: Any) -> tuple[Listing, Listing]:
            names = "concat('/nowhere/part-', id, '.parquet') path"
            rows = spark.range(0, n, 1, 64).selectExpr(
                names, "'/nowhere' root", "1000000L size", "'file' kind", "cast(null as string) error"
            )
            named = rows.selectExpr(mark()).head()[0]
            return Listing(rows, n, n * 1_000_000, named), Listing(rows.limit(0), 0, 0)

        few_by_tasks = mock.patch.object(pipeline, "list_few", return_value=None)
        with few_by_tasks, mock.patch.object(pipeline, "list_by_size", simulated):
            start = time.perf_counter()
            report = pipeline.add_filters(spark, ["/nowhere"], columns=["key"], in_place=True)
            assert report.count() == n
            seconds = time.perf_counter() - start
        python, java = held()
        # In local mode the JVM is that of the executors too, with their cached rows of the report.
        held_now = f"driver's Python {python >> 20} MiB, JVM {java >> 20} MiB in use"
        print(f"{n:,} files listed: {held_now}; {1e6 * seconds / n:,.0f} microseconds a file")
        report.unpersist(True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/parquet-bloom-bench/spark"))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--listed", type=int, default=100_000)
    parser.add_argument("--only", choices=["start", "limit", "rewrite", "small", "driver"])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.only in (None, "start"):
        whole_processes(options.folder, options.runs, options.check)
    if options.only == "start":
        return
    if options.only in (None, "limit"):
        limit(options.folder, options.runs)
    if options.only == "limit":
        return
    start = time.perf_counter()
    settings = {"memory": "4g", "host": "127.0.0.1", "bindAddress": "127.0.0.1"}
    with session("local[2]", {f"spark.driver.{name}": value for name, value in settings.items()}) as spark:
        spark.range(10).mapInArrow(lambda batches: batches, "id bigint").count()
        print(f"session and first worker: {time.perf_counter() - start:.1f} s")
        if options.only in (None, "rewrite"):
            against_spark(spark, options.folder, options.runs)
        if options.only in (None, "small"):
            small_files(spark, options.folder, options.runs)
        if options.only in (None, "driver"):
            driver(spark, options.listed)


if __name__ == "__main__":
    main()
