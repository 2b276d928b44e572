"""Rows of tables on Spark: `read` and the data source give the living rows, as other programs and brute force do."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark.sql", reason="pyspark is not installed (extra `spark`)")

from deltalake import DeltaTable
from pyarrow.fs import copy_files
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support import delta_tables as made
from support import evolving_tables, iceberg_tables
from support.ducklake_tables import Lake
from support.evolving_tables import Evolving, a_tree, evolved
from support.kleene import answers, compare, stored
from support.object_store import KEY, REGION, SECRET, ObjectStore
from support.repeats import more_then_slow

import parquet_bloom
from parquet_bloom import spark as bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import DamagedFileError, NotParquetError, RequestError, TableFormatError, UnknownColumnError
from parquet_bloom.predicates.tree import And, Compare, Not, Predicate
from parquet_bloom.rows import matching
from parquet_bloom.source.names import ORDINARY, TableAccess
from parquet_bloom.source.snapshot import Snapshot, TableFile
from parquet_bloom.source.source import CallSource
from parquet_bloom.spark.source.rows import Query, columns_of, plan_table, table_types
from parquet_bloom.spark.source.source import ParquetBloomSource, TableRequest, matching_rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:Iceberg scan planning"),
    pytest.mark.filterwarnings("ignore:Delete operation did not match"),
]
ALL = And(())


def living(
    snapshot: Snapshot, predicate: Predicate = ALL, columns: Sequence[str] | None = None, partitions: int | None = None
) -> pa.Table:
    """The rows that executors give, without a session: all that they get was pickled."""
    rows = table_types(snapshot).of(columns)
    beside = [name for name in columns_of(predicate) if name not in rows.names]
    query = Query(rows, table_types(snapshot).of(beside) if beside else pa.schema([]), predicate)
    plan = plan_table(snapshot, query, partitions)
    scan = pickle.loads(pickle.dumps(plan))
    return pa.Table.from_batches([batch for unit in plan.units for batch in scan.rows(unit)], rows)


def live_files(name: str, access: TableAccess = ORDINARY) -> Snapshot:
    return CallSource(name, access=access).resolve().snapshot


def shown(table: pa.Table | Sequence[Mapping[str, Any]]) -> list[str]:
    """Rows as texts: NaN is like itself, and zeros have a sign."""
    return [repr(row) for row in (table.to_pylist() if isinstance(table, pa.Table) else table)]


def largest(kind: pa.DataType, value: Any, op: str, literal: Any) -> frozenset[bool | None]:
    """A comparison in which NaN is the largest value; no literal here is NaN."""
    if isinstance(value, float) and value != value:
        return frozenset((op in (">", ">="),))
    return frozenset((compare(kind, value, op, literal),))


def expected(table: Evolving, tree: Predicate) -> pa.Table:
    """The rows for which a predicate is TRUE, one by one."""
    whole = table.table()
    rows = [{name: stored(whole[name][i]) for name in whole.column_names} for i in range(whole.num_rows)]
    types = {(one.name,): one.arrow for one in table.columns}
    types |= {(one.name, child.name): child.type for one in table.columns for child in one.children}
    kept = [i for i, row in enumerate(rows) if answers(tree, row, types, largest) == {True}]
    return whole.take(kept) if kept else whole.slice(0, 0)


# --- against brute force ----------------------------------------------------------------------------


def check_evolved(seed: int, folder: Path, predicates: int) -> tuple[int, int]:
    table = evolved(seed, folder)
    snapshot = table.snapshot()
    assert shown(living(snapshot)) == shown(table.table()), f"seed {seed}: all rows, in the order of the log"
    rng, found = Random(seed), 0
    for nth in range(predicates):
        tree = a_tree(table, rng)
        wanted = expected(table, tree)
        columns = rng.choice([None, [rng.choice(table.columns).name]])
        parts = rng.choice([None, None, 1, 3])
        rows = living(snapshot, tree, columns, parts)
        wanted = wanted if columns is None else wanted.select(columns)
        assert sorted(shown(rows)) == sorted(shown(wanted)), f"seed {seed}, predicate {nth}: {tree}"
        found += wanted.num_rows
    return found, sum(file.deletes is not None for file in snapshot.files)


def test_what_files_have_of_a_partition_column_is_not_read(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "p": ["1", "1"]})
    start = [made.protocol(), made.metadata([made.field("id", "long"), made.field("p", "string")], ["p"])]
    made.commit(tmp_path, 0, *start, made.file_of(tmp_path, "a.parquet", rows, partitionValues={"p": "01"}))
    snapshot = live_files(f"delta:{tmp_path}")
    assert living(snapshot).to_pylist() == [{"id": 1, "p": "01"}, {"id": 2, "p": "01"}]
    for value, there in (("01", 2), ("1", 0)):
        assert living(snapshot, Compare(("p",), "=", value)).num_rows == there


def test_tables_that_changed(tmp_path: Path) -> None:
    found = deleted = 0
    for seed in range(12):
        (tmp_path / str(seed)).mkdir()
        some, files = check_evolved(seed, tmp_path / str(seed), 8)
        found, deleted = found + some, deleted + files
    assert found > 100, "there are rows to lose"
    assert deleted > 5, "and rows that must not be shown"


def test_tables_that_changed_by_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As large files are read: the predicate's columns first, of the others the pages with a row."""
    monkeypatch.setattr(matching, "_LEAST", 0)
    monkeypatch.setattr(matching.Reading, "_page_rows", lambda self, piece: 2)
    for seed in range(20, 26):
        (tmp_path / str(seed)).mkdir()
        check_evolved(seed, tmp_path / str(seed), 8)


