"""What people name, as a file system and a path on it: plain paths, URIs, a file system given.

    s3://bucket/year=2026/a%20b.parquet?region=eu-north-1
    |    |      |                       options, as pyarrow.fs.FileSystem.from_uri has them
    |    |      path; %20 and the like are decoded, and encoded again where people are told
    scheme, authority -> one file system for all URIs of a call that have them in common

Also listing and matching on such file systems, by the same rules as for local folders.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, unquote

from parquet_bloom.errors import ParquetBloomError, RequestError
from parquet_bloom.storage.remote import Location, fsspec_of, storage_error
from parquet_bloom.storage.secrets import without_secret
from parquet_bloom.storage.source import arrow_filesystem

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/?#]*)([^?]*)(?:\?(.*))?", re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.DOTALL)
_SAFE = "/=:,+@!$&'()*;~"  # as they are in a URI's path
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
SUFFIXES = (".parquet", ".parq", ".pq")
GLOB = set("*?[")


@dataclass(frozen=True, slots=True)
class Store:
    """A file system and how people name its paths.

    filesystem  pyarrow's object; None: the local one
    base        what stands before every path of people's on the file system
    root        what people see in its place
    quoted      whether people's paths are those of URIs
    """

    filesystem: Any = None
    base: str = ""
    root: str = ""
    quoted: bool = False

    def location(self, path: str) -> Location:
        """A path on the file system, with the name people know it by."""
        rest = path.removeprefix(self.base)
        return Location(path, self.filesystem, self.root + (quote(rest, _SAFE) if self.quoted else rest))

    def same(self, other: Store) -> bool:
        if self.filesystem is None or other.filesystem is None:
            return self.filesystem is other.filesystem
        return bool(self.filesystem is other.filesystem or self.filesystem.equals(other.filesystem))


LOCAL = Store()


class Stores:
    """The file systems of one call: each is made once."""

    def __init__(self, filesystem: Any = None) -> None:
        self.given = LOCAL if filesystem is None else _given(filesystem)
        self._made: dict[tuple[str, str, str], Store] = {}

    def locate(self, text: str) -> tuple[Store, str]:
        """A name as a store and a path on it. Raises RequestError, StorageError."""
        local = _FILE.fullmatch(text)
        if local is not None:
            return LOCAL, unquote(local[1])
        uri = _URI.fullmatch(text)
        if uri is None:
            return self.given, self.given.base + text
        shown = without_secret(text)
        if shown != text and "@" not in uri[2]:
            raise RequestError(f"{shown}: a / in the secret of a URI must be written as %2F")
        if uri[1].lower() == "file":
            raise RequestError(f"{shown}: a file: URI names no other machine, write file:///{uri[2]}{uri[3]}")
        if self.given.filesystem is not None:
            return self._on_given(text, uri)
        key = (uri[1].lower(), uri[2], uri[4] or "")
        if key not in self._made:
            self._made[key] = _from_uri(*key)
        store = self._made[key]
        rest = uri[3].lstrip("/")
        return store, store.base + (unquote(rest) if store.quoted else rest)

    def _on_given(self, text: str, uri: re.Match[str]) -> tuple[Store, str]:
        scheme, given = uri[1].lower(), self.given.filesystem
        fsspec = fsspec_of(given)
        if fsspec is not None:
            protocols = (fsspec.protocol,) if isinstance(fsspec.protocol, str) else tuple(fsspec.protocol)
            if scheme in protocols:
                return Store(given, fsspec._strip_protocol(""), f"{scheme}://"), fsspec._strip_protocol(text)
        elif _SCHEMES.get(scheme) == given.type_name and not self.given.base:
            rest = unquote(uri[3])
            if given.type_name == "hdfs":
                return Store(given, "/", f"{scheme}://{uri[2]}/", True), rest
            bucket = uri[2].rpartition("@")[2] if given.type_name != "abfs" else uri[2].partition("@")[0]
            shown = f"{scheme}://{uri[2]}/" if given.type_name == "abfs" else f"{scheme}://{bucket}/"
            return Store(given, f"{bucket}/", shown, True), f"{bucket}/{rest.lstrip('/')}"
        raise RequestError(f"{without_secret(text)} is not on the file system given, {given.type_name}")


def _given(filesystem: Any) -> Store:
    from pyarrow import fs

    given, base = arrow_filesystem(filesystem), ""
    while isinstance(given, fs.SubTreeFileSystem):
        base = given.base_path + base
        given = given.base_fs
    protocol = getattr(fsspec_of(given), "protocol", ())
    if isinstance(given, fs.LocalFileSystem) or "file" in ((protocol,) if isinstance(protocol, str) else protocol):
        given = None  # our own ways are better there
    return Store(given, base)


def _from_uri(scheme: str, authority: str, query: str) -> Store:
    import pyarrow as pa
    from pyarrow import fs

    user, at, host = authority.rpartition("@")
    shown = f"{scheme}://{host if ':' in user else user + at + host}/"  # never a password
    uri = f"{scheme}://{authority}/" + (f"?{query}" if query else "")
    try:
        filesystem, base = fs.FileSystem.from_uri(uri)
        return Store(filesystem, base.rstrip("/") + "/", shown, True)
    except pa.ArrowInvalid as error:
        if "Unrecognized filesystem type" not in str(error):
            said = without_secret(str(error).replace(uri, shown).splitlines()[0])
            raise RequestError(f"{shown}: {said}") from None  # its cause has the URI as it was
    except Exception as error:
        raise storage_error(shown, error) from error
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise RequestError(f"{shown}: pyarrow knows no storage {scheme}:, and fsspec is not installed") from None
    try:
        made, base = url_to_fs(uri)
    except Exception as error:
        said = without_secret((str(error).splitlines() or [type(error).__name__])[0])
        raise RequestError(f"{shown}: {said}") from None
    return Store(arrow_filesystem(made), base.rstrip("/") + "/", shown)


# --- listing --------------------------------------------------------------------------------------


def is_data(relative: str) -> bool:
    """Whether a file of a folder is Parquet by its name, and it and its folders are not hidden."""
    return relative.lower().endswith(SUFFIXES) and not any(p.startswith((".", "_")) for p in relative.split("/"))


def list_folder(store: Store, folder: str, recursive: bool = True) -> list[tuple[str, bool]]:
    """All (path, is a file) below a folder of a storage. Raises StorageError."""
    try:
        infos = infos_in(store.filesystem, folder, recursive)
    except Exception as error:
        raise storage_error(store.location(folder), error) from error
    return sorted((info.path, info.is_file) for info in infos)


def infos_in(filesystem: Any, folder: str, recursive: bool = False) -> list[Any]:
    """The FileInfos of what lies in a folder of a file system of pyarrow.

    On Google's storage folders are names only, and GcsFileSystem leaves out those that no object
    marks (apache/arrow#35993), unless it lists recursively, which is what it does in any case.
    """
    from pyarrow import fs

    if recursive or filesystem.type_name != "gcs":
        return list(filesystem.get_file_info(fs.FileSelector(folder, recursive=recursive)))
    base = folder.rstrip("/") + "/"
    found: dict[tuple[str, bool], Any] = {}
    for info in filesystem.get_file_info(fs.FileSelector(folder, recursive=True)):
        name, deeper, _ = info.path.removeprefix(base).partition("/")
        if deeper:
            info = fs.FileInfo(base + name, fs.FileType.Directory)
        found.setdefault((name, info.type == fs.FileType.Directory), info)
    return list(found.values())


def kinds(store: Store, paths: Sequence[str]) -> list[bool | ParquetBloomError | None]:
    """For each path: True a file, False a folder, None nothing there, or the error in asking."""
    from pyarrow import fs

    try:
        infos = store.filesystem.get_file_info(list(paths))
    except Exception as error:
        if len(paths) == 1:
            return [storage_error(store.location(paths[0]), error)]
        return [kinds(store, [path])[0] for path in paths]
    return [None if info.type == fs.FileType.NotFound else bool(info.is_file) for info in infos]


def is_folder(store: Store, path: str) -> bool:
    """Whether a path is a folder. Raises StorageError."""
    kind = kinds(store, [path.rstrip("/")])[0]
    if isinstance(kind, ParquetBloomError):
        raise kind
    return kind is False


Seen = Callable[[Store, str, Sequence[tuple[str, bool]], bool], None]


def match(store: Store, pattern: str, seen: Seen) -> tuple[str, list[str]]:
    """The fixed part of a pattern, and the files that fit it or lie in folders that do.

    seen  is shown each listing: its store and folder, what list_folder gave, whether of all below
    """
    parts = pattern.split("/")
    first = next(i for i, part in enumerate(parts) if set(part) & GLOB)
    root, wanted = "/".join(parts[:first]), [part for part in parts[first:] if part]
    recursive = len(wanted) > 1 or "**" in wanted
    hidden = any(part.startswith("_") for part in wanted)  # asked for
    found = []
    entries = list_folder(store, root, recursive)
    seen(store, root, entries, recursive)
    for path, is_file in entries:
        names = path.removeprefix(root).strip("/").split("/")
        if not hidden and any(name.startswith("_") for name in names):
            continue
        if not is_file:
            if not recursive and _fits(names, wanted):
                inside = list_folder(store, path)
                seen(store, path, inside, True)
                found += [p for p, f in inside if f and is_data(p.removeprefix(path).strip("/"))]
        elif _fits(names, wanted) or any(
            _fits(names[:n], wanted) and is_data("/".join(names[n:])) for n in range(1, len(names))
        ):
            found.append(path)
    return root, found


def _fits(names: Sequence[str], wanted: Sequence[str]) -> bool:
    if not wanted:
        return not names
    if wanted[0] == "**":
        if _fits(names, wanted[1:]):
            return True
        return bool(names) and not names[0].startswith(".") and _fits(names[1:], wanted)
    if not names or (names[0].startswith(".") and not wanted[0].startswith(".")):
        return False
    return fnmatchcase(names[0], wanted[0]) and _fits(names[1:], wanted[1:])
