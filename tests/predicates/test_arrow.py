"""from_expression and from_filters: what pyarrow means, as a tree; or Unknown, and never a crash."""

from __future__ import annotations

import datetime as dt
import functools
import operator
import uuid
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.kleene import Answers, answers, compare, rounded
from support.named import named
from support.tables import PATHS, TYPES, rows_of, tables

import parquet_bloom
from parquet_bloom.errors import RequestError
from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.predicates import arrow
from parquet_bloom.predicates.arrow import PickledExpression, as_expression, from_expression, from_filters
from parquet_bloom.predicates.tree import And, Compare, IsIn, IsNull, Not, Or, Unknown, leaves_of

D = Decimal
NAN = float("nan")
FIVE = uuid.UUID(int=5)
f = pc.field
a, b = f("a"), f("b")
A, B = ("a",), ("b",)
NULL = pa.scalar(None, pa.bool_())


def valued(value: Any, kind: pa.DataType | None = None) -> Any:
    """The literal that `a == value` is read as."""
    leaf = from_expression(a == pa.scalar(value, kind))
    return leaf if isinstance(leaf, Unknown) else leaf.value


# --- the tree ---------------------------------------------------------------------------------------

TREES = [
    (a == 5, Compare(A, "=", 5)),
    (a != 5, Not(Compare(A, "=", 5))),
    (a < 5, Compare(A, "<", 5)),
    (pc.scalar(5) < a, Compare(A, ">", 5)),
    (pc.scalar(5) >= a, Compare(A, "<=", 5)),
    (pc.scalar(5) != a, Not(Compare(A, "=", 5))),
    (a == None, Compare(A, "=", None)),  # noqa: E711
    (a == pa.scalar(None, pa.int8()), Compare(A, "=", None)),
    (f("a.b") == 1, Compare(("a.b",), "=", 1)),
    (f("a", "b") == 1, Compare(("a", "b"), "=", 1)),
    (f("") == 1, Compare(("",), "=", 1)),
    (a, Compare(A, "=", True)),
    (~a, Not(Compare(A, "=", True))),
    (~~(a < 5), Not(Not(Compare(A, "<", 5)))),
    (pc.scalar(True), And(())),
    (pc.scalar(False), Or(())),
    (a & pc.scalar(False), And((Compare(A, "=", True), Or(())))),
    (a & pc.scalar(True), Compare(A, "=", True)),
    (a.is_null(), IsNull(A)),
    (a.is_valid(), Not(IsNull(A))),
    ((a == 1) & (b == 2) & (a == 3), And((Compare(A, "=", 1), Compare(B, "=", 2), Compare(A, "=", 3)))),
    ((a == 1) | ((b == 2) | (a == 3)), Or((Compare(A, "=", 1), Compare(B, "=", 2), Compare(A, "=", 3)))),
    (a.isin([1, 2]), And((IsIn(A, (1, 2)), Not(IsNull(A))))),
    (a.isin([1, None]), Or((IsIn(A, (1,)), IsNull(A)))),
    (a.isin([1, 1]), And((IsIn(A, (1,)), Not(IsNull(A))))),
    (a.isin([None]), Or((IsIn(A, ()), IsNull(A)))),
    (a.isin([]), And((IsIn(A, ()), Not(IsNull(A))))),
    (~a.isin([1]), Not(And((IsIn(A, (1,)), Not(IsNull(A)))))),
    (pc.is_in(a, value_set=pa.array([1, None]), skip_nulls=True), And((IsIn(A, (1,)), Not(IsNull(A))))),
    (a.isin(pa.array(["x", "y"]).dictionary_encode()), And((IsIn(A, ("x", "y")), Not(IsNull(A))))),
    (pc.if_else(a.is_valid(), a.isin([1, 2]), NULL), IsIn(A, (1, 2))),
    (~pc.if_else(a.is_valid(), a.isin([1]), NULL), Not(IsIn(A, (1,)))),
    (
        pc.if_else(a.is_valid(), a.isin([1, None]), NULL),
        Or((And((Not(IsNull(A)), Or((IsIn(A, (1,)), IsNull(A))))), And((Not(Not(IsNull(A))), Compare(A, "=", None))))),
    ),
    (
        pc.if_else(b.is_valid(), a.isin([1]), NULL),
        Or((And((Not(IsNull(B)), IsIn(A, (1,)), Not(IsNull(A)))), And((Not(Not(IsNull(B))), Compare(B, "=", None))))),
    ),
    (
        pc.if_else(b.is_null(), a == 1, a > 2),
        Or((And((IsNull(B), Compare(A, "=", 1))), And((Not(IsNull(B)), Compare(A, ">", 2))))),
    ),
    (
        pc.if_else(a.is_null() & b.is_valid(), a == 1, a > 2),
        Or(
            (
                And((IsNull(A), Not(IsNull(B)), Compare(A, "=", 1))),
                And((Not(And((IsNull(A), Not(IsNull(B))))), Compare(A, ">", 2))),
            )
        ),
    ),
    ((a == 5) | pc.scalar(NULL), Or((Compare(A, "=", 5), Compare(A, "=", None)))),
    (pc.scalar(NULL) & (f("s", "x") == 5), And((Compare(("s", "x"), "=", None), Compare(("s", "x"), "=", 5)))),
    (a.isin([1]) & (b == 1), And((IsIn(A, (1,)), Not(IsNull(A)), Compare(B, "=", 1)))),
]


