"""The filters of a file by column and row group, binned; and where each lies between size and rate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from parquet_bloom.audit.inspect import FileInfo, FilterInfo

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
                column, len(filters), sum(one.num_bytes for one in filters),
                median(one.fpp for one in readable) if readable else None,
                max((one.fpp for one in readable), default=None),
                fmean(map(fill_of, readable)) if readable else None,
                sum(len(one.problems) for one in filters),
                [_cell(part, at, n, file.row_groups) for at, part in enumerate(bins)],
            )
        )  # fmt: skip
    return sorted(found, key=lambda one: (-one.bytes, one.column))


def _cell(filters: Sequence[FilterInfo], at: int, n: int, row_groups: int) -> Cell | None:
    if not filters:
        return None
    readable = [one for one in filters if one.num_bytes]
    first, last = -(-at * row_groups // n), -(-(at + 1) * row_groups // n) - 1
    return Cell(
        first, last, len(readable), max((one.fpp for one in readable), default=0.0),
        fmean(map(fill_of, readable)) if readable else 0.0, fmean(one.num_bytes for one in readable) if readable else 0,
        sum(len(one.problems) for one in filters),
    )  # fmt: skip


def outliers_of(file: FileInfo) -> list[FilterInfo]:
    """All filters: those with contradictions first, then by rate, the highest first."""
    return sorted(file.filters, key=lambda one: (-len(one.problems), -one.fpp, one.row_group, one.column))


def points_of(file: FileInfo) -> tuple[list[Point], int]:
    """Where split block filters lie between size and rate, near ones as one; and how many have no place there.

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
