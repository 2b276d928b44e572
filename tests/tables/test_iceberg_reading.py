"""Snapshots of Iceberg tables: the rows are pyiceberg's, a deleted row is never shown, names lead where they should."""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, IntegerType, ListType, LongType, NestedField, StructType, TimestamptzType
from support.iceberg_tables import (
    BY_NAME,
    SCHEMA,
    Warehouse,
    add_deletes,
    append,
    as_version_3,
    by_text,
    data_file,
    deletion_vectors,
    entries,
    live_rows,
    position_deletes,
    rows_of,
    scanned,
)

import parquet_bloom as pb
from parquet_bloom.errors import DamagedFileError, RequestError, StorageError, TableFormatError
from parquet_bloom.extras import SQL_CATALOG, to_install
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Snapshot
from parquet_bloom.storage.remote import Location
from parquet_bloom.tables.iceberg import row_deletes
from parquet_bloom.tables.iceberg.row_deletes import PositionFile
from parquet_bloom.tables.iceberg.table import open_iceberg

NAME = "iceberg:cat/ns.t"
MAPPING = "schema.name-mapping.default"


def ids(snapshot: Snapshot) -> list[int]:
    return sorted(row["id"] for row in live_rows(snapshot))


def same_as_scanned(warehouse: Warehouse, name: str = "ns.t") -> Snapshot:
    """A snapshot of ours, whose rows are those of pyiceberg."""
    snapshot = warehouse.read(name)
    assert by_text(live_rows(snapshot)) == scanned(warehouse.load(name))
    return snapshot


def metadata_of(table: Table) -> Path:
    return Path(table.metadata_location.removeprefix("file://"))


# --- names and versions ---------------------------------------------------------------------------


def test_an_empty_table_has_no_files(warehouse: Warehouse) -> None:
    warehouse.create(SCHEMA)
    snapshot = warehouse.read()
    assert (snapshot.files, snapshot.version, snapshot.table) == ([], "-1", NAME)
    assert [field.name for field in snapshot.fields] == ["id", "name"]


def test_names_of_tables(warehouse: Warehouse) -> None:
    warehouse.catalog.create_namespace(("ns", "inner"))
    warehouse.filled(rows_of(1), name=("ns", "inner", "t"))
    assert ids(warehouse.read("ns.inner.t")) == [1], "namespaces may have dots"
    for name in ("t", "cat", "cat/", "cat/t", "/ns.t", "cat/ns..t"):
        with pytest.raises(RequestError, match="write iceberg:CATALOG/namespace.table"):
            open_iceberg(name, None)


