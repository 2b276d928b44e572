"""Filter ranges: all filters of a column at once are placed and asked exactly as filters.locate does one by one."""

from __future__ import annotations

import random
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from support.corpus import corpus_file, corpus_files, fixture_files
from support.named import named
from support.repeats import thirds
from support.samples import ROW_GROUPS, keys_table, write_keys

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import FileMetaData
from parquet_bloom.errors import (
    DamagedFileError,
    EncryptedFileError,
    FilterFormatError,
    NotParquetError,
    UnknownFilterError,
)
from parquet_bloom.filters import ask_kernel, asking
from parquet_bloom.filters.asking import ask
from parquet_bloom.filters.locate import RangesByChunk, filter_ranges_of
from parquet_bloom.filters.stored import probe
from parquet_bloom.format import compact, final
from parquet_bloom.format.forms import FORMATS
from parquet_bloom.format.schema import Leaf
from parquet_bloom.storage.open_file import OpenFile

LOCAL = pa.fs.LocalFileSystem()
WAYS = ("kernel", "ranges", "pyarrow")


def opened(path: Path, way: str) -> OpenFile:
    return OpenFile(path, filesystem=LOCAL if way == "pyarrow" else None)


@pytest.fixture
def calls() -> list[Any]:
    """Calls of the kernel."""
    return []


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, calls: list[Any]) -> Iterator[str]:
    """How filters that fit are asked: by the kernel, or by joined ranges of a local or another file."""
    kernel = ask_kernel.ask

    def counted(*arguments: Any) -> None:
        calls.append(arguments)
        kernel(*arguments)

    monkeypatch.setattr(ask_kernel, "ask", counted)
    if request.param == "ranges":  # what a process without numba does
        monkeypatch.setattr(asking, "_ask_by_loop", asking._ask_in_turns)
    yield request.param
    assert not calls or request.param == "kernel"


