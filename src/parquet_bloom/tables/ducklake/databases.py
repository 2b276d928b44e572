"""Opens a stranger's database so that it is data and no program: what is stored in it is read, and nothing of it runs.

    SQLite   views, triggers, functions and recursion are denied to every statement; a bound on the steps of each; no
             journal that names other files
    DuckDB   in an instance of its own: no files but the catalog's, no extensions; a bound on time and memory

Every table that a statement names is a base table without computed columns; `Database.columns` finds that out and gives
its name in full, so that nothing else that a catalog defines under that name, or a function's, can take its place.
Source: SQLite, "Defense Against The Dark Arts"; DuckDB, "Securing DuckDB"; measured with DuckDB 1.5.5 and 2.0.0.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import stat
import tempfile
import threading
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol
from urllib.parse import quote

from parquet_bloom.errors import ConflictError, RequestError, StorageError, TableFormatError, first_line
from parquet_bloom.extras import to_install
from parquet_bloom.format.literals import spelled
from parquet_bloom.format.schema import quoted
from parquet_bloom.options import limits
from parquet_bloom.source.adapters import Proof
from parquet_bloom.storage.version_token import Kept, LocalToken

_WAIT = 30  # seconds for another program's transaction in an SQLite file, and for ours in a DuckDB file
# One statement reads its tables once; for each byte of the file there are so many more.
_STEPS, _STEPS_PER_BYTE = 10_000_000, 100  # instructions of SQLite's machine
_SECONDS, _SECONDS_PER_BYTE = 60.0, 1e-6  # of DuckDB's work
_ROWS = 1_000_000  # of an answer, and one more for each byte
_BETWEEN = 10_000  # instructions between two counts of them
_SCHEMA_PRAGMAS = frozenset(("table_list", "table_xinfo", "index_list", "index_xinfo"))
_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION}
_WRITING = {sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_INSERT}
_JOURNAL_MAGIC = bytes.fromhex("d9d505f920a163d7")
_TO_UNDO = "a program ended in the middle of a commit; to undo it, open the file in DuckDB once, or add filters"
_ours: dict[sqlite3.Connection, tuple[int, int]] = {}  # that are open, and the device and inode of each one's file
_turns: defaultdict[tuple[int, int], threading.Lock] = defaultdict(threading.Lock)  # of a DuckDB file, by the same
opening = threading.Lock()  # of files that may be SQLite's: see _descriptor


class Database(Protocol):
    """A catalog's database within one transaction."""

    @property
    def is_sqlite(self) -> bool:
        """Whether it is an SQLite file, where times are texts and booleans numbers."""
        ...

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of one statement; its parameters are written `?`. Raises StorageError, TableFormatError."""
        ...

    def columns(self, table: str) -> list[str] | None:
        """The names of a base table's columns; None if nothing has its name.

        Raises TableFormatError for anything else of this name: a view, a virtual table, computed columns.
        """
        ...

    def in_full(self, table: str) -> str:
        """The name of a base table as a statement must have it."""
        ...

    def close(self) -> None:
        """End it; what was not committed is rolled back."""
        ...


# --- SQLite -------------------------------------------------------------------------------------


class SQLiteDatabase:
    """A connection to an SQLite file that runs nothing of what is defined there."""

    is_sqlite = True

    def __init__(self, path: str, write: bool, undo: bool = False) -> None:
        """Open it.

        undo  the commit of a program that ended in the middle of it is undone, as SQLite does before it reads; a writer
              does so too
        Raises StorageError, ConflictError; TableFormatError for a journal that may not be opened; OSError where there
        is no such file.
        """
        self._path = path
        self._steps, self._denied = 0, ""
        name = f"file:{quote(os.path.abspath(path))}?mode={'rw' if write or undo else 'ro'}"
        _check_journal(path, write or undo)
        with opening:
            found = os.stat(path)
            mine = found.st_dev, found.st_ino
            if mine not in _ours.values() and _descriptor(path) is not None:
                reason = "is open in this process, probably by a DuckDB transaction; end that first, as locks of SQLite"
                raise ConflictError(path, f"{reason} do not hold between two libraries of one process")
            try:
                self._connection = sqlite3.connect(name, timeout=_WAIT, isolation_level=None, uri=True)
            except sqlite3.Error as error:
                raise StorageError(path, first_line(error)) from error
            _ours[self._connection] = mine
        size = _bytes(path, "-wal")
        self._allowed, self._rows = _STEPS + size * _STEPS_PER_BYTE, _ROWS + size
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(limits().max_string_bytes, 1_000_000_000))
        self._connection.execute("PRAGMA trusted_schema = OFF")
        self._connection.execute("PRAGMA ignore_check_constraints = ON")
        self._actions = _READING | _WRITING if write else _READING
        self._connection.set_authorizer(self._authorized)
        self._connection.set_progress_handler(self._stepped, _BETWEEN)

    def _authorized(
        self, action: int, first: str | None, second: str | None, database: str | None, inside: str | None
    ) -> int:
        """Judge one thing that a statement does; `inside` is the view or trigger that has it done."""
        fits = first in _SCHEMA_PRAGMAS if action == sqlite3.SQLITE_PRAGMA else action in self._actions
        if fits and inside is None:
            return sqlite3.SQLITE_OK
        self._denied = inside or "what a catalog defines"
        return sqlite3.SQLITE_DENY

    def _stepped(self) -> int:
        self._steps += _BETWEEN
        return self._steps > self._allowed

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """As Database has it."""
        self._steps, self._denied = 0, ""
        try:
            rows = self._connection.execute(sql, list(values)).fetchmany(self._rows + 1)
        except (sqlite3.Error, UnicodeError) as error:
            if self._steps > self._allowed:
                raise TableFormatError(self._path, f"a query took more than {self._allowed:,} steps") from error
            if self._denied:
                reason = f"a statement would run {self._denied}, which DuckLake does not make; nothing of it is run"
                raise TableFormatError(self._path, reason) from error
            hot = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_READONLY_ROLLBACK
            raise StorageError(self._path, _TO_UNDO if hot else first_line(error)) from error
        return _bounded(self._path, rows, self._rows)

    def columns(self, table: str) -> list[str] | None:
        """As Database has it."""
        if sqlite3.sqlite_version_info < (3, 37):
            raise StorageError(self._path, f"needs SQLite 3.37 or newer; this Python has {sqlite3.sqlite_version}")
        kinds = [row[2] for row in self.run(f"PRAGMA main.table_list({quoted(table)})") if row[0] == "main"]
        if not kinds:
            return None
        if kinds != ["table"]:
            raise _no_table(self._path, table, "a view" if kinds == ["view"] else "a virtual table")
        columns = self.run(f"PRAGMA main.table_xinfo({quoted(table)})")
        for _, name, *_, hidden in columns:
            if hidden:
                raise _no_table(self._path, table, f"a table with a computed column, {name}")
        for _, index, _, _, partial in self.run(f"PRAGMA main.index_list({quoted(table)})"):
            if partial or any(row[1] == -2 for row in self.run(f"PRAGMA main.index_xinfo({quoted(index)})")):
                raise _no_table(self._path, table, f"a table with an index over an expression, {index}")
        return [name for _, name, *_ in columns]

    def in_full(self, table: str) -> str:
        """As Database has it."""
        return f"main.{quoted(table)}"

    def close(self) -> None:
        """As Database has it."""
        with suppress(sqlite3.Error):
            self._connection.close()
        _ours.pop(self._connection, None)


def _check_journal(path: str, write: bool) -> None:
    """Raise TableFormatError for a journal that SQLite would wait for, or that would have it delete another file.

    The journal of a transaction of several databases ends with the name of a super-journal. Whoever undoes the
    transaction deletes the file of that name. A journal of DuckLake's never has one; a journal that was put beside the
    catalog may name any file. Source: SQLite, "Atomic Commit In SQLite", section 5, and "Database File Format", 3.
    """
    journal = os.path.realpath(path) + "-journal"
    try:
        if not stat.S_ISREG(os.lstat(journal).st_mode):  # a pipe has no end
            raise TableFormatError(journal, "is no plain file, and so no journal of the catalog beside it; remove it")
        if not write:  # a reader undoes nothing
            return
        with open(journal, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - len(_JOURNAL_MAGIC), 0))
            names_another = file.read() == _JOURNAL_MAGIC
    except FileNotFoundError:
        return
    if names_another:
        reason = "names another file, which SQLite would delete; DuckLake writes no such journal; nothing was opened."
        raise TableFormatError(journal, reason + " If you trust it, open the catalog with sqlite3 once")


# --- DuckDB -------------------------------------------------------------------------------------

_NO_BAR = "SET enable_progress_bar = false"  # DuckDB draws one on stdout, between what a program prints, after 2 s
_ATTACHED = "lake"
_DUCKDB_LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")
_SCHEMA = "database_name = ? AND schema_name = 'main' AND table_name = ?"


class DuckDatabase:
    """A DuckDB file in an instance that may do nothing but read and write this file.

    Where this process has the file open in an instance of its own, DuckDB lets nobody open it beside that; the
    connection is then one to that instance, with its settings. Nothing that the catalog defines runs there either, as
    base tables alone are read, and statements name tables and functions in full.

    connection  DuckDB's
    folder      where files may be written; nobody has made it yet
    """

    is_sqlite = False

    def __init__(self, path: str, write: bool) -> None:
        """Open it. Raises StorageError, ConflictError; OSError where there is no such file."""
        self._path = path
        self.folder = new_folder()
        found = os.stat(path)
        with opening:
            self._turn = _turns[found.st_dev, found.st_ino]
        if not self._turn.acquire(timeout=_WAIT):
            raise ConflictError(path, f"this process has had it open for {_WAIT} seconds; try again after that")
        try:
            self.connection, self._name = self._opened(os.path.abspath(path), write)
        except BaseException:
            self._turn.release()
            raise
        size = _bytes(path, ".wal")
        self._seconds, self._rows = _SECONDS + size * _SECONDS_PER_BYTE, _ROWS + size

    def _opened(self, path: str, write: bool) -> tuple[Any, str]:
        files = [path + end for end in ("", *_DUCKDB_LOGS)]
        connection = confined(self.folder, files)
        import duckdb

        try:
            options = "TYPE duckdb" if write else "TYPE duckdb, READ_ONLY"
            connection.execute(f"ATTACH {spelled(path)} AS {_ATTACHED} ({options})")
        except duckdb.Error as error:
            connection.close()
            if "already attached" not in str(error):
                raise StorageError(self._path, plain(error)) from error
        else:
            return connection, _ATTACHED
        try:
            connection = duckdb.connect(self._path)
            connection.execute(_NO_BAR)
            return connection, connection.execute("SELECT system.main.current_database()").fetchall()[0][0]
        except duckdb.Error as error:
            raise StorageError(self._path, plain(error)) from error

    def run(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """As Database has it."""
        import duckdb

        late = threading.Event()

        def stop() -> None:
            late.set()
            self.connection.interrupt()

        timer = threading.Timer(self._seconds, stop)
        timer.daemon = True
        timer.start()
        try:
            rows = self.connection.execute(sql, list(values)).fetchmany(self._rows + 1)
        except (duckdb.Error, UnicodeError, RuntimeError) as error:  # a RuntimeError where it was interrupted
            if late.is_set():
                raise TableFormatError(self._path, f"a query took more than {self._seconds:.0f} seconds") from error
            raise StorageError(self._path, plain(error)) from error
        finally:
            timer.cancel()
        return _bounded(self._path, rows, self._rows)

    def columns(self, table: str) -> list[str] | None:
        """As Database has it."""
        of = [self._name, table]
        views = "SELECT 1 FROM system.main.duckdb_views() WHERE database_name = ? AND schema_name = 'main'"
        if self.run(f"{views} AND view_name = ?", of):
            raise _no_table(self._path, table, "a view")
        tables = self.run(f"SELECT check_constraint_count, sql FROM system.main.duckdb_tables() WHERE {_SCHEMA}", of)
        if not tables:
            return None
        [(checks, sql)] = tables
        columns = self.run(
            f"SELECT column_index, column_name, column_default FROM system.main.duckdb_columns() WHERE {_SCHEMA}", of
        )
        if "GENERATED ALWAYS AS" in sql and any(default is not None for *_, default in columns):
            raise _no_table(self._path, table, "a table with a computed column")
        if checks:
            raise _no_table(self._path, table, "a table with a CHECK")
        return [name for _, name, _ in sorted(columns)]

    def in_full(self, table: str) -> str:
        """As Database has it."""
        return f"{quoted(self._name)}.main.{quoted(table)}"

    def close(self) -> None:
        """As Database has it."""
        try:
            with suppress(Exception):
                self.connection.close()
        finally:
            self._turn.release()


def confined(folder: str, files: Sequence[str] = ()) -> Any:
    """A connection to a DuckDB in memory that opens these files, and files of this folder, and no others.

    It loads no extensions, finds no variables of Python, writes nothing to a disk when memory runs out, and none of
    this can be changed again. Raises RequestError without duckdb.
    """
    try:
        import duckdb
    except ImportError:
        raise RequestError(f"ducklake: needs duckdb; {to_install('ducklake')}") from None
    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "python_enable_replacements": "false",
        "temp_directory": "",
        "memory_limit": f"{max(limits().max_memory >> 20, 128)}MiB",
        "threads": "1",
    }
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute(_NO_BAR)
    connection.execute(f"SET allowed_paths = [{', '.join(map(spelled, files))}]::VARCHAR[]")
    connection.execute(f"SET allowed_directories = [{spelled(folder)}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def new_folder() -> str:
    """The path of a folder that nobody has made yet."""
    return os.path.join(tempfile.gettempdir(), f"parquet-bloom-{secrets.token_hex(16)}")


def plain(error: Exception) -> str:
    """DuckDB's first line, without the kind of error that it begins with."""
    return re.sub(r"^[A-Za-z ]*Error: ", "", first_line(error))


