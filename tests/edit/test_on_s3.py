"""A Delta table on S3: filters travel, what stays does not; a run that is interrupted leaves no object."""

from __future__ import annotations

import os
import signal
import threading
import time
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from support.object_store import SECRET, ObjectStore, Request, options_of
from support.samples import random_bytes

import parquet_bloom as pb

N = 42_000


def made(store: ObjectStore, uri: str) -> None:
    random = np.random.default_rng(0)
    for _ in range(2):
        ids = random.integers(0, 2**60, N)
        table = pa.table({"id": ids, "data": random_bytes(random, N, 150)})
        write_deltalake(uri, table, mode="append", storage_options=options_of(store))


def ids(store: ObjectStore, uri: str, version: int | None = None) -> list[int]:
    return sorted(DeltaTable(uri, version, options_of(store)).to_pyarrow_table(columns=["id"])["id"].to_pylist())


def objects(store: ObjectStore, bucket: str) -> set[str]:
    found = store.client.list_objects_v2(Bucket=bucket)["Contents"]
    return {one["Key"] for one in found if "_delta_log" not in one["Key"]}


@pytest.mark.parametrize(
    "way", [pytest.param("new-path", marks=pytest.mark.smoke), pytest.param("same-path", marks=pytest.mark.more)]
)
def test_add_and_remove(store: ObjectStore, bucket: str, way: str) -> None:
    uri = f"s3://{bucket}/t"
    made(store, uri)
    rows = ids(store, uri)
    name = "delta:" + store.uri(f"{bucket}/t")
    report = pb.add_filters(name, columns=["id"], commit=way)
    assert [(c.files, c.same_path) for c in report.commits] == [(2, 2 if way == "same-path" else 0)]
    assert SECRET not in str(report.to_dict())
    assert all(file.bytes_copied > 5 * 10**6 for file in report.files), "the store copies what stays"
    assert ids(store, uri) == rows == ids(store, uri, 1)
    absent = next(i for i in range(2**50) if i not in set(rows))
    assert all(one.skipped for one in pb.check(name, f"id = {absent}"))
    assert pb.add_filters(name, columns=["id"], commit=way).commits == []
    assert [commit.files for commit in pb.remove_filters(name, commit=way).commits] == [2]
    assert ids(store, uri) == rows == ids(store, uri, 2)


def test_a_run_that_is_interrupted_while_files_are_written_leaves_no_object(store: ObjectStore, bucket: str) -> None:
    _, name = many_files(store, bucket, 8)
    before, interrupted = objects(store, bucket), threading.Event()
    folder = os.path.basename(os.path.dirname(pb.inspect(name).files[0].path))  # of the file that the run waits for

    def interrupt(request: Request) -> None:
        if request.kind == "PUT" and unquote(request.path).split("/")[-2] == folder:
            store.wire.before = None  # once: other requests may follow
            interrupted.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(1)

    store.wire.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        pb.add_filters(name, columns=["id"])
    store.wire.before = None
    store.wire.quiet()
    assert interrupted.is_set()
    assert objects(store, bucket) == before


def many_files(store: ObjectStore, bucket: str, files: int) -> tuple[str, str]:
    """A table of so many small files: its URI for deltalake, and its name for us."""
    uri = f"s3://{bucket}/t"
    rows = pa.table({"id": np.random.default_rng(1).integers(0, 2**60, 40 * files), "p": np.arange(40 * files) % files})
    write_deltalake(uri, rows, partition_by=["p"], storage_options=options_of(store))
    return uri, "delta:" + store.uri(f"{bucket}/t")


@pytest.mark.parametrize("per_commit", [None, 5])
def test_files_get_new_versions_side_by_side(store: ObjectStore, bucket: str, per_commit: int | None) -> None:
    files = 12
    uri, name = many_files(store, bucket, files)
    rows, now, most, lock = ids(store, uri), 0, 0, threading.Lock()

    def wait(request: Request) -> None:
        nonlocal now, most
        if request.kind == "PUT" and request.path.endswith(".parquet"):
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.3)  # as a store that is far away
            with lock:
                now -= 1

    store.wire.before = wait
    report = pb.add_filters(name, columns=["id"], files_per_commit=per_commit)
    store.wire.before = None
    assert most >= (5 if per_commit is None else 3), "side by side"
    assert per_commit is None or most <= per_commit, "no file is begun that the commit has no room for"
    assert [one.files for one in report.commits] == ([files] if per_commit is None else [5, 5, 2])
    assert [file.source for file in report.files] == [file.path for file in pb.inspect(name + "@0").files]
    assert ids(store, uri) == rows == ids(store, uri, 0)
    assert len(objects(store, bucket)) == 2 * files


def test_a_damaged_file_leaves_the_others_new(store: ObjectStore, bucket: str) -> None:
    files = 6
    _, name = many_files(store, bucket, files)
    damaged = sorted(objects(store, bucket))[3]
    size = store.client.head_object(Bucket=bucket, Key=damaged)["ContentLength"]
    store.put(f"{bucket}/{damaged}", b"PAR1" + bytes(size - 8) + b"PAR1")
    report = pb.add_filters(name, columns=["id"])
    assert [failed.path.endswith(damaged) for failed in report.failed] == [True]
    assert [one.files for one in report.commits] == [files - 1]
    assert len(objects(store, bucket)) == 2 * files - 1, "nothing of the one that failed"