def test_what_is_understood():
    found = [(str(expression), from_expression(expression)) for expression, _ in TREES]
    assert found == [(str(expression), tree) for expression, tree in TREES]


STRANGE = [
    f(0) == 1,
    a == b,
    pc.scalar(1) == 1,
    (a > 1) == True,  # noqa: E712
    a.cast(pa.int8()) == 1,
    pc.if_else(a, 1, 2) == b,
    pc.utf8_lower(a) == "x",
    pc.list_element(a, 0) == 1,
    pc.struct_field(a, ["x"]) == 1,
    pc.strptime(a, "%Y", "s") == pa.scalar(0, pa.timestamp("s")),
    pc.and_(a, b),
    pc.is_nan(a),
    pc.coalesce(a, b),
    pc.match_substring(a, "x"),
    pc.is_inf(a),
    pc.scalar(None),
    pc.scalar(5),
    a == pa.scalar(1, pa.duration("s")),
    a == pa.scalar([1]),
    a == pa.scalar({"x": 1}),
    a == pa.scalar((1, 2, 3), pa.month_day_nano_interval()),
    a == pa.scalar(10**7, pa.date32()),
    a.isin(pa.array([1], pa.duration("s"))),
]


def test_what_is_not_understood_is_unknown_and_so_alone():
    for expression in STRANGE:
        found = from_expression(expression)
        assert all(isinstance(leaf, Unknown | IsNull) for leaf in leaves_of(found)), str(expression)
        try:
            pickle_works = bool(expression.__reduce__())
        except pa.ArrowNotImplementedError:
            pickle_works = False
        for beside in ((b == 1) & expression, ~expression | (b == 1)):
            leaves = list(leaves_of(from_expression(beside)))
            assert (Compare(B, "=", 1) in leaves) == pickle_works, str(beside)
            assert any(isinstance(leaf, Unknown) for leaf in leaves), str(beside)


def test_the_unknown_part_says_what_it_is():
    known, unknown = from_expression((b == 1) & (pc.utf8_lower(a) == "x")).parts
    assert known == Compare(B, "=", 1)
    assert unknown == Unknown('(utf8_lower(a) == "x")', "it does not compare a column with a literal")


BEGINNINGS = [
    (pc.starts_with(a, "k0"), "k0", "k1"),
    (pc.starts_with(a, "%_"), "%_", "%`"),
    (pc.starts_with(a, "\ud7ff"), "\ud7ff", "\ue000"),
    (pc.starts_with(a, "a\U0010ffff"), "a\U0010ffff", "b"),
    (pc.starts_with(a, "\U0010ffff"), "\U0010ffff", None),
    (pc.match_like(a, "k0%"), "k0", "k1"),
    (pc.match_like(a, "k0_5"), "k0", "k1"),
    (pc.match_like(a, "k\\\\_"), "k", "l"),
    (pc.match_like(a, "k05"), "k05", "k06"),
]


