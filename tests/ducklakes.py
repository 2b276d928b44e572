"""DuckLake itself, for tests: DuckDB with the extension, in a process of its own.

The extension fits one release of DuckDB, and not the one that the project has. So PyPI's packages of both are installed
once, into a folder of their own below the system's temporary one, and a process with that folder runs the SQL.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.formats.operands import operand
from parquet_bloom.tables.fields import leaves_of
from parquet_bloom.tables.snapshot import Field, FileBounds, Snapshot, TableFile

PACKAGES = ("duckdb==1.5.5", "duckdb-extension-ducklake==1.5.5", "duckdb-extension-sqlite-scanner==1.5.5", "pytz")
REQUIRED = "PARQUET_BLOOM_REQUIRE_DUCKLAKE"  # set where a test must not be skipped, as in CI

WORKER = """
import glob, importlib, json, os, sys
import duckdb

connections, idle = {}, []

def fresh():
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": 1})
    for name in ("ducklake", "sqlite_scanner"):
        module = importlib.import_module("duckdb_extension_" + name)
        [path] = glob.glob(os.path.join(os.path.dirname(module.__file__), "extensions", "*", "*.duckdb_extension"))
        connection.execute(f"LOAD '{path}'")
    return connection

def attached(catalog, options):
    connection = idle.pop() if idle else fresh()
    connection.execute(f"ATTACH 'ducklake:{catalog}' AS lake ({options})")
    connection.execute("USE lake")
    return connection

for line in sys.stdin:
    name, catalog, options, sql = json.loads(line)
    try:
        if sql is None:
            if name in connections:
                idle.append(connections.pop(name))
                idle[-1].execute("USE memory")
                idle[-1].execute("DETACH lake")
            rows = []
        else:
            if name not in connections:
                connections[name] = attached(catalog, options)
            rows = connections[name].execute(sql).fetchall()
        answer = {"rows": rows}
    except duckdb.Error as error:
        answer = {"error": str(error)}
        try:
            connections[name].execute("ROLLBACK")
        except (duckdb.Error, KeyError):
            pass
    print(json.dumps(answer, default=str), flush=True)
"""


class DuckLakeError(Exception):
    """What DuckLake says is wrong."""


@cache
def packages() -> Path:
    """The folder of DuckDB's packages; skips the test where they cannot be installed."""
    name = f"parquet-bloom-ducklake-{os.getuid()}-{sys.implementation.cache_tag}-" + "-".join(PACKAGES).replace(
        "==", "_"
    )
    folder = Path(tempfile.gettempdir()) / name
    if folder.is_dir() and folder.stat().st_uid == os.getuid():
        return folder
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        target = Path(scratch) / "packages"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), *PACKAGES]
        done = subprocess.run(pip, capture_output=True, text=True)
        if done.returncode:
            reason = f"DuckLake's packages do not install: {done.stderr.strip().splitlines()[-1:]}"
            assert not os.environ.get(REQUIRED), reason
            pytest.skip(reason)
        with suppress(OSError):  # another process of this run may have been faster
            target.rename(folder)
    return folder


@cache
def _worker() -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(packages())}
    process = subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    atexit.register(_end, process)
    return process


def _end(process: subprocess.Popen[str]) -> None:
    process.communicate()  # it ends with its input


