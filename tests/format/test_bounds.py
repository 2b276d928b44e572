"""Bounds and counts: each rule by which a footer's statistics are believed, or not, on one made by hand."""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.footers import edited_footer

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import (
    ColumnChunk,
    ColumnMetaData,
    ColumnOrder,
    ConvertedType,
    DecimalType,
    FieldRepetitionType,
    FileMetaData,
    Float16Type,
    IEEE754TotalOrder,
    IntType,
    LogicalType,
    RowGroup,
    SchemaElement,
    Statistics,
    StringType,
    Type,
    TypeDefinedOrder,
    UUIDType,
)
from parquet_bloom.errors import DamagedFileError
from parquet_bloom.format import compact
from parquet_bloom.format.footer import decode_footer
from parquet_bloom.format.outline import outline_of
from parquet_bloom.format.outlines import walk_outline
from parquet_bloom.format.statistics import ColumnStatistics, statistics_of

ROWS = 10
NAN = float("nan")
TYPE_ORDER = ColumnOrder(TYPE_ORDER=TypeDefinedOrder())
TOTAL_ORDER = ColumnOrder(IEEE_754_TOTAL_ORDER=IEEE754TotalOrder())
NO_ORDER = ColumnOrder()


def column(kind: int, logical: LogicalType | None = None, **more: Any) -> SchemaElement:
    more = {"repetition_type": FieldRepetitionType.OPTIONAL, **more}
    return SchemaElement(type=kind, name="c", logicalType=logical, **more)


INT32, INT64 = column(Type.INT32), column(Type.INT64)
UINT64 = column(Type.INT64, LogicalType(INTEGER=IntType(bitWidth=64, isSigned=False)))
UINT8 = column(Type.INT32, converted_type=ConvertedType.UINT_8)
BOOLEAN = column(Type.BOOLEAN)
FLOAT, DOUBLE = column(Type.FLOAT), column(Type.DOUBLE)
FLOAT16 = column(Type.FIXED_LEN_BYTE_ARRAY, LogicalType(FLOAT16=Float16Type()), type_length=2)
STRING = column(Type.BYTE_ARRAY, LogicalType(STRING=StringType()))
UUID = column(Type.FIXED_LEN_BYTE_ARRAY, LogicalType(UUID=UUIDType()), type_length=16)
DECIMAL = LogicalType(DECIMAL=DecimalType(scale=2, precision=20))
DECIMAL_FIXED = column(Type.FIXED_LEN_BYTE_ARRAY, DECIMAL, type_length=9)
DECIMAL_BYTES = column(Type.BYTE_ARRAY, DECIMAL)
INTERVAL = column(Type.FIXED_LEN_BYTE_ARRAY, converted_type=ConvertedType.INTERVAL, type_length=12)
REQUIRED = column(Type.INT64, repetition_type=FieldRepetitionType.REQUIRED)


def i32(value: int) -> bytes:
    return struct.pack("<i", value)


def i64(value: int) -> bytes:
    return struct.pack("<q", value)


def f64(value: float) -> bytes:
    return struct.pack("<d", value)


def new(low: bytes | None, high: bytes | None, **more: Any) -> Statistics:
    return Statistics(min_value=low, max_value=high, **more)


def old(low: bytes | None, high: bytes | None, **more: Any) -> Statistics:
    return Statistics(min=low, max=high, **more)


