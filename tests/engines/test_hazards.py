"""The hazards of facts/engines.json, run over the releases that are installed here: what the list says is what they do.

Each case is asked of whatever release there is. In a range of the list it must lose rows, outside of all it must not.
The ClickHouse ones run where chdb is: `pip install chdb-core==26.3.0` has ClickHouse 26.3.9.1.
"""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from decimal import Decimal
from importlib import metadata
from pathlib import Path

import datafusion
import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.footers import edited_footer

import parquet_bloom
from parquet_bloom.edit.plan import Placement
from parquet_bloom.facts.known import BESIDE_NAN, SOME_GROUPS, Hazard, by_bounds, hazards, losers

DUCKDB = metadata.version("duckdb")
PLACEMENTS: tuple[Placement, ...] = ("footer", "chunk-start", "tail")


def hazard(source: str) -> Hazard:
    """The first one whose address ends so."""
    return next(one for one in hazards() if one.source.endswith(source))


def duckdb_finds(path: Path, where: str) -> int:
    with duckdb.connect() as connection:
        ((found,),) = connection.execute(f"SELECT count(*) FROM read_parquet(?) WHERE {where}", [str(path)]).fetchall()
        return int(found)


# --- DuckDB ---------------------------------------------------------------------------------------


def with_filters(folder: Path, values: pa.Array) -> Path:
    """x.parquet with a filter on column x; plain.parquet beside it has none."""
    pq.write_table(pa.table({"x": values}), folder / "plain.parquet", use_dictionary=False)
    parquet_bloom.add_filters(folder / "plain.parquet", folder / "x.parquet", columns=["x"], overwrite=True)
    return folder / "x.parquet"


@pytest.mark.parametrize(("kind", "placement"), [(pa.binary(), "footer"), (pa.binary(4), "chunk-start")])
def test_duckdb_finds_bytes_but_in_the_releases_that_do_not(tmp_path: Path, kind: pa.DataType, placement: str) -> None:
    stored = [bytes([255, i, 0, i]) for i in range(200)]
    pq.write_table(pa.table({"x": pa.array(stored, kind)}), tmp_path / "plain.parquet", use_dictionary=False)
    parquet_bloom.add_filters(tmp_path / "plain.parquet", tmp_path / "x.parquet", columns=["x"], placement=placement)
    asked = ["x = '" + "".join(f"\\x{byte:02X}" for byte in value) + "'::BLOB" for value in stored[:6]]
    assert [duckdb_finds(tmp_path / "plain.parquet", where) for where in asked] == [1] * 6, "asked rightly"
    loses = hazard("duckdb/issues/23053").hits_version(DUCKDB)
    assert [duckdb_finds(tmp_path / "x.parquet", where) for where in asked] == [0 if loses else 1] * 6


def test_duckdb_loses_floats_over_filters_of_others_not_over_ours(tmp_path: Path) -> None:
    """A FLOAT16 by any value; before 2.0, a zero by the other zero."""
    halves = np.arange(1, 200, dtype=np.float16) / np.float16(4)
    zeros = [-0.0, 1.0] * 100
    for kind, values, asked, rows, source in (
        (pa.float16(), halves, [f"{float(value)}::FLOAT" for value in halves[:40]], 1, "duckdb/pull/16395"),
        (pa.float32(), zeros, ["0.0::FLOAT"], 100, "duckdb/pull/23829"),
        (pa.float64(), zeros, ["0.0::DOUBLE"], 100, "duckdb/pull/23829"),
    ):
        column, theirs = pa.array(values, kind), tmp_path / "theirs.parquet"
        pq.write_table(pa.table({"x": column}), theirs, bloom_filter_options={"x": True})
        ours, loses = with_filters(tmp_path, column), hazard(source).hits_version(DUCKDB)
        assert [duckdb_finds(ours, f"x = {one}") for one in asked] == [rows] * len(asked)
        found = [duckdb_finds(theirs, f"x = {one}") for one in asked]
        assert found == [0 if loses else rows] * len(asked), f"DuckDB changed: {source} has to end its range"


def test_duckdb_loses_decimals_of_more_than_38_digits(tmp_path: Path) -> None:
    values = [Decimal(i * 7919 % 100_003) for i in range(4000)]
    ours = with_filters(tmp_path, pa.array(values, pa.decimal256(57, 0)))
    asked = [f"x = {value}" for value in values[1:20]]
    assert [duckdb_finds(tmp_path / "plain.parquet", where) for where in asked] == [1] * 19, "asked rightly"
    loses = hazard("duckdb/pull/9770").hits_version(DUCKDB)
    found = [duckdb_finds(ours, where) for where in asked]
    assert found == [0 if loses else 1] * 19, "DuckDB changed: the list of hazards has to end its range"


# --- ClickHouse -----------------------------------------------------------------------------------

