"""SQL text into predicates: what is understood, what is Unknown, what is an error and where; DuckDB's meaning."""

from __future__ import annotations

import datetime as dt
import logging
import math
import random
import re
import uuid
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.tokens import Tokenizer
from support.kleene import answers
from support.named import named
from support.tables import rows_of

from parquet_bloom.errors import TextError
from parquet_bloom.format.literals import Instant, Literal, TimeOfDay, spelled
from parquet_bloom.predicates.text import parse
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate, Unknown, leaves_of


def eq(name: str, value: Literal = 5) -> Compare:
    return Compare((name,), "=", value)


A, B, C = eq("a"), eq("b"), eq("c")
SAME = And((Not(IsNull(("a",))), A))

UNDERSTOOD = {
    **dict.fromkeys(("a = 5", "a == 5", "5 = a", "(a) = (5)", "((a = 5))"), A),
    "a != 5": Not(A),
    "5 <> a": Not(A),
    "a < 5": Compare(("a",), "<", 5),
    "5 < a": Compare(("a",), ">", 5),
    "5 <= a": Compare(("a",), ">=", 5),
    "5 > a": Compare(("a",), "<", 5),
    "5 >= a": Compare(("a",), "<=", 5),
    "a = NULL": eq("a", None),
    "NULL = a": eq("a", None),
    "a = 5 AND b = 5": And((A, B)),
    "a = 5 OR b = 5 AND c = 5": Or((A, And((B, C)))),
    "(a = 5 OR b = 5) AND c = 5": And((Or((A, B)), C)),
    "a = 5 and (b = 5 and c = 5)": And((A, B, C)),
    "NOT a = 5 AND b = 5": And((Not(A), B)),
    "NOT (a = 5 AND b = 5)": Not(And((A, B))),
    "NOT NOT a = 5": Not(Not(A)),
    "a = 5 AND TRUE": A,
    "a = 5 OR FALSE": A,
    "a = 5 AND FALSE": And((A, Or(()))),
    "TRUE": And(()),
    "NOT FALSE": Not(Or(())),
    "a IN (1, NULL, -2)": IsIn(("a",), (1, None, -2)),
    "a NOT IN ('x')": Not(IsIn(("a",), ("x",))),
    "NOT a IN ('x')": Not(IsIn(("a",), ("x",))),
    "a IN ()": IsIn(("a",), ()),
    "a BETWEEN 1 AND 2 AND b = 5": And((Compare(("a",), ">=", 1), Compare(("a",), "<=", 2), B)),
    "a NOT BETWEEN 1 AND 2": Not(And((Compare(("a",), ">=", 1), Compare(("a",), "<=", 2)))),
    "a IS NULL": IsNull(("a",)),
    "a IS NOT NULL": Not(IsNull(("a",))),
    "NOT a IS NULL": Not(IsNull(("a",))),
    "a IS UNKNOWN": IsNull(("a",)),
    "a IS NOT DISTINCT FROM 5": SAME,
    "a <=> 5": SAME,
    "5 IS DISTINCT FROM a": Not(SAME),
    "a IS DISTINCT FROM NULL": Not(IsNull(("a",))),
    "a IS NOT DISTINCT FROM NULL": IsNull(("a",)),
    "a": eq("a", True),
    "NOT a OR b": Or((Not(eq("a", True)), eq("b", True))),
    "a IS TRUE": And((Not(IsNull(("a",))), eq("a", True))),
    "a IS NOT FALSE": Not(And((Not(IsNull(("a",))), eq("a", False)))),
    "list_contains(l, 5)": Contains(("l",), 5),
    "array_contains(l.list.element, 'x')": Contains(("l", "list", "element"), "x"),
    "5 = ANY(l)": Contains(("l",), 5),
    "a LIKE 'x'": eq("a", "x"),
    "a NOT LIKE 'x'": Not(eq("a", "x")),
    "a = 5 -- and so on": A,
    "a /* the first */\n\t= 5": A,
}