def facts(
    of: SchemaElement, *statistics: Statistics | None, by: str | None = "somebody version 1.0", order: Any = TYPE_ORDER,
    values: int = ROWS, kind: int | None = None, inside: str | None = None,
) -> ColumnStatistics:  # fmt: skip
    """The statistics of the one column of a file with a row group for each of `statistics`.

    order   its ColumnOrder; None: the footer has no orders; a list: those
    values  num_values; kind: the type that the chunks say they have; inside: of a struct of this name
    """
    groups = []
    for one in statistics:
        meta = ColumnMetaData(
            type=of.type if kind is None else kind, encodings=[0], path_in_schema=["c"], codec=0, num_values=values,
            total_uncompressed_size=90, total_compressed_size=90, data_page_offset=4, statistics=one,
        )  # fmt: skip
        groups.append(RowGroup(columns=[ColumnChunk(file_offset=0, meta_data=meta)], num_rows=ROWS, total_byte_size=90))
    schema = [SchemaElement(name="root", num_children=1)]
    if inside is not None:
        schema.append(SchemaElement(name=inside, num_children=1, repetition_type=FieldRepetitionType.REQUIRED))
    orders = order if isinstance(order, list) or order is None else [order]
    metadata = FileMetaData(
        version=2, schema=[*schema, of], num_rows=ROWS * len(groups), row_groups=groups, created_by=by,
        column_orders=orders,
    )  # fmt: skip
    data = compact.encode(metadata)
    walked, bound = walk_outline(data, 1000), outline_of(decode_footer(data, 1000))
    assert walked is not None
    found = statistics_of(walked, walked.leaves[0])
    assert seen(found) == seen(statistics_of(bound, bound.leaves[0])), "from both outlines"
    return found


def bounds(found: ColumnStatistics) -> list[tuple[Any, Any]]:
    """(low, high) of each row group, None where it is not known."""
    return [
        (low if has_low else None, high if has_high else None)
        for low, high, has_low, has_high in zip(
            found.lower.tolist(), found.upper.tolist(), found.has_lower.tolist(), found.has_upper.tolist(), strict=True
        )
    ]


def seen(found: ColumnStatistics) -> Any:
    return bounds(found), found.some_null.tolist(), found.some_value.tolist(), found.nan_free.tolist()


def only(of: SchemaElement, statistics: Statistics | None, **more: Any) -> tuple[Any, Any]:
    (one,) = bounds(facts(of, statistics, **more))
    return one


NOTHING = (None, None)

# --- which bounds, in which order -------------------------------------------------------------------


def test_bounds_of_each_row_group_and_of_one_end_alone() -> None:
    found = facts(INT64, new(i64(-5), i64(7)), None, new(i64(3), None), new(None, i64(4)), Statistics())
    assert bounds(found) == [(-5, 7), NOTHING, (3, None), (None, 4), NOTHING]


MINUS_5, FAR = (-5).to_bytes(9, "big", signed=True), (2**70).to_bytes(9, "big", signed=True)
CONTRADICTION = column(Type.INT64, LogicalType(STRING=StringType()))
OF_TYPES: list[tuple[SchemaElement, bytes, bytes, Any]] = [
    (INT32, i32(-1), i32(2**31 - 1), (-1, 2**31 - 1)),
    (BOOLEAN, b"\0", b"\1", (0, 1)),
    (DOUBLE, f64(-1.5), f64(float("inf")), (-1.5, float("inf"))),
    (FLOAT, struct.pack("<f", 0.5), struct.pack("<f", 2.5), (0.5, 2.5)),
    (FLOAT16, b"\x00\xbe", b"\x00\x3e", (-1.5, 1.5)),
    (STRING, b"", b"\xff\0", (b"", b"\xff\0")),
    (UUID, bytes(16), b"\xff" * 16, (bytes(16), b"\xff" * 16)),
    (UINT64, i64(1), i64(-1), (1, 2**64 - 1)),  # compared unsigned
    (UINT64, i64(-1), i64(1), NOTHING),  # the lowest is above the highest
    (UINT8, i32(3), i32(255), (3, 255)),
    (DECIMAL_FIXED, MINUS_5, FAR, (-5, 2**70)),  # signed numbers of any length
    (DECIMAL_FIXED, FAR, MINUS_5, NOTHING),
    (DECIMAL_BYTES, b"\xfb", b"\x00\x00\x7b", (-5, 123)),  # 007b is 7b
    (column(Type.INT64, DECIMAL), i64(-5), i64(7), (-5, 7)),
    (INTERVAL, bytes(12), b"\1" * 12, NOTHING),  # these have no order
    (column(Type.INT96), bytes(12), b"\1" * 12, NOTHING),
    (CONTRADICTION, i64(1), i64(2), NOTHING),
    (column(Type.FIXED_LEN_BYTE_ARRAY, type_length=0), b"", b"", NOTHING),  # it holds no values
]


