"""Folders of tables on Spark: named, above what is named, or met by executors on the way down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.samples import ROW_GROUPS, ROWS, write_keys

from parquet_bloom import spark as bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import TableFormatError, TableWarning

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")]
N = ROW_GROUPS * ROWS


def source(spark: Any, path: str, raw_files: bool = False) -> int:
    reader = spark.read.format("parquet_bloom").option("columns", "id")
    return reader.option("rawFiles", str(raw_files)).load(path).count()


def counted(spark: Any, path: str, **how: Any) -> int:
    return bloom.read(spark, [path], "id IS NOT NULL", ["id"], **how).count()


READS: dict[str, Callable[..., int]] = {
    "check": lambda spark, path, **how: N // ROW_GROUPS * bloom.check(spark, [path], "id > 0", **how).count(),
    "prune": lambda spark, path, **how: bloom.prune(spark, [path], "id > 0", **how).agg({"rows": "sum"}).head()[0],
    "read": counted,
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two tables, and a folder that has a table's names and no log."""
    lake = tmp_path_factory.mktemp("tables") / "lake"
    for name, log in (
        ("t/day=1", "t/_delta_log/00000000000000000000.json"), ("deep/u", "deep/u/metadata/v1.metadata.json"),
        ("plain", "plain/metadata/about.json"),
    ):  # fmt: skip
        for folder in (lake / name, (lake / log).parent):
            folder.mkdir(parents=True, exist_ok=True)
        write_keys(lake / name / "keys.parquet")
        (lake / log).write_text("{}")
    return lake


@pytest.mark.parametrize("name", READS)
def test_rows_of_tables_are_refused(spark: Any, lake: Path, name: str) -> None:
    for path, said in (
        (lake / "t", "lake/t: is a Delta table"), (lake / "t/day=1", "day=1: lies in the Delta table .*lake/t,"),
        (lake / "t/day=1/*.parquet", "lies in the Delta table"),
    ):  # fmt: skip
        with pytest.raises(TableFormatError, match=said):
            READS[name](spark, str(path))
    assert READS[name](spark, str(lake / "t"), raw_files=True) == N


def test_executors_tell_of_tables_that_they_meet(spark: Any, lake: Path) -> None:
    with pytest.raises(TableFormatError, match="lake: holds 2 tables, such as the Iceberg table .*lake/deep/u,"):
        bloom.prune(spark, [str(lake)], "id > 0")
    with pytest.warns(TableWarning, match="lake holds 2 tables.*may be among these"):
        assert bloom.inspect_filters(spark, [str(lake)]).filter("error IS NOT NULL").count() == 0
    assert READS["check"](spark, str(lake / "plain")) == N, "no log, no table"


def test_the_data_source(spark: Any, lake: Path) -> None:
    bloom.register(spark)
    with pytest.raises(Exception, match=r"lake/t/day=1: lies in the Delta table .*rawFiles"):
        source(spark, str(lake / "t/day=1"))
    reader = spark.read.format("parquet_bloom").schema("id bigint").option("partitions", "2")
    with pytest.raises(Exception, match="holds the .* table .*rawFiles"):  # met by a task: the driver lists nothing
        reader.load(str(lake)).count()
    assert source(spark, str(lake / "t"), raw_files=True) == N


def test_the_commands(spark: Any, lake: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    table = str(lake / "t")
    index = ["index", table, "-c", "id", "-o", str(tmp_path / "index")]
    for arguments in (
        ["check", table, "id > 0"],
        ["prune", table, "id > 0"],
        ["read", table, "--where", "id > 0"],
        index,
    ):
        capfd.readouterr()
        assert run(["spark", *arguments]) == 2, arguments
        assert capfd.readouterr().err.startswith(f"parquet-bloom: {table}: is a Delta table, ")
    assert run(["spark", *index, "--raw-files"]) == 0
    capfd.readouterr()
    assert run(["spark", "inspect", table]) == 0
    assert f"parquet-bloom: warning: {table} is a Delta table: " in capfd.readouterr().err
