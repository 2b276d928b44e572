"""What is fuzzed: each target has seeds, a way to make them wrong, and a call that may only raise errors of our own.

Decoders take bytes and touch no disk. Calls are whole: a small wrong file on a disk in memory, and inspect, verify,
check, read, prune, add and remove over it. Every case is a number: target, number and seeds make the same input again.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import struct
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hostile_folders
import hostile_logs
import numpy as np
import predicates_wrong
import pyarrow as pa
import pyarrow.parquet as pq
from support import draft_2015_files
from support.corpus import FIXTURES, corpus_file, others_files
from support.delta_tables import vector
from support.samples import write_keys
from thrift_bytes import flipped, mutated

import parquet_bloom
from parquet_bloom.errors import FilterFormatError, FooterError, ParquetBloomError
from parquet_bloom.format import draft_2015, filters, forms, lance, provenance, roaring
from parquet_bloom.format.edits import FooterEdit, Moves, edit_footer, has_extension, move_offset_index
from parquet_bloom.format.footer import decode_footer, footer_length
from parquet_bloom.format.footer_filters import footer_filters
from parquet_bloom.format.outlines import walk_outline
from parquet_bloom.format.schema import choose_leaves, find_leaf, split_path
from parquet_bloom.predicates.arrow import from_expression, from_filters
from parquet_bloom.predicates.bind import Schema, bind
from parquet_bloom.predicates.text import parse
from parquet_bloom.search import together
from parquet_bloom.storage.open_file import decode_outline

_SMALL = 64 << 10  # bytes of a file or footer that is a seed
SPECS = ("final", "parquet-41", "parquet-41-early", "parquet-41-raw", "statistics")


@dataclass(frozen=True)
class Target:
    """make(number, folder) -> the input of a case; run(input, folder) raises ParquetBloomError or nothing."""

    make: Callable[[random.Random, Path], bytes]
    run: Callable[[bytes, Path], None]
    whole: bool = False


def _footer(data: bytes) -> tuple[bytes, int]:
    """The footer of a file, and where it starts."""
    start = len(data) - 8 - footer_length(data[-8:], len(data))
    return data[start:-8], start


@functools.lru_cache(1)
def files() -> list[bytes]:
    """Small Parquet files of all kinds: fixtures, those of other projects if named, ours with each form of filter."""
    found = [*sorted(FIXTURES.rglob("*.parquet")), *(corpus_file(name) for name in others_files())]
    read = [path.read_bytes() for path in found if path.stat().st_size <= _SMALL]
    return [*ours(), *(data for data in read if data[-4:] == b"PAR1")]


@functools.lru_cache(1)
def ours() -> list[bytes]:
    import tempfile

    made = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        for spec in SPECS:
            ids = range(60)
            table = {"id": pa.array(ids), "name": [f"user-{i}" for i in ids], "tags": [[i, i + 1] for i in ids]}
            table["user"] = [{"id": i, "mail": None} for i in ids]
            table["half_null"] = [None if i % 2 else float(i) for i in ids]
            pq.write_table(pa.table(table), path, row_group_size=30, write_page_index=True, use_dictionary=["name"])
            parquet_bloom.add_filters(path, in_place=True, columns=["id", "name", "tags"], spec=spec, sync=False)
            made.append(path.read_bytes())
        write_keys(path)
        parquet_bloom.add_filters(path, in_place=True, columns=["id", "user.mail"], sync=False, fpp=0.1)
        made.append(path.read_bytes())
    return made


@functools.lru_cache(1)
def footers() -> list[bytes]:
    return [_footer(data)[0] for data in files()]


@functools.lru_cache(1)
def filter_bytes() -> list[tuple[bytes, int]]:
    """Filters of the seeds with what lies behind them, and the length that the footer tells."""
    found = []
    for data in files():
        with contextlib.suppress(ParquetBloomError):
            footer = decode_footer(*_footer(data))
            for _, _, chunk in list(footer.chunks())[:12]:
                at, length = chunk.meta_data.bloom_filter_offset, chunk.meta_data.bloom_filter_length
                if at and 0 < at < footer.start:
                    found.append((data[at : at + min(length or 600, 4000)], length or 0))
    return found


@functools.lru_cache(1)
def page_indexes() -> list[bytes]:
    found = []
    for data in files():
        with contextlib.suppress(ParquetBloomError):
            footer = decode_footer(*_footer(data))
            for _, _, chunk in footer.chunks():
                at, length = chunk.offset_index_offset, chunk.offset_index_length
                if at and length:
                    found.append(data[at : at + length])
    return found[:200]


@functools.lru_cache(1)
def leaf_sets() -> list[Any]:
    found = []
    for data in footers():
        with contextlib.suppress(ParquetBloomError):
            found.append(decode_footer(data, 4).leaves)
    return found


@functools.lru_cache(1)
def guava_bytes() -> list[bytes]:
    return [struct.pack(">bBi", kind, 3, 4) + bytes(range(32)) for kind in (0, 1)]


def _wrong(data: bytes, rng: random.Random) -> bytes:
    return mutated(data, rng) if rng.random() < 0.7 else flipped(data, rng)


# --- decoders: bytes in ---------------------------------------------------------------------------


def _run_footer(data: bytes, _: Path) -> None:
    footer = decode_footer(data, 100_000)
    provenance.read_entries(footer)
    provenance.our_indexes(footer)
    footer_filters(footer)
    assert footer.structure_starts
    _ = footer.exact, footer.draft_filters, footer.foreign_filter_fields, footer.filter_fields
    footer.overlaps_pages(10, 90)


def _run_outline(data: bytes, _: Path) -> None:
    walked = walk_outline(data, 100_000)
    slow = decode_outline(data, 100_000)
    if walked is not None:
        assert np.array_equal(walked.rows, slow.rows), "the compiled walk and the bindings disagree"
        assert walked.leaves == slow.leaves


def random_edit(rng: random.Random) -> FooterEdit:
    """Moves, places and lengths of page indexes for the first row groups and columns, which may not be there."""
    moves = Moves()
    at = 4
    for _ in range(rng.randrange(4)):
        at += rng.choice((0, 50, 3000, 1 << 33))
        moves.add(at, rng.choice((-3, 20, 5000, 1 << 40)))
    keys = [(i, j) for i in range(3) for j in range(3)]
    spots = [(rng.choice((4, 70, 1 << 40)), rng.choice((None, 12, 2**31 - 1))) for _ in keys]
    places = {key: place if rng.random() < 0.7 else None for key, place in zip(keys, spots, strict=True)}
    chosen = rng.sample(keys, rng.randrange(4))
    lengths = {key: rng.randrange(1 << 20) for key in rng.sample(keys, rng.randrange(3))}
    pairs = [("k", "v")] if rng.random() < 0.5 else []
    return FooterEdit(moves, {key: places[key] for key in chosen}, lengths, append=pairs)


def _run_edit(data: bytes, _: Path) -> None:
    decode_footer(data, 100_000)
    has_extension(data)
    edit_footer(data, random_edit(random.Random(data)))


def _make_filter(rng: random.Random, _: Path) -> bytes:
    data, length = rng.choice(filter_bytes())
    length = rng.choice((length, length, 0, len(data), rng.randrange(5000)))
    return struct.pack("<I", length) + (_wrong(data, rng) if rng.random() < 0.95 else flipped(data[:40], rng))


def _run_filter(data: bytes, _: Path) -> None:
    length = int.from_bytes(data[:4], "little")
    bloom = filters.decode_filter(data[4:], length or None)
    bloom.might_contain(b"12345678")
    bloom.might_contain_array(pa.array([1, None, 2**40]))


def _make_java(rng: random.Random, _: Path) -> bytes:
    seeds = [b"\x00\x03\x00\x00\x00\x04" + bytes(32), b"\x01\x01\x00\x00\x00\x01" + b"\xff" * 8]
    return flipped(rng.choice(seeds + guava_bytes()), rng)


def _run_java(data: bytes, _: Path) -> None:
    for read in (lambda: draft_2015.decode_guava(data), lambda: draft_2015.decode_struct(data)):
        try:
            bloom = read()
            if isinstance(bloom, draft_2015.KProbeFilter):
                bloom.might_contain(b"12345678")
        except ParquetBloomError:
            continue


def _run_struct(data: bytes, _: Path) -> None:
    draft_2015.decode_struct(data)


def _make_struct(rng: random.Random, folder: Path) -> bytes:
    """The draft's list of longs, or Java's bytes of them, as a later form had it."""
    longs = [rng.getrandbits(64) for _ in range(rng.choice((1, 4, 8)))]
    k, strategy = rng.choice((1, 3, 7, rng.randrange(2**15))), rng.randrange(2)
    if rng.random() < 0.5:
        struct_ = draft_2015_files.struct(longs, k, strategy)
    else:
        java = draft_2015.java_longs(np.array(longs, np.uint64))
        struct_ = draft_2015_files.binary_struct(java, 64 * len(longs), k, strategy)
    return _wrong(struct_, rng)


def _make_nulls(rng: random.Random, _: Path) -> bytes:
    writer = roaring.Writer()
    rows = np.unique(np.array([rng.randrange(1 << 18) for _ in range(rng.choice((3, 50)))], np.int64))
    writer.add(rows)
    runs = struct.pack("<IBHHHHH", 12347, 1, 0, 9, 1, 5, 9)
    data = lance.encode_nulls([(1, writer.finish()), (7, runs)])
    return flipped(data, rng)


def _run_nulls(data: bytes, _: Path) -> None:
    for ranges in lance.decode_nulls(data).values():
        roaring.count_within(ranges, np.array([0, 5]), np.array([10, 2**31]))
        roaring.contains(ranges, np.array([0, 5, 2**32]))
        assert len(ranges) <= len(data) * 8, "ranges, not members"


def _make_deleted(rng: random.Random, _: Path) -> bytes:
    spread = rng.choice((18, 34))
    return flipped(vector([rng.randrange(1 << spread) for _ in range(rng.choice((0, 3, 50)))])[4:], rng)


def _run_deleted(data: bytes, _: Path) -> None:
    ranges = roaring.decode_64(data)
    assert len(ranges) <= len(data) * 8, "ranges, not members"
    assert np.all(np.diff(ranges.reshape(-1)) > 0), "in order and apart"


def _make_lance_end(rng: random.Random, _: Path) -> bytes:
    table = struct.pack("<QQQQQQ", 0, 10, 10, 20, 30, 32)
    tail = struct.pack("<QQQIIHH4s", 0, 0, 62, 3, 5, 2, 1, b"LANC")
    return flipped(bytes(30) + lance.placeholder() + table + tail, rng)


def _run_lance_end(data: bytes, _: Path) -> None:
    def read(at: int, length: int) -> bytes:
        assert at >= 0, "before the file"
        assert at + length <= len(data), "behind the file"
        return data[at : at + length]

    offset = lance.checksum_offset(read, len(data))
    if offset is not None:
        lance.checksum(read, len(data), offset)


def _make_words(rng: random.Random, _: Path) -> bytes:
    seeds = ["user.id", '"a.b".c', "tags.list.element", 'x."q""".y', "*", '"*"', "u?er.[a-z]*"]
    pairs = [b"parquet.enable.dictionary=true", b"parquet.bloom.filter.max.bytes=1048576", b"a=b=c", b"hive.x"]
    said = flipped(rng.choice(seeds).encode(), rng, 1), flipped(rng.choice(pairs), rng)
    return json.dumps([one.decode("utf-8", "replace") for one in said]).encode()


