"""Who may read and run a new file: those who might before, and never more."""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path

import pytest
from support.commands import command, error_lines
from support.samples import NOBODY, as_nobody, digest, open_to_all, write_keys

import parquet_bloom
from parquet_bloom.output.atomic_file import followed

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.parquet")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def access_list(user: int, group: int, others: int, mask: int, named: dict[int, int]) -> bytes:
    """system.posix_acl_access as Linux's posix_acl_xattr.h has it."""
    none = 0xFFFFFFFF
    entries = [(0x01, user, none), *((0x02, perm, uid) for uid, perm in named.items())]
    entries += [(0x04, group, none), (0x10, mask, none), (0x20, others, none)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def in_place(path: Path) -> None:
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)


def in_place_as_nobody(path: Path) -> int:
    parquet_bloom.add_filters(path, path.with_name("warm"), columns=["id"], sync=False)  # compiles, as root
    path.with_name("warm").unlink()
    return as_nobody(lambda: in_place(path))


@ROOT
def test_another_users_set_id_file_makes_no_program_of_ours(keys: Path) -> None:
    os.chown(keys, 1234, 4321)
    open_to_all(keys.parent)
    keys.chmod(0o6777)  # after chown, which takes the bits
    assert in_place_as_nobody(keys) == 0
    assert (keys.stat().st_uid, mode_of(keys)) == (NOBODY, 0o777)


@ROOT
def test_set_id_bits_go_even_where_the_owner_stays(keys: Path) -> None:
    os.chown(keys, 1234, 4321)
    keys.chmod(0o6755)
    in_place(keys)
    assert (keys.stat().st_uid, keys.stat().st_gid, mode_of(keys)) == (1234, 4321, 0o755)
    keys.chmod(0o6755)
    parquet_bloom.add_filters(keys, keys.with_name("out.parquet"), columns=["id"], sync=False)
    assert mode_of(keys.with_name("out.parquet")) == 0o755


@ROOT
def test_a_group_that_cannot_stay_gives_its_rights_to_no_other(keys: Path) -> None:
    os.chown(keys, NOBODY, 4321)
    open_to_all(keys.parent)
    keys.chmod(0o660)
    assert in_place_as_nobody(keys) == 0
    assert (keys.stat().st_gid, mode_of(keys)) == (NOBODY, 0o600)


def test_an_output_is_no_more_public_than_the_umask_says(keys: Path) -> None:
    keys.chmod(0o644)
    out, plain = keys.with_name("out.parquet"), keys.with_name("plain.parquet")
    for umask, wanted in ((0o077, 0o600), (0o022, 0o644)):
        before = os.umask(umask)
        try:
            assert command("add", keys, "-o", out, "-c", "id").returncode == 0
            parquet_bloom.remove_filters(keys, plain, sync=False)
        finally:
            os.umask(before)
        assert mode_of(out) == mode_of(plain) == wanted
        out.unlink()
        plain.unlink()


def test_an_output_that_replaces_a_secret_stays_one(keys: Path, tmp_path: Path) -> None:
    keys.chmod(0o644)
    out = tmp_path / "out.parquet"
    out.write_bytes(b"old")
    out.chmod(0o600)
    parquet_bloom.add_filters(keys, out, columns=["id"], overwrite=True, sync=False)
    assert mode_of(out) == 0o600


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no such access lists")
def test_an_access_list_is_kept_in_place_and_never_widened(keys: Path, tmp_path: Path) -> None:
    keys.chmod(0o600)
    listed = access_list(user=6, group=0, others=0, mask=4, named={1234: 4})  # one user may read, the group may not
    try:
        os.setxattr(keys, "system.posix_acl_access", listed)
    except OSError:
        pytest.skip("this file system keeps no access lists")
    assert mode_of(keys) == 0o640, "the group's bits are the list's mask"
    parquet_bloom.add_filters(keys, tmp_path / "out.parquet", columns=["id"], sync=False)
    assert mode_of(tmp_path / "out.parquet") == 0o600, "without the list the group would read what it must not"
    in_place(keys)
    assert os.getxattr(keys, "system.posix_acl_access") == listed
    assert mode_of(keys) == 0o640


@ROOT
def test_another_users_link_in_a_shared_folder_is_not_followed(keys: Path, tmp_path: Path) -> None:
    """As with Linux's fs.protected_symlinks, which looks at the path only when we open what it names."""
    shared, mine = tmp_path / "shared", tmp_path / "mine"
    shared.mkdir()
    mine.mkdir()
    shared.chmod(0o1777)
    (mine / "x.parquet").write_bytes(b"precious")
    (shared / "x.parquet").symlink_to(mine / "x.parquet")
    os.chown(shared / "x.parquet", NOBODY, NOBODY, follow_symlinks=False)
    done = command("add", keys, "-o", shared / "x.parquet", "--overwrite", "-c", "id")
    assert (done.returncode, error_lines(done.stderr)) == (2, 1), done.stderr
    assert "is a link of another user in a folder that all may write to" in done.stderr
    done = command("read", keys, "-o", shared / "x.parquet", "--overwrite")
    assert (done.returncode, error_lines(done.stderr)) == (2, 1), done.stderr
    assert (mine / "x.parquet").read_bytes() == b"precious"
    assert os.listdir(mine) == ["x.parquet"]
    os.chown(shared / "x.parquet", os.geteuid(), NOBODY, follow_symlinks=False)
    assert followed(str(shared / "x.parquet")) == str(mine / "x.parquet"), "our own link there is followed"


@ROOT
def test_what_is_no_regular_file_is_never_replaced(keys: Path, tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except OSError:
        pytest.skip("no devices can be made here")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("null")
    before = digest(keys)
    for line in (
        ["add", keys, "-c", "id", "--output", tmp_path / "null", "--overwrite", "--force"],
        ["add", keys, "-c", "id", "--output", tmp_path / "link", "--overwrite", "--force"],
        ["remove", keys, "--output", tmp_path / "pipe", "--overwrite", "--force"],
        ["read", keys, "--output", tmp_path / "null", "--overwrite", "--format", "csv"],
        ["read", keys, "--output", tmp_path / "pipe", "--overwrite", "--format", "csv"],
    ):
        done = command(*line)
        assert (done.returncode, error_lines(done.stderr)) == (2, 1), (line, done.stderr)
        assert "is not a regular file" in done.stderr
    assert stat.S_ISCHR((tmp_path / "null").stat().st_mode)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert digest(keys) == before
    assert sorted(os.listdir(tmp_path)) == ["keys.parquet", "link", "null", "pipe"]


def test_what_looks_like_half_a_uri_is_no_folder_here(keys: Path, tmp_path: Path) -> None:
    for line in (
        ["add", keys, "-o", "s3:/b/x.parquet"],
        ["remove", keys, "-o", "gs:/b/x.parquet"],
        ["read", keys, "-o", "s3://b/x.csv"],
        ["index", "build", keys, "-c", "id", "-o", "s3:/b/index"],
        ["index", "build", "--kind", "lance", keys, "-c", "id", "-o", "s3://b/index"],
    ):
        done = command(*line, cwd=tmp_path)
        assert (done.returncode, error_lines(done.stderr)) == (2, 1), (line, done.stderr)
    assert os.listdir(tmp_path) == ["keys.parquet"]
