"""Fixtures of the tests of key indexes."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquet_bloom.keys import index as key_index
from parquet_bloom.keys.build import build_index


@pytest.fixture(autouse=True)
def nothing_open() -> None:
    key_index._opened.clear()


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index of tmp/data over a number and a text."""
    (tmp_path / "data").mkdir()
    rng = Random(2)
    for number in range(3):
        a = [rng.randrange(10**6) for _ in range(60)]
        table = pa.table({"a": a, "s": [f"v{rng.randrange(1000)}" for _ in a]})
        pq.write_table(table, tmp_path / f"data/{number}.parquet", row_group_size=20)
    build_index(tmp_path / "data", ["a", "s"], tmp_path / "index")
    return tmp_path / "index"
