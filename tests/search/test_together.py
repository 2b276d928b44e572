"""Several local files at a time have the results of each one alone, or are left to be searched alone."""

from __future__ import annotations

import os
import random
import resource
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file, corpus_files
from support.footers import edited_footer
from support.repeats import by_turns
from support.searched import LOOPS, PREDICATES, checked, facts, keys, numbers_and_bytes, same, write, write_twenty

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import FileMetaData, Statistics
from parquet_bloom.errors import ParquetBloomError
from parquet_bloom.search import together
from parquet_bloom.search.options import Options
from parquet_bloom.search.results import FileResult
from parquet_bloom.search.search import Search
from parquet_bloom.source.source import resolved_files
from parquet_bloom.storage.open_file import OpenFile
from parquet_bloom.storage.paths import DataFile


class Alone:
    """Counts the files that are searched alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[str] = []
        search = Search.alone

        def counted(self_: Search, data_file: DataFile) -> Any:
            self.files.append(str(data_file))
            return search(self_, data_file)

        monkeypatch.setattr(Search, "alone", counted)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Alone:
    return Alone(monkeypatch)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_twenty(tmp_path_factory.mktemp("together"))


@pytest.mark.smoke
@pytest.mark.parametrize("number", range(len(PREDICATES)))
def test_results_are_those_of_each_file_alone(folder: Path, number: int, loops: str) -> None:
    paths = sorted(folder.glob("*.parquet"))
    ways: list[dict[str, Any]] = [{}, {"use_filters": False}, {"decide_true": True}, {"nan": "largest"}]
    for i, options in enumerate(ways[(number + (loops == "numba")) % 2 :: 2]):  # the other loops have the others
        first = 3 * ((number // 2 + i) % 2)  # the first file has another schema, for every second predicate
        same(paths[first:], PREDICATES[number](folder), **options)


def test_sound_files_are_not_searched_alone(folder: Path, loops: str, alone: Alone) -> None:
    paths = sorted(folder.glob("*.parquet"))
    found, _ = facts([DataFile(str(path)) for path in paths], "id = 5", True)
    assert len(found) == 20
    assert alone.files == [str(paths[0])], "it gives the schema"


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


@pytest.mark.parametrize("change", [old_arrow, without_orders])
@pytest.mark.parametrize("first", [0, 1])
def test_each_writer_is_believed_as_far_as_it_can_be(
    tmp_path: Path, loops: str, change: Callable[[FileMetaData], None], first: int
) -> None:
    """Files of one schema by two writers, of which one has bounds that are wrong, and known to be."""
    paths = [tmp_path / f"{i}.parquet" for i in range(12)]
    found = [write_by(path, i, change if i % 2 == first else lambda _: None) for i, path in enumerate(paths)]
    for i in (0, 11) if loops == "numpy" else (1, 6):  # of each writer one
        for predicate in (f"id = {found[i][7]}", f"text = '{found[i][31]:06}'"):
            same(paths, predicate)
            value = found[i][7] if predicate.startswith("id") else found[i][31]
            assert parquet_bloom.count(paths, predicate) == sum(ids.count(value) for ids in found), predicate


def test_a_filter_answers_for_its_own_file(tmp_path: Path, loops: str) -> None:
    """All files have the same places, so a filter of another one would be read without a sign of it."""
    paths = [write(tmp_path / f"{i}.parquet", i, groups=2, names="") for i in range(8)]
    for i, path in enumerate(paths):
        value = keys(path)[7 * i]
        assert str(path) in [one for one, _ in parquet_bloom.prune(paths, f"id = {value}")]


def test_files_of_two_schema_texts_in_turn(tmp_path: Path, loops: str) -> None:
    """Their columns are the same, so they are decided together; each has its own result."""

    def renamed(metadata: FileMetaData) -> None:
        metadata.schema[0].name = "another root"

    paths = [tmp_path / f"{i}.parquet" for i in range(9)]
    found = [write_by(path, i, renamed if i % 2 else lambda _: None) for i, path in enumerate(paths)]
    for i in (0, 3, 8):
        same(paths, f"id = {found[i][7]}")
        assert parquet_bloom.count(paths, f"id = {found[i][7]}") == sum(ids.count(found[i][7]) for ids in found)


def old_fields_alone(metadata: FileMetaData) -> None:
    for one in statistics_in(metadata, 0):
        one.min, one.max, one.min_value, one.max_value = one.min_value, one.max_value, None, None


def new_fields_alone(metadata: FileMetaData) -> None:
    for one in statistics_in(metadata, 0):
        one.min = one.max = None


def test_each_file_has_its_bounds_from_the_fields_that_it_has(tmp_path: Path, loops: str) -> None:
    paths = [tmp_path / f"{i}.parquet" for i in range(12)]
    found = [write_by(path, i, old_fields_alone if i % 3 == 1 else new_fields_alone) for i, path in enumerate(paths)]
    for i in (0, 1, 5, 10):
        same(paths, f"id = {found[i][7]}")
    checks = parquet_bloom.check(paths, "id = 2000000")
    assert all((one.skipped, one.decided_by) == (True, "bounds") for one in checks)
    assert len(checks) == 12 * 3


def test_files_of_others(loops: str, tmp_path: Path) -> None:
    """Every file of fixtures and corpus, among others of its kind and of other kinds."""
    paths = [corpus_file(name) for name in corpus_files()]
    rng = random.Random(5)
    asked = 0
    for path in paths[loops == "numba" :: 2]:  # the other loops have the others
        try:
            leaves = _leaves(path)
        except ParquetBloomError:
            leaves = []
        others = rng.sample(paths, 3)
        for name, value in rng.sample(leaves, min(len(leaves), 2)):
            asked += 1
            same([path, path, others[0], path, *others[1:], path], f'"{name}" = {value}')
    assert asked > 15, "the fixtures alone have so many columns"


def _leaves(path: Path) -> list[tuple[str, str]]:
    with OpenFile(path) as source:
        found = []
        for leaf in source.outline().leaves:
            if len(leaf.path) == 1 and '"' not in leaf.name:
                found.append((leaf.path[0], "'x'" if leaf.logical == "STRING" else "5"))
        return found


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
    for fewest in (2, 1 << 30):
        kept, together.FEWEST = together.FEWEST, fewest
        try:
            found = list(Search(resolved_files([DataFile(str(path)) for path in paths]), "id = 5", Options()))
        finally:
            together.FEWEST = kept
        for path, one in zip(paths, found, strict=True):
            assert isinstance(one, FileResult)
            assert one.outline is not None
            with OpenFile(path) as source:
                assert list(numbers_and_bytes(one.outline)) == list(numbers_and_bytes(source.outline()))


@pytest.mark.parametrize("loops", ["numba"], indirect=True)
@pytest.mark.parametrize("end", ["PARE", "PAR2", "no length", "all of it", "more than it has"])
def test_ends_that_no_sound_file_has(folder: Path, tmp_path: Path, loops: str, end: str) -> None:
    paths = some(folder, tmp_path)
    data = paths[4].read_bytes()
    n = {"no length": 0, "all of it": len(data) - 9, "more than it has": len(data) + 9}.get(end)
    length = data[-8:-4] if n is None else n.to_bytes(4, "little")
    paths[4].write_bytes(data[:-8] + length + (end.encode() if n is None else b"PAR1"))
    paths[5].write_bytes(data[-10:])
    same(paths, "id = 5")


# --- what happens to files meanwhile ----------------------------------------------------------------


def some(folder: Path, tmp_path: Path) -> list[Path]:
    return [Path(shutil.copy(path, tmp_path)) for path in sorted(folder.glob("*.parquet"))[:9]]


@pytest.mark.parametrize(
    ("what", "loops"),
    by_turns(["gone", "fifo", "folder", "empty", "cut", "text", "link", "no right", "magic", "length"], LOOPS),
    indirect=["loops"],
)
def test_what_is_no_sound_file_is_said_as_alone(
    folder: Path, tmp_path: Path, what: str, loops: str, alone: Alone
) -> None:
    paths = some(folder, tmp_path)
    path = paths[4]
    data = path.read_bytes()
    path.unlink()
    match what:
        case "fifo":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "cut":
            path.write_bytes(data[:-100])
        case "text":
            path.write_bytes(b"no Parquet file at all\n" * 50)
        case "link":
            path.symlink_to(tmp_path / "nothing")
        case "no right":
            path.symlink_to("/proc/1/mem")
        case "magic":
            path.write_bytes(data[:-4] + b"PARE")
        case "length":
            path.write_bytes(data[:-8] + b"\xff\xff\xff\x7fPAR1")
    before = os.listdir("/proc/self/fd")
    same(paths, "id = 5")
    assert len(os.listdir("/proc/self/fd")) == len(before), "no descriptor stays open"
    alone.files.clear()
    found, _ = facts([DataFile(str(one)) for one in paths], "id = 5", True)
    assert alone.files == [str(paths[0]), str(path)]
    assert found[4][1] is not None


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
@pytest.mark.parametrize("size", [4, 700])
def test_one_is_cut_while_filters_are_read(
    folder: Path, tmp_path: Path, loops: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bytes of the others stay where they belong: no filter answers for another."""
    from parquet_bloom.storage import tails

    monkeypatch.setattr(tails, "TAIL_GUESS", 600)
    monkeypatch.setattr(tails, "_FIRST_GUESS", 600)
    paths = some(folder, tmp_path)
    predicate = f"id IN (5, {keys(paths[5])[3]}, {keys(paths[7])[3]})"
    expected, _ = facts([DataFile(str(path)) for path in paths], predicate, False)
    read = tails.Tails.read

    def cut(self: tails.Tails, number: int, offset: int, length: int) -> bytes:
        os.truncate(paths[4], size)
        return read(self, number, offset, length)

    monkeypatch.setattr(tails.Tails, "read", cut)
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


