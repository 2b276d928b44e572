"""Many files on an S3 API: side by side, each byte once, and the same results as of local files."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import READERS, ObjectStore, Request, reading_by, serving
from support.samples import random_bytes

import parquet_bloom
from parquet_bloom.errors import DamagedFileError, FileChangedError, StorageError
from parquet_bloom.filters.tails import each_file
from parquet_bloom.options import set_limits
from parquet_bloom.source.source import source_of
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.remote import in_order
from parquet_bloom.storage.workers import Meter

FILES, GROUPS, ROWS = 12, 4, 100


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files with filters on `id`: all of one is in its last 64 KiB."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(11)
    for number in range(FILES):
        n = GROUPS * ROWS
        table = pa.table({"id": rng.integers(0, 2**62, n), "v": rng.random(n), "file": np.full(n, number)})
        pq.write_table(table, folder / f"{number:02}.parquet", row_group_size=ROWS, use_dictionary=False)
        parquet_bloom.add_filters(folder / f"{number:02}.parquet", in_place=True, columns=["id"], sync=False)
    return folder


def larger(folder: Path) -> bytes:
    """A file that is larger than its tail, of four row groups; two thirds of them are no column that is asked for."""
    rng = np.random.default_rng(3)
    table = pa.table({"v": rng.random(40_000), "pad": random_bytes(rng, 40_000, 20)})
    pq.write_table(table, folder / "larger.parquet", row_group_size=10_000, use_dictionary=False)
    return (folder / "larger.parquet").read_bytes()


@pytest.fixture(scope="module")
def store(local: Path) -> Iterator[ObjectStore]:
    with serving() as running:
        running.client.create_bucket(Bucket="data")
        for path in sorted(local.iterdir()):
            running.put(f"data/files/{path.name}", path.read_bytes())
        yield running


@pytest.fixture(params=READERS)
def reader(request: pytest.FixtureRequest) -> Iterator[str]:
    with reading_by(request.param):
        yield request.param


def ids(local: Path, number: int = 3) -> list[int]:
    return pq.read_table(local / f"{number:02}.parquet").column("id").to_pylist()


def of_objects(store: ObjectStore) -> Counter[str]:
    """Requests for the objects themselves, without listings and looks for tables."""
    names = [r for r in store.wire.requests if r.path.startswith("/data/files/") and r.path.endswith(".parquet")]
    return Counter(request.method for request in names)


CALLS: dict[str, Any] = {
    "check": lambda source, keys, **o: [v[1:4] for v in parquet_bloom.check(source, f"id = {keys[0]}", **o)],
    "prune": lambda source, keys, **o: [g for _, g in parquet_bloom.prune(source, f"id = {keys[0]}", **o)],
    "prune values": lambda source, keys, **o: [
        g for _, g in parquet_bloom.prune(source, column="id", values=keys[:50], **o)
    ],
    "count": lambda source, keys, **o: parquet_bloom.count(source, f"id IN ({', '.join(map(str, keys))})", **o),
    "count by rows": lambda source, keys, **o: parquet_bloom.count(source, "v > 0.5", **o),
    "read_table": lambda source, keys, **o: parquet_bloom.read_table(source, "v > 0.5", ["file", "v"], **o),
    "read all": lambda source, keys, **o: parquet_bloom.read_table(source, **o),
    "read_batches": lambda source, keys, **o: [
        row for b in parquet_bloom.read_batches(source, f"id = {keys[7]}", **o) for row in b.to_pylist()
    ],
    "inspect": lambda source, keys, **o: [len(f.filters) for f in parquet_bloom.inspect(source, **o).files],
    "verify": lambda source, keys, **o: [
        [v.status for v in f.filters] for f in parquet_bloom.verify(source, **o).files
    ],
}


def test_each_small_object_costs_one_get_and_one_head_before_it_where_pyarrow_reads(
    store: ObjectStore, local: Path, reader: str
) -> None:
    keys = ids(local)
    for name, call in CALLS.items():
        expected = call(local, keys)
        store.wire.clear()
        assert call("data/files", keys, filesystem=store.filesystem) == expected, name
        costs = {"GET": FILES} if reader == "obstore" else {"HEAD": FILES, "GET": FILES}
        assert of_objects(store) == costs, name


def test_objects_are_read_side_by_side(store: ObjectStore, local: Path, reader: str) -> None:
    for name in ("check", "prune values", "count by rows", "inspect"):
        with in_flight(store) as most:
            CALLS[name]("data/files", ids(local), filesystem=store.filesystem)
        assert max(most) >= FILES - 3, name  # the first file is alone where names are held against it


@pytest.mark.parametrize("rows", [100, 20_000], ids=["in one answer", "larger"])
def test_what_is_in_memory_is_worked_on_in_turn(store: ObjectStore, tmp_path: Path, rows: int) -> None:
    """Threads that take the lock of Python from each other at each call of a kernel take longer together."""
    table = pa.table({"x": random_bytes(np.random.default_rng(1), rows, 8)})
    pq.write_table(table, tmp_path / "one.parquet", use_dictionary=False)
    for number in range(4):
        store.put(f"data/of_{rows}/{number}.parquet", (tmp_path / "one.parquet").read_bytes())
    running, most = [0], [0]

    def work(opened: OpenFile, _: Any) -> None:
        running[0] += 1
        most.append(running[0])
        time.sleep(0.05)
        running[0] -= 1

    found = source_of(f"data/of_{rows}", store.filesystem, {}).resolve(stored_only=True)
    assert len(each_file(found, work, Meter(None))) == 4
    assert (max(most) == 1) == (rows == 100)


def test_the_limit_holds(store: ObjectStore, local: Path) -> None:
    before = set_limits(concurrency=2)
    try:
        with in_flight(store) as most:
            CALLS["check"]("data/files", ids(local), filesystem=store.filesystem)
        assert max(most) == 2
    finally:
        set_limits(concurrency=before.concurrency)


class in_flight:
    """How many requests for objects were open together; each takes 50 ms."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self._now, self._lock, self._most = store, 0, threading.Lock(), [0]

    def __enter__(self) -> list[int]:
        self._store.wire.before = self._wait
        return self._most

    def _wait(self, request: Request) -> None:
        if not request.path.endswith(".parquet"):
            return
        with self._lock:
            self._now += 1
            self._most.append(self._now)
        time.sleep(0.05)
        with self._lock:
            self._now -= 1

    def __exit__(self, *_: object) -> None:
        self._store.wire.before = None


