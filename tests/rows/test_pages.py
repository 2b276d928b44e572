"""Rows by pages: of every type, codec, encoding and version of pages, the rows that pyarrow reads of the whole file.

What must not be read is garbage: the pages without a row that matches are overwritten, so that pyarrow refuses them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.repeats import some_then_more

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import PageHeader, PageType
from parquet_bloom.errors import DamagedFileError, ParquetBloomError
from parquet_bloom.format import compact
from parquet_bloom.rows import pages_file

ROWS, GROUP = 2000, 1000
EPOCH = dt.datetime(1970, 1, 1)


def _made(kind: pa.DataType, rng: Random) -> pa.Array:
    """Values of a type, some of them NULL."""
    t = pa.types
    numbers = [None if rng.random() < 0.1 else rng.randrange(100) for _ in range(ROWS)]
    if t.is_dictionary(kind):
        return _made(kind.value_type, rng).cast(kind)
    if t.is_struct(kind):
        fields = [_made(field.type, rng) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=pa.array([n is None for n in numbers]))
    if t.is_map(kind):
        return pa.array([None if n is None else [(f"k{i}", i) for i in range(n % 4)] for n in numbers], kind)
    if t.is_fixed_size_list(kind):
        return pa.array([None if n is None else [n] * kind.list_size for n in numbers], kind)
    if t.is_list(kind) or t.is_large_list(kind):
        return pa.array([None if n is None else _cell(kind, n) for n in numbers], kind)
    if t.is_null(kind):
        return pa.nulls(ROWS)
    if t.is_float16(kind):
        return pa.array(np.array([n or 0 for n in numbers], np.float16), kind)
    if t.is_boolean(kind):
        return pa.array([None if n is None else n % 2 == 0 for n in numbers])
    if t.is_decimal(kind):
        return pa.array([None if n is None else Decimal(n).scaleb(-kind.scale) for n in numbers], kind)
    if t.is_fixed_size_binary(kind):
        return pa.array([None if n is None else bytes([n]) * kind.byte_width for n in numbers], kind)
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _made(kind.storage_type, rng))
    if t.is_temporal(kind) and not t.is_duration(kind) and not t.is_time(kind):
        return (
            pa.array([None if n is None else EPOCH + dt.timedelta(days=n) for n in numbers])
            .cast(pa.timestamp("ms"))
            .cast(kind)
        )
    if t.is_time(kind) or t.is_duration(kind):
        return (
            pa.array([None if n is None else n for n in numbers], pa.int64())
            .cast(pa.int32() if kind.bit_width == 32 else pa.int64())
            .view(kind)
        )
    if t.is_integer(kind) or t.is_floating(kind):
        return pa.array(numbers, kind)
    texts = [None if n is None else f"text number {n} " * (n % 4) for n in numbers]
    return (
        pa.array(texts, pa.large_string()).cast(kind)
        if "binary" not in str(kind)
        else pa.array([None if one is None else one.encode() for one in texts], kind)
    )


def _cell(kind: pa.DataType, n: int) -> Any:
    """A value of a list, or in it."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_cell(kind.value_type, n + i) for i in range(n % 5)]
    if pa.types.is_struct(kind):
        return {field.name: None if n % 3 == 0 else _cell(field.type, n + i) for i, field in enumerate(kind)}
    return str(n) if pa.types.is_string(kind) else n % 100


FLAT = [
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view(),
    pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(7), pa.decimal128(5, 2), pa.decimal128(30, 4),
    pa.decimal256(60, 3), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin"),
    pa.duration("us"), pa.dictionary(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.large_string()),
    pa.uuid(), pa.json_(), pa.null(), pa.struct([("only", pa.int32())]),
    pa.struct([("deep", pa.struct([("down", pa.string())]))]),
]  # fmt: skip
NESTED = [
    pa.struct([("a", pa.int64()), ("b", pa.string())]), pa.list_(pa.int32()), pa.large_list(pa.int16()),
    pa.list_(pa.int32(), 3), pa.map_(pa.string(), pa.int64()),
    pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())])),
]  # fmt: skip


