"""Thrift compact bytes as a tree that may be made wrong, field by field; it knows no Parquet.

    struct  [[id, wire type, value], ...]      list, set  [element type, length that is claimed, [values]]
    map     the rest of the bytes is kept as they are: Parquet has none

Source: thrift's "Compact protocol" specification.
"""

from __future__ import annotations

import random
from typing import Any

from support import naive

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
INTEGERS = (I16, I32, I64)
EDGES = [*range(6), 7, 8, 31, 32, 33, 63, 64, 127, 128, 255, 256, 32767, 32768, 65535, 65536, 2**20, 2**24, 2**27]
EDGES += [2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**48, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**70]


class CutError(ValueError):
    """The bytes end, or are no Thrift."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 70:
            raise CutError
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def parse(data: bytes, at: int = 0) -> tuple[list[Any], int]:
    """A struct and where it ends. Raises CutError."""
    fields: list[Any] = []
    last = 0
    while True:
        if at >= len(data):
            raise CutError
        head = data[at]
        at += 1
        if not head & 0x0F:
            return fields, at
        if head >> 4:
            last += head >> 4
        else:
            raw, at = _varint(data, at)
            last = raw >> 1 ^ -(raw & 1)
        value, at = _value(data, at, head & 0x0F)
        fields.append([last, head & 0x0F, value])


def _value(data: bytes, at: int, wire: int, element: bool = False) -> tuple[Any, int]:
    if wire in (TRUE, FALSE):
        return (Fixed(data[at : at + 1]), at + 1) if element else (wire == TRUE, at)
    if wire == BYTE:
        return Fixed(data[at : at + 1]), at + 1
    if wire in INTEGERS:
        raw, at = _varint(data, at)
        return raw >> 1 ^ -(raw & 1), at
    if wire == DOUBLE:
        return Fixed(data[at : at + 8]), at + 8
    if wire == BINARY:
        length, at = _varint(data, at)
        if at + length > len(data):
            raise CutError
        return data[at : at + length], at + length
    if wire in (LIST, SET):
        if at >= len(data):
            raise CutError
        head = data[at]
        length, at = (head >> 4, at + 1) if head >> 4 < 15 else _varint(data, at + 1)
        values = []
        for _ in range(length):
            if at >= len(data):
                raise CutError
            value, at = _value(data, at, head & 0x0F, element=True)
            values.append(value)
        return [head & 0x0F, None, values], at
    if wire == STRUCT:
        return parse(data, at)
    raise CutError


def encode(fields: list[Any]) -> bytes:
    """The bytes of a struct, as wrong as the tree is."""
    out, last = [], 0
    for id, wire, value in fields:
        wire = (TRUE if value else FALSE) if wire in (TRUE, FALSE) and isinstance(value, bool) else wire
        if 0 < id - last < 16:
            out.append(bytes([(id - last) << 4 | wire & 15]))
        else:
            out.append(bytes([wire & 15]) + naive.varint((id << 1 ^ id >> 63) & (1 << 70) - 1))
        last = id
        out.append(_encoded(value))
    return b"".join([*out, b"\0"])


def _encoded(value: Any) -> bytes:
    if isinstance(value, bool):
        return b""
    if isinstance(value, int):
        return naive.varint((value << 1 if value >= 0 else -value * 2 - 1) & (1 << 75) - 1)
    if isinstance(value, Fixed):
        return bytes(value)
    if isinstance(value, bytes):
        return naive.varint(len(value)) + value
    if value and isinstance(value[0], int):
        kind, claimed, values = value
        length = len(values) if claimed is None else claimed
        head = bytes([length << 4 | kind]) if length < 15 else bytes([0xF0 | kind]) + naive.varint(length)
        return head + b"".join(_encoded(one) for one in values)
    return encode(value)


class Fixed(bytes):
    """Bytes that stand for themselves, without a length: a byte, a double, rubbish."""


def spots(fields: list[Any]) -> list[tuple[list[Any], int]]:
    """Every (list, position) of a field or of a list's element, from the top down."""
    found: list[tuple[list[Any], int]] = []
    waiting = [fields]
    while waiting:
        struct = waiting.pop()
        for i, (_, _, value) in enumerate(struct):
            found.append((struct, i))
            if isinstance(value, list):
                if value and isinstance(value[0], int):
                    for j, one in enumerate(value[2]):
                        found.append((value[2], j))
                        if isinstance(one, list) and not (one and isinstance(one[0], int)):
                            waiting.append(one)
                else:
                    waiting.append(value)
    return found


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes of a struct with a few fields made wrong; random bytes where they are none."""
    try:
        tree, end = parse(data)
    except (CutError, RecursionError):
        return data
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = spots(tree)
        if not places:
            break
        holder, i = rng.choice(places)
        _change(holder, i, rng)
    return encode(tree) + data[end:]


def _change(holder: list[Any], i: int, rng: random.Random) -> None:
    one = holder[i]
    is_struct_s = isinstance(one, list) and len(one) == 3 and isinstance(one[0], int)
    is_field = is_struct_s and not isinstance(one[2], list | None)
    what = rng.random()
    if what < 0.1:
        del holder[i]
    elif what < 0.2:
        holder.insert(rng.randrange(len(holder) + 1), one)
    elif what < 0.25:
        holder[i:i] = [one] * rng.choice((2, 10, 100))
    elif not isinstance(one, list) or not one or not isinstance(one[0], int):
        holder[i] = _other(one, rng)
    elif what < 0.35:
        one[0] = rng.choice((one[0] + 1, one[0] - 1, 0, 1, 15, 16, 100, 32767, 40000))  # an id, or an element's type
    elif what < 0.45 and is_field:
        one[1] = rng.randrange(16)
    elif isinstance(one[2], list) and one[2] and isinstance(one[2][0], int) and what < 0.7:
        one[2][1] = rng.choice((*EDGES[:24], len(one[2][2]) + 1, max(0, len(one[2][2]) - 1)))
    elif what < 0.75 and isinstance(one[2], list):
        one[2] = Fixed(bytes(rng.randrange(256) for _ in range(rng.randrange(20))))
    else:
        one[2] = _other(one[2], rng)


def _other(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = (value + 1, value - 1, -value, value ^ 1 << rng.randrange(63))
        return rng.choice((*EDGES, *(-edge for edge in EDGES), *near))
    if isinstance(value, Fixed):
        return Fixed(flipped(value, rng, 1))
    if isinstance(value, bytes):
        if not value or rng.random() < 0.2:
            return bytes(rng.randrange(256) for _ in range(rng.choice((0, 1, 4, 8, 100))))
        return flipped(value, rng)
    return value


def flipped(data: bytes, rng: random.Random, times: int = 0) -> bytes:
    """A few bytes changed, cut out or put in."""
    out = bytearray(data)
    for _ in range(times or rng.choice((1, 1, 2, 4, 12))):
        if not out:
            break
        at = rng.randrange(len(out))
        what = rng.random()
        if what < 0.7:
            out[at] = rng.choice((rng.randrange(256), out[at] ^ 1 << rng.randrange(8), 0, 255, 128, 127))
        elif what < 0.8:
            del out[at : at + rng.choice((1, 1, 4, 50))]
        elif what < 0.9:
            out[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 2, 8))))
        elif what < 0.95:
            out[at:at] = out[at : at + rng.randrange(1, 64)]
        else:
            del out[at:]
    return bytes(out)
