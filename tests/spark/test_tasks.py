"""What a Spark task does with its small files, two at a time; no Spark is needed for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from samples import leftovers, write_keys

import parquet_bloom
from parquet_bloom.spark import tasks
from parquet_bloom.spark.storages import Storages

OPTIONS = {
    "columns": ["id"], "exclude": None, "spec": "final", "placement": None, "hash_family": None, "strategy": None,
    "fpp": None, "ndv": None, "conf": None, "max_bytes": None, "replace": False, "sync": False, "force": False,
}  # fmt: skip


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
    made = list(tasks.add(iter(listing), tasks.Job(Storages(), options=OPTIONS)))
    assert [row["path"] for row in made] == [row["path"] for row in listing]
    failed = {row["path"]: row["error"] for row in made if row["status"] == "failed"}
    assert set(failed) == {"/lost", str(folder / "4.parquet")}
    assert failed["/lost"] == "/lost: no such folder"
    assert most[1] == 2
    again = list(tasks.add(rows(folder), tasks.Job(Storages(), options=OPTIONS)))
    assert [row["status"] for row in again] == ["had them"] * 4 + ["failed"] + ["had them"] * 4
    assert leftovers(folder) == []


def test_a_task_that_is_given_up_leaves_whole_files(folder: Path) -> None:
    working = tasks.add(rows(folder), tasks.Job(Storages(), options=OPTIONS))
    assert next(working)["status"] == "done"
    working.close()  # type: ignore[attr-defined]
    assert leftovers(folder) == []
    for path in folder.iterdir():
        if path.name != "4.parquet":
            assert pq.read_table(path).num_rows > 0
            found = parquet_bloom.verify(path).files[0].filters
            assert {one.status for one in found} <= {"right"}
    statuses = {row["status"] for row in tasks.add(rows(folder), tasks.Job(Storages(), options=OPTIONS))}
    assert statuses == {"done", "had them", "failed"}
