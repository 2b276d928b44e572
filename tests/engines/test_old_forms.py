"""Filters of 2018 and of 2015: check, inspect and verify use them; engines that do not know them find every row.

DuckDB, ClickHouse, Trino and Iceberg-Java fail on `=` over a column with a filter of 2018, which is why add says so
when it writes one. A failure is loud; what must never happen is a row that silently goes missing.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engines import made
from engines.asking import DataFusion, duckdb, polars_count, skipped_by_check
from engines.spelling import counts, spelled
from parquet_bloom import Draft2015, add_filters, check, inspect, verify

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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each form, with a page index for every second one."""
    folder = tmp_path_factory.mktemp("forms")
    sources = [made.write(folder / f"source-{n}.parquet", STORED, made.Layout(page_index=n == 1)) for n in (0, 1)]
    for n, (form, options) in enumerate(FORMS.items()):
        path = folder / f"{form}.parquet"
        add_filters(sources[n % 2], path, columns=made.leaves(sources[0]), sync=False, **options)
    return {form: folder / f"{form}.parquet" for form in FORMS}


@pytest.mark.smoke
def test_inspect_verify_and_check_know_the_form(files: dict[str, Path]) -> None:
    absent = spelled(NOT_STORED["random_int64"])[0]
    for form, path in files.items():
        spec, place = (form, "chunk-start") if "spec" in FORMS[form] else ("statistics", "column metadata")
        (info,) = inspect(path).files
        assert {(f.spec, f.place) for f in info.filters} == {(spec, place)}, form
        assert info.problems == 0, form
        filters = verify(path, sample=1).files[0].filters
        assert len(filters) == 50, form
        assert {(f.status, f.spec) for f in filters} == {("right", spec)}
        decided = {v.decided_by for v in check(path, f"random_int64 = {absent.sql}")}
        perhaps = set() if "spec" in FORMS[form] else {None}  # of 2015 one in a hundred
        assert decided - perhaps == {"filter"}, form


@pytest.mark.parametrize(
    ("form", "turn"),
    [*zip(FORMS, cycle(range(3)), strict=False)]
    + [pytest.param(form, n % 3, marks=pytest.mark.more) for i, form in enumerate(FORMS) for n in (i + 1, i + 2)],
)
def test_check_and_engines_find_every_row(files: dict[str, Path], form: str, turn: int) -> None:
    """Of some columns: no stored value is denied, nearly all others are; engines use no such filter, or fail."""
    path, datafusion, failures = files[form], DataFusion(), pytest.importorskip("duckdb").Error
    for column in COLUMNS[turn::3]:
        absent = [skipped_by_check(path, column, value.sql) for value in spelled(NOT_STORED[column])[:10]]
        assert sum(map(sum, absent)) >= 0.9 * 3 * len(absent), column
        for group, table in enumerate(STORED):
            for value in spelled(table[column])[:5]:
                assert not skipped_by_check(path, column, value.sql)[group], (column, value)
        with duckdb() as engine:
            for value, (scalar, rows) in list(counts(pa.concat_tables(STORED)[column]).items())[::40]:
                assert datafusion.ask(path, column, scalar)[::2] == (rows, 0), f"it uses no such filter: {column}"
                assert polars_count(path, column, [scalar]) == rows, column
                try:
                    found = engine.count(path, f'"{column}" = {value.duckdb}')
                except failures:
                    assert "spec" in FORMS[form], "it does not know that a filter of 2015 is there"
                else:
                    assert found == rows, column
