"""Rows as text or files: table, csv, json, ndjson, parquet, arrow; batch by batch.

What a format cannot say is written as text: in JSON, times as RFC 3339 has them (without a zone where the column
has none), decimals in digits, bytes in hex, and NaN and the infinities as null; in CSV, nested values as JSON.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import IO, Any

import pyarrow as pa
import pyarrow.types as pt

from parquet_bloom.errors import RequestError, first_line
from parquet_bloom.report.text import (
    ELLIPSIS,
    UNBOUNDED,
    cells,
    inert_lines,
    json_text,
    shortened,
    shortened_names,
    table_lines,
    visible,
)

BINARY = ("parquet", "arrow")
SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "table",
}

_GAP = 3  # columns of the terminal between two of a table
_LEAST = 12  # that a text or a heading keeps at least


def write_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, form: str, out: IO[bytes]) -> int:
    """Write batches of one schema as table, csv, json, ndjson, parquet or arrow; returns how many rows."""
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


@dataclass(frozen=True, slots=True)
class Table:
    """Rows laid out as a table.

    rows     how many
    columns  how many of all columns are shown
    cut      some cell or heading is shown in part
    """

    text: str
    rows: int
    columns: int
    cut: bool


def table_of(batches: Iterable[pa.RecordBatch], schema: pa.Schema, width: int | None = None) -> Table:
    """Lay out rows as a table of at most `width` columns of a terminal; None: as wide as they are.

    Texts that are too long end in an ellipsis, names of columns lose their middle, numbers and times are never cut.
    Columns of the data for which there is no room are left out in the middle.
    """
    rows: list[list[str]] = []
    for batch in batches:
        columns = [["" if v is None else _shown(v) for v in _cells(column)] for column in batch.columns]
        rows += map(list, zip(*columns, strict=True))
    names = [visible(name) for name in schema.names]
    right = {i for i, kind in enumerate(schema.types) if pt.is_integer(kind) or pt.is_floating(kind)}
    whole = {i for i, kind in enumerate(schema.types) if pt.is_primitive(kind)}  # numbers, times, decimals
    natural = [
        max(cells(name), *(cells(row[i]) for row in rows)) if rows else cells(name) for i, name in enumerate(names)
    ]
    width = min(width or UNBOUNDED, sum(natural) + _GAP * len(natural))
    least = [
        max([min(cells(names[i]), _LEAST), *(cells(row[i]) for row in rows)]) if i in whole else min(n, _LEAST)
        for i, n in enumerate(natural)
    ]
    chosen = _fitting(least, width)
    widths = _grown({i: least[i] for i in chosen}, natural, width - _GAP * (len(chosen) - 1))
    cut = any(widths[i] < natural[i] for i in chosen)
    left_out = len(chosen) < len(names)
    middle = next((k for k, (a, b) in enumerate(pairwise(chosen), 1) if b > a + 1), len(chosen))

    def line(shown: list[str]) -> list[str]:
        return [*shown[:middle], ELLIPSIS, *shown[middle:]] if left_out else shown

    head = line(shortened_names([names[i] for i in chosen], [widths[i] for i in chosen]))
    body = [line([shortened(row[i], widths[i]) for i in chosen]) for row in rows]

    order = [*chosen[:middle], -1, *chosen[middle:]] if left_out else chosen
    aligned = [k for k, i in enumerate(order) if i in right]
    if not order:
        return Table("", len(rows), 0, False)
    lines = table_lines(head, body, aligned, (), width)
    return Table(inert_lines(lines) + "\n", len(rows), len(chosen), cut)


def _fitting(least: Sequence[int], width: int) -> list[int]:
    """The columns that fit, from both ends in turn; at least the first."""
    order = [i for pair in zip(range(len(least)), reversed(range(len(least))), strict=True) for i in pair]
    order = list(dict.fromkeys(order))
    if sum(least) + _GAP * (len(least) - 1) <= width:
        return sorted(order)
    chosen: list[int] = order[:1]
    used = sum(least[i] for i in chosen) + _GAP + 1  # and the column of the ellipsis
    for i in order[1:]:
        if used + _GAP + least[i] > width:
            break
        used += _GAP + least[i]
        chosen.append(i)
    return sorted(chosen)


def _grown(widths: dict[int, int], natural: Sequence[int], room: int) -> dict[int, int]:
    """Share the remaining room: the narrowest column that wants more gets it."""
    room -= sum(widths.values()) + (_GAP + 1 if len(widths) < len(natural) else 0)
    while room > 0 and (wanting := [i for i in widths if widths[i] < natural[i]]):
        widths[min(wanting, key=lambda i: widths[i])] += 1
        room -= 1
    return widths


def _table(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: IO[bytes]) -> int:
    table = table_of(batches, schema)
    out.write(table.text.encode("utf-8", "replace"))
    return table.rows


def _shown(value: Any) -> str:
    return visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


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
    for row in zip(*map(json_values, batch.columns), strict=True):
        yield json_text(dict(zip(names, row, strict=True))).encode()


def json_values(array: pa.Array) -> list[Any]:
    """A column as JSON has it: timestamps as RFC 3339 writes them."""
    kind = array.type.storage_type if _is_stored_otherwise(array) else array.type
    values = _values(array)
    return values if _without_times(kind) == kind else [_rfc3339(v, kind) for v in values]


def _cells(array: pa.Array) -> list[Any]:
    """A column as tables and CSV have it: times as Arrow writes them, nested values as JSON has them."""
    return json_values(array) if pt.is_nested(array.type) else _values(array)


def _rfc3339(value: Any, kind: pa.DataType) -> Any:
    """A value of _values(), its timestamps from Arrow's format: 2026-01-31 12:00:00.000+0100."""
    if value is None:
        return None
    if pt.is_timestamp(kind):
        if value.startswith("<"):  # "<value out of range: 9223372036854775807>", as of DuckDB's infinity
            return value
        return re.sub(r"([+-][0-9]{2})([0-9]{2})$", r"\1:\2", value.replace(" ", "T", 1))
    if pt.is_dictionary(kind):
        return _rfc3339(value, kind.value_type)
    if pt.is_struct(kind):
        return {field.name: _rfc3339(value[field.name], field.type) for field in kind}
    if pt.is_map(kind):
        return [[_rfc3339(key, kind.key_type), _rfc3339(item, kind.item_type)] for key, item in value]
    if _is_list(kind):
        return [_rfc3339(item, kind.value_type) for item in value]
    return value


