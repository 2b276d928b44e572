"""The 2015 form in column metadata: every engine reads and queries such a file as the source; check uses it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.repeats import some_then_more

from engines import made
from engines.asking import DataFusion, duckdb, polars_count, skipped_by_check
from engines.reading import READERS, assert_equal, source_read_with
from engines.spelling import counts, spelled
from parquet_bloom import Draft2015, add_filters, inspect, remove_filters, verify

TABLES = made.row_groups((*made.ROWS, 40))
STORED, NOT_STORED = TABLES[:-1], TABLES[-1]
STYLES = [("orc", None), ("hive", None), ("guava", "MURMUR128_32"), ("guava", "MURMUR128_64")]
SOME = ("random_int64", "random_int32", "utf8", "binary", "fixed_binary_5", "random_double", "decimal_18", "date")


@pytest.fixture(scope="module", params=STYLES, ids=lambda style: "-".join(filter(None, style)))
def style(request: pytest.FixtureRequest) -> tuple[str, str | None]:
    return request.param


@pytest.fixture(scope="module")
def source(style: tuple[str, str | None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a page index for every second style."""
    layout = made.Layout(page_index=STYLES.index(style) % 2 == 0)
    return made.write(tmp_path_factory.mktemp("source") / "source.parquet", STORED, layout)


@pytest.fixture(scope="module")
def ours(style: tuple[str, str | None], source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / "ours.parquet"
    add_filters(source, path, columns=made.leaves(source), form=Draft2015(*style), fpp=0.01, sync=False)
    return path


@pytest.mark.parametrize("engine", READERS)
def test_is_read_as_the_source(ours: Path, source: Path, engine: str) -> None:
    assert_equal(READERS[engine](ours), source_read_with(engine, source))


def test_inspect_and_verify(ours: Path) -> None:
    (info,) = inspect(ours).files
    assert {(f.spec, f.place) for f in info.filters} == {("statistics", "column metadata")}
    assert info.problems == 0
    filters = verify(ours, sample=1).files[0].filters
    assert len(filters) == 50
    assert {f.status for f in filters} == {"right"}


@pytest.mark.parametrize("column", some_then_more(SOME))
def test_check_uses_them(ours: Path, column: str) -> None:
    """No stored value is denied, nearly all others are."""
    absent = [skipped_by_check(ours, column, value.sql) for value in spelled(NOT_STORED[column])[:10]]
    assert sum(map(sum, absent)) >= 0.9 * 3 * len(absent)
    for group, table in enumerate(STORED):
        for value in spelled(table[column])[:5]:
            assert not skipped_by_check(ours, column, value.sql)[group], value


@pytest.mark.parametrize("column", some_then_more(SOME))
def test_engines_find_every_row(ours: Path, column: str) -> None:
    asked = DataFusion()
    with duckdb() as engine:
        for value, (scalar, rows) in list(counts(pa.concat_tables(STORED)[column]).items())[::40]:
            assert asked.ask(ours, column, scalar)[::2] == (rows, 0), "it uses no such filter"
            assert polars_count(ours, column, [scalar]) == rows
            assert engine.count(ours, f'"{column}" = {value.duckdb}') == rows


def test_comes_back_byte_for_byte(ours: Path, source: Path, tmp_path: Path) -> None:
    remove_filters(ours, tmp_path / "back.parquet", sync=False)
    assert (tmp_path / "back.parquet").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("name", made.fixtures())
def test_files_of_other_programs(name: str, tmp_path: Path) -> None:
    """Their own filters stay; the rest comes back byte for byte."""
    source, ours, back = made.fixture(name), tmp_path / "ours.parquet", tmp_path / "back.parquet"
    add_filters(source, ours, columns=made.leaves(source), spec="statistics", sync=False)
    assert inspect(ours).files[0].problems == inspect(source).files[0].problems
    added = {f.column for f in inspect(ours).files[0].filters if f.spec == "statistics"}
    for engine in ("pyarrow", "duckdb"):
        assert_equal(READERS[engine](ours), READERS[engine](source))
    if added:
        had = {f.column for f in inspect(source).files[0].filters}
        if not added & had:  # otherwise some row groups had one
            remove_filters(ours, back, columns=sorted(added), sync=False)
            assert back.read_bytes() == source.read_bytes()
