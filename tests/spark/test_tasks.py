"""What a Spark task does with its small files, two at a time; no Spark is needed for it."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import disguised_changes
from support.samples import leftovers, write_keys

import parquet_bloom
from parquet_bloom.edit.plan import Request
from parquet_bloom.output.target import Writing
from parquet_bloom.spark import tasks
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage import version_token
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import arrow_filesystem

REQUEST = Request.checked(columns=["id"], sync=False, in_place=True, cached=False, threads=1)


def rows(folder: Path) -> Iterator[tasks.Row]:
    for path in sorted(folder.iterdir()):
        yield {"path": str(path), "root": str(folder), "size": path.stat().st_size, "kind": "file", "error": None}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for i in range(9):
        write_keys(tmp_path / "in" / f"{i}.parquet")
    (tmp_path / "in" / "4.parquet").write_bytes(b"no Parquet")
    return tmp_path / "in"


def test_rows_come_in_their_order_whatever_is_ready_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_file, begun, most = tasks.add_file, threading.Semaphore(0), [0, 0]
    lock = threading.Lock()

    def slow_for_even(found: Any, *rest: Any) -> Any:
        with lock:
            most[0] += 1
            most[1] = max(most)
        try:
            if int(Path(str(found)).stem) % 2 == 0:
                begun.acquire(timeout=0.5)  # until the file behind it is done
            else:
                begun.release()
            return add_file(found, *rest)
        finally:
            with lock:
                most[0] -= 1

    monkeypatch.setattr(tasks, "add_file", slow_for_even)
    listing = list(rows(folder))
    listing.insert(3, {"path": "/lost", "root": "", "size": 0, "kind": "failed", "error": "/lost: no such folder"})
    made = list(tasks.add(iter(listing), tasks.Job(Storages(), REQUEST)))
    assert [row["path"] for row in made] == [row["path"] for row in listing]
    failed = {row["path"]: row["error"] for row in made if row["status"] == "failed"}
    assert set(failed) == {"/lost", str(folder / "4.parquet")}
    assert failed["/lost"] == "/lost: no such folder"
    assert most[1] == 2
    again = list(tasks.add(rows(folder), tasks.Job(Storages(), REQUEST)))
    assert [row["status"] for row in again] == ["unchanged"] * 4 + ["failed"] + ["unchanged"] * 4
    assert leftovers(folder) == []


def test_a_task_that_is_given_up_leaves_whole_files(folder: Path) -> None:
    working = tasks.add(rows(folder), tasks.Job(Storages(), REQUEST))
    assert next(working)["status"] == "done"
    working.close()  # type: ignore[attr-defined]
    assert leftovers(folder) == []
    for path in folder.iterdir():
        if path.name != "4.parquet":
            assert pq.read_table(path).num_rows > 0
            found = parquet_bloom.verify(path).files[0].filters
            assert {one.status for one in found} <= {"right"}
    statuses = {row["status"] for row in tasks.add(rows(folder), tasks.Job(Storages(), REQUEST))}
    assert statuses == {"done", "unchanged", "failed"}


# --- a large file that is shared out -------------------------------------------------------------------

PLANTED = 123456789012345678


@dataclasses.dataclass(frozen=True)
class AnyJob(tasks.Job):
    """A job over files of a file system that is no Spark's; None: the local one."""

    filesystem: Any = None

    def data_file(self, row: tasks.Row) -> DataFile:
        return DataFile(row["path"], self.filesystem, row["path"])


def two_versions() -> tuple[bytes, bytes]:
    table = pa.table({"id": np.random.default_rng(7).integers(0, 1 << 60, 5000)})
    old, new = (
        disguised_changes.written(one, write_statistics=False, row_group_size=2000)
        for one in (table, disguised_changes.replaced(table, "id", 2500, PLANTED))
    )
    assert disguised_changes.looks_alike(old, new)
    return old, new


def filters_of(
    path: str, job: AnyJob, rewrite: Callable[[], None], expected: int = 3, swapped: bool = False
) -> tasks.Row:
    """What becomes of a file that is rewritten when its filters are on their way; the row of the report.

    swapped  the first two filters come in the wrong order
    """
    listed = {"path": path, "root": "", "size": 0, "kind": "file", "error": None}
    cut = list(tasks.cut(iter([listed]), job))
    units = [row for row in cut if row["place"] != tasks.HEADER]
    filters = list(tasks.build_units(iter(units), job))
    assert [row["error"] for row in filters] == [None] * expected
    if swapped:
        filters[:2] = reversed(filters[:2])
    headers = [{**row, "version_token": None, "chunk_crc": None} for row in cut if row["place"] == tasks.HEADER]
    rewrite()
    [made] = tasks.assemble(iter([*headers, *filters]), job)
    return made


