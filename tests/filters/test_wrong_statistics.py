"""Statistics that contradict the stored values: `verify --statistics` finds each, and none in files of right writers.

What is true is what Python computes over the values that pyarrow reads, without statistics. A bound for a lie is taken
from the footer of a file of that one value, so that nothing here encodes one.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import random
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import FIXTURES, corpus_file, others_files
from support.footers import edited_footer, footer
from support.repeats import first_then_more

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import FileMetaData, Statistics
from parquet_bloom.cli import run
from parquet_bloom.filters.decode import ColumnReader

OLD = FIXTURES / "old_statistics"
EXPECTED: dict[str, Any] = json.loads((OLD / "expected.json").read_text())
DAY = datetime.date(2020, 1, 1)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, -1, 0, 7, 127]),
    "uint8": (pa.uint8(), [0, 7, 128, 200, 255]),
    "int32": (pa.int32(), [-(2**31), -5, 0, 9, 2**31 - 1]),
    "uint32": (pa.uint32(), [0, 3, 2**31, 2**32 - 1]),
    "int64": (pa.int64(), [-(2**63), -(2**40), 0, 1, 2**63 - 1]),
    "uint64": (pa.uint64(), [0, 5, 2**63, 2**64 - 1]),
    "float16": (pa.float16(), [-math.inf, -2.5, -0.0, 0.0, 1.5, math.inf, math.nan]),
    "float32": (pa.float32(), [-math.inf, -2.5, -0.0, 0.0, 1.5, math.inf, math.nan]),
    "float64": (pa.float64(), [-1e300, -2.5, -0.0, 0.0, 1.5, 1e300, math.nan]),
    "decimal9": (pa.decimal128(9, 2), [decimal.Decimal(n) / 100 for n in (-99999, -1, 0, 1, 77777)]),
    "decimal38": (pa.decimal128(38, 4), [decimal.Decimal(n) for n in (-(10**20), -1, 0, 1, 10**20)]),
    "text": (pa.string(), ["", "a", "aa", "z", "é", "\U0001f600", "x" * 80]),
    "binary": (pa.binary(), [b"", b"\x00", b"\x7f\xff", b"\x80", b"\xff\xff"]),
    "fixed": (pa.binary(3), [b"\x00\x00\x00", b"\x7f\x00\x01", b"\x80\x00\x00", b"\xff\xff\xff"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=n).bytes for n in (0, 2**64, 2**127, 2**128 - 1)]),
    "boolean": (pa.bool_(), [False, True]),
    "date": (pa.date32(), [DAY - datetime.timedelta(99999), DAY, DAY + datetime.timedelta(5)]),
    "time": (pa.time64("us"), [datetime.time(0), datetime.time(12, 3), datetime.time(23, 59, 59)]),
    "timestamp": (pa.timestamp("ms"), [datetime.datetime(1950, 1, 1), datetime.datetime(2020, 1, 1, 3)]),
}


def some_table(rng: random.Random, rows: int) -> pa.Table:
    """Columns of all kinds, each with a share of NULLs, some sorted; lists, and a struct whose own NULLs count."""
    arrays = {}
    for name, (_, pool) in KINDS.items():
        nulls, few = rng.choice([0, 0, 0.2, 1]), rng.sample(pool, rng.randint(1, len(pool)))
        values = [None if rng.random() < nulls else rng.choice(few) for _ in range(rows)]
        if rng.random() < 0.3:
            values.sort(key=lambda v: (v is None, v != v, repr(v) if v is None else v))
        arrays[name] = array_of(name, values)
    lists = [rng.choice([None, [], [1, None], [5, -7, 5]]) for _ in range(rows)]
    arrays["list"] = pa.array(lists, pa.list_(pa.int64()))
    arrays["struct"] = pa.array([rng.choice([None, {"x": None}, {"x": "b"}, {"x": "a"}]) for _ in range(rows)])
    return pa.table(arrays)


def write(table: pa.Table, path: Path, rng: random.Random) -> None:
    pq.write_table(
        table, path, row_group_size=rng.choice([17, 64, 1000]), write_page_index=rng.random() < 0.7,
        data_page_size=rng.choice([16, 200, 1 << 20]), write_batch_size=rng.choice([5, 16, 1024]),
        data_page_version=rng.choice(["1.0", "2.0"]), use_dictionary=rng.random() < 0.5,
        store_decimal_as_integer=rng.random() < 0.5, compression=rng.choice(["none", "zstd"]),
    )  # fmt: skip


def statistics(path: Path, **options: Any) -> parquet_bloom.FileStatistics:
    found = parquet_bloom.verify(path, statistics=True, **options).files[0].statistics
    assert found is not None
    return found


def wrong(path: Path, **options: Any) -> set[tuple[int | None, str, str]]:
    return {(one.row_group, one.column, one.statistic) for one in statistics(path, **options).wrong}


@pytest.mark.parametrize("seed", first_then_more(range(40), 12))
def test_right_files_have_nothing_wrong(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    table, path = some_table(rng, rng.choice([1, 40, 150])), tmp_path / "right.parquet"
    write(table, path, rng)
    assert statistics(path).wrong == []
    assert not any("headers" in note for note in statistics(path).notes)
    metadata = pq.read_metadata(path)
    chunks = [metadata.row_group(i).column(j) for i in range(metadata.num_row_groups) for j in range(len(KINDS) + 2)]
    assert statistics(path).chunks == sum(one.is_stats_set or one.has_offset_index for one in chunks)


def array_of(name: str, values: list[Any]) -> pa.Array:
    kind = KINDS[name][0]
    if name != "uuid":
        return pa.array(values, kind)
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


def stated(name: str, value: Any, path: Path, **options: Any) -> bytes:
    """A bound as pyarrow writes it, of a file of one value."""
    pq.write_table(pa.table({name: array_of(name, [value])}), path, **options)
    bound: bytes = footer(path).row_groups[0].columns[0].meta_data.statistics.min_value
    return bound


def ordered(values: list[Any]) -> list[Any]:
    """Distinct values but NaN, in the order of the column; a tie of zeros counts once."""
    return sorted({v for v in values if v is not None and v == v})


@pytest.mark.parametrize(("name", "integers"), [*((name, False) for name in sorted(KINDS)), ("decimal9", True)])
def test_a_bound_inside_of_the_values_is_wrong_and_a_loose_one_is_right(
    name: str, integers: bool, tmp_path: Path
) -> None:
    known = ordered(KINDS[name][1])
    inner = known[1:-1] if len(known) > 3 else known
    array = array_of(name, [*inner, None, *inner])
    path = tmp_path / "some.parquet"
    options = {"store_decimal_as_integer": integers}
    for at, value in enumerate(known):
        bound = stated(name, value, tmp_path / "one.parquet", **options)
        for field, is_wrong in (("min_value", value > inner[0]), ("max_value", value < inner[-1])):
            pq.write_table(pa.table({name: array}), path, **options)
            lie(path, field, bound)
            lie(path, f"is_{field}_exact", None)
            assert wrong(path) == ({(0, name, field)} if is_wrong else set()), (at, value)


@pytest.mark.parametrize("precision", [2, 9, 14, 18, 19, 38, 60, 76])
def test_decimals_of_every_width(precision: int, tmp_path: Path) -> None:
    """A bound that is off by one is found, whichever byte of the number has the difference."""
    rng, path = random.Random(precision), tmp_path / "f.parquet"
    kind = pa.decimal256(precision, 0) if precision > 38 else pa.decimal128(precision, 0)
    for _ in range(12):
        most = 10 ** rng.randint(1, precision) - 1
        near = rng.randint(-most, most)
        near = max(-most, near - near % 2 ** rng.choice([0, 7, 63]))  # about where the highest of eight bytes changes
        values = [max(-most, min(most, near + rng.randint(-300, 300))) for _ in range(50)]
        values += [rng.choice([-1, 1]) * rng.randint(0, most) for _ in range(rng.choice([0, 50]))]
        stored = [decimal.Decimal(n) if rng.random() < 0.8 else None for n in values] + [decimal.Decimal(near)]
        pq.write_table(pa.table({"d": pa.array(stored, kind)}), path, use_dictionary=rng.random() < 0.5)
        low, high = (int(pick(n for n in stored if n is not None)) for pick in (min, max))
        assert wrong(path) == set()
        for field, value, true in (("min", low + 1, low), ("max", high - 1, high)):
            bound = value.to_bytes(pq.ParquetFile(path).schema.column(0).length, "big", signed=True)
            with edited_footer(path) as metadata:
                setattr(metadata.row_groups[0].columns[0].meta_data.statistics, f"{field}_value", bound)
            found = [one for one in statistics(path).wrong if one.statistic == f"{field}_value"]
            assert [(one.stated, one.found) for one in found] == [(str(value), str(true))]


def lie(path: Path, field: str, value: Any, column: int = 0, row_group: int = 0) -> None:
    with edited_footer(path) as metadata:
        setattr(metadata.row_groups[row_group].columns[column].meta_data.statistics, field, value)


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    """Two row groups of 100 rows: n of 1 to 100 and 101 to 200 in order, each tenth a NULL; lists; a float with NaN."""
    path = tmp_path / "numbers.parquet"
    values = [None if n % 10 == 0 else n for n in range(1, 201)]
    lists = [[None, n] if n % 2 else [] for n in range(200)]
    floats = [math.nan if n == 7 else n / 4 for n in range(200)]
    table = pa.table({"n": values, "l": pa.array(lists, pa.list_(pa.int64())), "f": floats})
    pq.write_table(table, path, row_group_size=100, write_page_index=True, data_page_size=8, write_batch_size=10)
    return path


def i64(number: int) -> bytes:
    return number.to_bytes(8, "little")


LIES = {  # field: values that are right, and wrong
    "null_count": ([10], [9, 0, 100, -1]),
    "distinct_count": ([90], [91]),
    "max": ([i64(99)], [i64(98)]),
    "min": ([i64(1)], [i64(2)]),
    "min_value": ([i64(1)], [b"\1"]),
}


def test_counts_and_old_bounds(numbers: Path) -> None:
    whole = numbers.read_bytes()
    for field, (right, lies) in LIES.items():
        for value in (*right, *lies):
            numbers.write_bytes(whole)
            lie(numbers, field, value)
            assert wrong(numbers) == ({(0, "n", field)} if value in lies else set()), (field, value)


def test_both_numbers_are_shown(numbers: Path) -> None:
    lie(numbers, "null_count", 77, row_group=1)
    (found,) = statistics(numbers).wrong
    assert (found.stated, found.found) == ("77", "10")
    assert found.text == "row group 1, column n: null_count is 77, the values give 10"


def test_a_flag_of_exactness_is_compared(numbers: Path) -> None:
    lie(numbers, "max_value", i64(1000))
    for exact in (True, False, None):
        lie(numbers, "is_max_value_exact", exact)
        assert wrong(numbers) == ({(0, "n", "is_max_value_exact")} if exact else set())


def test_an_empty_list_may_count_as_a_null_or_not(numbers: Path) -> None:
    """A row group has 50 NULLs in lists, and 50 empty lists: programs count 50 or 100."""
    for count, is_wrong in ((50, False), (100, False), (49, True), (101, True), (0, True)):
        lie(numbers, "null_count", count, column=1)
        assert wrong(numbers) == ({(0, "l.list.element", "null_count")} if is_wrong else set()), count


def test_bounds_that_leave_nan_out_are_right_with_a_note(numbers: Path) -> None:
    found = statistics(numbers)
    assert found.wrong == []
    (note,) = found.notes
    assert note.startswith("column f has 1 NaN in 1 row group with min and max: right by the format, but engines ")


def test_nan_as_a_bound_is_passed_over_and_its_count_is_not(numbers: Path) -> None:
    lie(numbers, "max_value", bytes.fromhex("000000000000f87f"), column=2)
    assert wrong(numbers) == set()
    lie(numbers, "nan_count", 1, column=2)
    assert wrong(numbers) == set()
    lie(numbers, "nan_count", 0, column=2)
    assert wrong(numbers) == {(0, "f", "nan_count")}


def test_a_chunk_of_nothing_but_nan_has_no_values_for_bounds(tmp_path: Path) -> None:
    path = tmp_path / "nan.parquet"
    pq.write_table(pa.table({"f": [math.nan, None, math.nan]}), path)
    lie(path, "min_value", bytes(8))
    lie(path, "nan_count", 2)
    assert wrong(path) == set()


def test_rows_of_the_file_and_of_a_row_group(numbers: Path) -> None:
    with edited_footer(numbers) as metadata:
        metadata.num_rows = 201
    (found,) = statistics(numbers).wrong
    assert found.text == "num_rows is 201, the values give 200"
    with edited_footer(numbers) as metadata:
        metadata.row_groups[0].num_rows = 99
    # Fewer rows than values: each flat column contradicts the row group.
    assert wrong(numbers) >= {(0, "n", "num_values"), (0, "f", "num_values")}


# --- page indexes ---------------------------------------------------------------------------------


def take_second(path: Path, kind: str, column: int) -> None:
    """The first row group's chunk names the index of the second one's."""
    with edited_footer(path) as metadata:
        first, second = (group.columns[column] for group in metadata.row_groups)
        for name in (f"{kind}_offset", f"{kind}_length"):
            setattr(first, name, getattr(second, name))


def test_an_index_of_another_row_group_is_wrong(numbers: Path) -> None:
    """That of a repeated column is compared as a whole."""
    take_second(numbers, "column_index", 0)
    assert wrong(numbers) == {(0, "n", "column_index.min_values")}
    take_second(numbers, "column_index", 1)
    assert wrong(numbers) == {(0, name, "column_index.min_values") for name in ("n", "l.list.element")}
    assert any("column index of a repeated column" in text for text in statistics(numbers).unchecked)
    take_second(numbers, "offset_index", 0)
    assert (0, "n", "offset_index.offset") in wrong(numbers)


PLACES = [(4, 20), (1 << 40, 20), (-5, 20), (None, -3), (None, 0), (None, 1 << 30), ((1 << 63) - 1, 9)]


@pytest.mark.parametrize("kind", ["column_index", "offset_index"])
def test_an_index_that_is_none_is_wrong(numbers: Path, kind: str) -> None:
    whole = numbers.read_bytes()
    for offset, length in PLACES:
        numbers.write_bytes(whole)
        with edited_footer(numbers) as metadata:
            chunk = metadata.row_groups[1].columns[0]
            if offset is not None:
                setattr(chunk, f"{kind}_offset", offset)
            setattr(chunk, f"{kind}_length", length)
        found = wrong(numbers)
        assert {(group, column) for group, column, _ in found} == {(1, "n")}, (offset, length)
        assert all(statistic.startswith(kind) for _, _, statistic in found), (offset, length)


def test_an_order_of_pages_that_is_none_is_wrong(numbers: Path) -> None:
    """Readers search by halves in pages that are said to be in order. The pages of n are."""
    with edited_footer(numbers) as metadata:
        chunk = metadata.row_groups[0].columns[0]
        at, length = chunk.column_index_offset, chunk.column_index_length
    data = bytearray(numbers.read_bytes())
    index = bytes(data[at : at + length])
    (place,) = [m.start() for m in re.finditer(rb"\x15[\x02]", index)]  # field 4 of the struct: ASCENDING, 1
    data[at + place + 1] = 4  # DESCENDING, 2
    numbers.write_bytes(data)
    assert wrong(numbers) == {(0, "n", "column_index.boundary_order")}


# --- files of released programs -------------------------------------------------------------------


def test_old_releases() -> None:
    """`expected.json` was computed by another way: from the values as pyarrow gives them, with pyarrow's statistics."""
    for release in EXPECTED:
        found: dict[str, set[str]] = {}
        for one in statistics(OLD / f"{release}.parquet").wrong:
            if one.statistic == "null_count":
                kind = "few nulls" if int(one.stated) < int(one.found) else "many nulls"
                found.setdefault(one.column, set()).add(kind)
            elif one.statistic in ("min_value", "max_value"):
                found.setdefault(one.column, set()).add("bounds")
        if release in ("polars-0.16.18", "polars-0.19.19"):
            # Without column_orders, so pyarrow passes over them: texts compared as signed bytes, numbers as signed.
            assert found.pop("text") == found.pop("unsigned") == {"bounds"}
        assert {name: sorted(kinds) for name, kinds in found.items()} == EXPECTED[release]["wrong"], release


