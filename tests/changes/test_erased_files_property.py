"""Random files lose the rows of random keys: equal to brute force, and all that should stay as it was does."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from changes.erased import erase, rows_of
from support.repeats import first_then_more

import parquet_bloom

SEEDS = 60
Rng = random.Random
EPOCH = datetime(2026, 1, 1)

# Values of each type: of few or of many, so that dictionaries and plain pages come.
KINDS: dict[str, tuple[pa.DataType, Callable[[Rng], Any]]] = {
    "bool": (pa.bool_(), lambda r: r.random() < 0.5),
    "int8": (pa.int8(), lambda r: r.randint(-9, 9)),
    "int32": (pa.int32(), lambda r: r.randint(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), lambda r: r.randint(-(2**63), 2**63 - 1)),
    "uint32": (pa.uint32(), lambda r: r.randint(2**31 - 5, 2**32 - 1)),
    "uint64": (pa.uint64(), lambda r: r.randint(2**63 - 5, 2**64 - 1)),
    "float": (pa.float32(), lambda r: r.choice([0.0, -0.0, r.random(), float("inf")])),
    "double": (pa.float64(), lambda r: r.choice([0.0, -0.0, r.random(), float("nan")])),
    "half": (pa.float16(), lambda r: r.choice([0.0, 1.5, -2.0])),
    "text": (pa.string(), lambda r: r.choice(["", "a", "ä", "x" * r.randint(1, 300)]) + str(r.randint(0, 99))),
    "bytes": (pa.binary(), lambda r: r.randbytes(r.randint(0, 9))),
    "fixed": (pa.binary(7), lambda r: r.randbytes(7)),
    "decimal": (pa.decimal128(20, 3), lambda r: Decimal(r.randint(-(10**19), 10**19)).scaleb(-3)),
    "small_decimal": (pa.decimal128(8, 2), lambda r: Decimal(r.randint(-(10**7), 10**7)).scaleb(-2)),
    "date": (pa.date32(), lambda r: date(2026, 1, 1) + timedelta(r.randint(-9999, 9999))),
    "time": (pa.time64("us"), lambda r: time(r.randint(0, 23), 1, 2, r.randint(0, 999_999))),
    "timestamp": (pa.timestamp("us", "UTC"), lambda r: (EPOCH + timedelta(0, r.randint(0, 10**9))).replace(tzinfo=UTC)),
    "nanoseconds": (pa.timestamp("ns"), lambda r: EPOCH + timedelta(0, r.randint(0, 10**9), r.randint(0, 999_999))),
    "null": (pa.null(), lambda r: None),
}
KEYS = ["int8", "int32", "int64", "uint32", "uint64", "text", "bytes", "fixed", "decimal", "date", "timestamp"]
DELTA = {"int32": "DELTA_BINARY_PACKED", "int64": "DELTA_BINARY_PACKED", "text": "DELTA_BYTE_ARRAY"}
OTHER = {"text": "DELTA_LENGTH_BYTE_ARRAY", "bytes": "DELTA_LENGTH_BYTE_ARRAY", "fixed": "DELTA_BYTE_ARRAY"}
SPLIT = dict.fromkeys(["float", "double", "int64", "fixed"], "BYTE_STREAM_SPLIT")


def column(rng: Rng, kind: str, rows: int, nulls: float) -> pa.Array:
    """Random values, some of them several times."""
    type_, make = KINDS[kind]
    pool = [make(rng) for _ in range(rng.choice([1, 3, 50, rows or 1]))]
    return pa.array([None if rng.random() < nulls else rng.choice(pool) for _ in range(rows)], type_)


def write(rng: Rng, path: Path) -> str:
    """A random file; returns the name of its key."""
    key = rng.choice(KEYS)
    names = [key, *rng.sample([kind for kind in KINDS if kind != key], rng.randint(1, 6))]
    rng.shuffle(names)
    rows = rng.choice([1, 40, 300, 900])
    nulls = {name: rng.choice([0, 0, 0.2, 0.9]) for name in names}
    arrays = [column(rng, name, rows, nulls[name]) for name in names]
    required = {
        name: not array.null_count and name != "null" and rng.random() < 0.3
        for name, array in zip(names, arrays, strict=True)
    }
    schema = pa.schema([pa.field(name, KINDS[name][0], not required[name]) for name in names])
    table = pa.table(arrays, schema=schema)
    encodings = {n: rng.choice([DELTA, OTHER, SPLIT]).get(n, "PLAIN") for n in names if rng.random() < 0.5}
    encodings = {name: encoding for name, encoding in encodings.items() if name != "half"}
    options: dict[str, Any] = {
        "compression": {name: rng.choice(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]) for name in names},
        "use_dictionary": [name for name in names if name not in encodings and name != "bool" and rng.random() < 0.6],
        "column_encoding": encodings or None,
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "version": rng.choice(["1.0", "2.6"]) if "nanoseconds" not in names and "uint32" not in names else "2.6",
        "write_statistics": rng.choice([True, True, False, names[:1]]),
        "write_page_index": rng.random() < 0.5,
        "write_page_checksum": rng.random() < 0.3,
        "data_page_size": rng.choice([64, 1 << 20]),
        "write_batch_size": rng.choice([7, 1024]),
        "store_schema": rng.random() < 0.5,
        "sorting_columns": [pq.SortingColumn(0)] if rng.random() < 0.2 else None,
    }
    size = rng.choice([rows, max(1, rows // 3), max(1, rows // 7)])
    with pq.ParquetWriter(path, schema, **options) as writer:
        for at in range(0, rows, size):
            writer.write_table(table.slice(at, size))
            if rng.random() < 0.1:
                writer.write_table(table.slice(0, 0), row_group_size=1)
    return key


def add_some_filters(rng: Rng, path: Path, key: str) -> None:
    forms: list[dict[str, Any]] = [
        {},
        {"placement": "tail"},
        {"placement": "chunk-start"},
        {"form": "parquet-41"},
        {"form": "parquet-41-raw"},
        {"form": "parquet-41-early"},
        {"form": "statistics"},
    ]
    for _ in range(rng.randint(0, 2)):
        options = rng.choice(forms)
        index = rng.random() < 0.3
        columns = rng.choice([[key], ["*"], None])
        with_index = {"page_index": True} if index else {}
        parquet_bloom.add_filters(path, in_place=True, columns=columns, sync=False, **options, **with_index)


@pytest.mark.parametrize("seed", first_then_more(range(SEEDS), 10))
def test_random_files(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "a.parquet"
    key = write(rng, path)
    add_some_filters(rng, path, key)
    for _ in range(rng.randint(1, 3)):
        stored = pq.ParquetFile(path).read()[key].combine_chunks().drop_null().unique()
        few = rng.sample(range(len(stored)), min(len(stored), rng.choice([0, 1, 2, 2, 30])))
        keys = stored.take(pa.array(few, pa.int64()))
        absent = column(rng, key, 3, 0)
        keys = pa.concat_arrays([keys, absent]).unique()
        erase(path, key, keys)
        rest = pq.ParquetFile(path).read()
        for value in {repr(v): v for v in rest[key].drop_null().to_pylist()[:5]}.values():
            predicate = parquet_bloom.read_table(path, _equals(key, value))
            assert rows_of(predicate) == [
                row for row in rows_of(rest) if row[rest.column_names.index(key)] == repr(value)
            ]
    assert parquet_bloom.remove_filters(path, in_place=True, sync=False, all_writers=True)
    assert rows_of(pq.ParquetFile(path).read()) == rows_of(rest)


def _equals(name: str, value: Any) -> Any:
    return pc.field(name) == pa.scalar(value, KINDS[name][0])
