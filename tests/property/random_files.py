"""Random files: row groups of near values, filters that say "perhaps" too often, statistics that say little.

Footers are changed after writing, in ways that the format allows or that old programs are known
for: the values stay, so every row can still be held against what is decided without reading it.
"""

from __future__ import annotations

import math
import struct
from contextlib import ExitStack
from dataclasses import dataclass, field
from decimal import Context
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from random_columns import KINDS, Column, exact, random_column

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import (
    ColumnMetaData,
    ColumnOrder,
    FileMetaData,
    IEEE754TotalOrder,
    Statistics,
)
from parquet_bloom.format import compact, forms
from parquet_bloom.format.schema import BYTE_ARRAY, FLBA, INT32, INT64, Leaf, leaves_of

SPECS = ("final", "final", "final", "parquet-41", "parquet-41-early", "parquet-41-raw", "statistics", "statistics")
_WIDE = Context(prec=100)
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
ARROW_10 = "parquet-cpp-arrow version 10.0.1"
OLD = ("parquet-mr version 1.8.1 (build 4aba4da)", "parquet-cpp version 1.2.0", "parquet-mr version 1.6.0")


@dataclass
class File:
    """One file and what is in it, as it was before its footer was changed.

    groups   row group -> column name -> exact values (of a struct, those of its field `v`)
    pairs    what its folders' names say
    """

    path: Path
    columns: list[Column]
    tables: list[pa.Table]
    groups: list[dict[str, list[Any]]]
    pairs: dict[str, str | None] = field(default_factory=dict)

    @property
    def rows(self) -> list[int]:
        return [table.num_rows for table in self.tables]


def random_file(seed: int, folder: Path) -> File:
    """A file of some columns of all kinds, with filters and a footer of its own; the same for the same seed."""
    rng = Random(seed)
    columns = [random_column(rng, f"c{i}") for i in range(rng.randint(6, 11))]
    sizes = [rng.choice([0, 1, 6, 14, 30]) for _ in range(rng.randint(1, 5))]
    return _made(rng, folder / f"{seed}.parquet", columns, sizes)


def _made(rng: Random, path: Path, columns: list[Column], sizes: list[int], first_row: int = 0) -> File:
    schema = pa.schema([pa.field("row", pa.int32(), False), *(column.field for column in columns)])
    tables = []
    for size in sizes:
        numbers = pa.array(range(first_row, first_row + size), pa.int32())
        tables.append(pa.table([numbers, *(column.array(rng, size) for column in columns)], schema=schema))
        first_row += size
    path.parent.mkdir(parents=True, exist_ok=True)
    manners = ["as it is", "some of it", "old", "old arrow", "no order", "odd"]
    manner = rng.choices(manners, [2, 8, 4, 2, 1, 2])[0]
    # pyarrow reads pages of version 2 differently where parquet-cpp 1 is said to have written them.
    pages = "1.0" if manner == "old" else rng.choice(["1.0", "2.0"])
    with pq.ParquetWriter(
        path, schema, use_dictionary=rng.random() < 0.3, data_page_version=pages,
        write_statistics=rng.random() < 0.85, store_decimal_as_integer=rng.random() < 0.5,
        write_page_index=rng.random() < 0.3, compression=rng.choice(["none", "zstd"]),
        version=rng.choice(["2.6", "2.6", "1.0"]) if not any("_ns" in c.kind.name for c in columns) else "2.6",
    ) as writer:  # fmt: skip
        for table in tables:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
    groups = [{name: exact(table[name]) for name in table.column_names} for table in tables]
    file = File(path, columns, tables, groups)
    _add_filters(rng, file)
    _change_footer(rng, file, manner)
    return file


