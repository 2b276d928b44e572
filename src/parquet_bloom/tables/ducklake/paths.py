"""Where the files of a DuckLake table lie: paths of the catalog become locations.

    ducklake_metadata data_path     /lake/data/            or s3://bucket/lake/
    ducklake_schema path            main/                  relative to data_path, or from a root of its own
    ducklake_table path             orders/                relative to its schema's
    ducklake_data_file path         ducklake-01a2.parquet  relative to its table's

A relative data_path is one of the working folder, as it is in DuckDB. Source: the DuckLake 1.0 specification, "Paths".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import unquote

from parquet_bloom.errors import TableFormatError
from parquet_bloom.storage.paths import HIVE_NULL, DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.secrets import without_secret
from parquet_bloom.storage.store import Store
from parquet_bloom.storage.stores import Stores


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of one table.

    data     the catalog's data_path, as it is written there
    table    the table's, written in full
    store    of data_path; the files of a table lie on one
    base     data_path on it
    options  of a URI, from its "?"
    """

    data: str
    table: str
    store: Store
    base: str
    options: str
    stores: Stores = field(repr=False)

    @classmethod
    def of(cls, data: str, *steps: tuple[str | None, bool]) -> Folders:
        """Go from data_path to the table.

        data   may be a URI with options, such as s3://bucket/lake/?region=eu-north-1
        steps  (path, whether it is relative) of schema and table
        Raises RequestError, StorageError for a storage that cannot be had.
        """
        options = ""
        if "://" in data and "?" in data:
            data, _, options = data.partition("?")
            options = f"?{options}"
        table = data = _closed(data)
        for path, relative in steps:
            table = _closed((table if relative else "") + (path or "")) if path else table
        stores = Stores()
        return cls(data, table, *stores.locate(data + options), options, stores)

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
        if path.startswith(self.data):
            return self.store.location(self.base + path.removeprefix(self.data))  # a % in it means a %
        is_uri = "://" in path
        if self.store.is_local and not is_uri:
            return self.store.location(path)
        if is_uri and not self.store.is_local:
            store, at = self.stores.locate(path + self.options)
            if store.same(self.store):
                return store.location(at)
        raise TableFormatError(without_secret(path), f"lies on another storage than the table's data, {self.data}")

    def file(self, path: str, relative: bool) -> DataFile:
        """A data file."""
        at = self.location(self.full(path, relative))
        return DataFile(at.path, at.filesystem, at.shown, [], path if relative else path.rsplit("/", 1)[-1])


def _closed(folder: str) -> str:
    return folder if not folder or folder.endswith("/") else folder + "/"


def folder_values(path: str) -> dict[str, str | None]:
    """What the key=value folders of a path say, as DuckDB 1.5 reads them: the first of a key counts.

    NULL is __HIVE_DEFAULT_PARTITION__, or NULL in letters of any case, before %XX is undone.
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, sign, value = folder.partition("=")
        if key and sign and "=" not in value and key not in found:
            found[key] = None if value == HIVE_NULL or value.upper() == "NULL" else unquote(value)
    return found
