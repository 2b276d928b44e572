"""Filters for the files of a table, by the names that the table has for its columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from parquet_bloom.edit.add import add_to
from parquet_bloom.edit.on_table.commits import CommitOptions, FileWork, Worked, change_table
from parquet_bloom.edit.on_table.files import THROUGH_LOG, check_size, footer_bytes
from parquet_bloom.edit.on_table.left import left_as_asked
from parquet_bloom.edit.on_table.names import CONSTANT, LACKS, FileNames, TableNames
from parquet_bloom.edit.on_table.settled import Settled
from parquet_bloom.edit.plan import (
    HAS_FILTER,
    NO_VALUE,
    FilterProgress,
    Request,
    Run,
    SkippedColumn,
    check_sizes,
    rates_of,
)
from parquet_bloom.edit.reports import AddedFile, AddReport
from parquet_bloom.errors import TableFormatError, parameter
from parquet_bloom.formats.metadata.schema import Leaf, select_leaves
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.workers import Workers, processors
from parquet_bloom.storage.writing.file_lock import opened
from parquet_bloom.tables.snapshot import Snapshot, Table, TableFile

if TYPE_CHECKING:
    from parquet_bloom.tables.history import FilterOptions

Arguments = Mapping[str, Any]  # of Request.checked


def add_on_table(
    table: Table, arguments: Arguments, how: CommitOptions, progress: ProgressCallback | None = None
) -> AddReport:
    """Add filters to the files of a table that lack them, and commit. Raises as add_filters does for a table."""
    snapshot, request, notes = asked_of(table, arguments)
    meter = Meter(progress, snapshot.files, unit="filters")
    settled = Settled(table, request)
    with Workers(request.threads or processors()) as workers:

        def work_on(one: Snapshot) -> FileWork[AddedFile]:
            names = TableNames(one)
            add = Adding(names, request, workers, how.append, lambda _, done, parts: meter.part(done, parts))
            return _but_for(settled.of(one, names), add)

        changed = change_table(table, snapshot, work_on, how, meter)
    if settled.unopened:
        some = f"{settled.unopened:,} of {len(changed.files) + len(changed.failed):,} files were not opened"
        all_of = "what such an `add` gives" if request.columns is None else "all of these filters"
        notes.append(f"{some}: by the log, the commits of ours that brought them gave them {all_of}")
    return AddReport(changed.files, changed.failed, [*notes, *changed.notes], changed.commits)


def _but_for(settled: Mapping[str, AddedFile], add: FileWork[AddedFile]) -> FileWork[AddedFile]:
    """The work of all files but those that need nothing."""

    def work(file: TableFile, target: Location, look_only: bool, /) -> Worked[AddedFile]:
        report = settled.get(file.path)
        return add(file, target, look_only) if report is None else Worked(report, begun=False)

    return work


def asked_of(table: Table, arguments: Arguments) -> tuple[Snapshot, Request, list[str]]:
    """A table as it is now, what its files get by arguments and its properties, and notes on that."""
    Request.checked(**arguments)  # before the log is read
    snapshot = table.snapshot(stored_only=True)
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
    wished_rates = _wish(snapshot, "fpp") or {}
    leaves = {name: names.wish(name) for name in [*wishes["columns"], *wished_rates]}
    known = {name: leaf for name, leaf in leaves.items() if leaf is not None and form.refusal(leaf) is None}
    given: dict[str, Any] = {"columns": [known[name].name for name in wishes["columns"] if name in known]}
    rates = {known[name].name: rate for name, rate in wished_rates.items() if name in known}
    if arguments.get("fpp") is None and rates:
        given["fpp"] = rates
    if arguments.get("max_bytes") is None and (most := _wish(snapshot, "max_bytes")):
        given["max_bytes"] = most
    notes = [f"the table's properties ask for filters on {', '.join(given['columns']) or 'no column'}"]
    notes += [
        f"they ask for one on {name} too, {_why_not(leaves[name])}" for name in wishes["columns"] if name not in known
    ]
    notes += [f"of them {text}" for text in wishes.get("passed_over", [])]
    return {**arguments, **given}, notes


def _wish(snapshot: Snapshot, key: str) -> Any:
    """One wish; None where there is none. Raises TableFormatError for one that cannot be meant."""
    if reason := snapshot.wishes.get("wrong", {}).get(key):
        raise TableFormatError(snapshot.table, reason)
    return snapshot.wishes.get(key)


def _why_not(leaf: Leaf | None) -> str:
    return "which is no column" if leaf is None else f"which can have none ({leaf.type_name})"


@dataclass(frozen=True)
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
        with opened(file, stays and not look_only) as whole:
            # Behind what the log has can lie a tail that no version names, or none any more: it is no part of a copy.
            logged = whole.until(file.size) if check_size(file, whole) else whole
            names = self.names.of(file, logged.footer())
            request, skipped = self.names.request_for(self.request, file, names)
            request = dataclasses.replace(request, in_place=stays, dry_run=look_only, copies=False)
            if stays:
                request = self._as_tail(file, request)
            run = Run(request, self.workers, THROUGH_LOG, self.progress)
            if stays and logged is not whole:
                report = _behind(whole, logged, file, target, run)
            else:
                report = add_to(logged, file, target, run)
            had = logged.size
        _rename(report, names, skipped)
        if not (report.planned_filters if look_only else report.filters or report.bytes_after != had):
            report.output = report.source  # no other file was made
            return Worked(report)
        if look_only:
            return Worked(report, 1)
        columns = frozenset(one.column for one in report.filters)
        options = {name: self._options[name] for name in columns if name in self._options}
        return Worked(
            report,
            report.bytes_after,
            footer_bytes(target),
            columns,
            self._complete(report),
            self.request.choice,
            options,
        )

    @cached_property
    def _options(self) -> Mapping[str, FilterOptions]:
        """What is asked of each column's filters."""
        from parquet_bloom.tables.history import FilterOptions  # nothing is loaded for it where files are changed

        request, form = self.request, self.request.form
        rates = rates_of(self.names.leaves, request.fpp, form.fpp)
        most = request.max_bytes if request.max_bytes != check_sizes(None, None, form) else None
        return {
            leaf.name: FilterOptions(form.name, rates.get(leaf.index, rates[-1]), most) for leaf in self.names.leaves
        }

    def _complete(self, report: AddedFile) -> frozenset[str]:
        """Columns that were named, less those of which some row group has no filter though it holds a value."""
        if self.request.columns is None:
            return frozenset()
        wanted = select_leaves(self.names.leaves, self.request.columns, self.request.exclude)
        lacking = {one.column for one in report.skipped if one.reason not in (HAS_FILTER, NO_VALUE, LACKS, CONSTANT)}
        return frozenset(leaf.name for leaf in wanted) - lacking

    def _as_tail(self, file: TableFile, request: Request) -> Request:
        if "tail" not in request.form.placements:
            reason = f"can only grow at its end, where form {request.form.name} puts no filters; "
            raise TableFormatError(file, reason + parameter("spec", "final") + " does")
        return dataclasses.replace(request, placement="tail", append=self.append)


def _behind(whole: Source, logged: Source, file: TableFile, target: Location, run: Run) -> AddedFile:
    """Add to a file with a tail behind its logged size: that is taken up if it has what is asked, else passed over."""
    left = left_as_asked(whole, logged, run)
    if left is None:
        return add_to(logged, file, target, dataclasses.replace(run, whole=whole))
    report = add_to(whole, file, target, run, columns=left.columns)
    report.take_left(left.filters, logged.size)
    return report


def _rename(report: AddedFile, names: FileNames, skipped: Sequence[SkippedColumn]) -> None:
    """Give columns the table's names."""
    shown = names.shown
    report.columns = [shown.get(name, name) for name in report.columns]
    report.planned = {shown.get(name, name): n for name, n in report.planned.items()}
    report.filters = [dataclasses.replace(one, column=shown.get(one.column, one.column)) for one in report.filters]
    renamed = [dataclasses.replace(one, column=shown.get(one.column, one.column)) for one in report.skipped]
    report.skipped = [*renamed, *skipped]
