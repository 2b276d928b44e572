"""The bounds of one column in many row groups: how many admit a value, have it as a bound, or admit the next free one.

The next free value above another is the least one that no row group holds. Of texts and numbers with fractions it is as
near as one likes. Integers may lie without a gap, as days and small counts do: then it lies behind all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.edit.sample import Sample, distinct, integers_of
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import INT32, INT64, Leaf
from parquet_bloom.format.statistics import ColumnStatistics, domain_of

_EMPTY = (2.0, 4.0, 8.0)  # e^-these of some integers are in no row group: whether a free one is near, as nobody looked
_JUMPS = 100

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Chunks:
    """The column chunks of one column that hold a value, in one file or many, as their footers describe them.

    row_groups     of all of the data, also those where the column has no value
    lower, upper   of each chunk: bounds in the order of statistics.domain_of; None where unknown
    values         int64[n]: how many each has that are not NULL, as far as the footer tells
    num_values     int64[n]: NULL among them
    sizes          int64[n]: compressed bytes of the chunk; row_group_bytes: of all columns of its row group
    open           which chunk, of n -> its reader and its row group
    remote         whether a chunk is read by a request to a store
    """

    leaf: Leaf
    row_groups: int
    lower: list[Any]
    upper: list[Any]
    values: NDArray[np.int64]
    num_values: NDArray[np.int64]
    sizes: NDArray[np.int64]
    row_group_bytes: NDArray[np.int64]
    open: Callable[[int], tuple[ColumnReader, int]]
    remote: bool = False

    def __len__(self) -> int:
        return len(self.lower)


def chunks_of(
    leaf: Leaf,
    files: Sequence[tuple[Outline, Leaf, ColumnStatistics]],
    row_groups: int,
    opened: Callable[[int, int], ColumnReader],
    remote: bool = False,
    only: Sequence[int] | None = None,
) -> Chunks:
    """The chunks of a column that hold a value.

    files   that have the column, with the column in each and its statistics; row_groups: of these and all others
    opened  (which of these files, row group) -> a reader of the column
    only    row groups that count, where there is one file
    """
    lower: list[Any] = []
    upper: list[Any] = []
    places: list[tuple[int, int]] = []
    numbers: list[NDArray[np.int64]] = []
    for at, (outline, same, known) in enumerate(files):
        slots = outline.slots[:, :, same.index]
        values = (slots[Slot.NUM_VALUES] - slots[Slot.NULL_COUNT].clip(0)).clip(0)
        counts = known.some_value & (slots[Slot.NUM_VALUES] > 0)
        if only is not None:
            counts &= np.isin(np.arange(len(counts)), only)
        for bounds, has, found in ((known.lower, known.has_lower, lower), (known.upper, known.has_upper, upper)):
            found += [v if yes else None for v, yes in zip(bounds[counts].tolist(), has[counts].tolist(), strict=True)]
        places += [(at, group) for group in np.flatnonzero(counts).tolist()]
        sizes = slots[Slot.COMPRESSED_SIZE].clip(0)
        four = np.stack([values, slots[Slot.NUM_VALUES].clip(0), sizes, _row_group_bytes(outline)])
        numbers.append(four[:, counts])
    four = np.concatenate(numbers, axis=1) if numbers else np.zeros((4, 0), np.int64)
    values, num_values, sizes, whole = four

    def reader(chunk: int) -> tuple[ColumnReader, int]:
        return opened(*places[chunk]), places[chunk][1]

    return Chunks(leaf, row_groups, lower, upper, values, num_values, sizes, whole, reader, remote)


@derived
def _row_group_bytes(outline: Outline) -> NDArray[np.int64]:
    """Bytes of each row group, int64[row groups]: added up once for all columns."""
    whole: NDArray[np.int64] = outline.slots[Slot.COMPRESSED_SIZE].clip(0).sum(axis=1)
    return whole


def one_value(chunks: Chunks) -> NDArray[np.bool_]:
    """The chunks that hold one value only, by their bounds."""
    pairs = zip(chunks.lower, chunks.upper, strict=True)
    return np.array([low is not None and high is not None and low == high for low, high in pairs], bool)


class Bounds:
    """The bounds of all chunks, and how many of these admit a value."""

    def __init__(self, chunks: Chunks) -> None:
        self._n = len(chunks)
        self._lows = Sorted([v for v in chunks.lower if v is not None])
        self._highs = Sorted([v for v in chunks.upper if v is not None])
        self.single = [v for v, one in zip(chunks.lower, one_value(chunks).tolist(), strict=True) if one]
        self._single = Sorted(self.single)

    def of(self, places: Sorted) -> tuple[Floats, Floats]:
        """How many chunks admit each place, and how many have it as a bound."""
        low_lt, low_le = places.among(self._lows)
        high_lt, high_le = places.among(self._highs)
        one_lt, one_le = places.among(self._single)
        bounds = (low_le - low_lt) + (high_le - high_lt) - (one_le - one_lt)
        return (self._n - len(self._lows) + low_le - high_lt).astype(float), bounds.astype(float)

    def above(self, places: Sorted, stretches: Stretches | None) -> Floats:
        """How many chunks admit the next place above that none holds: float[3, places], as Stretches guesses it."""
        if stretches is None or places.array is None or places.array.dtype.kind != "i":
            _, low_le = places.among(self._lows)
            _, high_le = places.among(self._highs)
            return np.stack([(self._n - len(self._lows) + low_le - high_le).astype(float)] * 3)
        return np.stack([self.of(Sorted(one.tolist()))[0] for one in stretches.next_free(places.array)])


class Stretches:
    """Integers without a gap: runs of those that samples hold, and stretches that other row groups are likely to fill.

    values  int64[n], ascending, each once
    edges   int64[m], ascending: from each on to the next, so much is expected of how often each integer there is held,
            float[m], by row groups of which nobody has seen all
    """

    def __init__(self, values: NDArray[np.int64], edges: NDArray[np.int64], expected: Floats) -> None:
        self._values = values
        last = np.append(np.diff(values) != 1, True)
        self._behind = values[np.flatnonzero(last)[np.cumsum(last) - last]] + 1
        self._edges, self._expected = edges, expected

    def next_free(self, places: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """The next integer above each that no row group holds: by the three guesses of _EMPTY."""
        return [self._free(places, most) for most in _EMPTY]

    def _free(self, places: NDArray[np.int64], most: float) -> NDArray[np.int64]:
        full = self._expected > most
        ends = np.append(self._edges[1:], self._edges[-1:])
        # The end of the stretches that follow each other without a gap.
        behind = np.minimum.accumulate(np.where(full, np.iinfo(np.int64).max, self._edges)[::-1])[::-1]
        behind = np.where(behind == np.iinfo(np.int64).max, ends[-1:], behind)
        found = places + 1
        for _ in range(_JUMPS):
            at = np.minimum(np.searchsorted(self._values, found), len(self._values) - 1)
            further = np.where(self._values[at] == found, self._behind[at], found)
            edge = np.searchsorted(self._edges, further, "right") - 1
            inside = (edge >= 0) & full[edge]
            further = np.where(inside, np.maximum(further, behind[edge]), further)
            if (further == found).all():
                break
            found = further
        return found


def stretches_of(chunks: Chunks, samples: dict[int, Sample]) -> Stretches | None:
    """Of a column of integers that lie close together; None where a free one is near each."""
    leaf = chunks.leaf
    if domain_of(leaf) != "integer" or leaf.physical not in (INT32, INT64):
        return None
    if None in chunks.lower or None in chunks.upper or max(chunks.upper) >= 1 << 62 or min(chunks.lower) < -(1 << 62):
        return None
    lows, highs = np.array(chunks.lower, np.int64), np.array(chunks.upper, np.int64)
    counts = [(distinct(sample)[1], sample.whole) for sample in samples.values()]
    share = sum(one for one, _ in counts) / sum(whole for _, whole in counts)
    filled = np.clip(share * chunks.values / (highs - lows + 1), 0, 1 - 1e-6)
    expected = -np.log1p(-filled)
    if _summed(lows, highs, expected)[1].max() < 1:
        return None
    seen = [chunk for chunk, sample in samples.items() if sample.complete]
    expected[seen] = 0
    edges, sums = _summed(lows, highs, expected)
    parts = [np.unique(integers_of(leaf, sample.values)) for sample in samples.values()]
    return Stretches(np.unique(np.concatenate([*parts, lows, highs])), edges, sums)


def _summed(lows: NDArray[np.int64], highs: NDArray[np.int64], of_each: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Edges at which a sum over stretches from a low to a high changes, and the sum from there on."""
    edges = np.concatenate([lows, highs + 1])
    order = np.argsort(edges, kind="stable")
    return edges[order], np.concatenate([of_each, -of_each])[order].cumsum()


