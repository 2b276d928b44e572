"""Places of the pages of a column chunk, and the rows that they have: by its offset index, or by its page headers.

    column chunk  | dictionary | page 0 | page 1 | page 2 | page 3 |     a page: its header and its bytes
    rows                       | 0      | 20,000 | 40,000 | 60,000 |     first_row: of the row group, from 0

An offset index has these numbers in one place. Headers lie before their pages: who walks from one to the next reads
all of them, and counts as a reader of the whole chunk does. Pages of version 1 in a repeated column say how many values
they have, and not how many rows; no header tells these.

Both are words of a file. An index counts only if its pages fill the chunk from end to end and its rows begin at 0 and
ascend; and a page of it only if its header and that of the last page agree (`agrees`), which is known once they were
read. A page before them with other rows than the index says leaves other rows for the last one. A walk counts only if
its pages have the chunk's values and the row group's rows.

Sources: parquet.thrift, PageHeader and OffsetIndex; PageIndex.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import Encoding, FieldRepetitionType, OffsetIndex, PageHeader, PageType
from parquet_bloom.errors import DamagedFileError, FooterError, first_line, parameter
from parquet_bloom.format import compact
from parquet_bloom.format.compact import PageHead, page_head
from parquet_bloom.format.footer import MAGIC, Footer, IndexKind
from parquet_bloom.format.outline import NONE, Outline, Slot, extents_in
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.walked import INDEX_SLOTS, elements_to
from parquet_bloom.options import limits
from parquet_bloom.storage.open_file import OpenFile, Range

# --- page headers ---------------------------------------------------------------------------------

_HEADER_BYTES, _MOST_HEADER_BYTES = 256, 16 << 20  # read first, and at most: a header may hold statistics
_SHORT_BY = 100  # bytes, of a dictionary's header


class Page(NamedTuple):
    """A page of a column chunk: its header, and where this and the next page begin, bytes from the file's start."""

    head: PageHead
    at: int
    end: int

    @property
    def is_data(self) -> bool:
        """Whether it has values; readers pass over pages of other kinds."""
        return is_data(self.head)

    @property
    def num_values(self) -> int:
        """How many values it has, NULLs included; 0 of a page of another kind."""
        return max(0, self.head.values or 0)


def is_data(head: PageHead) -> bool:
    """Whether a page has values."""
    return head.kind in (PageType.DATA_PAGE, PageType.DATA_PAGE_V2)


def may_be_short(created_by: str | None) -> bool:
    """Whether pages may end behind the chunk: old writers did not count a dictionary's header in it, PARQUET-816."""
    return "parquet-mr" in (created_by or "").lower()


def page_headers(
    source: OpenFile, where: str, extent: tuple[int, int], num_values: int, created_by: str | None
) -> Iterator[Page]:
    """The pages of a chunk, in order.

    where       "row group 3, column id", for the error
    extent      where the pages lie, start and end; num_values of the chunk: readers stop there
    created_by  of the footer: pyarrow reads on behind the end of old writers' chunks
    Raises DamagedFileError for a header that does not decode, and for a page that ends behind the file.
    """
    # compressed_page_size counts the bytes behind a header, so header and that lead to the next one. Readers stop at
    # num_values, not at the chunk's end, and so does this.
    at, stop = extent
    if may_be_short(created_by):
        stop += _SHORT_BY
    stop = min(stop, source.size)
    seen = 0
    while at < stop and seen < num_values:
        head, start = _page_header(source, where, at, stop)
        page = Page(head, at, start + head.compressed)
        if page.end > source.size:
            text = f"{where}: the page at byte {at} ends at byte {page.end} by its header, the file has {source.size}"
            raise DamagedFileError(source.path, text)
        yield page
        seen += page.num_values
        at = page.end


def _page_header(source: OpenFile, where: str, at: int, stop: int) -> tuple[PageHead, int]:
    """The page header at a byte, and where it ends."""
    length = _HEADER_BYTES
    while True:
        try:
            head = page_head(source.read_up_to(at, min(length, stop - at)))
        except FooterError as error:
            if length < min(stop - at, _MOST_HEADER_BYTES):
                length *= 16
                continue
            text = f"{where}: the page header at byte {at} does not decode: {first_line(error)}"
            raise DamagedFileError(source.path, text) from error
        if head.compressed < 0 or head.uncompressed < 0:
            raise DamagedFileError(source.path, f"{where}: the page header at byte {at} has no size, or one below 0")
        return head, at + head.length


# --- places ---------------------------------------------------------------------------------------

_MANY, _SMALL = 1000, 4096  # pages, and bytes of one: more and smaller ones are read by pyarrow as quickly
_MOST_INDEX = 256 << 10  # bytes of an offset or column index that is read: of some 20,000 pages


