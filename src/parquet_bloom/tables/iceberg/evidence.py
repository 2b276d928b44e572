"""The evidence of Iceberg's manifests on a file's columns: partition values and bounds.

    identity               the one value of all rows
    truncate[W]            numbers from v to v + W - 1; texts and bytes that begin with v
    year month day hour    instants of a span of time
    bucket[N]              the hash of each value, modulo N
    NULL                   all rows are NULL, where the log's count of NULLs says so too; void says nothing

pyiceberg's `add_files` gives a file without statistics the partition NULL, whatever its rows are (0.12).
Source: Iceberg table spec, "Partition Transforms" and Appendix B, "32-bit Hash Requirements".
"""

from __future__ import annotations

import datetime as dt
import struct
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from parquet_bloom.format.repairs import plain_bound
from parquet_bloom.format.schema import Leaf
from parquet_bloom.format.values import Operand
from parquet_bloom.source.snapshot import FileBounds, LeafPath, TableFile
from parquet_bloom.source.truth import LeafTruth
from parquet_bloom.tables.iceberg.schema import Column, arrow_type

# --- bounds ---------------------------------------------------------------------------------------
#
# What a manifest says of a file's columns: bounds in Iceberg's own bytes, counts of values, NULLs and NaN.
#
#    lower_bounds, upper_bounds   field id -> bytes; texts and bytes are cut to 16 units, the upper one rounded up
#    value_counts, null_value_counts, nan_value_counts
#                                 field id -> number; NaN lies outside of the bounds
#
# Bytes may be of the type that the column had when the file was written: an int's in a long column. Bounds that
# contradict each other tell nothing. Three doubts are met by less trust:
#
#    an upper bound as long as a cut one may not have been rounded up    one above all that begin with it
#    Java compares UUIDs as pairs of signed numbers                      the second half may be any
#    who takes bounds from a footer passes over row groups without,      bounds of texts count only where a file has one
#    which are those with a text of more than 4 KB: pyiceberg (0.12),    row group, or Spark or Flink wrote it by Java's
#    and Java's library for files that others wrote (add_files)          library, which then has the row groups' offsets
#
# Source: Iceberg table spec, "Data File Fields" and Appendix D, "Binary single-value serialization".

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
    """A log's bounds of the leaves of one file; decoded on use, as queries need few.

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
        found = intersection(self._leaf_bounds(column), self.partition.get(path)) if path not in self.doubtful else None
        if found is None:
            raise KeyError(path)
        return found

    def __iter__(self) -> Iterator[LeafPath]:
        return (path for path in self.columns if path in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _leaf_bounds(self, column: Column) -> FileBounds | None:
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


def intersection(one: FileBounds | None, other: FileBounds | None) -> FileBounds | None:
    """The intersection of two bounds of one leaf."""
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


def place_of(data: bytes, kind: IcebergType) -> Any:
    """A bound's place in its leaf's order (format.statistics.domain_of); None where the bytes are not of the type."""
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


# --- true metrics ---------------------------------------------------------------------------------
#
# All that a manifest states, whoever believes it; and the same, written anew from the stored values. UUIDs have no
# bounds there: Java and others do not compare them alike.

_NULLS, _NANS, _LOWER, _UPPER = 8, 9, 10, 11  # positions in a DataFile


def stated_metrics(file: TableFile) -> dict[LeafPath, FileBounds]:
    """The metrics of a file's columns in its manifest, without partition values and doubts."""
    metrics = file.bounds
    if not isinstance(metrics, FileMetrics):
        return {}
    data, found = metrics.file, {}
    for path, column in metrics.columns.items():
        number = column.field_id
        raw = (data.lower_bounds or {}).get(number), (data.upper_bounds or {}).get(number)
        kind = None if isinstance(column.type, UUIDType) else column.type
        low, high = (None if one is None or kind is None else place_of(one, kind) for one in raw)
        nans, nulls = (data.nan_value_counts or {}).get(number), (data.null_value_counts or {}).get(number)
        if nulls is not None or nans is not None or raw != (None, None):
            unread = raw != (None, None) and None in (low, high)
            found[path] = FileBounds(low, high, nulls, True, bool(column.leaf.float_bits) and nans == 0, unread)
    return found


