"""The edit of a footer's row groups without an object for each: the table for kernels.compact_edit.

    FileMetaData  [1] [2] [3] | [4 row groups] | [5 key-values] ...
                              ^ start           ^ end

A hundred thousand row groups take the tree, or the bindings, seconds; the loop takes 0.02 s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from parquet_bloom.formats.thrift.compact_tree import I32, I64, LIST, STRUCT, field_header, list_header

_ROW_GROUP, _CHUNK, _META = range(3)
_OFFSET, _LENGTH, _INDEX_LENGTH = range(3)  # slots of what is set
_MOVED = {_ROW_GROUP: (5,), _CHUNK: (2, 4, 6), _META: (9, 10, 11)}  # file_offset, page indexes, pages
_MOVED_FIELDS = 8  # of a chunk, its filter's offset and its row group's share of one among them

Keys = Mapping[tuple[int, int], tuple[int, int | None] | None]


@lru_cache(1)
def _actions() -> NDArray[np.int64]:
    """The loop's table, from the field ids and types of parquet.thrift."""
    from parquet_bloom.kernels import compact_edit as k
    from parquet_bloom.kernels.compact_walk import FIELDS

    table = np.zeros((3, FIELDS, 3), np.int64)
    for kind, ids in _MOVED.items():
        for id in ids:
            table[kind, id] = k.MOVE, 0, I64
    table[_ROW_GROUP, 1] = k.OUTER, _CHUNK, LIST
    table[_CHUNK, 3] = k.ENTER, _META, STRUCT
    table[_CHUNK, 5] = k.SET, _INDEX_LENGTH, I32
    table[_META, 14] = k.MOVE_OR_SET, _OFFSET, I64
    table[_META, 15] = k.SET, _LENGTH, I32
    return table


@dataclass(frozen=True, slots=True)
class RowGroupsSpan:
    """Where the list of row groups lies in a footer.

    header  of the field, bytes from the footer's start
    start   of the list
    first   of its first element
    count   of elements; 0 too where the footer is not as most are
    """

    header: int
    start: int
    first: int
    count: int


def span_of_row_groups(data: bytes) -> RowGroupsSpan:
    """Find field 4 of FileMetaData, if ids go up to it. Raises FooterError where the bytes are cut off."""
    from parquet_bloom.kernels import compact_walk

    view = np.frombuffer(data, np.uint8)
    at = last = 0
    while at >= 0 and (header := field_header(data, at, last)) is not None:
        id, wire, value = header
        if id <= last or id > 4:
            break
        if id == 4:
            count, kind, first = list_header(data, value)
            return RowGroupsSpan(at, value, first, count if wire == LIST and kind == STRUCT else 0)
        at, last = compact_walk.end_of(view, value, wire), id
    return RowGroupsSpan(0, 0, 0, 0)


def edited_row_groups(
    data: bytes, filter_ranges: Keys, index_lengths: Mapping[tuple[int, int], int],
    positions: Sequence[int], totals: Sequence[int],
) -> tuple[int, bytes, int] | None:  # fmt: skip
    """Edit the list of row groups of a footer.

    filter_ranges, index_lengths  see formats.metadata.edits.FooterEdit
    positions, totals      the steps of formats.metadata.edits.Moves
    returns                where the list starts in data, its new bytes, and where it ends in data; None where the
                           footer is not as most are. Raises FooterError where it is cut off
    """
    from parquet_bloom.kernels import compact_edit

    view = np.frombuffer(data, np.uint8)
    span = span_of_row_groups(data)
    if not span.count:
        return None
    n_groups, first, value = span.count, span.first, span.start
    n_columns = _elements(data, first)
    if n_columns is None or n_groups * n_columns > len(data):
        return None
    filled = _values(filter_ranges, index_lengths, n_groups, n_columns)
    if filled is None:
        return None
    values, n_set = filled
    room = len(data) - first + compact_edit.FIELD_BYTES * (n_set + 1)
    if positions:
        room += compact_edit.FIELD_BYTES * _MOVED_FIELDS * n_groups * (n_columns + 1)
    out = np.empty(room, np.uint8)
    steps = np.array(positions, np.int64), np.array(totals[: len(positions)], np.int64)
    end, length = compact_edit.edit(view, first, n_groups, _actions(), values, *steps, out)
    return None if end < 0 else (value, data[value:first] + out[:length].tobytes(), int(end))


def _elements(data: bytes, at: int) -> int | None:
    """How many column chunks the row group has that begins at `at`; None where that is not its first field."""
    header = field_header(data, at, 0)
    if header is None or header[:2] != (1, LIST):
        return None
    return list_header(data, header[2])[0]


def _values(
    filter_ranges: Keys, index_lengths: Mapping[tuple[int, int], int], n_groups: int, n_columns: int
) -> tuple[NDArray[np.int64], int] | None:
    """The slots of what is set, and how many; None where a key names no chunk of this footer."""
    from parquet_bloom.kernels.compact_edit import DROP, KEEP

    values = np.full((3, n_groups, n_columns), KEEP, np.int64)
    where = _indices(filter_ranges, n_groups, n_columns)
    other = _indices(index_lengths, n_groups, n_columns)
    if where is None or other is None:
        return None
    pairs = [(DROP, DROP) if p is None else (p[0], DROP if p[1] is None else p[1]) for p in filter_ranges.values()]
    values[_OFFSET][where], values[_LENGTH][where] = np.array(pairs, np.int64).reshape(-1, 2).T
    values[_INDEX_LENGTH][other] = np.fromiter(index_lengths.values(), np.int64, len(index_lengths))
    return values, 2 * len(filter_ranges) + len(index_lengths)


def _indices(
    keys: Mapping[tuple[int, int], object], n_groups: int, n_columns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    flat = np.fromiter(chain.from_iterable(keys), np.int64, 2 * len(keys)).reshape(-1, 2)
    groups, columns = flat[:, 0], flat[:, 1]
    if len(flat) and (flat.min() < 0 or groups.max() >= n_groups or columns.max() >= n_columns):
        return None
    return groups, columns
