"""Page indexes for a file that exists: the plan by its page headers, and the bytes once columns were decoded.

    [ body ][ filters ][ column indexes ][ offset indexes ][ new footer ]      right before it, wherever filters go

All offset indexes lie side by side, as readers read all of a kind as one range. A file gets one for each column chunk,
or none: where one chunk has no pages, or their headers do not say where its rows lie, the report has the reason.

A column index needs the values. Columns that are named get one, and by default those which are decoded for filters,
where it excludes half of the pages or more. None of a repeated column, whose pages' NULLs are counted in several ways;
of a type without an order; of a file without column_orders; and of a chunk with a NaN, which engines place differently
in the order: rows would be lost.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import OffsetIndex
from parquet_bloom.edit.finish import wrong
from parquet_bloom.errors import FooterError
from parquet_bloom.filters.decode import ColumnReader
from parquet_bloom.filters.page_places import data_pages
from parquet_bloom.filters.true_statistics import ChunkStatistics
from parquet_bloom.format import compact
from parquet_bloom.format.edits import Moves
from parquet_bloom.format.footer import ChunkKey, IndexKind
from parquet_bloom.format.outline import NONE, Outline
from parquet_bloom.format.schema import Leaf, choose_leaves
from parquet_bloom.format.statistics import domain_of, has_order
from parquet_bloom.format.walked import INDEX_SLOTS
from parquet_bloom.storage.open_file import OpenFile

_OFFSET_BYTES, _COLUMN_BYTES = 24, 144  # of a page in an index, at most about
# An index without a page is no cure: 43 to 55 panic over it.
_EMPTY = "so no page to name, and DataFusion before 51 reads no file in which some chunks alone have an index"


@dataclass(slots=True)
class IndexPlan:
    """The page indexes that a file will get.

    pages    of each chunk without an offset index, and of each that may get a column index, see data_pages
    offsets  the chunks that get an offset index
    bounds   those that may get a column index
    named    columns that get a column index wherever they can, by their numbers
    notes    why there are none, or no column index of a column that was named
    """

    pages: dict[ChunkKey, NDArray[np.int64]] = field(default_factory=dict)
    offsets: list[ChunkKey] = field(default_factory=list)
    bounds: list[ChunkKey] = field(default_factory=list)
    named: frozenset[int] = frozenset()
    notes: list[str] = field(default_factory=list)

    @property
    def most_bytes(self) -> int:
        """Bytes that the indexes take, at most about."""
        return sum(_OFFSET_BYTES * len(self.pages[key]) for key in self.offsets) + sum(
            _COLUMN_BYTES * len(self.pages[key]) for key in self.bounds
        )

    def first_rows(self, column: int) -> dict[int, list[int]]:
        """By row group the first row of each page of a column that may get a column index."""
        return {group: self.pages[group, of][:, 2].tolist() for group, of in self.bounds if of == column}


def plan_indexes(source: OpenFile, page_bounds: Sequence[str], decoded: Collection[ChunkKey]) -> IndexPlan:
    """Plan the page indexes of a file by its page headers.

    page_bounds  columns that get a column index, names or patterns
    decoded      chunks that are decoded for filters
    Raises UnknownColumnError, StorageError.
    """
    footer, outline = source.footer(), source.outline()
    named = choose_leaves(footer.leaves, page_bounds)
    plan = IndexPlan(named=frozenset(leaf.index for leaf in named))
    refusals = {leaf: _refusal(outline, leaf) for leaf in footer.leaves}
    plan.notes += [f"no column index of {leaf.name}: {refusals[leaf]}" for leaf in named if refusals[leaf]]
    there = {kind: footer.index_ranges(kind) for kind in IndexKind}
    for leaf in footer.leaves:
        values = footer.column_chunks(leaf.index).num_values
        for group, rows in enumerate(footer.rows):
            key = (group, leaf.index)
            lacks = key not in there[IndexKind.OFFSET]
            may = key not in there[IndexKind.COLUMN] and not refusals[leaf] and (leaf in named or key in decoded)
            if not lacks and not may:
                continue
            if not rows and not values[group]:
                return IndexPlan(notes=[*plan.notes, f"no page index: row group {group} has no rows, {_EMPTY}"])
            pages = _names_another(outline, key, lacks, may) or data_pages(source, group, leaf)
            if isinstance(pages, str):
                reason = f"no page index: row group {group}, column {leaf.name}: {pages}"
                return IndexPlan(notes=[*plan.notes, reason])
            may = may and (lacks or _is_right(source, *there[IndexKind.OFFSET][key], pages))
            if lacks:
                plan.offsets.append(key)
            if may:
                plan.bounds.append(key)
            if lacks or may:
                plan.pages[key] = pages
    plan.offsets.sort()
    plan.bounds.sort()
    return plan


def _names_another(outline: Outline, key: ChunkKey, lacks: bool, may: bool) -> str | None:
    """Why a chunk can have no new index: its footer has some of the fields, and they point at none."""
    for kind in [*([IndexKind.OFFSET] if lacks else []), *([IndexKind.COLUMN] if may else [])]:
        for slot, part in zip(INDEX_SLOTS[kind], ("offset", "length"), strict=True):
            if (value := int(outline.slots[slot, *key])) != NONE:
                return f"the footer names {kind}_{part} {value}, and no index is there"
    return None


def _refusal(outline: Outline, leaf: Leaf) -> str | None:
    """Why no chunk of a column can have a column index."""
    if leaf.repeated:
        return "a repeated column"
    if domain_of(leaf) is None:
        return f"{leaf.type_name} has no order"
    return None if has_order(outline, leaf) else "the footer has no column_orders"


def _is_right(source: OpenFile, at: int, length: int, pages: NDArray[np.int64]) -> bool:
    """Whether an offset index that is there has these pages."""
    try:
        found, _ = compact.decode(OffsetIndex, source.read(at, length))
    except FooterError:
        return False
    places = [(one.offset, one.compressed_page_size, one.first_row_index) for one in found.page_locations or ()]
    return places == [tuple(page) for page in pages.tolist()]


# --- bytes ----------------------------------------------------------------------------------------


@dataclass(slots=True)
class NewIndexes:
    """Page indexes as they lie in the new file.

    start   where they begin in the new file
    data    all of them, one behind the other
    ranges  offset and bytes of each in the new file
    """

    start: int = 0
    data: bytes = b""
    ranges: dict[IndexKind, dict[ChunkKey, tuple[int, int]]] = field(default_factory=dict)

    @property
    def chunks(self) -> dict[IndexKind, list[ChunkKey]]:
        """The chunks that have a new one, by kind."""
        return {kind: [*ranges] for kind, ranges in self.ranges.items()}

    def count(self, kind: IndexKind) -> int:
        """How many there are of a kind."""
        return len(self.ranges.get(kind, ()))


def build_indexes(
    plan: IndexPlan,
    at: int,
    moves: Moves,
    leaves: Sequence[Leaf],
    truths: Mapping[ChunkKey, ChunkStatistics | None],
) -> NewIndexes:
    """Build the indexes of a plan.

    at      where they begin in the new file
    moves   of the pages
    truths  the true statistics of each chunk in plan.bounds and its pages; None where it was not decoded
    """
    if not plan.pages:
        return NewIndexes()
    from parquet_bloom.format.page_indexes import encode_offset_index  # loaded for who wants page indexes

    made: dict[IndexKind, dict[ChunkKey, bytes]] = {IndexKind.COLUMN: {}, IndexKind.OFFSET: {}}
    for key in plan.bounds:
        truth = truths[key]
        data = None if truth is None else column_index_of(leaves[key[1]], truth, is_named=key[1] in plan.named)
        if data is not None:
            made[IndexKind.COLUMN][key] = data
    for key in plan.offsets:
        pages = plan.pages[key]
        if moves:
            pages = pages.copy()
            pages[:, 0] = [moves(offset) for offset in pages[:, 0].tolist()]
        made[IndexKind.OFFSET][key] = encode_offset_index(pages)
    found, parts = NewIndexes(at), []
    for kind, indexes in made.items():
        ranges = found.ranges[kind] = {}
        for key, data in indexes.items():
            ranges[key] = at, len(data)
            at += len(data)
            parts.append(data)
    found.data = b"".join(parts)
    return found


def check_indexes(source: OpenFile, new: OpenFile, made: NewIndexes) -> None:
    """The new indexes lie where the new footer says, and are as they were built. Raises LayoutError."""
    footer = new.footer()
    for kind, ranges in made.ranges.items():
        there = footer.index_ranges(kind)
        if any(there.get(key) != place for key, place in ranges.items()):
            raise wrong(source, f"the footer names another {kind}")
    if made.data and new.read(made.start, len(made.data)) != made.data:
        raise wrong(source, "page indexes are not as they were built")


def column_index_of(leaf: Leaf, truth: ChunkStatistics, is_named: bool) -> bytes | None:
    """The column index of a chunk; None where it can have none, or, of a column that is not named, gains nothing."""
    from parquet_bloom.format.page_indexes import PageValues, encode_column_index

    if truth.nans or truth.domain is None or not truth.has_bounds:
        return None
    if not is_named and not _excludes(truth):
        return None
    return encode_column_index(leaf, [PageValues(one.values, one.nulls, one.low, one.high) for one in truth.pages])


def _excludes(truth: ChunkStatistics) -> bool:
    """Whether bounds exclude at least half of the pages, on the average over the least and greatest value of each."""
    full = [page for page in truth.pages if page.values]
    lows, highs = sorted(page.low for page in full), sorted(page.high for page in full)
    met = sum(bisect_right(lows, edge) - bisect_left(highs, edge) for edges in (lows, highs) for edge in edges)
    # Each edge is met by its own page, and pages of NULLs alone are excluded from all.
    return len(truth.pages) > 1 and met <= len(full) * len(truth.pages)


def read_truth(reader: ColumnReader, row_group: int, first_rows: Sequence[int]) -> ChunkStatistics:
    """The true statistics of a chunk and its pages, decoded for this alone. Raises DamagedFileError, LimitError."""
    truth = ChunkStatistics(reader.leaf, first_rows)
    for batch in reader.batches(row_group):
        truth.feed(batch)
    return truth
