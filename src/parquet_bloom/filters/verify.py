"""Verifies filters: each stored value must be admitted, and few absent ones. On request also statistics.

A filter that misses one stored value costs rows in every engine that uses it, so the column is
decoded and each value is asked for. This finds what no header can show: another hash, another
byte order, a filter of another row group, bits lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, Unpack

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError, RequestError, UnknownFilterError
from parquet_bloom.filters.decode import ColumnReader, is_beyond_pyarrow
from parquet_bloom.filters.logged_statistics import LoggedStatistics
from parquet_bloom.filters.stored import StoredFilter, StoredFilters
from parquet_bloom.filters.tails import each_file
from parquet_bloom.filters.wrong_statistics import Comparing, FileStatistics, WrongStatistic, compare_statistics
from parquet_bloom.format.footer import ChunkKey, Footer
from parquet_bloom.format.forms import BATCH_ROWS, Filter
from parquet_bloom.format.schema import BYTE_ARRAY, Leaf, select_leaves
from parquet_bloom.format.statistics import counts_in
from parquet_bloom.kernels import split_block
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.options import PathLike, ReadOptions, column_names, refuse_unknown
from parquet_bloom.source.results import Result, filters_table, table_of
from parquet_bloom.source.source import source_of
from parquet_bloom.storage.display import line_of, quantity
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import FailedFile
from parquet_bloom.storage.workers import Meter, ProgressCallback

# --- values that no row has -----------------------------------------------------------------------
#
# Random values that a column chunk does not hold, and how many of them its filter admits.
#
# They are drawn before the chunk is decoded, and those that turn up in it are dropped as they pass. So nothing
# is kept of the chunk's own values, however many there are. A drawn value that is stored is one that the filter
# admits, or the filter is wrong: only stored values that it denies, and those that look like one of the few
# drawn values it admits, have to be looked up. Of eight random bytes or more it is not even these: that one of
# 100,000 is among a thousand million stored values has a chance below 1 in 100,000.

LEAST, MOST = 1 << 12, 100_000
_BYTES_LONG = 16  # of a random BYTE_ARRAY
_SIEVE_RATE = 0.0005
_CERTAIN = 8  # bytes, of values that are too many to be drawn and stored by chance


class AbsentValues:
    """Values of one column's physical type, of which those that are stored are dropped."""

    def __init__(self, leaf: Leaf, bloom: Filter) -> None:
        """Draw values: one for each bit of the filter, but 4,096 at least and 100,000 at most.

        The rate of a small filter is known well enough from few, and a file may have ten thousand of these.
        """
        width = None if leaf.physical == BYTE_ARRAY else leaf.width
        drawn, self._hashes = _draw(width, min(MOST, max(LEAST, 8 * bloom.num_bytes)))
        self._admitted = bloom.might_contain_hashed(drawn, self._hashes)
        self._stored = np.zeros(len(drawn), bool)
        self._certain = width is None or width >= _CERTAIN
        if self._certain:  # nothing is dropped
            return
        few = self._hashes[self._admitted]
        self._sieve = split_block.empty(split_block.size_for(len(few), _SIEVE_RATE))
        split_block.insert_hashes(self._sieve, few)

    def drop(self, stored: NDArray[np.uint64], admitted: NDArray[np.bool_]) -> None:
        """Drop what is stored.

        stored    uint64[n], XXH64 with seed 0 of some of the stored values
        admitted  bool[n], which of these the filter admits
        """
        if self._certain:
            return
        near = split_block.contains_hashes(self._sieve, stored)
        np.logical_or(near, ~admitted, out=near)
        found = stored[near]
        if len(found):
            first, last = (np.searchsorted(self._hashes, found, side) for side in ("left", "right"))
            known = first < last
            for start, stop in set(zip(first[known].tolist(), last[known].tolist(), strict=True)):
                self._stored[start:stop] = True  # a type of few values gives some of them many times

    @property
    def count(self) -> int:
        """How many values remain. None of them is stored, if `drop` was called with all that is."""
        return int(len(self._stored) - np.count_nonzero(self._stored))

    @property
    def fpp(self) -> float | None:
        """The share of these that the filter admits; None where none remains."""
        count = self.count
        return float(np.count_nonzero(self._admitted & ~self._stored) / count) if count else None


