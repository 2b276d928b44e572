"""`Source`: a listing of files, or one version of a table, for several questions; the functions as its methods."""

from __future__ import annotations

import inspect as python_inspect
import multiprocessing
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import fsspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from support import ducklake_tables
from support.iceberg_tables import SCHEMA, Warehouse, append
from support.repeats import by_turns

import parquet_bloom
import parquet_bloom.lance
from parquet_bloom import FileChangedError, RequestError, Source, TableFormatError
from parquet_bloom.source import source as looked_up
from parquet_bloom.storage.display import without_secret

ROWS = 400
KEY = "id = 42"


def rows(first: int, n: int = ROWS) -> pa.Table:
    ids = np.arange(first, first + n)
    return pa.table({"id": ids, "name": [f"n{i}" for i in ids]})


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """Three files with filters, in Hive's folders."""
    return Path(shutil.copytree(written, tmp_path / "events"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written") / "events"
    for day in range(3):
        (root / f"day={day}").mkdir(parents=True)
        path = root / f"day={day}" / "a.parquet"
        pq.write_table(rows(day * ROWS), path, row_group_size=100)
        parquet_bloom.add_filters(path, in_place=True, columns=["id", "name"], sync=False)
    return root


VERBS: dict[str, Callable[[Any], Any]] = {
    "check": lambda of: [(v.path, v.row_group, v.skipped, v.outcome) for v in of.check(KEY)],
    "prune": lambda of: list(of.prune(KEY)),
    "prune keys": lambda of: list(of.prune(column="id", values=[1, 2, 900])),
    "count": lambda of: of.count("id < 700"),
    "read_table": lambda of: of.read_table(KEY, ["id", "name"]).to_pylist(),
    "read_batches": lambda of: pa.Table.from_batches(of.read_batches("name = 'n7'")).to_pylist(),
    "dataset": lambda of: of.dataset(KEY).to_table().num_rows,
    "scan_polars": lambda of: of.scan_polars().filter(pl.col("id") == 42).collect().rows(),
    "inspect": lambda of: of.inspect(columns="id").to_dict(),
    "verify": lambda of: of.verify(sample=2).to_dict(),
    "status": lambda of: of.status(columns=["id", "name"]).to_dict(),
    "advise": lambda of: [column.column for column in of.advise().columns],
}


class Functions:
    """The same verbs by the functions."""

    def __init__(self, paths: Any, **options: Any) -> None:
        self._paths, self._options = paths, options

    def __getattr__(self, name: str) -> Any:
        function = getattr(parquet_bloom, name)
        return lambda *words, **more: function(self._paths, *words, **self._options, **more)


@pytest.mark.parametrize(("verb", "named"), by_turns(VERBS, ["folder", "glob", "list", "file"]))
def test_each_method_is_the_function_of_its_name(written: Path, verb: str, named: str) -> None:
    files = sorted(written.rglob("*.parquet"))
    paths: Any = {"folder": written, "glob": f"{written}/*/*.parquet", "list": files, "file": files[0]}[named]
    source, ask = Source(paths), VERBS[verb]
    assert ask(source) == ask(Functions(paths))
    assert ask(source) == ask(Functions(source)), "functions take it in the place of paths"


def test_every_function_over_paths_is_a_method() -> None:
    apart = {"engines", "set_limits", "write_report", "write_table"}
    functions = {name for name in parquet_bloom.__all__ if name[0].islower()} - apart
    assert functions <= set(dir(Source))
    for name in functions:
        own = set(python_inspect.signature(getattr(Source, name)).parameters)
        theirs = set(python_inspect.signature(getattr(parquet_bloom, name)).parameters)
        gone = {"source", "filesystem", "raw_files", "catalog_properties", "allow_roots", "filters", "index", "options"}
        assert own - {"self", "options"} == theirs - gone, name


def test_the_files_are_listed_once(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    locate = looked_up.locate
    monkeypatch.setattr(looked_up, "locate", lambda *words: looks.append(1) or locate(*words))
    source = Source(written)
    assert looks == [], "cheap to make"
    for _ in range(3):
        source.check(KEY)
        source.inspect()
        source.count(KEY)
    assert looks == [1]
    source.refresh()
    source.check(KEY)
    assert looks == [1, 1]


def test_a_new_file_is_seen_after_refresh(folder: Path) -> None:
    source = Source(folder)
    assert source.count() == 3 * ROWS
    (folder / "day=9").mkdir()
    pq.write_table(rows(9000), folder / "day=9" / "a.parquet")
    assert source.count() == 3 * ROWS
    assert source.read_table("id = 9001").num_rows == 0
    source.refresh()
    assert source.count() == 4 * ROWS
    assert source.read_table("id = 9001").num_rows == 1


def test_a_file_that_changed_since_is_an_error(folder: Path) -> None:
    """Never rows of two versions in answers of one source: not even where size and footer stay equal."""
    changed = folder / "day=0" / "a.parquet"
    good, said = changed.read_bytes(), "was changed by another program since this source opened it; refresh it"
    for verb in [verb for verb in VERBS if verb != "advise"]:
        changed.write_bytes(good)
        source = Source(changed)
        assert source.read_table("id = 5").num_rows == 1
        pq.write_table(rows(5000), changed, row_group_size=100)
        with pytest.raises(Exception, match=said) as e:
            VERBS[verb](source)
        assert isinstance(e.value, FileChangedError) or verb == "scan_polars", "Polars has the text alone"
        source.refresh()
        assert source.read_table("id = 5").num_rows == 0
        assert source.read_table("id = 5005").num_rows == 1


def test_one_of_several_files_that_changed_or_went_is_a_failure_of_that_file(folder: Path) -> None:
    source = Source(folder)
    assert source.inspect().failed == []
    (folder / "day=2" / "a.parquet").unlink()
    with pytest.raises(parquet_bloom.StorageError, match="No such file"):
        source.read_table("id = 900")
    changed = folder / "day=1" / "a.parquet"
    pq.write_table(rows(5000), changed)
    failed, _ = source.inspect().failed
    assert isinstance(failed.error, FileChangedError)
    assert failed.path == str(changed)
    with pytest.raises(FileChangedError):
        source.read_table(KEY)


def test_its_own_changes_are_seen(folder: Path) -> None:
    source = Source(folder)
    assert len(source.remove_filters(in_place=True, columns=["name"], sync=False).files) == 3
    assert {f.column for file in source.inspect().files for f in file.filters} == {"id"}
    source.add_filters(in_place=True, columns=["name"], sync=False)
    assert {f.column for file in source.inspect().files for f in file.filters} == {"id", "name"}


def test_a_delta_table_stays_at_its_version(tmp_path: Path) -> None:
    root = tmp_path / "t"
    deltalake.write_deltalake(root, rows(0))
    both = [Source(root), Source(f"delta:{root}")]
    for source in both:
        assert source.version is None
        assert source.count() == ROWS
        assert source.version == "0"
    deltalake.write_deltalake(root, rows(5000), mode="append")
    deltalake.DeltaTable(root).delete("id = 7")
    for source in both:
        assert source.count() == ROWS
        assert source.read_table("id = 7").num_rows == 1
        assert source.inspect().to_dict()["files"][0]["rows"] == ROWS
        assert source.check("id = 5001").version == "0"
        copy = pickle.loads(pickle.dumps(source))
        assert (copy.count(), copy.version) == (ROWS, "0")
        for one in (source, copy):
            one.refresh()
            assert one.count() == 2 * ROWS - 1
            assert one.version == "2"


def test_rows_that_a_catalog_holds_itself_are_of_the_same_version(tmp_path: Path) -> None:
    """`inspect` looks at stored files alone, `count` at all rows: two looks, one version."""
    lake = ducklake_tables.Lake(tmp_path, sqlite=False)
    lake.sql("CREATE TABLE t AS SELECT range AS id FROM range(100)")
    lake.sql("INSERT INTO t VALUES (1000), (1001)")
    lake.release()
    source = Source(f"ducklake:{lake.name()}")
    source.inspect()
    lake.sql("INSERT INTO t VALUES (2000)")
    lake.release()
    assert source.count() == 102
    assert source.read_table("id = 2000").num_rows == 0
    source.refresh()
    assert source.count() == 103


def test_an_iceberg_table_stays_at_its_snapshot(tmp_path: Path) -> None:
    with closing(Warehouse(tmp_path)) as warehouse:
        options = {"catalog_properties": warehouse.properties}
        warehouse.create(SCHEMA)
        empty = Source("iceberg:cat/ns.t", **options)
        assert empty.count() == 0
        assert empty.inspect().files == []
        assert pickle.loads(pickle.dumps(empty)).count() == 0
        append(warehouse.load(), [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        source = Source("iceberg:cat/ns.t", **options)
        assert source.count() == 2
        append(warehouse.load(), [{"id": 3, "name": "c"}])
        assert source.count() == 2
        assert len(source.inspect().files) == 1
        copy = pickle.loads(pickle.dumps(source))
        assert copy.count("id = 3") == 1, "a copy looks for the latest snapshot"
        with warehouse.load().update_schema() as update:
            update.rename_column("name", "called")  # makes no snapshot: that by its number has the older schema
        source = Source("iceberg:cat/ns.t", **options)
        assert source.count("called = 'a'") == 1
        assert len(source.inspect(columns="called").files) == 2
        assert pickle.loads(pickle.dumps(source)).count("called = 'a'") == 1


def test_what_changes_files_takes_no_source(written: Path, tmp_path: Path) -> None:
    """Its catalog and its file system would be lost, and another table of that name be changed."""
    for function in (parquet_bloom.add_filters, parquet_bloom.remove_filters):
        with pytest.raises(RequestError, match=rf"call its own {function.__name__}\(\.\.\.\)"):
            function(Source(written), in_place=True)
    with pytest.raises(RequestError, match="give build_index the paths"):
        parquet_bloom.lance.build_index(Source(written), "id", tmp_path / "index")


def test_a_cache_is_pickled_without_its_footers(written: Path) -> None:
    source = Source(written, cache=parquet_bloom.FooterCache(5000))
    source.check(KEY)
    assert len(source.cache) == 3, "shared by questions"
    assert source.read_table(KEY).num_rows == 1
    copy = pickle.loads(pickle.dumps(source))
    assert (len(copy.cache), copy.cache.max_row_groups) == (0, 5000)
    assert copy.count(KEY) == 1
    assert len(copy.cache) == 3


def test_a_forked_child_waits_for_no_lock_of_its_parent(written: Path) -> None:
    source = Source(written, cache=parquet_bloom.FooterCache())
    source.check(KEY)
    with source.cache._lock.own:  # as another thread would have it
        child = os.fork()
        if child == 0:
            os._exit(0 if source.cache._lock.own.acquire(timeout=5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_files_of_a_table_are_refused_as_by_the_functions(tmp_path: Path) -> None:
    root = tmp_path / "t"
    deltalake.write_deltalake(root, rows(0))
    [file] = root.glob("*.parquet")
    source = Source(file)
    assert source.inspect().notes == parquet_bloom.inspect(file).notes != []
    for _ in range(2):
        with pytest.raises(TableFormatError, match="lies in the Delta table"):
            source.check(KEY)
    assert Source(file, raw_files=True).count() == ROWS
    assert parquet_bloom.count(Source(file, raw_files=True), raw_files=True) == ROWS


def test_a_file_system_of_the_user(written: Path) -> None:
    for given in (pa.fs.LocalFileSystem(), fsspec.filesystem("file")):
        source = Source(str(written), filesystem=given)
        assert source.count() == 3 * ROWS
        assert source.read_table(KEY).num_rows == 1
        assert len(source.inspect().files) == 3
        assert pickle.loads(pickle.dumps(source)).count(KEY) == 1


def test_a_store_is_listed_once_and_a_changed_object_is_an_error(store: Any, bucket: str, folder: Path) -> None:
    for path in folder.rglob("*.parquet"):
        store.put(f"{bucket}/{path.relative_to(folder)}", path.read_bytes())
    source = Source(store.uri(bucket + "/"))
    assert source.count() == 3 * ROWS
    assert source.read_table(KEY).num_rows == 1
    pq.write_table(rows(5000), folder / "new.parquet")
    store.put(f"{bucket}/day=0/a.parquet", (folder / "new.parquet").read_bytes())
    with pytest.raises(FileChangedError):
        source.read_table(KEY)
    source.refresh()
    assert source.count(KEY) == 0


def test_what_a_source_has_is_not_given_again(written: Path) -> None:
    source = Source(written)
    for name, value in {"filesystem": pa.fs.LocalFileSystem(), "raw_files": True, "index": "i"}.items():
        with pytest.raises(RequestError, match=rf"^{name} is the Source's own; give it to Source\(\.\.\.\)$"):
            source.check(KEY, **{name: value})
    with pytest.raises(RequestError, match=r"give them to Source\(\.\.\.\)"):
        parquet_bloom.check(source, KEY, filesystem=pa.fs.LocalFileSystem())
    with pytest.raises(RequestError, match=r"a Source has raw_files=True itself"):
        parquet_bloom.count(source, KEY, raw_files=True)
    with pytest.raises(TypeError, match="misspelt"):
        source.check(KEY, misspelt=1)
    with pytest.raises(RequestError, match="a table is read alone"):
        Source(["delta:a", "delta:b"])
    with pytest.raises(parquet_bloom.StorageError, match="no such file"):
        Source("nowhere.parquet").check(KEY)


def test_its_repr_is_one_line_without_a_secret(written: Path, tmp_path: Path) -> None:
    source = Source(written)
    assert repr(source) == f"Source({written})"
    source.check(KEY)
    assert repr(source) == f"Source({written}, 3 files)"
    assert repr(Source("s3://KEY:SECRET@bucket/x")) == f"Source({without_secret('s3://KEY:SECRET@bucket/x')})"
    assert "SECRET" not in repr(Source("s3://KEY:SECRET@bucket/x"))
    assert repr(Source(["a", "b", "c", "d"])) == "Source(a, b and 2 more)"
    deltalake.write_deltalake(tmp_path / "t", rows(0))
    table = Source(f"delta:{tmp_path / 't'}")
    table.count()
    assert repr(table) == f"Source(delta:{tmp_path / 't'}, version 0, 1 file)"


def test_threads_share_one_look(written: Path) -> None:
    source, found, errors = Source(written), [], []
    barrier = threading.Barrier(8)

    def ask() -> None:
        barrier.wait()
        try:
            found.append(source.resolve())
            assert source.count(KEY) == 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len({id(one.snapshot) for one in found}) == 1, "all of them have the answer of one"


def _ask(source: Source) -> tuple[int, int]:
    return source.count(), os.getpid()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_other_processes_ask_it(written: Path) -> None:
    source = Source(written)
    assert source.count() == 3 * ROWS
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            count, process = pool.apply_async(_ask, (source,)).get(60)
        assert count == 3 * ROWS
        assert process != os.getpid()


def test_zone_indexes_are_asked(written: Path, tmp_path: Path) -> None:
    pytest.importorskip("lance")
    from parquet_bloom import lance

    lance.build_index(written, "id", tmp_path / "index")
    source = Source(written, index=tmp_path / "index")
    assert source.read_table(KEY).num_rows == 1
    assert source.count("id = 123456") == 0
