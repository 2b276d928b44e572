"""Chooses the loops over whole columns: those that numba compiles (kernels.native), or those of numpy (kernels.hashes).

Both give the same bits. The compiled ones are 5 to 30 times faster. But loading numba and a few kernels takes some
0.4 s, and compiling them for the first time seconds. So a process begins with numpy's, and changes over once they have
cost it half as long: some 3 million numbers that are hashed and inserted, or 7 million that are looked up. What else
has a slow way without numba, as the edit of a footer, counts here too. Measured by benchmarks/start.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parquet_bloom.kernels.compiler import Kernel

ALLOWED_NS = 200_000_000  # that a process may lose without numba


class _Spent:
    """The cost of numpy's loops in this process, by their estimates, nanoseconds; threads may lose some."""

    ns = 0.0


def compiled(ns: float) -> bool:
    """Whether compiled loops are to run now, where numpy's would take so many nanoseconds."""
    _Spent.ns += ns
    return _Spent.ns > ALLOWED_NS


def loop(name: str) -> Kernel:
    """A compiled loop, by its name in kernels.native."""
    from parquet_bloom.kernels import native

    found: Kernel = getattr(native, name)
    return found
