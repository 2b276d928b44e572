"""Types: Arrow's as Spark has them, the schema of files, and of folders' names.

    uint32 -> bigint        timestamp[ns] -> timestamp, cut off to microseconds (floored)
    float16 -> float        dictionary<string> -> string        time64[us], uuid -> none

A type that Spark cannot hold is an error that names the column. A file's column is only turned
into a type that holds every value of it: never double to float, never bigint to int.
Sources: pyspark.sql.pandas.types.to_arrow_schema; Spark's documentation, "Parquet Files".
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as st
from pyspark.sql.pandas.types import from_arrow_type

from parquet_bloom.errors import (
    DamagedFileError,
    RequestError,
    StorageError,
    first_line,
    parameter,
)
from parquet_bloom.format.arrow_types import (
    are_alike,
    fields_of,
    has_any_length,
    is_bytes,
    is_list,
    is_text,
    map_nested,
    with_fields,
)
from parquet_bloom.format.literals import read_date
from parquet_bloom.format.schema import INT96, unknown_column
from parquet_bloom.spark.source.units import PartialListing, first_file, no_files
from parquet_bloom.spark.storages import Storages
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile, Partitions
from parquet_bloom.storage.remote import side_by_side

INT96_UNIT = "us"  # Spark's, which has all its years
_T = pa.types
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # of the longest integer of so many bits
# By hand: pyspark's to_arrow_type knows times, intervals and variants too, which are not read from Parquet here.
_FLAT = {
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.BinaryType: pa.binary(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", "UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
    st.NullType: pa.null(),
}


_ONE_FOR_ALL = (  # kinds of types that Spark has one of
    (is_text, pa.string()),
    (is_bytes, pa.binary()),
    (_T.is_date, pa.date32()),
    (_T.is_float64, pa.float64()),
    (_T.is_floating, pa.float32()),
    (_T.is_duration, pa.int64()),  # Parquet has no such type: it is a plain INT64
)


class TypeMisfitError(Exception):
    """A type has no place in the other; the message says why."""


# --- Arrow -> Spark -------------------------------------------------------------------------------
#
# The type in which Spark gets a column of a file.


def compatible(kind: pa.DataType) -> pa.DataType:
    """The type in which Spark gets a column; all that is nested may be NULL. Raises TypeMisfitError."""
    kind = _plain(kind)
    if _T.is_unsigned_integer(kind):
        return pa.decimal128(20, 0) if kind.bit_width == 64 else getattr(pa, f"int{2 * kind.bit_width}")()
    if _T.is_decimal(kind):
        if not 0 <= kind.scale <= kind.precision <= 38:
            raise TypeMisfitError("Spark's decimals have at most 38 digits, and a scale from 0 to their precision")
        return pa.decimal128(kind.precision, kind.scale)
    for is_one, in_spark in _ONE_FOR_ALL:
        if is_one(kind):
            return in_spark
    if _T.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    if _T.is_boolean(kind) or _T.is_integer(kind) or _T.is_null(kind):
        return kind
    if is_list(kind):
        return pa.list_(pa.field("element", compatible(kind.value_type)))
    if _T.is_map(kind):
        return pa.map_(
            pa.field("key", compatible(kind.key_type), nullable=False), pa.field("value", compatible(kind.item_type))
        )
    if _T.is_struct(kind):
        return pa.struct([pa.field(field.name, compatible(field.type)) for field in kind])
    raise TypeMisfitError("Spark has no such type")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Without dictionaries and the marks of JSON."""
    if _T.is_dictionary(kind):
        return _plain(kind.value_type)
    if isinstance(kind, pa.JsonType):
        return _plain(kind.storage_type)
    return kind


def compatible_schema(schema: pa.Schema, where: object) -> pa.Schema:
    """A file's schema as Spark gets it.

    Raises RequestError that names the column, for a type that Spark cannot hold and for two columns
    of one name.
    """
    fields = []
    for field in schema:
        if schema.names.count(field.name) > 1:
            raise RequestError(f"{where}: two columns are named {field.name}")
        try:
            fields.append(pa.field(field.name, compatible(field.type)))
        except TypeMisfitError as error:
            why = f"{where}: column {field.name} is {field.type}: {error}; leave it out: "
            raise RequestError(why + parameter("columns") + " takes the names of the others") from None
    return pa.schema(fields)


