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


def total(change: int) -> Callable[[Asked, Answer], None]:
    def lie(_: Asked, answer: Answer) -> None:
        head, _, size = answer.headers.get("Content-Range", "bytes 0-0/1").partition("/")
        answer.headers["Content-Range"] = f"{head}/{int(size) + change}"

    return lie


def shifted(_: Asked, answer: Answer) -> None:
    told = answer.headers.get("Content-Range", "bytes 0-0/1").removeprefix("bytes ")
    first, last, size = told.replace("/", "-").split("-")
    answer.headers["Content-Range"] = f"bytes {int(first) + 1}-{int(last) + 1}/{size}"


def shorter(_: Asked, answer: Answer) -> None:
    """Consistent in itself: fewer bytes, and a Content-Length that says so."""
    assert answer.body is not None
    answer.body = answer.body[: len(answer.body) // 2]


def longer(_: Asked, answer: Answer) -> None:
    assert answer.body is not None
    answer.body += b"PAR1" * 10


def endless(_: Asked, answer: Answer) -> None:
    answer.body = bytes(256 << 20)


def broken_off(_: Asked, answer: Answer) -> None:
    assert answer.body is not None
    answer.headers["Content-Length"] = str(len(answer.body))
    answer.body = answer.body[: len(answer.body) // 2]


def without_range(_: Asked, answer: Answer) -> None:
    answer.headers.pop("Content-Range", None)


def garbled_range(_: Asked, answer: Answer) -> None:
    answer.headers["Content-Range"] = "bytes x-y/zzz"


def other_etag(_: Asked, answer: Answer) -> None:
    answer.headers["ETag"] = '"0123456789abcdef0123456789abcdef"'


def no_etag(_: Asked, answer: Answer) -> None:
    answer.headers.pop("ETag", None)


def other_time(_: Asked, answer: Answer) -> None:
    answer.headers["Last-Modified"] = "Mon, 10 Sep 2001 01:46:40 GMT"


def whole(_: Asked, answer: Answer) -> None:
    answer.status = 200


def nothing(_: Asked, answer: Answer) -> None:
    answer.status, answer.body = 206, b""


def an_error_as_success(_: Asked, answer: Answer) -> None:
    answer.status, answer.body = 200, b"<Error><Code>InternalError</Code></Error>"


def gone(_: Asked, answer: Answer) -> None:
    answer.status, answer.body = 404, b"<Error><Code>NoSuchKey</Code></Error>"


def changed(_: Asked, answer: Answer) -> None:
    answer.status, answer.body = 412, b"<Error><Code>PreconditionFailed</Code></Error>"


def not_xml(_: Asked, answer: Answer) -> None:
    answer.status, answer.body = 403, b"\xff\xfe<Code>" + b"A" * 10_000


LIES: dict[str, Callable[[Asked, Answer], None]] = {
    "a size that is larger": total(1000), "a size that is smaller": total(-1000), "a size of exabytes": total(1 << 62),
    "another place": shifted, "fewer bytes": shorter, "more bytes": longer,
    "a quarter of a gigabyte": endless, "broken off": broken_off,
    "no Content-Range": without_range, "a garbled Content-Range": garbled_range, "another ETag": other_etag,
    "no ETag": no_etag, "another time": other_time, "a whole object": whole, "no bytes": nothing,
    "an error as success": an_error_as_success, "gone": gone, "changed": changed, "no XML": not_xml,
}  # fmt: skip


@pytest.mark.parametrize(
    ("when", "kind"), [("always", "small"), ("first", "large"), ("later", "large"), ("always", "large")]
)  # a small one is read once
@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_an_error_or_changes_nothing(store: RecordingStore, name: str, when: str, kind: str) -> None:
    """Of one object among six; rows and verdicts that come are those of the files."""
    lie, key = LIES[name], f"data/{kind}/1.parquet"

    def wrong(asked: Asked, answer: Answer) -> None:
        if asked.key == key and (when == "always" or is_range(asked) == (when == "later")):
            lie(asked, answer)

    store.wrong = wrong
    wanted = FILES + 1  # an id of object 1
    filesystem = on(store)
    said: list[str] = []
    try:
        verdicts = parquet_bloom.check(f"data/{kind}", f"id = {wanted}", filesystem=filesystem)
        assert {failed.path for failed in verdicts.failed} <= {key}
        of_it = [v for v in verdicts if v.path == key]
        assert verdicts.failed or any(not v.skipped for v in of_it), "a lost row"
        assert [v.skipped for v in verdicts if v.path != key] == [True] * 8 * (FILES - 1)
    except ParquetBloomError as error:
        said.append(str(error))
    try:
        rows = parquet_bloom.read_table(f"data/{kind}", f"id = {wanted}", ["id"], filesystem=filesystem)
        assert rows["id"].to_pylist() == [wanted]
    except ParquetBloomError as error:
        said.append(str(error))
    assert kind == "large" or not any(map(is_range, store.of_objects())), "what the first answer had is not read again"
    for text in said:
        assert key in text
        assert "\n" not in text
        assert "given-secret" not in text


@pytest.mark.parametrize("kind", ["small", "large"])
@pytest.mark.parametrize("lie", [shorter, longer, nothing, endless])
def test_bytes_that_were_not_asked_for_are_the_stores_error(store: RecordingStore, lie: Any, kind: str) -> None:
    """Right when the object is opened or read, whatever they are; pyarrow, which would not notice, is not asked."""
    with OpenFile(f"data/{kind}/0.parquet", on(store)) as source:
        pass
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


def test_a_port_where_nobody_listens(store: RecordingStore) -> None:
    filesystem = on(store, endpoint_override="127.0.0.1:9")
    with pytest.raises(StorageError, match=r"data/x\.parquet: ") as caught:
        parquet_bloom.count("data/x.parquet", filesystem=filesystem)
    assert "given-secret" not in str(caught.value)


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


@pytest.mark.parametrize("seed", range(2))
def test_the_same_answers_as_through_pyarrow(store: RecordingStore, seed: int) -> None:
    rng = np.random.default_rng(seed)
    filesystem = on(store)
    for _ in range(6):
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