def test_texts_that_begin_alike_are_a_range_of_which_no_row_is_sure():
    for expression, low, high in BEGINNINGS:
        found = from_expression(expression)
        assert isinstance(found, And), str(expression)
        *bounds, rest = found.parts
        assert bounds == [Compare(A, ">=", low), *([] if high is None else [Compare(A, "<", high)])], str(expression)
        assert isinstance(rest, Unknown)


def test_beginnings_and_choices_that_are_unknown():
    for expression in (
        pc.starts_with(a, ""),
        pc.starts_with(a, "k", ignore_case=True),
        pc.match_like(a, "%5"),
        pc.match_like(a, "k%", ignore_case=True),
        pc.starts_with(pc.utf8_lower(a), "k"),
        pc.if_else(a == 1, b == 1, b == 2),
        pc.if_else(a, b, b),
    ):
        assert isinstance(from_expression(expression), Unknown), str(expression)


def test_nan_counts_as_null():
    some = from_expression(a.is_null(nan_is_null=True))
    assert some.parts[0] == IsNull(A)
    assert isinstance(some.parts[1], Unknown)


def test_a_zero_in_a_set_finds_only_zeros_of_its_sign_and_nan_is_found():
    for zero in (0, 0.0, -0.0, D("0.00")):
        found = from_expression(a.isin([zero]))
        assert IsIn(A, (0,)) in list(leaves_of(found)), "a row group without zeros is skipped"
        assert answers(found, {"a": Fraction(0)}, {A: pa.float64()}) >= {True, False}
        assert answers(found, {"a": Fraction(1)}, {A: pa.float64()}) == {False}
    for values in ([NAN], [NAN, 1.0], [NAN, None]):
        found = from_expression(a.isin(values))
        assert answers(found, {"a": NAN}, {A: pa.float64()}) >= {True, False}


def test_a_time_in_a_set_finds_its_day():
    assert pa.table({"a": [dt.date(2026, 1, 1)]}).filter(a.isin([dt.datetime(2026, 1, 1, 5)])).num_rows == 1
    found = from_expression(a.isin([dt.datetime(2026, 1, 1, 5)]))
    assert IsIn(A, (dt.date(2026, 1, 1),)) in list(leaves_of(found))


# --- literals ---------------------------------------------------------------------------------------

LITERALS = [
    (True, None, True),
    (5, pa.uint64(), 5),
    (2**64 - 1, pa.uint64(), 2**64 - 1),
    (np.float16(1.5), pa.float16(), 1.5),
    (0.1, pa.float32(), float(np.float32(0.1))),
    (0.1, None, 0.1),
    (D("1.20"), None, D("1.20")),
    (D("1.20"), pa.decimal256(60, 2), D("1.20")),
    (D(10) ** 27, pa.decimal128(38, 0), D(10) ** 27),
    ("é", None, "é"),
    ("é", pa.large_string(), "é"),
    ("é", pa.string_view(), "é"),
    (b"\xff", None, b"\xff"),
    (b"\xff", pa.large_binary(), b"\xff"),
    (b"\xff", pa.binary_view(), b"\xff"),
    (b"\xff", pa.binary(1), b"\xff"),
    (FIVE.bytes, pa.uuid(), FIVE),
    ("{}", pa.json_(), "{}"),
    (dt.date(2026, 1, 1), None, dt.date(2026, 1, 1)),
    (dt.date(2026, 1, 1), pa.date64(), dt.date(2026, 1, 1)),
    (dt.date(1, 1, 1), None, dt.date(1, 1, 1)),
    (5, pa.timestamp("s"), Instant(5 * 10**9, False)),
    (-5, pa.timestamp("ms"), Instant(-5 * 10**6, False)),
    (5, pa.timestamp("us", "UTC"), Instant(5000, True)),
    (5, pa.timestamp("ns", "Asia/Tokyo"), Instant(5, True)),
    (5, pa.timestamp("ns", "No/Where"), Instant(5, True)),
    (2**62, pa.timestamp("s"), Instant(2**62 * 10**9, False)),
    (dt.time(1), None, TimeOfDay(3600 * 10**9)),
    (5, pa.time32("s"), TimeOfDay(5 * 10**9)),
    (5, pa.time64("ns"), TimeOfDay(5)),
    (None, pa.uuid(), None),
    (None, pa.timestamp("us"), None),
]


