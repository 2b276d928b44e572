"""One name is as good as a list of one, in every function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom import lance
from parquet_bloom.errors import RequestError

Call = Callable[[Path, Any], Any]


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A file with filters on both of its columns, ab and c."""
    path = tmp_path / "two.parquet"
    pq.write_table(pa.table({"ab": range(1000), "c": [f"c{i}" for i in range(1000)]}), path)
    parquet_bloom.add_filters(path, in_place=True, columns=["*"], sync=False)
    return path


def filters_of(report: Any) -> list[str]:
    return [one.column for file in report.files for one in file.filters]


def named_in(report: parquet_bloom.StatusReport) -> list[str]:
    """Columns, and one more: of those that are left out something has to differ from nothing."""
    return ["of a status", *(one.column for one in report.columns)]


def bytes_of_new(change: Call) -> Call:
    def call(path: Path, columns: Any) -> bytes:
        new = path.with_name("new.parquet")
        change(path, {"output": new, "columns": columns, "overwrite": True, "sync": False})
        return new.read_bytes()

    return call


CALLS: dict[str, Call] = {
    "add_filters": bytes_of_new(lambda path, how: parquet_bloom.add_filters(path, replace=True, fpp=0.1, **how)),
    "add_filters, exclude": bytes_of_new(
        lambda path, how: parquet_bloom.add_filters(path, replace=True, exclude=how.pop("columns"), **how)
    ),
    "remove_filters": bytes_of_new(lambda path, how: parquet_bloom.remove_filters(path, **how)),
    "remove_filters, exclude": bytes_of_new(
        lambda path, how: parquet_bloom.remove_filters(path, exclude=how.pop("columns"), **how)
    ),
    "inspect": lambda path, columns: filters_of(parquet_bloom.inspect(path, columns=columns)),
    "inspect, exclude": lambda path, columns: filters_of(parquet_bloom.inspect(path, exclude=columns)),
    "inspect, both": lambda path, columns: filters_of(
        parquet_bloom.inspect(path, columns=columns, assert_filters=columns)
    ),
    "verify": lambda path, columns: filters_of(parquet_bloom.verify(path, columns=columns)),
    "verify, exclude": lambda path, columns: filters_of(parquet_bloom.verify(path, exclude=columns)),
    "status": lambda path, columns: named_in(parquet_bloom.status(path, columns=columns)),
    "status, exclude": lambda path, columns: named_in(parquet_bloom.status(path, exclude=columns)),
    "read_table": lambda path, columns: parquet_bloom.read_table(path, "c = 'c7'", columns).to_pylist(),
    "read_batches": lambda path, columns: list(parquet_bloom.read_batches(path, "c = 'c7'", columns)),
    "Scan": lambda path, columns: parquet_bloom.Scan(path, "c = 'c7'").to_table(columns).to_pylist(),
}


def test_one_name_is_a_list_of_one_and_what_is_no_name_is_one_line(two: Path) -> None:
    for name, call in CALLS.items():
        assert call(two, "ab") == call(two, ["ab"]) == call(two, ("ab",)), name
        assert call(two, "ab") != call(two, ["ab", "c"]), f"{name}: the name is heeded"
        assert call(two, ["ab"]), name
        for wrong, shown in ((5, "5"), (["ab", 5], "5"), ([b"ab"], "b'ab'")):
            message = rf"^(columns|exclude) takes a name or a list of names, not {shown}$"
            with pytest.raises(RequestError, match=message):
                call(two, wrong)
                raise AssertionError(f"{name} takes {wrong}")


def test_what_filters_are_asserted_of(two: Path) -> None:
    parquet_bloom.remove_filters(two, in_place=True, columns="c", sync=False)
    assert [parquet_bloom.inspect(two, assert_filters=c).files[0].lacking for c in ("c", ["c"], "ab")] == [
        {"c": [0]}, {"c": [0]}, {},
    ]  # fmt: skip
    assert [parquet_bloom.status(two, assert_filters=c).asserted for c in ("c", ["c"], "ab")] == [["c"], ["c"], ["ab"]]
    for function in (parquet_bloom.inspect, parquet_bloom.status):
        with pytest.raises(RequestError, match="^assert_filters takes a name"):
            function(two, assert_filters=5)  # type: ignore[operator]


def test_the_columns_of_a_zone_index(two: Path, tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    built = [lance.build_index(two, c, tmp_path / str(i)).indexes for i, c in enumerate(("ab", ["ab"]))]
    assert [[one.column for one in indexes] for indexes in built] == [["ab"], ["ab"]]
    for none in ([], (), 5):
        with pytest.raises(RequestError, match="columns takes a name or a list of names"):
            lance.build_index(two, none, tmp_path / "none")  # type: ignore[arg-type]
