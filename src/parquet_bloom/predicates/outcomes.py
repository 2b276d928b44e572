"""Which of {TRUE, FALSE, NULL} can a row give?

A row group is skipped when TRUE is impossible, and only then; its rows need no filter when TRUE is
alone. Sets are computed from sets: what AND may give is each outcome of one side with each of the
other, by SQL's three-valued logic, so nothing is ever left out.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from functools import reduce

import numpy as np
from numpy.typing import NDArray


class Outcomes(enum.Flag):
    """A subset of {TRUE, FALSE, NULL}: what a predicate may give over the rows of a row group."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    NULL = 4
    ANY = 7

    @property
    def names(self) -> list[str]:
        """The names of the outcomes in the set."""
        return [str(member.name) for member in (Outcomes.TRUE, Outcomes.FALSE, Outcomes.NULL) if member in self]


TRUE, FALSE, NULL, ANY = 1, 2, 4, 7
Masks = NDArray[np.uint8]  # one element a row group, bits as in Outcomes


def _and(a: int, b: int) -> int:
    return FALSE if FALSE in (a, b) else NULL if NULL in (a, b) else TRUE


def _or(a: int, b: int) -> int:
    return TRUE if TRUE in (a, b) else NULL if NULL in (a, b) else FALSE


def _table(operation: Callable[[int, int], int]) -> Masks:
    members = [[m for m in (TRUE, FALSE, NULL) if m & bits] for bits in range(8)]
    return np.array(
        [[reduce(int.__or__, (operation(x, y) for x in a for y in b), 0) for b in members] for a in members], np.uint8
    )


_AND, _OR = _table(_and), _table(_or)
_NOT = np.array([bits & NULL | (bits & TRUE) << 1 | (bits & FALSE) >> 1 for bits in range(8)], np.uint8)


def conjunction(parts: list[Masks], n: int) -> Masks:
    """What AND of the parts may give, for each of n row groups."""
    return reduce(lambda a, b: _AND[a, b], parts) if parts else np.full(n, TRUE, np.uint8)


def disjunction(parts: list[Masks], n: int) -> Masks:
    """What OR of the parts may give."""
    return reduce(lambda a, b: _OR[a, b], parts) if parts else np.full(n, FALSE, np.uint8)


def negation(part: Masks) -> Masks:
    """What NOT of the part may give."""
    return _NOT[part]