def test_what_is_not_there_is_told_in_one_line(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.filled(rows_of(1))
    with pytest.raises(RequestError, match=r"^iceberg:cat/ns.u: the catalog has no such table$"):
        warehouse.open("ns.u")
    with pytest.raises(RequestError, match="has no snapshot 17, or not any longer"):
        warehouse.open(version="17")
    with pytest.raises(RequestError, match="neither a snapshot's id nor an ISO time"):
        warehouse.open(version="yesterday")
    with pytest.raises(RequestError, match="PYICEBERG_CATALOG__NOWHERE__URI"):
        open_iceberg("nowhere/ns.t", None)
    for database in (tmp_path / "no/folder.db", tmp_path):
        with pytest.raises(StorageError) as told:
            open_iceberg("cat/ns.t", None, TableAccess({"type": "sql", "uri": f"sqlite:///{database}"}))
        assert "\n" not in str(told.value), "one line"


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [m for m in sys.modules if m.startswith("parquet_bloom.tables.iceberg.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    for module in [m for m in sys.modules if m.startswith("pyiceberg.")]:
        monkeypatch.setitem(sys.modules, module, None)
    wanted = f"{to_install('iceberg')}; for a catalog in SQL add {SQL_CATALOG}"
    with pytest.raises(RequestError, match=re.escape(wanted)):
        open_iceberg("cat/ns.t", None)


def test_versions_are_snapshots_and_times(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1))
    ours, first = warehouse.open(), table.current_snapshot()
    before = ours.snapshot()
    append(table, rows_of(2))
    assert ids(ours.snapshot()) == [1, 2], "it is read anew each time"
    assert ids(before) == [1]
    then = dt.datetime.fromtimestamp(first.timestamp_ms / 1000, dt.UTC)
    for text in (str(first.snapshot_id), then.isoformat(), then.replace(tzinfo=None).isoformat()):
        assert ids(warehouse.read(version=text)) == [1], text
    assert ids(warehouse.read(version="9999-12-31")) == [1, 2]
    with pytest.raises(RequestError, match="has no snapshot 1999-12-31"):
        warehouse.open(version="1999-12-31")


def test_properties_say_which_filters_people_want(warehouse: Warehouse) -> None:
    prefix = "write.parquet.bloom-filter-"
    warehouse.create(
        SCHEMA,
        properties={
            f"{prefix}enabled.column.id": "true",
            f"{prefix}enabled.column.name": "false",
            f"{prefix}enabled.column.inner.x": "TRUE",
            f"{prefix}fpp.column.id": "0.001",
            f"{prefix}fpp.column.name": "few",
            f"{prefix}max-bytes": "1048576",
        },
    )
    assert warehouse.read().filter_settings == {
        "columns": ["id", "inner.x"],
        "fpp": {"id": 0.001},
        "max_bytes": 1048576,
        "passed_over": [f"{prefix}fpp.column.name is few, which is no number"],
    }


WRONG_PROPERTIES = [
    ("max-bytes", "nan", None),
    ("max-bytes", "inf", None),
    ("max-bytes", "1 MB", None),
    ("max-bytes", "8", "write.parquet.bloom-filter-max-bytes is 8; the smallest filter has 64 bytes"),
    ("fpp.column.id", "nan", None),
    ("fpp.column.id", "2", "write.parquet.bloom-filter-fpp.column.id is 2; a rate lies between 0 and 1"),
]


def test_a_property_that_is_wrong_is_no_trouble_for_who_reads(warehouse: Warehouse) -> None:
    prefix, given = "write.parquet.bloom-filter-", {"catalog_properties": warehouse.properties}
    for i, (name, text, told) in enumerate(WRONG_PROPERTIES):
        properties = {f"{prefix}{name}": text, f"{prefix}enabled.column.id": "true"}
        warehouse.filled(rows_of(*range(1000)), name=f"ns.t{i}", properties=properties)
        assert pb.count(f"{NAME}{i}", **given) == 1000
        if told is None:
            report = pb.add_filters(f"{NAME}{i}", **given)
            assert len(report.commits) == 1
            assert f"of them {prefix}{name} is {text}, which is no number" in report.notes
        else:
            with pytest.raises(TableFormatError, match=told):
                pb.add_filters(f"{NAME}{i}", **given)
            assert len(pb.add_filters(f"{NAME}{i}", columns=["id"], **given).commits) == 1


# --- schemas and specs ----------------------------------------------------------------------------


def test_columns_that_were_renamed_added_and_dropped(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1))
    old = table.current_snapshot().snapshot_id
    with table.update_schema() as change:
        change.rename_column("name", "title")
        change.add_column("more", DoubleType())
    append(table, [{"id": 2, "title": "y", "more": 0.5}])
    with table.update_schema() as change:
        change.delete_column("title")
        change.add_column("name", LongType())  # an old name, and another column
    snapshot = same_as_scanned(warehouse)
    assert [(field.name, field.field_id) for field in snapshot.fields] == [("id", 1), ("more", 3), ("name", 4)]
    assert ("name",) not in snapshot.files[0].bounds, "bounds are of another column that had the name"
    before = warehouse.read(version=str(old))
    assert [field.name for field in before.fields] == ["id", "name"], "a version has the schema of then"
    assert live_rows(before) == rows_of(1)


def test_promoted_columns_keep_their_bounds(warehouse: Warehouse) -> None:
    table = warehouse.filled([{"id": -3}, {"id": 9}], schema=Schema(NestedField(1, "id", IntegerType())))
    with table.update_schema() as change:
        change.update_column("id", LongType())
    append(table, [{"id": 2**40}])
    bounds = [file.bounds[("id",)] for file in warehouse.read().files]
    assert sorted((one.lower, one.upper) for one in bounds) == [(-3, 9), (2**40, 2**40)]


def test_files_of_several_specs_have_each_its_own_evidence(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1, name="a") + rows_of(2, name="b"), partition_spec=BY_NAME)
    with table.update_spec() as change:
        change.remove_field("name")
        change.add_field("id", BucketTransform(4), "id_bucket")
        change.add_field("name", TruncateTransform(1), "name_cut")
    append(table, rows_of(3, name="abc"))
    files = same_as_scanned(warehouse).files
    told = [({k: v.as_py() for k, v in file.constants.items()}, len(file.buckets)) for file in files]
    assert sorted(told, key=str) == [({"name": "a"}, 0), ({"name": "b"}, 0), ({}, 1)]


