"""Many keys against whole filters: which row groups can hold any of them, for semi-joins.

Keys become the column's physical values once, sorted by value; a row group is asked only for those
within its bounds, by the kernel. Values that cannot be in the column (out of range, a fraction)
leave at once.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError, ParquetBloomError, RequestError
from parquet_bloom.filters.asking import AnyTails, count_read, headers_of, places_of
from parquet_bloom.filters.locate import filter_ranges_of, header_of
from parquet_bloom.filters.stored import StoredFilter, StoredFilters
from parquet_bloom.format.arrow_types import has_any_length
from parquet_bloom.format.literals import as_literal
from parquet_bloom.format.outline import NONE, Outline
from parquet_bloom.format.outlines import FILE_BITS
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64, Leaf
from parquet_bloom.format.statistics import ColumnStatistics, domain_of, limits, statistics_of
from parquet_bloom.format.values import described, key_for, operand, same_kind, same_type, type_of
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.kernels.split_block import contains_hashes, from_bytes
from parquet_bloom.predicates.bind import misfit_error
from parquet_bloom.predicates.casts import OutOfReachError, literal_of
from parquet_bloom.search.evidence import Pairs, partition_value
from parquet_bloom.search.results import FileResult
from parquet_bloom.search.search import Search, leaf_of
from parquet_bloom.search.together import Decided
from parquet_bloom.storage.open_file import OpenFile

Integers = NDArray[np.int64]
_MOST_BYTES = 1 << 26  # of whole filters in memory at a time
_FEW_PROBES = 1 << 22  # in memory, for which the loop over blocks is as good as that over whole filters


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys as one column stores them.

    stored  Arrow array of physical values, no nulls; sorted by `order` where there is one
    order   the same in the order of statistics.domain_of: int64, uint64, float64 or objects
    hashes  uint64, XXH64 of each
    open    some key's meaning for this column is not certain: no row group may be skipped for it
    reason  why
    """

    stored: pa.Array
    order: NDArray[Any]
    hashes: NDArray[np.uint64]
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
        return _open(f"{leaf.name} is {described(leaf)}, but {described(first)} in the first file")
    there = keys_for(values, first, strict=True)
    return there if there.open else keys_for(values, leaf)


def keys_for(values: Any, leaf: Leaf, strict: bool = False) -> Keys:
    """Cast keys, as as_many gives them, to a column.

    strict  a key that can never be compared with the column is a RequestError
    """
    domain = domain_of(leaf)
    plain = leaf.logical in (None, "INTEGER") and leaf.physical in (INT32, INT64)
    array = _as_array(values)
    if array is not None and plain and pa.types.is_integer(array.type):
        return _integers(array, leaf)
    text = leaf.physical == BYTE_ARRAY and domain == "bytes"
    if array is not None and text and has_any_length(array.type):
        stored = array.cast(pa.large_binary()).unique().drop_null().sort()
        return Keys(stored, _as_objects(stored.to_pylist()), hash_array(stored))
    return _one_by_one(values if array is None else array, leaf, strict)


def _as_array(values: Any) -> pa.Array | None:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, list) and any(getattr(value, "nanosecond", 0) for value in values):
        return None  # pyarrow would cut pandas' Timestamps off
    try:
        return values if isinstance(values, pa.Array) else pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError, ValueError):
        return None


def _integers(array: pa.Array, leaf: Leaf) -> Keys:
    # Keys that the column's type cannot have go before the cast, which would wrap them.
    numbers = array.drop_null().to_numpy(zero_copy_only=False)
    kept = _within_type(numbers, leaf)
    numbers = np.sort(numbers if kept is None else numbers[kept])
    differs = numbers[1:] != numbers[:-1]
    if not differs.all():  # np.unique takes ten times as long
        numbers = numbers[np.concatenate([[True], differs])]
    order, stored = _stored_integers(numbers, leaf)
    return Keys(stored, order, hash_array(stored))


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


