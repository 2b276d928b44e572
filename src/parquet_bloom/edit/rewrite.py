"""The body of a new file: old bytes, copied as they are, with filters put in or cut out.

The old file is cut at events, in the order of their offsets; what lies between is copied. A map of
offsets (format.edits.Moves) grows along the way:

    old:  PAR1 [chunk a][chunk b][offset index a][offset index b][footer]
    new:  PAR1 [F a][chunk a][F b][chunk b][offset index a'][offset index b'][footer']
               ^ Insert      ^ Insert     ^ Index        ^ Index

An offset index holds absolute page offsets, so it is written again where bytes before it moved;
its varints may grow, and that moves what follows too.
"""

from __future__ import annotations

import posixpath
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

from parquet_bloom.edit.finish import spans_of
from parquet_bloom.errors import FooterError, LayoutError, parameter
from parquet_bloom.filters.tails import tail_of
from parquet_bloom.format.edits import FooterEdit, Moves, edit_footer, has_extension, index_changes, move_offset_index
from parquet_bloom.format.footer import MAGIC, ChunkKey, Footer, IndexKind, chunk_extent
from parquet_bloom.format.footer_filters import changes_of, footer_filters
from parquet_bloom.format.provenance import Indexes, all_ranges, read_entries, rewritten
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import store_of


class Sink(Protocol):
    """The target of a new body."""

    def copy(self, start: int, stop: int) -> None:
        """Append bytes [start, stop) of the old file."""

    def write(self, data: bytes) -> None:
        """Append new bytes."""


class NullSink:
    """A sink that forgets: for working out a layout in memory."""

    def copy(self, start: int, stop: int) -> None:
        """Do nothing."""

    def write(self, data: bytes) -> None:
        """Do nothing."""


class Event(NamedTuple):
    """Something other than copying at [start, stop) of the old file; they sort by offset.

    kind  "index" (an OffsetIndex that moves its page offsets), "cut" (a filter to leave out),
          "insert" (a filter to put in; start = stop)
    """

    start: int
    stop: int
    kind: str
    key: ChunkKey


@dataclass(slots=True)
class Body:
    """A body as it was written.

    filter_ranges  (row group, column) -> (offset, bytes) of each filter put in, in the new file
    indexes  (row group, column) -> the bytes of its OffsetIndex in the new file
    """

    moves: Moves = field(default_factory=Moves)
    filter_ranges: dict[ChunkKey, tuple[int, int]] = field(default_factory=dict)
    indexes: dict[ChunkKey, bytes] = field(default_factory=dict)
    size: int = 0

    @property
    def index_lengths(self) -> dict[ChunkKey, int]:
        """(row group, column) -> bytes of its moved offset index."""
        return {key: len(data) for key, data in self.indexes.items()}


def write_body(
    events: Sequence[Event],
    end: int,
    read: Callable[[int, int], bytes],
    new_filter: Callable[[ChunkKey], bytes | None],
    sink: Sink,
) -> Body:
    """Write [0, end) of the old file with its events carried out.

    read        (offset, length) -> bytes of the old file
    new_filter  header and bitset to insert for a chunk; None where it gets none after all
    """
    # `body.moves.total` is at each moment by how many bytes the new file is ahead of the old one. A step is added at an
    # event's end, so that only what follows it moves.
    body = Body()
    done = 0  # of the old file
    for event in sorted(events):
        if event.start < done:
            raise ValueError(f"event at {event.start} inside what ends at {done}")
        sink.copy(done, event.start)
        done = event.stop
        if event.kind == "cut":
            body.moves.add(event.stop, event.start - event.stop)
        elif event.kind == "insert":
            data = new_filter(event.key)
            if data is not None:
                body.filter_ranges[event.key] = (event.start + body.moves.total, len(data))
                body.moves.add(event.start, len(data))
                sink.write(data)
        else:
            # The format has page indexes behind all row groups, near the footer (PageIndex.md). So every move that
            # their page offsets need is known here.
            old = read(event.start, event.stop - event.start)
            new = move_offset_index(old, body.moves)
            body.indexes[event.key] = new
            body.moves.add(event.stop, len(new) - len(old))
            sink.write(new)
    sink.copy(done, end)
    body.size = end + body.moves.total
    return body