def table_of(kinds: Sequence[pa.DataType]) -> pa.Table:
    return _table_of(tuple(kinds))


@cache
def _table_of(kinds: tuple[pa.DataType, ...]) -> pa.Table:
    rng = Random(1)
    columns: dict[str, Any] = {"key": pa.array(range(ROWS), pa.int32())}
    columns |= {f"c{n} {kind}": _made(kind, rng) for n, kind in enumerate(kinds)}
    required = pa.field("required", pa.int64(), nullable=False, metadata={"unit": "m"})
    table = pa.table(columns).append_column(required, pa.array(range(ROWS), pa.int64()))
    return table.replace_schema_metadata({"made": "here"})


def written(table: pa.Table, path: Path, **options: Any) -> Path:
    options = {"row_group_size": GROUP, "data_page_size": 300, "write_batch_size": 20, **options}
    pq.write_table(table, path, **options)
    return path


def wanted(seed: int) -> list[int]:
    """Few rows: some in both row groups, neighbours, the first and the last one."""
    rng = Random(seed)
    few = sorted(rng.sample(range(ROWS), rng.randrange(1, 5)))
    return sorted({*few, few[0] + 1 if few[0] + 1 < ROWS else 0, *rng.choice([[], [0], [ROWS - 1], [0, ROWS - 1]])})


def in_keys(keys: list[int]) -> str:
    return f"key IN ({', '.join(map(str, keys))})"


def rows_of(table: pa.Table, keys: list[int]) -> pa.Table:
    """By slices, as pyarrow takes no views."""
    return pa.concat_tables([table.slice(key, 1) for key in keys])


def same(one: pa.Table, other: pa.Table, about: object = "") -> None:
    assert one.schema.equals(other.schema, check_metadata=True), about
    one.validate(full=True)
    for name in other.column_names:
        assert one[name].to_pylist() == other[name].to_pylist(), (about, name)


def assert_rows(path: Path, seeds: range, about: object = "") -> None:
    """Few rows are those that pyarrow reads of the whole file."""
    truth = pq.read_table(path)
    for keys in map(wanted, seeds):
        same(parquet_bloom.read_table(path, in_keys(keys)), rows_of(truth, keys), about)


ENCODINGS: dict[str, dict[str, Any]] = {
    "dictionary": {},
    "plain": {"use_dictionary": False},
    "fallback": {"dictionary_pagesize_limit": 60},
    "crc": {"write_page_checksum": True},
    "index": {"write_page_index": True},
    "int96": {"use_deprecated_int96_timestamps": True},
    "no statistics": {"write_statistics": False},
}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("name", some_then_more(ENCODINGS))
def test_rows_of_every_type(tmp_path: Path, name: str, version: str) -> None:
    path = written(table_of(FLAT + NESTED), tmp_path / "a.parquet", data_page_version=version, **ENCODINGS[name])
    assert_rows(path, range(3))
    batches = list(parquet_bloom.read_batches(path, in_keys([3, 4, 1500]), batch_rows=1))
    same(pa.Table.from_batches(batches), rows_of(pq.read_table(path), [3, 4, 1500]))


def test_views_within_structs(tmp_path: Path) -> None:
    """pyarrow takes no views, and writes none within structs in several row groups."""
    kinds = [pa.struct([("a", pa.string_view())]), pa.struct([("a", pa.binary_view()), ("b", pa.int8())])]
    path = tmp_path / "a.parquet"
    pq.write_table(table_of(kinds), path, write_batch_size=ROWS, use_dictionary=False)
    assert_rows(path, range(4))


