"""Arrow's types by what their values are, in any of Arrow's layouts; and nested ones, whose inside is made again.

string, large_string, string_view                        texts
list, large_list, fixed_size_list, list views            lists
struct {x, y}; list<element>; map<key, value>            nested: two, one and two fields
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_T = pa.types
_LISTS = (_T.is_list, _T.is_large_list, _T.is_fixed_size_list, _T.is_list_view, _T.is_large_list_view)
_TEXTS = (_T.is_string, _T.is_large_string, _T.is_string_view)
_BYTES = (_T.is_binary, _T.is_large_binary, _T.is_binary_view)


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists; maps are none."""
    return any(test(kind) for test in _LISTS)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are texts."""
    return any(test(kind) for test in _TEXTS)


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes, of any or of one length."""
    return any(test(kind) for test in _BYTES) or bool(_T.is_fixed_size_binary(kind))


def has_any_length(kind: pa.DataType) -> bool:
    """Whether values are texts, or bytes of any length."""
    return any(test(kind) for test in (*_TEXTS, *_BYTES))


def is_view(kind: pa.DataType) -> bool:
    """Whether values are views of texts or bytes, which much of pyarrow does not take."""
    return bool(_T.is_string_view(kind) or _T.is_binary_view(kind))


def fields_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields of a nested type: of a struct, a list's element, a map's key and value; none of all others."""
    if _T.is_map(kind):
        return [kind.key_field, kind.item_field]
    if is_list(kind):
        return [kind.value_field]
    return [kind.field(i) for i in range(kind.num_fields)] if _T.is_struct(kind) else []


def with_fields(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """A nested type with other fields; a list for a view of lists."""
    if _T.is_struct(kind):
        return pa.struct(fields)
    if _T.is_map(kind):
        return pa.map_(*fields, kind.keys_sorted)
    if _T.is_fixed_size_list(kind):
        return pa.list_(*fields, kind.list_size)
    large = _T.is_large_list(kind) or _T.is_large_list_view(kind)
    return (pa.large_list if large else pa.list_)(*fields)


@lru_cache(64)
def without_views(kind: pa.DataType) -> pa.DataType:
    """A type with large_string in the place of string_view, large_binary of binary_view, at any depth.

    Views of lists stay as they are: pyarrow filters these without a copy of their values.
    """
    if is_view(kind):
        return pa.large_string() if _T.is_string_view(kind) else pa.large_binary()
    if _T.is_list_view(kind) or _T.is_large_list_view(kind):
        return kind
    inner = [field.with_type(without_views(field.type)) for field in fields_of(kind)]
    return kind if inner == fields_of(kind) else with_fields(kind, inner)


def are_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether both are structs, lists or maps."""
    return any(test(one) and test(other) for test in (_T.is_struct, _T.is_map, is_list))


def map_nested(
    array: pa.Array, target: pa.DataType, inside: Callable[[Sequence[pa.Array]], Sequence[pa.Array]]
) -> pa.Array:
    """A nested array as a type that is alike.

    inside  makes the values of the target's fields of those of the array's, which are of these rows alone
    Raises pyarrow's errors for a value that has no place in the type.
    """
    if _T.is_struct(target):
        parts = inside([array.field(i) for i in range(array.type.num_fields)])
        if not parts:
            return array.cast(target)
        return pa.StructArray.from_arrays(parts, fields=fields_of(target), mask=array.is_null())
    if _T.is_map(target):
        offsets, parts = array.offsets, (array.keys, array.items)
    else:
        if not _T.is_list(array.type) and not _T.is_large_list(array.type):
            array = _as_lists(array)
        offsets, parts = array.offsets, (array.values,)
    first, last = (offsets[0].as_py(), offsets[-1].as_py()) if len(offsets) else (0, 0)
    parts = inside([part.slice(first, last - first) for part in parts])
    starts = pa.array(offsets.to_numpy() - offsets.type.to_pandas_dtype()(first))
    made: pa.Array
    if _T.is_map(target):
        made = pa.MapArray.from_arrays(starts, *parts, mask=array.is_null())
    else:
        large = _T.is_large_list(array.type)
        made = (pa.LargeListArray if large else pa.ListArray).from_arrays(starts, *parts, mask=array.is_null())
    return made if made.type == target else made.cast(target)


def leaf_arrays(array: pa.Array) -> Iterator[pa.Array]:
    """The arrays of plain values in an array, at any depth: itself, of structs, maps and lists what these have."""
    if pa.types.is_struct(array.type):
        parts = array.flatten()
    elif pa.types.is_map(array.type):
        parts = [array.keys, array.items]
    elif fields_of(array.type):
        parts = [array.flatten()]
    else:
        yield array
        return
    for part in parts:
        yield from leaf_arrays(part)


