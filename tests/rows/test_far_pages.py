"""Pages of objects: only those that hold a row travel, close ones as one request, each by its version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows.test_offset_indexes import indexes_of, lies, lying, with_indexes
from support.object_store import objects, reading_by
from support.recording_store import Answer, Asked, RecordingStore, keyed, recording

import parquet_bloom
from parquet_bloom.errors import FileChangedError
from parquet_bloom.rows import matching

ROWS = 200_000


PAGE_ROWS = matching.Reading._page_rows  # conftest.py puts another in its place


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """13 MB in two row groups: keys in no order, times in order, texts of a dictionary, lists, and numbers."""
    rng = np.random.default_rng(5)
    numbers = {name: rng.integers(0, 2**62, ROWS) for name in "abcd"}
    lists = pa.ListArray.from_arrays(np.arange(0, 2 * ROWS + 2, 2, dtype=np.int32), rng.integers(0, 2**60, 2 * ROWS))
    table = pa.table({
        "id": rng.permutation(ROWS), "at": np.arange(ROWS), "text": [f"word {n % 50}" for n in range(ROWS)],
        "list": lists, **numbers,
    })  # fmt: skip
    made = tmp_path_factory.mktemp("files") / "made.parquet"
    pq.write_table(table, made, row_group_size=ROWS // 2, write_page_index=True, use_dictionary=["text"])
    parquet_bloom.add_filters(made, in_place=True, columns=["id"], sync=False)
    return made


@pytest.fixture
def store(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingStore]:
    monkeypatch.setattr(matching, "_LEAST_REMOTE", 1 << 20)
    monkeypatch.setattr(matching.Reading, "_page_rows", PAGE_ROWS)
    with recording() as running, reading_by("obstore"):
        running.objects = {"data/x.parquet": path.read_bytes()}
        yield running


def on(store: RecordingStore) -> Any:
    return objects(**keyed(store))


def travelled(store: RecordingStore) -> int:
    """Bytes of the answers so far."""
    edges = [one.headers["range"].removeprefix("bytes=").split("-") for one in store.of_objects()]
    return sum(int(last) + 1 - int(first) if first else int(last) for first, last in edges)


def test_one_key_takes_few_requests_and_few_bytes(store: RecordingStore, path: Path) -> None:
    """The footer; filters; the key's column, and beside it the offset indexes; pages, small dictionaries with them."""
    key = int(pq.read_table(path, columns=["id"])["id"][77_777].as_py())
    found = parquet_bloom.read_table("data/x.parquet", f"id = {key}", filesystem=on(store))
    assert found.equals(parquet_bloom.read_table(path, f"id = {key}"))
    assert len(store.of_objects()) < 35
    size = path.stat().st_size
    key_column = pq.read_metadata(path).row_group(0).column(0).total_compressed_size
    assert travelled(store) < key_column + size / 7
    asked = store.of_objects()
    assert {one.method for one in asked} == {"GET"}
    assert all("if-match" in one.headers for one in asked[1:])


def test_a_range_takes_the_pages_of_a_range(store: RecordingStore, path: Path) -> None:
    where = "at BETWEEN 150000 AND 150020"
    found = parquet_bloom.read_table("data/x.parquet", where, filesystem=on(store))
    assert found.equals(parquet_bloom.read_table(path, where))
    assert len(store.of_objects()) < 30
    assert travelled(store) < path.stat().st_size / 7


def test_without_an_index_whole_chunks_of_row_groups_with_a_row(
    store: RecordingStore, path: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain.parquet"
    pq.write_table(pq.read_table(path), plain, row_group_size=ROWS // 2, use_dictionary=["text"])
    store.objects["data/x.parquet"] = plain.read_bytes()
    ids = pq.read_table(path, columns=["id"])["id"].to_numpy()
    key = int(ids[5])  # no filter: both row groups may have it
    found = parquet_bloom.read_table("data/x.parquet", f"id = {key}", filesystem=on(store))
    assert found.equals(pq.read_table(path).slice(5, 1).replace_schema_metadata(found.schema.metadata))
    group = sum(pq.read_metadata(plain).row_group(0).column(n).total_compressed_size for n in range(8))
    assert group < travelled(store) < group * 1.4


def test_an_object_that_is_replaced_between_its_pages(store: RecordingStore) -> None:
    other = bytes(reversed(store.objects["data/x.parquet"]))

    def replace(asked: Asked, _: Answer) -> None:
        if len(store.of_objects()) > 8:
            store.objects[asked.key] = other

    store.wrong = replace
    with pytest.raises(FileChangedError, match=r"x\.parquet"):
        parquet_bloom.read_table("data/x.parquet", "at = 150000 OR at = 100", filesystem=on(store))


def test_an_index_that_lies_takes_the_whole_chunk(store: RecordingStore, path: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "x.parquet"
    ids = pq.read_table(path, columns=["id"])["id"].to_numpy()
    few = [name for name, _ in lies(next(iter(indexes_of(path.read_bytes()).values())))][::4]
    for number, name in enumerate(few):
        wrong.write_bytes(path.read_bytes())
        with_indexes(wrong, lying(4 * number))
        store.objects["data/x.parquet"] = wrong.read_bytes()
        rows = [60_001, 79_999, 80_001]
        for where in (f"id IN ({', '.join(str(ids[row]) for row in rows)})", f"at IN ({', '.join(map(str, rows))})"):
            found = parquet_bloom.read_table("data/x.parquet", where, filesystem=on(store))
            truth = pa.concat_tables([pq.read_table(path).slice(row, 1) for row in rows])
            assert found.to_pydict() == truth.to_pydict(), (name, where)
