"""How many rows of a column can be decoded at a time within the memory that is allowed, by its page headers.

    | dictionary page: header, bytes | page 0: header, bytes | page 1 | ...      16 KB of zstd can be 2 GB

A page is decompressed whole, and a batch holds its rows' values: as many bytes as the pages they come from, or, out
of a dictionary, up to its longest value for each row. The footer's sizes are claims; a page header's size is what
the reader allocates. Of files on other storages only small chunks are looked at, as each header costs a request.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parquet_bloom._thrift.parquet.ttypes import PageHeader
from parquet_bloom.errors import DamagedFileError, FooterError, LimitError, parameter
from parquet_bloom.formats.thrift import compact
from parquet_bloom.limits import limits
from parquet_bloom.storage.source import Source

_HEADER_BYTES, _MOST_HEADER_BYTES = 256, 16 << 20
_DATA, _DICTIONARY, _DATA_V2 = 0, 2, 3
_REMOTE_MOST = 1 << 20


@dataclass(slots=True)
class PageSizes:
    """What the page headers of a column chunk say.

    dictionary  bytes of the dictionary page, decompressed
    values      of each data page
    bytes       of each data page, decompressed
    """

    dictionary: int = 0
    values: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)


def page_sizes(source: Source, extent: tuple[int, int], num_values: int) -> PageSizes | None:
    """Walk over the page headers of a chunk; None where they are not looked at, or end in what is none.

    extent  where the pages lie, start and end; num_values of the chunk: readers stop there
    """
    at, stop = extent
    stop = min(stop, source.size)
    if source.is_remote:
        if stop - at > _REMOTE_MOST:
            return None
        source.prefetch([(at, stop - at)])  # the pages are read from there, too
    found, seen = PageSizes(), 0
    while at < stop and seen < num_values:
        header, size = _header(source, at, stop)
        if header is None or (header.compressed_page_size or 0) < 0 or (header.uncompressed_page_size or 0) < 0:
            return found  # the decoder says what is wrong
        data = header.data_page_header or header.data_page_header_v2
        if header.type == _DICTIONARY:
            found.dictionary = max(found.dictionary, header.uncompressed_page_size or 0)
        elif header.type in (_DATA, _DATA_V2) and data is not None:
            found.values.append(max(0, data.num_values or 0))
            found.bytes.append(header.uncompressed_page_size or 0)
            seen += found.values[-1]
        at += size + (header.compressed_page_size or 0)
    return found


def _header(source: Source, at: int, stop: int) -> tuple[PageHeader | None, int]:
    length = _HEADER_BYTES
    while True:
        try:
            return compact.decode(PageHeader, source.read_up_to(at, min(length, stop - at)))
        except FooterError:
            if length >= min(stop - at, _MOST_HEADER_BYTES):
                return None, 0
            length *= 16
        except DamagedFileError:
            return None, 0


def check_page(path: str, where: str, sizes: PageSizes, longest: int, repeated: bool) -> None:
    """Raise LimitError where one page, or one value, takes more than half of max_memory.

    where  "row group 3, column id", for the error; the others as rows_at_once has them
    """
    most = limits().max_memory
    page = max(sizes.bytes, default=0) + sizes.dictionary
    held = max(sizes.values, default=0) * longest if repeated else longest
    if 2 * max(page, held) > most:
        what = f"a page of it takes {page} bytes" if page >= held else f"values of one page take {held} bytes"
        hint = "raise it for a file that you trust"
        half = "over half of " + parameter("max_memory")
        raise LimitError(path, f"{where}: {what} when decoded, " + half + f", {most}; {hint}")


def rows_at_once(sizes: PageSizes, rows: int, longest: int, wanted: int, repeated: bool) -> int:
    """How many rows to decode at a time, at most `wanted`: half of max_memory is for pages, half for values.

    sizes     that passed check_page
    rows      of the row group
    longest   bytes that one value takes at most, where pages hold less: of a fixed width, or in the dictionary
    repeated  whether a row may have several values
    """
    most = limits().max_memory
    values, pages = np.array(sizes.values, np.int64), np.array(sizes.bytes, np.int64)
    per_row = max(1, -(-int(values.sum()) // max(rows, 1))) if repeated else 1
    reach = np.concatenate(([0], np.cumsum(pages)))
    ends = np.cumsum(values)
    count = wanted
    while count > 1:
        last = np.minimum(np.searchsorted(ends, ends - values + count * per_row, "left") + 1, len(ends))
        window = int((reach[last] - reach[:-1]).max(initial=0))
        if 2 * max(window, count * per_row * longest) <= most:
            break
        count //= 2
    return count
