"""One call over many files: its threads, and how far it is.

Some threads decode and hash, one copies; they serve all files. A callback shows how far the call is:

    add_filters("events/", in_place=True, progress=lambda p: print(f"{100 * p.share:.0f} %, {p.path}"))

The callback runs in the caller's thread, between two steps of the work. An error that it raises ends the call
as any other error would.
"""

from __future__ import annotations

import os
import queue
import signal
import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, TypeVar

from parquet_bloom.process import check_room, started_pool
from parquet_bloom.storage.display import Brief
from parquet_bloom.storage.remote import Location


@dataclass(frozen=True, slots=True, repr=False)
class Progress(Brief):
    """One report of a call that works on files.

    stage                  "search" while footers and filters are asked which row groups to read, else "work"
    files_done, files      files that are finished, of how many
    bytes_done, bytes      of the files' sizes (of `read`: of the row groups to read), the finished share of the
                           current file included; None where sizes are not known without asking a storage
    path                   the current file, or the one that was just finished
    parts_done, parts      of the current file; 0 where not counted
    unit                   what the parts are: "filters" (add), "column chunks" (verify), "row groups" (inspect)
    """

    stage: str
    files_done: int
    files: int
    bytes_done: int | None
    bytes: int | None
    path: str
    parts_done: int = 0
    parts: int = 0
    unit: str = ""

    @property
    def share(self) -> float:
        """How much is done, 0 to 1: of bytes where these are known, else of files."""
        if self.bytes:
            return min(1.0, (self.bytes_done or 0) / self.bytes)
        part = self.parts_done / self.parts if self.parts and self.files_done < self.files else 0.0
        return (self.files_done + part) / self.files if self.files else 1.0


ProgressCallback = Callable[[Progress], None]


class Meter:
    """Counts the files of one call, in order, for a callback. Without a callback it does nothing."""

    def __init__(
        self,
        callback: ProgressCallback | None,
        files: Sequence[Location | str] = (),
        stage: str = "work",
        unit: str = "",
    ) -> None:
        self._tell = callback
        self._stage, self._unit = stage, unit
        self._paths: list[str] = []
        self._ends: list[int] | None = None  # bytes of the files up to each one
        self._done = 0
        self._thread = threading.get_ident()
        if callback is not None:
            self._paths = [str(file) for file in files]
            local = [file for file in files if isinstance(file, Location) and file.is_local]
            if len(local) == len(files):
                self._ends = list(accumulate(map(_size, local)))

    def start(self) -> None:
        """The next file is begun."""
        self._report(self._done, 0, 0)

    def part(self, done: int, parts: int) -> None:
        """So many filters or row groups of the current file are done; files that run side by side report no parts."""
        if threading.get_ident() == self._thread:
            self._report(self._done, done, parts)

    def finish(self, files: int = 1) -> None:
        """The current file is finished, or has failed; or so many are, one after the other."""
        if self._tell is None:
            self._done += files
            return
        for _ in range(files):
            self._done += 1
            self._report(self._done, 0, 0)

    def _report(self, files_done: int, done: int, parts: int) -> None:
        if self._tell is None:
            return
        at = min(files_done if parts or not files_done else files_done - 1, len(self._paths) - 1)
        so_far = total = None
        if self._ends:
            total = self._ends[-1]
            so_far = self._ends[files_done - 1] if files_done else 0
            if parts and files_done < len(self._ends):
                so_far += (self._ends[files_done] - so_far) * done // parts
        path = self._paths[at] if self._paths else ""
        self._tell(Progress(self._stage, files_done, len(self._paths), so_far, total, path, done, parts, self._unit))


class RowMeter:
    """Counts the rows of row groups that are read one after the other, and reports bytes and files to a callback.

    files  (path, rows, bytes) of what is to be read of each file, in order
    """

    def __init__(self, callback: ProgressCallback | None, files: Sequence[tuple[str, int, int]]) -> None:
        self._tell = callback
        self._paths = [path for path, _, _ in files]
        self._rows = list(accumulate(rows for _, rows, _ in files))
        self._bytes = sum(size for _, _, size in files)
        self._seen = 0

    def add(self, rows: int) -> None:
        """So many rows more were read."""
        self._seen += rows
        if self._tell is not None and self._paths:
            done = bisect_right(self._rows, self._seen)
            size = self._bytes * self._seen // self._rows[-1] if self._rows[-1] else self._bytes
            path = self._paths[min(done, len(self._paths) - 1)]
            self._tell(Progress("work", done, len(self._paths), size, self._bytes, path))


def _size(file: Location) -> int:
    try:
        return os.stat(file.path).st_size
    except OSError:  # opening it will say so
        return 0


# --- threads --------------------------------------------------------------------------------------


K = TypeVar("K")
R = TypeVar("R")
_ENDING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_ignoring_signals(work: Callable[[], R], interrupted: Callable[[], None] = lambda: None) -> R:
    """Do work in a thread of its own, where no signal can end it at any odd place; raises what it raises.

    interrupted  called when a signal wants to end this thread; that happens when the work has ended
    """
    try:
        pool = started_pool(1, "parquet-bloom-upload")
    except MemoryError:
        return work()
    future = pool.submit(work)
    stop: BaseException | None = None
    while not future.done():
        try:
            wait([future])
        except BaseException as error:
            stop = stop or error
            interrupted()
    pool.shutdown()
    if stop is not None:
        raise stop
    return future.result()


