"""Names become a file system and a path on it: plain paths, URIs, paths on a file system of the caller's.

    s3://bucket/year=2026/a%20b.parquet?region=eu-north-1
    |    |      |                       options, as pyarrow.fs.FileSystem.from_uri has them
    |    |      path; %20 and the like are decoded, and encoded again where people are told
    scheme, authority -> one Store for all URIs of a call that have them in common

What lies on it is asked of the Store: storage.store, storage.stores.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from typing import Any

from parquet_bloom.errors import RequestError, StorageError, first_line
from parquet_bloom.options import limits
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.remote import (
    OBJECTS,
    ArrowFile,
    FsspecFile,
    Handle,
    Location,
    arrow_filesystem,
    fsspec_of,
    side_by_side,
    storage_error,
)
from parquet_bloom.storage.store import GLOB, Kind, LocalStore, Seen, Store, is_data
from parquet_bloom.storage.version_token import StoreToken

# --- stores: other file systems -------------------------------------------------------------------
#
# A file system of pyarrow, or of fsspec behind pyarrow, as a Store that sends as few requests as it can.


class RemoteStore(Store):
    """A file system of pyarrow, or of fsspec behind pyarrow's interface."""

    is_local = False

    def same(self, other: Store) -> bool:
        """Whether pyarrow calls the file systems equal."""
        if other.is_local:
            return False
        return bool(self.filesystem is other.filesystem or self.filesystem.equals(other.filesystem))

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
        return open_remote(at, pin)

    def version(self, at: Location) -> object:
        """The version in the store's answer to one request, which brings no bytes."""
        try:
            if _is_object(at):
                from parquet_bloom.storage.object_reader import object_version  # for those alone who read objects

                if (told := object_version(at)) is not None:
                    return told
            file = _open_by_head(at, True)
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
            info = self.filesystem.get_file_info(path)
        except Exception as error:
            return storage_error(self.location(path), error)
        return None if info.type == fs.FileType.NotFound else bool(info.is_file)

    def names_in(self, folder: str) -> list[str]:
        """By one listing of a level."""
        from pyarrow import fs

        try:
            infos = self.filesystem.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [info.base_name for info in infos if info.is_file]

    def start_of(self, path: str, most: int) -> bytes:
        """By a stream, of which no more is read."""
        with self.filesystem.open_input_stream(path, compression=None) as stream:
            data: bytes = stream.read(most)
        return data

    def size(self, path: str) -> int | None:
        """By asking for its description."""
        from pyarrow import fs

        try:
            info = self.filesystem.get_file_info(path)
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
        found, folders = _versions_below(self.location(folder), recursive) if versions is not None else ({}, [])
        if versions is not None and found:
            versions.update(found)
            above = {*folders, *(parent for path in found for parent in _parents(path, folder))}
            return sorted([*((path, True) for path in found if path not in above), *((path, False) for path in above)])
        try:
            infos = self._infos(folder, recursive)
        except Exception as error:
            raise storage_error(self.location(folder), error) from error
        if _is_object(self.location(folder)):
            below = folder.rstrip("/") + "/"
            wrong = next((info.path for info in infos if not info.path.startswith(below)), None)
            if wrong is not None:
                raise StorageError(self.location(folder), f"its listing names {wrong!r}, which is not in it")
        return sorted((info.path, info.is_file) for info in infos)

    def _infos(self, folder: str, recursive: bool) -> list[Any]:
        """The FileInfos of what lies in a folder.

        On Google's storage folders are names only, and GcsFileSystem leaves out those that no object
        marks (apache/arrow#35993), unless it lists recursively, which is what it does in any case.
        docs/architecture.md, "Workarounds", says when this can go.
        """
        from pyarrow import fs

        if recursive or self.filesystem.type_name != "gcs":
            return list(self.filesystem.get_file_info(fs.FileSelector(folder, recursive=recursive)))
        base = folder.rstrip("/") + "/"
        found: dict[tuple[str, bool], Any] = {}
        for info in self.filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
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


# --- files ---------------------------------------------------------------------------------------


def _parents(path: str, folder: str) -> Iterator[str]:
    """The folders above a path that lie below a folder."""
    while len(path := posixpath.dirname(path)) > len(folder.rstrip("/")):
        yield path


def _versions_below(folder: Location, recursive: bool) -> tuple[dict[str, StoreToken], list[str]]:
    """The versions of objects of Azure below a folder by one listing, and folders; nothing where pyarrow lists."""
    if getattr(folder.filesystem, "type_name", "") != "abfs":
        return {}, []
    from parquet_bloom.storage import object_reader  # for those alone who read objects

    return object_reader.versions_below(folder, recursive)


