"""One filter from one column chunk: decode, hash, insert, fold to the size the data needs.

The first allocation is for as many distinct values as the chunk has values (or ndv says); it is
folded while the exact rate stays within the target, so the size comes from the data and no count
of distinct values is needed. Too small an allocation is built again, twice as large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from parquet_bloom.chunks.decode import BATCH_ROWS, ColumnReader
from parquet_bloom.errors import FilterFormatError, RequestError, parameter
from parquet_bloom.formats import final
from parquet_bloom.formats.draft_2015 import Style, key_values, kind_of, made
from parquet_bloom.formats.filters import Format
from parquet_bloom.formats.guava import decode_guava
from parquet_bloom.formats.metadata.footer import Footer
from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.formats.rules import Rule
from parquet_bloom.formats.values import twins
from parquet_bloom.kernels import k_probe, split_block
from parquet_bloom.kernels.hashes import hash_array

_LOOSE_HASHES = 1 << 20  # so many are held before they are made distinct
USELESS_RATE = 0.5  # a filter that admits more than half of all absent values is not written


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large a filter may be: target rate, first guess of distinct values, limit in bytes."""

    fpp: float = 0.01
    ndv: int | None = None
    max_bytes: int = split_block.MAX_BYTES


@dataclass(frozen=True, slots=True)
class Built:
    """A filter, or the reason why there is none.

    data    header and bitset, as they go into the file; None without a filter
    texts   of `statistics`: the key-values of the column chunk, and data is empty
    rate    its exact false positive rate
    reached whether the rate is within the target; not so where max_bytes was in the way
    """

    data: bytes | None
    reason: str = ""
    rate: float = 0.0
    num_bytes: int = 0
    estimated_ndv: float = 0.0
    reached: bool = True
    texts: tuple[tuple[str, str], ...] = ()


def stored_hashes(
    values: pa.Array, leaf: Leaf, rule: Rule, scratch: NDArray[np.uint64] | None = None
) -> Iterable[NDArray[np.uint64]]:
    """Hash the values of a batch that are not null, then the twins of its zeros and NaNs.

    scratch  uint64[n] that each result may lie in until the next is asked for
    """
    yield hash_array(values, rule.hash, rule.seed, scratch)
    if leaf.float_bits:
        floats = _floats(values, leaf)
        plain = twins(floats)
        if leaf.float_bits == 16 and rule == final.RULE:
            # DuckDB 2.0 asks a FLOAT16 filter for the four bytes of a FLOAT and so loses rows that
            # other writers' filters deny; with both spellings in, it finds them.
            wide = floats.astype(np.float32)
            yield hash_array(pa.array(wide), rule.hash, rule.seed)
            plain += twins(wide)
        if plain:
            yield np.array([rule.hash_value(p) for p in plain], np.uint64)


def _floats(values: pa.Array, leaf: Leaf) -> NDArray[np.floating]:
    values = values.drop_null()
    if leaf.float_bits == 16:
        return np.frombuffer(values.buffers()[1], np.float16)[values.offset : values.offset + len(values)]
    floats: NDArray[np.floating] = values.to_numpy(zero_copy_only=False)
    return floats


def fill(
    batches: Callable[[], Iterable[pa.Array]], leaf: Leaf, rule: Rule, sizing: Sizing, n_values: int
) -> tuple[split_block.Blocks | None, float]:
    """Build the smallest power of two of bytes whose exact rate is within the target.

    batches   gives the column's values from the start each time it is called
    n_values  at least as many as there are values that are not null
    returns   blocks, uint32[n_blocks, 8], and their rate; no blocks where there is no value
    """
    scratch = np.empty(BATCH_ROWS, np.uint64)
    num_bytes = split_block.size_for(sizing.ndv or n_values, sizing.fpp, sizing.max_bytes)
    while True:
        blocks = split_block.empty(num_bytes)
        found = 0
        for values in batches():
            for hashes in stored_hashes(values, leaf, rule, scratch):
                split_block.insert_hashes(blocks, hashes, rule.index)
                found += len(hashes)
        if not found:
            return None, 0.0
        rate = split_block.exact_rate(blocks)
        if rate <= sizing.fpp or 2 * num_bytes > sizing.max_bytes:
            break
        num_bytes *= 2
    while blocks.nbytes > split_block.MIN_BYTES:
        folded = split_block.fold(blocks, rule.index)
        folded_rate = split_block.exact_rate(folded)
        if folded_rate > sizing.fpp:
            break
        blocks, rate = folded, folded_rate
    return blocks, rate


def distinct_hashes(batches: Iterable[pa.Array], leaf: Leaf, rule: k_probe.Rule) -> k_probe.Hashes:
    """The hashes of all values and of the twins of zeros and NaNs, each once; as rule.hash_values."""
    held: list[NDArray[np.uint64]] = []  # uint64[n, 1 or 2]
    loose = known = 0
    for values in batches:
        held.append(np.column_stack(rule.hash_values(values)))
        loose += len(held[-1])
        plain = twins(_floats(values, leaf)) if leaf.float_bits else []
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


