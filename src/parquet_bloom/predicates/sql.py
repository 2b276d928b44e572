"""sqlglot as we use it: a dialect of SQL's expressions, silent, and with its errors turned into TextError.

Every part that AND, OR and NOT join carries its span in the text, meta["span"] = (start, end).
"""

from __future__ import annotations

import re
import uuid
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parser import Parser as SqlParser
from sqlglot.parser import binary_range_parser
from sqlglot.tokens import Tokenizer as SqlTokenizer

from parquet_bloom.errors import TextError
from parquet_bloom.format.literals import Instant, Literal, TimeOfDay, read_clock, read_date, read_instant, spelled

# --- sql literals ---------------------------------------------------------------------------------
#
# The insides of SQL literals: digits, and the text in DATE '...' and its like -> values.
#
#    12.50 is a Decimal, exactly as written; 1e-3 a float; 12 and 0xff integers of any size.
#    TIMESTAMP '2026-01-31 12:00:00.5+02:00' is an Instant in UTC; without a zone it is a wall clock's
#    reading. TIMESTAMPTZ without a zone would depend on the session, and is an error.
#
# Source: ISO/IEC 9075-2, <literal>; the spellings DuckDB and Spark share.

_TIME_UTC = re.compile(r"\s*(Z|UTC|[+-]00(:?00)?)", re.I)
_TIME_ZONED = re.compile(r"[\d:.]+\s*[+-]\d{2}(:?\d{2})?", re.A)
_INTEGER = re.compile(r"[+-]?\d+", re.A)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.I | re.A)
_NOT_FINITE = re.compile(r"[+-]?(nan|inf|infinity)", re.I)

MOST_DIGITS = 10_000  # of one number; the longest double has 1,074

