"""The k-probe filter of 2015: one bitset of longs, k positions a value from two hashes.

    longs:  | long 0 | long 1 | ... |      bit p is bit (p & 63), lowest first, of long p >> 6

    MURMUR128_32   h1, h2: lower and upper int of one 64-bit hash; c = int(h1 + i * h2), ~c if negative
                   i = 1..k, in the family hive 2..k+1                           position c % m
    MURMUR128_64   h1, h2: the two 64-bit halves of one hash; c = h1, h1 + h2, ...
                                                                   position (c & 2^63-1) % m

Three families hash and size differently (m bits, k probes; nb = trunc(-n ln p / ln2^2)):

    orc    numbers by Thomas Wang's hash of the sign-extended long, bytes by Hive's murmur64
           m = nb + (64 - nb % 64), always more; k = max(1, round(m / n ln2))
    hive   as orc, but i begins with 2
    guava  murmur3_x64_128, seed 0, of the bytes; m = 64 ceil(nb / 64); k = max(1, round(nb / n ln2))

Sources: ORC's and Hive's BloomFilter.java, Guava's BloomFilterStrategies.java; docs/formats.md section 4.
Proven with pr215_vectors.json, guava_vectors.json and value_vectors.json of fixtures/vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import mmh3
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import FilterShapeError
from parquet_bloom.kernels import block
from parquet_bloom.kernels.hashes import compiled, hash_array, loop
from parquet_bloom.options import Family, Strategy

Kind = Literal["integer", "float", "bytes"]
Longs = NDArray[np.uint64]
Hashes = tuple[NDArray[np.uint64], ...]  # one array; of MURMUR128_64 two, the halves

MAX_BITS = (1 << 31) - 64  # numBits is an i32
MAX_PROBES = 4096  # no size that any family works out has more
HIVE_SEED = 104729  # DEFAULT_SEED of Hive's Murmur3
_U64 = (1 << 64) - 1
_U32 = (1 << 32) - 1


# --- a single value, without the compiler ---------------------------------------------------------


def _signed(x: int) -> int:
    return x - (1 << 64) if x >> 63 else x


def wang(key: int) -> int:
    """Hash a long, signed or not, to 64 bits, unsigned."""
    k = _signed(key & _U64)
    k = _signed((~k + (k << 21)) & _U64)
    k ^= k >> 24
    k = _signed((k + (k << 3) + (k << 8)) & _U64)
    k ^= k >> 14
    k = _signed((k + (k << 2) + (k << 4)) & _U64)
    k ^= k >> 28
    return (k + (k << 31)) & _U64


def _rotl(x: int, r: int) -> int:
    return (x << r | x >> (64 - r)) & _U64


def _mix(k: int) -> int:
    return _rotl(k * 0x87C37B91114253D5 & _U64, 31) * 0x4CF5AD432745937F & _U64


def hive64(data: bytes, seed: int = HIVE_SEED) -> int:
    """Hive's murmur64: one lane of Murmur3, unsigned."""
    h, whole = seed, len(data) // 8 * 8
    for at in range(0, whole, 8):
        h ^= _mix(int.from_bytes(data[at : at + 8], "little"))
        h = (_rotl(h, 27) * 5 + 0x52DCE729) & _U64
    h ^= _mix(int.from_bytes(data[whole:], "little")) ^ len(data)
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _U64
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _U64
    return h ^ h >> 33


def number_of(plain: bytes, floats: bool) -> int:
    """4 or 8 little-endian bytes as Java has them in a long: sign-extended, NaN canonical."""
    bits = int.from_bytes(plain, "little")
    if len(plain) == 4:
        if floats and bits & 0x7FFFFFFF > 0x7F800000:
            bits = 0x7FC00000
        return bits - (1 << 32) if bits >> 31 else bits
    if floats and bits & (1 << 63) - 1 > 0x7FF0000000000000:
        bits = 0x7FF8000000000000
    return _signed(bits)


@dataclass(frozen=True, slots=True)
class KProbeRule:
    """How a value becomes positions.

    family, strategy  see above
    kind              of the values: "integer" and "float" are 4 or 8 bytes, "bytes" any
    """

    family: Family
    strategy: Strategy
    kind: Kind

    def hash_value(self, plain: bytes) -> tuple[int, ...]:
        """Hash the PLAIN bytes of one value: one 64-bit hash, of MURMUR128_64 two, unsigned."""
        if self.family == "guava":
            both: tuple[int, int] = mmh3.hash64(plain, seed=0, x64arch=True, signed=False)
            return both if self.strategy == "MURMUR128_64" else both[:1]
        if self.kind == "bytes":
            return (hive64(plain),)
        return (wang(number_of(plain, self.kind == "float")),)

    def hash_values(self, values: pa.Array | pa.ChunkedArray) -> Hashes:
        """Hash each value that is not null: uint64[n], of MURMUR128_64 two of them.

        values  any Arrow array that hash_array takes, of the PLAIN bytes: numbers, or binary of their width
        """
        if self.family == "guava":
            first = hash_array(values, "murmur3")
            return (first, hash_array(values, "murmur3-h2")) if self.strategy == "MURMUR128_64" else (first,)
        if self.kind == "bytes":
            return (hash_array(values, "hive64", HIVE_SEED),)
        return (hash_array(values, "wang", int(self.kind == "float")),)

    @property
    def first(self) -> int:
        """The first index of the positions: Hive skips one."""
        return 2 if self.family == "hive" else 1

    def __str__(self) -> str:
        return f"{self.family} {self.strategy}"


