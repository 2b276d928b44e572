"""Chooses the loops over whole columns: those that numba compiles, or those of numpy (kernels.hashes).

Both give the same bits. The compiled ones are 5 to 30 times faster. Where an earlier process kept their code
(`linked`), a process takes 0.05 s to run them; otherwise loading numba and a few kernels takes it some 0.4 s, and
compiling them for the first time seconds. So a process begins without. It takes code that is kept once to do without
has cost as long, or is known to: 700,000 numbers that are hashed and inserted. It takes numba once that has cost half
as long: some 3 million, or 7 million that are looked up. Where numba is loaded already, a loop that some process has
compiled is used at once; one that nobody has compiled here yet would keep a hundred keys waiting for a second, and has
to be worth as much as numba. This is the one place that decides; what else has a slow way without numba, as the edit of
a footer, asks here too.

Measured by benchmarks/start.py; what numpy's loops cost stands beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from parquet_bloom.kernels.compiler import Kernel

ALLOWED_NS = 200_000_000  # that a process may lose without numba
KEPT_NS = 50_000_000  # that it may lose without a loop whose code is kept
INSERTED_NS, LOOKED_UP_NS = 70.0, 28.0  # a number that numpy hashes, and inserts or looks up


class _Spent:
    """The cost of numpy's loops in this process, by their estimates, nanoseconds; threads may lose some.

    ns        for want of compiled loops
    expected  that loops over values will have cost, if that is much
    instead   of one loop, by its name
    """

    ns = 0.0
    expected = 0.0
    instead: ClassVar[dict[str, float]] = {}


def compiled(ns: float | Callable[[], float], loop: str | None = None) -> bool:
    """Whether compiled loops are to run now, where numpy's would take so many nanoseconds.

    loop  the one that would run, if it is in kernels.native: its code may be kept
    """
    is_loaded = "numba" in sys.modules
    if _is_much(loop, is_loaded) or (is_loaded and _at_hand(loop)):
        return True
    _Spent.ns += ns() if callable(ns) else ns
    return _is_much(loop, is_loaded)


def _is_much(loop: str | None, is_loaded: bool) -> bool:
    lost = max(_Spent.ns, _Spent.expected) if loop is not None else _Spent.ns
    if lost > ALLOWED_NS or loop is None or is_loaded or lost <= KEPT_NS:
        return lost > ALLOWED_NS
    from parquet_bloom.kernels.linked import linked

    return linked(loop) is not None


def _at_hand(loop: str | None) -> bool:
    """Whether numba, which is loaded, compiles nothing for a loop."""
    return loop is None or _native(loop).at_hand


@cache
def _native(loop: str) -> Kernel:
    from parquet_bloom.kernels import native

    found: Kernel = getattr(native, loop)
    return found


def worth_loading(loop: str, ns: float, load_ns: float) -> bool:
    """Whether one more loop of numba's is to run now, which takes `load_ns` to load: once numpy's have cost as much.

    loop  what both ways do, as a name of it
    ns    of the slow way, this time
    """
    _Spent.instead[loop] = spent = _Spent.instead.get(loop, 0.0) + ns
    return spent >= load_ns and compiled(ns)


def expect(values: int, ns: float = INSERTED_NS) -> None:
    """Announce how many values will be hashed: what is loaded is better loaded first than in the middle."""
    if _Spent.ns + ns * values > KEPT_NS:
        _Spent.expected = max(_Spent.expected, _Spent.ns + ns * values)