KNOWN = {  # what these writers did write, read byte by byte
    "bloom/parquetjs__fruits-bloomfilter.parquet": {"offset_index.first_row_index", "column_index", "distinct_count"},
    "nasty/parquet-testing__repeated_no_annotation.parquet": {"num_rows"},  # 0
}


def test_wrong_statistics_in_page_headers_are_a_note() -> None:
    """Of texts by Polars 0.16: in the order of signed bytes there, too. No footer mends them."""
    notes = [note for note in statistics(OLD / "polars-0.16.18.parquet").notes if "headers" in note]
    assert any(note.startswith("column text has wrong statistics in the headers of 2 pages") for note in notes)
    assert not any("int64" in note or "float64" in note for note in notes)


def corpus() -> Iterator[str]:
    yield from sorted(
        str(path.relative_to(FIXTURES))
        for path in FIXTURES.rglob("*.parquet")
        if path.parent.name not in ("old_statistics", "damaged")
    )
    yield from others_files()


def test_nothing_is_wrong_in_the_corpus() -> None:
    compared = 0
    for name in corpus():
        path = corpus_file(name)
        try:
            found = statistics(path)
        except parquet_bloom.FileError:  # damaged, encrypted, or too large a page
            continue
        lies = {one.statistic for one in found.wrong}
        assert lies == KNOWN.get(name, set()), name
        compared += found.chunks
    assert compared > 500


