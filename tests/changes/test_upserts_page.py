"""docs/upserts.md: every block runs and does what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.iceberg_tables import Warehouse

import parquet_bloom

PAGE = Path(__file__).resolve().parents[2] / "docs" / "upserts.md"
FIRST, LISTS = "# Deletes and upserts by key", "## File lists for engines"


def blocks_of(heading: str) -> list[str]:
    """The blocks of Python below a heading."""
    section = re.split(rf"^{heading}$", PAGE.read_text(), flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def run(blocks: list[str], names: dict[str, Any]) -> dict[str, Any]:
    for block in blocks:
        exec(compile(block, "upserts.md", "exec"), names)
    return names


def test_every_block_of_python_runs_in_a_test() -> None:
    headings = {FIRST: 1, LISTS: 6}
    assert {heading: len(blocks_of(heading)) for heading in headings} == headings
    assert PAGE.read_text().count("```python\n") == sum(headings.values())


def check(names: dict[str, Any], rows: pa.Table) -> None:
    assert (names["deleted"].deleted, len(names["deleted"].rewritten)) == (2, 2)
    assert (names["replaced"].replaced, names["replaced"].appended) == (1, 1)
    found = {row["id"]: row["status"] for row in rows.to_pylist()}
    assert found[5] == found[70_000] == "new"
    assert found.keys() == {*range(20), *range(39_990, 40_010), *range(50_000, 50_020), 70_000} - {17, 40_000}
    left = parquet_bloom.locate(names["events"], "id", [5, 17, 70_000], "events-index", strict_index=True)
    assert left["key"].to_pylist() == [5, 70_000]


def test_the_calls_for_delta(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for first in (0, 39_990, 50_000):
        ids = list(range(first, first + 20))
        write_deltalake("lake/events", pa.table({"id": ids, "status": ["x"] * 20, "day": ["d"] * 20}), mode="append")
    check(run(blocks_of(FIRST), {}), DeltaTable("lake/events").to_pyarrow_table())
    assert DeltaTable("lake/events").version() == 4, "a commit for the delete, and one for the upsert"
    said = [one["userMetadata"] for one in DeltaTable("lake/events").history(2)]
    assert said == ["parquet-bloom upsert: rows by their keys", "parquet-bloom delete: rows by their keys"]


def test_the_calls_for_iceberg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    warehouse = Warehouse(tmp_path)
    for name, value in warehouse.properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{name.upper()}", value)
    import pyiceberg.catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # which it reads once a process
    prod = pyiceberg.catalog.load_catalog("prod")
    prod.create_namespace("web")
    fields = [
        NestedField(1, "id", LongType()),
        NestedField(2, "status", StringType()),
        NestedField(3, "day", StringType()),
    ]
    table = prod.create_table("web.events", Schema(*fields))
    for first in (0, 39_990, 50_000):
        table.append(pa.table({"id": range(first, first + 20), "status": ["x"] * 20, "day": ["d"] * 20}))
    names = run([block.replace("delta:lake/events", "iceberg:prod/web.events") for block in blocks_of(FIRST)], {})
    table.refresh()
    check(names, table.scan().to_arrow())
    made = [one.summary for one in table.snapshots()[3:]]
    assert [one.operation.value for one in made] == ["overwrite"] * 2
    assert [one["parquet-bloom.operation"] for one in made] == ["delete", "upsert"]


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A folder of plain files, and the names of the block that lists some of them."""
    monkeypatch.chdir(tmp_path)
    Path("events").mkdir()
    for number in range(5):
        ids = pa.array(range(10_000 * number, 10_000 * number + 100))
        pq.write_table(pa.table({"id": ids, "n": [number] * 100}), f"events/{number}.parquet", row_group_size=20)
    parquet_bloom.build_index("events", "id", "events-index")
    names = run(blocks_of(LISTS)[:1], {})
    assert (names["files"], names["groups"]) == (["events/0.parquet", "events/4.parquet"], [[0], [0]])
    return names


def test_file_lists(listed: dict[str, Any]) -> None:
    pytest.importorskip("duckdb")
    pytest.importorskip("polars")
    _, duckdb, polars, _, _, pyarrow = blocks_of(LISTS)
    run([duckdb, polars, pyarrow], listed)
    assert sorted(row[:2] for row in listed["joined"]) == [(17, 0), (40_000, 4)]
    assert sorted(listed["frame"].rows()) == [(17, 0), (40_000, 4)]
    assert listed["few"].to_pylist() == [{"id": 17, "n": 0}, {"id": 40_000, "n": 4}]
    assert sum(part.to_table().num_rows for part in listed["parts"]) == 40


def test_the_file_list_of_daft(listed: dict[str, Any]) -> None:
    pytest.importorskip("daft", reason="Daft is not installed")
    run([blocks_of(LISTS)[4]], listed)
    assert listed["rows_of_daft"] == {"id": [17, 40_000], "n": [0, 4]}
