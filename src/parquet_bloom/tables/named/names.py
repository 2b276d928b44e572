"""Names of tables: which format, where, at which version.

    delta:PATH_OR_URI[@version]
    iceberg:CATALOG/namespace.table[@snapshot]
    ducklake:CATALOG/schema.table[@snapshot]

Only digits or an ISO time behind the last @ are a version. A path that begins with ~/ lies in the user's own folder;
no shell sees to that behind a colon. A file of such a name is reached as ./delta:name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from parquet_bloom.errors import RequestError
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.secrets import without_secret

FORMS = {
    "delta": "delta:PATH_OR_URI[@VERSION]",
    "iceberg": "iceberg:CATALOG/NAMESPACE.TABLE[@SNAPSHOT]",
    "ducklake": "ducklake:CATALOG/SCHEMA.TABLE[@SNAPSHOT]",
}
_NAME = re.compile(rf"({'|'.join(FORMS)}):(.*)", re.DOTALL)
_TIME = r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?"
_VERSION = re.compile(rf"(.+)@(\d+|{_TIME})", re.DOTALL)
_AUTHORITY = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")  # an @ in it stands before a host or bucket


class TableName(NamedTuple):
    """A table as it is named.

    kind     "delta", "iceberg" or "ducklake"
    where    path, URI, or catalog and name in it
    version  digits or an ISO time; None: the latest
    """

    kind: str
    where: str
    version: str | None

    @property
    def unversioned(self) -> str:
        """The name without its version, which means the latest."""
        return f"{self.kind}:{self.where}"


def parse(text: str) -> TableName | None:
    """What a text names, if it is a table's name. Raises RequestError for a name without a place."""
    found = _NAME.fullmatch(text)
    if found is None:
        return None
    kind, where = found[1], found[2]
    version = _VERSION.fullmatch(where)
    if version is not None and _AUTHORITY.fullmatch(version[1]) is None:
        where, at = version[1], version[2]
    else:
        at = None
    if not where or where.startswith("@"):
        raise RequestError(f"{without_secret(text)} names no table; write {FORMS[kind]}")
    return TableName(kind, os.path.expanduser(where) if where.startswith("~/") else where, at)


def named_table(sources: Any) -> TableName | None:
    """The one table that the sources of a call name; None where they are files.

    Raises RequestError for several of which one is a table. Names are texts: a Path is always a file's.
    """
    many: Sequence[Any] = sources if isinstance(sources, list | tuple) else [sources]
    names = [parse(source) if isinstance(source, str) else None for source in many if not isinstance(source, DataFile)]
    first = next((name for name in names if name is not None), None)
    if first is not None and len(many) > 1:
        texts = [without_secret(str(source)) for source in many[:2]]
        raise RequestError(f"{texts[0]} and {texts[1]}: a table is read alone; use one call for each")
    return first


def typed_sources(source: Any, filesystem: Any) -> list[str]:
    """What a call names, as a command line says it; empty where no command line can: bytes, other file systems."""
    many = source if isinstance(source, list | tuple) else [source]
    if filesystem is not None or not all(isinstance(one, str | os.PathLike) for one in many):
        return []
    return [os.fspath(one) for one in many]
