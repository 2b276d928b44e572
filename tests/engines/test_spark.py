"""Spark reads files with our filters as it reads the source, and skips row groups by them.

The scan node's numOutputRows counts the rows of the row groups that were read. Files have neither
statistics nor dictionary pages, for both would skip row groups too; a control without filters shows
that nothing else does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repeats import by_turns
from support.spark_needed import need_spark

from engines import made
from engines.asking import skipped_by_check
from engines.reading import assert_equal
from engines.spelling import counts
from parquet_bloom import add_filters

pytestmark = pytest.mark.spark

TABLES = made.row_groups((*made.ROWS, 40))
STORED, NOT_STORED = TABLES[:-1], TABLES[-1]
ALL_ROWS = sum(map(len, STORED))

# One column of such a type, and Spark 4.3 does not open the file at all.
NOT_IN_SPARK = ("float16", "uuid", "time_ms", "time_us", "time_ns", "null_type")


def readable(table: pa.Table) -> pa.Table:
    return table.drop_columns([name for name in NOT_IN_SPARK if name in table.column_names])


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    need_spark()
    from pyspark import sql

    session = (
        sql.SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.legacy.parquet.nanosAsLong", "true")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    old = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, old)


def scan_rows(frame: Any) -> int:
    """Rows that the scan node gave to the rest of the plan, once the frame has been collected."""
    leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
    assert leaves.length() == 1
    return int(leaves.apply(0).metrics().apply("numOutputRows").value())


def found(spark: Any, path: Path, where: str) -> tuple[int, int]:
    """Rows that fit, and rows that were scanned for them."""
    frame = spark.read.parquet(str(path)).where(where)
    return frame.toArrow().num_rows, scan_rows(frame)


# --- equal ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("index", "placement"), by_turns([False, True], made.PLACEMENTS))
def test_is_read_as_the_source(spark: Any, index: bool, placement: str, tmp_path: Path) -> None:
    """By both of Spark's readers; filters of other forms are ignored."""
    source, ours = tmp_path / "source.parquet", tmp_path / "ours.parquet"
    made.write(source, [readable(table) for table in STORED], made.Layout("snappy", page_index=index))
    add_filters(source, ours, columns=made.leaves(source), placement=placement, sync=False)
    for vectorized in ("true", "false"):
        with setting(spark, "spark.sql.parquet.enableVectorizedReader", vectorized):
            assert_equal(spark.read.parquet(str(ours)).toArrow(), spark.read.parquet(str(source)).toArrow())
    where = f"random_int64 = {STORED[1]['random_int64'][7].as_py()}"
    for spec in ("parquet-41", "parquet-41-early", "parquet-41-raw", "statistics"):
        other = tmp_path / f"{spec}.parquet"
        add_filters(source, other, columns=made.leaves(source), spec=spec, sync=False)
        assert_equal(spark.read.parquet(str(other)).toArrow(), spark.read.parquet(str(source)).toArrow())
        assert found(spark, other, where) == found(spark, source, where), spec


@pytest.mark.parametrize("name", [name for name in made.fixtures() if name.startswith("spark/")])
def test_its_own_files(spark: Any, name: str, tmp_path: Path) -> None:
    source = made.fixture(name)
    for replace, placement in product([False, True], made.PLACEMENTS):
        ours = tmp_path / f"{replace}-{placement}.parquet"
        add_filters(source, ours, columns=made.leaves(source), placement=placement, replace=replace, sync=False)
        assert_equal(spark.read.parquet(str(ours)).toArrow(), spark.read.parquet(str(source)).toArrow())


# --- skipping ---------------------------------------------------------------------------------------

# Spark 4.3 gives parquet-java no predicate on TIMESTAMP_NTZ.
SKIPPING = {
    "random_int64": "{}L", "random_int32": "{}", "int8": "{}Y", "int16": "{}S", "half_null": "{}L",
    "random_float": "cast('{}' as float)", "random_double": "cast('{}' as double)",
    "utf8": "'{}'", "empty_strings": "'{}'", "long_common_prefix": "'{}'", "binary": "X'{}'",
    "decimal_9": "cast('{}' as decimal(9, 2))", "decimal_18": "cast('{}' as decimal(18, 4))",
    "decimal_38": "cast('{}' as decimal(38, 10))",
    "date": "DATE '{}'", "timestamp_us_utc": "TIMESTAMP '{}'",
}  # fmt: skip


