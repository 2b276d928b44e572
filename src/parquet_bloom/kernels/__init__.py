"""Hashing and split block loops: arrays in, arrays out, no I/O and no Parquet.

Decisions

numba compiles the loops; there is no extension in C or Rust.
    numba costs 208 MB of the bare install (llvmlite 173, numba 35) and 0.4 s of a process that compiles. It also costs
    some 450 lines here: they decide when loops are compiled, keep them, and do without them before (`loops`,
    `compiler`, `threads`, `block`). An extension would cost wheels for each platform, a
    compiler for each contributor, a second language for each reader, and hand-written vectors for each set of
    instructions. Plain C is also slower. On one core of a busy machine (`python benchmarks/kernels.py --c`, a Xeon with
    AVX-512, gcc 12) numba's loops hash int64 2.0 to 2.5 times as fast as `cc -O3`, which a wheel could ship, and 1.3 to
    1.7 times as fast as `-march=native`. They insert 2.2 to 3.7 times as fast. Loops over many files that release the
    interpreter's lock are Python here too. A short process loads neither numba nor an extension. Look again when numba
    follows a new Python only after months, or when a loop needs what numba cannot compile.

The block kernel is written as vectors.
    numba disables LLVM's vectoriser for straight-line code, so the eight words of a block came out as scalar code.
    `intrinsics` builds the block as `<8 x i32>` through numba's public `intrinsic`. To insert is about 2.5 times
    faster, and uint32 products cannot be widened to uint64 by mistake.

Kernels over fixed-width values prefetch.
    To hash eight bytes takes a nanosecond, and the processor's own prefetching is slower than that here. The kernels
    request the next step's cache lines themselves: hashing from memory is twice as fast.

xxhash and mmh3 hash the first million values or so.
    To load numba takes longer than all other work of `add` on a small file. They take some 0.2 us a value (`hashes`);
    what goes into filters, and is looked up, has a twin in numpy (`block`), 5 to 30 times slower than the loop.
    `loops` alone decides, by one rule: numba once a process has lost 0.2 s without it. Twins of the hashes in numpy
    were 20 times as fast as the libraries, and saved a process 0.17 s at most. Tests compare both ways bit for bit, and
    whole files of every form byte for byte.

A fork waits until numba is loaded.
    A child that is forked while another thread imports numba, or compiles, has the locks of that thread, and not the
    thread: it would wait for ever.

One process compiles at a time, under a file lock in the cache's folder.
    Each kernel has one signature and is compiled on its first call. Many processes that write one numba cache at once
    can crash (numba #4807). If another process keeps the lock for 15 seconds, or if others may write to the folder, a
    process compiles for itself and logs that (`compiler`).
"""

import concurrent.futures.thread  # noqa: F401  (what it does at a fork must not come in the middle of one)
import contextlib
import importlib
import os
import sys
import threading

_LOADED_LATE = (
    "numba",
    "parquet_bloom.kernels.native",
    "parquet_bloom.kernels.compact_walk",
    "parquet_bloom.filters.ask_kernel",
)


LOADING = threading.RLock()  # of the thread that compiles


def _finish() -> None:
    """Wait for other threads that compile, or import numba or modules that do."""
    LOADING.acquire()
    for name in _LOADED_LATE:
        if name in sys.modules:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_finish, after_in_parent=LOADING.release, after_in_child=LOADING.release)
