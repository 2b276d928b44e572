"""How much commands tell: --quiet, -v, and colours, which only terminals get."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
from pathlib import Path

import pytest
from support.samples import write_keys

import parquet_bloom
from parquet_bloom import cli
from parquet_bloom.report import text

QUIET = {  # command -> status
    "inspect keys.parquet": 0,
    "inspect keys.parquet --assert-filters id": 0,
    "verify keys.parquet --all": 0,
    "check keys.parquet 'id = 5' --explain": 1,
    "check keys.parquet 'id >= 0 AND length(name) > 2'": 0,
    "add keys.parquet -c tags --spec parquet-41 -o more.parquet --no-sync": 0,
    "remove keys.parquet -o without.parquet": 0,
    "advise keys.parquet": 0,
    "engines": 0,
    "report keys.parquet -o report.html": 0,
}


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_keys(tmp_path / "plain.parquet")
    parquet_bloom.add_filters(tmp_path / "plain.parquet", tmp_path / "keys.parquet", columns=["id"], sync=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "keys.parquet"


def test_quiet_says_nothing_but_the_status(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, status in QUIET.items():
        assert cli.run([*shlex.split(line), "--quiet"]) == status, line
        assert capsys.readouterr() == ("", ""), line


def test_quiet_leaves_errors_and_what_programs_read(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["-q", "inspect", "keys.parquet", "nowhere.parquet"]) == 2
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 2)
    assert "nowhere.parquet: no such file" in errors
    assert cli.run(["inspect", "-q", "keys.parquet", "--assert-filters", "name"]) == 1
    assert "name has no sound filter" in capsys.readouterr().err
    assert cli.run(["inspect", "keys.parquet", "-q", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == 1
    assert cli.run(["-q", "read", "keys.parquet", "--limit", "2"]) == 0
    out, errors = capsys.readouterr()
    assert (out.count("\n"), errors) == (4, "")
    assert cli.run(["inspect", "keys.parquet"]) == 0
    assert "keys.parquet" in capsys.readouterr().out, "of one call alone"


def test_verbose_tells_files_and_steps(keys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line, lines in (
        ("-v verify keys.parquet", 1),
        ("verify -vv keys.parquet", 4),
        ("-v verify keys.parquet -v", 4),
        ("verify keys.parquet", 0),
    ):
        assert cli.run(line.split()) == 0
        errors = capsys.readouterr().err.splitlines()
        assert len(errors) == lines, (line, errors)
        assert all(re.match(r"parquet-bloom: (info|debug), \d+\.\d\d s: verify: ", one) for one in errors), line
        assert not lines or errors[-1].endswith("done with keys.parquet, 1 of 1"), line
        assert logging.getLogger("parquet_bloom").level == logging.NOTSET, "as it was"
    assert cli.run(["read", "keys.parquet", "--where", "id = 5", "-v"]) == 0
    assert "row groups" in [line for line in capsys.readouterr().err.splitlines() if ": info, " in line][-1]


def test_only_terminals_that_want_them_get_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    for terminal, environment, takes in (
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": ""}, False),
        (True, {"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        (False, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ):
        file = io.StringIO()
        monkeypatch.setattr(file, "isatty", lambda answer=terminal: answer)
        monkeypatch.setattr(os, "environ", {"TERM": "xterm", **environment})
        painted = text.painted("x", "red", file)
        assert painted == ("\x1b[31mx\x1b[0m" if takes else "x"), (terminal, environment)
