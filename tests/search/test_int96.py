"""INT96 outside the years that 64 bits of nanoseconds hold: an error in the place of another year, in every reader."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import parquet_bloom
from parquet_bloom.cli import run
from parquet_bloom.errors import RequestError

FAR, NEAR = dt.datetime(9999, 12, 31), dt.datetime(2026, 1, 1)
ENDS = [dt.datetime(1677, 9, 22), dt.datetime(2262, 4, 11)]


def write(path: Path, times: list[Any], kind: pa.DataType | None = None) -> Path:
    """A row group for each value; id counts from 0."""
    table = pa.table({"id": range(len(times)), "t": pa.array(times, kind or pa.timestamp("us"))})
    pq.write_table(table, path, use_deprecated_int96_timestamps=True, row_group_size=1)
    return path


READERS: dict[str, Callable[..., Any]] = {
    "read_table": lambda path, where=None: parquet_bloom.read_table(path, where),
    "read_batches": lambda path, where=None: list(parquet_bloom.read_batches(path, where)),
    "dataset": lambda path, where=None: parquet_bloom.dataset(path, where).to_table(),
    "scan_polars": lambda path, where=None: (
        parquet_bloom.scan_polars(path).filter(True if where is None else pl.sql_expr(where)).collect()
    ),
}


def test_a_far_time_is_an_error_that_names_file_and_column(tmp_path: Path) -> None:
    """Where it is read or compared; other row groups, columns and files are read."""
    write(tmp_path / "a.parquet", [NEAR])
    path = write(tmp_path / "x.parquet", [NEAR, FAR])
    for name, reader in READERS.items():
        with pytest.raises(Exception, match=r"x\.parquet: column t has INT96 times outside the years 1677 to 2262"):
            reader(path)
        assert len(reader(path, "id = 0")) == 1, name  # the other row group is not read
    with pytest.raises(RequestError, match=r"x\.parquet: column t has INT96 times"):
        parquet_bloom.read_table(tmp_path)
    for where in ("t = TIMESTAMP '9999-12-31'", "t > TIMESTAMP '2200-01-01'", [("t", "<", ENDS[0])]):
        with pytest.raises(RequestError, match="column t has INT96 times"):
            parquet_bloom.count(path, where)
        with pytest.raises(RequestError, match="column t has INT96 times"):
            parquet_bloom.read_table(path, where, columns=["id"])
    assert parquet_bloom.count(path, "id = 1") == 1
    assert parquet_bloom.read_table(path, "id = 1", columns=["id"]).to_pylist() == [{"id": 1}]
    assert parquet_bloom.scan_polars(path).select("id").collect()["id"].to_list() == [0, 1]


def test_nested(tmp_path: Path) -> None:
    for kind, value in (
        (pa.struct({"x": pa.timestamp("us"), "n": pa.int64()}), {"x": FAR, "n": 1}),
        (pa.list_(pa.timestamp("us")), [NEAR, None, FAR]),
        (pa.map_(pa.string(), pa.timestamp("us")), [("a", FAR)]),
    ):
        path = write(tmp_path / "x.parquet", [None, value], kind)
        with pytest.raises(RequestError, match="column t has INT96 times"):
            parquet_bloom.read_table(path)
        assert parquet_bloom.read_table(path, "id = 0").num_rows == 1


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.parquet", [FAR])
    assert run(["read", str(path), "--format", "csv"]) == 2
    out, err = capsys.readouterr()
    assert "1816" not in out
    assert err.count("\n") == 1
    assert "microseconds" in err


def test_times_within_keep_type_and_nanoseconds(tmp_path: Path) -> None:
    times = pa.array([0, 1, -1, 1_767_225_600_123_456_789, None], pa.timestamp("ns"))
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"t": times}), path, use_deprecated_int96_timestamps=True)
    for reader in ("read_table", "dataset"):
        assert READERS[reader](path)["t"].combine_chunks() == times
    assert parquet_bloom.count(path, pc.field("t") == times[3]) == 1


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.none() | st.datetimes() | st.sampled_from([*ENDS, FAR]), min_size=1, max_size=5),
    at=st.datetimes() | st.sampled_from([*ENDS, FAR]),
    op=st.sampled_from(["=", "<>", "<", ">="]),
)
def test_counts_are_duckdbs_or_an_error(tmp_path: Path, times: list[Any], at: dt.datetime, op: str) -> None:
    path = write(tmp_path / "x.parquet", times)
    where = f"t {op} TIMESTAMP '{at.isoformat(' ')}'"
    far = any(one is not None and not ENDS[0] <= one <= ENDS[1] for one in times)
    try:
        counted = parquet_bloom.count(path, where)
    except RequestError:
        assert far
        return
    assert counted == duckdb.sql(f"SELECT count(*) FROM '{path}' WHERE {where}").fetchall()[0][0]
