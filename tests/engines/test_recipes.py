"""docs/recipes.md: every block runs, finds the rows that are there, and skips the row groups that filters deny."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
ROWS = 400


def test_every_block_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("polars", "duckdb", "pandas"):
        pytest.importorskip(name)
    monkeypatch.chdir(tmp_path)
    ids = [f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}" for i in range(ROWS)]
    table = pa.table({"trace_id": ids, "user_id": [i * 7919 % 1009 for i in range(ROWS)], "status": [200] * ROWS})
    Path("events").mkdir()
    pq.write_table(table, "events/1.parquet", row_group_size=ROWS // 4)
    parquet_bloom.add_filters("events", in_place=True, columns=["trace_id", "user_id"])
    caplog.set_level(logging.INFO, "parquet_bloom")

    names: dict[str, Any] = {"trace_id": ids[250], "user_id": 250 * 7919 % 1009}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5, "Polars, DuckDB, pyarrow, pandas, and many keys"
    for block in blocks:
        exec(compile(block, "recipes.md", "exec"), names)

    row = (names["user_id"], 200)
    assert names["one"].rows() == [row]
    assert names["found"] == [row]
    assert names["rows"].to_pydict() == {"status": [200]}
    assert [tuple(one) for one in names["frame"].itertuples(index=False)] == [row]
    assert 2 in names["groups"]["events/1.parquet"], "the row group that has the user"
    lines = [record.getMessage() for record in caplog.records]
    assert sum("1 of 4 row groups can match" in line for line in lines) == 2, "DuckDB's scan and pyarrow's"
    assert sum("3 of 4 row groups" in line and "skipped" in line for line in lines) == 2, "Polars' and pandas'"
