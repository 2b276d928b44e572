"""A loop over Thrift compact bytes that copies nested lists of structs and changes integers in them.

It knows no Parquet: a table of actions says, for every kind of struct and every field id, what to do.

    rows:  list<struct A>, A has list<struct B>, B has structs C, D ...   values[slot, a, b]

Every byte that is not changed is copied as it is, an odd varint too. The header of a field is written again
only where the field before it came or went, because a short header counts from that field's id. The result is
what format.compact_tree gives for the same edit. Whatever it does not expect ends it
with -1, and the caller takes the tree, which says what is wrong. Source: thrift's "Compact protocol" specification.
"""

from __future__ import annotations

import numpy as np
from numba import int64, njit, types, uint64

from parquet_bloom.kernels.compact_walk import FIELDS, _skip, _varint
from parquet_bloom.kernels.compiler import kernel

# Kinds of action, actions[kind, field, 0]; the argument is actions[kind, field, 1].
COPY, MOVE, SET, MOVE_OR_SET, ENTER, OUTER = 0, 1, 2, 3, 4, 5
KEEP, DROP = np.iinfo(np.int64).min, np.iinfo(np.int64).min + 1
FIELD_BYTES = 14  # the most that a new field takes: a header of an id below 2^15, and ten bytes of varint
_DEPTH = 32
_MOST_ID = (1 << 15) - 1
_I64, _STRUCT = 6, 12
_MAGIC_END = 4  # offsets below this are not moved, see format.edits.Moves
_MOST_MOVED = 1 << 62

_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_OUT = types.Array(types.uint8, 1, "C")
_TABLE = types.Array(types.int64, 3, "C", readonly=True)
_STEPS = types.Array(types.int64, 1, "C", readonly=True)


@njit(inline="never")
def _put_varint(out, o, value):  # type: ignore[no-untyped-def]
    while value > uint64(0x7F):
        out[o] = np.uint8(value & uint64(0x7F)) | np.uint8(0x80)
        value >>= uint64(7)
        o += 1
    out[o] = np.uint8(value)
    return o + 1


@njit(inline="never")
def _put_header(out, o, field, previous, wire):  # type: ignore[no-untyped-def]
    """A field's header: the short form where the id is at most 15 more than that of the field before it."""
    if 0 < field - previous <= 15:
        out[o] = np.uint8((field - previous) << 4 | wire)
        return o + 1
    out[o] = np.uint8(wire)
    return _put_varint(out, o + 1, uint64(field) << uint64(1))


@njit(inline="never")
def _put_zigzag(out, o, value):  # type: ignore[no-untyped-def]
    return _put_varint(out, o, (uint64(value) << uint64(1)) ^ uint64(value >> 63))


@njit(inline="never")
def _put_new(out, o, actions, kind, values, a, b, first, stop, previous):  # type: ignore[no-untyped-def]
    """Write the fields with ids [first, stop) that are to be set and were not there; (next offset, last id written)."""
    for field in range(first, min(stop, FIELDS)):
        if actions[kind, field, 0] in (SET, MOVE_OR_SET):
            value = values[actions[kind, field, 1], a, b]
            if value not in (KEEP, DROP):
                o = _put_header(out, o, field, previous, actions[kind, field, 2])
                o = _put_zigzag(out, o, value)
                previous = int64(field)
    return o, previous


