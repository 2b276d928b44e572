"""What filters on a column would gain and cost, each figure with the interval that it is likely to lie in.

For a value v of one of G row groups, drawn at random, whose bounds admit a share a of them, h of them holding it:

    absent   a like value that none holds:   bounds leave a G row groups, filters f a G     saved  a (1 - f)
    present                                  bounds leave a G, filters h G + f (a - h) G     saved  (a - h) (1 - f)

a is counted for a thousand values of each sampled row group, h between each two of them. How much these differ from one
sample to the next gives the interval (Student's t, two-sided 95 %; narrower where most row groups were sampled).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np

from parquet_bloom.edit.sample import Sample, distinct, places_of, share_admitted, share_held, thinned
from parquet_bloom.kernels import split_block
from parquet_bloom.storage.workers import processors
from parquet_bloom.worth.advice.survey import ColumnSurvey

_T95 = (math.inf, 12.71, 4.30, 3.18, 2.78, 2.57)  # of Student's t, by degrees of freedom
_MARGIN = 0.02  # of a share: what counting a thousand values leaves open
_HEADER_BYTES = 16
_SLOWER, _FASTER = 2.0, 0.6  # than the sample: the whole is decoded by several threads, from a colder cache


class Interval(NamedTuple):
    """A figure that was not measured: where it is likely to lie, and the likeliest of all."""

    low: float
    likely: float
    high: float

    def times(self, factor: float) -> Interval:
        """All three, so many times as large."""
        return Interval(self.low * factor, self.likely * factor, self.high * factor)


@dataclass(frozen=True, slots=True)
class Gain:
    """What one lookup is spared by filters, beyond what bounds spare it; shares are of all row groups.

    row_groups   share of the row groups
    bytes        compressed bytes of these
    requests     reads of column chunks, all columns of a row group, less one for each filter that is asked; where it is
                 below 0 filters ask more than they save
    """

    row_groups: Interval
    bytes: Interval
    requests: Interval


class Whole(NamedTuple):
    """The data set that gains are told of: its row groups, their compressed bytes, the columns of one."""

    row_groups: int
    bytes: int
    columns: int


@dataclass(frozen=True, slots=True)
class Shares:
    """What the samples of a column show: one figure a sample, in their order.

    admitted   the share of row groups, its own among them, whose bounds admit one of its values
    held       the share of row groups, its own among them, that hold one of its distinct values
    fewest, most  distinct values that its row group is likely to have, as shares of the row group's values
    """

    admitted: list[float]
    held: list[float]
    fewest: list[float]
    most: list[float]


def shares_of(column: ColumnSurvey) -> Shares:
    """What its samples show."""
    samples = column.samples
    found = [(distinct(sample), sample.whole) for sample in samples]
    return Shares(
        [_admitted(column, sample) for sample in samples],
        [_held(column, at) for at in range(len(samples))],
        [fewest / whole for (fewest, _), whole in found],
        [most / whole for (_, most), whole in found],
    )


def _admitted(column: ColumnSurvey, sample: Sample) -> float:
    evidence = column.evidence
    n = evidence.row_groups
    values = places_of(column.leaf, thinned(sample.values))
    if n < 2 or not values or not (evidence.lower or evidence.upper):
        return 1.0
    return float(1 + share_admitted(values, evidence.lower, evidence.upper, n) * (n - 1)) / n


def _held(column: ColumnSurvey, at: int) -> float:
    n, own = column.evidence.row_groups, column.samples[at]
    others = [other for i, other in enumerate(column.samples) if i != at]
    shared = fmean(float(share_held(own, other)) for other in others) if others else 0.0
    return (1 + shared * (n - 1)) / n


def gains(shares: Shares, n_sampled: int, fpp: float, whole: Whole) -> tuple[Gain, Gain]:
    """(of a value that no row group holds, of one that some hold); the samples are of n_sampled row groups."""
    absent = _interval([a * (1 - fpp) for a in shares.admitted], n_sampled)
    each = zip(shares.admitted, shares.held, strict=True)
    present = _interval([max(0.0, a - h) * (1 - fpp) for a, h in each], n_sampled)

    def gain(share: Interval) -> Gain:
        # The rate that a filter has lies anywhere below the one that was asked for.
        share = Interval(share.low, share.likely, min(1.0, share.high / (1 - fpp)))
        asked = fmean(shares.admitted) * whole.row_groups
        requests = Interval(*(one * whole.row_groups * whole.columns - asked for one in share))
        return Gain(share, share.times(whole.bytes), requests)

    return gain(absent), gain(present)


def _interval(shares: Sequence[float], n_row_groups: int) -> Interval:
    k, likely = len(shares), fmean(shares)
    if k >= n_row_groups:
        spread = 0.0
    elif k == 1:
        spread = 1.0
    else:
        spread = _T95[min(k - 1, len(_T95) - 1)] * stdev(shares) / math.sqrt(k) * math.sqrt(1 - k / n_row_groups)
    return Interval(max(0.0, likely - spread - _MARGIN), likely, min(1.0, likely + spread + _MARGIN))


# --- size and rate --------------------------------------------------------------------------------


def least_rate(column: ColumnSurvey, shares: Shares, max_bytes: int = split_block.MAX_BYTES) -> float:
    """The rate at which a filter's own bytes and those that are read in vain for its errors are least together.

    `add --fpp auto` decides so too, for each row group by what it holds (kernels.split_block.least_size). Here it is
    rounded up to one digit, between 0.1 and 0.0001.
    """
    ndv = max(1, round(fmean(shares.most) * float(np.median(column.values))))
    in_vain = int(np.median(column.row_group_bytes))
    rate = min(0.1, max(0.0001, split_block.expected_rate(ndv, split_block.least_size(ndv, in_vain, max_bytes))))
    digits = int(-math.floor(math.log10(rate)))
    return min(0.1, float(math.ceil(rate * 10**digits) / 10**digits))


def filter_bytes(column: ColumnSurvey, shares: Shares, fpp: float, scale: float) -> Interval:
    """What filters on all row groups take, headers included; sizes are powers of two, so a few values may double it."""
    likely = (fmean(shares.fewest) + fmean(shares.most)) / 2
    values, counts = np.unique(column.values[column.values > 0], return_counts=True)

    def total(ratio: float) -> float:
        sizes = [split_block.size_for(max(1, round(n * min(1.0, ratio))), fpp) + _HEADER_BYTES for n in values.tolist()]
        return float(sum(size * count for size, count in zip(sizes, counts.tolist(), strict=True)) * scale)

    return Interval(total(min(shares.fewest) * 0.95), total(likely), total(max(shares.most) * 1.05))


def seconds(column: ColumnSurvey, scale: float) -> Interval:
    """What decoding and hashing the column takes here, with all processors."""
    likely = column.seconds * float(column.values.sum()) * scale / processors()
    return Interval(likely * _FASTER, likely, likely * _SLOWER)


def row_groups_of_a_key(shares: Shares, n_row_groups: int) -> Interval:
    """How many row groups hold a value that one of them holds."""
    found = _interval(shares.held, n_row_groups).times(n_row_groups)
    return found._replace(low=max(1.0, found.low))
