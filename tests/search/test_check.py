"""check: never a wrong skip, and what an answer costs in requests and bytes."""

from __future__ import annotations

import datetime as dt
import pickle
import struct
import sys
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file
from support.samples import FIXTURES, ROWS, keys_table, write_keys

import parquet_bloom
from parquet_bloom.errors import FilterWarning, TextError, UnknownColumnError
from parquet_bloom.filters.locate import RangesByChunk
from parquet_bloom.filters.stored import probe
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.predicates.outcomes import Outcomes
from parquet_bloom.storage.open_file import OpenFile

ABSENT = 4_000_000_000_000_000_001  # lies within the bounds of every row group


def kept(path: Path, predicate: str) -> list[int]:
    return [v.row_group for v in parquet_bloom.check(path, predicate) if not v.skipped]


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("check")
    source = write_keys(folder / "keys.parquet")
    parquet_bloom.add_filters(source, in_place=True, columns=["id", "name", "tags", "half_null"], sync=False)
    return source


def test_the_demo_file_answers_as_its_maker_says(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    parquet_bloom.add_filters(FIXTURES / "pyarrow/trace_ids.parquet", out, sync=False, columns=["*"])
    assert kept(out, "user_id = 4611686018427387904") == [3], "fixtures/README.md names the one row group"
    assert kept(out, "trace_id = '00000000000000000000000000c0ffee'") == [2]


@pytest.mark.parametrize("spec", [name for name, form in FORMATS.items() if form.placements])
def test_every_stored_value_is_kept_and_most_absent_ones_are_not(tmp_path: Path, spec: str) -> None:
    source = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(source, in_place=True, columns=["id"], spec=spec, sync=False)
    ids = keys_table()["id"].to_pylist()
    with OpenFile(source) as opened:
        places = RangesByChunk(opened.footer())
        for row in range(0, len(ids), 7):
            plain = struct.pack("<q", ids[row])
            answers = [probe(opened, places[group, 0], plain) for group in range(3)]
            assert answers[row // ROWS], f"row {row} would be lost"
        absent = [probe(opened, places[0, 0], struct.pack("<q", -i)) for i in range(1, 500)]
    assert sum(absent) <= 20, "1 % is asked for"
    if spec != "final":  # a header and a block, not the filter, whose length the footer does not tell
        assert all(v.bytes_read <= 64 + 32 for v in parquet_bloom.check(source, f"id = {ABSENT}"))


def test_an_answer_costs_two_small_reads_a_filter(filtered: Path) -> None:
    with OpenFile(filtered) as source:
        footer = source.footer()
        assert source.requests == 1, "the footer came with the first request"
        places = RangesByChunk(footer)
        requests, read = source.requests, source.bytes_read
        assert not probe(source, places[0, 0], struct.pack("<q", -5))
        assert source.requests - requests <= 2, "header and block, side by side or one after the other"
        assert source.bytes_read - read <= 16 + 32 + 64, "the header and one block, not the filter"
    verdicts = parquet_bloom.check(filtered, f"id = {ABSENT}")
    assert all(v.skipped and v.decided_by == "filter" and v.bytes_read <= 2048 + 17 for v in verdicts)
    assert all(v.outcome == Outcomes.FALSE for v in verdicts), "and no NULL is there"


def test_verdicts_are_made_when_somebody_looks_and_are_a_sequence(filtered: Path, tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / f"{name}.parquet").write_bytes(filtered.read_bytes())

    def ask() -> parquet_bloom.Verdicts:
        return parquet_bloom.check(tmp_path, f"id IN ({ABSENT}, {keys_table()['id'][0].as_py()})")

    waiting, made = ask(), [*ask()]
    assert (len(waiting), waiting.skipped) == (len(made), sum(v.skipped for v in made))
    assert waiting.skipped == 7 * 2
    assert "_verdicts" not in vars(waiting), "nobody has looked"
    assert waiting == made
    assert made == waiting
    assert waiting != made[1:]
    assert waiting != tuple(made)
    assert (len(waiting), waiting.skipped) == (len(made), sum(v.skipped for v in made))
    assert (waiting[0], waiting[-1], waiting[1:3]) == (made[0], made[-1], made[1:3])
    assert made[2] in waiting
    assert waiting.index(made[2]) == 2
    assert [*reversed(waiting)] == made[::-1]
    assert (waiting + made[:1], made[:1] + waiting) == ([*made, made[0]], [made[0], *made])
    assert pickle.loads(pickle.dumps(ask())) == made
    with ThreadPoolExecutor(4) as pool:
        shared = ask()
        assert all(one == made for one in pool.map(lambda _: [*shared], range(8)))


def test_what_a_filter_cannot_tell_is_kept(filtered: Path) -> None:
    assert kept(filtered, "colour = 'g'") == [0, 1, 2], "no filter there, and bounds admit it"
    assert kept(filtered, "colour = 'zzz'") == [], "bounds do not"
    assert kept(filtered, "flag = TRUE") == [0, 1, 2], "BOOLEAN has no filter, and both values are everywhere"


def test_what_no_value_can_equal_is_skipped_without_reading(filtered: Path) -> None:
    for predicate in ("id = 9223372036854775808", "id = 1.5", "id = NULL", "colour = NULL", "id > 9223372036854775807"):
        verdicts = parquet_bloom.check(filtered, predicate)
        assert all(v.skipped and v.decided_by == "literal" and v.bytes_read == 0 for v in verdicts), predicate


def test_nested_columns_by_path_and_by_prefix(filtered: Path) -> None:
    value = keys_table()["tags"][ROWS + 3].as_py()[1]
    for name in ("tags.list.element", "tags"):
        assert kept(filtered, f"list_contains({name}, {value})") == [1], name
        assert kept(filtered, f"list_contains({name}, {ABSENT})") == [], name
    verdicts = parquet_bloom.check(filtered, f"tags = {ABSENT}")
    assert verdicts.skipped == 0, "a list is compared, of which a filter of its elements says nothing"
    assert verdicts.unused == [(f"tags = {ABSENT}", "tags is a list; list_contains(tags, ...) speaks of its elements")]
    assert kept(filtered, "user = 5") == [0, 1, 2], "a group of two columns"
    assert kept(filtered, "user.id = 5") == [], "a leaf by its path"


VALUES = {
    "int8": (pa.int8(), [-128, 5], "-128"),
    "uint8": (pa.uint8(), [255, 5], "255"),
    "uint32": (pa.uint32(), [2**32 - 1, 5], "4294967295"),
    "uint64": (pa.uint64(), [2**64 - 1, 5], "18446744073709551615"),
    "int64": (pa.int64(), [-(2**63), 5], "-9223372036854775808"),
    "hex": (pa.int64(), [255, 5], "0xff"),
    "float32": (pa.float32(), [0.1, 5.0], "0.1"),
    "float64": (pa.float64(), [0.1, 5.0], "0.1"),
    "exponent": (pa.float64(), [1e300, 5.0], "1e300"),
    "negative_zero": (pa.float32(), [-0.0, 5.0], "0"),
    "float16": (pa.float16(), [np.float16(1.5), np.float16(5)], "1.5"),
    "decimal9": (pa.decimal128(9, 2), [Decimal("-12.30"), Decimal(5)], "-12.3"),
    "decimal18": (pa.decimal128(18, 4), [Decimal("12.3456"), Decimal(5)], "12.3456"),
    "decimal38": (pa.decimal128(38, 10), [Decimal("1e20"), Decimal(5)], "100000000000000000000"),
    "string": (pa.string(), ["it's", "x"], "'it''s'"),
    "empty": (pa.string(), ["", "x"], "''"),
    "unicode": (pa.string(), ["naïve ☃", "x"], "'naïve ☃'"),
    "binary": (pa.binary(), [b"\x00\xff", b"x"], "x'00ff'"),
    "fixed": (pa.binary(3), [b"abc", b"xyz"], "x'616263'"),
    "date": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2026, 1, 1)], "DATE '1969-12-31'"),
    "date_text": (pa.date32(), [dt.date(1969, 12, 31), dt.date(2026, 1, 1)], "'1969-12-31'"),
    "ts_ms": (pa.timestamp("ms"), [dt.datetime(2026, 1, 31, 1, 2, 3), dt.datetime(2000, 1, 1)],
              "TIMESTAMP '2026-01-31 01:02:03'"),
    "ts_us_utc": (pa.timestamp("us", "UTC"), [dt.datetime(2026, 1, 31, 1, 2, 3, 4), dt.datetime(2000, 1, 1)],
                  "TIMESTAMP '2026-01-31 03:02:03.000004+02:00'"),
    "ts_ns": (pa.timestamp("ns"), [dt.datetime(1960, 1, 1, 0, 0, 0, 5), dt.datetime(2000, 1, 1)],
              "TIMESTAMP '1960-01-01T00:00:00.000005'"),
    "time_ms": (pa.time32("ms"), [dt.time(23, 59, 59, 1000), dt.time(1)], "TIME '23:59:59.001'"),
    "time_us": (pa.time64("us"), [dt.time(23, 59, 59, 1), dt.time(1)], "TIME '23:59:59.000001'"),
    "uuid": (pa.uuid(), [uuid.UUID(int=7).bytes, uuid.UUID(int=9).bytes],
             "UUID '00000000-0000-0000-0000-000000000007'"),
}  # fmt: skip


