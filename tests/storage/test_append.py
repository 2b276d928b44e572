"""An append that was cut short: what readers see, what the next run makes of it, and what is an error."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from samples import command, keys_table, leftovers, write_keys

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError, StorageError
from parquet_bloom.formats.journal import HEADER_BYTES, Journal, journal_name
from parquet_bloom.storage.writing import append as append_module
from parquet_bloom.storage.writing.litter import remove_stale


class Torn:
    """A file with some of a tail behind it, and the journal of that append."""

    def __init__(self, folder: Path) -> None:
        self.path = write_keys(folder / "keys.parquet")
        self.old = self.path.read_bytes()
        parquet_bloom.add_filters(self.path, folder / "new", columns=["id", "name"], placement="tail", sync=False)
        self.new = (folder / "new").read_bytes()
        (folder / "new").unlink()
        self.tail = self.new[len(self.old) :]
        self.journal = folder / ".keys.parquet.parquet-bloom-journal"

    def tear(self, behind: bytes, **wrong: int) -> None:
        """`behind` lies behind the old file; `wrong` are facts of the journal that are others."""
        with self.path.open("r+b") as file:  # the inode stays
            file.truncate(0)
            file.write(self.old + behind)
        found, length = self.path.stat(), int.from_bytes(self.old[-8:-4], "little")
        facts = {
            "device": found.st_dev, "inode": found.st_ino, "old_size": len(self.old), "mtime_ns": found.st_mtime_ns,
            "ctime_ns": found.st_ctime_ns, "footer_crc32": zlib.crc32(self.old[-8 - length : -8]),
            "tail_length": len(self.tail), "tail_crc32": zlib.crc32(self.tail), **wrong,
        }  # fmt: skip
        self.journal.write_bytes(Journal(**facts).encode() + self.tail)

    def add(self, **options: object) -> None:
        parquet_bloom.add_filters(
            self.path, in_place=True, columns=["id", "name"], placement="tail", sync=False, **options
        )


@pytest.fixture
def torn(tmp_path: Path) -> Torn:
    return Torn(tmp_path)


def cuts(torn: Torn) -> list[int]:
    n = len(torn.tail)
    return [0, 1, 7, 100, 4096, n // 2, n - 9, n - 8, n - 1]


def test_readers_see_the_old_file(torn: Torn) -> None:
    for cut in cuts(torn):
        torn.tear(torn.tail[:cut])
        state = torn.path.read_bytes()
        assert parquet_bloom.read_table(torn.path).equals(keys_table()), cut
        some = keys_table()["name"][700].as_py()
        assert parquet_bloom.read_table(torn.path, f"name = '{some}'").num_rows == 1
        assert parquet_bloom.count(torn.path) == 1200
        assert len(parquet_bloom.check(torn.path, "id = 5")) == 3
        assert parquet_bloom.dataset(torn.path).to_table().num_rows == 1200
        info = parquet_bloom.inspect(torn.path).files[0]
        assert (info.filters, info.size) == ([], len(torn.old))
        assert parquet_bloom.verify(torn.path).files[0].filters == []
        assert torn.path.read_bytes() == state, "who reads does not write"
        assert torn.journal.exists()


def test_a_cache_of_footers_keeps_no_torn_file(torn: Torn) -> None:
    torn.tear(torn.tail[:100])
    cache = parquet_bloom.FooterCache()
    for _ in range(2):
        assert parquet_bloom.read_table(torn.path, cache=cache).equals(keys_table())


def test_the_next_run_takes_it_back(torn: Torn) -> None:
    for cut in cuts(torn):
        for append in (False, True):
            torn.tear(torn.tail[:cut])
            torn.add(append=append)
            assert torn.path.read_bytes() == torn.new, (cut, append)
            assert leftovers(torn.path.parent) == []
            assert not torn.journal.exists()
        torn.tear(torn.tail[:cut])
        parquet_bloom.remove_filters(torn.path, in_place=True, sync=False)
        assert torn.path.read_bytes() == torn.old
        assert not torn.journal.exists()


def test_a_whole_tail_stays(torn: Torn) -> None:
    torn.tear(torn.tail)
    assert len(parquet_bloom.inspect(torn.path).files[0].filters) == 6, "readers see it"
    torn.add()
    assert torn.path.read_bytes() == torn.new, "nothing was to be done"
    assert not torn.journal.exists()
    torn.tear(torn.tail)
    parquet_bloom.remove_filters(torn.path, in_place=True)
    assert torn.path.read_bytes() == torn.old


def test_output_goes_elsewhere_and_leaves_it(torn: Torn, tmp_path: Path) -> None:
    torn.tear(torn.tail[:1000])
    state = torn.path.read_bytes()
    parquet_bloom.add_filters(torn.path, tmp_path / "out", columns=["id", "name"], placement="tail")
    assert (tmp_path / "out").read_bytes() == torn.new, "made of the file as it was"
    parquet_bloom.remove_filters(torn.path, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == torn.old
    assert torn.path.read_bytes() == state
    assert torn.journal.exists()


def test_a_torn_file_that_is_replaced_takes_its_journal_along(torn: Torn, tmp_path: Path) -> None:
    torn.tear(torn.tail[:1000])
    parquet_bloom.write_table(keys_table(), torn.path, bloom_filters=["id"], overwrite=True)
    assert not torn.journal.exists()
    torn.tear(torn.tail[:1000])
    other = write_keys(tmp_path / "other.parquet")
    parquet_bloom.add_filters(other, torn.path, columns=["id"], overwrite=True)
    assert not torn.journal.exists()
    parquet_bloom.remove_filters(torn.path, in_place=True)
    assert torn.path.read_bytes() == other.read_bytes()


def test_without_locks_nothing_is_appended_and_nothing_taken_back(torn: Torn, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    torn.tear(torn.tail[:1000])
    state = torn.path.read_bytes()
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(StorageError, match="has no locks"):
        torn.add()
    assert torn.path.read_bytes() == state, "another run may be at it"
    torn.journal.unlink()
    torn.path.write_bytes(torn.old)
    with pytest.raises(StorageError, match="without them nothing is appended"):
        torn.add(append=True)
    assert torn.path.read_bytes() == torn.old
    assert leftovers(torn.path.parent) == []
    torn.add()
    assert torn.path.read_bytes() == torn.new, "a new version needs none"


@pytest.mark.parametrize("other", ["append", "replace", "shorten"])
def test_a_program_that_takes_no_lock_is_noticed(torn: Torn, monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    copy = append_module.copy_range

    def meanwhile(source: int, target: int, source_at: int, target_at: int, length: int) -> None:
        copy(source, target, source_at, target_at, length)
        if other == "append":
            os.pwrite(target, b"theirs", os.fstat(target).st_size + 100)
        elif other == "shorten":
            os.truncate(target, 10)
        else:
            new = torn.path.with_name("new")
            new.write_bytes(b"theirs")
            new.replace(torn.path)

    monkeypatch.setattr(append_module, "copy_range", meanwhile)
    with pytest.raises(StorageError):
        torn.add(append=True)
    data = torn.path.read_bytes()
    if other == "append":
        assert data.endswith(b"theirs"), "what they wrote is not cut off"
        assert torn.journal.exists(), "and how the file was is known"
    elif other == "replace":
        assert data == b"theirs"
    else:
        assert data == torn.old[:10]


WRONG: dict[str, tuple[Callable[[Torn], bytes], dict[str, int], str]] = {
    "one other byte": (lambda t: t.tail[:500] + b"?", {}, "from byte .* on they are others"),
    "first byte": (lambda t: b"?", {}, "1 bytes lie behind the old end, and from byte .* on they are others"),
    "more than was to come": (lambda t: t.tail + b"more", {}, r"bytes lie behind the old end, where .* were to come"),
    "other inode": (lambda t: t.tail[:9], {"inode": 1}, "it is of inode 1, the file is inode"),
    "other device": (lambda t: t.tail[:9], {"device": 1}, "it is of inode"),
    "shorter": (lambda t: b"", {"old_size": 10**9}, "the file had 1,000,000,000 bytes before, and has"),
    "other footer": (lambda t: t.tail[:9], {"footer_crc32": 7}, "is not the one that was there"),
    "other checksum": (lambda t: t.tail, {"tail_crc32": 7}, "does not have the checksum"),
}


@pytest.mark.parametrize("name", WRONG)
def test_anything_else_is_an_error_that_says_what_it_saw(torn: Torn, name: str) -> None:
    behind, wrong, said = WRONG[name]
    torn.tear(behind(torn), **wrong)
    state = torn.path.read_bytes()
    for step in (torn.add, lambda: parquet_bloom.remove_filters(torn.path, in_place=True)):
        with pytest.raises(StorageError, match=f"its journal .* does not fit: .*{said}.*nothing was changed"):
            step()
        assert torn.path.read_bytes() == state
        assert torn.journal.exists(), "it is what tells how the file was"


def test_a_damaged_journal_is_an_error(torn: Torn) -> None:
    torn.tear(torn.tail[:100])
    whole = torn.journal.read_bytes()
    for data in (b"", whole[:100], whole.replace(b"old_size", b"new_size"), whole.replace(b'"inode":', b'"inode":1')):
        torn.journal.write_bytes(data)
        with pytest.raises(StorageError, match="it is damaged"):
            torn.add()
        with pytest.raises(ParquetBloomError):
            parquet_bloom.inspect(torn.path)
    torn.journal.write_bytes(whole[:-50])
    torn.tear(torn.tail[:-20])
    torn.journal.write_bytes(torn.journal.read_bytes()[:-50])
    with pytest.raises(StorageError, match="from byte .* on they are others"):
        torn.add()


def test_readers_believe_no_journal_of_another_footer(torn: Torn) -> None:
    torn.tear(torn.tail[:100], footer_crc32=7)
    with pytest.raises(ParquetBloomError, match="an append to it was cut short .* before it is damage"):
        parquet_bloom.inspect(torn.path)


def test_a_journal_is_hidden_and_no_litter(torn: Torn) -> None:
    torn.tear(torn.tail[:100])
    old = torn.journal.stat().st_mtime - 10 * 86_400
    os.utime(torn.journal, (old, old))
    remove_stale(str(torn.path.parent))
    assert torn.journal.exists(), "what clears temporary files up leaves it"
    assert [f.path for f in parquet_bloom.inspect(torn.path.parent).files] == [str(torn.path)]
    assert torn.journal.stat().st_size == HEADER_BYTES + len(torn.tail)


def test_long_names_have_journals_too(tmp_path: Path) -> None:
    for name in ("x" * 240 + ".parquet", "ü" * 100 + ".parquet"):
        path = write_keys(tmp_path / name)
        old = path.read_bytes()
        assert len(os.fsencode(journal_name(name))) <= 255
        parquet_bloom.add_filters(path, in_place=True, columns=["id"], placement="tail", append=True)
        assert path.read_bytes().startswith(old)
        parquet_bloom.remove_filters(path, in_place=True, append=True)
        assert path.read_bytes() == old
    assert journal_name("x" * 240 + "1") != journal_name("x" * 240 + "2")


def test_a_journal_is_as_secret_as_its_file(torn: Torn, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    fsync = os.fsync

    def look(fd: int) -> None:
        if torn.journal.exists():
            seen.append(torn.journal.stat().st_mode & 0o777)
        fsync(fd)

    torn.path.chmod(0o640)
    monkeypatch.setattr(os, "fsync", look)
    torn.add(append=True)
    assert set(seen) == {0o640}


KILLED = """
import os, sys
import parquet_bloom
from parquet_bloom.storage.writing import append

