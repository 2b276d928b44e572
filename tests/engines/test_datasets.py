"""Engines filter parquet_bloom.dataset(path, text) in their own way, and find what is in all rows.

The order of NaN is the engine's: DuckDB and Polars hold it for the largest value and equal to itself,
pyarrow and pandas for neither. The data set is made for the text in every one of these readings.

Engines that read the file themselves are no measure: DuckDB 2.0 skips row groups by min and max, which
leave NaN out, and so misses rows of x > 5; pyarrow 26 does so under a NOT. Rows in memory are.
"""

from __future__ import annotations

import logging
import pickle
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.repeats import first_then_more

import parquet_bloom
from engines import floats, made, ordered
from engines.asking import DuckDB, duckdb
from parquet_bloom import add_filters
from parquet_bloom.predicates.rows import row_filter
from parquet_bloom.predicates.text import parse


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return floats.write(tmp_path_factory.mktemp("floats"))


@pytest.fixture(scope="module")
def connection() -> Iterator[DuckDB]:
    """DuckDB with all rows in its memory, as the table `stored`."""
    with duckdb() as asked:
        asked.connection.register("given", pa.concat_tables(floats.row_groups()))
        asked.connection.execute("CREATE TABLE stored AS FROM given")
        yield asked


def in_duckdb(asked: DuckDB, text: str, kept: ds.Dataset | None = None) -> list[int]:
    if kept is not None:
        asked.connection.register("kept", kept)
    table = "stored" if kept is None else "kept"
    return [row for (row,) in asked.connection.execute(f"SELECT row FROM {table} WHERE {text} ORDER BY 1").fetchall()]


def in_polars(frame: Any, text: str) -> list[int]:
    polars = pytest.importorskip("polars")
    return sorted(polars.SQLContext({"self": frame}).execute(f"SELECT row FROM self WHERE {text}", eager=True)["row"])


def ieee(text: str) -> list[int]:
    """The rows by pyarrow's kernels, over rows in memory: no comparison with NaN is true."""
    keep = row_filter(parse(text), floats.row_groups()[0].schema)
    kept = [keep.filter_batch(batch) for table in floats.row_groups() for batch in table.to_batches()]
    return [row for batch in kept for row in batch["row"].to_pylist()]


TEXTS = [*floats.texts("x"), *reversed(floats.texts("f"))]
a_third = pytest.mark.parametrize("texts", first_then_more([TEXTS[first::3] for first in range(3)], 1), ids=len)


@a_third
def test_duckdb(path: Path, connection: DuckDB, texts: list[str]) -> None:
    """Over a data set of all rows DuckDB's own filter chooses row groups: it finds what it does in pyarrow's."""
    for text in texts:
        assert in_duckdb(connection, text, parquet_bloom.dataset(path, text)) == in_duckdb(connection, text), text
        whole = in_duckdb(connection, text, ds.dataset(path))
        assert in_duckdb(connection, text, parquet_bloom.dataset(path)) == whole, text


@a_third
def test_polars(path: Path, texts: list[str]) -> None:
    """Polars hands its filter to pyarrow's scanner, where it is IEEE's; over the rows it is its own.

    What it hands over for NOT IN is TRUE for NULL, over any data set.
    """
    polars = pytest.importorskip("polars")
    memory = polars.from_arrow(pa.concat_tables(floats.row_groups())).lazy()
    for text in texts:
        kept = parquet_bloom.dataset(path, text)
        if "NOT IN" not in text:
            whole = polars.scan_pyarrow_dataset(ds.dataset(path))
            assert in_polars(polars.scan_pyarrow_dataset(kept), text) == in_polars(whole, text), text
        assert in_polars(polars.from_arrow(kept.to_table()).lazy(), text) == in_polars(memory, text), text


@a_third
def test_our_own_rows(path: Path, texts: list[str]) -> None:
    """read_table and count go by IEEE, as pyarrow does, but lose no row where pyarrow's scanner does."""
    for text in (text for text in texts if "nan" not in text):  # a literal NaN is no predicate of ours over rows
        wanted = ieee(text)
        assert parquet_bloom.read_table(path, text)["row"].to_pylist() == wanted, text
        assert [r for b in parquet_bloom.read_batches(path, text) for r in b["row"].to_pylist()] == wanted, text
        assert parquet_bloom.count(path, text) == len(wanted), text
        kept = {g for _, groups in parquet_bloom.prune(path, text) for g in groups}
        assert {floats.row_group_of(row) for row in wanted} <= kept, text


PANDAS = {
    "x > 5": lambda f: f.x > 5,
    "NOT (x < 5)": lambda f: ~(f.x < 5) & ~f.is_null,
    "x <> 5": lambda f: (f.x != 5) & ~f.is_null,
    "x = 0.0": lambda f: f.x == 0.0,
    "x IN (0, 20)": lambda f: f.x.isin([0, 20]),
    "x BETWEEN 2 AND 20": lambda f: f.x.between(2, 20),
    "x >= CAST('inf' AS DOUBLE)": lambda f: f.x >= float("inf"),
}


def test_pandas(path: Path) -> None:
    """Its own mask over the frame; NaN and NULL are one there, so that a column says which is which."""

    def rows(table: pa.Table, text: str) -> list[int]:
        frame = table.append_column("is_null", table["x"].is_null()).to_pandas()
        return list(frame[PANDAS[text](frame)]["row"])

    for text in PANDAS:
        assert rows(parquet_bloom.dataset(path, text).to_table(), text) == rows(pq.read_table(path), text), text


