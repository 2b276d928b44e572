"""Files of other storages whose tails arrive together: requests, many keys, runs. Results: test_together.py."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.object_store import objects, options_of, reading_by, serving
from support.recording_store import Answer, Asked, RecordingStore, keyed, recording
from support.repeats import first_then_more
from support.samples import random_bytes
from support.searched import Far, Here, damaged, deciding, fact, keys, write, write_twenty

import parquet_bloom
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import Search
from parquet_bloom.source.source import resolved_files
from parquet_bloom.storage import remote
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.remote import in_runs


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are searched alone."""
    files: list[str] = []
    finish = Search.finish

    def counted(self: Search, source: OpenFile, data_file: DataFile) -> Any:
        files.append(str(data_file))
        return finish(self, source, data_file)

    monkeypatch.setattr(Search, "finish", counted)
    return files


@pytest.fixture
def far() -> Iterator[Far]:
    made = Far()
    yield made
    made.filesystem.store.clear()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_twenty(tmp_path_factory.mktemp("together"))


@pytest.fixture(params=["obstore", "pyarrow"])
def store(request: pytest.FixtureRequest) -> Iterator[RecordingStore]:
    with recording() as running, reading_by(request.param):
        yield running


def on(store: RecordingStore) -> Any:
    return objects(**keyed(store))


# --- many keys ------------------------------------------------------------------------------------


@cache
def asked_for(folder: Path) -> dict[str, tuple[str, Any]]:
    """A column and keys of it."""
    ids, texts = keys(folder / "07.parquet"), keys(folder / "13.parquet", "a")
    return {
        "ids": ("id", ids[:50]),
        "an array": ("id", pa.array([*ids[:3], *range(1000)])),
        "none of them": ("id", [5, 6, 2**70, 1.5]),
        "all": ("id", [*range(-300, 300), *(key for path in folder.glob("*") for key in keys(path)[:20])]),
        "texts": ("a", [*texts[:7], "no", ""]),
        "NULL": ("a", [None, texts[3]]),
        "nothing": ("a", []),
        "in some files only": ("c", ["c5", *keys(folder / "03.parquet", "c")[:2]]),
        "another type": ("a", [5]),
        "no such column": ("x", [5]),
    }


@pytest.mark.parametrize("is_far", [False, True])
def test_many_keys_have_the_hits_of_each_file_alone(folder: Path, far: Far, is_far: bool, loops: str) -> None:
    """Of local files too."""
    paths = sorted(folder.glob("*.parquet"))
    far.files(paths)
    ways: list[dict[str, Any]] = [{}, {"count_hits": True}, {"use_filters": False}]
    for column, values in asked_for(folder).values():
        for at, options in enumerate(ways, is_far + (loops == "numba")):
            files = paths[3 * (at % 2) :]  # the first file has another schema
            source = [f"/data/{path.name}" for path in files] if is_far else files
            same_hits(source, column, values, far.filesystem if is_far else None, **options)


def same_hits(source: Any, column: str, values: Any, filesystem: Any, **options: Any) -> None:
    """Files together have the hits of each one alone."""
    found = []
    for several in (True, False):
        with deciding(several):
            try:
                pruned = parquet_bloom.prune(source, column=column, values=values, filesystem=filesystem, **options)
                found.append(pruned.to_dict())
            except ParquetBloomError as error:
                found.append(str(error))
    assert found[0] == found[1], (column, values, options)


def test_many_keys_and_damaged_filters(folder: Path, far: Far, tmp_path: Path) -> None:
    import numba  # noqa: F401

    values, here = [5, 6, *keys(folder / "04.parquet")[:3]], Here(tmp_path)
    for at in (0, 1, 20, -2):
        paths = sorted(folder.glob("*.parquet"))[:9]
        for number, path in enumerate(paths):
            data = damaged(path, at) if number in (2, 4, 6) else path.read_bytes()
            far.put(path.name, data)
            here.put(path.name, data)
        for count in (False, True):  # each has its loop
            same_hits("/data", "id", values, far.filesystem, count_hits=count)
            same_hits(here.root, "id", values, None, count_hits=count)


