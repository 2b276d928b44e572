"""The files of a table without their filters: a copy takes a file's place, or the log has the size before its tails.

No file is cut: versions of the table that name its larger size go on reading it. The bytes go with the file, or with
the next copy of it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from parquet_bloom.edit.remove import RemoveRequest, chunks_of, peeled, remove_from
from parquet_bloom.edit.reports import RemovedFile, RemoveReport
from parquet_bloom.edit.table_commit import THROUGH_LOG, Committing, Worked, change_table, check_size, footer_bytes
from parquet_bloom.edit.table_names import TableNames
from parquet_bloom.errors import TableFormatError, parameter
from parquet_bloom.format.schema import select_leaves
from parquet_bloom.output.recovery import opened
from parquet_bloom.source.snapshot import Snapshot, Table, TableFile
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location


def remove_on_table(
    table: Table, request: RemoveRequest, how: Committing, progress: ProgressCallback | None = None
) -> RemoveReport:
    """Remove filters of the files of a table, and commit. Raises as remove_filters does for a table."""
    snapshot = table.snapshot(stored_only=True)
    select_leaves(TableNames(snapshot).leaves, request.columns, request.exclude)
    request = dataclasses.replace(request, tables=THROUGH_LOG)

    def work_on(one: Snapshot) -> Removing:
        return Removing(TableNames(one), request)

    changed = change_table(table, snapshot, work_on, how, Meter(progress, snapshot.files))
    return RemoveReport(changed.files, changed.failed, changed.notes, changed.commits)


@dataclass(frozen=True, slots=True)
class Removing:
    """Takes filters out of one file, which is as long as the table's log says."""

    names: TableNames
    request: RemoveRequest

    def __call__(self, file: TableFile, target: Location, look_only: bool) -> Worked[RemovedFile]:
        """As commits.FileWork has it."""
        with opened(file, False) as whole:
            source = whole.until(file.size) if check_size(file, whole) else whole
            names = self.names.of(file, source.footer())
            columns = self.names.chunks_of(self.request.columns, self.request.exclude, names)
            request = dataclasses.replace(self.request, columns=columns, exclude=None)
            looking = dataclasses.replace(request, how=dataclasses.replace(request.how, dry_run=True))
            report = remove_from(source, target, looking)
            worked = Worked(report, int(report.removed > 0))
            if report.removed and target.path == file.path:
                report.written = False
                worked = Worked(report, *_before_tails(file, source, request))
            elif report.removed and not look_only:
                report = remove_from(source, target, request)
                worked = Worked(report, report.bytes_after, footer_bytes(target))
        report.dry_run = self.request.how.dry_run
        if not worked.size:
            report.output = report.source  # no other file was made
        report.columns = [names.shown.get(name, name) for name in report.columns]
        return dataclasses.replace(worked, columns=frozenset(report.columns))


def _before_tails(file: TableFile, source: OpenFile, request: RemoveRequest) -> tuple[int, int]:
    """Size and footer of a file without the tails that go. Raises TableFormatError where other filters would stay."""
    wanted = {leaf.index for leaf in select_leaves(source.footer().leaves, request.columns, None)}
    before = peeled(source, wanted, False).source
    if chunks_of(before.footer(), wanted):
        reason = "has filters that lie in no tail of its end, which only another file can be without; "
        raise TableFormatError(file, reason + "see " + parameter("commit", "new-path"))
    return before.size, len(before.footer().data)
