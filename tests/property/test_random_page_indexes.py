"""Random files of all kinds of columns get page indexes: right by their values, rows stay, and they leave again."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from random_files import random_file
from support.footers import edited_footer
from support.repeats import first_then_more
from support.samples import digest

import parquet_bloom
from parquet_bloom import FileError
from parquet_bloom._thrift.parquet.ttypes import FileMetaData, OffsetIndex
from parquet_bloom.format import compact

EACH = 20  # files a part


def _ranges(path: Path) -> list[str]:
    """What verify finds wrong about page indexes, of values that pyarrow decodes."""
    report = parquet_bloom.verify(path, statistics=True).files[0]
    return [one.text for one in report.statistics.wrong if "index" in one.statistic]


def folder_of(tmp_path: Path, seed: int) -> Path:
    (tmp_path / str(seed)).mkdir()
    return tmp_path / str(seed)


PARTS = pytest.mark.parametrize("part", first_then_more(range(3), 1))


@PARTS
def test_random_files(tmp_path: Path, part: int) -> None:
    for seed in range(EACH * part, EACH * (part + 1)):
        random_files(folder_of(tmp_path, seed), seed)


def random_files(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    source = random_file(seed, tmp_path).path
    before, wrong = digest(source), _ranges(source)
    target = tmp_path / "target.parquet"
    placement = rng.choice(["footer", "tail", "chunk-start"])
    options = {"columns": rng.choice([[], None]), "placement": placement, "page_bounds": ["*"]}
    report = parquet_bloom.add_filters(source, target, page_index=True, sync=False, **options).files[0]
    assert _ranges(target) == wrong, f"{seed}: an index that was wrong stays, and none is added"
    rows = [pq.ParquetFile(path).read() for path in (source, target)]
    assert rows[0].equals(rows[1]) or str(rows[0]) == str(rows[1]), seed
    info = parquet_bloom.inspect(target).files[0]
    added = sum(one.added for one in info.page_indexes)
    assert added == report.offset_indexes + report.column_indexes, seed
    removed = parquet_bloom.remove_filters(target, in_place=True, sync=False).files[0]
    assert removed.indexes == added, seed
    if not info.filters or report.filters or added:
        back = tmp_path / "back.parquet"
        parquet_bloom.remove_filters(source, back, sync=False)
        assert digest(target) in (before, digest(back)), f"{seed}: as the old file without filters of ours"


def _offset_indexes(path: Path) -> list[str]:
    """The page locations of each chunk, as text."""
    data = path.read_bytes()
    footer = compact.decode(FileMetaData, data[-8 - int.from_bytes(data[-8:-4], "little") : -8])[0]
    chunks = [chunk for group in footer.row_groups for chunk in group.columns]
    places = [(one.offset_index_offset, one.offset_index_length) for one in chunks]
    return [str(compact.decode(OffsetIndex, data[at : at + n])[0].page_locations) for at, n in places if at]


@PARTS
def test_many_pages(tmp_path: Path, part: int) -> None:
    """Random columns in pages of a few rows: pyarrow's own places, and bounds that hold all values of their pages."""
    for seed in range(EACH * part, EACH * (part + 1)):
        many_pages(folder_of(tmp_path, seed), seed)


def many_pages(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    tables = random_file(seed, tmp_path).tables
    some = [table.slice(at, at + 40) for table in tables for at in (0, 40)]
    tables = [table for table in some if table.num_rows] or some[:1]  # beside an empty row group there is no index
    source, bare, target = (tmp_path / f"{name}.parquet" for name in ("source", "bare", "target"))
    options = {
        "max_rows_per_page": rng.randint(1, 6),
        "write_batch_size": 1,
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "compression": rng.choice(["none", "snappy", "zstd", "gzip", "brotli", "lz4"]),
        "use_dictionary": rng.random() < 0.5,
    }
    with pq.ParquetWriter(source, tables[0].schema, write_page_index=True, **options) as writer:
        for table in tables:
            writer.write_table(table)
    bare.write_bytes(source.read_bytes())
    with edited_footer(bare) as metadata:
        for group in metadata.row_groups:
            for chunk in group.columns:
                chunk.offset_index_offset = chunk.offset_index_length = None
                chunk.column_index_offset = chunk.column_index_length = None
    before = digest(bare)
    options = {"page_index": True, "page_bounds": ["*"], "sync": False}
    report = parquet_bloom.add_filters(bare, target, columns=[], **options).files[0]
    assert _offset_indexes(target) == _offset_indexes(source), seed
    assert report.offset_indexes == len(_offset_indexes(source)), seed
    assert _ranges(target) == [], seed
    parquet_bloom.remove_filters(target, in_place=True, sync=False)
    assert digest(target) == before, seed


def test_damaged_pages(tmp_path: Path) -> None:
    """Bytes among the pages are changed: a line says why there is no index, or the index is of what headers say."""
    for seed in range(40):
        damaged_pages(folder_of(tmp_path, seed), seed)


def damaged_pages(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    source = random_file(seed, tmp_path).path
    data = bytearray(source.read_bytes())
    length = int.from_bytes(data[-8:-4], "little")
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(4, len(data) - 8 - length)] = rng.randrange(256)
    source.write_bytes(data)
    target = tmp_path / "target.parquet"
    try:
        report = parquet_bloom.add_filters(source, target, columns=[], page_index=True, sync=False).files[0]
    except FileError:
        assert not target.exists(), seed
        return
    assert report.index_notes or report.offset_indexes or digest(target) == digest(source), seed
    try:
        wrong = parquet_bloom.verify(target, statistics=True).files[0].statistics.wrong
    except FileError:  # its pages do not decode
        return
    ours = {one.column for one in parquet_bloom.inspect(target).files[0].page_indexes if one.added}
    assert not [one.text for one in wrong if one.column in ours and one.statistic.startswith("offset_index")], seed
