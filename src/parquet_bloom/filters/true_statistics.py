"""The true statistics of a column chunk: bounds and counts of its stored values, of the whole chunk and of its pages.

    batches that pyarrow decodes -> values that pyarrow compares as the column's order does -> slices, one a page
                                 -> least and greatest of each page, and of the chunk

No loop runs over values. Values in the column's own order (format.statistics.domain_of):

    integers    int32, int64, or the unsigned ones of the same bytes
    DECIMAL     in bytes: of one width, eight of them at a time as integers
    floats      a NaN has no place in bounds; it is counted
    bytes       as they are

Source: parquet.thrift, ColumnOrder.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from parquet_bloom.format.schema import BYTE_ARRAY, FLBA, Leaf
from parquet_bloom.format.statistics import MOST_BYTES, domain_of
from parquet_bloom.kernels.hashes import hash_array, offsets_of


@dataclass(slots=True)
class TrueStatistics:
    """Counts and bounds of some stored values: of a page, or of a chunk.

    values    how many are no NULL
    nulls     how many entries of the leaf are NULL, but for those under a NULL or empty list
    nans      how many values are NaN; counted for a chunk alone
    low, high  the least and the greatest value but NaN, as format.statistics.domain_of has them; None: there is none
    """

    values: int = 0
    nulls: int = 0
    nans: int = 0
    low: Any = None
    high: Any = None

    def add(self, values: int, nulls: int, low: Any, high: Any) -> None:
        """Count more values, with their own bounds."""
        self.values += values
        self.nulls += nulls
        if low is not None and (self.low is None or low < self.low):
            self.low = low
        if high is not None and (self.high is None or high > self.high):
            self.high = high


class ChunkStatistics(TrueStatistics):
    """The true statistics of one column chunk, fed batch by batch.

    pages       of each page, in order; empty where no pages were named
    distinct    how many distinct values there are; None where nobody wanted to know it
    has_bounds  whether low and high are known to be bounds of all values but NaN
    """

    def __init__(
        self, leaf: Leaf, first_entries: Sequence[int] | None = None, *, distinct: bool = False, bounds: bool = True
    ) -> None:
        """first_entries: of each page, the number of its first entry among those of the leaf in this chunk.

        distinct, bounds  whether somebody wants to know these; without bounds NaN are not counted either
        """
        super().__init__()
        self.leaf, self.domain = leaf, domain_of(leaf) if bounds else None
        self.pages = [TrueStatistics() for _ in first_entries or ()]
        self.has_bounds = self.domain is not None
        self._firsts = first_entries or [0]
        self._at = 0
        self._hashes: list[NDArray[np.uint64]] | None = [] if distinct else None

    @property
    def distinct(self) -> int | None:
        """As the class has it."""
        return None if self._hashes is None else len(np.unique(np.concatenate([np.empty(0, np.uint64), *self._hashes])))

    def feed(self, batch: pa.Array) -> None:
        """Take the next entries of the leaf, as filters.decode.ColumnReader yields them."""
        n = len(batch)
        if not n:
            return
        if self._hashes is not None:
            self._hashes.append(np.unique(hash_array(_distinct(batch))))
        values = batch if self.domain is None else _comparable(batch, self.leaf)
        # The pages that the batch is part of, and where each ends in it.
        page, begin = bisect_right(self._firsts, self._at) - 1, 0
        while begin < n:
            last = page + 1 >= len(self._firsts)
            stop = n if last else min(n, self._firsts[page + 1] - self._at)
            if size := stop - begin:
                part = values.slice(begin, size)
                nulls = part.null_count
                low, high = self._bounds(part) if self.domain is not None and nulls < size else (None, None)
                self.add(size - nulls, nulls, low, high)
                if self.pages:
                    self.pages[page].add(size - nulls, nulls, low, high)
            page, begin = page + 1, stop
        self._at += n

    def _bounds(self, part: pa.Array) -> tuple[Any, Any]:
        """The least and the greatest of some values, of which one at least is no NULL."""
        part = _distinct(part)
        if self.domain == "integer" and self.leaf.physical in (BYTE_ARRAY, FLBA):
            rows = _rows_of(part)
            if rows is None:
                self.has_bounds = False
                return None, None
            return _extreme(rows, np.min), _extreme(rows, np.max)
        if pt.is_primitive(part.type) and not pt.is_boolean(part.type):
            numbers = _numbers(part)
            low, high = numbers.min().item(), numbers.max().item()
            if low != low:  # numpy's are NaN where any value is
                reals = numbers[numbers == numbers]
                self.nans += len(numbers) - len(reals)
                low, high = (reals.min().item(), reals.max().item()) if len(reals) else (None, None)
            return low, high
        import pyarrow.compute as pc  # half as long to load as pyarrow itself; `add` of most files needs no bounds

        found = pc.min_max(part).as_py()
        low, high = found["min"], found["max"]
        return (int(low), int(high)) if self.domain == "integer" else (low, high)


def _distinct(values: pa.Array) -> pa.Array:
    """The entries that a dictionary array has, once each; other arrays as they are."""
    if not pt.is_dictionary(values.type):
        return values
    used = np.zeros(len(values.dictionary), bool)
    used[_numbers(values.indices)] = True
    return values.dictionary.filter(pa.array(used))


def _numbers(entries: pa.Array) -> NDArray[Any]:
    """The entries of a fixed width that are no NULL: in half of the time that pyarrow takes to drop NULLs."""
    kind, start, stop = entries.type, entries.offset, entries.offset + len(entries)
    fixed = f"V{kind.byte_width}" if pt.is_fixed_size_binary(kind) else kind.to_pandas_dtype()
    valid, data = entries.buffers()
    found = np.frombuffer(data, fixed, stop)[start:]
    if entries.null_count:
        bits = np.unpackbits(np.frombuffer(valid, np.uint8), count=stop, bitorder="little")
        found = found.compress(bits[start:].view(bool))
    return found


def _comparable(batch: pa.Array, leaf: Leaf) -> pa.Array:
    """Values and NULLs of a type that pyarrow compares as the column's order does; DECIMAL in bytes as it is."""
    if leaf.float_bits == 16:
        halves = pa.Array.from_buffers(pa.float16(), len(batch), batch.buffers(), offset=batch.offset)
        return halves.cast(pa.float32())
    if leaf.logical == "INTEGER" and not leaf.signed:
        return batch.view(pa.uint32() if leaf.width == 4 else pa.uint64())
    return batch