# --- the command ----------------------------------------------------------------------------------


def test_the_command(numbers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["verify", str(numbers), "--statistics"]) == 0
    assert "statistics of 6 column chunks, none wrong" in capsys.readouterr().out
    lie(numbers, "null_count", 77)
    assert run(["verify", str(numbers)]) == 0, "without the option nothing is decoded"
    capsys.readouterr()
    assert run(["verify", str(numbers), "--statistics"]) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert "wrong: row group 0, column n: null_count is 77, the values give 10" in shown
    for option in ("--statistics", "--all"):
        assert run(["verify", str(numbers), option, "--json"]) == 1
        (file,) = json.loads(capsys.readouterr().out)["files"]
        told = {"row_group": 0, "column": "n", "statistic": "null_count", "stated": "77", "found": "10"}
        assert file["statistics"]["wrong"] == [told]
    assert run(["verify", str(numbers), "--statistics", "--output-format", "github"]) == 1
    text = "1 statistic wrong; the first: row group 0, column n: null_count is 77, the values give 10"
    assert f"::error file={numbers},title=parquet-bloom verify::{text}\n" in capsys.readouterr().out
    assert run(["verify", str(numbers), "--statistics", "--column", "f"]) == 0
    assert run(["--quiet", "verify", str(numbers), "--statistics"]) == 1
    assert "a statistic is wrong" in capsys.readouterr().err


