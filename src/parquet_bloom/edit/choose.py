"""Which columns a filter helps, when the caller names none: from bounds in the footer and a sample of the values.

A filter saves a reader the row groups that hold no match although min and max admit one:

    benefit = P(bounds admit the value) x P(the row group lacks the value)      of a value stored elsewhere

    column                       bounds admit   lacks   benefit
    trace_id, random                    1.0     1.0      1.0    a filter, whatever the encoding
    at, written in order of time        0.0     1.0      0.0    min and max tell
    country, 40 of them                 1.0     0.0      0.0    every row group has them all

The first factor is exact for the sampled values. The second is measured between two row groups (edit.sample).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.edit.sample import (
    Sample,
    distinct,
    halves,
    once,
    places_of,
    sample_of,
    share_admitted,
    share_held,
    thinned,
)
from parquet_bloom.formats.bounds import ColumnStatistics, domain_of, statistics_of
from parquet_bloom.formats.forms.form import Sizing
from parquet_bloom.formats.metadata.footer import Footer
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, Leaf
from parquet_bloom.formats.values import floats_in
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.workers import Workers

LEAST_BENEFIT = 0.1
_FEW_DISTINCT = 0.01  # of the values, in a file of one row group
_STRETCHES = 10  # of a file's one row group, held against each other as row groups are

_DOCUMENTS = ("JSON", "BSON", "VARIANT", "GEOMETRY", "GEOGRAPHY")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one column in the row groups of a file, or of several files.

    row_groups    how many hold a value
    lower, upper  the bounds that are known of these, ascending, as places (formats.bounds.domain_of)
    samples       of two row groups, or of the only one
    """

    row_groups: int
    lower: Sequence[Any]
    upper: Sequence[Any]
    samples: Sequence[Sample]


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
        samples = [found for group in two_of(chunks[column]) if (found := sample_of(reader, footer, group)) is not None]
        if not samples:
            return None  # `build` finds that there is no value, and says so
        return why_not(leaf, Evidence(*bounds_of([statistics_of(outline, leaf)]), samples), sizings[column])

    reasons = zip(chunks, workers.in_order(judge, list(chunks)), strict=True)
    return {column: reason for column, reason in reasons if reason is not None}


def two_of(groups: Sequence[int]) -> list[int]:
    """Two row groups, neither the first nor the last where there are four."""
    n = len(groups)
    return [groups[0]] if n == 1 else [groups[n // 4], groups[n - 1 - n // 4]]


# --- the judgement --------------------------------------------------------------------------------


def why_not(leaf: Leaf, evidence: Evidence, sizing: Sizing) -> str | None:
    """Why a column is not worth filters; None where it is."""
    samples = evidence.samples
    if len(once(np.concatenate([sample.hashes for sample in samples]))) == 1:
        return "it holds one value only"
    if leaf.float_bits and any(_has_fractions(sample.values) for sample in samples):
        return "numbers with fractions are measurements, which are not looked up by equality"
    if leaf.logical in _DOCUMENTS or (leaf.physical == BYTE_ARRAY and _are_sentences(samples[0].values)):
        return "texts of several words are not looked up by equality"
    if evidence.row_groups > 1:
        admitted = _share_admitted(leaf, evidence)
        if admitted < LEAST_BENEFIT:
            return f"min and max tell: they exclude {_percent(1 - admitted)} of the other row groups"
    else:
        admitted = 1.0
        reason = _alone(leaf, evidence)
        if reason is not None:
            return reason
    one, other = samples if len(samples) == 2 else halves(samples[0])
    held = share_held(one, other)
    benefit = admitted * (1 - held)
    if benefit < LEAST_BENEFIT:
        many = f"{_percent(held)} of its values in one row group are in others too"
        return f"few distinct values: {many}" if admitted > 0.9 else f"{many}, and min and max tell the rest"
    return _too_large(samples, sizing, benefit)


def _alone(leaf: Leaf, evidence: Evidence) -> str | None:
    """A file of one row group: nothing to compare with, so only what its values say of other files' too."""
    sample = evidence.samples[0]
    values = places_of(leaf, thinned(sample.values))
    if len(values) >= 10 * _STRETCHES:
        stretches = [
            values[i * len(values) // _STRETCHES : (i + 1) * len(values) // _STRETCHES] for i in range(_STRETCHES)
        ]
        lows, highs = sorted(min(s) for s in stretches), sorted(max(s) for s in stretches)
        if share_admitted(values, lows, highs, _STRETCHES) < LEAST_BENEFIT:
            return "its values are in order, and min and max tell the files of an ordered data set apart"
    fewest, most = distinct(sample)
    if most < _FEW_DISTINCT * sample.whole:
        return f"few distinct values: some {most:,} among {sample.whole:,}"
    width = _width(leaf, evidence)
    if width is not None and fewest > (1 - LEAST_BENEFIT) * width:
        return f"min and max tell: of the {width:,} values from min to max it holds {min(fewest, width):,}"
    return None


def _too_large(samples: Sequence[Sample], sizing: Sizing, benefit: float) -> str | None:
    """A filter that is larger than what a reader saves by skipping its row group is not worth its bytes."""
    sample = max(samples, key=lambda sample: sample.whole)
    filter_bytes = sizing.size_for(distinct(sample)[0])
    saved = benefit * sample.row_group_bytes
    if filter_bytes <= saved:
        return None
    return f"a filter of {filter_bytes:,} bytes would save the reading of {saved:,.0f} bytes a row group at most"


def _percent(share: float) -> str:
    return f"{math.floor(100 * share)} %"


# --- bounds ---------------------------------------------------------------------------------------


def bounds_of(statistics: Sequence[ColumnStatistics]) -> tuple[int, list[Any], list[Any]]:
    """How many row groups hold a value, and their lower and upper bounds as far as they are known, ascending."""
    n, lower, upper = 0, [], []
    for one in statistics:
        n += int(one.some_value.sum())
        lower += one.lower[one.some_value & one.has_lower].tolist()
        upper += one.upper[one.some_value & one.has_upper].tolist()
    return n, sorted(lower), sorted(upper)


def _share_admitted(leaf: Leaf, evidence: Evidence) -> float:
    """The share of other row groups whose bounds admit a value, over values of the samples; 1.0 without bounds."""
    values = [value for sample in evidence.samples for value in places_of(leaf, thinned(sample.values))]
    if evidence.row_groups < 2 or not values or not (evidence.lower or evidence.upper):
        return 1.0
    return share_admitted(values, evidence.lower, evidence.upper, evidence.row_groups)


def _width(leaf: Leaf, evidence: Evidence) -> int | None:
    """How many values of the type there are from min to max, in a file of one row group."""
    if domain_of(leaf) != "integer" or not (evidence.lower and evidence.upper):
        return None
    return int(evidence.upper[0]) - int(evidence.lower[0]) + 1


# --- values ---------------------------------------------------------------------------------------


def _are_sentences(values: pa.ChunkedArray) -> bool:
    """Whether most values have three words or more, which names of people and things seldom have."""
    texts: list[bytes] = thinned(values).to_pylist()
    return 2 * sum(text.count(b" ") >= 2 for text in texts) > len(texts)


def _has_fractions(values: pa.ChunkedArray) -> bool:
    numbers = np.concatenate([floats_in(chunk) for chunk in values.chunks]).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    return bool((numbers != np.floor(numbers)).any())
