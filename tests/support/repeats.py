"""Parameters of a proof that is repeated: some for the larger run, the others for a long one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def more_then_slow(values: Iterable[Any], n: int) -> list[Any]:
    """The first n have the marker `more`, which CI runs; all after them `slow`."""
    return [pytest.param(one, marks=pytest.mark.more if i < n else pytest.mark.slow) for i, one in enumerate(values)]
