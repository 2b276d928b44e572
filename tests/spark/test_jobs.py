"""Jobs over many files: the rows that the library gives for each file alone, and a row for each bad one."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file

import parquet_bloom
from parquet_bloom import spark as bloom
from parquet_bloom.errors import RequestError, StorageError, TextError, UnknownColumnError
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.spark.listing import folders_of, shape_of
from parquet_bloom.spark.work import literal_path

pytestmark = pytest.mark.spark

ENCRYPTED = "encrypted/hardwood__encrypted_footer.parquet"
KEY = 7 * 1000 + 3  # of file 7


def write_day(path: Path, number: int, spec: str) -> None:
    """Two row groups of 40 keys; bounds exclude none of number * 1000 .. + 80 from its own file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    ids = [number * 1000 + i for i in range(0, 160, 2)] + [KEY if number == 7 else 0]
    table = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})
    pq.write_table(table, path, row_group_size=41, use_dictionary=False)
    parquet_bloom.add_filters(path, in_place=True, columns=["id", "name"], spec=spec, fpp=1e-4, sync=False)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hundred good files in Hive folders, and among them what is passed over and what is bad."""
    root = tmp_path_factory.mktemp("days") / "data"
    specs = list(FORMATS)
    for i in range(100):
        write_day(root / f"year={2000 + i % 4}" / f"city=K [{i % 2}]" / f"{i:03}.parquet", i, specs[i % len(specs)])
    inside = root / "year=2001" / "city=K [1]"
    for hidden in ("_SUCCESS", "_metadata", ".000.parquet.crc", ".hidden.parquet"):
        (inside / hidden).write_bytes(b"nothing")
    (inside / "corrupt.parquet").write_bytes((inside / "001.parquet").read_bytes()[:-40] + b"x" * 36 + b"PAR1")
    (inside / "empty.parquet").write_bytes(b"")
    (inside / "text.parquet").write_text("no Parquet at all")
    with contextlib.suppress(pytest.skip.Exception):  # without the corpus the other three are bad enough
        shutil.copy(corpus_file(ENCRYPTED), inside / "encrypted.parquet")
    return root


def bad_names(days: Path) -> set[str]:
    return {path.name for path in days.rglob("*.parquet") if path.stem.isalpha() and path.name[0] != "."}


def rows_of(frame: Any) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The rows of sound files, and the errors by file name."""
    rows = [row.asDict() for row in frame.collect()]
    assert list(frame.columns)[-1] == "error"
    errors = {Path(row["path"]).name: row["error"] for row in rows if row["error"] is not None}
    return [row for row in rows if row["error"] is None], errors


def test_filters_are_described_and_bad_files_are_rows(spark: Any, days: Path) -> None:
    rows, errors = rows_of(bloom.inspect_filters(spark, [str(days)], columns=["id"]))
    assert set(errors) == bad_names(days)
    assert len(errors) >= 3
    assert all("\n" not in error for error in errors.values())
    sample = days / "year=2003" / "city=K [1]" / "007.parquet"
    [file] = parquet_bloom.inspect(sample, columns=["id"]).files
    found = sorted((row for row in rows if row["path"] == str(sample)), key=lambda row: row["row_group"])
    assert [
        {name: getattr(info, name) for name in row if name not in ("path", "error")}
        for info, row in zip(file.filters, found, strict=True)
    ] == [{name: row[name] for name in row if name not in ("path", "error")} for row in found]
    assert len(rows) == 200, "two filters a file, of every form, and nothing of the hidden files"
    assert {row["spec"] for row in rows} == set(FORMATS)


def test_filters_are_held_against_the_values(spark: Any, tmp_path: Path) -> None:
    good, wrong = tmp_path / "good.parquet", tmp_path / "wrong.parquet"
    write_day(good, 7, "final")
    info = parquet_bloom.inspect(good, columns=["id"]).files[0].filters[1]
    data = bytearray(good.read_bytes())
    data[info.offset + info.length - info.num_bytes : info.offset + info.length] = bytes(info.num_bytes)
    wrong.write_bytes(data)
    rows, errors = rows_of(
        bloom.verify_filters(spark, [str(good), str(wrong), str(tmp_path / "none")], exclude=["name"])
    )
    by_file = {(Path(row["path"]).name, row["row_group"]): row for row in rows}
    assert [key for key, row in by_file.items() if row["status"] != "right"] == [("wrong.parquet", 1)]
    assert by_file["wrong.parquet", 1]["missed"] == by_file["wrong.parquet", 1]["values"] > 0
    assert by_file["good.parquet", 0]["measured_fpp"] < 0.1
    assert set(errors) == {"none"}
    assert "no such file" in errors["none"]


@pytest.mark.parametrize("name", ["nowhere", "nowhere*.parquet"])
def test_a_name_without_a_file_is_an_error(spark: Any, days: Path, tmp_path: Path, name: str) -> None:
    gone = str(tmp_path / name)
    for names in (gone, [gone, str(tmp_path / "gone")]):
        for ask in (
            lambda names: bloom.check(spark, names, f"id = {KEY}"),
            lambda names: bloom.prune(spark, names, f"id = {KEY}"),
            lambda names: bloom.inspect_filters(spark, names, columns="id"),
            lambda names: bloom.verify_filters(spark, names),
        ):
            with pytest.raises(StorageError, match="no (such file or folder|file fits this pattern)$"):
                ask(names)
    rows, errors = rows_of(bloom.check(spark, [gone, str(days / "year=2003")], f"id = {KEY}"))
    assert rows
    assert name in errors, "of several names the others are read"


