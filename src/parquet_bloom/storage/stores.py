"""What people name, as a file system and a path on it: plain paths, URIs, a file system given.

    s3://bucket/year=2026/a%20b.parquet?region=eu-north-1
    |    |      |                       options, as pyarrow.fs.FileSystem.from_uri has them
    |    |      path; %20 and the like are decoded, and encoded again where people are told
    scheme, authority -> one Store for all URIs of a call that have them in common

What lies on it is asked of the Store: storage.local_store, storage.remote_store.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

from parquet_bloom.errors import RequestError, first_line
from parquet_bloom.storage.local_store import LocalStore
from parquet_bloom.storage.remote import Location, arrow_filesystem, fsspec_of, storage_error
from parquet_bloom.storage.remote_store import RemoteStore
from parquet_bloom.storage.shown import without_secret
from parquet_bloom.storage.store import Store

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/?#]*)([^?]*)(?:\?(.*))?", re.DOTALL)
_FILE = re.compile(r"file:(?://(?:localhost)?)?(/(?!/).*)", re.DOTALL)
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


class Stores:
    """The file systems of one call: each is made once."""

    def __init__(self, filesystem: Any = None) -> None:
        self.given = _given(filesystem)
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
        if not self.given.is_local:
            return self._on_given(text, uri)
        key = (uri[1].lower(), uri[2], uri[4] or "")
        if key not in self._made:
            self._made[key] = _from_uri(*key)
        store = self._made[key]
        rest = uri[3].lstrip("/")
        return store, store.base + (unquote(rest) if store.quoted else rest)

    def _on_given(self, text: str, uri: re.Match[str]) -> tuple[Store, str]:
        found = on_file_system(self.given, uri[1].lower(), uri[2], unquote(uri[3]), text)
        if found is None:
            raise RequestError(
                f"{without_secret(text)} is not on the file system given, {self.given.filesystem.type_name}"
            )
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


def _given(filesystem: Any) -> Store:
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
        filesystem, base = fs.FileSystem.from_uri(uri)
        return RemoteStore(filesystem, base.rstrip("/") + "/", shown, True)
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


def store_on(filesystem: Any, base: str = "", root: str = "", quoted: bool = False) -> Store:
    """The store of a file system of pyarrow; None is the local one."""
    return (LocalStore if filesystem is None else RemoteStore)(filesystem, base, root, quoted)


def store_of(at: Location) -> Store:
    """The store of a location: the only place that chooses between the two."""
    return LOCAL if at.is_local else RemoteStore(at.filesystem)
