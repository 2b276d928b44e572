"""Entries of a key index: packed into 64 bits, sorted within bounded memory, written as Parquet, and sought again.

    hash, place      packed: | 0 .. 0 | first bits of the hash | place |     so that sorting is numpy's own
    Sorter           adds -> sorted runs, cut at partitions, on the disk -> the entries of each partition
    write_part       one partition -> one Parquet file
    Part             one such file -> the entries of some hashes

The columns are delta-encoded: the difference of neighbouring hashes takes as many bits as a random place, and a value
that is everywhere costs almost none. Measured: benchmarks/key_index.py.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, LimitError, StorageError, first_line, parameter
from parquet_bloom.filters.decode import PYARROW_ERRORS, check_page, page_sizes
from parquet_bloom.format.footer import MAGIC
from parquet_bloom.format.outline import Slot, extents
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64
from parquet_bloom.format.statistics import statistics_of
from parquet_bloom.keys.manifest import GROUP_ENTRIES, PartFile
from parquet_bloom.options import limits
from parquet_bloom.output.index_files import IndexFiles, storing
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.stores import opened_by_end

U64 = NDArray[np.uint64]
Integers = NDArray[np.int64]
SCHEMA = pa.schema([pa.field("hash", pa.int64(), False), pa.field("place", pa.int32(), False)])
_WHOLE = 128 << 10  # bytes of a part that is fetched at once
_GROUPS_AT_ONCE = 128  # row groups that a lookup of many keys decodes at a time: 50 MB


def prefixes(hashes: U64, bits: int) -> Integers:
    """The first bits of hashes, as `hash` has them: int64[n]."""
    return (hashes >> np.uint64(64 - bits)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Packing:
    """How the entries of one column of a segment are packed and parted."""

    bits: int
    place_bits: int
    partition_bits: int

    def pack(self, hashes: U64, place: int) -> U64:
        """The entries of values of one place: uint64[n]."""
        packed = hashes >> np.uint64(64 - self.bits)
        packed <<= np.uint64(self.place_bits)
        packed |= np.uint64(place)
        return packed

    def cuts(self, packed: U64) -> list[int]:
        """The start of each partition among sorted entries, and the end of the last one."""
        firsts = np.arange(1 << self.partition_bits, dtype=np.uint64)
        firsts <<= np.uint64(self.bits - self.partition_bits + self.place_bits)
        return [*np.searchsorted(packed, firsts).tolist(), len(packed)]


def sorted_once(packed: list[U64]) -> U64:
    """The entries of several arrays in their order, each once."""
    if not packed:
        return np.empty(0, np.uint64)
    whole = np.concatenate(packed)
    whole.sort()
    if len(whole) > 1:
        differs = np.concatenate(([True], whole[1:] != whole[:-1]))
        if not differs.all():
            whole = whole[differs]
    return whole


class Sorter:
    """The entries of the columns of a segment, sorted within bounded memory.

    packings  of each column
    files     of the index; `folder` is that which takes sorted runs when memory is full
    most      entries in memory
    """

    def __init__(self, packings: list[Packing], files: IndexFiles, folder: str, most: int) -> None:
        self._packings, self._files, self._folder, self.most = packings, files, folder, most
        self._new: list[list[U64]] = [[] for _ in packings]
        self._waiting = 0
        self.lengths: dict[str, int] = {}  # name of a run's file -> bytes that count

    def add(self, column: int, packed: U64) -> None:
        """Take entries. Raises StorageError where runs cannot be written."""
        if self._waiting and self._waiting + len(packed) > self.most:
            self.spill()
        self._new[column].append(packed)
        self._waiting += len(packed)

    @property
    def is_full(self) -> bool:
        """Whether it is time to spill: so at the end of a file a killed build can go on from there."""
        return 2 * self._waiting > self.most

    def spill(self) -> None:
        """Write what is in memory to the folder."""
        for column, (packing, new) in enumerate(zip(self._packings, self._new, strict=True)):
            packed = sorted_once(new)
            new.clear()
            cuts = packing.cuts(packed)
            for partition, (start, stop) in enumerate(pairwise(cuts)):
                if start < stop:
                    self._append(f"{column}-{partition:05d}", packed[start:stop])
        self._waiting = 0

    def _append(self, name: str, packed: U64) -> None:
        path = f"{self._folder}/{name}"
        fd = self._files.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, make=True)
        with storing(self._files.named(path)), os.fdopen(fd, "ab") as out:
            # What a killed run appended after its last note does not count.
            out.truncate(self.lengths.get(name, 0))
            out.write(packed.tobytes())
            out.flush()
            os.fsync(out.fileno())  # before the journal says so
        self.lengths[name] = self.lengths.get(name, 0) + packed.nbytes

    def partitions(self, column: int) -> Iterator[U64]:
        """The entries of each partition of a column, sorted, each once. Raises StorageError."""
        packing = self._packings[column]
        packed = sorted_once(self._new[column])
        cuts = packing.cuts(packed)
        for partition, (start, stop) in enumerate(pairwise(cuts)):
            name = f"{column}-{partition:05d}"
            length = self.lengths.get(name, 0)
            if not length:
                yield packed[start:stop]
                continue
            path = f"{self._folder}/{name}"
            fd = self._files.open(path, os.O_RDONLY)
            with storing(self._files.named(path)), os.fdopen(fd, "rb") as run:
                before = np.fromfile(run, np.uint64, length // 8)
            if before.nbytes != length:
                reason = f"has {before.nbytes} of {length} bytes that were written to it; start the build again"
                raise StorageError(self._files.named(path), reason)
            yield sorted_once([before, packed[start:stop]])


# --- parts ----------------------------------------------------------------------------------------


def write_part(files: IndexFiles, name: str, packed: U64, packing: Packing) -> PartFile:
    """Write the entries of one partition, sorted, to a new file. Raises StorageError."""
    hashes = (packed >> np.uint64(packing.place_bits)).view(np.int64)  # of 63 bits at most
    places = (packed & np.uint64((1 << packing.place_bits) - 1)).astype(np.int32)
    return write_parquet(files, name, pa.table([hashes, places], schema=SCHEMA), delta=["hash", "place"])


def write_parquet(files: IndexFiles, name: str, table: pa.Table, delta: list[str], **options: Any) -> PartFile:
    """Write a file of the index: pages with checksums, uncompressed unless `options` say otherwise.

    delta  columns that are delta-encoded
    Raises StorageError.
    """
    options = {"compression": "none", "use_dictionary": False, **options}
    with files.written(name) as out:
        pq.write_table(
            table,
            out,
            row_group_size=GROUP_ENTRIES,
            column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED") or None,
            write_page_checksum=True,
            store_schema=False,
            **options,
        )
    with OpenFile(files.location(name)) as source:
        return part_of(source, table.num_rows)


def part_of(source: OpenFile, rows: int) -> PartFile:
    """Size, rows and checksum of a file of the index, for the manifest. Raises FileError."""
    start = source.footer().start
    return PartFile(rows, source.size, zlib.crc32(source.read(start, source.size - 8 - start)))


def open_part(location: Location, said: PartFile, whole: int) -> OpenFile:
    """Open a file of the index. Raises DamagedFileError where it is not the one that the manifest speaks of.

    whole  bytes of one that is fetched by the request that opens it, and stays in memory, on another storage
    """
    fetched = not location.is_local and said.size <= whole
    source = OpenFile(opened_by_end(location, said.size) if fetched and said.size else location)
    try:
        if source.size != said.size:
            raise DamagedFileError(source.path, f"has {source.size:,} bytes, and {said.size:,} by the manifest")
        if fetched:
            source.prefetch([(0, source.size)])
        if part_of(source, said.rows) != said:
            raise DamagedFileError(source.path, "its footer is not the one that the manifest speaks of")
        outline = source.outline()
        if int(outline.rows.sum()) != said.rows:
            raise DamagedFileError(source.path, f"has other rows than the {said.rows:,} by the manifest")
        # What a row group takes in memory is bounded by its rows: pyarrow goes by the values that a chunk claims.
        if (outline.rows > GROUP_ENTRIES).any() or (outline.rows < 0).any():
            raise DamagedFileError(source.path, f"a row group has not 0 to {GROUP_ENTRIES:,} rows")
        if (outline.slots[Slot.NUM_VALUES] != outline.rows[:, None]).any() or any(
            leaf.repeated for leaf in outline.leaves
        ):
            raise DamagedFileError(source.path, "a column chunk has another number of values than its row group")
    except BaseException:
        source.close()
        raise
    return source


def read_rows(source: OpenFile, groups: list[int] | None = None, columns: list[str] | None = None) -> pa.Table:
    """Rows of a file of the index, by row groups and columns; None: all.

    Raises DamagedFileError; LimitError for pages and texts that take more than half of max_memory.
    """
    _fetch(source, groups, columns)
    check_pages(source, groups, columns)
    texts = [leaf.name for leaf in source.outline().leaves if leaf.physical == BYTE_ARRAY]
    try:
        with (
            source.arrow_file() as opened,
            pq.ParquetFile(
                opened, page_checksum_verification=True, pre_buffer=False, read_dictionary=texts or None
            ) as file,
        ):
            if groups is None:
                table = file.read(columns, use_threads=False)
            else:
                table = file.read_row_groups(groups, columns, use_threads=False)
            table.validate()  # columns of different lengths, where a page is missing
            return _plain_texts(table, source.path)
    except PYARROW_ERRORS as error:
        raise DamagedFileError(source.path, first_line(error)) from error


def _fetch(source: OpenFile, groups: list[int] | None, columns: list[str] | None) -> None:
    """Fetch what is read of a file of another storage in one round of requests."""
    if not source.is_remote:
        return
    outline = source.outline()
    starts, stops = extents(outline)
    rows = range(outline.n_row_groups) if groups is None else groups
    wanted = [leaf.index for leaf in outline.leaves if columns is None or leaf.name in columns]
    chunks = [(int(starts[at]), int(stops[at] - starts[at])) for row in rows for at in ((row, leaf) for leaf in wanted)]
    source.prefetch(chunks)


def check_pages(source: OpenFile, groups: list[int] | None, columns: list[str] | None) -> None:
    """Raise LimitError where a page takes more than half of max_memory: of a few bytes zstd makes gigabytes."""
    outline = source.outline()
    starts, stops = extents(outline)
    num_values, created_by = outline.slots[Slot.NUM_VALUES], outline.metadata.created_by
    dictionary = outline.slots[Slot.DICTIONARY_PAGE]
    if ((dictionary > 0) & (dictionary < len(MAGIC))).any():  # pyarrow would begin there, our walk does not
        raise DamagedFileError(source.path, "a dictionary page lies inside its first four bytes")
    for group in range(outline.n_row_groups) if groups is None else groups:
        for leaf in outline.leaves:
            if columns is None or leaf.name in columns:
                at, where = (group, leaf.index), f"row group {group}, column {leaf.name}"
                extent = int(starts[at]), int(stops[at])
                sizes = page_sizes(source, where, extent, int(num_values[at]), created_by)
                if sizes is not None:
                    check_page(source.path, where, sizes, 0, False)


def _plain_texts(table: pa.Table, path: str) -> pa.Table:
    """A table without dictionaries, of which one long text may be in every row. Raises LimitError."""
    for at, column in enumerate(table.columns):
        if not pa.types.is_dictionary(column.type):
            continue
        taken = sum(len(chunk) * (pc.max(pc.binary_length(chunk.dictionary)).as_py() or 0) for chunk in column.chunks)
        if 2 * taken > limits().max_memory:
            most = "over half of " + parameter("max_memory") + f", {limits().max_memory}"
            raise LimitError(path, f"column {table.field(at).name}: its texts take up to {taken} bytes, {most}")
        table = table.set_column(at, table.field(at).name, column.cast(column.type.value_type))
    return table


class Part:
    """One partition of a column that is open.

    low, high  first and last hash of each row group: int64[row groups], ascending
    """

    def __init__(self, location: Location, said: PartFile, places: int) -> None:
        """Raises FileError; DamagedFileError for what is not as the format has it."""
        self._places = places
        self.source = open_part(location, said, _WHOLE)
        try:
            self.low, self.high = self._bounds()
        except BaseException:
            self.source.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self.source.close()

    def _bounds(self) -> tuple[Integers, Integers]:
        outline = self.source.outline()
        kinds = [(leaf.path, leaf.physical, leaf.logical) for leaf in outline.leaves]
        if kinds != [(("hash",), INT64, None), (("place",), INT32, None)]:
            raise DamagedFileError(self.source.path, "its columns are not hash: INT64 and place: INT32")
        found = statistics_of(outline, outline.leaves[0])
        low, high = found.lower.astype(np.int64), found.upper.astype(np.int64)
        known = (found.has_lower & found.has_upper) | (outline.rows == 0)
        if not known.all() or (low > high).any() or (low[1:] < high[:-1]).any():
            raise DamagedFileError(self.source.path, "its row groups are not sorted by hash")
        return low, high

    def find(self, wanted: Integers) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """The entries of some hashes.

        wanted   ascending, each once: int64[n]
        returns  for each entry that has one of them the number of that one, and the place
        Raises DamagedFileError for pages that are damaged, or not sorted.
        """
        # A hash may go on over several row groups: [first, stop) are those whose bounds admit it.
        first = np.searchsorted(self.high, wanted, "left")
        stop = np.searchsorted(self.low, wanted, "right")
        numbers, places = [np.empty(0, np.intp)], [np.empty(0, np.int32)]
        touched = np.zeros(len(self.low) + 1, np.int64)
        np.add.at(touched, first[first < stop], 1)
        np.add.at(touched, stop[first < stop], -1)
        groups = np.flatnonzero(np.cumsum(touched)[:-1])
        for at in range(0, len(groups), _GROUPS_AT_ONCE):
            some = groups[at : at + _GROUPS_AT_ONCE]
            hashes, found = self._entries(some.tolist())
            start = int(np.searchsorted(wanted, self.low[some[0]], "left"))
            end = int(np.searchsorted(wanted, self.high[some[-1]], "right"))
            left = np.searchsorted(hashes, wanted[start:end], "left")
            counts = np.searchsorted(hashes, wanted[start:end], "right") - left
            numbers.append(np.repeat(np.arange(start, end), counts))
            places.append(found[ranges(left, counts)])
        return np.concatenate(numbers), np.concatenate(places)

    def between(self, low: int, stop: int) -> Iterator[tuple[Integers, NDArray[np.int32]]]:
        """The entries with hashes from `low` up to `stop`, in their order. Raises DamagedFileError."""
        groups = np.flatnonzero((self.high >= low) & (self.low < stop))
        for at in range(0, len(groups), _GROUPS_AT_ONCE):
            hashes, places = self._entries(groups[at : at + _GROUPS_AT_ONCE].tolist())
            inside = (hashes >= low) & (hashes < stop)
            yield hashes[inside], places[inside]

    def _entries(self, groups: list[int]) -> tuple[Integers, NDArray[np.int32]]:
        table = read_rows(self.source, groups)
        hashes, places = (table.column(i).combine_chunks().to_numpy() for i in (0, 1))
        if (hashes[1:] < hashes[:-1]).any() or len(hashes) != int(self.source.outline().rows[groups].sum()):
            raise DamagedFileError(self.source.path, "its entries are not sorted by hash")
        if len(hashes) and (hashes[0] != self.low[groups[0]] or hashes[-1] != self.high[groups[-1]]):
            raise DamagedFileError(self.source.path, "its entries are not within their bounds")
        if (places < 0).any() or (places >= self._places).any():
            raise DamagedFileError(self.source.path, f"it names places beyond the {self._places:,} of its segment")
        return hashes, places


def ranges(first: NDArray[np.intp], counts: NDArray[np.intp]) -> NDArray[np.intp]:
    """The numbers first[i], first[i] + 1, ... of all i, counts[i] of each, one behind the other."""
    ends = np.cumsum(counts)
    numbers: NDArray[np.intp] = np.arange(ends[-1] if len(ends) else 0) + np.repeat(first - (ends - counts), counts)
    return numbers
