"""Filters for all files of a source; for those of a table, by the names that the table has for its columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from parquet_bloom.edit.add import AddToFile, add_to
from parquet_bloom.edit.changeable import Changeable, ChangeableTable
from parquet_bloom.edit.plan import (
    CONSTANT,
    HAS_FILTER,
    LACKS,
    NO_VALUE,
    FilterProgress,
    Request,
    Run,
    SkippedColumn,
    TableColumns,
    plan_columns,
    plan_file,
    rates_of,
)
from parquet_bloom.edit.reports import AddedFile, AddedFilter, AddReport
from parquet_bloom.edit.table_commit import (
    THROUGH_LOG,
    FileOutcome,
    FileWork,
    check_size,
    footer_bytes,
)
from parquet_bloom.errors import (
    DamagedFileError,
    FilterFormatError,
    ParquetBloomError,
    TableFormatError,
    UnknownFilterError,
    parameter,
)
from parquet_bloom.filters.stored import StoredFilters
from parquet_bloom.format.filters import BloomFilter
from parquet_bloom.format.footer import ChunkKey
from parquet_bloom.format.forms import FINAL, Sizing, is_sized
from parquet_bloom.format.provenance import all_ranges
from parquet_bloom.format.schema import Leaf, select_leaves
from parquet_bloom.output.recovery import open_for_change
from parquet_bloom.source.snapshot import Snapshot, Table, TableFile
from parquet_bloom.source.view import FileNames
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location, in_order
from parquet_bloom.storage.workers import Meter, ProgressCallback, WorkerSets, processors

if TYPE_CHECKING:
    from parquet_bloom.source.history import FilterOptions


# --- filters behind the logged size ---------------------------------------------------------------
#
# Filters of a tail that lies behind the size which the log names: whether they are what an `add` would give.


@dataclass(frozen=True, slots=True)
class UncommittedTail:
    """Filters behind the logged size that a commit can add, and the columns of the request, by their index."""

    filters: list[AddedFilter]
    columns: list[int]


def matching_tail(whole: OpenFile, logged: OpenFile, run: Run) -> UncommittedTail | None:
    """The filters behind the logged size, if the request wants each of them, at its size; else None.

    whole, logged  the file, and as it was when it had the logged size
    Where it lacks some that were asked for these can go behind it. Raises as plan.plan_file.
    """
    if run.request.replace or run.request.page_index:
        return None
    # The tail must only add: every filter before it is at the same place after it.
    had, has = all_ranges(logged.footer()), all_ranges(whole.footer())
    more = has.keys() - had.keys()
    if not more or any(has.get(key) != place for key, place in had.items()):
        return None
    # And add nothing that the request does not want.
    plan = plan_file(logged, run)
    if not more <= plan.sizings.keys():
        return None
    filters = _filters_of_size(whole, {key: plan.sizings[key] for key in sorted(more)})
    return None if filters is None else UncommittedTail(filters, plan.columns)


def _filters_of_size(whole: OpenFile, sizings: Mapping[ChunkKey, Sizing]) -> list[AddedFilter] | None:
    stored, leaves = StoredFilters(whole), whole.footer().leaves
    filters = []
    for (group, column), sizing in sizings.items():
        found = stored.of(group, leaves[column])
        try:
            bloom = found[0].evidence() if len(found) == 1 else None
        except (DamagedFileError, FilterFormatError, UnknownFilterError):
            return None
        if not isinstance(bloom, BloomFilter) or bloom.spec != FINAL.name:
            return None
        if not is_sized(bloom.blocks, FINAL.rule, sizing):
            return None
        fpp, ndv = bloom.fpp, bloom.estimated_ndv
        length = found[0].length or bloom.num_bytes
        reached = sizing.is_reached(bloom.num_bytes, fpp, ndv)
        name = leaves[column].name
        filters.append(AddedFilter(group, name, found[0].offset, length, bloom.num_bytes, fpp, reached, ndv))
    return filters


# --- files that need no more filters --------------------------------------------------------------
#
# Files of a table that need no filter more: most of them, where `add` runs again and again.
#
#    by the log      an `add` of ours says that each file of it is complete; the file is as it was then   not opened
#    by its footer   of files in a store, many side by side                                               opened
#    otherwise       each file is opened when its turn comes, as always
#
# Where no columns are named, which ones a filter helps is found in the data, file by file: then only the log can say
# that an `add` which was asked for the same brought a file.


_FIRST_LOOKS = 32  # files of which one has all it needs, or the others are not looked at either


class CompleteFiles:
    """The files that a call need not process."""

    def __init__(self, table: Table, request: Request) -> None:
        self._table, self._request = table, request
        self._by_log: dict[tuple[str, int], AddedFile] | None = None  # by path and size
        self._seen: dict[tuple[str, int], AddedFile | None] = {}

    @property
    def unopened(self) -> int:
        """How many files were not opened."""
        return len(self._by_log or ())

    def of(self, snapshot: Snapshot, names: TableColumns) -> Mapping[str, AddedFile]:
        """The path of each such file of a snapshot, whose columns' names these are -> its report: nothing is added."""
        if self._request.replace or self._request.page_index or not snapshot.files:
            return {}
        if self._by_log is None:  # once: a file that keeps its path and its size stays as it is
            self._by_log = self._vouched_for(snapshot, names)
        by_log = self._by_log
        if self._request.columns is not None:
            stored = [file for file in snapshot.files if not file.is_local and (file.path, file.size) not in by_log]
            self._read_footers(names, stored)
        keys = {file.path: (file.path, file.size) for file in snapshot.files}
        known = {path: by_log.get(key) or self._seen.get(key) for path, key in keys.items()}
        return {path: report for path, report in known.items() if report is not None}

    def _vouched_for(self, snapshot: Snapshot, names: TableColumns) -> dict[tuple[str, int], AddedFile]:
        try:
            history = self._table.history(snapshot)
        except ParquetBloomError:  # of what is older than the snapshot: then the files tell
            return {}
        # With named columns a file is settled if the log says that these are complete. Without, the columns were chosen
        # by the data, and only an equal request (`choice`) would choose the same.
        promised = history.promised()
        files = [file for file in snapshot.files if file.size and file.path in promised]
        skipped: list[SkippedColumn] = []
        if choice := self._request.choice:
            whole = [file for file in files if promised[file.path].choice == choice]
        else:
            wanted = [leaf.name for leaf in select_leaves(names.leaves, self._request.columns, self._request.exclude)]
            skipped = [SkippedColumn(name, None, HAS_FILTER) for name in wanted]
            whole = [file for file in files if promised[file.path].complete.issuperset(wanted)]
        return {(file.path, file.size): self._nothing(file, file.size, skipped) for file in whole}

    def _read_footers(self, names: TableColumns, files: Sequence[TableFile]) -> None:
        """Read the footers of files in a store, side by side; a file that cannot be read waits for its turn.

        Where none of the first has all it needs, as in a table that is new to us, the others are left for theirs.
        """
        unseen = {(file.path, file.size): file for file in files if (file.path, file.size) not in self._seen}
        looks = in_order(lambda file: self._report_of(names, file), unseen.values(), _FIRST_LOOKS)
        for n, (key, look) in enumerate(zip(unseen, looks, strict=True), 1):
            try:
                self._seen[key] = look()
            except ParquetBloomError:
                self._seen[key] = None
            if n == _FIRST_LOOKS and not any(self._seen[key] for key in unseen if key in self._seen):
                self._seen |= dict.fromkeys(unseen.keys() - self._seen.keys())
                return

    def _report_of(self, names: TableColumns, file: TableFile) -> AddedFile | None:
        with OpenFile(file) as source:
            if check_size(file, source):
                return None  # a tail lies behind what the log has
            here = names.of(file, source.footer())
            request, skipped = names.request_for(self._request, file, here)
            found = plan_columns(source.footer(), request)
            if found.sizings:
                return None
            skipped += [replace(one, column=here.shown.get(one.column, one.column)) for one in found.skipped]
            report = self._nothing(file, source.size, skipped, source.footer().n_row_groups)
            report.bytes_travelled = source.bytes_read
            return report

    def _nothing(self, file: TableFile, size: int, skipped: Sequence[SkippedColumn], row_groups: int = 0) -> AddedFile:
        report = AddedFile(source=str(file), output=str(file), row_groups=row_groups, columns=[], bytes_before=size)
        report.bytes_after = 0 if self._request.how.dry_run else size
        report.skipped, report.dry_run, report.remote = list(skipped), self._request.how.dry_run, not file.is_local
        return report