def _add_filters(rng: Random, file: File) -> None:
    names = [".".join(c.path) for c in file.columns if c.kind.name != "bool" and rng.random() < 0.7]
    if names and rng.random() < 0.9:
        spec = rng.choice(SPECS)
        form = parquet_bloom.Draft2015(rng.choice(["orc", "hive", "guava"])) if spec == "statistics" else spec
        # Other writers insert a zero only as it is spelled.
        with ExitStack() as foreign:
            if rng.random() < 0.7:
                foreign.enter_context(mock.patch.object(forms, "twins", return_value=[]))
            parquet_bloom.add_filters(
                file.path, in_place=True, columns=names, form=form,
                fpp=rng.choice([0.4, 0.05, 0.001]), sync=False, threads=1,
            )  # fmt: skip


def random_dataset(seed: int, folder: Path) -> list[File]:
    """Files in Hive-style folders, the later ones without some columns and with others of another type."""
    rng = Random(seed)
    columns = [random_column(rng, f"c{i}") for i in range(4)]
    places = []
    for number in range(rng.randint(2, 5)):
        p, q = rng.choice(["1", "2", "007", "-5", None]), rng.choice(["a", "b c", "z", "15", None])
        parts = [f"p={p or _NO_VALUE}", f"q={(q or _NO_VALUE).replace(' ', '%20')}"]
        places.append((folder / str(seed) / parts[0] / parts[1] / f"{number}.parquet", {"p": p, "q": q}))
    files: list[File] = []
    row = 0
    for number, (path, pairs) in enumerate(sorted(places, key=lambda place: str(place[0]))):
        mine = [_changed(rng, column) for column in columns if rng.random() < 0.8] if number else columns
        sizes = [rng.choice([0, 3, 8]) for _ in range(rng.randint(1, 2))]
        files.append(_made(rng, path, mine, sizes, row))
        files[-1].pairs = pairs
        row += sum(sizes)
    return files


_WIDER = {"int8": "int32", "int16": "int64", "int32": "int64", "uint8": "uint32", "uint16": "int64"}
_WIDER |= {"float32": "float64", "string": "binary", "timestamp_ms": "timestamp_us", "decimal9": "decimal38"}
_NARROWER = {wide: narrow for narrow, wide in _WIDER.items()}


def _changed(rng: Random, column: Column) -> Column:
    """A column of a later file of a data set: sometimes of another type."""
    other = rng.choice([_WIDER, _NARROWER]).get(column.kind.name)
    if other is None or rng.random() < 0.6 or column.shape != "flat":
        return column
    kind = KINDS[other]
    return Column(column.name, kind, "flat", False, kind.rule(rng), column.nulls)


# --- footers --------------------------------------------------------------------------------------


def _change_footer(rng: Random, file: File, manner: str) -> None:
    data = file.path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact.decode(FileMetaData, data[-8 - length : -8])
    body = bytearray(data[: -8 - length])
    leaves = leaves_of(metadata.schema)
    if manner == "old":
        metadata.created_by = rng.choice(OLD)
        metadata.column_orders = rng.choice([None, metadata.column_orders, metadata.column_orders])
    elif manner == "old arrow":
        metadata.created_by = ARROW_10
    elif manner == "no order":
        metadata.column_orders = rng.choice([None, [ColumnOrder() for _ in leaves]])
    by_name = {column.name: column for column in file.columns}
    for leaf in leaves[1:]:
        column = by_name[leaf.path[0]]
        total = leaf.float_bits and manner != "no order" and metadata.column_orders and rng.random() < 0.4
        if total:
            metadata.column_orders[leaf.index] = ColumnOrder(IEEE_754_TOTAL_ORDER=IEEE754TotalOrder())
        metas = [group.columns[leaf.index].meta_data for group in metadata.row_groups]
        damaged = rng.random() < 0.1
        if damaged:
            _damage(rng, metas, body)
        for meta, values, table in zip(metas, file.groups, file.tables, strict=True):
            if meta.bloom_filter_length is not None and rng.random() < 0.15:
                meta.bloom_filter_length = None
            # Of two that share a filter both must stay: one alone could not be told from its owner.
            if meta.bloom_filter_offset is not None and not damaged and rng.random() < 0.1:
                meta.bloom_filter_offset = meta.bloom_filter_length = None
            if meta.statistics is None or manner == "as it is":
                continue
            of_v = column.shape != "struct" or leaf.path[-1] == "v"
            stored = _stored(values[column.name], column) if of_v else []
            if manner == "old arrow":
                _forget(meta.statistics, leaf, stored)
            if manner == "old":
                if leaf.physical == BYTE_ARRAY and column.shape == "struct":  # pyarrow's mistake, not theirs
                    meta.statistics.null_count = meta.num_values - len(stored)
                _age(rng, meta.statistics, leaf, stored, metadata.column_orders is not None)
            elif manner == "no order":
                _lie(meta.statistics)
            else:
                _change(rng, meta.statistics, leaf, stored, column)
                if leaf.physical == BYTE_ARRAY and column.shape == "struct" and rng.random() < 0.4:
                    meta.statistics.null_count = _nulls_within(table[column.name])
                if manner == "odd" and rng.random() < 0.2:
                    meta.statistics.null_count = rng.choice([-1, meta.num_values + 1])
    footer = compact.encode(metadata)
    file.path.write_bytes(body + footer + struct.pack("<I", len(footer)) + b"PAR1")


