"""Rows deleted from objects of a store: in place, and from one object to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from changes.erased import rows_of
from support.object_store import ObjectStore, Request
from support.samples import random_bytes

import parquet_bloom
from parquet_bloom import delete_keys
from parquet_bloom.errors import ConflictError, FileChangedError, StorageError

N = 60_000


def made(store: ObjectStore, path: str) -> pa.Table:
    rng = np.random.default_rng(0)
    table = pa.table({"id": rng.permutation(N), "data": random_bytes(rng, N, 300)})
    put(store, path, table)
    return table


def put(store: ObjectStore, path: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=N // 3, compression="none")
    bucket, _, key = path.partition("/")
    store.client.put_object(Bucket=bucket, Key=key, Body=sink.getvalue().to_pybytes())


def read(store: ObjectStore, path: str) -> pa.Table:
    bucket, _, key = path.partition("/")
    return pq.read_table(pa.BufferReader(store.client.get_object(Bucket=bucket, Key=key)["Body"].read()))


def test_row_groups_without_such_rows_are_copied_inside_the_store(store: ObjectStore, bucket: str) -> None:
    table = made(store, f"{bucket}/t/a.parquet")
    made(store, f"{bucket}/t/b.parquet")
    parquet_bloom.add_filters(store.uri(f"{bucket}/t"), in_place=True, columns=["id"])
    keys = [table["id"][5].as_py(), table["id"][7].as_py()]
    before = store.client.head_object(Bucket=bucket, Key="t/a.parquet")["ETag"]
    dry = delete_keys(store.uri(f"{bucket}/t"), "id", keys, in_place=True, dry_run=True)
    assert store.client.head_object(Bucket=bucket, Key="t/a.parquet")["ETag"] == before
    store.wire.clear()
    report = delete_keys(store.uri(f"{bucket}/t"), "id", keys, in_place=True)
    sent = sum(request.up for request in store.wire.requests)
    assert [one.deleted for one in report.rewritten] == [one.deleted for one in dry.rewritten] == [2, 2]
    wanted = [row for n, row in enumerate(rows_of(table)) if n not in (5, 7)]
    assert sent < report.bytes_written / 2, "two of three row groups are copied inside the store"
    for name in ("a", "b"):
        assert rows_of(read(store, f"{bucket}/t/{name}.parquet")) == wanted
    found = parquet_bloom.verify(store.uri(f"{bucket}/t"), statistics=True)
    assert {filter_.status for file in found.files for filter_ in file.filters} == {"right"}
    assert all(not file.statistics.wrong for file in found.files if file.statistics)
    again = delete_keys(store.uri(f"{bucket}/t"), "id", keys, in_place=True)
    assert (again.files, again.rewritten) == (2, [])


def test_from_one_object_to_another(store: ObjectStore, bucket: str) -> None:
    table = made(store, f"{bucket}/a.parquet")
    key = table["id"][N - 1].as_py()
    delete_keys(store.uri(f"{bucket}/a.parquet"), "id", [key], output=store.uri(f"{bucket}/b.parquet"))
    assert rows_of(read(store, f"{bucket}/b.parquet")) == rows_of(table)[:-1]
    assert read(store, f"{bucket}/a.parquet").num_rows == N


@pytest.mark.parametrize("at", ["COPY", "complete"])
def test_an_object_that_changes_meanwhile_stays_as_it_is(store: ObjectStore, bucket: str, at: str) -> None:
    table = made(store, f"{bucket}/a.parquet")
    done: list[int] = []

    def other(request: Request) -> Any:
        if request.kind == at and not done:
            done.append(1)
            put(store, f"{bucket}/a.parquet", table.slice(0, 10))

    store.wire.before = other
    with pytest.raises((ConflictError, FileChangedError, StorageError)):
        delete_keys(store.uri(f"{bucket}/a.parquet"), "id", [table["id"][0].as_py()], in_place=True)
    store.wire.before = None
    assert done
    assert read(store, f"{bucket}/a.parquet").num_rows == 10
    assert [one["Key"] for one in store.client.list_objects_v2(Bucket=bucket)["Contents"]] == ["a.parquet"]
    assert "Uploads" not in store.client.list_multipart_uploads(Bucket=bucket)
