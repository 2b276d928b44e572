"""The forms of 2018 (PARQUET-41) and the reading of any header, which must distinguish them.

1024 bytes each:
parquet-41        15 08 15 80 10 15 80 10 6c | 15 80 10 1c 1c 00 00 1c 1c 00 00 00 | 00
                  PageHeader{type 4, sizes}    field 9: BloomFilterPageHeader          stop
parquet-41-early  15 80 10 1c 1c 00 00 1c 1c 00 00 00        numBytes, BLOCK, MURMUR3
parquet-41-raw    00 04 00 00 | 00 00 00 00 | 00 00 00 00    numBytes, hash, algorithm (LE int32)

Murmur3's seed and the index rule stand in no text; the programs of that year used the pair RULE,
and only it reproduces their bytes (fixtures/vectors/mr2018_vectors.json). MURMUR3 and
XXHASH share union id 1, and for some weeks of 2019 the three-field header meant XXH64: early and
raw headers do not say their hash. Source: parquet-format commit 54839ad; docs/formats.md section 3.
"""

from __future__ import annotations

import struct
from typing import Any

from parquet_bloom._thrift.parquet_41 import ttypes
from parquet_bloom.errors import FilterFormatError, FooterError, UnknownFilterError
from parquet_bloom.format import compact, final
from parquet_bloom.format.compact_tree import Node, parse
from parquet_bloom.format.final import Candidate, Header, Rule
from parquet_bloom.kernels.split_block import BLOCK_BYTES, MAX_BYTES

SEED = 1361930890
RULE = Rule("murmur3", SEED, "mask")
_XXH64_MASK = Rule("xxh64", 0, "mask")
_OLD_MURMUR3 = Rule("murmur3", 104729, "mask")  # parquet-cpp's first seed
_RAW_BYTES, _RAW_2020_BYTES = 12, 16
_HEADER = {2: {1: {}}, 3: {1: {}}, 4: {1: {}}, 9: {2: {1: {}}, 3: {1: {}}}}


# --- writing --------------------------------------------------------------------------------------


def _unions() -> dict[str, Any]:
    return {
        "algorithm": ttypes.BloomFilterAlgorithm(BLOCK=ttypes.SplitBlockAlgorithm()),
        "hash": ttypes.BloomFilterHash(MURMUR3=ttypes.Murmur3()),
    }


def page_header(num_bytes: int) -> bytes:
    """parquet-41: a PageHeader of type BLOOM_FILTER_PAGE."""
    return compact.encode(
        ttypes.PageHeader(
            type=ttypes.PageType.BLOOM_FILTER_PAGE,
            uncompressed_page_size=num_bytes,
            compressed_page_size=num_bytes,
            bloom_filter_page_header=ttypes.BloomFilterPageHeader(numBytes=num_bytes, **_unions()),
        )
    )


def early_header(num_bytes: int) -> bytes:
    """parquet-41-early: a bare BloomFilterHeader of three fields."""
    return compact.encode(ttypes.BloomFilterHeader(numBytes=num_bytes, **_unions()))


def raw_header(num_bytes: int) -> bytes:
    """parquet-41-raw: what parquet-cpp and parquet-mr really wrote."""
    return struct.pack("<iii", num_bytes, 0, 0)


# --- reading --------------------------------------------------------------------------------------


