"""Large row groups of objects: read ahead of pyarrow through the open object, each request by its version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import reading_by
from pyarrow import fs
from recording_store import Answer, Asked, RecordingStore, keyed, recording

import parquet_bloom
from parquet_bloom.errors import DamagedFileError, FileChangedError, StorageError
from parquet_bloom.search import fetched
from parquet_bloom.storage import open_file

ROWS = 30_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3.3 MB in three row groups, with a struct, a list, NULLs and a column that is compressed."""
    found = tmp_path_factory.mktemp("files") / "x.parquet"
    rng = np.random.default_rng(5)
    ids = rng.permutation(ROWS)
    place = pa.StructArray.from_arrays([pa.array(ids % 7), pa.array([f"p{n % 900}" for n in ids])], ["x", "y"])
    table = pa.table({
        "id": ids, "pad": [None if n % 11 == 0 else rng.bytes(60) for n in range(ROWS)], "place": place,
        "tags": [[int(n), 2] for n in ids], "text": [f"word {n % 50}" for n in ids],
    })  # fmt: skip
    pq.write_table(table, found, row_group_size=ROWS // 3, compression={"text": "zstd", "id": "none", "pad": "none"})
    parquet_bloom.add_filters(found, in_place=True, columns=["id"], sync=False)
    return found


@pytest.fixture(autouse=True)
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a file a hundred times as large."""
    monkeypatch.setattr(fetched, "_MOST_BYTES", 80_000)
    monkeypatch.setattr(fetched, "_MOST_AHEAD", 400_000)
    for module in (fetched, open_file):
        monkeypatch.setattr(module, "REMOTE_MOST", 80_000)
        monkeypatch.setattr(module, "REMOTE_GAP", 1_000)


@pytest.fixture
def store(path: Path) -> Iterator[RecordingStore]:
    with recording() as running, reading_by("obstore"):
        running.objects = {f"data/in/{n}.parquet": path.read_bytes() for n in range(3)}
        yield running


def on(store: RecordingStore) -> fs.S3FileSystem:
    return fs.S3FileSystem(**keyed(store))


QUESTIONS: list[tuple[str, list[str] | None]] = [
    ("id >= 0 OR id < 0", None), ("id < 500", ["id", "pad"]), ("place.x = 3", ["place.y", "id"]), ("id = 7", ["text"]),
    ("pad IS NULL", ["tags", "id"]), ("id >= 0", []), ("text = 'word 7'", ["id"]),
]  # fmt: skip


@pytest.mark.parametrize(("where", "columns"), QUESTIONS)
def test_the_same_rows_as_of_local_files(
    store: RecordingStore, path: Path, where: str, columns: list[str] | None
) -> None:
    """No HEAD, nothing without a version but the first request, and no byte twice but between ranges."""
    found = parquet_bloom.read_table("data/in/1.parquet", where, columns, filesystem=on(store))
    expected = parquet_bloom.read_table(path, where, columns)
    assert found.equals(expected) if columns != [] else found.num_rows == expected.num_rows
    asked = store.of_objects()
    assert {one.method for one in asked} == {"GET"}
    assert all("if-match" in one.headers for one in asked[1:])
    ranges = [one.headers["range"] for one in asked]
    assert len(ranges) == len(set(ranges))


@pytest.mark.parametrize("where", ["id >= 0 OR id < 0", "id IN (5, 20000)", "id = -1"])
def test_several_files_in_order(store: RecordingStore, path: Path, where: str) -> None:
    found = parquet_bloom.read_table("data/in", where, filesystem=on(store))
    expected = parquet_bloom.read_table(path, where)
    assert found.equals(pa.concat_tables([expected] * 3))
    assert "HEAD" not in store.methods()
    assert sum("if-match" not in one.headers for one in store.of_objects()) == 3


def test_so_much_is_in_memory_and_no_more(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    before = fetched.AheadFile._request

    def request(self: Any, number: int) -> None:
        before(self, number)
        held.append(sum(self._blocks[one][1] - self._blocks[one][0] for one in self._coming))

    monkeypatch.setattr(fetched.AheadFile, "_request", request)
    parquet_bloom.count("data/in/0.parquet", "place.x = 3 AND pad IS NULL", filesystem=on(store))
    parquet_bloom.read_table("data/in/0.parquet", "id >= 0", filesystem=on(store))
    assert max(held) <= 400_000 + 80_000, "and the one that is wanted now"
    assert max(held) > 200_000, "it is ahead"


def test_an_object_that_is_replaced_while_it_is_read(store: RecordingStore) -> None:
    """Neither old nor mixed rows."""
    other = bytes(reversed(store.objects["data/in/0.parquet"]))

    def replace(asked: Asked, _: Answer) -> None:
        if sum("if-match" in one.headers for one in store.of_objects()) > 7:
            store.objects[asked.key] = other

    store.wrong = replace
    with pytest.raises(FileChangedError, match=r"in/0\.parquet"):
        parquet_bloom.read_table("data/in/0.parquet", "id >= 0 OR id < 0", filesystem=on(store))


def test_a_store_that_fails_is_the_error(store: RecordingStore) -> None:
    def deny(asked: Asked, answer: Answer) -> None:
        if sum("if-match" in one.headers for one in store.of_objects()) > 6:
            answer.status, answer.body = 403, b"<Error><Code>AccessDenied</Code></Error>"

    store.wrong = deny
    with pytest.raises(StorageError, match=r"in/0\.parquet: 403 Forbidden: AccessDenied"):
        parquet_bloom.read_table("data/in/0.parquet", "id >= 0 OR id < 0", filesystem=on(store))


def test_damage_is_pyarrows_error(store: RecordingStore, path: Path) -> None:
    data = bytearray(path.read_bytes())
    chunk = pq.read_metadata(path).row_group(1).column(1)
    data[chunk.data_page_offset : chunk.data_page_offset + 30] = bytes(30)
    store.objects["data/in/0.parquet"] = bytes(data)
    with pytest.raises(DamagedFileError, match=r"in/0\.parquet"):
        parquet_bloom.read_table("data/in/0.parquet", "id >= 0 OR id < 0", ["pad"], filesystem=on(store))


def test_through_pyarrow_too(store: RecordingStore, path: Path) -> None:
    """One description of the object, by which it is opened; one at the end, as reads name no version."""
    with reading_by("pyarrow"):
        found = parquet_bloom.read_table("data/in/1.parquet", "id >= 0 OR id < 0", filesystem=on(store))
    assert found.equals(parquet_bloom.read_table(path, "id >= 0 OR id < 0"))
    assert store.methods().count("HEAD") <= 2


def test_rows_that_somebody_stops_reading(store: RecordingStore) -> None:
    """What is on its way is given up."""
    batches = parquet_bloom.read_batches("data/in", "id >= 0 OR id < 0", filesystem=on(store), batch_rows=100)
    assert next(iter(batches)).num_rows
    del batches
    assert len(store.of_objects()) < 60
