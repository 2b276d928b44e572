"""Owner, permissions and attributes of a new file: those of the one it replaces, and never more than those.

Set-id bits are never given: a data file has no use for them, and with another owner they would make
a program of his that runs with somebody's rights.
"""

from __future__ import annotations

import contextlib
import os
import stat
import struct

from parquet_bloom.storage.operating_system import umask

_ACL = "system.posix_acl_access"
_OF_THE_BYTES = {"security.capability", "security.ima", "security.evm"}  # they speak of the old bytes, or give rights
_OWNING_GROUP, _MASK = 0x04, 0x10  # tags of acl_ea_entry in Linux's posix_acl_xattr.h


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