def _one_by_one(values: Iterable[Any], leaf: Leaf, strict: bool) -> Keys:
    probes: dict[bytes, Any] = {}
    for value in values:
        own = _probes_of(value, leaf, strict)
        if isinstance(own, str):
            return _open(own)
        probes.update(own)
    pairs = sorted(probes.items(), key=lambda pair: (pair[1], pair[0]))
    stored = pa.array([plain for plain, _ in pairs], pa.large_binary())
    return Keys(stored, _as_objects([order for _, order in pairs]), hash_array(stored))


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
    return Keys(pa.array([], pa.binary()), np.empty(0, object), np.empty(0, np.uint64), True, reason)


@dataclass(frozen=True, slots=True)
class NumberedKeys:
    """Keys as one column stores them, each with its number among the keys of the call.

    keys     of a column; several may be of one number, as the two zeros are
    numbers  int64[n]
    """

    keys: Keys
    numbers: Integers


def numbered_keys(array: pa.Array, leaf: Leaf, first: Leaf) -> NumberedKeys:
    """Cast keys to a column, and number them; keys that it cannot hold are not among them.

    array  distinct keys, without NULL
    first  the column in the first file of the data set, where it may have another type
    Raises RequestError for a key that cannot be compared with the column, or whose meaning for it is not certain.
    """
    if not same_type(leaf, first) and not same_kind(leaf, first):
        differs = f"{leaf.name} is {described(leaf)}, but {described(first)} in the first file"
        raise RequestError(differs + "; locate keys in files of one type at a time")
    if leaf.logical in (None, "INTEGER") and leaf.physical in (INT32, INT64) and pa.types.is_integer(array.type):
        numbers = array.to_numpy(zero_copy_only=False)
        kept = _within_type(numbers, leaf)
        which = np.arange(len(numbers)) if kept is None else np.flatnonzero(kept)
        which = which[np.argsort(numbers[which])]
        order, stored = _stored_integers(numbers[which], leaf)
        return NumberedKeys(Keys(stored, order, hash_array(stored)), which)
    if leaf.physical == BYTE_ARRAY and domain_of(leaf) == "bytes" and has_any_length(array.type):
        values = array.cast(pa.large_binary())
        which = pc.sort_indices(values).to_numpy().astype(np.int64)
        stored = values.take(pa.array(which))
        return NumberedKeys(Keys(stored, _as_objects(stored.to_pylist()), hash_array(stored)), which)
    found: list[tuple[Any, bytes, int]] = []
    for number, value in enumerate(array):
        own = _probes_of(value, leaf, strict=True)
        if isinstance(own, str):
            raise RequestError(f"{leaf.name}: {own}; write such a key in the type of the column")
        found += [(order, plain, number) for plain, order in own.items()]
    found.sort()
    stored = pa.array([plain for _, plain, _ in found], pa.large_binary())
    numbers = np.array([number for _, _, number in found], np.int64)
    return NumberedKeys(Keys(stored, _as_objects([order for order, _, _ in found]), hash_array(stored)), numbers)


def _as_objects(values: list[Any]) -> NDArray[Any]:
    order = np.empty(len(values), object)
    order[:] = values
    return order


def partition_hits(leaf: Leaf, pairs: Pairs, outline: Outline, keys: Keys) -> list[int | None]:
    """How many keys each row group may hold of a partition column; see hits_of."""
    holds = None if keys.open else int(partition_value(leaf, pairs) in keys.order.tolist())
    return [0 if rows == 0 else holds for rows in outline.rows.tolist()]


def hits_by_statistics(statistics: ColumnStatistics, outline: Outline, leaf: Leaf, keys: Keys) -> list[int | None]:
    """How many keys each row group may hold, by what is known of the column there; see hits_of."""
    first, last = _within(keys, statistics, outline.n_row_groups, exact=domain_of(leaf) != "float")
    some = (outline.rows > 0) & statistics.some_value & (keys.open | (first < last))
    return [None if one else 0 for one in some.tolist()]


def hits_of(
    source: OpenFile, outline: Outline, leaf: Leaf, keys: Keys, use_filters: bool = True, count: bool = False
) -> list[int | None]:
    """How many keys each row group may hold; None where nothing says. 0: certainly none.

    count  without it a filter is left at the first key that it admits: 1 stands for one or more
    """
    hits, first, last, asked = _before_filters(outline, leaf, keys, use_filters)
    # Filters that fit, together; then all that remain, one by one.
    column_ranges = filter_ranges_of(outline, leaf.index)
    fitting = np.flatnonzero(asked & column_ranges.fits)
    if len(fitting):
        offset, num_bytes = column_ranges.offset[fitting], column_ranges.num_bytes[fitting]
        counts = _ask_whole(source, _FilterBatch(offset, num_bytes, first[fitting], last[fitting], keys.hashes, count))
        _take_over(hits, asked, fitting, counts)
    filters = StoredFilters(source)
    for group in np.flatnonzero(asked).tolist():
        hits[group] = _hits(filters.queried(group, leaf), keys.stored[first[group] : last[group]], count)
    return hits


