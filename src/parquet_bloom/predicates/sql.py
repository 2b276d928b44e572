"""sqlglot as we use it: a dialect of SQL's expressions, silent, and with its errors turned into TextError.

Every part that AND, OR and NOT join carries its span in the text, meta["span"] = (start, end).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parser import Parser as SqlParser
from sqlglot.parser import binary_range_parser
from sqlglot.tokens import Tokenizer as SqlTokenizer

from parquet_bloom.errors import TextError
from parquet_bloom.predicates.long_texts import ShortenedText
from parquet_bloom.predicates.sql_literals import NotUnderstoodError

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
        """As it is; sqlglot would look into it, and log what it does not like."""
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
            """What AND, OR and NOT join, with its span in the text: meta["span"]."""
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


def only(node: exp.Expression, *known: str) -> None:
    """Raise NotUnderstoodError where a node has an argument that the caller does not read."""
    for name, value in node.args.items():
        if name not in known and value:
            raise NotUnderstoodError(
                "a subquery" if isinstance(value, exp.Query) else f"{node.key.upper()} with a {name}"
            )


def inside(node: exp.Expression) -> exp.Expression:
    """The expression inside of parentheses."""
    while type(node) is exp.Paren:
        only(node, "this")
        node = node.this
    return node


def path_of(node: exp.Expression) -> tuple[str, ...]:
    """The names of a dotted path; sqlglot takes up to four as table and column, more as field access."""
    ends: list[str] = []
    while type(node) is exp.Dot:
        only(node, "this", "expression")
        ends.append(_name(node.expression))
        node = node.this
    if type(node) is not exp.Column:
        raise NotUnderstoodError(computed(node))
    only(node, "this", "table", "db", "catalog")
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
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between, exp.Is,
    exp.Like, exp.ILike, exp.Not, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Paren, exp.Tuple, exp.Neg,
    exp.ArrayContains, exp.Column, exp.Dot, exp.Identifier, exp.Literal, exp.Boolean, exp.Null,
)  # fmt: skip


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
