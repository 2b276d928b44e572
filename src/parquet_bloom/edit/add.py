"""Add filters to files that exist; every byte that is not an offset stays as it was.

    footer -> plan -> workers: decode, hash, insert, fold      -> filters, in file order
                      meanwhile: the operating system copies the old bytes
           -> new footer -> read back and checked -> fsync -> rename

At no time is more than `threads` x one column of one row group in memory.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from parquet_bloom.edit.finish import check_filters, check_texts, check_written
from parquet_bloom.edit.page_indexes import check_indexes
from parquet_bloom.edit.plan import FilterProgress, Plan, Request, Run, plan_file, upper_bound
from parquet_bloom.edit.reports import AddedFile
from parquet_bloom.edit.rewrite import check_movable, check_summaries, check_undoable
from parquet_bloom.edit.table_commit import FileOutcome
from parquet_bloom.edit.writer import BuiltElsewhere, Writer
from parquet_bloom.format.compact import uncollected
from parquet_bloom.format.footer import Footer
from parquet_bloom.output.draft import Transfer
from parquet_bloom.output.recovery import open_for_change
from parquet_bloom.output.target import Target
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.workers import WorkerSets

# Beside the filters, for each of them and once for the file: what the footer and page indexes grow by. An estimate, for
# the question whether the disk has room.
_MARGIN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class AddToFile:
    """The work of `add` on each of several files, as edit.table_commit.FileWork has it."""

    request: Request
    sets: WorkerSets
    tables: Tables
    progress: FilterProgress | None = None

    def __call__(self, file: DataFile, target: Location, look_only: bool) -> FileOutcome[AddedFile]:
        """Add filters to one file: its rename is its commit. Raises as add_filters does for one file."""
        with self.sets.taken() as workers:
            return FileOutcome(add_file(file, target, Run(self.request, workers, self.tables, self.progress)))


def add_file(
    file: DataFile,
    target: Location,
    run: Run,
    built: BuiltElsewhere | None = None,
    columns: Collection[int] | None = None,
) -> AddedFile:
    """Add filters to one file.

    built    gives filters that were built elsewhere, once it has seen that the file is still the same
    columns  that were chosen elsewhere, by their index; see plan.plan_file
    Raises as add_filters does for one file.
    """
    with open_for_change(file, run.request.how.in_place and not run.request.how.dry_run) as source:
        return add_to(source, file, target, run, built, columns)


def add_to(
    source: OpenFile,
    file: DataFile,
    target: Location,
    run: Run,
    built: BuiltElsewhere | None = None,
    columns: Collection[int] | None = None,
) -> AddedFile:
    """As add_file, for a file that is open."""
    # `source` is planned and read; new bytes go behind `whole`. They differ for a file of a table where bytes that the
    # log does not name follow: those stay, and `source` is the file up to its logged size.
    started = time.perf_counter()
    request, how, whole = run.request, run.request.how, run.whole or source
    to = Target(target, how)
    footer = source.footer()
    with uncollected():
        file_plan = plan_file(source, run, columns)
    report = AddedFile(
        str(file), str(target), footer.n_row_groups, [footer.leaves[c].name for c in file_plan.columns], source.size
    )
    report.take_plan(file_plan, footer.leaves, request)
    report.planned_bytes = upper_bound(footer, file_plan, request.form) + file_plan.indexes.most_bytes
    report.bytes_needed = to.disk_needed(whole, report.planned_bytes + _MARGIN_BYTES * (1 + len(file_plan.sizings)))
    report.dry_run, report.remote = how.dry_run, source.is_remote or not to.is_local
    # All refusals come before the first byte is written, in a dry run too.
    if file_plan or not how.in_place:
        to.check(file, run.tables)
    if file_plan.sizings and request.at_chunk_start:
        check_movable(source.path, footer, how.force)
        check_summaries([file] if how.in_place and not how.force else [])
    elif file_plan and request.placement == "footer" and footer.structure_starts[-1] > footer.start:
        # A page index that lies behind the body, as a copy of row groups may keep it: it would keep the filters from
        # leaving again, unless it takes no bytes.
        check_movable(source.path, footer, force=True)
    if not how.dry_run:
        report.add_transfer(_carry_out(source, footer, file_plan, to, run, report, built), whole)
    report.seconds = time.perf_counter() - started
    return report


def _carry_out(
    source: OpenFile,
    footer: Footer,
    file_plan: Plan,
    to: Target,
    run: Run,
    report: AddedFile,
    built: BuiltElsewhere | None,
) -> Transfer:
    request, how, whole = run.request, run.request.how, run.whole or source
    report.bytes_after = source.size
    copied = not how.in_place and request.copies
    # Nothing to add: another path gets a copy all the same, unless it is of a table, which then keeps its file.
    if not file_plan:
        return to.copy(source) if copied else Transfer()
    needed = report.bytes_needed
    if request.as_tail and not how.append:
        # Without the old file's size: a clone takes no room, and Draft.clone checks the room where it must copy.
        needed -= to.disk_needed(whole, 0)
    with to.begin(whole, needed) as new:
        written = Writer(source, footer, file_plan, run, built).write(new)
        report.wrong_statistics = written.wrong_statistics
        report.engine_notes += written.bound_notes
        report.take_indexes(written.indexes)
        if not written.changes:
            report.skipped += written.skipped
            new.discard()
            return to.copy(source) if copied else Transfer()
        # The new version has no name yet. It is read back through the file system, and any contradiction is an error
        # that leaves the target as it was.
        report.filters, report.skipped = written.filters, report.skipped + written.skipped
        report.bytes_after = new.at
        flushing = run.workers.copy(new.flush_early)  # the disk works while all is read back
        try:
            with new.reopen() as again, uncollected():
                check_written(source, again, written.body.moves)
                check_filters(source, again, written.checksums, written.filter_ranges, run.workers)
                check_texts(source, again, written.texts)
                check_indexes(source, again, written.indexes)
                if not written.cut:  # an old filter that was replaced does not come back
                    check_undoable(source, again, written.keys, written.indexes.chunks)
            flushing.result()
        finally:
            run.workers.settle()  # an error above must not close the file under the threads that flush and read it
        new.commit(whole.check_unchanged)
    return new.transfer
