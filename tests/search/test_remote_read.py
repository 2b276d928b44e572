"""Verdicts and rows on an S3 API: equal to those of local files, and what they cost in requests and bytes."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.object_store import READERS, SECRET, ObjectStore, reading_by, serving
from support.samples import random_bytes

import parquet_bloom
from parquet_bloom.errors import TableFormatError
from parquet_bloom.search.options import FooterCache

GROUPS, ROWS = 8, 5_000


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with serving() as running:
        running.client.create_bucket(Bucket="data")
        for year in (2025, 2026):
            for part in range(2):
                running.put(f"data/events/year={year}/{part}.parquet", events(10 * year + part))
        yield running


@pytest.fixture(params=READERS)
def heads(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """The requests that open an object before its first bytes are read; each of obstore and of pyarrow reads."""
    with reading_by(request.param):
        yield ["HEAD"] if request.param == "pyarrow" else []


def events(seed: int) -> bytes:
    """Random ids with filters of 8 KiB each, and `at`, which grows from row group to row group."""
    rng = np.random.default_rng(seed)
    n = GROUPS * ROWS
    table = pa.table({
        "id": rng.integers(0, 2**62, n),
        "at": np.arange(n) * 10,
        "payload": random_bytes(rng, n, 40),
    })  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "x.parquet")
        pq.write_table(table, out, row_group_size=ROWS, use_dictionary=False, compression="none")
        parquet_bloom.add_filters(out, in_place=True, columns=["id"], sync=False)
        return out.read_bytes()


def table_of(store: ObjectStore, name: str) -> pa.Table:
    return pq.read_table(io.BytesIO(store.get(name)))


ABSENT = 2**61 + 12345


def test_a_value_costs_the_footer_and_a_block_a_filter(store: ObjectStore, heads: list[str]) -> None:
    store.wire.clear()
    verdicts = parquet_bloom.check(store.uri("data/events/year=2026/0.parquet"), f"id = {ABSENT}", raw_files=True)
    assert verdicts.skipped == GROUPS
    assert [v.decided_by for v in verdicts] == ["filter"] * GROUPS
    assert all(v.bytes_read <= 17 + 32 for v in verdicts), "a header and a block each"
    wanted = [*heads, "GET", "GET", *heads]
    assert store.wire.kinds == wanted, "the footer, all blocks, and without If-Match whether both were of one version"
    assert store.wire.down < 300_000


def test_a_table_is_looked_for_with_one_round_of_requests(store: ObjectStore, heads: list[str]) -> None:
    """While the file is opened; each folder of the name is asked for a log of three kinds, whatever its files."""
    folders = ("data/events/year=2026", "data/events", "data")
    store.wire.clear()
    parquet_bloom.check(store.uri("data/events/year=2026/0.parquet"), f"id = {ABSENT}")
    opened = sorted(store.wire.kinds[: 3 * len(folders) + 1])
    assert opened == sorted([*(heads or ["GET"]), *3 * len(folders) * ["LIST"]]), "one round"
    assert store.wire.kinds[3 * len(folders) + 1 :] == (["GET", "GET", "HEAD"] if heads else ["GET"])
    store.wire.clear()
    parquet_bloom.check([store.uri(f"data/events/year=2026/{part}.parquet") for part in range(2)], f"id = {ABSENT}")
    assert store.wire.kinds.count("LIST") == 3 * len(folders)
    store.wire.clear()
    parquet_bloom.check(store.uri("data/events"), f"id = {ABSENT}", raw_files=True)
    listing = store.wire.kinds.count("LIST")
    store.wire.clear()
    parquet_bloom.check(store.uri("data/events"), f"id = {ABSENT}")
    assert store.wire.kinds.count("LIST") == listing + 3, "the bucket; the listing told of the rest"


def test_a_table_in_the_store(store: ObjectStore) -> None:
    whole = store.get("data/events/year=2025/0.parquet")
    store.put("data/plain/x.parquet", whole)
    for number, log in enumerate(
        ("_delta_log/00000000000000000000.json", ".hoodie/hoodie.properties", "metadata/v1.metadata.json")
    ):
        lake = f"lake{number}"
        for name, data in ((f"{lake}/t/{log}", b"{}"), (f"{lake}/t/k=1/x.parquet", whole)):
            store.put(f"data/{name}", data)
        at = (
            rf"s3://data/{lake}/t: is an? .* table|s3://data/{lake}.*: (lies in|holds) the .* table s3://data/{lake}/t,"
        )
        names = ("{}/t", "{}/t/", "{}", "{}/t/k=1/x.parquet", "{}/t/k=1", "{}/*", "{}/t/*/*.parquet")
        for name in names if number == 0 else names[number : number + 2]:
            with pytest.raises(TableFormatError, match=at):
                parquet_bloom.count(store.uri(f"data/{name.format(lake)}"))
            assert parquet_bloom.count(store.uri(f"data/{name.format(lake)}"), raw_files=True) == GROUPS * ROWS
        if not log.startswith("_delta_log"):
            assert "is a" in parquet_bloom.inspect(store.uri(f"data/{lake}/t")).notes[0]
        assert parquet_bloom.count(store.uri("data/plain")) == GROUPS * ROWS


def test_an_iceberg_table_whose_data_lie_elsewhere(store: ObjectStore) -> None:
    said = {"format-version": 2, "location": "s3://data/t", "properties": {"write.data.path": "s3://other/x/"}}
    store.put("data/t/metadata/00001-a.gz.metadata.json", gzip.compress(json.dumps(said).encode()))
    with pytest.raises(TableFormatError, match="s3://data/t: is an Iceberg table whose data lie at s3://other/x; "):
        parquet_bloom.count(store.uri("data/t"))


def test_who_may_not_list_reads_on(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rights to read an object do not tell whether a folder above is a table's."""

    def forbid(request: Any) -> None:
        if request.kind == "LIST":
            raise PermissionError

    name = "data/events/year=2026/0.parquet"
    monkeypatch.setattr(store.wire, "before", forbid)
    assert parquet_bloom.count(name, filesystem=store.filesystem) == GROUPS * ROWS
    assert parquet_bloom.inspect(name, filesystem=store.filesystem).notes == []


