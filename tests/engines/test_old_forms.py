"""Filters of 2018 and of 2015: check, inspect and verify use them; engines that do not know them find every row.

DuckDB, ClickHouse, Trino and Iceberg-Java fail on `=` over a column with a filter of 2018, which is why add says so
when it writes one. A failure is loud; what must never happen is a row that silently goes missing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engines import made
from engines.asking import DataFusion, duckdb, polars_count, skipped_by_check
from engines.reading import READERS, assert_equal
from engines.spelling import counts, spelled
from parquet_bloom import Draft2015, add_filters, check, inspect, remove_filters, verify

FORMS: dict[str, dict[str, Any]] = {
    "parquet-41": {"spec": "parquet-41"},
    "parquet-41-early": {"spec": "parquet-41-early"},
    "parquet-41-raw": {"spec": "parquet-41-raw"},
    "orc": {"form": Draft2015("orc", None), "fpp": 0.01},
    "hive": {"form": Draft2015("hive", None), "fpp": 0.01},
    "guava-32": {"form": Draft2015("guava", "MURMUR128_32"), "fpp": 0.01},
    "guava-64": {"form": Draft2015("guava", "MURMUR128_64"), "fpp": 0.01},
}
TABLES = made.row_groups((*made.ROWS, 40))
STORED, NOT_STORED = TABLES[:-1], TABLES[-1]
COLUMNS = ["random_int64", "random_int32", "utf8", "binary", "fixed_binary_5", "random_double", "decimal_18", "date"]


def of_each_form_some(values: list[str]) -> list[Any]:
    """Each form with each value; quick are a third, other ones of each form."""
    return [
        (form, value) if (i + j) % 3 == 0 else pytest.param(form, value, marks=pytest.mark.more)
        for i, form in enumerate(FORMS)
        for j, value in enumerate(values)
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each form, with a page index for every second one."""
    folder = tmp_path_factory.mktemp("forms")
    sources = [made.write(folder / f"source-{n}.parquet", STORED, made.Layout(page_index=n == 1)) for n in (0, 1)]
    for n, (form, options) in enumerate(FORMS.items()):
        path = folder / f"{form}.parquet"
        add_filters(sources[n % 2], path, columns=made.leaves(sources[0]), sync=False, **options)
    return {form: folder / f"{form}.parquet" for form in FORMS}


@pytest.mark.parametrize("form", FORMS)
def test_inspect_and_verify_know_the_form(files: dict[str, Path], form: str) -> None:
    spec, place = (form, "chunk-start") if "spec" in FORMS[form] else ("statistics", "column metadata")
    (info,) = inspect(files[form]).files
    assert {(f.spec, f.place) for f in info.filters} == {(spec, place)}
    assert info.problems == 0
    filters = verify(files[form], sample=1).files[0].filters
    assert len(filters) == 50
    assert {(f.status, f.spec) for f in filters} == {("right", spec)}


@pytest.mark.parametrize(("form", "column"), of_each_form_some(COLUMNS))
def test_check_uses_them(files: dict[str, Path], form: str, column: str) -> None:
    """No stored value is denied, nearly all others are."""
    absent = [skipped_by_check(files[form], column, value.sql) for value in spelled(NOT_STORED[column])[:10]]
    assert sum(map(sum, absent)) >= 0.9 * 3 * len(absent)
    for group, table in enumerate(STORED):
        for value in spelled(table[column])[:5]:
            assert not skipped_by_check(files[form], column, value.sql)[group], value


@pytest.mark.smoke
def test_check_says_that_the_filter_decided(files: dict[str, Path]) -> None:
    value = spelled(NOT_STORED["random_int64"])[0]
    for path in files.values():
        decided = {v.decided_by for v in check(path, f"random_int64 = {value.sql}")}
        perhaps = set() if "spec" in FORMS[path.stem] else {None}  # of 2015 one in a hundred
        assert decided - perhaps == {"filter"}, path.name


@pytest.mark.parametrize(("form", "column"), of_each_form_some(COLUMNS))
def test_engines_find_every_row(files: dict[str, Path], form: str, column: str) -> None:
    path, asked, failures = files[form], DataFusion(), pytest.importorskip("duckdb").Error
    with duckdb() as engine:
        for value, (scalar, rows) in list(counts(pa.concat_tables(STORED)[column]).items())[::40]:
            assert asked.ask(path, column, scalar)[::2] == (rows, 0), "it uses no such filter"
            assert polars_count(path, column, [scalar]) == rows
            try:
                found = engine.count(path, f'"{column}" = {value.duckdb}')
            except failures:
                assert "spec" in FORMS[form], "it does not know that a filter of 2015 is there"
            else:
                assert found == rows


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