@lru_cache(maxsize=4)
def _draw(width: int | None, count: int) -> tuple[pa.Array, NDArray[np.uint64]]:
    """Random values of some bytes (None: BYTE_ARRAY), and the XXH64 of each, by which they are sorted."""
    length = width or _BYTES_LONG
    rows = np.frombuffer(np.random.default_rng(count).bytes(length * count), np.uint8).reshape(count, length)
    hashes = hash_array(_as_array(rows, width))
    order = np.argsort(hashes)
    return _as_array(rows[order], width), hashes[order]


def _as_array(rows: NDArray[np.uint8], width: int | None) -> pa.Array:
    """Values, uint8[n, bytes of each], as Arrow has those of a column."""
    data = pa.py_buffer(rows.tobytes())
    if width is not None:
        return pa.Array.from_buffers(pa.binary(width), len(rows), [None, data])
    offsets = np.arange(0, rows.size + 1, rows.shape[1], dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets.tobytes()), data])


# --- verify ---------------------------------------------------------------------------------------


@dataclass(slots=True, repr=False)
class VerifiedFilter(Result):
    """The verdict on one filter.

    status         "right", "wrong" (misses stored values, or contradicts itself) or "unknown"
                   (of a kind that cannot be judged)
    values         stored values that were asked for, not counting nulls
    missed         of these, how many the filter denies: each is a row lost to its readers
    measured_fpp   share of `absent` random values, none of them stored, that the filter admits (that values of
                   eight bytes or more are not stored is as good as certain, and not looked up)
    reason         why it is wrong or unknown
    """

    row_group: int
    column: str
    status: str
    spec: str | None = None
    values: int = 0
    missed: int = 0
    absent: int = 0
    measured_fpp: float | None = None
    reason: str = ""


@dataclass(slots=True, repr=False)
class VerifiedFile(Result):
    """The verdicts on a file's filters; `sampled` row groups of `row_groups` were decoded.

    statistics  the verdicts on its statistics; None where they were not requested
    """

    path: str
    row_groups: int
    sampled: int
    filters: list[VerifiedFilter] = field(default_factory=list)
    statistics: FileStatistics | None = None

    @property
    def wrong(self) -> list[VerifiedFilter]:
        """The filters that deny a stored value or contradict themselves."""
        return [f for f in self.filters if f.status == "wrong"]

    @property
    def wrong_statistics(self) -> list[WrongStatistic]:
        """The statistics that contradict the stored values."""
        return [] if self.statistics is None else self.statistics.wrong

    def to_arrow(self) -> pa.Table:
        """A row a filter."""
        return table_of(VerifiedFilter, self.filters)


@dataclass(slots=True, repr=False)
class VerifyReport(Result):
    """Verdicts a file, and the files that could not be read.

    notes  that files lie in a table of Iceberg, Delta or Hudi, or were written for one
    """

    files: list[VerifiedFile]
    failed: list[FailedFile]
    notes: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        filters, wrong = sum(len(file.filters) for file in self.files), sum(len(file.wrong) for file in self.files)
        lies = sum(len(file.wrong_statistics) for file in self.files)
        more = [f"{quantity(lies, 'statistics')} wrong"] if lies else []
        return line_of(self, quantity(filters, "filters"), f"{wrong:,} wrong" if wrong else "none wrong", *more)

    def to_arrow(self) -> pa.Table:
        """A row a filter, with the path of its file; files without filters have none."""
        return filters_table(VerifiedFilter, self.files)


_FAR_FILES = (
    16  # on other storages at a time: each has so much in memory, or reads it ahead, and decodes a column chunk
)
_AT_ONCE = 16 << 20


