"""locate on Spark: the places that one machine finds, by an index, by filters, or by both."""

from __future__ import annotations

import datetime as dt
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from spark.test_spark_key_index import delta_table, write_mixed

import parquet_bloom
from parquet_bloom import spark as bloom
from parquet_bloom.errors import RequestError, StaleIndexError, UnknownColumnError
from parquet_bloom.format.schema import find_leaf
from parquet_bloom.keys.index import open_key_index
from parquet_bloom.search.question import NO_COST
from parquet_bloom.spark.locating import _locate_files, _Places
from parquet_bloom.spark.storages import Storages
from parquet_bloom.spark.work import ListedFiles
from parquet_bloom.storage.open_file import OpenFile

pytestmark = pytest.mark.spark
COLUMNS = ["key", "file", "row_group", "first_row", "rows", "deletes"]


def rows_of(found: Any) -> list[tuple[Any, ...]]:
    """The rows of a DataFrame or a table, sorted; no file failed."""
    rows = [row.asDict() for row in found.collect()] if hasattr(found, "collect") else found.to_pylist()
    assert all(row.get("error") is None for row in rows)
    return sorted(tuple(row[name] for name in COLUMNS) for row in rows)


def some_ids(data: Path, rng: np.random.Generator) -> list[int | None]:
    """Ids of the files, others, one twice, and a NULL."""
    there = [v for path in sorted(data.rglob("*.parquet")) for v in pq.ParquetFile(path).read()["id"].to_pylist()]
    present = rng.choice([v for v in there if v is not None], 40).tolist()
    return [*present, present[0], None, *rng.integers(10**6, 10**7, 20).tolist()]


def test_the_places_of_one_machine(spark: Any, tmp_path: Path) -> None:
    """Files of several types, in folders, with NULLs; some with filters, some that came after the index was built."""
    data, index = write_mixed(tmp_path / "data", 8), tmp_path / "index"
    some = sorted((data / "day=0").glob("*.parquet"))
    parquet_bloom.add_filters(
        [str(path) for path in some if path.name != "none.parquet"], in_place=True, columns=["id"]
    )
    keys = some_ids(data, np.random.default_rng(1))
    frame = spark.createDataFrame([(key,) for key in keys], "id bigint")
    wanted = rows_of(parquet_bloom.locate(data, "id", keys))
    assert rows_of(bloom.locate(spark, str(data), "id", frame)) == wanted
    parquet_bloom.build_index(data, "id", index)
    by_index = rows_of(parquet_bloom.locate(data, "id", keys, index))
    assert len(by_index) < len(wanted)
    assert rows_of(bloom.locate(spark, str(data), "id", pa.table({"k": keys}), index)) == by_index
    ids = pa.array([keys[0], 123_456_789])
    pq.write_table(pa.table({"id": ids}), data / "day=1/new.parquet")
    both = rows_of(parquet_bloom.locate(data, "id", keys, index))
    assert any(row[1].endswith("new.parquet") for row in both)
    assert rows_of(bloom.locate(spark, str(data), "id", frame, index=index)) == both
    held = {
        (key, str(path), group)
        for path in data.rglob("*.parquet")
        for group in range(pq.ParquetFile(path).num_row_groups)
        for key in set(pq.ParquetFile(path).read_row_group(group)["id"].to_pylist()) & set(keys) - {None}
    }
    assert held <= {(row[0], row[1], row[2]) for row in both}, "by brute force"


def test_texts_and_a_table(spark: Any, tmp_path: Path) -> None:
    name = delta_table(tmp_path)
    keys = [*pq.read_table(tmp_path / "lake/1.parquet")["id"].to_pylist()[:20], -5]
    parquet_bloom.build_index(name, "id", tmp_path / "index")
    for index in (None, tmp_path / "index"):
        wanted = rows_of(parquet_bloom.locate(name, "id", keys, index))
        assert wanted
        assert rows_of(bloom.locate(spark, name, "id", pa.array(keys), index)) == wanted
    data = write_mixed(tmp_path / "data", 9, files=3)
    names = spark.createDataFrame([("n1",), ("n39",), ("nothing",)], "name string")
    assert rows_of(bloom.locate(spark, data, "name", names)) == rows_of(
        parquet_bloom.locate(data, "name", ["n1", "n39", "nothing"])
    )


def test_a_file_that_cannot_be_read_is_a_row(spark: Any, tmp_path: Path) -> None:
    data = write_mixed(tmp_path / "data", 10, files=3)
    (data / "day=1/zz.parquet").write_bytes(b"PAR1 is no file PAR1")
    found = bloom.locate(spark, data, "id", [1, 2]).collect()
    failed = [row for row in found if row["error"] is not None]
    assert [(Path(row["file"]).name, row["key"]) for row in failed] == [("zz.parquet", None)]


