"""Temporary files: their names, their locks, and how a later run removes those of a killed one.

    .NAME.HOST-PID-RANDOM.parquet-bloom    beside NAME; locked (flock) while its process lives

Removed is what has such a name, is a regular file (or a folder of them) of this user, and has no
lock. Where a lock may not be seen from other machines, theirs are removed a day after the last write.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import stat
import time

from parquet_bloom.storage.writing.folder import Folder

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".parquet-bloom"
_NAME_BYTES = 120  # of the target's name; names have 255 at most
_OURS = re.compile(r"\..+\.[^-/]+-[0-9]+-[0-9a-f]{8}\.parquet-bloom", re.DOTALL)
_UNLOCKED = re.compile(r"\.bloomfilter\.lance\.[0-9]+-[0-9a-f]{8}\.parquet-bloom")  # those of first versions
_DAY_S = 86_400
_AGAIN_S = 0.5
_KEPT = 100
_cleared: dict[str, float] = {}  # folder -> when


def own_name(name: str) -> str:
    """A new name for what will become `name`."""
    short = os.fsdecode(os.fsencode(name)[:_NAME_BYTES])
    return f".{short}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"


def _host() -> str:
    return socket.gethostname().replace("/", "_").replace("-", "_")[:40] or "host"


def lock(fd: int) -> None:
    """Lock what we have just made, so that nobody takes it for a killed run's.

    Blocks while another process, which takes the file for stale, is deleting it. The caller then finds that the
    file has no name any more, and makes a new one.
    """
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(fd, fcntl.LOCK_EX)


def try_lock(fd: int) -> bool:
    """Lock a file unless another program has. Raises OSError where the file system has no locks."""
    if fcntl is None:
        raise OSError("this system has no locks")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def remove_stale(path: str) -> None:
    """Remove temporary files of runs that are no longer alive from a folder. What cannot be removed stays."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        folder = Folder(path)
        try:
            _clear(folder)
        finally:
            folder.close()


def clear_beside(*paths: str) -> None:
    """`remove_stale` in the folders of these paths, but not again right after: many files may lie in one."""
    for folder in {os.path.dirname(os.path.abspath(path)) for path in paths}:
        now = time.monotonic()
        if now - _cleared.get(folder, -_AGAIN_S) >= _AGAIN_S:
            if len(_cleared) > _KEPT:
                _cleared.clear()
            _cleared[folder] = now
            remove_stale(folder)


def clear_below(path: str) -> None:
    """`remove_stale` in the folders of a folder that hold such files; a folder that is empty then goes too."""
    with contextlib.suppress(OSError):
        for inside in [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]:
            if any(name.endswith(SUFFIX) for name in os.listdir(inside)):
                remove_stale(inside)
                with contextlib.suppress(OSError):  # not empty
                    os.rmdir(inside)


def _clear(folder: Folder) -> None:
    with contextlib.suppress(OSError):
        for name in folder.names():
            if name.endswith(SUFFIX) and name.startswith(".") and (_OURS.fullmatch(name) or _UNLOCKED.fullmatch(name)):
                with contextlib.suppress(OSError):
                    _remove(folder, name)


def _remove(folder: Folder, name: str) -> None:
    """Remove one that nobody holds. Raises OSError."""
    found = folder.look(name)
    if found is None or not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
        return
    if os.geteuid() not in (0, found.st_uid):
        return
    is_folder = stat.S_ISDIR(found.st_mode)
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_DIRECTORY if is_folder else 0)
    try:
        fd = folder.open(name, flags | (os.O_RDONLY if is_folder else os.O_RDWR))
    except PermissionError:
        fd = folder.open(name, flags | os.O_RDONLY)
    try:
        if not os.path.samestat(found, os.fstat(fd)) or not try_lock(fd):
            return
        own = f".{_host()}-" in name and _UNLOCKED.fullmatch(name) is None
        seen_by_all = folder.locks_are_for_all() and _UNLOCKED.fullmatch(name) is None
        if not own and not seen_by_all and time.time() - found.st_mtime < _DAY_S:
            return
        now = folder.look(name)
        if now is None or not os.path.samestat(now, found):
            return
        if is_folder:
            _empty(fd)
        folder.remove(name, is_folder)
    finally:
        os.close(fd)


def _empty(folder: int) -> None:
    """Remove the regular files of a folder of ours that is open."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
    for name in names:
        os.unlink(name, dir_fd=folder)
