"""Every entry is there after a build that spills, and after updates that merge segments while files come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom.keys import build
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.update import update_index


def write(path: Path, rows: int, seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, 1 << 60, rows)
    pq.write_table(pa.table({"id": ids}), path, row_group_size=max(1, rows // 3))


def lost(data: Path, index: Path) -> list[tuple[str, int]]:
    """The row groups that have a value which the index does not find there, by brute force."""
    places: dict[int, set[tuple[str, int]]] = {}
    for path in sorted(data.iterdir()):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for value in file.read_row_group(group)["id"].to_pylist():
                    places.setdefault(value, set()).add((str(path), group))
    found = parquet_bloom.locate(data, "id", list(places), index)
    pairs = zip(found["file"].to_pylist(), found["row_group"].to_pylist(), strict=True)
    by_key: dict[int, set[tuple[str, int]]] = {}
    for key, pair in zip(found["key"].to_pylist(), pairs, strict=True):
        by_key.setdefault(key, set()).add(pair)
    return sorted({place for key, wanted in places.items() for place in wanted - by_key.get(key, set())})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def test_merged_segments_have_all_entries_of_files_that_live(data: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    sizes = [40, 900, 9, 300, 3, 700, 60, 30]  # of few entries a hash has fewer bits
    for number in range(2):
        write(data / f"{number}.parquet", sizes[number], number)
    build_index(data, "id", index)
    merged = 0
    for number in range(2, 8):
        write(data / f"{number}.parquet", sizes[number], number)
        if number % 2:
            (data / f"{number - 3}.parquet").unlink()
        report = update_index(index, data)
        merged += report.merged
        assert lost(data, index) == [], number
    assert merged > 4


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(build, "_RUN_ROWS", 1000)
    before = parquet_bloom.set_limits(max_memory=64 << 10)
    yield
    parquet_bloom.set_limits(max_memory=before.max_memory)


def test_a_build_that_spills_has_all_entries(data: Path, tmp_path: Path, little_memory: None) -> None:
    for number in range(5):
        write(data / f"{number}.parquet", 900, number)
    build_index(data, "id", tmp_path / "index")
    parquet_bloom.set_limits(max_memory=1 << 30)
    assert lost(data, tmp_path / "index") == []
