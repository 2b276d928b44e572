"""Delta's statistics of a file's columns: types, partition values and bounds.

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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from parquet_bloom.errors import TableFormatError
from parquet_bloom.source.snapshot import Field, FileBounds, LeafPath
from parquet_bloom.source.truth import LeafTruth
from parquet_bloom.tables.delta.actions import Add

# --- schema ---------------------------------------------------------------------------------------
#
# A Delta table's schema (JSON) as Fields, with column mapping and widened types.
#
# Source: the Delta protocol, "Schema Serialization Format", "Column Mapping" and "Type Widening".

_PLAIN = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(-?\d+)\s*\)")
_PHYSICAL, _ID, _CHANGES = "delta.columnMapping.physicalName", "delta.columnMapping.id", "delta.typeChanges"


@dataclass(frozen=True, slots=True)
class Column:
    """A leaf that statistics may speak of: of structs alone, not of lists and maps.

    path      in the table
    physical  the same in files and statistics
    was_float whether files may hold it as FLOAT, though it is DOUBLE by now
    """

    path: LeafPath
    physical: LeafPath
    type: pa.DataType
    was_float: bool


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a table, its leaves that statistics speak of, its partition columns, and how columns are found."""

    fields: tuple[Field, ...]
    columns: Mapping[LeafPath, Column]
    partition_columns: tuple[Field, ...]
    by_id: bool


def read_schema(table: object, metadata: Mapping[str, Any], mapping: bool = True) -> Schema:
    """The schema of a metaData action.

    mapping  whether the protocol has column mapping; without it the property that asks for one says nothing
    Raises TableFormatError for one that is not understood.
    """
    mode = metadata["configuration"].get("delta.columnMapping.mode", "none") if mapping else "none"
    if mode not in ("none", "name", "id"):
        raise TableFormatError(table, f"its columns are mapped by {mode}, which this version does not know")
    reader = _Reader(mode != "none")
    try:
        fields = reader.struct(json.loads(metadata["schemaString"]), (), ())
        by_name = {field.name: field for field in fields}
        partitions = tuple(by_name[str(name)] for name in metadata.get("partitionColumns") or ())
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise TableFormatError(table, f"its schema is not understood: {error}") from error
    return Schema(fields, {column.path: column for column in reader.columns}, partitions, mode == "id")


class _Reader:
    """Reads one schema; `columns` grows meanwhile."""

    def __init__(self, mapped: bool) -> None:
        self._mapped = mapped
        self.columns: list[Column] = []

    def struct(self, value: Mapping[str, Any], path: LeafPath | None, physical: LeafPath) -> tuple[Field, ...]:
        """The fields of a struct; path None: below a list or map."""
        return tuple(self._field(field, path, physical) for field in value["fields"])

    def _field(self, value: Mapping[str, Any], path: LeafPath | None, physical: LeafPath) -> Field:
        metadata = value.get("metadata") or {}
        name = str(value["name"])
        own = str(metadata[_PHYSICAL]) if self._mapped else name
        below = None if path is None else (*path, name)
        found = self._typed(value["type"], below, (*physical, own))
        changed = [change.get("fromType") for change in metadata.get(_CHANGES) or ()]
        if below is not None and not found.children:
            self.columns.append(Column(below, (*physical, own), found.type, "float" in changed))
        identity = int(metadata[_ID]) if self._mapped and _ID in metadata else None
        nullable = bool(value.get("nullable", True))
        return Field(name, found.type, nullable, identity, own if self._mapped else "", found.children)

    def _typed(self, value: Any, path: LeafPath | None, physical: LeafPath) -> Field:
        """A nameless field with type and children."""
        if isinstance(value, str):
            return Field("", _plain(value))
        kind = value["type"]
        if kind == "struct":
            children = self.struct(value, path, physical)
            return Field("", pa.struct([_arrow(child) for child in children]), children=children)
        if kind == "array":
            element = self._element("element", value["elementType"], bool(value.get("containsNull", True)))
            return Field("", pa.list_(_arrow(element)), children=(element,))
        if kind == "map":
            key = self._element("key", value["keyType"], False)
            item = self._element("value", value["valueType"], bool(value.get("valueContainsNull", True)))
            return Field("", pa.map_(_arrow(key), _arrow(item)), children=(key, item))
        raise ValueError(f"type {kind}")

    def _element(self, name: str, value: Any, nullable: bool) -> Field:
        found = self._typed(value, None, ())
        return Field(name, found.type, nullable, children=found.children)


def _plain(text: str) -> pa.DataType:
    if text in _PLAIN:
        return _PLAIN[text]
    decimal = _DECIMAL.fullmatch(text)
    if decimal is None:
        raise ValueError(f"type {text}")
    precision, scale = int(decimal[1]), int(decimal[2])
    if not 0 <= scale <= precision:
        raise ValueError(f"{text}: a scale lies between 0 and the precision")
    return pa.decimal128(precision, scale)


