"""The filters of 2015 against the programs that had them, and against a twin written from the text alone."""

from __future__ import annotations

import json
import math
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import naive
from support.corpus import vector_file
from support.repeats import by_turns

from parquet_bloom.errors import FilterShapeError
from parquet_bloom.kernels import k_probe
from parquet_bloom.kernels.hashes import hash_array

BOTH_LOOPS = pytest.mark.usefixtures("loops")

STYLES = [("orc", "MURMUR128_32"), ("hive", "MURMUR128_32"), ("guava", "MURMUR128_32"), ("guava", "MURMUR128_64")]
KINDS = {"INT32": "integer", "INT64": "integer", "FLOAT": "float", "DOUBLE": "float", "BYTE_ARRAY": "bytes"}
ARROW = {"INT32": pa.int32(), "INT64": pa.int64(), "FLOAT": pa.float32(), "DOUBLE": pa.float64()}


def vectors(name: str) -> Any:
    return json.loads(vector_file(name).read_text())


def filled(rule: k_probe.KProbeRule, values: pa.Array, num_bits: int, k: int) -> np.ndarray[Any, Any]:
    longs = k_probe.empty(num_bits)
    k_probe.insert_hashes(longs, rule, k, rule.hash_values(values))
    return longs


# --- vectors ----------------------------------------------------------------------------------------

_ODD = {"NaN": math.nan, "-Infinity": -math.inf}
PR215 = {
    "int32": ("integer", lambda values: pa.array(values, pa.int32())),
    "double": ("float", lambda values: pa.array([_ODD.get(v, v) for v in values], pa.float64())),
    "binary(hex)": ("bytes", lambda values: pa.array([bytes.fromhex(v) for v in values], pa.binary())),
}


def plain(values: pa.Array) -> list[bytes]:
    formats = {pa.int32(): "<i", pa.int64(): "<q", pa.float64(): "<d"}
    if values.type in formats:
        return [struct.pack(formats[values.type], v) for v in values.to_pylist()]
    return [v.encode() if isinstance(v, str) else v for v in values.to_pylist()]


@BOTH_LOOPS
def test_pr_215_bit_for_bit() -> None:
    for vector in vectors("pr215_vectors.json")["vectors"]:
        kind, column = PR215[vector["type"]]
        size = k_probe.size_for("orc", vector["n"], vector["fpp"])
        assert size == (vector["numBits"], vector["numHashFunctions"])
        rule, values = k_probe.KProbeRule("orc", "MURMUR128_32", kind), column(vector["values"])
        longs = filled(rule, values, *size)
        assert longs.view(np.int64).tolist() == [int(v) for v in vector["bitset_longs"]]
        one_by_one = {p for v in plain(values) for p in k_probe.positions(rule, rule.hash_value(v), size[1], size[0])}
        assert longs.tolist() == naive.longs_of(one_by_one, size[0]), "without the compiler"
        for value, wanted in vector["probes"]:
            assert k_probe.contains_value(longs, rule, size[1], struct.pack("<i", value)) == wanted
            hashes = rule.hash_values(pa.array([value], pa.int32()))
            assert k_probe.contains_hashes(longs, rule, size[1], hashes).tolist() == [wanted]


@BOTH_LOOPS
def test_guava_bit_for_bit() -> None:
    for vector in vectors("guava_vectors.json")["vectors"]:
        size = k_probe.size_for("guava", vector["n"], vector["fpp"])
        assert size == (vector["bitSize"], vector["numHashFunctions"])
        kind = pa.int64() if vector["funnel"] == "longFunnel" else pa.string()
        rule = k_probe.KProbeRule("guava", vector["strategy"].replace("_MITZ", ""), "bytes")
        longs = filled(rule, pa.array(vector["values"], kind), *size)
        assert longs.view(np.int64).tolist() == [int(v) for v in vector["bitset_longs"]]
        probes = pa.array([value for value, _ in vector["probes"]], kind)
        wanted = [answer for _, answer in vector["probes"]]
        assert k_probe.contains_hashes(longs, rule, size[1], rule.hash_values(probes)).tolist() == wanted
        assert [k_probe.contains_value(longs, rule, size[1], p) for p in plain(probes)] == wanted


