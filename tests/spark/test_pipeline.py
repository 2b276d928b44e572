"""add_filters on Spark: the same bytes as the command writes, whatever the way, and a row for every file."""

from __future__ import annotations

import dataclasses
import os
import random
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.spark_needed import without_progress

import parquet_bloom
from parquet_bloom.errors import RequestError, StorageError, TableFormatError, TableWarning, UnknownColumnError
from parquet_bloom.spark import add as pipeline
from parquet_bloom.spark import listing
from parquet_bloom.spark.add import add_filters
from parquet_bloom.spark.listing import list_by_size, list_few
from parquet_bloom.spark.storages import Storages

pytestmark = pytest.mark.spark
ROWS = 500


def table(seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids = rng.integers(-(2**63), 2**63 - 1, ROWS)
    return pa.table(
        {
            "id": ids,
            "name": [f"n{i}" if i % 7 else None for i in ids.tolist()],
            "deep": [{"x": int(i % 1000), "l": [int(i), 5]} for i in ids.tolist()],
            "at": pa.array(rng.integers(0, 10**15, ROWS), pa.timestamp("us")),
        }
    )


def write(path: Path, seed: int, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(seed), path, row_group_size=200, **{"use_dictionary": False, **options})


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def rows_of(report: Any) -> dict[str, Any]:
    rows = {row.path: row for row in report.collect()}
    report.unpersist()
    return rows


def statuses(report: Any) -> dict[str, str]:
    return {os.path.basename(path): row.status for path, row in rows_of(report).items()}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a Spark job leaves: partitions, marks, checksums; and what it does not, names that need care."""
    root = tmp_path_factory.mktemp("tree") / "a data set"
    for i in range(24):
        write(root / f"year={2020 + i % 3}" / f"kind=a%3Ab{i % 2}" / f"part {i:02} ü%.parquet", i)
    for i in range(4):
        write(root / f"plain{i}.parquet", 100 + i)
    (root / "_SUCCESS").touch()
    (root / "_metadata").write_bytes((root / "plain0.parquet").read_bytes())
    (root / ".plain0.parquet.crc").write_bytes(b"crc\0\0\0\2\0")
    (root / "_temporary").mkdir()
    write(root / "_temporary" / "half.parquet", 1)
    return root


@pytest.fixture
def data(tree: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tree, tmp_path / tree.name))


@pytest.fixture(scope="module")
def expected(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The same tree after the library's own add."""
    copy = Path(shutil.copytree(tree, tmp_path_factory.mktemp("expected") / "x"))
    parquet_bloom.add_filters(copy, columns=["id", "deep.*"], in_place=True, sync=False)
    (copy / ".plain0.parquet.crc").unlink(missing_ok=True)
    return contents(copy)


WANTED = {"columns": ["id", "deep.*"], "sync": False}


@pytest.fixture
def by_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors list, as they do where files are many or elsewhere."""
    monkeypatch.setattr(pipeline, "list_few", lambda *_, **__: None)


@pytest.fixture(params=["driver", "tasks"])
def lister(request: pytest.FixtureRequest) -> str:
    """Who lists: the driver, as files are few, or tasks."""
    if request.param == "tasks":
        request.getfixturevalue("by_tasks")
    return str(request.param)


def test_few_files_are_one_job(spark: Any, data: Path, expected: dict[str, bytes]) -> None:
    context = spark.sparkContext
    context.setJobGroup("few files", "")
    try:
        names = [str(data / "plain*.parquet"), str(data / "plain1.parquet"), str(data / "gone.parquet")]
        found = statuses(add_filters(spark, names, in_place=True, **WANTED))
        jobs = context.statusTracker().getJobIdsForGroup("few files")
        assert len(jobs) - 1 == 1, "one adds filters; the other shows the report, here"
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert found == {"gone.parquet": "failed", **{f"plain{i}.parquet": "done" for i in range(4)}}
    assert {name: b for name, b in contents(data).items() if "/" not in name} == {
        name: b for name, b in expected.items() if "/" not in name
    }


def test_what_is_not_few_is_listed_by_tasks(
    spark: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = Storages()
    assert len(list_few(spark, [str(data)], where, 1 << 28).rows) == 28
    assert list_few(spark, [str(data)], where, 1000) is None, "a file that is to be split"
    assert list_few(spark, [str(data), "s3a://bucket/more"], where, 1 << 28) is None, "another storage"
    monkeypatch.setattr(listing, "_FEW", 27)
    assert list_few(spark, [str(data)], where, 1 << 28) is None, "more files"
    monkeypatch.setattr(listing, "_FEW", 3)
    monkeypatch.setattr(listing, "list_folder", None)
    assert list_few(spark, [str(data)], where, 1 << 28) is None, "a folder that is full is left before it is listed"


@pytest.mark.usefixtures("lister")
def test_in_place(spark: Any, data: Path, expected: dict[str, bytes]) -> None:
    before = spark.read.parquet(str(data)).orderBy("id", "name").collect()
    report = rows_of(add_filters(spark, [str(data)], in_place=True, **WANTED))
    assert contents(data) == expected
    assert len(report) == 28
    for path, row in report.items():
        size = os.path.getsize(path)
        assert (row.status, row.output, row.row_groups, row.filters, row.error) == ("done", path, 3, 9, None)
        assert (row.bytes_after, row.bytes_before < size, row.filter_bytes > 0) == (size, True, True)
    assert spark.read.parquet(str(data)).orderBy("id", "name").collect() == before
    again = rows_of(add_filters(spark, [str(data)], in_place=True, **WANTED))
    assert {row.status for row in again.values()} == {"unchanged"}
    assert contents(data) == expected


@pytest.mark.usefixtures("lister")
@pytest.mark.parametrize("as_uri", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_into_a_folder(spark: Any, data: Path, tmp_path: Path, expected: dict[str, bytes], as_uri: bool) -> None:
    source, out = contents(data), tmp_path / "out"
    names = [f"file:{data}" if as_uri else str(data), f"file://{out}" if as_uri else str(out)]
    report = rows_of(add_filters(spark, names[:1], output=names[1], **WANTED))
    files = {name: b for name, b in expected.items() if not name.startswith((".", "_"))}
    assert (contents(out), contents(data)) == (files, source)
    assert {(row.status, row.output.startswith(names[1])) for row in report.values()} == {("done", True)}
    (out / "plain1.parquet").unlink()
    (out / "plain2.parquet").write_bytes(b"something else")
    shutil.copy(data / "plain3.parquet", out / "plain3.parquet")  # ours, by the look of it, before its filters
    found = statuses(add_filters(spark, names[:1], output=names[1], **WANTED))
    odd = {name: status for name, status in found.items() if status != "unchanged"}
    assert odd == {"plain1.parquet": "done", "plain2.parquet": "failed", "plain3.parquet": "done"}
    assert (out / "plain2.parquet").read_bytes() == b"something else"
    found = statuses(add_filters(spark, names[:1], output=names[1], overwrite=True, **WANTED))
    assert (set(found.values()), contents(out)) == ({"done"}, files)


@pytest.mark.parametrize(
    ("spec", "placement"),
    [
        ("final", "footer"),
        ("final", "tail"),
        ("statistics", None),
        pytest.param("final", "chunk-start", marks=pytest.mark.slow),
        *(pytest.param(f"parquet-41{form}", None, marks=pytest.mark.slow) for form in ("", "-early", "-raw")),
    ],
)
def test_large_files_are_split(spark: Any, data: Path, tmp_path: Path, spec: str, placement: str | None) -> None:
    for path in (data / "year=2020", data / "year=2021", *(data / "year=2022").rglob("* 0*.parquet")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    options = {"columns": ["id", "deep.*", "name"], "spec": spec, "placement": placement, "fpp": {"id": 0.001}}
    parquet_bloom.add_filters(data, tmp_path / "expected", sync=False, **options)
    report = rows_of(
        add_filters(spark, [str(data)], output=str(tmp_path / "out"), split_bytes=1, sync=False, **options)
    )
    assert {row.status for row in report.values()} == {"done"}
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
    again = add_filters(spark, [str(data)], output=str(tmp_path / "out"), split_bytes=1, sync=False, **options)
    assert set(statuses(again).values()) == {"unchanged"}


def test_tasks_of_a_large_file_agree_on_the_columns(spark: Any, tmp_path: Path) -> None:
    """Nobody names columns: one task chooses, by a sample, and those that build and write follow it."""
    rng = np.random.default_rng(2)
    (tmp_path / "in").mkdir()
    for name in ("a", "b"):
        table = pa.table({"id": rng.integers(0, 2**60, 4000), "at": np.arange(4000), "level": rng.integers(0, 4, 4000)})
        pq.write_table(table, tmp_path / "in" / f"{name}.parquet", row_group_size=500)
    parquet_bloom.add_filters(tmp_path / "in", tmp_path / "expected", sync=False)
    options = {"output": str(tmp_path / "out"), "split_bytes": 1, "sync": False}
    assert set(statuses(add_filters(spark, [str(tmp_path / "in")], **options)).values()) == {"done"}
    assert contents(tmp_path / "out") == contents(tmp_path / "expected")
    assert {f.column for file in parquet_bloom.inspect(tmp_path / "out").files for f in file.filters} == {"id"}
    assert set(statuses(add_filters(spark, [str(tmp_path / "in")], **options)).values()) == {"unchanged"}


@pytest.mark.parametrize("split_bytes", [1, 1 << 30])
def test_bad_files_are_rows(spark: Any, tmp_path: Path, split_bytes: int) -> None:
    folder = tmp_path / "d"
    for i in range(40 if split_bytes > 1 else 4):
        write(folder / f"{i:02}.parquet", i)
    whole = (folder / "00.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(whole[:-100])
    (folder / "empty.parquet").touch()
    (folder / "text.parquet").write_text("id\n1\n")
    write(folder / "page.parquet", 5, compression="zstd")
    damaged = bytearray((folder / "page.parquet").read_bytes())
    damaged[60:400] = random.Random(0).randbytes(340)
    (folder / "page.parquet").write_bytes(damaged)
    (folder / "encrypted.parquet").write_bytes(whole[:-4] + b"PARE")
    pq.write_table(pa.table({"other": [1]}), folder / "other.parquet")
    before = contents(folder)
    report = rows_of(
        add_filters(spark, [str(folder), str(tmp_path / "none")], in_place=True, split_bytes=split_bytes, **WANTED)
    )
    bad = {os.path.basename(p): row.error for p, row in report.items() if row.status == "failed"}
    assert set(bad) == {"cut.parquet", "empty.parquet", "text.parquet", "page.parquet", "encrypted.parquet",
                        "other.parquet", "none"}  # fmt: skip
    assert all(name in error and "\n" not in error for name, error in bad.items())
    assert "encrypted" in bad["encrypted.parquet"]
    after = contents(folder)
    assert all(after[name] == before[name] for name in bad if name != "none")
    assert set(after) == set(before), "no temporary file is left"
    assert sum(row.status == "done" for row in report.values()) == len(report) - 7 == len(before) - 6


def test_requests_that_make_no_sense_come_before_any_work(spark: Any, data: Path, tmp_path: Path) -> None:
    folder = str(data)
    before = contents(data)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "give output"),
        ({"in_place": True, "output": str(tmp_path / "o")}, "exclude each other"),
        ({"output": folder}, "lies in"),
        ({"output": f"file:{folder}/new"}, "lies in"),
        ({"in_place": True, "spec": "final2"}, "final2"),
        ({"in_place": True, "spec": "parquet-41", "placement": "footer"}, "placement"),
        ({"in_place": True, "fpp": 2.0}, "fpp"),
        ({"in_place": True, "columns": 5}, "columns takes a name or a list of names, not 5"),
    ]
    for options, text in wrong:
        with pytest.raises(RequestError, match=text):
            add_filters(spark, [folder], **options)
    with pytest.raises(RequestError, match="executors cannot open ftp:"):
        add_filters(spark, ["ftp://x/y"], in_place=True)
    with pytest.raises(RequestError, match="HDFS cannot replace"):
        add_filters(spark, ["hdfs://nowhere/y"], in_place=True)
    copy = shutil.copytree(data, tmp_path / "second")
    with pytest.raises(RequestError, match=r"several files would go to .*parquet in output"):
        add_filters(spark, [folder, str(copy)], output=str(tmp_path / "o"))
    (data / "_delta_log").mkdir()
    (data / "_delta_log" / "0.json").write_text("{}")
    with pytest.raises(TableFormatError, match="Delta table"):
        add_filters(spark, [folder], in_place=True)
    with pytest.raises(TableFormatError, match=r"is a Delta table, whose files also hold dead.*raw_files=True"):
        add_filters(spark, [folder], output=str(tmp_path / "o"))
    shutil.rmtree(data / "_delta_log")
    assert contents(data) == before
    assert not (tmp_path / "o").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("lister")
def test_a_table_is_written_to_when_forced(spark: Any, data: Path, expected: dict[str, bytes]) -> None:
    (data / "metadata").mkdir()
    (data / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(TableFormatError, match="Iceberg"):
        add_filters(spark, [str(data)], in_place=True, **WANTED)
    with pytest.warns(TableWarning, match="is an Iceberg table, whose log holds file sizes"):
        add_filters(spark, [str(data)], in_place=True, force=True, **WANTED).unpersist()
    assert contents(data) == {**expected, "metadata/v1.metadata.json": b"{}"}


@pytest.mark.usefixtures("lister")
@pytest.mark.parametrize("wanted", [{"columns": "idd"}, {"columns": ["id", "idd"]}, {"exclude": "idd"}])
def test_a_column_that_no_file_has_is_an_error_before_any_work(spark: Any, tmp_path: Path, wanted: Any) -> None:
    for number in range(3):
        pq.write_table(pa.table({"id": [number], "n": [number]}), tmp_path / f"{number}.parquet")
    before = contents(tmp_path)
    with pytest.raises(UnknownColumnError, match=r"no column idd; near names: id"):
        add_filters(spark, [str(tmp_path)], in_place=True, **wanted)
    assert contents(tmp_path) == before
    pq.write_table(pa.table({"idd": [1]}), tmp_path / "3.parquet")
    report = rows_of(add_filters(spark, [str(tmp_path)], in_place=True, columns="idd"))
    found = {Path(path).name: row.status for path, row in report.items()}
    assert found == {"3.parquet": "done"} | dict.fromkeys(("0.parquet", "1.parquet", "2.parquet"), "failed")


@pytest.mark.usefixtures("lister")
@pytest.mark.parametrize("name", ["nowhere", "nowhere*.parquet"])
def test_a_name_without_a_file_is_an_error(spark: Any, tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="nowhere.*: no (such file or folder|file fits this pattern)$"):
        add_filters(spark, [str(tmp_path / name)], in_place=True)


@pytest.mark.slow
@pytest.mark.usefixtures("lister")
def test_what_dead_processes_left_is_removed(spark: Any, data: Path, expected: dict[str, bytes]) -> None:
    """Also in folders where nothing is left to do."""
    add_filters(spark, [str(data)], in_place=True, **WANTED).unpersist()
    from parquet_bloom.output.atomic_file import AtomicFile

    new = AtomicFile(str(data / "year=2020" / "x.parquet"), None, True, False)
    os.close(new.fd)
    assert len(contents(data)) == len(expected) + 1
    add_filters(spark, [str(data)], in_place=True, **WANTED).unpersist()
    assert contents(data) == expected


@pytest.mark.usefixtures("by_tasks")
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_listing_that_was_dealt_out_anew_leaves_no_file_out(
    spark: Any, data: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    """As it may be when an executor dies with the listing: one file is two tasks' work and another none's."""
    lists: list[Any] = []

    def dealt_anew(*arguments: Any, **options: Any) -> Any:
        small, large = list_by_size(*arguments, **options)
        lists.append(small)
        if goes_on or len(lists) == 1:
            twice = small.rows.filter("path not like '%plain1.parquet'").unionAll(
                small.rows.filter("path like '%plain2.parquet'")
            )
            small = dataclasses.replace(small, rows=twice)
        return small, large

    monkeypatch.setattr(pipeline, "list_by_size", dealt_anew)
    if goes_on:
        with pytest.raises(StorageError, match="executors were lost in each of 3 runs; run the job once more"):
            add_filters(spark, [str(data)], in_place=True, **WANTED)
        return
    found = statuses(add_filters(spark, [str(data)], in_place=True, **WANTED))
    assert len(lists) == 2
    assert contents(data) == expected
    assert {name for name, status in found.items() if status == "done"} == {"plain1.parquet"}
    assert len(found) == 28


@pytest.mark.usefixtures("by_tasks")
def test_a_job_that_spark_gives_up_for_that_is_run_again(
    spark: Any, data: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may notice by itself that a lost listing came out otherwise; other errors are told at once."""
    add = pipeline._FilesRun._add_listed
    said = ["disk full", "stage 4: A shuffle map stage with indeterminate output was failed and retried. However, ..."]

    def given_up(*arguments: Any) -> Any:
        done = add(*arguments)
        if said:
            raise RuntimeError(said.pop(0))
        return done

    monkeypatch.setattr(pipeline._FilesRun, "_add_listed", given_up)
    with pytest.raises(RuntimeError, match="disk full"):
        add_filters(spark, [str(data)], in_place=True, **WANTED)
    assert len(said) == 1
    found = statuses(add_filters(spark, [str(data)], in_place=True, **WANTED))
    assert set(found.values()) == {"unchanged"}
    assert len(found) == 28
    assert contents(data) == expected


@pytest.mark.slow
def test_a_file_of_three_gigabytes(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "d" / "big.parquet"
    path.parent.mkdir()
    rng = np.random.default_rng(0)
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with pq.ParquetWriter(path, schema, use_dictionary=False, compression="none") as writer:
        for _ in range(48):
            columns = [rng.integers(0, 2**62, 4 << 20) for _ in schema]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=4 << 20)
    assert path.stat().st_size > 3e9
    parquet_bloom.add_filters(path, tmp_path / "expected.parquet", columns=["a"], sync=False)
    report = rows_of(add_filters(spark, [str(path.parent)], in_place=True, columns=["a"], sync=False))
    assert [(row.status, row.filters) for row in report.values()] == [("done", 48)]
    os.system(f"cmp {path} {tmp_path / 'expected.parquet'}") and pytest.fail("other bytes than the library wrote")


@pytest.fixture
def command(spark: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """The command line, within the session that is there."""
    from parquet_bloom.cli import run

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(["spark", *arguments])
        out, err = capsys.readouterr()
        return status, out, "\n".join(without_progress(err))

    return call


def test_the_command(command: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = command("add", str(data), "-c", "id", "--in-place")
    assert (status, err) == (0, "")
    assert out.startswith("28 files: 28 done, 0 unchanged, 0 failed; 84 filters, ")
    (data / "bad.parquet").write_text("x")
    status, out, err = command("add", str(data), "-c", "id", "--in-place", "--report", "r.parquet")
    assert status == 2
    assert out.startswith("29 files: 0 done, 28 unchanged, 1 failed; 0 filters, 0 B")
    assert err.splitlines()[-1] == "parquet-bloom: 1 of 29 files failed"
    report = pq.read_table("r.parquet")
    assert report.num_rows == 29
    assert report.filter(report["status"].combine_chunks().dictionary_encode().indices.is_valid()).num_rows == 29
    assert command("add", str(data), "-c", "id", "--in-place", "--report", "r.parquet")[0] == 2, "it exists"
    assert command("add", str(data), "--conf", "x", "--in-place")[0] == 2


def test_the_session_of_the_command_is_the_one_there_is(spark: Any) -> None:
    from parquet_bloom.spark.sessions import session

    def look() -> Any:
        with session("local[3]", {"spark.pyspark.python": "/none"}) as same:
            return same.sparkContext

    assert look() is spark.sparkContext
    with ThreadPoolExecutor(1) as other:
        assert other.submit(look).result() is spark.sparkContext
    assert spark.range(3).count() == 3, "and it is not stopped"
    assert spark.sparkContext.pythonExec == sys.executable
    assert os.environ.get("PYSPARK_PYTHON") is None, "where it was started nothing stays in the environment"


def test_progress_is_lines_where_nobody_looks(
    spark: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from parquet_bloom.cli import progress

    def slowly(batches: Any) -> Any:
        import time

        for batch in batches:
            time.sleep(1.5)
            yield batch

    monkeypatch.setattr(progress, "_LINE_EVERY", 0.3)
    with progress.watched(spark, "spark add") as watched:
        assert watched is not None
        watched.expect(40, 9999)
        spark.range(0, 3, 1, 3).mapInArrow(slowly, "id long").count()
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) >= 3
    assert all(re.match(r"spark add: 0 of 40 files", line) for line in err.splitlines())
    assert re.search(r", [0-3] of 3 tasks\b", err)


def test_without_java_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from parquet_bloom.spark.sessions import check_java

    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RequestError, match="needs Java 17 or later, and there is none here: install one"):
        check_java()
    old = tmp_path / "java"
    old.write_text(f"#!{sys.executable}\nimport sys\nprint('openjdk version \"1.8.0_392\"', file=sys.stderr)\n")
    old.chmod(0o755)
    with pytest.raises(RequestError, match="is Java 8: install one"):
        check_java()


def test_the_commands_that_look(command: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    parquet_bloom.add_filters(data, columns=["id"], in_place=True, sync=False)
    names = [str(data / "plain*.parquet")]
    some_id = pq.read_table(data / "plain2.parquet")["id"][300].as_py()
    status, out, err = command("inspect", *names, "--limit", "1", "--report", "filters.parquet")
    assert (status, err) == (0, "")
    assert "4 files, 12 filters, 0 with problems\nreport: filters.parquet" in out
    assert pq.read_table("filters.parquet").num_rows == 12
    assert command("verify", *names)[:2] == (0, "4 files, 12 right, 0 wrong, 0 unknown\n")
    status, out, _ = command("check", *names, f"id = {some_id}")
    assert (status, "plain2.parquet" in out) == (0, True)
    assert "4 files, 12 row groups, 1 kept, " in out
    assert command("check", *names, "id = 17")[0] == 1
    status, out, _ = command("prune", *names, f"id = {some_id}")
    assert (status, "[1]" in out) == (0, True)
    status, out, _ = command("read", *names, "--where", f"id = {some_id}", "--columns", "id")
    assert (status, str(some_id) in out) == (0, True)
    assert command("read", *names, "--where", f"id = {some_id}", "-o", str(tmp_path / "rows"))[0] == 0
    assert pq.read_table(tmp_path / "rows").num_rows == 1
    assert command("read", *names, "--where", "id = ")[0] == 2
    (data / "plain9.parquet").write_text("x")
    assert command("check", *names, "id = 17", "--report", "verdicts.parquet")[0] == 2
