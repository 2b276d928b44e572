"""What tests of searches share."""

from __future__ import annotations

import pytest
from support.searched import LOOPS

from parquet_bloom.search import together


@pytest.fixture(params=LOOPS)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether numba's loops are used."""
    if request.param == "numba":
        import numba  # noqa: F401
    else:
        from types import SimpleNamespace

        from parquet_bloom.filters import asking
        from parquet_bloom.storage import open_file

        without = SimpleNamespace(modules={})
        monkeypatch.setattr(asking, "sys", without)
        monkeypatch.setattr(open_file, "sys", without)
        monkeypatch.setattr(open_file._ReadByBindings, "row_groups", -(10**9))
        monkeypatch.setattr(together, "sys", without, raising=False)
    return str(request.param)
