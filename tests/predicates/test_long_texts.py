"""Long predicates: plain IN lists read without the parser, as the parser would; limits that say what to do instead."""

from __future__ import annotations

import random
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.named import named
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom.errors import TextError
from parquet_bloom.format.schema import BYTE_ARRAY, FLBA, INT32, INT64, Leaf
from parquet_bloom.format.statistics import ColumnStatistics
from parquet_bloom.format.values import Operand
from parquet_bloom.predicates import bind as bind_module
from parquet_bloom.predicates import outcomes, text
from parquet_bloom.predicates.bind import RANKED_FROM, Column, Members, Schema, bind
from parquet_bloom.predicates.sql import MOST_DIGITS, MOST_WORDS, ShortenedText, shortened
from parquet_bloom.predicates.tree import IsIn

WORDS = r"""IN|in|NOT|AND|OR|x|y.z|"a b"|`c`|(|)|,|1|-7|0.5|007|- 3|1.|.5|1e3|0xff|x'0f'|N'n'|'it''s'|'a' 'b'|''
'{}'|'\'|NULL|TRUE|=|IS|(1, 2)|('a', 'b')|IN (1, 2, 3)|x IN (-1, 2.50, 'c')|y NOT IN ('d', 'e''f')|/* ( */|{|$|#
\|;|:p|?|[1, 2]|list_contains(l, 5)|in(1, 2)|x.in (1, 2)|CASE WHEN|THEN|END|'(1, 2)'|"IN (1, 2)"|IN (1,2,)|IN ()
IN (1 2)|DATE '2020-01-01'|é|@|!""".replace("\n", "|").split("|")
WORDS += ["-- c\n", "\n", "\t", "\x0b", "\u00a0", "IN\n(\n1 ,2\t)"]


def read(source: str, take: bool) -> object:
    """What comes of a text: its tree, or its error with the place."""
    kept = text.shortened
    text.shortened = shortened if take else ShortenedText
    try:
        return text.parse(source)
    except TextError as error:
        return str(error), error.column, error.text
    finally:
        text.shortened = kept


@settings(max_examples=130)
@given(st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join))
@example("x IN (1, 2) IN (3, 4) AND")
@example("x = 5 AND y IN (1, 2) AND z = 'open")
@example("x IN (1, 2) AND lower(y) IN ('a', 'b') OR y IN ('c', 'd') AND x = x'0'")
@example("x IN (1, 2) AND IN (3, 4)")
@example("x IN (1, 2) OR y = DATE 'no'")
def test_lists_are_read_as_the_parser_reads_them(source: str) -> None:
    assert read(source, take=True) == read(source, take=False)


TEXTS = st.text(st.characters(exclude_characters="\\", exclude_categories=["Cs"]), max_size=5)
ANY_LITERAL = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda d: f"{d:f}"),
    TEXTS.map(lambda t: "'" + t.replace("'", "''") + "'"),
)


@given(st.lists(ANY_LITERAL, min_size=2, max_size=12))
def test_values_and_their_types_are_the_parsers(literals: list[str]) -> None:
    source = f"a OR x IN ({', '.join(literals)}) AND NOT b"
    quick, slow = read(source, take=True), read(source, take=False)
    assert quick == slow
    assert repr(quick) == repr(slow), "-0.0, 1 and 1.0 are not the same literal"
    assert shortened(source).lists, "the list is plain"


def test_what_may_be_read_in_other_ways_stays_with_the_parser() -> None:
    for values in ("1, 2) -- y", "1, 2) /* y */", "1, 1e3)", "1)", "1, NULL)", "'\\', 'a')"):
        assert not shortened(f"x IN ({values}").lists, values
    assert list(shortened("x IN (1, 2)").lists.values()) == [(1, 2)]
    assert shortened("x IN (10, 2) OR y IN ('c', 'd')").text == "x IN (10) OR y IN ('c')"


def test_places_in_the_shortened_text_are_those_of_the_whole() -> None:
    whole = "x IN (10, 2, 3) OR y IN ('c', 'd') AND z = 5"
    short = shortened(whole)
    assert [whole[short.position(i)] for i in range(len(short.text))] == list(short.text)
    with pytest.raises(TextError) as caught:
        text.parse("x IN (10, 2, 3) OR y IN ('c', 'd') AND = 5")
    assert caught.value.column == 39
    assert text.parse("x IN (1, 2) AND lower(y) IN ('a', 'b')").parts[1].text == "lower(y) IN ('a', 'b')"


