"""The generic tree, the bindings and the lenient reader over Thrift compact bytes.

Footers come from the fixtures and the corpus, made-up structs from the writer in tests/support/naive.py.
"""

from __future__ import annotations

import sys
import tracemalloc
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpus import corpus_file, footer_bytes, footer_files, others_files
from support.naive import BINARY, BYTE, DOUBLE, FALSE, I16, I32, I64, LIST, MAP, SET, STRUCT, TRUE, UUID, varint
from support.naive import thrift_struct as struct_bytes
from support.naive import thrift_value as value_bytes
from support.named import named
from support.repeats import thirds

from parquet_bloom._thrift.parquet.ttypes import FileMetaData, KeyValue, OffsetIndex
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.compact_tree import Node, parse

# What an edit opens; everything a footer has; nothing.
EDITS = {4: {1: {3: {}}}, 5: {}}
ALL = {2: {10: {1: {}, 8: {2: {1: {}}}}}, 4: {1: {3: {8: {}, 12: {}, 13: {}, 16: {}}}, 4: {}}, 5: {}, 7: {1: {}}, 8: {}}
ONLY_ROOT: dict[int, object] = {}
TEMPLATES = (EDITS, ALL, ONLY_ROOT)

REFUSED = "parquet-testing__ARROW-GH-41317.parquet"  # a list of i16 where the format has one of enums


@cache
def footer_of(name: str) -> bytes:
    data = footer_bytes(corpus_file(name))
    assert data is not None
    return data


# --- footers that other programs wrote --------------------------------------------------------------


BY_THIRDS = pytest.mark.parametrize("names", thirds(footer_files()), ids=["quick", "more", "last"])


@BY_THIRDS
def test_an_unchanged_footer_encodes_to_its_bytes(names):
    for name in names:
        data = footer_of(name)
        for template in TEMPLATES:
            node, used = parse(data, template)
            assert node.encode() + data[used:] == data, name
            again, end = parse(b"\xaa\xbb" + data, template, 2)
            assert (again.encode(), end) == (node.encode(), used + 2), f"{name}: a struct may begin anywhere"


@BY_THIRDS
def test_the_lenient_reader_reads_what_the_bindings_read(names):
    for name in names:
        data = footer_of(name)
        found = compact.decode_leniently(FileMetaData, data)
        if name.endswith(REFUSED):
            with pytest.raises(FooterError):
                compact.decode(FileMetaData, data)
            assert found.schema
            assert found.row_groups
        else:
            assert found == compact.decode(FileMetaData, data)[0], name


def test_the_footers_that_the_bindings_do_not_write_again():
    # As measured over parquet-testing: these two, and only these, need the tree.
    if not others_files():
        pytest.skip("PARQUET_BLOOM_CORPUS names no folder")
    names = [n for n in footer_files() if "parquet-testing" in n and not n.endswith((".encrypted", REFUSED))]
    decoded = {name: compact.decode(FileMetaData, footer_of(name)) for name in names}
    odd = {name.split("__")[1] for name, (value, _) in decoded.items() if compact.encode(value) != footer_of(name)}
    assert odd == {"dict-page-offset-zero.parquet", "unknown-logical-type.parquet"}


# --- any struct -------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.sampled_from([(TRUE, True), (FALSE, False)]),
    st.tuples(st.just(BYTE), st.integers(-128, 127)),
    st.tuples(st.just(I16), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just(I32), st.integers(-(2**31), 2**31 - 1)),
    st.tuples(st.just(I64), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just(DOUBLE), st.floats(allow_nan=False)),
    st.tuples(st.just(BINARY), st.binary(max_size=20)),
    st.tuples(st.just(UUID), st.binary(min_size=16, max_size=16)),
)


def _fields(children):
    by_id = st.dictionaries(st.integers(1, 40) | st.integers(1, 32767), children, max_size=5)
    return by_id.map(lambda d: [(number, *d[number]) for number in sorted(d)])


def _containers(children):
    items = st.lists(children, max_size=4)
    alike = items.map(lambda found: (found[0][0], [v for w, v in found if w == found[0][0]]) if found else (I32, []))
    pairs = st.lists(st.tuples(children, children), max_size=3).map(_alike_pairs)
    lists = st.tuples(st.sampled_from([LIST, SET]), alike)
    return st.one_of(lists, st.tuples(st.just(MAP), pairs), st.tuples(st.just(STRUCT), _fields(children)))


