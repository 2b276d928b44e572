"""Rows that a DuckLake catalog holds itself: small inserts, until somebody flushes them to files.

    ducklake_inlined_data_tables      table_id, table_name, schema_version
    ducklake_inlined_data_3_1         row_id, begin_snapshot, end_snapshot, and the columns by their names then

Each such table becomes a Parquet file in memory, of the rows that are live at the snapshot. DuckDB writes it, so values
are what a flush would make of them; a catalog in SQLite has most of them as text, which DuckDB casts as DuckLake does.
Source: the DuckLake 1.0 specification, "Data Inlining"; texts as DuckLake of DuckDB 1.5.5 writes them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from parquet_bloom.errors import RequestError, StorageError, TableFormatError, first_line
from parquet_bloom.extras import to_install
from parquet_bloom.format.literals import spelled
from parquet_bloom.format.schema import quoted
from parquet_bloom.source.snapshot import Field, TableFile
from parquet_bloom.tables.ducklake.catalog import LIVE, NUMBER, TEXT, Queries
from parquet_bloom.tables.ducklake.columns import Columns, columns_of, sql_type
from parquet_bloom.tables.ducklake.databases import DuckDatabase, confined, new_folder

# --- Parquet files in memory ----------------------------------------------------------------------
#
# A file whose bytes are in memory, as a file system of pyarrow's that holds this one file and nothing else.


class OneFile(fs.FileSystemHandler):
    """Read only. It may be pickled, with its bytes."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneFile) and (self.path, self.data) == (other.path, other.data)

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        """As pyarrow's file systems call themselves."""
        return "memory"

    def normalize_path(self, path: str) -> str:
        """The path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Of the file its size; of all else that it is not there."""
        there = fs.FileInfo(self.path, fs.FileType.File, size=len(self.data))
        return [there if path == self.path else fs.FileInfo(path, fs.FileType.NotFound) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[fs.FileInfo]:
        """No folder is there."""
        if not selector.allow_not_found:
            raise FileNotFoundError(selector.base_dir)
        return []

    def open_input_file(self, path: str) -> Any:
        """The file, for reads anywhere in it."""
        if path != self.path:
            raise FileNotFoundError(path)
        return pa.BufferReader(self.data)

    open_input_stream = open_input_file

    def _refused(self, *_: Any) -> Any:
        raise OSError("is in memory, and is not written to")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refused
    move = copy_file = open_output_stream = open_append_stream = _refused


# --- rows of the catalog --------------------------------------------------------------------------

_OWN = ["row_id", "begin_snapshot", "end_snapshot"]
_ADVICE = "CALL ducklake_flush_inlined_data(...) in DuckDB writes them to files"


def inlined_files(queries: Queries, table: str, table_id: int, snapshot: int) -> list[TableFile]:
    """The rows of one table that are in no file, as files in memory; none where all rows are in files.

    table  named in errors
    Raises TableFormatError for rows that cannot be read: they must not be missing in silence.
    """
    named = queries.rows(
        "ducklake_inlined_data_tables", {"schema_version": NUMBER, "table_name": TEXT}, "table_id = ?", [table_id]
    )
    files = []
    for _, name in sorted(named):
        rows = queries.rows(name, {"begin_snapshot": NUMBER}, LIVE, [snapshot, snapshot])
        if rows:
            count, last = len(rows), max(rows)[0]
            try:
                data = _parquet(queries, name, columns_of(queries, table, table_id, last), snapshot)
            except (_NotReadError, StorageError) as error:
                reason = error.reason if isinstance(error, StorageError) else str(error)
                many = "1 row is" if count == 1 else f"{count:,} rows are"
                raise TableFormatError(table, f"{many} inlined in the catalog, {reason}; {_ADVICE}") from error
            store = fs.PyFileSystem(OneFile(name, data))
            shown = f"{table} inlined in {name}"
            files.append(TableFile(name, store, shown, [], name, (), count, len(data), stored=False))
    return files


class _NotReadError(Exception):
    """Rows that cannot be read, and why."""


def _parquet(queries: Queries, name: str, columns: Columns, snapshot: int) -> bytes:
    """One of the catalog's tables as a Parquet file with field ids."""
    has = queries.columns(name) or []
    wanted = [field.name for field in columns.fields]
    if has[:3] != _OWN or sorted(has[3:]) != sorted(wanted):
        raise _NotReadError("under other names than their table's columns had")
    casts = ", ".join(
        f"CAST({quoted(field.name)} AS {_sql_type(field, columns)}) AS {quoted(field.name)}" for field in columns.fields
    )
    rows = f"FROM {queries.table(name)} WHERE {LIVE} ORDER BY row_id".replace("?", str(int(snapshot)))
    ids = ", ".join(_field_id(field) for field in columns.fields)
    database = queries.database
    if isinstance(database, DuckDatabase):
        return _written(database.connection, database.folder, f"SELECT {casts} {rows}", ids)
    folder = new_folder()
    try:
        connection = confined(folder)
    except RequestError:
        raise _NotReadError(f"and reading them needs duckdb ({to_install('ducklake')})") from None
    stored = queries.run(f"SELECT {', '.join(map(quoted, wanted))} {rows}")
    with connection:
        connection.register("stored", _as_texts(wanted, stored))
        return _written(connection, folder, f"SELECT {casts} FROM stored", ids)


def _as_texts(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Values of SQLite as DuckDB can cast them: bytes as they are, all others as text."""
    columns = []
    for values in zip(*rows, strict=True):
        if any(isinstance(value, bytes) for value in values):
            columns.append(pa.array([v.encode() if isinstance(v, str) else v for v in values], pa.binary()))
        else:
            columns.append(pa.array([None if v is None else str(v) for v in values], pa.string()))
    return pa.table(columns, names=list(names))


def _written(connection: Any, folder: str, select: str, ids: str) -> bytes:
    """The result of a query as Parquet, as DuckDB writes it: through a folder, which is made for it and removed."""
    os.mkdir(folder, 0o700)
    try:
        path = os.path.join(folder, "rows.parquet")
        try:
            connection.execute(f"COPY ({select}) TO {spelled(path)} (FORMAT parquet, FIELD_IDS {{{ids}}})")
        except Exception as error:
            if not type(error).__module__.startswith(("duckdb", "_duckdb")):
                raise
            raise _NotReadError(f"and DuckDB does not write them ({first_line(error)})") from error
        return Path(path).read_bytes()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sql_type(field: Field, columns: Columns) -> str:
    assert field.field_id is not None
    kind = columns.by_id[field.field_id].type
    inner = [_sql_type(child, columns) for child in field.children]
    if kind == "struct":
        pairs = zip(field.children, inner, strict=True)
        return f"STRUCT({', '.join(f'{quoted(child.name)} {one}' for child, one in pairs)})"
    if kind == "list":
        return f"{inner[0]}[]"
    if kind == "map":
        return f"MAP({inner[0]}, {inner[1]})"
    name = sql_type(kind)
    if name is None:
        raise _NotReadError(f"with a column of type {kind}, {field.name}")
    return name


def _field_id(field: Field) -> str:
    if not field.children:
        return f"{spelled(field.name)}: {field.field_id}"
    inner = ", ".join(map(_field_id, field.children))
    return f"{spelled(field.name)}: {{__duckdb_field_id: {field.field_id}, {inner}}}"