def test_a_literal_keeps_its_value():
    found = [valued(value, kind) for value, kind, _ in LITERALS]
    assert found == [literal for *_, literal in LITERALS]
    assert list(map(type, found)) == [type(literal) for *_, literal in LITERALS]


def test_a_dictionary_scalar_is_its_value():
    scalar = pa.DictionaryArray.from_arrays([1, None], ["x", "y"])
    assert from_expression(a == scalar[0]) == Compare(A, "=", "y")
    assert from_expression(a == scalar[1]) == Compare(A, "=", None)


def test_nan_is_a_literal():
    found = from_expression(a < NAN)
    assert found.value != found.value


def test_a_text_that_is_not_utf8():
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    assert isinstance(from_expression(a == broken[0]), Unknown)


# --- only what can be built anew --------------------------------------------------------------------


def test_another_expression_in_the_pickle_is_not_believed(monkeypatch):
    """As if a later pyarrow wrote `less` where it means `less or equal`."""

    class Odd(PickledExpression):
        def __init__(self, expression):
            super().__init__(expression)
            self.pairs = [(key, value.replace(b"less", b"less_equal")) for key, value in self.pairs]

    monkeypatch.setattr(arrow, "PickledExpression", Odd)
    assert from_expression(a == 1) == Compare(A, "=", 1)
    assert isinstance(from_expression(a < 1), Unknown)


ODD_PAIRS = b"""|end equal|call equal|literal 7|literal x|nested_field_ref 3, field_ref a|field_ref \xff|what a
field_ref a, field_ref a|call equal, end less|options 0""".replace(b"\n", b"|").split(b"|")


def test_a_pickle_of_another_form_is_unknown(monkeypatch):
    for text in ODD_PAIRS:
        pairs = [tuple(pair.split(b" ")) for pair in text.split(b", ") if pair]

        class Odd(PickledExpression):
            def __init__(self, expression, pairs=pairs):
                super().__init__(expression)
                self.pairs = pairs

        monkeypatch.setattr(arrow, "PickledExpression", Odd)
        assert isinstance(from_expression(a == 1), Unknown), text


def test_pairs_keep_their_order_and_repeated_keys():
    assert PickledExpression((a == 1) & (b == 2)).pairs == [
        (b"call", b"and_kleene"),
        *[(b"call", b"equal"), (b"field_ref", b"a"), (b"literal", b"0"), (b"end", b"equal")],
        *[(b"call", b"equal"), (b"field_ref", b"b"), (b"literal", b"1"), (b"end", b"equal")],
        (b"end", b"and_kleene"),
    ]
    assert PickledExpression(f("é") == 1).pairs[1] == (b"field_ref", "é".encode())


def test_long_chains_are_one_level():
    found = from_expression(functools.reduce(operator.or_, [a == i for i in range(3000)]))
    assert isinstance(found, Or)
    assert len(found.parts) == 3000


def test_deep_nesting_ends_in_an_unknown_part():
    deep = functools.reduce(lambda e, i: ~e & (b == i), range(300), a == 1)
    assert Compare(B, "=", 299) in list(leaves_of(from_expression(deep)))


# --- as pyarrow filters -----------------------------------------------------------------------------


