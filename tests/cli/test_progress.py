"""How far a call is: what the callbacks are told, and what the commands show of it."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from itertools import chain, repeat
from pathlib import Path

import pytest
from support.samples import REPOSITORY, write_keys

import parquet_bloom
from parquet_bloom import Progress
from parquet_bloom.cli import progress as shown
from parquet_bloom.cli.progress import Watch
from parquet_bloom.report.text import cells


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "b", "c"):
        write_keys(tmp_path / f"{name}.parquet")
    return tmp_path


def test_callbacks_count_files_bytes_and_parts(folder: Path) -> None:
    told: list[Progress] = []
    size = sum(p.stat().st_size for p in folder.iterdir())
    calls = {
        "add": lambda: parquet_bloom.add_filters(
            folder, in_place=True, columns=["id", "name"], sync=False, progress=told.append
        ),
        "inspect": lambda: parquet_bloom.inspect(folder, progress=told.append),
        "verify": lambda: parquet_bloom.verify(folder, columns=["id"], progress=told.append),
        "check": lambda: parquet_bloom.check(folder, "id = 5", progress=told.append),
        "remove": lambda: parquet_bloom.remove_filters(folder, in_place=True, sync=False, progress=told.append),
    }
    for name, call in calls.items():
        told.clear()
        call()
        assert (told[-1].files_done, told[-1].files, told[-1].share) == (3, 3, 1.0), name
        assert told[-1].bytes_done == told[-1].bytes
        shares = [p.share for p in told]
        assert shares == sorted(shares), name
        assert {Path(p.path).name for p in told} == {"a.parquet", "b.parquet", "c.parquet"}, name
        assert [p.files_done for p in told if not p.parts_done] == sorted(
            p.files_done for p in told if not p.parts_done
        )
        if name == "add":
            assert [p.parts_done for p in told if p.parts] == [1, 2, 3, 4, 5, 6] * 3
            assert told[0].bytes == size
        assert {p.stage for p in told} == {"search" if name == "check" else "work"}


def test_reading_tells_of_the_search_and_then_of_the_bytes(folder: Path) -> None:
    told: list[Progress] = []
    table = parquet_bloom.read_table(folder, "half_null >= 0 OR half_null IS NULL", progress=told.append)
    assert table.num_rows == 3 * 1200
    assert (told[-1].stage, told[-1].share) == ("work", 1.0)
    assert table.equals(parquet_bloom.read_table(folder))
    assert len(list(parquet_bloom.read_batches(folder, progress=told.append))) >= 3
    assert [p.files_done for p in told if p.stage == "search"] == [1, 2, 3, 1, 2, 3]
    assert (told[-1].stage, told[-1].share, told[-1].files_done) == ("work", 1.0, 3)
    assert told[-1].bytes


def test_an_error_of_the_callback_ends_the_call(folder: Path) -> None:
    def stop(progress: Progress) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        parquet_bloom.verify(folder, progress=stop)


def run_on_terminal(*arguments: object, width: int = 60, output: bool = False, **environment: str) -> tuple[int, bytes]:
    """Run the command with a terminal as stderr, or as stdout too; what it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)], stdout=theirs if output else subprocess.DEVNULL, stderr=theirs,
        cwd=REPOSITORY, env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", **environment},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the other side is closed
    os.close(ours)
    return process.wait(100), seen


SLOW = (  # every file takes half a second
    "import sys, time, warnings, parquet_bloom.cli as cli, parquet_bloom.filters.verify as verify\n"
    "real = verify._verify\n"
    "def slow(*a):\n"
    "    time.sleep(0.5)\n"
    "    return real(*a)\n"
    "verify._verify = slow\n"
    "sys.exit(cli.run(['verify', {!r}]))\n"
)


def test_a_terminal_gets_a_bar_that_goes_away(folder: Path) -> None:
    status, seen = run_on_terminal("-c", SLOW.format(str(folder)))
    assert status == 0
    drawn = seen.decode().split("\r")
    assert any("verify: " in line and " of 3 files, " in line for line in drawn)
    assert any(re.search(r"B/s, 00:0\d left\x1b\[K$", line) for line in drawn), drawn
    assert any("━" in line and "·" in line for line in drawn)
    assert seen.endswith(b"\r\x1b[K")
    assert b"\n" not in seen, "one line"
    assert max(cells(line.removesuffix("\x1b[K")) for line in drawn) < 60


