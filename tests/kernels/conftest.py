"""The loops, twice: a module that uses `loops` runs over those that numba compiles, and over numpy's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.both_loops import forced


@pytest.fixture(scope="module", params=["numba", "numpy"])
def loops(request: pytest.FixtureRequest) -> Iterator[None]:
    with forced(request.param == "numba"):
        yield