NAMES = {
    "user.id": ("user", "id"),
    '"user.id"': ("user.id",),
    '`user.id`."Deep"': ("user.id", "Deep"),
    "l.list.element": ("l", "list", "element"),
    "a.b.c.d.e.f.g": tuple("abcdefg"),
    '"say ""hi"""': ('say "hi"',),
    "`tick``s`": ("tick`s",),
    "Id": ("Id",),
    "ID": ("ID",),
    "ünïcode": ("ünïcode",),
    "a$b": ("a$b",),
    '"with-dash"': ("with-dash",),
    '""': ("",),
    '"select"': ("select",),
}
NAMES |= {
    word: (word,)
    for word in ("date", "time", "timestamp", "key", "value", "group", "order", "interval", "values", "if", "end")
}

LITERALS = {
    "-7": -7,
    "- 7": -7,
    "+7": 7,
    "007": 7,
    "9" * 5000: int(Decimal("9" * 5000)),
    "0xff": 255,
    "-0xFF": -255,
    "12.50": Decimal("12.50"),
    "-12.50": Decimal("-12.50"),
    "-0.00": Decimal("-0.00"),
    ".5": Decimal("0.5"),
    "-1.2345678901234567890123456789012345678901": Decimal("-1.2345678901234567890123456789012345678901"),
    "1e-3": 1e-3,
    "-1.5E+300": -1.5e300,
    "'it''s'": "it's",
    "''": "",
    "'a\nb'": "a\nb",
    "'back\\slash'": "back\\slash",
    "N'x'": "x",
    "x'00ff'": b"\x00\xff",
    "X'00FF'": b"\x00\xff",
    "x''": b"",
    "BLOB 'ab'": b"ab",
    "TRUE": True,
    "false": False,
    "DATE '2026-01-31'": dt.date(2026, 1, 31),
    "date'2026-01-31'": dt.date(2026, 1, 31),
    "'2026-01-31'::DATE": dt.date(2026, 1, 31),
    "CAST('2026-01-31' AS DATE)": dt.date(2026, 1, 31),
    "TIMESTAMP '1970-01-01'": Instant(0, utc=False),
    "TIMESTAMP '1970-01-01 00:00:00.123456789'": Instant(123456789, utc=False),
    "TIMESTAMP '1969-12-31T23:59:59.9'": Instant(-(10**8), utc=False),
    "TIMESTAMP '1970-01-01 02:00+02:00'": Instant(0, utc=True),
    "TIMESTAMPTZ '1970-01-01 00:00Z'": Instant(0, utc=True),
    "TIMESTAMP WITH TIME ZONE '1970-01-01 00:00-0130'": Instant(90 * 60 * 10**9, utc=True),
    "TIMESTAMP_NTZ '1970-01-01'": Instant(0, utc=False),
    "TIMESTAMP_LTZ '1970-01-01 00:00 UTC'": Instant(0, utc=True),
    "'1970-01-01 00:00:01'::TIMESTAMP": Instant(10**9, utc=False),
    "TIME '12:00:00.5'": TimeOfDay((12 * 3600 * 10 + 5) * 10**8),
    "TIME '00:00+00:00'": TimeOfDay(0, utc=True),
    "UUID '123e4567-e89b-12d3-a456-426614174000'": uuid.UUID("123e4567-e89b-12d3-a456-426614174000"),
    "DECIMAL '1E+3'": Decimal("1E+3"),
    "CAST('1.25' AS DECIMAL(10, 2))": Decimal("1.25"),
    "BIGINT 5": 5,
    "5::SMALLINT": 5,
    "CAST(5 AS DOUBLE)": 5.0,
    "'inf'::DOUBLE": math.inf,
    "NULL::DATE": None,
}