class PagePlaces(NamedTuple):
    """All data pages of a chunk.

    dictionary  offset and length of the dictionary page; (0, 0) without one
    pages       int64[n, 2]: offset and length of each, header included, bytes from the start of the file
    rows        int64[n, 2]: the rows [start, stop) of the row group that each has
    heads       the header of each, of those who walked; None: an index says all this, and no header was read
    """

    dictionary: Range
    pages: NDArray[np.int64]
    rows: NDArray[np.int64]
    heads: tuple[PageHead, ...] | None

    def agrees(self, page: int, head: PageHead | None, repeated: bool) -> bool:
        """Whether the header of a page says the same: None is one that does not decode."""
        if head is None or not is_data(head) or head.values is None:
            return False
        rows = int(self.rows[page, 1] - self.rows[page, 0])
        if head.length + head.compressed != self.pages[page, 1] or head.uncompressed < 0:
            return False
        # Of a page of version 1 in a repeated column the values are at least as many as the rows.
        counts_rows = not repeated or head.kind == PageType.DATA_PAGE_V2
        return head.rows == rows and head.values >= rows if counts_rows else head.values >= rows


def index_range(outline: Outline, row_group: int, column: int, kind: IndexKind) -> Range | None:
    """The range of a page index of a chunk; None where there is none, or none that is read."""
    at, size = (int(outline.slots[slot, row_group, column]) for slot in INDEX_SLOTS[kind])
    if NONE in (at, size) or not (len(MAGIC) <= at and 0 < size <= _MOST_INDEX and at + size <= outline.start):
        return None
    return at, size


def extent_of(outline: Outline, row_group: int, column: int) -> tuple[int, int]:
    """Start and stop of one chunk's pages, as format.outline.extents has them of all chunks."""
    start, stop = extents_in(outline.slots[:, row_group, column : column + 1])
    return int(start[0]), int(stop[0])


def _chunk(outline: Outline, row_group: int, leaf: Leaf) -> tuple[int, int, int, int] | None:
    """Start and stop of a chunk, its rows and values; None where these contradict each other."""
    start, stop = extent_of(outline, row_group, leaf.index)
    rows, values = int(outline.rows[row_group]), int(outline.slots[Slot.NUM_VALUES, row_group, leaf.index])
    sound = rows > 0 and 0 < start < stop <= outline.start
    return (start, stop, rows, values) if sound and (values >= rows if leaf.repeated else values == rows) else None


def first_page_rows(source: OpenFile, outline: Outline, row_group: int, leaf: Leaf) -> int:
    """The rows of a chunk's first data page by its header, its values where that counts no rows; 0: it says neither.

    Raises StorageError.
    """
    chunk = _chunk(outline, row_group, leaf)
    if chunk is not None:
        with suppress(DamagedFileError):
            for page in page_headers(source, "", chunk[:2], 1, None):
                if is_data(page.head):
                    return max(0, page.head.rows or 0)
    return 0


def indexed_places(outline: Outline, row_group: int, leaf: Leaf, data: bytes) -> PagePlaces | None:
    """Read an offset index; None where it does not agree with the chunk.

    data  of the index, as `index_range` has its place
    """
    chunk = _chunk(outline, row_group, leaf)
    if chunk is None:
        return None
    start, stop, rows, _ = chunk
    try:
        found, _ = compact.decode(OffsetIndex, data)
        numbers = [(one.offset, one.compressed_page_size, one.first_row_index) for one in found.page_locations or ()]
        table = np.array(numbers, np.int64).reshape(-1, 3)
    except (FooterError, TypeError, OverflowError):  # a number that is missing, or is none
        return None
    offsets, lengths, firsts = table.T
    if not len(table) or (lengths <= 0).any() or (lengths > stop - start).any():
        return None
    # The pages fill the chunk, behind a dictionary page, of which the footer may say nothing.
    first, by_footer = int(offsets[0]), int(outline.slots[Slot.DATA_PAGE, row_group, leaf.index])
    if first < start or first != by_footer != start:
        return None
    if (np.append(offsets[1:], stop) != offsets + lengths).any():
        return None
    stops = np.append(firsts[1:], rows)
    if firsts[0] != 0 or (stops <= firsts).any():  # a page without rows would be nobody's: it is never read
        return None
    dictionary = (start, first - start) if first > start else (0, 0)
    return PagePlaces(dictionary, table[:, :2], np.stack([firsts, stops], axis=1), None)


