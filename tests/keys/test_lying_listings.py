"""A store that lies in the listing by which a key index recognises objects: no lost row, no error, bounded work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import objects, reading_by
from support.recording_store import NOTHING, Answer, Asked, RecordingStore, etag, keyed, recording

import parquet_bloom
from keys.key_indexes import kept_of

FILES, ROWS = 6, 200
IDS = np.random.default_rng(5).permutation(1 << 20)[: FILES * ROWS].reshape(FILES, ROWS)
NAMES = [f"lake/data/{number}.parquet" for number in range(FILES)]
ENTRY = (
    b"<Contents><Key>%s</Key><LastModified>2001-09-09T01:46:40.000Z</LastModified><ETag>%s</ETag><Size>%s</Size>"
    b"</Contents>"
)
SIZES = b"-1", b"", b"x", b"9" * 30, b"0"
OTHER = ENTRY % (b"data/3.parquet", b'"other"', b"9")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecordingStore]:
    """Six objects of two row groups, and an index of them."""
    with recording() as running, reading_by("obstore"):
        for name, ids in zip(NAMES, IDS, strict=True):
            pq.write_table(pa.table({"id": ids}), tmp_path / "one.parquet", row_group_size=ROWS // 2)
            running.objects[name] = (tmp_path / "one.parquet").read_bytes()
        parquet_bloom.build_index(NAMES, "id", tmp_path / "index", filesystem=on(running))
        yield running


def on(store: RecordingStore) -> Any:
    return objects(**keyed(store, connect_timeout=2, request_timeout=2))


def body(made: Callable[[bytes], bytes | None]) -> Callable[[Asked, Answer], None]:
    """A lie that turns one body into another."""

    def lie(_: Asked, answer: Answer) -> None:
        assert answer.body is not None
        answer.body = made(answer.body)

    return lie


def status(code: int) -> Callable[[Asked, Answer], None]:
    def lie(_: Asked, answer: Answer) -> None:
        answer.status, answer.body = code, b"<Error><Code>No</Code><Message>no listing</Message></Error>"

    return lie


def endless(asked: Asked, answer: Answer) -> None:
    """Each page says that there is another one, and has the same objects. obstore would list a level for ever."""
    if "delimiter=" in asked.target:
        return
    assert answer.body is not None
    more = b"<IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken></ListBucketResult>"
    answer.body = answer.body.replace(b"</ListBucketResult>", more)


def of(*entries: tuple[bytes, bytes, bytes]) -> Callable[[bytes], bytes]:
    listed = b"".join(ENTRY % entry for entry in entries)
    return lambda _: NOTHING.replace(b"<KeyCount>0</KeyCount>", b"<KeyCount>%d</KeyCount>%s" % (len(entries), listed))


LIES: dict[str, Callable[[Asked, Answer], None]] = {
    "404": status(404),
    "403": status(403),
    "412": status(412),
    "416": status(416),
    "500": status(500),
    "connection": body(lambda _: None),
    "nothing": body(lambda _: b""),
    "no XML": body(lambda _: b"\x00\xff" * 400),
    "cut off": body(lambda whole: whole[: len(whole) // 2]),
    "no objects": body(lambda _: NOTHING),
    "endless": endless,
    "other keys": body(of(*((key, b'"e"', b"9") for key in (b"", b"/", b"..", b"data/../x", b"/etc/passwd", b"\xff")))),
    "sizes": body(of(*((b"data/%d.parquet" % n, b'"e"', size) for n, size in enumerate(SIZES)))),
    "no versions": body(lambda whole: whole.replace(b"<ETag>", b"<ETug>").replace(b"</ETag>", b"</ETug>")),
    "weak versions": body(lambda whole: whole.replace(b"<ETag>", b"<ETag>W/")),
    "times": body(lambda whole: whole.replace(b"2001-09-09T01:46:40.000Z", b"9999999-99-99")),
    "twice": body(lambda whole: whole.replace(b"<Contents>", OTHER + b"<Contents>", 1)),
}  # fmt: skip


def test_a_true_listing_saves_requests(store: RecordingStore, tmp_path: Path) -> None:
    """Else the lies below would meet nobody."""
    store.asked.clear()
    parquet_bloom.check(NAMES, f"id = {IDS[3, -1]}", filesystem=on(store), index=tmp_path / "index")
    assert {one.key for one in store.of_objects() if one.method == "GET"} == {NAMES[0], NAMES[3]}


QUICK = ("404", "no XML", "endless", "sizes", "weak versions", "twice")


@pytest.mark.parametrize(
    "lies", [QUICK, pytest.param([one for one in LIES if one not in QUICK], marks=pytest.mark.more)]
)
def test_a_lie_in_a_listing_loses_no_row(store: RecordingStore, lies: Sequence[str], tmp_path: Path) -> None:
    for lie in lies:
        store.lists = LIES[lie]
        store.asked.clear()
        for number in (0, 3, 5):
            key = int(IDS[number, ROWS - 1])
            found = parquet_bloom.check(NAMES, f"id = {key}", filesystem=on(store), index=tmp_path / "index")
            assert kept_of(found) == [(f"{number}.parquet", 1)], lie
        assert {one.key for one in store.asked} <= {*NAMES, "lake", "lake/"}, f"{lie}: a request for a key of it"
        assert len(store.asked) < 200, lie


def test_an_object_that_the_listing_shows_twice_is_opened(store: RecordingStore, tmp_path: Path) -> None:
    """One of the two versions is not the one that is there."""
    new = IDS[3].copy()
    new[-1] = 1 << 21
    old = store.objects[NAMES[3]]
    pq.write_table(pa.table({"id": new}), tmp_path / "one.parquet", row_group_size=ROWS // 2)
    store.objects[NAMES[3]] = (tmp_path / "one.parquet").read_bytes()

    def twice(_: Asked, answer: Answer) -> None:
        entry = ENTRY % (b"data/3.parquet", etag(old).encode(), b"%d" % len(old))
        assert answer.body is not None
        answer.body = answer.body.replace(b"</ListBucketResult>", entry + b"</ListBucketResult>")

    store.lists = twice
    found = parquet_bloom.check(NAMES, f"id = {1 << 21}", filesystem=on(store), index=tmp_path / "index")
    assert kept_of(found) == [("3.parquet", 1)]
