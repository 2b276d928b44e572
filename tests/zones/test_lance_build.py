"""Zone indexes that we build, against those of pylance: zones, filters, metadata and null bitmaps, bit for bit."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.corpus import vector_file
from support.lance_data import KINDS, REFUSED, content, lance, their_index, values

from parquet_bloom.errors import DamagedFileError, FilterFormatError, RefusedTypeError, RequestError, StorageError
from parquet_bloom.format import lance as form
from parquet_bloom.format import roaring
from parquet_bloom.storage.workers import chain_results
from parquet_bloom.zones.build import ZoneMaker, build_index
from parquet_bloom.zones.container import ZoneFile

VECTORS = ["float64_special", "int64_3frag_n100_p0.01", "int8_n50", "string_n64_p0.001", "timestamp_us"]


def same(ours, theirs):
    for mine, other in zip(content(ours), content(theirs), strict=True):
        assert mine == other


# --- the vectors ----------------------------------------------------------------------------------


def test_parquet_files_give_the_vectors_bit_for_bit(tmp_path):
    for name in VECTORS:
        facts = json.loads(vector_file(f"lance/{name}/facts.json").read_text())
        table = pq.read_table(vector_file(f"lance/{name}/source.parquet"))
        rows, data = facts["rows_per_fragment"], tmp_path / name / "data"
        data.mkdir(parents=True)
        for i in range(0, table.num_rows, rows):
            # Zones know nothing of row groups.
            pq.write_table(table.slice(i, rows), data / f"{i:06}.parquet", row_group_size=37)
        items, probability = facts["params"]["number_of_items"], facts["params"]["probability"]
        built = build_index(data, ["c"], tmp_path / name / "out", items=items, probability=probability)
        assert built.fragments == -(-table.num_rows // rows)
        same(built.indexes[0].path, vector_file(f"lance/{name}/bloomfilter.lance"))
        assert ZoneFile(built.indexes[0].path).version == "2.1"


def test_deleted_rows_give_the_vector_bit_for_bit():
    table = pq.read_table(vector_file("lance/deleted_rows_n100/source.parquet"))
    zones = []
    for fragment in (0, 1):
        rows = table.filter(pc.equal(table["fragment_id"], pa.scalar(fragment, pa.uint64())))
        maker = ZoneMaker(0, fragment, form.Parameters(100, 0.01))
        offsets = rows["offset_in_fragment"].to_numpy().astype(np.int64)
        pieces = [*maker.add(offsets, rows["c"].combine_chunks()), maker.finish({})]
        assert pieces[-1].nulls == b""
        zones += [piece.zones for piece in pieces]
    theirs = content(vector_file("lance/deleted_rows_n100/bloomfilter.lance"))[0]
    assert pa.Table.from_batches(zones).combine_chunks() == theirs


def test_their_files_are_read():
    for name in (*VECTORS, "deleted_rows_n100"):
        facts = json.loads(vector_file(f"lance/{name}/facts.json").read_text())
        index = ZoneFile(str(vector_file(f"lance/{name}/bloomfilter.lance")))
        assert (index.parameters.items, index.parameters.probability) == tuple(facts["params"].values())
        found = zip(index.fragment, index.start, index.length, index.has_null, strict=True)
        keys = ("fragment_id", "zone_start", "zone_length", "has_null")
        assert [tuple(zone) for zone in found] == [tuple(zone[k] for k in keys) for zone in facts["zones"]]
        assert {zone["bytes"] for zone in facts["zones"]} == {index.parameters.num_bytes}
        rows = pq.read_table(vector_file(f"lance/{name}/source.parquet"))
        for fragment in set(index.fragment.tolist()):
            mine = rows.filter(pc.equal(rows["fragment_id"], pa.scalar(fragment, pa.uint64())))
            ranges = index.nulls.get(fragment, np.empty((0, 2), np.int64))
            offsets = mine["offset_in_fragment"].to_numpy().astype(np.int64)
            assert roaring.contains(ranges, offsets).tolist() == mine["c"].is_null().to_pylist(), (name, fragment)
        assert index.fragments is None


# --- sizes ----------------------------------------------------------------------------------------


def test_sizes_are_pylances_for_100_pairs(tmp_path):
    rng = random.Random(5)
    pairs = [(8192, 0.00057), (1, 0.5), (1, 1e-9), (4, 0.01), (10**5, 0.999)]
    while len(pairs) < 100:
        pair = round(2 ** rng.uniform(0, 17)), round(10 ** rng.uniform(-9, -0.02), 12)
        if form.filter_bytes(*pair) <= 1 << 20:
            pairs.append(pair)
    dataset = lance.write_dataset(pa.table({"c": [1]}), tmp_path / "one.lance")
    for items, probability in pairs:
        zones, _, metadata = content(their_index(dataset, "c", items, probability))
        assert len(zones["bloom_filter_data"][0].as_py()) == form.filter_bytes(items, probability), (items, probability)
        # Rust's shortest decimal, and Python's.
        assert metadata[b"bloomfilter_probability"].decode() == form.shortest(probability)


def test_sizes_end_at_both_ends_and_some_make_no_filter():
    assert form.filter_bytes(1, 0.9) == 32
    assert form.filter_bytes(10**9, 1e-300) == 1 << 27
    assert form.filter_bytes(8192, 0.00057) == 32768
    for items, probability in ((0, 0.1), (-1, 0.1), (5, 0), (5, 1), (5, 1.5), (5, float("nan"))):
        with pytest.raises(RequestError):
            form.Parameters(items, probability)


# --- against pylance ------------------------------------------------------------------------------


def of_all_kinds(rows, seed):
    """A column of each type, of its name."""
    return pa.table({name: values(kind, rows, seed + i) for i, (name, kind) in enumerate(KINDS.items())})


def test_all_types_equal_pylance_with_nulls_deletions_fragments_and_appended_rows(tmp_path):
    uri = tmp_path / "d.lance"
    lance.write_dataset(of_all_kinds(700, 1).append_column("n", pa.array(range(700))), uri, max_rows_per_file=300)
    lance.write_dataset(of_all_kinds(50, 2).append_column("n", pa.array(range(700, 750))), uri, mode="append")
    dataset = lance.dataset(uri)
    dataset.delete("n in (0, 1, 40, 299, 300, 420) or (n > 80 and n < 110)")
    built = build_index(uri, list(KINDS), tmp_path / "out", items=64, probability=0.001)
    assert built.fragments == 4
    assert [index.column for index in built.indexes] == list(KINDS)
    for index in built.indexes:
        same(index.path, their_index(dataset, index.column, 64, 0.001))


def test_parquet_files_of_all_types_equal_pylance_over_the_same_tables(tmp_path):
    """Hashed is what pyarrow reads: one byte of an int8, where Parquet stores four."""
    (tmp_path / "data").mkdir()
    uri = tmp_path / "d.lance"
    for rows in (300, 170):
        pq.write_table(of_all_kinds(rows, rows), tmp_path / f"data/{1 / rows}.parquet")
        read = pq.read_table(tmp_path / f"data/{1 / rows}.parquet")
        dataset = lance.write_dataset(read, uri, mode="append" if uri.exists() else "create")
    for index in build_index(tmp_path / "data", list(KINDS), tmp_path / "out", items=64, probability=0.001).indexes:
        same(index.path, their_index(dataset, index.column, 64, 0.001))


def test_many_nulls_equal_pylance(tmp_path):
    """Containers of 65,536 rows: full, half full, with few members, none; and a fragment without any."""
    mask = np.zeros(400_000, bool)
    mask[:65_536] = True
    mask[65_536:131_072:2] = True
    mask[131_072 : 131_072 + 4096] = True
    mask[200_000 : 200_000 + 4097] = True
    mask[399_999] = True
    table = pa.table({"c": pa.array(np.arange(400_000), mask=mask)})
    uri = tmp_path / "d.lance"
    lance.write_dataset(table, uri)
    dataset = lance.write_dataset(pa.table({"c": range(100)}), uri, mode="append")
    built = build_index(uri, ["c"], tmp_path / "out")
    same(built.indexes[0].path, their_index(dataset, "c"))
    ranges = ZoneFile(built.indexes[0].path).nulls[0]
    assert np.array_equal(roaring.contains(ranges, np.arange(400_000)), mask)


def test_nested_and_several_columns_in_one_pass(tmp_path):
    inner = pa.StructArray.from_arrays(
        [values(pa.int32(), 200)], ["id"], mask=pa.array([i % 5 == 0 for i in range(200)])
    )
    table = pa.table({"user": inner, "name": values(pa.string(), 200), "other": range(200)})
    uri = tmp_path / "d.lance"
    dataset = lance.write_dataset(table, uri, max_rows_per_file=150)
    pq.write_table(table.slice(0, 150), tmp_path / "1.parquet")
    pq.write_table(table.slice(150), tmp_path / "2.parquet")
    ours = build_index(uri, ["user.*", "name"], tmp_path / "a", items=32)
    theirs = {c: their_index(dataset, c, 32) for c in ("user.id", "name")}
    files = build_index([tmp_path / "1.parquet", tmp_path / "2.parquet"], ["name", "user.id"], tmp_path / "b", items=32)
    for report in (ours, files):
        assert [index.column for index in report.indexes] == ["user.id", "name"]
        for index in report.indexes:
            same(index.path, theirs[index.column])
    assert (tmp_path / "a/user.id/bloomfilter.lance").is_file()


def test_fragments_side_by_side_keep_their_order(tmp_path):
    for i in range(12):
        rows = pa.table({"a": values(pa.int64(), 1 + 97 * (i % 4), i), "b": values(pa.string(), 1 + 97 * (i % 4), i)})
        pq.write_table(rows, tmp_path / f"{i:02}.parquet")
    files = sorted(tmp_path.glob("*.parquet"))
    alone = build_index(files, ["a", "b"], tmp_path / "alone", items=10, threads=1)
    for threads in (2, 5):
        built = build_index(files, ["a", "b"], tmp_path / f"by{threads}", items=10, threads=threads)
        for one, other in zip(built.indexes, alone.indexes, strict=True):
            same(one.path, other.path)
            assert sorted(set(content(one.path)[0]["fragment_id"].to_pylist())) == list(range(12))


def test_who_runs_ahead_stops_when_nobody_wants_the_results():
    made = []

    def work(key):
        for i in range(1000):
            made.append((key, i))
            yield key, i
            if key == 2:
                raise ValueError("the third one fails")

    results = chain_results(work, range(5), 2, 3)
    assert next(results) == (0, 0)
    results.close()
    assert len(made) < 20
    with pytest.raises(ValueError, match="the third one fails"):
        list(chain_results(work, range(5), 2, 3))
    found = [key for key, _ in chain_results(lambda key: [(key, 0)] * key, range(5), 3, 1)]
    assert found == [1, 2, 2, 3, 3, 3, 4, 4, 4, 4]


# --- what is refused ------------------------------------------------------------------------------


def test_refused_types_say_what_to_use_instead(tmp_path):
    for name, kind in REFUSED.items():
        dataset = lance.write_dataset(pa.table({"c": pa.nulls(3, kind)}), tmp_path / f"{name}.lance")
        with pytest.raises(BaseException, match="(?i)bloom|type"):
            their_index(dataset, "c")
        with pytest.raises((RefusedTypeError, RequestError), match="c"):
            build_index(tmp_path / f"{name}.lance", ["c"], tmp_path / "out")
        assert not (tmp_path / "out").exists(), name


def test_what_cannot_be_built_leaves_nothing(tmp_path):
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["1"], "b": ["x"]}), tmp_path / "2.parquet")
    with pytest.raises(RequestError, match=r"2.parquet: column a is string, in the first file int64"):
        build_index(tmp_path, ["a", "b"], tmp_path / "out")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()]
    build_index(tmp_path / "1.parquet", ["a"], tmp_path / "out")
    with pytest.raises(StorageError, match="exists; give overwrite=True"):
        build_index(tmp_path / "1.parquet", ["a"], tmp_path / "out")
    build_index(tmp_path / "1.parquet", ["a"], tmp_path / "out", overwrite=True)
    assert len([p for p in (tmp_path / "out").rglob("*") if p.is_file()]) == 1
    with pytest.raises(RequestError, match="one data set"):
        build_index([tmp_path / "1.parquet", tmp_path / "d.lance"], ["a"], tmp_path / "out2")


def test_damaged_indexes_are_errors(tmp_path):
    pq.write_table(pa.table({"a": range(300)}), tmp_path / "1.parquet")
    path = build_index(tmp_path / "1.parquet", ["a"], tmp_path / "out", items=100).indexes[0].path
    whole = Path(path).read_bytes()
    rng = random.Random(1)
    opened = 0
    for _ in range(60):
        bad = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        (tmp_path / "bad.lance").write_bytes(bad[: rng.choice([len(bad), rng.randrange(len(bad))])])
        try:
            index = ZoneFile(str(tmp_path / "bad.lance"))
            assert index.nulls is None or isinstance(index.nulls, dict)
            index.admits([np.array([1], np.uint64)], np.arange(index.zones))
            opened += 1
        except DamagedFileError:
            pass
    assert opened < 60
    pq.write_table(pa.table({"a": [1]}), tmp_path / "p.lance")
    with pytest.raises(DamagedFileError):
        ZoneFile(str(tmp_path / "p.lance"))


def test_damaged_bitmaps_are_errors():
    writer = roaring.Writer()
    writer.add(np.array([1, 5, 70_000, 70_001], np.int64))
    data = writer.finish()
    assert roaring.decode(data).tolist() == [[1, 2], [5, 6], [70_000, 70_002]]
    for cut in range(len(data)):
        with pytest.raises(FilterFormatError):
            roaring.decode(data[:cut])
    with pytest.raises(FilterFormatError):
        roaring.decode(data + b"\0")
    with pytest.raises(FilterFormatError):
        form.decode_nulls(b"\x01\0\0\0")


def test_bitmaps_with_runs_are_read():
    """As RoaringFormatSpec has it: cookie 12347, one container of two runs, no list of places."""
    data = bytes.fromhex("3b3000000100000b0002000a00090064000100")
    ranges = roaring.decode(data)
    assert ranges.tolist() == [[10, 20], [100, 102]]
    count = roaring.count_within(ranges, np.array([0, 15, 20, 101]), np.array([200, 16, 100, 500]))
    assert count.tolist() == [12, 1, 0, 1]
