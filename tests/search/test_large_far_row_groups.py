"""Large row groups of objects: read ahead of pyarrow through the open object, each request by its version."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import objects, reading_by
from support.recording_store import Answer, Asked, RecordingStore, keyed, recording

import parquet_bloom
from parquet_bloom.errors import DamagedFileError, FileChangedError, RequestError, StorageError
from parquet_bloom.rows import fetched
from parquet_bloom.storage import open_file
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile

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


def on(store: RecordingStore) -> Any:
    return objects(**keyed(store))


QUESTIONS: list[tuple[str, list[str] | None]] = [
    ("id >= 0 OR id < 0", None), ("id < 500", ["id", "pad"]), ("place.x = 3", ["place.y", "id"]), ("id = 7", ["text"]),
    ("pad IS NULL", ["tags", "id"]), ("id >= 0", []), ("text = 'word 7'", ["id"]),
]  # fmt: skip


def test_the_same_rows_as_of_local_files(store: RecordingStore, path: Path) -> None:
    """No HEAD, nothing without a version but the first request, and no byte twice but between ranges."""
    for where, columns in QUESTIONS:
        store.asked.clear()
        found = parquet_bloom.read_table("data/in/1.parquet", where, columns, filesystem=on(store))
        expected = parquet_bloom.read_table(path, where, columns)
        assert found.equals(expected) if columns != [] else found.num_rows == expected.num_rows, where
        asked = store.of_objects()
        assert {one.method for one in asked} == {"GET"}, where
        assert all("if-match" in one.headers for one in asked[1:]), where
        ranges = [one.headers["range"] for one in asked]
        assert len(ranges) == len(set(ranges)), where


def test_several_files_in_order(store: RecordingStore, path: Path) -> None:
    for where in ("id >= 0 OR id < 0", "id IN (5, 20000)", "id = -1"):
        store.asked.clear()
        found = parquet_bloom.read_table("data/in", where, filesystem=on(store))
        assert found.equals(pa.concat_tables([parquet_bloom.read_table(path, where)] * 3)), where
        assert "HEAD" not in store.methods()
        assert sum("if-match" not in one.headers for one in store.of_objects()) == 3, where


def test_so_much_is_in_memory_and_no_more(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    unread: dict[int, list[int]] = {}
    files: list[Any] = []  # so that no id is there twice
    before = fetched.AheadFile._request

    def request(self: Any, number: int) -> None:
        if id(self) not in unread:
            files.append(self)
            unread[id(self)] = list(self._unread)
        before(self, number)
        lengths = {one: self._blocks[one][1] - self._blocks[one][0] for one in self._coming}
        read = {one for one in lengths if self._unread[one] < unread[id(self)][one]}  # in part: of some columns
        held.append(sum(length for one, length in lengths.items() if one not in read))

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


def test_a_scan_that_is_left_reads_no_more(store: RecordingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's threads have come to an end, and find nothing where they read once more."""
    files: list[fetched.AheadFile] = []
    before = fetched.AheadFile.__init__

    def keep(self: fetched.AheadFile, *arguments: Any) -> None:
        before(self, *arguments)
        files.append(self)

    monkeypatch.setattr(fetched.AheadFile, "__init__", keep)
    batches = parquet_bloom.read_batches("data/in", "id >= 0 OR id < 0", filesystem=on(store), batch_rows=100)
    assert next(iter(batches)).num_rows
    del batches
    assert files
    assert len(store.of_objects()) < 60, "what is on its way is given up"
    for file in files:
        file.seek(4)
        assert (file.read(10), file.error, file._coming) == (b"", None, {})


@pytest.fixture
def source(path: Path) -> Iterator[OpenFile]:
    with OpenFile(DataFile(str(path))) as opened:
        yield opened


