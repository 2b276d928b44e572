"""Paths as Spark names them -> pyarrow's file systems, with the rights that the session's Hadoop settings give.

    s3a://bucket/year=2026/a b.parquet      nothing is percent-encoded: Hadoop takes names as they are
    |     |      path
    |     authority: a bucket, a host and port, container@account
    scheme: file, s3a (s3, s3n), abfss (abfs), gs, hdfs (viewfs)

`Storages` is made on the driver and sent to the executors, which open the files themselves.
Sources: hadoop-aws, hadoop-azure and Google's gcs-connector, their settings' names; pyarrow.fs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.options import PathLike, several
from parquet_bloom.storage.object_s3 import check_keys
from parquet_bloom.storage.paths import DataFile, partitions_of
from parquet_bloom.storage.remote import Objects
from parquet_bloom.storage.store import Store
from parquet_bloom.storage.stores import LOCAL, store_on

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?://([^/]*))?(/.*|)", re.DOTALL)
_PREFIXES = {
    "s3a": "fs.s3a.",
    "s3": "fs.s3a.",
    "s3n": "fs.s3a.",
    "abfs": "fs.azure.",
    "abfss": "fs.azure.",
    "gs": "fs.gs.",
}
_BUCKETS = {"s3a", "s3", "s3n", "gs"}
_HDFS = {"hdfs", "viewfs"}


@dataclass(frozen=True)
class Storages:
    """How to open what Spark names.

    settings  Hadoop's settings of the session, those of the storages in use; they may hold secrets
    default   fs.defaultFS, which names without a scheme are on
    """

    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    default: str = "file:///"

    def data_file(self, name: str, root: str = "") -> DataFile:
        """A file by its name.

        root  the folder that was named, if it was one: the file's place in an output and its Hive
              partitions are what lies between
        Raises RequestError for a scheme that nothing here can open.
        """
        store, path = self.open(name)
        below = name[len(root) :].lstrip("/") if root else name.rsplit("/", 1)[-1]
        return DataFile(path, store.filesystem, name, [], below, partitions_of(below))

    def open(self, name: str) -> tuple[Store, str]:
        """The file system and the path on it."""
        scheme, authority, path = self.split(name)
        if scheme == "file":
            return LOCAL, path
        try:
            store = store_on(_filesystem(scheme, authority, tuple(sorted(self.settings.items()))))
        except Exception as error:  # half a key, a library that is not there, a name node that does not answer
            raise RequestError(f"{scheme}://{authority}: {' '.join(str(error).split())}") from error
        if scheme in _BUCKETS:
            return store, f"{authority.rpartition('@')[2]}{path}".rstrip("/")
        if scheme in ("abfs", "abfss"):
            return store, f"{authority.partition('@')[0]}{path}".rstrip("/")
        return store, path

    def absolute(self, name: str) -> str:
        """The name with this process's folder before it, where it is a relative one of the local file system.

        The driver calls it: executors of a cluster work in folders of their own.
        """
        if _URI.fullmatch(name) is not None or name.startswith("/") or self.split(name)[0] != "file":
            return name
        return os.path.abspath(name)

    def index_path(self, name: str) -> str:
        """The place of an index: a path, or a URI, which the library opens with the rights that it finds by itself."""
        scheme, _, path = self.split(self.absolute(name))
        return path if scheme == "file" else name

    def split(self, name: str) -> tuple[str, str, str]:
        """Scheme, authority and path, the default file system's where the name has none. Raises RequestError."""
        uri = _URI.fullmatch(name)
        if uri is None:
            default = _URI.fullmatch(self.default)
            if default is None or default[1].lower() == "file":
                return "file", "", os.path.abspath(name)
            if not name.startswith("/"):
                raise RequestError(f"{name}: give an absolute path, or a URI")
            uri = _URI.fullmatch(f"{default[1]}://{default[2] or ''}{name}")
            assert uri is not None
        scheme, authority, path = uri[1].lower(), uri[2] or "", uri[3] or "/"
        if scheme == "file":
            if authority not in ("", "localhost"):
                raise RequestError(f"{name}: a file: URI names no other machine, write file:///{authority}{path}")
            return scheme, "", path
        if scheme not in _PREFIXES and scheme not in _HDFS:
            known = ", ".join(["file", *_PREFIXES, *sorted(_HDFS)])
            raise RequestError(f"{name}: executors cannot open {scheme}:, they can: {known}")
        return scheme, authority, path


