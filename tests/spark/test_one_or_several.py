"""Names of paths and columns, in every function: texts, Paths or lists, and what is none of these.

`test_unactivated` calls all functions with one text for each.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
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


OF_COLUMNS: dict[str, Call] = {
    "add_filters": lambda spark, paths, columns: bloom.add_filters(spark, paths, in_place=True, columns=columns),
    "add_filters, exclude": lambda spark, paths, columns: bloom.add_filters(
        spark, paths, in_place=True, columns="*", exclude=columns
    ),
    "inspect_filters": bloom.inspect_filters,
    "inspect_filters, exclude": lambda spark, paths, columns: bloom.inspect_filters(spark, paths, exclude=columns),
    "verify_filters": bloom.verify_filters,
    "verify_filters, exclude": lambda spark, paths, columns: bloom.verify_filters(spark, paths, exclude=columns),
    "read": lambda spark, paths, columns: bloom.read(spark, paths, WHERE, columns),
}
CALLS = OF_COLUMNS | {
    "check": lambda spark, paths, _: bloom.check(spark, paths, WHERE),
    "prune": lambda spark, paths, _: bloom.prune(spark, paths, WHERE),
}


def test_paths_in_every_spelling(spark: Any, two: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [wanted] = bloom.inspect_filters(spark, [str(two)], ["ab"]).collect()
    monkeypatch.chdir(two.parent)
    for paths in (str(two), two, (Path("data"),), Path("data") / "*.parquet"):
        assert bloom.inspect_filters(spark, paths, "ab").collect() == [wanted], paths
    assert len(bloom.inspect_filters(spark, two, ["ab", "c"]).collect()) == 2, "the name is heeded"


def test_what_names_nothing_is_one_line(two: Path) -> None:
    """Before the session is used."""
    pytest.importorskip("pyspark")  # `read` is the data source, whose classes are PySpark's
    for name, call in CALLS.items():
        wrong: list[tuple[Any, Any, str]] = [([], None, "^no file was named$")]
        said = "^paths takes names of files and folders, as texts or Paths, not "
        wrong += [(paths, None, said) for paths in (5, [b"x"], [str(two), None])]
        if name in OF_COLUMNS:
            wrong.append((str(two), 5, r"^(columns|exclude) takes a name or a list of names, not 5$"))
        for paths, columns, message in wrong:
            with pytest.raises(RequestError, match=message):
                pytest.fail(f"{name} gives {call(None, paths, columns)}")


def test_a_path_is_a_file_even_if_its_name_reads_like_a_table(
    spark: Any, two: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(two, two.parent / "delta:data", dirs_exist_ok=True)
    monkeypatch.chdir(two.parent)
    [row] = bloom.inspect_filters(spark, Path("delta:data"), "ab").collect()
    assert row["path"] == str(two.parent / "delta:data" / "one.parquet")
    with pytest.raises(parquet_bloom.ParquetBloomError, match="is no Delta table"):
        bloom.inspect_filters(spark, "delta:data", "ab")