def test_rows_of_every_codec(tmp_path: Path) -> None:
    table = table_of([pa.string(), pa.int64(), pa.float64()])
    for codec in ("none", "snappy", "gzip", "brotli", "lz4", "zstd"):
        for at, version in enumerate(("1.0", "2.0")):
            path = written(table, tmp_path / "a.parquet", compression=codec, data_page_version=version)
            assert_rows(path, range(3 * at, 3 * at + 3), (codec, version))


ENCODED = [
    *((kind, "DELTA_BINARY_PACKED") for kind in (pa.int32(), pa.int64(), pa.timestamp("us"))),
    *((kind, "BYTE_STREAM_SPLIT") for kind in (pa.float32(), pa.float64(), pa.int64(), pa.binary(7), pa.float16())),
    *((pa.string(), encoding) for encoding in ("DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY", "PLAIN")),
    (pa.bool_(), "RLE"),
]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_rows_of_every_encoding(tmp_path: Path, version: str) -> None:
    table = table_of([kind for kind, _ in ENCODED])
    encodings = dict(zip(table.column_names[1:-1], (encoding for _, encoding in ENCODED), strict=True))
    path = written(
        table, tmp_path / "a.parquet", data_page_version=version, use_dictionary=False, column_encoding=encodings
    )
    assert_rows(path, range(6))


# --- what is not read -----------------------------------------------------------------------------


def headers(data: bytes, metadata: pq.FileMetaData, group: int, column: int) -> Iterator[tuple[int, int, PageHeader]]:
    """Where each page header of a chunk starts and ends, and the header."""
    chunk = metadata.row_group(group).column(column)
    at = min(x for x in (chunk.dictionary_page_offset, chunk.data_page_offset) if x is not None)
    end = at + chunk.total_compressed_size
    while at < end:
        header, size = compact.decode(PageHeader, data[at : at + 4096])
        yield at, at + size, header
        at += size + header.compressed_page_size


def garbage(path: Path, keys: list[int], columns: list[str]) -> int:
    """Overwrite the pages of these columns that have none of these rows; how many there were."""
    data, metadata = bytearray(path.read_bytes()), pq.read_metadata(path)
    names = [metadata.schema.column(i).path.split(".")[0] for i in range(metadata.num_columns)]
    overwritten = 0
    for group in range(metadata.num_row_groups):
        for column in (i for i, name in enumerate(names) if name in columns):
            row = group * GROUP
            for _, body, header in list(headers(bytes(data), metadata, group, column)):
                if header.type == PageType.DICTIONARY_PAGE:
                    continue
                n = (header.data_page_header or header.data_page_header_v2).num_values
                if not any(row <= key < row + n for key in keys):
                    data[body : body + header.compressed_page_size] = b"\xff" * header.compressed_page_size
                    overwritten += 1
                row += n
    path.write_bytes(data)
    return overwritten


@pytest.mark.parametrize("name", ["dictionary", "plain", "fallback"])
def test_only_pages_with_a_row_are_decoded(tmp_path: Path, name: str) -> None:
    kinds = [kind for kind in FLAT if not pa.types.is_null(kind)]
    table = table_of(kinds)
    keys = [7, 8, 430, 1001]
    path = written(table, tmp_path / "a.parquet", compression="zstd", **ENCODINGS[name])
    truth = rows_of(pq.read_table(path), keys)
    assert garbage(path, keys, table.column_names[1:]) > 100
    with pytest.raises(OSError, match=r"zstd|ZSTD|decompress"):
        pq.read_table(path)
    same(parquet_bloom.read_table(path, in_keys(keys)), truth)
    with pytest.raises(DamagedFileError, match="a.parquet: cannot be read"):
        parquet_bloom.read_table(path, in_keys([*keys, 1800]))