_XXHASH = bytes.fromhex("1c1c00001c1c00001c1c000000")  # the end of the header of `final`


def _damage(rng: Random, metas: list[ColumnMetaData], body: bytearray) -> None:
    """Filters that are no evidence: two row groups share one, or a header names a hash that nobody knows."""
    metas = [meta for meta in metas if meta.bloom_filter_length is not None]
    if len(metas) > 1 and rng.random() < 0.5:
        one, other = rng.sample(metas, 2)
        one.bloom_filter_offset, one.bloom_filter_length = other.bloom_filter_offset, other.bloom_filter_length
        return
    for meta in metas:
        at, end = meta.bloom_filter_offset, meta.bloom_filter_offset + meta.bloom_filter_length
        named = body.find(_XXHASH, at, at + 30)
        if named >= 0:
            body[named + 5] = 0x2C
            bits = named + len(_XXHASH)
            body[bits:end] = body[bits:end][::-1]  # as another hash may set them


def _nulls_within(column: pa.ChunkedArray) -> int:
    """NULLs of the field `v` where the struct is there: what pyarrow counts in a dictionary, to this day."""
    return sum(one is not None and one["v"] is None for one in column.to_pylist())


def _stored(values: list[Any], column: Column) -> list[Any]:
    if column.shape == "list":
        values = [v for one in values if one is not None for v in one]
    return [v for v in values if v is not None]


def _change(rng: Random, stats: Statistics, leaf: Leaf, stored: list[Any], column: Column) -> None:
    """What the format allows: less, wider, shorter, in the old place."""
    nans = sum(v != v for v in stored) if leaf.float_bits else 0
    if leaf.float_bits:
        stats.nan_count = rng.choice([None, nans])
    narrow = leaf.physical in (INT32, INT64) and leaf.logical in (None, "INTEGER", "DECIMAL")
    if narrow and stats.min_value is not None and rng.random() < 0.3:
        _widen(rng, stats, leaf)
    if leaf.physical in (BYTE_ARRAY, FLBA) and column.kind.family in ("bytes", "fixed", "uuid") and rng.random() < 0.5:
        _truncate(rng, stats)
    if leaf.physical in (INT32, INT64) and leaf.signed and rng.random() < 0.15:
        stats.min, stats.max = stats.min_value, stats.max_value
        stats.min_value = stats.max_value = None
    for name in ("min_value", "max_value", "null_count"):
        if rng.random() < 0.12:
            setattr(stats, name, None)
    if nans and rng.random() < 0.6:
        _poison(rng, stats, leaf, stored)


