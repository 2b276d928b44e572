"""Real tables, of deltalake and pyiceberg: what is said of them is what their readers then do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pytest

import parquet_bloom
from parquet_bloom.errors import TableFormatError, TableWarning

deltalake = pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

LIVE, DEAD = 1500, 3000  # rows; all that are live were rewritten from dead files
Table = tuple[Path, Callable[[], Any]]


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64()), "name": ["x"] * count})


def delta(folder: Path) -> Table:
    deltalake.write_deltalake(folder, rows(0, DEAD))
    deltalake.write_deltalake(folder, rows(0, LIVE), mode="overwrite")
    return folder, lambda: deltalake.DeltaTable(folder)


def iceberg(folder: Path, **properties: str) -> Table:
    from pyiceberg.catalog.sql import SqlCatalog

    folder.mkdir()
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=rows(0, 1).schema, properties=properties)
    table.append(rows(0, DEAD))
    table.overwrite(rows(0, LIVE))

    def load() -> Any:
        return catalog.load_table("n.t")

    return Path(table.location().removeprefix("file://")), load


def in_duckdb(files: list[str]) -> int:
    return duckdb.sql(f"SELECT count(*) FROM read_parquet({files!r}) WHERE id >= 0").fetchall()[0][0]


def live_of(kind: str, load: Callable[[], Any]) -> list[str]:
    if kind == "Delta":
        return load().file_uris()
    return [task.file.file_path for task in load().scan().plan_files()]


READERS: dict[str, dict[str, Callable[[Path, Any], int]]] = {
    "Delta": {
        "deltalake": lambda folder, table: table.to_pyarrow_table().num_rows,
        "deltalake's queries": lambda folder, table: deltalake.QueryBuilder().register("t", table).execute(
            "SELECT id FROM t WHERE id >= 0").read_all().num_rows,
        "Polars": lambda folder, table: polars.scan_delta(str(folder)).collect().height,
        "DuckDB": lambda folder, table: in_duckdb(table.file_uris()),
    },
    "Iceberg": {
        "pyiceberg": lambda folder, table: table.scan().to_arrow().num_rows,
        "Polars": lambda folder, table: polars.scan_iceberg(table).collect().height,
        "DuckDB": lambda folder, table: in_duckdb([task.file.file_path for task in table.scan().plan_files()]),
    },
}  # fmt: skip


def failing(kind: str, folder: Path, load: Callable[[], Any]) -> dict[str, str]:
    """Which readers of a table fail, with what they say; the others find the live rows."""
    failed = {}
    for name, read in READERS[kind].items():
        try:
            assert read(folder, load()) == LIVE
        except AssertionError:
            raise
        except Exception as error:
            failed[name] = str(error)
    return failed


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # by Polars, with PyIceberg
@pytest.mark.parametrize("kind", READERS)
def test_a_real_table(kind: str, tmp_path: Path) -> None:
    folder, load = {"Delta": delta, "Iceberg": iceberg}[kind](tmp_path / "lake")
    assert failing(kind, folder, load) == {}
    if kind == "Delta":
        assert parquet_bloom.count(folder) == LIVE, "a folder with a log is read through it"
    else:
        with pytest.raises(TableFormatError, match=r"is an Iceberg table, .*iceberg:CATALOG/NAMESPACE.TABLE"):
            parquet_bloom.count(folder)
    assert parquet_bloom.count(folder, raw_files=True) == LIVE + DEAD
    live = live_of(kind, load)
    with pytest.raises(TableFormatError, match=f"lies in the {kind} table {folder}"):
        parquet_bloom.count(live)
    assert parquet_bloom.count(live, "id >= 0", raw_files=True) == LIVE, "the way for those whose library names them"

    with pytest.warns(TableWarning) as warned:
        parquet_bloom.add_filters(folder, in_place=True, force=True, columns=["id"], sync=False)
    told = str(warned[0].message)
    failed = failing(kind, folder, load)
    assert set(failed) == {"Delta": {"deltalake", "deltalake's queries", "Polars"}, "Iceberg": {"Polars"}}[kind]
    assert any("magic bytes" in said for said in failed.values())
    fails, reads = told.partition(" fail")[0], told.partition("not found")[2]
    assert all(name.split("'")[0] in fails for name in failed)
    assert all(name in reads for name in set(READERS[kind]) - set(failed))
    with pytest.warns(TableWarning):
        parquet_bloom.remove_filters(folder, in_place=True, force=True, sync=False)
    assert failing(kind, folder, load) == {}, "as the warning says"


def test_a_real_table_whose_data_lie_elsewhere(tmp_path: Path) -> None:
    data = tmp_path / "events-data"
    folder, _ = iceberg(tmp_path / "lake", **{"write.data.path": f"file://{data}"})
    with pytest.raises(TableFormatError, match=f"is an Iceberg table whose data lie at file://{data};"):
        parquet_bloom.count(folder)
    shutil.move(folder, tmp_path / "events")
    with pytest.raises(TableFormatError, match=f"holds data of the Iceberg table {tmp_path / 'events'}"):
        parquet_bloom.count(data)
    assert parquet_bloom.count(data, raw_files=True) == LIVE + DEAD


def test_a_file_copied_out_of_a_delta_table_says_so(tmp_path: Path) -> None:
    """deltalake signs its files; pyiceberg leaves nothing that only a table's file has."""
    _, load = delta(tmp_path / "lake")
    shutil.copy(live_of("Delta", load)[0].removeprefix("file://"), tmp_path / "copy.parquet")
    verdicts = parquet_bloom.check(tmp_path / "copy.parquet", "id >= 0")
    assert len(verdicts.notes) == 1
    assert "was written for a Delta table (its writer is delta-rs" in verdicts.notes[0]
