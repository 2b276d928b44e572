"""No row of a file lies outside what an Iceberg log says of it: brute force over tables of all types and transforms."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from support.iceberg_tables import Warehouse, append, by_text, entries, live_rows, number, stored_rows
from support.repeats import first_then_more

from parquet_bloom.format.values import operand
from parquet_bloom.source.columns import leaves_of
from parquet_bloom.source.snapshot import FileBounds, Snapshot
from parquet_bloom.tables.iceberg.evidence import FileMetrics, HashBucket, evidence_of, parts_of
from parquet_bloom.tables.iceberg.schema import NameHistory, columns_of, fields_of

NAMED = NameHistory([], None)  # no name was another column's
LETTERS = "aäβz~\uffff\U0001f600\U0010ffff"


def text(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.choice([0, 1, 3, 15, 16, 17, 40])))


def instant(rng: random.Random) -> dt.datetime:
    whole = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=rng.randint(-(10**16), 10**16))
    return rng.choice([whole, dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1)])


TYPES: dict[str, tuple[Any, Any]] = {
    "int": (IntegerType(), lambda r: r.choice([0, -1, 2**31 - 1, -(2**31), r.randint(-50, 50)])),
    "long": (LongType(), lambda r: r.choice([0, -1, 2**63 - 1, -(2**63), r.randint(-50, 50)])),
    "float": (FloatType(), lambda r: r.choice([0.0, -0.0, math.inf, -math.inf, math.nan, r.randint(-9, 9) / 4])),
    "double": (DoubleType(), lambda r: r.choice([0.0, -0.0, math.inf, -math.inf, math.nan, r.gauss(0, 9)])),
    "boolean": (BooleanType(), lambda r: r.random() < 0.5),
    "date": (DateType(), lambda r: instant(r).date()),
    "time": (TimeType(), lambda r: instant(r).time()),
    "timestamp": (TimestampType(), instant),
    "timestamptz": (TimestamptzType(), lambda r: instant(r).replace(tzinfo=dt.UTC)),
    "string": (StringType(), text),
    "binary": (BinaryType(), lambda r: r.choice([b"", b"\xff" * 20, b"a" * 16 + b"\xff" * 3, r.randbytes(20)])),
    "fixed": (FixedType(4), lambda r: r.randbytes(4)),
    "uuid": (UUIDType(), lambda r: uuid.UUID(int=r.getrandbits(128)).bytes),
    "decimal": (DecimalType(9, 2), lambda r: Decimal(r.randint(-(10**9) + 1, 10**9 - 1)).scaleb(-2)),
    "wide decimal": (
        DecimalType(30, 5),
        lambda r: Decimal(f"{r.randint(-(10**25) + 1, 10**25 - 1)}.{r.randint(0, 10**5 - 1):05}"),
    ),
}
TRANSFORMS = {
    "identity": IdentityTransform(),
    "bucket": BucketTransform(3),
    "truncate": TruncateTransform(10),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
    "void": VoidTransform(),
}
PAIRS = [(kind, t) for kind, (kind_of, _) in TYPES.items() for t in TRANSFORMS if TRANSFORMS[t].can_transform(kind_of)]


def outside(snapshot: Snapshot) -> list[str]:
    """The rows of all files that lie outside what the snapshot says of them."""
    wrong = []
    leaves = {leaf.path: leaf for leaf in leaves_of(snapshot.fields)}
    for file in snapshot.files:
        stored = stored_rows(file)
        for path, told in file.bounds.items():
            if leaves[path].repeated or path[0] not in stored.column_names:
                continue
            values = [
                value if len(path) == 1 or value is None else value[path[1]] for value in stored[path[0]].to_pylist()
            ]
            wrong += [f"{path}: {value!r} {told}" for value in values if not admits(told, value, leaves[path])]
            nulls = sum(value is None for value in values)
            if told.null_count is not None and told.null_count != nulls:
                wrong.append(f"{path}: {nulls} NULLs, {told}")
        for bucket in file.buckets:
            for value in stored[bucket.path[0]].to_pylist():
                if value is not None and not bucket.admits(leaves[bucket.path], operand(value, leaves[bucket.path])):
                    wrong.append(f"{bucket} {value!r}")
        for name, constant in file.constants.items():
            told = repr(constant.as_py())
            wrong += [f"{name} {told} {v!r}" for v in stored[name].to_pylist() if repr(v) != told]
    return wrong


def admits(told: FileBounds, value: Any, leaf: Any) -> bool:
    if value is None:
        return told.null_count != 0
    if not told.has_values:
        return False
    if isinstance(value, float) and math.isnan(value):
        return not told.nan_free or told.lower is None
    means = operand(value, leaf)
    assert means.known, "the test must know where a value lies"
    return (told.lower is None or told.lower <= means.lower) and (told.upper is None or means.upper <= told.upper)


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """A catalog for the tables of all tests."""
    made = Warehouse(tmp_path_factory.mktemp("lake"))
    yield made
    made.close()


def create(warehouse: Warehouse, kinds: list[str], transforms: list[tuple[str, str]]) -> str:
    """A table of a new name, which it returns."""
    fields = [NestedField(i + 1, kind, TYPES[kind][0]) for i, kind in enumerate(kinds)]
    parts = [
        PartitionField(kinds.index(kind) + 1, 1000 + i, TRANSFORMS[how], f"{kind}_{how}")
        for i, (kind, how) in enumerate(transforms)
    ]
    name = f"ns.t{len(warehouse.catalog.list_tables('ns'))}"
    warehouse.create(Schema(*fields), name, partition_spec=PartitionSpec(*parts))
    return name


def some_rows(rng: random.Random, kinds: list[str], n: int) -> list[dict[str, Any]]:
    return [{kind: None if rng.random() < 0.15 else TYPES[kind][1](rng) for kind in kinds} for _ in range(n)]


@pytest.mark.parametrize("kind", TYPES)
def test_no_row_is_outside_its_partition(warehouse: Warehouse, kind: str) -> None:
    for how in (how for known, how in PAIRS if known == kind):
        rng = random.Random(f"{kind} {how}")
        name = create(warehouse, [kind], [(kind, how)])
        rows = [row for row in some_rows(rng, [kind], 24) if fits(row[kind], kind, how)]
        append(warehouse.load(name), rows)
        snapshot = warehouse.read(name)
        assert outside(snapshot) == [], f"{how}: a file would be skipped that has the row"
        assert by_text(live_rows(snapshot)) == by_text(rows), how
        if how not in ("void", "bucket"):
            assert any(file.bounds.get((kind,)) for file in snapshot.files), f"{how}: a partition value is evidence"


def fits(value: Any, kind: str, how: str) -> bool:
    """Whether pyiceberg can write the partition: its truncation of the lowest numbers leaves their type."""
    return how != "truncate" or kind not in ("int", "long") or value is None or abs(value) < 2**31 - 1


@pytest.mark.parametrize("seed", first_then_more(range(3), 2))
def test_no_row_is_outside_of_random_tables(warehouse: Warehouse, seed: int) -> None:
    rng = random.Random(seed)
    kinds = rng.sample(list(TYPES), 8)
    pairs = [pair for pair in PAIRS if pair[0] in kinds and pair[1] != "truncate"]
    name = create(warehouse, kinds, rng.sample(pairs, 2))
    written = []
    for rows in (5, 30):
        written += (more := some_rows(rng, kinds, rows))
        append(warehouse.load(name), more, row_group_size=rng.choice([4, 100]))
        with warehouse.load(name).update_spec() as change:
            kind, how = rng.choice([pair for pair in pairs if pair[1] != "void"])
            change.add_field(kind, TRANSFORMS[how], f"more_{rows}")
    snapshot = warehouse.read(name)
    assert outside(snapshot) == []
    assert by_text(live_rows(snapshot)) == by_text(written)


def test_bounds_of_the_log_are_used_and_hold(warehouse: Warehouse) -> None:
    name = create(warehouse, list(TYPES), [])
    append(warehouse.load(name), some_rows(random.Random(7), list(TYPES), 200))
    snapshot = warehouse.read(name)
    [file] = snapshot.files
    assert outside(snapshot) == []
    known = {path[0] for path, told in file.bounds.items() if told.lower is not None}
    assert known >= {"int", "long", "float", "date", "time", "timestamp", "string", "binary", "decimal"}
    assert {told.null_count for told in file.bounds.values()} - {0, None}, "counts of NULL come along"


def test_no_text_is_lost_to_a_row_group_without_bounds(warehouse: Warehouse) -> None:
    """pyiceberg 0.12 leaves row groups without bounds out of a file's, which are those with texts of more than 4 KB."""
    name = create(warehouse, ["string", "int"], [])
    rows = [{"string": value, "int": 1} for value in ["a"] * 4 + ["z" * 5000] * 4]
    append(warehouse.load(name), rows, row_group_size=4)
    snapshot = warehouse.read(name)
    [entry] = entries(warehouse.load(name))
    assert entry.data_file.upper_bounds[1] == b"a", "the log says what is not so"
    assert outside(snapshot) == []
    assert snapshot.files[0].bounds[("int",)].upper == 1, "other bounds stay evidence"


