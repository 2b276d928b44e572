"""Add filters to files that exist; every byte that is not an offset stays as it was.

    footer -> plan -> workers: decode, hash, insert, fold      -> filters, in file order
                      meanwhile: the operating system copies the old bytes
           -> new footer -> read back and checked -> fsync -> rename

At no time is more than `threads` x one column of one row group in memory.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from parquet_bloom.edit.build import BuiltElsewhere
from parquet_bloom.edit.finish import check_texts, check_written
from parquet_bloom.edit.plan import Plan, Request, Run, planned, upper_bound
from parquet_bloom.edit.removal import check_undoable
from parquet_bloom.edit.reports import AddedFile, AddReport
from parquet_bloom.edit.rewrite import check_movable
from parquet_bloom.edit.writer import Writer
from parquet_bloom.formats.forms.form import Rate
from parquet_bloom.formats.metadata.footer import Footer
from parquet_bloom.formats.thrift.compact import uncollected
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.results import each
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.workers import Workers, processors
from parquet_bloom.storage.writing.draft import Transfer
from parquet_bloom.storage.writing.file_lock import opened
from parquet_bloom.storage.writing.target import (
    WriteOptions,
    check_target,
    copy_whole,
    disk_needed,
    new_version,
    outputs_of,
)  # fmt: skip


def add_filters(
    source: PathLike | Sequence[PathLike],
    output: PathLike | None = None,
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    spec: str = "final",
    placement: str | None = None,
    hash_family: str | None = None,
    strategy: str | None = None,
    fpp: Rate | Mapping[str, Rate] | None = None,
    ndv: int | None = None,
    conf: Mapping[str, str] | None = None,
    max_bytes: int | None = None,
    in_place: bool = False,
    overwrite: bool = False,
    replace: bool = False,
    sync: bool = True,
    read_back: bool = False,
    append: bool = False,
    force: bool = False,
    raw_files: bool = False,
    threads: int | None = None,
    engine: str | None = None,
    filesystem: Any = None,
    dry_run: bool = False,
    progress: ProgressCallback | None = None,
) -> AddReport:
    """Add Bloom filters to one Parquet file, several, a folder or a glob, local or on another storage.

    source      path or paths, or URIs (file:, s3:, gs:, hdfs: and others)
    output      a new file, or a folder for several; or else in_place=True
    columns     names or patterns; None: every column that a filter helps, by its bounds and a sample of its
                values (edit.choose)
    spec        "final", "parquet-41", "parquet-41-early", "parquet-41-raw" or "statistics"
    placement   "footer" (default of final), "chunk-start" (default of 2018's) or, of final, "tail": with a second
                footer behind the old one, so that the old file is the beginning of the new one; none for statistics
    hash_family, strategy  of statistics: "orc" (default), "guava" or "hive"; "MURMUR128_32", or for guava
                "MURMUR128_64" (its default)
    fpp         false positive rate, 0.01 unless given (statistics: 0.05); "auto": the size at which a filter's own
                bytes and the row groups that its errors make a reader read are least; or a mapping column -> rate, "*"
                for others
    ndv         first guess of distinct values per row group; the size comes from the data anyway. Of
                statistics it is the size; without it the distinct values are counted
    conf        of statistics: the draft's Hadoop properties, see formats.properties
    max_bytes   the most a filter's bitset may take
    replace     old filters of the chosen columns go and are built anew; otherwise they stay
    sync        wait for the disk before the new file takes its place
    read_back   and then read all of it from the disk, and compare, before it does; local disks only
    append      with placement "tail" and in_place, on a local disk: write behind the file itself, which no clone or
                copy replaces then. A journal beside it lets a later run undo what a crash cut short
    force       also inside a table's folder, a file with hard links, a read-only target
    raw_files   with output: also files of an Iceberg, Delta or Hudi table, dead ones too
    threads     that decode and hash at a time; the processors there are, unless given
    engine      "duckdb", "datafusion 55": the report says which of the filters it does not use (`engines`)
    filesystem  of pyarrow or fsspec; plain paths, output's too, are then on it
    progress    is called with a Progress for every file and every filter

    Raises RequestError and its kinds for a wrong request; UnknownColumnError before any file is changed, where
    the first file lacks a column that was named. For one file, FileError and its kinds; for several, those
    come in the report's `failed`.
    """
    request = Request.checked(
        columns=columns, exclude=exclude, spec=spec, placement=placement, hash_family=hash_family, strategy=strategy,
        fpp=fpp, ndv=ndv, conf=conf, max_bytes=max_bytes, threads=threads, in_place=in_place, overwrite=overwrite,
        replace=replace, sync=sync, force=force, dry_run=dry_run, read_back=read_back, append=append, engine=engine,
    )  # fmt: skip
    return add_as(request, source, output, raw_files, filesystem, progress)


def add_as(
    request: Request,
    source: PathLike | Sequence[PathLike],
    output: PathLike | None,
    raw_files: bool = False,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
) -> AddReport:
    """Carry out a checked request; the other parameters are those of add_filters."""
    outputs, tables, notes = outputs_of(
        source, output, request.in_place, request.overwrite, request.force, raw_files, filesystem
    )
    meter = Meter(progress, list(outputs.targets), unit="filters")
    with Workers(request.threads or processors()) as workers:
        run = Run(request, workers, tables, lambda _, done, parts: meter.part(done, parts))
        results = each(
            list(outputs.targets),
            lambda file: add_file(file, outputs.targets[file], run),
            outputs.single,
            outputs.failed,
            meter,
        )
    return AddReport(list(results), results.failed, notes)


def add_file(
    file: DataFile, target: Location, run: Run, built: BuiltElsewhere | None = None,
    columns: Collection[int] | None = None,
) -> AddedFile:  # fmt: skip
    """Add filters to one file.

    built    gives filters that were built elsewhere, once it has seen that the file is still the same
    columns  that were chosen elsewhere, by their index; see plan.planned
    Raises as add_filters does for one file.
    """
    started = time.perf_counter()
    request = run.request
    with opened(file, request.in_place and not request.dry_run) as source:
        footer = source.footer()
        with uncollected():
            file_plan = planned(source, run, columns)
        report = AddedFile(
            str(file), str(target), footer.n_row_groups, [footer.leaves[c].name for c in file_plan.columns], source.size
        )
        report.take_plan(file_plan, footer.leaves, request)
        report.planned_bytes = upper_bound(footer, file_plan, request.form)
        report.bytes_needed = disk_needed(
            source, target, report.planned_bytes + 4096 * (1 + len(file_plan.sizings)), request.append
        )
        report.dry_run = request.dry_run
        report.remote = source.is_remote or not target.is_local
        if file_plan.sizings or not request.in_place:
            check_target(file, target, request.in_place, request.force, run.tables)
        if file_plan.sizings and request.at_chunk_start:
            check_movable(source.path, footer, request.force)
        if not request.dry_run:
            report.add_transfer(_carry_out(source, footer, file_plan, target, run, report, built), source)
    report.seconds = time.perf_counter() - started
    return report


def _carry_out(
    source: Source, footer: Footer, file_plan: Plan, target: Location, run: Run, report: AddedFile,
    built: BuiltElsewhere | None,
) -> Transfer:  # fmt: skip
    request = run.request
    report.bytes_after = source.size
    how = WriteOptions(
        request.overwrite or request.in_place,
        request.sync,
        request.force,
        request.cached,
        request.read_back,
        request.append,
    )
    if not file_plan.sizings:
        return Transfer() if request.in_place else copy_whole(source, target, how)
    needed = report.bytes_needed
    if request.as_tail and not request.append:
        needed -= disk_needed(source, target, 0)  # a clone takes no room, and a copy is refused where there is none
    with new_version(source, target, how, needed) as new:
        written = Writer(source, footer, file_plan, run, built).write(new)
        if not written.keys and not written.cut:
            report.skipped += written.skipped
            new.discard()
            return Transfer() if request.in_place else copy_whole(source, target, how)
        report.filters, report.skipped = written.filters, report.skipped + written.skipped
        report.bytes_after = new.at
        with new.reopen() as again, uncollected():
            check_written(source, again, written.body.moves, written.checksums, written.filter_ranges)
            check_texts(source, again, written.texts)
            if not written.cut:
                check_undoable(source, again, written.keys)
        new.commit(source.check_unchanged)
    return new.transfer
