"""Working out how filters leave a file: cuts, moved offsets, key-values. No writing.

Also the proof that `add` can be undone: before a new file takes its place, its removal is worked
out in memory and must give the old footer and the old page indexes back, byte for byte.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

from parquet_bloom.chunks.locate import spans_of
from parquet_bloom.chunks.tails import tail_of
from parquet_bloom.edit.rewrite import Body, Event, NullSink, check_movable, index_events, write_body
from parquet_bloom.errors import FooterError, LayoutError
from parquet_bloom.formats.footer_filters import changes_of, footer_filters
from parquet_bloom.formats.metadata.edits import FooterEdit, edit_footer
from parquet_bloom.formats.metadata.footer import ChunkKey, Footer
from parquet_bloom.formats.provenance import all_ranges, read_entries, rewritten
from parquet_bloom.storage.source import Source

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Removal:
    """Cuts, and the events that go with them; `stays` are filters whose bytes must stay behind."""

    events: tuple[Event, ...]
    stays: tuple[ChunkKey, ...]


def plan_removal(path: str, footer: Footer, spans: Mapping[ChunkKey, Span | None], force: bool = False) -> Removal:
    """Decide which bytes can be cut out, all or none of them.

    spans  (row group, column) -> the bytes of its filter, None where they are not certain
    Where bytes must not move (docs/formats.md section 6) nothing is cut and only the footer changes.
    """
    cuts: dict[Span, ChunkKey] = {}
    for key, span in sorted(spans.items()):
        if span is not None:
            cuts.setdefault(span, key)
    stays = [key for key, span in spans.items() if span is None]
    shared = _in_use(footer, spans, cuts)
    cuts = {span: key for span, key in cuts.items() if span not in shared}
    events = [Event(start, stop, "cut", key) for (start, stop), key in cuts.items()]
    if _overlapping(events):
        return Removal((), tuple(spans))
    if _moves_something(footer, cuts):
        try:
            check_movable(path, footer, force)
        except LayoutError:
            return Removal((), tuple(spans))
        events += index_events(footer)
        if _overlapping(events):
            return Removal((), tuple(spans))
    return Removal(tuple(sorted(events)), tuple(sorted(stays)))


def _in_use(footer: Footer, spans: Mapping[ChunkKey, Span | None], cuts: Mapping[Span, ChunkKey]) -> set[Span]:
    """Cuts that a filter which is to stay points into."""
    others = sorted(offset for key, (offset, _) in footer.filter_ranges.items() if key not in spans)
    return {cut for cut in cuts if bisect_left(others, cut[0]) < bisect_left(others, cut[1])}


def _overlapping(events: list[Event]) -> bool:
    ordered = sorted(events)
    return any(after.start < before.stop for before, after in pairwise(ordered))


def _moves_something(footer: Footer, cuts: Mapping[Span, ChunkKey]) -> bool:
    if not cuts:
        return False
    first = min(start for start, _ in cuts)
    starts = {start for start, _ in cuts} | {footer.start}
    return any(at >= first and at not in starts for at in footer.structure_starts)


def removal_edit(footer: Footer, chunks: Mapping[ChunkKey, object], body: Body, keep_tails: bool = False) -> FooterEdit:
    """The footer's edit for a body that was written without the filters of `chunks`; keep_tails: older footers stay."""
    moves = body.moves
    left = {key: (moves(at), length) for key, (at, length) in all_ranges(footer).items() if key not in chunks}
    changes, _ = rewritten(footer, left, [], keep_tails)
    gone = [entry for entry in read_entries(footer) if not any(key in left for key in entry.chunks)]
    return FooterEdit(
        moves=moves,
        filter_ranges=dict.fromkeys(chunks),
        texts=changes_of(footer, chunks),
        index_lengths=body.index_lengths,
        key_values=changes,
        keep_empty=any(entry.body.get("empty_list") for entry in gone),
    )


def is_made_from(source: Source, new: Source) -> bool:
    """Whether a file is another one with filters added: taking them out in memory gives its footer and sizes back."""
    old, footer = source.footer(), new.footer()
    if old.n_row_groups != footer.n_row_groups or len(old.leaves) != len(footer.leaves):
        return False
    had = all_ranges(old)
    try:
        check_undoable(source, new, [key for key in all_ranges(footer) if key not in had])
    except (LayoutError, FooterError):
        return False
    return True


def check_undoable(source: Source, new: Source, filter_ranges: Collection[ChunkKey]) -> None:
    """Raise LayoutError unless taking the new filters out again gives the old file back.

    source  the old file
    new     the new one, not yet in its place
    filter_ranges  the (row group, column) that got filters
    """
    old, footer = source.footer(), new.footer()
    tail = tail_of(new)
    if tail is not None and tail.size == source.size and tail.footer.data == old.data:
        return  # it is the beginning of the new file
    stored = footer_filters(footer)
    spans = dict.fromkeys(key for key in filter_ranges if key not in stored) | spans_of(new, footer, filter_ranges)
    removal = plan_removal(source.path, footer, spans, force=True)
    undone = write_body(removal.events, footer.start, new.read, lambda _: None, NullSink())
    # A chunk that got a filter may have had fields that pointed at none (offset 0); those may go.
    void = dict.fromkeys(key for key in filter_ranges if key in old.filter_fields)
    before = edit_footer(old.data, FooterEdit(filter_ranges=void)) if void else old.data
    edit = removal_edit(footer, dict.fromkeys(filter_ranges), undone)
    again = edit_footer(footer.data, edit)
    if removal.stays or undone.size != old.start or again != before:
        reason = "nothing was changed: the file could not be brought back byte for byte by remove"
        raise LayoutError(source.path, reason)
    indexes = [(key, old.chunk(*key)) for key in undone.indexes]
    source.prefetch((chunk.offset_index_offset, chunk.offset_index_length) for _, chunk in indexes)
    for (i, j), data in undone.indexes.items():
        chunk = old.chunk(i, j)
        if source.read(chunk.offset_index_offset, chunk.offset_index_length) != data:
            reason = "nothing was changed: a page index could not be brought back byte for byte by remove"
            raise LayoutError(source.path, reason)
