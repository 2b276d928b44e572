"""A tree and a file's schema -> a bound tree: names resolved, every literal cast once.

    id > 12 AND id < 14 AND name = 'a'
    And(Interval(id, 13..13), Members(name, 'a'))

Under an And, ranges over one integer column are merged: together they may leave so few values that
a filter can be asked for each. A part that cannot be bound becomes Opaque, which may be anything in
any row; a name that the schema does not have is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from parquet_bloom.errors import UnknownColumnError
from parquet_bloom.formats.bounds import domain_of, limits
from parquet_bloom.formats.operands import Operand, operand
from parquet_bloom.formats.schema import Leaf, find_leaf, join_path
from parquet_bloom.predicates import tree
from parquet_bloom.predicates.tree import Predicate


@dataclass(frozen=True, slots=True)
class Edge:
    """One end of an interval: a literal between low and high, itself outside if `open`."""

    low: Any
    high: Any
    open: bool = False


@dataclass(frozen=True, slots=True)
class Members:
    """The column equals one of the operands; `null`: where it does not, the answer is NULL."""

    leaf: Leaf
    operands: tuple[Operand, ...]
    null: bool = False


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
    """A part that says nothing."""

    part: tree.Compare | tree.IsIn | tree.IsNull | tree.Contains | tree.Unknown
    reason: str


@dataclass(frozen=True, slots=True)
class AllOf:
    parts: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    parts: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class NotOf:
    part: Bound


Term = Members | Interval | Null | Element | Opaque
Bound = Term | AllOf | AnyOf | NotOf


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns a predicate may speak of.

    leaves   of the file
    keys     pseudo leaves of the partition columns, index -1, -2, ...; they hide leaves of their name
    missing  leaves of other files of the same data set, which are NULL here
    foreign  indexes of leaves that have another type than in the first file: they say nothing
    """

    leaves: Sequence[Leaf]
    keys: Sequence[Leaf] = ()
    missing: Sequence[Leaf] = ()
    foreign: frozenset[int] = frozenset()


def bind(predicate: Predicate, schema: Schema) -> Bound:
    """Resolve names and cast literals. Raises UnknownColumnError for a name that means nothing."""
    if isinstance(predicate, tree.And):
        return AllOf(_merged([part for p in predicate.parts for part in _flat(bind(p, schema))]))
    if isinstance(predicate, tree.Or):
        return AnyOf(tuple(bind(p, schema) for p in predicate.parts))
    if isinstance(predicate, tree.Not):
        return NotOf(bind(predicate.part, schema))
    if isinstance(predicate, tree.Unknown):
        return Opaque(predicate, predicate.reason)
    leaf, problem = _resolve(predicate, schema)
    if leaf is None:
        return Opaque(predicate, problem)
    if isinstance(predicate, tree.IsNull):
        return Null(leaf)
    if isinstance(predicate, tree.Contains):
        return _element(predicate, leaf)
    if isinstance(predicate, tree.IsIn):
        return _members(predicate, leaf, predicate.values)
    if predicate.op == "=":
        return _members(predicate, leaf, (predicate.value,))
    return _interval(predicate, leaf)


def terms_of(bound: Bound) -> list[Term]:
    """The parts without parts, from left to right."""
    if isinstance(bound, AllOf | AnyOf):
        return [term for part in bound.parts for term in terms_of(part)]
    return terms_of(bound.part) if isinstance(bound, NotOf) else [bound]


def _flat(bound: Bound) -> tuple[Bound, ...]:
    return bound.parts if isinstance(bound, AllOf) else (bound,)


# --- names ----------------------------------------------------------------------------------------


def _resolve(part: tree.Compare | tree.IsIn | tree.IsNull | tree.Contains, schema: Schema) -> tuple[Leaf | None, str]:
    """The leaf that a part speaks of, or why it can say nothing."""
    path = part.path
    for key in schema.keys:
        if key.path == path:
            return (None, "a partition column holds no lists") if isinstance(part, tree.Contains) else (key, "")
    under = [leaf for leaf in schema.leaves if leaf.path[: len(path)] == path]
    if not under:
        under = [leaf for leaf in schema.missing if leaf.path[: len(path)] == path]
    if not under:
        try:
            find_leaf(schema.leaves, path)
        except UnknownColumnError as error:
            if len(path) == 1 and "." in path[0]:
                raise UnknownColumnError(f"{error} (a name in quotes is one name; a path is user.id)") from None
            raise
    name = join_path(path)
    if len(under) > 1:
        return None, f"{name} has {len(under)} columns below it"
    leaf = under[0]
    if leaf.index in schema.foreign:
        return None, f"{name} is {leaf.type_name} here, and another type in the first file"
    if isinstance(part, tree.Contains):
        return (leaf, "") if leaf.repeated else (None, f"{name} is no list")
    if leaf.repeated:
        return None, f"{name} is a list; list_contains({name}, ...) speaks of its elements"
    if isinstance(part, tree.IsNull) and leaf.path != path:
        return None, f"{name} is a group, and whether it is NULL is not written down"
    return leaf, ""


# --- literals -------------------------------------------------------------------------------------


def _members(part: tree.Compare | tree.IsIn, leaf: Leaf, values: Sequence[Any]) -> Bound:
    operands = []
    for value in values:
        if value is None:
            continue
        found = operand(value, leaf)
        if not found.known:
            return Opaque(part, found.reason)
        operands.append(_within(found, leaf))
    return Members(leaf, tuple(operands), null=len(operands) < len(values))


def _within(found: Operand, leaf: Leaf) -> Operand:
    """A literal outside the range of the type equals nothing."""
    range_of = limits(leaf)
    if range_of is not None and (found.low > range_of[1] or found.high < range_of[0]):
        return Operand(True, found.low, found.high, never=True, reason=found.reason)
    return found


def _element(part: tree.Contains, leaf: Leaf) -> Bound:
    if part.value is None:
        return Opaque(part, "engines do not agree on whether a list contains NULL")
    found = operand(part.value, leaf)
    return Element(leaf, _within(found, leaf)) if found.known else Opaque(part, found.reason)


def _interval(part: tree.Compare, leaf: Leaf) -> Bound:
    if part.value is None:
        return Members(leaf, (), null=True)  # a comparison with NULL is NULL
    found = operand(part.value, leaf)
    if not found.known:
        return Opaque(part, found.reason)
    below, open = part.op in ("<", "<="), part.op in ("<", ">")
    if domain_of(leaf) != "integer":
        edge = Edge(found.low, found.high, open)
        return Interval(leaf, None, edge) if below else Interval(leaf, edge, None)
    # x < 1.5 is x <= 1, x < 2 is x <= 1 too; x > 1.5 is x >= 2. What every value of the type is, is no edge.
    least, most = limits(leaf) or (None, None)
    if below:
        number = found.high - 1 if open else found.low
        return Interval(leaf, None, None if most is not None and number >= most else Edge(number, number))
    number = found.low + 1 if open else found.high
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