class Lake:
    """A DuckLake: its catalog, its files, and a connection of DuckDB's to it.

    catalog  path of the DuckDB or SQLite file
    """

    def __init__(self, folder: Path, sqlite: bool, *options: str, connection: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.catalog = folder / ("meta.sqlite" if sqlite else "meta.ducklake")
        self.data = folder / "data"
        self._connection = f"{self.catalog}{connection}"
        self._attach = f"sqlite:{self.catalog}" if sqlite else str(self.catalog)
        self._options = ", ".join([f"DATA_PATH '{self.data}/'", *options])

    def _ask(self, sql: str | None) -> list[Any]:
        process = _worker()
        assert process.stdin is not None
        assert process.stdout is not None
        print(json.dumps([self._connection, self._attach, self._options, sql]), file=process.stdin, flush=True)
        answer = json.loads(process.stdout.readline())
        if "error" in answer:
            raise DuckLakeError(answer["error"])
        return answer["rows"]

    def sql(self, *statements: str) -> list[Any]:
        """Run statements; the rows of the last one."""
        rows: list[Any] = []
        for statement in statements:
            rows = self._ask(statement)
        return rows

    def release(self) -> Lake:
        """Close the catalog, so that others may open it; the next statement opens it again."""
        self._ask(None)
        return self

    def name(self, table: str = "main.t") -> str:
        """As our functions name a table of it."""
        return f"{self.catalog}/{table}"

    def answer(self, query: str) -> list[dict[str, Any]]:
        """The rows that DuckLake gives, as pyarrow has them."""
        path = self.folder / "answer.parquet"
        self.sql(f"COPY ({query}) TO '{path}' (FORMAT parquet)")
        return pq.ParquetFile(path).read().to_pylist()

    def snapshots(self) -> list[int]:
        """All that have not expired."""
        return [row[0] for row in self.sql("SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY 1")]


# --- what a snapshot of ours says, read without any of our readers ----------------------------


def stored_rows(snapshot: Snapshot, file: TableFile) -> list[dict[str, Any]]:
    """All rows of a file as rows of the table, deleted ones too."""
    with pq.ParquetFile(file.path if file.is_local else file.filesystem.open_input_file(file.path)) as opened:
        table = opened.read()
    fields = file.fields or snapshot.fields
    inside = list(table.schema)
    columns = {}
    for field in fields:
        found = _found(field, inside, bool(file.fields))
        if found is None and field.name in file.constants:
            columns[field.name] = [file.constants[field.name].as_py()] * table.num_rows
        else:
            values = table.column(inside.index(found)).to_pylist() if found is not None else [None] * table.num_rows
            columns[field.name] = [_value(field, found, value, bool(file.fields)) for value in values]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def live_rows(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The rows of the table."""
    rows = []
    for file in snapshot.files:
        gone = set(file.deletes.positions().tolist()) if file.deletes is not None else set()
        if file.deletes is not None and file.deletes.rows is not None:
            assert file.deletes.rows == len(gone), "counts are taken from this without a look at the deletes"
        stored = stored_rows(snapshot, file)
        assert file.rows == len(stored), "counts are taken from this without a look at the file"
        rows += [row for i, row in enumerate(stored) if i not in gone]
    return rows


def _found(field: Field, inside: list[pa.Field], by_name: bool) -> pa.Field | None:
    if by_name:
        return next((one for one in inside if one.name == (field.physical or field.name)), None)
    return next(
        (one for one in inside if (one.metadata or {}).get(b"PARQUET:field_id") == b"%d" % field.field_id), None
    )


def _value(field: Field, found: pa.Field | None, value: Any, by_name: bool) -> Any:
    if found is None:
        return field.default.as_py() if field.default is not None else None
    if value is None or not field.children:
        return value
    if pa.types.is_struct(field.type):
        pairs = [(child, _found(child, list(found.type), by_name)) for child in field.children]
        return {one.name: _value(one, at, value[at.name] if at is not None else None, by_name) for one, at in pairs}
    if pa.types.is_list(field.type):
        return [_value(field.children[0], found.type.value_field, one, by_name) for one in value]
    key, item = field.children
    return [
        (_value(key, found.type.key_field, k, by_name), _value(item, found.type.item_field, v, by_name))
        for k, v in value
    ]


def sorted_rows(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own; NaN equals NaN, 1.50 equals 1.5."""
    return sorted(repr(_plain(row)) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value.normalize() if isinstance(value, Decimal) else value


def leaf_values(field: Field, value: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Path and value of each leaf in one value of a column; of an empty list nothing."""
    path = (*above, field.name)
    if not field.children:
        yield path, value
    elif pa.types.is_struct(field.type):
        for child in field.children:
            yield from leaf_values(child, value[child.name] if value is not None else None, path)
    elif pa.types.is_list(field.type):
        for one in value or ():
            yield from leaf_values(field.children[0], one, (*path, "list"))
    else:
        for pair in value or ():
            for child, one in zip(field.children, pair, strict=True):
                yield from leaf_values(child, one, (*path, "key_value"))


def unsound(snapshot: Snapshot) -> list[str]:
    """What a snapshot says of a file, and a row of the file denies."""
    leaves = {leaf.path: leaf for leaf in leaves_of(snapshot.fields)}
    wrong = []
    for file in snapshot.files:
        values: dict[tuple[str, ...], list[Any]] = {}
        rows = stored_rows(snapshot, file)
        for row in rows:
            for field in snapshot.fields:
                for path, value in leaf_values(field, row[field.name]):
                    values.setdefault(path, []).append(value)
        for name, constant in file.constants.items():
            if any(row[name] != constant.as_py() for row in rows):
                wrong.append(f"{file}: {name} is not always {constant}")
        for path, bounds in file.bounds.items():
            told = _denied(bounds, values.get(path, []), leaves[path])
            wrong += [f"{file}: {path} {bounds}: {reason}" for reason in told]
        for bucket in file.buckets:
            for value in values[bucket.path]:
                if value is not None and not bucket.admits(leaves[bucket.path], operand(value, leaves[bucket.path])):
                    wrong.append(f"{file}: {bucket} denies {value!r}")
    return wrong


def _denied(bounds: FileBounds, values: list[Any], leaf: Leaf) -> Iterator[str]:
    if bounds.null_count is not None and bounds.null_count != values.count(None):
        yield f"{values.count(None)} NULLs"
    if not bounds.has_values and any(value is not None for value in values):
        yield "there are values"
    for value in values:
        if isinstance(value, float) and value != value:
            if bounds.nan_free:
                yield "there is a NaN"
        elif value is not None and (place := operand(value, leaf)).known:
            if bounds.lower is not None and not bounds.lower <= place.lower:
                yield f"{value!r} is lower"
            if bounds.upper is not None and not bounds.upper >= place.upper:
                yield f"{value!r} is higher"
