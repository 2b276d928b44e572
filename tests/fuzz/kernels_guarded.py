"""Every compiled kernel over arrays that end, or begin, at a page that nobody may touch.

    python tests/fuzz/kernels_guarded.py ROUNDS

An access outside of an array ends this process with SIGSEGV; with NUMBA_BOUNDSCHECK=1 in the environment it is an
IndexError. Each answer is compared with that over ordinary memory. `kernels_guarded.py beyond` reads one byte too
far, so that the guard itself is known to work.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
PAGE = mmap.PAGESIZE


class Guarded:
    """Arrays before and behind pages without any access."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._kept: list[Any] = []

    def array(self, plain: NDArray[Any], at_end: bool) -> NDArray[Any]:
        """A copy that touches the page behind it, or the one before it."""
        pages = -(-plain.nbytes // PAGE) or 1
        memory = mmap.mmap(-1, (pages + 2) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for page in (0, pages + 1):
            if self._libc.mprotect(ctypes.c_void_p(start + page * PAGE), PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        at = start + PAGE + (pages * PAGE - plain.nbytes if at_end else 0)
        found = np.frombuffer((ctypes.c_char * plain.nbytes).from_address(at), plain.dtype).reshape(plain.shape)
        found[...] = plain
        self._kept = [*self._kept[-200:], memory, found]
        return found


GUARD = Guarded()


def same(kernel: Any, *arguments: Any, at_end: bool) -> None:
    """Call a kernel over guarded copies of its arrays, and over plain ones: all of them must be equal afterwards."""
    plain = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    guarded = [GUARD.array(a, at_end) if isinstance(a, np.ndarray) else a for a in arguments]
    first, second = kernel(*plain), kernel(*guarded)
    assert first == second
    for one, other in zip(plain, guarded, strict=True):
        if isinstance(one, np.ndarray):
            assert np.array_equal(one, other), kernel.python.__name__


SIZES = (0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 300)


def hashes(rng: random.Random, at_end: bool) -> None:
    from parquet_bloom.kernels import native

    n, seed = rng.choice((*SIZES, 2047, 2048, 2049, 5000)), np.uint64(rng.choice((0, 104729, 2**32 - 1)))
    random_ = np.random.default_rng(rng.getrandbits(32))
    out = np.zeros(n, np.uint64)
    for kernel, kind in (
        (native.xxh64_u32, np.uint32),
        (native.murmur3_u32, np.uint32),
        (native.xxh64_u64, np.uint64),
        (native.murmur3_u64, np.uint64),
    ):
        same(kernel, random_.integers(0, 2**32, n).astype(kind), seed, out, at_end=at_end)
    n = min(n, 300)
    out, width = out[:n], rng.choice(SIZES)
    data = random_.integers(0, 256, n * width).astype(np.uint8)
    lengths = random_.integers(0, rng.choice((1, 2, 9, 40, 70)), n)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint64)
    texts = random_.integers(0, 256, int(offsets[-1])).astype(np.uint8)
    for name in ("xxh64", "murmur3", "hive64", "murmur3_h2"):
        same(getattr(native, f"{name}_fixed"), data, np.uint64(width), seed, out, at_end=at_end)
        same(getattr(native, f"{name}_variable"), texts, offsets, seed, out, at_end=at_end)
    for width in (4, 8):
        numbers = random_.integers(0, 256, n * width).astype(np.uint8)
        same(native.wang_fixed, numbers, np.uint64(width), np.uint64(rng.randrange(2)), out, at_end=at_end)
        ends = (np.arange(n + 1) * width).astype(np.uint64)
        same(native.wang_variable, numbers, ends, np.uint64(rng.randrange(2)), out, at_end=at_end)


def filters(rng: random.Random, at_end: bool) -> None:
    from parquet_bloom.kernels import native

    random_ = np.random.default_rng(rng.getrandbits(32))
    n, blocks = rng.choice(SIZES), rng.choice((1, 2, 3, 5, 128, 129))
    wanted = random_.integers(0, 2**64, n, np.uint64)
    if n:
        wanted[0] = rng.choice((0, 2**64 - 1, 2**63, 2**32 - 1))
    words = random_.integers(0, 2**32, blocks * 8).astype(np.uint32)
    for insert, contains in (
        (native.insert_multiply_shift, native.contains_multiply_shift),
        (native.insert_mask, native.contains_mask),
    ):
        power = words[: 8 << (blocks.bit_length() - 1)] if insert is native.insert_mask else words
        same(insert, power, wanted, at_end=at_end)
        same(contains, power, wanted, np.zeros(n, np.bool_), at_end=at_end)
    longs, k = random_.integers(0, 2**63, blocks).astype(np.uint64), np.uint64(rng.choice((1, 3, 17)))
    other = random_.integers(0, 2**64, n, np.uint64)
    first = np.uint64(rng.randrange(2))
    same(native.insert_32, longs, wanted, first, k, at_end=at_end)
    same(native.contains_32, longs, wanted, first, k, np.zeros(n, np.bool_), at_end=at_end)
    same(native.insert_64, longs, wanted, other, k, at_end=at_end)
    same(native.contains_64, longs, wanted, other, k, np.zeros(n, np.bool_), at_end=at_end)


def asking(rng: random.Random, at_end: bool) -> None:
    """Filters of a file that is too short, or has other headers, as well."""
    from parquet_bloom.filters import ask_kernel
    from parquet_bloom.filters.asking import headers_of
    from parquet_bloom.format import final

    random_ = np.random.default_rng(rng.getrandbits(32))
    n = rng.choice((1, 2, 5))
    sizes = np.array([rng.choice((32, 64, 256, 4096)) for _ in range(n)], np.int64)
    full = rng.choice((0, 0x77, 0xFF))  # bits that every byte has, so that some hashes are admitted
    bodies = [np.frombuffer(random_.bytes(int(size)), np.uint8) | np.uint8(full) for size in sizes]
    parts = [final.header(int(size)) + body.tobytes() for size, body in zip(sizes, bodies, strict=True)]
    data = bytearray(b"".join(parts))
    if rng.random() < 0.3:
        data[rng.randrange(len(data))] ^= 1
    with tempfile.TemporaryFile() as file:
        file.write(data[: rng.choice((len(data), len(data), len(data) - 1, rng.randrange(len(data))))])
        file.flush()
        offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])[:n].astype(np.int64)
        kinds, heads, head_bytes = headers_of(sizes)
        counts = np.array([rng.choice((0, 1, 2, 9, 200)) for _ in range(n)])
        last = np.cumsum(counts).astype(np.int64)
        wanted = random_.integers(0, 2**64, int(last[-1]), np.uint64)
        counted = [np.zeros(n, np.int64) for _ in range(2)]
        whole = random_.random(n) < 0.5
        common = (kinds, heads, head_bytes, (last - counts).astype(np.int64), last)
        # Some filters are in memory, which may end too early as well.
        places = np.where(random_.random(n) < 0.5, offsets, -1)
        end = rng.choice((len(data), len(data) - 1, rng.randrange(len(data))))
        memory = np.frombuffer(bytes(data[:end]), np.uint8)
        where = np.array([np.full(n, file.fileno()), offsets, places])
        answers = np.zeros(n, np.uint8)
        same(ask_kernel.ask, memory, where, sizes, whole, *common, wanted, answers, *counted, at_end=at_end)
        more = (wanted, bool(rng.randrange(2)), np.zeros(n, np.uint8), counted[0])
        same(ask_kernel.ask_whole, memory, where, sizes, *common, *more, at_end=at_end)


