"""Files -> tasks of about the same work: a bound for the bytes of a task, and one for its files.

    listing partition 0   [f f f][f f][f         bins, filled one after the other as files stream by
    listing partition 1   [f f f][f              the last bin of each partition may be nearly empty:
    tasks                 0 .. 2, and 3 = both of these together

What the driver sees is a row of numbers for each partition of the listing, whatever the count of files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from parquet_bloom.errors import RequestError
from parquet_bloom.spark.frames import width

TASK_BYTES = 4 << 30  # of files whose columns are decoded
TASK_FILES = 1000
_LISTED_FILES = 10_000  # that a partition of a listing is worth having for
_BIN, _LISTED = "_bin", "_listed"
Full = tuple[int, int, int, int]


def packed(frame: Any, spark: Any, task_bytes: int = TASK_BYTES, task_files: int = TASK_FILES) -> Any:
    """Repartition a listing so that a partition is the files of one task; the same columns.

    frame       with a column `size`, bytes; other columns are carried along
    task_bytes  a task gets files of at most so many bytes, or one file alone
    task_files  and at most so many files, those of no size too

    Tasks are smaller where there would not be some for every processor. AQE leaves them as they are.
    Runs the listing, if it was not run yet; its rows with their tasks stay in Spark's cache.
    """
    if task_bytes < 1 or task_files < 1:
        raise RequestError("a task needs room for at least one byte and one file")
    from pyspark.sql import functions as sf

    names = frame.columns
    size, files = frame.agg(sf.sum("size"), sf.count(sf.lit(1))).first()
    frame = gathered(frame, int(files))
    tasks = width(spark)
    task_bytes = max(1, min(task_bytes, -(-int(size or 0) // tasks)))
    task_files = max(1, min(task_files, -(-int(files) // tasks)))

    binned = frame.withColumn(_LISTED, sf.spark_partition_id())
    kind = binned.withColumn(_BIN, sf.lit(0).cast("bigint")).schema
    binned = binned.mapInArrow(_binning(task_bytes, task_files), kind).persist()
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
    plan = spark.createDataFrame(starts, f"{_LISTED} int, _full bigint, _start bigint, _rest bigint")
    task = sf.when(sf.col(_BIN) < sf.col("_full"), sf.col("_start") + sf.col(_BIN)).otherwise(sf.col("_rest"))
    placed = binned.join(sf.broadcast(plan), _LISTED, "left").withColumn("_task", task.cast("int"))
    return placed.repartitionById(n, "_task").select(*names)


def shared_out(frame: Any, n_tasks: int) -> Any:
    """Repartition a listing of a bounded length into tasks of about the same bytes; the same columns.

    One task looks at the whole listing: the largest file first, always to the task with the least so far
    (LPT). It is a stage of the job that follows, not a job before it.
    """
    names = frame.columns
    kind = frame.selectExpr("*", "0 _task").schema
    return frame.coalesce(1).mapInArrow(_sharing(n_tasks), kind).repartitionById(n_tasks, "_task").select(*names)


def _sharing(n_tasks: int) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from heapq import heapreplace

        listed = list(batches)
        if not listed:
            return
        table = pa.Table.from_batches(listed).sort_by([("size", "descending"), ("path", "ascending")])
        least = [(0, task) for task in range(n_tasks)]
        tasks = []
        for size in table.column("size").to_pylist():
            held, task = least[0]
            heapreplace(least, (held + max(size or 0, 0) + 1, task))  # a file of no size is some work too
            tasks.append(task)
        yield from table.append_column("_task", pa.array(tasks, pa.int32())).to_batches()

    return run


def gathered(frame: Any, files: int) -> Any:
    """A listing without its many partitions of next to nothing, each of which would start a Python process."""
    return frame.coalesce(max(1, files // _LISTED_FILES))


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
