"""A change of rows that is killed: the table is as before or as after, whole, and the same call again completes it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.iceberg_tables import Warehouse
from support.repeats import more_then_slow

import parquet_bloom

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by a signal of Linux")
# Python's own calls on files of the table are counted, and the process is killed at one of them.
CHILD = """
import os, signal, sys
import pyarrow as pa
import parquet_bloom
base, source, last, options = sys.argv[1], sys.argv[2], int(sys.argv[3]), eval(sys.argv[4])
seen = 0
def count(event, arguments):
    global seen
    if event in ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir") and str(arguments[0]).startswith(base):
        seen += 1
        if seen == last:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
rows = pa.table({"id": [5, 12, 99], "v": ["new"] * 3})
parquet_bloom.upsert(source, rows, "id", deletes=[3, 22], index=base + "/index", **options)
print(seen)
"""


def table_at(base: Path, kind: str) -> tuple[str, dict[str, Any]]:
    base.mkdir()
    parts = [pa.table({"id": range(first, first + 10), "v": ["old"] * 10}) for first in (0, 10, 20, 30)]
    options: dict[str, Any] = {}
    if kind == "delta":
        for part in parts:
            write_deltalake(base / "t", part, mode="append")
        source = f"delta:{base}/t"
    else:
        warehouse = Warehouse(base)
        table = warehouse.create(parts[0].schema)
        for part in parts:
            table.append(part)
        source, options = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}
    parquet_bloom.add_filters(source, columns=["id"], **options)
    parquet_bloom.build_index(source, "id", base / "index", **options)
    return source, options


def rows_of(source: str, options: dict[str, Any]) -> dict[int, str]:
    rows = parquet_bloom.read_table(source, **options)
    found = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert len(found) == rows.num_rows, "no key is doubled"
    return found


def run(base: Path, source: str, options: dict[str, Any], last: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", CHILD, str(base), source, str(last), repr(options)]
    return subprocess.run(words, capture_output=True, text=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("part", [0, *more_then_slow(range(1, 8), 2)])
def test_a_kill_at_any_call_leaves_one_of_two_versions(kind: str, part: int, tmp_path: Path) -> None:
    before = dict.fromkeys(range(40), "old")
    after = {**before, 5: "new", 12: "new", 99: "new"}
    del after[3], after[22]
    source, options = table_at(tmp_path / "whole", kind)
    whole = run(tmp_path / "whole", source, options, -1)
    assert whole.returncode == 0, whole.stderr
    calls = int(whole.stdout)
    assert calls > 20
    assert rows_of(source, options) == after
    for last in range(part, calls + 1, 7) if part else [calls * 2 // 3]:
        base = tmp_path / str(last)
        source, options = table_at(base, kind)
        killed = run(base, source, options, last)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        rows = rows_of(source, options)
        assert rows in (before, after)
        if kind == "delta":
            assert DeltaTable(base / "t").to_pyarrow_table().num_rows == len(rows), "deltalake reads it too"
        again = run(base, source, options, -1)
        assert again.returncode == 0, again.stderr
        assert rows_of(source, options) == after
        status = parquet_bloom.status(source, **options)
        assert [(one.column, one.row_groups_lacking) for one in status.columns] == [("id", 0)]
