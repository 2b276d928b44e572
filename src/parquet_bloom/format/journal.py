"""The journal of an append: it lies beside a file while bytes are written behind it, so that a later run can undo them.

    .NAME.parquet-bloom-journal      beside NAME

    offset 0     "parquet-bloom append 1\n", a JSON object, "\n", blanks up to 512 bytes
    offset 512   the tail: all bytes that go behind the file

The object has the file's device and inode, its size and times before, the CRC-32 of its footer, length and CRC-32 of
the tail, and a CRC-32 of all these. Device and times are for people: many disks get another device number with every
mount, and the journal lies in the file's own folder anyway. The tail is there whole, so that it can be seen byte for
byte whether what lies behind the old end is a beginning of it.
"""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple

SUFFIX = ".parquet-bloom-journal"
HEADER_BYTES = 512
_MAGIC = b"parquet-bloom append 1\n"
_NAME_BYTES = 180  # of the file's name; names have 255 at most


class Journal(NamedTuple):
    """The header of a journal; sizes are bytes, times nanoseconds."""

    device: int
    inode: int
    old_size: int
    mtime_ns: int
    ctime_ns: int
    footer_crc32: int
    tail_length: int
    tail_crc32: int

    def encode(self) -> bytes:
        """The header, HEADER_BYTES long."""
        told = self._asdict()
        text = json.dumps({**told, "crc32": _crc(told)}, separators=(",", ":"))
        return (_MAGIC + text.encode() + b"\n").ljust(HEADER_BYTES)

    @classmethod
    def decode(cls, data: bytes) -> Journal | None:
        """The header of a journal; None where it is none, or damaged."""
        if not data.startswith(_MAGIC):
            return None
        try:
            told = json.loads(data[len(_MAGIC) : HEADER_BYTES])
            crc = told.pop("crc32")
            journal = cls(**told)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return journal if _crc(told) == crc and all(type(value) is int for value in told.values()) else None


def _crc(told: dict[str, int]) -> int:
    return zlib.crc32(json.dumps(told, sort_keys=True).encode())


def journal_name(name: str) -> str:
    """The name of the journal beside a file of this name."""
    encoded = name.encode("utf-8", "surrogateescape")
    if len(encoded) > _NAME_BYTES:
        import hashlib

        short = encoded[:_NAME_BYTES].decode("utf-8", "surrogateescape")
        name = f"{short}.{hashlib.sha256(encoded).hexdigest()[:16]}"
    return f".{name}{SUFFIX}"
