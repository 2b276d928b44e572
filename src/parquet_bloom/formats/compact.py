"""Thrift compact protocol <-> the generated bindings, with errors of our own and bounded memory.

The bindings drop fields and union members they do not know, so `encode(decode(x)) == x` is a
question to be asked, not a given: formats.edits asks it before every edit and falls back to
formats.compact_tree. Source: thrift's "Compact protocol" specification.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from thrift.protocol.TCompactProtocol import TCompactProtocolAccelerated
from thrift.transport.TTransport import TMemoryBuffer

from parquet_bloom.errors import FooterError

T = TypeVar("T")


def decode(kind: type[T], data: bytes) -> tuple[T, int]:
    """Read one struct from the start of data; return it and how many bytes it took.

    Strings and lists longer than data itself cannot be true, so they are refused before anything
    is allocated for them. Raises FooterError for anything that is not this struct.
    """
    transport = TMemoryBuffer(data)
    limit = max(len(data), 1)
    protocol = TCompactProtocolAccelerated(transport, string_length_limit=limit, container_length_limit=limit)
    value = kind()
    try:
        with uncollected():
            value.read(protocol)  # type: ignore[attr-defined]
    except (Exception, RecursionError) as error:  # the C reader raises a dozen kinds
        what = str(error) or type(error).__name__
        raise FooterError(f"{len(data)} bytes are not a Thrift {kind.__name__} ({what})") from error
    return value, transport.cstringio_buf.tell()


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
