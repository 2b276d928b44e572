"""Thrift compact protocol <-> the generated bindings, with errors of our own and bounded memory; a lenient reader too.

The bindings drop fields and union members they do not know, so `encode(decode(x)) == x` is a
question to be asked, not a given: format.edits asks it before every edit and falls back to
format.compact_tree. Source: thrift's "Compact protocol" specification.
"""

from __future__ import annotations

import gc
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.Thrift import TType
from thrift.transport.TTransport import TMemoryBuffer

from parquet_bloom._thrift.parquet.ttypes import Encoding, PageHeader, PageType
from parquet_bloom.errors import FooterError
from parquet_bloom.format.compact_tree import (
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
)
from parquet_bloom.options import limits

T = TypeVar("T")


def decode(kind: type[T], data: bytes) -> tuple[T, int]:
    """Read one struct from the start of data; return it and how many bytes it took.

    Strings and lists longer than data itself cannot be true, and those longer than the process's limits are not
    wanted: they are refused before anything is allocated for them. Raises FooterError for anything that is not this
    struct.
    """
    transport, protocol = _reader(data)
    value = kind()
    try:
        with uncollected():
            value.read(protocol)  # type: ignore[attr-defined]
    except (Exception, RecursionError) as error:  # the C reader raises a dozen kinds
        what = str(error) or type(error).__name__
        raise FooterError(f"{len(data)} bytes are not a Thrift {kind.__name__} ({what})") from error
    return value, transport.cstringio_buf.tell()


def decode_each(kind: type[T], data: bytes, at: int, count: int) -> Iterator[tuple[T, int]]:
    """Read structs that follow each other from `at`, one at a time; with each where it ends. Raises as `decode`."""
    transport, protocol = _reader(data)
    transport.cstringio_buf.seek(at)
    for _ in range(count):
        value = kind()
        try:
            value.read(protocol)  # type: ignore[attr-defined]
        except (Exception, RecursionError) as error:
            what = str(error) or type(error).__name__
            raise FooterError(f"{len(data)} bytes are not a list of Thrift {kind.__name__} ({what})") from error
        yield value, transport.cstringio_buf.tell()


def _reader(data: bytes) -> tuple[Any, Any]:
    transport = TMemoryBuffer(data)
    most, allowed = max(len(data), 1), limits()
    return transport, TCompactProtocolAccelerated(
        transport,
        string_length_limit=min(most, allowed.max_string_bytes),
        container_length_limit=min(most, allowed.max_list_elements),
    )


