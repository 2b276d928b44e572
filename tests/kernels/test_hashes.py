"""hash_array against tests/support/naive.py, xxhash and mmh3, over every Arrow kind that can be hashed."""

from __future__ import annotations

import json
import struct
from itertools import product
from typing import NamedTuple

import mmh3
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.corpus import vector_file
from support.named import named

from parquet_bloom.kernels.hashes import hash_array

pytestmark = pytest.mark.usefixtures("loops")

SEED_2018 = 1361930890
RULES = [("xxh64", 0), ("xxh64", 2**64 - 1), ("murmur3", SEED_2018), ("murmur3", 2**32 - 1)]


class Case(NamedTuple):
    """An array, and beside it the bytes of every slot; None where it is null."""

    name: str
    array: pa.Array
    slots: list[bytes | None]


def expected(slots, name: str, seed: int) -> list[int]:
    return [naive.HASHES[name](slot, seed) for slot in slots if slot is not None]


def check(array, slots) -> None:
    for name, seed in RULES:
        found = hash_array(array, name, seed)
        assert found.dtype == np.uint64
        wanted = expected(slots, name, seed)
        assert found.tolist() == wanted, (str(array.type), name, seed)
        for room in (0, len(wanted), len(wanted) + 9):  # memory that holds an older batch's hashes
            scratch = np.full(room, 7, np.uint64)
            assert hash_array(array, name, seed, scratch).tolist() == wanted, (str(array.type), name, seed, room)


# --- every kind -----------------------------------------------------------------------------------

