"""Estimates the row groups that filters on a column spare a lookup, by footers and a sample; for `add` and `advise`.

Two lookups are thought of. Draw a row group at random, of those that hold a value, and one of its distinct values v:

    present  a lookup of v: every key of a row group is as likely as any other, however many rows have it; a user who
             is in half of the rows is one key among many, and the others are looked up by the filter
    absent   a lookup of the next value above v that no row group holds

Of G row groups the bounds of A admit the value, and H hold it. Exact filters spare (A - H) of the reading: every other
row group is out by its bounds, or has to be read.

    A        counted over the bounds of all row groups, for each value that is drawn
    H        its own row group; those whose lower or upper bound it is; and of the I others that admit it the share that
             decoding some of them shows

So a column whose row groups hold one value each, or that is in order, gains nothing: there A = H. Row groups of one
value are known by their bounds, and are counted, not sampled. Of the others some are decoded: spread over the data set
and over how well its row groups compress, more of them while the interval is wide. Its width comes of how the sampled
row groups differ (Student's t, two-sided 95 %), once as those that values are drawn of, once as those that hold them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.edit.column_bounds import Bounds, Chunks, Floats, Sorted, one_value, stretches_of
from parquet_bloom.edit.sample import (
    GrowingSample,
    Hashes,
    Interval,
    Sample,
    carried_on,
    distinct,
    first_places,
    places_of,
)
from parquet_bloom.format.forms import Sizing
from parquet_bloom.format.statistics import domain_of
from parquet_bloom.format.values import arrow_of
from parquet_bloom.kernels.split_block import BLOCK_BYTES

# (rows of a row group, of all of them, how many row groups at most), one after the other while the interval is wide
_ROUNDS = ((1 << 16, 1 << 18, 32), (1 << 17, 1 << 19, 48), (1 << 18, 1 << 20, 64))
_FEWEST = 4  # row groups of a round, where there are as many
_MOST_BYTES = 64 << 20  # decoded, of a column
_REMOTE = 4  # times fewer row groups of a store: each is a request of its own
_DRAWN, _DRAWN_IN_ALL = 512, 8192  # values of a row group, and of all
_CONSTANTS_DECODED = 6  # row groups of one value that are decoded
_CONSTANTS_COUNTED = 2000  # of which bounds are counted
_NARROW = 0.05  # wide enough for nobody to decode more, and so is a count of distinct values within a factor
_ALIKE = 1.3
_MARGIN = 0.02  # of a share: what the drawn values leave open
_T95 = (math.inf, 12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)  # of Student's t, by degrees of freedom
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(slots=True)
class Estimate:
    """The estimate of a column, in shares of all row groups unless a field says otherwise.

    absent, present   what exact filters spare such a lookup
    admitted          the row groups whose bounds admit a present value; held: of those, the ones that hold it
    benefit           `present` as a share of the row groups that hold any value
    one_value         whether all that was looked at is one value
    counts            (values, fewest and most distinct ones) of each chunk that was looked into
    samples           of these, in their order
    """

    chunks: Chunks
    absent: Interval
    present: Interval
    admitted: Interval
    held: Interval
    benefit: float
    one_value: bool
    samples: list[Sample] = field(default_factory=list)
    sampled: list[int] = field(default_factory=list)
    _counts: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def counts(self) -> list[tuple[int, int, int]]:
        """(values, fewest and most distinct ones) of each sampled chunk, as far as it is known."""
        if len(self._counts) != len(self.samples):
            self._counts = [(sample.whole, *distinct(sample)) for sample in self.samples]
        return self._counts

    def filter_bytes(self, sizing: Sizing, header: int) -> Interval:
        """Bytes of filters on all chunks, each with so many bytes of a header."""

        def size_of(ndv: int) -> int:
            return sizing.size_for(ndv) + header

        def sizes(fewest: float, most: float) -> Floats:
            # A filter is folded by its own bits, and those of a small one are far from what is expected of many.
            likely = max(1, round(math.sqrt(fewest * most)))
            luck = 0.02 + 0.4 / math.sqrt(sizing.size_for(likely) / BLOCK_BYTES)
            ends = max(1, math.floor((1 - luck) * fewest)), max(1, math.ceil((1 + luck) * most))
            return np.array([size_of(ends[0]), size_of(likely), size_of(ends[1])], float)

        chunks, total, spread = self.chunks, np.zeros(3), 0.0
        alone = one_value(chunks)
        total += size_of(1) * int(alone.sum())
        known = dict(zip(self.sampled, self.counts, strict=True))
        for at, (_, fewest, most) in known.items():
            if not alone[at]:
                total += sizes(fewest, most)
        rest = np.flatnonzero(~alone & ~np.isin(np.arange(len(chunks)), list(known)))
        shares = [(fewest / n, most / n) for at, (n, fewest, most) in known.items() if not alone[at]]
        if not len(rest):
            return Interval(*total)
        if not shares:
            shares = [(0.0, 1.0)]
        # A chunk that was not looked into holds as many distinct ones of its values as one of the others: any of them.
        values, times = np.unique(chunks.values[rest], return_counts=True)
        every = np.zeros((len(shares), 3))
        for n, many in zip(values.tolist(), times.tolist(), strict=True):
            for at, (low, high) in enumerate(shares):
                every[at] += many * sizes(n * low, n * high)
        k = len(shares)
        if k > 1:
            spread = _t95(k) * float(every[:, 1].std(ddof=1)) * math.sqrt(1 / k + 1 / len(rest))
        low, likely, high = (total + every.mean(axis=0)).tolist()
        smallest, largest = size_of(1) * len(chunks), sum(size_of(max(1, n)) for n in chunks.values.tolist())
        return Interval(max(low - spread, min(low, smallest)), likely, min(high + spread, max(high, largest)))


# --- the sample -----------------------------------------------------------------------------------


def estimate(chunks: Chunks, least: float | None = None) -> Estimate | None:
    """Judge a column; None where no value is stored.

    least  a benefit: nothing more is decoded once it is clear whether the column has so much; None: while a figure
           is less sure than 5 points
    Decodes 262,144 rows of it, in four row groups or more; twice and four times as many where that is not enough.
    Raises FileError and its kinds where a sample does not decode.
    """
    is_constant = one_value(chunks)
    order = _order(chunks, is_constant)
    constants_to_try = _order(chunks, ~is_constant)[:_CONSTANTS_DECODED]
    found: dict[int, GrowingSample] = {}
    judged = None

    def grow(chunk: int, rows: int) -> Sample | None:
        if chunk not in found:
            found[chunk] = GrowingSample(
                *chunks.open(chunk), int(chunks.num_values[chunk]), (len(found) + 0.5) * _GOLDEN % 1
            )
        found[chunk].grow(rows)
        return found[chunk].sample

    try:
        for rows, in_all, most in _ROUNDS if len(chunks) > 1 else _ROUNDS[-1:]:
            samples = {chunk: sample for chunk in constants_to_try if (sample := grow(chunk, 1)) is not None}
            constants = list(samples)
            varied: list[int] = []
            for chunk in order[: most // _REMOTE if chunks.remote else most]:
                taken = [found[one] for one in varied]
                full = sum(one.rows for one in taken) >= in_all or sum(one.bytes for one in taken) >= _MOST_BYTES
                if full and len(varied) >= _FEWEST:
                    break
                if (sample := grow(chunk, rows)) is not None:
                    samples[chunk] = sample
                    varied.append(chunk)
            if not samples:
                return None
            values = _Values(chunks, samples, varied, constants)
            partners = {chunk: sample for chunk in values.partners() if (sample := grow(chunk, rows)) is not None}
            if partners:
                values = _Values(chunks, samples | partners, varied, constants)
            judged = values.judge()
            whole = len(varied) == len(order) and all(sample.complete for sample in values.samples.values())
            if whole or _is_narrow(judged) or (least is not None and _is_clear(judged, least)):
                break
    finally:
        for one in found.values():
            one.close()
    return judged


def _is_narrow(judged: Estimate) -> bool:
    wide = max(one.high - one.low for one in (judged.absent, judged.present)) - 2 * _MARGIN
    return wide <= _NARROW and all(most <= _ALIKE * fewest for _, fewest, most in judged.counts)


def _is_clear(judged: Estimate, least: float) -> bool:
    low, _, high = judged.present.times(judged.chunks.row_groups / len(judged.chunks))
    return low > least or high < least


def _order(chunks: Chunks, without: NDArray[np.bool_]) -> list[int]:
    """Chunks in the order in which they are sampled: any first few lie all over the data, and compress as all do."""
    at = np.flatnonzero(~without)
    bits = 8 * chunks.sizes[at] / np.maximum(1, chunks.num_values[at])
    at = at[np.lexsort((at, np.round(2 * np.log2(1 + bits))))]
    steps = (np.arange(2 * len(at)) + 0.5) * _GOLDEN % 1
    picked = at[(steps * len(at)).astype(np.int64)].tolist()
    return list(dict.fromkeys([*picked, *at.tolist()]))


# --- the judgement --------------------------------------------------------------------------------


class _Values:
    """Values drawn of sampled chunks, in ascending order, and what bounds and other samples say of them.

    samples    which chunk -> what is known of its values
    own        chunks that values are drawn of, which hold several
    constants  chunks that hold one
    """

    def __init__(self, chunks: Chunks, samples: dict[int, Sample], own: list[int], constants: list[int]) -> None:
        self.chunks, self.samples, self.own, self.constants = chunks, samples, own, constants
        self.alone = one_value(chunks)
        self.owners = [*own, *constants]
        self.ordered = domain_of(chunks.leaf) is not None
        places: list[Any] = []
        hashes: list[Hashes] = []
        owner: list[NDArray[np.int64]] = []
        singles: list[NDArray[np.bool_]] = []
        many = max(_DRAWN, _DRAWN_IN_ALL // len(self.owners))
        for i, chunk in enumerate(self.owners):
            sample, some_drawn = samples[chunk], samples[chunk].drawn
            # In the order of hashes, which is none.
            rows, found = some_drawn.first[:many], some_drawn.hashes[:many]
            values = sample.values.take(arrow_of(rows.astype(np.int64)))
            some = places_of(chunks.leaf, values) if self.ordered else [0] * len(found)
            real = np.array([v == v for v in some], bool)  # not NaN, which has no place
            places += [v for v in some if v == v]
            hashes.append(found[real])
            singles.append(some_drawn.times[:many][real] == 1)
            owner.append(np.full(int(real.sum()), i))
        self.places = Sorted(places)
        self.hashes = np.concatenate(hashes)[self.places.order]
        self.singles = np.concatenate(singles)[self.places.order]
        self.owner = np.concatenate(owner)[self.places.order]
        self.drawn = np.maximum(1, self._by_owner(self.owner))
        self._count()

    def _by_owner(self, owner: NDArray[np.int64]) -> Floats:
        return np.bincount(owner, minlength=len(self.owners)).astype(float)

    def _mean(self, of_each: Floats) -> Floats:
        """By owner."""
        return np.bincount(self.owner, of_each, len(self.owners)) / self.drawn

    def _count(self) -> None:
        """Count the chunks whose bounds admit each value, and the average over chunks of one value.

        admitted  how many chunks admit it; above: the next one above it that none holds, float[3, values]: at least,
                  likely, and at most
        inside    how many may hold it, as it lies between their bounds
        """
        n = len(self.chunks)
        if not self.ordered:
            self.admitted = np.full(len(self.hashes), float(n))
            self.above = np.stack([self.admitted] * 3)
            self.inside = self.admitted - 1
            self.of_constants = 0.0, np.zeros(3), 0.0
            return
        bounds = Bounds(self.chunks)
        self.admitted, by_bounds = bounds.of(self.places)
        stretches = stretches_of(self.chunks, self.samples)
        self.above = bounds.above(self.places, stretches)
        is_bound = np.zeros(len(self.hashes), bool)
        for i, chunk in enumerate(self.owners):
            for bound in (self.chunks.lower[chunk], self.chunks.upper[chunk]):
                if bound is not None:
                    start, stop = self.places.span(bound, bound)
                    is_bound[start:stop] |= self.owner[start:stop] == i
        self.inside = np.maximum(0.0, self.admitted - by_bounds - ~is_bound)
        self.of_constants = 0.0, np.zeros(3), 0.0
        if bounds.single:
            some = Sorted(bounds.single[:: max(1, len(bounds.single) // _CONSTANTS_COUNTED)])
            admitted, by_bounds = bounds.of(some)
            above = bounds.above(some, stretches).mean(axis=1)
            self.of_constants = float(admitted.mean()), above, float((admitted - by_bounds).mean())

    def _span(self, chunk: int) -> tuple[int, int]:
        """The values that lie strictly between a chunk's bounds."""
        if not self.ordered:
            return 0, len(self.hashes)
        return self.places.between(self.chunks.lower[chunk], self.chunks.upper[chunk])

    def partners(self) -> list[int]:
        """Chunks to sample: bounds admit values into them, and no sample shows how many of these they hold."""
        seen = np.zeros(len(self.owners))
        for chunk in self.samples:
            start, stop = self._span(chunk)
            owner = self.owner[start:stop]
            mine = self.owners.index(chunk) if chunk in self.owners else -1
            seen += self._by_owner(owner[owner != mine])
        others = [chunk for chunk in range(len(self.chunks)) if chunk not in self.samples and not self.alone[chunk]]
        found: dict[int, None] = {}
        for i in np.flatnonzero((seen == 0) & (self._mean(self.inside) > 0)).tolist():
            places = np.flatnonzero((self.owner == i) & (self.inside > 0))
            for chunk in sorted(others, key=lambda chunk: abs(chunk - self.owners[i])):
                start, stop = self._span(chunk)
                if ((start <= places) & (places < stop)).any():
                    found[chunk] = None
                    break
        return list(found)

    def _stored_between(self) -> tuple[Floats, Floats]:
        """The share of values that lie between the bounds of other chunks and are stored there, by samples.

        returns  float[owners, samples]: how many there are; float[3, owners, samples]: how many of them the chunk
                 holds, at least, likely, and at most
        """
        size = len(self.owners), len(self.samples)
        inside, held = np.zeros(size), np.zeros((3, *size))
        for j, (chunk, sample) in enumerate(self.samples.items()):
            if self.alone[chunk]:
                continue
            start, stop = self._span(chunk)
            mine = self.owners.index(chunk) if chunk in self.owners else -1
            others = np.flatnonzero(self.owner[start:stop] != mine) + start
            owner, hashes = self.owner[others], self.hashes[others]
            inside[:, j] = self._by_owner(owner)
            first = first_places(hashes, sample.hashes)
            held[:, :, j] = full = self._by_owner(owner[first < len(sample.hashes)])
            if not sample.complete:
                half = self._by_owner(owner[first < len(sample.hashes) // 2])
                times = sample.whole / len(sample.hashes)
                for i in np.flatnonzero(full):
                    many = inside[i, j]
                    held[:, i, j] = carried_on(half[i] / many, full[i] / many, times).times(many)
        return inside, held

    def _rates(self, inside: Floats, held: Floats) -> Floats:
        """float[3, owners]: of the chunks that may hold a value the share that do, at least, likely, and at most."""
        opened = inside.sum(axis=1)
        pooled = held.sum(axis=(1, 2)) / opened.sum() if opened.any() else np.array([0.0, 0.5, 1.0])
        rates: Floats = np.where(opened > 0, held.sum(axis=2) / np.maximum(1, opened), pooled[:, None])
        rates[0, opened == 0], rates[2, opened == 0] = 0.0, 1.0
        for i, chunk in enumerate(self.owners):
            sample = self.samples[chunk]
            seen = sample.n_distinct
            if not sample.complete and seen < len(sample.hashes):
                # Values that a part of the chunk has not shown are rare ones: elsewhere they are held no more often
                # than those that came once.
                fewest, most = distinct(sample)
                rates[0, i] *= min(1.0, seen / most)
                unseen = max(0.0, 1 - seen / math.sqrt(fewest * most))
                rates[1, i] *= 1 - unseen * (1 - self._rarity(i))
        return rates

    def _rarity(self, i: int) -> float:
        """How much less often others hold values that came once than they hold all values of their chunk."""
        mine = np.flatnonzero(self.owner == i)
        elsewhere = np.zeros(len(mine))
        for chunk, sample in self.samples.items():
            if chunk != self.owners[i]:
                elsewhere += first_places(self.hashes[mine], sample.hashes) < len(sample.hashes)
        singles = self.singles[mine]
        return (
            min(1.0, float(elsewhere[singles].mean() / elsewhere.mean())) if singles.any() and elsewhere.any() else 1.0
        )

    def judge(self) -> Estimate:
        """Estimate all values by the sampled ones."""
        n, k, whole = len(self.chunks), len(self.own), self.chunks.row_groups
        ones = int(self.alone.sum()) / n
        several = n - int(self.alone.sum())
        inside, held = self._stored_between()
        rates = self._rates(inside, held)
        # Of the chunks of several values, by the sampled ones: float[4 or 6, k].
        within = self._mean(self.inside)[:k]
        above = np.stack([self._mean(one)[:k] for one in self.above])
        found = np.stack([self._mean(self.admitted)[:k], *above, *(within * (1 - rates[::-1, :k]))])
        means = found.mean(axis=1) if k else np.zeros(7)
        spreads = [(1 - ones) * _spread(of_each, several) for of_each in found]
        # Of those of one value bounds tell all but whether others hold it.
        admitted, above_ones, open_to_it = self.of_constants
        lacked = 1 - rates[::-1, k:].mean(axis=1) if self.constants else np.array([0.0, 0.5, 1.0])
        spread_of_ones = ones * open_to_it * _spread(rates[1, k:], int(self.alone.sum())) if open_to_it else 0.0
        a, *v, low, likely, high = (1 - ones) * means + ones * np.array([admitted, *above_ones, *(open_to_it * lacked)])
        spread = math.hypot(spreads[5], spread_of_ones, self._spread_of_others(inside, held[1], rates[1], several))
        absent = Interval(min(v) - spreads[2], v[1], max(v) + spreads[2])
        order = list(self.samples)
        return Estimate(
            self.chunks,
            _share(absent, whole),
            _share(Interval(low - spread, likely, high + spread), whole),
            _share(Interval(a - spreads[0], a, a + spreads[0]), whole),
            _share(Interval(a - high - spread, a - likely, a - low + spread), whole),
            float(likely) / n,
            self._is_one_value(),
            [self.samples[chunk] for chunk in order],
            order,
        )

    def _is_one_value(self) -> bool:
        """Whether neither samples nor bounds show a second value."""
        known = [v for v in (*self.chunks.lower, *self.chunks.upper) if v is not None]
        if known and min(known) != max(known):
            return False
        return len(set().union(*(sample.drawn.hashes[:2].tolist() for sample in self.samples.values()))) == 1

    def _spread_of_others(self, inside: Floats, held: Floats, rates: Floats, several: int) -> float:
        """How far chunks without a sample may differ from sampled ones, in the share of others' values in them."""
        looked_into = [j for j, chunk in enumerate(self.samples) if not self.alone[chunk]]
        m, k = len(looked_into), len(self.own)
        if m < 2 or m >= several:
            return 0.0
        ones = len(self.chunks) - several
        weights = np.array([several / max(1, k)] * k + [ones / max(1, len(self.constants))] * len(self.constants))
        off = (held - rates[:, None] * inside) / self.drawn[:, None] * weights[:, None] / len(self.chunks)
        return several * _spread(off.sum(axis=0)[looked_into], several)


def _t95(k: int) -> float:
    return _T95[min(k - 1, len(_T95) - 1)]


def _spread(of_each: Floats, n: int) -> float:
    """Half the width of the interval of a mean over n, of which these were sampled."""
    k = len(of_each)
    if k >= n or not k:
        return 0.0
    if k < 2:
        return float(of_each[0])
    return _t95(k) * float(of_each.std(ddof=1)) / math.sqrt(k) * math.sqrt(1 - k / n)


def _share(count: Interval, whole: int) -> Interval:
    """A count of chunks as a share of all row groups, with a margin."""
    low, likely, high = (float(min(1.0, max(0.0, one / whole))) for one in count)
    margin = _MARGIN if high > 0 else 0.0
    return Interval(max(0.0, low - margin), likely, min(1.0, high + margin))
