"""Other file systems as Stores that send as few requests as they can: those of pyarrow, and of fsspec behind pyarrow.

storage.object_store has S3, Google's storage and Azure as URIs name them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from parquet_bloom.errors import StorageError
from parquet_bloom.storage.remote import (
    OBJECTS,
    ArrowFile,
    FsspecFile,
    Handle,
    Location,
    arrow_of,
    fsspec_of,
    outside,
    side_by_side,
    storage_error,
)
from parquet_bloom.storage.store import GLOB, Kind, Seen, Store, is_data
from parquet_bloom.storage.version_token import StoreToken


class RemoteStore(Store):
    """A file system of pyarrow, or of fsspec behind pyarrow's interface."""

    is_local = False

    def same(self, other: Store) -> bool:
        """Whether the file systems are equal, as pyarrow or Objects call them."""
        if type(self) is not type(other):
            return False
        return bool(self.filesystem is other.filesystem or self.filesystem.equals(other.filesystem))

    @property
    def knows_missing(self) -> bool:
        """Whether opening an object that is not there, and nothing else, is a FileNotFoundError."""
        return bool(self._arrow.type_name == "s3")

    @property
    def _arrow(self) -> Any:
        return arrow_of(self.filesystem)

    def real(self, path: str) -> str:
        """The path: there are no links that we could follow."""
        return path

    def absolute(self, path: str) -> str:
        """The path: there is no working folder."""
        return path

    def names(self, at: Location) -> tuple[str, ...]:
        """Its name for people."""
        return (str(at).rstrip("/"),)

    def folders(self, at: Location) -> list[Location]:
        """The one that its path names."""
        above = posixpath.dirname(at.path.rstrip("/"))
        if above in ("", at.path):
            return []
        return [Location(above, at.filesystem, str(at).rstrip("/").rpartition("/")[0] or "/")]

    def chain(self, folder: Location) -> list[Location]:
        """The folder, and each above it in its path."""
        above = self.folders(folder)
        return [folder, *(self.chain(above[0]) if above else [])]

    def open(self, at: Location, pin: bool) -> Handle:
        """Open the file with one request, or with two for a version where `pin` is set."""
        if at.opened:
            opened = at.opened.pop()
            if not pin or opened.pinned:
                return opened
            opened.close()
        return self._open_by_head(at, pin)

    def _open_by_head(self, at: Location, pin: bool) -> Handle:
        """Open a file by a request that says its size and version, and brings no bytes."""
        fsspec = fsspec_of(self._arrow)
        return ArrowFile(self._arrow, at.path, pin) if fsspec is None else FsspecFile(fsspec, at.path)

    def version(self, at: Location) -> object:
        """The version in the store's answer to one request, which brings no bytes."""
        try:
            file = self._open_by_head(at, True)
        except Exception as error:
            raise storage_error(at, error) from error
        try:
            return file.version()
        finally:
            file.close()

    def kinds(self, paths: Sequence[str]) -> list[Kind]:
        """Side by side: of several paths pyarrow asks one after the other."""
        return side_by_side(self._kind_of, paths)

    def _kind_of(self, path: str) -> Kind:
        from pyarrow import fs

        try:
            info = self._arrow.get_file_info(path)
        except Exception as error:
            return storage_error(self.location(path), error)
        return None if info.type == fs.FileType.NotFound else bool(info.is_file)

    def names_in(self, folder: str) -> list[str]:
        """By one listing of a level."""
        from pyarrow import fs

        try:
            infos = self._arrow.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [info.base_name for info in infos if info.is_file]

    def start_of(self, path: str, most: int) -> bytes:
        """By a stream, of which no more is read."""
        with self._arrow.open_input_stream(path, compression=None) as stream:
            data: bytes = stream.read(most)
        return data

    def size(self, path: str) -> int | None:
        """By asking for its description."""
        from pyarrow import fs

        try:
            info = self._arrow.get_file_info(path)
        except FileNotFoundError:
            return None
        if info.type == fs.FileType.NotFound:
            return None
        return -1 if info.type == fs.FileType.Directory else int(info.size or 0)

    def entries(self, folder: str) -> Iterator[tuple[str, int]]:
        """By one listing of a level."""
        from pyarrow import fs

        for info in sorted(self._infos(folder, False), key=lambda info: str(info.path)):
            yield posixpath.basename(info.path), -1 if info.type == fs.FileType.Directory else int(info.size)

    def list_folder(
        self, folder: str, recursive: bool = True, versions: dict[str, StoreToken] | None = None
    ) -> list[tuple[str, bool]]:
        """All (path, is a file) below a folder. Raises StorageError.

        versions  gets those of files, by path, where listings have them and an open costs a request that one saves
        """
        try:
            infos = self._infos(folder, recursive)
        except Exception as error:
            raise storage_error(self.location(folder), error) from error
        if self._arrow.type_name in OBJECTS:
            wrong = outside(folder.rstrip("/"), (info.path for info in infos))
            if wrong is not None:
                raise StorageError(self.location(folder), wrong)
        return sorted((info.path, info.is_file) for info in infos)

    def modified(self, paths: Sequence[str]) -> list[int]:
        """When files were written, in milliseconds since 1970. Raises Exception."""
        return [info.mtime_ns // 10**6 for info in self._arrow.get_file_info(list(paths))] if paths else []

    def _infos(self, folder: str, recursive: bool) -> list[Any]:
        """The FileInfos of what lies in a folder.

        On Google's storage folders are names only, and GcsFileSystem leaves out those that no object
        marks (apache/arrow#35993), unless it lists recursively, which is what it does in any case.
        docs/architecture.md, "Workarounds", says when this can go.
        """
        from pyarrow import fs

        if recursive or self._arrow.type_name != "gcs":
            return list(self._arrow.get_file_info(fs.FileSelector(folder, recursive=recursive)))
        base = folder.rstrip("/") + "/"
        found: dict[tuple[str, bool], Any] = {}
        for info in self._arrow.get_file_info(fs.FileSelector(folder, recursive=True)):
            name, deeper, _ = info.path.removeprefix(base).partition("/")
            if deeper:
                info = fs.FileInfo(base + name, fs.FileType.Directory)
            found.setdefault((name, info.type == fs.FileType.Directory), info)
        return list(found.values())

    def match(self, pattern: str, seen: Seen, versions: dict[str, StoreToken]) -> tuple[str, list[str]]:
        """The fixed part of a pattern, and the files that fit it or lie in folders that do.

        seen      is shown each listing: the store and folder, what list_folder gave, whether of all below
        versions  as list_folder has it
        """
        parts = pattern.split("/")
        first = next(i for i, part in enumerate(parts) if set(part) & GLOB)
        root, wanted = "/".join(parts[:first]), [part for part in parts[first:] if part]
        recursive = len(wanted) > 1 or "**" in wanted
        hidden = any(part.startswith("_") for part in wanted)  # asked for
        found = []
        entries = self.list_folder(root, recursive, versions)
        seen(self, root, entries, recursive)
        for path, is_file in entries:
            names = path.removeprefix(root).strip("/").split("/")
            if not hidden and any(name.startswith("_") for name in names):
                continue
            if not is_file:
                if not recursive and fits(names, wanted):
                    inside = self.list_folder(path, True, versions)
                    seen(self, path, inside, True)
                    found += [p for p, f in inside if f and is_data(p.removeprefix(path).strip("/"))]
            elif fits(names, wanted) or any(
                fits(names[:n], wanted) and is_data("/".join(names[n:])) for n in range(1, len(names))
            ):
                found.append(path)
        return root, found


def fits(names: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path fits a pattern, both as their parts."""
    if not wanted:
        return not names
    if wanted[0] == "**":
        if fits(names, wanted[1:]):
            return True
        return bool(names) and not names[0].startswith(".") and fits(names[1:], wanted)
    if not names or (names[0].startswith(".") and not wanted[0].startswith(".")):
        return False
    return fnmatchcase(names[0], wanted[0]) and fits(names[1:], wanted[1:])
