"""Statistics of a Delta log as bounds that hold whoever wrote them.

A log keeps statistics as JSON, or as columns of a checkpoint; neither has values as files have them:

    timestamps   cut to milliseconds, by some towards zero: widened by 999 us on either side; by a minute before 1973,
                 when zones had offsets of seconds, which Spark leaves out
    dates        and timestamps before 1582: widened by two weeks, as old writers counted them by the Julian calendar
    strings      cut, with or without something put behind: a greatest one is the start of others (and of longer ones);
                 where a cut went through a character, the bound ends before it, and before the "?" of Java for a half
    decimals     written as doubles by some: widened by what a double may lose
    floats       one step wider, as not all programs read a number back exactly; NaN is in no bounds
    integers     nothing but integers counts
    null counts  of a file with a deletion vector, or where bounds are not tight, only none and all mean something

What is not understood is not known. Source: the Delta protocol, "Per-file Statistics"; Delta's Spark writer and
deltalake 1.6 as measured.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from parquet_bloom.tables.delta.actions import Add
from parquet_bloom.tables.delta.partition_values import parse_timestamp
from parquet_bloom.tables.delta.schema import Column, Schema
from parquet_bloom.tables.snapshot import FileBounds, LeafPath

_ROWS = re.compile(r'\s*\{\s*"numRecords"\s*:\s*(\d{1,18})\s*[,}]', re.A)
_DAY_MICROS = 86_400_000_000
_DAY = dt.date(1970, 1, 1).toordinal()
_CUT_MS = 999  # microseconds that a timestamp of milliseconds may have lost
_CUT_CALENDAR, _GREGORIAN = 14, dt.date(1582, 10, 15).toordinal() - _DAY  # days
_CUT_ZONE = 60_000_000  # microseconds that a zone's offset may have lost
_WHOLE_MINUTES = 94_694_400_000_000  # since 1973 there are only offsets of whole minutes
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def rows_of(add: Add) -> int | None:
    """How many rows a file stores, deleted ones too; None: not known."""
    # As most writers begin; large tables have many files.
    first = _ROWS.match(add.stats) if isinstance(add.stats, str) else None
    return int(first[1]) if first is not None else _count(_told(add).get("numRecords"))


def _told(add: Add) -> Mapping[str, Any]:
    """The statistics of a file; empty where there are none that can be read."""
    text: object = add.stats  # a line of JSON may have anything there
    if text is not None:
        return _decoded(text) if isinstance(text, str) else {}
    return add.parsed if isinstance(add.parsed, Mapping) else {}


# A file is asked for several leaves in a row; all files' statistics at once would be much memory.
@lru_cache(maxsize=16)
def _decoded(text: str) -> Mapping[str, Any]:
    try:
        told = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError, ArithmeticError):
        return {}
    return told if isinstance(told, dict) else {}


class Bounds(Mapping[LeafPath, FileBounds]):
    """The bounds of one file's leaves, read each time somebody asks."""

    def __init__(self, schema: Schema, add: Add) -> None:
        self._schema = schema
        self._add = add

    def _find(self, path: LeafPath) -> FileBounds | None:
        column = self._schema.columns.get(path)
        return None if column is None else _bounds(column, _told(self._add), self._add.vector is None)

    def __getitem__(self, path: LeafPath) -> FileBounds:
        found = self._find(path)
        if found is None:
            raise KeyError(path)
        return found

    def __iter__(self) -> Iterator[LeafPath]:
        return (path for path in self._schema.columns if self._find(path) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _bounds(column: Column, told: Mapping[str, Any], whole: bool) -> FileBounds | None:
    """The bounds of one column. whole: no row of the file is deleted."""
    rows = _count(told.get("numRecords"))
    tight = whole and told.get("tightBounds") in (None, True)
    lower = _bound(_at(told.get("minValues"), column.physical), column, False)
    upper = _bound(_at(told.get("maxValues"), column.physical), column, True)
    nulls = _count(_at(told.get("nullCount"), column.physical))
    if nulls is not None and (rows is None or nulls > rows):
        nulls = None
    if lower is not None and upper is not None and lower > upper:
        lower = upper = None
    all_null = nulls is not None and nulls == rows and lower is None and upper is None
    # pyarrow leaves NULLs of a struct around texts in a dictionary out of its count, and others took that.
    nested = len(column.path) > 1 and (pa.types.is_string(column.type) or pa.types.is_binary(column.type))
    exact = nulls if not nested and (tight or nulls == 0) else None
    if lower is None and upper is None and exact is None and not all_null:
        return None
    return FileBounds(lower, upper, exact, not all_null, False)


def _at(value: Any, path: LeafPath) -> Any:
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def _bound(value: Any, column: Column, upper: bool) -> Any:
    """A place in the leaf's order that is certainly no tighter than the stored values; None: not known."""
    if value is None:
        return None
    try:
        return _place(value, column, upper)
    except (ValueError, TypeError, ArithmeticError):
        return None


def _place(value: Any, column: Column, upper: bool) -> Any:
    kind = column.type
    if pa.types.is_boolean(kind):
        return int(value) if isinstance(value, bool) else None
    if pa.types.is_integer(kind):
        return _integer(value)
    if pa.types.is_floating(kind):
        return _float(value, upper, pa.types.is_float32(kind) or column.was_float)
    if pa.types.is_decimal(kind):
        return _decimal(value, kind.scale, upper)
    if pa.types.is_string(kind):
        return _text(value, upper)
    if pa.types.is_date(kind):
        return _day(value, upper)
    if pa.types.is_timestamp(kind):
        return _timestamp(value, kind.tz is not None, upper)
    return None  # binary: writers do not agree how it is a text


# --- numbers --------------------------------------------------------------------------------------


def _integer(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if -(1 << 63) <= value < 1 << 63 else None
    # Its size first: as an integer 1e999999999 would be half a gigabyte.
    whole = isinstance(value, Decimal) and value.is_finite() and abs(value) < 2**53 and value == int(value)
    return int(value) if whole else None


def _float(value: Any, upper: bool, single: bool) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    number = float(value)
    if math.isnan(number):
        return None
    towards = math.inf if upper else -math.inf
    with np.errstate(over="ignore"):
        if single:
            stepped = float(np.nextafter(np.float32(number), np.float32(towards)))
            return max(stepped, number) if upper else min(stepped, number)
        return float(np.nextafter(number, towards))


def _decimal(value: Any, scale: int, upper: bool) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    with localcontext() as context:
        context.prec = 120
        number = Decimal(value).scaleb(scale)
        if not number.is_finite() or number.adjusted() > 80:
            return None
        digits = len(number.normalize().as_tuple().digits)
        # A decimal of 15 digits comes back from a double; and no double is written with more than 17.
        lost = Decimal(0) if abs(number) <= 10**15 or digits > 17 else abs(number) / 2**50 + 1
        return math.ceil(number + lost) if upper else math.floor(number - lost)


# --- texts and times ------------------------------------------------------------------------------


def _text(value: Any, upper: bool) -> bytes | None:
    if not isinstance(value, str):
        return None
    text: str = value
    cut = re.search("[\ud800-\udfff\ufffd]", text)  # half a character, or what stands for one
    if cut is not None:
        text = text[: cut.start()]
        # Before its U+FFFD, Delta on Spark had half a pair, of which Java made a "?": it lies below all pairs.
        text = text.removesuffix("?") if upper else text
    return text.encode() + b"\xff" if upper else text.encode()  # above all texts that begin so


def _day(value: Any, upper: bool) -> int | None:
    if isinstance(value, str) and len(value) == 10:
        value = dt.date.fromisoformat(value)
    if not isinstance(value, dt.date) or isinstance(value, dt.datetime):
        return None
    day = value.toordinal() - _DAY
    lost = _CUT_CALENDAR if day < _GREGORIAN else 0
    return day + lost if upper else day - lost


def _timestamp(value: Any, zoned: bool, upper: bool) -> int | None:
    if isinstance(value, str):
        if len(value) == 10 and not zoned:  # of a column that was DATE
            time, offset = (dt.date.fromisoformat(value).toordinal() - _DAY) * _DAY_MICROS, None
        else:
            time, offset = parse_timestamp(value)
    elif isinstance(value, dt.datetime):
        aware = value.tzinfo is not None
        moved = value if aware else value.replace(tzinfo=dt.UTC)
        time, offset = (moved - _EPOCH) // dt.timedelta(microseconds=1), 0 if aware else None
    else:
        return None
    if zoned and offset is None:
        return None  # in whose zone nobody says
    if not zoned and offset:
        return None
    time -= offset or 0
    lost = _CUT_MS + (_CUT_ZONE if zoned and time < _WHOLE_MINUTES else 0)
    lost += _CUT_CALENDAR * _DAY_MICROS if time < _GREGORIAN * _DAY_MICROS else 0
    return time + lost if upper else time - lost
