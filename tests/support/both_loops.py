"""Tests that run once over numba's loops and once over numpy's (parquet_bloom.kernels.hashes decides)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from parquet_bloom.kernels import hashes


@contextmanager
def forced(numba: bool) -> Iterator[None]:
    """Let the decision always be the one, whatever this process has done."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashes, "ALLOWED_NS", -1 if numba else math.inf)
        yield
