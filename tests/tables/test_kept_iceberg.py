"""Snapshots of Iceberg tables that a process keeps: equal to a fresh read, and never of another table."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.iceberg_tables import (
    BY_NAME,
    SCHEMA,
    Warehouse,
    add_deletes,
    append,
    entries,
    live_rows,
    position_deletes,
)
from support.object_store import KEY, REGION, SECRET, reading_by, serving
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom.errors import StorageError, TableFormatError
from parquet_bloom.source.kept import KeptStates
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.storage import version_token
from parquet_bloom.tables.iceberg import opened


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """No test begins with another's tables."""
    opened._SNAPSHOTS.clear()
    yield
    opened._SNAPSHOTS.clear()


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many manifests are read each time."""
    counts: list[int] = []
    read = opened.read_manifests

    def note(manifests: Any, *more: Any) -> Any:
        counts.append(len(manifests))
        return read(manifests, *more)

    monkeypatch.setattr(opened, "read_manifests", note)
    return counts


def settle() -> None:
    """Wait until a change can be told from the next one."""
    time.sleep(0.12)


def rows(first: int, n: int = 3) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"n{i % 2}"} for i in range(first, first + n)]


def ids(snapshot: Snapshot) -> list[int]:
    return sorted(row["id"] for row in live_rows(snapshot))


def as_text(snapshot: Snapshot) -> list[Any]:
    """All that a snapshot says."""
    leaves = [(field.name,) for field in snapshot.fields]
    return [snapshot.version, snapshot.identity, snapshot.fields, dict(snapshot.filter_settings)] + [
        (
            file.path, file.shown, file.rows, file.size, dict(file.constants), sorted(file.doubtful),
            [file.bounds.get(leaf) for leaf in leaves], file.entry.manifest, file.entry.record._data[:4],
            file.deletes and file.deletes.positions().tolist(),
        )
        for file in snapshot.files
    ]  # fmt: skip


def local(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def test_a_snapshot_is_planned_once(warehouse: Warehouse, plans: list[int]) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows(0))
    append(table, rows(10))
    first = table.history()[0].snapshot_id
    settle()
    for _ in range(3):
        assert ids(warehouse.read()) == [0, 1, 2, 10, 11, 12]
    assert plans == [2]
    for _ in range(2):
        assert ids(warehouse.read(version=str(first))) == [0, 1, 2]
    assert plans == [2, 1]
    append(table, rows(20))
    settle()
    for _ in range(2):
        assert len(ids(warehouse.read())) == 9, "the latest snapshot is looked up each time"
    assert plans == [2, 1, 3]


def test_a_log_of_this_moment_is_not_kept(
    warehouse: Warehouse, plans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_token, "_SETTLED_S", 600)  # the moment lasts as long as a slow machine needs
    table = warehouse.create(SCHEMA)
    append(table, rows(0))
    for _ in range(2):
        assert ids(warehouse.read()) == [0, 1, 2]
    assert plans == [1, 1]


def test_check_and_a_commit_of_ours(warehouse: Warehouse, plans: list[int]) -> None:
    table = warehouse.create(SCHEMA, partition_spec=BY_NAME)
    append(table, rows(0, 20))
    settle()
    name, given = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}
    for _ in range(2):
        assert len(parquet_bloom.check(name, "name = 'n1'", **given).excluded) == 1
    assert plans == [1]
    before = warehouse.read()
    parquet_bloom.add_filters(name, columns=["id"], **given)
    after = warehouse.read()
    assert (before.version, before.identity) != (after.version, after.identity)
    assert ids(after) == list(range(20))
    assert ids(warehouse.read(version=before.version)) == list(range(20))
    assert parquet_bloom.count(name, "id = 7", **given) == 1


def test_a_manifest_that_was_written_over_is_another_one(warehouse: Warehouse) -> None:
    """Under its name, with its time: what a fresh read shows is shown."""
    table = warehouse.create(SCHEMA)
    append(table, rows(0))
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
    table = warehouse.create(SCHEMA)
    append(table, rows(0))
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


def test_a_table_of_the_same_name_is_another_one(warehouse: Warehouse) -> None:
    for first in (0, 50):
        table = warehouse.create(SCHEMA, location=f"{warehouse.root}/here")
        append(table, rows(first))
        settle()
        for _ in range(2):
            assert ids(warehouse.read()) == [first, first + 1, first + 2]
        warehouse.catalog.drop_table("ns.t")


def test_other_properties_are_seen(warehouse: Warehouse) -> None:
    """They change without a snapshot; so do schemas."""
    table = warehouse.create(SCHEMA)
    append(table, rows(0))
    settle()
    assert warehouse.read().filter_settings == {}
    with table.transaction() as change:
        change.set_properties({"write.parquet.bloom-filter-enabled.column.id": "true"})
    assert warehouse.read().filter_settings == {"columns": ["id"]}
    with table.update_schema() as schema:
        schema.rename_column("name", "word")
    assert [field.name for field in warehouse.read().fields] == ["id", "word"]


@pytest.mark.parametrize("link", ["data", "file"])
def test_links_are_followed_by_each_call(warehouse: Warehouse, tmp_path: Path, link: str) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows(0))
    settle()
    [file] = warehouse.read().files
    place = Path(file.path) if link == "file" else Path(file.path).parent
    shutil.move(place, tmp_path / "outside")
    place.symlink_to(tmp_path / "outside")
    with pytest.raises(TableFormatError, match="outside of"):
        warehouse.read()


def test_what_one_call_may_read_the_next_may_not(warehouse: Warehouse, tmp_path: Path) -> None:
    table = warehouse.create(SCHEMA)
    append(table, rows(0))
    place = Path(warehouse.read().files[0].path)
    shutil.move(place, tmp_path / "outside")
    place.symlink_to(tmp_path / "outside")
    settle()
    given = {"catalog_properties": warehouse.properties}
    for _ in range(2):
        assert parquet_bloom.count("iceberg:cat/ns.t", allow_roots=tmp_path, **given) == 3
        with pytest.raises(TableFormatError, match="allow_roots"):
            parquet_bloom.count("iceberg:cat/ns.t", **given)


def test_positions_of_delete_files_are_kept_by_no_process(warehouse: Warehouse, plans: list[int]) -> None:
    """A hundred million of them would be; and a delete file that is gone is missed by the next call."""
    table = warehouse.create(SCHEMA)
    append(table, rows(0))
    append(table, rows(10))
    chosen = entries(table)[0].data_file
    deletes = position_deletes(table, {chosen.file_path: [0]}, chosen)
    add_deletes(table, deletes)
    settle()
    for _ in range(2):
        first = warehouse.read()
        assert len(ids(first)) == 5
        read = [one for file in first.files if file.deletes for one in file.deletes.files]  # type: ignore[attr-defined]
        assert [one._done for one in read] == [[True]] * len(read)
        kept = warehouse.read()
        unread = [one for file in kept.files if file.deletes for one in file.deletes.files]  # type: ignore[attr-defined]
        assert [one._done for one in unread] == [[]] * len(read)
        assert unread
    assert len(plans) == 1
    local(deletes.file_path).unlink()
    with pytest.raises(StorageError, match="no such file|No such file"):
        ids(warehouse.read())


@pytest.mark.filterwarnings("ignore:Delete operation did not match")
@pytest.mark.parametrize("seed", first_then_more(range(4), 2))
def test_a_kept_snapshot_is_a_fresh_one(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    table = warehouse.create(SCHEMA, partition_spec=BY_NAME)
    for round_ in range(5):
        if round_ and rng.random() < 0.4 and (there := entries(table)):
            chosen = rng.choice(there).data_file
            add_deletes(table, position_deletes(table, {chosen.file_path: [0]}, chosen))
        elif round_ and rng.random() < 0.3:
            table.delete(f"id >= {20 * (round_ - 1)}" if rng.random() < 0.5 else "id >= 0")
        else:
            append(table, rows(20 * round_, rng.randint(1, 9)))
        table.refresh()
        settle()
        for version in rng.choices([None, *(str(one.snapshot_id) for one in table.history())], k=3):
            found = [as_text(warehouse.read(version=version)) for _ in range(2)]
            with monkeypatch.context() as nothing_kept:
                nothing_kept.setattr(opened, "_SNAPSHOTS", KeptStates())
                wanted = as_text(warehouse.read(version=version))
            assert found == [wanted, wanted]


def test_on_a_store_manifests_are_read_once(tmp_path: Path, plans: list[int]) -> None:
    """The list of manifests, and the metadata that the catalog names, each time."""
    with serving() as store, reading_by("obstore"):
        store.client.create_bucket(Bucket="lake")
        warehouse = Warehouse(
            tmp_path, warehouse="s3://lake/tables", **{"s3.endpoint": store.endpoint, "s3.access-key-id": KEY},
            **{"s3.secret-access-key": SECRET, "s3.region": REGION},
        )  # fmt: skip
        table = warehouse.create(SCHEMA)
        for first in (0, 10, 20):
            append(table, rows(first))
        assert len(warehouse.read().files) == 3
        store.wire.clear()
        snapshot = warehouse.read()
        asked = [one.path for one in store.wire.requests if "avro" in one.path]
        assert len(asked) == 1
        assert "snap-" in asked[0]
        assert plans == [3]
        assert ids(snapshot) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        warehouse.close()
