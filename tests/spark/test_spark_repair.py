"""`spark.repair`: executors write right footers behind wrong ones; of a table the driver commits them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, convert_to_deltalake
from edit.test_repair_tables import QUESTIONS, MakeKind, answers, lying_file, of_log
from edit.test_repair_tables import make as make
from support.corpus import FIXTURES

import parquet_bloom
from parquet_bloom import count, repair, verify
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError
from parquet_bloom.spark import repair as spark_repair

pytestmark = pytest.mark.spark
OLD = FIXTURES / "old_statistics"
WRONG = ("polars-1.44.2.parquet", "duckdb-0.10.0.parquet", "pyarrow-10.0.1.parquet")


def folder_of(path: Path) -> Path:
    path.mkdir()
    for name in WRONG:
        shutil.copy(OLD / name, path / name)
    shutil.copy(FIXTURES / "pyarrow" / "trace_ids.parquet", path / "sound.parquet")
    (path / "torn.parquet").write_bytes(b"PAR1 torn PAR1")
    return path


def statuses(report: Any) -> dict[str, str]:
    return {Path(row.path).name: row.status for row in report.collect()}


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def test_files_as_one_machine_repairs_them(spark: Any, tmp_path: Path) -> None:
    here, there = folder_of(tmp_path / "here"), folder_of(tmp_path / "there")
    before = bytes_of(there)
    expected = {**dict.fromkeys(WRONG, "done"), "sound.parquet": "unchanged", "torn.parquet": "failed"}

    assert statuses(spark_repair(spark, str(there), in_place=True, dry_run=True)) == expected
    assert bytes_of(there) == before, "a dry run writes nothing"

    mine = {Path(file.source).name: file for file in repair(here, in_place=True, sync=False).files}
    rows = {Path(row.path).name: row for row in spark_repair(spark, str(there), in_place=True, sync=False).collect()}
    assert {name: row.status for name, row in rows.items()} == expected
    assert bytes_of(there) == bytes_of(here)
    for name, file in mine.items():
        row = rows[name].asDict(recursive=True)
        for field in ("chunks", "mended", "mended_log", "bytes_before", "bytes_after", "notes", "unchecked"):
            assert row[field] == getattr(file, field), (name, field)
        fields = ("row_group", "column", "statistic", "stated", "found")
        assert row["wrong"] == [{field: getattr(one, field) for field in fields} for one in file.wrong]
    assert "too short" in rows["torn.parquet"].error or "torn.parquet" in rows["torn.parquet"].error

    again = statuses(spark_repair(spark, str(there), in_place=True, sync=False))
    assert again == {**dict.fromkeys(expected, "unchanged"), "torn.parquet": "failed"}
    undone = statuses(spark_repair(spark, str(there), in_place=True, undo=True, sync=False))
    assert undone == expected
    assert bytes_of(there) == before


def test_another_folder_and_a_second_run(spark: Any, tmp_path: Path) -> None:
    source, out = folder_of(tmp_path / "source"), tmp_path / "out"
    before = bytes_of(source)
    (source / "torn.parquet").unlink()
    assert set(statuses(spark_repair(spark, str(source), output=str(out), sync=False)).values()) == {"done"}
    made = bytes_of(out)
    assert {name: made[name][: len(data)] == data for name, data in before.items() if name in made} == dict.fromkeys(
        made, True
    )
    assert not [one for file in verify(out, statistics=True).files for one in file.statistics.wrong]  # type: ignore[union-attr]
    assert set(statuses(spark_repair(spark, str(source), output=str(out))).values()) == {"unchanged"}
    assert bytes_of(out) == made

    # A file of another origin is no result of an earlier run; a copy that nobody repaired is repaired.
    shutil.copy(OLD / WRONG[1], out / WRONG[0])
    shutil.copy(OLD / WRONG[2], out / WRONG[2])
    rows = {Path(row.path).name: row for row in spark_repair(spark, str(source), output=str(out), sync=False).collect()}
    assert rows[WRONG[0]].status == "failed"
    assert "is not this file repaired" in rows[WRONG[0]].error
    assert rows[WRONG[2]].status == "done"
    assert (out / WRONG[2]).read_bytes() == made[WRONG[2]]


@pytest.mark.parametrize("way", ["new-path", "same-path"])
def test_a_delta_table_and_its_log(spark: Any, tmp_path: Path, way: Any) -> None:
    root = tmp_path / "events"
    root.mkdir()
    for number in range(3):
        shutil.copy(OLD / "duckdb-0.10.0.parquet", root / f"{number}.parquet")
    pq.write_table(pq.read_table(root / "0.parquet"), root / "sound.parquet")
    convert_to_deltalake(str(root))
    name = f"delta:{root}"
    column = pq.read_schema(root / "0.parquet").names[0]
    rows = pq.read_metadata(root / "0.parquet").num_rows * 4
    wrong = [file.statistics for file in verify(name, statistics=True).files]
    assert any(one.statistic.startswith("log.") for file in wrong if file is not None for one in file.wrong)

    dry = spark_repair(spark, name, dry_run=True, commit=way).collect()
    assert DeltaTable(str(root)).version() == 0
    assert sum(row.status == "done" for row in dry) == 3
    report = spark_repair(spark, name, commit=way, files_per_commit=2).collect()
    assert sum(row.status == "done" for row in report) == 3
    assert sum(row.mended_log for row in report) > 0
    assert sum(len(row.wrong) for row in report) == sum(len(file.wrong) for file in wrong if file is not None)
    assert DeltaTable(str(root)).version() == 2
    assert not [one for file in verify(name, statistics=True).files for one in file.statistics.wrong]  # type: ignore[union-attr]
    assert count(name, f"{column} IS NULL OR {column} IS NOT NULL") == rows
    assert {row.status for row in spark_repair(spark, name, commit=way).collect()} == {"unchanged"}
    assert DeltaTable(str(root)).version() == 2


@pytest.mark.parametrize("name", ["iceberg", "ducklake"])
def test_tables_with_a_catalog_and_their_logs(name: str, spark: Any, tmp_path: Path, make: MakeKind) -> None:
    """Rows come back to the format's own reader, by one commit of the driver."""
    lying_file(tmp_path / "lying.parquet")
    kind = make(name, tmp_path / "lying.parquet")
    before, version, old = answers(kind), kind.version(), kind.file().read_bytes()
    assert len([question for question, found in before.items() if found < QUESTIONS[question]]) >= 3
    mine = parquet_bloom.repair(kind.name, dry_run=True, **kind.options).files[0]

    [dry] = spark_repair(spark, kind.name, dry_run=True, **kind.options).collect()
    assert (dry.status, kind.version(), kind.file().read_bytes()) == ("done", version, old)
    [row] = spark_repair(spark, kind.name, **kind.options).collect()
    assert (row.status, len(row.wrong)) == ("done", len(mine.wrong)), row.error
    assert (row.mended, row.mended_log) == (mine.mended, mine.mended_log)
    assert row.mended_log > 0
    assert (kind.version() != version) == kind.old_versions, "DuckLake changes its rows"
    assert answers(kind) == QUESTIONS
    assert kind.file().read_bytes().startswith(old)
    assert of_log(kind) == []
    assert [one.status for one in spark_repair(spark, kind.name, **kind.options).collect()] == ["unchanged"]