def test_minus_zero_and_many_digits() -> None:
    tree = text.parse(f"x IN (-0, -0.0, {'9' * 5000}, 0.{'1' * 5000})")
    assert tree == IsIn(("x",), (0, Decimal("-0.0"), int(Decimal("9" * 5000)), Decimal("0." + "1" * 5000)))
    assert str(tree.values[1]) == "-0.0"


LONG = {
    "a million brackets": "(" * 10**6,
    "many brackets, closed": "(" * 10**5 + "id = 5" + ")" * 10**5,
    "a chain": " OR ".join(f"id = {i}" for i in range(10**5)),
    "a path": "a" + ".a" * 10**5 + " = 1",
    "signs": "id = " + "- " * 10**5 + "5",
    "a list with a NULL": "id IN (" + "NULL, " * 10**5 + "5)",
    "a list beside a comment": "id IN (" + "1, " * 10**5 + "5) -- those",
    "a number": "id = " + "9" * 10**6,
    "a number with a point": "id = 0." + "9" * 10**6,
    "hex digits": "id = 0x" + "f" * 10**6,
    "a number in a list": "id IN (1, " + "9" * 10**6 + ")",
    "a number in quotes": "id = DECIMAL '" + "9" * 10**6 + "'",
    "a date": "id = DATE '" + "9" * 10**6 + "'",
    "an open quote": "id = '" + "''" * 10**6,
    "nesting": "(" * 1000 + "id = 5" + ")" * 1000,
    "casts": "id = " + "CAST(" * 2000 + "5" + " AS INT)" * 2000,
}


def test_limits_are_errors_within_a_second() -> None:
    for name, source in LONG.items():
        begun = time.process_time()
        with named(name), pytest.raises(TextError) as caught:
            text.parse(source)
        assert time.process_time() - begun < 4, f"{name}: seconds; a minute and more without limits"
        message = str(caught.value)
        assert len(message) < 1000, "the text is not repeated"
        if f"{MOST_WORDS:,} words" in message:
            assert "prune(files, column=..., values=...)" in message


def test_what_is_just_within_the_limits_is_read() -> None:
    assert text.parse(f"id = {'9' * MOST_DIGITS}").value == int(Decimal("9" * MOST_DIGITS))
    assert len(text.parse(" OR ".join(f"id = {i}" for i in range(10**4))).parts) == 10**4


def test_a_long_list_is_read_in_a_pass() -> None:
    numbers, words = ", ".join(map(str, range(10**5))), ", ".join(f"'{i:032x}'" for i in range(10**5))
    source = f"id IN ({numbers}) AND t IN ({words})"
    begun = time.process_time()
    tree = text.parse(source)
    assert time.process_time() - begun < 2, "seconds; 5 through the parser"
    assert tree.parts[0] == IsIn(("id",), tuple(range(10**5)))
    assert tree.parts[1].values[10**5 - 1] == f"{10**5 - 1:032x}"


# --- the literals of long lists -------------------------------------------------------------------

LEAVES = [
    Leaf(0, ("c",), INT32),
    Leaf(0, ("c",), INT64),
    Leaf(0, ("c",), INT32, logical="INTEGER", bits=8),
    Leaf(0, ("c",), INT32, logical="INTEGER", bits=16, signed=False),
    Leaf(0, ("c",), INT32, logical="INTEGER", bits=32, signed=False),
    Leaf(0, ("c",), INT64, logical="INTEGER", bits=64, signed=False),
    Leaf(0, ("c",), INT64, logical="INTEGER", bits=64),
    Leaf(0, ("c",), INT64, logical="INTEGER", bits=7),
    Leaf(0, ("c",), INT32, logical="INTEGER", bits=64),
    Leaf(0, ("c",), INT32, logical="DATE"),
    Leaf(0, ("c",), INT64, logical="DECIMAL", scale=2, precision=10),
    Leaf(0, ("c",), BYTE_ARRAY),
    Leaf(0, ("c",), BYTE_ARRAY, logical="STRING"),
    Leaf(0, ("c",), BYTE_ARRAY, logical="JSON"),
    Leaf(0, ("c",), FLBA, type_length=16),
    Leaf(0, ("c",), FLBA, type_length=16, logical="UUID"),
]
VALUES = st.one_of(
    st.integers(-(2**65), 2**65),
    st.sampled_from([0, 1, -1, 127, 128, -128, 2**31, 2**31 - 1, 2**63, 2**64 - 1, True, None]),
    st.text(max_size=4),
    st.binary(max_size=4),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, places=1),
)


@given(st.sampled_from(LEAVES), VALUES)
def test_the_quick_way_to_an_operand_gives_the_same(leaf: Leaf, value: object) -> None:
    found = bind_module._quick(Column(leaf))(value)
    if found is not None:
        assert found == Column(leaf).operand(value)


