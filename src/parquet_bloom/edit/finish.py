"""The end of every rewrite: its footer, and the checks before it counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain

import numpy as np
import pyarrow.parquet as pq
import xxhash

from parquet_bloom.errors import (
    DamagedFileError,
    EncryptedFileError,
    FilterFormatError,
    LayoutError,
    NotParquetError,
    parameter,
)
from parquet_bloom.filters.decode import PYARROW_ERRORS
from parquet_bloom.filters.locate import (
    FilterRange,
    RangesByChunk,
    contradiction,
    filter_ranges_of,
    header_of,
    read_header,
)
from parquet_bloom.format.edits import Moves
from parquet_bloom.format.filters import HEADER_BYTES, decode_filter
from parquet_bloom.format.footer import MAGIC, ChunkKey, Footer, chunk_extent
from parquet_bloom.format.footer_filters import footer_filters
from parquet_bloom.format.outline import Outline
from parquet_bloom.output.draft import NewVersion
from parquet_bloom.storage.open_file import OpenFile, Range
from parquet_bloom.storage.workers import Workers

_PAGE_HEADER_BYTES = 64  # of a moved chunk's first page, compared with the old file's
_AT_ONCE = 1 << 20  # bytes of filters that are read back together, and stay in the processor's cache for their checksum
_HEAD_BYTES = 64  # more than the header of a filter takes
_FOOTER_BYTES = 90_000_000  # Thrift's readers take no message of 100 MB


def write_footer(new: NewVersion, data: bytes) -> None:
    """Append footer, length and magic."""
    new.append(data + len(data).to_bytes(4, "little") + MAGIC)


def checksum(data: bytes) -> int:
    """The checksum of bytes that are read back: XXH3, 64 bits, eight times as fast as a CRC."""
    return xxhash.xxh3_64_intdigest(data)


def check_written(source: OpenFile, new: OpenFile, moves: Moves) -> None:
    """Read a new file back before it takes its place. Raises LayoutError, and the target stays.

    source     the old file
    new        the new one
    """
    with _damage_is_wrong(source):
        old_footer, new_footer = source.footer(), new.footer()
        if len(new_footer.leaves) != len(old_footer.leaves) or new_footer.n_row_groups != old_footer.n_row_groups:
            raise wrong(source, "its footer describes other row groups or columns")
        if moves:
            _check_pages(source, new, moves)
    check_opens(source, new)


def check_filters(
    source: OpenFile,
    new: OpenFile,
    checksums: Mapping[ChunkKey, int],
    filter_ranges: Mapping[ChunkKey, tuple[int, int]],
    workers: Workers,
) -> None:
    """Every new filter is as it was built, lies where the footer says, and agrees with all around it, or LayoutError.

    checksums      (row group, column) -> `checksum` of the filter's header and bitset as they were built
    filter_ranges  (row group, column) -> (offset, bytes) of the new filters
    workers        read them back side by side
    """
    # Two questions of each filter: are its bytes those that were built (the checksum), and would a reader find them by
    # the new footer alone? The second is answered for most by arrays, for all columns' chunks at once.
    with _damage_is_wrong(source):
        outline = outline_or_none(new)
        fits = fitting_ranges(outline, filter_ranges) if outline is not None else {}
        recorded: RangesByChunk | None = None
        batches = ([filter_ranges[key] for key in batch] for batch in _batches(filter_ranges))
        read_back = workers.in_order(lambda ranges: _read_back(new, ranges), batches)
        for key, (found, head) in zip(filter_ranges, chain.from_iterable(read_back), strict=True):
            offset, length = filter_ranges[key]
            at, num_bytes = fits.get(key, (None, 0))
            as_built = found == checksums[key]
            # A filter of `final` whose length the footer names fits; its header is the last thing to compare.
            if as_built and at == offset and head[: max(0, length - num_bytes)] == header_of(num_bytes):
                continue
            recorded = recorded or RangesByChunk(new.footer())
            _check_filter(source, new, key, filter_ranges[key], as_built, recorded[key])


def _check_filter(
    source: OpenFile, new: OpenFile, key: ChunkKey, where: Range, as_built: bool, recorded: FilterRange | None
) -> None:
    """Check a filter by decoding it, where its place in the footer, its length and header prove too little."""
    offset, length = where
    try:
        if recorded is None or recorded.offset != offset or not as_built:
            raise FilterFormatError("it is not where the footer says, or not as it was built")
        problem = contradiction(decode_filter(new.read(offset, length), length, recorded.rule).header, recorded)
        if problem is not None:
            raise FilterFormatError(problem)
    except FilterFormatError as error:
        raise wrong(source, f"the filter of row group {key[0]}, column {key[1]}: {error}") from error


def _read_back(new: OpenFile, ranges: Sequence[Range]) -> list[tuple[int, bytes]]:
    """Checksum and first bytes of each range; a single one may be large and is read in parts."""
    if len(ranges) > 1:
        return [(checksum(data), data[:_HEAD_BYTES]) for data in new.read_ranges(ranges)]
    ((offset, length),) = ranges
    summed, head = xxhash.xxh3_64(), b""
    for at in range(offset, offset + length, _AT_ONCE):
        data = new.read(at, min(_AT_ONCE, offset + length - at))
        summed.update(data)
        head = head or data[:_HEAD_BYTES]
    return [(summed.intdigest(), head)]


def _batches(filter_ranges: Mapping[ChunkKey, tuple[int, int]]) -> Iterator[list[ChunkKey]]:
    """The chunks in parts whose filters take _AT_ONCE bytes, or one each."""
    batch: list[ChunkKey] = []
    size = 0
    for key, (_, length) in filter_ranges.items():
        if batch and size + length > _AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(key)
        size += length
    if batch:
        yield batch


def check_texts(source: OpenFile, new: OpenFile, texts: Mapping[ChunkKey, Sequence[tuple[str, str]]]) -> None:
    """The filters in column metadata are those that were built, and decode. Raises LayoutError."""
    footer = new.footer() if texts else None
    for key, pairs in texts.items():
        assert footer is not None
        stored = footer_filters(footer).get(key)
        try:
            if stored is None or stored.pairs != tuple(pairs):
                raise FilterFormatError("it is not as it was built")
            stored.decode(footer.leaves[key[1]])
        except FilterFormatError as error:
            raise wrong(source, f"the filter of row group {key[0]}, column {key[1]}: {error}") from error


def check_footer_size(source: OpenFile, data: bytes) -> None:
    """Raise LayoutError for a footer that readers would refuse."""
    if len(data) > _FOOTER_BYTES:
        reason = f"nothing was changed: the footer would take {len(data):,} bytes, and readers refuse 100 MB"
        ways = "choose fewer columns, a higher " + parameter("fpp") + ", or " + parameter("form", "final")
        raise LayoutError(source.path, f"{reason}; " + ways)


def _check_pages(source: OpenFile, new: OpenFile, moves: Moves) -> None:
    """The first page header of every moved chunk lies where the footer says and is the old one."""
    old_footer, new_footer = source.footer(), new.footer()
    starts: list[tuple[int, int, int, int, int]] = []
    for i, j, chunk in old_footer.chunks():
        start, stop = chunk_extent(chunk.meta_data)
        moved, _ = chunk_extent(new_footer.meta(i, j))
        # Remote bytes at an offset that stays were read for the copy, and reading them again proves nothing.
        compared = not source.is_remote or moved != start
        starts.append((i, j, start, moved, max(0, min(stop - start, _PAGE_HEADER_BYTES)) if compared else 0))
    source.prefetch((start, n) for _, _, start, _, n in starts)
    new.prefetch((moved, n) for _, _, _, moved, n in starts)
    for i, j, start, moved, n in starts:
        if moved != moves(start) or (n > 0 and source.read(start, n) != new.read(moved, n)):
            raise wrong(
                source, f"the pages of row group {i}, column {old_footer.leaves[j].name} are not where they should be"
            )


def check_opens(source: OpenFile, new: OpenFile) -> None:
    """pyarrow opens the new file, unless it does not open the old one either."""
    try:
        with new.arrow_file() as file:
            pq.read_metadata(file)
    except PYARROW_ERRORS as error:
        try:
            with source.arrow_file() as file:
                pq.read_metadata(file)
        except PYARROW_ERRORS:
            return
        raise wrong(source, f"pyarrow does not open it: {error}") from error


@contextmanager
def _damage_is_wrong(source: OpenFile) -> Iterator[None]:
    try:
        yield
    except (DamagedFileError, NotParquetError, EncryptedFileError) as error:
        raise wrong(source, error.reason) from error


def wrong(source: OpenFile, reason: str) -> LayoutError:
    """The error of a new file that does not pass a check."""
    return LayoutError(source.path, f"nothing was changed, the new file did not pass its check: {reason}")


# --- the bytes that filters take --------------------------------------------------------------------


def fitting_ranges(outline: Outline, keys: Iterable[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """Chunk -> offset and num_bytes, see ColumnFilterRanges, of the filters that fit."""
    groups_of: dict[int, list[int]] = {}
    for group, column in keys:
        groups_of.setdefault(column, []).append(group)
    fitting: dict[tuple[int, int], tuple[int, int]] = {}
    for column, groups in groups_of.items():
        ranges = filter_ranges_of(outline, column)
        here = np.array(groups, np.int64)
        here = here[ranges.fits[here]]
        pairs = zip(ranges.offset[here].tolist(), ranges.num_bytes[here].tolist(), strict=True)
        fitting.update(zip(((group, column) for group in here.tolist()), pairs, strict=True))
    return fitting


def span_of(source: OpenFile, footer: Footer, filter_range: FilterRange) -> tuple[int, int] | None:
    """The bytes a filter takes, for cutting them out; None where that is not certain."""
    try:
        header = read_header(source, filter_range)
    except FilterFormatError:
        return None
    totals = [c.bits_at + header.num_bytes for c in header.candidates]
    total = filter_range.room if filter_range.room in totals else totals[0]
    if total > filter_range.room:
        return None
    start, stop = filter_range.offset, filter_range.offset + total
    return None if footer.overlaps_pages(start, stop) else (start, stop)


def spans_of(source: OpenFile, footer: Footer, keys: Collection[ChunkKey]) -> dict[ChunkKey, tuple[int, int] | None]:
    """`span_of` for the filters of several chunks, of those at whose filter the footer points.

    Their headers are read together. Where one is, to the byte, that of `final` for the length in the footer, and
    everything around agrees, nothing else is to be asked.
    """
    fits = fitting_ranges(outline, keys) if (outline := outline_or_none(source)) is not None else {}
    headers = {key: (offset, header_of(num_bytes)) for key, (offset, num_bytes) in fits.items()}
    found = source.read_ranges([(offset, len(header)) for offset, header in headers.values()])
    spans: dict[ChunkKey, tuple[int, int] | None] = {
        key: (offset, offset + len(header) + fits[key][1])
        for (key, (offset, header)), data in zip(headers.items(), found, strict=True)
        if data == header
    }
    left = [key for key in keys if key not in spans]
    located = RangesByChunk(footer) if left else None
    filter_ranges = {
        key: filter_range for key in left if located is not None and (filter_range := located[key]) is not None
    }
    source.prefetch((filter_range.offset, HEADER_BYTES) for filter_range in filter_ranges.values())
    return spans | {key: span_of(source, footer, filter_range) for key, filter_range in filter_ranges.items()}


def outline_or_none(source: OpenFile) -> Outline | None:
    """A file's outline; None where it has none, as its column chunks lie in other files."""
    try:
        return source.outline()
    except DamagedFileError:
        return None
