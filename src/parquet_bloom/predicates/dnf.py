"""DNF filters, as `pyarrow.parquet.read_table(filters=)` takes them, as one pyarrow Expression.

[("id", "=", 5), ("n", "!=", 0)]        both
[[("id", "=", 5)], [("n", "in", [1])]]  either

Values mean what they say: a pandas Timestamp keeps its nanoseconds, which pyarrow cuts off, so `=` on a
column of microseconds finds no row for one between two of them.
"""

from __future__ import annotations

import datetime as dt
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from parquet_bloom.errors import RequestError
from parquet_bloom.formats.literals import shown

_OPERATORS = ("=", "==", "!=", "<", ">", "<=", ">=", "in", "not in")
# pyarrow makes a chain of them, each inside the next, and ends the process where it walks down some 30,000.
MOST_CONDITIONS = 10_000
ARROW_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError, ArithmeticError, LookupError, AttributeError)


def as_expression(filters: Any) -> pc.Expression:
    """The Expression that pyarrow makes of filters. Raises RequestError where they are none.

    A name with a dot, ("user.id", "=", 5), is a top-level column with a dot in its name, as pyarrow
    has it; for a nested field write pc.field("user", "id") == 5.
    """
    if isinstance(filters, pc.Expression):
        return filters
    if not isinstance(filters, list | tuple) or not filters:
        raise RequestError(f"filters: give an Expression, [(column, op, value), ..] or a list of such lists, {_NOT}")
    nested = all(isinstance(part, list) and part and isinstance(part[0], list | tuple) for part in filters)
    count = sum(map(len, filters)) if nested else len(filters)
    if count > MOST_CONDITIONS:
        reason = f'filters: {count:,} conditions, more than {MOST_CONDITIONS:,}; write ("id", "in", [...]), or give'
        raise RequestError(f"{reason} prune(files, column=..., values=...)")
    dnf = [[_condition(c) for c in part] for part in (filters if nested else [filters])]
    try:
        return pq.filters_to_expression(dnf)
    except ARROW_ERRORS as error:
        raise RequestError(f"filters: {one_line(error)}") from error


_NOT = "not a single tuple and not an empty list"


def _condition(condition: Any) -> tuple[str, str, Any]:
    """Check (column, op, value), and take the value as pyarrow means it."""
    if not isinstance(condition, list | tuple) or len(condition) != 3 or not isinstance(condition[0], str):
        raise RequestError(f"filters: {shown(condition)} is not (column, op, value), or a list is missing around it")
    name, op, value = condition
    if not isinstance(op, str) or op not in _OPERATORS:
        raise RequestError(f"filters: column {name}: {op!r} is none of {', '.join(_OPERATORS)}")
    try:
        if op in ("in", "not in"):
            if isinstance(value, str | bytes) or not hasattr(value, "__iter__"):
                raise RequestError(f"filters: column {name}: {op} needs a list of values, not {shown(value)}")
            return (
                name,
                op,
                value if isinstance(value, pa.Array | pa.ChunkedArray) else _array([_value(v) for v in value]),
            )
        value = _value(value)
        return name, op, value if isinstance(value, pa.Scalar | pc.Expression) else pa.scalar(value)
    except ARROW_ERRORS as error:
        if isinstance(error, RequestError):
            raise
        raise RequestError(f"filters: column {name}: {shown(value)} is no literal: {one_line(error)}") from error


def _value(value: Any) -> Any:
    """Keep what pyarrow drops or does not know: nanoseconds of pandas' Timestamps, days of numpy, UUIDs before 22."""
    if isinstance(value, np.datetime64):
        return value.item() if np.datetime_data(value)[0] == "D" else pa.scalar(value)
    if isinstance(value, dt.datetime) and value != value:  # pandas' NaT
        return None
    if getattr(value, "nanosecond", 0) and hasattr(value, "as_unit"):
        zone = None if value.tzinfo is None else "UTC"
        return pa.scalar(value.as_unit("ns").value, pa.timestamp("ns", zone))
    return pa.scalar(value.bytes, pa.uuid()) if isinstance(value, uuid.UUID) else value


def _array(values: list[Any]) -> pa.Array:
    """An array of values, some of which may be scalars of nanoseconds or UUIDs."""
    kind = next((value.type for value in values if isinstance(value, pa.TimestampScalar | pa.UuidScalar)), None)
    if kind is None:
        return pa.array(values)
    scalars = [value if isinstance(value, pa.Scalar) else pa.scalar(value) for value in values]
    return pa.array([scalar.cast(kind).value if scalar.is_valid else None for scalar in scalars], kind)


def one_line(error: BaseException) -> str:
    """What an error says, in one short line."""
    return " ".join(str(error).split())[:200] or type(error).__name__
