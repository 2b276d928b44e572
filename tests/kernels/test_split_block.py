"""The split block filter against tests/support/naive.py, and against bits that other programs wrote."""

from __future__ import annotations

import json
import math
import struct
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.corpus import corpus_file, vector_file
from support.named import named

from parquet_bloom.errors import FilterShapeError
from parquet_bloom.kernels import block, split_block
from parquet_bloom.kernels.split_block import (
    bits_set,
    block_contains,
    block_index,
    contains_hashes,
    empty,
    estimated_ndv,
    exact_rate,
    expected_rate,
    fold,
    from_bytes,
    insert_hashes,
    size_for,
)

BOTH_LOOPS = pytest.mark.usefixtures("loops")

RULES = ("multiply-shift", "mask")
BY_RULE = pytest.mark.parametrize("rule", RULES)
SEED_2018 = 1361930890
WORDS = ["hello", "parquet", "bloom", "filter"]
CORNERS = [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 0xFFFFFFFF00000000, 0x8000000080000000]


def hashes(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, n, np.uint64)


def built(values, n_blocks: int, rule: str) -> np.ndarray:
    blocks = empty(32 * n_blocks)
    insert_hashes(blocks, np.asarray(values, np.uint64), rule)
    return blocks


# --- insert and probe -----------------------------------------------------------------------------


@BOTH_LOOPS
@pytest.mark.parametrize(
    ("rule", "n_blocks"), [*(("multiply-shift", n) for n in (1, 3, 64, 1000)), *(("mask", n) for n in (1, 32, 1024))]
)
def test_insert_and_probe_are_those_of_the_twin(rule, n_blocks):
    inserted = [*CORNERS, *hashes(400).tolist()]
    blocks = built(inserted, n_blocks, rule)
    words = naive.build(inserted, n_blocks, rule)
    assert blocks.reshape(-1).tolist() == words
    assert contains_hashes(blocks, np.array(inserted, np.uint64), rule).all(), "an inserted hash is never absent"
    asked = [*inserted, *hashes(400, seed=2).tolist()]
    answers = contains_hashes(blocks, np.array(asked, np.uint64), rule)
    assert answers.tolist() == [naive.probe(words, h, rule) for h in asked]
    raw = blocks.tobytes()
    for h, answer in zip(asked, answers, strict=True):
        at = 32 * block_index(h, n_blocks, rule)
        assert at == 32 * naive.block_of(h, n_blocks, rule)
        assert block_contains(raw[at : at + 32], h) == answer, "one block must answer as the whole filter does"


@BOTH_LOOPS
@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=32, max_size=32), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_any_block(raw, values):
    answers = contains_hashes(from_bytes(raw), np.array(values, np.uint64)).tolist()
    assert answers == [block_contains(raw, h) for h in values]
    assert answers == [naive.probe(naive.words_from_bytes(raw), h, "mask") for h in values]


@BOTH_LOOPS
def test_inserting_adds_and_keeps_and_takes_strided_hashes():
    values = hashes(200)[::2]
    blocks = built(values[:50], 8, "mask")
    insert_hashes(blocks, values[50:], "mask")
    insert_hashes(blocks, values[:0], "mask")
    assert np.array_equal(blocks, built(values.copy(), 8, "mask"))
    assert contains_hashes(blocks, values, "mask").all()


@BOTH_LOOPS
def test_blocks_of_a_file_are_read_only_and_may_begin_anywhere():
    values = hashes(50)
    raw = built(values, 16, "multiply-shift").tobytes()
    for shift in range(8):
        blocks = from_bytes(memoryview(bytes(shift) + raw)[shift:])
        assert not blocks.flags.writeable
        assert contains_hashes(blocks, values).all()
        assert blocks.tobytes() == raw


# --- shapes ---------------------------------------------------------------------------------------

WRONG_BLOCKS = [np.zeros(shape, np.uint32) for shape in ((0, 8), (4, 4), (4, 9), 8, (2, 2, 8))]
WRONG_BLOCKS += [np.zeros((4, 8), kind) for kind in (np.uint64, np.int32, ">u4")]
WRONG_BLOCKS += [np.zeros((4, 16), np.uint32)[:, ::2], np.zeros((8, 4), np.uint32).T]


def refused(text, call, *arguments):
    with named(arguments), pytest.raises(FilterShapeError, match=text):
        call(*arguments)


