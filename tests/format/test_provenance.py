"""What a file says of its own filters: believed while it matches the footer, stale as soon as not."""

from __future__ import annotations

import json
import struct
import warnings
import zlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.corpus import footer_bytes
from support.naive import BINARY, I16, I32, I64, LIST, STRUCT

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import (
    ColumnChunk,
    ColumnMetaData,
    FileMetaData,
    KeyValue,
    RowGroup,
    SchemaElement,
)
from parquet_bloom.errors import FilterWarning
from parquet_bloom.format import compact, provenance
from parquet_bloom.format.edits import FooterEdit, Moves, edit_footer
from parquet_bloom.format.final import Rule
from parquet_bloom.format.footer import Footer, decode_footer

MURMUR = Rule("murmur3", 1361930890, "mask")
XXH = Rule("xxh64", 0, "multiply-shift")


def described(rule: Rule) -> dict[str, object]:
    """How an entry tells a rule."""
    return {"hash": rule.hash, "seed": rule.seed, "index": rule.index}


def footer(places, pairs=None, names=("a", "b"), groups=3) -> Footer:
    schema = [SchemaElement(name="s", num_children=len(names)), *(SchemaElement(name=n, type=2) for n in names)]
    row_groups = []
    for g in range(groups):
        row_groups.append(RowGroup(columns=[], num_rows=0))
        for c in range(len(names)):
            meta = ColumnMetaData(type=2, num_values=1, total_compressed_size=1, data_page_offset=4)
            meta.bloom_filter_offset, meta.bloom_filter_length = places.get((g, c), (None, None))
            row_groups[g].columns.append(ColumnChunk(meta_data=meta))
    pairs = None if pairs is None else [KeyValue(key=k, value=v) for k, v in pairs]
    return decode_footer(
        compact.encode(FileMetaData(schema=schema, row_groups=row_groups, key_value_metadata=pairs)), 10**9
    )


def told(places, rule=MURMUR, **options) -> tuple[str, str]:
    entries = provenance.new_entries("0.1.0", "parquet-41-raw", described(rule), footer(places, **options), places)
    return "parquet_bloom", json.dumps(entries)


ALL = {(g, c): (1000 * g + 100 * c + 4, 1040 if c else None) for g in range(3) for c in range(2)}
SOME = {key: ALL[key] for key in [(0, 0), (2, 0), (1, 1)]}


def test_entries_are_believed_where_they_match():
    for places in (ALL, SOME, {(1, 1): (7, 8)}):
        entries = provenance.read_entries(footer(places, [("other", "x"), told(places), ("parquet_bloom", None)]))
        assert provenance.rules_of(entries) == dict.fromkeys(places, MURMUR)
        assert {entry.pair for entry in entries} == {1}
        packed = b"".join(struct.pack("<iiqq", g, c, at, n or 0) for (g, c), (at, n) in sorted(places.items()))
        assert provenance.ranges_crc(places) == zlib.crc32(packed)


def test_entries_are_stale_once_their_filters_changed():
    said = told(SOME)
    changed = {
        "moved": {**SOME, (0, 0): (5, None)},
        "longer": {**SOME, (1, 1): (SOME[1, 1][0], 1041)},
        "gone": {k: v for k, v in SOME.items() if k not in ((0, 0), (1, 1))},
        "of other row groups": {(g + 1, c): v for (g, c), v in SOME.items() if g < 2},
        "none": {},
    }
    for name, places in changed.items():
        believed = provenance.rules_of(provenance.read_entries(footer(places, [said])))
        assert not set(believed) & {k for k, v in places.items() if SOME.get(k) != v}, name
    renamed = provenance.read_entries(footer(SOME, [said], names=("x", "y")))
    assert renamed == []


def test_entries_follow_their_filters_and_leave_what_is_foreign():
    foreign = {"columns": ["a"], "places": 1, "note": "é"}
    body = json.dumps([foreign, *json.loads(told(ALL)[1])])
    old = footer(ALL, [("parquet_bloom", "{no json"), ("parquet_bloom", body)])
    moved = {key: (at + 50, n) for key, (at, n) in ALL.items() if key != (1, 0)}
    changes, append = provenance.rewritten(old, moved, [])
    assert (set(changes), append) == ({1}, [])
    assert json.loads(changes[1])[0] == foreign
    assert provenance.rules_of(
        provenance.read_entries(footer(moved, [("parquet_bloom", changes[1])]))
    ) == dict.fromkeys(moved, MURMUR)
    assert provenance.rewritten(footer(ALL, [told(ALL)]), {}, []) == ({0: None}, []), "an emptied pair goes"
    assert provenance.rewritten(footer(ALL), ALL, []) == ({}, [])


