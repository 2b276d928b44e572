"""Nested arrays whose inside is made again: the same values, of slices and of every layout."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pyarrow as pa

from parquet_bloom.format.arrow_types import (
    are_alike,
    fields_of,
    has_any_length,
    is_bytes,
    is_list,
    is_text,
    map_nested,
    with_fields,
)

NUMBERS: list[Any] = [[1, None], None, [], [2, 3, 4], [5]] * 3
PAIRS: list[Any] = [[1, None], None, [2, 3]] * 4
ARRAYS = {
    "list": pa.array(NUMBERS, pa.list_(pa.int32())),
    "large list": pa.array(NUMBERS, pa.large_list(pa.int32())),
    "view": pa.array(NUMBERS, pa.list_view(pa.int32())),
    "large view": pa.array(NUMBERS, pa.large_list_view(pa.int32())),
    "fixed": pa.array(PAIRS, pa.list_(pa.int32(), 2)),
    "map": pa.array([[("a", 1), ("b", None)], None, [], [("c", 2)]] * 3, pa.map_(pa.string(), pa.int32())),
    "struct": pa.array([{"a": 1, "b": "u"}, None, {"a": None, "b": None}] * 4),
    "no fields": pa.array([{}, None, {}] * 4, pa.struct([])),
}


def same(parts: Sequence[pa.Array]) -> Sequence[pa.Array]:
    return parts


def test_values_stay() -> None:
    for name, (start, length) in product(ARRAYS, ((0, 12), (1, 4), (2, 0), (11, 1))):
        array = ARRAYS[name].slice(start, length)
        kind = with_fields(array.type, fields_of(array.type))
        made = map_nested(array, pa.list_(pa.int32()) if is_list(kind) else kind, same)
        made.validate(full=True)
        assert made.to_pylist() == array.to_pylist(), (name, start, length)


def test_inside_are_the_values_of_these_rows_alone() -> None:
    seen: list[pa.Array] = []

    def inside(parts: Sequence[pa.Array]) -> Sequence[pa.Array]:
        seen.extend(parts)
        return [part.cast(pa.int64()) for part in parts]

    for name in ("list", "large list", "view", "large view"):
        made = map_nested(ARRAYS[name].slice(2, 2), pa.list_(pa.int64()), inside)
        assert made.to_pylist() == [[], [2, 3, 4]]
        assert seen.pop().to_pylist() == [2, 3, 4]


def test_types_are_what_their_values_are() -> None:
    assert all(is_list(ARRAYS[name].type) for name in ("list", "large list", "view", "large view", "fixed"))
    assert not is_list(ARRAYS["map"].type)
    assert all(map(is_text, (pa.string(), pa.large_string(), pa.string_view())))
    assert is_bytes(pa.binary(3))
    assert not has_any_length(pa.binary(3))
    assert has_any_length(pa.binary_view())
    assert are_alike(ARRAYS["view"].type, ARRAYS["fixed"].type)
    assert not are_alike(ARRAYS["map"].type, ARRAYS["list"].type)
    assert fields_of(pa.int32()) == []
    assert with_fields(pa.list_view(pa.int8()), [pa.field("x", pa.int8())]) == pa.list_(pa.field("x", pa.int8()))
