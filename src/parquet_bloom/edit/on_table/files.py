"""One file of a table: whether it is what the log says, and what the log is to say of its new version."""

from __future__ import annotations

from parquet_bloom.chunks.tails import as_it_was
from parquet_bloom.errors import TableFormatError
from parquet_bloom.storage.remote import Location
from parquet_bloom.storage.source import Source
from parquet_bloom.storage.table_folders import Tables
from parquet_bloom.tables.snapshot import TableFile


class _ThroughLog(Tables):
    """Files of a table may be changed: its log is told."""

    def refuse(self, at: Location, target: Location, force: bool) -> None:
        """Nothing is refused."""


THROUGH_LOG = _ThroughLog()


def check_size(file: TableFile, source: Source) -> bool:
    """Whether a file is longer than its table's log says, by a tail of ours that no commit names yet.

    Raises TableFormatError where it has another size for another reason.
    """
    was = as_it_was(source, file.size or source.size)
    if was is not None:
        return was is not source
    reason = f"has {source.size:,} bytes, and {file.size:,} by the table's log: another program changed it"
    raise TableFormatError(file, reason)


def footer_bytes(at: Location) -> int:
    """Bytes of a file's Thrift footer."""
    with Source(at) as source:
        return len(source.footer().data)
