"""Outlines: the compiled walk and the bindings read one footer alike, whatever its bytes are."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fuzz.thrift_bytes import mutated
from support.corpus import corpus_file, fixture_files, footer_bytes, footer_files
from support.naive import BINARY, I32, LIST, STRUCT, UNKNOWN, made_footer, thrift_struct, varint
from support.named import named
from support.samples import keys_table, write_keys
from support.tables import KINDS

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import FileMetaData
from parquet_bloom.errors import FilterFormatError, FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.footer import decode_footer
from parquet_bloom.format.footer_filters import filters_of_column
from parquet_bloom.format.outline import NONE, Outline, Slot, outline_of
from parquet_bloom.format.outlines import join, joinable, walk_outline, walk_outlines

START = 1 << 40  # of the footer; no damage to it may have any say in that
SPANS = (Slot.OLD_MAX, Slot.OLD_MIN, Slot.MAX_VALUE, Slot.MIN_VALUE)


def by_bindings(data: bytes) -> Outline | None:
    """None where the footer is refused."""
    try:
        return outline_of(decode_footer(data, START))
    except FooterError:
        return None


@dataclass
class Meaning:
    """What an outline says, without the places where its spans happen to lie."""

    leaves: Any
    rows: list[int]
    counts: list[Any]
    spans: list[bytes | None]
    held: dict[tuple[int, int], Any]
    key_values: Any
    created_by: str | None
    orders: Any
    start: int


def meaning(outline: Outline) -> Meaning:
    slots, spans = outline.slots, []
    for slot in SPANS:
        for at, length in zip(slots[slot].reshape(-1).tolist(), slots[slot + 1].reshape(-1).tolist(), strict=True):
            assert (at == NONE) == (length == NONE), "a place and a length, or neither"
            assert at == NONE or 0 <= at <= at + length <= len(outline.data), "a span lies within its bytes"
            spans.append(None if at == NONE else outline.data[at : at + length])
    scalars = [slot for slot in range(Slot.TYPE + 1) if not Slot.OLD_MAX <= slot < Slot.TYPE]
    scalars.append(Slot.CODEC)
    told = outline.metadata
    return Meaning(
        outline.leaves, outline.rows.tolist(), slots[scalars].tolist(), spans, held(outline),
        told.key_value_metadata, told.created_by, told.column_orders, outline.start,
    )  # fmt: skip


def held(outline: Outline) -> dict[tuple[int, int], Any]:
    """The filters in the footer itself that are evidence; the bindings look for the draft's by its last bytes."""
    found = {}
    for leaf in outline.leaves:
        for group, stored in filters_of_column(outline, leaf.index).items():
            with suppress(FilterFormatError):
                stored.decode(leaf)
                found[group, leaf.index] = stored
    return found


def same(data: bytes) -> str:
    """Hold both ways against each other; the walk may leave a footer to the bindings, and nothing else."""
    walked, bound = walk_outline(data, START), by_bindings(data)
    if walked is None:
        return "refused" if bound is None else "left to the bindings"
    assert bound is not None, "the walk took what the bindings refuse"
    assert meaning(walked) == meaning(bound)
    return "walked"


def footer_of(path: Path) -> bytes:
    data = footer_bytes(path)
    assert data is not None
    return data


# --- sound footers ----------------------------------------------------------------------------------


def test_every_fixture_and_file_of_the_corpus() -> None:
    for name in footer_files():
        expected = "walked"
        if name.startswith("encrypted/"):
            expected = "refused"
        elif "dict-page-offset-zero" in name:
            expected = "left to the bindings"  # its ColumnMetaData 15 is a list, no length
        with named(name):
            assert same(footer_of(corpus_file(name))) == expected


def all_kinds() -> pa.Table:
    columns = {name: pa.array([values[0], None, values[-1], None], kind) for name, (kind, values, *_) in KINDS.items()
               if not pa.types.is_dictionary(kind) and not pa.types.is_float16(kind)}  # fmt: skip
    columns["dict"] = pa.array(["a", None, "b", "a"]).dictionary_encode()
    columns["half"] = pa.array([np.float16(1.5), None, np.float16("nan"), np.float16(2)], pa.float16())
    columns["list"] = pa.array([[1, None], [], None, [2]])
    columns["deep"] = pa.array([{"a": [{"b": 1, "c": "x"}]}, None, {"a": None}, {"a": []}])
    columns["map"] = pa.array([[("k", 1)], [], None, [("l", None)]], pa.map_(pa.string(), pa.int64()))
    columns["nothing"] = pa.nulls(4)
    return pa.table(columns)