def test_a_partition_value_holds_where_the_file_lacks_the_column(warehouse: Warehouse) -> None:
    [entry] = entries(warehouse.filled(rows_of(1, name="a"), partition_spec=BY_NAME))
    path = entry.data_file.file_path.removeprefix("file://")
    pq.write_table(pq.ParquetFile(path).read(columns=["id"]), path)
    assert live_rows(warehouse.read()) == rows_of(1, name="a")


def test_columns_of_files_without_ids_go_by_the_name_mapping(warehouse: Warehouse, tmp_path: Path) -> None:
    table = warehouse.create(SCHEMA)
    path = str(tmp_path / "warehouse" / "foreign.parquet")
    pq.write_table(pa.table({"id": [7], "name": ["z"]}), path)
    table.add_files([path])
    with table.update_schema() as change:
        change.rename_column("name", "title")
    field = warehouse.read().fields[1]
    assert (field.name, {field.physical, *field.aliases}) == ("title", {"name", "title"}), "all names it ever had"


def map_names(warehouse: Warehouse, mapping: list[Any] | None) -> None:
    with warehouse.load().transaction() as change:
        if mapping is None:
            change.remove_properties(MAPPING)
        else:
            change.set_properties({MAPPING: json.dumps(mapping)})


def test_columns_that_the_name_mapping_leaves_out_are_absent(warehouse: Warehouse, tmp_path: Path) -> None:
    """As Java's library has it; pyiceberg refuses the files."""
    at = NestedField(3, "at", StructType(NestedField(5, "y", LongType())))
    more = NestedField(4, "more", ListType(6, LongType(), element_required=False))
    table = warehouse.create(Schema(*SCHEMA.fields, at, more))
    path = tmp_path / "warehouse" / "foreign.parquet"
    pq.write_table(pa.table({"id": [7], "name": ["z"], "at": [{"y": 5}], "more": [[1]]}), path)
    table.add_files([str(path)])
    given = {"catalog_properties": warehouse.properties}
    always = [{"field-id": 1, "names": ["id"]}, {"field-id": 4, "names": ["more"]}]
    for mapping, name, y in (
        (None, "z", 5),
        ([], None, None),
        ([{"field-id": 2, "names": []}], None, None),
        ([{"field-id": 2}, {"field-id": 3, "names": ["at"]}], None, None),
        ([{"field-id": 2, "names": ["label", "name"]}], "z", None),
        ([{"field-id": 3, "names": ["at"], "fields": [{"field-id": 5, "names": ["y"]}]}], None, 5),
    ):
        map_names(warehouse, None if mapping is None else [*always, *mapping])
        [row] = pb.read_table(NAME, **given).to_pylist()
        assert (row["id"], row["name"], row["at"] and row["at"]["y"], row["more"]) == (7, name, y, [1]), mapping
        assert pb.count(NAME, "name = 'z'", **given) == (name == "z"), mapping
        assert pb.count(NAME, "name IS NULL", **given) == (name is None), "though the log counted no NULL"


def imported(warehouse: Warehouse, tmp_path: Path, rows: Any = None, **options: Any) -> None:
    """A table of two numbers, a and b, whose rows lie in a file without field ids."""
    table = warehouse.create(Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType())), **options)
    path = tmp_path / "warehouse" / "foreign.parquet"
    pq.write_table(pa.table(rows or {"a": [10, 20], "b": [300, 400]}), path)
    table.add_files([str(path)])


def rows_as_counted(warehouse: Warehouse) -> list[dict[str, Any]]:
    """All rows; predicates on them count what they are."""
    given = {"catalog_properties": warehouse.properties}
    rows: list[dict[str, Any]] = pb.read_table("iceberg:cat/ns.t", **given).to_pylist()
    for name in rows[0]:
        for value in (10, 20, 300, 400):
            wanted = sum(row[name] == value for row in rows)
            assert pb.count("iceberg:cat/ns.t", f"{name} = {value}", **given) == wanted, (name, value)
        wanted = sum(row[name] is None for row in rows)
        assert pb.count("iceberg:cat/ns.t", f"{name} IS NULL", **given) == wanted, name
    return rows