@pytest.mark.parametrize("seed", first_then_more(range(8), 2))
def test_no_row_group_of_a_key_is_lost(far: Far, tmp_path: Path, seed: int, loops: str) -> None:
    """By brute force: filters read whole or a block of them, with bounds and without, few keys and many."""
    rng = np.random.default_rng(seed)
    column = "id" if seed % 2 else "word"
    stored: dict[tuple[str, int], list[Any]] = {}
    for number in range(5):
        rows = int(rng.integers(1, 400))
        groups = int(rng.integers(1, 6))
        ids = rng.integers(-(2**40), 2**40, rows * groups)
        table = pa.table({"id": ids, "word": [f"w{value}" for value in ids]})
        path, plain = tmp_path / f"{number}.parquet", tmp_path / "plain"
        pq.write_table(table, plain, row_group_size=rows, write_statistics=bool(rng.integers(2)))
        fpp = float(rng.choice([0.5, 0.01, 0.00001]))
        parquet_bloom.add_filters(plain, path, columns=[column], fpp=fpp, sync=False)
        values = table[column].to_pylist()
        for group in range(groups):
            stored[path.name, group] = values[group * rows : (group + 1) * rows]
    plain.unlink()
    paths = sorted(tmp_path.iterdir())
    far.files(paths)
    everything = [value for values in stored.values() for value in values]
    absent = [int(value) if column == "id" else f"w{value}" for value in rng.integers(-(2**40), 2**40, 500)]
    for n_stored, n_absent in ((1, 0), (3, 5), (0, 50), (40, 500), (len(everything), 0)):
        asked = {everything[at] for at in rng.integers(0, len(everything), n_stored).tolist()} | {*absent[:n_absent]}
        holding = {place for place, values in stored.items() if asked & {*values}}
        for count, is_far in ((False, False), (False, True), (True, False), (True, True)):
            source, there = ("/data", far.filesystem) if is_far else (paths, None)
            found = parquet_bloom.prune(source, column=column, values=[*asked], filesystem=there, count_hits=count)
            kept = {(Path(path).name, group) for path, groups in found for group in groups}
            assert holding <= kept
            for (path_of, group), n in found.hits.items():
                assert n >= len(asked & {*stored[Path(path_of).name, group]})


def test_keys_of_far_files_need_the_loop_that_check_has_compiled(
    folder: Path, far: Far, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: list[str]
) -> None:
    """One more loop is one more second, the first time in an installation. No sparse filter makes files go alone."""
    import numba  # noqa: F401

    from parquet_bloom.filters import ask_kernel

    far.files(sorted(folder.glob("*.parquet")))
    values = keys(folder / "07.parquet")[:50]
    call = {"column": "id", "values": values, "filesystem": far.filesystem}
    wanted = list(parquet_bloom.prune("/data", **call))
    asked: list[Any] = []
    whole = ask_kernel.ask_whole
    monkeypatch.setattr(ask_kernel, "ask_whole", lambda *arguments: asked.append(whole(*arguments)))
    assert list(parquet_bloom.prune("/data", **call)) == wanted
    assert not asked
    with monkeypatch.context() as patch:
        patch.setattr("parquet_bloom.filters.asking._FEW_PROBES", 0)
        assert list(parquet_bloom.prune("/data", **call)) == wanted
        assert asked
    asked.clear()
    alone.clear()
    for number in range(5):  # some blocks without a bit
        write(tmp_path / f"{number}.parquet", number, groups=20, rows=2)
        far.put(f"sparse/{number}.parquet", (tmp_path / f"{number}.parquet").read_bytes())
    parquet_bloom.prune("/data/sparse", **{**call, "values": [5]})
    assert asked
    assert len(alone) <= 1  # the first file


def test_many_keys_in_folders(far: Far, tmp_path: Path, loops: str) -> None:
    for day in range(2):
        for i in range(5):
            path = write(tmp_path / f"{day}-{i}.parquet", 10 * day + i)
            far.put(f"table/day={day}/{i}.parquet", path.read_bytes())
    some = keys(tmp_path / "1-3.parquet")[:3]
    for column, values in (("day", [1, 5]), ("day", ["x"]), ("id", some), ("nothing", [1])):
        same_hits("/data/table", column, values, far.filesystem)


# --- requests of an S3 API ------------------------------------------------------------------------


