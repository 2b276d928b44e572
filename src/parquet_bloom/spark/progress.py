"""How far the jobs of a session are, as the driver knows it; the command shows it (`cli.progress`).

Spark's status tracker says how many tasks of the stages that run are done. Where filters are added, executors also
add the files and bytes they have finished to two accumulators, which Spark brings along when a task ends.
A task that is repeated counts twice, so these may run ahead a little; they decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

Tasks = Callable[[], tuple[int, int, int]]  # done, of how many, running; of the stages that run
Look = Callable[[], tuple[str, float | None]]  # in words, and the share that is done, 0 to 1; None: nobody knows


class JobProgress:
    """Counts for one job. The executors' copies only add.

    report  the rows of the report, where the driver has them; None: they are Spark's
    """

    report: Sequence[Mapping[str, Any]] | None = None

    def __init__(self, spark: Any) -> None:
        context = spark.sparkContext
        self._files = context.accumulator(0)
        self._bytes = context.accumulator(0)
        self.files = self.bytes = 0

    def expect(self, files: int, size: int) -> None:
        """On the driver, once the listing is known."""
        self.files, self.bytes = files, size

    def add(self, size: int) -> None:
        """On an executor: a file of so many bytes is finished."""
        self._files.add(1)
        self._bytes.add(size)

    @property
    def done(self) -> tuple[int, int]:
        """On the driver: files and bytes."""
        return self._files.value, self._bytes.value


@contextmanager
def counted(spark: Any) -> Iterator[tuple[JobProgress | None, Look]]:
    """What add_filters counts with, and a function that says how far the jobs of a session are.

    The counts are None on Spark Connect, whose server tells tasks alone. The function may be called from any thread.
    """
    job = None
    with _tasks_of(spark) as tasks:
        with suppress(Exception):  # Spark Connect
            job = JobProgress(spark)
        yield job, lambda: _look(job, tasks)


def _look(job: JobProgress | None, tasks: Tasks) -> tuple[str, float | None]:
    try:
        done, total, running = tasks()
    except Exception:  # the JVM is gone: the job's own error says what is wrong
        return "", None
    told = []
    share = done / total if total else None
    if job is not None and job.files:
        told.append(f"{job.done[0]:,} of {job.files:,} files")
        share = min(1.0, job.done[1] / job.bytes) if job.bytes else None  # files differ in size
    if total:
        # A cluster without a free executor lets a job wait for ever, and says so in a log that nobody sees.
        waiting = ", waiting for free executors" if not running and done < total else ""
        told.append(f"{done:,} of {total:,} tasks{waiting}")
    return ", ".join(told) or "preparing the next job", share


@contextmanager
def _tasks_of(spark: Any) -> Iterator[Tasks]:
    """A function that counts tasks, by the session's status tracker or the server's word."""
    try:
        tracker = spark.sparkContext.statusTracker()
    except Exception:  # Spark Connect
        with _told_by_server(spark) as told:
            yield told
        return

    def tasks() -> tuple[int, int, int]:
        infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
        counts = ((info.numCompletedTasks, info.numTasks, info.numActiveTasks) for info in infos)
        done, total, running = map(sum, zip((0, 0, 0), *counts, strict=True))
        return done, total, running

    yield tasks


@contextmanager
def _told_by_server(spark: Any) -> Iterator[Tasks]:
    latest = [(0, 0, 0)]

    def handle(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        running = [] if done else [stage for stage in stages or () if not stage.done]
        done_of = sum(stage.num_completed_tasks for stage in running), sum(stage.num_tasks for stage in running)
        latest[0] = *done_of, inflight_tasks

    spark.registerProgressHandler(handle)
    try:
        yield lambda: latest[0]
    finally:
        spark.removeProgressHandler(handle)
