"""Chooses columns for filters when the caller names none: by the row groups that they spare a lookup, and their size.

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

import numpy as np
import pyarrow as pa

from parquet_bloom.edit.column_bounds import chunks_of
from parquet_bloom.edit.gain import Estimate, estimate
from parquet_bloom.edit.sample import distinct, halves, places_of, shared_fraction, thinned
from parquet_bloom.errors import DamagedFileError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.format.footer import Footer
from parquet_bloom.format.forms import Sizing
from parquet_bloom.format.schema import BYTE_ARRAY
from parquet_bloom.format.statistics import domain_of, statistics_of
from parquet_bloom.format.values import floats_in
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.workers import Workers

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
