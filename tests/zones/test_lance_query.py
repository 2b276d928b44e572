"""Zone indexes asked, verified and registered: never a row lost, by us or by Lance, and stale or wrong ones refused."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.commands import command, error_lines
from support.corpus import vector_file
from support.lance_data import KINDS, lance, their_index, values

import parquet_bloom
import parquet_bloom.lance as zones
from parquet_bloom.errors import DamagedFileError, FileError, RequestError, StaleIndexError, TextError
from parquet_bloom.extras import to_install
from parquet_bloom.format import lance as form
from parquet_bloom.output.atomic_file import AtomicFile
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Compare, IsIn, IsNull, Not, Or
from parquet_bloom.zones.container import COLUMN, FRAGMENTS, ZoneFile, ZoneWriter
from parquet_bloom.zones.match import parse_kind


def rewrite(path, out, change=lambda table: table, metadata=lambda m: m, nulls=lambda data: data):
    """A copy of an index with something changed."""
    reader = lance.file.LanceFileReader(str(path))
    table = change(reader.read_all().to_table().combine_chunks())
    said = metadata({k.decode(): v.decode() for k, v in table.schema.metadata.items()})
    with lance.file.LanceFileWriter(str(out), form.ZONE_SCHEMA, version="2.1") as writer:
        for key, value in said.items():
            writer.add_schema_metadata(key, value)
        writer.write_batch(table.cast(form.ZONE_SCHEMA).to_batches()[0])
        if form.NULL_BITMAP in said:
            writer.add_global_buffer(nulls(reader.read_global_buffer(1)))
    return str(out)


def without_bitmap(path):
    """A copy beside it."""
    copy = Path(path).with_name("bare.lance")
    return rewrite(path, copy, metadata=lambda said: {k: v for k, v in said.items() if k != form.NULL_BITMAP})


def of_100_numbers(folder, items=10):
    """An index of column a, 0 to 99, of one file."""
    pq.write_table(pa.table({"a": range(100)}), folder / "1.parquet")
    return zones.build_index(folder / "1.parquet", ["a"], folder / "out", items=items).indexes[0].path


def rows_kept(found, rows_of_fragment):
    """Which rows of all fragments, one after the other, lie in the zones found: bool[rows]."""
    starts = np.concatenate(([0], np.cumsum(rows_of_fragment)))
    kept = np.zeros(starts[-1], bool)
    for zone in found.zones:
        at = starts[zone.fragment] + zone.start
        kept[at : at + zone.length] = True
    return kept


def matching(table, tree):
    batch = table.combine_chunks().to_batches()[0]
    return row_filter(tree, table.schema).mask(batch).fill_null(False).to_numpy(zero_copy_only=False)


# --- query ----------------------------------------------------------------------------------------

LITERALS = {
    "date": [dt.date(1990, 1, 1), dt.date(1975, 5, 5)],
    "float": [0.0, -0.0, 1.5, float("nan")],
    "text": ["17", "é17", "éé5", "", b"5"],
}


def literals_of(kind, array):
    """Stored values as literals, and others."""
    from parquet_bloom.predicates.casts import OutOfReachError, literal_of

    stored = []
    for i in (3, 50, 199, 200, 333, 418):
        try:
            stored.append(literal_of(array[i]))
        except OutOfReachError:
            continue
    more = "float" if pa.types.is_floating(kind) else "date" if pa.types.is_date(kind) else "text"
    found = [v for v in [*stored, *LITERALS[more], 7, 300, 2**40, -1] if v is not None]
    fitting = []
    for literal in found:
        try:
            row_filter(Compare(("c",), "=", literal), pa.schema([("c", kind)]))
            fitting.append(literal)
        except RequestError:
            continue
    assert fitting
    return fitting


half = pytest.mark.parametrize(
    "names", [list(KINDS)[::2], pytest.param(list(KINDS)[1::2], marks=pytest.mark.more)], ids=len
)


@half
def test_no_row_is_lost_whatever_the_type(names, tmp_path):
    """Of every fourth type without a bitmap of nulls too."""
    made = {name: values(KINDS[name], 500, 3 + i) for i, name in enumerate(names)}
    whole = pa.table(made | {"other": range(500)})
    (tmp_path / "data").mkdir()
    for i, (first, rows) in enumerate(((0, 200), (200, 220), (420, 80))):
        pq.write_table(whole.slice(first, rows), tmp_path / f"data/{i}.parquet", row_group_size=90)
    whole = pq.read_table(tmp_path / "data")
    built = zones.build_index(tmp_path / "data", names, tmp_path / "out", items=32, probability=0.001).indexes
    for at, (name, one) in enumerate(zip(names, built, strict=True)):
        table, c = whole.select([name, "other"]), (name,)
        literals = literals_of(table.schema.field(name).type, table[name])
        trees = [Compare(c, "=", v) for v in literals]
        trees += [IsIn(c, tuple(literals[:3])), IsNull(c), Not(IsNull(c)), IsIn(c, (None,))]
        trees += [Or((trees[0], IsNull(c))), And((trees[0], IsNull(c))), Not(trees[0]), Compare(c, "<", literals[0])]
        trees += [And((trees[0], Compare(("other",), ">", 100))), Or((trees[0], Compare(("other",), ">", 100)))]
        wanted = [(tree, matching(table, tree)) for tree in trees]
        bare = [without_bitmap(one.path)] if at % 2 == 0 else []
        for index in (one.path, *bare):
            skipped = 0
            for tree, rows in wanted:
                kept = rows_kept(zones.query_index(index, tree), (200, 220, 80))
                assert not np.any(rows & ~kept), (name, str(tree))
                skipped += int(np.sum(~kept))
            assert skipped > 500, f"the index of {name} tells something"


@half
def test_stored_values_of_a_lance_data_set_are_found(names, tmp_path):
    """Seconds and date64 too, which Parquet, to whose types predicates are bound, does not have."""
    from parquet_bloom.predicates.casts import literal_of

    table = pa.table({name: values(KINDS[name], 300, 5 + i, nulls=False) for i, name in enumerate(names)})
    uri = tmp_path / "d.lance"
    dataset = lance.write_dataset(table, uri, max_rows_per_file=120)
    built = zones.build_index(uri, names, tmp_path / "out", items=20, probability=1e-5).indexes
    for name, ours in zip(names, built, strict=True):
        their_index(dataset, name, 20, 1e-5)
        skipped = 0
        for row in range(0, 300, 30):
            value = table[name][row]
            if pa.types.is_floating(KINDS[name]) and value.as_py() != value.as_py():
                continue
            tree = Compare((name,), "=", literal_of(value))
            for index in (ours.path, uri):
                found = zones.query_index(index, tree)
                assert rows_kept(found, (120, 120, 60))[row], (index, str(tree))
                assert found.unused == []
                skipped += found.total_zones - len(found.zones)
        assert skipped > 20, name


def test_is_null_is_exact_by_zones_with_and_without_a_bitmap(tmp_path):
    mask = np.zeros(100, bool)
    mask[[3, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 99]] = True
    pq.write_table(pa.table({"a": pa.array(np.arange(100), mask=mask)}), tmp_path / "1.parquet")
    for items in (1, 10, 1000):
        out = tmp_path / f"out{items}"
        index = zones.build_index(tmp_path / "1.parquet", ["a"], out, items=items).indexes[0].path
        bare = without_bitmap(index)
        of_zone = np.arange(100) // items
        holds = np.isin(of_zone, of_zone[mask])
        for path in (index, bare):
            assert np.array_equal(rows_kept(zones.query_index(path, "a IS NULL"), [100]), holds), items
        full = np.isin(of_zone, of_zone[~mask])
        assert np.array_equal(rows_kept(zones.query_index(index, "a IS NOT NULL"), [100]), full), items
        assert rows_kept(zones.query_index(bare, "a IS NOT NULL"), [100]).all(), "has_null does not say: all of them"


def test_several_columns_meet_in_stretches(tmp_path):
    pq.write_table(pa.table({"a": range(100), "b": [str(i) for i in range(100)]}), tmp_path / "1.parquet")
    zones.build_index(tmp_path / "1.parquet", ["a"], tmp_path / "out", items=10, probability=1e-6)
    zones.build_index(tmp_path / "1.parquet", ["b"], tmp_path / "out", items=15, probability=1e-6)
    found = zones.query_index(tmp_path / "out", "a = 12 AND b = '12'")
    assert [zone[:3] for zone in found.zones] == [(0, 10, 5)], "zone 1 of a, up to where zone 0 of b ends"
    found = zones.query_index(tmp_path / "out", "a = 12 OR b = '95'")
    assert [zone[:3] for zone in found.zones] == [(0, 10, 5), (0, 15, 5), (0, 90, 10)]
    assert zones.query_index(tmp_path / "out", "a = 12 AND b = '95'").zones == []
    assert found.zones[0].path == str(tmp_path / "1.parquet")


def test_parts_that_tell_nothing_are_named(tmp_path):
    pq.write_table(pa.table({"a": range(100), "b": range(100)}), tmp_path / "1.parquet")
    zones.build_index(tmp_path / "1.parquet", ["a"], tmp_path / "out", items=10)
    found = zones.query_index(tmp_path / "out", "a = 5 AND b = 3 AND lower(a) = 'x'")
    assert [part for part, _ in found.unused] == ["b = 3", "lower(a) = 'x'"]
    assert [zone.start for zone in found.zones] == [0]
    assert zones.query_index(tmp_path / "out", "b = 3").rows == 100
    assert zones.query_index(tmp_path / "out", "a = b").rows == 100, "b may be a column of the file"
    with pytest.raises(TextError):
        zones.query_index(tmp_path / "out", "a = = 5")
    with pytest.raises(RequestError, match="column a is INT64: 'x' is no literal for it"):
        zones.query_index(tmp_path / "out", "a = 'x' AND b = 3")


def test_their_indexes_answer(tmp_path):
    dataset = lance.write_dataset(
        pa.table({"x": range(90), "y": range(90)}), tmp_path / "d.lance", max_rows_per_file=40
    )
    path = their_index(dataset, "x", 10, 1e-6)
    lance.write_dataset(pa.table({"x": [41], "y": [41]}), tmp_path / "d.lance", mode="append")
    found = zones.query_index(tmp_path / "d.lance", "x = 41 AND y > 3")
    assert [zone[:3] for zone in found.zones] == [(1, 0, 10)]
    assert found.uncovered == [3], "appended later: nothing is known of it"
    assert [zone[:3] for zone in zones.query_index(path, "x = 41").zones] == [(1, 0, 10)], (
        "the manifest says the column"
    )
    alone = vector_file("lance/int64_3frag_n100_p0.01/bloomfilter.lance")
    with pytest.raises(RequestError, match="give column and type"):
        zones.query_index(alone, "c = 5")
    source = pq.read_table(vector_file("lance/int64_3frag_n100_p0.01/source.parquet"))
    row = source.slice(500, 1).to_pylist()[0]
    found = zones.query_index(alone, f"c = {row['c']}", column="c", type="int64")
    assert any(z.fragment == 1 and z.start <= row["offset_in_fragment"] < z.start + z.length for z in found.zones)
    assert len(found.zones) < 4


def test_names_of_types_read_back():
    for kind in (*KINDS.values(), pa.timestamp("ns", "Europe/Berlin")):
        assert parse_kind(str(kind)) == kind


# --- stale, foreign and wrong ----------------------------------------------------------------------


def test_a_stale_index_is_refused(tmp_path):
    index = of_100_numbers(tmp_path, 8192)
    assert zones.query_index(index, "a = 5").rows == 100
    pq.write_table(pa.table({"a": range(50, 150)}), tmp_path / "1.parquet")
    for call in (zones.query_index, lambda i, _: zones.verify_index(i)):
        with pytest.raises(StaleIndexError, match=r"1.parquet: is not as it was when .* build the index again"):
            call(index, "a = 120")
    assert zones.query_index(index, "a = 120", check=False).zones == [], "what it would have said"
    (tmp_path / "1.parquet").unlink()
    with pytest.raises(StaleIndexError, match="cannot be read"):
        zones.query_index(index, "a = 5")


def test_data_and_index_may_move_together_or_alone(tmp_path):
    (tmp_path / "one").mkdir()
    pq.write_table(pa.table({"a": range(100)}), tmp_path / "one/1.parquet")
    zones.build_index(tmp_path / "one/1.parquet", ["a"], tmp_path / "one/out")
    shutil.copytree(tmp_path / "one/out", tmp_path / "elsewhere/far/out")
    assert zones.verify_index(tmp_path / "elsewhere/far/out", root=tmp_path / "one")[0].status == "right"
    with pytest.raises(StaleIndexError, match="are in with root"):
        zones.verify_index(tmp_path / "elsewhere/far/out")
    (tmp_path / "one").rename(tmp_path / "two")
    assert zones.verify_index(tmp_path / "two/out")[0].status == "right"
    for number, rows in ((55, [55]), (1000, [])):
        found = parquet_bloom.read_table(tmp_path / "two/1.parquet", f"a = {number}", index=tmp_path / "two/out")
        assert found["a"].to_pylist() == rows
    with pytest.raises(StaleIndexError):
        zones.verify_index(tmp_path / "elsewhere/far/out", root=tmp_path / "two")


def lost_bits(table):
    filters = [f.as_py() for f in table["bloom_filter_data"]]
    filters[1] = bytes(len(filters[1]))
    return with_column(table, 4, filters)


def with_column(table, at, values):
    return table.set_column(at, form.ZONE_SCHEMA.field(at), [pa.array(values, form.ZONE_SCHEMA.field(at).type)])


WRONG = {
    "lost bits": {"change": lost_bits},
    "shifted": {"change": lambda table: with_column(table, 1, [s + 1 for s in table["zone_start"].to_pylist()])},
    "a zone missing": {"change": lambda table: pa.concat_tables([table.slice(0, 1), table.slice(2)])},
    "has_null lies": {"change": lambda table: with_column(table, 3, [False] * table.num_rows)},
    "bitmap lies": {"nulls": lambda _: form.encode_nulls([])},
}


def test_verify_finds_what_is_wrong_and_register_refuses_it(tmp_path):
    table = pa.table({"a": pa.array(range(100), mask=np.arange(100) % 9 == 0)})
    uri = tmp_path / "d.lance"
    lance.write_dataset(table, uri, max_rows_per_file=60)
    index = zones.build_index(uri, ["a"], tmp_path / "out", items=10).indexes[0].path
    assert zones.verify_index(index)[0].status == "right"
    for which, changes in WRONG.items():
        bad = rewrite(index, Path(index).with_name("bad.lance"), **changes)
        verdict = zones.verify_index(bad)[0]
        assert verdict.status == "wrong", which
        assert verdict.reason
        with pytest.raises(DamagedFileError, match="is wrong and was not registered"):
            zones.register_index(bad, uri)
        assert not list(uri.glob("_indices/*"))
    assert not lance.dataset(uri).describe_indices()


def test_an_index_of_other_data_of_the_same_shape_is_refused(tmp_path):
    """Two data sets with the same fragments, rows and types."""
    for name, seed in (("one", 1), ("two", 2)):
        lance.write_dataset(pa.table({"a": values(pa.int64(), 100, seed)}), tmp_path / f"{name}.lance")
    index = zones.build_index(tmp_path / "one.lance", ["a"], tmp_path / "out").indexes[0].path
    with pytest.raises(StaleIndexError, match="has other data files"):
        zones.register_index(index, tmp_path / "two.lance")
    two = zones.build_index(tmp_path / "two.lance", ["a"], tmp_path / "two").indexes[0].path
    said = ZoneFile(two).metadata

    def forged(metadata):
        return metadata | {FRAGMENTS: said[FRAGMENTS], COLUMN: said[COLUMN]}

    liar = rewrite(index, Path(index).with_name("liar.lance"), metadata=forged)
    with pytest.raises(DamagedFileError, match="stored values are denied"):
        zones.register_index(liar, tmp_path / "two.lance")


def test_overlapping_zones_are_no_evidence(tmp_path):
    index = of_100_numbers(tmp_path)

    def longer(table):
        return with_column(table, 2, [n + 1 for n in table["zone_length"].to_pylist()])

    bad = rewrite(index, Path(index).with_name("bad.lance"), change=longer)
    with pytest.raises(DamagedFileError, match="overlap"):
        zones.query_index(bad, "a = 5")
    assert zones.inspect_index(bad).problems
    assert zones.verify_index(bad)[0].status == "wrong"


def test_a_filter_of_no_size_admits_everything(tmp_path):
    index = of_100_numbers(tmp_path)

    def cut(table):
        filters = [(f.as_py() * 2)[: 32 * (i % 2) + 5 * (i % 3)] for i, f in enumerate(table["bloom_filter_data"])]
        return with_column(table, 4, filters)

    bad = rewrite(index, Path(index).with_name("bad.lance"), change=cut)
    found = zones.query_index(bad, "a = 1000000")
    sizes = [32 * (i % 2) + 5 * (i % 3) for i in range(10)]
    assert {zone.start // 10 for zone in found.zones} >= {i for i, n in enumerate(sizes) if n % 32 or not n}
    assert len(found.zones) < 10


# --- register -------------------------------------------------------------------------------------

QUESTIONS = [
    "c IS NULL", "n = 5", "n IN (5, 600, 1000)", "c IS NULL AND n = 3", "f = 0.0", "f = -0.0", "s = 'é17'",
    "s IN ('17', 'x')", "s IS NOT NULL AND n = 44", "NOT (n = 5)", "n = 5 OR s = '17'", "f IS NULL OR n = 650",
    "f = CAST('NaN' AS DOUBLE)",
]  # fmt: skip


def test_lance_uses_a_registered_index_and_its_answers_stay(tmp_path):
    uri = tmp_path / "d.lance"
    columns = {"c": values(pa.int32(), 700, 1), "n": pa.array(range(700)), "s": values(pa.string(), 700, 2)}
    columns["f"] = values(pa.float64(), 700, 3)
    lance.write_dataset(pa.table(columns), uri, max_rows_per_file=300)
    lance.dataset(uri).delete("n > 100 AND n < 140")
    report = zones.build_index(uri, ["*"], tmp_path / "out", items=64)
    lance.write_dataset(pa.table(columns).slice(0, 20), uri, mode="append")
    lance.dataset(uri).delete("n = 600")
    before = [lance.dataset(uri).to_table(filter=q)["n"].to_pylist() for q in QUESTIONS]
    for index in report.indexes:
        verdict = zones.register_index(index.path, uri)
        assert (verdict.status, verdict.fragments) == ("right", 3)
    dataset = lance.dataset(uri)
    assert {i.name: sorted(i.segments[0].fragment_ids) for i in dataset.describe_indices()} == {
        f"{c}_idx": [0, 1, 2] for c in columns
    }
    assert [dataset.to_table(filter=q)["n"].to_pylist() for q in QUESTIONS] == before
    assert "ScalarIndexQuery: query=[n = 5]@n_idx(BloomFilter)" in dataset.scanner(filter="n = 5").explain_plan()
    assert {v.status for v in zones.verify_index(uri)} == {"right"}
    with pytest.raises(RequestError, match="has an index n_idx"):
        zones.register_index(report.indexes[1].path, uri)
    zones.register_index(report.indexes[1].path, uri, replace=True)
    assert len(lance.dataset(uri).describe_indices()) == 4
    assert lance.dataset(uri).to_table(filter="n = 5")["n"].to_pylist() == before[1]


def test_lance_maintains_a_registered_index(tmp_path):
    """pylance reads ours, merges it with what it builds over appended rows, and drops what it compacts."""
    uri = tmp_path / "d.lance"
    lance.write_dataset(pa.table({"n": range(500)}), uri, max_rows_per_file=200)
    built = zones.build_index(uri, ["n"], tmp_path / "out", items=50).indexes[0].path
    zones.register_index(built, uri)
    lance.write_dataset(pa.table({"n": range(1000, 1100)}), uri, mode="append")
    found = zones.query_index(uri, "n = 5 OR n = 1005")
    assert ([zone[:3] for zone in found.zones], found.uncovered) == ([(0, 0, 50)], [3])
    lance.dataset(uri).optimize.optimize_indices()
    found = zones.query_index(uri, "n = 5 OR n = 1005")
    assert ([zone[:3] for zone in found.zones], found.uncovered) == ([(0, 0, 50), (3, 0, 50)], [])
    assert [v.status for v in zones.verify_index(uri)] == ["right"]
    lance.dataset(uri).optimize.compact_files()
    assert lance.dataset(uri).to_table(filter="n IN (5, 1005)")["n"].to_pylist() == [5, 1005]
    found = zones.query_index(uri, "n = 5")
    assert (found.zones, found.uncovered) == ([], [4]), "its fragments are gone"
    with pytest.raises(StaleIndexError, match="fragment 0 .* is gone"):
        zones.query_index(built, "n = 5")


def test_what_cannot_be_registered(tmp_path):
    pq.write_table(pa.table({"a": range(10)}), tmp_path / "1.parquet")
    index = zones.build_index(tmp_path / "1.parquet", ["a"], tmp_path / "out").indexes[0].path
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "d.lance")
    with pytest.raises(StaleIndexError, match="no index of a Lance data set's fragments"):
        zones.register_index(index, tmp_path / "d.lance")
    with pytest.raises(RequestError, match="no Lance data set"):
        zones.register_index(index, tmp_path)
    built = zones.build_index(tmp_path / "d.lance", ["a"], tmp_path / "out2").indexes[0].path
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "d.lance", mode="overwrite")
    with pytest.raises(StaleIndexError):
        zones.register_index(built, tmp_path / "d.lance")


def test_a_killed_registration_leaves_nothing_behind_the_next(tmp_path):
    """Nothing has the index's name before all of it is on the disk, and a later run removes what is left."""
    uri = tmp_path / "d.lance"
    lance.write_dataset(pa.table({"n": range(500)}), uri)
    built = zones.build_index(uri, ["n"], tmp_path / "out", items=50).indexes[0].path
    code = f"""
import os, signal
import parquet_bloom.lance as zones
os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
zones.register_index({built!r}, {str(uri)!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    [left] = [name for folder in (uri / "_indices").iterdir() for name in os.listdir(folder)]
    assert left.startswith(".bloomfilter.lance.")
    assert left.endswith(".parquet-bloom")
    zones.register_index(built, uri)
    assert [os.listdir(folder) for folder in (uri / "_indices").iterdir()] == [["bloomfilter.lance"]]
    assert lance.dataset(uri).to_table(filter="n = 5")["n"].to_pylist() == [5]


# --- odds and ends --------------------------------------------------------------------------------


def test_empty_files_have_no_zones(tmp_path):
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": pa.array([None, 5], pa.int64())}), tmp_path / "2.parquet")
    index = zones.build_index(tmp_path, ["a"], tmp_path / "out").indexes[0].path
    assert [zone[:3] for zone in zones.query_index(index, "a = 5").zones] == [(1, 0, 2)]
    assert zones.verify_index(index)[0].status == "right"
    assert zones.query_index(index, "a = 6").zones == []


def test_the_names_load_nothing_and_a_missing_pylance_is_said(tmp_path):
    assert all(getattr(zones, name) is not None and name in dir(zones) for name in zones.__all__)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    code = f"""
