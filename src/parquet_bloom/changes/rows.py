"""The functions people call to change rows by their keys: delete_keys, upsert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import pyarrow as pa

from parquet_bloom.changes.tables import RowsRequest, change_table_rows
from parquet_bloom.changes.values import KeyChanges
from parquet_bloom.edit.write import SupportsArrowStream
from parquet_bloom.errors import RequestError
from parquet_bloom.options import FilesystemOption, PathLike, ReadOptions, column_names, refuse_unknown
from parquet_bloom.source.names import TableAccess, refuse_named
from parquet_bloom.source.source import CallSource
from parquet_bloom.storage.progress import ProgressCallback


class RowOptions(ReadOptions, FilesystemOption, total=False):
    """Keywords of `delete_keys` and `upsert`, beside those that they name; each has a default."""


def delete_keys(
    source: str,
    column: str | Sequence[str],
    keys: Any,
    *,
    index: PathLike | None = None,
    dry_run: bool = False,
    threads: int | None = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[RowOptions],
) -> KeyChanges:
    """Delete the rows of a table that have one of some keys, in one commit.

    source   "delta:PATH_OR_URI" or "iceberg:CATALOG/namespace.table"
    column   of the keys, or several, of which a key has a value each
    keys     of one column an array or a list; of several a table or a mapping with these columns. They get the types of
             the table. No NULL, no float, none twice. A key that no row has is ignored; NULL in a row equals no key
    index    folder of a key index: files that it covers are not opened to find keys. If it covered all of them it is
             updated after the commit; else the report's notes say that it is behind
    dry_run  find and count all the same, and write nothing
    threads  that build filters; the processors there are, unless given
    progress  is called with a Progress for every file that is rewritten
    options  see RowOptions: filesystem, catalog_properties, allow_roots

    Only files with such rows are read and written again, one at a time, and a new file has the remaining rows of one
    old one. It gets filters before the commit: on the columns that have filters by the table's log, its properties or
    the old files.

    Raises RequestError and UnknownColumnError for keys and columns that cannot be meant; TableFormatError for a table
    or a file whose rows are not changed here; ConflictError where another commit came first, and FileChangedError where
    a file has other rows than were located: nothing is committed then. UnknownCommitError where a store did not say
    whether the commit landed.
    """
    refuse_unknown("delete_keys", options, RowOptions)
    refuse_named(source, "call its own delete_keys(...)")
    request = RowsRequest(_columns(column), keys, None, index, dry_run, threads)
    return change_table_rows(_table(source, options), request, progress)


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
    refuse_named(source, "call its own upsert(...)")
    try:
        new = rows if isinstance(rows, pa.Table) else pa.RecordBatchReader.from_stream(rows).read_all()
    except (TypeError, AttributeError) as error:
        kind = type(rows).__name__
        raise RequestError(f"rows are a {kind}; give a table or frame that has __arrow_c_stream__") from error
    request = RowsRequest(_columns(column), deletes, new, index, dry_run, threads)
    return change_table_rows(_table(source, options), request, progress)


def _columns(column: str | Sequence[str]) -> tuple[str, ...]:
    names = tuple(column_names(column, "column") or ())
    if not names or len({*names}) < len(names):
        raise RequestError("column names one column of the keys, or several, each once")
    return names


def _table(source: str, options: RowOptions) -> CallSource:
    about = CallSource(
        source, options.get("filesystem"), options.get("raw_files", False), TableAccess.from_options(options)
    )
    if about.table_name is None:
        raise RequestError("rows are changed in tables alone: name delta:PATH or iceberg:CATALOG/namespace.table")
    return about