def walks(rng: random.Random, at_end: bool) -> None:
    """The walk over footers, whole and wrong, by the code that calls it."""
    from targets import footers
    from thrift_bytes import flipped, mutated

    from parquet_bloom.format.outlines import walk_outline
    from parquet_bloom.kernels import compact_walk

    data = rng.choice(footers())
    if len(data) > 3000 and rng.random() < 0.8:
        return
    data = data if rng.random() < 0.1 else mutated(data, rng) if rng.random() < 0.7 else flipped(data, rng)
    kept = compact_walk.walk_each, compact_walk.fields_of

    def guarded(kernel: Any) -> Callable[..., Any]:
        return lambda *arguments: kernel(
            *[GUARD.array(a, at_end) if isinstance(a, np.ndarray) and not a.flags.writeable else a for a in arguments]
        )

    plain = walk_outline(data, 10**6)
    compact_walk.walk_each, compact_walk.fields_of = map(guarded, kept)
    try:
        found = walk_outline(data, 10**6)
    finally:
        compact_walk.walk_each, compact_walk.fields_of = kept
    assert (found is None) == (plain is None)
    assert found is None or plain is None or np.array_equal(found.slots, plain.slots)


KINDS = (hashes, filters, asking, walks)


def main() -> None:
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    warnings.simplefilter("ignore")
    if sys.argv[1] == "beyond":
        array = GUARD.array(np.arange(8, dtype=np.uint8), at_end=True)
        print(ctypes.string_at(array.ctypes.data, 9))
        return
    for number in range(int(sys.argv[1])):
        for kind in KINDS:
            kind(random.Random(f"{kind.__name__}/{number}"), at_end=bool(number % 2))
    print(int(sys.argv[1]) * len(KINDS), "rounds, bounds check", os.environ.get("NUMBA_BOUNDSCHECK", "0"))


if __name__ == "__main__":
    main()
