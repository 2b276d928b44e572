"""Random files by several writers: all kinds of columns, few distinct values, nulls, small row groups and pages."""

from __future__ import annotations

import datetime as dt
import warnings
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import parquet_bloom

EPOCH = dt.date(1970, 1, 1)
FLOATS = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 0.5, -2.25, 1e300, 5e-324, 3.0)
WORDS = ("", "a", "ab", "abc", "b", "é", "z", "\U0001f600", "it's", "long " * 9, "long " * 9 + "x")
TYPES: dict[str, pa.DataType] = {
    "i32": pa.int32(), "i64": pa.int64(), "u32": pa.uint32(), "f64": pa.float64(), "f32": pa.float32(),
    "s": pa.string(), "d": pa.date32(), "ts": pa.timestamp("us"), "dec": pa.decimal128(12, 3), "b": pa.bool_(),
    "st": pa.struct([("v", pa.int64())]), "l": pa.list_(pa.int32()),
}  # fmt: skip
WRITERS = ("pyarrow", "pyarrow", "pyarrow", "pyarrow", "Polars", "DuckDB")


@dataclass
class LabFile:
    """A file and what is in it.

    values  column -> its values: int, float, str, bool, Decimal, None; days of dates, microseconds of
            timestamps; of `st` those of its field v, of `l` lists
    groups  rows of each row group
    """

    path: Path
    writer: str
    spec: str  # of our filters; empty without any
    values: dict[str, list[Any]]
    groups: list[int]


def lab_file(seed: int, folder: Path, nan: bool = True) -> LabFile:
    """The same file for the same seed; `nan` says whether there may be NaN."""
    rng = Random(seed)
    writer = rng.choice(WRITERS)
    rows = rng.choice([1, 40, 90, 200]) if writer != "DuckDB" else rng.choice([100, 2048 + 300, 2 * 2048 + 77])
    names = rng.sample(list(TYPES), rng.randint(3, 7))
    values = {name: _values(rng, name, rows, nan) for name in names}
    table = pa.table({"row": pa.array(range(rows), pa.int32()), **{name: _array(name, values[name]) for name in names}})
    path = folder / f"{seed}.parquet"
    _WRITE[writer](rng, table, path)
    try:
        pq.read_table(path)
    except OSError:  # DELTA_BINARY_PACKED with nulls as DuckDB 2.0 writes it: pyarrow 26 does not decode some of it
        writer = "pyarrow"
        _WRITE[writer](rng, table, path)
    spec = _add(rng, path, names) if rng.random() < 0.85 else ""
    groups = [pq.read_metadata(path).row_group(i).num_rows for i in range(pq.read_metadata(path).num_row_groups)]
    return LabFile(path, writer, spec, values, groups)


def pool(rng: Random, name: str, nan: bool = True) -> list[Any]:
    """Some values of a column's type that lie close together."""
    base = rng.choice([0, 0, 100, -50])
    near = [base + k for k in rng.sample(range(60), rng.choice([2, 5, 12, 40]))]
    match name:
        case "i32":
            return [*near, *rng.sample([2**31 - 1, -(2**31), 0], 1)]
        case "i64" | "st":
            return [*near, *rng.sample([2**63 - 1, -(2**63), 2**53 + 1, 0], 1)]
        case "u32":
            return [abs(k) for k in near] + rng.sample([2**32 - 1, 2**31, 0], 1)
        case "f64" | "f32":
            some = [k / 4 for k in near] + rng.sample(FLOATS, 3)
            some = [v for v in some if nan or v == v]
            return some if name == "f64" else [v for v in some if v not in (1e300, 5e-324)]
        case "s":
            return [f"k{k:03d}" for k in near] + rng.sample(WORDS, 3)
        case "d":
            return [18_000 + k for k in near] + rng.sample([-1, 0, -141_000], 1)
        case "ts":
            return [1_700_000_000_000_000 + k * rng.choice([1, 10**6]) for k in near]
        case "dec":
            return [Decimal(k).scaleb(-3) for k in near] + rng.sample([Decimal("999999999.999"), Decimal(0)], 1)
        case "b":
            return [True, False]
        case _:
            return [abs(k) for k in near]


