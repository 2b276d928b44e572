"""docs/recipes.md: every block runs, finds the rows that are there, and skips the row groups that filters deny."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import ObjectStore

import parquet_bloom

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
ROWS = 400
CHANGING = "A table that goes on changing"
READERS = ("Polars", "DuckDB", "pyarrow", "pandas", "A semi-join with many keys")


IDS = [f"{i * 0x9E3779B97F4A7C15 % 2**64:016x}" for i in range(ROWS)]
USERS = [i * 7919 % 1009 for i in range(ROWS)]
NAMES = {"trace_id": IDS[250], "user_id": USERS[250], "parquet_bloom": parquet_bloom}


def blocks_of(heading: str) -> list[str]:
    """The blocks of Python below a heading."""
    section = re.split(rf"^## {heading}$", PAGE.read_text(), flags=re.MULTILINE)[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def run(blocks: list[str], names: dict[str, Any]) -> None:
    for block in blocks:
        exec(compile(block, "recipes.md", "exec"), names)


def write(path: Path | str) -> None:
    """400 rows in 4 row groups, without filters."""
    table = pa.table({"trace_id": IDS, "user_id": USERS, "status": [200] * ROWS})
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=ROWS // 4)


@pytest.fixture
def events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write("events/1.parquet")
    parquet_bloom.add_filters("events", in_place=True, columns=["trace_id", "user_id"])


def test_every_block_of_python_runs_in_a_test() -> None:
    known = (*READERS, "DataFusion", "Dask", "Daft", "Ray Data", "Airflow", CHANGING, "S3")
    assert sum(len(blocks_of(heading)) for heading in known) == PAGE.read_text().count("```python\n") == 14


def test_recipes_of_readers_in_this_process(events: None, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("polars", "duckdb", "pandas"):
        pytest.importorskip(name)
    caplog.set_level(logging.INFO, "parquet_bloom")
    names: dict[str, Any] = dict(NAMES)
    for heading in READERS:
        run(blocks_of(heading), names)

    row = (names["user_id"], 200)
    assert names["one"].rows() == [row]
    assert names["found"] == [row]
    assert names["joined"] == [row]
    assert names["few"].row_groups == 4
    assert sum(len(groups) for _, groups in names["few"]) < 4, "the join reads fewer row groups"
    assert names["rows"].to_pydict() == {"status": [200]}
    assert [tuple(one) for one in names["frame"].itertuples(index=False)] == [row]
    assert 2 in names["groups"]["events/1.parquet"], "the row group that has the user"
    lines = [record.getMessage() for record in caplog.records]
    assert sum("1 of 4 row groups can match" in line for line in lines) == 2, "DuckDB's scan and pyarrow's"
    assert sum("3 of 4 row groups" in line and "skipped" in line for line in lines) == 2, "Polars' and pandas'"


def test_the_recipe_of_dask(events: None) -> None:
    pytest.importorskip("dask.dataframe")
    names: dict[str, Any] = dict(NAMES)
    run(blocks_of("Dask"), names)
    assert ("events/1.parquet", 2) in names["kept"], "the row group that has the user"
    assert len(names["kept"]) < 4, "and not all of them"
    assert names["lazy"].npartitions == len(names["kept"])
    assert names["visits"].values.tolist() == [[NAMES["user_id"], 200]]


def test_the_recipe_of_datafusion(events: None, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("datafusion")
    caplog.set_level(logging.INFO, "parquet_bloom")
    names: dict[str, Any] = dict(NAMES)
    run(blocks_of("DataFusion"), names)
    [row] = [row for batch in names["batches"] for row in pa.record_batch(batch).to_pylist()]
    assert row == {"user_id": NAMES["user_id"], "status": 200}
    assert any("1 of 4 row groups can match" in record.getMessage() for record in caplog.records)


def test_the_recipe_of_daft(events: None) -> None:
    pytest.importorskip("daft", reason="Daft is not installed")
    names: dict[str, Any] = dict(NAMES)
    run(blocks_of("Daft"), names)
    assert names["visits_in_daft"] == {"user_id": [NAMES["user_id"]], "status": [200]}
    assert names["frame_of_daft"].count_rows() < ROWS


def test_the_recipe_of_ray_data(events: None) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    names: dict[str, Any] = dict(NAMES)
    try:
        run(blocks_of("Ray Data"), names)
    finally:
        ray.shutdown()
    assert names["visits_in_ray"] == [{"user_id": NAMES["user_id"], "status": 200}]
    assert len(names["chunks"]) < 4


def test_the_recipe_of_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task's function runs; of the DAG, which needs Airflow, the names."""
    monkeypatch.chdir(tmp_path)
    for part in range(2):
        write(f"landing/day=2026-11-22/{part}.parquet")
    names: dict[str, Any] = dict(NAMES)
    run(blocks_of("Airflow"), names)
    assert names["add_filters_of"]("2026-11-22") == 8
    assert names["add_filters_of"]("2026-11-22") == 0, "a retry adds nothing"
    Path("landing/day=2026-11-22/2.parquet").write_bytes(b"")
    with pytest.raises(parquet_bloom.NotParquetError):
        names["add_filters_of"]("2026-11-22")
    [dag] = re.findall(r"```py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert {"add_filters_of", "dag", "task"} <= set(compile(dag, "recipes.md", "exec").co_names) | set(
        re.findall(r"\w+", dag)
    )


