"""A DuckLake catalog's evidence on one file before it is opened: statistics and partition values.

    ducklake_file_column_stats     id   value_count 1000, null_count 0, min '0', max '999', contains_nan NULL
    ducklake_file_partition_value  0    'north'      identity of region: a constant
                                   1    '2026'       year(at), month(at) '1', ...: bounds of `at`
                                   2    '3'          bucket(7, id): rows whose id has another hash are elsewhere

Traps. Counts are both 0 where the writer did not count. The bounds of a FLOAT are as short as reads back as FLOAT, so
they are none of the DOUBLE that the column became. NaN lies outside of bounds. month() is 1 to 12 of any year. Texts
that are too long, and those with a zero byte, have no bounds.

Source: the DuckLake 1.0 specification; hashes as Iceberg's, Appendix B, measured with DuckDB 1.5.5.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mmh3
import pyarrow as pa

from parquet_bloom.format.literals import Instant, Literal, day_number
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.values import Operand, operand
from parquet_bloom.source.snapshot import FileBounds, LeafPath
from parquet_bloom.tables.ducklake.columns import SIGNED, Column, Columns, literal_of, scalar_of, whole

_DAY_NS = 86_400 * 10**9
_BUCKET = re.compile(r"bucket\(([1-9]\d{0,9})\)", re.A)
_PARTS = ("year", "month", "day", "hour")
_CONSTANTS = frozenset(("boolean", "varchar", "date", "timestamp", "timestamp_s", "timestamp_ms", "timestamp_ns"))


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """A row of ducklake_file_column_stats."""

    column_id: int
    value_count: int | None
    null_count: int | None
    lower: str | None
    upper: str | None
    contains_nan: object  # as the database has it


@dataclass(frozen=True, slots=True)
class PartitionValue:
    """The value that all rows of a file have in one term of its partitioning; None: NULL."""

    column_id: int
    transform: str
    value: str | None


def bounds_of(
    statistics: Sequence[ColumnStatistics], columns: Columns, leaves: Mapping[LeafPath, Leaf], rows: int
) -> dict[LeafPath, FileBounds]:
    """The bounds of one file's leaves, as far as they are sure.

    rows  that the file stores
    """
    found = {}
    for one in statistics:
        path, column = columns.leaves.get(one.column_id), columns.by_id.get(one.column_id)
        if path is not None and column is not None:
            found[path] = _bounds(one, column, leaves[path], rows)
    return found


def stated_bounds(one: ColumnStatistics, column: Column, leaf: Leaf) -> FileBounds:
    """The statistics of a file's column that the catalog states, believed or not."""
    lower, upper = _interval(one, column, leaf)
    counted = one.null_count is not None and bool(one.null_count or one.value_count)
    unread = (one.lower, one.upper) != (None, None) and None in (lower, upper)
    return FileBounds(lower, upper, one.null_count if counted else None, True, one.contains_nan == 0, unread)


def _interval(one: ColumnStatistics, column: Column, leaf: Leaf) -> tuple[Any, Any]:
    if not column.comparable:
        return None, None
    lower, upper = place_of(one.lower, column, leaf), place_of(one.upper, column, leaf)
    return None if lower is None else lower.lower, None if upper is None else upper.upper


def _bounds(one: ColumnStatistics, column: Column, leaf: Leaf, rows: int) -> FileBounds:
    lower, upper = _interval(one, column, leaf)
    if lower is not None and upper is not None and lower > upper:
        lower = upper = None
    counted = one.null_count is not None and one.value_count is not None and not leaf.repeated
    nulls = one.null_count if counted and one.null_count + one.value_count == rows else None  # type: ignore[operator]
    return FileBounds(lower, upper, nulls, not (nulls == rows and rows > 0), one.contains_nan == 0)


def place_of(text: str | None, column: Column, leaf: Leaf) -> Operand | None:
    """The position of a text in the order of a leaf; None where that is not sure."""
    value = literal_of(text, column.type) if text is not None else None
    return _known(value, leaf)


def _known(value: Literal, leaf: Leaf) -> Operand | None:
    found = operand(value, leaf) if value is not None else None
    return found if found is not None and found.known else None


# --- partitions -------------------------------------------------------------------------------