def listed_versions(files: Sequence[Location]) -> dict[str, StoreToken]:
    """The versions of files of another storage by one listing, by path; some may be missing.

    Today of objects of S3 and Azure, through the extra `stores`: pyarrow's listings have no ETags.
    """
    if not files or not _is_object(files[0]):
        return {}
    from parquet_bloom.storage import object_reader  # for those alone who read objects

    return object_reader.listed_versions(files)


def open_remote(location: Location, pin: bool = False) -> Handle:
    """Open a file of another storage, with one request where the store allows it.

    pin  so that `version` tells later whether the file has changed since
    Raises what the file system raises.
    """
    if location.opened:
        opened = location.opened.pop()
        if not pin or opened.pinned:
            return opened
        opened.close()
    if _is_object(location):
        from parquet_bloom.storage.object_reader import open_object  # for those alone who read objects

        return open_object(location)
    return _open_by_head(location, pin)


def _open_by_head(location: Location, pin: bool) -> Handle:
    """Open a file by a request that says its size and version, and brings no bytes."""
    fsspec = fsspec_of(location.filesystem)
    if fsspec is None:
        return ArrowFile(location.filesystem, location.path, pin)
    return FsspecFile(fsspec, location.path)


def _is_object(location: Location) -> bool:
    """Whether pyarrow's own file system of S3, Google's storage or Azure has a file."""
    return getattr(location.filesystem, "type_name", "") in OBJECTS


def at_version(at: Location, version: object) -> Location:
    """The same location; one that costs no request to open, if each read can name this version of the file."""
    if isinstance(version, StoreToken) and _is_object(at):
        from parquet_bloom.storage.object_reader import object_at  # for those alone who read objects

        return object_at(at, version)
    return at


def opened_by_end(at: Location, length: int) -> Location:
    """The same location; one that is open, with its last `length` bytes, where one request brings more than usual."""
    if _is_object(at):
        from parquet_bloom.storage.object_reader import object_by_end  # for those alone who read objects

        return object_by_end(at, length)
    return at


def still_at_version(at: Location, version: object) -> Location:
    """The same location; one that is open, without its end, if a request shows that it still has this version.

    So is a file opened whose footer is known: HEAD brings no bytes.
    """
    opened = at_version(at, version)
    if opened is not at:
        with suppress(StorageError):
            return opened if store_of(at).version(at) == version else at
    return at


# --- which store a name is on ---------------------------------------------------------------------

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/?#]*)([^?]*)(?:\?(.*))?", re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.DOTALL)


def _decoded(text: str) -> str:
    """A part of a URI without its escapes."""
    from urllib.parse import unquote  # a plain path needs none of it, nor of what it loads

    return unquote(text)


_SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "gcs": "gcs",
    "hdfs": "hdfs",
    "viewfs": "hdfs",
    "abfs": "abfs",
    "abfss": "abfs",
}
_GOOGLE_SECONDS = 20  # Google's client tries a request again for a quarter of an hour where no other is asked for
LOCAL = LocalStore()


def uri_meant(path: str) -> str:
    """A URI with two slashes for one that has one, as the end of a message; "" for what is none."""
    scheme, colon, rest = path.partition(":/")
    return f"; a URI has two slashes: {scheme}://{rest}" if colon and rest[:1] != "/" and scheme in _SCHEMES else ""


class Stores:
    """The file systems of one call: each is made once."""

    def __init__(self, filesystem: Any = None) -> None:
        self.given = _store_for(filesystem)
        self._made: dict[tuple[str, str, str], Store] = {}

    def locate(self, text: str) -> tuple[Store, str]:
        """A name as a store and a path on it. Raises RequestError, StorageError."""
        local = _FILE.fullmatch(text)
        if local is not None:
            return LOCAL, _decoded(local[1])
        uri = _URI.fullmatch(text)
        if uri is None:
            return self.given, self.given.base + text
        shown = without_secret(text)
        if shown != text and "@" not in uri[2]:
            raise RequestError(f"{shown}: a / in the secret of a URI must be written as %2F")
        if uri[1].lower() == "file":
            raise RequestError(f"{shown}: a file: URI names no other machine, write file:///{uri[2]}{uri[3]}")
        if not self.given.is_local:
            return self._locate_on_store(text, uri)
        key = (uri[1].lower(), uri[2], uri[4] or "")
        if key not in self._made:
            self._made[key] = _from_uri(*key)
        store = self._made[key]
        rest = uri[3].lstrip("/")
        return store, store.base + (_decoded(rest) if store.quoted else rest)

    def _locate_on_store(self, text: str, uri: re.Match[str]) -> tuple[Store, str]:
        found = on_file_system(self.given, uri[1].lower(), uri[2], _decoded(uri[3]), text)
        if found is None:
            raise RequestError(f"{without_secret(text)} is not on that file system, {self.given.filesystem.type_name}")
        return found


