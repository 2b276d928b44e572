"""Statistics of a Delta log: what each writer cuts off or rounds, and what is too odd to be believed."""

from __future__ import annotations

import datetime as dt
import json
import math
import pickle
import random
import re
import struct
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
from support import delta_tables as made

import parquet_bloom as pb
from parquet_bloom.source.snapshot import FileBounds
from parquet_bloom.tables.delta.actions import Add
from parquet_bloom.tables.delta.statistics import Bounds, Schema, read_schema, rows_of

STAMP = dt.datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
MICROS = (STAMP - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


def schema_of(kind: Any) -> Schema:
    """Of a table with a column x."""
    return read_schema("t", made.metadata([made.field("x", kind)])["metaData"])


def bounds_of(kind: Any, lower: Any, upper: Any, text: bool = True, **more: Any) -> FileBounds | None:
    """The bounds of a column x whose statistics are values for JSON, or (no text) of a checkpoint's columns."""
    told = {"numRecords": 10, "minValues": {"x": lower}, "maxValues": {"x": upper}} | more
    add = Add("a", {}, 1, json.dumps(told)) if text else Add("a", {}, 1, None, told)
    return Bounds(schema_of(kind), add).get(("x",))


def span(kind: Any, lower: Any, upper: Any, text: bool = True) -> tuple[Any, Any]:
    found = bounds_of(kind, lower, upper, text)
    return (None, None) if found is None else (found.lower, found.upper)


# --- timestamps -----------------------------------------------------------------------------------


CUT = [  # to milliseconds, or not
    ("timestamp", "2026-01-01T12:00:00.123Z"),
    ("timestamp", "2026-01-01T12:00:00.123456Z"),
    ("timestamp", "2026-01-01 12:00:00.123Z"),
    ("timestamp", "2026-01-01T14:00:00.123+02:00"),
    ("timestamp", "2026-01-01T06:30:00.123-0530"),
    ("timestamp_ntz", "2026-01-01T12:00:00.123"),
    ("timestamp_ntz", "2026-01-01T12:00:00.123Z"),
    ("timestamp_ntz", "2026-01-01 12:00:00.1234"),
]


def test_timestamps_that_were_cut_to_milliseconds_still_hold_the_value():
    for kind, text in CUT:
        lower, upper = span(kind, text, text)
        assert lower <= MICROS <= upper, text
        assert upper - lower <= 2000, "and not much more"
    lower, upper = span("timestamp", "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z")
    assert lower <= -1500 <= upper, "-1.5 ms were cut to -1 ms"


def test_a_zone_whose_offset_has_seconds_loses_them():
    value = dt.datetime(1912, 5, 5, tzinfo=dt.UTC)
    for offset in (1172, -2670, -52):  # Amsterdam to 1937, Monrovia to 1972, Accra to 1915
        minutes = int(offset / 60)
        there = (value + dt.timedelta(seconds=offset)).strftime("%Y-%m-%dT%H:%M:%S.000")
        zone = f"{'-' if offset < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}" if minutes else "Z"
        lower, upper = span("timestamp", there + zone, there + zone)
        assert lower <= (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1) <= upper


def test_timestamps_of_columns_have_the_same_trap():
    lower, upper = span("timestamp", STAMP.replace(microsecond=123000), STAMP.replace(microsecond=123000), False)
    assert lower <= MICROS <= upper
    naive = STAMP.replace(microsecond=123000, tzinfo=None)
    lower, upper = span("timestamp_ntz", naive, naive, False)
    assert lower <= MICROS <= upper
    assert span("timestamp", naive, naive, False) == (None, None)


NOWHERE = ["2026-01-01T12:00:00.123", "2026-01-01", "+10000-01-01T00:00:00.000Z", "12026-01-01T00:00:00.000Z"]
NOWHERE += ["2026-02-30T00:00:00.000Z", "noon", 5]


def test_timestamps_that_nobody_can_place_are_not_known():
    for text in NOWHERE:
        assert span("timestamp", text, text) == (None, None), text
    assert span("timestamp_ntz", *["2026-01-01T12:00:00.123+02:00"] * 2) == (None, None)


# --- texts ----------------------------------------------------------------------------------------


def test_a_greatest_text_covers_what_it_is_the_start_of():
    value = "k" * 40
    for length in (1, 31, 32, 33):
        for behind in ("", "\x7f", "\U0010ffff", "z"):
            lower, upper = span("string", value[:length], value[:length] + behind)
            assert lower <= value.encode() <= upper, (length, behind)
            assert upper < b"l" + b"k" * length, "a text that begins otherwise lies above"


def test_a_text_that_was_cut_within_a_character_ends_before_it():
    for value in ("中" * 40, "\U0001f600" * 40, "é" * 40):
        raw, units = value.encode(), value.encode("utf-16-le", "surrogatepass")
        texts = [raw[:cut].decode(errors="replace") for cut in range(1, 70)]  # U+FFFD for the rest
        texts += [units[: 2 * cut].decode("utf-16-le", "surrogatepass") for cut in range(1, 40)]  # as the JVM cuts
        for text in texts:
            lower, upper = span("string", text, text)
            assert lower <= raw <= upper, text


def truncated_by_old_spark(value: str, length: int) -> tuple[str, str]:
    """Least and greatest text as Delta made them of one that is longer, before it heeded pairs."""
    data = value.encode("utf-16-le", "surrogatepass")
    units = [data[i : i + 2] for i in range(0, len(data), 2)]
    kept, rest = units[:length], units[length:]
    while rest and int.from_bytes(rest[0], "little") >= 0xFFFD:
        kept.append(rest.pop(0))
    texts = [b"".join(some).decode("utf-16-le", "surrogatepass") for some in (units[:length], kept)]
    lower, upper = (re.sub("[\ud800-\udfff]", "?", text) for text in texts)  # String.getBytes of half a pair
    return lower, upper + "\ufffd"


def test_half_a_pair_that_java_made_a_question_mark_covers_the_pair():
    pairs = ("\U0001f600", "\U0001f600?\U0010ffff", "\ufffe\U00010000", "?\ufffd\U0001f600")
    for fill, pair, before in product(("a", "?", "\uffff", "\ue000", "é"), pairs, range(8)):
        value = fill * before + pair + "tail"
        for length in range(1, min(8, len(value.encode("utf-16-le")) // 2)):
            lower, upper = span("string", *truncated_by_old_spark(value, length))
            assert lower <= value.encode() <= upper, (value, length)
    assert span("string", "a", "a?\ufffd") == (b"a", b"a\xff")
    assert span("string", "a?\ufffd", "b?") == (b"a?", b"b?\xff"), "a least text is below the pair as it is"


def test_an_empty_text_is_a_bound_and_others_are_none():
    assert span("string", "", "") == (b"", b"\xff")
    assert span("string", 5, ["a"]) == (None, None)
    assert span("binary", "a", "b") == (None, None), "nobody agrees how bytes are texts"


# --- numbers --------------------------------------------------------------------------------------


def test_integers_are_exact_or_not_known():
    assert span("long", -(2**63), 2**63 - 1) == (-(2**63), 2**63 - 1)
    assert span("long", 1.0, 5e3) == (1, 5000)
    assert span("long", 9.007199254740993e15, 2.0**60) == (None, None), "a double may have lost the last digits"
    assert span("long", 1.5, True) == (None, None)
    assert span("integer", "1", "5") == (None, None)


def test_decimals_that_went_through_a_double_hold_the_value():
    for rng in map(random.Random, range(50)):
        scale = rng.randint(0, 20)
        unscaled = rng.choice([rng.randrange(10**38), rng.randrange(10**16), 10 ** rng.randint(0, 37) - 1, 10**15 + 1])
        unscaled *= rng.choice([1, -1])
        # Divided, it is rounded in another place.
        for double in (float(Decimal(unscaled).scaleb(-scale, made.WIDE)), unscaled / 10**scale):
            lower, upper = span(f"decimal(38,{scale})", double, double)
            assert lower <= unscaled <= upper


def test_decimals_of_few_digits_are_exact():
    assert span("decimal(10,2)", 1.5, 12345678.91) == (150, 1234567891)
    assert span("decimal(5,2)", 0.005, 0.005) == (0, 1), "what lies between two values bounds both ways"
    assert span("decimal(5,2)", Decimal("1.50"), Decimal("2.50"), False) == (150, 250)
    text = '{"numRecords":1,"minValues":{"x":12345678901234567890.1234567891},"maxValues":{"x":NaN}}'
    found = Bounds(schema_of("decimal(38,10)"), Add("a", {}, 1, text))[("x",)]
    assert found.lower == 123456789012345678901234567891, "digits are read as they stand"


def test_floats_hold_the_value_however_they_are_written():
    for rng in map(random.Random, range(50)):
        [double] = struct.unpack("<d", rng.randbytes(8))
        [single] = struct.unpack("<f", rng.randbytes(4))
        if math.isfinite(double):
            for text in (repr(double), f"{double:.17g}"):
                lower, upper = span("double", float(text), float(text))
                assert lower <= math.nextafter(double, -math.inf), "a reader of numbers may be one step off"
                assert upper >= math.nextafter(double, math.inf)
        if math.isfinite(single):
            shortest = float(str(np.float32(single)))
            for value in (single, shortest):
                lower, upper = span("float", value, value)
                assert lower <= single <= upper


def test_infinity_and_nan_are_no_numbers_of_json():
    assert span("double", "-Infinity", "Infinity") == (-math.inf, math.inf)
    assert span("double", "NaN", "NaN") == (None, None)
    assert span("double", 1.0, "NaN")[1] is None, "to Spark NaN is the greatest"
    assert span("float", 1.0, 1e300)[1] == math.inf
    found = bounds_of("double", 1.0, 2.0)
    assert found is not None
    assert not found.nan_free, "deltalake leaves NaN out of both"


def test_days_and_flags():
    assert span("date", "1970-01-02", "9999-12-31") == (1, 2932896)
    assert span("date", dt.date(1970, 1, 2), dt.date(1970, 1, 2), False) == (1, 1)
    assert span("date", "1970-01-02T00:00:00Z", 5) == (None, None)
    lower, upper = span("date", "0001-01-01", "0001-01-01")
    assert lower <= -719164 <= -719162 <= upper, "by the Julian calendar it is two days earlier"
    lower, upper = span("timestamp_ntz", "0001-01-01T00:00:00", "0001-01-01T00:00:00")
    assert lower <= -719164 * 86_400_000_000 <= upper
    assert span("boolean", False, True) == (0, 1)
    assert span("boolean", 0, "true") == (None, None)


# --- counts and odd statistics --------------------------------------------------------------------


def test_counts_of_null():
    for nulls in (0, 3, 10):  # 10 of 10: but bounds say that there is a value
        assert bounds_of("long", 1, 2, nullCount={"x": nulls}) == FileBounds(1, 2, nulls)
    for wrong in (11, -1, "3", True, {"x": 1}):
        assert bounds_of("long", 1, 2, nullCount={"x": wrong}) == FileBounds(1, 2), wrong
    assert bounds_of("long", None, None, nullCount={"x": 10}) == FileBounds(null_count=10, has_values=False)
    assert bounds_of("long", None, None, nullCount={"x": 10}, tightBounds=False) == FileBounds(has_values=False)
    assert bounds_of("long", None, None, nullCount={"x": 10}, numRecords=None) is None

    assert bounds_of("long", 5, 1) is None, "they contradict each other"


def test_counts_of_null_within_a_struct_are_believed_for_numbers_alone():
    fields = [made.field("st", {"type": "struct", "fields": [made.field("x", "long"), made.field("y", "string")]})]
    schema = read_schema("t", made.metadata(fields)["metaData"])
    told = {"numRecords": 3, "nullCount": {"st": {"x": 0, "y": 0}}, "minValues": {"st": {"x": 1, "y": "a"}}}
    found = Bounds(schema, Add("a", {}, 1, json.dumps(told)))
    assert dict(found) == {("st", "x"): FileBounds(1, None, 0), ("st", "y"): FileBounds(b"a")}


def test_statistics_that_are_none_say_nothing():
    for text in ("", "{", "[]", "5", "null", '{"numRecords":"5"}', '{"minValues":5,"maxValues":{"x":{}}}'):
        add = Add("a", {}, 1, text or None)
        assert rows_of(add) is None, text
        assert dict(Bounds(schema_of("long"), add)) == {}, text


ROWS = {
    '{"numRecords":5}': 5,
    ' { "numRecords" : 5 , "minValues":{}}': 5,
    '{"minValues":{"numRecords":7},"numRecords":5}': 5,
    '{"minValues":{"numRecords":7}}': None,
    '{"numRecords":5.5}': None,
    '{"numRecords":-5}': None,
}


def test_the_count_of_rows_is_the_one_of_the_file():
    assert {text: rows_of(Add("a", {}, 1, text)) for text in ROWS} == ROWS


def test_bounds_of_a_file_can_be_sent_to_another_process():
    bounds = Bounds(schema_of("long"), Add("a", {}, 1, '{"numRecords":1,"minValues":{"x":1}}'))
    assert dict(pickle.loads(pickle.dumps(bounds))) == dict(bounds) == {("x",): FileBounds(1)}


# --- what no writer writes ------------------------------------------------------------------------

DIGITS = "9" * 5000
ODD = [
    DIGITS, f'{{"numRecords":{DIGITS}}}', f'{{"numRecords": 10, "maxValues": {{"x": {DIGITS}}}}}',
    '{"numRecords": 10, "minValues": {"x": 1e999999999}, "maxValues": {"x": 1e999999999}}',
    '{"numRecords": 10, "minValues": {"x": -1e-999999999}, "maxValues": {"x": 1e-999999999}}',
    f'{{"numRecords": 10, "minValues": {{"x": {"9" * 4000}}}, "maxValues": {{"x": "{DIGITS}"}}}}',
    f'{{"numRecords": 10, "nullCount": {{"x": {"9" * 4000}}}}}',
    '{"numRecords": "10", "maxValues": [], "minValues": "x", "nullCount": 5}', "[" * 100_000, '{"a":' * 100_000, "5",
    {}, {"numRecords": 10}, [], 5, 1.5, True,
]  # fmt: skip


EVERY_KIND = ["long", "double", "float", "decimal(38,2)", "string", "date", "timestamp", "boolean"]


def test_statistics_that_no_writer_writes_say_nothing_false():
    for kind, stats in product(EVERY_KIND, ODD):
        schema, add = schema_of(kind), Add("a", {}, 1, stats)
        assert rows_of(add) in (None, 10), str(stats)[:40]
        found = Bounds(schema, add).get(("x",))
        if found is not None and kind == "long":
            assert all(bound is None or -(2**63) <= bound < 2**63 for bound in (found.lower, found.upper))
    for kind, parsed in product(EVERY_KIND, (5, [], "x", {"numRecords": [], "minValues": {"x": []}})):
        add = Add("a", {}, 1, None, parsed)
        assert rows_of(add) is None
        assert Bounds(schema_of(kind), add).get(("x",)) is None


def test_tables_with_such_statistics_are_read_as_if_they_had_none(tmp_path):
    action = made.file_of(tmp_path, "a.parquet", pa.table({"x": pa.array(range(10), pa.int64())}))
    for stats in ODD:
        action["add"]["stats"] = stats
        made.commit(tmp_path, 0, made.protocol(), made.metadata([made.field("x", "long")]), action)
        assert pb.read_table(f"delta:{tmp_path}", "x = 3")["x"].to_pylist() == [3], str(stats)[:40]
        assert pb.count(f"delta:{tmp_path}") == 10, str(stats)[:40]