@pytest.mark.parametrize(("at", "loops"), by_turns([0, 1, 20, -1], LOOPS), indirect=["loops"])
def test_damaged_filters(folder: Path, tmp_path: Path, at: int, loops: str) -> None:
    """A wrong header, a filter without any bit: the same warnings, in the same order."""
    from parquet_bloom.filters.locate import filter_ranges_of

    paths = some(folder, tmp_path)
    for path in paths[2:7:2]:
        with OpenFile(path) as source:
            ranges = filter_ranges_of(source.outline(), 0)
            offset, length = int(ranges.offset[0]), int(ranges.num_bytes[0])
        data = bytearray(path.read_bytes())
        if at < 0:
            data[offset + 10 : offset + 20 + length] = bytes(length + 10)
        data[offset + at % 20] ^= 0x55
        path.write_bytes(data)
    same(paths, "id = 5")
    same(paths, f"id IN (5, {keys(paths[4])[0]}) OR a = 'x'")
    for path in paths[2:7:2]:  # no bit is set
        data = bytearray(path.read_bytes())
        data[offset + 16 : offset + 16 + length] = bytes(length)
        path.write_bytes(data)
    same(paths, "id = 5")


def test_a_source_that_holds_files_to_what_they_were(folder: Path, tmp_path: Path, alone: Alone) -> None:
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


