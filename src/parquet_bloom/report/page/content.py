"""All that a page shows of a data set, from the functions that each are a command too."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.advice.advise import Advice, advise_on
from parquet_bloom.advice.survey import evenly_spread
from parquet_bloom.errors import ParquetBloomError, RequestError
from parquet_bloom.facts.report import EnginesReport, engines
from parquet_bloom.filters.inspect import FileInfo, FilterInfo, inspect
from parquet_bloom.filters.tails import open_logged
from parquet_bloom.format.outline import NONE, Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.options import several
from parquet_bloom.predicates.outcomes import Outcomes
from parquet_bloom.read import count
from parquet_bloom.search.check import RowGroupVerdict, Verdicts, check
from parquet_bloom.source.names import paths_of_source
from parquet_bloom.source.source import CallSource, ResolvedSource
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import side_by_side
from parquet_bloom.storage.table_folders import RAW_FILES
from parquet_bloom.storage.workers import ProgressCallback

# --- filters by column and row group --------------------------------------------------------------
#
# The filters of a file by column and row group, binned; and where each lies between size and rate.

BINS, COLUMNS = 64, 20  # of the picture
_POINTS = 240
LEVELS = {  # of a mark's shade: what it is less than
    "fpp": (0.0001, 0.001, 0.0101, 0.05, 0.2),
    "fill": (0.1, 0.2, 0.35, 0.5, 0.75),
    "bytes": (1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23),
}


@dataclass(slots=True)
class ColumnHeat:
    """The filters of one column.

    cells    of each bin of row groups; None where no row group of it has a filter
    """

    column: str
    filters: int
    bytes: int
    fpp_median: float | None
    fpp_worst: float | None
    fill: float | None
    problems: int
    cells: list[Cell | None]


@dataclass(slots=True)
class Cell:
    """The filters of one column in neighbouring row groups.

    first, last  row groups; filters: how many have one that can be read
    fpp          the worst; fill: the mean share of bits that are set; bytes: the mean of a filter
    problems     contradictions of all of them
    """

    first: int
    last: int
    filters: int
    fpp: float
    fill: float
    bytes: float
    problems: int

    def level(self, figure: str) -> int:
        """The shade of "fpp", "fill" or "bytes": 1 to 6."""
        value: float = getattr(self, figure)
        return 1 + sum(value >= edge for edge in LEVELS[figure])


@dataclass(slots=True)
class Point:
    """Filters of a column that lie at one place: bits that each has for a distinct value, and its rate."""

    column: str
    bits: float
    fpp: float
    filters: int


def fill_of(one: FilterInfo) -> float:
    """The share of bits that are set."""
    return one.bits_set / (8 * one.num_bytes) if one.num_bytes else 0.0


def columns_of(file: FileInfo) -> list[ColumnHeat]:
    """Every column that has filters, the one with the most bytes first."""
    by_column: dict[str, list[FilterInfo]] = {}
    for one in file.filters:
        by_column.setdefault(one.column, []).append(one)
    n = min(BINS, max(1, file.row_groups))
    found = []
    for column, filters in by_column.items():
        bins: list[list[FilterInfo]] = [[] for _ in range(n)]
        for one in filters:
            bins[min(n - 1, one.row_group * n // max(1, file.row_groups))].append(one)
        readable = [one for one in filters if one.num_bytes]
        found.append(
            ColumnHeat(
                column,
                len(filters),
                sum(one.num_bytes for one in filters),
                median(one.fpp for one in readable) if readable else None,
                max((one.fpp for one in readable), default=None),
                fmean(map(fill_of, readable)) if readable else None,
                sum(len(one.problems) for one in filters),
                [_cell(part, at, n, file.row_groups) for at, part in enumerate(bins)],
            )
        )
    return sorted(found, key=lambda one: (-one.bytes, one.column))


def _cell(filters: Sequence[FilterInfo], at: int, n: int, row_groups: int) -> Cell | None:
    if not filters:
        return None
    readable = [one for one in filters if one.num_bytes]
    first, last = -(-at * row_groups // n), -(-(at + 1) * row_groups // n) - 1
    return Cell(
        first,
        last,
        len(readable),
        max((one.fpp for one in readable), default=0.0),
        fmean(map(fill_of, readable)) if readable else 0.0,
        fmean(one.num_bytes for one in readable) if readable else 0,
        sum(len(one.problems) for one in filters),
    )


def outliers_of(file: FileInfo) -> list[FilterInfo]:
    """All filters: those with contradictions first, then by rate, the highest first."""
    return sorted(file.filters, key=lambda one: (-len(one.problems), -one.fpp, one.row_group, one.column))


def points_of(file: FileInfo) -> tuple[list[Point], int]:
    """Split block filters as points of size and rate, near ones as one; and how many have no point.

    Those have no distinct value, no bit that is clear, or are of another kind.
    """
    places: Counter[tuple[str, int, int]] = Counter()
    for one in file.filters:
        if one.blocks and one.fpp > 0 and 0 < one.estimated_ndv < math.inf and not one.problems:
            bits = 8 * one.num_bytes / one.estimated_ndv
            places[one.column, round(8 * math.log2(bits)), round(16 * math.log10(one.fpp))] += 1
    kept = places.most_common(_POINTS)
    points = [Point(column, 2 ** (bits / 8), 10 ** (fpp / 16), n) for (column, bits, fpp), n in kept]
    return points, len(file.filters) - places.total()


# --- where filters lie ----------------------------------------------------------------------------
#
# Where the bytes of a file lie: column chunks, filters, page indexes, footer, as spans that follow each other.

Integers = NDArray[np.int64]

KINDS = ("column chunks", "filters", "page indexes", "footer", "other")
CHUNK, FILTER, INDEX, FOOTER, OTHER = range(5)


@dataclass(slots=True)
class Layout:
    """The bytes of a file, from the first to the last.

    starts, ends  int64[n]: spans that neither overlap nor leave a gap
    kinds         int64[n], index into KINDS
    row_groups, columns  int64[n] of chunks and filters; -1 of others
    names         of the columns
    chunk_bytes, filter_bytes  int64[columns]
    """

    size: int
    starts: Integers
    ends: Integers
    kinds: Integers
    row_groups: Integers
    columns: Integers
    names: list[str]
    chunk_bytes: Integers
    filter_bytes: Integers

    def of_kind(self, kind: int) -> int:
        """Bytes of a kind."""
        here = self.kinds == kind
        return int((self.ends[here] - self.starts[here]).sum())

    @property
    def tail(self) -> int:
        """The end of the last column chunk."""
        return int(self.ends[self.kinds == CHUNK].max(initial=0))

    def cells(self, low: int, high: int, n: int) -> NDArray[np.float64]:
        """float64[kinds, n]: the share that each kind has of each of n equal parts of a range of bytes."""
        edges = np.linspace(low, high, n + 1)
        found = np.zeros((len(KINDS), n))
        for kind in range(len(KINDS)):
            here = self.kinds == kind
            if here.any():
                places = np.stack([self.starts[here], self.ends[here]], axis=1).reshape(-1)
                sizes = np.stack([np.zeros(int(here.sum()), np.int64), self.ends[here] - self.starts[here]], axis=1)
                found[kind] = np.diff(np.interp(edges, places, np.cumsum(sizes.reshape(-1))))
        return found * n / max(1, high - low)


def layout_of(outline: Outline, size: int, filters: Sequence[FilterInfo]) -> Layout:
    """The layout of a file; what overlaps in a damaged one is counted once, for what begins first."""
    names = [leaf.name for leaf in outline.leaves]
    groups, columns = np.indices(outline.slots.shape[1:]).reshape(2, -1)
    starts, ends = _chunks(outline)
    index = {text: at for at, text in enumerate(names)}
    placed = [one for one in filters if one.offset is not None and one.offset >= 0]
    begin = np.array([one.offset for one in placed], np.int64)
    length = np.array([max(0, one.length or one.num_bytes) for one in placed], np.int64)
    of_column = np.array([index.get(one.column, 0) for one in placed], np.int64)
    filter_bytes = np.bincount(of_column, length, len(names)).astype(np.int64)
    chunk_bytes = np.bincount(columns, ends - starts, len(names)).astype(np.int64)
    parts = [
        (starts, ends, np.full(len(starts), CHUNK), groups, columns),
        (begin, begin + length, np.full(len(begin), FILTER), np.array([f.row_group for f in placed]), of_column),
        tuple(np.array([one], np.int64) for one in (outline.start, size, FOOTER, -1, -1)),
    ]
    spans = np.stack([np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)])
    indexes = outline.slots[[Slot.OFFSET_INDEX, Slot.COLUMN_INDEX]].reshape(-1)
    spans = _without_gaps(spans, size, indexes)
    return Layout(size, spans[0], spans[1], spans[2], spans[3], spans[4], names, chunk_bytes, filter_bytes)


def _chunks(outline: Outline) -> tuple[Integers, Integers]:
    data, dictionary = (outline.slots[slot].reshape(-1) for slot in (Slot.DATA_PAGE, Slot.DICTIONARY_PAGE))
    starts = np.where((dictionary > 0) & (dictionary < data), dictionary, data)
    starts = np.where(starts == NONE, 0, starts).clip(0)
    return starts, starts + outline.slots[Slot.COMPRESSED_SIZE].reshape(-1).clip(0, 1 << 60)


def _without_gaps(spans: Integers, size: int, indexes: Integers) -> Integers:
    """Spans in order, clipped to the file and to the ends of those before them; gaps become spans of their own."""
    spans = spans[:, np.argsort(spans[0], kind="stable")]
    spans[1] = spans[1].clip(0, size)
    before = np.concatenate([[0], np.maximum.accumulate(spans[1])[:-1]])
    spans[0] = np.maximum(spans[0], before)
    gap = spans[0].clip(0, size) > before
    kinds = np.where(np.isin(before[gap], indexes), INDEX, OTHER)
    none = np.full(int(gap.sum()), -1)
    gaps = np.stack([before[gap], spans[0][gap].clip(0, size), kinds, none, none])
    whole = np.concatenate([spans[:, spans[1] > spans[0]], gaps], axis=1)
    ordered: Integers = whole[:, np.argsort(whole[0], kind="stable")]
    return ordered


# --- all that a page shows ------------------------------------------------------------------------


@dataclass(slots=True)
class Content:
    """All that a page shows.

    names     of the sources, as they were given
    where     the predicate as text; None without one, and then there are no verdicts
    matching  rows for which it is TRUE; None if nobody counted them
    file      the largest file, its filters included; of how many whose size was looked at
    leaves    its columns; layout: its bytes; heat: its filters by column
    """

    names: list[str]
    where: str | None
    advice: Advice
    verdicts: Verdicts | None
    matching: int | None
    file: FileInfo
    looked_at: int
    leaves: tuple[Leaf, ...]
    layout: Layout
    heat: list[ColumnHeat]
    engines: EnginesReport


def gather(source: CallSource, output: str, where: Any, count_rows: bool, progress: ProgressCallback | None) -> Content:
    """Read a data set; parameters as `write_report` has them.

    Raises errors as `advise` and `check` have them, RequestError where output is one of its files.
    """
    found = source.resolve(refuses=RAW_FILES)
    stored = _stored_files(found)
    files = stored.files
    _refuse_source(files, output)
    advice = advise_on(stored, source, progress=progress)
    verdicts = matching = None
    if where is not None:
        # A table may change meanwhile: all of a page is of one version of it.
        same: Any = found.snapshot if found.has_log else source
        verdicts = check(same, where, progress=progress)
        matching = count(same, where, progress=progress) if count_rows else None
    some = evenly_spread(files)
    largest = _largest(some)
    file = inspect([largest], raw_files=True, progress=progress).files[0]
    with open_logged(largest) as opened:
        outline, size = opened.outline(), opened.size
    layout = layout_of(outline, size, file.filters)
    named = [os.fspath(one) for one in several(paths_of_source(source))]
    return Content(
        named,
        None if where is None else str(where),
        advice,
        verdicts,
        matching,
        file,
        len(some),
        outline.leaves,
        layout,
        columns_of(file),
        engines(),
    )


def _stored_files(found: ResolvedSource) -> ResolvedSource:
    """Without rows that a table's log holds itself, of which no file can be shown or changed."""
    files = [file for file in found.snapshot.files if file.stored]
    return found._replace(snapshot=replace(found.snapshot, files=files))


