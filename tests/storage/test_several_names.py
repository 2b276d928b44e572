"""Several folders, patterns and files of a store in one call: looked for side by side, in the order of the names."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.object_store import objects
from support.recording_store import Answer, Asked, RecordingStore, keyed, recording

from parquet_bloom.errors import StorageError
from parquet_bloom.storage.paths import FileSet, locate

NAMES = [f"d{n}" for n in range(8)]


@pytest.fixture
def store() -> Iterator[RecordingStore]:
    with recording() as running:
        for name in NAMES:
            running.objects |= {f"data/{name}/{number}.parquet": b"PAR1" for number in range(2)}
        yield running


def found(store: RecordingStore, names: list[str]) -> FileSet:
    return locate(names, objects(**keyed(store)))


def paths(files: FileSet) -> list[str]:
    return [file.path for file in files.files]


@pytest.mark.parametrize("kind", ["data/{}", "data/{}/*.parquet", "data/{}/0.parquet"])
def test_names_are_looked_for_side_by_side(store: RecordingStore, kind: str) -> None:
    """No answer of a round comes before all its requests are there: a serial one would wait for ever."""
    rounds: dict[str, threading.Barrier] = {}
    lock = threading.Lock()

    def wait(asked: Asked, *_: Any) -> None:
        what = "GET" if asked.method == "GET" and "prefix" in asked.target else asked.method
        with lock:
            barrier = rounds.setdefault(what, threading.Barrier(len(NAMES)))
        if what == "HEAD" or kind != "data/{}/0.parquet":
            barrier.wait(30)

    answer = store.answer

    def together(asked: Asked, *more: Any) -> Answer:
        wait(asked)
        return answer(asked, *more)

    store.answer = together  # type: ignore[method-assign]
    files = found(store, [kind.format(name) for name in NAMES])
    numbers = (0,) if kind.endswith("0.parquet") else (0, 1)
    assert paths(files) == [f"data/{name}/{number}.parquet" for name in NAMES for number in numbers]
    assert not any(barrier.broken for barrier in rounds.values())


def test_what_is_named_in_two_ways_is_one_file(store: RecordingStore) -> None:
    files = found(store, ["data/d3", "data/d*/1.parquet", "data/d3/0.parquet", "data/d0"])
    assert paths(files) == ["data/d3/0.parquet", "data/d3/1.parquet"] + [
        f"data/{name}/1.parquet" for name in NAMES if name != "d3"
    ] + ["data/d0/0.parquet"]


def test_one_that_fails_leaves_the_others(store: RecordingStore) -> None:
    """A folder that is not there, a pattern that fits nothing, and a listing that is refused."""

    def deny(asked: Asked, answer: Answer) -> None:
        if "prefix=d2" in asked.target and "max-keys=1&" not in asked.target + "&":
            answer.status, answer.body = 403, b"<Error><Code>AccessDenied</Code></Error>"

    store.lists = deny
    files = found(store, ["data/d1", "data/none", "data/d2", "data/d4/*.x", "data/d5"])
    assert paths(files) == [f"data/{name}/{number}.parquet" for name in ("d1", "d5") for number in range(2)]
    assert [failed.path for failed in files.failed] == ["data/none", "data/d2", "data/d4/*.x"]
    assert all(isinstance(failed.error, StorageError) for failed in files.failed)