def true_metrics(file: TableFile, truth: Mapping[LeafPath, LeafTruth]) -> dict[int, dict[int, Any]]:
    """The metrics of a manifest's record that change, by their position in it; what it does not state stays unsaid."""
    metrics = file.bounds
    if not truth or not isinstance(metrics, FileMetrics):
        return {}
    data = metrics.file
    found: dict[int, dict[int, Any]] = {
        at: dict(old)
        for at, old in (
            (_NULLS, data.null_value_counts),
            (_NANS, data.nan_value_counts),
            (_LOWER, data.lower_bounds),
            (_UPPER, data.upper_bounds),
        )
        if old is not None
    }
    for path, true in truth.items():
        column = metrics.columns.get(path)
        if column is None:
            continue
        low, high = (_bytes_of(one, column, is_low) for one, is_low in zip(true.bounds, (True, False), strict=True))
        for at, value in ((_NULLS, true.nulls), (_NANS, true.nans), (_LOWER, low), (_UPPER, high)):
            metric = found.get(at, {})
            if column.field_id not in metric or (at == _NULLS and value is None):
                continue
            metric[column.field_id] = value
            if value is None:
                del metric[column.field_id]
    return found


def _bytes_of(place: Any, column: Column, is_low: bool) -> bytes | None:
    """A bound as a manifest has it; None where there is none, or that is not sure."""
    if place is None or isinstance(column.type, UUIDType):
        return None
    if isinstance(column.type, DecimalType):
        return int(place).to_bytes((place if place >= 0 else ~place).bit_length() // 8 + 1, "big", signed=True)
    return plain_bound(place, column.leaf, is_low)


# --- partitions -----------------------------------------------------------------------------------

_MOST = (1 << 31) - 1, (1 << 63) - 1  # of an int and of a long
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class HashBucket:
    """A partition value of bucket[count]: what the hash of each value gives modulo count."""

    path: LeafPath
    count: int
    number: int

    def admits(self, leaf: Leaf, operand: Operand) -> bool:
        """Whether a row may equal the literal; True too where that is unknown."""
        if not operand.known or operand.lower != operand.upper:
            return True
        data = _hashed(operand.lower, leaf)
        return data is None or (mmh3.hash(data) & 0x7FFFFFFF) % self.count == self.number


def _hashed(place: Any, leaf: Leaf) -> bytes | None:
    """The bytes that a value's hash is of; None where that is not sure."""
    if isinstance(place, bytes):
        return place
    if not isinstance(place, int):
        return None
    if leaf.logical == "DECIMAL":
        return place.to_bytes((place if place >= 0 else ~place).bit_length() // 8 + 1, "big", signed=True)
    if leaf.unit_ns:
        place *= leaf.unit_ns
        if place < 0 and place % 1000:  # nanoseconds count as microseconds; writers round to one side or the other
            return None
        place //= 1000
    return place.to_bytes(8, "little", signed=True) if -(1 << 63) <= place < 1 << 63 else None


@dataclass(frozen=True, slots=True)
class PartitionEvidence:
    """The evidence of a partition: values of whole top-level columns, bounds and buckets of leaves.

    doubtful  leaves of which the log contradicts itself, or leaves open whether it does: only the file tells
    """

    constants: dict[str, pa.Scalar] = field(default_factory=dict)
    bounds: dict[LeafPath, FileBounds] = field(default_factory=dict)
    buckets: list[HashBucket] = field(default_factory=list)
    doubtful: set[LeafPath] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a partition spec.

    source  the field id of its column
    kind    of transform; one that this version does not know says nothing
    number  the width of a truncation, the count of buckets
    """

    source: int
    kind: type
    number: int = 0


def parts_of(spec: PartitionSpec) -> tuple[Part, ...]:
    """The fields of a spec, in its order."""
    found = []
    for part in spec.fields:
        how, number = part.transform, 0
        if isinstance(how, TruncateTransform):
            number = how.width
        elif isinstance(how, BucketTransform):
            number = how.num_buckets
        found.append(Part(part.source_id, type(how), number))
    return tuple(found)


def evidence_of(
    parts: tuple[Part, ...],
    values: tuple[Any, ...],
    columns: Mapping[int, Column],
    rows: int,
    nulls: Mapping[int, int],
) -> PartitionEvidence:
    """The evidence of a file's partition values, in the order of its spec's fields.

    nulls  field id -> how many the log counts in the file
    """
    told = PartitionEvidence()
    if len(values) != len(parts):
        return told
    for part, value in zip(parts, values, strict=True):
        column = columns.get(part.source)
        if column is None or column.leaf.repeated or part.kind not in _TELLING:
            continue
        path = column.leaf.path
        if part.kind is IdentityTransform and len(path) == 1:
            told.constants[column.top] = constant_of(value, column.type)
        if value is None and nulls.get(part.source) != rows:
            told.doubtful.add(path)
            continue
        if column.doubtful:
            continue
        if part.kind is BucketTransform and value is not None:
            told.buckets.append(HashBucket(path, part.number, value))
        both = intersection(told.bounds.get(path), _bounds(part, value, column, rows))
        if both is not None:
            told.bounds[path] = both
    return told


def _bounds(part: Part, value: Any, column: Column, rows: int) -> FileBounds | None:
    if value is None:
        return FileBounds(null_count=rows, has_values=False, nan_free=True)
    if part.kind is IdentityTransform:
        return _one_value(value, column)
    if part.kind is TruncateTransform:
        return FileBounds(*_truncated(value, part.number, column))
    if part.kind is BucketTransform:
        return None
    return FileBounds(*_span(number_of(value), _SPANS[part.kind], column))


# --- values ---------------------------------------------------------------------------------------


def number_of(value: Any) -> int:
    """A partition value that counts days or the like; some readers make a date of it."""
    return (value - dt.date(1970, 1, 1)).days if isinstance(value, dt.date) else int(value)


def constant_of(value: Any, kind: Any) -> pa.Scalar:
    """A partition value, as manifests have it, as a scalar of the field's type."""
    to = arrow_type(kind)
    if value is None:
        return pa.scalar(None, to)
    if pa.types.is_temporal(to) and isinstance(value, int):
        return pa.scalar(value, pa.int32() if to.bit_width == 32 else pa.int64()).cast(to)
    if isinstance(value, uuid.UUID):
        return pa.scalar(value.bytes, to)
    return pa.scalar(value, to)


def _place(value: Any, column: Column) -> Any:
    """A partition value's place in its leaf's order; None where it has none."""
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        if not isinstance(exponent, int) or column.leaf.scale + exponent < 0:
            return None
        unscaled = int("".join(map(str, digits))) * 10 ** (column.leaf.scale + exponent)
        return -unscaled if sign else unscaled
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, dt.date):
        return number_of(value)
    if isinstance(value, float):
        return value if value == value else None
    return int(value) if isinstance(value, bool | int) else bytes(value)


def _one_value(value: Any, column: Column) -> FileBounds:
    place = _place(value, column)
    if place is None:
        return FileBounds()
    if column.leaf.float_bits:
        place = float(place)
    return FileBounds(place, place, nan_free=True, null_count=0 if len(column.leaf.path) == 1 else None)


def _truncated(value: Any, width: int, column: Column) -> tuple[Any, Any]:
    place = _place(value, column)
    if place is None:
        return None, None
    if isinstance(column.type, TEXTS):
        # Shorter than the width in bytes, it is shorter in whatever unit its writer counted: nothing was cut.
        return place, place if len(place) < width else after_prefix(place)
    last = place + width - 1
    if isinstance(column.type, IntegerType | LongType) and any(place <= most < last for most in _MOST):
        return None, None  # perhaps the lowest numbers, whose truncation runs over into the highest
    return place, last


# --- spans of time --------------------------------------------------------------------------------


def _days(unit: str) -> Callable[[int], int]:
    return lambda number: int(np.array(number).astype(f"datetime64[{unit}]").astype("datetime64[D]").astype(np.int64))


_SPANS: dict[type, tuple[str, Callable[[int], int]]] = {
    YearTransform: ("days", _days("Y")),
    MonthTransform: ("days", _days("M")),
    DayTransform: ("days", lambda number: number),
    HourTransform: ("hours", lambda number: number),
}


def _span(number: int, span: tuple[str, Callable[[int], int]], column: Column) -> tuple[Any, Any]:
    """The first and last instant of a span, in the leaf's units.

    Writers of old rounded spans before 1970 up instead of down, so these may hold rows of the span before.
    """
    unit, start = span
    low, high = start(number if number > 0 else number - 1), start(number + 1)
    if isinstance(column.type, DateType):
        return (low, high - 1) if unit == "days" else (None, None)
    if not column.leaf.unit_ns:
        return None, None
    scale = _DAY_US * 1000 // column.leaf.unit_ns
    if unit == "hours":
        scale //= 24
    return low * scale, high * scale - 1


_TELLING = {IdentityTransform, TruncateTransform, BucketTransform, *_SPANS}
