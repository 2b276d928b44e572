"""Iceberg logs that contradict themselves or their files: rows are the ones that files show, and none is lost."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DATA_FILE_TYPE
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import BinaryType, DateType, FixedType, LongType, NestedField, StringType
from support.iceberg_tables import Warehouse, append, by_text, data_file
from support.repeats import first_then_more

import parquet_bloom as pb

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "k", LongType()))
BY_K = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "k"))


def ask(warehouse: Warehouse, where: str | None = None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pb.read_table(
        "iceberg:cat/ns.t", where, catalog_properties=warehouse.properties
    ).to_pylist()
    assert pb.count("iceberg:cat/ns.t", where, catalog_properties=warehouse.properties) == len(rows)
    return rows


def added(warehouse: Warehouse, table: Table, arrow: pa.Table, **options: Any) -> None:
    """Have pyiceberg take in a file that another program wrote."""
    path = Path(warehouse.root.removeprefix("file://")) / "x.parquet"
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(arrow, path, **options)
    table.add_files([f"file://{path}"])


# --- as pyiceberg 0.12 writes them ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "k", "options", "value", "other"),
    [
        (LongType(), 7, {"write_statistics": False}, "7", "5"),
        (StringType(), "x" * 5000, {}, f"'{'x' * 5000}'", "'y'"),  # more than 4 KB: no bounds, but a count of NULLs
    ],
    ids=["no statistics", "no bounds"],
)
def test_a_file_without_statistics_that_pyiceberg_added_gives_its_rows(
    warehouse: Warehouse, kind: Any, k: Any, options: Any, value: str, other: str
) -> None:
    table = warehouse.create(Schema(SCHEMA.fields[0], NestedField(2, "k", kind)), partition_spec=BY_K)
    added(warehouse, table, pa.table({"id": range(40), "k": [k] * 40}), **options)
    [file] = [task.file for task in warehouse.load().scan().plan_files()]
    assert file.partition[0] is None, "what this test is about"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pb.FilterWarning)
        assert len(ask(warehouse, f"k = {value}")) == 40
        assert len(ask(warehouse, f"k <> {other}")) == 40
        assert len(ask(warehouse, f"k IN ({other}, {value}) AND id < 10")) == 10
        assert len(ask(warehouse, "k IS NOT NULL")) == 40
        assert ask(warehouse, "k IS NULL") == []
        assert ask(warehouse, f"k = {other}") == []


def test_a_null_of_another_transform_is_no_evidence_either(warehouse: Warehouse) -> None:
    for transform, kind, values, where in (
        (TruncateTransform(10), LongType(), pa.array(range(40)), "k = 25"),
        (DayTransform(), DateType(), pa.array(range(20000, 20040), pa.int32()).cast("date32"), "k = DATE '2024-10-29'"),
    ):
        spec = PartitionSpec(PartitionField(2, 1000, transform, "p"))
        table = warehouse.create(Schema(SCHEMA.fields[0], NestedField(2, "k", kind)), partition_spec=spec)
        added(warehouse, table, pa.table({"id": range(40), "k": values}), write_statistics=False)
        assert [row["id"] for row in ask(warehouse, where)] == [25]
        warehouse.catalog.drop_table("ns.t")


# --- sound ones -----------------------------------------------------------------------------------


def test_a_null_partition_whose_count_agrees_still_keeps_files_closed(warehouse: Warehouse) -> None:
    table = warehouse.create(SCHEMA, partition_spec=BY_K)
    append(table, [{"id": i, "k": None if i % 2 else 7} for i in range(40)])
    for entry in warehouse.read().files:
        if not entry.constants["k"].is_valid:
            Path(entry.path).unlink()  # who opened it would fail
    assert len(ask(warehouse, "k = 7")) == 20
    assert len(ask(warehouse, "k <> 5")) == 20
    for entry in warehouse.read().files:
        Path(entry.path).unlink(missing_ok=True)
    assert ask(warehouse, "k = 8") == []
    assert ask(warehouse, "k > 100") == []


# --- lies -----------------------------------------------------------------------------------------


def lying(table: Table, rows: list[dict[str, Any]], partition: Any, statistics: bool = True, **fields: Any) -> None:
    """Append a file of which the log has a partition of its own, and counts and bounds of its own.

    statistics  whether the file's footer has them
    """
    file = data_file(table, rows, (partition,))
    path = Path(file.file_path.removeprefix("file://"))
    pq.write_table(pq.read_table(path), path, write_statistics=statistics)
    fields["file_size_in_bytes"] = path.stat().st_size
    for i, one in enumerate(DATA_FILE_TYPE[2].fields):
        if one.name in fields:
            file._data[i] = fields[one.name]
    with table.transaction() as change, change.update_snapshot().fast_append() as adding:
        adding.append_data_file(file)
    table.refresh()


NO_METRICS: dict[str, Any] = {"null_value_counts": {}, "value_counts": {}, "lower_bounds": {}, "upper_bounds": {}}


def test_rows_are_filtered_by_the_values_that_are_shown(warehouse: Warehouse) -> None:
    for statistics in (True, False):
        table = warehouse.create(SCHEMA, partition_spec=BY_K)
        lying(table, [{"id": i, "k": 8 if i < 10 else 7} for i in range(40)], 7, statistics, **NO_METRICS)
        assert ask(warehouse, "k = 7") == [{"id": i, "k": 7} for i in range(10, 40)], "none that shows another value"
        lying(table, [{"id": i, "k": 9} for i in range(40, 50)], 7, **NO_METRICS)
        with pytest.warns(
            pb.FilterWarning, match="says that k is 7 in all rows, and its footer denies it; rows are re"
        ):
            assert len(ask(warehouse, "k = 7")) == 30
        warehouse.catalog.drop_table("ns.t")


def test_zeros_at_the_end_of_a_value_contradict_nothing(warehouse: Warehouse) -> None:
    """numpy cuts them off bytes that it compares with objects."""
    for kind, value in ((StringType(), "a\0"), (BinaryType(), b"\0\0"), (FixedType(2), b"\0\0")):
        table = warehouse.create(Schema(SCHEMA.fields[0], NestedField(2, "k", kind)), partition_spec=BY_K)
        table.append(pa.table({"id": [1, 2], "k": pa.array([value, None], table.schema().as_arrow().field("k").type)}))
        with warnings.catch_warnings():
            warnings.simplefilter("error", pb.FilterWarning)
            assert ask(warehouse) == [{"id": 1, "k": value}, {"id": 2, "k": None}]
        warehouse.catalog.drop_table("ns.t")


def test_many_files_that_contradict_the_log_are_one_warning(
    warehouse: Warehouse, caplog: pytest.LogCaptureFixture
) -> None:
    table = warehouse.create(SCHEMA, partition_spec=BY_K)
    for i in range(3):
        lying(table, [{"id": i, "k": 7}], None, **NO_METRICS)
    with pytest.warns(pb.FilterWarning, match="says that k is NULL in all rows, and its footer denies it") as caught:
        pb.read_table("iceberg:cat/ns.t", "k = 7", catalog_properties=warehouse.properties)
    assert len(caught) == len(caplog.messages) == 1


PREDICATES: dict[str, Callable[[Any], bool]] = {
    "k = 7": lambda k: k == 7,
    "k <> 7": lambda k: k is not None and k != 7,
    "k IS NULL": lambda k: k is None,
    "k IS NOT NULL": lambda k: k is not None,
    "k IN (6, 7) OR k IS NULL": lambda k: k in (6, 7, None),
    "k NOT IN (6, 8)": lambda k: k is not None and k not in (6, 8),
    "NOT (k IS NULL) AND k > 6": lambda k: k is not None and k > 6,
    "k BETWEEN 7 AND 9": lambda k: k is not None and 7 <= k <= 9,
    "k >= 0 OR k < 0": lambda k: k is not None,
}


@pytest.mark.parametrize("seed", first_then_more(range(5), 2))
def test_null_partitions_against_brute_force(warehouse: Warehouse, seed: int) -> None:
    """Files in the partition NULL, sound or not, whatever the log counts: each predicate gives the rows that fit."""
    rng = random.Random(seed)
    table = warehouse.create(SCHEMA, partition_spec=BY_K)
    number = 0
    for _ in range(5):
        kind = rng.choice(["null", "null", "values", "some", "sound"])
        choices = {"null": [None], "values": [6, 7, 8, 9], "some": [None, 6, 7], "sound": [rng.choice([6, 7, 8])]}[kind]
        rows = [{"id": number + i, "k": rng.choice(choices)} for i in range(rng.randrange(1, 30))]
        number += len(rows)
        nulls = sum(row["k"] is None for row in rows)
        fields: dict[str, Any] = {}
        if rng.random() < 0.6:  # what pyiceberg's add_files leaves out, or no count alone
            fields = dict(NO_METRICS) if rng.random() < 0.5 else {"null_value_counts": {}}
            if rng.random() < 0.4 and nulls < len(rows):
                fields["null_value_counts"] = {2: 0}  # the contradiction of pyiceberg 0.12
        partition = choices[0] if kind == "sound" else None
        lying(table, rows, partition, statistics=rng.random() < 0.5, **fields)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pb.FilterWarning)
        shown = ask(warehouse)
        assert len(shown) == number
        for where, fits in PREDICATES.items():
            expected = [row for row in shown if fits(row["k"])]
            assert by_text(ask(warehouse, where)) == by_text(expected), where
