"""Page indexes as bytes: places of pages, and their bounds; and which values of a page begin a record.

    offset index   of each data page: offset, bytes with its header, first row
    column index   of each data page: whether it has only NULLs, how many, its least and greatest value; and whether
                   these ascend or descend over the pages

A bound has at most 64 bytes. A longer one is cut: the least value is a bound still, the greatest is rounded up, both of
texts at a border between two characters.

Sources: parquet.thrift, OffsetIndex and ColumnIndex; PageIndex.md; Encodings.md, "RLE/bit-packed hybrid".
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import BoundaryOrder, ColumnIndex, OffsetIndex, PageLocation
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.repairs import plain_bound
from parquet_bloom.format.schema import FLBA, Leaf

MOST_BOUND = 64  # bytes
_TEXTS = ("STRING", "ENUM", "JSON")
_LAST_CHARACTER, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


class PageValues(NamedTuple):
    """The values of a data page: how many there are, and NULLs; bounds as format.statistics.domain_of has them."""

    values: int
    nulls: int
    low: Any
    high: Any


def encode_offset_index(pages: NDArray[np.int64]) -> bytes:
    """The bytes of an OffsetIndex.

    pages  int64[n, 3]: offset, bytes with the header, first row of each data page
    """
    locations = [
        PageLocation(offset=at, compressed_page_size=length, first_row_index=row) for at, length, row in pages.tolist()
    ]
    return compact.encode(OffsetIndex(page_locations=locations))


def encode_column_index(leaf: Leaf, pages: Sequence[PageValues]) -> bytes | None:
    """The bytes of a ColumnIndex; None where some bound is too long and cannot be cut.

    pages  of a column with an order, and of which no value is NaN
    """
    lows, highs = [], []
    full = [page for page in pages if page.values]
    for page in full:
        low, high = written_bound(page.low, leaf, is_low=True), written_bound(page.high, leaf, is_low=False)
        if low is None or high is None:
            return None
        lows.append(low)
        highs.append(high)
    # Bytes are compared as they are written: cut ones may change places.
    in_bytes = bool(full) and isinstance(full[0].low, bytes)
    order = _order(lows, highs) if in_bytes else _order([page.low for page in full], [page.high for page in full])
    places = iter(zip(lows, highs, strict=True))
    bounds = [next(places) if page.values else (b"", b"") for page in pages]
    index = ColumnIndex(
        null_pages=[not page.values for page in pages],
        min_values=[low for low, _ in bounds],
        max_values=[high for _, high in bounds],
        boundary_order=order,
        null_counts=[page.nulls for page in pages],
    )
    return compact.encode(index)


def _order(lows: Sequence[Any], highs: Sequence[Any]) -> int:
    if not lows:
        return int(BoundaryOrder.UNORDERED)
    pairs = [*pairwise(lows), *pairwise(highs)]
    if all(before <= after for before, after in pairs):
        return int(BoundaryOrder.ASCENDING)
    return int(BoundaryOrder.DESCENDING if all(before >= after for before, after in pairs) else BoundaryOrder.UNORDERED)


def written_bound(value: Any, leaf: Leaf, is_low: bool) -> bytes | None:
    """The bytes of a bound in a column index; None of one that is too long and cannot be cut."""
    if not isinstance(value, bytes):
        data = plain_bound(value, leaf, is_low)
        return data if data is not None and len(data) <= MOST_BOUND else None
    if len(value) <= MOST_BOUND:
        return value
    if leaf.physical == FLBA:  # readers know its values by their length
        return None
    beginning = value[:MOST_BOUND]
    if leaf.logical in _TEXTS:
        try:
            value.decode()
        except UnicodeDecodeError:  # no text, whatever the schema says: bytes
            pass
        else:
            text = beginning.decode(errors="ignore")
            return text.encode() if is_low else _next_text(text)
    return beginning if is_low else _next_bytes(beginning)


def _next_text(text: str) -> bytes | None:
    """The least text of no more characters and bytes than may be that is greater than all that begin with a text."""
    while text:
        number = ord(text[-1]) + 1
        text = text[:-1]
        if number in _SURROGATES:
            number = _SURROGATES.stop
        if number <= _LAST_CHARACTER and len(greater := (text + chr(number)).encode()) <= MOST_BOUND:
            return greater
    return None


def _next_bytes(data: bytes) -> bytes | None:
    data = data.rstrip(b"\xff")
    return data[:-1] + bytes([data[-1] + 1]) if data else None


# --- repetition levels ----------------------------------------------------------------------------


def records_in(data: bytes, most: int, values: int) -> tuple[int, bool]:
    """The records that begin in a page of version 1, and whether one begins with its first value.

    data    of the page behind its header, decompressed: repetition levels come first, behind their length
    most    the greatest repetition level of the column, at least 1
    values  in the page, at least 1
    Raises FooterError for levels that end before the values.
    """
    length = int.from_bytes(data[:4], "little")
    levels, width = data[4 : 4 + length], most.bit_length()
    if len(data) < 4 + length:
        raise FooterError(f"{length:,} bytes of repetition levels do not fit in a page of {len(data):,}")
    records = done = at = 0
    first = None
    while done < values:
        run, at = _varint(levels, at)
        if run & 1:  # groups of 8 levels, bit-packed
            size = (run >> 1) * width
            bits = np.unpackbits(np.frombuffer(levels[at : at + size], np.uint8), bitorder="little")
            count = min(len(bits) // width, values - done)
            levels_set = bits[: count * width].reshape(-1, width).max(axis=1, initial=0)
            records, at = records + count - int(np.count_nonzero(levels_set)), at + size
            is_record = bool(count and not levels_set[0])
        else:
            count, is_record = min(run >> 1, values - done), not any(levels[at : at + (width + 7) // 8])
            records, at = records + (count if is_record else 0), at + (width + 7) // 8
        if not count or at > len(levels):
            raise FooterError(f"the repetition levels of a page end after {done:,} of {values:,} values")
        first = is_record if first is None else first
        done += count
    return records, bool(first)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 35:
        byte, at = data[at], at + 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise FooterError("the repetition levels of a page end early")
