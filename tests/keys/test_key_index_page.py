"""docs/key-index.md: its reader of twenty lines and its SQL find what brute force finds, and what locate finds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

import parquet_bloom

PAGE = Path(__file__).resolve().parents[2] / "docs" / "key-index.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files in two folders, and an index of two segments, of which one file is gone."""
    base = tmp_path_factory.mktemp("format")
    rng = np.random.default_rng(5)

    def write(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        ids = rng.integers(-(1 << 40), 1 << 40, 600)
        pq.write_table(pa.table({"name": [f"n{x}" for x in ids], "id": ids}), path, row_group_size=200)

    for name in ("a/0", "a/1", "b/0", "b/1"):
        write(base / "data" / f"{name}.parquet")
    parquet_bloom.build_index(base / "data", ["name", "id"], base / "index")
    (base / "data/a/1.parquet").unlink()
    for name in ("b/2", "b/3"):
        write(base / "data" / f"{name}.parquet")
    parquet_bloom.update_index(base / "index", base / "data")
    assert len(json.loads((base / "index/manifest.json").read_text())["index"]["segments"]) == 2
    return base


def truth(base: Path) -> dict[int, set[tuple[str, int]]]:
    """Key -> the places that hold it."""
    found: dict[int, set[tuple[str, int]]] = {}
    for path in sorted((base / "data").rglob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            for key in file.read_row_group(group, ["id"])["id"].to_pylist():
                found.setdefault(key, set()).add((path.relative_to(base / "data").as_posix(), group))
    return found


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return found


def test_the_reader_of_the_page_finds_what_is_there(folder: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile(block("python"), "key-index.md", "exec"), names)
    wanted = truth(folder)
    for key in list(wanted)[::37]:
        assert wanted[key] <= set(names["places_of"](folder / "index", 1, key))
    false = [names["places_of"](folder / "index", 1, key) for key in range(1 << 50, (1 << 50) + 50)]
    assert sum(map(len, false)) <= 2, "some bits of each hash are there"


def test_the_join_of_the_page_finds_what_locate_finds(folder: Path) -> None:
    wanted = truth(folder)
    keys = [*list(wanted)[::11], *range(1 << 50, (1 << 50) + 100)]
    found = set()
    for segment in json.loads((folder / "index/manifest.json").read_text())["index"]["segments"]:
        (column,) = (one for one in segment["columns"] if one["number"] == 1)
        digests = [xxhash.xxh64_intdigest(key.to_bytes(8, "little", signed=True)) for key in keys]
        db = duckdb.connect()
        table = pa.table({"key": keys, "hash": [digest >> 64 - column["bits"] for digest in digests]})
        db.register("keys", table)
        revision = f"-{segment['revision']}" if segment["revision"] else ""
        statement = block("sql").replace("SEGMENT/files.parquet", f"SEGMENT/files{revision}.parquet")
        statement = statement.replace("columns/0/", "columns/1/").replace("SEGMENT", segment["id"])
        statement = statement.replace("events-index", str(folder / "index"))
        found |= {(key, path, group) for key, path, group in db.execute(statement).fetchall() if path}
    located = parquet_bloom.locate(folder / "data", "id", keys, folder / "index")
    root = str(folder / "data") + "/"
    ours = {
        (key, file.removeprefix(root), group)
        for key, file, group in zip(*(located[name].to_pylist() for name in ("key", "file", "row_group")), strict=True)
    }
    assert found == ours
    assert {(key, *place) for key in keys for place in wanted.get(key, ())} <= ours
    assert json.loads(located.schema.metadata[b"parquet_bloom"])["searched"] == 0