UNKNOWN = {
    "lower(a) = 'x'": "LOWER",
    "a + 1 = 5": "computed",
    "a = b": "two columns",
    "a = abc": "'abc'",
    'a = "it\'s"': "'it''s'",
    "a IN (b)": "'b'",
    "CASE WHEN a = 5 AND b THEN 1 END = 1": "CASE",
    "a IN (SELECT 1)": "subquery",
    "EXISTS (SELECT 1)": "subquery",
    "a = (SELECT 1)": "subquery",
    "CAST(a AS INT) = 5": "cast of a column",
    "a::DATE = DATE '2026-01-31'": "cast of a column",
    "a LIKE 'ab%'": "as well: a >= 'ab' AND a < 'ac'",
    "\"it s\".b LIKE 'it''s_%'": "as well: \"it s\".b >= 'it''s' AND \"it s\".b < 'it''t'",
    "a NOT LIKE 'ab_'": "a pattern",
    "a LIKE '%ab'": "a pattern",
    "a LIKE 'a\\%b%'": "a pattern",
    "a LIKE 'a\\b'": "a pattern",
    "starts_with(a, 'ab%')": "as well: a >= 'ab%' AND a < 'ab&'",
    "a COLLATE nocase = 'x'": "COLLATE",
    "a = 'x' COLLATE nocase": "COLLATE",
    "a = INTERVAL 5 DAY": "INTERVAL",
    "a IN [1, NULL]": "meaning of NULL",
    "a BETWEEN SYMMETRIC 2 AND 1": "symmetric",
    "a BETWEEN b AND 5": "columns",
    "5 BETWEEN a AND 7": "literal",
    "a = 5 = b": "inside another",
    "a = 5 IS NULL": "inside another",
    "5 = 5": "two literals",
    "NULL": "NULL",
    "TIME '12:00+02:00' = a": "zone",
    "a = 1e999": "double",
    "a = 300::TINYINT": "TINYINT",
    "a = '1.255'::DECIMAL(10, 2)": "DECIMAL",
    "a = '0.1'::FLOAT": "FLOAT",
    "a = TIMESTAMP(3) '2026-01-31'": "3 digits",
    "a = BLOB '\\x41'": "x'00ff'",
    "a = current_date": "CURRENT_DATE",
    "a = CAST('1' AS DECIMAL(b, 2))": "a literal of type DECIMAL",
    "a = '1'::VARCHAR(max)": "a literal of type VARCHAR",
}
UNKNOWN |= dict.fromkeys(("a LIKE 'x' ESCAPE '!'", "a ILIKE 'x'", "a ~ 'x'", "a[1] = 5", "a->'x' = 5"), "")
UNKNOWN |= dict.fromkeys(("(a, b) = (1, 2)", "5 != ANY(l)", "5 < ANY(l)", "a = TRY_CAST('x' AS DATE)"), "")

