"""The bounds of one column in many row groups: how many admit a value, have it as a bound, or admit the next free one.

The next free value above another is the least one that no row group holds. Of texts and numbers with fractions it is as
near as one likes. Integers may lie without a gap, as days and small counts do: then it lies behind all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.edit.sample import Sample, distinct, integers_of
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import INT32, INT64, Leaf
from parquet_bloom.format.statistics import ColumnStatistics, domain_of

Floats = NDArray[np.float64]
_FURTHEST = 40.0  # e^40 is behind what samples and bounds of a column show


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

    def above(self, places: Sorted, stored: Stored | None) -> Floats:
        """How many chunks admit the next place above each that none holds."""
        if stored is None or places.array is None or places.array.dtype.kind != "i":
            _, low_le = places.among(self._lows)
            _, high_le = places.among(self._highs)
            return (self._n - len(self._lows) + low_le - high_le).astype(float)
        known, crowd = stored
        last = np.append(np.diff(known) != 1, True)
        behind = known[np.flatnonzero(last)[np.cumsum(last) - last]] + 1  # the run of each
        # Of integers that are held k times on average one of e^k is held by no chunk.
        free = places.array + np.exp(np.minimum(_FURTHEST, crowd * self.of(places)[0])).astype(np.int64)
        at = np.minimum(np.searchsorted(known, free), len(known) - 1)
        return self.of(Sorted(np.where(known[at] == free, behind[at], free).tolist()))[0]


class Stored(NamedTuple):
    """The integers of a column that lie close together.

    known  int64[n]: those that samples and bounds show, in order, each once
    crowd  how often each chunk that admits one is likely to hold it, of chunks of which nobody has seen all
    """

    known: NDArray[np.int64]
    crowd: float


def integers_in(chunks: Chunks, samples: Mapping[int, Sample]) -> Stored | None:
    """The integers that samples and bounds show; None of a column where a free one is near each."""
    leaf = chunks.leaf
    if domain_of(leaf) != "integer" or leaf.physical not in (INT32, INT64):
        return None
    known = [v for v in (*chunks.lower, *chunks.upper) if v is not None]
    if not known or max(known) >= 1 << 62 or min(known) < -(1 << 62):
        return None
    shown = [integers_of(leaf, one.values) for one in samples.values()]
    alone = one_value(chunks)
    ranges = [(chunks.lower[at], chunks.upper[at], sample) for at, sample in samples.items() if not alone[at]]
    filled = [
        distinct(sample)[1] / (int(high) - int(low) + 1) for low, high, sample in ranges if None not in (low, high)
    ]
    unseen = 1 - sum(one.complete for one in samples.values()) / max(1, int(np.count_nonzero(~alone)))
    crowd = float(np.mean(filled)) * max(0.0, unseen) if filled else 0.0
    return Stored(np.unique(np.concatenate([np.array(known, np.int64), *shown])), crowd)


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
