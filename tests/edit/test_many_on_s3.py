"""Many objects of an S3 API get new versions: several at a time, by one client, small ones by one conditional PUT."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import READERS, ObjectStore, Request, reading_by, serving

import parquet_bloom
from parquet_bloom.errors import ConflictError, UnknownColumnError
from parquet_bloom.output import s3

FILES = 6
KEPT = {"ContentType": "application/parquet", "Metadata": {"a": "b"}}


@pytest.fixture(params=READERS)
def heads(request: pytest.FixtureRequest) -> Iterator[int]:
    """How many requests open an object before its first bytes are read; each of obstore and of pyarrow reads."""
    with reading_by(request.param):
        yield int(request.param == "pyarrow")


def plain(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    out = io.BytesIO()
    table = pa.table({"id": rng.integers(0, 2**62, 400), "v": rng.random(400)})
    pq.write_table(table, out, row_group_size=100, use_dictionary=False)
    return out.getvalue()


@pytest.fixture(scope="module")
def server() -> Iterator[ObjectStore]:
    with serving() as running:
        running.client.create_bucket(Bucket="data")
        yield running


@pytest.fixture
def store(server: ObjectStore) -> ObjectStore:
    for number in range(FILES):
        server.put(f"data/files/{number}.parquet", plain(number), **KEPT, Tagging="team=a%20b")
    server.wire.before = None
    server.wire.clear()
    return server


def of_objects(store: ObjectStore) -> Counter[str]:
    return Counter(r.kind for r in store.wire.requests if r.path.endswith(".parquet"))


def test_small_objects_are_put_with_one_request_each(store: ObjectStore, tmp_path: Path, heads: int) -> None:
    report = parquet_bloom.add_filters("data/files", in_place=True, columns=["id"], filesystem=store.filesystem)
    assert not report.failed
    assert [os.path.basename(file.source) for file in report.files] == [f"{n}.parquet" for n in range(FILES)]
    assert of_objects(store) == {"HEAD": (2 + heads) * FILES, "GET": FILES, "TAGS": FILES, "PUT": FILES}
    for number in range(FILES):
        (tmp_path / "x.parquet").write_bytes(plain(number))
        parquet_bloom.add_filters(tmp_path / "x.parquet", in_place=True, columns=["id"], sync=False)
        assert store.get(f"data/files/{number}.parquet") == (tmp_path / "x.parquet").read_bytes()
        head = store.client.head_object(Bucket="data", Key=f"files/{number}.parquet")
        assert {name: head[name] for name in KEPT} == KEPT
        tags = store.client.get_object_tagging(Bucket="data", Key=f"files/{number}.parquet")["TagSet"]
        assert tags == [{"Key": "team", "Value": "a b"}]
    store.wire.clear()
    assert not parquet_bloom.remove_filters("data/files", in_place=True, filesystem=store.filesystem).failed
    assert of_objects(store) == {"HEAD": (2 + heads) * FILES, "GET": FILES, "TAGS": FILES, "PUT": FILES}
    assert [store.get(f"data/files/{n}.parquet") for n in range(FILES)] == [plain(n) for n in range(FILES)]


def test_a_call_makes_one_client(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    new_client = s3._new_client
    monkeypatch.setattr(s3, "_new_client", lambda filesystem: made.append(filesystem) or new_client(filesystem))
    parquet_bloom.add_filters("data/files", in_place=True, columns=["id"], filesystem=store.filesystem)
    assert len(made) == 1
    parquet_bloom.remove_filters("data/files", in_place=True, filesystem=store.filesystem)
    assert len(made) == 2, "credentials may be others by now"
    assert not s3._clients.own.made


def test_objects_are_written_side_by_side(store: ObjectStore) -> None:
    now, most, lock = 0, [0], threading.Lock()

    def wait(request: Request) -> None:
        nonlocal now
        if request.kind != "PUT":
            return
        with lock:
            now += 1
            most.append(now)
        time.sleep(0.2)
        with lock:
            now -= 1

    store.wire.before = wait
    parquet_bloom.add_filters("data/files", in_place=True, columns=["id"], filesystem=store.filesystem)
    assert max(most) >= FILES - 2  # the first file is alone: a wrong name changes none
    store.wire.clear()
    with pytest.raises(UnknownColumnError):
        parquet_bloom.add_filters("data/files", in_place=True, columns=["nobody"], filesystem=store.filesystem)
    assert of_objects(store)["PUT"] == 0


def test_what_is_being_written_ends_before_an_interrupted_call_does(store: ObjectStore) -> None:
    """Otherwise the command's end could cut a multipart upload off, and it would stay in the store."""
    interrupted, ended = threading.Event(), threading.Event()

    def interrupt(request: Request) -> None:
        if request.kind == "PUT" and request.path.endswith("1.parquet"):  # the one that the call waits for
            store.wire.before = None  # once: other requests may follow
            interrupted.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(1)
            ended.set()

    store.wire.before = interrupt
    with pytest.raises(KeyboardInterrupt):
        parquet_bloom.add_filters("data/files", in_place=True, columns=["id"], filesystem=store.filesystem)
    store.wire.before = None
    assert interrupted.is_set()
    assert ended.is_set()


def test_one_failure_leaves_the_other_objects_new(store: ObjectStore) -> None:
    store.put("data/files/3.parquet", b"PAR1 no footer PAR1")
    store.wire.clear()
    report = parquet_bloom.add_filters("data/files", in_place=True, columns=["id"], filesystem=store.filesystem)
    assert [os.path.basename(failed.path) for failed in report.failed] == ["3.parquet"]
    assert len(report.files) == FILES - 1
    assert of_objects(store)["PUT"] == FILES - 1


def test_an_object_that_changes_before_the_put_stays(store: ObjectStore) -> None:
    def change(request: Request) -> None:
        if request.kind == "PUT" and request.path.endswith("files/4.parquet"):
            store.wire.before = None
            store.put("data/files/4.parquet", plain(44))

    store.wire.before = change
    report = parquet_bloom.add_filters("data/files", in_place=True, columns=["id"], filesystem=store.filesystem)
    [failed] = report.failed
    assert isinstance(failed.error, ConflictError)
    assert store.get("data/files/4.parquet") == plain(44)


def test_a_new_object_takes_no_others_place(store: ObjectStore) -> None:
    store.client.delete_object(Bucket="data", Key="new.parquet")

    def come(request: Request) -> None:
        if request.kind == "PUT":
            store.wire.before = None
            store.put("data/new.parquet", b"another")

    store.wire.before = come
    with pytest.raises(ConflictError):
        parquet_bloom.add_filters(
            "data/files/0.parquet", "data/new.parquet", columns=["id"], filesystem=store.filesystem
        )
    assert store.get("data/new.parquet") == b"another"


def test_a_dry_run_looks_side_by_side_and_writes_nothing(store: ObjectStore, heads: int) -> None:
    report = parquet_bloom.add_filters(
        "data/files", in_place=True, columns=["id"], dry_run=True, filesystem=store.filesystem
    )
    assert len(report.files) == FILES
    assert of_objects(store) == Counter({"HEAD": heads * FILES, "GET": FILES})
