"""What killed runs leave is removed by the next one, wherever they ran; nobody else's file ever is."""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

import pytest
from support.samples import as_nobody, digest, leftovers, open_to_all, write_keys

import parquet_bloom
from parquet_bloom.errors import ConflictError, StorageError
from parquet_bloom.output import folder as litter
from parquet_bloom.output.atomic_file import AtomicFile
from parquet_bloom.output.folder import Folder


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.parquet")


def test_what_goes_and_what_stays(tmp_path: Path) -> None:
    host = litter._host()
    killed = [
        f".x.parquet.{host}-77-0123abcd.parquet-bloom",
        ".x.parquet.another_host-1-0123abcd.parquet-bloom",
        f".{'ä' * 55}.{host}-77-00000000.parquet-bloom",
    ]
    for name in killed:
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / killed[0]).chmod(0o444)  # as secret as a source, before it was killed
    folder = tmp_path / f".bloomfilter.lance.{host}-9-0123abcd.parquet-bloom"
    folder.mkdir()
    (folder / ".tmpAbCdEf").write_bytes(b"half of an index")
    others = [
        f".x.{host}-notes.parquet-bloom",
        f".x.{host}-77-notes.parquet-bloom",
        f"x.parquet.{host}-77-0123abcd.parquet-bloom",
        f".x.parquet.{host}-77-0123abcde.parquet-bloom",
        f".x.parquet.{host}-77-0123abcd.parquet-bloom.old",
        ".bloomfilter.lance.77-0123abcd.parquet-bloom",  # of a first version, which had no locks: it may be alive
    ]
    for name in others:
        (tmp_path / name).write_bytes(b"a user's own")
    (tmp_path / "precious").write_bytes(b"precious")
    link = f".link.{host}-1-0123abcd.parquet-bloom"
    pipe = f".pipe.{host}-1-0123abcd.parquet-bloom"
    (tmp_path / link).symlink_to("precious")
    os.mkfifo(tmp_path / pipe)
    litter.remove_stale(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "precious", link, pipe])
    day_ago = time.time() - 90_000
    os.utime(tmp_path / others[-1], (day_ago, day_ago))
    litter.remove_stale(str(tmp_path))
    assert others[-1] not in os.listdir(tmp_path)


def test_where_locks_may_not_be_seen_other_hosts_have_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "locks_are_for_all", lambda self: False)
    names = [f".x.{host}-1-0123abcd.parquet-bloom" for host in (litter._host(), "another_host", "an_old_one")]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
    os.utime(tmp_path / names[2], (0, 0))
    litter.remove_stale(str(tmp_path))
    assert os.listdir(tmp_path) == [names[1]]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
def test_another_users_files_stay(tmp_path: Path) -> None:
    name = f".x.{litter._host()}-1-0123abcd.parquet-bloom"
    (tmp_path / name).write_bytes(b"somebody's")
    open_to_all(tmp_path)
    assert as_nobody(lambda: litter.remove_stale(str(tmp_path))) == 0
    assert os.listdir(tmp_path) == [name]


def test_a_name_of_many_bytes_still_has_room(tmp_path: Path) -> None:
    long = write_keys(tmp_path / ("ä" * 120 + ".parquet"))
    parquet_bloom.add_filters(long, in_place=True, columns=["id"], sync=False)
    assert parquet_bloom.inspect(long).files[0].filters
    assert os.listdir(tmp_path) == [long.name]


def test_a_file_with_two_names_of_a_killed_run_is_healed(keys: Path) -> None:
    """Earlier versions linked the new name and then removed the old one; killed between, both stayed."""
    second = keys.with_name(f".{keys.name}.{litter._host()}-77-0123abcd.parquet-bloom")
    os.link(keys, second)
    parquet_bloom.add_filters(keys, in_place=True, columns=["id"], sync=False)
    assert keys.stat().st_nlink == 1
    assert leftovers(keys.parent) == []