def test_a_name_that_a_new_column_took_over(warehouse: Warehouse, tmp_path: Path) -> None:
    """The mapping gives the name to the new column: it has the values now, and the log counted them for the old one."""
    imported(warehouse, tmp_path)
    rename(warehouse, "a", "c")
    given = {"catalog_properties": warehouse.properties}
    for where in ("c = 11111", "b = 11111"):
        [file] = pb.check(NAME, where, **given).excluded
        assert file.decided_by == "bounds", "a plain rename gives no name to another column"
    take_over(warehouse)
    assert not pb.check(NAME, "c = 11111", **given).excluded
    assert pb.check(NAME, "b = 11111", **given).excluded, "other columns keep their bounds"
    rows = rows_as_counted(warehouse)
    assert [(row["a"], row["c"]) for row in rows] == [(10, None), (20, None)], "as pyiceberg reads it"
    assert by_text(rows) == by_text(warehouse.load().scan().to_arrow().to_pylist())


def rename(warehouse: Warehouse, old: str, new: str) -> None:
    with warehouse.load().update_schema() as change:
        change.rename_column(old, new)


def swap(warehouse: Warehouse) -> None:
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        rename(warehouse, old, new)


def take_over(warehouse: Warehouse) -> None:
    with warehouse.load().update_schema() as change:
        change.add_column("a", LongType())


def test_names_that_two_columns_swapped(warehouse: Warehouse, tmp_path: Path) -> None:
    imported(warehouse, tmp_path)
    swap(warehouse)
    assert by_text(rows_as_counted(warehouse)) == by_text(warehouse.load().scan().to_arrow().to_pylist())


def test_names_of_a_partition_column_that_were_swapped(warehouse: Warehouse, tmp_path: Path) -> None:
    """The file has a column of that name: the partition's value is another column's."""
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "part"))
    imported(warehouse, tmp_path, {"a": [10, 10], "b": [300, 400]}, partition_spec=spec)
    swap(warehouse)
    assert [(row["a"], row["b"]) for row in rows_as_counted(warehouse)] == [(10, 300), (10, 400)]


def test_a_table_that_forgot_a_schema(warehouse: Warehouse, tmp_path: Path) -> None:
    """A clean-up of metadata takes schemas that no snapshot has, and what tells of a swap with them."""
    imported(warehouse, tmp_path)
    swap(warehouse)
    path = metadata_of(warehouse.load())
    metadata = json.loads(path.read_text())
    metadata["schemas"] = [one for one in metadata["schemas"] if one["schema-id"] == metadata["current-schema-id"]]
    metadata["snapshots"][0].pop("schema-id")
    names = [{"field-id": 1, "names": ["b"]}, {"field-id": 2, "names": ["a"]}]
    metadata["properties"][MAPPING] = json.dumps(names)
    path.write_text(json.dumps(metadata))
    assert [(row["a"], row["b"]) for row in rows_as_counted(warehouse)] == [(10, 300), (20, 400)]


def test_a_mapping_that_lost_a_name(warehouse: Warehouse, tmp_path: Path) -> None:
    imported(warehouse, tmp_path)
    rename(warehouse, "a", "c")
    map_names(warehouse, [{"field-id": 1, "names": ["c"]}, {"field-id": 2, "names": ["b"]}])
    assert [row["c"] for row in rows_as_counted(warehouse)] == [None, None]


def test_files_whose_names_have_two_meanings_are_refused(warehouse: Warehouse, tmp_path: Path) -> None:
    """Engines take different ones."""
    imported(warehouse, tmp_path)
    map_names(warehouse, [{"field-id": 1, "names": ["a", "b"]}])
    with pytest.raises(TableFormatError, match=r"foreign.parquet: column a is 2 columns of the file"):
        pb.read_table(NAME, catalog_properties=warehouse.properties)
    swap(warehouse)
    map_names(warehouse, None)
    with pytest.raises(TableFormatError, match=rf"foreign.parquet: column b shared a name .* {MAPPING}"):
        pb.read_table(NAME, catalog_properties=warehouse.properties)


def test_defaults_of_added_columns_come_along(warehouse: Warehouse) -> None:
    path = metadata_of(warehouse.filled(rows_of(1)))
    metadata = json.loads(path.read_text())
    price = {"id": 3, "name": "price", "type": "decimal(5, 2)", "required": False, "initial-default": "1.25"}
    metadata["schemas"][0]["fields"].append(price)
    metadata["last-column-id"] = 3
    path.write_text(json.dumps(metadata))
    assert live_rows(warehouse.read()) == [{"id": 1, "name": "x", "price": Decimal("1.25")}]