def test_each_type_has_its_order_or_none() -> None:
    for of, low, high, expected in OF_TYPES:
        assert only(of, new(low, high)) == expected, of


def test_column_orders_say_how_new_bounds_are_compared() -> None:
    told = new(i64(1), i64(2))
    assert only(INT64, told, order=TYPE_ORDER) == (1, 2)
    assert only(INT64, told, order=None) == NOTHING, "no orders"
    assert only(INT64, told, order=NO_ORDER) == NOTHING, "an order that is newer than the bindings"
    assert only(INT64, told, order=[TYPE_ORDER, TYPE_ORDER]) == NOTHING, "orders of some other schema"
    assert only(INT64, told, order=[]) == NOTHING


def test_the_total_order_is_one_of_floats() -> None:
    told = new(f64(-0.0), f64(2.0))
    assert only(DOUBLE, told, order=TOTAL_ORDER) == (0.0, 2.0)
    assert only(FLOAT16, new(b"\0\xbe", b"\0\x3e"), order=TOTAL_ORDER) == (-1.5, 1.5)
    assert only(INT64, new(i64(1), i64(2)), order=TOTAL_ORDER) == NOTHING
    assert only(DOUBLE, new(f64(NAN), f64(NAN)), order=TOTAL_ORDER) == NOTHING, "so it is written where all are NaN"


# --- the old fields ---------------------------------------------------------------------------------


OLD_BOUNDS: list[tuple[SchemaElement, bytes, bytes, Any]] = [
    (INT32, i32(-1), i32(5), (-1, 5)),
    (INT64, i64(-1), i64(5), (-1, 5)),
    (DOUBLE, f64(-1.0), f64(5.0), (-1.0, 5.0)),
    (BOOLEAN, b"\0", b"\0", (0, 0)),
    (column(Type.INT64, DECIMAL), i64(-1), i64(5), (-1, 5)),
    (column(Type.INT32, converted_type=ConvertedType.DATE), i32(-1), i32(5), (-1, 5)),
    (UINT64, i64(1), i64(5), NOTHING),
    (UINT8, i32(1), i32(5), NOTHING),
    (STRING, b"a", b"b", NOTHING),
    (UUID, bytes(16), bytes(16), NOTHING),
    (DECIMAL_FIXED, bytes(9), bytes(9), NOTHING),
    (FLOAT16, b"\0\0", b"\0\0", NOTHING),
]


def test_old_bounds_are_those_of_signed_numbers() -> None:
    for of, low, high, expected in OLD_BOUNDS:
        for by in ("parquet-mr version 1.8.1 (build 4aba4da)", "somebody version 1.0", None):
            assert only(of, old(low, high), by=by, order=None) == expected, (of, by)
            assert only(of, old(low, high), by=by) == expected, f"{of}, {by}: orders speak of the new fields"


def test_new_bounds_are_preferred_to_old_ones() -> None:
    both = Statistics(min=i64(0), max=i64(100), min_value=i64(3), max_value=i64(4))
    assert only(INT64, both) == (3, 4)
    assert only(INT64, both, order=None) == (0, 100)


def test_one_new_bound_beside_old_ones_is_damage() -> None:
    """Who gives old ones gives both new ones; of a flipped byte one is left, with another value: rows were skipped."""
    for low, high in ((i64(3), None), (None, i64(0))):
        for older in ({"min": i64(0), "max": i64(999)}, {"max": i64(999)}, {"min": b"0123456789"}):
            lone = Statistics(min_value=low, max_value=high, **older)
            assert bounds(facts(INT64, lone, new(i64(1), i64(2)))) == [NOTHING, (1, 2)]


