"""A Delta table on S3: filters travel, what stays does not; a run that is interrupted leaves no object."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from object_store import SECRET, ObjectStore, options_of
from support.samples import random_bytes

import parquet_bloom as pb

N = 60_000


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
    assert all(file.bytes_copied > 8 * 10**6 for file in report.files), "the store copies what stays"
    assert ids(store, uri) == rows == ids(store, uri, 1)
    absent = next(i for i in range(2**50) if i not in set(rows))
    assert all(one.skipped for one in pb.check(name, f"id = {absent}"))
    assert pb.add_filters(name, columns=["id"], commit=way).commits == []
    assert [commit.files for commit in pb.remove_filters(name, commit=way).commits] == [2]
    assert ids(store, uri) == rows == ids(store, uri, 2)


def test_a_tail_that_nobody_asked_for_is_passed_over(store: ObjectStore, bucket: str) -> None:
    uri = f"s3://{bucket}/t"
    made(store, uri)
    rows = ids(store, uri)
    name = "delta:" + store.uri(f"{bucket}/t")
    pb.add_filters(name, columns=["id", "data"], commit="same-path", fpp=0.2)
    pb.remove_filters(name, commit="same-path")
    report = pb.add_filters(name, columns=["id"], commit="same-path", fpp=0.001)
    assert {(one.column, one.reached) for file in report.files for one in file.filters} == {("id", True)}
    assert all(file.bytes_copied > 8 * 10**6 for file in report.files), "the store copies what stays"
    found = pb.inspect(name).files
    assert {one.column for file in found for one in file.filters} == {"id"}
    assert all(one.fpp is not None and one.fpp <= 0.001 for file in found for one in file.filters)
    assert all(ids(store, uri, version) == rows for version in range(1, 5))


def test_an_interrupted_run_leaves_no_object(store: ObjectStore, bucket: str) -> None:
    uri = f"s3://{bucket}/t"
    made(store, uri)
    before = objects(store, bucket)

    def progress(p: pb.Progress) -> None:
        if p.files_done == 1 and p.parts_done:
            assert len(objects(store, bucket)) == 3, "the first file is there"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pb.add_filters(f"delta:{bucket}/t", columns=["id"], filesystem=store.filesystem, progress=progress)
    assert objects(store, bucket) == before
    assert len(ids(store, uri)) == 2 * N
