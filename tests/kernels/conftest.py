"""The loops, twice: a module that uses `loops` runs over those that numba compiles, and over numpy's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from parquet_bloom.kernels import hashes, k_probe, split_block


@pytest.fixture(scope="module", params=["numba", "numpy"])
def loops(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for module in (hashes, k_probe, split_block):
            patch.setattr(module, "compiled", lambda _: request.param == "numba")
        yield request.param
