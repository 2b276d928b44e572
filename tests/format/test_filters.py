"""Filter headers of every form, what they leave open, and what a file says of its own filters."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from support import naive
from support.corpus import FIXTURES, corpus_file, fixture_files, footer_bytes
from support.naive import BINARY, I32, STRUCT
from support.named import named

from parquet_bloom.errors import FilterFormatError, RequestError, UnknownFilterError
from parquet_bloom.format import final
from parquet_bloom.format.filters import believe, decode_filter, recognise
from parquet_bloom.format.final import Rule
from parquet_bloom.format.footer import decode_footer
from parquet_bloom.format.forms import FORMATS, format_named
from parquet_bloom.format.literals import Instant, TimeOfDay
from parquet_bloom.format.schema import BYTE_ARRAY, FLBA, Leaf
from parquet_bloom.format.values import operand
from parquet_bloom.kernels import split_block

MURMUR = Rule("murmur3", 1361930890, "mask")
OLD_MURMUR = Rule("murmur3", 104729, "mask")
XXH_MASK = Rule("xxh64", 0, "mask")
XXH = Rule("xxh64", 0, "multiply-shift")

RAW_2020 = "raw of 2020"
HEADERS = {  # of 1024 bytes, as they stand in the format facts
    "final": "15 80 10 1c 1c 00 00 1c 1c 00 00 1c 1c 00 00 00",
    "parquet-41": "15 08 15 80 10 15 80 10 6c 15 80 10 1c 1c 00 00 1c 1c 00 00 00 00",
    "parquet-41-early": "15 80 10 1c 1c 00 00 1c 1c 00 00 00",
    "parquet-41-raw": "00 04 00 00 00 00 00 00 00 00 00 00",
    RAW_2020: "00 04 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
}
RULES = {  # what each form leaves possible
    "final": [XXH],
    "parquet-41": [MURMUR],
    "parquet-41-early": [MURMUR, XXH_MASK],
    "parquet-41-raw": [MURMUR, XXH_MASK, OLD_MURMUR],
    RAW_2020: [XXH],
}


def header(form: str, num_bytes: int = 1024) -> bytes:
    """A header of any size, made without the code under test."""
    unions = [(2, STRUCT, [(1, STRUCT, [])]), (3, STRUCT, [(1, STRUCT, [])])]
    if form in ("parquet-41-raw", RAW_2020):
        return struct.pack(
            "<3i" if form == "parquet-41-raw" else "<4i", *[num_bytes, 0, 0, 0][: 3 + (form == RAW_2020)]
        )
    fields = [(1, I32, num_bytes), *unions]
    if form == "final":
        fields.append((4, STRUCT, [(1, STRUCT, [])]))
    if form == "parquet-41":
        fields = [(1, I32, 4), (2, I32, num_bytes), (3, I32, num_bytes), (9, STRUCT, fields)]
    return naive.thrift_struct(fields)


def bitset(values: list[bytes], n_blocks: int, rule: Rule) -> bytes:
    hashes = [naive.HASHES[rule.hash](v, rule.seed) for v in values]
    return naive.words_to_bytes(naive.build(hashes, n_blocks, rule.index))


# --- headers ----------------------------------------------------------------------------------------


@pytest.mark.smoke
def test_headers_are_those_of_the_drafts_byte_for_byte():
    for form, text in HEADERS.items():
        assert header(form) == bytes.fromhex(text)
        if form in FORMATS:
            for num_bytes in (32, 64, 96, 1024, 4096, 1 << 20, 1 << 27):
                assert FORMATS[form].header(num_bytes) == header(form, num_bytes)


def test_every_form_is_recognised():
    for form, num_bytes in product(HEADERS, (32, 64, 128, 1024, 1 << 14, 1 << 27)):
        head = header(form, num_bytes)
        total = len(head) + num_bytes
        for found in (recognise(head, total), recognise(head + b"\xab" * 60, total), recognise(head + b"\xab" * 60)):
            assert (found.spec, found.num_bytes) == ("parquet-41-raw" if form == RAW_2020 else form, num_bytes)
            kept = [c.rule for c in found.candidates if c.bits_at == len(head)]
            assert kept == RULES[form], "every rule the header leaves open, likeliest first"
        told = recognise(head + b"\xab" * 60, total)
        assert (told.size, told.total, told.crc) == (len(head), total, None)


def test_a_raw_header_that_could_be_either_keeps_all_candidates():
    bits = bytes(1024)
    raw = header("parquet-41-raw") + bits
    everything = [(MURMUR, 12), (XXH_MASK, 12), (OLD_MURMUR, 12), (XXH, 16)]
    for total in (None, 5000, 1036 + 8):
        assert [(c.rule, c.bits_at) for c in recognise(raw[:64], total).candidates] == everything
    assert [(c.rule, c.bits_at) for c in recognise(raw[:64], 1036).candidates] == everything[:3]
    assert [(c.rule, c.bits_at) for c in recognise(raw[:64], 1040).candidates] == [everything[3], *everything[:3]]
    set_bits = header("parquet-41-raw") + b"\1" * 60
    assert [c.rule for c in recognise(set_bits, 1040).candidates] == RULES["parquet-41-raw"], "no zeros, so no 2020"


def test_a_page_header_gives_its_crc():
    fields = [(1, I32, 4), (2, I32, 64), (3, I32, 64), (4, I32, -77)]
    inner = [(1, I32, 64), (2, STRUCT, [(1, STRUCT, [])]), (3, STRUCT, [(1, STRUCT, [])])]
    found = recognise(naive.thrift_struct([*fields, (9, STRUCT, inner)]))
    assert (found.spec, found.crc, found.num_bytes) == ("parquet-41", -77, 64)


MEMBER = (STRUCT, [(1, STRUCT, [])])
OTHER, NONE = (STRUCT, [(2, STRUCT, [])]), (STRUCT, [])  # a member of later versions, and no member


def fields_of(size: int | None, *unions, more=()) -> list:
    """A size, an algorithm, a hash, a compression; and other fields."""
    sizes = [] if size is None else [(1, I32, size)]
    return [*sizes, *((number, *union) for number, union in enumerate(unions, 2)), *more]


def page_of(inner: list, page_type=4, uncompressed=64, compressed=64, crc=()) -> list:
    return [(1, I32, page_type), (2, I32, uncompressed), (3, I32, compressed), *crc, (9, STRUCT, inner)]


INNER = fields_of(64, MEMBER, MEMBER)
UNKNOWN = {
    "hash 2": fields_of(1024, MEMBER, OTHER, MEMBER),
    "algorithm 2": fields_of(1024, OTHER, MEMBER, MEMBER),
    "compression 2": fields_of(1024, MEMBER, MEMBER, OTHER),
    "empty hash": fields_of(1024, MEMBER, NONE, MEMBER),
    "empty algorithm": fields_of(1024, NONE, MEMBER, MEMBER),
    "empty compression": fields_of(1024, MEMBER, MEMBER, NONE),
    "two hashes": fields_of(1024, MEMBER, (STRUCT, [(1, STRUCT, []), (2, STRUCT, [])]), MEMBER),
    "hash of i32": fields_of(1024, MEMBER, (STRUCT, [(1, I32, 0)]), MEMBER),
    "hash an i32": fields_of(1024, MEMBER, (I32, 1), MEMBER),
    "early, hash 2": fields_of(1024, MEMBER, OTHER),
    "no hash": fields_of(1024, MEMBER),
    "only a size": fields_of(1024),
    "a fifth field": fields_of(1024, MEMBER, MEMBER, MEMBER, more=[(5, I32, 1)]),
    "a data page": [(1, I32, 0), (2, I32, 64), (3, I32, 64), (5, STRUCT, [(1, I32, 1)])],
    "page, hash 2": page_of(fields_of(64, MEMBER, OTHER)),
    "page without a size": page_of(fields_of(None, MEMBER, MEMBER)),
    "page with compression": page_of(fields_of(64, MEMBER, MEMBER, MEMBER)),
    "page, a text for a crc": page_of(INNER, crc=[(4, BINARY, b"x")]),
    "page, a struct for a crc": page_of(INNER, crc=[(4, STRUCT, [])]),
}


def test_an_unknown_kind_is_unknown():
    for name, fields in UNKNOWN.items():
        with named(name), pytest.raises(UnknownFilterError):
            recognise(naive.thrift_struct(fields) + bytes(40))


DAMAGED = {f"final of {n}": header("final", n) for n in (0, -32, 1, 31, 33, 2052, -(2**31))}
DAMAGED |= {f"early of {n}": header("parquet-41-early", n) for n in (0, -64, 96, 33, 1000)}
DAMAGED |= {f"raw of {n}": header("parquet-41-raw", n) for n in (0, -64, 16, 96, 33, 1 << 28, 1 << 30)}
DAMAGED |= {
    "a page of another type": naive.thrift_struct(page_of(INNER, 2)),
    "page sizes that differ": naive.thrift_struct(page_of(INNER, 4, 128)),
    "compressed size that differs": naive.thrift_struct(page_of(INNER, 4, 64, 32)),
    "a page of 96 bytes": naive.thrift_struct(page_of(fields_of(96, MEMBER, MEMBER), 4, 96, 96)),
    "a field twice": naive.thrift_struct(fields_of(64, MEMBER, MEMBER, MEMBER))[:-1] + b"\x05\x02\x80\x01\0",
    "raw with a hash": struct.pack("<3i", 1024, 1, 0),
    "raw with an algorithm": struct.pack("<3i", 1024, 0, 1),
    "garbage": b"\xff" * 64,
    "zeros": bytes(64),
    "the file's magic": b"PAR1" + bytes(60),
    "a cut number": b"\x15\x80",
    "nothing": b"",
}


def test_damage_is_damage():
    for name, data in DAMAGED.items():
        with named(name), pytest.raises(FilterFormatError) as caught:
            recognise(data)
        assert not isinstance(caught.value, UnknownFilterError), f"{name} is no form that a later version could know"


def test_num_bytes_for_a_length():
    for power in range(5, 28):
        assert final.num_bytes_for(len(header("final", 1 << power)) + (1 << power)) == 1 << power
    for total in [*range(-5, 45), 79, 81, 1039, 1041, 96 + 14, 3 * 1024 + 16]:
        found = final.num_bytes_for(total)
        assert found is None or len(header("final", found)) + found == total
    for total in (2**31 - 1, 2**31 + 17, 2**40 + 20, 2**63):  # lengths that no footer should have
        assert final.num_bytes_for(total) is None


# --- whole filters ----------------------------------------------------------------------------------

VALUES = [naive.plain(i * 7919, "INT64") for i in range(120)]


@pytest.mark.parametrize("form", HEADERS)
def test_a_value_inserted_under_any_rule_of_a_header_is_never_absent(form):
    several = (VALUES, VALUES[:1], [b""], [b"hello", b"x" * 100])
    for n_blocks, rule, values in product((1, 2, 32, 128), RULES[form], several):
        data, array = header(form, 32 * n_blocks) + bitset(values, n_blocks, rule), pa.array(values, pa.binary())
        # Behind the filter lies nothing, or something, or zeros.
        for total, behind in product((len(data), None, len(data) + 100), (b"", b"\xff" * 100, bytes(100))):
            found = decode_filter(data + behind, total)
            assert all(found.might_contain(v) for v in values), (n_blocks, rule, total, behind)
            assert found.might_contain_array(array).all()
            assert found.might_contain_array(pa.chunked_array([array, array])).all()
            assert found.blocks.shape == (n_blocks, 8)


def test_an_unsaid_rule_still_denies():
    absent = [naive.plain(i * 7919 + 1, "INT64") for i in range(1000)]
    for form in ("final", "parquet-41", "parquet-41-early", "parquet-41-raw"):
        found = decode_filter(header(form, 4096) + bitset(VALUES, 128, RULES[form][0]), len(header(form, 4096)) + 4096)
        answers = [found.might_contain(v) for v in absent]
        assert sum(answers) < 50, "a filter that admits everything is no filter"
        assert found.might_contain_array(pa.array(absent, pa.binary())).tolist() == answers


@pytest.mark.parametrize("form", HEADERS)
def test_a_filter_cut_at_every_byte_is_refused(form):
    data = header(form, 64) + bitset(VALUES[:9], 2, RULES[form][0])
    assert decode_filter(data, len(data)).might_contain(VALUES[0])
    for end in range(len(data)):
        with pytest.raises(FilterFormatError):
            decode_filter(data[:end], len(data))
        if end < (12 if form == RAW_2020 else len(header(form))):
            with pytest.raises(FilterFormatError):
                recognise(data[:end], len(data))
    unsaid = len(data) - 4 if form == RAW_2020 else len(data)  # without a length, 4 bytes tell it from raw
    for end in range(unsaid):
        with pytest.raises(FilterFormatError):
            decode_filter(data[:end])


def test_encode_and_decode():
    for spec, form in ((name, form) for name, form in FORMATS.items() if form.placements):
        blocks, hashes = split_block.empty(2048), np.array([form.rule.hash_value(v) for v in VALUES], np.uint64)
        split_block.insert_hashes(blocks, hashes, form.rule.index)
        data = form.header(blocks.nbytes) + blocks.tobytes()
        assert data == header(spec, 2048) + bitset(VALUES, 64, form.rule)
        found = decode_filter(data, len(data), form.rule)
        assert (found.spec, [rule for rule, _ in found.readings]) == (spec, [form.rule])
        assert np.array_equal(found.blocks, blocks)
        assert form.writes_length == (spec == "final")
        assert form == format_named(spec)
    with pytest.raises(RequestError, match="unknown spec bogus; there are: final, parquet-41"):
        format_named("bogus")


@pytest.mark.smoke
def test_vectors_are_decoded():
    for name, rules in (("bloom_filter.bin", RULES["parquet-41-raw"]), ("bloom_filter.xxhash.bin", [XXH])):
        data = corpus_file(f"bloom/parquet-testing__{name}").read_bytes()
        found = decode_filter(data, len(data))
        assert [rule for rule, _ in found.readings] == rules
        assert all(found.might_contain(v) for v in (b"hello", b"parquet", b"bloom", b"filter"))
        assert not any(found.might_contain(v) for v in (b"Hello", b"", b"world", b"parquet-bloom"))


def test_belief_keeps_what_a_file_says_only_if_the_header_allows_it():
    found = recognise(header("parquet-41-raw"), 1036)
    assert [c.rule for c in believe(found, XXH_MASK).candidates] == [XXH_MASK]
    for rule in (None, XXH, Rule("murmur3", 1, "mask")):
        assert believe(found, rule) == found, "a rule that cannot be leaves all candidates"
    assert believe(recognise(header("final")), MURMUR) == recognise(header("final"))


# --- filters that other programs wrote --------------------------------------------------------------


def literal(text: str, leaf: Leaf):
    """What a fixture's expected.json writes, as its own docstring explains, as a literal."""
    if leaf.logical in ("DECIMAL", "INTEGER"):
        return Decimal(text)
    if leaf.logical == "TIMESTAMP":
        whole, fraction = text.rstrip("Z").split(".")
        seconds = (dt.datetime.fromisoformat(whole) - dt.datetime(1970, 1, 1)) // dt.timedelta(seconds=1)
        return Instant(seconds * 10**9 + int(fraction.ljust(9, "0")), text.endswith("Z"))
    if leaf.logical == "TIME":
        (hours, minutes, seconds), fraction = map(int, text[:8].split(":")), text[9:]
        return TimeOfDay(((hours * 60 + minutes) * 60 + seconds) * 10**9 + int(fraction.ljust(9, "0")))
    if leaf.logical in ("STRING", "JSON", "DATE", "UUID"):
        return text
    if leaf.physical in (BYTE_ARRAY, FLBA) and leaf.logical != "FLOAT16":
        return bytes.fromhex(text)
    return float(text) if leaf.float_bits else int(text)


@pytest.mark.parametrize("name", fixture_files())
def test_what_is_stored_is_never_absent_and_most_that_is_not_is(name):
    path = FIXTURES / name
    expected = json.loads(path.with_suffix(".expected.json").read_text())["columns"]
    found = decode_footer(footer_bytes(path), path.stat().st_size)
    denied = asked = 0
    for i, j, _ in found.chunks():
        leaf = found.leaves[j]
        place = expected[leaf.name]["filters"][i]
        if place is None or leaf.refusal:
            continue
        whole = decode_filter(path.read_bytes()[place["offset"] :], place["length"])
        for text in expected[leaf.name]["present"][i]:
            probes = operand(literal(text, leaf), leaf).probes
            assert probes is None or any(whole.might_contain(p) for p in probes), (leaf.name, text)
        for text in expected[leaf.name]["absent"]:
            probes = operand(literal(text, leaf), leaf).probes
            asked += probes is not None
            denied += probes is not None and not any(whole.might_contain(p) for p in probes)
    assert denied >= 0.8 * asked, f"{denied} of {asked} values that are stored nowhere are denied"
