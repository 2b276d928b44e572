"""Describes the filters of a file: their places, how full they are, and their problems.

Reads the filters, never the data: what only decoding can show (another hash under a good header)
is the job of `verify`.

A note names each writer with a known mistake, however many files it wrote: their statistics are in doubt. Files whose
statistics were repaired are in no doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from threading import Lock
from typing import Any, ClassVar, Unpack

import numpy as np
import pyarrow as pa

from parquet_bloom.errors import parameter
from parquet_bloom.filters.page_places import PagePlaces, index_range, indexed_places
from parquet_bloom.filters.stored import StoredFilter, StoredFilters, is_sound
from parquet_bloom.filters.tails import each_file, older_footers, tails_of
from parquet_bloom.format.footer import Footer, IndexKind
from parquet_bloom.format.outline import NONE, Outline, Slot, bounds_stated
from parquet_bloom.format.provenance import our_indexes
from parquet_bloom.format.repairs import proven_columns, statistics_writer
from parquet_bloom.format.schema import Leaf, select_leaves
from parquet_bloom.format.statistics import counts_in, is_right, is_wrong
from parquet_bloom.kernels.block import BLOCK_BYTES
from parquet_bloom.options import PathLike, ReadOptions, column_names, refuse_unknown
from parquet_bloom.source.results import Result, filters_table, table_of
from parquet_bloom.source.source import source_of
from parquet_bloom.storage.display import line_of, quantity
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import FailedFile
from parquet_bloom.storage.workers import Meter, ProgressCallback

NAN_LOST = "engines for which NaN is the greatest value miss such rows, as DuckDB and DataFusion"
MIXED_LOST = "DataFusion takes these for bounds of the file, and misses rows"
_COLUMNS_SHOWN = 3


class Doubts:
    """Files by their writers; may be used by several threads."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, str], list[str]] = {}
        self._bounds: dict[tuple[str, str], list[str]] = {}
        self._lock = Lock()

    def see(self, path: str, keeper: Footer | Outline) -> None:
        """Take note of one file."""
        if is_right(keeper.created_by):  # but for nested texts of dictionary arrays, to this day
            return
        bounds, nulls = set(), set()
        for leaf in keeper.leaves:
            writer = statistics_writer(keeper, leaf)
            if is_wrong(writer, leaf, "bounds"):
                bounds.add(leaf.name)
            if is_wrong(writer, leaf, "few nulls") or is_wrong(writer, leaf, "many nulls"):
                nulls.add(leaf.name)
        parts = [
            f"{statistic} of {_some(names, len(keeper.leaves))}"
            for statistic, names in (("min and max", bounds), ("null_count", nulls))
            if names
        ]
        if parts:
            with self._lock:
                self._files.setdefault((keeper.created_by or "", " and ".join(parts)), []).append(path)

    def see_bounds(self, path: str, outline: Outline) -> None:
        """Take note of columns with bounds in some row groups, and beside a NaN, where a file counts its NaN."""
        slots, bounds = outline.slots, bounds_stated(outline.slots)
        beside_nan = ((slots[Slot.NAN_COUNT] > 0) & (bounds > 0)).any(axis=0)
        values, nulls = slots[Slot.NUM_VALUES], slots[Slot.NULL_COUNT]
        lacks = (bounds != np.bitwise_or.reduce(bounds, axis=0)) & (values > 0) & ((nulls == NONE) | (nulls < values))
        some = lacks.any(axis=0)
        for leaf in outline.leaves:
            for there, what in (
                (beside_nan[leaf.index] and leaf.float_bits, f"has NaN beside min and max: {NAN_LOST}"),
                (some[leaf.index] and not leaf.repeated, f"has min and max in some row groups alone: {MIXED_LOST}"),
            ):
                if there:
                    with self._lock:
                        self._bounds.setdefault((leaf.name, what), []).append(path)

    def notes(self, paths: Iterable[str]) -> Iterator[str]:
        """The notes, of the files of a report alone; in the order of the files."""
        order = {path: at for at, path in enumerate(paths)}
        for (writer, doubted), seen in self._files.items():
            files = sorted((path for path in seen if path in order), key=order.__getitem__)
            if files:
                more = f" and {quantity(len(files) - 1, 'more files')}" if len(files) > 1 else ""
                of = f"{files[0]}{more}: written by {writer}, of which releases write wrong {doubted}"
                compare = "verify with " + parameter("statistics", True) + " compares them"
                yield f"{of}; they are not believed here, and may lose rows elsewhere; " + compare
        for (name, what), seen in self._bounds.items():
            if some := [path for path in seen if path in order]:
                yield f"column {name} of {quantity(len(some), 'files')} {what}"


