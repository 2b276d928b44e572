"""Filters at the start of chunks move what follows them: what points at it follows, and what could break is refused."""

from __future__ import annotations

from pathlib import Path

import fastparquet
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.footers import edited_footer
from support.samples import digest, leftovers

import parquet_bloom
from parquet_bloom._thrift.parquet.ttypes import OffsetIndex
from parquet_bloom.errors import LayoutError
from parquet_bloom.format import compact
from parquet_bloom.storage.open_file import OpenFile


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """Two row groups of two columns, each of many pages, with page indexes."""
    ids = np.random.default_rng(3).integers(0, 1 << 60, 4000)
    table = pa.table({"id": ids, "n": np.arange(4000)})
    path = tmp_path / "pages.parquet"
    options = {"row_group_size": 2000, "data_page_size": 1000, "write_batch_size": 100, "use_dictionary": False}
    pq.write_table(table, path, write_page_index=True, **options)
    return path


def pages_of(path: Path) -> list[list[bytes]]:
    """The bytes that the offset index of each chunk says are its pages."""
    data = path.read_bytes()
    found = []
    with OpenFile(path) as source:
        for _, _, chunk in source.footer().chunks():
            index, _ = compact.decode(OffsetIndex, data[chunk.offset_index_offset :][: chunk.offset_index_length])
            found.append([data[at.offset : at.offset + at.compressed_page_size] for at in index.page_locations])
    return found


def test_page_offsets_follow_their_pages(pages: Path, tmp_path: Path) -> None:
    moved, without_one = tmp_path / "moved.parquet", tmp_path / "without_one.parquet"
    wanted = pages_of(pages)
    assert all(len(one) > 9 for one in wanted)
    parquet_bloom.add_filters(pages, moved, columns=["id", "n"], placement="chunk-start", sync=False)
    assert pages_of(moved) == wanted
    parquet_bloom.remove_filters(moved, without_one, columns=["id"], sync=False)
    assert pages_of(without_one) == wanted, "some filters went, and the others stay"
    assert {one.column for one in parquet_bloom.inspect(without_one).files[0].filters} == {"n"}


def refused(path: Path, match: str) -> None:
    before = digest(path)
    with pytest.raises(LayoutError, match=match):
        parquet_bloom.add_filters(path, in_place=True, columns=["n"], placement="chunk-start", sync=False)
    assert digest(path) == before
    assert leftovers(path.parent) == []


def test_a_chunk_of_another_file_is_not_moved(pages: Path) -> None:
    with edited_footer(pages) as metadata:
        metadata.row_groups[1].columns[0].file_path = "other.parquet"
    refused(pages, "row group 1, column id lies in another file, other.parquet")


def test_structures_that_overlap_are_not_moved(pages: Path) -> None:
    with edited_footer(pages) as metadata:
        chunk = metadata.row_groups[0].columns[0]
        chunk.column_index_offset = chunk.offset_index_offset + 3
    refused(pages, "the column index of row group 0, column id begins at .*, inside the offset index of ")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # fastparquet closes no file
def test_pages_that_a_summary_beside_the_file_points_at(tmp_path: Path) -> None:
    path, frame = tmp_path / "a.parquet", pandas.DataFrame({"id": range(1000), "n": np.arange(1000) * 3.5})
    fastparquet.write(path, frame)
    fastparquet.writer.merge([str(path)], root=str(tmp_path))
    refused(path, "_metadata says where the rows of this file are.* remove it, give force=True and write it anew")
    parquet_bloom.add_filters(path, in_place=True, columns=["n"], sync=False)
    assert fastparquet.ParquetFile(str(tmp_path)).to_pandas().equals(frame), "before the footer no page moves"
    out = tmp_path / "elsewhere" / "a.parquet"
    out.parent.mkdir()
    parquet_bloom.add_filters(path, out, columns=["id"], placement="chunk-start", sync=False)
    parquet_bloom.add_filters(path, in_place=True, columns=["id"], placement="chunk-start", force=True, sync=False)
    assert pq.read_table(path).to_pandas().equals(frame)
