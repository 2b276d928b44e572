"""The protocol of a file system, and this machine's; storage.arrow_store and storage.object_store have all others.

It opens, looks, lists and names; writing is output.target's. `stores.store_of` chooses. Files of this machine are read
with pread(2); storage.open_file says why not mapped.
"""

from __future__ import annotations

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from parquet_bloom.errors import ParquetBloomError, StorageError
from parquet_bloom.format.journal import HEADER_BYTES, Journal, journal_name
from parquet_bloom.storage.remote import Handle, Location
from parquet_bloom.storage.version_token import Kept, LocalToken, StoreToken

_SAFE = "/=:,+@!$&'()*;~"  # as they are in a URI's path
SUFFIXES = (".parquet", ".parq", ".pq")
GLOB = set("*?[")
Kind = bool | ParquetBloomError | None  # a file, a folder (False), nothing, or the error in asking
Seen = Callable[["Store", str, Sequence[tuple[str, bool]], bool], None]


@dataclass(frozen=True)
class Store(ABC):
    """A file system, and how people name its paths.

    filesystem  pyarrow's object; None: the local one
    base        what stands before every path of people's on the file system
    root        what people see in its place
    quoted      whether people's paths are those of URIs
    is_local    whether files have descriptors, locks and links
    """

    filesystem: Any = None
    base: str = ""
    root: str = ""
    quoted: bool = False

    is_local: ClassVar[bool]

    def location(self, path: str) -> Location:
        """A path on the file system, with the name people know it by."""
        rest = path.removeprefix(self.base)
        if self.quoted:
            from urllib.parse import quote

            rest = quote(rest, _SAFE)
        return Location(path, self.filesystem, self.root + rest)

    @abstractmethod
    def same(self, other: Store) -> bool:
        """Whether it is the file system of another store."""

    # --- names ------------------------------------------------------------------------------------

    @abstractmethod
    def real(self, path: str) -> str:
        """One path for one file, however it was named."""

    @abstractmethod
    def absolute(self, path: str) -> str:
        """The path from any working folder."""

    @abstractmethod
    def names(self, at: Location) -> tuple[str, ...]:
        """The names of a file or folder, from any working folder; the first is for people."""

    @abstractmethod
    def folders(self, at: Location) -> list[Location]:
        """The folders that a file or folder lies in: of a local one by its name, and by where links lead."""

    @abstractmethod
    def chain(self, folder: Location) -> list[Location]:
        """A folder and all above it."""

    # --- looks ------------------------------------------------------------------------------------

    @abstractmethod
    def open(self, at: Location, pin: bool) -> Handle:
        """Open a file for reading; `pin` as OpenFile has it. Raises StorageError, and what the file system raises."""

    @abstractmethod
    def version(self, at: Location) -> object:
        """The version token of what has this path by now, as that of an open file. Raises StorageError, OSError."""

    def size_before_append(self, at: Location, file: Handle) -> tuple[int, int] | None:
        """Of a file at whose end an append of ours is not finished: the size before it, and its footer's CRC-32."""
        return None

    def renew(self, file: Handle) -> bool:
        """Take an open file as it is by now, where it was written to since; whether it was."""
        return False

    @abstractmethod
    def kinds(self, paths: Sequence[str]) -> list[Kind]:
        """For each path: True a file, False a folder, None nothing there, or the error in asking."""

    @abstractmethod
    def names_in(self, folder: str) -> list[str]:
        """The names in a folder, on a storage of files alone; none where there is no such folder. Raises Exception."""

    @abstractmethod
    def start_of(self, path: str, most: int) -> bytes:
        """A file's first bytes; none of what is no regular file. Raises Exception."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Bytes of a file, -1 for a folder, None for nothing. Raises Exception."""

    @abstractmethod
    def entries(self, folder: str) -> Iterator[tuple[str, int]]:
        """(name, bytes) of what lies in a folder, by name, -1 for folders. Raises Exception."""

    def listed_versions(self, files: Sequence[Location]) -> dict[str, StoreToken]:
        """The versions of files by one listing, by path, where listings have them; some may be missing."""
        return {}

    def at_version(self, at: Location, version: StoreToken) -> Location:
        """The same location; one that costs no request to open, if each read can name this version of the file."""
        return at

    def opened_by_end(self, at: Location, length: int) -> Location:
        """The same location; one that is open, with its last bytes, where one request brings more than usual."""
        return at

    @abstractmethod
    def modified(self, paths: Sequence[str]) -> list[int]:
        """When files were written, in milliseconds since 1970. Raises Exception."""

    def is_folder(self, path: str) -> bool:
        """Whether a path is a folder. Raises StorageError."""
        return self._kind(path.rstrip("/") or path) is False

    def exists(self, path: str) -> bool:
        """Whether something is there. Raises StorageError."""
        return self._kind(path) is not None

    def _kind(self, path: str) -> bool | None:
        [kind] = self.kinds([path])
        if isinstance(kind, ParquetBloomError):
            raise kind
        return kind