# --- deleted rows ---------------------------------------------------------------------------------


def test_position_deletes_hide_rows(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(*range(10)))
    [entry] = entries(table)
    for rows in ([0, 3, 9], [3, 4]):
        add_deletes(table, position_deletes(table, {entry.data_file.file_path: rows}, entry.data_file))
    append(table, rows_of(10, 11))
    snapshot = same_as_scanned(warehouse)
    assert ids(snapshot) == [1, 2, 5, 6, 7, 8, 10, 11]
    assert sorted(file.deletes is None for file in snapshot.files) == [False, True], "newer files have no deletes"
    assert next(f.deletes.rows for f in snapshot.files if f.deletes) is None, "two files may name one row"


def test_position_deletes_of_many_files_lie_in_one(warehouse: Warehouse) -> None:
    for bounds, name in ((True, "ns.bounds"), (False, "ns.none")):
        table = warehouse.filled(*(rows_of(10 * i, 10 * i + 1) for i in range(3)), name=name)
        paths = {e.data_file.file_path: [0] for e in entries(table)[:2]}
        add_deletes(table, position_deletes(table, paths, entries(table)[0].data_file, bounds))
        assert len(ids(same_as_scanned(warehouse, name))) == 4


def position_file(path: Path, rows: Sequence[tuple[str, int]], **options: Any) -> PositionFile:
    table = pa.table({"file_path": [name for name, _ in rows], "pos": pa.array([at for _, at in rows], pa.int64())})
    pq.write_table(table, path, **options)
    return PositionFile(Location(str(path)), "PARQUET")


def test_position_deletes_of_many_row_groups(tmp_path: Path) -> None:
    rng = random.Random(7)
    rows = [(rng.choice("abcd"), rng.randrange(500)) for _ in range(2000)]
    for use_dictionary in (True, False):
        file = position_file(tmp_path / "d", rows, row_group_size=300, use_dictionary=use_dictionary)
        for name in "abcde":
            assert file.positions(name).tolist() == sorted({at for path, at in rows if path == name})
    assert position_file(tmp_path / "none", []).positions("a").tolist() == []


@pytest.mark.slow
def test_position_deletes_with_more_than_2_gb_of_paths(tmp_path: Path) -> None:
    """As a job leaves them that deleted a whole partition: a file of 20 MB."""
    name, step = "s3://bucket/" + "x" * 138, 1 << 20
    paths = pa.repeat(name, step)
    with pq.ParquetWriter(tmp_path / "d", pa.schema({"file_path": pa.string(), "pos": pa.int64()})) as writer:
        for first in range(0, 16 * step, step):
            writer.write_table(pa.table({"file_path": paths, "pos": pa.array(range(first, first + step))}))
    file = PositionFile(Location(str(tmp_path / "d")), "PARQUET")
    assert len(file.positions(name)) == 16 * step > (1 << 31) // len(name)


def test_position_deletes_that_cannot_be_read_are_told_with_their_file(tmp_path: Path) -> None:
    for table in (pa.table({"file_path": [1], "pos": [2]}), pa.table({"file_path": ["a"], "pos": [None]})):
        pq.write_table(table, tmp_path / "odd")
        with pytest.raises(DamagedFileError, match="odd: its position deletes"):
            PositionFile(Location(str(tmp_path / "odd")), "PARQUET").positions("a")


def test_older_position_deletes_and_those_of_other_partitions_do_not_apply(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1, 2, name="a") + rows_of(3, 4, name="b"), partition_spec=BY_NAME)
    a, b = sorted(entries(table), key=lambda e: e.data_file.partition[0])
    both = {a.data_file.file_path: [0], b.data_file.file_path: [0]}
    add_deletes(table, position_deletes(table, both, a.data_file))
    assert ids(warehouse.read()) == [2, 3, 4], "the file with deletes is of partition a, whatever paths it holds"


def test_position_deletes_apply_to_files_of_the_same_commit(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA)
    file = data_file(table, rows_of(1, 2, 3))
    add_deletes(table, position_deletes(table, {file.file_path: [1]}, file), data=[file])
    assert ids(same_as_scanned(warehouse)) == [1, 3]