def paths_of(paths: PathLike | Sequence[PathLike]) -> list[str]:
    """The paths of a call, one or several, as texts. Raises RequestError for none, and for what is no path."""
    many = several(paths) if isinstance(paths, Iterable | os.PathLike) else [paths]
    if not many:
        raise RequestError("no file was named")
    return [path_text(path, "paths") for path in many]


def path_text(path: PathLike, name: str) -> str:
    """One path as a text. A Path is a file's, never a URI or a table's name.

    name  the function's parameter, for the message
    Raises RequestError for what is no path.
    """
    try:
        text = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise RequestError(parameter(name) + f" takes names of files and folders, as texts or Paths, not {path!r}")
    return text if isinstance(path, str) or os.path.isabs(text) else os.path.join(os.curdir, text)


def storages(spark: Any, paths: Sequence[str], output: str | None = None) -> Storages:
    """The storages of these names, with the settings of a session. Raises RequestError."""
    plain = Storages(default=_setting(spark, "fs.defaultFS") or "file:///")
    schemes = {plain.split(name)[0] for name in (*paths, *([] if output is None else [output]))}
    return replace(plain, settings=_settings(spark, {_PREFIXES[scheme] for scheme in schemes & _PREFIXES.keys()}))


def local_folder(spark: Any, output: PathLike) -> str:
    """The path of a folder that the executors share with the driver. Raises RequestError for other storages."""
    name = path_text(output, "output")
    where = storages(spark, [], name)
    store, path = where.open(where.absolute(name))
    if not store.is_local:
        raise RequestError(f"{name}: an index is written to a local or mounted folder")
    return path


def index_path(spark: Any, index: PathLike | None) -> str | None:
    """The place of an index, as the library opens it on the driver and on executors; None for none.

    Raises RequestError for what is no path.
    """
    if index is None:
        return None
    name = path_text(index, "index")
    where = Storages(default=_setting(spark, "fs.defaultFS") or "file:///")
    return where.index_path(name)


def every_storage(spark: Any) -> Storages:
    """The same for all names that this module can open."""
    return Storages(_settings(spark, set(_PREFIXES.values())), _setting(spark, "fs.defaultFS") or "file:///")


def _hadoop(spark: Any) -> Any:
    """The session's Hadoop Configuration; None on Spark Connect, which has no JVM here."""
    try:
        return spark._jsparkSession.sessionState().newHadoopConf()
    except Exception:
        return None


def _setting(spark: Any, name: str) -> str | None:
    hadoop = _hadoop(spark)
    value = hadoop.get(name) if hadoop is not None else spark.conf.get(f"spark.hadoop.{name}", None)
    return str(value) if value is not None else None


def _settings(spark: Any, prefixes: Iterable[str]) -> dict[str, str]:
    """Hadoop's settings whose names begin so."""
    hadoop = _hadoop(spark)
    settings: dict[str, str] = {}
    for prefix in sorted(prefixes):
        if hadoop is not None:
            settings |= {prefix + str(k): str(v) for k, v in dict(hadoop.getPropsWithPrefix(prefix)).items()}
        else:
            known, start = dict(spark.conf.getAll).items(), f"spark.hadoop.{prefix}"
            settings |= {k.removeprefix("spark.hadoop."): v for k, v in known if k.startswith(start)}
    return settings


# --- pyarrow's file systems -----------------------------------------------------------------------
#
# Made by executors, from the settings that the driver sends; one for all files of a process that share these.


