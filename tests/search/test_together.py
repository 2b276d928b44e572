"""Several files at a time, local and far ones, have the results of each alone, or are left to be searched alone."""

from __future__ import annotations

import os
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file, corpus_files
from support.footers import edited_footer
from support.searched import (
    PREDICATES,
    Far,
    Here,
    checked,
    damaged,
    deciding,
    facts,
    keys,
    numbers_and_bytes,
    same,
    write,
    write_twenty,
)  # fmt: skip

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import FileMetaData, Statistics
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.search.log import FileResult
from parquet_bloom.search.options import Options
from parquet_bloom.search.search import Search
from parquet_bloom.source.source import resolved_files
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile


@pytest.fixture(params=["here", "far"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Here]:
    """Where files lie: on this machine, or on a file system that has none of its files."""
    made = Here(tmp_path / "data") if request.param == "here" else Far()
    yield made
    if made.far:
        made.filesystem.store.clear()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> dict[bool, list[str]]:
    """The files that are searched alone: local ones, and far ones once they are open."""
    files: dict[bool, list[str]] = {False: [], True: []}
    search, finish = Search.alone, Search.finish

    def searched(self: Search, file: DataFile) -> Any:
        files[False].append(str(file))
        return search(self, file)

    def finished(self: Search, source: OpenFile, file: DataFile) -> Any:
        files[True].append(str(file))
        return finish(self, source, file)

    monkeypatch.setattr(Search, "alone", searched)
    monkeypatch.setattr(Search, "finish", finished)
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_twenty(tmp_path_factory.mktemp("together"))


def costs(files: list[DataFile], predicate: Any, several: bool) -> list[Any]:
    """What each file cost, and whether later reads are of its version."""
    with deciding(several):
        found = list(Search(resolved_files(files), predicate, Options()))
    return [one if isinstance(one, tuple) else (one.requests, one.bytes_read, one.of_one_version) for one in found]


@pytest.mark.smoke
def test_results_are_those_of_each_file_alone(folder: Path, place: Here, loops: str) -> None:
    files = place.files(sorted(folder.glob("*.parquet")))
    ways: list[dict[str, Any]] = [{}, {"use_filters": False}, {"decide_true": True}, {"nan": "largest"}]
    for number, made in enumerate(PREDICATES):
        predicate = made(folder)
        for i, options in enumerate(ways[(number + (loops == "numba")) % 2 :: 2]):  # the other loops have the others
            first = 3 * ((number // 2 + i) % 2)  # the first file has another schema, for every second predicate
            same(files[first:], predicate, **options)
        if number < 8 and loops == "numba" and place.far:  # the others are errors
            assert costs(files, predicate, True) == costs(files, predicate, False), predicate


def test_verdicts_are_those_of_local_files(folder: Path, loops: str) -> None:
    far = Far()
    far.files(sorted(folder.glob("*.parquet")))
    for number in (0, 1, 3, 4):
        predicate = PREDICATES[number](folder)
        here, there = (
            parquet_bloom.check(*source, predicate, **options)
            for source, options in (((folder,), {}), (("/data",), {"filesystem": far.filesystem}))
        )
        assert [one[1:5] for one in here] == [one[1:5] for one in there], predicate
        assert here.columns == there.columns
    far.filesystem.store.clear()


def test_sound_files_are_not_searched_alone(
    folder: Path, place: Here, loops: str, alone: dict[bool, list[str]]
) -> None:
    files = place.files(sorted(folder.glob("*.parquet")))
    found, _ = facts(files, "id = 5", True)
    assert len(found) == 20
    assert alone[place.far] == [str(files[0])], "it gives the schema"


def write_by(path: Path, seed: int, change: Callable[[FileMetaData], None]) -> list[int]:
    """A file of one schema, whatever the seed, with another footer; returns its ids."""
    ids = np.random.default_rng(seed).integers(0, 10**6, 60)
    table = pa.table({"id": ids, "text": [f"{value:06}" for value in ids]})
    pq.write_table(table, path, row_group_size=20, use_dictionary=False, store_schema=False)
    with edited_footer(path) as metadata:
        change(metadata)
    found: list[int] = ids.tolist()
    return found


def statistics_in(metadata: FileMetaData, column: int) -> list[Statistics]:
    return [group.columns[column].meta_data.statistics for group in metadata.row_groups]


def old_arrow(metadata: FileMetaData) -> None:
    """Its bounds of texts may be those of a dictionary that has other values."""
    metadata.created_by = "parquet-cpp-arrow version 10.0.1"
    for one in statistics_in(metadata, 1):
        one.min_value = one.max_value = b"x"
        one.min = one.max = None


def without_orders(metadata: FileMetaData) -> None:
    """Bounds in the new fields mean nothing then."""
    metadata.column_orders = None
    for one in statistics_in(metadata, 0):
        one.min_value = one.max_value = (-1).to_bytes(8, "little", signed=True)
        one.min = one.max = None


def test_a_filter_answers_for_its_own_file(tmp_path: Path, loops: str) -> None:
    """All files have the same places, so a filter of another one would be read without a sign of it."""
    paths = [write(tmp_path / f"{i}.parquet", i, groups=2, names="") for i in range(8)]
    for i, path in enumerate(paths):
        value = keys(path)[7 * i]
        assert str(path) in [one for one, _ in parquet_bloom.prune(paths, f"id = {value}")]


def old_fields_alone(metadata: FileMetaData) -> None:
    for one in statistics_in(metadata, 0):
        one.min, one.max, one.min_value, one.max_value = one.min_value, one.max_value, None, None


def new_fields_alone(metadata: FileMetaData) -> None:
    for one in statistics_in(metadata, 0):
        one.min = one.max = None


def another_schema_text(metadata: FileMetaData) -> None:
    metadata.schema[0].name = "another root"


@pytest.mark.parametrize("change", [old_arrow, without_orders, old_fields_alone, another_schema_text])
def test_files_of_two_writers_in_turn(tmp_path: Path, loops: str, change: Callable[[FileMetaData], None]) -> None:
    """Each is believed as far as it can be, by the bounds that it has; files of equal columns are decided together."""
    paths, first = [tmp_path / f"{i}.parquet" for i in range(12)], change is old_arrow
    other = new_fields_alone if change is old_fields_alone else lambda _: None
    found = [write_by(path, i, change if i % 2 == first else other) for i, path in enumerate(paths)]
    for i in (0, 11) if loops == "numpy" else (1, 6):  # of each writer one
        for predicate, value in ((f"id = {found[i][7]}", found[i][7]), (f"text = '{found[i][31]:06}'", found[i][31])):
            same(paths, predicate)
            assert parquet_bloom.count(paths, predicate) == sum(ids.count(value) for ids in found), predicate
    if change is old_fields_alone:
        checks = parquet_bloom.check(paths, "id = 2000000")
        assert [(one.skipped, one.decided_by) for one in checks] == [(True, "bounds")] * 12 * 3


def test_files_of_others(place: Here, loops: str) -> None:
    """Every file of fixtures and corpus, among others of its kind and of other kinds."""
    files = []
    for at, name in enumerate(corpus_files()):
        files.append(place.put(f"{at:03}.parquet", corpus_file(name).read_bytes()))
    rng, asked = random.Random(5), 0
    for file in files[loops == "numba" :: 2]:  # the other loops have the others
        try:
            with OpenFile(file) as source:
                leaves = [leaf for leaf in source.outline().leaves if len(leaf.path) == 1 and '"' not in leaf.name]
        except ParquetBloomError:
            leaves = []
        others = rng.sample(files, 3)
        for leaf in rng.sample(leaves, min(len(leaves), 2)):
            asked += 1
            value = "'x'" if leaf.logical == "STRING" else "5"
            same([file, file, others[0], file, *others[1:], file], f'"{leaf.name}" = {value}')
    assert asked > 15, "the fixtures alone have so many columns"


def test_row_groups_without_rows(tmp_path: Path, loops: str) -> None:
    """Some files are decided by bounds and by that alone, others by filters."""
    paths = []
    for i in range(8):
        table = pa.table({"id": np.arange(40) * 1000 + i})
        with pq.ParquetWriter(tmp_path / f"{i}.plain", table.schema, use_dictionary=False) as writer:
            writer.write_table(table.slice(0, 0))
            writer.write_table(table if i % 3 else table.slice(0, 20))
        paths.append(tmp_path / f"{i}.parquet")
        parquet_bloom.add_filters(tmp_path / f"{i}.plain", paths[-1], columns=["id"], sync=False)
    for predicate in ("id = 30500", "NOT (id = 30500)", "id = 30500 OR id = 100500", "id > 25000 AND id IN (25500, 1)"):
        for decide_true in (False, True):
            same(paths, predicate, decide_true=decide_true)


def test_results_behind_a_file_that_is_not_joined_are_their_own(tmp_path: Path, loops: str) -> None:
    def wrong(metadata: FileMetaData) -> None:
        metadata.row_groups[1].columns[0].meta_data.data_page_offset = 1 << 40

    paths = [tmp_path / f"{i}.parquet" for i in range(8)]
    for i, path in enumerate(paths):
        write_by(path, i, wrong if i in (2, 5) else lambda metadata: None)
    for several in (True, False):
        with deciding(several):
            found = list(Search(resolved_files([DataFile(str(path)) for path in paths]), "id = 5", Options()))
        for path, one in zip(paths, found, strict=True):
            assert isinstance(one, FileResult)
            assert one.outline is not None
            with OpenFile(path) as source:
                assert list(numbers_and_bytes(one.outline)) == list(numbers_and_bytes(source.outline()))


@pytest.mark.parametrize("loops", ["numba"], indirect=True)
def test_ends_that_no_sound_file_has(folder: Path, tmp_path: Path, loops: str) -> None:
    paths = some(folder, tmp_path)
    data = paths[4].read_bytes()
    paths[5].write_bytes(data[-10:])
    lengths = [n.to_bytes(4, "little") + b"PAR1" for n in (0, len(data) - 9, len(data) + 9)]
    for end in (data[-8:-4] + b"PARE", data[-8:-4] + b"PAR2", *lengths):
        paths[4].write_bytes(data[:-8] + end)
        same(paths, "id = 5")


# --- what happens to files meanwhile ----------------------------------------------------------------


def some(folder: Path, tmp_path: Path) -> list[Path]:
    return [Path(shutil.copy(path, tmp_path)) for path in sorted(folder.glob("*.parquet"))[:9]]


def wrong_bytes(data: bytes) -> dict[str, bytes]:
    """What a file may have in the place of its bytes."""
    return {
        "empty": b"", "cut": data[:-100], "text": b"no Parquet file at all\n" * 50, "magic": data[:-4] + b"PARE",
        "length": data[:-8] + b"\xff\xff\xff\x7fPAR1",
    }  # fmt: skip


NO_FILES: dict[str, Callable[[Path], object]] = {  # what may lie in its place; a far one is gone
    "gone": lambda path: None, "fifo": os.mkfifo, "folder": Path.mkdir, "link": lambda path: path.symlink_to("nothing"),
    "no right": lambda path: path.symlink_to("/proc/1/mem"),
}  # fmt: skip


def test_what_is_no_sound_file_is_said_as_alone(
    folder: Path, place: Here, loops: str, alone: dict[bool, list[str]]
) -> None:
    """Beside a file of another schema, and between two of one, which are decided together."""
    paths = sorted(folder.glob("*.parquet"))[:9]
    for at in (4, 6):
        path, others = paths[at].name, wrong_bytes(paths[at].read_bytes())
        kinds = [*others, *(["gone"] if place.far else NO_FILES)]
        for what in kinds[(at == 4) == (loops == "numba") :: 2]:  # the other loops, or the other place, have the others
            files = place.files(paths)
            place.remove(files[at])
            if what in others:
                place.put(path, others[what])
            elif not place.far:
                NO_FILES[what](Path(files[at].path))
            before = len(os.listdir("/proc/self/fd"))
            same(files, "id = 5")
            assert len(os.listdir("/proc/self/fd")) == before, "no descriptor stays open"
            alone[place.far].clear()
            found, _ = facts(files, "id = 5", True)
            assert [one[0] for one in found] == [str(file) for file in files], what
            assert [len(one) == 3 for one in found] == [number == at for number in range(9)], "no other file is lost"
            assert alone[place.far] == [str(files[0]), *([] if place.far else [str(files[at])])], what
            if what == "folder":
                Path(files[at].path).rmdir()
            elif what != "gone":
                place.remove(files[at])


def test_one_changes_while_it_is_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that ends sooner than when it was opened is searched alone, which says what it is."""
    from parquet_bloom.storage.tails import Tails

    paths = some(folder, tmp_path)
    fill = Tails.fill

    def cut(self: Tails, file: Any) -> memoryview:
        if file.path == str(paths[3]):
            os.truncate(file.path, 50)
        return fill(self, file)

    monkeypatch.setattr(Tails, "fill", cut)
    found, _ = facts([DataFile(str(path)) for path in paths], "id = 5", True)
    assert [len(one) == 3 for one in found] == [at == 3 for at in range(9)]
    assert str(paths[3]) in found[3][2]


@pytest.mark.parametrize("loops", ["numpy"], indirect=True)
def test_one_is_cut_while_filters_are_read(
    folder: Path, tmp_path: Path, loops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of the others stay where they belong: no filter answers for another."""
    from parquet_bloom.storage import tails

    monkeypatch.setattr(tails, "TAIL_GUESS", 600)
    monkeypatch.setattr(tails, "_FIRST_GUESS", 600)
    predicate, read = "", tails.Tails.read
    for size in (4, 700):
        paths = some(folder, tmp_path)
        predicate = predicate or f"id IN (5, {keys(paths[5])[3]}, {keys(paths[7])[3]})"
        expected, _ = facts([DataFile(str(path)) for path in paths], predicate, False)

        def cut(
            self: tails.Tails, number: int, offset: int, length: int, path: Path = paths[4], n: int = size
        ) -> bytes:
            os.truncate(path, n)
            return read(self, number, offset, length)

        with monkeypatch.context() as patch:
            patch.setattr(tails.Tails, "read", cut)
            found, _ = facts([DataFile(str(path)) for path in paths], predicate, True)
        assert str(paths[4]) in found[4][2]
        assert found[:4] + found[5:] == expected[:4] + expected[5:]


def test_filters_outside_of_the_buffer(
    folder: Path, tmp_path: Path, loops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of larger files the filters lie before the bytes that were read with the footer."""
    from parquet_bloom.storage import tails

    monkeypatch.setattr(tails, "TAIL_GUESS", 600)
    monkeypatch.setattr(tails, "_FIRST_GUESS", 600)
    paths = sorted(folder.glob("*.parquet"))
    for number in (1, 3, 4, 6):
        same(paths, PREDICATES[number](folder))


def test_damaged_filters(folder: Path, place: Here, loops: str) -> None:
    """A wrong header, a filter without any bit: the same warnings, of local files in the same order."""
    paths = sorted(folder.glob("*.parquet"))[:9]
    files = place.files(paths)
    for at in (0, 1, -1) if loops == "numpy" else (20, -1, -2):
        for path in paths[2:7:2]:
            place.put(path.name, damaged(path, at))
        same(files, "id = 5")
        same(files, f"id IN (5, {keys(paths[4])[0]}) OR a = 'x'")


def test_a_source_that_holds_files_to_what_they_were(folder: Path, tmp_path: Path) -> None:
    paths = some(folder, tmp_path)
    source = parquet_bloom.Source([str(path) for path in paths])
    assert source.check("id = 5").failed == []
    again = source.check("id = 6")
    assert again.failed == []
    assert len(again) == len(parquet_bloom.check(paths, "id = 6"))
    os.utime(paths[5], (5, 5))
    assert [one.path for one in source.check("id = 5").failed] == [str(paths[5])]
    assert "refresh" in source.check("id = 5").failed[0].reason
    source.refresh()
    assert source.check("id = 5").failed == []


def test_footers_that_are_kept(folder: Path, place: Here, loops: str) -> None:
    files = place.files(sorted(folder.glob("*.parquet")))
    cache, names = parquet_bloom.FooterCache(), [file.path for file in files]
    there: dict[str, Any] = {"filesystem": place.arrow}
    for number in (0, 1, 4):
        predicate = PREDICATES[number](folder)
        plain = checked(names, predicate, False, **there)
        for several in (True, True, False):
            assert checked(names, predicate, several, cache=cache, **there) == plain
    assert len(cache) == len(files)


@pytest.mark.parametrize(
    ("most", "kept", "loops"), [(10**6, 2, "numpy"), (90, 1, "numba"), (40, 0, "numpy")], indirect=["loops"]
)
def test_files_that_were_decided_together_are_joined_once(tmp_path: Path, loops: str, most: int, kept: int) -> None:
    """Until one of them changes; the least used ones leave."""
    cache = parquet_bloom.FooterCache(max_row_groups=most)
    paths = [write(tmp_path / f"{i}.parquet", i) for i in range(6)]
    rng = random.Random(most)
    for turn in range(12):
        some = paths if turn < 4 else rng.sample(paths, 5)
        if turn in (2, 7):
            (changed := paths[rng.randrange(1, 6)]).unlink()
            write(changed, 100 + turn)
        for predicate in ("id = 5", "id > 400000", "id IN (5, 77) OR a = 'a5'"):
            assert checked(some, predicate, True, cache=cache) == checked(some, predicate, False)
    assert cache._joined_held == sum(one.joined.n_row_groups for one in cache._joined.values() if one.joined)
    assert cache._joined_held <= most // 4
    assert min(len(cache._joined), 2) == kept
    outlines = []
    for path in paths:
        with OpenFile(path) as source:
            outlines.append(source.outline())
    held = len(cache._joined)
    assert cache.joined(outlines)[1] == [*range(6)]
    assert len(cache._joined) == held, "nobody can ask for those again"


def test_partitions(place: Here, tmp_path: Path, loops: str) -> None:
    for day in range(3):
        for i in range(4):
            path = write(tmp_path / f"{day}-{i}.parquet", 10 * day + i)
            place.put(f"table/day={day}/{i}.parquet", path.read_bytes())
    table, there = f"{place.root}/table", {"filesystem": place.filesystem}
    for predicate in ("day = 1", "day = 1 AND id = 5", "day > 0 OR id = 5", "id = 5", "day = 7", "day >= 1 AND id > 0"):
        found = []
        for several in (True, False):
            with deciding(several):
                counted = parquet_bloom.count(table, predicate, **there)
                pruned = parquet_bloom.prune(table, predicate, **there).to_dict()
            found.append((counted, pruned, checked(table, predicate, several, **there)))
        assert found[0] == found[1], predicate


def test_a_delta_table(tmp_path: Path, loops: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    for i in range(8):
        table = pa.table({"id": np.random.default_rng(i).integers(0, 10**9, 60), "day": [i % 2] * 60})
        deltalake.write_deltalake(tmp_path, table, mode="append", partition_by=["day"])
    parquet_bloom.add_filters(f"delta:{tmp_path}", columns=["id"])
    for predicate in ("id = 5", "day = 1 AND id = 77", "id IN (5, 6) OR day IS NULL"):
        several, alone = (checked(f"delta:{tmp_path}", predicate, way) for way in (True, False))
        assert several == alone


def test_threads_and_forks(folder: Path) -> None:
    paths = sorted(folder.glob("*.parquet"))
    cache = parquet_bloom.FooterCache()
    expected = checked(paths, "id = 5", False)

    def ask(i: int) -> Any:
        return parquet_bloom.check(paths, "id = 5", **({"cache": cache} if i % 2 else {})).to_dict()

    with ThreadPoolExecutor(4) as pool:
        assert all(found == expected for found in pool.map(ask, range(24)))
    child = os.fork()
    if not child:
        try:
            os._exit(0 if ask(0) == expected == ask(1) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_few_descriptors_are_enough(folder: Path) -> None:
    paths = sorted(folder.glob("*.parquet"))
    expected = checked(paths, "id = 5", False)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 6, limits[1]))
    try:
        found = checked(paths, "id = 5", True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found == expected