# --- all files of a source ------------------------------------------------------------------------


def add_to_source(to: Changeable, request: Request, progress: ProgressCallback | None = None) -> AddReport:
    """Add filters to files, or to those of a table that lack them. Raises as add_filters."""
    snapshot = to.snapshot()
    request, notes = request_for_source(snapshot, request)
    meter = Meter(progress, snapshot.files, unit="filters")

    def report_filters(path: str, done: int, parts: int) -> None:
        meter.part(done, parts)

    with WorkerSets(request.threads or processors()) as sets:
        if not isinstance(to, ChangeableTable):
            add = AddToFile(request, sets, to.tables, report_filters)
            changed = to.change(snapshot, lambda _: add, meter)
            return AddReport(changed.files, changed.failed, [*to.notes, *notes, *changed.notes], changed.commits)
        complete, append = CompleteFiles(to.table, request), to.how.append

        def work_on(one: Snapshot) -> FileWork[AddedFile]:
            columns = TableColumns(one)
            return _skipping(complete.of(one, columns), AddToTableFile(columns, request, sets, append, report_filters))

        changed = to.change(snapshot, work_on, meter)
    if complete.unopened:
        some = f"{complete.unopened:,} of {len(changed.files) + len(changed.failed):,} files were not opened"
        all_of = "what such an `add` gives" if request.columns is None else "all of these filters"
        notes.append(f"{some}: by the log, the commits of ours that brought them gave them {all_of}")
    return AddReport(changed.files, changed.failed, [*to.notes, *notes, *changed.notes], changed.commits)


