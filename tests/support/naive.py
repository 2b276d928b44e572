"""Slow, plain twins of the kernels, each written from its specification alone: ints and bytes, no numpy.

Nothing here imports parquet_bloom, so that agreement means something.

    hashes      the xxHash specification; MurmurHash3.cpp, MurmurHash3_x64_128
    filter      parquet-format BloomFilter.md: 8 words of 32 bits a block, one bit in each
    of 2015     docs/formats.md section 4: ORC's, Hive's and Guava's filters of k positions a value
    PLAIN       parquet-format Encodings.md
    Thrift      thrift-compact-protocol.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

U64 = (1 << 64) - 1
U32 = (1 << 32) - 1


def rotl(x: int, r: int) -> int:
    return (x << r | x >> (64 - r)) & U64


# --- XXH64 ----------------------------------------------------------------------------------------

_P1 = 11400714785074694791
_P2 = 14029467366897019727
_P3 = 1609587929392839161
_P4 = 9650029242287828579
_P5 = 2870177450012600261


def _round(accumulator: int, lane: int) -> int:
    return rotl((accumulator + lane * _P2) & U64, 31) * _P1 & U64


def xxh64(data: bytes, seed: int = 0) -> int:
    lanes = len(data) // 32 * 32
    if lanes:
        accumulators = [(seed + _P1 + _P2) & U64, (seed + _P2) & U64, seed, (seed - _P1) & U64]
        for stripe in range(0, lanes, 32):
            for i, lane in enumerate(struct.unpack_from("<4Q", data, stripe)):
                accumulators[i] = _round(accumulators[i], lane)
        h = sum(rotl(a, r) for a, r in zip(accumulators, (1, 7, 12, 18), strict=True)) & U64
        for a in accumulators:
            h = ((h ^ _round(0, a)) * _P1 + _P4) & U64
    else:
        h = (seed + _P5) & U64
    h = (h + len(data)) & U64
    rest = data[lanes:]
    while len(rest) >= 8:
        h = (rotl(h ^ _round(0, int.from_bytes(rest[:8], "little")), 27) * _P1 + _P4) & U64
        rest = rest[8:]
    if len(rest) >= 4:
        h = (rotl(h ^ (int.from_bytes(rest[:4], "little") * _P1 & U64), 23) * _P2 + _P3) & U64
        rest = rest[4:]
    for byte in rest:
        h = rotl(h ^ (byte * _P5 & U64), 11) * _P1 & U64
    h = (h ^ h >> 33) * _P2 & U64
    h = (h ^ h >> 29) * _P3 & U64
    return h ^ h >> 32


# --- Murmur3 x64-128 ------------------------------------------------------------------------------

_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def _fmix(k: int) -> int:
    k = (k ^ k >> 33) * 0xFF51AFD7ED558CCD & U64
    k = (k ^ k >> 33) * 0xC4CEB9FE1A85EC53 & U64
    return k ^ k >> 33


def murmur3_128(data: bytes, seed: int = 0) -> tuple[int, int]:
    """Both halves, h1 and h2."""
    h1 = h2 = seed
    tail = len(data) // 16 * 16
    for at in range(0, tail, 16):
        k1, k2 = struct.unpack_from("<QQ", data, at)
        h1 ^= rotl(k1 * _C1 & U64, 31) * _C2 & U64
        h1 = ((rotl(h1, 27) + h2) * 5 + 0x52DCE729) & U64
        h2 ^= rotl(k2 * _C2 & U64, 33) * _C1 & U64
        h2 = ((rotl(h2, 31) + h1) * 5 + 0x38495AB5) & U64
    rest = data[tail:].ljust(16, b"\0")
    k1, k2 = struct.unpack("<QQ", rest)
    h2 ^= rotl(k2 * _C2 & U64, 33) * _C1 & U64
    h1 ^= rotl(k1 * _C1 & U64, 31) * _C2 & U64
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & U64
    h2 = (h2 + h1) & U64
    first = (_fmix(h1) + _fmix(h2)) & U64
    return first, (_fmix(h2) + first) & U64


def murmur3(data: bytes, seed: int = 0) -> int:
    """The first 64 bits, h1."""
    return murmur3_128(data, seed)[0]


HASHES = {"xxh64": xxh64, "murmur3": murmur3}


# --- the split block filter: a list of 8 * n_blocks words -------------------------------------------

_HEX = "47b6137b 44974d91 8824ad5b a2b7289d 705495c7 2df1424b 9efc4947 5c6bfb31"
SALT = [int(salt, 16) for salt in _HEX.split()]


def block_of(h: int, n_blocks: int, rule: str) -> int:
    upper = h >> 32
    return upper % n_blocks if rule == "mask" else upper * n_blocks // (1 << 32)


def mask_of(h: int) -> list[int]:
    return [1 << ((h & U32) * salt % (1 << 32) // (1 << 27)) for salt in SALT]


def build(hashes: Iterable[int], n_blocks: int, rule: str) -> list[int]:
    words = [0] * (8 * n_blocks)
    for h in hashes:
        at = 8 * block_of(h, n_blocks, rule)
        for i, bit in enumerate(mask_of(h)):
            words[at + i] |= bit
    return words


def probe(words: Sequence[int], h: int, rule: str) -> bool:
    at = 8 * block_of(h, len(words) // 8, rule)
    return all(words[at + i] & bit for i, bit in enumerate(mask_of(h)))


def fold(words: Sequence[int], rule: str) -> list[int]:
    half = len(words) // 16
    pairs = [(j, j + half) if rule == "mask" else (2 * j, 2 * j + 1) for j in range(half)]
    return [words[8 * a + i] | words[8 * b + i] for a, b in pairs for i in range(8)]


def exact_rate(words: Sequence[int]) -> Fraction:
    blocks = [words[at : at + 8] for at in range(0, len(words), 8)]
    products = [math.prod(Fraction(word.bit_count(), 32) for word in block) for block in blocks]
    return sum(products, Fraction()) / len(blocks)


def expected_rate(ndv: float, num_bytes: int) -> float:
    """sum over i of Poisson(i; 256 / c) * (1 - (31/32)^i)^8, c = bits per distinct value."""
    load = 256 / (8 * num_bytes / ndv)
    logs = (i * math.log(load) - load - math.lgamma(i + 1) for i in range(int(load * 2) + 200))
    return math.fsum(math.exp(log) * (1 - (31 / 32) ** i) ** 8 for i, log in enumerate(logs))


def words_to_bytes(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(words)}I", *words)


def words_from_bytes(data: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(data) // 4}I", data))


# --- the filters of 2015: a set of positions below m ------------------------------------------------


def wang(key: int) -> int:
    """Java's arithmetic written out: a long wraps, >> keeps the sign."""

    def long(x: int) -> int:
        return (x + 2**63) % 2**64 - 2**63

    k = long(key)
    k = long(~k + long(k << 21))
    k = k ^ k >> 24
    k = long(k + long(k << 3) + long(k << 8))
    k = k ^ k >> 14
    k = long(k + long(k << 2) + long(k << 4))
    k = k ^ k >> 28
    return long(k + long(k << 31)) % 2**64


