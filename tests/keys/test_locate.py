"""locate: the places of many keys, by a key index and by filters, against brute force."""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from pathlib import Path
from typing import Any

import deltalake
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.delta_tables import commit, inline

import parquet_bloom
from parquet_bloom.errors import FileChangedError, RequestError, StaleIndexError, UnknownColumnError
from parquet_bloom.keys import locate as module
from parquet_bloom.keys import manifest
from parquet_bloom.keys.locate import facts_of

ROWS, GROUP, FILES = 240, 60, 3


def values_of(kind: str, rng: np.random.Generator, n: int) -> pa.Array:
    """Values of a type, some of them several times, some NULL."""
    numbers = rng.integers(-500, 500, n)
    special = np.where(numbers % 50 == 0, np.nan, np.where(numbers % 49 == 0, -0.0, numbers / 8))
    arrays = {
        "decimal": lambda: pa.array([decimal.Decimal(int(x)) / 100 for x in numbers], pa.decimal128(20, 2)),
        "uuid": lambda: pa.array([uuid.UUID(int=int(x) + 600).bytes for x in numbers], pa.binary(16)),
        "text": lambda: pa.array([f"käse-{x}" for x in numbers]),
        "date": lambda: pa.array([datetime.date(2026, 1, 1) + datetime.timedelta(int(x)) for x in numbers]),
        "timestamp": lambda: pa.array(numbers * 1_000_003, pa.timestamp("us", "UTC")),
        "double": lambda: pa.array(special),
        "uint32": lambda: pa.array((numbers + 500).astype(np.uint32) * np.uint32(4_000_000)),
    }
    array = arrays.get(kind, lambda: pa.array(numbers.astype(kind)))()
    return pa.array([None if i % 17 == 0 else value for i, value in enumerate(array.to_pylist())], array.type)


KINDS = ("int64", "int32", "uint32", "text", "decimal", "uuid", "date", "timestamp", "double")