TIMES = [pa.timestamp(u) for u in ("s", "ms", "us", "ns")] + [pa.duration(u) for u in ("s", "ms", "us", "ns")]
TIMES += [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Oslo"), pa.time64("us"), pa.time64("ns"), pa.date64()]
INTS = [(pa.int8(), "b"), (pa.int16(), "h"), (pa.int32(), "i"), (pa.int64(), "q")]
INTS += [(pa.uint8(), "B"), (pa.uint16(), "H"), (pa.uint32(), "I"), (pa.uint64(), "Q")]


def _fixed() -> list[Case]:
    """Each fixed-width kind over bytes of our choosing: the slot is the value, whatever it means."""
    kinds = [t for t, _ in INTS] + TIMES + [pa.date32(), pa.time32("s"), pa.time32("ms")]
    kinds += [pa.float16(), pa.float32(), pa.float64(), pa.decimal32(9, 2), pa.decimal64(18, 2)]
    kinds += [pa.decimal128(38, 10), pa.decimal256(76, 5), pa.month_day_nano_interval()]
    kinds += [pa.binary(width) for width in (1, 11, 32)]
    random = np.random.default_rng(7)
    cases = []
    for kind in kinds:
        width = kind.bit_width // 8
        slots = [bytes(width), b"\xff" * width, b"\x00" * (width - 1) + b"\x80", b"\x01" + bytes(width - 1)]
        slots += [random.bytes(width) for _ in range(9)]
        array = pa.Array.from_buffers(kind, len(slots), [None, pa.py_buffer(b"".join(slots))])
        cases.append(Case(str(kind), array, slots))
    return cases


def _variable() -> list[Case]:
    random = np.random.default_rng(8)
    texts = ["a" * n for n in range(70)] + ["", "häß", "\U0001f600" * 9, "\0", "x" * 1000]
    blobs = [random.bytes(n) for n in range(70)] + [b"", bytes(40), b"\xff" * 33]
    cases = []
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        cases.append(Case(str(kind), pa.array(texts, kind), [t.encode() for t in texts]))
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        cases.append(Case(str(kind), pa.array(blobs, kind), blobs))
    return cases


def with_nulls(case: Case) -> Case:
    """Every third value taken away; its slot in the buffer still holds the old bytes."""
    keep = [i % 3 != 1 for i in range(len(case.array))]
    buffers = case.array.buffers()
    buffers[0] = pa.array(keep).buffers()[1]
    array = pa.Array.from_buffers(case.array.type, len(keep), buffers)
    return Case(case.name, array, [s if k else None for s, k in zip(case.slots, keep, strict=True)])


CASES = _fixed() + _variable()
# Where values only lie elsewhere, one kind of each width is enough, and all whose bytes have offsets or views.
WIDTHS = {case.array.type.bit_width: case for case in CASES if pa.types.is_primitive(case.array.type)}
FEWER = [*WIDTHS.values(), *(case for case in CASES if not pa.types.is_primitive(case.array.type))]


def test_the_twins_are_those_of_the_libraries():
    for n in [*range(70), 127, 128, 1000]:
        data = bytes(range(256))[:n] * (1 + n // 256)
        for seed in (0, 1, SEED_2018, 2**32 - 1):
            assert naive.xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed=seed)
            assert naive.murmur3(data, seed) == mmh3.hash64(data, seed=seed, x64arch=True, signed=False)[0]


def test_whole_nulls_slices_and_chunks():
    for _, array, slots in (one for case in CASES for one in (case, with_nulls(case))):
        n = len(slots)
        check(array, slots)
        for start, length in ((1, n), (3, 5), (n - 1, 1), (2, 0), (0, 0)):
            check(array.slice(start, length), slots[start : start + length])
        check(array.slice(2).slice(3, 4), slots[5:9])
        check(pa.chunked_array([array.slice(0, 3), array.slice(3, 0), array.slice(3)]), slots)
        check(pa.chunked_array([], array.type), [])
        check(pa.nulls(5, array.type), [None] * 5)


def test_bytes_of_every_width():
    for width in range(1, 81):
        slots = [np.random.default_rng(width + i).bytes(width) for i in range(9)]
        check(pa.array([*slots, None], pa.binary(width)), [*slots, None])


INDICES = [pa.int8(), pa.uint64(), pa.int64(), pa.uint16()]  # one for each case, and another where values are NULL


def test_dictionaries_with_nulls_in_indices_and_in_entries():
    indices = [5, 0, None, 3, 3, 1, None, 4, 0]
    for i, (_, entries, slots) in enumerate(one for case in FEWER for one in (case, with_nulls(case))):
        array = pa.DictionaryArray.from_arrays(pa.array(indices, INDICES[(i + i // 4) % 4]), entries)
        used = [None if i is None else slots[i] for i in indices]
        check(array, used)
        check(array.slice(2, 6), used[2:8])
        check(pa.chunked_array([array, array.slice(4)]), used + used[4:])
        part = entries.slice(1)  # entries that start within their buffer
        array = pa.DictionaryArray.from_arrays(pa.array([0, 4, None], pa.int32()), part)
        check(array, [slots[1], slots[5], None])


class Wrapped(pa.ExtensionType):
    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "tests.wrapped")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type, serialized):
        return cls(storage_type)


def test_an_extension_array_is_its_storage():
    indices = pa.array([3, None, 1], pa.int8())
    for _, array, slots in map(with_nulls, FEWER):
        wrapped = pa.ExtensionArray.from_storage(Wrapped(array.type), array)
        check(wrapped, slots)
        check(wrapped.slice(4, 5), slots[4:9])
        check(pa.chunked_array([wrapped, wrapped]), slots * 2)
        of_dictionary = pa.DictionaryArray.from_arrays(indices, array)
        check(pa.ExtensionArray.from_storage(Wrapped(of_dictionary.type), of_dictionary), [slots[3], None, slots[1]])
        check(pa.DictionaryArray.from_arrays(indices, wrapped), [slots[3], None, slots[1]])
    ids = [bytes(range(16)), None, b"\xff" * 16]
    check(pa.ExtensionArray.from_storage(pa.uuid(), pa.array(ids, pa.binary(16))), ids)
    texts = ['{"a": 1}', None]
    check(pa.ExtensionArray.from_storage(pa.json_(), pa.array(texts)), [b'{"a": 1}', None])


def test_numbers_are_hashed_by_their_little_endian_bytes():
    for kind, code in INTS:
        low = -(1 << kind.bit_width - 1) if code.islower() else 0
        values = [0, 1, low, low + (1 << kind.bit_width) - 1, 77]
        check(pa.array(values, kind), [struct.pack("<" + code, v) for v in values])
    floats = [0.0, -0.0, 1.5, float("inf"), float("nan")]
    check(pa.array(floats), [struct.pack("<d", v) for v in floats])
    check(pa.array(floats, pa.float32()), [struct.pack("<f", v) for v in floats])


def test_null_arrays_have_no_hashes():
    assert hash_array(pa.nulls(4)).tolist() == []
    assert hash_array(pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.nulls(2))).tolist() == []


REFUSED = [
    pa.array([True, None]),
    pa.array([[1], None]),
    pa.array([[1]], pa.large_list(pa.int64())),
    pa.array([[1]], pa.list_(pa.int64(), 1)),
    pa.array([[1]], pa.list_view(pa.int64())),
    pa.array([{"a": 1}]),
    pa.array([{}], pa.struct([])),
    pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
    pa.RunEndEncodedArray.from_arrays([2, 4], [1, 2]),
    pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([True])),
    pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([[1]])),
    pa.ExtensionArray.from_storage(Wrapped(pa.bool_()), pa.array([True])),
]


