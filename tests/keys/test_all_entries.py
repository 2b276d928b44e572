"""Every entry is there after a build that spills, and after updates that merge segments while files come and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import parquet_bloom
from keys.key_indexes import write_ids
from parquet_bloom.keys import build
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.update import update_index


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


def test_merged_segments_have_all_entries_of_files_that_live(tmp_path: Path) -> None:
    data, index = tmp_path / "data", tmp_path / "index"
    sizes = [40, 900, 9, 300, 3, 700, 60, 30]  # of few entries a hash has fewer bits
    for number in range(2):
        write_ids(data / f"{number}.parquet", number, sizes[number])
    build_index(data, "id", index)
    merged = 0
    for number in range(2, 8):
        write_ids(data / f"{number}.parquet", number, sizes[number])
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


def test_a_build_that_spills_has_all_entries(tmp_path: Path, little_memory: None) -> None:
    data = tmp_path / "data"
    for number in range(5):
        write_ids(data / f"{number}.parquet", number, 900)
    build_index(data, "id", tmp_path / "index")
    parquet_bloom.set_limits(max_memory=1 << 30)
    assert lost(data, tmp_path / "index") == []
