"""Leaves of a schema: their names and how people name them, their types, and schemas that lie."""

from __future__ import annotations

import json
import re
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpus import FIXTURES, fixture_files, footer_bytes

from parquet_bloom._thrift.parquet import ttypes
from parquet_bloom._thrift.parquet.ttypes import ConvertedType, FieldRepetitionType, LogicalType, SchemaElement, Type
from parquet_bloom.errors import FooterError, RequestError, UnknownColumnError
from parquet_bloom.format.footer import decode_footer
from parquet_bloom.format.schema import (  # fmt: skip
    BYTE_ARRAY,
    FLBA,
    INT32,
    INT64,
    Leaf,
    choose_leaves,
    find_leaf,
    is_pattern,
    join_path,
    leaves_of,
    match_leaves,
    split_path,
)


def leaves(*names: tuple[str, ...]) -> tuple[Leaf, ...]:
    return tuple(Leaf(i, path, INT64) for i, path in enumerate(names))


# --- names ------------------------------------------------------------------------------------------

NAMES = {
    ("id",): "id",
    ("user", "id"): "user.id",
    ("dotted.name",): '"dotted.name"',
    ("stats", "p.99", "x"): 'stats."p.99".x',
    ('say "hi"',): '"say ""hi"""',
    ("",): '""',
    ("a", "", "b"): 'a."".b',
    ('"',): '""""',
    (".",): '"."',
    ("a b", "ä*?["): "a b.ä*?[",
}


def test_names_are_written_and_read():
    assert {path: join_path(path) for path in NAMES} == NAMES
    assert {path: Leaf(0, path, INT64).name for path in NAMES} == NAMES
    assert {path: split_path(name) for path, name in NAMES.items()} == {path: path for path in NAMES}
    assert {find_leaf(leaves(("other",), path), name).index for path, name in NAMES.items()} == {1}


@settings(max_examples=100)
@given(st.lists(st.text(st.sampled_from('ab."* é\n'), max_size=5), min_size=1, max_size=4))
def test_any_path_is_read_back(path):
    assert split_path(join_path(path)) == tuple(path)


@settings(max_examples=100)
@given(st.text(st.sampled_from('ab."'), max_size=9))
def test_any_text_is_a_path_or_refused(text):
    try:
        path = split_path(text)
    except RequestError:
        assert '"' in text, "only quotes can be wrong"
    else:
        assert split_path(join_path(path)) == path


def test_misplaced_quotes_are_refused():
    for text in ('"open', '"', '"a"b', '"a""', 'a"b', 'a."b', '"a"."', 'x"', 'a.b"c"'):
        with pytest.raises(RequestError, match=re.escape(text)):
            split_path(text)


def test_two_paths_never_share_a_name():
    paths = [("a.b",), ("a", "b"), ('"a"', "b"), ('"a".b',), ("a", ""), ("a.",), ("",), ("", ""), (".",)]
    assert len({join_path(path) for path in paths}) == len(paths)


# --- finding columns --------------------------------------------------------------------------------

TREE = leaves(
    ("id",), ("ID",), ("user", "id"), ("user", "name"), ("tags", "list", "element"), ("a.b",), ("a", "b"),
    ("a", "c", "d"), ("wild*",), ("wildcat",), ("twin",), ("twin",),
)  # fmt: skip


def test_exact_names_and_prefixes_with_one_leaf():
    names = {"id": 0, "ID": 1, "user.id": 2, "tags.list.element": 4, "tags.list": 4, "tags": 4, '"a.b"': 5, "a.b": 6}
    names |= {"a.c": 7, "a.c.d": 7}
    assert {name: find_leaf(TREE, name).index for name in names} == names
    assert find_leaf(TREE, ("a.b",)).index == 5
    assert find_leaf(TREE, ("a", "c")).index == 7


def test_a_name_that_fits_several_is_an_error_that_lists_them():
    for name, fits in {"user": "user.id, user.name", "a": "a.b, a.c.d", "twin": "twin, twin"}.items():
        with pytest.raises(UnknownColumnError, match=f"ambiguous, it fits 2 columns: {re.escape(fits)}"):
            find_leaf(TREE, name)


def test_long_lists_are_cut():
    many = leaves(*(("s", f"f{i}") for i in range(9)))
    with pytest.raises(UnknownColumnError, match=r"9 columns: s\.f0, s\.f1, s\.f2, s\.f3, s\.f4, \.\.\.$"):
        find_leaf(many, "s")
    with pytest.raises(UnknownColumnError, match=r"there are: s\.f0, .*s\.f7, \.\.\.$"):
        find_leaf(many, "zzzzzzzzzzzz")
    with pytest.raises(UnknownColumnError, match="there are: none"):
        find_leaf((), "x")


