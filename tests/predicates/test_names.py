"""Names and literals that make no sense are one error for the whole call, found out by the first footer.

And folders that are named by dates, `day=2026-01-02`: dates and texts at once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.named import named
from support.repeats import by_turns

import parquet_bloom
from parquet_bloom.errors import RequestError, UnknownColumnError
from parquet_bloom.rows.scan import Scan

TABLE = {
    "id": pa.array([1, 2, 3]), "small": pa.array([1, 2, 3], pa.int32()), "name": pa.array(["a", "b", "c"]),
    "flag": pa.array([True, False, None]), "day": pa.array([dt.date(2026, 1, n) for n in (1, 2, 3)]),
    "at": pa.array([dt.datetime(2026, 1, n) for n in (1, 2, 3)], pa.timestamp("us", "UTC")),
    "x": pa.array([0.5, 1.5, 2.5]), "raw": pa.array([b"a", b"b", b"c"]), "tags": pa.array([["a"], ["b"], []]),
    "uid": pa.array([bytes(16)] * 3, pa.uuid()),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files; the second has other types, the third a column more."""
    folder = tmp_path_factory.mktemp("names")
    table = pa.table(TABLE)
    pq.write_table(table, folder / "a.parquet")
    pq.write_table(pa.table({"id": ["1"], "name": [5]}), folder / "b.parquet")
    pq.write_table(table.append_column("late", pa.array([1, 2, 3])), folder / "c.parquet")
    return folder


ASK: dict[str, Callable[[Any, Any], Any]] = {
    "check": parquet_bloom.check,
    "prune": parquet_bloom.prune,
    "count": parquet_bloom.count,
    "read_table": parquet_bloom.read_table,
    "dataset": parquet_bloom.dataset,
}

FIRST = r"a\.parquet \(the first of 3 files\): "
UNKNOWN = [
    ("zzz = 5", "no column zzz; there are: id, small"),
    ("nam = 'a'", "no column nam; near names: name"),
    ("name = x1", "no column x1; .*a text is written in single quotes: 'x1'"),
    ("x1 = name", "no column x1; .*a text is written in single quotes: 'x1'"),
    ("id = 1 OR name IN (abc, 'b')", "no column abc; .*: 'abc'"),
    ("name BETWEEN aa AND bb", "no column aa; .*: 'aa'"),
    ("name = abc-def", "no column abc; .*: 'abc'"),
    ("name LIKE abc", "no column abc; .*: 'abc'"),
    ("list_contains(tags, new)", "no column new; .*: 'new'"),
    ("late = 1", "no column late"),
]
MISFITS = [
    ("name = 5", "column name is BYTE_ARRAY STRING: 5 is no literal for it; write a text in single quotes: '5'"),
    ("name > DATE '2026-01-01'", "DATE '2026-01-01' is no literal for it; write a text in single quotes: '2026-01-01'"),
    ("name = TRUE", "TRUE is no literal for it; write a text in single quotes"),
    ("id = 'abc'", "column id is INT64: 'abc' is no literal for it; write a number, without quotes"),
    ("x IN (1, 'abc')", "column x is DOUBLE: 'abc' is no literal"), ("x", "TRUE is no literal"),
    ("small < TIMESTAMP '2026-01-01'", "TIMESTAMP '2026-01-01 00:00:00' is no literal"),
    ("day = TRUE", "alone it is no condition .day = ... is one., and TRUE is no literal for it; write DATE"),
    ("day = 20260101", "write DATE"),
    ("at = 5", r"INT64 TIMESTAMP\(us, UTC\): 5 is no literal for it; write TIMESTAMP"),
    ("at = '2026-01-01'", r"the column is in UTC; write TIMESTAMP '2026-01-01 00:00:00\+00:00'$"),
    ("day = TIMESTAMP '2026-01-01 00:00:00+00:00'", "write DATE '2026-01-01'$"),
    ("day = '2026-13-45'", "month must be in 1..12; write DATE '2026-01-31'$"),
    ("day = 'soon'", "'soon' is no literal"), ("flag = 1", "write TRUE or FALSE"),
    ("flag = 'true'", "write TRUE or FALSE"),
    ("raw = 5", "write a text in single quotes"), ("list_contains(tags, 5)", "column tags.list.element is list of"),
    ("uid = 'abc'", "write UUID"), ("uid = 5", "write UUID"), ("NOT (id = 1 AND name <> 5)", "5 is no literal"),
]  # fmt: skip


def test_an_unknown_name_is_one_error(folder: Path) -> None:
    for (text, reason), ask in by_turns(UNKNOWN, [*ASK.values()]):
        with named(text), pytest.raises(UnknownColumnError, match=FIRST + reason):
            ask(folder, text)


