"""Random tables, random filters, brute force: a row group that holds the value is never skipped."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.samples import digest

import parquet_bloom
from parquet_bloom import Draft2015
from parquet_bloom.filters.stored import StoredFilters
from parquet_bloom.format.literals import Instant
from parquet_bloom.format.values import operand
from parquet_bloom.storage.open_file import OpenFile

EPOCH = dt.datetime(1970, 1, 1)
NAIVE = st.datetimes(dt.datetime(1680, 1, 1), dt.datetime(2260, 1, 1))
FLOATS = st.floats(allow_nan=False) | st.sampled_from([0.0, -0.0, float("inf"), 5e-324])


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return st.integers(low, high) | st.integers(max(low, -3), 3) | st.sampled_from([low, high])


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    # From digits: arithmetic would round to the context's 28.
    return st.integers(-top, top).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    **{f"int{b}": (getattr(pa, f"int{b}")(), integers(b, True)) for b in (8, 16, 32, 64)},
    **{f"uint{b}": (getattr(pa, f"uint{b}")(), integers(b, False)) for b in (8, 16, 32, 64)},
    "float64": (pa.float64(), FLOATS),
    "float32": (pa.float32(), st.floats(width=32, allow_nan=False) | st.sampled_from([0.0, -0.0])),
    "float16": (pa.float16(), st.floats(width=16, allow_nan=False).map(np.float16)),
    "string": (pa.string(), st.text(max_size=8)),
    "binary": (pa.binary(), st.binary(max_size=40)),
    "fixed": (pa.binary(5), st.binary(min_size=5, max_size=5)),
    "decimal9": (pa.decimal128(9, 3), decimals(9, 3)),
    "decimal18": (pa.decimal128(18, 0), decimals(18, 0)),
    "decimal38": (pa.decimal128(38, 20), decimals(38, 20)),
    "date": (pa.date32(), st.dates()),
    "time": (pa.time64("us"), st.times()),
    "timestamp_us": (pa.timestamp("us"), NAIVE),
    "timestamp_utc": (pa.timestamp("us", "UTC"), NAIVE.map(lambda t: t.replace(tzinfo=dt.UTC))),
}


FORMS = [
    "final", "parquet-41", "parquet-41-early", "parquet-41-raw",
    "statistics", Draft2015("hive"), Draft2015("guava"), Draft2015("guava", "MURMUR128_32"),
]  # fmt: skip


PLACES: list[dict[str, Any]] = [  # of final
    {}, {"placement": "chunk-start"}, {"placement": "tail"}, {"placement": "tail", "append": True},
]  # fmt: skip


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, list[list[Any]], list[Any], dict[str, Any]]:
    """A kind, its values by row group (with nulls), values to ask for, and options of writer and add."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    value = KINDS[kind][1]
    groups = draw(st.lists(st.lists(st.none() | value, max_size=12), min_size=1, max_size=4))
    asked = draw(st.lists(value, max_size=4))
    options = {
        "shape": draw(st.sampled_from(["flat", "list", "struct"])),
        "form": draw(st.sampled_from(FORMS)),
        "place": draw(st.sampled_from(PLACES)),
        "dictionary": draw(st.booleans()),
        "version": draw(st.sampled_from(["1.0", "2.0"])),
        "index": draw(st.booleans()),
        "fpp": draw(st.sampled_from([0.4, 0.05, 0.001])),
        "forget": draw(st.booleans()),
    }
    return kind, groups, asked, options


def column(kind: pa.DataType, values: list[Any], shape: str) -> pa.Array:
    array = pa.array(values, kind)
    if shape == "struct":
        absent = pa.array([i % 5 == 4 for i in range(len(array))], pa.bool_())
        return pa.StructArray.from_arrays([array], ["v"], mask=absent)
    if shape == "list":
        cuts = sorted({0, len(array) // 3, len(array)})
        return pa.ListArray.from_arrays(pa.array(cuts, pa.int32()), array)
    return array


def stored(array: pa.Array, shape: str) -> list[Any]:
    """The values that a reader sees, by brute force over Python objects."""
    rows = array.to_pylist()
    if shape == "struct":
        rows = [row["v"] for row in rows if row is not None]
    elif shape == "list":
        rows = [value for row in rows if row is not None for value in row]
    return [value for value in rows if value is not None]


def literal(value: Any) -> Any:
    return float(value) if isinstance(value, np.floating) else value


@pytest.mark.smoke
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(cases())
def test_no_row_is_lost(case: tuple[str, list[list[Any]], list[Any], dict[str, Any]]) -> None:
    kind, groups, asked, options = case
    data_type = KINDS[kind][0]
    arrays = [column(data_type, values, options["shape"]) for values in groups]
    name = {"flat": "c", "list": "c.list.element", "struct": "c.v"}[options["shape"]]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.parquet"
        with pq.ParquetWriter(
            path, pa.schema({"c": arrays[0].type}), use_dictionary=options["dictionary"],
            data_page_version=options["version"], write_page_index=options["index"],
        ) as writer:  # fmt: skip
            for array in arrays:
                writer.write_table(pa.table({"c": array}), row_group_size=max(1, len(array)))
        before = digest(path)
        expected = pq.read_table(path)
        parquet_bloom.add_filters(
            path, in_place=True, columns=[name], fpp=options["fpp"], sync=False,
            form=options["form"],
            **(options["place"] if options["form"] == "final" else {}),
        )  # fmt: skip
        with OpenFile(path) as source:
            footer = source.footer()
            leaf = footer.leaves[0]
            filters = StoredFilters(source)
            if options["forget"]:
                filters._ranges._rules.clear()  # as if another program had dropped our key-value
            values = [stored(array, options["shape"]) for array in arrays]
            assert footer.n_row_groups == len(values)
            for group, held in enumerate(values):
                here = filters.of(group, leaf)
                assert len(here) <= 1, "a chunk gets one filter, of whatever form"
                for value in {repr(v): v for v in [*asked, *held]}.values():
                    encoded = operand(literal(value), leaf)
                    if encoded.probes is None or not here:
                        continue
                    admitted = any(map(here[0].might_contain, encoded.probes))
                    assert admitted or value not in held, f"{value!r} is stored in row group {group} of {kind}"
        assert all(f.status == "right" for f in parquet_bloom.verify(path).files[0].filters)
        assert repr(pq.read_table(path).to_pylist()) == repr(expected.to_pylist())
        parquet_bloom.remove_filters(path, in_place=True, sync=False)
        assert digest(path) == before


@given(NAIVE)
def test_a_datetime_is_the_instant_it_names(value: dt.datetime) -> None:
    from parquet_bloom.format.literals import as_literal

    assert as_literal(value) == Instant((value - EPOCH) // dt.timedelta(microseconds=1) * 1000, utc=False)