@pytest.mark.parametrize("seed", more_then_slow(range(2000, 2300), 4))
def test_many_tables_that_changed(seed: int, tmp_path: Path) -> None:
    check_evolved(seed, tmp_path, 40)


def test_a_large_file_is_several_tasks_unless_rows_of_it_are_deleted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": range(1000)}), path, row_group_size=10)
    from parquet_bloom.source.snapshot import Field

    file = TableFile(str(path), size=1 << 30)  # the log's size is what is planned by
    snapshot = Snapshot("hand:made", "1", (Field("n", pa.int64()),), False, [file])
    query = Query(table_types(snapshot).of(None), pa.schema([]), ALL)
    assert len(plan_table(snapshot, query).units) == 64
    assert living(snapshot)["n"].to_pylist() == list(range(1000)), "each row group once"
    from support.evolving_tables import Positions

    snapshot = replace(snapshot, files=[replace(file, deletes=Positions(tuple(range(0, 1000, 2))))])
    assert len(plan_table(snapshot, query).units) == 1
    assert living(snapshot)["n"].to_pylist() == list(range(1, 1000, 2))


# --- against other programs, on executors -----------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def session(spark: Any) -> Iterator[Any]:
    spark.dataSource.register(ParquetBloomSource)
    return spark


def delta_of(seed: int, root: Path) -> tuple[str, list[dict[str, Any]]]:
    """A random table by deltalake, with deletion vectors over some files; and the rows that live."""
    rng = Random(seed)
    made.random_table(root, rng, 5)
    table = DeltaTable(str(root))
    rows = pa.table(table.to_pyarrow_table()).to_pylist()
    log = sorted((root / "_delta_log").glob("*.json"))
    adds = [json.loads(line)["add"] for path in log for line in path.read_text().splitlines() if '"add"' in line[:8]]
    live = {path.removeprefix("file://") for path in table.file_uris()}
    from urllib.parse import unquote

    actions, gone = [made.protocol(["deletionVectors"], ["deletionVectors"])], set()
    for add in adds:
        path = root / unquote(add["path"])
        if str(path) in live and rng.random() < 0.7:
            ids = pq.ParquetFile(path).read(["row"])["row"].to_pylist()
            dead = [at for at in range(len(ids)) if rng.random() < 0.4]
            gone |= {ids[at] for at in dead}
            actions.append({"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}})
            actions.append({"add": add | {"deletionVector": made.inline(dead)}})
    made.commit(root, len(log), *actions)
    return f"delta:{root}", [row for row in rows if row["row"] not in gone]


def by_spark(rows: Sequence[Any]) -> list[int]:
    return sorted(row["row"] for row in rows)


@pytest.mark.parametrize("seed", [3, 4, *more_then_slow(range(5, 25), 3)])
def test_delta(spark: Any, seed: int, tmp_path: Path) -> None:
    name, rows = delta_of(seed, tmp_path / "t")
    wanted = sorted(row["row"] for row in rows)
    assert by_spark(bloom.read(spark, [name], "row IS NOT NULL").collect()) == wanted
    source = spark.read.format("parquet_bloom").load(name)
    assert by_spark(source.collect()) == wanted
    library = parquet_bloom.read_table(name, "row > 3")
    some = spark.read.format("parquet_bloom").option("where", "row > 3").load(name).toArrow()
    assert some.schema.names == library.schema.names, "the table's schema, not a file's"
    assert sorted(shown(some.select(["row"]))) == sorted(shown(library.select(["row"])))
    assert sorted(shown(some)) == sorted(shown(bloom.read(spark, [name], "row > 3").toArrow()))


class Catalog:
    """An Iceberg table of random ids with all kinds of deletes, and columns that were renamed and added."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.warehouse = iceberg_tables.Warehouse(root)
        schema = Schema(NestedField(1, "row", LongType()), NestedField(2, "text", StringType()))
        self.table = self.warehouse.create(schema, properties={"write.parquet.row-group-limit": "10"})
        for first in (0, 40, 80, 120):
            rows = [{"row": row, "text": f"t{row % 7}"} for row in range(first, first + 40)]
            iceberg_tables.append(self.table, rows)
        files = [entry.data_file for entry in iceberg_tables.entries(self.table)]
        by_first = {
            pq.ParquetFile(one.file_path.removeprefix("file://")).read()["row"][0].as_py(): one for one in files
        }
        positions = iceberg_tables.position_deletes(self.table, {by_first[0].file_path: [0, 5, 39]}, by_first[0])
        two = {by_first[one].file_path: [1, 2] for one in (0, 40)}
        shared = iceberg_tables.position_deletes(self.table, two, by_first[0])
        equal = iceberg_tables.equality_deletes(self.table, ["text"], pa.table({"text": ["t3"]}), by_first[80])
        iceberg_tables.add_deletes(self.table, positions, shared, equal)
        with self.table.update_schema() as change:
            change.rename_column("text", "old")
        with self.table.update_schema() as change:
            change.add_column("text", StringType())
        iceberg_tables.append(self.table, [{"row": row, "old": "t3", "text": "new"} for row in range(160, 170)])
        self.name, self.properties = "iceberg:cat/ns.t", self.warehouse.properties
        gone = {0, 5, 39, 1, 2, 41, 42} | {row for row in range(160) if row % 7 == 3}
        self.rows = [row for row in range(170) if row not in gone]


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    catalog = Catalog(tmp_path_factory.mktemp("iceberg") / "lake")
    yield catalog
    catalog.warehouse.close()


def test_iceberg(spark: Any, iceberg: Catalog) -> None:
    how = {"catalog_properties": iceberg.properties}
    assert by_spark(bloom.read(spark, [iceberg.name], "row >= 0", **how).collect()) == iceberg.rows
    source = spark.read.format("parquet_bloom").option("catalogProperties", json.dumps(iceberg.properties))
    assert by_spark(source.load(iceberg.name).collect()) == iceberg.rows
    new = source.option("where", "text = 'new'").option("columns", "old,row").load(iceberg.name)
    assert new.columns == ["old", "row"]
    assert sorted((row["old"], row["row"]) for row in new.collect()) == [("t3", row) for row in range(160, 170)]
    old = bloom.read(spark, [iceberg.name], "old = 't4'", ["row", "text"], **how).collect()
    assert sorted(row["row"] for row in old) == [row for row in iceberg.rows if row < 160 and row % 7 == 4]
    assert {row["text"] for row in old} == {None}, "the new column has the old one's name, and none of its values"


def test_ducklake(spark: Any, tmp_path: Path) -> None:
    lake = Lake(tmp_path, True)
    try:
        lake.sql(
            "CREATE TABLE t (row BIGINT, part VARCHAR, place STRUCT(x INTEGER))",
            "ALTER TABLE t SET PARTITIONED BY (part)",
            "INSERT INTO t SELECT i, 'p' || (i % 3), {'x': i} FROM range(200) r(i)",
            "DELETE FROM t WHERE row % 5 = 0",
            "ALTER TABLE t RENAME COLUMN part TO region",
            "ALTER TABLE t ADD COLUMN later INTEGER DEFAULT 7",
            "INSERT INTO t SELECT i, 'p9', {'x': i}, 8 FROM range(200, 220) r(i)",
            "DELETE FROM t WHERE row = 201",
            "INSERT INTO t VALUES (300, 'p1', {'x': 300}, 7)",
        )
        wanted = sorted(lake.answer("SELECT * FROM t"), key=lambda row: row["row"])
        kept = [row["row"] for row in lake.answer("SELECT * FROM t WHERE later = 7 AND region = 'p1'")]
        lake.release()
        name = f"ducklake:{lake.name()}"
        found = [row.asDict(recursive=True) for row in spark.read.format("parquet_bloom").load(name).collect()]
        assert sorted(found, key=lambda row: row["row"]) == wanted
        rows = bloom.read(spark, [name], "later = 7 AND region = 'p1'", ["row", "place.x"]).collect()
        assert by_spark(rows) == sorted(kept)
        assert all(row["x"] == row["row"] for row in rows)
    finally:
        lake.release()


@pytest.mark.parametrize("seed", [1, *more_then_slow(range(2, 12), 2)])
def test_read_filters_as_executors_do(spark: Any, seed: int, tmp_path: Path) -> None:
    package = Path(evolving_tables.__file__).parent  # its tables' deletes are of a class of it
    archive = shutil.make_archive(str(tmp_path / package.name), "zip", package.parent, package.name)
    spark.sparkContext.addPyFile(archive)
    table = evolved(seed, tmp_path)
    snapshot, rng = table.snapshot(), Random(seed)
    for _ in range(4):
        tree = a_tree(table, rng)
        request = TableRequest(tree, None, None, None, cast(CallSource, None))
        vars(request)["snapshot"] = snapshot  # of no name
        frame = matching_rows(spark, request, None)
        assert sorted(shown(frame.toArrow())) == sorted(shown(expected(table, tree))), f"{tree}"


# --- what a query is of, and what goes wrong --------------------------------------------------------


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A Delta table of two files, with filters; a row of one is deleted."""
    root = tmp_path / "lake"
    adds = []
    for first in (0, 100):
        table = pa.table({"id": pa.array(range(first, first + 100), pa.int64()), "day": ["a"] * 100})
        stats = json.dumps({"numRecords": 100, "minValues": {"id": first}, "maxValues": {"id": first + 99}})
        adds.append(made.file_of(root, f"{first}.parquet", table, stats=stats))
    adds[0]["add"]["deletionVector"] = made.inline([7])
    fields = [made.field("id", "long"), made.field("day", "string")]
    made.commit(root, 0, made.protocol(["deletionVectors"], ["deletionVectors"]), made.metadata(fields), *adds)
    return f"delta:{root}"


def test_the_log_excludes_files_before_any_is_opened(lake: str) -> None:
    snapshot = live_files(lake)
    Path(snapshot.files[1].path).unlink()
    assert living(snapshot, Compare(("id",), "<", 9))["id"].to_pylist() == [0, 1, 2, 3, 4, 5, 6, 8]


def test_a_version(spark: Any, lake: str) -> None:
    root = Path(lake.removeprefix("delta:"))
    more = made.file_of(root, "more.parquet", pa.table({"id": pa.array([1000], pa.int64()), "day": ["b"]}))
    made.commit(root, 1, more)
    assert bloom.read(spark, [f"{lake}@0"], "id >= 0").count() == 199
    assert bloom.read(spark, [lake], "id >= 0").count() == 200


def test_executors_have_folders_of_their_own(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(lake.removeprefix("delta:"))
    monkeypatch.chdir(root.parent)
    snapshot = live_files("delta:lake")
    plan = plan_table(snapshot, Query(table_types(snapshot).of(None), pa.schema([]), ALL))
    monkeypatch.chdir("/")
    assert sum(batch.num_rows for unit in plan.units for batch in plan.rows(unit)) == 199


def test_one_query_is_of_one_snapshot(spark: Any, lake: str) -> None:
    frame = bloom.read(spark, [lake], "id >= 0")
    root = Path(lake.removeprefix("delta:"))
    gone = {"path": "0.parquet", "deletionVector": made.inline([7]), "dataChange": True, "deletionTimestamp": 0}
    made.commit(root, 1, {"remove": gone})
    assert frame.count() == 199, "the log was read when the function was called"
    assert bloom.read(spark, [lake], "id >= 0").count() == 100


def test_executors_need_no_library_of_the_format(iceberg: Catalog, lake: str, tmp_path: Path) -> None:
    """What travels is read by a Python that cannot import them."""
    code = """
import pickle, sys
for name in ("pyiceberg", "deltalake", "duckdb"):
    sys.modules[name] = None
reader, units = pickle.load(open(sys.argv[1], "rb"))
print(sum(batch.num_rows for unit in units for batch in reader.rows(unit)))
"""
    for name, properties, rows in ((iceberg.name, iceberg.properties, len(iceberg.rows)), (lake, None, 199)):
        snapshot = live_files(name, TableAccess(properties))
        plan = plan_table(snapshot, Query(table_types(snapshot).of(None), pa.schema([]), ALL))
        (tmp_path / "plan").write_bytes(pickle.dumps((plan, plan.units)))
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "plan")],
            capture_output=True, text=True, check=False,
            env=dict(os.environ),
        )  # fmt: skip
        assert not done.returncode, done.stderr
        assert int(done.stdout) == rows