ERRORS = [
    ("", 0, "expected a predicate"),
    ("  -- nothing", 0, "expected a predicate"),
    ("5", 0, "literal alone"),
    ("a = 5 AND 'x'", 10, "literal alone"),
    ("*", 0, "expected a predicate"),
    ("()", 0, "expected a predicate"),
    ("a =", 3, "expected more"),
    ("a = 5 AND", 9, "expected more"),
    ("= 5", 0, "expected something before ="),
    ("AND a = 5", 0, "expected something before AND"),
    ("(a = 5", 6, r"expected \)"),
    ("a = 5)", 5, r"unexpected \)"),
    ("a = 5 6", 6, "unexpected 6"),
    ("a = 5 b", 6, "unexpected b"),
    ("(a = 5 b)", 0, "expected a predicate"),
    ("a = 5 XOR b = 5", 6, "unexpected XOR"),
    ("a BETWEEN 1 5", 13, "expected AND"),
    ("a IN", 4, "expected IN and a list"),
    ("SELECT 1", 0, "not a statement"),
    ("WHERE a = 5", 0, "leave WHERE out"),
    ("a = 5; b = 5", 5, "semicolon"),
    ("a = 5;", 5, "semicolon"),
    ("a = ?", 4, "parameters"),
    ("a = :p", 4, "parameters"),
    ("a = $1", 4, "parameters"),
    ("lower(a) = @p", 11, "parameters"),
    ("!a", 0, "write NOT"),
    ("a = 'abc", 4, "closing ' is missing"),
    ('"a = 5', 0, 'closing " is missing'),
    ("a = 5e", 4, "5e is no number"),
    (". 1.5 = a", 0, "no number"),
    ("NOT (a = 5 AND b := 5)", 4, "expected a predicate"),
    ("a = x'0'", 6, "hex digits"),
    ("a = x'0g'", 6, "hex digits"),
    ("a = DATE '2026-13-01'", 9, "'2026-13-01' is no DATE"),
    ("a = DATE '20260131'", 9, "'20260131' is no DATE"),
    ("a = '2026-13-01'::DATE", 4, "is no DATE"),
    ("a = TIMESTAMP 'noon'", 14, "no TIMESTAMP"),
    ("a = TIMESTAMP '0001-01-01 00:00+01:00'", 14, "no TIMESTAMP"),
    ("a = TIMESTAMPTZ '2026-01-01'", 16, "depend on the session"),
    ("a = TIME '24:00'", 9, "no TIME"),
    ("a = UUID '12'", 9, "no UUID"),
    ("a = DECIMAL 'NaN'", 12, "no DECIMAL"),
    ("a = BIGINT '5.5'", 11, "no BIGINT"),
    ("(" * 10_000 + "a" + ")" * 10_000, 9_999, "nested too deeply"),
    ("NOT " * 10_000 + "a", 39_996, "nested too deeply"),
    ("a = " + "- " * 10_000 + "5", 20_002, "nested too deeply"),
]


def test_what_is_understood() -> None:
    found = {text: parse(text) for text in UNDERSTOOD}
    assert found == UNDERSTOOD
    assert {text: parse(str(found[text])) for text in found} == UNDERSTOOD


def test_names() -> None:
    assert {text: parse(f"{text} = 5") for text in NAMES} == {t: Compare(path, "=", 5) for t, path in NAMES.items()}
    found = {text: parse(f"a = 5 AND {text} IS NULL") for text in NAMES}
    assert found == {text: And((A, IsNull(path))) for text, path in NAMES.items()}
    found = {text: parse(f"list_contains({text}, 5)") for text in NAMES}
    assert found == {text: Contains(path, 5) for text, path in NAMES.items()}


def test_literals() -> None:
    for text, wanted in LITERALS.items():
        predicate = parse(f"a = {text}")
        assert isinstance(predicate, Compare), text[:50]
        value = predicate.value
        assert value == wanted, text[:50]
        assert type(value) is type(wanted), f"{text[:50]}: 1 is not TRUE, nor 1.0"
        if isinstance(value, Decimal):
            assert value.as_tuple() == wanted.as_tuple(), f"{text[:50]}: the digits as they were written"
        assert parse(str(predicate)) == predicate, text[:50]
        assert parse(f"a IN ({text}, 1)") == IsIn(("a",), (value, 1)), text[:50]


def test_nan_is_a_literal() -> None:
    predicate = parse("a = 'nan'::DOUBLE")
    assert isinstance(predicate, Compare)
    assert isinstance(predicate.value, float)
    assert math.isnan(predicate.value)
    assert str(parse(str(predicate))) == str(predicate)


def test_what_is_not_understood_is_unknown_and_its_neighbours_stay() -> None:
    for text, reason in UNKNOWN.items():
        (leaf,) = leaves_of(parse(text))
        assert isinstance(leaf, Unknown), text
        assert leaf.text == text, "as it was written"
        assert leaf.reason, text
        assert reason in leaf.reason, text
        beside = parse(f"(a = 5 AND {text}) OR NOT ({text}) OR b = 5")
        assert beside == Or((And((A, leaf)), Not(leaf), B)), text
        assert parse(str(parse(text))) == parse(text), text


