"""A key index of objects: what is opened, by the requests that came to the store, and what changed since."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import READERS, SECRET, ObjectStore, Request, reading_by

import parquet_bloom
from keys.key_indexes import kept_of
from parquet_bloom.errors import DamagedFileError, StaleIndexError, StorageError, UnknownColumnError
from parquet_bloom.keys import index as key_index
from parquet_bloom.keys.locate import facts_of
from parquet_bloom.options import limits

ROWS, FILES = 400, 8
IDS = np.random.default_rng(3).permutation(1 << 20)[: ROWS * FILES].reshape(FILES, ROWS)


def put(store: ObjectStore, folder: Path, number: int, ids: np.ndarray) -> None:
    path = folder / f"{number}.parquet"
    pq.write_table(pa.table({"id": ids}), path, row_group_size=ROWS // 4)
    store.put(f"lake/data/{number}.parquet", path.read_bytes())


@pytest.fixture(autouse=True)
def objects(store: ObjectStore, tmp_path: Path) -> Iterator[None]:
    """Objects of four row groups, each with ids of its own."""
    store.client.create_bucket(Bucket="lake")
    for number in range(FILES):
        put(store, tmp_path, number, IDS[number])
    yield
    store.drop("lake")


@pytest.mark.parametrize("reader", READERS)
def test_objects_that_cannot_match_are_not_opened(store: ObjectStore, reader: str, tmp_path: Path) -> None:
    key = int(IDS[5, 33])
    with reading_by(reader):
        uri = store.uri("lake/data")
        parquet_bloom.build_index(uri, "id", tmp_path / "index")
        store.wire.clear()
        found = parquet_bloom.check(uri, f"id = {key}", index=tmp_path / "index")
        opened = {r.path for r in store.wire.requests if r.path.endswith(".parquet")}
        lists = Counter(store.wire.kinds)["LIST"]
        table = parquet_bloom.read_table(uri, f"id = {key}", index=tmp_path / "index")
    assert kept_of(found) == [("5.parquet", 0)]
    assert table["id"].to_pylist() == [key]
    if reader == "obstore":  # the first object, whose columns the names mean, and the one that holds the key
        assert sorted(Path(path).name for path in opened) == ["0.parquet", "5.parquet"]
        assert lists <= 7, "one of them for the versions"
    else:
        assert len(opened) == FILES, "pyarrow's listing has no ETags"
    assert not found.notes
    written = "".join(path.read_text(errors="replace") for path in (tmp_path / "index").rglob("*.*"))
    assert SECRET not in written, "the URI's secret is not kept"
    assert "s3://" in written


def test_an_object_that_changed_is_read(store: ObjectStore, tmp_path: Path) -> None:
    uri = store.uri("lake/data")
    with reading_by("obstore"):
        parquet_bloom.build_index(uri, "id", tmp_path / "index")
        ids = IDS[2].copy()
        ids[7] = 1 << 21
        put(store, tmp_path, 2, ids)  # of equal size
        found = parquet_bloom.check(uri, f"id = {1 << 21}", index=tmp_path / "index")
        assert [v.row_group for v in found if not v.skipped] == [0]
        assert "1 of 8 files are not covered, or changed since" in found.notes[0]
        assert parquet_bloom.count(uri, f"id = {IDS[2, 7]}", index=tmp_path / "index") == 0

        report = parquet_bloom.update_index(tmp_path / "index", uri)
        assert (report.kept, report.added, report.gone) == (7, 1, 1)
        found = parquet_bloom.check(uri, f"id = {1 << 21}", index=tmp_path / "index")
        assert (sum(not v.skipped for v in found), found.notes) == (1, [])


def test_many_keys_are_located_without_opening_objects(store: ObjectStore, tmp_path: Path) -> None:
    uri = store.uri("lake/data")
    keys = [*IDS[:, 50].tolist(), 1 << 22]
    with reading_by("obstore"):
        parquet_bloom.build_index(uri, "id", tmp_path / "index")
        store.wire.clear()
        found = parquet_bloom.locate(uri, "id", keys, tmp_path / "index")
        opened = {r.path for r in store.wire.requests if r.path.endswith(".parquet")}
        verified = parquet_bloom.locate(uri, "id", keys, tmp_path / "index", verify=True)
    assert (facts_of(found)["covered"], facts_of(found)["searched"]) == (FILES, 0)
    assert len(opened) == 1, "for the type of the column"
    assert sorted(verified["key"].to_pylist()) == sorted(keys[:-1])


def test_an_index_of_another_bucket_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    with reading_by("obstore"):
        parquet_bloom.build_index(store.uri("lake/data"), "id", tmp_path / "index")
        store.client.create_bucket(Bucket="other")
        try:
            for number in range(2):
                data = store.get(f"lake/data/{number}.parquet")
                store.put(f"other/data/{number}.parquet", data)
            with pytest.raises(StaleIndexError, match="of none of these files"):
                parquet_bloom.check(store.uri("other/data"), "id = 5", index=tmp_path / "index")
        finally:
            store.drop("other")


@pytest.fixture
def index(store: ObjectStore, tmp_path: Path) -> str:
    """The URI of an index of the objects, which lies beside them."""
    with reading_by("obstore"):
        parquet_bloom.build_index(store.uri("lake/data"), "id", store.uri("lake/index"))
    return store.uri("lake/index")


def requests_of_index(store: ObjectStore) -> list[str]:
    """The names of the files of the index that were requested, sorted."""
    return sorted(Path(r.path).name for r in store.wire.requests if "/index/" in r.path)


@pytest.mark.parametrize("listing", [True, False])
def test_each_file_of_an_index_is_one_request(listing: bool, store: ObjectStore, index: str) -> None:
    """The first time: sizes stand in the manifest, so no request only says one. Then the manifest, and what is new."""
    uri = store.uri("lake/data")
    with reading_by("obstore"):
        parquet_bloom.count(uri, "id = 1")  # obstore and pyarrow are known to read alike
        store.wire.clear()
        cold = parquet_bloom.check(uri, f"id = {IDS[3, 7]}", index=index, listing=listing)
        names = requests_of_index(store)
        assert names[1:] == ["files.parquet", "manifest.json"]
        assert names[0].endswith("-00000.parquet")
        assert cold.index_cost.requests == 3
        sizes = [len(store.get(f"lake/{name}")) for name in store.names("lake") if name.startswith("index/")]
        assert cold.index_cost.bytes_read <= sum(sizes)
        store.wire.clear()
        warm = parquet_bloom.check(uri, f"id = {IDS[6, 70]}", index=index, listing=listing)
        assert requests_of_index(store) == ["manifest.json"]
    assert (kept_of(cold), kept_of(warm)) == ([("3.parquet", 0)], [("6.parquet", 0)])


@pytest.mark.parametrize("listing", [True, False])
def test_requests_that_need_no_other_are_sent_side_by_side(listing: bool, store: ObjectStore, index: str) -> None:
    """Each of a round is answered when all of them are there."""
    first = {"manifest.json", "LIST of data/" if listing else "LIST of data/_delta_log/"}
    second = {"files.parquet", "part"} | ({"0.parquet", "versions"} if listing else set())
    came = {name: threading.Event() for name in first | second}
    alone: list[str] = []

    def wait(request: Request) -> None:
        name = Path(request.path).name
        if request.kind == "LIST":
            name = f"LIST of {parse_qs(request.query)['prefix'][0]}"
            if name == "LIST of data/" and listing and came[name].is_set():
                name = "versions"
        elif "/columns/" in request.path:
            name = "part"
        if name in came and not came[name].is_set():
            came[name].set()
            with_it = first if name in first else second
            alone.extend(f"{name}, without {other}" for other in with_it if not came[other].wait(20))

    with reading_by("obstore"):
        parquet_bloom.count(store.uri("lake/data"), "id = 1")
        store.wire.before = wait
        try:
            found = parquet_bloom.check(store.uri("lake/data"), f"id = {IDS[3, 7]}", index=index, listing=listing)
        finally:
            store.wire.before = None
    assert alone == []
    assert all(event.is_set() for event in came.values())
    assert [one.row_group for one in found if not one.skipped] == [0]


def test_one_request_at_a_time_is_enough(store: ObjectStore, index: str) -> None:
    before, predicate = limits(), f"id IN ({IDS[3, 7]}, {IDS[5, 399]})"
    parquet_bloom.set_limits(concurrency=1)
    try:
        with reading_by("obstore"):
            for listing in (True, False):
                key_index._opened.renew()
                found = parquet_bloom.check(store.uri("lake/data"), predicate, index=index, listing=listing)
                assert kept_of(found) == [("3.parquet", 0), ("5.parquet", 3)]
    finally:
        parquet_bloom.set_limits(concurrency=before.concurrency)


def test_an_index_on_a_store_that_cannot_be_used_is_an_error(store: ObjectStore, index: str) -> None:
    uri = store.uri("lake/data")
    with reading_by("obstore"):
        with pytest.raises(StorageError, match="nothing/manifest.json"):
            parquet_bloom.check(uri, "id = 1", index=store.uri("lake/nothing"))
        with pytest.raises(UnknownColumnError):
            parquet_bloom.check(uri, "idd = 1", index=index)
        key_index._opened.renew()
        part = next(name for name in store.names("lake") if "/columns/" in name)
        store.put(f"lake/{part}", store.get(f"lake/{part}")[:-9] + b"\0" * 9)
        found = parquet_bloom.check(uri, f"id = {IDS[3, 7]}", index=index)
        assert len([one for one in found if not one.skipped]) >= 1
        assert "are not covered" not in found.notes[0]
        assert found.notes[0].endswith("these are read as without an index")
        store.put("lake/index/manifest.json", b"{}")
        with pytest.raises(DamagedFileError):
            parquet_bloom.check(uri, "id = 1", index=index)
