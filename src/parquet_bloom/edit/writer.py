"""Writes the bytes of a new version with filters, wherever these go; edit.add decides what and checks it.

footer       [ body ][filters][new footer]
chunk-start  [ filter, chunk, filter, chunk ... ][new footer]
tail         [ body ][old footer][filters][new footer]      the old file is the beginning of the new one;
             of a table what other versions name may lie between: [ body ][old footer][...][filters][new footer]

New page indexes (edit.page_indexes) lie right before the new footer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain

from parquet_bloom._version import __version__
from parquet_bloom.edit.finish import check_footer_size, checksum, spans_of, write_footer
from parquet_bloom.edit.page_indexes import NewIndexes, build_indexes, read_truth
from parquet_bloom.edit.plan import Plan, Request, Run, SkippedColumn, writing_order
from parquet_bloom.edit.reports import AddedFilter
from parquet_bloom.edit.rewrite import Body, Event, index_events, insert_events, plan_removal, ranges_after, write_body
from parquet_bloom.errors import FooterError, LayoutError
from parquet_bloom.facts.known import BESIDE_NAN, SOME_GROUPS, losers
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.filters.tails import older_footers
from parquet_bloom.filters.true_statistics import ChunkStatistics
from parquet_bloom.filters.wrong_statistics import ComparingReader, WrongStatistic, groups_without_bounds
from parquet_bloom.format.compact import uncollected
from parquet_bloom.format.edits import FooterEdit, edit_footer, index_changes
from parquet_bloom.format.footer import ChunkKey, Footer
from parquet_bloom.format.footer_filters import changes_of, footer_filters, length_of
from parquet_bloom.format.forms import BuiltFilter, Format, Sizing
from parquet_bloom.format.provenance import all_ranges, kind_facts, new_entries, rewritten, tail_facts
from parquet_bloom.output.draft import FileSink, NewVersion
from parquet_bloom.storage.open_file import OpenFile

# --- filters of column chunks ---------------------------------------------------------------------
#
# Filters of column chunks: a form builds them (format.forms) from the values that pyarrow decodes.

# (the file as it is open, chunks in writing order) -> their filters; raises where it is not the file they are of
BuiltElsewhere = Callable[[OpenFile, Sequence[ChunkKey]], Iterator[BuiltFilter]]
_IN_TURNS = threading.Lock()  # a few values a row group: threads would only take the interpreter from each other


def build(reader: ColumnReader, footer: Footer, row_group: int, form: Format, sizing: Sizing) -> BuiltFilter:
    """Build the filter of one column chunk. Raises DamagedFileError where the chunk does not decode."""
    n_values = _most_values(footer, reader, row_group)
    return form.build(lambda: reader.batches(row_group), reader.leaf, n_values, sizing)


def build_several(
    reader: ColumnReader, footer: Footer, row_groups: Sequence[int], form: Format, sizing: Sizing
) -> dict[int, BuiltFilter]:
    """`build` for several row groups of one column: the file is opened once, and the smallest are built together.

    returns  row group -> its filter
    """
    built: dict[int, BuiltFilter] = {}
    with reader.staying_open() if len(row_groups) > 1 else nullcontext(reader) as once:
        if len(row_groups) > 1:
            values = {group: _most_values(footer, reader, group) for group in row_groups}
            small = [group for group in row_groups if form.is_smallest(reader.leaf, values[group], sizing)]
            with _IN_TURNS:
                built = form.build_smallest(
                    [(group, array) for group in small for array in once.batches(group)], sizing
                )
        for group in row_groups:
            if group not in built:
                built[group] = build(once, footer, group, form, sizing)
    return built


def _most_values(footer: Footer, reader: ColumnReader, row_group: int) -> int:
    return max(1, footer.column_chunks(reader.leaf.index).num_values[row_group])


# --- runs of small chunks -------------------------------------------------------------------------
#
# Neighbouring column chunks that one thread builds together: small ones, in thousands of which opening counts.

MOST, MOST_BYTES = 512, 256 << 10  # chunks of a run, and compressed bytes of them, if it is more than one


def runs_of(footer: Footer, keys: Sequence[ChunkKey], most: int = MOST) -> Iterator[list[ChunkKey]]:
    """Cut chunks, in their order, into runs."""
    run: list[ChunkKey] = []
    size = 0
    sizes = {column: footer.column_chunks(column).sizes for column in {column for _, column in keys}}
    for key in keys:
        chunk = sizes[key[1]][key[0]]
        if run and (size + chunk > MOST_BYTES or len(run) >= most):
            yield run
            run, size = [], 0
        run.append(key)
        size += chunk
    if run:
        yield run


def build_run(
    readers: Mapping[int, ColumnReader], footer: Footer, file_plan: Plan, request: Request, run: Sequence[ChunkKey]
) -> list[BuiltFilter]:
    """The filters of a run, in its order. Raises as `build` does."""
    built: dict[ChunkKey, BuiltFilter] = {}
    for column in {column for _, column in run}:
        groups = [group for group, of in run if of == column]
        sizing = file_plan.sizings[groups[0], column]  # one for the whole column
        some = build_several(readers[column], footer, groups, request.form, sizing)
        built.update(((group, column), one) for group, one in some.items())
    return [built[key] for key in run]


# --- the new file's bytes -------------------------------------------------------------------------

_WRITTEN_AT_ONCE = 256 << 10


class Writer:
    """Writes the new file's bytes and remembers what the checks and the report need."""

    def __init__(
        self, source: OpenFile, footer: Footer, file_plan: Plan, run: Run, built: BuiltElsewhere | None
    ) -> None:
        self.source, self.footer, self.plan, self.request = source, footer, file_plan, run.request
        self.whole = run.whole or source
        self.workers, self.progress = run.workers, run.progress
        self.body = Body()
        self.filters: list[AddedFilter] = []
        self.skipped: list[SkippedColumn] = []
        self.checksums: dict[ChunkKey, int] = {}
        self.filter_ranges: dict[ChunkKey, tuple[int, int]] = {}
        self.texts: dict[ChunkKey, tuple[tuple[str, str], ...]] = {}
        self.cut = False
        # A tail is no longer found when bytes among older footers went, or the last entry of the provenance on it.
        alone = self.request.at_chunk_start or self.request.as_tail
        self._holds = self.request.replace and not alone and bool(older_footers(source))
        self._built: dict[ChunkKey, BuiltFilter] = {}  # for the report: without their bytes
        self._built_elsewhere = built
        self.indexes = NewIndexes()
        first_rows = file_plan.indexes.first_rows
        self._readers = {c: ComparingReader(source, footer.leaves[c], first_rows(c)) for c in file_plan.columns}

    @property
    def wrong_statistics(self) -> list[WrongStatistic]:
        """Those of the chunks that were decoded, by row group and column."""
        groups = sorted({group for reader in self._readers.values() for group in reader.wrong})
        return [one for group in groups for reader in self._readers.values() for one in reader.wrong.get(group, ())]

    @property
    def bound_notes(self) -> list[str]:
        """A line on each column that was decoded and has bounds beside a NaN, or in some row groups alone."""
        counts = {reader.leaf.name: sum(reader.nans.values()) for reader in self._readers.values() if reader.nans}
        reason = f"{losers(BESIDE_NAN)} miss them by ranges as `> 5`, whatever filters say"
        notes = [f"{count:,} NaN of column {name} lie beside min and max: {reason}" for name, count in counts.items()]
        some = [one.leaf.name for one in self._readers.values() if groups_without_bounds(self.footer, one.leaf)]
        reason = f"{losers(SOME_GROUPS)} misses rows by them, whatever filters say"
        return notes + [f"column {name} has min and max in some row groups alone: {reason}" for name in some]

    @property
    def keys(self) -> list[ChunkKey]:
        """The chunks that got filters."""
        return sorted([*self.filter_ranges, *self.texts])

    @property
    def changes(self) -> bool:
        """Whether there is a new footer: filters, page indexes, or a filter that was cut out."""
        return bool(self.keys or self.cut or self.indexes.data)

    def write(self, new: NewVersion) -> Writer:
        """Write all of it; nothing after the old bytes where nothing was built and no filter is cut out."""
        # Each of the three writes old bytes and filters, and notes the filters' ranges. The footer, which names these,
        # comes last.
        try:
            if self.request.at_chunk_start:
                self._at_chunk_starts(new)
            elif self.request.as_tail:
                self._behind_footer(new)
            else:
                self._before_footer(new)
            plan = self.plan.indexes
            truths = dict(zip(plan.bounds, self.workers.in_order(self._truth, plan.bounds), strict=True))
        finally:
            self.workers.settle()
        with uncollected():
            self.indexes = build_indexes(plan, new.at, self.body.moves, self.footer.leaves, truths)
        new.append(self.indexes.data)
        if self.changes:
            with uncollected():
                write_footer(new, self._new_footer())
                self._report()
        return self

    def _build(self, run: Sequence[ChunkKey]) -> list[BuiltFilter]:
        built = build_run(self._readers, self.footer, self.plan, self.request, run)
        for key, one in zip(run, built, strict=True):
            if one.data:
                self.checksums[key] = checksum(one.data)  # here, where several threads work
        return built

    def _results(self, keys: Sequence[ChunkKey]) -> Iterator[tuple[ChunkKey, bytes | None]]:
        given = self._built_elsewhere
        if given is not None:
            results = given(self.source, keys)
        else:
            # A remote file is read ahead chunk by chunk.
            runs = runs_of(self.footer, keys, 1 if self.source.is_remote else MOST)
            results = chain.from_iterable(self.workers.in_order(self._build, runs))
        for done, (key, built) in enumerate(zip(keys, results, strict=True)):
            # A chunk has one of three results: no filter, with the reason; key-values for the chunk's metadata, and no
            # bytes in the body; or header and bitset.
            group, column = key
            if built.data is None:
                self.skipped.append(SkippedColumn(self.footer.leaves[column].name, group, built.reason))
            else:
                if built.texts:
                    self.texts[key] = built.texts
                elif key not in self.checksums:
                    self.checksums[key] = checksum(built.data)
                self._built[key] = BuiltFilter(b"", "", built.fpp, built.num_bytes, built.estimated_ndv, built.reached)
            if self.progress is not None:
                self.progress(self.source.path, done + 1, len(keys))
            yield key, built.data

    def _truth(self, key: ChunkKey) -> ChunkStatistics | None:
        """The true statistics of a chunk for its column index: as its filter's values gave them, or decoded anew."""
        group, column = key
        reader = self._readers.get(column)
        found = reader.truth.get(group) if reader is not None else None
        if found is not None or column not in self.plan.indexes.named:
            return found
        first_rows = self.plan.indexes.first_rows(column)[group]
        return read_truth(reader or ColumnReader(self.source, self.footer.leaves[column]), group, first_rows)

    def _cuts(self) -> list[Event]:
        """With replace: the old filters of the chosen chunks leave, as far as they can."""
        if not self.request.replace:
            return []
        # `cut` says that some old filter is replaced, be its bytes cut out or not; the check that `remove` gives the
        # old file back would fail then.
        spans = spans_of(self.source, self.footer, self.plan.sizings)
        self.cut = bool(spans) or not footer_filters(self.footer).keys().isdisjoint(self.plan.sizings)
        if self._holds:
            return []
        return list(plan_removal(self.source.path, self.footer, spans, self.request.how.force).events)

    def _at_chunk_starts(self, new: NewVersion) -> None:
        # Filters are built while the body is written: write_body takes the next result at each insert event, and
        # `keys` has the chunks in the order of these events.
        inserts = insert_events(self.footer, list(self.plan.sizings))
        # No event of an index from the cuts: all page indexes move here, and one event each is enough.
        cuts = [e for e in self._cuts() if e.kind == "cut"]
        events = sorted([*inserts, *cuts, *index_events(self.footer)])
        keys = writing_order(self.footer, self.plan, at_chunk_start=True)
        results = self._results(keys)
        sink = FileSink(new, self.source)
        self.body = write_body(events, self.footer.start, self.source.read, lambda _: next(results)[1], sink)
        self.filter_ranges = dict(self.body.filter_ranges)
        new.at = sink.at

    def _before_footer(self, new: NewVersion) -> None:
        # The old bytes are copied by one thread while others build filters, unless old filters are cut out.
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
        self._append_filters(new)
        self.body = copying.result()

    def _behind_footer(self, new: NewVersion) -> None:
        # The whole old file, its footer included, is the beginning of the new one: no offset moves, and the old file
        # comes back by cutting. Where the file system can clone, no byte is copied.
        sink = FileSink(new, self.whole)

        def body() -> None:
            sink.copy(0, self.whole.size)
            new.flush()

        copying = None if new.clone(self.whole) else self.workers.copy(body)
        new.at = self.whole.size
        self._append_filters(new)
        if copying is not None:
            copying.result()

    def _append_filters(self, new: NewVersion) -> None:
        small: list[bytes] = []  # that are written together
        at = new.at  # where the next filter goes; `new.at` is behind by the bytes in `small`
        for key, data in self._results(writing_order(self.footer, self.plan, at_chunk_start=False)):
            if data:
                self.filter_ranges[key] = (at, len(data))
                at += len(data)
                if at - new.at > _WRITTEN_AT_ONCE:
                    new.append(b"".join(small))
                    small = []
                small.append(data)
        new.append(b"".join(small))

    def _new_footer(self) -> bytes:
        # 1. Where old offsets are now.
        form, moves = self.request.form, self.body.moves
        if not self.request.as_tail:
            # Offsets of no meaning behind the footer's start, as Polars writes, move with the end, and back with cuts.
            behind = 0 if self.request.at_chunk_start else sum(length for _, length in self.filter_ranges.values())
            moves = moves.then(self.footer.start, behind + len(self.indexes.data))
        # 2. Filters by their fate. With `replace` a planned chunk loses its old filter even if it got no new one.
        planned = self.plan.sizings
        before = all_ranges(self.footer)
        added = {key: (at, n if form.writes_length else None) for key, (at, n) in self.filter_ranges.items()}
        removed = {key: None for key in before if key in planned and key not in added}
        staying = {key: (moves(at), n) for key, (at, n) in before.items() if key not in planned}
        # 3. Provenance. A filter in column metadata has no offset of its own; its chunk's first data page stands for it
        # (format.provenance).
        recorded = dict(added)
        for key, pairs in self.texts.items():
            recorded[key] = (moves(self.footer.meta(*key).data_page_offset), length_of(pairs))
        facts = tail_facts(self.source.size, self.footer) if self.request.as_tail else {}
        entries = new_entries(__version__, form.name, {**form.described, **facts}, self.footer, recorded)
        for kind, ranges in self.indexes.ranges.items():
            entries += new_entries(__version__, None, {**kind_facts(kind), **facts}, self.footer, ranges)
        old_indexes = ranges_after(self.footer, self.body, {}) if moves else None
        changes, append = rewritten(self.footer, staying, entries, self._holds, old_indexes)
        # 4. All of it as one edit of the old footer's bytes.
        texts = changes_of(self.footer, planned, self.texts)
        edit = FooterEdit(moves, {**removed, **added}, self.body.index_lengths, changes, append, texts=texts)
        edit.indexes = index_changes(self.indexes.ranges)
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
