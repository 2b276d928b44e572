"""A tree and a file's schema -> a bound tree: names resolved, every literal cast once.

    id > 12 AND id < 14 AND name = 'a'
    And(Interval(id, 13..13), Members(name, 'a'))

Under an And, ranges over one integer column are merged: together they may leave so few values that
a filter can be asked for each. A part that cannot be bound becomes Opaque, which may be anything in
any row; a name that the schema does not have is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from parquet_bloom.formats.bounds import domain_of, limits
from parquet_bloom.formats.metadata.schema import BYTE_ARRAY, INT32, INT64, Leaf
from parquet_bloom.formats.operands import Operand
from parquet_bloom.predicates import tree
from parquet_bloom.predicates.names import Column, Schema, check_names, resolve
from parquet_bloom.predicates.tree import Predicate

RANKED_FROM = 8  # so many literals are looked up in a sorted list, fewer are compared one by one


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of an interval: a literal between low and high, itself outside if `open`."""

    low: Any
    high: Any
    open: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """The column equals one of the operands; `null`: where it does not, the answer is NULL.

    ranked  the operands are values that the type has, ascending; without it they are in no order
    """

    leaf: Leaf
    operands: tuple[Operand, ...]
    null: bool = False
    ranked: bool = False


@dataclass(frozen=True, slots=True)
class Interval:
    """The column lies between two edges; None: no edge. Of an integer column both are closed and exact."""

    leaf: Leaf
    lower: Edge | None
    upper: Edge | None


@dataclass(frozen=True, slots=True)
class Null:
    """The column is NULL."""

    leaf: Leaf


