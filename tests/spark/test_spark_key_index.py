"""Key indexes that Spark builds are those that one machine builds; with one Spark finds the rows that it finds without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from keys.key_indexes import content_of, manifest_of, said_of
from parquet_bloom.errors import (
    ConflictError,
    DamagedFileError,
    NotParquetError,
    RequestError,
    StorageError,
    UnknownColumnError,
)
from parquet_bloom.keys.verify import verify_key_index
from parquet_bloom.spark import build_index
from parquet_bloom.spark import keys as spark_keys

pytestmark = pytest.mark.spark


def write_mixed(folder: Path, seed: int, files: int = 7) -> Path:
    """Files of several types, with NULLs, several row groups, and columns that some of them lack."""
    rng = np.random.default_rng(seed)
    for number in range(files):
        n = int(rng.integers(50, 400))
        kind = pa.int64() if number % 3 else pa.int32()
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
    assert len(manifest_of(index).segments) == 3, "INT32 and INT64, and INT32 without the name"
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
        written = list(spark_keys._write_parts(iter(sorted(again, key=lambda row: row["part"])), layout, str(tmp_path)))
        assert [one["part"] for one in written] == [0, 1]
    files = sorted((tmp_path / "columns/0").iterdir())
    assert [file.name for file in files] == [f"{'0' * 16}-0000{part}.parquet" for part in (0, 1)]
    assert sum(pq.read_metadata(file).num_rows for file in files) == len(packed)
