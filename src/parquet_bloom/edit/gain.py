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
value are known by their bounds, and are counted, not sampled. Of the others some are decoded, spread over the data set
and over how well its row groups compress. An interval is wide enough for nobody to decode more: two standard errors of
the sampled row groups, and some points for what nobody has decoded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.edit.column_bounds import Bounds, Chunks, Floats, Sorted, integers_in, one_value
from parquet_bloom.edit.sample import (
    Hashes,
    Interval,
    Sample,
    carried_on,
    distinct,
    first_places,
    places_of,
    sample_of,
)
from parquet_bloom.format.forms import Sizing
from parquet_bloom.format.statistics import domain_of
from parquet_bloom.format.values import arrow_of
from parquet_bloom.kernels.split_block import BLOCK_BYTES

_ROWS, _IN_ALL = 1 << 16, 1 << 18  # decoded of a row group, and of all
_FEWEST, _MOST = 4, 32  # row groups, where there are as many
_MOST_BYTES = 64 << 20  # decoded, of a column
_REMOTE = 4  # times fewer row groups of a store: each is a request of its own
_DRAWN, _DRAWN_IN_ALL = 512, 8192  # values of a row group, and of all
_CONSTANTS_DECODED = 6  # row groups of one value that are decoded
_CONSTANTS_COUNTED = 2000  # of which bounds are counted
# Points of a share that stay open: by the values that were drawn, by row groups that nobody decoded, and by the rest of
# those that were decoded in part.
_OF_VALUES, _OF_OTHERS, _OF_PARTS = 0.02, 0.05, 0.1
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(slots=True)
class Estimate:
    """The estimate of a column, in shares of all row groups unless a field says otherwise.

    absent, present   what exact filters spare such a lookup
    admitted          the row groups whose bounds admit a present value; held: of those, the ones that hold it
    benefit           `present` as a share of the row groups that hold any value
    one_value         whether all that was looked at is one value
    samples           of chunks; sampled: of which, in the same order
    counts            (values, fewest and most distinct ones) of each of these, as far as it is known
    """

    chunks: Chunks
    absent: Interval
    present: Interval
    admitted: Interval
    held: Interval
    benefit: float
    one_value: bool
    samples: list[Sample]
    sampled: list[int]
    counts: list[tuple[int, int, int]]

    def filter_bytes(self, sizing: Sizing, header: int) -> Interval:
        """Bytes of filters on all chunks, each with so many bytes of a header."""

        def sizes(fewest: float, most: float) -> Floats:
            # A filter is folded by its own bits, and those of a small one are far from what is expected of many.
            likely = max(1, round(math.sqrt(fewest * most)))
            luck = 0.02 + 0.4 / math.sqrt(sizing.size_for(likely) / BLOCK_BYTES)
            ends = max(1, math.floor((1 - luck) * fewest)), max(1, math.ceil((1 + luck) * most))
            return np.array([sizing.size_for(ndv) + header for ndv in (ends[0], likely, ends[1])], float)

        chunks, alone = self.chunks, one_value(self.chunks)
        known = dict(zip(self.sampled, self.counts, strict=True))
        total = (sizing.size_for(1) + header) * int(alone.sum()) * np.ones(3)
        for at, (_, fewest, most) in known.items():
            total += 0 if alone[at] else sizes(fewest, most)
        rest = np.flatnonzero(~alone & ~np.isin(np.arange(len(chunks)), list(known)))
        shares = [(fewest / n, most / n) for at, (n, fewest, most) in known.items() if not alone[at]] or [(0.0, 1.0)]
        # A chunk that was not looked into holds as many distinct ones of its values as one of the others: any of them.
        for n, many in zip(*np.unique(chunks.values[rest], return_counts=True), strict=True):
            each = np.array([sizes(n * low, n * high) for low, high in shares])
            total += many * np.array([each[:, 0].min(), each[:, 1].mean(), each[:, 2].max()])
        return Interval(*total.tolist())


# --- the sample -----------------------------------------------------------------------------------