def test_the_text_of_a_part_is_the_source() -> None:
    predicate = parse("x = 5 AND ( Lower( name )='x' /* why */ )\n OR\tid+1 = 5")
    assert [leaf.text for leaf in leaves_of(predicate) if isinstance(leaf, Unknown)] == [
        "Lower( name )='x'",
        "id+1 = 5",
    ]


def test_what_is_no_predicate_marks_the_spot() -> None:
    for text, column, says in ERRORS:
        with named(text[:50]):
            with pytest.raises(TextError, match=says) as caught:
                parse(text)
            assert (caught.value.column, caught.value.text) == (column, text)
            if column < 90:
                assert str(caught.value).splitlines()[-1] == "  " + " " * column + "^"


def test_the_mark_in_texts_of_several_lines_and_long_ones() -> None:
    with pytest.raises(TextError) as caught:
        parse("a = 5\r\n  AND\tb = DATE 'x'\n  AND c = 5")
    assert caught.value.column == 22
    assert str(caught.value).splitlines()[1:] == ["    AND b = DATE 'x'", "  " + " " * 15 + "^"]
    with pytest.raises(TextError) as caught:
        parse("a = 5 AND " * 1000 + "b = = 5")
    _, line, mark = str(caught.value).splitlines()
    assert len(line) < 250
    assert line[mark.index("^")] == "="


def test_long_chains_and_lists_are_flat() -> None:
    many = parse(" OR ".join(f"a = {i}" for i in range(2000)))
    assert isinstance(many, Or)
    assert many.parts[::1000] == (eq("a", 0), eq("a", 1000))
    assert parse(str(many)) == many
    listed = parse(f"a IN ({', '.join(map(str, range(2000)))})")
    assert listed == IsIn(("a",), tuple(range(2000)))


def test_any_word_is_a_name_that_survives() -> None:
    words = [word.lower() for word in Tokenizer.KEYWORDS if word.isidentifier()]
    assert len(words) > 200
    for at, word in enumerate([*words, "any", "if", "is", "lambda", "prior", "true", "nan"]):
        for path in [(word,), (word, "b"), ("b", word), ("a", "b", "c", "d", word, "e")]:
            some = (
                Compare(path, "=", 5),
                IsNull(path),
                IsIn(path, (1,)),
                Contains(path, 5),
                Not(Compare(path, "<", 5)),
                Compare(path, "=", "x"),
                And((A, Compare(path, "=", 5), B)),
            )
            for predicate in (some[0], some[1 + (at + len(path)) % 6]):  # and one of the others, each for many words
                assert parse(str(predicate)) == predicate, str(predicate)


def test_sqlglot_is_silent(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.DEBUG):
        for text in [*UNDERSTOOD, *UNKNOWN, "if = 5", "show = 5", "call = 5", "a -> '(' = 5"]:
            parse(text)
        for text in ("CREATE TABLE x", "SHOW TABLES", "EXPLAIN SELECT 1", "IF a = 5"):
            with pytest.raises(TextError):
                parse(text)
    assert not caplog.records
    assert capsys.readouterr() == ("", "")


# --- round trip -------------------------------------------------------------------------------