def test_a_literal_of_another_kind_is_one_error(folder: Path) -> None:
    for (text, reason), ask in by_turns(MISFITS, [*ASK.values()]):
        with named(text), pytest.raises(RequestError, match=FIRST + ".*" + reason):
            ask(folder, text)
        with named(text), pytest.raises(RequestError, match=r"a\.parquet: column"):
            ask(folder / "a.parquet", text)


NO_MISTAKES = """small = 1099511627776|id = 1.5|id = NULL|lower(name) = 'a'|lower(nope) = 'a'|name LIKE 'a%'|name = raw
at = TIMESTAMP '2026-01-01Z'|day = TIMESTAMP '2026-01-01 12:30'|day = '2026-01-01 12:30'|at = '2026-01-01 00:00:00Z'
x = 1e400|uid = 'sixteen letters!'|name = x'6162'|raw = 'a'""".replace("\n", "|").split("|")


def test_what_is_no_mistake(folder: Path) -> None:
    """A literal of the right kind that no value equals, what is not understood, what engines read in their own ways."""
    for text in NO_MISTAKES:
        with named(text):
            assert len(parquet_bloom.check(folder / "a.parquet", text)) == 1


def test_only_the_first_file_decides_what_is_a_mistake(folder: Path) -> None:
    """In the second file `id` is a text and `name` a number: that says nothing there, and is no error."""
    for text, kept in (("id = 7", ["b"]), ("name = 'zzz'", ["b"])):
        verdicts = parquet_bloom.check(folder, text)
        assert [Path(v.path).stem for v in verdicts if not v.skipped] == kept
        [(part, reason)] = verdicts.unused
        assert part == text
        assert "in the first file, " in reason
        assert reason.endswith(f"(in 1 of 3 files: {folder / 'b.parquet'})")
    turned = [folder / "b.parquet", folder / "a.parquet"]
    with pytest.raises(RequestError, match="column id is BYTE_ARRAY STRING: 7 is no literal for it"):
        parquet_bloom.check(turned, "id = 7")


def test_columns_are_looked_up_before_other_files_are_opened(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "b.parquet").write_bytes(b"no Parquet file at all")
    pq.write_table(pa.table(TABLE), tmp_path / "a.parquet")
    for call in (
        lambda: parquet_bloom.read_table(tmp_path, "id = 1", columns=["nam"]),
        lambda: list(parquet_bloom.read_batches(tmp_path, columns=["nam"])),
        lambda: parquet_bloom.prune(tmp_path, column="nam", values=["a"]),
        lambda: parquet_bloom.check(tmp_path, "nam = 'a'"),
    ):
        with pytest.raises(UnknownColumnError, match=r"a\.parquet \(the first of 2 files\): no column nam; near names"):
            call()
    with pytest.raises(RequestError, match="5 is no literal"):
        parquet_bloom.prune(tmp_path / "a.parquet", column="name", values=[5])


def test_keys_over_a_group_of_two_columns_in_a_later_file(tmp_path: Path) -> None:
    """It was taken for a column that the file lacks, and its row groups for NULL."""
    for name, row in (("a", {"v": 1}), ("b", {"v": 1, "w": 2})):
        pq.write_table(pa.table({"user": [row]}), tmp_path / f"{name}.parquet")
    with pytest.raises(UnknownColumnError, match=r"b\.parquet: column user is ambiguous"):
        parquet_bloom.prune(tmp_path, column="user", values=[1])
    assert len(parquet_bloom.prune(tmp_path, column="user.v", values=[1])) == 2


def test_a_first_file_that_cannot_be_read_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no Parquet file at all")
    for name in ("b", "c"):
        pq.write_table(pa.table(TABLE), tmp_path / f"{name}.parquet")
    verdicts = parquet_bloom.check(tmp_path, "id = 9")
    assert [failed.path for failed in verdicts.failed] == [str(tmp_path / "a.parquet")]
    assert len(verdicts) == 2
    with pytest.raises(UnknownColumnError, match=r"b\.parquet"):
        parquet_bloom.check(tmp_path, "idd = 9")


def test_pyarrow_s_own_casts_stay(folder: Path) -> None:
    """isin casts its values, so texts are no mistake there; a comparison that pyarrow refuses is one."""
    path = folder / "a.parquet"
    cast = pc.field("id").isin(["1", "2"])
    assert parquet_bloom.read_table(path, cast).num_rows == pq.read_table(path).filter(cast).num_rows == 2
    assert not any(v.skipped for v in parquet_bloom.check(path, cast))
    for wrong in (pc.field("name") == 5, [("id", "=", "abc")]):
        with pytest.raises(pa.ArrowException):
            pq.read_table(path, filters=wrong)
        for ask in ASK.values():
            with pytest.raises(RequestError, match="is no literal for it"):
                ask(path, wrong)


# --- dates in folders' names ------------------------------------------------------------------------

