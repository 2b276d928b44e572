"""A new version of a file without some of its rows: row groups that lose none stay as they are, to the byte.

    old file   | row group 0 | row group 1 | row group 2 | filters | page indexes | footer |
    new file   | row group 0 | its rows that stay | row group 2 | filters | new filters | page indexes | footer |

Only what the old footer names is copied: pages, filters, column indexes. All else goes: older footers of tails, whose
bounds may be values of rows that go, and bytes that nothing names. A row group that loses all of its rows goes, too.

Of each column all row groups state bounds, or a new one states none: engines take bounds of some row groups for bounds
of the file. Where a new row group cannot have any, as beside a NaN, the others lose theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from parquet_bloom._version import __version__
from parquet_bloom.edit.finish import (
    check_filters,
    check_footer_size,
    check_opens,
    check_texts,
    checksum,
    spans_of,
    write_footer,
    wrong,
)
from parquet_bloom.edit.page_indexes import column_index_of
from parquet_bloom.edit.repair import true_bounds
from parquet_bloom.edit.rewrite import Body, Event, check_movable, write_body
from parquet_bloom.edit.row_groups import FilterPlan, Kept, NewRowGroup, statistics_of, write_row_group
from parquet_bloom.errors import DamagedFileError, FilterFormatError, FooterError, LayoutError, UnknownFilterError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.filters.page_places import may_be_short, page_headers
from parquet_bloom.filters.stored import StoredFilters
from parquet_bloom.filters.wrong_statistics import groups_without_bounds
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import StatisticsId
from parquet_bloom.format.edits import (
    FooterEdit,
    Moves,
    StatisticsChanges,
    edit_footer,
    index_changes,
    move_offset_index,
)
from parquet_bloom.format.footer import MAGIC, ChunkKey, Footer, IndexKind, chunk_extent, decode_footer
from parquet_bloom.format.forms import USELESS_FPP, Filter, Format, Sizing, form_of_filter
from parquet_bloom.format.page_indexes import encode_offset_index
from parquet_bloom.format.provenance import (
    FilterRangeMap,
    all_ranges,
    kind_facts,
    new_entries,
    read_entries,
    renumbered,
)
from parquet_bloom.format.repairs import repairs_in
from parquet_bloom.output.draft import FileSink, NewVersion
from parquet_bloom.output.target import Target
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.workers import Workers

_HEAD_BYTES = 64  # of each copied structure, compared with the old file's
_BOUNDS = (StatisticsId.min, StatisticsId.max, StatisticsId.min_value, StatisticsId.max_value)
_NO_BOUNDS = dict.fromkeys([*_BOUNDS, StatisticsId.is_min_value_exact, StatisticsId.is_max_value_exact])


def check_flat(source: OpenFile, force: bool = False) -> None:
    """Raise LayoutError for a file whose row groups cannot be written again, or not be moved, exactly.

    DamagedFileError where a column has another number of values than the row group has rows.
    """
    footer = source.footer()
    nested = [leaf.name for leaf in footer.leaves if leaf.repeated or len(leaf.path) > 1]
    if nested:
        reason = f"has nested columns ({', '.join(nested[:3])}), whose row groups are not written again"
        raise LayoutError(source.path, f"{reason}; nothing was changed")
    for leaf in footer.leaves:
        for group, (values, rows) in enumerate(
            zip(footer.column_chunks(leaf.index).num_values, footer.rows, strict=True)
        ):
            if values != rows:
                reason = f"row group {group}, column {leaf.name} has {values} values in {rows} rows"
                raise DamagedFileError(source.path, f"{reason}; nothing was changed")
    check_movable(source.path, footer, force)


def write_without_rows(
    source: OpenFile, kept: Mapping[int, Kept], to: Target, workers: Workers
) -> tuple[int, list[str]]:
    """Write a new version of a file without some rows; returns its bytes, and notes on what could not be kept.

    kept  row group -> which of its rows stay, of the row groups that lose some
    Raises LayoutError, as check_flat and where the new file does not pass its check; DamagedFileError, LimitError,
    StorageError. The target is then as it was.
    """
    check_flat(source, to.how.force)
    footer = source.footer()
    sizes = [footer.column_chunks(leaf.index).sizes[group] for leaf in footer.leaves for group in kept]
    with to.begin(source, to.disk_needed(source, 2 * sum(max(0, size) for size in sizes) + len(footer.data))) as new:
        made = _Rewrite(source, kept).write(new)
        with new.reopen() as again:
            made.check(again, workers)
        new.commit(source.check_unchanged)
        return new.at, made.notes


class _Rewrite:
    """The parts of a new version, in the order in which they are written."""

    def __init__(self, source: OpenFile, kept: Mapping[int, Kept]) -> None:
        self.source, self.footer, self.kept = source, source.footer(), kept
        staying = [group for group in range(self.footer.n_row_groups) if group not in kept or kept[group].any()]
        self.numbers = {group: number for number, group in enumerate(staying)}
        self.made: dict[int, NewRowGroup] = {}
        self.ranges: dict[ChunkKey, tuple[int, int]] = {}  # of new filters, by the old number of their row group
        self.places: dict[IndexKind, dict[ChunkKey, tuple[int, int] | None]] = {kind: {} for kind in IndexKind}
        self.notes: list[str] = []
        self.body = Body()
        in_body = [key for key in self.footer.filter_ranges if key[0] not in kept]
        spans = spans_of(source, self.footer, in_body)
        self.lost = [key for key in in_body if spans.get(key) is None]
        self.spans = self._copied({span for span in spans.values() if span is not None})
        self.stored = StoredFilters(source)
        self.readers = [ColumnReader(source, leaf) for leaf in self.footer.leaves]
        self.plans = {group: self._filter_plans(group) for group in kept if kept[group].any()}

    def _copied(self, filters: set[tuple[int, int]]) -> list[tuple[int, int]]:
        """Bytes [start, stop) that stay, in order: pages and filters of row groups that lose no row."""
        spans = set(filters)
        short = may_be_short(self.footer.created_by)
        for i, j, chunk in self.footer.chunks():
            start, stop = chunk_extent(chunk.meta_data)
            if i in self.kept or stop <= start:
                continue
            if short and self.footer.room_at(stop - 1) > 1:  # a page may end behind what the footer says
                where = f"row group {i}, column {self.footer.leaves[j].name}"
                values, writer = chunk.meta_data.num_values, self.footer.created_by
                ends = [page.end for page in page_headers(self.source, where, (start, stop), values, writer)]
                stop = max(stop, *ends)
            spans.add((start, stop))
        ordered = sorted(spans)
        for (_, stop), (start, _) in pairwise(ordered):
            if start < stop:
                raise LayoutError(self.source.path, f"what begins at byte {start:,} overlaps what lies before it")
        return ordered

    # --- filters ----------------------------------------------------------------------------------

    def _filter_plans(self, group: int) -> dict[int, FilterPlan]:
        plans = {}
        for leaf in self.footer.leaves:
            found = self.stored.of(group, leaf)
            if not found:
                continue
            try:
                bloom = found[0].evidence()
                form, reason = form_of_filter(bloom, leaf), "its form or its hash is not certain"
            except (DamagedFileError, FilterFormatError, UnknownFilterError) as error:
                form, reason = None, str(error)
            if form is None:
                self.notes.append(f"the filter of row group {group}, column {leaf.name} is gone: {reason}")
                continue
            start, _ = chunk_extent(self.footer.meta(group, leaf.index))
            offset = found[0].offset
            before = offset is not None and offset < start == offset + self.footer.room_at(offset)
            at_start = bool(form.placements) and (before or "footer" not in form.placements)
            plans[leaf.index] = FilterPlan(form, _sizing_of(form, bloom), at_start)
        return plans

    # --- bytes ------------------------------------------------------------------------------------

    def write(self, new: NewVersion) -> _Rewrite:
        """Write all of it."""
        sink = FileSink(new, self.source)
        self.body = write_body(self._events(), self.footer.start, self.source.read, self._new_group, sink)
        new.at = sink.at
        for group, one in self.made.items():
            for column, built in one.filters.items():
                key = group, column
                if built.data is None and one.truths[column].values:
                    name = self.footer.leaves[column].name
                    self.notes.append(f"the filter of row group {group}, column {name} is gone: {built.reason}")
                elif column in one.starts:
                    self.ranges[key] = self._moves(group)(one.starts[column]), len(built.data or b"")
                elif built.data:
                    self.ranges[key] = new.at, len(built.data)
                    new.append(built.data)
        for kind in (IndexKind.COLUMN, IndexKind.OFFSET):
            self._write_indexes(new, kind)
        with compact.uncollected():
            write_footer(new, self._new_footer(new.at))
        return self

    def _moves(self, group: int) -> Moves:
        """From the offsets of a row group that was written again, see NewRowGroup, to those of the new file."""
        return Moves([(0, self.body.filter_ranges[group, 0][0] - len(MAGIC))])

    def _events(self) -> list[Event]:
        events, at = [], len(MAGIC)
        gaps = []
        for start, stop in [*self.spans, (self.footer.start, self.footer.start)]:
            if at < start:
                gaps.append((at, start))
                events.append(Event(at, start, "cut", (0, 0)))
            at = max(at, stop)
        for group in self.plans:
            first = min(chunk_extent(self.footer.meta(group, j))[0] for j in range(len(self.footer.leaves)))
            gap = next(start for start, stop in gaps if start <= first < stop)
            events.append(Event(gap, gap, "insert", (group, 0)))
        return events

    def _new_group(self, key: ChunkKey) -> bytes:
        group = key[0]
        one = self.made[group] = write_row_group(self.source, self.readers, group, self.kept[group], self.plans[group])
        self.notes += [f"row group {group}, {note}" for note in one.notes]
        data, one.data = one.data, b""
        one.sum = checksum(data)
        return data

    def _write_indexes(self, new: NewVersion, kind: IndexKind) -> None:
        """All page indexes of a kind, side by side: those that there were, but of row groups that go."""
        had, places = self.footer.index_ranges(kind), self.places[kind]
        self.source.prefetch(place for key, place in had.items() if key[0] not in self.kept)
        data = {key: self._index(kind, key, place) for key, place in sorted(had.items()) if key[0] in self.numbers}
        bare = {key[1] for key, one in data.items() if one is None}
        for column in sorted(bare):
            name = self.footer.leaves[column].name
            self.notes.append(f"column {name} has no column index more, as a new row group can have none")
        for key, one in data.items():
            places[key] = None if one is None or key[1] in bare else (new.at, len(one))
            new.append(one if one is not None and places[key] else b"")

    def _index(self, kind: IndexKind, key: ChunkKey, place: tuple[int, int]) -> bytes | None:
        """A page index as it goes into the new file; None of a new column index that cannot be."""
        leaf, one = self.footer.leaves[key[1]], self.made.get(key[0])
        if kind == IndexKind.COLUMN:
            old = self.source.read(*place) if one is None else None
            return old if one is None else column_index_of(leaf, one.truths[leaf.index], is_named=True)
        if one is not None:
            pages = one.pages[leaf.index].copy()
            pages[:, 0] += self._moves(key[0]).total
            return encode_offset_index(pages)
        try:
            return move_offset_index(self.source.read(*place), self.body.moves)
        except FooterError as error:
            where = f"row group {key[0]}, column {leaf.name}"
            raise LayoutError(self.source.path, f"the offset index of {where} cannot be moved: {error}") from error

    # --- the footer -------------------------------------------------------------------------------

    def _new_footer(self, at: int) -> bytes:
        forms = {(group, column): plan.form for group, plans in self.plans.items() for column, plan in plans.items()}
        ranges = {key: (at, n if forms[key].writes_length else None) for key, (at, n) in self.ranges.items()}
        edit = FooterEdit(
            moves=self.body.moves,
            filter_ranges={**dict.fromkeys(self.lost), **ranges},
            texts=self._texts,
            indexes=index_changes(self.places),
            statistics=self._statistics(),
            num_rows=sum(self._rows(group) for group in self.numbers),
            row_groups={**dict.fromkeys(self.kept), **{group: self._struct(group) for group in self.made}},
        )
        try:
            fresh = decode_footer(edit_footer(self.footer.data, edit), at)
            data = edit_footer(fresh.data, self._key_values(fresh))
        except FooterError as error:
            raise LayoutError(self.source.path, f"the footer cannot be edited: {error}") from error
        check_footer_size(self.source, data)
        return data

    def _struct(self, group: int) -> tuple[bytes, Moves]:
        return compact.encode(self.made[group].struct), self._moves(group)

    @property
    def _texts(self) -> dict[ChunkKey, tuple[tuple[str, str], ...]]:
        """Filters that lie in the footer, by the old number of their row group."""
        built = ((group, *item) for group, one in self.made.items() for item in one.filters.items())
        return {(group, column): one.texts for group, column, one in built if one.texts}

    def _rows(self, group: int) -> int:
        return int(self.kept[group].sum()) if group in self.kept else self.footer.rows[group]

    def _statistics(self) -> dict[ChunkKey, StatisticsChanges]:
        """The statistics of new row groups; and no bounds of a column any more where a new one can have none."""
        changes: dict[ChunkKey, StatisticsChanges] = {}
        for leaf in self.footer.leaves if self.made else ():
            column, had = leaf.index, self.footer.bounds_stated(leaf.index)
            truths = {(group, column): one.truths[column] for group, one in self.made.items()}
            bounds = {key: true_bounds(self.footer, key, truth) for key, truth in truths.items()}
            missing = any(truth.values and bounds[key] is None for key, truth in truths.items())
            alike = 3 in had and not groups_without_bounds(self.footer, leaf)
            for key, truth in truths.items():
                changes[key] = statistics_of(self.footer, key, truth, bounds[key] if alike and not missing else None)
            if missing and alike:
                stay = [group for group in self.numbers if group not in self.made and had[group]]
                changes |= {(group, column): dict(_NO_BOUNDS) for group in stay}
                nan = any(truth.nans for truth in truths.values())
                reason = "a new row group has a NaN" if nan else "a new one can have none"
                self.notes.append(f"column {leaf.name} has no min and max more: {reason}")
        return {key: change for key, change in changes.items() if change}

    def _key_values(self, fresh: Footer) -> FooterEdit:
        """The edit that makes provenance speak of the new file, with what takes the place of ours in new row groups."""
        if any(repairs_in(self.footer.key_values)):
            self.notes.append("that its statistics were repaired no longer stands in the file; repair says so again")
        stay = {group: number for group, number in self.numbers.items() if group not in self.kept}
        ranges: dict[IndexKind | None, FilterRangeMap] = {kind: fresh.index_ranges(kind) for kind in IndexKind}
        ranges[None] = all_ranges(fresh)
        added: dict[str, tuple[str | None, Mapping[str, Any], dict[ChunkKey, tuple[int, int | None]]]] = {}
        for kind, there in ranges.items():
            for group, column in sorted(key for entry in read_entries(self.footer, kind) for key in entry.chunks):
                key = self.numbers.get(group, -1), column
                if group in self.made and key in there:
                    form = self.plans[group][column].form if kind is None else None
                    facts = kind_facts(kind) if kind is not None else form.described if form is not None else {}
                    one = added.setdefault(repr((kind, form)), (form.name if form is not None else None, facts, {}))
                    one[2][key] = there[key]
        entries = [
            one for name, facts, new in added.values() for one in new_entries(__version__, name, facts, fresh, new)
        ]
        changes, append = renumbered(self.footer, fresh, stay, ranges, entries)
        return FooterEdit(key_values=changes, append=append, keep_empty=self.footer.key_values == [])

    # --- checks -----------------------------------------------------------------------------------

    def check(self, again: OpenFile, workers: Workers) -> None:
        """Read the new file back before it takes its place. Raises LayoutError."""
        source, footer, columns = self.source, again.footer(), range(len(self.footer.leaves))
        if footer.rows != [self._rows(group) for group in self.numbers] or len(footer.leaves) != len(columns):
            raise wrong(source, "its footer describes other row groups or columns")
        moves, copied = self.body.moves, [(start, min(stop - start, _HEAD_BYTES)) for start, stop in self.spans]
        source.prefetch(copied)
        again.prefetch((moves(start), n) for start, n in copied)
        if any(source.read(start, n) != again.read(moves(start), n) for start, n in copied):
            raise wrong(source, "what was copied is not where it should be")
        for group, number in self.numbers.items():
            one = self.made.get(group)
            metas = [self.footer.meta(group, j) if one is None else one.struct.columns[j].meta_data for j in columns]
            moved = moves if one is None else self._moves(group)
            wanted = [moved(chunk_extent(meta)[0]) for meta in metas]
            if [chunk_extent(footer.meta(number, j))[0] for j in columns] != wanted:
                raise wrong(source, f"the pages of row group {group} are not where they should be")
            if one is not None and checksum(again.read(*self.body.filter_ranges[group, 0])) != one.sum:
                raise wrong(source, f"row group {group} is not as it was written")
        ranges = {(self.numbers[group], column): place for (group, column), place in self.ranges.items()}
        built = [self.made[group].filters[column].data or b"" for group, column in self.ranges]
        check_filters(source, again, dict(zip(ranges, map(checksum, built), strict=True)), ranges, workers)
        check_texts(source, again, {(self.numbers[group], column): one for (group, column), one in self._texts.items()})
        check_opens(source, again)


def _sizing_of(form: Format, found: Filter) -> Sizing:
    """The sizing by which a filter has its size: with fewer values it reaches the same rate in as many bytes."""
    rate = found.fpp if 0 < found.fpp <= USELESS_FPP else form.fpp
    most = 1 << (found.num_bytes - 1).bit_length() if form.placements else form.max_bytes
    return Sizing(rate, max_bytes=min(form.max_bytes, most))
