"""The file whose place a new version takes: opened by one writer at a time, never a device, and what stays of it.

The lock (flock) is on the file itself, not on its name, and ends with its process. Who comes later waits, and then
works on the newest version. Programs that do not take it are noticed at the end all the same, see output.atomic_file.

Owner, permissions and attributes of a new file are those of the one it replaces, and never more than those. Set-id bits
are never given: a data file has no use for them, and with another owner they would make a program of his that runs with
somebody's rights.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

from parquet_bloom.errors import ConflictError, StorageError
from parquet_bloom.output.folder import clear_beside, try_lock
from parquet_bloom.output.recovery import recover
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.operating_system import umask
from parquet_bloom.storage.remote import Location

PATIENCE_S = 60.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.002, 0.05
_ACL = "system.posix_acl_access"
_OF_THE_BYTES = {"security.capability", "security.ima", "security.evm"}  # they speak of the old bytes, or give rights
_OWNING_GROUP, _MASK = 0x04, 0x10  # tags of acl_ea_entry in Linux's posix_acl_xattr.h


@contextmanager
def opened(file: Location, to_replace: bool) -> Iterator[OpenFile]:
    """Open a file that is to get a new version.

    to_replace  the new version takes its place: wait until no other run works on one
    Raises StorageError; ConflictError where another run takes longer than a minute.
    """
    stop, pause = time.monotonic() + PATIENCE_S, _FIRST_PAUSE_S
    if to_replace and file.is_local:
        # What killed runs left, also where nothing is to be done now. One of them may be a second name of this file,
        # which goes by its lock, and so before we have that.
        clear_beside(file.path, os.path.realpath(file.path))
    while True:
        with OpenFile(file, pin=True) as source:
            if not to_replace or source.fd is None:
                yield source
                return
            if _is_ours(source.fd) and _is_newest(source):
                if recover(source):
                    continue  # it is another version now
                yield source
                return
        if time.monotonic() > stop:
            reason = f"another program holds its lock, as one does that writes it; waited {PATIENCE_S:.0f} seconds"
            raise ConflictError(file, f"{reason}; nothing was written")
        time.sleep(pause)
        pause = min(2 * pause, _LAST_PAUSE_S)


def _is_ours(fd: int) -> bool:
    try:
        return try_lock(fd)
    except OSError:  # a file system, or a system, without locks: the end of the work tells
        return True


def _is_newest(source: OpenFile) -> bool:
    """Whether the path still names what was opened, as it was then."""
    try:
        source.check_unchanged()
    except (ConflictError, OSError):
        return False
    return True


def check_regular(path: str, found: os.stat_result | None = None) -> None:
    """Refuse what exists and is no regular file: it would not be replaced but destroyed. Raises StorageError."""
    if found is None:
        try:
            found = os.stat(path)
        except OSError:
            return  # nothing there; other errors are met on the way
    if stat.S_ISDIR(found.st_mode):
        raise StorageError(path, "is a folder; name a file in it")
    if not stat.S_ISREG(found.st_mode):
        raise StorageError(path, "is not a regular file; such a target is never replaced")


def followed(target: str) -> str:
    """Where a target really is: links are followed, but not another user's in a folder that all may write to.

    As Linux does with fs.protected_symlinks. Raises StorageError.
    """
    at = target
    for _ in range(40):
        try:
            link = os.lstat(at)
            folder = os.stat(os.path.dirname(os.path.abspath(at)))
        except OSError:
            break
        if not stat.S_ISLNK(link.st_mode):
            break
        shared = folder.st_mode & stat.S_ISVTX and folder.st_mode & stat.S_IWOTH
        if shared and hasattr(os, "geteuid") and link.st_uid not in (os.geteuid(), folder.st_uid):
            raise StorageError(target, "is a link of another user in a folder that all may write to; name its target")
        at = os.path.join(os.path.dirname(at), os.readlink(at))
    return os.path.realpath(target)


def give_attributes(fd: int, like: str | None, replaced: str | None) -> None:
    """Give a new file its owner and permissions. Raises OSError where these cannot be set.

    like      the file that it is made from: the new one is as secret as that; None: as any new file
    replaced  the file whose place it takes, if there is one: the owner stays, and where both are the
              same file also the extended attributes, access lists among them
    """
    wanted = 0o666
    if like is not None:
        wanted = _mode(like) | 0o200  # the source's permissions without set-id bits, and the owner may write
    if replaced is None:
        os.fchmod(fd, wanted & ~umask())
        return
    old = os.stat(replaced)
    owned = _give_owner(fd, old)
    mode = _mode(replaced)
    if like == replaced:
        if owned and _copy_attributes(fd, replaced):
            mode = stat.S_IMODE(old.st_mode) & 0o777  # the group's are the access list's mask
    else:
        mode &= wanted
    if not owned:  # what the old group might do, this one may only if all might
        mode &= ~0o070 | (mode & 0o007) << 3
    os.fchmod(fd, mode)


def _give_owner(fd: int, old: os.stat_result) -> bool:
    """Before any permissions. Returns whether the group is the old one."""
    try:
        os.fchown(fd, old.st_uid, old.st_gid)
    except OSError:  # not root
        with contextlib.suppress(OSError):
            os.fchown(fd, -1, old.st_gid)
    return os.fstat(fd).st_gid == old.st_gid


def _copy_attributes(fd: int, path: str) -> bool:
    """Returns whether an access list is among those that were copied."""
    listed = False
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(path):
                if name in _OF_THE_BYTES:
                    continue
                with contextlib.suppress(OSError):
                    os.setxattr(fd, name, os.getxattr(path, name))
                    listed |= name == _ACL
    return listed


def _mode(path: str) -> int:
    """Permissions without set-id bits; with an access list the owning group's own, not the list's mask."""
    mode = stat.S_IMODE(os.stat(path).st_mode) & 0o777
    if not hasattr(os, "getxattr"):
        return mode
    try:
        data = os.getxattr(path, _ACL)
    except OSError:
        return mode
    entries: dict[int, int] = {tag: perm for tag, perm, _ in struct.iter_unpack("<HHI", data[4:])}
    group = entries.get(_OWNING_GROUP, 7) & entries.get(_MASK, 7)
    return mode & ~0o070 | group << 3
