"""Where the files of a DuckLake table lie: paths of the catalog become locations.

    ducklake_metadata data_path     /lake/data/            or s3://bucket/lake/
    ducklake_schema path            main/                  relative to data_path, or from a root of its own
    ducklake_table path             orders/                relative to its schema's
    ducklake_data_file path         ducklake-01a2.parquet  relative to its table's

A relative data_path is one of the working folder, as it is in DuckDB. Source: the DuckLake 1.0 specification, "Paths".
"""

from __future__ import annotations

from dataclasses import dataclass, field

from parquet_bloom.errors import TableFormatError
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.secrets import without_secret
from parquet_bloom.storage.store import Store
from parquet_bloom.storage.stores import Stores


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of one table.

    data   the catalog's data_path, as it is written there
    table  the table's, written in full
    store  of data_path; the files of a table lie on one
    """

    data: str
    table: str
    store: Store
    stores: Stores = field(repr=False)

    @classmethod
    def of(cls, data: str, *steps: tuple[str | None, bool]) -> Folders:
        """Go from data_path to the table.

        steps  (path, whether it is relative) of schema and table
        Raises RequestError, StorageError for a storage that cannot be had.
        """
        stores = Stores()
        data = _closed(data)
        table = data
        for path, relative in steps:
            table = _closed((table if relative else "") + (path or "")) if path else table
        return cls(data, table, stores.locate(data)[0], stores)

    def full(self, path: str, relative: bool) -> str:
        """A path of a file, written in full."""
        return self.table + path if relative else path

    def below_data(self, path: str) -> tuple[str, bool]:
        """A path in full as ducklake_files_scheduled_for_deletion has it: relative to data_path where it lies there."""
        if path.startswith(self.data):
            return path.removeprefix(self.data), True
        return path, False

    def location(self, path: str) -> Location:
        """Where a file lies, whose path is written in full. Raises TableFormatError where it is on another storage."""
        base, on = self.data, self.stores.locate(self.data)[1]
        if not self.store.is_local and path.startswith(base):
            return self.store.location(on + path.removeprefix(base))  # a % in it means a %
        if self.store.is_local and "://" not in path:
            return self.store.location(path)
        if self.store.is_local:
            raise TableFormatError(without_secret(path), f"lies on another storage than the table's data, {self.data}")
        store, at = self.stores.locate(path)
        if not store.same(self.store):
            raise TableFormatError(store.location(at), f"lies on another storage than the table's data, {self.data}")
        return store.location(at)

    def file(self, path: str, relative: bool) -> DataFile:
        """A data file."""
        at = self.location(self.full(path, relative))
        return DataFile(at.path, at.filesystem, at.shown, [], path if relative else path.rsplit("/", 1)[-1])


def _closed(folder: str) -> str:
    return folder if not folder or folder.endswith("/") else folder + "/"
