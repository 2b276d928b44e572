"""Engines on files with wrong statistics: they lose rows before `repair`, and none after it.

Four engines get every stored value of each column, IS NULL, IS NOT NULL, and ranges from the least, middle and largest
value, and BETWEEN two of these. What is right is counted in Python over the values that pyarrow reads without
statistics: for DuckDB, DataFusion and Polars a NaN is the greatest value, for pyarrow it compares with none.
"""

from __future__ import annotations

import datetime
import itertools
import json
import math
import operator as operator_
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from filters.test_wrong_statistics import some_table, statistics
from support.corpus import FIXTURES
from support.footers import edited_footer
from support.repeats import some_then_more

from parquet_bloom import DamagedFileError, add_filters, count, repair
from parquet_bloom._thrift.parquet.ttypes import Statistics

OLD = FIXTURES / "old_statistics"
EXPECTED: dict[str, Any] = json.loads((OLD / "expected.json").read_text())
WRONG = sorted(name for name, one in EXPECTED.items() if one["wrong"])
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator_.eq, "<": operator_.lt, "<=": operator_.le, ">": operator_.gt, ">=": operator_.ge
}  # fmt: skip


def columns_of(path: Path) -> dict[str, pa.Array]:
    file = pq.ParquetFile(path)
    table = pa.concat_tables(file.read_row_group(group) for group in range(file.num_row_groups))
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        values = (
            pa.concat_arrays(column.chunks)
            if not pa.types.is_dictionary(column.type)
            else column.cast(column.type.value_type).combine_chunks()
        )
        if not pa.types.is_nested(values.type) and not isinstance(values.type, pa.BaseExtensionType):
            found[name] = values
    return found


