"""What add says of filters that engines do not use: by engine, release and type of column."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError
from parquet_bloom.facts.known import check_engine, notes_of
from parquet_bloom.storage.open_file import OpenFile


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ids = [i * 2654435761 % 2**40 for i in range(2000)]
    table = pa.table(
        {
            "id": ids,
            "at": pa.array(ids, pa.timestamp("us")),
            "tags": [[f"{i:x}"] for i in ids],
            "user": [{"id": i} for i in ids],
        }
    )
    path = tmp_path_factory.mktemp("advice") / "events.parquet"
    pq.write_table(table, path, row_group_size=500)
    return path


def notes(path: Path, engine: str | None) -> list[str]:
    with OpenFile(path) as source:
        return notes_of(source.footer().leaves, engine)


LINES: list[tuple[str | None, list[str]]] = [
    (None, ["no engine that is known uses filters on elements of lists of string (tags.list.element); "
            "this package does"]),
    ("datafusion 55.0.3", ["DataFusion 55.0 does not use filters on timestamp[us] (at), elements of lists of "
                           "string (tags.list.element), fields of structs of int64 (user.id)"]),
    ("DuckDB 2.0.0", ["DuckDB 2.0 does not use filters on elements of lists of string (tags.list.element)"]),
    ("duckdb 1.4.1", ["whether DuckDB 1.4 uses filters on int64 (id), timestamp[us] (at), elements of lists of "
                      "string (tags.list.element), fields of structs of int64 (user.id) is not known; 2.0 does not "
                      "on elements of lists of string (tags.list.element)"]),
    ("clickhouse 26.9", ["ClickHouse 26.9 does not use filters on timestamp[us] (at), elements of lists of string "
                         "(tags.list.element)",
                         "ClickHouse 26.9 uses filters on int64 (id) only where the values have no dictionary"]),
    ("polars 2.1.0", ["Polars 2.1 uses no Bloom filters"]),
    ("presto", ["Presto uses no Bloom filters, as its source or documents say"]),
    ("starrocks", ["StarRocks does not use filters on timestamp[us] (at), as its source or documents say",
                   "whether StarRocks uses filters on int64 (id), elements of lists of string (tags.list.element), "
                   "fields of structs of int64 (user.id) is not known"]),
    ("parquet_bloom", []),
]  # fmt: skip


def test_one_line_a_reason(path: Path) -> None:
    for engine, lines in LINES:
        assert notes(path, engine) == lines, engine


def test_add_says_it_in_one_line(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.parquet"
    assert run(["add", str(path), "-o", str(out), "-c", "id", "-c", "at", "--engine", "datafusion 55.0"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "parquet-bloom: note: DataFusion 55.0 does not use filters on timestamp[us] (at)\n"
    assert run(["add", str(path), "-o", str(out), "--overwrite", "-c", "id", "-c", "at", "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "", "some engine uses both"
    assert json.loads(shown.out)["files"][0]["engine_notes"] == []


def test_add_says_it_before_anything_is_written(path: Path) -> None:
    ask = {"output": path.with_name("x"), "dry_run": True}
    (file,) = parquet_bloom.add_filters(path, columns=["tags"], engine="duckdb", **ask).files
    assert len(file.engine_notes) == 1
    (file,) = parquet_bloom.add_filters(path, columns=["id"], spec="parquet-41", **ask).files
    assert file.engine_notes == [], "nothing is known of engines and the old forms here"


def test_an_engine_that_nobody_knows_is_an_error_before_work(path: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"^engine 'duckbd': nothing is known of it; there are duckdb, "):
        parquet_bloom.add_filters(path, tmp_path / "out.parquet", engine="duckbd")
    assert not list(tmp_path.iterdir())
    assert check_engine("Spark 3.5")[1] == "3.5"