def spark_schema(schema: pa.Schema) -> st.StructType:
    """Spark's type for the rows of a schema of types that `compatible` gave; all columns may be NULL."""
    return st.StructType([st.StructField(one.name, from_arrow_type(one.type, True)) for one in schema])


# --- Spark -> Arrow -------------------------------------------------------------------------------
#
# The type in which Spark wants the batches of a schema.


def arrow_schema(schema: st.StructType) -> pa.Schema:
    """The Arrow schema that Spark wants batches in. Raises RequestError that names the column."""
    fields = []
    for field in schema:
        try:
            fields.append(pa.field(field.name, _arrow_type(field.dataType), field.nullable))
        except TypeMisfitError as error:
            raise RequestError(
                f"column {field.name} of the schema is {error}, which is not read from Parquet"
            ) from None
    return pa.schema(fields)


def _arrow_type(kind: st.DataType) -> pa.DataType:
    if isinstance(kind, st.StringType) and kind.isUTF8BinaryCollation():
        return pa.string()
    if isinstance(kind, st.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, st.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(kind.elementType), kind.containsNull))
    if isinstance(kind, st.MapType):
        key = pa.field("key", _arrow_type(kind.keyType), nullable=False)
        return pa.map_(key, pa.field("value", _arrow_type(kind.valueType), kind.valueContainsNull))
    if isinstance(kind, st.StructType):
        return pa.struct([pa.field(f.name, _arrow_type(f.dataType), f.nullable) for f in kind])
    if (arrow := _FLAT.get(type(kind))) is None:
        raise TypeMisfitError(kind.simpleString())
    return arrow


# --- a file's type and the schema's ---------------------------------------------------------------
#
# Whether one becomes the other, and which type holds both.


def own_name(name: str, names: Sequence[str], others: Collection[str]) -> str | None:
    """A file's own name of a column or field: that very name, or the only one that differs in case alone.

    others  names of all columns or fields that are looked for: what one of them is called, another one is not
    """
    near = set(_meant(name, names, others))
    return near.pop() if len(near) == 1 else None


def has_several(name: str, names: Sequence[str], others: Collection[str]) -> bool:
    """Whether a file has more than one column or field that may be meant, and so none; others: as `own_name` has it."""
    return len(_meant(name, names, others)) > 1


def _meant(name: str, names: Sequence[str], others: Collection[str]) -> list[str]:
    own = [one for one in names if one == name]
    return own or [one for one in names if one.lower() == name.lower() and one not in others]


def _merged_name(name: str, there: Iterable[str], own: Sequence[str]) -> str:
    """The name under which a file's column joins others: theirs that differs in case alone, or its own.

    there  names that others have
    own    all names of the file: what is another of its columns is no name of this one
    """
    return own_name(name, list(there), own) or name


def _own_field(name: str, names: Sequence[str], target: pa.StructType) -> int | None:
    """The place of a field in a struct of a file; None: it has none. Raises TypeMisfitError for two of the name.

    target  the schema's struct, of which it is a field
    """
    others = [field.name for field in target]
    own = own_name(name, names, others)
    if has_several(name, names, others):
        raise TypeMisfitError(f"a struct with the fields {', '.join(names)} has several for {name}")
    return None if own is None else names.index(own)


def check_fit(source: pa.DataType, target: pa.DataType) -> None:
    """Whether every value of a file's type is one of the schema's. Raises TypeMisfitError."""
    source = _plain(source)
    if are_alike(source, target):
        pairs: Iterable[Any] = zip(fields_of(source), fields_of(target), strict=False)
        if _T.is_struct(target):
            names = [field.name for field in source]
            places = ((_own_field(field.name, names, target), field) for field in target)
            pairs = ((source.field(at), field) for at, field in places if at is not None)
        for own, field in pairs:
            check_fit(own.type, field.type)
    elif not _T.is_null(source) and not _holds(target, source):
        raise TypeMisfitError(f"{source} does not become {target}")


