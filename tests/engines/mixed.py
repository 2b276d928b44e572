"""Files of one data set by several writers: the same logical columns, each writer with physical types of its own.

Every file holds other values, and its bounds span those of all: only filters tell the files apart.
"""

from __future__ import annotations

import datetime as dt
import uuid
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from parquet_bloom.format.literals import as_literal, spelled

WRITERS = ("pyarrow", "duckdb", "polars", "datafusion", "fastparquet")
ROWS = 8  # a file
NOON = dt.datetime(2026, 1, 31, 12)


def _uuid(i: int) -> uuid.UUID:
    return uuid.UUID(int=(i << 120) + 12345)


# Column -> its type, and the value of each number: even numbers are stored, odd ones are in no file.
COLUMNS: dict[str, tuple[pa.DataType, Callable[[int], Any]]] = {
    "text": (pa.string(), lambda i: f"key {i:03}"),
    "category": (pa.dictionary(pa.int32(), pa.string()), lambda i: f"kind {i:03}"),
    "bytes": (pa.binary(), lambda i: bytes([i, 0, 255])),
    **{f"i{bits}": (getattr(pa, f"int{bits}")(), lambda i: i - 40) for bits in (8, 16, 32, 64)},
    **{f"u{bits}": (getattr(pa, f"uint{bits}")(), lambda i: i + 90) for bits in (8, 16, 32, 64)},
    "f16": (pa.float16(), lambda i: i / 2), "f32": (pa.float32(), lambda i: i / 2),
    "f64": (pa.float64(), lambda i: i / 2),
    "dec9": (pa.decimal128(9, 2), lambda i: Decimal(f"{i}.25")),
    "dec18": (pa.decimal128(18, 2), lambda i: Decimal(f"-{i}.25")),
    "dec38": (pa.decimal128(38, 2), lambda i: Decimal(f"{i}.50")),
    "day": (pa.date32(), lambda i: dt.date(2026, 1, 1) + dt.timedelta(i)),
    "time": (pa.time64("us"), lambda i: dt.time(12, 0, i % 60, i)),
    "ts_ms": (pa.timestamp("ms"), lambda i: NOON + dt.timedelta(milliseconds=i)),
    "ts": (pa.timestamp("us"), lambda i: NOON + dt.timedelta(microseconds=i)),
    "ts_ns": (pa.timestamp("ns"), lambda i: NOON + dt.timedelta(microseconds=i)),
    "at": (pa.timestamp("us", "UTC"), lambda i: (NOON + dt.timedelta(microseconds=i)).replace(tzinfo=dt.UTC)),
    "uid": (pa.uuid(), _uuid),
}  # fmt: skip

# What each writer makes of them; None: it has no such type. A single text: all agree.
_INT = ("INT32", "INT32 INTEGER(32, signed)", "INT32", "INT32", "INT32")
_FIXED, _TIME = "FIXED_LEN_BYTE_ARRAY", "INT64 TIMESTAMP"
PHYSICAL: dict[str, str | tuple[str | None, ...]] = {
    "text": "BYTE_ARRAY STRING", "category": "BYTE_ARRAY STRING", "bytes": "BYTE_ARRAY",
    "i8": "INT32 INTEGER(8, signed)", "i16": "INT32 INTEGER(16, signed)",
    "i32": _INT, "i64": tuple(name.replace("32", "64") for name in _INT),
    **{f"u{bits}": f"INT{max(32, bits)} INTEGER({bits}, unsigned)" for bits in (8, 16, 32, 64)},
    "f16": (f"{_FIXED}(2) FLOAT16", None, f"{_FIXED}(2) FLOAT16", f"{_FIXED}(2) FLOAT16", "FLOAT"),
    "f32": "FLOAT", "f64": "DOUBLE",
    "dec9": (f"{_FIXED}(4) DECIMAL(9, 2)", *["INT32 DECIMAL(9, 2)"] * 3, "DOUBLE"),
    "dec18": (f"{_FIXED}(8) DECIMAL(18, 2)", *["INT64 DECIMAL(18, 2)"] * 3, "DOUBLE"),
    "dec38": (*[f"{_FIXED}(16) DECIMAL(38, 2)"] * 4, "DOUBLE"),
    "day": (*["INT32 DATE"] * 4, None),
    "time": ("INT64 TIME(us)", "INT64 TIME(us)", "INT64 TIME(ns)", "INT64 TIME(us)", None),
    "ts_ms": f"{_TIME}(ms, no zone)", "ts": f"{_TIME}(us, no zone)", "ts_ns": f"{_TIME}(ns, no zone)",
    "at": f"{_TIME}(us, UTC)",
    "uid": (f"{_FIXED}(16) UUID", f"{_FIXED}(16) UUID", "BYTE_ARRAY", f"{_FIXED}(16)", None),
}  # fmt: skip


def numbers(writer: int) -> list[int]:
    """What the file of a writer holds: every value lies between the least and the greatest of all files."""
    return [2 * (writer + len(WRITERS) * row) for row in range(ROWS)]


def table(writer: int) -> pa.Table:
    """The rows of one file, and `row`, which counts through all files."""
    columns = {}
    for name, (kind, value) in COLUMNS.items():
        values = [value(i) for i in numbers(writer)]
        if kind == pa.uuid():
            columns[name] = pa.array([one.bytes for one in values], kind)
        elif kind == pa.float16():
            columns[name] = pa.array(np.array(values, np.float16))
        else:
            columns[name] = pa.array(values, kind)
    columns["row"] = pa.array([ROWS * writer + row for row in range(ROWS)])
    return pa.table(columns)


def _duckdb(rows: pa.Table, path: Path) -> None:
    connection = pytest.importorskip("duckdb").connect()
    connection.register("rows", rows)
    connection.execute(f"COPY rows TO '{path}' (FORMAT parquet)")


def _polars(rows: pa.Table, path: Path) -> None:
    pytest.importorskip("polars").from_arrow(rows).write_parquet(path)


def _datafusion(rows: pa.Table, path: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    context.from_arrow(rows).write_parquet(str(path))
    if path.is_dir():
        [part] = path.iterdir()
        part.rename(path.with_suffix(".part"))
        path.rmdir()
        path.with_suffix(".part").rename(path)


def _fastparquet(rows: pa.Table, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the pandas that it is with
        pytest.importorskip("fastparquet").write(str(path), rows.to_pandas())


WRITE: dict[str, Callable[[pa.Table, Path], None]] = {
    "pyarrow": lambda rows, path: pq.write_table(rows, path),
    "duckdb": _duckdb, "polars": _polars, "datafusion": _datafusion, "fastparquet": _fastparquet,
}  # fmt: skip


def described_of(writer: str, column: str) -> str | None:
    said = PHYSICAL[column]
    return said if isinstance(said, str) else said[WRITERS.index(writer)]


def text_of(column: str, i: int) -> str:
    return f"{column} = {spelled(as_literal(COLUMNS[column][1](i)))}"