PATHS = st.lists(st.text(max_size=5) | st.sampled_from(["a", "b.c", "Date", "select", '"']), min_size=1, max_size=6)
DAY = 86_400 * 10**9
VALUES: st.SearchStrategy[Literal] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**4000, 2**5000),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.text(),
    st.binary(max_size=10),
    st.dates(),
    st.builds(Instant, st.integers(-719_162 * DAY, 2_932_897 * DAY - 1), st.booleans()),  # of the years 1 to 9999
    st.builds(TimeOfDay, st.integers(0, DAY - 1), st.booleans()),
    st.uuids(),
)
PATH = PATHS.map(tuple)
LEAVES: st.SearchStrategy[Predicate] = st.one_of(
    st.builds(Compare, PATH, st.sampled_from(["=", "<", "<=", ">", ">="]), VALUES),
    st.builds(IsIn, PATH, st.lists(VALUES, max_size=4).map(tuple)),
    st.builds(IsNull, PATH),
    st.builds(Contains, PATH, VALUES),
    st.sampled_from(["lower(a) = 'x'", "a + 1 = 5", "CASE WHEN a AND b THEN 1 END = 1", "a LIKE 'x%'"]).map(parse),
)


def joined(kind: type[And | Or], parts: list[Predicate]) -> Predicate:
    """As parse builds it: no And right in an And, none of one part."""
    flat = [q for p in parts for q in (p.parts if isinstance(p, And | Or) and type(p) is kind else [p])]
    return flat[0] if len(flat) == 1 else kind(tuple(flat))


TREES = st.recursive(
    LEAVES,
    lambda parts: st.builds(Not, parts) | st.builds(joined, st.sampled_from([And, Or]), st.lists(parts, max_size=4)),
    max_leaves=8,
)


@given(TREES)
@settings(max_examples=100, deadline=None)
def test_a_tree_survives_its_text(tree: Predicate) -> None:
    text = str(tree)
    again = parse(text)
    assert again == tree
    assert str(again) == text, "types and digits too"


# --- any text ---------------------------------------------------------------------------------

SOUP = """a b "c" `d` a.b 5 -5 1.5 1e3 0xff x'00' 'x' '' = == != <> < <= > >= <=> AND OR NOT IN ( ) ( ) , . IS NULL TRUE
FALSE BETWEEN LIKE ILIKE ESCAPE DISTINCT FROM ANY ALL CASE WHEN THEN ELSE END CAST AS DATE TIMESTAMP INTERVAL DAY
:: : [ ] { } + - * / % | || & && ^ ~ ! @ # $ ? ; -- /* */ SELECT WHERE EXISTS list_contains lower COLLATE -> ->> :=
=> |> .. \\ UNION WITH VALUES UUID DECIMAL ARRAY STRUCT MAP LAMBDA FOR UNNEST OVER AT ZONE TIME {{ }} {% %} {# #}
\x00 ü 1_0 5a XOR ROW IF VALUE NEXT NOTNULL ISNULL UNKNOWN SIMILAR TO GLOB RLIKE @> <@ DATE'x' N'y' BIGINT JSON
TRY_CAST""".replace("\n", " ").split(" ")


def parse_or_mark(text: str) -> None:
    try:
        predicate: Predicate | TextError = parse(text)
    except TextError as error:
        predicate = error
    if isinstance(predicate, TextError):
        assert 0 <= predicate.column <= len(text)
        assert str(predicate)
    else:
        assert parse(str(predicate)) == predicate, "what is understood is understood again"


def test_no_soup_of_words_raises_anything_else() -> None:
    chance = random.Random(0)
    for _ in range(1500):  # more: target `text` of tests/fuzz
        parse_or_mark(" ".join(chance.choices(SOUP, k=chance.randint(1, 14))))
        text = list(chance.choice([*UNDERSTOOD, *UNKNOWN]))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text) + 1)
            text[at : at + chance.randint(0, 2)] = chance.choice([*SOUP, *text, ""])
        parse_or_mark("".join(text) or "a")


@given(st.text())
@settings(max_examples=70, deadline=None)
def test_no_text_raises_anything_else(text: str) -> None:
    parse_or_mark(text)


# --- DuckDB's meaning -------------------------------------------------------------------------

