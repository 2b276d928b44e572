"""Row groups of every size are read by their predicate's columns first, as large ones are."""

from __future__ import annotations

import pytest

from parquet_bloom.rows import matching


@pytest.fixture(autouse=True)
def in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_LEAST", 0)
    monkeypatch.setattr(matching, "_LEAST_REMOTE", 0)
    monkeypatch.setattr(matching.Reading, "_page_rows", lambda self, piece: 8)
