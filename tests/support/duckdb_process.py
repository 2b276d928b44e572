"""DuckDB 1.5.5 with extensions from PyPI, in a process of its own: newer ones have none there.

An extension fits one release of DuckDB, and not the one that the project has. So PyPI's packages of both are installed
once, into a folder of their own below the system's temporary one, and a process with that folder runs the SQL.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from support.pip_packages import fetched

Asked = Callable[[str], list[list[Any]]]
VERSION = "1.5.5"

# A line asks: the connection's name, what is run when it is made, what when it is let go, and the SQL; None: let it go.
WORKER = """
import glob, importlib, json, os, sys
import duckdb

connections, idle = {}, []

def fresh():
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 1})
    connection.execute("SET enable_progress_bar = false")  # it would be a line of answers
    for name in sys.argv[1:]:
        module = importlib.import_module("duckdb_extension_" + name)
        [path] = glob.glob(os.path.join(os.path.dirname(module.__file__), "extensions", "*", "*.duckdb_extension"))
        connection.execute(f"LOAD '{path}'")
    return connection

def opened(begin):
    connection = idle.pop() if idle else fresh()
    for statement in begin:
        connection.execute(statement)
    return connection

for line in sys.stdin:
    name, begin, end, sql = json.loads(line)
    try:
        rows = []
        if sql is not None:
            if name not in connections:
                connections[name] = opened(begin)
            rows = connections[name].execute(sql).fetchall()
        elif name in connections:
            idle.append(connections.pop(name))
            for statement in end:
                idle[-1].execute(statement)
        answer = {"rows": rows}
    except duckdb.Error as error:
        answer = {"error": str(error)}
        try:
            connections[name].execute("ROLLBACK")
        except (duckdb.Error, KeyError):
            pass
    print(json.dumps(answer, default=str), flush=True)
"""


class DuckDBError(Exception):
    """What DuckDB says is wrong."""


@cache
def packages(*extensions: str, required: str = "") -> Path:
    """The folder of DuckDB and these extensions; skips the test where they cannot be installed.

    required  a variable of the environment: where it is set the test fails instead, as in CI
    """
    wanted = [f"duckdb=={VERSION}", *[f"duckdb-extension-{name}=={VERSION}" for name in extensions], "pytz"]
    return fetched(f"duckdb-{VERSION}-{'-'.join(extensions)}", wanted, required)


class DuckDB:
    """The process, and its connections by name."""

    def __init__(self, folder: Path, extensions: Sequence[str]) -> None:
        command = [sys.executable, "-c", WORKER, *extensions]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        atexit.register(self._process.communicate)  # it ends with its input

    def ask(self, sql: str | None, name: str = "", begin: Sequence[str] = (), end: Sequence[str] = ()) -> list[Any]:
        """The rows of a statement on a connection that `begin` opens; without one `end` lets the connection go."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([name, begin, end, sql]), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise DuckDBError(answer["error"])
        rows: list[Any] = answer["rows"]
        return rows


@cache
def duckdb_with(*extensions: str, required: str = "") -> DuckDB:
    """One process for each set of extensions; skips the test where they cannot be installed."""
    return DuckDB(packages(*extensions, required=required), extensions)
