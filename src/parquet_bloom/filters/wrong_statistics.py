"""Statistics that footers and page indexes state, compared with the stored values.

    footer        min, max, counts, flags of exactness       <- all entries of the column chunk
    column index  bounds, null pages, null counts, order     <- the entries of each page, where rows have one entry
    offset index  places, sizes and first rows of pages      <- the page headers
    page headers  bounds and null counts, for a note         <- the entries of each page
    num_rows      of the file, and num_values of flat chunks <- the row groups

A bound that is merely loose is right, and so are bounds that leave NaN out; a note names the latter. Where nothing is
stated nothing is decoded.

Sources: parquet.thrift, Statistics and ColumnOrder; PageIndex.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate, pairwise
from operator import or_
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from parquet_bloom._thrift.parquet.ttypes import (
    BoundaryOrder,
    ColumnIndex,
    OffsetIndex,
    PageHeader,
    PageType,
    Statistics,
)
from parquet_bloom.errors import DamagedFileError, FooterError
from parquet_bloom.filters.decode import ColumnReader, is_beyond_pyarrow
from parquet_bloom.filters.inspect import MIXED_LOST, NAN_LOST
from parquet_bloom.filters.page_places import Page, data_pages
from parquet_bloom.filters.true_statistics import ChunkStatistics
from parquet_bloom.format import compact
from parquet_bloom.format.footer import MAGIC, ChunkKey, Footer, IndexKind
from parquet_bloom.format.repairs import statistics_writer
from parquet_bloom.format.schema import BOOLEAN, Leaf
from parquet_bloom.format.statistics import decode_bounds, is_right, is_signed_number
from parquet_bloom.source.results import Result
from parquet_bloom.storage.display import brief, quantity
from parquet_bloom.storage.open_file import OpenFile

_EVERY_PAGE = "of all pages"


@dataclass(frozen=True, slots=True, repr=False)
class WrongStatistic(Result):
    """One statistic that contradicts the stored values.

    row_group  None of the whole file
    column     empty of all columns
    statistic  the field, as parquet.thrift names it: "null_count", "max_value", "column_index.min_values"; of a table's
               log with "log." before it
    stated     its value; of a page index that of the first wrong page, and which page it is
    found      what the stored values give
    """

    row_group: int | None
    column: str
    statistic: str
    stated: str
    found: str

    @property
    def text(self) -> str:
        """All of it in words."""
        group = "" if self.row_group is None else f"row group {self.row_group}, "
        where = f"{group}column {self.column}: " if self.column else ""
        return f"{where}{self.statistic} is {self.stated}, the values give {self.found}"


@dataclass(slots=True, repr=False)
class FileStatistics(Result):
    """The verdicts on a file's statistics.

    chunks     how many column chunks state any, and were compared
    wrong      each statistic that contradicts the values
    notes      what costs rows in some engines, and is not for a footer to mend: wrong statistics in page headers; and
               what is right by the format: bounds beside a NaN, or in some row groups alone
    unchecked  what was not compared, by column, and why
    """

    chunks: int = 0
    wrong: list[WrongStatistic] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


class Compared(NamedTuple):
    """The verdicts, and what they were drawn from.

    truth      the true statistics of each chunk that was decoded
    unchecked  numbers of the columns whose statistics in the footer were not all compared
    """

    statistics: FileStatistics
    truth: dict[ChunkKey, ChunkStatistics]
    unchecked: set[int]


def compare_statistics(
    source: OpenFile,
    leaves: Sequence[Leaf],
    groups: Sequence[int],
    step: Callable[[int], object] = lambda _: None,
    also: Collection[int] = (),
    reader_of: Callable[[OpenFile, Leaf], ColumnReader] = ColumnReader,
) -> Compared:
    """Compare what a file states about some columns in some row groups with their values.

    leaves  with the names that people know
    step    is called with the number of chunks that are done
    also    numbers of columns that are decoded even if the file states nothing about them
    reader_of  makes the reader of a column, for who needs its values too
    Raises DamagedFileError where a chunk does not decode, LimitError.
    """
    footer = source.footer()
    found = Compared(FileStatistics(), {}, set())
    rows = sum(footer.rows)
    if (stated := footer.head.num_rows or 0) != rows:
        wrong = WrongStatistic(None, "", "num_rows", str(stated), str(rows))
        found.statistics.wrong.append(wrong)
    done = 0
    for leaf in leaves:
        beside_nan, unchecked, wrong_pages = [], [], 0
        chunks = [_Chunk(source, footer, group, leaf) for group in groups]
        reader = None
        if leaf.index in also or any(chunk.states_anything for chunk in chunks):
            reader = reader_of(source, footer.leaves[leaf.index])
        for group, chunk in zip(groups, chunks, strict=True):
            if reader is not None and (chunk.states_anything or leaf.index in also):
                try:
                    truth = chunk.compare(reader)
                except DamagedFileError as error:
                    if not is_beyond_pyarrow(error, leaf):
                        raise
                    chunk.unchecked.append(error.reason)
                    truth = None
                found.statistics.chunks += truth is not None
                if truth is not None:
                    found.truth[group, leaf.index] = truth
                    if truth.nans and not chunk.wrong and _states_bounds(footer, group, leaf.index):
                        beside_nan.append((group, truth.nans))
            found.statistics.wrong += chunk.wrong
            unchecked += [*chunk.unchecked, *chunk.partly]
            wrong_pages += chunk.wrong_pages
            if chunk.unchecked:
                found.unchecked.add(leaf.index)
            done += 1
            step(done)
        found.statistics.unchecked += [f"column {leaf.name}: {text}" for text in dict.fromkeys(unchecked)]
        if wrong_pages:
            where = f"column {leaf.name} has wrong statistics in the headers of {quantity(wrong_pages, 'pages')}"
            reason = "no footer mends them; few engines read them, but DuckDB 2.0 does: write the file anew"
            found.statistics.notes.append(f"{where}: {reason}")
        if beside_nan:
            nans = sum(count for _, count in beside_nan)
            where = f"column {leaf.name} has {nans:,} NaN in {quantity(len(beside_nan), 'row groups')} with min and max"
            found.statistics.notes.append(f"{where}: right by the format, but {NAN_LOST}")
        if bare := groups_without_bounds(footer, leaf):
            where = f"column {leaf.name} has no min and max in {quantity(bare, 'row groups')} of {footer.n_row_groups}"
            found.statistics.notes.append(f"{where}: right by the format, but of the others {MIXED_LOST}")
    found.statistics.wrong.sort(key=lambda one: -1 if one.row_group is None else one.row_group)
    return found


class Comparing(Protocol):
    """Compares what is stated of some columns of a file with their values, as compare_statistics."""

    def __call__(
        self,
        source: OpenFile,
        leaves: Sequence[Leaf],
        groups: Sequence[int],
        step: Callable[[int], object],
        also: Collection[int],
        reader_of: Callable[[OpenFile, Leaf], ColumnReader],
        /,
    ) -> Compared:
        """Arguments and errors as compare_statistics."""


def compare_again(source: OpenFile, known: Compared) -> list[WrongStatistic]:
    """The wrong statistics in the footer of another version of the file, whose values are known."""
    footer, wrong = source.footer(), []
    for (group, column), truth in known.truth.items():
        chunk = _Chunk(source, footer, group, footer.leaves[column])
        chunk.compare_footer(truth)
        wrong += chunk.wrong
    return wrong


def has_bounds(statistics: Statistics | None) -> bool:
    """Whether a chunk states any bound."""
    fields = () if statistics is None else (statistics.min_value, statistics.max_value, statistics.min, statistics.max)
    return any(bound is not None for bound in fields)


def groups_without_bounds(footer: Footer, leaf: Leaf) -> int:
    """How many row groups with values lack a bound of a column that others state; 0 of lists, which no engine skips."""
    bounds, chunks = footer.bounds_stated(leaf.index), footer.column_chunks(leaf.index)
    every = reduce(or_, bounds, 0)
    if leaf.repeated:
        return 0
    parts = zip(bounds, chunks.num_values, chunks.null_counts, strict=True)
    return sum(one != every and (values or 0) > (nulls or 0) for one, values, nulls in parts)


def _states_bounds(footer: Footer, row_group: int, column: int) -> bool:
    """Whether a chunk states any bound, of its pages too: engines miss a NaN by either."""
    has_index = (row_group, column) in footer.index_ranges(IndexKind.COLUMN)
    return has_index or has_bounds(footer.meta(row_group, column).statistics)


class ComparingReader(ColumnReader):
    """Decodes a column for another purpose, and compares meanwhile what the footer states.

    Of a writer that is known to be right null_count alone is compared: bounds would be a tenth of what an `add` takes,
    and need the whole footer as objects.

    wrong  by row group, of the chunks that were decoded to their end
    nans   the same: how many NaN lie beside bounds
    truth  the same, of the row groups in `first_rows`: the true statistics of their pages, too
    """

    def __init__(self, source: OpenFile, leaf: Leaf, first_rows: Mapping[int, Sequence[int]] | None = None) -> None:
        """first_rows: by row group the first row of each page of a column that is not repeated."""
        super().__init__(source, leaf)
        self._first_rows = first_rows or {}
        self.truth: dict[int, ChunkStatistics] = {}
        self.wrong: dict[int, list[WrongStatistic]] = {}
        self.nans: dict[int, int] = {}
        self._is_right = is_right(statistics_writer(source.footer(), leaf))

    def batches(self, row_group: int, dictionaries: bool = False) -> Iterator[pa.Array]:
        """As ColumnReader has it."""
        footer = self._source.footer()
        beside_nan = self.leaf.float_bits and _states_bounds(footer, row_group, self.leaf.index)
        first_rows = self._first_rows.get(row_group)
        bounds = bool(beside_nan) or not self._is_right or first_rows is not None
        truth = ChunkStatistics(self.leaf, first_rows, bounds=bounds)
        for batch in super().batches(row_group, dictionaries):
            truth.feed(batch)
            yield batch
        if first_rows is not None:
            self.truth[row_group] = truth
        if beside_nan and truth.nans:
            self.nans[row_group] = truth.nans
        if not self._is_right:
            chunk = _Chunk(self._source, footer, row_group, self.leaf)
            chunk.compare_footer(truth)
            self.wrong[row_group] = chunk.wrong
            return
        chunks = footer.column_chunks(self.leaf.index)
        stated = chunks.null_counts[row_group]
        if (right := right_nulls(self.leaf, chunks.num_values[row_group], truth, stated)) is not None:
            one = WrongStatistic(row_group, self.leaf.name, "null_count", str(stated), right)
            self.wrong[row_group] = [one]


def right_nulls(leaf: Leaf, num_values: int, truth: ChunkStatistics, stated: int | None) -> str | None:
    """The null_count that the values give, in words, where a chunk states another one."""
    # In a repeated column an empty list is no value either. Some programs count it as a NULL, others do not.
    most = num_values - truth.values
    least = truth.nulls if leaf.repeated else most
    if stated is None or least <= stated <= most:
        return None
    return str(most) if least == most else f"{least} to {most}"


class _Chunk:
    """One column chunk and what is wrong about it.

    wrong      see FileStatistics
    unchecked  what of the footer was not compared, and why
    partly     what of a page index was not
    wrong_pages  how many pages have wrong statistics in their headers
    """

    def __init__(self, source: OpenFile, footer: Footer, group: int, leaf: Leaf) -> None:
        self.source, self.footer, self.group, self.leaf = source, footer, group, leaf
        self.chunk, self.meta = footer.chunk(group, leaf.index), footer.meta(group, leaf.index)
        self.stated: Statistics = self.meta.statistics or Statistics()
        self.wrong: list[WrongStatistic] = []
        self.unchecked: list[str] = []
        self.partly: list[str] = []
        self.wrong_pages = 0

    @property
    def _where(self) -> str:
        return f"row group {self.group}, column {self.leaf.name}"

    @property
    def _has_indexes(self) -> bool:
        return bool(self.chunk.column_index_offset or self.chunk.offset_index_offset)

    @property
    def states_anything(self) -> bool:
        """Whether there is anything to compare."""
        return self.meta.statistics is not None or self._has_indexes

    def _add(self, statistic: str, stated: str, found: str) -> None:
        self.wrong.append(WrongStatistic(self.group, self.leaf.name, statistic, stated, found))

    def compare(self, reader: ColumnReader) -> ChunkStatistics | None:
        """Decode the chunk and compare; the true statistics, None where it cannot be decoded as it is."""
        rows = self.footer.rows[self.group]
        if not self.leaf.repeated and self.meta.num_values != rows:
            self._add("num_values", str(self.meta.num_values), f"{rows} rows")
            return None
        pages = self._pages(reader)
        firsts = None
        if pages and not self.leaf.repeated:
            firsts = [0, *accumulate(page.num_values for page in pages[:-1])]
        truth = ChunkStatistics(
            reader.leaf, firsts, distinct=self.stated.distinct_count is not None and self._can_be_counted
        )
        for batch in reader.batches(self.group, dictionaries=True):
            truth.feed(batch)
        self.compare_footer(truth)
        if pages is not None:
            sound = self._compare_offset_index(pages, firsts)
            self._compare_column_index(truth, len(pages), sound)
            self._compare_page_headers(truth, pages)
        return truth

    # --- the footer -------------------------------------------------------------------------------

    def compare_footer(self, truth: ChunkStatistics) -> None:
        """Compare the statistics in the footer."""
        self._compare_counts(truth)
        self._compare_bounds(truth)

    @property
    def _can_be_counted(self) -> bool:
        # Whether zeros of both signs, and NaN of several payloads, are distinct is a question of taste.
        return not self.leaf.float_bits and self.leaf.physical != BOOLEAN

    def _compare_counts(self, truth: ChunkStatistics) -> None:
        nulls = self.stated.null_count
        if (right := right_nulls(self.leaf, self.meta.num_values, truth, nulls)) is not None:
            self._add("null_count", str(nulls), right)
        nans = self.stated.nan_count
        if nans is not None and self.leaf.float_bits and truth.domain is not None and nans != truth.nans:
            self._add("nan_count", str(nans), str(truth.nans))
        distinct = self.stated.distinct_count
        if distinct is not None and truth.distinct is not None and distinct != truth.distinct:
            self._add("distinct_count", str(distinct), str(truth.distinct))

    def _compare_bounds(self, truth: ChunkStatistics) -> None:
        domain = truth.domain
        if not has_bounds(self.stated) or domain is None or (truth.low is None and truth.has_bounds):
            return
        if not truth.has_bounds:
            self.unchecked.append(f"bounds, as some value there is no {self.leaf.type_name}")
            return
        signed = is_signed_number(self.leaf)
        # Without column_orders the format has no order for the new fields. Programs that read them all the same take
        # that of the type. The old fields of what is no signed number have none.
        names = ["min_value", "max_value", *(["min", "max"] if signed else [])]
        raw = [getattr(self.stated, name) for name in names]
        for name, data, bound in zip(names, raw, decode_bounds(raw, self.leaf, domain), strict=True):
            true = truth.low if name.startswith("min") else truth.high
            if data is None or bound != bound:  # readers pass over NaN
                continue
            if bound is None:
                self._add(name, f"{quantity(len(data), 'bytes')} ({data[:16].hex()})", shown(true))
            elif bound > true if name.startswith("min") else bound < true:
                self._add(name, shown(bound), shown(true))
            elif bound != true and getattr(self.stated, f"is_{name}_exact", None):
                self._add(f"is_{name}_exact", f"true of {shown(bound)}", shown(true))

    # --- page headers -----------------------------------------------------------------------------

    def _stated_in(self, page: Page) -> Statistics:
        """The statistics in the header of a data page."""
        if not page.head.has_statistics:
            return Statistics()
        header, _ = compact.decode(PageHeader, self.source.read(page.at, page.head.length))
        data = header.data_page_header if page.head.kind == PageType.DATA_PAGE else header.data_page_header_v2
        found: Statistics = data.statistics
        return found

    def _compare_page_headers(self, truth: ChunkStatistics, pages: Sequence[Page]) -> None:
        """Count the pages with wrong statistics in their headers, which no footer mends."""
        if self.source.is_remote or not truth.pages or not any(page.head.has_statistics for page in pages):
            return
        wrong: set[int] = set()
        stated = [self._stated_in(page) for page in pages]
        for at, (one, real) in enumerate(zip(stated, truth.pages, strict=True)):
            if one.null_count is not None and one.null_count != real.nulls:
                wrong.add(at)
        if truth.domain is not None and truth.has_bounds:
            for name, is_low in (("min_value", True), ("max_value", False)):
                bounds = decode_bounds([getattr(one, name) for one in stated], self.leaf, truth.domain)
                for at, (bound, real) in enumerate(zip(bounds, truth.pages, strict=False)):
                    true = real.low if is_low else real.high
                    if bound is not None and true is not None and (bound > true if is_low else bound < true):
                        wrong.add(at)
        self.wrong_pages = len(wrong)

    # --- page indexes -----------------------------------------------------------------------------

    def _pages(self, reader: ColumnReader) -> list[Page] | None:
        """The data pages; None where nothing is stated of them, or their headers are not read."""
        sizes = reader.sizes(self.group) if self._has_indexes or not self.source.is_remote else None
        if sizes is None:
            if self._has_indexes:
                self.partly.append("page indexes, as each page header would be a request")
            return None
        stated = self._has_indexes or any(page.head.has_statistics for page in sizes.data)
        return sizes.data if stated else None

    def _decoded(self, name: str, kind: type[Any], offset: int | None, length: int | None) -> Any:
        """A page index; None where there is none, or it is wrong as a whole."""
        if not offset:
            return None
        end = self.footer.start
        if not length or length < 0 or not len(MAGIC) <= offset <= end - length:
            self._add(name, f"{length or 0:,} bytes at {offset:,}", f"{end:,} bytes before the footer")
            return None
        try:
            return compact.decode(kind, self.source.read(offset, length))[0]
        except FooterError:
            self._add(name, f"{length:,} bytes at {offset:,}", f"no {kind.__name__} there")
            return None

    def _compare_offset_index(self, pages: Sequence[Page], firsts: Sequence[int] | None) -> bool:
        """Compare places of pages; gives whether there is an offset index that is right."""
        index = self._decoded(
            "offset_index", OffsetIndex, self.chunk.offset_index_offset, self.chunk.offset_index_length
        )
        if index is None:
            return False
        locations = index.page_locations or []
        if len(locations) != len(pages):
            self._add("offset_index", quantity(len(locations), "pages"), quantity(len(pages), "pages"))
            return False
        before = len(self.wrong)
        self._compare_pages("offset_index.offset", [one.offset for one in locations], [page.at for page in pages])
        sizes = [one.compressed_page_size for one in locations]
        self._compare_pages("offset_index.compressed_page_size", sizes, [page.end - page.at for page in pages])
        first_rows = firsts
        if first_rows is None and not self.source.is_remote:
            walked = data_pages(self.source, self.group, self.leaf, pages)
            if isinstance(walked, str):
                self.partly.append(f"rows in the offset index of row group {self.group}: {walked}")
            else:
                first_rows = walked[:, 2].tolist()
        if first_rows is not None:
            rows = [one.first_row_index for one in locations]
            self._compare_pages("offset_index.first_row_index", rows, first_rows)
        return len(self.wrong) == before

    def _compare_pages(self, name: str, stated: Sequence[Any] | None, found: Sequence[Any]) -> None:
        differ = [at for at, (one, true) in enumerate(zip(stated or (), found, strict=True)) if one != true]
        self._add_pages(name, differ, stated or (), found)

    def _add_pages(self, name: str, pages: Sequence[int], stated: Sequence[Any], found: Sequence[Any]) -> None:
        if pages:
            more = f", and {quantity(len(pages) - 1, 'other pages')}" if len(pages) > 1 else ""
            self._add(name, f"{shown(stated[pages[0]])} of page {pages[0]}", f"{shown(found[pages[0]])}{more}")

    def _compare_column_index(self, truth: ChunkStatistics, pages: int, has_offsets: bool) -> None:
        index = self._decoded(
            "column_index", ColumnIndex, self.chunk.column_index_offset, self.chunk.column_index_length
        )
        if index is None:
            return
        lists = [index.null_pages, index.min_values, index.max_values]
        lists += [index.null_counts] if index.null_counts is not None else []
        for one in lists:
            if len(one or ()) != pages:
                self._add("column_index", quantity(len(one or ()), "pages"), quantity(pages, "pages"))
                return
        if truth.pages:
            self._compare_pages("column_index.null_pages", index.null_pages, [not one.values for one in truth.pages])
            if index.null_counts is not None:
                self._compare_pages("column_index.null_counts", index.null_counts, [one.nulls for one in truth.pages])
        elif has_offsets or self.leaf.repeated:
            self.partly.append("the column index of a repeated column, but for its least and greatest")
        if truth.domain is None or not truth.has_bounds:
            return
        full = [at for at, is_null in enumerate(index.null_pages) if not is_null]
        lows = decode_bounds([index.min_values[at] for at in full], self.leaf, truth.domain)
        highs = decode_bounds([index.max_values[at] for at in full], self.leaf, truth.domain)
        self._compare_page_bounds(truth, full, lows, highs)
        self._compare_boundary_order(index.boundary_order, lows, highs)

    def _compare_page_bounds(
        self, truth: ChunkStatistics, full: Sequence[int], lows: Sequence[Any], highs: Sequence[Any]
    ) -> None:
        if not truth.pages:  # of all pages together
            known = [(low, high) for low, high in zip(lows, highs, strict=True) if low is not None and high is not None]
            if truth.low is None or len(known) < len(full):
                return
            if not known:
                self._add("column_index.null_pages", f"True {_EVERY_PAGE}", f"{truth.values} that are not NULL")
                return
            low, high = min(one for one, _ in known), max(one for _, one in known)
            if low > truth.low:
                self._add("column_index.min_values", f"{shown(low)} {_EVERY_PAGE}", shown(truth.low))
            if high < truth.high:
                self._add("column_index.max_values", f"{shown(high)} {_EVERY_PAGE}", shown(truth.high))
            return
        for name, stated, is_low in (("min_values", lows, True), ("max_values", highs, False)):
            true = [truth.pages[at].low if is_low else truth.pages[at].high for at in full]
            wrong = [
                at
                for at, (bound, real) in enumerate(zip(stated, true, strict=True))
                if real is not None and (bound is None or (bound > real if is_low else bound < real))
            ]
            by_page = dict(zip(full, stated, strict=True)), dict(zip(full, true, strict=True))
            self._add_pages(f"column_index.{name}", [full[at] for at in wrong], *by_page)  # type: ignore[arg-type]

    def _compare_boundary_order(self, order: int, lows: Sequence[Any], highs: Sequence[Any]) -> None:
        """Readers search by halves in pages that are in order."""
        if order not in (BoundaryOrder.ASCENDING, BoundaryOrder.DESCENDING) or None in lows or None in highs:
            return
        up = order == BoundaryOrder.ASCENDING
        for bounds in (lows, highs):
            for before, after in pairwise(bounds):
                if before > after if up else before < after:
                    name = BoundaryOrder._VALUES_TO_NAMES[order]
                    self._add("column_index.boundary_order", name, f"{shown(before)} before {shown(after)}")
                    return


def shown(value: Any) -> str:
    """A value in a line."""
    if isinstance(value, bytes):
        try:
            return brief(value.decode())
        except UnicodeDecodeError:
            return brief(value)
    return str(value) if type(value) is int else repr(value) if isinstance(value, float) else brief(value)
