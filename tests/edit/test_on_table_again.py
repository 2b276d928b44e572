"""A second `add` over a table: which files are opened, and that none is passed over which lacks a filter."""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.object_store import ObjectStore, options_of
from support.repeats import first_then_more
from support.table_kinds import KINDS, Delta

import parquet_bloom as pb
from parquet_bloom.cli import run
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.tables.iceberg import opened as opened_table

FILES, NEW, N = 12, 2, 100
BOTH = ["delta", "iceberg"]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The data files that were opened."""
    found: set[str] = set()
    open_file = OpenFile.__init__

    def opening(self: OpenFile, path: Any, *more: Any, **named: Any) -> None:
        if os.fspath(path).endswith(".parquet") and "_delta_log" not in os.fspath(path):
            found.add(os.fspath(path))
        open_file(self, path, *more, **named)

    monkeypatch.setattr(OpenFile, "__init__", opening)
    return found


def made(root: Path, name: str = "delta") -> Any:
    """A table of a kind with two files."""
    table = KINDS[name](root)
    append(table, 0, 1)
    return table


@pytest.fixture
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An empty table of a kind."""
    of_kind = KINDS[request.param](tmp_path)
    yield of_kind
    of_kind.close()


def rows_of(seed: int) -> pa.Table:
    ids = np.random.default_rng(seed).integers(0, 2**60, N)
    return pa.table({"id": ids, "name": [f"n{i % 70}" for i in range(N)]})


def append(table: Any, *seeds: int) -> None:
    for seed in seeds:
        if isinstance(table, Delta):
            write_deltalake(str(table.root), rows_of(seed), mode="append")
        else:
            table.warehouse.load().append(rows_of(seed))


def lacking(table: Any, *columns: str) -> dict[str, int]:
    """What the files themselves show, all of them."""
    files = pb.inspect(table.name, assert_filters=list(columns), **table.options).files
    found = {column: sum(column in file.lacking for file in files) for column in columns}
    return {column: n for column, n in found.items() if n}


