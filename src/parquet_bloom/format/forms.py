"""The forms of filter that are written: their protocol, each form by its name, and the options of the 2015 draft.

Two implementations of the protocol: SplitBlockForm (today's format and the drafts of 2018) and KProbeForm (the draft
of 2015). A form says how a filter is built, where it may lie, and how a file describes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.errors import RequestError, parameter
from parquet_bloom.format import draft_2015, final, parquet_41
from parquet_bloom.format.draft_2015 import Style, built, key_values, style_named
from parquet_bloom.format.final import Rule
from parquet_bloom.format.footer import ChunkKey, Footer
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.values import arrow_of, stored_floats, twins
from parquet_bloom.kernels import k_probe, split_block
from parquet_bloom.kernels.hashes import hash_array
from parquet_bloom.options import DEFAULT_FORM, Draft2015, Form, FormName, Placement

Rate = float | Literal["auto"]  # a false positive rate, or whatever lets a reader read least
Batches = Callable[[], Iterable[pa.Array]]  # a column chunk's stored values, from the start each time it is called
BATCH_ROWS = 1 << 16  # of a batch: values, hashes and a filter of ordinary size then share the processor's cache
USELESS_FPP = 0.5  # a filter that admits more than half of all absent values is not written


class Sizing(NamedTuple):
    """How large a filter may be.

    fpp        target rate
    ndv        first guess of distinct values
    max_bytes  limit of the bitset
    in_vain    bytes that an error makes a reader read. With it there is no target: the filter has the size at which
               its own bytes and those that its errors cost are least together
    """

    fpp: float = 0.01
    ndv: int | None = None
    max_bytes: int = split_block.MAX_BYTES
    in_vain: int | None = None

    def size_for(self, ndv: int) -> int:
        """Bytes of a split block filter of so many distinct values, a power of two."""
        if self.in_vain is None:
            return split_block.size_for(ndv, self.fpp, self.max_bytes)
        return split_block.least_size(ndv, self.in_vain, self.max_bytes)

    def is_reached(self, num_bytes: int, rate: float, ndv: float) -> bool:
        """Whether a filter of this size and rate, of some ndv distinct values (infinity: full), is large enough."""
        if self.in_vain is None:
            return rate <= self.fpp
        return math.isfinite(ndv) and num_bytes >= self.size_for(max(1, round(0.9 * ndv)))

    def may_fold(self, num_bytes: int, rate: float, folded_rate: float) -> bool:
        """Whether half of such a filter, which has another rate, does as well."""
        if self.in_vain is None:
            return folded_rate <= self.fpp
        return num_bytes // 2 + folded_rate * self.in_vain <= num_bytes + rate * self.in_vain


class BuiltFilter(NamedTuple):
    """A filter, or the reason why there is none.

    data    header and bitset, as they go into the file; None without a filter
    texts   of `statistics`: the key-values of the column chunk, and data is empty
    fpp     its exact false positive rate
    reached whether the fpp is within the target; not so where max_bytes was in the way
    """

    data: bytes | None
    reason: str = ""
    fpp: float = 0.0
    num_bytes: int = 0
    estimated_ndv: float = 0.0
    reached: bool = True
    texts: tuple[tuple[str, str], ...] = ()


class Format(Protocol):
    """One form of filter."""

    @property
    def name(self) -> str:
        """As options.FormName has it."""

    @property
    def placements(self) -> tuple[Placement, ...]:
        """The places in the body for its filters, the default first; none where they lie in the footer."""

    @property
    def writes_length(self) -> bool:
        """Whether the footer has bloom_filter_length; the drafts of 2018 know no such field."""

    @property
    def breaks(self) -> str:
        """Engines that fail on a file with such filters, measured; "" for none."""

    @property
    def fpp(self) -> float:
        """The default false positive rate."""

    @property
    def max_bytes(self) -> int:
        """The most a bitset may take."""

    @property
    def described(self) -> Mapping[str, Any]:
        """How values become bits, as a file's provenance has it."""

    def refusal(self, leaf: Leaf) -> str | None:
        """Why it has no filter for such a column; None where it has."""

    def chunk_refusal(self, footer: Footer, key: ChunkKey) -> str | None:
        """Why this chunk's part of the footer takes no filter of it; None where it does."""

    def most_bytes(self, n_values: int, sizing: Sizing) -> int:
        """The bytes that a filter of so many values takes at most, in the file, with its header."""

    def build(self, batches: Batches, leaf: Leaf, n_values: int, sizing: Sizing) -> BuiltFilter:
        """Build a filter from the values of one column chunk, of which there are n_values at most."""

    def is_smallest(self, leaf: Leaf, n_values: int, sizing: Sizing) -> bool:
        """Whether `build_smallest` can build the filter of so few values."""

    def build_smallest(self, arrays: Sequence[tuple[int, pa.Array]], sizing: Sizing) -> dict[int, BuiltFilter]:
        """Build the filters of several chunks of a few values each together, as `build` would.

        arrays   chunk, some of its values; all of a chunk's follow each other
        returns  chunk -> filter; those that need another size, or have no value, are not among them
        """