_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64, "INT128": 128}
_STAMPS = {"TIMESTAMP", "DATETIME", "TIMESTAMPNTZ", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMP_NS"}
_SESSION = {"TIMESTAMPTZ", "TIMESTAMPLTZ"}  # a text without a zone is read in the session's
_TEXTS = {"TEXT", "VARCHAR"}
_BYTES = {"VARBINARY", "BINARY"}


class NotUnderstoodError(Exception):
    """A part of a predicate that may be sound SQL, but is not understood; the reason in words."""


def number(text: str) -> int | float | Decimal:
    """Digits with an optional point and exponent, no sign. Raises NotUnderstoodError beyond the range of a double."""
    if "e" not in text.lower():
        return Decimal(text) if "." in text else int(Decimal(text))  # int() alone refuses 4,301 digits
    value = float(text)
    if value == float("inf"):
        raise NotUnderstoodError(f"{text} is outside the range of a double")
    return value


def typed_literal(kind: str, scale: tuple[int, ...], inner: str) -> Literal:
    """The text `inner` as a literal of a type, DATE '...' or CAST('...' AS DATE).

    kind   the type as sqlglot calls it: TIMESTAMPNTZ, VARBINARY, INT for INTEGER
    scale  the numbers in parentheses behind it, (10, 2)

    Raises ValueError where the text is none of the type's; NotUnderstoodError where engines disagree about it.
    """
    if kind in _TEXTS and not scale:
        return inner
    if kind in _BYTES and not scale:
        if "\\" in inner:
            raise NotUnderstoodError("engines read a backslash in a BLOB's text in different ways; write x'00ff'")
        return inner.encode()
    text = inner.strip()
    if len(text) > MOST_DIGITS:
        raise ValueError(f"more than {MOST_DIGITS:,} characters")
    if kind == "DECIMAL":
        return _decimal(text, scale)
    if scale:
        raise NotUnderstoodError(f"{kind} with {scale[0]} digits")
    if kind == "DATE":
        return read_date(text)
    if kind == "UUID":
        return uuid.UUID(text)
    if kind in _STAMPS:
        return _instant(text, kind)
    if kind in ("TIME", "TIMETZ", "TIME_NS"):
        return _time(text, kind)
    if kind == "BOOLEAN":
        return {"true": True, "false": False}[text.lower()]
    if kind in _BITS:
        if not _INTEGER.fullmatch(text):
            raise ValueError(text)
        return converted(kind, int(Decimal(text)))
    if kind in ("DOUBLE", "FLOAT"):
        return _float(text, kind)
    raise NotUnderstoodError(f"a literal of type {kind}")


def converted(kind: str, value: Literal) -> Literal:
    """CAST of a number, where it leaves the value alone. Raises NotUnderstoodError where it may not."""
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if kind in _BITS and -(1 << _BITS[kind] - 1) <= value < 1 << _BITS[kind] - 1:
            return value
        if kind == "DOUBLE" and abs(value) <= 2**53:
            return float(value)
    if kind == "DOUBLE" and isinstance(value, float):
        return value
    if kind == "DOUBLE" and isinstance(value, Decimal):
        return number(f"{value}e0")
    raise NotUnderstoodError(f"a cast to {kind} that may change the value")


def _decimal(text: str, scale: tuple[int, ...]) -> Decimal:
    value = Decimal(text)
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(text)
    if scale:
        precision, places = scale[0], (scale[1] if len(scale) > 1 else 0)
        if -exponent > places or value.adjusted() >= precision - places:
            raise NotUnderstoodError(f"{text} does not fit DECIMAL{scale} as it stands")
    return value


def _float(text: str, kind: str) -> float:
    if not _NUMBER.fullmatch(text) and not _NOT_FINITE.fullmatch(text):
        raise ValueError(text)
    value = float(text)
    if not _NOT_FINITE.fullmatch(text) and (kind == "FLOAT" or abs(value) == float("inf")):
        raise NotUnderstoodError(f"{text} is rounded to {kind}")
    return value


def _time(text: str, kind: str) -> TimeOfDay:
    zone = _TIME_UTC.search(text)
    if zone is None and _TIME_ZONED.fullmatch(text):
        raise NotUnderstoodError("engines disagree about a TIME in a zone that is not UTC")
    if zone is None:
        if kind == "TIMETZ":
            raise ValueError(text)
        return TimeOfDay(read_clock(text))
    if zone.end() != len(text):
        raise ValueError(text)
    return TimeOfDay(read_clock(text[: zone.start()]), utc=True)


def _instant(text: str, kind: str) -> Instant:
    found = read_instant(text)
    if not found.utc and kind in _SESSION:
        reading = spelled(found).removeprefix("TIMESTAMP ")
        wanted = f"write TIMESTAMP {reading}, and {reading[:-1]}+00:00' for a column in UTC"
        raise ValueError(f"without a zone it would depend on the session; {wanted}")
    return found


# --- long texts -----------------------------------------------------------------------------------
#
# Long texts, before sqlglot sees them: bounds on what it is given, and plain lists taken out.
#
#    id IN (5, 7, 9) AND x = 1        what people write
#    id IN (5      ) AND x = 1        what sqlglot gets, without the gap; text.parse puts (5, 7, 9) back
#
# One pass of one expression goes over the words and signs. It finds plain lists (numbers without an
# exponent and texts, nothing else) behind IN, whose values need no parser, and counts the rest. A text with
# comments, or with signs that dialects read in different ways, keeps its lists.

MOST_WORDS = 50_000  # words and signs outside of plain lists: a second or two of sqlglot's
MOST_CHARACTERS = 64 << 20
HINT = "for many keys give prune(files, column=..., values=...)"

_BLANK = r"[ \t\r\n]*+"
_PLAIN_NUMBER = r"-?[0-9]++(?:\.[0-9]++)?+"
_LITERAL = rf"(?:{_PLAIN_NUMBER}|'(?:[^'\\]++|'')*+')"
_FIRST = re.compile(rf"\({_BLANK}({_LITERAL})")
_REST = re.compile(rf"((?:{_BLANK},{_BLANK}{_LITERAL})++){_BLANK}\)")
_NEXT = re.compile(rf",{_BLANK}({_LITERAL})")
_WORD = re.compile(
    r"[ \t\r\n]++"
    r"|(?P<number>[0-9][\w.]*+)"
    r"|(?P<word>\w++)"
    r"|(?P<quoted>'(?:[^']++|'')*+'?+|\"(?:[^\"]++|\"\")*+\"?+|`(?:[^`]++|``)*+`?+)"
    r"|(?P<odd>--[^\r\n]*+|/\*(?s:.*?)(?:\*/|\Z)|[\\{}$#])"
    r"|(?P<sign>(?s:.))",
)


@dataclass(slots=True)
class ShortenedText:
    """A text without the values of its plain lists, but for the first of each.

    text    what is left
    lists   place of a list's opening bracket in the whole text -> its values
    """

    text: str
    lists: dict[int, tuple[Literal, ...]] = field(default_factory=dict)
    _gaps: list[int] = field(default_factory=list)
    _cut: list[int] = field(default_factory=list)

    def position(self, at: int) -> int:
        """The position in the whole text of a character of the rest."""
        before = bisect_right(self._gaps, at)
        return at + (self._cut[before - 1] if before else 0)


class _OddError(Exception):
    """The text has something that may end where sqlglot says, not where we do."""


def shortened(text: str) -> ShortenedText:
    """Take plain lists out. Raises TextError for what is longer than anybody writes by hand."""
    if len(text) > MOST_CHARACTERS:
        raise TextError(text[:200], 0, f"{len(text):,} characters, more than {MOST_CHARACTERS:,}; {HINT}")
    try:
        return _shortened(text, take=True)
    except _OddError:
        return _shortened(text, take=False)


def _shortened(text: str, take: bool) -> ShortenedText:
    short = ShortenedText("")
    parts: list[str] = []
    words = at = kept = 0
    after_in = False
    while at < len(text):
        found = _WORD.match(text, at)
        assert found is not None  # the last alternative takes any character
        kind, start, at = found.lastgroup, at, found.end()
        if kind is None:
            continue
        words += 1
        if words > MOST_WORDS:
            what = "beside plain IN lists" if take else "and comments, or one of {}$#\\ among them"
            raise TextError(text, start, f"more than {MOST_WORDS:,} words and signs {what}; {HINT}")
        if kind == "number" and at - start > MOST_DIGITS:
            raise TextError(text, start, f"a number of {at - start:,} digits, more than {MOST_DIGITS:,}")
        if kind == "odd" and take:
            raise _OddError
        if take and after_in and text[start] == "(" and (first := _FIRST.match(text, start)) is not None:
            rest = _REST.match(text, first.end())
            if rest is not None:
                short.lists[start] = tuple(_value(text, start, one) for one in [first[1], *_NEXT.findall(rest[1])])
                parts.append(text[kept : first.end()])
                at = kept = rest.end(1)
                short._cut.append(at - first.end() + (short._cut[-1] if short._cut else 0))
                short._gaps.append(at - short._cut[-1])
        after_in = kind == "word" and at - start == 2 and text[start:at].upper() == "IN"
    short.text = "".join([*parts, text[kept:]])
    return short


def _value(text: str, at: int, literal: str) -> Literal:
    """The value of a plain literal, as the parser's own would be."""
    if literal[0] == "'":
        return literal[1:-1].replace("''", "'")
    if len(literal) > MOST_DIGITS:
        raise TextError(text, at, f"a number of {len(literal):,} digits in this list, more than {MOST_DIGITS:,}")
    if "." in literal:
        return Decimal(literal)
    return int(literal) if len(literal) < 4000 else int(Decimal(literal))  # int() alone refuses 4,301 digits


# --- sql ------------------------------------------------------------------------------------------

_DEEPEST = 200  # brackets, CASEs and signs in each other; a bound where sqlglot is compiled and has no other
_TILDE = SqlTokenizer.SINGLE_TOKENS["~"]  # TokenType.TILDE, but TILDA in sqlglot 28.0
_JOINTS = {TokenType.AND, TokenType.OR, TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT}
_JOINTS |= {TokenType.GTE, TokenType.IN, TokenType.IS, TokenType.LIKE, TokenType.BETWEEN}
_OPENING = {TokenType.L_PAREN, TokenType.AND, TokenType.OR, TokenType.NOT}
_STATEMENTS = (
    "ALTER CREATE DESCRIBE DROP FETCH GRANT INSERT PARTITIONED_BY QUALIFY RETURNING REVOKE ROLLBACK UNCACHE VALUES"
)


class _Sql(Dialect):
    """SQL's expressions with names in "a" or `a`, bytes as x'00ff', integers also as 0xff."""

    def to_json_path(self, path: Any) -> Any:
        """The path as it is; sqlglot would parse it, and log its complaints."""
        return path

    class Tokenizer(SqlTokenizer):
        IDENTIFIERS = ['"', "`"]
        HEX_STRINGS = [("x'", "'"), ("X'", "'"), ("0x", "")]
        KEYWORDS = {
            **{word: kind for word, kind in SqlTokenizer.KEYWORDS.items() if word not in _STATEMENTS.split()},
            "TIMESTAMP_NS": TokenType.TIMESTAMP_NS,
            "@>": TokenType.AT_GT,
            "<@": TokenType.LT_AT,
        }
        COMMANDS = set()  # they would swallow the rest of the text

    class Parser(SqlParser):
        NO_PAREN_FUNCTION_PARSERS = {k: v for k, v in SqlParser.NO_PAREN_FUNCTION_PARSERS.items() if k != "IF"}

        NESTED_TYPE_TOKENS = set()  # with them, `list < 5` would open a type
        RANGE_PARSERS = {
            **SqlParser.RANGE_PARSERS,
            _TILDE: binary_range_parser(exp.RegexpLike),
            TokenType.DAMP: binary_range_parser(exp.ArrayOverlaps),
        }

        def _parse_equality(self, *args: Any, **options: Any) -> Any:
            """Parse an operand of AND, OR and NOT, with its span in the text: meta["span"]."""
            first = self._curr
            node = super()._parse_equality(*args, **options)
            if node is not None and first and self._prev:
                node.meta["span"] = (first.start, self._prev.end + 1)
            return node

        def _warn_unsupported(self) -> None:
            """Without a word; what comes of it is no predicate."""


def split(text: str, short: ShortenedText) -> list[Token]:
    """The words and signs of a shortened text, at least one, with their positions in the whole text."""
    try:
        tokens = _Sql().tokenize(short.text)
    except SqlglotError as error:
        raise _token_error(text, short, str(error.__cause__ or error)) from None
    if not tokens:
        raise TextError(text, 0, "expected a predicate, as in id = 5")
    if short.lists:
        for token in tokens:
            token.start, token.end = short.position(token.start), short.position(token.end)
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            raise TextError(text, token.start, "expected one predicate, without a semicolon")
        if token.token_type == TokenType.PLACEHOLDER or re.match(r"\$\d", text[token.start : token.start + 2]):
            raise TextError(text, token.start, "parameters are not supported")
        if token.token_type == TokenType.NOT and text[token.start] == "!":
            raise TextError(text, token.start, "write NOT; a ! binds differently from engine to engine")
    return list(tokens)


def _token_error(text: str, short: ShortenedText, message: str) -> TextError:
    missing = re.match(r"Missing (.+) from \d+:(\d+)$", message)
    if missing:
        at = short.position(min(int(missing[2]), len(short.text)))
        return TextError(text, at, f"the closing {missing[1]} is missing")
    digits = re.search(r"invalid characters from \d+:(\d+)$", message)
    if digits:
        return TextError(text, short.position(int(digits[1])) + 2, "expected hex digits, two for each byte")
    return TextError(text, 0, "this text cannot be split into words and signs")


def _depth(tokens: Sequence[Token]) -> tuple[int, int]:
    """How deep the tokens nest at most, and where."""
    depth = signs = most = position = 0
    for token in tokens:
        kind = token.token_type
        if kind in (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE):
            depth += 1
        elif kind in (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END):
            depth -= 1
        signs = signs + 1 if kind in (TokenType.NOT, TokenType.DASH, TokenType.PLUS, _TILDE) else 0
        if depth + signs > most:
            most, position = depth + signs, token.start
    return most, position


def parsed(text: str, tokens: list[Token]) -> exp.Expression:
    """sqlglot's tree of a predicate."""
    depth, deepest = _depth(tokens)
    try:
        if depth > _DEEPEST:
            raise RecursionError
        trees = _Sql().parser(error_level=ErrorLevel.IMMEDIATE).parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        raise _parse_error(text, tokens, error) from None
    except RecursionError:
        raise TextError(text, deepest, "nested too deeply") from None
    except Exception as error:  # a parser so large has bugs of its own
        raise TextError(text, 0, f"sqlglot cannot read this: {type(error).__name__} {error}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Expression):
        raise TextError(text, 0, "expected a predicate, as in id = 5")
    return trees[0]


def _parse_error(text: str, tokens: Sequence[Token], error: ParseError) -> TextError:
    first = error.errors[0] if error.errors else {}
    spot = (first.get("line"), first.get("col"))
    token = next((t for t in tokens if (t.line, t.col) == spot), tokens[0])
    what = str(first.get("description") or "")
    if token is tokens[0] and token.text.upper() == "WHERE":
        return TextError(text, token.start, "leave WHERE out; a predicate is expected, as in id = 5")
    if token is tokens[0] and token.text.upper() in ("SELECT", "WITH"):
        return TextError(text, token.start, "expected a predicate, not a statement")
    if "'this' missing" in what:
        before = [None, *tokens]
        for previous, joint in zip(before, tokens, strict=False):
            if joint.token_type in _JOINTS and (previous is None or previous.token_type in _OPENING):
                return TextError(text, joint.start, f"expected something before {_written(text, joint)}")
    if "Unexpected" in what:
        return TextError(text, token.start, f"unexpected {_written(text, token)}")
    asked = what.removeprefix("Expecting ") if what.startswith("Expecting") else "more"
    if token is tokens[-1]:
        return TextError(text, token.end + 1, f"expected {asked} before the end")
    return TextError(text, token.start, f"expected {asked} before {_written(text, token)}")


def _written(text: str, token: Token) -> str:
    return text[token.start : token.end + 1]


# --- nodes ------------------------------------------------------------------------------------


def check_args(node: exp.Expression, *known: str) -> None:
    """Raise NotUnderstoodError where a node has an argument that the caller does not read."""
    for name, value in node.args.items():
        if name not in known and value:
            raise NotUnderstoodError(
                "a subquery" if isinstance(value, exp.Query) else f"{node.key.upper()} with a {name}"
            )


def inside(node: exp.Expression) -> exp.Expression:
    """The expression inside of parentheses."""
    while type(node) is exp.Paren:
        check_args(node, "this")
        node = node.this
    return node


def path_of(node: exp.Expression) -> tuple[str, ...]:
    """The names of a dotted path; sqlglot takes up to four as table and column, more as field access."""
    ends: list[str] = []
    while type(node) is exp.Dot:
        check_args(node, "this", "expression")
        ends.append(_name(node.expression))
        node = node.this
    if type(node) is not exp.Column:
        raise NotUnderstoodError(computed(node))
    check_args(node, "this", "table", "db", "catalog")
    return (*(_name(part) for part in node.parts), *reversed(ends))


def _name(node: object) -> str:
    if type(node) is not exp.Identifier:
        raise NotUnderstoodError("a path with something else than names")
    return str(node.this)


def computed(node: exp.Expression) -> str:
    """Why a node is neither a column nor a literal."""
    if isinstance(node, exp.Query | exp.Exists):
        return "a subquery"
    if isinstance(node, exp.Column):
        return "a cast of a column; engines cast in their own ways"
    if isinstance(node, exp.Func):
        name = str(node.this) if isinstance(node, exp.Anonymous) else node.sql_name()
        return f"{name.upper()} is not understood"
    if isinstance(node, exp.Predicate | exp.Not):
        return "a predicate inside another, not joined by AND or OR"
    return (
        "computed; a column against a literal is understood"
        if isinstance(node, exp.Binary)
        else f"{node.key.upper()} is not understood"
    )


_COMPARING = (
    exp.EQ,
    exp.NEQ,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.NullSafeEQ,
    exp.NullSafeNEQ,
    exp.In,
    exp.Between,
    exp.Is,
    exp.Like,
    exp.ILike,
    exp.Not,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Mod,
    exp.Paren,
    exp.Tuple,
    exp.Neg,
    exp.ArrayContains,
    exp.Column,
    exp.Dot,
    exp.Identifier,
    exp.Literal,
    exp.Boolean,
    exp.Null,
)


def contains(node: object) -> bool:
    """Whether a node is list_contains(..), or one of the names it has elsewhere."""
    names = ("list_contains", "array_contains", "list_has", "array_has")
    return type(node) is exp.Anonymous and str(node.this).lower() in names


def bare_names(node: exp.Expression) -> tuple[tuple[str, ...], ...]:
    """The columns that a part compares with each other or with literals; none if it does anything else with them.

    `id = 4bf92f` whose quotes the shell took is such a part, and the name that no column has tells so.
    """
    names: dict[tuple[str, ...], None] = {}
    for part in node.walk(prune=lambda one: type(one) in (exp.Column, exp.Dot)):
        if type(part) not in _COMPARING and not contains(part):
            return ()
        if isinstance(part, exp.Column | exp.Dot):
            try:
                names[path_of(part)] = None
            except NotUnderstoodError:
                return ()
    return tuple(names)