def test_one_failure_is_reported_and_the_others_stay(store: ObjectStore, local: Path, reader: str) -> None:
    store.put("data/one_bad/00.parquet", (local / "00.parquet").read_bytes())
    store.put("data/one_bad/01.parquet", (local / "01.parquet").read_bytes()[:-100] + b"PAR1")
    store.put("data/one_bad/02.parquet", (local / "02.parquet").read_bytes())
    for report in (
        parquet_bloom.inspect("data/one_bad", filesystem=store.filesystem),
        parquet_bloom.verify("data/one_bad", filesystem=store.filesystem),
        parquet_bloom.check("data/one_bad", "id = 5", filesystem=store.filesystem),
    ):
        [failed] = report.failed
        assert failed.path.endswith("01.parquet")
    with pytest.raises(DamagedFileError, match=r"01\.parquet"):
        parquet_bloom.count("data/one_bad", "id = 5", filesystem=store.filesystem)


def test_a_source_looks_for_changes_of_small_objects_too(store: ObjectStore, local: Path, reader: str) -> None:
    """Where its pins are of the HEAD; the GET could have met a newer object."""
    source = parquet_bloom.Source("data/files", filesystem=store.filesystem)
    store.wire.clear()
    assert source.count("v > 0.5") == parquet_bloom.count(local, "v > 0.5")
    assert of_objects(store) == ({"GET": FILES} if reader == "obstore" else {"HEAD": 2 * FILES, "GET": FILES})