def _some(names: set[str], of: int) -> str:
    if len(names) == of:
        return "all columns"
    first = sorted(names)[:_COLUMNS_SHOWN]
    return ", ".join(first) + (f" and {len(names) - len(first):,} more" if len(names) > len(first) else "")


# --- row groups without a filter ------------------------------------------------------------------
#
# Which row groups lack a filter that somebody counts on.


def lacking_filters(
    footer: Footer,
    leaves: Sequence[Leaf],
    filters: Sequence[Any],
    columns: Sequence[str] | None,
    exclude: Sequence[str] | None,
) -> dict[str, list[int]]:
    """Column -> row groups that hold a value of it, or may, and have no filter that readers use.

    leaves   of the file, as people name them
    filters  filters.inspect.FilterInfo of the file, of these columns at least; one with problems is none
    columns  names or patterns; None: no column is asked for
    Raises UnknownColumnError.
    """
    if columns is None:
        return {}
    sound = {(one.row_group, one.column) for one in filters if is_sound(one)}
    lacking = {}
    for leaf in select_leaves(leaves, columns, exclude):
        groups = [
            n for n in range(footer.n_row_groups) if (n, leaf.name) not in sound and _holds(footer, n, leaf.index)
        ]
        if groups:
            lacking[leaf.name] = groups
    return lacking


def _holds(footer: Footer, group: int, column: int) -> bool:
    """Whether a column chunk holds a value that is no NULL; True where the footer does not say."""
    values, nulls = counts_in(footer, group, footer.leaves[column])
    return values > 0 and values != nulls


# --- inspect --------------------------------------------------------------------------------------

_PREFETCHED = 32 << 20  # bytes of filters
_INDEXES_READ = 1000  # offset indexes of a file, for the sizes of its pages


