"""Those pages of a column chunk that hold the rows that are wanted.

    column chunk  | dictionary | page 0 | page 1 | page 2 | page 3 |     rows wanted: 25,000 and 25,001
    rows                       | 0      | 20,000 | 40,000 | 60,000 |     the dictionary, if it needs it, and page 1

Where pages lie says the offset index, or else, of a local file, their headers. Of a file on another storage each header
would be a request: without an index a chunk is read whole there, as one is whose pages are odd.

A RowSelection says which rows of a row group are wanted:

rows 0 .. 99 of a row group; 7, 8, 9 and 55 match      ranges [[7, 10], [55, 56]]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import ColumnIndex, PageType
from parquet_bloom.errors import FileError, FooterError
from parquet_bloom.filters.page_places import PagePlaces, extent_of, index_range, indexed_places, walked_places
from parquet_bloom.format import compact
from parquet_bloom.format.arrow_types import fields_of, is_view
from parquet_bloom.format.compact import PageHead, page_head
from parquet_bloom.format.footer import IndexKind, derived
from parquet_bloom.format.outline import NONE, Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import ColumnStatistics, page_statistics, statistics_of
from parquet_bloom.predicates.bind import Bound, Members, Opaque, Term, terms_of
from parquet_bloom.predicates.outcomes import ANY, TRUE, Masks, combine, term_masks
from parquet_bloom.rows.unchanged import opened_as_searched
from parquet_bloom.search.log import FileResult
from parquet_bloom.storage.open_file import OpenFile, Range
from parquet_bloom.storage.remote import submit

if TYPE_CHECKING:
    from concurrent.futures import Future


Positions = NDArray[np.int64]  # int64[n], ascending


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Some rows of a row group, in order.

    ranges  int64[n, 2]: rows [start, stop) of the row group, ascending and apart
    """

    ranges: NDArray[np.int64]

    @classmethod
    def of_positions(cls, positions: Positions) -> RowSelection:
        """The rows at these positions."""
        if not len(positions):
            return cls(np.empty((0, 2), np.int64))
        gaps = np.flatnonzero(np.diff(positions) != 1)
        starts = positions[np.concatenate(([0], gaps + 1))]
        stops = positions[np.concatenate((gaps, [len(positions) - 1]))] + 1
        return cls(np.stack([starts, stops], axis=1))

    @classmethod
    def of_stretches(cls, starts: Positions, stops: Positions) -> RowSelection:
        """The rows of stretches, which are ascending and do not overlap."""
        apart, end = starts[1:] != stops[:-1], np.ones(min(1, len(starts)), bool)
        firsts, lasts = np.concatenate((end, apart)), np.concatenate((apart, end))
        return cls(np.stack([starts[firsts], stops[lasts]], axis=1))

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())

    @property
    def stop(self) -> int:
        """The row behind the last one; 0 without rows."""
        return int(self.ranges[-1, 1]) if len(self.ranges) else 0

    def positions(self) -> Positions:
        """The position of each row in the row group."""
        lengths = self.ranges[:, 1] - self.ranges[:, 0]
        before = np.cumsum(lengths) - lengths
        return np.repeat(self.ranges[:, 0] - before, lengths) + np.arange(int(lengths.sum()))

    def meets(self, starts: Positions, stops: Positions) -> NDArray[np.bool_]:
        """Find which of these stretches of rows have a row of this selection: bool[n]."""
        first = np.searchsorted(self.ranges[:, 1], starts, "right")  # the first range that ends behind the start
        reached = first < len(self.ranges)
        begins = self.ranges[np.minimum(first, len(self.ranges) - 1), 0] if len(self.ranges) else starts
        return reached & (begins < stops) & (starts < stops)


def taken_rows(batch: pa.RecordBatch, at: Positions) -> pa.RecordBatch:
    """The rows at these positions of a batch."""
    if len(at) == batch.num_rows:
        return batch
    return pa.RecordBatch.from_arrays([taken(column, at) for column in batch.columns], schema=batch.schema)


def taken(array: pa.Array, at: Positions) -> pa.Array:
    """The values at these positions of an array; pyarrow takes no views of texts, at no depth."""
    if len(at) == len(array):
        return array
    kind = array.type
    if is_view(kind):
        plain = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        return array.cast(plain).take(pa.array(at)).cast(kind)
    if len(at) and _has_views(kind):
        ranges = RowSelection.of_positions(at).ranges.tolist()
        return pa.concat_arrays([array.slice(start, stop - start) for start, stop in ranges])
    return array.take(pa.array(at)) if len(at) else array.slice(0, 0)


