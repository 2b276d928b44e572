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
from support.corpus import corpus_file, fixture_files, footer_bytes, footer_files
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


@pytest.mark.parametrize("name", footer_files())
def test_every_fixture_and_file_of_the_corpus(name: str) -> None:
    footer = footer_of(corpus_file(name))
    expected = "walked"
    if name.startswith("encrypted/"):
        expected = "refused"
    elif "dict-page-offset-zero" in name:
        expected = "left to the bindings"  # its ColumnMetaData 15 is a list, no length
    assert same(footer) == expected


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
    "many_row_groups": (keys_table, {"row_group_size": 2}),
    "many_columns": (many_columns, {"row_group_size": 1}),
}


@pytest.mark.parametrize("name", MADE)
def test_files_by_pyarrow_with_and_without_filters(name: str, tmp_path: Path) -> None:
    make, options = MADE[name]
    path = tmp_path / f"{name}.parquet"
    pq.write_table(make(), path, **options)
    assert same(footer_of(path)) == "walked"
    parquet_bloom.add_filters(path, in_place=True, sync=False, columns=["*"])
    assert same(footer_of(path)) == "walked"


def test_a_file_without_row_groups(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "none.parquet", pa.schema([("a", pa.int64())])).close()
    footer = footer_of(tmp_path / "none.parquet")
    assert same(footer) == "walked"
    outline = walk_outline(footer, START)
    assert outline is not None
    assert (outline.n_row_groups, outline.slots.shape) == (0, (Slot.COUNT, 0, 1))


