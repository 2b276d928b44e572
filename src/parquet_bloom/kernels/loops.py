"""Chooses how whole columns are hashed and queried: by loops that numba compiles (kernels.native), or without numba.

Without it xxhash and mmh3 hash value by value (kernels.hashes), and numpy inserts and looks up (kernels.block). Both
give the same bits. The compiled loops are 5 to 100 times faster. But loading numba and a few kernels takes some
0.4 s, and compiling them for the first time seconds. So a process begins without, and changes over once that has
cost it half as long: some 0.9 million numbers that are hashed and inserted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parquet_bloom.kernels.compiler import Kernel

ALLOWED_NS = 200_000_000  # that a process may lose without numba


class _Spent:
    """The cost of work without numba in this process, by estimates, nanoseconds; threads may lose some."""

    ns = 0.0


def compiled(ns: float) -> bool:
    """Whether compiled loops are to run now, where without them it would take so many nanoseconds."""
    _Spent.ns += ns
    return _Spent.ns > ALLOWED_NS


def loop(name: str) -> Kernel:
    """A compiled loop, by its name in kernels.native."""
    from parquet_bloom.kernels import native

    found: Kernel = getattr(native, name)
    return found