def as_pyarrow(kind: pa.DataType, value: Any, op: str, literal: Any) -> Answers:
    """What a comparison may give: binding must not deny a float's neighbours, nor a literal of another kind."""
    either = frozenset((True, False))
    if value is None or literal is None:
        return frozenset((None,))
    number = isinstance(literal, int | float | Decimal) and not isinstance(literal, bool)
    if nature(kind) != ("number" if number else NATURES[type(literal)]):
        return either  # is_in casts texts, numbers, times and bytes to each other: 5 is a day, "5" is 5
    if pa.types.is_floating(kind) and number and literal == literal and literal not in (float("inf"), -float("inf")):
        if rounded(kind, D(literal) if isinstance(literal, float) else literal) != Fraction(literal):
            return either
    elif pa.types.is_decimal(kind) and isinstance(literal, float):
        return either
    elif isinstance(literal, Instant | dt.date) and pa.types.is_timestamp(kind) and kind.tz is not None:
        if not isinstance(literal, Instant) or not literal.utc:
            return either
    elif isinstance(literal, Instant) and pa.types.is_date(kind) and literal.utc:
        return either
    return frozenset((compare(kind, value, op, literal),))


NATURES = {bool: "bool", str: "text", bytes: "text", TimeOfDay: "time", uuid.UUID: "uuid"}
NATURES |= {dt.date: "day", Instant: "day"}