def positions(rule: KProbeRule, hashes: tuple[int, ...], k: int, num_bits: int) -> list[int]:
    """The k positions of one value's hashes, 0 <= position < num_bits."""
    if rule.strategy == "MURMUR128_64":
        c, step = hashes
        return [((c + i * step) & _U64 >> 1) % num_bits for i in range(k)]
    # As ints of Java: the sum wraps to 32 bits, and a negative one has all of its bits turned.
    low, high = hashes[0] & _U32, hashes[0] >> 32
    combined = [(low + i * high) & _U32 for i in range(rule.first, rule.first + k)]
    return [(c ^ _U32 if c >> 31 else c) % num_bits for c in combined]


def contains_value(longs: Longs, rule: KProbeRule, k: int, plain: bytes) -> bool:
    """Probe one value by its PLAIN bytes: True is "perhaps", False is "certainly not"."""
    _check(longs, k)
    return all(int(longs[p >> 6]) >> (p & 63) & 1 for p in positions(rule, rule.hash_value(plain), k, 64 * len(longs)))


# --- whole arrays ---------------------------------------------------------------------------------


def empty(num_bits: int) -> Longs:
    """Make a filter that holds nothing: uint64[num_bits / 64]."""
    if not 64 <= num_bits <= MAX_BITS or num_bits % 64:
        raise FilterShapeError(f"a filter of {num_bits} bits is not 1 to {MAX_BITS // 64} longs")
    return np.zeros(num_bits // 64, np.uint64)


def _check(longs: Longs, k: int) -> None:
    if longs.ndim != 1 or longs.dtype != np.uint64 or not 1 <= len(longs) <= MAX_BITS // 64:
        raise FilterShapeError(f"a bitset of {longs.dtype}{list(longs.shape)} is not uint64[1 to {MAX_BITS // 64}]")
    if not 1 <= k <= MAX_PROBES:
        raise FilterShapeError(f"{k} hash functions are not 1 to {MAX_PROBES}")


def insert_hashes(longs: Longs, rule: KProbeRule, k: int, hashes: Hashes) -> None:
    """Insert hashes, as rule.hash_values gives them, into longs, uint64[n], in place."""
    _check(longs, k)
    name = "insert_64" if rule.strategy == "MURMUR128_64" else "insert_32"
    if not compiled(block.PROBE_NS * k * len(hashes[0])):
        if rule.strategy == "MURMUR128_64":
            block.insert_64(longs, (hashes[0], hashes[1]), k)
        else:
            block.insert_32(longs, hashes[0], rule.first, k)
        return
    if rule.strategy == "MURMUR128_64":
        loop(name)(longs, hashes[0], hashes[1], np.uint64(k))
    else:
        loop(name)(longs, hashes[0], np.uint64(rule.first), np.uint64(k))


def contains_hashes(longs: Longs, rule: KProbeRule, k: int, hashes: Hashes) -> NDArray[np.bool_]:
    """Say which values may have been inserted: True is "perhaps", False is "certainly not".

    longs    uint64[num_bits / 64]
    hashes   as rule.hash_values gives them, uint64[n]
    returns  bool[n]

    Raises FilterShapeError for a bitset or a k that no filter has.
    """
    _check(longs, k)
    out = np.empty(len(hashes[0]), np.bool_)
    name = "contains_64" if rule.strategy == "MURMUR128_64" else "contains_32"
    if not compiled(block.PROBE_NS * k * len(hashes[0])):
        if rule.strategy == "MURMUR128_64":
            block.contains_64(longs, (hashes[0], hashes[1]), k, out)
        else:
            block.contains_32(longs, hashes[0], rule.first, k, out)
        return out
    if rule.strategy == "MURMUR128_64":
        loop(name)(longs, hashes[0], hashes[1], np.uint64(k), out)
    else:
        loop(name)(longs, hashes[0], np.uint64(rule.first), np.uint64(k), out)
    return out


def bits_set(longs: Longs) -> int:
    """Count the bits that are set."""
    return int(np.bitwise_count(longs).sum(dtype=np.int64))


def fpp_of(longs: Longs, k: int) -> float:
    """The probability that k random positions are all set, 0.0 to 1.0."""
    return float((bits_set(longs) / (64 * len(longs))) ** k)


def estimated_ndv(longs: Longs, k: int) -> float:
    """How many distinct values the share of bits set speaks of; infinite for a full bitset."""
    m, found = 64 * len(longs), bits_set(longs)
    return math.inf if found >= m else -m / k * math.log1p(-found / m)


# --- sizes ----------------------------------------------------------------------------------------


def _java_round(x: float) -> int:
    return math.floor(x + 0.5)


def size_for(family: Family, n: int, fpp: float, max_bits: int = MAX_BITS) -> tuple[int, int]:
    """Bits and probes for n values at a false positive rate of fpp, as the family works them out.

    max_bits  a multiple of 64; a larger filter is cut to it, with the probes that then serve best
    """
    # Bits: -n ln p / ln2^2, as each family rounds it. Probes: the best k for the bits that `basis` names, which in
    # Guava are those before the rounding.
    wanted = int(-n * math.log(fpp) / (math.log(2) * math.log(2)))
    if family == "guava":
        wanted = max(1, wanted)
        num_bits, basis = -(-wanted // 64) * 64, wanted
    else:
        num_bits = basis = wanted + (64 - wanted % 64)
    if num_bits > max_bits:
        num_bits = basis = max_bits
    most = 255 if family == "guava" else MAX_PROBES  # Guava writes k as one byte
    return num_bits, min(most, max(1, _java_round(basis / n * math.log(2))))
