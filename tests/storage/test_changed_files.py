"""Files that are changed after they were looked at, and names that are no UTF-8."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from support.commands import command, error_lines

import parquet_bloom
from parquet_bloom import DamagedFileError, FileChangedError, StorageError
from parquet_bloom.storage.open_file import OpenFile

NAME = b"\xff\xfe.parquet"


def write(path: Path, first: int) -> Path:
    """1,000 rows, 100 a row group; every version has the same size."""
    table = pa.table({"a": pa.array(range(first, first + 1000), pa.int64()), "b": ["same"] * 1000})
    pq.write_table(table, path, row_group_size=100, use_dictionary=False, compression="none")
    return path


def in_place(path: Path, new: bytes) -> None:
    with path.open("r+b") as file:
        file.write(new)


def renamed_over(path: Path, new: bytes) -> None:
    other = path.with_name("other")
    other.write_bytes(new)
    other.replace(path)


def in_place_with_the_old_time(path: Path, new: bytes) -> None:
    before = path.stat()
    in_place(path, new)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES = [in_place, renamed_over, in_place_with_the_old_time]
ENGINES: dict[str, Callable[[ds.Dataset], int]] = {
    "pyarrow": lambda data: data.to_table().num_rows,
    "duckdb": lambda data: len(duckdb.sql("SELECT * FROM data").fetchall()),
    "polars": lambda data: pl.scan_pyarrow_dataset(data).collect().height,
}


@pytest.fixture
def changed(tmp_path: Path) -> tuple[Path, bytes]:
    """A file, and the bytes of another version of the same length in which the rows of a = 5 are elsewhere."""
    path = write(tmp_path / "data.parquet", 0)
    new = write(tmp_path / "new.parquet", -500).read_bytes()
    assert len(new) == path.stat().st_size
    return path, new


@pytest.mark.parametrize(("change", "engine"), list(zip(CHANGES, ENGINES, strict=True)))
def test_a_data_set_is_read_from_the_version_that_was_searched(
    changed: tuple[Path, bytes], change: Callable[[Path, bytes], None], engine: str
) -> None:
    path, new = changed
    data = parquet_bloom.dataset(path, "a = 5")
    assert ENGINES[engine](data) == 100, "the one row group is read as often as one likes"
    change(path, new)
    with pytest.raises(Exception, match=r"data.parquet: was changed by another program meanwhile") as caught:
        ENGINES[engine](data)
    assert engine == "duckdb" or caught.type is FileChangedError, "DuckDB wraps it"
    assert ENGINES[engine](parquet_bloom.dataset(path, "a = 5")) == 100, "asked again it is right"


def test_a_data_set_of_a_file_that_is_gone(changed: tuple[Path, bytes]) -> None:
    path, _ = changed
    data = parquet_bloom.dataset(path, "a = 5")
    path.unlink()
    with pytest.raises(StorageError, match="No such file"):
        data.to_table()


def test_a_data_set_can_be_sent_to_another_process(
    changed: tuple[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, new = changed
    monkeypatch.chdir(path.parent)
    data = parquet_bloom.dataset("data.parquet", "a = 5")
    assert data.files == [str(path)]
    monkeypatch.chdir("/")
    again = pickle.loads(pickle.dumps(data))
    assert again.to_table() == data.to_table()
    renamed_over(path, new)
    with pytest.raises(FileChangedError):
        again.to_table()


def test_a_data_set_that_another_one_is_made_of(changed: tuple[Path, bytes]) -> None:
    path, new = changed
    data = parquet_bloom.dataset(path, "a = 5")
    few = data.replace_schema(pa.schema([("b", pa.string())]))
    assert few.to_table().num_columns == 1
    assert len(list(data.get_fragments())) == 1
    batches = data.to_batches(batch_size=10)
    assert next(batches).num_rows == 10
    renamed_over(path, new)
    for read in (few.to_table, data.get_fragments, data.count_rows, lambda: data.head(1), lambda: list(batches)):
        with pytest.raises(FileChangedError):
            read()


def test_a_file_that_changes_while_its_rows_are_read(changed: tuple[Path, bytes]) -> None:
    path, new = changed
    for change in CHANGES:
        old = path.read_bytes()
        batches = parquet_bloom.read_batches(path, "a >= 0", batch_rows=10)
        next(batches)
        change(path, new)
        with pytest.raises(FileChangedError, match="while it was read"):
            list(batches)
        new = old


def test_what_makes_a_version(changed: tuple[Path, bytes]) -> None:
    """A time that is put back is noticed. So is a chmod or a new name: what else was changed then nobody can tell."""
    path, new = changed

    def stamp() -> object:
        with OpenFile(path) as source:
            return source.version_token

    for change in (
        lambda: in_place_with_the_old_time(path, new),
        lambda: path.chmod(0o600),
        lambda: os.link(path, path.with_name("link")),
    ):
        before = stamp()
        assert stamp() == before
        change()
        assert stamp() != before


@pytest.mark.skipif(os.name != "posix", reason="names are texts on this system")
def test_a_name_that_is_no_utf_8_is_a_name(tmp_path: Path) -> None:
    folder = os.path.join(os.fsencode(tmp_path), b"k=1")
    os.mkdir(folder)
    plain = write(tmp_path / "k=1" / r"\xff\xfe.parquet", 5000)  # as the other is shown
    path = os.fsdecode(os.path.join(folder, NAME))
    write(tmp_path / "plain", 0).rename(path)  # pyarrow writes no such name
    assert parquet_bloom.read_table(path, "a = 5").column("a").to_pylist() == [5]
    assert parquet_bloom.count(path, "a < 7") == 7
    assert parquet_bloom.dataset(path, "a = 5").to_table().num_rows == 100
    both = parquet_bloom.read_table(tmp_path, "a = 5 OR a = 5005")
    assert sorted(both.column("a").to_pylist()) == [5, 5005]
    assert both.column("k").to_pylist() == [1, 1], "the folder's name counts for both"
    assert parquet_bloom.read_table(str(plain), "a = 5005").num_rows == 1
    done = command("read", path, "--where", "a = 5", "--format", "ndjson")
    assert (done.returncode, done.stdout) == (0, '{"a": 5, "b": "same"}\n')
    for words in (["inspect"], ["verify"], ["add", "--in-place", "--column", "a"], ["check", path, "a = 5"], ["read"]):
        done = command(*words, *([] if path in words else [path]))
        assert done.returncode == 0, (words, done.stderr)
        assert "Traceback" not in done.stderr


def test_a_column_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "nameZZ": ["a", "b", "c"]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"nameZZ", b"name\xe7\xe7"))
    assert [file.columns for file in parquet_bloom.inspect(path).files] == [2]
    for read in (parquet_bloom.read_table, parquet_bloom.dataset, lambda *a: list(parquet_bloom.read_batches(*a))):
        for predicate in ("id = 2", None):
            with pytest.raises(DamagedFileError, match="names.parquet: cannot be read: a column's name is no UTF-8"):
                read(path, predicate)
    assert parquet_bloom.count(path) == 3, "no name is needed for that"
    done = command("read", path)
    assert (done.returncode, error_lines(done.stderr)) == (2, 1)