def hive_murmur64(data: bytes) -> int:
    h = 104729
    for at in range(0, len(data) - 7, 8):
        h ^= rotl(int.from_bytes(data[at : at + 8], "little") * _C1 & U64, 31) * _C2 & U64
        h = (rotl(h, 27) * 5 + 0x52DCE729) & U64
    rest = data[len(data) // 8 * 8 :]
    h ^= rotl(int.from_bytes(rest, "little") * _C1 & U64, 31) * _C2 & U64
    return _fmix(h ^ len(data))


def java_bits(plain: bytes, physical: str) -> int:
    """What Float.floatToIntBits and Double.doubleToLongBits give: one NaN only; ints as they are."""
    value = struct.unpack(_PLAIN[physical], plain)[0]
    if physical in ("INT32", "INT64"):
        return int(value)
    if value != value:
        return 0x7FC00000 if physical == "FLOAT" else 0x7FF8000000000000
    return int.from_bytes(plain, "little", signed=True)


def k_positions(plain: bytes, physical: str, family: str, strategy: str, k: int, m: int) -> list[int]:
    """The positions of one value by its PLAIN bytes."""
    if strategy == "MURMUR128_64":
        h1, h2 = murmur3_128(plain)
        return [(h1 + i * h2) % 2**64 % 2**63 % m for i in range(k)]
    if family == "guava":
        h = murmur3(plain)
    elif physical in _PLAIN:
        h = wang(java_bits(plain, physical))
    else:
        h = hive_murmur64(plain)
    h1, h2 = h & U32, h >> 32
    found = []
    for i in range(2, k + 2) if family == "hive" else range(1, k + 1):
        c = (h1 + i * h2) % 2**32
        found.append((2**32 - 1 - c if c >= 2**31 else c) % m)
    return found


def longs_of(positions: Iterable[int], m: int) -> list[int]:
    bits = 0
    for position in positions:
        bits |= 1 << position
    return [bits >> 64 * i & U64 for i in range(m // 64)]


# --- PLAIN ----------------------------------------------------------------------------------------

_PLAIN = {"INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}


def plain(value: Any, physical: str) -> bytes:
    """The PLAIN bytes of a physical value, without a length prefix."""
    return struct.pack(_PLAIN[physical], value) if physical in _PLAIN else bytes(value)


# --- Thrift compact, writing ----------------------------------------------------------------------

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
Field = tuple[int, int, Any]  # id, wire type, value


def varint(n: int) -> bytes:
    out = b""
    while n >= 128:
        out, n = out + bytes([n % 128 + 128]), n // 128
    return out + bytes([n])


def zigzag(n: int) -> bytes:
    return varint(2 * n if n >= 0 else -2 * n - 1)


def thrift_value(wire: int, value: Any) -> bytes:
    """A value: int, float, bytes, [fields] for STRUCT, (wire, [values]), (wire, wire, [(key, value)])."""
    if wire in (TRUE, FALSE):
        return b""
    if wire == BYTE:
        return struct.pack("b", value)
    if wire in (I16, I32, I64):
        return zigzag(value)
    if wire == DOUBLE:
        return struct.pack("<d", value)
    if wire == UUID:
        return bytes(value)
    if wire == BINARY:
        return varint(len(value)) + value
    if wire == STRUCT:
        return thrift_struct(value)
    if wire == MAP:
        key, kind, pairs = value
        head = varint(len(pairs)) + (bytes([key << 4 | kind]) if pairs else b"")
        return head + b"".join(_element(key, k) + _element(kind, v) for k, v in pairs)
    kind, items = value
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + varint(len(items))
    return head + b"".join(_element(kind, item) for item in items)


def _element(wire: int, value: Any) -> bytes:
    return bytes([TRUE if value else FALSE]) if wire in (TRUE, FALSE) else thrift_value(wire, value)


def thrift_struct(fields: Sequence[Field]) -> bytes:
    out, last = b"", 0
    for number, wire, value in fields:
        delta = number - last
        out += bytes([delta << 4 | wire]) if 0 < delta <= 15 else bytes([wire]) + zigzag(number)
        out, last = out + thrift_value(wire, value), number
    return out + b"\0"


# --- a footer made by hand --------------------------------------------------------------------------

# Fields no version of the format knows: all wire types, ids that need a header of their own.
INNER = [(1, I32, -1), (2, BINARY, b"\xff\0"), (40, DOUBLE, 1.5), (32767, SET, (I16, [1, -1]))]
UNKNOWN = [(99, TRUE, True), (100, FALSE, False), (101, BYTE, -7), (102, I16, -300), (103, I32, 2**31 - 1)]
UNKNOWN += [(104, I64, -(2**63)), (105, DOUBLE, -0.0), (106, BINARY, b"\xff\0"), (107, LIST, (I64, list(range(20))))]
UNKNOWN += [(108, SET, (BINARY, [b"a", b""])), (109, MAP, (BINARY, STRUCT, [(b"k", INNER)])), (110, STRUCT, INNER)]
UNKNOWN += [(111, UUID, bytes(range(16))), (112, LIST, (TRUE, [True, False])), (113, MAP, (I32, I32, []))]
UNKNOWN += [(114, LIST, (LIST, [(I32, [1]), (STRUCT, [INNER])])), (115, LIST, (STRUCT, [])), (32767, STRUCT, INNER)]
PAIRS = [(b"first", b"1"), (b"no value", None), (b"third", b"\xff")]
GROUPS, COLUMNS = 2, 3


def made_footer(later, move=lambda at: at, places=None, pairs=PAIRS, appended=(), lengths=None) -> bytes:
    """A footer of GROUPS row groups of COLUMNS columns, as it must be after an edit.

    later     fields of a later version of the format, appended to every struct but those `appended`
    move      applied to every absolute offset that lies behind the magic
    places    (row group, column) -> (bloom_filter_offset, bloom_filter_length or None)
    pairs     key-values, None for no list; `appended` come after them
    lengths   (row group, column) -> offset_index_length
    """
    places, lengths = places or {}, lengths or {}

    def element(fields):
        return [*fields, *later]

    def chunk(g, c):
        at = 1000 * (3 * g + c) + 4
        statistics = [(5, BINARY, b"z"), (6, BINARY, b"a"), (7, TRUE, True), *later]
        meta = [(1, I32, 2), (2, LIST, (I32, [0, 8])), (3, LIST, (BINARY, [b"abc"[c : c + 1]])), (4, I32, 0)]
        meta += [(5, I64, 10), (6, I64, 100), (7, I64, 90), (9, I64, move(at + 50)), (10, I64, 3), (11, I64, move(at))]
        meta += [(12, STRUCT, statistics)]
        offset, length = places.get((g, c), (None, None))
        meta += [(14, I64, offset)] if offset is not None else []
        meta += [(15, I32, length)] if length is not None else []
        chunk = [(2, I64, 0 if c else move(at)), (3, STRUCT, [*meta, *later])]
        chunk += [(4, I64, move(9000 + at)), (5, I32, lengths.get((g, c), 30))]
        return [*chunk, (6, I64, move(8000 + at)), (7, I32, 20), *later]

    logical = [(14, STRUCT, [])] if not later else [(99, STRUCT, INNER)]
    schema = [element([(4, BINARY, b"schema"), (5, I32, COLUMNS)])]
    for name in b"a", b"b", b"c":
        leaf = [(1, I32, 7), (2, I32, 16), (3, I32, 1), (4, BINARY, name), (10, STRUCT, logical)]
        schema.append(element(leaf))
    groups = []
    for g in range(GROUPS):
        columns = [chunk(g, c) for c in range(COLUMNS)]
        group = [(1, LIST, (STRUCT, columns)), (2, I64, 300), (3, I64, 10), (5, I64, move(3000 * g + 4))]
        groups.append(element(group))
    root = [(1, I32, 2), (2, LIST, (STRUCT, schema)), (3, I64, 20), (4, LIST, (STRUCT, groups))]
    if pairs is not None:
        kept = [element([(1, BINARY, k), *([(2, BINARY, v)] if v is not None else [])]) for k, v in pairs]
        kept += [[(1, BINARY, k), (2, BINARY, v)] for k, v in appended]
        root.append((5, LIST, (STRUCT, kept)))
    return thrift_struct(element([*root, (6, BINARY, b"made")]))
