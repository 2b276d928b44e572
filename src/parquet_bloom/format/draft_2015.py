"""`statistics`: the k-probe filter of the 2015 draft, in the footer, beside a chunk's min and max.

    struct BloomFilter { 1 list<i64> bitSet, 2 i32 numBits, 3 i32 numHashFunctions, 4 BloomFilterStrategy }

numBits 192, k 7, MURMUR128_32, Thrift compact:
    19 36 ...          | 15 80 03 | 15 0e           | 15 00    | 00
    bitSet, zigzag i64   numBits    numHashFunctions  strategy   stop

The draft put it into Statistics as field 7, which is is_max_value_exact today: engines cannot open such a
file. So it is written, as base64, into the column chunk's own key-values, which every engine passes over:

    parquet_bloom.statistics = base64(struct)   .family = orc, guava or hive   .strategy = MURMUR128_32 or _64

Both are read. Field 7 does not say its family: all that have its strategy are held. Its later form has
as bitSet what Java makes of a long[] (java_longs). Sources: parquet-format PR #28, parquet-java PR #215.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom._thrift.parquet.ttypes import Type
from parquet_bloom._thrift.parquet_statistics import ttypes
from parquet_bloom.errors import FilterFormatError, FooterError, RequestError
from parquet_bloom.format import compact
from parquet_bloom.format.schema import BOOLEAN, DOUBLE, FLBA, FLOAT, INT32, INT64, Leaf
from parquet_bloom.kernels import k_probe
from parquet_bloom.kernels.k_probe import Kind, KProbeRule
from parquet_bloom.options import Family, Strategy

KEY = "parquet_bloom.statistics"
FAMILY_KEY, STRATEGY_KEY = f"{KEY}.family", f"{KEY}.strategy"
KEYS = (KEY, FAMILY_KEY, STRATEGY_KEY)
FPP = 0.05
MAX_BYTES = 16 << 20  # of a bitset: pyarrow reads no text of 100 MB, and base64 of varints takes 5/3
_JAVA = bytes.fromhex("aced0005757200025b4a782004b512b175930200007870")

# The strategies of each family; the first is what its own programs write.
STRATEGIES: dict[Family, tuple[Strategy, ...]] = {
    "orc": ("MURMUR128_32",),
    "guava": ("MURMUR128_64", "MURMUR128_32"),
    "hive": ("MURMUR128_32",),
}


@dataclass(frozen=True, slots=True)
class Style:
    """The family of filters to write."""

    family: Family = "orc"
    strategy: Strategy = "MURMUR128_32"

    def rule(self, leaf: Leaf) -> KProbeRule:
        """How this family hashes a column's values."""
        return KProbeRule(self.family, self.strategy, kind_of(leaf))


def style_named(family: str | None, strategy: str | None) -> Style:
    """The style that two names mean; None for either is its default. Raises RequestError."""
    family = family or "orc"
    if family not in STRATEGIES:
        raise RequestError(f"unknown hash family {family}; there are: {', '.join(STRATEGIES)}")
    known = STRATEGIES[family]
    strategy = strategy or known[0]
    if strategy not in get_args(Strategy):
        raise RequestError(f"unknown strategy {strategy}; there are: {', '.join(get_args(Strategy))}")
    if strategy not in known:
        raise RequestError(f"hash family {family} has no strategy {strategy}, its one is {known[0]}")
    return Style(family, strategy)


def kind_of(leaf: Leaf) -> Kind:
    """The families' kind of a type: integers, floats, bytes."""
    if leaf.physical in (INT32, INT64):
        return "integer"
    return "float" if leaf.physical in (FLOAT, DOUBLE) else "bytes"


def refusal(leaf: Leaf) -> str | None:
    """Why the draft has no filter for this column; None if it has one."""
    if leaf.physical == BOOLEAN:
        return "the 2015 draft has no filter for BOOLEAN"
    if (leaf.physical == FLBA and leaf.type_length < 1) or leaf.physical not in Type._VALUES_TO_NAMES:
        return leaf.refusal
    return None


