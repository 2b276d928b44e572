"""What commands print on real terminals of 80 and 200 columns, and into pipes."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import command

import parquet_bloom
from parquet_bloom.report.text import cells

LONG = "a_very_long_column_name_that_goes_on_and_on_until_nobody_can_read_it_any_more_at_all_really"
DEEP = "nested.level_one.level_two.level_three_has_a_long_name"
GROUPS, WIDE, FULL, WITHOUT = 2000, 4, (77, 1203, 1900), 41
HINT = "  … was cut to fit; a wider terminal or a pipe (| cat) has it whole"


def on_terminal(folder: Path, *words: str, width: int = 80, **environment: str) -> tuple[str, ...]:
    """The lines that a terminal of so many columns gets, of both streams; codes are still in them."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "parquet_bloom", *words], cwd=folder, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            seen += chunk
    except OSError:
        pass  # the other side is closed
    os.close(ours)
    process.wait(100)
    lines = seen.decode().replace("\r\n", "\n").split("\n")
    # A bar that was drawn before a line has gone by then.
    return tuple(left for line in lines if (left := line.rpartition("\r\x1b[K")[2]))


def plain(lines: tuple[str, ...]) -> list[str]:
    return [re.sub(r"\x1b\[\d+m", "", line) for line in lines]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """names.parquet: odd names. large.parquet: 2,000 row groups, three much fuller. many/: 500."""
    folder = tmp_path_factory.mktemp("terminal")
    rng = np.random.default_rng(1)
    rows = range(600)
    names = pa.table(
        {"größe": [f"ä{i}" for i in rows], "漢字の列名": list(rows), LONG: rng.integers(0, 2**62, 600),
         "nested": [{"level_one": {"level_two": {"level_three_has_a_long_name": i}}} for i in rows]}
    )  # fmt: skip
    pq.write_table(names, folder / "plain.parquet", row_group_size=200, use_dictionary=False)
    every = ["*"]
    parquet_bloom.add_filters(folder / "plain.parquet", folder / "names.parquet", columns=every, sync=False)
    columns = [f"column_{i:02}" for i in range(WIDE)]
    filters = {name: {"ndv": 8, "fpp": 0.01} for name in columns}
    schema = pa.schema([(name, pa.int64()) for name in columns])
    with pq.ParquetWriter(
        folder / "large.parquet", schema, use_dictionary=False, bloom_filter_options=filters
    ) as writer:
        for group in range(GROUPS):
            n = 100 if group in FULL else 4
            writer.write_table(pa.table(dict.fromkeys(columns, rng.integers(0, 2**62, n)), schema=schema))
    (folder / "many").mkdir()
    for i in range(500):
        path = folder / "many" / f"part-{i:05}.parquet"
        bloom = {"bloom_filter_options": {"id": {"ndv": 8}}} if i != WITHOUT else {}
        pq.write_table(pa.table({"id": rng.integers(0, 2**62, 4)}), path, use_dictionary=False, **bloom)
    whole = (folder / "names.parquet").read_bytes()
    (folder / "damaged.parquet").write_bytes(whole[: len(whole) // 2])
    return folder


LINES = [
    ("inspect", "names.parquet"),
    ("inspect", "names.parquet", "--all"),
    ("inspect", "large.parquet"),
    ("inspect", "many"),
    ("inspect", "damaged.parquet"),
    ("verify", "names.parquet"),
    ("verify", "many", "--sample", "1"),
    ("check", "large.parquet", "column_02 = 5"),
    ("check", "large.parquet", "column_02 = 4611686018427387", "--explain"),
    ("check", "many", f"id = {2**61}", "--explain"),
    ("read", "names.parquet", "--limit", "3"),
    ("advise", "plain.parquet"),
    ("add", "plain.parquet", "--in-place", "--dry-run", "-c", "*"),
    ("remove", "many", "--in-place", "--dry-run"),
    ("engines",),
]


BOTH = [*((words, 80) for words in LINES), *((words, 200) for words in LINES[:9:3])]


@pytest.mark.parametrize(("words", "width"), BOTH, ids=[f"{' '.join(words)} {width}" for words, width in BOTH])
def test_no_line_is_wider_than_the_terminal(folder: Path, words: tuple[str, ...], width: int) -> None:
    lines = plain(on_terminal(folder, *words, width=width))
    assert 0 < len(lines) < 70, "summed up"
    wide = [line for line in lines if cells(line) > width]
    # A command to paste stays whole, and so does a name in a text.
    assert not [line for line in wide if not line.startswith("  parquet-bloom ") and LONG not in line]


def test_names_are_cut_in_the_middle_and_it_is_said(folder: Path) -> None:
    lines = plain(on_terminal(folder, "inspect", "names.parquet"))
    names = [re.split(r" {2,}", line)[0] for line in lines[-5:-1]]
    assert names == ["größe", "漢字の列名", "a_very_l…more_at_all_really", "nested.l…ee_has_a_long_name"]
    assert lines[-1] == HINT


def test_a_wider_terminal_and_a_pipe_have_them_whole(folder: Path) -> None:
    wide = plain(on_terminal(folder, "inspect", "names.parquet", width=200))
    assert sum(LONG in line for line in wide) == 1
    assert HINT not in wide
    piped = command("inspect", "names.parquet", cwd=folder)
    assert sum(line.startswith((LONG, DEEP)) for line in piped.stdout.splitlines()) == 2
    assert "…" not in piped.stdout
    assert piped.stdout == command("inspect", "names.parquet", cwd=folder, TERM="dumb").stdout, "stable"
    read = command("read", "names.parquet", "--limit", "2", cwd=folder)
    assert LONG in read.stdout
    assert "cut" not in read.stderr


def test_thousands_of_row_groups_are_a_line_a_column_and_the_outliers(folder: Path) -> None:
    lines = plain(on_terminal(folder, "inspect", "large.parquet"))
    table = [line for line in lines if line.startswith("column_")]
    assert [line.split()[0] for line in table] == [f"column_{i:02}" for i in range(WIDE)]
    assert {" ".join(line.split()[1:6]) for line in table} == {f"{GROUPS:,} of {GROUPS:,} 62.5 KiB"}
    text = " ".join(" ".join(lines).split())
    named = re.findall(r"very full: row group (\d+), column_\d+: fpp (\d+) % by (\d+) % of the bits of 32 B", text)
    assert len(named) == 3
    assert {int(group) for group, _, _ in named} <= set(FULL)
    assert f"{3 * WIDE - 3} filters more as full; --all has all" in text


def test_files_that_lack_filters_are_named_and_come_first(folder: Path) -> None:
    lines = plain(on_terminal(folder, "inspect", "many"))
    assert f"  without a filter on id: 1 row group in 1 file, many/part-{WITHOUT:05}.parquet" in lines
    rows = [line for line in lines if line.startswith("many/part")]
    assert rows[0].split() == [f"many/part-{WITHOUT:05}.parquet", "1", "0", "0", "B", "0"]
    assert lines[-1] == "... and 480 files more; --all has all"


def test_many_verdicts_are_a_line_a_reason(folder: Path) -> None:
    done = command("check", "large.parquet", "column_02 = 4611686018427387", "--explain", cwd=folder)
    rows = [re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines()[3:-1]]
    assert sum(int(row[0].replace(",", "")) for row in rows) == GROUPS
    assert {(row[2], row[3]) for row in rows} <= {("skip", "bounds"), ("skip", "filter"), ("read", "-")}
    assert done.stdout.splitlines()[-1] == "a line a row group: check --explain --all"


def test_colours_are_for_terminals_that_take_them(folder: Path) -> None:
    lines = on_terminal(folder, "inspect", "names.parquet")
    assert any(line.startswith("\x1b[1mcolumn ") and line.endswith("\x1b[0m") for line in lines), "headings"
    error, *_ = on_terminal(folder, "inspect", "nowhere.parquet")
    assert error.startswith("\x1b[31mparquet-bloom:\x1b[0m nowhere.parquet: ")
    for words in (("inspect", "names.parquet"), ("inspect", "nowhere.parquet")):
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            assert "\x1b" not in "".join(on_terminal(folder, *words, **environment))
        piped = command(*words, cwd=folder)
        assert "\x1b" not in piped.stdout + piped.stderr


def test_an_error_is_folded_on_terminals_and_one_line_elsewhere(folder: Path) -> None:
    lines = plain(on_terminal(folder, "inspect", "damaged.parquet"))
    assert [line[:8] for line in lines] == ["parquet-", "  no Par", "  hint: ", "    that"], "the error, and a hint"
    piped = command("inspect", "damaged.parquet", cwd=folder, COLUMNS="80").stderr
    assert piped.count("\n") == 2
    assert " ".join(" ".join(lines).split()) == " ".join(piped.split())
