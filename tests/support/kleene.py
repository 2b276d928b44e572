"""Predicates by brute force: one row at a time, in plain Python, exactly; the twin of predicates.rows.

A stored value is what its row means: a Fraction, or a float where it is not finite or a zero of
some sign does not matter; nanoseconds for times; bytes for texts, UUIDs and bytes.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import struct
import uuid
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa

from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate, Unknown

OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
DAY_NS = 86_400 * 10**9
Truth = bool | None
Answers = frozenset[Truth]
Comparing = Callable[[pa.DataType, Any, str, Any], Answers]


def stored(scalar: pa.Scalar) -> Any:
    """What a row holds; lists as lists, structs as dictionaries, None for NULL."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        return stored(scalar.value)
    if pa.types.is_struct(kind):
        return {name: stored(value) for name, value in scalar.items()}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [stored(value) for value in scalar.values]
    if pa.types.is_date(kind):
        return scalar.value * DAY_NS
    if pa.types.is_time(kind) or pa.types.is_timestamp(kind):
        return scalar.value * UNIT_NS[kind.unit]
    value = scalar.as_py()
    if pa.types.is_floating(kind):
        return number(float(value))
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Fraction(value)
    return value.encode() if isinstance(value, str) else value


def number(value: float) -> Any:
    return Fraction(value) if math.isfinite(value) else value


def answers(
    predicate: Predicate,
    row: dict[str, Any],
    types: dict[tuple[str, ...], pa.DataType],
    comparing: Comparing | None = None,
) -> Answers:
    """All that a predicate may give for a row: one of TRUE, FALSE and NULL, unless parts are Unknown.

    comparing  what `value op literal` may give, where that is not certain either
    """
    comparing = comparing or (lambda *args: frozenset((compare(*args),)))
    match predicate:
        case Unknown():
            return frozenset((True, False, None))
        case Not(part):
            return frozenset(None if a is None else not a for a in answers(part, row, types, comparing))
        case And(parts) | Or(parts):
            return _all_joined([answers(part, row, types, comparing) for part in parts], isinstance(predicate, Or))
        case IsNull(path):
            return frozenset((at(row, path) is None,))
        case Compare(path, op, value):
            return comparing(types[path], at(row, path), op, value)
        case IsIn(path, values):
            if at(row, path) is None:
                return frozenset((None,))
            return _all_joined([comparing(types[path], at(row, path), "=", value) for value in values], True)
        case Contains(path, value):
            elements = at(row, path)
            if elements is None or value is None:
                return frozenset((None,))
            kind = types[path].value_type
            return frozenset((any(compare(kind, element, "=", value) for element in elements),))


def _all_joined(parts: list[Answers], strong: bool) -> Answers:
    """Or if strong is TRUE, else And: strong decides alone."""
    found: Answers = frozenset((not strong,))
    for part in parts:
        found = frozenset(_joined(a, b, strong) for a in found for b in part)
    return found


def _joined(left: Truth, right: Truth, strong: bool) -> Truth:
    if strong in (left, right):
        return strong
    return None if None in (left, right) else not strong


def at(row: dict[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = row
    for part in path:
        value = None if value is None else value[part]
    return value


def compare(kind: pa.DataType, value: Any, op: str, literal: Any) -> Truth:
    """`value op literal`, value being one of a column of this type."""
    if value is None or literal is None:
        return None
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if isinstance(literal, int | float | Decimal) and not isinstance(literal, bool):
        if pa.types.is_floating(kind) and not isinstance(literal, float):
            literal = rounded(kind, literal)
        elif pa.types.is_decimal(kind) and isinstance(literal, float):
            value, literal = float(value), float(literal)
        else:
            literal = number(float(literal)) if isinstance(literal, float) else Fraction(literal)
        if value != value or literal != literal:
            return False
    elif isinstance(literal, str):
        literal = uuid.UUID(literal).bytes if isinstance(kind, pa.UuidType) else literal.encode()
    elif isinstance(literal, uuid.UUID):
        literal = literal.bytes
    elif isinstance(literal, Instant | TimeOfDay):
        literal = literal.nanoseconds
    elif isinstance(literal, dt.date):
        literal = (literal - dt.date(1970, 1, 1)).days * DAY_NS
    return OPERATORS[op](value, literal)


def rounded(kind: pa.DataType, literal: int | Decimal) -> Any:
    """The nearest value of a float type; the literal itself where that is an infinity."""
    try:
        letter = {16: "e", 32: "f", 64: "d"}[kind.bit_width]
        return number(struct.unpack(f"<{letter}", struct.pack(f"<{letter}", float(literal)))[0])
    except OverflowError:
        return Fraction(literal)