def _alike_pairs(pairs):
    if not pairs:
        return I32, I32, []
    key, value = pairs[0][0][0], pairs[0][1][0]
    return key, value, [(k, v) for (a, k), (b, v) in pairs if (a, b) == (key, value)]


VALUES = st.recursive(SCALARS, _containers, max_leaves=12)
STRUCTS = _fields(VALUES)


@settings(max_examples=50, deadline=None)
@given(STRUCTS, st.binary(max_size=5))
def test_any_struct_encodes_to_its_bytes(fields, behind):
    data = struct_bytes(fields)
    opened = {number: {1: {}} for number, _, _ in fields}
    for template in (ONLY_ROOT, opened):
        node, used = parse(data + behind, template)
        assert used == len(data)
        assert node.encode() == data
        assert [f.id for f in node.fields] == [number for number, _, _ in fields]


@settings(max_examples=50, deadline=None)
@given(STRUCTS, st.integers(1, 60), st.integers(-(2**63), 2**63 - 1))
def test_putting_and_dropping_any_field(fields, number, value):
    fields = [f for f in fields if f[0] != number]
    data = struct_bytes(fields)
    node, _ = parse(data, ONLY_ROOT)
    node.put(number, value)
    with_it = struct_bytes(sorted([*fields, (number, I64, value)], key=lambda f: f[0]))
    assert node.encode() == with_it, "a new field goes where its id belongs, its neighbours keep their bytes"
    assert node.get(number) == value
    node.drop(number)
    assert node.encode() == data
    again, _ = parse(with_it, ONLY_ROOT)
    assert again.get(number) == value
    again.drop(number)
    assert again.get(number) is None
    assert again.encode() == data


def test_what_a_tree_gives():
    fields = [(1, I32, -5), (2, BINARY, "häß".encode()), (3, STRUCT, [(7, I64, 9)]), (4, LIST, (STRUCT, [[], []]))]
    fields += [(5, DOUBLE, 1.5), (6, BINARY, b"\xff")]
    node, _ = parse(struct_bytes(fields), {3: {}, 4: {}})
    assert (node.get(1), node.get(2), node.get(6)) == (-5, "häß", "�")
    assert node.get(3).get(7) == 9
    assert [item.encode() for item in node.get(4)] == [b"\0", b"\0"]
    assert node.get(5) == value_bytes(DOUBLE, 1.5), "other kinds stay bytes"
    assert node.get(9) is None


def test_texts_and_lists_are_put():
    node = Node()
    node.put(2, "é" * 100)
    node.put(1, -3, I32)
    pair = Node()
    pair.put(1, "k")
    node.put_list(5, [pair] * 20)
    wanted = [(1, I32, -3), (2, BINARY, ("é" * 100).encode()), (5, LIST, (STRUCT, [[(1, BINARY, b"k")]] * 20))]
    assert node.encode() == struct_bytes(wanted)
    node.put(2, "")
    assert node.encode() == struct_bytes([wanted[0], (2, BINARY, b""), wanted[2]])


def test_a_list_that_grows_and_shrinks():
    for before in (0, 14, 15, 200):
        items = [[(1, I32, i)] for i in range(before)]
        data = struct_bytes([(5, LIST, (STRUCT, items)), (6, BINARY, b"x")])
        node, _ = parse(data, {5: {}})
        node.get(5).append(Node())
        assert node.encode() == struct_bytes([(5, LIST, (STRUCT, [*items, []])), (6, BINARY, b"x")])
        del node.get(5)[-1]
        assert node.encode() == data


def test_bytes_that_no_sane_writer_writes_are_kept():
    long_header = bytes([I32]) + varint(2)  # field 1 by its id, not by its distance
    long_varint = b"\x8a\x80\x00"  # 5, in three bytes
    long_list = bytes([5 << 4 | LIST, 0xF0 | STRUCT]) + varint(1) + b"\0"  # a list of one with a size of its own
    data = long_header + long_varint + long_list + b"\0"
    node, used = parse(data, {6: {}})
    assert used == len(data)
    assert (node.get(1), len(node.get(6))) == (5, 1)
    assert node.encode() == data
    node.put(9, 1)
    assert node.encode() == data[:-1] + b"\x36\x02\0", "an edit elsewhere leaves them as they are"
    backwards = bytes([I32]) + varint(18) + b"\x02" + bytes([I32]) + varint(2) + b"\x04\0"  # 9 before 1
    node, _ = parse(backwards, {})
    assert (node.get(9), node.get(1), node.encode()) == (1, 2, backwards)