def test_sizes_of_both_programs() -> None:
    for n, fpp, k, num_bits in vectors("pr215_vectors.json")["sizing"]:
        assert k_probe.size_for("orc", n, fpp) == k_probe.size_for("hive", n, fpp) == (num_bits, k)
    for n, fpp, k, longs in vectors("guava_vectors.json")["sizing"]:
        assert k_probe.size_for("guava", n, fpp) == (64 * longs, k)


def test_single_values() -> None:
    """k = 4, m = 640, of every family and strategy."""
    for vector in vectors("value_vectors.json")["vectors"]:
        if "x" in vector:
            asked = [
                ("mitz32_int", "guava", "MURMUR128_32", "<i"), ("mitz32_long", "guava", "MURMUR128_32", "<q"),
                ("mitz64_int", "guava", "MURMUR128_64", "<i"), ("mitz64_long", "guava", "MURMUR128_64", "<q"),
                ("pr215_orc", "orc", "MURMUR128_32", "<i"), ("hive", "hive", "MURMUR128_32", "<q"),
            ]  # fmt: skip
            assert f"{k_probe.wang(vector['x']):016x}" == vector["wang"]
            spelled = [
                (name, family, strategy, "integer", struct.pack(f, vector["x"])) for name, family, strategy, f in asked
            ]
        else:
            data = vector["bytes"].encode()
            assert f"{k_probe.hive64(data):016x}" == vector["hive_hash64"]
            names = {"mitz32": STYLES[2], "mitz64": STYLES[3], "pr215_orc": STYLES[0], "hive": STYLES[1]}
            spelled = [(name, *style, "bytes", data) for name, style in names.items()]
        for name, family, strategy, kind, data in spelled:
            rule = k_probe.KProbeRule(family, strategy, kind)
            assert k_probe.positions(rule, rule.hash_value(data), 4, 640) == vector[name], name


# --- against the slow twin --------------------------------------------------------------------------

VALUES = {
    "INT32": st.integers(-(2**31), 2**31 - 1),
    "INT64": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats(),
    "BYTE_ARRAY": st.binary(max_size=40),
}


@BOTH_LOOPS
@settings(max_examples=200, deadline=None)  # the first call compiles
@given(style=st.sampled_from(STYLES), physical=st.sampled_from([*VALUES]), data=st.data())
def test_arrays_and_single_values_are_as_the_text_says(style: Any, physical: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(VALUES[physical], min_size=1, max_size=8))
    asked = data.draw(st.lists(VALUES[physical], max_size=8))
    k, m = data.draw(st.integers(1, 12)), 64 * data.draw(st.integers(1, 9))
    rule = k_probe.KProbeRule(*style, KINDS[physical])
    kind = ARROW.get(physical, pa.binary())
    plains = [naive.plain(v, physical) for v in values]
    positions = [naive.k_positions(p, physical, *style, k, m) for p in plains]
    assert [k_probe.positions(rule, rule.hash_value(p), k, m) for p in plains] == positions
    longs = filled(rule, pa.array(values, kind), m, k)
    assert longs.tolist() == naive.longs_of((p for one in positions for p in one), m)
    if physical != "BYTE_ARRAY":  # the same numbers, as bytes
        width = len(plains[0])
        for other in (pa.array(plains, pa.binary(width)), pa.array(plains, pa.large_binary())):
            assert filled(rule, other, m, k).tolist() == longs.tolist()
    set_bits = {p for one in positions for p in one}
    wanted = [set_bits.issuperset(naive.k_positions(naive.plain(v, physical), physical, *style, k, m)) for v in asked]
    found = k_probe.contains_hashes(longs, rule, k, rule.hash_values(pa.array(asked, kind)))
    assert found.tolist() == wanted
    assert [k_probe.contains_value(longs, rule, k, naive.plain(v, physical)) for v in asked] == wanted


