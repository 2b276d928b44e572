"""What a predicate gives for every row, by brute force: exact arithmetic and SQL's three values.

Where a literal is none for its column nothing is compared, and engines refuse or cast, each in its
own way: any outcome is allowed, so a random one is taken, row by row. It must still be foreseen.
"""

from __future__ import annotations

import datetime as dt
import math
import operator
import re
import uuid
from collections.abc import Callable
from decimal import Decimal
from random import Random
from typing import Any

import numpy as np
from random_columns import DAY_NS, Column

from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate

TRUE, FALSE, NULL = 1, 2, 4
_COMPARE = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_NOT = {TRUE: FALSE, FALSE: TRUE, NULL: NULL}
EPOCH = dt.datetime(1970, 1, 1)
_UNITS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}


class NoLiteralError(Exception):
    """The literal is none for the column."""


class Truth:
    """Evaluates predicates over rows.

    columns  of the file and of its folders, by name
    nan      "ieee": no comparison with NaN is TRUE; "largest": NaN is above all, and equals itself
    """

    def __init__(self, columns: dict[str, Column], nan: str, rng: Random) -> None:
        self.columns, self.nan, self.rng = columns, nan, rng

    def outcomes(self, tree: Predicate, group: dict[str, list[Any]], rows: int) -> list[int]:
        """TRUE, FALSE or NULL for every row of a row group; a name it lacks is NULL in every row."""
        if isinstance(tree, And):
            return self._joined(tree.parts, group, rows, FALSE, TRUE)
        if isinstance(tree, Or):
            return self._joined(tree.parts, group, rows, TRUE, FALSE)
        if isinstance(tree, Not):
            return [_NOT[found] for found in self.outcomes(tree.part, group, rows)]
        if not isinstance(tree, Compare | IsIn | IsNull | Contains):
            return self._anything(rows)
        column = self.columns.get(tree.path[0])
        values = group.get(tree.path[0], [None] * rows)
        if isinstance(tree, IsNull):
            whole = column is not None and column.shape == "struct" and len(tree.path) == 1
            return self._anything(rows) if whole else [TRUE if v is None else FALSE for v in values]
        try:
            return self._tested(tree, column, values)
        except NoLiteralError:
            return self._anything(rows)

    def compares(self, part: Predicate) -> bool:
        """Whether each literal of a part is one for its column."""
        if not isinstance(part, Compare | IsIn | Contains):
            return True
        try:
            for value in part.values if isinstance(part, IsIn) else (part.value,):
                exact_literal(value, self.columns.get(part.path[0]))
        except NoLiteralError:
            return False
        return True

    def _anything(self, rows: int) -> list[int]:
        return self.rng.choices([TRUE, FALSE, NULL], k=rows)

    def _joined(self, parts: tuple[Predicate, ...], group: Any, rows: int, strong: int, weak: int) -> list[int]:
        found = [weak] * rows
        for part in parts:
            pairs = zip(found, self.outcomes(part, group, rows), strict=True)
            found = [strong if strong in pair else NULL if NULL in pair else weak for pair in pairs]
        return found

    def _tested(self, tree: Compare | IsIn | Contains, column: Column | None, values: list[Any]) -> list[int]:
        lists = column is not None and column.shape == "list"
        if lists != isinstance(tree, Contains):
            raise NoLiteralError
        if isinstance(tree, IsIn):
            literals = [None if v is None else self._rounded(exact_literal(v, column), column) for v in tree.values]
            equal = [v for v in literals if v is not None]
            otherwise = NULL if len(equal) < len(literals) else FALSE
            return [
                NULL if v is None else TRUE if any(self._is(v, "=", w) for w in equal) else otherwise for v in values
            ]
        if tree.value is None:
            if lists:
                raise NoLiteralError
            return [NULL] * len(values)
        literal = self._rounded(exact_literal(tree.value, column), column)
        if isinstance(tree, Contains):
            found = [v is not None and any(w is not None and self._is(w, "=", literal) for w in v) for v in values]
            return [NULL if v is None else TRUE if f else FALSE for v, f in zip(values, found, strict=True)]
        return [NULL if v is None else TRUE if self._is(v, tree.op, literal) else FALSE for v in values]

    def _rounded(self, literal: Any, column: Column | None) -> Any:
        """The literal, or a value of the column's type beside it: engines round each in its own way."""
        if column is None or column.kind.family != "float":
            return literal
        kind = column.kind.type.to_pandas_dtype()
        try:
            with np.errstate(over="ignore"):
                nearest = kind(float(literal))
        except OverflowError:
            return literal
        if math.isinf(nearest) or float(nearest) == literal:
            return literal
        way = self.rng.choice([None, nearest, -math.inf, math.inf])
        if way is None or way is nearest:
            return literal if way is None else float(nearest)
        return float(np.nextafter(nearest, kind(way)))

    def _is(self, value: Any, op: str, literal: Any) -> bool:
        if isinstance(value, float) and math.isnan(value):  # the literal is none
            return self.nan == "largest" and op in (">", ">=")
        return bool(_COMPARE[op](value, literal))