def test_without_a_row_nothing_else_is_decoded(tmp_path: Path) -> None:
    table = table_of(FLAT + NESTED)
    path = written(table.set_column(0, "key", pa.array(range(0, 2 * ROWS, 2), pa.int32())), tmp_path / "a.parquet")
    assert garbage(path, [], table.column_names[1:]) > 100
    assert parquet_bloom.read_table(path, "key = 7").num_rows == 0
    assert parquet_bloom.count(path, "key = 8") == 1
    assert parquet_bloom.read_table(path, "key = 8", columns=["key"]).to_pydict() == {"key": [8]}


def test_the_most_selective_part_of_an_and_is_read_first(tmp_path: Path) -> None:
    """= before a range, whatever comes first; of the range's column only the pages where the other part keeps a row."""
    table = table_of([pa.int64(), pa.string()])
    path = written(table, tmp_path / "a.parquet", compression="zstd", use_dictionary=False)
    truth = rows_of(pq.read_table(path), [7, 1430])
    assert garbage(path, [7, 1430], ["required", *table.column_names[1:]]) > 50
    for where in ("required >= 1 AND key IN (7, 1430)", "key IN (7, 1430) AND NOT required > 1990"):
        same(parquet_bloom.read_table(path, where), truth)
    assert parquet_bloom.read_table(path, "key IN (7, 1430) AND required < 100").num_rows == 1
    with pytest.raises(DamagedFileError, match="a.parquet: cannot be read"):
        parquet_bloom.read_table(path, "required >= 1 AND NOT key = 7")


# --- headers that lie -----------------------------------------------------------------------------


def _lies(header: PageHeader) -> Iterator[str]:
    """Change a header, time and again."""
    data = header.data_page_header or header.data_page_header_v2
    for name, change in (("num_values", 1), ("num_values", -1), ("num_values", -20), ("num_nulls", 3), ("num_rows", 1)):
        if (value := getattr(data, name, None)) is not None:
            setattr(data, name, value + change)
            yield f"{name} {change}"
            setattr(data, name, value)
    for name, change in (("compressed_page_size", 1), ("compressed_page_size", -1), ("uncompressed_page_size", 1)):
        value = getattr(header, name)
        setattr(header, name, value + change)
        yield f"{name} {change}"
        setattr(header, name, value)
    for kind in (PageType.INDEX_PAGE, PageType.DICTIONARY_PAGE, 9):
        before, header.type = header.type, kind
        yield f"type {kind}"
        header.type = before


def _read(read: Any) -> Any:
    try:
        return read().to_pydict()
    except ParquetBloomError as error:
        return type(error)


@pytest.mark.parametrize("version", ["1.0", pytest.param("2.0", marks=pytest.mark.more)])
@pytest.mark.parametrize("name", ["dictionary", "plain"])
def test_headers_that_lie_give_what_a_read_of_the_whole_gives(
    tmp_path: Path, name: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows, or an error of that kind; or the right rows: the lie may stand behind them."""
    table = table_of([pa.int64(), pa.string()])
    path = written(table, tmp_path / "a.parquet", data_page_version=version, row_group_size=ROWS, **ENCODINGS[name])
    right = pq.read_table(path).to_pydict()
    data, metadata = path.read_bytes(), pq.read_metadata(path)
    differ = 0
    for column in (1, 2):
        for at, body, header in list(headers(data, metadata, 0, column))[1:9:3]:
            for lie in _lies(header):
                new = compact.encode(header)
                if len(new) != body - at:
                    continue
                path.write_bytes(data[:at] + new + data[body:])
                for keys in ([150], [151, 1990]):
                    with monkeypatch.context() as patch:
                        patch.setattr(pages_file, "leaves_by_column", lambda outline: {})
                        whole = _read(lambda keys=keys: parquet_bloom.read_table(path, in_keys(keys)))
                    by_pages = _read(lambda keys=keys: parquet_bloom.read_table(path, in_keys(keys)))
                    truth = {column: [values[key] for key in keys] for column, values in right.items()}
                    assert by_pages in (whole, truth), (lie, column, keys)
                    differ += whole != truth
    assert differ, "some lie is seen"