@pytest.mark.parametrize("rewrite", disguised_changes.REWRITES)
@pytest.mark.parametrize("proof", ["token", "checksums"])
def test_filters_of_other_bytes_are_never_put_in(
    proof: str, rewrite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin of the task that meets the conflict builds its filters anew."""
    if proof == "checksums":  # as on a network file system, which executors share
        monkeypatch.setattr(version_token, "_KEEP_CTIME", set())
    old, new = two_versions()
    path = tmp_path / "a.parquet"
    path.write_bytes(old)
    made = filters_of(str(path), AnyJob(Storages(), REQUEST), lambda: disguised_changes.REWRITES[rewrite](path, new))
    assert (made["status"], made["filters"], made["error"]) == ("done", 3, None)
    assert {one.status for one in parquet_bloom.verify(path).files[0].filters} == {"right"}
    assert parquet_bloom.read_table(path, f"id = {PLANTED}").num_rows == 1


@pytest.mark.parametrize("rewritten", [True, False])
def test_filters_of_a_store_that_tells_no_version(rewritten: bool, tmp_path: Path) -> None:
    """fsspec's memory tells a time of creation, and nothing of the bytes."""
    old, new = two_versions()
    memory, path = fsspec.filesystem("memory"), "/shared/a.parquet"
    memory.pipe_file(path, old)

    def rewrite() -> None:
        if rewritten:
            memory.store[path].seek(0)
            memory.store[path].write(new)

    try:
        filesystem = arrow_filesystem(memory)
        made = filters_of(path, AnyJob(Storages(), REQUEST, None, filesystem), rewrite)
        assert (made["status"], made["error"]) == ("done", None)
        (tmp_path / "a.parquet").write_bytes(memory.cat_file(path))
        assert {one.status for one in parquet_bloom.verify(tmp_path / "a.parquet").files[0].filters} == {"right"}
        assert parquet_bloom.read_table(tmp_path / "a.parquet", f"id = {PLANTED}").num_rows == int(rewritten)
    finally:
        memory.rm(path)


def test_every_filter_is_in_one_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_UNIT_FILTERS", 2)
    table = pa.table({name: np.random.default_rng(7).integers(0, 1 << 60, 700) for name in ("id", "other")})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=100)
    request = dataclasses.replace(REQUEST, columns=("id", "other"))
    before = path.read_bytes()
    made = filters_of(str(path), AnyJob(Storages(), request), lambda: None, 14, swapped=True)
    assert (made["status"], path.read_bytes()) == ("failed", before), "a filter is never that of another chunk"
    made = filters_of(str(path), AnyJob(Storages(), request), lambda: None, 14)
    assert (made["status"], made["filters"], made["error"]) == ("done", 14, None)
    assert [one.status for one in parquet_bloom.verify(path).files[0].filters] == ["right"] * 14


def test_an_output_that_is_there_counts_only_if_it_is_whole_and_of_this_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    listed = [row for row in rows(folder) if row["path"].endswith(("0.parquet", "1.parquet"))]

    def job(*columns: str) -> tasks.Job:
        return tasks.Job(Storages(), dataclasses.replace(REQUEST, columns=columns, how=Writing(sync=False)), str(out))

    assert [row["status"] for row in tasks.add(iter(listed), job("id"))] == ["done", "done"]
    assert [row["status"] for row in tasks.add(iter(listed), job("id"))] == ["unchanged", "unchanged"]
    more = list(tasks.add(iter(listed), job("id", "name")))
    assert [row["status"] for row in more] == ["done", "done"], "it lacked filters of this request"
    assert {one.column for one in parquet_bloom.inspect(out / "1.parquet").files[0].filters} == {"id", "name"}
    pq.write_table(pa.table({"id": [1]}), out / "1.parquet")
    first, second = tasks.add(iter(listed), job("id"))
    assert (first["status"], second["status"]) == ("unchanged", "failed")
    assert "is not this file with filters" in second["error"]
    assert pq.read_table(out / "1.parquet").num_rows == 1