# --- literals -------------------------------------------------------------------------------------


def exact_literal(value: Any, column: Column | None) -> Any:
    """A literal in the same terms as random_columns.exact; raises NoLiteralError."""
    if column is None:
        raise NoLiteralError
    found = _RULES[column.kind.family](value, column.kind.type)
    if found is None or (isinstance(found, float) and math.isnan(found)):
        raise NoLiteralError
    return found


def _number(value: Any, kind: Any) -> Any:
    return value if isinstance(value, int | float | Decimal) and not isinstance(value, bool) else None


def _bytes(value: Any, kind: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return value if isinstance(value, bytes) else None


def _fixed(value: Any, kind: Any) -> Any:
    if isinstance(value, str) and kind.byte_width == 16 and _uuid(value, kind) is not None:
        return None  # some take it for the text of a uuid
    return _bytes(value, kind)


def _uuid(value: Any, kind: Any) -> Any:
    if isinstance(value, str):
        try:
            value = uuid.UUID(value)
        except ValueError:
            return None
    value = value.bytes if isinstance(value, uuid.UUID) else value
    return value if isinstance(value, bytes) and len(value) == 16 else None


def _days(value: dt.date) -> int:
    return (value.toordinal() - EPOCH.toordinal()) * DAY_NS


def _instant(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        since = value.replace(tzinfo=None) - EPOCH - (value.utcoffset() or dt.timedelta())
        return Instant(since // dt.timedelta(microseconds=1) * 1000, value.tzinfo is not None)
    if isinstance(value, str):
        return _of_text(value)
    return Instant(_days(value), False) if isinstance(value, dt.date) else value


_TEXT = re.compile(r"(\d{4}-\d\d-\d\d)([ T]\d\d:\d\d(:\d\d)?)?(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?", re.ASCII)


def _of_text(text: str) -> Any:
    """A day, perhaps with a time of day, perhaps with a zone; None for all other texts."""
    found = _TEXT.fullmatch(text.strip())
    if found is None or (found[4] and not found[3]):
        return None
    try:
        whole = dt.datetime.fromisoformat(found[1] + (found[2] or " 00:00") + (found[5] or ""))
    except ValueError:
        return None
    fraction = int((found[4] or ".0")[1:].ljust(9, "0"))
    since = _instant(whole)
    return Instant(since.nanoseconds + fraction, since.utc)


def _date(value: Any, kind: Any) -> Any:
    found = _timestamp_in(_instant(value), False)
    return (
        None if isinstance(value, str) and found is not None and found % DAY_NS else found
    )  # some engines round such texts first


def _timestamp(value: Any, kind: Any) -> Any:
    found = _timestamp_in(_instant(value), kind.tz is not None)
    return None if isinstance(value, str) and found is not None and found % _UNITS[kind.unit] else found


def _timestamp_in(value: Any, utc: bool) -> Any:
    return value.nanoseconds if isinstance(value, Instant) and value.utc == utc else None


def _time(value: Any, kind: Any) -> Any:
    return value.nanoseconds if isinstance(value, TimeOfDay) and not value.utc else None


_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "bool": lambda value, kind: value if isinstance(value, bool) else None,
    "integer": _number,
    "decimal": _number,
    "float": _number,
    "bytes": _bytes,
    "fixed": _fixed,
    "uuid": _uuid,
    "date": _date,
    "timestamp": _timestamp,
    "time": _time,
}
