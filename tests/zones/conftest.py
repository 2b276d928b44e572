"""Fixtures of the tests of zone indexes."""

from __future__ import annotations

import pytest
from support.haste import hasten

from parquet_bloom.rows import matching


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small row groups are read by pages, as large ones are."""
    hasten(monkeypatch)
    monkeypatch.setattr(matching, "_LEAST", 0)
    monkeypatch.setattr(matching.Reading, "_page_rows", lambda self, piece: 8)
