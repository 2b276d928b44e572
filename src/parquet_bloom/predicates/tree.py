"""Predicates as values: eight kinds, with SQL's meaning of NULL throughout.

    id = 5 AND NOT name IN ('a', NULL)
    And((Compare(("id",), "=", 5), Not(IsIn(("name",), ("a", None)))))

What is not a kind of its own: `!=` and NOT IN are Not(..), IS NOT NULL is Not(IsNull), BETWEEN is
an And, `IS NOT DISTINCT FROM 5` is And(Not(IsNull), =) and `IS NOT DISTINCT FROM NULL` is IsNull.
A tree knows no schema: predicates.bind resolves names and casts literals.

`plain` reads the simplest texts back, which most are; predicates.text reads all others, by a parser of SQL.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

from parquet_bloom.format.literals import Literal, read_date, spelled
from parquet_bloom.format.schema import quoted

Path = tuple[str, ...]
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}  # 5 < x is x > 5
_PLAIN = re.compile(r"[A-Za-z_]\w*")
# Words that no parser of SQL takes, or not everywhere, for a name without quotes.
_WORDS = """
    all alter and any array as asc between by case cast collate connect_by_root create cross current_catalog
    current_date current_datetime current_role current_schema current_time current_timestamp current_user desc
    describe distinct drop else end escape except exists false fetch for from full glob grant group having if
    ilike in inner insert intersect interval into is isnull join lateral left like limit localtime localtimestamp
    natural not notnull null offset on or order outer partition partitioned_by qualify regexp returning revoke
    right rlike rollback row select session_user set similar some systimestamp table tablesample then to true
    uncache union unknown unnest update using values when where window with xor
"""
_RESERVED = frozenset(_WORDS.split())


def _name(path: Path) -> str:
    """A path as SQL reads it back."""
    return ".".join(part if _PLAIN.fullmatch(part) and part.lower() not in _RESERVED else quoted(part) for part in path)


@dataclass(frozen=True, slots=True)
class Compare:
    """`column op literal`; NULL where either is.

    path   components of the column's name, not yet resolved against a schema
    op     =, <, <=, > or >=
    by_engine  pyarrow or Polars compares: these take a day for its midnight in UTC where the other side has a zone
    """

    path: Path
    op: str
    value: Literal
    by_engine: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{_name(self.path)} {self.op} {spelled(self.value)}"


@dataclass(frozen=True, slots=True)
class IsIn:
    """`column IN (literals)`: TRUE if it equals one; else NULL if it or any of them is NULL; else FALSE.

    pyarrow's `isin` is another thing: it is And((IsIn, Not(IsNull))), or Or((IsIn, IsNull)) where
    its set holds a null, with the null left out of the IsIn's own values.

    casts  as pyarrow's `isin` does, values are cast to the column's type first: none is of a wrong type
    """

    path: Path
    values: tuple[Literal, ...]
    casts: bool = field(default=False, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{_name(self.path)} IN ({', '.join(map(spelled, self.values))})"


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`; never NULL itself."""

    path: Path

    def __str__(self) -> str:
        return f"{_name(self.path)} IS NULL"


@dataclass(frozen=True, slots=True)
class Contains:
    """`list_contains(column, literal)`: some element equals it; NULL where the list is NULL.

    path   of the list, `l`, or of its elements, `l.list.element`
    """

    path: Path
    value: Literal

    def __str__(self) -> str:
        return f"list_contains({_name(self.path)}, {spelled(self.value)})"


