"""What each command loads, run as a user runs it: no heavy library that it does without, and no more modules than now.

Python, click, numpy and pyarrow itself are most of the time that a short command takes; what comes on top is counted.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom

SCRIPT = Path(sysconfig.get_path("scripts")) / "parquet-bloom"
HEAVY = {
    "boto3", "deltalake", "duckdb", "fsspec", "lance", "llvmlite", "numba", "pandas", "polars", "pyiceberg", "pyspark",
    "rich", "sqlglot", "yaml",
}  # fmt: skip
# Runs the program's own script, and tells what was loaded when it is done.
TELL = """
import json, runpy, sys
out, *sys.argv = sys.argv[1:]
from parquet_bloom import cli
left = cli.run(sys.argv[1:])
modules = sorted(sys.modules)
with open(out, "w") as file:
    json.dump(modules, file)
sys.exit(left)
"""
ADD = ["add", "plain.parquet", "--output", "new.parquet"]
ARROW = {"pyarrow.compute", "pyarrow.dataset", "pyarrow.fs", "pyarrow.parquet", "ssl"}
# command -> its words, what of ARROW it may load, and how many modules of this package at most
PARQUET = {"pyarrow.fs", "pyarrow.parquet", "ssl"}
COLUMNS = ARROW - {"pyarrow.dataset"}
COMMANDS = {
    "--version": (["--version"], set(), 14),
    "--help": (["--help"], set(), 25),
    "add --help": (["add", "--help"], set(), 15),
    "inspect": (["inspect", "filters.parquet"], set(), 77),
    "inspect --json": (["inspect", "filters.parquet", "--json"], set(), 77),
    "check": (["check", "filters.parquet", "id = 5 AND name IN ('a', 'b')"], set(), 87),
    "check --explain": (["check", "filters.parquet", "id = 5", "--explain"], set(), 87),
    "verify": (["verify", "filters.parquet"], COLUMNS, 83),
    "remove": (["remove", "filters.parquet", "--output", "new.parquet"], PARQUET, 104),
    "add --column": ([*ADD, "--column", "id"], PARQUET, 104),
    "add": (ADD, COLUMNS, 106),
    "add --spec statistics": ([*ADD, "--spec", "statistics", "--column", "*"], COLUMNS, 104),
}
# Modules of others: Python's own and click's; then numpy's 90, pyarrow's 6 and thrift's 10 too; then pyarrow.parquet's.
HELP, FOOTERS, DATA = 137, 267, 318


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    random = np.random.default_rng(1)
    n = 20_000
    table = pa.table(
        {
            "id": random.integers(0, 1 << 60, n),
            "name": [f"{x:x}" for x in random.integers(0, 1 << 60, n)],
            "kind": pa.array([f"{x % 7}" if x % 5 else None for x in range(n)]).dictionary_encode(),
            "share": pa.array(random.random(n).astype(np.float32), mask=np.arange(n) % 9 == 0),
            "at": pa.array(random.integers(0, 1 << 50, n), pa.timestamp("us")),
        }
    )
    pq.write_table(table, folder / "plain.parquet", row_group_size=5000)
    parquet_bloom.add_filters(folder / "plain.parquet", folder / "filters.parquet", columns=["*"])
    return folder


def loaded_by(arguments: list[str], folder: Path, out: Path) -> set[str]:
    (folder / "new.parquet").unlink(missing_ok=True)
    command = [sys.executable, "-c", TELL, str(out), "parquet-bloom", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return set(json.loads(out.read_text()))


def test_a_command_loads_what_it_needs(folder: Path, tmp_path: Path) -> None:
    for name, (arguments, arrow, most) in COMMANDS.items():
        loaded = loaded_by(arguments, folder, tmp_path / "loaded")
        tops = {module.partition(".")[0] for module in loaded}
        assert not tops & HEAVY, f"{name}: these are loaded late, where they are needed"
        if not name.endswith(("--help", "--version")):
            assert {"pyarrow", "numpy"} <= tops, name
            assert not (ARROW - arrow) & loaded, f"{name}: what of pyarrow it does without"
        else:
            assert not {"pyarrow", "numpy", "thrift"} & tops, name
        own = {module for module in loaded if module.startswith("parquet_bloom")}
        assert len(own) <= most, f"{name}: modules of this package: {sorted(own)}"
        others = DATA if arrow else FOOTERS if "pyarrow" in tops else HELP
        assert len(loaded - own) <= others, f"{name}: other modules: {sorted(loaded - own)}"


def test_read_loads_what_pyarrow_s_data_sets_load(folder: Path, tmp_path: Path) -> None:
    loaded = loaded_by(["read", "filters.parquet", "--where", "id = 5"], folder, tmp_path / "loaded")
    tops = {module.partition(".")[0] for module in loaded}
    allowed = {"pandas"} if importlib.util.find_spec("pandas") else set()  # pyarrow.dataset itself takes it
    assert tops & HEAVY <= allowed


@pytest.mark.skipif(not SCRIPT.exists(), reason="the package is not installed here")
def test_the_installed_script_starts_without_pyarrow() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", str(SCRIPT), "--help"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "parquet_bloom.cli" in loaded
    assert not {"pyarrow", "numpy", "sqlglot", "numba"} & loaded


def test_texts_of_predicates_that_need_a_parser_load_it_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    loaded = loaded_by(["check", "filters.parquet", "(id = 5)"], folder, tmp_path / "loaded")
    tops = {module.partition(".")[0] for module in loaded}
    assert tops & HEAVY == {"sqlglot"}
