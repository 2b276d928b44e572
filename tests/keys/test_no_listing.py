"""Files as an index names them, without a listing: the same answers, and no file that a listing would not give."""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import command
from support.ducklake_tables import Lake
from support.object_store import ObjectStore, objects, reading_by
from support.recording_store import keyed, recording

import parquet_bloom
from keys.key_indexes import said_anew, write_ids
from keys.test_strict_index import ASKED
from parquet_bloom.errors import ParquetBloomError, RequestError, StaleIndexError, TableFormatError
from parquet_bloom.keys.build import build_index
from parquet_bloom.keys.listing import write_places
from parquet_bloom.output.index_files import IndexFiles

ROWS = 90


def write(path: Path, seed: int) -> int:
    """A file of three row groups; returns a key of the second."""
    return write_ids(path, seed, ROWS)[ROWS // 2]


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, int]:
    """A key of each file of tmp/data, of which tmp/index is the index."""
    made = {f"day={n % 2}/{n}.parquet": write(tmp_path / f"data/day={n % 2}/{n}.parquet", n) for n in range(4)}
    build_index(tmp_path / "data", "id", tmp_path / "index")
    return made


def test_answers_are_those_of_a_listing(keys: dict[str, int], tmp_path: Path) -> None:
    for (name, ask), key in product(ASKED.items(), (*keys.values(), 5)):
        predicate = f"id = {key}" if key % 2 else f"id = {key} AND day = 1"
        listed, unlisted = (
            ask(tmp_path / "data", predicate, index=tmp_path / "index", listing=listing) for listing in (True, False)
        )
        if name in ("check", "Source"):
            assert (list(listed), listed.excluded) == (list(unlisted), unlisted.excluded), name
        elif name in ("read_table", "dataset", "locate", "scan_polars"):
            assert listed.equals(unlisted), name
        else:
            assert listed == unlisted, name