def test_a_sample_reads_some_row_groups(numbers: Path) -> None:
    lie(numbers, "null_count", 77, row_group=1)
    assert wrong(numbers, sample=1) == set()
    assert wrong(numbers, sample=2) == {(1, "n", "null_count")}


def test_hostile_statistics_raise_nothing_of_others(numbers: Path) -> None:
    """Whatever a footer states: a verdict, or an error of ours."""
    rng = random.Random(5)
    whole = numbers.read_bytes()
    for _ in range(60):
        numbers.write_bytes(whole)
        with edited_footer(numbers) as metadata:
            _scramble(metadata, rng)
        with suppress(parquet_bloom.ParquetBloomError):
            statistics(numbers)


def _scramble(metadata: FileMetaData, rng: random.Random) -> None:
    chunk = rng.choice(rng.choice(metadata.row_groups).columns)
    stated: Statistics = chunk.meta_data.statistics
    bound = rng.choice([None, b"", b"\xff", b"\x80" * 8, bytes(8), bytes(5000)])
    setattr(stated, rng.choice(["min", "max", "min_value", "max_value"]), bound)
    number = rng.choice([None, -1, 0, 1 << 62, -(1 << 63)])
    setattr(stated, rng.choice(["null_count", "distinct_count", "nan_count"]), number)
    place = rng.choice([None, -1, 0, 4, 100, 1 << 62])
    setattr(chunk, rng.choice(["column_index_offset", "offset_index_offset"]), place)
    setattr(chunk, rng.choice(["column_index_length", "offset_index_length"]), rng.choice([None, -1, 3, 1 << 30]))
    if rng.random() < 0.2:
        metadata.column_orders = None