def _holds(target: pa.DataType, source: pa.DataType) -> bool:
    if _T.is_integer(source):
        signed, bits = _T.is_signed_integer(source), source.bit_width
        if _T.is_integer(target):
            return bool(bits <= target.bit_width if signed else bits < target.bit_width)
        if _T.is_decimal(target):
            return bool(target.precision - target.scale >= _DIGITS[bits] - (signed and bits == 64))
        return bool(_T.is_float64(target) and bits <= 32)
    if _T.is_decimal(source) and _T.is_decimal(target):
        more = target.scale - source.scale
        return bool(more >= 0 and target.precision - source.precision >= more)
    if _T.is_floating(source):
        return bool(_T.is_floating(target) and target.bit_width >= source.bit_width)
    if has_any_length(source):
        return bool(_T.is_string(target) or _T.is_binary(target))
    if _T.is_timestamp(source):
        return bool(_T.is_timestamp(target) and (source.tz is None) == (target.tz is None))
    try:
        return bool(compatible(source) == target)
    except TypeMisfitError:
        return False


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds what both hold, of types that `compatible` gave. Raises TypeMisfitError."""
    if one == other or _T.is_null(other):
        return one
    if _T.is_null(one):
        return other
    if _T.is_struct(one) and _T.is_struct(other):
        named, own = {field.name: field.type for field in one}, [field.name for field in other]
        for field in other:
            name = _merged_name(field.name, named, own)
            named[name] = wider(named[name], field.type) if name in named else field.type
        return pa.struct([pa.field(name, kind) for name, kind in named.items()])
    if is_list(one) and is_list(other):
        return pa.list_(pa.field("element", wider(one.value_type, other.value_type)))
    if _T.is_map(one) and _T.is_map(other):
        key = pa.field("key", wider(one.key_type, other.key_type), nullable=False)
        return pa.map_(key, pa.field("value", wider(one.item_type, other.item_type)))
    if _T.is_decimal(one) and _T.is_decimal(other):
        scale = max(one.scale, other.scale)
        precision = scale + max(one.precision - one.scale, other.precision - other.scale)
        if precision <= 38:
            return pa.decimal128(precision, scale)
    if _T.is_string(one) == _T.is_string(other):  # Spark does not merge texts and bytes either
        for small, large in ((one, other), (other, one)):
            if _holds(large, small):
                return large
    raise TypeMisfitError(f"{one} and {other}")


# --- values ---------------------------------------------------------------------------------------
#
# Columns as the schema has them.


def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
    """A file's column as the schema has it. Raises ArrowInvalid for values that have no place there."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    kind = array.type
    if kind == target:
        return array
    if _T.is_dictionary(kind):
        return convert(array.cast(kind.value_type), target)
    if _T.is_timestamp(kind) and kind.unit == "ns":
        return _floored(array, target)
    if _T.is_timestamp(kind) and (kind.tz is None) != (target.tz is None):
        return array.cast(pa.timestamp(kind.unit, target.tz)).cast(target)  # INT96, which is in UTC
    if are_alike(kind, target):
        names = [field.name for field in fields_of(kind)]

        def inside(stored: Sequence[pa.Array]) -> list[pa.Array]:
            if not _T.is_struct(kind):
                return [convert(part, field.type) for part, field in zip(stored, fields_of(target), strict=True)]
            places = ((field.type, _own_field(field.name, names, target)) for field in target)
            return [pa.nulls(len(array), to) if at is None else convert(stored[at], to) for to, at in places]

        return map_nested(array, target, inside)
    if _T.is_fixed_size_binary(kind):
        array = array.cast(pa.binary())
    return array.cast(target)


