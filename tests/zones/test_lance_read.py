"""Reading by way of a zone index: the rows and their order are those without it, from fewer row groups and pages."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.commands import command, error_lines
from support.lance_data import lance, values

import parquet_bloom
import parquet_bloom.lance as zones
from parquet_bloom.errors import DamagedFileError, StaleIndexError
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.zones.query import IndexedScan

PAGES = {"data_page_size": 256, "write_batch_size": 32, "write_page_index": True}


def wide_table(rows: int = 3000, seed: int = 1) -> pa.Table:
    """`id` random, every other column a kind of page of its own."""
    rng = np.random.default_rng(seed)
    ids = rng.choice(10**9, rows, replace=False)
    few = [None if i % 11 == 0 else ["red", "green", "blue"][i % 3] for i in range(rows)]
    flat = {
        "id": pa.array(ids, mask=rng.random(rows) < 0.1),
        "name": values(pa.string(), rows, seed),
        "few": pa.array(few).dictionary_encode(),
        "flag": pa.array(rng.random(rows) < 0.5),
        "price": pa.array([Decimal(int(i)) / 100 for i in ids], pa.decimal128(20, 2)),
        "at": values(pa.timestamp("us", "UTC"), rows, seed),
        "seconds": values(pa.timestamp("s"), rows, seed),
        "day": values(pa.date64(), rows, seed),
        "ratio": values(pa.float64(), rows, seed),
        "half": pa.array(rng.normal(size=rows).astype(np.float16)),
        "fixed": pa.array([bytes([i % 256] * 3) for i in range(rows)], pa.binary(3)),
        "uid": pa.array([bytes([i % 251] * 16) for i in range(rows)], pa.uuid()),
        "large": values(pa.large_binary(), rows, seed),
        "took": pa.array(rng.integers(0, 10**6, rows), pa.duration("ms")),
        "u8": pa.array(rng.integers(0, 256, rows), pa.uint8()),
    }
    nested = {
        "one": pa.StructArray.from_arrays([flat["name"]], ["x"], mask=pa.array(np.arange(rows) % 7 == 0)),
        "two": pa.StructArray.from_arrays([flat["id"], flat["name"]], ["x", "y"]),
        "tags": pa.array([None if i % 5 == 0 else [i, i + 1][: i % 3] for i in range(rows)]),
        "map": pa.array([[("k", i)] for i in range(rows)], pa.map_(pa.string(), pa.int64())),
    }
    return pa.table(flat | nested)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three files in a folder, of several row groups each, and indexes over id and name."""
    folder = tmp_path_factory.mktemp("lance_read")
    (folder / "data").mkdir()
    table = wide_table()
    kinds = (  # the second has dictionaries, which nothing outweighs here
        {"compression": "zstd", "use_dictionary": ["few"]},
        {"data_page_version": "2.0"},
        {"use_dictionary": False, "compression": "none"},
    )
    for i, kind in enumerate(kinds):
        pq.write_table(table.slice(1000 * i, 1000), folder / f"data/{i}.parquet", row_group_size=400, **PAGES, **kind)
    zones.build_index(folder / "data", ["id", "name", "one.x"], folder / "out", items=50, probability=1e-4)
    return folder, table


def key_from(table, row):
    """The first id from a row on that is not NULL."""
    return next(v for v in table["id"].to_pylist()[row:] if v is not None)


def scans(folder, predicate, columns=None):
    plain = parquet_bloom.Scan(folder / "data", predicate)
    indexed = IndexedScan(folder / "data", predicate, folder / "out")
    return plain.to_table(columns), indexed.to_table(columns), indexed


def test_pages_are_small_enough_for_this_to_mean_something(data):
    folder, _ = data
    scan = IndexedScan(folder / "data", "id IS NULL AND id = 5", folder / "out")
    assert scan.kept == []
    _, found, scan = scans(folder, f"id = {pq.read_table(folder / 'data')['id'][5]}")
    assert found.num_rows == 1
    assert scan.pages.left > 3 * scan.pages.read > 0