def larger(folder: Path, files: int) -> list[int]:
    """Files of 200 kB whose filters lie in the last 64 KiB, before them, or some here and some there; one id of each.

    The footer of every fourth is longer than 64 KiB.
    """
    some = []
    for number in range(files):
        rng = np.random.default_rng(number)
        table = pa.table({"id": rng.integers(0, 2**62, 4000), "pad": random_bytes(rng, 4000, 30)})
        if number % 4 == 3:
            table = table.replace_schema_metadata({"long": "x" * 70_000})
        path = folder / f"{number:02}.parquet"
        pq.write_table(table, path.with_suffix(".plain"), row_group_size=500, use_dictionary=False, compression="none")
        fpp = (0.01, 1e-9, 0.0001)[number % 3]
        parquet_bloom.add_filters(path.with_suffix(".plain"), path, columns=["id", "pad"], fpp=fpp, sync=False)
        path.with_suffix(".plain").unlink()
        some.append(int(table["id"][7].as_py()))
    return some


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Twelve larger files, and an id of each."""
    folder = tmp_path_factory.mktemp("larger")
    return folder, larger(folder, 12)


def small(folder: Path) -> dict[str, bytes]:
    return {f"data/small/{path.name}": path.read_bytes() for path in folder.glob("*.parquet")}


def requests(store: RecordingStore) -> Counter[Any]:
    return Counter((one.method, one.key, one.headers.get("range")) for one in store.of_objects())


def test_requests_are_those_of_each_file_alone(
    store: RecordingStore, large: tuple[Path, list[int]], folder: Path, alone: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Small objects, whose filters lie in their tails, and larger ones with filters and footers before these."""
    monkeypatch.setattr(remote, "_PATIENCE_S", 20)  # however busy the machine is, all tails of a run come
    there, ids = large
    store.objects = {f"data/larger/{path.name}": path.read_bytes() for path in there.glob("*.parquet")} | small(folder)
    pb = parquet_bloom
    calls: dict[str, Callable[..., Any]] = {
        "check": lambda source, key, **o: pb.check(source, f"id = {key}", **o).to_dict(),
        "values": lambda source, key, **o: pb.prune(source, column="id", values=[5, key], **o).to_dict(),
        "count": lambda source, key, **o: pb.count(source, f"id IN (5, {key})", **o),
        "read_table": lambda source, key, **o: pb.read_table(source, f"id = {key}", **o).to_pydict(),
    }
    for source, key in (("data/small", keys(folder / "07.parquet")[3]), ("data/larger", ids[5])):
        for name, call in calls.items():
            found, sent = [], []
            for several in (True, False):
                store.asked.clear()
                alone.clear()
                with deciding(several):
                    found.append(call(source, key, filesystem=on(store)))
                sent.append(requests(store))
                if several and source == "data/small":
                    assert len(alone) == 1, "all but the first"
            assert found[0] == found[1], name
            assert sent[0] == sent[1], name
            assert source == "data/larger" or max(sent[0].values()) == 1, "nothing is asked twice"


def test_one_file_is_not_there_when_its_turn_comes(store: RecordingStore, folder: Path) -> None:
    store.objects = small(folder)

    def gone(asked: Asked, answer: Answer) -> None:
        if asked.key.endswith(("05.parquet", "11.parquet")):
            answer.status, answer.body = 404, b"<Error><Code>NoSuchKey</Code></Error>"

    store.wrong = gone
    verdicts = parquet_bloom.check("data/small", "id = 5", filesystem=on(store))
    assert [one.path for one in verdicts.failed] == ["data/small/05.parquet", "data/small/11.parquet"]
    assert len({one.path for one in verdicts}) == 18
    with pytest.raises(ParquetBloomError, match=r"05\.parquet"):
        parquet_bloom.count("data/small", "id = 5", filesystem=on(store))


def test_a_source_that_holds_files_to_what_they_were(store: RecordingStore, folder: Path) -> None:
    store.objects = small(folder)
    source = parquet_bloom.Source("data/small", filesystem=on(store))
    assert source.check("id = 5").failed == []
    assert source.check("id = 6").failed == []
    store.objects["data/small/05.parquet"] = (folder / "06.parquet").read_bytes()
    assert [one.path for one in source.check("id = 5").failed] == ["data/small/05.parquet"]
    assert "refresh" in source.check("id = 5").failed[0].reason
    source.refresh()
    assert source.check("id = 5").failed == []