# --- filters and statistics by one decoding -------------------------------------------------------


def test_one_decoding_serves_filters_and_statistics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"id": range(300), "text": [f"t{i % 40}" for i in range(300)], "f": [1.5] * 300})
    pq.write_table(table, tmp_path / "plain.parquet", row_group_size=100)
    path = tmp_path / "x.parquet"
    parquet_bloom.add_filters(tmp_path / "plain.parquet", path, columns=["id", "text"])
    decoded: list[tuple[str, int]] = []
    batches = ColumnReader.batches

    def counted(reader: ColumnReader, row_group: int, *_: bool) -> Iterator[pa.Array]:
        decoded.append((reader.leaf.name, row_group))
        return batches(reader, row_group, *_)

    alone = parquet_bloom.verify(path).files[0].filters
    monkeypatch.setattr(ColumnReader, "batches", counted)
    both = parquet_bloom.verify(path, statistics=True).files[0]
    assert sorted(decoded) == [(name, group) for name in ("f", "id", "text") for group in range(3)]
    assert both.filters == alone
    assert {one.values for one in both.filters} == {100}


def test_a_wrong_filter_is_found_with_statistics_too(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": range(300)}), tmp_path / "plain.parquet")
    pq.write_table(pa.table({"id": range(1000, 1300)}), tmp_path / "other.parquet")
    for name in ("plain", "other"):
        parquet_bloom.add_filters(tmp_path / f"{name}.parquet", tmp_path / f"{name}-x.parquet", columns=["id"])
    data, other = ((tmp_path / f"{name}-x.parquet").read_bytes() for name in ("plain", "other"))
    [one] = parquet_bloom.inspect(tmp_path / "plain-x.parquet").files[0].filters
    [same] = parquet_bloom.inspect(tmp_path / "other-x.parquet").files[0].filters
    assert one.length == same.length
    start, end = one.offset, one.offset + one.length
    path = tmp_path / "mixed.parquet"
    path.write_bytes(data[:start] + other[same.offset : same.offset + same.length] + data[end:])
    found = parquet_bloom.verify(path, statistics=True).files[0]
    assert [one.status for one in found.filters] == ["wrong"]
    assert found.wrong_statistics == []
    assert found.filters == parquet_bloom.verify(path).files[0].filters


def test_a_column_that_does_not_decode_is_named_and_the_others_are_verified(tmp_path: Path) -> None:
    """DuckDB's ARRAY with NULLs, which pyarrow cannot read."""
    path = tmp_path / "x.parquet"
    rows = "SELECT i AS id, CASE WHEN i % 3 > 0 THEN [i, i, i]::INTEGER[3] END AS a FROM range(3000) t(i)"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({rows}) TO '{path}' (FORMAT parquet)")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"])
    found = parquet_bloom.verify(path, statistics=True).files[0]
    assert found.statistics is not None
    assert (found.statistics.wrong, len(found.statistics.unchecked)) == ([], 1)
    assert found.statistics.unchecked[0].startswith("column a.")
    assert {(one.column, one.status) for one in found.filters} == {("id", "right")}