def test_the_partition_of_nan_has_its_deletes(warehouse: Warehouse) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "d"))
    rows = [{"d": value} for value in (math.nan, 0.0, 1.5)]
    table = warehouse.filled(rows, schema=Schema(NestedField(1, "d", DoubleType())), partition_spec=spec)
    for entry in entries(table):
        add_deletes(table, position_deletes(table, {entry.data_file.file_path: [0]}, entry.data_file, bounds=False))
    assert live_rows(warehouse.read()) == []


def test_position_deletes_in_other_formats(warehouse: Warehouse) -> None:
    for kind in ("ORC", "AVRO"):
        table = warehouse.filled(rows_of(*range(5)), name=f"ns.{kind}")
        [entry] = entries(table)
        made = position_deletes(table, {entry.data_file.file_path: [1, 2]}, entry.data_file)
        path = made.file_path.removeprefix("file://")
        rows = pq.read_table(path)
        if kind == "ORC":
            orc.write_table(rows, path)
        else:
            output = table.io.new_output(made.file_path)
            with AvroOutputFile[Record](output, row_deletes.avro_schema(), "deletes") as sink:
                sink.write_block([Record(*row.values()) for row in rows.to_pylist()])
        made._data[2] = kind
        add_deletes(table, made)
        assert ids(warehouse.read(f"ns.{kind}")) == [0, 3, 4]


def test_a_cut_path_bound_still_stands_for_the_file(warehouse: Warehouse) -> None:
    for upper in (16, 17):  # both bounds alike, or the upper one longer
        table = warehouse.filled(rows_of(*range(5)), name=f"ns.t{upper}")
        [entry] = entries(table)
        made = position_deletes(table, {entry.data_file.file_path: [1]}, entry.data_file)
        path = entry.data_file.file_path.encode()
        made._data[10], made._data[11] = {row_deletes.PATH: path[:16]}, {row_deletes.PATH: path[:upper]}
        add_deletes(table, made)
        ours = warehouse.open(f"ns.t{upper}")
        snapshot = ours.snapshot()
        assert ids(snapshot) == [0, 2, 3, 4]
        assert [way.default for way in ours.commit_modes(snapshot).values()] == ["same-path"]


def test_deletion_vectors_hide_rows_and_replace_position_deletes(warehouse: Warehouse) -> None:
    table = warehouse.filled(*(rows_of(*range(100 * i, 100 * i + 100)) for i in range(2)))
    files = {e.data_file.file_path: e.data_file for e in entries(table)}
    one, two = files
    add_deletes(table, position_deletes(table, {one: [5]}, files[one]))
    vectors = deletion_vectors(table, {one: [0, 5, 99], two: list(range(7, 60))}, files)
    add_deletes(table, vectors[0])  # the other blob of the file belongs to nobody
    as_version_3(warehouse, "ns.first")
    assert len(ids(warehouse.read("ns.first"))) == 200 - 3, "a vector is where its entry says"
    add_deletes(table, vectors[1])
    as_version_3(warehouse, "ns.modern")
    snapshot = same_as_scanned(warehouse, "ns.modern")
    assert len(ids(snapshot)) == 200 - 3 - 53
    assert sorted(file.deletes.rows for file in snapshot.files if file.deletes) == [3, 53]


def test_a_damaged_vector_is_told_and_not_passed_over(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(*range(10)))
    [entry] = entries(table)
    [made] = deletion_vectors(table, {entry.data_file.file_path: [1]}, {entry.data_file.file_path: entry.data_file})
    add_deletes(table, made)
    path = Path(made.file_path.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)
    [file] = warehouse.read().files
    with pytest.raises(DamagedFileError, match="CRC-32"):
        file.deletes.positions()
    path.unlink()
    with pytest.raises(StorageError):
        file.deletes.positions()


def test_random_deletes_give_the_rows_of_pyiceberg(warehouse: Warehouse) -> None:
    rng = random.Random(3)
    table = warehouse.create(SCHEMA, partition_spec=BY_NAME)
    for step in range(12):
        if step % 3 == 0:
            append(table, [{"id": rng.randrange(1000), "name": rng.choice("abc")} for _ in range(30)])
            continue
        live = entries(table)
        part = rng.choice(live).data_file.partition
        near = [e.data_file for e in live if e.data_file.partition == part]
        chosen = rng.sample(near, rng.randint(1, len(near)))
        gone = {f.file_path: rng.sample(range(f.record_count), rng.randint(1, f.record_count)) for f in chosen}
        add_deletes(table, position_deletes(table, gone, near[0], rng.random() < 0.5))
        same_as_scanned(warehouse)


