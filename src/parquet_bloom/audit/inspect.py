"""What filters a file has, where they lie, how full they are, and what is wrong with them.

Reads the filters, never the data: what only decoding can show (another hash under a good header)
is the job of `verify`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData
from parquet_bloom.chunks.locate import FilterRange, FilterRanges, contradiction, read_header
from parquet_bloom.errors import DamagedFileError, FilterFormatError, UnknownFilterError
from parquet_bloom.formats.contents import blank, counts_in, denied_bound
from parquet_bloom.formats.draft_2015 import FooterFilter, refusal
from parquet_bloom.formats.filters import Header, decode_filter
from parquet_bloom.formats.metadata.footer import chunk_extent
from parquet_bloom.formats.metadata.schema import Leaf, select_leaves
from parquet_bloom.kernels import k_probe, split_block
from parquet_bloom.storage.paths import DataFile, FailedFile
from parquet_bloom.storage.progress import Meter, ProgressCallback
from parquet_bloom.storage.results import Printed, each, filters_table, table_of
from parquet_bloom.storage.source import PathLike, Source
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.tables.columns import shown_leaves
from parquet_bloom.tables.named.sources import find

_PREFETCHED = 32 << 20  # bytes of filters


@dataclass(slots=True)
class FilterInfo(Printed):
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
    fpp             exact false positive rate for random absent values
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
    fpp: float = 0.0
    estimated_ndv: float = 0.0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True, repr=False)
class FileInfo(Printed):
    """All filters of a file, in the order of row groups and columns."""

    _more: ClassVar = ("filter_bytes", "problems")

    path: str
    size: int
    rows: int
    row_groups: int
    columns: int
    created_by: str | None
    filters: list[FilterInfo] = field(default_factory=list)

    @property
    def filter_bytes(self) -> int:
        """Bytes of all bitsets, without headers."""
        return sum(f.num_bytes for f in self.filters)

    @property
    def problems(self) -> int:
        """How many contradictions the filters have."""
        return sum(len(f.problems) for f in self.filters)

    def to_arrow(self) -> pa.Table:
        """A row a filter."""
        return table_of(FilterInfo, self.filters)


@dataclass(slots=True, repr=False)
class InspectReport(Printed):
    """A report a file, and the files among several that could not be read.

    notes  that files lie in a table of Iceberg, Delta or Hudi, or were written for one
    """

    files: list[FileInfo]
    failed: list[FailedFile]
    notes: list[str] = field(default_factory=list)

    def to_arrow(self) -> pa.Table:
        """A row a filter, with the path of its file; files without filters have none."""
        return filters_table(FilterInfo, self.files)


def inspect(
    source: PathLike | Sequence[PathLike],
    *,
    columns: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    filesystem: Any = None,
    raw_files: bool = False,
    catalog_properties: Mapping[str, str] | None = None,
    progress: ProgressCallback | None = None,
) -> InspectReport:
    """Describe the filters of one Parquet file, several, a folder or a glob, local or on another storage.

    source      paths or URIs (file:, s3:, gs:, hdfs: and others)
    filesystem  of pyarrow or fsspec; source then names files on it
    raw_files   a Delta table's folder: every file in it, whatever its log says; the names are then the files' own
    catalog_properties  of the catalog of an iceberg: or ducklake: table
    progress    is called with a Progress for every file and every row group
    Raises FileError for one file that cannot be read; UnknownColumnError where the first file lacks a column
    that was named.
    """

    def work(file: DataFile) -> FileInfo:
        with Source(file) as opened:
            if found.snapshot is None:
                tables.see(opened.path, opened.footer())
            leaves = select_leaves(shown_leaves(opened.footer(), found.snapshot, file), columns, exclude)
            return _inspect(opened, leaves, meter)

    tables = Tables()
    found = find(source, filesystem, None if raw_files else tables, catalog_properties)
    file_set = found.file_set
    meter = Meter(progress, file_set.files, unit="row groups")
    results = each(file_set.files, work, file_set.single, file_set.failed, meter)
    return InspectReport(list(results), results.failed, tables.notes() if found.snapshot is None else [])


def _inspect(source: Source, leaves: Sequence[Leaf], meter: Meter) -> FileInfo:
    footer = source.footer()
    metadata = footer.metadata
    info = FileInfo(
        source.path, source.size, metadata.num_rows or 0, footer.n_row_groups, len(footer.leaves), metadata.created_by
    )
    filter_ranges = FilterRanges(footer)
    pages_end = max((chunk_extent(c.meta_data)[1] for _, _, c in footer.chunks()), default=0)
    prefetched = _Prefetch(
        source, [filter_ranges[i, leaf.index] for i in range(footer.n_row_groups) for leaf in leaves]
    )
    for group in range(footer.n_row_groups):
        for leaf in leaves:
            prefetched.step()
            meta = footer.meta(group, leaf.index)
            filter_range = filter_ranges[group, leaf.index]
            if filter_range is not None:
                where = _where(filter_range, pages_end)
                found = FilterInfo(group, leaf.name, filter_range.offset, filter_range.length, where)
                info.filters.append(_filter(source, found, leaf, meta, filter_range))
            elif meta.bloom_filter_offset is not None:
                missing = FilterInfo(group, leaf.name, meta.bloom_filter_offset, meta.bloom_filter_length, "nowhere")
                missing.problems.append(f"bloom_filter_offset is {meta.bloom_filter_offset}, which points at no filter")
                info.filters.append(missing)
            stored = filter_ranges.in_footer.get((group, leaf.index))
            if stored is not None:
                info.filters.append(_stored_filter(source, group, leaf, meta, stored))
        meter.part(group + 1, footer.n_row_groups)
    return info


class _Prefetch:
    """Reads the filters of a remote file some at a time, side by side, before they are looked at one by one."""

    def __init__(self, source: Source, filter_ranges: Sequence[FilterRange | None]) -> None:
        self._source = source
        self._sizes = [min(p.total, p.room) if p is not None and p.offset >= 4 else 0 for p in filter_ranges]
        self._places = filter_ranges
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


def _filter(
    source: Source, info: FilterInfo, leaf: Leaf, meta: ColumnMetaData, filter_range: FilterRange
) -> FilterInfo:
    if leaf.refusal is not None:
        info.notes.append(f"not used: {leaf.refusal}")
    try:
        header = read_header(source, filter_range)
    except UnknownFilterError as error:
        info.notes.append(f"not used: {error}")
        return info
    except (FilterFormatError, DamagedFileError) as error:
        info.problems.append(str(error))
        return info
    info.spec, info.num_bytes, info.blocks = header.spec, header.num_bytes, header.num_bytes // split_block.BLOCK_BYTES
    info.rule = " or ".join(str(c.rule) for c in header.candidates)
    problem = contradiction(header, filter_range)
    if problem is not None:
        info.problems.append(problem)
    _contents(source, filter_range, header, meta, info)
    return info


def _stored_filter(source: Source, group: int, leaf: Leaf, meta: ColumnMetaData, stored: FooterFilter) -> FilterInfo:
    info = FilterInfo(group, leaf.name, None, stored.length, stored.held_in, "statistics")
    reason = refusal(leaf) or leaf.refusal
    if reason is not None:
        info.notes.append(f"not used: {reason}")
    if stored.held_in == "Statistics":
        info.notes.append("Polars and DataFusion cannot open a file with a filter there")
    try:
        bloom = stored.decode(leaf)
    except FilterFormatError as error:
        info.problems.append(str(error))
        return info
    info.rule = " or ".join(map(str, bloom.rules))
    info.num_bytes, info.hash_functions = bloom.num_bits // 8, bloom.k
    info.bits_set = k_probe.bits_set(bloom.longs)
    info.fpp = k_probe.fpp_of(bloom.longs, bloom.k)
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


def _contents(
    source: Source, filter_range: FilterRange, header: Header, meta: ColumnMetaData, info: FilterInfo
) -> None:
    end = max(c.bits_at for c in header.candidates) + header.num_bytes
    large = header.num_bytes > split_block.MAX_BYTES
    if large or header.total > filter_range.room or filter_range.offset + header.total > source.size:
        return  # said already; a bitset that runs into pages or past the end has no fill to speak of
    bloom = decode_filter(source.read_up_to(filter_range.offset, end), filter_range.total, filter_range.rule)
    blocks = bloom.blocks
    info.bits_set = split_block.bits_set(blocks)
    info.fpp = split_block.exact_rate(blocks)
    info.estimated_ndv = split_block.estimated_ndv(blocks)
    _check_empty(info, meta)
    if bloom.rotten is not None:
        info.problems.append(bloom.rotten)


def _where(filter_range: FilterRange, pages_end: int) -> str:
    start, stop = filter_range.pages
    if filter_range.offset + filter_range.room == start:
        return "chunk-start"
    if start <= filter_range.offset < stop:
        return "inside the chunk"
    return "footer" if filter_range.offset >= pages_end else "between"