def _skipping(settled: Mapping[str, AddedFile], add: FileWork[AddedFile]) -> FileWork[AddedFile]:
    """The work of all files but those that need nothing."""

    def work(file: TableFile, target: Location, look_only: bool, /) -> FileOutcome[AddedFile]:
        report = settled.get(file.path)
        return add(file, target, look_only) if report is None else FileOutcome(report, begun=False)

    return work


def request_for_source(snapshot: Snapshot, request: Request) -> tuple[Request, list[str]]:
    """The request completed by the properties of a table, and notes on that."""
    request, notes = _with_settings(request, snapshot)
    if snapshot.has_log:
        TableColumns(snapshot).check(request)
    return request, notes


def _with_settings(request: Request, snapshot: Snapshot) -> tuple[Request, list[str]]:
    """The request with the table's settings where the caller says nothing."""
    settings = snapshot.filter_settings
    if request.columns is not None or not settings.get("columns"):
        return request, []
    names = TableColumns(snapshot)
    rates_asked = _setting(snapshot, "fpp") or {}
    leaves = {name: names.leaf_of_setting(name) for name in [*settings["columns"], *rates_asked]}
    known = {name: leaf for name, leaf in leaves.items() if leaf is not None and request.form.refusal(leaf) is None}
    columns = [known[name].name for name in settings["columns"] if name in known]
    rates = {known[name].name: rate for name, rate in rates_asked.items() if name in known}
    most = _setting(snapshot, "max_bytes") if request.max_bytes is None else None
    notes = [f"the table's properties ask for filters on {', '.join(columns) or 'no column'}"]
    notes += [
        f"they ask for one on {name} too, {_refusal(leaves[name])}" for name in settings["columns"] if name not in known
    ]
    notes += [f"of them {text}" for text in settings.get("passed_over", [])]
    return request.with_settings(columns, rates or None, most or None), notes


