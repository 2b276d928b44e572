"""Equality deletes: the rows that they delete are those a plain comparison finds; what is not sure is refused."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from support.iceberg_tables import (
    BY_NAME,
    Warehouse,
    add_deletes,
    append,
    by_text,
    data_file,
    entries,
    equality_deletes,
    live_rows,
    position_deletes,
    rows_of,
)
from support.random_questions import random_rows
from support.repeats import first_then_more

from parquet_bloom.errors import TableFormatError

KINDS: dict[str, tuple[Any, list[Any]]] = {
    "id": (LongType(), [0, 1, 2, 2**60]),
    "name": (StringType(), ["", "a", "b"]),
    "flag": (BooleanType(), [True, False]),
    "day": (DateType(), [dt.date(1969, 1, 1), dt.date(2020, 2, 2)]),
    "at": (TimestamptzType(), [dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)]),
    "price": (DecimalType(9, 2), [Decimal("1.25"), Decimal("-1.25")]),
    "key": (UUIDType(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127).bytes]),
    "raw": (BinaryType(), [b"", b"\x00"]),
}
SCHEMA = Schema(*[NestedField(i + 1, name, kind) for i, (name, (kind, _)) in enumerate(KINDS.items())])


def ids(warehouse: Warehouse) -> list[Any]:
    return sorted(row["id"] for row in live_rows(warehouse.read()))


KNOWN = {name: values for name, (_, values) in KINDS.items()}


@pytest.mark.parametrize("seed", first_then_more(range(4), 2))
def test_random_deletes_delete_what_a_plain_comparison_finds(warehouse: Warehouse, seed: int) -> None:
    rng = random.Random(seed)
    table = warehouse.create(SCHEMA)
    wanted: list[dict[str, Any]] = []
    for _ in range(3):
        rows = random_rows(rng, KNOWN, 60, nulls=0.3)
        append(table, rows)
        wanted += rows
        for _ in range(2):
            columns = rng.sample(list(KINDS), rng.randint(2, 3))
            gone = random_rows(rng, KNOWN, 3, nulls=0.3)
            arrow = pa.Table.from_pylist(gone, schema=schema_to_pyarrow(SCHEMA))
            add_deletes(table, equality_deletes(table, columns, arrow, entries(table)[0].data_file))
            keys = {tuple(row[name] for name in columns) for row in gone}
            wanted = [row for row in wanted if tuple(row[name] for name in columns) not in keys]
    assert 0 < len(wanted) < 180, "some rows live, and some do not"
    assert by_text(live_rows(warehouse.read())) == by_text(wanted)


def test_rows_of_later_files_and_other_partitions_live(warehouse: Warehouse) -> None:
    rows = [{"id": 1, "name": "a"}, {"id": 1, "name": "b"}, {"id": 2, "name": "a"}]
    table = warehouse.filled(rows, partition_spec=BY_NAME)
    a = next(e.data_file for e in entries(table) if e.data_file.partition[0] == "a")
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [1]}), a))
    append(table, [{"id": 1, "name": "a"}])
    assert by_text(live_rows(warehouse.read())) == by_text(rows), "the deleted row, which came again, among them"


def test_rows_of_files_of_the_same_commit_live(warehouse: Warehouse) -> None:
    """An upsert deletes the old row and adds the new one with the same key, in one commit."""
    table = warehouse.filled([{"id": 1, "name": "old"}, {"id": 2, "name": "other"}])
    file = data_file(table, [{"id": 1, "name": "new"}])
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [1]}), file), data=[file])
    assert by_text(live_rows(warehouse.read())) == by_text([{"id": 1, "name": "new"}, {"id": 2, "name": "other"}])


def test_deletes_of_an_unpartitioned_spec_are_of_all_files(warehouse: Warehouse) -> None:
    table = warehouse.filled([{"id": 1, "name": "a"}], partition_spec=UNPARTITIONED_PARTITION_SPEC)
    flat = entries(table)[0].data_file
    with table.update_spec() as change:
        change.add_identity("name")
    append(table, [{"id": 1, "name": "b"}, {"id": 2, "name": "b"}])
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [1]}), flat))
    assert ids(warehouse) == [2]


@pytest.mark.parametrize("beside", [False, True])
def test_deletes_of_a_spec_whose_fields_are_all_void_are_of_all_files(warehouse: Warehouse, beside: bool) -> None:
    """What a field of format version 1 becomes that is dropped. Java calls such a spec unpartitioned.

    beside: it has another field as well, and the deletes are of one partition.
    """
    table = warehouse.filled([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], partition_spec=BY_NAME, version=1)
    with table.update_spec() as change:
        change.remove_field("name")
    with table.transaction() as change:
        change.upgrade_table_version(2)
    if beside:
        with table.update_spec() as change:
            change.add_identity("id")
    file = data_file(table, [{"id": 3, "name": "c"}], (None, 3) if beside else (None,))
    add_deletes(table, data=[file])
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [1, 3]}), file))
    assert ids(warehouse) == ([1, 2] if beside else [2])


def test_positions_and_values_delete_together(warehouse: Warehouse) -> None:
    table = warehouse.filled(rows_of(*range(5)))
    [entry] = entries(table)
    add_deletes(table, position_deletes(table, {entry.data_file.file_path: [0]}, entry.data_file))
    add_deletes(table, equality_deletes(table, ["id"], pa.table({"id": [3, 99]}), entry.data_file))
    assert ids(warehouse) == [1, 2, 4]
    [file] = warehouse.read().files
    assert file.deletes.rows is None
    assert file.deletes.positions().tolist() == [0, 3]


def test_columns_that_were_promoted_renamed_added_and_dropped(warehouse: Warehouse) -> None:
    narrow = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "name", StringType()))
    table = warehouse.filled([{"id": i, "name": name} for i, name in enumerate("abc", 1)], schema=narrow)
    file = entries(table)[0].data_file
    add_deletes(table, equality_deletes(table, ["name"], pa.table({"name": ["c"]}), file))
    with table.update_schema() as change:
        change.update_column("id", LongType())
        change.rename_column("id", "number")
        change.delete_column("name")
    with table.update_schema() as change:
        change.add_column("name", LongType())  # another column of the old name
    add_deletes(table, equality_deletes(table, ["number"], pa.table({"number": [2]}), file))
    assert [row["number"] for row in live_rows(warehouse.read())] == [1]
    nulls = pa.table({"name": pa.array([None], pa.int64())})
    add_deletes(table, equality_deletes(table, ["name"], nulls, file))
    assert live_rows(warehouse.read()) == [], "the file lacks the column, so it is NULL there"


def test_a_partition_value_stands_for_a_column_that_the_file_lacks(warehouse: Warehouse) -> None:
    table = warehouse.filled([{"id": 1, "name": "a"}], partition_spec=BY_NAME)
    [entry] = entries(table)
    path = entry.data_file.file_path.removeprefix("file://")
    pq.write_table(pq.ParquetFile(path).read(columns=["id"]), path)
    for name, left in (("b", [1]), ("a", [])):
        add_deletes(table, equality_deletes(table, ["name"], pa.table({"name": [name]}), entry.data_file))
        assert ids(warehouse) == left


def test_times_of_96_bits_are_compared_as_what_they_are(warehouse: Warehouse) -> None:
    """As old Spark wrote them into files that a table took over; as nanoseconds the year 9999 would be 1816."""
    end = dt.datetime(9999, 12, 31, 1, 2, 3, 456789)
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))
    table = warehouse.filled([{"id": 1, "at": end}, {"id": 2, "at": dt.datetime(2020, 1, 1)}], schema=schema)
    [entry] = entries(table)
    path = entry.data_file.file_path.removeprefix("file://")
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    gone = pa.table({"at": pa.array([end], pa.timestamp("us"))})
    add_deletes(table, equality_deletes(table, ["at"], gone, entry.data_file))
    assert ids(warehouse) == [2]


def refused(warehouse: Warehouse, name: str = "ns.t") -> str:
    [file] = warehouse.read(name).files
    with pytest.raises(TableFormatError) as told:
        file.deletes.positions()
    assert "compact the table with its deletes first" in str(told.value), "it says what to do"
    assert "\n" not in str(told.value)
    return str(told.value)


def test_floats_and_nested_columns_are_refused(warehouse: Warehouse) -> None:
    inner = StructType(NestedField(3, "x", LongType()))
    schema = Schema(NestedField(1, "id", DoubleType()), NestedField(2, "s", inner))
    rows = [{"id": 0.0, "s": {"x": 1}}]
    for name, field, told in (("ns.float", 1, "by id"), ("ns.nested", 3, "field 3")):
        table = warehouse.filled(rows, schema=schema, name=name)
        [entry] = entries(table)
        made = equality_deletes(table, ["id"], pa.table({"id": [-0.0]}), entry.data_file)
        made._data[14] = [field]
        add_deletes(table, made)
        assert told in refused(warehouse, name)


def test_files_without_field_ids_and_deletes_in_other_formats_are_refused(warehouse: Warehouse) -> None:
    for name in ("ns.ids", "ns.avro"):
        table = warehouse.filled([{"id": 1, "name": "a"}], name=name)
        [entry] = entries(table)
        made = equality_deletes(table, ["id"], pa.table({"id": [1]}), entry.data_file)
        if name == "ns.avro":
            made._data[2] = "AVRO"
        else:
            pq.write_table(pa.table({"id": [1], "name": ["a"]}), entry.data_file.file_path.removeprefix("file://"))
        add_deletes(table, made)
    assert "field ids" in refused(warehouse, "ns.ids")
    assert "in AVRO" in refused(warehouse, "ns.avro")
