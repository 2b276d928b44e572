"""What a forked child has of its own: no lock of another thread of its parent, no connection."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest

from parquet_bloom.filters import content
from parquet_bloom.keys import index as key_index
from parquet_bloom.output import s3
from parquet_bloom.process import ForkSafe, Recent
from parquet_bloom.storage import object_reader

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def answer_of_a_child(ask: Any) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if ask() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


SHARED: dict[str, ForkSafe[Any]] = {
    "hashes of columns": content._remembered,
    "key indexes": key_index._opened,
    "clients of S3": s3._clients,
    "buckets": object_reader._process,
}


def test_a_child_waits_for_no_lock_of_its_parent() -> None:
    def takes_the_lock(shared: ForkSafe[Any]) -> bool:
        return bool(shared.own.lock.acquire(timeout=5))

    for name, shared in SHARED.items():
        own = shared.own
        with own.lock:  # as another thread would have it
            assert answer_of_a_child(partial(takes_the_lock, shared)), name
        assert shared.own is own, f"{name}: the parent goes on with what it had"


def test_a_child_of_a_child_has_its_own_too() -> None:
    made: ForkSafe[list[int]] = ForkSafe(list)
    made.own.append(os.getpid())

    def ask() -> bool:
        made.own.append(1)
        return made.own == [1] and answer_of_a_child(lambda: made.own == [])

    assert answer_of_a_child(ask)
    assert made.own == [os.getpid()]


def test_values_used_last_stay() -> None:
    recent: Recent[str, int] = Recent(2)
    recent.keep("a", 1)
    recent.keep("b", 2)
    assert recent.find("a") == 1
    recent.keep("c", 3)
    assert (recent.find("a"), recent.find("b"), recent.find("c"), len(recent)) == (1, None, 3, 2)
    recent.keep("a", 4)
    recent.drop("c")
    recent.drop("c")
    assert (recent.find("a"), len(recent)) == (4, 1)