def test_near_names_are_offered_and_names_are_not_matched_in_parts():
    for name, near in {"usr.id": "user.id", "Id": "id", "name": "user.name", "iD": "ID"}.items():
        with pytest.raises(UnknownColumnError, match=f"no column {re.escape(name)}; near names: .*{re.escape(near)}"):
            find_leaf(TREE, name)
    for name in ("use", "tags.li", "user.", "a.b.c", "", "list", "user.id.x"):
        with pytest.raises(UnknownColumnError):
            find_leaf(TREE, name)


def test_names_in_quotes_are_no_patterns():
    tree = leaves(("*",), ("a",), ("[0]",), ("b.*", "x"), ("b.c", "x"), ("b.c", "y"), ('q"*', "z"), ("?",))

    wanted = {
        '"*"': [("*",)],
        '"[0]"': [("[0]",)],
        '"?"': [("?",)],
        '"b.c".*': [("b.c", "x"), ("b.c", "y")],
        '"b.*".*': [("b.*", "x")],  # the star in quotes is a letter, the other is none
        '"q""*".*': [('q"*', "z")],
        '"*"*': [("*",)],
    }
    assert {text: [leaf.path for leaf in choose_leaves(tree, [text])] for text in wanted} == wanted
    assert len(choose_leaves(tree, ["*[!x]"])) == 6, "outside of quotes all is as it was"
    for name in ('"a*"', '"[a]"'):
        with pytest.raises(UnknownColumnError, match="no column"):
            choose_leaves(tree, [name])


def test_patterns():
    def found(*patterns):
        return [leaf.index for leaf in choose_leaves(TREE, patterns)]

    assert found("*id") == [0, 2]
    assert found("user.name", "id", "user.*", "id") == [0, 2, 3], "in schema order, each once"
    assert found("wild*") == [8], "a name that exists is never a pattern"
    assert found("wild?*") == [8, 9]
    assert found("[iI]d") == [0]
    assert found("*") == list(range(12))
    assert found() == []
    assert is_pattern(TREE, "wild?at")
    assert not is_pattern(TREE, "wild*")
    assert not is_pattern(TREE, "user")
    with pytest.raises(UnknownColumnError, match="no column fits the pattern x"):
        match_leaves(TREE, "x*")


# --- types ------------------------------------------------------------------------------------------


def _as_pyarrow_says(leaf: Leaf) -> str | None:
    """A leaf's logical type in the words of the fixtures' expected.json, which are pyarrow's."""
    name, unit = leaf.logical, {1_000_000: "milliseconds", 1_000: "microseconds", 1: "nanoseconds"}.get(leaf.unit_ns)
    utc = str(leaf.utc).lower()
    words = {"STRING": "String", "UNKNOWN": "Null", "INTERVAL": "Interval", "FLOAT16": "Float16", "DATE": "Date"}
    words |= {
        "INTEGER": f"Int(bitWidth={leaf.bits}, isSigned={str(leaf.signed).lower()})",
        "DECIMAL": f"Decimal(precision={leaf.precision}, scale={leaf.scale})",
        "TIME": f"Time(isAdjustedToUTC={utc}, timeUnit={unit})",
        "TIMESTAMP": f"Timestamp(isAdjustedToUTC={utc}, timeUnit={unit}",
    }
    return words.get(name, name)


def test_types_are_those_that_pyarrow_reads():
    for name in fixture_files():
        path = FIXTURES / name
        expected = json.loads(path.with_suffix(".expected.json").read_text())["columns"]
        found = {leaf.name: leaf for leaf in decode_footer(footer_bytes(path), path.stat().st_size).leaves}
        assert list(found) == list(expected), name
        for column, leaf in found.items():
            assert Type._VALUES_TO_NAMES[leaf.physical] == expected[column]["physical"], (name, column)
            logical = (expected[column]["logical"] or "None").split(", is_from_converted")[0]
            assert str(_as_pyarrow_says(leaf)) == logical, (name, column)
            assert leaf.repeated == any(part in ("list", "key_value", "entries") for part in leaf.path), (name, column)


def schema(*elements: SchemaElement) -> list[SchemaElement]:
    return [SchemaElement(name="schema", num_children=len(elements)), *elements]


