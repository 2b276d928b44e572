"""Less waiting for disk and clock, in tests that are of neither."""

from __future__ import annotations

import os

import pytest

from parquet_bloom.storage import version_token


def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key index waits until files have settled, and for the disk, which only a loss of power would show.

    Of its waits three of the clock's longest ticks stay. tests/faults has what is written before what, and
    keys/test_changed_files.py files that change at once, with the times that users have.
    """
    monkeypatch.setattr(version_token, "_SETTLED_S", 0.03)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