copy = append.copy_range
def killed(source, target, source_at, target_at, length):
    copy(source, target, source_at, target_at, length // 2)
    os.kill(os.getpid(), 9)
append.copy_range = killed
parquet_bloom.add_filters(sys.argv[1], in_place=True, columns=["id", "name"], placement="tail", append=True)
"""


def test_commands_after_a_kill(torn: Torn) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, torn.path], check=False)
    assert done.returncode == -9
    assert len(torn.old) < torn.path.stat().st_size < len(torn.new), "it is torn"
    assert torn.path.read_bytes().startswith(torn.old)
    seen = command("read", torn.path, "--format", "csv")
    assert (seen.returncode, seen.stdout.count("\n")) == (0, 1201), seen.stderr
    assert "no filter" in command("inspect", torn.path).stdout
    with pytest.raises(Exception, match="magic bytes"):
        pq.read_table(torn.path)
    assert command("remove", "--in-place", torn.path).returncode == 0
    assert torn.path.read_bytes() == torn.old
    assert pq.read_table(torn.path).equals(keys_table())
    assert os.listdir(torn.path.parent) == ["keys.parquet"]


def test_two_at_a_time_wait_for_each_other(torn: Torn) -> None:
    """Appends to one file by several processes: each sees a whole file, and tails lie behind one another."""
    add = [
        sys.executable,
        "-m",
        "parquet_bloom",
        "add",
        str(torn.path),
        "--in-place",
        "--placement",
        "tail",
        "--append",
        "--column",
    ]
    running = [subprocess.Popen([*add, column], stdout=subprocess.DEVNULL) for column in ("id", "name", "user.id")]
    assert [one.wait() for one in running] == [0, 0, 0]
    info = parquet_bloom.inspect(torn.path).files[0]
    assert {f.column for f in info.filters} == {"id", "name", "user.id"}
    assert info.older_footers == 3
    parquet_bloom.remove_filters(torn.path, in_place=True, append=True)
    assert torn.path.read_bytes() == torn.old