@dataclass(frozen=True, slots=True)
class Element:
    """Some element of a repeated column equals the operand."""

    leaf: Leaf
    operand: Operand


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part that no evidence can answer: it may be TRUE, FALSE or NULL in any row."""

    part: tree.Compare | tree.IsIn | tree.IsNull | tree.Contains | tree.Unknown
    reason: str


@dataclass(frozen=True, slots=True)
class AllOf:
    """AND of its parts."""

    parts: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """OR of its parts."""

    parts: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class NotOf:
    """NOT of its part: TRUE and FALSE change places, NULL stays."""

    part: Bound


Term = Members | Interval | Null | Element | Opaque
Bound = Term | AllOf | AnyOf | NotOf


def bind(predicate: Predicate, schema: Schema) -> Bound:
    """Resolve names and cast literals.

    Raises UnknownColumnError for a name that means nothing; where the schema is strict, RequestError for a
    literal that can never be compared with its column.
    """
    if isinstance(predicate, tree.And):
        return AllOf(_merged([part for p in predicate.parts for part in _flat(bind(p, schema))]))
    if isinstance(predicate, tree.Or):
        return AnyOf(tuple(bind(p, schema) for p in predicate.parts))
    if isinstance(predicate, tree.Not):
        return NotOf(bind(predicate.part, schema))
    if isinstance(predicate, tree.Unknown):
        check_names(predicate, schema)
        return Opaque(predicate, predicate.reason)
    column = resolve(predicate, schema)
    if isinstance(column, str):
        return Opaque(predicate, column)
    if isinstance(predicate, tree.IsNull):
        return Null(column.leaf)
    if isinstance(predicate, tree.Contains):
        return _element(predicate, column)
    if isinstance(predicate, tree.IsIn):
        return _members(predicate, column, predicate.values)
    if predicate.op == "=":
        return _members(predicate, column, (predicate.value,))
    return _interval(predicate, column)


def terms_of(bound: Bound) -> list[Term]:
    """The parts without parts, from left to right."""
    if isinstance(bound, AllOf | AnyOf):
        return [term for part in bound.parts for term in terms_of(part)]
    return terms_of(bound.part) if isinstance(bound, NotOf) else [bound]


def _flat(bound: Bound) -> tuple[Bound, ...]:
    return bound.parts if isinstance(bound, AllOf) else (bound,)


# --- literals -------------------------------------------------------------------------------------


def _members(part: tree.Compare | tree.IsIn, column: Column, values: Sequence[Any]) -> Bound:
    operands = []
    quick = _quick(column)
    for value in values:
        found = quick(value)
        if found is None and value is not None:
            found = column.operand(value)
            if not found.known:
                return Opaque(part, found.reason)
        if found is not None:
            operands.append(found)
    null = len(operands) < len(values)
    if len(operands) >= RANKED_FROM:
        asked = [one for one in operands if not one.never]
        if asked and all(one.lower == one.upper for one in asked):
            return Members(column.leaf, tuple(sorted(asked, key=_lower)), null, ranked=True)
    return Members(column.leaf, tuple(operands), null)


def _quick(column: Column) -> Callable[[Any], Operand | None]:
    """What column.operand gives for the literals that long lists are made of, ten times as fast; None for others."""
    leaf = column.leaf
    if column.first is None and leaf.logical in (None, "STRING") and leaf.physical == BYTE_ARRAY:

        def text(value: Any) -> Operand | None:
            if type(value) is not str or not value.isascii():
                return None
            plain = value.encode()
            return Operand(True, plain, plain, False, (plain,))

        return text
    range_of = limits(leaf)
    plain_integers = leaf.logical in (None, "INTEGER") and leaf.physical in (INT32, INT64)
    if column.first is None and plain_integers and leaf.bits in (0, 8, 16, 32, 64) and range_of is not None:
        least, most = range_of
        letter = "i" if leaf.physical == INT32 else "q"
        pack = struct.Struct(f"<{letter.upper() if least == 0 else letter}").pack
        if domain_of(leaf) == "integer":
            return lambda value: (
                Operand(True, value, value, False, (pack(value),))
                if type(value) is int and least <= value <= most
                else None
            )
    return lambda value: None


_lower = attrgetter("lower")


def _element(part: tree.Contains, column: Column) -> Bound:
    if part.value is None:
        return Opaque(part, "engines do not agree on whether a list contains NULL")
    found, leaf = column.operand(part.value), column.leaf
    return Element(leaf, found) if found.known else Opaque(part, found.reason)


def _interval(part: tree.Compare, column: Column) -> Bound:
    leaf = column.leaf
    if part.value is None:
        return Members(leaf, (), null=True)  # a comparison with NULL is NULL
    found = column.operand(part.value)
    if not found.known:
        return Opaque(part, found.reason)
    below, open = part.op in ("<", "<="), part.op in ("<", ">")
    if domain_of(leaf) != "integer":
        edge = Edge(found.lower, found.upper, open)
        return Interval(leaf, None, edge) if below else Interval(leaf, edge, None)
    # x < 1.5 is x <= 1, x < 2 is x <= 1 too; x > 1.5 is x >= 2. What every value of the type is, is no edge.
    least, most = limits(leaf) or (None, None)
    if below:
        number = found.upper - 1 if open else found.lower
        return Interval(leaf, None, None if most is not None and number >= most else Edge(number, number))
    number = found.lower + 1 if open else found.upper
    return Interval(leaf, None if least is not None and number <= least else Edge(number, number), None)


def _merged(parts: list[Bound]) -> tuple[Bound, ...]:
    """Intervals over one integer column become one, where the first of them stood."""
    kept: list[Bound] = []
    at: dict[int, int] = {}
    for part in parts:
        if not isinstance(part, Interval) or domain_of(part.leaf) != "integer":
            kept.append(part)
        elif part.leaf.index in at:
            first = kept[at[part.leaf.index]]
            assert isinstance(first, Interval)
            lowers = [e for e in (first.lower, part.lower) if e is not None]
            uppers = [e for e in (first.upper, part.upper) if e is not None]
            kept[at[part.leaf.index]] = Interval(
                part.leaf,
                max(lowers, key=lambda e: e.low, default=None),
                min(uppers, key=lambda e: e.high, default=None),
            )
        else:
            at[part.leaf.index] = len(kept)
            kept.append(part)
    return tuple(kept)