def _run_words(data: bytes, _: Path) -> None:
    name, pair = json.loads(data)
    leaves = leaf_sets()[len(data) % len(leaf_sets())]
    for call in (
        lambda: split_path(name), lambda: find_leaf(leaves, name), lambda: choose_leaves(leaves, [name]),
        lambda: forms.sizes_from(forms.parse_properties([pair])),
    ):  # fmt: skip
        with contextlib.suppress(ParquetBloomError):
            call()


def _make_parameters(rng: random.Random, _: Path) -> bytes:
    items, probability = rng.choice([("8192", "0.00057"), (str(2**62), "1e-300")])
    return flipped(json.dumps({lance.ITEMS: items, lance.PROBABILITY: probability}).encode(), rng)


def _run_parameters(data: bytes, _: Path) -> None:
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(said, dict):
        assert 32 <= lance.decode_parameters(said).num_bytes <= 1 << 27


# --- predicates -----------------------------------------------------------------------------------


def _make_text(rng: random.Random, _: Path) -> bytes:
    return predicates_wrong.text(rng.choice(predicates_wrong.TEXTS).encode(), rng)


def _bound(tree: Any, at: int) -> None:
    with contextlib.suppress(ParquetBloomError):
        bind(tree, Schema(leaf_sets()[at % len(leaf_sets())]))


