"""`add` gives files page indexes: as their own writers would have, right for every engine, and gone by `remove`."""

from __future__ import annotations

import itertools
import json
import math
import random
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.footers import INDEX_FIELDS, edited_footer, footer, indexes, without_indexes
from support.object_store import ObjectStore
from support.repeats import first_then_more
from support.samples import digest, leftovers

import parquet_bloom
from parquet_bloom import LayoutError, RequestError, UnknownColumnError
from parquet_bloom._thrift.parquet.ttypes import (
    BoundaryOrder,
    ColumnChunk,
    ColumnMetaData,
    DataPageHeader,
    FileMetaData,
    OffsetIndex,
    PageHeader,
    PageType,
    RowGroup,
    SchemaElement,
)
from parquet_bloom.cli import run
from parquet_bloom.filters import page_places
from parquet_bloom.format import compact

PLACEMENTS = ["footer", "chunk-start", "tail"]


def add(source: Path | str, target: Path | str | None, **options: Any) -> Any:
    options = {"columns": [], "page_index": True, "overwrite": True, "sync": False} | options
    return parquet_bloom.add_filters(source, target, **options).files[0]


ROWS, GROUP_ROWS, PAGE_ROWS = 900, 400, 37


def values() -> dict[str, pa.Array]:
    """A column of each order, in several orders of rows, with NULLs in a page, in all of one, and in none."""
    rng = np.random.default_rng(7)
    n, numbers = np.arange(ROWS), rng.permutation(ROWS)
    nulls = (n % 11 == 0) | ((n >= 74) & (n < 111))
    cents = [Decimal(int(x) - 450) / 100 for x in numbers]
    return {
        "ascending": pa.array(n),
        "descending": pa.array(-n),
        "mixed": pa.array(numbers),
        "constant": pa.array([5] * ROWS),
        "some_nulls": pa.array(n, mask=nulls),
        "only_nulls": pa.array([None] * ROWS, pa.int32()),
        "unsigned": pa.array(numbers.astype(np.uint64) + (2**63 - 400)),
        "int8": pa.array((numbers % 200 - 100).astype(np.int8)),
        "uint8": pa.array((numbers % 256).astype(np.uint8)),
        "half": pa.array(((numbers - 450) / 8).astype(np.float16)),
        "float": pa.array((numbers - 450) / np.float32(8)),
        "zeros": pa.array(np.where(n % 2 == 0, -0.0, 0.0)),
        "decimal": pa.array(cents, pa.decimal128(9, 2)),
        "wide_decimal": pa.array(cents, pa.decimal128(30, 2)),
        "text": pa.array([f"{x:04d}é" for x in numbers]),
        "bytes": pa.array([bytes([x % 256, 255 - x % 256]) for x in numbers]),
        "fixed": pa.array([int(x).to_bytes(4, "big") for x in numbers], pa.binary(4)),
        "flag": pa.array(n > 450),
        "day": pa.array(n.astype(np.int32), pa.date32()),
        "stamp": pa.array(n, pa.timestamp("us", "UTC")),
        "struct": pa.array([None if x % 5 == 0 else {"x": int(x)} for x in numbers]),
    }


def table() -> pa.Table:
    return pa.table(values())


def lists() -> pa.Table:
    rng = random.Random(3)
    some = [None if rng.random() < 0.1 else [rng.randrange(9) for _ in range(rng.randrange(5))] for _ in range(ROWS)]
    deep = [[one or [], [1, 2]] if one else one for one in some]
    keys = [[(f"k{x}", x) for x in one or ()] for one in some]
    return pa.table({"list": some, "deep": deep, "map": pa.array(keys, pa.map_(pa.string(), pa.int64()))})


def by_pyarrow(path: Path, data: pa.Table, version: str = "1.0", **options: Any) -> Path:
    settings = {"row_group_size": GROUP_ROWS, "max_rows_per_page": PAGE_ROWS, "data_page_version": version}
    pq.write_table(data, path, **(settings | {"write_page_index": True} | options))
    return path


def by_datafusion(path: Path, data: pa.Table) -> Path:
    context = pytest.importorskip("datafusion").SessionContext()
    context.from_arrow(data.drop(["half", "struct"]), name="t")
    options = f"data_page_row_count_limit {PAGE_ROWS}, max_row_group_size {GROUP_ROWS}, write_batch_size 16"
    context.sql(
        f"COPY (SELECT * FROM t) TO '{path}' STORED AS PARQUET OPTIONS ({options}, writer_version '2.0')"
    ).collect()
    return path


def by_polars(path: Path, data: pa.Table) -> Path:
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(data.drop(["half"]))
    frame.write_parquet(path, row_group_size=GROUP_ROWS, data_page_size=200)
    return path


PEERS: dict[str, Callable[[Path], Path]] = {
    "pyarrow": lambda path: by_pyarrow(path, table(), compression="none", use_dictionary=["text"]),
    "pyarrow-lists": lambda path: by_pyarrow(path, lists(), compression="gzip"),
    "datafusion": lambda path: by_datafusion(path, table()),
    "polars": lambda path: by_polars(path, table()),
}


