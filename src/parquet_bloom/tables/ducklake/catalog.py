"""The SQL database that is a DuckLake catalog: a DuckDB file or an SQLite file, read and changed in transactions.

    ducklake_metadata, ducklake_snapshot, ducklake_table, ...   plain tables; DuckLake's own extension is not needed
    ducklake_inlined_data_3_1, ducklake_inlined_delete_3        tables that are made when a table first needs them

Source: the DuckLake 1.0 specification, "Tables".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote

from parquet_bloom.errors import RequestError, StorageError, TableFormatError, UnknownCommitError, parameter
from parquet_bloom.format.literals import read_instant
from parquet_bloom.source.adapters import Proof
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.roots import Roots, no_plain_path
from parquet_bloom.storage.display import without_secret
from parquet_bloom.storage.paths import HIVE_NULL, DataFile
from parquet_bloom.storage.remote import Location, storage_error
from parquet_bloom.storage.store import Store, near_names
from parquet_bloom.storage.stores import Stores
from parquet_bloom.tables.ducklake.databases import (
    Database,
    DuckDatabase,
    SQLiteDatabase,
    first_bytes,
    proof_of_database,
)

VERSION = "1.0"
LIVE = "begin_snapshot <= ? AND (end_snapshot IS NULL OR end_snapshot > ?)"  # a row at a snapshot, given twice
_SERVER = re.compile(r"(postgres|postgresql|mysql|md|quack|mssql|sqlserver):", re.I)
_FILE = re.compile(r"(duckdb|sqlite):", re.I)


class Kind(NamedTuple):
    """The type of a catalog's column."""

    name: str
    fits: Callable[[Any], bool]

    @property
    def or_null(self) -> Kind:
        """This, or NULL."""
        return Kind(f"{self.name} or NULL", lambda value: value is None or self.fits(value))


