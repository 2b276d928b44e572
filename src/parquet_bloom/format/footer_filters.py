"""Filters that lie in the footer itself: which chunks have one, whether it may be believed, how it comes and leaves.

One form does, that of the 2015 draft. All who work on files ask here, and none of them names that form: provenance,
the asking of filters (filters.stored), and the edits of footers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import ColumnMetaData, KeyValue
from parquet_bloom.errors import FilterFormatError, FooterError, UnknownFilterError
from parquet_bloom.format import compact
from parquet_bloom.format.draft_2015 import KEY, KEYS, FooterFilter, KProbeFilter, filter_in_pairs
from parquet_bloom.format.edits import PairChanges
from parquet_bloom.format.footer import ChunkKey, Footer, derived
from parquet_bloom.format.outline import NONE, Outline, Slot
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.statistics import counts_of, denied_bound, empty_filter_problem

__all__ = [
    "FooterFilter",
    "believed",
    "changes_of",
    "filters_in_pairs",
    "filters_of_column",
    "footer_filters",
    "length_of",
]

Pairs = Sequence[tuple[str, str]]  # key-values of a column chunk
_LEAVING: PairChanges = tuple((key, None) for key in KEYS)


# --- of a footer that is decoded ------------------------------------------------------------------


@derived
def filters_in_pairs(footer: Footer) -> dict[ChunkKey, FooterFilter]:
    """Every filter in a footer's column metadata; these are what provenance speaks of."""
    stored = (((i, j), _in_list(pairs)) for i, j, pairs in footer.chunk_key_values())
    return {key: one for key, one in stored if one is not None}


def _in_list(pairs: Iterable[KeyValue]) -> FooterFilter | None:
    return filter_in_pairs((pair.key, pair.value) for pair in pairs)


@derived
def footer_filters(footer: Footer) -> dict[ChunkKey, FooterFilter]:
    """Every filter that a footer holds itself, those of the draft's own place too."""
    in_statistics = {key: FooterFilter("Statistics", data=data) for key, data in footer.draft_filters.items()}
    return in_statistics | filters_in_pairs(footer)


# --- of an outline, which has no object for each chunk --------------------------------------------


@derived
def filters_of_column(outline: Outline, column: int) -> dict[int, FooterFilter]:
    """The filters of one column that the footer holds itself, by row group; nearly always none."""
    return dict(_spans(outline, column))


def _spans(outline: Outline, column: int) -> Iterable[tuple[int, FooterFilter]]:
    slots = outline.slots[:, :, column]
    filled = (slots[Slot.KEY_VALUES] != NONE) | (slots[Slot.DRAFT_FILTER] != NONE)
    for group in np.flatnonzero(filled).tolist():
        stored = _in_span(_span(outline, slots[:, group], Slot.KEY_VALUES))
        draft = _span(outline, slots[:, group], Slot.DRAFT_FILTER)
        if stored is None and draft:
            stored = FooterFilter("Statistics", data=draft)
        if stored is not None:
            yield group, stored


def _span(outline: Outline, slots: NDArray[np.int64], slot: Slot) -> bytes:
    at, length = int(slots[slot]), int(slots[slot + 1])
    return outline.data[at : at + length] if at != NONE else b""


def _in_span(pairs: bytes) -> FooterFilter | None:
    if KEY.encode() not in pairs:
        return None
    try:
        found, _ = compact.decode(ColumnMetaData, b"\x89" + pairs + b"\0")  # field 8, a list
    except FooterError:
        return None
    return _in_list(found.key_value_metadata or ())


@derived
def _decoded(outline: Outline, leaf: Leaf, group: int) -> KProbeFilter:
    return filters_of_column(outline, leaf.index)[group].decode(leaf)


def believed(outline: Outline, leaf: Leaf, group: int) -> KProbeFilter:
    """The filter of a chunk that is among filters_of_column, decoded once.

    Raises FilterFormatError and UnknownFilterError where it is no evidence.
    """
    bloom = _decoded(outline, leaf, group)
    if not bloom.longs.any() and (found := empty_filter_problem(counts_of(outline, group, leaf.index))) is not None:
        raise (FilterFormatError if found[1] else UnknownFilterError)(found[0])
    if (denied := denied_bound(bloom.might_contain, outline, leaf, group)) is not None:
        raise FilterFormatError(denied)
    return bloom


# --- in an edit of the footer ---------------------------------------------------------------------


def length_of(pairs: Pairs) -> int:
    """The length of a new filter, as FooterFilter.length of the footer that has these key-values."""
    stored = filter_in_pairs(pairs)
    return stored.length if stored is not None else 0


def changes_of(
    footer: Footer, chunks: Iterable[ChunkKey], new: Mapping[ChunkKey, Pairs] | None = None
) -> dict[ChunkKey, PairChanges]:
    """The changes of chunks' key-values that take their filters out of the footer.

    new      key-values of the new filters of some of these chunks
    returns  only the chunks where anything changes, see format.edits.FooterEdit
    """
    old, new = footer_filters(footer), new or {}
    return {key: (*_LEAVING, *new.get(key, ())) for key in chunks if key in old or key in new}