def test_the_quick_way_is_taken() -> None:
    assert all(bind_module._quick(Column(leaf))(5) is not None for leaf in LEAVES[:7])
    assert all(bind_module._quick(Column(leaf))("é" if i else "e") is None for i, leaf in enumerate(LEAVES[:11]))
    assert all(bind_module._quick(Column(leaf))("e") is not None for leaf in LEAVES[11:13])


def test_ranked_operands_are_the_values_of_the_type_in_order() -> None:
    leaf = Leaf(0, ("c",), INT32)
    values = (*range(9, 0, -1), 2**40, Decimal("1.5"))
    bound = bind(IsIn(("c",), (*values, None)), Schema([leaf]))
    assert isinstance(bound, Members)
    assert (bound.ranked, bound.null) == (True, True)
    assert [one.lower for one in bound.operands] == list(range(1, 10)), "what no value equals is left out"
    few = bind(IsIn(("c",), values[: RANKED_FROM - 1]), Schema([leaf]))
    assert isinstance(few, Members)
    assert not few.ranked


@pytest.mark.parametrize("seed", range(2))
def test_long_lists_lose_no_row(seed: int, tmp_path: Path) -> None:
    """Long lists against bounds and filters: what is kept is what holds a value, but for false positives."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed).integers(0, 10**6, 5000)
    table = pa.table({"id": numbers, "t": [f"{i:08x}" for i in numbers.tolist()]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=250, use_dictionary=False)
    parquet_bloom.add_filters(tmp_path / "a.parquet", in_place=True, columns=["id", "t"], sync=False, fpp=1e-4)
    wanted = [rng.randrange(10**6) for _ in range(rng.choice((10, 3000, 20_000)))] + [int(numbers[rng.randrange(5000)])]
    held = np.isin(numbers.reshape(20, 250), wanted).any(axis=1)
    shown = [", ".join(map(str, wanted)), ", ".join(f"'{i:08x}'" for i in wanted)]
    for name, literals in zip(("id", "t"), shown, strict=True):
        verdicts = parquet_bloom.check(tmp_path / "a.parquet", f"{name} IN ({literals})")
        kept = ~np.array([v.skipped for v in verdicts])
        assert not np.any(held & ~kept), "a row group that holds a value is never skipped"
        if len(wanted) < 100:
            assert kept.sum() <= held.sum() + 1
        assert parquet_bloom.count(tmp_path / "a.parquet", f"{name} IN ({literals})") == int(
            np.isin(numbers, wanted).sum()
        )


@pytest.mark.parametrize("kind", [np.int64, np.uint64, np.float64, object])
@pytest.mark.parametrize("seed", first_then_more(range(4), 1))
def test_literals_between_bounds_are_found_for_all_row_groups_as_for_each(kind: type, seed: int) -> None:
    """Bounds at, between and beyond the literals, none, and at the ends of 64 bits."""
    rng = random.Random(seed)
    ends = {np.int64: (-(2**63), 2**63 - 1), np.uint64: (0, 2**64 - 1)}.get(kind, (-(10**6), 10**6))
    near = [rng.randrange(200) for _ in range(20)]
    values = sorted({*near, *(ends if rng.random() < 0.7 else ())})
    if kind is object:
        values = [f"{value:08}".encode() for value in values]
    ranked = [Operand(True, value, value, probes=(repr(value).encode(),)) for value in values]
    n = 60
    bounds = [[rng.choice([*values, *(v + 1 for v in near)]) if kind is not object else rng.choice(values)
               for _ in range(n)] for _ in range(2)]  # fmt: skip
    bounds = [[min(max(one, ends[0]), ends[1]) if kind is not object else one for one in some] for some in bounds]
    lower, upper = (np.array(some, kind) for some in bounds)
    has = [np.array([rng.random() < 0.8 for _ in range(n)]) for _ in range(2)]
    yes = np.ones(n, bool)
    statistics = ColumnStatistics(yes, yes, yes, lower, upper, has[0], has[1])
    first, last = outcomes._all_between(ranked, statistics)
    expected = [outcomes._between(ranked, statistics, group) for group in range(n)]
    assert list(zip(first.tolist(), last.tolist(), strict=True)) == expected
    term = Members(Leaf(0, ("c",), INT64), tuple(ranked), ranked=True)
    found = outcomes.probes_of_each(term, statistics, range(n), 1000)
    assert found == [outcomes.probes_of(term, statistics, group, 1000) for group in range(n)]
    assert len({id(one) for one in found}) == len(set(found)), "equal ones are one"
