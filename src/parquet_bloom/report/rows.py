"""Rows as text or files: table, csv, json, ndjson, parquet, arrow; batch by batch.

What a format cannot say is written as text: in JSON, times in ISO 8601, decimals in digits, bytes
in hex, and NaN and the infinities as null; in CSV, nested values as JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any

import pyarrow as pa
import pyarrow.types as pt

FORMATS = ("table", "csv", "json", "ndjson", "parquet", "arrow")
BINARY = ("parquet", "arrow")
SUFFIXES = {".csv": "csv", ".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet",
            ".arrow": "arrow", ".feather": "arrow", ".txt": "table"}  # fmt: skip


def write_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, form: str, out: IO[bytes]) -> int:
    """Write batches of one schema in a form of FORMATS; returns how many rows."""
    return _WRITERS[form](batches, schema, out)


def limited(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows; None: all."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left > 0:
            yield batch.slice(0, left)
            left -= min(left, batch.num_rows)
        if left == 0:
            return


def _table(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: IO[bytes]) -> int:
    import io

    from parquet_bloom.report.tables import print_table

    rows: list[list[str]] = []
    for batch in batches:
        columns = [["" if v is None else _shown(v) for v in _values(column)] for column in batch.columns]
        rows += map(list, zip(*columns, strict=True))
    right = [i for i, kind in enumerate(schema.types) if pt.is_integer(kind) or pt.is_floating(kind)]
    text = io.StringIO()
    print_table(schema.names, rows, right, text)
    out.write(text.getvalue().encode("utf-8", "replace"))
    return len(rows)


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _ndjson(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: IO[bytes]) -> int:
    total = 0
    for batch in batches:
        for line in _documents(batch):
            out.write(line + b"\n")
        total += batch.num_rows
        out.flush()
    return total


def _json(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: IO[bytes]) -> int:
    total = 0
    out.write(b"[")
    for batch in batches:
        for line in _documents(batch):
            out.write((b",\n " if total else b"\n ") + line)
            total += 1
    out.write(b"\n]\n" if total else b"]\n")
    return total


def _documents(batch: pa.RecordBatch) -> Iterator[bytes]:
    names = batch.schema.names
    for row in zip(*map(_values, batch.columns), strict=True):
        yield json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _values(array: pa.Array) -> list[Any]:
    """A column as JSON has it."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray) and not isinstance(kind, pa.UuidType):
        array, kind = array.storage, kind.storage_type
    if pt.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_time(kind):
        array = array.cast(pa.string())  # Python's own types have no nanoseconds
    elif pt.is_duration(kind):
        array = array.cast(pa.int64())
    return [_plain(v) for v in array.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: IO[bytes]) -> int:
    from pyarrow import csv

    flat = pa.schema([(field.name, _csv_type(field.type)) for field in schema])
    total = 0
    with csv.CSVWriter(pa.PythonFile(out, "w"), flat) as writer:
        for batch in batches:
            columns = [_csv_column(c, k) for c, k in zip(batch.columns, flat.types, strict=True)]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=flat))
            total += batch.num_rows
    return total


def _csv_type(kind: pa.DataType) -> pa.DataType:
    plain = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind) or pt.is_string(kind)
    return kind if plain and not pt.is_float16(kind) else pa.string()


def _csv_column(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    texts = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in _values(array)]
    return pa.array(texts, pa.string())


def _parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: IO[bytes]) -> int:
    import pyarrow.parquet as pq

    total = 0
    with pq.ParquetWriter(pa.PythonFile(out, "w"), schema) as writer:
        held: list[pa.RecordBatch] = []
        for batch in batches:
            held.append(batch)
            total += batch.num_rows
            if sum(b.num_rows for b in held) >= 1 << 20:
                writer.write_table(pa.Table.from_batches(held, schema))
                held = []
        if held or not total:
            writer.write_table(pa.Table.from_batches(held, schema))
    return total


def _arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: IO[bytes]) -> int:
    total = 0
    with pa.ipc.new_stream(out, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            total += batch.num_rows
    return total


_WRITERS: dict[str, Callable[[Iterable[pa.RecordBatch], pa.Schema, IO[bytes]], int]] = {
    "table": _table,
    "csv": _csv,
    "json": _json,
    "ndjson": _ndjson,
    "parquet": _parquet,
    "arrow": _arrow,
}

__all__ = ["BINARY", "FORMATS", "SUFFIXES", "limited", "write_rows"]
