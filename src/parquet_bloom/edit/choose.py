"""Which columns a filter helps, when the caller names none: from bounds in the footer and a sample of the values.

A filter saves a reader the row groups that hold no match although min and max admit one:

    benefit = P(bounds admit the value) x P(the row group lacks the value)      of a value stored elsewhere

    column                       bounds admit   lacks   benefit
    trace_id, random                    1.0     1.0      1.0    a filter, whatever the encoding
    at, written in order of time        0.0     1.0      0.0    min and max tell
    country, 40 of them                 1.0     0.0      0.0    every row group has them all

The first factor is exact for the sampled values. The second is measured between two row groups and, where
only a part of each was read, carried on to the whole: with L = -ln(1 - share found), L(n) grows like n^a,
and the two halves of the sample give a. (a = 1 where all values are equally frequent, less where some
are rare; so rare user ids are not taken for ones that every row group holds.)
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.formats.bounds import ColumnStatistics, domain_of, statistics_of
from parquet_bloom.formats.forms.form import Sizing
from parquet_bloom.formats.metadata.footer import Footer
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, FLBA, INT32, INT64, Leaf
from parquet_bloom.kernels import split_block
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.workers import Workers

LEAST_BENEFIT = 0.1
_SAMPLE_ROWS = 1 << 18  # of one row group: whole row groups of most writers but the largest
_SAMPLE_BYTES = 16 << 20  # decoded; long texts end the sample sooner
_LOOKED_UP = 1000  # values of the sample that are held against the bounds of all row groups
_FEW_DISTINCT = 0.01  # of the values, in a file of one row group
_STRETCHES = 10  # of a file's one row group, held against each other as row groups are

_DOCUMENTS = ("JSON", "BSON", "VARIANT", "GEOMETRY", "GEOGRAPHY")

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Sample:
    """The first values of one column chunk that are not null.

    values  as decoded: int32, int64, float, double, large_binary or fixed_size_binary
    hashes  uint64[len(values)], XXH64, in the same order
    whole   how many values the chunk has, as many as the sample holds or more
    """

    row_group: int
    values: pa.ChunkedArray
    hashes: Hashes
    whole: int

    def part(self, start: int, stop: int) -> _Sample:
        return _Sample(self.row_group, self.values[start:stop], self.hashes[start:stop], self.whole)


def columns_left_out(
    source: Source, footer: Footer, chunks: Mapping[int, Sequence[int]], sizings: Mapping[int, Sizing],
    workers: Workers,
) -> dict[int, str]:  # fmt: skip
    """Say which of some columns are not worth a filter: column -> why, in words that hold for every engine.

    chunks   column -> the row groups in which it could get one
    sizings  column -> how large its filters may be
    Reads up to 262,144 values or 16 MiB of each column in each of two row groups. Raises DamagedFileError
    where they do not decode.
    """
    outline = source.outline()

    def judge(column: int) -> str | None:
        leaf = footer.leaves[column]
        reader = ColumnReader(source, leaf)
        samples = [found for group in _spread(chunks[column]) if (found := _sample(reader, footer, group)) is not None]
        if not samples:
            return None  # `build` finds that there is no value, and says so
        return _judge(leaf, statistics_of(outline, leaf), samples, footer, sizings[column])

    reasons = zip(chunks, workers.in_order(judge, list(chunks)), strict=True)
    return {column: reason for column, reason in reasons if reason is not None}


def _spread(groups: Sequence[int]) -> list[int]:
    """Two row groups, neither the first nor the last where there are four."""
    n = len(groups)
    return [groups[0]] if n == 1 else [groups[n // 4], groups[n - 1 - n // 4]]


def _sample(reader: ColumnReader, footer: Footer, row_group: int) -> _Sample | None:
    parts: list[pa.Array] = []
    rows = size = 0
    for batch in reader.batches(row_group):
        parts.append(batch.drop_null())
        rows += len(batch)
        size += batch.nbytes
        if rows >= _SAMPLE_ROWS or size >= _SAMPLE_BYTES:
            break
    values = pa.chunked_array(parts) if parts else None
    if values is None or not len(values):
        return None
    # Nulls are as frequent behind the sample as in it.
    whole = round(len(values) * max(1.0, footer.meta(row_group, reader.leaf.index).num_values / rows))
    return _Sample(row_group, values, hash_array(values), whole)


# --- the judgement --------------------------------------------------------------------------------


def _judge(
    leaf: Leaf, statistics: ColumnStatistics, samples: Sequence[_Sample], footer: Footer, sizing: Sizing
) -> str | None:
    if len(_once(np.concatenate([sample.hashes for sample in samples]))) == 1:
        return "it holds one value only"
    if leaf.float_bits and any(_has_fractions(sample.values) for sample in samples):
        return "numbers with fractions are measurements, which are not looked up by equality"
    if leaf.logical in _DOCUMENTS or (leaf.physical == BYTE_ARRAY and _are_sentences(samples[0].values)):
        return "texts of several words are not looked up by equality"
    if len(statistics) > 1:
        admitted = _share_admitted(leaf, statistics, samples)
        if admitted < LEAST_BENEFIT:
            return f"min and max tell: they exclude {_percent(1 - admitted)} of the other row groups"
    else:
        admitted = 1.0
        reason = _alone(leaf, statistics, samples[0])
        if reason is not None:
            return reason
    one, other = samples if len(samples) == 2 else _halves(samples[0])
    held = _share_held(one, other)
    benefit = admitted * (1 - held)
    if benefit < LEAST_BENEFIT:
        many = f"{_percent(held)} of its values in one row group are in others too"
        return f"few distinct values: {many}" if admitted > 0.9 else f"{many}, and min and max tell the rest"
    return _too_large(leaf, samples, footer, sizing, benefit)


def _alone(leaf: Leaf, statistics: ColumnStatistics, sample: _Sample) -> str | None:
    """A file of one row group: nothing to compare with, so only what its values say of other files' too."""
    values = _as_bounds(leaf, _thinned(sample.values))
    if len(values) >= 10 * _STRETCHES:
        stretches = [
            values[i * len(values) // _STRETCHES : (i + 1) * len(values) // _STRETCHES] for i in range(_STRETCHES)
        ]
        if _admitted(values, [min(s) for s in stretches], [max(s) for s in stretches], _STRETCHES) < LEAST_BENEFIT:
            return "its values are in order, and min and max tell the files of an ordered data set apart"
    fewest, most = _distinct(sample)
    if most < _FEW_DISTINCT * sample.whole:
        return f"few distinct values: some {most:,} among {sample.whole:,}"
    width = _width(leaf, statistics)
    if width is not None and fewest > (1 - LEAST_BENEFIT) * width:
        return f"min and max tell: of the {width:,} values from min to max it holds {min(fewest, width):,}"
    return None


def _too_large(leaf: Leaf, samples: Sequence[_Sample], footer: Footer, sizing: Sizing, benefit: float) -> str | None:
    """A filter that is larger than what a reader saves by skipping its row group is not worth its bytes."""
    sample = max(samples, key=lambda sample: sample.whole)
    filter_bytes = split_block.size_for(_distinct(sample)[0], sizing.fpp, sizing.max_bytes)
    row_group = footer.metadata.row_groups[sample.row_group]
    saved = benefit * sum(max(chunk.meta_data.total_compressed_size or 0, 0) for chunk in row_group.columns)
    if filter_bytes <= saved:
        return None
    return f"a filter of {filter_bytes:,} bytes would save the reading of {saved:,.0f} bytes a row group at most"


def _percent(share: float) -> str:
    return f"{math.floor(100 * share)} %"


# --- bounds ---------------------------------------------------------------------------------------


def _share_admitted(leaf: Leaf, statistics: ColumnStatistics, samples: Sequence[_Sample]) -> float:
    """The share of other row groups whose bounds admit a value, over values of the samples; 1.0 without bounds."""
    known = statistics.some_value
    low, high = statistics.lower[known & statistics.has_lower], statistics.upper[known & statistics.has_upper]
    n = int(known.sum())
    values = [value for sample in samples for value in _as_bounds(leaf, _thinned(sample.values))]
    if n < 2 or not values or not (len(low) or len(high)):
        return 1.0
    return _admitted(values, low.tolist(), high.tolist(), n)


def _admitted(values: Sequence[Any], lows: Sequence[Any], highs: Sequence[Any], n: int) -> float:
    """The share of n - 1 others whose bounds admit a value, which its own do."""
    lows, highs = sorted(lows), sorted(highs)
    # A value lies outside of those that begin behind it and of those that end before it, never of both.
    outside = sum(len(lows) - bisect_right(lows, v) + bisect_left(highs, v) for v in values)
    return max(0.0, 1 - outside / len(values) / (n - 1))


def _as_bounds(leaf: Leaf, values: pa.ChunkedArray) -> list[Any]:
    """Values in the order of bounds.domain_of; none where the column has no order."""
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
        numbers = [float(np.frombuffer(v, "<f2")[0]) if isinstance(v, bytes) else v for v in plain]
        return [value for value in numbers if value == value]
    return plain


def _thinned(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.take(pa.array(np.linspace(0, len(values) - 1, min(len(values), _LOOKED_UP)).astype(np.int64)))


def _width(leaf: Leaf, statistics: ColumnStatistics) -> int | None:
    """How many values of the type there are from min to max, in a file of one row group."""
    if domain_of(leaf) != "integer" or not (statistics.has_lower[0] and statistics.has_upper[0]):
        return None
    return int(statistics.upper[0]) - int(statistics.lower[0]) + 1


# --- values ---------------------------------------------------------------------------------------


def _halves(sample: _Sample) -> tuple[_Sample, _Sample]:
    middle = len(sample.hashes) // 2
    return sample.part(0, middle), sample.part(middle, len(sample.hashes))


def _once(hashes: Hashes) -> Hashes:
    """Each hash once, sorted; numpy's own unique takes a hash table, which is many times slower here."""
    found = np.sort(hashes)
    fresh = np.ones(len(found), bool)
    fresh[1:] = found[1:] != found[:-1]
    return found[fresh]


def _grown(half: float, full: float, times: float) -> float:
    """What grew from `half` to `full` while the sample doubled, when it has grown `times` more."""
    if times <= 1 or full <= 0:
        return full
    power = min(1.0, max(0.0, math.log2(full / half))) if half > 0 else 1.0
    return float(full * times**power)


def _distinct(sample: _Sample) -> tuple[int, int]:
    """The fewest and the most distinct values that the whole chunk is likely to have, carried on from the sample.

    The fewest: all values are equally frequent. N of them give N (1 - e^(-n/N)) distinct ones among n.
    The most: it grows on as it grew from the first half of the sample to the whole of it.
    """
    n = len(sample.hashes)
    half, full = len(_once(sample.hashes[: n // 2])), len(_once(sample.hashes))
    most = min(sample.whole, round(_grown(half, full, sample.whole / n)))
    if n >= sample.whole or full == n:  # all of it is known; or no value came twice
        return most, most
    low, high = float(full), float(full) * n  # of this many values, n are nearly all distinct
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if -middle * math.expm1(-n / middle) < full else (low, middle)
    return min(most, round(-low * math.expm1(-sample.whole / low))), most


def _share_held(one: _Sample, other: _Sample) -> float:
    """The share of one row group's distinct values that the whole of another holds too."""
    wanted = _once(one.hashes)
    n = len(other.hashes)
    if not len(wanted) or not n:
        return 0.0
    # By sorting: numpy 2.0's table for integers overflows on hashes beyond 2^63.
    half, full = (float(np.isin(wanted, _once(other.hashes[:stop]), True, kind="sort").mean()) for stop in (n // 2, n))
    if full >= 1:
        return 1.0
    return 1 - math.exp(-_grown(-math.log1p(-half), -math.log1p(-full), other.whole / n))


def _are_sentences(values: pa.ChunkedArray) -> bool:
    """Whether most values have three words or more, which names of people and things seldom have."""
    spaces = pc.count_substring(_thinned(values), b" ")
    return 2 * int(pc.sum(pc.greater_equal(spaces, 2)).as_py() or 0) > len(spaces)


def _has_fractions(values: pa.ChunkedArray) -> bool:
    if pa.types.is_fixed_size_binary(values.type):
        numbers = np.frombuffer(b"".join(values.to_pylist()), "<f2").astype(np.float64)
    else:
        numbers = values.to_numpy().astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    return bool((numbers != np.floor(numbers)).any())
