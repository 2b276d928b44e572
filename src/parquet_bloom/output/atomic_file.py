"""A new file beside its target, and the one moment in which it takes the target's place.

Until `commit`, and if anything at all goes wrong, the target is what it was:

    .NAME.HOST-PID-RANDOM.parquet-bloom   written, read back, fsync, rename, fsync of the folder

In place of the file that it was made from, the rename swaps both, so that the old one can be looked
at once more: had another program put a new version there, that one goes back. Nothing is replaced that was not to be:

    Linux      renameat2: RENAME_NOREPLACE for a new name, RENAME_EXCHANGE for one whose file was read before
    elsewhere  link and unlink for a new name, rename for the other: what comes between look and rename is replaced
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from typing import IO, Self

from parquet_bloom.errors import CHANGED, EXISTS, ConflictError, RequestError, StorageError, TableFormatError
from parquet_bloom.options import PathLike
from parquet_bloom.output.draft import Draft
from parquet_bloom.output.folder import Checksums, Folder, clear_beside, clear_inside, lock, temporary_name
from parquet_bloom.output.recovery import remove_journal
from parquet_bloom.storage.operating_system import umask
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.store import open_journal
from parquet_bloom.storage.stores import Stores
from parquet_bloom.storage.table_folders import Table, Tables
from parquet_bloom.storage.workers import signals_wait

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_ACL = "system.posix_acl_access"
_OF_THE_BYTES = {"security.capability", "security.ima", "security.evm"}  # they speak of the old bytes, or give rights
_OWNING_GROUP, _MASK = 0x04, 0x10  # ACL_GROUP_OBJ and ACL_MASK, tags of Linux's posix_acl.h
_ACL_HEADER_BYTES, _ACL_ENTRY = 4, "<HHI"  # posix_acl_xattr.h: the version; then entries of tag, permissions, id


class AtomicFile(Draft):
    """A file that is being written and will replace, or become, `target`.

    target     a link stays, and the file that it points at is replaced
    like       path whose permissions the new file takes, see give_attributes; None: those of any new file
    overwrite  whether target may exist when the new file takes its place
    cached     as Draft has it. False: pages leave memory once they are on the disk, so other data keeps its cache.
               That needs sync, since only bytes on the disk can leave
    replaces   what target has to be until the end: the file that this one was made from
    by_name    another library writes it at `path`, under names of its own meanwhile; then call `adopt`
    read_back  before it counts, read all bytes from the disk and compare them with what was to be written
    as_like    take the owner and all attributes of `like` too, as what takes its place does
    folder     target's folder, open already: the file goes there, and nowhere through a link; closed with this one
    Raises StorageError, also where target is, or has become, no regular file.
    """

    def __init__(
        self,
        target: str,
        like: str | None,
        overwrite: bool,
        sync: bool,
        cached: bool = True,
        replaces: os.stat_result | None = None,
        by_name: bool = False,
        read_back: bool = False,
        as_like: bool = False,
        folder: Folder | None = None,
    ) -> None:
        self._named = os.path.abspath(target)
        self.target = followed(self._named) if overwrite and folder is None else self._named
        self._like = os.path.realpath(like) if like is not None else None
        check_regular(self.target, folder.lstat(os.path.basename(target)) if folder is not None else None)
        super().__init__(self.target, sync, cached, read_back)
        self._overwrite = overwrite
        self._replaces = replaces
        self._read_back = read_back
        self._as_like = as_like
        self._base = os.path.basename(self.target)
        self._name = ""  # of the temporary file
        self._inside: Folder | None = None  # the temporary folder of one that is written by name
        self._open(by_name, folder)

    @classmethod
    def new(cls, where: PathLike, overwrite: bool, sync: bool = True, by_name: bool = False) -> Self:
        """Begin a file that is made from no other one; what it replaces gives it its permissions.

        Raises as `new_target`.
        """
        path = new_target(where, overwrite)
        return cls(path, path if os.path.exists(path) else None, overwrite, sync, by_name=by_name)

    def _open(self, by_name: bool, folder: Folder | None) -> None:
        """Open the target's folder, remove files of killed runs there, and make the new file beside the target."""
        try:
            self._folder = folder or Folder.made_at(os.path.dirname(self.target))
        except OSError as error:
            raise storage_error(self.target, error) from error
        try:
            if folder is None:
                clear_beside(self._named, self.target)
            else:
                clear_inside(folder)
            while True:
                self._name = temporary_name(self._base)
                if by_name:
                    self._folder.make(self._name)
                    self._inside = self._folder.within(self._name)
                    self.path = os.path.join(self._inside.path, self._base)
                    if self._inside.fd is not None:
                        lock(self._inside.fd)
                else:
                    self.path = os.path.join(self._folder.path, self._name)
                    self.fd = self._folder.open(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
                    lock(self.fd)
                if self._folder.lstat(self._name) is not None:
                    return
                self._close()  # another run took it for stale before the lock
        except BaseException as error:  # a signal too
            self.discard()
            if isinstance(error, OSError):
                raise storage_error(self.target, error) from error
            raise

    def commit(self, last_check: Callable[[], None] = lambda: None) -> None:
        """Take the target's place. Raises StorageError; the target is then what it was, or the error says otherwise.

        last_check  called when all bytes are on the disk, right before the rename; may raise
        """
        # Attributes and bytes are on the disk before the file has its name. Until the rename an error leaves the target
        # alone; InPlaceError, and the last error below, say that the new version is there.
        try:
            replaced = self._like if self._as_like else None
            if self._overwrite and os.path.exists(self.target):
                replaced = self.target
            give_attributes(self.fd, self._like, replaced)
            self.flush()
            if self._read_back:
                self.compare()
            last_check()
            with self._journal() as left, signals_wait():
                # No signal may end this thread between the swap and the look: another program's version may then have
                # only our temporary name.
                self._take_place(left)
        except OSError as error:
            if not self._name:  # `_take_place` clears the name when the target has the new version
                raise self._in_place("a call after its rename failed", error) from error
            raise storage_error(self.target, error) from error
        if self._sync:
            try:
                self._folder.sync()
                self.sync_made()
            except OSError as error:
                reason = f"has its new version, but fsync of its folder failed ({error.strerror or error})"
                raise StorageError(self.target, f"{reason}: after a power cut it may be as it was before") from error

    @contextlib.contextmanager
    def _journal(self) -> Iterator[int | None]:
        """Keep the journal of an append to the target open, if there is one.

        So no other file gets its inode number, by which `remove_journal` knows it.
        """
        fd = None
        with contextlib.suppress(OSError):
            there = self.target if os.path.exists(self.target) else self._folder.path
            fd = open_journal(self.target, os.stat(there))
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)

    def _take_place(self, journal: int | None) -> None:
        if not self._folder.is_where_it_was():
            raise ConflictError(self.target, "its folder was moved meanwhile; nothing was written")
        checksums = Checksums({self._named, self.target})
        try:
            checksums.set_aside(self._sync)
            self._put()
        except InPlaceError:
            self._name = ""
            checksums.remove()
            raise
        except BaseException:
            checksums.put_back()
            raise
        self._name = ""
        checksums.remove()
        if journal is not None:
            with contextlib.suppress(OSError):
                remove_journal(self._folder, self.target, journal)

    def _put(self) -> None:
        """Give the new file its name. Raises ConflictError where another file has it by now, StorageError, OSError."""
        if not self._overwrite:
            try:
                self._folder.put(self._name, self._base)
            except FileExistsError:
                raise ConflictError(self.target, EXISTS) from None
        elif self._replaces is None:
            check_regular(self.target, self._folder.lstat(self._base))
            self._folder.replace(self._name, self._base)
        else:
            self._put_instead(self._replaces)

    def _put_instead(self, old: os.stat_result) -> None:
        """Give the new file the name of `old`, and of no other.

        Raises ConflictError where it is another by now, OSError. InPlaceError where the names are swapped, but nobody
        can say of what came out whether it is `old`: it stays then.
        """
        # No call compares and renames at once. So the two files swap names first, and what came out is looked at then,
        # under a name that nobody else uses. Both files have a name at every moment, and the target is whole at every
        # moment.
        ours = self._folder.lstat(self._name)
        try:
            if not self._folder.exchange(self._name, self._base):
                self._folder.replace(self._name, self._base)
                return
        except FileNotFoundError:
            raise ConflictError(self.target, CHANGED) from None
        try:
            out = self._folder.lstat(self._name)
        except OSError as error:  # what came out may be another program's version: it is not removed here
            what = f"what it replaced, {self._name}, could not be read and removed"
            raise self._in_place(f"{what}; the next add or remove does that", error) from error
        if out is None or (
            os.path.samestat(out, old) and (out.st_size, out.st_mtime_ns) == (old.st_size, old.st_mtime_ns)
        ):
            with contextlib.suppress(OSError):  # a later run removes it
                self._folder.remove(self._name)
            return
        self._put_back(ours)
        raise ConflictError(self.target, CHANGED)

    def _put_back(self, ours: os.stat_result | None) -> None:
        """Swap again: what has our name is another program's, and newer than what was read. It may go on renaming."""
        # A swap back is a swap too: another program may have put a third file there since. What comes out should be
        # what we put in last. If it is not, it is newer than what we put back, and goes in again; so the last one to
        # come stays. It ends as soon as nobody renames between two of our calls.

        # The file that we last gave the target's name, and the one that has our temporary name and is to go there.
        at_target, at_ours = ours, self._folder.lstat(self._name)
        while True:
            try:
                self._folder.exchange(self._name, self._base)
            except FileNotFoundError:  # somebody removed what we had put there
                with contextlib.suppress(FileExistsError):
                    self._folder.put(self._name, self._base)
                return
            out = self._folder.lstat(self._name)
            if out is None or at_target is None or os.path.samestat(out, at_target):
                return
            at_target, at_ours = at_ours, out  # another program replaced it between: what came out is the newest

    def _in_place(self, what: str, error: OSError) -> InPlaceError:
        """An error of a call that comes after the new file has its name; what: the words between the two."""
        return InPlaceError(self.target, f"has its new version, but {what} ({error.strerror or error})")

    def discard(self) -> None:
        """Give the new file up; the target stays what it was. May be called twice, and after `commit`."""
        self._close()
        name, self._name = self._name, ""
        if name:
            with contextlib.suppress(OSError):
                self._folder.remove(name)
            self._folder.unmake()
        self._folder.close()

    def _close(self) -> None:
        self._close_inside()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _close_inside(self) -> None:
        inside, self._inside = self._inside, None
        if inside is not None:
            with contextlib.suppress(OSError):
                inside.empty()
            inside.close()
            with contextlib.suppress(OSError):
                self._folder.remove(self._name, folder=True)

    def adopt(self) -> None:
        """Take what another library wrote at `path`: from here on it is a file like all others. Raises StorageError."""
        assert self._inside is not None
        own = temporary_name(self._base)
        try:
            self.fd = self._inside.open(self._base, os.O_RDWR)
            lock(self.fd)
            self._inside.replace(self._base, own, self._folder)
        except OSError as error:
            raise storage_error(self.target, error) from error
        self._close_inside()
        self._name, self.path = own, os.path.join(self._folder.path, own)

    def sync_made(self) -> None:
        """Wait until the folders that were made for it are on the disk. Raises OSError."""
        self._folder.sync_made()


