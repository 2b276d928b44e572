"""Takes filters out again, of all forms: those that `add` added, and if it is requested those of any writer.

A filter is one that `add` added if the footer's provenance says so, and still matches it (format.provenance). Where it
does not, as in a file that another program wrote anew, nothing shows who added the filters: they stay, and are counted.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from parquet_bloom.edit.changeable import Changeable
from parquet_bloom.edit.finish import check_written, spans_of, write_footer
from parquet_bloom.edit.plan import TableColumns
from parquet_bloom.edit.reports import RemovedFile, RemoveReport
from parquet_bloom.edit.rewrite import Removal, plan_removal, removal_edit, write_body
from parquet_bloom.edit.table_commit import FileOutcome, FileWork, check_size, footer_bytes
from parquet_bloom.errors import FooterError, LayoutError, RequestError, TableFormatError, parameter
from parquet_bloom.filters.tails import Tail, older_footers, tails_of
from parquet_bloom.format.edits import Moves, edit_footer
from parquet_bloom.format.footer import ChunkKey, Footer
from parquet_bloom.format.footer_filters import footer_filters
from parquet_bloom.format.provenance import Indexes, all_ranges, our_indexes, read_entries
from parquet_bloom.format.schema import select_leaves
from parquet_bloom.output.draft import FileSink, Transfer
from parquet_bloom.output.recovery import open_for_change
from parquet_bloom.output.target import Target, Writing
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import Meter, ProgressCallback

# --- taking tails off -----------------------------------------------------------------------------
#
# Tails put behind a file, and taken off again: for `remove`, and for tables, whose logs name the sizes.


@dataclass(frozen=True, slots=True)
class WithoutTails:
    """A file without some of its tails.

    source   it, as if it ended before them
    tails    how many were left out
    gone     chunks whose filters went with them
    indexes  how many page indexes did
    holds    the byte before which nothing may be cut out, as older footers lie there; 0: there are none
    """

    source: OpenFile
    tails: int
    gone: frozenset[ChunkKey]
    indexes: int
    holds: int


def strip_tails(source: OpenFile, columns: Collection[int], last: bool, indexes: bool = False) -> WithoutTails:
    """Leave out tails of ours: all whose filters are of these columns alone, but none of `repair`; or the last one.

    indexes  whether page indexes may go, too; a tail that has some stays otherwise
    Raises LayoutError where it is the last one that is wanted, and filters were added after it.
    """
    has = all_ranges(source.footer())
    # Where every filter of the file goes, every tail may go. Some may have changed columns that have no filter today,
    # and these would stop the loop.
    if {column for _, column in has} <= set(columns):
        columns = range(len(source.footer().leaves))
    # From the newest tail backwards. The first that changed another column stays, and so does all before it.
    at, left_out = source, []
    repaired = 0
    for tail, before in tails_of(source):
        if tail.repairs and not last:  # the statistics before it are wrong
            repaired = tail.size
            break
        if last:
            _check_last(source, tail, has)
        elif not {column for _, column in tail.changed} <= set(columns) or (tail.indexes and not indexes):
            break
        at = before
        left_out.append(tail)
        if last:
            break
    gone = frozenset(key for tail in left_out for key in tail.changed if key in has)
    lost = sum(tail.indexes for tail in left_out)
    # Behind a repair that stays, filters may be cut out: no older footer lies there.
    return WithoutTails(at, len(left_out), gone, lost, repaired or (at.size if older_footers(at) else 0))


def _check_last(source: OpenFile, tail: Tail, has: Collection[ChunkKey]) -> None:
    if not {key for key in tail.changed if key in has} <= tail.chunks:
        reason = (
            "filters were added to it after its last tail; without " + parameter("last") + " all of them are removed"
        )
        raise LayoutError(source.path, reason)


def write_beginning(source: OpenFile, before: OpenFile, to: Target) -> Transfer:
    """Make the target the beginning of a file: where `how.append` says so by cutting off the file itself.

    source  the file; before  the same, as if it ended earlier
    """
    if to.how.append:
        to.cut_off(source, before.size)
        return Transfer()
    with to.begin(source, 0) as new:
        if not new.clone(before):
            new.copy_from(0, source, 0, before.size)
        new.at = before.size
        with new.reopen() as again:
            check_written(before, again, Moves())
        new.commit(source.check_unchanged)
    return new.transfer


# --- one file -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRequest:
    """The filters to remove: fields as remove_filters has them.

    all_writers  implied where columns are named
    indexes      whether page indexes of ours go, too: where no columns are named or left out
    how          the new version is written
    tables       that must not be changed
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    last: bool = False
    all_writers: bool = False
    indexes: bool = False
    how: Writing = field(default_factory=Writing)
    tables: Tables = field(default_factory=Tables)

    def __post_init__(self) -> None:
        if self.last and (self.columns is not None or self.exclude is not None):
            raise RequestError(parameter("last", True) + " takes off a whole tail; name no columns")
        if self.last and self.all_writers:
            both = parameter("last", True) + " and " + parameter("all_writers", True)
            raise RequestError(both + " exclude each other: a tail has filters of this package only")
        if self.how.append and not self.how.in_place:
            raise RequestError(parameter("append", True) + " is for " + parameter("in_place", True))

    def chunks_of(self, footer: Footer, wanted: Collection[int]) -> tuple[list[ChunkKey], int]:
        """The chunks of these columns whose filter is to go, of any form, and how many others have one that stays."""
        stored = footer_filters(footer)
        # Offsets of 0 and below point at nothing, but leave with the rest.
        there = [
            (i, j)
            for i, j, c in footer.chunks()
            if j in wanted and (c.meta_data.bloom_filter_offset is not None or (i, j) in stored)
        ]
        if self.all_writers or self.columns is not None:
            return there, 0
        # A chunk may have a filter in the body and one in the footer: both leave together, and a record speaks of one.
        twice = footer.filter_ranges.keys() & stored.keys()
        ours = {key for entry in read_entries(footer) for key in entry.chunks} - twice
        going = [key for key in there if key in ours]
        return going, len(there) - len(going)


