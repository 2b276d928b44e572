"""State of one process, of which a forked child has its own, and threads where memory may be short.

A lock that another thread of the parent has at the fork is never released in the child. Connections and pools of
threads are the parent's.

Python's Thread.start waits until the new thread says that it runs. A thread that finds no memory to say so
leaves it waiting for ever, so room is asked for first, and pools start all of their threads before the work.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_ALL: WeakSet[ForkSafe[Any]] = WeakSet()


class ForkSafe(Generic[T]):
    """A value of this process; `make` makes it now, and anew in each forked child before that does anything else."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.own = make()
        _ALL.add(self)

    def renew(self) -> None:
        """Make the value anew."""
        self.own = self._make()


def _renew_all() -> None:
    for one in list(_ALL):
        one.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class Recent(Generic[K, T]):
    """Values by key, of which the `most` that were used last stay. Threads that share it take its lock."""

    def __init__(self, most: int) -> None:
        self.lock, self._most = threading.Lock(), most
        self._values: OrderedDict[K, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def find(self, key: K) -> T | None:
        """The value of a key, which counts as used; None: there is none."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def keep(self, key: K, value: T) -> None:
        """Keep a value as the one used last."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def drop(self, key: K) -> None:
        """Keep the value of a key no longer."""
        self._values.pop(key, None)


# --- threads --------------------------------------------------------------------------------------


_STACK_BYTES = 8 << 20  # what systems reserve for a thread unless told otherwise
_SPARE_BYTES = 16 << 20  # for what libraries keep a thread, and for Python's own objects


def check_room(threads: int) -> None:
    """Raise MemoryError unless there is memory to start so many threads more."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return
    size = threads * (threading.stack_size() or _STACK_BYTES) + _SPARE_BYTES
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError as error:
        raise _no_room(threads) from error


def started_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool whose threads all run. Raises MemoryError where they cannot be started."""
    check_room(threads)
    pool = ThreadPoolExecutor(threads, name)
    together = threading.Barrier(threads + 1)  # a thread that is idle would be given the next task
    try:
        for _ in range(threads):
            pool.submit(together.wait)
        together.wait()
    except BaseException as error:
        together.abort()  # else the threads that run would wait for ever, and the process for them
        pool.shutdown(cancel_futures=True)
        if isinstance(error, RuntimeError):  # the system's limit of threads
            raise _no_room(threads) from error
        raise
    return pool


def in_parts(work: Callable[[int, int], None], n: int, threads: int) -> None:
    """Do work(start, stop) over parts of 0 to n side by side, one of them in this thread; as one, where none starts.

    For loops that let go of Python's lock. Raises what the work raises.
    """
    if threads < 2:
        return work(0, n)
    try:
        pool = started_pool(threads - 1, "parquet-bloom-loop")
    except MemoryError:
        return work(0, n)
    stops = [n * (i + 1) // threads for i in range(threads)]
    with pool:
        others = [pool.submit(work, start, stop) for start, stop in pairwise(stops)]
        work(0, stops[0])
        for other in others:
            other.result()
    return None


def _no_room(threads: int) -> MemoryError:
    return MemoryError(f"there is no memory, or no leave, to start {threads} more threads")
