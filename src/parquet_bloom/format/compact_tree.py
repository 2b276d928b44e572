"""Thrift compact bytes as a tree that keeps everything, for structs the bindings cannot re-encode.

Only the structs on the way to a field that an edit may touch are opened; every other value stays
the span of bytes it was, whatever its meaning:

    FileMetaData  [1 raw] [2 raw] [4 -> RowGroup, RowGroup, ...] [5 -> KeyValue, ...] [32767 raw]

An unchanged tree encodes to the bytes it came from, non-minimal varints included; after an edit
only the changed values, and the field headers beside an added or dropped field, are written again.
Source: thrift's "Compact protocol" specification.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from parquet_bloom.errors import FooterError, FooterLimitError, parameter
from parquet_bloom.options import limits

# --- field ids of the footer's structs, by their names in parquet.thrift ---------------------------
#
#     FileMetaData 4 row_groups -> RowGroup 1 columns -> ColumnChunk 3 meta_data -> ColumnMetaData 12 statistics
#
# Only the fields that code which reads or edits Thrift bytes names. A test compares them with the generated bindings.


class FileMetaDataId:
    """Fields of FileMetaData."""

    schema, num_rows, row_groups, key_value_metadata, created_by, column_orders = 2, 3, 4, 5, 6, 7


class RowGroupId:
    """Fields of RowGroup."""

    columns, num_rows, file_offset, ordinal = 1, 3, 5, 7


class ColumnChunkId:
    """Fields of ColumnChunk."""

    file_path, file_offset, meta_data = 1, 2, 3
    offset_index_offset, offset_index_length, column_index_offset, column_index_length = 4, 5, 6, 7
    crypto_metadata, encrypted_column_metadata = 8, 9


class ColumnMetaDataId:
    """Fields of ColumnMetaData."""

    type, encodings, codec, num_values = 1, 2, 4, 5
    total_uncompressed_size, total_compressed_size, key_value_metadata = 6, 7, 8
    data_page_offset, index_page_offset, dictionary_page_offset = 9, 10, 11
    statistics, bloom_filter_offset, bloom_filter_length = 12, 14, 15


class StatisticsId:
    """Fields of Statistics. In the draft of 2015, field 7 was a Bloom filter, and a struct."""

    max, min, null_count, distinct_count, max_value, min_value = 1, 2, 3, 4, 5, 6
    is_max_value_exact, is_min_value_exact, nan_count = 7, 8, 9


class KeyValueId:
    """Fields of KeyValue."""

    key, value = 1, 2


class OffsetIndexId:
    """Fields of OffsetIndex."""

    page_locations = 1


class PageLocationId:
    """Fields of PageLocation."""

    offset = 1


# Types of the compact protocol. A bool has two, because the header of its field is its value.
TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
STOP = b"\0"  # ends a struct
_MAX_DEPTH = 64

# Which fields are opened: id -> the same for the structs below it.
Template = dict[int, Any]


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read an unsigned integer: (value, where it ends). Raises FooterError."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise FooterError(f"Thrift integer at byte {at} is cut or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _write_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _zigzag(value: int) -> bytes:
    return _write_varint((value << 1) ^ (value >> 63) if value < 0 else value << 1)


def skip(data: bytes, at: int, wire: int, depth: int = 0) -> int:
    """Find where the value that starts at `at` ends."""
    if I16 <= wire <= I64 and at < len(data) and data[at] < 0x80:  # most values of a footer
        return at + 1
    if depth > _MAX_DEPTH:
        raise FooterError(f"Thrift values nested deeper than {_MAX_DEPTH} at byte {at}")
    if wire in (TRUE, FALSE):
        return at
    if wire == BYTE:
        end = at + 1
    elif wire in (I16, I32, I64):
        _, end = varint(data, at)
    elif wire == DOUBLE:
        end = at + 8
    elif wire == UUID:
        end = at + 16
    elif wire == BINARY:
        length, at = varint(data, at)
        end = at + length
        if length > limits().max_string_bytes and end <= len(data):
            most = parameter("max_string_bytes") + f", {limits().max_string_bytes}"
            raise FooterLimitError(f"a text of {length} bytes is over " + most)
    elif wire in (LIST, SET):
        size, kind, end = list_header(data, at)
        for _ in range(size):
            end = skip_element(data, end, kind, depth)
    elif wire == MAP:
        end = _skip_map(data, at, depth)
    elif wire == STRUCT:
        last, end = 0, at
        while (header := field_header(data, end, last)) is not None:
            last, kind, end = header
            end = skip(data, end, kind, depth + 1)
        end += 1
    else:
        raise FooterError(f"Thrift type {wire} at byte {at} does not exist")
    if end > len(data):
        raise FooterError(f"Thrift value at byte {at} ends at {end}, past the {len(data)} bytes there are")
    return end


def _skip_map(data: bytes, at: int, depth: int) -> int:
    size, end = varint(data, at)
    if size:  # an empty map has no byte of types
        kinds = _byte(data, end)
        end += 1
        for _ in range(size):
            end = skip_element(data, end, kinds >> 4, depth)
            end = skip_element(data, end, kinds & 15, depth)
    return end


def skip_element(data: bytes, at: int, kind: int, depth: int) -> int:
    """Find where an element of a list, set or map ends."""
    if kind in (TRUE, FALSE):  # inside a container a bool is a byte
        _byte(data, at)
        return at + 1
    return skip(data, at, kind, depth + 1)


def _byte(data: bytes, at: int) -> int:
    if at >= len(data):
        raise FooterError(f"Thrift bytes end at {len(data)}, in the middle of a value")
    return data[at]


def list_header(data: bytes, at: int) -> tuple[int, int, int]:
    """Read the head of a list: (elements, their type, where the first begins). Raises FooterError."""
    byte = _byte(data, at)
    size, at = byte >> 4, at + 1
    if size == 15:  # 15 or more elements: their number follows
        size, at = varint(data, at)
    if size > len(data):
        raise FooterError(f"Thrift list of {size} elements in {len(data)} bytes")
    if size > limits().max_list_elements:
        most = parameter("max_list_elements") + f", {limits().max_list_elements}"
        raise FooterLimitError(f"a list of {size} elements is over " + most)
    return size, byte & 15, at


def list_of_structs(count: int) -> bytes:
    """The header of a list of so many structs."""
    return bytes([count << 4 | STRUCT]) if count < 15 else bytes([0xF0 | STRUCT]) + _write_varint(count)


def first_field(id: int, wire: int) -> bytes:
    """The header of the first field of a struct, of an id up to 15: its delta counts from 0."""
    return bytes([id << 4 | wire])


def field_header(data: bytes, at: int, last: int) -> tuple[int, int, int] | None:
    """Read the head of a field: (id, type, where the value begins); None at the end of the struct."""
    byte = _byte(data, at)
    if byte == 0:
        return None
    at += 1
    # Short form: the upper four bits are the delta from the id before, 1 to 15. Long form: they are 0, and the id
    # itself follows as a zigzag varint. The lower four bits are the type in both.
    if byte >> 4:
        return last + (byte >> 4), byte & 15, at
    number, at = varint(data, at)
    return (number >> 1) ^ -(number & 1), byte & 15, at


@dataclass(slots=True)
class _Field:
    id: int
    wire: int
    previous: int  # the id that the header's delta counts from
    header: bytes
    value: bytes | Node | NodeList

    def encode(self, previous: int) -> bytes:
        # A header stays as it was written while its delta counts from the same field, or needs none. Otherwise a
        # field before it came or went, and the header is written again: short where the delta fits four bits.
        long_by_choice = self.header and not self.header[0] >> 4 and 0 < self.id - self.previous <= 15
        if previous == self.previous or long_by_choice:  # the long form names the id, so it holds anywhere
            return self.header
        if 0 < self.id - previous <= 15:
            return bytes([(self.id - previous) << 4 | self.wire])
        return bytes([self.wire]) + _zigzag(self.id)


@dataclass(slots=True)
class NodeList:
    """A list of structs whose elements are opened."""

    header: bytes
    size: int
    items: list[Node]

    def encode(self) -> bytes:
        """The bytes of the list; those it came from, if nothing was changed."""
        count = len(self.items)
        head = self.header
        if count != self.size:
            head = list_of_structs(count)
        return head + b"".join(item.encode() for item in self.items)


@dataclass(slots=True)
class Node:
    """A struct: its fields in the order they were written."""

    fields: list[_Field] = field(default_factory=list)

    def _find(self, number: int) -> _Field | None:
        # Of a field that is given twice readers take the last.
        return next((f for f in reversed(self.fields) if f.id == number), None)

    def get(self, number: int) -> Any:
        """Give an integer, a text, a Node or the list of Nodes in field `number`; None if absent."""
        found = self._find(number)
        if found is None:
            return None
        if isinstance(found.value, NodeList):
            return found.value.items
        if isinstance(found.value, Node):
            return found.value
        if found.wire in (I16, I32, I64):
            raw, _ = varint(found.value, 0)
            return (raw >> 1) ^ -(raw & 1)
        if found.wire == BINARY:
            _, start = varint(found.value, 0)
            return found.value[start:].decode("utf-8", "replace")
        return found.value

    def wire(self, number: int) -> int | None:
        """The Thrift type of field `number` as it was written; None if it is absent."""
        found = self._find(number)
        return found.wire if found is not None else None

    def put(self, number: int, value: int | str | bytes, wire: int = I64) -> None:
        """Set an integer, a text or bytes; a field that is new goes where its id belongs."""
        if isinstance(value, str | bytes):
            wire, raw = BINARY, value.encode() if isinstance(value, str) else value
            raw = _write_varint(len(raw)) + raw
        else:
            raw = _zigzag(value)
        found = self._find(number)
        if found is not None:
            found.value = raw
            if found.wire != wire:  # whatever was there, it was not what the format says
                # -1 is no field's id, so `encode` writes a new header.
                found.wire, found.previous, found.header = wire, -1, b""
            return
        self._insert(number, wire, raw)

    def put_list(self, number: int, items: list[Node]) -> None:
        """Set a list of structs that was not there."""
        self._insert(number, LIST, NodeList(b"", -1, items))

    def put_struct(self, number: int) -> Node:
        """Set a struct that was not there, without fields, and return it."""
        new = Node()
        self._insert(number, STRUCT, new)
        return new

    def _insert(self, number: int, wire: int, value: bytes | Node | NodeList) -> None:
        at = next((i for i, f in enumerate(self.fields) if f.id > number), len(self.fields))
        self.fields.insert(at, _Field(number, wire, -1, b"", value))

    def drop(self, number: int) -> None:
        """Remove a field, if it is there."""
        self.fields = [f for f in self.fields if f.id != number]

    def encode(self) -> bytes:
        """The struct's bytes."""
        parts: list[bytes] = []
        previous = 0
        for f in self.fields:
            parts.append(f.encode(previous))
            parts.append(f.value if isinstance(f.value, bytes) else f.value.encode())
            previous = f.id
        return b"".join(parts) + b"\x00"