def _values(array: pa.Array) -> list[Any]:
    """A column as Python values of JSON's kinds, times as Arrow writes them: Python's have fewer years."""
    if _is_stored_otherwise(array):
        array = array.storage
    kind = _without_times(array.type)
    return [_plain(v) for v in (array if kind == array.type else array.cast(kind)).to_pylist()]


def _is_stored_otherwise(array: pa.Array) -> bool:
    return isinstance(array, pa.ExtensionArray) and not isinstance(array.type, pa.UuidType)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with texts in the place of times at any depth, and integers in the place of durations."""
    if pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_time(kind):
        return pa.string()
    if pt.is_duration(kind):
        return pa.int64()
    inside = [kind.field(i) for i in range(kind.num_fields)] if pt.is_nested(kind) else []
    if pt.is_dictionary(kind):
        changed = _without_times(kind.value_type)
        return kind if changed == kind.value_type else changed
    if all(_without_times(field.type) == field.type for field in inside):
        return kind
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in inside])
    if pt.is_map(kind):
        return pa.map_(_without_times(kind.key_type), _without_times(kind.item_type))
    if _is_list(kind):
        item = _without_times(kind.value_type)
        if pt.is_fixed_size_list(kind):
            return pa.list_(item, kind.list_size)
        return (pa.list_ if pt.is_list(kind) else pa.large_list)(item)
    return kind


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
    texts = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in _cells(array)]
    return pa.array(texts, pa.string())


def _parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, out: IO[bytes]) -> int:
    import pyarrow.parquet as pq

    total = 0
    try:
        opened = pq.ParquetWriter(pa.PythonFile(out, "w"), schema)
    except pa.ArrowNotImplementedError as error:  # such as of a struct without fields, which a table may have
        raise RequestError(f"these columns cannot be written as Parquet: {first_line(error)}") from error
    with opened as writer:
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

__all__ = ["BINARY", "SUFFIXES", "limited", "write_rows"]