@pytest.mark.parametrize("peer", PEERS)
def test_the_index_of_a_writer_is_built_anew_from_its_file(tmp_path: Path, peer: str) -> None:
    """Random columns, codecs and pages of pyarrow's: property/test_random_page_indexes.py."""
    source = PEERS[peer](tmp_path / "peer.parquet")
    theirs = indexes(source)
    if not any(offsets for offsets, _ in theirs.values()):
        pytest.skip(f"this release of {peer} writes no page index")
    ours = tmp_path / "ours.parquet"
    report = add(without_indexes(source), ours, page_bounds=["*"])
    found = indexes(ours)
    assert found.keys() == theirs.keys()
    assert report.offset_indexes == len(theirs)
    compared = 0
    for key, (offsets, bounds) in theirs.items():
        own_offsets, own_bounds = found[key]
        assert own_offsets.page_locations == offsets.page_locations, key
        if bounds is None or own_bounds is None:
            continue
        compared += 1
        assert own_bounds.null_pages == bounds.null_pages, key
        assert own_bounds.null_counts == (bounds.null_counts or own_bounds.null_counts), key
        if peer != "polars":  # whose pages all have the bounds of the row group
            assert own_bounds.min_values == bounds.min_values, key
            assert own_bounds.max_values == bounds.max_values, key
        if bounds.boundary_order != BoundaryOrder.UNORDERED and key[1] not in ("constant", "zeros", "only_nulls"):
            assert own_bounds.boundary_order == bounds.boundary_order, key
    assert compared == report.column_indexes == (0 if "lists" in peer else len(theirs))
    assert wrong(ours) == []


def wrong(path: Path) -> list[str]:
    """What verify says against the page indexes of a file, whose values it decodes."""
    report = parquet_bloom.verify(path, statistics=True).files[0]
    return [one.text for one in report.statistics.wrong if "index" in one.statistic]


# --- engines --------------------------------------------------------------------------------------


def _rows_of(path: Path, where: str) -> dict[str, list[int]]:
    """The rows that each engine finds, by their number in the column "ascending"."""
    found, (duckdb, datafusion, polars) = {}, map(pytest.importorskip, ("duckdb", "datafusion", "polars"))
    asked = f"SELECT ascending FROM '{path}' WHERE {where} ORDER BY 1"
    found["duckdb"] = [row[0] for row in duckdb.sql(asked).fetchall()]
    for pushed in ("false", "true"):
        config = datafusion.SessionConfig().set("datafusion.execution.parquet.pushdown_filters", pushed)
        context = datafusion.SessionContext(config)
        context.register_parquet("t", str(path))
        batches = context.sql(f"SELECT ascending FROM t WHERE {where} ORDER BY 1").collect()
        found[f"datafusion {pushed}"] = [x for batch in batches for x in batch.column(0).to_pylist()]
    frame = polars.scan_parquet(path).filter(polars.sql_expr(where)).select("ascending").collect()
    found["polars"] = sorted(frame["ascending"].to_list())
    found["ours"] = sorted(parquet_bloom.read_table(path, where, columns=["ascending"])["ascending"].to_pylist())
    return found


def _questions(rng: random.Random) -> Iterator[str]:
    for _ in range(12):
        a, b = sorted(rng.randrange(-20, ROWS + 20) for _ in range(2))
        yield rng.choice(
            [
                f"ascending BETWEEN {a} AND {b}",
                f"descending < {-b}",
                f"some_nulls >= {b} AND mixed < {a}",
                f"some_nulls IS NULL AND ascending > {a}",
                f"nan > {a}",
                f"nan <= {a}",
                f"zeros = 0.0 AND ascending < {a}",
                f"text > '{a:04d}' AND text < '{b:04d}'",
                f"long = '{'x' * 70}{a:04d}'",
                f"long > '{'x' * 70}{a:04d}'",
            ]
        )


