"""What has the name of a journal and is none, or is somebody else's: it orders nothing, and nothing waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.samples import NOBODY, as_nobody, keys_table, open_to_all
from support.torn_append import KILLED, Torn

import parquet_bloom
from parquet_bloom.errors import NotParquetError, StorageError

by_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def torn(tmp_path: Path) -> Torn:
    return Torn(tmp_path)


def believed_by_nobody(torn: Torn) -> None:
    """A torn file stays, and is no Parquet; a whole one is worked on."""
    state = torn.path.read_bytes()
    with pytest.raises(NotParquetError):
        parquet_bloom.inspect(torn.path)
    with pytest.raises(NotParquetError):
        torn.add()
    assert torn.path.read_bytes() == state
    os.truncate(torn.path, len(torn.old))
    assert parquet_bloom.read_table(torn.path).equals(keys_table())
    with pytest.raises(StorageError, match="has the name of its journal .*; nothing was changed"):
        torn.add(append=True)
    assert torn.path.read_bytes() == torn.old
    assert os.path.lexists(torn.journal)


def test_what_is_no_regular_file_is_no_journal(torn: Torn) -> None:
    torn.tear(torn.tail[:1000])
    moved = torn.journal.rename(torn.journal.with_name("moved"))
    for make in (lambda: os.mkfifo(torn.journal), lambda: torn.journal.symlink_to(moved), torn.journal.mkdir):
        torn.path.write_bytes(torn.old + torn.tail[:1000])
        make()
        believed_by_nobody(torn)
        torn.journal.rmdir() if torn.journal.is_dir() else torn.journal.unlink()


@by_root
def test_in_a_sticky_folder_only_some_are_believed(torn: Torn) -> None:
    torn.path.parent.chmod(0o1777)
    torn.tear(torn.tail[:1000])
    os.chown(torn.journal, NOBODY, NOBODY)
    believed_by_nobody(torn)
    torn.tear(torn.tail[:1000])
    os.chown(torn.journal, NOBODY, NOBODY)
    os.chown(torn.path, NOBODY, NOBODY)
    assert parquet_bloom.read_table(torn.path).equals(keys_table()), "the owner's own"
    torn.add()
    assert torn.path.read_bytes() == torn.new


@by_root
def test_in_a_folder_of_a_group_all_are_believed(torn: Torn) -> None:
    torn.path.parent.chmod(0o775)
    torn.tear(torn.tail[:1000])
    os.chown(torn.journal, NOBODY, NOBODY)
    assert parquet_bloom.read_table(torn.path).equals(keys_table())
    torn.add()
    assert torn.path.read_bytes() == torn.new


@by_root
def test_the_owner_goes_on_with_what_root_began(torn: Torn, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    torn.tear(torn.tail[:1000])  # once as root: what is imported late, the other user may not be able to import
    assert parquet_bloom.count(torn.path) == 1200
    parquet_bloom.remove_filters(torn.path, in_place=True)
    os.chown(torn.path, NOBODY, NOBODY)
    torn.path.chmod(0o600)
    assert subprocess.run([sys.executable, "-c", KILLED, torn.path], check=False).returncode == -9
    journal = torn.journal.stat()
    assert (journal.st_uid, journal.st_gid, journal.st_mode & 0o7777) == (NOBODY, NOBODY, 0o600)
    assert said(lambda: parquet_bloom.count(torn.path), tmp_path / "said") == ""
    assert said(lambda: parquet_bloom.remove_filters(torn.path, in_place=True), tmp_path / "said") == ""
    assert torn.path.read_bytes() == torn.old


def said(work: Callable[[], object], to: Path) -> str:
    """The error of what another user does."""

    def told() -> None:
        try:
            work()
        except Exception as error:  # of any kind: it is held against what is expected
            to.write_text(str(error))

    to.unlink(missing_ok=True)
    assert as_nobody(told) == 0
    return to.read_text() if to.exists() else ""


@by_root
def test_who_may_not_write_the_file_is_told_so(torn: Torn, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    torn.tear(torn.tail[:1000])
    torn.add()
    parquet_bloom.remove_filters(torn.path, in_place=True)
    torn.tear(torn.tail[:1000])
    torn.path.chmod(0o444)
    error = said(lambda: parquet_bloom.remove_filters(torn.path, in_place=True, force=True), tmp_path / "said")
    assert error == f"{torn.path}: an append to it was cut short, and taking that back failed (Permission denied)"
    torn.path.chmod(0o666)
    torn.journal.chmod(0o600)
    error = said(torn.add, tmp_path / "said")
    assert error.startswith(f"{torn.path}: an append to it was cut short, and its journal {torn.journal} cannot be")
