"""Source files for the engine tests, written by pyarrow: every type, every codec, every page layout.

The values are those of the fixtures (fixtures/writers/data.py): one column a case, drawn over the
whole width of its type, so that min and max exclude nothing and only filters tell row groups apart.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from support.corpus import FIXTURES, fixture_files

from parquet_bloom import add_filters

ROWS = (60, 60, 40)
PLACEMENTS = ("footer", "chunk-start")
CODECS = ("none", "snappy", "gzip", "zstd", "lz4", "brotli")


@cache
def _fixture_data() -> Any:
    spec = importlib.util.spec_from_file_location("fixture_data", FIXTURES / "writers" / "data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def row_groups(rows: tuple[int, ...] = ROWS) -> tuple[pa.Table, ...]:
    """The fixtures' columns: all logical types, nested ones, nulls, NaN, both zeros, "dotted.name"."""
    return tuple(_fixture_data().row_groups(rows))


def flat(table: pa.Table) -> list[str]:
    """The columns that are no lists, structs or maps."""
    return [field.name for field in table.schema if not pa.types.is_nested(field.type)]


def nested(table: pa.Table) -> list[str]:
    return [field.name for field in table.schema if pa.types.is_nested(field.type)]


# --- files ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """How pyarrow lays a file out; small pages, so that a chunk has several of them."""

    codec: str = "zstd"
    page_index: bool = False
    page_version: str = "1.0"
    dictionary: bool = False

    def __str__(self) -> str:
        index = "index" if self.page_index else "no_index"
        return f"{self.codec}-{index}-v{self.page_version[0]}-{'dictionary' if self.dictionary else 'plain'}"


# Any two settings stand together in one of them: each codec has two layouts, which differ in all else.
LAYOUTS = [
    Layout(codec, bool(bits & 4), "2.0" if bits & 2 else "1.0", bool(bits & 1))
    for codec, some in zip(CODECS, (0b000, 0b011, 0b101, 0b110, 0b000, 0b011), strict=True)
    for bits in (some, 7 - some)
]


def write(path: Path, tables: Sequence[pa.Table], layout: Layout | None = None, **options: Any) -> Path:
    """Write each table as one row group, without filters unless the options say so."""
    layout = layout or Layout()
    settings: dict[str, Any] = {
        "compression": layout.codec,
        "write_page_index": layout.page_index,
        "data_page_version": layout.page_version,
        "use_dictionary": layout.dictionary,
        "data_page_size": 200,
        "write_batch_size": 16,
    }
    with pq.ParquetWriter(path, tables[0].schema, **(settings | options)) as writer:
        for table in tables:
            writer.write_table(table)
    return path


def with_decimals_as_integers(path: Path, tables: Sequence[pa.Table], **options: Any) -> Path:
    """Decimals of up to 18 digits as INT32 and INT64, which is what most writers make of them."""
    return write(path, tables, store_decimal_as_integer=True, **options)


def with_filters(folder: Path, tables: Sequence[pa.Table]) -> Path:
    """A file with filters on all columns that can have one; source.parquet beside it has none."""
    source, ours = write(folder / "source.parquet", tables), folder / "ours.parquet"
    add_filters(source, ours, columns=leaves(source), sync=False)
    return ours


