"""What add, remove and advise say where there is nothing to do, or a part was done before."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom import cli

Say = Callable[..., str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """plain.parquet; some.parquet with filters on id; data/: three files, of which one has them; full/: all have."""
    rng = np.random.default_rng(4)
    for name in ("plain", "data/a", "data/b", "data/c", "full/a", "full/b"):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        table = pa.table({"id": rng.integers(0, 2**62, 4000), "key": rng.integers(0, 2**62, 4000)})
        pq.write_table(table, path, row_group_size=1000, use_dictionary=False)
    shutil.copy(tmp_path / "plain.parquet", tmp_path / "some.parquet")
    for name in ("some", "data/b", "full/a", "full/b"):
        parquet_bloom.add_filters(tmp_path / f"{name}.parquet", in_place=True, columns=["id"], sync=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(folder: Path, capfd: pytest.CaptureFixture[str]) -> Say:
    def run(*words: str) -> str:
        assert cli.run([*words, "--no-sync"] if words[0] in ("add", "remove") else list(words)) == 0
        out, errors = capfd.readouterr()
        return out + errors

    return run


KEPT = "filters are there already and stay; --replace rebuilds them"


def test_a_filter_that_is_there_is_no_column_without_one(said: Say) -> None:
    out = said("add", "some.parquet", "--in-place", "-c", "id")
    assert out == f"some.parquet: nothing to add\n  id: {KEPT}\n"
    out = said("add", "some.parquet", "--in-place", "-c", "id", "-c", "key")
    assert f"  id: {KEPT}\n" in out
    assert "no filter on" not in out
    assert re.match(r"some.parquet: 4 filters on key in 4 row groups", out)
    out = said("add", "some.parquet", "--in-place", "-c", "id", "-c", "key")
    assert f"  id, key: {KEPT}\n" in out


def test_nothing_to_add_needs_no_disk(said: Say) -> None:
    out = said("add", "some.parquet", "--in-place", "--dry-run", "-c", "id")
    assert out == f"some.parquet: nothing to add\n  id: {KEPT}\n"
    out = said("add", "some.parquet", "--output", "copy.parquet", "--dry-run", "-c", "id")
    needs = r"nothing to add; a copy needs up to [\d.,]+ KiB of disk\n"
    assert re.match(rf"some.parquet -> copy.parquet(: |\n  ){needs}", out), "on one line where 80 columns have room"
    out = said("add", "full", "--in-place", "--dry-run", "-c", "id")
    assert re.match(r"2 files, [\d.]+ KiB: nothing to add\n  id \(2 files\): " + KEPT, out)
    assert "of disk" not in out
    assert "would add" not in out
    assert "full/a.parquet" not in out, "no list of files to which nothing happens"
    assert "full/a.parquet" in said("add", "full", "--in-place", "--dry-run", "-c", "id", "--all")
    out = said("add", "data", "--in-place", "--dry-run", "-c", "id")
    assert re.match(r"3 files, [\d.]+ KiB: would add 8 filters, up to [\d,.]+ (B|KiB)\n", out)
    assert "  1 file: nothing to add\n" in out


def test_remove_where_nothing_is(said: Say) -> None:
    assert said("remove", "plain.parquet", "--in-place") == "plain.parquet: nothing to remove\n"
    assert said("remove", "plain.parquet", "--in-place", "--dry-run") == "plain.parquet: nothing to remove\n"
    out = said("remove", "data", "--in-place", "--dry-run")
    assert out.startswith("3 files: would remove 4 filters\n")
    assert "0 B" not in out, "a dry run does not say that it would free nothing"
    out = said("remove", "data", "--in-place")
    assert re.match(r"3 files: removed 4 filters, [\d,.]+ (B|KiB) less\n", out)


def test_advise_does_not_call_a_column_with_filters_one_without(said: Say) -> None:
    said("add", "plain.parquet", "--in-place", "-c", "*")
    out = said("advise", "plain.parquet")
    assert out.splitlines()[1] == "no column needs a filter that it lacks"
    assert re.search(r"^column +not advised, as$", out, re.MULTILINE)
    assert len(re.findall(r"^(id|key) +it has filters$", out, re.MULTILINE)) == 2