def _may_be_structs(data: bytes, at: int) -> bool:
    size, kind, _ = list_header(data, at)
    return kind == STRUCT or not size  # some writers say "no elements, of no type"


def parse(data: bytes, template: Template, at: int = 0) -> tuple[Node, int]:
    """Open the struct at `at` and, below it, what template names; return it and where it ends.

    Raises FooterError where the bytes are not Thrift compact.
    """
    node, last = Node(), 0
    while (header := field_header(data, at, last)) is not None:
        number, wire, start = header
        below = template.get(number)
        value: bytes | Node | NodeList
        if below is not None and wire == STRUCT:
            value, end = parse(data, below, start)
        elif below is not None and wire == LIST and _may_be_structs(data, start):
            size, _, end = list_header(data, start)
            items, head = [], data[start:end]
            for _ in range(size):
                item, end = parse(data, below, end)
                items.append(item)
            value = NodeList(head, size, items)
        else:
            end = skip(data, start, wire)
            value = data[start:end]
        node.fields.append(_Field(number, wire, last, data[at:start], value))
        last, at = number, end
    return node, at + 1


# --- odd fields -----------------------------------------------------------------------------------
#
# Fields of a footer that the generated bindings drop, as their type is not that of today's format.

FILTER_FIELDS = {ColumnMetaDataId.bloom_filter_offset: I64, ColumnMetaDataId.bloom_filter_length: I32}  # with types
DRAFT_FILTER_FIELD = StatisticsId.is_max_value_exact  # a bool; in the draft of 2015 a struct, with the filter
# How a filter of 2015 ends: three i32, of which numBits takes more than one byte. The bindings drop it, and
# to look for it in every footer's tree would take longer than reading the footer.
DRAFT_FILTER = re.compile(rb"\x15[\x80-\xff]{1,4}[\0-\x7f]\x15[\x80-\xff]{0,4}[\0-\x7f]\x15[\x80-\xff]{0,4}[\0-\x7f]\0")


