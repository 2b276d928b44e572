"""The kernels compiled for other processors, and without instructions that this one has: same hashes, same bits.

What vectors hold, and whether there are any, depends on the processor (kernels.intrinsics). LLVM leaves out what is
taken away here, and never uses what the processor lacks: a name changes only what LLVM thinks is quick.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.repeats import more_then_slow

from parquet_bloom.kernels import intrinsics

pytestmark = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names of x86 processors")

WORK = textwrap.dedent("""
    import mmh3, numpy as np, pyarrow as pa, xxhash
    from numba.core.registry import cpu_target
    from parquet_bloom.kernels import block, hashes, intrinsics, native
    from parquet_bloom.kernels.hashes import hash_array

    hashes.ALLOWED_NS = -1  # so that they are compiled

    LIBRARIES = {
        "xxh64": lambda data, seed: xxhash.xxh64_intdigest(data, seed),
        "murmur3": lambda data, seed: mmh3.hash64(data, seed, x64arch=True, signed=False)[0],
    }
    RULES = [("xxh64", 0), ("xxh64", 2**64 - 1), ("murmur3", 0), ("murmur3", 1361930890)]
    rng = np.random.default_rng(5)
    n = 5 * intrinsics.LANES + 7  # whole vectors, and what is left over
    edges = {4: [0, 1, 2**31, 2**32 - 1], 8: [0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]}

    def same(array, slots):
        for name, seed in RULES:
            wanted = [LIBRARIES[name](slot, seed) for slot in slots]
            assert hash_array(array, name, seed).tolist() == wanted, (str(array.type), name, seed)

    for width, kind in ((4, np.uint32), (8, np.uint64)):
        values = rng.integers(0, 2 ** (8 * width), n, kind)
        values[: len(edges[width])] = edges[width]
        for start in (0, 1, n - intrinsics.LANES, n - 1):
            some = values[start:]
            same(pa.array(some), [v.tobytes() for v in some])
    texts = [rng.bytes(i % 75) for i in range(n)]
    same(pa.array(texts, pa.binary()), texts)
    same(pa.array([(t + bytes(21))[:21] for t in texts], pa.binary(21)), [(t + bytes(21))[:21] for t in texts])

    hashes = rng.integers(0, 2**64, 3000, np.uint64)
    for rule, n_blocks in (("multiply-shift", 37), ("mask", 64)):
        words, wanted = np.zeros(8 * n_blocks, np.uint32), np.zeros((n_blocks, 8), np.uint32)
        insert = native.insert_mask if rule == "mask" else native.insert_multiply_shift
        contains = native.contains_mask if rule == "mask" else native.contains_multiply_shift
        insert(words, hashes[:300])
        at, bits = block.block_of(hashes, n_blocks, rule), block.masks(hashes)
        np.bitwise_or.at(wanted, at[:300], bits[:300])
        assert (words.reshape(-1, 8) == wanted).all(), rule
        found = np.empty(len(hashes), np.bool_)
        contains(words, hashes, found)
        assert (found == ((wanted[at] & bits) == bits).all(axis=1)).all(), rule
        assert found[:300].all() and not found.all(), rule
    tried = [f"{name}_{kind}" for name in LIBRARIES for kind in ("u32", "u64", "fixed", "variable")]
    assert all(getattr(native, name)._entry for name in tried), "it was these loops that ran, not numpy's"
    print("right", intrinsics._in_a_vector(cpu_target.target_context))
""")


def without(*prefixes: str) -> str:
    """The features of this processor, less those that begin so."""
    import llvmlite.binding

    features = llvmlite.binding.get_host_cpu_features().flatten().split(",")
    return ",".join("-" + f[1:] if f[1:].startswith(prefixes) else f for f in features)


def run(tmp_path: Path, **environment: str) -> int:
    """How many values a vector held in a process that found all of it right."""
    several = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-c", WORK], env={**several, "NUMBA_CACHE_DIR": str(tmp_path), **environment},
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.stdout.startswith("right "), done.stderr
    return int(done.stdout.split()[1])


@pytest.mark.more
def test_no_vectors(tmp_path: Path) -> None:
    assert run(tmp_path, NUMBA_CPU_NAME="generic") == 1, "SSE2 has products of 32 bits only"


@pytest.mark.more
def test_vectors_of_256_bits_because_wider_ones_are_slow(tmp_path: Path) -> None:
    features = without("avx512vbmi2", "avx10")
    if "+avx512f" not in features.split(","):
        pytest.skip("this processor has no AVX-512")
    assert run(tmp_path, NUMBA_CPU_NAME="skylake-avx512", NUMBA_CPU_FEATURES=features) == 4


@pytest.mark.more
def test_vectors_of_256_bits_because_there_are_no_others(tmp_path: Path) -> None:
    features = without("avx512", "avx10", "amx")
    if "+avx2" not in features.split(","):
        pytest.skip("this processor has no AVX2")
    assert run(tmp_path, NUMBA_CPU_NAME="haswell", NUMBA_CPU_FEATURES=features) == 32


@pytest.fixture(scope="module")
def own_width() -> int:
    """Of this process, whose loops the other tests have run."""
    from numba.core.registry import cpu_target

    return intrinsics._in_a_vector(cpu_target.target_context)


@pytest.mark.parametrize("name", more_then_slow(["rocketlake", "sapphirerapids", "nehalem", "skylake", "znver3"], 1))
def test_what_llvm_takes_the_processor_for(tmp_path: Path, own_width: int, name: str) -> None:
    """The features stay those of this processor, so that it can run the code, and so does the width."""
    assert run(tmp_path, NUMBA_CPU_NAME=name) == own_width


@pytest.mark.more
def test_products_of_64_bits_made_of_32(tmp_path: Path) -> None:
    assert run(tmp_path, NUMBA_CPU_FEATURES=without("avx512dq", "avx10")) >= 1