def test_a_row_group_without_a_number_of_rows_is_an_error(tmp_path: Path) -> None:
    """It counted as one of no rows, which is read in silence."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"c": range(9)}), path, row_group_size=3)
    with edited_footer(path) as metadata:
        metadata.row_groups[1].num_rows = None
    calls = (parquet_bloom.read_table, parquet_bloom.inspect, parquet_bloom.verify, parquet_bloom.count)
    for call in calls:
        with pytest.raises(DamagedFileError, match="row group 1 does not say how many rows it has"):
            call(path)
    assert walk_outline(compact.encode(metadata), 1000) is None


# --- writers ----------------------------------------------------------------------------------------


TOLD = {"string": (STRING, b"a", b"b"), "uint64": (UINT64, i64(1), i64(2)), "int64": (INT64, i64(1), i64(2))}
TOLD["decimal"] = (DECIMAL_FIXED, bytes(9), bytes(9))
TRUSTED = {  # writer: types whose bounds are believed
    "parquet-mr version 1.10.0 (build 1)": {"string", "uint64", "int64", "decimal"},
    "parquet-mr version 1.9.0 (build 1)": {"int64"},
    "parquet-cpp version 1.2.0": {"int64"},
    "parquet-cpp version 1.3.0": {"string", "uint64", "int64"},
    "parquet-cpp version 1.5.1-SNAPSHOT": {"string", "uint64", "int64"},
    "parquet-cpp-arrow version 10.0.1": {"uint64", "int64", "decimal"},
    "parquet-cpp-arrow version 11.0.0": {"string", "uint64", "int64", "decimal"},
    "impala version 3.0": {"string", "uint64", "int64", "decimal"},
    "": {"string", "uint64", "int64", "decimal"},
    None: {"string", "uint64", "int64", "decimal"},
}


def test_writers_of_wrong_bounds() -> None:
    for by, trusted in TRUSTED.items():
        found = {name for name, (of, *told) in TOLD.items() if only(of, new(*told), by=by) != NOTHING}
        assert found == trusted, by


def test_null_counts_of_dictionary_arrays() -> None:
    for by, inside, trusted in (
        ("parquet-cpp-arrow version 26.0.1", None, True),
        ("parquet-cpp-arrow version 26.0.1", "s", False),
        ("parquet-cpp-arrow version 10.0.1", None, False),
        ("parquet-cpp version 1.5.1", None, False),
        ("parquet-mr version 1.13.0 (build 1)", "s", True),
    ):
        found = facts(STRING, new(b"a", b"b", null_count=0), by=by, inside=inside)
        assert found.some_null.tolist() == [not trusted], (by, inside)
        found = facts(INT64, new(i64(1), i64(2), null_count=0), by=by, inside=inside)
        assert found.some_null.tolist() == [False], "numbers are never dictionaries there"


# --- bounds that are none ---------------------------------------------------------------------------


def test_wrong_lengths_are_no_bounds() -> None:
    for bound in (b"", b"\0", i64(1)[:7], i64(1) + b"\0", bytes(16)):
        assert only(INT64, new(bound, i64(9))) == (None, 9)
        assert only(INT64, new(i64(-9), bound)) == (-9, None)
    assert only(BOOLEAN, new(b"\2", b"\1")) == (None, 1), "no boolean"
    assert only(BOOLEAN, new(b"\0\0", b"\1")) == (None, 1)
    assert only(FLOAT16, new(b"\0", b"\0\x3e")) == (None, 1.5)
    assert only(UUID, new(bytes(17), b"\xff" * 17)) == NOTHING
    assert only(DECIMAL_FIXED, new(bytes(8), bytes(10))) == NOTHING, "a cut decimal is another number"
    assert only(DECIMAL_BYTES, new(b"", b"\1")) == (None, 1)
    assert only(column(Type.FIXED_LEN_BYTE_ARRAY, type_length=3), new(b"abcd", b"b")) == (None, b"b")


def test_truncated_bounds_are_bounds() -> None:
    cut = new(b"ab", b"ac", is_min_value_exact=False, is_max_value_exact=False)
    assert only(STRING, cut) == (b"ab", b"ac")
    assert only(UUID, new(b"\1", b"\2", is_min_value_exact=False, is_max_value_exact=False)) == (b"\1", b"\2")


def test_nan_spoils_both_bounds() -> None:
    assert only(DOUBLE, new(f64(NAN), f64(5.0))) == NOTHING
    assert only(DOUBLE, new(f64(1.0), f64(NAN))) == NOTHING
    assert only(DOUBLE, old(f64(1.0), f64(NAN)), order=None) == NOTHING
    assert only(FLOAT16, new(b"\0\x7e", b"\0\x3e")) == NOTHING
    assert bounds(facts(DOUBLE, new(f64(NAN), f64(NAN)), new(f64(1.0), f64(2.0)))) == [NOTHING, (1.0, 2.0)]


def test_zeros_of_both_signs_and_bounds_that_contradict_each_other() -> None:
    assert only(DOUBLE, new(f64(0.0), f64(-0.0))) == (0.0, 0.0), "as a file with -0.0 and 0.0 may say"
    assert only(INT64, new(i64(5), i64(4))) == NOTHING
    found = facts(STRING, new(b"b", b"a"), new(b"a", b"b"), new(b"b", None))
    assert bounds(found) == [NOTHING, (b"a", b"b"), (b"b", None)]


def test_nan_count() -> None:
    one = f64(1.0)
    told = [new(one, one, nan_count=count) for count in (0, 1, -1, None)]
    assert facts(DOUBLE, *told, None).nan_free.tolist() == [True, False, False, False, False]
    assert facts(INT64, None).nan_free.tolist() == [True], "an integer is never NaN"


# --- counts -----------------------------------------------------------------------------------------


def nulls(found: ColumnStatistics) -> tuple[list[bool], list[bool]]:
    return found.some_null.tolist(), found.some_value.tolist()


def test_null_counts() -> None:
    counts = [0, 1, ROWS, ROWS + 1, None]
    for of in (INT64, STRING, INTERVAL):
        found = facts(of, *(Statistics(null_count=count) for count in counts))
        assert nulls(found) == ([False, True, True, True, True], [True, True, False, True, True])
    assert seen(facts(INT64, new(i64(1), i64(2), null_count=-1))) == ([(1, 2)], [True], [True], [True])
    # Where there are bounds there are values, though as many NULLs are counted as there are rows.
    for kind, high in ((new, i64(2)), (new, None), (old, i64(2))):
        assert nulls(facts(INT64, kind(i64(1), high, null_count=ROWS))) == ([True], [True])


def test_nothing_is_known_where_counts_or_types_contradict_each_other() -> None:
    """Neither that a row is NULL nor that it is none; as where there are no statistics."""
    anything = ([NOTHING], [True], [True], [True])
    assert seen(facts(INT64, None)) == anything
    for null_count in (None, 0):
        found = facts(REQUIRED, new(i64(1), i64(2), null_count=null_count))
        assert seen(found) == ([(1, 2)], [False], [True], [True]), "a required column has no NULLs"
    for null_count in (1, ROWS - 1, ROWS, ROWS + 1, -1):
        assert seen(facts(REQUIRED, new(i64(1), i64(2), null_count=null_count))) == anything, null_count
    told = new(i64(1), i64(2), null_count=0)
    for of, values in product((INT64, REQUIRED), (0, ROWS - 1, ROWS + 1, -1)):
        assert seen(facts(of, told, values=values)) == anything, f"{values} values in {ROWS} rows"
    assert seen(facts(INT64, told, kind=Type.DOUBLE)) == anything, "chunks of another type than the schema's"


# --- what follows for row groups --------------------------------------------------------------------


def kept(path: Path, predicate: str) -> list[int]:
    return [v.row_group for v in parquet_bloom.check(path, predicate) if not v.skipped]


def test_a_required_column_that_claims_to_be_all_null_is_read(tmp_path: Path) -> None:
    path = tmp_path / "required.parquet"
    pq.write_table(pa.table({"id": [1, 2]}, schema=pa.schema([pa.field("id", pa.int64(), nullable=False)])), path)
    with edited_footer(path) as metadata:
        metadata.row_groups[0].columns[0].meta_data.statistics.null_count = 2
    assert kept(path, "id = 1") == kept(path, "id > 0") == [0]


def test_nulls_around_a_dictionary_that_pyarrow_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "struct.parquet"
    inner = pa.array(["a", "b", "a"]).dictionary_encode()
    outer = pa.StructArray.from_arrays([inner], ["v"], mask=pa.array([False, True, False]))
    pq.write_table(pa.table({"s": outer}), path)
    assert kept(path, "s.v IS NULL") == [0]


def test_the_filter_decides_what_bounds_cannot(tmp_path: Path) -> None:
    """The example of the 2015 draft, whose ending was wrong: {12, 14, 16, 17} holds rows of id > 11 AND id < 17."""
    path = tmp_path / "block.parquet"
    pq.write_table(pa.table({"id": pa.array([12, 14, 16, 17], pa.int64())}), path, use_dictionary=False)
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], fpp=0.0001, sync=False)
    for predicate in ("id > 11 AND id < 17", "id = 12", "id > 12 AND id < 15", "id BETWEEN 13 AND 14", "id >= 17"):
        assert kept(path, predicate) == [0], predicate
    for predicate in ("id = 13", "id > 12 AND id < 14", "id IN (13, 15)", "id BETWEEN 15 AND 15"):
        (verdict,) = parquet_bloom.check(path, predicate)
        assert (verdict.skipped, verdict.decided_by) == (True, "filter"), predicate
        (without,) = parquet_bloom.check(path, predicate, use_filters=False)
        assert not without.skipped, f"{predicate}: bounds alone cannot tell"
    for predicate in ("id = 11", "id > 17", "id < 12"):
        (verdict,) = parquet_bloom.check(path, predicate)
        assert (verdict.skipped, verdict.decided_by, verdict.bytes_read) == (True, "bounds", 0), predicate


@pytest.mark.parametrize(("by", "unit"), [("4.24.0 (build 0)", "ms"), ("6.0.3 (build 1)", "us")])
def test_times_of_parquet_net_are_in_another_unit(tmp_path, by: str, unit: str) -> None:
    """Its bounds of timestamps do not look at the column's unit; those of other columns are right."""
    path = tmp_path / "net.parquet"
    day = 1_767_225_600 * {"ms": 10**3, "us": 10**6}[unit]
    table = pa.table({"at": pa.array([day, day + 1], pa.timestamp(unit)), "id": [5, 6]})
    pq.write_table(table, path, store_schema=False, use_dictionary=False)
    with edited_footer(path) as metadata:
        metadata.created_by = f"Parquet.Net version {by}"
        statistics = metadata.row_groups[0].columns[0].meta_data.statistics
        wrong = (day // 1000).to_bytes(8, "little")
        statistics.min = statistics.max = statistics.min_value = statistics.max_value = wrong
    assert parquet_bloom.read_table(path, "at >= TIMESTAMP '2026-01-01 00:00:00'").num_rows == 2
    assert parquet_bloom.read_table(path, "at IS NULL").num_rows == 0
    assert [v.skipped for v in parquet_bloom.check(path, "id = 7")] == [True], "other columns keep their bounds"
    assert [v.skipped for v in parquet_bloom.check(path, "at IS NULL")] == [True], "the count of NULLs is right"