def questions(values: pa.Array) -> list[tuple[str, Any]]:
    stored = sorted({v for v in values.to_pylist() if v is not None and v == v})
    asked: list[tuple[str, Any]] = [("null", None), ("valid", None), *(("=", v) for v in stored)]
    ends = list(dict.fromkeys((stored[:1] + stored[len(stored) // 2 :][:1] + stored[-1:]) if stored else []))
    asked += [(operator, v) for v in ends for operator in list(COMPARE)[1:]]
    return asked + [("between", pair) for pair in itertools.combinations(ends, 2)]


def right_count(values: list[Any], operator: str, literal: Any, nan_is_largest: bool) -> int:
    if operator in ("null", "valid"):
        return sum((v is None) == (operator == "null") for v in values)
    if operator == "between":
        return sum(v is not None and literal[0] <= v <= literal[1] for v in values)
    largest = nan_is_largest and operator in (">", ">=")
    return sum(v is not None and (COMPARE[operator](v, literal) or (largest and v != v)) for v in values)


def where(column: Any, operator: str, values: Any) -> Any:
    """The question about a column of Polars, or a field of pyarrow. values: the literals, one or two."""
    if operator in ("null", "valid"):
        not_null = column.is_valid() if isinstance(column, pc.Expression) else column.is_not_null()
        return column.is_null() if operator == "null" else not_null
    if operator == "between":
        return (column >= values[0]) & (column <= values[1])
    return COMPARE[operator](column, values[0])


def literals(operator: str, literal: Any) -> list[Any]:
    return [*literal] if operator == "between" else [literal]


def sql_literal(literal: Any, kind: pa.DataType) -> str:
    if isinstance(literal, str | bytes):
        return f"'{literal if isinstance(literal, str) else literal.decode()}'"
    if isinstance(literal, datetime.date):
        return f"DATE '{literal}'" if not isinstance(literal, datetime.datetime) else f"TIMESTAMP '{literal}'"
    if isinstance(literal, Decimal):
        return f"CAST('{literal}' AS DECIMAL({kind.precision},{kind.scale}))"
    return str(literal)


def sql(name: str, operator: str, literal: Any, kind: pa.DataType) -> str:
    if operator in ("null", "valid"):
        return f'"{name}" IS {"NOT " if operator == "valid" else ""}NULL'
    return f'"{name}" {operator} {" AND ".join(sql_literal(one, kind) for one in literals(operator, literal))}'


class Engines:
    """A count by each engine."""

    def __init__(self) -> None:
        self.duckdb_ = pytest.importorskip("duckdb").connect()
        self.polars_ = pytest.importorskip("polars")
        self.datafusion_ = pytest.importorskip("datafusion")
        self._frames: dict[Path, Any] = {}

    def duckdb(self, path: Path, name: str, operator: str, literal: Any, kind: pa.DataType) -> int:
        where = sql(name, operator, literal, kind)
        return int(self.duckdb_.execute(f"SELECT count(*) FROM '{path}' WHERE {where}").fetchone()[0])

    def datafusion(self, path: Path, name: str, operator: str, literal: Any, kind: pa.DataType) -> int:
        if path not in self._frames:
            config = self.datafusion_.SessionConfig().with_target_partitions(1)
            config = config.set("datafusion.execution.parquet.pushdown_filters", "true")
            context = self.datafusion_.SessionContext(config)
            context.register_parquet("t", str(path))
            self._frames[path] = context
        where = sql(name, operator, literal, kind)
        batches = self._frames[path].sql(f"SELECT count(*) AS n FROM t WHERE {where}").collect()
        return int(batches[0].column(0)[0].as_py())

    def polars(self, path: Path, name: str, operator: str, literal: Any, kind: pa.DataType) -> int:
        pl = self.polars_
        wanted = literals(operator, literal)
        arrays = [pl.from_arrow(pa.array([one], kind)) for one in wanted if one is not None]
        found = where(pl.col(name), operator, [pl.lit(one[0], dtype=one.dtype) for one in arrays])
        return int(pl.scan_parquet(path).filter(found).select(pl.len()).collect().item())

    def expression(self, name: str, operator: str, literal: Any, kind: pa.DataType) -> pc.Expression:
        return where(pc.field(name), operator, [pa.scalar(one, kind) for one in literals(operator, literal)])

    def pyarrow(self, path: Path, name: str, operator: str, literal: Any, kind: pa.DataType) -> int:
        return int(ds.dataset(path).count_rows(filter=self.expression(name, operator, literal, kind)))

    def parquet_bloom(self, path: Path, name: str, operator: str, literal: Any, kind: pa.DataType) -> int:
        return count(path, self.expression(name, operator, literal, kind))


NAMES = ("duckdb", "datafusion", "polars", "pyarrow", "parquet_bloom")


def wrong_answers(path: Path, engines: Engines, columns: set[str]) -> dict[str, list[str]]:
    """Of each engine the questions about some columns that get a wrong answer."""
    found: dict[str, list[str]] = {name: [] for name in NAMES}
    for column, values in columns_of(path).items():
        if column not in columns:
            continue
        rows = values.to_pylist()
        for operator, literal in questions(values):
            for engine in NAMES:
                right = right_count(rows, operator, literal, engine not in ("pyarrow", "parquet_bloom"))
                try:
                    answer = getattr(engines, engine)(path, column, operator, literal, values.type)
                except Exception as error:  # DataFusion fails where a least value is above the greatest
                    answer = f"{type(error).__name__}: {error}"
                if answer != right:
                    found[engine].append(f"{column} {operator} {literal}: {answer} of {right}")
    return found


@pytest.fixture(scope="module")
def engines() -> Engines:
    return Engines()


@pytest.mark.parametrize("release", some_then_more(WRONG))
def test_every_engine_finds_every_stored_value(release: str, engines: Engines, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    (report,) = repair(OLD / f"{release}.parquet", output, sync=False).files
    columns = {one.column for one in report.wrong} | {"int64", "nan_low", "nan_high"}
    columns -= {"decimal76"}  # Polars panics where it compares 256 bits
    found = wrong_answers(output, engines, columns)
    if release == "polars-0.16.18":
        # The headers of its pages have min and max in the order of signed bytes, too. DuckDB 2.0 skips pages by them.
        assert {question.split()[0] for question in found.pop("duckdb")} == {"text"}
        assert any("column text has wrong statistics in the headers" in note for note in report.notes)
    assert not any(found.values()), found


BEFORE = {"polars-1.44.2": {"decimal38", "nan_low", "nan_high", "half_null"}, "duckdb-0.10.0": {"late"}}


def test_they_lose_rows_before(engines: Engines) -> None:
    """Or the test above would prove nothing. Which ones they are stands in docs/repair.md."""
    lost = dict.fromkeys(NAMES, 0)
    for release, columns in BEFORE.items():
        for name, wrong in wrong_answers(OLD / f"{release}.parquet", engines, columns).items():
            lost[name] += len(wrong)
    assert lost["parquet_bloom"] == 0
    assert min(lost[name] for name in ("duckdb", "datafusion", "polars")) > 0


def test_with_filters_too(engines: Engines, tmp_path: Path) -> None:
    output, filters = tmp_path / "out.parquet", tmp_path / "filters.parquet"
    repair(OLD / "polars-1.44.2.parquet", output, sync=False)
    add_filters(output, filters, columns="*", sync=False)
    assert wrong_answers(filters, engines, {"decimal38", "nan_low", "late"}) == {name: [] for name in NAMES}


def test_all_row_groups_of_a_column_get_bounds_or_none_does(engines: Engines, tmp_path: Path) -> None:
    """DataFusion takes the bounds of the other row groups for those of the file."""
    path, output = tmp_path / "in.parquet", tmp_path / "out.parquet"
    table = pa.table({
        "real": [*map(float, range(30)), *[math.nan] * 10],
        "text": [*"abcdefghijklmnopqrst", *"ABCDEFGHIJ", "z" * 5000, *"KLMNOPQRS"],
        "int64": range(40), "without": range(40), "first": range(40),
    })  # fmt: skip
    pq.write_table(table, path, row_group_size=20)
    with edited_footer(path) as metadata:
        for group, name in ((1, "without"), (0, "first"), (1, "first")):
            chunk = metadata.row_groups[group].columns[table.column_names.index(name)]
            chunk.meta_data.statistics = Statistics(null_count=7 if (group, name) == (0, "first") else 0)
        real, text = (chunk.meta_data.statistics for chunk in metadata.row_groups[1].columns[:2])
        real.max_value = real.max = struct.pack("<d", 21.0)
        text.null_count = 20
    [report] = repair(path, output, sync=False).files
    assert {(one.column, one.statistic) for one in report.wrong} == {
        ("real", "max"), ("real", "max_value"), ("text", "null_count"), ("first", "null_count")
    }  # fmt: skip
    assert wrong_answers(output, engines, set(table.column_names)) == {name: [] for name in NAMES}
    groups = [pq.read_metadata(output).row_group(group) for group in range(2)]
    stated = [[group.column(at).statistics.has_min_max for group in groups] for at in range(5)]
    assert stated == [[False, False], [False, False], [True, True], [True, True], [True, True]]


# --- files of right writers -----------------------------------------------------------------------


def _by_polars(table: pa.Table, path: Path, rng: random.Random) -> None:
    import polars

    more = {"data_page_size": rng.choice([64, 1 << 20]), "row_group_size": rng.choice([17, 1000])}
    polars.from_arrow(table).write_parquet(path, statistics="full", **more)


def _by_duckdb(table: pa.Table, path: Path, rng: random.Random) -> None:
    import duckdb

    given = table  # noqa: F841  DuckDB finds it by its name

    version = rng.choice(["v1", "v2"])
    duckdb.connect().execute(f"COPY given TO '{path}' (FORMAT parquet, PARQUET_VERSION {version}, ROW_GROUP_SIZE 2048)")


def _by_datafusion(table: pa.Table, path: Path, rng: random.Random) -> None:
    import datafusion

    config = datafusion.SessionConfig().with_target_partitions(1)
    for name, value in {
        "max_row_group_size": rng.choice([17, 1000]), "data_page_row_count_limit": rng.choice([5, 20000]),
        "write_batch_size": 4, "statistics_enabled": rng.choice(["page", "chunk"]),
    }.items():  # fmt: skip
        config = config.set(f"datafusion.execution.parquet.{name}", str(value))
    context = datafusion.SessionContext(config)
    context.from_arrow(table).write_parquet(str(path))


def _by_fastparquet(table: pa.Table, path: Path, rng: random.Random) -> None:
    import fastparquet

    groups = rng.choice([17, 1000])
    fastparquet.write(str(path), table.to_pandas(), row_group_offsets=groups, stats=True, write_index=False)


WRITERS: dict[str, tuple[Callable[[pa.Table, Path, random.Random], None], tuple[str, ...]]] = {
    # each with the columns that it does not write, or writes as another type
    "polars": (_by_polars, ("uuid", "fixed")),
    "duckdb": (_by_duckdb, ("float16",)),
    "datafusion": (_by_datafusion, ("uuid",)),
    "fastparquet": (
        _by_fastparquet, ("uuid", "fixed", "binary", "list", "struct", "time", "date", "decimal9", "decimal38")
    ),
}  # fmt: skip


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_wrong_in_files_of_other_writers(writer: str, tmp_path: Path) -> None:
    pytest.importorskip(writer)
    (write, without), compared = WRITERS[writer], 0
    for seed in range(12):
        rng, path = random.Random(seed), tmp_path / f"{seed}.parquet"
        table = some_table(rng, rng.choice([1, 40, 150, 5000 if writer == "duckdb" else 200]))
        write(table.drop_columns(list(without)), path, rng)
        for part in [path] if path.is_file() else sorted(path.glob("*.parquet")):
            try:
                found = statistics(part)
            except DamagedFileError:  # DuckDB's DELTA encoding of nothing but NULL
                with pytest.raises(OSError, match="InitHeader EOF"):
                    pq.read_table(part)
                continue
            assert found.wrong == [], part
            assert not any("headers" in note for note in found.notes), part
            compared += found.chunks
    assert compared > 12


def test_pages_of_lists_that_datafusion_calls_null(tmp_path: Path) -> None:
    """Two rows and two NULLs among their elements: parquet-rs counts the one against the other."""
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    path = tmp_path / "lists"
    context.from_arrow(pa.table({"l": pa.array([[1, None], [2, None]])})).write_parquet(str(path))
    (file,) = [path] if path.is_file() else path.glob("*.parquet")
    (wrong,) = statistics(file).wrong
    assert (wrong.statistic, wrong.stated, wrong.found) == (
        "column_index.null_pages",
        "True of all pages",
        "2 that are not NULL",
    )
    repair(file, tmp_path / "out.parquet", sync=False)
    assert statistics(tmp_path / "out.parquet").wrong == []
    assert pq.read_table(tmp_path / "out.parquet")["l"].to_pylist() == [[1, None], [2, None]]
