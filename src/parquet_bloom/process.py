"""State that belongs to one process: a child that is forked has its own.

A lock that another thread of the parent has at the fork is never released in the child. Connections and pools of
threads are the parent's.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
_ALL: WeakSet[ForkSafe[Any]] = WeakSet()


class ForkSafe(Generic[T]):
    """A value of this process; `make` makes it now, and anew in each forked child before that does anything else."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self.own = make()
        _ALL.add(self)

    def renew(self) -> None:
        """Make the value anew."""
        self.own = self._make()


def _renew_all() -> None:
    for one in list(_ALL):
        one.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)


class Recent(Generic[K, T]):
    """Values by key, of which the `most` that were used last stay. Threads that share it take its lock."""

    def __init__(self, most: int) -> None:
        self.lock, self._most = threading.Lock(), most
        self._values: OrderedDict[K, T] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def find(self, key: K) -> T | None:
        """The value of a key, which counts as used; None: there is none."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key]

    def keep(self, key: K, value: T) -> None:
        """Keep a value as the one used last."""
        self._values[key] = value
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def drop(self, key: K) -> None:
        """Keep the value of a key no longer."""
        self._values.pop(key, None)