def _as_lists(array: pa.Array) -> pa.Array:
    """Lists of a fixed size and views as lists; pyarrow 26 casts views to lists whose last offset is missing."""
    import pyarrow.compute as pc  # not for commands that only ask for types

    lengths = pc.list_value_length(array).fill_null(0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    return pa.LargeListArray.from_arrays(starts, array.flatten(), mask=array.is_null())


def entries_of(array: pa.Array) -> NDArray[np.int64]:
    """How many values each row has in Parquet, NULLs and empty lists included: int64[rows].

    array  of one leaf: within structs and lists of one field each
    """
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return entries_of(array.storage)
    if _T.is_struct(kind):
        return entries_of(array.field(0))
    if not fields_of(kind):
        return np.ones(len(array), np.int64)
    lists = array if _T.is_list(kind) or _T.is_large_list(kind) else _as_lists(array)
    offsets = lists.offsets.to_numpy().astype(np.int64)
    before = np.concatenate(([0], entries_of(lists.values).cumsum()))
    counts: NDArray[np.int64] = before[offsets[1:]] - before[offsets[:-1]]
    counts[lists.is_null().to_numpy(zero_copy_only=False)] = 0
    counts[counts < 1] = 1
    return counts


# --- one type for two -----------------------------------------------------------------------------
#
#    int32, int64          int64                  timestamp[ms], timestamp[us]   timestamp[us]
#    uint32, int32         int64                  decimal(5, 2), decimal(7, 4)   decimal(7, 4)
#    float, double         double                 uint64, int64                  none

_UNITS = ("s", "ms", "us", "ns")
_WHOLE = {16: 11, 32: 24, 64: 53}  # bits of a float -> of a whole number, that it holds exactly


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds the values of both exactly, at any depth; `one` where there is no such type."""
    if one == other or _T.is_null(other):
        return one
    if _T.is_null(one):
        return other
    if are_alike(one, other):
        own, others = fields_of(one), fields_of(other)
        if _T.is_struct(one) and [field.name for field in own] != [field.name for field in others]:
            return one
        inner = [field.with_type(wider(field.type, also.type)) for field, also in zip(own, others, strict=True)]
        return one if inner == own else with_fields(one, inner)
    if is_number(one) and is_number(other):
        return _wider_number(one, other) or one
    if _T.is_decimal(one) and _T.is_decimal(other):
        scale = max(one.scale, other.scale)
        precision = scale + max(one.precision - one.scale, other.precision - other.scale)
        most = max(one.bit_width, other.bit_width, 128)
        if precision > (38 if most == 128 else 76):
            return one
        return pa.decimal128(precision, scale) if most == 128 else pa.decimal256(precision, scale)
    if (_T.is_date(one) and _T.is_timestamp(other)) or (_T.is_timestamp(one) and _T.is_date(other)):
        return other if _T.is_date(one) else one  # a day is its midnight
    for test in (_T.is_timestamp, _T.is_time, _T.is_duration):
        if test(one) and test(other):
            unit = max(one.unit, other.unit, key=_UNITS.index)
            if _T.is_duration(one):
                return pa.duration(unit)
            if _T.is_time(one):
                return pa.time64(unit) if unit in ("us", "ns") else pa.time32(unit)
            return pa.timestamp(unit, one.tz) if (one.tz is None) == (other.tz is None) else one
    return one


def is_number(kind: pa.DataType) -> bool:
    """Whether values are integers or floats."""
    return bool(_T.is_integer(kind) or _T.is_floating(kind))


def _wider_number(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    signed = max((k.bit_width for k in (one, other) if _T.is_signed_integer(k)), default=0)
    unsigned = max((k.bit_width for k in (one, other) if _T.is_unsigned_integer(k)), default=0)
    floats = max((k.bit_width for k in (one, other) if _T.is_floating(k)), default=0)
    kinds = {pa.float16().bit_width: pa.float16(), 32: pa.float32(), 64: pa.float64()}
    if floats:
        digits = max(signed - 1, unsigned)
        return next((kinds[n] for n, whole in _WHOLE.items() if n >= floats and whole >= digits), None)
    bits = max(signed, 2 * unsigned) if signed else unsigned
    if bits > 64:
        return None
    name = f"int{bits}" if signed else f"uint{bits}"
    return getattr(pa, name)()


# --- bytes ----------------------------------------------------------------------------------------


def arrows_own(*parts: bytes) -> pa.Buffer:
    """Bytes that Arrow's threads may let go of when there is no interpreter any more (apache/arrow#45214, #49942).

    docs/architecture.md, "Workarounds", says when this can go.
    """
    buffer = pa.allocate_buffer(sum(map(len, parts)))
    with pa.FixedSizeBufferWriter(buffer) as out:
        for part in parts:
            out.write(part)
    return buffer


def array_of(values: Sequence[Any]) -> pa.Array:
    """Python's values as an array, in which none became another one. Raises what pyarrow raises.

    pyarrow by itself does not try UINT64, cuts pandas' Timestamps to microseconds, and times beside a date to days.
    """
    try:
        found = pa.array(values)
    except OverflowError:
        return pa.array(values, pa.uint64())
    if _T.is_date(found.type) and any(isinstance(value, dt.datetime) for value in values):
        raise pa.ArrowInvalid("days and times are among them")
    if _T.is_timestamp(found.type) and any(getattr(value, "nanosecond", 0) for value in values):
        return pa.array(values, pa.timestamp("ns", found.type.tz))
    return found
