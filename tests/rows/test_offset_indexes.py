"""Places of pages by offset indexes: the right rows, whatever an index says, and no page that holds none of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rows.test_pages import (
    ENCODINGS,
    FLAT,
    GROUP,
    NESTED,
    ROWS,
    assert_rows,
    in_keys,
    rows_of,
    same,
    table_of,
    written,
)  # fmt: skip

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import FileMetaData, OffsetIndex, PageHeader, PageLocation
from parquet_bloom.format import compact


def footer_of(data: bytes) -> tuple[int, FileMetaData]:
    """Where a file's footer starts, and the footer."""
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    return start, compact.decode(FileMetaData, data[start:-8])[0]


def with_indexes(
    path: Path, change: Callable[[int, Any], bytes], kind: type = OffsetIndex, created_by: str | None = None
) -> None:
    """Give each column chunk another offset index, or column index; pages and all else stay.

    change      (column, index) -> bytes
    created_by  another writer, for the footer
    """
    data, name = path.read_bytes(), "offset_index" if kind is OffsetIndex else "column_index"
    start, footer = footer_of(data)
    footer.created_by = created_by or footer.created_by
    indexes = bytearray()
    for group in footer.row_groups:
        for column, chunk in enumerate(group.columns):
            if at := getattr(chunk, f"{name}_offset"):
                index, _ = compact.decode(kind, data[at : at + getattr(chunk, f"{name}_length")])
                new = change(column, index)
                setattr(chunk, f"{name}_offset", start + len(indexes))
                setattr(chunk, f"{name}_length", len(new))
                indexes += new
    end = compact.encode(footer)
    path.write_bytes(data[:start] + indexes + end + len(end).to_bytes(4, "little") + b"PAR1")


def indexes_of(data: bytes) -> dict[tuple[int, int], list[PageLocation]]:
    """The pages of each (row group, column)."""
    return {
        (number, column): compact.decode(OffsetIndex, data[chunk.offset_index_offset :])[0].page_locations
        for number, group in enumerate(footer_of(data)[1].row_groups)
        for column, chunk in enumerate(group.columns)
    }


def garbage(path: Path, keys: Iterable[int], but_the_first: bool = True) -> int:
    """Overwrite the pages that have none of these rows, but those of the first column; how many there were.

    The last page of a chunk stays with these: of lists it is decoded, as it says whether its rows are all.
    """
    data, overwritten = bytearray(path.read_bytes()), 0
    for (group, column), pages in indexes_of(bytes(data)).items():
        firsts = [GROUP * group + page.first_row_index for page in pages]
        for page, first, stop in zip(pages, firsts, [*firsts[1:], GROUP * (group + 1)], strict=True):
            stays = but_the_first and (not column or page is pages[-1])
            if not stays and not any(first <= key < stop for key in keys):
                _, head = compact.decode(PageHeader, bytes(data[page.offset : page.offset + 4096]))
                end = page.offset + page.compressed_page_size
                data[page.offset + head : end] = b"\xff" * (end - page.offset - head)
                overwritten += 1
    path.write_bytes(data)
    return overwritten


def lying(number: int) -> Callable[[int, OffsetIndex], bytes]:
    """A change of with_indexes: the lie of this number, about chunks of several pages."""

    def change(_: int, index: OffsetIndex) -> bytes:
        pages = index.page_locations
        return compact.encode(OffsetIndex(next(islice(lies(pages), number, None))[1] if len(pages) > 5 else pages))

    return change


def lies(pages: list[PageLocation]) -> Iterator[tuple[str, list[PageLocation]]]:
    """Each kind of lie about the pages of a chunk, of the third and fourth page where it is about some."""

    def told(name: str, *changes: tuple[int, str, int]) -> tuple[str, list[PageLocation]]:
        changed = list(map(copy, pages))
        for page, field, by in changes:
            setattr(changed[page], field, getattr(changed[page], field) + by)
        return f"{name} {changes}", changed

    for field in ("offset", "compressed_page_size", "first_row_index"):
        for by in (-1, 1, 20, 1 << 30, -(1 << 30)):
            yield told("wrong", (3, field, by))
    yield told("first page later", (0, "offset", 9), (0, "compressed_page_size", -9))
    yield told("first row is not the first", (0, "first_row_index", 1))
    yield told(
        "a byte of the next page", (2, "compressed_page_size", 1), (3, "offset", 1), (3, "compressed_page_size", -1)
    )
    yield told("a row of the next page", (3, "first_row_index", 1))
    yield told("all pages behind one", *((page, "first_row_index", 1) for page in range(2, len(pages))))
    yield "a page less", pages[:3] + pages[4:]
    yield "the last page is missing", pages[:-1]
    yield "a page twice", pages[:3] + pages[2:]
    yield "no pages", []
    swapped = list(map(copy, pages))
    swapped[2].first_row_index, swapped[3].first_row_index = pages[3].first_row_index, pages[2].first_row_index
    yield "rows in another order", swapped
    one = PageLocation(pages[0].offset, sum(page.compressed_page_size for page in pages), 0)
    yield "one page for all", [one]
    pair = PageLocation(
        pages[2].offset, pages[2].compressed_page_size + pages[3].compressed_page_size, pages[2].first_row_index
    )
    yield "two pages as one", [*pages[:2], pair, *pages[4:]]
    half = pages[2].compressed_page_size // 2
    first = PageLocation(pages[2].offset, half, pages[2].first_row_index)
    rest = PageLocation(pages[2].offset + half, pages[2].compressed_page_size - half, pages[2].first_row_index + 1)
    yield "one page as two", [*pages[:2], first, rest, *pages[3:]]
    none = list(map(copy, pages))
    none[2].first_row_index = None
    yield "a number is missing", none


