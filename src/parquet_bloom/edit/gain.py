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

Where the caller names no columns, they are chosen by the row groups that filters spare, and by their size:

    column                       bounds admit   lacks   benefit
    trace_id, random                    1.0     1.0      1.0    a filter, whatever the encoding
    at, written in order of time        0.0     1.0      0.0    min and max tell
    country, 40 of them                 1.0     0.0      0.0    every row group has them all

The benefit is the share of the row groups with values that a lookup of a present value is spared. `add` and `advise`
call `reason_against`, each over the row groups that it knows: those of one file, or of a data set.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.edit.sample import (
    Bounds,
    Chunks,
    Floats,
    Hashes,
    Interval,
    Sample,
    Sorted,
    carried_on,
    chunks_of,
    distinct,
    first_places,
    halves,
    integers_in,
    one_value,
    places_of,
    sample_of,
    shared_fraction,
    thinned,
)
from parquet_bloom.errors import DamagedFileError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.footer import Footer
from parquet_bloom.format.forms import Sizing
from parquet_bloom.format.schema import BYTE_ARRAY
from parquet_bloom.format.statistics import domain_of, statistics_of
from parquet_bloom.format.values import arrow_of, floats_in
from parquet_bloom.kernels.split_block import BLOCK_BYTES
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.workers import Workers

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


# --- columns for filters --------------------------------------------------------------------------


LEAST_BENEFIT = 0.1
_FEW_DISTINCT = 0.01  # of the values, in a file of one row group
_STRETCHES = 10  # of a file's one row group, compared with each other as row groups are

_DOCUMENTS = ("JSON", "BSON", "VARIANT", "GEOMETRY", "GEOGRAPHY")


def columns_without_gain(
    source: OpenFile,
    footer: Footer,
    chunks: Mapping[int, Sequence[int]],
    sizings: Mapping[int, Sizing],
    workers: Workers,
) -> dict[int, str]:
    """Say which of some columns are not worth a filter: column -> why, in words that hold for every engine.

    chunks   column -> the row groups in which it could get one
    sizings  column -> how large its filters may be
    Decodes as much of each column as edit.gain.estimate does. One that does not decode gets no filter; the others may.
    """
    outline = source.outline()

    def judge(column: int) -> str | None:
        leaf = footer.leaves[column]
        reader = ColumnReader(source, leaf)
        groups = chunks[column]
        files = [(outline, leaf, statistics_of(outline, leaf))]
        known = chunks_of(leaf, files, len(groups), lambda *_: reader, source.is_remote, groups)
        try:
            found = estimate(known)
        except DamagedFileError as error:
            return error.reason
        # Without a value `build` finds that there is none, and says so.
        return None if found is None else reason_against(found, sizings[column])

    reasons = zip(chunks, workers.in_order(judge, list(chunks)), strict=True)
    return {column: reason for column, reason in reasons if reason is not None}


# --- the judgement --------------------------------------------------------------------------------


def reason_against(found: Estimate, sizing: Sizing) -> str | None:
    """Why a column is not worth filters; None where it is."""
    leaf, samples = found.chunks.leaf, found.samples
    if found.one_value:
        return "it holds one value only"
    if leaf.float_bits and any(_has_fractions(sample.values) for sample in samples):
        return "numbers with fractions are measurements, which are not looked up by equality"
    if leaf.logical in _DOCUMENTS or (leaf.physical == BYTE_ARRAY and _are_sentences(samples[0].values)):
        return "texts of several words are not looked up by equality"
    n = len(found.chunks)
    if n == 1:
        reason = _alone(found)
        return reason or _too_large(found, sizing, 1 - shared_fraction(*halves(samples[0])))
    if found.benefit < LEAST_BENEFIT:
        # Of the other row groups, and of those of them that bounds admit.
        whole = found.chunks.row_groups
        others, held = (max(0.0, one.likely * whole - 1) for one in (found.admitted, found.held))
        admitted = others / (n - 1)
        if admitted < LEAST_BENEFIT:
            return f"min and max tell: they exclude {_percent(1 - admitted)} of the other row groups"
        many = f"{_percent(min(1.0, held / others))} of its values in one row group are in others too"
        return f"few distinct values: {many}" if admitted > 0.9 else f"{many}, and min and max tell the rest"
    return _too_large(found, sizing, found.benefit * n / (n - 1))


def _alone(found: Estimate) -> str | None:
    """A file of one row group: nothing to compare with, so only what its values say of other files' too."""
    leaf, sample = found.chunks.leaf, found.samples[0]
    values = [value for value in places_of(leaf, thinned(sample.values)) if value == value]
    if len(values) >= 10 * _STRETCHES:
        stretches = [
            values[i * len(values) // _STRETCHES : (i + 1) * len(values) // _STRETCHES] for i in range(_STRETCHES)
        ]
        ends = [(min(stretch), max(stretch)) for stretch in stretches]
        admitted = sum(low <= value <= high for value in values for low, high in ends) / len(values)
        if (admitted - 1) / (_STRETCHES - 1) < LEAST_BENEFIT:
            return "its values are in order, and min and max separate the files of an ordered data set"
    fewest, most = distinct(sample)
    if most < _FEW_DISTINCT * sample.whole:
        return f"few distinct values: some {most:,} among {sample.whole:,}"
    width = _width(found)
    if width is not None and fewest > (1 - LEAST_BENEFIT) * width:
        return f"min and max tell: of the {width:,} values from min to max it holds {min(fewest, width):,}"
    return None


def _too_large(found: Estimate, sizing: Sizing, benefit: float) -> str | None:
    """A filter that is larger than what a reader saves by skipping its row group is not worth its bytes."""
    at, (_, fewest, _) = max(zip(found.sampled, found.counts, strict=True), key=lambda one: one[1][0])
    filter_bytes = sizing.size_for(max(1, fewest))
    saved = benefit * int(found.chunks.row_group_bytes[at])
    if filter_bytes <= saved:
        return None
    return f"a filter of {filter_bytes:,} bytes would save the reading of {saved:,.0f} bytes a row group at most"


def _percent(share: float) -> str:
    return f"{math.floor(100 * share)} %"


def _width(found: Estimate) -> int | None:
    """How many values of the type there are from min to max, in a file of one row group."""
    [low], [high] = found.chunks.lower, found.chunks.upper
    return (
        None if domain_of(found.chunks.leaf) != "integer" or low is None or high is None else int(high) - int(low) + 1
    )


# --- values ---------------------------------------------------------------------------------------


def _are_sentences(values: pa.ChunkedArray) -> bool:
    """Whether most values have three words or more, which names of people and things seldom have."""
    texts: list[bytes] = thinned(values).to_pylist()
    return 2 * sum(text.count(b" ") >= 2 for text in texts) > len(texts)


def _has_fractions(values: pa.ChunkedArray) -> bool:
    numbers = np.concatenate([floats_in(chunk) for chunk in values.chunks]).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    return bool((numbers != np.floor(numbers)).any())