def verify(
    source: PathLike | Sequence[PathLike],
    *,
    columns: str | Sequence[str] | None = None,
    exclude: str | Sequence[str] | None = None,
    sample: int | None = None,
    statistics: bool = False,
    filesystem: Any = None,
    progress: ProgressCallback | None = None,
    **options: Unpack[ReadOptions],
) -> VerifyReport:
    """Check the filters of one Parquet file or several against the stored values, and if requested the statistics.

    columns, exclude  one name or pattern of a column, or a list; None: all columns, none is left out
    sample      look at so many row groups a file only, spread evenly
    statistics  also compare min and max, counts and page indexes with the values: every column that has any is decoded.
                Of a table what its log states of the files too
    filesystem  of pyarrow or fsspec; source then names files on it
    progress    is called with a Progress for every file and every filter
    options     see ReadOptions: raw_files; of a table catalog_properties, allow_roots
    Raises FileError for one file that cannot be read, RequestError; UnknownColumnError where the first file
    lacks a column that was named.
    """
    refuse_unknown("verify", options, ReadOptions)
    if sample is not None and sample < 1:
        raise RequestError(f"sample {sample} is not a positive number of row groups")
    wanted, left_out = column_names(columns, "columns"), column_names(exclude, "exclude")

    found = source_of(source, filesystem, options).resolve(stored_only=True)
    meter = Meter(progress, found.files, unit="column chunks")
    compare: Comparing | None = compare_statistics if statistics else None
    if statistics and found.table is not None:
        compare = LoggedStatistics(found.snapshot, found.table.stated(found.snapshot)).comparing

    def work(opened: OpenFile, leaves: Sequence[Leaf]) -> VerifiedFile:
        return _verify(opened, select_leaves(leaves, wanted, left_out), sample, compare, meter)

    results = each_file(found, work, meter, _FAR_FILES, pin=True)
    return VerifyReport(list(results), results.failed, found.notes)


