"""Every reader gives the rows that match, and in their order, however many these are."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.commands import command

import parquet_bloom
from parquet_bloom.errors import DamagedFileError, FileChangedError, RequestError

ROWS, GROUP = 6000, 500


def density(group: int, name: str) -> float:
    """The share of rows of a row group that match."""
    return {
        "none": 0.0, "few": 0.004, "all": 1.0, "many": 0.5,
        "mixed": [0.0, 1.0, 0.004, 0.7, 0.0, 0.004, 1.0, 1.0, 1.0, 0.0, 0.0, 0.004][group],
        "once": float(group == 7),
    }[name]  # fmt: skip


@pytest.fixture(scope="module", params=["none", "few", "all", "many", "mixed", "once"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pa.Table]:
    """A file of twelve row groups, and the rows in which `hit` is 5; bounds exclude no row group."""
    rng = Random(3)
    hits = [5 if rng.random() < density(n // GROUP, request.param) else rng.choice([1, 9]) for n in range(ROWS)]
    hits[::GROUP] = [1] * (ROWS // GROUP)
    hits[1::GROUP] = [9] * (ROWS // GROUP)
    numbers = pa.array(range(ROWS))
    table = pa.table(
        {
            "row": numbers, "hit": pa.array(hits, pa.int8()), "text": pc.cast(numbers, pa.string()),
            "pair": pa.StructArray.from_arrays([numbers, numbers.cast(pa.string())], ["a", "b"]),
            "list": pa.array([[n] * (n % 3) for n in range(ROWS)]), "x": numbers.cast(pa.float64()),
        }
    )  # fmt: skip
    path = tmp_path_factory.mktemp("made") / "a.parquet"
    pq.write_table(table, path, row_group_size=GROUP, data_page_size=200, write_batch_size=10)
    return path, table.filter(pc.field("hit") == 5)


def test_rows_and_their_order(made: tuple[Path, pa.Table]) -> None:
    path, truth = made
    told: list[Any] = []
    assert parquet_bloom.read_table(path, "hit = 5", progress=told.append).equals(truth)
    assert told[-1].files_done == told[-1].files == 1
    assert parquet_bloom.read_table(path, pc.field("hit") == 5).equals(truth)
    assert parquet_bloom.count(path, "hit = 5") == len(truth)
    for columns in (["x", "row"], ["pair.b", "hit", "list"], ["hit"], "text", []):
        expected = ds.dataset(truth).scanner(columns=[columns] if columns == "text" else _scanned(columns)).to_table()
        found = parquet_bloom.read_table(path, "hit = 5", columns=columns)
        assert found.num_rows == len(truth)
        assert found.to_pydict() == {name.rpartition(".")[2]: v for name, v in expected.to_pydict().items()}
    batches = list(parquet_bloom.read_batches(path, "hit = 5", batch_rows=70))
    assert all(0 < batch.num_rows <= 70 for batch in batches)
    assert pa.Table.from_batches(batches, truth.schema).equals(truth)
    found = parquet_bloom.read_table(path, "hit = 5 AND (x > 3000 OR pair.a = 1111)")
    assert found.equals(truth.filter((pc.field("x") > 3000) | (pc.field("row") == 1111)))
    found = parquet_bloom.read_table(path, "hit = 5 AND pair.a < 3000", columns=["pair.b", "x"])
    assert found["x"].to_pylist() == [x for x in truth["x"].to_pylist() if x < 3000]
    assert found["b"].to_pylist() == [str(int(x)) for x in found["x"].to_pylist()]


def _scanned(columns: Any) -> dict[str, pc.Expression]:
    return {name: pc.field(*name.split(".")) for name in columns}


def test_frames_of_polars(made: tuple[Path, pa.Table]) -> None:
    pl = pytest.importorskip("polars", "2")
    path, truth = made
    frame = parquet_bloom.scan_polars(path)
    assert frame.filter(pl.col("hit") == 5).collect()["row"].to_list() == truth["row"].to_pylist()
    assert frame.filter(pl.col("hit") == 5).head(3).collect()["x"].to_list() == truth["x"].to_pylist()[:3]
    twice = (pl.col("hit") == 5) & ((pl.col("hit") < 9) | (pl.col("x") > 3))
    assert frame.filter(twice).collect()["text"].to_list() == truth["text"].to_pylist()
    odd = frame.filter((pl.col("hit") == 5) & (pl.col("text").str.len_chars() == 2)).select("pair", "text").collect()
    assert odd["text"].to_list() == [text for text in truth["text"].to_pylist() if len(text) == 2]
    assert frame.filter(pl.lit(value=True)).select("row").collect().height == ROWS


def test_folders_keys_and_files_that_lack_a_column(tmp_path: Path) -> None:
    for n, day in enumerate(["1", "2"]):
        (tmp_path / f"data/day={day}").mkdir(parents=True)
        columns = {"key": range(n * 100, n * 100 + 100), "a": range(100)} | ({"b": ["x"] * 100} if n == 0 else {})
        pq.write_table(pa.table(columns), tmp_path / f"data/day={day}/{n}.parquet")
    found = parquet_bloom.read_table(tmp_path / "data", "key IN (7, 107, 108)")
    assert found.to_pydict() == {"key": [7, 107, 108], "a": [7, 7, 8], "b": ["x", None, None], "day": [1, 2, 2]}
    assert parquet_bloom.read_table(tmp_path / "data", "key = 107", columns=["day"]).to_pydict() == {"day": [2]}
    assert parquet_bloom.read_table(tmp_path / "data", "key = 107", columns=["b"]).to_pydict() == {"b": [None]}


def test_files_of_several_types_have_the_wider_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": [1, 2], "v": pa.array([1, 2], pa.int32())}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"key": [3, 4], "v": pa.array([1, 2**40], pa.int64())}), tmp_path / "1.parquet")
    found = parquet_bloom.read_table(tmp_path, "key IN (2, 4)")
    assert (found["v"].type, found["v"].to_pylist()) == (pa.int64(), [2, 2**40])


def test_times_of_96_bits_out_of_reach_are_an_error(tmp_path: Path) -> None:
    """Among the pages that are decoded, as in files that are read whole."""
    days = pa.array(np.array([0, 0, 400_000_000_000], "datetime64[s]"))
    table = pa.table({"key": [1, 2, 3], "at": days})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    with pytest.raises(RequestError, match="column at has INT96 times outside"):
        parquet_bloom.read_table(tmp_path / "a.parquet", "key = 3")


def test_the_command_says_what_was_spared(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {name: rng.integers(0, 2**62, 100_000) for name in ("a", "b", "c")}
    pq.write_table(pa.table({"key": np.arange(100_000)} | columns), tmp_path / "a.parquet", use_dictionary=False)
    done = command("read", tmp_path / "a.parquet", "--where", "key = 77777", "--format", "ndjson")
    assert json.loads(done.stdout) == {"key": 77777} | {name: int(values[77777]) for name, values in columns.items()}
    assert "pages were not" in done.stderr


def test_a_file_that_changes_between_its_columns_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"hit": [1, 5, 9] * 400, "row": range(1200)})
    pq.write_table(table, path, row_group_size=300)
    batches = parquet_bloom.read_batches(path, "hit = 5", batch_rows=2)
    next(batches)
    pq.write_table(table.slice(1), path, row_group_size=300)
    with pytest.raises((FileChangedError, DamagedFileError)):
        list(batches)