# --- single values --------------------------------------------------------------------------------

HASHED = {kind: pair for kind, pair in TYPES.items() if BucketTransform(7).can_transform(pair[0])}


def leaf_of(kind: Any) -> Any:
    [leaf] = leaves_of(fields_of(Schema(NestedField(1, "x", kind)), NAMED, "t"))
    return leaf


def test_buckets_are_those_of_pyiceberg() -> None:
    for kind, (kind_of, make) in HASHED.items():
        rng, leaf, bucket_of = random.Random(kind), leaf_of(kind_of), BucketTransform(7).transform(kind_of)
        for _ in range(100):
            value = make(rng)
            right = bucket_of(number(value))
            admitting = [n for n in range(7) if HashBucket(("x",), 7, n).admits(leaf, operand(value, leaf))]
            assert admitting == [right], f"{kind}: {value!r} lies in one bucket"


HASHES: list[tuple[Any, Any, int]] = [  # Iceberg table spec, Appendix B
    (IntegerType(), 34, 2017239379),
    (LongType(), 34, 2017239379),
    (DecimalType(4, 2), Decimal("14.20"), -500754589),
    (DateType(), dt.date(2017, 11, 16), -653330422),
    (TimeType(), dt.time(22, 31, 8), -662762989),
    (TimestampType(), dt.datetime(2017, 11, 16, 22, 31, 8), -2047944441),
    (TimestampNanoType(), dt.datetime(2017, 11, 16, 22, 31, 8), -2047944441),
    (StringType(), "iceberg", 1210000089),
    (UUIDType(), uuid.UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340),
    (FixedType(4), b"\x00\x01\x02\x03", -188683207),
    (BinaryType(), b"\x00\x01\x02\x03", -188683207),
]


