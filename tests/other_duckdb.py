"""DuckDB 1.5.5 with extensions from PyPI, in an environment of its own: newer ones have none there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Asked = Callable[[str], list[list[Any]]]
VERSION = "1.5.5"

LOADED = """
import glob, importlib, json, os, sys
import duckdb
connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for extension in sys.argv[1:]:
    folder = os.path.dirname(importlib.import_module(f"duckdb_extension_{extension}").__file__)
    [path] = glob.glob(os.path.join(folder, "extensions", "*", "*.duckdb_extension"))
    connection.execute(f"LOAD '{path}'")
for line in sys.stdin:
    print(json.dumps(connection.execute(json.loads(line)).fetchall()), flush=True)
"""


@pytest.fixture(scope="session")
def delta_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Ask DuckDB with the extension `delta`; skips where pip cannot bring it."""
    yield from asked(tmp_path_factory.mktemp("duckdb"), "delta")


@pytest.fixture(scope="session")
def iceberg_duckdb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """Ask DuckDB with the extension `iceberg`; skips where pip cannot bring it."""
    yield from asked(tmp_path_factory.mktemp("duckdb"), "avro", "iceberg")


def asked(folder: Path, *extensions: str) -> Iterator[Asked]:
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, capture_output=True)
    wanted = [f"duckdb=={VERSION}", *[f"duckdb-extension-{extension}=={VERSION}" for extension in extensions]]
    done = subprocess.run([folder / "bin" / "pip", "install", "--quiet", *wanted], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"pip brings no {wanted}: {done.stderr.strip().splitlines()[-1:]}")
    command = [folder / "bin" / "python", "-c", LOADED, *extensions]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def ask(sql: str) -> list[list[Any]]:
            process.stdin.write(json.dumps(sql) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.stdin.close()
