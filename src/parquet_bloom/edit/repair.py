"""Repair: a footer with right statistics behind a file whose statistics are wrong; every other byte stays.

    [ PAR1 | body | footer | PAR1 ][ footer' | PAR1 ]
                                  ^ the file as it was: a tail without filters (filters.tails)

Of a column chunk with a wrong statistic all that the footer states is written right: null_count, the bounds, and what
counts there are. Floats of a chunk with a NaN get no bounds: engines for which NaN is the greatest value would miss
rows by right ones, too. All row groups of such a column get bounds, those too that had none; where one of them cannot
have any, none has. A page index that is wrong, or has bounds beside a NaN, is named no more. A file without a wrong
statistic stays as it is, to the byte.

The new footer says that its statistics were compared, with a proof (format.repairs), so they are believed again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from parquet_bloom._thrift.parquet.ttypes import Statistics
from parquet_bloom._version import __version__
from parquet_bloom.edit.changeable import Changeable, ChangeableTable
from parquet_bloom.edit.finish import check_footer_size, check_written, write_footer
from parquet_bloom.edit.remove import write_beginning
from parquet_bloom.edit.reports import FileReport, TableCommit
from parquet_bloom.edit.table_commit import THROUGH_LOG, FileOutcome, FileWork, check_size, footer_bytes
from parquet_bloom.errors import FooterError, LayoutError, RequestError, TableFormatError, parameter
from parquet_bloom.filters.logged_statistics import LOG, LoggedStatistics
from parquet_bloom.filters.tails import tail_of
from parquet_bloom.filters.true_statistics import ChunkStatistics
from parquet_bloom.filters.wrong_statistics import (
    Compared,
    WrongStatistic,
    compare_again,
    compare_statistics,
    groups_without_bounds,
    has_bounds,
    right_nulls,
)
from parquet_bloom.format.compact_tree import StatisticsId
from parquet_bloom.format.edits import FooterEdit, Moves, StatisticsChanges, edit_footer, index_changes
from parquet_bloom.format.footer import ChunkKey, Footer, IndexKind, decode_footer
from parquet_bloom.format.outline import outline_of
from parquet_bloom.format.provenance import all_ranges, repair_tails, rewritten, tail_facts
from parquet_bloom.format.repairs import plain_bound, repair_pair
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import has_order, is_signed_number
from parquet_bloom.output.draft import FileSink
from parquet_bloom.output.recovery import open_for_change
from parquet_bloom.output.target import Target, Writing
from parquet_bloom.source.results import Result
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.view import TableNames
from parquet_bloom.storage.display import line_of, quantity
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile, FailedFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import Meter, ProgressCallback

# --- reports --------------------------------------------------------------------------------------


@dataclass(slots=True, repr=False)
class RepairedFile(FileReport):
    """The report of `repair` on one file, or of its dry run.

    wrong      the statistics that contradicted the values, of a table's file those of the log too; with undo there are
               none
    chunks     how many column chunks were compared
    mended     of these, how many have other statistics since, or lost a page index
    mended_log  how many columns have other statistics in the table's log since
    notes, unchecked  as FileStatistics has them
    undone     whether a repair was taken off
    """

    source: str
    output: str
    bytes_before: int
    bytes_after: int
    wrong: list[WrongStatistic] = field(default_factory=list)
    chunks: int = 0
    mended: int = 0
    mended_log: int = 0
    notes: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    undone: bool = False
    seconds: float = 0.0
    dry_run: bool = False


@dataclass(slots=True, repr=False)
class RepairReport(Result):
    """The report of `repair`: one a file, and the files among several that failed.

    notes  of tables whose files were changed, as was forced: which readers fail on them
    commits  to a table that was named, in order
    """

    files: list[RepairedFile]
    failed: list[FailedFile]
    notes: list[str] = field(default_factory=list)
    commits: list[TableCommit] = field(default_factory=list)

    def __repr__(self) -> str:
        wrong = sum(len(file.wrong) for file in self.files)
        dry = ["dry run"] if any(file.dry_run for file in self.files) else []
        return line_of(self, f"{quantity(wrong, 'statistics')} wrong" if wrong else "none wrong", *dry)


# --- one file -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairRequest:
    """The work of `repair` on each of several files, as edit.table_commit.FileWork has it.

    undo    take off the footer that a repair wrote, if nothing was added since
    how     the new version is written
    tables  that must not be changed
    meter   is told of the column chunks
    """

    undo: bool = False
    how: Writing = field(default_factory=Writing)
    tables: Tables = field(default_factory=Tables)
    meter: Meter | None = None

    def __post_init__(self) -> None:
        if self.how.append and not self.how.in_place:
            raise RequestError(parameter("append", True) + " is for " + parameter("in_place", True))

    def __call__(self, file: DataFile, target: Location, look_only: bool) -> FileOutcome[RepairedFile]:
        """Repair one file: its rename is its commit. Raises as repair does for one file."""
        started = time.perf_counter()
        with open_for_change(file, self.how.in_place and not self.how.dry_run) as source:
            report = self._undo(source, target) if self.undo else self._repair(source, target)
        report.dry_run, report.seconds = self.how.dry_run, time.perf_counter() - started
        report.remote = source.is_remote or not target.is_local
        return FileOutcome(report)

    def _undo(self, source: OpenFile, target: Location) -> RepairedFile:
        footer, tail, to = source.footer(), tail_of(source), Target(target, self.how)
        undone = tail is not None and tail.repairs and not tail.changed
        if not undone and repair_tails(footer):
            reason: str = "has filters since its repair, or a footer of another program; remove the filters first"
            if tail is not None and tail.repairs and not all_ranges(footer).keys() & tail.changed:
                reason = "lost filters since its repair; remove_filters undoes both with " + parameter("last", True)
            raise LayoutError(source.path, reason)
        report = RepairedFile(source.path, str(target), source.size, source.size, undone=undone)
        if undone or not self.how.in_place:
            to.check(source.location, self.tables)
        if tail is not None and undone:
            report.bytes_after = tail.size
        if self.how.dry_run:
            return report
        if tail is not None and undone:
            report.add_transfer(write_beginning(source, source.until(tail.size), to), source)
        elif not self.how.in_place:
            report.add_transfer(to.copy(source), source)
        return report

    def step(self, footer: Footer) -> Callable[[int], object]:
        """A function that reports to the meter how many column chunks of a file are done."""
        meter, parts = self.meter, footer.n_row_groups * len(footer.leaves)
        return (lambda done: None) if meter is None else (lambda done: meter.part(done, parts))

    def _repair(self, source: OpenFile, target: Location) -> RepairedFile:
        footer = source.footer()
        with source.as_one_version():
            compared = compare_statistics(source, footer.leaves, range(footer.n_row_groups), self.step(footer))
        return self.mend(source, target, compared, footer.leaves)

    def mend(self, source: OpenFile, target: Location, compared: Compared, leaves: Sequence[Leaf]) -> RepairedFile:
        """Write the statistics of one file right that was compared. leaves: with the names of the verdicts."""
        footer, to = source.footer(), Target(target, self.how)
        found = compared.statistics
        report = RepairedFile(source.path, str(target), source.size, source.size, found.wrong, found.chunks)
        report.notes, report.unchecked = found.notes, found.unchecked
        wrong = [one for one in found.wrong if not one.statistic.startswith(LOG)]
        if wrong or not self.how.in_place:
            to.check(source.location, self.tables)
        for one in wrong:
            if one.statistic == "num_values":
                raise LayoutError(source.path, f"{one.text}: no footer mends that; write the file anew")
        if wrong:
            decode_rest(source, compared, leaves)
            edit = mended(footer, compared, leaves)
            report.mended = len(edit.statistics.keys() | edit.indexes.keys())
            data = self._new_footer(source, footer, compared, edit)
            report.bytes_after = source.size + len(data) + 8
            if not self.how.dry_run:
                self._write(source, to, data, compared, report)
        elif not self.how.in_place and not self.how.dry_run:
            report.add_transfer(to.copy(source), source)
        return report

    def _new_footer(self, source: OpenFile, footer: Footer, compared: Compared, edit: FooterEdit) -> bytes:
        try:
            repaired = decode_footer(edit_footer(footer.data, edit), source.size)
            facts = tail_facts(source.size, footer)
            pair = repair_pair(__version__, outline_of(repaired), compared.unchecked, facts)
            data = edit_footer(repaired.data, FooterEdit(append=[pair]))
        except FooterError as error:
            raise LayoutError(source.path, f"the footer cannot be edited: {error}") from error
        check_footer_size(source, data)
        return data

    def _write(self, source: OpenFile, to: Target, data: bytes, compared: Compared, report: RepairedFile) -> None:
        """Write the old file and a new footer, read back and compared before it counts."""
        with to.begin(source, to.disk_needed(source, len(data))) as new:
            if not new.clone(source):
                FileSink(new, source).copy(0, source.size)
            new.at = source.size
            write_footer(new, data)
            with new.reopen() as again:
                check_written(source, again, Moves())
                tail = tail_of(again)
                if tail is None or tail.size != source.size or not tail.repairs:
                    reason = "nothing was changed: the file could not be brought back byte for byte"
                    raise LayoutError(source.path, reason)
                if wrong := compare_again(again, compared):
                    raise LayoutError(source.path, f"nothing was changed, the new footer is wrong: {wrong[0].text}")
            new.commit(source.check_unchanged)
        report.add_transfer(new.transfer, source)


# --- the edit -------------------------------------------------------------------------------------


def mended(footer: Footer, compared: Compared, leaves: Sequence[Leaf]) -> FooterEdit:
    """The edit that makes statistics right. leaves: of the file, with the names of the verdicts."""
    statistics: dict[ChunkKey, StatisticsChanges] = {}
    indexes: dict[IndexKind, dict[ChunkKey, None]] = {kind: {} for kind in IndexKind}
    num_rows = None
    columns = {leaf.name: leaf.index for leaf in leaves}
    for one in compared.statistics.wrong:
        if one.statistic.startswith(LOG):
            continue
        if one.row_group is None:
            num_rows = sum(footer.rows)
            continue
        key = one.row_group, columns[one.column]
        if one.statistic.startswith("offset_index"):
            indexes[IndexKind.OFFSET][key] = indexes[IndexKind.COLUMN][key] = None
        elif one.statistic.startswith("column_index"):
            indexes[IndexKind.COLUMN][key] = None
        else:
            statistics[key] = {}
    known = compared.truth
    for key, truth in known.items():
        stated = footer.meta(*key).statistics
        if truth.nans and has_bounds(stated):
            statistics[key] = {}
        if truth.nans and footer.chunk(*key).column_index_offset:
            indexes[IndexKind.COLUMN][key] = None
    # Where one row group has bounds of a column and another none, DataFusion 55 takes those for bounds of the file. So
    # of a column that is mended all row groups have them, or none has.
    for column in {key[1] for key in statistics} | _partly_bounded(footer):
        keys = [(group, column) for group in range(footer.n_row_groups)]
        bounds = {key: true_bounds(footer, key, known[key]) for key in keys if key in known}
        bare = any(bounds.get(key) is None and (key not in known or known[key].values) for key in keys)
        for key, both in zip(keys, footer.bounds_stated(column), strict=True):
            if key not in known or (known[key].domain is None and key not in statistics):
                continue
            has_all = footer.column_chunks(column).null_counts[key[0]] is not None and (both == 3 or not bounds[key])
            if key in statistics or (both if bare else not has_all):
                statistics[key] = _changes(footer, key, known[key], None if bare else bounds[key])
    records: dict[int, str | None] = {}
    if any(indexes.values()):  # what the file says of the others is still believed then, so `remove` takes them
        there = {kind: footer.index_ranges(kind) for kind in IndexKind}
        staying = {kind: {k: at for k, at in there[kind].items() if k not in indexes[kind]} for kind in IndexKind}
        records, _ = rewritten(footer, all_ranges(footer), [], keep_tails=True, index_ranges=staying)
    return FooterEdit(key_values=records, statistics=statistics, indexes=index_changes(indexes), num_rows=num_rows)


def true_bounds(footer: Footer, key: ChunkKey, truth: ChunkStatistics) -> tuple[bytes, bytes] | None:
    """The bounds that a chunk may state; None beside a NaN, without a value, an order, and where they are too long."""
    leaf, stated = footer.leaves[key[1]], footer.meta(*key).statistics or Statistics()
    has_field = (
        is_signed_number(leaf) or has_order(footer, leaf) or (stated.min_value, stated.max_value) != (None, None)
    )
    if truth.low is None or truth.nans or not truth.has_bounds or not has_field:
        return None
    low, high = plain_bound(truth.low, leaf, True), plain_bound(truth.high, leaf, False)
    return None if low is None or high is None else (low, high)


def _partly_bounded(footer: Footer) -> set[int]:
    return {leaf.index for leaf in footer.leaves if groups_without_bounds(footer, leaf)}


def decode_rest(source: OpenFile, compared: Compared, leaves: Sequence[Leaf]) -> None:
    """Find the truth of chunks that state nothing, in columns that are to be mended."""
    footer = source.footer()
    wrong = {one.column for one in compared.statistics.wrong}
    for leaf in leaves:
        rest = [group for group in range(footer.n_row_groups) if (group, leaf.index) not in compared.truth]
        mends = leaf.name in wrong or groups_without_bounds(footer, leaf)
        if rest and mends and leaf.index not in compared.unchecked:
            compared.truth.update(compare_statistics(source, [leaf], rest, also=[leaf.index]).truth)


def _changes(
    footer: Footer, key: ChunkKey, truth: ChunkStatistics, bounds: tuple[bytes, bytes] | None
) -> StatisticsChanges:
    """The fields of one chunk's Statistics as they should be."""
    meta, leaf = footer.meta(*key), footer.leaves[key[1]]
    stated = meta.statistics or Statistics()
    changes: dict[int, int | bytes | None] = {}
    nulls = meta.num_values - truth.values
    if stated.null_count is None or right_nulls(leaf, meta.num_values, truth, stated.null_count) is not None:
        changes[StatisticsId.null_count] = nulls
    if stated.distinct_count is not None:
        changes[StatisticsId.distinct_count] = stated.distinct_count if truth.distinct is None else truth.distinct
    if stated.nan_count is not None and leaf.float_bits:
        changes[StatisticsId.nan_count] = truth.nans
    if truth.domain is None:
        return changes
    low, high = bounds or (None, None)
    signed, ordered = is_signed_number(leaf), has_order(footer, leaf)
    if ordered or stated.min_value is not None or stated.max_value is not None:
        changes |= {StatisticsId.min_value: low, StatisticsId.max_value: high}
        changes |= {StatisticsId.is_min_value_exact: None, StatisticsId.is_max_value_exact: None}
    # Of what is no signed number the old fields mean nothing, and some reader may take them for bounds.
    for number, was, bound in ((StatisticsId.min, stated.min, low), (StatisticsId.max, stated.max, high)):
        if was is not None or (signed and not ordered):
            changes[number] = bound if signed else None
    return changes


