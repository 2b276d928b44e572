"""Key indexes on Spark: it builds those that one machine builds, and finds with one the rows that it finds without."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from keys.key_indexes import content_of, hashed, manifest_of, said_of
from parquet_bloom import spark as bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import (
    ConflictError,
    DamagedFileError,
    NotParquetError,
    RequestError,
    StaleIndexError,
    StorageError,
    UnknownColumnError,
)
from parquet_bloom.keys.verify import verify_key_index
from parquet_bloom.output.index_files import IndexFiles
from parquet_bloom.spark import build_index
from parquet_bloom.spark import keys as spark_keys

pytestmark = pytest.mark.spark


def write_mixed(folder: Path, seed: int, files: int = 7) -> Path:
    """Files of several types, with NULLs, several row groups, and columns that some of them lack."""
    rng = np.random.default_rng(seed)
    for number in range(files):
        n = int(rng.integers(50, 400))
        kind = pa.int32() if number % 3 == 1 else pa.int64()  # Spark reads the first file's type, and what it widens
        ids = pa.array(rng.integers(0, 10**6, n), kind, mask=rng.random(n) < 0.1)
        columns = {"id": ids, "name": pa.array([f"n{value}" for value in rng.integers(0, 40, n)])}
        if number % 4 == 3:
            del columns["name"]
        path = folder / f"day={number % 2}" / f"{number}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), path, row_group_size=int(rng.integers(30, 200)))
    with pq.ParquetWriter(folder / "day=0/none.parquet", pa.schema([("id", pa.int64())])):
        pass  # no row group
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mixed(tmp_path_factory.mktemp("key_index") / "data", 5)


@pytest.fixture(scope="module")
def index(spark: Any, data: Path) -> Path:
    """An index of the data, by Spark."""
    build_index(spark, data, ["id", "name"], data.parent / "index")
    return data.parent / "index"


# --- building -------------------------------------------------------------------------------------


def test_the_same_index_as_on_one_machine(data: Path, index: Path, tmp_path: Path) -> None:
    parquet_bloom.build_index(data, ["id", "name"], tmp_path / "one")
    assert len(manifest_of(index).segments) == 3, "INT32 and INT64, and INT64 without the name"
    assert content_of(index) == content_of(tmp_path / "one")
    assert said_of(index) == said_of(tmp_path / "one")
    assert verify_key_index(index, data, all_files=True).status == "right"


def test_many_parts_and_tasks(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of which some have no entry, as in an index of billions of values; then once more over itself."""
    from parquet_bloom.keys import manifest

    data = write_mixed(tmp_path / "data", 6)
    monkeypatch.setattr(manifest, "_PART_ENTRIES", 40)
    monkeypatch.setattr(spark_keys, "_TASK_ENTRIES", 300)
    parquet_bloom.build_index(data, ["id", "name"], tmp_path / "one", false_places=2)
    for overwrite in (False, True):
        report = build_index(spark, str(data), ["id", "name"], tmp_path / "many", false_places=2, overwrite=overwrite)
        assert content_of(tmp_path / "many") == content_of(tmp_path / "one")
        assert said_of(tmp_path / "many") == said_of(tmp_path / "one")
    parts = [part.rows for one in manifest_of(tmp_path / "many").segments for c in one.columns for part in c.parts]
    assert len(parts) > 20
    assert 0 in parts, "names have few hashes"
    assert (report.files, report.passed_over) == (7, 1)


def test_the_live_files_of_a_table(spark: Any, tmp_path: Path) -> None:
    name = delta_table(tmp_path)
    parquet_bloom.build_index(name, "id", tmp_path / "one")
    build_index(spark, name, "id", tmp_path / "many")
    assert content_of(tmp_path / "many") == content_of(tmp_path / "one")
    assert said_of(tmp_path / "many") == said_of(tmp_path / "one"), "of this table, at this version"


