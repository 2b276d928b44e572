"""One path, a text or a Path, is as good as a list of one, and one column too, in every function."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import parquet_bloom
from parquet_bloom import spark as bloom
from parquet_bloom.errors import RequestError

pytestmark = pytest.mark.spark
WHERE = "c = 'c7'"
Call = Callable[[Any, Any, Any], Any]  # (spark, paths, columns)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file, which has filters on its columns ab and c."""
    folder = tmp_path_factory.mktemp("two") / "data"
    folder.mkdir()
    pq.write_table(pa.table({"ab": range(1000), "c": [f"c{i}" for i in range(1000)]}), folder / "one.parquet")
    parquet_bloom.add_filters(folder, in_place=True, columns=["*"], sync=False)
    return folder


def statuses(frame: Any) -> list[tuple[Any, ...]]:
    return [(row.status, row.filters, row.filter_bytes) for row in frame.collect()]


def in_new(function: Call) -> Call:
    """The function with a new folder for what it writes, as a Path."""

    def call(spark: Any, paths: Any, columns: Any) -> Any:
        with TemporaryDirectory() as folder:
            return function(spark, paths, {"columns": columns, "output": Path(folder) / "new"})

    return call


CALLS: dict[str, Call] = {
    "add_filters": in_new(lambda spark, paths, how: statuses(bloom.add_filters(spark, paths, replace=True, **how))),
    "add_filters, exclude": in_new(
        lambda spark, paths, how: statuses(
            bloom.add_filters(spark, paths, replace=True, columns="*", exclude=how.pop("columns"), **how)
        )
    ),
    "inspect_filters": lambda spark, paths, columns: bloom.inspect_filters(spark, paths, columns).collect(),
    "inspect_filters, exclude": lambda spark, paths, columns: bloom.inspect_filters(
        spark, paths, exclude=columns
    ).collect(),
    "verify_filters": lambda spark, paths, columns: bloom.verify_filters(spark, paths, columns).collect(),
    "verify_filters, exclude": lambda spark, paths, columns: bloom.verify_filters(
        spark, paths, exclude=columns
    ).collect(),
    "read": lambda spark, paths, columns: bloom.read(spark, paths, WHERE, columns).collect(),
}
WITHOUT_COLUMNS: dict[str, Call] = {
    "check": lambda spark, paths, _: bloom.check(spark, paths, WHERE).collect(),
    "prune": lambda spark, paths, _: bloom.prune(spark, paths, WHERE).collect(),
}


@pytest.mark.parametrize("name", CALLS)
def test_one_column_is_a_list_of_one(spark: Any, two: Path, name: str) -> None:
    call = CALLS[name]
    of_list = call(spark, [str(two)], ["ab"])
    assert of_list
    assert call(spark, [str(two)], "ab") == of_list
    assert call(spark, [str(two)], ["ab", "c"]) != of_list, "the name is heeded"


@pytest.mark.parametrize("name", [*CALLS, *WITHOUT_COLUMNS])
def test_one_path_is_a_list_of_one(spark: Any, two: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = (CALLS | WITHOUT_COLUMNS)[name]
    of_list = call(spark, [str(two)], ["ab"])
    assert of_list
    monkeypatch.chdir(two.parent)
    spelled = (str(two), two, (Path("data"),), Path("data") / "*.parquet")
    at = [*CALLS, *WITHOUT_COLUMNS].index(name)
    for paths in (spelled[at % 4], spelled[(at + 1) % 4]):  # any two of neighbours, each for several functions
        same = call(spark, paths, ["ab"])
        assert str(same) == str(of_list), paths


@pytest.mark.parametrize("name", [*CALLS, *WITHOUT_COLUMNS])
def test_what_names_nothing_is_one_line(two: Path, name: str) -> None:
    """Before the session is used."""
    call = (CALLS | WITHOUT_COLUMNS)[name]
    with pytest.raises(RequestError, match="^no file was named$"):
        WITHOUT_COLUMNS.get(name, bloom.inspect_filters)(None, [], None)
    for wrong in (5, [b"x"], [str(two), None]):
        with pytest.raises(RequestError, match="^paths takes names of files and folders, as texts or Paths, not "):
            (bloom.inspect_filters if name in CALLS else call)(None, wrong, None)  # type: ignore[arg-type]
    if name in CALLS:
        with pytest.raises(RequestError, match=r"^(columns|exclude) takes a name or a list of names, not 5$"):
            call(None, str(two), 5)


def test_a_path_is_a_file_even_if_its_name_reads_like_a_table(
    spark: Any, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(two, two.parent / "delta:data", dirs_exist_ok=True)
    monkeypatch.chdir(two.parent)
    [row] = bloom.inspect_filters(spark, Path("delta:data"), "ab").collect()
    assert row["path"] == str(two.parent / "delta:data" / "one.parquet")
    with pytest.raises(parquet_bloom.ParquetBloomError, match="is no Delta table"):
        bloom.inspect_filters(spark, "delta:data", "ab")


def test_a_table_is_one_text(spark: Any, two: Path, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake", reason="deltalake is not installed (extra `delta`)")
    deltalake.write_deltalake(str(tmp_path / "t"), pq.read_table(two / "one.parquet"))
    name = f"delta:{tmp_path / 't'}"
    [row] = bloom.add_filters(spark, name, columns="ab").collect()
    assert (row["status"], row["filters"]) == ("done", 1)
    assert [row["column"] for row in bloom.inspect_filters(spark, name).collect()] == ["ab"]
    assert [row["column"] for row in bloom.verify_filters(spark, name, "ab").collect()] == ["ab"]
    assert [row["skipped"] for row in bloom.check(spark, name, "ab = 5").collect()] == [False]
    assert [row["rows"] for row in bloom.prune(spark, name, "ab = 5").collect()] == [1000]
    assert [tuple(row) for row in bloom.read(spark, name, "ab = 5", "c").collect()] == [("c5",)]


def test_a_zone_index_of_one_path_and_column(spark: Any, two: Path, tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="pylance is not installed (extra `lance`)")
    made = [
        bloom.build_zone_index(spark, paths, columns, tmp_path / str(i)).collect()[0]
        for i, (paths, columns) in enumerate([(two, "ab"), ([str(two)], ["ab"])])
    ]
    assert made[0]["column"] == "ab"
    assert [row["path"] for row in made] == [str(tmp_path / str(i) / "ab" / "bloomfilter.lance") for i in (0, 1)]
    for none in ([], 5):
        with pytest.raises(RequestError, match="columns takes a name or a list of names"):
            bloom.build_zone_index(spark, two, none, tmp_path / "none")  # type: ignore[arg-type]
