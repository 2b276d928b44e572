"""Reads footers, a sample of each column in a few row groups, and the filters of these: all that an advice needs."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from parquet_bloom.edit.gain import Estimate, estimate
from parquet_bloom.edit.sample import Interval, chunks_of
from parquet_bloom.errors import ParquetBloomError, RequestError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.filters.locate import filter_ranges_of
from parquet_bloom.filters.tails import open_logged
from parquet_bloom.format.forms import Sizing
from parquet_bloom.format.outline import Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import ColumnStatistics, statistics_of
from parquet_bloom.format.values import same_kind
from parquet_bloom.kernels import split_block
from parquet_bloom.source.source import ResolvedSource
from parquet_bloom.storage.display import Brief
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile, FailedFile
from parquet_bloom.storage.remote import side_by_side
from parquet_bloom.storage.workers import processors

_MOST_FOOTERS = 500


@dataclass(slots=True)
class Survey:
    """The part of a data set that an advice reads.

    files      how many there are; of `read` of them, evenly spread, the footer was read
    outlines   of these
    leaves     of the first of them; a column of another file counts if its name is the same, and its values compare
               and are hashed as the first one's: INT64 and INT_64 are one type
    opened     of the files that are looked into, which stay open: a large footer is decoded once for all columns
    """

    files: int
    read: list[DataFile]
    outlines: list[Outline]
    leaves: tuple[Leaf, ...]
    opened: dict[int, OpenFile] = field(default_factory=dict)
    _opening: dict[int, threading.Lock] = field(default_factory=dict)

    def __enter__(self) -> Survey:
        return self

    def __exit__(self, *_: object) -> None:
        for source in self.opened.values():
            source.close()

    def open(self, at: int) -> OpenFile:
        """A file whose footer was read, open until the survey ends; threads may ask. Raises StorageError."""
        with self._opening.setdefault(at, threading.Lock()):  # one for each: files are opened side by side
            if at not in self.opened:
                self.opened[at] = OpenFile(self.read[at])
                self.opened[at].footer()
            return self.opened[at]

    @property
    def is_far(self) -> bool:
        """Whether its files lie on another storage."""
        return bool(self.read) and not self.read[0].is_local

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
            if same is not None and _hashes_alike(same, leaf):
                found.append((at, same))
        return found


def _hashes_alike(one: Leaf, other: Leaf) -> bool:
    """Whether equal values of two columns have equal bytes, and one order."""
    kinds = [(leaf.physical, leaf.type_length, leaf.signed, leaf.unit_ns) for leaf in (one, other)]
    return kinds[0] == kinds[1] and same_kind(one, other)


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


def evenly_spread(files: Sequence[DataFile]) -> list[DataFile]:
    """The files whose footers are read: all, or 500 of them, evenly spread."""
    if len(files) <= _MOST_FOOTERS:
        return list(files)
    return [files[at] for at in np.linspace(0, len(files) - 1, _MOST_FOOTERS).round().astype(int).tolist()]


def read_survey(found: ResolvedSource) -> tuple[Survey, list[FailedFile]]:
    """Read the footers of up to 500 files; the files that failed beside them.

    Raises RequestError where no file has a row group; of a single file, or if all fail, FileError and its kinds.
    """
    names = found.names
    files, outlines, failed = [], [], list(found.failed)

    def outline(file: DataFile) -> Outline | ParquetBloomError:
        try:
            with open_logged(file) as opened:
                own = opened.outline()
            # Columns have the names that a table has for them; what it does not have is nameless.
            named = names.named_leaves(own.leaves, own.metadata.schema, file)
            return own if named is own.leaves else replace(own, leaves=named, memory={})
        except ParquetBloomError as error:
            return error

    some = evenly_spread(found.files)
    for file, seen in zip(some, side_by_side(outline, some), strict=True):
        if isinstance(seen, ParquetBloomError):
            if found.single:
                raise seen
            failed.append(FailedFile(str(file), seen))
        elif seen.n_row_groups:
            files.append(file)
            outlines.append(seen)
    if not outlines:
        if failed:
            raise failed[0].error
        raise RequestError("no file has a row group; there is nothing to advise on")
    return Survey(len(found.files), files, outlines, _columns(outlines, found.has_log)), failed


def _columns(outlines: Sequence[Outline], is_table: bool) -> tuple[Leaf, ...]:
    """The columns of the first file; of a table those of any, as files may be older than columns."""
    if not is_table:
        return outlines[0].leaves
    known = {leaf.path: leaf for outline in reversed(outlines) for leaf in outline.leaves if leaf.path}
    return tuple(known.values())


def survey_column(data: Survey, leaf: Leaf) -> ColumnSurvey | None:
    """Estimate a column by its samples (edit.gain.estimate); None where no row group has a value.

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

    found = estimate(chunks_of(leaf, files, data.row_groups, reader, data.is_far))
    return None if found is None else ColumnSurvey(leaf, found, with_filter, nulls / max(1, nulls + values))