def delta_table(folder: Path) -> str:
    """A table of three files, of which two live."""
    from support import delta_tables as made

    root = folder / "lake"
    tables = [pa.table({"id": np.random.default_rng(i).integers(0, 10**9, 300 + i)}) for i in range(3)]
    adds = [made.file_of(root, f"{i}.parquet", table) for i, table in enumerate(tables)]
    made.commit(root, 0, made.protocol(), made.metadata([made.field("id", "long")]), *adds)
    made.commit(root, 1, {"remove": {"path": "0.parquet", "dataChange": True, "deletionTimestamp": 0}})
    return f"delta:{root}"


def test_what_cannot_be_built_is_told_before_any_work(spark: Any, data: Path, index: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(UnknownColumnError, match="idd"):
        build_index(spark, data, "idd", out)
    with pytest.raises(RequestError, match="the folders' names have its values"):
        build_index(spark, write_with_key(tmp_path / "keyed"), "day", out)
    with pytest.raises(StorageError, match="no such file"):
        build_index(spark, tmp_path / "none", "id", out)
    with pytest.raises(RequestError, match="where its files would be read as data"):
        build_index(spark, data, "id", data / "index")
    with pytest.raises(StorageError, match="exists; give overwrite=True"):
        build_index(spark, data, "id", index)
    with pytest.raises(RequestError, match="a local or mounted folder"):
        build_index(spark, data, "id", "s3a://bucket/index")
    assert not out.exists()


def write_with_key(folder: Path) -> Path:
    (folder / "day=1").mkdir(parents=True)
    pq.write_table(pa.table({"day": [1]}), folder / "day=1" / "a.parquet")
    return folder


def test_a_damaged_file_is_named(spark: Any, tmp_path: Path) -> None:
    data = write_mixed(tmp_path / "data", 7, files=3)
    (data / "day=1/zzz.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises((DamagedFileError, NotParquetError), match=r"zzz\.parquet: "):
        build_index(spark, data, "id", tmp_path / "index")
    assert not (tmp_path / "index").exists()


def rewritten(path: Path) -> None:
    """Other values in as many rows."""
    file = pq.ParquetFile(path)
    table, n = file.read(), file.metadata.row_group(0).num_rows
    at = table.schema.get_field_index("id")
    pq.write_table(table.set_column(at, "id", pa.nulls(len(table), table.schema.field("id").type)), path, n)


@pytest.mark.parametrize("change", [rewritten, Path.unlink])
def test_a_file_that_changes_before_its_turn_comes(
    spark: Any, change: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its footer was read before. The index that is there stays, and answers."""
    data = write_mixed(tmp_path / "data", 8, files=3)
    parquet_bloom.build_index(data, "id", tmp_path / "index")
    before = said_of(tmp_path / "index")
    real = spark_keys._decoding

    def changing(*arguments: Any) -> Any:
        change(data / "day=1/1.parquet")
        return real(*arguments)

    monkeypatch.setattr(spark_keys, "_decoding", changing)
    with pytest.raises(StorageError, match=r"1\.parquet: ") as raised:
        build_index(spark, data, ["id", "name"], tmp_path / "index", overwrite=True)
    assert isinstance(raised.value, ConflictError) == (change is rewritten)
    assert said_of(tmp_path / "index") == before
    assert verify_key_index(tmp_path / "index", data).status == "right"


def test_a_part_may_be_written_twice(tmp_path: Path) -> None:
    """By a task that Spark repeats, or by its twin: the file has the same bytes then, and nothing else is there."""
    packing = spark_keys.Packing(20, 4, 1)
    layout = spark_keys._Layout([{0: spark_keys._Column("0" * 16, 0, packing, 0)}], [0, 0])
    packed = np.unique(np.random.default_rng(1).integers(0, 1 << 24, 1000).astype(np.uint64))
    rows = list(layout.rows(layout.columns[0][0], packed))
    for _ in range(2):
        again = [*rows, *rows]  # Spark does not lose count; if it did, each entry would count once
        task = sorted(again, key=lambda row: row["part"])
        written = list(spark_keys._write_parts(iter(task), layout, IndexFiles(str(tmp_path))))
        assert [one["part"] for one in written] == [0, 1]
    files = sorted((tmp_path / "columns/0").iterdir())
    assert [file.name for file in files] == [f"{'0' * 16}-0000{part}.parquet" for part in (0, 1)]
    assert sum(pq.read_metadata(file).num_rows for file in files) == len(packed)


# --- asking ---------------------------------------------------------------------------------------


def questions(data: Path, seed: int) -> list[str]:
    """Predicates, with values that are there and others."""
    rng = np.random.default_rng(seed)
    ids = [value for file in sorted(data.rglob("*.parquet")) for value in pq.read_table(file)["id"].to_pylist()]
    some = rng.choice(np.array([one for one in ids if one is not None]), 4).tolist()
    return [
        f"id = {some[0]}",
        f"id IN ({some[1]}, {some[2]}, -7)",
        "id = -7",
        f"id = {some[3]} AND day = 1",
        f"NOT (id <> {some[0]}) OR id IS NULL AND day = 0",
        f"id > {max(some)}",
    ]


def matching(data: Path, predicate: str) -> list[int]:
    """Ids of the rows that match, by reading them all."""
    return sorted(parquet_bloom.read_table(data, predicate, columns=["id"])["id"].to_pylist(), key=str)


def read_ids(frame: Any) -> list[int]:
    return sorted((row["id"] for row in frame.select("id").collect()), key=str)


def test_verdicts_are_those_of_one_machine(spark: Any, data: Path, index: Path) -> None:
    unopened = 0
    for predicate in questions(data, 1)[1:4:2]:
        local = parquet_bloom.check(data, predicate, index=index, nan="largest")
        rows = bloom.check(spark, data, predicate, index=index).collect()
        assert not [row for row in rows if row["error"]]
        open_here = {(row["path"], row["row_group"]) for row in rows if not row["skipped"]}
        assert open_here == {(one.path, one.row_group) for one in local if not one.skipped}, predicate
        excluded = {row["path"] for row in rows if row["row_group"] is None}
        # One machine opens the first file in any case, for the columns of all.
        assert excluded - {str(data / "day=0/0.parquet")} == {one.path for one in local.excluded}, predicate
        assert {row["decided_by"] for row in rows if row["path"] in excluded} <= {"index"}
        unopened += len(excluded)
    assert unopened > 4


def test_rows_are_those_without_an_index(spark: Any, data: Path, index: Path) -> None:
    bloom.register(spark)
    *others, last = questions(data, 2)[2:5]
    assert read_ids(bloom.read(spark, data, last, index=index)) == matching(data, last)
    for predicate in (*others, last):
        wanted = matching(data, predicate)
        source = spark.read.format("parquet_bloom").option("where", predicate).option("columns", "id,day")
        assert read_ids(source.option("index", str(index)).load(str(data))) == wanted, predicate


def test_literals_are_sought_as_each_file_has_them(tmp_path: Path) -> None:
    """Spark's microseconds are cut off nanoseconds; what it calls a bigint is an INT32 in some files."""
    pytest.importorskip("pyspark.sql", reason="pyspark is not installed (extra `spark`)")
    from parquet_bloom.spark.source.source import ParquetBloomSource

    micros = 1_700_000_000_000_000
    (tmp_path / "data").mkdir()
    for name, unit, stored, kind in (("a", "us", micros + 9, pa.int64()), ("b", "ns", micros * 1000 + 500, pa.int32())):
        at = pa.array([stored, None], pa.int64()).cast(pa.timestamp(unit, "UTC"))
        table = pa.table({"at": at, "n": pa.array([stored % 10, 7], kind)})
        pq.write_table(table, tmp_path / "data" / f"{name}.parquet")
    parquet_bloom.build_index(tmp_path / "data", ["at", "n"], tmp_path / "index")
    moment = "'2023-11-14 22:13:20+00:00'"
    for where, wanted in ((f"at = {moment}", [0]), ("n = 0", [0]), ("n = 9 OR at IN ({moment})", [9, 0])):
        options = {"path": str(tmp_path / "data"), "where": where.format(moment=moment)}
        source = ParquetBloomSource({**options, "index": str(tmp_path / "index")})
        reader = source.reader(source.schema())
        batches = [batch for part in reader.partitions() for batch in reader.read(part)]
        assert [n for batch in batches for n in batch.column("n").to_pylist()] == wanted, where


def test_spark_sql_joins_the_index(spark: Any, data: Path, index: Path) -> None:
    """As docs/key-index.md has it."""
    path = "day=0/2.parquet"
    segment = next(
        one
        for one in manifest_of(index).segments
        if path in pq.read_table(index / one.listing_name)["path"].to_pylist()
    )
    column = segment.column(0)
    assert column is not None
    ids = pq.ParquetFile(data / path).read(["id"])["id"].drop_null().to_pylist()[:20]
    rows = [(key, hashed(struct.pack("<q", key), column.bits)) for key in ids]
    spark.createDataFrame(rows, "key bigint, hash bigint").createOrReplaceTempView("keys")
    found = spark.sql(f"""
        SELECT DISTINCT keys.key, place.path, place.row_group
        FROM keys
        JOIN parquet.`{index}/columns/0/{segment.id}-*.parquet` AS entries USING (hash)
        JOIN parquet.`{index / segment.listing_name}` AS place USING (place)
    """).collect()
    assert {row["key"] for row in found if row["path"] == path} == set(ids)


def test_new_and_changed_files_are_read_as_without_an_index(spark: Any, tmp_path: Path) -> None:
    data = write_mixed(tmp_path / "data", 10, files=4)
    parquet_bloom.build_index(data, ["id", "name"], tmp_path / "index")
    rewritten_with(data / "day=0/2.parquet", -7)
    pq.write_table(pa.table({"id": pa.array([-7, 1], pa.int64()), "name": ["n", "n"]}), data / "day=1/new.parquet")
    bloom.register(spark)
    wanted = matching(data, "id = -7")
    assert wanted == [-7, -7]
    assert read_ids(bloom.read(spark, data, "id = -7", index=tmp_path / "index")) == wanted
    options = {"where": "id = -7", "columns": "id", "index": str(tmp_path / "index")}
    for more in ({}, {"partitions": "3"}):  # tasks list then, and some know none of their files
        source = spark.read.format("parquet_bloom").options(**options, **more)
        assert read_ids(source.load(str(data))) == wanted
    for file in data.rglob("*.parquet"):
        rewritten_with(file, -7)
    with pytest.raises(StaleIndexError, match=r"all of its 4 files that are here changed since"):
        bloom.prune(spark, data, "id = -7", index=tmp_path / "index")
    with pytest.raises(Exception, match=r"all of its 4 files that are here changed since"):
        spark.read.format("parquet_bloom").options(**options).load(str(data)).count()


def rewritten_with(path: Path, value: int) -> None:
    """One more row."""
    table = pq.ParquetFile(path).read()
    row = {name: [value if name == "id" else "n"] for name in table.schema.names}
    pq.write_table(pa.concat_tables([table, pa.table(row, schema=table.schema)]), path)


def test_an_index_of_other_files_is_an_error_once(spark: Any, data: Path, index: Path, tmp_path: Path) -> None:
    other = write_mixed(tmp_path / "other", 11, files=2)
    for call in (bloom.check, bloom.prune, bloom.read):
        with pytest.raises(StaleIndexError, match="and of none of these files; name the index"):
            call(spark, other, "id = 5", index=index)
    with pytest.raises(RequestError, match="no key index"):
        bloom.check(spark, data, "id = 5", index=data)


def test_a_damaged_part_is_no_evidence(spark: Any, data: Path, index: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "index"
    shutil.copytree(index, damaged)
    for part in damaged.glob("columns/0/*.parquet"):
        part.write_bytes(part.read_bytes()[::-1])
    predicate = questions(data, 3)[0]
    assert read_ids(bloom.read(spark, data, predicate, index=damaged)) == matching(data, predicate)


def test_a_table_by_its_log(spark: Any, tmp_path: Path) -> None:
    """The driver asks the index too: a file that it denies reaches no task."""
    name = delta_table(tmp_path)
    build_index(spark, name, "id", tmp_path / "index")
    bloom.register(spark)
    for wanted in (int(pq.read_table(tmp_path / "lake/2.parquet")["id"][7].as_py()), -7):
        predicate = f"id = {wanted}"
        local = parquet_bloom.check(name, predicate, index=tmp_path / "index")
        rows = bloom.check(spark, name, predicate, index=tmp_path / "index").collect()
        assert {row["path"] for row in rows if row["decided_by"] == "index"} == {one.path for one in local.excluded}
        assert len(local.excluded) == (2 if wanted == -7 else 1)
        found = [wanted] if wanted != -7 else []
        assert read_ids(bloom.read(spark, name, predicate, index=tmp_path / "index")) == found
        source = spark.read.format("parquet_bloom").option("where", predicate).option("index", str(tmp_path / "index"))
        assert read_ids(source.load(name)) == found


def test_objects_of_s3(spark: Any, tmp_path: Path) -> None:
    """By their ETags; an index of s3a: names is one of s3: names."""
    pytest.importorskip("moto", reason="moto's server is not installed")
    from support.object_store import KEY, REGION, SECRET, serving

    data = write_mixed(tmp_path / "data", 12, files=4)
    settings = {"access.key": KEY, "secret.key": SECRET, "endpoint.region": REGION, "path.style.access": "true"}
    hadoop = spark._jsc.hadoopConfiguration()
    with serving() as store:
        settings["endpoint"] = store.endpoint
        store.client.create_bucket(Bucket="bucket")
        for file in data.rglob("*.parquet"):
            store.put(f"bucket/data/{file.name}", file.read_bytes())
        for name, value in settings.items():
            hadoop.set(f"fs.s3a.{name}", value)
        try:
            build_index(spark, "s3a://bucket/data", "id", tmp_path / "index")
            assert manifest_of(tmp_path / "index").root == "s3://bucket/data"
            store.wire.clear()
            rows = bloom.check(spark, "s3a://bucket/data", "id = -7", index=tmp_path / "index").collect()
            read = {request.path for request in store.wire.requests if request.kind == "GET"}
        finally:
            for name in settings:
                hadoop.unset(f"fs.s3a.{name}")
        excluded = {row["path"] for row in rows if row["row_group"] is None}
        assert len(excluded) == 4
        assert len([path for path in read if path.endswith(".parquet")]) <= 2, "the first file's footer, for the names"
        local = parquet_bloom.check(store.uri("bucket/data"), "id = -7", index=tmp_path / "index")
        assert len(local.excluded) == 3, "all but the first, for the names"


def test_the_commands(spark: Any, data: Path, index: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "index")
    capfd.readouterr()
    assert run(["spark", "index", str(data), "-c", "id", "-o", out, "--false-places", "1"]) == 0
    assert capfd.readouterr().out.startswith(out)
    assert run(["spark", "index", str(data), "-c", "id", "-o", out]) == 2
    assert "exists; give --overwrite to replace it" in capfd.readouterr().err
    assert run(["spark", "index", str(data), "-c", "id", "-o", out, "--items", "5"]) == 2
    assert "--items is for --kind lance" in capfd.readouterr().err
    assert run(["spark", "check", str(data), "id = -7", "--index", str(index), "--json"]) == 1
    known = json.loads(capfd.readouterr().out)
    assert known["files not opened"] == 7
    assert run(["spark", "check", str(data), "id = -7", "--json"]) in (0, 1)
    without = json.loads(capfd.readouterr().out)
    assert known["row groups"] == without["row groups"] == sum(n for name, n in known.items() if "skipped by" in name)