KINDS = [
    pa.int64(), pa.string(), pa.list_(pa.int32()), pa.list_(pa.list_(pa.string())), pa.struct([("a", pa.int8())]),
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
]  # fmt: skip


@pytest.mark.parametrize("version", ["2.0", pytest.param("1.0", marks=pytest.mark.more)])
@pytest.mark.parametrize("name", ["plain", pytest.param("dictionary", marks=pytest.mark.more)])
def test_an_index_that_lies_loses_and_changes_no_row(tmp_path: Path, name: str, version: str) -> None:
    path = written(
        table_of(KINDS), tmp_path / "a.parquet", write_page_index=True, data_page_version=version, **ENCODINGS[name]
    )
    data, truth = path.read_bytes(), pq.read_table(path)
    edges = [pages[3].first_row_index for column, pages in indexes_of(data).items() if column[1]]
    turns = [edge - 1 for edge in edges[::2]], [*edges, 1500], [edges[0] + 1], [ROWS - 1]
    for number, (lie, _) in enumerate(lies([PageLocation(n, 1, n) for n in range(9)])):
        path.write_bytes(data)
        with_indexes(path, lying(number))
        for keys in turns[number % 2 :: 2]:
            keys = sorted(set(keys))
            same(parquet_bloom.read_table(path, in_keys(keys)), rows_of(truth, keys), lie)


def test_indexes_that_do_not_decode_or_are_of_another_column(tmp_path: Path) -> None:
    path, seen = tmp_path / "a.parquet", []

    def other(column: int, index: OffsetIndex) -> bytes:
        seen.append(compact.encode(index))
        return seen[-2] if len(seen) > 1 else seen[-1]

    for bytes_ in (b"", b"\xff" * 40, b"\x19\xfc\xff\xff\xff\xff\x07", b"\x19\x0c\x00", None):
        written(table_of(KINDS), path, write_page_index=True)
        with_indexes(path, other if bytes_ is None else lambda *_, bytes_=bytes_: bytes_)
        assert_rows(path, range(4), bytes_)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_lists_are_read_by_pages(tmp_path: Path, version: str) -> None:
    """Of version 1 only with an index; of version 2 headers count rows."""
    kinds = [kind for kind in NESTED if pa.types.is_list(kind) and not pa.types.is_struct(kind.value_type)]
    kinds += [pa.list_(pa.list_(pa.int8())), pa.struct([("a", pa.list_(pa.string()))]), pa.list_(pa.int32(), 3)]
    table = table_of(kinds)
    path = written(
        table, tmp_path / "a.parquet", compression="zstd", write_page_index=True, data_page_version=version,
        use_dictionary=False,
    )  # fmt: skip
    keys = [7, 8, 430, 1001]
    truth = rows_of(pq.read_table(path), keys)
    assert garbage(path, keys) > 100
    if version == "2.0":
        with_indexes(path, lambda *_: b"none")
    with pytest.raises(OSError, match=r"zstd|ZSTD|decompress"):
        pq.read_table(path)
    same(parquet_bloom.read_table(path, in_keys(keys)), truth)


STRUCTS = [
    pa.struct([("a", pa.int64()), ("b", pa.string())]),
    pa.struct(
        [("a", pa.struct([("x", pa.int8()), ("y", pa.string())])), ("b", pa.list_(pa.int32())), ("c", pa.date32())]
    ),
    pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())])),
    pa.large_list(pa.struct([("a", pa.int8()), ("b", pa.string())])),
    pa.struct([("a", pa.dictionary(pa.int32(), pa.string())), ("b", pa.large_string()), ("c", pa.duration("s"))]),
    pa.struct([("l", pa.list_(pa.struct([("a", pa.int8()), ("b", pa.string())]))), ("b", pa.binary(7))]),
]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_structs_are_read_by_the_pages_of_their_leaves(tmp_path: Path, version: str) -> None:
    table = table_of(STRUCTS)
    path = written(
        table, tmp_path / "a.parquet", compression="zstd", write_page_index=True, data_page_version=version,
        use_dictionary=version == "2.0", data_page_size=100,
    )  # fmt: skip
    whole = pq.read_table(path)
    assert_rows(path, range(8))
    keys = [7, 8, 430, 1001]
    assert garbage(path, keys) > 100
    with pytest.raises(OSError, match=r"zstd|ZSTD|decompress|corrupted"):
        pq.read_table(path)
    same(parquet_bloom.read_table(path, in_keys(keys)), rows_of(whole, keys))


def test_every_type_by_indexes(tmp_path: Path) -> None:
    for version, name in (("1.0", "dictionary"), ("2.0", "fallback"), ("1.0", "plain")):
        table, options = table_of(FLAT + NESTED), ENCODINGS[name]
        path = written(table, tmp_path / "a.parquet", write_page_index=True, data_page_version=version, **options)
        assert_rows(path, range(4), (version, name))
