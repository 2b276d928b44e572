"""Rows by pages in threads, in a forked child, of scans that nobody reads to their end, and the memory they take."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom

ROWS = 400_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two row groups, 32 MB in memory."""
    rng = np.random.default_rng(1)
    columns = {"id": rng.permutation(ROWS), "at": np.arange(ROWS)}
    columns |= {name: rng.integers(0, 2**62, ROWS) for name in "abcdefgh"}
    made = tmp_path_factory.mktemp("files") / "a.parquet"
    pq.write_table(pa.table(columns), made, use_dictionary=False, write_page_index=True, row_group_size=ROWS // 2)
    return made


def test_threads_share_one_source(path: Path) -> None:
    """The places of pages are kept with its outlines."""
    source = parquet_bloom.Source(path)
    ids = pq.read_table(path, columns=["id"])["id"].to_numpy()
    rows = list(range(7, ROWS, 9973))[:24]

    def one(row: int) -> tuple[int, int]:
        [found] = source.read_table(f"id = {ids[row]}").to_pylist()
        return found["at"], source.count(f"at BETWEEN {row} AND {row + 5}")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, rows)) == [(row, 6) for row in rows]


def test_a_forked_child(path: Path) -> None:
    assert parquet_bloom.read_table(path, "at = 77")["at"].to_pylist() == [77]
    code = (
        "import os, sys, parquet_bloom\n"
        "path = sys.argv[1]\n"
        "assert parquet_bloom.read_table(path, 'at = 77')['at'].to_pylist() == [77]\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    os._exit(parquet_bloom.read_table(path, 'at IN (5, 399999)')['at'].to_pylist() != [5, 399999])\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, path], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr


def test_a_scan_that_nobody_reads_to_its_end(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for where in ("id >= 0 OR id < 0", "at IN (5, 399999)", "at >= 5 AND id >= 0", "id < 40 OR id > 399990"):
        batches = parquet_bloom.read_batches(path, where, batch_rows=5000)
        next(batches)
        batches.close()
    assert parquet_bloom.read_table(path, "at = 77")["at"].to_pylist() == [77]
    assert len(os.listdir("/proc/self/fd")) <= before + 1


def peak(path: Path, code: str) -> int:
    """The most memory of a process, KiB."""
    text = f"import sys, pyarrow.parquet as pq, parquet_bloom\npath = sys.argv[1]\n{code}\n"
    text += "print(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])"
    done = subprocess.run([sys.executable, "-c", text, path], capture_output=True, text=True, timeout=200, check=True)
    return int(done.stdout)


def test_a_key_takes_no_memory_for_other_rows(path: Path) -> None:
    """The key's column of a row group, not ten columns."""
    base = peak(path, "parquet_bloom.read_table(path, 'id = -1'); import pyarrow.dataset, pyarrow.compute")
    one = peak(path, "parquet_bloom.read_table(path, 'id = 7')")
    whole = peak(path, "table = pq.read_table(path)")
    assert one - base < (whole - base) * 2 / 3
