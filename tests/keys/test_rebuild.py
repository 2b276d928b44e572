"""An index that is built again: the same columns and root, bits by the data of today."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import command

import parquet_bloom
from keys.key_indexes import manifest_of, read_entries, same_rows
from parquet_bloom.errors import RequestError, StaleIndexError, StorageError
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.update import rebuild_index, update_index


def write(path: Path, seed: int, rows: int = 300) -> None:
    ids = np.random.default_rng(seed).integers(0, 1 << 60, rows)
    pq.write_table(pa.table({"id*": ids, "n": [f"n{i % 7}" for i in range(rows)]}), path, row_group_size=100)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    for number in range(2):
        write(tmp_path / f"data/{number}.parquet", number)
    build_index(tmp_path / "data", ["id[*]", "n"], tmp_path / "index", root=tmp_path, false_places=0.5)
    return tmp_path / "data"


def test_a_rebuilt_index_is_the_one_of_a_build(data: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    bits = [column.bits for column in manifest_of(index).segments[0].columns]
    for number in range(2, 20):
        write(data / f"{number}.parquet", number, 3000)
    (data / "0.parquet").unlink()
    update_index(index, data)
    report = rebuild_index(index, data)
    build_index(data, ["id[*]", "n"], tmp_path / "anew", root=tmp_path, false_places=0.5)
    assert read_entries(index) == read_entries(tmp_path / "anew")
    manifest = manifest_of(index)
    assert (manifest.root, manifest.false_places) == (str(tmp_path.resolve()), 0.5)
    assert [column.name for column in manifest.columns] == ["id*", "n"]
    assert len(manifest.segments) == 1
    assert all(new.bits > old for new, old in zip(manifest.segments[0].columns, bits, strict=True))
    assert report.files == 19
    key = pq.read_table(data / "5.parquet")["id*"][1500].as_py()
    assert same_rows(data, f'"id*" = {key}', index) == 1
    assert rebuild_index(index, data, false_places=0.001).columns[0].bits > manifest.segments[0].columns[0].bits
    assert parquet_bloom.Source(data, index=index).rebuild_index().files == 19


def test_what_is_not_rebuilt(data: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    write(tmp_path / "other/0.parquet", 5)
    with pytest.raises(StaleIndexError, match="of none of these files"):
        rebuild_index(tmp_path / "index", tmp_path / "other")
    with pytest.raises(StorageError, match="is no key index"):
        rebuild_index(tmp_path / "nothing", data)
    with pytest.raises(RequestError, match="is not a positive number"):
        rebuild_index(tmp_path / "index", data, false_places=0)
    done = command("index", "rebuild", tmp_path / "index", data, "--json")
    assert (done.returncode, '"files": 2' in done.stdout) == (0, True)
    assert command("index", "rebuild", data, data).returncode == 2