def test_rows_of_larger_objects_cost_their_chunks_alone(store: ObjectStore, tmp_path: Path, reader: str) -> None:
    """GET of the tail, GET of the chunks, and where these name no version a HEAD before and after them."""
    data = larger(tmp_path)
    for number in range(3):
        store.put(f"data/larger/{number}.parquet", data)
    store.wire.clear()
    counted = parquet_bloom.count("data/larger", "v > 0.25", filesystem=store.filesystem)
    assert counted == 3 * parquet_bloom.count(tmp_path / "larger.parquet", "v > 0.25")
    kinds = Counter(r.method for r in store.wire.requests if r.path.startswith("/data/larger/"))
    assert kinds["HEAD"] == (0 if reader == "obstore" else 6)
    assert kinds["GET"] <= 3 + 3 * 4  # four row groups lie too far apart to be joined


@pytest.mark.parametrize("how", ["fails", "changes"])
def test_a_request_that_fails_while_rows_are_fetched_is_ours(
    store: ObjectStore, tmp_path: Path, reader: str, how: str
) -> None:
    """And an object that changes: its rows come with other answers than its footer."""
    data, gets = larger(tmp_path), []
    for number in range(2):
        store.put(f"data/{how}/{number}.parquet", data)

    def before(request: Request) -> None:
        if request.path.endswith("1.parquet") and request.method == "GET":
            gets.append(request)
            if len(gets) > 1 and how == "fails":  # the tail was read, the rows are not
                raise OSError("the store fails")
            if len(gets) == 2:
                store.wire.before = None
                store.put(f"data/{how}/1.parquet", data[:4] + bytes([data[4] ^ 1]) + data[5:])

    store.wire.before = before
    try:
        with pytest.raises(StorageError if how == "fails" else FileChangedError, match=r"1\.parquet"):
            parquet_bloom.count(f"data/{how}", "v > 0.25", filesystem=store.filesystem)
    finally:
        store.wire.before = None
    assert len(gets) > 1


# --- the order of results, what waits, and leaving early ------------------------------------------


def test_results_are_in_order_and_few_wait() -> None:
    begun: list[int] = []

    def work(n: int) -> int:
        begun.append(n)
        time.sleep(0.001 * (n % 3))
        return n

    results = in_order(work, range(1000), most=8)
    for n, result in enumerate(results):
        assert result() == n
        assert len(begun) <= n + 1 + 8


def test_whoever_leaves_early_does_not_wait_for_a_store() -> None:
    release = threading.Event()

    def work(n: int) -> int:
        if n:
            release.wait(20)
        return n

    results = in_order(work, range(100), most=4)
    assert next(results)() == 0
    started = time.perf_counter()
    results.close()  # type: ignore[attr-defined]
    assert time.perf_counter() - started < 5
    release.set()


def test_whoever_must_not_leave_a_file_half_written_waits() -> None:
    done: list[int] = []

    def work(n: int) -> int:
        time.sleep(0.05)
        done.append(n)
        return n

    results = in_order(work, range(100), most=4, settle=True)
    assert next(results)() == 0
    results.close()  # type: ignore[attr-defined]
    settled = len(done)
    time.sleep(0.2)
    assert len(done) == settled


def test_work_on_files_within_work_on_files_ends() -> None:
    def inner(n: int) -> int:
        return n

    def outer(n: int) -> int:
        return sum(result() for result in in_order(inner, range(10)))

    assert [result() for result in in_order(outer, range(200))] == [45] * 200


def test_a_child_of_a_process_that_used_the_pools_has_its_own(store: ObjectStore, local: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork")
    assert [result() for result in in_order(abs, range(-5, 0))] == [5, 4, 3, 2, 1]
    child = os.fork()
    if not child:  # threads of the parent are not here: whoever waits for one waits for ever
        signal.alarm(20)
        os._exit(0 if [result() for result in in_order(abs, range(-5, 0))] == [5, 4, 3, 2, 1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_share_the_pools(store: ObjectStore, local: Path) -> None:
    keys = ids(local)
    expected = parquet_bloom.count(local, f"id IN ({', '.join(map(str, keys))})")
    found: list[int] = []

    def ask() -> None:
        query = f"id IN ({', '.join(map(str, keys))})"
        found.append(parquet_bloom.count("data/files", query, filesystem=store.filesystem))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [expected] * 6
