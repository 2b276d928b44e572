"""What filters a file has, where they lie, how full they are, and what is wrong with them.

Reads the filters, never the data: what only decoding can show (another hash under a good header)
is the job of `verify`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData
from parquet_bloom.chunks.locate import Place, Places, contradiction, read_header
from parquet_bloom.errors import DamagedFileError, FilterFormatError, UnknownFilterError
from parquet_bloom.formats.contents import blank, counts_in, denied_bound
from parquet_bloom.formats.draft_2015 import Stored, refusal
from parquet_bloom.formats.filters import Header, decode_filter
from parquet_bloom.formats.metadata.footer import chunk_extent
from parquet_bloom.formats.metadata.schema import Leaf, select_leaves
from parquet_bloom.kernels import k_probe, split_block
from parquet_bloom.storage.paths import Failed, Found, locate
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.results import each
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.table_folders import Tables

_PREFETCHED = 32 << 20  # bytes of filters


@dataclass(slots=True)
class FilterInfo:
    """One filter.

    spec            its form; None where the header is not understood
    rule            how its values were hashed; several, joined by "or", where the header does not say
    offset, length  bloom_filter_offset, bloom_filter_length (None: the footer has none), bytes. Of statistics
                    no offset, and the bytes of its text or struct
    place           "chunk-start", "footer" (behind all chunks) or "between" row groups or chunks; of statistics
                    "column metadata", or "Statistics" where the draft had it
    num_bytes       of the bitset; blocks are 32 bytes each, statistics has none
    hash_functions  of statistics: positions a value takes; 0 for other forms
    bits_set        of 8 * num_bytes
    rate            exact false positive rate for random absent values
    estimated_ndv   distinct values, from the share of bits set
    problems        contradictions, each with both numbers; empty for a sound filter
    notes           what is not wrong but makes it no evidence
    """

    row_group: int
    column: str
    offset: int | None
    length: int | None
    place: str
    spec: str | None = None
    rule: str | None = None
    num_bytes: int = 0
    blocks: int = 0
    hash_functions: int = 0
    bits_set: int = 0
    rate: float = 0.0
    estimated_ndv: float = 0.0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class FileInfo:
    """All filters of a file, in the order of row groups and columns."""

    path: str
    size: int
    rows: int
    row_groups: int
    columns: int
    created_by: str | None
    filters: list[FilterInfo] = field(default_factory=list)

    @property
    def filter_bytes(self) -> int:
        return sum(f.num_bytes for f in self.filters)

    @property
    def problems(self) -> int:
        return sum(len(f.problems) for f in self.filters)


@dataclass(slots=True)
class InspectReport:
    """A report a file, and the files among several that could not be read.

    notes  that files lie in a table of Iceberg, Delta or Hudi, or were written for one
    """

    files: list[FileInfo]
    failed: list[Failed]
    notes: list[str] = field(default_factory=list)


def inspect(
    source: PathLike | Sequence[PathLike],
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
) -> InspectReport:
    """Describe the filters of one Parquet file, several, a folder or a glob, local or on another storage.

    source      paths or URIs (file:, s3:, gs:, hdfs: and others)
    filesystem  of pyarrow or fsspec; source then names files on it
    progress    is called with a Progress for every file and every row group
    Raises FileError for one file that cannot be read; UnknownColumnError where the first file lacks a column
    that was named.
    """

    def work(file: Found) -> FileInfo:
        with Source(file) as opened:
            tables.see(opened.path, opened.footer())
            return _inspect(opened, columns, exclude, meter)

    tables = Tables()
    located = locate(source, filesystem, tables)
    meter = Meter(progress, located.found, unit="row groups")
    results = each(located.found, work, located.single, located.failed, meter)
    return InspectReport(list(results), results.failed, tables.notes())


def _inspect(source: Source, columns: Sequence[str] | None, exclude: Sequence[str] | None, meter: Meter) -> FileInfo:
    footer = source.footer()
    metadata = footer.metadata
    info = FileInfo(
        source.path, source.size, metadata.num_rows or 0, footer.n_row_groups, len(footer.leaves), metadata.created_by
    )
    places = Places(footer)
    leaves = select_leaves(footer.leaves, columns, exclude)
    pages_end = max((chunk_extent(c.meta_data)[1] for _, _, c in footer.chunks()), default=0)
    prefetched = _Prefetch(source, [places[i, leaf.index] for i in range(footer.n_row_groups) for leaf in leaves])
    for group in range(footer.n_row_groups):
        for leaf in leaves:
            prefetched.step()
            meta = footer.meta(group, leaf.index)
            place = places[group, leaf.index]
            if place is not None:
                where = _where(place, pages_end)
                found = FilterInfo(group, leaf.name, place.offset, place.length, where)
                info.filters.append(_filter(source, found, leaf, meta, place))
            elif meta.bloom_filter_offset is not None:
                missing = FilterInfo(group, leaf.name, meta.bloom_filter_offset, meta.bloom_filter_length, "nowhere")
                missing.problems.append(f"bloom_filter_offset is {meta.bloom_filter_offset}, which points at no filter")
                info.filters.append(missing)
            stored = places.stored.get((group, leaf.index))
            if stored is not None:
                info.filters.append(_stored_filter(source, group, leaf, meta, stored))
        meter.part(group + 1, footer.n_row_groups)
    return info


class _Prefetch:
    """Reads the filters of a remote file some at a time, side by side, before they are looked at one by one."""

    def __init__(self, source: Source, places: Sequence[Place | None]) -> None:
        self._source = source
        self._sizes = [min(p.total, p.room) if p is not None and p.offset >= 4 else 0 for p in places]
        self._places = places
        self._at = self._held = 0

    def step(self) -> None:
        """The next place is about to be looked at."""
        if self._at == self._held and self._source.is_remote:
            size = 0
            while self._held < len(self._places) and (size == 0 or size + self._sizes[self._held] <= _PREFETCHED):
                size += self._sizes[self._held]
                self._held += 1
            batch = zip(self._places[self._at : self._held], self._sizes[self._at : self._held], strict=True)
            self._source.prefetch((p.offset, n) for p, n in batch if p is not None and 0 < n <= _PREFETCHED)
        self._at += 1


def _filter(source: Source, info: FilterInfo, leaf: Leaf, meta: ColumnMetaData, place: Place) -> FilterInfo:
    if leaf.refusal is not None:
        info.notes.append(f"not used: {leaf.refusal}")
    try:
        header = read_header(source, place)
    except UnknownFilterError as error:
        info.notes.append(f"not used: {error}")
        return info
    except (FilterFormatError, DamagedFileError) as error:
        info.problems.append(str(error))
        return info
    info.spec, info.num_bytes, info.blocks = header.spec, header.num_bytes, header.num_bytes // split_block.BLOCK_BYTES
    info.rule = " or ".join(str(c.rule) for c in header.candidates)
    problem = contradiction(header, place)
    if problem is not None:
        info.problems.append(problem)
    _contents(source, place, header, meta, info)
    return info


def _stored_filter(source: Source, group: int, leaf: Leaf, meta: ColumnMetaData, stored: Stored) -> FilterInfo:
    info = FilterInfo(group, leaf.name, None, stored.length, stored.place, "statistics")
    reason = refusal(leaf) or leaf.refusal
    if reason is not None:
        info.notes.append(f"not used: {reason}")
    if stored.place == "Statistics":
        info.notes.append("Polars and DataFusion cannot open a file with a filter there")
    try:
        bloom = stored.decode(leaf)
    except FilterFormatError as error:
        info.problems.append(str(error))
        return info
    info.rule = " or ".join(map(str, bloom.rules))
    info.num_bytes, info.hash_functions = bloom.num_bits // 8, bloom.k
    info.bits_set = k_probe.bits_set(bloom.longs)
    info.rate = k_probe.rate(bloom.longs, bloom.k)
    info.estimated_ndv = k_probe.estimated_ndv(bloom.longs, bloom.k)
    _check_empty(info, meta)
    denied = denied_bound(bloom.might_contain, source.outline(), leaf, group) if info.bits_set else None
    if denied is not None:
        info.problems.append(denied)
    return info


def _check_empty(info: FilterInfo, meta: ColumnMetaData) -> None:
    found = None if info.bits_set else blank(counts_in(meta))
    if found is not None:
        reason, wrong = found
        (info.problems if wrong else info.notes).append(reason if wrong else f"not used: {reason}")


def _contents(source: Source, place: Place, header: Header, meta: ColumnMetaData, info: FilterInfo) -> None:
    end = max(c.bits_at for c in header.candidates) + header.num_bytes
    large = header.num_bytes > split_block.MAX_BYTES
    if large or header.total > place.room or place.offset + header.total > source.size:
        return  # said already; a bitset that runs into pages or past the end has no fill to speak of
    bloom = decode_filter(source.read_up_to(place.offset, end), place.total, place.rule)
    blocks = bloom.blocks
    info.bits_set = split_block.bits_set(blocks)
    info.rate = split_block.exact_rate(blocks)
    info.estimated_ndv = split_block.estimated_ndv(blocks)
    _check_empty(info, meta)
    if bloom.rotten is not None:
        info.problems.append(bloom.rotten)


def _where(place: Place, pages_end: int) -> str:
    start, stop = place.pages
    if place.offset + place.room == start:
        return "chunk-start"
    if start <= place.offset < stop:
        return "inside the chunk"
    return "footer" if place.offset >= pages_end else "between"
