"""What a name in a predicate means: a column of the file, or of the first file of its data set, or a folder's key.

    day = DATE '2026-01-02'   a folder's name      id = 5   a column, if it is the same in the first file
    x = 5                     in a file without x, that the first file has: NULL in all of its rows

A data set is known by the columns of its first file; a name that is not among them is an error, and a
column that is of another kind there says nothing about this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from parquet_bloom.errors import RequestError, UnknownColumnError
from parquet_bloom.formats.kinds import described, is_day_of_an_instant, key_for, same_kind, same_type, what_to_write
from parquet_bloom.formats.literals import Literal, as_literal, shown, spelled
from parquet_bloom.formats.metadata.schema import Leaf, find_leaf, join_path
from parquet_bloom.formats.operands import Operand, operand
from parquet_bloom.predicates import tree


@dataclass(frozen=True, slots=True)
class FirstFile:
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
        """What messages call it."""
        return ("the table " if self.is_table else "the first file, ") + self.name if self.name else "the first file"

    def same_kind(self, leaf: Leaf, original: Leaf) -> bool:
        """Whether a literal that is known for a file's column and for this original means the same in both."""
        widened = (leaf.float_bits, original.float_bits) == (32, 64) and leaf.repeated == original.repeated
        return same_kind(leaf, original) or (self.is_table and widened)


@dataclass(frozen=True, slots=True)
class Schema:
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


@dataclass(frozen=True, slots=True)
class Column:
    """What a part speaks of.

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
        """What a literal means, if it means the same in the first file. Raises RequestError for a misfit."""
        found = operand(value, self.leaf)
        if self.first is not None and found.known != operand(value, self.first).known:
            return Operand(False, reason=self.differs)
        if found.misfit and not (self.casts or (self.days and is_day_of_an_instant(as_literal(value), self.leaf))):
            raise misfit_error(value, self.leaf)
        return found


def misfit_error(value: Any, leaf: Leaf) -> RequestError:
    """What to say of a literal that can never be compared with its column."""
    value = as_literal(value)
    text = spelled(value) if isinstance(value, Literal) else shown(value)
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
        if any(key.path == path for key in schema.keys) or _under(known, path):
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


def _under(leaves: Sequence[Leaf], path: tree.Path) -> list[Leaf]:
    return [leaf for leaf in leaves if leaf.path[: len(path)] == path]


def resolve(part: tree.Named, schema: Schema) -> Column | str:
    """The column that a part speaks of, or why it can say nothing. Raises UnknownColumnError."""
    path, first = part.path, schema.first
    casts = not schema.strict or first is not None or (isinstance(part, tree.IsIn) and part.casts)
    days = isinstance(part, tree.Compare) and part.by_engine
    for key in schema.keys:
        if key.path == path:
            return "a partition column holds no lists" if isinstance(part, tree.Contains) else _key(part, key, casts)
    under = _under(schema.leaves, path)
    known = under if first is None else _under(first.leaves, path)
    if not known:
        check_names(part, schema)
    name = join_path(path)
    for found in (known, under):
        if len(found) > 1:
            return f"{name} has {len(found)} columns below it"
    [original] = known
    if not under:
        folded = [_folded(leaf) for leaf in schema.leaves] if first is not None and first.ignore_case else []
        if _folded(original) in folded:
            return f"{name} has another case in some files: it may be the same column"
        leaf = replace(original, index=len(schema.leaves) + original.index)
    else:
        leaf = under[0]
    column = Column(leaf, casts=casts, days=days)
    if first is not None and not same_type(leaf, original):
        differs = f"{name} is {described(leaf)}, but {described(original)} in {first.shown}"
        if not first.same_kind(leaf, original):
            return differs
        column = Column(leaf, original, differs, casts, days)
    if _plain(leaf) != _plain(original):
        return f"{name} is {join_path(leaf.path)} here, and {join_path(original.path)} in the first file"
    if isinstance(part, tree.Contains):
        return column if leaf.repeated else f"{name} is no list"
    if leaf.repeated:
        return f"{name} is a list; list_contains({name}, ...) speaks of its elements"
    if isinstance(part, tree.IsNull) and leaf.path != path:
        return f"{name} is a group, and whether it is NULL is not written down"
    return column


def _key(part: tree.Named, key: Leaf, casts: bool) -> Column:
    """A partition's key; dates in folders' names are texts as well (see chunks.hive)."""
    if isinstance(part, tree.Contains | tree.IsNull):
        return Column(key, casts=casts)
    values = part.values if isinstance(part, tree.IsIn) else (part.value,)
    return Column(key_for(key, values), casts=casts)


def _plain(leaf: Leaf) -> tuple[str, ...]:
    """A path in which the groups of lists are called alike, whoever wrote them."""
    if not leaf.repeated:
        return leaf.path
    path = [part if part not in ("bag", "array") else "list" for part in leaf.path[1:-1]]
    last = leaf.path[-1] if leaf.path[-1] not in ("item", "array_element", "array") else "element"
    return (leaf.path[0], *path, last)


def _folded(leaf: Leaf) -> tuple[str, ...]:
    return tuple(part.lower() for part in leaf.path)
