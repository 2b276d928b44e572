"""Fixtures of the tests of key indexes."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.haste import hasten

from parquet_bloom.keys import index as key_index
from parquet_bloom.keys.build import build_index


@pytest.fixture(autouse=True)
def nothing_open() -> None:
    key_index._opened.renew()


@pytest.fixture(autouse=True)
def haste(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.fixture(scope="session")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data, which no test changes, and of their index over a number and a text."""
    folder = tmp_path_factory.mktemp("indexed")
    (folder / "data").mkdir()
    rng = Random(2)
    for number in range(3):
        a = [rng.randrange(10**6) for _ in range(60)]
        table = pa.table({"a": a, "s": [f"v{rng.randrange(1000)}" for _ in a]})
        pq.write_table(table, folder / f"data/{number}.parquet", row_group_size=20)
    build_index(folder / "data", ["a", "s"], folder / "index")
    return folder


@pytest.fixture
def shared(indexed: Path) -> Path:
    """The data of `index`, to read."""
    return indexed / "data"


@pytest.fixture
def index(indexed: Path, tmp_path: Path) -> Path:
    """An index of `shared`, to harm."""
    return Path(shutil.copytree(indexed / "index", tmp_path / "index"))
