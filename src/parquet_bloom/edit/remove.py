"""Take filters out again: all forms, whoever wrote them; the file is then as it was before them."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from parquet_bloom.chunks.locate import spans_of
from parquet_bloom.edit.finish import check_written, write_footer
from parquet_bloom.edit.removal import Removal, plan_removal, removal_edit
from parquet_bloom.edit.reports import RemovedFile, RemoveReport
from parquet_bloom.edit.rewrite import write_body
from parquet_bloom.edit.tails import peeled, write_beginning
from parquet_bloom.errors import FooterError, LayoutError, RequestError, parameter
from parquet_bloom.formats.footer_filters import footer_filters
from parquet_bloom.formats.metadata.edits import edit_footer
from parquet_bloom.formats.metadata.footer import ChunkKey, Footer
from parquet_bloom.formats.metadata.schema import select_leaves
from parquet_bloom.storage.paths import DataFile, Outputs
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.results import each
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.writing.file_lock import opened
from parquet_bloom.storage.writing.sink import FileSink
from parquet_bloom.storage.writing.target import (
    WriteOptions,
    check_target,
    copy_whole,
    disk_needed,
    new_version,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOptions:
    """What goes, and how the new version is written: as remove_filters has them.

    tables  that must not be changed
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    last: bool = False
    in_place: bool = False
    dry_run: bool = False
    how: WriteOptions
    tables: Tables

    def __post_init__(self) -> None:
        if self.last and (self.columns is not None or self.exclude is not None):
            raise RequestError(parameter("last", True) + " takes off a whole tail; name no columns")
        if self.how.append and not self.in_place:
            raise RequestError(parameter("append", True) + " is for " + parameter("in_place", True))


def remove_as(
    options: RemoveOptions, outputs: Outputs, notes: list[str], progress: ProgressCallback | None = None
) -> RemoveReport:
    """Carry it out for files whose outputs are known."""

    def work(file: DataFile) -> RemovedFile:
        with opened(file, options.in_place and not options.dry_run) as source:
            return remove_from(source, outputs.targets[file], options)

    files = list(outputs.targets)
    results = each(files, work, outputs.single, outputs.failed, Meter(progress, files))
    return RemoveReport(list(results), results.failed, notes)


def chunks_of(footer: Footer, wanted: Collection[int]) -> list[ChunkKey]:
    """The chunks of these columns that have a filter of any form."""
    stored = footer_filters(footer)
    # Offsets of 0 and below point at nothing, but leave with the rest.
    return [
        (i, j)
        for i, j, c in footer.chunks()
        if j in wanted and (c.meta_data.bloom_filter_offset is not None or (i, j) in stored)
    ]


def remove_from(source: Source, target: Location, options: RemoveOptions) -> RemovedFile:
    """Take filters out of one file that is open. Raises as remove_filters does for one file."""
    started = time.perf_counter()
    how, in_place, last = options.how, options.in_place, options.last
    wanted = {leaf.index for leaf in select_leaves(source.footer().leaves, options.columns, options.exclude)}
    whole, without = source, peeled(source, wanted, last)
    source = without.source
    footer = source.footer()
    chunks = [] if last else chunks_of(footer, wanted)
    gone = without.gone.union(chunks)
    names = [footer.leaves[j].name for j in sorted({j for _, j in gone})]
    report = RemovedFile(source.path, str(target), len(gone), names, 0, whole.size, source.size)
    report.dry_run = options.dry_run
    report.remote = source.is_remote or not target.is_local
    report.tails = without.tails
    if chunks or without.tails or not in_place:
        check_target(whole.location, target, in_place, how.force, options.tables, how.append)
    if chunks and how.append:
        reason = "has filters that lie in no tail of its end, which only a new version can be without; leave out "
        raise LayoutError(source.path, reason + parameter("append"))
    filter_ranges = footer.filter_ranges
    here = [key for key in chunks if key in filter_ranges]
    spans = dict.fromkeys(here) | spans_of(source, footer, here)
    removal = Removal((), tuple(spans)) if without.holds else plan_removal(source.path, footer, spans, how.force)
    report.bytes_stay = len(removal.stays)
    if options.dry_run:
        return report
    if not chunks:
        if without.tails:
            report.add_transfer(write_beginning(whole, source, target, how), whole)
        elif not in_place:
            report.add_transfer(copy_whole(whole, target, how), whole)
        report.seconds = time.perf_counter() - started
        return report
    needed = disk_needed(source, target, len(footer.data))
    with new_version(source, target, how, needed) as new:
        sink = FileSink(new, source)
        body = write_body(removal.events, footer.start, source.read, lambda _: None, sink)
        new.at = sink.at
        try:
            data = edit_footer(footer.data, removal_edit(footer, dict.fromkeys(chunks), body, without.holds))
        except FooterError as error:
            raise LayoutError(source.path, f"the footer cannot be edited: {error}") from error
        write_footer(new, data)
        report.bytes_after = new.at
        with new.reopen() as again:
            check_written(source, again, body.moves)
        new.commit(whole.check_unchanged)
    report.add_transfer(new.transfer, whole)
    report.seconds = time.perf_counter() - started
    return report