def write(folder: Path, kind: str) -> pa.ChunkedArray:
    """Files of one column; returns all values, in the order of files and rows."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(KINDS.index(kind))
    chunks = [values_of(kind, rng, ROWS) for _ in range(FILES)]
    for i, chunk in enumerate(chunks):
        pq.write_table(pa.table({"row": np.arange(ROWS), "k": chunk}), folder / f"{i}.parquet", row_group_size=GROUP)
    return pa.chunked_array(chunks)


def brute(values: pa.ChunkedArray, keys: list[Any]) -> dict[tuple[int, int, int], list[int]]:
    """(number of the key, file, row group) -> rows in the file."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for row, value in enumerate(values.to_pylist()):
        for number, key in enumerate(keys):
            if value is not None and value == key:  # no NaN equals another
                file, at = divmod(row, ROWS)
                found.setdefault((number, file, at // GROUP), []).append(at)
    return found


def as_found(table: pa.Table, keys: list[Any]) -> dict[tuple[int, int, int], list[int]]:
    number = {repr(key): i for i, key in enumerate(keys)}
    return {
        (number[repr(row["key"])], int(Path(row["file"]).stem), row["row_group"]): row.get("row_numbers", [])
        for row in table.to_pylist()
    }


def hold_all_places(folder: Path, kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold what is located of keys of the second file, and of others, against brute force."""
    case, data, index = f"{kind} by {way}", folder / "data", None
    values = write(data, kind)
    if way in ("index", "parts"):
        monkeypatch.setattr(manifest, "_PART_ENTRIES", 40 if way == "parts" else 1 << 20)
        index = folder / "index"
        parquet_bloom.build_index(data, "k", index, false_places=1e-4)
        assert (len(list(index.glob("columns/0/*"))) > 1) == (way == "parts")
    elif way == "filters":
        parquet_bloom.add_filters(data, columns=["k"], fpp=1e-4, in_place=True)
    absent = values_of(kind, np.random.default_rng(99), 40)
    keys = pa.concat_arrays([values.chunk(1).slice(0, 30), absent]).unique().drop_null()
    listed = keys.to_pylist()
    if kind == "double":  # a NaN equals none; -0.0 and 0.0 are one key
        keys = pa.concat_arrays([keys, pa.array([0.0])])
        listed = sorted({value + 0.0 for value in keys.to_pylist() if value == value})
    wanted = brute(values, listed)

    found = parquet_bloom.locate(data, "k", keys, index)
    assert as_found(found, listed).keys() >= wanted.keys(), case
    assert found.num_rows == len(as_found(found, listed)), f"{case}: each place of a key once"
    facts = facts_of(found)
    assert (facts["covered"], facts["searched"]) == ((FILES, 0) if index is not None else (0, FILES))
    if way != "nothing":
        assert found.num_rows <= len(wanted) + 3, f"{case}: few by chance"
    verified = parquet_bloom.locate(data, "k", keys, index, verify=True)
    assert {key: sorted(rows) for key, rows in as_found(verified, listed).items()} == wanted, case
    assert verified.column("first_row").to_pylist() == [g * GROUP for g in verified.column("row_group").to_pylist()]
    assert set(verified.column("rows").to_pylist()) <= {GROUP}


def test_all_places_of_keys_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an index of each kind, by turns of one part and of several, and by turns by filters and by nothing."""
    for at, kind in enumerate(KINDS):
        for way in (("index", "filters"), ("parts", "nothing"))[at % 2]:
            hold_all_places(tmp_path / f"{kind}-{way}", kind, way, monkeypatch)


def test_files_that_the_index_does_not_know_are_searched(tmp_path: Path) -> None:
    values = write(tmp_path / "data", "int64")
    (tmp_path / "data/2.parquet").rename(tmp_path / "2.parquet")
    parquet_bloom.build_index(tmp_path / "data", "k", tmp_path / "index")
    (tmp_path / "2.parquet").rename(tmp_path / "data/2.parquet")
    keys = values.chunk(2).slice(0, 20).unique().drop_null().to_pylist()
    found = parquet_bloom.locate(tmp_path / "data", "k", keys, tmp_path / "index", verify=True)
    assert as_found(found, keys).keys() == brute(values, keys).keys()
    assert (facts_of(found)["covered"], facts_of(found)["searched"]) == (2, 1)


def test_deleted_rows_of_a_table_are_not_located(tmp_path: Path) -> None:
    root = tmp_path / "lake"
    deltalake.write_deltalake(root, pa.table({"k": pa.array(range(300), pa.int64()), "v": ["x"] * 300}))
    parquet_bloom.build_index(f"delta:{root}", "k", tmp_path / "index")
    source = parquet_bloom.Source(f"delta:{root}", index=str(tmp_path / "index"))
    found = source.locate("k", [7, 8, 1000], verify=True)
    assert found.column("key").to_pylist() == [7, 8]
    assert found.column("deletes").to_pylist() == [False, False]

    log = (root / "_delta_log/00000000000000000000.json").read_text().splitlines()
    (add,) = (action["add"] for action in map(json.loads, log) if "add" in action)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    remove = {"remove": {"path": add["path"], "dataChange": True}}
    commit(root, 1, protocol, remove, {"add": {**add, "deletionVector": inline([7, 250])}})
    source.refresh()
    assert source.locate("k", [7, 8, 1000]).column("key").to_pylist() == [7, 8], "places, not rows"
    found = source.locate("k", [7, 8, 1000], verify=True)
    assert found.column("key").to_pylist() == [8]
    assert found.column("row_numbers").to_pylist() == [[8]]
    assert found.column("deletes").to_pylist() == [True]
    assert facts_of(found)["covered"] == 1, "the name in the log recognises the file"


def test_a_source_and_a_list_of_keys_with_null_and_twins(tmp_path: Path) -> None:
    values = write(tmp_path / "data", "text")
    key = next(value for value in values.to_pylist() if value is not None)
    found = parquet_bloom.Source(tmp_path / "data").locate("k", [key, None, key])
    assert set(found.column("key").to_pylist()) == {key}
    assert parquet_bloom.locate(tmp_path / "data", "k", pa.array([], pa.string())).num_rows == 0


def test_errors_are_clear(tmp_path: Path) -> None:
    write(tmp_path / "data", "int64")
    write(tmp_path / "other", "int32")
    parquet_bloom.build_index(tmp_path / "data", "k", tmp_path / "index")
    with pytest.raises(UnknownColumnError, match="nope"):
        parquet_bloom.locate(tmp_path / "data", "nope", [1])
    with pytest.raises(RequestError, match="INT64"):
        parquet_bloom.locate(tmp_path / "data", "k", ["a text"])
    with pytest.raises(RequestError, match="keys must be"):
        parquet_bloom.locate(tmp_path / "data", "k", [1, "a"])
    with pytest.raises(StaleIndexError, match="of none of these files"):
        parquet_bloom.locate(tmp_path / "other", "k", [1], tmp_path / "index")


def test_a_file_that_changes_between_search_and_verify_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "data", "int64")
    parquet_bloom.build_index(tmp_path / "data", "k", tmp_path / "index")
    key = pq.read_table(tmp_path / "data/0.parquet")["k"].drop_null()[0].as_py()
    before = module._verified

    def changed(one: Any, *rest: Any) -> Any:
        with open(one.file.path, "ab") as file:  # as another program would, at the worst moment
            file.write(b" ")
        return before(one, *rest)

    monkeypatch.setattr(module, "_verified", changed)
    with pytest.raises(FileChangedError, match="0.parquet"):
        parquet_bloom.locate(tmp_path / "data", "k", [key], tmp_path / "index", verify=True)


def test_a_file_that_changes_while_it_is_verified_loses_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """7 is in both versions, in the first and in the last row group; the sizes are equal."""
    versions = []
    for ids in ([7, *range(100, 163)], [*range(200, 263), 7]):
        pq.write_table(pa.table({"k": ids}), tmp_path / "x", row_group_size=8, compression="none", use_dictionary=False)
        versions.append((tmp_path / "x").read_bytes())
    file = tmp_path / "0.parquet"
    reader = module.ColumnReader

    def overtaken(*arguments: Any) -> Any:
        with open(file, "r+b") as other:  # as another program would, after the footer was read
            other.write(versions[1])
        return reader(*arguments)

    monkeypatch.setattr(module, "ColumnReader", overtaken)
    for keys in ([7], [100, 101]):
        file.write_bytes(versions[0])
        with pytest.raises(FileChangedError, match=r"0\.parquet"):
            parquet_bloom.locate(file, "k", keys, verify=True)


def test_a_million_keys(tmp_path: Path) -> None:
    """In one merge: a second or two, not a lookup a key."""
    (tmp_path / "data").mkdir()
    ids = np.random.default_rng(1).permutation(200_000).astype(np.int64) * 7
    pq.write_table(pa.table({"k": ids}), tmp_path / "data/0.parquet", row_group_size=2000)
    parquet_bloom.build_index(tmp_path / "data", "k", tmp_path / "index")
    keys = np.arange(1_000_000, dtype=np.int64)
    found = parquet_bloom.locate(tmp_path / "data", "k", keys, tmp_path / "index")
    wanted = set(zip(ids[ids < 1_000_000].tolist(), (np.flatnonzero(ids < 1_000_000) // 2000).tolist(), strict=True))
    got = set(zip(found.column("key").to_pylist(), found.column("row_group").to_pylist(), strict=True))
    assert wanted <= got
    facts = json.loads(found.schema.metadata[b"parquet_bloom"])
    assert len(got - wanted) < 3 * facts["expected_false"] + 10