def test_requests_that_mean_nothing(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="restore the table's version"):
        spark_repair(spark, f"delta:{tmp_path}", undo=True)
    with pytest.raises(RequestError, match="give output"):
        spark_repair(spark, str(folder_of(tmp_path / "a")))
    with pytest.raises(TypeError, match="append"):
        spark_repair(spark, str(tmp_path), append=True)  # type: ignore[call-arg]


def test_the_command(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path / "a")
    (folder / "torn.parquet").unlink()
    assert run(["spark", "repair", str(folder), "--in-place", "--dry-run", "--json"]) == 1
    dry = json.loads(capsys.readouterr().out)
    assert (dry["files"], dry["done"], dry["unchanged"], dry["failed"]) == (4, 3, 1, 0)
    report = tmp_path / "report.parquet"
    assert run(["spark", "repair", str(folder), "--in-place", "--no-sync", "--report", str(report)]) == 0
    assert f"4 files: 3 done, 1 unchanged, 0 failed; {dry['wrong']:,} statistics wrong" in capsys.readouterr().out
    assert sum(len(one) for one in pq.read_table(report)["wrong"].to_pylist()) == dry["wrong"]
    assert run(["spark", "repair", str(folder), "--in-place", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["wrong"] == 0
    assert parquet_bloom.verify(folder, statistics=True).files[0].statistics.wrong == []  # type: ignore[union-attr]
