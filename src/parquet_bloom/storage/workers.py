"""The threads of one call: some that decode and hash, one that copies. They serve all its files."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, TypeVar

from parquet_bloom.kernels.threads import check_room, started_pool

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
