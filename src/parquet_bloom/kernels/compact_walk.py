"""A walk over Thrift compact bytes that picks integers and spans out of nested lists of structs.

It knows no Parquet: a table of actions says, for every kind of struct and every field id, what to do.

    rows:  list<struct A>, A has list<struct B>, B has structs C, D ...   out[slot, a, b]

Whatever it does not expect (another wire type in a field that it wants, a cut-off value, a list of
another length) ends the walk with -1, and the caller takes the slow reader, which says what is wrong.
Source: thrift's "Compact protocol" specification.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, types, uint64

from parquet_bloom.kernels.compiler import kernel

# Kinds of action, actions[kind, field, 0]; the argument is actions[kind, field, 1].
SKIP, STORE, SPAN, ENTER, OUTER, STOP_ALL, SPAN_IF = 0, 1, 2, 3, 4, 5, 6
FIELDS = 32  # ids from here on are skipped
_DEPTH = 32  # of lists and structs in each other; a footer needs far fewer
_MOST_ID = (1 << 15) - 1  # ids are i16
# Types of the compact protocol; 11 is a map, 13 a uuid.
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_ACTIONS = types.Array(types.int64, 3, "C", readonly=True)
_LISTS = types.Array(types.int64, 2, "C", readonly=True)
_OUT1 = types.Array(types.int64, 2, "C")
_OUT2 = types.Array(types.int64, 3, "C")


# The header of a list is read in three places below, each time in place. A function that returns its size, type and
# offset makes the walk of a footer twice as slow (numba 0.68, also with inline="always").


@njit(inline="never")
def _varint(data, at, stop):  # type: ignore[no-untyped-def]
    """Returns (value, next offset); the offset is -1 where the bytes end, or the value goes on after ten of them."""
    # Ten bytes carry 70 bits. Those over 64 fall off here, as they do in thrift's C reader: both read the same number.
    value, shift = uint64(0), uint64(0)
    while at < stop and shift < 64:
        b = data[at]
        at += 1
        value |= uint64(b & 0x7F) << shift
        if b < 0x80:
            return value, at
        shift += uint64(7)
    return value, int64(-1)


@njit(inline="never")
def _skip(data, at, stop, wire, stack):  # type: ignore[no-untyped-def]
    """Pass over the value of a field of some wire type; returns the next offset, or -1.

    stack  int64[_DEPTH, 2], scratch: values left and their type, 0 for the fields of a struct
    """
    if wire == 0:  # no type; below, 0 stands for a struct's fields
        return int64(-1)
    if wire in (_TRUE, _FALSE):
        return at
    # Levels 0 .. depth of the stack are the lists and structs that are open, the innermost last; level 0 is a list of
    # the one value asked for. A turn takes one value, or the end of a level. It comes to an end, because a list is
    # refused that has more elements than bytes are left, and each element takes one at least. `at` is never past `stop`
    # when a turn begins. Maps are not expected: parquet.thrift has none, and the slow reader knows them.
    depth = 0
    stack[0, 0], stack[0, 1] = 1, wire
    while depth >= 0:
        kind = stack[depth, 1]
        if kind == 0:  # in a struct: the next field's header, or its end
            if at >= stop:
                return int64(-1)
            b = int64(data[at])
            at += 1
            if b == 0:
                depth -= 1
                continue
            if b >> 4 == 0:  # the long form; which id it is does not matter here
                _, at = _varint(data, at, stop)
                if at < 0:
                    return int64(-1)
            kind = b & 15
            if kind in (_TRUE, _FALSE):  # a field's header is its value; a list's element takes a byte
                continue
        elif stack[depth, 0] == 0:
            depth -= 1
            continue
        else:
            stack[depth, 0] -= 1
        if _I16 <= kind <= _I64:
            _, at = _varint(data, at, stop)
            if at < 0:
                return int64(-1)
        elif kind == _BINARY:
            n, at = _varint(data, at, stop)
            if at < 0 or n > uint64(stop - at):
                return int64(-1)
            at += int64(n)
        elif kind in (_LIST, _SET, _STRUCT):
            size, inner = uint64(1), int64(0)
            if kind != _STRUCT:
                if at >= stop:
                    return int64(-1)
                b = int64(data[at])
                at += 1
                size, inner = uint64(b >> 4), b & 15
                if size == 15:
                    size, at = _varint(data, at, stop)
                    if at < 0:
                        return int64(-1)
                if size > uint64(stop - at) or inner == 0:  # no type 0: on the stack it means a struct's fields
                    return int64(-1)
            depth += 1
            if depth == _DEPTH:
                return int64(-1)
            stack[depth, 0], stack[depth, 1] = int64(size), inner
        elif kind in (_TRUE, _FALSE, _BYTE):
            at += 1
        elif kind == _DOUBLE:
            at += 8
        else:
            return int64(-1)
        if at > stop:
            return int64(-1)
    return at


@kernel(types.int64(_BYTES, types.int64, types.int64))
def end_of(data, at, wire):  # type: ignore[no-untyped-def]
    """Find the end of a field's value that begins at `at`; -1 where the bytes are not one."""
    return _skip(data, at, int64(len(data)), wire, np.empty((_DEPTH, 2), np.int64))