def _before_filters(
    outline: Outline, leaf: Leaf, keys: Keys, use_filters: bool
) -> tuple[list[int | None], NDArray[np.intp], NDArray[np.intp], NDArray[np.bool_]]:
    """The hits by bounds; the keys within those of each row group, first up to last; the filters to be queried."""
    statistics = statistics_of(outline, leaf)
    first, last = _within(keys, statistics, outline.n_row_groups, exact=domain_of(leaf) != "float")
    some = (outline.rows > 0) & statistics.some_value & (keys.open | (first < last))
    hits: list[int | None] = [None if one else 0 for one in some.tolist()]
    if keys.open or not use_filters or leaf.refusal is not None:
        return hits, first, last, np.zeros(len(hits), bool)
    return hits, first, last, some & filter_ranges_of(outline, leaf.index).exists


def _take_over(hits: list[int | None], asked: NDArray[np.bool_], fitting: NDArray[np.intp], counts: Integers) -> None:
    """Put the counts of filters among the hits; of those without a count the filters still have to be queried."""
    known = counts != NONE
    asked[fitting[known]] = False
    for group, n in zip(fitting[known].tolist(), counts[known].tolist(), strict=True):
        hits[group] = n


def hits_of_several(
    tails: AnyTails, decided: Decided, leaf: Leaf, keys: Keys, use_filters: bool = True, count: bool = False
) -> list[list[int | None] | None]:
    """The hits of each of several files, as hits_of has them; None for one to be queried alone."""
    outline = decided.joined
    hits, first, last, asked = _before_filters(outline, leaf, keys, use_filters)
    ranges = filter_ranges_of(outline, leaf.index)
    fitting = np.flatnonzero(asked & ranges.fits)
    numbers = np.array([file.number for file in decided.files], np.int64)
    where = places_of(tails, numbers, ranges.offset[fitting])
    if not tails.reads_more:
        inside = where[2] >= 0
        fitting, where = fitting[inside], np.ascontiguousarray(where[:, inside])
    if len(fitting):
        # As of each file alone: the loop is loaded for local files, and taken where it is loaded anyway.
        offset = (numbers[outline.file_of[fitting]] << FILE_BITS) + where[1]
        own = _FilterBatch(offset, ranges.num_bytes[fitting], first[fitting], last[fitting], keys.hashes, count)
        by_loop = tails.reads_more or "numba" in sys.modules
        counts = _by_loop(tails.buffer, where, own)[0] if by_loop else _ask_whole_by_ranges(tails, own)
        _take_over(hits, asked, fitting, counts)
    alone = set(outline.file_of[asked].tolist())
    edges = outline.firsts.tolist()
    return [None if i in alone else hits[edges[i] : edges[i + 1]] for i in range(len(decided.files))]