# --- events of a file -----------------------------------------------------------------------------


def insert_events(footer: Footer, chunks: Sequence[ChunkKey]) -> list[Event]:
    """Filters at the start of their column chunks."""
    events = []
    for i, j in chunks:
        start, _ = chunk_extent(footer.meta(i, j))
        events.append(Event(start, start, "insert", (i, j)))
    return events


def index_events(footer: Footer, gone: Collection[ChunkKey] = ()) -> list[Event]:
    """Every offset index of the file, but of chunks that lose theirs."""
    ranges = footer.index_ranges(IndexKind.OFFSET)
    return [Event(at, at + length, "index", key) for key, (at, length) in ranges.items() if key not in gone]


def check_summaries(files: Iterable[Location]) -> None:
    """Raise LayoutError for files that a summary in `_metadata` is of, in their folder or above those of partitions.

    It says where the pages of each file lie, as dask and fastparquet read them: these would read other bytes.
    """
    seen: set[str] = set()
    for file in files:
        folder = posixpath.dirname(file.path)
        while folder not in seen:
            seen.add(folder)
            if store_of(file).exists(at := posixpath.join(folder, "_metadata")):
                ways = parameter("force", True) + " and write it anew, or give " + parameter("output")
                reason = f"{at} says where the rows of this file are, and what; remove it, give {ways}"
                raise LayoutError(file, f"{reason}; nothing was changed")
            if "=" not in posixpath.basename(folder):
                break
            folder = posixpath.dirname(folder)


def check_movable(path: str, footer: Footer, force: bool = False) -> None:
    """Raise LayoutError where moving bytes could break a file that is sound today."""
    for leaf in footer.leaves:
        if leaf.logical == "FILE":
            raise LayoutError(path, f"column {leaf.name} is of type FILE, whose values are offsets of this file")
    if not force and not footer.exact and has_extension(footer.data):
        raise LayoutError(path, "the footer has a Thrift extension (field 32767), which may hold offsets")
    spans: list[tuple[int, int, str]] = []
    for i, j, chunk in footer.chunks():
        where = f"row group {i}, column {footer.leaves[j].name}"
        if chunk.file_path:
            raise LayoutError(path, f"{where} lies in another file, {chunk.file_path}")
        start, stop = chunk_extent(chunk.meta_data)
        if stop > start:
            spans.append((start, stop, where))
        for offset, length, what in (
            (chunk.offset_index_offset, chunk.offset_index_length, "offset index"),
            (chunk.column_index_offset, chunk.column_index_length, "column index"),
        ):
            if (offset or 0) > 0 and (length or 0) > 0:
                spans.append((offset, offset + length, f"the {what} of {where}"))
    # The structures in order must not overlap: a move would tear what two of them share.
    done, before = len(MAGIC), "the leading magic"
    for start, stop, where in sorted(spans):
        if start < done:
            raise LayoutError(path, f"{where} begins at {start}, inside {before}, which ends at {done}")
        done, before = stop, where
    if done > footer.start:
        raise LayoutError(path, f"{before} ends at {done}, past the footer's start at {footer.start}")


# --- removal --------------------------------------------------------------------------------------
#
# Working out how filters leave a file: cuts, moved offsets, key-values. No writing.
#
# Also the proof that `add` can be undone: before a new file takes its place, its removal is worked
# out in memory and must give the old footer and the old page indexes back, byte for byte.

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Removal:
    """Cuts, and the events that go with them; `stays` are filters whose bytes must stay behind, as indexes' do then."""

    events: tuple[Event, ...]
    stays: tuple[ChunkKey, ...]