def test_a_bad_file_or_vector_ends_the_query(lake: str) -> None:
    snapshot = live_files(lake)
    bad = Path(snapshot.files[0].path)
    data = bad.read_bytes()
    bad.write_bytes(data[:-8] + b"nothing!")
    with pytest.raises(NotParquetError, match=r"0\.parquet"):
        living(snapshot)
    bad.write_bytes(data)
    root = Path(lake.removeprefix("delta:"))
    add = made.add("0.parquet", size=bad.stat().st_size)
    add["add"]["deletionVector"] = {**made.inline([7]), "cardinality": 2}
    made.commit(root, 1, add)
    with pytest.raises(DamagedFileError, match="it is not known which of its rows are deleted"):
        living(live_files(lake))


def test_equality_deletes_that_cannot_be_applied_are_refused(tmp_path: Path) -> None:
    from pyiceberg.types import DoubleType

    warehouse = iceberg_tables.Warehouse(tmp_path)
    table = warehouse.create(Schema(NestedField(1, "x", DoubleType())))
    iceberg_tables.append(table, [{"x": 1.0}, {"x": 2.0}])
    [entry] = iceberg_tables.entries(table)
    deletes = iceberg_tables.equality_deletes(table, ["x"], pa.table({"x": [1.0]}), entry.data_file)
    iceberg_tables.add_deletes(table, deletes)
    try:
        snapshot = live_files("iceberg:cat/ns.t", TableAccess(warehouse.properties))
        with pytest.raises(TableFormatError, match="has equality deletes by x, which cannot be applied"):
            living(snapshot)
    finally:
        warehouse.close()


