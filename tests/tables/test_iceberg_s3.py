"""An Iceberg table whose warehouse is an S3 bucket: read, and given a file on a new path."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from support.iceberg_tables import Warehouse, add_deletes, append, by_text, entries, live_rows, position_deletes
from support.loopback import listening
from support.object_store import KEY, REGION, SECRET, ObjectStore

import parquet_bloom as pb
from parquet_bloom.errors import ConflictError, StorageError
from parquet_bloom.source.snapshot import Change
from parquet_bloom.storage.remote import Objects

SCHEMA = Schema(NestedField(1, "id", LongType()))


@pytest.fixture
def warehouse(store: ObjectStore, tmp_path: Path) -> Iterator[Warehouse]:
    store.client.create_bucket(Bucket="lake")
    made = Warehouse(
        tmp_path, warehouse="s3://lake/tables", **{"s3.endpoint": store.endpoint, "s3.access-key-id": KEY},
        **{"s3.secret-access-key": SECRET, "s3.region": REGION},
    )  # fmt: skip
    yield made
    made.close()
    store.drop("lake")


def test_a_table_on_s3_is_read_and_committed_to(warehouse: Warehouse, store: ObjectStore) -> None:
    table = warehouse.create(SCHEMA)
    for i in range(2):
        append(table, [{"id": 10 * i + j} for j in range(10)])
    first = entries(table)[0].data_file
    add_deletes(table, position_deletes(table, {first.file_path: [4]}, first))
    before = by_text(table.scan().to_arrow().to_pylist())
    ours = warehouse.open()
    snapshot = ours.snapshot()
    assert isinstance(snapshot.filesystem, Objects), "it is read as a URI of the same settings is"
    assert all(file.path.startswith("lake/tables/") and file.shown == f"s3://{file.path}" for file in snapshot.files)
    assert by_text(live_rows(snapshot)) == before
    assert SECRET not in repr((snapshot.table, snapshot.files))
    ways = ours.commit_modes(snapshot)
    file = next(file for file in snapshot.files if ways[file.path].default == "new-path")
    place = ours.new_location(file)
    pb.add_filters(file.path, place.path, columns=["id"], filesystem=file.filesystem, force=True)
    size = len(store.get(place.path))
    ours.commit(snapshot, [Change(file, place, size, 1)], {})
    table = warehouse.load()
    assert by_text(table.scan().to_arrow().to_pylist()) == before
    assert by_text(live_rows(warehouse.read())) == before
    named = {entry.data_file.file_path: entry.data_file.file_size_in_bytes for entry in entries(table)}
    assert named[f"s3://{place.path}"] == size, "the log names it as it names others"
    with pytest.raises(ConflictError):
        ours.commit(snapshot, [Change(file, place, size, 1)], {})


def test_a_bucket_that_is_gone_is_told_in_one_line(warehouse: Warehouse, store: ObjectStore) -> None:
    table = warehouse.create(SCHEMA)
    append(table, [{"id": 1}])
    ours = warehouse.open()
    for name in store.names("lake"):
        store.client.delete_object(Bucket="lake", Key=name)
    with pytest.raises(StorageError) as told:
        ours.snapshot()
    text = str(told.value)
    assert text.startswith("iceberg:cat/ns.t: "), "the error names the table"
    assert SECRET not in text
    assert "\n" not in text


# By what somebody would gain who were believed: the requests, the rights, the code. None of a group undoes another.
LIES = {
    "hosts": "s3.endpoint s3.proxy-uri s3.signer.uri warehouse DEFAULT_SCHEME DEFAULT_NETLOC",
    "places": "s3.region client.region s3.force-virtual-addressing s3.connect-timeout",
    "rights and code": (
        "s3.access-key-id s3.role-arn client.role-arn s3.anonymous s3.retry-strategy-impl py-io-impl"
    ),
}  # fmt: skip


# By what somebody would gain who were believed: the requests, the rights, the code. None of a group undoes another.


@pytest.mark.parametrize("lies", LIES.values(), ids=LIES)
def test_properties_of_metadata_open_no_storage(
    warehouse: Warehouse, store: ObjectStore, lies: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    table = warehouse.create(SCHEMA)
    append(table, [{"id": i} for i in range(100)])
    where = warehouse.load().metadata_location.removeprefix("s3://")
    metadata = json.loads(store.get(where))
    (tmp_path / "evil_strategy.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    values = {
        "s3.retry-strategy-impl": "evil_strategy.Retries", "py-io-impl": "evil_strategy.IO",
        "s3.force-virtual-addressing": "true", "DEFAULT_SCHEME": "s3",
    }  # fmt: skip
    name, properties = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}
    with listening() as listener:
        metadata["properties"] |= {lie: values.get(lie, f"http://{listener.authority}") for lie in lies.split()}
        store.put(where, json.dumps(metadata).encode())
        assert pb.count(name, "id < 50", **properties) == 50
        assert len(pb.add_filters(name, columns=["id"], **properties).commits) == 1
        assert sorted(pb.read_table(name, **properties)["id"].to_pylist()) == list(range(100))
    assert "evil_strategy" not in sys.modules
