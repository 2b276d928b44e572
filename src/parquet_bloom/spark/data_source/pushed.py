"""A predicate over Spark's columns -> what one file is asked.

    day = '2026-01-31' AND id = 5    a folder day=2026-01-31    id = 5
    ts = 00:00:00.000001             ts in nanoseconds          ts >= 00:00:00.000001 AND ts < 00:00:00.000002

Row filters look at values as Spark has them, after a file's column became the schema's; a file is
asked about values as it stores them. `for_file` says the same of both, or leaves the part out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from parquet_bloom.formats.literals import Instant
from parquet_bloom.formats.metadata.schema import FLBA, INT32, INT64, INT96, Leaf
from parquet_bloom.predicates.arrow_literals import is_list
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate, Unknown

TRUE, FALSE = And(()), Or(())
LeafPart = Compare | IsIn | IsNull | Contains

Answer = bool | None | Predicate
"""What is known of a part: TRUE, FALSE or NULL in every row, or else a part to ask."""


def settle(predicate: Predicate, ask: Callable[[LeafPart], Answer], positive: bool = True) -> Predicate:
    """A tree that may be TRUE in some row if the predicate may, and perhaps otherwise.

    Parts that are known fall out; TRUE is And(()), FALSE is Or(()). NULL counts as the outcome that
    does not make the whole TRUE: FALSE, and below a NOT (not positive) TRUE.
    """
    if isinstance(predicate, And | Or):
        kind, ends = (And, FALSE) if isinstance(predicate, And) else (Or, TRUE)
        parts = []
        for part in predicate.parts:
            settled = settle(part, ask, positive)
            if settled == ends:
                return ends
            if settled != kind(()):
                parts.append(settled)
        return parts[0] if len(parts) == 1 else kind(tuple(parts))
    if isinstance(predicate, Not):
        settled = settle(predicate.part, ask, not positive)
        return FALSE if settled == TRUE else TRUE if settled == FALSE else Not(settled)
    if isinstance(predicate, Unknown):
        return predicate
    answer = ask(predicate)
    if answer is None:
        return FALSE if positive else TRUE
    if isinstance(answer, bool):
        return TRUE if answer else FALSE
    return answer


def own_name(name: str, names: list[str]) -> str | None:
    """A file's own name of a column: that very name, or the only one that differs in case alone."""
    if name in names:
        return name
    near = {other for other in names if other.lower() == name.lower()}
    return near.pop() if len(near) == 1 else None


def for_leaves(part: LeafPart, leaves: Sequence[Leaf], wide: pa.Schema) -> Answer:
    """What a file, or a table, with these leaves is asked; a column that it lacks is NULL in all its rows.

    wide  Spark's columns
    """
    name = own_name(part.path[0], [leaf.path[0] for leaf in leaves])
    if name is None:
        return True if isinstance(part, IsNull) else None
    path = (name, *part.path[1:])
    under = [leaf for leaf in leaves if leaf.path[: len(path)] == path]
    if len(under) != 1:
        return Unknown(str(part), "no single column has this name here")
    target = _target(part, wide)
    if target is None:
        return Unknown(str(part), "the schema has no such field")
    return for_file(replace(part, path=path), under[0], target)


def _target(part: LeafPart, wide: pa.Schema) -> pa.DataType | None:
    """Spark's type of what a part compares; None where the path leads through lists."""
    kind = wide.field(part.path[0]).type
    for step in part.path[1:]:
        inside = kind.get_field_index(step) if kind is not None and pa.types.is_struct(kind) else -1
        kind = kind.field(inside).type if inside >= 0 else None
    return kind.value_type if isinstance(part, Contains) and kind is not None and is_list(kind) else kind


def for_file(part: LeafPart, leaf: Leaf, target: pa.DataType) -> Predicate:
    """A part about Spark's column as one about the file's; Unknown where the two could disagree.

    target  Spark's type of the column
    """
    if isinstance(part, IsNull):
        return part  # no conversion makes a NULL, or unmakes one
    if not _same_literals(leaf, target):
        return Unknown(str(part), f"{leaf.name} is {leaf.type_name} in the file, and another type in the schema")
    if leaf.logical != "TIMESTAMP" or leaf.unit_ns >= 1000:
        return part
    if isinstance(part, Contains):
        return Unknown(str(part), f"{leaf.name} has nanoseconds")
    if isinstance(part, IsIn):
        return Or(tuple(_in_nanoseconds(Compare(part.path, "=", value)) for value in part.values))
    return _in_nanoseconds(part)


def _in_nanoseconds(part: Compare) -> Predicate:
    """A comparison of microseconds as one of the nanoseconds that are cut off to them."""
    value = part.value
    if value is None:
        return part
    if not isinstance(value, Instant) or value.nanoseconds % 1000:
        return Unknown(str(part), "nanoseconds are cut off to microseconds")
    after = replace(value, nanoseconds=value.nanoseconds + 1000)
    if part.op == "=":
        return And((Compare(part.path, ">=", value), Compare(part.path, "<", after)))
    if part.op in ("<=", ">"):
        return Compare(part.path, "<" if part.op == "<=" else ">=", after)
    return part


def _same_literals(leaf: Leaf, target: pa.DataType) -> bool:
    """Whether a literal means the same for the file's column and for Spark's."""
    types, logical = pa.types, leaf.logical
    if leaf.physical == INT96 or leaf.float_bits == 16:
        return False
    if types.is_floating(target):
        return leaf.float_bits == int(target.bit_width)
    if types.is_decimal(target) and logical == "DECIMAL":
        return leaf.scale == int(target.scale)
    if types.is_integer(target) or (types.is_decimal(target) and target.scale == 0):
        return logical in (None, "INTEGER") and leaf.physical in (INT32, INT64)
    if types.is_timestamp(target):
        return logical == "TIMESTAMP" and leaf.utc == (target.tz is not None)
    if types.is_date(target):
        return logical == "DATE"
    if types.is_boolean(target):
        return logical is None
    if types.is_string(target) or types.is_binary(target):
        known = logical in (None, "STRING", "ENUM", "JSON", "BSON")
        return known and (leaf.physical != FLBA or types.is_binary(target))
    return False