def many_columns() -> pa.Table:
    return pa.table({f"c{i}": [i, i + 1] for i in range(300)})


MADE: dict[str, tuple[Callable[[], pa.Table], dict[str, Any]]] = {
    "all_kinds": (all_kinds, {}),
    "without_statistics": (all_kinds, {"write_statistics": False}),
    "page_index": (all_kinds, {"write_page_index": True, "row_group_size": 1}),
    "version_1": (all_kinds, {"version": "1.0", "data_page_version": "2.0"}),
    "decimals_as_integers": (all_kinds, {"store_decimal_as_integer": True}),
    "no_arrow_schema": (all_kinds, {"store_schema": False, "row_group_size": 2}),
    "no_rows": (lambda: all_kinds()[:0], {}),
    "fifteen_row_groups": (keys_table, {"row_group_size": 80}),
    "many_row_groups": (keys_table, {"row_group_size": 10}),
    "many_columns": (many_columns, {"row_group_size": 1}),
}


def test_files_by_pyarrow_with_and_without_filters(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    for name, (make, options) in MADE.items():
        with named(name):
            pq.write_table(make(), path, **options)
            assert same(footer_of(path)) == "walked"
            parquet_bloom.add_filters(path, in_place=True, sync=False, columns=["*"])
            assert same(footer_of(path)) == "walked"


def test_a_file_without_row_groups_or_columns(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "none.parquet", pa.schema([("a", pa.int64())])).close()
    footer = footer_of(tmp_path / "none.parquet")
    assert same(footer) == "walked"
    outline = walk_outline(footer, START)
    assert outline is not None
    assert (outline.n_row_groups, outline.slots.shape) == (0, (Slot.COUNT, 0, 1))
    pq.write_table(pa.table({}), tmp_path / "none.parquet")
    assert same(footer_of(tmp_path / "none.parquet")) in ("walked", "left to the bindings")


def test_what_the_slots_hold(tmp_path: Path) -> None:
    """Against the bindings' objects, field by field: both ways could be wrong alike."""
    path = write_keys(tmp_path / "keys.parquet", write_page_index=True)
    parquet_bloom.add_filters(path, in_place=True, columns=["id", "name"], sync=False)
    data = footer_of(path)
    metadata, _ = compact.decode(FileMetaData, data)
    outline = walk_outline(data, START)
    assert outline is not None
    assert outline.rows.tolist() == [group.num_rows for group in metadata.row_groups]
    filters = 0
    for i, group in enumerate(metadata.row_groups):
        for j, chunk in enumerate(group.columns):
            meta, statistics = chunk.meta_data, chunk.meta_data.statistics
            told = {
                Slot.NUM_VALUES: meta.num_values, Slot.COMPRESSED_SIZE: meta.total_compressed_size,
                Slot.DATA_PAGE: meta.data_page_offset, Slot.DICTIONARY_PAGE: meta.dictionary_page_offset,
                Slot.FILTER_OFFSET: meta.bloom_filter_offset, Slot.FILTER_LENGTH: meta.bloom_filter_length,
                Slot.OFFSET_INDEX: chunk.offset_index_offset, Slot.COLUMN_INDEX: chunk.column_index_offset,
                Slot.NULL_COUNT: statistics.null_count, Slot.NAN_COUNT: statistics.nan_count, Slot.TYPE: meta.type,
                Slot.CODEC: meta.codec,
            }  # fmt: skip
            for slot, value in told.items():
                assert outline.slots[slot, i, j] == (NONE if value is None else value), slot.name
            for slot, bound in (
                (Slot.OLD_MAX, statistics.max), (Slot.OLD_MIN, statistics.min),
                (Slot.MAX_VALUE, statistics.max_value), (Slot.MIN_VALUE, statistics.min_value),
            ):  # fmt: skip
                at, length = outline.slots[slot : slot + 2, i, j]
                assert (None if at == NONE else data[at : at + length]) == bound, slot.name
            filters += meta.bloom_filter_offset is not None
    assert filters == 6, "two columns in three row groups"


def test_chunks_in_other_files_are_told(tmp_path: Path) -> None:
    metadata, _ = compact.decode(FileMetaData, footer_of(write_keys(tmp_path / "keys.parquet")))
    metadata.row_groups[1].columns[2].file_path = "part-1.parquet"
    data = compact.encode(metadata)
    assert walk_outline(data, START) is None
    with pytest.raises(FooterError, match=r"lie in other files, such as part-1\.parquet; name those instead"):
        outline_of(decode_footer(data, START))


# --- damaged footers --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The footer of two row groups of three columns, with statistics, page indexes and filters."""
    path = tmp_path_factory.mktemp("outline") / "small.parquet"
    table = pa.table({"id": pa.array([1, 2, None, 4]), "f": [1.5, None, -0.0, 2.0], "s": ["a", "b", "c", None]})
    pq.write_table(table, path, row_group_size=2, use_dictionary=["s"], write_page_index=True, store_schema=False)
    parquet_bloom.add_filters(path, in_place=True, columns=["id", "s"], sync=False)
    return footer_of(path)


def test_cut_at_every_byte(small: bytes) -> None:
    assert same(small) == "walked"
    assert {same(small[:n]) for n in range(len(small))} == {"refused"}


def test_bits_of_every_byte_flipped(small: bytes) -> None:
    seen = set()
    for at, byte in enumerate(small):
        for other in {0, 0xFF, *(byte ^ 1 << (at + bit) % 8 for bit in (0, 3, 6))} - {byte}:
            seen.add(same(small[:at] + bytes([other]) + small[at + 1 :]))
    assert seen == {"walked", "refused", "left to the bindings"}


def damages(data: bytes, seed: int, n: int) -> Iterator[bytes]:
    """Bytes changed, taken out, put in, and copied from elsewhere in the footer."""
    rng = random.Random(seed)
    for _ in range(n):
        out = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 3, 8))):
            at, how = rng.randrange(len(out)), rng.random()
            if how < 0.6:
                out[at] = rng.choice((rng.randrange(256), out[at] ^ 1 << rng.randrange(8), 0, 255, out[at] & 15))
            elif how < 0.75:
                del out[at : at + rng.randrange(1, 9)]
            elif how < 0.85:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            else:
                other = rng.randrange(len(out))
                out[at:at] = out[other : other + rng.randrange(1, 60)]
        yield bytes(out)