def lose_filters(table: str) -> None:
    """What a user's day does: an append and a delete."""
    deltalake.write_deltalake(table, pa.table({"trace_id": ["new"], "user_id": [1], "status": [200]}), mode="append")
    deltalake.DeltaTable(table).delete(f"trace_id = '{IDS[0]}'")


def test_the_recipes_of_a_table_that_goes_on_changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"trace_id": IDS, "user_id": USERS, "status": [200] * ROWS})
    deltalake.write_deltalake("lake/events", rows)
    keep, after_optimize = blocks_of(CHANGING)
    names: dict[str, Any] = dict(NAMES)
    run([keep], names)
    assert names["keep_filters"]("delta:lake/events") == "StatusReport(1 column, 1 file, 1 row group)"
    lose_filters("lake/events")
    assert not parquet_bloom.status("delta:lake/events").complete
    assert names["keep_filters"]("delta:lake/events") == "StatusReport(1 column, 2 files, 2 row groups)"
    deltalake.write_deltalake("lake/events", rows, mode="append")
    run([after_optimize], names)
    assert parquet_bloom.status("delta:lake/events", assert_filters=["trace_id"]).complete
    assert deltalake.DeltaTable("lake/events").to_pyarrow_dataset().count_rows() == 2 * ROWS


def test_the_lines_of_cron(tmp_path: Path) -> None:
    table = tmp_path / "lake" / "events"
    deltalake.write_deltalake(table, pa.table({"trace_id": IDS, "user_id": USERS, "status": [200] * ROWS}))
    (crontab,) = re.findall(r"```crontab\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert "%" not in crontab, "which cron takes for the end of a line"
    add, status = (line.split(maxsplit=5)[5].replace("/lake/events", str(table)) for line in crontab.splitlines())
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}  # as cron has it

    def ran(line: str) -> tuple[int, str]:
        done = subprocess.run(["/bin/sh", "-c", line], env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    assert ran(status)[0] == 1
    assert ran(add) == (0, "")
    lose_filters(str(table))
    found = "--assert-filters: 2 of 2 row groups have no filter on trace_id since version 2 (2 of 2 files)"
    assert ran(status) == (1, f"parquet-bloom: {found}\n")
    assert ran(add) == (0, "")
    assert ran(status) == (0, "")


def test_the_recipe_of_s3(tmp_path: Path, store: ObjectStore, bucket: str) -> None:
    write(tmp_path / "1.parquet")
    store.put(f"{bucket}/events/1.parquet", (tmp_path / "1.parquet").read_bytes())
    [block] = blocks_of("S3")
    assert block.count('"s3://bucket/events/"') == 1
    names: dict[str, Any] = dict(NAMES)
    run([block.replace("s3://bucket/events/", store.uri(f"{bucket}/events/"))], names)
    assert len(names["added"].files[0].filters) == 4
    assert [one.row_group for one in names["verdicts"] if not one.skipped] == [2]
    assert names["stored_there"].to_pylist() == [{"user_id": NAMES["user_id"], "status": 200}]