def is_data(relative: str) -> bool:
    """Whether a file of a folder is Parquet by its name, and it and its folders are not hidden."""
    hidden = relative.startswith((".", "_")) or "/." in relative or "/_" in relative
    return not hidden and relative.lower().endswith(SUFFIXES)


# --- this machine ---------------------------------------------------------------------------------
#
# The file system of this machine, as a Store. Files are read with pread(2); storage.open_file says why not mapped.

_NAMES = 1_000  # of a folder that a misspelt name is held against


class LocalStore(Store):
    """The file system of this machine."""

    is_local = True

    def same(self, other: Store) -> bool:
        """Whether the other is local too: there is one local file system."""
        return other.is_local

    def real(self, path: str) -> str:
        """The path that links lead to."""
        return os.path.realpath(path)

    def absolute(self, path: str) -> str:
        """The path from the root."""
        return os.path.abspath(path)

    def names(self, at: Location) -> tuple[str, ...]:
        """The path from the root, and the one that links lead to."""
        return os.path.abspath(at.path), os.path.realpath(at.path)

    def folders(self, at: Location) -> list[Location]:
        """By its name, and by where links lead; one folder if they are the same."""
        return [Location(path) for path in dict.fromkeys(map(os.path.dirname, self.names(at)))]

    def chain(self, folder: Location) -> list[Location]:
        """The folder, and each above it up to the root."""
        paths = [os.path.abspath(folder.path)]
        while (above_it := os.path.dirname(paths[-1])) != paths[-1]:
            paths.append(above_it)
        return [Location(path) for path in paths]

    def open(self, at: Location, pin: bool) -> Handle:
        """Open the file by its descriptor; `pin` costs nothing here."""
        return at.opened.pop() if at.opened else _LocalFile(at)

    def version(self, at: Location) -> object:
        """Size, times, inode and device."""
        return LocalToken.of(os.stat(at.path))

    def size_before_append(self, at: Location, file: Handle) -> tuple[int, int] | None:
        """By the journal beside it, if that speaks of this very file."""
        if file.fd is None:
            return None
        found = os.fstat(file.fd)
        try:
            opened = open_journal(os.path.realpath(at.path), found)
        except OSError:
            return None
        try:
            journal = Journal.decode(os.pread(opened, HEADER_BYTES, 0))
        finally:
            os.close(opened)
        if journal is None or found.st_ino != journal.inode:
            return None
        torn = 0 <= found.st_size - journal.old_size <= journal.tail_length  # all of it, where a power cut left zeros
        return (journal.old_size, journal.footer_crc32) if torn else None

    def renew(self, file: Handle) -> bool:
        """By its size and times; another file that has taken its place is none of this."""
        return isinstance(file, _LocalFile) and file.renew()

    def kinds(self, paths: Sequence[str]) -> list[Kind]:
        """By stat; a link that leads nowhere is a file, as opening it says what is wrong."""
        return [False if os.path.isdir(path) else True if os.path.lexists(path) else None for path in paths]

    def names_in(self, folder: str) -> list[str]:
        """By listing the folder."""
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def start_of(self, path: str, most: int) -> bytes:
        """Read from a regular file; a pipe is not waited for."""
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # a pipe waits
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""

    def size(self, path: str) -> int | None:
        """By stat."""
        try:
            return -1 if os.path.isdir(path) else os.stat(path).st_size
        except FileNotFoundError:
            return None

    def modified(self, paths: Sequence[str]) -> list[int]:
        """By stat."""
        return [os.stat(path).st_mtime_ns // 10**6 for path in paths]

    def entries(self, folder: str) -> Iterator[tuple[str, int]]:
        """By scanning the folder."""
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                try:
                    if entry.is_dir(follow_symlinks=False):
                        yield entry.name, -1
                    elif entry.is_file():  # a link to a folder may lead in circles
                        yield entry.name, entry.stat().st_size
                except FileNotFoundError:  # gone meanwhile, or a link to nothing
                    continue


def real_paths() -> Callable[[str], str]:
    """As LocalStore.real, for many paths: where a folder's links lead is found out once."""
    folders: dict[str, str] = {}

    def real(path: str) -> str:
        folder, name = os.path.split(path)
        if name in ("", ".", "..") or os.path.islink(path):
            return os.path.realpath(path)
        known = folders.get(folder)
        if known is None:
            known = folders[folder] = os.path.realpath(folder)
        return os.path.join(known, name)

    return real


class _LocalFile:
    pinned = True
    stays = one_version = False

    def __init__(self, at: Location, fd: int | None = None) -> None:
        self.fd: int | None
        self.fd, self._opened = open_regular(at) if fd is None else (fd, os.fstat(fd))
        self.size = self._opened.st_size

    def read(self, offset: int, length: int) -> bytes:
        assert self.fd is not None
        parts = [os.pread(self.fd, length, offset)]
        while parts[-1] and len(parts[-1]) < length:
            offset, length = offset + len(parts[-1]), length - len(parts[-1])
            parts.append(os.pread(self.fd, length, offset))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def version(self) -> LocalToken:
        return LocalToken.of(self._opened)

    def facts(self) -> Kept | None:
        with suppress(OSError):
            return None if self.fd is None else self.version().facts(self.fd)
        return None

    def lasting(self, wait: bool) -> Kept | None:
        with suppress(OSError):
            return None if self.fd is None else self.version().lasting(self.fd, wait)
        return None

    def renew(self) -> bool:
        assert self.fd is not None
        before, self._opened = self.version(), os.fstat(self.fd)
        self.size = self._opened.st_size
        return self.version() != before

    def etag(self) -> None:
        return None

    def close(self) -> None:
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def open_regular(at: os.PathLike[str] | str) -> tuple[int, os.stat_result]:
    """Open a regular file for reading: its descriptor and stat. Raises StorageError for another kind, OSError."""
    # A pipe would make us wait for its other end.
    fd = os.open(at, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise StorageError(at, "is not a regular file")
    except BaseException:
        os.close(fd)
        raise
    return fd, found


def opened_location(path: str, fd: int, shown: str = "") -> Location:
    """The place of a regular file that is open already; who opens it takes the descriptor."""
    at = Location(path, None, shown)
    at.opened.append(_LocalFile(at, fd))
    return at


def journal_path(path: str) -> str:
    """The path of the journal beside a file of this path."""
    folder, name = os.path.split(path)
    return os.path.join(folder, journal_name(name))


def open_journal(path: str, data: os.stat_result) -> int:
    """Open the journal beside a file of this path, if there is one to believe.

    data  the stat of the file
    It has to be a regular file, and in a folder where only owners may rename theirs (the sticky bit, as /tmp has it)
    one of this user, of root or of the file's owner. Elsewhere who can put a journal there can replace the data file.
    Raises FileNotFoundError where there is none to believe, OSError.
    """
    journal, folder = journal_path(path), os.path.dirname(path)
    trusted = {0, data.st_uid, os.geteuid()} if hasattr(os, "geteuid") else set()

    def believed(found: os.stat_result) -> bool:
        ours = not trusted or found.st_uid in trusted or not os.stat(folder).st_mode & stat.S_ISVTX
        return stat.S_ISREG(found.st_mode) and ours

    if believed(os.lstat(journal)):
        # What comes there meanwhile is no link to be followed, and no pipe to be waited for.
        fd = os.open(journal, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        if believed(os.fstat(fd)):
            return fd
        os.close(fd)
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), journal)


def near_names(path: str) -> str:
    """Names near a path that is not there, as the end of a message; "" where no name is near."""
    folder, name = os.path.split(path.rstrip("/"))
    try:
        with os.scandir(folder or ".") as entries:
            there = [entry.name for entry in islice(entries, _NAMES) if entry.name.isprintable()]
    except OSError:
        return ""
    stems = {os.path.splitext(one)[0]: one for one in there if one != name}  # a link of this name may lead nowhere
    from difflib import get_close_matches  # for messages alone

    near = [stems[one] for one in get_close_matches(os.path.splitext(name)[0], stems, 3)]
    return f"; near names: {', '.join(os.path.join(folder, one) for one in near)}" if near else ""