NUMBER = Kind("a number of 64 bits", lambda value: isinstance(value, int) and -(1 << 63) <= value < 1 << 63)
COUNT = Kind("a count", lambda value: isinstance(value, int) and 0 <= value < 1 << 63)
FLAG = Kind("true or false", lambda value: isinstance(value, int) and value in (0, 1))
TEXT = Kind("a text", lambda value: isinstance(value, str))
ANY = Kind("anything", lambda value: True)
Columns = Mapping[str, Kind]


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog's file; each transaction opens it anew, and sees what was committed before.

    path       of the file
    is_sqlite  else it is a DuckDB file
    undo       reading an SQLite file undoes the commit of a program that ended in the middle of it
    """

    path: str
    is_sqlite: bool
    undo: bool = False

    def proof(self) -> Proof | None:
        """Equal ones prove that the catalog says the same; None where there is no proof."""
        return proof_of_database(self.path, self.is_sqlite)

    @contextmanager
    def reading(self) -> Iterator[Queries]:
        """One transaction that changes nothing. Raises StorageError, TableFormatError for what is no catalog."""
        with self._transaction(False) as queries:
            version = queries.option("version")
            if version != VERSION:
                hint = "attach it with AUTOMATIC_MIGRATION first" if (version or "") < VERSION else "that is newer"
                reason = f"a DuckLake catalog of version {version}; version {VERSION} is understood, {hint}"
                raise TableFormatError(self.path, reason)
            yield queries

    @contextmanager
    def writing(self) -> Iterator[Queries]:
        """One transaction; committed where the block ends well, else rolled back.

        Raises StorageError where nothing was committed, UnknownCommitError where the database failed in committing.
        """
        with self._transaction(True) as queries:
            yield queries
            try:
                queries.run("COMMIT")
            except StorageError as error:
                raise UnknownCommitError(self.path, error.reason) from error

    @contextmanager
    def _transaction(self, write: bool) -> Iterator[Queries]:
        try:
            database: Database
            if self.is_sqlite:
                database = SQLiteDatabase(self.path, write, self.undo)
            else:
                database = DuckDatabase(self.path, write)
        except OSError as error:
            raise storage_error(self.path, error) from error
        queries = Queries(self, database)
        try:
            queries.run("BEGIN IMMEDIATE" if write and self.is_sqlite else "BEGIN")
            if not queries.has("ducklake_metadata"):
                raise TableFormatError(self.path, "holds no DuckLake catalog (no table ducklake_metadata)")
            yield queries
        finally:
            database.close()


class Queries:
    """The queries to a catalog within one transaction."""

    def __init__(self, catalog: Catalog, database: Database) -> None:
        self._catalog = catalog
        self.database = database
        self._columns: dict[str, list[str] | None] = {}

    @property
    def is_sqlite(self) -> bool:
        """Whether it is an SQLite file, where times are texts and booleans numbers."""
        return self._catalog.is_sqlite

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement; parameters are `?`, and tables are named by `table`. Raises StorageError."""
        return self.database.run(sql, values)

    def columns(self, table: str) -> list[str] | None:
        """The names of a table's columns; None if the catalog has no table of this name. Raises TableFormatError."""
        if table not in self._columns:
            self._columns[table] = self.database.columns(table)
        return self._columns[table]

    def has(self, table: str) -> bool:
        """Whether the catalog has a table of this name. Raises TableFormatError for a view, and what else is none."""
        return self.columns(table) is not None

    def table(self, name: str) -> str:
        """A table as statements name it. Raises TableFormatError where it is not there, or is no plain table."""
        if not self.has(name):
            raise TableFormatError(self._catalog.path, f"has no table {name}")
        return self.database.in_full(name)

    def rows(self, table: str, columns: Columns, where: str = "", values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Some columns of the rows of a table; each value is of its column's kind.

        where  a condition, with `?` for the values; empty: all rows
        Raises StorageError, and TableFormatError for a table or a value that DuckLake does not make.
        """
        condition = f" WHERE {where}" if where else ""
        # A time leaves DuckDB as microseconds since 1970; SQLite has it as text.
        wanted = (
            f"system.main.epoch_us({name})" if name == "snapshot_time" and not self.is_sqlite else name
            for name in columns
        )
        found = self.run(f"SELECT {', '.join(wanted)} FROM {self.table(table)}{condition}", values)
        for i, (name, kind) in enumerate(columns.items()):
            for row in found:
                if not kind.fits(row[i]):
                    value = "NULL" if row[i] is None else f"{row[i]!r:.40}"
                    raise TableFormatError(self._catalog.path, f"{table}.{name} is {value}, not {kind.name}")
        return found

    def option(self, key: str) -> str | None:
        """A setting of the whole catalog; None if it is not set."""
        rows = self.rows("ducklake_metadata", {"value": TEXT}, "key = ? AND scope IS NULL", [key])
        return rows[0][0] if rows else None

    def snapshots(self) -> list[tuple[int, int]]:
        """Id and time, in microseconds since 1970 in UTC, of all snapshots that have not expired."""
        times = {"snapshot_id": NUMBER, "snapshot_time": TEXT if self.is_sqlite else NUMBER}
        found = self.rows("ducklake_snapshot", times)
        try:
            return sorted(
                (id_, read_instant(at).nanoseconds // 1000 if isinstance(at, str) else at) for id_, at in found
            )
        except ValueError as error:
            raise TableFormatError(self._catalog.path, f"ducklake_snapshot.snapshot_time: {error}") from error


def _microseconds(time: str | int) -> int:
    return read_instant(time).nanoseconds // 1000 if isinstance(time, str) else time


def catalog_of(name: str, undo: bool = False) -> Catalog:
    """The catalog that a file holds; `duckdb:` or `sqlite:` before it may say of which kind it is.

    undo  as Catalog has it
    Raises RequestError for a database server, StorageError for no such file, TableFormatError for another kind of file.
    """
    server = _SERVER.match(name)
    if server is not None:  # the rest may hold a password
        raise RequestError(
            f"ducklake:{server[0]}... is a catalog on a server; catalogs in DuckDB and SQLite files are read"
        )
    prefix = _FILE.match(name)
    path = name[prefix.end() :] if prefix is not None else name
    try:
        start = first_bytes(path, 16)
    except FileNotFoundError as error:
        raise StorageError(path, f"no such catalog file{near_names(path)}") from error
    except OSError as error:
        raise storage_error(path, error) from error
    if start == b"SQLite format 3\0":
        return Catalog(path, True, undo)
    if start[8:12] == b"DUCK":
        return Catalog(path, False)
    raise TableFormatError(path, "is no DuckDB or SQLite file, and so no DuckLake catalog that is read")


# --- paths ----------------------------------------------------------------------------------------
#
# Where the files of a DuckLake table lie: paths of the catalog become locations.
#
#    ducklake_metadata data_path     /lake/data/            or s3://bucket/lake/
#    ducklake_schema path            main/                  relative to data_path, or from a root of its own
#    ducklake_table path             orders/                relative to its schema's
#    ducklake_data_file path         ducklake-01a2.parquet  relative to its table's
#
# A relative data_path is one of the working folder, as it is in DuckDB. Source: the DuckLake 1.0 specification,
# "Paths".


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of one table.

    data   the data_path, as it is written, without options
    table  the table's, written in full
    store  of data_path; the files of a table lie on one
    base   data_path on it
    roots  below which the files of the table may lie
    words  the arguments of `of` that the catalog and the user gave
    """

    data: str
    table: str
    store: Store
    base: str
    roots: Roots = field(repr=False)
    words: tuple[str, bool, tuple[tuple[str | None, bool], ...]]

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
        words = data, by_user, steps
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
        return cls(data, table, store, base, roots, words)

    def again(self, name: str, access: TableAccess) -> Folders:
        """The same for another call, which may have other rights. Raises as `of`."""
        return Folders.of(name, *self.words, access)

    def full(self, path: str, relative: bool) -> str:
        """A path of a file, written in full."""
        return self.table + path if relative else path

    def below_data(self, path: str) -> tuple[str, bool]:
        """A path in full as ducklake_files_scheduled_for_deletion has it: relative to data_path where it lies there."""
        if path.startswith(self.data):
            return path.removeprefix(self.data), True
        return path, False

    def location(self, path: str) -> Location:
        """The location of a file whose path is written in full. Raises TableFormatError where no root can hold it."""
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
    """The values of a path's key=value folders, as DuckDB 1.5 reads them: the first of a key counts.

    NULL is __HIVE_DEFAULT_PARTITION__, or NULL in letters of any case, before %XX is undone.
    """
    found: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        key, sign, value = folder.partition("=")
        if key and sign and "=" not in value and key not in found:
            found[key] = None if value == HIVE_NULL or value.upper() == "NULL" else unquote(value)
    return found
