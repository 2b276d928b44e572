"""Avro container files as trees that may be made wrong, value by value; it knows no Iceberg.

A record is a dict, an array a list, a union null or its other branch, what is not known bytes. Raw bytes are written
as they are, wherever they stand. Source: Apache Avro's specification, "Binary Encoding" and "Object Container Files".
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any

MAGIC = b"Obj\x01"


class Raw(bytes):
    """Bytes that stand for a value of any type."""


@dataclass
class Container:
    """A file: its metadata, as text or bytes, and its records."""

    metadata: dict[str, bytes]
    records: list[Any]


def long(number: int) -> Raw:
    """A number of any size in zigzag and base 128."""
    left, out = number << 1 if number >= 0 else (-number << 1) - 1, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return Raw([*out, left])


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, n: int) -> bytes:
        self.at += n
        return self.data[self.at - n : self.at]

    def long(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value >> 1 ^ -(value & 1)

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self.value(schema[self.long()])
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.value(kind)
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
        if kind in ("array", "map"):
            found: list[Any] = []
            while n := self.long():
                if n < 0:
                    n, _ = -n, self.long()
                found += [self.value(schema["items"]) for _ in range(n)]
            return found
        if kind == "fixed":
            return self.take(schema["size"])
        if kind in ("string", "bytes"):
            data = self.take(self.long())
            return data.decode() if kind == "string" else data
        if kind in ("float", "double"):
            return struct.unpack("<f" if kind == "float" else "<d", self.take(4 if kind == "float" else 8))[0]
        read = {"null": lambda: None, "boolean": lambda: bool(self.take(1)[0])}
        return read.get(kind, self.long)()


def decode(data: bytes) -> Container:
    """Read a sound file of the codecs null and deflate."""
    reader = _Reader(data)
    assert reader.take(4) == MAGIC
    metadata: dict[str, bytes] = {}
    while n := reader.long():
        for _ in range(n):
            key = reader.take(reader.long()).decode()
            metadata[key] = reader.take(reader.long())
    reader.take(16)
    schema, records = json.loads(metadata["avro.schema"]), []
    while reader.at < len(data):
        n = reader.long()
        block = reader.take(reader.long())
        inside = _Reader(zlib.decompress(block, -15) if metadata.get("avro.codec") == b"deflate" else block)
        records += [inside.value(schema) for _ in range(n)]
        reader.take(16)
    return Container(metadata, records)


def _encode(value: Any, schema: Any) -> bytes:
    if isinstance(value, Raw):
        return value
    if isinstance(schema, list):
        if value is None and "null" in schema:
            return long(schema.index("null"))
        at = next(i for i, branch in enumerate(schema) if branch != "null")
        return long(at) + _encode(value, schema[at])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return _encode(value, kind)
    if kind == "record":
        return b"".join(_encode(value[field["name"]], field["type"]) for field in schema["fields"])
    if kind in ("array", "map"):
        items = b"".join(_encode(one, schema["items"]) for one in value)
        return (long(len(value)) + items if value else b"") + long(0)
    if kind in ("string", "bytes"):
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        return long(len(data)) + data
    if kind == "fixed":
        return bytes(value)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    return {"null": lambda: b"", "boolean": lambda: bytes([value])}.get(kind, lambda: long(value))()


def encode(container: Container, schema: Any) -> bytes:
    """A file whose records are encoded by a schema, which is perhaps not the one that its metadata hold."""
    out = [MAGIC, long(len(container.metadata))]
    for key, value in container.metadata.items():
        name = key.encode("utf-8", "surrogatepass")
        out += [long(len(name)), name, long(len(value)), value]
    block = b"".join(_encode(record, schema) for record in container.records)
    if container.metadata.get("avro.codec") == b"deflate":
        packer = zlib.compressobj(wbits=-15)
        block = packer.compress(block) + packer.flush()
    return b"".join([*out, long(0), bytes(16), long(len(container.records)), long(len(block)), block, bytes(16)])
