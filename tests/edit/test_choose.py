"""Which columns get filters when none are named: what engines cannot show (see engines/test_default_columns.py)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.samples import FIXTURES

from parquet_bloom import AddedFile, add_filters, write_table
from parquet_bloom.edit import gain
from parquet_bloom.edit.sample import Sample, distinct, halves, shared_fraction


def chosen(path: Path, **options: object) -> AddedFile:
    return add_filters(path, path.with_name("chosen.parquet"), overwrite=True, sync=False, **options).files[0]


def reasons(report: AddedFile) -> dict[str, str]:
    return {skipped.column: skipped.reason for skipped in report.skipped}


def test_one_row_group_has_nothing_to_compare_with(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    n = 20_000
    micros = np.arange(n) * 1_000_000 + rng.integers(0, 60_000_000, n)
    columns = {
        "id": rng.integers(0, 2**60, n),
        "at": pa.array(micros, pa.timestamp("us")),
        "backwards": micros[::-1].copy(),
        "sorted_key": pa.array(sorted(f"{i:x}" for i in rng.integers(2**60, 2**62, n))),
        "shuffled": rng.permutation(n),
        "city": [f"city {i}" for i in rng.integers(0, 150, n)],
        "amount": rng.normal(20, 5, n),
        "one": np.zeros(n),
        "message": [f"request {i:x} took {i % 97} ms" for i in rng.integers(0, 2**60, n)],
        "person": [f"Name{i:x} Surname{i % 97}" for i in rng.integers(0, 2**60, n)],
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    report = chosen(tmp_path / "x.parquet")
    assert report.columns == ["id", "person"]
    why = reasons(report)
    assert why["message"] == "texts of several words are not looked up by equality"
    assert all("in order" in why[name] for name in ("at", "backwards", "sorted_key"))
    assert why["shuffled"] == "min and max tell: of the 20,000 values from min to max it holds 20,000"
    assert why["city"] == "few distinct values: some 150 among 20,000"
    assert "measurements" in why["amount"]
    assert why["one"] == "it holds one value only"


def test_without_statistics_the_values_alone_decide(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    table = pa.table({"id": rng.integers(0, 2**60, 9000), "status": rng.integers(0, 3, 9000), "row": np.arange(9000)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=3000, write_statistics=False)
    report = chosen(tmp_path / "x.parquet")
    assert report.columns == ["id", "row"], "without bounds no reader skips a row group by them"
    assert "few distinct" in reasons(report)["status"]


def test_a_filter_that_saves_less_than_it_takes(tmp_path: Path) -> None:
    """Bytes that compress to nothing: reading them costs less than a filter over them would take."""
    rng = np.random.default_rng(5)
    keys = [b"%d" % (i // 2) * 50 for i in rng.permutation(6000)]
    pq.write_table(pa.table({"key": keys}), tmp_path / "x.parquet", row_group_size=3000, compression="zstd",
                   compression_level=19)  # fmt: skip
    size = pq.read_metadata(tmp_path / "x.parquet").row_group(0).column(0).total_compressed_size
    report = chosen(tmp_path / "x.parquet", fpp=1e-9)
    assert report.columns == []
    told = re.fullmatch(
        r"a filter of ([\d,]+) bytes would save the reading of ([\d,]+) bytes .*", reasons(report)["key"]
    )
    assert told is not None
    taken, saved = (int(number.replace(",", "")) for number in told.groups())
    assert saved <= size < taken
    assert chosen(tmp_path / "x.parquet", fpp=0.1).columns == ["key"], "a smaller one is worth it"


def test_names_and_patterns_are_taken_as_they_are(tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(1000), "ab": ["x"] * 1000, "flag": [True, False] * 500})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=200)
    assert chosen(tmp_path / "x.parquet").columns == []
    assert chosen(tmp_path / "x.parquet", columns=["ab"]).columns == ["ab"]
    assert chosen(tmp_path / "x.parquet", columns=["a*"]).columns == ["a", "ab"]
    every = chosen(tmp_path / "x.parquet", columns=["*"])
    assert every.columns == ["a", "ab"]
    assert "BOOLEAN" in reasons(every)["flag"]


def test_excluded_columns_are_not_even_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    table = pa.table({"a": rng.integers(0, 2**60, 900), "b": rng.integers(0, 2**60, 900)})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=300)
    looked_at: list[str] = []
    plain = gain.ColumnReader
    monkeypatch.setattr(gain, "ColumnReader", lambda source, leaf: looked_at.append(leaf.name) or plain(source, leaf))
    assert chosen(tmp_path / "x.parquet", exclude=["b"]).columns == ["a"]
    assert set(looked_at) == {"a"}


def test_a_second_run_finds_nothing_to_do(tmp_path: Path) -> None:
    path, rng = tmp_path / "x.parquet", np.random.default_rng(7)
    table = pa.table({"id": rng.integers(0, 2**60, 3000), "at": np.arange(3000)})
    pq.write_table(table, path, row_group_size=500)
    assert add_filters(path, in_place=True, sync=False).files[0].columns == ["id"]
    before = path.read_bytes()
    assert add_filters(path, in_place=True, sync=False).files[0].filters == []
    assert path.read_bytes() == before
    assert add_filters(path, in_place=True, replace=True, sync=False).files[0].columns == ["id"]


@pytest.mark.parametrize("writer", ["polars", "duckdb", "fastparquet"])
def test_files_of_other_writers(tmp_path: Path, writer: str) -> None:
    rng = np.random.default_rng(8)
    n = 60_000
    table = pa.table({"trace_id": [f"{i:016x}" for i in rng.integers(0, 2**62, n).tolist()],
                      "user_id": rng.integers(0, 2**50, n), "level": rng.integers(0, 6, n),
                      "at": pa.array(np.arange(n) * 1000, pa.timestamp("us"))})  # fmt: skip
    path = tmp_path / "x.parquet"
    if writer == "polars":
        pytest.importorskip("polars").from_arrow(table).write_parquet(path, row_group_size=6000)
    elif writer == "duckdb":
        with pytest.importorskip("duckdb").connect() as connection:
            connection.register("data", table)
            connection.execute(f"COPY data TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 6144, WRITE_BLOOM_FILTER false)")
    else:
        pytest.importorskip("fastparquet").write(str(path), table.to_pandas(), row_group_offsets=6000)
    assert chosen(path).columns == ["trace_id", "user_id"]


def test_fixtures_of_every_type_can_be_judged(tmp_path: Path) -> None:
    for name in ("pyarrow/types_no_filters", "duckdb/own_types", "spark/nested", "spark/int96", "datafusion/types"):
        path = shutil.copy(FIXTURES / f"{name}.parquet", tmp_path / "x.parquet")
        report = chosen(Path(path), replace=True)
        assert report.columns or report.skipped, name


def test_written_tables_are_judged_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    table = pa.table({"id": rng.integers(0, 2**60, 4000), "level": rng.integers(0, 3, 4000)})
    report = write_table(table, tmp_path / "x.parquet", row_group_size=1000)
    assert report is not None
    assert report.columns == ["id"]


# --- estimates ------------------------------------------------------------------------------------


def _sampled(values: np.ndarray, whole: int) -> Sample:
    return Sample(pa.chunked_array([values]), values.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), whole)


@pytest.mark.parametrize("universe", [100, 60_000])
def test_estimates_from_a_sample_are_near_the_truth(universe: int) -> None:
    """An eighth of two row groups tells what both hold, where values are equally frequent."""
    rng = np.random.default_rng(universe)
    whole, part = 80_000, 10_000
    one, other = (rng.integers(0, universe, whole) for _ in range(2))
    there = len(np.unique(one))
    fewest, most = distinct(_sampled(one[:part], whole))
    assert fewest == pytest.approx(there, rel=0.05)
    assert there * 0.95 <= most <= 2.5 * there
    held = np.isin(np.unique(one[:part]), other).mean()
    found = shared_fraction(_sampled(one[:part], whole), _sampled(other[:part], whole))
    assert found == pytest.approx(held, abs=0.17)


def test_rare_values_are_not_taken_for_frequent_ones() -> None:
    """Frequent users are everywhere, the many others are not: a filter helps them, and the estimate says so."""
    rng = np.random.default_rng(1)
    one, other = (rng.zipf(1.3, 80_000) % 10_000_019 for _ in range(2))
    held = np.isin(np.unique(one), other).mean()
    found = shared_fraction(_sampled(one[:10_000], 80_000), _sampled(other[:10_000], 80_000))
    assert held < 0.5
    assert found < 0.8, "so the benefit is above the least one"


def test_one_sample_is_held_against_itself_by_halves() -> None:
    values = np.arange(1001)
    first, second = halves(_sampled(values, 1001))
    assert (len(first.hashes), len(second.hashes)) == (500, 501)
    assert shared_fraction(first, second) == 0