def _has_views(kind: pa.DataType) -> bool:
    return is_view(kind) or any(_has_views(field.type) for field in fields_of(kind))


# --- pages ----------------------------------------------------------------------------------------


_HEADER_BYTES, _LONG_HEADER = 256, 2048  # of a page, in which its header mostly is; and one with long statistics


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of one column chunk that hold the rows wanted.

    leaf      the column
    places    of all pages of the chunk
    chosen    int64[n]: the numbers of those pages
    of_bytes  how many bytes the chunk has
    """

    leaf: Leaf
    places: PagePlaces
    chosen: NDArray[np.int64]
    of_bytes: int

    @property
    def of_pages(self) -> int:
        """How many pages the chunk has."""
        return len(self.places.pages)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The rows [start, stop) of the row group that each page has: int64[n, 2]."""
        return self.places.rows[self.chosen]

    @property
    def n_rows(self) -> int:
        """How many rows these pages have."""
        rows = self.rows
        return int((rows[:, 1] - rows[:, 0]).sum())

    @property
    def n_bytes(self) -> int:
        """How many bytes these pages have, without a dictionary."""
        return int(self.places.pages[self.chosen, 1].sum())

    @property
    def spans(self) -> list[Range]:
        """The ranges that are read, in the order of the file; neighbours are one."""
        spans: list[Range] = []
        for offset, length in self.places.pages[self.chosen].tolist():
            if spans and sum(spans[-1]) == offset:
                spans[-1] = (spans[-1][0], spans[-1][1] + length)
            else:
                spans.append((offset, length))
        return spans

    @property
    def last(self) -> Range:
        """The range of the last page's header, as far as it is read; (0, 0) where no index is to be checked by it."""
        offset, length = self.places.pages[-1].tolist()
        return (0, 0) if self.places.heads is not None else (offset, min(length, _LONG_HEADER))

    @property
    def starts(self) -> list[Range]:
        """The ranges of the pages' headers, as far as these are read."""
        return [(at, min(length, _LONG_HEADER)) for at, length in self.places.pages[self.chosen].tolist()]

    def starts_in(self, bodies: Sequence[bytes]) -> list[bytes]:
        """The bytes of `starts` in those of `spans`."""
        found, own = [], zip(self.spans, bodies, strict=True)
        first, stop, body = 0, 0, b""
        for offset, length in self.starts:
            if offset >= stop:
                (first, size), body = next(own)
                stop = first + size
            found.append(body[offset - first : offset - first + length])
        return found

    def heads(self, starts: Sequence[bytes], last: bytes) -> list[PageHead] | None:
        """The header of each page; None where one says something else than the offset index.

        last  bytes of `last`: where a page before has other rows than the index says, the last one has too
        """
        known = self.places.heads
        if known is not None:
            return [known[page] for page in self.chosen.tolist()]
        numbers = [*self.chosen.tolist(), self.of_pages - 1]
        heads = [_head(data[:_HEADER_BYTES]) or _head(data) for data in (*starts, last)]
        repeated = self.leaf.repeated
        if not all(self.places.agrees(page, head, repeated) for page, head in zip(numbers, heads, strict=True)):
            return None
        return [head for head in heads[:-1] if head is not None]


def is_dictionary(data: bytes) -> bool:
    """Whether some bytes are a dictionary page."""
    head = _head(data[:_HEADER_BYTES]) or _head(data)
    return head is not None and head.kind == PageType.DICTIONARY_PAGE and head.length + head.compressed == len(data)


def _head(data: bytes) -> PageHead | None:
    try:
        return page_head(data)
    except FooterError:
        return None


@derived
def _kept(outline: Outline, row_group: int, column: int) -> list[PagePlaces | None]:
    """The places of a chunk's pages, kept with the outline; the last one counts. Threads may read twice."""
    return []


def has_offset_index(outline: Outline, row_group: int, leaf: Leaf) -> bool:
    """Whether a chunk has one that is believed, or was not read yet."""
    kept = _kept(outline, row_group, leaf.index)
    return kept[-1] is not None if kept else index_range(outline, row_group, leaf.index, IndexKind.OFFSET) is not None


def disbelieve(source: OpenFile, outline: Outline, row_group: int, leaf: Leaf) -> None:
    """Pass over an offset index that a page contradicts: headers say where pages lie, if they can be read."""
    found = None if source.is_remote else walked_places(source, outline, row_group, leaf)
    _kept(outline, row_group, leaf.index).append(found)


