"""`lance`: the zone index `bloomfilter.lance`, a split block filter for every so many rows.

    Lance file, one row a zone:  fragment_id u64 | zone_start u64 | zone_length u64 | has_null bool | bloom_filter_data
    schema metadata:             bloomfilter_item "8192", bloomfilter_probability "0.00057", null_bitmap "1"
    global buffer 1:             u32 fragments | u32 id, u32 length, Roaring bitmap of the null rows | ...

Filters are blocks alone, without a header; XXH64, seed 0, multiply-shift. A zone never reaches into
the next fragment and takes `items` live rows; it starts at the first of them, and its length is the
span of row offsets up to the last, deleted rows included.

What is hashed is the Arrow value, little-endian in its own width, where Parquet would have hashed
the stored one: an int8 is one byte, a date64 eight, a timestamp[s] counts seconds. Of a Parquet
column that is the value which pyarrow reads.

Source: the index that pylance 14 writes; fixtures/vectors/lance.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa
import xxhash

from parquet_bloom.errors import FilterFormatError, RefusedTypeError, RequestError
from parquet_bloom.format import roaring
from parquet_bloom.format.arrow_types import has_any_length
from parquet_bloom.format.literals import DAY_NS
from parquet_bloom.format.schema import BYTE_ARRAY, DOUBLE, FLBA, FLOAT, INT32, INT64, UNIT_NS, Leaf

FILE_NAME = "bloomfilter.lance"
FILE_VERSION = "2.1"
ITEMS, PROBABILITY, NULL_BITMAP = "bloomfilter_item", "bloomfilter_probability", "null_bitmap"
NULLS_BUFFER = 1  # its place among the global buffers of the file

ZONE_SCHEMA = pa.schema(
    [
        pa.field("fragment_id", pa.uint64(), nullable=False),
        pa.field("zone_start", pa.uint64(), nullable=False),
        pa.field("zone_length", pa.uint64(), nullable=False),
        pa.field("has_null", pa.bool_(), nullable=False),
        pa.field("bloom_filter_data", pa.binary(), nullable=False),
    ]
)


# --- how large ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a zone index: rows a zone, and the false positive rate its size is chosen for."""

    items: int = 8192
    probability: float = 0.00057

    def __post_init__(self) -> None:
        if not 1 <= self.items < 1 << 63:
            raise RequestError(f"items {self.items} is not a positive number of rows")
        if not 0 < self.probability < 1:
            raise RequestError(f"probability {self.probability} is not between 0 and 1")

    @property
    def num_bytes(self) -> int:
        """Of every zone's filter."""
        return filter_bytes(self.items, self.probability)

    @property
    def metadata(self) -> dict[str, str]:
        """The entries of the schema metadata that say these."""
        return {ITEMS: str(self.items), PROBABILITY: shortest(self.probability), NULL_BITMAP: "1"}


_LEAST, _MOST = 5, 27  # log2 of bytes
_TERMS = 750


@lru_cache(256)
def filter_bytes(items: int, probability: float) -> int:
    """The size of a zone's filter: 2^L bytes, L by bisection over the expected rate, from 32 B to 128 MiB."""
    low, high = 0, 64
    while high > low + 1:
        middle = (low + high) // 2
        if _expected_rate(items, middle) <= probability:
            high = middle
        else:
            low = middle
    return 1 << min(max(high, _LEAST), _MOST)


def _expected_rate(items: int, log_bytes: int) -> float:
    """Lance's estimate of the rate; the sum runs as theirs does, as its last bits decide at the edges."""
    if items == 0:
        return 0.0
    per_bit = items / (8.0 * 2.0**log_bytes)
    if per_bit > 2.0:
        return 1.0
    load = 256.0 / (1.0 / per_bit)
    if load == 0.0:
        return 0.0
    rate = 0.0
    for i in range(_TERMS - 1, 0, -1):
        hit = 8.0 * math.log(1.0 - (31.0 / 32.0) ** i)
        rate += math.exp(i * math.log(load) - load - math.lgamma(i + 1) + hit)
    return min(rate, 1.0)


