"""check, prune, inspect and verify of a table on Spark say what the local functions say of it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType
from support.delta_tables import commit, field, file_of, inline, metadata, protocol
from support.iceberg_tables import Warehouse

import parquet_bloom
from parquet_bloom import spark as bloom
from parquet_bloom.errors import RequestError, UnknownColumnError
from parquet_bloom.predicates.outcomes import ANY
from parquet_bloom.source.names import TableAccess
from parquet_bloom.source.snapshot import Field, Snapshot, TableFile
from parquet_bloom.source.source import CallSource
from parquet_bloom.spark.work import send, send_table, sent_file

pytestmark = pytest.mark.spark
ROWS = 200  # of a file, in two row groups
PREDICATES = [
    "id = {id}", "day = 'a' AND id = {id}", "day = 'b' OR id = {id}", "day = 'nowhere'", "day IS NULL", "NOT id = {id}",
    "n BETWEEN 3 AND 4", "n = 5000 OR id IN ({id}, 7)", "later IS NULL AND id = {id}", "later > 0.5", "id IS NULL",
]  # fmt: skip


class Lake(NamedTuple):
    """A table, an id that it has, and how its catalog is found."""

    name: str
    id: int
    properties: Mapping[str, str] | None
    files: list[Path]


def rows_of(seed: int, **more: Any) -> dict[str, Any]:
    """Ids of all files are of one range, so that filters alone tell them apart; n is of each file's own."""
    rng = random.Random(seed)
    ids = [rng.randrange(2**60) for _ in range(ROWS)]
    return {"id": pa.array(ids, pa.int64()), "n": pa.array([seed * 2 + i % 2 for i in range(ROWS)], pa.int64()), **more}