def test_booleans_and_nested_arrays_are_refused():
    for array in REFUSED:
        for refused in (array, array.slice(0, 0), array.slice(1), pa.chunked_array([array])):
            with named(array.type), pytest.raises(TypeError, match="cannot hash"):
                hash_array(refused)


# --- buffers that others made ---------------------------------------------------------------------


def test_values_and_offsets_need_no_alignment():
    kinds = (pa.int64(), pa.int32(), pa.float64(), pa.binary(8), pa.binary(4), pa.binary(5))
    for shift, kind in product(range(1, 9), kinds):
        raw, width = np.random.default_rng(shift).bytes(8 * 20 + shift), kind.bit_width // 8
        array = pa.Array.from_buffers(kind, 20, [None, pa.py_buffer(memoryview(raw)[shift:])])
        check(array, [raw[shift + i * width : shift + (i + 1) * width] for i in range(20)])
    offsets = pa.py_buffer(memoryview(struct.pack("<x4i", 2, 2, 7, 9))[1:])  # which begin anywhere
    array = pa.Array.from_buffers(pa.binary(), 3, [None, offsets, pa.py_buffer(b"abcdefghi")])
    check(array, [b"", b"cdefg", b"hi"])


def test_offsets_outside_the_values_are_refused():
    # pyarrow checks the first and the last offset of a foreign array, and trusts those between.
    for offsets in ((0, 9, 3), (0, -1, 3), (1, 3, 2, 4), (0, 2**31 - 1, 4)):
        buffer = pa.py_buffer(struct.pack(f"<{len(offsets)}i", *offsets))
        array = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, buffer, pa.py_buffer(b"abcd")], 0)
        with named(offsets), pytest.raises(ValueError, match="outside"):
            hash_array(array)


# --- properties -----------------------------------------------------------------------------------

BLOBS = st.lists(st.none() | st.binary(max_size=80), max_size=30)


@settings(max_examples=30, deadline=None)
@given(BLOBS, st.integers(0, 30), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_any_slice_of_any_bytes(blobs, start, length, seed):
    wanted = blobs[start : start + length]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        array = pa.array(blobs, kind).slice(start, length)
        for name in ("xxh64", "murmur3"):
            assert hash_array(array, name, seed).tolist() == expected(wanted, name, seed)
            assert hash_array(array.dictionary_encode(), name, seed).tolist() == expected(wanted, name, seed)


# --- vectors --------------------------------------------------------------------------------------


def test_value_vectors():
    checked = 0
    for vector in json.loads(vector_file("value_vectors.json").read_text())["vectors"]:
        if "x" in vector:
            arrays = {bits: pa.array([vector["x"]], kind) for bits, kind in ((32, pa.int32()), (64, pa.int64()))}
            for bits, array in arrays.items():
                assert f"{hash_array(array)[0]:016x}" == vector[f"xxh64_int{bits}"]
                assert f"{hash_array(array, 'murmur3', SEED_2018)[0]:016x}" == vector[f"sbbf2018_int{bits}"]
        else:
            array = pa.array([vector["bytes"]])
            assert f"{hash_array(array)[0]:016x}" == vector["xxh64"]
            assert f"{hash_array(array, 'murmur3', SEED_2018)[0]:016x}" == vector["sbbf2018"]
        checked += 1
    assert checked >= 7  # four numbers and three texts


def test_mr2018_vectors():
    kinds = {"binary": pa.string(), "int64": pa.int64(), "double": pa.float64()}
    for vector in json.loads(vector_file("mr2018_vectors.json").read_text())["vectors"]:
        values = [float("nan") if v == "NaN" else v for v in vector["values"]]
        hashes = hash_array(pa.array(values, kinds[vector["type"]]), "murmur3", SEED_2018)
        assert [str(h) for h in hashes] == vector["hashes"]
    # The known hash of 2018.
    array = pa.array([bytes(range(8))], pa.binary())
    assert hash_array(array, "murmur3", SEED_2018).tolist() == [913737700387071329]