@dataclass(frozen=True, slots=True)
class RemoveFromFile:
    """The work of `remove` on each of several files, as edit.table_commit.FileWork has it."""

    request: RemoveRequest

    def __call__(self, file: DataFile, target: Location, look_only: bool) -> FileOutcome[RemovedFile]:
        """Take filters out of one file: its rename is its commit. Raises as remove_filters does for one file."""
        with open_for_change(file, self.request.how.in_place and not self.request.how.dry_run) as source:
            return FileOutcome(remove_from(source, target, self.request))


def remove_from(source: OpenFile, target: Location, request: RemoveRequest) -> RemovedFile:
    """Take filters out of one file that is open. Raises as remove_filters does for one file."""
    started = time.perf_counter()
    how, in_place, last = request.how, request.how.in_place, request.last
    to = Target(target, how)
    wanted = {leaf.index for leaf in select_leaves(source.footer().leaves, request.columns, request.exclude)}
    # First the tails that go as a whole: `before` is the file as if it ended before them. Then the filters that this
    # file still has.
    without = strip_tails(source, wanted, last, request.indexes)
    before = without.source
    footer = before.footer()
    chunks, others = ([], 0) if last else request.chunks_of(footer, wanted)
    indexes = our_indexes(footer) if request.indexes and not last else {}
    count = sum(map(len, indexes.values()))
    gone = without.gone.union(chunks)
    names = [footer.leaves[j].name for j in sorted({j for _, j in gone})]
    report = RemovedFile(source.path, str(target), len(gone), names, 0, source.size, before.size)
    report.dry_run = how.dry_run
    report.remote = source.is_remote or not to.is_local
    report.tails, report.others, report.indexes = without.tails, others, without.indexes + count
    if chunks or count or without.tails or not in_place:
        to.check(source.location, request.tables)
    if (chunks or count) and how.append:
        what = "filters" if chunks else "page indexes"
        reason = f"has {what} that lie in no tail of its end, which only a new version can be without; leave out "
        raise LayoutError(source.path, reason + parameter("append"))
    # A filter in column metadata is a text of the footer; the others have bytes in the body, which are cut out if that
    # is safe. Older footers among these bytes are found by their offsets, so then no byte moves.
    in_body = [key for key in chunks if key in footer.filter_ranges]
    spans = dict.fromkeys(in_body) | spans_of(before, footer, in_body)
    starts = [span[0] for span in spans.values() if span is not None]
    starts += [footer.index_ranges(kind)[key][0] for kind, keys in indexes.items() for key in keys]
    stay = min(starts, default=without.holds) < without.holds
    removal = Removal((), tuple(spans)) if stay else plan_removal(source.path, footer, spans, how.force, indexes)
    report.bytes_stay = len(removal.stays)
    if how.dry_run:
        return report
    if chunks or count:
        transfer, report.bytes_after = _write_without(source, without, chunks, indexes, removal, to)
        report.add_transfer(transfer, source)
    elif without.tails:
        report.add_transfer(write_beginning(source, before, to), source)
    elif not in_place:
        report.add_transfer(to.copy(source), source)
    report.seconds = time.perf_counter() - started
    return report