@lru_cache(64)
def _filesystem(scheme: str, authority: str, settings: tuple[tuple[str, str], ...]) -> Any:
    """One file system for all files of a process that share scheme, authority and settings."""
    known = dict(settings)
    if scheme in ("s3a", "s3", "s3n"):
        options = s3_options(authority.rpartition("@")[2], known)
        check_keys(options)
        return Objects("s3", options)
    if scheme in ("abfs", "abfss"):
        return Objects("abfs", azure_options(authority, known))
    if scheme == "gs":
        return Objects("gcs", gcs_options(known))
    from pyarrow import fs

    return fs.FileSystem.from_uri(f"{scheme}://{authority or 'default'}/")[0]


def s3_options(bucket: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """fs.s3a.* and fs.s3a.bucket.BUCKET.* as arguments of pyarrow.fs.S3FileSystem."""

    def get(name: str) -> str | None:
        return settings.get(f"fs.s3a.bucket.{bucket}.{name}") or settings.get(f"fs.s3a.{name}") or None

    options: dict[str, Any] = {
        "access_key": get("access.key"),
        "secret_key": get("secret.key"),
        "session_token": get("session.token"),
        "region": get("endpoint.region"),
    }
    if options["access_key"] is None and "Anonymous" in (get("aws.credentials.provider") or ""):
        options["anonymous"] = True
    role = get("assumed.role.arn")
    if role is not None:
        options |= {"role_arn": role, "session_name": get("assumed.role.session.name")}
        del options["access_key"], options["secret_key"], options["session_token"]
    endpoint = get("endpoint")
    if endpoint is not None:
        scheme, separator, host = endpoint.rpartition("://")
        options["endpoint_override"] = host
        secure = (get("connection.ssl.enabled") or "true").lower() == "true"
        options["scheme"] = scheme if separator else "https" if secure else "http"
        if (get("path.style.access") or "").lower() == "false":
            options["force_virtual_addressing"] = True
    proxy = get("proxy.host")
    if proxy is not None:
        options["proxy_options"] = f"http://{proxy}:{get('proxy.port') or 80}"
    return {name: value for name, value in options.items() if value is not None}


def gcs_options(settings: Mapping[str, str]) -> dict[str, Any]:
    """fs.gs.* as arguments of pyarrow.fs.GcsFileSystem; it knows no key files but those of the environment."""
    options: dict[str, Any] = {}
    if settings.get("fs.gs.auth.type") == "UNAUTHENTICATED" or settings.get("fs.gs.auth.null.enable") == "true":
        options["anonymous"] = True
    if project := settings.get("fs.gs.project.id"):
        options["project_id"] = project
    if root := settings.get("fs.gs.storage.root.url"):
        scheme, _, host = root.rpartition("://")
        options |= {"scheme": scheme or "https", "endpoint_override": host.rstrip("/")}
    return options


def azure_options(authority: str, settings: Mapping[str, str]) -> dict[str, Any]:
    """fs.azure.* as arguments of pyarrow.fs.AzureFileSystem; authority is container@account.dfs.core.windows.net."""
    host = authority.rpartition("@")[2]
    account, _, suffix = host.partition(".")

    def get(name: str) -> str | None:
        return settings.get(f"fs.azure.{name}.{host}") or settings.get(f"fs.azure.{name}") or None

    options: dict[str, Any] = {"account_name": account}
    if suffix and suffix != "dfs.core.windows.net":
        options["dfs_storage_authority"] = f".{suffix}"
        options["blob_storage_authority"] = f".{suffix.replace('dfs.', 'blob.', 1)}"
    key, token = get("account.key"), get("sas.fixed.token")
    client, secret = get("account.oauth2.client.id"), get("account.oauth2.client.secret")
    if key is not None:
        options["account_key"] = key
    elif token is not None:
        options["sas_token"] = token
    elif client is not None:
        options["client_id"] = client
        tenant = re.search(r"microsoftonline\.[a-z.]+/([^/]+)/", get("account.oauth2.client.endpoint") or "")
        if secret is not None and tenant is not None:
            options |= {"client_secret": secret, "tenant_id": tenant[1]}
    return options
