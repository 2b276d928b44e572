"""Files -> tasks of about the same work: a bound for the bytes of a task, and one for its files.

Up to 100,000 are sorted by size and dealt out. Of longer listings no task looks at all:

    listing partition 0   [f f f][f f][f         bins, filled one after the other as files stream by
    listing partition 1   [f f f][f              the last bin of each partition may be nearly empty:
    tasks                 0 .. 2, and 3 = both of these together

What the driver sees is a row of numbers for each partition of the listing, whatever the count of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import RequestError
from parquet_bloom.spark.frames import frame_of, kept, mapped, parallelism, width
from parquet_bloom.spark.listing import FewFiles, Listing

TASK_BYTES = 4 << 30  # of files whose columns are decoded
TASK_FILES = 1000
_AT_ONCE = 100_000  # files that one task may share out
_OPENING = 8 << 20  # bytes that take as long as opening and committing a file: 12 ms, and 1.4 ms for a MiB
_WORTH_A_TASK = 256 << 20  # starting one takes as long as 40 MiB
_LISTED_FILES = 10_000  # that a partition of a listing is worth having for
_BIN, _LISTED = "_bin", "_listed"
Full = tuple[int, int, int, int]


def packed(listed: Listing, spark: Any, task_bytes: int = TASK_BYTES, task_files: int = TASK_FILES) -> Any:
    """Repartition a listing so that a partition is the files of one task; the same columns.

    task_bytes  a task gets files of about so many bytes at most, or one file alone
    task_files  and about so many files, those of no size too

    Small work is spread over the processors. AQE leaves the tasks as they are.
    """
    if task_bytes < 1 or task_files < 1:
        raise RequestError("a task needs room for at least one byte and one file")
    if listed.files <= _AT_ONCE:
        return _shared_out(listed.rows, _task_count(listed, parallelism(spark), task_bytes, task_files))
    return _in_bins(listed, spark, task_bytes, task_files)


def dealt(files: FewFiles, processors: int, task_bytes: int) -> list[list[dict[str, Any]]]:
    """The same of few files, on the driver: of each task its own."""
    listed = Listing(None, len(files.rows), files.size)
    n = _task_count(listed, processors, task_bytes, TASK_FILES)
    tasks: list[list[dict[str, Any]]] = [[] for _ in range(n)]
    for i, row in enumerate(sorted(files.rows, key=lambda row: (-row["size"], row["path"]))):
        at = i % (2 * n)
        tasks[min(at, 2 * n - 1 - at)].append(row)
    return tasks


def by_name(listed: Listing, spark: Any, task_files: int = 2 * TASK_FILES) -> Any:
    """Repartition a listing for work that takes about the same time for each file; the same columns.

    A file's task depends on its name alone. Should Spark lose its copy of a listing with an executor, and
    list again while sizes change, no file is left out: what prunes files must not.
    """
    n = _task_count(replace(listed, size=0), parallelism(spark), 1, task_files)
    return listed.rows.repartition(n, "path")


def _task_count(listed: Listing, processors: int, task_bytes: int, task_files: int) -> int:
    """Tasks within both bounds; some for each processor, if there is work for them."""
    worthwhile = min(4 * processors, (listed.size + listed.files * _OPENING) // _WORTH_A_TASK)
    n = max(-(-listed.size // task_bytes), -(-listed.files // task_files), worthwhile, 1)
    return max(1, min(-(-n // processors) * processors, listed.files))


def _shared_out(frame: Any, n_tasks: int) -> Any:
    """Files by their sizes, dealt to tasks 0 .. n-1, n-1 .. 0, 0 .. and so on.

    Tasks differ by at most one file, and by at most the bytes of the largest. All of it is a stage of
    the job that follows, in Spark itself.
    """
    ordered = frame.coalesce(1).sortWithinPartitions(["size", "path"], ascending=[False, True])
    at = f"monotonically_increasing_id() % {2 * n_tasks}"  # 0, 1, ... in the one partition
    dealt = ordered.selectExpr("*", f"cast(least({at}, {2 * n_tasks - 1} - {at}) as int) _task")
    return dealt.repartitionById(n_tasks, "_task").drop("_task")


def _in_bins(listed: Listing, spark: Any, task_bytes: int, task_files: int) -> Any:
    """Its rows with their tasks stay in Spark's cache."""
    from pyspark.sql import functions as sf

    frame = gathered(listed)
    names = frame.columns
    tasks = width(spark)
    task_bytes = max(1, min(task_bytes, -(-listed.size // tasks)))
    task_files = max(1, min(task_files, -(-listed.files // tasks)))

    binned = frame.withColumn(_LISTED, sf.spark_partition_id())
    kind = binned.withColumn(_BIN, sf.lit(0).cast("bigint")).schema
    binned = kept(mapped(binned, _binning(task_bytes, task_files), kind))
    # Of each partition: how many bins, and what the last one holds.
    last = sf.struct(_BIN, "bytes", "files")
    rows = (
        binned.groupBy(_LISTED, _BIN)
        .agg(sf.sum("size").alias("bytes"), sf.count(sf.lit(1)).alias("files"))
        .groupBy(_LISTED)
        .agg(sf.max(last).alias("last"))
        .orderBy(_LISTED)
        .collect()
    )
    known = [(int(r[0]), int(r[1][0]), int(r[1][1] or 0), int(r[1][2])) for r in rows]
    starts, n = numbered(known, task_bytes, task_files)
    if not starts:
        return frame
    plan = frame_of(spark, starts, f"{_LISTED} int, _full bigint, _start bigint, _rest bigint")
    task = sf.when(sf.col(_BIN) < sf.col("_full"), sf.col("_start") + sf.col(_BIN)).otherwise(sf.col("_rest"))
    placed = binned.join(sf.broadcast(plan), _LISTED, "left").withColumn("_task", task.cast("int"))
    return placed.repartitionById(n, "_task").select(*names)


def gathered(listed: Listing) -> Any:
    """Its rows without many partitions of next to nothing, each of which would start a Python process."""
    return listed.rows.coalesce(max(1, listed.files // _LISTED_FILES))


def numbered(parts: Iterable[Full], task_bytes: int, task_files: int) -> tuple[list[Full], int]:
    """Number the tasks without gaps.

    parts    (partition, its full bins, bytes and files of its last bin)
    returns  (partition, its full bins, task of its first bin, task of its last bin), and how many tasks
    """
    rest: list[tuple[int, int]] = []  # bytes and files of tasks made of last bins
    placed = []
    start = 0
    for part, full, size, files in parts:
        # The open task with the least in it is the last one or none: as with files, none is looked at twice.
        if not rest or rest[-1][0] + size > task_bytes or rest[-1][1] + files > task_files:
            rest.append((0, 0))
        rest[-1] = (rest[-1][0] + size, rest[-1][1] + files)
        placed.append((part, full, start, len(rest) - 1))
        start += full
    return [(part, full, first, start + last) for part, full, first, last in placed], start + len(rest)


def _binning(task_bytes: int, task_files: int) -> Any:
    """Give every file of a partition its bin, in the order in which they come (next-fit)."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at, held, files = 0, 0, 0
        for batch in batches:
            bins = []
            for size in batch.column(batch.schema.get_field_index("size")).to_pylist():
                size = max(size or 0, 0)
                if files and (held + size > task_bytes or files == task_files):
                    at, held, files = at + 1, 0, 0
                held += size
                files += 1
                bins.append(at)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(bins, pa.int64())], names=[*batch.schema.names, _BIN]
            )

    return run