def test_of_a_filter_that_is_not_small_a_header_and_a_block_are_read(way: str, tmp_path: Path) -> None:
    plain, path = tmp_path / "plain.parquet", tmp_path / "keys.parquet"
    ids = np.random.default_rng(8).integers(-(1 << 62), 1 << 62, 6_000)
    pq.write_table(pa.table({"id": ids}), plain, row_group_size=3_000)
    parquet_bloom.add_filters(plain, path, columns=["id"], sync=False)
    with opened(path, way) as source:
        for row in range(0, len(ids), 749):
            answers = ask(source, 0, np.arange(2), (ids[row].tobytes(),))
            assert not answers.denied[row // 3_000], f"row {row} would be lost"
            assert (answers.bytes_read <= 17 + 32).all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_many_filters_are_asked_by_several_threads(
    threads: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where none can be started."""
    plain, path = tmp_path / "plain.parquet", tmp_path / "keys.parquet"
    ids = np.random.default_rng(8).permutation(1_000).astype(np.int64)
    pq.write_table(pa.table({"id": ids}), plain, row_group_size=7)
    parquet_bloom.add_filters(plain, path, columns=["id"], sync=False)
    monkeypatch.setattr(asking, "processors", lambda: threads)
    monkeypatch.setattr(asking, "_LEAST_A_THREAD", 10)
    groups, threads_seen = np.arange(143), []

    def seen(*arguments: Any) -> None:
        threads_seen.append(threading.current_thread())
        kernel(*arguments)

    kernel = ask_kernel.ask
    monkeypatch.setattr(ask_kernel, "ask", seen)
    with opened(path, "kernel") as source:
        for key in (0, 501, 999):
            answers = ask(source, 0, groups, (struct.pack("<q", key),))
            assert not answers.denied[int(np.flatnonzero(ids == key)[0]) // 7]
            assert answers.denied.sum() > 130
            assert len(answers.bytes_read) == 143
            assert (answers.bytes_read > 0).all()
    assert (len(threads_seen), len(set(threads_seen)) > 1) == (3 * threads, threads > 1)
    monkeypatch.setattr("parquet_bloom.process.check_room", no_room)
    with opened(path, "kernel") as source:
        assert ask(source, 0, groups, (struct.pack("<q", 5),)).denied.sum() > 130


def no_room(threads: int) -> None:
    raise MemoryError


# --- the plain way ----------------------------------------------------------------------------------


def fits_one_by_one(source: OpenFile, column: int) -> tuple[list[bool], list[bool]]:
    """(exists, fits) of each row group."""
    footer = source.footer()
    places = RangesByChunk(footer)
    exists, fits = [], []
    for group in range(footer.n_row_groups):
        place = places[group, column]
        num_bytes = final.num_bytes_for(place.length) if place is not None and place.length is not None else None
        exists.append(place is not None)
        fits.append(place is not None and num_bytes is not None and place.fits(num_bytes))
    return exists, fits


def ask_one_by_one(source: OpenFile, column: int, groups: list[int], probes: list[tuple[bytes, ...]]) -> Any:
    places = RangesByChunk(source.footer())
    denied, damaged, unknown = [], {}, {}
    for group, own in zip(groups, probes, strict=True):
        place = places[group, column]
        denied.append(False)
        if place is None:
            continue
        try:
            denied[-1] = not any(probe(source, place, plain) for plain in own)
        except UnknownFilterError as error:
            unknown[group] = str(error)
        except (FilterFormatError, DamagedFileError) as error:
            damaged[group] = str(error)
    return denied, damaged, unknown


def hold_together(source: OpenFile, rng: random.Random, probes: int = 12) -> int:
    """Compare both ways for every column with filters; returns how many filters fit."""
    outline, footer, n_fits = source.outline(), source.footer(), 0
    for leaf in footer.leaves:
        found = filter_ranges_of(outline, leaf.index)
        exists, fits = fits_one_by_one(source, leaf.index)
        assert found.exists.tolist() == exists
        assert found.fits.tolist() == fits
        n_fits += sum(fits)
        groups = [g for g in range(footer.n_row_groups) if exists[g]]
        if not groups:
            continue
        rng.shuffle(groups)
        for lists in probe_lists(leaf, len(groups), rng, probes):
            answers = ask(source, leaf.index, np.array(groups, np.int64), lists[0] if alike(lists) else lists)
            denied, damaged, unknown = ask_one_by_one(source, leaf.index, groups, lists)
            assert answers.denied.tolist() == denied
            assert (answers.damaged, answers.unknown) == (damaged, unknown)
    return n_fits


def alike(lists: list[tuple[bytes, ...]]) -> bool:
    return len(set(lists)) == 1


def probe_lists(leaf: Leaf, n: int, rng: random.Random, probes: int) -> Iterator[list[tuple[bytes, ...]]]:
    """One value for all filters, several for all, and some (or none) of its own for each."""
    width = leaf.width or 8

    def values(k: int) -> tuple[bytes, ...]:
        return tuple(rng.choice((rng.randbytes(width), struct.pack("<q", rng.randrange(99))[:width])) for _ in range(k))

    for _ in range(probes):
        yield [values(1)] * n
    for k in (2, 3, 70):
        yield [values(k)] * n
    yield [values(rng.choice((0, 1, 2, 5))) for _ in range(n)]


# --- sound files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", thirds([*fixture_files(), *corpus_files()]), ids=["quick", "more", "last"])
def test_every_fixture_and_file_of_the_corpus(names: list[str], way: str) -> None:
    for name in names:
        with named(name), opened(corpus_file(name), way) as source:
            try:
                source.footer()
            except (DamagedFileError, EncryptedFileError, NotParquetError):
                continue
            hold_together(source, random.Random(name), probes=4)


def test_filters_of_every_form_and_size(way: str, tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet", write_page_index=True)
    fits = Counter[str]()
    for spec, fpp in product([name for name, form in FORMATS.items() if form.placements], (0.5, 1e-9)):
        parquet_bloom.add_filters(path, in_place=True, replace=True, fpp=fpp, spec=spec, sync=False, columns=["*"])
        with named(spec), opened(path, way) as source:
            fits[spec] += hold_together(source, random.Random(fpp), probes=8)
    assert {spec for spec, n in fits.items() if n} == {"final"}, "only these have a length, and a header that it tells"


def test_every_stored_value_is_found_and_what_that_costs(way: str, calls: list[Any], tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    ids = keys_table()["id"].to_pylist()
    groups = np.arange(ROW_GROUPS)
    whole = {one.length for one in parquet_bloom.inspect(path).files[0].filters}
    with opened(path, way) as source:
        for row in range(0, len(ids), 29):
            answers = ask(source, 0, groups, (struct.pack("<q", ids[row]),))
            assert not answers.denied[row * ROW_GROUPS // len(ids)], f"row {row} would be lost"
            if way == "pyarrow":
                assert (answers.bytes_read <= 17 + 32 + 64).all(), "a header and a block each"
            else:
                assert set(answers.bytes_read.tolist()) == whole, "a small one of a local file by one call"
        assert bool(calls) == (way == "kernel")
        before = source.bytes_read
        answers = ask(source, 0, groups, tuple(struct.pack("<q", -i) for i in range(1, 40)))
        assert way == "pyarrow" or source.bytes_read - before <= answers.bytes_read.sum() + ROW_GROUPS * 64


def test_row_groups_in_any_order_and_twice(way: str, tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], sync=False)
    groups = [2, 0, 2, 1]
    ids = keys_table()["id"].to_pylist()
    absent = tuple(struct.pack("<q", -i) for i in range(1, 9))
    key = struct.pack("<q", ids[900])
    with opened(path, way) as source:
        for lists in ([(key,), (), absent[:1], absent], [(key,) * 5000, (), absent, absent * 600]):
            answers = ask(source, 0, np.array(groups), lists)
            assert answers.denied.tolist() == ask_one_by_one(source, 0, groups, lists)[0] == [False, True, True, True]


# --- damaged lengths, offsets and headers -----------------------------------------------------------


def rewritten(data: bytes, metadata: FileMetaData) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    footer = compact.encode(metadata)
    return data[: -8 - length] + footer + struct.pack("<I", len(footer)) + b"PAR1"


def footer_of(data: bytes) -> FileMetaData:
    return compact.decode(FileMetaData, data[-8 - int.from_bytes(data[-8:-4], "little") : -8])[0]


HUGE = [-1, 0, 3, 4, 2**31 - 1, 2**40, 2**62, 2**63 - 1, -(2**63)]


def damage(rng: random.Random, metadata: FileMetaData, body: bytearray) -> None:
    """One number or one header byte is another, near the right one or far from it."""
    chunks = [chunk for group in metadata.row_groups for chunk in group.columns]
    filters = [chunk.meta_data for chunk in chunks if chunk.meta_data.bloom_filter_offset]
    one, other = rng.choice(filters), rng.choice(filters)
    chunk = rng.choice([rng.choice(chunks), next(c for c in chunks if c.meta_data is one)])
    meta, start, length = chunk.meta_data, one.bloom_filter_offset, one.bloom_filter_length or 64
    near = start + rng.choice((-40, -1, 0, 1, 16, length - 1, length, length + 1))
    match rng.randrange(9):
        case 0:
            one.bloom_filter_length = rng.choice(
                (None, 0, -1, length - 1, length + 1, length + 32, 2 * length, 47, 46, 31, 2**31 - 1, -(2**31))
            )
        case 1:
            one.bloom_filter_offset = rng.choice((near, other.bloom_filter_offset, len(body), *HUGE))
        case 2:
            one.bloom_filter_offset, one.bloom_filter_length = other.bloom_filter_offset, other.bloom_filter_length
        case 3:
            meta.data_page_offset = rng.choice((near, *HUGE))
        case 4:
            meta.dictionary_page_offset = rng.choice((near, None, *HUGE))
        case 5:
            meta.total_compressed_size = rng.choice((near, near - meta.data_page_offset, *HUGE))
        case 6:
            chunk.offset_index_offset = rng.choice((near, None, *HUGE))
            chunk.column_index_offset = rng.choice((near, None, *HUGE))
        case 7:
            meta.num_values = rng.choice((0, -1, 2**62))
            if meta.num_values == 0:  # pyarrow gives chunks of row groups without rows the offset 0
                meta.data_page_offset = rng.choice((0, 3, 4, meta.data_page_offset))
                meta.total_compressed_size = rng.choice((2**40, meta.total_compressed_size))
        case 8:
            at = start + rng.randrange(16)
            if 0 <= at < len(body):
                body[at] = rng.choice((rng.randrange(256), body[at] ^ 1 << rng.randrange(8)))


DAMAGES = 20  # of each placement and way; all others in each


@pytest.mark.parametrize("placement", ["footer", "chunk-start"])
def test_damaged_places(placement: str, way: str, tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet", write_page_index=True)
    parquet_bloom.add_filters(
        path, in_place=True, columns=["id", "name", "tags"], fpp=0.1, placement=placement, sync=False
    )
    data, right = path.read_bytes(), 0
    with opened(path, way) as source:
        whole = hold_together(source, random.Random(0))
    for seed in range(DAMAGES):
        rng = random.Random(f"{placement} {way} {seed}")
        metadata, body = footer_of(data), bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            damage(rng, metadata, body)
        path.write_bytes(rewritten(bytes(body), metadata))
        with opened(path, way) as source:
            fits = hold_together(source, rng, probes=2)
        assert fits <= whole
        right += fits
    assert 0 < right < DAMAGES * whole, "damage to one filter leaves others right"


def test_a_file_that_becomes_shorter_is_an_error(way: str, tmp_path: Path) -> None:
    path = write_keys(tmp_path / "keys.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], fpp=1e-9, sync=False)
    with opened(path, way) as source:
        found = filter_ranges_of(source.outline(), 0)
        assert found.fits.all()
        for keep in (int(found.offset[0]) + 20, int(found.offset[0]) + 5, 4):
            with path.open("r+b") as file:
                file.truncate(keep)
            with pytest.raises(DamagedFileError, match=r"keys\.parquet: .* it had \d+"):
                ask(source, 0, np.array([0]), (b"12345678",))


def test_long_lists_are_asked_for_all_of_their_values(tmp_path: Path, way: str) -> None:
    """Thousands of probes a row group: a value that stands last is found as one that stands first."""
    path = write_keys(tmp_path / "a.parquet")
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], fpp=1e-7, sync=False)
    stored = keys_table()["id"].to_numpy().reshape(ROW_GROUPS, -1)
    absent = [int(i).to_bytes(8, "little") for i in np.random.default_rng(1).integers(2**62, 2**63 - 1, 20_000)]
    for present in ("none", "first", "last", "all"):
        asked: list[tuple[bytes, ...]] = []
        for group in range(ROW_GROUPS):
            key = int(stored[group, 7]).to_bytes(8, "little")
            few = absent[: (3000, 20_000, 2)[group]]
            parts = {"none": few, "first": [key, *few], "last": [*few, key], "all": [key] * len(few)}
            asked.append(tuple(parts[present]))
        with opened(path, way) as source:
            answers = ask(source, 0, np.arange(ROW_GROUPS), asked)
        assert answers.denied.tolist() == [present == "none"] * ROW_GROUPS, present
        assert not answers.damaged