def test_a_file_without_columns(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("seed", range(4))
def test_random_damage(small: bytes, seed: int) -> None:
    seen = {same(data) for data in damages(small, seed, 300)}  # more: target `outline` of tests/fuzz
    assert seen == {"walked", "refused", "left to the bindings"}


@pytest.mark.parametrize("name", fixture_files())
def test_random_damage_of_other_programs_footers(name: str) -> None:
    footer = footer_of(corpus_file(name))
    for data in damages(footer, len(footer), 20):
        same(data)
    rng = random.Random(len(footer))
    for n in rng.sample(range(len(footer)), 12):
        assert same(footer[:n]) == "refused"


# A footer is written from these: field id -> wire type and value. A test that only damages what
# pyarrow wrote meets no other order of fields, no long headers and no fields that are none of ours.

I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = 5, 6, 7, 8, 9, 10, 11, 12, 13
Fields = list[tuple[int, int, Any]]


def varint(value: int, rng: random.Random) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    if rng.random() < 0.03:  # longer than need be
        return bytes(out) + bytes([value | 128, 0])
    return bytes(out) + bytes([value])


def zigzag(value: int, rng: random.Random) -> bytes:
    return varint((value << 1 ^ value >> 63) & (1 << 66) - 1, rng)


def written(wire: int, value: Any, rng: random.Random) -> bytes:
    if wire in (1, 2):
        return b""
    if wire in (3, DOUBLE, UUID):
        return rng.randbytes({3: 1, DOUBLE: 8, UUID: 16}[wire])
    if wire in (4, I32, I64):
        return zigzag(value, rng)
    if wire == BINARY:
        return varint(len(value), rng) + value
    if wire == MAP:
        return varint(1, rng) + bytes([I32 << 4 | BINARY]) + zigzag(5, rng) + written(BINARY, b"v", rng)
    if wire in (LIST, SET):
        kind, items = value
        n = len(items)
        head = bytes([n << 4 | kind]) if n < 15 and rng.random() < 0.9 else bytes([0xF0 | kind]) + varint(n, rng)
        return head + b"".join(b"\1" if kind in (1, 2) else written(kind, item, rng) for item in items)
    out, last = b"", 0
    for id, inner, inner_value in value:
        short = 0 < id - last <= 15 and rng.random() < 0.95
        out += bytes([id - last << 4 | inner]) if short else bytes([inner]) + zigzag(id, rng)
        out, last = out + written(inner, inner_value, rng), id
    return out + b"\0"


def anything(rng: random.Random, depth: int = 0) -> tuple[int, Any]:
    """A value of any wire type."""
    wire = rng.choice((1, 2, 3, 4, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID))
    if wire in (4, I32, I64):
        return wire, rng.choice(NUMBERS)
    if wire == BINARY:
        return wire, rng.randbytes(rng.randrange(20))
    if wire in (LIST, SET):
        kind, value = anything(rng, depth + 1) if depth < 3 else (I32, 1)
        return wire, (kind, [value] * rng.choice((0, 1, 3, 16)))
    if wire == STRUCT:
        return wire, [(i, *anything(rng, depth + 1)) for i in range(1, rng.randrange(1, 4))] if depth < 3 else []
    return wire, None


NUMBERS = [0, 1, -1, 5, 2**15, 2**31 - 1, 2**31, 2**32 + 5, -(2**31) - 1, 2**63 - 1, -(2**63), 2**63, 2**64 + 3]


def loose(fields: Fields, rng: random.Random, rate: float) -> Fields:
    """The same fields with something odd about them, at times."""
    fields = [
        (id, *anything(rng)) if rng.random() < rate
        else (id, wire, rng.choice(NUMBERS)) if wire in (I32, I64) and rng.random() < rate
        else (id, wire, value)
        for id, wire, value in fields
    ]  # fmt: skip
    if rng.random() < rate:
        del fields[rng.randrange(len(fields))]
    if rng.random() < rate:
        fields.append((rng.choice((8, 9, 13, 17, 31, 32, 40, 200, -3, 2**15 - 1, 2**16 + 3)), *anything(rng)))
    if fields and rng.random() < rate / 4:
        fields.append(rng.choice(fields))
    if rng.random() < rate / 4:
        rng.shuffle(fields)
    return fields


def loose_footer(rng: random.Random, rate: float) -> bytes:
    columns, groups = rng.choice((0, 1, 2, 3)), rng.choice((0, 1, 2, 16))

    def struct(*fields: tuple[int, int, Any]) -> Fields:
        return loose(list(fields), rng, rate)

    def chunk() -> Fields:
        bounds = [(id, BINARY, rng.randbytes(rng.choice((0, 1, 8)))) for id in (1, 2)]
        more = [(id, BINARY, rng.randbytes(8)) for id in (5, 6)]
        statistics = struct(*bounds, (3, I64, 0), (4, I64, 7), *more, (7, 1, None), (8, 2, None), (9, I64, 3))
        meta = struct(
            (1, I32, 2), (2, LIST, (I32, [0, 3])), (3, LIST, (BINARY, [b"a"])), (4, I32, 1), (5, I64, 10),
            (6, I64, 90), (7, I64, 80), (9, I64, 4), (11, I64, 4), (12, STRUCT, statistics), (14, I64, 500),
            (15, I32, 47),
        )  # fmt: skip
        return struct((2, I64, 0), (3, STRUCT, meta), (4, I64, 600), (5, I32, 10), (6, I64, 700), (7, I32, 20))

    root = [(4, BINARY, b"root"), (5, I32, columns)]
    schema = [root, *(struct((1, I32, 2), (3, I32, 1), (4, BINARY, b"c%d" % i)) for i in range(columns))]
    rows = [struct((1, LIST, (STRUCT, [chunk() for _ in range(columns)])), (2, I64, 90), (3, I64, 10), (7, 4, i))
            for i in range(groups)]  # fmt: skip
    pair = struct((1, BINARY, b"key"), (2, BINARY, b"value"))
    orders = [struct((1, STRUCT, [])) for _ in range(columns)]
    whole = struct(
        (1, I32, 2), (2, LIST, (STRUCT, schema)), (3, I64, 10 * groups), (4, LIST, (STRUCT, rows)),
        (5, LIST, (STRUCT, [pair])), (6, BINARY, b"somebody version 1.0"), (7, LIST, (STRUCT, orders)),
    )  # fmt: skip
    return written(STRUCT, whole, rng)


@pytest.mark.parametrize(("rate", "least"), [(0.0, 0.7), (0.01, 0.3), (0.08, 0.01)])
def test_footers_that_no_program_would_write(rate: float, least: float) -> None:
    seen = []
    for seed in range(250):
        data = loose_footer(random.Random(seed), rate)
        try:
            seen.append(same(data))
        except AssertionError as error:
            raise AssertionError(f"rate {rate}, seed {seed}") from error
    assert seen.count("walked") >= least * len(seen)


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


@pytest.mark.parametrize("seed", range(12))
def test_footers_that_are_walked_together_are_those_of_each_alone(small: bytes, seed: int) -> None:
    rng = random.Random(seed)
    others = [footer_of(corpus_file(name)) for name in rng.sample(fixture_files(), 3)]
    damaged = [*damages(small, seed, 20), *(one for other in others for one in damages(other, seed, 4))]
    footers = [small] * 6 + [other for other in others for _ in range(3)] + damaged
    footers += [small[: rng.randrange(len(small))] for _ in range(4)] + [loose_footer(rng, 0.01) for _ in range(4)]
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
    rng = random.Random(1)
    schema = [(2, LIST, (STRUCT, [[(4, BINARY, b"root"), (5, I32, 2)], *[[(1, I32, 2), (4, BINARY, b"c")]] * 2]))]
    head = written(STRUCT, schema, rng)[:-1]
    walk_outline(b"\0", START)  # loads what is loaded once
    for n in (20, 200, 10_000, 2**31 - 1, 2**32, 2**62, 2**63 - 1):
        for body in (b"\x29\xfc" + varint(n, rng), b"\x29\x1c\x19\xfc" + varint(n, rng), b"\x38" + varint(n, rng)):
            data = head + body + bytes(100)
            assert peak(lambda data=data: same(data)) < 1 << 20, f"{n} announced in {len(data)} bytes"
            many = [(data, START), *[(bytes(1000), START)] * 200]  # more bytes than that one has
            assert peak(lambda many=many: walk_outlines(many)) < 1 << 21, f"{n} announced in {len(data)} bytes"


def test_damage_takes_no_memory_that_the_footer_s_size_does_not_allow(small: bytes) -> None:
    most = 64 * peak(lambda: same(small))
    for data in damages(small, 11, 100):
        assert peak(lambda data=data: same(data)) < most
