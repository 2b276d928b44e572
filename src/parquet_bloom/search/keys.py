"""Many keys against whole filters: which row groups can hold any of them, for semi-joins.

Keys become the column's physical values once, sorted by value; a row group is asked only for those
within its bounds, by the kernel. Values that cannot be in the column (out of range, a fraction)
leave at once.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError, ParquetBloomError, RequestError
from parquet_bloom.filters.asking import Files, alone, ask_whole
from parquet_bloom.filters.locate import filter_ranges_of
from parquet_bloom.filters.stored import StoredFilter, StoredFilters
from parquet_bloom.format.arrow_types import array_of, has_any_length
from parquet_bloom.format.literals import as_literal
from parquet_bloom.format.outline import NONE, Outline
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64, Leaf
from parquet_bloom.format.statistics import ColumnStatistics, domain_of, limits, statistics_of
from parquet_bloom.format.values import described, key_for, operand, same_kind, same_type, type_of
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.predicates.bind import misfit_error
from parquet_bloom.predicates.casts import OutOfReachError, literal_of
from parquet_bloom.search.log import FileResult
from parquet_bloom.search.search import Search, leaf_of
from parquet_bloom.source.columns import Pairs, partition_value
from parquet_bloom.storage.open_file import OpenFile

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys as one column stores them.

    stored  Arrow array of physical values, no nulls; sorted by `order` where there is one
    order   the same in the order of statistics.domain_of: int64, uint64, float64 or objects
    hashes  uint64, XXH64 of each
    numbers  int64, of each among the keys of the call, if they are numbered; several may have one, as the two zeros do
    open    some key's meaning for this column is not certain: no row group may be skipped for it
    reason  why
    """

    stored: pa.Array
    order: NDArray[Any]
    hashes: NDArray[np.uint64]
    numbers: Integers = field(default_factory=lambda: np.empty(0, np.int64))
    open: bool = False
    reason: str = ""


def as_many(values: Any) -> Any:
    """Keys as an array or list, which can be read more than once. Raises RequestError for another type."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise RequestError("values takes an array or a list of keys")
    return values if isinstance(values, pa.Array | pa.ChunkedArray | np.ndarray) else list(values)


def folder_key(key: Leaf, values: Any) -> Leaf:
    """A folder's key as these values see it: dates are texts as well."""
    return key_for(key, values.to_pylist() if isinstance(values, pa.Array | pa.ChunkedArray) else values)


def keys_of_file(values: Any, leaf: Leaf, first: Leaf) -> Keys:
    """As keys_for, of a column that may have another type in the first file of its data set.

    Keys of which one may mean something else there are open. Raises RequestError for a key that can never
    be compared with the first file's column.
    """
    if same_type(leaf, first):
        return keys_for(values, leaf, strict=True)
    if not same_kind(leaf, first):
        return _open(_differs(leaf, first))
    there = keys_for(values, first, strict=True)
    return there if there.open else keys_for(values, leaf)


def numbered_keys(array: pa.Array, leaf: Leaf, first: Leaf) -> Keys:
    """Cast distinct keys without NULL to a column, and number them; keys that it cannot hold are not among them.

    first  the column in the first file of the data set, where it may have another type
    Raises RequestError for a key that cannot be compared with the column, or whose meaning for it is not certain.
    """
    if not same_type(leaf, first) and not same_kind(leaf, first):
        raise RequestError(_differs(leaf, first) + "; locate keys in files of one type at a time")
    found = keys_for(array, leaf, strict=True, numbered=True)
    if found.open:
        raise RequestError(f"{leaf.name}: {found.reason}; write such a key in the type of the column")
    return found


def _differs(leaf: Leaf, first: Leaf) -> str:
    return f"{leaf.name} is {described(leaf)}, but {described(first)} in the first file"


