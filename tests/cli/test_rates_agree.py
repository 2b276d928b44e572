"""The rate that `advise` names is the one that its command asks `add` for, and that no filter of it exceeds."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom import cli

R = np.random.default_rng(3)


def keys(rows: int, others: int = 0) -> pa.Table:
    return pa.table({"id": R.integers(0, 2**62, rows), **{f"x{i}": R.random(rows) for i in range(others)}})


def zipf(rows: int) -> pa.Table:
    return pa.table({"id": (R.zipf(1.3, rows) * 2654435761) % 2**40, "x": R.random(rows)})


# name -> (table, rows a row group) of each file; with --fpp auto the last filters of three of them erred more often
SETS: dict[str, Callable[[], list[tuple[pa.Table, int]]]] = {
    "wide": lambda: [(keys(20_000, 10), 2000)],
    "files unlike": lambda: [(keys(40_000, 2), 10_000), (keys(3000, 2), 1000), (keys(60_000, 2), 30_000)],
    "ragged": lambda: [(keys(41_000, 2), 10_000)],
    "small files": lambda: [(keys(500), 500) for _ in range(12)],
    "repeats": lambda: [(pa.table({"id": np.repeat(R.integers(0, 2**62, 8000), 5)[R.permutation(40_000)]}), 5000)],
    "zipf": lambda: [(zipf(60_000), 6000)],
    "a short key": lambda: [(keys(20_000).append_column("tag", pa.array(R.integers(0, 40_000, 20_000))), 2000)],
}


def percents(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"(?<![\d.])([\d.]+) %", text)]


@pytest.mark.parametrize("name", SETS)
def test_add_keeps_the_rate_that_advise_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    for i, (table, rows) in enumerate(SETS[name]()):
        pq.write_table(table, f"data/{i}.parquet", row_group_size=rows, use_dictionary=False)
    assert cli.run(["advise", "data"]) == 0
    said = capfd.readouterr().out
    table = re.search(r"^column +fpp .*\n─+\n((?:\w+ +[\d.]+ % .*\n)+)", said, re.MULTILINE)
    assert table is not None, said
    named = {row.split()[0]: percents(row)[0] / 100 for row in table[1].splitlines()}
    [line] = re.findall(r"^  parquet-bloom add (.*)$", said, re.MULTILINE)
    words = shlex.split(line)
    asked = dict.fromkeys(named, float(words[words.index("--fpp") + 1]))
    asked |= {
        c: float(r) for c, _, r in (words[i + 1].rpartition("=") for i, w in enumerate(words) if w == "--column-fpp")
    }
    assert asked == pytest.approx(named), "the command asks for what the table names"

    assert cli.run(["add", *words, "--no-sync", "--all"]) == 0
    added = capfd.readouterr().out
    filters = [f for file in parquet_bloom.inspect("data").files for f in file.filters]
    assert {f.column for f in filters} == set(named)
    for column, rate in named.items():
        assert max(f.fpp for f in filters if f.column == column) <= rate
        shown = [percents(row)[-1] / 100 for row in added.splitlines() if re.search(rf"\b{column}\b.* % ", row + " ")]
        assert shown, "add names a rate too"
        assert max(shown) <= rate * 1.05, "as it prints it, rounded to two digits"
    advice = parquet_bloom.advise("data")
    assert advice.advised == []
