"""How far a job is: files and bytes that tasks have finished, shown on the driver while somebody watches.

Executors add to two accumulators; Spark's status tracker says how many tasks of which stages run.
A task that is repeated counts twice, so the bar may run ahead a little; it decides nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Progress:
    """Counts for one job. The executors' copies only add."""

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
def watched(spark: Any, quiet: bool = False) -> Iterator[Progress | None]:
    """A bar on stderr, while a person looks at it; None otherwise, and on sessions without a context here."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    try:
        progress = Progress(spark)
    except Exception:  # Spark Connect
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    over = threading.Event()
    with Bar(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task("listing", total=None)

        def look() -> None:
            tracker = spark.sparkContext.statusTracker()
            while not over.wait(0.5):
                files, size = progress.done
                text = f"{files:,} of {progress.files:,} files" if progress.files else "listing"
                bar.update(task, description=f"{text}{_tasks(tracker)}", completed=size, total=progress.bytes or None)

        thread = threading.Thread(target=look, name="parquet-bloom-progress", daemon=True)
        thread.start()
        try:
            yield progress
        finally:
            over.set()
            thread.join()


def _tasks(tracker: Any) -> str:
    infos = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    done = sum(info.numCompletedTasks for info in infos if info is not None)
    of = sum(info.numTasks for info in infos if info is not None)
    return f", {done} of {of} tasks" if of else ""