# --- all files of a source ------------------------------------------------------------------------


def repair_source(to: Changeable, undo: bool, how: Writing, progress: ProgressCallback | None = None) -> RepairReport:
    """Repair files, or those of a table and what its log states of them. Raises as change.repair."""
    snapshot = to.snapshot()
    meter = Meter(progress, snapshot.files, unit="column chunks")
    table = isinstance(to, ChangeableTable)  # whose commit says which of its files grow
    request = RepairRequest(undo=undo, how=replace(how, append=how.append and not table), tables=to.tables, meter=meter)

    def work_on(one: Snapshot) -> FileWork[RepairedFile]:
        if isinstance(to, ChangeableTable):
            return RepairTableFile(TableNames(one), LoggedStatistics(one, to.table.stated(one)), request, to.how.append)
        return request

    changed = to.change(snapshot, work_on, meter)
    return RepairReport(changed.files, changed.failed, [*to.notes, *changed.notes], changed.commits)


@dataclass(frozen=True, slots=True)
class RepairTableFile:
    """Repairs one file, and what the table's log states of it.

    A file with a wrong statistic gets a new version. Where the log alone is wrong the file stays as it is.
    """

    names: TableNames
    log: LoggedStatistics
    request: RepairRequest
    append: bool = False

    def __call__(self, file: TableFile, target: Location, look_only: bool) -> FileOutcome[RepairedFile]:
        """As edit.table_commit.FileWork has it."""
        started, stays = time.perf_counter(), target.path == file.path
        with open_for_change(file, stays and not look_only) as whole:
            # Behind what the log has can lie a tail that no version names: it is no part of a copy. A file that keeps
            # its path keeps it, and the commit names it.
            logged = whole.until(file.size) if check_size(file, whole) else whole
            source = whole if stays else logged
            footer = source.footer()
            leaves = self.names.display_leaves(footer, file)
            found = self.log.compare(source, file, leaves, range(footer.n_row_groups), self.request.step(footer))
            for one in found.compared.statistics.wrong:
                if one.statistic == f"{LOG}num_rows":
                    raise TableFormatError(file, f"{one.text}: no repair mends that; write its rows into new files")
            how = replace(self.request.how, in_place=stays, append=stays and self.append, dry_run=look_only)
            request = replace(self.request, how=how, tables=THROUGH_LOG)
            truth = found.to_commit()
            if found.wrong_in_file:
                report = request.mend(source, target, found.compared, leaves)
            else:
                wanted = replace(how, in_place=True, dry_run=True)  # nothing is copied
                report = replace(request, how=wanted).mend(source, file, found.compared, leaves)
        report.mended_log = len(truth)
        report.bytes_before, report.dry_run = logged.size, self.request.how.dry_run
        report.seconds, report.remote = time.perf_counter() - started, not file.is_local
        if found.wrong_in_file or source.size != logged.size:
            size = 0 if look_only else footer_bytes(target)
            return FileOutcome(report, report.bytes_after, size, truth=truth)
        report.written, report.output = False, report.source
        if not found.lies:
            return FileOutcome(report)
        return FileOutcome(report, file.size, len(footer.data), truth=truth, log_only=True)
