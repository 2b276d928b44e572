"""Texts that are read without a parser of SQL: the tree is the parser's, or there is none."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot.parser import Parser
from sqlglot.tokens import Tokenizer

from parquet_bloom.errors import TextError
from parquet_bloom.predicates.text import parse
from parquet_bloom.predicates.tree import plain

PLAIN = [
    "id = 5",
    " user.id=42\n",
    "x != -7",
    "x <> 'a'",
    "a.b.c.d.e <= 1.50",
    "trace_id = '4bf92f3577b34da6'",
    "name = 'it''s'",
    "name = ''",
    "name = '''' AND x > 0",
    "name = 'a; b -- c /* d */ $1 {{ é \u00a0'",
    "id IN (42, -43,\t44)",
    "id NOT IN('a','b''')",
    "x BETWEEN 1 AND 2",
    "x between 'a' and 'b' and y = 3 and z is null",
    "y = 3 OR x BETWEEN 1 AND 2 OR z IS NOT NULL",
    "_a1 < 000.10 AND B >= 1",
    "day = DATE '2026-01-31' AND x = 1",
    "day >= date\t'0001-01-01' or day IN (DATE '9999-12-31', Date '2024-02-29')",
    f"x = {'9' * 300}",
]
NOT_PLAIN = r"""|id|5 = id|id = 5 AND x = 1 OR y = 2|(id = 5)|NOT id = 5|id = 1e5|id = 0x1f|id = 5.|id = .5|id =-5
id = TRUE|id IN (NULL)|id IN ()|x = 'a' 'b'|x = 'a\'|x = a|x = 5AND y = 1|x = 5 -- five|x = 5;|"x" = 5|x = 'a
day = DATE '2026-02-30'|day = DATE '0000-01-01'|day = DATE '2026-1-31'|day = DATE '2026-01-31'::TEXT
day = DATE('2026-01-31')|day = TIMESTAMP '2026-01-31 00:00:00'|select = 5|a.select = 5|lower(name) = 'x'
x = 5 AND""".replace("\n", "|").split("|")
NOT_PLAIN += ["x = 'a\nb'", f"x = {'9' * 301}", f"x IN ({', '.join('9' * 4000)})"]


def same(text: str) -> bool:
    """Whether a text is plain; it fails where the parser reads it in another way."""
    tree = plain(text)
    if tree is None:
        return False
    assert repr(tree) == repr(parse(text)), text  # as 5 == Decimal(5)
    return True


def test_plain_texts_and_others_that_are_left_to_the_parser() -> None:
    assert [text for text in PLAIN if not same(text)] == []
    assert [text for text in NOT_PLAIN if plain(text) is not None] == []


def test_any_word_of_sql_is_a_name_to_both_or_to_the_parser_alone() -> None:
    words = {*Tokenizer.KEYWORDS, *Parser.FUNCTIONS, *Parser.FUNCTION_PARSERS, *Parser.NO_PAREN_FUNCTION_PARSERS}
    words |= {token.name for token in Parser.NO_PAREN_FUNCTIONS} | {token.name for token in Parser.TYPE_TOKENS}
    words = {word.lower() for word in words if word.isidentifier()}
    assert len(words) > 700
    read = asked = 0
    for word in sorted(words):
        for path in (word, word, f"a.{word}", f"{word}.a"):
            rest = ("= 5", "< 'x'", "IN (1, 2)", "IS NULL", "BETWEEN 1 AND 2")[asked % 5]
            asked += 1
            read += same(f"x = 1 AND {path} {rest} AND y = 2")
    assert read > 4 * 600


BLANKS = st.sampled_from(["", " ", "\t", "\n ", "  "])
NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,6}(\.[a-zA-Z_][a-zA-Z0-9_]{0,3}){0,5}", fullmatch=True)
VALUES = st.one_of(
    st.from_regex(r"-?[0-9]{1,20}(\.[0-9]{1,5})?", fullmatch=True),
    st.text(max_size=8).map(lambda text: "'" + text.replace("'", "''") + "'"),
    st.sampled_from(
        ["NULL", "true", "1e3", "x'00'", "'a''", "0x1f", ".5", "a.b", "-'a'", "5a", "5 5", "DATE'2026-01-31'"]
    ),
    st.sampled_from(["DATE '2026-01-31'", "date  '2024-02-29'", "DATE '2023-02-29'"]),
)
SIGNS = st.sampled_from(["=", "<", "<=", ">", ">=", "!=", "<>", "==", "=-", "<=>"])
ALMOST = st.one_of(
    st.tuples(NAMES, BLANKS, SIGNS, BLANKS, VALUES),
    st.tuples(NAMES, BLANKS, st.sampled_from(["IN", "not in", "NOT  IN"]), BLANKS, st.just("("), VALUES, BLANKS,
              st.sampled_from([",", ", ", ""]), VALUES, BLANKS, st.just(")")),
    st.tuples(NAMES, BLANKS, st.sampled_from(["IS NULL", "is not null", "IS  NOT NULL", "ISNULL", "IS TRUE"])),
    st.tuples(NAMES, BLANKS, st.just("BETWEEN"), BLANKS, VALUES, BLANKS, st.just("AND"), BLANKS, VALUES),
).map("".join)  # fmt: skip
JOINTS = st.sampled_from([" AND ", " and ", " OR ", "\nor\t", "AND", " , ", " "])


@settings(max_examples=130, deadline=None)
@given(ALMOST, st.lists(st.tuples(JOINTS, ALMOST), max_size=3), BLANKS)
def test_what_is_read_is_what_the_parser_reads(first: str, more: list[tuple[str, str]], end: str) -> None:
    same(end + first + "".join(joint + part for joint, part in more) + end)


@settings(max_examples=30, deadline=None)
@given(st.lists(NAMES.flatmap(lambda name: VALUES.map(lambda value: f"{name} = {value}")), min_size=1, max_size=4))
def test_a_text_that_the_parser_refuses_is_not_read(parts: list[str]) -> None:
    text = " AND ".join(parts)
    try:
        parse(text)
    except TextError:
        assert plain(text) is None


def test_a_plain_text_loads_no_parser() -> None:
    code = (
        "import sys; from parquet_bloom.search.search import as_predicate; as_predicate(sys.argv[1]);"
        "print('sqlglot' in sys.modules)"
    )
    for text, loaded in (("id = 5", "False\n"), ("(id = 5)", "True\n")):
        done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, check=True)
        assert done.stdout == loaded, text