@pytest.mark.parametrize("seed", first_then_more(range(6), 1))
def test_engines_find_the_same_rows_before_and_after(tmp_path: Path, seed: int) -> None:
    rng, n = random.Random(seed), np.arange(ROWS)
    data = table().select(["ascending", "descending", "mixed", "some_nulls", "zeros", "text"])
    data = data.append_column("nan", pa.array([math.nan if x % 97 == seed else float(x) for x in n]))
    data = data.append_column("long", pa.array(["x" * 70 + f"{x:04d}" for x in n]))
    source, target = tmp_path / "source.parquet", tmp_path / "target.parquet"
    version, codec = rng.choice(["1.0", "2.0"]), rng.choice(["none", "snappy", "zstd"])
    by_pyarrow(source, data, version, write_page_index=False, compression=codec)
    report = add(source, target, columns=["mixed"], page_bounds=["*"], placement=rng.choice(PLACEMENTS))
    with_nan = len({x // GROUP_ROWS for x in n if x % 97 == seed})
    assert report.offset_indexes == -(-ROWS // GROUP_ROWS) * data.num_columns
    assert report.column_indexes == report.offset_indexes - with_nan, "all but the chunks with a NaN"
    assert wrong(target) == []
    for where in _questions(rng):
        assert _rows_of(target, where) == _rows_of(source, where), where


def test_engines_keep_the_rows_with_nan(tmp_path: Path) -> None:
    data = pa.table({"ascending": np.arange(1000), "f": [math.nan if x == 500 else float(x) for x in range(1000)]})
    source = by_pyarrow(tmp_path / "source.parquet", data, write_page_index=False, write_statistics=False)
    add(source, target := tmp_path / "target.parquet", page_bounds=["*"])
    chunks = indexes(target)
    assert [key for key, (_, bounds) in chunks.items() if bounds is None] == [(1, "f")], "its row group has the NaN"
    found = _rows_of(target, "f > 900")
    assert found["datafusion false"] == found["duckdb"] == [500, *range(901, 1000)], "NaN is greater than all"
    again = add(target, None, in_place=True, page_bounds=["*"])
    assert (again.offset_indexes, again.column_indexes, again.index_bytes) == (0, 0, 0)


def test_datafusion_reads_less(tmp_path: Path) -> None:
    datafusion = pytest.importorskip("datafusion")
    source = by_pyarrow(tmp_path / "source.parquet", table().select(["ascending", "text"]), write_page_index=False)
    add(source, target := tmp_path / "target.parquet", page_bounds=["ascending"])
    pruned = {}
    for path in (source, target):
        context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
        inside = datafusion.col("ascending") == datafusion.lit(100)
        plan = context.read_parquet(str(path)).filter(inside).execution_plan()
        assert sum(batch.to_pyarrow().num_rows for batch in context.execute(plan, 0)) == 1
        metrics = [metric for _, each in plan.collect_metrics() for metric in each.metrics()]
        pruned[path] = [str(metric) for metric in metrics if metric.name == "page_index_rows_pruned"]
    assert pruned[source] != pruned[target]
    assert f"{GROUP_ROWS} total → {PAGE_ROWS} matched" in pruned[target], "one page of the only row group"


# --- where they lie, and how they leave -----------------------------------------------------------


# Beside filters, which move pages where they are put before them, and without any.
BESIDE = [("footer", []), ("chunk-start", []), ("chunk-start", ["text"]), ("tail", ["text"])]


@pytest.mark.parametrize(("placement", "columns"), BESIDE)
def test_remove_gives_the_file_back(tmp_path: Path, placement: str, columns: list[str]) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table(), write_page_index=False)
    before = digest(source)
    report = add(source, None, columns=columns, in_place=True, page_bounds=["ascending"], placement=placement)
    assert report.index_bytes
    assert digest(source) != before
    assert wrong(source) == []
    spans = [
        (place, place + length)
        for group in footer(source).row_groups
        for chunk in group.columns
        for place, length in [
            (chunk.column_index_offset, chunk.column_index_length),
            (chunk.offset_index_offset, chunk.offset_index_length),
        ]
        if place is not None
    ]
    spans.sort()
    assert all(one[1] == other[0] for one, other in itertools.pairwise(spans)), "side by side"
    data = source.read_bytes()
    assert spans[-1][1] == len(data) - 8 - int.from_bytes(data[-8:-4], "little"), "right before the footer"
    assert min(c.offset_index_offset for g in footer(source).row_groups for c in g.columns) > max(
        c.column_index_offset or 0 for g in footer(source).row_groups for c in g.columns
    ), "all of a kind together"
    removed = parquet_bloom.remove_filters(source, in_place=True, sync=False).files[0]
    assert removed.indexes == report.offset_indexes + report.column_indexes
    assert digest(source) == before
    assert leftovers(tmp_path) == []


# What lies before a tail does not move, so filters at chunk starts come first.
ORDERS = [one for one in itertools.permutations(PLACEMENTS) if one.index("chunk-start") < one.index("tail")]


def test_filters_and_indexes_added_in_turn_leave_in_any_order(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed", "text", "day"]), write_page_index=False)
    before, names = digest(source), ["mixed", "text", "day"]
    for order in ORDERS:
        for turn, (placement, name) in enumerate(zip(order, names, strict=True)):
            how: dict[str, Any] = {"placement": placement, "page_index": turn == 1, "page_bounds": None}
            add(source, None, in_place=True, columns=[name], **how)
            assert wrong(source) == [], order
        assert all(offsets is not None for offsets, _ in indexes(source).values())
        for name in names[:2]:
            parquet_bloom.remove_filters(source, in_place=True, columns=[name], sync=False)
            assert wrong(source) == [], order
            assert all(offsets is not None for offsets, _ in indexes(source).values()), "they stay for named columns"
        parquet_bloom.remove_filters(source, in_place=True, sync=False)
        assert digest(source) == before, order


def test_indexes_that_are_there_stay(tmp_path: Path) -> None:
    def places() -> list[list[int | None]]:
        return [[getattr(one, name) for name in INDEX_FIELDS] for g in footer(source).row_groups for one in g.columns]

    source = by_pyarrow(tmp_path / "f.parquet", table().select(["ascending", "mixed"]))
    theirs = indexes(source)
    with edited_footer(source) as metadata:
        for name in INDEX_FIELDS:
            setattr(metadata.row_groups[0].columns[0], name, None)
        metadata.row_groups[1].columns[1].column_index_offset = None
        metadata.row_groups[1].columns[1].column_index_length = None
    before, old = digest(source), places()
    report = add(source, None, in_place=True, page_bounds=["*"])
    assert (report.offset_indexes, report.column_indexes) == (1, 2)
    assert [at for at, pair in enumerate(zip(old, places(), strict=True)) if pair[0] != pair[1]] == [0, 3]
    assert all(found[0].page_locations == theirs[key][0].page_locations for key, found in indexes(source).items())
    assert add(source, None, in_place=True, page_bounds=["*"]).index_bytes == 0, "there is nothing more to add"
    parquet_bloom.remove_filters(source, in_place=True, sync=False)
    assert digest(source) == before, "theirs stay"


def test_a_wrong_offset_index_gets_no_column_index(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["ascending", "mixed"]))
    with edited_footer(source) as metadata:
        one, other = (metadata.row_groups[0].columns[at] for at in (0, 1))
        one.offset_index_offset, one.offset_index_length = other.offset_index_offset, other.offset_index_length
        one.column_index_offset = one.column_index_length = None
    report = add(source, None, in_place=True, page_bounds=["*"])
    assert (report.offset_indexes, report.column_indexes) == (0, 0)


# --- which column indexes ---------------------------------------------------------------------------


def test_without_names_columns_get_bounds_that_exclude_pages(tmp_path: Path) -> None:
    data = table().append_column("nearly", pa.array([f"{x + (x * 7) % 5:06d}" for x in range(ROWS)]))
    source = by_pyarrow(tmp_path / "f.parquet", data, write_page_index=False)
    report = add(source, None, in_place=True, columns=["ascending", "mixed", "nearly", "text"])
    with_bounds = {name for (_, name), (_, bounds) in indexes(source).items() if bounds is not None}
    assert with_bounds == {"ascending", "nearly"}, "of those that were decoded; the others are in no order"
    assert report.column_indexes == 2 * len(footer(source).row_groups)


def test_columns_without_an_order_get_none(tmp_path: Path) -> None:
    data = pa.table(
        {"n": np.arange(50), "l": [[x] for x in range(50)], "stamp": pa.array(range(50), pa.timestamp("ns"))}
    )
    source = tmp_path / "f.parquet"
    by_pyarrow(source, data, write_page_index=False, use_deprecated_int96_timestamps=True)
    report = add(source, target := tmp_path / "g.parquet", page_bounds=["*"])
    assert report.index_notes == [
        "no column index of l.list.element: a repeated column",
        "no column index of stamp: INT96 has no order",
    ]
    assert [name for (_, name), (_, bounds) in indexes(target).items() if bounds] == ["n"]
    with edited_footer(source) as metadata:
        metadata.column_orders = None
    report = add(source, target, page_bounds=["n"])
    assert report.index_notes == ["no column index of n: the footer has no column_orders"]
    assert (report.offset_indexes, report.column_indexes) == (3, 0)


CUTS: list[tuple[Any, Any, Any]] = [  # a value, and its bounds
    ("x" * 64, "x" * 64, "x" * 64),
    ("x" * 65, "x" * 64, "x" * 63 + "y"),
    ("x" * 63 + "é", "x" * 63, "x" * 62 + "y"),
    ("x" * 62 + "é!", "x" * 62 + "é", "x" * 62 + "ê"),
    ("x" * 60 + "\ud7ff" + "x" * 9, "x" * 60 + "\ud7ff" + "x", "x" * 60 + "\ud7ff" + "y"),
    ("x" * 61 + "\ud7ff" + "x" * 9, "x" * 61 + "\ud7ff", "x" * 61 + "\ue000"),
    ("\U0010ffff" * 17, None, None),  # no greater text has as few bytes
    (b"\xfe" + b"\xff" * 80, b"\xfe" + b"\xff" * 63, b"\xff"),
    (b"\xff" * 65, None, None),
]


def test_long_bounds_are_cut(tmp_path: Path) -> None:
    data = pa.table({f"v{at}": [value] * 3 for at, (value, _, _) in enumerate(CUTS)})
    source = by_pyarrow(tmp_path / "f.parquet", data, write_page_index=False)
    add(source, target := tmp_path / "g.parquet", page_bounds=["*"])
    found = {
        name: bounds and (bounds.min_values, bounds.max_values) for (_, name), (_, bounds) in indexes(target).items()
    }
    encoded = [[one.encode() if isinstance(one, str) else one for one in case] for case in CUTS]
    assert found == {f"v{at}": low and ([low], [high]) for at, (_, low, high) in enumerate(encoded)}
    assert all(low is None or low <= value <= high for value, low, high in encoded)
    assert wrong(target) == []


# --- files that can have none -----------------------------------------------------------------------


def _page(levels: list[int], numbers: list[int]) -> bytes:
    """A page of version 1 of `repeated int32 n`, each level and number by itself."""
    repetition = b"".join(_varint(1 << 1) + bytes([level]) for level in levels)
    body = b"".join(len(one).to_bytes(4, "little") + one for one in (repetition, _varint(len(levels) << 1) + b"\x01"))
    body += np.array(numbers, "<i4").tobytes()
    about = DataPageHeader(num_values=len(levels), encoding=0, definition_level_encoding=3, repetition_level_encoding=3)
    header = PageHeader(0, len(body), len(body), data_page_header=about)
    return compact.encode(header) + body


def _by_hand(path: Path, pages: list[bytes], rows: int, num_values: int) -> Path:
    body = b"".join(pages)
    schema = [SchemaElement(name="m", num_children=1), SchemaElement(name="n", type=1, repetition_type=2)]
    meta = ColumnMetaData(1, [0, 3], ["n"], 0, num_values, len(body), len(body), data_page_offset=4)
    chunk = ColumnChunk(file_offset=4, meta_data=meta)
    groups = [RowGroup([chunk], total_byte_size=len(body), num_rows=rows)]
    data = compact.encode(FileMetaData(version=1, schema=schema, num_rows=rows, row_groups=groups))
    path.write_bytes(b"PAR1" + body + data + len(data).to_bytes(4, "little") + b"PAR1")
    return path


def test_pages_that_begin_inside_a_row(tmp_path: Path) -> None:
    pages = [_page([0, 1, 0], [1, 2, 3]), _page([1, 0, 1], [4, 5, 6])]
    source = _by_hand(tmp_path / "f.parquet", pages, rows=3, num_values=6)
    assert pq.read_table(source)["n"].to_pylist() == [[1, 2], [3, 4], [5, 6]]
    before = digest(source)
    report = add(source, None, in_place=True)
    (note,) = report.index_notes
    at = 4 + len(pages[0])
    assert note == f"no page index: row group 0, column n: the page at byte {at} begins inside a row"
    assert digest(source) == before
    assert report.offset_indexes == 0
    pages = [_page([0, 1, 0], [1, 2, 3]), _page([0, 1, 0], [4, 5, 6])]
    _by_hand(source, pages, rows=4, num_values=6)
    assert add(source, None, in_place=True).index_notes == []
    ((offsets, _),) = indexes(source).values()
    assert [one.first_row_index for one in offsets.page_locations] == [0, 2]
    assert pq.read_table(source)["n"].to_pylist() == [[1, 2], [3], [4, 5], [6]]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_verify_counts_the_rows_of_lists(tmp_path: Path, version: str) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", lists(), version)
    assert wrong(source) == []
    place = footer(source).row_groups[0].columns[0]
    data = bytearray(source.read_bytes())
    at, length = place.offset_index_offset, place.offset_index_length
    index, _ = compact.decode(OffsetIndex, bytes(data[at : at + length]))
    index.page_locations[1].first_row_index += 1
    changed = compact.encode(index)
    assert len(changed) == length
    data[at : at + length] = changed
    source.write_bytes(data)
    (found,) = wrong(source)
    assert "column list.list.element: offset_index.first_row_index is 38 of page 1, the values give 37" in found


def test_verify_reads_each_page_header_of_lists_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", lists().select(["list"]), use_dictionary=False)
    pages = sum(len(offsets.page_locations) for offsets, _ in indexes(source).values())
    read: list[bytes] = []
    head = page_places.page_head
    monkeypatch.setattr(page_places, "page_head", lambda data: read.append(data) or head(data))
    assert wrong(source) == []
    assert len(read) == pages


def test_forms_of_the_drafts(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed", "text"]), write_page_index=False)
    before = digest(source)
    for spec, columns in (("statistics", []), ("statistics", ["mixed"]), ("parquet-41", ["mixed"])):
        add(source, None, in_place=True, columns=columns, spec=spec, page_bounds=["text"])
        assert wrong(source) == [], (spec, columns)
        assert all(offsets is not None for offsets, _ in indexes(source).values()), (spec, columns)
        parquet_bloom.remove_filters(source, in_place=True, sync=False)
        assert digest(source) == before, (spec, columns)


@pytest.mark.parametrize("spec", ["parquet-41", "final"])
def test_filters_that_lie_among_the_pages(tmp_path: Path, spec: str) -> None:
    """Filters before the pages of each chunk came first: no page of an index is one of them."""
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed", "text"]))
    theirs = {key: offsets.page_locations for key, (offsets, _) in indexes(source).items()}
    source = without_indexes(source)
    before = digest(source)
    how: dict[str, Any] = {"spec": spec, "placement": "chunk-start", "page_index": False}
    add(source, None, in_place=True, columns=["mixed", "text"], **how)
    add(source, None, in_place=True, page_bounds=["text"])
    assert wrong(source) == []
    for key, (offsets, _) in indexes(source).items():
        pairs = list(zip(offsets.page_locations, theirs[key], strict=True))
        for one, peer in pairs:
            assert (one.compressed_page_size, one.first_row_index) == (peer.compressed_page_size, peer.first_row_index)
        [moved] = {one.offset - peer.offset for one, peer in pairs}
        assert moved > 0, "by the filters before it"
    parquet_bloom.remove_filters(source, in_place=True, sync=False)
    assert digest(source) == before


def test_pages_of_other_kinds_are_walked_over(tmp_path: Path) -> None:
    """Pages without values, an index and a filter of 2018, are none of an offset index; rows are counted without."""
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["ascending"]), row_group_size=ROWS)
    [(offsets, bounds)] = indexes(source).values()
    whole, second = without_indexes(source).read_bytes(), offsets.page_locations[1].offset
    headers = [PageHeader(kind, uncompressed_page_size=9, compressed_page_size=9) for kind in (PageType.INDEX_PAGE, 4)]
    odd = b"".join(compact.encode(one) + bytes(9) for one in headers)
    source.write_bytes(whole[:second] + odd + whole[second:])
    with edited_footer(source) as metadata:
        meta = metadata.row_groups[0].columns[0].meta_data
        meta.total_compressed_size += len(odd)
        meta.total_uncompressed_size += len(odd)
    assert pq.read_table(source)["ascending"].to_pylist() == list(range(ROWS))
    add(source, None, in_place=True, page_bounds=["*"])
    [(found, ours)] = indexes(source).values()
    for one in offsets.page_locations[1:]:
        one.offset += len(odd)
    assert found.page_locations == offsets.page_locations
    assert (ours.min_values, ours.max_values) == (bounds.min_values, bounds.max_values)
    assert wrong(source) == []
    # DuckDB 2.0.1 reads no such file under a filter, with an index or without.
    context, where = pytest.importorskip("datafusion").SessionContext(), "ascending BETWEEN 30 AND 80"
    context.register_parquet("t", str(source))
    assert context.sql(f"SELECT * FROM t WHERE {where}").count() == 51
    assert parquet_bloom.read_table(source, where).num_rows == 51


def test_repair_stays_sound(tmp_path: Path) -> None:
    """A repair behind page indexes of ours, and these behind a repair."""
    source = by_pyarrow(tmp_path / "f.parquet", table(), write_page_index=False)
    with edited_footer(source) as metadata:
        metadata.row_groups[0].columns[0].meta_data.statistics.null_count = 7
    before = digest(source)
    for first, second in ((add, parquet_bloom.repair), (parquet_bloom.repair, add)):
        one, two = (tmp_path / f"{name}.parquet" for name in "ab")
        for step, (old, new) in zip((first, second), ((source, one), (one, two)), strict=True):
            more = {"page_bounds": ["*"]} if step is add else {}
            step(old, new, overwrite=True, sync=False, **more)
        assert wrong(two) == []
        assert pq.read_table(two).equals(pq.read_table(source))
        assert parquet_bloom.verify(two, statistics=True).files[0].statistics.wrong == []
        if second is parquet_bloom.repair:
            parquet_bloom.repair(two, in_place=True, undo=True, sync=False)
            parquet_bloom.remove_filters(two, in_place=True, sync=False)
            assert digest(two) == before


@pytest.mark.parametrize(("placement", "columns"), BESIDE)
def test_remove_after_a_repair_takes_the_indexes_that_are_still_there(
    tmp_path: Path, placement: str, columns: list[str]
) -> None:
    """A repair drops a wrong column index of ours; the record speaks of the others, and the repair stays."""
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed", "text"]), write_page_index=False)
    with edited_footer(source) as metadata:
        metadata.row_groups[0].columns[0].meta_data.statistics.null_count = 7
    add(source, None, in_place=True, page_bounds=["*"], placement=placement, columns=columns)
    at = footer(source).row_groups[1].columns[0].column_index_offset
    data = bytearray(source.read_bytes())
    place = data.index((0).to_bytes(8, "little"), at)  # the least value of its first page that has a 0
    data[place] = 77
    source.write_bytes(data)
    before = digest(source)
    [repaired] = parquet_bloom.repair(source, in_place=True, sync=False).files
    assert {one.statistic.split(".")[0] for one in repaired.wrong} == {"null_count", "column_index"}
    assert [bounds is not None for _, bounds in indexes(source).values()].count(False) == 1
    assert sum(one.added for one in parquet_bloom.inspect(source).files[0].page_indexes) == 2 * 6 - 1
    kept = digest(source)
    [removed] = parquet_bloom.remove_filters(source, in_place=True, sync=False).files
    assert (removed.indexes, removed.removed) == (2 * 6 - 1, 3 * len(columns))
    assert all(found == (None, None) for found in indexes(source).values())
    assert parquet_bloom.verify(source, statistics=True).files[0].statistics.wrong == []
    assert parquet_bloom.inspect(source).files[0].repaired
    assert pq.read_table(source).equals(table().select(["mixed", "text"]))
    assert kept != before


def test_row_groups_without_rows(tmp_path: Path) -> None:
    """They have no page: DataFusion 43 to 50 fail where the others alone have an index, 55 on one without a page."""
    source, data = tmp_path / "f.parquet", table()
    with pq.ParquetWriter(source, data.schema) as writer:
        for one in (data.slice(0, 10), data.slice(0, 0), data.slice(10, 20)):
            writer.write_table(one)
    before = digest(source)
    report = add(source, None, in_place=True, page_bounds=["*"])
    assert report.index_notes == [
        "no page index: row group 1 has no rows, so no page to name, and DataFusion before 51 reads no file in "
        "which some chunks alone have an index"
    ]
    assert (report.offset_indexes, report.column_indexes, digest(source)) == (0, 0, before)
    report = add(source, None, in_place=True, page_bounds=["*"], columns=["mixed"])
    assert (len(report.filters), report.offset_indexes, report.column_indexes) == (2, 0, 0)


def _no_byte(metadata: FileMetaData) -> None:
    """A row group with rows whose chunk takes no byte."""
    group, meta = metadata.row_groups[1], metadata.row_groups[1].columns[0].meta_data
    group.num_rows = meta.num_values = 5
    meta.total_compressed_size = meta.total_uncompressed_size = 0


def _no_index(metadata: FileMetaData) -> None:
    metadata.row_groups[1].columns[0].offset_index_offset = 0


def _a_row_more(metadata: FileMetaData) -> None:
    metadata.row_groups[0].num_rows += 1


WRONG_FOOTERS: list[tuple[Callable[[FileMetaData], None], str]] = [
    (_no_byte, "no page index: row group 1, column mixed: its pages take the bytes "),
    (
        _no_index,
        "no page index: row group 1, column mixed: the footer names offset_index_offset 0, and no index is there",
    ),
    (_a_row_more, "no page index: row group 0, column mixed: .* values in "),
]


def test_footers_that_fit_no_page(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed"]), write_page_index=False)
    whole = source.read_bytes()
    for change, note in WRONG_FOOTERS:
        source.write_bytes(whole)
        with edited_footer(source) as metadata:
            change(metadata)
        report = add(source, tmp_path / "g.parquet", page_bounds=["*"])
        assert (report.offset_indexes, report.column_indexes, len(report.index_notes)) == (0, 0, 1), note
        assert re.match(note, report.index_notes[0]), report.index_notes


def test_a_wrong_page_header(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed"]), write_page_index=False)
    data, at = source.read_bytes(), footer(source).row_groups[0].columns[0].meta_data.dictionary_page_offset
    source.write_bytes(data[:at] + b"\xff" * 9 + data[at + 9 :])
    [note] = add(source, tmp_path / "g.parquet").index_notes
    assert note.startswith("no page index: row group 0, column mixed: the page header at byte ")


def test_more_pages_than_a_list_may_have(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed"]), write_page_index=False)
    before = parquet_bloom.set_limits(max_list_elements=10)
    try:
        report = add(source, tmp_path / "g.parquet")
    finally:
        parquet_bloom.set_limits(max_list_elements=before.max_list_elements)
    assert report.index_notes == [
        "no page index: row group 0, column mixed: it has over 10 pages, more than max_list_elements"
    ]


def test_names_and_options(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed"]), write_page_index=False)
    with pytest.raises(RequestError, match="page_bounds is for page_index=True"):
        add(source, tmp_path / "g.parquet", page_index=False, page_bounds=["mixed"])
    with pytest.raises(UnknownColumnError, match="no column other"):
        add(source, tmp_path / "g.parquet", page_bounds=["other"])
    report = add(source, tmp_path / "g.parquet", page_bounds="mixed", dry_run=True)
    assert report.offset_indexes == 3
    assert not (tmp_path / "g.parquet").exists()


# --- words from outside -----------------------------------------------------------------------------


def _lie(path: Path, change: Callable[[Any], None]) -> None:
    """Change the column chunks that have an index of ours, and make our record fit."""
    with edited_footer(path) as metadata:
        chunks = [(g, c, one) for g, r in enumerate(metadata.row_groups) for c, one in enumerate(r.columns)]
        (pair,) = (pair for pair in metadata.key_value_metadata if pair.key == "parquet_bloom")
        entries = json.loads(pair.value)
        names = entries[0]["columns"]
        ours = [(g, c, one) for g, c, one in chunks if ".".join(one.meta_data.path_in_schema) in names]
        for _, _, one in ours:
            change(one)
        packed = b"".join(
            struct.pack("<iiQQ", g, c, one.offset_index_offset, one.offset_index_length) for g, c, one in ours
        )
        entries[0]["places"] = zlib.crc32(packed)
        pair.value = json.dumps(entries)


def test_a_record_that_speaks_of_pages_cuts_none(tmp_path: Path) -> None:
    """A footer's own word on what is ours: it says that an index lies among the pages of a column."""
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed", "text"]), write_page_index=False)
    add(source, None, in_place=True)

    def move(chunk: Any) -> None:
        chunk.offset_index_offset = chunk.meta_data.data_page_offset + 5

    _lie(source, move)
    rows = pq.read_table(source)
    assert parquet_bloom.remove_filters(source, in_place=True, sync=False).files[0].indexes == 6
    assert pq.read_table(source).equals(rows)


def test_a_record_that_speaks_of_an_index_of_others_cuts_none(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed", "text"]))
    with edited_footer(source) as metadata:
        for group in metadata.row_groups:
            for name in INDEX_FIELDS:
                setattr(group.columns[1], name, None)
    add(source, None, in_place=True)

    def last() -> bytes:
        chunk = footer(source).row_groups[-1].columns[0]
        return source.read_bytes()[chunk.offset_index_offset :][: chunk.offset_index_length]

    theirs = footer(source).row_groups[-1].columns[0]  # the last before those of ours: no structure behind it moves

    def move(chunk: Any) -> None:
        chunk.offset_index_offset, chunk.offset_index_length = theirs.offset_index_offset, theirs.offset_index_length

    kept = last()
    _lie(source, move)
    assert parquet_bloom.remove_filters(source, in_place=True, sync=False).files[0].indexes == 3
    assert last() == kept


def test_a_stale_record_takes_nothing(tmp_path: Path) -> None:
    """Another program carried our record along: its own indexes stay."""
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed", "text"]), write_page_index=False)
    add(source, None, in_place=True)
    anew = by_pyarrow(
        tmp_path / "anew.parquet",
        pq.read_table(source).replace_schema_metadata(pq.read_metadata(source).metadata),
    )
    before = digest(anew)
    assert b"parquet_bloom" in pq.read_metadata(anew).metadata
    assert parquet_bloom.remove_filters(anew, in_place=True, sync=False).files[0].indexes == 0
    assert digest(anew) == before


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


# --- the command ------------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed", "ascending"]), write_page_index=False)
    before = digest(source)
    asked = ["add", str(source), "--in-place", "--column", "mixed", "--page-index", "--page-bounds", "asc*"]
    assert run([*asked, "--dry-run"]) == 0
    assert "and 6 offset indexes" in capsys.readouterr().out
    assert run(asked) == 0
    assert "and 6 offset indexes and 3 column indexes, " in capsys.readouterr().out
    assert run([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["files"][0]["offset_indexes"] == 0
    assert run(["inspect", str(source)]) == 0
    shown = capsys.readouterr().out
    assert "offset indexes of mixed, ascending: in 6 of 6 column chunks" in shown
    assert "column indexes of ascending: in 3 of 3 column chunks" in shown
    assert "9 of these page indexes were added by add" in shown
    assert run(["remove", str(source), "--in-place"]) == 0
    assert "removed 3 filters and 9 page indexes" in capsys.readouterr().out
    assert digest(source) == before
    assert run(["add", str(source), "--in-place", "--exclude", "*", "--page-index"]) == 0
    assert "6 offset indexes, " in capsys.readouterr().out
    assert run(["add", str(source), "--in-place", "--page-bounds", "mixed"]) == 2
    assert "--page-bounds is for --page-index" in capsys.readouterr().err


def test_inspect_and_status_count_them_and_say_how_large_pages_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = table().select(["mixed", "text"])
    for name in ("a", "b", "c"):
        by_pyarrow(tmp_path / f"{name}.parquet", few, write_page_index=False)
    add(tmp_path / "a.parquet", None, in_place=True, page_bounds="text")
    add(tmp_path / "b.parquet", None, in_place=True)
    with edited_footer(tmp_path / "b.parquet") as metadata:
        chunk = metadata.row_groups[0].columns[0]
        chunk.offset_index_offset = chunk.offset_index_length = None
    found = {one.column: one for one in parquet_bloom.status(tmp_path).page_indexes}
    assert [(one.files, one.row_groups, one.files_lacking) for one in found.values()] == [(3, 9, 2), (3, 9, 1)]
    assert [(one.offset_indexes, one.column_indexes) for one in found.values()] == [(5, 0), (6, 3)]
    assert [one.column for one in parquet_bloom.status(tmp_path, columns="text").page_indexes] == ["text"]
    assert run(["status", str(tmp_path)]) == 0
    assert "  offset indexes of mixed, text: in 11 of 18 column chunks\n" in capsys.readouterr().out
    by_pyarrow(tmp_path / "d.parquet", few.select(["text"]), write_page_index=False)  # it has no mixed
    assert run(["status", str(tmp_path)]) == 0
    assert "  offset indexes of mixed, text: in 11 of 21 column chunks\n" in capsys.readouterr().out
    assert parquet_bloom.status(tmp_path / "c.parquet").page_indexes == []

    [one] = parquet_bloom.inspect(tmp_path / "a.parquet", columns="mixed").files[0].page_indexes
    there = indexes(tmp_path / "a.parquet")
    locations = [at for group in range(3) for at in there[group, "mixed"][0].page_locations]
    assert (one.read, one.pages, one.page_rows) == (3, len(locations), PAGE_ROWS)
    assert one.page_bytes == int(np.median([at.compressed_page_size for at in locations]))
    assert run(["inspect", str(tmp_path / "a.parquet")]) == 0
    assert f"pages (medians): mixed {one.page_bytes} B, {PAGE_ROWS} rows; text " in capsys.readouterr().out


def test_inspect_believes_no_index_that_the_footer_contradicts(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table().select(["mixed"]), write_page_index=False)
    add(source, None, in_place=True)
    data = bytearray(source.read_bytes())
    for chunk in (one.columns[0] for one in footer(source).row_groups[:2]):
        data[chunk.offset_index_offset + 2] ^= 0x55
    source.write_bytes(data)
    [one] = parquet_bloom.inspect(source).files[0].page_indexes
    assert (one.offset_indexes, one.read) == (3, 1)
    data[footer(source).row_groups[2].columns[0].offset_index_offset] = 0xFF
    source.write_bytes(data)
    [one] = parquet_bloom.inspect(source).files[0].page_indexes
    assert (one.offset_indexes, one.read, one.pages, one.page_bytes, one.page_rows) == (3, 0, 0, None, None)


def test_append_and_take_off(tmp_path: Path) -> None:
    source = by_pyarrow(tmp_path / "f.parquet", table(), write_page_index=False)
    before = digest(source)
    add(source, None, in_place=True, placement="tail", append=True, page_bounds=["ascending"])
    assert wrong(source) == []
    assert parquet_bloom.inspect(source).files[0].tails == 1
    parquet_bloom.remove_filters(source, in_place=True, append=True, sync=False)
    assert digest(source) == before
    add(source, None, in_place=True)
    with pytest.raises(LayoutError, match="page indexes that lie in no tail"):
        parquet_bloom.remove_filters(source, in_place=True, append=True, sync=False)


def test_a_store(store: ObjectStore, bucket: str, tmp_path: Path) -> None:
    """Page headers of an object are read with its chunks, and the body is copied inside the store."""
    data = pa.table({"ascending": np.arange(ROWS), "list": [[x] * (x % 3) for x in range(ROWS)]})
    source = by_pyarrow(tmp_path / "f.parquet", data, write_page_index=False)
    store.client.put_object(Bucket=bucket, Key="f.parquet", Body=source.read_bytes())
    names = [store.uri(f"{bucket}/{name}.parquet") for name in "fgh"]
    report = add(names[0], names[1], page_bounds=["*"])
    assert (report.offset_indexes, report.column_indexes) == (6, 3)
    target = tmp_path / "g.parquet"
    target.write_bytes(store.client.get_object(Bucket=bucket, Key="g.parquet")["Body"].read())
    add(source, here := tmp_path / "h.parquet", page_bounds=["*"])
    assert digest(target) == digest(here), "as on a disk"
    parquet_bloom.remove_filters(names[1], names[2])
    assert store.client.get_object(Bucket=bucket, Key="h.parquet")["Body"].read() == source.read_bytes()


def test_write_table_and_a_filter_writer_pass_the_option_on(tmp_path: Path) -> None:
    data, at_once, by_parts = table(), tmp_path / "at_once.parquet", tmp_path / "by_parts.parquet"
    options: dict[str, Any] = {"bloom_filters": ["mixed"], "write_page_index": True, "sync": False}
    parquet_bloom.write_table(data, at_once, row_group_size=GROUP_ROWS, **options)
    with parquet_bloom.FilterWriter(by_parts, data.schema, **options) as writer:
        for start in range(0, ROWS, GROUP_ROWS):
            writer.write_table(data.slice(start, GROUP_ROWS))
    for path in (at_once, by_parts):
        assert all(offsets and bounds for offsets, bounds in indexes(path).values())
        assert len(indexes(path)) == 3 * data.num_columns
        assert wrong(path) == []
