"""S3, Google's storage and Azure as a Store: obstore sends one request for each answer.

    kinds, size     HEAD, and where there is no such object one LIST: a folder is what objects lie below
    names, entries  LIST of a level
    list_folder     LIST of all below, a request for 1,000 objects
    versions        those of a listing: ETags of S3 and Azure; Google's listings name no generations here

A process that cannot use obstore (object_reader.is_forked) uses pyarrow's file system instead.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from parquet_bloom.storage.arrow_store import RemoteStore
from parquet_bloom.storage.object_reader import (
    Bucket,
    Listed,
    ObjectFile,
    RefusedError,
    bucket_of,
    is_forked,
    is_named,
    key_of,
)
from parquet_bloom.storage.remote import Handle, Location, side_by_side, storage_error
from parquet_bloom.storage.store import Kind
from parquet_bloom.storage.version_token import StoreToken

_OTHERS = 4  # times as many objects as are wanted, that a listing goes through


class ObjectStore(RemoteStore):
    """The storage of Objects."""

    @property
    def knows_missing(self) -> bool:
        """As RemoteStore has it; with obstore on each kind of storage."""
        return not is_forked() or super().knows_missing

    def _bucket(self, path: str) -> Bucket:
        return bucket_of(self.filesystem, path.partition("/")[0])

    def _key(self, path: str) -> str:
        """The key of a folder or an object; "" is the bucket itself."""
        path = path.rstrip("/")
        return key_of(Location(path)) if "/" in path else ""

    def open(self, at: Location, pin: bool) -> Handle:
        """Open the object with one request."""
        if is_forked():
            return super().open(at, pin)
        return at.opened.pop() if at.opened else self._bucket(at.path).open(at)

    def version(self, at: Location) -> object:
        """The version in the answer to HEAD."""
        if is_forked():
            return super().version(at)
        try:
            return self._bucket(at.path).version(key_of(at))
        except Exception as error:
            raise storage_error(at, error) from error

    def _kind_of(self, path: str) -> Kind:
        if is_forked():
            return super()._kind_of(path)
        try:
            size = self.size(path)
        except Exception as error:
            return storage_error(self.location(path), error)
        return None if size is None else size >= 0

    def size(self, path: str) -> int | None:
        """By HEAD, and by a listing where there is no object."""
        if is_forked():
            return super().size(path)
        bucket, key = self._bucket(path), self._key(path)
        if not key:
            with suppress(FileNotFoundError):
                bucket.is_folder("")
                return -1
            return None
        with suppress(FileNotFoundError):
            size = bucket.version(key).size
            return size if size or not bucket.is_folder(key) else -1
        return -1 if bucket.is_folder(key) else None

    def names_in(self, folder: str) -> list[str]:
        """By one listing of a level."""
        if is_forked():
            return super().names_in(folder)
        with suppress(FileNotFoundError):
            objects, _ = self._bucket(folder).level(self._key(folder))
            return [posixpath.basename(one.key) for one in objects]
        return []

    def start_of(self, path: str, most: int) -> bytes:
        """By a request for the first bytes."""
        return super().start_of(path, most) if is_forked() else self._bucket(path).start(self._key(path), most)

    def modified(self, paths: Sequence[str]) -> list[int]:
        """By HEAD, side by side."""
        if is_forked():
            return super().modified(paths)
        return side_by_side(lambda path: self._bucket(path).modified(self._key(path)), paths)

    def entries(self, folder: str) -> Iterator[tuple[str, int]]:
        """By one listing of a level."""
        if is_forked():
            yield from super().entries(folder)
            return
        objects, folders = self._bucket(folder).level(self._key(folder))
        if not objects and not folders and self._key(folder):
            raise FileNotFoundError("no such file or folder")
        above = {posixpath.basename(one) for one in folders}
        found = dict.fromkeys(above, -1)
        found |= {name: one.version.size for one in objects if (name := posixpath.basename(one.key)) not in above}
        yield from sorted(found.items())

    def list_folder(
        self, folder: str, recursive: bool = True, versions: dict[str, StoreToken] | None = None
    ) -> list[tuple[str, bool]]:
        """As RemoteStore has it, by one listing."""
        if is_forked():
            return super().list_folder(folder, recursive, versions)
        try:
            name, bucket, prefix = folder.partition("/")[0], self._bucket(folder), self._key(folder)
            objects, folders = (bucket.listed(prefix), []) if recursive else bucket.level(prefix)
            found = _by_key(objects)
            if versions is not None and found and self._opens_by(bucket, found):
                versions.update({f"{name}/{key}": version for key, version in found.items()})
        except Exception as error:
            raise storage_error(self.location(folder), error) from error
        above = {*folders, *(parent for key in found for parent in _parents(key, prefix))}
        below = [*((key, True) for key in found if key not in above), *((key, False) for key in above)]
        return sorted((f"{name}/{key}", is_file) for key, is_file in below)

    def _opens_by(self, bucket: Bucket, found: dict[str, StoreToken]) -> bool:
        """Whether versions of this listing spare a request each: the store opens by HEAD, and its answers have them."""
        if bucket.has_suffixes:
            return False
        if bucket.lists_versions is None:
            key = min(found)
            bucket.lists_versions = bucket.version(key) == found[key]
        return bucket.lists_versions

    def listed_versions(self, files: Sequence[Location]) -> dict[str, StoreToken]:
        """Those of objects of one bucket, by one listing of the folder that all lie in.

        Nothing where the store refuses, or the folder has many times as many objects.
        """
        name = files[0].path.partition("/")[0]
        if is_forked() or self.filesystem.type_name == "gcs":
            return {}
        wanted = {file.path.partition("/")[2] for file in files if file.path.startswith(name + "/")}
        folder = posixpath.commonpath([posixpath.dirname(key) for key in wanted])
        found: dict[str, StoreToken] = {}
        with suppress(OSError):
            for number, one in enumerate(self._bucket(files[0].path).listed(folder)):
                if number > _OTHERS * len(wanted) + 1000:
                    return {}
                if one.key in wanted:
                    if (path := f"{name}/{one.key}") in found:  # such a listing says nothing, and may have no end
                        return {}
                    found[path] = one.version
        return found

    def at_version(self, at: Location, version: StoreToken) -> Location:
        """As Store has it."""
        if is_forked() or at.opened or not version.told or not is_named(version):
            return at
        return replace(at, opened=[ObjectFile(self._bucket(at.path), at, version)])

    def opened_by_end(self, at: Location, length: int) -> Location:
        """As Store has it."""
        if not is_forked() and not at.opened:
            with suppress(OSError):  # opening it in the usual way says what is wrong
                return replace(at, opened=[self._bucket(at.path).open(at, length)])
        return at


def _by_key(objects: Iterator[Listed] | Sequence[Listed]) -> dict[str, StoreToken]:
    """The versions of a listing. Raises RefusedError for one that shows keys twice: it may have no end.

    A folder's own empty object has the key of an object without the slash at its end.
    """
    found: dict[str, StoreToken] = {}
    marked: set[str] = set()
    for key, version in objects:
        if key in found:
            if key in marked or (version.size and found[key].size):
                raise RefusedError(f"its listing names {key!r} twice")
            marked.add(key)
            version = version if version.size else found[key]
        found[key] = version
    return found


def _parents(key: str, prefix: str) -> Iterator[str]:
    """The folders above a key that lie below a folder."""
    while len(key := posixpath.dirname(key)) > len(prefix):
        yield key
