"""An append that was cut short: what readers see, what the next run makes of it, and what is an error."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import disguised_changes
from support.commands import command
from support.samples import keys_table, leftovers, write_keys
from support.torn_append import KILLED, Torn

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError, StorageError
from parquet_bloom.format.journal import HEADER_BYTES, journal_name
from parquet_bloom.output import append as append_module
from parquet_bloom.output import atomic_file as atomic_file_module
from parquet_bloom.output import recovery as recovery_module
from parquet_bloom.output.folder import Folder, remove_stale
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import Handle, Location
from parquet_bloom.storage.store import LocalStore


@pytest.fixture
def torn(tmp_path: Path) -> Torn:
    return Torn(tmp_path)


def cuts(torn: Torn) -> list[int]:
    n = len(torn.tail)
    return [0, 1, 4096, n - 9, n - 8, n - 1]


def meanwhile(patch: pytest.MonkeyPatch, action: Callable[[int, int], object]) -> None:
    """What another program does after each copy of an append: it gets the file's descriptor and the copy's length."""
    copy = append_module.copy_range

    def copied(source: int, target: int, source_at: int, target_at: int, length: int) -> None:
        copy(source, target, source_at, target_at, length)
        action(target, length)

    patch.setattr(append_module, "copy_range", copied)


def test_readers_see_the_old_file(torn: Torn) -> None:
    for cut in cuts(torn):
        torn.tear(torn.tail[:cut])
        state, cache = torn.path.read_bytes(), parquet_bloom.FooterCache()
        assert parquet_bloom.read_table(torn.path).equals(keys_table()), cut
        for _ in range(2):
            assert parquet_bloom.read_table(torn.path, cache=cache).equals(keys_table()), "it keeps no torn file"
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


def test_an_append_that_ends_while_a_reader_looks(torn: Torn, monkeypatch: pytest.MonkeyPatch) -> None:
    look = LocalStore.size_before_append
    for end, filters in ((torn.tail, 6), (b"", 0)):  # all of it came, or it was taken back

        def late(store: LocalStore, at: Location, file: Handle, end: bytes = end) -> tuple[int, int] | None:
            with torn.path.open("r+b") as written:
                written.truncate(len(torn.old))
                written.seek(len(torn.old))
                written.write(end)
            torn.journal.unlink(missing_ok=True)
            return look(store, at, file)

        monkeypatch.setattr(LocalStore, "size_before_append", late)
        torn.tear(torn.tail[:5000])
        assert len(parquet_bloom.inspect(torn.path).files[0].filters) == filters
        torn.tear(torn.tail[:5000])
        assert parquet_bloom.read_table(torn.path).equals(keys_table())
        torn.tear(torn.tail[:5000])
        assert parquet_bloom.read_table(torn.path, "id = 5", cache=parquet_bloom.FooterCache()).num_rows == 0


def test_a_file_that_gets_shorter_before_its_footer_is_read(torn: Torn) -> None:
    torn.path.write_bytes(torn.new)
    with OpenFile(torn.path) as source:
        os.truncate(torn.path, len(torn.old))
        assert source.footer().data == torn.old[-8 - len(source.footer().data) : -8]
        source.check_unchanged()


def test_a_file_that_never_rests_is_an_error(torn: Torn, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def written(*_: object) -> None:
        looks.append(torn.path.write_bytes(b"no footer" * (len(looks) + 2)))

    monkeypatch.setattr(LocalStore, "size_before_append", written)
    written()
    with pytest.raises(ParquetBloomError):
        parquet_bloom.inspect(torn.path)
    assert len(looks) < 30


def test_the_next_run_takes_it_back(torn: Torn) -> None:
    for cut in cuts(torn):
        for append, device in ((False, {}), (True, {}), (False, {"device": 1})):  # the same disk, mounted again
            torn.tear(torn.tail[:cut], **device)
            assert parquet_bloom.read_table(torn.path).equals(keys_table())
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
    """And so does a file that takes a free name."""
    for overwrite, gone in ((True, False), (True, True), (False, True)):
        torn.tear(torn.tail[:1000])
        if gone:
            torn.path.unlink()
        parquet_bloom.write_table(keys_table(), torn.path, bloom_filters=["id"], overwrite=overwrite)
        assert not torn.journal.exists(), (overwrite, gone)
    torn.tear(torn.tail[:1000])
    other = write_keys(tmp_path / "other.parquet")
    parquet_bloom.add_filters(other, torn.path, columns=["id"], overwrite=True)
    assert not torn.journal.exists()
    parquet_bloom.remove_filters(torn.path, in_place=True)
    assert torn.path.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("who", ["append", "replace", "recover"])
def test_the_journal_of_another_append_stays(torn: Torn, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """The file was replaced, the journal went along, and somebody appends to the new file: all in one moment."""
    module = {"append": append_module, "replace": atomic_file_module, "recover": recovery_module}[who]
    remove = module.remove_journal

    def late(folder: Folder, path: str, opened: int) -> bool:
        torn.journal.unlink()
        torn.journal.write_bytes(b"of another one")
        return remove(folder, path, opened)

    if who != "append":
        torn.tear(torn.tail[:1000])
    monkeypatch.setattr(module, "remove_journal", late)
    if who == "replace":
        parquet_bloom.write_table(keys_table(), torn.path, bloom_filters=["id"], overwrite=True)
    elif who == "append":
        torn.add(append=True)
    else:
        with pytest.raises(StorageError, match="it is damaged"):  # the other journal is looked at, and is none
            torn.add()
    assert torn.journal.read_bytes() == b"of another one"


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


def holed(torn: Torn, *holes: tuple[int, int]) -> bytes:
    tail = bytearray(torn.tail)
    for start, stop in holes:
        tail[start:stop] = bytes(len(tail[start:stop]))
    return bytes(tail)


def test_zeros_are_what_a_power_cut_leaves_of_bytes_that_were_to_come(torn: Torn) -> None:
    n = len(torn.tail)
    for behind in (
        bytes(n), bytes(n - 8), bytes(100), holed(torn, (n - 8, n)), holed(torn, (1000, 3000)), holed(torn, (0, 50)),
        holed(torn, (10, 20), (4096, n)), torn.tail[:5000] + bytes(77), holed(torn, (100, 200))[:3000],
    ):  # fmt: skip
        torn.tear(behind)
        if behind[-8:] != torn.tail[-8:]:
            assert parquet_bloom.read_table(torn.path).equals(keys_table())
            assert parquet_bloom.inspect(torn.path).files[0].size == len(torn.old)
        parquet_bloom.remove_filters(torn.path, in_place=True, sync=False)
        assert torn.path.read_bytes() == torn.old
        assert not torn.journal.exists()


def replaced(torn: Torn) -> None:
    new = torn.path.with_name("new")
    new.write_bytes(b"theirs")
    new.replace(torn.path)


VERSION, KEPT = b"THEIRS!!" * 7550, "is not taken back, as another program wrote to it: .*remove the journal"
# What a program does that takes no lock, with the path or by a descriptor; what is there then; what is said.
OTHERS: dict[str, tuple[Callable[[Torn, int], object], Callable[[Torn], bytes], str]] = {
    "some far behind": (lambda _, fd: os.pwrite(fd, b"theirs", os.fstat(fd).st_size + 100),
                        lambda t: t.new[:-8] + bytes(100) + b"theirs", KEPT),
    "a few bytes": (lambda _, fd: os.pwrite(fd, b"log\n", os.fstat(fd).st_size), lambda t: t.new[:-8] + b"log\n", KEPT),
    "rewritten": (lambda t, _: t.path.write_bytes(VERSION), lambda t: VERSION, KEPT),  # the inode stays
    "replaced": (lambda t, _: replaced(t), lambda t: b"theirs", "keys.parquet"),
    "shortened": (lambda _, fd: os.truncate(fd, 10), lambda t: t.old[:10], "keys.parquet"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_another_program_wrote_meanwhile_is_not_cut_off(
    torn: Torn, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert len(torn.old) < len(VERSION) < len(torn.new)
    action, left, said = OTHERS[name]
    meanwhile(monkeypatch, lambda fd, length: length == 8 or action(torn, fd))
    with pytest.raises(StorageError, match=said):
        torn.add(append=True)
    assert torn.path.read_bytes() == left(torn)
    assert said != KEPT or torn.journal.exists(), "how the file was is known"


def test_what_another_program_appends_meanwhile_is_not_written_over(
    torn: Torn, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[int] = []

    def write(_: int, length: int) -> None:
        copies.append(length)
        if len(copies) == 2:
            with torn.path.open("ab") as file:
                file.write(b"THEIR LINE\n")

    monkeypatch.setattr(append_module, "_STEP", 1000)
    meanwhile(monkeypatch, write)
    with pytest.raises(StorageError, match="is not taken back, as another program wrote to it"):
        torn.add(append=True)
    assert copies == [1000, 1000], "nothing is written after it"
    assert torn.path.read_bytes() == torn.new[: len(torn.old) + 2000] + b"THEIR LINE\n"


@pytest.mark.parametrize("whole", [False, True])
def test_a_body_that_got_other_values_meanwhile_stays_as_it_is(torn: Torn, whole: bool) -> None:
    """Between the crash and the next run: inode, size, times and the old footer are as they were."""
    table = pa.table({"id": range(5000), "name": ["n"] * 5000})
    torn.old = disguised_changes.written(table, write_statistics=False)
    new = disguised_changes.written(disguised_changes.replaced(table, "id", 2500, -1), write_statistics=False)
    assert disguised_changes.looks_alike(torn.old, new)
    torn.path.write_bytes(torn.old)
    parquet_bloom.add_filters(torn.path, torn.path.with_name("new"), columns=["id"], placement="tail", sync=False)
    torn.tail = torn.path.with_name("new").read_bytes()[len(torn.old) :]
    behind = torn.tail if whole else torn.tail[:1000]
    torn.tear(behind)
    disguised_changes.in_place(torn.path, new + behind)
    if whole:
        parquet_bloom.remove_filters(torn.path, in_place=True, sync=False)
        assert torn.path.read_bytes() == new
    else:
        torn.add()
        assert torn.path.read_bytes()[: len(new)] == new
        assert {one.status for one in parquet_bloom.verify(torn.path).files[0].filters} == {"right"}
    assert not torn.journal.exists()
    assert parquet_bloom.read_table(torn.path, "id = -1").num_rows == 1


WRONG: dict[str, tuple[Callable[[Torn], bytes], dict[str, int], str]] = {
    "one other byte": (lambda t: t.tail[:500] + b"?", {}, "from byte .* on they are others"),
    "first byte": (lambda t: b"?", {}, "1 bytes lie behind the old end, and from byte .* on they are others"),
    "zeros and another byte": (lambda t: bytes(300) + b"?", {}, "301 bytes lie behind .* and from byte .* on they are"),
    "zeros, then another program's": (lambda t: holed(t, (10, 50))[:400] + b"theirs", {}, "and from byte .* on they"),
    "more zeros than were to come": (lambda t: bytes(len(t.tail) + 1), {}, "bytes lie behind the old end, where"),
    "more than was to come": (lambda t: t.tail + b"more", {}, r"bytes lie behind the old end, where .* were to come"),
    "other inode": (lambda t: t.tail[:9], {"inode": 1}, "it is of inode 1, the file is inode"),
    "shorter": (lambda t: b"", {"old_size": 10**9}, "the file had 1,000,000,000 bytes before, and has"),
    "other footer": (lambda t: t.tail[:9], {"footer_crc32": 7}, "is not the one that was there"),
    "other checksum": (lambda t: t.tail, {"tail_crc32": 7}, "does not have the checksum"),
}


def test_anything_else_is_an_error_that_says_what_it_saw(torn: Torn) -> None:
    for name, (behind, wrong, said) in WRONG.items():
        torn.tear(behind(torn), **wrong)
        state = torn.path.read_bytes()
        for step in (torn.add, lambda: parquet_bloom.remove_filters(torn.path, in_place=True)):
            with pytest.raises(StorageError, match=f"its journal .* does not fit: .*{said}.*nothing was changed"):
                step()
            assert torn.path.read_bytes() == state, name
            assert torn.journal.exists(), "it is what tells how the file was"


def test_a_journal_of_a_file_that_was_replaced_by_a_whole_one_is_litter(torn: Torn, tmp_path: Path) -> None:
    for append in (False, True):
        torn.tear(torn.tail[:1000])
        other = write_keys(tmp_path / "other.parquet")
        other.replace(torn.path)  # another program, which knows of no journals
        assert parquet_bloom.read_table(torn.path).equals(keys_table())
        torn.add(append=append)
        assert torn.path.read_bytes() == torn.new
        assert not torn.journal.exists()


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


def test_a_file_that_is_mounted_by_itself_is_not_appended_to(torn: Torn, tmp_path: Path) -> None:
    mounted = tmp_path / "container" / "keys.parquet"
    mounted.parent.mkdir()
    mounted.touch()
    done = subprocess.run(["mount", "--bind", torn.path, mounted], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"files cannot be mounted here: {done.stderr.strip()}")
    try:
        with pytest.raises(StorageError, match="is mounted by itself"):
            parquet_bloom.add_filters(mounted, in_place=True, columns=["id"], placement="tail", append=True)
        assert mounted.read_bytes() == torn.old
        assert os.listdir(mounted.parent) == ["keys.parquet"]
    finally:
        subprocess.run(["umount", mounted], check=True)


def test_a_journal_whose_folder_cannot_be_synced_is_taken_back(torn: Torn, monkeypatch: pytest.MonkeyPatch) -> None:
    sync, failed = Folder.sync, []

    def fails_once(folder: Folder) -> None:
        if not failed:
            failed.append(folder)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(folder)

    monkeypatch.setattr(Folder, "sync", fails_once)
    with pytest.raises(StorageError, match="nothing was changed, its journal cannot be written: .*Input/output error"):
        torn.add(append=True)
    assert torn.path.read_bytes() == torn.old
    assert os.listdir(torn.path.parent) == ["keys.parquet"]


def test_an_append_that_fails_is_taken_back_at_once(torn: Torn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails when the file has most of its new bytes: the call that met it leaves the old file."""
    fsync, data, grown, modes = os.fsync, torn.path.stat(), [], set()

    def fails_once(fd: int) -> None:
        modes.update([torn.journal.stat().st_mode & 0o777] if torn.journal.exists() else [])
        if not grown and os.path.samestat(os.fstat(fd), data):
            grown.append(torn.path.stat().st_size)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(fd)

    torn.path.chmod(0o640)
    monkeypatch.setattr(os, "fsync", fails_once)
    with pytest.raises(StorageError, match="Input/output error"):
        torn.add(append=True)
    assert len(torn.old) < grown[0] < len(torn.new)
    assert torn.path.read_bytes() == torn.old
    assert os.listdir(torn.path.parent) == ["keys.parquet"]
    assert modes == {0o640}, "its journal was as secret as the file"


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