def test_a_new_name_that_cannot_be_taken_back_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no RENAME_NOREPLACE: link and unlink; if only the second fails, the file is there."""
    monkeypatch.setattr("parquet_bloom.output.folder._renameat2", lambda: None)
    with AtomicFile(str(tmp_path / "new"), None, overwrite=False, sync=False) as new:
        new.append(b"whole")
        monkeypatch.setattr(Folder, "remove", lambda *_, **__: (_ for _ in ()).throw(PermissionError))
        new.commit()
    monkeypatch.undo()
    assert (tmp_path / "new").read_bytes() == b"whole"
    litter.remove_stale(str(tmp_path))
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize("in_place", [True, False])
def test_a_folder_that_moves_meanwhile_keeps_nothing(keys: Path, tmp_path: Path, in_place: bool) -> None:
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    folder.mkdir()
    source = folder / "keys.parquet" if in_place else keys
    keys.rename(source) if in_place else None
    before = digest(source)

    def move(progress: parquet_bloom.Progress) -> None:
        if progress.parts_done and folder.exists():
            folder.rename(moved)

    where = {"in_place": True} if in_place else {"output": folder / "out.parquet"}
    with pytest.raises(StorageError, match="(?i)no such file|folder was moved"):
        parquet_bloom.add_filters(source, columns=["id"], sync=False, progress=move, **where)
    assert os.listdir(moved) == (["keys.parquet"] if in_place else [])
    assert digest(moved / "keys.parquet" if in_place else keys) == before


def test_a_changed_working_folder_keeps_nothing(keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def go(progress: parquet_bloom.Progress) -> None:
        if progress.parts_done:
            os.chdir(tmp_path / "elsewhere")

    parquet_bloom.add_filters(keys, "out.parquet", columns=["id"], sync=False, progress=go)
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "keys.parquet", "out.parquet"]
    assert os.listdir(tmp_path / "elsewhere") == []


def test_a_device_that_appears_at_the_last_moment_stays(keys: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"old")
    with AtomicFile(str(out), None, overwrite=True, sync=False) as new:
        new.append(b"new")
        out.unlink()
        os.mkfifo(out)
        with pytest.raises(StorageError, match="not a regular file"):
            new.commit()
    assert stat.S_ISFIFO(out.stat().st_mode)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("how", ["renamed", "renamed, of the same size and time", "written in place"])
def test_another_programs_version_of_the_last_moment_comes_back(keys: Path, tmp_path: Path, how: str) -> None:
    """Between the last look and the rename there is a moment; what is renamed or written then must not be lost."""
    before = keys.stat()
    theirs = b"theirs" if how == "renamed" else bytes(before.st_size)

    def last_moment() -> None:
        path = keys if how == "written in place" else tmp_path / "theirs"
        path.write_bytes(theirs)
        if "time" in how:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        path.rename(keys)

    with AtomicFile(str(keys), str(keys), True, False, replaces=before) as new:
        new.append(b"ours")
        with pytest.raises(ConflictError, match="was changed by another program meanwhile; nothing was written"):
            new.commit(last_check=last_moment)
    assert keys.read_bytes() == theirs
    assert os.listdir(tmp_path) == [keys.name]


def test_versions_that_come_while_one_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest stays, however often the other program renames between our swaps."""
    target, rounds = tmp_path / "x", 5
    target.write_bytes(b"read")
    plain, swaps = Folder.exchange, []

    def swap(self: Folder, name: str, other: str) -> bool:
        if len(swaps) < rounds:
            swaps.append(name)
            (tmp_path / "theirs").write_bytes(b"version %d" % len(swaps))
            (tmp_path / "theirs").rename(target)
        return plain(self, name, other)

    with AtomicFile(str(target), str(target), True, False, replaces=target.stat()) as new:
        new.append(b"ours")
        monkeypatch.setattr(Folder, "exchange", swap)
        with pytest.raises(ConflictError):
            new.commit()
    assert target.read_bytes() == b"version %d" % rounds
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_control_c_in_the_moment_of_the_swap(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Another program's version is then under our temporary name only; giving up would remove it."""
    plain, swaps = Folder.exchange, []

    def swap(self: Folder, name: str, other: str) -> bool:
        if not swaps:
            (tmp_path / "theirs").write_bytes(b"theirs")
            (tmp_path / "theirs").rename(keys)
        swaps.append(name)
        done = plain(self, name, other)
        signal.raise_signal(number)
        return done

    before = signal.signal(number, signal.default_int_handler)
    try:
        with AtomicFile(str(keys), str(keys), True, False, replaces=keys.stat()) as new:
            new.append(b"ours")
            monkeypatch.setattr(Folder, "exchange", swap)
            with pytest.raises(KeyboardInterrupt):
                new.commit()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)
    assert len(swaps) == 2
    assert keys.read_bytes() == b"theirs"
    assert os.listdir(tmp_path) == [keys.name]


def test_an_old_checksum_is_gone_before_the_new_bytes_come(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between, Spark must not meet new bytes with sums of the old ones."""
    crc = keys.with_name(f".{keys.name}.crc")
    crc.write_bytes(b"sums of the old bytes")
    plain, seen = Folder.exchange, []
    monkeypatch.setattr(Folder, "exchange", lambda *a: (seen.append(crc.exists()), plain(*a))[1])
    parquet_bloom.add_filters(keys, in_place=True, columns=["id"], sync=False)
    assert seen == [False]
    crc.write_bytes(b"sums")
    monkeypatch.setattr(Folder, "exchange", lambda *a: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(StorageError, match="Input/output error"):
        parquet_bloom.remove_filters(keys, in_place=True, sync=False)
    assert crc.read_bytes() == b"sums", "nothing was changed, so they are right"
    assert sorted(os.listdir(keys.parent)) == [crc.name, keys.name]


def test_bytes_that_do_not_read_back(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes one byte and gives another: told only where it is asked for."""
    before, size, plain = digest(keys), keys.stat().st_size, AtomicFile.compare
    parquet_bloom.add_filters(keys, in_place=True, columns=["id"], read_back=True, sync=False)
    parquet_bloom.remove_filters(keys, in_place=True, read_back=True)
    assert digest(keys) == before
    for behind in (False, True):  # a byte that was copied, one that is new

        def garble(self: AtomicFile, behind: bool = behind) -> None:
            at = self.at - 300 if behind else 1000
            if self.at > size:
                byte = os.pread(self.fd, 1, at)
                os.pwrite(self.fd, bytes([byte[0] ^ 4]), at)
            plain(self)

        monkeypatch.setattr(AtomicFile, "compare", garble)
        with pytest.raises(StorageError, match="do not read back as they were written; nothing was changed"):
            parquet_bloom.add_filters(keys, in_place=True, columns=["id"], read_back=True)
        assert digest(keys) == before
        assert leftovers(keys.parent) == []
