"""Calls of the operating system: copying and cloning inside it, free space, the umask."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading

from parquet_bloom.errors import StorageError

_COPY_STEP = 64 << 20  # so that a signal is noticed
_CROSS_DEVICE = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF, errno.EPERM}
_CANNOT_CLONE = _CROSS_DEVICE | {errno.ENOTTY, errno.ETXTBSY}
_FICLONE = 0x40049409  # ioctl of Linux, linux/fs.h
_ASKING = threading.Lock()
_FILE_SYSTEMS: dict[tuple[int, int], str] = {}  # (mount, device) -> its type

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


def clone(source: int, target: int) -> bool:
    """Make an empty file share all blocks of another one; False where the file system cannot."""
    if fcntl is None or not sys.platform.startswith("linux"):
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno not in _CANNOT_CLONE:
            raise
        return False
    return True


def copy_range(source: int, target: int, source_at: int, target_at: int, length: int) -> None:
    """Copy bytes between files inside the operating system, or through a buffer where it cannot."""
    while length:
        step = min(length, _COPY_STEP)
        try:
            n = os.copy_file_range(source, target, step, source_at, target_at)
        except AttributeError:
            n = _copy_step(source, target, source_at, target_at, step)
        except OSError as error:
            if error.errno not in _CROSS_DEVICE:
                raise
            n = _copy_step(source, target, source_at, target_at, step)
        if n == 0:
            raise OSError(errno.EIO, "the file became shorter while it was read")
        source_at, target_at, length = source_at + n, target_at + n, length - n


def _copy_step(source: int, target: int, source_at: int, target_at: int, length: int) -> int:
    data = memoryview(os.pread(source, min(length, 1 << 20), source_at))
    n = len(data)
    while data:
        written = os.pwrite(target, data, target_at)
        data, target_at = data[written:], target_at + written
    return n


def free_space(target: str) -> int:
    """Bytes free for us where target will lie, or in the nearest folder above it that exists."""
    folder = os.path.dirname(os.path.realpath(target)) or "."
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return _free(folder)


def _free(at: str | int) -> int:
    import shutil  # for those alone who write: it loads three compressions

    return shutil.disk_usage(at).free


def require_space(target: object, needed: int, fd: int | None = None) -> None:
    """Raise StorageError if the disk of the target, or of an open file, has less than `needed` bytes free."""
    free = free_space(str(target)) if fd is None else _free(fd)
    if needed > free:
        raise StorageError(target, f"the disk has {free:,} bytes free, {needed:,} are needed")


def mount_of(fd: int) -> int | None:
    """The number of the mount through which a file is open; None where the system has none."""
    with contextlib.suppress(OSError), open(f"/proc/self/fdinfo/{fd}", "rb") as about:  # since Linux 3.15
        for line in about:
            if line.startswith(b"mnt_id:"):
                return int(line.split()[1])
    return None


def file_system_of(fd: int) -> str | None:
    """The type of the file system through which a file is open, as mount(8) names it; None where it is unknown."""
    mount = mount_of(fd)
    if mount is None:
        return None
    key = mount, os.fstat(fd).st_dev
    if key not in _FILE_SYSTEMS:
        with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                fields = line.split()
                if int(fields[0]) == mount:
                    _FILE_SYSTEMS[key] = fields[fields.index(b"-") + 1].decode("ascii", "replace")
    return _FILE_SYSTEMS.get(key)


def umask() -> int:
    """The umask of the process, from /proc where there is one.

    Reading it with os.umask() sets another for a moment, in which a file that another thread opens gets that one.
    """
    with contextlib.suppress(OSError), open("/proc/self/status", "rb") as status:  # since Linux 4.7
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    with _ASKING:
        mask = os.umask(0o077)
        os.umask(mask)
        return mask