def numbered(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """With a column `row`, which counts through all of them."""
    ends = np.cumsum([len(table) for table in tables]).tolist()
    rows = [pa.array(range(end - len(table), end), pa.int32()) for table, end in zip(tables, ends, strict=True)]
    return [table.append_column("row", some) for table, some in zip(tables, rows, strict=True)]


def fixtures() -> list[str]:
    """The files other programs wrote, as `folder/name`."""
    return [name.removesuffix(".parquet") for name in fixture_files()]


def fixture(name: str) -> Path:
    return FIXTURES / f"{name}.parquet"


def leaves(path: Path) -> list[str]:
    """The columns that can have a filter, as add_filters wants to be told them."""
    with pq.ParquetFile(path) as file:
        columns = [file.schema.column(i) for i in range(len(file.schema.names))]
    refused = [c.physical_type in ("BOOLEAN", "INT96") or c.converted_type == "INTERVAL" for c in columns]
    return [quoted(c.path) for c, no in zip(columns, refused, strict=True) if not no]


def quoted(path: str) -> str:
    """The awkward names of our columns need quotes; in all others a dot parts the components."""
    awkward = path == "dotted.name" or '"' in path
    return '"' + path.replace('"', '""') + '"' if awkward else path


def filters(path: Path) -> dict[tuple[int, str], tuple[int, int]]:
    """(row group, column) -> (offset, length) of each filter; pyarrow's view of the footer, not ours."""
    found = {}
    with pq.ParquetFile(path) as file:
        for i in range(file.metadata.num_row_groups):
            group = file.metadata.row_group(i)
            for column in map(group.column, range(group.num_columns)):
                if column.bloom_filter_offset is not None:
                    place = column.bloom_filter_offset, column.bloom_filter_length
                    found[i, quoted(column.path_in_schema)] = place
    return found


# --- values at the edges ----------------------------------------------------------------------------


def _limits(kind: str) -> list[int]:
    info = np.iinfo(kind)
    return [info.min, info.max, 0, 1, info.max - 1]


def _floats(kind: str) -> pa.Array:
    info = np.finfo(kind)
    values = [-0.0, np.inf, -np.inf, info.max, info.min, info.tiny, info.smallest_subnormal, np.nan, 1, 0.1]
    return pa.array(np.array(values, kind), from_pandas=False)


def _stamps(unit: str, zone: str | None = None) -> pa.Array:
    if unit == "ns":
        texts = ["1678-01-01T00:00:00.000000001", "2262-04-11T23:47:16.854775806"]
    else:
        texts = ["0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"]
    texts += ["1970-01-01T00:00:00", "1969-12-31T23:59:59.999999", "2026-02-28T12:34:56.789"]
    return pa.array(np.array(texts, f"datetime64[{unit}]")).cast(pa.timestamp(unit, zone))


def _decimals(precision: int, scale: int) -> pa.Array:
    digits = [(9,) * precision, (0,), (1,)]
    values = [Decimal((sign, some, -scale)) for some in digits for sign in (0, 1)]
    return pa.array(values, pa.decimal128(precision, scale))


def _boundary_columns() -> Iterator[tuple[str, pa.Array]]:
    for kind in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        yield kind, pa.array(_limits(kind), kind)
    for kind in ("float16", "float32", "float64"):
        yield kind, _floats(kind)
    texts = ["", " ", "\0", "a\0b", "'", "NULL", "\U0010ffff", "x" * 5000, "é", "e\u0301"]
    yield "string", pa.array(texts)
    yield "large_string", pa.array(texts, pa.large_string())
    yield "binary", pa.array([b"", b"\0", b"\0\0", b"\xff" * 33, bytes(range(32))])
    yield "fixed_binary_3", pa.array([b"\0\0\0", b"\xff\xff\xff", b"abc"], pa.binary(3))
    yield "uuid", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16), b"\xff" * 16], pa.binary(16)))
    yield "decimal_9", _decimals(9, 2)
    yield "decimal_18", _decimals(18, 18)
    yield "decimal_38", _decimals(38, 0)
    yield "date", pa.array([dt.date.min, dt.date.max, dt.date(1970, 1, 1), dt.date(1969, 12, 31)])
    for unit, ticks in (("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        stored, kind = (pa.int32(), pa.time32(unit)) if unit == "ms" else (pa.int64(), pa.time64(unit))
        yield f"time_{unit}", pa.array([0, 1, 86_400 * ticks - 1], stored).cast(kind)
        yield f"timestamp_{unit}", _stamps(unit)
    yield "timestamp_us_utc", _stamps("us", "UTC")
    yield "timestamp_ns_zone", _stamps("ns", "Asia/Tokyo")


@cache
def boundaries() -> tuple[pa.Table, pa.Table]:
    """Two row groups: the values at the edges of each type, and one value from the middle."""
    edges = dict(_boundary_columns())
    rows = max(map(len, edges.values()))
    schema = pa.schema({name: column.type for name, column in edges.items()})
    padded = [pa.concat_arrays([a, pa.nulls(rows - len(a), a.type)]) for a in edges.values()]
    middle = [column.take(pa.array([len(column) - 1] * 4)) for column in edges.values()]
    return pa.Table.from_arrays(padded, schema=schema), pa.Table.from_arrays(middle, schema=schema)