def _arrow(field: Field) -> pa.Field:
    return pa.field(field.name, field.type, field.nullable)


# --- partition values -----------------------------------------------------------------------------
#
# Partition values of a Delta log: texts that become values of the column's type.
#
# Source: the Delta protocol, "Partition Value Serialization".

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)")
_TIMESTAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:?\d\d)?")
_ESCAPED = re.compile(r"(?:\\u00[0-9A-Fa-f]{2})+")
_CLOCK_EPOCH = dt.datetime(1970, 1, 1)


def constants_of(table: object, schema: Schema, add: Add) -> dict[str, pa.Scalar]:
    """The value of each partition column in a file, of the field's type. '' is NULL, as null is.

    Raises TableFormatError where the log has none, or one that is no value of the type: rows must not get another.
    """
    found = {}
    for field in schema.partition_columns:
        name, key = field.name, field.physical or field.name
        if key not in add.values:
            raise TableFormatError(table, f"its log has no value of the partition column {name} for {add.path}")
        text = add.values[key]
        try:
            found[name] = pa.scalar(None, field.type) if not text else _value(text, field.type)
        except (ValueError, ArithmeticError, pa.ArrowException) as error:
            reason = f"its log has {text!r} in the partition column {name}, which is no value of {field.type}"
            raise TableFormatError(table, reason) from error
    return found


@lru_cache(maxsize=1024)  # many files have the same
def _value(text: str, kind: pa.DataType) -> pa.Scalar:
    for fits, read in _READ:
        if fits(kind):
            return pa.scalar(read(text), kind)
    if pa.types.is_timestamp(kind):
        return pa.scalar(_microseconds(text, kind.tz is not None), kind)
    raise ValueError(f"no partition column has type {kind}")


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _date(text: str) -> dt.date:
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return dt.date(int(found[1]), int(found[2]), int(found[3]))


def _binary(text: str) -> bytes:
    r"""All bytes as \u00ff, which is the protocol's form and deltalake's; or plain ASCII, as Spark has it.

    What is neither may be Spark's, which takes bytes for UTF-8, or of somebody who escapes some bytes.
    """
    if _ESCAPED.fullmatch(text) is not None:
        return bytes.fromhex(text.replace("\\u00", ""))
    if not text.isascii() or "\\" in text:
        raise ValueError("writers do not agree on these bytes")
    return text.encode()


def _integer_of(text: str) -> int:
    if re.fullmatch(r"[+-]?\d+", text, re.ASCII) is None:
        raise ValueError(text)
    return int(text)


def _float_of(text: str) -> float:
    if "_" in text or text != text.strip():
        raise ValueError(text)
    return float(text)  # NaN, Infinity and -Infinity too


_READ: list[tuple[Callable[[pa.DataType], bool], Callable[[str], object]]] = [
    (pa.types.is_string, str),
    (pa.types.is_integer, _integer_of),
    (pa.types.is_floating, _float_of),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_date, _date),
    (pa.types.is_decimal, Decimal),
    (pa.types.is_binary, _binary),
]


def _microseconds(text: str, zoned: bool) -> int:
    """Since 1970; of a text without a zone, and for a type without one, as it stands: in UTC."""
    if day := _DATE.fullmatch(text):  # of a column that was DATE
        return (dt.datetime(int(day[1]), int(day[2]), int(day[3])) - _CLOCK_EPOCH) // dt.timedelta(microseconds=1)
    value, offset = parse_timestamp(text)
    return value - (offset or 0 if zoned else 0)


def parse_timestamp(text: str) -> tuple[int, int | None]:
    """(microseconds since 1970 as the clock shows them, offset of its zone in microseconds; None: it names none).

    Digits after the sixth are cut off. Raises ValueError.
    """
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError(text)
    seconds = dt.datetime(*(int(found[i]) for i in range(1, 7))) - _CLOCK_EPOCH  # type: ignore[arg-type]
    value = seconds // dt.timedelta(microseconds=1) + int((found[7] or "").ljust(6, "0")[:6])
    zone = found[8]
    if zone is None or zone == "Z":
        return value, None if zone is None else 0
    sign = -1 if zone[0] == "-" else 1
    return value, sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60) * 10**6


# --- statistics -----------------------------------------------------------------------------------

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
    # As most writers begin; large tables have many files. A key that is there twice counts where it is last.
    text = add.stats
    first = _ROWS.match(text) if isinstance(text, str) and text.count("numRecords") == 1 else None
    return int(first[1]) if first is not None else _count(_statistics(add).get("numRecords"))


def _statistics(add: Add) -> Mapping[str, Any]:
    """The statistics of a file; empty where there are none that can be read."""
    text: object = add.stats  # a line of JSON may have anything there
    if text is not None:
        return _decoded(text) if isinstance(text, str) else {}
    return add.parsed if isinstance(add.parsed, Mapping) else {}