def test_bytes_of_ranges_that_overlap(source: OpenFile, path: Path) -> None:
    """As a damaged footer has them, read in any order; one chunk inside of another."""
    data = path.read_bytes()
    file = fetched.AheadFile(source, True, [[(0, 200_000), (150_000, 20_000)]])
    assert file.read(200_000) == data[:200_000]
    for seed in range(25):
        rng = random.Random(seed)
        row_groups = []
        for _ in range(rng.randint(1, 4)):
            starts = [rng.randrange(len(data) - 1) for _ in range(rng.randint(1, 4))]
            row_groups.append([(at, min(rng.randint(1, 400_000), len(data) - at)) for at in starts])
        file = fetched.AheadFile(source, True, row_groups)
        ranges = [one for ranges in row_groups for one in ranges]
        for offset, length in rng.sample(ranges, len(ranges)) + rng.sample(ranges, 1):
            at, stop = offset + rng.choice([0, length // 3]), offset + length
            file.seek(at)
            assert file.read(stop - at) == data[at:stop], seed
        assert file.error is None, seed


def test_all_of_a_chunk_is_requested_before_its_first_block_is_there(
    source: OpenFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row groups in any order; those that were passed over are requested ahead, too."""
    file = fetched.AheadFile(source, True, [[(n * 300_000, 300_000)] for n in range(3)])
    coming: list[set[int]] = []
    before = fetched.AheadFile._wait

    def wait(self: fetched.AheadFile, number: int) -> bytes:
        coming.append(set(self._coming))
        return before(self, number)

    monkeypatch.setattr(fetched.AheadFile, "_wait", wait)
    for group in (2, 0, 1):
        file.seek(group * 300_000)
        assert len(file.read(300_000)) == 300_000
    in_order = [number for group in (2, 0, 1) for number in range(len(file._groups)) if file._groups[number] == group]
    assert len(coming) == len(in_order)
    for n, number in enumerate(in_order):
        rest = {one for one in in_order[n:] if file._groups[one] == file._groups[number]}
        assert rest <= coming[n]
    assert any(file._groups[one] == 0 for one in coming[0])


def test_no_error_leaves_a_read(source: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's thread goes on, and the error is there for the thread that wants rows."""
    for error in (RuntimeError("no threads"), KeyError(3), StorageError("x", "is away")):

        def fail(offset: int, length: int, error: Exception = error) -> bytes:
            raise error

        monkeypatch.setattr(source, "read", fail)
        for file in (fetched.FetchedFile(source, True), fetched.AheadFile(source, True, [[(0, 200_000)]])):
            assert file.read(100_000) == b""
            assert file.error is error


def test_the_end_of_a_scan_does_not_wait_for_a_slow_store(source: OpenFile, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, ended = threading.Event(), threading.Event()
    waited = []

    def hold(offset: int, length: int) -> bytes:
        asked.set()
        waited.append(ended.wait(20))
        return bytes(length)

    monkeypatch.setattr(source, "read", hold)
    file = fetched.AheadFile(source, True, [[(0, 200_000)]])
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(file.read(200_000)))
    thread.start()
    assert asked.wait(20)
    file.end()
    thread.join()
    ended.set()
    assert (found, file.error) == ([b""], None)
    assert all(waited)


def test_a_scan_that_was_ended_has_no_last_row(source: OpenFile) -> None:
    """Another thread that still reads gets an error, and not fewer rows."""
    reader = pa.table({"a": [1, 2, 3]}).to_reader(max_chunksize=1)
    scan = fetched._Scan(reader, [fetched.FetchedFile(source, True)])
    assert scan.next() is not None
    scan.end()
    with pytest.raises(RequestError, match="the process ends"):
        scan.next()


# --- a program that ends ------------------------------------------------------------------------------

PROGRAM = """
import io, json, sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from pyarrow import fs
import parquet_bloom

rows, group, names, table, way = json.loads(sys.argv[1])
store, out = fs._MockFileSystem(), io.BytesIO()
ids = np.random.default_rng(0).integers(0, 1 << 62, rows)
pq.write_table(pa.table({"a": np.arange(rows), "b": ids}), out, group, compression=None, use_dictionary=False)
fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "ab"]
log = [
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
    {"metaData": {
        "id": "x", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "configuration": {},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
    }},
]
folder = "table" if table else "files"
store.create_dir("table/_delta_log")
store.create_dir(folder)
for name in names:
    with store.open_output_stream(f"{folder}/{name}") as file:
        file.write(out.getvalue())
    log.append({"add": {
        "path": name, "size": len(out.getvalue()), "partitionValues": {}, "modificationTime": 0, "dataChange": True,
    }})
with store.open_output_stream("table/_delta_log/00000000000000000000.json") as file:
    file.write(chr(10).join(map(json.dumps, log)).encode())
source = "delta:table" if table else [f"files/{name}" for name in names]
batches = iter(parquet_bloom.read_batches(source, filesystem=store))
print(next(batches).num_rows > 0)
if way == "close":
    del batches
"""


@pytest.mark.parametrize("way", ["leave open", "close"])
@pytest.mark.parametrize("is_table", [False, pytest.param(True, marks=pytest.mark.more)])
@pytest.mark.parametrize(("rows", "group", "files"), [(1_600_000, 200_000, 1), (300_000, 50_000, 12)])
def test_a_program_that_takes_one_batch_ends(rows: int, group: int, files: int, is_table: bool, way: str) -> None:
    """Arrow's threads call no Python while the interpreter ends: it would wait for ever, or abort."""
    words = json.dumps([rows, group, [f"{n}.parquet" for n in range(files)], is_table, way])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, words], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