def keys_for(values: Any, leaf: Leaf, strict: bool = False, numbered: bool = False) -> Keys:
    """Cast keys, as as_many gives them, to a column.

    strict    a key that can never be compared with the column is a RequestError
    numbered  the keys are distinct, without NULL
    """
    domain = domain_of(leaf)
    plain = leaf.logical in (None, "INTEGER") and leaf.physical in (INT32, INT64)
    array = _as_array(values)
    if array is not None and plain and pa.types.is_integer(array.type):
        return _integers(array, leaf, numbered)
    text = leaf.physical == BYTE_ARRAY and domain == "bytes"
    if array is not None and text and has_any_length(array.type):
        stored = array.cast(pa.large_binary())
        stored = stored if numbered else stored.unique().drop_null()
        which = pc.sort_indices(stored)
        stored = stored.take(which)
        return _keys(stored, stored.to_pylist(), which.to_numpy().astype(np.int64))
    return _one_by_one(values if array is None else array, leaf, strict, numbered)


def _keys(stored: pa.Array, order: list[Any], numbers: Integers) -> Keys:
    objects = np.empty(len(order), object)
    objects[:] = order
    return Keys(stored, objects, hash_array(stored), numbers)


def _as_array(values: Any) -> pa.Array | None:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    try:
        return values if isinstance(values, pa.Array) else array_of(values)
    except (pa.ArrowException, TypeError, OverflowError, ValueError):
        return None


def _integers(array: pa.Array, leaf: Leaf, numbered: bool) -> Keys:
    # Keys that the column's type cannot have go before the cast, which would wrap them.
    numbers = array.drop_null().to_numpy(zero_copy_only=False)
    kept = _within_type(numbers, leaf)
    if numbered:
        which = np.arange(len(numbers)) if kept is None else np.flatnonzero(kept)
        which = which[np.argsort(numbers[which])]
        numbers = numbers[which]
    else:
        which, numbers = np.empty(0, np.int64), np.sort(numbers if kept is None else numbers[kept])
        differs = numbers[1:] != numbers[:-1]
        if not differs.all():  # np.unique takes ten times as long
            numbers = numbers[np.concatenate([[True], differs])]
    order, stored = _stored_integers(numbers, leaf)
    return Keys(stored, order, hash_array(stored), which)


def _within_type(numbers: NDArray[Any], leaf: Leaf) -> NDArray[np.bool_] | None:
    """The integers that a column's type can have, as flags; None: all."""
    low, high = limits(leaf) or (0, 0)
    kind = np.iinfo(numbers.dtype)
    return (numbers >= low) & (numbers <= high) if kind.min < low or kind.max > high else None


def _stored_integers(numbers: NDArray[Any], leaf: Leaf) -> tuple[NDArray[Any], pa.Array]:
    """Integers in a column's order, which is unsigned where its lowest value is 0; and as their bits lie in a file."""
    unsigned, width = (limits(leaf) or (0, 0))[0] == 0, leaf.width
    order = numbers.astype(np.uint64 if unsigned else np.int64, copy=False)
    bits = order.astype(f"<u{width}" if unsigned else f"<i{width}", copy=False)
    return order, pa.array(bits.view(f"<i{width}"))


def _one_by_one(values: Iterable[Any], leaf: Leaf, strict: bool, numbered: bool) -> Keys:
    found: list[tuple[Any, bytes, int]] = []
    for number, value in enumerate(values):
        own = _probes_of(value, leaf, strict)
        if isinstance(own, str):
            return _open(own)
        found += [(order, plain, number) for plain, order in own.items()]
    found.sort()
    if not numbered:
        found = list({plain: (order, plain, number) for order, plain, number in found}.values())
    stored = pa.array([plain for _, plain, _ in found], pa.large_binary())
    numbers = np.array([number for _, _, number in found], np.int64)
    return _keys(stored, [order for order, _, _ in found], numbers)


def _probes_of(value: Any, leaf: Leaf, strict: bool) -> dict[bytes, Any] | str:
    """PLAIN bytes that a key may have in a column -> its place in the order; or why its meaning is not certain."""
    try:
        literal = as_literal(literal_of(value) if isinstance(value, pa.Scalar) else value)
    except OutOfReachError as error:
        return str(error)
    if literal is None:
        return {}
    found = operand(literal, leaf)
    if found.misfit and strict:
        raise misfit_error(literal, leaf)
    if not found.known or (not found.never and found.probes is None):
        return found.reason
    return {} if found.never else dict.fromkeys(found.probes or (), found.lower)


