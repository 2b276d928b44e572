"""A file of a table, as long as its table's log says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from parquet_bloom.chunks.tails import as_it_was
from parquet_bloom.storage.paths import DataFile
from parquet_bloom.storage.source import Source
from parquet_bloom.tables.snapshot import TableFile


@contextmanager
def open_logged(file: DataFile) -> Iterator[Source]:
    """Open what a version of a table has of a file: without tails of ours that this version does not name.

    A file whose size is another one for another reason, or that is of no table, is taken as it is. Raises as Source,
    and of a table's file as Source.footer.
    """
    with Source(file) as source:
        if isinstance(file, TableFile) and file.size:
            yield as_it_was(source, file.size) or source
        else:
            yield source
