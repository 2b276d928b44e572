"""Advice: each rule over data whose answer is known, and the gain that was promised against the gain that came."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from support import column_kinds
from support.column_kinds import Truth, truth_of
from support.commands import command
from support.object_store import ObjectStore
from support.repeats import first_then_more
from support.samples import random_bytes

import parquet_bloom
from parquet_bloom import add_filters, set_limits
from parquet_bloom.advice.advise import Advice, ColumnAdvice, advise
from parquet_bloom.cli import group
from parquet_bloom.edit.sample import Interval

ROWS, GROUP = 12_000, 1000


def write(path: Path, columns: dict[str, Any], group: int = GROUP) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def by_name(advice: Advice) -> dict[str, ColumnAdvice]:
    return {column.column: column for column in advice.columns}


def hexes(rng: np.random.Generator, n: int) -> list[str]:
    return [f"{value:016x}" for value in rng.integers(0, 2**62, n).tolist()]


def ulids(rng: np.random.Generator, n: int) -> list[str]:
    """Texts that begin with the time, as ULID and UUIDv7 do."""
    return [
        f"{1_700_000_000_000 + 10 * i:012x}-{tail:06x}" for i, tail in enumerate(rng.integers(0, 2**24, n).tolist())
    ]


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(1)
    columns = {
        "trace": hexes(rng, ROWS),
        "user": rng.integers(0, 3000, ROWS) * 7919,
        "at": np.arange(ROWS),
        "ulid": ulids(rng, ROWS),
        "status": rng.integers(0, 5, ROWS),
        "took": rng.normal(20, 5, ROWS),
        "rare": pa.array([int(v) if i % 10 == 0 else None for i, v in enumerate(rng.integers(0, 2**60, ROWS))]),
        "flag": rng.integers(0, 2, ROWS).astype(bool),
        "nothing": pa.nulls(ROWS, pa.int64()),
    }
    return write(tmp_path_factory.mktemp("advise") / "events.parquet", columns)


def test_the_columns_and_reasons_are_those_of_add(events: Path) -> None:
    advice = advise(events)
    report = add_filters(events, events.with_name("added.parquet"), overwrite=True, sync=False).files[0]
    assert sorted(advice.advised) == sorted(report.columns), "one judgement, two commands"
    why = {one.column: one.reason for one in report.skipped if one.row_group is None}
    for column in advice.columns:
        if not column.advised and column.column != "nothing":
            assert why[column.column].endswith(column.reason), column.column
    assert by_name(advice)["nothing"].reason == "no value is stored"


def test_the_time_of_many_small_files_is_not_that_of_their_values(tmp_path: Path) -> None:
    """Each file is written anew and brought to the disk, whatever it holds: most of what small files cost."""
    rng = np.random.default_rng(3)
    for number in range(200):
        write(tmp_path / f"{number}.parquet", {"id": rng.integers(0, 2**62, 100)})
    advice = advise(tmp_path)
    values = by_name(advice)["id"].seconds
    assert values is not None
    assert advice.seconds is not None
    assert advice.seconds.likely > 20 * values.likely
    shown = CliRunner().invoke(group, ["advise", str(tmp_path)]).output
    assert "with new files for 200 old ones 2 to 12 s in all" in shown


def test_what_is_known_of_each_column(events: Path) -> None:
    found = by_name(advise(events))
    assert sorted(name for name, column in found.items() if column.advised) == ["rare", "trace", "user"]
    for ordered in ("at", "ulid"):
        assert "min and max tell" in found[ordered].reason, "time-ordered keys need no filter"
        assert found[ordered].overlap is not None
        assert found[ordered].overlap < 0.1
    assert found["rare"].null_share == pytest.approx(0.9)
    assert found["trace"].row_groups_of_a_key is not None
    assert found["trace"].row_groups_of_a_key.likely == pytest.approx(1.0, abs=0.01)
    assert found["user"].row_groups_of_a_key is not None
    low, _, high = found["user"].row_groups_of_a_key
    truth = 1 + 11 * (1 - (1 - 1 / 3000) ** 1000)  # 1,000 times one of 3,000 users, in each of the other row groups
    assert low <= truth <= high
    assert found["trace"].absent is not None
    assert found["trace"].present is not None
    assert found["trace"].absent.row_groups.likely > 0.95
    assert found["trace"].present.row_groups.likely == pytest.approx(11 / 12, abs=0.03)
    assert "BOOLEAN" in found["flag"].type


@pytest.mark.smoke
def test_the_commands_can_be_pasted(events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a name with a blank, and of one that begins with a dash, which is no option."""
    monkeypatch.chdir(tmp_path)
    for name in ("with a blank.parquet", "-events.parquet"):
        Path(name).write_bytes(events.read_bytes())
        add, check = advise(name).commands
        words = shlex.split(add.replace("parquet-bloom", "parquet_bloom", 1))
        done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert {f.column for f in parquet_bloom.inspect(name).files[0].filters} == {"trace", "user", "rare"}
        assert shlex.split(check)[:2] == ["parquet-bloom", "check"]
        again = advise(name)
        assert (again.advised, again.commands) == ([], [])
        assert by_name(again)["trace"].reason == "it has filters"