def test_footers_that_are_kept(folder: Path, loops: str) -> None:
    paths = sorted(folder.glob("*.parquet"))
    cache = parquet_bloom.FooterCache()
    for number in (0, 1, 4):
        predicate = PREDICATES[number](folder)
        plain = checked(paths, predicate, False)
        assert checked(paths, predicate, True, cache=cache) == plain
        assert checked(paths, predicate, True, cache=cache) == plain
        assert checked(paths, predicate, False, cache=cache) == plain
    assert len(cache) == len(paths)


@pytest.mark.parametrize(("most", "kept"), [(1_000_000, 2), (90, 1), (40, 0)])
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


def test_partitions(tmp_path: Path, loops: str, alone: Alone) -> None:
    for day in range(3):
        (tmp_path / f"day={day}").mkdir()
        for i in range(4):
            write(tmp_path / f"day={day}" / f"{i}.parquet", 10 * day + i)
    for predicate in ("day = 1", "day = 1 AND id = 5", "day > 0 OR id = 5", "id = 5"):
        several, one_by_one = ([*map(str, _scan(tmp_path, predicate, way))] for way in (True, False))
        assert several == one_by_one
        assert checked([tmp_path], predicate, True) == checked([tmp_path], predicate, False)


def _scan(folder: Path, predicate: str, several: bool) -> list[Any]:
    fewest = together.FEWEST
    together.FEWEST = 2 if several else 1 << 30
    try:
        return [parquet_bloom.count(folder, predicate), *parquet_bloom.prune(folder, predicate)]
    finally:
        together.FEWEST = fewest


def test_a_delta_table(tmp_path: Path, loops: str) -> None:
    deltalake = pytest.importorskip("deltalake")
    for i in range(8):
        table = pa.table({"id": np.random.default_rng(i).integers(0, 10**9, 60), "day": [i % 2] * 60})
        deltalake.write_deltalake(tmp_path, table, mode="append", partition_by=["day"])
    parquet_bloom.add_filters(f"delta:{tmp_path}", columns=["id"])
    for predicate in ("id = 5", "day = 1 AND id = 77", "id IN (5, 6) OR day IS NULL"):
        found = []
        for fewest in (2, 1 << 30):
            kept, together.FEWEST = together.FEWEST, fewest
            try:
                found.append(parquet_bloom.check(f"delta:{tmp_path}", predicate).to_dict())
            finally:
                together.FEWEST = kept
        assert found[0] == found[1]


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
