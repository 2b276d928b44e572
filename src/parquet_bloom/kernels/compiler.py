"""How a loop becomes machine code: lazily, once, and safe among many processes.

numba keeps what it compiled in a cache on disk (beside this file, or in the user's cache folder
where that is not writable). Spark executors start by the dozen and share it; `check_ours` says
when it may be used. numba takes code for that of a function as long as the function's own file has its size and
time. A kernel is also made of other files of this folder, and installed wheels can all have one time: so the name that
code is kept under has a checksum of all these files.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from parquet_bloom.kernels import LOADING
from parquet_bloom.process import started_pool

# --- cache ----------------------------------------------------------------------------------------
#
# Whose code numba's cache on disk holds, and how processes take turns in it.
#
# What lies in that folder is loaded and run as machine code, so it must be as hard to change as this package
# is: the folder, what it holds and the folders above, as far as they are not above this package too, belong to
# root, to us or to whom this file belongs, and nobody else may write there; a group only if it may write this package,
# too. One with the sticky bit (/tmp) may be above it.
#
# Many processes that write one cache at once can crash (numba/numba#4807, #10128), so each takes a lock there, and
# waits for it only so long: whoever holds it for longer is not compiling. docs/architecture.md, "Workarounds".

PATIENCE_S = 15.0  # a kernel is compiled in two or three
_LOOK_S = 0.02
_LOCK = "parquet_bloom.lock"
_log = logging.getLogger("parquet_bloom")
_given_up: list[str] = []


@functools.cache
def sources() -> int:
    """CRC-32 of the modules that kernels are made of; 0 where there are none to read, as in a zip."""
    found = 0
    for path in sorted(Path(__file__).parent.glob("*.py")):
        found = zlib.crc32(path.read_bytes(), found)
    return found


class CacheRefused(Exception):
    """The cache is not to be used; the text says why."""


def refuse_for_good(reason: CacheRefused) -> None:
    """Say once a process why kernels are compiled without a cache."""
    if not _given_up:
        what = "compiled code is not kept, and compiling takes some seconds each time"
        _log.warning("%s: %s; NUMBA_CACHE_DIR may name a folder that only you can write to", reason, what)
    _given_up.append(str(reason))


def refused() -> bool:
    """Whether this process no longer uses the cache."""
    return bool(_given_up)


def check_ours(folder: str) -> None:
    """Raise CacheRefused where somebody else could have put code into the folder, or could do so now."""
    if not hasattr(os, "geteuid"):
        return  # Windows: a profile's folders are its user's
    path = os.path.realpath(folder)
    _check(path, os.stat(path))
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.name.endswith((".nbi", ".nbc")):
                _check(entry.path, entry.stat(follow_symlinks=False))
    package = os.path.realpath(__file__)
    while (path := os.path.dirname(path)) != os.path.commonpath([path, package]):
        found = os.stat(path)
        if not (found.st_mode & stat.S_ISVTX and found.st_uid in _trusted()):
            _check(path, found)


def _check(path: str, found: os.stat_result) -> None:
    if found.st_uid not in _trusted():
        raise CacheRefused(f"{path} belongs to user {found.st_uid}")
    if stat.S_ISLNK(found.st_mode):
        raise CacheRefused(f"{path} is a symbolic link")
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _may_change_this(found.st_gid)):
        raise CacheRefused(f"{path} can be written by other users")


def _trusted() -> set[int]:
    return {0, os.geteuid(), os.stat(__file__).st_uid}


def _may_change_this(gid: int) -> bool:
    """Whether a group may write where this package lies, as with umask 002: it gains nothing by the cache then.

    Who is in a group is no matter: /etc/group does not list the users whose primary group it is.
    """
    found = os.stat(os.path.dirname(__file__))
    return bool(found.st_mode & stat.S_IWGRP) and found.st_gid == gid


@contextlib.contextmanager
def alone(folder: str) -> Iterator[None]:
    """Let one process at a time compile into, or load from, the folder. Raises CacheRefused."""
    if not hasattr(os, "geteuid"):  # Windows: numba copes
        yield
        return
    handle = None
    with contextlib.suppress(PermissionError):  # a cache that we can only read needs no lock
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            handle = os.open(os.path.join(folder, _LOCK), flags, 0o600)
        except PermissionError:
            raise
        except OSError as error:
            raise CacheRefused(f"{folder}: no lock can be had there: {error.strerror}") from error
    try:
        if handle is not None:
            _take(handle, folder)
        yield
    finally:
        if handle is not None:
            os.close(handle)


def _take(handle: int, folder: str) -> None:
    import fcntl

    if os.fstat(handle).st_uid == os.geteuid():
        os.fchmod(handle, 0o600)  # earlier versions let others read it, and so hold the lock
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                reason = f"{os.path.join(folder, _LOCK)} has been locked by another process for {PATIENCE_S:.0f} s"
                raise CacheRefused(reason) from None
        except OSError as error:  # a file system without locks
            raise CacheRefused(f"{folder}: no lock can be had there: {error.strerror}") from error
        time.sleep(_LOOK_S)


# --- compiler -------------------------------------------------------------------------------------


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

    def _with_cache(self) -> Any:
        """numba's dispatcher. Raises RuntimeError where it finds no folder, in a read-only or zipped installation."""
        from numba import njit

        self.python.__qualname__ = f"{self.python.__name__}-{sources():08x}"  # of which numba makes the files' names
        return njit(nogil=True, cache=True)(self.python)

    def _compile(self) -> Callable[..., Any]:
        if threading.current_thread() is not threading.main_thread():
            return self._load()
        # Python runs signal handlers in the main thread only. LLVM calls back into Python while it loads a kernel;
        # an exception there, as Control-C raises it, is lost at best and ends in a crash at worst.
        with started_pool(1, "parquet-bloom-compiler") as other:
            return other.submit(self._load).result()

    def _load(self) -> Callable[..., Any]:
        with LOADING:
            if self._entry is None:
                import numpy.ma  # noqa: F401  (the first call would load it, when a fork waits no longer)

                self._entry = self._cached() or self._uncached()
            return self._entry

    def _cached(self) -> Callable[..., Any] | None:
        if refused():
            return None
        try:
            dispatcher = self._with_cache()
        except RuntimeError:
            return None
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
        from numba import njit

        dispatcher = njit(nogil=True)(self.python)
        dispatcher.compile(self.signature)
        return cast("Callable[..., Any]", dispatcher)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a Kernel; `signature` is a numba type, void(argument types)."""
    return lambda function: Kernel(signature, function)
