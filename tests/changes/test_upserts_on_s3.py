"""delete_keys and upsert of tables on S3: rows, filters, the index, and what a refused commit leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from support.iceberg_tables import Warehouse
from support.meanwhile import meanwhile
from support.object_store import KEY, REGION, SECRET, ObjectStore, options_of

import parquet_bloom


def named(store: ObjectStore, bucket: str) -> set[str]:
    """The objects below a bucket that are data, or logs of other tables than the one."""
    keys = [one["Key"] for one in store.client.list_objects_v2(Bucket=bucket).get("Contents", [])]
    return {key for key in keys if key.endswith(".parquet") or "rewrite-" in key}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_change_of_a_table_on_s3(kind: str, store: ObjectStore, bucket: str, tmp_path: Path) -> None:
    parts = [pa.table({"id": range(first, first + 10), "v": ["old"] * 10}) for first in (0, 10, 20)]
    options: dict[str, Any] = {}
    if kind == "delta":
        source = f"delta:{store.uri(f'{bucket}/t')}"

        def append(part: pa.Table) -> None:
            write_deltalake(f"s3://{bucket}/t", part, mode="append", storage_options=options_of(store))
    else:
        where = {"s3.endpoint": store.endpoint, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET}
        warehouse = Warehouse(tmp_path, warehouse=f"s3://{bucket}/t", **where, **{"s3.region": REGION})
        warehouse.create(parts[0].schema)
        source, options = "iceberg:cat/ns.t", {"catalog_properties": warehouse.properties}

        def append(part: pa.Table) -> None:
            warehouse.load().append(part)

    for part in parts:
        append(part)
    parquet_bloom.add_filters(source, columns=["id"], **options)
    parquet_bloom.build_index(source, "id", tmp_path / "index", **options)
    how: Any = {"index": tmp_path / "index", **options}
    report = parquet_bloom.delete_keys(source, "id", [3, 15], **how)
    assert (report.deleted, report.notes, SECRET in repr(report.to_dict())) == (2, [], False)
    row = pa.table({"id": [5, 99], "v": ["new"] * 2})
    report = parquet_bloom.upsert(source, row, "id", **how)
    assert (report.replaced, report.appended, report.notes) == (1, 1, [])
    rows = parquet_bloom.read_table(source, **options)
    wanted = {key: "old" for key in range(30) if key not in (3, 15)} | {5: "new", 99: "new"}
    assert dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True)) == wanted
    status = parquet_bloom.status(source, **options)
    assert [(one.column, one.row_groups_lacking) for one in status.columns] == [("id", 0)]

    before: list[set[str]] = []

    def another() -> None:
        append(pa.table({"id": [200], "v": ["theirs"]}))
        before.append(named(store, bucket))

    with pytest.raises(parquet_bloom.ConflictError):
        parquet_bloom.delete_keys(source, "id", [7], progress=meanwhile(another, lambda _: True), **options)
    assert named(store, bucket) == before[0], "nothing is there of the change that was refused"
    assert parquet_bloom.count(source, **options) == len(wanted) + 1
