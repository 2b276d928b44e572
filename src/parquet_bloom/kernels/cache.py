"""Whose code numba's cache on disk holds, and how processes take turns in it.

What lies in that folder is loaded and run as machine code, so it must be as hard to change as this package
is: the folder, what it holds and the folders above, as far as they are not above this package too, belong to
root, to us or to whom this file belongs, and nobody else may write there. One with the sticky bit (/tmp) may be
above it.

Many processes that write one cache at once can crash (numba/numba#4807, #10128), so each takes a lock there, and
waits for it only so long: whoever holds it for longer is not compiling. docs/architecture.md, "Workarounds".
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

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
    """Whether this process has given the cache up."""
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
    if found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_our_own_group(found.st_gid)):
        raise CacheRefused(f"{path} can be written by other users")


def _trusted() -> set[int]:
    return {0, os.geteuid(), os.stat(__file__).st_uid}


def _is_our_own_group(gid: int) -> bool:
    """Whether a group is the one that many systems give every user, of the same name and without others."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


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
                reason = f"{os.path.join(folder, _LOCK)} has been held by another process for {PATIENCE_S:.0f} s"
                raise CacheRefused(reason) from None
        except OSError as error:  # a file system without locks
            raise CacheRefused(f"{folder}: no lock can be had there: {error.strerror}") from error
        time.sleep(_LOOK_S)