def _verify(
    source: OpenFile, leaves: Sequence[Leaf], sample: int | None, compare: Comparing | None, meter: Meter
) -> VerifiedFile:
    footer = source.footer()
    n = footer.n_row_groups
    groups = list(range(n)) if sample is None or sample >= n else [i * n // sample for i in range(sample)]
    verified = VerifiedFile(source.path, n, len(groups))
    filters = StoredFilters(source)
    shared = _Shared(filters, leaves)
    if compare is not None:
        some = {leaf.index for leaf in leaves if any(filters.of(group, leaf) for group in groups)}
        parts = len(leaves) * len(groups)
        compared = compare(source, leaves, groups, lambda done: meter.part(done, parts), some, shared.reader)
        verified.statistics, verified.filters = compared.statistics, shared.verdicts
    far: list[_Chunk] = []
    stays = not source.is_remote or source.is_whole_in_memory
    for nth, leaf in enumerate(leaves):
        stored = [
            one for group in groups if (group, leaf.index) not in shared.chunks for one in filters.of(group, leaf)
        ]
        if not stored:
            continue
        column = ColumnReader(source, footer.leaves[leaf.index])
        if not stays:
            far += [_Chunk(nth, leaf, one, column) for one in stored]
            continue
        with column.staying_open() as reader:
            for one in stored:
                verified.filters.append(_verify_filter(one, leaf, reader, footer))
                meter.part(nth * n + one.row_group, len(leaves) * n)
    for at, chunk in enumerate(_fetched(source, footer, far)):
        verified.filters.append(_verify_filter(chunk.stored, chunk.leaf, chunk.reader, footer))
        meter.part(at, len(far))
    order = {leaf.name: at for at, leaf in enumerate(leaves)}
    verified.filters.sort(key=lambda one: (one.row_group, order[one.column]))
    return verified


class _Shared:
    """The filters of chunks that are decoded for their statistics anyway: one decoding serves both.

    chunks    that were decoded to their end
    verdicts  on their filters
    """

    def __init__(self, filters: StoredFilters, leaves: Sequence[Leaf]) -> None:
        self._filters, self._shown = filters, {leaf.index: leaf for leaf in leaves}
        self.chunks: set[ChunkKey] = set()
        self.verdicts: list[VerifiedFilter] = []

    def reader(self, source: OpenFile, leaf: Leaf) -> ColumnReader:
        """Decodes a column, and asks its filters meanwhile."""
        return _AskingReader(source, leaf, self)

    def judged(self, group: int, leaf: Leaf, footer: Footer) -> list[_Question]:
        """The questions to the filters of a chunk."""
        shown = self._shown[leaf.index]
        return [_Question(one, shown, leaf, footer) for one in self._filters.of(group, shown)]


class _AskingReader(ColumnReader):
    """See _Shared."""

    def __init__(self, source: OpenFile, leaf: Leaf, shared: _Shared) -> None:
        super().__init__(source, leaf)
        self._shared = shared

    def batches(self, row_group: int, dictionaries: bool = False) -> Iterator[pa.Array]:
        """As ColumnReader has it."""
        questions = self._shared.judged(row_group, self.leaf, self._source.footer())
        for batch in super().batches(row_group, dictionaries and not questions):
            for one in questions:
                one.ask(batch)
            yield batch
        self._shared.chunks.add((row_group, self.leaf.index))
        self._shared.verdicts += [one.verdict() for one in questions]


class _Chunk(NamedTuple):
    """A column chunk with a filter, of an object that is not in memory; `leaf` has the name that people know."""

    column: int
    leaf: Leaf
    stored: StoredFilter
    reader: ColumnReader


def _fetched(source: OpenFile, footer: Footer, chunks: list[_Chunk]) -> Iterator[_Chunk]:
    """Chunks row group by row group, as they lie in the file: with their filters in memory, some megabytes at a time.

    One that is larger is read ahead while it is decoded.
    """
    chunks.sort(key=lambda chunk: (chunk.stored.row_group, chunk.column))
    waiting: list[_Chunk] = []
    ranges: set[tuple[int, int]] = set()
    for chunk in chunks:
        start, stop = footer.column_chunks(chunk.reader.leaf.index).extents[chunk.stored.row_group]
        more = {one for one in ((start, stop - start), chunk.stored.extent) if one is not None and one[1] <= _AT_ONCE}
        if sum(length for _, length in ranges | more) > _AT_ONCE:
            source.prefetch(ranges)
            yield from waiting
            waiting, ranges = [], set()
        waiting.append(chunk)
        ranges |= more
    source.prefetch(ranges)
    yield from waiting
    source.prefetch([])


def _verify_filter(stored: StoredFilter, leaf: Leaf, reader: ColumnReader, footer: Footer) -> VerifiedFilter:
    """leaf  with the column's name as people know it, which a table has for its files."""
    question = _Question(stored, leaf, reader.leaf, footer)
    if question.is_open:
        try:
            for values in reader.batches(stored.row_group):
                question.ask(values)
        except DamagedFileError as error:
            if not is_beyond_pyarrow(error, leaf):
                raise
            return question.unknown(error.reason)
    return question.verdict()


class _Question:
    """One filter, queried for all values of its chunk."""

    def __init__(self, stored: StoredFilter, shown: Leaf, leaf: Leaf, footer: Footer) -> None:
        """shown: the column with the name that people know; leaf: as the file has it."""
        self._verdict = VerifiedFilter(stored.row_group, shown.name, "right", stored.spec)
        self._bloom: Filter | None = None
        try:
            bloom = stored.read()
        except UnknownFilterError as error:
            self._verdict.status, self._verdict.reason = "unknown", str(error)
            return
        except FilterFormatError as error:
            self._verdict.status, self._verdict.reason = "wrong", str(error)
            return
        self._verdict.spec = bloom.spec
        if stored.refusal is not None:
            if not bloom.bits_set and _holds_values(footer, stored.row_group, shown):
                self._verdict.status, self._verdict.reason = "wrong", "no bit is set, but values are stored"
            else:
                self._verdict.status, self._verdict.reason = "unknown", f"not used: {stored.refusal}"
            return
        self._bloom, self._absent = bloom, AbsentValues(leaf, bloom)
        self._scratch = np.empty(BATCH_ROWS, np.uint64)

    @property
    def is_open(self) -> bool:
        """Whether the values decide."""
        return self._bloom is not None

    def ask(self, values: pa.Array) -> None:
        """Ask for some of the chunk's values, NULLs among them."""
        if self._bloom is None:
            return
        hashes = hash_array(values, scratch=self._scratch)
        admitted = self._bloom.might_contain_hashed(values, hashes)
        self._verdict.values += len(hashes)
        self._verdict.missed += int(len(hashes) - np.count_nonzero(admitted))
        self._absent.drop(hashes, admitted)

    def verdict(self) -> VerifiedFilter:
        """The verdict, after the last of the values."""
        found = self._verdict
        if self._bloom is not None:
            found.absent, found.measured_fpp = self._absent.count, self._absent.fpp
            if found.missed:
                found.status = "wrong"
                found.reason = f"denies {found.missed} of {found.values} stored values"
        return found

    def unknown(self, reason: str) -> VerifiedFilter:
        """The verdict where the values cannot be decoded."""
        found = self._verdict
        found.status, found.reason, found.values, found.missed = "unknown", reason, 0, 0
        return found


def _holds_values(footer: Footer, group: int, leaf: Leaf) -> bool:
    values, nulls = counts_in(footer, group, leaf)
    return nulls is not None and values > nulls