CONVERTED = {
    "UTF8": {"logical": "STRING"},
    **{name: {"logical": name} for name in ("ENUM", "DATE", "JSON", "BSON", "INTERVAL")},
    **{f"UINT_{bits}": {"logical": "INTEGER", "bits": bits, "signed": False} for bits in (8, 16, 32, 64)},
    **{f"INT_{bits}": {"logical": "INTEGER", "bits": bits, "signed": True} for bits in (8, 16, 32, 64)},
    "TIME_MILLIS": {"logical": "TIME", "unit_ns": 1_000_000, "utc": None},
    "TIME_MICROS": {"logical": "TIME", "unit_ns": 1_000, "utc": None},
    "TIMESTAMP_MILLIS": {"logical": "TIMESTAMP", "unit_ns": 1_000_000, "utc": None},
    "TIMESTAMP_MICROS": {"logical": "TIMESTAMP", "unit_ns": 1_000, "utc": None},
    "DECIMAL": {"logical": "DECIMAL", "scale": 3, "precision": 9},
    **{name: {"logical": "?"} for name in ("MAP", "LIST", "MAP_KEY_VALUE")},
}


def test_old_converted_types():
    assert set(CONVERTED) == set(ConvertedType._NAMES_TO_VALUES)
    for name, wanted in CONVERTED.items():
        number = ConvertedType._NAMES_TO_VALUES[name]
        [leaf] = leaves_of(schema(SchemaElement(name="a", type=INT64, converted_type=number, scale=3, precision=9)))
        # What means nothing for a type must not tell two files apart.
        wanted = {"bits": 0, "scale": 0, "unit_ns": 0} | wanted
        assert {key: getattr(leaf, key) for key in wanted} == wanted, name
    [leaf] = leaves_of(schema(SchemaElement(name="a", type=INT64, converted_type=99)))
    assert leaf.logical == "?", "a converted type that is newer than we are"


def test_the_logical_type_wins_over_the_converted_one():
    both = SchemaElement(name="a", type=INT32, converted_type=ConvertedType.UINT_8)
    both.logicalType = LogicalType(DATE=ttypes.DateType())
    newer = SchemaElement(name="b", type=BYTE_ARRAY, converted_type=ConvertedType.UTF8, logicalType=LogicalType())
    assert [leaf.logical for leaf in leaves_of(schema(both, newer))] == ["DATE", "?"]


def test_repetition_reaches_down():
    group = SchemaElement(name="g", num_children=2, repetition_type=FieldRepetitionType.REPEATED)
    inner = SchemaElement(name="h", num_children=1, repetition_type=FieldRepetitionType.OPTIONAL)
    tree = [SchemaElement(name="s", num_children=3), group, inner, SchemaElement(name="x", type=INT32)]
    tree += [SchemaElement(name="y", type=INT32), SchemaElement(name="z", type=INT32)]
    tree += [SchemaElement(name="w", type=FLBA, type_length=5, repetition_type=FieldRepetitionType.REPEATED)]
    found = leaves_of(tree)
    assert [(leaf.name, leaf.repeated, leaf.element) for leaf in found] == [
        ("g.h.x", True, 3), ("g.y", True, 4), ("z", False, 5), ("w", True, 6),
    ]  # fmt: skip
    assert found[3].width == 5


# --- footers and schemas that lie ---------------------------------------------------------------------------------


def test_counts_that_do_not_add_up_are_refused():
    leaf = SchemaElement(name="a", type=INT32)
    bad = {
        "empty": [],
        "more than": [*schema(leaf), leaf],
        "before its groups": [SchemaElement(name="s", num_children=2), leaf],
        "ends before": [SchemaElement(name="s", num_children=1), SchemaElement(name="g", num_children=1)],
    }
    for text, elements in bad.items():
        with pytest.raises(FooterError, match=text):
            leaves_of(elements)
    for number in (-1, -(2**31), 2**31 - 1):
        with pytest.raises(FooterError):
            leaves_of([SchemaElement(name="s", num_children=number), leaf])
    assert leaves_of([SchemaElement(name="s", num_children=0)]) == ()
    assert leaves_of([SchemaElement(name="s")]) == ()
    assert leaves_of(schema(SchemaElement(name="empty group", num_children=0), leaf))[0].index == 0


def test_a_deep_schema_takes_memory_in_proportion():
    deep = 4000  # a footer of some 20 KB
    tree = [SchemaElement(name="a", num_children=1) for _ in range(deep)] + [SchemaElement(name="x", type=INT32)]
    tracemalloc.start()
    with suppress(FooterError):  # refusing it is as good
        leaves_of(tree)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8_000_000, f"{deep} nested groups took {peak} bytes"
