"""Whether a filter is sound, how large it is and how full, by its header and at most its first 16 KiB.

A hash spreads values over all blocks alike, so the first blocks of a filter are as full as the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parquet_bloom.chunks.locate import contradiction, read_header
from parquet_bloom.chunks.stored import InBody, StoredFilter, StoredFilters, is_sound
from parquet_bloom.errors import DamagedFileError, FilterFormatError, UnknownFilterError
from parquet_bloom.formats.filters import HEADER_BYTES
from parquet_bloom.formats.metadata.footer import ChunkKey
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.kernels import split_block
from parquet_bloom.storage.source import Source

FIRST_BYTES = 16 << 10  # of a bitset
_AT_ONCE = 16 << 20  # bytes that are fetched together


@dataclass(frozen=True, slots=True)
class Glance:
    """One filter.

    sound      readers use it, as far as its header and its place show
    num_bytes  of the bitset; 0 where the header is not understood
    fpp        false positive rate: of a larger filter that of its first FIRST_BYTES; None where it is not sound
    """

    sound: bool
    num_bytes: int = 0
    fpp: float | None = None


def glances(source: Source, chunks: Sequence[tuple[int, Leaf]]) -> Iterator[tuple[ChunkKey, Glance]]:
    """Look at all filters of some chunks, (row group, column) of one file. Raises StorageError and as Source.footer.

    What lies close together is read at once, and on a remote storage side by side.
    """
    filters = StoredFilters(source)
    stored = [one for group, leaf in chunks for one in filters.of(group, leaf)]
    first = size = 0
    for number, one in enumerate(stored):
        size += _first_bytes(one)[1]
        if size >= _AT_ONCE or number + 1 == len(stored):
            some, first, size = stored[first : number + 1], number + 1, 0
            source.prefetch(at for at in map(_first_bytes, some) if at[1])
            yield from (((one.row_group, one.leaf.index), _glance(source, one)) for one in some)


def _first_bytes(stored: StoredFilter) -> tuple[int, int]:
    offset, length = stored.extent or (0, 0)
    return offset, min(length, HEADER_BYTES + FIRST_BYTES)


def _glance(source: Source, stored: StoredFilter) -> Glance:
    if isinstance(stored, InBody) and stored.range.total > HEADER_BYTES + FIRST_BYTES and stored.refusal is None:
        found = _large(source, stored)
        if found is not None:
            return found
    told = stored.describe()
    if stored.refusal is not None or not is_sound(told):
        return Glance(False, told.num_bytes)
    return Glance(True, told.num_bytes, None if told.bloom is None else told.bloom.fpp)


def _large(source: Source, stored: InBody) -> Glance | None:
    """A filter of which its beginning is read; None: nothing is set there, so that all of it has to be looked at."""
    try:
        header = read_header(source, stored.range)
    except (UnknownFilterError, FilterFormatError, DamagedFileError):
        return Glance(False)
    if header.num_bytes <= FIRST_BYTES:  # its range is longer: it contradicts itself, or has no length
        return None
    if contradiction(header, stored.range) is not None:
        return Glance(False, header.num_bytes)
    data = source.read_up_to(stored.offset + header.candidates[0].bits_at, FIRST_BYTES - HEADER_BYTES)
    blocks = split_block.from_bytes(data[: len(data) // 32 * 32])
    return Glance(True, header.num_bytes, split_block.exact_rate(blocks)) if blocks.any() else None