@contextmanager
def uncollected() -> Iterator[None]:
    """Build something large without cycles: the collector would visit it ten times while it grows."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def encode(value: Any) -> bytes:
    """Write one struct; fields come out in the order of their ids."""
    transport = TMemoryBuffer()
    value.write(TCompactProtocolAccelerated(transport))
    return bytes(transport.getvalue())


# --- a lenient reader -----------------------------------------------------------------------------
#
# A reader of Thrift compact bytes that passes over fields of a wrong type.
#
# The C reader gives up on a footer with, say, a list of i16 where the format has a list of enums,
# though everything else in it is sound and other programs read it. Slow, plain, and only called
# when the fast reader has failed. Source: thrift's "Compact protocol" specification.


# The types of the compact protocol under which a field of each type of the definition is written.
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


def decode_leniently(kind: type[T], data: bytes) -> T:
    """Read one struct, leaving out fields whose type is not the one the definition gives."""
    value, _ = _struct(kind, data, 0, 0)
    return cast("T", value)


def _struct(kind: Any, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if depth > 32:
        raise FooterError(f"Thrift structs nested deeper than 32 at byte {at}")
    # thrift_spec[id] is (id, type, name, arguments of the type, default), None for an id that the definition lacks.
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
        return wire == TRUE  # a field's type is its value
    if ttype == TType.BYTE:
        return struct.unpack_from("<b", data, at)[0]
    if ttype == TType.DOUBLE:
        return struct.unpack_from("<d", data, at)[0]
    if ttype == TType.STRUCT:
        return _struct(arguments[0], data, at, depth + 1)[0]
    if ttype == TType.LIST:
        return _list(arguments, data, at, depth)
    # What remains begins with a varint: the length of a text, or an integer in zigzag form.
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


# --- page headers ---------------------------------------------------------------------------------
#
#    PageHeader  1: type, 2: uncompressed size, 3: compressed size, [4: crc], 5: DataPageHeader | 7: dictionary | 8: V2
#
# A column chunk of a million rows has some fifty of them, each behind the page before it. Through the bindings one
# takes 10 us. `page_head` reads those that writers make of data pages of version 1 in 5, and the bindings all others.
# Source: parquet.thrift, PageHeader.

_BY_DICTIONARY = {Encoding.PLAIN_DICTIONARY, Encoding.RLE_DICTIONARY}
_NUMBER_BITS = 32  # of the numbers that are read here


class PageHead(NamedTuple):
    """The start of a page.

    kind          PageType
    compressed    bytes of the page behind its header; -1 where the header has none
    uncompressed  the same when decompressed
    values        of a data page; None of all other pages, and where the header has no number
    rows          of a data page of version 2; else as `values`, which are as many where no value is repeated
    by_dictionary  whether a data page needs the dictionary page
    length        bytes of the header
    has_statistics  whether a data page's header states any
    """

    kind: int
    compressed: int
    uncompressed: int
    values: int | None
    rows: int | None
    by_dictionary: bool
    length: int
    has_statistics: bool


def page_head(data: bytes) -> PageHead:
    """Read the page header at the start of some bytes. Raises FooterError where these are none, or end before it."""
    try:
        found = _plain_head(data)
    except IndexError:  # it is longer
        found = None
    if found is not None:
        return found
    header, length = decode(PageHeader, data)
    # Both kinds of data page may have a header in one page header, and the type says which one counts.
    pages = {PageType.DATA_PAGE: header.data_page_header, PageType.DATA_PAGE_V2: header.data_page_header_v2}
    page = pages.get(header.type)
    values = None if page is None else page.num_values
    rows = page.num_rows if page is not None and header.type == PageType.DATA_PAGE_V2 else values
    sizes = [-1 if size is None else size for size in (header.compressed_page_size, header.uncompressed_page_size)]
    by_dictionary = page is not None and page.encoding in _BY_DICTIONARY
    has_statistics = page is not None and page.statistics is not None
    return PageHead(header.type, sizes[0], sizes[1], values, rows, by_dictionary, length, has_statistics)


def _plain_head(data: bytes) -> PageHead | None:
    """A header of a data page of version 1 with the fields of the format, in order; None for any other."""
    if data[0] != 0x15 or data[1] != PageType.DATA_PAGE << 1 or data[2] != 0x15:  # the next field, an i32
        return None
    uncompressed, at = _short_varint(data, 3)
    if data[at] != 0x15:
        return None
    compressed, at = _short_varint(data, at + 1)
    if data[at] == 0x15:
        _, at = _short_varint(data, at + 1)
        expected = 0x1C
    else:
        expected = 0x2C
    if data[at] != expected or data[at + 1] != 0x15:  # field 5, a struct, and its first field
        return None
    values, at = _short_varint(data, at + 2)
    encoding, second, third = data[at + 1], data[at + 3], data[at + 5]  # of values and levels
    bits = encoding | second | third
    if data[at] != 0x15 or data[at + 2] != 0x15 or data[at + 4] != 0x15 or bits > 0x7F:
        return None
    at += 6
    has_statistics = data[at] == 0x1C
    if has_statistics:
        at += 1
        while (field := data[at]) != 0:
            at += 1
            if field < 0x10:
                return None
            kind = field & 15
            if kind in (5, 6, 8):  # most are one byte, and a call takes longer than the rest
                length, at = (data[at], at + 1) if data[at] < 0x80 else _short_varint(data, at)
                at += length if kind == 8 else 0
            elif kind not in (1, 2):
                return None
        at += 1
    bits |= uncompressed | compressed | values
    if data[at] or data[at + 1] or bits & 1 or bits >> _NUMBER_BITS:  # numbers are zigzag: an odd one is below 0
        return None
    by_dictionary = encoding >> 1 in _BY_DICTIONARY
    sizes, count = (compressed >> 1, uncompressed >> 1), values >> 1
    return PageHead(PageType.DATA_PAGE, *sizes, count, count, by_dictionary, at + 2, has_statistics)


def _short_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a byte, and where the next one starts. Raises IndexError for one of more than five bytes."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    number, shift = 0, 0
    while byte >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        byte = data[at]
        if shift > _NUMBER_BITS:
            raise IndexError
    return number | byte << shift, at + 1