def test_hashes_are_those_of_the_specification() -> None:
    count = 2**31 - 1
    for kind, value, hashed in HASHES:
        leaf, bucket = leaf_of(kind), HashBucket(("x",), count, (hashed & 0x7FFFFFFF) % count)
        assert bucket.admits(leaf, operand(value, leaf)), kind
        assert not HashBucket(("x",), count, bucket.number + 1).admits(leaf, operand(value, leaf)), kind
    leaf, bucket = leaf_of(LongType()), HashBucket(("x",), 4, 0)
    assert bucket.admits(leaf, operand(1.5, leaf)), "it lies between two integers"
    assert bucket.admits(leaf, operand("x", leaf)), "it is no number"


def evidence(kind_of: Any, transform: Any, value: Any, nulls: int | None = None) -> FileBounds:
    schema = Schema(NestedField(1, "x", kind_of))
    columns = columns_of(schema, fields_of(schema, NAMED, "t"), NAMED)
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"))
    counts = {} if nulls is None else {1: nulls}
    return evidence_of(parts_of(spec), (value,), columns, 5, counts).bounds.get(("x",), FileBounds())


def test_truncation_that_runs_over_tells_nothing() -> None:
    low = -(2**31)  # Java: low - (low mod 10) is beyond the least int, and becomes one of the greatest
    wrapped = (low - low % 10) + 2**32
    told = evidence(IntegerType(), TruncateTransform(10), wrapped)
    assert told.lower is None, "the file may hold the least int"
    assert evidence(IntegerType(), TruncateTransform(10), 20) == FileBounds(20, 29)