def _rows_of(stored: pa.Array) -> NDArray[np.uint8] | None:
    """DECIMALs in bytes but for NULLs, uint8[n, bytes of each], big-endian, each as long as the longest.

    None where one is empty, or longer than any engine knows.
    """
    if pt.is_fixed_size_binary(stored.type):
        return _numbers(stored).view(np.uint8).reshape(-1, stored.type.byte_width)
    stored = stored.drop_null()
    offsets = offsets_of(stored).astype(np.int64)
    lengths = np.diff(offsets)
    width = int(lengths.max())
    if not 0 < int(lengths.min()) <= width <= MOST_BYTES:
        return None
    data = np.frombuffer(stored.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets[:-1] - offsets[0]
    rows = np.repeat(np.where(data[starts] >= 0x80, 0xFF, 0).astype(np.uint8)[:, None], width, axis=1)
    # Byte k of a value goes to column width - length + k of its row.
    row_of = np.repeat(np.arange(len(stored)), lengths)
    rows[row_of, np.arange(len(data)) + (width - lengths - starts)[row_of]] = data
    return rows


def _extreme(rows: NDArray[np.uint8], pick: Callable[[NDArray[Any]], Any]) -> int:
    """The number that `pick` takes, np.min or np.max: by eight bytes at a time, of the rows that are equal so far."""
    width = rows.shape[1]
    if width < 8:
        rows = np.pad(rows, ((0, 0), (0, 8 - width)))
    for at in (*range(0, width - 8, 8), max(0, width - 8)):
        # The first eight have the sign. The last overlap those before, which are equal in all rows that remain.
        kind = "i8" if at == 0 else "u8"
        numbers = np.ndarray(len(rows), f">{kind}", rows, at, rows.strides[:1]).astype(kind)
        rows = rows.compress(numbers == pick(numbers), axis=0)
    return int.from_bytes(rows[0, :width].tobytes(), "big", signed=True)
