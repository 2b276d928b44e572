"""A store that answers wrongly, late or never, at every request of a write: the object is old or new, and whole."""

from __future__ import annotations

import io
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import KEY, REGION, SECRET, ObjectStore, objects, serving
from support.samples import random_bytes
from wrong_store import HOW, WrongStore, before

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError

pytestmark = pytest.mark.faults
BUCKET, SOURCE, TARGET = "faulty", "faulty/x.parquet", "faulty/y.parquet"
BOUND_S = 60  # a call, with all that its clients ask again; they wait three seconds and try twice
_SHORT_CASES = 8


@dataclass
class Case:
    """One way of writing.

    target  the object that is to be new
    old     what lies there before: "plain", "filtered" or ""
    source  what lies at SOURCE
    """

    work: Callable[[Any], object]
    target: str
    source: str = "plain"
    old: str = ""


CASES = {
    "add in place": Case(
        lambda f: parquet_bloom.add_filters(SOURCE, in_place=True, columns=["id"], filesystem=f), SOURCE, old="plain"
    ),
    "add to a new object": Case(
        lambda f: parquet_bloom.add_filters(SOURCE, TARGET, columns=["id"], filesystem=f), TARGET
    ),
    "remove in place": Case(
        lambda f: parquet_bloom.remove_filters(SOURCE, in_place=True, filesystem=f), SOURCE, "filtered", "filtered"
    ),
    "add to a small object in place": Case(
        lambda f: parquet_bloom.add_filters(SOURCE, in_place=True, columns=["id"], filesystem=f), SOURCE, "small",
        "small",
    ),
}  # fmt: skip


class Store:
    """A store whose objects are known, and the wrong one before it."""

    def __init__(self, behind: ObjectStore, wrong: WrongStore, port: int) -> None:
        self._behind, self.wrong = behind, wrong
        behind.client.create_bucket(Bucket=BUCKET)
        self.filesystem = objects(
            endpoint_override=f"127.0.0.1:{port}", scheme="http", region=REGION, access_key=KEY, secret_key=SECRET,
            connect_timeout=2, request_timeout=3,
        )  # fmt: skip
        rng = np.random.default_rng(5)
        table = pa.table({"id": rng.integers(0, 2**62, 8000), "wide": random_bytes(rng, 8000, 700)})
        out = io.BytesIO()
        pq.write_table(table, out, row_group_size=4000, use_dictionary=False, compression="none")
        small = io.BytesIO()
        pq.write_table(table.slice(0, 100), small, use_dictionary=False)
        self.bytes: dict[str, bytes] = {"plain": out.getvalue(), "small": small.getvalue()}
        self.new: dict[str, bytes] = {}
        self.requests: dict[str, int] = {}
        self.said = ""  # of the last error
        for name, case in CASES.items():
            self.prepare(case)
            self.wrong.ask(-1, "", False)
            case.work(self.filesystem)
            self.requests[name] = len(self.wrong.asked)
            self.new[name] = behind.get(case.target)
            self.bytes.setdefault("filtered", self.new[name])
        assert self.new["remove in place"] == self.bytes["plain"]

    def prepare(self, case: Case) -> None:
        self._behind.wire.quiet()
        for upload in self._behind.uploads(BUCKET):
            self._behind.client.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
        self._behind.client.delete_object(Bucket=BUCKET, Key=TARGET.partition("/")[2])
        self._behind.put(SOURCE, self.bytes[case.source])

    def run(self, name: str, nth: int, how: str, on: bool, outcomes: Counter[str], at: str = "") -> list[str]:
        """One fault, at the nth request that `at` matches; what is wrong with its outcome."""
        case, wrong = CASES[name], []
        self.prepare(case)
        self.wrong.ask(nth, how, on, at)
        begun, said = time.monotonic(), ""
        try:
            case.work(self.filesystem)
        except ParquetBloomError as error:
            said = str(error)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            wrong.append(said)
        self.said = said
        seconds = time.monotonic() - begun
        met = self.wrong.met
        self._behind.wire.quiet()
        there = case.target.partition("/")[2] in self._behind.names(BUCKET)
        data = self._behind.get(case.target) if there else b""
        old = self.bytes[case.old] if case.old else b""
        state = "new" if data == self.new[name] else "old" if data == old else "torn"
        outcomes[f"{'met' if met else 'not met'}, {'one line' if said else 'done'}, {state}"] += 1
        if state == "torn":
            wrong.append("neither old nor new")
        if not said and state != "new":
            wrong.append("says nothing of a failure")
        if said and state == "new" and "may be the old one or the new one" not in said:
            wrong.append(f"is new and says that it failed: {said}")
        if "\n" in said:
            wrong.append(f"more than a line: {said}")
        if self._behind.uploads(BUCKET) and "unfinished upload" not in said:
            wrong.append(f"leaves an upload behind and does not tell: {said}")
        if seconds > BOUND_S:
            wrong.append(f"took {seconds:.0f} s")
        lines = [line for line in self.wrong.asked if re.match(at, line)]
        asked = lines[nth] if nth < len(lines) else "none"
        return [f"{how} at {nth} ({asked}){' and all after' if on else ''}: {each}" for each in wrong]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with pytest.MonkeyPatch.context() as patch, serving() as behind:
        patch.setenv("AWS_MAX_ATTEMPTS", "2")
        with before(int(behind.endpoint.rpartition(":")[2])) as (wrong, port):
            yield Store(behind, wrong, port)
        behind.drop(BUCKET)


