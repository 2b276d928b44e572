"""A run that is killed at any moment leaves every version of the table readable, and the next run ends the work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.plain_table import PlainTable

from parquet_bloom.edit.add_to_source import add_to_source
from parquet_bloom.edit.changeable import ChangeableTable
from parquet_bloom.edit.plan import Request
from parquet_bloom.edit.remove import RemoveRequest, remove_from_source
from parquet_bloom.edit.table_commit import Committing

TESTS = Path(__file__).resolve().parents[1]
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
# Arguments: folder, way, the point at which to die; torn: between the tail of a file and its last bytes.
PROGRAM = """
import os, signal, sys
from pathlib import Path
import pyarrow as pa
from support.plain_table import PlainTable
from parquet_bloom.edit.plan import Request
from parquet_bloom.edit.add_to_source import add_to_source
from parquet_bloom.edit.table_commit import Committing
from parquet_bloom.edit.changeable import ChangeableTable
from parquet_bloom.output import append

folder, way, point = sys.argv[1:]
table = PlainTable(Path(folder), pa.schema([("id", pa.int64()), ("n", pa.int64())]))

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def progress(p):
    if (point, p.files_done, p.parts_done) in (("in a file", 1, 1), ("after a file", 2, 0)):
        die()

put, copy_range, calls = table.put, append.copy_range, []
def put_and_die(entries):
    if point == "before the commit":
        die()
    put(entries)
    die()

def copy_or_die(*arguments):
    calls.append(arguments)
    return die() if (point, len(calls)) == ("torn", 2) else copy_range(*arguments)

table.put, append.copy_range = put_and_die, copy_or_die
how = Committing("add", way, append=point == "torn")
add_to_source(ChangeableTable(table, how), Request.checked(columns=["id"]), progress)
"""


def kill(table: PlainTable, way: str, point: str) -> None:
    """Let a run begin, and die."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(table.folder), way, point],
        env={"PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}", "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -9, done.stderr


def made(folder: Path) -> PlainTable:
    table = PlainTable(folder, SCHEMA)
    random = np.random.default_rng(0)
    for _ in range(3):
        table.append(pa.table([random.integers(0, 2**60, 2000), np.arange(2000)], schema=SCHEMA), 500)
    return table


@pytest.mark.parametrize(
    ("way", "point"),
    [
        ("new-path", "in a file"),
        ("same-path", "before the commit"),
        *[
            pytest.param(way, point, marks=pytest.mark.more)
            for way, point in (
                ("same-path", "in a file"), ("new-path", "after a file"), ("same-path", "after a file"),
                ("new-path", "before the commit"), ("new-path", "after the commit"), ("same-path", "after the commit"),
            )
        ],
    ],
)  # fmt: skip
def test_killed(tmp_path, way, point):
    table = made(tmp_path / "table")
    rows, named, version = table.rows(), set(table.entries()), table.version
    kill(table, way, point)
    committed = point == "after the commit"
    assert table.version == version + committed
    for at in range(1, table.version + 1):
        assert table.rows(at).num_rows == 2000 * min(at, 3), "every version reads the rows it read"
    add = add_to_source(ChangeableTable(table, Committing("add", way)), Request.checked(columns=["id"]))
    assert len(add.commits) == (0 if committed else 1)
    assert table.rows().sort_by("id") == rows.sort_by("id")
    left = table.files() - named - set(table.entries())
    assert not [name for name in left if name.startswith(".")], "temporary files of the killed run are gone"
    assert all("-bloom-" in name for name in left), "what no version names can be told by its name"
    assert bool(left) == (way == "new-path" and not committed)


@pytest.mark.parametrize(("way", "dry_run"), [("new-path", False), ("same-path", True), ("same-path", False)])
def test_a_torn_file_is_what_the_log_says(tmp_path, way, dry_run):
    table = made(tmp_path / "table")
    add_to_source(ChangeableTable(table, Committing("add", "same-path")), Request.checked(columns=["n"]))
    rows = table.rows()
    kill(table, "same-path", "torn")
    torn = [name for name, size in table.entries().items() if (table.folder / name).stat().st_size > size]
    assert len(torn) == 1
    options = RemoveRequest()
    looked = remove_from_source(ChangeableTable(table, Committing("remove", way, dry_run=True)), options)
    assert (looked.failed, [one.removed for one in looked.files]) == ([], [4] * 3)
    report = add_to_source(
        ChangeableTable(table, Committing("add", way, dry_run=dry_run)), Request.checked(columns=["id"])
    )
    assert report.failed == []
    assert [commit.files for commit in report.commits] == ([] if dry_run else [3])
    assert table.rows() == rows
