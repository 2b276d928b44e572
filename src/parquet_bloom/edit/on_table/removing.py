"""The files of a table without their filters: a copy takes a file's place, or the log has the size before its tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from parquet_bloom.edit.on_table.commits import CommitOptions, Worked, change_table
from parquet_bloom.edit.on_table.files import THROUGH_LOG, check_size, footer_bytes
from parquet_bloom.edit.on_table.names import TableNames
from parquet_bloom.edit.remove import Removal, filters_of, remove_from
from parquet_bloom.edit.reports import RemovedFile, RemoveReport
from parquet_bloom.errors import TableFormatError
from parquet_bloom.formats.metadata.schema import select_leaves
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.writing.file_lock import opened
from parquet_bloom.storage.writing.target import WriteOptions
from parquet_bloom.tables.snapshot import Snapshot, Table, TableFile


def remove_on_table(
    table: Table, columns: Sequence[str] | None, exclude: Sequence[str] | None, write: WriteOptions,
    how: CommitOptions, progress: ProgressCallback | None = None,
) -> RemoveReport:  # fmt: skip
    """Remove filters of the files of a table, and commit. Raises as remove_filters does for a table."""
    snapshot = table.snapshot()
    select_leaves(TableNames(snapshot).leaves, columns, exclude)

    def work_on(one: Snapshot) -> Removing:
        return Removing(TableNames(one), columns, exclude, write)

    changed = change_table(table, snapshot, work_on, how, Meter(progress, snapshot.files))
    return RemoveReport(changed.files, changed.failed, changed.notes, changed.commits)


@dataclass(frozen=True, slots=True)
class Removing:
    """Takes filters out of one file."""

    names: TableNames
    columns: Sequence[str] | None
    exclude: Sequence[str] | None
    write: WriteOptions

    def __call__(self, file: TableFile, target: Location, look_only: bool) -> Worked[RemovedFile]:
        """As commits.FileWork has it."""
        with opened(file, False) as source:
            check_size(file, source)
            shown, columns = self._columns(file, source)
            removal = Removal(columns, None, False, self.write, look_only, THROUGH_LOG)
            if not filters_of(source.footer(), columns, None):
                return Worked(RemovedFile(str(file), str(file), 0, [], 0, source.size, source.size, dry_run=look_only))
            if target.path == file.path:
                raise TableFormatError(file, "its filters are not a tail of ours, and only those go on the same path")
            report = remove_from(source, target, removal)
        report.columns = [shown.get(name, name) for name in report.columns]
        return Worked(report, 1, 0) if look_only else Worked(report, report.bytes_after, footer_bytes(target))

    def _columns(self, file: TableFile, source: Source) -> tuple[dict[str, str], Sequence[str] | None]:
        names = self.names.of(file, source.footer())
        return dict(names.shown), self.names.chunks_of(self.columns, self.exclude, names)