@pytest.mark.parametrize("spec", ["final", "parquet-41"])
def test_a_stored_value_is_found_by_its_literal(tmp_path: Path, spec: str) -> None:
    """Row group 0 holds it, row group 1 does not."""
    columns, path = {}, tmp_path / "one.parquet"
    for case, (kind, (value, other), _) in VALUES.items():
        storage = pa.binary(16) if case == "uuid" else kind
        columns[case] = pa.chunked_array([pa.array([one] * 3, storage) for one in (value, other)]).cast(kind)
    options = {"row_group_size": 3, "use_dictionary": False, "store_decimal_as_integer": True}
    pq.write_table(pa.table(columns), path, **options)
    parquet_bloom.add_filters(path, in_place=True, spec=spec, sync=False, columns=["*"])
    for case, (_, _, literal) in VALUES.items():
        verdicts = parquet_bloom.check(path, f'"{case}" = {literal}')
        assert [v.skipped for v in verdicts] == [False, True], (case, [v.reason for v in verdicts])


def inside(path: Path) -> int:
    """A value that lies within the bounds of every row group."""
    facts = pq.ParquetFile(path).metadata
    bounds = [facts.row_group(i).column(0).statistics for i in range(facts.num_row_groups)]
    low, high = max(b.min for b in bounds), min(b.max for b in bounds)
    assert low < high, "the row groups overlap"
    return int(low + high) // 2


