"""Many keys against whole filters: which row groups can hold any of them, for semi-joins.

Keys become the column's physical values once, sorted by value; a row group is asked only for those
within its bounds, by the kernel. Values that cannot be in the column (out of range, a fraction)
leave at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import DamagedFileError, FilterFormatError, RequestError, UnknownFilterError
from parquet_bloom.files.locate import Places, read_filter
from parquet_bloom.files.partitions import Pairs, partition_value
from parquet_bloom.files.spots import spots_of
from parquet_bloom.files.storage import Source
from parquet_bloom.formats import final
from parquet_bloom.formats.bounds import Facts, domain_of, facts_of, limits
from parquet_bloom.formats.filters import decode_filter
from parquet_bloom.formats.operands import operand
from parquet_bloom.formats.outline import Outline, Slot
from parquet_bloom.formats.schema import BYTE_ARRAY, INT32, INT64, Leaf
from parquet_bloom.formats.statistics import decoded
from parquet_bloom.formats.values import own
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.kernels.split_block import contains_hashes
from parquet_bloom.predicates.arrow_literals import OutOfReachError, literal_of


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys as one column stores them.

    stored  Arrow array of physical values, no nulls; sorted by `order` where there is one
    order   the same in the order of bounds.domain_of: int64, uint64, float64 or objects
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
    """Keys that can be looked at again and again. Raises RequestError for what is no list of keys."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise RequestError("values takes an array or a list of keys")
    return values if isinstance(values, pa.Array | pa.ChunkedArray | np.ndarray) else list(values)


def keys_for(values: Any, leaf: Leaf) -> Keys:
    """Cast keys, as as_many gives them, to a column."""
    domain = domain_of(leaf)
    plain = leaf.logical in (None, "INTEGER") and leaf.physical in (INT32, INT64)
    array = _as_array(values)
    if array is not None and plain and pa.types.is_integer(array.type):
        return _integers(array, leaf)
    text = leaf.physical == BYTE_ARRAY and domain == "bytes"
    if array is not None and text and _is_text(array.type):
        stored = array.cast(pa.large_binary()).unique().drop_null().sort()
        order = np.empty(len(stored), object)
        order[:] = stored.to_pylist()
        return Keys(stored, order, hash_array(stored))
    return _one_by_one(values if array is None else array, leaf)


def _as_array(values: Any) -> pa.Array | None:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, list) and any(getattr(value, "nanosecond", 0) for value in values):
        return None  # pyarrow would cut pandas' Timestamps off
    try:
        return values if isinstance(values, pa.Array) else pa.array(values)
    except (pa.ArrowException, TypeError, OverflowError, ValueError):
        return None


def _is_text(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_binary(kind) or t.is_large_binary(kind))


def _integers(array: pa.Array, leaf: Leaf) -> Keys:
    numbers = array.drop_null().to_numpy(zero_copy_only=False)
    low, high = limits(leaf) or (0, 0)
    numbers = np.unique(numbers[(numbers >= low) & (numbers <= high)])
    width = leaf.width
    signed = numbers.astype(np.uint64 if low == 0 else np.int64)
    bits = signed.astype(f"<u{width}") if low == 0 else signed.astype(f"<i{width}")
    stored = pa.array(bits.view(f"<i{width}"))
    return Keys(stored, signed, hash_array(stored))


def _one_by_one(values: Iterable[Any], leaf: Leaf) -> Keys:
    probes: dict[bytes, Any] = {}
    for value in values:
        try:
            literal = own(literal_of(value) if isinstance(value, pa.Scalar) else value)
        except OutOfReachError as error:
            return _open(str(error))
        if literal is None:
            continue
        found = operand(literal, leaf)
        if not found.known or (not found.never and found.probes is None):
            return _open(found.reason)
        if not found.never:
            probes.update((plain, found.low) for plain in found.probes or ())
    pairs = sorted(probes.items(), key=lambda pair: (pair[1], pair[0]))
    stored = pa.array([plain for plain, _ in pairs], pa.large_binary())
    order = np.empty(len(pairs), object)
    order[:] = [place for _, place in pairs]
    return Keys(stored, order, hash_array(stored))


def _open(reason: str) -> Keys:
    return Keys(pa.array([], pa.binary()), np.empty(0, object), np.empty(0, np.uint64), True, reason)


def partition_hits(leaf: Leaf, pairs: Pairs, outline: Outline, keys: Keys) -> list[int | None]:
    """As count_hits, of a column that is in the folder's name."""
    holds = None if keys.open else int(partition_value(leaf, pairs) in keys.order.tolist())
    return [0 if rows == 0 else holds for rows in outline.rows.tolist()]


def count_hits(source: Source, outline: Outline, leaf: Leaf, keys: Keys, use_filters: bool = True) -> list[int | None]:
    """How many keys each row group may hold; None where nothing says. 0: certainly none."""
    facts = facts_of(outline, leaf)
    spots = spots_of(outline, leaf.index)
    exact = domain_of(leaf) != "float"  # a float key may stand for its neighbours
    hits: list[int | None] = []
    for group in range(outline.n_row_groups):
        if outline.rows[group] == 0 or not facts.some_value[group]:
            hits.append(0)
            continue
        first, last = _within(keys, facts, group) if exact else (0, len(keys.order))
        if first >= last and not keys.open:
            hits.append(0)
        elif keys.open or not use_filters or not spots.exists[group] or leaf.refusal is not None:
            hits.append(None)
        else:
            hits.append(_hits(source, (group, leaf.index), keys, first, last))
    return hits


def _within(keys: Keys, facts: Facts, group: int) -> tuple[int, int]:
    """The keys between the bounds of a row group, as a slice."""
    first, last = 0, len(keys.order)
    if not last:
        return 0, 0
    if facts.has_low[group]:
        first = _search(keys.order, facts.low[group], "left")
    if facts.has_high[group]:
        last = _search(keys.order, facts.high[group], "right")
    return first, last


def _search(order: NDArray[Any], bound: Any, side: Any) -> int:
    if order.dtype == object:
        from bisect import bisect_left, bisect_right

        plain = bound.item() if isinstance(bound, np.generic) else bound
        return (bisect_left if side == "left" else bisect_right)(order, plain)
    return int(np.searchsorted(order, bound, side))


def _hits(source: Source, key: tuple[int, int], keys: Keys, first: int, last: int) -> int | None:
    spots = spots_of(source.outline(), key[1])
    if spots.fits[key[0]]:
        num_bytes = int(spots.num_bytes[key[0]])
        header = final.header(num_bytes)
        data = source.read(int(spots.offset[key[0]]), len(header) + num_bytes)
        if data.startswith(header):
            blocks = decode_filter(data, len(data)).blocks
            return int(np.count_nonzero(contains_hashes(blocks, keys.hashes[first:last])))
    stored = _stored_hits(source.outline(), key, keys.stored[first:last])
    if stored is not None:
        return stored
    place = Places(source.footer())[key]
    if place is None:
        return None
    try:
        return int(np.count_nonzero(read_filter(source, place).might_contain_array(keys.stored[first:last])))
    except (UnknownFilterError, FilterFormatError, DamagedFileError):
        return None


def _stored_hits(outline: Outline, key: tuple[int, int], keys: pa.Array) -> int | None:
    """As _hits, of a filter that the footer holds itself; one that it points at goes before."""
    if outline.slots[Slot.FILTER_OFFSET, key[0], key[1]] > 0:
        return None
    try:
        bloom = decoded(outline, outline.leaves[key[1]], key[0])
    except FilterFormatError:
        return None
    return None if bloom is None else int(np.count_nonzero(bloom.might_contain_array(keys)))
