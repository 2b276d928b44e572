"""Take filters out again: all forms, whoever wrote them; the file is then as it was before them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from parquet_bloom.chunks.locate import spans_of
from parquet_bloom.edit.finish import check_written, write_footer
from parquet_bloom.edit.removal import plan_removal, removal_edit
from parquet_bloom.edit.reports import RemovedFile, RemoveReport
from parquet_bloom.edit.rewrite import write_body
from parquet_bloom.errors import FooterError, LayoutError, RequestError
from parquet_bloom.formats.footer_filters import footer_filters
from parquet_bloom.formats.metadata.edits import edit_footer
from parquet_bloom.formats.metadata.footer import ChunkKey, Footer
from parquet_bloom.formats.metadata.schema import select_leaves
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.results import each
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.storage.writing.file_lock import opened
from parquet_bloom.storage.writing.sink import FileSink
from parquet_bloom.storage.writing.target import (
    WriteOptions,
    check_target,
    copy_whole,
    disk_needed,
    new_version,
    outputs_of,
)


def remove_filters(
    source: PathLike | Sequence[PathLike],
    output: PathLike | None = None,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    sync: bool = True,
    read_back: bool = False,
    force: bool = False,
    raw_files: bool = False,
    filesystem: Any = None,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> RemoveReport:
    """Remove the filters of all columns, or of some, from one Parquet file or several.

    A file that got its filters from `add_filters` and loses all of them is byte for byte the file
    it was. Filters of other programs are cut out too where no byte that must stay is in the way.
    Arguments and errors are those of `add_filters`.
    """
    if isinstance(columns, str) or isinstance(exclude, str):
        raise RequestError("columns and exclude take a list of names, not one text")
    outputs, tables, notes = outputs_of(source, output, in_place, overwrite, force, raw_files, filesystem)

    def work(file: DataFile) -> RemovedFile:
        started = time.perf_counter()
        with opened(file, in_place and not dry_run) as source:
            report = _remove(
                source,
                outputs.targets[file],
                columns,
                exclude,
                in_place,
                WriteOptions(overwrite or in_place, sync, force, read_back=read_back),
                dry_run,
                tables,
            )
        report.seconds = time.perf_counter() - started
        return report

    files = list(outputs.targets)
    results = each(files, work, outputs.single, outputs.failed, Meter(progress, files))
    return RemoveReport(list(results), results.failed, notes)


def _columns_of(footer: Footer, columns: Sequence[str] | None, exclude: Sequence[str] | None) -> list[ChunkKey]:
    wanted = {leaf.index for leaf in select_leaves(footer.leaves, columns, exclude)}
    stored = footer_filters(footer)
    # Offsets of 0 and below point at nothing, but leave with the rest.
    return [
        (i, j)
        for i, j, c in footer.chunks()
        if j in wanted and (c.meta_data.bloom_filter_offset is not None or (i, j) in stored)
    ]


def _remove(
    source: Source,
    target: Location,
    columns: Sequence[str] | None,
    exclude: Sequence[str] | None,
    in_place: bool,
    how: WriteOptions,
    dry_run: bool,
    tables: Tables,
) -> RemovedFile:
    footer = source.footer()
    chunks = _columns_of(footer, columns, exclude)
    names = [footer.leaves[j].name for j in sorted({j for _, j in chunks})]
    report = RemovedFile(source.path, str(target), len(chunks), names, 0, source.size, source.size, dry_run=dry_run)
    report.remote = source.is_remote or not target.is_local
    if chunks or not in_place:
        check_target(source.location, target, in_place, how.force, tables)
    filter_ranges = footer.filter_ranges
    here = [key for key in chunks if key in filter_ranges]
    spans = dict.fromkeys(here) | spans_of(source, footer, here)
    removal = plan_removal(source.path, footer, spans, how.force)
    report.bytes_stay = len(removal.stays)
    if dry_run:
        return report
    if not chunks:
        if not in_place:
            report.add_transfer(copy_whole(source, target, how), source)
        return report
    needed = disk_needed(source, target, len(footer.data))
    with new_version(source, target, how, needed) as new:
        sink = FileSink(new, source)
        body = write_body(removal.events, footer.start, source.read, lambda _: None, sink)
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
    return report
