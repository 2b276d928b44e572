"""A file of a table, as long as its table's log says."""

from __future__ import annotations

from parquet_bloom.chunks.tails import as_it_was
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.source import Source
from parquet_bloom.tables.snapshot import TableFile


def as_logged(source: Source, file: DataFile) -> Source:
    """What a version of a table has of a file: without tails of ours that this version does not name.

    A file whose size is another one for another reason is taken as it is.
    """
    if not isinstance(file, TableFile) or not file.size:
        return source
    return as_it_was(source, file.size) or source
