"""Key indexes that are damaged, or made to do harm: no accident of bytes loses a row, and nothing outside is opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repeats import more_then_slow

import parquet_bloom
from keys.key_indexes import ask, by_pyarrow, files_of, parts_of, questions, rewrite_manifest, said_anew
from parquet_bloom.errors import DamagedFileError, RequestError
from parquet_bloom.keys.build import build_index

# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 40), 2)])
def test_no_row_is_lost_to_wrong_bytes(seed: int, index: Path, shared: Path) -> None:
    asked, rng = questions(shared)[:3], Random(seed)
    said = 0
    for _ in range(60):
        path = rng.choice(files_of(index))
        whole = path.read_bytes()
        data = bytearray(whole)
        match rng.choice(["bit", "byte", "bytes", "cut", "longer", "other"]):
            case "bit":
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case "byte":
                data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            case "bytes":
                at = rng.randrange(len(data))
                data[at : at + 8] = rng.randbytes(8)
            case "cut":
                del data[rng.randrange(len(data)) :]
            case "longer":
                data += rng.randbytes(9)
            case "other":
                data = bytearray(rng.choice(files_of(index)).read_bytes())
        path.write_bytes(data)
        _, told = ask(shared, index, asked)
        said += bool(told)
        path.write_bytes(whole)
    assert said > 20
    assert ask(shared, index, asked) == (3, [])


@pytest.mark.parametrize("seed", [0, *more_then_slow(range(1, 20), 1)])
def test_every_bit_of_a_page_header_counts_or_is_no_matter(seed: int, index: Path, shared: Path) -> None:
    """Checksums of pages are not of their headers, in which a bit may drop the checksum, or the page."""
    places = []
    for path in files_of(index):
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                metadata = file.metadata
            for column in (metadata.row_group(0).column(i) for i in range(metadata.num_columns)):
                starts = {column.data_page_offset, column.dictionary_page_offset or column.data_page_offset}
                places += [(path, at + i) for at in starts for i in range(45)]
    asked = questions(shared)[:1]
    rng = Random(seed)
    for path, at in rng.sample(places, 60):
        whole = path.read_bytes()
        data = bytearray(whole)
        data[at] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        ask(shared, index, asked)
        path.write_bytes(whole)


def test_what_is_damaged_is_done_without(index: Path, shared: Path) -> None:
    asked = questions(shared)
    for pattern, damage in product(
        ("manifest.json", "segments/*/*", "columns/0/*"), ("gone", "empty", "cut", "a folder")
    ):
        [path] = index.glob(pattern)
        whole = path.read_bytes()
        path.unlink()
        if damage == "a folder":
            path.mkdir()
        elif damage != "gone":
            path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"")
        answered, told = ask(shared, index, asked)
        assert told, (pattern, damage)
        if path.name == "manifest.json":  # without it nothing says that this is an index of these data
            assert answered == 0, damage
        else:
            assert answered == len(asked), (pattern, damage)
            assert all(str(path) in one and one.endswith("these are read as without an index") for one in told)
        if damage == "a folder":
            path.rmdir()
        path.write_bytes(whole)
    assert ask(shared, index, asked) == (len(asked), [])


def test_a_damaged_part_says_nothing_of_its_column_alone(index: Path, shared: Path) -> None:
    [part] = parts_of(index, 0)
    part.write_bytes(part.read_bytes()[:-1] + b"2")
    data = shared
    value = pq.read_table(data)["a"][0].as_py()
    by_a = parquet_bloom.check(data, f"a = {value}", index=index)
    assert [note.count(str(part)) for note in by_a.notes] == [1]
    assert not [one for one in by_a if one.decided_by == "index"]
    by_s = parquet_bloom.check(data, "s = 'v5005'", index=index)
    assert by_s.notes == []
    assert not [one for one in by_s if not one.skipped]


# --- forged ---------------------------------------------------------------------------------------

SEGMENT, COLUMN, SCHEMA = ("segments", 0), ("segments", 0, "columns", 0), ("segments", 0, "schemas", 0)
FORGED: list[tuple[tuple[Any, ...], list[Any]]] = [  # a place in the manifest, and what may not stand there
    (
        (*SEGMENT, "id"),
        ["../../../../etc", "." * 16, "0" * 16 + "\n", "\uff10" * 16, 10**15],  # the fourth of full-width digits
    ),
    ((*COLUMN, "number"), [-1, 2, "../x"]),
    ((*COLUMN, "bits"), [0, 64, 10**6, True]),
    ((*COLUMN, "partition_bits"), [24, -1]),
    ((*COLUMN, "parts"), [[], [[1, 2]], [[10**30, 5, 5]]]),
    ((*SEGMENT, "places"), [2**31]),
    ((*SCHEMA, "thrift"), ["/////w==", "%%%", "", "KX" * 50_000]),
    ((*SCHEMA, "columns"), [{"0": 99}, {"0": -1}, {"0": "1"}, {"x": 1}, [0, 1]]),
    (("segments",), [5, ["x"]]),
    (("columns",), [[{}]]),
    (("false_places",), [10**400, float("nan"), -0.5]),
    (("root",), ["\ud800", ["/"]]),
    (("created",), [-1]),
]


def put(words: dict[str, Any], place: tuple[Any, ...], value: Any) -> None:
    *folders, last = place
    inside: Any = words
    for one in folders:
        inside = inside[one]
    inside[last] = value


def places(words: dict[str, Any], n: int) -> None:
    words["segments"][0]["places"] = words["segments"][0]["listing"][0] = n


CHANGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "two segments of one id": lambda words: words["segments"].append(words["segments"][0]),
    "a column twice": lambda words: words["segments"][0]["columns"].append(words["segments"][0]["columns"][0]),
    "nothing": lambda words: words.clear(),
    **{f"{value!r:.40} at {place}": partial(put, place=place, value=value) for place, some in FORGED for value in some},
}
BY_ITS_LISTING: dict[str, Callable[[dict[str, Any]], Any]] = {  # which shows that the manifest is wrong
    "2^31 - 1 places": lambda words: places(words, 2**31 - 1),
    "no places": lambda words: places(words, 0),
    "other files": lambda words: words["segments"][0].update(files=2),
    "no schemas": lambda words: words["segments"][0].update(schemas=[]),
}


def test_what_a_manifest_says_is_checked(index: Path, shared: Path) -> None:
    asked, manifest = questions(shared), (index / "manifest.json").read_bytes()
    for name, change in (CHANGED | BY_ITS_LISTING).items():
        rewrite_manifest(index, change)
        answered, told = ask(shared, index, asked)
        assert told, name
        assert not answered or name in BY_ITS_LISTING
        if not answered:
            with pytest.raises(DamagedFileError, match=r"manifest\.json: its manifest is damaged"):
                pytest.fail(f"{name} gives {parquet_bloom.check(shared, 'a = 5', index=index)}")
        (index / "manifest.json").write_bytes(manifest)


TEXTS = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "another format": b'{"format": "parquet-bloom zones"}',
    "no version": b'{"format": "parquet-bloom key index"}',
    "nested lists": b"[" * 200_000,
    "nested in an index": b'{"format": "parquet-bloom key index", "format_version": 2, "crc32": 0, "index": '
    + b"[" * 900 + b"]" * 900 + b"}",
    "digits": b'{"format": "parquet-bloom key index", "format_version": ' + b"9" * 5000 + b"}",
    "UTF-16": '{"format": "x"}'.encode("utf-16"),
    "zeros": bytes(4000),
}  # fmt: skip


def test_what_is_no_manifest_is_one_line(index: Path, shared: Path) -> None:
    manifest = index / "manifest.json"
    whole = manifest.read_text()
    newer = json.dumps(json.loads(whole) | {"format_version": 3})
    told: list[tuple[bytes, type[Exception], str]] = [
        *((text, DamagedFileError, r"manifest\.json: ") for text in TEXTS.values()),
        (newer.encode(), RequestError, "has version 3 of the format"),
        (whole.replace('"rows": 180', '"rows": 181').encode(), DamagedFileError, "its checksum is wrong"),
    ]
    for text, error, said in told:
        manifest.write_bytes(text)
        with pytest.raises(error, match=said) as e:
            pytest.fail(f"{text[:60]!r} gives {parquet_bloom.check(shared, 'a = 5', index=index)}")
        assert len(str(e.value)) < 500


def write_entries(path: Path, entries: list[tuple[int, int]], **options: Any) -> None:
    kinds = pa.schema([pa.field("hash", pa.int64(), False), pa.field("place", pa.int32(), False)])
    columns = [[one[i] for one in entries] for i in (0, 1)]
    pq.write_table(pa.table(columns, schema=kinds), path, write_page_checksum=True, store_schema=False, **options)


PARTS: dict[str, Callable[[list[tuple[int, int]]], list[tuple[int, int]]]] = {
    "places beyond": lambda entries: [(one, place + 9) for one, place in entries],
    "places below zero": lambda entries: [(one, -1) for one, place in entries],
    "not sorted": lambda entries: entries[::-1],
    "not sorted inside": lambda entries: [entries[0], *entries[1:-1][::-1], entries[-1]],
}


def test_entries_that_cannot_be_are_damage(index: Path, shared: Path) -> None:
    """With checksums that fit."""
    [part] = parts_of(index, 0)
    entries, asked = by_pyarrow(part), questions(shared)
    for name, change in PARTS.items():
        write_entries(part, change(entries))
        said_anew(index, part, len(entries))
        answered, told = ask(shared, index, asked)
        assert answered == len(asked), name
        assert any(str(part) in one for one in told), name
    for options in ({"row_group_size": 50}, {"use_dictionary": False}, {"compression": "zstd"}):
        write_entries(part, entries, **options)
        said_anew(index, part, len(entries))
        assert ask(shared, index, asked) == (len(asked), []), f"by another writer, {options}"


def test_parts_of_another_place_or_index_are_known_by_their_footers(index: Path, shared: Path, tmp_path: Path) -> None:
    [one], [other] = parts_of(index, 0), parts_of(index, 1)
    asked, first, second = questions(shared), one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    answered, told = ask(shared, index, asked)
    assert answered == len(asked)
    assert told
    table = pq.read_table(shared / "1.parquet")  # an index of the same files, but for one value
    shutil.copytree(shared, tmp_path / "other/data")
    values = pa.array([77, *table["a"].to_pylist()[1:]])
    pq.write_table(table.set_column(0, "a", values), tmp_path / "other/data/1.parquet", row_group_size=20)
    build_index(tmp_path / "other/data", ["a", "s"], tmp_path / "other/index")
    for mine, number in ((one, 0), (other, 1)):
        [theirs] = parts_of(tmp_path / "other/index", number)
        mine.write_bytes(theirs.read_bytes())
    answered, _ = ask(shared, index, asked)
    assert answered == len(asked)


LISTED: dict[str, Callable[[pa.Table], pa.Table]] = {
    "no paths": lambda t: t.set_column(2, "path", pa.nulls(t.num_rows, pa.string())),
    "paths that are numbers": lambda t: t.set_column(2, "path", pa.array(range(t.num_rows))),
    "paths that are lists": lambda t: t.set_column(2, "path", pa.array([["a"]] * t.num_rows)),
    "paths that are bytes": lambda t: t.set_column(2, "path", t["path"].cast(pa.binary())),
    "files that are not there": lambda t: t.set_column(1, "file", pa.array([0] * t.num_rows, pa.int32())),
    "row groups from one": lambda t: t.set_column(3, "row_group", pa.array([n.as_py() + 1 for n in t["row_group"]])),
    "a schema that is not there": lambda t: t.set_column(6, "schema", pa.array([7] * t.num_rows, pa.int32())),
    "tokens that are texts": lambda t: t.set_column(t.column_names.index("inode"), "inode", t["path"]),
    "tokens that are floats": lambda t: t.set_column(
        t.column_names.index("size"), "size", pa.array([float("nan")] * t.num_rows)),
    "bounds that are texts": lambda t: t.set_column(t.column_names.index("lower_0"), "lower_0", t["path"]),
    "flags that are numbers": lambda t: t.set_column(t.column_names.index("some_null_0"), "some_null_0", t["place"]),
    "flags that are missing": lambda t: t.drop(["some_value_0"]),
    "no columns": lambda t: t.select(["place"]),
}  # fmt: skip


def test_a_listing_that_cannot_be_is_damage(index: Path, shared: Path) -> None:
    [path] = index.glob("segments/*/files.parquet")
    whole, asked = pq.ParquetFile(path).read(), questions(shared)
    for name, change in LISTED.items():
        table = change(whole)
        pq.write_table(table, path, store_schema=False, write_page_checksum=True)
        said_anew(index, path, table.num_rows)
        answered, told = ask(shared, index, asked)
        assert answered == len(asked), name
        assert any(str(path) in one for one in told), name