def test_columns_that_have_filters_in_some_files_are_said_to_have_them(events: Path, tmp_path: Path) -> None:
    for name in ("0", "1", "2", "3"):
        (tmp_path / f"{name}.parquet").write_bytes(events.read_bytes())
    parquet_bloom.add_filters(tmp_path / "0.parquet", in_place=True, columns=["trace", "user"], sync=False)
    done = CliRunner().invoke(group, ["advise", str(tmp_path)])
    assert "3 columns should have filters; 0 % to 25 % of the row groups have one today\n" in done.output
    assert "25 % of the row groups have one today" in parquet_bloom.advise(tmp_path)._repr_html_()
    parquet_bloom.add_filters(tmp_path / "0.parquet", in_place=True, columns=["rare"], sync=False)
    done = CliRunner().invoke(group, ["advise", str(tmp_path)])
    assert "3 columns should have filters; 25 % of the row groups have one today\n" in done.output


def test_files_that_are_sorted_among_each_other_need_no_filter(tmp_path: Path) -> None:
    """Within each file ids are in no order, as one row group shows; only the files' bounds together tell."""
    rng = np.random.default_rng(2)
    for part in range(12):
        write(tmp_path / f"{part:02}.parquet", {"id": part * 10**9 + rng.integers(0, 10**9, 800), "k": hexes(rng, 800)})
    found = by_name(advise(tmp_path))
    assert not found["id"].advised
    assert "min and max tell" in found["id"].reason
    assert found["k"].advised


@pytest.mark.parametrize("first", ["duckdb", "pyarrow"])
def test_files_of_duckdb_and_pyarrow_have_the_same_columns(tmp_path: Path, first: str) -> None:
    """DuckDB writes INT_64 where pyarrow writes INT64; which comes first is no matter."""
    rng = np.random.default_rng(5)
    (tmp_path / "data").mkdir()
    for number in range(4):
        path = tmp_path / "data" / f"{number}.parquet"
        ids = rng.integers(0, 2**31, ROWS)
        rows = pa.table({"wide": ids * 2**20, "narrow": ids.astype(np.int32), "text": hexes(rng, ROWS)})
        if (number % 2 == 0) == (first == "duckdb"):
            duckdb.sql(f"COPY (FROM rows) TO '{path}' (ROW_GROUP_SIZE 2048)")
        else:
            write(path, {name: rows[name] for name in rows.column_names})
    columns = by_name(advise(tmp_path / "data"))
    assert columns.keys() == {"wide", "narrow", "text"}
    for name, column in columns.items():
        assert column.absent is not None
        assert column.absent.row_groups.likely > 0.9, (name, "every row group has these values between its bounds")
    assert columns["wide"].type == ("INT64 INTEGER" if first == "duckdb" else "INT64")