def _write_without(
    source: OpenFile,
    without: WithoutTails,
    chunks: Collection[ChunkKey],
    indexes: Indexes,
    removal: Removal,
    to: Target,
) -> tuple[Transfer, int]:
    """Write a new version without filters and page indexes of some chunks, and return what it moved and its size."""
    before = without.source
    footer = before.footer()
    with to.begin(before, to.disk_needed(before, len(footer.data))) as new:
        sink = FileSink(new, before)
        body = write_body(removal.events, footer.start, before.read, lambda _: None, sink)
        new.at = sink.at
        try:
            edit = removal_edit(footer, dict.fromkeys(chunks), body, bool(without.holds), indexes)
            data = edit_footer(footer.data, edit)
        except FooterError as error:
            raise LayoutError(source.path, f"the footer cannot be edited: {error}") from error
        write_footer(new, data)
        size = new.at
        with new.reopen() as again:
            check_written(before, again, body.moves)
        new.commit(source.check_unchanged)
    return new.transfer, size


# --- all files of a source ------------------------------------------------------------------------
#
# Filters leave all files of a source; of a table by a copy without them, or by the size that its log names.
#
# No file of a table is cut: versions of the table that name its larger size go on reading it. The bytes go with the
# file, or with the next copy of it.


def remove_from_source(
    to: Changeable, request: RemoveRequest, progress: ProgressCallback | None = None
) -> RemoveReport:
    """Remove filters of files, or of those of a table. Raises as remove_filters."""
    snapshot = to.snapshot()
    request = dataclasses.replace(request, tables=to.tables)
    if snapshot.has_log:
        select_leaves(TableColumns(snapshot).leaves, request.columns, request.exclude)

    def work_on(one: Snapshot) -> FileWork[RemovedFile]:
        return RemoveFromTableFile(TableColumns(one), request) if one.has_log else RemoveFromFile(request)

    changed = to.change(snapshot, work_on, Meter(progress, snapshot.files))
    return RemoveReport(changed.files, changed.failed, [*to.notes, *changed.notes], changed.commits)


@dataclass(frozen=True, slots=True)
class RemoveFromTableFile:
    """Takes filters out of one file, which is as long as the table's log says."""

    names: TableColumns
    request: RemoveRequest

    def __call__(self, file: TableFile, target: Location, look_only: bool) -> FileOutcome[RemovedFile]:
        """As edit.table_commit.FileWork has it."""
        with open_for_change(file, False) as whole:
            source = whole.until(file.size) if check_size(file, whole) else whole
            names = self.names.of(file, source.footer())
            columns = self.names.chunks_of(self.request.columns, self.request.exclude, names)
            if self.request.columns is not None:
                request = dataclasses.replace(self.request, columns=columns)
            else:
                others = None if columns is None else [name for name in names.all if name not in columns]
                request = dataclasses.replace(self.request, exclude=others)
            looking = dataclasses.replace(request, how=dataclasses.replace(request.how, dry_run=True))
            report = remove_from(source, target, looking)
            less = report.removed > 0 or report.indexes > 0
            outcome = FileOutcome(report, int(less))
            if less and target.path == file.path:
                report.written = False
                outcome = FileOutcome(report, *_before_tails(file, source, request))
            elif less and not look_only:
                report = remove_from(source, target, request)
                outcome = FileOutcome(report, report.bytes_after, footer_bytes(target))
        report.dry_run = self.request.how.dry_run
        if not outcome.size:
            report.output = report.source  # no other file was made
        report.columns = [names.shown.get(name, name) for name in report.columns]
        return dataclasses.replace(outcome, columns=frozenset(report.columns))


def _before_tails(file: TableFile, source: OpenFile, request: RemoveRequest) -> tuple[int, int]:
    """Size and footer of a file without the tails that go. Raises TableFormatError where other filters would stay."""
    wanted = {leaf.index for leaf in select_leaves(source.footer().leaves, request.columns, request.exclude)}
    before = strip_tails(source, wanted, False, request.indexes).source
    filters = request.chunks_of(before.footer(), wanted)[0]
    if filters or (request.indexes and any(our_indexes(before.footer()).values())):
        what = "filters" if filters else "page indexes"
        reason = f"has {what} that lie in no tail of its end, which only another file can be without; "
        raise TableFormatError(file, reason + "see " + parameter("commit", "new-path"))
    return before.size, len(before.footer().data)
