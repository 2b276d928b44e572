"""The SQL database that is a DuckLake catalog: a DuckDB file or an SQLite file, read and changed in transactions.

    ducklake_metadata, ducklake_snapshot, ducklake_table, ...   plain tables; DuckLake's own extension is not needed
    ducklake_inlined_data_3_1, ducklake_inlined_delete_3        tables that are made when a table first needs them

Source: the DuckLake 1.0 specification, "Tables".
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from parquet_bloom.errors import (
    ConflictError,
    RequestError,
    StorageError,
    TableFormatError,
    UnknownCommitError,
    first_line,
)
from parquet_bloom.formats.literals import read_instant
from parquet_bloom.storage.remote import storage_error

VERSION = "1.0"
LIVE = "begin_snapshot <= ? AND (end_snapshot IS NULL OR end_snapshot > ?)"  # a row at a snapshot, given twice
_SERVER = re.compile(r"(postgres|postgresql|mysql|md|quack|mssql|sqlserver):", re.I)
_FILE = re.compile(r"(duckdb|sqlite):", re.I)
_ours: dict[sqlite3.Connection, tuple[int, int]] = {}  # that are open, and the device and inode of each one's file
_opening = threading.Lock()
_WAIT = 30  # seconds for another program's transaction in an SQLite file


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog's file; each transaction opens it anew, and sees what was committed before.

    path       of the file
    is_sqlite  else it is a DuckDB file
    """

    path: str
    is_sqlite: bool

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
            connection = self._sqlite(write) if self.is_sqlite else self._duckdb(write)
        except sqlite3.Error as error:
            raise StorageError(self.path, first_line(error)) from error
        except OSError as error:
            raise storage_error(self.path, error) from error
        queries = Queries(self, connection)
        try:
            queries.run("BEGIN IMMEDIATE" if write and self.is_sqlite else "BEGIN")
            if not queries.has("ducklake_metadata"):
                raise TableFormatError(self.path, "holds no DuckLake catalog (no table ducklake_metadata)")
            yield queries
        finally:
            with suppress(Exception):  # what was not committed is rolled back by this too
                connection.close()
            _ours.pop(connection, None)

    def _sqlite(self, write: bool) -> Any:
        name = f"file:{quote(os.path.abspath(self.path))}?mode={'rw' if write else 'ro'}"
        with _opening:
            found = os.stat(self.path)
            mine = found.st_dev, found.st_ino
            if mine not in _ours.values() and _descriptor(self.path) is not None:
                reason = "is open in this process, probably by a DuckDB transaction; end that first, as locks of SQLite"
                raise ConflictError(self.path, f"{reason} do not hold between two libraries of one process")
            connection = sqlite3.connect(name, timeout=_WAIT, isolation_level=None, uri=True)
            _ours[connection] = mine
        return connection

    def _duckdb(self, write: bool) -> Any:
        try:
            import duckdb
        except ImportError:
            raise RequestError("ducklake: needs duckdb; pip install 'parquet-bloom[ducklake]'") from None
        try:
            try:
                return duckdb.connect(self.path, read_only=not write)
            except duckdb.ConnectionException:  # this process has it open in the other way
                return duckdb.connect(self.path)
        except duckdb.Error as error:
            raise StorageError(self.path, _plain(error)) from error


class Queries:
    """What is asked of a catalog within one transaction."""

    def __init__(self, catalog: Catalog, connection: Any) -> None:
        self._catalog = catalog
        self.connection = connection  # sqlite3's or DuckDB's

    @property
    def is_sqlite(self) -> bool:
        """Whether it is an SQLite file, where times are texts and booleans numbers."""
        return self._catalog.is_sqlite

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement; its parameters are written `?`. Raises StorageError."""
        try:
            done = self.connection.execute(sql, list(values))
            return [tuple(row) for row in done.fetchall()]
        except sqlite3.Error as error:
            raise StorageError(self._catalog.path, first_line(error)) from error
        except Exception as error:
            if not type(error).__module__.startswith(("duckdb", "_duckdb")):
                raise
            raise StorageError(self._catalog.path, _plain(error)) from error

    def has(self, table: str) -> bool:
        """Whether the catalog has a table of this name."""
        names = "sqlite_master WHERE type = 'table' AND name" if self.is_sqlite else "duckdb_tables() WHERE table_name"
        return bool(self.run(f"SELECT 1 FROM {names} = ?", [table]))

    def option(self, key: str) -> str | None:
        """A setting of the whole catalog; None if it is not set."""
        rows = self.run("SELECT value FROM ducklake_metadata WHERE key = ? AND scope IS NULL", [key])
        return str(rows[0][0]) if rows else None

    def snapshots(self) -> list[tuple[int, int]]:
        """Id and time, in microseconds since 1970 in UTC, of all snapshots that have not expired."""
        time = "snapshot_time" if self.is_sqlite else "epoch_us(snapshot_time)"
        rows = self.run(f"SELECT snapshot_id, {time} FROM ducklake_snapshot ORDER BY snapshot_id")
        return [(id_, read_instant(at).nanoseconds // 1000 if isinstance(at, str) else at) for id_, at in rows]


def _plain(error: Exception) -> str:
    """DuckDB's first line, without the kind of error that it begins with."""
    return re.sub(r"^[A-Za-z ]*Error: ", "", first_line(error))


def _descriptor(path: str) -> int | None:
    """A descriptor of this process that is of that file.

    Locks of files are the process's: closing one of our descriptors drops those of another library here (DuckDB has an
    SQLite of its own), whose transaction would then write over what others commit meanwhile, ours included.
    """
    with suppress(OSError):
        wanted = os.stat(path)
        for name in os.listdir("/dev/fd"):
            with suppress(OSError, ValueError):
                if os.path.samestat(os.fstat(int(name)), wanted):
                    return int(name)
    return None


def _first_bytes(path: str, n: int) -> bytes:
    """Opens nothing where the file is open: see _descriptor."""
    there = _descriptor(path)
    if there is not None:
        return os.pread(there, n, 0)
    with open(path, "rb") as file:
        return file.read(n)


def catalog_of(name: str) -> Catalog:
    """The catalog that a file holds; `duckdb:` or `sqlite:` before it may say of which kind it is.

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
        with _opening:
            start = _first_bytes(path, 16)
    except OSError as error:
        raise storage_error(path, error) from error
    if start == b"SQLite format 3\0":
        return Catalog(path, True)
    if start[8:12] == b"DUCK":
        return Catalog(path, False)
    raise TableFormatError(path, "is no DuckDB or SQLite file, and so no DuckLake catalog that is read")
