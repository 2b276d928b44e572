"""One data set by six writers: a literal means the same in all files, whatever physical type each has chosen.

    dec18   FIXED_LEN_BYTE_ARRAY(8) by pyarrow, INT64 by DuckDB, Polars and DataFusion, DOUBLE by fastparquet
    time    microseconds by pyarrow, nanoseconds by Polars         text   STRING, by a ConvertedType alone in DuckDB

mixed.PHYSICAL says it of all columns and writers. Where a writer's column is of another kind, which pyarrow's
cast rounds or reads otherwise, its file is read always. (tests/spark/test_mixed_writers.py adds Spark.)
"""

from __future__ import annotations

import datetime as dt
import re
import uuid
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.footers import edited_footer

import parquet_bloom
from engines.mixed import COLUMNS, NOON, ROWS, WRITE, WRITERS, described_of, numbers, table, text_of
from parquet_bloom.errors import RequestError
from parquet_bloom.format.literals import as_literal, spelled
from parquet_bloom.format.values import described
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.text import parse
from parquet_bloom.storage.open_file import OpenFile

# (column, writer) of another kind than the others': what is said of it, if the first file is pyarrow's.
OTHER_KIND = {
    ("f16", "fastparquet"): "f16 is FLOAT, but FIXED_LEN_BYTE_ARRAY(2) FLOAT16 in the first file",
    ("dec9", "fastparquet"): "dec9 is DOUBLE, but FIXED_LEN_BYTE_ARRAY(4) DECIMAL(9, 2) in the first file",
    ("dec18", "fastparquet"): "dec18 is DOUBLE, but FIXED_LEN_BYTE_ARRAY(8) DECIMAL(18, 2) in the first file",
    ("dec38", "fastparquet"): "dec38 is DOUBLE, but FIXED_LEN_BYTE_ARRAY(16) DECIMAL(38, 2) in the first file",
    ("uid", "polars"): "uid is BYTE_ARRAY, but FIXED_LEN_BYTE_ARRAY(16) UUID in the first file",
    ("uid", "datafusion"): "uid is FIXED_LEN_BYTE_ARRAY(16), but FIXED_LEN_BYTE_ARRAY(16) UUID in the first file",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each writer, with filters; those that no writer makes are ours."""
    folder = tmp_path_factory.mktemp("mixed")
    made = {}
    for at, writer in enumerate(WRITERS):
        path = folder / f"{writer}.parquet"
        missing = [name for name in COLUMNS if described_of(writer, name) is None]
        WRITE[writer](table(at).drop_columns(missing), path)
        names = [name for name in COLUMNS if name not in missing]
        parquet_bloom.add_filters(path, in_place=True, columns=names, fpp=0.0001, sync=False)
        made[writer] = path
    return made


def test_the_writers_differ_in_their_types(files: dict[str, Path]) -> None:
    """What the tests below are about; a writer that changes its mind is to be looked at again."""
    by_converted_type: dict[str, set[str]] = {}
    for writer, path in files.items():
        with OpenFile(path) as source:
            leaves = {leaf.path[0]: described(leaf) for leaf in source.footer().leaves if leaf.path != ("row",)}
            schema = source.footer().metadata.schema
        assert leaves == {name: said for name in COLUMNS if (said := described_of(writer, name)) is not None}
        by_converted_type[writer] = {e.name for e in schema[1:] if e.converted_type is not None and not e.logicalType}
    assert {"text", "day"} <= by_converted_type["duckdb"]
    assert "text" in by_converted_type["fastparquet"]
    assert not by_converted_type["pyarrow"]


def stored(column: str, i: int) -> list[int]:
    """The rows that hold a value, by brute force; a column that a file lacks is NULL there."""
    return [
        ROWS * at + numbers(at).index(i)
        for at, writer in enumerate(WRITERS)
        if i in numbers(at) and described_of(writer, column) is not None
    ]


def silent(column: str, writer: str, first: str) -> bool:
    """Whether the literal says nothing about a writer's file."""
    if column == "uid":  # a uuid's text is bytes to some, and not to others
        return not {described_of(writer, column), described_of(first, column)} <= {
            None,
            "FIXED_LEN_BYTE_ARRAY(16) UUID",
        }
    here, there = ((column, one) in OTHER_KIND for one in (writer, first))
    return here != there and described_of(writer, column) is not None


# Of each writer's values the second, which lies between the bounds of all files, and one in no file.
ASKED = [*(2 * (at + len(WRITERS)) for at in range(len(WRITERS))), 2 * len(WRITERS) + 5]


# (column, writer of the first file): pyarrow, and writers with another type of the same kind; of another kind, uuids or
# the name would be of another kind in all files.
FIRST = [(column, "pyarrow") for column in COLUMNS] + [
    (column, first)
    for column in COLUMNS
    for first in ("duckdb", "polars")
    if described_of(first, column) not in (None, described_of("pyarrow", column)) and (column, first) not in OTHER_KIND
]


@pytest.mark.parametrize("first_writer", ["pyarrow", "duckdb", "polars"])
def test_every_writers_file_is_skipped_by_the_same_literals(files: dict[str, Path], first_writer: str) -> None:
    for column in [column for column, writer in FIRST if writer == first_writer]:
        order = [first_writer, *(writer for writer in WRITERS if writer != first_writer)]
        paths = [files[writer] for writer in order]
        for turn, i in enumerate(ASKED, FIRST.index((column, first_writer))):
            text, value = text_of(column, i), COLUMNS[column][1](i)
            rows = stored(column, i)
            holders = {WRITERS[row // ROWS] for row in rows}
            kept = {str(files[one]) for one in order if one in holders or silent(column, one, first_writer)}
            verdicts = parquet_bloom.check(paths, text)
            assert {v.path for v in verdicts if not v.skipped} == kept, text
            assert not verdicts.failed, text
            named = {"column": column, "values": [value]} if turn % 2 else {"predicate": text}
            assert {path for path, _ in parquet_bloom.prune(paths, **named)} == kept, text
            if column == "uid":
                continue  # pyarrow makes no uuid of Polars' bytes
            if turn % 3 == 0:
                found = parquet_bloom.read_table(paths, text, columns=["row"])["row"].to_pylist()
                assert found == sorted(rows, key=lambda row: order.index(WRITERS[row // ROWS])), text
            elif turn % 3 == 1:
                assert parquet_bloom.count(paths, text) == len(rows), text
            else:
                found = parquet_bloom.dataset(paths, text).to_table(columns=["row"])["row"].to_pylist()
                assert set(rows) <= set(found), text


def test_ranges_and_nulls(files: dict[str, Path]) -> None:
    """Rows of ranges, of NOT and of IS NULL are those of brute force, and of pyarrow without any skipping."""
    paths = list(files.values())
    for column in ("text", "i64", "u32", "f64", "dec18", "day", "time", "ts", "ts_ns", "at"):
        value = COLUMNS[column][1]
        held = {ROWS * at + row: value(i) for at in range(len(WRITERS)) for row, i in enumerate(numbers(at))
                if described_of(WRITERS[at], column) is not None}  # fmt: skip
        low, high = sorted((value(9), value(34)))
        literals = [spelled(as_literal(one)) for one in (low, high)]
        for text, wanted in {
            f"{column} BETWEEN {literals[0]} AND {literals[1]}": [row for row, v in held.items() if low <= v <= high],
            f"NOT {column} > {literals[0]}": [row for row, v in held.items() if not v > low],
            f"{column} IS NULL": [row for row in range(ROWS * len(WRITERS)) if row not in held],
            f"{column} IN ({literals[1]}, NULL)": [row for row, v in held.items() if v == high],
        }.items():
            assert parquet_bloom.read_table(paths, text, columns=["row"])["row"].to_pylist() == wanted, text
            assert parquet_bloom.count(paths, text) == len(wanted), text


def test_another_kind_is_named_once_with_both_files(files: dict[str, Path]) -> None:
    paths = list(files.values())
    for (column, writer), said in OTHER_KIND.items():
        text = text_of(column, ASKED[-1])
        unused = parquet_bloom.check(paths, text).unused
        assert (text, f"{said}, {files['pyarrow']} (in 1 of 5 files: {files[writer]})") in unused
        assert parquet_bloom.Scan(paths, text).unused == unused


def test_a_row_of_another_kind_is_found(files: dict[str, Path], tmp_path: Path) -> None:
    """What a cast makes equal to the literal is found, though the file itself holds no such value.

    A FLOAT beside a DOUBLE is a DOUBLE: 0.1 is none of these floats then, and each is found by its own value.
    """
    pq.write_table(pa.table({"x": pa.array([0.1, 7.0], pa.float32())}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": pa.array([0.10000000149, 7.0])}), tmp_path / "2.parquet")
    pq.write_table(pa.table({"x": pa.array([dt.date(2026, 1, 1)])}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([NOON])}), tmp_path / "b.parquet")
    for name in ("1", "2", "a", "b"):
        parquet_bloom.add_filters(tmp_path / f"{name}.parquet", in_place=True, columns=["x"], sync=False)
    floats = [tmp_path / "1.parquet", tmp_path / "2.parquet"]
    assert parquet_bloom.count(floats, "x = 0.1") == 0
    assert parquet_bloom.count(floats, "x = 0.10000000149011612") == 1
    assert parquet_bloom.count(floats, "x = 0.10000000149") == 1
    assert parquet_bloom.count(floats, "x > 0.1") == 4
    assert len(parquet_bloom.prune(floats, column="x", values=[0.1])) == 2
    days = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    assert parquet_bloom.count(days, "x = DATE '2026-01-31'") == 0  # noon is not midnight
    assert parquet_bloom.count(days, f"x = TIMESTAMP '{NOON}'") == 1
    assert parquet_bloom.count(days, "x = DATE '2026-01-01'") == 1
    assert str(days[1]) in [path for path, _ in parquet_bloom.prune(days, f"x = TIMESTAMP '{NOON}'")]


def test_timestamps_with_and_without_a_zone(tmp_path: Path) -> None:
    """Engines read the one as the other by their session's zone: neither literal says anything about both."""
    for name, zone in (("a", None), ("b", "UTC")):
        rows = pa.table({"at": pa.array([NOON], pa.timestamp("us", zone))})
        pq.write_table(rows, tmp_path / f"{name}.parquet")
        parquet_bloom.add_filters(tmp_path / f"{name}.parquet", in_place=True, columns=["at"], sync=False)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    verdicts = parquet_bloom.check(paths, "at = TIMESTAMP '2020-01-01 00:00:00'")
    assert [v.skipped for v in verdicts] == [True, False]
    [(_, reason)] = verdicts.unused
    assert reason == (
        f"at is INT64 TIMESTAMP(us, UTC), but INT64 TIMESTAMP(us, no zone) in the first file, {paths[0]} "
        f"(in 1 of 2 files: {paths[1]})"
    )
    for function in (parquet_bloom.check, parquet_bloom.count, parquet_bloom.prune):
        with pytest.raises(RequestError, match="the column has no zone, .* write TIMESTAMP '2020-01-01 00:00:00'$"):
            function(paths, "at = TIMESTAMP '2020-01-01 00:00:00+00:00'")
    assert parquet_bloom.count(paths, "at = TIMESTAMP '2026-01-31 12:00:00'") == 2, "pyarrow casts one to the other"


def without_logical_types(path: Path) -> None:
    """Leave only the old converted types in a footer, as writers of before 2018 do."""
    with edited_footer(path) as metadata:
        for element in metadata.schema:
            element.logicalType = None
        metadata.key_value_metadata = None  # pyarrow's own schema, which says more


@pytest.mark.parametrize("old_first", [False, True])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_timestamps_of_which_nobody_says_the_zone(tmp_path: Path, zone: str | None, old_first: bool) -> None:
    """pyarrow and Spark read such a column as the format has it, in UTC; DuckDB reads clocks of no zone.

    So literals have a zone, for verdicts and for rows, unless the first file is one without.
    """
    names = ["1-old", "2-new"] if old_first else ["1-new", "2-old"]
    paths = [tmp_path / f"{name}.parquet" for name in names]
    for at, path in enumerate(paths):
        value = NOON + dt.timedelta(hours=at)
        pq.write_table(pa.table({"at": pa.array([value], pa.timestamp("us", zone)), "row": [at]}), path)
        if path.stem.endswith("old"):
            without_logical_types(path)
        parquet_bloom.add_filters(path, in_place=True, columns=["at"], sync=False)
    in_utc = old_first or zone is not None
    taken, refused = ("+00:00", "") if in_utc else ("", "+00:00")
    for function in (parquet_bloom.check, parquet_bloom.read_table):
        with pytest.raises(RequestError, match=f"write TIMESTAMP '2020-01-01 00:00:00{re.escape(taken)}'$"):
            function(paths, f"at = TIMESTAMP '2020-01-01 00:00:00{refused}'")
    verdicts = parquet_bloom.check(paths, f"at = TIMESTAMP '2020-01-01 00:00:00{taken}'")
    skipped = [zone == "UTC" or (at == 0 and old_first) for at in (0, 1)] if in_utc else [True, False]
    assert [v.skipped for v in verdicts] == skipped, "a file of another kind than the first is read"
    for at in (0, 1):
        hour = 12 + at
        for text in (f"TIMESTAMP '2026-01-31 {hour}:00:00{taken}'", f"'2026-01-31 {hour}:00{taken}'"):
            assert not parquet_bloom.check(paths, f"at = {text}")[at].skipped
            assert parquet_bloom.read_table(paths, f"at = {text}")["row"].to_pylist() == [at]


def test_zone_indexes(files: dict[str, Path], tmp_path: Path) -> None:
    pytest.importorskip("lance")
    from parquet_bloom.lance import build_index, query_index

    for column in ("text", "i32", "i64", "u64", "f64", "day", "ts", "at"):
        paths = [files[writer] for writer in WRITERS if described_of(writer, column) is not None]
        [built] = build_index(paths, [column], tmp_path / column, items=4, probability=0.0001, sync=False).indexes
        for i in ASKED:
            text, rows = text_of(column, i), stored(column, i)
            holders = {str(files[WRITERS[row // ROWS]]) for row in rows}
            assert {zone.path for zone in query_index(built.path, text, root=paths[0].parent).zones} == holders, text
            found = parquet_bloom.read_table(paths, text, columns=["row"], index=built.path)
            assert found["row"].to_pylist() == rows, text


# --- any two types ----------------------------------------------------------------------------------


def _one_file(folder: Path, name: str, values: pa.Array) -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"x": values, "row": pa.array(range(len(values)))}), path, row_group_size=1)
    if not pa.types.is_boolean(values.type):
        parquet_bloom.add_filters(path, in_place=True, columns=["x"], fpp=0.0001, sync=False)
    return path


def _kinds() -> dict[str, pa.Array]:
    """Values that a cast, or another reading, could make equal to those of other types."""
    days = [dt.date(1970, 1, 2), dt.date(2026, 1, 31)]
    stamps = [NOON, dt.datetime(2026, 1, 31), dt.datetime(1970, 1, 1, 0, 0, 0, 1000)]
    numbers = [1, 2, 5, 100]
    tenths = [Decimal("1.0"), Decimal("1.3"), Decimal("100.0"), Decimal("0.1")]
    text = ["a", "5", "abcdefghijklmnop", "00000001-0000-0000-0000-000000003039"]
    fixed = [b"abcdefghijklmnop", _key(1)]
    kinds = {
        **{kind: pa.array(numbers, kind) for kind in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")},
        "float16": pa.array(np.array([0.1, 1, 5, 1.3], np.float16)),
        "float32": pa.array([0.1, 1, 5, 1.3], pa.float32()),
        "float64": pa.array([0.1, 1, 5, 0.10000000149011612]),
        "decimal_5_1": pa.array(tenths, pa.decimal128(5, 1)), "decimal_9_2": pa.array(tenths, pa.decimal128(9, 2)),
        "decimal_18_2": pa.array(tenths, pa.decimal128(18, 2)), "bool": pa.array([True, False]),
        "string": pa.array(text), "large_string": pa.array(text, pa.large_string()),
        "binary": pa.array([one.encode() for one in text] + fixed), "dictionary": pa.array(text).dictionary_encode(),
        "fixed_16": pa.array(fixed, pa.binary(16)), "uuid": pa.array(fixed, pa.uuid()),
        "date": pa.array(days), "time_ms": pa.array([dt.time(12), dt.time(0, 0, 0, 1000)], pa.time32("ms")),
        "time_ns": pa.array([dt.time(12), dt.time(0, 0, 0, 1)], pa.time64("ns")),
    }  # fmt: skip
    for unit in ("ms", "us", "ns"):
        for zone in (None, "UTC"):
            kinds[f"timestamp_{unit}_{zone}"] = pa.array(stamps, pa.timestamp(unit, zone))
    return kinds


def _key(i: int) -> bytes:
    return uuid.UUID(int=(i << 96) + 12345).bytes


LITERALS = [
    "1", "5", "100", "1.3", "0.1", "0.1e0", "1.3e0", "100.00", "TRUE", "'a'", "'5'", "'abcdefghijklmnop'", "x'61'",
    "'00000001-0000-0000-0000-000000003039'", "UUID '00000001-0000-0000-0000-000000003039'",
    "x'6162636465666768696a6b6c6d6e6f70'", "DATE '1970-01-02'", "DATE '2026-01-31'", "'2026-01-31'", "TIME '12:00:00'",
    "TIMESTAMP '2026-01-31 12:00:00'", "TIMESTAMP '2026-01-31 12:00:00+00:00'", "TIMESTAMP '2026-01-31 00:00:00'",
    "TIMESTAMP '1970-01-01 00:00:00.001'", "TIME '00:00:00.001'", "'2026-01-31 12:00:00'", "NULL",
]  # fmt: skip


def test_no_row_is_lost_between_any_two_types(tmp_path: Path) -> None:
    """Of a file of one type and one of another, every row is found that pyarrow's cast to the first file's type has."""
    files = {name: _one_file(tmp_path, name, values) for name, values in _kinds().items()}
    trees = [[(text := f"x {op} {literal}", parse(text)) for literal in LITERALS] for op in ("=", ">", "<=")]
    asked = skipped = 0
    for first, there in files.items():
        schema = pq.read_schema(there)
        for here in files.values():
            if here == there:
                continue
            groups = pq.ParquetFile(here).num_row_groups
            try:
                rows = ds.dataset(here, schema=schema).to_table()
            except pa.ArrowException:
                continue
            batch = rows.combine_chunks().to_batches()[0]
            for text, tree in (trees[(asked + at) % 3][at] for at in range(asked % 3, len(LITERALS), 3)):
                try:
                    keep = row_filter(tree, schema)
                    verdicts = parquet_bloom.check([there, here], tree)[-groups:]
                except RequestError:
                    continue  # no literal for the first file's type
                matching = keep.filter_batch(batch)["row"].to_pylist()
                lost = [row for row in matching if verdicts[row].skipped]
                assert not lost, f"{text} over {first}, {here.name}: rows {lost}"
                asked += 1
                skipped += any(v.skipped for v in verdicts)
    assert asked > 500, asked
    assert skipped > 100, skipped
