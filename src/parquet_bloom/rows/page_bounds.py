"""Rows of a row group that can match by the bounds of its pages: column indexes as evidence at a term.

    ts BETWEEN 250 AND 300        pages of ts  | 0 .. 99 | 100 .. 199 | 200 .. 299 | 300 .. 399 |
                                  rows         | 0       | 20,000     | 40,000     | 60,000     |     40,000 .. 79,999

What the bounds of a row group say of all its rows, those of a page say of the page's rows, by the same rules
(predicates.outcomes), and of the same writers. Pages of different columns begin at different rows: between two edges of
any of them each term has one set of outcomes, and the predicate has one by them all.

Sources: parquet.thrift, ColumnIndex; PageIndex.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import ColumnIndex
from parquet_bloom.errors import FooterError
from parquet_bloom.filters.page_places import index_range
from parquet_bloom.format import compact
from parquet_bloom.format.footer import IndexKind
from parquet_bloom.format.outline import NONE, Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import ColumnStatistics, page_statistics, statistics_of
from parquet_bloom.predicates.bind import Bound, Members, Opaque, Term, terms_of
from parquet_bloom.predicates.outcomes import ANY, TRUE, Masks, combine, term_masks
from parquet_bloom.rows.pages import Ahead, confirmed, places_of, read_places
from parquet_bloom.rows.selection import RowSelection
from parquet_bloom.rows.unchanged import opened_as_searched
from parquet_bloom.search.results import FileResult
from parquet_bloom.storage.open_file import OpenFile, Range


def rows_by_pages(
    file: FileResult, row_groups: Sequence[int], nan: str, opened: Mapping[int, OpenFile]
) -> dict[int, RowSelection]:
    """The only rows of row groups that can match, of those of which the bounds of pages exclude half or more.

    nan     as predicates.bind has it
    opened  files that are open, by id(DataFile)
    Raises FileChangedError, StorageError.
    """
    outline, bound = file.outline, file.bound
    if outline is None or bound is None:
        return {}
    chunks: dict[tuple[int, Leaf], Range] = {}
    for term in terms_of(bound):
        if (leaf := _indexed_leaf(term, outline)) is not None:
            masks = term_masks(term, statistics_of(outline, leaf), nan)
            ranges = {
                (group, leaf): index_range(outline, group, leaf.index, IndexKind.COLUMN)
                for group in row_groups
                if masks[group] != TRUE
            }
            chunks |= {chunk: found for chunk, found in ranges.items() if found is not None}
    if not chunks:
        return {}
    leaves = list(dict.fromkeys(leaf for _, leaf in chunks))
    groups = list(dict.fromkeys(group for group, _ in chunks))
    found = {}
    with opened_as_searched(file, opened) as source:
        ahead = Ahead()
        if source.is_remote:
            ahead.read(file, opened, groups, leaves)
        stored = dict(zip(chunks, source.read_ranges(list(chunks.values())), strict=True))
        ahead.wait()
        read_places(source, outline, groups, leaves)
        for group in groups:
            indexes = {leaf: stored[group, leaf] for leaf in leaves if (group, leaf) in stored}
            rows = _selection(outline, bound, group, indexes, nan)
            # A wrong offset index would exclude other rows than the pages have.
            if 2 * rows.count <= outline.rows[group] and all(
                confirmed(source, outline, group, leaf, rows) for leaf in indexes
            ):
                found[group] = rows
    return found


def _indexed_leaf(term: Term, outline: Outline) -> Leaf | None:
    """The column of a term, if it may have bounds of pages that are worth to be read."""
    if isinstance(term, Opaque) or term.leaf.repeated or not 0 <= term.leaf.index < len(outline.leaves):
        return None
    leaf = term.leaf
    if outline.leaves[leaf.index] != leaf or (outline.slots[Slot.COLUMN_INDEX, :, leaf.index] == NONE).all():
        return None
    # Of keys with filters every page has some that are less and some that are greater: not worth to be read.
    has_filter = (outline.slots[Slot.FILTER_OFFSET, :, leaf.index] != NONE).any()
    return None if has_filter and isinstance(term, Members) else leaf


def _selection(outline: Outline, bound: Bound, group: int, indexes: Mapping[Leaf, bytes], nan: str) -> RowSelection:
    pages: dict[Leaf, tuple[NDArray[np.int64], ColumnStatistics]] = {}
    for leaf, data in indexes.items():
        places = places_of(outline, group, leaf)
        with suppress(FooterError):
            index, _ = compact.decode(ColumnIndex, data)
            if places is not None and outline.slots[Slot.TYPE, group, leaf.index] == leaf.physical:
                statistics = page_statistics(outline, leaf, index, places.rows[:, 1] - places.rows[:, 0])
                if statistics is not None:
                    pages[leaf] = places.rows[:, 0], statistics
    starts = np.unique(np.concatenate([np.zeros(1, np.int64), *(firsts for firsts, _ in pages.values())]))
    masks: list[Masks] = []
    for term in terms_of(bound):
        if not isinstance(term, Opaque) and term.leaf in pages:
            firsts, statistics = pages[term.leaf]
            masks.append(term_masks(term, statistics, nan)[np.searchsorted(firsts, starts, "right") - 1])
        elif not isinstance(term, Opaque) and outline.leaves[term.leaf.index : term.leaf.index + 1] == (term.leaf,):
            one = statistics_of(outline, term.leaf).taken(np.array([group]))
            masks.append(np.repeat(term_masks(term, one, nan), len(starts)))
        else:
            masks.append(np.full(len(starts), ANY, np.uint8))
    may = (combine(bound, masks, len(starts)) & TRUE) != 0
    return RowSelection.of_stretches(starts[may], np.append(starts[1:], outline.rows[group])[may])
