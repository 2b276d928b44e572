"""The values of one column: its bounds in many row groups, and a sample of one chunk.

**A sample** says how many distinct values the whole has, and which of others it holds. What a part of a chunk shows is
carried on to the whole: with L = -ln(1 - share found), L(n) grows like n^a, and the two halves of the sample give a.
(a = 1 where all values are equally frequent, less where some are rare; so rare user ids are not taken for ones that
every row group holds.)

**Bounds** say how many row groups admit a value, have it as a bound, or admit the next free one. The next free value
above another is the least one that no row group holds. Of texts and numbers with fractions it is as near as one likes.
Integers may lie without a gap, as days and small counts do: then it lies behind all of them.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.footer import derived
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import BYTE_ARRAY, FLBA, INT32, INT64, Leaf
from parquet_bloom.format.statistics import ColumnStatistics, domain_of
from parquet_bloom.format.values import arrow_of, numbers_in
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.storage.display import line_of

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


# --- a sample -------------------------------------------------------------------------------------


_SAMPLE_BYTES = 16 << 20  # decoded; long texts end a sample sooner
_THINNED = 1000  # values that are looked at one by one
_BUCKET_BITS = 17
_DRAWN = 8192  # distinct values; fewer, where values come many times

Hashes = NDArray[np.uint64]


class Interval(NamedTuple):
    """A figure that was not measured: where it is likely to lie, and the likeliest of all."""

    low: float
    likely: float
    high: float

    def __repr__(self) -> str:
        return line_of(self)

    def times(self, factor: float) -> Interval:
        """All three, so many times as large."""
        return Interval(self.low * factor, self.likely * factor, self.high * factor)

    def plus(self, other: Interval) -> Interval:
        """All three, added to those of another."""
        return Interval(self.low + other.low, self.likely + other.likely, self.high + other.high)


class Sample:
    """The first values of one column chunk that are not null.

    values    as decoded: int32, int64, float, double, large_binary or fixed_size_binary
    hashes    uint64[len(values)], XXH64, in the same order
    whole     how many values the chunk has, as many as the sample holds or more
    start     0 <= start < 1, where in the order of hashes some distinct values are drawn: samples that begin at one
              place would draw the same ones, and be wrong together
    seconds   that decoding and hashing took, for each value
    """

    def __init__(self, values: pa.ChunkedArray, hashes: Hashes, whole: int, start: float = 0.0) -> None:
        self.values, self.hashes, self.whole, self.start = values, hashes, whole, start
        self.seconds = 0.0
        self._drawn: SampledValues | None = None

    @property
    def complete(self) -> bool:
        """Whether the chunk has no value more."""
        return len(self.hashes) >= self.whole

    @property
    def drawn(self) -> SampledValues:
        """Some of the distinct values, at random; all of them where they are few."""
        if self._drawn is None:
            self._drawn = _draw(self.hashes, self.start)
        return self._drawn

    @property
    def n_distinct(self) -> int:
        """How many distinct values the sample has; estimated where there are many."""
        return round(len(self.drawn.hashes) / self.drawn.share)

    def part(self, start: int, stop: int) -> Sample:
        """Some of its values."""
        return Sample(self.values[start:stop], self.hashes[start:stop], self.whole, self.start)


class SampledValues(NamedTuple):
    """Some distinct values of a sample.

    hashes  uint64[n], each once
    first   int64[n]: where the sample has the value first; times: how often it has it
    share   of all distinct values that these are, as their hashes lie in so much of all numbers
    """

    hashes: Hashes
    first: NDArray[np.int64]
    times: NDArray[np.int64]
    share: float


def _draw(hashes: Hashes, start: float) -> SampledValues:
    share = min(1.0, 2 * _DRAWN / max(1, len(hashes)))
    while share < 1:
        # Hashes are spread evenly, so those in any window are distinct values drawn at random.
        rows = np.flatnonzero(hashes - np.uint64(int(start * 2**64)) < np.uint64(int(share * 2**64)))
        found, first, times = np.unique(hashes[rows], return_index=True, return_counts=True)
        if len(found) >= _DRAWN // 4:
            return SampledValues(found, rows[first], times, share)
        share = min(1.0, 16 * share)
    coded = arrow_of(hashes).dictionary_encode()  # where few come many times, it is far quicker than sorting them
    codes, found = numbers_in(coded.indices, np.dtype(np.int32)), numbers_in(coded.dictionary, hashes.dtype)
    first = np.empty(len(found), np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of those that are written to one place the last one stays
    order = np.argsort(found)
    return SampledValues(found[order], first[order], np.bincount(codes, minlength=len(found))[order], 1.0)


def sample_of(reader: ColumnReader, row_group: int, num_values: int, rows: int, start: float) -> Sample | None:
    """Decode so many rows of a column chunk, or 16 MiB; None where there is no value among them.

    num_values  of the chunk, NULL among them
    Raises DamagedFileError where they do not decode.
    """
    begun, seen, taken, times = time.perf_counter(), 0, 0, 1.0
    values: list[pa.Array] = []
    batches: Any = reader.batches(row_group)
    with closing(batches):
        for batch in batches:
            seen, taken = seen + len(batch), taken + batch.nbytes
            values.append(batch.drop_null())
            if seen < num_values and (seen >= rows or taken >= _SAMPLE_BYTES):
                times = num_values / seen  # nulls are as frequent behind the sample as in it
                break
    hashes = np.concatenate([hash_array(one) for one in values]) if values else np.empty(0, np.uint64)
    if not len(hashes):
        return None
    sample = Sample(pa.chunked_array(values), hashes, round(len(hashes) * times), start)
    sample.seconds = (time.perf_counter() - begun) / len(hashes)
    return sample


# --- values -----------------------------------------------------------------------------------------


def places_of(leaf: Leaf, values: pa.ChunkedArray) -> list[Any]:
    """Values in the order of statistics.domain_of, NaN as it is; none where the column has no order."""
    domain = domain_of(leaf)
    if domain is None:
        return []
    plain: list[Any] = values.to_pylist()
    if leaf.physical in (INT32, INT64):
        if leaf.logical == "INTEGER" and not leaf.signed:
            return [value % (1 << 8 * leaf.width) for value in plain]
        return plain
    if domain == "integer" and leaf.physical in (FLBA, BYTE_ARRAY):
        return [int.from_bytes(value, "big", signed=True) for value in plain]
    if domain == "float":
        return [float(np.frombuffer(v, "<f2")[0]) if isinstance(v, bytes) else v for v in plain]
    return plain


def integers_of(leaf: Leaf, values: pa.ChunkedArray) -> NDArray[np.int64]:
    """Values of INT32 and INT64 as places; of unsigned ones beyond int64, what they would be as signed ones."""
    found = np.concatenate([numbers_in(chunk, np.dtype(f"i{leaf.width}")) for chunk in values.chunks])
    if leaf.logical == "INTEGER" and not leaf.signed:
        found = found.view(f"u{found.itemsize}")
    return found.astype(np.int64)


def thinned(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A thousand of many values, evenly spread."""
    return values.take(arrow_of(np.linspace(0, len(values) - 1, min(len(values), _THINNED)).astype(np.int64)))


