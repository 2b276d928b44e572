"""A folder that is held open: names in it mean the same place, wherever it or this process moves meanwhile.

Also the two renames that lose nothing, of Linux (renameat2): one that replaces nothing, and one
that swaps two names, so that what was there is still there to be looked at.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
from collections.abc import Callable
from typing import Any

_NO_REPLACE, _EXCHANGE = 1, 2
_UNKNOWN = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}
_HELD = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd and os.scandir in os.supports_fd


class Folder:
    """A folder that is open; all names are those of entries in it.

    path   absolute, as it was named
    fd     its descriptor; None where the system's calls do not take one
    syncs  whether `sync` waits for anything: not for a folder that may be written to, but not listed
    """

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.path = os.path.abspath(path)
        self.fd: int | None = None
        self.syncs = os.name != "nt"
        if _HELD:
            flags = os.O_DIRECTORY | os.O_CLOEXEC
            try:
                self.fd = os.open(self.path, os.O_RDONLY | flags)
            except PermissionError:
                self.syncs = False
                self.fd = os.open(self.path, getattr(os, "O_PATH", os.O_RDONLY) | flags)

    def close(self) -> None:
        """Let go of the folder. May be called twice."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def within(self, name: str) -> Folder:
        """A folder in this one."""
        return Folder(os.path.join(self.path, name))

    def empty(self) -> None:
        """Remove the files in it."""
        for name in self.names():
            self.remove(name)

    def _name(self, name: str) -> str:
        return name if self.fd is not None else os.path.join(self.path, name)

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a file in it, as os.open does; O_CLOEXEC is added."""
        return os.open(self._name(name), flags | os.O_CLOEXEC, mode, dir_fd=self.fd)

    def look(self, name: str) -> os.stat_result | None:
        """The stat of a name, of a link itself and not of its target; None where nothing has the name."""
        try:
            return os.stat(self._name(name), dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def make(self, name: str) -> None:
        """Make a folder in it that only its owner can enter."""
        os.mkdir(self._name(name), 0o700, dir_fd=self.fd)

    def remove(self, name: str, folder: bool = False) -> None:
        """Remove a file in it, or an empty folder."""
        (os.rmdir if folder else os.unlink)(self._name(name), dir_fd=self.fd)

    def names(self) -> list[str]:
        """List the names of what is in it, in no order."""
        with os.scandir(self.path if self.fd is None else self.fd) as entries:
            return [entry.name for entry in entries]

    def replace(self, name: str, new: str, into: Folder | None = None) -> None:
        """Rename, over whatever has the new name.

        into  the folder of the new name; this one unless given
        """
        into = into or self
        os.replace(self._name(name), into._name(new), src_dir_fd=self.fd, dst_dir_fd=into.fd)

    def put(self, name: str, new: str) -> None:
        """Rename, unless something has the new name. Raises FileExistsError."""
        if self._rename2(name, new, _NO_REPLACE):
            return
        try:
            os.link(self._name(name), self._name(new), src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if self.look(new) is not None:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
            self.replace(name, new)
            return
        with contextlib.suppress(OSError):  # the file is in its place; a later run removes the other name
            self.remove(name)

    def exchange(self, name: str, other: str) -> bool:
        """Swap two names at once; False where the system cannot. Raises OSError, also where one is missing."""
        return self._rename2(name, other, _EXCHANGE)

    def _rename2(self, name: str, new: str, flags: int) -> bool:
        call = _renameat2()
        if call is None or self.fd is None:
            return False
        while call(self.fd, os.fsencode(name), self.fd, os.fsencode(new), flags):
            code = ctypes.get_errno()
            if code in _UNKNOWN:
                return False
            if code != errno.EINTR:
                raise OSError(code, os.strerror(code))
        return True

    def sync(self) -> None:
        """Wait until renames in it are on the disk, where there is a way to."""
        if not self.syncs:
            return
        if self.fd is not None:
            os.fsync(self.fd)
        else:
            sync_folder(self.path)

    def is_where_it_was(self) -> bool:
        """Whether its path still names it."""
        if self.fd is None:
            return os.path.isdir(self.path)
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self.fd))
        except OSError:
            return False

    def locks_are_for_all(self) -> bool:
        """Whether a lock taken here is seen by everybody who can write here: a file system of one machine."""
        return self.fd is not None and _kind_of(self.fd) in _OF_ONE_MACHINE


def sync_folder(path: str) -> None:
    """Make a rename in a folder durable."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# --- what Python's os does not offer --------------------------------------------------------------

# statfs(2): ext4, xfs, btrfs, tmpfs, overlayfs, f2fs, zfs, bcachefs
_OF_ONE_MACHINE = {0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E}


@functools.cache
def _libc(name: str) -> Callable[..., int] | None:
    try:
        call: Any = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, OSError, TypeError):
        return None
    call.restype = ctypes.c_int
    found: Callable[..., int] = call
    return found


@functools.cache
def _renameat2() -> Callable[..., int] | None:
    call: Any = _libc("renameat2")
    if call is not None:
        call.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    found: Callable[..., int] | None = call
    return found


def _kind_of(fd: int) -> int:
    call = _libc("fstatfs")
    about = (ctypes.c_long * 64)()
    if call is None or os.uname().sysname != "Linux" or call(fd, about):
        return 0
    return int(about[0]) & 0xFFFFFFFF