def _forget(stats: Statistics, leaf: Leaf, stored: list[Any]) -> None:
    """As pyarrow 10 over dictionaries of several batches: the bounds of the first, the nulls of the last."""
    if leaf.physical == BYTE_ARRAY and stored and isinstance(stored[0], bytes):
        batch = stored[: (len(stored) + 1) // 2]
        stats.min_value, stats.max_value = min(batch), max(batch)
        stats.null_count = 0


def _poison(rng: Random, stats: Statistics, leaf: Leaf, stored: list[float]) -> None:
    """A writer that let NaN into the order: it starts anew behind a NaN, so a bound is NaN or that of the rest."""
    form = {16: "<e", 32: "<f", 64: "<d"}[leaf.float_bits]
    last = max(i for i, v in enumerate(stored) if v != v)
    rest = stored[last + 1 :] or [math.nan]
    nan, low, high = (struct.pack(form, v) for v in (math.nan, min(rest), max(rest)))
    stats.min_value, stats.max_value = rng.choice([(nan, nan), (low, nan), (low, nan), (nan, high), (nan, high)])


def _widen(rng: Random, stats: Statistics, leaf: Leaf) -> None:
    width, signed = leaf.width, leaf.signed
    low, high = (-(1 << 8 * width - 1), (1 << 8 * width - 1) - 1) if signed else (0, (1 << 8 * width) - 1)
    number = int.from_bytes(stats.min_value, "little", signed=signed) - rng.choice([0, 1, 5, 1000])
    stats.min_value = max(low, number).to_bytes(width, "little", signed=signed)
    number = int.from_bytes(stats.max_value, "little", signed=signed) + rng.choice([0, 1, 5, 1000])
    stats.max_value = min(high, number).to_bytes(width, "little", signed=signed)


def _truncate(rng: Random, stats: Statistics) -> None:
    keep = rng.randint(1, 9)
    if stats.min_value is not None and len(stats.min_value) > keep:
        stats.min_value, stats.is_min_value_exact = stats.min_value[:keep], False
    if stats.max_value is not None and len(stats.max_value) > keep:
        cut = stats.max_value[:keep].rstrip(b"\xff")
        if cut:
            stats.max_value, stats.is_max_value_exact = cut[:-1] + bytes([cut[-1] + 1]), False


def _age(rng: Random, stats: Statistics, leaf: Leaf, stored: list[Any], both: bool) -> None:
    """As old writers did: everything compared as signed, in `min` and `max`, and perhaps in the new fields too."""
    stats.nan_count = None
    signed = leaf.logical != "INTEGER" or leaf.signed
    if leaf.physical in (BYTE_ARRAY, FLBA) or not signed:
        wrong = _signed_bounds(leaf, stored)
        stats.min_value = stats.max_value = None
        if wrong is not None:
            stats.min_value, stats.max_value = wrong
    if rng.random() < 0.7:  # both together would show by their order that something is wrong
        setattr(stats, rng.choice(["min_value", "max_value"]), None)
    stats.min, stats.max = stats.min_value, stats.max_value
    if not both or rng.random() < 0.3:
        stats.min_value = stats.max_value = None


def _signed_bounds(leaf: Leaf, stored: list[Any]) -> tuple[bytes, bytes] | None:
    """The wrong bounds of unsigned numbers and of bytes; None for what has other values (float16)."""
    if not stored or isinstance(stored[0], float):
        return None
    if isinstance(stored[0], bytes):
        plain = stored
    elif isinstance(stored[0], int):
        plain = [v.to_bytes(leaf.width, "little") for v in stored]
        ordered = sorted(plain, key=lambda b: int.from_bytes(b, "little", signed=True))
        return ordered[0], ordered[-1]
    elif leaf.physical == FLBA:
        unscaled = [int(v.scaleb(leaf.scale, _WIDE)) for v in stored]
        plain = sorted(v.to_bytes(leaf.type_length, "big", signed=True) for v in unscaled)
        return plain[0], plain[-1]  # unsigned, where a decimal is signed
    else:
        return None
    ordered = sorted(plain, key=lambda b: [x - 256 if x > 127 else x for x in b])
    return ordered[0], ordered[-1]


def _lie(stats: Statistics) -> None:
    """Bounds in an order that nobody names may be anything."""
    stats.min_value, stats.max_value = stats.max_value, stats.max_value
