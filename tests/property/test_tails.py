"""Random adds and removes of tails and other filters over random files: brute force, and the bytes that there were."""

from __future__ import annotations

import io
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repeats import more_then_slow
from support.samples import leftovers

import parquet_bloom
from parquet_bloom.errors import LayoutError

COLUMNS = ("i", "s", "f", "x.y")


def random_table(rng: random.Random) -> pa.Table:
    rows = rng.randint(1, 300)
    numbers = np.random.default_rng(rng.getrandbits(32))
    values = numbers.integers(0, rng.choice([5, 1000, 2**62]), rows)
    return pa.table(
        {
            "i": pa.array(values, mask=numbers.random(rows) < 0.2),
            "s": pa.array([f"k{v}" for v in values]),
            "f": pa.array(values / 3),
            "x": pa.array([{"y": int(v)} for v in values]),
        }
    )


def write(path: Path, table: pa.Table, rng: random.Random) -> None:
    pq.write_table(
        table, path, row_group_size=rng.randint(1, 120), write_page_index=rng.random() < 0.5,
        use_dictionary=rng.random() < 0.5, compression=rng.choice(["none", "zstd"]),
    )  # fmt: skip


def step(path: Path, rng: random.Random) -> bool:
    """Do something to the file at random; whether all before it is still its beginning, or it of that."""
    columns = rng.sample(COLUMNS, rng.randint(1, 3))
    how: dict[str, Any] = {"in_place": True, "sync": False}
    kind = rng.choice(["tail", "tail", "tail", "footer", "remove", "last"])
    if kind == "tail":
        options = {"append": rng.random() < 0.5, "replace": rng.random() < 0.3, "fpp": rng.choice([0.3, 0.01])}
        parquet_bloom.add_filters(path, columns=columns, placement="tail", **options, **how)
        return True
    if kind == "footer":
        parquet_bloom.add_filters(path, columns=columns, replace=rng.random() < 0.5, **how)
        return False
    if kind == "remove":
        parquet_bloom.remove_filters(path, columns=columns, **how)
        return False
    with suppress(LayoutError):  # filters were added to it after its last tail
        parquet_bloom.remove_filters(path, last=True, append=rng.random() < 0.5, **how)
    return True


def check_rows(path: Path, table: pa.Table, rng: random.Random) -> None:
    """Rows, verdicts and filters against brute force."""
    groups = pq.ParquetFile(path)
    held = [groups.read_row_group(i)["s"].to_pylist() for i in range(groups.num_row_groups)]
    for value in {rng.choice(table["s"].to_pylist()), f"k{rng.randint(0, 2**62)}"}:
        wanted = [row for row in table.to_pylist() if row["s"] == value]
        assert parquet_bloom.read_table(path, f"s = '{value}'").to_pylist() == wanted
        for verdict in parquet_bloom.check(path, f"s = '{value}'"):
            assert not (verdict.skipped and value in held[verdict.row_group]), "a row group that holds the value"
    assert not parquet_bloom.verify(path).files[0].wrong
    assert parquet_bloom.inspect(path).files[0].problems == 0


def run(seed: int, folder: Path) -> None:
    rng = random.Random(seed)
    path, table = folder / f"{seed}.parquet", random_table(rng)
    write(path, table, rng)
    old, before = path.read_bytes(), path.read_bytes()
    for _ in range(rng.randint(1, 6)):
        nested = step(path, rng)
        now = path.read_bytes()
        assert not nested or now.startswith(before) or before.startswith(now)
        if now.startswith(old):
            prefix = pq.read_table(io.BytesIO(now[: len(old)]))
            assert prefix.equals(table), "who trusts the old size reads the old file"
        assert pq.read_table(path).equals(table)
        check_rows(path, table, rng)
        before = now
    parquet_bloom.remove_filters(path, in_place=True, sync=False)
    assert path.read_bytes() == old, "all that was ever added is gone"
    assert leftovers(folder) == []


@pytest.mark.parametrize(
    "seeds", [range(4), *more_then_slow((range(first, first + 50) for first in range(100, 400, 50)), 1)]
)
def test_whatever_is_done_rows_stay_and_bytes_come_back(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        run(seed, tmp_path)