def literal(column: str, scalar: pa.Scalar) -> str:
    value = scalar.as_py()
    if isinstance(value, bytes):
        value = value.hex()
    elif isinstance(value, float):
        value = repr(value)
    elif pa.types.is_timestamp(scalar.type):
        value = value.isoformat(" ")
    return SKIPPING[column].format(value)


@pytest.mark.parametrize("placement", made.PLACEMENTS)
def test_skips_what_check_skips(spark: Any, placement: str, tmp_path: Path) -> None:
    """Row group for row group: as many rows are scanned as lie in those that check keeps.

    The control has no filters, and neither file statistics nor dictionary pages.
    """
    tables = [table.select(list(SKIPPING)) for table in STORED]
    control, ours = tmp_path / "control.parquet", tmp_path / "ours.parquet"
    made.with_decimals_as_integers(control, tables, write_statistics=False)
    add_filters(control, ours, placement=placement, sync=False, columns=["*"])
    for column in list(SKIPPING)[made.PLACEMENTS.index(placement) :: 2]:
        rows = counts(pa.concat_tables(STORED)[column])
        wanted = [list(counts(table[column]).items())[8] for table in (STORED[0], STORED[2], NOT_STORED)]
        scanned = []
        for value, (scalar, _) in wanted:
            holds = rows[value][1] if value in rows else 0
            where = f"{column} = {literal(column, scalar)}"
            kept = [n for n, no in zip(made.ROWS, skipped_by_check(ours, column, value.sql), strict=True) if not no]
            assert found(spark, control, where) == (holds, ALL_ROWS), where
            assert found(spark, ours, where) == (holds, sum(kept)), where
            scanned.append(len(kept))
        assert min(scanned) < 3, f"no filter of {column} was of use, so nothing was compared"


@pytest.mark.parametrize("placement", made.PLACEMENTS)
def test_single_pages(spark: Any, placement: str, tmp_path: Path) -> None:
    """A range of a sorted column: Spark reads some pages only, where the moved offset index says."""
    numbers = np.arange(3000)
    tables = [pa.table({"number": n, "text": n.astype(str), "other": n[::-1]}) for n in np.split(numbers, 3)]
    source = made.write(tmp_path / "source.parquet", tables, made.Layout("gzip", page_index=True))
    add_filters(source, tmp_path / "ours.parquet", placement=placement, sync=False, columns=["*"])
    frames = [
        spark.read.parquet(str(p)).where("number BETWEEN 1234 AND 1299") for p in (source, tmp_path / "ours.parquet")
    ]
    control, ours = (frame.toArrow() for frame in frames)
    assert_equal(ours, control)
    assert ours["text"].to_pylist() == [str(n) for n in range(1234, 1300)]
    assert scan_rows(frames[0]) == scan_rows(frames[1]) < 150


def test_zeros(spark: Any, tmp_path: Path) -> None:
    """Neither zero hides the other; the row groups without any are skipped, so the filters were in use."""
    cases = [("double", -0.0, "0.0"), ("float", 0.0, "-0.0"), ("float", -0.0, "0.0"), ("double", 0.0, "-0.0"),
             ("double", -0.0, "-0.0")]  # fmt: skip
    for at, (kind, stored, asked) in enumerate(cases):
        groups = [[-7.25, 8.25], [-1.5, stored, 2.5], [-7.25, 8.25]]
        source, ours = tmp_path / f"source{at}.parquet", tmp_path / f"ours{at}.parquet"
        made.write(source, [pa.table({"x": pa.array(group, kind)}) for group in groups])
        add_filters(source, ours, sync=False, columns=["*"])
        where = f"x = cast('{asked}' as {kind})"
        assert found(spark, source, where) == (1, 7), where
        assert found(spark, ours, where) == (1, 3), where


def test_the_readme_s_file(spark: Any, tmp_path: Path) -> None:
    """One trace id in 10,000 rows of five row groups: one row group is read."""
    source, ours = made.fixture("pyarrow/trace_ids"), tmp_path / "ours.parquet"
    add_filters(source, ours, sync=False, columns=["*"])
    where = "trace_id = '00000000000000000000000000c0ffee'"
    assert found(spark, source, where) == (1, 10_000)
    assert found(spark, ours, where) == (1, 2_000)
    assert pq.ParquetFile(ours).metadata.num_row_groups == 5
