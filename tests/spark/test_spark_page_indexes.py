"""`spark.add_filters` with page indexes: each file gets those of one machine; of a table the driver commits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, convert_to_deltalake
from support.footers import indexes, without_indexes

from parquet_bloom import add_filters, count, inspect, remove_filters, verify
from parquet_bloom import spark as bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError, UnknownColumnError

pytestmark = pytest.mark.spark
ROWS, PAGE_ROWS = 3000, 100


def table(start: int = 0) -> pa.Table:
    numbers = range(start, start + ROWS)
    return pa.table(
        {
            "ts": pa.array(numbers, pa.int64()),
            "id": [f"{number * 2654435761 % 2**32:08x}" for number in numbers],
            "tags": [[number, -number] if number % 3 else None for number in numbers],
        }
    )


def folder_of(path: Path) -> Path:
    path.mkdir()
    for number in range(2):
        small = {"row_group_size": 1000, "max_rows_per_page": PAGE_ROWS, "write_batch_size": PAGE_ROWS}
        pq.write_table(table(number * ROWS), path / f"{number}.parquet", **small)
    # "ts" has a NaN, so no column index.
    pq.write_table(pa.table({"ts": [1.0, float("nan")], "id": ["a", "b"]}), path / "nan.parquet")
    (path / "torn.parquet").write_bytes(b"PAR1 torn PAR1")
    return path


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.parquet")}


def rows_of(report: Any) -> dict[str, Any]:
    return {Path(row.path).name: row for row in report.collect()}


def statuses(report: Any) -> dict[str, str]:
    return {name: row.status for name, row in rows_of(report).items()}


def test_files_as_one_machine_gives_them(spark: Any, tmp_path: Path) -> None:
    here, there = folder_of(tmp_path / "here"), folder_of(tmp_path / "there")
    before = bytes_of(there)
    options: Any = {"columns": "id", "page_index": True, "page_bounds": "ts", "in_place": True, "sync": False}
    mine = {Path(file.source).name: file for file in add_filters(here, **options).files}
    # Of split files other tasks would have the values of `id`, whose pages have bounds that exclude some.
    rows = rows_of(bloom.add_filters(spark, there, split_bytes=1, **options))
    assert {name: row.status for name, row in rows.items()} == {**dict.fromkeys(mine, "done"), "torn.parquet": "failed"}
    assert bytes_of(there) == bytes_of(here)
    for name, file in mine.items():
        for field in ("offset_indexes", "column_indexes", "index_bytes", "index_notes"):
            assert rows[name][field] == getattr(file, field), (name, field)
    assert (rows["0.parquet"].offset_indexes, rows["0.parquet"].column_indexes) == (9, 3)
    assert (rows["nan.parquet"].offset_indexes, rows["nan.parquet"].column_indexes) == (2, 0)
    assert set(statuses(bloom.add_filters(spark, there, **options)).values()) == {"unchanged", "failed"}
    (there / "torn.parquet").unlink()
    remove_filters(there, in_place=True, sync=False)
    assert bytes_of(there) == {name: data for name, data in before.items() if name != "torn.parquet"}


def test_the_index_of_parquet_java_is_built_anew_from_its_file(spark: Any, tmp_path: Path) -> None:
    """Spark writes page indexes by default: pages, NULLs and bounds are the same without them and with ours."""
    columns = (
        "id ascending",
        "2999 - id descending",
        "cast(id * 2654435761 % 3000 AS int) mixed",
        "if(id % 11 = 0 OR id BETWEEN 300 AND 499, null, id) some_nulls",
        "cast(null AS int) only_nulls",
        "cast(id % 200 - 100 AS tinyint) small",
        "cast(id - 1500 AS float) / 8 real",
        "cast((id * 7919 % 3000 - 1500) / 100 AS decimal(9,2)) cents",
        "cast((id * 7919 % 3000 - 1500) / 100 AS decimal(30,2)) wide",
        "concat(lpad(id * 7919 % 3000, 4, '0'), 'é') text",
        "concat(repeat('é', 40), lpad(id, 4, '0')) long",
        "unhex(lpad(hex(id * 7919 % 3000), 8, '0')) bytes",
        "id > 1500 flag",
        "date_add(date'2026-01-01', cast(id AS int)) day",
        "timestamp_micros(id) int96",
        "cast(timestamp_micros(id) AS timestamp_ntz) stamp",
        "if(id % 5 = 0, null, named_struct('x', id)) struct",
        "if(id % 10 = 0, null, transform(sequence(0, id % 4), one -> one * id)) list",
        "map(concat('k', id), id) map",
    )
    frame = spark.range(0, ROWS, 1, 1).selectExpr(*columns)
    settings = {"parquet.page.row.count.limit": PAGE_ROWS, "parquet.page.size.row.check.min": 10}
    frame.write.options(**settings).parquet(str(tmp_path / "java"))
    [source] = (tmp_path / "java").glob("part-*.parquet")
    theirs = indexes(source)
    report = add_filters(
        without_indexes(source), tmp_path / "f.parquet", columns=[], page_index=True, page_bounds="*", sync=False
    ).files[0]
    ours = indexes(tmp_path / "f.parquet")
    assert ours.keys() == theirs.keys()
    assert all("a repeated column" in note or "INT96" in note for note in report.index_notes)
    for (group, name), (offsets, bounds) in theirs.items():
        own_offsets, own_bounds = ours[group, name]
        assert own_offsets.page_locations == offsets.page_locations, name
        if own_bounds is None:
            assert name.startswith(("list", "map", "int96")), name
            continue
        assert len(offsets.page_locations) >= ROWS // PAGE_ROWS, name
        assert own_bounds.null_pages == bounds.null_pages, name
        assert own_bounds.null_counts == bounds.null_counts, name
        assert own_bounds.min_values == bounds.min_values, name
        assert own_bounds.max_values == bounds.max_values, name
        if name not in ("only_nulls", "long", "small"):
            assert own_bounds.boundary_order == bounds.boundary_order, name
    assert report.column_indexes == sum(bounds is not None for _, bounds in ours.values()) >= 16
    assert not verify(tmp_path / "f.parquet", statistics=True).files[0].statistics.wrong  # type: ignore[union-attr]
    where = "ascending BETWEEN 250 AND 520 AND some_nulls IS NOT NULL"
    rows = sum(one % 11 != 0 for one in [*range(250, 300), *range(500, 521)])
    found = [spark.read.parquet(str(path)).where(where).count() for path in (source, tmp_path / "f.parquet")]
    assert found == [rows, rows]


def test_a_second_run_into_a_folder_adds_what_is_missing(spark: Any, tmp_path: Path) -> None:
    source, out = folder_of(tmp_path / "source"), tmp_path / "out"
    for name in ("torn.parquet", "nan.parquet"):
        (source / name).unlink()
    options: Any = {"output": out, "columns": "id", "sync": False}
    assert set(statuses(bloom.add_filters(spark, source, **options)).values()) == {"done"}
    filters = bytes_of(out)
    for more in ({"page_index": True}, {"page_index": True, "page_bounds": ["ts"]}):
        assert set(statuses(bloom.add_filters(spark, source, **options, **more)).values()) == {"done"}
        assert set(statuses(bloom.add_filters(spark, source, **options, **more)).values()) == {"unchanged"}
    [indexes] = {tuple((i.column, i.column_indexes) for i in file.page_indexes) for file in inspect(out).files}
    assert dict(indexes) == {"ts": 3, "id": 0, "tags.list.element": 0}
    assert not [one for file in verify(out, statistics=True).files for one in file.statistics.wrong]  # type: ignore[union-attr]
    assert bytes_of(out) != filters


@pytest.mark.parametrize("way", ["new-path", "same-path"])
def test_a_delta_table(spark: Any, tmp_path: Path, way: Any) -> None:
    root = tmp_path / "events"
    root.mkdir()
    for number in range(2):
        pq.write_table(table(number * ROWS), root / f"{number}.parquet", max_rows_per_page=PAGE_ROWS)
    convert_to_deltalake(str(root))
    name = f"delta:{root}"
    options: Any = {"columns": [], "page_index": True, "page_bounds": "ts", "commit": way}
    rows = bloom.add_filters(spark, name, **options).collect()
    assert {(row.status, row.filters, row.offset_indexes, row.column_indexes) for row in rows} == {("done", 0, 3, 1)}
    assert DeltaTable(str(root)).version() == 1
    assert [[i.column_indexes for i in file.page_indexes] for file in inspect(name).files] == [[1, 0, 0]] * 2
    assert not [one for file in verify(name, statistics=True).files for one in file.statistics.wrong]  # type: ignore[union-attr]
    assert count(name, f"ts BETWEEN 50 AND {ROWS + 9}") == ROWS - 40
    assert {row.status for row in bloom.add_filters(spark, name, **options).collect()} == {"unchanged"}
    assert DeltaTable(str(root)).version() == 1


def test_columns_that_there_are_not(spark: Any, tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a")
    before = bytes_of(folder)
    with pytest.raises(RequestError, match=r"page_bounds is for page_index=True"):
        bloom.add_filters(spark, folder, page_bounds="ts", in_place=True)
    with pytest.raises(UnknownColumnError, match="other"):
        bloom.add_filters(spark, folder, columns=[], page_index=True, page_bounds="other", in_place=True)
    assert bytes_of(folder) == before


def test_the_command(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path / "a")
    (folder / "torn.parquet").unlink()
    command = ["spark", "add", str(folder), "--exclude", "*", "--page-index", "--page-bounds", "ts", "--in-place"]
    assert run([*command, "--no-sync"]) == 0
    assert (
        "3 done, 0 unchanged, 0 failed; 0 filters, 0 B; 20 offset indexes and 6 column indexes, "
        in capsys.readouterr().out
    )
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["offset_indexes"] == 0
