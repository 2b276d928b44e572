"""Repaired statistics: the entry in a footer that says so, its proof, and the edits that make them.

An entry of the key-value `parquet_bloom`, beside those of filters (format.provenance):

    {"version": "0.1.0", "statistics_crc32": 2843371104, "unchecked": [3], "tail": {"size": .., "footer_crc32": ..}}

`repair` compared all statistics of the file with its values, but for those of the columns in "unchecked", and mended
those that were wrong. `tail` names the file before (filters.tails). `statistics_crc32` is the CRC-32 of all that is
believed by it: the writer, and of each column chunk its counts, its size and its bounds. So the entry is void once any
of these changes, as in a file that a program wrote anew and to which it carried the key-value; an `add` changes none.

It is a proof against accidents, not against a forger. Who forges it could as well name a right writer in created_by, or
write any bounds under the name of one: what a footer states is believed in the same measure, with it or without.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from parquet_bloom.errors import FooterError
from parquet_bloom.format.footer import Footer, derived
from parquet_bloom.format.outline import BOUNDS, NONE, REPAIRED, Outline, Slot, outline_of
from parquet_bloom.format.schema import BOOLEAN, BYTE_ARRAY, FLBA, Leaf

KEY = "parquet_bloom"
WRITER = "parquet-bloom version 1"  # of statistics that were compared with the values
_CRC, _UNCHECKED = "statistics_crc32", "unchecked"
_COUNTS = (Slot.TYPE, Slot.NUM_VALUES, Slot.COMPRESSED_SIZE, Slot.NULL_COUNT, Slot.NAN_COUNT)
LONGEST = 4096  # bytes of a bound; no writer has longer ones


def entries_in(text: str | None) -> list[Any]:
    """The elements of the JSON list in a key-value; none where it is another text."""
    try:
        value = json.loads(text or "")
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def repairs_in(pairs: Collection[Any] | None) -> Iterator[dict[str, Any]]:
    """The entries that speak of repaired statistics, believed or not."""
    for pair in pairs or ():
        if pair.key == KEY and REPAIRED.decode() in (pair.value or ""):
            yield from (b for b in entries_in(pair.value) if isinstance(b, dict) and type(b.get(_CRC)) is int)


def repair_pair(version: str, repaired: Outline, unchecked: Collection[int], tail: dict[str, Any]) -> tuple[str, str]:
    """The key-value with the entry for a footer whose statistics are right.

    repaired   the outline of this footer, without the entry
    unchecked  numbers of columns that were not compared
    tail       as provenance.tail_facts has it
    """
    more = {_UNCHECKED: sorted(unchecked)} if unchecked else {}
    entry = {"version": version, _CRC: _statistics_crc(repaired), **more, **tail}
    return KEY, json.dumps([entry], separators=(",", ":"))


def statistics_writer(keeper: Footer | Outline, leaf: Leaf) -> str | None:
    """The program by whose rules a column's statistics are believed: created_by, or this one that repaired them."""
    unchecked = proven_columns(keeper)
    return keeper.created_by if unchecked is None or leaf.index in unchecked else WRITER


@derived
def proven_columns(keeper: Footer | Outline) -> frozenset[int] | None:
    """The numbers of columns that a believed entry leaves out: a repair compared all others. None without an entry."""
    crc = None
    for body in repairs_in(keeper.key_values):
        if crc is None:
            try:
                crc = _statistics_crc(outline_of(keeper) if isinstance(keeper, Footer) else keeper.file(0))
            except FooterError:
                return None
        if body[_CRC] == crc:
            left_out = body.get(_UNCHECKED, [])
            if isinstance(left_out, list) and all(type(column) is int for column in left_out):
                return frozenset(left_out)
    return None


def _statistics_crc(outline: Outline) -> int:
    crc = zlib.crc32((outline.created_by or "").encode("utf-8", "surrogatepass"))
    crc = zlib.crc32(outline.rows.astype("<i8").tobytes(), crc)
    for slot in _COUNTS:
        crc = zlib.crc32(np.ascontiguousarray(outline.slots[slot], "<i8").tobytes(), crc)
    for slot in BOUNDS:
        at, length = outline.slots[slot], outline.slots[slot + 1]
        lengths = np.where(at == NONE, -1, length)
        crc = zlib.crc32(np.ascontiguousarray(lengths, "<i8").tobytes(), crc)
        here = at != NONE
        for start, size in zip(at[here].tolist(), length[here].tolist(), strict=True):
            crc = zlib.crc32(outline.data[start : start + size], crc)
    return crc


# --- bounds as bytes ------------------------------------------------------------------------------


def plain_bound(value: Any, leaf: Leaf, is_low: bool) -> bytes | None:
    """The PLAIN bytes of a bound, a value of statistics.domain_of; None of one that is too long for a footer.

    A zero gets the sign that makes it a bound of both zeros (parquet.thrift, ColumnOrder).
    """
    if leaf.float_bits:
        number = (-0.0 if is_low else 0.0) if value == 0 else value
        return struct.pack({16: "<e", 32: "<f", 64: "<d"}[leaf.float_bits], number)
    if isinstance(value, bytes):
        return value if len(value) <= LONGEST else None
    if leaf.physical == BOOLEAN:
        return bytes([value])
    if leaf.physical == FLBA:
        return int(value).to_bytes(leaf.type_length, "big", signed=True)
    if leaf.physical == BYTE_ARRAY:
        return int(value).to_bytes(int(value).bit_length() // 8 + 1, "big", signed=True)
    return (int(value) & (1 << 8 * leaf.width) - 1).to_bytes(leaf.width, "little")
