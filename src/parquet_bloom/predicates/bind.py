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
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from parquet_bloom.errors import RequestError, UnknownColumnError
from parquet_bloom.format.literals import Literal, as_literal, literal_text, spelled
from parquet_bloom.format.schema import BYTE_ARRAY, INT32, INT64, Leaf, find_leaf, join_path
from parquet_bloom.format.statistics import domain_of, limits
from parquet_bloom.format.values import (
    Operand,
    described,
    is_day_of_an_instant,
    key_for,
    operand,
    same_kind,
    same_type,
    what_to_write,
)
from parquet_bloom.predicates import tree
from parquet_bloom.predicates.tree import Predicate

# --- names ----------------------------------------------------------------------------------------
#
# What a name in a predicate means: a column of the file, or of the first file of its data set, or a folder's key.
#
#    day = DATE '2026-01-02'   a folder's name      id = 5   a column, if it is the same in the first file
#    x = 5                     in a file without x, that the first file has: NULL in all of its rows
#
# A data set is known by the columns of its first file; a name that is not among them is an error, and a
# column that is of another kind there says nothing about this file.


class FirstFile(NamedTuple):
    """The columns that a data set is known by, those of its first file: a literal must mean the same there.

    name         of the file, for messages
    ignore_case  a column of another file whose name differs in case alone says nothing: it may be the same
    is_table     these are a table's columns, to whose types a file's are promoted: FLOAT to DOUBLE is exact
    """

    leaves: Sequence[Leaf]
    name: str = ""
    ignore_case: bool = False
    is_table: bool = False

    @property
    def shown(self) -> str:
        """Its name in messages."""
        return ("the table " if self.is_table else "the first file, ") + self.name if self.name else "the first file"

    def same_kind(self, leaf: Leaf, original: Leaf) -> bool:
        """Whether a literal that is known for a file's column and for this original means the same in both."""
        widened = (leaf.float_bits, original.float_bits) == (32, 64) and leaf.repeated == original.repeated
        return same_kind(leaf, original) or (self.is_table and widened)


class Schema(NamedTuple):
    """The columns a predicate may speak of.

    leaves   of the file
    keys     pseudo leaves of the partition columns, index -1, -2, ...; they hide leaves of their name
    first    of the first file of the data set, if this is another: what the file lacks of it is NULL here
    strict   mistakes are errors: a literal that can never be compared with its column, a name in a part that
             is not understood; else they say nothing
    """

    leaves: Sequence[Leaf]
    keys: Sequence[Leaf] = ()
    first: FirstFile | None = None
    strict: bool = True


class Column(NamedTuple):
    """The column of a part.

    leaf    of the file, or a partition's key
    first   the same column in the first file of the data set, where its type is another
    differs "a is INT64, but INT32 in the first file, x.parquet"
    casts   a literal of another type is no mistake
    days    nor is a day for a column in UTC, or an instant for one of days: an engine compares them
    """

    leaf: Leaf
    first: Leaf | None = None
    differs: str = ""
    casts: bool = False
    days: bool = False

    def operand(self, value: Any) -> Operand:
        """The operand of a literal, if it is the same in the first file. Raises RequestError for a misfit."""
        found = operand(value, self.leaf)
        if self.first is not None and found.known != operand(value, self.first).known:
            return Operand(False, reason=self.differs)
        if found.misfit and not (self.casts or (self.days and is_day_of_an_instant(as_literal(value), self.leaf))):
            raise misfit_error(value, self.leaf)
        return found


def misfit_error(value: Any, leaf: Leaf) -> RequestError:
    """The error for a literal that can never be compared with its column."""
    value = as_literal(value)
    text = spelled(value) if isinstance(value, Literal) else literal_text(value)
    reason = f"column {leaf.name} is {described(leaf)}: "
    if value is True:  # `flag` and `flag = TRUE` are one predicate
        reason += f"alone it is no condition ({leaf.name} = ... is one), and {text} is no literal for it"
    else:
        reason += f"{text[:200]} is no literal for it"
    hint = what_to_write(value, leaf)
    return RequestError(f"{reason}; {hint}" if hint else reason)


def check_names(part: tree.Part, schema: Schema) -> None:
    """Raise UnknownColumnError for a name of a part that no column and no key has."""
    for error in unknown_names(part, schema).values():
        raise error


def unknown_names(part: tree.Part, schema: Schema) -> dict[str, UnknownColumnError]:
    """The names of a part that no column and no key has, each with its error."""
    known = schema.leaves if schema.first is None else schema.first.leaves
    names = (part.path,) if not isinstance(part, tree.Unknown) else part.names if schema.strict else ()
    unknown = {}
    for path in names:
        if any(key.path == path for key in schema.keys) or leaves_under(known, path):
            continue
        try:
            find_leaf([*known, *schema.keys], path)
        except UnknownColumnError as error:
            hint = ""
            if isinstance(part, tree.Unknown):
                quoted = ".".join(path).replace("'", "''")
                hint = f"; a text is written in single quotes: '{quoted}'"
            elif len(path) == 1 and "." in path[0]:
                hint = " (a name in quotes is one name; a path is user.id)"
            unknown[join_path(path)] = UnknownColumnError(f"{error}{hint}")
    return unknown


