"""Take filters out again: all forms, whoever wrote them; the file is then as it was before them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from parquet_bloom.chunks.locate import spans_of
from parquet_bloom.edit.finish import check_written, write_footer
from parquet_bloom.edit.removal import plan_removal, removal_edit
from parquet_bloom.edit.reports import RemovedFile, RemoveReport
from parquet_bloom.edit.rewrite import write_body
from parquet_bloom.errors import FooterError, LayoutError
from parquet_bloom.formats.draft_2015 import footer_filters
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


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes, and how the new version is written; `tables` are those that must not be changed."""

    columns: Sequence[str] | None
    exclude: Sequence[str] | None
    in_place: bool
    how: WriteOptions
    dry_run: bool
    tables: Tables


def remove_as(
    removal: Removal, outputs: Outputs, notes: list[str], progress: ProgressCallback | None = None
) -> RemoveReport:
    """Carry it out for files whose outputs are known."""

    def work(file: DataFile) -> RemovedFile:
        with opened(file, removal.in_place and not removal.dry_run) as source:
            return remove_from(source, outputs.targets[file], removal)

    files = list(outputs.targets)
    results = each(files, work, outputs.single, outputs.failed, Meter(progress, files))
    return RemoveReport(list(results), results.failed, notes)


def filters_of(footer: Footer, columns: Sequence[str] | None, exclude: Sequence[str] | None) -> list[ChunkKey]:
    """The chunks with a filter of any form in these columns."""
    wanted = {leaf.index for leaf in select_leaves(footer.leaves, columns, exclude)}
    stored = footer_filters(footer)
    # Offsets of 0 and below point at nothing, but leave with the rest.
    return [
        (i, j)
        for i, j, c in footer.chunks()
        if j in wanted and (c.meta_data.bloom_filter_offset is not None or (i, j) in stored)
    ]


def remove_from(source: Source, target: Location, removal: Removal) -> RemovedFile:
    """Take filters out of one file that is open. Raises as remove_filters does for one file."""
    started = time.perf_counter()
    how, in_place = removal.how, removal.in_place
    footer = source.footer()
    chunks = filters_of(footer, removal.columns, removal.exclude)
    names = [footer.leaves[j].name for j in sorted({j for _, j in chunks})]
    report = RemovedFile(source.path, str(target), len(chunks), names, 0, source.size, source.size)
    report.dry_run = removal.dry_run
    report.remote = source.is_remote or not target.is_local
    if chunks or not in_place:
        check_target(source.location, target, in_place, how.force, removal.tables)
    filter_ranges = footer.filter_ranges
    here = [key for key in chunks if key in filter_ranges]
    spans = dict.fromkeys(here) | spans_of(source, footer, here)
    cuts = plan_removal(source.path, footer, spans, how.force)
    report.bytes_stay = len(cuts.stays)
    if removal.dry_run:
        return report
    if not chunks:
        if not in_place:
            report.add_transfer(copy_whole(source, target, how), source)
        return report
    needed = disk_needed(source, target, len(footer.data))
    with new_version(source, target, how, needed) as new:
        sink = FileSink(new, source)
        body = write_body(cuts.events, footer.start, source.read, lambda _: None, sink)
        new.at = sink.at
        try:
            data = edit_footer(footer.data, removal_edit(footer, dict.fromkeys(chunks), body))
        except FooterError as error:
            raise LayoutError(source.path, f"the footer cannot be edited: {error}") from error
        write_footer(new, data)
        report.bytes_after = new.at
        with new.reopen() as again:
            check_written(source, again, body.moves, {}, {})
        new.commit(source.check_unchanged)
    report.add_transfer(new.transfer, source)
    report.seconds = time.perf_counter() - started
    return report
