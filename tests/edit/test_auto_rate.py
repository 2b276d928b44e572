"""fpp="auto": the size at which a filter's own bytes and the row groups that its errors cost are least together."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.samples import random_bytes

import parquet_bloom
from parquet_bloom import add_filters
from parquet_bloom.kernels.split_block import MIN_BYTES, expected_rate, least_size


def test_no_other_size_costs_less() -> None:
    for ndv, in_vain in itertools.product([1, 30, 1000, 20_000, 1_000_000], [0, 100, 10_000, 1 << 20, 1 << 27]):
        best = least_size(ndv, in_vain)
        costs = {1 << power: (1 << power) + expected_rate(ndv, 1 << power) * in_vain for power in range(6, 28)}
        assert costs[best] == min(costs.values()), (ndv, in_vain)
        assert MIN_BYTES <= best <= 1 << 27
        assert least_size(ndv, in_vain, 4096) <= 4096, "the limit holds"


def write(path: Path, payload: int, values: int = 3000) -> Path:
    rng = np.random.default_rng(7)
    table = pa.table({"id": rng.integers(0, 2**60, values), "some": rng.integers(0, 40, values) * 2**40,
                      "blob": random_bytes(rng, values, payload)})  # fmt: skip
    pq.write_table(table, path, row_group_size=1000, compression="none")
    return path


@pytest.mark.parametrize("payload", [1, 5000])
def test_filters_have_the_size_that_costs_least(tmp_path: Path, payload: int) -> None:
    path = write(tmp_path / "x.parquet", payload)
    metadata = pq.read_metadata(path)
    sizes = sorted(
        sum(metadata.row_group(g).column(c).total_compressed_size for c in range(3))
        for g in range(metadata.num_row_groups)
    )
    report = add_filters(path, in_place=True, columns=["id", "some"], fpp="auto")
    assert all(one.reached for one in report.files[0].filters), "there is no target to miss"
    for one in parquet_bloom.inspect(path).files[0].filters:
        ndv = 1000 if one.column == "id" else 40
        assert one.num_bytes in (least_size(ndv, sizes[1]), 2 * least_size(ndv, sizes[1])), (
            "by the bits, a size off at most"
        )
    assert {one.status for one in parquet_bloom.verify(path).files[0].filters} == {"right"}


def test_a_first_guess_that_is_far_too_low_is_doubled(tmp_path: Path) -> None:
    """The filter that it begins with is full: nobody can say of how many values."""
    path = write(tmp_path / "x.parquet", 300, values=1000)
    plain, guessed = (
        add_filters(path, tmp_path / f"{at}.parquet", columns=["id"], fpp="auto", ndv=ndv, sync=False).files[0]
        for at, ndv in enumerate((None, 1))
    )
    assert [one.num_bytes for one in guessed.filters] == [one.num_bytes for one in plain.filters]


def test_wider_rows_get_a_lower_rate(tmp_path: Path) -> None:
    rates = {}
    for payload in (1, 5000):
        path = write(tmp_path / f"{payload}.parquet", payload)
        add_filters(path, in_place=True, columns=["id"], fpp="auto")
        rates[payload] = max(one.fpp for one in parquet_bloom.inspect(path).files[0].filters)
    assert rates[5000] < rates[1] / 10, "a row group of 5 MB that is read in vain costs more than a larger filter"


def test_one_column_by_itself_and_a_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", 5000)
    add_filters(path, in_place=True, columns=["id", "some"], fpp={"id": "auto", "*": 0.1}, max_bytes=1024)
    found = parquet_bloom.inspect(path).files[0].filters
    assert {one.num_bytes for one in found if one.column == "id"} == {1024}
    assert {one.num_bytes for one in found if one.column == "some"} == {MIN_BYTES}


def test_what_makes_no_sense(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", 1)
    with pytest.raises(parquet_bloom.RequestError, match="fpp='auto' is not for statistics"):
        add_filters(path, in_place=True, columns=["id"], fpp="auto", spec="statistics")
    with pytest.raises(parquet_bloom.RequestError, match="fpp often is not between 0 and 1"):
        add_filters(path, in_place=True, columns=["id"], fpp="often")  # type: ignore[arg-type]


def test_the_option(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from parquet_bloom.cli import group

    path = write(tmp_path / "x.parquet", 300)
    done = CliRunner().invoke(
        group, ["add", str(path), "-c", "id", "--fpp", "auto", "--column-fpp", "id=auto", "--in-place"]
    )
    assert done.exit_code == 0, done.output
    wrong = CliRunner().invoke(group, ["add", str(path), "--fpp", "often", "--in-place"])
    assert wrong.exit_code == 2
    assert "'often' is neither a rate, as 0.01, nor auto" in wrong.output
