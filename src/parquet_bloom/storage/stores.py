"""Names become a file system and a path on it: plain paths, URIs, paths on a file system of the caller's.

    s3://bucket/year=2026/a%20b.parquet?region=eu-north-1
    |    |      |                       options, by names of pyarrow's
    |    |      path; %20 and the like are decoded, and encoded again where people are told
    scheme, authority -> one Store for all URIs of a call that have them in common

What lies on it is asked of the Store: storage.store, storage.object_store, storage.arrow_store.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from parquet_bloom.errors import RequestError, StorageError, first_line
from parquet_bloom.storage.arrow_store import RemoteStore
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.remote import (
    OBJECTS,
    Location,
    Objects,
    arrow_filesystem,
    arrow_options,
    fsspec_of,
    proxy_of,
    storage_error,
)
from parquet_bloom.storage.store import LocalStore, Store
from parquet_bloom.storage.version_token import StoreToken

# --- files ---------------------------------------------------------------------------------------


def listed_versions(files: Sequence[Location]) -> dict[str, StoreToken]:
    """The versions of files of another storage by one listing, by path; some may be missing, or all."""
    return store_of(files[0]).listed_versions(files) if files else {}


def at_version(at: Location, version: object) -> Location:
    """The same location; one that costs no request to open, if each read can name this version of the file."""
    return store_of(at).at_version(at, version) if isinstance(version, StoreToken) else at


def opened_by_end(at: Location, length: int) -> Location:
    """The same location; one that is open, with its last `length` bytes, where one request brings more than usual."""
    return store_of(at).opened_by_end(at, length)


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
        return store_on(filesystem, "/", f"{scheme}://{authority}/", True), path
    is_azure = filesystem.type_name == "abfs"
    bucket = authority.partition("@")[0] if is_azure else authority.rpartition("@")[2]
    shown = f"{scheme}://{authority if is_azure else bucket}/"
    return store_on(filesystem, f"{bucket}/", shown, True), f"{bucket}/{path.lstrip('/')}"


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
    user, at, host = authority.rpartition("@")
    shown = f"{scheme}://{host if ':' in user else user + at + host}/"  # never a password
    kind = _SCHEMES.get(scheme)
    if kind in OBJECTS:
        return _of_objects(kind, authority, query, shown)
    uri = f"{scheme}://{authority}/" + (f"?{query}" if query else "")
    if kind == "hdfs":
        return _of_hdfs(uri, shown)
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


def _of_objects(kind: str, authority: str, query: str, shown: str) -> Store:
    if kind == "s3":
        from parquet_bloom.storage.object_s3 import options_of
    elif kind == "gcs":
        from parquet_bloom.storage.object_google import options_of
    else:
        from parquet_bloom.storage.object_azure import options_of
    try:
        options, base = options_of(authority, query)
    except RequestError as error:
        raise RequestError(f"{shown}: {without_secret(error.message)}") from None
    except OSError as error:
        raise storage_error(shown, error) from error
    return store_on(Objects(kind, options), base, shown, True)


def _of_hdfs(uri: str, shown: str) -> Store:
    import pyarrow as pa
    from pyarrow import fs

    try:
        filesystem, base = fs.FileSystem.from_uri(uri)
    except pa.ArrowInvalid as error:
        reason = without_secret(str(error).replace(uri, shown).splitlines()[0])
        raise RequestError(f"{shown}: {reason}") from None  # its cause has the URI as it was
    except Exception as error:
        raise storage_error(shown, error) from error
    return RemoteStore(filesystem, base.rstrip("/") + "/", shown, True)


def objects_of(filesystem: Any) -> Any:
    """Objects of the settings of a file system that a catalog's settings made, where pyarrow made it; else itself."""
    kind = getattr(filesystem, "type_name", "")
    if kind not in OBJECTS or isinstance(filesystem, Objects):
        return filesystem
    options = arrow_options(filesystem)
    if kind == "s3":
        options = {**options, "proxy_options": proxy_of(options)}
    return Objects(kind, options)


def store_on(filesystem: Any, base: str = "", root: str = "", quoted: bool = False) -> Store:
    """The store of a file system of Locations; None is the local one. Only here one is chosen."""
    if filesystem is None:
        return LocalStore(None, base, root, quoted)
    if isinstance(filesystem, Objects):
        from parquet_bloom.storage.object_store import ObjectStore  # for those alone who read objects

        return ObjectStore(filesystem, base, root, quoted)
    return RemoteStore(filesystem, base, root, quoted)


def store_of(at: Location) -> Store:
    """The store of a location."""
    return LOCAL if at.is_local else store_on(at.filesystem)
