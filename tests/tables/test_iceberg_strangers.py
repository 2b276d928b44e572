"""A table's metadata has no say in which catalog is asked and which files a commit deletes. Of code: test_roots.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import load_file_io
from pyiceberg.table import Table
from support.iceberg_tables import Warehouse, rows_of

import parquet_bloom as pb
from parquet_bloom.tables.iceberg.catalogs import find_catalog

NAME = "iceberg:cat/ns.t"


class Merging(SqlCatalog):
    """A catalog of a user's, which merges properties without pyiceberg's own function."""

    def load_table(self, identifier: Any) -> Table:
        table = super().load_table(identifier)
        vended = {"s3.session-token": "of the catalog", "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"}
        properties = {**self.properties, **table.metadata.properties, **vended}
        table.io = load_file_io(properties, table.metadata_location)
        return table


@pytest.fixture
def made(warehouse: Warehouse) -> Warehouse:
    warehouse.filled(rows_of(*range(100)))
    return warehouse


def lie(warehouse: Warehouse, **changes: Any) -> Path:
    """Change the metadata file that the catalog names."""
    path = Path(warehouse.load().metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_bytes())
    metadata["properties"] |= changes.pop("properties", {})
    path.write_text(json.dumps(metadata | changes))
    return path


def test_a_commit_deletes_old_metadata_of_the_table_and_no_other_file(made: Warehouse, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("a file of the caller's")
    old = [Path(entry.metadata_file.removeprefix("file://")) for entry in made.load().metadata.metadata_log]
    now = made.load()
    folder = Path(now.metadata_location.removeprefix("file://")).parent
    names = [f"file://{victim}", f"{folder}/../victim", f"file://{folder}/../../../../victim", str(victim)]
    log = [{"timestamp-ms": 1, "metadata-file": name} for name in names]
    log += [entry.model_dump(by_alias=True) for entry in now.metadata.metadata_log]
    wanted = {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "1"}
    lie(made, properties=wanted, **{"metadata-log": log})
    assert len(pb.add_filters(NAME, columns=["id"], catalog_properties=made.properties).commits) == 1
    assert victim.exists()
    assert old
    assert not any(path.exists() for path in old), "its own old metadata go, as its property says"


def test_a_catalog_of_the_users_own_goes_on_and_metadata_have_no_say(made: Warehouse) -> None:
    lie(made, properties={"s3.endpoint": "http://127.0.0.1:1", "s3.proxy-uri": "http://127.0.0.1:1"})
    properties = {name: value for name, value in made.properties.items() if name != "type"}
    properties |= {"py-catalog-impl": f"{__name__}.Merging", "s3.proxy-uri": "http://127.0.0.1:2"}
    table = find_catalog("cat", properties).load_table("ns.t")
    assert type(table.catalog).__name__ == "Merging"
    assert "s3.endpoint" not in table.io.properties
    assert table.io.properties["s3.proxy-uri"] == "http://127.0.0.1:2"
    assert table.io.properties["s3.session-token"] == "of the catalog"
    assert pb.count(NAME, catalog_properties=properties) == 100


def test_a_partition_that_no_commit_can_be_made_with_is_told_in_one_line(made: Warehouse) -> None:
    spec = {"spec-id": 0, "fields": [{"source-id": 2, "field-id": 1000, "name": "name", "transform": "unknown"}]}
    lie(made, **{"partition-specs": [spec]})
    with pytest.raises(pb.ParquetBloomError) as caught:
        pb.add_filters(NAME, columns=["id"], catalog_properties=made.properties)
    assert "\n" not in str(caught.value)