def _refuse_source(files: Sequence[DataFile], output: str) -> None:
    """No page takes the place of a data file, whatever may be overwritten."""
    if not os.path.exists(output):
        return
    for file in files:
        if file.is_local and os.path.exists(file.path) and os.path.samefile(file.path, output):
            raise RequestError(f"{output} is itself a source; a page in its place would destroy its data")


def _largest(files: Sequence[DataFile]) -> DataFile:
    """The largest file whose footer can be read: there is one, or `advise` had raised an error."""

    def size(file: DataFile) -> int:
        try:
            with open_logged(file) as opened:
                opened.outline()
                return opened.size
        except ParquetBloomError:
            return -1

    if len(files) == 1:
        return files[0]
    sizes = side_by_side(size, files)
    return files[max(range(len(files)), key=sizes.__getitem__)]


# --- funnel ---------------------------------------------------------------------------------------
#
# What each kind of evidence leaves of a data set for one predicate: files, row groups, rows, bytes.

_STEPS = (  # what is left, and by which evidence
    ("after partitions", {"partition"}),  # folders' names, or those of a table's log
    ("after bounds", {"no rows", "literal", "bounds"}),
    ("after filters", {"filter"}),
)


@dataclass(slots=True)
class Step:
    """The rest after one kind of evidence; bytes are compressed, of column chunks."""

    name: str
    files: int
    row_groups: int
    rows: int
    bytes: int


def steps_of(verdicts: Verdicts) -> list[Step]:
    """All of the data set, then the rest after each kind of evidence.

    A file that a table's log excludes was not opened: it counts as one row group, with the log's rows and bytes.
    """
    left = [
        *verdicts,
        *(
            RowGroupVerdict(
                one.path, 0, Outcomes.FALSE, True, one.decided_by, 0, one.reason, one.rows or 0, one.size or 0
            )
            for one in verdicts.excluded
        ),
    ]
    steps = [_step("all", left)]
    for title, stages in _STEPS:
        left = [one for one in left if one.decided_by not in stages]
        steps.append(_step(title, left))
    return steps


def _step(title: str, left: Sequence[RowGroupVerdict]) -> Step:
    return Step(title, len({v.path for v in left}), len(left), sum(v.rows for v in left), sum(v.size for v in left))
