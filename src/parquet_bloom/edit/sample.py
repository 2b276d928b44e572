"""A sample of one column's values: how many distinct ones its row groups have, and share.

A part of a row group is carried on to the whole: with L = -ln(1 - share found), L(n) grows like n^a, and the two
halves of the sample give a. (a = 1 where all values are equally frequent, less where some are rare; so rare user ids
are not taken for ones that every row group holds.)
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.formats.bounds import domain_of
from parquet_bloom.formats.metadata.footer import Footer
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, FLBA, INT32, INT64, Leaf
from parquet_bloom.formats.values import arrow_of
from parquet_bloom.kernels.hashes import hash_array

_SAMPLE_ROWS = 1 << 18  # of one row group: whole row groups of most writers but the largest
_SAMPLE_BYTES = 16 << 20  # decoded; long texts end the sample sooner
_LOOKED_UP = 1000  # values of a sample that are held against the bounds of all row groups

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Sample:
    """The first values of one column chunk that are not null.

    values  as decoded: int32, int64, float, double, large_binary or fixed_size_binary
    hashes  uint64[len(values)], XXH64, in the same order
    whole   how many values the chunk has, as many as the sample holds or more
    row_group_bytes  compressed, of all columns
    """

    row_group: int
    values: pa.ChunkedArray
    hashes: Hashes
    whole: int
    row_group_bytes: int

    def part(self, start: int, stop: int) -> Sample:
        """Some of its values."""
        return replace(self, values=self.values[start:stop], hashes=self.hashes[start:stop])


def sample_of(reader: ColumnReader, footer: Footer, row_group: int) -> Sample | None:
    """Up to 262,144 values or 16 MiB from the start of a column chunk; None where it has no value.

    Raises DamagedFileError where they do not decode.
    """
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
    columns = footer.metadata.row_groups[row_group].columns
    size = sum(max(chunk.meta_data.total_compressed_size or 0, 0) for chunk in columns)
    return Sample(row_group, values, hash_array(values), whole, size)


# --- against bounds ---------------------------------------------------------------------------------


def share_admitted(values: Sequence[Any], lows: Sequence[Any], highs: Sequence[Any], n: int) -> float:
    """The share of n - 1 others whose bounds admit a value, which its own do.

    lows, highs  places, ascending; a row group that has none admits every value
    """
    # A value lies outside of those that begin behind it and of those that end before it, never of both.
    outside = sum(len(lows) - bisect_right(lows, v) + bisect_left(highs, v) for v in values)
    return max(0.0, 1 - outside / len(values) / (n - 1))


def places_of(leaf: Leaf, values: pa.ChunkedArray) -> list[Any]:
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


def thinned(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A thousand of many values, evenly spread."""
    return values.take(arrow_of(np.linspace(0, len(values) - 1, min(len(values), _LOOKED_UP)).astype(np.int64)))


# --- against each other -----------------------------------------------------------------------------


def halves(sample: Sample) -> tuple[Sample, Sample]:
    """Its first and its second half, as if they were two row groups."""
    middle = len(sample.hashes) // 2
    return sample.part(0, middle), sample.part(middle, len(sample.hashes))


def once(hashes: Hashes) -> Hashes:
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


def distinct(sample: Sample) -> tuple[int, int]:
    """The fewest and the most distinct values that the whole chunk is likely to have, carried on from the sample.

    The fewest: all values are equally frequent. N of them give N (1 - e^(-n/N)) distinct ones among n.
    The most: it grows on as it grew from the first half of the sample to the whole of it.
    """
    n = len(sample.hashes)
    half, full = len(once(sample.hashes[: n // 2])), len(once(sample.hashes))
    most = min(sample.whole, round(_grown(half, full, sample.whole / n)))
    if n >= sample.whole or full == n:  # all of it is known; or no value came twice
        return most, most
    low, high = float(full), float(full) * n  # of this many values, n are nearly all distinct
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if -middle * math.expm1(-n / middle) < full else (low, middle)
    return min(most, round(-low * math.expm1(-sample.whole / low))), most


def share_held(one: Sample, other: Sample) -> float:
    """The share of one row group's distinct values that the whole of another holds too."""
    wanted = once(one.hashes)
    n = len(other.hashes)
    if not len(wanted) or not n:
        return 0.0
    # By sorting: numpy 2.0's table for integers overflows on hashes beyond 2^63.
    half, full = (float(np.isin(wanted, once(other.hashes[:stop]), True, kind="sort").mean()) for stop in (n // 2, n))
    if full >= 1:
        return 1.0
    return 1 - math.exp(-_grown(-math.log1p(-half), -math.log1p(-full), other.whole / n))
