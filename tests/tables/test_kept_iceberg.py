"""Snapshots of Iceberg tables that a process keeps: equal to a fresh read, and never of another table."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.iceberg_tables import (
    BY_NAME,
    Warehouse,
    add_deletes,
    append,
    entries,
    live_rows,
    position_deletes,
)
from support.object_store import KEY, REGION, SECRET, reading_by, serving
from test_kept_snapshots import noted, settle

import parquet_bloom
from parquet_bloom.errors import StorageError
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.tables.iceberg import opened


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The manifests that are read each time."""
    return noted(monkeypatch, opened, "read_manifests")


def rows(first: int, n: int = 3) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"n{i % 2}"} for i in range(first, first + n)]


def ids(snapshot: Snapshot) -> list[int]:
    return sorted(row["id"] for row in live_rows(snapshot))


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def test_check_and_a_commit_of_ours(warehouse: Warehouse, plans: list[Any]) -> None:
    warehouse.filled(rows(0, 20), partition_spec=BY_NAME)
    settle()
    name, given = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}
    for _ in range(2):
        assert len(parquet_bloom.check(name, "name = 'n1'", **given).excluded) == 1
    assert len(plans) == 1
    before = warehouse.read()
    parquet_bloom.add_filters(name, columns=["id"], **given)
    after = warehouse.read()
    assert (before.version, before.identity) != (after.version, after.identity)
    assert ids(after) == list(range(20)) == ids(warehouse.read(version=before.version))
    assert parquet_bloom.count(name, "id = 7", **given) == 1


def test_a_manifest_that_was_written_over_is_another_one(warehouse: Warehouse) -> None:
    """Under its name, with its time: what a fresh read shows is shown."""
    table = warehouse.filled(rows(0))
    first = table.history()[0].snapshot_id
    table.delete("id >= 0")
    append(table, rows(50))
    settle()
    assert ids(warehouse.read(version=str(first))) == [0, 1, 2]
    [old] = table.snapshot_by_id(first).manifests(table.io)
    new = table.current_snapshot().manifests(table.io)[0]
    was = local(old.manifest_path).stat()
    shutil.copyfile(local(new.manifest_path), local(old.manifest_path))
    os.utime(local(old.manifest_path), ns=(was.st_atime_ns, was.st_mtime_ns))
    for _ in range(2):
        assert ids(warehouse.read(version=str(first))) == [50, 51, 52]
        settle()


@pytest.mark.parametrize("part", ["list", "metadata"])
def test_a_table_that_was_made_again_is_another_one(warehouse: Warehouse, part: str) -> None:
    """With the id, the numbers and the names of the one before: a folder that was put back, and changed otherwise."""
    table = warehouse.filled(rows(0))
    settle()
    assert ids(warehouse.read()) == [0, 1, 2]
    was, at = table.current_snapshot(), local(table.metadata_location)
    append(table, rows(50))
    other, other_at = table.current_snapshot(), local(table.metadata_location)
    if part == "list":  # the catalog's old place has the old metadata still
        shutil.copyfile(local(other.manifest_list), local(was.manifest_list))
    else:  # at the catalog's old place, the same snapshot by its number, with another list
        now = json.loads(at.read_text())
        now["snapshots"][0]["manifest-list"] = other.manifest_list
        at.write_text(json.dumps(now))
    warehouse.catalog.drop_table("ns.t")
    warehouse.catalog.register_table("ns.t", table.metadata_location.replace(other_at.name, at.name))
    for _ in range(2):
        snapshot = warehouse.read()
        assert snapshot.version == str(was.snapshot_id)
        assert ids(snapshot) == [0, 1, 2, 50, 51, 52]
        settle()


def test_other_properties_are_seen(warehouse: Warehouse) -> None:
    """They change without a snapshot; so do schemas."""
    table = warehouse.filled(rows(0))
    settle()
    assert warehouse.read().filter_settings == {}
    with table.transaction() as change:
        change.set_properties({"write.parquet.bloom-filter-enabled.column.id": "true"})
    assert warehouse.read().filter_settings == {"columns": ["id"]}
    with table.update_schema() as schema:
        schema.rename_column("name", "word")
    assert [field.name for field in warehouse.read().fields] == ["id", "word"]


def test_positions_of_delete_files_are_kept_by_no_process(warehouse: Warehouse, plans: list[Any]) -> None:
    """A hundred million of them would be; and a delete file that is gone is missed by the next call."""
    table = warehouse.filled(rows(0), rows(10))
    chosen = entries(table)[0].data_file
    deletes = position_deletes(table, {chosen.file_path: [0]}, chosen)
    add_deletes(table, deletes)
    settle()

    def done(snapshot: Any) -> list[list[bool]]:
        return [one._done for file in snapshot.files if file.deletes for one in file.deletes.files]

    for _ in range(2):
        first = warehouse.read()
        assert len(ids(first)) == 5
        assert done(first) == [[True]]
        assert done(warehouse.read()) == [[]]
    assert len(plans) == 1
    local(deletes.file_path).unlink()
    with pytest.raises(StorageError, match="no such file|No such file"):
        ids(warehouse.read())


def test_on_a_store_manifests_are_read_once(tmp_path: Path, plans: list[Any]) -> None:
    """The list of manifests, and the metadata that the catalog names, each time."""
    with serving() as store, reading_by("obstore"):
        store.client.create_bucket(Bucket="lake")
        warehouse = Warehouse(
            tmp_path, warehouse="s3://lake/tables", **{"s3.endpoint": store.endpoint, "s3.access-key-id": KEY},
            **{"s3.secret-access-key": SECRET, "s3.region": REGION},
        )  # fmt: skip
        warehouse.filled(rows(0), rows(10), rows(20))
        assert len(warehouse.read().files) == 3
        store.wire.clear()
        snapshot = warehouse.read()
        asked = [one.path for one in store.wire.requests if "avro" in one.path]
        assert len(asked) == 1
        assert "snap-" in asked[0]
        assert [len(manifests) for manifests in plans] == [3]
        assert ids(snapshot) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        warehouse.close()
