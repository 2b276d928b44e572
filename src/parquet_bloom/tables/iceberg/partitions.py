"""What a file's partition says of its rows, by the transforms of the spec that it was written under.

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
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
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
from pyiceberg.types import DateType, IntegerType, LongType

from parquet_bloom.formats.metadata.schema import Leaf
from parquet_bloom.formats.operands import Operand
from parquet_bloom.tables.iceberg.bounds import TEXTS, after_prefix, joined
from parquet_bloom.tables.iceberg.schema import Column, arrow_type
from parquet_bloom.tables.snapshot import FileBounds, LeafPath

_MOST = (1 << 31) - 1, (1 << 63) - 1  # of an int and of a long
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class HashBucket:
    """A partition value of bucket[count]: what the hash of each value gives modulo count."""

    path: LeafPath
    count: int
    number: int

    def admits(self, leaf: Leaf, operand: Operand) -> bool:
        """Whether a row may equal the literal; True too where that cannot be told."""
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
    """What a partition says: values of whole top-level columns, bounds and buckets of leaves.

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
    """What the partition values of a file say, in the order of its spec's fields.

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
        both = joined(told.bounds.get(path), _bounds(part, value, column, rows))
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