import sys
import parquet_bloom.lance as zones
assert not {{"lance", "numba", "pyarrow", "numpy"}} & set(sys.modules)
sys.modules["lance"] = None
try:
    zones.build_index({str(tmp_path / "1.parquet")!r}, ["a"], {str(tmp_path / "out")!r})
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"a zone index needs pylance; {to_install('lance')}\n"


def test_a_writer_that_is_left_leaves_nothing(tmp_path):
    with (
        pytest.raises(FileError, match="exists"),
        ZoneWriter(AtomicFile.new(tmp_path / "x.lance", False, by_name=True), {}) as writer,
    ):
        (tmp_path / "x.lance").write_bytes(b"somebody else's")
        writer.commit()
    assert (tmp_path / "x.lance").read_bytes() == b"somebody else's"
    assert [p.name for p in tmp_path.iterdir()] == ["x.lance"]


def test_the_commands(tmp_path):
    pq.write_table(pa.table({"a": range(100), "b": [None, "x"] * 50}), tmp_path / "1.parquet")
    out = tmp_path / "out"
    build = ("index", "build", "--kind", "lance")
    built = command(*build, tmp_path / "1.parquet", "--column", "a", "-c", "b", "--items", "10", "-o", out)
    assert (built.returncode, built.stderr) == (0, "")
    assert "a (int64), 10 zones" in built.stdout
    [document] = json.loads(command("index", "inspect", out / "a/bloomfilter.lance", "--json").stdout)["indexes"]
    assert document["metadata"]["bloomfilter_item"] == "10"
    assert len(document["zones"]) == 10
    assert document["zones"][3]["zone_start"] == 30
    assert "fragment 0" in command("index", "inspect", out / "b/bloomfilter.lance").stdout
    found = command("index", "query", out, "a = 33 AND b = 'x'")
    assert found.returncode == 0
    assert "1 of 10 zones may match, 10 of 100 rows" in found.stdout
    assert command("index", "query", out, "a = 100000").returncode == 1
    document = json.loads(command("index", "query", out, "a = 33", "--json").stdout)
    assert document["zones"] == [{"fragment": 0, "start": 30, "length": 10, "path": str(tmp_path / "1.parquet")}]
    assert command("index", "verify", out).returncode == 0
    bad = rewrite(out / "a/bloomfilter.lance", out / "a/bad.lance", lost_bits)
    assert command("index", "verify", bad).returncode == 1
    failed = command(*build, tmp_path / "1.parquet", "--column", "zz", "-o", out)
    assert (failed.returncode, error_lines(failed.stderr)) == (2, 1)
    assert f"{tmp_path}/1.parquet: no column zz; there are: a, b" in failed.stderr
    assert "no predicate after" in command("index", "query", out).stderr
    lance.write_dataset(pa.table({"a": range(10)}), tmp_path / "d.lance")
    assert command(*build, tmp_path / "d.lance", "-c", "a", "-o", tmp_path / "o2").returncode == 0
    done = command("index", "register", tmp_path / "o2/a/bloomfilter.lance", tmp_path / "d.lance")
    assert "10 rows verified" in done.stdout