def predicates(table):
    ids = table["id"].take(pa.array([5, 1200, 1201, 2999, 700, 2100])).drop_null().to_pylist()
    name = next(n for n in table["name"].to_pylist() if n)
    yield from (f"id = {ids[0]}", f"id IN ({', '.join(map(str, ids))})", f"id IN ({ids[1]}, NULL)", "id = -1")
    yield from (f"name = '{name}'", f"name = '{name}' AND id IS NOT NULL", f"id = {ids[0]} OR name = '{name}'")
    yield from (f"id = {ids[1]} AND few = 'red'", f"id = {ids[1]} OR price < 100", f"NOT (id <> {ids[2]})")
    yield from (f"one.x = '{name}' AND id IS NULL", "name IS NULL AND id IS NULL", f"two.x = {ids[0]}", "id IS NULL")
    yield from (f"id > {ids[0] - 3} AND id < {ids[0] + 3}", f"id = {ids[0]} AND list_contains(tags, 1)")
    yield from (f"id <> {ids[0]}", f"NOT id = {ids[0]} AND name = '{name}'", f"ratio = 0.0 AND id = {ids[0]}")


def test_rows_and_order_are_those_without_an_index(data):
    folder, table = data
    left = 0
    choices: list[list[str] | None] = [None, ["price"], ["tags", "id"], ["few", "one", "uid"]]
    for i, predicate in enumerate(predicates(table)):
        for columns in choices[i % 4 :: 4]:
            plain, indexed, scan = scans(folder, predicate, columns)
            assert indexed.schema == plain.schema, (predicate, columns)
            assert same_rows(indexed, plain), (predicate, columns)
            left += scan.pages.left
        options = {"index": folder / "out"}
        assert parquet_bloom.count(folder / "data", predicate, **options) == plain.num_rows
        batches = list(parquet_bloom.read_batches(folder / "data", predicate, batch_rows=7, **options))
        assert sum(b.num_rows for b in batches) == plain.num_rows
        assert all(b.num_rows <= 7 for b in batches)
    assert left > 250


def same_rows(one, other):
    """Equal, NaN equal to itself; dictionaries may be split in other ways."""

    def plain(table):
        return [repr(row) for row in table.to_pylist()]

    return plain(one) == plain(other)


def test_expressions_and_dnf_lists(data):
    folder, key = data[0], key_from(data[1], 1200)
    for filters in (pc.field("id") == key, [("id", "=", key)], (pc.field("id") == key) | (pc.field("u8") < 3)):
        mine = parquet_bloom.read_table(folder / "data", filters, index=folder / "out")
        assert same_rows(mine, parquet_bloom.read_table(folder / "data", filters))
        assert mine.num_rows


def test_row_groups_fall_to_the_index(data):
    folder, key = data[0], key_from(data[1], 1200)
    scan = IndexedScan(folder / "data", f"id = {key}", folder / "out/id")
    assert [(name[-9:], groups) for name, groups in scan.kept] == [("1.parquet", [0])]
    assert {v.decided_by for v in scan.verdicts if v.skipped} <= {"index", "bounds"}
    assert parquet_bloom.prune(folder / "data", f"id = {key}", index=folder / "out") == scan.kept
    assert parquet_bloom.dataset(folder / "data", f"id = {key}", index=folder / "out").to_table().num_rows == 400


def test_folders_names_and_missing_columns_are_filled_in(tmp_path):
    table = wide_table(900).select(["id", "few", "name"])
    parts = ("year=2025/city=Kyiv", "year=2026/city=__HIVE_DEFAULT_PARTITION__", "year=2026/city=Oslo")
    for i, folder in enumerate(tmp_path / "data" / part for part in parts):
        folder.mkdir(parents=True)
        one = table.slice(300 * i, 300)
        one = one if i != 1 else one.drop_columns(["few"])
        pq.write_table(one, folder / "x.parquet", use_dictionary=["few"], **PAGES)
    zones.build_index(tmp_path / "data", ["id"], tmp_path / "out", items=20, probability=1e-4)
    left = 0
    for row in (3, 333, 666):
        key = key_from(table, row)
        for predicate in (f"id = {key}", f"id = {key} AND year = 2026", f"id = {key} OR city = 'Oslo' AND id = 5"):
            plain, indexed, scan = scans(tmp_path, predicate)
            assert indexed.schema == plain.schema
            assert same_rows(indexed, plain)
            left += scan.pages.left
    assert left


def test_files_without_a_page_index_are_read_by_pages_too(tmp_path):
    table = wide_table(900)
    pq.write_table(table, tmp_path / "data.parquet", row_group_size=300, **PAGES | {"write_page_index": False})
    zones.build_index(tmp_path / "data.parquet", ["id"], tmp_path / "out", items=20)
    key = key_from(table, 400)
    scan = IndexedScan(tmp_path / "data.parquet", f"id = {key}", tmp_path / "out")
    assert same_rows(scan.to_table(), parquet_bloom.read_table(tmp_path / "data.parquet", f"id = {key}"))
    assert scan.kept[0][1] == [1]
    assert scan.pages.left > scan.pages.read > 0


