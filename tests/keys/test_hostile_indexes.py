"""Key indexes that are damaged, or made to do harm: no accident of bytes loses a row, and nothing outside is opened."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
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

GIGABYTE = 1 << 30


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


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "a folder"])
@pytest.mark.parametrize("which", ["manifest", "listing", "part"])
def test_what_is_damaged_is_done_without(which: str, damage: str, index: Path, shared: Path) -> None:
    pattern = {"manifest": "manifest.json", "listing": "segments/*/*", "part": "columns/0/*"}[which]
    [path] = index.glob(pattern)
    whole = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"")
    asked = questions(shared)
    answered, told = ask(shared, index, asked)
    if which == "manifest":  # without it nothing says that this is an index of these data
        assert answered == 0
    else:
        assert answered == len(asked)
        assert all(str(path) in one and one.endswith("these are read as without an index") for one in told)
    assert told


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

Change = Callable[[dict[str, Any]], Any]
FORGED: dict[str, Change] = {
    "an id that leads up": lambda words: words["segments"][0].update(id="../../../../etc"),
    "an id of sixteen dots": lambda words: words["segments"][0].update(id="." * 16),
    "an id with a line": lambda words: words["segments"][0].update(id="0" * 16 + "\n"),
    "an id of full-width digits": lambda words: words["segments"][0].update(id="０" * 16),
    "an id that is a number": lambda words: words["segments"][0].update(id=10**15),
    "two segments of one id": lambda words: words["segments"].append(words["segments"][0]),
    "a column number below zero": lambda words: words["segments"][0]["columns"][0].update(number=-1),
    "a column number beyond": lambda words: words["segments"][0]["columns"][0].update(number=2),
    "a column number that is a path": lambda words: words["segments"][0]["columns"][0].update(number="../x"),
    "a column twice": lambda words: words["segments"][0]["columns"].append(words["segments"][0]["columns"][0]),
    "no bits": lambda words: words["segments"][0]["columns"][0].update(bits=0),
    "64 bits": lambda words: words["segments"][0]["columns"][0].update(bits=64),
    "a million bits": lambda words: words["segments"][0]["columns"][0].update(bits=10**6),
    "bits that are true": lambda words: words["segments"][0]["columns"][0].update(bits=True),
    "many partitions": lambda words: words["segments"][0]["columns"][0].update(partition_bits=24),
    "partition bits below zero": lambda words: words["segments"][0]["columns"][0].update(partition_bits=-1),
    "no parts": lambda words: words["segments"][0]["columns"][0].update(parts=[]),
    "a part of two numbers": lambda words: words["segments"][0]["columns"][0].update(parts=[[1, 2]]),
    "a part of 10^30 rows": lambda words: words["segments"][0]["columns"][0].update(parts=[[10**30, 5, 5]]),
    "places beyond 32 bits": lambda words: words["segments"][0].update(places=2**31),
    "2^31 - 1 places": lambda words: (words["segments"][0].update(places=2**31 - 1),
                                      words["segments"][0]["listing"].__setitem__(0, 2**31 - 1)),
    "no places": lambda words: (words["segments"][0].update(places=0),
                                words["segments"][0]["listing"].__setitem__(0, 0)),
    "other files": lambda words: words["segments"][0].update(files=2),
    "no schemas": lambda words: words["segments"][0].update(schemas=[]),
    "a schema that is no Thrift": lambda words: words["segments"][0]["schemas"][0].update(thrift="/////w=="),
    "a schema that is no base64": lambda words: words["segments"][0]["schemas"][0].update(thrift="%%%"),
    "an empty schema": lambda words: words["segments"][0]["schemas"][0].update(thrift=""),
    "a schema of 100 KB": lambda words: words["segments"][0]["schemas"][0].update(thrift="KX" * 50_000),
    "a leaf beyond": lambda words: words["segments"][0]["schemas"][0].update(columns={"0": 99}),
    "a leaf below zero": lambda words: words["segments"][0]["schemas"][0].update(columns={"0": -1}),
    "a leaf of no number": lambda words: words["segments"][0]["schemas"][0].update(columns={"0": "1"}),
    "a column of no number": lambda words: words["segments"][0]["schemas"][0].update(columns={"x": 1}),
    "columns that are a list": lambda words: words["segments"][0]["schemas"][0].update(columns=[0, 1]),
    "segments that are a number": lambda words: words.update(segments=5),
    "a segment that is a text": lambda words: words.update(segments=["x"]),
    "columns without names": lambda words: words.update(columns=[{}]),
    "a rate of 10^400": lambda words: words.update(false_places=10**400),
    "a rate that is no number": lambda words: words.update(false_places=float("nan")),
    "a rate below zero": lambda words: words.update(false_places=-0.5),
    "half a character": lambda words: words.update(root="\ud800"),
    "a root that is a list": lambda words: words.update(root=["/"]),
    "a time before 1970": lambda words: words.update(created=-1),
    "nothing": lambda words: words.clear(),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_a_manifest_says_is_checked(name: str, index: Path, shared: Path) -> None:
    rewrite_manifest(index, FORGED[name])
    asked = questions(shared)
    answered, told = ask(shared, index, asked)
    assert told
    if answered:
        assert name in ("2^31 - 1 places", "no places", "other files", "no schemas"), (
            "a listing shows that they are wrong"
        )
    else:
        with pytest.raises(DamagedFileError, match=r"manifest\.json: its manifest is damaged"):
            parquet_bloom.check(shared, "a = 5", index=index)


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


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_manifest_is_one_line(name: str, index: Path, shared: Path) -> None:
    (index / "manifest.json").write_bytes(TEXTS[name])
    with pytest.raises(DamagedFileError) as e:
        parquet_bloom.check(shared, "a = 5", index=index)
    assert len(str(e.value)) < 500


def test_a_newer_version_is_told(index: Path, shared: Path) -> None:
    words = json.loads((index / "manifest.json").read_text())
    (index / "manifest.json").write_text(json.dumps(words | {"format_version": 3}))
    with pytest.raises(RequestError, match="has version 3 of the format"):
        parquet_bloom.check(shared, "a = 5", index=index)


def test_a_wrong_checksum_is_damage(index: Path, shared: Path) -> None:
    text = (index / "manifest.json").read_text()
    (index / "manifest.json").write_text(text.replace('"rows": 180', '"rows": 181'))
    with pytest.raises(DamagedFileError, match="its checksum is wrong"):
        parquet_bloom.check(shared, "a = 5", index=index)


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


@pytest.mark.parametrize("name", PARTS)
def test_entries_that_cannot_be_are_damage(name: str, index: Path, shared: Path) -> None:
    """With checksums that fit."""
    [part] = parts_of(index, 0)
    entries = PARTS[name](by_pyarrow(part))
    write_entries(part, entries)
    said_anew(index, part, len(entries))
    asked = questions(shared)
    answered, told = ask(shared, index, asked)
    assert answered == len(asked)
    assert any(str(part) in one for one in told)


@pytest.mark.parametrize(
    "options", [{"row_group_size": 50}, {"use_dictionary": False}, {"compression": "zstd"}], ids=str
)
def test_entries_of_another_writer_are_entries(options: dict[str, Any], index: Path, shared: Path) -> None:
    [part] = parts_of(index, 0)
    entries = by_pyarrow(part)
    write_entries(part, entries, **options)
    said_anew(index, part, len(entries))
    asked = questions(shared)
    assert ask(shared, index, asked) == (len(asked), [])


def test_parts_that_are_exchanged_are_known_by_their_footers(index: Path, shared: Path) -> None:
    [one], [other] = parts_of(index, 0), parts_of(index, 1)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    asked = questions(shared)
    answered, told = ask(shared, index, asked)
    assert answered == len(asked)
    assert told


def test_parts_of_another_index_are_known_by_their_footers(index: Path, shared: Path, tmp_path: Path) -> None:
    """Of the same files, but for one value."""
    table = pq.read_table(shared / "1.parquet")
    (tmp_path / "other").mkdir()
    shutil.copytree(shared, tmp_path / "other/data")
    values = pa.array([77, *table["a"].to_pylist()[1:]])
    pq.write_table(table.set_column(0, "a", values), tmp_path / "other/data/1.parquet", row_group_size=20)
    build_index(tmp_path / "other/data", ["a", "s"], tmp_path / "other/index")
    for number in (0, 1):
        [mine], [theirs] = parts_of(index, number), parts_of(tmp_path / "other/index", number)
        mine.write_bytes(theirs.read_bytes())
    asked = questions(shared)
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


@pytest.mark.parametrize("name", LISTED)
def test_a_listing_that_cannot_be_is_damage(name: str, index: Path, shared: Path) -> None:
    [path] = index.glob("segments/*/files.parquet")
    table = LISTED[name](pq.ParquetFile(path).read())
    pq.write_table(table, path, store_schema=False, write_page_checksum=True)
    said_anew(index, path, table.num_rows)
    asked = questions(shared)
    answered, told = ask(shared, index, asked)
    assert answered == len(asked)
    assert any(str(path) in one for one in told)
