"""Arrow's types as Spark has them, and columns of files turned into what a Spark schema says.

    uint32 -> bigint        timestamp[ns] -> timestamp, cut off to microseconds (floored)
    float16 -> float        dictionary<string> -> string        time64[us], uuid -> none

A type that Spark cannot hold is an error that names the column. A file's column is only turned
into a type that holds every value of it: never double to float, never bigint to int.
Sources: pyspark.sql.pandas.types.to_arrow_schema; Spark's documentation, "Parquet Files".
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as st

from parquet_bloom.errors import RequestError
from parquet_bloom.predicates.arrow_literals import is_bytes, is_list, is_text

_T = pa.types
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}  # of the longest integer of so many bits
_FLAT = (
    (st.BooleanType, pa.bool_()), (st.ByteType, pa.int8()), (st.ShortType, pa.int16()), (st.IntegerType, pa.int32()),
    (st.LongType, pa.int64()), (st.FloatType, pa.float32()), (st.DoubleType, pa.float64()),
    (st.BinaryType, pa.binary()), (st.DateType, pa.date32()), (st.TimestampType, pa.timestamp("us", "UTC")),
    (st.TimestampNTZType, pa.timestamp("us")), (st.NullType, pa.null()),
)  # fmt: skip


class TypeMisfitError(Exception):
    """A type has no place in the other; the message says why."""


# --- Arrow -> Spark -------------------------------------------------------------------------------


def held(kind: pa.DataType) -> pa.DataType:
    """The type in which Spark gets a column; all that is nested may be NULL. Raises MisfitError."""
    kind = _plain(kind)
    if _T.is_unsigned_integer(kind):
        return pa.decimal128(20, 0) if kind.bit_width == 64 else getattr(pa, f"int{2 * kind.bit_width}")()
    if _T.is_floating(kind):
        return pa.float64() if kind.bit_width == 64 else pa.float32()
    if _T.is_decimal(kind):
        if not 0 <= kind.scale <= kind.precision <= 38:
            raise TypeMisfitError("Spark's decimals have at most 38 digits, and a scale from 0 to their precision")
        return pa.decimal128(kind.precision, kind.scale)
    if is_text(kind):
        return pa.string()
    if is_bytes(kind):
        return pa.binary()
    if _T.is_date(kind):
        return pa.date32()
    if _T.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz is not None else None)
    if _T.is_duration(kind):
        return pa.int64()  # Parquet has no such type: it is a plain INT64
    if _T.is_boolean(kind) or _T.is_integer(kind) or _T.is_null(kind):
        return kind
    if is_list(kind):
        return pa.list_(pa.field("element", held(kind.value_type)))
    if _T.is_map(kind):
        return pa.map_(pa.field("key", held(kind.key_type), nullable=False), pa.field("value", held(kind.item_type)))
    if _T.is_struct(kind):
        return pa.struct([pa.field(field.name, held(field.type)) for field in kind])
    raise TypeMisfitError("Spark has no such type")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Without dictionaries and the marks of JSON."""
    if _T.is_dictionary(kind):
        return _plain(kind.value_type)
    if isinstance(kind, pa.JsonType):
        return _plain(kind.storage_type)
    return kind


def held_schema(schema: pa.Schema, where: object) -> pa.Schema:
    """A file's schema as Spark gets it.

    Raises RequestError that names the column, for a type that Spark cannot hold and for two columns
    of one name.
    """
    fields = []
    for field in schema:
        if schema.names.count(field.name) > 1:
            raise RequestError(f"{where}: two columns are named {field.name}")
        try:
            fields.append(pa.field(field.name, held(field.type)))
        except TypeMisfitError as error:
            left = 'leave it out: .option("columns", ...) takes the names of the others'
            raise RequestError(f"{where}: column {field.name} is {field.type}: {error}; {left}") from None
    return pa.schema(fields)


