"""The Parquet files that an index is of: those that were named, or the live ones of a table."""

from __future__ import annotations

from typing import Any

from parquet_bloom.errors import RequestError
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.table_folders import refusing
from parquet_bloom.tables.columns import matches
from parquet_bloom.tables.named.sources import find
from parquet_bloom.tables.roots import TableAccess
from parquet_bloom.tables.snapshot import Snapshot


def files_of(
    sources: Any, filesystem: Any, raw_files: bool, access: TableAccess
) -> tuple[list[DataFile], frozenset[str]]:
    """The files, and columns whose values a table has in its log, whatever its files have.

    The first name among several that gives none is an error; see zones.sources.open_data.
    """
    found = find(sources, filesystem, refusing(raw_files), access)
    if found.file_set.failed:
        raise found.file_set.failed[0].error
    if found.snapshot is None:
        return found.file_set.files, frozenset()
    _check_names(found.snapshot)
    return found.file_set.files, found.snapshot.logged


def _check_names(snapshot: Snapshot) -> None:
    """Raise RequestError for a table that calls a column of some file otherwise: an index has the files' own names.

    Deleted rows may stay in an index: its zones then admit more than lives.
    """
    if not all(file.stored for file in snapshot.files):
        reason = "its catalog holds rows itself, and an index is of stored files"
        raise RequestError(f"{snapshot.table}: {reason}; flush them first (CALL ducklake_flush_inlined_data)")
    if not snapshot.files:
        raise RequestError(f"{snapshot.table}: has no files at version {snapshot.version}")
    for file in snapshot.files:
        with Source(file) as source:
            schema = source.footer().metadata.schema
        found = matches(snapshot.fields, snapshot.by_id, schema, file, snapshot.logged)
        if not all(match.same_names for match in found):
            reason = "has columns under other names than its table, and an index is of files' own columns"
            raise RequestError(f"{file}: {reason}; rewrite it through the table first")