def leaves_under(leaves: Sequence[Leaf], path: tree.Path) -> list[Leaf]:
    """The leaves at or below a path: a name means the one that there is."""
    return [leaf for leaf in leaves if leaf.path[: len(path)] == path]


def resolve(part: tree.Named, schema: Schema) -> Column | str:
    """The column that a part speaks of, or why it can say nothing. Raises UnknownColumnError."""
    path, first = part.path, schema.first
    casts = not schema.strict or first is not None or (isinstance(part, tree.IsIn) and part.casts)
    days = isinstance(part, tree.Compare) and part.by_engine
    # 1. A folder's key hides a column of its name.
    for key in schema.keys:
        if key.path == path:
            return "a partition column holds no lists" if isinstance(part, tree.Contains) else _key(part, key, casts)
    # 2. The one leaf at or below the path: in the first file, by which the data set is known, and in this file.
    under = leaves_under(schema.leaves, path)
    known = under if first is None else leaves_under(first.leaves, path)
    if not known:
        check_names(part, schema)
    name = join_path(path)
    for found in (known, under):
        if len(found) > 1:
            return f"{name} has {len(found)} columns below it"
    # 3. A file may lack the column. The leaf then gets an index past the file's own, by which it is known as absent.
    [original] = known
    if not under:
        folded = [_folded(leaf) for leaf in schema.leaves] if first is not None and first.ignore_case else []
        if _folded(original) in folded:
            return f"{name} has another case in some files: it may be the same column"
        leaf = replace(original, index=len(schema.leaves) + original.index)
    else:
        leaf = under[0]
    # 4. The same column in both? Its type, and its path but for the names that writers give the groups of a list.
    column = Column(leaf, casts=casts, days=days)
    if first is not None and not same_type(leaf, original):
        differs = f"{name} is {described(leaf)}, but {described(original)} in {first.shown}"
        if not first.same_kind(leaf, original):
            return differs
        column = Column(leaf, original, differs, casts, days)
    if _plain(leaf) != _plain(original):
        return f"{name} is {join_path(leaf.path)} here, and {join_path(original.path)} in the first file"
    # 5. Does the part ask what the leaf can answer?
    if isinstance(part, tree.Contains):
        return column if leaf.repeated else f"{name} is no list"
    if leaf.repeated:
        return f"{name} is a list; list_contains({name}, ...) speaks of its elements"
    if isinstance(part, tree.IsNull) and leaf.path != path:
        return f"{name} is a group, and whether it is NULL is not written down"
    return column


def _key(part: tree.Named, key: Leaf, casts: bool) -> Column:
    """A partition's key; dates in folders' names are texts as well (see search.evidence)."""
    if isinstance(part, tree.Contains | tree.IsNull):
        return Column(key, casts=casts)
    values = part.values if isinstance(part, tree.IsIn) else (part.value,)
    return Column(key_for(key, values), casts=casts)


def _plain(leaf: Leaf) -> tuple[str, ...]:
    """A path in which the groups of lists have one name, for all writers."""
    if not leaf.repeated:
        return leaf.path
    path = [part if part not in ("bag", "array") else "list" for part in leaf.path[1:-1]]
    last = leaf.path[-1] if leaf.path[-1] not in ("item", "array_element", "array") else "element"
    return (leaf.path[0], *path, last)


def _folded(leaf: Leaf) -> tuple[str, ...]:
    return tuple(part.lower() for part in leaf.path)


# --- parts of a predicate -------------------------------------------------------------------------

RANKED_FROM = 8  # so many literals are looked up in a sorted list, fewer are compared one by one


class Edge(NamedTuple):
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


def known_parts(predicate: Predicate, is_known: Callable[[tree.Path], bool], reason: str) -> Predicate:
    """A predicate in which parts over other columns than those that are known are Unknown, for the reason."""
    if isinstance(predicate, tree.And | tree.Or):
        return type(predicate)(tuple(known_parts(part, is_known, reason) for part in predicate.parts))
    if isinstance(predicate, tree.Not):
        return tree.Not(known_parts(predicate.part, is_known, reason))
    if isinstance(predicate, tree.Unknown):
        return tree.Unknown(predicate.text, predicate.reason)  # its names may be columns of the data
    return predicate if is_known(predicate.path) else tree.Unknown(str(predicate), reason)


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
    # A NULL among the values is no operand: where no other value is equal, the answer is NULL.
    null = len(operands) < len(values)
    if len(operands) >= RANKED_FROM:
        asked = [one for one in operands if not one.never]
        if asked and all(one.lower == one.upper for one in asked):
            return Members(column.leaf, tuple(sorted(asked, key=_lower)), null, ranked=True)
    return Members(column.leaf, tuple(operands), null)


def _quick(column: Column) -> Callable[[Any], Operand | None]:
    """column.operand for the usual literals of long lists, ten times as fast; None for others."""
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
            # The narrower edge counts. Integer edges are exact and closed, so low and high are one number.
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