# --- both ---------------------------------------------------------------------------------------


def _no_table(path: str, table: str, what: str) -> TableFormatError:
    return TableFormatError(path, f"{table} is {what}; DuckLake makes plain tables, and nothing else is read")


def _bounded(path: str, rows: list[Any], most: int) -> list[tuple[Any, ...]]:
    if len(rows) > most:
        raise TableFormatError(path, f"a query gave more than {most:,} rows")
    return [tuple(row) for row in rows]


def proof_of_database(path: str, is_sqlite: bool) -> Proof | None:
    """Version tokens of a catalog's files: equal ones prove that it says the same. None where there is no proof.

    A snapshot's number proves nothing, as much changes without a new one: files that take the place of others, options
    of the catalog, snapshots that expire; and a catalog that was made again has the same numbers. Nor is there a proof
    while this process has the file open: DuckDB may then know of commits that no file has. Nor while SQLite has a log
    with something in it: a commit is in the file of the log before readers see it.
    """
    if not hasattr(os, "O_PATH"):
        return None
    if is_sqlite:
        path = os.path.realpath(path)  # SQLite keeps its logs beside the file that a link leads to
    found: list[Kept | None] = []
    for end in ("", "-wal", "-journal") if is_sqlite else ("", *_DUCKDB_LOGS):
        try:
            file = os.open(path + end, os.O_PATH | os.O_CLOEXEC)  # closing such a one leaves the locks of others
        except FileNotFoundError:
            found.append(None)
            continue
        except OSError:
            return None
        try:
            is_empty = os.fstat(file).st_size == 0  # a log that a reader makes, and that says nothing
            token = None if is_empty else LocalToken.of(os.fstat(file)).lasting(file, False)
        finally:
            os.close(file)
        if not is_empty and (token is None or (is_sqlite and end)):
            return None
        found.append(token)
    with opening:
        return None if found[0] is None or _descriptor(path) is not None else tuple(found)


def _bytes(path: str, log: str) -> int:
    """The size of a database's file, with that of its log; 1 GiB at most, as fetchmany counts rows by a C int."""
    size = os.path.getsize(path)
    with suppress(OSError):
        size += os.path.getsize(path + log)
    return min(size, 1 << 30)


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


def first_bytes(path: str, n: int) -> bytes:
    """The start of a file. Opens nothing where the file is open: see _descriptor."""
    with opening:
        there = _descriptor(path)
        if there is not None:
            return os.pread(there, n, 0)
        file = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait for its writer
        try:
            return os.read(file, n)
        finally:
            os.close(file)
