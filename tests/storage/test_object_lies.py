"""Stores that lie, break off or do not answer: the right answer or an error of ours, and never a wrong skip."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import objects, reading_by
from support.recording_store import Answer, Asked, RecordingStore, keyed, recording

import parquet_bloom
from parquet_bloom.errors import FileChangedError, ParquetBloomError, StorageError
from parquet_bloom.storage.open_file import OpenFile

FILES, ROWS = 6, 8000  # enough to be decided together


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """small: all of it lies in the last 64 KiB; large: rows and some filters before them."""
    folder, made = tmp_path_factory.mktemp("files"), {}
    rng = np.random.default_rng(8)
    for name, n in (("small", 400), ("large", ROWS)):
        for number in range(FILES):
            ids = np.arange(n) * FILES + number
            table = pa.table({"id": rng.permutation(ids), "pad": [rng.bytes(30) for _ in range(n)]})
            path = folder / f"{name}-{number}.parquet"
            pq.write_table(table, path, row_group_size=n // 8, use_dictionary=False, compression="none")
            parquet_bloom.add_filters(path, in_place=True, columns=["id", "pad"], sync=False)
            made[f"data/{name}/{number}.parquet"] = path.read_bytes()
    assert len(made["data/small/0.parquet"]) < 64 << 10 < len(made["data/large/0.parquet"]) // 4
    return made


@pytest.fixture
def store(files: dict[str, bytes]) -> Iterator[RecordingStore]:
    with recording() as running, reading_by("obstore"):
        running.objects.update(files)
        yield running


def on(store: RecordingStore, **more: Any) -> Any:
    return objects(**keyed(store, **{"connect_timeout": 1, "request_timeout": 1} | more))


def is_range(asked: Asked) -> bool:
    """A later read, by If-Match."""
    return "if-match" in asked.headers


# --- lies -----------------------------------------------------------------------------------------


Lie = Callable[[Asked, Answer], object]


def bytes_of(change: Callable[[bytes], bytes], length: bool = True) -> Lie:
    """Other bytes, with the Content-Length of these, or of the right ones."""

    def lie(_: Asked, answer: Answer) -> None:
        assert answer.body is not None
        if not length:
            answer.headers["Content-Length"] = str(len(answer.body))
        answer.body = change(answer.body)

    return lie


def place(move: int = 0, total: int = 0) -> Lie:
    """Another Content-Range: `move` bytes farther, of an object that is larger by `total`."""

    def lie(_: Asked, answer: Answer) -> None:
        told = answer.headers.get("Content-Range", "bytes 0-0/1").removeprefix("bytes ")
        first, last, size = map(int, told.replace("/", "-").split("-"))
        answer.headers["Content-Range"] = f"bytes {first + move}-{last + move}/{size + total}"

    return lie


def told(name: str, value: str | None) -> Lie:
    """A header with another value, or none."""
    if value is None:
        return lambda _, answer: answer.headers.pop(name, None)
    return lambda _, answer: answer.headers.update({name: value})


def replied(status: int, body: bytes | None = None) -> Lie:
    """Another status, and another body if there is one."""

    def lie(_: Asked, answer: Answer) -> None:
        answer.status, answer.body = status, answer.body if body is None else body

    return lie


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


shorter, longer = bytes_of(half), bytes_of(lambda data: data + b"PAR1" * 10)
endless, nothing = bytes_of(lambda _: bytes(256 << 20)), replied(206, b"")
broken_off = bytes_of(half, length=False)
LIES: dict[str, Lie] = {
    "a size that is larger": place(total=1000), "a size that is smaller": place(total=-1000),
    "a size of exabytes": place(total=1 << 62), "another place": place(1), "a quarter of a gigabyte": endless,
    "fewer bytes": shorter, "more bytes": longer, "broken off": broken_off,
    "no Content-Range": told("Content-Range", None), "a garbled Content-Range": told("Content-Range", "bytes x-y/zzz"),
    "another ETag": told("ETag", '"0123456789abcdef0123456789abcdef"'), "no ETag": told("ETag", None),
    "another time": told("Last-Modified", "Mon, 10 Sep 2001 01:46:40 GMT"), "a whole object": replied(200),
    "no bytes": nothing, "an error as success": replied(200, b"<Error><Code>InternalError</Code></Error>"),
    "gone": replied(404, b"<Error><Code>NoSuchKey</Code></Error>"),
    "changed": replied(412, b"<Error><Code>PreconditionFailed</Code></Error>"),
    "no XML": replied(403, b"\xff\xfe<Code>" + b"A" * 10_000),
}  # fmt: skip


@pytest.mark.parametrize(
    ("when", "kind"), [("always", "small"), ("first", "large"), ("later", "large"), ("always", "large")]
)  # a small one is read once
def test_a_lie_is_an_error_or_changes_nothing(store: RecordingStore, when: str, kind: str) -> None:
    """Of one object among six; rows and verdicts that come are those of the files."""
    key, wanted = f"data/{kind}/1.parquet", FILES + 1  # an id of object 1
    for name, lie in LIES.items():

        def wrong(asked: Asked, answer: Answer, lie: Lie = lie) -> None:
            if asked.key == key and (when == "always" or is_range(asked) == (when == "later")):
                lie(asked, answer)

        store.wrong, filesystem = wrong, on(store)
        store.asked.clear()
        said: list[str] = []
        with reading_by("obstore"):  # each lie is the first that is heard of the store
            try:
                verdicts = parquet_bloom.check(f"data/{kind}", f"id = {wanted}", filesystem=filesystem)
                assert {failed.path for failed in verdicts.failed} <= {key}, name
                assert verdicts.failed or any(not v.skipped for v in verdicts if v.path == key), f"{name}: a lost row"
                assert [v.skipped for v in verdicts if v.path != key] == [True] * 8 * (FILES - 1), name
            except ParquetBloomError as error:
                said.append(str(error))
            try:
                rows = parquet_bloom.read_table(f"data/{kind}", f"id = {wanted}", ["id"], filesystem=filesystem)
                assert rows["id"].to_pylist() == [wanted], name
            except ParquetBloomError as error:
                said.append(str(error))
        again = kind == "small" and any(map(is_range, store.of_objects()))
        assert not again, f"{name}: what the first answer had is not read again"
        for text in said:
            assert key in text, name
            assert "\n" not in text, name
            assert "given-secret" not in text, name


@pytest.mark.parametrize("kind", ["small", "large"])
def test_bytes_that_were_not_asked_for_are_the_stores_error(store: RecordingStore, kind: str) -> None:
    """Right when the object is opened or read, whatever they are; pyarrow, which would not notice, is not asked."""
    for lie in (shorter, longer, nothing, endless):
        store.wrong = None
        with reading_by("obstore"), OpenFile(f"data/{kind}/0.parquet", on(store)) as source:
            store.wrong = lie
            with pytest.raises(StorageError, match="other bytes than it was asked for"):
                OpenFile(f"data/{kind}/1.parquet", source.location.filesystem).read(0, 100)


def test_other_bytes_under_the_old_name_are_never_mixed(store: RecordingStore, files: dict[str, bytes]) -> None:
    """A store that does not know If-Match: the ETag of its answer tells."""
    key = "data/large/1.parquet"
    later = files["data/large/2.parquet"]

    def replaced(asked: Asked, answer: Answer) -> None:
        if asked.key == key and is_range(asked):
            first, _, last = asked.headers["range"].removeprefix("bytes=").partition("-")
            answer.status, answer.body = 206, later[int(first) : int(last) + 1]
            answer.headers.update({"ETag": '"other"', "Content-Range": f"bytes {first}-{last}/{len(later)}"})

    store.wrong = replaced
    with pytest.raises(FileChangedError, match=r"large/1\.parquet"):
        parquet_bloom.read_table("data/large", "id >= 0", ["id"], filesystem=on(store))


def test_an_object_that_is_replaced_between_two_reads(store: RecordingStore, files: dict[str, bytes]) -> None:
    with OpenFile("data/large/1.parquet", on(store)) as source:
        assert source.read(0, 100) == files["data/large/1.parquet"][:100]
        store.objects["data/large/1.parquet"] = files["data/large/2.parquet"]
        with pytest.raises(FileChangedError):
            source.read(0, 100)
        end = source.read(source.size - 100, 100)
        assert end == files["data/large/1.parquet"][-100:], "the end is of the version that was opened"
        del store.objects["data/large/1.parquet"]
        with pytest.raises(StorageError, match="no such file"):
            source.read(0, 100)


def test_a_source_sees_a_change_between_two_questions(store: RecordingStore, files: dict[str, bytes]) -> None:
    source = parquet_bloom.Source("data/large", filesystem=on(store))
    assert source.count(f"id = {FILES + 1}") == 1
    store.objects["data/large/1.parquet"] = files["data/large/2.parquet"]
    with pytest.raises(FileChangedError, match=r"large/1\.parquet"):
        source.count(f"id = {FILES + 1}")
    source.refresh()
    assert source.count(f"id = {FILES + 1}") == 0


# --- failures -------------------------------------------------------------------------------------


def test_what_fails_twice_is_asked_again(store: RecordingStore) -> None:
    """After a moment that grows: 503, a connection that ends, half a body."""
    for how in ("busy", "ended", "broken off"):
        seen: list[float] = []

        def fail(asked: Asked, answer: Answer, how: str = how, seen: list[float] = seen) -> None:
            seen.append(time.monotonic())
            if len(seen) > 2:
                return
            if how == "busy":
                answer.status, answer.body = 503, b"<Error><Code>SlowDown</Code></Error>"
            elif how == "ended":
                answer.body = None
            else:
                broken_off(asked, answer)

        store.wrong = fail
        assert parquet_bloom.inspect("data/small/0.parquet", filesystem=on(store)).files[0].rows == 400
        assert len(seen) == 3, how
        assert how == "broken off" or seen[1] - seen[0] >= 0.05
    assert {asked.method for asked in store.of_objects()} == {"GET"}


def test_a_store_that_stays_busy_is_told_so_once(store: RecordingStore) -> None:
    filesystem = on(store)
    assert parquet_bloom.count("data/small", filesystem=filesystem) == FILES * 400

    def busy(_: Asked, answer: Answer) -> None:
        answer.status = 503
        answer.body = b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message><Token>hidden</Token></Error>"

    store.wrong = busy
    store.asked.clear()
    with pytest.raises(StorageError) as caught:
        parquet_bloom.count("data/small/1.parquet", filesystem=filesystem)
    assert str(caught.value) == "data/small/1.parquet: 503 Service Unavailable: SlowDown: Reduce your rate"
    assert store.methods() == ["GET"] * 4, "a try and three more, and no others by pyarrow"


def test_a_denial_is_pyarrows_error(store: RecordingStore) -> None:
    def deny(_: Asked, answer: Answer) -> None:
        answer.status = 403
        answer.body = b"<Error><Code>AccessDenied</Code><AWSAccessKeyId>given-key</AWSAccessKeyId></Error>"

    store.wrong = deny
    with pytest.raises(StorageError, match=r"ACCESS_DENIED|AccessDenied") as caught:
        parquet_bloom.count("data/small/1.parquet", filesystem=on(store))
    assert "given-key" not in str(caught.value)


def test_a_store_that_does_not_answer(store: RecordingStore) -> None:
    filesystem = on(store)
    assert parquet_bloom.count("data/small", filesystem=filesystem) == FILES * 400
    store.wrong = lambda *_: time.sleep(1.2)
    started = time.monotonic()
    with pytest.raises(StorageError, match=r"small/1\.parquet: "):
        parquet_bloom.count("data/small/1.parquet", filesystem=filesystem)
    assert time.monotonic() - started < 20


COMMAND = """
import sys
from parquet_bloom.cli import main
sys.argv = ["parquet-bloom", "check", sys.argv[1], "id = 5"]
main()
"""


@pytest.mark.parametrize("source", ["data/large/1.parquet", "data/large"])
def test_control_c_ends_a_command_that_waits(store: RecordingStore, source: str) -> None:
    store.wrong = lambda *_: time.sleep(20)
    uri = f"s3://k:s@{source}?scheme=http&region=us-east-1&endpoint_override={store.endpoint}"
    running = subprocess.Popen([sys.executable, "-c", COMMAND, uri], stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not store.of_objects() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.2)
        started = time.monotonic()
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
        assert time.monotonic() - started < 5
        assert running.returncode == 130
        assert said.startswith("parquet-bloom: interrupted")
    finally:
        running.kill()


# --- against pyarrow ------------------------------------------------------------------------------


def test_the_same_answers_as_through_pyarrow(store: RecordingStore) -> None:
    rng = np.random.default_rng(0)
    filesystem = on(store)
    for _ in range(8):
        kind = str(rng.choice(["small", "large"]))
        low, high = sorted(rng.integers(0, ROWS * FILES, 2).tolist())
        where = str(rng.choice([f"id = {low}", f"id BETWEEN {low} AND {high}", f"id IN ({low}, {high})", "id < 0"]))
        answers = []
        for reader in ("obstore", "pyarrow"):
            with reading_by(reader):
                verdicts = parquet_bloom.check(f"data/{kind}", where, filesystem=filesystem)
                found = parquet_bloom.read_table(f"data/{kind}", where, filesystem=filesystem)
                out = io.BytesIO()
                pq.write_table(found, out)
                answers.append(([tuple(v[1:4]) for v in verdicts], out.getvalue()))
        assert answers[0] == answers[1], where