@dataclass(slots=True, repr=False)
class FilterInfo(Result):
    """One filter.

    spec            its form; None where the header is not understood
    rule            how its values were hashed; several, joined by "or", where the header does not say
    offset, length  bloom_filter_offset, bloom_filter_length (None: the footer has none), bytes. Of statistics
                    no offset, and the bytes of its text or struct
    place           "chunk-start", "footer" (behind all chunks), "tail" (behind an older footer) or "between" row groups
                    or chunks; of statistics "column metadata", or "Statistics" where the draft had it
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
class PageIndexInfo(Result):
    """The page indexes of one column, by the footer: in how many row groups it has one of each kind.

    added  how many of both kinds `add` put there, by the footer's record: `remove` takes them out
    read   how many of its offset indexes were read, and agree with the footer: of the first 1,000 of a file. `pages` is
           how many data pages they name, `page_bytes` and `page_rows` are medians of these: bytes with the header, and
           rows. None where none was read
    """

    column: str
    offset_indexes: int
    column_indexes: int
    added: int
    read: int = 0
    pages: int = 0
    page_bytes: int | None = None
    page_rows: int | None = None


@dataclass(slots=True, repr=False)
class FileInfo(Result):
    """All filters of a file, in the order of row groups and columns.

    older_footers       footers that tails of ours left in the file, before the one that counts
    older_footer_bytes  what they take, lengths and magics included
    tails    how many tails `remove` takes off; the others lie under somebody else's later footer, or moved
    repaired  whether statistics were compared with the values, and written right: `remove` keeps them
    lacking  of the columns that were asked for by assert_filters, those without a sound filter in some row groups
             that hold a value: column -> these row groups
    page_indexes  of the columns that have any
    """

    _more: ClassVar = ("filter_bytes", "problems")

    path: str
    size: int
    rows: int
    row_groups: int
    columns: int
    created_by: str | None
    filters: list[FilterInfo] = field(default_factory=list)
    older_footers: int = 0
    older_footer_bytes: int = 0
    tails: int = 0
    repaired: bool = False
    lacking: dict[str, list[int]] = field(default_factory=dict)
    page_indexes: list[PageIndexInfo] = field(default_factory=list)

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
class InspectReport(Result):
    """A report a file, and the files among several that could not be read.

    notes  that files lie in a table of Iceberg, Delta or Hudi, or were written for one; that a file's footer has
           another number of rows than its row groups; that the program which wrote files is known for wrong statistics
    """

    files: list[FileInfo]
    failed: list[FailedFile]
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return line_of(self, quantity(sum(len(file.filters) for file in self.files), "filters"))

    def to_arrow(self) -> pa.Table:
        """A row a filter, with the path of its file; files without filters have none."""
        return filters_table(FilterInfo, self.files)


def inspect(
    source: PathLike | Sequence[PathLike],
    *,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    assert_filters: str | Sequence[str] | None = None,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> InspectReport:
    """Describe the filters of one Parquet file, several, a folder or a glob, local or on another storage.

    source      paths or URIs (file:, s3:, gs:, hdfs: and others)
    columns, exclude  one name or pattern of a column, or a list; None: all columns, none is left out
    assert_filters  one name or pattern of a column, or a list; what they lack is said in `lacking` of each file
    filesystem  of pyarrow or fsspec; source then names files on it
    progress    is called with a Progress for every file and every row group
    options     see ReadOptions: raw_files; of a table catalog_properties, allow_roots
    Raises FileError for one file that cannot be read; UnknownColumnError where the first file lacks a column
    that was named.
    """
    refuse_unknown("inspect", options, ReadOptions)
    wanted, left_out = column_names(columns, "columns"), column_names(exclude, "exclude")
    asserted = column_names(assert_filters, "assert_filters")
    if wanted is not None and asserted is not None:
        wanted += asserted
    found = source_of(source, filesystem, options).resolve(stored_only=True)
    meter = Meter(progress, found.files, unit="row groups")
    miscounted: dict[str, str] = {}  # path -> note
    doubts = Doubts()

    def work(opened: OpenFile, leaves: Sequence[Leaf]) -> FileInfo:
        info = _inspect(opened, select_leaves(leaves, wanted, left_out), meter)
        doubts.see(info.path, opened.footer())
        info.lacking = lacking_filters(opened.footer(), leaves, info.filters, asserted, left_out)
        if (rows := sum(opened.footer().rows)) != info.rows:
            counts = f"its footer counts {quantity(info.rows, 'rows')}, and its row groups {rows:,}"
            miscounted[info.path] = f"{info.path}: {counts}; the row groups count"
        return info

    results = each_file(found, work, meter)
    notes = [miscounted[info.path] for info in results if info.path in miscounted]
    notes += doubts.notes(info.path for info in results)
    return InspectReport(list(results), results.failed, [*found.notes, *notes])


def _inspect(source: OpenFile, leaves: Sequence[Leaf], meter: Meter) -> FileInfo:
    footer = source.footer()
    metadata = footer.metadata
    info = FileInfo(
        source.path, source.size, metadata.num_rows or 0, footer.n_row_groups, len(footer.leaves), metadata.created_by
    )
    older = older_footers(source)
    info.older_footers, info.older_footer_bytes = len(older), sum(length for _, length in older)
    kept = (tail.repairs for tail, _ in tails_of(source)) if older else ()
    info.tails = sum(1 for _ in takewhile(lambda repairs: not repairs, kept))
    info.repaired = proven_columns(footer) is not None
    info.page_indexes = list(_page_indexes(source, leaves))
    tail_at = min((offset + length for offset, length in older), default=source.size)
    filters = StoredFilters(source)
    row_groups = [[filters.of(group, leaf) for leaf in leaves] for group in range(footer.n_row_groups)]
    prefetched = _Prefetch(source, [one.extent for chunks in row_groups for stored in chunks for one in stored])
    for group, chunks in enumerate(row_groups):
        for leaf, stored in zip(leaves, chunks, strict=True):
            meta = footer.meta(group, leaf.index)
            if meta.bloom_filter_offset is not None and all(one.offset is None for one in stored):
                missing = FilterInfo(group, leaf.name, meta.bloom_filter_offset, meta.bloom_filter_length, "nowhere")
                missing.problems.append(f"bloom_filter_offset is {meta.bloom_filter_offset}, which points at no filter")
                info.filters.append(missing)
            for one in stored:
                prefetched.step()
                info.filters.append(_described(one, filters.pages_end, tail_at))
        meter.part(group + 1, footer.n_row_groups)
    return info


def _page_indexes(source: OpenFile, leaves: Sequence[Leaf]) -> Iterator[PageIndexInfo]:
    footer = source.footer()
    ranges = {kind: footer.index_ranges(kind) for kind in IndexKind}
    if not any(ranges.values()):
        return
    counts = {kind: Counter(column for _, column in keys) for kind, keys in ranges.items()}
    added = Counter(column for keys in our_indexes(footer).values() for _, column in keys)
    chosen, outline = {leaf.index: leaf for leaf in leaves}, source.outline()
    keys = (key for key in sorted(ranges[IndexKind.OFFSET]) if key[1] in chosen)
    places = {key: index_range(outline, *key, IndexKind.OFFSET) for key in islice(keys, _INDEXES_READ)}
    there = {key: place for key, place in places.items() if place is not None}
    source.prefetch(there.values())
    pages: dict[int, list[PagePlaces]] = {}
    for (group, column), place in there.items():
        found = indexed_places(outline, group, chosen[column], source.read(*place))
        if found is not None:
            pages.setdefault(column, []).append(found)
    for column, leaf in chosen.items():
        offsets, columns = counts[IndexKind.OFFSET][column], counts[IndexKind.COLUMN][column]
        if offsets or columns:
            info = PageIndexInfo(leaf.name, offsets, columns, added[column])
            if some := pages.get(column):
                sizes = np.concatenate([one.pages[:, 1] for one in some])
                rows = np.concatenate([one.rows[:, 1] - one.rows[:, 0] for one in some])
                info.read, info.pages = len(some), len(sizes)
                info.page_bytes, info.page_rows = int(np.median(sizes)), int(np.median(rows))
            yield info


def _described(stored: StoredFilter, pages_end: int, tail_at: int) -> FilterInfo:
    found = stored.describe()
    place = "tail" if (stored.offset or 0) >= tail_at else stored.place(pages_end)
    info = FilterInfo(
        stored.row_group,
        stored.leaf.name,
        stored.offset,
        stored.length,
        place,
        found.spec,
        found.rule,
        found.num_bytes,
        problems=found.problems,
        notes=found.notes,
    )
    refusal = stored.refusal or stored.leaf.refusal
    if refusal is not None:
        info.notes.insert(0, f"not used: {refusal}")
    if found.bloom is not None:
        info.hash_functions, info.bits_set = found.bloom.hash_functions, found.bits_set
        info.fpp, info.estimated_ndv = found.bloom.fpp, found.bloom.estimated_ndv
    info.blocks = 0 if info.hash_functions else info.num_bytes // BLOCK_BYTES
    return info


class _Prefetch:
    """Reads the filters of a remote file some at a time, side by side, before they are described one by one."""

    def __init__(self, source: OpenFile, extents: Sequence[tuple[int, int] | None]) -> None:
        """extents  offset and bytes of each filter in the order of the steps; None of one in the footer."""
        self._source = source
        self._extents = [one or (0, 0) for one in extents]
        self._at = self._held = 0

    def step(self) -> None:
        """Read ahead: the next filter is about to be described."""
        if self._at == self._held and self._source.is_remote:
            size = 0
            while self._held < len(self._extents) and (size == 0 or size + self._extents[self._held][1] <= _PREFETCHED):
                size += self._extents[self._held][1]
                self._held += 1
            self._source.prefetch((at, n) for at, n in self._extents[self._at : self._held] if 0 < n <= _PREFETCHED)
        self._at += 1