def check(store: Store, name: str, cases: list[tuple[int, str, bool]]) -> None:
    outcomes: Counter[str] = Counter()
    problems = [problem for nth, how, on in cases for problem in store.run(name, nth, how, on, outcomes)]
    print(f"\n{name}, {store.requests[name]} requests: {dict(outcomes)}")
    assert problems == []


@pytest.mark.parametrize(
    ("at", "how", "on", "outcome", "says"),
    [
        # It is done, and asked for once more it is refused: that is no other program's doing.
        ("POST .*uploadId", "closed after", False, "new", ""),
        ("POST .*uploadId", "500 after", False, "new", ""),
        ("POST .*uploadId", "truncated", False, "new", ""),
        ("POST .*uploadId", "closed after", True, "new", "may be the old one or the new one, whole"),
        ("POST .*uploadId", "200 and nothing", False, "old", "answered without ETag"),
        ("POST .*uploadId", "200 with an error", True, "old", "InternalError"),
        # An upload that was begun without our knowing its name.
        ("POST .*uploads", "closed after", False, "new", ""),
        ("POST .*uploads", "200 and nothing", False, "old", "answered without UploadId"),
        ("PUT .*partNumber", "200 and nothing", False, "old", "answered without ETag"),
        ("PUT .*partNumber", "200 and nothing", True, "old", "its unfinished upload .* stays in the store, abort it"),
        ("PUT .*partNumber", "403", True, "old", "its unfinished upload .* stays in the store, abort it"),
        ("PUT .*partNumber", "404", False, "old", "NoSuchKey"),
    ],
)
def test_answers_that_get_lost(store: Store, at: str, how: str, on: bool, outcome: str, says: str) -> None:
    lost(store, "add in place", at, how, on, outcome, says)


@pytest.mark.parametrize(
    ("how", "on", "outcome", "says"),
    [
        ("closed after", False, "new", ""),
        ("500 after", False, "new", ""),
        ("truncated", False, "new", ""),
        ("closed after", True, "new", "may be the old one or the new one, whole"),
        ("200 and nothing", False, "old", "answered without ETag"),
        ("503", False, "new", ""),
        ("503", True, "old", "may be the old one or the new one, whole"),
        ("403", False, "old", "AccessDenied"),
        ("wrong etag", False, "new", ""),
    ],
)
def test_answers_to_a_put_that_get_lost(store: Store, how: str, on: bool, outcome: str, says: str) -> None:
    lost(store, "add to a small object in place", "PUT ", how, on, outcome, says)


def lost(store: Store, name: str, at: str, how: str, on: bool, outcome: str, says: str) -> None:
    outcomes: Counter[str] = Counter()
    assert store.run(name, 0, how, on, outcomes, at) == []
    assert dict(outcomes) == {f"met, {'one line' if says else 'done'}, {outcome}": 1}
    assert re.search(says, store.said), store.said


def all_cases(store: Store, name: str) -> list[tuple[int, str, bool]]:
    return [(nth, how, on) for nth in range(store.requests[name]) for how in HOW for on in (False, True)]


@pytest.mark.parametrize("name", CASES)
def test_some_wrong_answers(store: Store, name: str) -> None:
    check(store, name, random.Random(name).sample(all_cases(store, name), _SHORT_CASES))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", CASES)
def test_every_wrong_answer(store: Store, name: str) -> None:
    check(store, name, all_cases(store, name))