@contextmanager
def signals_wait() -> Iterator[None]:
    """Let Python's handlers of signals, and so Control-C, wait until a few system calls are done."""
    if threading.current_thread() is not threading.main_thread():
        yield  # they run in the main thread only
        return
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    came: list[tuple[int, Any]] = []
    waiting = True

    def note(number: int, frame: Any) -> None:
        if waiting:
            came.append((number, frame))
        else:  # it came while the handlers were being put back
            call(number, frame)

    def call(number: int, frame: Any) -> None:
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    try:
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, note)
        yield
    finally:
        waiting = False
        for number, handler in handlers.items():
            if callable(handler):
                signal.signal(number, handler)
        for one in came[:1]:
            call(*one)


class Workers:
    """`threads` threads for building filters and one for copying bytes."""

    def __init__(self, threads: int) -> None:
        """Start them. Raises MemoryError where there is no memory for that."""
        self.threads = threads
        self._builders = started_pool(threads, "parquet-bloom")
        try:
            self._copier = started_pool(1, "parquet-bloom-copy")
        except MemoryError:
            self._builders.shutdown()
            raise
        self._pending: deque[Future[Any]] = deque()
        self._copying: Future[Any] | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._builders.shutdown(cancel_futures=True)
        self._copier.shutdown(cancel_futures=True)

    def in_order(self, work: Callable[[K], R], keys: Iterable[K]) -> Iterator[R]:
        """Work on keys side by side, a few ahead of the caller, and give the results in order."""
        rest = iter(keys)
        pending: deque[Future[R]] = deque()
        self._pending = pending
        for key in islice(rest, 2 * self.threads):
            pending.append(self._builders.submit(work, key))
        while pending:
            result = pending[0].result()
            pending.popleft()
            for key in islice(rest, 1):
                pending.append(self._builders.submit(work, key))
            yield result

    def copy(self, work: Callable[[], R]) -> Future[R]:
        """Start copying beside the building."""
        self._copying = self._copier.submit(work)
        return self._copying

    def settle(self) -> None:
        """Cancel what has not begun and wait for what has: the file it works on is about to close."""
        waiting = [*self._pending, *([self._copying] if self._copying is not None else [])]
        self._pending, self._copying = deque(), None
        wait([future for future in waiting if not future.cancel()])


class WorkerSets:
    """Workers for several files at a time: each file takes a set, which serves another file later.

    Of one file after the other there is one set.
    """

    def __init__(self, threads: int) -> None:
        """Start the first set. Raises MemoryError where there is no memory for that."""
        self._threads = threads
        self._lock = threading.Lock()
        self._all = [Workers(threads)]
        self._idle: queue.SimpleQueue[Workers] = queue.SimpleQueue()
        self._idle.put(self._all[0])

    def __enter__(self) -> WorkerSets:
        return self

    def __exit__(self, *error: object) -> None:
        for workers in self._all:
            workers.__exit__(*error)

    @contextmanager
    def taken(self) -> Iterator[Workers]:
        """A set that nobody else has meanwhile."""
        workers = self._take()
        try:
            yield workers
        finally:
            self._idle.put(workers)

    def _take(self) -> Workers:
        with suppress(queue.Empty):
            return self._idle.get_nowait()
        try:
            workers = Workers(min(self._threads, max(2, self._threads // 8)))
        except MemoryError:
            return self._idle.get()  # when another file is done
        with self._lock:
            self._all.append(workers)
        return workers


_LOOK_S = 0.05  # seconds between a producer's checks whether its results are still wanted


def _put(out: queue.Queue[Any], item: Any, stopped: threading.Event) -> bool:
    """Put an item where its consumer takes it; False where that one has gone."""
    while not stopped.is_set():
        try:
            out.put(item, timeout=_LOOK_S)
            return True
        except queue.Full:
            continue
    return False


def chain_results(
    work: Callable[[K], Iterable[R]], keys: Sequence[K], threads: int, ahead: int
) -> Generator[R, None, None]:
    """The results of all keys, one after the other; the next `threads` keys run ahead, each by `ahead` results.

    Whoever leaves the iterator early, by an error too, waits only for the results that are being made.
    """
    stopped = threading.Event()
    # A queue gets (result, None) for each result, (None, error) for an error, and None at the end.
    waiting: deque[tuple[threading.Thread, queue.Queue[Any]]] = deque()

    def run(key: K, out: queue.Queue[Any]) -> None:
        try:
            for result in work(key):
                if not _put(out, (result, None), stopped):
                    return
            _put(out, None, stopped)
        except BaseException as error:
            _put(out, (None, error), stopped)

    def start(key: K) -> None:
        check_room(1)
        out: queue.Queue[Any] = queue.Queue(ahead)
        waiting.append((threading.Thread(target=run, args=(key, out), name="parquet-bloom", daemon=True), out))
        waiting[-1][0].start()

    rest = iter(keys)
    try:
        for key in islice(rest, max(1, threads)):
            start(key)
        while waiting:
            while (item := waiting[0][1].get()) is not None:
                if item[1] is not None:
                    raise item[1]
                yield item[0]
            waiting.popleft()[0].join()
            for key in islice(rest, 1):
                start(key)
    finally:
        stopped.set()
        for thread, _ in waiting:
            thread.join()