def test_random_damage(small: bytes) -> None:
    seen = {same(data) for data in damages(small, 0, 600)}  # more: target `outline` of tests/fuzz
    assert seen == {"walked", "refused", "left to the bindings"}


def test_random_damage_of_other_programs_footers() -> None:
    for name in fixture_files():
        footer = footer_of(corpus_file(name))
        rng = random.Random(len(footer))
        with named(name):
            for data in damages(footer, len(footer), 20):
                same(data)
            for n in rng.sample(range(len(footer)), 12):
                assert same(footer[:n]) == "refused"


def wrong_footers(data: bytes, rng: random.Random, n: int) -> Iterator[bytes]:
    """Fields of it with other ids, types, lengths and numbers, twice, or in another order; most are sound Thrift."""
    for _ in range(n):
        yield mutated(data, rng)


def test_footers_that_no_program_would_write(small: bytes) -> None:
    for name, data in {"small": small, "plain": made_footer([])}.items():
        seen = []
        for seed, wrong in enumerate(wrong_footers(data, random.Random(name), 350)):
            with named((name, seed)):
                seen.append(same(wrong))
        assert set(seen) == {"walked", "refused", "left to the bindings"}, name
        assert seen.count("walked") > 35, name
    assert same(made_footer(UNKNOWN)) == "left to the bindings", "fields that are none of ours, of every wire type"


# --- together ---------------------------------------------------------------------------------------


def told(outline: Outline) -> Meaning | None:
    """None where the fields behind the row groups cannot be decoded."""
    try:
        return meaning(outline)
    except FooterError:
        return None


def spans_of(outline: Outline) -> list[bytes | None]:
    """The values that spans point at."""
    places = [outline.slots[slot : slot + 2].reshape(2, -1).T.tolist() for slot in (*SPANS, Slot.KEY_VALUES)]
    return [None if at == NONE else outline.data[at : at + n] for slot in zip(*places, strict=True) for at, n in slot]


def rests_of(outline: Outline) -> tuple[Any, ...]:
    """The bytes of the fields behind the row groups, those of the key-values, the writer; and where the footer is."""
    rests = outline.rests
    assert rests is not None
    places = [*rests.spans.T.tolist(), *rests.pairs]
    return *(outline.data[begin:end] for begin, end in places), *rests.writers, outline.start


