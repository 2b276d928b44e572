"""Footers of files, read and changed through the bindings, and the page indexes that they name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parquet_bloom._thrift.parquet.ttypes import ColumnIndex, FileMetaData, OffsetIndex
from parquet_bloom.format import compact

INDEX_FIELDS = ("offset_index_offset", "offset_index_length", "column_index_offset", "column_index_length")
Found = dict[tuple[int, str], tuple[Any, Any]]


@contextmanager
def edited_footer(path: Path) -> Iterator[FileMetaData]:
    """The footer of a file; what the caller changes in it is written back, and the body stays."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact.decode(FileMetaData, data[-8 - length : -8])
    yield metadata
    footer = compact.encode(metadata)
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def footer(path: Path) -> FileMetaData:
    data = path.read_bytes()
    return compact.decode(FileMetaData, data[-8 - int.from_bytes(data[-8:-4], "little") : -8])[0]


def indexes(path: Path) -> Found:
    """(row group, column) -> its OffsetIndex and ColumnIndex, None where it has none."""
    data, found = path.read_bytes(), {}
    for group, one in enumerate(footer(path).row_groups):
        for chunk in one.columns:
            places = [
                (OffsetIndex, chunk.offset_index_offset, chunk.offset_index_length),
                (ColumnIndex, chunk.column_index_offset, chunk.column_index_length),
            ]
            pair = tuple(compact.decode(kind, data[at : at + n])[0] if at else None for kind, at, n in places)
            found[group, ".".join(chunk.meta_data.path_in_schema)] = pair
    return found


def without_indexes(path: Path) -> Path:
    """The same file, whose footer names no page index."""
    bare = path.with_name(f"bare-{path.name}")
    bare.write_bytes(path.read_bytes())
    with edited_footer(bare) as metadata:
        for group, name in itertools.product(metadata.row_groups, INDEX_FIELDS):
            for chunk in group.columns:
                setattr(chunk, name, None)
    return bare
