"""How a loop becomes machine code: lazily, once, and safe among many processes.

numba keeps what it compiled in a cache on disk (beside this file, or in the user's cache folder
where that is not writable). Spark executors start by the dozen and share it; kernels.cache says
when it may be used. numba takes code for that of a function as long as the function's own file has its size and
time. A kernel is also made of other files of this folder, and installed wheels can all have one time: so the name that
code is kept under has a checksum of all these files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

from numba import njit

from parquet_bloom.kernels.cache import CacheRefused, alone, check_ours, refuse_for_good, refused, sources
from parquet_bloom.kernels.threads import started_pool

_THREAD_LOCK = threading.RLock()


class Kernel:
    """A loop that is compiled, for its one signature, when it is first called."""

    def __init__(self, signature: Any, function: Callable[..., Any]) -> None:
        self.signature = signature
        self.python = function
        self.__doc__ = function.__doc__
        self._entry: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """Run the loop; compile it if this is the first call."""
        return (self._entry or self._compile())(*arguments)

    def _compile(self) -> Callable[..., Any]:
        if threading.current_thread() is not threading.main_thread():
            return self._load()
        # Python runs signal handlers in the main thread only. LLVM calls back into Python while it loads a kernel;
        # an exception there, as Control-C raises it, is lost at best and ends in a crash at worst.
        with started_pool(1, "parquet-bloom-compiler") as other:
            return other.submit(self._load).result()

    def _load(self) -> Callable[..., Any]:
        with _THREAD_LOCK:
            if self._entry is None:
                self._entry = self._cached() or self._uncached()
            return self._entry

    def _cached(self) -> Callable[..., Any] | None:
        if refused():
            return None
        self.python.__qualname__ = f"{self.python.__name__}-{sources():08x}"  # of which numba makes the files' names
        try:
            dispatcher = njit(nogil=True, cache=True)(self.python)
        except RuntimeError:
            return None  # numba finds no folder for a cache: a read-only or zipped installation
        try:
            check_ours(dispatcher.stats.cache_path)
            with alone(dispatcher.stats.cache_path):
                dispatcher.compile(self.signature)
        except CacheRefused as reason:
            refuse_for_good(reason)
            return None
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