# --- damage -----------------------------------------------------------------------------------------


def _only_footer_errors(data: bytes) -> None:
    """Whatever the bytes are: a value, or a FooterError of one line, after steps in proportion to the bytes."""
    messages = []
    for read in (
        lambda: parse(data, EDITS)[0].encode(),
        lambda: parse(data, ALL)[0].encode(),
        lambda: compact.decode(FileMetaData, data),
        lambda: compact.decode(OffsetIndex, data),
        lambda: compact.decode_leniently(FileMetaData, data),
    ):
        steps = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal steps
            steps += event == "call"

        sys.setprofile(count)
        try:
            read()
        except FooterError as error:
            messages.append(str(error))
        finally:
            sys.setprofile(None)
        assert steps <= 20 * len(data) + 1000, "no call without a byte that it takes"
    assert not [text for text in messages if "\n" in text]


def test_a_footer_cut_at_every_byte():
    data = footer_of("pyarrow/types_filters.parquet")[:3000]
    for end in [*range(400), *range(400, len(data), 23)]:
        for read in READERS.values():
            with pytest.raises(FooterError):
                read(data[:end])


MALICIOUS = {
    "structs": b"\x1c" * 100_000,
    "lists": b"\x19" * 100_000,
    "maps": b"\x1b" + b"\x01\xbb" * 50_000,
    "unknown structs": b"\x05\x9c" + b"\x1c" * 100_000,
    "list of two billion": b"\x19\xfc\xff\xff\xff\xff\x07",
    "list of two billion booleans": b"\x19\xf1\xff\xff\xff\xff\x07",
    "map of two billion": b"\x1b\xff\xff\xff\xff\x07\x11",
    "text of two billion bytes": b"\x18\xff\xff\xff\xff\x07",
    "endless integer": b"\x15" + b"\xff" * 100,
    "set of lists": b"\x1a" + b"\xf9\xff\xff\x03" * 1000,
    "type 14": b"\x1e\x00\x00",
    "nothing": b"",
}
READERS = {
    "tree": lambda data: parse(data, ALL),
    "edits": lambda data: parse(data, EDITS),
    "bindings": lambda data: compact.decode(FileMetaData, data),
    "lenient": lambda data: compact.decode_leniently(FileMetaData, data),
}


def test_what_a_malicious_writer_might_send():
    for name, data in MALICIOUS.items():
        with named(name):
            _only_footer_errors(data)
            tracemalloc.start()
            for read in READERS.values():
                with pytest.raises(FooterError):
                    read(data)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < 200 * len(data) + 5_000_000, "memory stays near what the bytes themselves take"


# --- the bindings and the lenient reader --------------------------------------------------------------


def test_decode_says_how_many_bytes_it_took():
    data = compact.encode(KeyValue(key="k", value="v"))
    assert data == struct_bytes([(1, BINARY, b"k"), (2, BINARY, b"v")])
    assert compact.decode(KeyValue, data + b"rest") == (KeyValue(key="k", value="v"), len(data))


def test_the_lenient_reader_passes_over_fields_of_a_wrong_type():
    row_group = [(1, LIST, (STRUCT, [])), (2, BINARY, b"no number"), (3, I64, 7)]
    fields = [(1, I64, 9), (2, LIST, (I32, [1])), (3, I64, 5), (4, LIST, (STRUCT, [row_group]))]
    fields += [(6, BINARY, b"\xff me"), (7, MAP, (I32, I32, [(1, 2)])), (99, DOUBLE, 1.0)]
    found = compact.decode_leniently(FileMetaData, struct_bytes(fields))
    assert (found.version, found.schema, found.num_rows, found.column_orders) == (None, None, 5, None)
    assert found.created_by == "� me"
    assert [(g.columns, g.total_byte_size, g.num_rows) for g in found.row_groups] == [([], None, 7)]