def _run_text(data: bytes, _: Path) -> None:
    tree = parse(data.decode("utf-8", "surrogatepass"))
    str(tree)
    _bound(tree, len(data))


def _make_number(rng: random.Random, _: Path) -> bytes:
    return str(rng.getrandbits(48)).encode()


def _run_filters(data: bytes, _: Path) -> None:
    _bound(from_filters(predicates_wrong.filters(random.Random(int(data)))), int(data))


def _run_expression(data: bytes, _: Path) -> None:
    tree = from_expression(predicates_wrong.expression(random.Random(int(data))))
    str(tree)
    _bound(tree, int(data))


# --- whole calls ----------------------------------------------------------------------------------


def _make_file(rng: random.Random, _: Path) -> bytes:
    """A file with its footer, a page header, a filter, or a page index made wrong; or any bytes."""
    data = rng.choice(ours() if rng.random() < 0.5 else files())
    footer, start = _footer(data)
    what = rng.random()
    if what < 0.5:
        footer = _wrong(footer, rng)
        return data[:start] + footer + struct.pack("<I", len(footer)) + b"PAR1"
    places = _places(data)
    if what < 0.9 and places:
        at = rng.choice(places)
        wrong = _wrong(data[at : at + 60], rng)[:60]
        return data[:at] + wrong + data[at + (len(wrong) if rng.random() < 0.8 else 60) :]
    return flipped(data, rng)


