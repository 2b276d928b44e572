"""Zone indexes that Spark builds are those that one machine builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom.errors import RequestError, StorageError, UnknownColumnError

pytestmark = pytest.mark.spark


@pytest.fixture
def data(tmp_path: Path) -> Path:
    pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    folder = tmp_path / "data"
    for i in range(5):
        path = folder / f"k={i % 2}" / f"{i}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = np.random.default_rng(i).integers(0, 10**9, 700 + i)
        names = [None if n % 5 == 0 else f"n{n}" for n in ids.tolist()]
        pq.write_table(pa.table({"id": ids, "name": names}), path, row_group_size=300)
    return folder


def test_the_same_index_as_on_one_machine(spark: Any, data: Path, tmp_path: Path) -> None:
    from support.lance_data import content

    from parquet_bloom import lance
    from parquet_bloom.spark import build_zone_index

    lance.build_index(data, ["id", "name"], tmp_path / "one", items=64)
    built = build_zone_index(spark, [str(data)], ["id", "name"], str(tmp_path / "many"), items=64)
    rows = {row.column: row for row in built.collect()}
    built.unpersist()
    assert set(rows) == {"id", "name"}
    for name in rows:
        ours, theirs = (tmp_path / folder / name / "bloomfilter.lance" for folder in ("many", "one"))
        assert rows[name].path == str(ours)
        assert (rows[name].bytes, rows[name].zones) == (ours.stat().st_size, 55)
        assert content(ours) == content(theirs), "zones, null bitmaps, metadata, whose order in the file is chance"
    wanted = pq.read_table(data / "k=1" / "3.parquet")["id"][500].as_py()
    found = parquet_bloom.read_table(data, f"id = {wanted}", index=tmp_path / "many")
    assert found["id"].to_pylist() == [wanted]


def test_what_cannot_be_built_is_told_before_any_work(spark: Any, data: Path, tmp_path: Path) -> None:
    from parquet_bloom.spark import build_zone_index

    out = str(tmp_path / "out")
    with pytest.raises(UnknownColumnError):
        build_zone_index(spark, [str(data)], ["idd"], out)
    with pytest.raises(StorageError, match="no such file"):
        build_zone_index(spark, [str(tmp_path / "none")], ["id"], out)
    (tmp_path / "x.lance").mkdir()
    with pytest.raises(RequestError, match="is a Lance data set"):
        build_zone_index(spark, [str(tmp_path / "x.lance")], ["id"], out)
    for none in ([], 5):
        with pytest.raises(RequestError, match="columns takes a name or a list of names"):
            build_zone_index(spark, data, none, out)  # type: ignore[arg-type]
    assert not Path(out).exists()


def test_the_live_files_of_a_table(spark: Any, tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    from support import delta_tables as made
    from support.lance_data import content

    from parquet_bloom import lance
    from parquet_bloom.spark import build_zone_index

    root = tmp_path / "lake"
    tables = [pa.table({"id": np.random.default_rng(i).integers(0, 10**9, 500 + i)}) for i in range(3)]
    adds = [made.file_of(root, f"{i}.parquet", table) for i, table in enumerate(tables)]
    made.commit(root, 0, made.protocol(), made.metadata([made.field("id", "long")]), *adds)
    made.commit(root, 1, {"remove": {"path": "0.parquet", "dataChange": True, "deletionTimestamp": 0}})
    name = f"delta:{root}"
    lance.build_index(name, ["id"], tmp_path / "one", items=64)
    [row] = build_zone_index(spark, [name], ["id"], str(tmp_path / "many"), items=64).collect()
    ours, theirs = (tmp_path / folder / "id" / "bloomfilter.lance" for folder in ("many", "one"))
    assert row.path == str(ours)
    assert content(ours) == content(theirs), "of the files that live, in the order of the log"
    wanted = tables[2]["id"][7].as_py()
    found = parquet_bloom.read_table(name, f"id = {wanted}", index=tmp_path / "many")
    assert found["id"].to_pylist() == [wanted]
    with pytest.raises(RequestError, match="raw_files=True reads what lies in a folder"):
        build_zone_index(spark, [name], ["id"], str(tmp_path / "raw"), raw_files=True)
