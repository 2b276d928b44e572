"""Parameters of a proof that is repeated: some for the larger run, the others for a long one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from random import Random
from typing import Any

import pytest


def more_then_slow(values: Iterable[Any], n: int) -> list[Any]:
    """The first n have the marker `more`, which CI runs; all after them `slow`."""
    return [pytest.param(one, marks=pytest.mark.more if i < n else pytest.mark.slow) for i, one in enumerate(values)]


def some_then_more(values: Iterable[Any]) -> list[Any]:
    """Each third, by lot and always the same; the others have the marker `more`. For files and columns of all kinds."""
    every = list(values)
    quick = set(Random(0).sample(range(len(every)), -(-len(every) // 3)))
    return [one if i in quick else pytest.param(one, marks=pytest.mark.more) for i, one in enumerate(every)]


def thirds(values: Iterable[Any]) -> list[Any]:
    """The thirds of some_then_more as three lists of values, for tests that go through one: the first is quick."""
    every = list(values)
    Random(0).shuffle(every)
    return [every[::3], *(pytest.param(every[i::3], marks=pytest.mark.more) for i in (1, 2))]


def first_then_more(values: Iterable[Any], n: int) -> list[Any]:
    """The first n, as of seeds, which are all alike; the others have the marker `more`."""
    return [one if i < n else pytest.param(one, marks=pytest.mark.more) for i, one in enumerate(values)]


def by_turns(values: Iterable[Any], others: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Pairs: each value with one of the others, which take turns. For a setting that needs each value once only."""
    return list(zip(values, cycle(others), strict=False))
