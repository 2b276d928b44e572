"""Which data an index may open: files below a root that its user named, and nothing else.

An index may come from anywhere, and what it says of its data is only words. So its words choose among
the files below a root, and never say how these are reached:

    events-index/id/bloomfilter.lance   names ../../events/1.parquet
    root (default: the folder that events-index lies in)   events/1.parquet below it

No URI, no file system and no option of the index is used, nothing is opened above the root, and no
symbolic link leads out of it. A remote root brings the user's own file system along.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote

from parquet_bloom.errors import FileError, RequestError, StaleIndexError, parameter
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.source import PathLike
from parquet_bloom.storage.stores import Stores
from parquet_bloom.zones.container import ZoneFile
from parquet_bloom.zones.sources import is_lance

_HINT = "name the folder that the data are in with " + parameter("root")


class Root:
    """The folder below which an index may name data.

    named  by the user, a path or a URI; None: the folder that holds the folder of indexes
    """

    def __init__(self, file: ZoneFile, named: PathLike | None) -> None:
        """Raises RequestError where neither the user nor the index's place tells of a root."""
        self._index = file.path
        self._named = named is not None
        folder = os.path.dirname(os.path.abspath(file.path))
        self._folders = list(dict.fromkeys((folder, os.path.realpath(folder))))
        text = os.path.dirname(os.path.dirname(folder)) if named is None else os.fspath(named)
        if named is None and text == os.path.dirname(text):
            raise RequestError(f"{file.path}: data all over the disk are not looked for; " + _HINT)
        store, path = Stores().locate(text)
        self._store = store
        self._path = store.real(path)
        self.shown = str(store.location(path.rstrip("/") + "/")).rstrip("/") or "/"
        # By its name as given, and in full.
        self._roots = {self._path, self.shown if os.path.isabs(self.shown) else os.path.abspath(self.shown)}
        self._real: dict[str, str] = {}  # of folders: an index names many files of few of them

    def file(self, one: dict[str, Any]) -> DataFile:
        """The data file that a fragment names. Raises StaleIndexError for one that is not below the root."""
        if not self._store.is_local:
            below = one["path"].removeprefix(f"{self.shown}/")
            outside = below == one["path"]
            below = unquote(below) if self._store.quoted else below
            if outside or not _plain(below):
                raise self._outside(one["path"])
            path = f"{self._path.rstrip('/')}/{below}"
            return DataFile(path, self._store.filesystem, str(self._store.location(path)))
        inside = [path for path in self._paths(one) if self._holds(path)]
        if not inside:
            raise self._outside(one["path"])
        return DataFile(next((path for path in inside if os.path.exists(path)), inside[0]))

    def dataset(self, named: str) -> str:
        """The Lance data set that an index names, or the root where that is one. Raises StaleIndexError."""
        if self._named and self._store.is_local and is_lance(self._path):
            return self._path
        if not self._store.is_local or not os.path.isabs(named) or not self._holds(os.path.normpath(named)):
            raise self._outside(named)
        return os.path.normpath(named)

    def _paths(self, one: dict[str, Any]) -> list[str]:
        """Where a file lies by its way from the index, and by its name when the index was built."""
        ways = [os.path.join(folder, one["relative"]) for folder in self._folders if "relative" in one]
        return list(dict.fromkeys(os.path.normpath(path) for path in (*ways, one["path"]) if os.path.isabs(path)))

    def _holds(self, path: str) -> bool:
        """Whether a path lies below the root: by its name first, so that nothing else is even looked up."""
        return any(_below(path, root) for root in self._roots) and _below(self._real_path(path), self._path)

    def _real_path(self, path: str) -> str:
        folder, name = os.path.split(path)
        if folder not in self._real:
            self._real[folder] = os.path.realpath(folder)
        real = os.path.join(self._real[folder], name)
        return os.path.realpath(real) if os.path.islink(real) else real

    def _outside(self, named: str) -> StaleIndexError:
        named = named if len(named) <= 200 else f"{named[:200]}..."
        reason = f"names {named}, which is not below {self.shown}; an index opens nothing else, so " + _HINT
        return StaleIndexError(self._index, reason)

    def unreadable(self, found: DataFile, error: FileError) -> StaleIndexError:
        """What to say of a file that is named and cannot be used; nothing of what is in it."""
        reason = "is no Parquet file that can be read"
        if isinstance(error.__cause__, OSError):
            reason = error.__cause__.strerror or type(error.__cause__).__name__
            reason += "" if self._named else "; " + _HINT
        return StaleIndexError(self._index, f"its file {found} cannot be read: " + reason)


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip("/") + "/")


def _plain(path: str) -> bool:
    """Whether a path on a store goes down only."""
    return bool(path) and not set(path.split("/")) & {"", ".", ".."} and "\0" not in path
