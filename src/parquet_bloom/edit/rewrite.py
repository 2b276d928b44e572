"""The body of a new file: old bytes, copied as they are, with filters put in or cut out.

The old file is cut at events, in the order of their offsets; what lies between is copied. A map of
offsets (formats.metadata.edits.Moves) grows along the way:

    old:  PAR1 [chunk a][chunk b][offset index a][offset index b][footer]
    new:  PAR1 [F a][chunk a][F b][chunk b][offset index a'][offset index b'][footer']
               ^ Insert      ^ Insert     ^ Index        ^ Index

An offset index holds absolute page offsets, so it is written again where bytes before it moved;
its varints may grow, and that moves what follows too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from parquet_bloom.errors import LayoutError
from parquet_bloom.formats.metadata.edits import Moves, has_extension, move_offset_index
from parquet_bloom.formats.metadata.footer import ChunkKey, Footer, chunk_extent


class Sink(Protocol):
    """Where a new body goes."""

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


def index_events(footer: Footer) -> list[Event]:
    """Every offset index of the file."""
    return [
        Event(chunk.offset_index_offset, chunk.offset_index_offset + chunk.offset_index_length, "index", (i, j))
        for i, j, chunk in footer.chunks()
        if (chunk.offset_index_offset or 0) > 0 and (chunk.offset_index_length or 0) > 0
    ]


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
    done, before = 4, "the leading magic"
    for start, stop, where in sorted(spans):
        if start < done:
            raise LayoutError(path, f"{where} begins at {start}, inside {before}, which ends at {done}")
        done, before = stop, where
    if done > footer.start:
        raise LayoutError(path, f"{before} ends at {done}, past the footer's start at {footer.start}")
