"""How far a job is, on the driver's stderr: a bar where a person looks at it, else a line every ten seconds.

Spark's status tracker says how many tasks of the stages that run are done. Where filters are added, executors also
add the files and bytes they have finished to two accumulators, which Spark brings along when a task ends.
A task that is repeated counts twice, so these may run ahead a little; they decide nothing.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

SECONDS = 10.0  # between two lines
_REDRAWN = 0.5  # seconds between two looks of the bar
Tasks = Callable[[], tuple[int, int, int]]  # done, of how many, running; of the stages that run


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
def watched(spark: Any, quiet: bool = False) -> Iterator[JobProgress | None]:
    """Show on stderr how far the jobs of a session are, unless `quiet`; gives what add_filters counts with.

    None on Spark Connect, whose server tells tasks alone.
    """
    progress = None
    with _tasks_of(spark) as tasks:
        with suppress(Exception):  # Spark Connect
            progress = JobProgress(spark)
        shown = nullcontext() if quiet else _bar(progress, tasks) if sys.stderr.isatty() else _lines(progress, tasks)
        with shown:
            yield progress


@contextmanager
def _bar(progress: JobProgress | None, tasks: Tasks) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        shown = bar.add_task("starting", total=None)

        def look() -> None:
            if progress is not None and progress.files:  # by bytes: files differ in size
                done, total = progress.done[1], progress.bytes
            else:
                done, total, _ = tasks()
            bar.update(shown, description=_line(progress, tasks), completed=done, total=total or None)

        with _repeated(look, _REDRAWN):
            yield


@contextmanager
def _lines(progress: JobProgress | None, tasks: Tasks) -> Iterator[None]:
    started = time.monotonic()

    def look() -> None:
        seconds = time.monotonic() - started
        print(f"parquet-bloom: after {seconds:,.0f} s: {_line(progress, tasks)}", file=sys.stderr, flush=True)

    with _repeated(look, SECONDS):
        yield


def _line(progress: JobProgress | None, tasks: Tasks) -> str:
    told = []
    if progress is not None and progress.files:
        told.append(f"{progress.done[0]:,} of {progress.files:,} files")
    done, total, running = tasks()
    if total:
        # A cluster without a free executor lets a job wait for ever, and says so in a log that nobody sees.
        waiting = ", waiting for free executors" if not running and done < total else ""
        told.append(f"{done:,} of {total:,} tasks{waiting}")
    return ", ".join(told) or "preparing the next job"


@contextmanager
def _repeated(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call it every so often beside what is done here."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            try:
                look()
            except Exception:  # the JVM is gone, or stderr is closed: the job's own error says what is wrong
                return

    thread = threading.Thread(target=run, name="parquet-bloom-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


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
