"""Polars expressions -> predicate.

    pl.col("id").is_in([5, None]) | (pl.col("n") > 3)     Or((IsIn(("id",), (5,)), Compare(("n",), ">", 3)))

An expression shows its inputs (`meta.pop`), not what it does with them. So each operation that is known here is done
anew on the inputs, and counts only if the result is the expression that was given (`meta.eq`). What is none of them
becomes Unknown: Polars filters the rows in any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parquet_bloom.format.literals import Literal
from parquet_bloom.predicates.casts import OutOfReachError, literal_of
from parquet_bloom.predicates.tree import (
    COMPARISONS,
    MIRRORED,
    And,
    Compare,
    IsIn,
    IsNull,
    Not,
    Or,
    Path,
    Predicate,
    Unknown,
)

if TYPE_CHECKING:
    import polars as pl

    Expr = pl.Expr

_MAX_DEPTH = 100
_ENDS = {"both": (">=", "<="), "left": (">=", "<"), "right": (">", "<="), "none": (">", "<")}


def from_polars(expression: Expr, schema: Mapping[str, Any]) -> Predicate:
    """Translate an expression over columns of these types; what is not understood becomes Unknown, never an error.

    schema  name -> data type of Polars. Categories are in an order of their own, so of these only equality counts

    Where a row makes the expression true, the tree may be TRUE for it; under a Not the same holds of false and FALSE.
    Comparisons are those of Polars: NaN equals itself and is more than any number.
    """
    return _Translator(schema).predicate(expression, 0)


class _Translator:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    def predicate(self, expression: Expr, depth: int) -> Predicate:
        if depth > _MAX_DEPTH:
            return _unknown(expression, f"it is more than {_MAX_DEPTH} levels deep")
        inputs = expression.meta.pop()
        if len(inputs) == 1:
            return self._of_one(expression, inputs[0], depth)
        if len(inputs) == 2:
            return self._of_two(expression, inputs, depth)
        if len(inputs) == 3:
            return self._between(expression, inputs)
        return _unknown(expression, "it is no comparison")

    def _of_one(self, expression: Expr, one: Expr, depth: int) -> Predicate:
        if expression.meta.eq(~one):
            return Not(self.predicate(one, depth + 1))
        for built, negated in ((one.is_null(), False), (one.is_not_null(), True)):
            if expression.meta.eq(built):
                path = self._path(one)
                if path is None:
                    break
                return Not(IsNull(path)) if negated else IsNull(path)
        return _unknown(expression, "it is no comparison")

    def _of_two(self, expression: Expr, inputs: list[Expr], depth: int) -> Predicate:
        second, first = inputs  # popped from a stack
        for joined, kind in ((first & second, And), (first | second, Or)):
            if expression.meta.eq(joined):
                parts = (self.predicate(first, depth + 1), self.predicate(second, depth + 1))
                return kind(tuple(inner for p in parts for inner in (p.parts if isinstance(p, kind) else (p,))))
        literal = next((one for one in inputs if one.meta.is_literal()), None)
        if literal is None:
            return _unknown(expression, "it compares no column with a literal")
        column = second if literal is first else first
        for op, compare in COMPARISONS.items():
            if expression.meta.eq(compare(first, second)):
                return self._compare(expression, column, MIRRORED[op] if literal is first else op, literal)
        if expression.meta.eq(first != second):
            equal = self._compare(expression, column, "=", literal)
            return Not(equal) if isinstance(equal, Compare) else equal
        if expression.meta.eq(column.is_in(literal)):
            return self._is_in(expression, column, literal)
        return _unknown(expression, "it is no comparison")

    def _compare(self, expression: Expr, column: Expr, op: str, literal: Expr) -> Predicate:
        path = self._path(column)
        if path is None:
            return _unknown(expression, "its side is no column")
        if op != "=" and not self._ordered(column):
            return _unknown(expression, "categories have an order of their own")
        try:
            [value] = _values(literal)
        except (OutOfReachError, ValueError) as reason:
            return _unknown(expression, str(reason))
        return Compare(path, op, value, by_engine=True)

    def _is_in(self, expression: Expr, column: Expr, literal: Expr) -> Predicate:
        path = self._path(column)
        if path is None:
            return _unknown(expression, "its side is no column")
        try:
            values = _values(literal.explode())
        except (OutOfReachError, ValueError) as reason:
            return _unknown(expression, str(reason))
        # A null in the list is left out: Polars does not make other values null for it, as SQL would.
        return IsIn(path, tuple(value for value in values if value is not None), casts=True)

    def _between(self, expression: Expr, inputs: list[Expr]) -> Predicate:
        upper, lower, column = inputs
        for closed, (above, below) in _ENDS.items():
            if expression.meta.eq(column.is_between(lower, upper, closed=closed)):  # type: ignore[arg-type]
                return And(
                    tuple(
                        self._compare(expression, column, op, end)
                        if end.meta.is_literal()
                        else _unknown(expression, "")
                        for op, end in ((above, lower), (below, upper))
                    )
                )
        return _unknown(expression, "it is no comparison")

    def _path(self, expression: Expr) -> Path | None:
        """The column, or the field of a struct, that an expression is; None if it is something else."""
        if expression.meta.is_column():
            name = expression.meta.output_name()
            return (name,) if name in self._schema else None
        inputs = expression.meta.pop()
        if len(inputs) != 1:
            return None
        field = expression.meta.output_name(raise_if_undetermined=False)
        if field is None or not expression.meta.eq(inputs[0].struct.field(field)):
            return None
        above = self._path(inputs[0])
        return None if above is None else (*above, field)

    def _ordered(self, column: Expr) -> bool:
        import polars as pl

        names = column.meta.root_names()
        kinds = [self._schema[name] for name in names if name in self._schema]
        return bool(kinds) and not any(_holds(kind, (pl.Categorical, pl.Enum)) for kind in kinds)


def _holds(kind: Any, which: tuple[Any, ...]) -> bool:
    """Whether a data type, or a field of it, is one of these."""
    return kind in which or any(_holds(field.dtype, which) for field in getattr(kind, "fields", ()))


def _values(literal: Expr) -> list[Literal]:
    """The values of an expression without columns. Raises OutOfReachError for one that no literal spells."""
    import polars as pl

    array = pl.select(literal).to_series().to_arrow()
    return [literal_of(scalar) for scalar in array]


def _unknown(expression: Expr, reason: str) -> Unknown:
    return Unknown(str(expression), reason)