def test_an_interrupt_while_a_file_gets_shorter_brings_no_old_checksum_back(
    torn: Torn, monkeypatch: pytest.MonkeyPatch
) -> None:
    torn.add(append=True)
    checksum = torn.path.with_name(".keys.parquet.crc")
    checksum.write_bytes(b"sums of the longer file")
    truncate = os.truncate

    def interrupted(fd: int, size: int) -> None:
        truncate(fd, size)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(os, "truncate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        parquet_bloom.remove_filters(torn.path, in_place=True, append=True)
    assert torn.path.read_bytes() == torn.old
    assert not checksum.exists()
    assert leftovers(torn.path.parent) == []


def test_two_at_a_time_wait_for_each_other(torn: Torn) -> None:
    """Appends to one file by several processes: each sees a whole file, and tails lie behind one another."""
    add = [sys.executable, "-m", "parquet_bloom", "add", torn.path, "--in-place", "--placement", "tail", "--append"]
    columns = ("id", "name", "user.id")
    running = [subprocess.Popen([*add, "--column", column], stdout=subprocess.DEVNULL) for column in columns]
    assert [one.wait() for one in running] == [0, 0, 0]
    info = parquet_bloom.inspect(torn.path).files[0]
    assert {f.column for f in info.filters} == {"id", "name", "user.id"}
    assert info.older_footers == 3
    parquet_bloom.remove_filters(torn.path, in_place=True, append=True)
    assert torn.path.read_bytes() == torn.old