def _floored(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Nanoseconds -> microseconds, down also before 1970, as Spark cuts its own values."""
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.floor_divide(numbers, 1000), pa.int64(), mask=nulls).cast(target)


# --- hive -----------------------------------------------------------------------------------------
#
# Folders' names as columns, with the types that Spark infers for them.
#
#    n=7 -> int      n=3000000000 -> bigint      x=1.5 -> double      day=2026-01-31 -> date      all else -> string
#
# Several values of one key share a type: int and bigint are bigint, int and double are double, whole
# numbers that are longer are decimals, and others that differ are strings; NULLs alone are void. Not as
# in Spark, timestamps stay strings: their meaning depends on the session's zone, which a data source is
# not told.
# Source: Spark's PartitioningUtils (inferPartitionColumnValue, findWiderTypeForPartitionColumn).

_WHOLE = re.compile(r"[+-]?[0-9]+")
_DOUBLE = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[dDfF]?")
_INT, _LONG, _FLOAT, _DATE, _TEXT = pa.int32(), pa.int64(), pa.float64(), pa.date32(), pa.string()


def infer(text: str) -> pa.DataType:
    """The type of one value."""
    if _WHOLE.fullmatch(text):
        number = int(text)
        for kind in (_INT, _LONG):
            if -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1:
                return kind
    if _DOUBLE.fullmatch(text):
        return _whole_decimal(text) or _FLOAT
    with suppress(ValueError):
        read_date(text)
        return _DATE
    return _TEXT


def _whole_decimal(text: str) -> pa.DataType | None:
    """Numbers without digits behind the point, 5. and 2e3 too, are decimals to Spark."""
    try:
        number = Decimal(text)
    except ArithmeticError:  # 5d
        return None
    exponent = number.as_tuple().exponent
    digits = number.adjusted() + 1
    whole = isinstance(exponent, int) and exponent >= 0 and 0 < digits <= 38
    return pa.decimal128(digits, 0) if whole else None


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    kinds = {one, other}
    if kinds == {_INT, _LONG}:
        return _LONG
    if kinds == {_INT, _FLOAT}:
        return _FLOAT
    digits = [_digits(kind) for kind in (one, other)]
    return pa.decimal128(max(digits), 0) if all(digits) else _TEXT


def _digits(kind: pa.DataType) -> int:
    if pa.types.is_decimal(kind):
        return int(kind.precision)
    return 10 if kind == _INT else 20 if kind == _LONG else 0


def infer_types(files: Iterable[tuple[str, Partitions]]) -> dict[str, pa.DataType]:
    """Partition columns in the order of their folders, and what Spark makes of their values.

    files  each with the folder that was named, whose files all lie under the same keys
    Raises RequestError where they do not.
    """
    found: dict[str, pa.DataType | None] = {}
    keys: dict[str, tuple[str, ...]] = {}
    for root, pairs in files:
        here = tuple(key for key, _ in pairs)
        before = keys.setdefault(root, here)
        if here != before:
            both = [", ".join(names) or "none" for names in (before, here)]
            raise RequestError(f"folders name different partition columns: {both[0]} here, {both[1]} there")
        for key, text in pairs:
            last = found.get(key)
            kind = None if text is None else infer(text)
            found[key] = kind if last is None else last if kind is None else _common(last, kind)
    return {key: pa.null() if kind is None else kind for key, kind in found.items()}


def scalar(path: object, key: str, text: str | None, kind: pa.DataType) -> pa.Scalar:
    """The value of a folder's name in its column's type.

    Raises StorageError that names the file where the text is no value of the type.
    """
    try:
        return pa.scalar(None if text is None else _value(text, kind), kind)
    except (ValueError, ArithmeticError, pa.ArrowException):
        reason = f"the folder says {key}={text}, which is no {kind}; give a schema in which {key} is a string"
        raise StorageError(path, reason) from None


def _value(text: str, kind: pa.DataType) -> object:
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        return text.encode("utf-8", "surrogateescape")
    if pa.types.is_boolean(kind) and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if pa.types.is_integer(kind) and _WHOLE.fullmatch(text):
        return int(text)
    if pa.types.is_decimal(kind) and _DOUBLE.fullmatch(text):
        return Decimal(text)
    if pa.types.is_floating(kind) and (found := _DOUBLE.fullmatch(text)):
        return float(found[1])
    if pa.types.is_date(kind):
        return read_date(text)
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return dt.datetime.fromisoformat(text)
    raise ValueError(text)


# --- inference ------------------------------------------------------------------------------------
#
# The schema of files as Spark gets it: of one footer, or of all; and the partition columns.
#
# file    id int64, day string          folders   day=2026-01-31/
# schema  id bigint, day date           a folder's column hides the file's, in its place

PYARROW_ERRORS = (pa.ArrowException, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class InferredSchema:
    """schema: as files have it, not yet as Spark gets it; keys: the partition columns; path: of the first file."""

    schema: pa.Schema
    keys: dict[str, pa.DataType]
    path: str

    @property
    def names(self) -> tuple[str, ...]:
        """Of all columns."""
        return (*self.schema.names, *self.keys)

    def of(self, columns: Sequence[str] | None) -> pa.Schema:
        """Spark's schema of the columns named (None: all), in their order.

        Raises UnknownColumnError, and RequestError for a column of a type that Spark cannot hold.
        """
        keys = {key: pa.field(key, kind) for key, kind in self.keys.items()}
        hidden = [_merged_name(name, keys, self.schema.names) for name in self.schema.names]
        inside = [keys.get(name, field) for name, field in zip(hidden, self.schema, strict=True)]
        every = [*inside, *(field for key, field in keys.items() if key not in hidden)]
        if columns is not None:
            fields = {field.name: field for field in every}
            for name in columns:
                if name not in fields:
                    raise unknown_column(name, list(fields), where=f"{self.path}: ")
                if name not in self.keys and self.schema.names.count(name) > 1:
                    raise RequestError(f"{self.path}: two columns are named {name}")
            return compatible_schema(pa.schema([fields[name] for name in columns]), self.path)
        return compatible_schema(pa.schema(every), self.path)


def infer_schema(
    names: Sequence[str],
    seen: PartialListing,
    where: Storages,
    columns: Sequence[str] | None = None,
    merge: bool = False,
    raw_files: bool = False,
) -> InferredSchema:
    """Infer the schema of one file, or with `merge` of all, and of the folders that the driver lists anyway.

    seen     what these names lead to; with `merge` all of it
    columns  the only ones whose types matter; None: all
    Raises StorageError where there is no file; RequestError for types that cannot be merged;
    TableFormatError for a folder that is a table's, without raw_files.
    """
    first = first_file(seen, where, raw_files)
    if first is None:
        raise no_files(names)
    entries = seen.files or [first]
    files = [where.data_file(entry.path, entry.root) for entry in entries]
    keys = infer_types((entry.root, file.partitions) for entry, file in zip(entries, files, strict=True))
    if not merge:
        return InferredSchema(_schema_of(files[0]), keys, str(files[0]))
    schemas = side_by_side(_schema_of, files)
    named: dict[str, pa.DataType] = {}
    asked = None if columns is None else {name.lower() for name in columns}
    for file, schema in zip(files, schemas, strict=True):
        wanted = [field for field in schema if asked is None or field.name.lower() in asked]
        for field in compatible_schema(pa.schema(wanted), file):
            name = _merged_name(field.name, named, schema.names)
            try:
                named[name] = wider(named[name], field.type) if name in named else field.type
            except TypeMisfitError as error:
                raise RequestError(f"{file}: column {field.name} has types that cannot be merged: {error}") from None
    return InferredSchema(pa.schema(list(named.items())), keys, str(files[0]))


def _schema_of(found: DataFile) -> pa.Schema:
    with OpenFile(found) as source:
        source.outline()  # refuses what pyarrow must not see
        return types_of(source, open_parquet(source))


def open_parquet(source: OpenFile) -> Any:
    """pyarrow's reader of an open file. Raises DamagedFileError."""
    try:
        return pq.ParquetFile(source.arrow_file(), coerce_int96_timestamp_unit=INT96_UNIT, pre_buffer=source.is_remote)
    except PYARROW_ERRORS as error:
        raise damaged(source.path, error) from error


def damaged(path: object, error: Exception) -> DamagedFileError:
    """Make one line of ours of pyarrow's error over a file."""
    return DamagedFileError(path, f"cannot be read: {first_line(error)}")


def types_of(source: OpenFile, file: Any) -> pa.Schema:
    """The file's schema in Arrow; INT96 is in UTC, which pyarrow does not say."""
    columns = [leaf.path[0] for leaf in source.outline().leaves if leaf.physical == INT96]
    schema = file.schema_arrow
    for at, field in enumerate(schema):
        if field.name in columns:
            schema = schema.set(at, field.with_type(_in_utc(field.type)))
    return schema


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz is None:
        return pa.timestamp("us", "UTC")
    inner = [field.with_type(_in_utc(field.type)) for field in fields_of(kind)]
    return with_fields(kind, inner) if inner else kind
