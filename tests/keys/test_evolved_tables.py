"""Key indexes of tables whose columns are renamed, dropped, added again, promoted; partitions, deletes, inlining."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from support import iceberg_tables as ice
from support.ducklake_tables import NOTHING_INLINED, Lake
from support.evolving_tables import Evolving, a_tree
from support.random_questions import random_predicate
from support.repeats import more_then_slow

import parquet_bloom
from keys.key_indexes import same_rows
from parquet_bloom.errors import RequestError, StaleIndexError
from parquet_bloom.format.schema import join_path
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.update import update_index
from parquet_bloom.source import source
from parquet_bloom.source.columns import leaves_of

# --- any changes, made by hand ----------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[Evolving, str], str]:
    """Let the name delta:made mean a table made by hand."""

    def name(table: Evolving, identity: str) -> str:
        snapshot = replace(table.snapshot(), identity=identity)
        made = SimpleNamespace(name="delta:made", snapshot=lambda stored_only=False: snapshot)
        monkeypatch.setattr(source, "open_table", lambda *_: made)
        return "delta:made"

    return name


def ask(table: Evolving, name: str, index: Path, rng: Random, n: int) -> None:
    for _ in range(n):
        tree = a_tree(table, rng)
        try:
            parquet_bloom.read_table(name, tree)
        except RequestError:
            continue
        same_rows(name, tree, index)


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 400), 2)])
def test_columns_that_change_after_a_build(seed: int, tmp_path: Path, opened: Any) -> None:
    """With an identity, so that the log recognises files, and without, so that tokens do."""
    rng, index = Random(seed), tmp_path / "index"
    (tmp_path / "data").mkdir()
    table = Evolving(tmp_path / "data", rng, by_id=rng.random() < 0.6)
    table.start()
    identity = rng.choice(["", "an identity"])
    for step in range(5):
        table.append()
        for _ in range(rng.randrange(3)):
            table.change()
        name = opened(table, identity)
        if step == 1:
            leaves = leaves_of(table.snapshot().fields)
            able = [join_path(leaf.path) for leaf in leaves if leaf.refusal is None]
            some = rng.sample(able, rng.randint(1, len(able)))
            try:
                build_index(name, some, index)
            except RequestError as error:  # no file has one of them
                pytest.skip(str(error)[:80])
        elif step > 1:
            ask(table, name, index, rng, 6)
            if rng.random() < 0.4:
                try:
                    update_index(index, name)
                except RequestError as error:
                    if "any more" not in str(error):
                        raise
                ask(table, name, index, rng, 4)


# --- Iceberg ----------------------------------------------------------------------------------------


@pytest.fixture
def warehouse(tmp_path: Path) -> Iterator[ice.Warehouse]:
    made = ice.Warehouse(tmp_path)
    yield made
    made.close()


def hold(warehouse: ice.Warehouse, leaves: Any, index: Path, rng: Random, n: int, name: str = "ns.t") -> int:
    options = {"catalog_properties": warehouse.properties}
    found = 0
    for _ in range(n):
        found += same_rows(f"iceberg:cat/{name}", random_predicate(rng, leaves), index, **options)
    return found


def build(warehouse: ice.Warehouse, columns: Any, index: Path, **more: Any) -> None:
    build_index("iceberg:cat/ns.t", columns, index, catalog_properties=warehouse.properties, **more)


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 3), 2)])
def test_iceberg_columns_are_renamed_and_dropped_and_come_again(
    seed: int, warehouse: ice.Warehouse, tmp_path: Path
) -> None:
    rng, index = Random(seed), tmp_path / "index"
    schema = Schema(
        NestedField(1, "n", IntegerType()), NestedField(2, "s", StringType()), NestedField(3, "k", LongType())
    )
    table = warehouse.create(schema)
    for number in range(3):
        ice.append(table, [{"n": number * 10 + i, "s": f"s{i}", "k": i} for i in range(8)], row_group_size=3)
    build(warehouse, ["n", "s", "k"], index)
    numbers, texts = [0, 7, 13, 27, 2**31, 2**40, -1], ["s0", "s5", "new", "none"]
    leaves: dict[tuple[str, ...], Any] = {("n",): (pa.int64(), numbers), ("s",): (pa.string(), texts),
                                          ("k",): (pa.int64(), [0, 5, 77])}  # fmt: skip
    assert hold(warehouse, leaves, index, rng, 5) > 0
    with table.update_schema() as change:  # a whole number grows
        change.update_column("n", LongType())
    ice.append(table, [{"n": 2**40, "s": "new", "k": 77}, {"n": 7, "s": None, "k": None}])
    assert hold(warehouse, leaves, index, rng, 5) > 0
    with table.update_schema() as change:  # a name changes, and another column gets it
        change.rename_column("s", "t")
    with table.update_schema() as change:
        change.add_column("s", StringType())
    leaves["t",] = pa.string(), texts
    ice.append(table, [{"n": 1, "s": "s5", "t": "new", "k": 5}])
    options = {"catalog_properties": warehouse.properties}
    assert same_rows("iceberg:cat/ns.t", "s = 's5'", index, **options) == 1
    assert same_rows("iceberg:cat/ns.t", "t = 's5'", index, **options) == 3
    assert same_rows("iceberg:cat/ns.t", "s IS NULL AND t = 's0'", index, **options) == 3
    assert hold(warehouse, leaves, index, rng, 5) > 0
    with table.update_schema(allow_incompatible_changes=True) as change:  # a column goes, and comes again
        change.delete_column("k")
    with table.update_schema() as change:
        change.add_column("k", LongType())
    ice.append(table, [{"n": 3, "s": "s5", "t": "new", "k": 5}])
    assert same_rows("iceberg:cat/ns.t", "k = 5", index, **options) == 1
    assert hold(warehouse, leaves, index, rng, 5) > 0


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 3), 2)])
def test_iceberg_partitions_and_deletes(seed: int, warehouse: ice.Warehouse, tmp_path: Path) -> None:
    rng, index = Random(seed), tmp_path / "index"
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "s"),
                         PartitionField(1, 1001, BucketTransform(2), "bucket"))  # fmt: skip
    table = warehouse.create(
        Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType())), partition_spec=spec
    )
    for number in range(3):
        ice.append(table, [{"n": number * 10 + i, "s": rng.choice(["a", "b", None])} for i in range(10)])
    build(warehouse, ["n", "s"], index)
    leaves = {("n",): (pa.int64(), list(range(-1, 32))), ("s",): (pa.string(), ["a", "b", "c"])}
    assert hold(warehouse, leaves, index, rng, 7) > 0
    files = [entry.data_file for entry in ice.entries(table)]
    for file in rng.sample(files, 4):
        at = rng.sample(range(file.record_count), rng.randint(1, file.record_count))
        ice.add_deletes(table, ice.position_deletes(table, {file.file_path: at}, file))
        table.refresh()
    assert hold(warehouse, leaves, index, rng, 7) > 0
    left = sorted(table.refresh().scan().to_arrow()["n"].to_pylist())
    options = {"catalog_properties": warehouse.properties}
    some = range(0, 32, 3)
    found = [n for n in some if parquet_bloom.count("iceberg:cat/ns.t", f"n = {n}", index=index, **options)]
    assert found == [n for n in left if n in some]
    ice.append(table, [{"n": 31, "s": "c"}])
    assert hold(warehouse, leaves, index, rng, 7) > 0


def test_iceberg_files_of_the_same_names_in_a_table_that_was_made_again(
    warehouse: ice.Warehouse, tmp_path: Path
) -> None:
    """Files that were there before (add_files) have names of their own."""
    index, path = tmp_path / "index", tmp_path / "plain/a.parquet"
    path.parent.mkdir()
    for value in (5, 6):
        table = warehouse.create(Schema(NestedField(1, "n", LongType())))
        pq.write_table(pa.table({"n": [value, value + 10]}), path)
        table.add_files([f"file://{path}"])
        if value == 5:
            build(warehouse, ["n"], index, allow_roots=str(tmp_path))
            warehouse.catalog.drop_table("ns.t")
    options = {"catalog_properties": warehouse.properties, "allow_roots": str(tmp_path)}
    assert parquet_bloom.count("iceberg:cat/ns.t", "n = 6", **options) == 1
    with pytest.raises(StaleIndexError):
        parquet_bloom.read_table("iceberg:cat/ns.t", "n = 6", index=index, **options)
    build(warehouse, ["n"], index, overwrite=True, allow_roots=str(tmp_path))
    assert same_rows("iceberg:cat/ns.t", "n = 6", index, **options) == 1


# --- DuckLake ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 2), 1)])
def test_ducklake_inlined_rows_deletes_and_renames(seed: int, tmp_path: Path) -> None:
    rng, index = Random(seed), tmp_path / "index"
    lake = Lake(tmp_path, True)
    name = f"ducklake:{lake.name()}"
    leaves: dict[tuple[str, ...], Any] = {
        ("id",): (pa.int64(), [0, 5, 99, 150, 1000, -1]), ("k",): (pa.string(), ["a0", "a1", "inlined", "none"])
    }  # fmt: skip

    def ask(n: int) -> int:
        return sum(same_rows(name, random_predicate(rng, leaves), index) for _ in range(n))

    lake.sql("CREATE TABLE t (id BIGINT, k VARCHAR)", NOTHING_INLINED,
             "INSERT INTO t SELECT i, 'a' || i % 2 FROM range(100) r(i)",
             "INSERT INTO t SELECT i, 'a' || i % 2 FROM range(100, 200) r(i)",
             "CALL lake.set_option('data_inlining_row_limit', 10)",
             "INSERT INTO t VALUES (1000, 'inlined')")  # fmt: skip
    lake.release()
    build_index(name, ["id", "k"], index)
    assert ask(5) > 0
    assert same_rows(name, "id = 1000", index) == 1
    assert same_rows(name, "id = 5", index) == 1
    lake.sql("DELETE FROM t WHERE id = 5 OR id = 99", "INSERT INTO t VALUES (5, 'inlined')")
    lake.release()
    assert same_rows(name, "id = 5 AND k = 'inlined'", index) == 1
    assert same_rows(name, "id = 99", index) == 0
    assert ask(5) > 0
    lake.sql("ALTER TABLE t RENAME COLUMN k TO old", "ALTER TABLE t ADD COLUMN k VARCHAR",
             "INSERT INTO t SELECT i, 'a0', 'a1' FROM range(300, 350) r(i)")  # fmt: skip
    lake.release()
    leaves["old",] = leaves["k",]
    assert same_rows(name, "k = 'a1'", index) == 50
    assert same_rows(name, "old = 'a1'", index) > 90
    assert ask(5) > 0
    update_index(index, name)
    assert ask(5) > 0
    lake.sql("DROP TABLE t", "CREATE TABLE t (id BIGINT, k VARCHAR)", NOTHING_INLINED,
             "INSERT INTO t SELECT i, 'a0' FROM range(50) r(i)")  # fmt: skip
    lake.release()
    del leaves["old",]
    assert ask(10) >= 0
    assert same_rows(name, "id = 7", index) == 1
    [note] = parquet_bloom.check(name, "id = 7", index=index).notes
    assert "1 of 1 files are not covered" in note, "DuckLake tells no identity of its tables"


def test_ducklake_files_of_one_schema_whose_columns_changed_names(tmp_path: Path) -> None:
    """Files that another program wrote have no ids: the catalog says of each which column its names are."""
    index = tmp_path / "index"
    lake = Lake(tmp_path, True)
    name = f"ducklake:{lake.name()}"
    paths = [tmp_path / "others" / f"{number}.parquet" for number in range(2)]
    paths[0].parent.mkdir()
    for number, path in enumerate(paths):
        pq.write_table(pa.table({"x": [number * 10 + i for i in range(5)], "y": [100 + number * 10] * 5}), path)
    lake.sql("CREATE TABLE t (x BIGINT, y BIGINT)",
             f"CALL ducklake_add_data_files('lake', 't', '{paths[0]}')",
             "ALTER TABLE t RENAME COLUMN x TO z", "ALTER TABLE t RENAME COLUMN y TO x",
             "ALTER TABLE t RENAME COLUMN z TO y",
             f"CALL ducklake_add_data_files('lake', 't', '{paths[1]}')")  # fmt: skip
    lake.release()
    options = {"allow_roots": str(tmp_path)}
    build_index(name, "x", index, **options)
    wanted = {"x = 100": 5, "y = 3": 1, "x = 12": 1, "y = 110": 5, "x = 3": 0, "y = 12": 0}
    for predicate, rows in wanted.items():
        assert same_rows(name, predicate, index, **options) == rows
    assert parquet_bloom.locate(name, "x", [100, 12, 3], index, **options)["key"].to_pylist() == [100, 12]
