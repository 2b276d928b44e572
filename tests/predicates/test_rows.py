"""row_filter: the rows a predicate keeps, against brute force, DuckDB and a table of cases."""

from __future__ import annotations

import datetime as dt
import math
import operator
import random
import re
import uuid
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.kleene import answers
from support.named import named
from support.repeats import by_turns
from support.tables import TYPES, rows_of, tables, trees

from parquet_bloom.errors import RequestError, UnknownColumnError
from parquet_bloom.format.literals import Instant, TimeOfDay, as_literal
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate, Unknown, leaves_of

D = Decimal
NAN = float("nan")
FIVE = uuid.UUID(int=5)
QUICK = settings(
    max_examples=100,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def paths_of(predicate: Predicate) -> set[tuple[str, ...]]:
    return {leaf.path for leaf in leaves_of(predicate) if not isinstance(leaf, Unknown)}


def mask(predicate: Predicate, table: pa.Table) -> list[bool | None]:
    keep = row_filter(predicate, table.schema)
    found = [value for batch in table.to_batches() for value in keep.mask(batch).to_pylist()]
    assert sum(map(keep.count, table.to_batches())) == sum(value is True for value in found)
    if keep.expression is not None:
        rows = table.append_column("row ", pa.array(range(len(table)))).filter(keep.expression)["row "].to_pylist()
        assert rows == [i for i, value in enumerate(found) if value], "the expression and the mask differ"
    return found


def one(values: pa.Array, op: str, literal) -> list[bool | None]:
    return mask(Compare(("c",), op, literal), pa.table({"c": values}))


# --- brute force and DuckDB -------------------------------------------------------------------------


@QUICK
@given(st.data())
def test_any_tree_over_any_table_as_by_brute_force(data):
    predicate = data.draw(trees())
    table = data.draw(tables(paths_of(predicate)))
    expected = [answers(predicate, row, TYPES) for row in rows_of(table)]
    assert [frozenset((value,)) for value in mask(predicate, table)] == expected, str(predicate)


@QUICK
@given(st.data(), st.integers(0, 7), st.integers(0, 8))
def test_slices_of_batches_are_filtered_alike(data, start, length):
    predicate = data.draw(trees(depth=1))
    table = data.draw(tables(paths_of(predicate)))
    [whole] = table.to_batches()
    batch = whole.slice(start, length)
    keep = row_filter(predicate, table.schema)
    expected = keep.mask(whole).to_pylist()[start : start + length]
    assert keep.mask(batch).to_pylist() == expected
    rows = keep.filter_batch(batch)["row"].to_pylist()
    assert rows == [row for row, value in enumerate(expected, start) if value]


@pytest.fixture(scope="module")
def engine():
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@settings(QUICK, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_same_text_in_duckdb_gives_the_same_rows(engine, data):
    predicate = data.draw(trees(shared=True))
    # Over an empty list `list_contains(l, NULL)` is NULL in DuckDB up to 2.0.0, as here, and FALSE from 2.0.1 on.
    assume(not any(isinstance(leaf, Contains) and leaf.value is None for leaf in leaves_of(predicate)))
    table = data.draw(tables(paths_of(predicate), nan=False))  # DuckDB's NaN equals itself and is the largest
    engine.register("t", table)
    text = str(predicate)
    for value in {str(leaf) for leaf in leaves_of(predicate) if "+00:00'" in str(leaf)}:
        text = text.replace(value, value.replace("TIMESTAMP '", "TIMESTAMPTZ '"))
    text = re.sub(r"DECIMAL '([^']*)'", r"\1", text)  # which DuckDB would make a DECIMAL(18, 3)
    rows = [row for (row,) in engine.execute(f"SELECT row FROM t WHERE {text} ORDER BY row").fetchall()]
    assert [i for i, value in enumerate(mask(predicate, table)) if value] == rows, text


@pytest.mark.skipif(int(duckdb.__version__.split(".")[0]) < 2, reason="DuckDB 1 rounds twice beyond 2^53")
def test_decimals_against_doubles_as_in_duckdb(engine):
    for precision, scale in ((4, 3), (9, 2), (18, 10), (38, 4), (38, 30)):
        rng = random.Random(scale)
        values = [rng.choice((1, -1)) * rng.randrange(10 ** rng.randint(1, precision)) for _ in range(60)]
        values = [D(value).scaleb(-scale) for value in values]
        table = pa.table({"row": range(60), "c": pa.array(values, pa.decimal128(precision, scale))})
        engine.register("t", table)
        for value in map(float, values):
            literal = math.nextafter(value, rng.choice((-math.inf, value, value, math.inf)))
            compared = Compare(("c",), rng.choice(["=", "<", "<=", ">", ">="]), literal)
            for tree in (compared, IsIn(("c",), (literal, 1.5))):
                rows = [row for (row,) in engine.execute(f"SELECT row FROM t WHERE {tree} ORDER BY row").fetchall()]
                assert [i for i, answer in enumerate(mask(tree, table)) if answer] == rows, str(tree)


# --- cases ------------------------------------------------------------------------------------------

T, F, N = True, False, None
CASES = [
    ("a literal above the range", pa.array([1, 127, None], pa.int8()), "<", 300, [T, T, N]),
    ("equals nothing above the range, but NULL stays", pa.array([44, None], pa.int8()), "=", 300, [F, N]),
    ("-1 is no unsigned 255", pa.array([255, None], pa.uint8()), "=", -1, [F, N]),
    ("half an integer", pa.array([1, 2, -1, -2, None]), "<", D("-1.5"), [F, F, F, T, N]),
    ("2^53 + 1 is no double, an int64 it is", pa.array([2**53, 2**53 + 1]), "=", 2**53 + 1, [F, T]),
    ("a double is taken at its exact value", pa.array([2**53, 2**53 + 1]), "=", 2.0**53, [T, F]),
    ("beyond all doubles", pa.array([1, None]), "<", 10**400, [T, N]),
    ("an exponent that would not fit in memory", pa.array([1, None]), "<", D("1E+999999"), [T, N]),
    ("the smallest above zero", pa.array([0, 1]), ">=", D("1E-999999"), [F, T]),
    ("NaN compares with nothing", pa.array([1, None]), "<", NAN, [F, N]),
    ("0.1 is rounded to float32 first", pa.array([0.1, None], pa.float32()), "=", D("0.1"), [T, N]),
    ("a double is not, as in DuckDB", pa.array([0.1, None], pa.float32()), "=", 0.1, [F, N]),
    ("finite is below infinity", pa.array([float("inf"), 1e38], pa.float32()), "<", D("1E+39"), [F, T]),
    ("infinity is above all finite", pa.array([float("inf"), 1e38], pa.float32()), ">", D("1E+39"), [T, F]),
    ("the zeros are equal", pa.array([0.0, -0.0, NAN]), "=", 0, [T, T, F]),
    ("a finer scale equals nothing", pa.array([D("1.20"), None], pa.decimal128(3, 2)), "=", D("1.201"), [F, N]),
    ("a finer scale lies between", pa.array([D("1.20"), D("1.21")], pa.decimal128(3, 2)), "<", D("1.201"), [T, F]),
    ("a coarser scale is the same", pa.array([D("1.20"), D("1.21")], pa.decimal128(3, 2)), "=", D("1.2"), [T, F]),
    ("beyond the precision", pa.array([D("9.99"), None], pa.decimal128(3, 2)), ">", 10**40, [F, N]),
    ("a double against decimals goes by doubles", pa.array([D("1.20")], pa.decimal128(3, 2)), "=", 1.2, [T]),
    ("a decimal is the double nearest to it", pa.array([D("3.9595")], pa.decimal128(18, 4)), "=", 3.9595, [T]),
    ("decimal256", pa.array([D(10**50)], pa.decimal256(60, 0)), "=", 10**50, [T]),
    ("finer than the unit equals nothing", pa.array([0, None], pa.timestamp("s")), "=", Instant(1, False), [F, N]),
    ("finer than the unit lies between", pa.array([0, 1, None], pa.timestamp("s")), "<", Instant(1, False), [T, F, N]),
    ("beyond int64 of the unit", pa.array([0], pa.timestamp("ns")), "<", dt.date(9999, 1, 1), [T]),
    ("a day is its midnight", pa.array([0, 86_400], pa.timestamp("s")), "=", dt.date(1970, 1, 2), [F, T]),
    ("a day is before its noon", pa.array([1, 2], pa.date32()), "<", Instant(129_600 * 10**9, False), [T, F]),
    ("date64", pa.array([86_400_000, None], pa.date64()), "=", dt.date(1970, 1, 2), [T, N]),
    ("a text as a day", pa.array([1, 2], pa.date32()), "=", "1970-01-02", [T, F]),
    ("a text as a time stamp", pa.array([0, 1], pa.timestamp("us", "UTC")), "=", "1970-01-01 01:00+01:00", [T, F]),
    ("a column's zone is for show", pa.array([0], pa.timestamp("s", "Asia/Tokyo")), "=", Instant(0, True), [T]),
    ("a text as a time", pa.array([0, 1500], pa.time32("ms")), "=", "00:00:01.5", [F, T]),
    ("a time beyond the unit", pa.array([1], pa.time32("s")), ">", TimeOfDay(1), [T]),
    ("a text's UTF-8", pa.array(["é", "z"]), ">", "z", [T, F]),
    ("bytes against texts", pa.array(["a", None]), "=", b"\xff", [F, N]),
    ("a string view", pa.array(["a", None]).cast(pa.string_view()), "=", "a", [T, N]),
    ("a binary view", pa.array([b"a", None]).cast(pa.binary_view()), "<", b"b", [T, N]),
    ("bytes of another length", pa.array([b"ab"], pa.binary(2)), "=", b"abc", [F]),
    ("bytes of another length have their place", pa.array([b"ab"], pa.binary(2)), "<", b"abc", [T]),
    ("a uuid as text", pa.array([FIVE.bytes, None], pa.uuid()), "=", str(FIVE), [T, N]),
    ("a uuid in plain bytes", pa.array([FIVE.bytes], pa.binary(16)), "=", FIVE, [T]),
    ("a dictionary", pa.array(["a", "b", None]).dictionary_encode(), ">", "a", [F, T, N]),
    ("a dictionary with a null in it", pa.DictionaryArray.from_arrays([0, 1], pa.array(["a", None])), "=", "a", [T, N]),
    ("json is text", pa.array(["{}", None], pa.json_()), "=", "{}", [T, N]),
    ("a column of nothing but NULL", pa.nulls(2), "=", 1, [N, N]),
    ("FALSE is below TRUE", pa.array([T, F, N]), "<", True, [F, T, N]),
    ("NULL", pa.array([1, None]), "=", None, [N, N]),
]  # fmt: skip


def test_a_literal_is_cast_exactly():
    for name, values, op, literal, expected in CASES:
        with named(name):
            if not pa.types.is_string_view(values.type) and not pa.types.is_binary_view(values.type):
                assert one(values, op, literal) == expected
                continue
            # pyarrow's own `filter` has no kernel for views.
            keep = row_filter(Compare(("c",), op, literal), pa.schema({"c": values.type}))
            batch = pa.record_batch({"c": values})
            assert keep.mask(batch).to_pylist() == expected
            kept = [value for value, yes in zip(values.to_pylist(), expected, strict=True) if yes]
            assert keep.filter_batch(batch)["c"].to_pylist() == kept


IN_CASES = [
    ("NULL in the list", pa.array([1, 2, None]), (1, None), [T, N, N]),
    ("an empty list", pa.array([1, None]), (), [F, N]),
    ("nothing that fits", pa.array([1, None], pa.int8()), (300, D("1.5")), [F, N]),
    ("only NULL", pa.array([1, None]), (None,), [N, N]),
    ("both zeros by one", pa.array([0.0, -0.0, NAN, None]), (0.0,), [T, T, F, N]),
    ("both zeros by the negative one", pa.array([0.0, -0.0], pa.float32()), (-0.0,), [T, T]),
    ("half floats", pa.array([np.float16(0.5), np.float16(-0.0)], pa.float16()), (D("0.5"), 0), [T, T]),
    ("NaN", pa.array([NAN, 1.0]), (NAN, 1), [F, T]),
    ("doubles and decimals", pa.array([D("1.20"), D("1.30")], pa.decimal128(3, 2)), (1.2, D("1.3")), [T, T]),
    ("uuids", pa.array([FIVE.bytes, None], pa.uuid()), (FIVE, str(FIVE)), [T, N]),
    ("texts and bytes", pa.array(["a", "b", "c"]), ("a", b"b"), [T, T, F]),
    ("a dictionary", pa.array(["a", "b", None]).dictionary_encode(), ("a", "x"), [T, F, N]),
    ("times", pa.array([0, 1500, None], pa.time32("ms")), ("00:00:01.5", TimeOfDay(1)), [F, T, N]),
    ("time stamps", pa.array([0, 1], pa.timestamp("ns", "UTC")), (Instant(1, True),), [F, T]),
    ("repeated values", pa.array([1, 2]), (1, 1, D("1.0"), 1.0), [T, F]),
]  # fmt: skip


def test_in_a_list():
    for name, values, literals, expected in IN_CASES:
        assert mask(IsIn(("c",), literals), pa.table({"c": values})) == expected, name


KINDS = [
    *(pa.int32(), pa.int64(), pa.uint32(), pa.uint64(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us")),
    *(pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.int8(), pa.uint16(), pa.float64(), pa.string()),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "nulls"), by_turns([*KINDS, pa.int32()], [True, False]), ids=str)
def test_in_a_list_whose_values_end_with_the_bits_of_others(kind, nulls):
    rng = np.random.default_rng(7)
    most, unit = {pa.int8(): 100, pa.uint16(): 1 << 16}.get(kind, 5 << 16), 86_400_000 if kind == pa.date64() else 1
    numbers = rng.integers(0, most, 5_000)
    numbers[::7] = rng.integers(0, 5, len(numbers[::7])) * (most // 5)  # most of them end in 16 zeros
    array = pa.array(numbers * unit, mask=rng.random(5_000) < 0.2 if nulls else None)
    narrow = array.cast(pa.int32()) if kind in (pa.date32(), pa.time32("ms")) else array
    values = narrow.cast(kind)
    wanted = {values[n].as_py() for n in (0, 7, 14, 2_501, 4_998)} - {None}
    keep = row_filter(IsIn(("c",), tuple(map(as_literal, wanted))), pa.schema({"c": kind}))
    found = []
    for start, length in ((0, 1), (1, 2), (3, 3_998), (4_001, 999)):
        found += keep.mask(pa.record_batch({"c": values.slice(start, length)})).to_pylist()
    assert found == [None if value is None else value in wanted for value in values.to_pylist()]
    assert {True, False} < set(found) if nulls else {True, False} == set(found)


def test_in_a_list_of_most_values_and_over_no_rows():
    keep = row_filter(IsIn(("c",), tuple(range(9))), pa.schema({"c": pa.int64()}))
    for values in ([*range(10)] * 20, [], [1 << 16, 5, None, -1], [9] * 40):
        batch = pa.record_batch({"c": pa.array(values, pa.int64())})
        assert keep.mask(batch).to_pylist() == [None if value is None else value in range(9) for value in values]
    for kind in (pa.int64(), pa.int32()):
        keep = row_filter(IsIn(("c",), (1, 2)), pa.schema({"c": kind}))
        none = pa.Array.from_buffers(kind, 0, [None, None])  # as others hand over no rows
        assert keep.mask(pa.record_batch({"c": none})).to_pylist() == []


MISFITS = [
    (pa.int64(), "abc", "column c is int64: 'abc' is no literal for it; write it without quotes"),
    (pa.int64(), True, "TRUE is no literal"),
    (pa.int64(), dt.date(2026, 1, 1), "DATE '2026-01-01' is no literal"),
    (pa.bool_(), 1, "write TRUE or FALSE"),
    (pa.float32(), "1", "without quotes"),
    (pa.string(), 1, "write a text in quotes"),
    (pa.string(), "\ud800", "not Unicode"),
    (pa.timestamp("us"), Instant(0, True), "leave it out; write TIMESTAMP '1970-01-01 00:00:00'$"),
    (pa.timestamp("us", "UTC"), Instant(0, False), r"in UTC; write TIMESTAMP '1970-01-01 00:00:00\+00:00'$"),
    (pa.timestamp("us", "UTC"), dt.date(2026, 1, 1), r"write TIMESTAMP '2026-01-01 00:00:00\+00:00'$"),
    (pa.timestamp("us", "UTC"), "2026-01-01 12:00", r"write TIMESTAMP '2026-01-01 12:00:00\+00:00'$"),
    (pa.timestamp("us"), "noon", "write TIMESTAMP '2026-01-31 12:00:00'$"),
    (pa.timestamp("us"), "2026-02-30", "day"),
    (pa.date32(), Instant(0, True), "depends on a zone; write DATE '1970-01-01'$"),
    (pa.date32(), 5, "write DATE"),
    (pa.time64("us"), TimeOfDay(0, True), "has no zone; write TIME '00:00:00'$"),
    (pa.time64("us"), "25:00", "no such time"),
    (pa.uuid(), "abc", "no uuid"),
    (pa.duration("s"), 1, "not compared"),
    (pa.decimal128(3, -2), 1, "negative scale"),
    (pa.map_(pa.string(), pa.int32()), 1, "not compared"),
    (pa.struct({"x": pa.int32()}), 1, "is a struct; name one of its fields: c.x"),
    (pa.list_(pa.int32()), 1, r"column c speaks of a list; use list_contains\(c, ..\)"),
]


def test_a_literal_that_is_none_for_the_column():
    for kind, literal, message in MISFITS:
        for predicate in (Compare(("c",), "=", literal), IsIn(("c",), (literal,))):
            with named((kind, literal)), pytest.raises(RequestError, match=message):
                row_filter(predicate, pa.schema({"c": kind}))


# --- columns ----------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    {"id": pa.int64(), "a.b": pa.int64(), "a": pa.struct({"b": pa.int64(), "l": pa.list_(pa.int32())}),
     "l": pa.list_(pa.field("thing", pa.int32())), "m": pa.map_(pa.string(), pa.int32())}
)  # fmt: skip


def test_the_columns_that_are_needed():
    predicate = And((Compare(("a.b",), "=", 1), IsNull(("l",)), Compare(("a", "b"), "=", 1), Compare(("a.b",), ">", 0)))
    assert row_filter(predicate, SCHEMA).columns == ["a.b", "l", "a"]


def test_a_dot_in_a_name_is_not_a_field_of_a_struct():
    table = pa.table({"a.b": [1, 2], "a": [{"b": 2}, {"b": 1}]})
    assert mask(Compare(("a.b",), "=", 1), table) == [True, False]
    assert mask(Compare(("a", "b"), "=", 1), table) == [False, True]


def test_a_list_by_any_of_its_paths():
    for text in ("l", "l.list.element", "l.list", "l.element", "l.list.thing", "l.array"):
        keep = row_filter(Contains(tuple(text.split(".")), 1), SCHEMA)
        assert (keep.expression, keep.columns) == (None, ["l"]), text


def test_columns_that_are_refused():
    for text in ("x", "ID", "a.c", "id.x", "l.a.b", "l.nothing"):
        with named(text), pytest.raises(UnknownColumnError, match="no column"):
            row_filter(Compare(tuple(text.split(".")), "=", 1), SCHEMA)
    with pytest.raises(UnknownColumnError, match="ambiguous"):
        row_filter(IsNull(("c",)), pa.schema([("c", pa.int32()), ("c", pa.int32())]))
    lists = pa.schema({"c": pa.list_(pa.list_(pa.int32()))})
    for predicate, schema, message in (
        (Contains(("id",), 1), SCHEMA, "not a list"),
        (Contains(("m",), 1), SCHEMA, "not a list"),
        (Contains(("a",), 1), SCHEMA, "not a list"),
        (IsNull(("l", "element")), SCHEMA, "speaks of a list's elements; use l"),
        (Contains(("c",), 1), lists, "not compared"),
        (Or((And(()), Unknown("soundex(a)", "it is odd"))), SCHEMA, "rows cannot be filtered by soundex.*: it is odd"),
    ):
        with named(predicate), pytest.raises(RequestError, match=message):
            row_filter(predicate, schema)


def test_a_batch_of_another_schema():
    keep = row_filter(Compare(("id",), "=", 1), SCHEMA)
    with pytest.raises(RequestError, match="id is int32 here"):
        keep.mask(pa.record_batch({"id": pa.array([1], pa.int32())}))
    with pytest.raises(UnknownColumnError, match="no column id"):
        keep.mask(pa.record_batch({"x": pa.array([1])}))


# --- lists ------------------------------------------------------------------------------------------


def test_list_contains():
    has_1 = Contains(("c",), 1)
    for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        table = pa.table({"c": pa.array([[1, None], [], None, [2, 1], [None]], kind(pa.int64())), "i": range(5)})
        assert mask(has_1, table) == [T, F, N, T, F], "a NULL element is not equal, and not unknown either"
        assert mask(Contains(("c",), None), table) == [N, N, N, N, N]
        assert mask(Not(has_1), table) == [F, T, N, F, T]
        assert mask(Contains(("c",), D("1.5")), table) == [F, F, N, F, F]
        assert mask(has_1, table.slice(3)) == [T, F]


def test_what_lies_under_a_null_list_is_not_seen():
    values = pa.ListArray.from_arrays(pa.array([0, 2, 3]), pa.array([1, 1, 2]), mask=pa.array([True, False]))
    fixed = pa.FixedSizeListArray.from_arrays(pa.array([1, 1, 2, 3]), 2, mask=pa.array([True, False]))
    for array in (values, fixed):
        assert mask(Contains(("c",), 1), pa.table({"c": array})) == [N, F]
        assert mask(Contains(("c",), 2), pa.table({"c": array})) == [N, T]


def test_list_contains_as_duckdb_has_it(engine):
    cases = ["[1, NULL], 2", "[1, NULL], 1", "NULL::INT[], 1", "[1, NULL], NULL", "[]::INT[], 1", "[1], NULL"]
    found = [engine.execute(f"SELECT list_contains({case})").fetchall()[0][0] for case in cases]
    assert found == [False, True, None, None, False, None]
    arrays = [([1, None], 2), ([1, None], 1), (None, 1), ([1, None], None), ([], 1), ([1], None)]
    ours = [mask(Contains(("c",), v), pa.table({"c": pa.array([a], pa.list_(pa.int32()))}))[0] for a, v in arrays]
    assert ours == found


# --- scanners ---------------------------------------------------------------------------------------


def test_the_expression_filters_a_data_set(tmp_path):
    table = pa.table({"id": pa.array([1, 2, None], pa.int8())})
    ds.write_dataset(table, tmp_path, format="parquet")
    source = ds.dataset(tmp_path)
    for predicate, ids in (
        (Compare(("id",), "<", 300), [1, 2]),
        (And(()), [1, 2, None]),
        (Or(()), []),
        (Not(IsIn(("id",), (1, None))), []),
        (Or((IsNull(("id",)), IsIn(("id",), (2, D("2.5"))))), [2, None]),
    ):
        keep = row_filter(predicate, source.schema)
        assert source.to_table(filter=keep.expression)["id"].to_pylist() == ids, str(predicate)


def test_scanners_are_given_no_expression_that_they_fail_on(tmp_path):
    """pyarrow holds a cast column's literal against the uncast min and max, and has no kernel for uuids."""
    values = [FIVE.bytes, bytes(16)]
    table = pa.table({"u": pa.array(values, pa.uuid())})
    ds.write_dataset(table, tmp_path, format="parquet")
    with pytest.raises(pa.ArrowNotImplementedError):
        ds.dataset(tmp_path).to_table(filter=pc.field("u").cast(pa.binary(16)) == pa.scalar(FIVE.bytes, pa.binary(16)))
    keep = row_filter(Compare(("u",), "=", FIVE), table.schema)
    assert keep.expression is None
    assert mask(Compare(("u",), "=", FIVE), table) == [value == FIVE.bytes for value in values]


def test_thousands_of_parts():
    predicate = Or(tuple(Compare(("c",), "=", i) for i in range(3000)))
    table = pa.table({"c": [5, 2999, 3000, None]})
    assert mask(predicate, table) == [T, T, F, N]


def test_nested_too_deeply():
    predicate: Predicate = IsNull(("id",))
    for _ in range(5000):
        predicate = Not(predicate)
    with pytest.raises(RequestError, match="nested too deeply"):
        row_filter(predicate, SCHEMA)


def test_a_batch_of_which_all_rows_stay_is_not_copied():
    batch = pa.record_batch({"c": [1, 2]})
    assert row_filter(Compare(("c",), "<", 2**70), batch.schema).filter_batch(batch) is batch
    assert isinstance(row_filter(And(()), batch.schema).expression, pc.Expression)


COMPARE = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def test_nan_as_the_largest_value():
    """Spark's order: NaN = NaN, and greater than all others; -0.0 = 0.0."""
    order = [3, 1, 0, 2]
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        values = pa.array([np.float16(v) for v in (NAN, 1.0, -0.0, np.inf)] + [None], kind)
        batch = pa.record_batch({"c": values})

        def answers_of(predicate, batch=batch):
            return row_filter(predicate, batch.schema, nan="largest").mask(batch).to_pylist()

        for literal, place in ((NAN, 3), (D("NaN"), 3), (1.0, 1), (0.0, 0), (np.inf, 2), (D("0.5"), 0.5), (1, 1)):
            for op, compare in COMPARE.items():
                expected = [compare(rank, place) for rank in order]
                assert answers_of(Compare(("c",), op, literal)) == [*expected, None], (op, literal)
            expected = [rank != place for rank in order]
            assert answers_of(Not(IsIn(("c",), (literal, 7.0)))) == [*expected, None], literal
        assert answers_of(IsIn(("c",), (NAN, None))) == [True, None, None, None, None]
        assert answers_of(Compare(("c",), ">", None)) == [None] * 5
