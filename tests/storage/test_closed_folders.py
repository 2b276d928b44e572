"""Folders that a user may write to, but not list; or list, but not write to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support.samples import NOBODY, as_nobody, open_to_all, write_keys

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")


def add(path: Path, append: bool) -> None:
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], placement="tail", append=append)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    open_to_all(tmp_path)
    (tmp_path / "closed").mkdir()
    path = write_keys(tmp_path / "closed" / "keys.parquet")
    add(path, True)  # what is imported late, the other user may not be able to import
    parquet_bloom.remove_filters(path, in_place=True)
    os.chown(path, NOBODY, NOBODY)
    return path


def said(work: Callable[[], object], to: Path) -> str:
    def told() -> None:
        try:
            work()
        except ParquetBloomError as error:
            to.write_text(str(error))

    assert as_nobody(told) == 0
    return to.read_text() if to.exists() else ""


def test_a_new_version_takes_its_place_where_nobody_lists(keys: Path, tmp_path: Path) -> None:
    keys.parent.chmod(0o333)
    old = keys.read_bytes()
    assert said(lambda: add(keys, False), tmp_path / "said") == ""
    assert len(parquet_bloom.inspect(keys).files[0].filters) == 3
    assert said(lambda: parquet_bloom.remove_filters(keys, in_place=True), tmp_path / "said") == ""
    assert keys.read_bytes() == old
    assert os.listdir(keys.parent) == [keys.name]


def test_nothing_is_appended_there(keys: Path, tmp_path: Path) -> None:
    keys.parent.chmod(0o333)
    old = keys.read_bytes()
    error = said(lambda: add(keys, True), tmp_path / "said")
    assert error.startswith(f"{keys}: its folder may not be listed, so it is not known when")
    assert keys.read_bytes() == old
    assert os.listdir(keys.parent) == [keys.name]


def test_nor_where_no_journal_can_be_made(keys: Path, tmp_path: Path) -> None:
    keys.parent.chmod(0o555)
    old = keys.read_bytes()
    error = said(lambda: add(keys, True), tmp_path / "said")
    assert error == f"{keys}: nothing was changed, its journal cannot be written: Permission denied"
    assert keys.read_bytes() == old
