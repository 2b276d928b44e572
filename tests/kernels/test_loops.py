"""The slow ways against numba's loops, bit for bit, where batches end and lengths differ; and which of the two run."""

from __future__ import annotations

import subprocess
import sys
from itertools import product

import numpy as np
import pytest
from support.repeats import by_turns

from parquet_bloom.kernels import block, hashes, native
from parquet_bloom.kernels import hashes as plain_hashes

AT_ONCE = block._AT_ONCE
EDGES = [1, AT_ONCE - 1, AT_ONCE, AT_ONCE + 1, 2 * AT_ONCE + 7]
SEEDS = {"xxh64": 2**64 - 3, "murmur3": 1361930890, "murmur3-h2": 2**32 - 1, "hive64": 104729, "wang": 1}
LENGTHS = {  # of texts: (the least, the most, how many texts)
    "one": (36, 36, 100),
    "few": (0, 20, 900),
    "many": (1, 300, 900),
    "long, none twice": (1000, 70_000, 6),
    "long, one length": (5000, 5000, 12),
}


def numba_loop(name: str, shape: str):
    return getattr(native, f"{name.replace('-', '_')}_{shape}")


@pytest.mark.parametrize("name", SEEDS)
def test_values_of_one_width(name: str) -> None:
    for width, n in product((4, 8) if name == "wang" else (1, 3, 4, 8, 11, 16, 31, 32, 47, 64), (1, 900)):
        data = np.random.default_rng(n).integers(0, 256, n * width).astype(np.uint8)
        wanted, found = np.empty(n, np.uint64), np.empty(n, np.uint64)
        numba_loop(name, "fixed")(data, np.uint64(width), np.uint64(SEEDS[name]), wanted)
        offsets = np.arange(0, len(data) + 1, width, dtype=np.uint64)
        plain_hashes.hash_variable(name, data, offsets, SEEDS[name], found)
        assert (found == wanted).all(), (width, n)


def both(name: str, data: np.ndarray, offsets: np.ndarray) -> bool:
    wanted, found = np.empty(len(offsets) - 1, np.uint64), np.empty(len(offsets) - 1, np.uint64)
    numba_loop(name, "variable")(data, offsets, np.uint64(SEEDS[name]), wanted)
    plain_hashes.hash_variable(name, data, offsets, SEEDS[name], found)
    return bool((found == wanted).all())


@pytest.mark.parametrize("name", SEEDS)
def test_texts(name: str) -> None:
    random = np.random.default_rng(5)
    for lengths, (least, most, n) in LENGTHS.items():
        usual = np.append(random.integers(least, most + 1, n - 1), most)
        widths = random.choice([4, 8], n) if name == "wang" else usual
        offsets = np.concatenate(([3], 3 + np.cumsum(widths))).astype(np.uint64)  # the first bytes are of no value
        assert both(name, random.integers(0, 256, int(offsets[-1]) + 9).astype(np.uint8), offsets), lengths


# --- filters ----------------------------------------------------------------------------------------


def hashes_of(n: int) -> np.ndarray:
    found = np.random.default_rng(n).integers(0, 2**64, n, np.uint64)
    found[::5] = found[0]  # the same bits again and again
    return found


BLOCKS = (1, 2, 4096)  # packed at once, or bit by bit


@pytest.mark.parametrize("rule", ["mask", "multiply-shift"])
def test_split_blocks(rule: str) -> None:
    insert = native.insert_mask if rule == "mask" else native.insert_multiply_shift
    contains = native.contains_mask if rule == "mask" else native.contains_multiply_shift
    for n_blocks, n in product(BLOCKS, EDGES):
        hashes = hashes_of(n)
        before = np.random.default_rng(1).integers(0, 2**16, 8 * n_blocks).astype(np.uint32)  # some bits are set
        wanted, found = before.copy(), before.copy()
        insert(wanted, hashes)
        block.insert(found, hashes, rule)
        assert (found == wanted).all(), (n_blocks, n)
        asked = np.concatenate((hashes, hashes + np.uint64(1 << 20), hashes ^ np.uint64(1 << 63)))
        told, answer = np.empty(len(asked), np.bool_), np.empty(len(asked), np.bool_)
        contains(wanted, asked, told)
        block.contains(wanted, asked, rule, answer)
        assert (answer == told).all(), (n_blocks, n)
        assert answer[:n].all(), "what was inserted is there"


@pytest.mark.parametrize("rule", ["mask", "multiply-shift"])
def test_many_split_blocks(rule: str) -> None:
    counts = np.array([0, 3, 9000, 1, 0, 17], np.int64)
    hashes = hashes_of(int(counts.sum()))
    for n_blocks in (1, 2, 64):
        wanted = np.zeros(8 * n_blocks * len(counts), np.uint32)
        found = wanted.copy()
        native.insert_each(wanted, counts, hashes, rule == "mask")
        block.insert_each(found, counts, hashes, rule)
        assert (found == wanted).all(), n_blocks


SHAPES = [(1, 1), (3, 7), (5000, 3), (100_000, 4)]


@pytest.mark.parametrize(("shape", "n"), by_turns([*SHAPES, *SHAPES], EDGES))
def test_k_probes(shape: tuple[int, int], n: int) -> None:
    longs, k = shape
    one, two = hashes_of(n), hashes_of(n)[::-1].copy()
    asked, other = np.concatenate((one, ~one)), np.concatenate((two, two))
    for first in (1, 2):
        wanted, found = np.zeros(longs, np.uint64), np.zeros(longs, np.uint64)
        native.insert_32(wanted, one, np.uint64(first), np.uint64(k))
        block.insert_32(found, one, first, k)
        assert (found == wanted).all(), first
        told, answer = np.empty(2 * n, np.bool_), np.empty(2 * n, np.bool_)
        native.contains_32(wanted, asked, np.uint64(first), np.uint64(k), told)
        block.contains_32(wanted, asked, first, k, answer)
        assert (answer == told).all(), first
        assert answer[:n].all()
    wanted, found = np.zeros(longs, np.uint64), np.zeros(longs, np.uint64)
    native.insert_64(wanted, one, two, np.uint64(k))
    block.insert_64(found, (one, two), k)
    assert (found == wanted).all()
    told, answer = np.empty(2 * n, np.bool_), np.empty(2 * n, np.bool_)
    native.contains_64(wanted, asked, other, np.uint64(k), told)
    block.contains_64(wanted, (asked, other), k, answer)
    assert (answer == told).all()
    assert answer[:n].all()


# --- which of the two -------------------------------------------------------------------------------

LONG = """
import sys
import numpy as np, pyarrow as pa
from parquet_bloom.kernels.hashes import hash_array
values = pa.array(np.arange(100_000))
rounds = 0
while "numba" not in sys.modules:
    hash_array(values)
    rounds += 1
print(rounds, hash_array(values).sum())
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_a_process_takes_numba_once_the_slow_way_has_cost_it_enough() -> None:
    rounds = int(run(LONG).split()[0])
    assert rounds == int(hashes.ALLOWED_NS / plain_hashes._one_by_one_ns("xxh64", 100_000, 800_000)) + 1


def test_hashes_that_no_library_has_cost_more() -> None:
    cost = plain_hashes._one_by_one_ns
    assert cost("hive64", 1000, 100_000) > 10 * cost("xxh64", 1000, 100_000)