def test_what_is_no_bitset_is_refused():
    for num_bytes in (0, -32, 1, 31, 33, 63):
        refused(f"{num_bytes} bytes", empty, num_bytes)
        refused("bytes", from_bytes, bytes(max(num_bytes, 0)))
    for n_bytes in (0, 4, 31, 33, 64):
        refused(".", block_contains, b"\xff" * n_bytes, 1)
    for blocks, rule, call in product(WRONG_BLOCKS, RULES, (insert_hashes, contains_hashes)):
        refused(".", call, blocks, hashes(1), rule)
    for n_blocks in (3, 5, 6, 12, 1023):  # the mask needs a power of two
        for call in (insert_hashes, contains_hashes):
            refused(str(n_blocks), call, empty(32 * n_blocks), hashes(1), "mask")
        refused(str(n_blocks), block_index, 1, n_blocks, "mask")
    for n_blocks, rule in product((1, 3, 7), RULES):
        refused(str(n_blocks), fold, empty(32 * n_blocks), rule)
    for num_bytes, counts in ((96, [3]), (16, [3]), (64, [2]), (64, [4, -1])):
        refused(".", split_block.build_each, num_bytes, np.array(counts, np.int64), np.zeros(3, np.uint64), "mask")


# --- fold -----------------------------------------------------------------------------------------


@BOTH_LOOPS
@BY_RULE
def test_folding_gives_what_building_smaller_gives(rule):
    values = hashes(3000)
    blocks = built(values, 512, rule)
    for n_blocks in (256, 128, 64, 32, 16, 8, 4, 2, 1):
        words = blocks.reshape(-1).tolist()
        blocks = fold(blocks, rule)
        assert blocks.reshape(-1).tolist() == naive.fold(words, rule)
        assert np.array_equal(blocks, built(values, n_blocks, rule))
        assert contains_hashes(blocks, values, rule).all(), "a folded filter must still hold every value"


