"""A key index that is open: what it does ahead, in threads, and what it keeps of that."""

from __future__ import annotations

import shutil
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom.errors import StorageError
from parquet_bloom.keys.index import KeyIndex, begun


@pytest.fixture
def index(tmp_path: Path) -> KeyIndex:
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "data/a.parquet")
    parquet_bloom.build_index(tmp_path / "data", "id", tmp_path / "index")
    return KeyIndex(tmp_path / "index")


def with_segments(index: KeyIndex, n: int) -> KeyIndex:
    """The same, with a manifest that names its segment, and others that are not there."""
    [segment] = index.manifest.segments
    others = tuple(replace(segment, id=f"{number:016x}") for number in range(n - 1))
    index.manifest = replace(index.manifest, segments=(*others, segment))
    return index


def test_a_manifest_of_many_segments_begins_few_threads(index: KeyIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    [real] = index.manifest.segments
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def counted(thread: threading.Thread) -> None:
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", counted)
    with_segments(index, 1000).begin([])
    for thread in started:
        thread.join()
    assert 1 < len(started) <= 32
    assert list(index._listings) == [real.id], "one that cannot be read hinders no other"
    with pytest.raises(StorageError):
        index.listing(index.manifest.segments[0])


def test_without_threads_the_work_is_done_in_place(index: KeyIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", refuse)
    [segment] = index.manifest.segments
    index.begin([])
    assert list(index._listings) == [segment.id]
    assert begun(threading.get_ident).result() == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        begun(lambda: 1 // 0).result()
    with pytest.raises(KeyboardInterrupt):
        begun(interrupted)


def test_lookups_that_nobody_takes_are_bounded(index: KeyIndex) -> None:
    [segment] = index.manifest.segments
    column = segment.column(0)
    assert column is not None
    hashes = [np.array([number], np.uint64) for number in range(300)]
    for one in hashes:
        index.begin([(segment, column, one)])
    assert len(index._begun) <= 64
    for one in (hashes[0], hashes[-1]):  # forgotten, and waiting
        numbers, places = index.find(segment, column, one)
        assert (numbers.tolist(), places.tolist()) == ([], [])
    index.take_cost()
    assert not index._begun


def test_the_cost_is_taken_while_another_thread_reads_listings(index: KeyIndex) -> None:
    [segment] = index.manifest.segments
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    done = threading.Event()
    failed: list[BaseException] = []

    def take() -> None:
        while not done.is_set():
            try:
                index.take_cost()
            except RuntimeError as error:
                failed.append(error)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        for number in range(150):
            one = replace(segment, id=f"{number:016x}")
            target = Path(index.path) / one.listing_name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(Path(index.path) / segment.listing_name, target)
            index.listing(one)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
        index.close()
    assert failed == []