class Sorted:
    """Positions in ascending order; `order` has the original index of each. Numbers are compared by numpy."""

    def __init__(self, places: Sequence[Any]) -> None:
        kinds = {type(v) for v in places}
        plain: NDArray[Any] | None = None
        if kinds == {float} or (kinds == {int} and min(places) >= -(1 << 63) and max(places) < 1 << 63):
            plain = np.array(places)
        elif not places:
            plain = np.empty(0, np.int64)
        self.array: NDArray[Any] | None = None
        self.list: list[Any] | None = None
        if plain is not None:
            self.order = np.argsort(plain, kind="stable")
            self.array = plain[self.order]
        else:
            self.order = np.array(sorted(range(len(places)), key=places.__getitem__), np.int64)
            self.list = [places[i] for i in self.order.tolist()]

    def __len__(self) -> int:
        return len(self.order)

    def among(self, bounds: Sorted) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each place: how many of some bounds are less, and how many no greater."""
        if self.array is not None and bounds.array is not None:
            return np.searchsorted(bounds.array, self.array), np.searchsorted(bounds.array, self.array, "right")
        mine, theirs, n = self._plain(), bounds._plain(), len(self) + 1
        # A bound is less than all places behind those that are no greater.
        less = np.bincount([bisect_right(mine, v) for v in theirs], minlength=n)
        no_greater = np.bincount([bisect_left(mine, v) for v in theirs], minlength=n)
        return less.cumsum()[:-1], no_greater.cumsum()[:-1]

    def _plain(self) -> list[Any]:
        if self.list is None:
            self.list = [] if self.array is None else self.array.tolist()
        return self.list

    def span(self, low: Any, high: Any) -> tuple[int, int]:
        """From the first place that is no less than low to behind the last that is no greater than high."""
        mine = self._plain()
        return bisect_left(mine, low), bisect_right(mine, high)

    def between(self, low: Any, high: Any) -> tuple[int, int]:
        """From the first place that is greater than low to behind the last that is less than high; None is no bound."""
        mine = self._plain()
        start = 0 if low is None else bisect_right(mine, low)
        return start, max(start, len(mine) if high is None else bisect_left(mine, high))
