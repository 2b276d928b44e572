"""A reader of Thrift compact bytes that passes over fields of a wrong type.

The C reader gives up on a footer with, say, a list of i16 where the format has a list of enums,
though everything else in it is sound and other programs read it. Slow, plain, and only called
when the fast reader has failed. Source: thrift's "Compact protocol" specification.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar, cast

from thrift.Thrift import TType

from parquet_bloom.errors import FooterError
from parquet_bloom.formats.thrift.compact_tree import (
    BINARY,
    BYTE,
    DOUBLE,
    FALSE,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    TRUE,
    field_header,
    list_header,
    skip,
    skip_element,
    varint,
)  # fmt: skip

T = TypeVar("T")

_WIRE = {
    TType.BYTE: {BYTE},
    TType.I16: {I16},
    TType.I32: {I32},
    TType.I64: {I64},
    TType.DOUBLE: {DOUBLE},
    TType.STRING: {BINARY},
    TType.LIST: {LIST},
    TType.STRUCT: {STRUCT},
    TType.BOOL: {TRUE, FALSE},
}

_BITS = {TType.I16: 16, TType.I32: 32, TType.I64: 64}


def decode(kind: type[T], data: bytes) -> T:
    """Read one struct, leaving out fields whose type is not the one the definition gives."""
    value, _ = _struct(kind, data, 0, 0)
    return cast("T", value)


def _struct(kind: Any, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > 32:
        raise FooterError(f"Thrift structs nested deeper than 32 at byte {at}")
    value = kind()
    last = 0
    while (header := field_header(data, at, last)) is not None:
        last, wire, start = header
        at = skip(data, start, wire)
        spec = kind.thrift_spec[last] if 0 < last < len(kind.thrift_spec) else None
        if spec is None or wire not in _WIRE.get(spec[1], ()):
            continue
        found = _value(spec[1], spec[3], wire, data, start, depth)
        if found is not None:
            setattr(value, spec[2], found)
    return value, at + 1


def _value(ttype: int, arguments: Any, wire: int, data: bytes, at: int, depth: int) -> Any:
    if ttype == TType.BOOL:
        return wire == TRUE
    if ttype == TType.BYTE:
        return struct.unpack_from("<b", data, at)[0]
    if ttype == TType.DOUBLE:
        return struct.unpack_from("<d", data, at)[0]
    if ttype == TType.STRUCT:
        return _struct(arguments[0], data, at, depth + 1)[0]
    if ttype == TType.LIST:
        return _list(arguments, data, at, depth)
    number, start = varint(data, at)
    if ttype == TType.STRING:
        raw = data[start : start + number]
        return raw if arguments == "BINARY" else raw.decode("utf-8", "replace")
    # Of an integer that is too long for its type the C reader keeps the lower bits; so do we.
    bits = _BITS[ttype]
    return ((number & (1 << bits) - 1) >> 1) ^ -(number & 1)


def _list(arguments: Any, data: bytes, at: int, depth: int) -> list[Any] | None:
    size, wire, at = list_header(data, at)
    if size and wire not in _WIRE.get(arguments[0], ()):
        return None
    items = []
    for _ in range(size):
        if arguments[0] == TType.BOOL:
            items.append(data[at] == TRUE)
        else:
            items.append(_value(arguments[0], arguments[1], wire, data, at, depth))
        at = skip_element(data, at, wire, depth)
    return items