ROWS = [(i, s, b) for i in (None, 1, 2, 3) for s in (None, "a", "b") for b in (None, True, False)]
KINDS = {"i": pa.int32(), "s": pa.string(), "b": pa.bool_()}
STORED = rows_of(pa.Table.from_pylist([dict(zip(KINDS, row, strict=True)) for row in ROWS], pa.schema(KINDS)))


PARTS = """i = 2|2 = i|i != 2|2 < i|i >= 2|1.5 < i|i = NULL|i != NULL|i IN (1, 2)|i IN (1, NULL)
i NOT IN (1, NULL)|i NOT IN (3)|NOT i IN (1, 3)|i BETWEEN 2 AND 3|i NOT BETWEEN 1 AND 2
i BETWEEN NULL AND 2|i NOT BETWEEN NULL AND 2|i IS NULL|i IS NOT NULL|i IS DISTINCT FROM 2
i IS NOT DISTINCT FROM 2|i IS DISTINCT FROM NULL|i IS NOT DISTINCT FROM NULL|i = -2|i = 2.0|s = 'a'
s <> 'a'|s > 'a'|s IN ('a', 'z')|s NOT IN ('b', NULL)|s LIKE 'a'|s NOT LIKE 'a'
s IS NOT DISTINCT FROM 'b'|b|NOT b|b = FALSE|b IS TRUE|b IS NOT TRUE|b IS FALSE|b IS NOT FALSE
NOT b IS TRUE|TRUE|FALSE|i = 2.5|2 IS DISTINCT FROM i|NOT NOT b""".replace("\n", "|").split("|")


@pytest.fixture(scope="module")
def table() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE t (i INTEGER, s VARCHAR, b BOOLEAN)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?)", ROWS)
    return connection


def in_duckdb(table: duckdb.DuckDBPyConnection, text: str) -> list[bool | None]:
    return [row[0] for row in table.execute(f"SELECT ({text}) FROM t ORDER BY rowid").fetchall()]


def ours(predicate: Predicate) -> list[bool | None]:
    """TRUE, FALSE or NULL of each row: by the sentences in tree.py, in support/kleene.py."""
    found = [answers(predicate, row, {(name,): kind for name, kind in KINDS.items()}) for row in STORED]
    return [one for (one,) in found]


def test_a_leaf_means_what_duckdb_takes_it_for(table: duckdb.DuckDBPyConnection) -> None:
    for text in PARTS:
        expected = in_duckdb(table, text)
        assert ours(parse(text)) == expected, text
        assert ours(parse(str(parse(text)))) == expected, text


def test_and_or_not_mean_what_duckdb_takes_them_for(table: duckdb.DuckDBPyConnection) -> None:
    chance = random.Random(0)

    def some(depth: int) -> str:
        if not depth:
            return chance.choice(PARTS)
        inner = f" {chance.choice(['AND', 'OR'])} ".join(some(depth - 1) for _ in range(chance.randint(1, 3)))
        inner = inner if chance.random() < 0.4 else f"({inner})"
        return f"NOT {inner}" if chance.random() < 0.3 else inner

    for _ in range(100):
        text = some(2)
        expected = in_duckdb(table, text)
        assert ours(parse(text)) == expected, text
        assert in_duckdb(table, str(parse(text))) == expected, "our text means the same to DuckDB"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=4), st.text(alphabet="%_ab\U0010ffff\ud7ff", max_size=4), st.text(max_size=6))
def test_the_range_that_a_pattern_implies_has_all_that_begins_so(start: str, rest: str, more: str) -> None:
    (leaf,) = leaves_of(parse(f"a LIKE {spelled(start + rest + '%')}"))
    assert isinstance(leaf, Unknown)
    _, found, implied = leaf.reason.partition(" as well: ")
    if not found:
        return
    (low, high) = leaves_of(parse(implied))
    begin = re.split("[%_]", start + rest)[0]
    for text in (begin, begin + more, begin + "\U0010ffff" * 3):
        assert low.value <= text < high.value
        assert low.value.encode() <= text.encode() < high.value.encode()