def draft_structs(data: bytes) -> dict[tuple[int, int], bytes]:
    """The structs in field 7 of every chunk's Statistics, by (row group, column), as they lie in a footer."""
    found = {}
    try:
        for key, meta in _chunk_metas(data, {ColumnMetaDataId.statistics: {}}):
            statistics = meta.get(ColumnMetaDataId.statistics)
            if isinstance(statistics, Node) and statistics.wire(DRAFT_FILTER_FIELD) == STRUCT:
                found[key] = statistics.get(DRAFT_FILTER_FIELD)
    except FooterError:  # only the lenient reader takes it
        return {}
    return found


def foreign_filter_fields(data: bytes) -> set[tuple[int, int]]:
    """The (row group, column) whose ColumnMetaData 14 or 15 has another type than a filter's offset or length."""
    return {
        key
        for key, meta in _chunk_metas(data, {})
        if any(f.wire != FILTER_FIELDS.get(f.id, f.wire) for f in meta.fields)
    }


def _chunk_metas(data: bytes, template: Template) -> Iterator[tuple[tuple[int, int], Node]]:
    """The ColumnMetaData of every chunk that has one, opened as the template says."""
    chunks = {RowGroupId.columns: {ColumnChunkId.meta_data: template}}
    footer, _ = parse(data, {FileMetaDataId.row_groups: chunks})
    for i, group in enumerate(_opened(footer.get(FileMetaDataId.row_groups))):
        for j, chunk in enumerate(_opened(group.get(RowGroupId.columns))):
            meta = chunk.get(ColumnChunkId.meta_data)
            if isinstance(meta, Node):
                yield (i, j), meta


def _opened(value: Any) -> list[Node]:
    return value if isinstance(value, list) else []