@functools.lru_cache(256)
def _places(data: bytes) -> tuple[int, ...]:
    """Where page headers, filters and page indexes begin."""
    found = []
    with contextlib.suppress(ParquetBloomError):
        for _, _, chunk in decode_footer(*_footer(data)).chunks():
            meta = chunk.meta_data
            pages = (meta.data_page_offset, meta.dictionary_page_offset)
            named = (*pages, meta.bloom_filter_offset, chunk.offset_index_offset)
            found += [at for at in named if at and 0 < at < len(data)]
    return tuple(found)


_CHECKED = ("id = 5", "name = 'user-5' AND id IN (1, 2, 3)", "tags.list.element IS NULL OR id > 5")


def _run_file(data: bytes, folder: Path) -> None:
    """Some of the calls, chosen by the bytes, over one file."""
    path, out = folder / "x.parquet", folder / "out.parquet"
    path.write_bytes(data)
    rng = random.Random(data[-200:])
    column = rng.choice(("id", "name", "int64", "trace_id", "*"))
    spec = rng.choice(SPECS)
    add = {"overwrite": True, "sync": False, "threads": 1}
    calls: list[Callable[[], object]] = [
        lambda: parquet_bloom.inspect(path),
        lambda: parquet_bloom.check(path, rng.choice(_CHECKED)),
        lambda: parquet_bloom.verify(path),
        lambda: parquet_bloom.count(path, "id > 5 AND id < 50"),
        lambda: parquet_bloom.read_table(path, "id = 5 OR half_null IS NULL"),
        lambda: list(parquet_bloom.read_batches(path, "name = 'user-5'", columns=["id"])),
        lambda: parquet_bloom.prune(path, column="id", values=[1, 2, 3]),
        lambda: parquet_bloom.add_filters(path, out, columns=[column], spec=spec, **add),
        lambda: parquet_bloom.add_filters(path, out, columns=["id"], replace=True, **add),
        lambda: parquet_bloom.remove_filters(path, out, overwrite=True, sync=False),
    ]
    for call in rng.sample(calls, 2):
        with contextlib.suppress(ParquetBloomError):
            call()
    left = [name for name in os.listdir(folder) if name.endswith(".parquet-bloom")]
    assert not left, f"left behind: {left}"


_ASKED = ("id = 5", "name = 'user-5' AND id IN (1, 2, 3)", "id > 5 AND id < 50 OR name = 'x'")
_ASKED += ("NOT (id = 7) OR half_null IS NULL", "trace_id = 'x' OR int64 = 5")


def _run_together(data: bytes, folder: Path) -> None:
    """Verdicts on a file several times among others, which are decided together, and on each file alone."""
    import numba  # noqa: F401  (else it may be loaded between the two, and a filter that admits is read to its end)

    rng = random.Random(data[-200:])
    sound = rng.choice(ours())
    paths = []
    for i, one in enumerate([sound, data, data, sound, data, rng.choice(ours()), data]):
        paths.append(folder / f"{i}.parquet")
        paths[-1].write_bytes(one)
    if rng.random() < 0.3:
        paths = paths[1:]
    predicate, fewest, found = rng.choice(_ASKED), together.FEWEST, []
    for few in (2, 1 << 30):
        together.FEWEST = few
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    answer: Any = repr(parquet_bloom.check(paths, predicate).to_dict())
                except ParquetBloomError as error:
                    answer = f"{type(error)} {error}"
                found.append((answer, [str(one.message) for one in said]))
        finally:
            together.FEWEST = fewest
    assert found[0] == found[1], "verdicts of files together are not those of each alone"