def test_a_new_add_speaks_of_its_own_filters_only():
    new = {(0, 0): (9999, 80)}
    added = provenance.new_entries("0.1.0", "final", described(XXH), footer(ALL), new)
    stay = {key: place for key, place in ALL.items() if key not in new}
    changes, append = provenance.rewritten(footer(ALL, [told(ALL)]), stay, added)
    assert append == [], "one pair holds all entries"
    found = provenance.read_entries(footer({**stay, **new}, [("parquet_bloom", changes[0])]))
    assert sorted(key for entry in found for key in entry.chunks) == sorted(ALL), "no filter has two entries"
    assert provenance.rules_of(found) == {**dict.fromkeys(stay, MURMUR), (0, 0): XXH}


KEYS = st.sampled_from(["columns", "places", "row_groups", "hash", "seed", "index"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(JSON, st.sampled_from([None, "places", "columns"]))
def test_whatever_a_pair_holds_only_what_matches_is_believed(value, right):
    if right and isinstance(value, dict):
        value[right] = json.loads(told(SOME)[1])[0][right]
    read = footer(SOME, [("parquet_bloom", json.dumps([value])), ("parquet_bloom", json.dumps(value))])
    entries = provenance.read_entries(read)
    for entry in entries:
        places = {key: SOME[key] for key in entry.chunks}
        assert entry.body["places"] == provenance.ranges_crc(places), "believed by its checksum alone"
    assert set(provenance.rules_of(entries)) <= {key for entry in entries for key in entry.chunks}
    if not entries:
        assert provenance.rewritten(read, ALL, []) == ({}, []), "what is foreign or stale is not touched"


def test_an_offset_beyond_64_bits_breaks_nothing():
    # A list of a wrong type makes the footer one for the lenient reader, which takes any varint.
    meta = [(1, I32, 1), (2, LIST, (I16, [0])), (5, I64, 1), (7, I64, 1), (9, I64, 4), (14, I64, 9)]
    chunk = [(2, I64, 4), (3, STRUCT, meta)]
    root = [(2, LIST, (STRUCT, [[(5, I32, 1)], [(1, I32, 1), (4, BINARY, b"a")]]))]
    root += [(4, LIST, (STRUCT, [[(1, LIST, (STRUCT, [chunk])), (3, I64, 1)]]))]
    said = [(1, BINARY, b"parquet_bloom"), (2, BINARY, b'[{"columns":["a"],"places":1}]')]
    data = naive.thrift_struct([*root, (5, LIST, (STRUCT, [said]))])
    assert data.count(b"\x56\x12") == 1, "field 14, zigzag 9"
    found = decode_footer(data.replace(b"\x56\x12", b"\x56" + naive.varint(2**70 - 2)), 10**6)
    assert provenance.read_entries(found) == []


@pytest.mark.parametrize("padding", [0, 4])
def test_padding_behind_a_raw_filter_does_not_say_how_it_was_hashed(tmp_path, padding):
    # Without bloom_filter_length only the gap is known: 4 bytes more are not the header of 2020.
    path, values = tmp_path / "raw.parquet", pa.array(range(10), pa.int64())
    pq.write_table(pa.table({"id": values}), path, use_dictionary=False, write_statistics=False)
    words = naive.build([naive.murmur3(naive.plain(v, "INT64"), MURMUR.seed) for v in range(10)], 32, "mask")
    assert words[0] == 0, "so that it can be taken for the end of a header"
    raw = struct.pack("<3i", 1024, 0, 0) + naive.words_to_bytes(words) + bytes(padding)
    data, old = path.read_bytes(), footer_bytes(path)
    new = edit_footer(old, FooterEdit(Moves([(4, len(raw))]), filter_ranges={(0, 0): (4, None)}))
    path.write_bytes(b"PAR1" + raw + data[4 : -8 - len(old)] + new + len(new).to_bytes(4, "little") + b"PAR1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FilterWarning)  # a gap that does not fit may be called damage
        lost = [v for v in range(10) if parquet_bloom.check(path, f"id = {v}")[0].skipped]
    assert lost == [], "every one of these rows is stored"


class Counted(list):
    """A list that counts how often it is gone through and searched."""

    passes = searches = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()

    def __contains__(self, value):
        self.searches += 1
        return super().__contains__(value)


def test_the_row_groups_of_an_entry_are_gone_through_once(monkeypatch):
    places = {(g, 0): (8 * g + 4, 8) for g in range(400)}
    groups = Counted(range(200))
    wanted = {key: place for key, place in places.items() if key[0] < 200}
    body = {"columns": ["a"], "places": provenance.ranges_crc(wanted), "row_groups": groups}
    read = footer(places, [("parquet_bloom", "[]")], groups=400)
    monkeypatch.setattr(provenance.json, "loads", lambda _: [body])
    assert [entry.chunks for entry in provenance.read_entries(read)] == [tuple(sorted(wanted))]
    assert (groups.passes, groups.searches) == (1, 0), "in proportion to the row groups, not to their square"