def shortest(number: float) -> str:
    """The shortest decimal that reads back as the number, never with an exponent: "0.00057"."""
    text = format(Decimal(repr(float(number))), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- which types ----------------------------------------------------------------------------------

_PARQUET = "parquet-bloom add"


def refusal(kind: pa.DataType) -> str | None:
    """Why Lance has no such index over a type, and what to use instead; None if it has."""
    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return refusal(kind.storage_type)
    if t.is_boolean(kind):
        return "a boolean has two values; min/max or a bitmap index separates them"
    if t.is_float16(kind):
        return f"Lance hashes no float16; cast to float32, or use {_PARQUET}"
    if t.is_fixed_size_binary(kind) or t.is_decimal(kind):
        other = "binary" if t.is_fixed_size_binary(kind) else "an integer of the unscaled value, or a string"
        return f"Lance hashes no {kind}; store it as {other}, or use {_PARQUET} on Parquet files"
    if t.is_duration(kind) or t.is_interval(kind):
        return f"Lance hashes no {kind}; store it as int64"
    if t.is_dictionary(kind):
        return f"Lance hashes no dictionaries; store the values as {kind.value_type}"
    if t.is_null(kind):
        return "a column of nulls has no values"
    if t.is_nested(kind):
        return f"{kind} is nested; name one of the columns below it that is no list"
    known = t.is_integer(kind) or t.is_floating(kind) or t.is_temporal(kind) or has_any_length(kind)
    return None if known else f"Lance hashes no {kind}"


# --- values of Parquet columns --------------------------------------------------------------------

_DAY_MS = DAY_NS // UNIT_NS["ms"]


@dataclass(frozen=True, slots=True)
class ArrowConversion:
    """How a stored value becomes the Arrow value that is hashed.

    stored   Arrow type in which formats' PLAIN bytes and filters.decode give it: int32 or int64; None: as it is
    hashed   integer type of the width that is hashed
    times, over  a literal's number is multiplied by one and divided by the other: Parquet, to whose types
                 predicates are bound, has no seconds and no date64
    """

    stored: pa.DataType | None = None
    hashed: pa.DataType | None = None
    times: int = 1
    over: int = 1

    def array(self, values: pa.Array) -> pa.Array:
        """Stored values of a column chunk as those to hash. Raises FilterFormatError for one that has no such value."""
        if self.hashed is None:
            return values
        if (self.times, self.over) != (1, 1):
            raise FilterFormatError(f"pyarrow reads no {self.hashed} of another unit out of Parquet")
        try:
            if pa.types.is_unsigned_integer(self.hashed):
                values = values.view(pa.uint32() if self.stored == pa.int32() else pa.uint64())
            return values.cast(self.hashed)
        except pa.ArrowException as error:
            raise FilterFormatError(f"a value does not fit its Arrow type: {error}") from error

    def plain(self, data: bytes) -> bytes | None:
        """The PLAIN bytes to query for a literal; None: no value of the Arrow type equals it."""
        if self.hashed is None:
            return data
        unsigned = pa.types.is_unsigned_integer(self.hashed)
        number, rest = divmod(int.from_bytes(data, "little", signed=not unsigned) * self.times, self.over)
        if rest:
            return None
        try:
            return number.to_bytes(self.hashed.bit_width // 8, "little", signed=not unsigned)
        except OverflowError:
            return None


def conversion_of(leaf: Leaf, kind: pa.DataType) -> ArrowConversion:
    """How values of a Parquet column become those of the Arrow type that pyarrow reads it as.

    Raises RefusedTypeError for types that Lance does not index, and pairs that this version does not know.
    """
    t = pa.types
    while isinstance(kind, pa.BaseExtensionType) or t.is_dictionary(kind):
        kind = kind.value_type if t.is_dictionary(kind) else kind.storage_type
    why = "its elements have no rows of their own" if leaf.repeated else leaf.refusal or refusal(kind)
    if why is not None:
        raise RefusedTypeError(f"column {leaf.name}: {why}")
    stored = {INT32: pa.int32(), INT64: pa.int64()}.get(leaf.physical)
    if t.is_integer(kind) and stored is not None and leaf.logical in (None, "INTEGER"):
        if t.is_unsigned_integer(kind) == (leaf.logical == "INTEGER" and not leaf.signed):
            return ArrowConversion(stored, kind)
    elif t.is_floating(kind) or has_any_length(kind):
        wanted_physical = (FLOAT, DOUBLE) if t.is_floating(kind) else (BYTE_ARRAY, FLBA)
        same_width = has_any_length(kind) or leaf.float_bits == kind.bit_width
        if leaf.physical in wanted_physical and same_width and leaf.logical != "DECIMAL":
            return ArrowConversion()
    elif t.is_date(kind) and leaf.logical == "DATE" and leaf.physical == INT32:
        return (
            ArrowConversion(stored, pa.int64(), _DAY_MS) if t.is_date64(kind) else ArrowConversion(stored, pa.int32())
        )
    elif (t.is_timestamp(kind) or t.is_time(kind)) and stored is not None and leaf.unit_ns:
        wanted = "TIMESTAMP" if t.is_timestamp(kind) else "TIME"
        unit = UNIT_NS[kind.unit]
        if leaf.logical == wanted and (unit % leaf.unit_ns == 0 or leaf.unit_ns % unit == 0):
            hashed = pa.int32() if kind.bit_width == 32 else pa.int64()
            return ArrowConversion(stored, hashed, max(1, leaf.unit_ns // unit), max(1, unit // leaf.unit_ns))
    raise RefusedTypeError(f"column {leaf.name} is {leaf.type_name} in the file and {kind} in Arrow")


# --- the nulls ------------------------------------------------------------------------------------


def encode_nulls(bitmaps: Iterable[tuple[int, bytes]]) -> bytes:
    """Global buffer 1 from (fragment, Roaring bitmap), fragments ascending, without those that have no nulls."""
    parts = [struct.pack("<II", fragment, len(bitmap)) + bitmap for fragment, bitmap in bitmaps if bitmap]
    return struct.pack("<I", len(parts)) + b"".join(parts)


def decode_nulls(data: bytes) -> dict[int, roaring.Ranges]:
    """Fragment -> its null rows; a fragment that is not in it has none. Raises FilterFormatError."""
    found: dict[int, roaring.Ranges] = {}
    try:
        (n,) = struct.unpack_from("<I", data)
        at = 4
        for _ in range(n):
            fragment, length = struct.unpack_from("<II", data, at)
            at += 8
            if at + length > len(data) or fragment in found:
                raise FilterFormatError(f"the null bitmap of fragment {fragment} is cut off or there twice")
            found[fragment] = roaring.decode(data[at : at + length])
            at += length
    except struct.error as error:
        raise FilterFormatError(f"the null bitmaps end too early: {error}") from error
    if at != len(data):
        raise FilterFormatError(f"the null bitmaps end at {at} of {len(data)} bytes")
    return found


def decode_parameters(metadata: Mapping[str, Any]) -> Parameters:
    """The parameters in a file's schema metadata. Raises FilterFormatError."""
    try:
        return Parameters(int(metadata[ITEMS]), float(metadata[PROBABILITY]))
    except (KeyError, ValueError) as error:
        raise FilterFormatError(f"{ITEMS} and {PROBABILITY} are not those of a zone index: {error}") from error


# --- the file of an index -------------------------------------------------------------------------
#
# The end of a Lance file as far as we need it, and a checksum of our own in it.
#
#    pages | global buffers | schema | columns | u64 offset, u64 size of each buffer | footer, 40 bytes
#    footer: u64 columns, u64 column offsets, u64 buffer offsets, u32 buffers, u32 columns, u16 2, u16 1, "LANC"
#
# Buffer 0 is the schema, 1 the null bitmap of a zone index. Ours is 2: MARK and the XXH3 (64 bits,
# little-endian) of all bytes of the file but its own eight. It tells damage before pylance, which can end
# the process, sees the bytes. It is no signature: whoever makes a bad file on purpose can make one too.
#
# Source: lance.org/format/file, "File Layout"; files that pylance 14 wrote.

FOOTER_BYTES = 40
MARK = b"parquet-bloom XXH3 v1 \x00\x00"
CHECKSUM_BUFFER = 2
_BUFFER_BYTES = len(MARK) + 8
_FOOTER = struct.Struct("<QQQIIHH4s")
_EXTENT = struct.Struct("<QQ")
_STEP = 8 << 20

Read = Callable[[int, int], bytes]  # offset, length -> that many bytes


def placeholder() -> bytes:
    """The content of the checksum's buffer until the file is complete."""
    return MARK + bytes(8)


def checksum_offset(read: Read, size: int) -> int | None:
    """The offset of the checksum, bytes from the start of the file; None where there is none of ours."""
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
