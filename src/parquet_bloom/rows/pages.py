"""Places of the pages of a column chunk, and those pages that hold the rows that are wanted.

    column chunk  | dictionary | page 0 | page 1 | page 2 | page 3 |     rows wanted: 25,000 and 25,001
    rows                       | 0      | 20,000 | 40,000 | 60,000 |     the dictionary, if it needs it, and page 1

Readers go from page to page by the sizes in their headers, and count rows by the headers' numbers of values. So does
this: its rows are those that a reader of the whole chunk counts. All headers of a chunk are read, also behind the rows
that are wanted, because a wrong number shows in their sum alone. A header that does not decode, a page of an unknown
kind, or a number that does not fit the chunk means that the chunk is read whole.

Source: parquet.thrift, PageHeader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import PageType
from parquet_bloom.errors import DamagedFileError
from parquet_bloom.filters.decode import page_header
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import Outline, Slot, extents
from parquet_bloom.format.schema import Leaf
from parquet_bloom.rows.selection import RowSelection
from parquet_bloom.storage.open_file import OpenFile, Range

_MANY, _SMALL = 1000, 4096  # pages, and bytes of one: more and smaller ones are read by pyarrow as quickly


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of one column chunk that hold the rows wanted.

    leaf        the column
    dictionary  the dictionary page, offset and length; (0, 0) where no page needs it
    pages       int64[n, 2]: offset and length of each page, its header included
    rows        int64[n, 2]: the rows [start, stop) of the row group that each has
    of_pages    how many pages the chunk has
    of_bytes    and how many bytes
    """

    leaf: Leaf
    dictionary: Range
    pages: NDArray[np.int64]
    rows: NDArray[np.int64]
    of_pages: int
    of_bytes: int

    @property
    def n_rows(self) -> int:
        """How many rows these pages have."""
        return int((self.rows[:, 1] - self.rows[:, 0]).sum())

    @property
    def n_bytes(self) -> int:
        """How many bytes are read."""
        return self.dictionary[1] + int(self.pages[:, 1].sum())

    @property
    def spans(self) -> list[Range]:
        """The ranges that are read, in the order of the file; neighbours are one."""
        spans = [self.dictionary] if self.dictionary[1] else []
        for offset, length in self.pages.tolist():
            if spans and sum(spans[-1]) == offset:
                spans[-1] = (spans[-1][0], spans[-1][1] + length)
            else:
                spans.append((offset, length))
        return spans


class _Chunk(NamedTuple):
    """All pages of a chunk.

    dictionary  offset and length of the dictionary page; (0, 0) without one
    pages       int64[n, 3]: offset, length, and 1 where the dictionary is needed
    rows        int64[n, 2]: the rows [start, stop) of each
    """

    dictionary: Range
    pages: NDArray[np.int64]
    rows: NDArray[np.int64]


@derived
def _kept(outline: Outline, row_group: int, column: int) -> list[_Chunk | None]:
    """A place for the pages of a chunk, kept with the outline. Threads may walk twice; each adds a whole chunk."""
    return []


def pages_of(
    source: OpenFile, outline: Outline, row_group: int, leaf: Leaf, wanted: RowSelection
) -> ColumnPages | None:
    """The pages of a column that hold some rows; None where the chunk has to be read whole.

    wanted  at least one row
    Raises StorageError.
    """
    rows = int(outline.rows[row_group])
    start, stop = (int(ends[row_group, leaf.index]) for ends in extents(outline))
    kept = _kept(outline, row_group, leaf.index)
    if not kept:
        sound = not leaf.repeated and outline.slots[Slot.NUM_VALUES, row_group, leaf.index] == rows
        sound = sound and 0 < start < stop <= source.size
        kept.append(_walked(source, start, stop, rows) if sound else None)
    chunk = kept[0]
    if chunk is None or wanted.stop > rows:
        return None
    met = wanted.meets(chunk.rows[:, 0], chunk.rows[:, 1])
    pages = chunk.pages[met]
    dictionary = chunk.dictionary if pages[:, 2].any() else (0, 0)
    return ColumnPages(leaf, dictionary, pages[:, :2], chunk.rows[met], len(chunk.pages), stop - start)


def _walked(source: OpenFile, start: int, stop: int, rows: int) -> _Chunk | None:
    """Read the page headers of a chunk; None for pages that are odd, or have another number of rows than the chunk."""
    at, seen, dictionary = start, 0, (0, 0)
    pages: list[tuple[int, int, bool]] = []
    firsts: list[int] = []
    while seen < rows:
        try:
            head, body = page_header(source, "", at, stop)
        except DamagedFileError:
            return None
        end = body + head.compressed
        if end > stop or (len(pages) > _MANY and at - start < len(pages) * _SMALL):
            return None
        if head.values is not None:
            if head.values != head.rows or not 0 <= head.values <= rows - seen:
                return None
            if head.by_dictionary and not dictionary[1]:
                return None
            pages.append((at, end - at, head.by_dictionary))
            firsts.append(seen)
            seen += head.values
        elif head.kind == PageType.DICTIONARY_PAGE and at == start:
            dictionary = (at, end - at)
        else:
            return None
        at = end
    return _Chunk(
        dictionary,
        np.array(pages, np.int64).reshape(-1, 3),
        np.stack([np.array(firsts, np.int64), np.array([*firsts[1:], seen], np.int64)[: len(firsts)]], axis=1),
    )