@pytest.fixture(scope="module")
def delta(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Partitions by day, one of them NULL; a dead file, a file of which rows are deleted, a column that came later."""
    root = tmp_path_factory.mktemp("delta") / "events"
    fields = [field("id", "long"), field("n", "long"), field("day", "string"), field("later", "double")]
    days = {0: "a", 1: "a", 2: "b", 3: None, 4: "dead"}
    adds = {}
    for seed, day in days.items():
        more = {"later": pa.array([seed / 8] * ROWS)} if seed == 2 else {}
        name = f"day={day}/{seed}.parquet"
        adds[seed] = file_of(root, name, pa.table(rows_of(seed, **more)), partitionValues={"day": day})
        pq.write_table(pa.table(rows_of(seed, **more)), root / name, row_group_size=ROWS // 2)
        parquet_bloom.add_filters(root / name, columns=["id"], in_place=True, sync=False)
        adds[seed]["add"]["size"] = (root / name).stat().st_size
    adds[1]["add"]["deletionVector"] = inline([0, 5, 150])
    commit(root, 0, protocol(["deletionVectors"], ["deletionVectors"]), metadata(fields, ["day"]), *adds.values())
    commit(root, 1, {"remove": {"path": adds[4]["add"]["path"], "dataChange": True, "deletionTimestamp": 0}})
    files = [root / adds[seed]["add"]["path"] for seed in range(4)]
    return Lake(f"delta:{root}", rows_of(1)["id"][17].as_py(), None, files)


@pytest.fixture(scope="module")
def iceberg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A column that was renamed, whose old name another one has now; and one that came later."""
    warehouse = Warehouse(tmp_path_factory.mktemp("iceberg"))
    fields = [("key", LongType()), ("n", LongType()), ("day", StringType())]
    schema = Schema(*(NestedField(at, name, kind) for at, (name, kind) in enumerate(fields, 1)))
    table = warehouse.create(schema, properties={"write.parquet.row-group-limit": str(ROWS // 2)})
    for seed in (0, 1):
        old = rows_of(seed, day=["ab"[seed]] * ROWS)
        table.append(pa.table({"key": old.pop("id"), **old}))
    with table.update_schema() as change:
        change.rename_column("key", "id")
        change.add_column("later", DoubleType())
    with table.update_schema() as change:
        change.add_column("key", LongType())
    new = rows_of(2, day=pa.nulls(ROWS, pa.string()), later=pa.array([0.75] * ROWS))
    table.append(pa.table({**new, "key": pa.array(range(ROWS), pa.int64())}))
    name = "iceberg:cat/ns.t"
    parquet_bloom.add_filters(name, columns=["id"], catalog_properties=warehouse.properties)
    snapshot = warehouse.read()
    yield Lake(name, rows_of(1)["id"][17].as_py(), warehouse.properties, [Path(f.path) for f in snapshot.files])
    warehouse.close()


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest) -> Lake:
    return request.getfixturevalue(request.param)


def collected(frame: Any) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=by_place)


def by_place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return str(row["path"]), row.get("row_group") or 0, str(row.get("column"))


def filter_rows(files: Any, names: list[str]) -> list[dict[str, Any]]:
    """The rows of a local report of inspect or verify."""
    own = [name for name in names if name not in ("path", "error")]
    rows = [{"path": one.path, **{n: getattr(f, n) for n in own}, "error": None} for one in files for f in one.filters]
    return sorted(rows, key=by_place)


@pytest.mark.parametrize("text", [*PREDICATES[:5], *(pytest.param(t, marks=pytest.mark.slow) for t in PREDICATES[5:])])
def test_check_and_prune_say_what_the_local_ones_say(spark: Any, lake: Lake, text: str) -> None:
    predicate = text.format(id=lake.id)
    local = parquet_bloom.check(lake.name, predicate, nan="largest", catalog_properties=lake.properties)
    wanted = [{**one._asdict(), "outcome": one.outcome.names, "row_groups": None, "error": None} for one in local]
    nothing = {"row_group": None, "outcome": None, "skipped": True, "bytes_read": None, "error": None}
    parts = ("path", "decided_by", "reason", "rows", "size", "row_groups")
    wanted += [{**nothing, **{part: getattr(one, part) for part in parts}} for one in local.excluded]
    found = collected(bloom.check(spark, [lake.name], predicate, catalog_properties=lake.properties))
    if " IN " in text:  # a filter is read whole or by blocks, as this process has its kernels ready or not
        for row in (*found, *wanted):
            row["bytes_read"] = bool(row["bytes_read"])
    assert found == sorted(wanted, key=by_place)

    selection = parquet_bloom.prune(lake.name, predicate, nan="largest", catalog_properties=lake.properties)
    kept = collected(bloom.prune(spark, [lake.name], predicate, catalog_properties=lake.properties))
    assert {row["path"]: row["row_groups"] for row in kept} == {str(path): list(groups) for path, groups in selection}
    assert {row["path"] for row in kept if row["has_deletes"]} == set(map(str, selection.with_deletes))
    if text == PREDICATES[0]:
        assert len(kept) == 1, "the filters of the others deny the id"
    if text == "day = 'nowhere'" and "delta" in lake.name:
        assert len(local.excluded) == len(lake.files), "the log alone excludes all"


@pytest.mark.parametrize("columns", [None, ["id"], ["i*"]])
def test_inspect_and_verify_say_what_the_local_ones_say(spark: Any, lake: Lake, columns: list[str] | None) -> None:
    how = {"columns": columns, "catalog_properties": lake.properties}
    frame = bloom.inspect_filters(spark, [lake.name], **how)
    local = filter_rows(parquet_bloom.inspect(lake.name, **how).files, frame.columns)
    assert collected(frame) == local
    assert {row["column"] for row in local} == {"id"}, "the table's name, not that of the day when files were written"
    assert len({row["path"] for row in local}) == len(lake.files), "files that live, and no dead one"
    frame = bloom.verify_filters(spark, [lake.name], sample=1, **how)
    parts = [name for name in frame.columns if name != "measured_fpp"]  # of values that are drawn at random
    local = filter_rows(parquet_bloom.verify(lake.name, sample=1, **how).files, parts)
    assert collected(frame.drop("measured_fpp")) == local
    assert {row["status"] for row in local} == {"right"}


def test_names_and_literals_are_held_against_the_schema_before_any_job(spark: Any, lake: Lake) -> None:
    how = {"catalog_properties": lake.properties}
    with pytest.raises(UnknownColumnError, match="nowhere"):
        bloom.check(spark, [lake.name], "nowhere = 1", **how)
    with pytest.raises(UnknownColumnError, match="no column nowhere; there are: id, n, day, later"):
        bloom.inspect_filters(spark, [lake.name], ["nowhere"], **how)
    with pytest.raises(RequestError, match="a table is read alone"):
        bloom.prune(spark, [lake.name, "lake/plain"], "id = 1", **how)
    with pytest.raises(RequestError, match="raw_files=True reads what lies in a folder"):
        bloom.check(spark, [lake.name], "id = 1", raw_files=True, **how)


def test_a_bad_file_is_a_row_and_hides_no_other(spark: Any, delta: Lake) -> None:
    data = delta.files[0].read_bytes()
    delta.files[0].write_bytes(data[:-8] + b"nothing!")
    try:
        local = parquet_bloom.check(delta.name, f"id = {delta.id}", nan="largest")
        frames = [bloom.check(spark, [delta.name], f"id = {delta.id}"), bloom.prune(spark, [delta.name], "id > 0")]
        frames += [bloom.inspect_filters(spark, [delta.name]), bloom.verify_filters(spark, [delta.name])]
        [wanted] = local.failed
        for frame in frames:
            rows = collected(frame)
            assert [(r["path"], r["error"]) for r in rows if r["error"]] == [(wanted.path, str(wanted.error))]
            assert len({row["path"] for row in rows}) == 4
    finally:
        delta.files[0].write_bytes(data)


def test_executors_read_no_log(spark: Any, delta: Lake) -> None:
    root = Path(delta.name.removeprefix("delta:"))
    frame = bloom.check(spark, [delta.name], f"id = {delta.id}")
    (root / "_delta_log").rename(root / "moved")
    try:
        assert frame.filter("NOT skipped").count() == 1
    finally:
        (root / "moved").rename(root / "_delta_log")


def test_what_travels_needs_no_library_of_the_format(lake: Lake) -> None:
    snapshot = CallSource(lake.name, access=TableAccess(lake.properties)).resolve().snapshot
    for data in (send_table(snapshot), *(send(sent_file(file, ANY), snapshot) for file in snapshot.files)):
        for module in (b"pyiceberg", b"deltalake", b"tables.iceberg", b"tables.delta"):
            assert module not in data, module


def test_a_file_system_that_cannot_travel_is_one_error(tmp_path: Path) -> None:
    class OfThisProcess:
        """Classes of a function have no name by which another process finds them."""

    own = OfThisProcess()
    file = TableFile("bucket/a.parquet", own, "x://bucket/a.parquet")
    snapshot = Snapshot("delta:x://bucket", "0", (Field("id", pa.int64()),), False, [file], {}, own)
    with pytest.raises(RequestError, match=r"^delta:x://bucket: .* cannot be sent to them.*leave Spark out$"):
        send_table(snapshot)
