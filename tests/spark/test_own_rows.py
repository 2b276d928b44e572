"""Rows for Spark's data source, without a session: by the predicate's columns and by pages, and as Spark has them."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.search.search import as_predicate
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile

pytest.importorskip("pyspark", reason="pyspark is not installed (extra `spark`)")

from parquet_bloom.spark.source.rows import FileReader, Query, columns_of
from parquet_bloom.spark.source.types import compatible_schema, convert, open_parquet, types_of

pytestmark = pytest.mark.spark
ROWS = 3000
QUESTIONS = [
    "Id = 77", "Id IN (1, 5, 2999)", "x > 900", "NOT (x <= 900)", "s = 's7' AND Id < 500", "u BETWEEN 5 AND 9",
    "st.a = 12", "s IS NULL AND u > 2990", "Id >= 0", "Id = 5 OR st.a = 6", "Id = 2 AND u >= 0",
]  # fmt: skip


def written(path: Path, **options: Any) -> Path:
    columns = {
        "Id": Random(1).sample(range(ROWS), ROWS), "at": pa.array(range(ROWS), pa.timestamp("ns")),
        "x": [float("nan") if n % 7 == 0 else n / 3 for n in range(ROWS)],
        "s": [None if n % 5 == 0 else f"s{n % 40}" for n in range(ROWS)],
        "st": [{"a": n, "b": str(n)} for n in range(ROWS)], "l": [[n, n + 1] for n in range(ROWS)],
        "u": pa.array(range(ROWS), pa.uint32()),
        "old": pa.array([dt.datetime(1, 1, 1) + dt.timedelta(days=400 * n) for n in range(ROWS)], pa.timestamp("us")),
    }  # fmt: skip
    made = pa.table(columns)
    made = made.drop_columns(["old"]) if options.get("use_deprecated_int96_timestamps") else made
    pq.write_table(made, path, row_group_size=1000, data_page_size=200, write_batch_size=20, **options)
    parquet_bloom.add_filters(path, in_place=True, columns=["Id"], sync=False)
    return path


def read(query: Query, *parts: tuple[DataFile, int, int]) -> pa.Table:
    of_any_size = [(*part, None) for part in parts]
    return pa.Table.from_batches(list(query.selected(FileReader(query).batches_of(of_any_size))), query.schema)


@pytest.mark.parametrize("options", [{"write_page_index": True}, {"use_deprecated_int96_timestamps": True}])
def test_rows_of_a_brute_force(tmp_path: Path, options: dict[str, Any]) -> None:
    file = DataFile(str(written(tmp_path / "a.parquet", **options)))
    with OpenFile(file) as source:
        opened = open_parquet(source)
        schema = compatible_schema(types_of(source, opened), file)
        columns = [column.combine_chunks() for column in opened.read().columns]
    whole = pa.table([convert(column, field.type) for column, field in zip(columns, schema, strict=True)], schema)
    for where in QUESTIONS:
        tree = as_predicate(where)
        [batch] = whole.to_batches()
        kept = row_filter(tree, schema, nan="largest").filter_batch(batch)
        assert kept.num_rows
        for names in (schema.names, ["l", "st"], ["u"]):
            beside = [schema.field(name) for name in columns_of(tree) if name not in names]
            query = Query(pa.schema([schema.field(name) for name in names]), pa.schema(beside), tree)
            for parts in ([(file, 0, 1)], [(file, 0, 2), (file, 1, 2)]):
                assert repr(read(query, *parts).to_pylist()) == repr(kept.select(names).to_pylist()), (where, names)


def test_a_folder_s_column_and_names_in_another_case(tmp_path: Path) -> None:
    file = replace(DataFile(str(written(tmp_path / "a.parquet"))), partitions=(("day", "7"),))
    schema = pa.schema([("ID", pa.int64()), ("day", pa.int32()), ("none", pa.string())])
    found = read(Query(schema, pa.schema([]), as_predicate("ID = 9 AND day = 7")), (file, 0, 1))
    assert found.to_pylist() == [{"ID": 9, "day": 7, "none": None}]
    alone = read(Query(schema.remove(2).remove(0), pa.schema([]), as_predicate("day = 7")), (file, 0, 1))
    assert alone["day"].to_pylist() == [7] * ROWS