# --- what cannot be read --------------------------------------------------------------------------


def test_a_table_of_other_files_is_refused(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1))
    other = data_file(table, rows_of(2))
    other._data[2] = "ORC"
    with table.transaction() as change, change.update_snapshot().fast_append() as adding:
        adding.append_data_file(other)
    with pytest.raises(TableFormatError, match="has data files in ORC; only Parquet is read"):
        warehouse.read()


def test_metadata_that_pyiceberg_does_not_know_are_told_in_one_line(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(1))
    path = metadata_of(table)
    text = path.read_text()
    path.write_text(text.replace('"type":"long"', '"type":"variant"'))
    with pytest.raises(TableFormatError, match=rf"{NAME}: has metadata that pyiceberg cannot read.*variant") as told:
        warehouse.open()
    assert "\n" not in str(told.value)
    path.write_text(text)
    [manifest] = table.current_snapshot().manifests(table.io)
    Path(manifest.manifest_path.removeprefix("file://")).write_bytes(b"no Avro")
    with pytest.raises((TableFormatError, StorageError), match=f"^{NAME}: "):
        warehouse.read()
    warehouse.create(SCHEMA, "ns.u", properties={MAPPING: "{not json"})
    with pytest.raises(TableFormatError, match="cannot read: .*NameMapping.*Invalid JSON") as told:
        warehouse.read("ns.u")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("which", ["list", "manifest"])
def test_metadata_that_are_cut_off_never_pass_for_fewer_files(warehouse: Warehouse, which: str) -> None:
    table = warehouse.filled([{"id": i, "name": "abc"[i % 3]} for i in range(9)], partition_spec=BY_NAME)
    snapshot = table.current_snapshot()
    [manifest] = snapshot.manifests(table.io)
    path = Path((snapshot.manifest_list if which == "list" else manifest.manifest_path).removeprefix("file://"))
    data = path.read_bytes()
    marker = data[-16:]
    ends = [at + 16 for at in range(len(data) - 16) if data[at : at + 16] == marker]  # of the header, and of blocks
    for kept in [*range(0, len(data), 97), *ends]:
        path.write_bytes(data[:kept])
        with pytest.raises((TableFormatError, StorageError)):
            warehouse.read()
    path.write_bytes(data)
    assert len(live_rows(warehouse.read())) == 9


def test_a_time_with_a_zone_is_of_that_zone(warehouse: Warehouse) -> None:
    warehouse.create(Schema(NestedField(1, "at", TimestamptzType())))
    assert warehouse.read().fields[0].type == pa.timestamp("us", "UTC")


def test_catalogs_are_configured_as_pyiceberg_has_it(warehouse: Warehouse, tmp_path: Path) -> None:
    warehouse.filled(rows_of(1, 2, 3))
    told = "".join(f"    {name}: {value}\n" for name, value in warehouse.properties.items())
    (tmp_path / ".pyiceberg.yaml").write_text(f"catalog:\n  cat:\n{told}")
    command = [sys.executable, "-m", "parquet_bloom", "read", NAME, "--where", "id > 1", "--format", "csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ['"id","name"', '2,"x"', '3,"x"'], done.stderr


def test_a_catalog_that_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "misspelt.db"
    properties = {"type": "sql", "uri": f"sqlite:///{database}", "warehouse": f"file://{tmp_path}"}
    with pytest.raises(
        StorageError, match=f"^iceberg:cat: there is no database {database}; check the catalog's property uri$"
    ):
        pb.check("iceberg:cat/ns.t", "id = 5", catalog_properties=properties)
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__ENV__{name.upper()}", value)
    with pytest.raises(StorageError, match="there is no database"):
        pb.check("iceberg:env/ns.t", "id = 5")
    assert not database.exists()
    database.write_bytes(b"")
    with pytest.raises(RequestError, match="has no table iceberg_tables, so it is no catalog; check its property"):
        pb.check("iceberg:cat/ns.t", "id = 5", catalog_properties=properties)
    assert database.read_bytes() == b""
    with pytest.raises(RequestError, match="the catalog has no such table"):  # as was asked for
        pb.check("iceberg:cat/ns.t", "id = 5", catalog_properties=properties | {"init_catalog_tables": "true"})
    assert database.read_bytes() != b""