# --- distinct ones, and shared ones -----------------------------------------------------------------


def halves(sample: Sample) -> tuple[Sample, Sample]:
    """Its first and its second half, as if they were two row groups."""
    middle = len(sample.hashes) // 2
    return sample.part(0, middle), sample.part(middle, len(sample.hashes))


def first_places(wanted: Hashes, hashes: Hashes) -> NDArray[np.int64]:
    """The first position of each wanted hash among others; len(hashes) for one that is absent.

    wanted  uint64[n], in any order, may have some twice; hashes: uint64[m], many
    """
    keys, back = np.unique(wanted, return_inverse=True)
    first = np.full(len(keys), len(hashes), np.int64)
    left = np.arange(len(keys))
    for shift in range(0, 64 - _BUCKET_BITS, _BUCKET_BITS):
        # A key a bucket; those that find theirs taken wait for the next round, which looks at other bits.
        buckets = np.full(1 << _BUCKET_BITS, -1, np.int32)
        buckets[_bits(keys[left], shift)] = left
        placed = buckets[_bits(keys[left], shift)] == left
        at = buckets[_bits(hashes, shift)]
        rows = np.flatnonzero(at >= 0)
        rows = rows[keys[at[rows]] == hashes[rows]]
        first[at[rows[::-1]]] = rows[::-1]
        left = left[~placed]
        if not len(left):
            break
    for key in left.tolist():
        rows = np.flatnonzero(hashes == keys[key])
        first[key] = rows[0] if len(rows) else len(hashes)
    return first[back]


def _bits(hashes: Hashes, shift: int) -> NDArray[np.int64]:
    return ((hashes >> np.uint64(shift)) & np.uint64((1 << _BUCKET_BITS) - 1)).astype(np.int64)


def _grown(half: float, full: float, times: float) -> float:
    """Extrapolate a count that grew from `half` to `full` while the sample doubled, to `times` the sample."""
    if times <= 1 or full <= 0:
        return full
    power = min(1.0, max(0.0, math.log2(full / half))) if half > 0 else 1.0
    return float(full * times**power)


def distinct(sample: Sample) -> tuple[int, int]:
    """The fewest and the most distinct values that the whole chunk is likely to have, carried on from the sample.

    The fewest: all values are equally frequent. N of them give N (1 - e^(-n/N)) distinct ones among n.
    The most: it grows on as it grew from the first half of the sample to the whole of it.
    """
    n, drawn, full = len(sample.hashes), sample.drawn, sample.n_distinct
    if sample.complete:
        return full, full
    if (drawn.times == 1).all():
        return sample.whole, sample.whole
    half = int((drawn.first < n // 2).sum()) / drawn.share
    most = min(sample.whole, round(_grown(half, full, sample.whole / n)))
    low, high = float(full), float(full) * n  # of this many values, n are nearly all distinct
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if -middle * math.expm1(-n / middle) < full else (low, middle)
    return min(most, round(-low * math.expm1(-sample.whole / low))), most


def carried_on(half: float, full: float, times: float) -> float:
    """The share of some values that a whole chunk is likely to hold, of which its first values are known.

    half, full  the share that the first half of these holds, and that all of them hold
    times       how many times as many values the chunk has
    """
    if times <= 1 or not 0 < full < 1:
        return full
    return max(full, -math.expm1(-_grown(-math.log1p(-half), -math.log1p(-full), times)))


def shared_fraction(one: Sample, other: Sample) -> float:
    """The share of one row group's distinct values that the whole of another holds too."""
    n = len(other.hashes)
    if not len(one.hashes) or not n:
        return 0.0
    first = first_places(one.drawn.hashes, other.hashes)
    return carried_on(float((first < n // 2).mean()), float((first < n).mean()), other.whole / n)
