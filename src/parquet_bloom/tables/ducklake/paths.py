"""Where the files of a DuckLake table lie: paths of the catalog become locations.

    ducklake_metadata data_path     /lake/data/            or s3://bucket/lake/
    ducklake_schema path            main/                  relative to data_path, or from a root of its own
    ducklake_table path             orders/                relative to its schema's
    ducklake_data_file path         ducklake-01a2.parquet  relative to its table's

A relative data_path is one of the working folder, as it is in DuckDB. Source: the DuckLake 1.0 specification, "Paths".
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import unquote

from parquet_bloom.errors import TableFormatError, parameter
from parquet_bloom.storage.paths import HIVE_NULL, DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.secrets import without_secret
from parquet_bloom.storage.store import Store
from parquet_bloom.storage.stores import Stores
from parquet_bloom.tables.roots import Roots, TableAccess, no_plain_path


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of one table.

    data   the data_path, as it is written, without options
    table  the table's, written in full
    store  of data_path; the files of a table lie on one
    base   data_path on it
    roots  below which the files of the table may lie
    """

    data: str
    table: str
    store: Store
    base: str
    roots: Roots = field(repr=False)

    @classmethod
    def of(
        cls, name: str, data: str, by_user: bool, steps: tuple[tuple[str | None, bool], ...], access: TableAccess
    ) -> Folders:
        """Go from data_path to the table.

        name     of the table, for messages
        data     the data_path; the user's own may be a URI with options, such as s3://bucket/lake/?region=eu-north-1
        by_user  else the catalog says it, and may name no more than a bucket and a folder
        steps    (path, whether it is relative) of schema and table
        Raises TableFormatError for a data_path that no catalog may have; StorageError, and RequestError for a user's.
        """
        stores = Stores()
        roots = Roots(name, access, stores)
        is_uri = "://" in data
        if by_user:
            bare, sign, options = data.partition("?") if is_uri else (data, "", "")
            data = _closed(bare)
            store, base = stores.locate(data + sign + options)
            roots.add(store, base)
        elif is_uri and set("?@") & set(data):
            bare = without_secret(data.partition("?")[0])
            reason = "its data_path has options or a user, which only your own words may have; give "
            raise TableFormatError(name, reason + parameter("catalog_properties") + f" data_path={bare}?...")
        else:
            data = _closed(data)
            store, base = roots.declare(data if is_uri else os.path.abspath(data))
            base = base if is_uri else data  # as it is written: relative to the working folder
        table = data
        for path, relative in steps:
            table = _closed((table if relative else "") + (path or "")) if path else table
        return cls(data, table, store, base, roots)

    def full(self, path: str, relative: bool) -> str:
        """A path of a file, written in full."""
        return self.table + path if relative else path

    def below_data(self, path: str) -> tuple[str, bool]:
        """A path in full as ducklake_files_scheduled_for_deletion has it: relative to data_path where it lies there."""
        if path.startswith(self.data):
            return path.removeprefix(self.data), True
        return path, False

    def location(self, path: str) -> Location:
        """Where a file lies, whose path is written in full. Raises TableFormatError where no root can hold it."""
        if not path.startswith(self.data):
            return self.roots.place(path)
        rest = path.removeprefix(self.data)
        if reason := no_plain_path(rest):
            raise TableFormatError(without_secret(path), f"its catalog names it, and it {reason}")
        return self.store.location(self.base + rest)  # a % in it means a %

    def file(self, path: str, relative: bool) -> DataFile:
        """A data file; `roots.check` says whether it may be one."""
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