def test_what_is_trusted(keys: dict[str, int], tmp_path: Path) -> None:
    """Files that came since are not seen; one that was rewritten is read where it is opened at all."""
    data, index = tmp_path / "data", tmp_path / "index"
    new = write(data / "day=0/new.parquet", 77)
    assert parquet_bloom.count(data, f"id = {new}", index=index) == 1
    assert parquet_bloom.count(data, f"id = {new}", index=index, listing=False) == 0
    path, key = data / "day=1/3.parquet", keys["day=1/3.parquet"]
    ids = pq.read_table(path)["id"].to_numpy().copy()
    ids[[5, ROWS // 2]] = ids[[ROWS // 2, 5]]  # the key is in another row group now
    pq.write_table(pa.table({"id": ids}), path, row_group_size=ROWS // 3)
    assert parquet_bloom.count(data, f"id = {key}", index=index, listing=False) == 1
    path.unlink()
    with pytest.raises(ParquetBloomError, match=r"3\.parquet: No such file"):
        parquet_bloom.count(data, f"id = {key}", index=index, listing=False)


def test_parts_of_the_folder_and_several(keys: dict[str, int], tmp_path: Path) -> None:
    data, index = tmp_path / "data", tmp_path / "index"
    for n, (name, key) in enumerate(keys.items()):
        day = name.partition("/")[0]
        assert parquet_bloom.count(data / day, f"id = {key}", index=index, listing=False) == 1
        both = [data / "day=0", data / "day=1"]
        assert parquet_bloom.count(both, f"id = {key}", index=index, listing=False) == 1
        assert parquet_bloom.count(data, f"id = {key} AND day = {n % 2}", index=index, listing=False) == 1
        assert parquet_bloom.count(data, f"id = {key} AND day = {1 - n % 2}", index=index, listing=False) == 0


def test_names_that_no_listing_gives(keys: dict[str, int], tmp_path: Path) -> None:
    """An index may name what it likes: nothing outside of the folder is opened, nor what is hidden in it."""
    data, index = tmp_path / "data", tmp_path / "index"
    secret = write(tmp_path / "secret/day=0/0.parquet", 99)
    names = sorted(keys)
    write(data / "_hidden/0.parquet", 99)
    (data / "link").symlink_to(tmp_path / "secret/day=0")
    listing = next((index / "segments").rglob("files.parquet"))
    there = pq.read_table(listing)
    for bad in (
        "../secret/day=0/0.parquet", f"{tmp_path}/secret/day=0/0.parquet", "s3://lake/secret/0.parquet",
        "link/0.parquet", "_hidden/0.parquet", "day=0/../../secret/day=0/0.parquet", "a\0b.parquet", "/etc/passwd",
    ):  # fmt: skip
        paths = [bad if name == names[0] else name for name in there["path"].to_pylist()]
        write_places(IndexFiles(str(listing.parent)), listing.name, there.set_column(2, "path", pa.array(paths)))
        said_anew(index, listing, there.num_rows)
        found = parquet_bloom.check(data, f"id >= 0 AND id <= {1 << 61}", index=index, listing=False)
        assert sorted({Path(v.path).relative_to(data).as_posix() for v in found}) == names[1:], bad
        assert parquet_bloom.count(data, f"id = {secret}", index=index, listing=False) == 0


def test_what_cannot_go_without_a_listing(keys: dict[str, int], tmp_path: Path) -> None:
    data, index = tmp_path / "data", tmp_path / "index"
    with pytest.raises(RequestError, match="must come from a key index; name it"):
        parquet_bloom.check(data, "id = 5", listing=False)
    for name in (data / "day=0/0.parquet", f"{data}/*/*.parquet"):
        with pytest.raises(RequestError, match="only folders can be named"):
            parquet_bloom.check(name, "id = 5", index=index, listing=False)
    (tmp_path / "other").mkdir()
    with pytest.raises(StaleIndexError, match="names no file below"):
        parquet_bloom.check(tmp_path / "other", "id = 5", index=index, listing=False)
    shown = command("check", data, f"id = {keys['day=0/0.parquet']}", "--index", index, "--no-listing")
    assert shown.returncode == 0
    assert "row group 1" in shown.stdout
    assert command("check", data, "id = 5", "--no-listing").returncode == 2


def test_tables(tmp_path: Path) -> None:
    ids = pa.array(range(300))
    deltalake.write_deltalake(tmp_path / "t", pa.table({"id": ids}))
    build_index(f"delta:{tmp_path}/t", "id", tmp_path / "index")
    deltalake.write_deltalake(tmp_path / "t", pa.table({"id": pa.array([1000])}), mode="append")
    name = f"delta:{tmp_path}/t"
    assert parquet_bloom.count(name, "id = 1000", index=tmp_path / "index", listing=False) == 1, "the log knows"
    build_index(tmp_path / "t", "id", tmp_path / "raw", raw_files=True)
    with pytest.raises(TableFormatError):
        parquet_bloom.count(tmp_path / "t", "id = 5", index=tmp_path / "raw", listing=False)
    assert parquet_bloom.count(tmp_path / "t", "id = 5", index=tmp_path / "raw", listing=False, raw_files=True) == 1


def test_a_table_whose_files_prove_nothing_by_name(tmp_path: Path) -> None:
    """DuckLake gives its tables no identity, so tokens recognise files, without a listing too."""
    lake = Lake(tmp_path, False)
    lake.sql("SET threads = 1", "CREATE TABLE t AS SELECT 2 * range AS id FROM range(5000)")
    name = f"ducklake:{lake.release().name()}"
    build_index(name, "id", tmp_path / "index")
    [path] = lake.data.rglob("*.parquet")
    table = pq.read_table(path)
    ids = table["id"].to_numpy().copy()
    ids[7] = 7
    pq.write_table(table.set_column(0, table.schema.field(0), pa.array(ids)), path)
    for listing in (True, False):
        assert parquet_bloom.count(name, "id = 7", index=tmp_path / "index", listing=listing) == 1


def test_the_files_are_those_of_the_call_s_own_store(tmp_path: Path) -> None:
    """Two stores with a bucket of one name, asked one after the other with one index that stays open."""
    key = write(tmp_path / "one.parquet", 1)
    with recording() as first, recording() as second:
        systems = [objects(**keyed(store)) for store in (first, second)]
        first.objects["lake/data/0.parquet"] = (tmp_path / "one.parquet").read_bytes()
        build_index("lake/data", "id", tmp_path / "index", filesystem=systems[0])
        table = pq.read_table(tmp_path / "one.parquet")
        pq.write_table(pa.concat_tables([table, table]), tmp_path / "two.parquet", row_group_size=ROWS)
        second.objects["lake/data/0.parquet"] = (tmp_path / "two.parquet").read_bytes()
        for system, rows in zip(systems, (1, 2), strict=True):
            how: dict[str, object] = {"filesystem": system, "index": tmp_path / "index", "listing": False}
            assert parquet_bloom.count("lake/data", f"id = {key}", **how) == rows  # type: ignore[arg-type]


def test_no_listing_on_a_store(store: ObjectStore, tmp_path: Path) -> None:
    store.client.create_bucket(Bucket="lake")
    try:
        keys = [write(tmp_path / f"{n}.parquet", n) for n in range(6)]
        for n in range(6):
            store.put(f"lake/data/day={n % 2}/{n}.parquet", (tmp_path / f"{n}.parquet").read_bytes())
        uri, index = store.uri("lake/data"), store.uri("lake/index")
        with reading_by("obstore"):
            build_index(uri, "id", index)
            for number, key in enumerate(keys):
                store.wire.clear()
                assert parquet_bloom.count(uri, f"id = {key}", index=index, listing=False) == 1
                opened = {r.path for r in store.wire.requests if "/data/" in r.path and r.path.endswith(".parquet")}
                assert len(opened) <= 2, "the first, for its columns, and the one with the key"
                of_index = [r for r in store.wire.requests if "/index/" in r.path and r.kind == "GET"]
                # The manifest; the listing; a part, and a row group of it. Then what is asked anew of an open index.
                assert len(of_index) <= (5 if number == 0 else 2)
                of_data = [r for r in store.wire.requests if r.kind == "LIST" and "day" in r.query]
                assert not of_data
        kinds = Counter(store.wire.kinds)
        assert kinds["LIST"] <= 8, "looks for tables in the folder and above it"
    finally:
        store.drop("lake")


@pytest.fixture
def some_without(tmp_path: Path) -> Path:
    """Files of which the second has no id; their index by it is tmp/index."""
    data = tmp_path / "data"
    data.mkdir()
    pq.write_table(pa.table({"id": [1, 2], "v": [10, 20]}), data / "a.parquet")
    pq.write_table(pa.table({"v": [10, 30]}), data / "b.parquet")
    assert build_index(data, "id", tmp_path / "index").passed_over == 0
    return data


def test_files_without_an_indexed_column_are_asked(some_without: Path, tmp_path: Path) -> None:
    """Such a file has NULL in the column, and may match by its other columns."""
    data, index = some_without, tmp_path / "index"
    pq.write_table(pa.table({"v": [10, 40]}), data / "c.parquet")
    report = parquet_bloom.update_index(index, data)
    assert (report.kept, report.added) == (2, 1)
    assert parquet_bloom.update_index(index, data).added == 0, "it is current"
    for predicate, n in (("v = 10", 3), ("id IS NULL", 4), ("id = 1", 1), ("id = 5", 0)):
        for listing in (True, False):
            found = parquet_bloom.count(data, predicate, index=index, strict_index=True, listing=listing)
            assert found == parquet_bloom.count(data, predicate) == n, (predicate, listing)
    pq.write_table(pa.table({"v": [10, 30, 50]}), data / "b.parquet")
    assert parquet_bloom.update_index(index, data).added == 1, "other rows are another file"
    assert parquet_bloom.count(data, "id IS NULL", index=index, strict_index=True, listing=False) == 5


@pytest.mark.parametrize("columns", ["id", ["id", "v"]])
def test_a_file_that_gets_an_indexed_column_is_indexed_anew(
    columns: str | list[str], some_without: Path, tmp_path: Path
) -> None:
    """The chunks that the index knows are equal: those that it does not know count, too."""
    data, index = some_without, tmp_path / "index"
    build_index(data, columns, index, overwrite=True)
    pq.write_table(pa.table({"v": [10, 30], "id": [7, 8]}), data / "b.parquet")
    report = parquet_bloom.update_index(index, data)
    assert (report.recognised, report.added, report.gone) == (0, 1, 1)
    assert parquet_bloom.count(data, "id = 8", index=index, strict_index=True, listing=False) == 1
    parquet_bloom.add_filters(data / "b.parquet", columns="v", in_place=True)
    assert parquet_bloom.update_index(index, data).recognised == 1, "filters alone are new"
