"""Paths in an Iceberg log -> locations, with the rights that pyiceberg's own configuration gives.

A path is never decoded: "%20" in it is part of the name, as pyiceberg has it.
"""

from __future__ import annotations

from typing import Any

from pyarrow.fs import LocalFileSystem
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO

from parquet_bloom.errors import TableFormatError
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.secrets import without_secret

_SAME = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


class Files:
    """The storages of a table, each opened once. The local one is None."""

    def __init__(self, io: FileIO) -> None:
        self._io = io if isinstance(io, PyArrowFileIO) else PyArrowFileIO(io.properties)
        self._opened: dict[tuple[str, str], Any] = {}

    def location(self, path: str) -> Location:
        """Where a path of the log lies. Raises TableFormatError for a storage that pyarrow does not know."""
        scheme, host, inside = PyArrowFileIO.parse_location(path, self._io.properties)
        key = _SAME.get(scheme, scheme), host
        if key not in self._opened:
            self._opened[key] = self._open(key, path)
        filesystem = self._opened[key]
        return Location(inside, filesystem, "" if filesystem is None else path)

    def _open(self, key: tuple[str, str], path: str) -> Any:
        try:
            filesystem = self._io.fs_by_scheme(*key)
        except (ValueError, ImportError, OSError) as error:
            raise TableFormatError(without_secret(path), f"its storage cannot be opened: {error}") from error
        return None if isinstance(filesystem, LocalFileSystem) else filesystem

    def only(self, table: str) -> Any:
        """The one storage that all paths asked for so far lie on. Raises TableFormatError for several."""
        if len(self._opened) > 1:
            names = ", ".join(sorted(f"{scheme}://{host}" for scheme, host in self._opened))
            raise TableFormatError(table, f"has files on several storages ({names}); only tables on one can be read")
        return next(iter(self._opened.values()), None)
