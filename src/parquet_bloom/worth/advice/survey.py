"""What is read for an advice: footers, a sample of each column in a few row groups, and the filters of these."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.chunks.filter_ranges import filter_ranges_of
from parquet_bloom.edit.choose import Evidence, bounds_of, two_of
from parquet_bloom.edit.sample import Sample, sample_of
from parquet_bloom.formats.bounds import statistics_of
from parquet_bloom.formats.metadata.outline import Outline, Slot
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.source import Source

_MOST_FOOTERS = 500
_SAMPLED = (0.5, 0.125, 0.875, 0.375)  # where in the data set row groups are sampled, beside the two that `add` takes

Groups = list[tuple[int, int]]  # (which file, its row group)


@dataclass(slots=True)
class Survey:
    """A data set as far as an advice looks at it.

    files      how many there are; of `read` of them, evenly spread, the footer was read
    outlines   of these
    leaves     of the first of them; a column of another file counts if name and type are the same
    opened     of the files that are looked into, which stay open: a large footer is decoded once for all columns
    """

    files: int
    read: list[DataFile]
    outlines: list[Outline]
    leaves: tuple[Leaf, ...]
    opened: dict[int, Source] = field(default_factory=dict)

    def __enter__(self) -> Survey:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self.opened.values():
            source.close()

    def open(self, at: int) -> Source:
        """A file whose footer was read, open until the survey ends. Raises StorageError."""
        if at not in self.opened:
            self.opened[at] = Source(self.read[at])
        return self.opened[at]

    @property
    def scale(self) -> float:
        """The whole data set, as so many times what was read."""
        return self.files / len(self.read)

    @property
    def row_groups(self) -> int:
        """Of the footers that were read."""
        return sum(outline.n_row_groups for outline in self.outlines)

    @property
    def bytes(self) -> int:
        """Compressed, of all columns of these row groups."""
        return sum(int(outline.slots[Slot.COMPRESSED_SIZE].clip(0).sum()) for outline in self.outlines)

    @property
    def rows(self) -> int:
        """Of these row groups."""
        return sum(int(outline.rows.sum()) for outline in self.outlines)

    def having(self, leaf: Leaf) -> list[tuple[int, Leaf]]:
        """(which file, the column in it) of each file that has the column."""
        found = []
        for at, outline in enumerate(self.outlines):
            same = outline.leaves[leaf.index] if leaf.index < len(outline.leaves) else None
            if same != leaf or not leaf.path:
                same = next((one for one in outline.leaves if one.path == leaf.path), None)
            if same is not None and (same.physical, same.logical) == (leaf.physical, leaf.logical):
                found.append((at, same))
        return found


@dataclass(slots=True)
class ColumnSurvey:
    """One column of a data set.

    evidence      bounds of its row groups; of its samples the two that `add` would take
    samples       all, those two first
    seconds       that decoding and hashing a value took, in the quickest sample
    values        int64[row groups]: how many values each has that are not NULL, as far as the footer tells
    row_group_bytes  int64[row groups]: compressed, of all columns
    with_filter   how many of them have a filter
    null_share    of its values
    """

    leaf: Leaf
    evidence: Evidence
    samples: list[Sample]
    seconds: float
    values: NDArray[np.int64]
    row_group_bytes: NDArray[np.int64]
    with_filter: int
    null_share: float


def spread(files: Sequence[DataFile]) -> list[DataFile]:
    """The files whose footers are read: all, or 500 of them, evenly spread."""
    if len(files) <= _MOST_FOOTERS:
        return list(files)
    return [files[at] for at in np.linspace(0, len(files) - 1, _MOST_FOOTERS).round().astype(int).tolist()]


def survey_column(data: Survey, leaf: Leaf) -> ColumnSurvey | None:
    """Bounds of a column's row groups, and samples of up to six of them; None where no row group has a value.

    Raises FileError and its kinds where a sample does not decode.
    """
    having = data.having(leaf)
    groups: Groups = []
    values, sizes, nulls, with_filter = [], [], 0, 0
    for at, same in having:
        outline = data.outlines[at]
        slots = outline.slots[:, :, same.index]
        null_counts = slots[Slot.NULL_COUNT].clip(0)
        values.append((slots[Slot.NUM_VALUES] - null_counts).clip(0))
        sizes.append(outline.slots[Slot.COMPRESSED_SIZE].clip(0).sum(axis=1))
        nulls += int(null_counts.sum())
        with_filter += int(filter_ranges_of(outline, same.index).exists.sum())
        groups += [(at, group) for group in np.flatnonzero(values[-1] > 0).tolist()]
    if not groups:
        return None
    columns = dict(having)
    samples, seconds = _samples(data, columns, groups)
    if not samples:
        return None
    bounds = bounds_of([statistics_of(data.outlines[at], same) for at, same in having])
    stored = np.concatenate(values)
    return ColumnSurvey(
        leaf, Evidence(*bounds, samples[:2]), samples, seconds, stored, np.concatenate(sizes), with_filter,
        nulls / max(1, nulls + int(stored.sum())),
    )  # fmt: skip


def _samples(data: Survey, columns: dict[int, Leaf], groups: Groups) -> tuple[list[Sample], float]:
    n = len(groups)
    places = list(dict.fromkeys([*two_of(range(n)), *(int(at * n) for at in _SAMPLED)]))
    samples: list[Sample] = []
    rates: list[float] = []
    readers: dict[int, ColumnReader] = {}
    for file, group in (groups[place] for place in places):
        footer = data.open(file).footer()
        if file not in readers:  # a table may have another name for it
            readers[file] = ColumnReader(data.open(file), footer.leaves[columns[file].index])
        started = time.perf_counter()
        if (found := sample_of(readers[file], footer, group)) is not None:
            rates.append((time.perf_counter() - started) / max(1, len(found.hashes)))
            samples.append(found)
    return samples, min(rates, default=0.0)  # the first one also compiles