class InPlaceError(StorageError):
    """The new file has its name, and what failed came after that."""


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
    """The real place of a target: links are followed, but not another user's in a folder that all may write to.

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


def local_target(where: PathLike) -> str:
    """The path of a new file on a local disk, which a `file:` URI may name too. Raises RequestError for other URIs."""
    name = os.fspath(where)
    if not _URI.match(name):
        return name
    if name.lower().startswith("file:"):
        return Stores().locate(name)[1]
    raise RequestError(f"{name}: this goes to a local disk only; write it there, and copy it")


def new_target(where: PathLike, overwrite: bool) -> str:
    """The path of a new file that is made from no other one, before any work for it.

    Raises RequestError for another storage; StorageError where something exists, unless it is a file to overwrite;
    TableFormatError for a file in a table's folder.
    """
    path = local_target(where)
    check_regular(path)
    if os.path.lexists(path) and not overwrite:
        raise StorageError(path, EXISTS)
    if os.path.exists(path) and (table := _table_of(path)) is not None:
        raise TableFormatError(path, f"{table}, so nothing else takes its place; write to a file in another folder")
    return path


def _table_of(path: str) -> Table | None:
    """The table that a file lies in; None where there is none, or a folder above cannot be read."""
    with contextlib.suppress(StorageError):
        return Tables().enclosing_table(Location(os.path.realpath(path)))
    return None


@contextlib.contextmanager
def new_output(target: str, overwrite: bool) -> Iterator[IO[bytes]]:
    """A file of any kind that takes its place when all of it is written and on the disk, and never else."""
    with AtomicFile.new(target, overwrite) as new:
        with os.fdopen(os.dup(new.fd), "wb") as out:
            yield out
            out.flush()
        new.commit()


def give_attributes(fd: int, like: str | None, replaced: str | None) -> None:
    """Give a new file its owner, permissions and attributes: those of the one it replaces, and never more than those.

    Set-id bits are never given: a data file has no use for them, and with another owner they would make a program of
    his that runs with somebody's rights. Raises OSError where owner and permissions cannot be set.

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
    # The owner first, as permissions are for the owner and the group that the file has then.
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
    # With an access list the mode's group bits are the list's mask, which limits the owning group's own entry.
    acl = struct.iter_unpack(_ACL_ENTRY, data[_ACL_HEADER_BYTES:])
    entries: dict[int, int] = {tag: perm for tag, perm, _ in acl}
    group = entries.get(_OWNING_GROUP, 7) & entries.get(_MASK, 7)
    return mode & ~0o070 | group << 3
