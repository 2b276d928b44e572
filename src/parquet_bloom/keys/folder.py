"""The folder of a key index while it is written: on a local disk, or on S3.

    new files   made in `files`: the folder itself, or for S3 a local one
    publish     (S3: new files are sent), the manifest takes the place of the old one, what is named no more leaves

An index is built into a folder that is not there, is empty, or is an index. What is removed has a name that only an
index gives, and all files are opened by `output.index_files`: no link in the folder leads to another file.

The manifest is last, and only replaces the one that was read: of two writers one wins. On a local disk this is one swap
of files under a lock, on S3 a PUT with If-Match or If-None-Match. Other stores have no such request that we could send,
so an index is built elsewhere and copied there, its manifest last.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from parquet_bloom.errors import CHANGED, EXISTS, ConflictError, RequestError, StorageError
from parquet_bloom.keys.index import KeyIndex
from parquet_bloom.keys.manifest import MOST_BYTES, NAME, Manifest, listing_name, part_name, says_it_is_one, to_json
from parquet_bloom.options import PathLike, several
from parquet_bloom.output.atomic_file import local_target
from parquet_bloom.output.folder import SUFFIX, is_temporary, lock
from parquet_bloom.output.index_files import IndexFiles, storing
from parquet_bloom.output.s3 import StoredFile
from parquet_bloom.output.target import Target, Writing, hindrance_of, remove_unnamed
from parquet_bloom.source.source import CallSource, ResolvedSource
from parquet_bloom.storage.arrow_store import RemoteStore, fits
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location, in_order
from parquet_bloom.storage.store import GLOB
from parquet_bloom.storage.stores import Stores, store_of
from parquet_bloom.storage.version_token import StoreToken

_WRITER, _SENDING = "writer", "sending"  # in `work` of an index on S3: what makes ids its own; that sending has begun
_LOCK_TRIES = 100
_SENT_AT_ONCE = 8  # files, each by requests side by side


# All names of files of an index and of a build, but for its manifest, locks, and temporary files.
_OF_SEGMENTS = (
    re.compile(r"segments/([0-9a-f]{16})/files(?:-[0-9]{1,10})?\.parquet"),
    re.compile(r"columns/[0-9]{1,10}/([0-9a-f]{16})-[0-9]{5,10}\.parquet"),
    re.compile(r"build/([0-9a-f]{16})/[0-9]{1,10}-[0-9]{5,10}"),
)
JOURNAL = "build/journal"


class IndexFolder(ABC):
    """A folder that an index is written to.

    path   its name, for people
    files  of the local folder in which new ones are made; it has what a build keeps to go on after it was killed
    """

    path: str
    files: IndexFiles

    @abstractmethod
    def manifest(self) -> Location:
        """The place of the manifest."""

    @abstractmethod
    def version(self) -> Any:
        """The version of the manifest that is there, for `publish`; None: there is none. Raises StorageError."""

    @abstractmethod
    def open(self) -> tuple[KeyIndex, Any]:
        """The index that is there, with the new files in `files`, and the version of its manifest. Raises FileError."""

    @abstractmethod
    def publish(self, manifest: Manifest, before: Any, kept: Collection[str]) -> None:
        """Let a manifest whose files are in `files` count, once they are safe. Other files then leave.

        before  version of the manifest that it replaces; None: there is none
        kept    ids of other segments whose files stay, for programs that read them
        Raises ConflictError where another manifest is there by now, StorageError.
        """

    @abstractmethod
    def refuse_among_data(self, where: CallSource, found: ResolvedSource) -> None:
        """Raise RequestError for an index in a folder of data: engines would read its files as data."""

    def id_of(self, segment: str) -> str:
        """The id of a segment that is built here, of the id that its plan has."""
        return segment

    def revision_after(self, revision: int) -> int:
        """The revision of a listing that is written anew, of the one that it has."""
        return revision + 1

    def replaceable(self, overwrite: bool) -> Any:
        """The version of the manifest that is there.

        Raises StorageError for one that may not be replaced, and for a folder that has files and is no index.
        """
        found = self.version()
        if found is not None and not overwrite:
            raise StorageError(self.manifest(), EXISTS)
        self._refuse_others(found)
        return found

    @abstractmethod
    def _refuse_others(self, found: Any) -> None:
        """Raise StorageError for a folder that is no index. found: the version of its manifest."""

    def drop_build(self) -> None:
        """Remove what a build has that was killed. What cannot be removed stays."""
        if self.files.lstat("build") is not None:
            for name in list(self.files.files("build/")):
                if _is_of_an_index(name):
                    self.files.remove(name)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """While an index is written: another process of this machine that wants to write to it waits.

        Raises StorageError where the folder cannot be made.
        """
        fd = self._lock()
        try:
            yield
        finally:
            os.close(fd)

    def _lock(self) -> int:
        """The descriptor of the lock, once it is ours."""
        for left in reversed(range(_LOCK_TRIES)):
            with storing(self.files.path):
                self._make_folder()
            try:
                fd = self.files.open("lock", os.O_RDWR | os.O_CREAT)
            except StorageError as error:
                # Another process may have removed the folder, which it is done with.
                if not left or not isinstance(error.__cause__, FileNotFoundError):
                    raise
                continue
            lock(fd)
            if os.fstat(fd).st_nlink:  # it was not removed while this one waited
                return fd
            os.close(fd)
        raise StorageError(self.files.path, "other programs make and remove this folder again and again; try again")

    def _make_folder(self) -> None:
        os.makedirs(self.files.path, exist_ok=True)


def index_folder(where: PathLike) -> IndexFolder:
    """The folder that a name means. Raises RequestError for a store on which no index can be written; StorageError."""
    name = os.fspath(where)
    if "://" not in name or name.lower().startswith("file:"):
        return _LocalFolder(os.path.abspath(local_target(name)))
    return _StoreFolder(name)


def _lies_in(folder: str, name: str) -> RequestError:
    return RequestError(f"{folder}: lies in {name}, where its files would be read as data; name a folder beside it")


def _names(where: CallSource) -> list[str]:
    return [os.fspath(one) for one in several(where.paths) if isinstance(one, str | os.PathLike)]


def _finds(pattern: list[str], folder: list[str]) -> bool:
    """Whether a pattern, as its parts, finds the files of an index in a folder, or a folder that has them."""
    for name in (part_name("0123456789abcdef", 0, 0), listing_name("0123456789abcdef")):
        names = [*folder, *name.split("/")]
        if any(fits(names[:n], pattern) for n in range(1, len(names) + 1)):
            return True
    return False


# --- on a local disk ------------------------------------------------------------------------------


class _LocalFolder(IndexFolder):
    def __init__(self, path: str) -> None:
        self.path = path
        self.files = IndexFiles(path)

    def manifest(self) -> Location:
        return Location(self.files.named(NAME))

    def version(self) -> os.stat_result | None:
        return self.files.lstat(NAME)

    def _refuse_others(self, found: os.stat_result | None) -> None:
        if found is not None:
            with OpenFile(self.files.location(NAME)) as source:
                if not says_it_is_one(source.read(0, min(source.size, MOST_BYTES + 1))):
                    raise StorageError(source.path, "is no manifest of an index; name a folder that is not there yet")
        elif os.path.lexists(self.path):
            for name in self.files.files():
                if not _is_of_an_index(name):
                    raise StorageError(
                        self.path, f"has {name!r}, and is no index; name a folder that is not there yet, or is empty"
                    )

    def open(self) -> tuple[KeyIndex, Any]:
        before = self.version()
        return KeyIndex(self.path), before

    def publish(self, manifest: Manifest, before: Any, kept: Collection[str]) -> None:
        with self.files.new(NAME, before is not None, replaces=before) as new:
            with os.fdopen(os.dup(new.fd), "wb") as out:
                out.write(to_json(manifest))
            new.commit()
        self._keep_only({*kept, *(one.id for one in manifest.segments)})

    def _keep_only(self, segments: Collection[str]) -> None:
        """Remove files of all other segments, those of a build, and temporary files; others wait (`locked`)."""
        with suppress(StorageError):
            for name in list(self.files.files()):
                if name.endswith(SUFFIX):
                    self.files.remove_stale(name)
                elif _is_of_an_index(name) and (name.startswith("build/") or _segment_of(name) not in {*segments, ""}):
                    self.files.remove(name)

    def refuse_among_data(self, where: CallSource, found: ResolvedSource) -> None:
        named = _names(where)
        folders = {os.path.realpath(one) for one in named if os.path.isdir(one)}
        folders |= {os.path.realpath(os.path.dirname(one.path)) for one in found.files if one.is_local and one.stored}
        if (table := where.table_name) is not None and os.path.isdir(table.where):
            folders.add(os.path.realpath(table.where))
        real, own = os.path.realpath(self.path), self.path.split(os.sep)
        for one in sorted(folders):
            if real == one or real.startswith(one.rstrip(os.sep) + os.sep):
                raise _lies_in(self.path, one)
        for one in named:
            if set(one) & GLOB and "://" not in one and _finds(os.path.abspath(one).split(os.sep), own):
                raise _lies_in(self.path, one)


# --- on S3 ----------------------------------------------------------------------------------------


class _StoreFolder(IndexFolder):
    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._store, path = Stores().locate(uri)
        self._path = path.rstrip("/")
        self.path = str(self._store.location(self._path))
        filesystem = self._store.filesystem
        reason = hindrance_of(filesystem)
        if reason is not None:
            kind = "" if filesystem.type_name == "s3" else "; only S3 has requests that replace a manifest safely"
            raise RequestError(f"{self.path}: no index can be written here: {reason}{kind}; build it on a local disk")
        # The name of the working folder is the same for a build that goes on, and its owner is looked at (_make_work).
        name = hashlib.sha256(repr((self._path, filesystem.__reduce__()[1])).encode()).hexdigest()[:24]
        self.files = IndexFiles(os.path.join(tempfile.gettempdir(), f"parquet-bloom-index-{os.getuid()}-{name}"))

    def _refuse_others(self, found: StoreToken | None) -> None:
        for path in self._files() if found is None else ():
            if not _is_of_an_index(path.removeprefix(self._path + "/")):
                raise StorageError(self._store.location(path), "lies where the index goes; name another prefix")
        if found is not None:
            with OpenFile(self.manifest()) as source:
                if not says_it_is_one(source.read(0, min(source.size, MOST_BYTES + 1))):
                    raise StorageError(source.path, "is no manifest of an index; name another prefix")

    def _make_folder(self) -> None:
        work = self.files.path
        with suppress(FileExistsError):
            os.mkdir(work, 0o700)
        found = os.lstat(work)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise StorageError(work, "is not a folder of this user alone; remove it, or set TMPDIR")

    @contextmanager
    def locked(self) -> Iterator[None]:
        with super().locked():
            # What a killed run did not publish may have the names of files that another machine has published since.
            for name in ("columns", "segments"):
                shutil.rmtree(self.files.named(name), ignore_errors=True)
            # Files of a run that had begun to send them may be removed by another machine at any moment, as no manifest
            # names them. So their names are not used again.
            if self.files.lstat(_SENDING) is not None:
                for name in (_WRITER, _SENDING):
                    self.files.remove(name)
            yield

    def id_of(self, segment: str) -> str:
        """One of its own for each working folder, so that no two writers ever send files of one name."""
        if self.files.lstat(_WRITER) is None:
            with self.files.written(_WRITER) as out:
                out.write(secrets.token_hex(16).encode())
        with OpenFile(self.files.location(_WRITER)) as source:
            writer = source.read(0, source.size).decode("ascii", "replace")
        return hashlib.sha256(f"{segment} {writer}".encode()).hexdigest()[:16]

    def revision_after(self, revision: int) -> int:
        """One that no other writer takes."""
        return secrets.randbelow((1 << 31) - 1) + 1

    def _at(self, name: str) -> Location:
        return self._store.location(f"{self._path}/{name}")

    def manifest(self) -> Location:
        return self._at(NAME)

    def version(self) -> StoreToken | None:
        if not self._store.exists(self.manifest().path):
            return None
        with OpenFile(self.manifest()) as source:
            token = source.version_token
        assert isinstance(token, StoreToken)
        return token

    def open(self) -> tuple[KeyIndex, Any]:
        index = KeyIndex(self._uri, self.files)
        return index, index.version

    def publish(self, manifest: Manifest, before: Any, kept: Collection[str]) -> None:
        os.close(self.files.open(_SENDING, os.O_WRONLY | os.O_CREAT))
        new = [name for name in _files_of(manifest) if self.files.lstat(name) is not None]
        for sent in in_order(self._send, new, _SENT_AT_ONCE, settle=True):
            sent()
        self._put_manifest(to_json(manifest), before)
        self._keep_only({*kept, *(one.id for one in manifest.segments)})
        shutil.rmtree(self.files.path, ignore_errors=True)

    def _send(self, name: str) -> None:
        with OpenFile(self.files.location(name)) as source:
            Target(self._at(name), Writing(overwrite=True)).copy(source)

    def _put_manifest(self, text: bytes, before: StoreToken | None) -> None:
        at = self.manifest()
        with self.files.written("manifest") as out:
            out.write(text)
        # The old manifest as the source makes its ETag the condition of the request.
        with OpenFile(self.files.location("manifest") if before is None else at) as source:
            if before is not None and source.version_token != before:
                raise ConflictError(at, CHANGED)
            with StoredFile(source, at, before is not None, force=True) as new:
                new.append(text)
                new.commit()

    def _keep_only(self, segments: Collection[str]) -> None:
        """Remove the files of all other segments. What cannot be removed stays: nothing names it."""
        with suppress(StorageError):
            for path in self._files():
                if _segment_of(path.removeprefix(self._path + "/")) not in {*segments, ""}:
                    remove_unnamed(self._store.location(path))

    def _files(self) -> list[str]:
        assert isinstance(self._store, RemoteStore)
        return [path for path, is_file in self._store.list_folder(self._path) if is_file]

    def refuse_among_data(self, where: CallSource, found: ResolvedSource) -> None:
        mine = self._store.filesystem.type_name
        folders = {
            os.path.dirname(one.path): str(store_of(one).location(os.path.dirname(one.path)))
            for one in found.files
            if not one.is_local and one.stored and one.filesystem.type_name == mine
        }
        named = _names(where)
        if (table := where.table_name) is not None:
            named.append(table.where)
        patterns: dict[str, str] = {}
        stores = Stores()
        for one in named:
            if "://" in one:
                store, path = stores.locate(one)
                if not store.is_local and store.filesystem.type_name == mine:
                    (patterns if set(path) & GLOB else folders)[path.rstrip("/")] = str(store.location(path))
        for path, name in sorted(folders.items()):
            if self._path == path or self._path.startswith(path + "/"):
                raise _lies_in(self.path, name)
        for path, name in patterns.items():
            if _finds(path.split("/"), self._path.split("/")):
                raise _lies_in(self.path, name)


def _files_of(manifest: Manifest) -> Iterable[str]:
    """All files that a manifest names."""
    for segment in manifest.segments:
        yield segment.listing_name
        for column in segment.columns:
            yield from (segment.part_name(column.number, at) for at in range(len(column.parts)))


def _segment_of(name: str) -> str:
    """The id of the segment that a file of an index, or of a build, belongs to; "" where it is no such file."""
    return next((found[1] for one in _OF_SEGMENTS if (found := one.fullmatch(name))), "")


def _is_of_an_index(name: str) -> bool:
    """Whether only an index, or a build of one, gives a file this name: not the manifest, which many programs have."""
    return bool(_segment_of(name)) or name in ("lock", JOURNAL) or is_temporary(name.rpartition("/")[2])
