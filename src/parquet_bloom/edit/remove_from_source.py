"""Filters leave all files of a source; of a table by a copy without them, or by the size that its log names.

No file of a table is cut: versions of the table that name its larger size go on reading it. The bytes go with the file,
or with the next copy of it.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from parquet_bloom.edit.remove import RemoveFromFile, RemoveRequest, chunks_of, peeled, remove_from
from parquet_bloom.edit.reports import RemovedFile, RemoveReport
from parquet_bloom.edit.table_columns import TableColumns
from parquet_bloom.edit.table_commit import FileWork, Worked, check_size, footer_bytes
from parquet_bloom.edit.to_change import ToChange
from parquet_bloom.errors import TableFormatError, parameter
from parquet_bloom.format.schema import select_leaves
from parquet_bloom.output.recovery import opened
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location


def remove_from_source(to: ToChange, request: RemoveRequest, progress: ProgressCallback | None = None) -> RemoveReport:
    """Remove filters of files, or of those of a table. Raises as remove_filters."""
    snapshot = to.snapshot()
    request = dataclasses.replace(request, tables=to.tables)
    if snapshot.has_log:
        select_leaves(TableColumns(snapshot).leaves, request.columns, request.exclude)

    def work_on(one: Snapshot) -> FileWork[RemovedFile]:
        return Removing(TableColumns(one), request) if one.has_log else RemoveFromFile(request)

    changed = to.change(snapshot, work_on, Meter(progress, snapshot.files))
    return RemoveReport(changed.files, changed.failed, [*to.notes, *changed.notes], changed.commits)


@dataclass(frozen=True, slots=True)
class Removing:
    """Takes filters out of one file, which is as long as the table's log says."""

    names: TableColumns
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