def constants_of(values: Sequence[PartitionValue], columns: Columns) -> dict[str, pa.Scalar]:
    """The top-level columns of which every row of a file has one value. Files have these columns too."""
    found = {}
    for one in values:
        column = columns.by_id.get(one.column_id)
        if column is None or column.parent is not None or one.transform != "identity" or not column.comparable:
            continue
        sure = column.exact or column.type in _CONSTANTS  # of floats, -0.0 and NaN have several texts
        value = scalar_of(one.value, column.type, _type_of(columns, column)) if sure else None
        if value is not None:
            found[column.name] = value
    return found


def _type_of(columns: Columns, column: Column) -> pa.DataType:
    return next(field.type for field in columns.fields if field.field_id == column.id)


def ranges_of(
    values: Sequence[PartitionValue], columns: Columns, leaves: Mapping[LeafPath, Leaf]
) -> dict[LeafPath, FileBounds]:
    """The bounds that year, and month, day and hour below it, give to days and to clock readings without a zone."""
    parts: dict[int, dict[str, str]] = {}
    for one in values:
        if one.transform in _PARTS and one.value is not None:
            parts.setdefault(one.column_id, {})[one.transform] = one.value
    found = {}
    for column_id, texts in parts.items():
        path, column = columns.leaves.get(column_id), columns.by_id.get(column_id)
        if path is None or column is None or not column.comparable:
            continue
        span = _span(texts)
        if span is not None:
            first, last = (_known(_moment(at, column.type), leaves[path]) for at in span)
            if first is not None and last is not None:
                found[path] = FileBounds(first.lower, last.lower)
    return found


def _span(texts: Mapping[str, str]) -> tuple[int, int] | None:
    """The first and the last nanosecond since 1970 of a year, or of a month, day or hour of it."""
    numbers: list[int] = []
    for part in _PARTS:
        number = whole(texts[part]) if part in texts else None
        if number is None:
            break
        numbers.append(number)
    try:
        if not numbers or (len(numbers) == 4 and not 0 <= numbers[3] < 24):
            return None
        year, month, day = [*numbers[:3], 1, 1][:3]
        start = dt.date(year, month, day)
        if len(numbers) == 1:
            stop = dt.date(start.year + 1, 1, 1)
        elif len(numbers) == 2:
            stop = dt.date(start.year + start.month // 12, start.month % 12 + 1, 1)
        else:
            stop = start + dt.timedelta(days=1)
        first, last = day_number(start) * _DAY_NS, day_number(stop) * _DAY_NS - 1
        if len(numbers) == 4:
            first += numbers[3] * _DAY_NS // 24
            last = first + _DAY_NS // 24 - 1
        return first, last
    except (ValueError, OverflowError):
        return None


def _moment(nanoseconds: int, kind: str) -> Literal:
    """A day, or a reading without a zone: it has no place among zoned times, whose year was the writing session's."""
    if kind == "date":
        return dt.date(1970, 1, 1) + dt.timedelta(days=nanoseconds // _DAY_NS)
    return Instant(nanoseconds, utc=False)


@dataclass(frozen=True, slots=True)
class HashBucket:
    """bucket(n, column): all rows of a file have one remainder of their hash, or a NULL.

    text    whether values are texts, else signed integers or days
    bucket  None: every row is NULL
    """

    path: LeafPath
    count: int
    text: bool
    bucket: int | None

    def admits(self, leaf: Leaf, operand: Operand) -> bool:
        """Whether a row may equal the literal; True too where that is unknown."""
        value = operand.lower
        if not operand.known or value != operand.upper:
            return True
        if self.text:
            if not isinstance(value, bytes):
                return True
            data = value
        elif isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            data = struct.pack("<q", value)
        else:
            return True
        return self.bucket is not None and (mmh3.hash(data) & 0x7FFFFFFF) % self.count == self.bucket


def buckets_of(values: Sequence[PartitionValue], columns: Columns) -> tuple[HashBucket, ...]:
    """The buckets of one file, of columns whose hash is known."""
    found = []
    for one in values:
        path, column = columns.leaves.get(one.column_id), columns.by_id.get(one.column_id)
        count = _BUCKET.fullmatch(one.transform)
        bucket = whole(one.value) if one.value is not None else None
        if path is None or column is None or count is None or (bucket is None and one.value is not None):
            continue
        text = column.types == {"varchar"}
        if text or column.types == {"date"} or column.types <= SIGNED:
            found.append(HashBucket(path, int(count[1]), text, bucket))
    return tuple(found)
