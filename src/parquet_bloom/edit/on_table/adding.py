"""Filters for the files of a table, by the names that the table has for its columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parquet_bloom.edit.add import add_to
from parquet_bloom.edit.on_table.commits import CommitOptions, Worked, change_table
from parquet_bloom.edit.on_table.files import THROUGH_LOG, check_size, footer_bytes
from parquet_bloom.edit.on_table.names import FileNames, TableNames
from parquet_bloom.edit.plan import FilterProgress, Request, Run, SkippedColumn
from parquet_bloom.edit.reports import AddedFile, AddReport
from parquet_bloom.errors import TableFormatError, parameter
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.workers import Workers, processors
from parquet_bloom.storage.writing.file_lock import opened
from parquet_bloom.tables.snapshot import Snapshot, Table, TableFile

Arguments = Mapping[str, Any]  # of Request.checked


def add_on_table(
    table: Table, arguments: Arguments, how: CommitOptions, progress: ProgressCallback | None = None
) -> AddReport:
    """Add filters to the files of a table that lack them, and commit. Raises as add_filters does for a table."""
    snapshot, request, notes = asked_of(table, arguments)
    meter = Meter(progress, snapshot.files, unit="filters")
    with Workers(request.threads or processors()) as workers:

        def work_on(one: Snapshot) -> Adding:
            return Adding(TableNames(one), request, workers, how.append, lambda _, done, parts: meter.part(done, parts))

        changed = change_table(table, snapshot, work_on, how, meter)
    return AddReport(changed.files, changed.failed, [*notes, *changed.notes], changed.commits)


def asked_of(table: Table, arguments: Arguments) -> tuple[Snapshot, Request, list[str]]:
    """A table as it is now, what its files get by arguments and its properties, and notes on that."""
    Request.checked(**arguments)  # before the log is read
    snapshot = table.snapshot()
    arguments, notes = _with_wishes(arguments, snapshot)
    request = Request.checked(**arguments)
    TableNames(snapshot).check(request)
    return snapshot, request, notes


def _with_wishes(arguments: Arguments, snapshot: Snapshot) -> tuple[Arguments, list[str]]:
    """Arguments with what the table's properties wish where the caller says nothing."""
    wishes = snapshot.wishes
    if arguments.get("columns") is not None or not wishes.get("columns"):
        return arguments, []
    names, form = TableNames(snapshot), Request.checked(**arguments).form
    leaves = {name: names.wish(name) for name in [*wishes["columns"], *wishes.get("fpp", {})]}
    known = {name: leaf for name, leaf in leaves.items() if leaf is not None and form.refusal(leaf) is None}
    given: dict[str, Any] = {"columns": [known[name].name for name in wishes["columns"] if name in known]}
    rates = {known[name].name: rate for name, rate in wishes.get("fpp", {}).items() if name in known}
    if arguments.get("fpp") is None and rates:
        given["fpp"] = rates
    if arguments.get("max_bytes") is None and wishes.get("max_bytes"):
        given["max_bytes"] = wishes["max_bytes"]
    notes = [f"the table's properties wish filters on {', '.join(given['columns']) or 'no column'}"]
    notes += [
        f"they wish one on {name} too, {_why_not(leaves[name])}" for name in wishes["columns"] if name not in known
    ]
    return {**arguments, **given}, notes


def _why_not(leaf: Leaf | None) -> str:
    return "which is no column" if leaf is None else f"which can have none ({leaf.type_name})"


@dataclass(frozen=True, slots=True)
class Adding:
    """Adds filters to one file: to a copy that takes its place, or as a tail behind it."""

    names: TableNames
    request: Request
    workers: Workers
    append: bool = False
    progress: FilterProgress | None = None

    def __call__(self, file: TableFile, target: Location, look_only: bool) -> Worked[AddedFile]:
        """As commits.FileWork has it."""
        stays = target.path == file.path
        with opened(file, stays and not look_only) as source:
            grown = check_size(file, source)
            if grown and not stays:  # by a tail that no version names, or none any more: a copy is of what the log has
                source, grown = source.until(file.size), False
            names = self.names.of(file, source.footer())
            request, skipped = self.names.request_for(self.request, file, names)
            request = dataclasses.replace(request, in_place=stays, dry_run=look_only, copies=False)
            if stays:
                request = self._as_tail(file, request)
            report = add_to(source, file, target, Run(request, self.workers, THROUGH_LOG, self.progress))
            had = source.size
        _rename(report, names, skipped)
        if look_only:
            return Worked(report, int(grown or report.planned_filters > 0))
        if not grown and not report.filters and report.bytes_after == had:
            return Worked(report)
        return Worked(report, report.bytes_after, footer_bytes(target))

    def _as_tail(self, file: TableFile, request: Request) -> Request:
        if "tail" not in request.form.placements:
            reason = f"can only grow at its end, where form {request.form.name} puts no filters; "
            raise TableFormatError(file, reason + parameter("spec", "final") + " does")
        return dataclasses.replace(request, placement="tail", append=self.append)


def _rename(report: AddedFile, names: FileNames, skipped: Sequence[SkippedColumn]) -> None:
    """Give columns the table's names."""
    shown = names.shown
    report.columns = [shown.get(name, name) for name in report.columns]
    report.planned = {shown.get(name, name): n for name, n in report.planned.items()}
    report.filters = [dataclasses.replace(one, column=shown.get(one.column, one.column)) for one in report.filters]
    renamed = [dataclasses.replace(one, column=shown.get(one.column, one.column)) for one in report.skipped]
    report.skipped = [*renamed, *skipped]
