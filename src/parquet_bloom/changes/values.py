"""The report of a change of rows by their keys."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from parquet_bloom.source.results import Result, table_of
from parquet_bloom.storage.display import line, quantity
from parquet_bloom.storage.paths import FailedFile


@dataclass(slots=True, repr=False)
class RewrittenFile(Result):
    """One file with rows that have a key: another file with its other rows takes its place.

    rows          that it had, without those that the table had deleted
    deleted       of these, the ones that have a key
    bytes_before, bytes_after  of it, and of what takes its place: 0 in a dry run, and where no row of a table's file
                  remains
    """

    path: str
    rows: int
    deleted: int
    bytes_before: int
    bytes_after: int = 0


@dataclass(slots=True, repr=False)
class KeyChanges(Result):
    """The report of `delete_keys` and `upsert`.

    source, columns  of the keys
    files          of the source
    rewritten      of these, the ones that had rows with a key
    deleted        rows that had a key which was to be deleted
    replaced       rows that had the key of a new row
    appended       new rows whose key no row had
    bytes_written  of new files, filters included; 0 in a dry run
    commit         the new version of Delta, or the id of Iceberg's new snapshot; None: nothing was committed
    notes          on the index, and on filters; of files without a log on what their new row groups could not keep
    failed         of such files, those that stay as they were
    """

    source: str
    columns: list[str]
    files: int = 0
    rewritten: list[RewrittenFile] = field(default_factory=list)
    deleted: int = 0
    replaced: int = 0
    appended: int = 0
    bytes_written: int = 0
    commit: str | None = None
    dry_run: bool = False
    notes: list[str] = field(default_factory=list)
    failed: list[FailedFile] = field(default_factory=list)

    def __repr__(self) -> str:
        rows = f"{self.deleted:,} deleted, {self.replaced:,} replaced, {self.appended:,} appended"
        files = f"{len(self.rewritten):,} of {quantity(self.files, 'files')} rewritten"
        return line(type(self).__name__, [rows, files, *(["dry run"] if self.dry_run else [])])

    def to_arrow(self) -> pa.Table:
        """A row a file that was rewritten."""
        return table_of(RewrittenFile, self.rewritten)
