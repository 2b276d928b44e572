"""Chooses the loops over whole columns: those that numba compiles, or those of numpy (kernels.hashes).

Both give the same bits. numba's are 5 to 30 times faster, but loading numba and a few kernels takes a process some
0.4 s, and compiling them for the first time seconds. So a process begins without, and takes numba once that has
cost it, or is known to cost it, half as long: some 3 million numbers that are hashed and inserted, 7 million that
are looked up. Where numba is loaded already, it is used at once. This is the one place that decides; what else
has a slow way without numba, as the edit of a footer, asks here too.

Measured by benchmarks/start.py; what numpy's loops cost stands beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import ClassVar

ALLOWED_NS = 200_000_000  # that a process may lose without numba
INSERTED_NS, LOOKED_UP_NS = 70.0, 28.0  # a number that numpy hashes, and inserts or looks up


class _Spent:
    """The cost of numpy's loops in this process, by their estimates, nanoseconds; threads may lose some.

    ns       for want of numba
    instead  of one loop, by its name
    """

    ns = 0.0
    instead: ClassVar[dict[str, float]] = {}


def compiled(ns: float | Callable[[], float]) -> bool:
    """Whether numba's loops are to run now, where numpy's would take so many nanoseconds."""
    if "numba" in sys.modules or _Spent.ns > ALLOWED_NS:
        return True
    _Spent.ns += ns() if callable(ns) else ns
    return _Spent.ns > ALLOWED_NS


def worth_loading(loop: str, ns: float, load_ns: float) -> bool:
    """Whether one more loop is to run now, which takes `load_ns` to load: once numpy's loops have cost as much.

    loop  what both ways do, as a name of it
    ns    of the slow way, this time
    """
    _Spent.instead[loop] = spent = _Spent.instead.get(loop, 0.0) + ns
    return spent >= load_ns and compiled(ns)


def expect(values: int, ns: float = INSERTED_NS) -> None:
    """Announce how many values will be hashed: numba is better loaded first than in the middle."""
    if _Spent.ns + ns * values > ALLOWED_NS:
        _Spent.ns = ALLOWED_NS + 1
