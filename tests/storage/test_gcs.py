"""Google's storage: folders are names, and nothing marks them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import fs
from support.google_store import NAMES, filled, serving
from support.samples import ROW_GROUPS, keys_table, write_keys

import parquet_bloom
from parquet_bloom.errors import TableFormatError


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture
def store(endpoint: str, tmp_path: Path) -> Iterator[fs.GcsFileSystem]:
    with filled(endpoint, write_keys(tmp_path / "keys.parquet").read_bytes()) as gcs:
        yield gcs


def get(gcs: fs.GcsFileSystem, path: str) -> bytes:
    with gcs.open_input_stream(path) as file:
        return bytes(file.read())


def test_into_another_object_in_place_and_out_again(store: fs.GcsFileSystem, tmp_path: Path) -> None:
    """The bytes of a local run, and the old ones after remove."""
    old = get(store, "data/d/top.parquet")
    (tmp_path / "x.parquet").write_bytes(old)
    parquet_bloom.add_filters(tmp_path / "x.parquet", tmp_path / "y.parquet", columns=["id"], sync=False)
    expected = (tmp_path / "y.parquet").read_bytes()
    parquet_bloom.add_filters("data/d/top.parquet", "data/o/new.parquet", columns=["id"], filesystem=store)
    parquet_bloom.add_filters("data/d/top.parquet", columns=["id"], in_place=True, filesystem=store)
    assert get(store, "data/o/new.parquet") == get(store, "data/d/top.parquet") == expected
    assert {f.status for f in parquet_bloom.verify("data/o", filesystem=store).files[0].filters} == {"right"}
    parquet_bloom.remove_filters("data/d/top.parquet", in_place=True, filesystem=store)
    assert get(store, "data/d/top.parquet") == old


def test_folders_and_patterns(store: fs.GcsFileSystem) -> None:
    for source, count in (
        ("data/d", 4), ("data/d/year=2026", 2), ("data/d/year=*", 3), ("data/d/*/month=1", 2),
        ("data/d/**/c.parquet", 1),
    ):  # fmt: skip
        files = parquet_bloom.inspect(source, filesystem=store).files
        assert len(files) == count, source
        assert {file.row_groups for file in files} == {ROW_GROUPS}


def test_rows_by_partition_and_filter(store: fs.GcsFileSystem) -> None:
    for name in NAMES[:3]:
        parquet_bloom.add_filters(f"data/d/{name}", columns=["id"], in_place=True, filesystem=store)
    key = keys_table()["id"][500].as_py()
    where = f"id = {key} AND year = 2026"
    verdicts = parquet_bloom.check("data/d/year=*", where, filesystem=store)
    assert sorted((v.path, v.row_group) for v in verdicts if not v.skipped) == [(f"data/d/{n}", 1) for n in NAMES[1:3]]
    assert parquet_bloom.read_table("data/d/year=*", where, filesystem=store)["month"].to_pylist() == [1, 2]


def test_a_table_is_known_by_a_log_in_a_folder_that_nothing_marks(store: fs.GcsFileSystem) -> None:
    with store.open_output_stream("data/d/year=2026/_delta_log/00000000000000000000.json") as out:
        out.write(b"{}")
    inside = next(name for name in NAMES if name.startswith("year=2026/"))
    for name in ("data/d/year=2026", "data/d", "data/d/*", f"data/d/{inside}"):
        with pytest.raises(TableFormatError, match="the Delta table data/d/year=2026,|is a Delta table"):
            parquet_bloom.count(name, filesystem=store)
    assert parquet_bloom.count("data/d/top.parquet", filesystem=store) == 1200