def _open(reason: str) -> Keys:
    return Keys(pa.array([], pa.binary()), np.empty(0, object), np.empty(0, np.uint64), open=True, reason=reason)


def partition_hits(leaf: Leaf, pairs: Pairs, outline: Outline, keys: Keys) -> list[int | None]:
    """How many keys each row group may hold of a partition column; see hits_of."""
    holds = None if keys.open else int(partition_value(leaf, pairs) in keys.order.tolist())
    return [0 if rows == 0 else holds for rows in outline.rows.tolist()]


def hits_by_statistics(statistics: ColumnStatistics, outline: Outline, leaf: Leaf, keys: Keys) -> list[int | None]:
    """How many keys each row group may hold, by what is known of the column there; see hits_of."""
    _, _, some = _within(statistics, outline, leaf, keys)
    return [None if one else 0 for one in some.tolist()]


def hits_of(
    source: OpenFile, outline: Outline, leaf: Leaf, keys: Keys, use_filters: bool = True, count: bool = False
) -> list[int | None]:
    """How many keys each row group may hold; None where nothing says. 0: certainly none.

    count  without it a filter is left at the first key that it admits: 1 stands for one or more
    """
    hits, first, last, other = _hits_together(alone(source), outline, leaf, keys, use_filters, count)
    filters = StoredFilters(source)
    for group in np.flatnonzero(other).tolist():
        hits[group] = _hits(filters.queried(group, leaf), keys.stored[first[group] : last[group]], count)
    return hits


def hits_of_several(
    files: Files, outline: Outline, leaf: Leaf, keys: Keys, use_filters: bool = True, count: bool = False
) -> list[list[int | None] | None]:
    """The hits of each file of an outline, as hits_of has them; None for one to be queried alone."""
    hits, _, _, other = _hits_together(files, outline, leaf, keys, use_filters, count)
    odd, firsts = set(outline.file_of[other].tolist()), outline.firsts.tolist()
    return [None if i in odd else hits[start:stop] for i, (start, stop) in enumerate(pairwise(firsts))]


def _hits_together(
    files: Files, outline: Outline, leaf: Leaf, keys: Keys, use_filters: bool, count: bool
) -> tuple[list[int | None], Integers, Integers, NDArray[np.bool_]]:
    """The hits by bounds and by whole filters that are as most are.

    returns  also the keys within the bounds of each row group, first up to last, and those whose filter is still to be
             queried
    """
    first, last, some = _within(statistics_of(outline, leaf), outline, leaf, keys)
    hits: list[int | None] = [None if one else 0 for one in some.tolist()]
    if keys.open or not use_filters or leaf.refusal is not None:
        return hits, first, last, np.zeros(len(hits), bool)
    ranges = filter_ranges_of(outline, leaf.index)
    other = some & ranges.exists
    groups = np.flatnonzero(other & ranges.fits)
    counts = ask_whole(files, ranges, groups, first[groups], last[groups], keys.hashes, count)
    for group, n in zip(groups.tolist(), counts.tolist(), strict=True):
        if n != NONE:
            hits[group], other[group] = n, False
    return hits, first, last, other


def _within(
    statistics: ColumnStatistics, outline: Outline, leaf: Leaf, keys: Keys
) -> tuple[Integers, Integers, NDArray[np.bool_]]:
    """The keys between the bounds of each row group, first up to last; and the row groups that may hold some key."""
    n = outline.n_row_groups
    first, last = np.zeros(n, np.int64), np.full(n, len(keys.order), np.int64)
    if domain_of(leaf) != "float" and len(keys.order):  # a float key may stand for its neighbours
        low, high = statistics.has_lower, statistics.has_upper
        first[low] = _search(keys.order, statistics.lower[low], "left")
        last[high] = _search(keys.order, statistics.upper[high], "right")
    return first, last, (outline.rows > 0) & statistics.some_value & (keys.open | (first < last))