def plan_removal(
    path: str,
    footer: Footer,
    spans: Mapping[ChunkKey, Span | None],
    force: bool = False,
    indexes: Indexes | None = None,
) -> Removal:
    """Decide which bytes can be cut out, all or none of them.

    spans    (row group, column) -> the bytes of its filter, None where they are not certain
    indexes  page indexes that go, too
    Where bytes must not move (docs/formats.md section 6) nothing is cut and only the footer changes.
    """
    # Filters that share their bytes, as a damaged footer may have it, make one cut.
    cuts: dict[Span, ChunkKey] = {}
    for key, span in sorted(spans.items()):
        if span is not None:
            cuts.setdefault(span, key)
    for kind, keys in (indexes or {}).items():
        ranges = footer.index_ranges(kind)
        for key in keys:
            at, length = ranges[key]
            if not footer.overlaps_pages(at, at + length):
                cuts.setdefault((at, at + length), key)
    stays = [key for key, span in spans.items() if span is None]
    # Bytes that a filter of another chunk needs stay as well.
    shared = _in_use(footer, spans, cuts, indexes or {})
    cuts = {span: key for span, key in cuts.items() if span not in shared}
    events = [Event(start, stop, "cut", key) for (start, stop), key in cuts.items()]
    if _overlapping(events):
        return Removal((), tuple(spans))
    # Filters at the end of the body, right before the footer, go without a move. Otherwise the rest of the body has to
    # be movable, and offset indexes are written again, each of which is an event that may overlap a cut too.
    if _moves_something(footer, cuts):
        try:
            check_movable(path, footer, force)
        except LayoutError:
            return Removal((), tuple(spans))
        events += index_events(footer, (indexes or {}).get(IndexKind.OFFSET, ()))
        if _overlapping(events):
            return Removal((), tuple(spans))
    return Removal(tuple(sorted(events)), tuple(sorted(stays)))


def _in_use(
    footer: Footer, spans: Mapping[ChunkKey, Span | None], cuts: Mapping[Span, ChunkKey], indexes: Indexes
) -> set[Span]:
    """Cuts that a filter which is to stay points into, or that share a byte with a page index which is to stay."""
    others = [(offset, offset + 1) for key, (offset, _) in footer.filter_ranges.items() if key not in spans]
    for kind in IndexKind:
        gone = indexes.get(kind, ())
        ranges = footer.index_ranges(kind).items()
        others += [(at, at + length) for key, (at, length) in ranges if key not in gone]
    others.sort()
    starts, reach = [start for start, _ in others], [0, *accumulate((stop for _, stop in others), max)]
    return {(start, stop) for start, stop in cuts if reach[bisect_left(starts, stop)] > start}


def _overlapping(events: list[Event]) -> bool:
    ordered = sorted(events)
    return any(after.start < before.stop for before, after in pairwise(ordered))


def _moves_something(footer: Footer, cuts: Mapping[Span, ChunkKey]) -> bool:
    if not cuts:
        return False
    # Some structure lies behind the first cut that is neither cut out itself nor the footer.
    first = min(start for start, _ in cuts)
    starts = {start for start, _ in cuts} | {footer.start}
    return any(at >= first and at not in starts for at in footer.structure_starts)


