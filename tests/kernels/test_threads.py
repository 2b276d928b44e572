"""Starting threads where there is no memory for them: an error in one line, never a call that waits for ever."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.samples import digest, leftovers

from parquet_bloom import process

ADD = textwrap.dedent("""
    import os, re, resource, sys
    import parquet_bloom
    source, more = sys.argv[1], int(sys.argv[2])
    how = {"in_place": True, "columns": ["id"], "threads": 3, "sync": False}
    parquet_bloom.add_filters(source, source + ".first", columns=["id"], sync=False)  # all code is loaded
    os.unlink(source + ".first")
    size = int(re.search(r"VmSize:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))
    try:
        parquet_bloom.add_filters(source, **how)
        print("added")
    except MemoryError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    parquet_bloom.add_filters(source, replace=True, **how)
    print("added")
""")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("more", [0, 30 << 20], ids=["nothing-left", "room-for-one"])
def test_no_memory_for_threads(tmp_path: Path, more: int) -> None:
    path = tmp_path / "x.parquet"
    table = pa.table({"id": np.random.default_rng(0).integers(0, 2**62, 20_000)})
    pq.write_table(table, path, row_group_size=5_000)
    before = digest(path)
    command = [sys.executable, "-c", ADD, str(path), str(more)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first.startswith("there is no memory, or no leave, to start ")
    assert last == "added", "the next call, with memory, works"
    assert digest(path) != before
    assert leftovers(tmp_path) == []


def test_more_threads_than_memory_can_hold() -> None:
    with pytest.raises(MemoryError, match=f"{10**9} more threads"):
        process.check_room(10**9)


def test_all_threads_run_before_the_work() -> None:
    with process.started_pool(5, "some") as pool:
        assert len(pool._threads) == 5
        assert list(pool.map(str, range(9))) == [str(i) for i in range(9)]


def test_control_c_while_threads_start_leaves_none_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(threading.Barrier):
        def wait(self, timeout: float | None = None) -> int:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(process.threading, "Barrier", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        process.started_pool(2, "interrupted")
    assert not [one.name for one in threading.enumerate() if one.name.startswith("interrupted")]
