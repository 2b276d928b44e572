"""The functions people call to change rows by their keys: delete_keys, upsert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import pyarrow as pa

from parquet_bloom.changes.files import delete_from_files
from parquet_bloom.changes.keys import RowsRequest
from parquet_bloom.changes.tables import change_table_rows
from parquet_bloom.changes.values import KeyChanges
from parquet_bloom.edit.changeable import checked_commits
from parquet_bloom.edit.write import SupportsArrowStream
from parquet_bloom.errors import RequestError
from parquet_bloom.options import (
    CommitOptions,
    FilesystemOption,
    PathLike,
    ReadOptions,
    TableOptions,
    WriteOptions,
    check_threads,
    column_names,
    part,
    refuse_unknown,
)
from parquet_bloom.output.target import Writing
from parquet_bloom.source.names import TableAccess, refuse_named
from parquet_bloom.source.source import CallSource
from parquet_bloom.storage.workers import ProgressCallback


class RowOptions(ReadOptions, FilesystemOption, total=False):
    """Keywords of `upsert`, beside those that it names; each has a default."""


class DeleteOptions(RowOptions, WriteOptions, total=False):
    """Keywords of `delete_keys`, beside those that it names; each has a default."""


def delete_keys(
    source: PathLike | Sequence[PathLike],
    column: str | Sequence[str],
    keys: Any,
    output: PathLike | None = None,
    *,
    index: PathLike | None = None,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[DeleteOptions],
) -> KeyChanges:
    """Delete the rows that have one of some keys: of a table in one commit, or of files.

    source   "delta:PATH_OR_URI" or "iceberg:CATALOG/namespace.table"; or files, a folder, a glob
    column   of the keys, or several, of which a key has a value each
    keys     of one column an array or a list; of several a table, a frame or a mapping with these columns. They get the
             types of the columns. No NULL, no float, none twice. A key that no row has is ignored; NULL in a row equals
             no key
    output   of files: a new file, or a folder for several; or else in_place=True
    index    folder of a key index: files that it covers are not opened to find keys. If it covered all files of a table
             it is updated after the commit; else the report's notes say that it is behind
    threads  that build filters; the processors there are, unless given
    progress  is called with a Progress for every file that is rewritten
    options  see DeleteOptions: dry_run (find and count all the same, and write nothing); of files in_place, overwrite,
             force, sync, read_back, raw_files; filesystem; of tables catalog_properties, allow_roots

    Of a table only files with such rows are read and written again, one at a time, and a new file has the remaining
    rows of one old one. It gets filters before the commit: on the columns that have filters by the table's log, its
    properties or the old files.

    Of files the row groups without such rows are copied to the byte; the others are written again as they were, and get
    filters where they had them. A file without such rows stays as it is; with output it is copied. Files with nested
    columns and encrypted files are refused before any file is changed, if they have such rows. What goes wrong with one
    of several files is in the report's `failed`.

    Raises RequestError and UnknownColumnError for keys and columns that cannot be meant; TableFormatError for a table
    or a file whose rows are not changed here; ConflictError where another commit came first, and FileChangedError where
    a file has other rows than were located: nothing is committed then. UnknownCommitError where a store did not say
    whether the commit landed.
    """
    refuse_unknown("delete_keys", options, DeleteOptions)
    if keys is None:
        raise RequestError("keys is None; give an array, a list or a table of them")
    check_threads(threads)
    refuse_named(source, "call its own delete_keys(...)")
    how, about = Writing.of(part(WriteOptions, options)), _about(source, options)
    request = RowsRequest(_columns(column), keys, None, index, how.dry_run, threads)
    if checked_commits("delete", about, output, part(CommitOptions, options), how) is None:
        return delete_from_files(about, request, output, how, progress)
    return change_table_rows(about, request, progress)


def upsert(
    source: str,
    rows: SupportsArrowStream,
    column: str | Sequence[str],
    *,
    deletes: Any = None,
    index: PathLike | None = None,
    dry_run: bool = False,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[RowOptions],
) -> KeyChanges:
    """Put rows into a table, in one commit: each takes the place of all rows with its key, or is appended.

    rows     new rows with all columns of the table, in the types of it: a pyarrow Table, a frame of pandas or Polars,
             anything with Arrow's `__arrow_c_stream__`. They are in memory as a whole
    column   of the keys, or several; a key is NULL in no new row, and in one row alone
    deletes  keys as delete_keys has them, whose rows are deleted in the same commit; none of a new row
    Other arguments, errors and what is done are as delete_keys has them.
    """
    refuse_unknown("upsert", options, RowOptions)
    check_threads(threads)
    refuse_named(source, "call its own upsert(...)")
    try:
        new = rows if isinstance(rows, pa.Table) else pa.RecordBatchReader.from_stream(rows).read_all()
    except (TypeError, AttributeError) as error:
        kind = type(rows).__name__
        raise RequestError(f"rows are a {kind}; give a table or frame that has __arrow_c_stream__") from error
    about = _about(source, options)
    if checked_commits("upsert", about, None, part(CommitOptions, options), Writing(dry_run=dry_run)) is None:
        raise RequestError("rows are put into tables alone: name delta:PATH or iceberg:CATALOG/namespace.table")
    request = RowsRequest(_columns(column), deletes, new, index, dry_run, threads)
    return change_table_rows(about, request, progress)


def _columns(column: str | Sequence[str]) -> tuple[str, ...]:
    names = tuple(column_names(column, "column") or ())
    if not names or len({*names}) < len(names):
        raise RequestError("column names one column of the keys, or several, each once")
    return names


def _about(source: Any, options: Mapping[str, Any]) -> CallSource:
    access = TableAccess.from_options(part(TableOptions, options))
    return CallSource(source, options.get("filesystem"), options.get("raw_files", False), access)
