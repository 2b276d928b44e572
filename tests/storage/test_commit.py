"""How a new file takes its target's place: attributes, links, locks, errors; never a half file."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.commands import command, error_lines
from support.programs import program
from support.samples import digest, leftovers, write_keys

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import LayoutError, StorageError
from parquet_bloom.output import atomic_file
from parquet_bloom.output import folder as litter
from parquet_bloom.output.folder import Folder
from parquet_bloom.storage import operating_system


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys.parquet")


def add_in_place(path: Path, **options: object) -> None:
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False, **options)


def test_permissions_and_attributes_stay_in_place(keys: Path) -> None:
    keys.chmod(0o640)
    try:
        os.setxattr(keys, "user.origin", b"sensor 7")
    except OSError:
        pytest.skip("this file system keeps no extended attributes")
    add_in_place(keys)
    assert stat.S_IMODE(keys.stat().st_mode) == 0o640
    assert os.getxattr(keys, "user.origin") == b"sensor 7"


def test_an_output_is_no_more_public_than_its_source(keys: Path, tmp_path: Path) -> None:
    keys.chmod(0o400)
    parquet_bloom.add_filters(keys, tmp_path / "out.parquet", columns=["id"], sync=False)
    assert stat.S_IMODE((tmp_path / "out.parquet").stat().st_mode) == 0o600


@pytest.mark.parametrize("system_tells", [True, False])
def test_the_umask_is_asked_without_being_changed(monkeypatch: pytest.MonkeyPatch, system_tells: bool) -> None:
    """By many threads at once: asking by setting, two of them could leave the other's value behind."""
    if system_tells:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("was set"))
        if not Path("/proc/self/status").exists():
            pytest.skip("this system does not tell")
    else:
        monkeypatch.setattr(operating_system, "open", lambda *_, **__: (_ for _ in ()).throw(OSError), raising=False)
    expected = int(subprocess.run(["sh", "-c", "umask"], capture_output=True, check=True, text=True).stdout, 8)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: operating_system.umask(), range(2000)))
    assert found == {expected}
    assert int(subprocess.run(["sh", "-c", "umask"], capture_output=True, check=True, text=True).stdout, 8) == expected