def removal_edit(
    footer: Footer,
    chunks: Mapping[ChunkKey, object],
    body: Body,
    keep_tails: bool = False,
    indexes: Indexes | None = None,
) -> FooterEdit:
    """The footer's edit for a body that was written without the filters of `chunks`, and without page indexes.

    keep_tails  older footers stay
    """
    moves, lost = body.moves, indexes or {}
    staying = {key: (moves(at), length) for key, (at, length) in all_ranges(footer).items() if key not in chunks}
    ranges = ranges_after(footer, body, lost)
    changes, _ = rewritten(footer, staying, [], keep_tails, ranges)
    # An entry says "empty_list" if `add` found an empty list of key-values. When the entry goes, that list comes back.
    after: list[tuple[IndexKind | None, Collection[ChunkKey]]] = [(None, staying), *ranges.items()]
    gone = [
        entry
        for kind, those in after
        for entry in read_entries(footer, kind)
        if not any(key in those for key in entry.chunks)
    ]
    return FooterEdit(
        indexes=index_changes({kind: dict.fromkeys(keys) for kind, keys in lost.items()}),
        moves=moves,
        filter_ranges=dict.fromkeys(chunks),
        texts=changes_of(footer, chunks),
        index_lengths=body.index_lengths,
        key_values=changes,
        keep_empty=any(entry.body.get("empty_list") for entry in gone),
    )


def ranges_after(footer: Footer, body: Body, lost: Indexes) -> dict[IndexKind, dict[ChunkKey, tuple[int, int]]]:
    """The page indexes that a footer names once its body was written again, but for those that are lost."""
    return {
        kind: {
            key: (body.moves(at), body.index_lengths.get(key, length) if kind == IndexKind.OFFSET else length)
            for key, (at, length) in footer.index_ranges(kind).items()
            if key not in lost.get(kind, ())
        }
        for kind in IndexKind
    }


def is_made_from(source: OpenFile, new: OpenFile) -> bool:
    """Whether a file is another one with filters added: taking them out in memory gives its footer and sizes back."""
    old, footer = source.footer(), new.footer()
    if old.n_row_groups != footer.n_row_groups or len(old.leaves) != len(footer.leaves):
        return False
    had = all_ranges(old)
    indexes = {kind: footer.index_ranges(kind).keys() - old.index_ranges(kind).keys() for kind in IndexKind}
    try:
        check_undoable(source, new, [key for key in all_ranges(footer) if key not in had], indexes)
    except (LayoutError, FooterError):
        return False
    return True


def check_undoable(
    source: OpenFile, new: OpenFile, filter_ranges: Collection[ChunkKey], indexes: Indexes | None = None
) -> None:
    """Raise LayoutError unless taking the new filters and page indexes out again gives the old file back.

    source  the old file
    new     the new one, not yet in its place
    filter_ranges  the (row group, column) that got filters
    indexes  those that got page indexes
    """
    old, footer = source.footer(), new.footer()
    tail = tail_of(new)
    if tail is not None and tail.size == source.size and tail.footer.data == old.data:
        return  # it is the beginning of the new file
    # The removal that `remove` would do, in memory: the sink forgets the body, and keeps its moves and page indexes.
    stored = footer_filters(footer)
    spans = dict.fromkeys(key for key in filter_ranges if key not in stored) | spans_of(new, footer, filter_ranges)
    removal = plan_removal(source.path, footer, spans, True, indexes)
    body = write_body(removal.events, footer.start, new.read, lambda _: None, NullSink())
    footer_then = edit_footer(footer.data, removal_edit(footer, dict.fromkeys(filter_ranges), body, False, indexes))
    # A chunk that got a filter may have had fields that pointed at none (offset 0); those may go.
    void = dict.fromkeys(key for key in filter_ranges if key in old.filter_fields)
    footer_wanted = edit_footer(old.data, FooterEdit(filter_ranges=void)) if void else old.data
    # All bytes of filters go, the body is as long as it was, and the footer is the old one.
    if removal.stays or body.size != old.start or footer_then != footer_wanted:
        reason = "nothing was changed: the file could not be brought back byte for byte by remove"
        raise LayoutError(source.path, reason)
    # All other bytes of the body are copies; offset indexes alone were written anew, so these are compared.
    ranges = old.index_ranges(IndexKind.OFFSET)
    source.prefetch(ranges[key] for key in body.indexes)
    for key, data in body.indexes.items():
        if source.read(*ranges[key]) != data:
            reason = "nothing was changed: a page index could not be brought back byte for byte by remove"
            raise LayoutError(source.path, reason)
