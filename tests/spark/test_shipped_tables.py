"""What executors get of a table gives what the table gives: random tables and predicates, without Spark."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support.evolving_tables import a_tree, evolved
from support.repeats import first_then_more, more_then_slow

import parquet_bloom
from parquet_bloom.predicates.outcomes import ANY
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import as_predicate
from parquet_bloom.source.snapshot import Field, FileBounds, Snapshot, TableFile
from parquet_bloom.spark import jobs
from parquet_bloom.spark.work import SentFiles, SentSearch, by_log, receive, send, send_table, sent_file
from parquet_bloom.storage.open_file import OpenFile


def shipped(
    snapshot: Snapshot, files: list[tuple[TableFile, int]], schema: pa.Schema, rows_of: Callable[..., Any]
) -> list[dict[str, Any]]:
    """The rows of the schema that tasks of two files each give."""
    opener = pickle.loads(pickle.dumps(SentFiles(send_table(snapshot))))
    parts = [{"file": send(sent_file(file, outcome), snapshot)} for file, outcome in files]
    found: list[dict[str, Any]] = []
    for at in range(0, len(parts), 2):
        rows = list(jobs.rows_of_task(iter(parts[at : at + 2]), opener, rows_of, 2))
        found += pa.RecordBatch.from_pylist(rows, schema).to_pylist()
    return found


def searched(snapshot: Snapshot, predicate: Any, schema: pa.Schema, rows_of: Any) -> tuple[list[Any], list[Any]]:
    """The rows of files that the log leaves, and the other files."""
    tree, options = as_predicate(predicate), Options("largest")
    left, excluded = by_log(snapshot, tree, options)
    search = partial(jobs.search_rows, asked=SentSearch(tree, options), rows_of=rows_of)
    return shipped(snapshot, left, schema, search), excluded


def check_table(seed: int, folder: Path, predicates: int) -> None:
    table = evolved(seed, folder)
    snapshot: Any = table.snapshot()
    for file in snapshot.files:
        parquet_bloom.add_filters(file.path, in_place=True, sync=False)
    rng = Random(seed)
    for nth in range(predicates):
        tree = a_tree(table, rng)
        local = parquet_bloom.check(snapshot, tree, nan="largest")
        wanted = [{**one._asdict(), "outcome": one.outcome.names, "error": None, "row_groups": None} for one in local]
        found, excluded = searched(snapshot, tree, jobs.CHECKED, jobs.verdict_rows)
        assert found == wanted, f"seed {seed}, predicate {nth}: {tree}"
        assert [one.path for one in excluded] == [one.path for one in local.excluded]
        found, _ = searched(snapshot, tree, jobs.PRUNED, jobs.kept_rows)
        left = {
            v.path: [w.row_group for w in local if w.path == v.path and not w.skipped] for v in local if not v.skipped
        }
        assert {row["path"]: row["row_groups"] for row in found} == left, f"seed {seed}, predicate {nth}: {tree}"
        deleted = {str(file) for file in snapshot.files if file.deletes is not None}
        assert {row["path"] for row in found if row["has_deletes"]} == deleted & set(left)
    for schema, function in ((jobs.INSPECTED, parquet_bloom.inspect), (jobs.VERIFIED, parquet_bloom.verify)):
        files = [(file, ANY) for file in snapshot.files]
        found = shipped(snapshot, files, schema, partial(jobs.filter_rows, function=function, schema=schema))
        there = [(one.path, f.row_group, f.column) for one in function(snapshot).files for f in one.filters]
        assert [(row["path"], row["row_group"], row["column"]) for row in found] == there, seed


@pytest.mark.parametrize("seed", first_then_more(range(6), 2))
def test_executors_say_of_a_table_that_changed_what_one_machine_says(seed: int, tmp_path: Path) -> None:
    check_table(seed, tmp_path, 8)


@pytest.mark.parametrize("seed", more_then_slow(range(1000, 1200), 3))
def test_executors_say_so_of_many_tables_that_changed(seed: int, tmp_path: Path) -> None:
    check_table(seed, tmp_path, 30)


def test_the_log_excludes_files_and_vouches_for_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": pa.array(range(10, 20), pa.int64())}), path, write_statistics=False)
    file = TableFile(str(path), bounds={("n",): FileBounds(10, 19, 0)})
    snapshot: Any = Snapshot("delta:made", "0", (Field("n", pa.int64()),), False, [file])
    [[found], _] = searched(snapshot, "n > 5", jobs.CHECKED, jobs.verdict_rows)
    [local] = parquet_bloom.check(snapshot, "n > 5", nan="largest")
    everything = ["TRUE", "FALSE", "NULL"]
    assert found["outcome"] == local.outcome.names == everything, "the file has no bounds of its own to vouch for rows"
    found, excluded = searched(snapshot, "n > 19", jobs.CHECKED, jobs.verdict_rows)
    assert (found, len(excluded)) == ([], 1)


def test_the_file_system_of_a_table_travels_once(tmp_path: Path) -> None:
    there = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    (tmp_path / "a.bin").write_bytes(b"far away")
    files = [TableFile("a.bin", there, "x://a.bin"), TableFile("a.bin", there, "x://a.bin")]
    snapshot = Snapshot("delta:x://", "0", (Field("id", pa.int64()),), False, list(files), {}, there)
    parts = [send(sent_file(file, ANY), snapshot) for file in files]
    assert all(str(tmp_path).encode() not in data for data in parts), "each file's bytes name no file system"
    table = pickle.loads(send_table(snapshot))
    got = [receive(data, table).file for data in parts]
    assert got[0].filesystem is got[1].filesystem is table.filesystem
    with OpenFile(got[0]) as source:
        assert (source.path, source.read(0, 8)) == ("x://a.bin", b"far away")


def test_a_relative_path_is_one_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = TableFile("lake/a.parquet")
    snapshot = Snapshot("delta:lake", "0", (Field("id", pa.int64()),), False, [file])
    got = receive(send(sent_file(file, ANY), snapshot), snapshot).file
    assert (os.fspath(got), str(got)) == (str(tmp_path / "lake/a.parquet"), "lake/a.parquet")
