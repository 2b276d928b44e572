"""listing: files of trees, by size, each once, and what they are together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parquet_bloom.spark.listing import Listing, list_by_size, list_files
from parquet_bloom.spark.storages import Storages

pytestmark = pytest.mark.spark


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of 1, 2, 3 and 400 bytes on three levels, and what is passed over."""
    for name, size in (
        ("a.parquet", 1), ("x=1/b.parquet", 2), ("x=2/y=3/c.parquet", 3), ("x=2/y=3/large.parquet", 400),
        ("_SUCCESS", 9), ("x=1/.b.parquet.crc", 9), ("_temporary/d.parquet", 9), ("x=1/_metadata", 9),
    ):  # fmt: skip
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(size))
    return tmp_path / "tree"


def names(listed: Listing, tree: Path) -> list[str]:
    rows = listed.rows.collect()
    assert listed.files == len(rows)
    assert listed.size == sum(row["size"] for row in rows)
    return sorted(row["path"].removeprefix(f"{tree}/") if row["kind"] == "file" else row["error"] for row in rows)


def test_a_tree_by_size(spark: Any, tree: Path) -> None:
    small, large = list_by_size(spark, [str(tree)], Storages(), 100)
    assert names(small, tree) == ["a.parquet", "x=1/b.parquet", "x=2/y=3/c.parquet"]
    assert names(large, tree) == ["x=2/y=3/large.parquet"]
    assert names(list_files(spark, [str(tree)], Storages()), tree) == sorted(names(small, tree) + names(large, tree))


def test_names_that_share_files(spark: Any, tree: Path) -> None:
    """A file is listed once, and counted once."""
    paths = [str(tree), str(tree / "x=2"), str(tree / "x=2/y=3/large.parquet"), f"{tree}/*.parquet", f"{tree}/none*"]
    small, large = list_by_size(spark, paths, Storages(), 100)
    failed = f"{tree}/none*: no file fits this pattern"
    assert names(small, tree) == sorted([failed, "a.parquet", "x=1/b.parquet", "x=2/y=3/c.parquet"])
    assert names(large, tree) == ["x=2/y=3/large.parquet"]


def test_more_names_than_tasks(spark: Any, tree: Path) -> None:
    paths = [f"{tree}/{i}" for i in range(50)] + [str(tree / "a.parquet")]
    listed = list_files(spark, paths, Storages())
    assert names(listed, tree) == sorted([f"{tree}/{i}: no such file or folder" for i in range(50)] + ["a.parquet"])
    assert (listed.files, listed.size) == (51, 1)


def test_nothing(spark: Any, tmp_path: Path) -> None:
    listed = list_files(spark, [str(tmp_path)], Storages())
    assert (listed.files, listed.size, listed.rows.collect()) == (0, 0, [])


def test_a_listing_is_of_now(spark: Any, tree: Path) -> None:
    """Spark keeps the rows of the first, and must not take the second for the same."""
    assert list_files(spark, [str(tree)], Storages()).files == 4
    (tree / "x=1" / "e.parquet").write_bytes(b"1")
    assert list_files(spark, [str(tree)], Storages()).files == 5