@pytest.mark.parametrize("table", BOTH, indirect=True)
def test_only_new_files_are_opened(table: Any, opened: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    append(table, *range(FILES))
    table.add(["id", "name"])
    append(table, *range(FILES, FILES + NEW))
    opened.clear()
    dry = table.add(["id"], dry_run=True)
    assert len(opened) == NEW, "those that are new"
    assert [dry.notes, len(dry.files)] == [
        [f"{FILES} of {FILES + NEW} files were not opened: by the log, the commits of ours that brought them gave them "
         "all of these filters"], FILES + NEW]  # fmt: skip
    opened.clear()
    report = table.add(["id"])
    assert len(opened) == 2 * NEW, "those, and their new versions"
    assert [commit.files for commit in report.commits] == [NEW]
    assert sum(bool(file.filters) for file in report.files) == NEW
    assert {(one.column, one.reason) for file in report.files for one in file.skipped} == {("id", "has a filter")}
    assert lacking(table, "id") == {}
    opened.clear()
    assert table.add(["i*"], files_per_commit=1).commits == []
    assert opened == set()
    options = [word for pair in table.options.get("catalog_properties", {}).items()
               for word in ("--catalog-property", "=".join(pair))]  # fmt: skip
    assert run(["add", table.name, "--column", "id", *options]) == 0
    printed = capsys.readouterr()
    assert re.match(r"14 files, [\d.]+ KiB: nothing to add", printed.out)
    assert "14 of 14 files were not opened" in printed.err


@pytest.mark.parametrize("table", BOTH, indirect=True)
def test_only_new_files_are_opened_where_no_column_is_named(table: Any, opened: set[str]) -> None:
    """The log says what was asked for: of another request, and after `remove`, it promises nothing."""
    append(table, *range(FILES))
    first = table.add(None)
    assert {one.column for file in first.files for one in file.filters} == {"id", "name"}
    append(table, *range(FILES, FILES + NEW))
    opened.clear()
    report = table.add(None)
    assert len(opened) == 2 * NEW, "those, and their new versions"
    assert [commit.files for commit in report.commits] == [NEW]
    assert lacking(table, "id", "name") == {}
    for options in ({"fpp": 0.001}, {"exclude": ["name"]}, {"engine": "duckdb"}, {"max_bytes": 2**20}, {"ndv": 50}):
        opened.clear()
        again = table.add(None, dry_run=True, **options)
        assert len(opened) == FILES + NEW, options
        assert again.notes == []
    opened.clear()
    assert len(table.add(["id"], dry_run=True).files) == FILES + NEW
    assert len(opened) == FILES + NEW, "what was chosen is not what was named"
    table.remove(columns=["id"])
    assert [commit.files for commit in table.add(None).commits] == [FILES + NEW]
    assert lacking(table, "id", "name") == {}


@pytest.mark.parametrize(
    ("table", "options"),
    [("delta", {"columns": ["id", "name"]}), ("iceberg", {"columns": ["id"], "replace": True}), ("delta", {})],
    indirect=["table"],
)
def test_files_are_opened_for_what_the_log_does_not_promise(table: Any, opened: set[str], options: Any) -> None:
    append(table, 0, 1)
    table.add(["id"])
    opened.clear()
    report = table.add(**{"columns": None} | options)
    assert len(opened) >= 2
    assert [commit.files for commit in report.commits] == [2]
    assert report.notes == []


@pytest.mark.parametrize("table", BOTH, indirect=True)
def test_what_was_removed_is_added_again(table: Any) -> None:
    """A tail of a copy is taken off on the same path: Iceberg's entry then is the copy's own."""
    append(table, 0, 1)
    for way in ("same-path", "new-path"):
        table.add(["id"], placement="tail", commit="new-path")
        assert lacking(table, "id") == {}
        table.remove(commit=way)
        assert lacking(table, "id") == {"id": 2}
        report = table.add(["id"], commit="same-path")
        assert [commit.files for commit in report.commits] == [2]
        assert lacking(table, "id") == {}
        table.remove(commit="new-path")


@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_a_column_of_the_same_name_is_another(table: Any, opened: set[str]) -> None:
    append(table, 0, 1)
    warehouse = table.warehouse
    table.add(["id"])
    with warehouse.load().update_schema() as change:
        change.rename_column("id", "old").rename_column("name", "id")
    opened.clear()
    report = table.add(["id"])
    assert [[one.column for one in file.filters] for file in report.files] == [["id"], ["id"]]
    assert lacking(table, "id", "old") == {}
    with warehouse.load().update_schema() as change:
        change.rename_column("id", "new")
    opened.clear()
    assert table.add(["new"]).commits == []
    assert opened == set(), "it is the same column under another name"


@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_names_that_change_while_files_are_worked_on(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Iceberg's commit lands all the same, under a schema in which the names mean other columns."""
    append(table, 0, 1)
    warehouse = table.warehouse
    commit = opened_table.commit

    def late(*arguments: Any) -> str:
        monkeypatch.undo()
        with warehouse.load().update_schema() as change:
            change.rename_column("id", "old").rename_column("name", "id")
        return commit(*arguments)

    monkeypatch.setattr(opened_table, "commit", late)
    assert len(table.add(["id"]).commits) == 1
    assert table.add(["old"]).commits == []
    assert len(table.add(["id"]).commits) == 1
    assert lacking(table, "id", "old") == {}


def test_a_column_that_came_later_is_no_matter(tmp_path: Path, opened: set[str]) -> None:
    table = made(tmp_path)
    table.add(["id"])
    wide = rows_of(2).append_column("more", pa.array([1] * N))
    write_deltalake(str(table.root), wide, mode="append", schema_mode="merge")
    opened.clear()
    assert [commit.files for commit in table.add(["id"]).commits] == [1]
    assert len(opened) == 2, "the new file, and its new version"
    assert table.add(["more"]).notes == []


def test_a_column_of_another_type_is_another(tmp_path: Path, opened: set[str]) -> None:
    table = made(tmp_path)
    table.add(["id"])
    texts = rows_of(2).set_column(0, "id", pa.array([f"{i}" for i in range(N)]))
    write_deltalake(str(table.root), texts, mode="overwrite", schema_mode="overwrite")
    DeltaTable(str(table.root)).create_checkpoint()
    assert pb.status(table.name).columns == [], "that column never had a filter"
    table.add(["id"])
    assert lacking(table, "id") == {}


def test_a_file_that_failed_or_lacks_one_is_opened_again(tmp_path: Path, opened: set[str]) -> None:
    table = made(tmp_path)
    old = DeltaTable(str(table.root)).file_uris()
    whole = Path(old[0]).read_bytes()
    Path(old[0]).write_bytes(whole[:-1] + b"?")
    assert len(table.add(["id"]).failed) == 1
    Path(old[0]).write_bytes(whole)
    opened.clear()
    assert [commit.files for commit in table.add(["id"]).commits] == [1]
    assert len(opened) == 2
    assert lacking(table, "id") == {}


def test_a_log_that_was_cleaned_promises_nothing(tmp_path: Path, opened: set[str]) -> None:
    table = made(tmp_path)
    table.add(["id"])
    DeltaTable(str(table.root)).create_checkpoint()
    for path in sorted((table.root / "_delta_log").glob("*.json"))[:-1]:
        path.unlink()
    opened.clear()
    assert table.add(["id"]).commits == []
    assert len(opened) == 2


@pytest.mark.parametrize("table", ["ducklake"], indirect=True)
def test_a_ducklake_catalog_promises_nothing(table: Any, opened: set[str]) -> None:
    table.append(0)
    table.append(1)
    table.add(["id"])
    opened.clear()
    report = table.add(["id"])
    assert (report.commits, report.notes) == ([], [])
    assert len(opened) == 2


@pytest.mark.parametrize("table", BOTH, indirect=True)
@pytest.mark.parametrize("seed", first_then_more(range(3), 1))
def test_no_file_is_passed_over(table: Any, seed: int) -> None:
    """Random histories of ours and others: after each `add` all files have what was asked for."""
    pick = random.Random(seed)
    table.append(0)
    for step in range(1, 8):
        some = pick.sample(["id", "name"], pick.randint(1, 2))
        what = pick.choice(["append", "delete", "remove", "remove", "tail copies", "add"])
        way = pick.choice(["new-path", "same-path"])
        if what == "append":
            append(table, step)
        elif what == "delete":
            table.delete(f"n{pick.randrange(70)}")
        elif what == "remove":
            table.remove(columns=some)
        elif what == "tail copies":
            table.add(some, placement="tail", commit="new-path")
            whole = pick.choice([{"commit": way}, {"commit": "new-path", "columns": some[:1]}])
            table.remove(**whole)
        if pick.random() < 0.3:
            table.add(None, commit=way)
            with pytest.warns(pb.TableWarning, match="whose log holds file sizes"):  # nothing is written
                by_themselves = pb.add_filters(table.files(), in_place=True, dry_run=True, force=True)
            assert {file.source: file.planned for file in by_themselves.files if file.planned} == {}, (step, what, way)
        report = table.add(some, commit=way)
        assert report.failed == []
        assert lacking(table, *some) == {}, (step, what, way)
        assert pb.status(table.name, columns=some, **table.options).complete


def test_footers_in_a_store_are_read_side_by_side(store: ObjectStore, bucket: str) -> None:
    """Where the log promises nothing; and of a table that is new to us no more than a few are read twice."""

    def written(folder: str, files: int) -> tuple[str, str]:
        """A table of so many files: its URI for deltalake, and for us."""
        rows = pa.concat_tables(rows_of(seed) for seed in range(2))
        rows = rows.append_column("p", pa.array([i % files for i in range(len(rows))]))
        uri = f"s3://{bucket}/{folder}"
        write_deltalake(uri, rows, partition_by=["p"], storage_options=options_of(store))
        return uri, "delta:" + store.uri(f"{bucket}/{folder}")

    files = 80
    _, name = written("new", files)
    store.wire.clear()
    pb.add_filters(name, columns=["id"], dry_run=True)
    footers = [one for one in store.wire.requests if one.kind == "GET" and one.path.endswith(".parquet")]
    assert files <= len(footers) <= files + 64
    files = 20
    uri, name = written("known", files)
    pb.add_filters(name, columns=["id"])
    DeltaTable(uri, storage_options=options_of(store)).create_checkpoint()
    names = [key for key in store.names(bucket) if key.startswith("known/")]
    for key in names:
        if key.endswith("0.json"):
            store.client.delete_object(Bucket=bucket, Key=key)
    log = [key for key in names if key.endswith("1.json")]
    text = store.get(f"{bucket}/{log[0]}").decode().replace("parquet-bloom.complete", "nothing")
    store.put(f"{bucket}/{log[0]}", text.encode())
    at_once, most, changing = 0, 0, threading.Lock()
    store.wire.clear()

    def before(request: Any) -> None:
        nonlocal at_once, most
        if request.path.endswith(".parquet") and "_delta_log" not in request.path:
            with changing:
                at_once += 1
                most = max(most, store.wire._open)
            time.sleep(0.01)  # as a store that is far away: others that are asked meanwhile are counted

    store.wire.before = before
    report = pb.add_filters(name, columns=["id"])
    store.wire.before = None
    assert (report.commits, len(report.files), report.failed) == ([], files, [])
    assert at_once <= 2 * files, "a HEAD and the end of each, once"
    assert most > 4, "side by side"
