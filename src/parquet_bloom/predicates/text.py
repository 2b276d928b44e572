"""SQL text -> predicate, through sqlglot.

    id = 5 AND name NOT IN ('a', NULL) OR price BETWEEN 1.50 AND 2     5 < id     flag IS NOT TRUE
    "dotted.name" = x'00ff'   user.id = -7   list_contains(l, 5)   at >= TIMESTAMP '2026-01-31 12:00'

Three things can become of a part. It is understood; or it may be sound SQL, but says nothing about
row groups (`lower(name) = 'x'`, `a = b`): Unknown, with the part's text, while what stands around it
counts; or it is no predicate: TextError, with the spot marked. sqlglot reads more than SQL allows and
adds arguments from version to version, so a node with an argument not named here is Unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise, takewhile
from typing import Any, NoReturn

from sqlglot import Token, TokenType, exp

from parquet_bloom.errors import TextError
from parquet_bloom.format.literals import Literal
from parquet_bloom.predicates.sql import (
    NotUnderstoodError,
    bare_names,
    check_args,
    computed,
    contains,
    converted,
    inside,
    number,
    parsed,
    path_of,
    shortened,
    split,
    typed_literal,
)
from parquet_bloom.predicates.tree import (
    MIRRORED,
    And,
    Compare,
    Contains,
    IsIn,
    IsNull,
    Not,
    Or,
    Path,
    Predicate,
    Unknown,
)


def parse(text: str) -> Predicate:
    """Read a predicate. Raises TextError with a mark under the position where it stops being one."""
    short = shortened(text)
    tokens = split(text, short)
    root = parsed(text, tokens)
    try:
        return _Reader(text, tokens, short.lists).read(root)
    except RecursionError:
        raise TextError(text, 0, "nested too deeply") from None


@dataclass(frozen=True, slots=True)
class _Column:
    path: Path


@dataclass(frozen=True, slots=True)
class _Value:
    value: Literal


class _Reader:
    """lists  plain IN lists by the place of their opening bracket; the tree has the first value of each."""

    def __init__(self, text: str, tokens: Sequence[Token], lists: Mapping[int, tuple[Literal, ...]]) -> None:
        self.text = text
        self.tokens = tokens
        self.lists = lists

    def read(self, root: exp.Expression) -> Predicate:
        for node in root.walk():
            if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
                signs = (TokenType.COLON, TokenType.PARAMETER, TokenType.SESSION_PARAMETER)
                spot = next((t.start for t in self.tokens if t.token_type in signs), 0)
                raise TextError(self.text, spot, "parameters are not supported")
        try:
            return self._tree(root)
        except NotUnderstoodError as reason:
            return Unknown(self.text.strip(), str(reason), bare_names(root))

    def _tree(self, node: exp.Expression) -> Predicate:
        """A part that AND, OR and NOT join; Unknown if it has a text of its own and is not understood."""
        try:
            return self._kind(inner := inside(node))
        except NotUnderstoodError as reason:
            span = inner.meta.get("span") or node.meta.get("span")
            if span is None:
                raise
            return Unknown(self.text[slice(*span)], str(reason), bare_names(inner))

    def _kind(self, node: exp.Expression) -> Predicate:
        if type(node) in (exp.And, exp.Or):
            return self._joined(node)
        if type(node) is exp.Not:
            check_args(node, "this")
            return Not(self._tree(node.this))
        read = _KINDS.get(type(node))
        if read is not None:
            return read(self, node)
        if isinstance(node, exp.Alias | exp.Aliases | exp.PropertyEQ | exp.Tuple | exp.Star | exp.Command):
            self._fail(node, "expected a predicate, as in id = 5")
        operand = self._operand(node)
        if isinstance(operand, _Column):
            return Compare(operand.path, "=", True)
        if operand.value is None:
            raise NotUnderstoodError("NULL in every row")
        if not isinstance(operand.value, bool):
            self._fail(node, "a literal alone is no predicate")
        return And(()) if operand.value else Or(())

    def _joined(self, node: exp.Expression) -> Predicate:
        """A chain of one connective as one node, without recursion: sqlglot nests to the left."""
        kind, made = (exp.And, And) if type(node) is exp.And else (exp.Or, Or)
        parts: list[Predicate] = []
        waiting = [node]
        while waiting:
            inner = inside(outer := waiting.pop())
            if type(inner) is kind:
                check_args(inner, "this", "expression")
                waiting += [inner.expression, inner.this]
                continue
            part = self._tree(outer)
            parts += part.parts if isinstance(part, And | Or) and type(part) is made else [part]
        return parts[0] if len(parts) == 1 else made(tuple(parts))

    # --- leaves -------------------------------------------------------------------------------

    def _compare(self, op: str, node: exp.Expression) -> Predicate:
        check_args(node, "this", "expression")
        left, right = node.this, node.expression
        if op == "=" and type(right) is exp.Any:
            check_args(right, "this")
            return Contains(*self._column_and_value(right.this, left))
        first, second = self._operand(left), self._operand(right)
        if isinstance(first, _Column) and isinstance(second, _Value):
            return Compare(first.path, op, second.value)
        if isinstance(first, _Value) and isinstance(second, _Column):
            return Compare(second.path, MIRRORED[op], first.value)
        if isinstance(second, _Value):
            raise NotUnderstoodError("compares two literals")
        raise NotUnderstoodError(_two_columns(second.path))

    def _differs(self, node: exp.Expression) -> Predicate:
        if exp.Any in (type(node.this), type(node.expression)):
            raise NotUnderstoodError("some element differs: not the opposite of containing it")
        return Not(self._compare("=", node))

    def _same(self, node: exp.Expression) -> Predicate:
        """IS NOT DISTINCT FROM: never NULL."""
        if exp.Any in (type(node.this), type(node.expression)):
            raise NotUnderstoodError("ANY with a comparison other than =")
        compare = self._compare("=", node)
        assert isinstance(compare, Compare)
        return _never_null(compare) if compare.value is not None else IsNull(compare.path)

    def _is(self, node: exp.Expression) -> Predicate:
        check_args(node, "this", "expression")
        path = self._path_of(node.this)
        if type(node.expression) is exp.Null:
            return IsNull(path)
        if type(node.expression) is exp.Boolean:
            return _never_null(Compare(path, "=", bool(node.expression.this)))
        raise NotUnderstoodError("IS with something else than NULL, TRUE or FALSE")

    def _between(self, node: exp.Expression) -> Predicate:
        check_args(node, "this", "low", "high")
        path = self._path_of(node.this)
        low, high = self._operand(node.args["low"]), self._operand(node.args["high"])
        if isinstance(low, _Column) or isinstance(high, _Column):
            raise NotUnderstoodError("BETWEEN columns, not literals")
        self._after(node, TokenType.AND)
        return And((Compare(path, ">=", low.value), Compare(path, "<=", high.value)))

    def _in(self, node: exp.Expression) -> Predicate:
        check_args(node, "this", "expressions")
        path = self._path_of(node.this)
        opening = self._after(node, TokenType.IN)
        if opening.token_type == TokenType.L_BRACKET:
            raise NotUnderstoodError("IN over a list value has its own meaning of NULL; write IN (1, 2)")
        if opening.token_type != TokenType.L_PAREN:
            raise TextError(self.text, opening.start, "IN needs a list in parentheses")
        if opening.start in self.lists:
            return IsIn(path, self.lists[opening.start])
        values: list[Literal] = []
        for part in node.expressions:
            operand = self._operand(part)
            if isinstance(operand, _Column):
                raise NotUnderstoodError(_two_columns(operand.path))
            values.append(operand.value)
        return IsIn(path, tuple(values))

    def _like(self, node: exp.Expression) -> Predicate:
        negated = bool(node.args.get("negate"))
        check_args(node, "this", "expression", "negate")
        path, pattern = self._column_and_value(node.this, node.expression)
        if not isinstance(pattern, str) or set(pattern) & set("%_\\"):
            raise NotUnderstoodError("a pattern" if negated else _pattern(path, pattern))
        compare = Compare(path, "=", pattern)
        return Not(compare) if negated else compare

    def _starts_with(self, node: exp.Expression) -> Predicate:
        check_args(node, "this", "expression")
        path, start = self._column_and_value(node.this, node.expression)
        raise NotUnderstoodError(_pattern(path, start, ""))

    def _array_contains(self, node: exp.Expression) -> Predicate:
        check_args(node, "this", "expression")
        return Contains(*self._column_and_value(node.this, node.expression))

    def _named(self, node: exp.Expression) -> Predicate:
        """A function that sqlglot knows by its name only."""
        check_args(node, "this", "expressions")
        if not contains(node):
            raise NotUnderstoodError(computed(node))
        if len(node.expressions) != 2:
            raise NotUnderstoodError(f"{node.this} without its two arguments")
        return Contains(*self._column_and_value(*node.expressions))

    # --- columns and literals -----------------------------------------------------------------

    def _column_and_value(self, column: exp.Expression, value: exp.Expression) -> tuple[Path, Literal]:
        path, operand = self._path_of(column), self._operand(value)
        if isinstance(operand, _Column):
            raise NotUnderstoodError(_two_columns(operand.path))
        return path, operand.value

    def _path_of(self, node: exp.Expression) -> Path:
        operand = self._operand(node)
        if isinstance(operand, _Value):
            raise NotUnderstoodError("a literal where a column is expected")
        return operand.path

    def _operand(self, node: exp.Expression | None) -> _Column | _Value:
        if node is None:
            raise NotUnderstoodError("something is missing")
        node = inside(node)
        if type(node) in (exp.Column, exp.Dot):
            return _Column(path_of(node))
        return _Value(self._literal(node))

    def _literal(self, node: exp.Expression) -> Literal:
        if type(node) is exp.Literal:
            return str(node.this) if node.is_string else self._number(node)
        if type(node) is exp.National:
            return str(node.this)
        if type(node) is exp.Boolean:
            return bool(node.this)
        if type(node) is exp.Null:
            return None
        if type(node) is exp.HexString:
            return self._hex(node)
        if type(node) is exp.Neg:
            value = self._literal(inside(node.this))
            if isinstance(value, Decimal):
                return value.copy_negate()  # minus alone would round to the context's digits
            if isinstance(value, int | float) and not isinstance(value, bool):
                return -value
        if type(node) is exp.Cast:
            return self._cast(node)
        raise NotUnderstoodError(computed(node))

    def _number(self, node: exp.Expression) -> Literal:
        try:
            return number(str(node.this))
        except (ValueError, ArithmeticError):  # sqlglot takes 5e for one
            start = int(node.meta.get("start", self._place(node)[0]))
            raise TextError(self.text, start, f"{str(node.this)[:100]} is no number") from None

    def _hex(self, node: exp.Expression) -> Literal:
        start = int(node.meta["start"])  # without it 0xff and x'ff' are the same
        if self.text[start] not in "xX":
            return int(str(node.this), 16)
        try:
            return bytes.fromhex(self.text[start + 2 : int(node.meta["end"])])
        except ValueError:
            raise TextError(self.text, start + 2, "expected hex digits, two for each byte") from None

    def _cast(self, node: exp.Expression) -> Literal:
        check_args(node, "this", "to")
        kind = str(getattr(node.args["to"].this, "name", ""))
        inner = inside(node.this)
        if type(inner) is not exp.Literal or not inner.is_string:
            return converted(kind, self._literal(inner))
        try:
            scale = tuple(int(str(parameter.this.this)) for parameter in node.args["to"].expressions)
        except (AttributeError, ValueError):
            raise NotUnderstoodError(f"a literal of type {kind}") from None
        try:
            return typed_literal(kind, scale, str(inner.this))
        except (ValueError, ArithmeticError, KeyError) as error:
            help = f": {error}" if "session" in str(error) else ""
            start = int(inner.meta.get("start", 0))
            shown = self.text[start : int(inner.meta.get("end", start)) + 1]
            shown = shown if len(shown) <= 100 else f"{shown[:100]}..."
            raise TextError(self.text, start, f"{shown} is no {kind}{help}") from None

    # --- places -------------------------------------------------------------------------------

    def _place(self, node: exp.Expression) -> tuple[int, int]:
        """The position in the text of the part that a node belongs to."""
        found: Any = node
        while found is not None and "span" not in found.meta:
            found = found.parent
        start, end = found.meta["span"] if found is not None else (0, len(self.text))
        return int(start), int(end)

    def _after(self, node: exp.Expression, word: TokenType) -> Token:
        """The token behind a word of a leaf; sqlglot takes `x IN` and `x BETWEEN 1 5` as they are."""
        start, end = self._place(node)
        for token, following in pairwise(self.tokens):
            if start <= token.start < end and token.token_type == word:
                return following
        raise TextError(self.text, end, f"expected {word.name}" + (" and a list" if word == TokenType.IN else ""))

    def _fail(self, node: exp.Expression, reason: str) -> NoReturn:
        raise TextError(self.text, self._place(node)[0], reason)


_KINDS: dict[type[exp.Expression], Callable[[_Reader, Any], Predicate]] = {
    exp.EQ: lambda reader, node: reader._compare("=", node),
    exp.LT: lambda reader, node: reader._compare("<", node),
    exp.LTE: lambda reader, node: reader._compare("<=", node),
    exp.GT: lambda reader, node: reader._compare(">", node),
    exp.GTE: lambda reader, node: reader._compare(">=", node),
    exp.NEQ: _Reader._differs,
    exp.NullSafeEQ: _Reader._same,
    exp.NullSafeNEQ: lambda reader, node: Not(reader._same(node)),
    exp.Is: _Reader._is,
    exp.Between: _Reader._between,
    exp.In: _Reader._in,
    exp.Like: _Reader._like,
    exp.StartsWith: _Reader._starts_with,
    exp.ArrayContains: _Reader._array_contains,
    exp.Anonymous: _Reader._named,
}


def _never_null(compare: Compare) -> Predicate:
    return And((Not(IsNull(compare.path)), compare))


def _pattern(path: Path, pattern: Literal, signs: Collection[str] = "%_") -> str:
    """Why a pattern is not used, and the range that its beginning implies, in the order of code points as of bytes."""
    start = "".join(takewhile(lambda c: c not in signs, pattern)) if isinstance(pattern, str) else ""
    last = ord(start[-1]) if start else 0
    if not start or last in (0xD7FF, 0x10FFFF) or "\\" in str(pattern):
        return "a pattern"
    low, high = Compare(path, ">=", start), Compare(path, "<", start[:-1] + chr(last + 1))
    return f"a pattern; say the range that it implies as well: {low} AND {high}"


def _two_columns(path: Path) -> str:
    quoted = path[-1].replace("'", "''")
    return f"compares two columns; a text is written in single quotes: '{quoted}'"