def test_a_line_of_ours_and_the_bar_do_not_mix(folder: Path) -> None:
    script = SLOW.replace("    return real(*a)", "    warnings.warn('of note')\n    return real(*a)")
    _, seen = run_on_terminal("-c", script.format(str(folder)))
    (line,) = [line for line in seen.decode().split("\r") if "of note" in line]
    assert line.removeprefix("\x1b[K") == "parquet-bloom: warning: of note"


def test_rows_fill_a_wide_terminal(folder: Path) -> None:
    status, seen = run_on_terminal("-m", "parquet_bloom", "read", folder, "--limit", "3", width=140, output=True)
    assert status == 0
    lines = seen.decode().splitlines()
    assert 110 < max(map(cells, lines)) <= 140, lines
    assert b"\x1b" not in seen, "no bar, as nothing took long"


def test_a_command_that_ends_soon_shows_nothing(folder: Path) -> None:
    parquet_bloom.add_filters(folder, in_place=True, columns=["id"], sync=False)
    assert run_on_terminal("-m", "parquet_bloom", "inspect", folder / "a.parquet") == (0, b"")
    quiet = [sys.executable, "-m", "parquet_bloom", "remove", str(folder), "--in-place"]
    assert subprocess.run(quiet, capture_output=True, check=True).stderr == b""


def progress_of(done: int, total: int, size: int | None, **more: object) -> Progress:
    whole = None if size is None else size * total
    return Progress("work", done, total, None if size is None else size * done, whole, "x", **more)  # type: ignore[arg-type]


def test_words() -> None:
    for progress, says in (
        (progress_of(120, 3000, 10 << 20), "120 of 3,000 files, 1.2 GiB of 29.3 GiB"),
        (progress_of(1, 2, None), "1 of 2 files"),
        (Progress("work", 0, 1, 512, 2048, "x", 5, 20, "filters"), "5 of 20 filters, 512 B of 2,048 B"),
        (Progress("search", 7, 9, None, None, "x"), "looking, 7 of 9 files"),
    ):
        assert shown.in_words(progress) == says


def test_elsewhere_a_line_comes_at_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown, "_LINE_EVERY", 0.05)
    clock = chain([0, 0], repeat(2))  # two seconds after it began
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(clock))
    written = threading.Event()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            written.set()
            return super().write(text)

    out = Out()
    with Watch("verify", file=out) as watch:
        watch.files(progress_of(1, 4, 1000))
        assert written.wait(10)
    first = out.getvalue().splitlines()[0]
    assert first == "verify: 1 of 4 files, 1,000 B of 4,000 B, 500 B/s, 00:06 left"
    assert "\x1b" not in out.getvalue()
    with Watch("verify", quiet=True, file=out) as watch:
        watch.tell("never shown", 0.5)
    assert "never" not in out.getvalue()


def test_what_a_function_says_is_asked_for_when_it_is_shown() -> None:
    out = io.StringIO()
    watch = Watch("spark add", file=out)
    said = iter([("", None), ("3 of 40 files", 0.1)])
    watch.poll(lambda: next(said))
    watch._draw()
    assert out.getvalue() == "", "it knows nothing yet"
    watch._draw()
    assert out.getvalue() == "spark add: 3 of 40 files\n"
    assert watch._share == 0.1


def test_what_is_left_is_told_of_the_part_of_the_work_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(shown.time, "monotonic", lambda: now)
    out = io.StringIO()
    watch = Watch("report", file=out)

    def line(done: int, at: float) -> str:
        nonlocal now
        now = at
        watch.files(progress_of(done, 4, 1000))
        watch._draw()
        return out.getvalue().splitlines()[-1].rpartition("of 4,000 B")[2]

    assert line(0, 0) == ""
    assert line(0, 3) == ", 00:03", "nothing is done yet: what has passed"
    assert line(2, 4) == ", 500 B/s, 00:04 left"
    assert line(4, 8) == ", finishing"
    assert line(1, 100) == "", "another part begins"
    assert line(2, 102) == ", 1,000 B/s, 00:02 left"
