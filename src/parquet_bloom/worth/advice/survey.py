"""What is read for an advice: footers, a sample of each column in a few row groups, and the filters of these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from parquet_bloom.chunks.decode import ColumnReader
from parquet_bloom.chunks.filter_ranges import filter_ranges_of
from parquet_bloom.edit.column_bounds import chunks_of
from parquet_bloom.edit.gain import Estimate, estimate
from parquet_bloom.formats.bounds import ColumnStatistics, statistics_of
from parquet_bloom.formats.metadata.outline import Outline, Slot
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.source import Source

_MOST_FOOTERS = 500


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

    found         what filters on it would spare lookups, and what shows it
    with_filter   how many of its row groups have a filter
    null_share    of its values
    """

    leaf: Leaf
    found: Estimate
    with_filter: int
    null_share: float


def spread(files: Sequence[DataFile]) -> list[DataFile]:
    """The files whose footers are read: all, or 500 of them, evenly spread."""
    if len(files) <= _MOST_FOOTERS:
        return list(files)
    return [files[at] for at in np.linspace(0, len(files) - 1, _MOST_FOOTERS).round().astype(int).tolist()]


def survey_column(data: Survey, leaf: Leaf) -> ColumnSurvey | None:
    """What the data set shows of a column (edit.gain.estimate); None where no row group has a value.

    Raises FileError and its kinds where a sample does not decode.
    """
    having = data.having(leaf)
    files: list[tuple[Outline, Leaf, ColumnStatistics]] = []
    nulls = values = with_filter = 0
    for at, same in having:
        outline = data.outlines[at]
        slots = outline.slots[:, :, same.index]
        null_counts = slots[Slot.NULL_COUNT].clip(0)
        values += int((slots[Slot.NUM_VALUES] - null_counts).clip(0).sum())
        nulls += int(null_counts.sum())
        with_filter += int(filter_ranges_of(outline, same.index).exists.sum())
        files.append((outline, same, statistics_of(outline, same)))
    readers: dict[int, ColumnReader] = {}

    def reader(file: int, _: int) -> ColumnReader:
        if file not in readers:  # a table may have another name for it
            at, same = having[file]
            source = data.open(at)
            readers[file] = ColumnReader(source, source.footer().leaves[same.index])
        return readers[file]

    remote = bool(data.read) and not data.read[0].is_local
    found = estimate(chunks_of(leaf, files, data.row_groups, reader, remote))
    return None if found is None else ColumnSurvey(leaf, found, with_filter, nulls / max(1, nulls + values))