def test_the_rate_follows_the_size_of_what_is_read_in_vain(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    ids = hexes(rng, 4000)
    thin = by_name(advise(write(tmp_path / "thin.parquet", {"id": ids})))["id"]
    blob = random_bytes(rng, 4000, 3000)
    wide = by_name(advise(write(tmp_path / "wide.parquet", {"id": ids, "blob": blob})))["id"]
    assert thin.fpp is not None
    assert wide.fpp is not None
    assert wide.fpp < thin.fpp / 3, "a row group of 3 MB read in vain costs more than a filter that is twice as large"


def test_a_log_of_queries_decides(events: Path, tmp_path: Path) -> None:
    log = tmp_path / "queries.sql"
    log.write_text(
        "-- from the service\n"
        "SELECT * FROM events e WHERE e.trace = 'abc' AND status = 3;\n"
        "trace IN ('a', 'b');\n"
        "where trace = 'x' OR user = 5;\n"
        "NOT trace = 'x';\nat > 5 AND took < 3;\nSELECT 1;\n"
    )
    advice = advise(events, queries=log)
    found = by_name(advice)
    assert advice.queries == (5, 1), "SELECT 1 has no condition"
    assert (found["trace"].asked, found["user"].asked, found["status"].asked) == (3, 1, 1)
    assert advice.advised == ["trace", "user"]
    assert found["rare"].reason == "no query of the log asks for its values"
    log.write_text("SELECT 1")
    with pytest.raises(parquet_bloom.RequestError, match="no line of it is a WHERE clause"):
        advise(events, queries=log)
    with pytest.raises(parquet_bloom.StorageError, match="cannot be read as text"):
        advise(events, queries=tmp_path / "absent.sql")


def test_filters_that_are_wrong_today_are_told(tmp_path: Path) -> None:
    """Far larger than they need to be, or without a clear bit."""
    rng = np.random.default_rng(4)
    path = write(tmp_path / "x.parquet", {"id": hexes(rng, 3000), "user": hexes(rng, 3000)})
    add_filters(path, in_place=True, columns=["id"], fpp=0.000_000_001)
    add_filters(path, in_place=True, columns=["user"], fpp=0.01)
    one = next(one for one in parquet_bloom.inspect(path).files[0].filters if one.column == "user")
    assert one.offset is not None
    assert one.length is not None
    data = bytearray(path.read_bytes())
    data[one.offset + one.length - one.num_bytes : one.offset + one.length] = b"\xff" * one.num_bytes
    path.write_bytes(data)
    told = "\n".join(advise(path).flags)
    assert "column id: 3 filters read, 3 far larger than 1 % takes" in told
    assert "column user: 3 filters read, 1 admit 100% of absent values" in told


def test_shapes_that_filters_do_not_help_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    one = write(tmp_path / "one.parquet", {"id": hexes(rng, 10)})
    assert any("one row group" in line for line in advise(one).flags)
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(1000):
        (folder / f"{i}.parquet").write_bytes(one.read_bytes())
    advice = advise(folder)
    assert (advice.files, advice.footers_read) == (1000, 500)
    assert advice.row_groups == 1000, "carried on from 500"
    assert any("1,000 files with one row group each" in line and "index" in line for line in advice.flags)


def test_very_many_row_groups_want_an_index(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": pa.array(np.arange(10_000) * 7919 % 10_007)}), path, row_group_size=1)
    (flag,) = [line for line in advise(path).flags if "key index" in line]
    assert flag.startswith("10,000 row groups: filters of 1 % let some 100 of them through for any key")


def test_gains_that_were_promised_come(tmp_path: Path) -> None:
    """What lookups are spared by the filters that are advised; of columns of all kinds the truth: below."""
    rng = np.random.default_rng(5)
    values = rng.integers(0, 30_000, 20_000) * 2
    path = write(tmp_path / "x.parquet", {"id": values, "payload": random_bytes(rng, len(values), 50)})
    column = by_name(advise(path))["id"]
    assert column.fpp is not None
    add_filters(path, in_place=True, columns=["id"], fpp=column.fpp, sync=False)
    keys = rng.choice(values, 100)
    for promised, asked in ((column.present, keys), (column.absent, keys + 1)):  # no odd one is stored
        assert promised is not None
        found = [parquet_bloom.check(path, f"id = {key}") for key in asked]
        shares = [np.mean([verdict.decided_by == "filter" for verdict in verdicts]) for verdicts in found]
        low, _, high = promised.row_groups
        assert low - 0.02 <= np.mean(shares) <= high + 0.02, "hundred keys tell it as well as that"


# --- kinds of columns, by brute force -------------------------------------------------------------


def promised(folder: Path, kind: str, seed: int) -> tuple[ColumnAdvice, Truth]:
    """What is advised on a data set of a kind, and what is true of it."""
    files = column_kinds.made(kind, seed)
    advice = advise(column_kinds.write(files, folder))
    return by_name(advice)["c"], truth_of(files)


def intervals(column: ColumnAdvice) -> tuple[Interval, Interval]:
    assert column.present is not None
    assert column.absent is not None
    return column.present.row_groups, column.absent.row_groups


def holds(column: ColumnAdvice, truth: Truth) -> bool:
    return all(
        one.low <= t <= one.high for one, t in zip(intervals(column), (truth.present, truth.absent), strict=True)
    )


@pytest.mark.parametrize("kind", ["one value a file", "5,000 rows a day", "time, jittered", "one value a row group"])
def test_what_bounds_tell_is_not_promised_of_filters(tmp_path: Path, kind: str) -> None:
    """Values that are a row group's min or max are held by it; those of a constant row group are its min and max."""
    column, truth = promised(tmp_path / "d", kind, 0)
    assert truth.benefit < 0.1, "a filter on it is worth nothing"
    assert not column.advised
    assert holds(column, truth)
    added = add_filters(tmp_path / "d", in_place=True, dry_run=True).files
    assert all("c" not in file.columns for file in added)


@pytest.mark.parametrize("kind", ["half of the row groups one value", "most row groups one value", "null row groups"])
@pytest.mark.parametrize("seed", first_then_more(range(3), 1))
def test_an_absent_value_is_excluded_by_the_bounds_of_constant_row_groups(tmp_path: Path, kind: str, seed: int) -> None:
    column, truth = promised(tmp_path / "d", kind, seed)
    assert truth.absent < 0.8
    assert holds(column, truth)


def test_small_integers_that_all_are_stored_have_no_free_one_near(tmp_path: Path) -> None:
    """A third of them is in no row group that is decoded: that they are free there is no sign that they are."""
    rng = np.random.default_rng(2)
    files = [[pa.array(rng.integers(0, 9000, 300)) for _ in range(300)]]
    truth = truth_of(files)
    column = by_name(advise(column_kinds.write(files, tmp_path / "d")))["c"]
    assert truth.absent < 0.1
    assert column.absent is not None
    assert column.absent.row_groups.low < 0.3, "the next free one is behind all row groups, or nearly"


@pytest.mark.parametrize("kind", first_then_more(["zipf 1.3", "ids as floats", "mostly one id", "doubling"], 2))
def test_the_bytes_that_filters_take_lie_in_their_interval(tmp_path: Path, kind: str) -> None:
    column, _ = promised(tmp_path / "d", kind, 5)
    assert column.filter_bytes is not None
    for at, fpp in enumerate([column.fpp, "auto"]):
        report = add_filters(tmp_path / "d", tmp_path / str(at), columns=["c"], fpp=fpp, sync=False)
        taken = sum(one.num_bytes + 16 for file in report.files for one in file.filters)
        assert column.filter_bytes.low <= taken <= column.filter_bytes.high, fpp


def test_of_several_files_a_column_is_judged_by_all_of_them(tmp_path: Path) -> None:
    column, truth = promised(tmp_path / "d", "files of random ids and of few values", 1)
    assert column.advised == (truth.benefit >= 0.1)


SLOWEST = ("large", "many")
CASES = [(kind, seed) for seed in range(3) for kind in column_kinds.KINDS]
SMALL = [case for case in CASES if case[1] == 0 and not case[0].startswith(SLOWEST)]


@pytest.mark.parametrize(
    "cases",
    [SMALL[::4], *(pytest.param(one, marks=mark) for one, mark in (
        (CASES[: len(column_kinds.KINDS)], pytest.mark.more), (CASES, pytest.mark.slow)))],
    ids=["some", "each kind", "each kind, three times"],
)  # fmt: skip
def test_the_truth_lies_in_95_of_100_intervals_and_half_of_them_are_narrow(
    tmp_path: Path, cases: list[tuple[str, int]]
) -> None:
    outside, misjudged, widths = [], [], []
    for at, (kind, seed) in enumerate(cases):
        column, truth = promised(tmp_path / str(at), kind, seed)
        widths += [one.high - one.low for one in intervals(column)]
        if not holds(column, truth):
            outside.append((kind, seed))
        files = sorted((tmp_path / str(at)).iterdir())
        row_groups = sum(pq.read_metadata(file).num_row_groups for file in files)
        if row_groups > 1 and column.advised != (truth.benefit >= 0.1) and not column.reason.startswith("a filter of"):
            misjudged.append((kind, seed))
        if len(files) == 1:
            [added] = add_filters(files[0], in_place=True, dry_run=True).files
            assert ("c" in added.columns) == column.advised, f"{kind}: one judgement, two commands"
    assert len(outside) <= 0.05 * len(cases), outside
    assert sum(width <= 0.1 for width in widths) >= 0.5 * len(widths)
    assert misjudged == []


# --- the command ----------------------------------------------------------------------------------


def test_the_command(events: Path) -> None:
    done = CliRunner().invoke(group, ["advise", str(events)])
    assert done.exit_code == 0
    assert "3 columns should have filters" in done.output
    lines = done.output.splitlines()
    assert any(line.startswith(f"  parquet-bloom add {events} --column") for line in lines), "one line, to be pasted"
    assert any("min and max tell" in line for line in lines)
    plain = json.loads(CliRunner().invoke(group, ["advise", str(events), "--json"]).output)
    assert {c["column"] for c in plain["columns"] if c["advised"]} == {"trace", "user", "rare"}


def test_an_engine_that_uses_no_filter_on_a_type(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    at = pa.array(rng.integers(0, 2**50, 4000), pa.timestamp("us", "UTC"))
    path = write(tmp_path / "x.parquet", {"id": hexes(rng, 4000), "at": at})
    assert sorted(advise(path).advised) == ["at", "id"]
    asked = advise(path, engine="datafusion 55.0")
    assert asked.advised == ["id"]
    assert "DataFusion 55.0 does not use filters" in by_name(asked)["at"].reason
    assert any("DuckDB" in name for name in by_name(asked)["id"].engines)
    with pytest.raises(parquet_bloom.RequestError, match="nothing is known of it"):
        advise(path, engine="oracle")


# --- tables ---------------------------------------------------------------------------------------


def test_a_delta_table_is_advised_on_by_its_live_files(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    rng = np.random.default_rng(9)
    folder = tmp_path / "events"
    for day in ("a", "b"):
        rows = {"id": hexes(rng, 3000), "n": rng.integers(0, 4, 3000), "day": [day] * 3000}
        deltalake.write_deltalake(folder, pa.table(rows), mode="append", partition_by=["day"])
    deltalake.write_deltalake(folder, pa.table({"id": hexes(rng, 500), "n": rng.integers(0, 4, 500),
                                                "day": ["c"] * 500, "late": hexes(rng, 500)}),
                              mode="append", partition_by=["day"], schema_mode="merge")  # fmt: skip
    deltalake.DeltaTable(folder).delete("day = 'b'")
    advice = advise(f"delta:{folder}")
    assert (advice.files, advice.rows) == (2, 3500), "the file of a deleted day is dead"
    assert "id" in advice.advised
    assert "late" in by_name(advice), "a column that came with a later file"
    assert "day" not in by_name(advice), "a partition's value is in the log, and in no file"
    assert advise(folder).advised == advice.advised, "a folder with a log is its table"
    [add, _] = advice.commands
    assert "--in-place" not in add
    rates = {column.column: column.fpp for column in advice.columns if column.advised}
    parquet_bloom.add_filters(f"delta:{folder}", columns=advice.advised, fpp=rates)
    assert advise(f"delta:{folder}").advised == []


def test_filters_behind_the_size_that_the_log_names_are_none(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    rng = np.random.default_rng(3)
    for _ in range(2):
        deltalake.write_deltalake(tmp_path / "t", pa.table({"trace": hexes(rng, 4000)}), mode="append")
    name = f"delta:{tmp_path / 't'}"
    before = advise(name)
    add_filters(name, columns=["trace"], commit="same-path")
    assert by_name(advise(name))["trace"].reason == "it has filters"
    parquet_bloom.remove_filters(name, commit="same-path")
    assert advise(name).commands == before.commands
    [add, check] = advise(f"{name}@0").commands
    assert f"{name} " in add, "of a table the latest version alone is changed"
    assert f"{name}@0 " in check
    assert by_name(advise(name))["trace"].with_filter == 0


def test_columns_have_the_names_of_the_table(tmp_path: Path) -> None:
    catalog = pytest.importorskip("pyiceberg.catalog.sql").SqlCatalog(
        "c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}"
    )
    rng = np.random.default_rng(10)
    rows = pa.table({"old": hexes(rng, 3000)})
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", rows.schema)
    table.append(rows)
    with table.update_schema() as change:
        change.rename_column("old", "new")
    table.append(pa.table({"new": hexes(rng, 3000)}))
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}"}
    advice = advise("iceberg:c/n.t", catalog_properties=properties)
    assert advice.advised == ["new"]
    assert by_name(advice)["new"].row_groups_of_a_key is not None
    assert advice.row_groups == 2


def test_samples_of_a_store_are_read_side_by_side_and_say_the_same(
    events: Path, store: ObjectStore, bucket: str
) -> None:
    for copy in "ab":
        store.put(f"{bucket}/events/{copy}.parquet", events.read_bytes())
    most = 0

    def wait(_: object) -> None:
        nonlocal most
        most = max(most, store.wire._open)
        time.sleep(0.02)  # as a store that is far away

    def advised(concurrency: int) -> pa.Table:
        before = set_limits(concurrency=concurrency)
        try:
            found = advise(f"{bucket}/events", filesystem=store.filesystem).to_arrow()
        finally:
            set_limits(concurrency=before.concurrency)
        return found.drop_columns("seconds")  # those of this machine, measured now

    store.wire.before = wait
    many = advised(64)
    assert most >= 3, "side by side"
    assert many == advised(1)


def test_a_column_that_does_not_decode_is_named_and_the_others_are_judged(tmp_path: Path) -> None:
    """DuckDB 2.0 writes an ARRAY with NULLs that pyarrow cannot read."""
    path = tmp_path / "arrays.parquet"
    array = "CASE WHEN range % 3 = 0 THEN NULL ELSE [range, range + 1, range + 2]::INTEGER[3] END"
    rows = f"SELECT hash(range) AS id, {array} AS fixed, 'n' || hash(range) AS name FROM range(5000)"
    duckdb.sql(f"COPY ({rows}) TO '{path}' (WRITE_BLOOM_FILTER false)")
    with pytest.raises(pa.ArrowException):
        pq.read_table(path)
    advice = {one.column: one for one in parquet_bloom.advise(path).columns}
    assert {name for name, one in advice.items() if one.advised} == {"id", "name"}
    assert f"{path}: row group 0, column fixed.list.element cannot be decoded" in advice["fixed.list.element"].reason
    done = command("report", path, "-o", tmp_path / "report.html")
    assert done.returncode == 0, done.stderr
    done = command("add", path, "--in-place")
    assert done.returncode == 0, done.stderr
    assert "column fixed.list.element cannot be decoded" in done.stdout
    [file] = parquet_bloom.inspect(path).files
    assert {one.column for one in file.filters} == {"id", "name"}
    with pytest.raises(parquet_bloom.DamagedFileError, match=r"column fixed\.list\.element cannot be decoded"):
        parquet_bloom.add_filters(path, columns=["fixed.list.element"], in_place=True)