def on_file_system(store: Store, scheme: str, authority: str, path: str, text: str = "") -> tuple[Store, str] | None:
    """A URI as a path on the file system of a store, which may be of another bucket; None: its scheme is another one's.

    authority  without the bucket of S3, Google or Azure, nothing of it counts: hosts and users are the file system's
    path       of the URI, decoded
    text       the whole of it, for fsspec
    """
    filesystem = store.filesystem
    if store.is_local:
        return None
    fsspec = fsspec_of(filesystem)
    if fsspec is not None:
        protocols = (fsspec.protocol,) if isinstance(fsspec.protocol, str) else tuple(fsspec.protocol)
        if scheme not in protocols:
            return None
        text = text or f"{scheme}://{authority}{path}"
        return RemoteStore(filesystem, fsspec._strip_protocol(""), f"{scheme}://"), fsspec._strip_protocol(text)
    if _SCHEMES.get(scheme) != filesystem.type_name or (store.base and not store.root):
        return None
    if filesystem.type_name == "hdfs":
        return RemoteStore(filesystem, "/", f"{scheme}://{authority}/", True), path
    is_azure = filesystem.type_name == "abfs"
    bucket = authority.partition("@")[0] if is_azure else authority.rpartition("@")[2]
    shown = f"{scheme}://{authority if is_azure else bucket}/"
    return RemoteStore(filesystem, f"{bucket}/", shown, True), f"{bucket}/{path.lstrip('/')}"


def _store_for(filesystem: Any) -> Store:
    if filesystem is None:
        return LOCAL
    from pyarrow import fs

    given, base = arrow_filesystem(filesystem), ""
    while isinstance(given, fs.SubTreeFileSystem):
        base = given.base_path + base
        given = given.base_fs
    protocol = getattr(fsspec_of(given), "protocol", ())
    if isinstance(given, fs.LocalFileSystem) or "file" in ((protocol,) if isinstance(protocol, str) else protocol):
        given = None  # our own ways are better there
    return store_on(given, base)


def _from_uri(scheme: str, authority: str, query: str) -> Store:
    import pyarrow as pa
    from pyarrow import fs

    user, at, host = authority.rpartition("@")
    shown = f"{scheme}://{host if ':' in user else user + at + host}/"  # never a password
    if _SCHEMES.get(scheme) == "gcs" and "retry_limit_seconds=" not in query:
        query += f"{'&' if query else ''}retry_limit_seconds={_GOOGLE_SECONDS}"
    uri = f"{scheme}://{authority}/" + (f"?{query}" if query else "")
    try:
        with _connections():
            filesystem, base = fs.FileSystem.from_uri(uri)
        # Azure's path begins with the container, which a URI of an account's host has behind the host.
        base = "" if filesystem.type_name == "abfs" and not base.strip("/") else base.rstrip("/") + "/"
        return RemoteStore(filesystem, base, shown, True)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            reason = without_secret(str(error).replace(uri, shown).splitlines()[0])
            raise RequestError(f"{shown}: {reason}") from None  # its cause has the URI as it was
    except Exception as error:
        raise storage_error(shown, error) from error
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise RequestError(f"{shown}: pyarrow knows no storage {scheme}:, and fsspec is not installed") from None
    try:
        made, base = url_to_fs(uri)
    except Exception as error:
        reason = without_secret(first_line(error))
        raise RequestError(f"{shown}: {reason}") from None
    return RemoteStore(arrow_filesystem(made), base.rstrip("/") + "/", shown)


@contextmanager
def _connections() -> Iterator[None]:
    """Let pyarrow make a file system with as many connections as requests that run at a time.

    S3FileSystem takes their number, 25 at least, from the number of threads that pyarrow has for reading when it is
    made (S3FileSystem::Impl::Init of Arrow 26). The threads themselves are not started for that.
    """
    import pyarrow as pa

    threads = pa.io_thread_count()
    if threads >= limits().concurrency:
        yield
        return
    pa.set_io_thread_count(limits().concurrency)
    try:
        yield
    finally:
        pa.set_io_thread_count(threads)


def store_on(filesystem: Any, base: str = "", root: str = "", quoted: bool = False) -> Store:
    """The store of a file system of pyarrow; None is the local one."""
    return (LocalStore if filesystem is None else RemoteStore)(filesystem, base, root, quoted)


def store_of(at: Location) -> Store:
    """The store of a location: the only place that chooses between the two."""
    return LOCAL if at.is_local else RemoteStore(at.filesystem)
