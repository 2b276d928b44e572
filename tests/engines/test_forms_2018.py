"""The three 2018 forms: engines that do not know them read the file as before; check and verify use them.

DuckDB, ClickHouse, Trino and Iceberg-Java fail on `=` over such a column, which is why add says so
when it writes one. A failure is loud; what must never happen is a row that silently goes missing.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from support.repeats import some_then_more

from engines import made
from engines.asking import DataFusion, duckdb, polars_count, skipped_by_check
from engines.reading import READERS, assert_equal
from engines.spelling import counts, spelled
from parquet_bloom import add_filters, check, inspect, remove_filters, verify

SPECS = ("parquet-41", "parquet-41-early", "parquet-41-raw")
TABLES = made.row_groups((*made.ROWS, 40))
STORED, NOT_STORED = TABLES[:-1], TABLES[-1]
SOME = ("random_int64", "random_int32", "utf8", "binary", "fixed_binary_5", "random_double", "decimal_18", "date")


@pytest.fixture(scope="module", params=zip(SPECS, (True, False, True), strict=True), ids=lambda one: one[0])
def form(request: pytest.FixtureRequest) -> tuple[str, bool]:
    """A form, and whether the source has a page index."""
    return request.param


@pytest.fixture(scope="module")
def source(form: tuple[str, bool], tmp_path_factory: pytest.TempPathFactory) -> Path:
    layout = made.Layout(page_index=form[1])
    return made.write(tmp_path_factory.mktemp("source") / "source.parquet", STORED, layout)


@pytest.fixture(scope="module")
def ours(form: tuple[str, bool], source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ours") / f"{form[0]}.parquet"
    add_filters(source, path, columns=made.leaves(source), spec=form[0], sync=False)
    return path


@pytest.mark.parametrize("engine", READERS)
def test_is_read_as_the_source(ours: Path, source: Path, engine: str) -> None:
    """All columns, no predicate: DuckDB too."""
    assert_equal(READERS[engine](ours), READERS[engine](source))


def test_inspect_knows_the_form(ours: Path) -> None:
    filters = inspect(ours).files[0].filters
    assert filters
    assert {f.spec for f in filters} == {ours.stem}
    assert {f.place for f in filters} == {"chunk-start"}
    assert not [f.problems for f in filters if f.problems]


@pytest.mark.parametrize("column", some_then_more(SOME))
def test_check_uses_them(ours: Path, column: str) -> None:
    """No stored value is denied, nearly all others are."""
    absent = [skipped_by_check(ours, column, value.sql) for value in spelled(NOT_STORED[column])[:10]]
    assert sum(map(sum, absent)) >= 0.9 * 3 * len(absent)
    for group, table in enumerate(STORED):
        for value in spelled(table[column])[:5]:
            assert not skipped_by_check(ours, column, value.sql)[group], value


@pytest.mark.smoke
def test_check_says_that_the_filter_decided(ours: Path) -> None:
    value = spelled(NOT_STORED["random_int64"])[0]
    assert {v.decided_by for v in check(ours, f"random_int64 = {value.sql}")} == {"filter"}


def test_verify_finds_them_right(ours: Path) -> None:
    filters = verify(ours, sample=1).files[0].filters
    assert len(filters) == 50
    assert {f.status for f in filters} == {"right"}
    assert {f.spec for f in filters} == {ours.stem}


@pytest.mark.smoke
def test_comes_back_byte_for_byte(ours: Path, source: Path, tmp_path: Path) -> None:
    remove_filters(ours, tmp_path / "back.parquet", sync=False)
    assert (tmp_path / "back.parquet").read_bytes() == source.read_bytes()


class TestQueries:
    """Predicates: engines that ignore the form find every row."""

    @pytest.mark.parametrize("column", some_then_more(SOME))
    def test_datafusion(self, ours: Path, column: str) -> None:
        asked = DataFusion()
        for scalar, rows in list(counts(pa.concat_tables(STORED)[column]).values())[::40]:
            assert asked.ask(ours, column, scalar)[::2] == (rows, 0), "it uses no filter of 2018"

    @pytest.mark.parametrize("column", some_then_more(SOME))
    def test_polars(self, ours: Path, column: str) -> None:
        for scalar, rows in list(counts(pa.concat_tables(STORED)[column]).values())[::40]:
            assert polars_count(ours, column, [scalar]) == rows

    @pytest.mark.parametrize("column", some_then_more(SOME))
    def test_duckdb_fails_or_finds_all(self, ours: Path, column: str) -> None:
        with duckdb() as engine:
            for value, (_, rows) in list(counts(pa.concat_tables(STORED)[column]).items())[::40]:
                try:
                    found = engine.count(ours, f"{column} = {value.duckdb}")
                except pytest.importorskip("duckdb").Error:
                    continue
                assert found == rows