_DECODER = json.JSONDecoder(parse_float=Decimal)  # made once: that takes longer than most texts


# A file is asked for several leaves in a row; all files' statistics at once would be much memory.
@lru_cache(maxsize=16)
def _decoded(text: str) -> Mapping[str, Any]:
    try:
        told = _DECODER.decode(text)
    except (ValueError, RecursionError, ArithmeticError):
        return {}
    return told if isinstance(told, dict) else {}


class Bounds(Mapping[LeafPath, FileBounds]):
    """The bounds of one file's leaves, read on each use."""

    def __init__(self, schema: Schema, add: Add, believed: bool = True) -> None:
        """believed: without what is in doubt."""
        self._schema = schema
        self._add = add
        self._believed = believed

    def _find(self, path: LeafPath) -> FileBounds | None:
        column = self._schema.columns.get(path)
        return (
            None
            if column is None
            else _bounds(column, _statistics(self._add), self._add.vector is None, self._believed)
        )

    def __getitem__(self, path: LeafPath) -> FileBounds:
        found = self._find(path)
        if found is None:
            raise KeyError(path)
        return found

    def __iter__(self) -> Iterator[LeafPath]:
        return (path for path in self._schema.columns if self._find(path) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _bounds(column: Column, told: Mapping[str, Any], whole: bool, believed: bool = True) -> FileBounds | None:
    """The bounds of one column. whole: no row of the file is deleted; believed: without what is in doubt."""
    rows = _count(told.get("numRecords"))
    tight = whole and told.get("tightBounds") in (None, True)
    raw = [_at(told.get(name), column.physical) for name in ("minValues", "maxValues")]
    lower, upper = _bound(raw[0], column, False), _bound(raw[1], column, True)
    unread = not believed and raw != [None, None] and None in (lower, upper)
    nulls = _count(_at(told.get("nullCount"), column.physical))
    if believed and nulls is not None and (rows is None or nulls > rows):
        nulls = None
    if believed and lower is not None and upper is not None and lower > upper:
        lower = upper = None
    all_null = nulls is not None and nulls == rows and lower is None and upper is None
    # pyarrow leaves NULLs of a struct around texts in a dictionary out of its count, and others took that.
    nested = len(column.path) > 1 and (pa.types.is_string(column.type) or pa.types.is_binary(column.type))
    exact = nulls if not (nested and believed) and (tight or nulls == 0) else None
    if lower is None and upper is None and exact is None and not all_null and not unread:
        return None
    return FileBounds(lower, upper, exact, not all_null, False, unread)


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


# --- true statistics as Delta writes them ---------------------------------------------------------


def mended(add: Add, schema: Schema, truth: Mapping[LeafPath, LeafTruth]) -> Add:
    """An add action whose statistics of some leaves are the true ones; what it does not state stays unsaid.

    Bounds that JSON cannot say exactly are left out, as are those of binary columns.
    """
    if add.stats is None or not _statistics(add):
        return add
    told = json.loads(add.stats, parse_float=Decimal)  # not _statistics, which others share
    for path, true in truth.items():
        column = schema.columns.get(path)
        if column is None:
            continue
        for name, bound in zip(("minValues", "maxValues"), true.bounds, strict=True):
            _put(told.get(name), column.physical, None if bound is None else _spelled(bound, column.type))
        if true.nulls is not None:
            _put(told.get("nullCount"), column.physical, true.nulls)
    try:
        return replace(add, stats=_json(told))
    except RecursionError:
        return replace(add, stats=None)


def _put(group: Any, path: LeafPath, value: Any) -> None:
    """Set a value where there is one; None takes it out."""
    *above, name = path
    group = _at(group, tuple(above))
    if isinstance(group, dict) and name in group:
        if value is None:
            del group[name]
        else:
            group[name] = value


def _spelled(place: Any, kind: pa.DataType) -> Any:
    """A position in a leaf's order as JSON has it; None where that is not exact."""
    try:
        if pa.types.is_boolean(kind):
            return bool(place)
        if pa.types.is_integer(kind):
            return int(place)
        if pa.types.is_floating(kind):
            return float(place) if math.isfinite(place) else None
        if pa.types.is_decimal(kind):
            return Decimal(f"{place}E{-kind.scale}")
        if pa.types.is_string(kind):
            return bytes(place).decode()
        if pa.types.is_date(kind):
            return (dt.date(1970, 1, 1) + dt.timedelta(days=place)).isoformat()
        if pa.types.is_timestamp(kind):
            text = (_CLOCK_EPOCH + dt.timedelta(microseconds=place)).isoformat(timespec="microseconds")
            return text + ("Z" if kind.tz is not None else "")
    except (OverflowError, UnicodeDecodeError):  # a year that Python does not know, bytes that are no text
        return None
    return None


def _json(value: Any) -> str:
    """JSON, with the digits that numbers have."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)