def nature(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "day"
    return "time" if types.is_time(kind) else "bool" if types.is_boolean(kind) else "text"


COLUMNS = sorted(path for path in PATHS if path[0] not in ("uuid", "st"))
SHAPES = ["compare", "compare", "mirrored", "in", "in", "duckdb", "begins", "null", "valid", "nan", "odd", "literal"]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> tuple[pc.Expression, set[tuple[str, ...]]]:
    if depth and draw(st.booleans()):
        left, paths = draw(expressions(depth - 1))
        which = draw(st.sampled_from(["and", "or", "not", "choose"]))
        if which == "not":
            return ~left, paths
        right, more = draw(expressions(depth - 1))
        if which == "choose":
            path = draw(st.sampled_from(COLUMNS))
            also = {path}
            condition = f(*path).is_valid() if draw(st.booleans()) else f(*path).is_null()
            if draw(st.integers(0, 3)) == 0:
                condition, also = draw(expressions(depth - 1))
            return pc.if_else(condition, left, right), paths | more | also
        return (left & right if which == "and" else left | right), paths | more
    path = draw(st.sampled_from([*COLUMNS, ("st", "x")]))
    kind, values, *_ = PATHS[path]
    column = f(*path)
    leaf = draw(st.sampled_from(SHAPES))
    if leaf == "literal":
        return pc.scalar(draw(st.sampled_from([True, False, None]))), set()
    if leaf in ("null", "valid", "nan"):
        return column.is_valid() if leaf == "valid" else column.is_null(nan_is_null=leaf == "nan"), {path}
    if leaf == "odd":
        return pc.coalesce(column == column, False), {path}
    if leaf == "begins":
        prefix = draw(st.sampled_from(["a", "ab", "Ω", "", "name", "\ud7ff", "z", "\x7f"]))
        like = prefix + draw(st.sampled_from(["", "%", "_%", "%b"]))
        return pc.starts_with(column, prefix) if draw(st.booleans()) else pc.match_like(column, like), {path}
    if draw(st.integers(0, 4)) == 0:  # a literal of another kind
        kind, values, *_ = PATHS[draw(st.sampled_from(COLUMNS))]
    if pa.types.is_dictionary(kind) or pa.types.is_large_string(kind):
        kind = pa.string()  # pyarrow 26 crashes on any comparison with a NULL of type large_string
    if leaf in ("in", "duckdb"):
        some = [*values, None] if draw(st.booleans()) else values
        wide = pa.float64() if pa.types.is_floating(kind) else kind
        chosen = pa.array(draw(st.lists(st.sampled_from(some), max_size=4)), wide).cast(kind)
        found = pc.is_in(column, value_set=chosen, skip_nulls=draw(st.booleans()))
        return pc.if_else(column.is_valid(), found, NULL) if leaf == "duckdb" else found, {path}
    scalar = pa.scalar(draw(st.sampled_from([*values, None])), pa.float64() if pa.types.is_float16(kind) else kind)
    compared = draw(st.sampled_from(COMPARISONS))
    return (compared(column, scalar) if leaf == "compare" else compared(pc.scalar(scalar), column)), {path}


@settings(max_examples=130, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_tree_says_what_pyarrow_does(data):
    expression, paths = data.draw(expressions())
    table = data.draw(tables(paths))
    found = from_expression(expression)
    try:
        true = set(table.filter(expression)["row"].to_pylist())
        false = set(table.filter(~expression)["row"].to_pylist())
    except pa.ArrowException:
        return  # pyarrow does not compare the two at all
    for at, row in enumerate(rows_of(table)):
        said = True if at in true else False if at in false else None
        assert said in answers(found, row, TYPES, as_pyarrow), f"{expression} -> {found}, row {at}"
    if all(not isinstance(leaf, Unknown) for leaf in leaves_of(found)):
        assert paths >= {leaf.path for leaf in leaves_of(found)}


# --- DNF --------------------------------------------------------------------------------------------

EAST = dt.timezone(dt.timedelta(hours=1))
FILTERS = [
    ([("a", "=", 1)], Compare(A, "=", 1)),
    ([["a", "==", 1]], Compare(A, "=", 1)),
    ([("a", "!=", 1)], Not(Compare(A, "=", 1))),
    ([("a", ">=", 1), ("a", "<", 9)], And((Compare(A, ">=", 1), Compare(A, "<", 9)))),
    (
        [[("a", "=", 1)], [("b", "<=", 1), ("a", ">", 2)]],
        Or((Compare(A, "=", 1), And((Compare(B, "<=", 1), Compare(A, ">", 2))))),
    ),
    ([("a", "in", {1})], And((IsIn(A, (1,)), Not(IsNull(A))))),
    ([("a", "not in", (1, 2))], Not(And((IsIn(A, (1, 2)), Not(IsNull(A)))))),
    ([("a", "in", np.array([1, 2]))], And((IsIn(A, (1, 2)), Not(IsNull(A))))),
    ([("a", "in", pd.Series([1, 2]))], And((IsIn(A, (1, 2)), Not(IsNull(A))))),
    ([("a", "in", pa.chunked_array([[1], [2]]))], And((IsIn(A, (1, 2)), Not(IsNull(A))))),
    ([("user.id", "=", 1)], Compare(("user.id",), "=", 1)),
    ([("a", "=", None)], Compare(A, "=", None)),
    ([("a", "=", pd.NaT)], Compare(A, "=", None)),
    ([("a", "=", dt.datetime(1970, 1, 1, 0, 0, 1))], Compare(A, "=", Instant(10**9, False))),
    ([("a", "=", dt.datetime(1970, 1, 1, 1, tzinfo=EAST))], Compare(A, "=", Instant(0, True))),
    ([("a", "=", dt.date(2026, 1, 1))], Compare(A, "=", dt.date(2026, 1, 1))),
    ([("a", "=", dt.time(0, 0, 1))], Compare(A, "=", TimeOfDay(10**9))),
    ([("a", "=", D("1.20"))], Compare(A, "=", D("1.20"))),
    ([("a", "=", b"\xff")], Compare(A, "=", b"\xff")),
    ([("a", "=", FIVE)], Compare(A, "=", FIVE)),
    ([("a", "in", [FIVE])], And((IsIn(A, (FIVE,)), Not(IsNull(A))))),
    ([("a", "=", np.int8(5))], Compare(A, "=", 5)),
    ([("a", "=", np.bool_(True))], Compare(A, "=", True)),
    ([("a", "=", np.str_("x"))], Compare(A, "=", "x")),
    ([("a", "=", np.datetime64("2026-01-01"))], Compare(A, "=", dt.date(2026, 1, 1))),
    ([("a", "=", np.datetime64(5, "ns"))], Compare(A, "=", Instant(5, False))),
    ([("a", "=", pd.Timestamp(5))], Compare(A, "=", Instant(5, False))),
    ([("a", "=", pd.Timestamp(5, tz="Asia/Tokyo"))], Compare(A, "=", Instant(5, True))),
    ([("a", "=", pd.Timestamp("2026-01-01"))], Compare(A, "=", Instant(1767225600 * 10**9, False))),
]  # fmt: skip


def test_filters_as_lists():
    for filters, tree in FILTERS:
        assert from_filters(filters) == tree, str(filters)
        assert from_filters(as_expression(filters)) == tree, str(filters)


def test_nanoseconds_in_a_list_are_kept():
    found = from_filters([("a", "in", [pd.Timestamp(5), pd.Timestamp(86_400 * 10**9), None])])
    assert IsIn(A, (Instant(5, False), Instant(86_400 * 10**9, False))) in found.parts


def test_an_expression_is_taken_as_it_is():
    assert as_expression(a == 1) is not None
    assert from_filters(a == 1) == Compare(A, "=", 1)
    expression = a < 1
    assert as_expression(expression) is expression


MALFORMED = [
    (None, "give an Expression"),
    ([], "not an empty list"),
    ({}, "give an Expression"),
    ("a = 1", "give an Expression"),
    (("a", "=", 1), "not a single tuple|a list is missing"),
    ([[]], "not \\(column, op, value\\)"),
    ([("a", "=")], "not \\(column, op, value\\)"),
    ([(1, "=", 1)], "not \\(column, op, value\\)"),
    ([[("a", "=", 1)], ("b", "=", 1)], "not \\(column, op, value\\)"),
    ([("a", "~", 1)], "column a: '~' is none of =, ==, !=, <, >, <=, >=, in, not in"),
    ([("a", ["="], 1)], "is none of"),
    ([("a", "in", 5)], "in needs a list"),
    ([("a", "in", "abc")], "in needs a list"),
    ([("a", "in", [1, "x"])], "is no literal"),
    ([("a", "=", object())], "is no literal"),
    ([("a", "=", 10**30)], "is no literal"),
    ([("a", "=", D("NaN"))], "is no literal"),
    ([("a", "=", "\ud800")], "is no literal"),
    ([("a", "=", pd.NA)], "is no literal"),
    ([("a", "=", np.datetime64("2026-01-01T05", "h"))], "is no literal"),
]


def test_lists_that_are_no_filters():
    for filters, message in MALFORMED:
        with named(filters), pytest.raises(RequestError, match=message) as caught:
            from_filters(filters)
        assert "\n" not in str(caught.value)


def test_a_nanosecond_finer_than_the_column_equals_nothing(tmp_path):
    """pyarrow cuts pandas' Timestamp to microseconds in DNF lists, and finds the row; numpy's datetime64 it leaves."""
    pq.write_table(pa.table({"t": pa.array([1000, 2000], pa.timestamp("us"))}), tmp_path / "t.parquet")
    finer = pd.Timestamp(1_000_001)
    assert pq.read_table(tmp_path / "t.parquet", filters=[("t", "=", finer)]).num_rows == 1
    for value in (finer, finer.to_datetime64()):
        assert parquet_bloom.read_table(tmp_path / "t.parquet", [("t", "=", value)]).num_rows == 0
        assert parquet_bloom.read_table(tmp_path / "t.parquet", [("t", ">", value)]).num_rows == 1
        assert parquet_bloom.read_table(tmp_path / "t.parquet", [("t", "<=", value)]).num_rows == 1


def test_many_conditions_are_an_error_before_pyarrow_ends_the_process(tmp_path):
    text = r'10,001 conditions, more than 10,000; write \("id", "in", \[...\]\), or give'
    for filters in ([[("a", "=", i)] for i in range(10_001)], [("a", "!=", i) for i in range(10_001)]):
        with pytest.raises(RequestError, match=text):
            from_filters(filters)
    assert len(from_filters([[("a", "=", i)] for i in range(10_000)]).parts) == 10_000
    assert len(from_filters([("a", "in", list(range(20_000)))]).parts) == 2
