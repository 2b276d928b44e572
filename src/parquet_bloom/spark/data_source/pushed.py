"""Filters that Spark pushes -> our tree; and a tree over Spark's columns -> what one file is asked.

    EqualNullSafe(("id",), 5)          id IS NOT NULL AND id = 5
    StringStartsWith(("name",), "ab")  name >= 'ab' AND name < x'6163'

Row filters look at values as Spark has them, after a file's column became the schema's; a file is
asked about values as it stores them. `for_file` says the same of both, or leaves the part out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as spark

from parquet_bloom.formats.literals import Instant, Literal, own
from parquet_bloom.formats.metadata.schema import FLBA, INT32, INT64, INT96, Leaf
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Path, Predicate, Unknown

TRUE, FALSE = And(()), Or(())
_COMPARE = {
    spark.EqualTo: "=", spark.LessThan: "<", spark.LessThanOrEqual: "<=",
    spark.GreaterThan: ">", spark.GreaterThanOrEqual: ">=",
}  # fmt: skip
LeafPart = Compare | IsIn | IsNull | Contains


def translate(pushed: Any) -> Predicate | None:
    """The tree of a filter; None for one that is not taken over."""
    if isinstance(pushed, spark.Not):
        part = translate(pushed.child)
        return None if part is None else Not(part)
    path = tuple(getattr(pushed, "attribute", ()))
    if isinstance(pushed, spark.IsNull):
        return IsNull(path)
    if isinstance(pushed, spark.IsNotNull):
        return Not(IsNull(path))
    if isinstance(pushed, spark.StringStartsWith):
        return _prefix(path, pushed.value)
    try:
        if isinstance(pushed, spark.In):
            return IsIn(path, tuple(map(_literal, pushed.value)))
        if isinstance(pushed, spark.EqualNullSafe):
            value = _literal(pushed.value)
            return IsNull(path) if value is None else And((Not(IsNull(path)), Compare(path, "=", value)))
        op = _COMPARE.get(type(pushed))
        return None if op is None else Compare(path, op, _literal(pushed.value))
    except TypeError:
        return None


def _literal(value: Any) -> Literal:
    if isinstance(value, dt.datetime):
        return own(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if value is None or isinstance(value, bool | int | float | Decimal | str | bytes | dt.date):
        return value
    raise TypeError(f"{type(value).__name__} is no literal")


def _prefix(path: Path, text: str) -> Predicate:
    """A text's UTF-8 never holds the byte 0xff, so the last byte always has a successor."""
    start = text.encode()
    if not start:
        return Not(IsNull(path)) if path else TRUE
    stop = start[:-1] + bytes([start[-1] + 1])
    return And((Compare(path, ">=", text), Compare(path, "<", stop)))


# --- what one file is asked -----------------------------------------------------------------------

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
