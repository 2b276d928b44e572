"""Fixtures of the tests of zone indexes."""

from __future__ import annotations

import pytest
from support.haste import hasten


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)
