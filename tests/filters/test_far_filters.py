"""Filters of objects: the requests that inspect, verify and status send, and the same results as of a local file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import objects, reading_by
from support.recording_store import RecordingStore, keyed, recording
from support.repeats import by_turns

import parquet_bloom
from parquet_bloom.filters import verify as verify_module

ROWS = 40_000
# Row groups, and the requests of verify: a column without filters lies between, 80 kB in each of four row groups.
LAYOUTS = {
    "one row group": (1, 3, {}), "many": (80, 2, {}), "before their chunks": (4, 5, {"placement": "chunk-start"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, made = tmp_path_factory.mktemp("files"), {}
    rng = np.random.default_rng(27)
    table = pa.table({"id": rng.permutation(ROWS), "pad": [rng.bytes(30) for _ in range(ROWS)], "no": np.arange(ROWS)})
    for name, (groups, _, options) in LAYOUTS.items():
        made[name] = folder / f"{name}.parquet"
        pq.write_table(table, made[name], row_group_size=ROWS // groups, use_dictionary=False, compression="none")
        parquet_bloom.add_filters(made[name], in_place=True, columns=["id", "pad"], sync=False, **options)
    return made


@pytest.fixture
def store(files: dict[str, Path]) -> Iterator[RecordingStore]:
    with recording() as running, reading_by("obstore"):
        running.objects = {f"data/{name}.parquet": path.read_bytes() for name, path in files.items()}
        yield running


def on(store: RecordingStore) -> Any:
    return objects(**keyed(store))


def told(report: Any) -> list[Any]:
    return [one for file in report.files for one in file.filters]


def test_verify_sends_one_request_for_the_end_and_one_for_all_else(
    store: RecordingStore, files: dict[str, Path]
) -> None:
    """Of bytes that lie together; a sample of row groups reads no others. It were two for each filter."""
    for name, sample in (*((name, None) for name in LAYOUTS), ("many", 1), ("before their chunks", 3)):
        store.asked.clear()
        far = parquet_bloom.verify(f"data/{name}.parquet", filesystem=on(store), sample=sample)
        assert told(far) == told(parquet_bloom.verify(files[name], sample=sample))
        assert store.methods() == ["GET"] * len(store.methods())
        assert len(store.of_objects()) <= (LAYOUTS[name][1] if sample is None else 2 + 2 * sample), (name, sample)
        assert all("if-match" in one.headers for one in store.of_objects()[1:])


@pytest.mark.parametrize(("name", "at_once"), by_turns([*LAYOUTS, "many"], [1, 100_000, 500_000]))
def test_verify_has_so_much_in_memory_and_no_more(
    store: RecordingStore, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str, at_once: int
) -> None:
    monkeypatch.setattr(verify_module, "_AT_ONCE", at_once)
    most = 0
    before = parquet_bloom.storage.open_file.OpenFile.prefetch

    def prefetch(self: Any, ranges: Any) -> None:
        nonlocal most
        before(self, ranges)
        most = max(most, *(sum(len(data) for _, data in held) for held in self._held.values()), 0)

    monkeypatch.setattr(parquet_bloom.storage.open_file.OpenFile, "prefetch", prefetch)
    far = parquet_bloom.verify(f"data/{name}.parquet", filesystem=on(store))
    assert told(far) == told(parquet_bloom.verify(files[name]))
    gaps = 2 * (64 << 10)  # what lies between is read with it
    row_groups = [pq.read_metadata(files[name]).row_group(n) for n in range(LAYOUTS[name][0])]
    chunks = [group.column(n).total_compressed_size for group in row_groups for n in range(2)]
    walked = max((chunk for chunk in chunks if chunk <= 1 << 20), default=0)
    assert most <= max(at_once, walked) + gaps, "of a thread: a chunk of a megabyte is read for its pages"


def test_verify_finds_a_wrong_filter_far_away(store: RecordingStore, files: dict[str, Path]) -> None:
    """Of the last row group, in a file whose values are those of another one."""
    data = bytearray(store.objects["data/many.parquet"])
    last = told(parquet_bloom.inspect(files["many"]))[-2]
    data[last.offset + 20 : last.offset + last.num_bytes] = bytes(last.num_bytes - 20)
    store.objects["data/many.parquet"] = bytes(data)
    [file] = parquet_bloom.verify("data/many.parquet", filesystem=on(store)).files
    assert [(one.row_group, one.column) for one in file.wrong] == [(last.row_group, last.column)]


def test_inspect_and_status_send_what_the_filters_need(store: RecordingStore, files: dict[str, Path]) -> None:
    """One for the end; then those for filters, side by side."""
    for name, path in files.items():
        most = 9 if name == "before their chunks" else 2
        store.asked.clear()
        far = parquet_bloom.inspect(f"data/{name}.parquet", filesystem=on(store))
        assert told(far) == told(parquet_bloom.inspect(path))
        assert len(store.of_objects()) <= most, name
        store.asked.clear()
        report = parquet_bloom.status(f"data/{name}.parquet", filesystem=on(store))
        assert report.columns == parquet_bloom.status(path).columns
        assert len(store.of_objects()) <= max(most, 3), name


def test_filters_in_the_end_cost_nothing_more(store: RecordingStore, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": np.arange(3000), "pad": ["x" * 50] * 3000}), path, row_group_size=1000)
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    store.objects = {f"data/in/{n}.parquet": path.read_bytes() for n in range(20)}
    for ask in (parquet_bloom.inspect, parquet_bloom.status, parquet_bloom.verify):
        store.asked.clear()
        ask("data/in", filesystem=on(store))
        assert store.methods() == ["GET"] * 20
