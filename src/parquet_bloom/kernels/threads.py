"""Starting threads where memory may be short.

Python's Thread.start waits until the new thread says that it runs. A thread that finds no memory to say so
leaves it waiting for ever, so room is asked for first, and pools start all of their threads before the work.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

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