def _build_k_probe(reader: ColumnReader, row_group: int, style: Style, sizing: Sizing) -> Built:
    """Build a filter of `statistics`, for as many distinct values as there are, or as ndv says."""
    rule = style.rule(reader.leaf)
    hashes = distinct_hashes(reader.batches(row_group), reader.leaf, rule)
    if not len(hashes[0]):
        return Built(None, "no value is stored")
    num_bits, k = k_probe.size_for(style.family, sizing.ndv or len(hashes[0]), sizing.fpp, 8 * sizing.max_bytes)
    wanted, _ = k_probe.size_for(style.family, len(hashes[0]), sizing.fpp)
    bloom = made(rule, [hashes], num_bits, k)
    rate = k_probe.rate(bloom.longs, k)
    if rate > USELESS_RATE:
        shown = f"{num_bits // 8} bytes reach a false positive rate of {rate:.0%} only"
        return Built(None, f"{shown}: give more " + parameter("ndv" if sizing.ndv else "max_bytes"), rate)
    texts = tuple(key_values(bloom))
    estimate = k_probe.estimated_ndv(bloom.longs, k)
    return Built(b"", "", rate, num_bits // 8, estimate, num_bits >= wanted, texts)


def _check_given(reader: ColumnReader, row_group: int, data: bytes) -> Built:
    """Take a filter of Guava's as it is, if it admits every stored value."""
    try:
        bloom = decode_guava(data, kind_of(reader.leaf))
    except FilterFormatError as error:
        raise RequestError(
            f"row group {row_group}, column {reader.leaf.name}: no filter of Guava's: {error}"
        ) from error
    values = missed = 0
    for batch in reader.batches(row_group):
        admitted = bloom.might_contain_array(batch)
        values += len(admitted)
        missed += int(len(admitted) - np.count_nonzero(admitted))
    if missed or not values:
        return Built(
            None, f"Guava's filter denies {missed} of {values} stored values" if values else "no value is stored"
        )
    rate, estimate = k_probe.rate(bloom.longs, bloom.k), k_probe.estimated_ndv(bloom.longs, bloom.k)
    return Built(b"", "", rate, bloom.longs.nbytes, estimate, texts=tuple(key_values(bloom)))


def build(
    reader: ColumnReader, footer: Footer, row_group: int, form: Format, sizing: Sizing, style: Style | None = None,
    given: bytes | None = None,
) -> Built:  # fmt: skip
    """Build the filter of one column chunk. Raises DamagedFileError where the chunk does not decode.

    style  of `statistics`
    given  of `statistics`: what Guava wrote, to be checked rather than built
    """
    if given is not None:
        return _check_given(reader, row_group, given)
    if form.header is None or form.rule is None:
        return _build_k_probe(reader, row_group, style or Style(), sizing)
    leaf = reader.leaf
    n_values = max(1, footer.column_chunks(leaf.index).num_values[row_group])
    n_values *= 2 if leaf.float_bits == 16 else 1  # spellings of each
    blocks, rate = fill(lambda: reader.batches(row_group), leaf, form.rule, sizing, n_values)
    if blocks is None:
        return Built(None, "no value is stored")
    if rate > USELESS_RATE:
        shown = f"{blocks.nbytes} bytes reach a false positive rate of {rate:.0%} only"
        return Built(None, f"{shown}: give more " + parameter("max_bytes"), rate)
    return _built(form.header(blocks.nbytes), blocks, rate, rate <= sizing.fpp)


def build_several(
    reader: ColumnReader, footer: Footer, row_groups: Sequence[int], form: Format, sizing: Sizing,
    style: Style | None = None, given: Mapping[int, bytes] | None = None,
) -> dict[int, Built]:  # fmt: skip
    """`build` for several row groups of one column: the file is opened once, and the smallest are built together.

    returns  row group -> its filter
    """
    given = given or {}
    built: dict[int, Built] = {}
    with reader.staying_open() if len(row_groups) > 1 else nullcontext(reader) as once:
        if form.rule is not None and form.header is not None and len(row_groups) > 1 and not reader.leaf.float_bits:
            small = [g for g in row_groups if _first_bytes(footer, g, reader.leaf, sizing) == split_block.MIN_BYTES]
            built = _build_smallest(once, small, form.rule, form.header(split_block.MIN_BYTES), sizing)
        for group in row_groups:
            if group not in built:
                built[group] = build(once, footer, group, form, sizing, style, given.get(group))
    return built


def _first_bytes(footer: Footer, row_group: int, leaf: Leaf, sizing: Sizing) -> int:
    n_values = max(1, footer.column_chunks(leaf.index).num_values[row_group])
    return split_block.size_for(sizing.ndv or n_values, sizing.fpp, sizing.max_bytes)


def _build_smallest(
    reader: ColumnReader, row_groups: Sequence[int], rule: Rule, header: bytes, sizing: Sizing
) -> dict[int, Built]:
    """The filters of row groups of a few values each that have the smallest size, as `fill` would make them.

    Those that it would give another size, or none, are not among them.
    """
    if not row_groups:
        return {}
    arrays = [(group, values) for group in row_groups for values in reader.batches(group)]
    filled = {group: 0 for group, _ in arrays}
    for group, values in arrays:
        filled[group] += len(values) - values.null_count
    hashes = hash_array(pa.chunked_array([values for _, values in arrays]).combine_chunks(), rule.hash, rule.seed)
    counts = np.array(list(filled.values()), np.int64)
    blocks = split_block.build_each(split_block.MIN_BYTES, counts, hashes, rule.index)
    rates = split_block.rates_of_each(blocks)
    return {
        group: _built(header, made, float(rate))
        for group, made, rate, count in zip(filled, blocks, rates, counts, strict=True)
        if count and rate <= sizing.fpp
    }


def _built(header: bytes, blocks: split_block.Blocks, rate: float, reached: bool = True) -> Built:
    data = b"".join((header, blocks.data.cast("B")))
    return Built(data, "", rate, blocks.nbytes, split_block.estimated_ndv(blocks), reached)