NO_CHDB = "chdb is not installed: pip install chdb-core==26.3.0 has ClickHouse 26.3.9.1"
_COUNTS = """
import sys, chdb
print(chdb.query("SELECT version()", "TSVRaw"), end="")
for where in sys.argv[3:]:
    told = []
    for setting in (0, 1):
        query = "SELECT count() FROM file('%s', Parquet%s) WHERE %s SETTINGS input_format_null_as_default = 1, "
        query += "input_format_parquet_bloom_filter_push_down = %d"
        told.append(str(chdb.query(query % (sys.argv[1], sys.argv[2], where, setting), "TSVRaw")).strip())
    print(*told, flush=True)
"""


def clickhouse_finds(path: Path, structure: str, asked: list[str]) -> tuple[str, list[tuple[int, int]] | None]:
    """(the version, rows without filters and with them, a pair a question); None where the process crashed."""
    pytest.importorskip("chdb", reason=NO_CHDB)
    ran = subprocess.run(
        [sys.executable, "-c", _COUNTS, str(path), structure, *asked], capture_output=True, text=True, timeout=300
    )
    version, *lines = ran.stdout.splitlines()
    if ran.returncode < 0:
        return version, None
    assert ran.returncode == 0, ran.stderr
    return version, [(int(line.split()[0]), int(line.split()[1])) for line in lines]


@pytest.fixture(scope="module")
def many_groups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """50 row groups of 10,000 rows, 2,000 distinct values in each, with page indexes."""
    pytest.importorskip("chdb", reason=NO_CHDB)
    random = np.random.default_rng(3)
    table = pa.table({"id": random.permutation(500_000), "k": random.integers(0, 2000, 500_000).astype(np.int32)})
    path = tmp_path_factory.mktemp("clickhouse") / "plain.parquet"
    pq.write_table(table, path, row_group_size=10_000, use_dictionary=False, write_page_index=True)
    return path


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_clickhouse_undercounts_in_the_releases_of_the_list(many_groups: Path, tmp_path: Path, placement: str) -> None:
    path = tmp_path / "k.parquet"
    parquet_bloom.add_filters(many_groups, path, columns=["id", "k"], placement=placement)
    version, found = clickhouse_finds(path, "", [f"k = {100 * i}" for i in range(20)])
    if hazard("pull/102385").hits_version(version):
        assert found is None or any(with_filters < without for without, with_filters in found)
    else:
        assert found is not None
        assert all(without == with_filters > 0 for without, with_filters in found)


def test_clickhouse_loses_nulls_that_are_read_as_values_in_the_releases_of_the_list(tmp_path: Path) -> None:
    values = [None if i % 2 else 1 + i % 91 for i in range(10_000)]
    table = pa.table({"n": pa.array(values, pa.int64())})
    pq.write_table(table, tmp_path / "plain.parquet", use_dictionary=False, write_statistics=False)
    parquet_bloom.add_filters(tmp_path / "plain.parquet", tmp_path / "n.parquet", columns=["n"])
    version, found = clickhouse_finds(tmp_path / "n.parquet", ", 'n Int64'", ["n = 0"])
    assert found == [(5000, 0 if hazard("issues/112580").hits_version(version) else 5000)]


# --- what the list says of our files --------------------------------------------------------------


def test_no_two_filter_ranges_of_a_file_of_ours_overlap(tmp_path: Path) -> None:
    """ClickHouse's ranges overlapped because it asks for a header and a filter; those of the file never do."""
    plain, path = tmp_path / "plain.parquet", tmp_path / "k.parquet"
    pq.write_table(pa.table({"id": range(500), "k": range(500)}), plain, row_group_size=10, write_page_index=True)
    for placement in PLACEMENTS:
        parquet_bloom.add_filters(plain, path, columns=["id", "k"], placement=placement, overwrite=True)
        filters = parquet_bloom.inspect(path).files[0].filters
        ranges = sorted((one.offset, one.offset + one.length) for one in filters if one.offset and one.length)
        assert len(ranges) == 100
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges)), placement


# --- bounds beside a NaN --------------------------------------------------------------------------