def test_multiply_shift_folds_any_even_number_of_blocks():
    values = hashes(500)
    for n_blocks in (6, 10, 24, 50):  # floor(floor(x) / 2) == floor(x / 2)
        assert np.array_equal(fold(built(values, n_blocks, RULES[0])), built(values, n_blocks // 2, RULES[0]))


# --- rates and sizes ------------------------------------------------------------------------------


@BOTH_LOOPS
def test_rates_and_bits_of_any_size_are_counted_alike():
    for n_blocks in (1, 2, 10, 255, 256, 257, 600):  # at once, or word by word
        blocks = np.random.default_rng(n_blocks).integers(0, 2**32, (n_blocks, 8), np.uint64).astype(np.uint32)
        words = blocks.reshape(-1).tolist()
        assert exact_rate(blocks) == float(naive.exact_rate(words)), n_blocks
        assert bits_set(blocks) == sum(word.bit_count() for word in words), n_blocks
    assert exact_rate(empty(64)) == 0.0
    assert exact_rate(from_bytes(b"\xff" * 64)) == 1.0
    one_word_clear = from_bytes(b"\xff" * 28 + bytes(4) + b"\xff" * 32)
    assert exact_rate(one_word_clear) == 0.5  # nothing passes the first block, everything the second
    many = np.full((1 << 17, 8), 0xFFFFFFFF, np.uint32)  # more than one slice; 2^57 would not fit a double
    assert exact_rate(many) == 1.0
    assert bits_set(many) == 256 << 17


def test_the_exact_rate_is_the_measured_one():
    asked = hashes(400_000, seed=3)
    for rule, ndv in (("mask", 300), ("multiply-shift", 1000), ("mask", 3000)):
        blocks = built(hashes(ndv), 64, rule)
        rate = exact_rate(blocks)
        measured = contains_hashes(blocks, asked, rule).mean()
        assert abs(measured - rate) < 6 * math.sqrt(rate / len(asked)), "six standard deviations"


def test_the_expected_rate_is_the_poisson_sum():
    for ndv, num_bytes in ((1, 64), (100, 64), (1000, 1024), (10**6, 1 << 20), (10**7, 1 << 22)):
        assert expected_rate(ndv, num_bytes) == pytest.approx(naive.expected_rate(ndv, num_bytes), rel=1e-9)
    assert expected_rate(0, 64) == 0.0
    for ndv in (1198, 1202, 10**4, 10**9):  # on both sides of where the sum is cut short
        assert 1 - 1e-6 < expected_rate(ndv, 64) <= 1.0
    assert 0.0100 < expected_rate(10_000, 10_000 * 10.5 / 8) < 0.0102, "10.5 bits a value give 1 %"
    assert expected_rate(10_000, 10_000 * 9.68 / 8) > 0.013, "9.68 bits, as the usual formula has it, do not"


def test_the_expected_rate_is_that_of_filters_built():
    rates = [exact_rate(built(hashes(5000, seed), 256, RULES[0])) for seed in range(20)]
    assert np.mean(rates) == pytest.approx(expected_rate(5000, 256 * 32), rel=0.03)


def test_size_for_is_the_smallest_that_keeps_the_target():
    for fpp, ndv in product((0.5, 0.1, 0.01, 0.001, 1e-6), (1, 10, 700, 1000, 123_456, 5_000_000)):
        size = size_for(ndv, fpp)
        assert 64 <= size <= 1 << 27
        assert size & (size - 1) == 0
        assert naive.expected_rate(ndv, size) <= fpp, ndv
        assert size == 64 or naive.expected_rate(ndv, size // 2) > fpp, ndv
    assert size_for(0, 0.01) == 64
    assert size_for(10**12, 0.01) == 1 << 27, "the largest"
    assert [size_for(10**6, 0.01, most) for most in (4096, 5000)] == [4096, 4096]


def test_the_table_of_sizes_is_that_of_the_code():
    lines = [line.split() for line in split_block.__doc__.splitlines() if "(" in line and line.lstrip()[:1].isdigit()]
    head = next(line for line in split_block.__doc__.splitlines() if line.lstrip().startswith("ndv"))
    targets = [float(target) for target in head.replace("fpp", "").split()[1:]]
    assert targets == [0.1, 0.01, 0.001, 0.0001]
    assert len(lines) == 5
    for bits, fpp in zip((6.0, 10.5, 16.9, 26.3), targets, strict=True):
        assert str(bits) in split_block.__doc__
        more, fewer = (naive.expected_rate(10**6, 10**6 * (bits + by) / 8) for by in (0.05, -0.05))
        assert more <= fpp <= fewer
    for ndv, *cells in lines:
        n = int(ndv.replace(",", ""))
        for fpp, size, bits in zip(targets, cells[::2], cells[1::2], strict=True):
            num_bytes = int(size.replace(",", ""))
            assert size_for(n, fpp) == num_bytes, f"{ndv} values at {fpp}"
            assert bits == f"({8 * num_bytes / n:.1f})"
            assert naive.expected_rate(n, num_bytes) <= fpp < naive.expected_rate(n, num_bytes // 2)


def test_the_estimated_ndv_is_near():
    for rule, (ndv, n_blocks) in product(RULES, ((10, 64), (1000, 64), (20_000, 256), (100_000, 4096))):
        assert estimated_ndv(built(hashes(ndv), n_blocks, rule)) == pytest.approx(ndv, rel=0.05)
    assert estimated_ndv(empty(64)) == 0.0
    assert estimated_ndv(from_bytes(b"\xff" * 64)) == math.inf


# --- bits that other programs wrote ---------------------------------------------------------------


@BOTH_LOOPS
def test_the_vectors_of_2018_and_of_today_bit_for_bit():
    blocks = built([naive.murmur3(w.encode(), SEED_2018) for w in WORDS], 32, "mask")
    written = corpus_file("bloom/parquet-testing__bloom_filter.bin").read_bytes()
    assert written == struct.pack("<3i", 1024, 0, 0) + blocks.tobytes()
    blocks = built([naive.xxh64(w.encode()) for w in WORDS], 32, "multiply-shift")
    header = bytes.fromhex("15 80 10 1c 1c 00 00 1c 1c 00 00 1c 1c 00 00 00")
    assert corpus_file("bloom/parquet-testing__bloom_filter.xxhash.bin").read_bytes() == header + blocks.tobytes()


@BOTH_LOOPS
def test_the_class_of_2018_wrote_these_bits():
    for vector in json.loads(vector_file("mr2018_vectors.json").read_text())["vectors"]:
        written = bytes.fromhex(vector["written_hex"])
        blocks = built([int(h) for h in vector["hashes"]], (len(written) - 12) // 32, "mask")
        assert written == struct.pack("<3i", len(written) - 12, 0, 0) + blocks.tobytes()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(1, 2**32), st.integers(0, 32))
def test_masks_and_blocks_of_arrays_are_those_of_the_twin(values, n_blocks, level):
    assert list(block.SALT) == naive.SALT
    asked = np.array([*CORNERS, *values], np.uint64)
    assert block.masks(asked).tolist() == [naive.mask_of(h) for h in asked.tolist()]
    for rule, z in (("multiply-shift", n_blocks), ("mask", 1 << level)):
        wanted = [naive.block_of(h, z, rule) for h in asked.tolist()]
        assert block.block_of(asked, z, rule).tolist() == wanted
        assert block.block_of(asked, np.full(len(asked), z), rule).tolist() == wanted, "one size for each hash"


@BOTH_LOOPS
def test_many_small_filters_at_once():
    counts = np.array([0, 3, 1, 0, 40, 7], np.int64)
    for rule, num_bytes in product(RULES, (32, 64, 1024)):
        values = hashes(int(counts.sum()), num_bytes)
        many = split_block.build_each(num_bytes, counts, values, rule)
        rates = split_block.rates_of_each(many)
        for i, some in enumerate(np.split(values, np.cumsum(counts)[:-1])):
            one = built(some, num_bytes // 32, rule)
            assert (many[i] == one).all()
            assert rates[i] == exact_rate(one)
    assert split_block.build_each(64, np.empty(0, np.int64), hashes(0), "mask").shape == (0, 2, 8)
