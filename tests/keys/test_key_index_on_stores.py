"""A key index of objects: what is opened, by the requests that came to the store, and what changed since."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_store import READERS, SECRET, ObjectStore, reading_by

import parquet_bloom
from parquet_bloom.errors import StaleIndexError
from parquet_bloom.keys.locate import facts_of

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
    kept = [(v.path, v.row_group) for v in found if not v.skipped]
    assert [(Path(path.partition("?")[0]).name, group) for path, group in kept] == [("5.parquet", 0)]
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


def test_an_index_that_lies_on_a_store_is_asked_there(store: ObjectStore, tmp_path: Path) -> None:
    uri = store.uri("lake/data")
    with reading_by("obstore"):
        parquet_bloom.build_index(uri, "id", tmp_path / "index")
        for path in (tmp_path / "index").rglob("*"):
            if path.is_file() and path.name != "lock":
                store.put(f"lake/index/{path.relative_to(tmp_path / 'index').as_posix()}", path.read_bytes())
        key = int(IDS[6, 250])
        found = parquet_bloom.check(uri, f"id = {key}", index=store.uri("lake/index"))
    assert [v.row_group for v in found if not v.skipped] == [2]