def test_progress_and_early_ends(far: Far, folder: Path) -> None:
    """Each file is reported, in order; whoever stops early gets what there was before."""
    files = far.files(sorted(folder.glob("*.parquet")))
    seen: list[Any] = []
    parquet_bloom.check("/data", "id = 5", filesystem=far.filesystem, progress=seen.append)
    assert [(one.files_done, one.path) for one in seen] == [(at, file.path) for at, file in enumerate(files, 1)]
    assert fact(next(iter(Search(resolved_files(files), "id = 5", Options()))))[0] == files[0].path


def test_a_table_whose_log_excludes_some_files() -> None:
    """Excluded ones, at the beginning, between and at the end, keep their places among the ones that are opened."""
    deltalake = pytest.importorskip("deltalake")
    with serving() as running, reading_by("obstore"):
        running.client.create_bucket(Bucket="lake")
        ids = np.random.default_rng(1).integers(0, 10**9, (8, 40))
        for number in range(8):
            table = pa.table(
                {"id": ids[number], "day": [number % 3] * 40, "far": [1000 * (number in (0, 3, 6, 7))] * 40}
            )
            deltalake.write_deltalake("s3://lake/t", table, mode="append", storage_options=options_of(running))
        name = "delta:" + running.uri("lake/t")
        parquet_bloom.add_filters(name, columns=["id"])
        one, other = ids[4][7], ids[5][1]
        for predicate in ("day = 1", f"day <> 1 AND id = {other}", f"id IN ({one}, {other})", "day > 7", "far < 500"):
            found = []
            for several in (True, False):
                with deciding(several):
                    found.append((parquet_bloom.check(name, predicate).to_dict(), parquet_bloom.count(name, predicate)))
            assert found[0] == found[1], predicate
            assert found[0][0]["verdicts"] or predicate == "day > 7"
            scan = parquet_bloom.Scan(name, predicate)
            assert [file.file for file in scan.files] == list(scan.search.files), "in the order of the table"


# --- runs -----------------------------------------------------------------------------------------


def test_runs_have_all_results_in_order_and_few_wait() -> None:
    begun: list[int] = []

    def work(n: int) -> int:
        begun.append(n)
        time.sleep(0.001 * (n % 3))
        if n == 700:
            raise ValueError("seven hundred")
        return n

    seen = 0
    for run in in_runs(work, range(1000), 50):
        assert 1 <= len(run) <= 50
        for got in run:
            if seen == 700:
                with pytest.raises(ValueError, match="seven hundred"):
                    got()
            else:
                assert got() == seen
            seen += 1
        assert len(begun) <= seen + 2 * 64
    assert seen == 1000


def test_a_run_does_not_wait_for_one_that_takes_long() -> None:
    release = threading.Event()

    def work(n: int) -> int:
        if n == 5:
            release.wait(20)
        return n

    runs = in_runs(work, range(10), 50)
    assert [got() for got in next(runs)] == [0, 1, 2, 3, 4]
    release.set()
    assert [got() for run in runs for got in run] == [5, 6, 7, 8, 9]


def test_runs_within_work_on_files_end() -> None:
    def outer(n: int) -> int:
        return sum(got() for run in in_runs(abs, range(10), 4) for got in run)

    assert [got() for run in in_runs(outer, range(200), 20) for got in run] == [45] * 200


def test_whatever_else_reads_open_files_reads_each(far: Far, folder: Path) -> None:
    """A callable that knows nothing of several files; it gets each file open."""
    far.files(sorted(folder.glob("*.parquet")))
    for source, filesystem in (("/data", far.filesystem), (folder, None)):
        scan = parquet_bloom.Scan(source, "id = 5", filesystem=filesystem)
        scan.visit(lambda opened, file: (opened.path, opened.size, file.size))
        seen = [file.visited for file in scan.files]
        assert len(seen) == 20
        assert all(path == str(file.file) for (path, _, _), file in zip(seen, scan.files, strict=True))
        assert all(size == searched > 0 for _, size, searched in seen)
