"""What a manifest says of a file's columns: bounds in Iceberg's own bytes, counts of values, NULLs and NaN.

    lower_bounds, upper_bounds   field id -> bytes; texts and bytes are cut to 16 units, the upper one rounded up
    value_counts, null_value_counts, nan_value_counts
                                 field id -> number; NaN lies outside of the bounds

Bytes may be of the type that the column had when the file was written: an int's in a long column. Bounds that
contradict each other tell nothing. Three doubts are met by less trust:

    an upper bound as long as a cut one may not have been rounded up    one above all that begin with it
    Java compares UUIDs as pairs of signed numbers                      the second half may be any
    who takes bounds from a footer passes over row groups without,      bounds of texts count only where a file has one
    which are those with a text of more than 4 KB: pyiceberg (0.12),    row group, or Spark or Flink wrote it by Java's
    and Java's library for files that others wrote (add_files)          library, which then has the row groups' offsets

Source: Iceberg table spec, "Data File Fields" and Appendix D, "Binary single-value serialization".
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from parquet_bloom.tables.iceberg.schema import Column
from parquet_bloom.tables.snapshot import FileBounds, LeafPath

NUMBERS = (
    IntegerType,
    LongType,
    DateType,
    TimeType,
    TimestampType,
    TimestamptzType,
    TimestampNanoType,
    TimestamptzNanoType,
)
TEXTS = (StringType, BinaryType, FixedType)
_WIDTHS: dict[type, tuple[int, ...]] = {  # of the type and of those that it may have been promoted from
    IntegerType: (4,),
    LongType: (4, 8),
    DateType: (4,),
    FloatType: (4,),
    DoubleType: (4, 8),
    BooleanType: (1,),
}
_CUT = 16  # units of a text: what writers cut bounds to unless a table says otherwise


@dataclass(frozen=True, slots=True)
class FileMetrics(Mapping[LeafPath, FileBounds]):
    """What a log says of the leaves of one file; worked out when it is asked for, as queries ask for few.

    file       the manifest's record
    columns    of the table's schema, by leaf
    partition  what the file's partition says
    doubtful   leaves of which nothing is told
    cut        the least number of units that a bound of this table is cut to
    by_java    whether Spark or Flink made the file's snapshot by Java's library
    """

    file: DataFile
    columns: Mapping[LeafPath, Column]
    partition: Mapping[LeafPath, FileBounds]
    doubtful: Collection[LeafPath]
    cut: int
    by_java: bool

    def __getitem__(self, path: LeafPath) -> FileBounds:
        column = self.columns[path]
        found = joined(self._told(column), self.partition.get(path)) if path not in self.doubtful else None
        if found is None:
            raise KeyError(path)
        return found

    def __iter__(self) -> Iterator[LeafPath]:
        return (path for path in self.columns if path in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _told(self, column: Column) -> FileBounds | None:
        file, number = self.file, column.field_id
        lower, upper = (file.lower_bounds or {}).get(number), (file.upper_bounds or {}).get(number)
        nans = (file.nan_value_counts or {}).get(number)
        if lower is None and upper is None and nans is None and number not in (file.null_value_counts or {}):
            return None
        low, high = _interval(lower, upper, column.type, self.cut)
        groups = len(file.split_offsets or ())
        if isinstance(column.type, TEXTS) and groups != 1 and not (self.by_java and groups):
            low, high = None, None
        nulls, values = _counts(file, column)
        return FileBounds(low, high, nulls, values, not column.leaf.float_bits or nans == 0)


def joined(one: FileBounds | None, other: FileBounds | None) -> FileBounds | None:
    """What two sayings of one leaf tell together."""
    if one is None or other is None:
        return one or other
    lows = [b.lower for b in (one, other) if b.lower is not None]
    highs = [b.upper for b in (one, other) if b.upper is not None]
    low, high = ordered(max(lows, default=None), min(highs, default=None))
    nulls = one.null_count if other.null_count is None else other.null_count
    return FileBounds(low, high, nulls, one.has_values and other.has_values, one.nan_free or other.nan_free)


def narrowest_cut(properties: Mapping[str, str]) -> int:
    """The least number of units that a table's properties let writers cut bounds to."""
    found = [_CUT]
    for name, mode in properties.items():
        if name.startswith("write.metadata.metrics.") and mode.lower().startswith("truncate("):
            digits = mode[len("truncate(") : -1].strip()
            found.append(int(digits) if digits.isdigit() else 0)
    return min(found)


def _counts(file: DataFile, column: Column) -> tuple[int | None, bool]:
    """How many NULLs (None: not known), and whether there may be a value.

    Of columns inside others writers count NULLs differently: those around them, and lists without elements, or not.
    """
    number = column.field_id
    nulls = (file.null_value_counts or {}).get(number)
    values = (file.value_counts or {}).get(number, file.record_count)
    if nulls is None or len(column.leaf.path) > 1 or values != file.record_count or not 0 <= nulls <= values:
        return None, True
    told = number in (file.lower_bounds or {}) or number in (file.upper_bounds or {})
    return nulls, nulls < values or told


def _interval(lower: bytes | None, upper: bytes | None, kind: Any, cut: int) -> tuple[Any, Any]:
    low = None if lower is None else place_of(lower, kind)
    high = None if upper is None else place_of(upper, kind)
    if isinstance(kind, UUIDType):
        low = None if low is None else low[:8] + bytes(8)
        high = None if high is None else high[:8] + b"\xff" * 8
    elif high is not None and isinstance(kind, TEXTS) and len(high) >= cut:
        high = after_prefix(high)
    return ordered(low, high)


def ordered(low: Any, high: Any) -> tuple[Any, Any]:
    """Both bounds; neither where they contradict each other."""
    return (None, None) if low is not None and high is not None and low > high else (low, high)


def after_prefix(prefix: bytes) -> bytes | None:
    """Bytes above all that begin with a prefix; None where there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def place_of(data: bytes, kind: PrimitiveType) -> Any:
    """A bound's place in the order of its leaf (formats.bounds.domain_of); None where the bytes are not of the type."""
    if isinstance(kind, DecimalType):
        return int.from_bytes(data, "big", signed=True) if data else None
    if isinstance(kind, UUIDType):
        return bytes(data) if len(data) == 16 else None
    if isinstance(kind, TEXTS):
        return bytes(data)
    if len(data) not in _WIDTHS.get(type(kind), (8,)):
        return None  # a day where a timestamp is due, too
    if isinstance(kind, BooleanType):
        return data[0] if data[0] <= 1 else None
    if isinstance(kind, FloatType | DoubleType):
        (value,) = struct.unpack("<f" if len(data) == 4 else "<d", data)
        return value if value == value else None
    return int.from_bytes(data, "little", signed=True) if isinstance(kind, NUMBERS) else None