def test_a_text_as_long_as_its_truncation_may_go_on() -> None:
    told = evidence(StringType(), TruncateTransform(2), "ab")
    assert told.lower == b"ab" < b"ab\xff" < told.upper, "all that begin with it"
    assert evidence(StringType(), TruncateTransform(20), "ab") == FileBounds(b"ab", b"ab"), "nothing was cut"
    told = evidence(StringType(), TruncateTransform(1), "\U0001f600")
    assert told.upper > "\U0001f600z".encode(), "some writers count other units than code points"
    assert evidence(BinaryType(), TruncateTransform(1), b"\xff").upper is None, "nothing is above"


def test_spans_before_1970_may_hold_rows_of_the_span_before() -> None:
    year = evidence(DateType(), YearTransform(), -1)
    assert (year.lower, year.upper) == (-731, -1), "old writers rounded 1968 up to -1"
    assert evidence(DateType(), YearTransform(), 1).lower == 365, "from 1971 on all agree"
    assert evidence(TimestampType(), HourTransform(), 2) == FileBounds(7_200_000_000, 10_799_999_999)
    nanos = evidence(TimestampNanoType(), DayTransform(), 1)
    assert (nanos.lower, nanos.upper) == (86_400 * 10**9, 2 * 86_400 * 10**9 - 1)


def test_a_null_partition_has_nulls_alone_but_under_void() -> None:
    for transform in (IdentityTransform(), BucketTransform(3), TruncateTransform(3)):
        told = evidence(LongType(), transform, None, 5)
        assert (told.has_values, told.null_count) == (False, 5)
        for nulls in (None, 0, 4, 6):
            assert evidence(LongType(), transform, None, nulls) == FileBounds(), "the log's count does not agree"
    assert evidence(LongType(), VoidTransform(), None, 5).has_values
    assert evidence(LongType(), UnknownTransform("of tomorrow"), None, 5).has_values, "nobody knows what it says"


# --- bounds in Iceberg's bytes --------------------------------------------------------------------


def log_bounds(kind_of: Any, cut: int = 16, **told: Any) -> FileBounds:
    schema = Schema(NestedField(1, "x", kind_of))
    columns = columns_of(schema, fields_of(schema, NAMED, "t"), NAMED)
    given = {name: {1: value} for name, value in told.items() if name not in ("split_offsets", "java")}
    file = DataFile.from_args(
        content=DataFileContent.DATA, file_path="p", file_format=FileFormat.PARQUET, partition=Record(), record_count=9,
        file_size_in_bytes=1, split_offsets=told.get("split_offsets", [4]), **given,
    )  # fmt: skip
    by_leaf = {column.leaf.path: column for column in columns.values()}
    return FileMetrics(file, by_leaf, {}, (), cut, told.get("java", False)).get(("x",), FileBounds())


