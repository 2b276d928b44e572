"""What filters on a column would gain and cost, each figure with the interval that it is likely to lie in.

Shares of row groups are those of edit.gain, by which `add` judges too; there it says what a present and an absent value
are. Filters err at a rate f, and spare (1 - f) of what exact ones spare:

                  bounds leave      filters leave            spared
    absent        a G               f a G                    a (1 - f)
    present       a G               h G + f (a - h) G        (a - h) (1 - f)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parquet_bloom.edit.gain import Estimate
from parquet_bloom.edit.sample import Interval
from parquet_bloom.formats.forms.form import Sizing
from parquet_bloom.kernels import split_block
from parquet_bloom.storage.shown import Brief
from parquet_bloom.storage.workers import processors

_HEADER_BYTES = 16
_SLOWER, _FASTER = 2.0, 0.6  # than the sample: the whole is decoded by several threads, from a colder cache


@dataclass(frozen=True, slots=True, repr=False)
class Gain(Brief):
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


def gains(found: Estimate, fpp: float, whole: Whole) -> tuple[Gain, Gain]:
    """(of a lookup of an absent value, of a present one); the rate of each filter lies anywhere below fpp."""

    def gain(exact: Interval) -> Gain:
        share = Interval(exact.low * (1 - fpp), exact.likely * (1 - fpp), exact.high)
        asked = found.admitted.likely * whole.row_groups
        requests = Interval(*(one * whole.row_groups * whole.columns - asked for one in share))
        return Gain(share, share.times(whole.bytes), requests)

    return gain(found.absent), gain(found.present)


# --- size and rate --------------------------------------------------------------------------------


def least_rate(found: Estimate, max_bytes: int = split_block.MAX_BYTES) -> float:
    """The rate at which a filter's own bytes and those that are read in vain for its errors are least together.

    `add --fpp auto` decides so too, for each row group by what it holds (kernels.split_block.least_size). Here it is
    rounded up to one digit, between 0.1 and 0.0001.
    """
    shares = [math.sqrt(fewest * most) / values for values, fewest, most in found.counts]
    ndv = max(1, round(float(np.mean(shares)) * float(np.median(found.chunks.values))))
    rate = split_block.expected_rate(ndv, split_block.least_size(ndv, _in_vain(found), max_bytes))
    rate = min(0.1, max(0.0001, rate))
    digits = int(-math.floor(math.log10(rate)))
    return min(0.1, float(math.ceil(rate * 10**digits) / 10**digits))


def _in_vain(found: Estimate) -> int:
    return int(np.median(found.chunks.row_group_bytes))


def filter_bytes(found: Estimate, fpp: float, scale: float) -> Interval:
    """What filters on all row groups take, headers included, at this rate or by `--fpp auto`.

    Sizes are powers of two, so a few values may double one.
    """
    both = [found.filter_bytes(one, _HEADER_BYTES) for one in (Sizing(fpp), Sizing(0.0, in_vain=_in_vain(found)))]
    low, high = min(one.low for one in both), max(one.high for one in both)
    return Interval(low, both[0].likely, high).times(scale)


def seconds(found: Estimate, scale: float) -> Interval:
    """What decoding and hashing the column takes here, with all processors."""
    quickest = min(sample.seconds for sample in found.samples)  # the first one also compiles
    likely = quickest * float(found.chunks.values.sum()) * scale / processors()
    return Interval(likely * _FASTER, likely, likely * _SLOWER)


def row_groups_of_a_key(found: Estimate) -> Interval:
    """How many row groups hold a present value."""
    held = found.held.times(found.chunks.row_groups)
    return Interval(max(1.0, held.low), max(1.0, held.likely), max(1.0, held.high))
