"""Rows of a row group, as a value: which ones are wanted.

rows 0 .. 99 of a row group; 7, 8, 9 and 55 match      ranges [[7, 10], [55, 56]]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.format.arrow_types import fields_of, is_view

Positions = NDArray[np.int64]  # int64[n], ascending


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Some rows of a row group, in order.

    ranges  int64[n, 2]: rows [start, stop) of the row group, ascending and apart
    """

    ranges: NDArray[np.int64]

    @classmethod
    def of_positions(cls, positions: Positions) -> RowSelection:
        """The rows at these positions."""
        if not len(positions):
            return cls(np.empty((0, 2), np.int64))
        gaps = np.flatnonzero(np.diff(positions) != 1)
        starts = positions[np.concatenate(([0], gaps + 1))]
        stops = positions[np.concatenate((gaps, [len(positions) - 1]))] + 1
        return cls(np.stack([starts, stops], axis=1))

    @classmethod
    def of_stretches(cls, starts: Positions, stops: Positions) -> RowSelection:
        """The rows of stretches, which are ascending and do not overlap."""
        apart, end = starts[1:] != stops[:-1], np.ones(min(1, len(starts)), bool)
        firsts, lasts = np.concatenate((end, apart)), np.concatenate((apart, end))
        return cls(np.stack([starts[firsts], stops[lasts]], axis=1))

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())

    @property
    def stop(self) -> int:
        """The row behind the last one; 0 without rows."""
        return int(self.ranges[-1, 1]) if len(self.ranges) else 0

    def positions(self) -> Positions:
        """The position of each row in the row group."""
        lengths = self.ranges[:, 1] - self.ranges[:, 0]
        before = np.cumsum(lengths) - lengths
        return np.repeat(self.ranges[:, 0] - before, lengths) + np.arange(int(lengths.sum()))

    def meets(self, starts: Positions, stops: Positions) -> NDArray[np.bool_]:
        """Find which of these stretches of rows have a row of this selection: bool[n]."""
        first = np.searchsorted(self.ranges[:, 1], starts, "right")  # the first range that ends behind the start
        reached = first < len(self.ranges)
        begins = self.ranges[np.minimum(first, len(self.ranges) - 1), 0] if len(self.ranges) else starts
        return reached & (begins < stops) & (starts < stops)


def taken_rows(batch: pa.RecordBatch, at: Positions) -> pa.RecordBatch:
    """The rows at these positions of a batch."""
    if len(at) == batch.num_rows:
        return batch
    return pa.RecordBatch.from_arrays([taken(column, at) for column in batch.columns], schema=batch.schema)


def taken(array: pa.Array, at: Positions) -> pa.Array:
    """The values at these positions of an array; pyarrow takes no views of texts, at no depth."""
    if len(at) == len(array):
        return array
    kind = array.type
    if is_view(kind):
        plain = pa.large_string() if pa.types.is_string_view(kind) else pa.large_binary()
        return array.cast(plain).take(pa.array(at)).cast(kind)
    if len(at) and _has_views(kind):
        ranges = RowSelection.of_positions(at).ranges.tolist()
        return pa.concat_arrays([array.slice(start, stop - start) for start, stop in ranges])
    return array.take(pa.array(at)) if len(at) else array.slice(0, 0)


def _has_views(kind: pa.DataType) -> bool:
    return is_view(kind) or any(_has_views(field.type) for field in fields_of(kind))