def read_places(source: OpenFile, outline: Outline, row_groups: Sequence[int], leaves: Sequence[Leaf]) -> None:
    """Read where the pages of some chunks lie: offset indexes at once, and of a local file headers where one has none.

    Raises StorageError, DamagedFileError.
    """
    missing = [
        (group, leaf, found)
        for group in row_groups
        for leaf in leaves
        if not _kept(outline, group, leaf.index)
        and (found := index_range(outline, group, leaf.index, IndexKind.OFFSET)) is not None
    ]
    for (group, leaf, _), data in zip(missing, source.read_ranges([one for _, _, one in missing]), strict=True):
        places = indexed_places(outline, group, leaf, data)
        if places is not None:
            _kept(outline, group, leaf.index).append(places)
        else:
            disbelieve(source, outline, group, leaf)
    for group in () if source.is_remote else row_groups:
        for leaf in leaves:
            if not (kept := _kept(outline, group, leaf.index)):
                kept.append(walked_places(source, outline, group, leaf))


def places_of(outline: Outline, row_group: int, leaf: Leaf) -> PagePlaces | None:
    """The places of a chunk's pages, if they are known."""
    kept = _kept(outline, row_group, leaf.index)
    return kept[-1] if kept else None


class Ahead:
    """Places of pages that are being read, while other things are."""

    def __init__(self) -> None:
        self._coming: list[Future[None]] = []
        self._local: list[Callable[[], None]] = []

    def read(
        self, file: FileResult, opened: Mapping[int, OpenFile], row_groups: Sequence[int], leaves: Sequence[Leaf]
    ) -> None:
        """Begin to; of a file of this machine when `meanwhile` is called.

        opened  files that are open, by id(DataFile)
        """
        if file.file.is_local:
            self._local.append(partial(_read_places_in, file, opened, row_groups, leaves))
        else:
            self._coming.append(submit(_read_places_in, file, opened, row_groups, leaves))

    def meanwhile(self) -> None:
        """Read those of files of this machine, in the calling thread, which waits for threads of Arrow's otherwise.

        A thread of ours would contend with it for the interpreter, which took longer than both in turn.
        """
        with suppress(FileError):  # it is an error once the places are needed
            while self._local:
                self._local.pop()()

    def wait(self) -> None:
        """Wait for them; what went wrong is an error once the places are needed."""
        from concurrent.futures import wait

        wait(self._coming)
        self._coming.clear()


def _read_places_in(
    file: FileResult, opened: Mapping[int, OpenFile], row_groups: Sequence[int], leaves: Sequence[Leaf]
) -> None:
    assert file.outline is not None
    with opened_as_searched(file, opened) as source:
        read_places(source, file.outline, row_groups, leaves)


def pages_of(outline: Outline, row_group: int, leaf: Leaf, wanted: RowSelection) -> ColumnPages | None:
    """The pages of a column that hold some rows, once places were read; None where the chunk has to be read whole.

    wanted  at least one row
    """
    places = places_of(outline, row_group, leaf)
    if places is None or wanted.stop > outline.rows[row_group]:
        return None
    start, stop = extent_of(outline, row_group, leaf.index)
    met = wanted.meets(places.rows[:, 0], places.rows[:, 1])
    if leaf.repeated and places.heads is None:  # headers do not count rows: the last page is decoded to be checked
        met[-1] = True
    chosen = np.flatnonzero(met)
    return ColumnPages(leaf, places, chosen, stop - start)


def confirmed(source: OpenFile, outline: Outline, row_group: int, leaf: Leaf, wanted: RowSelection) -> bool:
    """Whether the headers of the pages that have some rows agree with their places. Raises as read_places."""
    pages = pages_of(outline, row_group, leaf, wanted)
    if pages is None or pages.places.heads is not None:
        return pages is not None
    *starts, last = source.read_ranges([*pages.starts, pages.last])
    if pages.heads(starts, last) is not None:
        return True
    disbelieve(source, outline, row_group, leaf)
    return False


# --- pages that can match -------------------------------------------------------------------------
#
# Rows of a row group that can match by the bounds of its pages: column indexes as evidence at a term.
#
#     ts BETWEEN 250 AND 300        pages of ts  | 0 .. 99 | 100 .. 199 | 200 .. 299 | 300 .. 399 |
#                                   rows         | 0       | 20,000     | 40,000     | 60,000     |     40,000 .. 79,999
#
# What the bounds of a row group say of all its rows, those of a page say of the page's rows, by the same rules
# (predicates.outcomes), and of the same writers. Pages of different columns begin at different rows: between two edges
# of any of them each term has one set of outcomes, and the predicate has one by them all.
#
# Sources: parquet.thrift, ColumnIndex; PageIndex.md.


