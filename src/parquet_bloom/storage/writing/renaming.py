"""The moment in which a new file takes its place: nothing is replaced that was not to be.

Linux      renameat2: RENAME_NOREPLACE for a new name, RENAME_EXCHANGE for one whose file was read before
elsewhere  link and unlink for a new name, rename for the other: what comes between look and rename is replaced
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable

from parquet_bloom.errors import EXISTS, ConflictError, StorageError
from parquet_bloom.storage.writing.folder import Folder
from parquet_bloom.storage.writing.litter import own_name

CHANGED = "was changed by another program meanwhile; nothing was written"


class InPlaceError(StorageError):
    """The new file has its name, and what failed came after that."""


def in_place(path: str, what: str, error: OSError) -> InPlaceError:
    """An error of a call that comes after the new file has its name; what: the words between the two."""
    return InPlaceError(path, f"has its new version, but {what} ({error.strerror or error})")


def put_new(folder: Folder, name: str, new: str) -> None:
    """Give a new file its name. Raises ConflictError where something has it by now, OSError."""
    try:
        folder.put(name, new)
    except FileExistsError:
        raise ConflictError(os.path.join(folder.path, new), EXISTS) from None


def put_over(folder: Folder, name: str, new: str) -> None:
    """Give a new file its name, whatever regular file has it. Raises StorageError, OSError."""
    check_regular(os.path.join(folder.path, new), folder.look(new))
    folder.replace(name, new)


def put_instead(folder: Folder, name: str, new: str, old: os.stat_result) -> None:
    """Give a new file the name of `old`, and of no other. Raises ConflictError where it is another by now, OSError.

    InPlaceError where the names are swapped, but nobody can say of what came out whether it is `old`: it stays then.
    """
    # No call compares and renames at once. So the two files swap names first, and what came out is looked at then,
    # under a name that nobody else uses. Both files have a name at every moment, and `new` is whole at every moment.
    ours = folder.look(name)
    try:
        if not folder.exchange(name, new):
            folder.replace(name, new)
            return
    except FileNotFoundError:
        raise ConflictError(os.path.join(folder.path, new), CHANGED) from None
    try:
        out = folder.look(name)
    except OSError as error:  # what came out may be another program's version: it is not removed here
        what = f"what it replaced, {name}, could not be looked at and removed; the next add or remove does that"
        raise in_place(os.path.join(folder.path, new), what, error) from error
    if out is None or _as_it_was(out, old):
        with contextlib.suppress(OSError):  # a later run removes it
            folder.remove(name)
        return
    _put_back(folder, name, new, ours)
    raise ConflictError(os.path.join(folder.path, new), CHANGED)


def _put_back(folder: Folder, name: str, new: str, ours: os.stat_result | None) -> None:
    """Swap again: `name` is another program's, and newer than what was read. It may go on renaming meanwhile."""
    # A swap back is a swap too: another program may have put a third file there since. What comes out should be what we
    # put in last. If it is not, it is newer than what we put back, and goes in again; so the last one to come stays. It
    # ends as soon as nobody renames between two of our calls.
    shown, held = ours, folder.look(name)  # what we last gave the name `new`, and what is to have it
    while True:
        try:
            folder.exchange(name, new)
        except FileNotFoundError:  # somebody removed what we had put there
            with contextlib.suppress(FileExistsError):
                folder.put(name, new)
            return
        out = folder.look(name)
        if out is None or shown is None or os.path.samestat(out, shown):
            return
        shown, held = held, out  # it was replaced between: what came out is the newest


def _as_it_was(now: os.stat_result, old: os.stat_result) -> bool:
    return os.path.samestat(now, old) and (now.st_size, now.st_mtime_ns) == (old.st_size, old.st_mtime_ns)


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
            own = own_name(name)
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
