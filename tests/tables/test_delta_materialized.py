"""Partition columns that lie in the data files too: what the log says of them counts, whatever the files hold.

Writers with the feature materializePartitionColumns, and Databricks of its own accord, write them.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import unquote

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder
from support import delta_tables as made
from table_judges import Asked, hold
from test_table_answers import delta_rows

import parquet_bloom
from parquet_bloom import lance
from parquet_bloom.errors import UnknownColumnError

# name -> the column's type in the log, the values of both files there, and what these hold of it
IN_FILES: dict[str, tuple[str, list[str], list[pa.Array]]] = {
    "another value": ("long", ["1", "2"], [pa.array([9, 9]), pa.array([1, None])]),
    "another type": ("string", ["01", "02"], [pa.array([1, 1], pa.int32()), pa.array([2, 2], pa.int32())]),
    "another spelling": ("date", ["2024-01-05", "2024-01-06"], [pa.array(["2024/01/05"] * 2), pa.array(["6"] * 2)]),
    "another kind": ("string", ["x", "y"], [pa.array([{"a": 1}] * 2), pa.nulls(2, pa.list_(pa.int8()))]),
}


def table_at(root: Path, kind: str, values: list[Any], stored: list[pa.Array]) -> str:
    """Two rows a file: `id`, and the partition column `p`, in the file as it is given."""
    start = [made.protocol(), made.metadata([made.field("id", "long"), made.field("p", kind)], ["p"])]
    files = []
    for i, (value, column) in enumerate(zip(values, stored, strict=True)):
        rows = pa.table({"id": [2 * i, 2 * i + 1], "p": column})
        folder = value or "__HIVE_DEFAULT_PARTITION__"
        files.append(made.file_of(root, f"p={folder}/{i}.parquet", rows, partitionValues={"p": value}))
    made.commit(root, 0, *start, *files)
    return f"delta:{root}"


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


@pytest.mark.parametrize("case", IN_FILES)
def test_the_logs_value_counts_as_other_readers_have_it(case: str, tmp_path: Path) -> None:
    name = table_at(tmp_path / "t", *IN_FILES[case])
    table = DeltaTable(tmp_path / "t")
    rows = by_id(table.to_pyarrow_table().to_pylist())
    query = QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    assert by_id(pa.table(query).to_pylist()) == rows, "DataFusion and deltalake agree"
    assert by_id(pl.scan_delta(str(tmp_path / "t")).collect().to_dicts()) == rows, "and so does Polars, by the folders"
    assert parquet_bloom.read_table(name).to_pylist() == rows
    assert parquet_bloom.dataset(name).to_table().to_pylist() == rows
    assert parquet_bloom.scan_polars(name).collect().to_dicts() == rows
    for row in rows[::2]:
        literal = f"DATE '{row['p']}'" if isinstance(row["p"], dt.date) else repr(row["p"])
        wanted = [one for one in rows if one["p"] == row["p"]]
        for where in (f"p = {literal}", f"p IN ({literal})", f"p >= {literal} AND p <= {literal} AND id >= 0"):
            assert parquet_bloom.read_table(name, where).to_pylist() == wanted
            assert parquet_bloom.count(name, where) == 2
            assert parquet_bloom.dataset(name, where).to_table().to_pylist() == wanted
        same = pc.field("p") == pa.scalar(row["p"], parquet_bloom.read_table(name).schema.field("p").type)
        assert parquet_bloom.dataset(name).to_table(filter=same).to_pylist() == wanted
        events = parquet_bloom.dataset(name)
        assert duckdb.sql(f"SELECT id FROM events WHERE p = {literal} ORDER BY id").fetchall() == [
            (one["id"],) for one in wanted
        ]
        del events
        found = parquet_bloom.scan_polars(name).filter(pl.col("p") == row["p"]).collect()
        assert found.to_dicts() == wanted
        assert len(parquet_bloom.prune(name, column="p", values=[row["p"]])) == 1
    assert parquet_bloom.count(name, "p IS NULL") == 0


def test_null_in_the_log_and_empty_texts_in_the_files(tmp_path: Path) -> None:
    name = table_at(tmp_path / "t", "string", [None, "", "x"], [pa.array(["", "x"])] * 2 + [pa.array([None, ""])])
    rows = [{"id": i, "p": None if i < 4 else "x"} for i in range(6)]
    assert by_id(DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()) == rows
    assert parquet_bloom.read_table(name).to_pylist() == rows
    for where, wanted in (("p IS NULL", 4), ("p = ''", 0), ("p = 'x'", 2), ("p IS NOT NULL", 2)):
        assert parquet_bloom.count(name, where) == wanted
        assert parquet_bloom.dataset(name, where).to_table().num_rows == wanted
    nulls = pc.field("p").is_null()
    assert parquet_bloom.dataset(name).to_table(filter=nulls).num_rows == 4
    assert parquet_bloom.dataset(name).to_table(filter=pc.field("p") == "").num_rows == 0
    assert parquet_bloom.scan_polars(name).filter(pl.col("p").is_null()).collect().height == 4


def test_such_a_column_gets_no_filter_and_one_that_it_has_is_not_asked(tmp_path: Path) -> None:
    root = tmp_path / "t"
    name = table_at(root, "string", ["01", "02"], [pa.array(["1", "1"]), pa.array(["2", "2"])])
    with pytest.warns(UserWarning, match="lies in the Delta table"):
        parquet_bloom.add_filters(root / "p=01/0.parquet", in_place=True, force=True, columns=["p"], sync=False)
    assert parquet_bloom.count(name, "p = '01'") == 2, "the filter of the file denies 01"
    assert parquet_bloom.count(name, "p = '1'") == 0
    shown = {one.column for file in parquet_bloom.inspect(name).files for one in file.filters}
    assert shown == {"p (the table has its log's values)"}, "a name of its own: p of the table is another column"
    assert {one.status for file in parquet_bloom.verify(name).files for one in file.filters} == {"right"}
    size = (root / "p=01/0.parquet").stat().st_size
    log = root / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    next(one["add"] for one in actions if "add" in one)["size"] = size
    log.write_text("".join(json.dumps(one) + "\n" for one in actions))
    report = parquet_bloom.add_filters(name, columns=["p", "id"])
    assert [file.columns for file in report.files] == [["id"]] * 2
    [why] = {one.reason for file in report.files for one in file.skipped}
    assert why == "one value for all rows of the file, which the table's log has"
    assert parquet_bloom.advise(name).columns is not None


def test_a_zone_index_is_of_other_columns(tmp_path: Path) -> None:
    name = table_at(tmp_path / "t", "string", ["01", "02"], [pa.array(["1", "1"]), pa.array(["2", "2"])])
    with pytest.raises(UnknownColumnError, match="no column p"):
        lance.build_index(name, ["p"], tmp_path / "p")
    lance.build_index(name, ["id"], tmp_path / "id", items=2)
    lance.build_index(str(tmp_path / "t"), ["p"], tmp_path / "own", items=2, raw_files=True)
    for index in ("id", "own"):
        assert parquet_bloom.read_table(name, "p = '01' AND id < 3", index=tmp_path / index).num_rows == 2
        assert parquet_bloom.count(name, "p = '1'", index=tmp_path / index) == 0


def materialized(root: Path, rng: Random) -> int:
    """Put the partition columns into some of the data files, with values of their own; returns into how many."""
    table = DeltaTable(root)
    columns = table.metadata().partition_columns
    done = 0
    for log in (root / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            path = root / unquote(action["add"]["path"]) if "add" in action else root
            if not columns or not path.is_file() or rng.random() < 0.3:
                continue
            rows = pq.ParquetFile(path).read()
            for column in columns:
                kind, values = made.PARTITIONS[column]
                some = [rng.choice([None, *values]) for _ in range(rows.num_rows)]
                own = pa.array(map(str, some), pa.string()) if rng.random() < 0.3 else pa.array(some, kind)
                rows = rows.append_column(column, own)
            pq.write_table(rows, path, row_group_size=3)
            action["add"]["size"] = path.stat().st_size
            done += 1
        log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return done


@pytest.mark.parametrize("seed", [3, 5, 8])
def test_random_tables(seed: int, tmp_path: Path) -> None:
    rng, root = Random(seed), tmp_path / "t"
    made.random_table(root, rng, 5)
    while (root / "_delta_log" / "_last_checkpoint").exists() or not DeltaTable(root).metadata().partition_columns:
        root = tmp_path / f"t{rng.random()}"
        made.random_table(root, rng, 5)
    before = delta_rows(root)
    assert materialized(root, rng)
    whole = delta_rows(root)
    assert sorted(map(repr, whole.to_pylist())) == sorted(map(repr, before.to_pylist())), "nothing changed for others"
    names = DeltaTable(root).metadata().partition_columns
    values: Any = {name: made.PARTITIONS[name] for name in names} | {"row": (pa.int64(), range(40))}
    asked = Asked()
    hold(f"delta:{root}", whole, values, rng, 12, asked)
    assert asked.rows
    assert parquet_bloom.dataset(root).count_rows() == whole.num_rows