def finders(path: Path, least: int = 5) -> dict[str, int]:
    """The rows that each engine finds by `x > least`."""
    context = datafusion.SessionContext()
    context.register_parquet("t", str(path))
    return {
        "duckdb": duckdb_finds(path, f"x > {least}"),
        "datafusion": context.sql(f"SELECT count(*) AS n FROM t WHERE x > {least}").to_pydict()["n"][0],
        "polars": pl.scan_parquet(path).filter(pl.col("x") > least).select(pl.len()).collect().item(),
        "pyarrow": ds.dataset(path).count_rows(filter=ds.field("x") > least),
    }


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_who_finds_a_nan_beside_bounds(tmp_path: Path, kind: pa.DataType) -> None:
    """Bounds leave NaN out; without bounds those that lose rows by them find these."""
    facts = {one["engine"]: one for one in by_bounds(BESIDE_NAN)}
    table = pa.table({"x": pa.array([1.0, math.nan, 2.0, 3.0] * 25, kind)})
    pq.write_table(table, tmp_path / "bounds.parquet")
    pq.write_table(table, tmp_path / "none.parquet", write_statistics=False)
    pages = tmp_path / "pages.parquet"
    pq.write_table(table, pages, write_page_index=True, max_rows_per_page=10)
    with edited_footer(pages) as metadata:
        stated = metadata.row_groups[0].columns[0].meta_data.statistics
        stated.min_value = stated.max_value = stated.min = stated.max = None
    found = [finders(tmp_path / name) for name in ("bounds.parquet", "pages.parquet", "none.parquet")]
    with_bounds, by_pages, without = found
    expected = {"always": (25, 25), "without bounds": (0, 25), "never": (0, 0)}
    for name, one in facts.items():
        assert (with_bounds[name], without[name]) == expected[one["finds"]], name
        assert (by_pages[name], without[name]) == expected[one["finds_by_pages"]], name
    assert "DuckDB" in losers(BESIDE_NAN)
    report = parquet_bloom.add_filters(tmp_path / "bounds.parquet", tmp_path / "x.parquet", columns="x").files[0]
    [note] = [note for note in report.engine_notes if "NaN" in note]
    assert note.startswith("25 NaN of column x lie beside min and max: DuckDB ")
    for name, notes in (("bounds.parquet", 1), ("pages.parquet", 1), ("none.parquet", 0)):
        verified = parquet_bloom.verify(tmp_path / name, statistics=True).files[0].statistics
        assert verified is not None
        assert (verified.wrong, len(verified.notes)) == ([], notes), name
    added = parquet_bloom.add_filters(pages, tmp_path / "y.parquet", columns="x").files[0]
    assert any("25 NaN of column x" in note for note in added.engine_notes), "pages alone have bounds"


def test_status_names_a_nan_that_a_file_counts(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [1.0, math.nan]}), path)
    assert not any("NaN" in note for note in parquet_bloom.status(path).notes)
    with edited_footer(path) as metadata:
        metadata.row_groups[0].columns[0].meta_data.statistics.nan_count = 1
    [note] = [note for note in parquet_bloom.status(path).notes if "NaN" in note]
    assert note.startswith("column x of 1 file has NaN beside min and max")


# --- bounds in some row groups alone --------------------------------------------------------------


def four_groups(path: Path, without: dict[int, list[str]], kind: pa.DataType | None = None) -> Path:
    """0 to 399 in four row groups, of which some lack bounds: row group -> fields that go."""
    pq.write_table(pa.table({"x": pa.array(range(400), kind or pa.int64())}), path, row_group_size=100)
    with edited_footer(path) as metadata:
        for group, fields in without.items():
            for field in fields:
                setattr(metadata.row_groups[group].columns[0].meta_data.statistics, field, None)
    return path


BOTH, HIGH = ["min", "max", "min_value", "max_value"], ["max", "max_value"]


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_who_takes_bounds_of_some_row_groups_for_those_of_the_file(tmp_path: Path, kind: pa.DataType) -> None:
    some = finders(four_groups(tmp_path / "some.parquet", {3: BOTH}, kind), 300)
    none = finders(four_groups(tmp_path / "none.parquet", dict.fromkeys(range(4), BOTH), kind), 300)
    for one in by_bounds(SOME_GROUPS):
        expected = {"always": (99, 99), "without bounds": (0, 99)}[one["finds"]]
        assert (some[one["engine"]], none[one["engine"]]) == expected, one["engine"]
    assert losers(SOME_GROUPS).startswith("DataFusion 49.0.0 to ")


def test_verify_add_and_status_name_them(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for without, noted in (
        ({}, 0), ({3: BOTH}, 1), ({0: BOTH, 2: BOTH}, 2), (dict.fromkeys(range(4), BOTH), 0), ({1: HIGH}, 1),
        ({1: ["max"]}, 0), (dict.fromkeys(range(4), HIGH), 0),
    ):  # fmt: skip
        four_groups(path, without)
        verified = parquet_bloom.verify(path, statistics=True).files[0].statistics
        assert verified is not None
        assert verified.wrong == []
        groups = f"column x has no min and max in {noted} row group{'s' * (noted > 1)} of 4: "
        assert [note.startswith(groups) for note in verified.notes] == [True] * bool(noted), without
        added = parquet_bloom.add_filters(path, tmp_path / "y.parquet", columns="x", overwrite=True)
        alone = [note for note in added.files[0].engine_notes if "alone" in note]
        expected = "column x has min and max in some row groups alone: DataFusion 49.0.0 to "
        assert [note.startswith(expected) for note in alone] == [True] * bool(noted), without
        shown = [note for note in parquet_bloom.status(path).notes if "some row groups" in note]
        assert [note.partition(" has ")[0] for note in shown] == ["column x of 1 file"] * bool(noted), without


def test_a_row_group_of_nothing_but_null_needs_no_bounds(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": [1, 2, None, None], "l": [[1], [2], [], []]}), path, row_group_size=2)
    assert not pq.read_metadata(path).row_group(1).column(0).statistics.has_min_max
    verified = parquet_bloom.verify(path, statistics=True).files[0].statistics
    assert verified is not None
    assert verified.notes == []
    assert not any("some row groups" in note for note in parquet_bloom.status(path).notes)
