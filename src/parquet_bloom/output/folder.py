"""An open folder for new files, and the temporary files in it: their names, locks, and those of killed runs.

    .NAME.HOST-PID-RANDOM.parquet-bloom    beside NAME; locked (flock) while its process lives

A later run removes those of a killed one: what has such a name, is a regular file (or a folder of them) of this user,
and has no lock. Where a lock may not be seen from other machines, theirs are removed a day after the last write.

Also the two renames that lose nothing, of Linux (renameat2): one that replaces nothing, and one
that swaps two names, so that what was there is still there to be looked at. And Hadoop's checksum
files of what is replaced, which step aside under temporary names.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Callable, Iterable
from typing import Any

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

_NO_REPLACE, _EXCHANGE = 1, 2
_UNKNOWN = {errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}
_HELD = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd and os.scandir in os.supports_fd


class Folder:
    """A folder that is open; all names are those of entries in it.

    path   absolute, as it was named
    fd     its descriptor; None where the system's calls do not take one
    syncs  whether `sync` waits for anything: not for a folder that may be written to, but not listed
    made   paths of the folders that were made for it, the innermost first
    """

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self.path = os.path.abspath(path)
        self.fd: int | None = None
        self.made: list[str] = []
        self.syncs = os.name != "nt"
        if _HELD:
            flags = os.O_DIRECTORY | os.O_CLOEXEC
            try:
                self.fd = os.open(self.path, os.O_RDONLY | flags)
            except PermissionError:
                self.syncs = False
                self.fd = os.open(self.path, getattr(os, "O_PATH", os.O_RDONLY) | flags)

    @classmethod
    def made_at(cls, path: str) -> Folder:
        """Open a folder; it is made where it is missing. Raises OSError; nothing that was made stays then."""
        made: list[str] = []
        missing = path
        while not os.path.isdir(missing):
            made.append(missing)
            missing = os.path.dirname(missing)
        try:
            if made:
                os.makedirs(path, exist_ok=True)
            folder = cls(path)
        except OSError:
            _remove_empty(made)
            raise
        folder.made = made
        return folder

    def unmake(self) -> None:
        """Remove the folders that were made for it, those that are empty."""
        _remove_empty(self.made)

    def close(self) -> None:
        """Let go of the folder. May be called twice."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None

    def within(self, name: str, make: bool = False) -> Folder:
        """Open a folder in this one; a link is no folder.

        make  make it where it is missing, as `made_at` does
        Raises OSError.
        """
        made = False
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self._name(name), dir_fd=self.fd)
                made = True
        path = os.path.join(self.path, name)
        if self.fd is not None:
            fd = self.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        elif not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return self._opened(path, fd if self.fd is not None else None, [path, *self.made] if made else self.made)

    def again(self) -> Folder:
        """The same folder, open once more; each is closed by itself."""
        return self._opened(self.path, None if self.fd is None else os.dup(self.fd), self.made)

    def _opened(self, path: str, fd: int | None, made: list[str]) -> Folder:
        folder = Folder.__new__(Folder)
        folder.path, folder.fd, folder.made, folder.syncs = path, fd, made, self.syncs
        return folder

    def empty(self) -> None:
        """Remove the files in it."""
        for name in self.names():
            self.remove(name)

    def _name(self, name: str) -> str:
        return name if self.fd is not None else os.path.join(self.path, name)

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a file in it, as os.open does; O_CLOEXEC is added."""
        return os.open(self._name(name), flags | os.O_CLOEXEC, mode, dir_fd=self.fd)

    def lstat(self, name: str) -> os.stat_result | None:
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
            if self.lstat(new) is not None:
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
        """Wait until renames in it are on the disk, where the system can."""
        if not self.syncs:
            return
        if self.fd is not None:
            os.fsync(self.fd)
        else:
            sync_folder(self.path)

    def sync_made(self) -> None:
        """Wait until the folders that were made for it are on the disk. Raises OSError."""
        for made in self.made:
            sync_folder(os.path.dirname(made))

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


def _remove_empty(folders: Iterable[str]) -> None:
    for folder in folders:
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def temporary_name(name: str) -> str:
    """A new name for what will become `name`."""
    short = os.fsdecode(os.fsencode(name)[:_NAME_BYTES])
    return f".{short}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"


def is_temporary(name: str) -> bool:
    """Whether a name is that of a temporary file of ours."""
    return _OURS.fullmatch(name) is not None or _UNLOCKED.fullmatch(name) is not None


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
    with contextlib.suppress(OSError):
        folder = Folder(path)
        try:
            remove_stale_in(folder)
        finally:
            folder.close()


def clear_beside(*paths: str) -> None:
    """`remove_stale` in the folders of these paths, but not again right after: many files may lie in one."""
    for folder in {os.path.dirname(os.path.abspath(path)) for path in paths}:
        if _is_due(folder):
            remove_stale(folder)


def clear_inside(folder: Folder) -> None:
    """The same in a folder that is open."""
    if _is_due(folder.path):
        remove_stale_in(folder)


def _is_due(folder: str) -> bool:
    now = time.monotonic()
    if now - _cleared.get(folder, -_AGAIN_S) < _AGAIN_S:
        return False
    if len(_cleared) > _KEPT:
        _cleared.clear()
    _cleared[folder] = now
    return True


def clear_below(path: str) -> None:
    """`remove_stale` in the folders of a folder that hold such files; a folder that is empty then goes too."""
    with contextlib.suppress(OSError):
        for inside in [entry.path for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]:
            if any(name.endswith(SUFFIX) for name in os.listdir(inside)):
                remove_stale(inside)
                with contextlib.suppress(OSError):  # not empty
                    os.rmdir(inside)


def remove_stale_in(folder: Folder) -> None:
    """`remove_stale` in a folder that is open."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for name in folder.names():
            if name.endswith(SUFFIX) and is_temporary(name):
                with contextlib.suppress(OSError):
                    _remove(folder, name)


def _remove(folder: Folder, name: str) -> None:
    """Remove one that nobody holds. Raises OSError."""
    found = folder.lstat(name)
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
        now = folder.lstat(name)
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


class Checksums:
    """Hadoop's checksum files of the old bytes: with them Spark would refuse the new ones.

    They go before the new bytes come, for a file without one is read as well; and come back if
    the new bytes do not. A link has one of its own, beside it.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = sorted({(os.path.dirname(p), f".{os.path.basename(p)}.crc") for p in paths})
        self._aside: list[tuple[Folder, str, str]] = []

    def set_aside(self, sync: bool) -> None:
        """Raises OSError."""
        for at, name in self._paths:
            folder = Folder(at)
            own = temporary_name(name)
            try:
                folder.replace(name, own)
            except FileNotFoundError:
                folder.close()
                continue
            except BaseException:
                folder.close()
                raise
            self._aside.append((folder, name, own))
            if sync:
                folder.sync()

    def put_back(self) -> None:
        """Give the checksum files back to the old version, which stays."""
        for folder, name, own in self._aside:
            with contextlib.suppress(OSError):
                folder.put(own, name)
        self.remove()  # what could not come back: the file is as good without

    def remove(self) -> None:
        """Remove the checksum files: they speak of the old version."""
        for folder, _, own in self._aside:
            with contextlib.suppress(OSError):
                folder.remove(own)
        self._close()

    def _close(self) -> None:
        for folder, _, _ in self._aside:
            folder.close()
        self._aside = []


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
