"""Thrift compact protocol <-> the generated bindings, with errors of our own and bounded memory.

The bindings drop fields and union members they do not know, so `encode(decode(x)) == x` is a
question to be asked, not a given: formats.metadata.edits asks it before every edit and falls back to
formats.thrift.compact_tree. Source: thrift's "Compact protocol" specification.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.transport.TTransport import TMemoryBuffer

from parquet_bloom.errors import FooterError
from parquet_bloom.limits import limits

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
