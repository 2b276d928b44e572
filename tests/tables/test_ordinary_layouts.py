"""Tables as people lay them out: each opens as its own reader opens it, or with the one option that is printed."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import fs
from support.ducklake_tables import NOTHING_INLINED, Lake
from support.iceberg_tables import SCHEMA, Warehouse, append, rows_of
from support.object_store import KEY, REGION, SECRET, ObjectStore, options_of

import parquet_bloom as pb
from parquet_bloom.errors import TableFormatError

ROWS = pa.table({"id": pa.array(range(40), pa.int64()), "k": ["a b", "100%", "x+y=z", "c"] * 10})


def same(name: str, wanted: list[int], **more: Any) -> None:
    """A count and a read give these ids."""
    assert wanted, "a table without rows shows nothing"
    assert pb.count(name, **more) == len(wanted)
    assert sorted(pb.read_table(name, **more)["id"].to_pylist()) == sorted(wanted)
    assert pb.read_table(name, f"id = {wanted[0]}", **more).num_rows == wanted.count(wanted[0])


def same_with_the_option(name: str, wanted: list[int], **more: Any) -> None:
    """The same, with the one option that the refusal prints."""
    with pytest.raises(TableFormatError) as caught:
        pb.count(name, **more)
    options = re.findall(r"allow_roots='([^']*)'", str(caught.value))
    assert len(options) == 1, str(caught.value)
    same(name, wanted, allow_roots=options[0], **more)


# --- Delta ----------------------------------------------------------------------------------------


def delta(root: Path, **more: Any) -> list[int]:
    write_deltalake(str(root), ROWS, **more)
    return [*DeltaTable(str(root)).to_pyarrow_table()["id"].to_pylist()]


def clone(root: Path, of: Path | str, scheme: str = "") -> None:
    """A shallow clone: the log of another table, whose files it names absolutely."""
    log = Path(of) / "_delta_log" / f"{0:020d}.json"
    text = re.sub(r'("add":\{"path":")', rf"\g<1>{scheme or of}/", log.read_text())
    assert text != log.read_text()
    (root / "_delta_log").mkdir(parents=True)
    (root / "_delta_log" / log.name).write_text(text)


SPELLINGS = ["{0}/t", "{0}/t/", "t", "./t", "~/t", "file:{0}/t", "file://{0}/t", "{0}/link/t"]


def test_delta_by_each_spelling_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = delta(tmp_path / "t")
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    log = tmp_path / "t/_delta_log" / f"{0:020d}.json"
    for spelling in SPELLINGS:
        same(f"delta:{spelling.format(tmp_path)}", wanted)
    log.write_text(log.read_text().replace('"add":{"path":"', f'"add":{{"path":"{tmp_path}/t/'))
    for spelling in SPELLINGS:  # a log that names its own files absolutely
        same(f"delta:{spelling.format(tmp_path)}", wanted)


def test_delta_with_folders_of_partitions_whose_names_are_encoded(tmp_path: Path) -> None:
    wanted = delta(tmp_path / "t", partition_by=["k"])
    assert any("%" in path.name for path in (tmp_path / "t").iterdir())
    same(f"delta:{tmp_path}/t", wanted)
    assert pb.count(f"delta:{tmp_path}/t", "k = 'x+y=z'") == 10


def test_delta_that_is_a_shallow_clone(tmp_path: Path) -> None:
    wanted = delta(tmp_path / "t")
    clone(tmp_path / "clone", tmp_path / "t")
    same_with_the_option(f"delta:{tmp_path}/clone", wanted)


def test_delta_on_a_file_system_that_is_passed(tmp_path: Path) -> None:
    wanted = delta(tmp_path / "t")
    same("delta:t", wanted, filesystem=fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()))
    same(f"delta:{tmp_path}/t", wanted, filesystem=fsspec.filesystem("file"))


def test_delta_on_s3(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    """With options in its name; with absolute names of its own; a clone of a table in another bucket."""
    write_deltalake(f"s3://{bucket}/t", ROWS, storage_options=options_of(store))
    told = DeltaTable(f"s3://{bucket}/t", storage_options=options_of(store)).to_pyarrow_table()
    wanted = told["id"].to_pylist()
    same(f"delta:{store.uri(bucket + '/t')}", wanted)
    key = f"{bucket}/t/_delta_log/{0:020d}.json"
    text = store.get(key).decode()
    absolute = text.replace('"add":{"path":"', f'"add":{{"path":"s3://{bucket}/t/').encode()
    store.put(f"{bucket}/clone/_delta_log/{0:020d}.json", absolute)
    same_with_the_option(f"delta:{store.uri(bucket + '/clone')}", wanted)
    store.put(key, absolute)
    same(f"delta:{store.uri(bucket + '/t')}", wanted)


# --- Iceberg --------------------------------------------------------------------------------------


def iceberg(warehouse: Warehouse, **more: Any) -> list[int]:
    table = warehouse.create(SCHEMA, **more)
    table.append(pa.table({"id": pa.array(range(30), pa.int64()), "name": ["x"] * 30}))
    return [*table.scan().to_arrow()["id"].to_pylist()]


def test_iceberg_in_a_warehouse_that_is_a_uri_or_a_path(warehouse: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with closing(Warehouse(tmp_path / "plain", warehouse=str(tmp_path / "plain" / "warehouse"))) as plain:
        for one in (warehouse, plain):
            same("iceberg:cat/ns.t", iceberg(one), catalog_properties=one.properties)


def test_iceberg_that_lies_outside_of_its_warehouse(warehouse: Warehouse, tmp_path: Path) -> None:
    for what in ("location", "write.data.path"):
        said = {what: f"file://{tmp_path}/{what}"}
        wanted = iceberg(warehouse, **(said if what == "location" else {"properties": said}))
        assert list((tmp_path / what).rglob("*.parquet"))
        same("iceberg:cat/ns.t", wanted, catalog_properties=warehouse.properties)
        warehouse.catalog.drop_table("ns.t")


def test_iceberg_with_files_that_were_added(warehouse: Warehouse, tmp_path: Path) -> None:
    iceberg(warehouse)
    more = pa.table({"id": pa.array(range(100, 110), pa.int64()), "name": ["y"] * 10})
    for folder, check in (("warehouse/added", same), ("elsewhere", same_with_the_option)):
        (tmp_path / folder).mkdir(parents=True)
        pq.write_table(more, tmp_path / folder / "x.parquet")
        warehouse.load().add_files([f"file://{tmp_path}/{folder}/x.parquet"])
        wanted = warehouse.load().scan().to_arrow()["id"].to_pylist()
        check("iceberg:cat/ns.t", wanted, catalog_properties=warehouse.properties)


def test_iceberg_that_was_registered(warehouse: Warehouse, tmp_path: Path) -> None:
    wanted = iceberg(warehouse)
    (tmp_path / "second").mkdir()
    other = Warehouse(tmp_path / "second")
    other.catalog.register_table("ns.t", warehouse.load().metadata_location)
    same("iceberg:cat/ns.t", wanted, catalog_properties=other.properties)
    other.close()


def test_iceberg_whose_catalog_is_here_and_data_on_s3(bucket: str, store: ObjectStore, tmp_path: Path) -> None:
    made = Warehouse(
        tmp_path, warehouse=f"s3://{bucket}/lake", **{"s3.endpoint": store.endpoint, "s3.access-key-id": KEY},
        **{"s3.secret-access-key": SECRET, "s3.region": REGION},
    )  # fmt: skip
    table = made.create(SCHEMA)
    append(table, rows_of(*range(12)))
    same("iceberg:cat/ns.t", table.scan().to_arrow()["id"].to_pylist(), catalog_properties=made.properties)
    made.close()


# --- DuckLake -------------------------------------------------------------------------------------


def lake_of(folder: Path, *more: str) -> tuple[Lake, list[int]]:
    lake = Lake(folder, True)
    lake.sql(NOTHING_INLINED, "CREATE TABLE t AS SELECT range AS id FROM range(30)", *more)
    wanted = [row["id"] for row in lake.answer("FROM t")]
    return lake.release(), wanted


def changed_data_path(lake: Lake, path: str) -> None:
    with closing(sqlite3.connect(lake.catalog)) as connection, connection:
        connection.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", [path])


def test_ducklake_beside_its_data_and_apart_from_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """data_path is absolute: a catalog that moves still finds them. Data that move need the property."""
    lake, wanted = lake_of(tmp_path / "lake")
    same(f"ducklake:{lake.name()}", wanted)
    changed_data_path(lake, "data/")
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path / "lake")
        same(f"ducklake:{lake.name()}", wanted)
    changed_data_path(lake, f"{lake.data}/")
    moved = lake.catalog.rename(tmp_path / "moved.sqlite")
    same(f"ducklake:{moved}/main.t", wanted)
    lake.data.rename(tmp_path / "moved")
    same(f"ducklake:{moved}/main.t", wanted, catalog_properties={"data_path": f"{tmp_path}/moved/"})


def test_ducklake_with_files_that_were_added(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    pq.write_table(pa.table({"id": pa.array([500, 501], pa.int64())}), tmp_path / "others" / "x.parquet")
    added = f"CALL ducklake_add_data_files('lake', 't', '{tmp_path}/others/x.parquet')"
    lake, wanted = lake_of(tmp_path / "lake", added)
    assert 500 in wanted
    same_with_the_option(f"ducklake:{lake.name()}", wanted)


def test_ducklake_whose_data_are_on_s3(
    bucket: str, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, wanted = lake_of(tmp_path / "lake")
    for path in lake.data.rglob("*.parquet"):
        store.put(f"{bucket}/lake/{path.relative_to(lake.data)}", path.read_bytes())
        path.unlink()
    same(f"ducklake:{lake.name()}", wanted, catalog_properties={"data_path": store.uri(f"{bucket}/lake/")})
    changed_data_path(lake, f"s3://{bucket}/lake/")
    said = {"AWS_ENDPOINT_URL": store.endpoint, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    for name, value in {**said, "AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}.items():
        monkeypatch.setenv(name, value)
    same(f"ducklake:{lake.name()}", wanted)