@njit(inline="never")
def _is_pairs(data, at, stop, wire):  # type: ignore[no-untyped-def]
    """Whether the value at `at`, which ends at `stop`, is a list of structs of a text, or of two, as fields 1 and 2."""
    if wire != _LIST or at >= stop:
        return False
    head = int64(data[at])
    at += 1
    size = uint64(head >> 4)
    if size == 15:
        size, at = _varint(data, at, stop)
        if at < 0:
            return False
    if size > uint64(stop - at) or (size > 0 and head & 15 != _STRUCT):
        return False
    for _ in range(int64(size)):
        texts = 0
        while True:
            if at >= stop:
                return False
            byte = data[at]
            at += 1
            if byte == 0:
                break
            if texts == 2 or byte != 0x10 | _BINARY:  # the next id, and a text
                return False
            texts += 1
            n, at = _varint(data, at, stop)
            if at < 0 or n > uint64(stop - at):
                return False
            at += int64(n)
        if texts == 0:
            return False
    return at == stop


@kernel(types.void(_BYTES, _LISTS, types.int64, types.int64, types.int64, _OUT2))
def fields_of(data, structs, last, until, pairs, fields):  # type: ignore[no-untyped-def]
    """Find the fields of several structs, or some of them.

    data     uint8[..]
    structs  int64[2, n]: of each struct where the header of its first field lies, or of that behind `last`, and where
             its bytes end at the latest
    last     the id of the field before these; 0 at the start of a struct
    until    the id of a field behind which nothing is looked at, nor is its own value; 0: none
    pairs    the id of a field that should be a list of pairs of texts, of which the second may be missing; 0: none
    fields   int64[n, ids, 3]: the wire type of each field, and where its value starts and ends; 0 where there is none.
             fields[i, 0] is -1 for a struct that is not sound; else 0, the largest id, and 1 where `pairs` is no such
             list
    """
    stack = np.empty((_DEPTH, 2), np.int64)
    for i in range(fields.shape[0]):
        fields[i] = 0
        at, stop, id = structs[0, i], structs[1, i], last
        sound = False
        while 0 <= at < stop:
            byte = int64(data[at])
            at += 1
            if byte == 0:
                sound = True
                break
            if byte >> 4:  # short form: the step from the last id, and the type
                id += byte >> 4
            else:  # long form: the id itself follows, zigzag
                raw, at = _varint(data, at, stop)
                before = id
                id = int64(raw >> uint64(1)) ^ -int64(raw & uint64(1))
                if at < 0 or id <= before:
                    break
            if id > _MOST_ID:
                break
            is_known = id < fields.shape[1]
            fields[i, 0, 1] = id
            if is_known:
                fields[i, id, 0], fields[i, id, 1] = byte & 15, at
            if id == until:
                sound = True
                break
            end = _skip(data, at, stop, byte & 15, stack)
            if end < 0:
                break
            if id == pairs and not _is_pairs(data, at, end, byte & 15):
                fields[i, 0, 2] = 1
            if is_known:
                fields[i, id, 2] = end
            at = end
        if not sound:
            fields[i, 0, 0] = -1


@kernel(types.void(_BYTES, _LISTS, _ACTIONS, _OUT1, _OUT2, types.int64[::1]))
def walk_each(data, lists, actions, outer, inner, ends):  # type: ignore[no-untyped-def]
    """Walk structs of kind 0 in several places; ends, int64[n], are where they end, or -1.

    data     uint8[..]
    lists    int64[4, n]: of each place what spans count from, where its first struct begins, where its bytes end, and
             how many structs there are
    actions  int64[kinds, FIELDS, 3]: what to do, its argument (slot or kind), the wire type expected.
             ENTER goes into a struct; OUTER into the list of structs that make a row of `inner`, which
             must have inner.shape[2] elements; SPAN_IF takes the span of a whole value of the wire type
             expected, and skips any other
    outer    int64[slots, n_outer]; STORE in kind 0 goes here
    inner    int64[slots, n_outer, n_inner]; STORE and the spans (offset, length: two slots) in other kinds
    """
    first = int64(0)
    for i in range(len(ends)):
        base, at, stop, n = lists[0, i], lists[1, i], lists[2, i], lists[3, i]
        ends[i] = _walk(data, base, at, stop, first, n, actions, outer, inner)
        first += n