def test_row_groups_fall_to_folders_bounds_and_filters(spark: Any, days: Path) -> None:
    where = f"id = {KEY} AND year >= 2002 AND city = 'K [1]'"
    rows, errors = rows_of(bloom.check(spark, [str(days)], where))
    assert set(errors) == bad_names(days)
    assert len(rows) == 200
    assert [Path(row["path"]).name for row in rows if not row["skipped"]] == ["007.parquet"]
    assert {row["decided_by"] for row in rows} == {None, "partition", "bounds", "filter"}
    alone = {(v.path, v.row_group): v for v in parquet_bloom.check(days, where)}
    for row in rows:
        verdict = alone[row["path"], row["row_group"]]
        assert (row["outcome"], row["bytes_read"], row["rows"], row["size"], row["reason"]) == (
            verdict.outcome.names, verdict.bytes_read, verdict.rows, verdict.size, verdict.reason,
        )  # fmt: skip


def test_what_is_left(spark: Any, days: Path) -> None:
    rows, errors = rows_of(bloom.prune(spark, [str(days)], f"name = 'n{KEY}' AND year IN (2001, 2003)"))
    assert set(errors) == bad_names(days), "whatever is in them may match"
    [row] = rows
    file = pq.ParquetFile(row["path"])
    assert Path(row["path"]).name == "007.parquet"
    assert row["row_groups"] == [1]
    assert row["rows"] == file.metadata.row_group(1).num_rows


def test_names_are_looked_for_in_all_files_before_any_row(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "Odd": [5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [2], "late": [5]}), tmp_path / "b.parquet")
    paths = [str(tmp_path)]
    rows, errors = rows_of(bloom.check(spark, paths, "late = 5 OR Odd = 5"))
    assert not errors
    assert [row["skipped"] for row in rows] == [False, False]
    rows, _ = rows_of(bloom.check(spark, paths, "late = 5"))
    assert {Path(r["path"]).name: (r["skipped"], r["outcome"]) for r in rows} == {
        "a.parquet": (True, ["NULL"]), "b.parquet": (False, ["TRUE"]),
    }  # fmt: skip
    with pytest.raises(UnknownColumnError, match="no column odd; near names: Odd"):
        bloom.prune(spark, paths, "odd = 5")
    with pytest.raises(UnknownColumnError, match="nope"):
        bloom.inspect_filters(spark, paths, columns=["nope"])


def test_requests_that_make_no_sense_are_errors_before_any_task() -> None:
    nothing: Any = None
    with pytest.raises(TextError):
        bloom.check(nothing, ["x"], "id = ")
    with pytest.raises(TextError):
        bloom.prune(nothing, ["x"], "id = ")
    with pytest.raises(RequestError, match="sample 0"):
        bloom.verify_filters(nothing, ["x"], sample=0)


def test_names_in_other_case_are_no_evidence(tmp_path: Path) -> None:
    from parquet_bloom.search.options import DatasetSchema, Options
    from parquet_bloom.search.search import Search
    from parquet_bloom.source.source import resolved_files
    from parquet_bloom.storage.open_file import OpenFile
    from parquet_bloom.storage.paths import DataFile

    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ID": [5]}), tmp_path / "b.parquet")
    with OpenFile(tmp_path / "a.parquet") as source:
        known = DatasetSchema(source.outline().leaves, ())
    for ignore, skipped in ((True, False), (False, True)):
        options = Options(dataset_schema=known, ignore_case=ignore)
        [one] = Search(resolved_files([DataFile(str(tmp_path / "b.parquet"))]), "id = 5", options)
        assert not isinstance(one, tuple)
        assert one.decision is not None
        assert (not one.decision.open.any()) == skipped, "Spark reads ID as id"


def test_folders_are_read_as_spark_reads_them() -> None:
    assert folders_of("/year=2026/city=a%20b/x.parquet") == (("year", "2026"), ("city", "a b"))
    assert folders_of("/a=1/plain/b=2/x.parquet") == (("b", "2"),), "upwards, until one is none"
    assert folders_of("/a=1/plain/x.parquet") == (("a", "1"),)
    assert folders_of("/k=__HIVE_DEFAULT_PARTITION__/x.parquet") == (("k", None),)
    assert folders_of("/=1/k/x=1.parquet") == ()
    assert folders_of("/k=%C3%A9/x") == (("k", "\xc3\xa9"),), "one character a code"
    assert literal_path("/a[1]/*.parquet") == r"/a\[1\]/\*.parquet"


def test_values_of_one_shape_have_one_type() -> None:
    shapes = [shape_of(v) for v in ("5", "-05", "+7", "5000000000", "1" * 20, "1e5", "NaN", "3fa9", "x", None)]
    assert shapes == ["int32"] * 3 + ["int64", "20 digits", "double", "double", "text", "text", "null"]
    assert shape_of("2026-01-31") == shape_of("1999-12-01") != shape_of("2026-13-45")


def test_every_name_is_there() -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed (extra `spark`)")
    for name in dir(bloom):
        assert getattr(bloom, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'bogus'"):
        _ = bloom.bogus
