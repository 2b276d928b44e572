"""docs/upserts.md: Spark reads the files that `locate` names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom

pytestmark = pytest.mark.spark
PAGE = Path(__file__).resolve().parents[2] / "docs" / "upserts.md"


def test_spark_reads_a_list_of_located_files(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    for number in range(5):
        ids = pa.array(range(10_000 * number, 10_000 * number + 100))
        pq.write_table(pa.table({"id": ids, "n": [number] * 100}), tmp_path / f"events/{number}.parquet")
    parquet_bloom.build_index(tmp_path / "events", "id", tmp_path / "events-index")
    page = PAGE.read_text().split("\n## File lists for engines\n")[1]
    located, *others = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    [block] = [one for one in others if "spark.read" in one]
    names: dict[str, Any] = {"spark": spark}
    exec(located.replace('"events', f'"{tmp_path}/events'), names)  # Java has another working folder
    exec(block, names)
    assert [Path(file).name for file in names["files"]] == ["0.parquet", "4.parquet"]
    assert sorted(tuple(row) for row in names["rows_of_spark"]) == [(17, 0), (40_000, 4)]
