"""Where the bytes of a file lie: column chunks, filters, page indexes, footer, as spans that follow each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.audit.inspect import FilterInfo
from parquet_bloom.formats.metadata.outline import NONE, Outline, Slot

Integers = NDArray[np.int64]

KINDS = ("column chunks", "filters", "page indexes", "footer", "other")
CHUNK, FILTER, INDEX, FOOTER, OTHER = range(5)


@dataclass(slots=True)
class Layout:
    """The bytes of a file, from the first to the last.

    starts, ends  int64[n]: spans that neither overlap nor leave a gap
    kinds         int64[n], index into KINDS
    row_groups, columns  int64[n] of chunks and filters; -1 of others
    names         of the columns
    chunk_bytes, filter_bytes  int64[columns]
    """

    size: int
    starts: Integers
    ends: Integers
    kinds: Integers
    row_groups: Integers
    columns: Integers
    names: list[str]
    chunk_bytes: Integers
    filter_bytes: Integers

    def of_kind(self, kind: int) -> int:
        """Bytes of a kind."""
        here = self.kinds == kind
        return int((self.ends[here] - self.starts[here]).sum())

    @property
    def tail(self) -> int:
        """Where the last column chunk ends."""
        return int(self.ends[self.kinds == CHUNK].max(initial=0))

    def cells(self, low: int, high: int, n: int) -> NDArray[np.float64]:
        """float64[kinds, n]: the share that each kind has of each of n equal parts of a range of bytes."""
        edges = np.linspace(low, high, n + 1)
        found = np.zeros((len(KINDS), n))
        for kind in range(len(KINDS)):
            here = self.kinds == kind
            if here.any():
                places = np.stack([self.starts[here], self.ends[here]], axis=1).reshape(-1)
                sizes = np.stack([np.zeros(int(here.sum()), np.int64), self.ends[here] - self.starts[here]], axis=1)
                found[kind] = np.diff(np.interp(edges, places, np.cumsum(sizes.reshape(-1))))
        return found * n / max(1, high - low)


def layout_of(outline: Outline, size: int, filters: Sequence[FilterInfo]) -> Layout:
    """The layout of a file; what overlaps in a damaged one is counted once, for what begins first."""
    names = [leaf.name for leaf in outline.leaves]
    groups, columns = np.indices(outline.slots.shape[1:]).reshape(2, -1)
    starts, ends = _chunks(outline)
    index = {text: at for at, text in enumerate(names)}
    placed = [one for one in filters if one.offset is not None and one.offset >= 0]
    begin = np.array([one.offset for one in placed], np.int64)
    length = np.array([max(0, one.length or one.num_bytes) for one in placed], np.int64)
    of_column = np.array([index.get(one.column, 0) for one in placed], np.int64)
    filter_bytes = np.bincount(of_column, length, len(names)).astype(np.int64)
    chunk_bytes = np.bincount(columns, ends - starts, len(names)).astype(np.int64)
    parts = [
        (starts, ends, np.full(len(starts), CHUNK), groups, columns),
        (begin, begin + length, np.full(len(begin), FILTER), np.array([f.row_group for f in placed]), of_column),
        tuple(np.array([one], np.int64) for one in (outline.start, size, FOOTER, -1, -1)),
    ]
    spans = np.stack([np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)])
    indexes = outline.slots[[Slot.OFFSET_INDEX, Slot.COLUMN_INDEX]].reshape(-1)
    spans = _without_gaps(spans, size, indexes)
    return Layout(size, spans[0], spans[1], spans[2], spans[3], spans[4], names, chunk_bytes, filter_bytes)


def _chunks(outline: Outline) -> tuple[Integers, Integers]:
    data, dictionary = (outline.slots[slot].reshape(-1) for slot in (Slot.DATA_PAGE, Slot.DICTIONARY_PAGE))
    starts = np.where((dictionary > 0) & (dictionary < data), dictionary, data)
    starts = np.where(starts == NONE, 0, starts).clip(0)
    return starts, starts + outline.slots[Slot.COMPRESSED_SIZE].reshape(-1).clip(0, 1 << 60)


def _without_gaps(spans: Integers, size: int, indexes: Integers) -> Integers:
    """Spans in order, clipped to the file and to the ends of those before them; gaps become spans of their own."""
    spans = spans[:, np.argsort(spans[0], kind="stable")]
    spans[1] = spans[1].clip(0, size)
    before = np.concatenate([[0], np.maximum.accumulate(spans[1])[:-1]])
    spans[0] = np.maximum(spans[0], before)
    gap = spans[0].clip(0, size) > before
    kinds = np.where(np.isin(before[gap], indexes), INDEX, OTHER)
    none = np.full(int(gap.sum()), -1)
    gaps = np.stack([before[gap], spans[0][gap].clip(0, size), kinds, none, none])
    whole = np.concatenate([spans[:, spans[1] > spans[0]], gaps], axis=1)
    ordered: Integers = whole[:, np.argsort(whole[0], kind="stable")]
    return ordered