def test_filters_of_others_never_lose_a_row() -> None:
    """Damaged ones are no evidence and one warning; unknown ones are none and no warning."""
    for name in ("02_not_mult32", "06_garbage_ff", "09_length_too_big_padding64", "13_numbytes_0", "13c_numbytes_1GiB",
                 "13e_numbytes_half_nolen"):  # fmt: skip
        path = corpus_file(f"malformed_lab/{name}.parquet")
        with pytest.warns(FilterWarning, match=rf"{name}.parquet: 4 damaged filters ignored, the first: ") as caught:
            assert kept(path, f"id = {inside(path)}") == [0, 1, 2, 3]
        assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unknown = corpus_file("malformed_lab/04_unknown_hash2.parquet")
        assert parquet_bloom.check(unknown, f"id = {inside(unknown)}").skipped == 0
        fruits = corpus_file("bloom/parquetjs__fruits-bloomfilter.parquet")
        assert parquet_bloom.check(fruits, "quantity = 15").skipped == 0
    for name in ("00_good_pow2", "01b_nonpow2_3blk", "03b_bare_hdr_murmur3_nocomp", "07_draft_pageheader_murmur3",
                 "10_no_length"):  # fmt: skip
        path = corpus_file(f"malformed_lab/{name}.parquet")
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                for value in file.read_row_group(group, ["id"])["id"].to_pylist()[::50]:
                    assert group in kept(path, f"id = {value}"), name


