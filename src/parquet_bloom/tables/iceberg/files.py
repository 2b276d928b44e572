"""Paths in an Iceberg log -> locations below the roots of its table, with the rights of pyiceberg's own configuration.

    the catalog's answer   metadata_location      the table's folder: read and written
    the user's warehouse                          read
    the table's own words  location, write.*.path read and written, on storages whose names hold no host

A storage that none of these is on is not opened: that alone may be a request, as for the region of a bucket of S3. One
that only the table's own words name is opened when the first of its files is wanted.

A path is never decoded: "%20" in it is part of the name, as pyiceberg has it.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from pyarrow.fs import LocalFileSystem
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table as IcebergLog

from parquet_bloom.errors import StorageError, TableFormatError
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.roots import AZURE_HOST, Roots, no_plain_path
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import objects_of, store_of

_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
_BUCKETS = frozenset({"file", "s3", "gs", "oss"})  # their names hold no host, or none that is asked
_AZURE = frozenset({"abfs", "abfss", "wasb", "wasbs"})
_LARGEST = 1 << 30  # bytes of a file of a log, which pyiceberg reads whole; a manifest has some 8 MB
_UNOPENED = object()  # in the place of a file system
_FOLDERS = (  # properties of a table that say where it keeps files
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)


class Files:
    """The storages of a table, each opened once, and the roots below which its files lie. The local one is None."""

    def __init__(self, io: FileIO, roots: Roots) -> None:
        self.roots = roots
        self._io = io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)
        self._opened: dict[tuple[str, str], Any] = {}
        self._trusted: set[tuple[str, str]] = set()
        self._used: set[tuple[str, str]] = set()
        self._declared: dict[tuple[str, str], list[str]] = {}  # roots on storages that are not open
        self._allowed = {self._key(_bare(root))[0] for root in roots.allowed if "://" in root}

    @classmethod
    def of(cls, log: IcebergLog, name: str, access: TableAccess) -> Files:
        """The files of a table, whose `io` reads and writes nothing outside of them from now on."""
        io = log.io.io if isinstance(log.io, RootedIO) else log.io
        files = cls(io, Roots(name, access))
        files._trust(_folder_of(log.metadata_location), True)
        warehouse = str(log.catalog.properties.get("warehouse") or "")
        if "://" in warehouse or warehouse.startswith(("/", "file:")):
            files._trust(warehouse, False)
        for word in (log.metadata.location, *(log.metadata.properties.get(key) for key in _FOLDERS)):
            if word:
                files._refuse_relative(word, log.metadata_location)
                files._declare(word)
        log.io = RootedIO(io, files)
        return files

    def location(self, path: str) -> Location:
        """The location of a path of the log; `roots.check` says whether the log may name it.

        Raises TableFormatError for a path that leads upwards, and a storage that pyarrow does not know, or whose host
        the log would choose.
        """
        self._used.add(self._key(path)[0])
        return self._location(path)

    def checked(self, path: str) -> Location:
        """The same for a file that is opened at once. Raises TableFormatError where it lies below no root too."""
        at = self.location(path)
        self.roots.check([at])
        return at

    def of_log(self, path: str) -> Location:
        """The location of a file of the log itself, which need not be on the storage of the data. Raises as `check`."""
        at = self._location(path)
        self.roots.check([at])
        return at

    def has_storages_of(self, other: Files) -> bool:
        """Whether all storages that another one opened are the same ones here, and as trusted."""
        if self._trusted != other._trusted:
            return False
        for key, theirs in other._opened.items():
            if key not in self._opened:
                self._open(key, f"{key[0]}://{key[1]}")
            mine = self._opened[key]
            if mine is not theirs and (mine is None or theirs is None or not mine.equals(theirs)):
                return False
        return True

    def check(self, path: str, writing: bool) -> None:
        """Raise TableFormatError unless a file of the log may be opened, or written."""
        at = self._location(path)
        self.roots.check([at])
        if not writing:
            check_whole(at)
        if writing and (why := self.roots.no_change(at)):
            raise TableFormatError(at, why)

    def _trust(self, word: str, writable: bool) -> None:
        self._trusted.add(self._key(word)[0])
        at = self._location(word)
        self.roots.add(store_of(at), at.path, writable)

    def _declare(self, word: str) -> None:
        """Trust a folder that the log declares; another storage is opened once a file there is wanted."""
        key, inside = self._key(word)
        self._check_word(word, key, inside)
        if key in self._opened or key[0] == "file":
            at = self._location(word)
            self.roots.add_declared(word, store_of(at), at.path)
        else:
            self._declared.setdefault(key, []).append(word)

    def _refuse_relative(self, word: str, metadata_location: str) -> None:
        """Of a table that is not relative as a whole: new files would lie below the working folder of the caller."""
        if not _is_absolute(word) and _is_absolute(metadata_location):
            raise self.roots.refused(word, "is a relative path; the log names folders by their whole paths")

    def _key(self, path: str) -> tuple[tuple[str, str], str]:
        try:
            scheme, host, inside = PyArrowFileIO.parse_location(path, self._io.properties)
        except ValueError as error:
            raise self.roots.refused(path, f"is no path: {error}") from error
        return (_SAME.get(scheme, scheme), host), inside

    def _check_word(self, path: str, key: tuple[str, str], inside: str) -> None:
        if reason := no_plain_path(inside):
            raise self.roots.refused(path, reason)
        scheme, host = key
        chosen = scheme in _BUCKETS or (scheme in _AZURE and AZURE_HOST.fullmatch(host))
        if key not in self._opened and key not in self._trusted and not chosen:
            raise self.roots.refused(path, "is on a storage that its log may not choose")

    def _location(self, path: str) -> Location:
        key, inside = self._key(path)
        self._check_word(path, key, inside)
        if key not in self._opened:
            # Opening a storage may ask it for its region: none does that which has no root.
            if key[0] != "file" and key not in self._trusted | self._declared.keys() | self._allowed:
                raise self.roots.outside([Location(inside, _UNOPENED, path)])
            self._open(key, path)
        filesystem = self._opened[key]
        return Location(inside, filesystem, "" if filesystem is None else path)

    def _open(self, key: tuple[str, str], path: str) -> None:
        try:
            filesystem = self._io.fs_by_scheme(*key)
        except (ValueError, ImportError, OSError) as error:
            raise TableFormatError(without_secret(path), f"its storage cannot be opened: {error}") from error
        self._opened[key] = None if isinstance(filesystem, LocalFileSystem) else objects_of(filesystem)
        for word in self._declared.pop(key, ()):
            at = self._location(word)
            self.roots.add_declared(word, store_of(at), at.path)

    def only(self, table: str) -> Any:
        """The one storage of all paths so far. Raises TableFormatError for several."""
        if len(self._used) > 1:
            names = ", ".join(sorted(f"{scheme}://{host}" for scheme, host in self._used))
            raise TableFormatError(table, f"has files on several storages ({names}); only tables on one can be read")
        return next((self._opened[key] for key in self._used), None)


def check_whole(at: Location) -> None:
    """Raise for a local file that is not read as a whole: a pipe has no end, and holes are not counted as bytes.

    Raises StorageError, TableFormatError; nothing where there is no file.
    """
    try:
        found = os.stat(at.path) if at.is_local else None
    except OSError:
        return  # who opens it says so
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise StorageError(at, "is not a regular file")
    if found is not None and found.st_size > _LARGEST:
        raise TableFormatError(
            at, f"has {found.st_size:,} bytes; a file of an Iceberg log that is read has at most {_LARGEST:,}"
        )


def check_metadata(location: str) -> None:
    """Raise TableFormatError, StorageError for a metadata file here that is no whole file, or a link out of the table.

    location  as a catalog names it
    """
    scheme, _, path = PyArrowFileIO.parse_location(location, {})
    if scheme != "file":
        return
    at = Location(path)
    if not os.path.realpath(path).startswith(os.path.join(os.path.realpath(_folder_of(path)), "")):
        raise TableFormatError(at, "is a link that leads out of the table's folder; metadata lie in it")
    check_whole(at)


class RootedIO(FileIO):
    """The FileIO of a table, for files below its roots alone: the log names lists, manifests and metadata too.

    written  the files that were begun, by their names
    """

    def __init__(self, io: FileIO, files: Files) -> None:
        super().__init__(io.properties)
        self.io = io
        self._files = files
        self.written: list[str] = []

    def new_input(self, location: str) -> InputFile:
        """A file to be read. Raises TableFormatError for one outside."""
        self._files.check(location, False)
        return self.io.new_input(location)

    def new_output(self, location: str) -> OutputFile:
        """A file to be written. Raises TableFormatError for one outside."""
        self._files.check(location, True)
        self.written.append(location)
        return self.io.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file. Raises TableFormatError for one outside."""
        self._files.check(location if isinstance(location, str) else location.location, True)
        self.io.delete(location)


def _bare(root: str) -> str:
    """A URI of the user's without options, user and secret."""
    scheme, sign, rest = root.partition("?")[0].partition("://")
    authority, slash, inside = rest.partition("/")
    if scheme.lower() not in _AZURE:
        authority = authority.rpartition("@")[2]
    return f"{scheme.lower()}{sign}{authority}{slash}{inside}"


def _is_absolute(word: str) -> bool:
    if word.startswith("file:"):
        word = word.removeprefix("file:").removeprefix("//")
    return "://" in word or word.startswith("/")


def _folder_of(metadata_location: str) -> str:
    """The folder of a table whose metadata a catalog answered: TABLE/metadata/00001-....metadata.json."""
    folder = metadata_location.rpartition("/")[0]
    above, _, name = folder.rpartition("/")
    return above if name == "metadata" and above.rstrip("/:") else folder