def _setting(snapshot: Snapshot, key: str) -> Any:
    """One setting; None where there is none. Raises TableFormatError for one that makes no sense."""
    if reason := snapshot.filter_settings.get("wrong", {}).get(key):
        raise TableFormatError(snapshot.table, reason)
    return snapshot.filter_settings.get(key)


def _refusal(leaf: Leaf | None) -> str:
    return "which is no column" if leaf is None else f"which can have none ({leaf.type_name})"


@dataclass(frozen=True)
class AddToTableFile:
    """Adds filters to one file: to a copy that takes its place, or as a tail behind it."""

    names: TableColumns
    request: Request
    sets: WorkerSets
    append: bool = False
    progress: FilterProgress | None = None

    def __call__(self, file: TableFile, target: Location, look_only: bool) -> FileOutcome[AddedFile]:
        """As edit.table_commit.FileWork has it."""
        stays = target.path == file.path
        with self.sets.taken() as workers, open_for_change(file, stays and not look_only) as whole:
            # Behind what the log has can lie a tail that no version names, or none any more: it is no part of a copy.
            logged = whole.until(file.size) if check_size(file, whole) else whole
            names = self.names.of(file, logged.footer())
            request, skipped = self.names.request_for(self.request, file, names)
            request = dataclasses.replace(request.written(in_place=stays, dry_run=look_only), copies=False)
            if stays:
                request = self._as_tail(file, request)
            run = Run(request, workers, THROUGH_LOG, self.progress)
            # Three cases: a copy of the logged part; a tail behind the file; and a file that has a tail already, whose
            # commit did not land, and whose filters may be the wanted ones.
            if stays and logged is not whole:
                report = _add_behind(whole, logged, file, target, run)
            else:
                report = add_to(logged, file, target, run)
            had = logged.size
        _rename(report, names, skipped)
        planned = report.planned_filters or report.offset_indexes or report.column_indexes
        if not (planned if look_only else report.filters or report.bytes_after != had):
            report.output = report.source  # no other file was made
            return FileOutcome(report)
        if look_only:
            return FileOutcome(report, 1)  # any size but 0: it would get a new version
        columns = frozenset(one.column for one in report.filters)
        options = {name: self._options[name] for name in columns if name in self._options}
        return FileOutcome(
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
        """The options of each column's filters."""
        from parquet_bloom.source.history import FilterOptions  # nothing is loaded for it where files are changed

        request, form = self.request, self.request.form
        rates = rates_of(self.names.leaves, request.fpp, form.fpp)
        most = request.bitset_bytes if request.bitset_bytes != form.max_bytes else None
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
            raise TableFormatError(file, reason + parameter("form", "final") + " does")
        return dataclasses.replace(request.written(append=self.append), placement="tail")


def _add_behind(whole: OpenFile, logged: OpenFile, file: TableFile, target: Location, run: Run) -> AddedFile:
    """Add to a file with a tail behind its logged size: a tail with the wanted filters is used, any other ignored."""
    left = matching_tail(whole, logged, run)
    if left is None:
        return add_to(logged, file, target, dataclasses.replace(run, whole=whole))
    report = add_to(whole, file, target, run, columns=left.columns)
    report.take_tail(left.filters, logged.size)
    return report


def _rename(report: AddedFile, names: FileNames, skipped: Sequence[SkippedColumn]) -> None:
    """Give columns the table's names."""
    shown = names.shown
    report.columns = [shown.get(name, name) for name in report.columns]
    report.planned = {shown.get(name, name): n for name, n in report.planned.items()}
    report.filters = [dataclasses.replace(one, column=shown.get(one.column, one.column)) for one in report.filters]
    renamed = [dataclasses.replace(one, column=shown.get(one.column, one.column)) for one in report.skipped]
    report.skipped = [*renamed, *skipped]