def estimate(chunks: Chunks) -> Estimate | None:
    """Judge a column; None where no value is stored.

    Decodes 262,144 rows of it, in four row groups or more. Raises FileError and its kinds where a sample does not
    decode.
    """
    is_constant = one_value(chunks)
    samples: dict[int, Sample] = {}

    def decode(chunk: int, rows: int) -> bool:
        start = (len(samples) + 0.5) * _GOLDEN % 1
        sample = sample_of(*chunks.open(chunk), int(chunks.num_values[chunk]), rows, start)
        if sample is not None:
            samples[chunk] = sample
        return sample is not None

    constants = [chunk for chunk in _order(chunks, ~is_constant)[:_CONSTANTS_DECODED] if decode(chunk, 1)]
    varied: list[int] = []
    for chunk in _order(chunks, is_constant)[: _MOST // _REMOTE if chunks.remote else _MOST]:
        taken = [samples[one] for one in varied]
        values, taken_bytes = sum(len(one.hashes) for one in taken), sum(one.values.nbytes for one in taken)
        if len(varied) >= _FEWEST and (values >= _IN_ALL or taken_bytes >= _MOST_BYTES):
            break
        if decode(chunk, _ROWS if len(chunks) > 1 else _IN_ALL):
            varied.append(chunk)
    return _Values(chunks, samples, varied, constants).judge() if samples else None


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

        admitted  how many chunks admit it; above: the next one above it that none holds
        inside    how many may hold it, as it lies between their bounds
        """
        n = len(self.chunks)
        if not self.ordered:
            self.admitted = np.full(len(self.hashes), float(n))
            self.above = self.admitted
            self.inside = self.admitted - 1
            self.of_constants = 0.0, 0.0, 0.0
            return
        bounds = Bounds(self.chunks)
        self.admitted, by_bounds = bounds.of(self.places)
        stored = integers_in(self.chunks, self.samples)
        self.above = bounds.above(self.places, stored)
        is_bound = np.zeros(len(self.hashes), bool)
        for i, chunk in enumerate(self.owners):
            for bound in (self.chunks.lower[chunk], self.chunks.upper[chunk]):
                if bound is not None:
                    start, stop = self.places.span(bound, bound)
                    is_bound[start:stop] |= self.owner[start:stop] == i
        self.inside = np.maximum(0.0, self.admitted - by_bounds - ~is_bound)
        self.of_constants = 0.0, 0.0, 0.0
        if bounds.single:
            some = Sorted(bounds.single[:: max(1, len(bounds.single) // _CONSTANTS_COUNTED)])
            admitted, by_bounds = bounds.of(some)
            above = float(bounds.above(some, stored).mean())
            self.of_constants = float(admitted.mean()), above, float((admitted - by_bounds).mean())

    def _span(self, chunk: int) -> tuple[int, int]:
        """The values that lie strictly between a chunk's bounds."""
        if not self.ordered:
            return 0, len(self.hashes)
        return self.places.between(self.chunks.lower[chunk], self.chunks.upper[chunk])

    def _rates(self) -> Floats:
        """float[owners]: of the chunks that may hold an owner's value the share that do, by the samples of others."""
        inside, held = np.zeros(len(self.owners)), np.zeros(len(self.owners))
        for chunk, sample in self.samples.items():
            if self.alone[chunk]:
                continue
            start, stop = self._span(chunk)
            mine = self.owners.index(chunk)
            others = np.flatnonzero(self.owner[start:stop] != mine) + start
            owner, first = self.owner[others], first_places(self.hashes[others], sample.hashes)
            n = len(sample.hashes)
            many, half, full = (self._by_owner(owner[kept]) for kept in (first <= n, first < n // 2, first < n))
            inside += many
            for i in np.flatnonzero(full).tolist():
                held[i] += many[i] * carried_on(half[i] / many[i], full[i] / many[i], sample.whole / n)
        pooled = held.sum() / inside.sum() if inside.any() else 0.5
        rates: Floats = np.where(inside > 0, held / np.maximum(1, inside), pooled)
        for i, chunk in enumerate(self.owners):
            sample = self.samples[chunk]
            if not sample.complete and sample.n_distinct < len(sample.hashes):
                # Values that a part of the chunk has not shown are rare ones: elsewhere they are held no more often
                # than those that came once.
                unseen = max(0.0, 1 - sample.n_distinct / math.sqrt(math.prod(distinct(sample))))
                rates[i] *= 1 - unseen * (1 - self._rarity(i))
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
        ones = int(self.alone.sum())
        rates = self._rates()
        # Of the chunks of several values, by the sampled ones: float[3, k]. Of those of one value bounds tell all but
        # whether others hold it.
        within = self._mean(self.inside) * (1 - rates)
        found = np.stack([self._mean(self.admitted), self._mean(self.above), within])[:, :k]
        admitted, above, open_to_it = self.of_constants
        lacked = 1 - float(rates[k:].mean()) if self.constants else 0.5
        likely = (n - ones) * (found.mean(axis=1) if k else np.zeros(3))
        likely += ones * np.array([admitted, above, open_to_it * lacked])
        errors = (n - ones) * (2 * found.std(axis=1) / math.sqrt(k) if 0 < k < n - ones else np.zeros(3))
        unseen, parts = k < n - ones, not all(self.samples[chunk].complete for chunk in self.own)
        margin = _OF_VALUES + _OF_OTHERS * unseen + _OF_PARTS * parts

        def share(count: float, error: float = 0.0) -> Interval:
            """Of all row groups."""
            one = min(1.0, max(0.0, count / n / whole))
            off = error / n / whole + margin if one or unseen or parts else 0.0
            return Interval(max(0.0, one - off), one, min(1.0, one + off))

        a, v, b = likely.tolist()
        return Estimate(
            self.chunks,
            share(v, errors[1]),
            share(b, errors[2]),
            share(a, errors[0]),
            share(a - b, errors[0] + errors[2]),
            b / n / n,
            self._is_one_value(),
            list(self.samples.values()),
            list(self.samples),
            [(sample.whole, *distinct(sample)) for sample in self.samples.values()],
        )

    def _is_one_value(self) -> bool:
        """Whether neither samples nor bounds show a second value."""
        known = [v for v in (*self.chunks.lower, *self.chunks.upper) if v is not None]
        if known and min(known) != max(known):
            return False
        return len(set().union(*(sample.drawn.hashes[:2].tolist() for sample in self.samples.values()))) == 1