def test_an_offset_index_that_lies_is_not_used_or_an_error(tmp_path):
    """Every second byte of an offset index changed: rows as ever, or an error, never other rows."""
    table = pa.table({"a": range(500), "b": [str(i) for i in range(500)]})
    pq.write_table(table, tmp_path / "x.parquet", use_dictionary=False, compression="none", **PAGES)
    whole = (tmp_path / "x.parquet").read_bytes()
    with OpenFile(tmp_path / "x.parquet") as source:
        chunk = source.footer().chunk(0, 0)
    first, length = chunk.offset_index_offset, chunk.offset_index_length
    used = 0
    (tmp_path / "y.parquet").write_bytes(whole)
    zones.build_index(tmp_path / "y.parquet", ["b"], tmp_path / "out", items=20, probability=1e-4)
    for at in range(first, first + length, 2):
        bad = bytearray(whole)
        bad[at] ^= 0x04
        (tmp_path / "y.parquet").write_bytes(bad)
        try:
            scan = IndexedScan(tmp_path / "y.parquet", "b = '333'", tmp_path / "out")
            assert scan.to_table().to_pylist() == [{"a": 333, "b": "333"}]
            used += bool(scan.pages.left)
        except DamagedFileError:
            pass
    assert used


# --- foreign and stale ----------------------------------------------------------------------------


def test_a_changed_file_is_refused_and_a_new_one_read_whole(tmp_path):
    (tmp_path / "data").mkdir()
    for i in range(2):
        pq.write_table(pa.table({"a": range(100 * i, 100 * i + 100)}), tmp_path / f"data/{i}.parquet")
    zones.build_index(tmp_path / "data", ["a"], tmp_path / "out", items=10)
    pq.write_table(pa.table({"a": [42, 500]}), tmp_path / "data/2.parquet")
    found = parquet_bloom.read_table(tmp_path / "data", "a IN (42, 142, 500)", index=tmp_path / "out")
    assert found["a"].to_pylist() == [42, 142, 42, 500]
    pq.write_table(pa.table({"a": range(50, 150)}), tmp_path / "data/0.parquet")
    with pytest.raises(StaleIndexError, match=r"0.parquet: is not as it was when"):
        parquet_bloom.read_table(tmp_path / "data", "a = 120", index=tmp_path / "out")
    for i in range(2):
        (tmp_path / f"data/{i}.parquet").unlink()
    with pytest.raises(StaleIndexError, match="is an index of other files"):
        parquet_bloom.read_table(tmp_path / "data", "a = 42", index=tmp_path / "out")


def test_indexes_with_other_numbers_for_the_same_files(tmp_path):
    """One index was built over the files in one order, the other in another."""
    for i in range(3):
        rows = range(100 * i, 100 * i + 100)
        pq.write_table(pa.table({"a": rows, "b": [str(v) for v in rows]}), tmp_path / f"{i}.parquet")
    files = [tmp_path / f"{i}.parquet" for i in range(3)]
    zones.build_index(files, ["a"], tmp_path / "out", items=10)
    zones.build_index(files[::-1], ["b"], tmp_path / "out", items=15)
    for v in (5, 150, 299):
        found = parquet_bloom.read_table(files, f"a = {v} AND b = '{v}'", index=tmp_path / "out")
        assert found["a"].to_pylist() == [v]
    assert parquet_bloom.read_table(files, "a = 5 AND b = '299'", index=tmp_path / "out").num_rows == 0


def test_a_lance_index_is_none_of_parquet_files(tmp_path):
    pq.write_table(pa.table({"a": range(10)}), tmp_path / "1.parquet")
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "d.lance")
    zones.build_index(tmp_path / "d.lance", ["a"], tmp_path / "out")
    with pytest.raises(StaleIndexError):
        parquet_bloom.read_table(tmp_path / "1.parquet", "a = 5", index=tmp_path / "out")


def test_the_command(data):
    folder, key = data[0], key_from(data[1], 5)
    asked = ("--where", f"id = {key}", "--columns", "id", "--format", "ndjson", "--index", folder / "out")
    done = command("read", folder / "data", *asked)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"id": key})
    assert "index" in done.stderr
    failed = command("read", folder / "data", "--where", "id = 5", "--index", folder / "data")
    assert (failed.returncode, error_lines(failed.stderr)) == (2, 1)
