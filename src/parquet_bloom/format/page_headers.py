"""Page headers: what kind of page follows, how many bytes it has, and how many values.

    PageHeader  1: type, 2: uncompressed size, 3: compressed size, [4: crc], 5: DataPageHeader | 7: dictionary | 8: V2

A column chunk of a million rows has some fifty of them, each behind the page before it. Through the bindings one takes
10 us. `head_of` reads the headers that writers make of data pages of version 1 in 6, and the bindings all others.

Source: parquet.thrift, PageHeader; thrift's "Compact protocol" specification.
"""

from __future__ import annotations

from typing import NamedTuple

from parquet_bloom._thrift.parquet.ttypes import Encoding, PageHeader, PageType
from parquet_bloom.format import compact

_BY_DICTIONARY = {Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY}
_BITS = 32  # of the numbers that are read here


class PageHead(NamedTuple):
    """The start of a page.

    kind          PageType
    compressed    bytes of the page behind its header; -1 where the header has none
    uncompressed  the same when decompressed
    values        of a data page; None of all other pages, and where the header has no number
    rows          of a data page of version 2; else as `values`, which are as many where no value is repeated
    by_dictionary  whether a data page needs the dictionary page
    length        bytes of the header
    """

    kind: int
    compressed: int
    uncompressed: int
    values: int | None
    rows: int | None
    by_dictionary: bool
    length: int


def head_of(data: bytes) -> PageHead:
    """Read the page header at the start of some bytes. Raises FooterError where these are none, or end before it."""
    try:
        found = _plain(data)
    except IndexError:  # it is longer
        found = None
    if found is not None:
        return found
    header, length = compact.decode(PageHeader, data)
    # Both kinds of data page may have a header in one page header, and the type says which one counts.
    pages = {PageType.DATA_PAGE: header.data_page_header, PageType.DATA_PAGE_V2: header.data_page_header_v2}
    page = pages.get(header.type)
    values = None if page is None else page.num_values
    rows = page.num_rows if page is not None and header.type == PageType.DATA_PAGE_V2 else values
    sizes = [-1 if size is None else size for size in (header.compressed_page_size, header.uncompressed_page_size)]
    by_dictionary = page is not None and page.encoding in _BY_DICTIONARY
    return PageHead(header.type, sizes[0], sizes[1], values, rows, by_dictionary, length)


def _plain(data: bytes) -> PageHead | None:
    """A header of a data page of version 1 with the fields of the format, in order; None for any other."""
    numbers = []
    at = bits = 0
    for _ in range(3):
        if data[at] != 0x15:  # the next field, an i32
            return None
        number, at = _varint(data, at + 1)
        numbers.append(number)
        bits |= number
    before = 3
    if data[at] == 0x15:
        _, at = _varint(data, at + 1)
        before = 4
    if data[at] != (5 - before) << 4 | 12 or numbers[0] != PageType.DATA_PAGE << 1:  # field 5, a struct
        return None
    at += 1
    for _ in range(4):  # values, and the encodings of values and levels
        if data[at] != 0x15:
            return None
        number, at = _varint(data, at + 1)
        numbers.append(number)
        bits |= number
    if data[at] == 0x1C:  # statistics
        at += 1
        while (field := data[at]) != 0:
            at += 1
            if field < 0x10:
                return None
            kind = field & 15
            if kind == 8:
                length, at = _varint(data, at)
                at += length
            elif kind in (5, 6):
                _, at = _varint(data, at)
            elif kind not in (1, 2):
                return None
        at += 1
    if data[at] or data[at + 1] or bits & 1 or bits >> _BITS:  # numbers are zigzag: an odd one is below 0
        return None
    _, uncompressed, compressed, values, encoding, _, _ = numbers
    by_dictionary = encoding >> 1 in _BY_DICTIONARY
    return PageHead(
        PageType.DATA_PAGE, compressed >> 1, uncompressed >> 1, values >> 1, values >> 1, by_dictionary, at + 2
    )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a byte, and where the next one starts. Raises IndexError for one of more than five bytes."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = 0, 0
    while byte >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        byte = data[at]
        if shift > _BITS:
            raise IndexError
    return number | byte << shift, at + 1
