"""Random predicates over the columns of a random file: literals that are there, beside what is there, and odd ones.

tree      all eight kinds, for SQL's meaning of NULL
Arrow     the same drawn as a pyarrow Expression, for pyarrow's own meaning
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Context, Decimal
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from random_columns import DAY_NS, SPREAD, Column, decimal_of
from random_files import File

from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.predicates.tree import And, Compare, Contains, IsIn, IsNull, Not, Or, Predicate, Unknown

OPERATORS = ("=", "=", "=", "<", "<=", ">", ">=")
_WIDE = Context(prec=1200)  # the digits of any float, and more
EPOCH = dt.datetime(1970, 1, 1)
ODD = (True, 1, 1.5, "text", b"bytes", Decimal("0.1"), dt.date(2020, 1, 1), Instant(0, True), TimeOfDay(0), None)


class Trees:
    """Draws predicates over one file, or over the first of several."""

    def __init__(self, rng: Random, file: File, pairs: bool = False) -> None:
        self.rng = rng
        self.columns = file.columns
        self.stored = {
            column.name: [v for group in file.groups for v in _flat(group[column.name])] for column in file.columns
        }
        self.edges = {column.name: _edges(file, column.name) for column in file.columns}
        self.pairs = pairs

    def tree(self, depth: int = 0) -> Predicate:
        rng = self.rng
        kind = rng.random()
        if depth > 3 or kind < 0.42 + 0.12 * depth:
            return self.leaf()
        if kind < 0.62:
            return self.range()
        if kind < 0.72:
            return Not(self.tree(depth + 1))
        parts = tuple(self.tree(depth + 1) for _ in range(rng.choice([0, 1, 2, 2, 2, 3]) if depth else 2))
        return (And if rng.random() < 0.5 else Or)(parts)

    def leaf(self) -> Predicate:
        rng = self.rng
        what = rng.random()
        if what < 0.03:
            return Unknown("f(x)", "a function")
        if self.pairs and what < 0.25:
            return self.partition()
        column = rng.choice(self.columns)
        path = column.path
        if what > 0.9:
            return IsNull(path if rng.random() < 0.9 else path[:1])
        if column.shape == "list" and what > 0.1:
            return Contains(path if rng.random() < 0.7 else (*path, "list", "element"), self.literal(column))
        if what > 0.7:
            values = [self.literal(column) for _ in range(rng.choice([0, 1, 2, 3, 12]))]
            return IsIn(path, (*values, None) if rng.random() < 0.15 else tuple(values))
        return Compare(path, rng.choice(OPERATORS), self.literal(column))

    def range(self) -> Predicate:
        """Two comparisons of one column, few values apart; now and then both from the same side."""
        column = self.rng.choice(self.columns)
        value = self.near(column)
        sides = [[">", ">="], ["<", "<="]]
        if self.rng.random() < 0.2:
            sides[0] = sides[1] = self.rng.choice(sides)
        literals = self.spelled(column, value), self.spelled(column, self.beside(column, value))
        parts = [
            Compare(column.path, self.rng.choice(side), literal) for side, literal in zip(sides, literals, strict=True)
        ]
        self.rng.shuffle(parts)
        return And(tuple(parts))

    def partition(self) -> Predicate:
        rng = self.rng
        if rng.random() < 0.2:
            return IsNull((rng.choice("pq"),))
        path, values = rng.choice(
            [(("p",), [1, 2, 7, -5, 2.5, 2**40, None]), (("q",), ["a", "b c", "zz", "", "15", None])]
        )
        if rng.random() < 0.3:
            return IsIn(path, tuple(rng.choices(values, k=2)))
        return Compare(path, rng.choice(OPERATORS), rng.choice(values))

    # --- literals ---------------------------------------------------------------------------------

    def literal(self, column: Column) -> Any:
        if self.rng.random() < 0.04:
            return self.rng.choice(ODD)
        return self.spelled(column, self.near(column))

    def near(self, column: Column) -> Any:
        """A value that is stored, or may be, or lies beside one; exact, as in random_columns."""
        rng = self.rng
        stored = self.edges[column.name] if rng.random() < 0.3 else self.stored[column.name]
        what = rng.random()
        if stored and what < 0.7:
            value = rng.choice(stored)
            return value if what < 0.5 else self.beside(column, value)
        return _exact(column, rng.randint(-SPREAD, SPREAD))

    def beside(self, column: Column, value: Any) -> Any:
        """A value a little above, mostly."""
        step = self.rng.choice([1, 1, 2, 2, 3, -1])
        family = column.kind.family
        if family == "integer":
            return value + step
        if family == "decimal":
            scale = column.kind.type.scale
            return decimal_of(_unscaled(value, scale) + step, scale)
        if family == "float":
            return value + 0.5 * step
        if family == "bool":
            return self.rng.random() < 0.5
        if family in ("date", "time", "timestamp"):
            unit = DAY_NS if family == "date" else {"ms": 10**6, "us": 1000, "ns": 1}[column.kind.type.unit]
            return value + step * unit
        if not value:
            return b"\0"
        if self.rng.random() < 0.3:
            return value[:-1] if self.rng.random() < 0.5 and column.kind.type != pa.uuid() else value + b"\0"
        return value[:-1] + bytes([min(255, max(0, value[-1] + step))])

    def spelled(self, column: Column, value: Any) -> Any:
        """One of the literals that name an exact value, or that hardly miss it."""
        rng, family = self.rng, column.kind.family
        odd = rng.random() < (0.45 if family in ("float", "time", "timestamp") else 0.25)
        if family == "integer":
            if not odd:
                return value
            half = Decimal(value) + Decimal("0.5")
            return rng.choice(
                [float(value), half, float(half), Decimal(value), -(2**70), 2**64, 2**31, 2**15, math.inf]
            )
        if family == "decimal":
            scale = column.kind.type.scale
            finer = decimal_of(_unscaled(value, scale) * 10 + rng.choice([-1, 1, 5]), scale + 1)
            return value if not odd else rng.choice([finer, int(value), int(value), float(value), 10**30])
        if family == "float":
            return self._float(value, column.kind.type.to_pandas_dtype()) if odd else value
        if family == "date":
            return self._date(value, odd)
        if family == "timestamp":
            return self._stamp(column, value, odd)
        if family == "time":
            return TimeOfDay(value + (rng.choice([-1, 1, 500]) if odd else 0))
        if family == "uuid" and len(value) == 16:
            return rng.choice([uuid.UUID(bytes=value), value, str(uuid.UUID(bytes=value))])
        if isinstance(value, bytes):
            if odd and column.kind.type == pa.binary(16) and len(value) == 16:
                return str(uuid.UUID(bytes=value))
            try:
                return value.decode() if family == "bytes" and rng.random() < 0.9 else value
            except UnicodeDecodeError:
                return value
        return value

    def _float(self, value: float, kind: Any) -> Any:
        rng = self.rng
        if not math.isfinite(value) or rng.random() < 0.35:
            odd = [0.0, -0.0, 0, math.nan, math.inf, -math.inf, 0.1, Decimal("0.1"), 1e300, 5e-324, 10**400]
            return rng.choice([*odd, 0.0, -0.0])
        if rng.random() < 0.6:  # what the type does not hold, next to the value or next to its neighbor
            side = rng.choice([-1, 1])
            near = rng.choice([value, float(np.nextafter(kind(value), kind(side * math.inf)))])
            return _WIDE.add(Decimal(near), side * Decimal("1e-25")) if math.isfinite(near) else near
        return rng.choice([float(np.nextafter(value, math.inf)), Decimal(repr(value)), Decimal(value), round(value)])

    def _date(self, value: int, odd: bool) -> Any:
        day = dt.date.fromordinal(EPOCH.toordinal() + value // DAY_NS)
        if not odd:
            return day
        return self.rng.choice([
            day.isoformat(), self._spelled(value), Instant(value, False), Instant(value + 3600 * 10**9, False),
            dt.datetime(day.year, day.month, day.day, 1), Instant(value, True),
        ])  # fmt: skip

    def _stamp(self, column: Column, value: int, odd: bool) -> Any:
        utc = column.kind.type.tz is not None
        if not odd:
            return Instant(value, utc)
        moment = EPOCH + dt.timedelta(microseconds=value // 1000)
        moment = moment.replace(tzinfo=dt.UTC) if utc else moment
        offset = self.rng.choice([-1, 1, 500, 10**6 - 1])
        return self.rng.choice([
            moment, Instant(value + offset, utc), moment.date(), Instant(value, not utc), 10**6,
            self._spelled(value, utc), self._spelled(value + offset, utc), self._spelled(value, not utc),
        ])  # fmt: skip

    def _spelled(self, value: int, utc: bool = False) -> str:
        """A time as a text, in one of the spellings that say it whole."""
        zone, shift = self.rng.choice([("Z", 0), ("+00:00", 0), ("+02:00", 120), ("-05:30", -330)]) if utc else ("", 0)
        seconds, fraction = divmod(value + shift * 60 * 10**9, 10**9)
        moment = EPOCH + dt.timedelta(seconds=seconds)
        day, clock = moment.date().isoformat(), moment.time().isoformat()
        sign = self.rng.choice(" T")
        if fraction:
            return f"{day}{sign}{clock}.{fraction:09}".rstrip("0") + zone
        spellings = [clock, clock[:5]] if clock.endswith(":00") else [clock]
        bare = [f"{day}{zone}"] if clock == "00:00:00" else []
        return self.rng.choice([*(f"{day}{sign}{one}{zone}" for one in spellings), *bare])


def _flat(values: list[Any]) -> list[Any]:
    return [v for one in values for v in (one if isinstance(one, list) else [one]) if v is not None]


def _edges(file: File, name: str) -> list[Any]:
    """The lowest and the highest value of each row group; NaN is neither."""
    groups = [[v for v in _flat(group[name]) if v == v] for group in file.groups]
    return [edge for values in groups if values for edge in (min(values), max(values))]


def _unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * 10 ** (int(exponent) + scale)
    return -number if sign else number


def _exact(column: Column, k: int) -> Any:
    value, kind = column.rule(k), column.kind.type
    family = column.kind.family
    if family == "float":
        return float(value)
    if family == "date":
        return value * (10**6 if pa.types.is_date64(kind) else DAY_NS)
    if family in ("time", "timestamp"):
        return value * {"ms": 10**6, "us": 1000, "ns": 1}[kind.unit]
    return value.encode() if isinstance(value, str) else value


# --- as pyarrow has it ----------------------------------------------------------------------------


def expression_of(tree: Predicate, rng: Random, types: dict[tuple[str, ...], pa.DataType]) -> pc.Expression:
    """Much the same as an Expression; raises pa.ArrowException, TypeError or ValueError where there is none."""
    if isinstance(tree, And | Or):
        parts = [expression_of(part, rng, types) for part in tree.parts] or [pc.scalar(isinstance(tree, And))]
        found = parts[0]
        for part in parts[1:]:
            found = found & part if isinstance(tree, And) else found | part
        return found
    if isinstance(tree, Not):
        return ~expression_of(tree.part, rng, types)
    if isinstance(tree, Unknown):
        return pc.field("row") % 2 == 1 if rng.random() < 0 else pc.bit_wise_and(pc.field("row"), 1) == 1
    field = pc.field(*tree.path)
    if isinstance(tree, IsNull):
        return field.is_null(nan_is_null=rng.random() < 0.3) if rng.random() < 0.7 else ~field.is_valid()
    if isinstance(tree, Contains):
        return pc.list_value_length(field) > 1
    kind = types[tree.path]
    if isinstance(tree, IsIn):
        found = field.isin(_set_of(tree.values, kind, rng))
        if len(tree.values) % 3 == 1:  # as DuckDB has it: NULL for NULL
            return pc.if_else(field.is_valid(), found, pa.scalar(None, pa.bool_()))
        return found
    scalar = _scalar_of(tree.value, kind, rng)
    if tree.op == "=" and rng.random() < 0.3:
        return field != scalar
    compare = {"=": "__eq__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}[tree.op]
    return getattr(field, compare)(scalar)


def _scalar_of(value: Any, kind: pa.DataType, rng: Random) -> pa.Scalar:
    if isinstance(value, Instant):
        unit = rng.choice([u for u, n in (("ms", 10**6), ("us", 1000), ("ns", 1)) if value.nanoseconds % n == 0])
        number = value.nanoseconds // {"ms": 10**6, "us": 1000, "ns": 1}[unit]
        return pa.scalar(number, pa.int64()).cast(pa.timestamp(unit, "UTC" if value.utc else None))
    if isinstance(value, TimeOfDay):
        return pa.scalar(value.nanoseconds, pa.int64()).cast(pa.time64("ns"))
    if isinstance(value, uuid.UUID):
        return pa.scalar(value.bytes, rng.choice([pa.uuid(), pa.binary(16)]))
    if isinstance(value, float) and pa.types.is_floating(kind) and rng.random() < 0.3:
        with np.errstate(over="ignore"):
            return pa.scalar(kind.to_pandas_dtype()(value), kind)
    if isinstance(value, Decimal) and pa.types.is_floating(kind):
        # pyarrow misses the double by up to two: 1.900390625, which is one, becomes 1900390625 * 1e-9, which is not.
        return pa.scalar(float(value))
    if value is None or (isinstance(value, int) and rng.random() < 0.4):
        return pa.scalar(value, kind)
    return pa.scalar(value)


def _set_of(values: tuple[Any, ...], kind: pa.DataType, rng: Random) -> pa.Array:
    scalars = [_scalar_of(value, kind, rng) for value in values]
    if not scalars:
        return pa.array([], kind)
    wanted = kind if rng.random() < 0.5 else next((s.type for s in scalars if s.is_valid), kind)
    return pa.array(
        [s.cast(wanted).as_py() if not pa.types.is_temporal(wanted) else s.cast(wanted) for s in scalars], wanted
    )