def _search(order: NDArray[Any], bounds: NDArray[Any], side: Literal["left", "right"]) -> Any:
    if order.dtype == object:  # bytes: numpy would cut zeros off
        find = bisect_left if side == "left" else bisect_right
        return [find(order, bound) for bound in bounds.tolist()]
    return np.searchsorted(order, bounds, side)


def _hits(stored: StoredFilter | None, values: pa.Array, count: bool) -> int | None:
    """How many keys one filter of any form admits; None where it cannot be queried."""
    if stored is None:
        return None
    try:
        admitted = stored.evidence().might_contain_array(values)
    except (FilterFormatError, DamagedFileError):
        return None
    return int(np.count_nonzero(admitted)) if count else int(admitted.any())


def admitted_keys(
    source: OpenFile, outline: Outline, leaf: Leaf, keys: Keys, use_filters: bool = True
) -> Iterator[tuple[int, NDArray[np.intp], float]]:
    """The keys that each row group may hold, by bounds and then by its whole filter.

    yields  row group, positions among the keys, and how many keys that are not there its filter admits on average
    """
    first, last, some = _within(statistics_of(outline, leaf), outline, leaf, keys)
    filters = StoredFilters(source)
    for group in np.flatnonzero(some).tolist():
        positions = np.arange(first[group], last[group])
        stored = filters.queried(group, leaf) if use_filters and leaf.refusal is None else None
        if stored is None:
            yield group, positions, 0.0
            continue
        try:
            bloom = stored.evidence()
            found = bloom.might_contain_array(keys.stored[int(first[group]) : int(last[group])])
        except (FilterFormatError, DamagedFileError):
            yield group, positions, 0.0
            continue
        yield group, positions[found], bloom.fpp * len(positions)


# --- keys of each file ----------------------------------------------------------------------------


class KeyHits:
    """Many keys of one column, sought in each file while a search has it open, in the bytes that are read already.

    column  a name as people write it
    count   say how many keys a filter admits
    Gives what hits_of gives, or the error of this file.
    """

    def __init__(self, search: Search, column: str, values: Any, count: bool) -> None:
        self._search, self._column, self._values, self._count = search, column, as_many(values), count
        self._known: dict[Any, Keys] = {}
        self._lock = threading.Lock()

    def __call__(self, opened: OpenFile, file: FileResult) -> list[int | None] | ParquetBloomError:
        """How many keys each row group may hold."""
        try:
            return self._hits(opened, file)
        except ParquetBloomError as error:
            return error

    def of_several(self, files: Files, first_file: FileResult, outline: Outline) -> list[list[int | None] | None]:
        """The same of files that were decided together; None for one to be queried alone."""
        search = self._search
        nothing: list[list[int | None] | None] = [None] * outline.n_files
        try:
            leaf, first = leaf_of(first_file, self._column, search.first_leaves, search.keys)
            if leaf is None or leaf.index < 0:
                return nothing
            keys = self._keys(leaf, first)
        except ParquetBloomError:  # of each file, under its name
            return nothing
        return hits_of_several(files, outline, leaf, keys, search.options.use_filters, self._count)

    def _hits(self, opened: OpenFile, file: FileResult) -> list[int | None]:
        search, outline = self._search, file.outline
        assert outline is not None
        leaf, first = leaf_of(file, self._column, search.first_leaves, search.keys)
        if leaf is None:
            absent = search.log.absent(first, outline.n_row_groups, file.file)
            return hits_by_statistics(absent, outline, first, keys_of_file(self._values, first, first))
        if leaf.index < 0:
            leaf = first = folder_key(leaf, self._values)
            return partition_hits(leaf, file.file.partitions, outline, self._keys(leaf, first))
        return hits_of(opened, outline, leaf, self._keys(leaf, first), search.options.use_filters, self._count)

    def _keys(self, leaf: Leaf, first: Leaf) -> Keys:
        kind = type_of(leaf)
        with self._lock:  # once, and not by every thread
            if kind not in self._known:
                self._known[kind] = keys_of_file(self._values, leaf, first)
            return self._known[kind]