@dataclass(frozen=True, slots=True)
class And:
    """All parts; FALSE if one is, else NULL if one is. Without parts: TRUE."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({p})" if isinstance(p, Or) else str(p) for p in self.parts) or "TRUE"


@dataclass(frozen=True, slots=True)
class Or:
    """Any part; TRUE if one is, else NULL if one is. Without parts: FALSE."""

    parts: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({p})" if isinstance(p, And) else str(p) for p in self.parts) or "FALSE"


@dataclass(frozen=True, slots=True)
class Not:
    """TRUE and FALSE swapped, NULL stays. Never rewritten: `NOT x < 5` keeps NaN, `x >= 5` does not."""

    part: Predicate

    def __str__(self) -> str:
        return f"NOT ({self.part})"


@dataclass(frozen=True, slots=True)
class Unknown:
    """A part that says nothing about row groups: it may be TRUE, FALSE or NULL in any row.

    text    the part as it was written
    reason  why it is not understood
    names   columns that it speaks of for certain; one that does not exist is an error all the same
    """

    text: str
    reason: str
    names: tuple[Path, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        return self.text


Named = Compare | IsIn | IsNull | Contains  # parts that speak of one column
Part = Named | Unknown
Predicate = Part | And | Or | Not


def leaves_of(predicate: Predicate) -> Iterator[Part]:
    """The parts that have no parts, from left to right."""
    if isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from leaves_of(part)
    elif isinstance(predicate, Not):
        yield from leaves_of(predicate.part)
    else:
        yield predicate


def null_hints(predicate: Predicate, negated: bool = False) -> Iterator[str]:
    """Lines on comparisons that are never TRUE, as they are with NULL, in the words that are meant instead."""
    if isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from null_hints(part, negated)
    elif isinstance(predicate, Not):
        yield from null_hints(predicate.part, not negated)
    elif isinstance(predicate, Compare) and predicate.value is None:
        name = _name(predicate.path)
        yield f"{predicate} is never true, nor is its NOT: write {name} IS {'NOT ' * negated}NULL"
    elif isinstance(predicate, IsIn) and negated and None in predicate.values:
        name = _name(predicate.path)
        yield f"{name} NOT IN a list that holds NULL is never true: leave NULL out, or write {name} IS NOT NULL"


# --- texts that need no parser ----------------------------------------------------------------------

_MOST = 10_000  # characters
_B = r"[ \t\r\n]"
# No backslash, which dialects read in different ways; no minus right behind a sign, which some read with it.
_VALUE = (
    r"(?:(?:(?<![<>=!])-)?+[0-9]{1,300}+(?:\.[0-9]{1,300}+)?+(?![\w.])"
    r"|'(?:[^'\\\x00-\x1f\x7f]|'')*+'(?!')"
    rf"|DATE{_B}++'[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}'(?!'))"
)
_PATH = rf"{_B}*+(?P<path>[a-z_]\w*+(?:\.[a-z_]\w*+)*+)"
_JOINT = rf"{_B}*+(?:(?<=[ \t\r\n])(?P<joint>AND|OR)(?={_B})|\Z)"
_COMPARISON = rf"{_PATH}{_B}*+(?P<op><=|>=|<>|!=|=|<|>){_B}*+(?P<value>{_VALUE}){_JOINT}"
_OTHER = (
    rf"{_PATH}(?:{_B}++(?P<not_in>NOT{_B}++)?+IN{_B}*+\({_B}*+(?P<list>{_VALUE}(?:{_B}*+,{_B}*+{_VALUE})*+){_B}*+\)"
    rf"|{_B}++BETWEEN{_B}++(?P<low>{_VALUE}){_B}++AND{_B}++(?P<high>{_VALUE})"
    rf"|{_B}++IS{_B}++(?P<not_null>NOT{_B}++)?+NULL(?!\w)){_JOINT}"
)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, once a text needs it: these take milliseconds."""
    return re.compile(pattern, re.A | re.I)


def plain(text: str) -> Predicate | None:
    """Read comparisons, IN, BETWEEN and IS NULL of plain names, numbers, texts, dates, all joined by AND or all by OR.

    returns  the tree that predicates.text.parse would give; None for whatever is not as simple. That parser alone
             takes longer to load than the rest of a lookup takes.
    """
    if len(text) > _MOST:
        return None
    parts: list[Predicate] = []
    joints: set[str] = set()
    at = 0
    while (found := _compiled(_COMPARISON).match(text, at) or _compiled(_OTHER).match(text, at)) is not None:
        try:
            part = _compared(found)
        except ValueError:  # no day of any month; the parser says where
            return None
        if part is None:
            return None
        joint = (found["joint"] or "").upper()
        # BETWEEN is an And of two parts. Among parts joined by AND they become parts of the whole, as in
        # the parser.
        parts += part.parts if isinstance(part, And) and "OR" not in (joint, *joints) else [part]
        if not joint:
            break
        joints.add(joint)
        at = found.end()
    if found is None or len(joints) > 1:
        return None
    if joints:
        return (Or if "OR" in joints else And)(tuple(parts))
    return part


def _compared(found: re.Match[str]) -> Predicate | None:
    """One comparison as a tree; None where a name is a word that parsers take for something else."""
    path = tuple(found["path"].split("."))
    if any(part.lower() in _RESERVED for part in path):
        return None
    if "op" in found.re.groupindex:  # of _COMPARISON; _OTHER has no such group
        unequal = found["op"] in ("<>", "!=")
        compared = Compare(path, "=" if unequal else found["op"], _value(found["value"]))
        return Not(compared) if unequal else compared
    if found["list"]:
        one_of = IsIn(path, tuple(map(_value, _compiled(_VALUE).findall(found["list"]))))
        return Not(one_of) if found["not_in"] else one_of
    if found["low"]:
        return And((Compare(path, ">=", _value(found["low"])), Compare(path, "<=", _value(found["high"]))))
    return Not(IsNull(path)) if found["not_null"] else IsNull(path)


def _value(text: str) -> Literal:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    if text[0] in "dD":
        return read_date(text[-11:-1])
    return Decimal(text) if "." in text else int(text)