def test_hard_links_need_force(keys: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    os.link(keys, other)
    before = digest(keys)
    with pytest.raises(StorageError, match=r"hard links.*force=True or output"):
        add_in_place(keys)
    assert digest(keys) == before
    add_in_place(keys, force=True)
    assert digest(keys) != before == digest(other)


def test_a_read_only_file_needs_force(keys: Path) -> None:
    keys.chmod(0o444)
    with pytest.raises(StorageError, match=r"read-only.*force=True"):
        add_in_place(keys)
    add_in_place(keys, force=True)
    assert stat.S_IMODE(keys.stat().st_mode) == 0o444


def test_a_stale_hadoop_checksum_goes(keys: Path, tmp_path: Path) -> None:
    """Beside a link too, which stays one while its target changes."""
    (tmp_path / "links").mkdir()
    link, before = tmp_path / "links" / "alias.parquet", digest(keys)
    link.symlink_to(keys)
    both = [keys.with_name(f".{keys.name}.crc"), link.with_name(".alias.parquet.crc")]
    for crc in both:
        crc.write_bytes(b"crc\x00 of the old bytes")
    add_in_place(link)
    assert link.is_symlink()
    assert digest(keys) != before
    assert not any(crc.exists() for crc in both)
    both[0].write_bytes(b"crc\x00 of the old bytes")
    add_in_place(keys, replace=True)
    assert not both[0].exists()


def test_a_folder_that_does_not_reach_the_disk_is_told_as_such(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Folder) -> None:
        raise OSError(errno.EIO, "Input/output error")

    before = digest(keys)
    monkeypatch.setattr(Folder, "sync", fails)
    with pytest.raises(
        StorageError, match=r"has its new version, but fsync of its folder failed \(Input/output error\)"
    ):
        parquet_bloom.add_filters(keys, in_place=True, columns=["id"])
    assert digest(keys) != before
    assert leftovers(keys.parent) == []
    parquet_bloom.remove_filters(keys, in_place=True, sync=False)
    assert digest(keys) == before


def in_memory(fd: int, size: int) -> float:
    """The share of a file that the system has in memory, by looking at a byte of each 64 KiB."""
    looks = range(0, size, 1 << 16)
    found = 0
    for at in looks:
        try:
            found += os.preadv(fd, [bytearray(1)], at, os.RWF_NOWAIT)
        except BlockingIOError:
            pass
        except OSError:
            pytest.skip("this file system does not tell what is in memory")
    return found / len(looks)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system does not tell what is in memory")
@pytest.mark.parametrize("sync", [True, False])
def test_a_new_file_can_leave_memory_once_it_is_on_the_disk(tmp_path: Path, sync: bool) -> None:
    size = 40 << 20
    (tmp_path / "source").write_bytes(os.urandom(1 << 20) * (size >> 20))
    with open(tmp_path / "source", "rb") as source, (tmp_path / "probe").open("wb+") as probe:
        probe.write(bytes(1 << 20))
        probe.flush()
        os.fsync(probe.fileno())
        os.posix_fadvise(probe.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if in_memory(probe.fileno(), 1 << 20):
            pytest.skip("this file system keeps all in memory")
        with atomic_file.AtomicFile(str(tmp_path / "new"), None, overwrite=False, sync=sync, cached=False) as new:
            new.copy_to(0, source.fileno(), 0, size)
            new.at = size
            new.append(b"the end")
            new.commit()
            share = in_memory(new.fd, size)
    assert share < 0.1 if sync else share > 0.9
    assert (tmp_path / "new").read_bytes() == (tmp_path / "source").read_bytes() + b"the end"


def test_an_existing_output_needs_overwrite(keys: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    out.write_bytes(b"precious")
    with pytest.raises(StorageError, match=r"out.parquet: exists.*overwrite=True"):
        parquet_bloom.add_filters(keys, out, columns=["id"])
    assert out.read_bytes() == b"precious"


def test_an_output_that_appears_meanwhile_is_not_replaced(keys: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    with atomic_file.AtomicFile(str(out), str(keys), overwrite=False, sync=False) as new:
        new.append(b"ours")
        out.write_bytes(b"theirs")
        with pytest.raises(StorageError, match="exists"):
            new.commit()
    assert out.read_bytes() == b"theirs"
    assert leftovers(tmp_path) == []


def test_a_source_that_changes_meanwhile_is_not_replaced(keys: Path) -> None:
    def touch(progress: parquet_bloom.Progress) -> None:
        if progress.parts_done:
            with keys.open("ab") as file:
                file.write(b"more")

    with pytest.raises(StorageError, match="changed by another program"):
        add_in_place(keys, progress=touch)
    assert leftovers(keys.parent) == []
    assert keys.read_bytes().endswith(b"more")


def test_an_error_in_the_middle_leaves_nothing(keys: Path) -> None:
    before = digest(keys)

    def fail(progress: parquet_bloom.Progress) -> None:
        if progress.parts_done == 2:
            raise KeyboardInterrupt

    for placement in ("footer", "chunk-start"):
        with pytest.raises(KeyboardInterrupt):
            add_in_place(keys, progress=fail, placement=placement)
        assert digest(keys) == before
        assert leftovers(keys.parent) == []


def test_a_file_that_may_not_grow_fails_cleanly(keys: Path, tmp_path: Path) -> None:
    """RLIMIT_FSIZE fails a write in the middle, as a full disk does."""
    script = f"""
        import resource, signal, sys
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        import parquet_bloom.edit.add  # what is compiled may still be cached
        size = {keys.stat().st_size}
        from parquet_bloom.cli import run
        run(["add", {str(keys)!r}, "-o", {str(tmp_path / "warm.parquet")!r}, "-c", "id"])
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2000, size + 2000))
        sys.exit(run(["add", {str(keys)!r}, "-o", {str(tmp_path / "out.parquet")!r}, "-c", "id"]))
    """
    done = program(script)
    assert done.returncode == 2, done.stderr
    assert error_lines(done.stderr) == 1
    assert "out.parquet: File too large" in done.stderr
    assert not (tmp_path / "out.parquet").exists()
    assert leftovers(tmp_path) == []


def test_a_full_disk_is_noticed_before_the_copy(keys: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48k", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk needs root and mount")
    try:
        with pytest.raises(StorageError, match=r"bytes free, .* are needed"):
            parquet_bloom.add_filters(keys, disk / "out.parquet", columns=["id"])
        assert os.listdir(disk) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_no_permission_in_the_folder(keys: Path) -> None:
    done = command("add", keys, "-o", "/proc/out.parquet", "-c", "id")
    assert (done.returncode, error_lines(done.stderr)) == (2, 1), done.stderr
    assert "/proc/out.parquet" in done.stderr


def test_a_killed_run_leaves_the_file_whole_and_the_next_one_clears_up(keys: Path, tmp_path: Path) -> None:
    script = f"""
        import time
        import parquet_bloom
        def wait(progress):
            if progress.parts_done:
                print("busy", flush=True)
                time.sleep(100)
        parquet_bloom.add_filters({str(keys)!r}, in_place=True, columns=["id"], progress=wait)
    """
    before = digest(keys)
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "busy\n"
    assert len(leftovers(tmp_path)) == 1
    litter.remove_stale(str(tmp_path))
    assert len(leftovers(tmp_path)) == 1, "a file whose process lives is left alone"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert digest(keys) == before
    add_in_place(keys)
    assert leftovers(tmp_path) == [], "the next run removes what the killed one left"
    assert pq.read_metadata(keys).num_row_groups == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupting_the_command_leaves_nothing(keys: Path, tmp_path: Path, number: signal.Signals) -> None:
    big = tmp_path / "in"
    big.mkdir()
    data = write_keys(tmp_path / "one.parquet").read_bytes()
    for i in range(200):
        (big / f"{i}.parquet").write_bytes(data)
    handler = "default_int_handler" if number == signal.SIGINT else "SIG_DFL"
    script = (  # under nohup the signal would be ignored
        f"import signal, sys; signal.signal({int(number)}, signal.{handler});"
        f"from parquet_bloom.cli import main; sys.argv[1:] = ['add', {str(big)!r}, '--in-place']; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and b"parquet_bloom" not in (big / "0.parquet").read_bytes():
        time.sleep(0.02)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.strip() == "parquet-bloom: interrupted; files that were not finished are as they were"
    assert leftovers(big) == []
    for path in big.iterdir():
        pq.read_metadata(path)  # old or new, but whole


def test_control_c_that_a_finaliser_loses_is_still_heeded(keys: Path) -> None:
    script = f"""
        import signal, sys
        from parquet_bloom.cli import main, process
        signal.signal(signal.SIGINT, signal.default_int_handler)  # under nohup it would be ignored
        class Last:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)
        listen = process.listen
        process.listen = lambda: (listen(), Last())
        sys.unraisablehook = lambda lost: print("lost:", lost.exc_type.__name__, file=sys.stderr)
        sys.argv[1:] = ["add", {str(keys)!r}, "--in-place"]
        main()
    """
    before = digest(keys)
    done = program(script)
    interrupted = "parquet-bloom: interrupted; files that were not finished are as they were"
    assert (done.returncode, done.stderr.splitlines()) == (130, ["lost: KeyboardInterrupt", interrupted])
    assert digest(keys) == before


@pytest.mark.parametrize(("pause", "status"), [(0.0, "cleaned up"), (1.5, "")])
def test_a_second_control_c_ends_at_once_when_the_clean_up_takes_long(pause: float, status: str) -> None:
    script = f"""
        import signal, time
        from parquet_bloom.cli import process
        signal.signal(signal.SIGINT, signal.default_int_handler)
        process.listen()
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            time.sleep({pause})
            signal.raise_signal(signal.SIGINT)
            print("cleaned up")
            raise SystemExit(130)
    """
    done = program(script)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (130, status, "")


def test_copies_of_a_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the system's own copy through a buffer; a source that shrinks meanwhile is an error."""
    data = os.urandom(3 << 20)
    (tmp_path / "a").write_bytes(data)
    monkeypatch.delattr(os, "copy_file_range")
    with (tmp_path / "a").open("rb") as source, (tmp_path / "b").open("w+b") as target:
        operating_system.copy_range(source.fileno(), target.fileno(), 1000, 500, len(data) - 1000)
        assert (tmp_path / "b").read_bytes() == bytes(500) + data[1000:]
        with pytest.raises(OSError, match="shorter"):
            operating_system.copy_range(source.fileno(), target.fileno(), 0, 0, len(data) + 100)
        monkeypatch.undo()
        with pytest.raises(OSError, match="shorter"):
            operating_system.copy_range(source.fileno(), target.fileno(), 0, 0, len(data) + 100)


def test_what_does_not_read_back_is_not_committed(keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that the disk garbled: one byte of a filter differs from what was built."""
    before, plain = digest(keys), atomic_file.AtomicFile.write_at

    def garble(self: atomic_file.AtomicFile, at: int, data: bytes) -> None:
        plain(self, at, bytes(data[:-1]) + bytes([data[-1] ^ 1]) if len(data) > 1000 else data)

    monkeypatch.setattr(atomic_file.AtomicFile, "write_at", garble)
    with pytest.raises(LayoutError, match="nothing was changed"):
        add_in_place(keys)
    assert digest(keys) == before
    assert leftovers(keys.parent) == []


def test_rows_that_replace_a_file_are_on_the_disk_before_it_goes(
    keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename that reaches the disk before the bytes would leave nothing of either file after a power cut."""
    out = tmp_path / "rows.csv"
    out.write_text("precious")
    synced: list[tuple[str, str]] = []
    plain = os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda fd: (synced.append((os.readlink(f"/proc/self/fd/{fd}"), out.read_text()[:8])), plain(fd))[1]
    )
    assert run(["read", str(keys), "--where", "id = 5", "-o", str(out), "--overwrite"]) == 0
    assert [(Path(name).suffix, text == "precious") for name, text in synced] == [(".parquet-bloom", True), ("", False)]
    assert synced[-1][0] == str(tmp_path), "the folder last: the name is in it"