def _values(rng: Random, name: str, rows: int, nan: bool) -> list[Any]:
    some = pool(rng, name, nan)
    nulls = rng.choice([0.0, 0.0, 0.1, 0.6, 1.0 if rng.random() < 0.2 else 0.3])
    if name == "l":
        return [
            None if rng.random() < nulls else [rng.choice([*some, None]) for _ in range(rng.choice([0, 1, 3]))]
            for _ in range(rows)
        ]
    made = [None if rng.random() < nulls else rng.choice(some) for _ in range(rows)]
    if rng.random() < 0.4:  # in order, so that bounds say something
        made.sort(key=lambda v: (v is None, v if v == v else 0) if v is not None else (True, 0))
    return made


def _array(name: str, values: list[Any]) -> pa.Array:
    kind = TYPES[name]
    if name == "st":
        return pa.StructArray.from_arrays([pa.array(values, pa.int64())], ["v"])
    if name in ("d", "ts"):
        return pa.array(values, pa.int32() if name == "d" else pa.int64()).cast(kind)
    return pa.array(values, kind)


def _by_pyarrow(rng: Random, table: pa.Table, path: Path) -> None:
    dictionary = rng.random() < 0.5
    encodings: dict[str, Any] = {}
    if not dictionary and rng.random() < 0.6:
        fitting = {
            "i32": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"], "i64": ["DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
            "s": ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"], "f64": ["BYTE_STREAM_SPLIT"],
            "b": ["RLE"],
        }  # fmt: skip
        chosen = {n: rng.choice(fitting[n]) for n in table.column_names if n in fitting}
        encodings = {"column_encoding": chosen} if chosen else {}
    pq.write_table(
        table, path, row_group_size=rng.choice([7, 30, 64, 500]), use_dictionary=dictionary,
        data_page_size=rng.choice([64, 1 << 20]), data_page_version=rng.choice(["1.0", "2.0"]),
        compression=rng.choice(["none", "snappy", "zstd", "gzip"]), write_page_index=rng.random() < 0.4,
        write_statistics=rng.random() < 0.85, store_decimal_as_integer=rng.random() < 0.5, **encodings,
    )  # fmt: skip


def _by_polars(rng: Random, table: pa.Table, path: Path) -> None:
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(
        path, row_group_size=rng.choice([10, 50, 500]), compression=rng.choice(["uncompressed", "zstd", "lz4"]),
        statistics=rng.random() < 0.8,
    )  # fmt: skip


def _by_duckdb(rng: Random, table: pa.Table, path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("t", table)
        version, codec = rng.choice(["V1", "V2"]), rng.choice(["snappy", "zstd", "uncompressed"])
        how = f"FORMAT parquet, ROW_GROUP_SIZE 2048, PARQUET_VERSION {version}, COMPRESSION {codec}"
        connection.execute(f"COPY (SELECT * FROM t ORDER BY row) TO '{path}' ({how})")


_WRITE = {"pyarrow": _by_pyarrow, "Polars": _by_polars, "DuckDB": _by_duckdb}


def _add(rng: Random, path: Path, names: list[str]) -> str:
    spec = rng.choice(["final", "final", "final", "final", "parquet-41", "parquet-41-raw", "statistics"])
    columns = [n for n in names if n != "b" and rng.random() < 0.8]
    if not columns:
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        parquet_bloom.add_filters(
            path, in_place=True, columns=columns, spec=spec, sync=False, threads=1, replace=rng.random() < 0.5,
            fpp=rng.choice([0.3, 0.05, 0.001]),
            placement=rng.choice([None, "chunk-start", "tail"]) if spec == "final" else None,
        )  # fmt: skip
    return spec
