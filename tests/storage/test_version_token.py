"""Which version tokens prove that a file has the bytes that it had: believed too rarely they cost a read, else rows."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from parquet_bloom.storage import version_token
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.operating_system import file_system_of
from parquet_bloom.storage.version_token import LocalToken, StoreToken, proves

HASH = "9e107d9d372bb6826bd81d3542a419d6"
WHEN = "Mon, 23 Nov 2026 20:47:33 GMT"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of a file system that is believed, whatever the tests run on."""
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    with path.open("rb") as opened:
        monkeypatch.setattr(version_token, "_KEEP_CTIME", {file_system_of(opened.fileno())})
    return path


def lasting(path: Path, wait: bool = True) -> Any:
    with OpenFile(path) as source:
        return source.lasting_token(wait)


def test_a_token_that_was_kept_is_that_of_the_same_file_only(file: Path) -> None:
    kept = json.loads(json.dumps(lasting(file)))
    assert set(kept) == {"device", "inode", "size", "mtime_ns", "ctime_ns"}
    with OpenFile(file) as source:
        assert source.is_known_by(kept)
        for name in kept:
            assert not source.is_known_by({**kept, name: kept[name] + 1}), name
            assert not source.is_known_by({key: value for key, value in kept.items() if key != name}), name
        assert not source.is_known_by({**kept, "more": 1})
    before = file.stat()
    with file.open("r+b") as opened:
        opened.write(b"y")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with OpenFile(file) as source:
        assert not source.is_known_by(kept)


def test_a_file_of_this_moment_is_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = file.stat().st_ctime_ns
    clock = [changed + 5_000_000]
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock[0] += round(seconds * 1e9) + 1

    monkeypatch.setattr(version_token.time, "time_ns", lambda: clock[0])
    monkeypatch.setattr(version_token.time, "sleep", sleep)
    assert lasting(file, wait=False) is None, "a second write within a tick of the clock has the same ctime"
    assert waited == []
    assert lasting(file) is not None
    assert waited == [pytest.approx(0.095)]
    assert lasting(file, wait=False) is not None, "old enough by now"
    clock[0] = changed - 10**9
    assert lasting(file) is None, "it comes from the future: a clock was set back"
    assert len(waited) == 1


def test_a_file_that_changes_while_it_is_waited_for_has_no_token(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.sleep

    def changing(seconds: float) -> None:
        real(seconds)
        file.write_bytes(b"other")

    monkeypatch.setattr(version_token.time, "sleep", changing)
    file.write_bytes(b"one")
    assert lasting(file) is None


def test_times_that_programs_set_are_no_proof(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with file.open("rb") as opened:
        token, kind = LocalToken.of(os.fstat(opened.fileno())), file_system_of(opened.fileno())
        assert kind is not None
        whole = LocalToken(token.size, token.mtime_ns, token.ctime_ns // 10**9 * 10**9, token.inode, token.device)
        assert whole.lasting(opened.fileno(), wait=False) is None, "an image's time, or one that counts seconds"
    monkeypatch.setattr(version_token, "_KEEP_CTIME", {"ext4", "xfs", "tmpfs"} - {kind})
    assert lasting(file) is None, "as of sshfs or NFS"
    assert not {"nfs", "nfs4", "cifs", "fuse", "fuse.sshfs", "vfat", "squashfs", "9p"} & version_token._KEEP_CTIME


def test_which_etags_stand_for_bytes() -> None:
    for etag, kept in (
        (f'"{HASH}"', {"size": 7, "etag": HASH, "modified": 1795466853}),
        (f'"{HASH}-12"', {"size": 7, "etag": f"{HASH}-12", "modified": 1795466853}),
        (f'W/"{HASH}"', None), ('"' + "0" * 32 + '-1"', None), ('""', None), ("", None), (None, None),
    ):  # fmt: skip
        assert StoreToken.of_headers(7, etag, WHEN).facts() == kept, etag


def test_what_fsspec_tells() -> None:
    when = dt.datetime(2026, 11, 23, 20, 47, 33, 500, dt.UTC)
    s3 = StoreToken.of_info(("s3", "s3a"), {"size": 7, "ETag": f'"{HASH}"', "LastModified": when})
    assert s3.facts() == StoreToken.of_headers(7, f'"{HASH}"', WHEN).facts(), "one object by two libraries"
    google = {"size": 7, "etag": "CJi=", "generation": "17", "updated": "2026-11-23T20:47:33.123Z"}
    assert StoreToken.of_info(("gs", "gcs"), google).facts() == {"size": 7, "generation": "17", "modified": 1795466853}
    assert StoreToken.of_info("abfs", {"size": 7, "etag": "0x8D", "last_modified": when}).facts() is not None
    web = {"size": 7, "ETag": '"655f-1f4"', "mtime": 5.0}
    for protocol in ("http", ("file", "local"), "sftp", "memory", ""):
        token = StoreToken.of_info(protocol, web)
        assert token.facts() is None, "a server of files makes its ETag of size and time"
        assert token != StoreToken.of_info(protocol, {**web, "mtime": 6.0}), "in one process a difference still counts"
        assert token == StoreToken.of_info(protocol, dict(web))


def test_both_sides_have_to_know_what_proves() -> None:
    one = {"size": 7, "etag": "a", "modified": 5}
    assert proves(one, one)
    assert proves(one, {"size": 7, "etag": "a"})
    for other in (
        None, {}, {"size": 7}, {"size": 7, "modified": 5}, {"size": 7, "generation": "1", "modified": 5},
        {**one, "etag": "b"}, {**one, "size": 8}, {**one, "modified": 6}, {**one, "inode": 1},
    ):  # fmt: skip
        assert not proves(one, other), other
        assert not proves(other, one), other
    for kept in (None, [], "x", 5, {"size": [7], "etag": {}}):
        assert not proves(kept, one)