# --- gain -----------------------------------------------------------------------------------------
#
# What filters on a column would gain and cost, each figure with the interval that it is likely to lie in.
#
# Shares of row groups are those of edit.gain, by which `add` judges too; there it says what a present and an absent
# value are. Filters err at a rate f, and spare (1 - f) of what exact ones spare:
#
#                  bounds leave      filters leave            spared
#    absent        a G               f a G                    a (1 - f)
#    present       a G               h G + f (a - h) G        (a - h) (1 - f)

_HEADER_BYTES = 16
_SLOWER, _FASTER = 2.0, 0.6  # than the sample: the whole is decoded by several threads, from a colder cache
# (low, likely, high) of what `add` does beside the values: a file is opened, written, brought to the disk and renamed,
# or written on a store by some requests; its bytes are copied, or cloned. benchmarks/README.md has where they are from.
_A_FILE, _A_FAR_FILE = Interval(0.012, 0.03, 0.06), Interval(0.05, 0.2, 0.4)
_A_BYTE = Interval(0.0, 1 / 400e6, 1 / 150e6)


@dataclass(frozen=True, slots=True, repr=False)
class Gain(Brief):
    """The row groups that filters spare one lookup, beyond those that bounds spare it; shares are of all row groups.

    row_groups   share of the row groups
    bytes        compressed bytes of these
    requests     reads of column chunks, all columns of a row group, less one for each filter that is asked; where it is
                 below 0 filters ask more than they save
    """

    row_groups: Interval
    bytes: Interval
    requests: Interval


class Whole(NamedTuple):
    """The size of a data set: its row groups, their compressed bytes, the columns of one."""

    row_groups: int
    bytes: int
    columns: int


def gains(found: Estimate, fpp: float, whole: Whole) -> tuple[Gain, Gain]:
    """(of a lookup of an absent value, of a present one); the rate of each filter lies anywhere below fpp."""

    def gain(exact: Interval) -> Gain:
        share = Interval(exact.low * (1 - fpp), exact.likely * (1 - fpp), exact.high)
        asked = found.admitted.likely * whole.row_groups
        requests = Interval(*(one * whole.row_groups * whole.columns - asked for one in share))
        return Gain(share, share.times(whole.bytes), requests)

    return gain(found.absent), gain(found.present)


# --- size and rate --------------------------------------------------------------------------------


def least_rate(found: Estimate, max_bytes: int = split_block.MAX_BYTES) -> float:
    """The rate at which a filter's own bytes and those that are read in vain for its errors are least together.

    `add --fpp auto` decides so too, for each row group by what it holds (kernels.split_block.least_size). Here it is
    rounded up to one digit, between 0.1 and 0.0001.
    """
    shares = [math.sqrt(fewest * most) / values for values, fewest, most in found.counts]
    ndv = max(1, round(float(np.mean(shares)) * float(np.median(found.chunks.values))))
    rate = split_block.expected_rate(ndv, split_block.least_size(ndv, _in_vain(found), max_bytes))
    rate = min(0.1, max(0.0001, rate))
    digits = int(-math.floor(math.log10(rate)))
    return min(0.1, float(math.ceil(rate * 10**digits) / 10**digits))


def _in_vain(found: Estimate) -> int:
    return int(np.median(found.chunks.row_group_bytes))


def filter_bytes(found: Estimate, fpp: float, scale: float) -> Interval:
    """Bytes of filters on all row groups, headers included, at this rate or by `--fpp auto`.

    Sizes are powers of two, so a few values may double one.
    """
    both = [found.filter_bytes(one, _HEADER_BYTES) for one in (Sizing(fpp), Sizing(0.0, in_vain=_in_vain(found)))]
    low, high = min(one.low for one in both), max(one.high for one in both)
    return Interval(low, both[0].likely, high).times(scale)


def seconds(found: Estimate, scale: float) -> Interval:
    """Seconds to decode and hash the column on this machine, with all processors."""
    quickest = min(sample.seconds for sample in found.samples)  # the first one also compiles
    likely = quickest * float(found.chunks.values.sum()) * scale / processors()
    return Interval(likely * _FASTER, likely, likely * _SLOWER)


def file_seconds(files: int, num_bytes: int, far: bool) -> Interval:
    """Seconds that `add` takes for files of some bytes in all, whatever their columns are."""
    each = (_A_FAR_FILE if far else _A_FILE).times(files)
    return each if far else each.plus(_A_BYTE.times(num_bytes))


def row_groups_of_a_key(found: Estimate) -> Interval:
    """How many row groups hold a present value."""
    held = found.held.times(found.chunks.row_groups)
    return Interval(max(1.0, held.low), max(1.0, held.likely), max(1.0, held.high))
