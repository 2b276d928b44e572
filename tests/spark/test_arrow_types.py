"""Columns of every Arrow type as Spark gets them: the same values, of slices and nested ones too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark.sql", reason="pyspark is not installed (extra `spark`)")

from pyspark.sql import types as st

from parquet_bloom.errors import RequestError
from parquet_bloom.spark.source.types import (
    TypeMisfitError,
    arrow_schema,
    check_fit,
    compatible,
    convert,
    spark_schema,
    wider,
)

pytestmark = pytest.mark.spark
NS = pa.timestamp("ns")
NUMBERS: list[Any] = [[1, None], None, [], [2, 3, 4], [5]] * 3
COLUMNS = {
    "list": pa.array(NUMBERS, pa.list_(pa.int32())),
    "large_list": pa.array(NUMBERS, pa.large_list(pa.uint16())),
    "list_view": pa.array(NUMBERS, pa.list_view(pa.int16())),
    "fixed_size_list": pa.array([[1, 2], None, [3, None]] * 4, pa.list_(pa.int8(), 2)),
    "list_of_dictionaries": pa.array([["a"], None, ["b", None]] * 4, pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "map": pa.array([[("a", 1), ("b", None)], None, [], [("c", 2)]] * 4, pa.map_(pa.string(), pa.uint8())),
    "struct": pa.array([{"a": [{"x": 1}], "b": "u"}, None, {"a": None, "b": None}] * 4,
                       pa.struct([("a", pa.list_(pa.struct([("x", pa.uint32())]))),
                                  ("b", pa.dictionary(pa.int8(), pa.string()))])),
    "dictionary": pa.array(["a", None, "b"] * 4).dictionary_encode(),
    "string_view": pa.array(["a", None, "b" * 30] * 4, pa.string_view()),
    "fixed_binary": pa.array([b"abc", None] * 6, pa.binary(3)),
    "uint64": pa.array([0, None, 2**64 - 1] * 4, pa.uint64()),
    "float16": pa.array([1.5, None, -0.0] * 4, pa.float16()),
    "null": pa.nulls(12),
    "no_fields": pa.array([{}, None, {}] * 4, pa.struct([])),
}  # fmt: skip


def test_values_stay() -> None:
    for name, array in COLUMNS.items():
        target = compatible(array.type)
        check_fit(array.type, target)
        for start, length in ((0, len(array)), (2, 5), (len(array) - 1, 1), (4, 0)):
            part = array.slice(start, length)
            made = convert(part, target)
            made.validate(full=True)
            assert made.type == target, name
            assert made.to_pylist() == part.to_pylist(), name


def test_nanoseconds_within_others() -> None:
    lists = pa.array([[-1], None, [1999, None]], pa.list_(NS))
    assert convert(lists, compatible(lists.type)).values.cast(pa.int64()).to_pylist() == [-1, 1, None]
    least = pa.array([-(2**63)], pa.int64()).cast(NS)
    assert convert(least, pa.timestamp("us")).cast(pa.int64()).to_pylist() == [-(2**63) // 1000]


def test_schemas_there_and_back() -> None:
    schema = pa.schema([pa.field(name, compatible(array.type)) for name, array in COLUMNS.items()])
    assert arrow_schema(spark_schema(schema)).equals(schema)


def test_flat_types_and_nested_ones_are_those_of_spark() -> None:
    """pyspark's own answers, with nullability as it is; timestamps without a zone stay such."""
    flat = {
        pa.bool_(): st.BooleanType(), pa.int8(): st.ByteType(), pa.int16(): st.ShortType(),
        pa.int32(): st.IntegerType(),
        pa.int64(): st.LongType(), pa.float32(): st.FloatType(), pa.float64(): st.DoubleType(),
        pa.string(): st.StringType(), pa.binary(): st.BinaryType(), pa.date32(): st.DateType(),
        pa.timestamp("us", "UTC"): st.TimestampType(), pa.timestamp("us"): st.TimestampNTZType(),
        pa.decimal128(10, 2): st.DecimalType(10, 2),
    }  # fmt: skip
    for kind, wanted in flat.items():
        for null in (True, False):
            schema = pa.schema({
                "flat": kind,
                "list": pa.list_(pa.field("element", kind, null)),
                "map": pa.map_(pa.field("key", pa.string(), False), pa.field("value", kind, null)),
                "struct": pa.struct([pa.field("a", kind, null)]),
            })  # fmt: skip
            nested = [
                wanted,
                st.ArrayType(wanted, null),
                st.MapType(st.StringType(), wanted, null),
                st.StructType([st.StructField("a", wanted, null)]),
            ]
            assert [field.dataType for field in spark_schema(schema)] == nested
            assert arrow_schema(spark_schema(schema)).equals(schema)


def test_types_that_pyspark_alone_would_take_are_refused() -> None:
    for kind in (st.DayTimeIntervalType(), st.VariantType()):
        with pytest.raises(RequestError, match="which is not read from Parquet"):
            arrow_schema(st.StructType([st.StructField("a", kind)]))


def test_what_would_lose_something() -> None:
    for source, target in (
        (pa.int64(), pa.int32()), (pa.uint32(), pa.int32()), (pa.int64(), pa.float64()), (pa.float64(), pa.float32()),
        (pa.int32(), pa.decimal128(9, 0)), (pa.decimal128(10, 2), pa.decimal128(10, 1)), (pa.string(), pa.int32()),
        (pa.decimal128(10, 2), pa.decimal128(11, 4)), (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.list_(pa.int64()), pa.list_(pa.int32())), (pa.list_(pa.int64()), pa.int64()), (pa.int32(), pa.string()),
        (pa.time64("us"), pa.int64()), (pa.date32(), pa.timestamp("us")), (pa.bool_(), pa.int8()),
    ):  # fmt: skip
        with pytest.raises(TypeMisfitError):
            pytest.fail(f"{source} becomes {target}: {check_fit(source, target)}")


def test_merging() -> None:
    merged: list[tuple[pa.DataType, pa.DataType, pa.DataType | None]] = [
        (pa.int32(), pa.int64(), pa.int64()), (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 1), pa.decimal128(10, 2)), (pa.null(), pa.string(), pa.string()),
        (pa.decimal128(38, 0), pa.decimal128(38, 5), None), (pa.string(), pa.binary(), None),
        (pa.int64(), pa.float64(), None), (pa.date32(), pa.int32(), None),
    ]  # fmt: skip
    for one, other, both in merged:
        for pair in ((one, other), (other, one)):
            if both is not None:
                assert wider(*pair) == both
                continue
            with pytest.raises(TypeMisfitError):
                pytest.fail(f"{pair} become {wider(*pair)}")