@functools.lru_cache(1)
def _index(folder: Path) -> bytes:
    from parquet_bloom.lance import build_index

    (folder / "data").mkdir(exist_ok=True)
    table = pa.table({"id": pa.array([None if i % 7 == 3 else i for i in range(40)])})
    pq.write_table(table, folder / "data/0.parquet", write_page_index=True)
    more = {"items": 10, "probability": 0.1, "overwrite": True, "sync": False}
    built = build_index(folder / "data", ["id"], folder / "index", **more)
    return Path(built.indexes[0].path).read_bytes()


def _make_index(rng: random.Random, folder: Path) -> bytes:
    """An index with bytes changed and no checksum, or with other words and one that fits."""
    data = _index(folder)
    if rng.random() < 0.6:
        return flipped(data.replace(lance.MARK, bytes(len(lance.MARK))), rng)
    at = data.index(rng.choice((b'[{"fragment', b'{"name"', b"bloomfilter_item", b"bloomfilter_probability")))
    words = flipped(data[at : at + 80], rng).ljust(80, b" ")[:80]
    return _summed(data[:at] + words + data[at + 80 :])


def _summed(data: bytes) -> bytes:
    def read(at: int, length: int) -> bytes:
        return data[at : at + length]

    offset = lance.checksum_offset(read, len(data))
    if offset is None:
        return data
    return data[:offset] + lance.checksum(read, len(data), offset) + data[offset + 8 :]


def _run_index(data: bytes, folder: Path) -> None:
    from parquet_bloom import lance as zones

    _index(folder)
    (folder / "wrong/id").mkdir(parents=True, exist_ok=True)
    path = folder / "wrong/id/bloomfilter.lance"
    path.write_bytes(data)
    calls: list[Callable[[], object]] = [
        lambda: zones.inspect_index(path),
        lambda: zones.query_index(path, "id = 5 OR id IS NULL", column="id", type="int64"),
        lambda: zones.query_index(path, "id IN (5, 7)", check=False),
        lambda: zones.verify_index(path, folder / "data"),
        lambda: parquet_bloom.read_table(folder / "data", "id = 5", index=path),
    ]
    for call in random.Random(data[-100:]).sample(calls, 2):
        with contextlib.suppress(ParquetBloomError):
            call()


def _of_seeds(seeds: Callable[[], list[bytes]]) -> Callable[[random.Random, Path], bytes]:
    return lambda rng, _: _wrong(rng.choice(seeds()), rng)


def _run_offsets(data: bytes, _: Path) -> None:
    moves = Moves()
    moves.add(100, 64)
    move_offset_index(data, moves)


DECODERS = {
    "footer": Target(_of_seeds(footers), _run_footer),
    "outline": Target(_of_seeds(footers), _run_outline),
    "edit": Target(_of_seeds(footers), _run_edit),
    "offset_index": Target(_of_seeds(page_indexes), _run_offsets),
    "filter": Target(_make_filter, _run_filter),
    "guava": Target(_make_java, _run_java),
    "struct_2015": Target(_make_struct, _run_struct),
    "nulls": Target(_make_nulls, _run_nulls),
    "deleted": Target(_make_deleted, _run_deleted),
    "lance_end": Target(_make_lance_end, _run_lance_end),
    "parameters": Target(_make_parameters, _run_parameters),
    "names": Target(_make_words, _run_words),
    "text": Target(_make_text, _run_text),
    "dnf": Target(_make_number, _run_filters),
    "expression": Target(_make_number, _run_expression),
}
CALLS = {
    "file": Target(_make_file, _run_file, whole=True),
    "together": Target(_make_file, _run_together, whole=True),
    "index": Target(_make_index, _run_index, whole=True),
}
LOGS = {
    "delta": Target(_make_number, hostile_logs.run_delta, whole=True),
    "iceberg": Target(_make_number, hostile_logs.run_iceberg, whole=True),
    "ducklake_sqlite": Target(_make_number, hostile_logs.run_ducklake_sqlite, whole=True),
    "ducklake_duckdb": Target(_make_number, hostile_logs.run_ducklake_duckdb, whole=True),
}
FOLDERS = {
    "key_index": Target(_make_number, hostile_folders.run_key_index, whole=True),
    "zone_index": Target(_make_number, hostile_folders.run_zone_index, whole=True),
    "data_folder": Target(_make_number, hostile_folders.run_data, whole=True),
    "delta_folder": Target(_make_number, hostile_folders.run_delta, whole=True),
    "iceberg_folder": Target(_make_number, hostile_folders.run_iceberg, whole=True),
    "ducklake_folder": Target(_make_number, hostile_folders.run_ducklake, whole=True),
}
TARGETS = {**DECODERS, **CALLS, **LOGS, **FOLDERS}
OWN_ERRORS = (ParquetBloomError, FilterFormatError, FooterError)
