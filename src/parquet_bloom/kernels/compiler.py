"""How a loop becomes machine code: lazily, once, and safe among many processes.

numba keeps what it compiled in a cache on disk (beside this file, or in the user's cache folder
where that is not writable). Many processes that write one cache at once can crash (numba #4807),
and Spark executors start by the dozen, so compiling and loading happen under a file lock.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from numba import njit

_THREAD_LOCK = threading.RLock()


@contextlib.contextmanager
def _alone(cache_path: str) -> Iterator[None]:
    """Let one process at a time compile into, or load from, the cache folder."""
    handle = None
    try:
        import fcntl

        os.makedirs(cache_path, exist_ok=True)
        lock = os.path.join(cache_path, "parquet_bloom.lock")
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(handle, fcntl.LOCK_EX)
    except (ImportError, OSError):
        pass  # Windows, or a cache of somebody else's that can only be read: numba copes
    try:
        yield
    finally:
        if handle is not None:
            os.close(handle)


class Kernel:
    """A loop that is compiled, for its one signature, when it is first called."""

    def __init__(self, signature: Any, function: Callable[..., Any]) -> None:
        self.signature = signature
        self.python = function
        self.__doc__ = function.__doc__
        self._entry: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return (self._entry or self._compile())(*arguments)

    def _compile(self) -> Callable[..., Any]:
        if threading.current_thread() is not threading.main_thread():
            return self._load()
        # Python runs signal handlers in the main thread only. LLVM calls back into Python while it loads a kernel;
        # an exception there, as Control-C raises it, is lost at best and ends in a crash at worst.
        with ThreadPoolExecutor(1, "parquet-bloom-compiler") as other:
            return other.submit(self._load).result()

    def _load(self) -> Callable[..., Any]:
        with _THREAD_LOCK:
            if self._entry is None:
                self._entry = self._cached() or self._uncached()
            return self._entry

    def _cached(self) -> Callable[..., Any] | None:
        try:
            dispatcher = njit(nogil=True, cache=True)(self.python)
        except RuntimeError:
            return None  # numba finds no folder for a cache: a read-only or zipped installation
        with _alone(dispatcher.stats.cache_path):
            try:
                dispatcher.compile(self.signature)
            except OSError:
                return None  # the cache's disk is full, or its folder went away
        dispatcher.disable_compile()
        return cast("Callable[..., Any]", dispatcher)

    def _uncached(self) -> Callable[..., Any]:
        dispatcher = njit(nogil=True)(self.python)
        dispatcher.compile(self.signature)
        return cast("Callable[..., Any]", dispatcher)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a Kernel; `signature` is a numba type, void(argument types)."""
    return lambda function: Kernel(signature, function)