@njit(inline="never")
def _walk(data, base, at, stop, first, n_outer, actions, outer, inner):  # type: ignore[no-untyped-def]
    """Walk the structs of one place; the first of them is element `first` of `outer` and `inner`."""
    # Three things hold at each turn of the loop. `at` is at most `stop`, and it is where a field's header or a
    # struct's end begins. (a, b) is the element of `outer` and `inner` that fields belong to now. Levels 0 .. depth of
    # the arrays below describe the structs that are open, the innermost last; there is no recursion.
    n_inner = inner.shape[2]
    # Of each level: kind, last field, elements left, and whether these are rows of inner.
    kinds, last, left = np.zeros(_DEPTH, np.int64), np.zeros(_DEPTH, np.int64), np.zeros(_DEPTH, np.int64)
    rows = np.zeros(_DEPTH, np.bool_)
    rows[0], left[0] = True, n_outer
    depth = 0
    stack = np.empty((_DEPTH, 2), np.int64)
    a, b = int64(first), int64(0)
    if n_outer == 0:
        return int64(at)
    while depth >= 0:
        if at >= stop:
            return int64(-1)
        byte = int64(data[at])
        at += 1
        if byte == 0:  # the end of a struct: the next element of its list begins, or the level closes
            left[depth] -= 1
            last[depth] = 0  # field ids count from 0 in each struct
            if depth == 0:
                a += 1
            elif rows[depth]:
                b += 1
            if left[depth] == 0:
                depth -= 1
            continue
        wire = byte & 15
        if byte >> 4:  # short form: the step from the last id, and the type
            field = last[depth] + (byte >> 4)
        else:  # long form: the id itself follows, zigzag
            raw, at = _varint(data, at, stop)
            if at < 0:
                return int64(-1)
            field = int64(raw >> uint64(1)) ^ -int64(raw & uint64(1))
        # Every writer goes up; two of one field would be two opinions, and ids have 16 bits.
        if field <= last[depth] or field > _MOST_ID:
            return int64(-1)
        last[depth] = field
        kind = kinds[depth]
        action, argument = int64(SKIP), int64(0)
        if 0 <= field < FIELDS:
            action, argument = actions[kind, field, 0], actions[kind, field, 1]
            if wire != actions[kind, field, 2] and action == SPAN_IF:
                action = int64(SKIP)
            # A wanted field of another type ends the walk: the slow reader decides what the file means by it.
            if action == STOP_ALL or (action != SKIP and wire != actions[kind, field, 2]):
                return int64(-1)
        if action == SKIP:
            at = _skip(data, at, stop, wire, stack)
            if at < 0:
                return int64(-1)
        elif action == SPAN_IF:
            start = at
            at = _skip(data, at, stop, wire, stack)
            if at < 0:
                return int64(-1)
            inner[argument, a, b] = start - base
            inner[argument + 1, a, b] = at - start
        elif action == STORE:
            raw, at = _varint(data, at, stop)
            if at < 0 or (wire == _I32 and raw >> uint64(32)):  # more bits than the type has: readers differ
                return int64(-1)
            value = int64(raw >> uint64(1)) ^ -int64(raw & uint64(1))
            if depth == 0:
                outer[argument, a] = value
            else:
                inner[argument, a, b] = value
        elif action == SPAN:
            size, at = _varint(data, at, stop)
            if at < 0 or size > uint64(stop - at):
                return int64(-1)
            inner[argument, a, b] = at - base
            inner[argument + 1, a, b] = int64(size)
            at += int64(size)
        elif action == ENTER:  # a struct of its own: one element, which does not move b
            depth += 1
            if depth == _DEPTH:
                return int64(-1)
            kinds[depth], last[depth], left[depth], rows[depth] = argument, 0, 1, False
        else:  # OUTER: the list whose elements are the columns of `inner`
            if at >= stop:
                return int64(-1)
            head = int64(data[at])
            at += 1
            size = uint64(head >> 4)
            if size == 15:
                size, at = _varint(data, at, stop)
                if at < 0:
                    return int64(-1)
            # Row groups of different widths do not fit one array, and no sound file has them.
            if head & 15 != _STRUCT or size != uint64(n_inner):
                return int64(-1)
            b = int64(0)
            if n_inner:
                depth += 1
                if depth == _DEPTH:
                    return int64(-1)
                kinds[depth], last[depth], left[depth], rows[depth] = argument, 0, n_inner, True
    return at
