"""An index that has to cover all, and what each question reads of an index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import command, error_lines

import parquet_bloom
from keys.key_indexes import parts_of, write_ids
from parquet_bloom.errors import StaleIndexError
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.locate import facts_of
from parquet_bloom.keys.update import update_index

ASKED: dict[str, Callable[..., Any]] = {
    "check": parquet_bloom.check,
    "prune": parquet_bloom.prune,
    "read_table": parquet_bloom.read_table,
    "read_batches": lambda *words, **how: list(parquet_bloom.read_batches(*words, **how)),
    "count": parquet_bloom.count,
    "dataset": lambda *words, **how: parquet_bloom.dataset(*words, **how).to_table(),
    "scan_polars": lambda data, _, **how: parquet_bloom.scan_polars(data, **how).filter(pl.col("id") == 5).collect(),
    "Source": lambda data, asked, index, **how: parquet_bloom.Source(data, index=index).check(asked, **how),
    "locate": lambda data, _, index, **how: parquet_bloom.locate(data, "id", [5], index, **how),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files of which tmp/index is the index."""
    for number in range(4):
        write_ids(tmp_path / f"data/{number}.parquet", number)
    build_index(tmp_path / "data", "id", tmp_path / "index")
    return tmp_path / "data"


def test_a_strict_index_covers_every_file(data: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    for ask in ASKED.values():
        ask(data, "id = 5", index=index, strict_index=True)
    write_ids(data / "new.parquet", 77)
    for name, ask in ASKED.items():
        ask(data, "id = 5", index=index)
        with pytest.raises(StaleIndexError, match="1 of 5 files are not covered, or changed since"):
            pytest.fail(f"{name} gives {ask(data, 'id = 5', index=index, strict_index=True)}")
    update_index(index, data)
    for ask in ASKED.values():
        ask(data, "id = 5", index=index, strict_index=True)


def test_a_strict_index_is_whole(data: Path, tmp_path: Path) -> None:
    [part] = parts_of(tmp_path / "index")
    part.write_bytes(part.read_bytes()[:-1])
    for name, ask in ASKED.items():
        ask(data, "id = 5", index=tmp_path / "index")
        with pytest.raises(StaleIndexError, match=f"{part.name}.*by the manifest$"):
            pytest.fail(f"{name} gives {ask(data, 'id = 5', index=tmp_path / 'index', strict_index=True)}")


def test_strict_commands(data: Path, tmp_path: Path) -> None:
    write_ids(data / "new.parquet", 77)
    (tmp_path / "keys").write_text("5\n")
    locate = ["locate", data, "-c", "id", "--keys", tmp_path / "keys"]
    for words in (["check", data, "id = 5"], ["read", data, "id = 5"], locate):
        asked = [*words, "--index", tmp_path / "index"]
        assert command(*asked).returncode <= 1
        refused = command(*asked, "--strict-index")
        assert (refused.returncode, error_lines(refused.stderr)) == (2, 1)
        assert "1 of 5 files are not covered, or changed since" in refused.stderr


def test_the_cost_of_an_index_is_said(data: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    costs = []
    for _ in range(2):
        totals = parquet_bloom.check(data, "id = 5", index=index).to_dict()["totals"]
        costs.append((totals["index_requests"], totals["index_bytes"]))
    (first, read), (second, again) = costs
    assert first > second >= 1
    assert read > again > 0, "what is read of an index is read once, but for entries"
    facts = facts_of(parquet_bloom.locate(data, "id", [5], index))
    assert facts["index_requests"] >= 1
    assert facts["index_bytes"] > 0
    without = parquet_bloom.check(data, "id = 5").to_dict()["totals"]
    assert (without["index_requests"], without["index_bytes"]) == (0, 0)
    for one, stream in (("check", "stdout"), ("read", "stderr")):
        shown = command(one, data, "id = 5", "--index", index, "--explain")
        assert "reads of the index, " in getattr(shown, stream)


def test_a_file_without_row_groups_is_not_missed(tmp_path: Path) -> None:
    """It has no row to find: no note says that the index lacks it, and a strict index is current."""
    data, index = tmp_path / "data", tmp_path / "index"
    data.mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), data / "a.parquet")
    for name in ("b", "c"):
        pq.ParquetWriter(data / f"{name}.parquet", pa.schema({"id": pa.int64()})).close()
    assert parquet_bloom.build_index(data, "id", index).passed_over == 2
    for listing in (True, False):
        assert parquet_bloom.count(data, "id = 2", index=index, strict_index=True, listing=listing) == 1
    assert parquet_bloom.check(data, "id = 7", index=index).notes == []
    pq.write_table(pa.table({"id": [7]}), data / "c.parquet")
    assert "1 of 3 files are not covered" in parquet_bloom.check(data, "id = 7", index=index).notes[0]
    with pytest.raises(StaleIndexError, match="1 of 3 files"):
        parquet_bloom.count(data, "id = 7", index=index, strict_index=True)
    assert parquet_bloom.count(data, "id = 7", index=index) == 1