def read_thrift(data: bytes) -> Header:
    """Read a Thrift header of any form by the types of its fields.

    Raises UnknownFilterError for an algorithm, hash or compression we do not know (an empty
    union, as parquetjs writes, names none), FilterFormatError for anything else.
    """
    try:
        node, size = parse(data, _HEADER)
    except FooterError as error:
        raise FilterFormatError(f"the header is not Thrift: {error}") from error
    shape = {f.id: "struct" if isinstance(f.value, Node) else f.wire for f in node.fields}
    i32 = 5
    if len(shape) != len(node.fields):
        raise FilterFormatError("the header has a field twice")
    if shape == {1: i32, 2: "struct", 3: "struct", 4: "struct"}:
        _only_members(node, {2: "algorithm", 3: "hash", 4: "compression"})
        return Header("final", _bitset_bytes(node.get(1)), (Candidate(final.RULE, size),))
    if shape == {1: i32, 2: "struct", 3: "struct"}:
        _only_members(node, {2: "algorithm", 3: "hash"})
        num_bytes = _bitset_bytes(node.get(1), power_of_two=True)
        return Header("parquet-41-early", num_bytes, (Candidate(RULE, size), Candidate(_XXH64_MASK, size)))
    if shape in ({1: i32, 2: i32, 3: i32, 9: "struct"}, {1: i32, 2: i32, 3: i32, 4: i32, 9: "struct"}):
        return _page(node, size)
    raise UnknownFilterError(f"the header's fields {sorted(shape)} are those of no known form")


def _page(node: Node, size: int) -> Header:
    page_type, inner = node.get(1), node.get(9)
    if page_type != ttypes.PageType.BLOOM_FILTER_PAGE:
        raise FilterFormatError(f"a page of type {page_type} lies there, not a Bloom filter page (4)")
    if {f.id for f in inner.fields} != {1, 2, 3} or not isinstance(inner.get(1), int):
        raise UnknownFilterError("the Bloom filter page's header is of no known form")
    _only_members(inner, {2: "algorithm", 3: "hash"})
    num_bytes = _bitset_bytes(inner.get(1), power_of_two=True)
    for number, name in ((2, "uncompressed_page_size"), (3, "compressed_page_size")):
        if node.get(number) != num_bytes:
            raise FilterFormatError(f"{name} is {node.get(number)}, numBytes is {num_bytes}")
    return Header("parquet-41", num_bytes, (Candidate(RULE, size),), node.get(4))


def _only_members(node: Node, unions: dict[int, str]) -> None:
    """Check that each union names its member 1, the only one of any known form."""
    for number, what in unions.items():
        union = node.get(number)
        members = [f.id for f in union.fields] if isinstance(union, Node) else []
        if members == [1] and isinstance(union.fields[0].value, Node) and union.fields[0].value.fields:
            raise UnknownFilterError(f"{what} 1 has parameters that are unknown")
        if members != [1] or not isinstance(union.fields[0].value, Node):
            raise UnknownFilterError(f"{what} {members[0]} is unknown" if members else f"the header names no {what}")


def _bitset_bytes(num_bytes: int, power_of_two: bool = False) -> int:
    if num_bytes <= 0 or num_bytes % BLOCK_BYTES:
        raise FilterFormatError(f"numBytes is {num_bytes}, not a positive multiple of {BLOCK_BYTES}")
    if power_of_two and num_bytes & (num_bytes - 1):
        raise FilterFormatError(f"numBytes is {num_bytes}, not a power of two")
    return num_bytes


def read_raw(data: bytes, total: int | None) -> Header:
    """Read little-endian ints: (n, 0, 0), or (n, 0, 0, 0) of 2020.

    A total of n + 12 leaves the first only. One of n + 16 leaves both: there may be padding.
    """
    if len(data) < _RAW_BYTES:
        raise FilterFormatError(f"{len(data)} bytes are too short for any header")
    num_bytes, kind, algorithm = struct.unpack_from("<iii", data)
    if (kind, algorithm) != (0, 0) or not BLOCK_BYTES <= num_bytes <= MAX_BYTES or num_bytes & (num_bytes - 1):
        raise FilterFormatError(f"the bytes {data[:4].hex(' ')} ... begin no known header")
    three = [Candidate(rule, _RAW_BYTES) for rule in (RULE, _XXH64_MASK, _OLD_MURMUR3)]
    four = [Candidate(final.RULE, _RAW_2020_BYTES)] if data[_RAW_BYTES:_RAW_2020_BYTES] == bytes(4) else []
    if total == _RAW_BYTES + num_bytes:
        four = []
    likeliest_first = (*four, *three) if total == _RAW_2020_BYTES + num_bytes else (*three, *four)
    return Header("parquet-41-raw", num_bytes, likeliest_first)
