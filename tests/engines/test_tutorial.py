"""docs/tutorial.md: every block runs, in the order of the page, and finds the same lines by every engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.spark_needed import need_spark

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
LINES = "LINES = 5_000_000\n"
ENGINES = ("read_table", "DuckDB", "DataFusion", "Polars", "scan_polars")


def blocks(spark: bool) -> Iterator[tuple[str, str]]:
    """(language, text) of each block that is code; those of Spark only where they are asked for."""
    for part in re.split(r"(?m)^#{2,3} ", PAGE.read_text()):
        if spark or not part.startswith("Spark\n"):
            yield from re.findall(r"```(python|sh)\n(.*?)```", part, re.DOTALL)


def run(folder: Path, lines: str, spark: bool = False) -> tuple[dict[str, Any], str]:
    """What the blocks of Python leave, and what those of the shell printed."""
    names: dict[str, Any] = {}
    printed = ""
    scripts = folder.resolve() / "bin"
    scripts.mkdir()
    command = scripts / "parquet-bloom"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m parquet_bloom "$@"\n')
    command.chmod(0o755)
    for language, text in blocks(spark):
        if language == "python":
            exec(compile(text.replace(LINES, f"LINES = {lines}\n"), "tutorial.md", "exec"), names)
            continue
        env = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "TRACE": names["trace"]}
        done = subprocess.run(["bash", "-euc", text], capture_output=True, text=True, env=env, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        printed += done.stdout + done.stderr
    return names, printed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("polars", "duckdb", "datafusion"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def hold(names: dict[str, Any], printed: str, *engines: str) -> None:
    gains = dict(names["gains"])
    assert len(gains.pop("lines")) == 2, "a request leaves two lines"
    assert tuple(gains) == engines, "each was compared"
    assert sum(not v.skipped for v in names["verdicts"]) <= 3, "one row group has them, and few filters err"
    assert "50 filters" in printed
    assert "\n2 rows; 4" in printed, "of `read`: two rows, and more than forty row groups skipped"


def test_the_page_has_the_number_once() -> None:
    assert PAGE.read_text().count(LINES) == 1
    assert not re.search(r"[A-Z]{4,}_[A-Z]{4,}", re.sub(r"```.*?```", "", PAGE.read_text(), flags=re.DOTALL)), (
        "nothing is left to fill in"
    )
    assert len(list(blocks(True))) == len(list(blocks(False))) + 1


def test_every_block_runs(folder: Path) -> None:
    hold(*run(folder, "50_000"), *ENGINES)


@pytest.mark.spark
def test_every_block_runs_and_spark_s(folder: Path) -> None:
    """In a process of its own: a session that other tests began has their folder, and their settings."""
    need_spark()
    script = (
        "from pathlib import Path; import test_tutorial as page;"
        "page.hold(*page.run(Path(), '50_000', spark=True), *page.ENGINES, 'Spark'); print('held')"
    )
    paths = os.pathsep.join(str(path) for path in (PAGE.parents[1] / "tests", Path(__file__).parent))
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.endswith("held\n"), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_five_million_lines(folder: Path) -> None:
    names, printed = run(folder, "5_000_000")
    hold(names, printed, *ENGINES)
    for name in ("read_table", "DuckDB", "DataFusion", "scan_polars"):
        assert names["gains"][name] > 2, f"{name} gains, whatever else the machine does"
    assert 0.5 < names["gains"]["Polars"] < 2, "and Polars by itself does not"