def test_what_cannot_be_asked_is_one_line_before_any_job(spark: Any, lake: str) -> None:
    with pytest.raises(UnknownColumnError, match="no column nowhere; there are: id, day"):
        bloom.read(spark, [lake], "nowhere = 1")
    with pytest.raises(UnknownColumnError, match="no column nowhere"):
        bloom.read(spark, [lake], "id = 1", ["nowhere"])
    with pytest.raises(RequestError, match="a table is read alone"):
        bloom.read(spark, [lake, "lake/plain"], "id = 1")
    with pytest.raises(RequestError, match="raw_files=True reads what lies in a folder"):
        bloom.read(spark, [lake], "id = 1", raw_files=True)
    with pytest.raises(RequestError, match="catalog_properties are for iceberg: and ducklake:"):
        bloom.read(spark, [lake], "id = 1", catalog_properties={"a": "b"})

    def asked(**options: str) -> Any:
        source = ParquetBloomSource({"path": lake, **options})
        return source.reader(source.schema())

    with pytest.raises(RequestError, match="is a table: mergeSchema and rawFiles are for files"):
        asked(rawFiles="true")
    with pytest.raises(RequestError, match="catalogProperties is a JSON object of texts"):
        asked(catalogProperties="uri=x")
    with pytest.raises(UnknownColumnError, match="no column nowhere"):
        asked(where="nowhere = 1")
    assert len(asked(partitions="5").partitions()) == 5