def test_bounds_make_filters_needless(store: ObjectStore, heads: list[str]) -> None:
    store.wire.clear()
    name = store.uri("data/events/year=2026/0.parquet")
    verdicts = parquet_bloom.check(name, f"id = {ABSENT} AND at < 0", raw_files=True)
    assert {v.decided_by for v in verdicts} == {"bounds"}
    assert store.wire.kinds == [*heads, "GET"], "the footer"


def test_folders_partitions_and_file_systems(store: ObjectStore) -> None:
    uri, filesystem = store.uri("data/events"), store.filesystem
    one = table_of(store, "data/events/year=2025/1.parquet")
    value = one["id"][5].as_py()
    expected = pq.read_table("data/events", filters=[("id", "==", value)], filesystem=filesystem.arrow)
    assert expected.num_rows == 1
    for filters in (f"id = {value}", [("id", "==", value)], pc.field("id") == value):
        assert parquet_bloom.read_table(uri, filters=filters).to_pylist() == expected.to_pylist()
        rows = parquet_bloom.read_table("data/events", filters=filters, filesystem=filesystem)
        assert rows.to_pylist() == expected.to_pylist()
    scan = parquet_bloom.Scan(uri, f"id = {value} AND year = 2026")
    assert scan.to_table().num_rows == 0
    assert len(scan.excluded) == 2 - 1, "the first file is always opened, for the names of columns"
    assert parquet_bloom.count(uri, "year = 2026") == 2 * GROUPS * ROWS
    kept = parquet_bloom.prune(uri, f"id = {value}")
    assert [path for path, _ in kept] == ["s3://data/events/year=2025/1.parquet"]


def test_a_footer_cache_saves_the_footers(store: ObjectStore, heads: list[str]) -> None:
    cache = FooterCache()
    uri = store.uri("data/events")
    first = parquet_bloom.check(uri, f"id = {ABSENT}", cache=cache)
    store.wire.clear()
    again = parquet_bloom.check(uri, f"id = {ABSENT}", cache=cache)
    assert list(again) == list(first)
    folder = 0 if heads else 1  # is there an object of that name?
    assert store.wire.kinds.count("GET") == 4 + folder, "one joined read of filters a file"


def test_a_delta_table_in_the_store_is_read_through_its_log(store: ObjectStore, tmp_path: Path) -> None:
    """By its name, or by its folder; what the log excludes is not asked for, deleted rows do not come."""
    from support import delta_tables as made

    vector = made.inline([1, 3])
    fields = [made.field("id", "long"), made.field("p", "string")]
    actions = [made.protocol(["deletionVectors"], ["deletionVectors"]), made.metadata(fields, ["p"])]
    for part in "ab":
        told = made.file_of(tmp_path, f"p={part}/x.parquet", pa.table({"id": pa.array(range(5), pa.int64())}))
        told["add"] |= {"partitionValues": {"p": part}} | ({"deletionVector": vector} if part == "a" else {})
        actions.append(told)
        store.put(f"data/delta/t/p={part}/x.parquet", (tmp_path / f"p={part}/x.parquet").read_bytes())
    store.put("data/delta/t/p=a/dead.parquet", b"nothing")
    store.put("data/delta/t/_delta_log/00000000000000000000.json", made.commit(tmp_path, 0, *actions).read_bytes())
    uri = store.uri("data/delta/t")
    for name in (f"delta:{uri}", uri, f"delta:{uri}@0"):
        assert parquet_bloom.count(name) == 8
        assert sorted(parquet_bloom.read_table(name, "p = 'a'")["id"].to_pylist()) == [0, 2, 4]
        verdicts = parquet_bloom.check(name, "p = 'b' AND id = 3")
        assert [one.path.rsplit("/", 2)[1] for one in verdicts.excluded] == ["p=a"]
        assert len(verdicts) == 1
        assert SECRET not in repr(verdicts.to_dict())
        assert parquet_bloom.dataset(name, "p = 'b'").to_table().num_rows == 5