def spark_type(kind: pa.DataType) -> st.DataType:
    """The Spark type of what `held` gives."""
    if _T.is_decimal(kind):
        return st.DecimalType(kind.precision, kind.scale)
    if _T.is_string(kind):
        return st.StringType()
    if is_list(kind):
        return st.ArrayType(spark_type(kind.value_type), kind.value_field.nullable)
    if _T.is_map(kind):
        return st.MapType(spark_type(kind.key_type), spark_type(kind.item_type), kind.item_field.nullable)
    if _T.is_struct(kind):
        return st.StructType([st.StructField(f.name, spark_type(f.type), f.nullable) for f in kind])
    return next(made() for made, arrow in _FLAT if arrow == kind)


def spark_schema(schema: pa.Schema) -> st.StructType:
    """Spark's type for the rows of an Arrow schema; all columns may be NULL."""
    return st.StructType([st.StructField(field.name, spark_type(field.type), True) for field in schema])


# --- Spark -> Arrow -------------------------------------------------------------------------------


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
    for made, arrow in _FLAT:
        if type(kind) is made:
            return arrow
    raise TypeMisfitError(kind.simpleString())


# --- a file's type and the schema's ---------------------------------------------------------------


def check_fit(source: pa.DataType, target: pa.DataType) -> None:
    """Whether every value of a file's type is one of the schema's. Raises MisfitError."""
    source = _plain(source)
    if is_list(source) and is_list(target):
        return check_fit(source.value_type, target.value_type)
    if _T.is_map(source) and _T.is_map(target):
        check_fit(source.key_type, target.key_type)
        return check_fit(source.item_type, target.item_type)
    if _T.is_struct(source) and _T.is_struct(target):
        for field in target:
            at = source.get_field_index(field.name)
            if at >= 0:
                check_fit(source.field(at).type, field.type)
        return None
    if not _T.is_null(source) and not _holds(target, source):
        raise TypeMisfitError(f"{source} does not become {target}")
    return None


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
    if is_text(source) or (is_bytes(source) and not _T.is_fixed_size_binary(source)):
        return bool(_T.is_string(target) or _T.is_binary(target))
    if _T.is_timestamp(source):
        return bool(_T.is_timestamp(target) and (source.tz is None) == (target.tz is None))
    try:
        return bool(held(source) == target)
    except TypeMisfitError:
        return False


def wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type that holds what both hold, of types that `held` gave. Raises MisfitError."""
    if one == other or _T.is_null(other):
        return one
    if _T.is_null(one):
        return other
    if _T.is_struct(one) and _T.is_struct(other):
        named = {field.name: field.type for field in one}
        for field in other:
            named[field.name] = wider(named[field.name], field.type) if field.name in named else field.type
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
    if is_list(kind):
        return _list(array, target)
    if _T.is_map(kind):
        entries = pa.StructArray.from_arrays(
            [convert(array.keys, target.key_type), convert(array.items, target.item_type)],
            fields=[target.key_field, target.item_field],
        )
        return pa.Array.from_buffers(target, len(array), array.buffers()[:2], -1, array.offset, [entries])
    if _T.is_struct(kind):
        parts = [_field(array, field) for field in target]
        if not parts:
            return array.cast(target)
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=array.is_null())
    if _T.is_fixed_size_binary(kind):
        array = array.cast(pa.binary())
    return array.cast(target)


def _floored(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Nanoseconds -> microseconds, down also before 1970, as Spark cuts its own values."""
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.floor_divide(numbers, 1000), pa.int64(), mask=nulls).cast(target)


def _field(array: pa.Array, field: pa.Field) -> pa.Array:
    at = array.type.get_field_index(field.name)
    return pa.nulls(len(array), field.type) if at < 0 else convert(array.field(at), field.type)


def _list(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Lists of any kind; pyarrow 26 casts list views to lists whose last offset is missing."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    elements = convert(array.flatten(), target.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), elements, type=target, mask=array.is_null())