# --- a filter that answers ------------------------------------------------------------------------
#
# What a filter is to those who read one, once its bytes are in memory.
#
# Two implementations: `format.filters.BloomFilter` (split blocks, from the file's body) and
# `format.draft_2015.KProbeFilter` (the draft of 2015, from the footer).


class Filter(Protocol):
    """A whole filter, under every rule that it may follow: absent is only what all of these say is absent."""

    @property
    def spec(self) -> str:
        """The name of its form."""

    @property
    def num_bytes(self) -> int:
        """Bytes of the bitset."""

    @property
    def rules(self) -> tuple[Rule | k_probe.KProbeRule, ...]:
        """The rules that its bits may follow."""

    @property
    def hash_functions(self) -> int:
        """Positions that a value takes in the whole bitset; 0 where the form has blocks."""

    @property
    def bits_set(self) -> int:
        """How many of the bits are set, of 8 * num_bytes."""

    @property
    def fpp(self) -> float:
        """False positive rate for random absent values, by the bits."""

    @property
    def estimated_ndv(self) -> float:
        """Distinct values, from the share of bits set."""

    def might_contain(self, plain: bytes) -> bool:
        """Probe one value by its PLAIN bytes: True is "perhaps", False is "certainly not"."""

    def might_contain_array(self, values: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
        """Probe each value of an Arrow array that is not null: PLAIN values, or binary of their bytes."""

    def might_contain_hashed(self, values: pa.Array, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """The same of values whose XXH64 with seed 0 is known, as uint64[n] without nulls; most forms want no other."""


# --- forms of split blocks -------------------------------------------------------------------------
#
# The first allocation is for as many distinct values as the chunk has values (or ndv says); it is
# folded while the exact rate stays within the target, so the size comes from the data and no count
# of distinct values is needed. Too small an allocation is built again, twice as large.


@dataclass(frozen=True, slots=True)
class SplitBlockForm:
    """A form of split block filters, see Format.

    header  bitset bytes -> header bytes
    rule    how values are hashed and blocks are chosen
    """

    name: str
    header: Callable[[int], bytes]
    rule: Rule
    placements: tuple[Placement, ...]
    writes_length: bool
    breaks: str = ""
    fpp: float = 0.01
    max_bytes: int = split_block.MAX_BYTES

    @property
    def described(self) -> Mapping[str, Any]:
        """The rule."""
        return {"hash": self.rule.hash, "seed": self.rule.seed, "index": self.rule.index}

    def refusal(self, leaf: Leaf) -> str | None:
        """Why there is no filter for such a column."""
        return leaf.refusal

    def chunk_refusal(self, footer: Footer, key: ChunkKey) -> str | None:
        """The reason to refuse a chunk, in which another program uses the fields of a filter's range otherwise."""
        if key in footer.foreign_filter_fields:
            return "another program keeps something else where a filter's place goes in the footer"
        return None

    def most_bytes(self, n_values: int, sizing: Sizing) -> int:
        """Twice the first allocation: one whose exact rate misses the target by chance is built again larger."""
        size = 2 * sizing.size_for(max(n_values, sizing.ndv or 0))
        return min(size, sizing.max_bytes) + 32

    def build(self, batches: Batches, leaf: Leaf, n_values: int, sizing: Sizing) -> BuiltFilter:
        """Build the smallest filter within the target rate."""
        blocks, fpp = fill(batches, leaf, self.rule, sizing, n_values * (2 if leaf.float_bits == 16 else 1))
        if blocks is None:
            return BuiltFilter(None, "no value is stored")
        if fpp > USELESS_FPP:
            shown = f"{blocks.nbytes} bytes reach a false positive rate of {fpp:.0%} only"
            return BuiltFilter(None, f"{shown}: give more " + parameter("max_bytes"), fpp)
        reached = sizing.is_reached(blocks.nbytes, fpp, split_block.estimated_ndv(blocks))
        return _built(self.header(blocks.nbytes), blocks, fpp, reached)

    def is_smallest(self, leaf: Leaf, n_values: int, sizing: Sizing) -> bool:
        """Whether the first allocation is one block. Not for floats, as their zeros and NaNs have twins."""
        first = sizing.size_for(sizing.ndv or n_values)
        return not leaf.float_bits and first == split_block.MIN_BYTES

    def build_smallest(self, arrays: Sequence[tuple[int, pa.Array]], sizing: Sizing) -> dict[int, BuiltFilter]:
        """Filters of one block each."""
        if not arrays:
            return {}
        filled = {chunk: 0 for chunk, _ in arrays}
        for chunk, values in arrays:
            filled[chunk] += len(values) - values.null_count
        together = pa.chunked_array([values for _, values in arrays]).combine_chunks()
        hashes = hash_array(together, self.rule.hash, self.rule.seed)
        counts = np.array(list(filled.values()), np.int64)
        blocks = split_block.build_each(split_block.MIN_BYTES, counts, hashes, self.rule.index)
        rates = split_block.rates_of_each(blocks)
        header, n = self.header(split_block.MIN_BYTES), split_block.MIN_BYTES
        data, bits = blocks.tobytes(), np.bitwise_count(blocks).sum(axis=(1, 2)).tolist()
        return {
            chunk: BuiltFilter(header + data[n * i : n * i + n], "", rate, n, split_block.ndv_of_bits(bits[i], 1))
            for i, (chunk, rate, count) in enumerate(zip(filled, rates.tolist(), counts.tolist(), strict=True))
            if count and sizing.is_reached(n, rate, count)
        }


def _built(header: bytes, blocks: split_block.Blocks, fpp: float, reached: bool = True) -> BuiltFilter:
    data = b"".join((header, blocks.data.cast("B")))
    return BuiltFilter(data, "", fpp, blocks.nbytes, split_block.estimated_ndv(blocks), reached)


def stored_hashes(
    values: pa.Array, leaf: Leaf, rule: Rule, scratch: NDArray[np.uint64] | None = None
) -> Iterable[NDArray[np.uint64]]:
    """Hash the values of a batch that are not null, then the twins of its zeros and NaNs.

    scratch  uint64[n] that each result may lie in until the next is asked for
    """
    yield hash_array(values, rule.hash, rule.seed, scratch)
    if leaf.float_bits:
        floats = stored_floats(values, leaf)
        plain = twins(floats)
        if leaf.float_bits == 16 and rule == final.RULE:
            # DuckDB 2.0 asks a FLOAT16 filter for the four bytes of a FLOAT and so loses rows that
            # other writers' filters deny; with both spellings in, it finds them.
            wide = floats.astype(np.float32)
            yield hash_array(arrow_of(wide), rule.hash, rule.seed)
            plain += twins(wide)
        if plain:
            yield np.array([rule.hash_value(p) for p in plain], np.uint64)


def fill(
    batches: Callable[[], Iterable[pa.Array]], leaf: Leaf, rule: Rule, sizing: Sizing, n_values: int
) -> tuple[split_block.Blocks | None, float]:
    """Build the smallest power of two of bytes whose exact rate is within the target, or the one that costs least.

    batches   gives the column's values from the start each time it is called
    n_values  at least as many as there are values that are not null
    returns   blocks, uint32[n_blocks, 8], and their rate; no blocks where there is no value
    """
    scratch = np.empty(BATCH_ROWS, np.uint64)
    num_bytes = sizing.size_for(sizing.ndv or n_values)
    while True:
        blocks = split_block.empty(num_bytes)
        found = 0
        for values in batches():
            for hashes in stored_hashes(values, leaf, rule, scratch):
                split_block.insert_hashes(blocks, hashes, rule.index)
                found += len(hashes)
        if not found:
            return None, 0.0
        fpp = split_block.exact_rate(blocks)
        if 2 * num_bytes > sizing.max_bytes or sizing.is_reached(num_bytes, fpp, split_block.estimated_ndv(blocks)):
            break
        num_bytes *= 2
    while blocks.nbytes > split_block.MIN_BYTES:
        folded = split_block.fold(blocks, rule.index)
        folded_rate = split_block.exact_rate(folded)
        if not sizing.may_fold(blocks.nbytes, fpp, folded_rate):
            break
        blocks, fpp = folded, folded_rate
    return blocks, fpp


def is_sized(blocks: split_block.Blocks, rule: Rule, sizing: Sizing) -> bool:
    """Whether a bitset has the size that `fill` gives one of its values."""
    size, rate = blocks.nbytes, split_block.exact_rate(blocks)
    if size > sizing.max_bytes or rate > USELESS_FPP:
        return False
    if 2 * size <= sizing.max_bytes and not sizing.is_reached(size, rate, split_block.estimated_ndv(blocks)):
        return False
    if size <= split_block.MIN_BYTES:
        return True
    return not sizing.may_fold(size, rate, split_block.exact_rate(split_block.fold(blocks, rule.index)))


def _of_2018(name: str, header: Callable[[int], bytes]) -> SplitBlockForm:
    breaks = "DuckDB 1.2-2.0, ClickHouse, Trino and Iceberg-Java"
    return SplitBlockForm(name, header, parquet_41.RULE, ("chunk-start",), False, breaks)


FINAL = SplitBlockForm("final", final.header, final.RULE, get_args(Placement), True)
PARQUET_41 = _of_2018("parquet-41", parquet_41.page_header)
PARQUET_41_EARLY = _of_2018("parquet-41-early", parquet_41.early_header)
PARQUET_41_RAW = _of_2018("parquet-41-raw", parquet_41.raw_header)


# --- the form of 2015 -----------------------------------------------------------------------------
#
# `statistics`: the form of the 2015 draft, built for as many distinct values as there are; it lies in the footer.

_LOOSE_HASHES = 1 << 20  # so many are held before they are made distinct


@dataclass(frozen=True, slots=True)
class KProbeForm:
    """The form of the 2015 draft, see Format.

    style  which of the families' filters to write
    """

    style: Style = Style()  # noqa: RUF009  (frozen)
    name: str = "statistics"
    placements: tuple[Placement, ...] = ()
    writes_length: bool = False
    breaks: str = ""
    fpp: float = draft_2015.FPP
    max_bytes: int = draft_2015.MAX_BYTES

    @property
    def described(self) -> Mapping[str, Any]:
        """The family and its strategy."""
        return {"hash": self.style.family, "strategy": self.style.strategy}

    def refusal(self, leaf: Leaf) -> str | None:
        """Why the draft has no filter for such a column."""
        return draft_2015.refusal(leaf)

    def chunk_refusal(self, footer: Footer, key: ChunkKey) -> str | None:
        """Of an empty list of key-values: when the filter's have gone again, no list would be there."""
        if footer.meta(*key).key_value_metadata == []:
            return "its list of key-values is there and empty, which remove could not bring back"
        return None

    def most_bytes(self, n_values: int, sizing: Sizing) -> int:
        """A long takes up to ten bytes, and then base64."""
        bits, _ = k_probe.size_for("orc", sizing.ndv or 2 * n_values, sizing.fpp, 8 * sizing.max_bytes)
        return 200 + bits // 64 * 10 * 4 // 3

    def build(self, batches: Batches, leaf: Leaf, n_values: int, sizing: Sizing) -> BuiltFilter:
        """Build a filter for as many distinct values as there are, or as ndv says; n_values does not matter."""
        rule = self.style.rule(leaf)
        hashes = distinct_hashes(batches(), leaf, rule)
        if not len(hashes[0]):
            return BuiltFilter(None, "no value is stored")
        family = self.style.family
        num_bits, k = k_probe.size_for(family, sizing.ndv or len(hashes[0]), sizing.fpp, 8 * sizing.max_bytes)
        wanted, _ = k_probe.size_for(family, len(hashes[0]), sizing.fpp)
        bloom = built(rule, [hashes], num_bits, k)
        fpp = k_probe.fpp_of(bloom.longs, k)
        if fpp > USELESS_FPP:
            shown = f"{num_bits // 8} bytes reach a false positive rate of {fpp:.0%} only"
            return BuiltFilter(None, f"{shown}: give more " + parameter("ndv" if sizing.ndv else "max_bytes"), fpp)
        texts = tuple(key_values(bloom))
        estimate = k_probe.estimated_ndv(bloom.longs, k)
        return BuiltFilter(b"", "", fpp, num_bits // 8, estimate, num_bits >= wanted, texts)

    def is_smallest(self, leaf: Leaf, n_values: int, sizing: Sizing) -> bool:
        """No filter is built together with others."""
        return False

    def build_smallest(self, arrays: Sequence[tuple[int, pa.Array]], sizing: Sizing) -> dict[int, BuiltFilter]:
        """None of them."""
        return {}


def distinct_hashes(batches: Iterable[pa.Array], leaf: Leaf, rule: k_probe.KProbeRule) -> k_probe.Hashes:
    """The hashes of all values and of the twins of zeros and NaNs, each once; as rule.hash_values."""
    held: list[NDArray[np.uint64]] = []  # uint64[n, 1 or 2]
    loose = known = 0
    for values in batches:
        held.append(np.column_stack(rule.hash_values(values)))
        loose += len(held[-1])
        plain = twins(stored_floats(values, leaf)) if leaf.float_bits else []
        if plain:
            held.append(np.array([rule.hash_value(p) for p in plain], np.uint64))
        if loose > max(known, _LOOSE_HASHES):
            held = [_distinct(held)]
            known, loose = len(held[0]), 0
    if not held:
        return (np.empty(0, np.uint64),)
    return tuple(np.ascontiguousarray(_distinct(held).T))


def _distinct(held: list[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    # Sorted, as numpy's own unique takes a hash table, which is some forty times slower here.
    rows = np.concatenate(held)
    rows = rows[np.argsort(rows[:, 0])] if rows.shape[1] > 1 else np.sort(rows, axis=0)
    same = rows[1:] == rows[:-1]
    if (same[:, 0] & ~same[:, -1]).any():  # first halves that several values share: hardly ever
        rows = rows[np.lexsort(rows.T)]
        same = rows[1:] == rows[:-1]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = ~same.all(axis=1)
    found: NDArray[np.uint64] = rows[fresh]
    return found


# --- all forms ------------------------------------------------------------------------------------
#
# Every form this package writes, by its name.

FORMATS: dict[str, Format] = {
    form.name: form
    for form in (
        FINAL,
        PARQUET_41,
        PARQUET_41_EARLY,
        PARQUET_41_RAW,
        KProbeForm(),
    )
}


def requested_form(form: Form | None, spec: FormName | None) -> Form:
    """The form that `form` or `spec`, its short name, names; "final" by default. Raises RequestError for both."""
    if form is not None and spec is not None:
        raise RequestError(parameter("spec") + " is a short name of form; give one of the two")
    return form or spec or DEFAULT_FORM


def form_of(asked: Form) -> Format:
    """The form that a caller names. Raises RequestError."""
    if isinstance(asked, Draft2015):
        return KProbeForm(style_named(asked.family, asked.strategy))
    return format_named(asked)


def form_of_filter(found: Filter, leaf: Leaf) -> Format | None:
    """The form that writes filters of a column by the rule of one that is there; None where its rule is not certain."""
    if len(found.rules) != 1:
        return None
    form: Format | None = FORMATS.get(found.spec)
    rule = found.rules[0]
    if isinstance(rule, k_probe.KProbeRule):
        drafted = KProbeForm(Style(rule.family, rule.strategy))
        form = drafted if drafted.style.rule(leaf) == rule else None
    elif isinstance(form, SplitBlockForm) and form.rule != rule:
        form = None
    return None if form is None or form.refusal(leaf) is not None else form


def format_named(spec: str) -> Format:
    """The form of that name. Raises RequestError."""
    if spec not in FORMATS:
        raise RequestError(f"unknown spec {spec}; there are: {', '.join(FORMATS)}")
    return FORMATS[spec]


# --- the Hadoop properties of the 2015 draft, as options of ours -----------------------------------
#
#     parquet.enable.bloom.filter        default false: the draft wrote none unless told to
#     parquet.expected.entries           distinct values per row group; the data decide without it
#     parquet.bloom.filter.fpp.provided  whether the next one counts, default: if it is there
#     parquet.bloom.filter.fpp.value     false positive rate, 0.05 without it; the draft's code said
#     parquet.bloom.filter.value         this for the same
#
# Source: parquet-java PR #215, ParquetOutputFormat; docs/formats.md section 4.

ENABLE = "parquet.enable.bloom.filter"
ENTRIES = "parquet.expected.entries"
PROVIDED = "parquet.bloom.filter.fpp.provided"
VALUE = "parquet.bloom.filter.fpp.value"
VALUE_IN_CODE = "parquet.bloom.filter.value"
PROPERTIES = (ENABLE, ENTRIES, PROVIDED, VALUE, VALUE_IN_CODE)


def parse_properties(texts: Sequence[str]) -> dict[str, str]:
    """Read "name=value" texts. Raises RequestError for any other, and for a name that comes twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise RequestError(parameter("properties") + f" {text}: expected PROPERTY=VALUE, as in {VALUE}=0.01")
        if found.setdefault(name, value) != value:
            raise RequestError(parameter("properties") + f" {name} stands there twice, as {found[name]} and as {value}")
    return found


def sizes_from(properties: Mapping[str, str]) -> tuple[float | None, int | None]:
    """The false positive rate and the number of entries in properties; None: not set.

    Raises RequestError for a property that the draft does not know, a value that is none, and where the
    properties ask for no filter.
    """
    for name in properties:
        if name not in PROPERTIES:
            raise RequestError(f"property {name} is unknown; there are: {', '.join(PROPERTIES)}")
    if not _boolean(properties, ENABLE, True):
        raise RequestError(f"{ENABLE} is false, so there is nothing to add")
    rates = {properties[name] for name in (VALUE, VALUE_IN_CODE) if name in properties}
    if len(rates) > 1:
        raise RequestError(f"{VALUE} and {VALUE_IN_CODE} differ")
    if not _boolean(properties, PROVIDED, bool(rates)):
        rates = set()
    elif not rates:
        raise RequestError(f"{PROVIDED} is true, but {VALUE} is not given")
    return (_rate(rates.pop()) if rates else None), _entries(properties.get(ENTRIES))


def _boolean(properties: Mapping[str, str], name: str, default: bool) -> bool:
    text = properties.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise RequestError(f"{name}={text}: expected true or false")
    return text.lower() == "true"


def _rate(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise RequestError(f"{VALUE}={text}: expected a rate between 0 and 1") from None


def _entries(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        raise RequestError(f"{ENTRIES}={text}: expected a number") from None