def test_what_cannot_be_asked_is_an_error(spark: Any, tmp_path: Path) -> None:
    data = write_mixed(tmp_path / "data", 11, files=2)
    with pytest.raises(UnknownColumnError, match="idd"):
        bloom.locate(spark, data, "idd", [1])
    with pytest.raises(RequestError, match="the folders' names have its values"):
        bloom.locate(spark, data, "day", [1])
    with pytest.raises(RequestError, match="the folders' names have its values"):
        bloom.locate(spark, data, "DAY", [1])
    with pytest.raises(RequestError, match="Spark has no such type"):
        bloom.locate(spark, data, "id", pa.array([2**63], pa.uint64()))
    with pytest.raises(RequestError, match="give the keys alone"):
        bloom.locate(spark, data, "id", pa.table({"a": [1], "b": [2]}))
    for keys, message in (
        (["x"], "'x' is no literal for it"),
        ([1.0, float("nan")], "NaN keys cannot be located"),
        (pa.array([1001], pa.timestamp("ns")), "cannot hold"),
        (pa.array([1001], pa.duration("ns")), "cannot hold"),
        (pa.array([1], pa.duration("us")), "no literal is a duration"),
        (pa.array([Decimal("1.1")], pa.decimal256(50, 1)), "no such type"),
    ):
        with pytest.raises(RequestError, match=message) as caught:
            bloom.locate(spark, data, "id", keys)
        assert "\n" not in str(caught.value)
    other = write_mixed(tmp_path / "other", 12, files=2)
    parquet_bloom.build_index(other, "id", tmp_path / "index")
    with pytest.raises(StaleIndexError, match="of none of these files"):
        bloom.locate(spark, data, "id", [1], tmp_path / "index")


@pytest.mark.parametrize("by_index", [False, True])
def test_a_column_in_another_case_has_its_places(spark: Any, tmp_path: Path, by_index: bool) -> None:
    """As Spark has it, which reads these files as one column; where two columns may be meant, the file is an error."""
    data = tmp_path / "data"
    data.mkdir()
    for number, name in enumerate(["id", "ID", "Id"]):
        pq.write_table(pa.table({name: [number, 7]}), data / f"{number}.parquet")
    pq.write_table(pa.table({"iD": [7], "ID": [7]}), data / "3.parquet")
    index = tmp_path / "index" if by_index else None
    if by_index:
        parquet_bloom.build_index(data, "id", tmp_path / "index")
    found = bloom.locate(spark, data, "id", [7, 1], index).collect()
    places = {(row["key"], Path(row["file"]).name) for row in found if row["error"] is None}
    assert {(7, "0.parquet"), (7, "1.parquet"), (7, "2.parquet"), (1, "1.parquet")} <= places
    errors = [(Path(row["file"]).name, row["error"]) for row in found if row["error"] is not None]
    assert [name for name, _ in errors] == ["3.parquet"]
    assert "differ in case alone" in errors[0][1]
    if by_index:
        assert open_key_index(tmp_path / "index").take_cost() == NO_COST, "the next question counts its own reads"


@pytest.mark.parametrize("by_index", [False, True])
def test_timestamps_with_a_zone_and_without(spark: Any, tmp_path: Path, by_index: bool) -> None:
    moments = [dt.datetime(2026, 1, day, 3, tzinfo=dt.UTC) for day in (1, 2, 3)]
    columns = {
        "at": pa.array(moments, pa.timestamp("us", "UTC")),
        "plain": pa.array([moment.replace(tzinfo=None) for moment in moments], pa.timestamp("us")),
    }
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "data/a.parquet", row_group_size=1)
    index = tmp_path / "index" if by_index else None
    if by_index:
        parquet_bloom.build_index(tmp_path / "data", ["at", "plain"], tmp_path / "index")
    for column, kind in (("at", "timestamp"), ("plain", "timestamp_ntz")):
        stored = spark.read.parquet(str(tmp_path / "data")).select(column)
        found = bloom.locate(spark, tmp_path / "data", column, stored, index)
        assert found.schema["key"].dataType.simpleString() == kind
        wanted = {(row[column], at) for at, row in enumerate(sorted(stored.collect()))}
        assert {(row["key"], row["row_group"]) for row in found.collect()} == wanted
        nanoseconds = columns[column].cast(pa.timestamp("ns", columns[column].type.tz))
        assert rows_of(bloom.locate(spark, tmp_path / "data", column, nanoseconds, index)) == rows_of(found)


def test_a_file_that_cannot_be_opened_is_a_row_beside_the_others(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2]}), path)
    with OpenFile(str(path)) as source:
        places = _Places(pa.array([2]), find_leaf(source.outline().leaves, "id"))
    rows = [{"path": "nowhere://b/c.parquet", "root": ""}, {"path": str(path), "root": ""}]
    work = pa.record_batch({"data": pa.array([pickle.dumps(rows)], pa.binary())})
    found = [row for batch in _locate_files(iter([work]), ListedFiles(Storages()), places) for row in batch.to_pylist()]
    assert [(row["file"], row["key"], row["error"] is None) for row in found] == [
        ("nowhere://b/c.parquet", None, False),
        (str(path), 2, True),
    ]