def together(footers: list[bytes], rng: random.Random) -> int:
    """Hold footers that are walked together against each alone; returns how many outlines are as most are."""
    found: dict[int, Meaning | None] = {}
    usual = 0
    for outline, numbers in walk_outlines([(data, START + i) for i, data in enumerate(footers)]):
        each, decodes = [outline.file(i) for i in range(outline.n_files)], {}
        for one, number in zip(each, numbers, strict=True):
            assert number not in found
            found[number] = told(one)
            [(alone, [_])] = walk_outlines([(footers[number], one.start)])
            assert rests_of(one) == rests_of(alone)
            assert one.rests is not None
            if (writer := one.rests.writers[0]) is not None:
                usual += 1
                decoded = found[number] is not None
                assert decodes.setdefault(writer, decoded) == decoded
                assert (walk_outline(footers[number], one.start) is not None) == decoded, "nothing unexpected"
        which = np.flatnonzero([rng.random() < 0.6 for _ in each])
        some = outline.some(which)
        for at, i in enumerate(which.tolist()):
            assert told(some.file(at)) == told(each[i])
            assert rests_of(some.file(at)) == rests_of(each[i])
        fit = joinable(outline).tolist()
        assert fit == [i for i, one in enumerate(each) if len(joinable(one))]
        for one in (outline, *([join(each)] if told(each[0]) else [])):
            assert one.rows.tolist() == [n for one in each for n in one.rows.tolist()]
            assert spans_of(one) == [value for one in each for value in spans_of(one)]
            assert [int(start) for start in one.starts] == [one.start for one in each]
            assert [one.file(i).start for i in range(one.n_files)] == [one.start for one in each]
    for number, data in enumerate(footers):
        alone = walk_outline(data, START + number)
        assert number not in found or alone is None or meaning(alone) == found[number]
    return usual


@pytest.mark.parametrize("seed", range(4))
def test_footers_that_are_walked_together_are_those_of_each_alone(small: bytes, seed: int) -> None:
    rng = random.Random(seed)
    others = [footer_of(corpus_file(name)) for name in rng.sample(fixture_files(), 3)]
    damaged = [*damages(small, seed, 20), *(one for other in others for one in damages(other, seed, 4))]
    footers = [small] * 6 + [other for other in others for _ in range(3)] + damaged
    footers += [small[: rng.randrange(len(small))] for _ in range(4)] + [*wrong_footers(small, rng, 4)]
    footers += [small[:-1], small[:-1] + b"\x1c\x1c\0\0\0"]  # without its end; encrypted
    writer = decode_footer(small, START).metadata.created_by.encode()
    for other in (writer[:-1] + b"X", writer + b"X"):
        footers.append(small.replace(bytes([len(writer)]) + writer, bytes([len(other)]) + other))
        assert together([small] * 6 + footers[-1:], rng) == 7
    for _ in range(3):
        rng.shuffle(footers)
        assert together(footers, rng) >= 7


def test_many_row_groups_are_walked_too(tmp_path: Path) -> None:
    """From 15 on their number is written in another way."""
    footers = []
    for n in (14, 15, 200):
        pq.write_table(pa.table({"id": pa.array(range(n))}), tmp_path / "x.parquet", row_group_size=1)
        footers.append(footer_of(tmp_path / "x.parquet"))
    assert together(footers, random.Random(1)) == 3


# --- memory -----------------------------------------------------------------------------------------


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_count_takes_memory_that_the_footer_s_size_does_not_allow() -> None:
    """Lists that announce more row groups, chunks or bytes than there are bytes."""
    schema = [(2, LIST, (STRUCT, [[(4, BINARY, b"root"), (5, I32, 2)], *[[(1, I32, 2), (4, BINARY, b"c")]] * 2]))]
    head = thrift_struct(schema)[:-1]
    walk_outline(b"\0", START)  # loads what is loaded once
    for n in (20, 200, 10_000, 2**31 - 1, 2**32, 2**62, 2**63 - 1):
        for body in (b"\x29\xfc" + varint(n), b"\x29\x1c\x19\xfc" + varint(n), b"\x38" + varint(n)):
            data = head + body + bytes(100)
            assert peak(lambda data=data: same(data)) < 1 << 20, f"{n} announced in {len(data)} bytes"
            many = [(data, START), *[(bytes(1000), START)] * 200]  # more bytes than that one has
            assert peak(lambda many=many: walk_outlines(many)) < 1 << 21, f"{n} announced in {len(data)} bytes"


def test_damage_takes_no_memory_that_the_footer_s_size_does_not_allow(small: bytes) -> None:
    most = 64 * peak(lambda: same(small))
    for data in damages(small, 11, 100):
        assert peak(lambda data=data: same(data)) < most
