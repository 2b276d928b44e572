"""One data set by pyarrow, DuckDB, Polars, DataFusion, fastparquet and Spark: check, prune and read on Spark.

See engines/test_mixed_writers.py. Spark writes decimals as INT32 and INT64, and instants as INT96.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from engines.mixed import ROWS, WRITE, WRITERS, described_of, numbers, table, text_of

import parquet_bloom
import parquet_bloom.spark as bloom
from parquet_bloom.errors import RequestError, UnknownColumnError
from parquet_bloom.format.values import described
from parquet_bloom.search.options import DatasetSchema, Options
from parquet_bloom.search.search import Search
from parquet_bloom.source.source import CallSource
from parquet_bloom.storage.open_file import OpenFile

pytestmark = pytest.mark.spark

COLUMNS = ["text", "bytes", "i16", "i32", "i64", "f32", "f64", "dec9", "dec18", "dec38", "day", "ts", "at"]
BY_SPARK = {
    "dec9": "INT32 DECIMAL(9, 2)", "dec18": "INT64 DECIMAL(18, 2)", "i64": "INT64", "day": "INT32 DATE",
    "ts": "INT64 TIMESTAMP(us, no zone)", "at": "INT96",
}  # fmt: skip
HELD, ABSENT = 20, 25  # numbers of values: in the files of pyarrow and of Spark, and in none


@pytest.fixture(scope="module")
def folder(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mixed")
    folder = made / "data"
    folder.mkdir()
    for at, writer in enumerate(WRITERS):
        names = [name for name in COLUMNS if described_of(writer, name) is not None]
        WRITE[writer](table(at).select([*names, "row"]), folder / f"{at}-{writer}.parquet")
    pq.write_table(table(len(WRITERS)).select([*COLUMNS, "row"]), made / "given.parquet")
    old = spark.conf.get("spark.sql.parquet.outputTimestampType")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    spark.read.parquet(str(made / "given.parquet")).coalesce(1).write.parquet(str(made / "by_spark"))
    spark.conf.set("spark.sql.parquet.outputTimestampType", old)
    [part] = (made / "by_spark").glob("*.parquet")
    part.rename(folder / "5-spark.parquet")
    for path in folder.iterdir():
        names = [name for name in COLUMNS if (path.name, name) != ("5-spark.parquet", "at")]
        names = [name for name in names if name in pq.read_schema(path).names]
        parquet_bloom.add_filters(path, in_place=True, columns=names, fpp=0.0001, sync=False)
    return folder


def test_spark_writes_types_of_its_own(folder: Path) -> None:
    with OpenFile(folder / "5-spark.parquet") as source:
        leaves = {leaf.path[0]: described(leaf) for leaf in source.footer().leaves}
    assert BY_SPARK.items() <= leaves.items()


@pytest.mark.parametrize("column", ["text", "dec18", "at"])
def test_every_file_is_skipped_by_the_same_literals(spark: Any, folder: Path, column: str) -> None:
    always = {"4-fastparquet.parquet"} if column.startswith("dec") else set()  # DOUBLE, of another kind
    always |= {"5-spark.parquet"} if column == "at" else set()  # INT96, which is no evidence
    rows = bloom.check(spark, [str(folder)], text_of(column, ABSENT)).collect()
    assert not [row["error"] for row in rows if row["error"]]
    assert {Path(row["path"]).name for row in rows if not row["skipped"]} == always
    left = bloom.prune(spark, [str(folder)], text_of(column, HELD)).collect()
    assert {Path(row["path"]).name for row in left} == {"0-pyarrow.parquet", "5-spark.parquet"} | always


def test_other_columns(folder: Path) -> None:
    """What Spark's tasks do, without Spark: the columns of the first file are known to a search from the start."""
    paths = sorted(folder.iterdir())
    with OpenFile(paths[0]) as source:
        known = DatasetSchema(source.outline().leaves, (), str(paths[0]))
    for column in COLUMNS:
        found = Search(
            CallSource(paths).resolve(),
            text_of(column, ABSENT),
            Options("largest", dataset_schema=known, ignore_case=True),
        )
        kept = {Path(one.file.path).name for one in found if one.decision.open.any()}
        expected = {"4-fastparquet.parquet"} if column.startswith("dec") else set()
        assert kept == expected | ({"5-spark.parquet"} if column == "at" else set()), column


@pytest.mark.parametrize("column", ["i64", "ts"])
def test_rows(spark: Any, folder: Path, column: str) -> None:
    """Spark reads no DOUBLE as a decimal, so those columns are left out."""
    rows = bloom.read(spark, [str(folder)], text_of(column, HELD), ["row"]).collect()
    held = {at: numbers(at).index(HELD) for at in (0, len(WRITERS))}
    assert sorted(row["row"] for row in rows) == [ROWS * at + row for at, row in held.items()]


def test_mistakes_are_one_error_before_any_row(spark: Any, folder: Path) -> None:
    paths = [str(folder)]
    with pytest.raises(UnknownColumnError, match="no column nope; .*single quotes: 'nope'"):
        bloom.check(spark, paths, "text = nope")
    with pytest.raises(RequestError, match="column i64 is INT64: 'abc' is no literal for it"):
        bloom.prune(spark, paths, "i64 = 'abc' AND text = 'x'")
    with pytest.raises(RequestError, match="5 is no literal for it"):
        bloom.read(spark, paths, "text = 5")


def test_folders_named_by_dates(spark: Any, tmp_path: Path) -> None:
    """As the command on one machine has it: a date and a text mean the same day."""
    for day in ("2026-01-02", "2026-01-03", "2026-02-01"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(table(0).select(["row"]), tmp_path / f"day={day}" / "x.parquet")
    paths = [str(tmp_path)]
    for text in ("day = DATE '2026-01-03'", "day = '2026-01-03'", "day > DATE '2026-01-02' AND day < '2026-01-31'"):
        kept = {row["path"] for row in bloom.prune(spark, paths, text).collect()}
        assert kept == {str(tmp_path / "day=2026-01-03" / "x.parquet")}, text
        assert kept == {path for path, _ in parquet_bloom.prune(tmp_path, text)}