def test_a_schema_that_the_table_does_not_fit(spark: Any, lake: str) -> None:
    reads = spark.read.format("parquet_bloom")
    assert reads.schema("day string, id decimal(20,0)").load(lake).count() == 199
    for schema, said in (("id int", "id: int64 does not become int32"), ("gone string", "no column gone")):
        with pytest.raises(Exception, match=said):
            reads.schema(schema).load(lake).collect()


def test_the_command(spark: Any, iceberg: Catalog, capfd: pytest.CaptureFixture[str]) -> None:
    options = [part for name, value in iceberg.properties.items() for part in ("--catalog-property", f"{name}={value}")]
    assert run(["spark", "read", iceberg.name, "--where", "row IN (4, 5, 6)", "--columns", "row", *options]) == 0
    assert [line.strip() for line in capfd.readouterr().out.splitlines()[-2:]] == ["4", "6"]


def test_not_of_everything(lake: str) -> None:
    assert living(live_files(lake), Not(ALL)).num_rows == 0


# --- tables on a store ------------------------------------------------------------------------------


def test_a_delta_table_on_s3(spark: Any, store: ObjectStore, bucket: str, tmp_path: Path) -> None:
    """Vectors in a file of the store; the file system travels with its keys."""
    adds = []
    for first in (0, 100):
        table = pa.table({"id": pa.array(range(first, first + 100), pa.int64())})
        adds.append(made.file_of(tmp_path, f"{first}.parquet", table))
    vectors = made.vector_file(tmp_path, [[0, 7], [99]])
    for add, vector in zip(adds, vectors, strict=True):
        add["add"]["deletionVector"] = vector
    made.commit(
        tmp_path, 0, made.protocol(["deletionVectors"], ["deletionVectors"]), made.metadata([made.field("id", "long")]),
        *adds,
    )  # fmt: skip
    copy_files(str(tmp_path), f"{bucket}/lake", destination_filesystem=store.filesystem.arrow)
    name = f"delta:{store.uri(f'{bucket}/lake')}"
    wanted = [row for row in range(200) if row not in (0, 7, 199)]
    assert living(live_files(name))["id"].to_pylist() == wanted
    assert sorted(row["id"] for row in bloom.read(spark, [name], "id >= 0").collect()) == wanted


def test_an_iceberg_table_on_s3(store: ObjectStore, bucket: str, tmp_path: Path) -> None:
    more = {"s3.endpoint": store.endpoint, "s3.access-key-id": KEY, "s3.secret-access-key": SECRET, "s3.region": REGION}
    warehouse = iceberg_tables.Warehouse(tmp_path, warehouse=f"s3://{bucket}/tables", **more)
    try:
        table = warehouse.create(Schema(NestedField(1, "id", LongType())))
        iceberg_tables.append(table, [{"id": i} for i in range(20)])
        [entry] = iceberg_tables.entries(table)
        file = entry.data_file
        iceberg_tables.add_deletes(table, iceberg_tables.position_deletes(table, {file.file_path: [4, 19]}, file))
        rows = living(live_files("iceberg:cat/ns.t", TableAccess(warehouse.properties)))
        assert rows["id"].to_pylist() == [i for i in range(19) if i != 4]
    finally:
        warehouse.close()