def rows_by_pages(
    file: FileResult, row_groups: Sequence[int], nan: str, opened: Mapping[int, OpenFile]
) -> dict[int, RowSelection]:
    """The only rows of row groups that can match, of those of which the bounds of pages exclude half or more.

    nan     as predicates.bind has it
    opened  files that are open, by id(DataFile)
    Raises FileChangedError, StorageError.
    """
    outline, bound = file.outline, file.bound
    if outline is None or bound is None:
        return {}
    chunks: dict[tuple[int, Leaf], Range] = {}
    for term in terms_of(bound):
        if (leaf := _indexed_leaf(term, outline)) is not None:
            masks = term_masks(term, statistics_of(outline, leaf), nan)
            ranges = {
                (group, leaf): index_range(outline, group, leaf.index, IndexKind.COLUMN)
                for group in row_groups
                if masks[group] != TRUE
            }
            chunks |= {chunk: found for chunk, found in ranges.items() if found is not None}
    if not chunks:
        return {}
    leaves = list(dict.fromkeys(leaf for _, leaf in chunks))
    groups = list(dict.fromkeys(group for group, _ in chunks))
    found = {}
    with opened_as_searched(file, opened) as source:
        ahead = Ahead()
        if source.is_remote:
            ahead.read(file, opened, groups, leaves)
        stored = dict(zip(chunks, source.read_ranges(list(chunks.values())), strict=True))
        ahead.wait()
        read_places(source, outline, groups, leaves)
        for group in groups:
            indexes = {leaf: stored[group, leaf] for leaf in leaves if (group, leaf) in stored}
            rows = _selection(outline, bound, group, indexes, nan)
            # A wrong offset index would exclude other rows than the pages have.
            if 2 * rows.count <= outline.rows[group] and all(
                confirmed(source, outline, group, leaf, rows) for leaf in indexes
            ):
                found[group] = rows
    return found


def _indexed_leaf(term: Term, outline: Outline) -> Leaf | None:
    """The column of a term, if it may have bounds of pages that are worth to be read."""
    if isinstance(term, Opaque) or term.leaf.repeated or not 0 <= term.leaf.index < len(outline.leaves):
        return None
    leaf = term.leaf
    if outline.leaves[leaf.index] != leaf or (outline.slots[Slot.COLUMN_INDEX, :, leaf.index] == NONE).all():
        return None
    # Of keys with filters every page has some that are less and some that are greater: not worth to be read.
    has_filter = (outline.slots[Slot.FILTER_OFFSET, :, leaf.index] != NONE).any()
    return None if has_filter and isinstance(term, Members) else leaf


def _selection(outline: Outline, bound: Bound, group: int, indexes: Mapping[Leaf, bytes], nan: str) -> RowSelection:
    pages: dict[Leaf, tuple[NDArray[np.int64], ColumnStatistics]] = {}
    for leaf, data in indexes.items():
        places = places_of(outline, group, leaf)
        with suppress(FooterError):
            index, _ = compact.decode(ColumnIndex, data)
            if places is not None and outline.slots[Slot.TYPE, group, leaf.index] == leaf.physical:
                statistics = page_statistics(outline, leaf, index, places.rows[:, 1] - places.rows[:, 0])
                if statistics is not None:
                    pages[leaf] = places.rows[:, 0], statistics
    starts = np.unique(np.concatenate([np.zeros(1, np.int64), *(firsts for firsts, _ in pages.values())]))
    masks: list[Masks] = []
    for term in terms_of(bound):
        if not isinstance(term, Opaque) and term.leaf in pages:
            firsts, statistics = pages[term.leaf]
            masks.append(term_masks(term, statistics, nan)[np.searchsorted(firsts, starts, "right") - 1])
        elif not isinstance(term, Opaque) and outline.leaves[term.leaf.index : term.leaf.index + 1] == (term.leaf,):
            one = statistics_of(outline, term.leaf).taken(np.array([group]))
            masks.append(np.repeat(term_masks(term, one, nan), len(starts)))
        else:
            masks.append(np.full(len(starts), ANY, np.uint8))
    may = (combine(bound, masks, len(starts)) & TRUE) != 0
    return RowSelection.of_stretches(starts[may], np.append(starts[1:], outline.rows[group])[may])
