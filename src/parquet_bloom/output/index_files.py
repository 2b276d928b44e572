"""The files of an index, below its folder: none is opened, made or removed through a link.

    DIR                  the user's word; links that lead to it are followed
    DIR/columns/0/NAME   each folder below is opened in the one before, the file in the last: openat(2) with O_NOFOLLOW

Whoever can write into an index could otherwise have its next update read, replace or remove the files of others. A
pipe or a device in the place of a file is neither waited for nor read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple

from parquet_bloom.errors import StorageError
from parquet_bloom.output.atomic_file import AtomicFile, new_target
from parquet_bloom.output.folder import Folder, remove_stale_in
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.store import opened_location

NO_LINK = "is a link, or no folder or regular file; an index has none: remove it, or name another folder"


@contextmanager
def storing(path: str) -> Iterator[None]:
    """Raise StorageError for the errors of the system."""
    try:
        yield
    except OSError as error:
        refused = error.errno in (errno.ELOOP, errno.ENOTDIR, errno.ENXIO)
        raise StorageError(path, NO_LINK if refused else error.strerror or str(error)) from error


class IndexFiles(NamedTuple):
    """The files below a folder, each by its name there, such as columns/0/NAME.

    path  of the folder
    """

    path: str

    def named(self, name: str) -> str:
        """The path of a file, for people and messages."""
        return os.path.join(self.path, *name.split("/"))

    @contextmanager
    def _folder(self, name: str, make: bool = False) -> Iterator[tuple[Folder, str]]:
        """The open folder of a name, and the last part of the name. Raises OSError."""
        *folders, last = name.split("/")
        at = Folder.made_at(os.path.abspath(self.path)) if make else Folder(self.path)
        try:
            for one in folders:
                inside = at.within(one, make)
                at.close()
                at = inside
            yield at, last
        finally:
            at.close()

    def lstat(self, name: str) -> os.stat_result | None:
        """The stat of a name, of a link itself; None where nothing has the name. Raises StorageError."""
        with storing(self.named(name)):
            try:
                with self._folder(name) as (folder, last):
                    return folder.lstat(last)
            except FileNotFoundError:
                return None

    def open(self, name: str, flags: int, make: bool = False) -> int:
        """The descriptor of a regular file. `make`: make missing folders above it. Raises StorageError."""
        path = self.named(name)
        with storing(path), self._folder(name, make) as (folder, last):
            fd = folder.open(last, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise StorageError(path, NO_LINK)
            return fd

    def location(self, name: str) -> Location:
        """A file that is open for reading, for OpenFile. Raises StorageError."""
        return opened_location(self.named(name), self.open(name, os.O_RDONLY))

    def new(
        self,
        name: str,
        overwrite: bool,
        sync: bool = True,
        by_name: bool = False,
        replaces: os.stat_result | None = None,
    ) -> AtomicFile:
        """Begin a file that takes its place whole, or never; options as AtomicFile has them. Raises StorageError."""
        path = self.named(name)
        with storing(path), self._folder(name, make=True) as (folder, last):
            found = folder.lstat(last)
            if found is not None and not stat.S_ISREG(found.st_mode):
                raise StorageError(path, NO_LINK)
            new_target(path, overwrite)
            like = path if found is not None else None
            return AtomicFile(path, like, overwrite, sync, True, replaces, by_name, folder=folder.again())

    @contextmanager
    def written(self, name: str) -> Iterator[IO[bytes]]:
        """A file that takes its place when all of it is written and on the disk. Raises StorageError."""
        with self.new(name, overwrite=True) as new:
            with os.fdopen(os.dup(new.fd), "wb") as out:
                yield out
                out.flush()
            new.commit()

    def files(self, below: str = "") -> Iterator[str]:
        """The names of all that lies below the folder and is no folder, links as such. Raises StorageError.

        below  only of this folder in it, such as columns/
        """
        waiting = [below]
        while waiting:
            inside = waiting.pop()
            with storing(self.named(inside)), self._folder(f"{inside}.") as (folder, _):
                for one in sorted(folder.names()):
                    found = folder.lstat(one)
                    if found is not None and stat.S_ISDIR(found.st_mode):
                        waiting.append(f"{inside}{one}/")
                    elif found is not None:
                        yield inside + one

    def remove(self, name: str) -> None:
        """Remove a file, and folders that are empty then. What cannot be removed stays."""
        with suppress(OSError), self._folder(name) as (folder, last):
            folder.remove(last)
        *folders, _ = name.split("/")
        while folders:
            with suppress(OSError), self._folder("/".join(folders)) as (folder, last):
                folder.remove(last, folder=True)
            folders.pop()

    def remove_stale(self, name: str) -> None:
        """Remove temporary files of killed runs from the folder that has a name. What cannot be removed stays."""
        with suppress(OSError), self._folder(name) as (folder, _):
            remove_stale_in(folder)
