"""Add filters to files that exist; every byte that is not an offset stays as it was.

    footer -> plan -> workers: decode, hash, insert, fold      -> filters, in file order
                      meanwhile: the operating system copies the old bytes
           -> new footer -> read back and checked -> fsync -> rename

At no time is more than `threads` x one column of one row group in memory.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from parquet_bloom._version import __version__
from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.chunks.locate import spans_of
from parquet_bloom.edit.build import BuiltElsewhere
from parquet_bloom.edit.finish import check_footer_size, check_texts, check_written, write_footer
from parquet_bloom.edit.plan import Plan, Request, Run, SkippedColumn, planned, upper_bound, writing_order
from parquet_bloom.edit.removal import check_undoable, plan_removal
from parquet_bloom.edit.reports import AddedFile, AddedFilter, AddReport
from parquet_bloom.edit.rewrite import Body, Event, check_movable, index_events, insert_events, write_body
from parquet_bloom.edit.runs import MOST, build_run, runs_of
from parquet_bloom.errors import FooterError, LayoutError
from parquet_bloom.formats.footer_filters import changes_of, footer_filters, length_of
from parquet_bloom.formats.forms.form import BuiltFilter, Rate
from parquet_bloom.formats.metadata.edits import FooterEdit, edit_footer
from parquet_bloom.formats.metadata.footer import ChunkKey, Footer
from parquet_bloom.formats.provenance import all_ranges, new_entries, rewritten
from parquet_bloom.formats.thrift.compact import uncollected
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.results import each
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.workers import Workers, processors
from parquet_bloom.storage.writing.draft import NewVersion, Transfer
from parquet_bloom.storage.writing.file_lock import opened
from parquet_bloom.storage.writing.sink import FileSink
from parquet_bloom.storage.writing.target import (
    WriteOptions,
    check_target,
    copy_whole,
    disk_needed,
    new_version,
    outputs_of,
)  # fmt: skip

_WRITTEN_AT_ONCE = 256 << 10


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
    placement   "footer" (default of final) or "chunk-start" (default of 2018's); none for statistics
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
        replace=replace, sync=sync, force=force, dry_run=dry_run, read_back=read_back, engine=engine,
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
        report.bytes_needed = disk_needed(source, target, report.planned_bytes + 4096 * (1 + len(file_plan.sizings)))
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
        request.overwrite or request.in_place, request.sync, request.force, request.cached, request.read_back
    )
    if not file_plan.sizings:
        return Transfer() if request.in_place else copy_whole(source, target, how)
    with new_version(source, target, how, report.bytes_needed) as new:
        written = _Writer(source, footer, file_plan, run, built).write(new)
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


class _Writer:
    """Writes the new file's bytes and remembers what the checks and the report need."""

    def __init__(self, source: Source, footer: Footer, file_plan: Plan, run: Run, built: BuiltElsewhere | None) -> None:
        self.source, self.footer, self.plan, self.request = source, footer, file_plan, run.request
        self.workers, self.progress = run.workers, run.progress
        self.body = Body()
        self.filters: list[AddedFilter] = []
        self.skipped: list[SkippedColumn] = []
        self.checksums: dict[ChunkKey, int] = {}
        self.filter_ranges: dict[ChunkKey, tuple[int, int]] = {}
        self.texts: dict[ChunkKey, tuple[tuple[str, str], ...]] = {}
        self.cut = False
        self._built: dict[ChunkKey, BuiltFilter] = {}
        self._built_elsewhere = built
        self._readers = {c: ColumnReader(source, footer.leaves[c]) for c in file_plan.columns}

    @property
    def keys(self) -> list[ChunkKey]:
        """The chunks that got filters."""
        return sorted([*self.filter_ranges, *self.texts])

    def write(self, new: NewVersion) -> _Writer:
        try:
            if self.request.at_chunk_start:
                self._at_chunk_starts(new)
            else:
                self._before_footer(new)
        finally:
            self.workers.settle()
        if self.keys or self.cut:
            with uncollected():
                write_footer(new, self._new_footer())
                self._report()
        return self

    def _build(self, run: Sequence[ChunkKey]) -> list[BuiltFilter]:
        return build_run(self._readers, self.footer, self.plan, self.request, run)

    def _results(self, keys: Sequence[ChunkKey]) -> Iterator[tuple[ChunkKey, bytes | None]]:
        given = self._built_elsewhere
        if given is not None:
            results = given(self.source, keys)
        else:
            # A remote file is read ahead chunk by chunk.
            runs = runs_of(self.footer, keys, 1 if self.source.is_remote else MOST)
            results = chain.from_iterable(self.workers.in_order(self._build, runs))
        for done, (key, built) in enumerate(zip(keys, results, strict=True)):
            group, column = key
            if built.data is None:
                self.skipped.append(SkippedColumn(self.footer.leaves[column].name, group, built.reason))
            else:
                if built.texts:
                    self.texts[key] = built.texts
                else:
                    self.checksums[key] = zlib.crc32(built.data)
                self._built[key] = BuiltFilter(b"", "", built.fpp, built.num_bytes, built.estimated_ndv, built.reached)
            if self.progress is not None:
                self.progress(self.source.path, done + 1, len(keys))
            yield key, built.data

    def _cuts(self) -> list[Event]:
        """With replace: the old filters of the chosen chunks leave, as far as they can."""
        if not self.request.replace:
            return []
        spans = spans_of(self.source, self.footer, self.plan.sizings)
        self.cut = bool(spans) or not footer_filters(self.footer).keys().isdisjoint(self.plan.sizings)
        return list(plan_removal(self.source.path, self.footer, spans, self.request.force).events)

    def _at_chunk_starts(self, new: NewVersion) -> None:
        inserts = insert_events(self.footer, list(self.plan.sizings))
        cuts = [e for e in self._cuts() if e.kind == "cut"]
        events = sorted([*inserts, *cuts, *index_events(self.footer)])
        keys = writing_order(self.footer, self.plan, at_chunk_start=True)
        results = self._results(keys)
        sink = FileSink(new, self.source)
        self.body = write_body(events, self.footer.start, self.source.read, lambda _: next(results)[1], sink)
        self.filter_ranges = dict(self.body.filter_ranges)
        new.at = sink.at

    def _before_footer(self, new: NewVersion) -> None:
        events = self._cuts()
        sink = FileSink(new, self.source)

        def body() -> Body:
            written = write_body(events, self.footer.start, self.source.read, lambda _: None, sink)
            new.flush()  # the disk works while the filters are still being built
            return written

        copying = self.workers.copy(body)
        if events:
            copying.result()  # only then is it known where the filters begin
        new.at = sink.at if events else self.footer.start
        small: list[bytes] = []  # that are written together
        at = new.at
        for key, data in self._results(writing_order(self.footer, self.plan, at_chunk_start=False)):
            if data:
                self.filter_ranges[key] = (at, len(data))
                at += len(data)
                if at - new.at > _WRITTEN_AT_ONCE:
                    new.append(b"".join(small))
                    small = []
                small.append(data)
        new.append(b"".join(small))
        self.body = copying.result()

    def _new_footer(self) -> bytes:
        form, moves = self.request.form, self.body.moves
        if not self.request.at_chunk_start:
            # Offsets of no meaning behind the footer's start, as Polars writes, move with the end, and back with cuts.
            moves = moves.then(self.footer.start, sum(length for _, length in self.filter_ranges.values()))
        new = {key: (at, n if form.writes_length else None) for key, (at, n) in self.filter_ranges.items()}
        old = all_ranges(self.footer)
        chunks = self.plan.sizings
        stay = {key: (moves(at), n) for key, (at, n) in old.items() if key not in chunks}
        ranges = dict(new)
        for key, pairs in self.texts.items():
            ranges[key] = (moves(self.footer.meta(*key).data_page_offset), length_of(pairs))
        entries = new_entries(__version__, form.name, form.described, self.footer, ranges)
        changes, append = rewritten(self.footer, stay, entries)
        gone = {key: None for key in old if key in chunks and key not in new}
        texts = changes_of(self.footer, chunks, self.texts)
        edit = FooterEdit(moves, {**gone, **new}, self.body.index_lengths, changes, append, texts=texts)
        try:
            data = edit_footer(self.footer.data, edit)
        except FooterError as error:
            raise LayoutError(self.source.path, f"the footer cannot be edited: {error}") from error
        if texts:
            check_footer_size(self.source, data)
        return data

    def _report(self) -> None:
        for group, column in self.keys:
            b = self._built[group, column]
            held = length_of(self.texts.get((group, column), ()))
            offset, length = self.filter_ranges.get((group, column), (None, held))
            name = self.footer.leaves[column].name
            self.filters.append(
                AddedFilter(group, name, offset, length, b.num_bytes, b.fpp, b.reached, b.estimated_ndv)
            )