def test_nan_keeps_row_groups_open_in_a_data_set_only(path: Path) -> None:
    def kept(nan: str) -> list[int]:
        return parquet_bloom.prune(path, "x > 100", nan=nan)[0][1]

    assert kept("ieee") == [3, 4, 9], "bounds tell nothing of only NaN, and an infinity is more than 100"
    assert len(kept("largest")) > 3, "in Spark and Polars any NaN is more than 100"


# --- the table where bounds decide ------------------------------------------------------------------

ENGINE_TEXTS = [text for text in ordered.texts() if not any(word in text for word in ("list_", "ANY(", "array_", "0x"))]


@pytest.mark.smoke
def test_duckdb_over_what_is_kept(tmp_path: Path, connection: DuckDB) -> None:
    """DuckDB filters each data set of ours, and the whole file in its memory, alike."""
    by_row = made.with_filters(tmp_path, made.numbered(ordered.row_groups()))
    connection.connection.execute(f"CREATE TABLE whole AS FROM '{by_row}'")
    asked = 0
    for text in ENGINE_TEXTS[::2]:
        if any(part in text for part in ("x'", "+0", "Z'", "id ")):
            continue  # spelled otherwise in DuckDB; or a uuid, for which pyarrow's scanner has no kernel
        connection.connection.register("kept", parquet_bloom.dataset(by_row, text))
        both = [
            connection.connection.execute(f'SELECT "row" FROM {table} WHERE {text} ORDER BY 1').fetchall()
            for table in ("kept", "whole")
        ]
        assert both[0] == both[1], text
        asked += 1
    assert asked > 100


def test_rows_are_in_the_order_of_the_file(tmp_path: Path) -> None:
    """pyarrow takes row groups as a set, and of {2, 9} made 9, 2."""
    pq.write_table(pa.table({"row": range(600)}), tmp_path / "rows.parquet", row_group_size=2)
    for groups in ([2, 9], [0, 64, 65, 128], [299, 1, 150], list(range(0, 300, 7)), list(range(1, 300, 64))):
        text = f"row IN ({', '.join(str(2 * g) for g in groups)})"
        kept = parquet_bloom.dataset(tmp_path / "rows.parquet", text)
        wanted = sorted(groups)
        assert kept.to_table()["row"].to_pylist() == [row for g in wanted for row in (2 * g, 2 * g + 1)]
        found = parquet_bloom.read_table(tmp_path / "rows.parquet", text)
        assert found["row"].to_pylist() == [2 * g for g in wanted]
        assert [part.id for f in kept.get_fragments() for part in f.row_groups] == wanted


FILTERS = {
    "equal": pc.field("id") == 77,
    "absent": pc.field("id") == 78,
    "in": pc.field("id").isin([7, 700, 701]),
    "not in": ~pc.field("id").isin([7, 700, 701]),
    "null": pc.field("text").is_null(),
    "and": (pc.field("id") > 100) & (pc.field("text") == "t21"),
    "or": (pc.field("id") == 777) | (pc.field("text") == "t21"),
    "a function": pc.field("id") + 1 == 78,
    "of the folder": (pc.field("year") == 2026) & (pc.field("id") == 77),
    "another type": pc.field("id") == 77.0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two years of three row groups each, ids in no order, every seventh; filters on both columns."""
    root = tmp_path_factory.mktemp("events")
    for year in (2025, 2026):
        ids = [7 * ((n * 37 + year) % 150) for n in range(150)]
        table = pa.table({"id": ids, "text": [None if n % 11 == 0 else f"t{n}" for n in ids]})
        (root / f"year={year}").mkdir()
        pq.write_table(table, root / f"year={year}" / "x.parquet", row_group_size=50)
    add_filters(root, in_place=True, columns=["*"])
    return root


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


def test_a_filter_of_the_scan_chooses_row_groups_and_changes_no_answer(folder: Path) -> None:
    ours = parquet_bloom.dataset(folder)
    plain = ds.dataset(folder, partitioning="hive")
    again = pickle.loads(pickle.dumps(ours))
    for name, wanted in FILTERS.items():
        found = in_order(plain.to_table(filter=wanted))
        assert in_order(ours.to_table(filter=wanted)) == found, name
        assert in_order(ours.filter(wanted).to_table()) == found, f"{name}, which the data set keeps"
        assert in_order(again.to_table(filter=wanted)) == found, f"{name}, where Dask or Ray send it to a worker"
        assert again.filter(wanted).count_rows() == len(found), name
        assert ours.replace_schema(ours.schema).count_rows(filter=wanted) == len(found), name


def test_few_row_groups_are_scanned_for_a_filter(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "parquet_bloom")
    events = parquet_bloom.dataset(folder)
    with duckdb() as asked:
        asked.connection.register("events", events)
        assert asked.connection.execute("SELECT count(*) FROM events WHERE id = 77").fetchall() == [(2,)]
        assert asked.connection.execute("SELECT count(*) FROM events WHERE id = 78").fetchall() == [(0,)]
    lines = [record.getMessage() for record in caplog.records if "row groups can match" in record.getMessage()]
    chosen = [int(re.search(r"(\d+) of 6 row groups", line)[1]) for line in lines]  # type: ignore[index]
    assert len(chosen) == 2, "each query is one scan"
    assert 2 <= chosen[0] <= 4, "one row group of each year has the id; a filter may be wrong about others"
    assert chosen[1] <= 2, "no row group has this one, and the bounds of all hold it"


def test_a_file_changed_before_a_filtered_scan_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2, 3]}), tmp_path / "x.parquet")
    events = parquet_bloom.dataset(tmp_path)
    pq.write_table(pa.table({"id": [4, 5]}), tmp_path / "x.parquet")
    with pytest.raises(parquet_bloom.FileChangedError):
        events.to_table(filter=pc.field("id") == 4)