def _within(keys: Keys, statistics: ColumnStatistics, n: int, exact: bool) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The keys between the bounds of each row group, as slices; a float key may stand for its neighbours."""
    first, last = np.zeros(n, np.intp), np.full(n, len(keys.order), np.intp)
    if exact and len(keys.order):
        low, high = statistics.has_lower, statistics.has_upper
        first[low] = _search(keys.order, statistics.lower[low], "left")
        last[high] = _search(keys.order, statistics.upper[high], "right")
    return first, last


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
    statistics = statistics_of(outline, leaf)
    first, last = _within(keys, statistics, outline.n_row_groups, exact=domain_of(leaf) != "float")
    some = (outline.rows > 0) & statistics.some_value & (first < last)
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


@dataclass(frozen=True, slots=True)
class _FilterBatch:
    """Filters that fit, and the probes of each; the first four are int64[n], one a filter.

    offset       bytes from the start of the file, of the header
    num_bytes    of the bitset
    first, last  filter i is asked for hashes[first[i] : last[i]]
    hashes       uint64, of all keys
    count        say how many a filter admits; without it 1 stands for one or more
    """

    offset: Integers
    num_bytes: Integers
    first: Integers
    last: Integers
    hashes: NDArray[np.uint64]
    count: bool


def _ask_whole(source: OpenFile, asked: _FilterBatch) -> Integers:
    """Query whole filters for many hashes.

    returns  int64[n]; NONE for a filter whose header is not the one promised, or that has no bit
    """
    if source.fd is None:
        return _ask_whole_by_ranges(source, asked)
    n = len(asked.offset)
    where = np.array([np.full(n, source.fd), asked.offset, np.full(n, -1)])
    hits, answers, bytes_read = _by_loop(np.empty(0, np.uint8), where, asked)
    count_read(source, answers, 2 * n, bytes_read)
    return hits


def _by_loop(
    memory: NDArray[np.uint8], where: Integers, asked: _FilterBatch
) -> tuple[Integers, NDArray[np.uint8], int]:
    """The compiled loop's counts, NONE as _ask_whole has it and where a file is shorter; its answers; bytes read.

    memory, where  as ask_kernel has them
    """
    from parquet_bloom.filters import ask_kernel

    n = len(asked.offset)
    kinds, heads, head_bytes = headers_of(asked.num_bytes)
    given = kinds, heads, head_bytes, asked.first, asked.last, asked.hashes
    answers, hits = np.empty(n, np.uint8), np.empty(n, np.int64)
    few = not asked.count and int((asked.last - asked.first).sum()) <= _FEW_PROBES
    if few and (where[2] >= 0).all():
        # The loop that `check` compiles, and not one more: the first call in an installation waits a second for each.
        counted = np.empty(n, np.int64), np.empty(n, np.int64)
        ask_kernel.ask(memory, where, asked.num_bytes, np.zeros(n, bool), *given, answers, *counted)
        hits[:] = answers == ask_kernel.ADMITTED
    else:
        answers[:] = ask_kernel.BLANK
    if (answers == ask_kernel.BLANK).any():  # by some blocks; only the other loop says whether a filter has a bit
        ask_kernel.ask_whole(memory, where, asked.num_bytes, *given, asked.count, answers, hits)
    hits[(answers != ask_kernel.DENIED) & (answers != ask_kernel.ADMITTED)] = NONE
    return hits, answers, int((head_bytes[kinds] + asked.num_bytes).sum())


def _ask_whole_by_ranges(source: OpenFile | AnyTails, asked: _FilterBatch) -> Integers:
    # In parts of some _MOST_BYTES of filters, since each is read whole.
    hits = np.full(len(asked.offset), NONE)
    parts = np.flatnonzero(np.diff((np.cumsum(asked.num_bytes) - 1) // _MOST_BYTES)) + 1
    for some in np.split(np.arange(len(hits)), parts):
        sizes = asked.num_bytes[some].tolist()
        headers = [header_of(n) for n in sizes]
        lengths = [len(header) + n for header, n in zip(headers, sizes, strict=True)]
        found = source.read_ranges(list(zip(asked.offset[some].tolist(), lengths, strict=True)))
        for i, header, data in zip(some.tolist(), headers, found, strict=True):
            # The promised header, and a bitset that has some bit.
            if data.startswith(header) and data.count(0, len(header)) < len(data) - len(header):
                own = asked.hashes[asked.first[i] : asked.last[i]]
                admitted = contains_hashes(from_bytes(data[len(header) :]), own)
                hits[i] = np.count_nonzero(admitted) if asked.count else admitted.any()
    return hits


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

    def of_several(self, tails: AnyTails, decided: Decided) -> list[list[int | None] | None]:
        """The same of files that were decided together; None for one to be queried alone."""
        search, file = self._search, decided.result(0)
        nothing: list[list[int | None] | None] = [None] * len(decided.files)
        try:
            leaf, first = leaf_of(file, self._column, search.first_leaves, search.keys)
            if leaf is None or leaf.index < 0:
                return nothing
            keys = self._keys(leaf, first)
        except ParquetBloomError:  # of each file, under its name
            return nothing
        return hits_of_several(tails, decided, leaf, keys, search.options.use_filters, self._count)

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
