"""A predicate -> an equivalent Spark Column, which stays correct when Spark pushes it down.

    id < 1.5                id <= 1              literals are cast here, exactly, to the column's type
    x > 5.0                 x > 5.0 OR isnan(x)  so that no min and max, which leave NaN out, lose its rows
    list_contains(l, 5)     coalesce(exists(l, e -> e = 5), false)

The text is not given to Spark: "a name" is a text there, and list_contains no function. NULL has
SQL's meaning; NaN is the largest value and equals itself; a float is compared in doubles, as Spark
does: x = 0.1 finds nothing in a FLOAT column.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from parquet_bloom.errors import RequestError
from parquet_bloom.format.literals import DAY_NS, Instant, Literal, day_number
from parquet_bloom.format.schema import join_path, unknown_column
from parquet_bloom.predicates.casts import Against, Always, plan
from parquet_bloom.predicates.tree import (
    COMPARISONS,
    And,
    Compare,
    Contains,
    IsIn,
    IsNull,
    Not,
    Or,
    Path,
    Predicate,
    Unknown,
)

_EXACT = {
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.BooleanType: pa.bool_(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", "UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
    st.BinaryType: pa.binary(),
}
_FLOATS = (st.FloatType, st.DoubleType)
# Before this day some files count days by another calendar, and Spark turns them into today's.
_SAFE = dt.date(1900, 1, 2)


def as_column(predicate: Predicate, schema: st.StructType) -> Column:
    """Translate a predicate for a DataFrame of this schema.

    Raises UnknownColumnError; and RequestError where a literal cannot be a value of its column, a
    list, a map or a struct is compared, or a part is Unknown.
    """
    match predicate:
        case Compare(path, op, value):
            column, kind = _value_column(path, schema)
            return _compare(path, column, kind, op, value)
        case IsIn(path, values):
            column, kind = _value_column(path, schema)
            return _is_in(path, column, kind, values)
        case IsNull(path):
            return resolve(path, schema)[0].isNull()
        case Contains(path, value):
            return _contains(path, value, schema)
        case Not(part):
            return ~as_column(part, schema)
        case And(parts):
            return _joined([as_column(part, schema) for part in parts], lambda a, b: a & b, True)
        case Or(parts):
            return _joined([as_column(part, schema) for part in parts], lambda a, b: a | b, False)
        case Unknown(text, reason):
            raise RequestError(
                f"rows cannot be filtered by {text}: {reason}; leave the part out here, and put it in .where()"
            )


def prunable(predicate: Predicate, schema: st.StructType) -> Predicate:
    """The predicate for footers and filters: parts whose values Spark changes as it reads them are Unknown.

    These are texts with a collation or of a CHAR type, and dates and times before 1900.
    """
    match predicate:
        case And(parts):
            return And(tuple(prunable(part, schema) for part in parts))
        case Or(parts):
            return Or(tuple(prunable(part, schema) for part in parts))
        case Not(part):
            return Not(prunable(part, schema))
        case Compare() | IsIn() | Contains():
            kind, changed = _kind_of(predicate.path, schema)
            values = predicate.values if isinstance(predicate, IsIn) else (predicate.value,)
            if changed or any(_is_old(value, kind) for value in values):
                return Unknown(str(predicate), "Spark changes such values as it reads them")
    return predicate


# --- names ----------------------------------------------------------------------------------------
#
# What a path means among the columns of a DataFrame.


def resolve(path: Path, schema: st.StructType) -> tuple[Column, Any]:
    """A column and its type, by its exact name; of list.element the list. Raises UnknownColumnError."""
    column: Any = None
    kind: Any = schema
    for at, part in enumerate(path):
        if isinstance(kind, st.ArrayType):
            return column, kind
        names = kind.names if isinstance(kind, st.StructType) else []
        if names.count(part) != 1:
            raise unknown_column(join_path(path), [join_path((*path[:at], name)) for name in names])
        kind = kind[part].dataType
        column = sf.col("`" + part.replace("`", "``") + "`") if column is None else column.getField(part)
    return column, kind


def _kind_of(path: Path, schema: st.StructType) -> tuple[Any, bool]:
    """The type of a column or of its elements, and whether Spark has its texts otherwise than they are stored."""
    kind: Any = schema
    char = False
    for part in path:
        if not isinstance(kind, st.StructType) or part not in kind.names:
            break
        char |= any("CHAR" in key.upper() for key in kind[part].metadata)
        kind = kind[part].dataType
    while isinstance(kind, st.ArrayType):
        kind = kind.elementType
    text = isinstance(kind, st.StringType)
    return kind, text and (char or kind != st.StringType() or type(kind) is not st.StringType)


def _is_old(value: Literal, kind: Any) -> bool:
    if not isinstance(kind, st.DateType | st.TimestampType | st.TimestampNTZType):
        return False
    if isinstance(value, Instant):
        return value.nanoseconds < day_number(_SAFE) * DAY_NS
    if isinstance(value, str):
        return value.strip() < _SAFE.isoformat()
    return isinstance(value, dt.date) and value < _SAFE


def _value_column(path: Path, schema: st.StructType) -> tuple[Column, Any]:
    column, kind = resolve(path, schema)
    name = join_path(path)
    if isinstance(kind, st.ArrayType):
        raise RequestError(f"column {name} speaks of a list; use list_contains({name}, ..)")
    if isinstance(kind, st.StructType):
        fields = ", ".join(join_path((*path, field)) for field in kind.names[:5])
        raise RequestError(f"column {name} is a struct; name one of its fields: {fields}")
    return column, kind


# --- comparisons ----------------------------------------------------------------------------------
#
# A column and a literal -> a Column, of the type in which Spark compares exactly.


def _compare(path: Path, column: Column, kind: Any, op: str, value: Literal) -> Column:
    if isinstance(kind, _FLOATS):
        return _float_compare(path, column, op, value)
    found = plan(join_path(path), _arrow(path, kind), op, value)
    if isinstance(found, Always):
        return _always(column, found.answer)
    left, right = _sides(column, kind, found, value)
    answer: Column = COMPARISONS[found.op](left, right)
    return answer


def _always(column: Column, answer: bool | None) -> Column:
    """The answer where there is a value, else NULL."""
    return sf.lit(None).cast("boolean") if answer is None else sf.when(column.isNotNull(), sf.lit(answer))


def _arrow(path: Path, kind: Any) -> pa.DataType:
    if isinstance(kind, st.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, st.StringType):
        return pa.string()
    found = _EXACT.get(type(kind))
    if found is None:
        raise RequestError(f"column {join_path(path)} is {kind.simpleString()}, whose values are not compared")
    return found


def _sides(column: Column, kind: Any, found: Against, value: Literal) -> tuple[Column, Column]:
    """The column, and a literal of the same type."""
    scalar = found.scalar
    if isinstance(kind, st.DecimalType) and pa.types.is_floating(scalar.type):
        return column.cast("double"), sf.lit(scalar.as_py())
    if isinstance(kind, st.StringType):
        return (column, sf.lit(value)) if isinstance(value, str) else (column.cast("binary"), _bytes(scalar.as_py()))
    if isinstance(kind, st.BinaryType):
        return column, _bytes(scalar.as_py())
    if isinstance(kind, st.DateType):
        return column, sf.date_from_unix_date(sf.lit(scalar.value))
    if isinstance(kind, st.TimestampType):
        return column, sf.timestamp_micros(sf.lit(scalar.value).cast("bigint"))
    if isinstance(kind, st.TimestampNTZType):
        start = sf.lit(dt.date(1970, 1, 1)).cast("timestamp_ntz")
        return column, start + sf.lit(dt.timedelta(microseconds=scalar.value))
    return column, sf.lit(scalar.as_py()).cast(kind)


def _bytes(value: bytes) -> Column:
    return sf.unhex(sf.lit(value.hex()))


def _float_compare(path: Path, column: Column, op: str, value: Literal) -> Column:
    nan = sf.isnan(column)
    if value.is_nan() if isinstance(value, Decimal) else isinstance(value, float) and math.isnan(value):
        answers = {"=": nan, ">=": nan, "<": ~nan, "<=": sf.lit(True), ">": sf.lit(False)}
        return sf.when(column.isNotNull(), answers[op])
    found = plan(join_path(path), pa.float64(), op, value)
    if isinstance(found, Always):
        return _always(column, found.answer)
    number = found.scalar.as_py()
    wide = column.cast("double")
    if number == 0:  # both zeros are equal, but not in dictionaries and filters: nothing is left for these to skip by
        wide = wide + sf.lit(0.0)
    answer: Column = COMPARISONS[found.op](wide, sf.lit(number))
    return answer | nan if found.op in (">", ">=") else answer & ~nan


def _is_in(path: Path, column: Column, kind: Any, values: tuple[Literal, ...]) -> Column:
    if isinstance(kind, _FLOATS) or not values:
        answers = [_compare(path, column, kind, "=", value) for value in values]
        return _joined([*answers, _always(column, False)], lambda a, b: a | b, False)
    name, arrow = join_path(path), _arrow(path, kind)
    by_side: dict[str, tuple[Column, list[Column]]] = {}
    null = False
    for value in values:
        found = plan(name, arrow, "=", value)
        if isinstance(found, Against):
            left, right = _sides(column, kind, found, value)
            side = f"{len(found.casts)} {type(value) is str}"
            by_side.setdefault(side, (left, []))[1].append(right)
        null |= found == Always(None)
    answers = [left.isin(*members) for left, members in by_side.values()]
    answers.append(_always(column, False))
    if null:
        answers.append(_always(column, None))
    return _joined(answers, lambda a, b: a | b, False)


def _contains(path: Path, value: Literal, schema: st.StructType) -> Column:
    column, kind = resolve(path, schema)
    if not isinstance(kind, st.ArrayType):
        raise RequestError(f"column {join_path(path)} is {kind.simpleString()}, not a list")
    element = kind.elementType
    if isinstance(element, st.ArrayType | st.StructType | st.MapType):
        raise RequestError(f"the elements of {join_path(path)} are {element.simpleString()}, and are not compared")
    if value is None:
        return _always(column, None)
    found = sf.exists(column, lambda one: _compare(path, one, element, "=", value))
    return sf.when(column.isNotNull(), sf.coalesce(found, sf.lit(False)))


def _joined(parts: list[Column], function: Callable[[Column, Column], Column], empty: bool) -> Column:
    """By pairs, so that a thousand parts are ten levels."""
    while len(parts) > 1:
        parts = [reduce(function, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0] if parts else sf.lit(empty)
