"""Filters in Delta tables: deltalake, Polars, DataFusion and our own reading give the same rows, at every version."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from delta_tables import random_table
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from samples import open_to_all
from shares import more_then_slow

import parquet_bloom as pb
from parquet_bloom.cli import run
from parquet_bloom.errors import ConflictError, StorageError, TableFormatError

TESTS = Path(__file__).resolve().parents[1]
N = 400


def rows_of(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 2**60, N)
    return pa.table({"id": ids, "name": [f"n{i % 50}" for i in range(N)], "part": [f"p {seed % 2}"] * N})


def made(root: Path, files: int = 3, **options: Any) -> pa.Table:
    for seed in range(files):
        write_deltalake(str(root), rows_of(seed), mode="append", partition_by=["part"], **options)
    return pa.concat_tables(rows_of(seed) for seed in range(files))


def by_id(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["id"], row["name"]))


def by_deltalake(root: Path, version: int | None = None) -> list[dict[str, Any]]:
    return by_id(DeltaTable(str(root), version=version).to_pyarrow_table())


def all_agree(root: Path, rows: list[dict[str, Any]]) -> None:
    assert by_deltalake(root) == rows
    assert by_id(pl.scan_delta(str(root)).collect().to_arrow()) == rows, "Polars trusts the log's sizes"
    query = QueryBuilder().register("t", DeltaTable(str(root))).execute("select * from t")
    assert by_id(pa.table(query.read_all())) == rows, "so does DataFusion"
    assert by_id(pa.Table.from_batches(pb.read_batches(f"delta:{root}"))) == rows


def filtered(root: Path) -> list[set[str]]:
    """The columns with filters of each live file."""
    found = pb.inspect(DeltaTable(str(root)).file_uris(), raw_files=True).files
    return [{one.column for one in file.filters} for file in found]


def unnamed(root: Path) -> set[str]:
    """Files that no version names."""
    named = {os.path.realpath(uri) for v in range(DeltaTable(str(root)).version() + 1)
             for uri in DeltaTable(str(root), version=v).file_uris()}  # fmt: skip
    return {str(path) for path in root.rglob("*.parquet*") if "_delta_log" not in path.parts} - named


@pytest.mark.parametrize("way", [None, pytest.param("new-path", marks=pytest.mark.more)])
def test_rows_stay_and_filters_come(tmp_path: Path, way: Any) -> None:
    rows = by_id(made(tmp_path))
    report = pb.add_filters(f"delta:{tmp_path}", columns=["id"], commit=way)
    assert [(c.version, c.files, c.same_path) for c in report.commits] == [("3", 3, 0)]
    assert filtered(tmp_path) == [{"id"}] * 3
    all_agree(tmp_path, rows)
    assert len(by_deltalake(tmp_path, 1)) == 2 * N, "time travel"
    assert pb.add_filters(f"delta:{tmp_path}", columns=["id"]).commits == []
    removed = pb.remove_filters(f"delta:{tmp_path}")
    assert [commit.version for commit in removed.commits] == ["4"]
    all_agree(tmp_path, rows)
    assert [by_deltalake(tmp_path, v) == rows for v in range(2, 5)] == [True] * 3
    assert unnamed(tmp_path) == set()


def test_files_may_grow_on_their_paths(tmp_path: Path) -> None:
    rows = by_id(made(tmp_path))
    report = pb.add_filters(f"delta:{tmp_path}", columns=["id"], commit="same-path")
    assert [(c.files, c.same_path) for c in report.commits] == [(3, 3)]
    assert filtered(tmp_path) == [{"id"}] * 3
    all_agree(tmp_path, rows)
    assert [by_deltalake(tmp_path, v) == rows for v in (2, 3)] == [True] * 2
    report = pb.remove_filters(f"delta:{tmp_path}", commit="same-path")
    all_agree(tmp_path, rows)
    for version, columns in (("", set()), ("@2", set()), ("@3", {"id"}), ("@4", set())):
        shown = pb.inspect(f"delta:{tmp_path}{version}", assert_filters=["id"]).files
        assert [{one.column for one in file.filters} for file in shown] == [columns] * 3, "what the version names"
        assert [bool(file.lacking) for file in shown] == [not columns] * 3
        checked = pb.verify(f"delta:{tmp_path}{version}").files
        assert [{one.column for one in file.filters} for file in checked] == [columns] * 3
    again = pb.remove_filters(f"delta:{tmp_path}")
    assert (again.commits, [file.removed for file in again.files]) == ([], [0] * 3)
    assert [file.output for file in again.files] == [file.source for file in again.files], "nothing was made"
    assert [by_deltalake(tmp_path, v) == rows for v in (2, 3, 4)] == [True] * 3, "a size that a version names stays"
    assert pb.check(f"delta:{tmp_path}", "id = 17") is not None
    pb.add_filters(f"delta:{tmp_path}", columns=["id"], replace=True)
    table = DeltaTable(str(tmp_path))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    all_agree(tmp_path, rows)


def test_vacuum_takes_old_files_and_what_no_version_names(tmp_path: Path) -> None:
    rows = by_id(made(tmp_path))
    old = set(DeltaTable(str(tmp_path)).file_uris())
    orphan = Path(min(old)).with_name("part-0-bloom-0123456789abcdef0123456789abcdef.parquet")
    orphan.write_bytes(Path(min(old)).read_bytes())  # as a run leaves it that was killed before its commit
    pb.add_filters(f"delta:{tmp_path}", columns=["id"])
    assert orphan.exists(), "nobody of ours removes what another run may be about to commit"
    table = DeltaTable(str(tmp_path))
    gone = table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert {os.path.basename(one) for one in gone} == {os.path.basename(one) for one in {*old, str(orphan)}}
    all_agree(tmp_path, rows)
    assert filtered(tmp_path) == [{"id"}] * 3


def test_checkpoints_and_a_log_that_is_cut_off_before_them(tmp_path: Path) -> None:
    rows = by_id(made(tmp_path))
    DeltaTable(str(tmp_path)).create_checkpoint()
    pb.add_filters(f"delta:{tmp_path}", columns=["id"])
    DeltaTable(str(tmp_path)).create_checkpoint()
    for path in sorted((tmp_path / "_delta_log").glob("*.json"))[:3]:
        path.unlink()
    all_agree(tmp_path, rows)
    pb.remove_filters(f"delta:{tmp_path}")
    all_agree(tmp_path, rows)


def test_streams_and_the_change_feed_see_no_row_twice(tmp_path: Path) -> None:
    for seed in range(3):
        write_deltalake(
            str(tmp_path), rows_of(seed), mode="append", configuration={"delta.enableChangeDataFeed": "true"}
        )
    before = pa.table(DeltaTable(str(tmp_path)).load_cdf(starting_version=0).read_all()).num_rows
    pb.add_filters(f"delta:{tmp_path}", columns=["id"])
    after = pa.table(DeltaTable(str(tmp_path)).load_cdf(starting_version=0).read_all()).num_rows
    assert (before, after) == (3 * N, 3 * N)
    last = max((tmp_path / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for line in last.read_text().splitlines()]
    changes = [action[kind] for action in actions for kind in ("add", "remove") if kind in action]
    assert len(changes) == 6
    assert all(one["dataChange"] is False for one in changes)
    told = next(action["commitInfo"] for action in actions if "commitInfo" in action)
    assert told["parquet-bloom.operation"] == "add"


def test_filters_are_used_by_a_check_of_the_table(tmp_path: Path) -> None:
    made(tmp_path)
    known = rows_of(1)["id"][7].as_py()
    absent = next(i for i in range(known + 1, known + 99))
    before = sum(not one.skipped for one in pb.check(f"delta:{tmp_path}", f"id = {absent}"))
    pb.add_filters(f"delta:{tmp_path}", columns=["id"])
    assert before == 3, "the log's bounds admit it"
    assert sum(not one.skipped for one in pb.check(f"delta:{tmp_path}", f"id = {absent}")) == 0
    found = pa.Table.from_batches(pb.read_batches(f"delta:{tmp_path}", f"id = {known}"))
    assert found["id"].to_pylist() == [known]


def test_a_table_that_cannot_have_new_files_is_refused_whole(tmp_path: Path) -> None:
    made(tmp_path)
    log = tmp_path / "_delta_log" / f"{3:020d}.json"
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["rowTracking"]}
    log.write_text(json.dumps({"protocol": features}) + "\n")
    files = sorted(tmp_path.rglob("*"))
    with pytest.raises(TableFormatError, match="row tracking is on"):
        pb.add_filters(f"delta:{tmp_path}", columns=["id"])
    assert sorted(tmp_path.rglob("*")) == files


# --- others commit while filters are built --------------------------------------------------------


def meanwhile(action: Any) -> Any:
    """A callback that acts once, when the first filter of the second file is built."""
    done: list[int] = []

    def progress(p: pb.Progress) -> None:
        if p.files_done == 1 and p.parts_done and not done:
            done.append(1)
            action()

    return progress


def append(root: Path) -> None:
    write_deltalake(str(root), rows_of(9), mode="append", partition_by=["part"])


def delete(root: Path) -> None:
    DeltaTable(str(root)).delete("name = 'n7'")


def compact(root: Path) -> None:
    DeltaTable(str(root)).optimize.compact()


def vacuum(root: Path) -> None:
    """Of the whole folder: it takes what was built so far."""
    DeltaTable(str(root)).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)


def add_another(root: Path) -> None:
    pb.add_filters(f"delta:{root}", columns=["name"])


@pytest.mark.parametrize("way", ["new-path", pytest.param("same-path", marks=pytest.mark.more)])
@pytest.mark.parametrize("action", [append, delete, compact, vacuum, add_another], ids=lambda one: one.__name__)
def test_another_commit_meanwhile(tmp_path: Path, action: Any, way: Any) -> None:
    made(tmp_path / "ours")
    made(tmp_path / "alone")
    action(tmp_path / "alone")
    report = pb.add_filters(
        f"delta:{tmp_path / 'ours'}", columns=["id"], commit=way, progress=meanwhile(lambda: action(tmp_path / "ours"))
    )
    all_agree(tmp_path / "ours", by_deltalake(tmp_path / "alone"))
    if action is vacuum:  # without any retention it takes temporary files too, while they are written
        assert {type(one.error) for one in report.failed} <= {StorageError, ConflictError}
        pb.add_filters(f"delta:{tmp_path / 'ours'}", columns=["id"])
        all_agree(tmp_path / "ours", by_deltalake(tmp_path / "alone"))
    else:
        assert report.failed == []
    live = filtered(tmp_path / "ours")
    assert sum("id" in columns for columns in live) >= len(live) - (action is append)
    assert unnamed(tmp_path / "ours") == set(), "what was built for files that are gone is gone too"


@pytest.mark.parametrize("seed", more_then_slow(range(12), 3))
def test_random_tables(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    random_table(tmp_path, rng, 8)
    before = {v: DeltaTable(str(tmp_path), version=v).to_pyarrow_table().sort_by("row")
              for v in range(DeltaTable(str(tmp_path)).version() + 1)}  # fmt: skip
    way = rng.choice([None, "same-path", "new-path"])
    report = pb.add_filters(f"delta:{tmp_path}", columns=["*"], commit=way, files_per_commit=rng.choice([None, 1, 2]))
    assert report.failed == []
    pb.verify(f"delta:{tmp_path}")
    after = DeltaTable(str(tmp_path)).to_pyarrow_table().sort_by("row")
    assert after.equals(before[max(before)]) or str(after) == str(before[max(before)])
    for version, rows in before.items():
        assert str(DeltaTable(str(tmp_path), version=version).to_pyarrow_table().sort_by("row")) == str(rows)


# --- as a command ---------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    rows = by_id(made(tmp_path / "events"))
    name = f"delta:{tmp_path / 'events'}"
    assert run(["add", name, "-c", "id", "--dry-run"]) == 0
    said = capfd.readouterr().out
    assert "would add 3 filters" in said
    assert "new-path: 3 files; files of" in said
    assert run(["add", name, "-c", "id", "--files-per-commit", "2"]) == 0
    said = " ".join(capfd.readouterr().out.split())
    assert "committed version 3 of" in said
    assert "committed version 4 of" in said
    assert run(["add", name, "-c", "id"]) == 0
    said = capfd.readouterr().out
    assert re.match(r"3 files, [\d.,]+ (B|KiB): nothing to add, ", said)
    assert "committed" not in said
    assert run(["add", name, "-c", "id", "--in-place"]) == 2
    assert "--in-place is for files; a table's change is its commit" in capfd.readouterr().err
    assert run(["add", str(tmp_path / "events"), "-c", "id", "--in-place"]) == 2
    assert name in capfd.readouterr().err, "the advice names the table"
    assert run(["remove", name, "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert [(one["version"], one["files"], one["same_path"]) for one in told["commits"]] == [("5", 3, 0)]
    assert {file["way"] for file in told["files"]} == {"new-path"}
    all_agree(tmp_path / "events", rows)


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *[pytest.param(one, marks=pytest.mark.more) for one in (signal.SIGINT, signal.SIGKILL)]],
    ids=lambda one: one.name,
)
def test_signals(tmp_path: Path, number: signal.Signals) -> None:
    """A run that is ended leaves the table as it was; only after SIGKILL may a new file stay."""
    for seed in range(20):
        write_deltalake(str(tmp_path), rows_of(seed), mode="append")
    rows = by_deltalake(tmp_path)
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from parquet_bloom.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "add", f"delta:{tmp_path}", "-c", "*"],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent / "src")}, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    while process.poll() is None and len(list(tmp_path.glob("*-bloom-*"))) < 5:
        time.sleep(0.001)
    process.send_signal(number)
    process.communicate()
    assert process.returncode in ({-9} if number == signal.SIGKILL else {128 + number})
    all_agree(tmp_path, rows)
    assert DeltaTable(str(tmp_path)).version() == 19
    left = unnamed(tmp_path)
    assert bool(left) == (number == signal.SIGKILL)
    pb.add_filters(f"delta:{tmp_path}", columns=["id"])
    all_agree(tmp_path, rows)
    assert all("-bloom-" in name for name in unnamed(tmp_path))


FORBIDDEN = """
import os, sys
from parquet_bloom.cli import run
from parquet_bloom.tables.delta import table
name, other = (f"delta:{path}" for path in sys.argv[1:4:2])
# What is imported has to be here before: the other user may not see this folder.
assert run(["add", other, "-c", "id"]) == 0
assert run(["add", f"{other}/none", "-c", "id"]) == 2
if sys.argv[2] == "late":
    table.check_log = lambda folder: None
else:
    access = os.access
    os.access = lambda path, mode: not path.endswith("_delta_log") and access(path, mode)
os.seteuid(65534)
sys.exit(run(["add", name, "-c", "id"]))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else for a moment")
@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("early", "the folder of its log, {0}/_delta_log, may not be written to; nothing was changed"),
        ("late", "deltalake did not commit: Generic LocalFileSystem error: Permission denied (os error 13); nothing"),
    ],
)
def test_a_log_that_may_not_be_written_to(tmp_path: Path, when: str, told: str) -> None:
    root, other = tmp_path / "t", tmp_path / "other"
    made(root)
    made(other)
    for folder in root.glob("part=*"):
        open_to_all(folder)
    before = sorted(root.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-c", FORBIDDEN, root, when, other], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert told.format(root) in done.stderr
    assert sorted(root.rglob("*")) == before