DAYS = ["2025-12-31", "2026-01-02", "2026-01-03", "2026-02-01"]
FOLDERS = [*DAYS, "__HIVE_DEFAULT_PARTITION__"]


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("days")
    for at, day in enumerate(FOLDERS):
        (folder / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": [10 * at, 10 * at + 1]}), folder / f"day={day}" / "x.parquet")
    return folder


BY_DAY = {
    "day = DATE '2026-01-02'": [10, 11],
    "day = '2026-01-02'": [10, 11],
    "day = '2026-01-02' AND id = 11": [11],
    "day >= DATE '2026-01-03'": [20, 21, 30, 31],
    "day >= '2026-01-03'": [20, 21, 30, 31],
    "day >= '2026-01' AND day < '2026-02'": [10, 11, 20, 21],
    "day BETWEEN DATE '2026-01-01' AND DATE '2026-01-31'": [10, 11, 20, 21],
    "day > TIMESTAMP '2026-01-02 12:00:00'": [20, 21, 30, 31],
    "day <> DATE '2026-01-02'": [0, 1, 20, 21, 30, 31],
    "day IN ('2026-01-02', '2026-02-01')": [10, 11, 30, 31],
    "day IN (DATE '2026-01-02', '2026-02-01', NULL)": [10, 11, 30, 31],
    "NOT day IN (DATE '2026-01-02', DATE '2026-02-01')": [0, 1, 20, 21],
    "day IS NULL": [40, 41],
    "day = DATE '2020-01-01'": [],
    "day = '2020-01-01' OR id = 41": [41],
    "day = DATE '2020-01-01' OR id = 41": [41],
    "day = 'tomorrow'": [],
}


def test_days_are_dates_and_texts(days: Path) -> None:
    for text, wanted in BY_DAY.items():
        files = {str(days / f"day={FOLDERS[row // 10]}" / "x.parquet") for row in wanted}
        with named(text):
            assert parquet_bloom.read_table(days, text)["id"].to_pylist() == wanted
            assert parquet_bloom.count(days, text) == len(wanted)
            assert {v.path for v in parquet_bloom.check(days, text) if not v.skipped} == files
            assert {path for path, _ in parquet_bloom.prune(days, text)} == files
            assert {str(f.path) for f in parquet_bloom.dataset(days, text).get_fragments()} == files
            assert not Scan(days, text).unused


def test_rows_hold_days_as_pyarrow_has_them(days: Path) -> None:
    """A string, as a dictionary; so expressions and DNF lists over texts work as they do in pyarrow."""
    whole = pq.read_table(days)
    assert parquet_bloom.read_table(days).to_pylist() == whole.to_pylist()
    assert parquet_bloom.read_table(days).schema.equals(whole.schema)
    assert whole.schema.field("day").type == pa.dictionary(pa.int32(), pa.string())
    for filters in ([("day", ">=", "2026-01-03")], pc.field("day") == "2026-01-02", [("day", "in", DAYS[:2])]):
        assert parquet_bloom.read_table(days, filters).to_pylist() == pq.read_table(days, filters=filters).to_pylist()
        assert len(parquet_bloom.prune(days, filters)) < len(DAYS)


def test_many_days_at_once(days: Path) -> None:
    day, text = dt.date(2026, 1, 2), "2026-01-02"
    for values in ([text, "2026-05-05"], [day], pa.array([day]), pa.array([text]), [day, "2020-01-01"]):
        found = parquet_bloom.prune(days, column="day", values=values)
        assert found == [(str(days / "day=2026-01-02" / "x.parquet"), [0])], values


def test_duckdb_filters_the_data_set(days: Path) -> None:
    """It compares a text with a text, and wants a cast for a date."""
    duckdb = pytest.importorskip("duckdb")
    for text in ("day = '2026-01-02'", "day >= DATE '2026-01-03'", "day > TIMESTAMP '2026-01-02 12:00:00'"):
        connection = duckdb.connect()
        connection.register("kept", parquet_bloom.dataset(days, text))
        where = text if "= '" in text else text.replace("day", "CAST(day AS DATE)")
        found = connection.execute(f"SELECT id FROM kept WHERE {where} ORDER BY 1").fetchall()
        assert [row for (row,) in found] == BY_DAY[text]


def test_folders_of_which_one_is_no_date_are_texts(tmp_path: Path) -> None:
    for day in ("2026-01-02", "2026-02-30"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": [1]}), tmp_path / f"day={day}" / "x.parquet")
    assert parquet_bloom.count(tmp_path, "day = '2026-02-30'") == 1
    assert ds.dataset(tmp_path, partitioning="hive").schema.field("day").type == pa.string()
    with pytest.raises(RequestError, match="column day is BYTE_ARRAY STRING: DATE '2026-01-02' is no literal for it"):
        parquet_bloom.check(tmp_path, "day = DATE '2026-01-02'")