@BOTH_LOOPS
def test_every_nan_is_one_to_orc_and_hive() -> None:
    """Java's doubleToLongBits folds them; Guava hashes the raw bits."""
    bits = np.array([0x7FF8000000000000, 0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF], np.uint64)
    for style in STYLES:
        rule = k_probe.KProbeRule(*style, "float")
        (hashes, *_) = rule.hash_values(pa.array(bits.view(np.float64)))
        assert len(set(hashes.tolist())) == (3 if style[0] == "guava" else 1)
        infinite = rule.hash_values(pa.array([math.inf, -math.inf, 0.0, -0.0]))[0].tolist()
        assert len({*infinite, int(hashes[0])}) == 5, "nothing else is folded"


@pytest.mark.parametrize(("style", "fpp"), by_turns(STYLES, (0.2, 0.05, 0.01)))
def test_the_rate_is_the_one_asked_for(style: Any, fpp: float) -> None:
    n, probes = 20_000, 200_000
    rng = np.random.default_rng(5)
    values = rng.choice(2**62, n + probes, replace=False)
    rule = k_probe.KProbeRule(*style, "integer")
    num_bits, k = k_probe.size_for(style[0], n, fpp)
    longs = filled(rule, pa.array(values[:n]), num_bits, k)
    assert k_probe.contains_hashes(longs, rule, k, rule.hash_values(pa.array(values[:n]))).all()
    measured = k_probe.contains_hashes(longs, rule, k, rule.hash_values(pa.array(values[n:]))).mean()
    spread = 5 * math.sqrt(fpp / probes)
    assert abs(measured - fpp) < 0.05 * fpp + spread, "as Guava and PR #215 measured themselves"
    assert abs(k_probe.fpp_of(longs, k) - measured) < 0.05 * fpp + spread
    assert abs(k_probe.estimated_ndv(longs, k) / n - 1) < 0.02


# --- shapes ----------------------------------------------------------------------------------------


def test_sizes_at_their_ends_and_those_that_no_filter_has() -> None:
    assert k_probe.size_for("orc", 10**9, 1e-9, 8 * 1024) == (8192, 1)
    assert k_probe.size_for("guava", 1, 0.9) == (64, 1), "Guava refuses a filter of no bits"
    assert k_probe.size_for("guava", 1, 1e-300)[1] == 255, "Guava writes k as one byte"

    for num_bits in (0, -64, 63, 65, 1 << 31):
        with pytest.raises(FilterShapeError, match=str(num_bits)):
            k_probe.empty(num_bits)


def test_no_filter_has_such_a_shape() -> None:
    rule, one = k_probe.KProbeRule("orc", "MURMUR128_32", "bytes"), np.zeros(1, np.uint64)
    shapes = [(one[:0], 1), (np.zeros(2, np.int64), 1), (np.zeros((2, 2), np.uint64), 1), (one, 0), (one, 2**31)]
    for longs, k in shapes:
        with pytest.raises(FilterShapeError):
            k_probe.contains_value(longs, rule, k, b"x")
        with pytest.raises(FilterShapeError):
            k_probe.contains_hashes(longs, rule, k, rule.hash_values(pa.array([b"x"])))


@BOTH_LOOPS
def test_numbers_of_another_width_are_refused() -> None:
    for values in (pa.array([1, 2], pa.int16()), pa.array([b"12345678", b"123"])):
        with pytest.raises(TypeError, match="only of 4 or 8"):
            hash_array(values, "wang")


@BOTH_LOOPS
def test_nulls_slices_and_dictionaries() -> None:
    values = pa.array([None, b"a", b"bb", None, b"", b"bb"])
    rule = k_probe.KProbeRule("orc", "MURMUR128_32", "bytes")
    wanted = [naive.hive_murmur64(v) for v in (b"a", b"bb", b"", b"bb")]
    assert rule.hash_values(values)[0].tolist() == wanted
    assert rule.hash_values(values.dictionary_encode())[0].tolist() == wanted
    assert rule.hash_values(values.slice(2))[0].tolist() == wanted[1:]


def test_a_single_value_is_probed_without_the_compiler() -> None:
    code = """
import sys, numpy as np
from parquet_bloom.kernels import k_probe
longs = k_probe.empty(128)
print(any(k_probe.contains_value(longs, k_probe.KProbeRule(*s, "bytes"), 3, b"x") for s in %r), "numba" in sys.modules)
""" % (STYLES,)  # noqa: UP031
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"
