"""Values that are derived from a footer or an outline once, and kept with it.

    @derived
    def statistics_of(outline: Outline, leaf: Leaf) -> ColumnStatistics: ...

The first call for a leaf works its statistics out, later ones look them up; they go when the outline goes. An error is
not kept. Threads that share an outline may work a value out twice, and each sees a whole one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class Keeper(Protocol):
    """A footer or an outline; only `derived` touches its memory."""

    @property
    def memory(self) -> dict[Any, Any]:
        """(function, its arguments) -> what it found."""


_K = TypeVar("_K", bound=Keeper)
_P = ParamSpec("_P")
_T = TypeVar("_T")


def derived(work_out: Callable[Concatenate[_K, _P], _T]) -> Callable[Concatenate[_K, _P], _T]:
    """Make a function of a footer or an outline remember what it found; its other arguments are hashable."""

    @wraps(work_out)
    def kept(keeper: _K, /, *arguments: _P.args, **named: _P.kwargs) -> _T:
        key = (work_out, arguments, *named.items())
        memory = keeper.memory
        if key not in memory:
            memory[key] = work_out(keeper, *arguments, **named)
        found: _T = memory[key]
        return found

    return kept
