"""Filters in Iceberg tables: pyiceberg, Polars and our own reading give the rows they gave, at every snapshot."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import ListType, LongType, NestedField, StringType
from support.iceberg_tables import Warehouse, add_deletes, append, by_text, entries, position_deletes

import parquet_bloom as pb
from parquet_bloom.errors import RequestError

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "tags", ListType(4, LongType(), element_required=False)),
)
BUCKETS = PartitionSpec(PartitionField(2, 1000, BucketTransform(2), "bucket"))
NAME = "iceberg:cat/ns.t"


@pytest.fixture
def warehouse(tmp_path: Path) -> Any:
    made = Warehouse(tmp_path)
    yield made
    made.close()


def rows_of(seed: int, n: int = 400) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    return [
        {"id": int(i), "name": f"n{k % 50}", "tags": [int(i) % 1000]}
        for k, i in enumerate(random.integers(0, 2**60, n))
    ]


def made(warehouse: Warehouse, spec: PartitionSpec = BUCKETS, files: int = 2, **more: Any) -> list[dict[str, Any]]:
    table = warehouse.create(SCHEMA, partition_spec=spec, **more)
    rows = [row for seed in range(files) for row in rows_of(seed)]
    for seed in range(files):
        append(table, rows_of(seed), row_group_size=50)
    return rows


def add(warehouse: Warehouse, **given: Any) -> pb.AddReport:
    return pb.add_filters(NAME, catalog_properties=warehouse.properties, **given)


def remove(warehouse: Warehouse, **given: Any) -> pb.RemoveReport:
    return pb.remove_filters(NAME, catalog_properties=warehouse.properties, **given)


def by_pyiceberg(warehouse: Warehouse, snapshot: int | None = None) -> list[str]:
    return by_text(warehouse.load().scan(snapshot_id=snapshot).to_arrow().to_pylist())


def by_polars(warehouse: Warehouse) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)  # another planner would be faster
        return by_text(pl.scan_iceberg(warehouse.load()).collect().to_dicts())


def by_ours(warehouse: Warehouse) -> list[str]:
    batches = pb.read_batches(NAME, catalog_properties=warehouse.properties)
    return by_text(pa.Table.from_batches(batches).to_pylist())


def all_agree(warehouse: Warehouse, rows: list[str]) -> None:
    assert by_pyiceberg(warehouse) == rows
    assert by_polars(warehouse) == rows, "Polars trusts the log's sizes"
    assert by_ours(warehouse) == rows


def filtered(warehouse: Warehouse) -> list[set[str]]:
    """The columns with filters of each live file, by its own names."""
    found = pb.inspect([file.path for file in warehouse.read().files], raw_files=True).files
    return [{one.column for one in file.filters} for file in found]


def test_deleted_rows_stay_deleted_and_their_files_keep_their_paths(warehouse: Warehouse) -> None:
    made(warehouse, PartitionSpec())
    table = warehouse.load()
    first = entries(table)[0].data_file
    add_deletes(table, position_deletes(table, {first.file_path: range(0, 400, 4)}, first))
    rows = by_pyiceberg(warehouse)
    assert len(rows) == 700
    dry = add(warehouse, columns=["id"], dry_run=True)
    said = {file.way: file.why for file in dry.files}
    assert said["same-path"] == "position deletes or a deletion vector name the file by its path"
    assert said.keys() == {"same-path", "new-path"}
    report = add(warehouse, columns=["id"])
    assert report.failed == []
    paths = {entry.data_file.file_path for entry in entries(warehouse.load())}
    assert first.file_path in paths
    all_agree(warehouse, rows)
    refused = remove(warehouse, commit="new-path")
    assert [str(one.error) for one in refused.failed], "another path would bring 100 deleted rows back"
    all_agree(warehouse, rows)


def test_the_tables_properties_are_wishes(warehouse: Warehouse) -> None:
    rows = by_text(made(
        warehouse,
        properties={
            "write.parquet.bloom-filter-enabled.column.id": "true",
            "write.parquet.bloom-filter-enabled.column.tags.element": "true",
            "write.parquet.bloom-filter-enabled.column.name": "false",
            "write.parquet.bloom-filter-fpp.column.id": "0.001",
        },
    ))  # fmt: skip
    report = add(warehouse)
    assert all(columns == {"id", "tags.list.element"} for columns in filtered(warehouse))
    assert {one.fpp <= 0.001 for file in report.files for one in file.filters if one.column == "id"} == {True}
    assert report.notes == ["the table's properties ask for filters on id, tags.list.element"]
    all_agree(warehouse, rows)


# --- others commit while filters are built --------------------------------------------------------


@pytest.mark.more
@pytest.mark.parametrize("seed", range(5))
def test_random_histories(warehouse: Warehouse, seed: int) -> None:
    """Our adds and removes between appends, deletes, renames and expiry: rows stay, at every snapshot."""
    random = np.random.default_rng(seed)
    made(warehouse, [PartitionSpec(), BUCKETS][seed % 2], files=1)
    snapshots: dict[int, list[str]] = {}
    for step in range(8):
        table = warehouse.load()
        what = random.choice(["append", "delete", "positions", "rename", "column", "add", "add", "remove", "expire"])
        names = [field.name for field in table.schema().fields]
        if what == "append" and names == ["id", "name", "tags"]:
            append(table, rows_of(10 * seed + step, 100), row_group_size=30)
        elif what == "delete" and not seed % 2:  # pyiceberg needs a core of its own for buckets
            table.delete(f"{names[0]} < {int(random.integers(0, 2**59))}")
        elif what == "positions" and (live := entries(table)):
            one = live[int(random.integers(len(live)))].data_file
            gone = sorted({int(i) for i in random.integers(0, one.record_count, 5)})
            add_deletes(table, position_deletes(table, {one.file_path: gone}, one))
        elif what == "rename":
            with table.update_schema() as change:
                change.rename_column(names[0], f"id{step}")
        elif what == "column":
            with table.update_schema() as change:
                change.add_column(f"new{step}", LongType())
        elif what == "expire" and snapshots:
            first = min(snapshots, key=list(snapshots).index)
            if table.current_snapshot().snapshot_id != first and table.snapshot_by_id(first) is not None:
                table.maintenance.expire_snapshots().by_id(first).commit()
        before = by_pyiceberg(warehouse)
        if what in ("add", "remove"):
            way = [None, "same-path", "new-path"][int(random.integers(3))]
            one_by_one = [None, 1][int(random.integers(2))]
            if what == "add":
                add(warehouse, columns=["*"], commit=None if way == "new-path" else way, files_per_commit=one_by_one)
            else:
                remove(warehouse, files_per_commit=one_by_one)
        assert by_pyiceberg(warehouse) == before, what
        assert by_ours(warehouse) == before, what
        table = warehouse.load()
        if (current := table.current_snapshot()) is not None:
            snapshots[current.snapshot_id] = by_pyiceberg(warehouse, current.snapshot_id)
        for snapshot, rows in list(snapshots.items()):
            if table.snapshot_by_id(snapshot) is not None:
                assert by_pyiceberg(warehouse, snapshot) == rows, "time travel"


# --- what makes no sense --------------------------------------------------------------------------


def test_what_is_no_table(warehouse: Warehouse) -> None:
    with pytest.raises(RequestError, match="cat/ns.none"):
        pb.add_filters("iceberg:cat/ns.none", catalog_properties=warehouse.properties)
    made(warehouse)
    snapshot = warehouse.load().current_snapshot().snapshot_id
    with pytest.raises(RequestError, match=f"leave out @{snapshot}"):
        pb.add_filters(f"{NAME}@{snapshot}", catalog_properties=warehouse.properties)


PLACES = [("./wh", "same-path"), ("{root}/x/../wh", "new-path"), ("file:{root}/wh", "same-path"),
          ("file://{root}//w h%20x", "new-path"), ("wh", "new-path"), ("{root}/wh", "new-path"),
          ("{root}//wh", "same-path"), ("file://{root}//w h%20x", "same-path")]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "way"), [*PLACES[:4], *(pytest.param(*p, marks=pytest.mark.more) for p in PLACES[4:])]
)
def test_a_table_may_lie_below_a_path_of_any_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, way: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse(tmp_path, warehouse=place.format(root=tmp_path))
    rows = by_text(made(warehouse))
    folder = f"{warehouse.load().location()}/data"
    for change in (lambda: add(warehouse, columns=["id"], commit=way), lambda: remove(warehouse, commit=way)):
        [commit] = change().commits
        assert commit.files == len(entries(warehouse.load()))
        assert by_pyiceberg(warehouse) == rows == by_ours(warehouse)
        assert {entry.data_file.file_path.rpartition("/")[0] for entry in entries(warehouse.load())} == {folder}
    warehouse.close()