@kernel(types.UniTuple(types.int64, 2)(_BYTES, types.int64, types.int64, _TABLE, _TABLE, _STEPS, _STEPS, _OUT))
def edit(data, at, n_outer, actions, values, positions, totals, out):  # type: ignore[no-untyped-def]
    """Copy `n_outer` structs of kind 0 that begin at `at`, edited; returns where they end in data and in out, or -1.

    data       uint8[n]
    actions    int64[kinds, FIELDS, 3]: what to do, its argument (slot or kind), the wire type expected. MOVE maps an
               i64 through the steps; SET gives an integer the value of a slot, be it there or not, and
               MOVE_OR_SET moves it where the slot has none; ENTER goes into a struct; OUTER into the list of
               structs that make a row of values, of values.shape[2] elements
    values     int64[slots, n_outer, n_inner]; KEEP leaves the field as it is, DROP takes it out
    positions  int64[steps], rising, and
    totals     int64[steps]: an offset from positions[i] on, and before the next, grows by totals[i]
    out        uint8, longer than the result can be: the bytes, and FIELD_BYTES for every field that may be set or moved
    """
    # What holds at each turn of the loop:
    # - out[:o] is the edit of all that was read. The caller made `out` so long that no store needs a check: a field is
    #   copied, or is one of those that FIELD_BYTES are there for.
    # - data[at] begins a field's header, or ends a struct; (a, b) is the element of `values` that fields belong to.
    # - In the structs that are open, last[] is the id of the field read before and written[] of the one written before.
    #   They differ just behind a field that came or went, and then a short header, which counts from the id before it,
    #   must be made anew.
    # - Ids rise in what is read. So all fields to be set with smaller ids than the next one are put before it, and ids
    #   rise in what is written.
    stop, o = int64(len(data)), int64(0)
    n_inner = values.shape[2]
    # Of each level: kind, last id read and last id written, elements left, and whether these are rows of values.
    kinds, last, left = np.zeros(_DEPTH, np.int64), np.zeros(_DEPTH, np.int64), np.zeros(_DEPTH, np.int64)
    written = np.zeros(_DEPTH, np.int64)
    rows = np.zeros(_DEPTH, np.bool_)
    left[0] = n_outer
    depth = 0
    stack = np.empty((_DEPTH, 2), np.int64)
    a, b = int64(0), int64(0)
    if n_outer == 0:
        return int64(at), o
    while depth >= 0:
        if at >= stop:
            return int64(-1), o
        begin = at
        byte = int64(data[at])
        at += 1
        kind = kinds[depth]
        if byte == 0:  # the end of a struct: what is to be set, and has a larger id than all that was there, goes in
            o, written[depth] = _put_new(out, o, actions, kind, values, a, b, last[depth] + 1, FIELDS, written[depth])
            out[o] = 0
            o += 1
            left[depth] -= 1
            last[depth] = written[depth] = 0
            if depth == 0:
                a += 1
                b = int64(0)
            elif rows[depth]:
                b += 1
            if left[depth] == 0:
                depth -= 1
                if depth == 0:
                    b = int64(0)
            continue
        wire = byte & 15
        if byte >> 4:
            field = last[depth] + (byte >> 4)
        else:
            raw, at = _varint(data, at, stop)
            if at < 0:
                return int64(-1), o
            field = int64(raw >> uint64(1)) ^ -int64(raw & uint64(1))
        if field <= last[depth] or field > _MOST_ID:  # every writer goes up
            return int64(-1), o
        o, written[depth] = _put_new(out, o, actions, kind, values, a, b, last[depth] + 1, field, written[depth])
        action, argument = int64(COPY), int64(0)
        if field < FIELDS:
            action, argument = actions[kind, field, 0], actions[kind, field, 1]
            if action != COPY and wire != actions[kind, field, 2]:  # another program's field under this id
                return int64(-1), o
        start = at  # of the value
        value = int64(KEEP)
        if action in (SET, MOVE_OR_SET):
            value = values[argument, a, b]
        if value != DROP:
            # A long header where a short one would do names the id itself, so it holds behind any field.
            by_choice = byte >> 4 == 0 and field - last[depth] <= 15
            if written[depth] == last[depth] or by_choice:
                for i in range(begin, start):
                    out[o] = data[i]
                    o += 1
            else:
                o = _put_header(out, o, field, written[depth], wire)
            written[depth] = field
        last[depth] = field
        if action in (ENTER, OUTER):  # the header is written; fields inside are met one by one
            size = int64(1)
            if action == OUTER:
                if at >= stop:
                    return int64(-1), o
                head = int64(data[at])
                at += 1
                size = head >> 4
                if size == 15:
                    raw, at = _varint(data, at, stop)
                    if at < 0 or raw != uint64(n_inner):
                        return int64(-1), o
                    size = int64(raw)
                if head & 15 != _STRUCT or size != n_inner:
                    return int64(-1), o
                for i in range(start, at):
                    out[o] = data[i]
                    o += 1
                b = int64(0)
            if size:
                depth += 1
                if depth == _DEPTH:
                    return int64(-1), o
                kinds[depth], last[depth], written[depth] = argument, 0, 0
                left[depth], rows[depth] = size, action == OUTER
            continue
        if action == MOVE or (action == MOVE_OR_SET and value == KEEP):
            raw, at = _varint(data, at, stop)
            if at < 0 or (at - start == 10 and data[at - 1] > 1):  # over 64 bits: it could not be written back
                return int64(-1), o
            old = int64(raw >> uint64(1)) ^ -int64(raw & uint64(1))
            if old > _MOST_MOVED:
                return int64(-1), o
            step = np.searchsorted(positions, old, side="right")
            if old >= _MAGIC_END and step > 0 and totals[step - 1] != 0:
                o = _put_zigzag(out, o, old + totals[step - 1])
                continue  # one that stays is copied below, with whatever varint it has
        else:
            at = _skip(data, at, stop, wire, stack)
            if at < 0:
                return int64(-1), o
        if value == DROP:
            continue
        if value != KEEP:
            o = _put_zigzag(out, o, value)
            continue
        for i in range(start, at):
            out[o] = data[i]
            o += 1
    return int64(at), o