# --- a filter as a value --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KProbeFilter:
    """A whole filter in memory.

    longs  uint64[num_bits / 64]
    k      numHashFunctions
    rules  that its bits may follow, likeliest first; absent is only what all of them say is absent
    """

    longs: k_probe.Longs
    k: int
    rules: tuple[KProbeRule, ...]

    @property
    def spec(self) -> str:
        """The name of its form."""
        return "statistics"

    @property
    def num_bits(self) -> int:
        """Bits of the bitset."""
        return 64 * len(self.longs)

    @property
    def num_bytes(self) -> int:
        """Bytes of the bitset."""
        return self.longs.nbytes

    @property
    def hash_functions(self) -> int:
        """Positions that a value takes."""
        return self.k

    @property
    def bits_set(self) -> int:
        """How many of the bits are set."""
        return k_probe.bits_set(self.longs)

    @property
    def fpp(self) -> float:
        """False positive rate for random absent values, by the bits."""
        return k_probe.fpp_of(self.longs, self.k)

    @property
    def estimated_ndv(self) -> float:
        """Distinct values, from the share of bits set."""
        return k_probe.estimated_ndv(self.longs, self.k)

    def might_contain(self, plain: bytes) -> bool:
        """Probe one value by its PLAIN bytes: True is "perhaps", False is "certainly not"."""
        return any(k_probe.contains_value(self.longs, rule, self.k, plain) for rule in self.rules)

    def might_contain_array(self, values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
        """Probe each value of an Arrow array that is not null: PLAIN values, or binary of their bytes."""
        answers = [k_probe.contains_hashes(self.longs, rule, self.k, rule.hash_values(values)) for rule in self.rules]
        admitted: NDArray[np.bool_] = np.logical_or.reduce(answers)
        return admitted

    def might_contain_hashed(self, values: pa.Array, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The same of values whose XXH64 with seed 0 is known, which no family uses."""
        return self.might_contain_array(values)


# --- the struct -----------------------------------------------------------------------------------


def java_longs(longs: k_probe.Longs) -> bytes:
    """A long[] as Java serialises it: 23 bytes that never change, count (int32 BE), longs (int64 BE)."""
    return _JAVA + struct.pack(">i", len(longs)) + longs.astype(">u8").tobytes()


def read_java_longs(data: bytes) -> k_probe.Longs:
    """The inverse of java_longs. Raises FilterFormatError."""
    head = len(_JAVA) + 4
    if not data.startswith(_JAVA) or len(data) < head:
        raise FilterFormatError(f"bitSet, {len(data)} bytes, is no long[] as Java serialises it")
    (count,) = struct.unpack_from(">i", data, len(_JAVA))
    if len(data) != head + 8 * count:
        raise FilterFormatError(f"bitSet announces {count} longs, {len(data) - head} bytes follow")
    return np.frombuffer(data, ">u8", offset=head).astype(np.uint64)


def encode_struct(bloom: KProbeFilter, binary: bool = False) -> bytes:
    """Write the struct, of the first form or, `binary`, of the later one."""
    strategy = ttypes.BloomFilterStrategy._NAMES_TO_VALUES[bloom.rules[0].strategy]
    if binary:
        later = ttypes.BloomFilterBinary(java_longs(bloom.longs), bloom.num_bits, bloom.k, strategy)
        return compact.encode(later)
    return compact.encode(ttypes.BloomFilter(bloom.longs.view(np.int64).tolist(), bloom.num_bits, bloom.k, strategy))


def decode_struct(data: bytes) -> tuple[k_probe.Longs, int, Strategy]:
    """Read a struct of either form: longs, numHashFunctions, name of the strategy.

    Raises FilterFormatError where its numbers contradict each other, or the strategy is unknown.
    """
    # Either field header has a short form, and a long one that names the id.
    kind: Any = ttypes.BloomFilterBinary if data[:1] == b"\x18" or data[:2] == b"\x08\x02" else ttypes.BloomFilter
    try:
        found, used = compact.decode(kind, data)
    except FooterError as error:
        raise FilterFormatError(f"the filter is not Thrift: {error}") from error
    if used != len(data):
        raise FilterFormatError(f"the filter's struct takes {used} bytes of {len(data)}")
    num_bits, k = found.numBits, found.numHashFunctions
    if found.bitSet is None or num_bits is None or k is None or found.strategy is None:
        raise FilterFormatError("the filter's struct lacks a field")
    if kind is ttypes.BloomFilterBinary:
        longs = read_java_longs(found.bitSet)
    else:
        try:
            longs = np.array(found.bitSet, np.int64).view(np.uint64)
        except (OverflowError, ValueError, TypeError) as error:
            raise FilterFormatError("bitSet holds what is no long") from error
    if num_bits != 64 * len(longs) or not len(longs):
        raise FilterFormatError(f"numBits is {num_bits}, bitSet has {64 * len(longs)} bits")
    if not 1 <= k <= k_probe.MAX_PROBES:
        raise FilterFormatError(f"numHashFunctions is {k}, not 1 to {k_probe.MAX_PROBES}")
    return longs, k, strategy_of(found.strategy)


def strategy_of(number: int) -> Strategy:
    """The name of a strategy. Raises FilterFormatError for a number that names none."""
    name: Any = ttypes.BloomFilterStrategy._VALUES_TO_NAMES.get(number)
    if name is None:
        raise FilterFormatError(f"strategy {number} is unknown")
    known: Strategy = name
    return known


# --- in a file ------------------------------------------------------------------------------------


class FooterFilter(NamedTuple):
    """A filter as a footer holds it.

    held_in  "column metadata", the chunk's key-values, or "Statistics", the draft's own
    pairs    the key-values that are ours; data is the struct of the draft
    """

    held_in: str
    pairs: tuple[tuple[str, str | None], ...] = ()
    data: bytes = b""

    @property
    def spec(self) -> str:
        """The name of its form."""
        return "statistics"

    @property
    def length(self) -> int:
        """Bytes of the struct, as base64 in column metadata."""
        return sum(len(value or "") for key, value in self.pairs if key == KEY) + len(self.data)

    @property
    def caveat(self) -> str:
        """The note on a filter in that place; "" for none."""
        unreadable = "Polars and DataFusion cannot open a file with a filter there"
        return unreadable if self.held_in == "Statistics" else ""

    def refusal(self, leaf: Leaf) -> str | None:
        """Why its form has no filter for such a column, so that one there says nothing; None where it has."""
        return refusal(leaf)

    def decode(self, leaf: Leaf) -> KProbeFilter:
        """Decode it for a column. Raises FilterFormatError where it is no evidence."""
        if self.held_in == "Statistics":
            longs, k, strategy = decode_struct(self.data)
            families = [f for f, known in STRATEGIES.items() if strategy in known]
            return KProbeFilter(longs, k, tuple(KProbeRule(f, strategy, kind_of(leaf)) for f in families))
        values = dict(self.pairs)
        if len(values) != len(self.pairs) or set(values) != set(KEYS):
            raise FilterFormatError(f"the key-values are {', '.join(sorted(k for k, _ in self.pairs))}, not each once")
        family, strategy_beside = values[FAMILY_KEY], values[STRATEGY_KEY]
        try:
            data = base64.b64decode(values[KEY] or "", validate=True)
        except ValueError as error:
            raise FilterFormatError(f"{KEY} is not base64: {error}") from error
        longs, k, strategy = decode_struct(data)
        if family not in STRATEGIES:
            raise FilterFormatError(f"hash family {family} is unknown")
        if strategy_beside != strategy:
            raise FilterFormatError(f"the filter's strategy is {strategy}, beside it stands {strategy_beside}")
        if strategy not in STRATEGIES[family]:
            raise FilterFormatError(f"hash family {family} has no strategy {strategy}")
        return KProbeFilter(longs, k, (KProbeRule(family, strategy, kind_of(leaf)),))


def key_values(bloom: KProbeFilter) -> list[tuple[str, str]]:
    """The key-values of a column chunk that hold a filter."""
    rule = bloom.rules[0]
    text = base64.b64encode(encode_struct(bloom)).decode()
    return [(KEY, text), (FAMILY_KEY, rule.family), (STRATEGY_KEY, rule.strategy)]


def filter_in_pairs(pairs: Iterable[tuple[str, str | None]]) -> FooterFilter | None:
    """The filter that is among the key-values of a column chunk."""
    ours = tuple((key, value) for key, value in pairs if key in KEYS)
    return FooterFilter("column metadata", ours) if any(key == KEY for key, _ in ours) else None


def built(rule: KProbeRule, hashes: Sequence[k_probe.Hashes], num_bits: int, k: int) -> KProbeFilter:
    """Build a filter of hashes that rule.hash_values gave."""
    longs = k_probe.empty(num_bits)
    for some in hashes:
        k_probe.insert_hashes(longs, rule, k, some)
    return KProbeFilter(longs, k, (rule,))


# --- guava ----------------------------------------------------------------------------------------
#
# What Guava's BloomFilter.writeTo writes, for filters of the family guava.
#
#    | strategy | k | count of longs, int32 BE | longs, int64 BE |        a byte each for the first two
#
# Source: Guava's BloomFilter.java; fixtures/vectors/guava_vectors.json.


def encode_guava(bloom: KProbeFilter) -> bytes:
    """Encode as BloomFilter.writeTo does: strategy and k, a byte each, count of longs (int32 BE), longs BE."""
    rule = bloom.rules[0]
    if len(bloom.rules) != 1 or rule.family != "guava":
        held = ", ".join(dict.fromkeys(r.family for r in bloom.rules))
        raise RequestError(f"a filter of hash family {held} means nothing to Guava")
    strategy = ttypes.BloomFilterStrategy._NAMES_TO_VALUES[rule.strategy]
    if bloom.k > 255:
        raise RequestError(f"Guava knows no filter of {bloom.k} hash functions")
    return struct.pack(">BBi", strategy, bloom.k, len(bloom.longs)) + bloom.longs.astype(">u8").tobytes()


def decode_guava(data: bytes, kind: Kind = "bytes") -> KProbeFilter:
    """Read what Guava's BloomFilter.writeTo wrote, by a funnel that gives the hasher the PLAIN bytes alone.

    longFunnel is that of INT64, integerFunnel of INT32, byteArrayFunnel and stringFunnel(UTF_8) of
    BYTE_ARRAY. Raises FilterFormatError.
    """
    if len(data) < 6:
        raise FilterFormatError(f"{len(data)} bytes are too short for a filter of Guava's")
    ordinal, k, count = struct.unpack_from(">BBi", data)
    strategy = strategy_of(ordinal)
    if count < 1 or len(data) != 6 + 8 * count or not k:
        raise FilterFormatError(f"{k} hash functions and {count} longs are announced, {len(data) - 6} bytes follow")
    longs = np.frombuffer(data, ">u8", offset=6).astype(np.uint64)
    return KProbeFilter(longs, k, (KProbeRule("guava", strategy, kind),))
