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


def filters_of(path: str, job: AnyJob, rewrite: Callable[[], None]) -> tasks.Row:
    """What becomes of a file that is rewritten when its filters are on their way; the row of the report."""
    listed = {"path": path, "root": "", "size": 0, "kind": "file", "error": None}
    cut = list(tasks.cut(iter([listed]), job))
    units = [row for row in cut if row["place"] != tasks.HEADER]
    filters = list(tasks.build_units(iter(units), job))
    assert [row["error"] for row in filters] == [None] * 3
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
