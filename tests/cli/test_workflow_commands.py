"""Names and values of strangers that GitHub's runners would take for commands: no line of text output is one."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import command

from parquet_bloom.cli import run
from parquet_bloom.report.text import inert

COLUMNS = ("::stop-commands::x", "::error file=x::y", "##[error]z", "  ::warning::w", "a ::notice::v", "a::b")
VALUES = ("::error::stored", "##[group]stored", "two\n::error::lines")
FILE = "::debug::f.parquet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workflow")
    table = pa.table({name: [f"{VALUES[i % 3]}{i}" for i in range(300)] for name in COLUMNS})
    pq.write_table(table, folder / "plain.parquet", row_group_size=100)
    assert run(["add", str(folder / "plain.parquet"), "-o", str(folder / FILE), "-c", "*", "--quiet"]) == 0
    return folder


def printed(folder: Path, *words: str, columns: int | None = None) -> list[str]:
    """The lines of both streams, as a runner reads them: from a pipe."""
    ran = command(*words, cwd=folder, **({} if columns is None else {"COLUMNS": str(columns)}))
    assert "Traceback" not in ran.stderr
    assert "No module" not in ran.stderr
    return [*ran.stdout.splitlines(), *ran.stderr.splitlines()]


def obeyed(lines: list[str]) -> list[str]:
    """Those that a runner takes for commands: "::" behind blanks, and "##[" anywhere."""
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line]


WORDS = [
    ("inspect", FILE), ("inspect", FILE, "--all"), ("inspect", FILE, "--json"), ("verify", FILE), ("advise", FILE),
    ("check", FILE, "\"::error file=x::y\" = '::error::stored0'", "--explain", "--all"),
    ("check", FILE, "\"##[error]z\" = '##[group]stored1'"), ("check", FILE, '"::nowhere::x" = 1'),
    ("read", FILE, "--limit", "3"), ("read", FILE, "--columns", "::stop-commands::x"),
    ("read", FILE, "--format", "ndjson", "--limit", "3"), ("read", FILE, "--format", "json", "--limit", "3"),
    ("add", FILE, "-o", "::out::.parquet", "--overwrite", "--replace", "-c", "*"),
    ("remove", FILE, "--dry-run", "-o", "::gone::.parquet"), ("add", FILE, "--in-place", "-c", "::no::"),
    ("inspect", "::missing::.parquet"), ("inspect", "##[missing].parquet"), ("::error::no such command",),
]  # fmt: skip
WIDTHS = [None, 40, 18]  # columns of the terminal


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.more) for turn in (1, 2))])
def test_no_line_is_a_command(folder: Path, turn: int) -> None:
    """Each command in one width, by turns."""
    for i, words in enumerate(WORDS):
        lines = printed(folder, *words, columns=WIDTHS[(turn - i) % 3])
        assert lines, words
        assert obeyed(lines) == [], words


def test_names_are_still_there_and_json_means_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = "\n".join(printed(folder, "verify", FILE))
    assert "\\x3a:stop-commands::x" in shown
    assert "##\\x5berror]z" in shown
    assert "a::b" in shown
    assert run(["inspect", str(folder / FILE), "--json"]) == 0
    filters = json.loads(capsys.readouterr().out)["files"][0]["filters"]
    assert {one["column"] for one in filters} == set(COLUMNS)


def test_a_command_is_shown_with_an_escape_and_ordinary_lines_stay_as_they_are() -> None:
    for line, shown in (
        *(("::error::x", "\\x3a:error::x"), ("  ::x", "  \\x3a:x"), ("a ##[error]x", "a ##\\x5berror]x")),
        *(("::a ##[b", "\\x3a:a ##\\x5bb"), ("####[x", "####\\x5bx"), (":::x", "\\x3a::x")),
    ):
        assert inert(line) == shown
        assert obeyed([inert(line)]) == []
    for line in ("", "a::b", "x = '##'", "C::D::e", "a ::b", "#[x", ": :x", "[##]", "   text"):
        assert inert(line) == line