def test_bounds_of_promoted_columns_are_of_the_old_type() -> None:
    told = log_bounds(LongType(), lower_bounds=struct.pack("<i", -5), upper_bounds=struct.pack("<i", 7))
    assert (told.lower, told.upper) == (-5, 7)
    told = log_bounds(DoubleType(), lower_bounds=struct.pack("<f", 0.5), upper_bounds=struct.pack("<d", 7.0))
    assert (told.lower, told.upper) == (0.5, 7.0)
    told = log_bounds(DecimalType(20, 2), lower_bounds=b"\xff", upper_bounds=b"\x01\x00")
    assert (told.lower, told.upper) == (-1, 256)
    told = log_bounds(TimestampType(), lower_bounds=struct.pack("<i", 3))
    assert told.lower is None, "days are no microseconds"


def test_a_cut_upper_bound_need_not_be_rounded_up() -> None:
    told = log_bounds(StringType(), lower_bounds=b"a", upper_bounds=b"b" * 16)
    assert told.upper > b"b" * 16 + b"zzz", "a writer may have cut it and no more"
    assert log_bounds(StringType(), upper_bounds=b"b").upper == b"b"
    assert log_bounds(StringType(), cut=1, upper_bounds=b"b").upper == b"c", "this table lets bounds be cut to 1"


def test_texts_of_several_row_groups_count_where_java_wrote_them() -> None:
    told = {"lower_bounds": b"a", "upper_bounds": b"b"}
    assert log_bounds(StringType(), split_offsets=[4, 99], **told).upper is None
    assert log_bounds(StringType(), split_offsets=None, **told).upper is None
    assert log_bounds(StringType(), split_offsets=[4, 99], java=True, **told).upper == b"b"
    assert log_bounds(StringType(), split_offsets=None, java=True, **told).upper is None, "taken in by add_files"


def test_bounds_that_contradict_each_other_tell_nothing() -> None:
    told = log_bounds(IntegerType(), lower_bounds=struct.pack("<i", 7), upper_bounds=struct.pack("<i", -5))
    assert (told.lower, told.upper) == (None, None)
    nan = struct.pack("<d", math.nan)
    assert log_bounds(DoubleType(), lower_bounds=nan).lower is None
    assert log_bounds(IntegerType(), lower_bounds=b"abc").lower is None, "not four bytes"


def test_uuids_may_have_been_compared_as_signed_numbers() -> None:
    low, high = bytes(8) + b"\x90" * 8, bytes(7) + b"\x01" + b"\x10" * 8
    told = log_bounds(UUIDType(), lower_bounds=low, upper_bounds=high)
    assert told.lower == bytes(16), "in the first half's tie, the second half's order may be the other way"
    assert told.upper == bytes(7) + b"\x01" + b"\xff" * 8


def test_counts_that_do_not_fit_tell_nothing() -> None:
    assert log_bounds(LongType(), null_value_counts=9, value_counts=9) == FileBounds(None, None, 9, False, True)
    assert log_bounds(LongType(), null_value_counts=9, value_counts=8).null_count is None
    assert log_bounds(LongType(), null_value_counts=10, value_counts=9).null_count is None
    assert log_bounds(DoubleType(), null_value_counts=0).nan_free is False, "nobody counted NaN"
    assert log_bounds(DoubleType(), nan_value_counts=0).nan_free is True
    assert log_bounds(DoubleType(), nan_value_counts=1).nan_free is False


def test_counts_of_nested_columns_are_not_trusted(warehouse: Warehouse) -> None:
    inner = StructType(NestedField(2, "x", LongType()))
    schema = Schema(NestedField(1, "s", inner), NestedField(3, "l", ListType(4, LongType(), False)))
    rows = [{"s": {"x": 4}, "l": [1]}, {"s": None, "l": []}, {"s": {"x": None}, "l": None}]
    warehouse.filled(rows, schema=schema, name="ns.nested")
    snapshot = warehouse.read("ns.nested")
    assert outside(snapshot) == []
    for told in snapshot.files[0].bounds.values():
        assert told.null_count is None, "writers count NULLs around a value differently"
        assert told.has_values
