"""Footers of files, changed through the bindings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parquet_bloom._thrift.parquet.ttypes import FileMetaData
from parquet_bloom.format import compact


@contextmanager
def edited_footer(path: Path) -> Iterator[FileMetaData]:
    """The footer of a file; what the caller changes in it is written back, and the body stays."""
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    metadata, _ = compact.decode(FileMetaData, data[-8 - length : -8])
    yield metadata
    footer = compact.encode(metadata)
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + b"PAR1")
