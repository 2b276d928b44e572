"""Which loops run over whole columns: those that numba compiles (kernels.native), or numpy's (kernels.plain_*).

Both give the same bits. numba's are 5 to 30 times faster, but loading numba and a few kernels takes a process some
0.4 s, and compiling them for the first time seconds. So a process begins with numpy, and takes numba once numpy has
cost it, or is known to cost it, half of that: some 2 million numbers that are hashed and inserted, 8 million that
are looked up. Where numba is loaded already, it is used at once. This is the one place that decides.

Measured by benchmarks/start.py; the costs of numpy's loops stand beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

ALLOWED_NS = 200_000_000  # of numpy's time in one process


class _Spent:
    """Of this process: what numpy's loops have cost, by their estimates, nanoseconds."""

    ns = 0.0


def compiled(ns: float | Callable[[], float]) -> bool:
    """Whether numba's loops are to run now, where numpy's would take so many nanoseconds; or what works them out."""
    if "numba" in sys.modules or _Spent.ns > ALLOWED_NS:
        return True
    _Spent.ns += ns() if callable(ns) else ns
    return _Spent.ns > ALLOWED_NS


def expect(ns: float) -> None:
    """Say in advance what numpy's loops would cost altogether: numba is better loaded first than half-way."""
    if _Spent.ns + ns > ALLOWED_NS:
        _Spent.ns = ALLOWED_NS