def test_on_a_pyarrow_file_system(filtered: Path) -> None:
    local = pa.fs.SubTreeFileSystem(str(filtered.parent), pa.fs.LocalFileSystem())
    verdicts = parquet_bloom.check(filtered.name, f"id = {ABSENT}", filesystem=local)
    assert [v.skipped for v in verdicts] == [True] * 3
    infos = parquet_bloom.inspect(filtered.name, filesystem=local).files[0].filters
    assert len(infos) == len(parquet_bloom.inspect(filtered).files[0].filters)
    assert all(f.status == "right" for f in parquet_bloom.verify(filtered.name, filesystem=local).files[0].filters)


def test_text_that_is_no_predicate_is_told_before_any_file_is_opened() -> None:
    with pytest.raises(TextError) as caught:
        parquet_bloom.check("never opened.parquet", "id = 5 AND")
    assert str(caught.value).splitlines()[-1].endswith("^")


def test_quoted_names(tmp_path: Path) -> None:
    path = tmp_path / "names.parquet"
    names = ["a.b", 'say "hi"', "with space", "ünïcode", "Id", "id"]
    pq.write_table(pa.table({name: [i + 100] for i, name in enumerate(names)}), path, use_dictionary=False)
    parquet_bloom.add_filters(path, in_place=True, sync=False, columns=["*"])
    for i, text in enumerate(['"a.b"', '"say ""hi"""', '"with space"', "ünïcode", "Id", "id"]):
        assert kept(path, f"{text} = {i + 100}") == [0]
        assert kept(path, f"{text} = 7") == []
    with pytest.raises(UnknownColumnError):
        kept(path, "a.b = 100")


def test_what_filters_do_not_answer_is_said(tmp_path: Path) -> None:
    asked = (
        ("id > 5", "id"), ("id <> 5", "id"), ("name BETWEEN 'a' AND 'z'", "name"), ("id > 5 OR flag", "id"),
        ("NOT (id IN (1, 2) OR name < 'a')", "id, name"), ("id = 5", ""), ("NOT (id <> 5)", ""), ("flag", ""),
        ("id > 5 AND id = 7", ""), ("id IS NULL", ""),
    )  # fmt: skip
    path = tmp_path / "x.parquet"
    rows = {"id": [1, 9, None], "name": ["a", "zz", "k"], "flag": [True, False, None]}
    pq.write_table(pa.table(rows), path)
    for predicate, _ in asked:
        assert not any("filters" in note for note in parquet_bloom.check(path, predicate).notes), "there are none"
    parquet_bloom.add_filters(path, in_place=True)
    for predicate, named in asked:
        told = f"filters on {named} tell nothing of this predicate: they answer =, IN and IS NOT DISTINCT FROM alone"
        assert parquet_bloom.check(path, predicate).notes == ([told] if named else []), predicate


def test_excluded_files_are_made_once_and_can_be_set(tmp_path: Path) -> None:
    """Also by several threads at once; a copy has them too."""
    (tmp_path / "data").mkdir()
    for number in range(40):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"data/{number:02}.parquet")
    parquet_bloom.build_index(tmp_path / "data", "id", tmp_path / "index")
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            found = parquet_bloom.check(tmp_path / "data", "id = 7", index=tmp_path / "index")
            assert "38 files not opened" in repr(found), "the first file is opened for its columns"
            with ThreadPoolExecutor(4) as pool:
                lists = list(pool.map(lambda _, found=found: found.excluded, range(4)))
            assert [len(one) for one in lists] == [38] * 4
            assert all(one is lists[0] for one in lists)
    finally:
        sys.setswitchinterval(interval)
    assert "38 files not opened" in repr(found)
    assert pickle.loads(pickle.dumps(found)).excluded == found.excluded
    found.excluded = found.excluded[:1]
    assert len(found.excluded) == 1
    other = parquet_bloom.check(tmp_path / "data", "id = 7", index=tmp_path / "index")
    other.excluded = []
    assert other.excluded == []
    assert "not opened" not in repr(other)