def walked_places(source: OpenFile, outline: Outline, row_group: int, leaf: Leaf) -> PagePlaces | None:
    """Read all page headers of a chunk.

    None for pages that are odd, have other numbers of values and rows than the chunk and the row group, or do not say
    how many rows they have. Raises StorageError.
    """
    chunk = _chunk(outline, row_group, leaf)
    if chunk is None:
        return None
    start, stop, rows, values = chunk
    dictionary: Range = (0, 0)
    heads: list[PageHead] = []
    pages: list[Range] = []
    counts: list[int] = []
    seen = 0
    try:
        for head, at, end in page_headers(source, "", (start, stop), values, None):
            if end > stop or (len(pages) > _MANY and at - start < len(pages) * _SMALL):
                return None
            if head.kind == PageType.DICTIONARY_PAGE and at == start:
                dictionary = (at, end - at)
                continue
            told = not leaf.repeated or head.kind == PageType.DATA_PAGE_V2
            if not is_data(head) or not told or head.values is None or head.rows is None:
                return None
            if not 0 <= head.rows <= head.values <= values - seen or (not leaf.repeated and head.rows != head.values):
                return None
            if head.by_dictionary and not dictionary[1]:
                return None
            heads.append(head)
            pages.append((at, end - at))
            counts.append(head.rows)
            seen += head.values
    except DamagedFileError:
        return None
    stops = np.cumsum(np.array(counts, np.int64))
    if seen != values or int(stops[-1]) != rows:
        return None
    ends = np.stack([stops - counts, stops], axis=1)
    return PagePlaces(dictionary, np.array(pages, np.int64).reshape(-1, 2), ends, tuple(heads))


# --- all pages of a chunk, for an offset index ------------------------------------------------------

_CODECS = {0: None, 1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}  # that pyarrow decompresses as it is


def data_pages(
    source: OpenFile, row_group: int, leaf: Leaf, walked: Iterable[Page] | None = None
) -> NDArray[np.int64] | str:
    """Walk over a chunk for its offset index, whatever its pages are.

    walked   its pages, by somebody who walked over it already
    returns  int64[n, 3]: offset, bytes with the header, and first row of each data page; or why there can be none
    Pages of other kinds are passed over. Of a file on another storage the chunk is read whole. Raises StorageError.
    """
    footer = source.footer()
    chunks, rows = footer.column_chunks(leaf.index), footer.rows[row_group]
    extent, values = chunks.extents[row_group], chunks.num_values[row_group]
    if not len(MAGIC) <= extent[0] < extent[1] <= footer.start:
        return f"its pages take the bytes {extent[0]:,} to {extent[1]:,}, and the footer begins at {footer.start:,}"
    if walked is None:
        source.prefetch([(extent[0], extent[1] - extent[0])])
        walked = page_headers(source, "", extent, values, footer.created_by)
    found: list[tuple[int, int, int]] = []
    row = seen = 0
    try:
        for page in walked:
            if len(found) >= limits().max_list_elements:
                return f"it has over {len(found):,} pages, more than " + parameter("max_list_elements")
            if page.end > footer.start:
                return f"the page at byte {page.at:,} ends at byte {page.end:,}, behind the footer's start"
            if page.is_data:
                found.append((page.at, page.end - page.at, row))
                records = _records(source, footer, chunks.codecs[row_group], leaf, page)
                if isinstance(records, str):
                    return f"the page at byte {page.at:,} {records}"
                row, seen = row + records, seen + page.num_values
    except DamagedFileError as error:
        return error.reason.removeprefix(": ")
    if (seen, row) != (values, rows):
        return f"its pages have {seen:,} values in {row:,} rows, the footer says {values:,} in {rows:,}"
    return np.array(found, np.int64).reshape(-1, 3)


def _records(source: OpenFile, footer: Footer, codec: int, leaf: Leaf, page: Page) -> int | str:
    """The rows of a page, all of which begin in it; or what is wrong about it."""
    head = page.head
    if page.num_values <= 0 or head.rows is None or not 0 < head.rows <= page.num_values:
        return "has no rows"
    if not leaf.repeated or head.kind == PageType.DATA_PAGE_V2:
        return head.rows if leaf.repeated or head.rows == page.num_values else "has other numbers of values and rows"
    from parquet_bloom.format.page_indexes import records_in  # nothing else of `check` and `verify` needs it

    most = sum(one.repetition_type == FieldRepetitionType.REPEATED for one in elements_to(footer, leaf))
    if max(head.compressed, head.uncompressed) > limits().max_memory // 2:
        return "takes over half of " + parameter("max_memory") + " when decompressed"
    if codec not in _CODECS:
        return "is compressed by a codec of which repetition levels are not read"
    data = source.read(page.at, page.end - page.at)
    header, start = compact.decode(PageHeader, data)
    if header.data_page_header.repetition_level_encoding != Encoding.RLE:
        return "has repetition levels that are not RLE"
    try:
        body: bytes | memoryview = data[start:]
        if (name := _CODECS[codec]) is not None:
            body = pa.decompress(body, head.uncompressed, name, asbytes=True)
        records, begins = records_in(bytes(body), most, page.num_values)
    except (FooterError, pa.ArrowException, OSError, ValueError) as error:
        return f"has repetition levels that do not decode: {first_line(error)}"
    return records if begins else "begins inside a row"
