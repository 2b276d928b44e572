"""Edits of footers and page indexes: what changes, and that nothing else does.

Real footers come from the fixtures and the corpus. A made one has unknown fields of every wire
type at every level; what an edit must give is then made directly, byte for byte.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.corpus import corpus_file, footer_bytes, footer_files
from support.naive import BINARY, DOUBLE, GROUPS, I32, I64, INNER, LIST, PAIRS, STRUCT, TRUE, UNKNOWN, thrift_struct
from support.naive import made_footer as made
from support.named import named
from support.repeats import by_turns, thirds

from parquet_bloom._thrift.parquet.ttypes import FileMetaData, OffsetIndex
from parquet_bloom.errors import FooterError
from parquet_bloom.format import compact
from parquet_bloom.format.edits import FooterEdit, Moves, edit_footer, has_extension, move_offset_index
from parquet_bloom.format.footer import decode_footer

EXTENSION = bytes([BINARY]) + b"\xfe\xff\x03" + b"\x05later"  # field 32767, as its last field


def with_extension(data: bytes) -> bytes:
    """The same struct with one more field at its end, which only the generic tree keeps."""
    assert data[-1] == 0
    return data[:-1] + EXTENSION + b"\0"


def both_ways(edit, data: bytes) -> bytes:
    """Carry out an edit on a struct and on it with an extension: what is not understood must change nothing."""
    result, extended = edit(data), edit(with_extension(data))
    assert extended == with_extension(result)
    return result


@cache
def footer_of(name: str) -> bytes:
    data = footer_bytes(corpus_file(name))
    assert data is not None
    return data


# Without those of encrypted files: a signature lies behind them, and their indexes are encrypted too.
FILES = [name for name in footer_files() if footer_of(name)[-1] == 0]


# --- moves ------------------------------------------------------------------------------------------


def moves_of(events) -> tuple[Moves, Moves]:
    """Moves and their inverse: (gap, bytes put in, bytes cut out) one after the other from 4 on."""
    steps, back, at, total = [], [], 4, 0
    for gap, put_in, cut_out in events:
        at += gap
        steps += [(at, put_in), (at + cut_out, -cut_out)]
        back += [(at + total + put_in, cut_out - put_in)]
        at, total = at + cut_out, total + put_in - cut_out
    return Moves(steps), Moves(back)


EVENTS = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 10**6), st.sampled_from([0, 0, 1, 500])), max_size=8)
OFFSETS = st.lists(st.integers(4, 10**7), min_size=1, max_size=30)


@settings(max_examples=100, deadline=None)
@given(EVENTS, OFFSETS)
def test_moves_are_monotone_and_their_inverse_gives_offsets_back(events, offsets):
    moves, back = moves_of(events)
    assert moves.total == -back.total == sum(put_in - cut_out for _, put_in, cut_out in events)
    at, cuts = 4, []
    for gap, _, cut_out in events:
        cuts.append(range(at + gap, at + gap + cut_out))
        at += gap + cut_out
    outside = sorted(x for x in offsets if not any(x in cut for cut in cuts))
    assert [back(moves(x)) for x in outside] == outside
    assert all(moves(a) < moves(b) for a, b in pairwise(outside) if a < b)


@given(st.integers(-(2**63), 3))
def test_offsets_in_the_magic_never_move(offset):
    assert Moves([(0, 100), (4, 100)])(offset) == offset


def test_moves_one_by_one():
    moves = Moves([(10, 5), (10, 2), (20, -4)])
    assert [moves(x) for x in (4, 9, 10, 19, 20, 10**12)] == [4, 9, 17, 26, 23, 10**12 + 3]
    assert bool(moves)
    assert not Moves()
    assert not Moves([(10, 0)])
    with pytest.raises(ValueError, match="step at 9 after one at 20"):
        moves.add(9, 1)
    with pytest.raises(FooterError, match="64 bits"):
        moves((1 << 63) - 1)


# --- footers that other programs wrote --------------------------------------------------------------

BY_THIRDS = pytest.mark.parametrize("names", thirds(FILES), ids=["quick", "more", "last"])
STEPS = [(4, 1000), (700, 33), (5000, 1), (40_000, 70_000), (200_000, 3)]
SHIFT, UNSHIFT = moves_of([(b - a, n, 0) for (a, _), (b, n) in pairwise([(4, 0), *STEPS])])


@BY_THIRDS
def test_moving_there_and_back_gives_the_footer_back(names):
    for name in names:
        data = footer_of(name)
        with named(name):
            moved = both_ways(lambda d: edit_footer(d, FooterEdit(SHIFT)), data)
            assert both_ways(lambda d: edit_footer(d, FooterEdit(UNSHIFT)), moved) == data
            assert edit_footer(data, FooterEdit()) == data
            old, new = compact.decode_leniently(FileMetaData, data), compact.decode_leniently(FileMetaData, moved)
            for before, after in zip(old.row_groups, new.row_groups, strict=True):
                for a, b in zip(before.columns, after.columns, strict=True):
                    assert b.file_offset == SHIFT(a.file_offset)
                    assert b.meta_data is None or b.meta_data.data_page_offset == SHIFT(a.meta_data.data_page_offset)


@BY_THIRDS
def test_adding_and_removing_gives_the_footer_back(names):
    for name in names:
        with named(name):
            _added_and_removed(footer_of(name))


def _added_and_removed(data):
    old = compact.decode_leniently(FileMetaData, data)
    chunks = [(i, j) for i, g in enumerate(old.row_groups) for j, c in enumerate(g.columns) if c.meta_data]
    bare = [(i, j) for i, j in chunks if old.row_groups[i].columns[j].meta_data.bloom_filter_offset is None]
    foreign = decode_footer(data, 1 << 40).foreign_filter_fields
    bare = [key for key in bare if key not in foreign]
    n_pairs = len(old.key_value_metadata or [])
    add = FooterEdit(filter_ranges=dict.fromkeys(bare, (77, 1040)), append=[("parquet_bloom", "é")])
    take = FooterEdit(
        filter_ranges=dict.fromkeys(bare), key_values={n_pairs: None}, keep_empty=old.key_value_metadata is not None
    )
    added = both_ways(lambda d: edit_footer(d, add), data)
    assert both_ways(lambda d: edit_footer(d, take), added) == data
    new = compact.decode_leniently(FileMetaData, added)
    metas = [new.row_groups[i].columns[j].meta_data for i, j in bare]
    assert {(m.bloom_filter_offset, m.bloom_filter_length) for m in metas} <= {(77, 1040)}
    assert (new.key_value_metadata[-1].key, new.key_value_metadata[-1].value) == ("parquet_bloom", "é")


# --- a footer with unknown fields everywhere --------------------------------------------------------

BY_LATER = pytest.mark.parametrize("later", [[], UNKNOWN], ids=["today", "later"])
TEXT = [(b"first", b"1"), (b"no value", None), (b"third", b"3")]


def test_the_made_footers_are_read_and_only_the_plain_one_by_the_bindings_alone():
    value, used = compact.decode(FileMetaData, made([], pairs=TEXT))
    assert compact.encode(value) == made([], pairs=TEXT)
    assert used == len(made([], pairs=TEXT))
    footer = decode_footer(made(UNKNOWN), 100_000)
    assert (footer.n_row_groups, [leaf.name for leaf in footer.leaves]) == (GROUPS, ["a", "b", "c"])
    assert {leaf.logical for leaf in footer.leaves} == {"?"}
    assert has_extension(made(UNKNOWN))
    assert not has_extension(made([], pairs=TEXT))
    assert not has_extension(made(UNKNOWN[:-1]))


@BY_LATER
def test_moves_in_a_made_footer(later):
    both = ((SHIFT, UNSHIFT), moves_of([(500, 10**9, 0), (4000, 2**40, 0)]))
    for pairs, (moves, back) in product([PAIRS, TEXT, [], None], both):
        data = made(later, pairs=pairs)
        moved = edit_footer(data, FooterEdit(moves))
        assert moved == made(later, move=moves, pairs=pairs)
        assert edit_footer(moved, FooterEdit(back)) == data
        assert edit_footer(data + b"behind", FooterEdit(moves)) == moved + b"behind"


@BY_LATER
def test_places_in_a_made_footer(later):
    data = made(later)
    places = {(0, 1): (1 << 40, 1040), (1, 0): (5, None), (1, 2): (6, 48)}
    filled = edit_footer(data, FooterEdit(filter_ranges=places))
    assert filled == made(later, places=places)
    other = {**places, (0, 1): (99, None), (0, 0): (7, 80)}
    changed = edit_footer(filled, FooterEdit(filter_ranges={(0, 1): (99, None), (0, 0): (7, 80)}))
    assert changed == made(later, places=other), "a place without a length takes the old length out"
    assert edit_footer(changed, FooterEdit(filter_ranges=dict.fromkeys(other))) == data
    assert edit_footer(data, FooterEdit(filter_ranges=dict.fromkeys(other))) == data
    lengths = {(0, 0): 31, (1, 2): 3000}
    assert edit_footer(data, FooterEdit(index_lengths=lengths)) == made(later, lengths=lengths)
    moved = edit_footer(filled, FooterEdit(SHIFT, filter_ranges={(1, 2): (3, 4)}))
    after = {(0, 1): (SHIFT(1 << 40), 1040), (1, 0): (SHIFT(5), None), (1, 2): (3, 4)}
    assert moved == made(later, move=SHIFT, places=after), "a new place is in the new file already, and is not moved"


@BY_LATER
def test_key_values_in_a_made_footer(later):
    data = made(later)
    new = [("parquet_bloom", "[]"), ("häß", "")]
    appended = [(k.encode(), v.encode()) for k, v in new]
    assert edit_footer(data, FooterEdit(append=new)) == made(later, appended=appended)
    many = [("k", "v")] * 20  # the list's header grows to a size of its own
    grown = edit_footer(data, FooterEdit(append=many))
    assert grown == made(later, appended=[(b"k", b"v")] * 20)
    assert edit_footer(grown, FooterEdit(key_values=dict.fromkeys(range(3, 23)))) == data
    some = edit_footer(data, FooterEdit(key_values={0: None, 1: "x"}))
    assert some == made(later, pairs=[(b"no value", b"x"), PAIRS[2]])
    none = dict.fromkeys(range(3))
    assert edit_footer(data, FooterEdit(key_values=none)) == made(later, pairs=None)
    assert edit_footer(data, FooterEdit(key_values=none, keep_empty=True)) == made(later, pairs=[])
    for pairs in (None, []):
        assert edit_footer(made(later, pairs=pairs), FooterEdit(append=new)) == made(later, pairs=[], appended=appended)
    assert edit_footer(data, FooterEdit(key_values=none, append=new)) == made(later, pairs=[], appended=appended)


# --- page indexes -----------------------------------------------------------------------------------


def _offset_indexes(name: str) -> list[bytes]:
    raw = corpus_file(name).read_bytes()
    groups = compact.decode_leniently(FileMetaData, footer_of(name)).row_groups
    places = [(c.offset_index_offset, c.offset_index_length) for g in groups for c in g.columns]
    return [raw[at : at + n] for at, n in places if at and n]


@BY_THIRDS
def test_offset_indexes_move_there_and_back(names):
    for data in (one for name in names for one in _offset_indexes(name)[:40]):
        moved = both_ways(lambda d: move_offset_index(d, SHIFT), data)
        assert both_ways(lambda d: move_offset_index(d, UNSHIFT), moved) == data
        old, new = (compact.decode(OffsetIndex, d)[0].page_locations for d in (data, moved))
        assert [p.offset for p in new] == [SHIFT(p.offset) for p in old]
        assert [p.first_row_index for p in new] == [p.first_row_index for p in old]


def test_unknown_fields_of_an_offset_index_are_kept():
    def index(move):
        pages = [[(1, I64, move(at)), (2, I32, 9), (3, I64, at), *UNKNOWN] for at in (4, 600, 2, 10**6)]
        return thrift_struct([(1, LIST, (STRUCT, pages)), (2, LIST, (I64, [1, 2, 3, 4])), *UNKNOWN])

    assert move_offset_index(index(lambda at: at) + b"behind", SHIFT) == index(SHIFT) + b"behind"


# --- damage -----------------------------------------------------------------------------------------

EDIT = FooterEdit(SHIFT, append=[("k", "v")])
INDEXES = cache(lambda: _offset_indexes("pyarrow/types_filters.parquet")[:2])


@settings(max_examples=70, deadline=None)
@given(st.data())
def test_flipped_bytes_are_edited_or_refused(data):
    raw = bytearray(data.draw(st.sampled_from([made([]), made(UNKNOWN), *INDEXES()])))
    flips = st.lists(st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    for at, byte in data.draw(flips):
        raw[at] = byte
    for edit in (lambda d: edit_footer(d, EDIT), lambda d: move_offset_index(d, SHIFT), has_extension):
        with suppress(FooterError):
            edit(bytes(raw))


def test_what_is_no_struct_stays_or_is_refused():
    """Metadata of another type than a struct are not ours to move; an index that is cut is none."""
    group = [(1, LIST, (STRUCT, [[(2, I64, 4), (3, I32, 7)]])), (3, I64, 1)]
    moved = [(1, LIST, (STRUCT, [[(2, I64, SHIFT(4)), (3, I32, 7)]])), (3, I64, 1)]
    before, after = (thrift_struct([*ROOT, (4, LIST, (STRUCT, [one]))]) for one in (group, moved))
    assert edit_footer(before, FooterEdit(SHIFT)) == after
    for index in INDEXES():
        with pytest.raises(FooterError):
            move_offset_index(index[:-2], SHIFT)


def test_cut_bytes_are_refused():
    for whole in (made([]), made(UNKNOWN)):
        for end in range(0, len(whole), 11):
            with pytest.raises(FooterError):
                edit_footer(whole[:end], EDIT)


ROOT = [(1, I32, 1), (2, LIST, (STRUCT, [[(4, BINARY, b"s"), (5, I32, 0)]])), (3, I64, 0)]


def test_empty_lists_without_a_type_are_edited():
    # Some writers say "no elements, of no type"; the bindings write another byte there.
    none, empty = (LIST, (0, [])), (4, LIST, (STRUCT, []))
    for fields in ([(4, *none)], [empty, (5, *none)], [(4, LIST, (STRUCT, [[(1, *none), (3, I64, 0)]]))]):
        data = thrift_struct([*ROOT, *fields])
        decode_footer(data, 100)  # it can be read
        found = decode_footer(edit_footer(data, EDIT), 100)
        assert [(pair.key, pair.value) for pair in found.metadata.key_value_metadata] == [("k", "v")]


def test_key_values_of_another_type_are_refused():
    for value in ((BINARY, b"x"), (I32, 3), (LIST, (BINARY, [b"k"])), (STRUCT, [])):
        data = thrift_struct([*ROOT, (4, LIST, (STRUCT, [])), (5, *value)])
        decode_footer(data, 100)
        with pytest.raises(FooterError):
            edit_footer(data, EDIT)


OTHERS = [(BINARY, b"x"), (LIST, (STRUCT, [INNER])), (DOUBLE, 1.0), (STRUCT, [])]


@pytest.mark.parametrize(("number", "wire_value"), by_turns([14, 15, 14, 15], OTHERS))
def test_a_filters_fields_of_another_type(number, wire_value):
    # parquet-testing's dict-page-offset-zero has such a field 15: it belongs to somebody else.
    last = thrift_struct([(5, BINARY, b"z"), (6, BINARY, b"a"), (7, TRUE, True)])  # the statistics
    field = thrift_struct([(12, STRUCT, []), (number, *wire_value)])[2:]  # what follows the statistics
    data = made([]).replace(last + b"\0", last + field, 1)

    def place_in(footer: bytes) -> tuple[int | None, int | None]:
        meta = decode_footer(footer, 100_000).meta(0, 0)
        return meta.bloom_filter_offset, meta.bloom_filter_length

    assert place_in(data) == (None, None), "readers pass over it"
    assert decode_footer(data, 100_000).foreign_filter_fields == {(0, 0)}
    assert edit_footer(data, FooterEdit(filter_ranges={(0, 0): None})) == data, (
        "what is no filter's place is not taken out"
    )
    for place in (500, 1040), (500, None):
        edited = edit_footer(data, FooterEdit(filter_ranges={(0, 0): place}))
        assert place_in(edited) == place, "a place that is written all the same can be read"


def test_a_filters_own_fields_are_not_foreign():
    places = {(0, 0): (500, 1040), (1, 1): (500, None)}
    for later in ([], UNKNOWN):
        assert decode_footer(made(later, places=places), 100_000).foreign_filter_fields == set()


def test_an_offset_index_without_pages():
    empty = thrift_struct([(1, LIST, (STRUCT, []))])
    assert move_offset_index(empty, SHIFT) == empty
    for fields in ([], [(1, LIST, (STRUCT, [[(2, I32, 1)]]))]):  # what the format requires is not there
        with pytest.raises(FooterError):
            move_offset_index(thrift_struct(fields), SHIFT)


@pytest.mark.parametrize("number", [9, 14])
def test_a_field_given_twice_is_refused_or_changed_where_readers_look(number):
    fields = [(5, I64, 1), (7, I64, 1), (9, I64, 50), (14, I64, 40), (number, I64, 60)]
    chunk = [(2, I64, 4), (3, STRUCT, [(1, I32, 1), *fields])]
    leaf = [(1, I32, 1), (4, BINARY, b"a")]
    group = [(1, LIST, (STRUCT, [chunk])), (3, I64, 1)]
    root = [(2, LIST, (STRUCT, [[(5, I32, 1)], leaf])), (4, LIST, (STRUCT, [group]))]
    before = decode_footer(thrift_struct(root), 100).meta(0, 0)
    with suppress(FooterError):
        after = decode_footer(edit_footer(thrift_struct(root), FooterEdit(SHIFT)), 100).meta(0, 0)
        assert after.data_page_offset == SHIFT(before.data_page_offset)
        assert after.bloom_filter_offset == SHIFT(before.bloom_filter_offset)
