"""The end of a Lance file as far as we need it, and a checksum of our own in it.

    pages | global buffers | schema | columns | u64 offset, u64 size of each buffer | footer, 40 bytes
    footer: u64 columns, u64 column offsets, u64 buffer offsets, u32 buffers, u32 columns, u16 2, u16 1, "LANC"

Buffer 0 is the schema, 1 the null bitmap of a zone index. Ours is 2: MARK and the XXH3 (64 bits,
little-endian) of all bytes of the file but its own eight. It tells damage before pylance, which can end
the process, sees the bytes. It is no signature: whoever makes a bad file on purpose can make one too.

Source: lance.org/format/file, "File Layout"; files that pylance 14 wrote.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import xxhash

FOOTER_BYTES = 40
MARK = b"parquet-bloom XXH3 v1 \x00\x00"
CHECKSUM_BUFFER = 2
_BUFFER_BYTES = len(MARK) + 8
_FOOTER = struct.Struct("<QQQIIHH4s")
_EXTENT = struct.Struct("<QQ")
_STEP = 8 << 20

Read = Callable[[int, int], bytes]  # offset, length -> that many bytes


def placeholder() -> bytes:
    """What the checksum's buffer holds until the file is complete."""
    return MARK + bytes(8)


def checksum_offset(read: Read, size: int) -> int | None:
    """Where the checksum lies, bytes from the start of the file; None where there is none of ours."""
    if size < FOOTER_BYTES:
        return None
    _, _, table, buffers, _, _, _, magic = _FOOTER.unpack(read(size - FOOTER_BYTES, FOOTER_BYTES))
    entry = table + CHECKSUM_BUFFER * _EXTENT.size
    if magic != b"LANC" or buffers <= CHECKSUM_BUFFER or entry + _EXTENT.size > size - FOOTER_BYTES:
        return None
    at, length = _EXTENT.unpack(read(entry, _EXTENT.size))
    if length != _BUFFER_BYTES or at + length > entry or read(at, len(MARK)) != MARK:
        return None
    return int(at) + len(MARK)


def checksum(read: Read, size: int, offset: int) -> bytes:
    """The checksum that a file should have: 8 bytes."""
    state = xxhash.xxh3_64()
    for start, stop in ((0, offset), (offset + 8, size)):
        for at in range(start, stop, _STEP):
            state.update(read(at, min(_STEP, stop - at)))
    return state.intdigest().to_bytes(8, "little")
